"""Products and norms of stacks of matrices, of large ones in real arithmetic and one by one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LARGE = 128
"""Number of features from which arithmetic of real numbers, where it does, pays for telling them apart."""


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
