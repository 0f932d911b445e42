"""States of one map advanced together."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Map(Protocol):
    """F on states (P, N, d), and the largest |x| that has not diverged."""

    largest: float

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]: ...


class States:
    """States of one map, advanced together.

    step : the Map. states : (P, N, d). previous : the states one layer earlier. steps : (P,) layers
    completed, fewer than asked for where the next state would exceed ±largest; the last admissible one is kept.
    """

    def __init__(self, step: Map, states: NDArray[np.float64]) -> None:
        self._step = step
        self.states, self.previous = states.copy(), states.copy()
        self.steps = np.zeros(len(states), dtype=np.int64)
        self._alive = np.abs(states).max(axis=(1, 2)) <= step.largest

    def advance(self, layers: int) -> None:
        """Apply F `layers` times to every state that has not diverged."""
        for _ in range(layers):
            if not self._alive.any():
                return
            everyone = self._alive.all()
            current = self.states if everyone else self.states[self._alive]
            with np.errstate(all="ignore"):
                fresh = self._step(current)
                inside = np.maximum(fresh.max(axis=(1, 2)), -fresh.min(axis=(1, 2))) <= self._step.largest
            if everyone and inside.all():
                self.previous, self.states = self.states, fresh
            else:
                self._alive[self._alive] = inside
                self.previous, self.states = self.previous.copy(), self.states.copy()
                self.previous[self._alive] = current[inside]
                self.states[self._alive] = fresh[inside]
            self.steps[self._alive] += 1
