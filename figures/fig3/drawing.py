"""How Figure 3 is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from figures.fig3.assessment import STABLE, best_of, errors
from figures.phase_diagram.drawing import (
    draw_competition,
    draw_quantity,
    draw_regimes,
    draw_threshold,
    draw_wavenumber,
    mark_misses,
)
from figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, panel_label

MARKERS = {
    # (series, quantity): label, colour, marker
    ("standing", "R"): ("standing $R$", BLUE, "o"),
    ("travelling", "R"): ("travelling $R$", VERMILION, "s"),
    ("coexistence", "R1"): ("coexisting $R_4$", GREEN, "^"),
    ("coexistence", "R2"): ("coexisting $R_{10}$", ORANGE, "v"),
    ("clusters", "u"): ("clusters $u$", PURPLE, "D"),
    ("travelling", "shift"): (r"speed $|\Omega-\omega_c|$", VERMILION, "s"),
    ("clusters", "m"): ("cluster mean $m$", PURPLE, "D"),
}


def draw(data: xr.DataTree, axes: Mapping[str, Axes]) -> None:
    """Draw every panel of `data` (from `compute`) into the axes named by MOSAIC."""
    for panel, quantities in {"a": ("R", "R1", "R2", "u"), "shift": ("shift", "m")}.items():
        _draw_scaling(data, axes[panel], quantities, slope=0.5 if panel == "a" else 1.0)
    axes["a"].set(ylabel="amplitude")
    axes["shift"].set(ylabel="speed shift, mean")
    strength = "PE strength $s$"
    for node, panel in {"amplitude": "b", "travelling": "e"}.items():
        draw_quantity(data[node].to_dataset(), axes[panel], "critical_amplitude", "amplitude_theory", "amplitude $R$")
        axes[panel].set(xlabel=r"OV gain $|\eta|$", ylabel=strength)
    for node, panel, drawn in (("wavenumber", "c", draw_wavenumber), ("competition", "d", draw_competition)):
        drawn(data[node].to_dataset(), axes[panel])
        mark_misses(data[node].to_dataset(), axes[panel])
    axes["c"].set(xlabel=r"lobe separation $\Delta$", ylabel=strength)
    axes["d"].set(xlabel="kernel mixture $w$", ylabel=strength)
    _draw_errors(data["beyond/amplitude"].to_dataset(), axes["f"])
    _draw_band(data["beyond/band"].to_dataset(), data["wavenumber"].to_dataset(), axes["g"])
    _draw_exact_competition(data["beyond/competition"].to_dataset(), axes["h"])
    for panel in "abcdefgh":
        panel_label(axes[panel], panel)


def _draw_scaling(data: xr.DataTree, ax: Axes, quantities: tuple[str, ...], slope: float) -> None:
    lowest = np.inf
    for (series, quantity), (label, colour, marker) in MARKERS.items():
        if quantity not in quantities:
            continue
        points = data[f"scaling/{series}"].to_dataset()
        ax.loglog(points.mu, points[f"{quantity}_theory"], "-", color=colour, linewidth=0.9)
        ax.loglog(points.mu, points[quantity], marker, color=colour, markersize=3.2, fillstyle="none", label=label)
        lowest = min(lowest, float(points[quantity][0]))
    mu = np.geomspace(1e-3, 1e-2, 2)
    guide = 0.45 * lowest * (mu / points.mu.values[0]) ** slope
    ax.loglog(mu, guide, ":", color="0.4", linewidth=0.9)
    text = "slope 1/2" if slope == 0.5 else "slope 1"
    ax.annotate(
        text, (np.sqrt(np.prod(mu)), np.sqrt(np.prod(guide))), (4, -6), textcoords="offset points", fontsize=6.5
    )
    ax.set(xlabel=r"distance to onset $\mu$")
    ax.legend(loc="upper left", fontsize=6)


def _draw_errors(data: xr.Dataset, ax: Axes) -> None:
    """Relative errors of normal forms against the exact pattern of the stable family, and of that pattern against
    simulations, over the distance to onset: medians, and 10 to 90 %."""
    mu = data.critical_growth.values.ravel() - 1
    error, stable = errors(data), data.growth <= 1 + STABLE
    series = {f"order {int(order)}": error.sel(order=order).values.ravel() for order in data.order.values}
    series["best"] = best_of(data, error)[0].values.ravel()
    series["exact"] = abs(data.simulated / data.exact - 1).where(stable).max("family").values.ravel()
    colours = (BLUE, SKY, GREEN, ORANGE, VERMILION, "black", PURPLE)
    edges = np.geomspace(1e-3, mu.max() * 1.001, 15)
    for (label, values), colour in zip(series.items(), colours, strict=True):
        rows = []
        for low, high in pairwise(edges):
            part = values[(low <= mu) & (mu < high) & np.isfinite(values)]
            if len(part):
                rows.append((np.sqrt(low * high), *np.maximum(np.quantile(part, (0.1, 0.5, 0.9)), 1e-16)))
        middle, tenth, median, most = np.transpose(rows)
        ax.fill_between(middle, tenth, most, color=colour, alpha=0.18, linewidth=0)
        ax.plot(middle, median, ":" if label == "best" else "-", color=colour, linewidth=1.2, label=label)
    ax.set(
        xscale="log", yscale="log", xlabel=r"distance to onset $\mu$", ylabel="relative error of $R$", ylim=(1e-16, 30)
    )
    ax.legend(fontsize=6, loc="center right", bbox_to_anchor=(1.0, 0.38), handlelength=1.2, labelspacing=0.25)


def _draw_band(band: xr.Dataset, c: xr.Dataset, ax: Axes) -> None:
    """Wavenumbers with an exact pattern, stable or not, and those that simulations reached, at one strength."""
    separation, k = np.meshgrid(band.separation, band.k, indexing="ij")
    exists, stable = band.exists.values, band.stable.values
    unstable = exists & ~stable
    ax.plot(separation[stable], k[stable], "s", color=SKY, markersize=3.6, markeredgewidth=0, label="stable")
    ax.plot(
        separation[unstable],
        k[unstable],
        "s",
        color="0.6",
        markersize=2.6,
        fillstyle="none",
        markeredgewidth=0.5,
        label="unstable",
    )
    row = c.sel(strength=band.attrs["strength"], method="nearest")
    ax.plot(
        row.separation,
        row.wavenumber.where(row.critical_growth > 1),
        ".",
        color=VERMILION,
        markersize=2.5,
        label="observed",
    )
    ax.set(xlabel=r"lobe separation $\Delta$", ylabel="wavenumber $k$", ylim=(0.4, float(band.k.max()) + 3.5))
    ax.set_title(f"$s={band.attrs['strength']:g}$", fontsize=7, pad=2)
    ax.legend(
        fontsize=6,
        loc="upper right",
        ncols=3,
        columnspacing=0.5,
        handletextpad=0.1,
        handlelength=0.7,
        borderaxespad=0.1,
    )


def _draw_exact_competition(data: xr.Dataset, ax: Axes) -> None:
    """The simulated regimes with the limits of exact stability, solid."""
    draw_regimes(data, ax)
    draw_threshold(data, ax)
    for mode in (0, 1):
        ax.contour(
            data.mixture, data.strength, data.growth.isel(mode=mode).T, [1.0 + 1e-4], colors="black", linewidths=0.9
        )
    ax.set(xlabel="kernel mixture $w$", ylabel="PE strength $s$")
