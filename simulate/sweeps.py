"""Many blocks iterated over a grid of parameters, each point with its own outcome."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import frozen_array, real_number, whole_number
from simulate.assemble import Result
from simulate.engines import Model, shape_of
from simulate.identity import digest, settings_of
from simulate.journal import Journal, Memory, Store, journal_folder
from simulate.measures import Measure, Measures
from simulate.memory import check_memory
from simulate.points import Part, Plan, Start, StartFunction, build
from simulate.results import RESERVED, Layout, versions
from simulate.settle import stop_tolerance
from simulate.spread import jobs_of, parts, piece_size
from simulate.store import check_writable, load, write

if TYPE_CHECKING:
    from xarray import Dataset

GROUP = 2048
"""Points iterated together at most; Ctrl-C keeps the groups already finished."""


class SweepInterrupted(UserWarning):
    """A sweep was ended by Ctrl-C and its dataset holds only the points finished by then."""


def sweep(
    make_block: Callable[..., Model],
    parameters: Mapping[str, ArrayLike],
    depth: int = 5000,
    start: ArrayLike | StartFunction = 1e-3,
    rng: int = 0,
    tolerance: float | None = 1e-12,
    path: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    measure: Measure = None,
    resume: bool = False,
    lazy: bool = False,
    n_jobs: int | None = None,
    backend: str | None = None,
    group: int | None = None,
) -> Dataset:
    """Iterate `make_block(**point)` at every point of a grid of parameters, on all cores.

    make_block : returns a Block or Chain; all must have the same tokens and features, and those of one feature
        one activation. A ValueError it raises marks that point as failed, with the reason.
    parameters : name → values, one axis of numbers or strings; one dimension each, in this order.
    depth : layers. tolerance : of the early stop (see simulate.settle); None or 0 turns it off.
    start : a number, the standard deviation of a normal draw at each point; states (N, d) for all
        points or (*sweep shape, N, d), without the last axis for d = 1; or a function of (block, generator) that
        returns (N, d).
    rng : the seed, a whole number. Point number p (C order) draws from
        numpy.random.default_rng(SeedSequence(rng, spawn_key=(p,))), whatever the other points.
    path : a netCDF file for the result; finished groups of points gather in the folder `path`.parts until then.
    progress : a bar on stderr; None shows it on a terminal only.
    measure : names of simulate.results.COLUMNS, or a function from the Trajectory of a point, its last state alone
        recorded, to {name: number or array}, or a list of both. By default all names but the slow ones.
    resume : go on with an unfinished sweep at `path`, or return a finished one, if it was the same call.
    lazy : open the file instead of reading it, for results larger than the memory; `path` is needed.
    n_jobs, backend : as of joblib.Parallel. By default, and outside of joblib.parallel_config, this process.
    group : points iterated, and sent to a worker, together. It changes no result.

    Returns a dataset with `measure`d variables, status, layers, engine and reason. Ctrl-C ends the sweep early:
    points not reached have the status 'not run' and the attribute `interrupted` is 1. After kill -9 no finished
    group is lost. An ArgumentError names what cannot be used; a sweep that would need more than 80 % of the
    available memory, or of which no point could be built, is refused.
    """
    axes = _axes(make_block, parameters)
    points = int(np.prod([len(values) for values in axes.values()]))
    depth, seed = whole_number("depth", depth, 1), whole_number("rng", rng, 0)
    tolerance, measures = stop_tolerance(tolerance), Measures.of(measure)
    group = None if group is None else whole_number("group", group, 1)
    if path is None and (resume or lazy):
        raise ArgumentError("path", None, "a file, for resume=True and lazy=True")
    if path is not None:
        check_writable(path)
    jobs = jobs_of(n_jobs, backend)
    first = _first_block(make_block, axes)
    layout = Layout(shape_of(first), first.d)
    checked = _checked_start(start, tuple(map(len, axes.values())), layout)
    each = isinstance(checked, np.ndarray) and checked.ndim > 2
    plan = Plan(make_block, axes, depth, tolerance, seed, None if each else checked, measures, layout)
    starts = checked.reshape(points, layout.n, layout.d) if each else None  # type: ignore[union-attr]
    settings = settings_of(plan, checked, first)
    done = _finished(path, settings) if resume and path is not None else False
    if done:
        return load(path, lazy)  # type: ignore[arg-type]
    size = group or piece_size(plan, first, points, jobs, GROUP)
    columns = layout.columns(measures.names)
    check_memory(first, points, size * jobs.working, columns, in_memory=not lazy)
    store: Store = Memory(points, columns) if path is None else Journal(path, points, columns, settings, resume)
    interrupted = False
    with _bar(points * depth, progress) as bar:
        bar.update(depth * int(store.done.sum()))
        try:
            with closing(parts(plan, _ranges(store.done, size), starts, jobs, bar.update)) as finished:
                _gather(finished, store, bar)
        except KeyboardInterrupt:
            if not store.done.any():
                raise
            interrupted = True
    given = checked if isinstance(checked, np.ndarray) else None
    result = Result(store, axes, layout, _attributes(plan, checked, settings, interrupted), given)
    dataset = result.dataset() if path is None else load(write(result, path), lazy)
    if interrupted:
        left = int((~store.done).sum())
        warnings.warn(f"sweep interrupted: {left} of {points} points not run", SweepInterrupted, stacklevel=2)
    elif isinstance(store, Journal):
        store.remove()
    return dataset


def _gather(finished: Iterator[Part], store: Store, bar: Any) -> None:
    for part in finished:
        store.put(part)
        bar.refresh()


def _ranges(done: NDArray[np.bool_], size: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `size` points that are not `done`."""
    left = np.flatnonzero(~done)
    for run in np.split(left, np.flatnonzero(np.diff(left) > 1) + 1):
        for begin in range(0, len(run), size):
            piece = run[begin : begin + size]
            yield int(piece[0]), int(piece[-1]) + 1


def _axes(make_block: Callable[..., Model], parameters: Mapping[str, ArrayLike]) -> dict[str, NDArray]:
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


def _first_block(make_block: Callable[..., Model], axes: Mapping[str, NDArray]) -> Model:
    """The block of the first point that has one: what the sizes and the engine are read from."""
    reason = ""
    for point in range(int(np.prod([len(values) for values in axes.values()]))):
        try:
            return build(make_block, axes, point)
        except ValueError as error:
            if isinstance(error, ArgumentError) and error.argument == "make_block":
                raise
            reason = reason or str(error)
    raise ArgumentError("make_block", f"no usable point ({reason})", "a function that works at some point")


def _checked_start(start: ArrayLike | StartFunction, shape: tuple[int, ...], layout: Layout) -> Start:
    """`start` as a number, a finite array (N, d) or (*shape, N, d), or a function."""
    if callable(start):
        return start
    if np.ndim(start) == 0:
        return real_number("start", start)
    one, every = (layout.n, layout.d), (*shape, layout.n, layout.d)
    if np.shape(start) in (one, every):
        return frozen_array("start", start, np.shape(start))
    whole = every if np.ndim(start) > (1 if layout.d == 1 else 2) else one
    expected = whole[:-1] if layout.d == 1 else whole
    return frozen_array("start", start, expected).reshape(whole)


def _attributes(plan: Plan, start: Start, settings: Mapping[str, str], interrupted: bool) -> dict[str, Any]:
    features = "scalar" if plan.layout.d == 1 else f"{plan.layout.d}-feature"
    described = f"array {start.shape}" if isinstance(start, np.ndarray) else _name(start)
    return {
        "title": f"Iterated {features} Transformer block over {', '.join(plan.axes)}",
        "depth": plan.depth,
        "tolerance": plan.tolerance,
        "seed": plan.seed,
        "start": described,
        "make_block": _name(plan.make_block),
        "settings": digest(dict(settings)),
        "interrupted": int(interrupted),
        **versions(),
    }


def _finished(path: str | os.PathLike[str], settings: Mapping[str, str]) -> bool:
    """Whether `path` holds this sweep, whole; another one is refused."""
    if journal_folder(path).exists() or not Path(path).exists():
        return False
    with load(path, lazy=True) as dataset:
        found, whole = dataset.attrs.get("settings"), dataset.attrs.get("interrupted") == 0
    if found != digest(dict(settings)):
        raise ArgumentError("path", f"{str(path)!r}, another sweep", "the same call, another path, or resume=False")
    return bool(whole)


def _bar(total: int, progress: bool | None) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, unit="layer", unit_scale=True, disable=None if progress is None else not progress)


def _name(value: object) -> Any:
    """A number itself; the name of a function."""
    return value if isinstance(value, float) else getattr(value, "__qualname__", type(value).__name__)
