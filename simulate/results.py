"""The variables of a sweep: their names, dimensions and attributes, from the sizes of its blocks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from simulate.engines.choice import ENGINES
from simulate.observables import OBSERVABLES, Observable
from simulate.runs.columns import Column
from simulate.runs.result import Variable
from simulate.settle import NOT_RUN, STATUS

FILLS = {float: np.nan, object: ""}
"""What stands where there is nothing; −1 for other types."""


def _flags(words: Iterable[str]) -> dict[str, Any]:
    """The attributes of numbers that stand for `words`, from 0 on."""
    meanings = [word.replace(" ", "_") for word in words]
    return {"flag_values": np.arange(len(meanings), dtype=np.int8), "flag_meanings": " ".join(meanings)}


def _number(kind: Any, fill: Any, long_name: str, **attributes: Any) -> Column:
    return Column((), (), kind, fill, {"long_name": long_name, "units": "1", **attributes})


ENDINGS = {
    "layers": _number(np.int64, 0, "layers applied"),
    "status": _number(np.int8, NOT_RUN, "how the point ended", **_flags(STATUS)),
    "engine": _number(
        np.int8, -1, "what iterated the point, -1 for nothing", **_flags(engine.name for engine in ENGINES)
    ),
    "reason": _number(object, "", "why the point failed, else empty"),
}
"""Recorded whatever is measured."""

NAMES = (*OBSERVABLES, *ENDINGS)
"""What `measure` may name."""

RESERVED = {*NAMES, "k", "token", "feature", "axis", "start"}
"""Names that a swept parameter or a measure cannot have."""

LONGEST_NAME = 200
"""Bytes of a name, at most."""

NAME = re.compile(r"[A-Za-z0-9_\u00a1-\U0010ffff][^\x00-\x1f/\x7f]*")
"""What netCDF takes as a name, if it does not end in a space."""


def check_name(argument: str, name: object, taken: Collection[str] = ()) -> str:
    """`name` if it can be that of a variable in a file, and is not `taken` by another; else an ArgumentError."""
    plain = isinstance(name, str) and NAME.fullmatch(name) and name == name.rstrip()
    if not plain or not isinstance(name, str) or not unicodedata.is_normalized("NFC", name) or not _short(name):
        accepted = f"a name that netCDF takes: letters first, no '/', at most {LONGEST_NAME} bytes"
        raise ArgumentError(argument, f"the name {name!r}", accepted)
    if name in taken:
        used = ", ".join(sorted(taken))
        raise ArgumentError(argument, f"the name {name!r}", f"a name that is none of {used}")
    return name


def _short(name: str) -> bool:
    try:
        return len(name.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True)
class Layout:
    """Sizes of what is recorded: `shape` of the ring or torus of tokens, `d` features."""

    shape: tuple[int, ...]
    d: int

    @property
    def n(self) -> int:
        """Number of tokens."""
        return int(np.prod(self.shape))

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dimension beyond the swept ones."""
        ring = len(self.shape) == 1
        waves = {"k": self.n // 2 + 1} if ring else {f"k_{axis + 1}": size for axis, size in enumerate(self.shape)}
        return {
            "token": self.n,
            **waves,
            **({} if self.d == 1 else {"feature": self.d}),
            **({} if ring else {"axis": len(self.shape)}),
        }

    @property
    def names(self) -> set[str]:
        """Names of all variables and dimensions that may be there, beside the swept ones."""
        return RESERVED | self.sizes.keys()

    def column(self, observable: Observable) -> Column:
        """What is recorded of an `observable`."""
        sizes = self.sizes
        waves = [dim for dim in sizes if dim.startswith("k")]
        dims = tuple(dim for part in observable.dims for dim in (waves if part == "k" else [part]) if dim in sizes)
        attributes = {"long_name": observable.long_name or observable.name, "units": observable.units}
        fill = FILLS.get(observable.kind, -1)
        return Column(dims, tuple(sizes[dim] for dim in dims), observable.kind, fill, attributes)

    @property
    def coordinates(self) -> dict[str, Variable]:
        """Of each dimension beyond the swept ones."""
        names = {"token": "token", "feature": "feature", "axis": "axis of the torus"}
        return {
            dim: ((dim,), np.arange(size), {"long_name": names.get(dim, "wavenumber, q = 2 pi k/N"), "units": "1"})
            for dim, size in self.sizes.items()
        }

    def start(self, axes: Iterable[str], given: NDArray[np.float64]) -> dict[str, Variable]:
        """Start states `given`, (N, d) or (*swept, N, d), as a variable."""
        values = given[..., 0] if self.d == 1 else given
        tail = ("token",) if self.d == 1 else ("token", "feature")
        dims = (*axes, *tail) if values.ndim > len(tail) else tail
        return {"start": (dims, values, {"long_name": "start state x_j", "units": "1"})}
