"""Homogeneous fixed points: states 1⊗a with g(a) = a."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion.block.block import Block
from dispersion.block.slopes import Slopes
from dispersion.errors import RNG, ArgumentError, generator, instance, real_number, whole_number
from dispersion.memory import require
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64
from dispersion.summary import growth, vector

ISOLATED = 1e-7
"""Distance of a multiplier from 1 under which a fixed point is not isolated, and relative distance of two of them."""


FAR = 1e6
"""Distance in radii beyond which Newton's method has run away."""


@dataclass(frozen=True, eq=False)
class FixedPoint(Noun):
    """A homogeneous fixed point.

    Attributes
    ----------
    state : (d,) ndarray
        a with g(a) = a.
    multipliers : (d,) complex ndarray
        Eigenvalues of Dg(a) = J(0), largest modulus first.
    """

    state: NDArray[np.float64]
    multipliers: NDArray[np.complex128]

    def __str__(self) -> str:
        verdict = "stable" if self.stable else "not stable"
        return f"Homogeneous fixed point {vector(self.state)}, {verdict}: {growth(self.multipliers[0])} at k = 0"

    @property
    def stable(self) -> bool:
        """Whether it attracts homogeneous states: every |multiplier| < 1."""
        return bool(np.abs(self.multipliers).max() < 1)


@beyond_float64
def fixed_points(block: Block, radius: float = 3.0, starts: int = 200, rng: RNG = 0) -> list[FixedPoint]:
    """The isolated solutions of g(a) = a of a `block` that Newton's method reaches, nearest to the origin first.

    Parameters
    ----------
    block : Block
        Of d features.
    radius : float
        Starts lie in |a_i| ≤ radius. Solutions further out are kept if reached.
    starts : int
        How many, besides the origin.
    rng : int or Generator
        Seed of the starts.

    Returns
    -------
    list of FixedPoint
        States and their multipliers, nearest to the origin first.

    Notes
    -----
    A state where Dg has the multiplier 1 (a continuum of fixed points, or a fold) is not isolated and is left out; so
    is one where a normalisation or ReLU has no derivative. Two pre-normalisations that are both LayerNorm leave the
    mean of a free, g(a + c1) = g(a) + c1, and no fixed point isolated.
    """
    radius, starts = real_number("radius", radius, positive=True), whole_number("starts", starts, 1)
    d = instance("block", block, Block).d
    # every start may end at a fixed point of its own
    require("starts", f"{starts:,} starts of {d:,} features", starts * (32 * d + 500))
    seeds = generator("rng", rng).uniform(-radius, radius, (starts, d))
    found: list[FixedPoint] = []
    for seed in (np.zeros(block.d), *seeds):
        try:
            point = _newton(block, seed, FAR * radius)
        except ArgumentError:  # a state without a derivative on the way
            continue
        if point is not None and not any(_same(point.state, other.state) for other in found):
            found.append(point)
    return sorted(found, key=lambda point: float(np.linalg.norm(point.state)))


def _newton(block: Block, seed: NDArray[np.float64], far: float) -> FixedPoint | None:
    """The isolated fixed point nearer than `far` that Newton's method reaches from `seed`, or None."""
    from scipy import optimize

    def excess(a: NDArray[np.float64]) -> NDArray[np.float64]:
        return block.homogeneous_map(a) - a

    def slope(a: NDArray[np.float64]) -> NDArray[np.float64]:
        return Slopes(block, a).homogeneous - np.eye(block.d)

    a = optimize.root(excess, seed, jac=slope, tol=1e-14).x
    scale = 1 + np.abs(a).max()
    if not (scale < far and np.abs(excess(a)).max() <= 1e-11 * scale):
        return None
    multipliers = np.linalg.eigvals(Slopes(block, a).homogeneous).astype(complex)
    if np.abs(multipliers - 1).min() <= ISOLATED:
        return None
    # far out the excess may be small against a, and the root not near
    step = np.linalg.solve(slope(a), excess(a))
    near = np.abs(step).max() <= ISOLATED * scale
    return FixedPoint(a, multipliers[np.argsort(-np.abs(multipliers), kind="stable")]) if near else None


def _same(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return bool(np.abs(a - b).max() <= ISOLATED * (1 + np.abs(a).max()))
