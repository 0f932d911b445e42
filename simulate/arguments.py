"""What a sweep is asked for, checked before any work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import frozen_array, real_array, real_number, shown, whole_number
from simulate.engines.engine import Model
from simulate.plan import Start, StartFunction
from simulate.results import RESERVED, Layout, check_name

MOST = 2**63 - 1
"""The largest whole number that a file can hold."""


def counter(argument: str, value: object, least: int) -> int:
    """A whole number from `least` to MOST."""
    number = whole_number(argument, value, least)
    if number > MOST:
        raise ArgumentError(argument, shown(number), f"a whole number of at least {least} and at most 2**63 - 1")
    return number


def checked_axes(make_block: Callable[..., Model], parameters: Mapping[str, ArrayLike]) -> dict[str, NDArray]:
    """The swept values by name, checked."""
    if not callable(make_block):
        raise ArgumentError("make_block", shown(make_block), "a function that returns a Block or a Chain")
    if not isinstance(parameters, Mapping) or not parameters:
        raise ArgumentError("parameters", shown(parameters), "{name: values, …} with one name or more")
    axes = {check_name("parameters", name, RESERVED): _axis(name, values) for name, values in parameters.items()}
    try:
        inspect.signature(make_block).bind(**axes)
    except TypeError as error:
        raise ArgumentError("parameters", f"{', '.join(axes)} ({error})", "the keywords of make_block") from None
    except ValueError:  # a builtin without a signature
        pass
    return axes


def _axis(name: str, values: ArrayLike) -> NDArray:
    """The values of one axis, of a type that a file can hold."""
    argument, accepted = f"parameters[{name!r}]", "one axis of numbers or strings, not empty"
    if np.ma.isMaskedArray(values):
        raise ArgumentError(argument, "a masked array", accepted)
    try:
        array = np.array(values)
    except ValueError:
        raise ArgumentError(argument, "rows of different lengths", accepted) from None
    if array.dtype.kind in "OT" and all(isinstance(value, str) for value in array.flat):
        array = np.array([str(value) for value in array.flat]).reshape(array.shape)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "biufU" or array.dtype in UNKNOWN:
        raise ArgumentError(argument, f"shape {array.shape} of {array.dtype}", accepted)
    if array.dtype.kind == "U" and not all(isinstance(value, str) for value in values):  # type: ignore[union-attr]
        raise ArgumentError(argument, "strings and other things", accepted)
    if array.dtype.kind == "U" and not all(value == shown(value, str) for value in array.tolist()):
        raise ArgumentError(argument, "text that cannot be printed or is too long", accepted)
    return array.astype(np.int8 if array.dtype.kind == "b" else array.dtype.newbyteorder("="), copy=False)


UNKNOWN = (np.float16, np.longdouble)
"""Types of numbers that netCDF does not know."""


def checked_start(start: ArrayLike | StartFunction, shape: tuple[int, ...], layout: Layout) -> Start:
    """`start` as a number, a finite array (N, d) or (*shape, N, d), or a function."""
    if callable(start):
        return start
    start = real_array("start", start)
    if start.ndim == 0:
        return real_number("start", start)
    one, every = (layout.n, layout.d), (*shape, layout.n, layout.d)
    if np.shape(start) in (one, every):
        return frozen_array("start", start, np.shape(start))
    whole = every if np.ndim(start) > (1 if layout.d == 1 else 2) else one
    expected = whole[:-1] if layout.d == 1 else whole
    return frozen_array("start", start, expected).reshape(whole)
