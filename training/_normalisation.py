"""Compiled LayerNorm of states whose features stand one row after another, and its derivative.

Rows are gone through one after another, so that memory is read as it lies. Importing this imports numba.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dispersion.compiled import entry

ZERO, ONE = np.float32(0.0), np.float32(1.0)


@njit(nogil=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
def _sums(row, other):  # type: ignore[no-untyped-def]
    """Σ row·other and Σ row, added in whatever order is fast."""
    product, total = ZERO, ZERO
    for c in range(len(row)):
        product += row[c] * other[c]
        total += row[c]
    return product, total


@entry()
def normalise(x, gain, shift, made, z, scale, eps):  # type: ignore[no-untyped-def]
    """made ← gain ∘ z + shift, z ← (x − mean) scale, scale ← 1/√(variance + eps), of `x` (M, d, columns).

    gain, shift : (M, d); scale : (M, columns).
    """
    copies, d, columns = x.shape
    share = ONE / np.float32(d)
    for m in range(copies):
        mean, factor = np.zeros(columns, np.float32), scale[m]
        factor[:] = 0
        for k in range(d):
            row = x[m, k]
            for c in range(columns):
                mean[c] += row[c]
        for c in range(columns):
            mean[c] *= share
        for k in range(d):
            row, centred = x[m, k], z[m, k]
            for c in range(columns):
                y = row[c] - mean[c]
                centred[c] = y
                factor[c] += y * y
        for c in range(columns):
            factor[c] = ONE / np.sqrt(factor[c] * share + eps)
        for k in range(d):
            out, centred, g, b = made[m, k], z[m, k], gain[m, k], shift[m, k]
            for c in range(columns):
                y = centred[c] * factor[c]
                centred[c] = y
                out[c] = y * g + b


@entry()
def normalise_back(slope, z, scale, gain, x_slope, gain_slope, shift_slope):  # type: ignore[no-untyped-def]
    """From the `slope` of what was made those of x, gain and shift, which are written."""
    copies, d, columns = z.shape
    share = ONE / np.float32(d)
    for m in range(copies):
        mean, along = np.zeros(columns, np.float32), np.zeros(columns, np.float32)
        factor = scale[m]
        for k in range(d):
            row, one, out, g = slope[m, k], z[m, k], x_slope[m, k], gain[m, k]
            for c in range(columns):
                s = row[c] * g
                out[c] = s
                mean[c] += s
                along[c] += s * one[c]
            gain_slope[m, k], shift_slope[m, k] = _sums(row, one)
        for c in range(columns):
            mean[c] *= share
            along[c] *= share
        for k in range(d):
            one, out = z[m, k], x_slope[m, k]
            for c in range(columns):
                out[c] = (out[c] - mean[c] - one[c] * along[c]) * factor[c]
