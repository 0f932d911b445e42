"""The engine of blocks of any kind: products by BLAS, exponentials by numpy, a head to a thread.

For each head, with queries q, keys k and values v affine in s = LN_1(x),,

    E_ij = e^{q_i·k_j + b_ij − max_j},   y_i = x_i + ε_a Σ_h O_h (Σ_j E_ij v_j)/(Σ_j E_ij)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion import Block
from dispersion.block.factors import Bilinear, QueryKey, Rotary
from dispersion.block.head import Head
from dispersion.block.kernel import softmax
from dispersion.grid import positions
from dispersion.line.chain import Chain, chain_logits, positional_kernel
from simulate.engines.engine import Engine, Model, heads_of
from simulate.engines.states import OneMap
from simulate.engines.threads import one_blas_thread, pool, thread_count

Floats = NDArray[np.float64]

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


class HeadMap:
    """What one head does at every layer.

    head : the Head. logits : (n, n) positional, −inf for pairs that are not there. position : (n, D) of the tokens.
    scale : ε_a.
    """

    def __init__(self, head: Head, logits: Floats, position: NDArray[np.int64], scale: float) -> None:
        self._query, self._key, turns = _queries_keys(head.query_key, position)
        self._turns = turns
        self._bias = None if head.gate is not None else _compact(logits)
        self._share, self._fixed = 1.0, None
        if head.gate is not None:
            self._share, self._fixed = 1 - head.gate, head.gate * softmax(logits)
        output, value = head.output_value.output, head.output_value.value
        self._value = output.T if value is None else value.T
        self.left = None if value is None else scale * output.T
        if value is None:
            self._value = scale * self._value
        self.features, self.depth = self._value.shape[1], self._query[0].shape[1]

    def attend(self, seen: Floats, target: Floats, weights: Floats) -> None:
        """Write what the tokens of states `seen` (P, n, d) take from all to `target` (P, n, features).

        weights : (P, n, n) scratch, which stays in the cache from head to head.
        """
        with np.errstate(all="ignore"):
            queries, keys = self._affine(self._query, seen), self._affine(self._key, seen)
            np.matmul(queries, keys.swapaxes(1, 2), out=weights)
            if self._bias is not None:
                np.add(weights, self._bias, out=weights)
            np.subtract(weights, weights.max(axis=-1, keepdims=True), out=weights)
            np.exp(weights, out=weights)
            values = np.ones((len(seen), seen.shape[1], self.features + 1))  # the last feature adds up the weights
            np.matmul(seen, self._value, out=values[..., :-1])
            sums = weights @ values
            np.multiply(sums[..., :-1], self._share / sums[..., -1:], out=target)
            if self._fixed is not None:
                target += self._fixed @ values[..., :-1]

    def _affine(self, maps: tuple[Floats | None, Floats | None], seen: Floats) -> Floats:
        """(P, n, ·) queries or keys, turned by where the tokens are."""
        matrix, bias = maps
        if matrix is None:
            return seen
        made = seen @ matrix if bias is None else seen @ matrix + bias
        if self._turns is None:
            return made
        (c, s), half = self._turns, made.shape[-1] // 2
        a, b = made[..., :half], made[..., half:]
        return np.concatenate([c * a - s * b, s * a + c * b], axis=-1)


class VectorMap:
    """The map F of a Block, or of a Chain, on n tokens of d features.

    model : the Block or Chain.
    """

    def __init__(self, model: Model) -> None:
        self.block, self.n = model.block if isinstance(model, Chain) else model, model.n
        self._group = max(1, GROUP // self.n)
        maps = [HeadMap(*part, self.block.attention_scale) for part in _parts(model)]
        # heads of full rank first: what they give is added up; one product brings that of the others to the features
        full, low = [head for head in maps if head.left is None], [head for head in maps if head.left is not None]
        self._heads, self._full = [*full, *low], len(full)
        self._left = np.concatenate([np.zeros((0, model.d)), *(head.left for head in low if head.left is not None)])
        self._columns = np.cumsum([0] + [head.features for head in self._heads]).tolist()
        forward = self.block.feedforward
        self._operations = (
            sum(self.n**2 * (head.depth + head.features + 20.0) for head in maps),
            0.0 if forward is None else (3.0 if forward.gated else 2.0) * self.n * forward.weight_in.size,
        )
        self._shared = len(maps) > 1 and self._group * self._operations[0] > ALONE
        threads = thread_count() if self._shared else 1
        self._desks = [np.empty((self._group, self.n, self.n)) for _ in range(min(threads, len(maps)))]

    def __call__(self, x: Floats) -> Floats:
        """(…, n, d) F(X)."""
        states = x.reshape(-1, *x.shape[-2:])
        seen, out = self.block.seen(states), np.empty_like(states)
        # on one thread as on several, so that both give the same bits
        with one_blas_thread if self._shared else nullcontext():
            for first in range(0, len(states), self._group):
                some = slice(first, first + self._group)
                out[some] = self._layer(seen[some], states[some])
        return out.reshape(x.shape)

    def _layer(self, seen: Floats, x: Floats) -> Floats:
        """(P, n, d) F(X) of a group of states `x` and what the heads see of them."""
        count, n, d = x.shape
        taken, out = np.empty((count, n, self._columns[-1])), np.empty((count * n, d))

        def attend(desk: Floats, number: int) -> None:
            first, last = self._columns[number : number + 2]
            self._heads[number].attend(seen, taken[..., first:last], desk[:count])

        flat, rows = x.reshape(-1, d), taken.reshape(count * n, -1)

        def finish(desk: Floats, span: slice) -> None:
            full, low = np.split(rows[span], [self._full * d], axis=1)
            added = full.reshape(len(full), self._full, d).sum(axis=1) + low @ self._left
            if self.block.attention_bias is not None:
                added += self.block.attention_scale * self.block.attention_bias
            with np.errstate(all="ignore"):
                out[span] = self.block.pointwise(flat[span] + added)

        attending, finishing = (
            self._desks[: len(self._desks) if count * work > ALONE else 1] for work in self._operations
        )
        _each(attend, range(len(self._heads)), attending)
        _each(finish, [slice(first, first + TOGETHER) for first in range(0, len(flat), TOGETHER)], finishing)
        return out.reshape(count, n, d)


def _each(work: Callable[[Floats, Any], None], items: Sequence[Any], desks: Sequence[Floats]) -> None:
    """`work` of each of `items` by as many threads as there are `desks`; this thread is one of them."""
    queue = iter(items)

    def run(desk: Floats) -> None:
        for item in queue:
            work(desk, item)

    others = [pool().submit(run, desk) for desk in desks[1 : len(items)]]
    run(desks[0])
    for other in others:
        # one that has not begun finds nothing left to do
        if not other.cancel():
            other.result()


def _parts(model: Model) -> list[tuple[Head, Floats, NDArray[np.int64]]]:
    """(head, positional logits, positions of the tokens) of each head."""
    if isinstance(model, Block):
        return [(head, head.positional(), positions(model.shape)) for head in model.heads]
    position = np.arange(model.n)[:, None]
    kernels = [positional_kernel(head) for head in model.block.heads]
    logits = [chain_logits(kernel, model.n, model.boundary) for kernel in kernels]
    return [(head, table, position) for head, table in zip(model.block.heads, logits, strict=True)]


def _queries_keys(
    logit: Any, position: NDArray[np.int64]
) -> tuple[tuple[Floats, Floats | None], tuple[Floats | None, Floats | None], tuple[Floats, Floats] | None]:
    """(matrix, bias) of queries and of keys, without a matrix for keys that are the tokens; (cos, sin) (n, d_h/2).

    With a rotary encoding the first members of all 2-blocks come before the second.
    """
    if isinstance(logit, Bilinear):
        return (logit.matrix, logit.linear), (None, None), None
    assert isinstance(logit, QueryKey)
    order, turns = np.arange(len(logit.query)), None
    if isinstance(logit, Rotary):
        order = order if logit.pairing == "half" else np.r_[0 : len(order) : 2, 1 : len(order) : 2]
        angle = position @ logit.frequencies.T
        turns = np.cos(angle), np.sin(angle)
    query, key = logit.query[order].T / logit.root, logit.key[order].T
    biases = (None if bias is None else bias[order] for bias in (logit.query_bias, logit.key_bias))
    query_bias, key_bias = biases
    return (query, None if query_bias is None else query_bias / logit.root), (key, key_bias), turns


def _compact(logits: Floats) -> Floats:
    """`logits` (n, n); where they depend on i − j alone, a view of one line of 2n − 1 numbers."""
    if (logits[1:, 1:] == logits[:-1, :-1]).all():
        line = np.concatenate([logits[::-1, 0], logits[0, 1:]])
        return np.lib.stride_tricks.sliding_window_view(line, len(logits))[::-1]
    return logits
