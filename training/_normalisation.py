"""Compiled LayerNorm of states whose features stand one row after another, and its derivative. Importing this imports
numba.
"""

from __future__ import annotations

import numpy as np

from dispersion.compiled import entry
from training._lanes import LANES, ONE, ZERO, load, root, splat, store, total_of


@entry()
def normalise(x, gain, shift, made, z, scale, copies, d, columns, eps):  # type: ignore[no-untyped-def]
    """made ← gain ∘ z + shift, z ← (x − mean) scale, scale ← 1/√(variance + eps), `x` (copies, d, columns) flat.

    gain, shift : (copies, d); scale : (copies, columns).
    """
    share, whole = np.float32(1.0 / d), columns // LANES * LANES
    for m in range(copies):
        for column in range(0, whole, LANES):
            start = m * d * columns + column
            mean = splat(ZERO)
            for k in range(d):
                mean = mean + load(x, start + k * columns)
            mean = mean * share
            variance = splat(ZERO)
            for k in range(d):
                y = load(x, start + k * columns) - mean
                variance = variance + y * y
            factor = ONE / root(variance * share + eps)
            store(scale, m * columns + column, factor)
            for k in range(d):
                y = (load(x, start + k * columns) - mean) * factor
                store(z, start + k * columns, y)
                store(made, start + k * columns, y * gain[m * d + k] + shift[m * d + k])
        for column in range(whole, columns):
            start = m * d * columns + column
            average = ZERO
            for k in range(d):
                average += x[start + k * columns]
            average *= share
            square = ZERO
            for k in range(d):
                square += (x[start + k * columns] - average) ** 2
            one = np.float32(1.0) / np.sqrt(square * share + eps)
            scale[m * columns + column] = one
            for k in range(d):
                value = (x[start + k * columns] - average) * one
                z[start + k * columns] = value
                made[start + k * columns] = value * gain[m * d + k] + shift[m * d + k]


@entry()
def normalise_back(  # type: ignore[no-untyped-def]
    slope, z, scale, gain, x_slope, gain_slope, shift_slope, copies, d, columns
):
    """From the `slope` of what was made those of x, gain and shift, which are written."""
    share, whole = np.float32(1.0 / d), columns // LANES * LANES
    for m in range(copies):
        for row in range(m * d, (m + 1) * d):
            by_gain, by_shift = splat(ZERO), splat(ZERO)
            for column in range(row * columns, row * columns + whole, LANES):
                s = load(slope, column)
                by_gain = by_gain + s * load(z, column)
                by_shift = by_shift + s
            gain_slope[row], shift_slope[row] = total_of(by_gain), total_of(by_shift)
            for column in range(row * columns + whole, (row + 1) * columns):
                gain_slope[row] += slope[column] * z[column]
                shift_slope[row] += slope[column]
        for column in range(0, whole, LANES):
            start = m * d * columns + column
            mean, along = splat(ZERO), splat(ZERO)
            for k in range(d):
                s = load(slope, start + k * columns) * gain[m * d + k]
                mean = mean + s
                along = along + s * load(z, start + k * columns)
            mean, along, factor = mean * share, along * share, load(scale, m * columns + column)
            for k in range(d):
                at = start + k * columns
                s = load(slope, at) * gain[m * d + k]
                store(x_slope, at, (s - mean - load(z, at) * along) * factor)
        for column in range(whole, columns):
            start = m * d * columns + column
            average, length = ZERO, ZERO
            for k in range(d):
                value = slope[start + k * columns] * gain[m * d + k]
                average += value
                length += value * z[start + k * columns]
            average *= share
            length *= share
            for k in range(d):
                at = start + k * columns
                value = slope[at] * gain[m * d + k] - average - z[at] * length
                x_slope[at] = value * scale[m * columns + column]
