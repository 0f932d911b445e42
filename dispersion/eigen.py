"""Eigenvalues of stacks of small matrices, and their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispersion.stacks import LARGE
from dispersion.structured import components

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
