"""Figure 2: effective potentials of one mode, and of two that compete (Eqs. 19, 122; App. I.1).

a, b  one mode below and above onset;  c, d  two modes with weak and strong cross suppression.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.contour import ContourSet
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline, RectBivariateSpline
from scipy.optimize import minimize, root

from amplitude import one_mode_potential, two_mode_potential
from figures.report import Claim
from figures.style import BLUE, GREY, SEQUENTIAL, TWO_COLUMNS, VERMILION, panel_label

NAME = "fig2"
TITLE = "Effective potentials of one mode and of two competing modes"
MOSAIC = "abcd"
SIZE = (TWO_COLUMNS, 2.45)

MU = (-1.0, 1.0)
BETA = (1.0, -1.0)
RATIOS = (0.4, 2.5)
"""β_×/β_self of panels c and d."""

TOLERANCE = 1e-3
"""How near a located minimum must be to √(μ/β)."""
PURE = 0.01
"""A minimum is pure if its smaller amplitude is below this fraction of the larger, mixed if above 1 − PURE."""

Points = NDArray[np.float64]


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """Potentials over signed amplitudes, and their stationary points.

    quick : a coarser grid; progress : unused, the work takes no time. Groups: 'one_mode', V over
    (mu, beta, R); 'two_modes', V over (ratio, R1, R2) at μ_i = β_self = 1; 'one_mode_points' and
    'two_mode_points', one row per stationary point, with the eigenvalues of the Hessian of V there.
    """
    R = np.linspace(-1.7, 1.7, 171 if quick else 341)
    one_mode = [[one_mode_potential(R, mu, beta) for beta in BETA] for mu in MU]
    side = np.linspace(-1.45, 1.45, 81 if quick else 161)
    two_modes = [_two_modes(side[:, None], side, ratio) for ratio in RATIOS]
    groups = {
        "/": xr.Dataset(attrs={"mu_self": 1.0, "beta_self": 1.0}),
        "one_mode": xr.Dataset({"V": (("mu", "beta", "R"), one_mode)}, {"mu": list(MU), "beta": list(BETA), "R": R}),
        "two_modes": xr.Dataset(
            {"V": (("ratio", "R1", "R2"), two_modes)}, {"ratio": list(RATIOS), "R1": side, "R2": side}
        ),
        "one_mode_points": _one_mode_points(),
        "two_mode_points": _two_mode_points(),
    }
    return xr.DataTree.from_dict(groups)


def _two_modes(R1: Points, R2: Points, ratio: float) -> Points:
    return two_mode_potential(R1, R2, (1, 1), (1, 1), ratio)


def _one_mode_points() -> xr.Dataset:
    """Roots of V' = −μR + βR³ and V'' there, for each μ and β."""
    rows = []
    for mu, beta in product(MU, BETA):
        roots = np.roots([beta, 0, -mu, 0])
        for R in np.sort(roots[roots.imag == 0].real):
            rows.append((mu, beta, R, float(one_mode_potential(R, mu, beta)), 3 * beta * R**2 - mu))
    columns = zip(("mu", "beta", "R", "V", "curvature"), np.array(rows).T, strict=True)
    return xr.Dataset({name: ("point", values) for name, values in columns})


def _two_mode_points() -> xr.Dataset:
    """Roots of ∂V/∂R_i = −R_i + R_i³ + β_×R_iR_j² from a grid of starts, and the Hessian's eigenvalues there."""
    rows = []
    for ratio in RATIOS:

        def gradient(R: Points, ratio: float = ratio) -> Points:
            return -R + R**3 + ratio * R * R[::-1] ** 2

        def hessian(R: Points, ratio: float = ratio) -> Points:
            own, other = R**2, R[::-1] ** 2
            return np.diag(-1 + 3 * own + ratio * other) + 2 * ratio * R[0] * R[1] * (1 - np.eye(2))

        grid = np.linspace(-1.25, 1.25, 11)
        found = [root(gradient, start, jac=hessian, tol=1e-12) for start in product(grid, grid)]
        for R1, R2 in _distinct([solution.x for solution in found if solution.success]):
            low, high = np.linalg.eigvalsh(hessian(np.array([R1, R2])))
            rows.append((ratio, R1, R2, float(_two_modes(R1, R2, ratio)), low, high))
    names = ("ratio", "R1", "R2", "V", "curvature_low", "curvature_high")
    return xr.Dataset({name: ("point", values) for name, values in zip(names, np.array(rows).T, strict=True)})


def _distinct(points: list[Points], tolerance: float = 1e-4) -> Points:
    """(n, 2) the points that differ by more than the tolerance, in lexicographic order."""
    kept: list[Points] = []
    for point in points:
        if all(np.abs(point - other).max() > tolerance for other in kept):
            kept.append(point)
    rounded = np.round(np.array(kept).reshape(-1, 2), 9) + 0.0
    return rounded[np.lexsort(rounded.T[::-1])]


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw the potentials of `compute`; minima are filled dots, maxima and saddles open ones."""
    for name, mu in zip("ab", data["one_mode"].to_dataset()["mu"].values, strict=True):
        _draw_one_mode(data, axes[name], float(mu))
        side = "below" if mu < 0 else "above"
        axes[name].set_title(f"{side} onset\n" + rf"$\mu={mu:+.0f}$")
    axes["a"].set(ylim=(-0.62, 1.22), ylabel="potential $V$")
    axes["b"].set(ylim=(-1.22, 0.62))
    levels = np.linspace(-0.4, 0.2, 25)
    for name, ratio in zip("cd", data["two_modes"].to_dataset()["ratio"].values, strict=True):
        filled = _draw_two_modes(data, axes[name], float(ratio), levels)
        outcome = "coexistence" if ratio < 1 else "winner takes all"
        axes[name].set_title(f"{outcome}\n" + rf"$\beta_\times={ratio:g}\,\beta$")
    axes["c"].set_ylabel("amplitude $R_2$")
    axes["d"].tick_params(labelleft=False)
    figure = axes["d"].figure
    below: dict[str, Any] = {"location": "bottom", "aspect": 28, "shrink": 0.8, "pad": 0.03}
    bar = figure.colorbar(filled, ax=[axes["c"], axes["d"]], ticks=np.linspace(-0.4, 0.2, 4), **below)
    bar.set_label("potential $V$")
    handles = [axes["a"].plot([], [], **marker, label=label)[0] for marker, label in _MARKERS]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.09, 0.06), ncols=2)
    for name, ax in axes.items():
        ax.set_box_aspect(1)
        panel_label(ax, name, y=8)


_MINIMUM: dict[str, Any] = {"marker": "o", "color": "black", "linestyle": "none"}
_OTHER: dict[str, Any] = _MINIMUM | {"markerfacecolor": "white"}
_MARKERS = ((_MINIMUM, "minimum"), (_OTHER, "maximum or saddle"))


def _draw_one_mode(data: xr.DataTree, ax: Axes, mu: float) -> None:
    curves, points = data["one_mode"].to_dataset()["V"].sel(mu=mu), data["one_mode_points"].to_dataset()
    ax.axhline(0, color=GREY, linewidth=0.5, zorder=0)
    for beta, colour in zip(curves["beta"].values, (BLUE, VERMILION), strict=True):
        curve = curves.sel(beta=beta)
        ax.plot(curve["R"], curve, color=colour)
        label = "saturates" if beta > 0 else "runs away"
        height = 0.5 * (mu < 0) + (0.38 if beta > 0 else -0.8)
        ax.text(0, height, rf"$\beta={beta:+.0f}$" + f"\n{label}", color=colour, ha="center", va="center", fontsize=7)
        here = points.where((points["mu"] == mu) & (points["beta"] == beta), drop=True)
        for R, V, curvature in zip(here["R"].values, here["V"].values, here["curvature"].values, strict=True):
            marker = (_MINIMUM if curvature > 0 else _OTHER) | {"color": colour if R else "black"}
            ax.plot(R, V, **marker, zorder=3)
    ax.set(xlabel="amplitude $R$", xlim=(-1.7, 1.7), xticks=[-1, 0, 1])


def _draw_two_modes(data: xr.DataTree, ax: Axes, ratio: float, levels: Points) -> ContourSet:
    V, points = data["two_modes"].to_dataset()["V"].sel(ratio=ratio), data["two_mode_points"].to_dataset()
    filled = ax.contourf(V["R1"], V["R2"], V.T, levels, cmap=SEQUENTIAL, extend="max")
    filled.set_edgecolor("face")
    filled.set_rasterized(True)
    here = points.where(points["ratio"] == ratio, drop=True)
    minimum = here["curvature_low"].values > 0
    edge = {"markersize": 4.5, "markeredgewidth": 0.8}
    ax.plot(here["R1"][minimum], here["R2"][minimum], **_MINIMUM | edge | {"markeredgecolor": "white"})
    ax.plot(here["R1"][~minimum], here["R2"][~minimum], **_OTHER | edge)
    ax.set(xlabel="amplitude $R_1$", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    return filled


def claims(data: xr.DataTree) -> list[Claim]:
    """The claims of Sections 5.1 and 5.3, tested on the sampled potentials alone."""
    return [_single_minimum(data), *_regimes(data)]


def _single_minimum(data: xr.DataTree) -> Claim:
    """The minimum of the sampled V at μ = β = 1, from the stationary points of a spline through it."""
    mu, beta = 1.0, 1.0
    V = data["one_mode"].to_dataset()["V"].sel(mu=mu, beta=beta)
    slope = CubicSpline(V["R"].values, V.values).derivative()
    roots = slope.roots(extrapolate=False)
    minima = roots[(slope.derivative()(roots) > 0) & (roots > 0)]
    here = float(minima[0]) if len(minima) == 1 else float("nan")
    return Claim(
        id="fig2.minima.single",
        claim="above onset a saturating mode (μ = β = 1) settles at R = √(μ/β)",
        paper=np.sqrt(mu / beta).item(),
        here=here,
        met=abs(here - np.sqrt(mu / beta)) <= TOLERANCE,
        note=f"the minimum at R > 0 of a spline through the sampled V; met within {TOLERANCE:g}",
    )


def _regimes(data: xr.DataTree) -> list[Claim]:
    V = data["two_modes"].to_dataset()["V"]
    found = []
    for ratio in V["ratio"].values:
        minima = np.abs(_minima(V.sel(ratio=ratio)))
        # smaller amplitude over larger at each minimum: 1 is evenly mixed, 0 is pure
        mixing = minima.min(axis=1) / minima.max(axis=1, initial=1e-300)
        coexist = ratio < 1
        worst = (mixing.min if coexist else mixing.max)(initial=1.0 if coexist else 0.0)
        met = len(minima) == 4 and (worst >= 1 - PURE if coexist else worst <= PURE)
        rule = f"at least {1 - PURE:g}" if coexist else f"at most {PURE:g}"
        found.append(
            Claim(
                id=f"fig2.regime.{'coexistence' if coexist else 'winner'}",
                claim=f"two modes with β_×/β = {ratio:g} "
                + ("coexist" if coexist else "exclude each other: the winner takes all"),
                paper="mixed minima" if coexist else "pure minima",
                here=float(worst),
                met=met,
                note=f"smaller over larger amplitude at the {len(minima)} minima found by descent on the sampled "
                f"V, the worst of them; met if {rule} at 4 minima",
            )
        )
    return found


def _minima(V: xr.DataArray) -> Points:
    """(n, 2) minima of V over (R1, R2) reached by descent from a grid of starts, inside the sampled square."""
    R1, R2 = V["R1"].values, V["R2"].values
    surface = RectBivariateSpline(R1, R2, V.values)

    def value(R: Points) -> float:
        return float(surface(R[0], R[1], grid=False))

    def slope(R: Points) -> Points:
        return np.array([surface(R[0], R[1], dx=1, grid=False), surface(R[0], R[1], dy=1, grid=False)])

    bounds = [(R1[0], R1[-1]), (R2[0], R2[-1])]
    ends = []
    # no start lies on an axis or a diagonal, from where symmetry would carry the descent to a saddle
    for start in product(np.linspace(-1.1, 1.2, 5), np.linspace(-1.2, 1.1, 5) + 0.03):
        result = minimize(value, start, jac=slope, bounds=bounds, options={"gtol": 1e-9, "ftol": 1e-15})
        if all(low < R < high for R, (low, high) in zip(result.x, bounds, strict=True)):
            ends.append(result.x)
    return _distinct(ends, tolerance=0.01)
