"""The words in which results say what they are when printed."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from dispersion import Block
from dispersion.summary import growth, listed, numbers, on_tokens

LARGEST = 1000
"""Most numbers in a state of which printing computes the multipliers."""


class Growing(Protocol):
    """An exact state of a block."""

    @property
    def growth(self) -> float:
        """By what factor the fastest small change grows in a layer."""

    @property
    def stable(self) -> bool:
        """Whether none grows."""


def motion(amplitude: Any, phase_advance: Any) -> str:
    """An amplitude or several, and how far the phases turn in a layer."""
    return f"amplitude {numbers(amplitude)}, phase advance {numbers(np.round(phase_advance, 12))} rad a layer"


def stability(stable: bool, scope: str) -> str:
    """Whether something is stable, and to what: `scope`."""
    return f"{'stable' if stable else 'not stable'} {scope}"


def tokens(k: Any, block: Block) -> str:
    """Wavenumbers `k` on the tokens of a `block`."""
    return f"k = {listed(k) if isinstance(k, list) else k} {on_tokens(block.shape)}, d = {block.d}"


def changes(result: Growing, size: int) -> str:
    """How the fastest small change of an exact `result` grows, where the multipliers of its `size` numbers are few."""
    if size > LARGEST:
        return f"the multipliers of its {size} numbers are not computed: ask for growth and stable"
    return f"small changes: {growth(result.growth)}; {stability(result.stable, 'to all of them')}"
