"""The grid of tokens and wavenumbers: a ring of N or a torus of N_1 × … × N_D, tokens in C order.

A wavenumber k is a whole number on a ring and a tuple of D whole numbers on a torus, q = 2πk/N on each axis.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import ArgumentError, frozen, shown
from dispersion.memory import require

Wavenumber = int | tuple[int, ...]


@lru_cache(maxsize=64)
def grid_lags(shape: tuple[int, ...], causal: bool = False) -> NDArray[np.int64]:
    """Lag of each index: (N,) for a ring, (N_1, …, N_D, D) for a torus; 0 … N−1 if `causal`, else in [−N/2, N/2)."""
    axes = [np.arange(n) if causal else (np.arange(n) + n // 2) % n - n // 2 for n in shape]
    return frozen(axes[0] if len(shape) == 1 else np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1))


@lru_cache(maxsize=64)
def positions(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """(N, D) position of each token on each axis."""
    return frozen(grid_lags(shape, causal=True).reshape(-1, len(shape)))


@lru_cache(maxsize=16)
def lag_index(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """(N, N) index into the flattened logits of the lag i − j of each pair of tokens."""
    n, D = prod(shape), len(shape)
    require("block", f"{n:,} tokens, every pair of which has a lag", 8 * (2 * D + 1) * n**2)
    token = positions(shape)
    lag = (token[:, None, :] - token[None, :, :]) % np.array(shape)
    return frozen(np.ravel_multi_index(tuple(np.moveaxis(lag, -1, 0)), shape))


@lru_cache(maxsize=64)
def grid_wavenumbers(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """q = 2πk/N in radians per token: (N,) for a ring, (N_1, …, N_D, D) for a torus."""
    q = 2 * np.pi * positions(shape) / np.array(shape)
    return frozen(q[:, 0] if len(shape) == 1 else q.reshape(*shape, len(shape)))


@lru_cache(maxsize=64)
def conjugate_pairs(shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(half, partner): flat indices of one of each pair ±k, in increasing order, and of −k for every k (N,)."""
    k = positions(shape)
    partner = np.ravel_multi_index(tuple((-k % np.array(shape)).T), shape)
    return frozen(np.flatnonzero(np.arange(len(k)) <= partner)), frozen(partner)


def unfolded(values: NDArray, shape: tuple[int, ...]) -> NDArray:
    """(*shape, …) the `values` (K, …) for one wavenumber of each pair ±k, those of −k conjugate to those of k."""
    half, partner = conjugate_pairs(shape)
    every = np.empty((len(partner), *values.shape[1:]), dtype=values.dtype)
    every[partner[half]] = values.conj()
    every[half] = values
    return every.reshape(*shape, *values.shape[1:])


def mirrored(values: NDArray, axes: int) -> NDArray:
    """`values` with r replaced by −r on the last `axes` axes, those of the grid."""
    over = tuple(range(-axes, 0))
    return np.roll(np.flip(values, over), (1,) * axes, over)


def grid_index(argument: str, k: object, shape: tuple[int, ...] | int) -> int:
    """The flat index of the wavenumber `k` of the grid; −N/2 ≤ k < N on each axis, else an ArgumentError."""
    shape = (shape,) if isinstance(shape, int) else shape
    parts = k if isinstance(k, tuple) and len(shape) > 1 else (k,)
    valid = len(parts) == len(shape) and all(
        isinstance(part, int | np.integer) and not isinstance(part, bool | np.timedelta64) and -(n // 2) <= part < n
        for part, n in zip(parts, shape, strict=True)
    )
    if not valid:
        spans = " × ".join(f"0 … {n - 1} (or −{n // 2} … −1)" for n in shape)
        kind = "a whole wavenumber" if len(shape) == 1 else f"a tuple of {len(shape)} whole wavenumbers"
        raise ArgumentError(argument, shown(k), f"{kind} of the grid, {spans}")
    wrapped = tuple(int(part) % n for part, n in zip(parts, shape, strict=True))
    return int(np.ravel_multi_index(wrapped, shape))


def wavenumber(index: int, shape: tuple[int, ...]) -> Wavenumber:
    """The wavenumber with flat index `index`: an int on a ring, a tuple on a torus."""
    k = tuple(int(part) for part in np.unravel_index(index, shape))
    return k[0] if len(shape) == 1 else k
