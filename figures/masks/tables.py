"""Results in the form of Tables 1, 2 and 4 of the mask-prior paper, with intervals over seeds."""

from __future__ import annotations

from itertools import product

import xarray as xr

from figures.early import interval
from figures.masks.arms import last, mean_of

BOOLEAN = {"mse": ("loss", 1), "unseen_mse": ("unseen loss", 1), "accuracy": ("accuracy %", 100)}
ARITHMETIC = {
    "sequence_accuracy": ("sequences %", 100),
    "accuracy": ("digits %", 100),
    "cross_entropy": ("loss", 1),
}
"""Columns: the name of a score, its title, and its scale."""


def table(study: xr.Dataset) -> str:
    """A Markdown table for each task and size of a study: a row for each arm, means and intervals over seeds."""
    scores = BOOLEAN if "unseen_mse" in study else ARITHMETIC
    whole = "sequence_accuracy" if "sequence_accuracy" in study else "accuracy"
    titles = ["arm", *(title for title, _ in scores.values()), "seeds at 100 %"]
    lines = []
    for task, size in product(study.task.values, study["size"].values):
        part = study.sel(task=task, size=size)
        lines += [f"## {task}" if scores is BOOLEAN else f"## {task}, {size} pairs seen", ""]
        lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        for arm in part.arm.values:
            row = part.sel(arm=arm)
            cells = [interval(mean_of(scale * last(row, name))) for name, (_, scale) in scores.items()]
            right = last(row, whole)
            lines.append(f"| {arm} | {' | '.join(cells)} | {int((right == 1).sum())} of {int(right.count())} |")
        lines.append("")
    return "\n".join(lines)
