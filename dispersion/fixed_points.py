"""Homogeneous fixed points: states 1⊗a with g(a) = a."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from dispersion.block import Block
from dispersion.errors import real_number, whole_number
from dispersion.relation import dispersion_relation


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A homogeneous fixed point.

    state : (d,) a with g(a) = a.
    multipliers : (d,) complex eigenvalues of Dg(a) = J(0), largest modulus first.
    """

    state: NDArray[np.float64]
    multipliers: NDArray[np.complex128]

    @property
    def stable(self) -> bool:
        """Whether it attracts homogeneous states: every |multiplier| < 1."""
        return bool(np.abs(self.multipliers).max() < 1)


def fixed_points(block: Block, radius: float = 3.0, starts: int = 200, rng: int = 0) -> list[FixedPoint]:
    """The isolated solutions of g(a) = a of a `block` that Newton's method reaches, nearest to the origin first.

    radius : starts lie in |a_i| ≤ radius; starts : how many, besides the origin;
    rng : seed of the starts. Solutions further out are kept if reached. A state where Dg has the
    multiplier 1 (a continuum of fixed points, or a fold) is not isolated and is left out.
    """
    radius, starts = real_number("radius", radius, positive=True), whole_number("starts", starts, 1)
    seeds = np.random.default_rng(rng).uniform(-radius, radius, (starts, block.d))
    identity = np.eye(block.d)
    found: list[FixedPoint] = []
    for seed in (np.zeros(block.d), *seeds):
        result = optimize.root(
            lambda a: block.homogeneous_map(a) - a,
            seed,
            jac=lambda a: dispersion_relation(block, a).matrices[0].real - identity,
            tol=1e-14,
        )
        a, scale = result.x, 1 + np.abs(result.x).max()
        if not np.abs(block.homogeneous_map(a) - a).max() <= 1e-11 * scale:
            continue
        multipliers = dispersion_relation(block, a).multipliers[0]
        isolated = np.abs(multipliers - 1).min() > 1e-7
        if isolated and not any(np.abs(a - other.state).max() <= 1e-7 * scale for other in found):
            found.append(FixedPoint(a, multipliers))
    return sorted(found, key=lambda point: float(np.linalg.norm(point.state)))
