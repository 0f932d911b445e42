"""Errors and the checks that raise them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LONGEST = 300
"""Characters of a value, or of the name of an argument, that an error shows."""


class ArgumentError(ValueError):
    """A value that cannot be used: names the argument, what it got and what is accepted, in one line.

    What it got is kept as text, so that the error can be pickled, copied, and sent from process to process.
    """

    def __init__(self, argument: str, got: object, accepted: str) -> None:
        self.argument = shown(argument, str)
        self.got = shown(got, str)
        self.accepted = accepted
        super().__init__(self.argument, self.got, self.accepted)

    def __str__(self) -> str:
        return f"{self.argument}: got {self.got}; accepted: {self.accepted}"


class ExclusionError(ArgumentError):
    """A well-formed question that lies outside the derivation of the closed form asked for."""


def shown(value: object, text: Callable[[object], str] = repr) -> str:
    """`value` as one line of printable text, cut short if it is long."""
    try:
        line = text(value)
    except Exception:  # an integer of 5000 digits, or a stranger's __repr__
        return f"{type(value).__name__} that cannot be shown"
    if not isinstance(value, str):
        line = " ".join(line.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 4 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def real_number(argument: str, value: object, *, positive: bool = False) -> float:
    """`value` as a finite float, greater than zero if `positive`."""
    accepted = "a finite positive number" if positive else "a finite number"
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(argument, shown(value), accepted) from None
    if not np.isfinite(number) or (positive and number <= 0):
        raise ArgumentError(argument, number, accepted)
    return number


def whole_number(argument: str, value: object, least: int) -> int:
    """`value` as an int, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(argument, shown(value), f"a whole number of at least {least}")
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
