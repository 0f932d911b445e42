"""What an engine is, and what it works with: systems of points, and their states as they are advanced together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, Block
from dispersion.block.block import require_periodic
from dispersion.line.chain import Chain

if TYPE_CHECKING:
    from dispersion.block.scalar_blocks import ScalarBlocks

Model = Block | Chain

LARGEST_STATE = 1e6
"""A state beyond ±LARGEST_STATE has diverged."""


class Advancing(Protocol):
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
    """What maps P points. blocks : of these points where they are plain scalar rings, else None."""

    @property
    def blocks(self) -> ScalarBlocks | None: ...

    def begin(self, states: NDArray[np.float64]) -> Advancing:
        """The points at `states` (P, N, d)."""

    def take(self, points: NDArray) -> System:
        """The system of some of the points."""

    def arranged(self, states: NDArray[np.float64]) -> NDArray[np.int64]:
        """(P,) the order of the points in which they take least time at `states` (P, N, d)."""


class Engine(ABC):
    """One way to iterate blocks.

    name : in results. together : whether points of different models are iterated together, or one by one.
    """

    name: ClassVar[str]
    together: ClassVar[bool] = False

    @abstractmethod
    def fits(self, model: Model) -> bool:
        """Whether `model` can be iterated."""

    @abstractmethod
    def system(self, models: Sequence[Model]) -> System:
        """The system of points with these `models`; several of one model, or different ones if `together`."""

    @abstractmethod
    def operations(self, model: Model) -> float:
        """Multiplications of one layer, roughly."""

    @abstractmethod
    def bytes(self, model: Model, points: int) -> float:
        """About what iterating `points` points like `model` takes."""

    def shared(self, model: Model) -> str | None:
        """The activation that all points must have; None if `model` has none, or they may have any."""
        return None


def checked_model(argument: str, model: object) -> Model:
    """`model` if it is a Block or a Chain that can be iterated, else an ArgumentError."""
    if not isinstance(model, Block | Chain):
        raise ArgumentError(argument, type(model).__name__, "a Block or a Chain")
    if isinstance(model, Block):
        require_periodic(model)
    return model


def heads_of(model: Model) -> int:
    """How many heads `model` has."""
    return len((model if isinstance(model, Block) else model.block).heads)


def is_plain_ring(model: Model) -> bool:
    """Whether `model` is a block of one feature on a ring with nothing beyond Eqs. 1-2."""
    return isinstance(model, Block) and model.d == 1 and model.plain


def inside(states: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(P,) whether the `states` (P, N, d) have not diverged."""
    found: NDArray[np.bool_] = np.abs(states).max(axis=(1, 2)) <= LARGEST_STATE
    return found
