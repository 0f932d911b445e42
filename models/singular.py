"""Leading singular vectors of a linear map that is known by what it and its transpose do to vectors.

ARPACK's implicitly restarted Lanczos method on PᵀP (scipy's svds): of its solvers the one that converges to rounding
whether gains are apart, clustered or equal. PROPACK gives up on clustered ones and repeats vectors of equal ones, and
LOBPCG stops at half the digits. Squaring costs digits of small gains alone. Of many equal gains ARPACK misses some: a
search of what is orthogonal to those found shows that, and goes on until none is missing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Linear = Callable[[Floats], Floats]

MISSED = 1e-6
"""Relative excess of a gain over the least of those found from which it has been missed."""
ROUGH = 1e-3
"""Tolerance of the search for such gains, whose error is about its square."""
ROUNDING = 1e-8
"""Gains relative to the largest that squaring leaves no digit of."""


def leading(forward: Linear, back: Linear, size: int, count: int, rng: int) -> Floats:
    """(count, size) orthonormal singular vectors v of P of the largest gains |Pv|, by decreasing gain.

    forward, back : (size,) → (size,), P and its transpose. count : fewer than `size`. rng : the seed of the start.
    """
    from scipy.sparse.linalg import LinearOperator, svds

    start = np.random.default_rng(rng).normal(size=size)
    # squares have to be within the range of the numbers
    scale = float(np.abs(forward(start)).max())
    if scale == 0:
        return np.eye(count, size)

    def search(number: int, tolerance: float) -> tuple[Floats, Floats]:
        """(gains, vectors) of P on what is orthogonal to `rows`."""
        _, sizes, vectors = svds(operator, number, v0=outside(start), tol=tolerance, solver="arpack")
        return sizes, vectors

    def outside(v: Floats) -> Floats:
        return np.asarray(v - rows.T @ (rows @ v))

    operator = LinearOperator(
        (size, size),
        matvec=lambda v: forward(outside(v.ravel())) / scale,
        rmatvec=lambda u: outside(back(u.ravel()) / scale),
        dtype=np.float64,
    )
    rows = np.empty((0, size))
    gains, rows = search(count, 0)
    while operator.rmatvec(operator.matvec(start)).any():
        if not search(1, ROUGH)[0] > max((1 + MISSED) * gains.min(), ROUNDING * gains.max()):
            break
        missed, row = search(1, 0)
        gains, rows = np.append(gains, missed), np.vstack([rows, row])
        kept = np.argsort(-gains, kind="stable")[:count]
        gains, rows = gains[kept], rows[kept]
    return np.asarray(rows[np.argsort(-gains, kind="stable")])
