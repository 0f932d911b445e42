"""What every noun is: frozen, its arrays read-only from the start and after any copy, nothing cached carried over."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from inspect import isfunction
from typing import Any, TypeVar

import numpy as np

from dispersion.quiet import harmless_underflow

T = TypeVar("T")


class Noun:
    """The base of frozen dataclasses whose cached properties may rely on their fields.

    Arrays in the fields, and in tuples, lists and dictionaries there, are made read-only. A copy or a pickle holds the
    fields alone: what is cached is computed anew from them. In methods and cached properties underflow is harmless;
    methods of one underscore are called from these.
    """

    def __init_subclass__(cls) -> None:
        for name, member in list(vars(cls).items()):
            if name.startswith("_") and not name.startswith("__"):
                continue
            if isfunction(member):
                setattr(cls, name, harmless_underflow(member))
            elif isinstance(member, classmethod):
                setattr(cls, name, classmethod(harmless_underflow(member.__func__)))

    def __post_init__(self) -> None:
        for value in vars(self).values():
            read_only(value)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, read_only(value))


def read_only(value: Any) -> Any:
    """`value` itself, the arrays in it made read-only."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, tuple | list):
        for part in value:
            read_only(part)
    elif isinstance(value, dict):
        for part in value.values():
            read_only(part)
    return value


class cached_property(functools.cached_property[T]):
    """functools.cached_property of a value whose arrays are read-only."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        @functools.wraps(compute)
        @harmless_underflow
        def frozen(noun: Any) -> T:
            return read_only(compute(noun))

        super().__init__(frozen)
