"""Compiled attention of many features: tiles of queries against all keys, never an N×N matrix.

A tile of ROWS queries meets the keys, its logits become weights, and the weights meet the values while they are in the
cache. Both products are sums of outer products kept in registers. Importing this imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from simulate.engines._compiled import OPTIONS, entry
from simulate.engines._exp import LOWEST, exp2_product
from simulate.engines._lanes import (
    LANES,
    SIXTEEN,
    VECTOR,
    intrinsic,
    lanes_of,
    load,
    load_from,
    select_above,
    splat,
    store,
)

ROWS, WIDE = (6, 4) if SIXTEEN else (2, 2)
"""Queries in a tile, and vectors of keys or features that an outer product takes: as many as the registers hold."""


def _outer(wide: int) -> Any:
    """An intrinsic: out = a @ b for ROWS rows of `a` and `wide` vectors of columns of `b`.

    (a, row, depth, b, column, out, line): rows `row`, … of a (·, ·), its first `depth` columns; rows of b (·, ·),
    columns `column`, …, `wide`·LANES of them; to rows `line`, … of out (·, ·), the same columns. All C-contiguous.
    """

    @intrinsic
    def outer(typing: Any, a: Any, row: Any, depth: Any, b: Any, column: Any, out: Any, line: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            a, row, depth, b, column, out, line = arguments
            integer = depth.type
            arrays = [
                context.make_array(kind)(context, builder, value)
                for kind, value in ((sig.args[0], a), (sig.args[3], b), (sig.args[5], out))
            ]
            widths = [builder.extract_value(array.shape, 1) for array in arrays]
            left = [
                builder.gep(arrays[0].data, [builder.mul(builder.add(row, integer(r)), widths[0])]) for r in range(ROWS)
            ]
            right = builder.gep(arrays[1].data, [column])
            before, zero = builder.block, ir.Constant(VECTOR, [0.0] * LANES)
            loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
            builder.branch(loop)
            builder.position_at_end(loop)
            k = builder.phi(integer)
            k.add_incoming(integer(0), before)
            totals = [[builder.phi(VECTOR) for _ in range(wide)] for _ in range(ROWS)]
            finals = []
            keys = builder.gep(right, [builder.mul(k, widths[1])])
            vectors = [_load(builder, builder.gep(keys, [integer(w * LANES)])) for w in range(wide)]
            for r in range(ROWS):
                factor = lanes_of(builder, builder.load(builder.gep(left[r], [k])))
                for w in range(wide):
                    product = builder.fmul(factor, vectors[w], flags=("contract",))
                    fresh = builder.fadd(totals[r][w], product, flags=("contract",))
                    totals[r][w].add_incoming(zero, before)
                    totals[r][w].add_incoming(fresh, loop)
                    finals.append(fresh)
            following = builder.add(k, integer(1))
            k.add_incoming(following, loop)
            builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
            builder.position_at_end(after)
            for number, final in enumerate(finals):
                r, w = divmod(number, wide)
                start = builder.add(builder.mul(builder.add(line, integer(r)), widths[2]), column)
                pointer = builder.gep(arrays[2].data, [builder.add(start, integer(w * LANES))])
                builder.store(final, builder.bitcast(pointer, VECTOR.as_pointer()), align=8)
            return context.get_dummy_value()

        intp = types.intp
        return types.void(a, intp, intp, b, intp, out, intp), generate

    return outer


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, VECTOR.as_pointer()), align=8)


_wide, _single = _outer(WIDE), _outer(1)


@njit(**OPTIONS)
def _product(a, row, depth, b, columns, out, line):  # type: ignore[no-untyped-def]
    """out[line : line + ROWS] = a[row : row + ROWS, :depth] @ b[:depth], of `columns` vectors of columns."""
    place = 0
    while place + WIDE <= columns:
        _wide(a, row, depth, b, place * LANES, out, line)
        place += WIDE
    while place < columns:
        _single(a, row, depth, b, place * LANES, out, line)
        place += 1


@njit(**OPTIONS)
def product(first, last, a, depth, b, columns, out):  # type: ignore[no-untyped-def]
    """Rows `first` to `last` of out = a[:, :depth] @ b[:depth], in whole tiles, of `columns` vectors of columns."""
    for row in range(first, last, ROWS):
        _product(a, row, depth, b, columns, out, row)


@entry()
def attend(  # type: ignore[no-untyped-def]
    count,
    first,
    last,
    n,
    tokens,
    turned,
    query,
    key,
    value,
    turns,
    depth,
    features,
    bias,
    lines,
    edge,
    share,
    fixed,
    target,
    column,
    queries,
    keys,
    values,
    tile,
    mean,
):
    """Write Σ_j (share·E_ij/Σ_j E_ij + fixed_ij) v_j, E_ij = 2^{q_i·k_j + bias_ij − row maximum}, to rows of `target`.

    count : states. first, last : the rows i. n : tokens j. tokens : (·, whole tiles, c). turned : (·, c, whole vectors)
    their transposes. query : (c, ·), of which `depth` columns count. key : (whole tiles, ·) or, for keys that are the
    tokens, (0, 0). value : (·, ·), of which `features` columns count. turns : (2, n, depth/2) cosines and sines by
    which a rotary encoding turns queries and keys, (2, 0, 0) for none.
    bias : the logits of row i from bias[lines[0] + i·lines[1]] on. edge : (1, LANES), added to the last vector of
    keys, to remove what is beyond n. fixed : (n, vectors, LANES), (0, …) for none. target : (·, n, ·), from
    `column` on.
    Scratch: queries, keys, values for one state; tile (ROWS, vectors·LANES); mean (ROWS, whole vectors of features).
    All C-contiguous.
    """
    for state in range(count):
        product(first, last, tokens[state], query.shape[0], query, -(-depth // LANES), queries)
        product(0, n, tokens[state], value.shape[0], value, -(-features // LANES), values)
        met = turned[state]
        if key.shape[0] > 0:
            product(0, depth, key, key.shape[1], turned[state], -(-n // LANES), keys)
            met = keys
        half = turns.shape[2]
        for m in range(half):
            for i in range(first, last):
                c, s, a, b = turns[0, i, m], turns[1, i, m], queries[i, m], queries[i, half + m]
                queries[i, m], queries[i, half + m] = c * a - s * b, s * a + c * b
            for j in range(n):
                c, s, a, b = turns[0, j, m], turns[1, j, m], keys[m, j], keys[half + m, j]
                keys[m, j], keys[half + m, j] = c * a - s * b, s * a + c * b
        rule = bias, lines, edge, share, fixed
        _attend(first, last, n, depth, queries, met, values, features, *rule, target[state], column, tile, mean)


@njit(**OPTIONS)
def _attend(  # type: ignore[no-untyped-def]
    first, last, n, depth, queries, keys, values, features, bias, lines, edge, share, fixed, target, column, tile, mean
):
    """`attend` of one state whose queries, keys (transposed) and values are there."""
    vectors = tile.shape[1] // LANES
    tiles = tile.reshape(ROWS, vectors, LANES)
    lane, scales = np.empty((1, LANES)), np.empty(ROWS)
    for row in range(first, last, ROWS):
        _product(queries, row, depth, keys, vectors, tile, 0)
        for r in range(min(ROWS, last - row)):
            line, start = tiles[r], lines[0] + (row + r) * lines[1]
            store(line, vectors - 1, load(line, vectors - 1) + load(edge, 0))
            top, lowest, one, total = splat(-1.7e308), splat(LOWEST), splat(1.0), splat(0.0)
            for b in range(vectors):
                y = load(line, b) + load_from(bias, start + b * LANES)
                store(line, b, y)
                top = select_above(y, top, y, top)
            store(lane, 0, top)
            top = splat(lane.max())
            for b in range(vectors):
                y = load(line, b) - top
                e = exp2_product(select_above(lowest, y, lowest, y), one)
                store(line, b, e)
                total = total + e
            store(lane, 0, total)
            scales[r] = share / lane.sum()
            if fixed.shape[0] > 0:
                scale, always = splat(scales[r]), fixed[row + r]
                for b in range(vectors):
                    store(line, b, load(line, b) * scale + load(always, b))
                scales[r] = 1.0
        _product(tile, 0, n, values, -(-features // LANES), mean, 0)
        for r in range(min(ROWS, last - row)):
            for f in range(features):
                target[row + r, column + f] = scales[r] * mean[r, f]
