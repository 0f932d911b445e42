"""Simulated maps over one or two parameters, with linear and cubic theory on the same grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from amplitude import REGIMES, clusters, competition, standing_wave, travelling_wave
from dispersion import Block, ExclusionError, dispersion_relation
from simulate import sweep

Grid = Mapping[str, NDArray[np.float64]]
Make = Callable[..., Block]

COUNTED = 0.1
"""A mode counts as present if it has this part of the largest amplitude, and that exceeds FAINT."""
FAINT = 1e-3


def leading_wavenumber(block: Block) -> int:
    """argmax |J(q)| on the grid of a ring."""
    k = dispersion_relation(block).leading().k
    assert isinstance(k, int)
    return k


def _named(make: Make, grid: Grid) -> Make:
    """`make` of named values of the parameters of `grid`, whatever others come with them."""
    return lambda **point: make(*(float(point[name]) for name in grid))


def predicted(grid: Grid, predict: Callable[..., dict[str, float]]) -> xr.Dataset:
    """`predict` at every point of the `grid`; NaN, and the reason in `excluded`, where theory refuses."""
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


def wave_map(make: Make, grid: Grid, **settings: Any) -> xr.Dataset:
    """Amplitude and phase advance of the leading mode: simulated (critical_amplitude, critical_phase_advance,
    critical_angle = arg B) and from the cubic closed form (amplitude_theory, phase_advance_theory).

    make : a Block from the parameters in the order of `grid`; settings : of `simulate.sweep`.
    """

    def predict(*point: float) -> dict[str, float]:
        block = make(*point)
        symmetric = all(head.kernel.symmetric for head in block.heads)
        wave = (standing_wave if symmetric else travelling_wave)(block, leading_wavenumber(block))
        return {"amplitude_theory": wave.amplitude, "phase_advance_theory": wave.phase_advance}

    run = sweep(_named(make, grid), grid, **settings)
    modes = np.fft.fft(run.state.values, axis=-1)
    k = np.maximum(run.critical_wavenumber.values, 0)[..., None]
    angle = np.angle(np.take_along_axis(modes, k, axis=-1)[..., 0])
    run["critical_angle"] = (tuple(grid), angle, {"long_name": "arg B at the critical wavenumber", "units": "rad"})
    return run.merge(predicted(grid, predict))


def wavenumber_map(make: Make, grid: Grid, **settings: Any) -> xr.Dataset:
    """Simulated dominant wavenumber, and |Λ| of every wavenumber in `growth` (…, k).

    make : a Block from the parameters in the order of `grid`; settings : of `simulate.sweep`.
    """
    data = sweep(_named(make, grid), grid, **settings).drop_vars("state")
    growth = [dispersion_relation(make(*point)).growth for point in product(*grid.values())]
    half = np.reshape(growth, (*data.status.shape, -1))[..., : data.sizes["k"]]
    return data.assign(growth=((*grid, "k"), half))


def cluster_map(make: Make, grid: Grid, **settings: Any) -> xr.Dataset:
    """Half the separation of two clusters: simulated (`separation`) and from the cubic closed form.

    make : a Block from the parameters in the order of `grid`; settings : of `simulate.sweep`.
    """
    run = sweep(_named(make, grid), grid, **settings).drop_vars("state")
    run["separation"] = (run.cluster_high - run.cluster_low) / 2
    return run.merge(predicted(grid, lambda *point: {"separation_theory": clusters(make(*point)).amplitude}))


def competition_map(make: Make, modes: tuple[int, int], grid: Grid, seed: int = 0, **settings: Any) -> xr.Dataset:
    """Regime of two modes: `observed` from runs that start in each of them, `predicted` by cubic theory.

    make : a Block from the parameters in the order of `grid`; modes : the two wavenumbers; seed : of the noise of the
    starts 0.05 cos(q_k j) + noise of size 1e-3; settings : of `simulate.sweep`.
    The dataset also has mu and transverse multipliers (…, mode), and the spectra (…, seed, k).
    """
    first = make(*(float(values[0]) for values in grid.values()))
    waves = 0.05 * np.cos(2 * np.pi * np.outer(modes, np.arange(first.n)) / first.n)
    shape = (*(len(values) for values in grid.values()), 2)
    start = waves + 1e-3 * np.random.default_rng(seed).standard_normal((*shape, first.n))

    run = sweep(_named(make, grid), {**grid, "seed": np.array(modes)}, start=start, **settings)
    run = run.drop_vars(["state", "start"]).assign(critical_modulus=run.critical_modulus.isel(seed=0))

    def predict(*point: float) -> dict[str, float]:
        pair = competition(make(*point), modes[0], modes[1])
        numbers = {f"mu{i}": pair.mu[i] for i in (0, 1)} | {f"transverse{i}": pair.transverse(i + 1) for i in (0, 1)}
        return {"predicted": REGIMES.index(pair.regime), **numbers}

    theory = predicted(grid, predict)
    for name in ("mu", "transverse"):
        theory[name] = xr.concat([theory[f"{name}{i}"] for i in (0, 1)], "mode").transpose(*grid, "mode")
    data = run.merge(theory.drop_vars(["mu0", "mu1", "transverse0", "transverse1"])).assign_coords(mode=list(modes))
    data["observed"] = (tuple(grid), observed_regime(run.spectrum.sel(k=list(modes)).values))
    data.predicted.attrs["flag_meanings"] = data.observed.attrs["flag_meanings"] = ", ".join(REGIMES)
    return data


def observed_regime(R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Index in REGIMES from `R` (…, seed, mode), the two amplitudes reached from a seed in each of the two modes."""
    largest = R.max(axis=-1, keepdims=True)
    present = (COUNTED * largest <= R) & (largest > FAINT)
    both, none = present.all(axis=(-1, -2)), ~present.any(axis=(-1, -2))
    only_1, only_2 = (present == [True, False]).all(axis=-1), (present == [False, True]).all(axis=-1)
    verdicts = {
        "collapsed": none,
        "mode 1": only_1.all(axis=-1),
        "mode 2": only_2.all(axis=-1),
        "bistable": only_1[..., 0] & only_2[..., 1],
        "coexistence": both,
    }
    observed = np.full(none.shape, REGIMES.index("undecided"), dtype=float)
    for name, where in verdicts.items():
        observed[where] = REGIMES.index(name)
    return observed
