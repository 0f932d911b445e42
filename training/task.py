"""What a controlled task is: labelled sequences on a ring of tokens, some of which are hidden."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import RNG, choice, generator, real_number, whole_number
from dispersion.noun import Noun
from training.batch import Batch, Whole
from training.codes import Code
from training.frame import Frame
from training.target import Target


@dataclass(frozen=True, kw_only=True)
class Task(Noun):
    """A task. A subclass gives `name`, `code` and `_sequences`, and `_turns` if its wave turns.

    Parameters
    ----------
    n : int
        N, tokens of the ring.
    carrier : int
        k_0 of the wave that the task is about, q_0 = 2πk_0/N, 1 … N/2.
    levels : int
        K, classes of a token, 2 or more.
    block : int
        Neighbouring tokens that are hidden, around the ring from a place drawn at random.
    masked : float
        Chance of each other token to be hidden.
    score : str
        'masked' or 'all': the positions that are scored.
    """

    n: int = 32
    carrier: int = 4
    levels: int = 8
    block: int = 12
    masked: float = 0.25
    score: str = "masked"

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), list):
                set_field(self, field.name, tuple(value))
        set_field(self, "n", whole_number("n", self.n, 2))
        set_field(self, "carrier", whole_number("carrier", self.carrier, 1, self.n // 2))
        set_field(self, "levels", whole_number("levels", self.levels, 2))
        set_field(self, "block", whole_number("block", self.block, 0, self.n - 1))
        set_field(self, "masked", real_number("masked", self.masked))
        if not 0 <= self.masked < 1:
            raise ArgumentError("masked", self.masked, "a chance from 0 to below 1")
        choice("score", self.score, ("masked", "all"))
        if self.score == "masked" and not (self.block or self.masked):
            raise ArgumentError("score", "'masked' with nothing masked", "'all', or a block or masked above 0")

    @property
    def name(self) -> str:
        """As in tables: tasks of one study have different names."""
        raise NotImplementedError

    @property
    def wavenumber(self) -> float:
        """q_0, radians per token."""
        return 2 * np.pi * self.carrier / self.n

    def matched(self, loops: int = 8) -> Target:
        """The target with the structure that the task needs.

        Parameters
        ----------
        loops : int
            L, layers of the network, over which angles are spread.
        """
        angle, rotation = self._turns
        return Target.over(loops, self.carrier, angle, rotation)

    def code(self, frame: Frame, gain: float = 1.0, sharpness: float = 8.0) -> Code:
        """Embedding and readout of the levels, in the first directions of the frame, in which blocks are engineered.

        Parameters
        ----------
        frame : Frame
            Whose directions.
        gain, sharpness : float
            g and β of `value_code` or `circle_code`.
        """
        raise NotImplementedError

    def draw(self, count: int, rng: RNG) -> Batch:
        """Sequences at random.

        Parameters
        ----------
        count : int
            B.
        rng : int or numpy.random.Generator
            Source of randomness: of a study `training.streams.stream`, by purpose.
        """
        rng = generator("rng", rng)
        tokens, labels = self._sequences(whole_number("count", count, 1), rng)
        hidden = self._hidden(count, rng)
        scored = hidden if self.score == "masked" else np.ones_like(hidden)
        return Batch(np.where(hidden, self.levels, tokens), labels, scored)

    @property
    def _turns(self) -> tuple[float, float]:
        """Angle of the wave and rotation of its features from inputs to labels, radians."""
        return 0.0, 0.0

    def _sequences(self, count: int, rng: np.random.Generator) -> tuple[Whole, Whole]:
        """(count, N) tokens, none of them hidden, and labels."""
        raise NotImplementedError

    def _hidden(self, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(count, N) which tokens are hidden, one at least of each sequence where only hidden ones are scored."""
        start = rng.integers(self.n, size=(count, 1))
        hidden = (np.arange(self.n) - start) % self.n < self.block
        hidden |= rng.random((count, self.n)) < self.masked
        if self.score == "masked":
            hidden |= ~hidden.any(axis=1, keepdims=True) & (np.arange(self.n) == start)
        return hidden
