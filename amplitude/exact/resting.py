"""The homogeneous state that a block keeps when nothing disturbs it: where theory stands if 0 is no fixed point."""

from __future__ import annotations

from functools import partial

import numpy as np

from amplitude.exact.equations import Floats, newton
from amplitude.exact.states import NEUTRAL
from dispersion import ArgumentError, Block
from dispersion.block.slopes import Slopes
from dispersion.errors import frozen

ZERO = 1e-15
"""|g(0)| up to which 0 counts as a fixed point."""
LAYERS = 8192
"""Layers after which g must have settled."""
NEAR = 1e-2
"""Distance from a fixed point, relative to 1 + |a|, at which g is taken to settle there."""


def resting_state(block: Block) -> Floats:
    """(d,) the attracting fixed point a = g(a) of a `block` that g reaches from 0; 0 itself where g(0) = 0.

    g is iterated, and Newton's method tried from its iterates 16, 32, …, until it finds a fixed point close by that
    attracts. An ArgumentError says if g has not settled after 8192 layers.
    """
    a = np.zeros(block.d)
    if np.abs(block.homogeneous_map(a)).max() <= ZERO:
        return frozen(a)
    layer, check = 0, 16
    with np.errstate(all="ignore"):
        while layer < LAYERS and np.isfinite(a).all():
            a, layer = block.homogeneous_map(a), layer + 1
            if layer < check:
                continue
            check *= 2
            found = _fixed_point(block, a) if np.isfinite(a).all() else None
            if found is not None and np.abs(found - a).max() <= NEAR * (1 + np.abs(found).max()):
                return frozen(found)
    got = f"g(0) = {np.array2string(block.homogeneous_map(np.zeros(block.d)), precision=4, threshold=4)}"
    raise ArgumentError("block", f"{got}, and g does not settle", "a block whose g, iterated from 0, settles")


def _fixed_point(block: Block, a: Floats) -> Floats | None:
    """The attracting fixed point of g that Newton's method reaches from `a`, or None."""
    limit = 1e-13 * (1 + float(np.abs(a).max()))
    try:
        found, residual, _ = newton(partial(fixed_point_equation, block), a, limit)
        attracts = (
            residual <= limit and np.abs(np.linalg.eigvals(Slopes(block, found).homogeneous)).max() <= 1 + NEUTRAL
        )
    except ArgumentError:  # a state without a derivative on the way
        return None
    return found if attracts else None


def fixed_point_equation(block: Block, a: Floats) -> tuple[Floats, Floats]:
    """g(a) − a, (d,), and its derivative (d, d)."""
    return block.homogeneous_map(a) - a, Slopes(block, a).homogeneous - np.eye(block.d)
