"""The panels of Figure 4."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from figures.families import CONTROLS, FAMILIES, draw_matrix, labels, windows_of
from figures.style import BLUE, DIVERGING, GREY, ORANGE, centred, panel_label
from training.statistics import early_auc, paired, z_scores


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw the matrices at both windows, and paired differences."""
    studies = {name: data[name].to_dataset() for name in FAMILIES}
    window_rows = dict(zip(windows_of(studies["t1"]), ("abc", "def"), strict=False))
    scale = centred([0.0], span=np.sqrt(3))  # the most that one of four can stand out
    for window, row in window_rows.items():
        for letter, (name, study) in zip(row, studies.items(), strict=True):
            scores = z_scores(early_auc(study, window))
            image = draw_matrix(scores, study, axes[letter], DIVERGING, scale, "+.1f")
            axes[letter].set(xlabel=FAMILIES[name].arm, ylabel=FAMILIES[name].task)
            axes[letter].set_title(f"{FAMILIES[name].title}, steps 0–{window}", loc="left")
    matrices = [axes[letter] for row in window_rows.values() for letter in row]
    matrices[0].figure.colorbar(image, ax=matrices, label="$z$ of early AUC over arms", aspect=30, pad=0.02)
    for letter in set("abcdef") - set("".join(window_rows.values())):
        axes[letter].set_axis_off()
    for letter, name in zip("ghi", FAMILIES, strict=True):
        _draw_differences(data, name, axes[letter])
    axes["g"].set_ylabel("matched − mismatched")
    handles, names = axes["h"].get_legend_handles_labels()
    axes["h"].figure.legend(handles, names, loc="outside lower center", ncols=3)
    for letter, ax in axes.items():
        if ax.axison:
            panel_label(ax, letter)


def _draw_differences(data: xr.DataTree, name: str, ax: Axes) -> None:
    series = {"engineered": (name, BLUE)}
    for (control, (title, studies)), colour in zip(CONTROLS.items(), (ORANGE, GREY), strict=True):
        if name in studies:
            series[title] = f"{control}/{name}", colour
    tasks, _ = labels(data[name].to_dataset())
    places = np.arange(len(tasks))
    spread = np.linspace(-0.28, 0.28, 2 * len(series))
    for number, (title, (node, colour)) in enumerate(series.items()):
        study = data[node].to_dataset()
        for window, marker, shift in zip(windows_of(study), "os", spread[2 * number :], strict=False):
            found = paired(early_auc(study, window), study.role)
            # an interval of one seed is none
            ends = abs(np.stack([found.low, found.high]) - found.difference.values)
            label = f"{title}, steps 0–{window}"
            style: dict[str, Any] = {
                "color": colour,
                "markersize": 3,
                "elinewidth": 0.8,
                "linestyle": "none",
                "label": label,
            }
            ax.errorbar(places + shift, found.difference, np.nan_to_num(ends), fmt=marker, **style)
    ax.axhline(0, color=GREY, linewidth=0.6, zorder=0)
    ax.set_xticks(places, tasks)
    ax.set(xlabel=FAMILIES[name].task, xlim=(-0.5, len(tasks) - 0.5))
