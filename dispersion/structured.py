"""Eigenvalues of matrices that may be block triangular or far from normal, and how well they are known.

A matrix whose graph (an edge i → j for each entry that is not zero) falls into strongly connected components is block
triangular in some order of its rows, and its spectrum is that of the diagonal blocks: so causal, prefix and document
masks are seen, whatever the order of the tokens. A block B of size m that is left is diagonalised; the Λ found are
exact for a matrix ‖E‖ = mε‖B‖ away. To first order that moves Λ by ‖E‖/|wᴴv|, w and v its unit vectors, and never by
more than (2‖B‖ + ‖E‖)^{1−1/m} ‖E‖^{1/m} (Elsner).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import ExclusionError

EPSILON = float(np.finfo(float).eps)

TOLERANCE = 1e-4
"""Error of a multiplier, in parts of the largest, from which it is not known."""

NEGLIGIBLE = 1e-10
"""Error of a growth factor that is no doubt: a factor of 1 within it is a tie."""


def components(pattern: NDArray) -> list[NDArray[np.int64]]:
    """The strongly connected components of the graph of a square `pattern` (m, m): the indices of each.

    A matrix that is zero where `pattern` is has the eigenvalues of its blocks [c, c], c one of them.
    """
    if pattern.all():
        return [np.arange(len(pattern))]
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(csr_array(pattern != 0), directed=True, connection="strong")
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def spectrum(matrix: NDArray[np.float64]) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """(m,) eigenvalues of `matrix` (m, m), in no order, and (m,) how far each may be from the truth."""
    pairs = [_of_one(matrix[np.ix_(part, part)]) for part in components(matrix)]
    values, errors = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return values, errors


def _of_one(block: NDArray[np.float64]) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    from scipy.linalg import eig, matrix_balance

    m = len(block)
    if m == 1:
        return block[0].astype(complex), np.zeros(1)
    balanced, _ = matrix_balance(block, permute=False)
    values, left, right = eig(balanced, left=True, right=True)
    size = float(np.linalg.norm(balanced))
    return values.astype(complex), moved(m * EPSILON * size, size, np.abs((left.conj() * right).sum(axis=0)), m)


def conditioned(stack: NDArray) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """(…, d) eigenvalues of small matrices (…, d, d), in no order, and |wᴴv| of each."""
    d = stack.shape[-1]
    flat = stack.reshape(-1, d, d)
    values, cosines = np.empty((len(flat), d), dtype=complex), np.ones((len(flat), d))
    for part in components((flat != 0).any(axis=0)):
        block = flat[:, part[:, None], part]
        if len(part) == 1:
            values[:, part] = block[:, 0]
            continue
        values[:, part], right = np.linalg.eig(block)
        rows = np.linalg.pinv(right, rcond=EPSILON)
        cosines[:, part] = 1 / np.maximum(np.linalg.norm(rows, axis=-1), 1)
    return values.reshape(stack.shape[:-1]), cosines.reshape(stack.shape[:-1])


def moved(distance: NDArray | float, size: NDArray | float, cosine: NDArray, m: int) -> NDArray[np.float64]:
    """How far a matrix E of norm `distance` can move an eigenvalue with |wᴴv| = `cosine` of a matrix (m, m) of norm
    `size`.
    """
    bound: NDArray[np.float64] = (2 * size + distance) ** (1 - 1 / m) * np.asarray(distance) ** (1 / m)
    return np.minimum(distance / np.maximum(cosine, EPSILON**2), bound)


def decays(growth: NDArray[np.float64], errors: NDArray[np.float64], below: float = 1.0) -> bool:
    """Whether all of `growth` lie under `below`; an ExclusionError if their `errors` leave it open."""
    doubt = np.where(errors > NEGLIGIBLE, errors, 0.0)
    if (growth + doubt < below).all() or (growth - doubt >= below).any():
        return bool(growth.max() < below)
    worst = int((growth + doubt).argmax())
    got = f"|Λ| = {growth.flat[worst]:.6g} ± {errors.flat[worst]:.2g}: the matrix is too far from normal"
    raise ExclusionError("stable", got, "multipliers that float64 can tell from 1")


def require_known(argument: str, values: NDArray[np.complex128], errors: NDArray[np.float64], places: NDArray) -> None:
    """Refuse eigenvalues `values` of `argument` of which those at `places` are not known to `TOLERANCE`.

    Others whose `errors` may make them larger than these count as well.
    """
    sizes = np.abs(values)
    rivals = sizes + errors >= sizes[places].min(initial=np.inf)
    worst = float(errors[rivals].max(initial=0.0))
    if worst > TOLERANCE * sizes.max(initial=0.0):
        got = f"a Jacobian too far from normal, its multipliers known to ±{worst:.2g} only"
        raise ExclusionError(argument, got, f"an error of at most {TOLERANCE:g} of the largest")
