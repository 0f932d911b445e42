"""The result of long work as a dataset: in memory, or as what `simulate.runs.netcdf.write` copies into a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulate.runs.columns import Column
from simulate.runs.store import Store

if TYPE_CHECKING:
    from xarray import Dataset

Variable = tuple[tuple[str, ...], NDArray, Mapping[str, Any]]
"""(dimensions, values, attributes)."""


@dataclass(frozen=True, eq=False)
class Result:
    """Outcomes and what describes them.

    store : the outcomes. columns : what was known to be recorded. axes : the values that number the points, in C order,
    by name. coordinates : values of the dimensions beyond them that may be there. given : variables besides the
    outcomes. attributes : of the whole.
    """

    store: Store
    columns: Mapping[str, Column]
    axes: Mapping[str, NDArray]
    coordinates: Mapping[str, Variable]
    given: Mapping[str, Variable]
    attributes: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return tuple(map(len, self.axes.values()))

    @property
    def variables(self) -> dict[str, tuple[tuple[str, ...], Any, Mapping[str, Any]]]:
        """(dimensions, type, attributes) of each outcome: those known before the work, then others by name."""
        late = sorted(self.store.columns.keys() - self.columns.keys())
        columns = {name: self.store.columns[name] for name in (*self.columns, *late)}
        return {name: ((*self.axes, *column.dims), column.kind, column.attributes) for name, column in columns.items()}

    @property
    def known(self) -> dict[str, Variable]:
        """The coordinates and the variables that are `given`."""
        axes: dict[str, Variable] = {name: ((name,), values, {"long_name": name}) for name, values in self.axes.items()}
        return axes | {name: self.coordinates[name] for name in self._used} | dict(self.given)

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dimension."""
        found = dict(zip(self.axes, self.shape, strict=True)) | {
            name: len(self.coordinates[name][1]) for name in self._used
        }
        for column in map(self.store.columns.__getitem__, self.variables):
            found |= dict(zip(column.dims, column.sizes, strict=True))
        return found

    def dataset(self) -> Dataset:
        """In memory."""
        import xarray

        points = int(np.prod(self.shape))
        variables: dict[str, Any] = {}
        for name, (dims, _, attributes) in self.variables.items():
            values = self.store.rows(name, 0, points)
            variables[name] = (dims, values.reshape(*self.shape, *values.shape[1:]), attributes)
        coordinates = {name: known for name, known in self.known.items() if name not in self.given}
        return xarray.Dataset(variables | dict(self.given), coordinates, dict(self.attributes))

    @property
    def _used(self) -> list[str]:
        """The coordinates that an outcome, or what is given, has as a dimension."""
        columns = [column.dims for column in self.store.columns.values()]
        used = {dim for dims in [*columns, *(dims for dims, _, _ in self.given.values())] for dim in dims}
        return [name for name in self.coordinates if name in used]
