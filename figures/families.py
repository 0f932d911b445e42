"""What Figures 4 and 6 share: the three families of tasks, their labels, the levels of the paper, and matrices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from figures.studies import results, told
from training.experiment import MATCHED
from training.statistics import WINDOWS

Range = tuple[float, float]


@dataclass(frozen=True)
class Family:
    """Four tasks and the four arms made for them.

    study : its name; title : of panels; task, arm : what their axes show; matched, mismatched, gap : early AUC of the
    paper, the lowest and the highest of four tasks (App. J.4), where it gives them.
    """

    study: str
    title: str
    task: str
    arm: str
    matched: Range
    mismatched: Range | None = None
    gap: Range | None = None


FAMILIES = {
    "t1": Family("infilling", "T1 wavenumber", "task $k_0$", "arm $k_c$", (0.619, 0.626), (0.132, 0.134)),
    "t2": Family("shift", "T2 token phase", r"task $q_0 s$", r"arm $\theta$", (0.559, 0.582), (0.362, 0.391)),
    "t3": Family("rotation", "T3 feature rotation", r"task $\psi$", r"arm $\psi$", (0.853, 0.854), gap=(0.061, 0.132)),
}

CONTROLS = {
    "per_loop": ("angles turned in every loop", {"t2": "per-loop-shift", "t3": "per-loop-rotation"}),
    "random_code": (
        "a random embedding and readout",
        {"t1": "random-code-infilling", "t2": "random-code-shift", "t3": "random-code-rotation"},
    ),
}
"""Controls of ours: what is other, and the studies by family."""

QUICK = (20, 2)
"""Steps and seeds of the studies trained for `quick` figures."""


def family_data(quick: bool, progress: bool) -> dict[str, xr.Dataset]:
    """The results of each family, by its name."""
    steps = QUICK if quick else None
    return {name: results(family.study, steps, progress).isel(size=0) for name, family in FAMILIES.items()}


def tree(nodes: dict[str, xr.Dataset]) -> xr.DataTree:
    """The results of studies as the nodes of a figure, and in its attributes where they come from."""
    attributes = {name.replace("/", " "): told(data) for name, data in nodes.items()}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **nodes})


def windows_of(data: xr.Dataset) -> list[int]:
    """Those of WINDOWS that the steps of a study cover."""
    return [window for window in WINDOWS if window <= int(data.step.max())]


def numbers(data: xr.Dataset) -> tuple[list[float], list[float]]:
    """(tasks, arms) of a family: wavenumbers, or radians that the wave or its features turn by in all loops."""
    tasks, arms, experiment = (json.loads(data.attrs[name]) for name in ("tasks", "arms", "experiment"))
    loops = experiment["loops"] if experiment["angles"] == "accumulated" else 1
    return [_task(task) for task in tasks], [_arm(arm["target"], loops) for arm in arms]


def _task(task: dict[str, Any]) -> float:
    if "turn" in task:
        return float(task["turn"])
    turn = 2 * np.pi * task["carrier"] * task.get("shift", 0) / task["n"]
    return turn or task["carrier"]


def _arm(target: dict[str, Any], loops: int) -> float:
    turn = target["angle"] + target["rotation"]
    return turn * loops or target["wavenumber"]


def labels(data: xr.Dataset) -> tuple[list[str], list[str]]:
    """(tasks, arms) of a family as on its axes."""
    tasks, arms = ([str(x) if isinstance(x, int) else angle(x) for x in part] for part in numbers(data))
    return tasks, arms


def angle(radians: float) -> str:
    """An angle as a fraction of π, such as −π/2."""
    part = Fraction(radians / np.pi).limit_denominator(64)
    top = "" if abs(part.numerator) == 1 else str(abs(part.numerator))
    bottom = "" if part.denominator == 1 else f"/{part.denominator}"
    return f"{'−' if part < 0 else '+'}{top}π{bottom}" if part else "0"


def draw_matrix(values: xr.DataArray, data: xr.Dataset, ax: Axes, cmap: str, scale: Normalize, form: str) -> AxesImage:
    """`values` of task and arm in the cells of a matrix; the matched ones are framed."""
    cells = values.transpose("task", "arm").values
    tasks, arms = labels(data)
    image = ax.imshow(cells, cmap=cmap, norm=scale, aspect="auto")
    for (row, column), value in np.ndenumerate(cells):
        if not np.isfinite(value):
            continue
        red, green, blue, _ = image.cmap(scale(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        text = format(value, form).replace("-", "−")
        ax.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if dark else "black")
        if data.role.values[row, column] == MATCHED:
            frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=1.5)
            ax.add_patch(frame)
    ax.set_xticks(range(len(arms)), arms)
    ax.set_yticks(range(len(tasks)), tasks)
    ax.tick_params(length=0)
    return image
