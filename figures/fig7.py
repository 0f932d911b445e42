"""Figure 7: held-out cross-entropy of T1 against the size of the training set, and J(q) as it trains (App. J.5).

a  at the best step of each curve;  b  at the last step;  c, d  learning curves with the fewest and the most examples.
Not in the paper: e, f  the growth of every wavenumber as the matched and the mismatched arm train on the most examples;
g  how much of their modes is left. Bars are bootstrap intervals over seeds, bands the middle half of the seeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes

from figures.early import fate, interval
from figures.families import tree
from figures.report import Claim
from figures.studies import marked, results
from figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SEQUENTIAL,
    TWO_COLUMNS,
    VERMILION,
    panel_label,
)
from training.experiment import BASELINE, MATCHED, MISMATCHED
from training.statistics import WINDOWS, at_steps, over_seeds

NAME = "fig7"
TITLE = "Cross-entropy against the size of the training set, and what training makes of J(q)"
MOSAIC = [list("aaabbb"), list("cccddd"), list("eeffgg")]
SIZE = (TWO_COLUMNS, 6.2)

QUICK = (50, 2)
"""Steps and seeds of the study trained for a `quick` figure."""

RANDOM = "random mode"
STYLES: dict[str, dict[str, Any]] = {
    MATCHED: {"color": BLUE, "marker": "o", "linestyle": "-"},
    MISMATCHED: {"color": VERMILION, "marker": "s", "linestyle": "--"},
    RANDOM: {"color": PURPLE, "marker": "D", "linestyle": "-."},
    "standard": {"color": GREEN, "marker": "^", "linestyle": "-"},
    "sinusoidal": {"color": ORANGE, "marker": "v", "linestyle": ":"},
}
MOMENTS = {"best": "at the best step", "last": "at the last step"}


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """Learning curves over size, seed and arm, the node 'sizes'; arms are named by what they are to the task.

    quick : trains a small study on the spot, in place of the saved one; progress : show bars.
    """
    data = results("sizes", QUICK if quick else None, progress).isel(task=0)
    names = [
        str(arm) if role == BASELINE else str(role) for arm, role in zip(data.arm.values, data.role.values, strict=True)
    ]
    return tree({"sizes": data.assign_coords(engineered=data.arm).assign_coords(arm=names)})


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw cross-entropies, learning curves and J(q) in training."""
    study = data["sizes"].to_dataset()
    scores, sizes = at_steps(study), study["size"].values
    for letter, (moment, words) in zip("ab", MOMENTS.items(), strict=True):
        _draw_sizes(scores[moment], axes[letter])
        axes[letter].set_title(words)
    for letter, size in zip("cd", (sizes.min(), sizes.max()), strict=True):
        curves = study.cross_entropy.sel(size=size)
        for arm, look in STYLES.items():
            _draw_band(curves.sel(arm=arm), axes[letter], {**look, "marker": ""}, arm)
        axes[letter].set_xlabel("step")
        axes[letter].set_title(f"{size} examples")
    for letter in "abcd":
        _logarithmic(axes[letter])
    handles, names = axes["a"].get_legend_handles_labels()
    axes["a"].figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    for letter, role in zip("ef", (MATCHED, MISMATCHED), strict=True):
        _draw_growth(study.growth.sel(size=sizes.max(), arm=role), axes[letter])
        axes[letter].axvline(carrier(study), color=GREY, linewidth=0.6, linestyle=":", zorder=0)
        axes[letter].set_title(f"{role}, {sizes.max()} examples")
    axes["e"].legend(title="step", fontsize=6, title_fontsize=6, loc="upper right")
    for role in (MATCHED, MISMATCHED):
        for size, line in ((sizes.min(), ":"), (sizes.max(), "-")):
            look = {"color": STYLES[role]["color"], "linestyle": line}
            _draw_band(study.share.sel(size=size, arm=role), axes["g"], look, f"{role}, {size}")
    axes["g"].axhline(1, color=GREY, linewidth=0.6, zorder=0)
    axes["g"].set(xlabel="step", ylabel="share of first mode", ylim=(0, None))
    axes["g"].legend(fontsize=6, loc="lower left")
    for letter, ax in axes.items():
        panel_label(ax, letter)


def carrier(study: xr.Dataset) -> int:
    """k_0 of the task."""
    return int(json.loads(study.attrs["tasks"])[0]["carrier"])


def _draw_sizes(values: xr.DataArray, ax: Axes) -> None:
    for arm, look in STYLES.items():
        found = over_seeds(values.sel(arm=arm))
        # an interval of one seed is none
        ends = np.nan_to_num(abs(np.stack([found.low, found.high]) - found.difference.values))
        ax.errorbar(found["size"], found.difference, ends, elinewidth=0.8, markersize=3.5, label=arm, **look)
    ax.set(xscale="log", xlabel="examples in the training set")
    ax.set_xticks(values["size"].values, values["size"].values)


def _logarithmic(ax: Axes) -> None:
    """The axis of cross-entropies."""
    ax.set(yscale="log", ylabel="cross-entropy (nat)")
    low, high = ax.get_ylim()
    ticks = [tick for tick in (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20) if low <= tick <= high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def _draw_band(values: xr.DataArray, ax: Axes, look: dict[str, Any], label: str) -> None:
    """A mean over seeds with a band between their quartiles, over the other dimension."""
    mean, (low, high) = values.mean("seed"), values.quantile([0.25, 0.75], "seed")
    steps = mean[mean.dims[0]]
    ax.fill_between(steps, low, high, color=look["color"], alpha=0.2, linewidth=0)
    ax.plot(steps, mean, label=label, **look)


def _draw_growth(growth: xr.DataArray, ax: Axes) -> None:
    means = growth.mean("seed")
    for place, step in enumerate(means.watched.values):
        colour = colormaps[SEQUENTIAL](0.9 * place / max(1, means.sizes["watched"] - 1))
        ax.plot(means.wavenumber, means.sel(watched=step), ".-", color=colour, linewidth=0.9, label=f"{step}")
    ax.axhline(1, color=GREY, linewidth=0.6, zorder=0)
    ax.set(xlabel="wavenumber $k$", ylabel=r"growth $\rho(J(q))$")


# Claims


def claims(data: xr.DataTree) -> list[Claim]:
    """The order of the arms at each size, where matched arms are ahead most, and what is left of their modes."""
    study = data["sizes"].to_dataset()
    scores = at_steps(study)
    found = [_order(scores[moment], moment, size) for size in study["size"].values for moment in MOMENTS]
    found += [_low_data(scores[moment], moment) for moment in MOMENTS]
    ends = sorted({int(study["size"].min()), int(study["size"].max())})
    found += [_early(study.cross_entropy.sel(size=size), size) for size in ends]
    found += [claim for role in (MATCHED, MISMATCHED) for size in ends for claim in _prior(study, role, size)]
    found += [_grown(study, size) for size in ends]
    return marked(found, [study])


def _order(scores: xr.DataArray, moment: str, size: int) -> Claim:
    """Arms by mean cross-entropy, and whether the matched one is ahead of those of the same gain."""
    here = scores.sel(size=size)
    means = here.mean("seed")
    ordered = [str(arm) for arm in means.arm.values[np.argsort(means.values)]]
    ahead = [
        f"{arm} {interval(over_seeds(here.sel(arm=arm) - here.sel(arm=MATCHED)))}" for arm in STYLES if arm != MATCHED
    ]
    first = min(ordered.index(MISMATCHED), ordered.index(RANDOM))
    return Claim(
        f"fig7.order.n{size}.{moment}",
        f"with {size} examples the matched arm has a lower cross-entropy than the gain-matched arms, {MOMENTS[moment]}",
        f"{MATCHED} < {MISMATCHED}, {RANDOM}",
        " < ".join(ordered),
        ordered.index(MATCHED) < first,
        f"means over seeds; paired differences to the matched arm: {', '.join(ahead)} nat",
    )


def _low_data(scores: xr.DataArray, moment: str) -> Claim:
    """At which size the mean advantage over the arms of the same gain is largest."""
    controls = scores.sel(arm=[MISMATCHED, RANDOM]).mean("arm")
    means = (controls - scores.sel(arm=MATCHED)).mean("seed")
    sizes = means["size"].values
    largest = int(sizes[int(means.argmax("size"))])
    listed = ", ".join(f"{size}: {value:.3f}" for size, value in zip(sizes, means.values, strict=True))
    return Claim(
        f"fig7.low_data.{moment}",
        f"the matched arm is ahead most with few examples, {MOMENTS[moment]}",
        int(sizes.min()),
        largest,
        largest <= sizes[(len(sizes) - 1) // 2],
        "size at which the mean cross-entropy of mismatched and random arms, less the matched one's, is largest "
        f"({listed} nat); met in the smaller half",
    )


def _early(curves: xr.DataArray, size: int) -> Claim:
    """When the curves of matched and mismatched arms are farthest apart."""
    apart = (curves.sel(arm=MISMATCHED) - curves.sel(arm=MATCHED)).mean("seed")
    step = int(apart.step[int(apart.argmax("step"))])
    return Claim(
        f"fig7.early.n{size}",
        f"with {size} examples most of the separation of matched and mismatched arms comes early",
        "early",
        step,
        step <= WINDOWS[-1],
        f"step of the largest difference of mean cross-entropies, {float(apart.max()):.3f} nat; met up to step "
        f"{WINDOWS[-1]}; at the last step it is {float(apart[-1]):.3f}",
    )


def _prior(study: xr.Dataset, role: str, size: int) -> Iterator[Claim]:
    """What training leaves of the mode of an arm, and whether it is still the fastest."""
    share = study.share.sel(size=size, arm=role).isel(watched=-1)
    steps, left = int(share.watched), over_seeds(share)
    yield Claim(
        f"fig7.prior.{role}.n{size}",
        f"with {size} examples the mode of the {role} arm outlives {steps} steps",
        None,
        float(left.difference),
        bool(left.low > 0.5),
        f"share of the first mode that is left, 1 at first: {interval(left)}, {fate(left)}; met above 1/2",
    )
    start, end = (study.growth.sel(size=size, arm=role).isel(watched=place).dropna("seed") for place in (0, -1))
    first = int(start.mean("seed")[1:].argmax("wavenumber")) + 1
    same = int((end[:, 1:].argmax("wavenumber") + 1 == first).sum())
    yield Claim(
        f"fig7.fastest.{role}.n{size}",
        f"with {size} examples k = {first} of the {role} arm still grows fastest after {steps} steps",
        None,
        same,
        same == len(end),
        f"seeds of {len(end)}, beside q = 0; it grows by {float(end.mean('seed')[first]):.3f} a loop, at first by "
        f"{float(start.mean('seed')[first]):.3f}",
    )


def _grown(study: xr.Dataset, size: int) -> Claim:
    """Whether a mismatched arm learns to amplify the wavenumber of the task."""
    k = carrier(study)
    growth = study.growth.sel(size=size, arm=MISMATCHED, wavenumber=k)
    first, last = (over_seeds(growth.isel(watched=place)) for place in (0, -1))
    return Claim(
        f"fig7.grown.mismatched.n{size}",
        f"with {size} examples the mismatched arm comes to amplify the wavenumber of the task, k = {k}",
        None,
        float(last.difference),
        bool(last.low > 1),
        f"growth of k = {k} a loop after {int(growth.watched[-1])} steps, {interval(last)}, at first "
        f"{float(first.difference):.3f}; met if above 1",
    )
