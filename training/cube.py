"""Functions on the cube {−1, 1}ⁿ, and what those of least degree say of a part that is not seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import check_shape, real_array, whole_number

Floats = NDArray[np.float64]

MOST = 15
"""The most variables."""


def cube(n: int) -> Floats:
    """(2ⁿ, n) points of {−1, 1}ⁿ; the last variable changes fastest, from +1 to −1.

    Parameters
    ----------
    n : int
        Variables.
    """
    bits = np.arange(2 ** whole_number("n", n, 0, MOST))[:, None] >> np.arange(n)[::-1] & 1
    return np.asarray(1.0 - 2 * bits)


def nearest(values: ArrayLike, labels: ArrayLike) -> Floats:
    """(…) the nearest of the `labels` to each of the `values`.

    Parameters
    ----------
    values : (…) array_like
        What a network says.
    labels : (K,) array_like
        The values that there are.
    """
    values, labels = real_array("values", values), real_array("labels", labels)
    places: NDArray[np.int64] = np.abs(values[..., None] - labels).argmin(axis=-1)
    return labels[places]


def minimum_degree(values: ArrayLike, seen: ArrayLike) -> Floats:
    """(2ⁿ,) the interpolator of the seen values whose degree profile is least, on the cube.

    Of all functions g with g = f where `seen`, the one with the least energy Σ_{|S|=n} ĝ(S)² at degree n, among those
    the one with the least at degree n − 1, and so on (Abbe et al. 2023, minimum-degree interpolator).

    Parameters
    ----------
    values : (2ⁿ,) array_like
        f on the points of `cube`; unseen ones count for nothing.
    seen : (2ⁿ,) bool array_like
        Which points are seen, one at least.

    Notes
    -----
    Where the seen part depends on k of the variables alone, the energy of a degree is a sum over the Fourier modes of
    the other n − k, each of which is minimised by the same linear map of 2ᵏ numbers; so the map acts on each of the
    2ⁿ⁻ᵏ points of the others, and no larger problem than that of k variables is solved.
    """
    known = np.asarray(seen)
    if known.dtype != bool or known.ndim != 1 or len(known) & (len(known) - 1) or not known.any():
        raise ArgumentError(
            "seen", f"an array of {known.dtype} of shape {known.shape}", "2ⁿ of True or False, one True"
        )
    given = real_array("values", values)
    check_shape("values", given, known.shape)
    n = len(known).bit_length() - 1
    if n > MOST:
        raise ArgumentError("seen", f"{n} variables", f"{MOST} at most")
    grid = known.reshape((2,) * n)
    inside = [axis for axis in range(n) if not np.array_equal(grid.take(0, axis), grid.take(1, axis))]
    outside = [axis for axis in range(n) if axis not in inside]
    order, k = inside + outside, len(inside)
    table = np.where(grid, given.reshape(grid.shape), 0.0).transpose(order).reshape(2**k, -1)
    part = grid.transpose(order).reshape(2**k, -1)[:, 0]
    found = _interpolation(part) @ table[part]
    return found.reshape(grid.shape).transpose(np.argsort(order)).ravel()


def _characters(n: int) -> Floats:
    """(2ⁿ, 2ⁿ) χ_S(x), symmetric."""
    index = np.arange(2**n)
    return np.asarray(1.0 - 2 * (np.bitwise_count(index[:, None] & index) & 1))


def _interpolation(seen: NDArray[np.bool_]) -> Floats:
    """(2ᵏ, seen) from seen values to those of the interpolator of least degree profile."""
    size = len(seen)
    characters, degree = _characters(size.bit_length() - 1) / size, np.bitwise_count(np.arange(size))
    unseen = ~seen
    found, free = np.zeros((unseen.sum(), seen.sum())), np.eye(unseen.sum())
    for d in range(degree.max(), -1, -1):
        rows = characters[degree == d]
        # ĝ of degree d = rows_seen f + rows_unseen (found f + free z), least in z
        left, moduli, right = np.linalg.svd(rows[:, unseen] @ free)
        rank = int((moduli > 1e-9 / size).sum())
        energy = rows[:, seen] + rows[:, unseen] @ found
        found = found - free @ (right[:rank].T / moduli[:rank]) @ left[:, :rank].T @ energy
        free = free @ right[rank:].T
        if not free.shape[1]:
            break
    whole = np.zeros((size, seen.sum()))
    whole[seen], whole[unseen] = np.eye(seen.sum()), found
    return whole
