"""How far a finite chain can grow before its eigenvalues rule: the resolvent of one linearised block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import ArgumentError, frozen, instance, number_array
from dispersion.line.chain import Chain
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow
from dispersion.summary import number, paragraph

LARGEST = 400
"""Largest n·d for which singular values are computed at every point."""
CHUNK = 2**27
"""Bytes of matrices held at a time."""


@dataclass(frozen=True, eq=False)
class Pseudospectrum(Noun):
    """σ_min(z − J) on a set of points z; {z : σ_min ≤ ε} is the ε-pseudospectrum.

    Attributes
    ----------
    points : (…) complex ndarray
        The z, any shape.
    smallest : (…) ndarray
        σ_min at each, the same shape. Values under about 1e-16‖J‖ are rounding.
    """

    points: NDArray[np.complex128]
    smallest: NDArray[np.float64]

    def __str__(self) -> str:
        title = f"pseudospectrum at {self.points.size} points"
        least = f"least σ_min {self.smallest.min():.2g}" if self.points.size else ""
        return paragraph(
            title, least, f"powers reach at least {number(self.kreiss)} in norm" if self.kreiss > 1 else ""
        )

    @property
    def kreiss(self) -> float:
        """max (|z| − 1)/σ_min over the points with |z| > 1, a lower bound on sup_L ‖J^L‖ (Kreiss); 0 without such."""
        outside = np.abs(self.points) > 1
        size = np.maximum(self.smallest[outside], np.finfo(float).tiny)
        return float(((np.abs(self.points[outside]) - 1) / size).max(initial=0.0))


@harmless_underflow
def pseudospectrum(chain: Chain, points: ArrayLike, state: ArrayLike | None = None) -> Pseudospectrum:
    """σ_min(z − J) of one linearised block J = `chain.jacobian(state)` at complex points z (derived).

    Parameters
    ----------
    chain : Chain
        With n·d ≤ 400.
    points : (…) array_like
        Complex z, any shape.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default.

    Returns
    -------
    Pseudospectrum
        σ_min at each of the `points`.

    Raises
    ------
    ArgumentError
        Names a chain too large or points that are not finite.
    """
    size = instance("chain", chain, Chain).n * chain.d
    if size > LARGEST:
        raise ArgumentError(
            "chain", f"n·d = {size}", f"at most {LARGEST}: a singular value decomposition for each point"
        )
    z = np.array(number_array("points", points), dtype=complex)
    if not np.isfinite(z).all():
        raise ArgumentError("points", "values that are not finite", "finite complex numbers")
    J, step = chain.jacobian(state), max(1, CHUNK // (16 * size**2))
    smallest = np.empty(z.size)
    for start in range(0, z.size, step):
        shifted = z.ravel()[start : start + step, None, None] * np.eye(size) - J
        smallest[start : start + step] = np.linalg.svd(shifted, compute_uv=False)[:, -1]
    return Pseudospectrum(frozen(z), frozen(smallest.reshape(z.shape)))
