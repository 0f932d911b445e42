"""Blocks of any kind: projections by BLAS, attention in compiled tiles, buffers kept from layer to layer.

For each head, with W = QᵀK and M = OV of few rows where their rank allows it,

    E_ij = e^{(Q s_i)·(K s_j) + b_ij − max_j},   y_i = x_i + ε_a Σ_h O_h (Σ_j E_ij V_h s_j)/(Σ_j E_ij),   s = LN_1(x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dispersion import Block
from dispersion.chain import Chain, chain_logits
from dispersion.grid import positions
from dispersion.head import Head, Rotary, softmax
from dispersion.kernel import Kernel
from simulate._engine import LARGEST_STATE, aligned, pool, thread_count
from simulate.replicas import States

LOG2_E = 1 / math.log(2)

ALONE = 1e6
"""Operations of a layer below which threads cost more than they save."""

SPANS = 3
"""Ranges of tokens for each thread, so that none waits long for another."""

Model = Block | Chain


@dataclass(frozen=True, eq=False)
class Factors:
    """A matrix as left.T @ right, both (r, d); left is None where the matrix itself, r = d, is as good."""

    left: NDArray[np.float64] | None
    right: NDArray[np.float64]

    @classmethod
    def of(cls, matrix: NDArray[np.float64]) -> Factors:
        """Of rank r ≤ d/2 where the other singular values are rounding errors of the largest."""
        u, sizes, v = np.linalg.svd(matrix)
        rank = max(1, int((sizes > sizes[0] * len(matrix) * np.finfo(float).eps).sum()))
        if rank > len(matrix) // 2:
            return cls(None, matrix)
        return cls((u[:, :rank] * sizes[:rank]).T.copy(), v[:rank].copy())


class HeadMap:
    """What one head does at every layer: `see` the tokens, then `attend` from some of them.

    head : the Head. logits : (n, n) positional, −inf for pairs that are not there. position : (n, D). scale : ε_a.
    """

    def __init__(self, head: Head, logits: NDArray[np.float64], position: NDArray[np.int64], scale: float) -> None:
        from simulate._lanes import LANES
        from simulate._tiles import REMOVED, ROWS

        n = len(logits)
        whole = -(-n // LANES) * LANES
        positional = np.zeros_like(logits) if head.gate is not None else logits
        self._bias, self._lines = _lines(np.maximum(positional * LOG2_E, REMOVED), whole)
        self._edge = np.where(np.arange(whole - LANES, whole) < n, 0.0, REMOVED)[None]
        self._turns = None
        if head.rotary is None:
            content = Factors.of(head.content * LOG2_E)
            # x_iᵀ W x_j: the query meets W, or its left factor; the key its right factor, or nothing
            query = content.right.T if content.left is None else content.left
            key = None if content.left is None else content.right
        else:
            query, key, self._turns = _rotary(head.rotary, position)
        value = Factors.of(scale * head.value)
        self.left, self.features, self._depth, self._n = value.left, len(value.right), len(query), n
        share, fixed = 1.0, np.zeros((0, whole))
        if head.gate is not None:
            share, fixed = 1 - head.gate, _padded(head.gate * softmax(logits), n, whole)
        self._share, self._fixed = share, fixed.reshape(-1, whole // LANES, LANES)
        # rows are a vector longer than need be: lengths that are powers of two share cache sets
        tiles, width, long = -(-n // ROWS) * ROWS, _wider(self._depth), _wider(self.features)
        self._query, self._value = _padded(query.T, len(query.T), width), _padded(value.right.T, len(query.T), long)
        self._queries, self._values = _blank(tiles, width), _blank(tiles, long)
        if key is None:
            self._key = None
        else:
            rows = -(-len(key) // ROWS) * ROWS
            self._key, self._keys = _padded(key, rows, key.shape[1]), _blank(rows, _wider(n))

    def see(self, tokens: NDArray[np.float64], turned: NDArray[np.float64]) -> None:
        """Queries, keys and values of the `tokens` (whole tiles, d), `turned` their transpose (d, whole vectors)."""
        from simulate._lanes import LANES
        from simulate._tiles import product

        n, d = self._n, tokens.shape[1]
        product(tokens, n, d, self._query, -(-self._depth // LANES), self._queries)
        product(tokens, n, d, self._value, -(-self.features // LANES), self._values)
        if self._key is None:
            self._keys = turned
        else:
            product(self._key, self._depth, d, turned, -(-n // LANES), self._keys)
        if self._turns is not None:
            queries, keys = self._queries[:n, : self._depth], self._keys[: self._depth, :n]
            queries[:] = _turned(queries.T, *self._turns).T
            keys[:] = _turned(keys, *self._turns)

    def attend(self, first: int, last: int, target: NDArray, column: int, tile: NDArray, mean: NDArray) -> None:
        """Add what tokens `first` to `last` take from all to `target`, from `column` on; tile and mean: scratch."""
        from simulate._tiles import attend

        seen = self._n, self._depth, self._queries, self._keys, self._values, self.features
        rule = self._bias, self._lines, self._edge, self._share, self._fixed
        attend(first, last, *seen, *rule, target, column, tile, mean)


class VectorMap:
    """The map F of a Block, or of a Chain, on n tokens of d features.

    model : the Block or Chain. largest : the largest admissible |x|.
    """

    largest = LARGEST_STATE

    def __init__(self, model: Model) -> None:
        from simulate._lanes import LANES
        from simulate._tiles import ROWS

        self.block = model.block if isinstance(model, Chain) else model
        self.heads = [HeadMap(*parts, self.block.attention_scale) for parts in _parts(model)]
        self.n = model.n
        # heads of low rank write side by side, and one product brings them back to the features
        low = [head for head in self.heads if head.left is not None]
        self._left = np.concatenate([head.left for head in low if head.left is not None]) if low else None
        ends = np.cumsum([0] + [head.features for head in low])
        self._columns = dict(zip(map(id, low), map(int, ends), strict=False))
        whole = -(-self.n // LANES) * LANES
        widest = -(-max(head.features for head in self.heads) // LANES) * LANES
        work = sum(self.n**2 * (head.features + 20.0) for head in self.heads)
        tiles = -(-self.n // ROWS)
        self._threads = 1 if work < ALONE else thread_count()
        edges = (
            np.linspace(0, tiles, min(tiles, 1 if self._threads == 1 else SPANS * self._threads) + 1).astype(int) * ROWS
        )
        self._spans = [(int(a), int(min(b, self.n))) for a, b in pairwise(edges)]
        self._scratch = [(_blank(ROWS, whole), _blank(ROWS, widest)) for _ in self._spans]
        self._tokens, self._turned = _blank(tiles * ROWS, model.d), _blank(model.d, _wider(self.n))

    def begin(self, states: NDArray[np.float64]) -> States:
        """The engine at `states` (P, n, d)."""
        return States(self, states)

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, n, d) F(X)."""
        seen = self.block.seen(x)
        y = x.copy()
        for place in np.ndindex(x.shape[:-2]):
            self._attention(np.ascontiguousarray(seen[place]), y[place])
        out: NDArray[np.float64] = self.block.pointwise(y)
        return out

    def _attention(self, tokens: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        """Add the attention branch at `tokens` (n, d) to `y` (n, d)."""
        side = None if self._left is None else np.zeros((self.n, len(self._left)))
        targets = [
            (y, 0) if side is None or head.left is None else (side, self._columns[id(head)]) for head in self.heads
        ]
        self._tokens[: self.n], self._turned[:, : self.n] = tokens, tokens.T

        def see(number: int) -> None:
            self.heads[number].see(self._tokens, self._turned)

        def attend(number: int) -> None:
            for head, target in zip(self.heads, targets, strict=True):
                head.attend(*self._spans[number], *target, *self._scratch[number])

        self._each(see, len(self.heads))
        self._each(attend, len(self._spans))
        if side is not None and self._left is not None:
            y += side @ self._left

    def _each(self, work: Callable[[int], None], count: int) -> None:
        """`work` of 0 … count − 1, on all threads if that pays."""
        if self._threads == 1:
            for number in range(count):
                work(number)
        else:
            for future in [pool().submit(work, number) for number in range(count)]:
                future.result()


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
    rotary: Rotary, position: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Query and key (d_h, d), first members of all 2-blocks before the second ones, and (cos, sin) (n, d_h/2)."""
    size = len(rotary.query)
    order = np.arange(size) if rotary.pairing == "half" else np.r_[0:size:2, 1:size:2]
    angle = position @ rotary.frequencies.T
    scale = LOG2_E / np.sqrt(size)
    return scale * rotary.query[order], rotary.key[order], (np.cos(angle), np.sin(angle))


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
