"""Arms: ways to initialise the block of a network, which a study compares on a task.

All arms of a seed are given one `Frame`. Those of the paper (App. J.1, J.5) are `Engineered` for the task or for
another one, `RandomMode`, gain-matched to them, and `Standard` and `Sinusoidal`, which are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dispersion import ArgumentError, Block, FeedForward, Head, Kernel
from dispersion.block.factors import OutputValue
from dispersion.errors import instance, real_number, whole_number
from dispersion.noun import Noun
from training.engineering import engineer, shared_content
from training.frame import Floats, Frame
from training.streams import stream
from training.target import Target
from training.task import Task


@dataclass(frozen=True)
class Arm(Noun):
    """An initialisation. A subclass gives `name` and `_block`, and `held` if it holds other parts than the study."""

    @property
    def name(self) -> str:
        """As in tables: arms of one study have different names."""
        raise NotImplementedError

    def block(self, task: Task, frame: Frame, seed: int) -> Block:
        """The block before training.

        Parameters
        ----------
        task : Task
            What the block is to learn, on whose ring.
        frame : Frame
            What the arms of a seed share.
        seed : int
            Of the study: what this arm alone draws is from its stream 'arm'.

        Returns
        -------
        Block
            Of one form for all arms: tables of logits, factors of values and of queries and keys, tanh.

        Raises
        ------
        ArgumentError
            If there is no such block.
        """
        return self._block(task, instance("frame", frame, Frame), whole_number("seed", seed, 0))

    def positions(self, task: Task, frame: Frame) -> Floats | None:
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
            Those that the study holds.
        """
        return tuple(parts)

    def _block(self, task: Task, frame: Frame, seed: int) -> Block:
        raise NotImplementedError


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

    def _block(self, task: Task, frame: Frame, seed: int) -> Block:
        options = self.contraction, self.sharpness, self.construction
        return engineer(self.target, task.n, frame.d, frame.heads, *options, frame=frame)


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

    @property
    def name(self) -> str:
        """As in tables."""
        return "random mode"

    def _block(self, task: Task, frame: Frame, seed: int) -> Block:
        refused = ""
        for k in stream(seed, "arm").permutation(unrelated(task.n, task.carrier)).tolist():
            target = Target(k, growth=self.growth, homogeneous=self.homogeneous)
            try:
                return Engineered(target, self.construction, self.contraction, self.sharpness).block(task, frame, seed)
            except ArgumentError as error:
                refused = f", of which k = {k} has {error.argument} {error.got}"
        got = f"{task.n} tokens, carrier {task.carrier}{refused}"
        raise ArgumentError("task", got, "a ring with a wavenumber that can grow and is not related to the carrier's")


@dataclass(frozen=True, eq=False)
class Given(Arm):
    """A block of one's own, the same for every seed.

    Parameters
    ----------
    given : Block
        Of the form of the other arms of the study: tables of logits, factors of values and of queries and keys, tanh.
    label : str
        Its name.
    """

    given: Block
    label: str = "given"

    def __post_init__(self) -> None:
        instance("given", self.given, Block)
        instance("label", self.label, str)
        super().__post_init__()

    @property
    def name(self) -> str:
        """As in tables."""
        return self.label

    def _block(self, task: Task, frame: Frame, seed: int) -> Block:
        if self.given.shape != (task.n,) or self.given.d != frame.d:
            got = f"a block of {self.given.shape} tokens with d = {self.given.d}"
            raise ArgumentError("given", got, f"{task.n} tokens and d = {frame.d}, as in the study")
        return self.given


@dataclass(frozen=True)
class Standard(Arm):
    """Standard initialisation with a learned relative bias: zero logits by lag, the weights that nn.Linear has.

    It is not matched in gain, C is not ξI, and all of it is trained.
    """

    @property
    def name(self) -> str:
        """As in tables."""
        return "standard"

    def held(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Nothing is held.

        Parameters
        ----------
        parts : sequence of str
            Those that the study holds.
        """
        return ()

    def _block(self, task: Task, frame: Frame, seed: int) -> Block:
        kernel = Kernel.table(np.zeros(task.n))
        values = [OutputValue(output, value) for output, value in zip(frame.outputs, frame.values, strict=True)]
        heads = [Head(kernel, value, shared_content(frame, number)) for number, value in enumerate(values)]
        return Block(heads, FeedForward(frame.weight_in, frame.weight_out, "tanh"))


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

    def positions(self, task: Task, frame: Frame) -> Floats:
        """sin and cos of j/10000^{2m/d} at token j, as in arXiv 1706.03762 but scaled.

        Parameters
        ----------
        task : Task
            Whose tokens.
        frame : Frame
            Whose features.

        Returns
        -------
        (N, d) ndarray
            Every row has the norm `scale` if d is even.
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
