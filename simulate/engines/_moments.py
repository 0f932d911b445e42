"""The attention sums as few moments, on rings of 2^m tokens: O(N log N) where |χ| max x² is not large.

T_i = Σ_j P_{i−j} e^{t x_j} = 1 + Σ_{k=1}^{M} c_k t^k (P * x^k)_i,   S_i = Σ_j P_{i−j} e^{t x_j} x_j = dT_i/dt,
with t = χ x_i.

c_k is nearly 1/k!: Σ k c_k y^{k−1} is the Chebyshev expansion of e^y, cut off, on |y| ≤ reach (see `exponential`).
Two moments are convolved at a time, as real and imaginary part of one transform: decimation in
frequency, the product with λ and its inverse within the last stage, and the same stages back. The
order of the frequencies never matters, since λ comes out of the same stages. Importing this imports numba.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dispersion.compiled import OPTIONS
from simulate.engines._exp import divided
from simulate.engines._lanes import load, splat, store
from simulate.engines.exponential import coefficients, reach

PRECISION = 2.0**-50
"""Relative error of e^{χ x_i x_j} by the cut-off expansion."""

MOST_PAIRS = 10
"""Pairs of moments beyond which cancellation, e^{2|χ|max x²}, costs too many digits."""

HALF_ROOT = math.sqrt(0.5)


@lru_cache
def expansion() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(MOST_PAIRS,) largest |χ| max x² of each number of pairs of moments, and (MOST_PAIRS, 2·MOST_PAIRS) its c_k."""
    table = np.zeros((MOST_PAIRS, 2 * MOST_PAIRS))
    reaches = np.array([reach(2 * pairs - 1, PRECISION) for pairs in range(1, MOST_PAIRS + 1)])
    for row, limit in enumerate(reaches):
        slope = coefficients(2 * row + 1, limit)
        table[row, : len(slope)] = slope / np.arange(1, len(slope) + 1)
    return reaches, table


def most_pairs(n: int) -> int:
    """Pairs of moments up to which they cost less than N(N+1)/2 exponentials; 0 for a ring they do not serve."""
    if n < 8 or n & (n - 1):
        return 0
    return min(MOST_PAIRS, int(2 * (n + 1) / (3.5 + 1.6 * math.log2(n))))  # measured


def turns(n: int) -> NDArray[np.float64]:
    """(2, N) cos and −sin of 2πj/N, the roots of unity of the transform."""
    angle = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), -np.sin(angle)])


# complex numbers below are pairs (re, im) of lanes


@njit(**OPTIONS)
def _get(re, im, row):  # type: ignore[no-untyped-def]
    return load(re, row), load(im, row)


@njit(**OPTIONS)
def _put(re, im, row, z):  # type: ignore[no-untyped-def]
    store(re, row, z[0])
    store(im, row, z[1])


@njit(**OPTIONS)
def _plus(a, b):  # type: ignore[no-untyped-def]
    return a[0] + b[0], a[1] + b[1]


@njit(**OPTIONS)
def _minus(a, b):  # type: ignore[no-untyped-def]
    return a[0] - b[0], a[1] - b[1]


@njit(**OPTIONS)
def _times(a, b):  # type: ignore[no-untyped-def]
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


@njit(**OPTIONS)
def _over(a, unit):  # type: ignore[no-untyped-def]
    """a/unit, |unit| = 1."""
    return a[0] * unit[0] + a[1] * unit[1], a[1] * unit[0] - a[0] * unit[1]


@njit(**OPTIONS)
def _root(roots, turn):  # type: ignore[no-untyped-def]
    return splat(roots[0, turn]), splat(roots[1, turn])


@njit(**OPTIONS)
def _four(a, b, c, d):  # type: ignore[no-untyped-def]
    """The transform of four numbers; the inverse, times 4, is that with b and d exchanged."""
    e, f, g, h = _plus(a, c), _minus(a, c), _plus(b, d), _minus(b, d)
    return _plus(e, g), (f[0] + h[1], f[1] - h[0]), _minus(e, g), (f[0] - h[1], f[1] + h[0])


@njit(**OPTIONS)
def _forward(re, im, span, roots):  # type: ignore[no-untyped-def]
    """One radix-4 stage: (a, b, c, d) at distance span/4 → their four sums, turned."""
    n, quarter = re.shape[0], span // 4
    for j in range(quarter):
        turn = j * (n // span)
        one, two, three = _root(roots, turn), _root(roots, 2 * turn), _root(roots, 3 * turn)
        for p in range(j, n, span):
            q, r, s = p + quarter, p + 2 * quarter, p + 3 * quarter
            a, b, c, d = _four(_get(re, im, p), _get(re, im, q), _get(re, im, r), _get(re, im, s))
            if j > 0:
                b, c, d = _times(b, one), _times(c, two), _times(d, three)
            _put(re, im, p, a)
            _put(re, im, q, b)
            _put(re, im, r, c)
            _put(re, im, s, d)


@njit(**OPTIONS)
def _backward(re, im, span, roots):  # type: ignore[no-untyped-def]
    """The inverse of `_forward`, times 4."""
    n, quarter = re.shape[0], span // 4
    for j in range(quarter):
        turn = j * (n // span)
        one, two, three = _root(roots, turn), _root(roots, 2 * turn), _root(roots, 3 * turn)
        for p in range(j, n, span):
            q, r, s = p + quarter, p + 2 * quarter, p + 3 * quarter
            a, b, c, d = _get(re, im, p), _get(re, im, q), _get(re, im, r), _get(re, im, s)
            if j > 0:
                b, c, d = _over(b, one), _over(c, two), _over(d, three)
            a, b, c, d = _four(a, d, c, b)
            _put(re, im, p, a)
            _put(re, im, q, b)
            _put(re, im, r, c)
            _put(re, im, s, d)


@njit(**OPTIONS)
def _filter(a, b, c, d, symbol_re, symbol_im, o):  # type: ignore[no-untyped-def]
    """The transform of four numbers, times λ from row `o` on, and back."""
    a, b, c, d = _four(a, b, c, d)
    a, b = _times(a, _get(symbol_re, symbol_im, o)), _times(b, _get(symbol_re, symbol_im, o + 1))
    c, d = _times(c, _get(symbol_re, symbol_im, o + 2)), _times(d, _get(symbol_re, symbol_im, o + 3))
    return _four(a, d, c, b)


@njit(**OPTIONS)
def _middle4(re, im, symbol_re, symbol_im):  # type: ignore[no-untyped-def]
    """The last stage of span 4, times λ, and back."""
    for o in range(0, re.shape[0], 4):
        a, b, c, d = _get(re, im, o), _get(re, im, o + 1), _get(re, im, o + 2), _get(re, im, o + 3)
        a, b, c, d = _filter(a, b, c, d, symbol_re, symbol_im, o)
        _put(re, im, o, a)
        _put(re, im, o + 1, b)
        _put(re, im, o + 2, c)
        _put(re, im, o + 3, d)


@njit(**OPTIONS)
def _middle8(re, im, symbol_re, symbol_im):  # type: ignore[no-untyped-def]
    """The last stage of span 8, times λ, and back."""
    half = splat(HALF_ROOT)
    for o in range(0, re.shape[0], 8):
        a0, a1, a2, a3 = _get(re, im, o), _get(re, im, o + 1), _get(re, im, o + 2), _get(re, im, o + 3)
        a4, a5, a6, a7 = _get(re, im, o + 4), _get(re, im, o + 5), _get(re, im, o + 6), _get(re, im, o + 7)
        # odd frequencies: differences, turned by e^{−iπj/4}
        d0, d1, d2, d3 = _minus(a0, a4), _minus(a1, a5), _minus(a2, a6), _minus(a3, a7)
        d1 = (d1[0] + d1[1]) * half, (d1[1] - d1[0]) * half
        d2 = d2[1], d2[0] * -1.0
        d3 = (d3[1] - d3[0]) * half, (d3[0] + d3[1]) * -HALF_ROOT
        d0, d1, d2, d3 = _filter(d0, d1, d2, d3, symbol_re, symbol_im, o + 4)
        d1 = (d1[0] - d1[1]) * half, (d1[0] + d1[1]) * half
        d2 = d2[1] * -1.0, d2[0]
        d3 = (d3[0] + d3[1]) * -HALF_ROOT, (d3[0] - d3[1]) * half
        # even frequencies: sums
        s0, s1, s2, s3 = _plus(a0, a4), _plus(a1, a5), _plus(a2, a6), _plus(a3, a7)
        s0, s1, s2, s3 = _filter(s0, s1, s2, s3, symbol_re, symbol_im, o)
        _put(re, im, o, _plus(s0, d0))
        _put(re, im, o + 1, _plus(s1, d1))
        _put(re, im, o + 2, _plus(s2, d2))
        _put(re, im, o + 3, _plus(s3, d3))
        _put(re, im, o + 4, _minus(s0, d0))
        _put(re, im, o + 5, _minus(s1, d1))
        _put(re, im, o + 6, _minus(s2, d2))
        _put(re, im, o + 7, _minus(s3, d3))


@njit(**OPTIONS)
def convolve(re, im, symbol_re, symbol_im, roots):  # type: ignore[no-untyped-def]
    """P * of two real fields (N, LANES) in place; the symbol λ/N as `frequency_order` lists it."""
    span = re.shape[0]
    while span > 8:
        _forward(re, im, span, roots)
        span //= 4
    if span == 8:
        _middle8(re, im, symbol_re, symbol_im)
    else:
        _middle4(re, im, symbol_re, symbol_im)
    while span < re.shape[0]:
        span *= 4
        _backward(re, im, span, roots)


@njit(**OPTIONS)
def attend_by_moments(x, symbol_re, symbol_im, chi, roots, series, moments, ratio):  # type: ignore[no-untyped-def]
    """Write S/T of one head into `ratio` (N, LANES); `series` (M, LANES): the c_k; `moments` (M, N, LANES): scratch."""
    n, terms = x.shape[0], moments.shape[0]
    for i in range(n):
        store(ratio, i, splat(1.0))  # x^k, until the moments are made
    for k in range(0, terms, 2):
        re, im = moments[k], moments[k + 1]
        odd, even = load(series, k), load(series, k + 1)
        for i in range(n):
            xi = load(x, i)
            power = load(ratio, i) * xi
            store(re, i, odd * power)
            power = power * xi
            store(im, i, even * power)
            store(ratio, i, power)
        convolve(re, im, symbol_re, symbol_im, roots)
    for i in range(n):
        t = chi * load(x, i)
        total = load(moments[terms - 1], i)
        slope = total
        for k in range(terms - 2, -1, -1):  # Horner's rule for T and its derivative
            total = total * t + load(moments[k], i)
            slope = slope * t + total
        store(ratio, i, divided(slope, total * t + 1.0))


def frequency_order(n: int) -> NDArray[np.int64]:
    """(N,) wavenumbers in the order in which the stages of `convolve` leave them."""
    order, span = np.arange(1), n
    places = []
    while span > 8:
        places.append(4)
        span //= 4
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7]) if span == 8 else np.arange(4)
    for radix in reversed(places):
        order = np.concatenate([radix * order + first for first in range(radix)])
    return order
