"""The homogeneous states on which the theory of a phase diagram stands, and the leading modes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dispersion import ArgumentError, Block, dispersion_relation
from simulate import STATUS, turn
from simulate.many_features import wave_of

Grid = Mapping[str, NDArray[np.float64]]
Make = Callable[..., Block]
Rests = Mapping[tuple[int, ...], NDArray[np.float64] | None]
"""The state a (d,) at places of a grid, None where there is none."""

SAMPLES = 9
"""Points of a grid at which a block is tried before the grid is refused."""


def points(grid: Grid) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
    """(place, values of the parameters) of every point of the `grid`, in C order."""
    yield from zip(np.ndindex(shape_of(grid)), product(*(map(float, values) for values in grid.values())), strict=True)


def shape_of(grid: Grid) -> tuple[int, ...]:
    """Length of each axis."""
    return tuple(len(values) for values in grid.values())


def sample(make: Make, grid: Grid) -> Block:
    """A block of the `grid`: the first that can be made on the way from its first corner to its last one."""
    diagonal = (values[np.linspace(0, len(values) - 1, SAMPLES).astype(int)] for values in grid.values())
    refused: ArgumentError | None = None
    for point in zip(*diagonal, strict=True):
        try:
            return make(*map(float, point))
        except ArgumentError as error:
            refused = refused or error
    assert refused
    raise refused


def with_critical_modes(run: xr.Dataset, make: Make, grid: Grid, moved: Rests) -> xr.Dataset:
    """A sweep `run` whose critical_… are those of the leading mode at the resting states that have `moved` from 0.

    They are undefined (NaN, k = −1) where there is none. The phase advance is that of one more layer.
    """
    if not moved:
        return run
    names = [name for name in map(str, run.data_vars) if name.startswith("critical_")]
    values = {name: run[name].values.copy() for name in names}
    every = dict(points(grid))
    for place, rest in moved.items():
        alive = run.status.values[place] < STATUS.index("diverged")
        measured = _critical(make, every[place], rest, run.state.values[place], alive)
        for name in names:
            values[name][place] = measured.get(name, -1 if values[name].dtype.kind == "i" else np.nan)
    attributes = {name: dict(run[name].attrs) for name in names}
    for attrs in attributes.values():
        attrs["long_name"] = attrs["long_name"].replace("at x = 0", "at the homogeneous state that g reaches from 0")
    return run.assign({name: (run[name].dims, values[name], attributes[name]) for name in names})


def _critical(
    make: Make,
    point: tuple[float, ...],
    a: NDArray[np.float64] | None,
    state: NDArray[np.float64],
    alive: NDArray[np.bool_],
) -> dict[str, Any]:
    """The critical_… of one point at 1⊗`a`, from its last `state` (…, N) or (…, N, d) where `alive` (…)."""
    if a is None:
        return {}
    try:
        block = make(*point)
        mode = dispersion_relation(block, state=a).leading()
    except ArgumentError:
        return {}
    x = state.reshape(*alive.shape, block.n, block.d)
    with np.errstate(all="ignore"):
        before, after = wave_of(x - a, block.forward(x) - a, mode, block.shape)
        return {
            "critical_wavenumber": mode.k,
            "critical_growth": mode.growth,
            "critical_phase": mode.phase,
            "critical_amplitude": np.where(alive, np.abs(before), np.nan),
            "critical_phase_advance": np.where(alive, turn(before, after), np.nan),
        }
