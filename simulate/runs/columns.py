"""Outcomes of ranges of points, variable by variable: what long work hands over and a store keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import ArgumentError


@dataclass(frozen=True)
class Column:
    """One variable: its dimensions beyond those of the points, their sizes, its type and attributes.

    fill : what stands where there is nothing.
    """

    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    kind: Any
    fill: Any
    attributes: Mapping[str, Any]

    @classmethod
    def custom(cls, name: str, sizes: tuple[int, ...]) -> Column:
        """What is measured under a `name` that was not known before: arrays of these `sizes`."""
        dims = tuple(f"{name}_{axis}" for axis in range(len(sizes)))
        return cls(dims, sizes, float, np.nan, {"long_name": f"measured {name}", "units": "1"})

    @property
    def bytes_each(self) -> int:
        """Bytes of one point."""
        return int(np.dtype(self.kind).itemsize * np.prod(self.sizes, dtype=np.int64))

    def blank(self, points: int) -> NDArray:
        """(points, *sizes) of what stands where there is nothing."""
        return np.full((points, *self.sizes), self.fill, dtype=self.kind)

    def check(self, name: str, sizes: tuple[int, ...]) -> None:
        """Refuse an array of other `sizes` under the same `name`."""
        if sizes != self.sizes:
            raise ArgumentError("measure", f"{name} of shape {sizes}", f"shape {self.sizes} as at other points")


def joined(columns: Mapping[str, Column], others: Mapping[str, Column]) -> dict[str, Column]:
    """`columns` and `others`; an ArgumentError says where the two differ, or a variable has the name of a dimension."""
    found = dict(columns)
    for name, column in others.items():
        if name in found:
            found[name].check(name, column.sizes)
        else:
            found[name] = column
    if len(found) > len(columns):
        dims = {dim: name for name, column in found.items() for dim in column.dims}
        for name in found.keys() & dims.keys():
            raise ArgumentError("measure", f"the name {name!r}", f"a name that is no dimension of {dims[name]!r}")
    return found


@dataclass(eq=False)
class Part:
    """Outcomes of the points `first` to `last`: arrays (points, …) by name, and reasons of failures by point.

    origin : what the points were computed from, in hexadecimal digits; the same for the same. trait : what all points
    of the work must share, as `Task.agreed` takes it; None where none has it.
    """

    first: int
    last: int
    columns: dict[str, Column] = field(default_factory=dict)
    values: dict[str, NDArray] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    origin: str = "0"
    trait: Any = None

    @classmethod
    def blank(cls, first: int, last: int, columns: Mapping[str, Column]) -> Part:
        """Nothing yet, of `columns`."""
        return cls(first, last, dict(columns), {name: column.blank(last - first) for name, column in columns.items()})

    def enter(self, name: str, rows: NDArray[np.int64] | int, values: object) -> None:
        """Write `values` at `rows`, counted from `first`."""
        if name not in self.values:
            self.values[name] = self.columns[name].blank(self.last - self.first)
        self.values[name][rows] = values

    def enter_custom(self, row: int, measured: Mapping[str, NDArray[np.float64]]) -> None:
        """Write what was measured at one point under names that may not have been known before."""
        for name, value in measured.items():
            self.columns.setdefault(name, Column.custom(name, value.shape)).check(name, value.shape)
            self.enter(name, row, value)
