"""Simulated maps over one or two parameters, with linear and cubic theory on the same grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from amplitude import REGIMES, clusters, competition, standing_wave, travelling_wave
from amplitude.exact.resting import resting_state
from dispersion import ArgumentError, Block, ExclusionError, dispersion_relation
from figures.phase_diagram.homogeneous import Grid, Make, points, sample, shape_of, with_critical_modes
from simulate import OBSERVABLES, Observable, sweep

COUNTED = 0.1
"""A mode counts as present if it has this part of the largest amplitude, and that exceeds FAINT."""
FAINT = 1e-3

MEANING = {
    "amplitude_theory": ("amplitude R of the cubic closed form", "1"),
    "phase_advance_theory": ("phase advance a layer of the cubic closed form", "rad"),
    "growth": ("growth |Lambda| of the leading mode of each wavenumber", "1"),
    "separation": ("half the distance of the two clusters", "1"),
    "separation_theory": ("half the distance of two clusters, cubic closed form", "1"),
    "predicted": ("regime of the two modes by cubic theory", "1"),
    "observed": ("regime of the two modes in runs that start in each", "1"),
    "mu": ("|Lambda| - 1 of each mode", "1"),
    "transverse": ("multiplier of each mode's pure state towards the other mode, cubic theory", "1"),
    "excluded": ("why theory refuses the point, else empty", "1"),
    "mode": ("wavenumber of the mode", "1"),
    "seed": ("wavenumber of the mode that the run starts in", "1"),
}
"""(long name, units) of what a map holds besides the variables of a sweep."""


def _attributes(name: str) -> dict[str, str]:
    return dict(zip(("long_name", "units"), MEANING[name], strict=True))


def leading_wavenumber(block: Block, state: NDArray[np.float64] | None = None) -> int:
    """argmax |J(q)| on the grid of a ring.

    Parameters
    ----------
    block : Block
        On a ring.
    state : (d,) ndarray, optional
        a of the base state 1⊗a, 0 by default.
    """
    k = dispersion_relation(block, state).leading_wavenumber
    if not isinstance(k, int):
        raise ExclusionError("block", f"tokens {block.shape}", "a ring")
    return k


def _named(make: Make, grid: Grid) -> Make:
    """`make` of named values of the parameters of `grid`, whatever others come with them."""
    return lambda **point: make(*(float(point[name]) for name in grid))


def with_theory(
    run: xr.Dataset,
    make: Make,
    grid: Grid,
    tails: Mapping[str, Mapping[str, int]],
    predict: Callable[[Block, NDArray[np.float64]], Mapping[str, ArrayLike]],
) -> xr.Dataset:
    """A sweep with what theory says at every point of its grid. The critical_… become those at the resting state.

    Parameters
    ----------
    run : xarray.Dataset
        The sweep.
    make : callable
        A Block from the parameters in the order of `grid`.
    grid : mapping
        Name → values of the parameters.
    tails : mapping
        Of each variable that theory adds, name → length of the dimensions that it has beyond those of the grid.
    predict : callable
        Gives them, {name: value}, of block and resting state (d,) at a point.

    Returns
    -------
    xarray.Dataset
        NaN, and the reason in `excluded`, where theory refuses.
    """
    shape = shape_of(grid)
    excluded = np.full(shape, "", dtype=object)
    columns = {name: np.full((*shape, *tail.values()), np.nan) for name, tail in tails.items()}
    moved: dict[tuple[int, ...], NDArray[np.float64] | None] = {}
    for place, point in points(grid):
        rest = None
        try:
            block = make(*point)
            rest = resting_state(block)
            for name, value in predict(block, rest).items():
                columns[name][place] = value
        except ArgumentError as error:
            excluded[place] = str(error)
        if rest is None or rest.any():
            moved[place] = rest
    dims = tuple(grid)
    variables = {name: ((*dims, *tails[name]), values, _attributes(name)) for name, values in columns.items()}
    coords = {name: (name, values, {"long_name": name, "units": "1"}) for name, values in grid.items()}
    reasons = (dims, excluded.astype(str), _attributes("excluded"))
    theory = xr.Dataset(variables | {"excluded": reasons}, coords=coords)
    run = with_critical_modes(run, make, grid, moved).assign_coords(coords)
    return run.merge(theory)


def wave_map(make: Make, grid: Grid, **settings: Any) -> xr.Dataset:
    """Amplitude and phase advance of the leading mode, simulated and from the cubic closed form.

    Parameters
    ----------
    make : callable
        A Block from the parameters in the order of `grid`.
    grid : mapping
        Name → values of the parameters.
    **settings : object
        Of `simulate.sweep`.

    Returns
    -------
    xarray.Dataset
        Simulated: critical_amplitude, critical_phase_advance, and of scalar rings critical_angle = arg B; closed form:
        amplitude_theory, phase_advance_theory.
    """

    def predict(block: Block, state: NDArray[np.float64]) -> dict[str, ArrayLike]:
        symmetric = all(head.kernel.symmetric for head in block.heads)
        closed = standing_wave if symmetric else travelling_wave
        wave = closed(block, leading_wavenumber(block, state), state=state)
        return {"amplitude_theory": wave.amplitude, "phase_advance_theory": wave.phase_advance}

    run = sweep(_named(make, grid), grid, **settings)
    run = with_theory(run, make, grid, {"amplitude_theory": {}, "phase_advance_theory": {}}, predict)
    if "feature" not in run.dims and "axis" not in run.dims:
        modes = np.fft.fft(run.state.values, axis=-1)
        k = np.maximum(run.critical_wavenumber.values, 0)[..., None]
        angle = np.angle(np.take_along_axis(modes, k, axis=-1)[..., 0])
        run["critical_angle"] = (tuple(grid), angle, {"long_name": "arg B at the critical wavenumber", "units": "rad"})
    return run


def observable_map(observable: Observable, make: Make, grid: Grid, **settings: Any) -> xr.Dataset:
    """The simulated values of an Observable. There is no theory.

    Parameters
    ----------
    observable : Observable
        Of one number.
    make : callable
        A Block from the parameters in the order of `grid`.
    grid : mapping
        Name → values of the parameters.
    **settings : object
        Of `simulate.sweep`.

    Returns
    -------
    xarray.Dataset
        Its variable has the attribute label: what a plot calls it.
    """
    names = [name for name, known in OBSERVABLES.items() if known.by_default]
    run = sweep(_named(make, grid), grid, measure=[*names, observable], **settings)
    run[observable.name].attrs["label"] = observable.label or observable.long_name or observable.name
    return with_theory(run, make, grid, {}, lambda block, state: {}).drop_vars("state")


def wavenumber_map(make: Make, grid: Grid, **settings: Any) -> xr.Dataset:
    """Simulated dominant wavenumber on a ring, and |Λ| of every wavenumber.

    Parameters
    ----------
    make : callable
        A Block from the parameters in the order of `grid`.
    grid : mapping
        Name → values of the parameters.
    **settings : object
        Of `simulate.sweep`.

    Returns
    -------
    xarray.Dataset
        With |Λ| in `growth` (…, k).
    """
    data = sweep(_named(make, grid), grid, **settings)
    size = data.sizes["k"]

    def predict(block: Block, state: NDArray[np.float64]) -> dict[str, ArrayLike]:
        return {"growth": dispersion_relation(block, state).growth[:size]}

    return with_theory(data, make, grid, {"growth": {"k": size}}, predict).drop_vars("state")


def cluster_map(make: Make, grid: Grid, **settings: Any) -> xr.Dataset:
    """Half the separation of two clusters, simulated and from the cubic closed form.

    Parameters
    ----------
    make : callable
        A Block from the parameters in the order of `grid`.
    grid : mapping
        Name → values of the parameters.
    **settings : object
        Of `simulate.sweep`.

    Returns
    -------
    xarray.Dataset
        Simulated: `separation`, of several features the Euclidean distance; closed form: `separation_theory`.
    """

    def predict(block: Block, state: NDArray[np.float64]) -> dict[str, ArrayLike]:
        if state.any():
            raise ExclusionError("block", "g(0) ≠ 0", "g(0) = 0 for the closed form of clusters")
        return {"separation_theory": clusters(block).amplitude}

    run = sweep(_named(make, grid), grid, **settings)
    separation = (run.cluster_high - run.cluster_low) / 2
    run["separation"] = np.sqrt((separation**2).sum("feature", skipna=False)) if "feature" in run.dims else separation
    run.separation.attrs = _attributes("separation")
    return with_theory(run, make, grid, {"separation_theory": {}}, predict).drop_vars("state")


def competition_map(make: Make, grid: Grid, modes: tuple[int, int], seed: int = 0, **settings: Any) -> xr.Dataset:
    """Regime of two modes of a scalar ring, from runs that start in each and by cubic theory.

    Parameters
    ----------
    make : callable
        A Block from the parameters in the order of `grid`.
    grid : mapping
        Name → values of the parameters.
    modes : pair of int
        The two wavenumbers.
    seed : int
        Of the noise of the starts 0.05 cos(q_k j) + noise of size 1e-3.
    **settings : object
        Of `simulate.sweep`.

    Returns
    -------
    xarray.Dataset
        `observed` in the runs and `predicted` by theory, as indices in REGIMES; also mu and transverse multipliers
        (…, mode), and the spectra (…, seed, k).
    """
    first = sample(make, grid)
    waves = 0.05 * np.cos(2 * np.pi * np.outer(modes, np.arange(first.n)) / first.n)
    start = waves + 1e-3 * np.random.default_rng(seed).standard_normal((*shape_of(grid), 2, first.n))

    def predict(block: Block, state: NDArray[np.float64]) -> dict[str, ArrayLike]:
        pair = competition(block, modes[0], modes[1], state=state)
        transverse = [pair.transverse(1), pair.transverse(2)]
        return {"predicted": REGIMES.index(pair.regime), "mu": pair.mu, "transverse": transverse}

    run = sweep(_named(make, grid), {**grid, "seed": np.array(modes)}, start=start, **settings)
    tails = {"predicted": {}, "mu": {"mode": 2}, "transverse": {"mode": 2}}
    data = with_theory(run, make, grid, tails, predict).drop_vars(["state", "start"])
    data = data.assign(critical_growth=data.critical_growth.isel(seed=0)).assign_coords(mode=list(modes))
    observed = observed_regime(data.spectrum.sel(k=list(modes)).values)
    data["observed"] = (tuple(grid), observed, _attributes("observed"))
    for name in ("mode", "seed"):
        data[name].attrs = _attributes(name)
    data.predicted.attrs["flag_meanings"] = data.observed.attrs["flag_meanings"] = ", ".join(REGIMES)
    return data


def observed_regime(R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Regime of two modes, from what is left by runs that start in each.

    Parameters
    ----------
    R : (…, seed, mode) ndarray
        The two amplitudes reached from a seed in each of the two modes.

    Returns
    -------
    (…) ndarray
        Index in REGIMES; NaN where one of the runs has none.
    """
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
    observed[np.isnan(R).any(axis=(-1, -2))] = np.nan
    return observed
