"""The engine of blocks of any kind: attention in compiled tiles, a head to a thread, feed-forward by BLAS.

For each head, with W = QᵀK and M = OV of few rows where their rank allows it,

    E_ij = e^{(Q s_i)·(K s_j) + b_ij − max_j},   y_i = x_i + ε_a Σ_h O_h (Σ_j E_ij V_h s_j)/(Σ_j E_ij),   s = LN_1(x)

A bias of the queries or keys is a row of Q or K that meets a last feature of s, which is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion.block.factors import Rotary
from dispersion.block.head import Head
from dispersion.block.kernel import softmax
from dispersion.grid import positions
from dispersion.line.chain import Chain, chain_logits, positional_kernel
from simulate.engines.engine import Engine, Model, heads_of
from simulate.engines.scalar import aligned
from simulate.engines.states import OneMap
from simulate.engines.threads import one_blas_thread, pool, thread_count

LOG2_E = 1 / math.log(2)

ALONE = 1e7
"""Multiply-adds below which threads cost more than they save."""

TOGETHER = 64
"""Tokens that pass the feed-forward together: the same on any number of threads, as are the rounding errors."""

GROUP = 256
"""Tokens in the small states that attend together."""


class Blas(Engine):
    """Blocks and chains of any kind."""

    name = "blas"

    def fits(self, model: Model) -> bool:
        """Always."""
        return True

    def system(self, models: Sequence[Model]) -> OneMap:
        """The points of one of these `models`, the first."""
        return OneMap(VectorMap(models[0]))

    def operations(self, model: Model) -> float:
        """Of the products with d×d and N×N matrices, and the exponentials."""
        return heads_of(model) * model.n * (model.n * (2 * model.d + 20) + 2 * model.d**2)

    def bytes(self, model: Model, points: int) -> float:
        """Of states, and N×N logits."""
        return 8 * (40 * points * model.n * model.d + model.n**2 * (3 * heads_of(model) + 6))


@dataclass(frozen=True, eq=False)
class Factors:
    """A matrix (a, b) as left.T @ right of few rows; left is None where the matrix itself is as good."""

    left: NDArray[np.float64] | None
    right: NDArray[np.float64]

    @classmethod
    def of(cls, matrix: NDArray[np.float64]) -> Factors:
        """Of rank r ≤ b/2 where the other singular values are rounding errors of the largest."""
        u, sizes, v = np.linalg.svd(matrix, full_matrices=False)
        rank = max(1, int((sizes > sizes[0] * len(matrix) * np.finfo(float).eps).sum()))
        if rank > matrix.shape[1] // 2:
            return cls(None, matrix)
        return cls((u[:, :rank] * sizes[:rank]).T.copy(), v[:rank].copy())


class Desk:
    """What a thread needs beside the tokens while it works on a head: room for the largest of `heads`, n tokens."""

    def __init__(self, heads: Sequence[HeadMap], n: int) -> None:
        from simulate.engines._lanes import LANES
        from simulate.engines._tiles import ROWS

        tiles, features = -(-n // ROWS) * ROWS, max(head.features for head in heads)
        self.queries = _blank(tiles, max(_wider(head.depth) for head in heads))
        self.keys = _blank(max(head.key_rows for head in heads), _wider(n))
        self.values = _blank(tiles, _wider(features))
        self.tile, self.mean = _blank(ROWS, -(-n // LANES) * LANES), _blank(ROWS, -(-features // LANES) * LANES)


class HeadMap:
    """What one head does at every layer.

    head : the Head. logits : (n, n) positional, −inf for pairs that are not there. position : (n, D). scale : ε_a.
    constant : whether tokens have a last feature 1, which biases meet.
    """

    def __init__(
        self, head: Head, logits: NDArray[np.float64], position: NDArray[np.int64], scale: float, constant: bool
    ) -> None:
        from simulate.engines._exp import REMOVED
        from simulate.engines._lanes import LANES
        from simulate.engines._tiles import ROWS

        n = len(logits)
        whole = -(-n // LANES) * LANES
        positional = np.zeros_like(logits) if head.gate is not None else logits
        bias, lines = _lines(np.maximum(positional * LOG2_E, REMOVED), whole)
        edge = np.where(np.arange(whole - LANES, whole) < n, 0.0, REMOVED)[None]
        turns = np.zeros((2, 0, 0))
        if head.rotary is None:
            bilinear = np.vstack([head.content, _or_zero(head.key_bias, head.d)]) if constant else head.content
            content = Factors.of(bilinear * LOG2_E)
            # x_iᵀ W x_j: the query meets W, or its left factor; the key its right factor, or nothing
            query = content.right.T if content.left is None else content.left
            key = np.zeros((0, 0)) if content.left is None else content.right
        else:
            query, key, turns = _rotary(head.rotary, position, constant)
        value = Factors.of(scale * head.value)
        self.left, self.features, self.depth, self._n = value.left, len(value.right), len(query), n
        share, fixed = 1.0, np.zeros((0, whole))
        if head.gate is not None:
            share, fixed = 1 - head.gate, _padded(head.gate * softmax(logits), n, whole)
        self.key_rows = -(-len(key) // ROWS) * ROWS
        # rows are a vector longer than need be: lengths that are powers of two share cache sets
        self._maps = (
            _padded(query.T, len(query.T), _wider(self.depth)),
            _padded(key, self.key_rows, key.shape[1]),
            _padded(value.right.T, len(value.right.T), _wider(self.features)),
            turns,
        )
        self._rule = bias, lines, edge, share, fixed.reshape(-1, whole // LANES, LANES)

    def attend(
        self,
        count: int,
        rows: tuple[int, int],
        tokens: NDArray,
        turned: NDArray,
        desk: Desk,
        target: NDArray,
        column: int,
    ) -> None:
        """Write what the tokens `rows` take from all, in `count` states, to `target` (·, n, ·), from `column` on.

        tokens : (·, whole tiles, features). turned : their transposes (·, features, whole vectors).
        """
        from simulate.engines._tiles import attend

        seen = count, *rows, self._n, tokens, turned, *self._maps, self.depth, self.features
        attend(*seen, *self._rule, target, column, desk.queries, desk.keys, desk.values, desk.tile, desk.mean)


class VectorMap:
    """The map F of a Block, or of a Chain, on n tokens of d features.

    model : the Block or Chain.
    """

    def __init__(self, model: Model) -> None:
        from simulate.engines._tiles import ROWS

        self.block, self.n = model.block if isinstance(model, Chain) else model, model.n
        parts = _parts(model)
        constant = any(_biased(head) for head, _, _ in parts)
        maps = [HeadMap(*part, self.block.attention_scale, constant) for part in parts]
        # heads of full rank first: what they give is added up; one product brings that of the others to the features
        full, low = [head for head in maps if head.left is None], [head for head in maps if head.left is not None]
        self._heads = [*full, *low]
        self._full = len(full)
        self._left = np.concatenate([np.zeros((0, model.d)), *(head.left for head in low if head.left is not None)])
        self._columns = np.cumsum([0] + [head.features for head in self._heads]).tolist()
        forward = self.block.feedforward
        self._operations = (
            sum(self.n**2 * (head.depth + head.features + 20.0) for head in maps),
            0.0 if forward is None else (3.0 if forward.gated else 2.0) * self.n * forward.weight_in.size,
        )
        self._group = max(1, GROUP // self.n)
        threads = thread_count() if self._group * self._operations[0] > ALONE else 1
        self._desks = [Desk(maps, self.n) for _ in range(threads)]
        self._items = {number: _items(len(maps), number, self.n) for number in (1, threads)}
        tiles, features = -(-self.n // ROWS) * ROWS, model.d + constant
        self._tokens = _blank(self._group, tiles, features)
        self._turned = _blank(self._group, features, _wider(self.n))
        if constant:
            self._tokens[:, : self.n, -1] = self._turned[:, -1, : self.n] = 1.0
        self._taken = _blank(self._group, self.n, _wider(self._columns[-1]))

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, n, d) F(X)."""
        states = x.reshape(-1, *x.shape[-2:])
        seen, out = self.block.seen(states), np.empty_like(states)
        with one_blas_thread if len(self._desks) > 1 else nullcontext():
            for first in range(0, len(states), self._group):
                some = slice(first, first + self._group)
                out[some] = self._layer(seen[some], states[some])
        return out.reshape(x.shape)

    def _layer(self, seen: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(P, n, d) F(X) of a group of states `x` and what the heads see of them."""
        count, n, d = x.shape
        self._tokens[:count, :n, :d], self._turned[:count, :d, :n] = seen, seen.swapaxes(1, 2)
        x, out = x.reshape(-1, d), np.empty((count * n, d))
        taken = self._taken[:count].reshape(count * n, -1)

        def attend(desk: Desk, item: tuple[int, tuple[int, int]]) -> None:
            number, rows = item
            column = self._columns[number]
            self._heads[number].attend(count, rows, self._tokens, self._turned, desk, self._taken, column)

        def finish(desk: Desk, span: slice) -> None:
            full, low = np.split(taken[span, : self._columns[-1]], [self._full * d], axis=1)
            added = full.reshape(len(full), self._full, d).sum(axis=1) + low @ self._left
            if self.block.attention_bias is not None:
                added += self.block.attention_scale * self.block.attention_bias
            out[span] = self.block.pointwise(x[span] + added)

        attending, finishing = (
            self._desks[: len(self._desks) if count * operations > ALONE else 1] for operations in self._operations
        )
        _each(attend, self._items[len(attending)], attending)
        _each(finish, [slice(first, first + TOGETHER) for first in range(0, len(x), TOGETHER)], finishing)
        return out.reshape(count, n, d)


def _each(work: Callable[[Desk, Any], None], items: Sequence[Any], desks: Sequence[Desk]) -> None:
    """`work` of each of `items` by as many threads as there are `desks`; this thread is one of them."""
    queue = iter(items)

    def run(desk: Desk) -> None:
        for item in queue:
            work(desk, item)

    others = [pool().submit(run, desk) for desk in desks[1 : len(items)]]
    run(desks[0])
    for other in others:
        # one that has not begun finds nothing left to do
        if not other.cancel():
            other.result()


def _items(heads: int, threads: int, n: int) -> list[tuple[int, tuple[int, int]]]:
    """(head, range of tokens) to be worked on: whole heads, but for the last few, divided among all threads."""
    from simulate.engines._tiles import ROWS

    whole = heads - heads % threads
    parts = -(-threads // (heads - whole)) if whole < heads else 1
    edges = np.linspace(0, -(-n // ROWS), parts + 1).astype(int) * ROWS
    ranges = [(int(a), int(min(b, n))) for a, b in pairwise(edges) if a < b]
    return [(number, (0, n)) for number in range(whole)] + [
        (number, rows) for number in range(whole, heads) for rows in ranges
    ]


def _biased(head: Head) -> bool:
    """Whether queries or keys have biases."""
    rotary = head.rotary
    biases = (head.key_bias,) if rotary is None else (rotary.query_bias, rotary.key_bias)
    return any(bias is not None for bias in biases)


def _or_zero(bias: NDArray[np.float64] | None, size: int) -> NDArray[np.float64]:
    return np.zeros(size) if bias is None else bias


def _parts(model: Model) -> list[tuple[Head, NDArray[np.float64], NDArray[np.int64]]]:
    """(head, positional logits, positions of the tokens) of each head."""
    if isinstance(model, Chain):
        position = np.arange(model.n)[:, None]
        kernels = [positional_kernel(head) for head in model.block.heads]
        logits = [chain_logits(kernel, model.n, model.boundary) for kernel in kernels]
    else:
        position = positions(model.shape)
        logits = [head.positional() for head in model.heads]
    heads = model.block.heads if isinstance(model, Chain) else model.heads
    return [(head, table, position) for head, table in zip(heads, logits, strict=True)]


def _rotary(
    rotary: Rotary, position: NDArray[np.int64], constant: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Query, key (d_h, d + constant), first members of all 2-blocks before the second; (cos, sin) (2, n, d_h/2)."""
    size = len(rotary.query)
    query, key = rotary.query, rotary.key
    if constant:
        query = np.column_stack([query, _or_zero(rotary.query_bias, size)])
        key = np.column_stack([key, _or_zero(rotary.key_bias, size)])
    order = np.arange(size) if rotary.pairing == "half" else np.r_[0:size:2, 1:size:2]
    angle = position @ rotary.frequencies.T
    return LOG2_E / np.sqrt(size) * query[order], key[order], np.array([np.cos(angle), np.sin(angle)])


def _lines(bias: NDArray[np.float64], whole: int) -> tuple[NDArray[np.float64], tuple[int, int]]:
    """`bias` (n, n) laid out so that row i starts at first + i·step, and (first, step).

    One line of 2n − 1 numbers where it depends on i − j alone, and so stays in the cache; else row after row, each of
    length `whole`.
    """
    n = len(bias)
    if (bias[1:, 1:] == bias[:-1, :-1]).all():
        return np.concatenate([bias[::-1, 0], bias[0, 1:], np.zeros(whole - n + 1)]), (n - 1, -1)
    rows = np.zeros((n, whole))
    rows[:, :n] = bias
    return rows.ravel(), (0, whole)


def _blank(*shape: int) -> NDArray[np.float64]:
    array = aligned(shape)
    array[:] = 0.0
    return array


def _padded(matrix: NDArray[np.float64], rows: int, width: int) -> NDArray[np.float64]:
    array = _blank(rows, width)
    array[: matrix.shape[0], : matrix.shape[1]] = matrix
    return array


def _wider(width: int) -> int:
    """Whole vectors, and one more."""
    from simulate.engines._lanes import LANES

    return (-(-width // LANES) + 1) * LANES
