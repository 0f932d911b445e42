"""The panels of the figure `masks`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.masks.arithmetic import SEEN
from figures.masks.arms import Arm, arms_of, last, law, mean_of, survived
from figures.masks.assessment import placed
from figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, panel_label

COLOURS = {"default": GREY, "neutral": GREEN, "mask": BLUE, "kernel": SKY, "svd": VERMILION, "opt": ORANGE}
MARKERS = {"correct": "o", "wrong": "X", "shifted": "s", "permuted": "D"}
FILLS: dict[str, Any] = {"everywhere": "full", "nowhere": "none", "elsewhere": "left", "beyond": "top"}
LINES: dict[str, Any] = {
    "everywhere": "-",
    "nowhere": (0, (5, 1.5)),
    "elsewhere": (0, (1, 1)),
    "beyond": (0, (5, 1.5, 1, 1.5, 1, 1.5)),
}
DECAYS = {
    "everywhere": "everywhere",
    "nowhere": "nowhere",
    "elsewhere": "except prior",
    "beyond": "except prior, tokens",
}
"""Where weights decay, in legends."""
DECADE = 10.0
"""Ratio of the ends of an axis from which it is logarithmic."""
SMALL = 6.5
"""Size of the letters of legends."""


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw outcome against survival, trajectories, the drift of masks, and arithmetic."""
    studies = {name: data[name].to_dataset() for name in data}
    study, kernels = studies["masks"].isel(size=0), studies["kernels"].isel(size=0)
    for letter, task in zip("abcd", study.task.values, strict=True):
        _draw_outcomes(study.sel(task=task), arms_of(study), axes[letter])
        if task in kernels.task:
            _draw_outcomes(kernels.sel(task=task), placed(kernels), axes[letter])
        axes[letter].set_title(str(task))
        axes[letter].set(xlabel="survival $s_A$ of its pattern")
        low, high = axes[letter].dataLim.intervaly
        axes[letter].set_yscale("log" if high > DECADE * low else "linear")
    for letter in "ac":
        axes[letter].set_ylabel("squared error, unseen part")
    _legend(axes["a"])
    _draw_survival(study, arms_of(study), axes["e"])
    _draw_survival(kernels, placed(kernels), axes["e"])
    _label_survival(axes["e"])
    _draw_curves(study, axes["f"])
    _draw_drift(study, arms_of(study), axes["g"])
    for letter, name in zip("hi", SEEN, strict=True):
        _draw_arithmetic(studies[name].isel(task=0), name, axes[letter])
    for letter, ax in axes.items():
        panel_label(ax, letter, y=4)


def _draw_outcomes(study: xr.Dataset, arms: list[Arm], ax: Axes) -> None:
    errors, kept = mean_of(last(study, "unseen_mse")), mean_of(survived(study).isel(watched=-1))
    for arm in arms:
        point, share = errors.sel(arm=arm.name), kept.sel(arm=arm.name)
        ax.errorbar(
            float(share.difference),
            float(point.difference),
            yerr=_bars(point),
            color=COLOURS[arm.place],
            marker=MARKERS[arm.pattern],
            fillstyle=FILLS[arm.decay],
            markersize=4,
            markeredgewidth=0.7,
            markeredgecolor=COLOURS[arm.place] if arm.optimiser == "adam" else BLACK,
            elinewidth=0.6,
        )


def _bars(found: xr.Dataset) -> list[Any]:
    """(below, above) of a mean with its interval; none for an interval of one seed."""
    low, middle, high = (np.atleast_1d(found[name].values) for name in ("low", "difference", "high"))
    return [np.maximum(np.nan_to_num(side), 0) for side in (middle - low, high - middle)]


def _legend(ax: Axes) -> None:
    """Of the panels a to d, above them all."""

    def mark(label: str, colour: str = GREY, marker: str = "o", fill: Any = "full", edge: str | None = None) -> Line2D:
        look: dict[str, Any] = {"marker": marker, "fillstyle": fill, "markersize": 4.5, "markeredgewidth": 0.7}
        return Line2D([], [], color=colour, linestyle="", label=label, markeredgecolor=edge or colour, **look)

    blank = mark(" ", marker="")
    handles = [mark(place, colour) for place, colour in COLOURS.items()]
    handles += [mark(pattern, marker=marker) for pattern, marker in MARKERS.items()]
    handles += [blank, blank]
    handles += [mark(f"decay {DECAYS[decay]}", fill=fill) for decay, fill in FILLS.items()]
    handles += [mark("AdamW", edge=BLACK), blank]
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.legend(handles=handles, loc="outside upper center", ncols=6, fontsize=SMALL, columnspacing=1.0)


def _draw_survival(study: xr.Dataset, arms: list[Arm], ax: Axes) -> None:
    left = survived(study).mean("task")
    for arm in arms:
        plain = arm.place not in ("default", "neutral") and arm.name.split(",")[0] == arm.place
        if plain and arm.pattern == "correct" and arm.optimiser == "adam":
            mean = left.sel(arm=arm.name).mean("seed")
            ax.plot(mean.watched, mean, linestyle=LINES[arm.decay], color=COLOURS[arm.place], linewidth=1)


def _label_survival(ax: Axes) -> None:
    places = [Line2D([], [], color=COLOURS[place], label=place) for place in ("mask", "kernel", "svd", "opt")]
    decays = [Line2D([], [], color=GREY, linestyle=line, label=DECAYS[decay]) for decay, line in LINES.items()]
    ax.set(xlabel="step", ylabel="survival $s_A$", ylim=(-0.05, 1.75), yticks=[0, 0.5, 1])
    ax.legend(handles=places + decays, fontsize=SMALL, ncols=2, loc="upper center", handlelength=2.2, columnspacing=1.0)


def _draw_curves(study: xr.Dataset, ax: Axes) -> None:
    curves = study.unseen_mse.isel(task=0).mean("seed")
    looks = {"default": GREY, "neutral": GREEN, "mask": BLUE, "mask, wrong": PURPLE, "svd": VERMILION, "opt": ORANGE}
    for name, colour in looks.items():
        if name in study.arm:
            line = ":" if name == "neutral" else "-"
            ax.plot(curves.step, curves.sel(arm=name), line, color=colour, label=name, zorder=3 - (name == "default"))
    ax.set(xlabel="step", ylabel=f"unseen error, {study.task.values[0]}")
    ax.set_ylim(0, 1.45 * ax.dataLim.y1)
    ax.legend(fontsize=SMALL, ncols=2, loc="upper center")


def _draw_drift(study: xr.Dataset, arms: list[Arm], ax: Axes) -> None:
    size = study.mask_size.mean(("layer", "task", "seed"))
    for arm in arms:
        if arm.place == "mask" and not arm.held and arm.pattern == "correct" and arm.decay != "nowhere":
            colour = GREEN if arm.decay == "elsewhere" else BLUE if arm.optimiser == "adam" else PURPLE
            ax.plot(size.watched, size.sel(arm=arm.name), "o", markersize=2.5, color=colour)
            if arm.decay == "everywhere":
                ax.plot(size.watched, law(study, arm.contrast, arm.optimiser), color=colour, linewidth=0.8)
            else:
                ax.axhline(arm.contrast, color=colour, linewidth=0.6, linestyle=":")
    for colour, label in ((BLUE, "Adam"), (PURPLE, "AdamW"), (GREEN, "no decay of M")):
        ax.plot([], [], "o-", markersize=2.5, color=colour, label=label)
    ax.set(xlabel="step", ylabel="mean $|m|$", ylim=(0, 15), yticks=[0, 5, 10])
    ax.legend(fontsize=SMALL, loc="upper right")


def _draw_arithmetic(study: xr.Dataset, task: str, ax: Axes) -> None:
    """Against the size of the training set, or of a single size arm by arm."""
    right, sizes = mean_of(100 * last(study, "sequence_accuracy")), study["size"].values
    arms = {arm: arm.place if arm.pattern == "correct" else f"{arm.place},\n{arm.pattern}" for arm in arms_of(study)}
    for number, (arm, name) in enumerate(arms.items()):
        found = right.sel(arm=arm.name)
        ax.errorbar(
            sizes if len(sizes) > 1 else [number],
            found.difference,
            yerr=_bars(found),
            color=COLOURS[arm.place],
            marker=MARKERS[arm.pattern],
            linestyle="-" if arm.pattern == "correct" else "--",
            markersize=4,
            linewidth=1,
            elinewidth=0.6,
            label=name.replace("\n", " "),
        )
    ax.set_ylabel("whole results right, %")
    if len(sizes) > 1:
        ax.set(xlabel="pairs in the training set", xscale="log", title=task)
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.minorticks_off()
        ax.legend(fontsize=SMALL, ncols=2)
    else:
        ax.set(title=f"{task}, {sizes[0]:,} pairs in the training set", xlim=(-0.5, len(arms) - 0.5))
        ax.set_xticks(range(len(arms)), arms.values())
