"""The panels of the figure `masks`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from figures.masks.arms import Arm, arms_of, last, law, mean_of, survived
from figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, panel_label

COLOURS = {"default": GREY, "neutral": GREEN, "mask": BLUE, "kernel": SKY, "svd": VERMILION, "opt": ORANGE}
MARKERS = {"correct": "o", "wrong": "X", "shifted": "s", "permuted": "D"}
FILLS: dict[str, Any] = {"everywhere": "full", "nowhere": "none", "elsewhere": "left", "beyond": "top"}
LINES = {"everywhere": "-", "nowhere": "--", "elsewhere": ":", "beyond": "-."}


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw outcome against survival, trajectories, and the drift of masks."""
    study = data["boolean"].to_dataset()
    arms = arms_of(study)
    for letter, task in zip("abcd", study.task.values, strict=True):
        _draw_outcome(study.sel(task=task), arms, axes[letter])
        axes[letter].set_title(str(task))
    for letter in "ac":
        axes[letter].set_ylabel("squared error, unseen part")
    _draw_survival(study, arms, axes["e"])
    _draw_curves(study, axes["f"])
    _draw_drift(study, arms, axes["g"])
    for letter, ax in axes.items():
        panel_label(ax, letter, y=4)


def _draw_outcome(study: xr.Dataset, arms: list[Arm], ax: Axes) -> None:
    errors, kept = mean_of(last(study, "unseen_mse")), mean_of(survived(study).isel(watched=-1))
    for arm in arms:
        point, share = errors.sel(arm=arm.name), kept.sel(arm=arm.name)
        ends = [[_length(point.difference, point.low)], [_length(point.high, point.difference)]]
        ax.errorbar(
            float(share.difference),
            float(point.difference),
            yerr=ends,
            color=COLOURS[arm.place],
            marker=MARKERS[arm.pattern],
            fillstyle=FILLS[arm.decay],
            markersize=3.5,
            markeredgewidth=0.7,
            elinewidth=0.6,
        )
    ax.set(xlabel="survival $s_A$ of its pattern", yscale="log")


def _length(high: xr.DataArray, low: xr.DataArray) -> float:
    """Of one side of a bar; none for an interval of one seed."""
    return max(0.0, float(np.nan_to_num(high - low)))


def _draw_survival(study: xr.Dataset, arms: list[Arm], ax: Axes) -> None:
    left = survived(study).mean("task")
    for arm in arms:
        plain = arm.place in ("mask", "svd", "opt") and arm.name.split(",")[0] == arm.place
        if plain and arm.pattern == "correct" and arm.optimiser == "adam":
            mean = left.sel(arm=arm.name).mean("seed")
            label = arm.place if arm.decay == "everywhere" else None
            ax.plot(mean.watched, mean, LINES[arm.decay], color=COLOURS[arm.place], label=label)
    for decay, line in LINES.items():
        ax.plot([], [], line, color=GREY, label=f"decay {decay}")
    ax.set(xlabel="step", ylabel="survival $s_A$")
    ax.legend(fontsize=5)


def _draw_curves(study: xr.Dataset, ax: Axes) -> None:
    curves = study.unseen_mse.isel(task=0).mean("seed")
    looks = {"default": GREY, "neutral": GREEN, "mask": BLUE, "mask, wrong": PURPLE, "svd": VERMILION, "opt": ORANGE}
    for name, colour in looks.items():
        if name in study.arm:
            ax.plot(curves.step, curves.sel(arm=name), color=colour, label=name)
    ax.set(xlabel="step", ylabel=f"unseen error, {study.task.values[0]}")
    ax.legend(fontsize=5)


def _draw_drift(study: xr.Dataset, arms: list[Arm], ax: Axes) -> None:
    size = study.mask_size.mean(("layer", "task", "seed"))
    for arm in arms:
        if arm.place == "mask" and not arm.held and arm.pattern == "correct" and arm.decay != "nowhere":
            colour = {"everywhere": BLUE, "elsewhere": GREEN}.get(arm.decay, GREY)
            colour = PURPLE if arm.optimiser == "adamw" else colour
            ax.plot(size.watched, size.sel(arm=arm.name), "o", markersize=2.5, color=colour)
            if arm.decay == "everywhere":
                ax.plot(size.watched, law(study, arm.contrast, arm.optimiser), color=colour, linewidth=0.8)
            else:
                ax.axhline(arm.contrast, color=colour, linewidth=0.6, linestyle=":")
    for colour, label in ((BLUE, "Adam"), (PURPLE, "AdamW"), (GREEN, "no decay of M")):
        ax.plot([], [], "o-", markersize=2.5, color=colour, label=label)
    ax.set(xlabel="step", ylabel="mean $|m|$")
    ax.legend(fontsize=5)
