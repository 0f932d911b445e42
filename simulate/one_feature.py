"""What is measured on states of one feature, arrays (…, N): numpy only, no error on NaN states.

Convention: x_j = B e^{2πikj/N} + c.c., B_k = `fft(x)`[k]/N.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import ArgumentError, broadcast, number_array, real_number, real_states, states, whole_array
from dispersion.grid import grid_index
from dispersion.quiet import beyond_float64, power_of_two

HOMOGENEOUS = 1e-12
"""A state whose pattern |B_k|, k ≥ 1, stays below this times max(1, |B_0|) counts as homogeneous."""

ROUNDING = 1e-14
"""A Fourier coefficient below this times the largest |x| is rounding, and has no phase."""


@beyond_float64
def fourier(x: ArrayLike) -> NDArray[np.complex128]:
    """(…, N) B_k = Σ_j x_j e^{−2πikj/N}/N, k = 0 … N−1.

    Parameters
    ----------
    x : (…, N) array_like
        States.
    """
    x = states("x", x, None)
    return np.fft.fft(x, axis=-1) / x.shape[-1]


@beyond_float64
def spectrum(x: ArrayLike) -> NDArray[np.float64]:
    """(…, N//2+1) |B_k|, k = 0 … N//2.

    Parameters
    ----------
    x : (…, N) array_like
        States.
    """
    x = real_states("x", x, None)
    return np.abs(np.fft.rfft(x, axis=-1)) / x.shape[-1]


@beyond_float64
def dominant_wavenumber(x: ArrayLike) -> NDArray[np.int64]:
    """(…) the k ≥ 1 with the largest |B_k|; 0 where the state is homogeneous.

    Parameters
    ----------
    x : (…, N) array_like
        States. Homogeneous are those where every |B_k|, k ≥ 1, is at most 1e-12 max(1, |B_0|).
    """
    moduli = spectrum(x)
    return dominant_of_spectrum(moduli) if moduli.shape[-1] > 1 else np.zeros(moduli.shape[:-1], dtype=np.int64)


def dominant_of_spectrum(moduli: NDArray[np.float64]) -> NDArray[np.int64]:
    """(…) `dominant_wavenumber` from |B_k| (…, N//2+1)."""
    pattern = moduli[..., 1:]
    homogeneous = pattern.max(axis=-1) <= HOMOGENEOUS * np.maximum(1, moduli[..., 0])
    return np.where(homogeneous, 0, 1 + pattern.argmax(axis=-1))


@beyond_float64
def amplitude(x: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """(…) |B_k| of states at a wavenumber.

    For k = 0 it is |mean|; for k = N/2, where x_j = B(−1)^j, the wave itself has amplitude B.

    Parameters
    ----------
    x : (…, N) array_like
        States.
    k : (…) array_like of int
        The wavenumber, one number or one for each state.
    """
    return np.abs(_at(fourier(x), k))


@beyond_float64
def phase_advance(before: ArrayLike, after: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """(…) arg(B_k after / B_k before) in (−π, π], radians.

    Positive when the crests move towards smaller j. NaN where B_k is zero, but for rounding, before or after.

    Parameters
    ----------
    before, after : (…, N) array_like
        States.
    k : (…) array_like of int
        The wavenumber, one number or one for each state.
    """
    before, after = broadcast(number_array, before=before, after=after)
    first, second = (_at(fourier(x), k) for x in (before, after))
    told = [np.abs(z) > ROUNDING * np.abs(x).max(axis=-1) for z, x in ((first, before), (second, after))]
    return np.where(told[0] & told[1], turn(first, second), np.nan)


@beyond_float64
def turn(before: ArrayLike, after: ArrayLike) -> NDArray[np.float64]:
    """(…) arg(after/before) in (−π, π], radians; NaN where either is zero.

    Parameters
    ----------
    before, after : (…) array_like
        Complex amplitudes.
    """
    earlier, later = broadcast(number_array, before=before, after=after)
    ratio = _mantissa(later) * np.conj(_mantissa(earlier))
    return np.where(ratio == 0, np.nan, np.angle(ratio))


def _mantissa(z: NDArray) -> NDArray:
    """`z` over a power of two, of size 1/2 to 1: the product of two small numbers would be zero."""
    _, exponent = np.frexp(np.abs(z))
    return np.ldexp(z.real, -exponent) + 1j * np.ldexp(z.imag, -exponent)


@beyond_float64
def cluster_values(x: ArrayLike) -> NDArray[np.float64]:
    """(…, 2) mean of the tokens below the mid-range (min + max)/2, and of those at or above it.

    Both are the mean of a homogeneous state.

    Parameters
    ----------
    x : (…, N) array_like
        States.
    """
    x = real_states("x", x, None)
    high = x >= (x.min(axis=-1, keepdims=True) + x.max(axis=-1, keepdims=True)) / 2
    total, upper, count = x.sum(axis=-1), np.where(high, x, 0).sum(axis=-1), high.sum(axis=-1)
    below = x.shape[-1] - count
    high_value = np.where(count > 0, upper / np.maximum(count, 1), total)
    low_value = np.where(below > 0, np.where(high, 0, x).sum(axis=-1) / np.maximum(below, 1), high_value)
    return np.stack([low_value, high_value], axis=-1)


@beyond_float64
def clusters(x: ArrayLike, tolerance: float) -> NDArray[np.int64]:
    """(…, N) cluster label of each token, 0 for the lowest values.

    Parameters
    ----------
    x : (…, N) array_like
        States.
    tolerance : float
        Sorted values belong to different clusters where they differ by more than this.
    """
    x = real_states("x", x, None)
    tolerance = real_number("tolerance", tolerance)
    order = np.argsort(x, axis=-1, kind="stable")
    gaps = np.diff(np.take_along_axis(x, order, axis=-1), axis=-1) > tolerance
    ranked = np.concatenate([np.zeros((*x.shape[:-1], 1), dtype=np.int64), np.cumsum(gaps, axis=-1)], axis=-1)
    labels = np.empty_like(ranked)
    np.put_along_axis(labels, order, ranked, axis=-1)
    return labels


@beyond_float64
def heterogeneity(x: ArrayLike) -> NDArray[np.float64]:
    """(…) ‖x − mean‖/‖x‖: 0 when homogeneous (also at zero), 1 with zero mean.

    Parameters
    ----------
    x : (…, N) array_like
        States.
    """
    x = real_states("x", x, None)
    x = x / power_of_two(np.abs(x).max(axis=-1, keepdims=True))
    size = np.linalg.norm(x, axis=-1)
    pattern = np.linalg.norm(x - x.mean(axis=-1, keepdims=True), axis=-1)
    return np.where(size == 0, 0.0, pattern / np.where(size == 0, 1.0, size))


def _at(coefficients: NDArray, k: ArrayLike) -> NDArray:
    """(…) entry `k`, a whole wavenumber of the grid for all or for each, of `coefficients` (…, N)."""
    n = coefficients.shape[-1]
    wanted = whole_array("k", k)
    if wanted.ndim == 0:
        return coefficients[..., grid_index("k", wanted[()], n)]
    if wanted.size and (wanted.min() < -(n // 2) or wanted.max() >= n):
        raise ArgumentError("k", f"{wanted.min()} … {wanted.max()}", f"wavenumbers {-(n // 2)} … {n - 1}")
    try:
        index = np.broadcast_to(wanted, coefficients.shape[:-1])
    except ValueError:
        accepted = f"a shape that fits {coefficients.shape[:-1]}, one for each state"
        raise ArgumentError("k", f"shape {wanted.shape}", accepted) from None
    return np.take_along_axis(coefficients, index[..., None] % n, axis=-1)[..., 0]
