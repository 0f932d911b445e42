"""Panels b, c, d, e: simulated maps over two parameters, with the cubic and the linear theory on the same grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from amplitude import REGIMES, competition, standing_wave, travelling_wave
from dispersion import Block, ExclusionError, dispersion_relation
from figures.fig3.blocks import (
    DEPTH,
    SEED,
    SETTLED_MU,
    N,
    four_and_five,
    leading_wavenumber,
    one_lobe,
    tanh_block,
    two_lobes,
)
from simulate import sweep

Grid = Mapping[str, NDArray[np.float64]]


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


def amplitude(grid: Grid, progress: bool) -> xr.Dataset:
    make = lambda gain, strength: tanh_block(two_lobes(strength), -gain)  # noqa: E731
    return _wave_map(make, standing_wave, grid, progress)


def travelling(grid: Grid, progress: bool) -> xr.Dataset:
    make = lambda gain, strength: tanh_block(one_lobe(strength), -gain)  # noqa: E731
    return _wave_map(make, travelling_wave, grid, progress)


def _wave_map(make: Callable[..., Block], wave: Callable, grid: Grid, progress: bool) -> xr.Dataset:
    """Simulated and predicted amplitude and phase advance of the leading mode."""

    def predict(*point: float) -> dict[str, float]:
        block = make(*point)
        saturated = wave(block, leading_wavenumber(block))
        return {"amplitude_theory": saturated.amplitude, "phase_advance_theory": saturated.phase_advance}

    run = sweep(make, grid, depth=DEPTH, rng=SEED, progress=progress)
    modes = np.fft.fft(run.state.values, axis=-1)
    critical = np.take_along_axis(modes, run.critical_wavenumber.values[..., None], axis=-1)[..., 0]
    run["critical_angle"] = (tuple(grid), np.angle(critical), {"long_name": "arg B at the critical wavenumber"})
    return run.drop_vars("state").merge(_predict(grid, predict))


def wavenumber(grid: Grid, progress: bool) -> xr.Dataset:
    """Simulated and linear wavenumber; `growth` holds |Λ| of every mode."""
    make = lambda separation, strength: tanh_block(two_lobes(strength, separation), -0.6)  # noqa: E731
    data = sweep(make, grid, depth=DEPTH, rng=SEED, progress=progress).drop_vars("state")
    growth = [dispersion_relation(make(*point)).growth[: N // 2 + 1] for point in product(*grid.values())]
    data["growth"] = ((*grid, "k"), np.reshape(growth, (*data.status.shape, -1)))
    return data.assign(miss=(tuple(grid), _wavenumber_misses(data, make)))


def competing(grid: Grid, progress: bool) -> xr.Dataset:
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
