"""What a sweep records at each point: the variables, their dimensions and their meaning."""

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
from simulate.runs.columns import Column
from simulate.runs.result import Variable
from simulate.settle import NOT_RUN, STATUS

Columns = dict[str, tuple[tuple[str, ...], Any, str, str]]

COLUMNS: Columns = {
    # name: trailing dimensions, type, units, long name. No 'feature' for d = 1; 'axis' on a torus only; 'k' is
    # k_1, …, k_D on a torus
    "state": (("token", "feature"), float, "1", "last state x_j; the last admissible one of a diverged point"),
    "spectrum": (("k", "feature"), float, "1", "modulus |B_k| of the Fourier amplitude, B_k = fft(x)_k/N"),
    "wavenumber": (("axis",), np.int32, "1", "dominant wavenumber k >= 1, 0 if homogeneous, -1 if there is no state"),
    "amplitude": ((), float, "1", "|B_k| at the dominant wavenumber"),
    "phase_advance": ((), float, "rad", "arg(B_k after/B_k before) at the dominant wavenumber, last layer"),
    "critical_wavenumber": (("axis",), np.int32, "1", "wavenumber of the leading multiplier at x = 0, -1 if undefined"),
    "critical_modulus": ((), float, "1", "modulus of the leading multiplier at x = 0"),
    "critical_phase": ((), float, "rad", "argument of the leading multiplier at x = 0"),
    "critical_amplitude": ((), float, "1", "|w* B_k| at the critical wavenumber, w the critical left vector"),
    "critical_phase_advance": ((), float, "rad", "arg(w* B_k after/w* B_k before) at that wavenumber, last layer"),
    "mean": (("feature",), float, "1", "average over tokens"),
    "cluster_low": (("feature",), float, "1", "mean of the tokens below the mid-range (min + max)/2"),
    "cluster_high": (("feature",), float, "1", "mean of the tokens at or above the mid-range (min + max)/2"),
    "heterogeneity": ((), float, "1", "|X - mean|/|X|, small at rank collapse"),
    "cluster_count": ((), np.int32, "1", "number of clusters of tokens, -1 if there is no state"),
    "cluster_separation": ((), float, "1", "smallest distance between two cluster means, 0 for one cluster"),
    "layers": ((), np.int64, "1", "layers applied"),
    "status": ((), np.int8, "1", "how the point ended"),
    "engine": ((), np.int8, "1", "what iterated the point, -1 for nothing"),
    "reason": ((), object, "1", "why the point failed, else empty"),
}

ALWAYS = ("layers", "status", "engine", "reason")
"""Recorded whatever is measured."""

FLAGS = {"status": STATUS, "engine": ENGINES}
"""What the numbers in a variable stand for, from 0 on."""

ON_REQUEST = ("cluster_count", "cluster_separation")
"""Measured only when named."""

DEFAULT = tuple(name for name in COLUMNS if name not in (*ALWAYS, *ON_REQUEST))

RESERVED = {*COLUMNS, "k", "token", "feature", "axis", "start"}
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

    def column(self, name: str) -> Column:
        """One of COLUMNS on this layout."""
        tail, kind, units, long_name = COLUMNS[name]
        sizes = self.sizes
        waves = [dim for dim in sizes if dim.startswith("k")]
        dims = tuple(dim for part in tail for dim in (waves if part == "k" else [part]) if dim in sizes)
        fills = {"status": NOT_RUN, "layers": 0}
        fill = fills.get(name, {float: np.nan, object: ""}.get(kind, -1))
        attributes: dict[str, Any] = {"long_name": long_name, "units": units}
        if name in FLAGS:
            words = " ".join(word.replace(" ", "_") for word in FLAGS[name])
            attributes |= {"flag_values": np.arange(len(FLAGS[name]), dtype=np.int8), "flag_meanings": words}
        return Column(dims, tuple(sizes[dim] for dim in dims), kind, fill, attributes)

    def columns(self, names: Iterable[str]) -> dict[str, Column]:
        """The columns `names` and those that are always there, by name in the order of COLUMNS."""
        wanted = {*names, *ALWAYS}
        return {name: self.column(name) for name in COLUMNS if name in wanted}

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
