"""Drawing the multipliers of a block: curves against k on a ring, a map on a torus."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dispersion import Dispersion, Mode
from figures.style import BLUE, DIVERGING, GREY, ONE_COLUMN, VERMILION, centred, style, verbatim


@style()
def draw(relation: Dispersion, leading: Mode, title: str) -> Figure:
    """The multipliers of `relation` against k on a ring, ρ(J(q)) as a map on a torus, with its `leading` mode marked.

    title : above the figure.
    """
    ring = len(relation.shape) == 1
    figure = Figure(figsize=(ONE_COLUMN, 3.5 if ring else 2.9), layout="constrained")
    sizes = " × ".join(map(str, relation.shape))
    title = f"{verbatim(title)}: $N$ = {sizes}, $d$ = {relation.d}"
    mark = f"$k$ = {', '.join(map(str, np.atleast_1d(leading.k)))}, {leading.morphology}"
    if ring:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        _draw_curves(relation, leading, top, bottom)
        top.set_title(title, loc="left")
    else:
        ax = figure.subplots()
        _draw_map(relation, leading, ax)
        ax.set_title(f"{title}\n○ {mark}", loc="left")
    return figure


def _draw_curves(relation: Dispersion, leading: Mode, top: Axes, bottom: Axes) -> None:
    (n,) = relation.shape
    k = np.arange(n // 2 + 1)
    size, phase = np.abs(relation.multipliers[k]), relation.phases[k]
    small = 2.6 if n <= 64 else 1.4
    top.axhline(1, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    top.plot(k, size[:, 1:], "-o", color=GREY, linewidth=0.5, markersize=0.7 * small, alpha=0.6)
    top.plot(k, size[:, 0], "-o", color=BLUE, linewidth=0.8, markersize=small)
    # a phase means nothing where Λ is zero; a pair ±ω of the largest |Λ| is blue at both
    shown = size > 1e-9 * size.max()
    first = size >= size[:, :1] * (1 - 1e-9)
    every = np.broadcast_to(k[:, None], size.shape)
    bottom.axhline(0, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    bottom.plot(every[shown & ~first], phase[shown & ~first], "o", color=GREY, markersize=0.7 * small, alpha=0.6)
    bottom.plot(every[shown & first], phase[shown & first], "o", color=BLUE, markersize=small)
    ring: dict[str, Any] = {"marker": "o", "markersize": 6, "markerfacecolor": "none", "color": VERMILION}
    place = leading.k
    assert isinstance(place, int)
    top.plot(place, leading.growth, **ring)
    bottom.plot(place, leading.phase, **ring)
    right = place > n / 4
    top.annotate(
        f"$k$ = {place}, {leading.morphology}",
        (place, leading.growth),
        (-6 if right else 6, 3),
        textcoords="offset points",
        ha="right" if right else "left",
        va="bottom",
        color=VERMILION,
    )
    low, high = size.min(), max(1.0, size.max())
    top.set(ylabel=r"growth $|\Lambda|$", ylim=(max(0.0, low - 0.1 * (high - low)), high + 0.15 * (high - low)))
    widest = np.abs(phase[shown]).max(initial=0.0)
    bottom.set(ylabel=r"phase $\omega$ (rad)", xlabel="wavenumber $k$", xlim=(-0.02 * n, 0.52 * n))
    if widest > 1 or widest < 1e-9:
        quarters = np.arange(-2, 3)
        bottom.set_yticks(quarters * np.pi / 2, ["−π", "−π/2", "0", "π/2", "π"])
        bottom.set_ylim(-3.4, 3.4)
    else:
        bottom.set_ylim(-1.25 * widest, 1.25 * widest)


def _draw_map(relation: Dispersion, leading: Mode, ax: Axes) -> None:
    k1, k2 = (np.fft.fftshift(np.fft.fftfreq(n, 1 / n)) for n in relation.shape)
    growth = np.fft.fftshift(relation.growth)
    # a few strongly damped waves must not bleach the rest
    span = max(abs(growth.max() - 1), float(np.quantile(np.abs(growth - 1), 0.9)))
    image = ax.pcolormesh(k2, k1, growth, cmap=DIVERGING, norm=centred(growth, 1.0, span), rasterized=True)
    extend = "min" if growth.min() < 1 - span else "neither"
    ax.figure.colorbar(image, ax=ax, label=r"growth $\rho(J(q))$", extend=extend)
    for sign in (1, -1):
        i, j = (
            (sign * part + n // 2) % n - n // 2
            for part, n in zip(np.atleast_1d(leading.k), relation.shape, strict=True)
        )
        ax.plot(j, i, "o", markersize=6, markerfacecolor="none", color="black")
    ax.set(xlabel="wavenumber $k_2$", ylabel="wavenumber $k_1$", aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
