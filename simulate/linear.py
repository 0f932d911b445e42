"""The leading multiplier of many scalar blocks at once, at the state 0: what a sweep compares with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispersion.block.scalar_blocks import ScalarBlocks
from dispersion.eigen import TOLERANCE


class Critical(NamedTuple):
    """k : (P,) leading wavenumber, −1 where undefined; multiplier : (P,) complex Λ, NaN there."""

    k: NDArray[np.int64]
    multiplier: NDArray[np.complex128]


def critical_modes(blocks: ScalarBlocks) -> Critical:
    """`dispersion_relation(block).leading()` of each of the `blocks`; undefined where C is."""
    multipliers = blocks.multipliers
    growth = np.abs(multipliers)
    k = np.argmax(growth >= growth.max(axis=1, keepdims=True) * (1 - TOLERANCE), axis=1)
    leading = multipliers[np.arange(len(k)), k]
    return Critical(np.where(np.isnan(leading), -1, k), leading)
