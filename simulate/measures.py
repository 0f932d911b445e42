"""Measuring how points ended: the named quantities, and functions of the user."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block, dispersion_relation
from dispersion.ring.mode import Mode
from simulate import observables
from simulate.engines.choice import Model
from simulate.fields import wave_of
from simulate.linear import Critical
from simulate.results import ALWAYS, COLUMNS, DEFAULT, RESERVED, check_name
from simulate.runs.columns import Column, joined
from simulate.settle import Outcome
from simulate.trajectory import Trajectory

MeasureFunction = Callable[[Trajectory], Mapping[str, ArrayLike]]
Measure = str | MeasureFunction | Sequence[str | MeasureFunction] | None


@dataclass(frozen=True)
class Measures:
    """names : of COLUMNS. functions : from the Trajectory of a point, its last state alone, to numbers by name.

    taken : names that the functions cannot give. columns : what they are known to give.
    """

    names: tuple[str, ...]
    functions: tuple[MeasureFunction, ...]
    taken: frozenset[str] = frozenset(RESERVED)
    columns: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, measure: Measure) -> Measures:
        """From what `sweep` accepts."""
        if measure is None:
            return cls(DEFAULT, ())
        if not isinstance(measure, str | Iterable) and not callable(measure):
            raise ArgumentError("measure", repr(measure), f"a function, or names of {', '.join(COLUMNS)}")
        parts = [measure] if isinstance(measure, str) or callable(measure) else list(measure)
        names = [part for part in parts if isinstance(part, str)]
        unknown = [part for part in parts if not callable(part) and (part not in names or part not in COLUMNS)]
        if unknown:
            raise ArgumentError("measure", repr(unknown[0]), f"a function, or names of {', '.join(COLUMNS)}")
        return cls(tuple(name for name in names if name not in ALWAYS), tuple(p for p in parts if callable(p)))

    @property
    def critical(self) -> bool:
        """Whether the leading mode is asked for."""
        return any(name.startswith("critical") for name in self.names)

    def custom(self, path: Trajectory) -> dict[str, NDArray[np.float64]]:
        """What the functions measure on `path`; an ArgumentError says what cannot be recorded."""
        found: dict[str, NDArray[np.float64]] = {}
        for name, value in self._given(path):
            array = _numbers(name, value)
            self._check_name(name, found, array.ndim)
            found[name] = array
        return found

    def tried(self, path: Trajectory) -> Measures:
        """These with the columns that the functions give on `path`; {} where they fail there.

        An ArgumentError names what would fail everywhere: a name that cannot be used, a type that is no real number.
        """
        try:
            with warnings.catch_warnings(action="ignore"):
                given = self._given(path)
        except MemoryError:
            raise
        except Exception:
            return self
        columns: dict[str, Column] = {}
        for name, value in given:
            self._check_name(name, columns)
            try:
                kind = np.asarray(value).dtype.kind
            except ValueError:  # ragged
                continue
            if kind != "O":
                array = _numbers(name, value)
                self._check_name(name, columns, array.ndim)
                columns[name] = Column.custom(name, array.shape)
        return replace(self, columns=joined({}, columns))

    def _given(self, path: Trajectory) -> list[tuple[Any, Any]]:
        found: list[tuple[Any, Any]] = []
        for function in self.functions:
            given = function(path)
            if not isinstance(given, Mapping):
                raise ArgumentError("measure", type(given).__name__, "{name: number or array}")
            found += given.items()
        return found

    def _check_name(self, name: object, others: Collection[str], ndim: int = 0) -> None:
        """Refuse a name, or one of its dimensions, that no file can hold or that something else has."""
        check_name("measure", name, self.taken.union(others))
        for axis in range(ndim):
            check_name("measure", f"{name}_{axis}", self.taken)


def measure_scalars(outcome: Outcome, critical: Critical, names: tuple[str, ...]) -> dict[str, NDArray]:
    """Named quantities of P scalar points on a ring; NaN or wrong where a point diverged, but for KNOWN."""
    state, before = outcome.states[..., 0], outcome.previous[..., 0]
    moduli = observables.spectrum(state)
    dominant = observables.dominant_of_spectrum(moduli)
    rows = np.arange(len(state))
    undefined = critical.k < 0

    def clusters(high: int) -> NDArray[np.float64]:
        return observables.cluster_values(state)[:, high]

    quantities: dict[str, Callable[[], NDArray]] = {
        "state": lambda: state,
        "spectrum": lambda: moduli,
        "wavenumber": lambda: dominant,
        "amplitude": lambda: moduli[rows, dominant],
        "phase_advance": lambda: observables.phase_advance(before, state, dominant),
        "critical_wavenumber": lambda: critical.k,
        "critical_modulus": lambda: np.abs(critical.multiplier),
        "critical_phase": lambda: np.angle(critical.multiplier),
        "critical_amplitude": lambda: np.where(undefined, np.nan, moduli[rows, critical.k]),
        "critical_phase_advance": lambda: np.where(
            undefined, np.nan, observables.phase_advance(before, state, critical.k)
        ),
        "mean": lambda: state.mean(axis=1),
        "cluster_low": lambda: clusters(0),
        "cluster_high": lambda: clusters(1),
        "heterogeneity": lambda: observables.heterogeneity(state),
    }
    return {name: quantities[name]() for name in names if name in quantities}


KNOWN = ("state", "critical_wavenumber", "critical_modulus", "critical_phase")
"""Quantities that a diverged point has too."""


def measure_path(path: Trajectory, mode: Mode | None, names: Sequence[str]) -> dict[str, Any]:
    """Named quantities of any point; those of the leading `mode` are left out where it is None."""
    clusters = {"cluster_low": 0, "cluster_high": 1}
    found: dict[str, Any] = {}
    for name in names:
        if name in clusters:
            found[name] = path.cluster_values[..., clusters[name]]
        elif name in ("cluster_count", "cluster_separation"):
            found[name] = getattr(path, name)()
        elif name == "state":
            found[name] = path.state[:, 0] if path.block.d == 1 else path.state
        elif not name.startswith("critical"):
            found[name] = getattr(path, name)
        elif mode is not None:
            found[name] = _critical(path, mode, name)
    return found


def leading_mode(model: Model) -> Mode | None:
    """The leading mode of a Block at the state 0; None where it does not exist, and for a Chain."""
    if not isinstance(model, Block):
        return None
    try:
        return dispersion_relation(model).leading()
    except ArgumentError:
        return None


def _critical(path: Trajectory, mode: Mode, name: str) -> Any:
    wave = wave_of(path.previous, path.state, mode, path.shape)
    quantities: dict[str, Callable[[], Any]] = {
        "critical_wavenumber": lambda: mode.k,
        "critical_modulus": lambda: abs(mode.multiplier),
        "critical_phase": lambda: mode.phase,
        "critical_amplitude": lambda: float(np.abs(wave[1])),
        "critical_phase_advance": lambda: float(observables.turn(*wave)),
    }
    return quantities[name]()


def _numbers(name: str, value: ArrayLike) -> NDArray[np.float64]:
    accepted = "real numbers or arrays of them"
    try:
        array = np.asarray(value)
    except ValueError:
        raise ArgumentError("measure", f"{name} of rows of different lengths", accepted) from None
    if array.dtype.kind not in "biuf":
        raise ArgumentError("measure", f"{name} of type {array.dtype}", accepted)
    if array.size == 0 or np.ma.is_masked(value):
        got = "with masked values" if array.size else f"of shape {array.shape}"
        raise ArgumentError("measure", f"{name} {got}", accepted)
    return array.astype(np.float64)
