"""Drawings of branches and of balloons."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from amplitude.exact.bifurcations import BRANCH_POINT, FLIP, FOLD, NEIMARK_SACKER
from dispersion.grid import Wavenumber
from dispersion.plot import axes_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from amplitude.exact.balloon import Balloon
    from amplitude.exact.branch import Branch

MARKERS = {
    FOLD: ("s", "#d55e00"),
    BRANCH_POINT: ("o", "#000000"),
    FLIP: ("^", "#cc79a7"),
    NEIMARK_SACKER: ("D", "#009e73"),
}
"""Marker and colour of each kind of bifurcation."""


def plot_branch(
    branch: Branch,
    ax: Axes | None = None,
    k: Wavenumber | None = None,
    color: str = "#0072b2",
    label: str | None = None,
) -> Axes:
    """R against the parameter of `branch`: stable solid, unstable dashed, bifurcations marked; returns the axes.

    ax : axes, those of a new figure by default; k : wavenumber of R, by default the dominant one of the last state;
    color, label : of the lines. Kinds of bifurcation that the axes do not name yet are added to their legend.
    """
    ax = axes_for(ax)
    k = branch.k if k is None else k
    places = np.concatenate([np.arange(len(branch)), [event.place for event in branch.bifurcations]])
    p = np.concatenate([branch.values, [event.value for event in branch.bifurcations]])
    R = np.concatenate([branch.amplitude_at(k), [event.state.amplitude_at(k) for event in branch.bifurcations]])
    order = np.argsort(places, kind="stable")
    places, p, R = places[order], p[order], R[order]
    # a piece between neighbours, bifurcations among them, is as stable as the states inside it
    stable = _pieces(branch, places)
    begin = 0
    for end in range(1, len(stable) + 1):
        if end == len(stable) or stable[end] != stable[begin]:
            dash: Any = "-" if stable[begin] else (0, (3.5, 2))
            ax.plot(p[begin : end + 1], R[begin : end + 1], color=color, linestyle=dash, linewidth=1.2, label=label)
            label = None  # once
            begin = end
    named = set(ax.get_legend_handles_labels()[1])
    for event in branch.bifurcations:
        marker, colour = MARKERS[event.kind]
        label = event.kind if event.kind not in named else None
        named.add(event.kind)
        height = event.state.amplitude_at(k)
        ax.plot(event.value, height, marker, color=colour, markersize=4, markerfacecolor="white", zorder=3, label=label)
    ax.set(xlabel=branch.name, ylabel=f"amplitude $R$ of $k = {k}$")
    if branch.bifurcations:
        ax.legend(frameon=False)
    return ax


def _pieces(branch: Branch, places: np.ndarray) -> list[bool]:
    """Whether each piece between neighbouring `places` is stable: as the state on it, or the pieces beside it."""
    counts = [state.unstable for state in branch.states]
    stable: list[bool] = []
    for low, high in pairwise(places):
        whole = [int(place) for place in (low, high) if place == int(place)]
        inner = [place for place in whole if place > 0 or len(branch) == 1] or whole
        stable.append(min(counts[place] for place in inner) == 0 if inner else bool(stable and stable[-1]))
    return stable


def plot_balloon(balloon: Balloon, ax: Axes | None = None) -> Axes:
    """Wavenumbers against the parameter of `balloon`: stable patterns filled, unstable ones hollow; returns the axes.

    ax : axes, those of a new figure by default.
    """
    ax = axes_for(ax)
    point, place = np.nonzero(balloon.exists & ~balloon.stable)
    ax.plot(balloon.values[point], balloon.ks[place], "o", color="0.6", markersize=3, markerfacecolor="white",
            label="unstable")  # fmt: skip
    point, place = np.nonzero(balloon.stable)
    ax.plot(balloon.values[point], balloon.ks[place], "o", color="#0072b2", markersize=3.5, label="stable")
    ax.set(xlabel=balloon.name, ylabel="wavenumber $k$")
    ax.legend(frameon=False)
    return ax
