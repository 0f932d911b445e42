"""Errors and the checks that raise them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")

RNG = int | Sequence[int] | np.random.SeedSequence | np.random.BitGenerator | np.random.Generator | None
"""What numpy.random.default_rng accepts."""

FLOAT, COMPLEX = np.dtype(np.float64), np.dtype(np.complex128)

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
    number: float | None = None
    try:
        if type(value) is float:
            number = value
        elif (array := _numbers(value)).ndim == 0 and array.dtype == FLOAT:
            number = float(array)
    except (TypeError, ValueError, OverflowError):
        pass
    if number is None or not isfinite(number) or (positive and number <= 0):
        raise ArgumentError(argument, shown(value) if number is None else number, accepted)
    return number


def whole_number(argument: str, value: object, least: int, most: int = 2**63 - 1) -> int:
    """`value` as an int from `least` to `most`."""
    if type(value) is int and least <= value <= most:
        return value
    if (
        isinstance(value, bool | np.timedelta64)
        or not isinstance(value, int | np.integer)
        or not least <= value <= most
    ):
        small = most == 2**63 - 1 and not (isinstance(value, int) and value > most)
        span = f"of at least {least}" if small else f"from {least} to {most}"
        raise ArgumentError(argument, shown(value), f"a whole number {span}")
    return int(value)


def flag(argument: str, value: object) -> bool:
    """`value` as a bool: True or False, nothing that merely counts as one."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(argument, shown(value), "True or False")
    return bool(value)


def choice(argument: str, value: object, options: Iterable[str]) -> str:
    """`value` if it is one of the words `options`."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        *others, last = map(repr, options)
        accepted = f"{', '.join(others)} or {last}" if len(options) < 4 else ", ".join(options)
        raise ArgumentError(argument, shown(value), accepted)
    return str(value)


def instance(argument: str, value: T, *kinds: type) -> T:
    """`value` if it is of one of the `kinds`."""
    if not isinstance(value, kinds):
        names = [f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}" for kind in kinds]
        raise ArgumentError(argument, type(value).__name__, " or ".join(names))
    return value


def items(argument: str, value: Iterable[T]) -> list[T]:
    """What the iterable `value` holds."""
    try:
        return list(value)
    except TypeError:
        raise ArgumentError(argument, shown(value), "a sequence") from None


def generator(argument: str, rng: RNG) -> np.random.Generator:
    """The generator of `rng`, whatever numpy.random.default_rng accepts."""
    accepted = "a whole number ≥ 0, or what else numpy.random.default_rng accepts"
    if isinstance(rng, bool | np.bool_):
        raise ArgumentError(argument, shown(rng), accepted)
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise ArgumentError(argument, shown(rng), accepted) from None


def number_array(argument: str, value: ArrayLike) -> NDArray[Any]:
    """`value` as an array of float64, or of complex128 where it is complex; shape, NaN and infinities as they are.

    Nothing is dropped on the way: strings, booleans, missing values and masked ones are refused.
    """
    try:
        return _numbers(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(argument, _described(value), "numbers") from None


def real_array(argument: str, value: ArrayLike, accepted: str = "real numbers") -> NDArray[np.float64]:
    """`number_array` of real numbers: complex ones are refused."""
    try:
        array = _numbers(value)
        if array.dtype == FLOAT:
            return array
    except (TypeError, ValueError, OverflowError):
        pass
    raise ArgumentError(argument, _described(value), accepted) from None


def whole_array(argument: str, value: ArrayLike, accepted: str = "whole numbers") -> NDArray[np.int64]:
    """`value` as an array of int64, from an array of integers; nothing else is rounded to one."""
    try:
        if not _loses(value) and (array := np.asarray(value)).dtype.kind in "iu" and (array <= 2**63 - 1).all():
            return array.astype(np.int64, copy=False)
    except Exception:  # of a stranger's __array__
        pass
    raise ArgumentError(argument, _described(value), accepted) from None


def bool_array(argument: str, value: ArrayLike) -> NDArray[np.bool_]:
    """`value` as an array of bool; the numbers 0 and 1 count as such."""
    accepted = "True and False, or 1 and 0"
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ArgumentError(argument, "masked values", accepted)
    try:
        array = np.asarray(value)
        if array.dtype == bool:
            return array
        if array.dtype.kind in "iuf" and ((array == 0) | (array == 1)).all():
            return array.astype(bool)
    except Exception:  # of ragged lists, or a stranger's __array__
        raise ArgumentError(argument, type(value).__name__, accepted) from None
    nan = array.dtype.kind == "f" and np.isnan(array).any()
    raise ArgumentError(argument, "NaN" if nan else f"{array.dtype} that is neither 0 nor 1", accepted)


def frozen_array(argument: str, value: ArrayLike, shape: tuple[int | None, ...]) -> NDArray[np.float64]:
    """`value` as a read-only float64 array of finite numbers, of its own unless the memory of `value` is read-only.

    `shape` gives the accepted shape, `None` standing for any length ≥ 1.
    """
    if type(value) is np.ndarray and value.dtype == FLOAT:
        array: NDArray[np.float64] = value
    else:
        array = real_array(argument, value, _finite(shape))
    check_shape(argument, array, shape)
    if not all_finite(array):
        got = f"{int((~np.isfinite(array)).sum())} values that are not finite"
        raise ArgumentError(argument, got, _finite(shape))
    return array if array is value and _unchanging(array) else frozen(np.array(array))


def _unchanging(array: NDArray[Any]) -> bool:
    """Whether `array` is read-only and so is all that it is a view of, down to the array whose memory it is."""
    while array.base is not None and not array.flags.writeable and type(array.base) is np.ndarray:
        array = array.base
    return array.base is None and not array.flags.writeable


def frozen_logits(argument: str, value: ArrayLike, shape: tuple[int | None, ...] | None = None) -> NDArray[np.float64]:
    """`frozen_array` in which −inf is accepted; of any shape for None."""
    accepted = "finite numbers, or −inf to remove an entry"
    array = real_array(argument, value, accepted)
    if shape is not None:
        check_shape(argument, array, shape)
    if not all_finite(array) and (np.isnan(array).any() or (array == np.inf).any()):
        raise ArgumentError(argument, "NaN or +inf", accepted)
    return frozen(np.array(array))


def states(argument: str, value: ArrayLike, *sizes: int | None) -> NDArray[Any]:
    """`number_array` of shape (…, *sizes), None standing for any length ≥ 1."""
    array = number_array(argument, value)
    if not _fits(array.shape[-len(sizes) :], sizes):
        shape = ", ".join("n" if size is None else str(size) for size in sizes)
        raise ArgumentError(argument, f"shape {array.shape}", f"numbers of shape (…, {shape})")
    return array


def real_states(argument: str, value: ArrayLike, *sizes: int | None) -> NDArray[np.float64]:
    """`states` of real numbers."""
    return states(argument, real_array(argument, value), *sizes)


def vector(argument: str, value: ArrayLike, size: int) -> NDArray[np.float64]:
    """`real_array` of finite numbers, shape (size,)."""
    array = real_array(argument, value)
    check_shape(argument, array, (size,))
    if not all_finite(array):
        raise ArgumentError(argument, "values that are not finite", _finite((size,)))
    return array


def optional_vector(argument: str, value: ArrayLike | None, size: int) -> NDArray[np.float64] | None:
    """`value` as a read-only (size,) array, or None."""
    return None if value is None else frozen_array(argument, value, (size,))


def file_path(argument: str, path: object) -> Path:
    """`path` as a Path."""
    try:
        found = Path(path)  # type: ignore[arg-type]
        found.stat()
    except TypeError:
        raise ArgumentError(argument, shown(path), "the path of a file") from None
    except OSError:
        pass
    except ValueError:  # NUL, or a surrogate that is no byte
        raise ArgumentError(argument, shown(path), "the path of a file") from None
    return found


def broadcast(kind: Callable[[str, ArrayLike], NDArray], **values: ArrayLike) -> list[NDArray]:
    """The arguments named, `number_array` or `real_array` as `kind` says, broadcast together."""
    arrays = [kind(argument, value) for argument, value in values.items()]
    try:
        return list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ArgumentError(", ".join(values), f"shapes {shapes}", "shapes that can be broadcast together") from None


def all_finite(array: NDArray) -> bool:
    """Whether every entry is finite; counting takes less time than `all` where there are few."""
    return bool(np.count_nonzero(np.isfinite(array)) == array.size)


def check_shape(argument: str, array: NDArray, shape: tuple[int | None, ...]) -> None:
    """Refuse an `array` that has not the `shape`, `None` standing for any length ≥ 1."""
    if not _fits(array.shape, shape):
        raise ArgumentError(argument, f"shape {array.shape}", _finite(shape))


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether `shape` is the one `wanted`, `None` standing for any length ≥ 1."""
    return shape == wanted or (
        len(shape) == len(wanted)
        and not any(size == 0 if want is None else size != want for size, want in zip(shape, wanted, strict=True))
    )


def _numbers(value: object) -> NDArray[Any]:
    """`value` as an array of float64 or complex128, itself if it is one; a TypeError or ValueError if it is not."""
    if type(value) is np.ndarray and (value.dtype == FLOAT or value.dtype == COMPLEX):
        return value
    if type(value) is float:
        return np.array(value)
    if _loses(value):
        raise TypeError
    try:
        array = np.asarray(value)
    except Exception as error:  # of a stranger's __array__
        raise TypeError from error
    kind = array.dtype.kind
    if kind == "O":
        return np.array([_number(entry) for entry in array.ravel()], dtype=None if array.size else float).reshape(
            array.shape
        )
    if kind not in "iufc":
        raise TypeError
    double = np.dtype(np.complex128 if kind == "c" else np.float64)
    if array.dtype.itemsize <= double.itemsize:
        return array.astype(double, copy=False)
    with np.errstate(over="ignore", under="ignore"):
        numbers = array.astype(double)
    if (np.isfinite(array) & ~np.isfinite(numbers)).any():
        raise OverflowError
    return numbers


def _loses(value: object) -> bool:
    """Whether numpy would take `value` for numbers at the price of a mask, or of what a boolean or text means."""
    if isinstance(value, list | tuple):
        return any(map(_loses, value))
    if isinstance(value, np.ma.MaskedArray):
        return bool(np.ma.is_masked(value))
    return isinstance(value, str | bytes | bytearray | bool | np.bool_)


def _number(entry: object) -> float | complex:
    """An entry of an array of objects: whatever is a number to Python."""
    if np.ndim(entry) or _loses(entry) or isinstance(entry, np.timedelta64 | np.datetime64):  # type: ignore[arg-type]
        raise TypeError
    if isinstance(entry, complex | np.complexfloating):
        return complex(entry)
    number = float(entry)  # type: ignore[arg-type]
    if np.isinf(number) and entry != number:
        raise OverflowError
    return number


def _described(value: object) -> str:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return "masked values"
    kind = getattr(value, "dtype", None)
    return f"{type(value).__name__}{'' if kind is None else f' of {kind}'} that is not real"


def _finite(shape: tuple[int | None, ...]) -> str:
    described = "×".join("n" if size is None else str(size) for size in shape) or "scalar"
    return f"finite real numbers of shape ({described})"


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """`array` itself, made read-only."""
    array.flags.writeable = False
    return array
