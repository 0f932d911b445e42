"""What long work does: outcomes of numbered points, a range of them at a time, wherever it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from simulate.runs.columns import Column, Part


class Found(Protocol):
    """What there is of some work: `rows` (points, …) of one variable, `first` to `last`."""

    def rows(self, name: str, first: int, last: int) -> NDArray: ...


Progress = Callable[[int], object]
"""What is told the steps done."""


def ignored(steps: int) -> None:
    """A Progress that nobody looks at."""


class Task(ABC):
    """Points 0, 1, … to be worked on; small, and to be pickled, so that it can be sent to where the work is done.

    kind, made_of, unit : what messages call the work, what its points come from, and the steps of its progress.
    """

    kind: ClassVar[str] = "work"
    made_of: ClassVar[str] = "origins"
    unit: ClassVar[str] = "step"

    @property
    def steps(self) -> int:
        """Steps of progress in a point."""
        return 1

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Column]:
        """What is known to be recorded, by name."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of points."""

    @abstractmethod
    def run(self, first: int, last: int, given: NDArray | None, progress: Progress) -> Part:
        """The outcomes of the points `first` to `last`.

        given : (points, …) what these points are handed, if anything. progress : told the steps done.
        """

    def identify(self, first: int, last: int, given: NDArray | None) -> Part:
        """`run` without running: the origin and trait of the points alone."""
        return Part(first, last)

    def agreed(self, traits: Iterable[Any]) -> Any:
        """The trait that all have of `traits`, None aside; an ArgumentError if two differ."""
        return None

    def verify(self, done: NDArray[np.int64], found: Found, given: NDArray | None) -> None:  # noqa: B027
        """Refuse, with an ArgumentError, what was `found` at the points `done` if it is not what would be found now.

        given : (all points, …) what each point is handed, if anything.
        """
