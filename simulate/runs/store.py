"""Outcomes of long work by point, kept in memory; `simulate.runs.journal` keeps them on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulate.runs.columns import Column, Part, joined

Origins = list[tuple[int, int, str]]
"""(first, last, origin) of ranges of points."""


class Store(Protocol):
    """Outcomes by point.

    done : (points,) which points have one. origins : what they come from. columns : the variables so far, by name.
    """

    done: NDArray[np.bool_]
    origins: Origins
    columns: dict[str, Column]

    def put(self, part: Part) -> None:
        """Keep the outcomes of a range of points."""

    def rows(self, name: str, first: int, last: int) -> NDArray:
        """(points, …) of one variable, `first` to `last`."""


class Memory:
    """A Store in memory, of `columns` for `points` points."""

    def __init__(self, points: int, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)
        self.done = np.zeros(points, dtype=bool)
        self.origins: Origins = []
        self._values = {name: column.blank(points) for name, column in columns.items()}

    def put(self, part: Part) -> None:
        """Keep the outcomes of a range of points."""
        self.columns = joined(self.columns, part.columns)
        for name, values in part.values.items():
            if name not in self._values:
                self._values[name] = self.columns[name].blank(len(self.done))
            self._values[name][part.first : part.last] = values
        self.origins.append((part.first, part.last, part.origin))
        self.done[part.first : part.last] = True

    def rows(self, name: str, first: int, last: int) -> NDArray:
        """(points, …) of one variable, `first` to `last`."""
        return self._values[name][first:last]
