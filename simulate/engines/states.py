"""Points that share one map, and their states advanced together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion.block.scalar_blocks import ScalarBlocks
from simulate.engines.engine import LARGEST_STATE, inside

Map = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""F on states (P, N, d)."""


@dataclass(frozen=True, eq=False)
class OneMap:
    """The system of any number of points that share the map `step`; `blocks` of a plain scalar ring."""

    step: Map
    blocks: ScalarBlocks | None = None

    def begin(self, states: NDArray[np.float64]) -> States:
        """The points at `states` (P, N, d)."""
        return States(self.step, states)

    def take(self, points: NDArray) -> OneMap:
        """Itself: it serves any number of points."""
        return self

    def arranged(self, states: NDArray[np.float64]) -> NDArray[np.int64]:
        """(P,) the order that there is."""
        return np.arange(len(states))


class States:
    """States of one map, advanced together.

    step : the Map. states : (P, N, d). previous : the states one layer earlier. steps : (P,) layers
    completed, fewer than asked for where the next state would exceed ±LARGEST_STATE; the last admissible one is kept.
    """

    def __init__(self, step: Map, states: NDArray[np.float64]) -> None:
        self._step = step
        self.states, self.previous = states.copy(), states.copy()
        self.steps = np.zeros(len(states), dtype=np.int64)
        self._alive = inside(states)

    def advance(self, layers: int) -> None:
        """Apply F `layers` times to every state that has not diverged."""
        for _ in range(layers):
            if not self._alive.any():
                return
            everyone = self._alive.all()
            current = self.states if everyone else self.states[self._alive]
            with np.errstate(all="ignore"):
                fresh = self._step(current)
                alive = np.maximum(fresh.max(axis=(1, 2)), -fresh.min(axis=(1, 2))) <= LARGEST_STATE
            if everyone and alive.all():
                self.previous, self.states = self.states, fresh
            else:
                self._alive[self._alive] = alive
                self.previous, self.states = self.previous.copy(), self.states.copy()
                self.previous[self._alive] = current[alive]
                self.states[self._alive] = fresh[alive]
            self.steps[self._alive] += 1
