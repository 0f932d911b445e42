"""Compiled attention of many small heads, and its derivative, for LANES sequences at a time.

Queries, keys and values of one head stand feature by feature, token by token, lanes last; the N×N weights of one
head never leave the nearest cache, and the derivative makes them anew. Importing this imports numba.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dispersion.compiled import OPTIONS, entry
from training._lanes import LANES, ONE, ZERO, above, exp, load, splat, store, total_of

BLOCK = 4
"""Sums that are carried in registers side by side; tables have whole blocks of rows and columns."""


@njit(**OPTIONS)
def _read(source, start, width, n, batch, first, table, columns):  # type: ignore[no-untyped-def]
    """`width` features of n tokens of the sequences from `first` on, into `table` (width, columns, LANES)."""
    for k in range(width):
        for j in range(n):
            place, at = start + (k * n + j) * batch + first, (k * columns + j) * LANES
            if first + LANES <= batch:
                store(table, at, load(source, place))
            else:
                for lane in range(LANES):
                    table[at + lane] = source[place + lane] if first + lane < batch else ZERO


@njit(**OPTIONS)
def _write(table, columns, target, start, width, n, batch, first):  # type: ignore[no-untyped-def]
    """The inverse of `_read`."""
    for k in range(width):
        for j in range(n):
            place, at = start + (k * n + j) * batch + first, (k * columns + j) * LANES
            if first + LANES <= batch:
                store(target, place, load(table, at))
            else:
                for lane in range(batch - first):
                    target[place + lane] = table[at + lane]


@njit(**OPTIONS)
def _products(rows, i, table, width, columns, out):  # type: ignore[no-untyped-def]
    """out_j = Σ_k rows_ki table_kj."""
    for j in range(0, columns, BLOCK):
        a = splat(ZERO)
        b, c, d = a, a, a
        for k in range(width):
            x = load(rows, (k * columns + i) * LANES)
            at = (k * columns + j) * LANES
            a = a + x * load(table, at)
            b = b + x * load(table, at + LANES)
            c = c + x * load(table, at + 2 * LANES)
            d = d + x * load(table, at + 3 * LANES)
        at = j * LANES
        store(out, at, a)
        store(out, at + LANES, b)
        store(out, at + 2 * LANES, c)
        store(out, at + 3 * LANES, d)


@njit(**OPTIONS)
def _mixture(weights, start, step, table, width, n, columns, factor, out, i):  # type: ignore[no-untyped-def]
    """out_ki = factor Σ_j weights_j table_kj."""
    row = columns * LANES
    for k in range(0, width, BLOCK):
        a = splat(ZERO)
        b, c, d = a, a, a
        for j in range(n):
            x = load(weights, (start + j * step) * LANES)
            at = (k * columns + j) * LANES
            a = a + x * load(table, at)
            b = b + x * load(table, at + row)
            c = c + x * load(table, at + 2 * row)
            d = d + x * load(table, at + 3 * row)
        at = (k * columns + i) * LANES
        store(out, at, factor * a)
        store(out, at + row, factor * b)
        store(out, at + 2 * row, factor * c)
        store(out, at + 3 * row, factor * d)


@njit(**OPTIONS)
def _blocks(size):  # type: ignore[no-untyped-def]
    return (size + BLOCK - 1) // BLOCK * BLOCK


@entry()
def attend(projected, pairs, mixed, tops, sums, copies, heads, inner, outer, n, batch):  # type: ignore[no-untyped-def]
    """Σ_j A_ij v_j of all heads, A = softmax(q_i·k_j + b_ij), with the largest logit of each row and its 1/Σ.

    projected : (M, H·(2·inner + outer), n, batch) queries, keys and values; pairs : (M, H, n, n); mixed : (M, H·outer,
    n, batch) and tops, sums (M, H, n, batch) are written. All flat.
    """
    columns = _blocks(n)
    queries = np.zeros(_blocks(inner) * columns * LANES, np.float32)
    keys = np.zeros(_blocks(inner) * columns * LANES, np.float32)
    values = np.zeros(_blocks(outer) * columns * LANES, np.float32)
    out = np.zeros(_blocks(outer) * columns * LANES, np.float32)
    logits = np.zeros(columns * LANES, np.float32)
    top = np.zeros(columns * LANES, np.float32)
    total = np.zeros(columns * LANES, np.float32)
    token = n * batch
    for head in range(copies * heads):
        m, h = head // heads, head % heads
        base = m * heads * (2 * inner + outer)
        for first in range(0, batch, LANES):
            _read(projected, (base + h * inner) * token, inner, n, batch, first, queries, columns)
            _read(projected, (base + (heads + h) * inner) * token, inner, n, batch, first, keys, columns)
            _read(projected, (base + 2 * heads * inner + h * outer) * token, outer, n, batch, first, values, columns)
            for i in range(n):
                _products(queries, i, keys, inner, columns, logits)
                largest = splat(np.float32(-np.inf))
                for j in range(n):
                    s = load(logits, j * LANES) + pairs[(head * n + i) * n + j]
                    store(logits, j * LANES, s)
                    largest = above(largest, s, largest, s)
                weight = splat(ZERO)
                for j in range(n):
                    e = exp(load(logits, j * LANES) - largest)
                    store(logits, j * LANES, e)
                    weight = weight + e
                inverse = ONE / weight
                store(top, i * LANES, largest)
                store(total, i * LANES, inverse)
                _mixture(logits, 0, 1, values, outer, n, columns, inverse, out, i)
            _write(out, columns, mixed, head * outer * token, outer, n, batch, first)
            _write(top, columns, tops, head * token, 1, n, batch, first)
            _write(total, columns, sums, head * token, 1, n, batch, first)


@entry()
def attend_back(  # type: ignore[no-untyped-def]
    slope, projected, pairs, mixed, tops, sums, projected_slope, pairs_slope, copies, heads, inner, outer, n, batch
):
    """From the `slope` of `mixed` those of `projected` and `pairs`, which are written."""
    columns = _blocks(n)
    queries = np.zeros(_blocks(inner) * columns * LANES, np.float32)
    keys = np.zeros(_blocks(inner) * columns * LANES, np.float32)
    back_q = np.zeros(_blocks(inner) * columns * LANES, np.float32)
    back_k = np.zeros(_blocks(inner) * columns * LANES, np.float32)
    values = np.zeros(_blocks(outer) * columns * LANES, np.float32)
    out = np.zeros(_blocks(outer) * columns * LANES, np.float32)
    back_o = np.zeros(_blocks(outer) * columns * LANES, np.float32)
    back_v = np.zeros(_blocks(outer) * columns * LANES, np.float32)
    logits = np.zeros(columns * LANES, np.float32)
    products = np.zeros(columns * LANES, np.float32)
    top = np.zeros(columns * LANES, np.float32)
    total = np.zeros(columns * LANES, np.float32)
    weights = np.zeros(n * (columns + 1) * LANES, np.float32)
    slopes = np.zeros(n * (columns + 1) * LANES, np.float32)
    token, one = n * batch, splat(ONE)
    for head in range(copies * heads):
        m, h = head // heads, head % heads
        base = m * heads * (2 * inner + outer)
        at_q, at_k = (base + h * inner) * token, (base + (heads + h) * inner) * token
        at_v = (base + 2 * heads * inner + h * outer) * token
        for pair in range(n * n):
            pairs_slope[head * n * n + pair] = ZERO
        for first in range(0, batch, LANES):
            _read(projected, at_q, inner, n, batch, first, queries, columns)
            _read(projected, at_k, inner, n, batch, first, keys, columns)
            _read(projected, at_v, outer, n, batch, first, values, columns)
            _read(mixed, head * outer * token, outer, n, batch, first, out, columns)
            _read(slope, head * outer * token, outer, n, batch, first, back_o, columns)
            _read(tops, head * token, 1, n, batch, first, top, columns)
            _read(sums, head * token, 1, n, batch, first, total, columns)
            for i in range(n):
                _products(queries, i, keys, inner, columns, logits)
                _products(back_o, i, values, outer, columns, products)
                mean = splat(ZERO)
                for k in range(outer):
                    at = (k * columns + i) * LANES
                    mean = mean + load(back_o, at) * load(out, at)
                largest, inverse = load(top, i * LANES), load(total, i * LANES)
                for j in range(n):
                    pair, at = (head * n + i) * n + j, (i * (columns + 1) + j) * LANES
                    a = inverse * exp(load(logits, j * LANES) + pairs[pair] - largest)
                    s = a * (load(products, j * LANES) - mean)
                    store(weights, at, a)
                    store(slopes, at, s)
                    pairs_slope[pair] += total_of(s)
                _mixture(slopes, i * (columns + 1), 1, keys, inner, n, columns, one, back_q, i)
            for j in range(n):
                _mixture(slopes, j, columns + 1, queries, inner, n, columns, one, back_k, j)
                _mixture(weights, j, columns + 1, back_o, outer, n, columns, one, back_v, j)
            _write(back_q, columns, projected_slope, at_q, inner, n, batch, first)
            _write(back_k, columns, projected_slope, at_k, inner, n, batch, first)
            _write(back_v, columns, projected_slope, at_v, outer, n, batch, first)
