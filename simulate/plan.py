"""The plan of a sweep: its points built, iterated and measured, a range at a time, wherever it runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block
from dispersion.block.scalar_blocks import ScalarBlocks
from dispersion.errors import frozen_array, shown
from simulate.engines.choice import ENGINES, Lanes, Model, Replicas, checked_model, engine_of, shape_of, system_of
from simulate.linear import Critical, critical_modes
from simulate.measures import KNOWN, Measures, leading_mode, measure_path, measure_scalars
from simulate.results import COLUMNS, Layout
from simulate.runs.columns import Column, Part
from simulate.runs.identity import Memo, digest, total
from simulate.runs.task import Found, Task
from simulate.settle import DIVERGED, FAILED, STATUS, Outcome, evolve
from simulate.trajectory import Trajectory

StartFunction = Callable[[Model, Generator], ArrayLike]
Start = float | NDArray[np.float64] | StartFunction

OPERATIONS = 5e11
"""Multiplications in a group of points that are iterated one by one: some ten seconds."""

WITNESSES = 3
"""Points measured again, where functions of the user measure and a sweep goes on."""

CLOSE = 1e-6
"""Relative difference within which they must agree: machines differ in the last digits."""


@dataclass(frozen=True)
class Plan(Task):
    """A sweep before it runs.

    make_block : from the parameters of a point to its Block or Chain. axes : the swept values by name.
    depth, tolerance, seed : as of `sweep`. start : a number, one state for all points (N, d), a function, or None
    where each range is handed its own. measures : what is recorded. layout : sizes, the same at every point.
    """

    kind, made_of, unit = "sweep", "blocks or start states", "layer"

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

    @property
    def columns(self) -> dict[str, Column]:
        """What is known to be recorded, by name."""
        return {**self.layout.columns(self.measures.names), **self.measures.columns}

    @property
    def steps(self) -> int:
        """Layers of a point."""
        return self.depth

    def __len__(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    def model(self, point: int) -> Model:
        """The block of a point, numbered in C order."""
        return build(self.make_block, self.axes, point)

    def run(
        self, first: int, last: int, given: NDArray | None, progress: Callable[[int], object] = lambda layers: None
    ) -> Part:
        """The points `first` to `last`, from the states `given` (points, N, d) where the plan has no start."""
        ready = prepare(self, first, last, given)
        part = Part.blank(first, last, self.columns)
        part.origin, part.trait = ready.origin, ready.activation
        for point, reason in ready.reasons.items():
            _fail(part, point, reason)
            progress(self.depth)
        models, states = ready.models, ready.states
        scalar = [point for point, model in models.items() if engine_of(model) == "lanes"]
        if scalar:
            _run_lanes(self, part, scalar, models, states, progress)
        for point, model in models.items():
            if engine_of(model) != "lanes":
                _run_alone(self, part, point, model, states[point], progress)
        return part

    def identify(self, first: int, last: int, given: NDArray | None) -> Part:
        """The origin and trait of a range of points: its blocks and start states are made."""
        ready = prepare(self, first, last, given)
        return Part(first, last, origin=ready.origin, trait=ready.activation)

    def agreed(self, traits: Iterable[tuple[str, int] | None]) -> tuple[str, int] | None:
        """The activation that all have."""
        return one_activation(traits)

    def verify(self, done: NDArray[np.int64], found: Found, given: NDArray | None) -> None:
        """Refuse what was `found` if functions of the user measure other numbers at a few of the points `done`."""
        if not self.measures.functions or not len(done):
            return
        status, engine = (found.rows(name, 0, len(self))[done] for name in ("status", "engine"))
        ran = done[(status < DIVERGED) | ((status == FAILED) & (engine >= 0))]
        for point in map(int, ran[np.unique(np.linspace(0, len(ran) - 1, min(WITNESSES, len(ran))).astype(int))]):
            part = self.run(point, point + 1, None if given is None else given[point : point + 1])
            for name in {*part.columns, *self.measures.columns} - COLUMNS.keys() | {"reason"}:
                if not _close(part.values[name], found.rows(name, point, point + 1)):
                    got = f"a sweep with another measure: {name} at point {point}"
                    raise ArgumentError("path", got, "the same call again, or another path")


def build(make_block: Callable[..., Model], axes: Mapping[str, NDArray], point: int) -> Model:
    """`make_block` at a point, numbered in C order; what is no Block or Chain that can be iterated is refused."""
    values = {}
    for name in reversed(list(axes)):
        point, place = divmod(point, len(axes[name]))
        values[name] = axes[name].item(place)
    return checked_model("make_block", make_block(**{name: values[name] for name in axes}))


@dataclass(frozen=True, eq=False)
class Prepared:
    """The points of a range before they run: blocks and start states by point, and reasons where there are none.

    activation : that of the points of the engine 'lanes', and the first point that has one; None without.
    """

    models: dict[int, Model]
    states: dict[int, NDArray[np.float64]]
    reasons: dict[int, str]
    activation: tuple[str, int] | None
    origin: str


def prepare(plan: Plan, first: int, last: int, starts: NDArray[np.float64] | None = None) -> Prepared:
    """The points `first` to `last` of `plan`, from `starts` (points, N, d) where it has none.

    Points of other sizes, or of two activations in the engine 'lanes', are an ArgumentError.
    """
    models: dict[int, Model] = {}
    states: dict[int, NDArray[np.float64]] = {}
    reasons: dict[int, str] = {}
    for point in range(first, last):
        try:
            model = plan.model(point)
            alike = (shape_of(model), model.d) == (plan.layout.shape, plan.layout.d)
            if alike:
                states[point] = start_of(plan, model, point, None if starts is None else starts[point - first])
            models[point] = model
        except MemoryError:
            raise
        except Exception as error:
            reasons[point] = reason_of(error)
        else:
            if not alike:
                _refuse_sizes(model, point, plan.layout)
    activation = one_activation(_activation(model, point) for point, model in models.items())
    memo: Memo = {}
    drawn = callable(plan.start)
    origins = []
    for point in range(first, last):
        made = reasons[point] if point in reasons else (models[point], states[point] if drawn else None)
        origins.append(digest((point, made), memo))
    return Prepared(models, states, reasons, activation, total(origins))


def one_activation(found: Iterable[tuple[str, int] | None]) -> tuple[str, int] | None:
    """The activation that all have, of activations with their points; two different ones are an ArgumentError."""
    first: tuple[str, int] | None = None
    for name, point in filter(None, found):
        if first is None:
            first = name, point
        elif name != first[0]:
            accepted = f"{first[0]!r} as at point {first[1]}, at every point"
            raise ArgumentError(f"block of point {point}", f"activation {name!r}", accepted)
    return first


def _activation(model: Model, point: int) -> tuple[str, int] | None:
    """The activation of a model that the engine 'lanes' iterates, with its point."""
    if not isinstance(model, Block) or engine_of(model) != "lanes" or model.feedforward is None:
        return None
    return model.feedforward.activation.name, point


def reason_of(error: Exception) -> str:
    """Why a point failed, in one line without addresses in memory."""
    return ADDRESS.sub("0x…", shown(error, str if isinstance(error, ValueError) else _named)) or type(error).__name__


def _named(error: object) -> str:
    return f"{type(error).__name__}: {error}"


ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


def _fail(part: Part, point: int, reason: str) -> None:
    part.reasons[point] = reason
    part.enter("status", point - part.first, FAILED)
    part.enter("reason", point - part.first, reason)


def _run_lanes(
    plan: Plan,
    part: Part,
    points: Sequence[int],
    models: Mapping[int, Model],
    states: Mapping[int, NDArray[np.float64]],
    progress: Callable[[int], object],
) -> None:
    blocks = [block for point in points if isinstance(block := models[point], Block)]
    packed = ScalarBlocks.of(blocks, [f"block of point {point}" for point in points])
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
        _enter_scalars(plan, part, [point], outcome, critical_modes(ScalarBlocks.of([model])))
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
            for name in measured.keys() & plan.columns.keys():
                plan.columns[name].check(name, measured[name].shape)
        except MemoryError:
            raise
        except Exception as error:
            _fail(part, point, reason_of(error))
        else:
            part.enter_custom(row, measured)


def group_of(model: Model, depth: int, most: int) -> int:
    """Points like `model` worked on together: `most`, or fewer where each takes long."""
    if engine_of(model) == "lanes":
        return most
    heads = len((model if isinstance(model, Block) else model.block).heads)
    operations = heads * model.n * (model.n * (2 * model.d + 20) + 2 * model.d**2)
    if engine_of(model) == "fft":
        operations = heads * model.n * 40 * np.log2(model.n)
    return max(1, min(most, int(OPERATIONS / (depth * operations))))


def tried(plan: Plan, model: Model, point: int, given: NDArray[np.float64] | None) -> Measures:
    """The measures of `plan` with the columns that their functions give at one point after one layer."""
    if not plan.measures.functions:
        return plan.measures
    try:
        state = start_of(plan, model, point, given)
    except MemoryError:
        raise
    except Exception:
        return plan.measures
    outcome = evolve(system_of(model, 1), state[None], 1, 0.0, shape=plan.layout.shape)
    return plan.measures.tried(_path(model, outcome, 0))


def _path(model: Model, outcome: Outcome, row: int) -> Trajectory:
    layers, state = outcome.layers[row : row + 1], outcome.states[row : row + 1]
    return Trajectory(model, layers, state, outcome.previous[row], STATUS[outcome.status[row]], engine_of(model))


def _close(some: NDArray, others: NDArray) -> bool:
    if some.shape != others.shape:
        return False
    if some.dtype.kind != "f":
        return bool((some == others).all())
    return bool(np.isclose(some, others, rtol=CLOSE, atol=0, equal_nan=True).all())


def _refuse_sizes(model: Model, point: int, layout: Layout) -> None:
    sizes = [(shape_of(model), model.d), (layout.shape, layout.d)]
    got, accepted = (f"N = {'×'.join(map(str, shape))}, d = {d}" for shape, d in sizes)
    raise ArgumentError(f"block of point {point}", got, f"{accepted} at every point")


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
