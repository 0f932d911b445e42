"""The work of a sweep, a range of points at a time: built, iterated and measured wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block
from dispersion.errors import frozen_array
from simulate._engine import pack
from simulate.engines import ENGINES, Lanes, Model, Replicas, checked_model, engine_of, shape_of
from simulate.linear import Critical, critical_modes
from simulate.measures import KNOWN, Measures, leading_mode, measure_path, measure_scalars
from simulate.results import Column, Layout, custom_column
from simulate.settle import DIVERGED, FAILED, STATUS, Outcome, evolve
from simulate.trajectory import Trajectory

StartFunction = Callable[[Model, Generator], ArrayLike]
Start = float | NDArray[np.float64] | StartFunction


@dataclass(frozen=True)
class Plan:
    """A sweep before it runs; small, so that it can be sent to where the work is done.

    make_block : from the parameters of a point to its Block or Chain. axes : the swept values by name.
    depth, tolerance, seed : as of `sweep`. start : a number, one state for all points (N, d), a function, or None
    where each range is handed its own. measures : what is recorded. layout : sizes, the same at every point.
    """

    make_block: Callable[..., Model]
    axes: Mapping[str, NDArray]
    depth: int
    tolerance: float
    seed: int
    start: Start | None
    measures: Measures
    layout: Layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return tuple(map(len, self.axes.values()))

    def model(self, point: int) -> Model:
        """The block of a point, numbered in C order."""
        return build(self.make_block, self.axes, point)


@dataclass(eq=False)
class Part:
    """Outcomes of the points `first` to `last`: arrays (points, …) by name, and reasons of failures by point."""

    first: int
    last: int
    columns: dict[str, Column] = field(default_factory=dict)
    values: dict[str, NDArray] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)

    def enter(self, name: str, rows: NDArray[np.int64] | int, values: object) -> None:
        """Write `values` at `rows`, counted from `first`."""
        if name not in self.values:
            self.values[name] = self.columns[name].blank(self.last - self.first)
        self.values[name][rows] = values

    def enter_custom(self, row: int, measured: Mapping[str, NDArray[np.float64]]) -> None:
        """Write what the functions of the user measured at one point."""
        for name, value in measured.items():
            column = self.columns.setdefault(name, custom_column(name, value.shape))
            check_sizes(name, value.shape, column)
            self.enter(name, row, value)

    def fail(self, point: int, reason: str) -> None:
        """Mark a point as failed."""
        self.reasons[point] = reason
        self.enter("status", point - self.first, FAILED)
        self.enter("reason", point - self.first, reason)


def check_sizes(name: str, sizes: tuple[int, ...], column: Column) -> None:
    """Refuse a measured array whose shape is not that of other points."""
    if sizes != column.sizes:
        raise ArgumentError("measure", f"{name} of shape {sizes}", f"shape {column.sizes} as at other points")


def build(make_block: Callable[..., Model], axes: Mapping[str, NDArray], point: int) -> Model:
    """`make_block` at a point, numbered in C order; what is no Block or Chain is refused."""
    place = np.unravel_index(point, tuple(map(len, axes.values())))
    values = {name: axis[i].item() for (name, axis), i in zip(axes.items(), place, strict=True)}
    model = make_block(**values)
    if not isinstance(model, Model):
        raise ArgumentError("make_block", type(model).__name__, "a function that returns a Block or a Chain")
    return model


def run_part(
    plan: Plan,
    first: int,
    last: int,
    starts: NDArray[np.float64] | None = None,
    progress: Callable[[int], object] = lambda layers: None,
) -> Part:
    """The points `first` to `last` of `plan`, from `starts` (points, N, d) where it has none.

    progress : told the layers done or no longer needed.
    """
    part = Part(first, last, plan.layout.columns(plan.measures.names))
    for name in part.columns:
        part.values[name] = part.columns[name].blank(last - first)
    models: dict[int, Model] = {}
    states: dict[int, NDArray[np.float64]] = {}
    for point in range(first, last):
        try:
            model = checked_model("make_block", plan.model(point))
            _check_alike(model, point, plan.layout)
            given = None if starts is None else starts[point - first]
            states[point] = start_of(plan, model, point, given)
            models[point] = model
        except _Unlike as error:
            raise error.reason from None
        except ValueError as error:
            if isinstance(error, ArgumentError) and error.argument == "make_block":
                raise
            part.fail(point, str(error))
            progress(plan.depth)
    scalar = [point for point, model in models.items() if engine_of(model) == "lanes"]
    if scalar:
        _run_lanes(plan, part, scalar, models, states, progress)
    for point, model in models.items():
        if engine_of(model) != "lanes":
            _run_alone(plan, part, point, model, states[point], progress)
    return part


def _run_lanes(
    plan: Plan,
    part: Part,
    points: Sequence[int],
    models: Mapping[int, Model],
    states: Mapping[int, NDArray[np.float64]],
    progress: Callable[[int], object],
) -> None:
    blocks = [block for point in points if isinstance(block := models[point], Block)]
    packed = pack(blocks, [f"block of point {point}" for point in points])
    outcome = evolve(Lanes(packed), np.array([states[p] for p in points]), plan.depth, plan.tolerance, progress)
    critical = critical_modes(packed)
    _enter_scalars(plan, part, points, outcome, critical)
    rest = [name for name in plan.measures.names if name in ("cluster_count", "cluster_separation")]
    if rest or plan.measures.functions:
        for row, point in enumerate(points):
            _enter_path(plan, part, point, _path(models[point], outcome, row), rest)


def _run_alone(
    plan: Plan,
    part: Part,
    point: int,
    model: Model,
    state: NDArray[np.float64],
    progress: Callable[[int], object],
) -> None:
    outcome = evolve(Replicas(model), state[None], plan.depth, plan.tolerance, progress, plan.layout.shape)
    names: Sequence[str] = plan.measures.names
    if engine_of(model) == "fft" and isinstance(model, Block):
        _enter_scalars(plan, part, [point], outcome, critical_modes(pack([model])))
        names = [name for name in names if name in ("cluster_count", "cluster_separation")]
    _enter_ending(part, np.array([point]) - part.first, outcome, engine_of(model))
    _enter_path(plan, part, point, _path(model, outcome, 0), names)


def _enter_scalars(plan: Plan, part: Part, points: Sequence[int], outcome: Outcome, critical: Critical) -> None:
    rows = np.array(points) - part.first
    alive = outcome.status != DIVERGED
    with np.errstate(all="ignore"):
        measured = measure_scalars(outcome, critical, plan.measures.names)
    for name, values in measured.items():
        chosen = slice(None) if name in KNOWN else alive
        part.enter(name, rows[chosen], values[chosen])
    _enter_ending(part, rows, outcome, "lanes")


def _enter_ending(part: Part, rows: NDArray[np.int64], outcome: Outcome, engine: str) -> None:
    part.enter("layers", rows, outcome.layers)
    part.enter("status", rows, outcome.status)
    part.enter("engine", rows, ENGINES.index(engine))


def _enter_path(plan: Plan, part: Part, point: int, path: Trajectory, names: Sequence[str]) -> None:
    mode = leading_mode(path.block) if any(name.startswith("critical") for name in names) else None
    if path.status == STATUS[DIVERGED]:
        names = [name for name in names if name in KNOWN]
    row = point - part.first
    for name, value in measure_path(path, mode, names).items():
        part.enter(name, row, value)
    if path.status != STATUS[DIVERGED] and plan.measures.functions:
        try:
            measured = plan.measures.custom(path)
        except ValueError as error:
            if isinstance(error, ArgumentError) and error.argument == "measure":
                raise
            part.fail(point, str(error))
            return
        part.enter_custom(row, measured)


def _path(model: Model, outcome: Outcome, row: int) -> Trajectory:
    layers, state = outcome.layers[row : row + 1], outcome.states[row : row + 1]
    return Trajectory(model, layers, state, outcome.previous[row], STATUS[outcome.status[row]], engine_of(model))


class _Unlike(Exception):
    """A point whose sizes are not those of the sweep."""

    def __init__(self, reason: ArgumentError) -> None:
        self.reason = reason


def _check_alike(model: Model, point: int, layout: Layout) -> None:
    if (shape_of(model), model.d) != (layout.shape, layout.d):
        sizes = [(shape_of(model), model.d), (layout.shape, layout.d)]
        got, accepted = (f"N = {'×'.join(map(str, shape))}, d = {d}" for shape, d in sizes)
        raise _Unlike(ArgumentError(f"block of point {point}", got, f"{accepted} at every point"))


def start_of(plan: Plan, model: Model, point: int, given: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """(N, d) the start state of one point; `given` where the plan has none."""
    if given is not None:
        return given
    if isinstance(plan.start, np.ndarray):
        return plan.start
    generator = np.random.default_rng(SeedSequence(plan.seed, spawn_key=(point,)))
    if callable(plan.start):
        state = np.asarray(plan.start(model, generator))
        shape: tuple[int, ...] = (model.n,) if model.d == 1 and state.ndim == 1 else (model.n, model.d)
        return frozen_array("start", state, shape).reshape(model.n, model.d)
    assert plan.start is not None  # such a plan hands out what is given
    drawn: NDArray[np.float64] = plan.start * generator.standard_normal((model.n, model.d))
    return drawn
