"""Blocks of any kind: matrix products by BLAS, softmax by one compiled pass, buffers kept from layer to layer.

For each head, with W = QᵀK and M = OV of few rows where their rank allows it,

    E_ij = e^{(Q s_i)·(K s_j) + b_ij − max_j},   y_i = x_i + ε_a Σ_h O_h (Σ_j E_ij V_h s_j)/(Σ_j E_ij),   s = LN_1(x)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dispersion import Block
from dispersion.chain import Chain, chain_logits
from dispersion.grid import positions
from dispersion.head import Head, Rotary, softmax
from dispersion.kernel import Kernel
from simulate._engine import LARGEST_STATE
from simulate.replicas import States

LOG2_E = float(np.log2(np.e))
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
    """What one head does at every layer: `add` its share of the attention branch.

    head : the Head. logits : (n, n) positional, −inf for pairs that are not there. position : (n, D).
    """

    def __init__(self, head: Head, logits: NDArray[np.float64], position: NDArray[np.int64], scale: float) -> None:
        from simulate._lanes import LANES
        from simulate._rows import REMOVED

        n = len(logits)
        blocks = -(-n // LANES)
        bias = np.full((n, blocks * LANES), REMOVED)
        positional = np.zeros_like(logits) if head.gate is not None else np.where(logits == -np.inf, REMOVED, logits)
        bias[:, :n] = np.maximum(positional * LOG2_E, REMOVED)
        self.bias = bias.reshape(n, blocks, LANES)
        self.rotary = head.rotary
        if head.rotary is None:
            content = Factors.of(head.content * LOG2_E)
            # x_iᵀ W x_j: the query meets W, or its left factor; the key its right factor, or nothing
            self.query = (head.content * LOG2_E).T if content.left is None else content.left
            self.key = None if content.left is None else content.right
        else:
            self.query, self.key, self.turns = _rotary(head.rotary, position)
        self.value = Factors.of(scale * head.value)
        share = 1.0 if head.gate is None else 1 - head.gate
        self.share = share
        self.fixed = None if head.gate is None else head.gate * softmax(logits)

    @cached_property
    def projections(self) -> list[NDArray[np.float64]]:
        """Matrices (·, d) that the tokens meet: of queries, keys (unless none) and values."""
        return [self.query, *([] if self.key is None else [self.key]), self.value.right]

    def add(self, out: NDArray, seen: NDArray, seen_by: list[NDArray], buffers: Buffers) -> None:
        """Add the head's share to `out` (n, d); `seen_by`: `seen` (n, d) after each of `projections`."""
        from simulate._rows import exponentials

        n = len(seen)
        queries, values = seen_by[0], seen_by[-1]
        keys = seen if self.key is None else seen_by[1]
        if self.rotary is not None:
            queries, keys = _turned(queries, self.turns), _turned(keys, self.turns)
        weights = buffers.logits[:, :n]
        np.matmul(queries, keys.T, out=weights)
        exponentials(buffers.laned, self.bias, buffers.totals)
        mean = weights @ values
        mean *= (self.share / buffers.totals)[:, None]
        if self.fixed is not None:
            mean += self.fixed @ values
        out += mean if self.value.left is None else mean @ self.value.left


class Buffers:
    """Space for the attention of one head at a time on `n` tokens."""

    def __init__(self, n: int) -> None:
        from simulate._engine import aligned
        from simulate._lanes import LANES

        blocks = -(-n // LANES)
        self.logits = aligned((n, blocks * LANES))
        self.logits[:] = 0.0
        self.laned = self.logits.reshape(n, blocks, LANES)
        self.totals = np.empty(n)


class VectorMap:
    """The map F of a Block, or of a Chain, on n tokens of d features.

    model : the Block or Chain. largest : the largest admissible |x|.
    """

    largest = LARGEST_STATE

    def __init__(self, model: Model) -> None:
        self.block = model.block if isinstance(model, Chain) else model
        self.heads = [HeadMap(*parts, self.block.attention_scale) for parts in _parts(model)]
        self.buffers = Buffers(model.n)
        stacked = [matrix for head in self.heads for matrix in head.projections]
        self._projection = np.concatenate(stacked).T.copy()
        self._edges = np.cumsum([0, *map(len, stacked)])

    def begin(self, states: NDArray[np.float64]) -> States:
        """The engine at `states` (P, n, d)."""
        return States(self, states)

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, n, d) F(X)."""
        seen = self.block.seen(x)
        y = x.copy()
        for place in np.ndindex(x.shape[:-2]):
            tokens = np.ascontiguousarray(seen[place])
            projected = tokens @ self._projection
            first = 0
            for head in self.heads:
                last = first + len(head.projections)
                columns = [projected[:, self._edges[p] : self._edges[p + 1]] for p in range(first, last)]
                head.add(y[place], tokens, columns, self.buffers)
                first = last
        out: NDArray[np.float64] = self.block.pointwise(y)
        return out


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


def _turned(u: NDArray[np.float64], turns: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.float64]:
    """R(θ·i) of the tokens `u` (n, d_h)."""
    cosine, sine = turns
    half = cosine.shape[1]
    first, second = u[:, :half], u[:, half:]
    return np.concatenate([cosine * first - sine * second, sine * first + cosine * second], axis=1)
