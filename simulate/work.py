"""A sweep that runs, goes on, or is found finished: what is there already must come from the same call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import flag
from simulate.points import Plan, identify, one_activation, run_part
from simulate.results import COLUMNS, versions
from simulate.runs.assemble import Result
from simulate.runs.columns import Part
from simulate.runs.identity import digest, total
from simulate.runs.journal import Journal, Store
from simulate.runs.spread import Jobs, parts
from simulate.runs.store import load, write
from simulate.settle import DIVERGED, FAILED

Progress = bool | Literal["lines"] | None

if TYPE_CHECKING:
    from xarray import Dataset

WITNESSES = 3
"""Points measured again, where functions of the user measure and a sweep goes on."""

CLOSE = 1e-6
"""Relative difference within which they must agree: machines differ in the last digits."""

Trait = tuple[str, int] | None


class Found(Protocol):
    """What there is of a sweep: (points, …) of one variable, `first` to `last`."""

    def rows(self, name: str, first: int, last: int) -> NDArray: ...


@dataclass(frozen=True, eq=False)
class Work:
    """A sweep to be run.

    plan : what is done. starts : (points, N, d) where each point is given its own. jobs, size : who works, and on how
    many points at a time. settings : strings by name that make the call another. given : start states given, in their
    shape. attributes : of the result.
    """

    plan: Plan
    starts: NDArray[np.float64] | None
    jobs: Jobs
    size: int
    settings: Mapping[str, str]
    given: NDArray[np.float64] | None
    attributes: Mapping[str, Any]

    def run(self, store: Store, progress: Progress) -> int:
        """Work on the points that `store` lacks; the number left undone by Ctrl-C."""
        layers = self.plan.depth * len(store.done)
        with _bar(layers, progress) as bar:
            trait = self._check(store, bar.update)
            try:
                with closing(self._parts(_ranges(store.done, self.size), bar.update)) as finished:
                    for part in finished:
                        trait = one_activation([trait, part.trait])
                        store.put(part)
                        bar.refresh()
            except KeyboardInterrupt:
                if not store.done.any():
                    raise
        return int((~store.done).sum())

    def run_at(self, path: Path, resume: bool, progress: Progress) -> int:
        """`run` with a journal and write the file `path`, unless it is there; the number of points left undone."""
        left = 0
        with Journal(path, len(self.plan), self.plan.columns, self.settings, resume) as journal:
            if not (resume and self._finished(path, journal)):
                left = self.run(journal, progress)
                write(self.result(journal), path, journal.draft)
            if not left:
                journal.remove()
        return left

    def result(self, store: Store) -> Result:
        """What to make of the points in `store`."""
        plan = self.plan
        state = {"blocks": total(origin for _, _, origin in store.origins), "interrupted": int(not store.done.all())}
        attributes = {**self.attributes, "settings": digest(dict(self.settings)), **state, **versions()}
        return Result(store, plan.axes, plan.layout, attributes, self.given, plan.columns)

    def _finished(self, path: Path, journal: Journal) -> bool:
        """Whether the file `path` holds this sweep, whole; another one is refused, unless a journal of this one is."""
        if not path.exists():
            return False
        with load(path, lazy=True) as dataset:
            same = dataset.attrs.get("settings") == digest(dict(self.settings))
            if same and dataset.attrs.get("interrupted") != 0:
                return False
            same = same and dataset.attrs.get("blocks") == self._origin()
            if same:
                self._check_measures(np.arange(len(self.plan)), _Saved(dataset, self.plan.shape))
        if not same and not journal.done.any():
            raise ArgumentError("path", f"{str(path)!r}, another sweep", "the same call, another path, or resume=False")
        return same

    def _origin(self) -> str:
        """What all points come from, whatever their groups."""
        ranges = _ranges(np.zeros(len(self.plan), dtype=bool), self.size)
        return total(part.origin for part in self._parts(ranges, lambda layers: None, identify))

    def _check(self, store: Store, progress: Callable[[int], object]) -> Trait:
        """Refuse a `store` whose points come from other blocks, starts or measures; what its points share."""
        known = {(first, last): origin for first, last, origin in store.origins}
        trait: Trait = None
        if not known:
            return trait
        for part in self._parts(known, progress, identify):
            trait = one_activation([trait, part.trait])
            if part.origin != known[part.first, part.last]:
                got = f"an unfinished sweep with other blocks or start states at points {part.first} to {part.last - 1}"
                raise ArgumentError("path", got, "the same call again, or another path")
        self._check_measures(np.flatnonzero(store.done), store)
        return trait

    def _check_measures(self, done: NDArray[np.int64], found: Found) -> None:
        """Refuse what was `found` at the points `done` if the functions measure other numbers at a few of them."""
        if not self.plan.measures.functions or not len(done):
            return
        status, engine = (found.rows(name, 0, len(self.plan))[done] for name in ("status", "engine"))
        ran = done[(status < DIVERGED) | ((status == FAILED) & (engine >= 0))]
        for point in ran[np.unique(np.linspace(0, len(ran) - 1, min(WITNESSES, len(ran))).astype(int))]:
            starts = None if self.starts is None else self.starts[point : point + 1]
            part = run_part(self.plan, int(point), int(point) + 1, starts)
            for name in {*part.columns, *self.plan.measures.columns} - COLUMNS.keys() | {"reason"}:
                if not _close(part.values[name], found.rows(name, point, point + 1)):
                    got = f"a sweep with another measure: {name} at point {point}"
                    raise ArgumentError("path", got, "the same call again, or another path")

    def _parts(
        self, ranges: Iterable[tuple[int, int]], progress: Callable[[int], object], work: Callable[..., Part] = run_part
    ) -> Any:
        return parts(self.plan, ranges, self.starts, self.jobs, progress, work)


@dataclass(frozen=True, eq=False)
class _Saved:
    """A Found of points of a `dataset` swept over axes of lengths `shape`."""

    dataset: Dataset
    shape: tuple[int, ...]

    def rows(self, name: str, first: int, last: int) -> NDArray:
        if name not in self.dataset:
            return np.empty(0)
        values = self.dataset[name]
        if last == first + 1:
            place = dict(zip(values.dims, np.unravel_index(first, self.shape), strict=False))
            return values.isel(place).values[None]
        return values.values.reshape(-1, *values.shape[len(self.shape) :])[first:last]


def _close(some: NDArray, others: NDArray) -> bool:
    if some.shape != others.shape:
        return False
    if some.dtype.kind != "f":
        return bool((some == others).all())
    return bool(np.isclose(some, others, rtol=CLOSE, atol=0, equal_nan=True).all())


def _ranges(done: NDArray[np.bool_], size: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `size` points that are not `done`."""
    left = np.flatnonzero(~done)
    for run in np.split(left, np.flatnonzero(np.diff(left) > 1) + 1):
        for begin in range(0, len(run), size):
            piece = run[begin : begin + size]
            yield int(piece[0]), int(piece[-1]) + 1


def _bar(total: int, progress: Progress) -> Any:
    if progress == "lines":
        from simulate.runs.progress import Lines

        return Lines(total=total)
    from tqdm import tqdm

    hidden = None if progress is None else not flag("progress", progress)
    return tqdm(total=total, unit="layer", unit_scale=True, disable=hidden)
