"""Numbers near the ends of float64: how to keep away from these, and where to leave it without a word."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])

KINDS = ("under", "over", "invalid", "divide")

_ignored: ContextVar[int] = ContextVar("_ignored", default=0)
"""The KINDS that a caller ignores already, a bit for each."""


def _ignoring(*kinds: str) -> Callable[[F], F]:
    """Decorate a function in which numpy ignores what it knows by these names, whatever numpy.errstate asks for."""
    settings: Any = dict.fromkeys(kinds, "ignore")
    bits = sum(1 << KINDS.index(kind) for kind in kinds)

    def decorate(function: F) -> F:
        if getattr(function, "ignores", 0) & bits == bits:
            return function

        @functools.wraps(function)
        def quiet(*args: Any, **kwargs: Any) -> Any:
            ignored = _ignored.get()
            if ignored & bits == bits:  # numpy.errstate takes longer than this
                return function(*args, **kwargs)
            token = _ignored.set(ignored | bits)
            try:
                with np.errstate(**settings):
                    return function(*args, **kwargs)
            finally:
                _ignored.reset(token)

        quiet.ignores = bits  # type: ignore[attr-defined]
        return quiet  # type: ignore[return-value]

    return decorate


harmless_underflow = _ignoring("under")
"""For public functions: e^{−1000} is 0 in a softmax."""
beyond_float64 = _ignoring("under", "over", "invalid", "divide")
"""For forward maps and measurements on states: what leaves float64 is inf or NaN, as in numpy, without a warning."""


def power_of_two(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """The power of two just under each `size` ≥ 0: what is divided by it is near 1, to the last digit the same."""
    return np.ldexp(1.0, np.frexp(size)[1] - 1)
