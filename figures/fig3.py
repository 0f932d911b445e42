"""Figure 3: the scalar theory against the iterated map (App. I.2).

a  scaling laws near onset;  b  amplitude over gain and kernel strength;  c  selected wavenumber over
lobe separation and strength;  d  two-mode competition over kernel mixture and strength;
e  (not in the paper) the travelling counterpart of b.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patheffects import AbstractPathEffect, withStroke
from numpy.typing import NDArray
from scipy.optimize import brentq

from amplitude import REGIMES, clusters, competition, standing_wave, travelling_wave
from dispersion import Activation, Block, ExclusionError, FeedForward, Head, Kernel, dispersion_relation
from figures.report import Claim
from figures.style import BLUE, GREEN, ORANGE, PURPLE, SEQUENTIAL, SKY, VERMILION, panel_label
from simulate import STATUS, sweep

NAME = "fig3"
TITLE = "Scaling laws, amplitudes, wavenumbers and competition"
MOSAIC = [["a", "shift", "b"], ["c", "d", "e"]]
SIZE = (7.0, 4.9)

N = 32
CHI = 1.5
DEPTH = 5000
SEED = 0
NEAR_ONSET = 1.05
SETTLED_MU = 1e-3
FEEDFORWARD = FeedForward.scalar("tanh", scale=-0.1)
GAIN = FEEDFORWARD.taylor(0.0, 1)[1] + 1
"""α_1 of H(h) = h − 0.1 tanh h."""

Grid = Mapping[str, NDArray[np.float64]]


def two_lobes(strength: float, separation: float = 4.0, width: float = 1.0) -> Kernel:
    """s K_Δ, the symmetric kernel of the paper."""
    return Kernel.gaussian_lobes(N, separation, width, strength)


def one_lobe(strength: float) -> Kernel:
    """The directional kernel of the travelling series."""
    return Kernel.skewed_lobe(N, 4, 0.7, 2.0, strength)


def four_and_ten(w: float) -> Kernel:
    """4[(1−w)K_2 + wK_4.5] of width 0.7, which can make k = 4 and 10 critical together."""
    return 4.0 * ((1 - w) * two_lobes(1.0, 2, 0.7) + w * two_lobes(1.0, 4.5, 0.7))


def four_and_five(w: float, strength: float) -> Kernel:
    """s[(1−w)K_4 + wK_3], the kernel of panel d; the second lobe has width 0.7."""
    return strength * ((1 - w) * two_lobes(1.0) + w * two_lobes(1.0, 3, 0.7))


def tanh_block(kernel: Kernel, eta: float) -> Block:
    """One head with value η and content χ, and φ(h) = −0.1 tanh h."""
    return Block([Head(kernel, value=eta, content=CHI)], FEEDFORWARD)


def cluster_block(mu: float) -> Block:
    """No positional encoding, η = −0.6, φ(y) = μy + 0.3y² − y³/3."""
    polynomial = Activation.polynomial([mu, 0.3, -1 / 3])
    return Block([Head(Kernel.uniform(N), value=-0.6, content=CHI)], FeedForward.scalar(polynomial))


def leading_wavenumber(block: Block) -> int:
    """argmax |J(q)| on the grid of a ring."""
    k = dispersion_relation(block).leading().k
    assert isinstance(k, int)
    return k


def gain_for(kernel: Kernel, k: int, mu: float) -> float:
    """The η < 0 for which |α_1(1 + ηλ(q))| = 1 + μ."""
    symbol = kernel.symbol[k]
    roots = np.roots([abs(symbol) ** 2, 2 * symbol.real, 1 - ((1 + mu) / GAIN) ** 2]).real
    return float(roots[roots < 0].max())


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """All panels: theory and simulation on the same grids.

    quick : 24×24 grids and fewer points per scaling law, instead of 100×100; progress : show bars.
    The nodes are 'scaling/<series>', 'amplitude' (b), 'wavenumber' (c), 'competition' (d) and
    'travelling' (e); in each, theory and simulation share dimensions.
    """
    size = 24 if quick else 100
    nodes = {f"scaling/{name}": data for name, data in _scaling(5 if quick else 13, progress)}
    nodes["amplitude"] = _amplitude(
        {"gain": np.linspace(0.1, 1.0, size), "strength": np.linspace(0.5, 4.0, size)}, progress
    )
    nodes["wavenumber"] = _wavenumber(
        {"separation": np.linspace(1.5, 8.0, size), "strength": np.linspace(0.5, 3.0, size)}, progress
    )
    nodes["competition"] = _competition(
        {"mixture": np.linspace(0.0, 1.0, size), "strength": np.linspace(1.0, 3.0, size)}, progress
    )
    nodes["travelling"] = _travelling(
        {"gain": np.linspace(0.2, 1.7, size), "strength": np.linspace(0.5, 2.0, size)}, progress
    )
    return xr.DataTree.from_dict(nodes)


# Panel a


def _scaling(points: int, progress: bool) -> Iterator[tuple[str, xr.Dataset]]:
    """(name, dataset over mu) for each series: simulated `value`s and theory's, by quantity."""
    mu = np.geomspace(2e-4, 2e-2, points)
    settings: dict[str, Any] = {"rng": SEED, "progress": progress}

    kernel = two_lobes(2.0)
    k = leading_wavenumber(tanh_block(kernel, -0.6))
    blocks = lambda mu: tanh_block(kernel, gain_for(kernel, k, mu))  # noqa: E731
    run = sweep(blocks, {"mu": mu}, depth=100_000, **settings)
    theory = [standing_wave(blocks(m), k) for m in mu]
    yield "standing", _series(run, {"R": _mode(run, k)}, {"R": [wave.amplitude for wave in theory]})

    kernel_t = one_lobe(1.0)
    k_t = leading_wavenumber(tanh_block(kernel_t, -1.2))
    blocks = lambda mu: tanh_block(kernel_t, gain_for(kernel_t, k_t, mu))  # noqa: E731
    run = sweep(blocks, {"mu": mu}, depth=100_000, **settings)
    theory = [travelling_wave(blocks(m), k_t) for m in mu]
    onset = np.angle(GAIN * (1 + gain_for(kernel_t, k_t, 0.0) * kernel_t.symbol[k_t]))
    yield (
        "travelling",
        _series(
            run,
            {"R": _mode(run, k_t), "shift": np.abs(run.critical_phase_advance.values - onset)},
            {"R": [w.amplitude for w in theory], "shift": [abs(w.phase_advance - onset) for w in theory]},
        ),
    )

    w = brentq(lambda w: (four_and_ten(w).symbol[4] - four_and_ten(w).symbol[10]).real, 0.4, 0.6)
    kernel_c = four_and_ten(w)
    blocks = lambda mu: tanh_block(kernel_c, gain_for(kernel_c, 4, mu))  # noqa: E731
    run = sweep(blocks, {"mu": mu}, depth=1_000_000, **settings)
    pairs = [competition(blocks(m), 4, 10).mixed for m in mu]
    yield (
        "coexistence",
        _series(
            run,
            {"R1": _mode(run, 4), "R2": _mode(run, 10)},
            {"R1": [pair[0] for pair in pairs], "R2": [pair[1] for pair in pairs]},
        ),
    )

    seed = 1e-2 * np.where(np.arange(N) < N // 2, 1.0, -1.0)
    run = sweep(cluster_block, {"mu": mu}, depth=100_000, start=seed, **settings)
    states = [clusters(cluster_block(m)) for m in mu]
    high, low = run.cluster_high.values, run.cluster_low.values
    yield (
        "clusters",
        _series(
            run,
            {"u": (high - low) / 2, "m": run["mean"].values},
            {"u": [state.amplitude for state in states], "m": [state.mean for state in states]},
        ),
    )


def _series(run: xr.Dataset, simulated: Mapping[str, object], theory: Mapping[str, object]) -> xr.Dataset:
    data = run[["status", "layers"]].copy()
    for name in simulated:
        data[name] = ("mu", np.asarray(simulated[name], dtype=float), {"long_name": f"simulated {name}"})
        data[f"{name}_theory"] = ("mu", np.asarray(theory[name], dtype=float), {"long_name": f"predicted {name}"})
    return data


def _mode(run: xr.Dataset, k: int) -> NDArray[np.float64]:
    return run.spectrum.sel(k=k).values


# Panels b, c, d, e


def _predict(grid: Grid, predict: Callable[..., dict[str, float]]) -> xr.Dataset:
    """`predict` at every point of the grid; NaN, and the reason in `excluded`, where theory refuses."""
    shape = tuple(len(values) for values in grid.values())
    excluded = np.full(shape, "", dtype=object)
    columns: dict[str, NDArray[np.float64]] = {}
    for place, point in zip(np.ndindex(shape), product(*grid.values()), strict=True):
        try:
            for name, value in predict(*map(float, point)).items():
                columns.setdefault(name, np.full(shape, np.nan))[place] = value
        except ExclusionError as error:
            excluded[place] = str(error)
    dims = tuple(grid)
    variables = {name: (dims, values) for name, values in columns.items()}
    return xr.Dataset(variables | {"excluded": (dims, excluded.astype(str))}, coords=dict(grid))


def _amplitude(grid: Grid, progress: bool) -> xr.Dataset:
    make = lambda gain, strength: tanh_block(two_lobes(strength), -gain)  # noqa: E731
    return _wave_map(make, standing_wave, grid, progress)


def _travelling(grid: Grid, progress: bool) -> xr.Dataset:
    make = lambda gain, strength: tanh_block(one_lobe(strength), -gain)  # noqa: E731
    return _wave_map(make, travelling_wave, grid, progress)


def _wave_map(make: Callable[..., Block], wave: Callable, grid: Grid, progress: bool) -> xr.Dataset:
    """Simulated and predicted amplitude and phase advance of the leading mode."""

    def predict(*point: float) -> dict[str, float]:
        block = make(*point)
        saturated = wave(block, leading_wavenumber(block))
        return {"amplitude_theory": saturated.amplitude, "phase_advance_theory": saturated.phase_advance}

    run = sweep(make, grid, depth=DEPTH, rng=SEED, progress=progress).drop_vars("state")
    return run.merge(_predict(grid, predict))


def _wavenumber(grid: Grid, progress: bool) -> xr.Dataset:
    """Simulated and linear wavenumber; `growth` holds |Λ| of every mode."""
    make = lambda separation, strength: tanh_block(two_lobes(strength, separation), -0.6)  # noqa: E731
    data = sweep(make, grid, depth=DEPTH, rng=SEED, progress=progress).drop_vars("state")
    growth = [dispersion_relation(make(*point)).growth[: N // 2 + 1] for point in product(*grid.values())]
    data["growth"] = ((*grid, "k"), np.reshape(growth, (*data.status.shape, -1)))
    return data.assign(miss=(tuple(grid), _wavenumber_misses(data, make)))


def _competition(grid: Grid, progress: bool) -> xr.Dataset:
    """Each point is run from a seed in mode 4 and from one in mode 5; `observed` is read off both."""
    make = lambda mixture, strength, seed: tanh_block(four_and_five(mixture, strength), -0.6)  # noqa: E731
    seeds = np.array([4, 5])
    waves = 0.05 * np.cos(2 * np.pi * np.outer(seeds, np.arange(N)) / N)
    shape = (*(len(values) for values in grid.values()), 2)
    start = waves + 1e-3 * np.random.default_rng(SEED).standard_normal((*shape, N))
    run = sweep(make, {**grid, "seed": seeds}, depth=DEPTH, start=start, rng=SEED, progress=progress)
    run = run.drop_vars(["state", "start"]).assign(critical_modulus=run.critical_modulus.isel(seed=0))

    def predict(mixture: float, strength: float) -> dict[str, float]:
        pair = competition(make(mixture, strength, 4), 4, 5)
        return {
            "predicted": REGIMES.index(pair.regime),
            "mu_4": pair.mu[0],
            "mu_5": pair.mu[1],
            "transverse_4": pair.transverse(1),
            "transverse_5": pair.transverse(2),
        }

    data = run.merge(_predict(grid, predict))
    data["observed"] = (tuple(grid), _observed_regime(run.spectrum.sel(k=[4, 5]).values))
    data.predicted.attrs["flag_meanings"] = data.observed.attrs["flag_meanings"] = ", ".join(REGIMES)
    return data.assign(miss=(tuple(grid), _competition_misses(data)))


def _observed_regime(R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Index in REGIMES from R (…, seed, mode), the two amplitudes reached from each of the two seeds.

    A mode counts as present if it has at least a tenth of the larger amplitude, and that exceeds 1e-3.
    """
    largest = R.max(axis=-1, keepdims=True)
    present = (0.1 * largest <= R) & (largest > 1e-3)
    both, none = present.all(axis=(-1, -2)), ~present.any(axis=(-1, -2))
    only_4, only_5 = (present == [True, False]).all(axis=-1), (present == [False, True]).all(axis=-1)
    verdicts = {
        "collapsed": none,
        "mode 1": only_4.all(axis=-1),
        "mode 2": only_5.all(axis=-1),
        "bistable": only_4[..., 0] & only_5[..., 1],
        "coexistence": both,
    }
    observed = np.full(none.shape, REGIMES.index("undecided"), dtype=float)
    for name, where in verdicts.items():
        observed[where] = REGIMES.index(name)
    return observed


# Drawing


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
REGIME_COLOURS = dict(zip(REGIMES, ("#e8e8e8", SKY, ORANGE, PURPLE, GREEN, "white"), strict=True))


def draw(data: xr.DataTree, axes: Mapping[str, Axes]) -> None:
    """Draw every panel of `data` (from `compute`) into the axes named by MOSAIC."""
    for panel, quantities in {"a": ("R", "R1", "R2", "u"), "shift": ("shift", "m")}.items():
        _draw_scaling(data, axes[panel], quantities, slope=0.5 if panel == "a" else 1.0)
    axes["a"].set(ylabel="amplitude")
    axes["shift"].set(ylabel="speed shift, mean")
    _draw_amplitude(data["amplitude"].to_dataset(), axes["b"])
    _draw_amplitude(data["travelling"].to_dataset(), axes["e"])
    _draw_wavenumber(data["wavenumber"].to_dataset(), axes["c"])
    _draw_competition(data["competition"].to_dataset(), axes["d"])
    for panel in "abcde":
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


def _draw_amplitude(data: xr.Dataset, ax: Axes) -> None:
    unstable = data.critical_modulus > 1
    image = ax.pcolormesh(
        data.gain, data.strength, data.critical_amplitude.where(unstable).T, vmin=0, cmap=SEQUENTIAL, rasterized=True
    )
    ax.set_facecolor(REGIME_COLOURS["collapsed"])
    levels = np.arange(0.1, 2.0, 0.1)
    lines = ax.contour(
        data.gain,
        data.strength,
        data.amplitude_theory.where(unstable).T,
        levels,
        colors="white",
        linewidths=0.7,
        linestyles="--",
    )
    shadow: list[AbstractPathEffect] = [withStroke(linewidth=1.4, foreground="0.25")]
    lines.set_path_effects(shadow)
    for text in ax.clabel(lines, fontsize=6, fmt="%.1f"):
        text.set_path_effects(shadow)
    _threshold(data, ax)
    ax.set(xlabel=r"OV gain $|\eta|$", ylabel="PE strength $s$")
    ax.figure.colorbar(image, ax=ax, label="amplitude $R$", pad=0.02)


def _mark_misses(data: xr.Dataset, ax: Axes) -> None:
    """Dots where simulation and prediction disagree."""
    x, y = data.miss.dims
    i, j = np.nonzero(data.miss.values != "")
    ax.plot(data[x].values[i], data[y].values[j], ".", color=VERMILION, markersize=1.5, markeredgewidth=0)


def _threshold(data: xr.Dataset, ax: Axes) -> None:
    x, y = data.critical_modulus.dims
    ax.contour(data[x], data[y], data.critical_modulus.T, [1.0], colors="black", linewidths=1.2)


def _draw_wavenumber(data: xr.Dataset, ax: Axes) -> None:
    unstable = data.critical_modulus > 1
    observed = data.wavenumber.where(unstable)
    present = np.arange(int(observed.min()), int(observed.max()) + 1)
    colours = ListedColormap(plt.get_cmap(SEQUENTIAL)(np.linspace(0, 1, len(present))))
    norm = BoundaryNorm(np.append(present, present[-1] + 1) - 0.5, len(present))
    image = ax.pcolormesh(data.separation, data.strength, observed.T, cmap=colours, norm=norm, rasterized=True)
    ax.set_facecolor(REGIME_COLOURS["collapsed"])
    growth = data.growth
    for k in range(growth.sizes["k"]):
        lead = growth.isel(k=k) - growth.drop_isel(k=k).max("k")
        if lead.max() > 0 > lead.min():
            ax.contour(
                data.separation,
                data.strength,
                lead.where(growth.max("k") > 1).T,
                [0.0],
                colors="white",
                linewidths=0.9,
                linestyles="--",
            )
    _mark_misses(data, ax)
    _threshold(data, ax)
    ax.set(xlabel=r"lobe separation $\Delta$", ylabel="PE strength $s$")
    ax.figure.colorbar(image, ax=ax, label="observed $k$", ticks=present, pad=0.02).minorticks_off()


def _draw_competition(data: xr.Dataset, ax: Axes) -> None:
    colours = ListedColormap(list(REGIME_COLOURS.values()))
    norm = BoundaryNorm(np.arange(len(REGIMES) + 1) - 0.5, len(REGIMES))
    ax.pcolormesh(data.mixture, data.strength, data.observed.T, cmap=colours, norm=norm, rasterized=True)
    for transverse, mu in (("transverse_4", "mu_4"), ("transverse_5", "mu_5")):
        ax.contour(
            data.mixture,
            data.strength,
            data[transverse].where(data[mu] > 0).T,
            [1.0],
            colors="black",
            linewidths=0.9,
            linestyles="--",
        )
    _mark_misses(data, ax)
    _threshold(data, ax)
    for regime, label in {
        "collapsed": "collapsed",
        "mode 1": "$k=4$",
        "mode 2": "$k=5$",
        "bistable": "bistable",
    }.items():
        i, j = np.nonzero(data.observed.values == REGIMES.index(regime))
        if len(i):
            ax.text(data.mixture.values[i].mean(), data.strength.values[j].mean(), label, ha="center", fontsize=6.5)
    ax.set(xlabel="kernel mixture $w$", ylabel="PE strength $s$")


# Claims


def claims(data: xr.DataTree) -> list[Claim]:
    """The paper's quantitative statements about Figure 3, measured on `data` (from `compute`)."""
    return [*_scaling_claims(data), *_amplitude_claims(data), _wavenumber_claim(data), _competition_claim(data)]


def _scaling_claims(data: xr.DataTree) -> Iterator[Claim]:
    """Slopes of log(value) against log μ over the first decade, the worst of the quantities of a series."""
    rows = {
        "standing": ("Amplitude of the standing wave", "standing", ("R",), 0.5),
        "travelling": ("Amplitude of the travelling wave", "travelling", ("R",), 0.5),
        "coexistence": ("Amplitudes of two coexisting waves", "coexistence", ("R1", "R2"), 0.5),
        "clusters": ("Half separation of the clusters", "clusters", ("u",), 0.5),
        "speed_shift": ("Speed shift of the travelling wave", "travelling", ("shift",), 1.0),
        "cluster_mean": ("Mean of the clusters", "clusters", ("m",), 1.0),
    }
    for name, (subject, series, quantities, expected) in rows.items():
        points = data[f"scaling/{series}"].to_dataset()
        points = points.sel(mu=points.mu <= 10.001 * points.mu.min())
        slopes = [np.polyfit(np.log(points.mu), np.log(points[quantity]), 1)[0] for quantity in quantities]
        slope = float(max(slopes, key=lambda value: abs(value - expected)))
        yield Claim(
            f"fig3.scaling.{name}",
            f"{subject} ~ μ^{expected:g}",
            expected,
            slope,
            abs(slope - expected) <= 0.02,
            f"exponent fitted over {float(points.mu.min()):.0e} ≤ μ ≤ {float(points.mu.max()):.0e}; met within ±0.02",
        )


def _amplitude_claims(data: xr.DataTree) -> Iterator[Claim]:
    b = data["amplitude"].to_dataset()
    settled = (b.critical_modulus > 1 + SETTLED_MU) & (b.status < STATUS.index("diverged"))
    error = (abs(b.amplitude_theory / b.critical_amplitude - 1)).where(settled)
    near = error.where(b.critical_modulus < NEAR_ONSET)
    by_growth = error.groupby_bins(b.critical_modulus, [1.0, 1.1, 1.2, 1.3, 1.4]).median()
    quarters = [f"{float(row):.3f} for {row.critical_modulus_bins.item()}" for row in by_growth if row.notnull()]
    left_out = int(((b.critical_modulus > 1) & ~settled).sum())
    points = f"points; {left_out} with μ < {SETTLED_MU:g}, not settled after {DEPTH} layers, left out"
    excluded = int((settled & (b.excluded != "")).sum())
    if excluded:
        points += f"; {excluded} that the theory excludes left out"
    yield Claim(
        "fig3.amplitude.near_onset.cubic",
        "Median relative error of the cubic amplitude where |Λ| < 1.05",
        0.03,
        float(near.median()),
        round(float(near.median()), 2) <= 0.03,
        f"{int(near.notnull().sum())} {points}",
    )
    yield Claim(
        "fig3.amplitude.unstable_region.cubic",
        "Median relative error of the cubic amplitude over the unstable region",
        0.14,
        float(error.median()),
        round(float(error.median()), 2) <= 0.14,
        f"{int(error.notnull().sum())} {points}. The paper does not give its ranges, on which this number depends: "
        f"the median by |Λ| is {', '.join(quarters)}",
    )


def _reasons(missed: NDArray[np.bool_], reasons: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.str_]:
    """'' where not `missed`, else the first of `reasons` that holds there, else 'unexplained'."""
    why = np.select(list(reasons.values()), list(reasons), "unexplained")
    return np.where(missed, why, "")


def _wavenumber_misses(c: xr.Dataset, blocks: Callable[[float, float], Block]) -> NDArray[np.str_]:
    """Why an unstable point shows another wavenumber than the linear one; '' where it does not."""
    growth = np.sort(c.growth.values, axis=-1)
    mu = growth[..., -1] - 1
    missed = (mu > 0) & (c.wavenumber != c.critical_wavenumber).values
    bistable = np.zeros_like(missed)
    for place in zip(*np.nonzero(missed), strict=True):
        point = c[dict(zip(c.status.dims, place, strict=True))]
        block = blocks(float(point.separation), float(point.strength))
        try:
            pair = competition(block, int(point.critical_wavenumber), int(point.wavenumber))
            bistable[place] = pair.regime == "bistable"
        except ExclusionError:
            continue
    reasons = {
        "μ < 1e-3": mu < SETTLED_MU,
        "4q ≡ 0": 4 * c.critical_wavenumber.values % N == 0,
        "bistable by cubic theory": bistable,
        "second mode within 10 % of μ": growth[..., -1] - growth[..., -2] < 0.1 * mu,
    }
    return _reasons(missed, reasons)


def _competition_misses(d: xr.Dataset) -> NDArray[np.str_]:
    """Why the regime seen is not the predicted one; '' where it is."""
    mu = np.maximum(d.mu_4.values, d.mu_5.values)
    margin = np.fmin(*(abs(d[f"transverse_{k}"].values - 1) for k in (4, 5)))
    reasons = {
        "|μ| < 1e-3": abs(mu) < SETTLED_MU,
        "transverse growth within 10 % of μ": margin < 0.1 * mu,
        "a mode with μ < 1e-2": np.minimum(d.mu_4.values, d.mu_5.values) < 1e-2,
    }
    return _reasons((d.observed != d.predicted).values, reasons)


def _wavenumber_claim(data: xr.DataTree) -> Claim:
    c = data["wavenumber"].to_dataset()
    unstable = c.critical_modulus > 1
    why = c.miss.values
    share = 1 - float((why != "").sum() / unstable.sum())
    return Claim(
        "fig3.wavenumber.linear",
        "Share of unstable points whose observed wavenumber is argmax |J(q)|",
        0.96,
        share,
        round(share, 2) >= 0.96,
        f"{int(unstable.sum())} points, misses: "
        + _counts(why[why != ""])
        + ". The paper does not give its range of Δ",
    )


def _competition_claim(data: xr.DataTree) -> Claim:
    d = data["competition"].to_dataset()
    agree = d.observed == d.predicted
    share = float(agree.mean())
    unstable = (d.mu_4 > 0) | (d.mu_5 > 0)
    why = d.miss.values[~agree.values]
    return Claim(
        "fig3.competition.cubic",
        "Share of points where the predicted competition regime is the simulated one",
        0.97,
        share,
        round(share, 2) >= 0.97,
        f"{agree.size} points ({float(agree.where(unstable).mean()):.3f} of the unstable ones), misses: "
        + _counts(why),
    )


def _counts(reasons: Iterable[str]) -> str:
    counted = Counter(map(str, reasons)).most_common()
    return ", ".join(f"{count} {reason}" for reason, count in counted) or "none"
