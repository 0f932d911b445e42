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


@njit(**OPTIONS)
def _forward(re, im, span, roots):  # type: ignore[no-untyped-def]
    """One radix-4 stage: (a, b, c, d) at distance span/4 → their four sums, turned."""
    n, quarter = re.shape[0], span // 4
    for j in range(quarter):
        turn = j * (n // span)
        c1, s1 = splat(roots[0, turn]), splat(roots[1, turn])
        c2, s2 = splat(roots[0, 2 * turn]), splat(roots[1, 2 * turn])
        c3, s3 = splat(roots[0, 3 * turn]), splat(roots[1, 3 * turn])
        for first in range(j, n, span):
            p, q, r, s = first, first + quarter, first + 2 * quarter, first + 3 * quarter
            ar, ai, br, bi = load(re, p), load(im, p), load(re, q), load(im, q)
            cr, ci, dr, di = load(re, r), load(im, r), load(re, s), load(im, s)
            er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
            gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
            store(re, p, er + gr)
            store(im, p, ei + gi)
            ur, ui = fr + hi, fi - hr
            vr, vi = er - gr, ei - gi
            wr, wi = fr - hi, fi + hr
            if j == 0:
                store(re, q, ur)
                store(im, q, ui)
                store(re, r, vr)
                store(im, r, vi)
                store(re, s, wr)
                store(im, s, wi)
            else:
                store(re, q, ur * c1 - ui * s1)
                store(im, q, ur * s1 + ui * c1)
                store(re, r, vr * c2 - vi * s2)
                store(im, r, vr * s2 + vi * c2)
                store(re, s, wr * c3 - wi * s3)
                store(im, s, wr * s3 + wi * c3)


@njit(**OPTIONS)
def _backward(re, im, span, roots):  # type: ignore[no-untyped-def]
    """The inverse of `_forward`, times 4."""
    n, quarter = re.shape[0], span // 4
    for j in range(quarter):
        turn = j * (n // span)
        c1, s1 = splat(roots[0, turn]), splat(roots[1, turn])
        c2, s2 = splat(roots[0, 2 * turn]), splat(roots[1, 2 * turn])
        c3, s3 = splat(roots[0, 3 * turn]), splat(roots[1, 3 * turn])
        for first in range(j, n, span):
            p, q, r, s = first, first + quarter, first + 2 * quarter, first + 3 * quarter
            ar, ai, br, bi = load(re, p), load(im, p), load(re, q), load(im, q)
            cr, ci, dr, di = load(re, r), load(im, r), load(re, s), load(im, s)
            if j > 0:
                br, bi = br * c1 + bi * s1, bi * c1 - br * s1
                cr, ci = cr * c2 + ci * s2, ci * c2 - cr * s2
                dr, di = dr * c3 + di * s3, di * c3 - dr * s3
            er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
            gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
            store(re, p, er + gr)
            store(im, p, ei + gi)
            store(re, q, fr - hi)
            store(im, q, fi + hr)
            store(re, r, er - gr)
            store(im, r, ei - gi)
            store(re, s, fr + hi)
            store(im, s, fi - hr)


@njit(**OPTIONS)
def _four(ar, ai, br, bi, cr, ci, dr, di):  # type: ignore[no-untyped-def]
    """The transform of four numbers."""
    er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
    gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
    return er + gr, ei + gi, fr + hi, fi - hr, er - gr, ei - gi, fr - hi, fi + hr


@njit(**OPTIONS)
def _times(re, im, lr, li):  # type: ignore[no-untyped-def]
    return re * lr - im * li, re * li + im * lr


@njit(**OPTIONS)
def _middle4(re, im, symbol_re, symbol_im):  # type: ignore[no-untyped-def]
    """The last stage of span 4, times λ, and back."""
    for o in range(0, re.shape[0], 4):
        ar, ai, br, bi, cr, ci, dr, di = _four(
            load(re, o), load(im, o), load(re, o + 1), load(im, o + 1),
            load(re, o + 2), load(im, o + 2), load(re, o + 3), load(im, o + 3),
        )  # fmt: skip
        ar, ai = _times(ar, ai, load(symbol_re, o), load(symbol_im, o))
        br, bi = _times(br, bi, load(symbol_re, o + 1), load(symbol_im, o + 1))
        cr, ci = _times(cr, ci, load(symbol_re, o + 2), load(symbol_im, o + 2))
        dr, di = _times(dr, di, load(symbol_re, o + 3), load(symbol_im, o + 3))
        # the inverse is the transform with b and d exchanged
        ar, ai, br, bi, cr, ci, dr, di = _four(ar, ai, dr, di, cr, ci, br, bi)
        store(re, o, ar)
        store(im, o, ai)
        store(re, o + 1, br)
        store(im, o + 1, bi)
        store(re, o + 2, cr)
        store(im, o + 2, ci)
        store(re, o + 3, dr)
        store(im, o + 3, di)


@njit(**OPTIONS)
def _middle8(re, im, symbol_re, symbol_im):  # type: ignore[no-untyped-def]
    """The last stage of span 8, times λ, and back."""
    half = splat(HALF_ROOT)
    for o in range(0, re.shape[0], 8):
        a0r, a0i, a4r, a4i = load(re, o), load(im, o), load(re, o + 4), load(im, o + 4)
        a1r, a1i, a5r, a5i = load(re, o + 1), load(im, o + 1), load(re, o + 5), load(im, o + 5)
        a2r, a2i, a6r, a6i = load(re, o + 2), load(im, o + 2), load(re, o + 6), load(im, o + 6)
        a3r, a3i, a7r, a7i = load(re, o + 3), load(im, o + 3), load(re, o + 7), load(im, o + 7)
        # odd frequencies: differences, turned by e^{−iπj/4}
        d0r, d0i, d1r, d1i = a0r - a4r, a0i - a4i, a1r - a5r, a1i - a5i
        d2r, d2i, d3r, d3i = a2r - a6r, a2i - a6i, a3r - a7r, a3i - a7i
        d1r, d1i = (d1r + d1i) * half, (d1i - d1r) * half
        d2r, d2i = d2i, d2r * -1.0
        d3r, d3i = (d3i - d3r) * half, (d3r + d3i) * -HALF_ROOT
        d0r, d0i, d1r, d1i, d2r, d2i, d3r, d3i = _four(d0r, d0i, d1r, d1i, d2r, d2i, d3r, d3i)
        d0r, d0i = _times(d0r, d0i, load(symbol_re, o + 4), load(symbol_im, o + 4))
        d1r, d1i = _times(d1r, d1i, load(symbol_re, o + 5), load(symbol_im, o + 5))
        d2r, d2i = _times(d2r, d2i, load(symbol_re, o + 6), load(symbol_im, o + 6))
        d3r, d3i = _times(d3r, d3i, load(symbol_re, o + 7), load(symbol_im, o + 7))
        d0r, d0i, d1r, d1i, d2r, d2i, d3r, d3i = _four(d0r, d0i, d3r, d3i, d2r, d2i, d1r, d1i)
        d1r, d1i = (d1r - d1i) * half, (d1r + d1i) * half
        d2r, d2i = d2i * -1.0, d2r
        d3r, d3i = (d3r + d3i) * -HALF_ROOT, (d3r - d3i) * half
        # even frequencies: sums
        s0r, s0i, s1r, s1i = a0r + a4r, a0i + a4i, a1r + a5r, a1i + a5i
        s2r, s2i, s3r, s3i = a2r + a6r, a2i + a6i, a3r + a7r, a3i + a7i
        s0r, s0i, s1r, s1i, s2r, s2i, s3r, s3i = _four(s0r, s0i, s1r, s1i, s2r, s2i, s3r, s3i)
        s0r, s0i = _times(s0r, s0i, load(symbol_re, o), load(symbol_im, o))
        s1r, s1i = _times(s1r, s1i, load(symbol_re, o + 1), load(symbol_im, o + 1))
        s2r, s2i = _times(s2r, s2i, load(symbol_re, o + 2), load(symbol_im, o + 2))
        s3r, s3i = _times(s3r, s3i, load(symbol_re, o + 3), load(symbol_im, o + 3))
        s0r, s0i, s1r, s1i, s2r, s2i, s3r, s3i = _four(s0r, s0i, s3r, s3i, s2r, s2i, s1r, s1i)
        store(re, o, s0r + d0r)
        store(im, o, s0i + d0i)
        store(re, o + 1, s1r + d1r)
        store(im, o + 1, s1i + d1i)
        store(re, o + 2, s2r + d2r)
        store(im, o + 2, s2i + d2i)
        store(re, o + 3, s3r + d3r)
        store(im, o + 3, s3i + d3i)
        store(re, o + 4, s0r - d0r)
        store(im, o + 4, s0i - d0i)
        store(re, o + 5, s1r - d1r)
        store(im, o + 5, s1i - d1i)
        store(re, o + 6, s2r - d2r)
        store(im, o + 6, s2i - d2i)
        store(re, o + 7, s3r - d3r)
        store(im, o + 7, s3i - d3i)


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
