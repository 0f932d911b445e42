"""Drawing maps over two parameters, the linear threshold and the limits of theory over the simulation; and sections
over one parameter.
"""

from __future__ import annotations

import matplotlib
import matplotlib.ticker
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patheffects import AbstractPathEffect, withStroke

from amplitude import REGIMES
from figures.style import BLUE, GREEN, ORANGE, PURPLE, SEQUENTIAL, SKY, VERMILION

STABLE_GREY = "#e8e8e8"
REGIME_COLOURS = dict(zip(REGIMES, (STABLE_GREY, SKY, ORANGE, PURPLE, GREEN, "white"), strict=True))


def axes_of(data: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """The two swept parameters of a map."""
    x, y = data.critical_growth.dims
    return data[x], data[y]


def unstable(data: xr.Dataset) -> xr.DataArray:
    """Where the homogeneous state is not known to be stable: max |Λ| > 1, or undefined."""
    return ~(data.critical_growth <= 1)


def draw_threshold(data: xr.Dataset, ax: Axes) -> None:
    """The line max |Λ| = 1, and the names of the parameters as labels."""
    x, y = axes_of(data)
    if float(data.critical_growth.min()) < 1 < float(data.critical_growth.max()):
        ax.contour(x, y, data.critical_growth.T, [1.0], colors="black", linewidths=1.2)
    ax.set(xlabel=x.name, ylabel=y.name)


def draw_quantity(data: xr.Dataset, ax: Axes, simulated: str, theory: str, label: str) -> None:
    """The variable `simulated` as a map where the homogeneous state is `unstable`, `theory` as contours over it."""
    x, y = axes_of(data)
    shown = unstable(data)
    values = data[simulated].where(shown)
    ax.set_facecolor(STABLE_GREY)
    if not values.notnull().any():
        return draw_threshold(data, ax)
    image = ax.pcolormesh(x, y, values.T, cmap=SEQUENTIAL, rasterized=True)
    if theory in data and data[theory].where(shown).notnull().sum() > 3:
        shadow: list[AbstractPathEffect] = [withStroke(linewidth=1.4, foreground="0.25")]
        field = data[theory].where(shown)
        levels = matplotlib.ticker.MaxNLocator(8).tick_values(float(field.min()), float(field.max()))
        lines = ax.contour(x, y, field.T, levels, colors="white", linewidths=0.7, linestyles="--")
        lines.set_path_effects(shadow)
        for text in ax.clabel(lines, fontsize=6, fmt="%.3g"):
            text.set_path_effects(shadow)
    draw_threshold(data, ax)
    ax.figure.colorbar(image, ax=ax, label=label, pad=0.02)


def draw_wavenumber(data: xr.Dataset, ax: Axes) -> None:
    """The observed wavenumber as a map, and the lines where the linear one changes."""
    x, y = axes_of(data)
    observed = data.wavenumber.where(unstable(data) & (data.wavenumber >= 0))
    ax.set_facecolor(STABLE_GREY)
    if not observed.notnull().any():
        return draw_threshold(data, ax)
    present = np.arange(int(observed.min(skipna=True)), int(observed.max(skipna=True)) + 1)
    colours = ListedColormap(matplotlib.colormaps[SEQUENTIAL](np.linspace(0, 1, len(present))))
    norm = BoundaryNorm(np.append(present, present[-1] + 1) - 0.5, len(present))
    image = ax.pcolormesh(x, y, observed.T, cmap=colours, norm=norm, rasterized=True)
    growth = data.growth
    for k in range(growth.sizes["k"]):
        lead = growth.isel(k=k) - growth.drop_isel(k=k).max("k")
        if lead.max() > 0 > lead.min():
            lead = lead.where(growth.max("k") > 1)
            ax.contour(x, y, lead.T, [0.0], colors="white", linewidths=0.9, linestyles="--")
    draw_threshold(data, ax)
    ax.figure.colorbar(image, ax=ax, label="observed $k$", ticks=present, pad=0.02).minorticks_off()


def draw_regimes(data: xr.Dataset, ax: Axes) -> None:
    """The simulated regimes as colours."""
    x, y = axes_of(data)
    colours = ListedColormap(list(REGIME_COLOURS.values()))
    norm = BoundaryNorm(np.arange(len(REGIMES) + 1) - 0.5, len(REGIMES))
    ax.pcolormesh(x, y, data.observed.T, cmap=colours, norm=norm, rasterized=True)


def draw_competition(data: xr.Dataset, ax: Axes, named: bool = True) -> None:
    """The simulated regimes, perhaps `named`, and the lines where each mode alone loses its stability to the other."""
    x, y = axes_of(data)
    draw_regimes(data, ax)
    for place in (0, 1):
        transverse = data.transverse.isel(mode=place).where(data.mu.isel(mode=place) > 0)
        if float(transverse.min()) < 1 < float(transverse.max()):
            ax.contour(x, y, transverse.T, [1.0], colors="black", linewidths=0.9, linestyles="--")
    draw_threshold(data, ax)
    if not named:
        return
    k1, k2 = (f"$k={int(k)}$" for k in data.mode)
    names = {"mode 1": k1, "mode 2": k2} | {name: name for name in ("collapsed", "bistable", "coexistence")}
    for regime, label in names.items():
        i, j = np.nonzero(data.observed.values == REGIMES.index(regime))
        if len(i) > 0.01 * data.observed.size:
            ax.text(float(x[i].mean()), float(y[j].mean()), label, ha="center", fontsize=6.5)


def draw_section(data: xr.Dataset, ax: Axes, simulated: str, theory: str, label: str) -> None:
    """Over one parameter: `simulated` as circles, `theory` as a line, and where the homogeneous state is stable."""
    (name,) = data.critical_growth.dims
    stable = ~unstable(data).values
    ax.fill_between(data[name], 0, 1, where=stable, color=STABLE_GREY, transform=ax.get_xaxis_transform(), linewidth=0)
    if theory in data:
        ax.plot(data[name], data[theory].where(~stable), color=BLUE, label="theory")
    ax.plot(data[name], data[simulated], "o", color=VERMILION, markersize=3, fillstyle="none", label="simulated")
    ax.set(xlabel=name, ylabel=label)
    ax.legend()


def mark_misses(data: xr.Dataset, ax: Axes) -> None:
    """Dots where the text variable `miss` is not empty: where simulation and prediction disagree."""
    places = data.miss
    x, y = places.dims
    i, j = np.nonzero(places.values != "")
    ax.plot(places[x].values[i], places[y].values[j], ".", color=VERMILION, markersize=1.5, markeredgewidth=0)
