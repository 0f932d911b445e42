"""Blocks of any kind: attention in compiled tiles, a head to a thread, and buffers kept from layer to layer.

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

from dispersion import Block
from dispersion.chain import Chain, chain_logits
from dispersion.grid import positions
from dispersion.head import Head, Rotary, softmax
from dispersion.kernel import Kernel
from simulate._engine import LARGEST_STATE, aligned
from simulate.replicas import States
from simulate.threads import one_blas_thread, pool, thread_count

LOG2_E = 1 / math.log(2)

ALONE = 1e7
"""Multiply-adds below which threads cost more than they save."""

TOGETHER = 64
"""Tokens that pass the feed-forward together: the same on any number of threads, as are the rounding errors."""

Model = Block | Chain


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
        from simulate._lanes import LANES
        from simulate._tiles import ROWS

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
        from simulate._lanes import LANES
        from simulate._tiles import REMOVED, ROWS

        n = len(logits)
        whole = -(-n // LANES) * LANES
        positional = np.zeros_like(logits) if head.gate is not None else logits
        self._bias, self._lines = _lines(np.maximum(positional * LOG2_E, REMOVED), whole)
        self._edge = np.where(np.arange(whole - LANES, whole) < n, 0.0, REMOVED)[None]
        self._turns = None
        if head.rotary is None:
            bilinear = np.vstack([head.content, _or_zero(head.key_bias, head.d)]) if constant else head.content
            content = Factors.of(bilinear * LOG2_E)
            # x_iᵀ W x_j: the query meets W, or its left factor; the key its right factor, or nothing
            query = content.right.T if content.left is None else content.left
            key = None if content.left is None else content.right
        else:
            query, key, self._turns = _rotary(head.rotary, position, constant)
        value = Factors.of(scale * head.value)
        self.left, self.features, self.depth, self._n = value.left, len(value.right), len(query), n
        share, fixed = 1.0, np.zeros((0, whole))
        if head.gate is not None:
            share, fixed = 1 - head.gate, _padded(head.gate * softmax(logits), n, whole)
        self._share, self._fixed = share, fixed.reshape(-1, whole // LANES, LANES)
        # rows are a vector longer than need be: lengths that are powers of two share cache sets
        self._query = _padded(query.T, len(query.T), _wider(self.depth))
        self._value = _padded(value.right.T, len(value.right.T), _wider(self.features))
        self.key_rows = 0 if key is None else -(-len(key) // ROWS) * ROWS
        self._key = None if key is None else _padded(key, self.key_rows, key.shape[1])

    def attend(self, rows: tuple[int, int], tokens: NDArray, turned: NDArray, desk: Desk, target: NDArray, column: int):  # type: ignore[no-untyped-def]
        """Write what the tokens `rows` take from all to `target`, from `column` on.

        tokens : (whole tiles, features). turned : their transpose (features, whole vectors).
        """
        from simulate._lanes import LANES
        from simulate._tiles import attend, product

        first, last = rows
        product(first, last, tokens, len(self._query), self._query, -(-self.depth // LANES), desk.queries)
        product(0, self._n, tokens, len(self._value), self._value, -(-self.features // LANES), desk.values)
        keys = turned
        if self._key is not None:
            keys = desk.keys
            product(0, self.depth, self._key, self._key.shape[1], turned, -(-self._n // LANES), keys)
        if self._turns is not None:
            cosine, sine = self._turns
            mine, others = desk.queries[first:last, : self.depth], keys[: self.depth, : self._n]
            mine[:] = _turned(mine.T, cosine[first:last], sine[first:last]).T
            others[:] = _turned(others, cosine, sine)
        seen = self._n, self.depth, desk.queries, keys, desk.values, self.features
        rule = self._bias, self._lines, self._edge, self._share, self._fixed
        attend(first, last, *seen, *rule, target, column, desk.tile, desk.mean)


class VectorMap:
    """The map F of a Block, or of a Chain, on n tokens of d features.

    model : the Block or Chain. largest : the largest admissible |x|.
    """

    largest = LARGEST_STATE

    def __init__(self, model: Model) -> None:
        from simulate._tiles import ROWS

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
        attention = sum(self.n**2 * (head.depth + head.features + 20.0) for head in maps)
        forward = self.block.feedforward
        pointwise = 0.0 if forward is None else 2.0 * self.n * forward.weight_in.size
        threads = 1 if attention < ALONE else thread_count()
        self._desks = [Desk(maps, self.n) for _ in range(threads)]
        self._items = _items(len(maps), threads, self.n)
        self._finishing = self._desks[: 1 if pointwise < ALONE else threads]
        self._spans = list(pairwise([*range(0, self.n, TOGETHER), self.n]))
        tiles = -(-self.n // ROWS) * ROWS
        self._tokens, self._turned = _blank(tiles, model.d + constant), _blank(model.d + constant, _wider(self.n))
        if constant:
            self._tokens[: self.n, -1] = self._turned[-1, : self.n] = 1.0
        self._taken = _blank(self.n, _wider(self._columns[-1]))

    def begin(self, states: NDArray[np.float64]) -> States:
        """The engine at `states` (P, n, d)."""
        return States(self, states)

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, n, d) F(X)."""
        seen, out = self.block.seen(x), np.empty_like(x)
        with one_blas_thread if len(self._desks) > 1 else nullcontext():
            for place in np.ndindex(x.shape[:-2]):
                self._layer(seen[place], x[place], out[place])
        return out

    def _layer(self, seen: NDArray[np.float64], x: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write F(X) to `out` (n, d) from X and what the heads see of it."""
        n, d = x.shape
        self._tokens[:n, :d], self._turned[:d, :n] = seen, seen.T

        def attend(desk: Desk, item: tuple[int, tuple[int, int]]) -> None:
            number, rows = item
            column = self._columns[number]
            self._heads[number].attend(rows, self._tokens, self._turned, desk, self._taken, column)

        def finish(desk: Desk, span: tuple[int, int]) -> None:
            first, last = span
            taken = self._taken[first:last]
            added = taken[:, : self._full * d].reshape(last - first, self._full, d).sum(axis=1)
            added += taken[:, self._full * d : self._columns[-1]] @ self._left
            if self.block.attention_bias is not None:
                added += self.block.attention_scale * self.block.attention_bias
            out[first:last] = self.block.pointwise(x[first:last] + added)

        _each(attend, self._items, self._desks)
        _each(finish, self._spans, self._finishing)


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
    from simulate._tiles import ROWS

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
        kernels = [Kernel(head.lag_logits, head.kernel.causal) for head in model.block.heads]
        logits = [chain_logits(kernel, model.n, model.boundary) for kernel in kernels]
    else:
        position = positions(model.shape)
        logits = [head.positional() for head in model.heads]
    heads = model.block.heads if isinstance(model, Chain) else model.heads
    return [(head, table, position) for head, table in zip(heads, logits, strict=True)]


def _rotary(
    rotary: Rotary, position: NDArray[np.int64], constant: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Query and key (d_h, d + constant), first members of all 2-blocks before the second, and (cos, sin) (n, d_h/2)."""
    size = len(rotary.query)
    query, key = rotary.query, rotary.key
    if constant:
        query = np.column_stack([query, _or_zero(rotary.query_bias, size)])
        key = np.column_stack([key, _or_zero(rotary.key_bias, size)])
    order = np.arange(size) if rotary.pairing == "half" else np.r_[0:size:2, 1:size:2]
    angle = position @ rotary.frequencies.T
    return LOG2_E / np.sqrt(size) * query[order], key[order], (np.cos(angle), np.sin(angle))


def _turned(u: NDArray[np.float64], cosine: NDArray[np.float64], sine: NDArray[np.float64]) -> NDArray[np.float64]:
    """R(θ·i) of features `u` (d_h, n), one row for each."""
    half = cosine.shape[1]
    first, second, c, s = u[:half], u[half:], cosine.T, sine.T
    return np.concatenate([c * first - s * second, s * first + c * second])


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


def _blank(rows: int, width: int) -> NDArray[np.float64]:
    array = aligned((rows, width))
    array[:] = 0.0
    return array


def _padded(matrix: NDArray[np.float64], rows: int, width: int) -> NDArray[np.float64]:
    array = _blank(rows, width)
    array[: matrix.shape[0], : matrix.shape[1]] = matrix
    return array


def _wider(width: int) -> int:
    """Whole vectors, and one more."""
    from simulate._lanes import LANES

    return (-(-width // LANES) + 1) * LANES
