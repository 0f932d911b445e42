"""Eigenvalues of stacks of small matrices, and their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispersion.structured import components

LARGE = 128
"""Number of features from which arithmetic of real numbers, where it does, pays for telling them apart."""
TOLERANCE = 1e-10
"""Relative size under which moduli count as equal, and phases and imaginary parts as zero."""


def eigenvalues(matrices: NDArray) -> NDArray[np.complex128]:
    """(…, d) eigenvalues of `matrices` (…, d, d), real or complex, unordered: in closed form for d ≤ 2, and where all
    are block triangular in one order of the features those of the diagonal blocks.
    """
    d = matrices.shape[-1]
    if d == 1:
        return matrices[..., 0].astype(complex)
    if d == 2:
        return _two_by_two(matrices.astype(complex))
    stack: NDArray = matrices.reshape(-1, d, d)
    parts = components((stack != 0).any(axis=0))
    if len(parts) > 1:
        blocks = [eigenvalues(stack[:, part[:, None], part]) for part in parts]
        return np.concatenate(blocks, axis=-1).reshape(matrices.shape[:-1])
    if not stack.imag.any():
        stack = stack.real
    if d < LARGE or not np.iscomplexobj(stack):
        return np.linalg.eigvals(stack).astype(complex).reshape(matrices.shape[:-1])
    values = np.array([np.linalg.eigvals(one if one.imag.any() else one.real) for one in stack], dtype=complex)
    return values.reshape(matrices.shape[:-1])


def products(left: NDArray, places: NDArray[np.intp], right: NDArray) -> NDArray:
    """(G, d, d) the products of `left`[`places`] and `right`, stacks of matrices (·, d, d) and (G, d, d).

    Of large ones three real products make a complex one,

        Re(AB) = A_r B_r − A_i B_i,   Im(AB) = (A_r + A_i)(B_r + B_i) − A_r B_r − A_i B_i,

    and a single one a product of matrices that are real.
    """
    if left.shape[-1] < LARGE or not (np.iscomplexobj(left) and np.iscomplexobj(right)):
        return np.asarray(left[places] @ right)
    made = np.zeros_like(right)
    a_r, a_i, b_r, b_i, rr, ii, both = np.empty((7, *right.shape[1:]))
    for place, b, ab in zip(places, right, made, strict=True):
        a = left[place]
        a_r[...], a_i[...], b_r[...], b_i[...] = a.real, a.imag, b.real, b.imag
        np.matmul(a_r, b_r, out=rr)
        if a_i.any() or b_i.any():
            np.matmul(a_i, b_i, out=ii)
            np.matmul(np.add(a_r, a_i, out=a_r), np.add(b_r, b_i, out=b_r), out=both)
            ab.imag = both - rr - ii
            rr -= ii
        ab.real = rr
    return made


def norms(matrices: NDArray) -> NDArray[np.float64]:
    """(G,) the Frobenius norms of a stack (G, d, d), of large matrices one by one: no copy of all is made."""
    if matrices.shape[-1] < LARGE:
        return np.asarray(np.linalg.norm(matrices, axis=(-2, -1)))
    return np.array([np.linalg.norm(one) for one in matrices])


def _two_by_two(matrices: NDArray[np.complex128]) -> NDArray[np.complex128]:
    # Λ = m ± √(δ² + bc), m and δ half the sum and half the difference of the diagonal
    (a, b), (c, d) = np.moveaxis(matrices, (-2, -1), (0, 1))
    middle, split = (a + d) / 2, np.sqrt(((a - d) / 2) ** 2 + b * c)
    return np.stack([middle + split, middle - split], axis=-1)


def ranking(multipliers: NDArray[np.complex128], tie: NDArray | None = None) -> NDArray[np.intp]:
    """The order of the last axis by decreasing |Λ|; moduli equal to TOLERANCE are ordered by increasing `tie`, by
    default by decreasing phase.
    """
    size = np.abs(multipliers)
    order = np.argsort(-size, axis=-1, kind="stable")
    size = np.take_along_axis(size, order, axis=-1)
    group = np.zeros(size.shape, dtype=int)
    group[..., 1:] = np.cumsum(size[..., 1:] < size[..., :-1] * (1 - TOLERANCE), axis=-1)
    np.put_along_axis(group, order, group.copy(), axis=-1)
    return np.lexsort((-np.angle(multipliers) if tie is None else tie, group), axis=-1)
