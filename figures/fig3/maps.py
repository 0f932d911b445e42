"""Panels b, c, d, e: simulated maps over two parameters, with the cubic and the linear theory on the same grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from amplitude import competition
from dispersion import Block, ExclusionError, Kernel
from figures.fig3.blocks import DEPTH, SEED, SETTLED_MU, START, N, four_and_five, tanh_block, two_lobes
from figures.phase_diagram.homogeneous import Grid
from figures.phase_diagram.maps import competition_map, wave_map, wavenumber_map

SETTINGS: dict[str, Any] = {"depth": DEPTH, "rng": SEED}


def amplitude(lobes: Callable[[float], Kernel], grid: Grid, progress: bool) -> xr.Dataset:
    """b, e: the standing or travelling wave of the `lobes` of a strength, over gain and strength."""

    def make(gain: float, strength: float) -> Block:
        return tanh_block(lobes(strength), -gain)

    return wave_map(make, grid, progress=progress, **SETTINGS)


def wavenumber(grid: Grid, progress: bool) -> xr.Dataset:
    """c: the selected wavenumber over separation and strength."""

    def make(separation: float, strength: float) -> Block:
        return tanh_block(two_lobes(strength, separation), -0.6)

    data = wavenumber_map(make, grid, start=START, progress=progress, **SETTINGS)
    return data.assign(miss=(tuple(grid), _wavenumber_misses(data, make)))


def competing(grid: Grid, progress: bool) -> xr.Dataset:
    """d: competition of the modes 4 and 5 over mixture and strength."""

    def make(mixture: float, strength: float) -> Block:
        return tanh_block(four_and_five(mixture, strength), -0.6)

    data = competition_map(make, grid, (4, 5), seed=SEED, progress=progress, **SETTINGS)
    return data.assign(miss=(tuple(grid), _competition_misses(data)))


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
    mu = d.mu.max("mode").values
    margin = abs(d.transverse - 1).min("mode").values
    reasons = {
        "|μ| < 1e-3": abs(mu) < SETTLED_MU,
        "transverse growth within 10 % of μ": margin < 0.1 * mu,
        "a mode with μ < 1e-2": d.mu.min("mode").values < 1e-2,
    }
    return _reasons((d.observed != d.predicted).values, reasons)
