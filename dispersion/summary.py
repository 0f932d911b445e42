"""The words in which results say what they are when printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

MOST = 6
"""Numbers of a vector that are shown."""


def number(value: float) -> str:
    """`value` to four digits."""
    return f"{value:z.4g}"


def listed(values: Iterable[Any]) -> str:
    """`values` with commas between them."""
    return ", ".join(map(str, values))


def numbers(values: Any) -> str:
    """A number, or several with commas between them, to four digits."""
    return listed(map(number, np.ravel(values)))


def vector(values: Any) -> str:
    """A state (d,), 0 if it is zero, cut short if it is long."""
    values = np.ravel(values)
    if not np.any(values):
        return "0"
    return numbers(values) if len(values) == 1 else f"({numbers(values[:MOST])}{', …' * (len(values) > MOST)})"


def growth(factors: Any, span: str = " a layer") -> str:
    """The growth of one `factors` or several over a `span`: |Λ| and its logarithm, the rate."""
    sizes = np.abs(np.ravel(factors))
    with np.errstate(divide="ignore"):
        rates = np.log(sizes)
    return f"growth {', '.join(f'{size:.6f}' for size in sizes)}{span}, rate {', '.join(f'{r:+z.3g}' for r in rates)}"


def on_tokens(shape: Sequence[int]) -> str:
    """Tokens of this `shape`."""
    return f"on {'×'.join(map(str, shape))} tokens"


def paragraph(*lines: str) -> str:
    """The `lines` that are not empty, the first as a sentence begins."""
    first, *rest = (line for line in lines if line)
    return "\n  ".join([first[:1].upper() + first[1:], *rest])
