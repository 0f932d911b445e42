"""Many scalar (d = 1) blocks iterated together: packing, lanes, threads. numba is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block
from simulate.engines.threads import pool, thread_count

LARGEST_STATE = 1e6
"""A state beyond ±LARGEST_STATE has diverged."""

LARGEST_LOGIT = 600.0
"""Content logits max_h |χ_h| max_i x_i² beyond which e^{χ x_i x_j} nears the end of float64: rows are shifted there."""

DEEPEST = -700.0
"""Positional logit, against the largest, below which e^b nears the end of float64; where a kernel has one, content
logits are large from 300 on: between them they span less than what rounding leaves.
"""

INTERACTIONS_PER_CALL = 2e8
"""Pairs (i, j) per compiled call and thread: about 0.1 s, so that Ctrl-C is heard."""


@dataclass(frozen=True, eq=False)
class Parameters:
    """The maps of `points` scalar blocks with one N and one activation, padded to common sizes.

    activation : its name, None for no feed-forward at any point.
    logits, weights : (points, H, N) b − max b and its exponential, by lag r mod N.
    content, value : (points, H) χ_h and ε_a η_h.
    weight_in, bias_in, weight_out : (points, m); bias_out : (points, 1).
    coefficients : (points, degree) of a polynomial activation; degree 0 otherwise.
    """

    activation: str | None
    logits: NDArray[np.float64]
    weights: NDArray[np.float64]
    content: NDArray[np.float64]
    value: NDArray[np.float64]
    weight_in: NDArray[np.float64]
    bias_in: NDArray[np.float64]
    weight_out: NDArray[np.float64]
    bias_out: NDArray[np.float64]
    coefficients: NDArray[np.float64]

    @property
    def n(self) -> int:
        """Number of tokens N."""
        return self.weights.shape[2]

    @property
    def steepness(self) -> NDArray[np.float64]:
        """(points,) max_h |χ_h|."""
        steepness: NDArray[np.float64] = np.abs(self.content).max(axis=1)
        return steepness

    @property
    def steady(self) -> NDArray[np.float64]:
        """(points,) the largest max_h |χ_h| max x² at which e^{χ x_i x_j} and e^b need no shift."""
        return steady(self.logits).min(axis=1)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays by name, each with the points as its first axis."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "activation"}

    def take(self, points: NDArray) -> Parameters:
        """The parameters of some of the points."""
        return Parameters(self.activation, **{name: array[points] for name, array in self.arrays().items()})


def pack(blocks: Sequence[Block], labels: Sequence[str] | None = None) -> Parameters:
    """The parameters of `blocks`, all with d = 1, one N and one activation (or no feed-forward).

    Missing heads and hidden units become zero heads and units. An ArgumentError names, by its
    label, the first block that does not fit.
    """
    n = blocks[0].n
    activation = next((b.feedforward.activation.name for b in blocks if b.feedforward is not None), None)
    for label, block in zip(labels or [f"blocks[{i}]" for i in range(len(blocks))], blocks, strict=True):
        if (block.n, block.d) != (n, 1):
            raise ArgumentError(label, f"N = {block.n}, d = {block.d}", f"N = {n}, d = 1 at every point")
        if not block.plain:
            raise ArgumentError(label, "a block beyond Eqs. 1–2", "a ring, and no norm, gate, bias or rotary encoding")
        if block.feedforward is not None and block.feedforward.activation.name != activation:
            got = f"activation {block.feedforward.activation.name!r}"
            raise ArgumentError(label, got, f"{activation!r} at every point")
    forwards = [block.feedforward for block in blocks]
    logits = _padded([[head.kernel.logits for head in block.heads] for block in blocks], (n,))
    content = _padded([[head.content[0, 0] for head in block.heads] for block in blocks])
    value = _padded([[head.value[0, 0] for head in block.heads] for block in blocks])
    scale = np.array([block.attention_scale for block in blocks])
    logits = logits - logits.max(axis=-1, keepdims=True)
    return Parameters(
        activation,
        logits=logits,
        weights=np.exp(logits),
        content=content,
        value=scale[:, None] * value,
        weight_in=_padded([() if f is None else f.weight_in[:, 0] for f in forwards]),
        bias_in=_padded([() if f is None else f.bias_in for f in forwards]),
        weight_out=_padded([() if f is None else f.weight_out[0] for f in forwards]),
        bias_out=np.array([[0.0 if f is None else f.bias_out[0]] for f in forwards]),
        coefficients=_padded([() if f is None else f.activation.coefficients for f in forwards]),
    )


def steady(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """(…) the content logits up to which rows of positional `logits` (…, N), the largest 0, need no shift."""
    deep = (logits < DEEPEST) & (logits > -np.inf)
    return np.where(deep.any(axis=-1), LARGEST_LOGIT / 2, LARGEST_LOGIT)


class Batch:
    """States of many points, advanced together.

    parameters : of P points. states : (P, N). steps : (P,) layers completed, fewer than asked for
    where a point diverged; its state is then the last admissible one.
    """

    def __init__(self, parameters: Parameters, states: NDArray[np.float64]) -> None:
        from simulate.engines._exp import LOG2_E, REMOVED
        from simulate.engines._kernel import kernel
        from simulate.engines._moments import expansion, frequency_order, most_pairs, turns

        self.points = len(states)
        self._advance = kernel(parameters.activation)
        self._x = _laned(states)
        self._previous = self._x.copy()
        self._steps = _laned(np.zeros(self.points))
        self._steady = _laned(parameters.steady)
        self._pairs = most_pairs(parameters.n)
        symbol = parameters.weights / parameters.weights.sum(axis=-1, keepdims=True)
        order = frequency_order(parameters.n) if self._pairs else slice(None)
        symbol = np.fft.fft(symbol, axis=-1)[..., order] / parameters.n
        known = parameters.arrays() | {"logits": np.maximum(parameters.logits * LOG2_E, REMOVED)}
        arrays = [*known.values(), symbol.real, symbol.imag, parameters.steepness]
        self._parameters = [_laned(array) for array in arrays]
        reaches, table = expansion()
        self._expansion = reaches[: self._pairs], table, turns(parameters.n)

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
        self._advance(first, last, layers, *state, *self._parameters, *self._expansion, *map(aligned, shapes))

    @property
    def states(self) -> NDArray[np.float64]:
        """(P, N) states after the last layer."""
        return self._points(self._x)

    @property
    def previous(self) -> NDArray[np.float64]:
        """(P, N) states one layer earlier; those of the start before any layer."""
        return self._points(self._previous)

    @property
    def steps(self) -> NDArray[np.int64]:
        """(P,) layers completed."""
        return self._points(self._steps).astype(np.int64)

    def _points(self, laned: NDArray[np.float64]) -> NDArray[np.float64]:
        # A copy, always: the lanes are overwritten by the next call.
        points = np.moveaxis(laned, -1, 1).copy()
        return points.reshape(-1, *points.shape[2:])[: self.points]


def _padded(rows: Sequence[ArrayLike], tail: tuple[int, ...] = ()) -> NDArray[np.float64]:
    """(rows, longest, *tail) the ragged rows, filled up with zeros."""
    lengths = [np.shape(row)[0] for row in rows]
    longest = max(lengths)
    if longest and min(lengths) == longest:
        return np.array(rows, dtype=np.float64)
    padded = np.zeros((len(rows), longest, *tail))
    for place, row, length in zip(padded, rows, lengths, strict=True):
        if length:
            place[:length] = row
    return padded


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
