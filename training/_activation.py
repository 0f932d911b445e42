"""Compiled tanh of rows with a bias each, and its derivative. Importing this imports numba."""

from __future__ import annotations

from math import tanh as exact

import numpy as np

from dispersion.compiled import entry
from training._lanes import LANES, ONE, ZERO, load, splat, store, tanh, total_of


@entry()
def tanh_rows(values, bias, columns):  # type: ignore[no-untyped-def]
    """values ← tanh(values + bias), `values` (rows, columns) flat and `bias` (rows,)."""
    whole = columns // LANES * LANES
    for row in range(len(bias)):
        start, shift = row * columns, bias[row]
        for column in range(start, start + whole, LANES):
            store(values, column, tanh(load(values, column) + shift))
        for column in range(start + whole, start + columns):
            values[column] = np.float32(exact(values[column] + shift))


@entry()
def tanh_rows_back(slope, values, made, bias_slope, columns):  # type: ignore[no-untyped-def]
    """made ← slope (1 − values²), and its sums by row to `bias_slope`."""
    whole = columns // LANES * LANES
    for row in range(len(bias_slope)):
        start, total = row * columns, splat(ZERO)
        for column in range(start, start + whole, LANES):
            h = load(values, column)
            s = load(slope, column) * (ONE - h * h)
            store(made, column, s)
            total = total + s
        rest = ZERO
        for column in range(start + whole, start + columns):
            s = slope[column] * (ONE - values[column] * values[column])
            made[column] = s
            rest += s
        bias_slope[row] = total_of(total) + rest
