"""What a caller may hand over by mistake: values of the wrong kind, and valid ones bent."""

import copy
import pickle
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from dispersion import Block, Chain, Head, Kernel

STRANGE: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: True,
    lambda: np.False_,
    lambda: "0.3",
    lambda: "",
    lambda: "gelu",
    lambda: b"1",
    lambda: 0,
    lambda: -1,
    lambda: 1,
    lambda: 3,
    lambda: 7,
    lambda: 2.5,
    lambda: -0.0,
    lambda: 1e-300,
    lambda: 1e300,
    lambda: -1e200,
    lambda: 5e-324,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -float("inf"),
    lambda: 10**400,
    lambda: 10**30,
    lambda: 10**12,
    lambda: -(10**20),
    lambda: 2**63,
    lambda: 1j,
    lambda: np.complex128(1 + 1j),
    lambda: Fraction(1, 3),
    lambda: Decimal("0.25"),
    lambda: np.float16(0.1),
    lambda: np.int8(3),
    lambda: np.uint64(2**64 - 1),
    lambda: np.longdouble("1e400"),
    lambda: np.datetime64("2020-01-01"),
    lambda: np.timedelta64(3, "s"),
    lambda: datetime(2020, 1, 1),
    lambda: {0.1, 0.2},
    lambda: {},
    lambda: {"a": 1},
    lambda: (x for x in (0.1, 0.2)),
    lambda: [],
    lambda: (),
    lambda: [[]],
    lambda: [1, [2, 3]],
    lambda: [True, 0.5],
    lambda: ["1", "2"],
    lambda: [None, 1.0],
    lambda: [1, 2, 3],
    lambda: (0, 1),
    lambda: (2, 2),
    lambda: range(3),
    lambda: slice(3),
    lambda: ...,
    lambda: object(),
    lambda: lambda *args, **kwargs: 0.0,
    lambda: float,
    lambda: NotImplemented,
    lambda: np.array(0.3),
    lambda: np.array(2),
    lambda: np.array([]),
    lambda: np.zeros((0, 2)),
    lambda: np.zeros(3),
    lambda: np.zeros((2, 2)),
    lambda: np.eye(2) * 1j,
    lambda: np.ones((2, 2, 2)),
    lambda: np.array(["a", "b"]),
    lambda: np.array([None, 1.0]),
    lambda: np.array([1, 2], dtype="datetime64[s]"),
    lambda: np.zeros(2, dtype=[("a", float)]),
    lambda: np.ma.masked,
    lambda: np.ma.MaskedArray([1.0, 2.0], [True, False]),
    lambda: np.random.default_rng(0),
    lambda: np.random.RandomState(0),
    lambda: Kernel.alibi(6, 0.5),
    lambda: Head(Kernel.alibi(6, 0.5), 0.3),
    lambda: Block([Head(Kernel.alibi(6, 0.5), 0.3)]),
    lambda: Block([Head(Kernel.alibi((2, 3), 0.5), np.eye(2))]),
    lambda: Block([Head(Kernel.alibi(6, 0.5), np.eye(2), bias=np.tri(6))]),
    lambda: Chain(Block([Head(Kernel.alibi(6, 0.5), 0.3)]), 6, "causal"),
    lambda: _pandas([0.1, 0.2]),
    lambda: _xarray([0.1, 0.2]),
    lambda: memoryview(b"abc"),
)
"""Makers of values that fit nowhere, or only by chance."""


def _pandas(values: Any) -> Any:
    import pandas

    return pandas.Series(values, index=[3, 5])


def _xarray(values: Any) -> Any:
    import xarray

    return xarray.DataArray(values)


def bent(value: Any) -> Iterator[Callable[[], Any]]:
    """Makers of what is near the valid `value`."""
    if isinstance(value, bool | np.bool_):
        yield from (lambda: not value, lambda: int(value), lambda: str(value), lambda: np.bool_(value))
    elif isinstance(value, int | float | complex | np.number):
        for factor in (-1, 0, 2, 10, 1e-200, 1e200, 1e-8, 1j, 0.5, Fraction(2, 3)):
            yield lambda f=factor: value * f
        for kind in (str, repr, bool, np.array, np.float16, np.float32, np.float64, np.complex64, Fraction, Decimal):
            yield lambda k=kind: k(value)
        yield from (lambda: [value], lambda: np.array([value]), lambda: value + 1, lambda: value - 1, lambda: (value,))
    elif isinstance(value, str):
        yield from (value.upper, value.encode, lambda: value + " ", lambda: [value], lambda: np.str_(value))
        yield from (lambda: np.array(value), lambda: value * 1000, lambda: "\0" + value)
    elif isinstance(value, list | tuple | np.ndarray) and _numeric(value):
        array = np.array(value)
        for kind in (np.float16, np.float32, np.complex128, np.int64, bool, str, object, np.longdouble, "S8"):
            yield lambda k=kind: array.astype(k)
        for factor in (0, -1, 1e-200, 1e-320, 1e-8, 1e8, 1e160, 1e300, 1j):
            yield lambda f=factor: array * f
        yield from (lambda: array.tolist(), lambda: tuple(array), lambda: array[None], lambda: array[..., None])
        yield from (lambda: array.T, lambda: array[::-1], lambda: array[:-1], lambda: array.ravel(), lambda: array[:0])
        yield from (lambda: np.asfortranarray(array), lambda: np.repeat(array, 2, axis=-1), lambda: array[0])
        yield from (lambda: np.ma.MaskedArray(array, False), lambda: np.ma.masked_greater(array, array.min()))
        yield from (lambda: _xarray(array), lambda: iter(array), lambda: array.tobytes(), lambda: set(array.ravel()))
        for wrong in (np.nan, np.inf, -np.inf, 1e300):
            yield lambda w=wrong: _with(array, w)
        yield lambda: [True, *array[1:]]
    elif isinstance(value, list | tuple):
        yield from (lambda: list(value), lambda: value[::-1], lambda: value[:-1], lambda: iter(value), lambda: value[0])
        yield from (lambda: [*value, *value], lambda: [*value, None], lambda: [value], lambda: np.array(value, object))
    elif isinstance(value, dict):
        yield from (lambda: {}, lambda: list(value), lambda: {**value, 3: [1]}, lambda: {**value, "": [1]})
        for strange in STRANGE:
            yield lambda s=strange: {key: s() for key in value}
    elif value is not None:
        yield from (lambda: [value], lambda: repr(value), lambda: copy.copy(value))
        if not callable(value):
            yield from (lambda: type(value), lambda: pickle.loads(pickle.dumps(value)))


def _numeric(value: Any) -> bool:
    try:
        array = np.array(value)
    except ValueError:
        return False
    return array.dtype.kind in "iufc" and array.ndim > 0


def _with(array: np.ndarray, wrong: float) -> np.ndarray:
    array = array.astype(complex if array.dtype.kind == "c" else float)
    array.flat[array.size // 2 : array.size // 2 + 1] = wrong
    return array
