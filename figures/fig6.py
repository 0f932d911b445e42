"""Figure 6: the early AUC of every arm on every task, and learning curves (App. J.4).

a–c  T1 to T3, means over seeds, steps 0 to 20;  d–f  steps 0 to 50. Rows are tasks, columns the arms; frames are the
matched arms.  g–i  learning curves, means over the tasks of a family, with one standard deviation over seeds.
Not in the paper: j–l  how much of the mode that each arm was engineered for is left as it trains.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from figures.early import Early, fate, interval
from figures.families import FAMILIES, Family, angle, draw_matrix, family_data, numbers, tree, windows_of
from figures.report import Claim
from figures.studies import marked
from figures.style import BLUE, GREY, SEQUENTIAL, TWO_COLUMNS, VERMILION, panel_label
from training.experiment import MATCHED, MISMATCHED
from training.statistics import early_auc, over_seeds

NAME = "fig6"
TITLE = "Early AUC of all arms on all tasks, learning curves, and what training leaves of J(q)"
MOSAIC = [list(row) for row in ("abc", "abc", "abc", "def", "def", "def", "ghi", "ghi", "jkl", "jkl")]
SIZE = (TWO_COLUMNS, 8.4)

CHANCE = 1 / 8
"""Of equally likely levels."""


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """Learning curves of the studies of each family, 't1' to 't3'.

    quick : trains small studies on the spot, in place of the saved ones; progress : show bars.
    """
    return tree(family_data(quick, progress))


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw the matrices at both windows, learning curves, and the shares of modes."""
    studies = {name: data[name].to_dataset() for name in FAMILIES}
    scale, matrices = Normalize(0, 1), []
    for window, row in zip(windows_of(studies["t1"]), ("abc", "def"), strict=False):
        for letter, (name, study) in zip(row, studies.items(), strict=True):
            ax, family = axes[letter], FAMILIES[name]
            image = draw_matrix(early_auc(study, window).mean("seed"), study, ax, SEQUENTIAL, scale, ".3f")
            ax.set(xlabel=family.arm, ylabel=family.task)
            ax.set_title(f"{family.title}, steps 0–{window}\n{_paper(family)}", loc="left", fontsize=6.5)
            matrices.append(ax)
    matrices[0].figure.colorbar(image, ax=matrices, label="early AUC", aspect=30, pad=0.02)
    for letter in "abcdef"[len(matrices) :]:
        axes[letter].set_axis_off()
    for curves, shares, study in zip("ghi", "jkl", studies.values(), strict=True):
        _draw_roles(study.accuracy, study, axes[curves])
        axes[curves].axhline(CHANCE, color=GREY, linewidth=0.6, linestyle=":", zorder=0)
        axes[curves].set(ylim=(0, 1), xlabel="step")
        _draw_roles(study.share, study, axes[shares])
        axes[shares].axhline(1, color=GREY, linewidth=0.6, linestyle=":", zorder=0)
        axes[shares].set_xlabel("step")
    ends = np.concatenate([axes[letter].get_ylim() for letter in "jkl"])
    for letter in "jkl":
        axes[letter].set_ylim(min(0.8, ends.min()), max(1.2, ends.max()))
    axes["g"].set_ylabel("held-out accuracy")
    axes["j"].set_ylabel("share of first mode")
    axes["j"].legend(loc="upper left")
    axes["g"].annotate(
        "chance",
        (1, CHANCE),
        (-2, -1),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=6,
        color=GREY,
    )
    for letter, ax in axes.items():
        if ax.axison:
            panel_label(ax, letter, y=4)


def _paper(family: Family) -> str:
    """What the paper found, in a line."""
    found = {"": family.matched, " against ": family.mismatched, ", differences ": family.gap}
    parts = (f"{word}{ends[0]:.3f}–{ends[1]:.3f}" for word, ends in found.items() if ends)
    return "paper: " + "".join(parts).replace("0.", ".")


def _draw_roles(values: xr.DataArray, study: xr.Dataset, ax: Axes) -> None:
    """Means over tasks and over the arms of each role, with a band of one standard deviation over seeds."""
    steps = values[values.dims[-1]]
    for role, colour, line in ((MATCHED, BLUE, "-"), (MISMATCHED, VERMILION, "--")):
        seeds = values.where(study.role == role).mean(("task", "arm"))
        mean, spread = seeds.mean("seed"), seeds.std("seed")
        ax.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        ax.plot(steps, mean, line, color=colour, label=role)


def claims(data: xr.DataTree) -> list[Claim]:
    """What the grids say beside their diagonals, and what training leaves of the modes."""
    studies = {name: data[name].to_dataset() for name in FAMILIES}
    found: list[Claim] = []
    for window in windows_of(studies["t1"]):
        families = {name: Early.of(name, study, window) for name, study in studies.items()}
        found += [_sharpest(families), _sense(families["t2"], "direction"), _sense(families["t3"], "sense")]
        found.append(_magnitude(families["t3"]))
    found += [_prior(name, study) for name, study in studies.items()]
    return marked(found, studies.values())


def _sharpest(families: dict[str, Early]) -> Claim:
    means = {name.upper(): early.differences.mean() for name, early in families.items()}
    window = families["t1"].window
    sharpest = max(means, key=lambda name: float(means[name]))
    listed = ", ".join(f"{name} {float(mean):.3f}" for name, mean in means.items())
    return Claim(
        f"fig6.sharpest.w{window}",
        f"matched arms stand out most in T1, steps 0 to {window}",
        "T1",
        sharpest,
        sharpest == "T1",
        f"mean differences to the strongest mismatched arm of each seed: {listed}",
    )


def _sense(early: Early, word: str) -> Claim:
    """Whether arms that turn the right way are above those that turn the other way."""
    tasks, arms = map(np.array, numbers(early.data))
    means = early.values.mean("seed").transpose("task", "arm").values
    right = np.sign(tasks)[:, None] == np.sign(arms)
    apart = np.where(right, means, np.inf).min(axis=1) > np.where(right, -np.inf, means).max(axis=1)
    return Claim(
        f"fig6.{early.name}.{word}.w{early.window}",
        f"in every task of {early.name.upper()} the arms of the right {word} are above those of the other, "
        f"steps 0 to {early.window}",
        len(tasks),
        int(apart.sum()),
        bool(apart.all()),
        "tasks in which each arm that turns the right way is above each that turns the other way, means over seeds",
    )


def _magnitude(early: Early) -> Claim:
    """Whether the difference depends on how far the features turn."""
    sizes = np.abs(numbers(early.data)[0])
    small, large = (
        early.differences.isel(task=np.flatnonzero(np.isclose(sizes, size))).mean("task")
        for size in (sizes.min(), sizes.max())
    )
    found = over_seeds(large - small)
    low, high = angle(sizes.min()), angle(sizes.max())
    return Claim(
        f"fig6.t3.magnitude.w{early.window}",
        f"how far matched arms of T3 stand out depends on how far features turn, steps 0 to {early.window}",
        "depends",
        f"{float(small.mean()):.3f} at {low}, {float(large.mean()):.3f} at {high}",
        bool(found.low > 0 or found.high < 0),
        f"either sign; met if the interval of the paired change, {interval(found)}, leaves 0 out",
    )


def _prior(name: str, study: xr.Dataset) -> Claim:
    """What is left of the engineered modes at the last step."""
    last = study.share.isel(watched=-1)
    kept = {role: last.where(study.role == role).mean(("task", "arm")) for role in (MATCHED, MISMATCHED)}
    matched, mismatched = (over_seeds(values) for values in kept.values())
    found = over_seeds(kept[MATCHED] - kept[MISMATCHED])
    return Claim(
        f"fig6.{name}.prior",
        f"training keeps more of the engineered mode in matched arms of {name.upper()} than in mismatched ones",
        None,
        float(found.difference),
        bool(found.low > 0),
        f"share of the first mode after {int(last.watched)} steps, 1 at first: matched {interval(matched)}, "
        f"{fate(matched)}; mismatched {interval(mismatched)}, {fate(mismatched)}; met if the paired difference, "
        f"{interval(found)}, is above 0",
    )
