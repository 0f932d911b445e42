"""Many blocks iterated over a grid of parameters, each point with its own outcome."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import frozen_array, real_array, real_number, shown, whole_number
from dispersion.memory import require
from dispersion.quiet import harmless_underflow
from simulate.engines.choice import engine_of
from simulate.engines.engine import Model
from simulate.measures import Measure, Measures
from simulate.plan import Plan, Start, StartFunction, build, reason_of
from simulate.results import RESERVED, Layout, check_name
from simulate.runs.identity import digest
from simulate.runs.netcdf import checked_path, load
from simulate.runs.spread import jobs_of, piece_size
from simulate.runs.store import Memory
from simulate.runs.versions import version
from simulate.runs.work import Work
from simulate.settle import stop_tolerance

if TYPE_CHECKING:
    from xarray import Dataset

    from simulate.runs.progress import Shown

GROUP = 2048
"""Points iterated together at most; Ctrl-C keeps the groups already finished."""

OPERATIONS = 5e11
"""Multiplications in a group of points that are iterated one by one: some ten seconds."""


class SweepInterrupted(UserWarning):
    """A sweep was ended by Ctrl-C and its dataset holds only the points finished by then."""


@harmless_underflow
def sweep(
    make_block: Callable[..., Model],
    parameters: Mapping[str, ArrayLike],
    depth: int = 5000,
    start: ArrayLike | StartFunction = 1e-3,
    rng: int = 0,
    tolerance: float | None = 1e-12,
    path: str | os.PathLike[str] | None = None,
    progress: Shown = None,
    measure: Measure = None,
    resume: bool = False,
    lazy: bool = False,
    n_jobs: int | None = None,
    backend: str | None = None,
    group: int | None = None,
    identity: str | Mapping[str, str] = "",
) -> Dataset:
    """Iterate `make_block(**point)` at every point of a grid of parameters, on all cores.

    Ctrl-C ends the sweep early: points not reached have the status 'not run' and the attribute `interrupted` is 1.
    After kill -9 no finished group is lost.

    Parameters
    ----------
    make_block : callable
        Returns a Block or Chain; all must have the same tokens and features, and those of one feature one activation.
        An exception it raises marks that point as failed, with the reason.
    parameters : mapping
        Name → values, one axis of numbers or strings; one dimension each, in this order.
    depth : int
        Layers.
    start : float, array_like or callable
        A number, the standard deviation of a normal draw at each point; states (N, d) for all points or
        (*sweep shape, N, d), without the last axis for d = 1; or a function of (block, generator) that returns (N, d).
    rng : int
        The seed, a whole number. Point number p (C order) draws from
        numpy.random.default_rng(SeedSequence(rng, spawn_key=(p,))), whatever the other points.
    tolerance : float, optional
        Of the early stop (see simulate.settle); None or 0 turns it off.
    path : path-like, optional
        A netCDF file for the result; finished groups of points gather in the folder `path`.parts until then.
    progress : bool or 'lines', optional
        A bar on stderr; None shows it on a terminal only; 'lines' for a plain line every half minute.
    measure : str, Observable, callable or a list of these, optional
        Names of OBSERVABLES, an Observable, a function from the Trajectory of a point, its last state alone recorded,
        to {name: number or array}, or a list of these. By default all names but the slow ones. An exception, or what is
        no real number, marks the point as failed.
    resume : bool
        Go on with an unfinished sweep at `path`, or return a finished one, if it was the same call: the blocks and what
        a function `start` returns are made again and compared, functions that measure by their code and at a few
        points.
    lazy : bool
        Open the file instead of reading it, for results larger than the memory; `path` is needed.
    n_jobs : int, optional
        As of joblib.Parallel. By default, and outside of joblib.parallel_config, this process.
    backend : str, optional
        As of joblib.Parallel, like `n_jobs`.
    group : int, optional
        Points iterated, and sent to a worker, together. It changes no result.
    identity : str or mapping
        Text that the sweep was made from, or {what it is called: text}; with another text it is another sweep.

    Returns
    -------
    xarray.Dataset
        With `measure`d variables, status, layers, engine and reason.

    Raises
    ------
    ArgumentError
        Names what cannot be used; a sweep that would need more than 80 % of the available memory, of which no point
        could be built, or whose `path` another process is writing, is refused.
    """
    axes = _checked_axes(make_block, parameters)
    points = math.prod(map(len, axes.values()))
    depth, seed = whole_number("depth", depth, 1), whole_number("rng", rng, 0)
    tolerance, measures = stop_tolerance(tolerance), Measures.of(measure)
    group = None if group is None else whole_number("group", group, 1)
    if path is None and (resume or lazy):
        raise ArgumentError("path", None, "a file, for resume=True and lazy=True")
    target = None if path is None else checked_path(path)
    jobs = jobs_of(n_jobs, backend)
    point, first = _first_block(make_block, axes)
    layout = Layout(first.shape, first.d)
    for name in axes:
        check_name("parameters", name, layout.names)
    checked = _checked_start(start, tuple(map(len, axes.values())), layout)
    given = checked if isinstance(checked, np.ndarray) else None
    starts = given.reshape(points, layout.n, layout.d) if given is not None and given.ndim > 2 else None
    measures = measures.beside(layout.names | axes.keys())
    plan = Plan(make_block, axes, depth, tolerance, seed, None if starts is not None else checked, measures, layout)
    plan = plan.tried(first, point, None if starts is None else starts[point])
    engine = engine_of(first)
    most = GROUP if engine.together else int(OPERATIONS / (depth * engine.operations(first)))
    size = group or piece_size(points, jobs, max(1, min(GROUP, most)))
    working = size * jobs.working
    # what is held in memory counts twice: once more while it is written
    results = 2 * (working if lazy else points) * sum(column.bytes_each for column in plan.columns.values())
    needed = results + engine.bytes(first, min(points, working))
    require("parameters", f"{points} points of {first.n} tokens and {first.d} features", needed)
    settings = _settings(plan, checked, identity)
    variables = {} if given is None else layout.start(axes, given)
    work = Work(plan, axes, settings, starts, jobs, size, _attributes(plan, checked), layout.coordinates, variables)
    if target is None:
        store = Memory(points, plan.columns)
        left = work.run(store, progress)
        dataset = work.result(store).dataset()
    else:
        left = work.run_at(target, resume, progress)
        dataset = load(target, lazy)
    if left:
        warnings.warn(f"sweep interrupted: {left} of {points} points not run", SweepInterrupted, stacklevel=2)
    return dataset


def _checked_axes(make_block: Callable[..., Model], parameters: Mapping[str, ArrayLike]) -> dict[str, NDArray]:
    """The swept values by name, checked."""
    if not callable(make_block):
        raise ArgumentError("make_block", shown(make_block), "a function that returns a Block or a Chain")
    if not isinstance(parameters, Mapping) or not parameters:
        raise ArgumentError("parameters", shown(parameters), "{name: values, …} with one name or more")
    axes = {check_name("parameters", name, RESERVED): _axis(name, values) for name, values in parameters.items()}
    try:
        inspect.signature(make_block).bind(**axes)
    except TypeError as error:
        raise ArgumentError("parameters", f"{', '.join(axes)} ({error})", "the keywords of make_block") from None
    except ValueError:  # a builtin without a signature
        pass
    return axes


def _axis(name: str, values: ArrayLike) -> NDArray:
    """The values of one axis, of a type that a file can hold."""
    argument, accepted = f"parameters[{name!r}]", "one axis of numbers or strings, not empty"
    if np.ma.isMaskedArray(values):
        raise ArgumentError(argument, "a masked array", accepted)
    try:
        array = np.array(values)
    except ValueError:
        raise ArgumentError(argument, "rows of different lengths", accepted) from None
    if array.dtype.kind in "OT" and all(isinstance(value, str) for value in array.flat):
        array = np.array([str(value) for value in array.flat]).reshape(array.shape)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "biufU" or array.dtype in UNKNOWN:
        raise ArgumentError(argument, f"shape {array.shape} of {array.dtype}", accepted)
    if array.dtype.kind == "U" and not all(isinstance(value, str) for value in values):  # type: ignore[union-attr]
        raise ArgumentError(argument, "strings and other things", accepted)
    if array.dtype.kind == "U" and not all(value == shown(value, str) for value in array.tolist()):
        raise ArgumentError(argument, "text that cannot be printed or is too long", accepted)
    return array.astype(np.int8 if array.dtype.kind == "b" else array.dtype.newbyteorder("="), copy=False)


UNKNOWN = (np.float16, np.longdouble)
"""Types of numbers that netCDF does not know."""


def _checked_start(start: ArrayLike | StartFunction, shape: tuple[int, ...], layout: Layout) -> Start:
    """`start` as a number, a finite array (N, d) or (*shape, N, d), or a function."""
    if callable(start):
        return start
    start = real_array("start", start)
    if start.ndim == 0:
        return real_number("start", start)
    one, every = (layout.n, layout.d), (*shape, layout.n, layout.d)
    if np.shape(start) in (one, every):
        return frozen_array("start", start, np.shape(start))
    whole = every if np.ndim(start) > (1 if layout.d == 1 else 2) else one
    expected = whole[:-1] if layout.d == 1 else whole
    return frozen_array("start", start, expected).reshape(whole)


def _first_block(make_block: Callable[..., Model], axes: Mapping[str, NDArray]) -> tuple[int, Model]:
    """The first point that has a block, and this block: what the sizes and the engine are read from."""
    reason = ""
    for point in range(math.prod(map(len, axes.values()))):
        try:
            return point, build(make_block, axes, point)
        except MemoryError:
            raise
        except Exception as error:
            reason = reason or reason_of(error)
    raise ArgumentError("make_block", f"no usable point ({reason})", "a function that works at some point")


def _settings(plan: Plan, start: Start, identity: str | Mapping[str, str]) -> dict[str, str]:
    """What makes a call another, by name. Blocks, and what a function `start` returns, are compared by point."""
    texts = identity if isinstance(identity, Mapping) else {"identity": identity}
    return {
        **{str(name): digest(text) for name, text in texts.items()},
        "depth": str(plan.depth),
        "tolerance": repr(plan.tolerance),
        "rng": str(plan.seed),
        "start": digest(_name(start) if callable(start) else start),
        "parameters": digest(dict(plan.axes)),
        "make_block": _name(plan.make_block),
        "measure": digest((plan.measures.names, plan.measures.own, plan.measures.functions)),
        "version": version(),
    }


def _attributes(plan: Plan, start: Start) -> dict[str, Any]:
    features = "scalar" if plan.layout.d == 1 else f"{plan.layout.d}-feature"
    described: Any = start
    if not isinstance(start, float):
        described = f"array {start.shape}" if isinstance(start, np.ndarray) else _name(start)
    return {
        "title": f"Iterated {features} Transformer block over {', '.join(plan.axes)}",
        "depth": plan.depth,
        "tolerance": plan.tolerance,
        "seed": plan.seed,
        "start": described,
        "make_block": _name(plan.make_block),
    }


def _name(function: object) -> str:
    """The name of a function, or of the class of what is called like one."""
    return shown(getattr(function, "__qualname__", type(function).__qualname__), str)
