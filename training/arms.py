"""Arms: ways to initialise the block of a network, which a study compares on a task.

All arms of a seed are given one `Frame`. Those of the paper (App. J.1, J.5) are `Engineered` for the task or for
another one, `RandomMode`, gain-matched to them, and `Standard` and `Sinusoidal`, which are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dispersion import ArgumentError, Block, FeedForward, Head, Kernel
from dispersion.block.factors import OutputValue
from dispersion.errors import instance, real_number
from dispersion.noun import Noun
from training.engineering import Target, engineer, shared_content
from training.frame import Floats, Frame
from training.streams import stream


class Carried(Protocol):
    """What an arm needs to know of a task."""

    @property
    def n(self) -> int:
        """N, tokens of the ring."""

    @property
    def carrier(self) -> int:
        """k_0 of the wave that the task is about."""


@dataclass(frozen=True)
class Arm(Noun):
    """An initialisation. A subclass gives `name` and `block`."""

    @property
    def name(self) -> str:
        """As in tables: arms of one study have different names."""
        raise NotImplementedError

    def block(self, task: Carried, frame: Frame, seed: int) -> Block:
        """The block before training.

        Parameters
        ----------
        task : Task
            What the block is to learn.
        frame : Frame
            What the arms of a seed share.
        seed : int
            Of the study: what this arm alone draws is from its stream 'arm'.

        Returns
        -------
        Block
            Of one form for all arms: tables of logits, factors of values and of queries and keys, tanh.
        """
        raise NotImplementedError

    def positions(self, task: Carried, frame: Frame) -> Floats | None:
        """What is added to embedded tokens.

        Parameters
        ----------
        task : Task
            What the block is to learn.
        frame : Frame
            What the arms of a seed share.

        Returns
        -------
        (N, d) ndarray or None
            None for nothing.
        """
        return None

    def held(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The parts of the network that are not trained in this arm.

        Parameters
        ----------
        parts : sequence of str
            Those that the study holds: `training.looped.PARTS`.
        """
        return tuple(parts)


@dataclass(frozen=True)
class Engineered(Arm):
    """A block engineered to a target: for the task, or for another one.

    Parameters
    ----------
    target : Target
        What J(q) is.
    construction : str
        Of `engineer`.
    contraction, sharpness : float
        Those of `engineer`, ξ and s.
    label : str
        Its name; by default what sets the target apart.
    """

    target: Target
    construction: str = "three"
    contraction: float = 0.9
    sharpness: float = 4.0
    label: str = ""

    def __post_init__(self) -> None:
        instance("target", self.target, Target)
        instance("label", self.label, str)

    @property
    def name(self) -> str:
        """As in tables."""
        return self.label or self.target.label

    def block(self, task: Carried, frame: Frame, seed: int) -> Block:
        """The block that `engineer` makes on the ring of the task.

        Parameters
        ----------
        task : Task
            What the block is to learn.
        frame : Frame
            What the arms of a seed share.
        seed : int
            Nothing is drawn.
        """
        return engineer(
            self.target,
            task.n,
            contraction=self.contraction,
            sharpness=self.sharpness,
            construction=self.construction,
            frame=frame,
        )


@dataclass(frozen=True)
class RandomMode(Arm):
    """A standing wave of a wavenumber drawn at random, with the gains of the engineered arms.

    Left out are the wavenumbers whose mode, or its third harmonic, which tanh feeds, is the carrier of the task,
    k or 3k ≡ ±k_0 (mod N), and those that the construction cannot reach.

    Parameters
    ----------
    growth, homogeneous : float
        ρ at the wavenumber and at 0, as in `Target`.
    construction : str
        Of `engineer`.
    contraction, sharpness : float
        Those of `engineer`, ξ and s.
    """

    growth: float = 1.10
    homogeneous: float = 1.045
    construction: str = "three"
    contraction: float = 0.9
    sharpness: float = 4.0

    def __post_init__(self) -> None:
        Target(1, growth=self.growth, homogeneous=self.homogeneous)

    @property
    def name(self) -> str:
        """As in tables."""
        return "random mode"

    def block(self, task: Carried, frame: Frame, seed: int) -> Block:
        """The block of the wavenumber drawn.

        Parameters
        ----------
        task : Task
            What the block is to learn.
        frame : Frame
            What the arms of a seed share.
        seed : int
            Draws the wavenumber.

        Raises
        ------
        ArgumentError
            If there is no wavenumber left.
        """
        fault = ""
        for k in stream(seed, "arm").permutation(unrelated(task.n, task.carrier)).tolist():
            try:
                target = Target(k, growth=self.growth, homogeneous=self.homogeneous)
                return Engineered(target, self.construction, self.contraction, self.sharpness).block(task, frame, seed)
            except ArgumentError as error:
                fault = f"; {error.argument}: got {error.got}"
        got = f"{task.n} tokens, carrier {task.carrier}{fault}"
        raise ArgumentError("task", got, "a ring with a wavenumber that is not related to the carrier's")


@dataclass(frozen=True)
class Standard(Arm):
    """Standard initialisation with a learned relative bias: zero logits by lag, the weights that nn.Linear has.

    It is not matched in gain, C is not ξI, and all of it is trained.
    """

    @property
    def name(self) -> str:
        """As in tables."""
        return "standard"

    def block(self, task: Carried, frame: Frame, seed: int) -> Block:
        """The block of the standard weights of the frame.

        Parameters
        ----------
        task : Task
            What the block is to learn.
        frame : Frame
            What the arms of a seed share.
        seed : int
            Nothing is drawn.
        """
        kernel = Kernel.table(np.zeros(task.n))
        heads = [
            Head(kernel, OutputValue(frame.outputs[number], frame.values[number]), shared_content(frame, number))
            for number in range(frame.heads)
        ]
        return Block(heads, FeedForward(frame.weight_in, frame.weight_out, "tanh"))

    def held(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Nothing is held.

        Parameters
        ----------
        parts : sequence of str
            Those that the study holds.
        """
        return ()


@dataclass(frozen=True)
class Sinusoidal(Standard):
    """Standard initialisation with sinusoidal absolute positions: no logits by lag, before training and after.

    Parameters
    ----------
    scale : float
        Norm of the position of a token, 1 being that of an embedded token at gain 1.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        real_number("scale", self.scale, positive=True)

    @property
    def name(self) -> str:
        """As in tables."""
        return "sinusoidal"

    def positions(self, task: Carried, frame: Frame) -> Floats:
        """sin and cos of j/10000^{2m/d} at token j, arXiv 1706.03762, scaled.

        Parameters
        ----------
        task : Task
            What the block is to learn.
        frame : Frame
            What the arms of a seed share.

        Returns
        -------
        (N, d) ndarray
            Every row has the norm `scale`, for d even.
        """
        place = np.arange(frame.d)
        angles = np.arange(task.n)[:, None] / 10000.0 ** (place // 2 * 2 / frame.d)
        return self.scale * np.sqrt(2 / frame.d) * np.where(place % 2, np.cos(angles), np.sin(angles))

    def held(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The logits by lag are held, at zero.

        Parameters
        ----------
        parts : sequence of str
            Those that the study holds.
        """
        return ("positional",)


def unrelated(n: int, carrier: int) -> list[int]:
    """The k of 1 … N/2 for which neither k nor 3k is ±`carrier` modulo `n`."""
    related = {carrier % n, -carrier % n}
    return [k for k in range(1, n // 2 + 1) if not {k, 3 * k % n} & related]
