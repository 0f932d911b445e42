"""The result of a sweep as a dataset: in memory, or as what `simulate.runs.store.write` copies into a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulate.results import Layout, attributes, coordinates
from simulate.runs.columns import Column
from simulate.runs.journal import Store

if TYPE_CHECKING:
    from xarray import Dataset


@dataclass(frozen=True, eq=False)
class Result:
    """Outcomes and what describes them.

    store : the outcomes. axes : the swept values by name. layout : sizes beyond them. attributes : of the whole.
    start : given start states, (N, d) or (*swept, N, d), or None. columns : what was known to be recorded.
    """

    store: Store
    axes: Mapping[str, NDArray]
    layout: Layout
    attributes: Mapping[str, Any]
    start: NDArray[np.float64] | None
    columns: Mapping[str, Column]

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each swept axis."""
        return tuple(map(len, self.axes.values()))

    @property
    def variables(self) -> dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]]:
        """(dimensions, type, attributes) of each variable."""
        return {
            name: ((*self.axes, *column.dims), column.kind, attributes(name, column))
            for name, column in self._columns.items()
        }

    @property
    def starts(self) -> dict[str, tuple[tuple[str, ...], NDArray, dict[str, Any]]]:
        """The given start states as a variable, if there are any."""
        if self.start is None:
            return {}
        values = self.start[..., 0] if self.layout.d == 1 else self.start
        tail = ("token",) if self.layout.d == 1 else ("token", "feature")
        dims = (*self.axes, *tail) if values.ndim > len(tail) else tail
        return {"start": (dims, values, {"long_name": "start state x_j", "units": "1"})}

    @property
    def coordinates(self) -> dict[str, tuple[str, NDArray, dict[str, Any]]]:
        """(dimension, values, attributes) of each coordinate."""
        return coordinates(self.axes, self.layout, self._used())

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dimension."""
        found = dict(zip(self.axes, self.shape, strict=True))
        found |= {dim: size for dim, size in self.layout.sizes.items() if dim in self._used()}
        for column in self._columns.values():
            found |= dict(zip(column.dims, column.sizes, strict=True))
        return found

    def dataset(self) -> Dataset:
        """In memory."""
        import xarray

        points = int(np.prod(self.shape))
        variables: dict[str, Any] = {}
        for name, (dims, _, attrs) in self.variables.items():
            values = self.store.rows(name, 0, points)
            variables[name] = (dims, values.reshape(*self.shape, *values.shape[1:]), attrs)
        return xarray.Dataset(variables | self.starts, self.coordinates, dict(self.attributes))

    @property
    def _columns(self) -> dict[str, Column]:
        """All columns: those known before the work, then others by name, whichever point had them first."""
        late = sorted(self.store.columns.keys() - self.columns.keys())
        return {name: self.store.columns[name] for name in (*self.columns, *late)}

    def _used(self) -> set[str]:
        used = {dim for column in self.store.columns.values() for dim in column.dims}
        return used | ({"token", "feature"} if self.start is not None else set())
