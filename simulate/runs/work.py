"""Long work that runs, goes on, or is found finished: what is there already must come from the same call."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import ArgumentError
from simulate.runs.columns import Part
from simulate.runs.identity import total
from simulate.runs.journal import Journal, differing
from simulate.runs.netcdf import load, write
from simulate.runs.result import Result, Variable
from simulate.runs.spread import Jobs, outcomes
from simulate.runs.store import Store
from simulate.runs.task import Progress, Task, ignored
from simulate.runs.versions import versions

if TYPE_CHECKING:
    from xarray import Dataset

    from simulate.runs.progress import Shown


@dataclass(frozen=True, eq=False)
class Work:
    """A task, and how and where it is done.

    task : what is done. axes : the values that number its points, in C order, by name. settings : strings by name that
    make it another. given : (points, …) what each point is handed, if anything. jobs, size : who works, and on how
    many points at a time. attributes, coordinates, variables : of the result, besides the outcomes.
    """

    task: Task
    axes: Mapping[str, NDArray]
    settings: Mapping[str, str]
    given: NDArray | None = None
    jobs: Jobs = Jobs(0, {})  # noqa: RUF009
    size: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Mapping[str, Variable] = field(default_factory=dict)
    variables: Mapping[str, Variable] = field(default_factory=dict)

    def run(self, store: Store, progress: Shown = None) -> int:
        """Work on the points that `store` lacks; the number left undone by Ctrl-C."""
        from simulate.runs.progress import bar

        with bar(self.task.steps * len(store.done), progress, self.task.unit) as shown:
            trait = self._check(store, shown.update)
            try:
                with closing(self._run(_ranges(store.done, self.size), shown.update)) as finished:
                    for part in finished:
                        trait = self.task.agreed([trait, part.trait])
                        store.put(part)
                        shown.refresh()
            except KeyboardInterrupt:
                if not store.done.any():
                    raise
        return int((~store.done).sum())

    def run_at(self, path: Path, resume: bool, progress: Shown = None) -> int:
        """`run` with a journal and write the file `path`, unless it is there; the number of points left undone."""
        left = 0
        task = self.task
        with Journal(path, len(task), task.columns, self.settings, resume, task.kind) as journal:
            if not (resume and self._finished(path, journal)):
                left = self.run(journal, progress)
                write(self.result(journal), path, journal.draft)
            if not left:
                journal.remove()
        return left

    def result(self, store: Store) -> Result:
        """What to make of the points in `store`."""
        state = {"origin": total(origin for _, _, origin in store.origins), "interrupted": int(not store.done.all())}
        attributes = {**self.attributes, "settings": json.dumps(dict(self.settings)), **state, **versions()}
        return Result(store, self.task.columns, self.axes, self.coordinates, self.variables, attributes)

    def _finished(self, path: Path, journal: Journal) -> bool:
        """Whether the file `path` holds this work, whole; other work is refused, unless a journal of this one is."""
        if not path.exists():
            return False
        with load(path, lazy=True) as dataset:
            difference = self._difference(dataset.attrs)
            if not difference and dataset.attrs.get("interrupted") != 0:
                return False
            if not difference and dataset.attrs.get("origin") != self._origin():
                difference = f", with other {self.task.made_of}"
            if not difference:
                saved = _Saved(dataset, tuple(map(len, self.axes.values())))
                self.task.verify(np.arange(len(self.task)), saved, self.given)
        if difference and not journal.done.any():
            got = f"{str(path)!r}, another {self.task.kind}{difference}"
            raise ArgumentError("path", got, "the same call, another path, or resume=False")
        return not difference

    def _difference(self, attributes: Mapping[str, Any]) -> str:
        """How the settings in the `attributes` of a file are not these, in words."""
        try:
            known = json.loads(attributes.get("settings", ""))
        except (TypeError, ValueError):
            return " or none"
        difference = differing(known, self.settings)
        return difference and f", with {difference}"

    def _origin(self) -> str:
        """What all points come from, whatever their groups."""
        ranges = _ranges(np.zeros(len(self.task), dtype=bool), self.size)
        return total(part.origin for part in self._identify(ranges, ignored))

    def _check(self, store: Store, progress: Progress) -> Any:
        """Refuse a `store` whose points come from something else, or would be other ones; what its points share."""
        known = {(first, last): origin for first, last, origin in store.origins}
        trait = None
        if not known:
            return trait
        for part in self._identify(known, progress):
            trait = self.task.agreed([trait, part.trait])
            if part.origin != known[part.first, part.last]:
                places = f"points {part.first} to {part.last - 1}"
                got = f"an unfinished {self.task.kind} with other {self.task.made_of} at {places}"
                raise ArgumentError("path", got, "the same call again, or another path")
        self.task.verify(np.flatnonzero(store.done), store, self.given)
        return trait

    def _run(self, ranges: Iterable[tuple[int, int]], progress: Progress) -> Generator[Part, None, None]:
        """The outcomes of ranges of points, in any order."""
        if self.jobs.workers:
            yield from self._counted(self.task.run, ranges, progress, ignored)
            return
        for first, last in ranges:
            yield self.task.run(first, last, self._handed(first, last), progress)

    def _identify(self, ranges: Iterable[tuple[int, int]], progress: Progress) -> Generator[Part, None, None]:
        """The origins of ranges of points, in any order."""
        return self._counted(self.task.identify, ranges, progress)

    def _counted(
        self, work: Callable[..., Part], ranges: Iterable[tuple[int, int]], progress: Progress, *more: Any
    ) -> Generator[Part, None, None]:
        """What `work` makes of ranges of points and `more`, by whoever works; `progress` hears when one is done."""
        calls = ((first, last, self._handed(first, last), *more) for first, last in ranges)
        here = (work(*call) for call in calls)
        with closing(outcomes(self.jobs, work, calls) if self.jobs.workers else here) as finished:
            for part in finished:
                progress(self.task.steps * (part.last - part.first))
                yield part

    def _handed(self, first: int, last: int) -> NDArray | None:
        return None if self.given is None else self.given[first:last]


@dataclass(frozen=True, eq=False)
class _Saved:
    """What a `dataset` holds of points over axes of lengths `shape`."""

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


def _ranges(done: NDArray[np.bool_], size: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `size` points that are not `done`."""
    left = np.flatnonzero(~done)
    for run in np.split(left, np.flatnonzero(np.diff(left) > 1) + 1):
        for begin in range(0, len(run), size):
            piece = run[begin : begin + size]
            yield int(piece[0]), int(piece[-1]) + 1
