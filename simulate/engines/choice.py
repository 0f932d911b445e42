"""Which engine iterates a model, chosen by its kind and size, and one way to use them all.

lanes : plain blocks of one feature with up to LONG tokens; compiled, many points in one vector.
fft : plain blocks of one feature on longer rings; moments by fast Fourier transforms.
blas : everything else; projections by BLAS and compiled tiles of attention.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, Block
from dispersion.block.block import require_periodic
from dispersion.block.scalar_blocks import ScalarBlocks
from dispersion.line.chain import Chain
from simulate.engines.scalar import LARGEST_STATE, Batch

LONG = 512
"""Longest ring of the engine 'lanes'."""

ENGINES = ("lanes", "fft", "blas")

Model = Block | Chain


class Engine(Protocol):
    """P states advanced together: states and previous (P, N, d), steps (P,) layers completed."""

    @property
    def states(self) -> NDArray[np.float64]: ...

    @property
    def previous(self) -> NDArray[np.float64]: ...

    @property
    def steps(self) -> NDArray[np.int64]: ...

    def advance(self, layers: int) -> None:
        """Apply F `layers` times to every state that has not diverged; one that does stays as it last was."""


class System(Protocol):
    """What maps P points: it starts an engine on their states."""

    def begin(self, states: NDArray[np.float64]) -> Engine:
        """The engine at `states` (P, N, d)."""

    def take(self, points: NDArray) -> System:
        """The system of some of the points."""

    def arranged(self, states: NDArray[np.float64]) -> NDArray[np.int64]:
        """(P,) the order of the points in which the engine takes least time at `states` (P, N, d)."""

    def admissible(self, states: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(P,) whether the `states` (P, N, d) have not diverged."""


def checked_model(argument: str, model: object) -> Model:
    """`model` if it is a Block or a Chain that can be iterated, else an ArgumentError."""
    if not isinstance(model, Block | Chain):
        raise ArgumentError(argument, type(model).__name__, "a Block or a Chain")
    if isinstance(model, Block):
        require_periodic(model)
    return model


def shape_of(model: Model) -> tuple[int, ...]:
    """(N,) of the ring or chain, (N_1, …, N_D) of the torus of `model`."""
    return model.shape if isinstance(model, Block) else (model.n,)


def engine_of(model: Model) -> str:
    """The engine that iterates `model`, one of ENGINES."""
    if not isinstance(model, Block) or model.d != 1 or not model.plain:
        return "blas"
    return "lanes" if model.n <= LONG else "fft"


def system_of(model: Model, points: int) -> System:
    """The system of `points` points that all have the one `model`."""
    if engine_of(model) == "lanes" and isinstance(model, Block):
        return Lanes(ScalarBlocks.of([model] * points))
    return Replicas(model)


class Lanes:
    """The system of scalar points, one for each of `blocks`."""

    def __init__(self, blocks: ScalarBlocks) -> None:
        self.blocks = blocks

    def begin(self, states: NDArray[np.float64]) -> Engine:
        return _LanesStates(self.blocks, states)

    def take(self, points: NDArray) -> Lanes:
        return Lanes(self.blocks.take(points))

    def arranged(self, states: NDArray[np.float64]) -> NDArray[np.int64]:
        # a vector of points takes the time of its steepest one
        return np.argsort(np.abs(self.blocks.content).max(axis=1) * (states**2).max(axis=(1, 2)), kind="stable")

    def admissible(self, states: NDArray[np.float64]) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = np.abs(states).max(axis=(1, 2)) <= LARGEST_STATE
        return inside


class _LanesStates:
    """A Batch with states (P, N, 1)."""

    def __init__(self, blocks: ScalarBlocks, states: NDArray[np.float64]) -> None:
        self._batch = Batch(blocks, states[..., 0])
        self.advance = self._batch.advance

    @property
    def states(self) -> NDArray[np.float64]:
        return self._batch.states[..., None]

    @property
    def previous(self) -> NDArray[np.float64]:
        return self._batch.previous[..., None]

    @property
    def steps(self) -> NDArray[np.int64]:
        return self._batch.steps


class Replicas:
    """The system of any number of points that share one `model`."""

    def __init__(self, model: Model) -> None:
        from simulate.engines.long import LongRing
        from simulate.engines.vector import VectorMap

        self._map = LongRing(model) if isinstance(model, Block) and engine_of(model) == "fft" else VectorMap(model)

    def begin(self, states: NDArray[np.float64]) -> Engine:
        return self._map.begin(states)

    def take(self, points: NDArray) -> Replicas:
        return self

    def arranged(self, states: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.arange(len(states))

    def admissible(self, states: NDArray[np.float64]) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = np.abs(states).max(axis=(1, 2)) <= self._map.largest
        return inside
