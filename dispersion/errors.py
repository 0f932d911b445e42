"""Errors and the checks that raise them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class ArgumentError(ValueError):
    """A value that cannot be used: names the argument, what it got and what is accepted."""

    def __init__(self, argument: str, got: object, accepted: str) -> None:
        self.argument = argument
        self.got = got
        self.accepted = accepted
        super().__init__(f"{argument}: got {got}; accepted: {accepted}")


class ExclusionError(ArgumentError):
    """A well-formed question that lies outside the derivation of the closed form asked for."""


def real_number(argument: str, value: object, *, positive: bool = False) -> float:
    """`value` as a finite float, greater than zero if `positive`."""
    accepted = "a finite positive number" if positive else "a finite number"
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ArgumentError(argument, repr(value), accepted) from None
    if not np.isfinite(number) or (positive and number <= 0):
        raise ArgumentError(argument, number, accepted)
    return number


def whole_number(argument: str, value: object, least: int) -> int:
    """`value` as an int, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(argument, repr(value), f"a whole number of at least {least}")
    return int(value)


def frozen_array(argument: str, value: ArrayLike, shape: tuple[int | None, ...]) -> NDArray[np.float64]:
    """`value` as a read-only float64 array of finite numbers.

    `shape` gives the accepted shape, `None` standing for any length ≥ 1.
    """
    try:
        if np.iscomplexobj(value):
            raise TypeError
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(argument, f"{type(value).__name__} that is not real", _finite(shape)) from None
    if array.shape != shape and (
        array.ndim != len(shape)
        or any(size != want if want is not None else size == 0 for size, want in zip(array.shape, shape, strict=True))
    ):
        raise ArgumentError(argument, f"shape {array.shape}", _finite(shape))
    if not np.isfinite(array).all():
        got = f"{int((~np.isfinite(array)).sum())} values that are not finite"
        raise ArgumentError(argument, got, _finite(shape))
    return frozen(array)


def _finite(shape: tuple[int | None, ...]) -> str:
    described = "×".join("n" if size is None else str(size) for size in shape) or "scalar"
    return f"finite real numbers of shape ({described})"


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """`array` itself, made read-only."""
    array.flags.writeable = False
    return array
