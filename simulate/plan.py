"""The plan of a sweep: its points built, iterated and measured, a range at a time, wherever it runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import frozen_array, shown
from simulate.engines.choice import ENGINES, engine_of
from simulate.engines.engine import Engine, Model, checked_model
from simulate.measures import Measures, value_of
from simulate.observables import OBSERVABLES, Observable, ScalarRuns
from simulate.results import ENDINGS, NAMES, Layout
from simulate.runs.columns import Column, Part
from simulate.runs.identity import Memo, digest, total
from simulate.runs.task import Found, Progress, Task, ignored
from simulate.settle import DIVERGED, FAILED, STATUS, Outcome, evolve
from simulate.trajectory import Trajectory

StartFunction = Callable[[Model, Generator], ArrayLike]
Start = float | NDArray[np.float64] | StartFunction

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

    @cached_property
    def columns(self) -> dict[str, Column]:
        """What is known to be recorded, by name."""
        declared = {observable.name: self.layout.column(observable) for observable in self.measures.observables}
        known = {name: declared.pop(name) for name in OBSERVABLES if name in declared}
        return {**known, **ENDINGS, **declared, **self.measures.columns}

    @property
    def steps(self) -> int:
        """Layers of a point."""
        return self.depth

    def __len__(self) -> int:
        """Number of points."""
        return math.prod(map(len, self.axes.values()))

    def run(self, first: int, last: int, given: NDArray | None, progress: Progress = ignored) -> Part:
        """The points `first` to `last`, from the states `given` (points, N, d) where the plan has no start."""
        ready = self._prepared(first, last, given)
        part = Part.blank(first, last, self.columns)
        part.origin, part.trait = ready.origin, ready.activation
        for point, reason in ready.reasons.items():
            _fail(part, point, reason)
            progress(self.depth)
        for engine in ENGINES:
            points = [point for point in ready.models if ready.engines[point] is engine]
            for group in [points] if engine.together else [[point] for point in points]:
                if group:
                    self._run_group(part, group, engine, ready, progress)
        return part

    def identify(self, first: int, last: int, given: NDArray | None) -> Part:
        """The origin and trait of a range of points: its blocks and start states are made."""
        ready = self._prepared(first, last, given)
        return Part(first, last, origin=ready.origin, trait=ready.activation)

    def agreed(self, traits: Iterable[tuple[str, int] | None]) -> tuple[str, int] | None:
        """The activation that all have, of activations with their points; two different ones are an ArgumentError."""
        first: tuple[str, int] | None = None
        for name, point in filter(None, traits):
            if first is None:
                first = name, point
            elif name != first[0]:
                accepted = f"{first[0]!r} as at point {first[1]}, at every point"
                raise ArgumentError(f"block of point {point}", f"activation {name!r}", accepted)
        return first

    def verify(self, done: NDArray[np.int64], found: Found, given: NDArray | None) -> None:
        """Refuse what was `found` if functions of the user measure other numbers at a few of the points `done`."""
        if not (self.measures.functions or self.measures.own) or not len(done):
            return
        status, engine = (found.rows(name, 0, len(self))[done] for name in ("status", "engine"))
        ran = done[(status < DIVERGED) | ((status == FAILED) & (engine >= 0))]
        for point in map(int, ran[np.unique(np.linspace(0, len(ran) - 1, min(WITNESSES, len(ran))).astype(int))]):
            part = self.run(point, point + 1, None if given is None else given[point : point + 1])
            for name in {*part.columns, *self.measures.columns} - {*NAMES} | {"reason"}:
                if not _close(part.values[name], found.rows(name, point, point + 1)):
                    got = f"a sweep with another measure: {name} at point {point}"
                    raise ArgumentError("path", got, "the same call again, or another path")

    def tried(self, model: Model, point: int, given: NDArray[np.float64] | None) -> Plan:
        """This plan with the columns that functions give at one point, which has this `model`, after one layer."""
        if not self.measures.functions:
            return self
        try:
            state = self._start(model, point, given)
        except MemoryError:
            raise
        except Exception:
            return self
        engine = engine_of(model)
        outcome = evolve(engine.system([model]), state[None], 1, 0.0, shape=self.layout.shape)
        return replace(self, measures=self.measures.tried(_path(model, engine, outcome, 0)))

    def _prepared(self, first: int, last: int, given: NDArray | None) -> Prepared:
        """The points of a range. Points of other sizes, or of two activations in one engine, are an ArgumentError."""
        models: dict[int, Model] = {}
        states: dict[int, NDArray[np.float64]] = {}
        reasons: dict[int, str] = {}
        for point in range(first, last):
            try:
                model = build(self.make_block, self.axes, point)
                alike = (model.shape, model.d) == (self.layout.shape, self.layout.d)
                if alike:
                    states[point] = self._start(model, point, None if given is None else given[point - first])
                models[point] = model
            except MemoryError:
                raise
            except Exception as error:
                reasons[point] = reason_of(error)
            else:
                if not alike:
                    sizes = [(model.shape, model.d), (self.layout.shape, self.layout.d)]
                    got, accepted = (f"N = {'×'.join(map(str, shape))}, d = {d}" for shape, d in sizes)
                    raise ArgumentError(f"block of point {point}", got, f"{accepted} at every point")
        engines = {point: engine_of(model) for point, model in models.items()}
        shared = ((engines[point].shared(model), point) for point, model in models.items())
        activation = self.agreed((name, point) for name, point in shared if name is not None)
        memo: Memo = {}
        drawn = callable(self.start)
        origins = []
        for point in range(first, last):
            made = reasons[point] if point in reasons else (models[point], states[point] if drawn else None)
            origins.append(digest((point, made), memo))
        return Prepared(models, engines, states, reasons, activation, total(origins))

    def _start(self, model: Model, point: int, given: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """(N, d) the start state of one point; `given` where the plan has none."""
        if given is not None:
            return given
        if isinstance(self.start, np.ndarray):
            return self.start
        generator = np.random.default_rng(SeedSequence(self.seed, spawn_key=(point,)))
        if callable(self.start):
            state = np.asarray(self.start(model, generator))
            shape: tuple[int, ...] = (model.n,) if model.d == 1 and state.ndim == 1 else (model.n, model.d)
            return frozen_array("start", state, shape).reshape(model.n, model.d)
        assert self.start is not None  # such a plan hands out what is given
        drawn: NDArray[np.float64] = self.start * generator.standard_normal((model.n, model.d))
        return drawn

    def _run_group(self, part: Part, points: list[int], engine: Engine, ready: Prepared, progress: Progress) -> None:
        """Iterate and measure points that `engine` iterates together."""
        models = [ready.models[point] for point in points]
        system, starts = engine.system(models), np.array([ready.states[point] for point in points])
        outcome = evolve(system, starts, self.depth, self.tolerance, progress, self.layout.shape)
        rows = np.array(points) - part.first
        for name, values in (("layers", outcome.layers), ("status", outcome.status), ("engine", ENGINES.index(engine))):
            part.enter(name, rows, values)
        alone = self.measures.observables
        if system.blocks is not None:
            runs, alive = ScalarRuns(outcome, system.blocks), outcome.status != DIVERGED
            for observable in alone:
                if observable.together is not None:
                    chosen = slice(None) if observable.diverged else alive
                    with np.errstate(all="ignore"):
                        part.enter(observable.name, rows[chosen], observable.together(runs)[chosen])
            alone = tuple(observable for observable in alone if observable.together is None)
        if alone or self.measures.functions:
            for row, (point, model) in enumerate(zip(points, models, strict=True)):
                self._measure(part, point, _path(model, engine, outcome, row), alone)

    def _measure(self, part: Part, point: int, path: Trajectory, observables: Sequence[Observable]) -> None:
        """Enter `observables`, and what the functions measure, of one point; what fails marks it as failed."""
        row, diverged = point - part.first, path.status == STATUS[DIVERGED]
        for observable in observables:
            if observable.diverged or not diverged:
                try:
                    value = value_of(observable, path, part.columns[observable.name])
                    if value is not None:
                        part.enter(observable.name, row, value)
                except MemoryError:
                    raise
                except Exception as error:
                    _fail(part, point, reason_of(error))
        if self.measures.functions and not diverged:
            try:
                measured = self.measures.custom(path)
                for name in measured.keys() & self.columns.keys():
                    self.columns[name].check(name, measured[name].shape)
            except MemoryError:
                raise
            except Exception as error:
                _fail(part, point, reason_of(error))
            else:
                part.enter_custom(row, measured)


@dataclass(frozen=True, eq=False)
class Prepared:
    """The points of a range before they run: blocks, their engines and start states by point, and reasons where there
    are none.

    activation : what points of one engine share, and the first point that has it; None without.
    """

    models: dict[int, Model]
    engines: dict[int, Engine]
    states: dict[int, NDArray[np.float64]]
    reasons: dict[int, str]
    activation: tuple[str, int] | None
    origin: str


def build(make_block: Callable[..., Model], axes: Mapping[str, NDArray], point: int) -> Model:
    """`make_block` at a point, numbered in C order; what is no Block or Chain that can be iterated is refused."""
    values = {}
    for name in reversed(list(axes)):
        point, place = divmod(point, len(axes[name]))
        values[name] = axes[name].item(place)
    return checked_model("make_block", make_block(**{name: values[name] for name in axes}))


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


def _path(model: Model, engine: Engine, outcome: Outcome, row: int) -> Trajectory:
    layers, state = outcome.layers[row : row + 1], outcome.states[row : row + 1]
    return Trajectory(model, layers, state, outcome.previous[row], STATUS[outcome.status[row]], engine.name)


def _close(some: NDArray, others: NDArray) -> bool:
    if some.shape != others.shape:
        return False
    if some.dtype.kind != "f":
        return bool((some == others).all())
    return bool(np.isclose(some, others, rtol=CLOSE, atol=0, equal_nan=True).all())
