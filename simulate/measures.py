"""Measuring how points ended: the named quantities, and functions of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block, dispersion_relation
from dispersion.mode import Mode
from simulate import observables
from simulate.engines import Model
from simulate.fields import wave_of
from simulate.linear import Critical
from simulate.results import ALWAYS, COLUMNS, DEFAULT, RESERVED
from simulate.settle import Outcome
from simulate.trajectory import Trajectory

MeasureFunction = Callable[[Trajectory], Mapping[str, ArrayLike]]
Measure = str | MeasureFunction | Sequence[str | MeasureFunction] | None


@dataclass(frozen=True)
class Measures:
    """names : of COLUMNS. functions : from the Trajectory of a point, its last state alone, to numbers by name."""

    names: tuple[str, ...]
    functions: tuple[MeasureFunction, ...]

    @classmethod
    def of(cls, measure: Measure) -> Measures:
        """From what `sweep` accepts."""
        if measure is None:
            return cls(DEFAULT, ())
        parts = [measure] if isinstance(measure, str) or callable(measure) else list(measure)
        names = [part for part in parts if isinstance(part, str)]
        unknown = [part for part in parts if not callable(part) and part not in COLUMNS]
        if unknown:
            raise ArgumentError("measure", repr(unknown[0]), f"a function, or names of {', '.join(COLUMNS)}")
        return cls(tuple(name for name in names if name not in ALWAYS), tuple(p for p in parts if callable(p)))

    @property
    def critical(self) -> bool:
        """Whether the leading mode is asked for."""
        return any(name.startswith("critical") for name in self.names)

    def custom(self, path: Trajectory) -> dict[str, NDArray[np.float64]]:
        """What the functions measure on `path`."""
        found: dict[str, NDArray[np.float64]] = {}
        for function in self.functions:
            for name, value in dict(function(path)).items():
                found[name] = _checked(name, value)
        return found


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


def _checked(name: object, value: ArrayLike) -> NDArray[np.float64]:
    if not isinstance(name, str) or name in RESERVED:
        raise ArgumentError("measure", f"the name {name!r}", f"a name that is none of {', '.join(sorted(RESERVED))}")
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ArgumentError("measure", f"{name} of type {array.dtype}", "real numbers or arrays of them")
    return array.astype(np.float64)
