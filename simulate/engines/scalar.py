"""The engine of plain rings of one feature: many points in one vector, threads over the vectors, all compiled.

numba is imported on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dispersion import Block
from dispersion.block.scalar_blocks import ScalarBlocks
from simulate.engines.engine import Engine, Model, heads_of, is_plain_ring
from simulate.engines.threads import pool, thread_count

LONG = 512
"""Longest ring of the engine."""

LARGEST_LOGIT = 600.0
"""Content logits max_h |χ_h| max_i x_i² beyond which e^{χ x_i x_j} nears the end of float64: rows are shifted there."""

DEEPEST = -700.0
"""Positional logit, against the largest, below which e^b nears the end of float64; where a kernel has one, content
logits are large from 300 on: between them they span less than what rounding leaves.
"""

INTERACTIONS_PER_CALL = 2e8
"""Pairs (i, j) per compiled call and thread: about 0.1 s, so that Ctrl-C is heard."""


def steady(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """(…) the content logits up to which rows of positional `logits` (…, N), the largest 0, need no shift."""
    deep = (logits < DEEPEST) & (logits > -np.inf)
    return np.where(deep.any(axis=-1), LARGEST_LOGIT / 2, LARGEST_LOGIT)


class Lanes(Engine):
    """Plain blocks of one feature on rings of up to LONG tokens."""

    name, together = "lanes", True

    def fits(self, model: Model) -> bool:
        """Whether `model` is such a block."""
        return is_plain_ring(model) and model.n <= LONG

    def system(self, models: Sequence[Model]) -> ScalarPoints:
        """The points with these `models`."""
        return ScalarPoints(ScalarBlocks.of([model for model in models if isinstance(model, Block)]))

    def operations(self, model: Model) -> float:
        """Of N(N + 1)/2 exponentials in each head."""
        return heads_of(model) * 10 * model.n * (model.n + 1)

    def bytes(self, model: Model, points: int) -> float:
        """Of states, and tables by lag in each head."""
        return 8 * points * model.n * (40 + 10 * heads_of(model))

    def shared(self, model: Model) -> str | None:
        """The activation: one is compiled for all points."""
        forward = model.feedforward if isinstance(model, Block) else None
        return None if forward is None else forward.activation.name


@dataclass(frozen=True, eq=False)
class ScalarPoints:
    """The system of scalar points, one for each of `blocks`."""

    blocks: ScalarBlocks

    def begin(self, states: NDArray[np.float64]) -> Batch:
        """The points at `states` (P, N, 1)."""
        return Batch(self.blocks, states)

    def take(self, points: NDArray) -> ScalarPoints:
        """Some of the points."""
        return ScalarPoints(self.blocks.take(points))

    def arranged(self, states: NDArray[np.float64]) -> NDArray[np.int64]:
        """(P,) from flat to steep: a vector of points takes the time of its steepest one."""
        return np.argsort(np.abs(self.blocks.content).max(axis=1) * (states**2).max(axis=(1, 2)), kind="stable")


class Batch:
    """States of many points, advanced together.

    blocks : P of them. states, previous : (P, N, 1). steps : (P,) layers completed, fewer than asked for
    where a point diverged; its state is then the last admissible one.
    """

    def __init__(self, blocks: ScalarBlocks, states: NDArray[np.float64]) -> None:
        from simulate.engines._exp import LOG2_E, REMOVED
        from simulate.engines._kernel import kernel
        from simulate.engines._moments import expansion, frequency_order, most_pairs, turns

        self.points = len(states)
        self._advance = kernel(blocks.activation)
        self._x = _laned(states[..., 0])
        self._previous = self._x.copy()
        self._steps = _laned(np.zeros(self.points))
        self._steady = _laned(steady(blocks.logits).min(axis=1))
        self._pairs = most_pairs(blocks.n)
        order = frequency_order(blocks.n) if self._pairs else slice(None)
        symbol = np.fft.fft(blocks.weights, axis=-1)[..., order] / blocks.n
        heads = np.maximum(blocks.logits * LOG2_E, REMOVED), np.exp(blocks.logits), blocks.content, blocks.value
        hidden = blocks.weight_in, blocks.bias_in, blocks.weight_out, blocks.bias_out, blocks.coefficients
        arrays = [*heads, *hidden, symbol.real, symbol.imag, np.abs(blocks.content).max(axis=1)]
        self._parameters = tuple(_laned(array) for array in arrays)
        reaches, table = expansion()
        self._expansion = reaches[: self._pairs], table, turns(blocks.n)

    def advance(self, layers: int) -> None:
        """Apply F `layers` times to every point that has not diverged."""
        blocks, n, lanes = self._x.shape
        heads = self._parameters[0].shape[1]
        threads = min(thread_count(), blocks)
        piece = int(max(1, INTERACTIONS_PER_CALL * threads / (blocks * lanes * n * n * heads)))
        edges = np.linspace(0, blocks, (1 if threads == 1 else min(blocks, 4 * threads)) + 1).astype(int)
        for done in range(0, layers, piece):
            calls = [(int(a), int(b), min(piece, layers - done)) for a, b in pairwise(edges)]
            if threads == 1:
                self._call(*calls[0])
            else:
                for future in [pool().submit(self._call, *call) for call in calls]:
                    future.result()

    def _call(self, first: int, last: int, layers: int) -> None:
        _, n, lanes = self._x.shape
        state = (self._x, self._previous, self._steps, self._steady)
        shapes = (5, n, lanes), (2 * self._pairs, n, lanes), (3, lanes), (2 * self._pairs, lanes)
        self._advance(first, last, layers, state, self._parameters, self._expansion, tuple(map(aligned, shapes)))

    @property
    def states(self) -> NDArray[np.float64]:
        """(P, N, 1) states after the last layer."""
        return self._points(self._x)[..., None]

    @property
    def previous(self) -> NDArray[np.float64]:
        """(P, N, 1) states one layer earlier; those of the start before any layer."""
        return self._points(self._previous)[..., None]

    @property
    def steps(self) -> NDArray[np.int64]:
        """(P,) layers completed."""
        return self._points(self._steps).astype(np.int64)

    def _points(self, laned: NDArray[np.float64]) -> NDArray[np.float64]:
        # A copy, always: the lanes are overwritten by the next call.
        points = np.moveaxis(laned, -1, 1).copy()
        return points.reshape(-1, *points.shape[2:])[: self.points]


def _laned(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """(P, …) → (blocks, …, LANES), the last block filled up with copies of the last point."""
    from simulate.engines._lanes import LANES

    blocks = -(-len(points) // LANES)
    full = points[np.minimum(np.arange(blocks * LANES), len(points) - 1)]
    laned = np.moveaxis(full.reshape(blocks, LANES, *points.shape[1:]), 1, -1)
    out = aligned(laned.shape)
    out[...] = laned
    return out


def aligned(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Uninitialised float64 of this `shape` on a cache line of its own: a vector never straddles two."""
    size = int(np.prod(shape))
    buffer = np.empty(size + 8)
    start = -buffer.ctypes.data % 64 // 8
    return buffer[start : start + size].reshape(shape)
