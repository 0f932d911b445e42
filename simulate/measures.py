"""What a sweep is asked to measure: observables, and functions of the user."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from simulate.observables import OBSERVABLES, Observable
from simulate.results import NAMES, RESERVED, check_name
from simulate.runs.columns import Column, joined
from simulate.trajectory import Trajectory

MeasureFunction = Callable[[Trajectory], Mapping[str, ArrayLike]]
Measure = str | Observable | MeasureFunction | Sequence[str | Observable | MeasureFunction] | None


@dataclass(frozen=True)
class Measures:
    """names : of OBSERVABLES. own : observables of the user. functions : from the Trajectory of a point, its last state
    alone, to numbers by name.

    taken : names that the functions cannot give. columns : what they are known to give.
    """

    names: tuple[str, ...]
    own: tuple[Observable, ...]
    functions: tuple[MeasureFunction, ...]
    taken: frozenset[str] = frozenset(RESERVED)
    columns: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, measure: Measure) -> Measures:
        """From what `sweep` accepts."""
        if measure is None:
            return cls(tuple(name for name, known in OBSERVABLES.items() if known.by_default), (), ())
        accepted = f"a function, an Observable, or names of {', '.join(NAMES)}"
        if not isinstance(measure, str | Iterable) and not callable(measure):
            raise ArgumentError("measure", repr(measure), accepted)
        parts = [measure] if isinstance(measure, str) or callable(measure) else list(measure)
        names, own, functions = [], [], []
        for part in parts:
            if isinstance(part, str) and part in NAMES:
                names.append(part)
            elif isinstance(part, Observable) and OBSERVABLES.get(part.name) is part:
                names.append(part.name)
            elif isinstance(part, Observable):
                own.append(part)
            elif callable(part):
                functions.append(part)
            else:
                raise ArgumentError("measure", repr(part), accepted)
        return cls(tuple(name for name in names if name in OBSERVABLES), tuple(own), tuple(functions))

    @property
    def observables(self) -> tuple[Observable, ...]:
        """All that are declared: the known ones in the order of OBSERVABLES, then those of the user."""
        return (*(known for name, known in OBSERVABLES.items() if name in self.names), *self.own)

    def beside(self, names: Iterable[str]) -> Measures:
        """These where `names` are taken; an ArgumentError if an observable of the user cannot have its name."""
        taken = set(names)
        for observable in self.own:
            taken.add(check_name("measure", observable.name, taken))
        return replace(self, taken=frozenset(taken))

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


def value_of(observable: Observable, path: Trajectory, column: Column) -> NDArray[np.float64] | None:
    """What is recorded of an `observable` on `path`, None if it is not defined; an ArgumentError if it is not fit."""
    value = observable(path)
    if value is None:
        return None
    array = _numbers(observable.name, value)
    if array.shape == (*column.sizes, 1):  # of one feature
        array = array[..., 0]
    column.check(observable.name, array.shape)
    return array


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
