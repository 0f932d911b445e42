"""Many blocks iterated over a grid of parameters, each point with its own outcome."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block
from dispersion.errors import frozen_array, real_number, whole_number
from simulate._engine import pack
from simulate.linear import critical_modes
from simulate.results import RESERVED, Table
from simulate.settle import NOT_RUN, evolve, stop_tolerance
from simulate.store import check_writable, save

if TYPE_CHECKING:
    from xarray import Dataset

GROUP = 2048
"""Points iterated together; Ctrl-C keeps the groups already finished."""

MEMORY_SHARE = 0.8
"""Part of the available memory that a sweep may take."""

StartFunction = Callable[[Block, Generator], ArrayLike]
Start = float | NDArray[np.float64] | StartFunction


class SweepInterrupted(UserWarning):
    """A sweep was ended by Ctrl-C and its dataset holds only the points finished by then."""


def sweep(
    make_block: Callable[..., Block],
    parameters: Mapping[str, ArrayLike],
    depth: int = 5000,
    start: ArrayLike | StartFunction = 1e-3,
    rng: int = 0,
    tolerance: float | None = 1e-12,
    path: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Dataset:
    """Iterate `make_block(**point)` at every point of a grid of parameters, on all cores.

    make_block : returns a d = 1 Block; all must have one N and one activation. A ValueError it
        raises marks that point as failed, with the reason.
    parameters : name → values, one axis of numbers or strings; one dimension each, in this order.
    depth : layers. tolerance : of the early stop (see simulate.settle); None or 0 turns it off.
    start : a number, the standard deviation of a normal draw at each point; states (N,) for all
        points or (*sweep shape, N); or a function of (block, generator) that returns (N,).
    rng : the seed, a whole number. Point number p (C order) draws from
        numpy.random.default_rng(SeedSequence(rng, spawn_key=(p,))), whatever the other points.
    path : a netCDF file for the result. progress : a bar on stderr; None shows it on a terminal only.

    Returns a dataset with the variables of simulate.results.COLUMNS. Ctrl-C ends the sweep early:
    points not reached have the status 'not run' and the attribute `interrupted` is 1. An
    ArgumentError names what cannot be used; a sweep that would need more than 80 % of the available
    memory, or of which no point could be built, is refused.
    """
    axes = _axes(make_block, parameters)
    shape = tuple(map(len, axes.values()))
    points = int(np.prod(shape))
    depth, seed = whole_number("depth", depth, 1), whole_number("rng", rng, 0)
    tolerance = stop_tolerance(tolerance)
    if path is not None:
        check_writable(path)
    table: Table | None = None
    failed: dict[int, str] = {}
    interrupted = False
    with _bar(points * depth, progress) as bar:
        try:
            for first in range(0, points, GROUP):
                blocks, reasons = _build(make_block, axes, range(first, min(first + GROUP, points)))
                failed |= reasons
                bar.update(depth * len(reasons))
                if not blocks:
                    continue
                if table is None:
                    n = next(iter(blocks.values())).n
                    _check_memory(points, n)
                    start = _checked_start(start, shape, n)
                    table = Table(points, n)
                failed |= _run(table, blocks, start, seed, depth, tolerance, bar.update)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            if table is None:
                raise
            interrupted = True
    if table is None:
        raise ArgumentError("make_block", f"no usable point ({failed[0]})", "a function that works at some point")
    table.fail(failed)
    settings = {
        "depth": depth,
        "tolerance": tolerance,
        "seed": seed,
        "start": f"array {start.shape}" if isinstance(start, np.ndarray) else _name(start),
        "make_block": _name(make_block),
        "interrupted": int(interrupted),
    }
    dataset = table.dataset(axes, settings, start if isinstance(start, np.ndarray) else None)
    if path is not None:
        save(dataset, path)
    if interrupted:
        left = int((table.status == NOT_RUN).sum())
        warnings.warn(f"sweep interrupted: {left} of {points} points not run", SweepInterrupted, stacklevel=2)
    return dataset


def _run(
    table: Table,
    blocks: dict[int, Block],
    start: Start,
    seed: int,
    depth: int,
    tolerance: float,
    progress: Callable[[int], object],
) -> dict[int, str]:
    """Iterate the blocks of one group, keyed by point, and enter their outcomes; failures by point."""
    starts: dict[int, NDArray[np.float64]] = {}
    reasons: dict[int, str] = {}
    for point, block in blocks.items():
        if block.n != table.n:
            raise ArgumentError(f"block of point {point}", f"N = {block.n}", f"N = {table.n} at every point")
        try:
            starts[point] = _start_state(start, block, point, seed)
        except ValueError as error:
            reasons[point] = str(error)
    if starts:
        packed = pack([blocks[point] for point in starts], [f"block of point {point}" for point in starts])
        outcome = evolve(packed, np.array(list(starts.values())), depth, tolerance, progress)
        table.enter(np.array(list(starts)), outcome, critical_modes(packed))
    progress(depth * len(reasons))
    return reasons


def _axes(make_block: Callable[..., Block], parameters: Mapping[str, ArrayLike]) -> dict[str, NDArray]:
    """The swept values by name, checked."""
    if not isinstance(parameters, Mapping) or not parameters:
        raise ArgumentError("parameters", repr(parameters), "{name: values, …} with one name or more")
    axes = {}
    for name, values in parameters.items():
        if not isinstance(name, str) or name in RESERVED:
            taken = ", ".join(sorted(RESERVED))
            raise ArgumentError("parameters", f"the name {name!r}", f"a name that is none of the results': {taken}")
        array = np.asarray(values)
        if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "biufU":
            got = f"shape {array.shape} of {array.dtype}"
            raise ArgumentError(f"parameters[{name!r}]", got, "one axis of numbers or strings, not empty")
        axes[name] = array.astype(np.int8) if array.dtype.kind == "b" else array
    try:
        inspect.signature(make_block).bind(**axes)
    except TypeError as error:
        raise ArgumentError("parameters", f"{', '.join(axes)} ({error})", "the keywords of make_block") from None
    except ValueError:  # a builtin without a signature
        pass
    return axes


def _build(
    make_block: Callable[..., Block], axes: dict[str, NDArray], members: Sequence[int]
) -> tuple[dict[int, Block], dict[int, str]]:
    """Blocks by point number, and the reasons of the points without one."""
    shape = tuple(map(len, axes.values()))
    blocks: dict[int, Block] = {}
    reasons: dict[int, str] = {}
    for point in members:
        place = np.unravel_index(point, shape)
        values = {name: axis[i].item() for (name, axis), i in zip(axes.items(), place, strict=True)}
        try:
            block = make_block(**values)
        except ValueError as error:
            reasons[point] = str(error)
            continue
        if not isinstance(block, Block):
            raise ArgumentError("make_block", type(block).__name__, "a function that returns a Block")
        blocks[point] = block
    return blocks, reasons


def _checked_start(start: ArrayLike | StartFunction, shape: tuple[int, ...], n: int) -> Start:
    """`start` as a number, a finite array of an accepted shape, or a function."""
    if callable(start):
        return start
    if np.ndim(start) == 0:
        return real_number("start", start)
    return frozen_array("start", start, (n,) if np.ndim(start) == 1 else (*shape, n))


def _start_state(start: Start, block: Block, point: int, seed: int) -> NDArray[np.float64]:
    """(N,) the start state of one point."""
    if isinstance(start, np.ndarray):
        return start if start.ndim == 1 else start.reshape(-1, block.n)[point]
    generator = np.random.default_rng(SeedSequence(seed, spawn_key=(point,)))
    if callable(start):
        return frozen_array("start", start(block, generator), (block.n,))
    return start * generator.standard_normal(block.n)


def _check_memory(points: int, n: int) -> None:
    """Refuse a sweep whose results and working arrays exceed MEMORY_SHARE of the available memory."""
    working = 8 * min(points, GROUP) * 40 * n
    needed, available = Table.bytes_needed(points, n) + working, _available_memory()
    if needed > MEMORY_SHARE * available:
        got = f"{points} points of {n} tokens, about {needed / 1e9:.1f} GB"
        accepted = f"up to {MEMORY_SHARE:.0%} of the {available / 1e9:.1f} GB available; sweep fewer points at a time"
        raise ArgumentError("parameters", got, accepted)


def _available_memory() -> float:
    """Bytes a process can take now; infinite where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _bar(total: int, progress: bool | None) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, unit="layer", unit_scale=True, disable=None if progress is None else not progress)


def _name(value: object) -> Any:
    """A number itself; the name of a function."""
    return value if isinstance(value, float) else getattr(value, "__qualname__", type(value).__name__)
