"""Drawing a check: ρ(J(q)) layer by layer, and the growth through all layers, predicted and measured; on a line of
tokens the patterns that grow most, and by how much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dispersion.grid import conjugate_pairs, grid_wavenumbers
from figures.style import (
    BLACK,
    BLUE,
    DIVERGING,
    GREEN,
    GREY,
    SEQUENTIAL,
    TWO_COLUMNS,
    VERMILION,
    centred,
    panel_label,
    style,
    verbatim,
)

if TYPE_CHECKING:
    from models.check import Check
    from models.line import LineCheck

SHOWN = 3
"""How many patterns are drawn over the tokens."""
SAME = 0.02
"""Distance of the growth of the state from 1 under which it has no line of its own."""


@style()
def draw(checked: Check, title: str) -> Figure:
    """The figure of `checked`. title : above it."""
    figure = Figure(figsize=(TWO_COLUMNS, 2.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    if checked.line is not None:
        draw_patterns(checked.line, left)
        draw_gains(checked, checked.line, right)
    else:
        (draw_layers if checked.layers > 1 else draw_multipliers)(checked, left)
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
    x, label, order = _axis(predicted.shape)
    rates = np.log(np.maximum(rows[:, order], 1e-300))
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


def draw_multipliers(checked: Check, ax: Axes) -> None:
    """All multipliers of the one layer in the complex plane on `ax`, coloured by wavenumber, with the unit circle."""
    predicted = checked.predicted
    x, label, order = _axis(predicted.shape)
    half, _ = conjugate_pairs(predicted.shape)
    values = predicted.multipliers.reshape(-1, predicted.d)[half][order]
    turn = np.linspace(0, 2 * np.pi, 361)
    ax.plot(np.cos(turn), np.sin(turn), color=GREY, linewidth=0.8, linestyle="--", zorder=0)
    colors = np.repeat(x, predicted.d)
    dots = ax.scatter(
        values.real.ravel(), values.imag.ravel(), 7, colors, cmap=SEQUENTIAL, linewidths=0, rasterized=True
    )
    ax.figure.colorbar(dots, ax=ax, label=label)
    ax.set(xlabel=r"Re $\Lambda$", ylabel=r"Im $\Lambda$")
    ax.set_aspect("equal", adjustable="datalim")


def draw_patterns(line: LineCheck, ax: Axes) -> None:
    """Where on the line the patterns of largest gain are: the size of each at each token on `ax`, before and after."""
    tokens = np.arange(line.inputs.shape[1])
    for number, color in zip(range(min(SHOWN, len(line.gain))), (BLUE, VERMILION, GREEN), strict=False):
        for fields, dashes in ((line.inputs, (0, (3, 1.5))), (line.expected, "-")):
            size = np.linalg.norm(fields[number], axis=-1)
            ax.plot(tokens, size / np.linalg.norm(size), color=color, linestyle=dashes, linewidth=1.0)
        ax.plot([], [], color=color, label=f"pattern {number + 1}")
    ax.plot([], [], color=BLACK, linestyle=(0, (3, 1.5)), linewidth=1.0, label="before")
    ax.plot([], [], color=BLACK, linewidth=1.0, label="after")
    ax.set(xlabel="token", ylabel="size at the token, normalised", ylim=(0, None))
    ax.legend()


def draw_gains(checked: Check, line: LineCheck, ax: Axes) -> None:
    """Gains of the patterns on `ax`: predicted as a line, measured in the forward pass as rings."""
    x = np.arange(len(line.gain)) + 1
    _compare(ax, x, line.gain, line.measured_gain, "-")
    _unchanged(checked, ax)
    ax.set(xlabel="pattern, by gain", ylabel=_grown(checked))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    ax.legend()


def draw_growth(checked: Check, ax: Axes) -> None:
    """Growth through all layers on `ax`: predicted as a line, measured in the forward pass as rings."""
    shape = checked.predicted.shape
    if len(shape) == 1:
        x, label = np.array([mode.k for mode in checked.modes]), "wavenumber $k$"
    else:
        x = np.array([np.linalg.norm((np.atleast_1d(mode.q) + np.pi) % (2 * np.pi) - np.pi) for mode in checked.modes])
        label = "$|q|$ (rad per token)"
    order = np.argsort(x, kind="stable")
    _compare(ax, x[order], checked.growth[order], checked.measured_growth[order], "-" if len(shape) == 1 else ".")
    _unchanged(checked, ax)
    ax.set(xlabel=label, ylabel=_grown(checked))
    ax.legend()


def _compare(ax: Axes, x: NDArray, predicted: NDArray, measured: NDArray, style: str) -> None:
    ax.plot(x, predicted, style, color=BLUE, label="predicted")
    ax.plot(x, measured, "o", color=VERMILION, markerfacecolor="none", markersize=5, label="forward pass")
    positive = np.concatenate([predicted, measured])
    positive = positive[positive > 0]
    if positive.size and positive.max() > 20 * positive.min():
        ax.set_yscale("log")


def _unchanged(checked: Check, ax: Axes) -> None:
    """Lines at 1 and, where it is another, at what the layers multiply the state itself by."""
    ax.axhline(1, color=GREY, linewidth=0.8, linestyle="--", zorder=0, label="as before, 1")
    if np.isfinite(checked.stretch) and abs(checked.stretch - 1) > SAME and checked.stretch > 0:
        ax.axhline(
            checked.stretch,
            color=GREY,
            linewidth=0.8,
            linestyle=":",
            zorder=0,
            label=f"the state, {checked.stretch:.3g}",
        )


def _grown(checked: Check) -> str:
    return f"growth in {checked.layers} layer{'s' * (checked.layers > 1)}"


def _axis(shape: tuple[int, ...]) -> tuple[NDArray, str, NDArray]:
    """(x, its label, the order of the wavenumbers along it) for one wavenumber of each pair ±k."""
    half, _ = conjugate_pairs(shape)
    if len(shape) == 1:
        return half, "wavenumber $k$", np.arange(len(half))
    return np.arange(len(half)), "wavenumbers by $|q|$", _by_length(shape, half)


def _by_length(shape: tuple[int, ...], half: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order of the wavenumbers `half` of a torus by increasing |q|."""
    q = (grid_wavenumbers(shape).reshape(-1, len(shape))[half] + np.pi) % (2 * np.pi) - np.pi
    return np.argsort(np.linalg.norm(q, axis=-1), kind="stable")
