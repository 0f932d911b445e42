"""What is measured on states of many features, arrays (…, N, d), on a ring or a torus: numpy only.

Convention: X_j = B e^{iq·j} + c.c. with q = 2πk/N on each axis, B_k = `fftn(X)`[k]/N, a vector of d features.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Mode
from dispersion.errors import (
    frozen_array,
    instance,
    number_array,
    real_array,
    real_number,
    real_states,
    states,
    whole_number,
)
from dispersion.grid import Wavenumber, conjugate_pairs, grid_index, wavenumber
from dispersion.memory import require
from dispersion.quiet import beyond_float64, power_of_two
from simulate.one_feature import HOMOGENEOUS, ROUNDING

TIE = 1e-6
"""Relative difference from which one of two waves is the larger."""


@beyond_float64
def grid_fourier(x: ArrayLike, shape: tuple[int, ...] | None = None) -> NDArray[np.complex128]:
    """(…, N, d) B_k, k in C order.

    Parameters
    ----------
    x : (…, N, d) array_like
        States.
    shape : tuple of int, optional
        Of the torus, by default a ring.
    """
    x = states("x", x, None, None)
    *batch, n, d = x.shape
    shape = _grid(shape, n)
    axes = tuple(range(len(batch), len(batch) + len(shape)))
    return (np.fft.fftn(x.reshape(*batch, *shape, d), axes=axes) / n).reshape(x.shape)


@beyond_float64
def dominant(coefficients: NDArray[np.complex128], shape: tuple[int, ...]) -> Wavenumber:
    """The wavenumber of the largest |B_k| (norm over features) but k = 0, the first of ±k, from B_k (N, d).

    0, or (0, …, 0) on a torus, where none exceeds 1e-12 max(1, |B_0|): the state is homogeneous.
    """
    size = np.linalg.norm(coefficients, axis=-1)
    half, _ = conjugate_pairs(shape)
    pattern = size[half[1:]]
    homogeneous = pattern.size == 0 or pattern.max() <= HOMOGENEOUS * max(1.0, size[0])
    return wavenumber(0 if homogeneous else int(half[1:][pattern.argmax()]), shape)


@beyond_float64
def project(
    x: ArrayLike, left: ArrayLike, k: Wavenumber, shape: tuple[int, ...] | None = None
) -> NDArray[np.complex128]:
    """(…) z = wᴴB_k, the complex amplitude of a mode; zero where it is but the rounding of the states.

    Parameters
    ----------
    x : (…, N, d) array_like
        States.
    left : (d,) array_like
        w, with wᴴv = 1 for the right vector v: X_j = z v e^{iq·j} + c.c.
    k : int or tuple of int
        Its wavenumber, an int on a ring, a tuple on a torus.
    shape : tuple of int, optional
        Of the torus, by default a ring.
    """
    x, left = states("x", x, None, None), number_array("left", left)
    if left.shape != x.shape[-1:]:
        raise ArgumentError("left", f"shape {left.shape}", f"shape {x.shape[-1:]}, one number for each feature")
    shape = _grid(shape, x.shape[-2])
    z = grid_fourier(x, shape)[..., grid_index("k", k, shape), :] @ left.conj()
    size = np.abs(x).max(axis=(-2, -1)) * np.abs(left).sum()
    return np.where(np.abs(z) <= ROUNDING * size, 0, z)


def wave_of(
    before: ArrayLike, after: ArrayLike, mode: Mode, shape: tuple[int, ...] | None = None
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """(…) the complex amplitude z of `mode` in states (…, N, d) `before` and `after` a layer on tokens of this `shape`.

    Where J(q) is real and Λ is not, in a rotating mode, waves of k and −k grow alike and run opposite ways, each with
    ω: X_j = (z v + z̄' v̄) e^{iq·j} + c.c. It is the larger of z and z' after the layer, and z if they are equal.
    """
    forward = [project(x, mode.left, mode.k, shape) for x in (before, after)]
    if mode.morphology != "rotating":
        return forward[0], forward[1]
    backward = [project(x, mode.left.conj(), mode.k, shape).conj() for x in (before, after)]
    other = np.abs(backward[1]) > (1 + TIE) * np.abs(forward[1])
    return np.where(other, backward[0], forward[0]), np.where(other, backward[1], forward[1])


@beyond_float64
def rotation(before: ArrayLike, after: ArrayLike, plane: ArrayLike) -> NDArray[np.float64]:
    """(…) angle in (−π, π] by which the tokens turned in a plane of features, radians a layer.

    With z_j = u·(X_j − mean) + i v·(X_j − mean) it is arg Σ_j conj(z_j before) z_j after, positive from u to v; NaN
    where nothing lies in the plane.

    Parameters
    ----------
    before, after : (…, N, d) array_like
        States.
    plane : (2, d) array_like
        Vectors u and v of features.
    """
    plane, before = real_array("plane", plane), real_states("before", before, None, None)
    after = real_states("after", after, *before.shape[-2:])
    if plane.shape != (2, before.shape[-1]):
        raise ArgumentError("plane", f"shape {plane.shape}", f"shape (2, {before.shape[-1]})")
    plane = plane / power_of_two(np.abs(plane).max())
    z, w = ((x - x.mean(axis=-2, keepdims=True)) @ (plane[0] + 1j * plane[1]) for x in (before, after))
    z, w = (u / power_of_two(np.abs(u).max(axis=-1, keepdims=True)) for u in (z, w))
    product = (z.conj() * w).sum(axis=-1)
    return np.where(product == 0, np.nan, np.angle(product))


@beyond_float64
def token_clusters(x: ArrayLike, tolerance: float) -> NDArray[np.int64]:
    """(N,) cluster label of each token of a state, numbered by first appearance.

    Parameters
    ----------
    x : (N, d) array_like
        The state.
    tolerance : float
        Tokens at most this far apart, directly or through others, form a cluster.
    """
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    x, tolerance = frozen_array("x", x, (None, None)), real_number("tolerance", tolerance)
    scale = power_of_two(np.abs(x).max())
    tree, reach = cKDTree(x / scale), max(tolerance, 0.0) / scale
    pairs = int(tree.count_neighbors(tree, reach))
    require("tolerance", f"{tolerance:g}, with {pairs:,} pairs of tokens that near", 64 * pairs)
    near = tree.sparse_distance_matrix(tree, reach, output_type="coo_matrix")
    near.data[:] = 1.0  # a distance of zero is a neighbour too
    _, labels = connected_components(near, directed=False)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return order[inverse]


@beyond_float64
def cluster_separation(x: ArrayLike, labels: ArrayLike) -> float:
    """The smallest distance between the means of two clusters of a state, 0 for one.

    Parameters
    ----------
    x : (N, d) array_like
        The state.
    labels : (N,) array_like of int
        Cluster label of each token.
    """
    x, labels = frozen_array("x", x, (None, None)), frozen_array("labels", labels, (len(x),))
    means = np.array([x[labels == label].mean(axis=0) for label in np.unique(labels)])
    if len(means) == 1:
        return 0.0
    distances = np.linalg.norm(means[:, None] - means, axis=-1)
    return float(distances[np.triu_indices(len(means), 1)].min())


def _grid(shape: tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    """`shape` of a torus of `n` tokens, of a ring for None."""
    if shape is None:
        return (n,)
    sizes = tuple(whole_number("shape", size, 1) for size in instance("shape", shape, tuple, list))
    if prod(sizes) != n:
        raise ArgumentError("shape", sizes, f"the shape of a grid of {n} tokens")
    return sizes
