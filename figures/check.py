"""Drawing a check: ρ(J(q)) layer by layer, and the growth through all layers, predicted and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dispersion.grid import conjugate_pairs, grid_wavenumbers
from figures.style import BLUE, DIVERGING, TWO_COLUMNS, VERMILION, centred, panel_label, style, verbatim

if TYPE_CHECKING:
    from models.check import Check


@style()
def draw(checked: Check, title: str) -> Figure:
    """The figure of `checked`. title : above it."""
    figure = Figure(figsize=(TWO_COLUMNS, 2.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_layers(checked, left)
    draw_growth(checked, right)
    left.set_title(verbatim(title), loc="left")
    panel_label(left, "a")
    panel_label(right, "b")
    return figure


def draw_layers(checked: Check, ax: Axes) -> None:
    """ρ(J(q)) of each layer as a map on `ax`: depth against k on a ring, against |q| on a torus."""
    predicted = checked.predicted
    half, _ = conjugate_pairs(predicted.shape)
    distinct = {id(relation): relation for relation in predicted.relations}
    known = {key: relation.growth.ravel()[half] for key, relation in distinct.items()}
    rows = np.array([known[id(relation)] for relation in predicted.relations])
    x, label = half, "wavenumber $k$"
    if len(predicted.shape) > 1:
        rows, x, label = rows[:, _by_length(predicted.shape, half)], np.arange(len(half)), "wavenumbers by $|q|$"
    rates = np.log(np.maximum(rows, 1e-300))
    # a few strongly damped waves must not bleach the rest
    span = float(np.abs(rates).clip(max=np.log(10)).max()) or 1.0
    edges = np.append(x, x[-1] + 1) - 0.5, np.arange(len(rows) + 1) + 0.5
    image = ax.pcolormesh(
        *edges, rates, cmap=DIVERGING, norm=centred(rates, 0.0, span), shading="flat", rasterized=True
    )
    ax.figure.colorbar(image, ax=ax, label=r"$\log\,\rho(J_l(q))$")
    ax.set(xlabel=label, ylabel="layer $l$")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def draw_growth(checked: Check, ax: Axes) -> None:
    """Growth through all layers on `ax`: predicted as a line, measured in the forward pass as rings."""
    shape = checked.predicted.shape
    if len(shape) == 1:
        x, label = np.array([mode.k for mode in checked.modes]), "wavenumber $k$"
    else:
        x = np.array([np.linalg.norm((np.atleast_1d(mode.q) + np.pi) % (2 * np.pi) - np.pi) for mode in checked.modes])
        label = "$|q|$ (rad per token)"
    order = np.argsort(x, kind="stable")
    ax.axhline(1, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    ax.plot(x[order], checked.growth[order], "-" if len(shape) == 1 else ".", color=BLUE, label="predicted")
    ax.plot(
        x[order],
        checked.measured_growth[order],
        "o",
        color=VERMILION,
        markerfacecolor="none",
        markersize=5,
        label="forward pass",
    )
    count = checked.layers
    ax.set(xlabel=label, ylabel=f"growth in {count} layer{'s' * (count > 1)}")
    values = np.concatenate([checked.growth, checked.measured_growth])
    positive = values[values > 0]
    if positive.size and positive.max() > 20 * positive.min():
        ax.set_yscale("log")
    ax.legend()


def _by_length(shape: tuple[int, ...], half: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order of the wavenumbers `half` of a torus by increasing |q|."""
    q = (grid_wavenumbers(shape).reshape(-1, len(shape))[half] + np.pi) % (2 * np.pi) - np.pi
    return np.argsort(np.linalg.norm(q, axis=-1), kind="stable")
