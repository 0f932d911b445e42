"""Absolute encodings: how far the logits they lead to depend on displacement alone, and the kernel of that part.

A token at position i holds a + p_i, so with a content form W the logits are (a + p_i)ᵀW(a + p_j). Only what depends on
i − j has a dispersion relation. The diagonal is one displacement and would flatter any table, so it is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.kernel import Kernel
from dispersion.errors import ArgumentError, flag, frozen_array, instance, real_number, whole_number
from dispersion.grid import grid_lags, positions
from dispersion.memory import require
from dispersion.quiet import harmless_underflow, power_of_two

Floats = NDArray[np.float64]


@harmless_underflow
def sinusoidal(n: int, d: int, base: float = 10000.0) -> Floats:
    """The sinusoidal table (n, d) of arXiv 1706.03762: p_i = (sin iθ_0, cos iθ_0, sin iθ_1, …), θ_k = `base`^{−2k/d}.

    Parameters
    ----------
    n : int
        Positions, counted from 0.
    d : int
        Features, even.
    base : float
        Positive; θ_k = base^{−2k/d}.

    Returns
    -------
    (n, d) ndarray
        p. Then p_i·p_j = Σ_k cos(θ_k(i − j)): exactly a function of i − j.
    """
    n, d = whole_number("n", n, 1), whole_number("d", d, 2)
    if d % 2:
        raise ArgumentError("d", d, "an even number of features: a sine and a cosine of each frequency")
    require("n", f"{n:,} positions of {d:,} features", 8 * 3 * n * d)
    angle = np.arange(n)[:, None] * real_number("base", base, positive=True) ** (-2 * np.arange(d // 2) / d)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(n, d)


@harmless_underflow
def absolute_logits(table: ArrayLike, content: ArrayLike, state: ArrayLike | None = None) -> Floats:
    """The logits (N, N) at the state 1⊗a under an absolute encoding: (a + p_i)ᵀW(a + p_j), query i first.

    Parameters
    ----------
    table : (N, d) array_like
        p.
    content : (d, d) array_like
        W, the 1/√d_h included.
    state : (d,) array_like, optional
        a, 0 if left out.

    Returns
    -------
    (N, N) ndarray
        Logits, query first. The term p_iᵀWa is the same for every key and drops out of the attention; aᵀWp_j does not.
    """
    table = frozen_array("table", table, (None, None))
    d = table.shape[1]
    content = frozen_array("content", content, (d, d))
    require("table", f"{len(table):,} positions", 16 * len(table) ** 2)
    tokens = table if state is None else table + frozen_array("state", state, (d,))
    with np.errstate(over="ignore", invalid="ignore"):
        return frozen_array("table", tokens @ content @ tokens.T, (len(table), len(table)))


@harmless_underflow
def translation_invariant_share(
    logits: ArrayLike, shape: tuple[int, ...] | None = None, periodic: bool = False
) -> float:
    """The share of the variance of `logits` off the diagonal that a function of the displacement explains.

    Parameters
    ----------
    logits : (N, N) array_like
        Query first.
    shape : tuple of int, optional
        (N_1, …, N_D), the grid of the tokens in C order, (N,) if left out.
    periodic : bool
        Whether displacements are taken round the torus, else those of an open grid, −(N−1) … N−1 on each axis.

    Returns
    -------
    float
        1 − Σ(b_ij − b̄_{i−j})² / Σ(b_ij − b̄)² over i ≠ j: 1 if they are exactly Toeplitz. Random logits have about the
        number of displacements over the number of pairs.
    """
    logits, shape = _square(logits, shape)
    group, pairs = _displacement(shape, periodic), ~np.eye(len(logits), dtype=bool)
    values, group = logits[pairs] / power_of_two(np.abs(logits).max()), group[pairs]
    total = np.sum((values - values.mean()) ** 2)
    residual = np.sum((values - _means(values, group)[group]) ** 2)
    negligible = values.size * (4 * np.finfo(float).eps * np.abs(values).max()) ** 2
    return 1.0 if total <= negligible else float(max(0.0, 1 - residual / total))


@harmless_underflow
def toeplitz_part(logits: ArrayLike, shape: tuple[int, ...] | None = None, periodic: bool = False) -> Kernel:
    """The kernel nearest to `logits` in least squares: b_r is their mean over all pairs at displacement r.

    Parameters
    ----------
    logits : (N, N) array_like
        Query first.
    shape : tuple of int, optional
        (N_1, …, N_D), the grid of the tokens in C order, (N,) if left out.
    periodic : bool
        Whether displacements are taken round the torus, else those of an open grid, −(N−1) … N−1 on each axis.

    Returns
    -------
    Kernel
        On an open grid that of its middle: of the displacements it keeps −N/2 ≤ r < N/2 on each axis, on a ring or
        torus of the same shape.
    """
    logits, shape = _square(logits, shape)
    size = np.array(shape)
    means = _means(logits.ravel(), _displacement(shape, periodic).ravel())
    if flag("periodic", periodic):
        return Kernel(means.reshape(shape))
    lags = grid_lags(shape).reshape(*shape, len(shape)) + size - 1
    return Kernel(means.reshape(2 * size - 1)[tuple(np.moveaxis(lags, -1, 0))])


def _square(logits: ArrayLike, shape: tuple[int, ...] | None) -> tuple[Floats, tuple[int, ...]]:
    """(logits (N, N), shape), checked against each other."""
    logits = frozen_array("logits", logits, (None, None))
    n = len(logits)
    if logits.shape != (n, n) or n < 2:
        raise ArgumentError("logits", f"shape {logits.shape}", "(N, N), 2 tokens or more")
    sizes = (
        (n,) if shape is None else tuple(whole_number("shape", size, 1) for size in instance("shape", shape, Sequence))
    )
    if np.prod(sizes) != n:
        raise ArgumentError("shape", sizes, f"the shape of a grid of {n} tokens")
    return logits, sizes


def _displacement(shape: tuple[int, ...], periodic: bool) -> NDArray[np.int64]:
    """(N, N) number of the displacement of each pair: in a box of `shape` if `periodic`, else of 2·`shape` − 1."""
    n, D = prod(shape), len(shape)
    require("logits", f"{n:,} tokens, every pair of which has a displacement", 8 * (3 * D + 1) * n**2)
    token, size, periodic = positions(shape), np.array(shape), flag("periodic", periodic)
    lag = token[:, None, :] - token[None, :, :]
    box, lag = (size, lag % size) if periodic else (2 * size - 1, lag + size - 1)
    return np.ravel_multi_index(tuple(np.moveaxis(lag, -1, 0)), tuple(box))


def _means(values: Floats, group: NDArray[np.int64]) -> Floats:
    """Mean of the `values` (P,) in each `group` (P,), 0 in an empty one."""
    return np.bincount(group, values) / np.maximum(np.bincount(group), 1)
