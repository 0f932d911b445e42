"""The dataset of a sweep: its variables, their meaning, and how outcomes enter it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulate import observables
from simulate.linear import Critical
from simulate.settle import DIVERGED, FAILED, NOT_RUN, STATUS, Outcome

if TYPE_CHECKING:
    from xarray import Dataset

Columns = dict[str, tuple[tuple[str, ...], Any, str, str]]

COLUMNS: Columns = {
    # name: trailing dimensions, type, units, long name
    "state": (("token",), float, "1", "last state x_j; the last admissible one of a diverged point"),
    "spectrum": (("k",), float, "1", "modulus |B_k| of the Fourier amplitude, B_k = fft(x)_k/N"),
    "wavenumber": ((), np.int32, "1", "dominant wavenumber k >= 1, 0 if homogeneous, -1 if there is no state"),
    "amplitude": ((), float, "1", "|B_k| at the dominant wavenumber"),
    "phase_advance": ((), float, "rad", "arg(B_k after/B_k before) at the dominant wavenumber, last layer"),
    "critical_wavenumber": ((), np.int32, "1", "wavenumber of the leading multiplier at x = 0, -1 if undefined"),
    "critical_modulus": ((), float, "1", "modulus of the leading multiplier at x = 0"),
    "critical_phase": ((), float, "rad", "argument of the leading multiplier at x = 0"),
    "critical_amplitude": ((), float, "1", "|B_k| at the critical wavenumber"),
    "critical_phase_advance": ((), float, "rad", "arg(B_k after/B_k before) at the critical wavenumber, last layer"),
    "mean": ((), float, "1", "average over tokens"),
    "cluster_low": ((), float, "1", "mean of the tokens below the mid-range (min + max)/2"),
    "cluster_high": ((), float, "1", "mean of the tokens at or above the mid-range (min + max)/2"),
    "layers": ((), np.int64, "1", "layers applied"),
    "status": ((), np.int8, "1", "how the point ended"),
    "reason": ((), object, "1", "why the point failed, else empty"),
}

RESERVED = {*COLUMNS, "k", "token", "start"}
"""Names that a swept parameter cannot have."""


class Table:
    """Outcomes of `points` points of N tokens, one row each, until they become a dataset."""

    def __init__(self, points: int, n: int) -> None:
        self.points, self.n = points, n
        self.columns: dict[str, NDArray] = {}
        for name, (tail, kind, _, _) in COLUMNS.items():
            empty = {float: np.nan, object: ""}.get(kind, 0 if name == "layers" else -1)
            self.columns[name] = np.full((points, *(self._size(dim) for dim in tail)), empty, dtype=kind)
        self.status[:] = NOT_RUN

    @staticmethod
    def bytes_needed(points: int, n: int) -> int:
        """Bytes of a table, counted twice: once more while the dataset is written."""
        return 2 * 8 * points * (n + n // 2 + 1 + len(COLUMNS))

    @property
    def status(self) -> NDArray[np.int8]:
        """(points,) positions in `simulate.STATUS`."""
        return self.columns["status"]

    def fail(self, reasons: Mapping[int, str]) -> None:
        """Mark the points that are keys as failed, with the reasons."""
        for point, reason in reasons.items():
            self.status[point] = FAILED
            self.columns["reason"][point] = reason

    def enter(self, points: NDArray[np.int64], outcome: Outcome, critical: Critical) -> None:
        """Measure the outcomes of `points`; a diverged one has only its state and linear theory."""
        state, before = outcome.states, outcome.previous
        moduli = observables.spectrum(state)
        dominant = observables.dominant_of_spectrum(moduli)
        rows = np.arange(len(points))
        lowest, highest = observables.cluster_values(state).T
        measured = {
            "spectrum": moduli,
            "wavenumber": dominant,
            "amplitude": moduli[rows, dominant],
            "phase_advance": observables.phase_advance(before, state, dominant),
            "critical_amplitude": np.where(critical.k < 0, np.nan, moduli[rows, critical.k]),
            "critical_phase_advance": np.where(
                critical.k < 0, np.nan, observables.phase_advance(before, state, critical.k)
            ),
            "mean": state.mean(axis=1),
            "cluster_low": lowest,
            "cluster_high": highest,
        }
        alive = outcome.status != DIVERGED
        for name, values in measured.items():
            self.columns[name][points[alive]] = values[alive]
        known = {
            "state": state,
            "layers": outcome.layers,
            "status": outcome.status,
            "critical_wavenumber": critical.k,
            "critical_modulus": np.abs(critical.multiplier),
            "critical_phase": np.angle(critical.multiplier),
        }
        for name, values in known.items():
            self.columns[name][points] = values

    def dataset(
        self, axes: Mapping[str, NDArray], settings: Mapping[str, Any], start: NDArray[np.float64] | None
    ) -> Dataset:
        """The dataset over the swept parameters `axes`; `start` are given start states, if any."""
        import xarray

        shape = tuple(map(len, axes.values()))
        variables = {}
        for name, (tail, _, units, long_name) in COLUMNS.items():
            values = self.columns[name]
            attributes = {"long_name": long_name, "units": units}
            if name == "status":
                meanings = " ".join(word.replace(" ", "_") for word in STATUS)
                flags = {"flag_values": np.arange(len(STATUS), dtype=np.int8), "flag_meanings": meanings}
                attributes |= flags  # type: ignore[arg-type]
            variables[name] = ((*axes, *tail), values.reshape(*shape, *values.shape[1:]), attributes)
        if start is not None:
            dims = (*axes, "token") if start.ndim > 1 else ("token",)
            variables["start"] = (dims, start, {"long_name": "start state x_j", "units": "1"})
        coordinates: dict[str, Any] = {name: (name, values, {"long_name": name}) for name, values in axes.items()}
        for dim, long_name in {"k": "wavenumber, q = 2 pi k/N", "token": "token"}.items():
            coordinates[dim] = (dim, np.arange(self._size(dim)), {"long_name": long_name, "units": "1"})
        title = f"Iterated scalar Transformer block over {', '.join(axes)}"
        return xarray.Dataset(variables, coordinates, {"title": title, **settings, **versions()})

    def _size(self, dim: str) -> int:
        return {"token": self.n, "k": self.n // 2 + 1}[dim]


def versions() -> dict[str, str]:
    """Versions of what computed a result, as dataset attributes."""
    found = {"python_version": platform.python_version()}
    for package in ("numpy", "numba", "xarray", "tokenwaves"):
        try:
            found[f"{package}_version"] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[f"{package}_version"] = "not installed"
    return found
