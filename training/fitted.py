"""Experiments that fit a stacked network: the settings of training, and curves over steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import flag, real_number, whole_number
from simulate.runs.columns import Column
from simulate.runs.result import Variable
from simulate.runs.task import Progress
from training.experiment import Experiment
from training.streams import stream

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from training.fitting import Curves, Measure


@dataclass(frozen=True)
class Fitted(Experiment):
    """Arms as the copies of one stacked network, trained by `training.fitting.fit` on a training set of its own size.

    Batches go through the training set in an order drawn anew for each epoch, what is left over at its end is dropped,
    and none is larger than the set.

    Parameters
    ----------
    steps : int
        Of the optimiser, 1 or more.
    batch : int
        Examples in a batch, at most.
    rate, decay : float
        Learning rate and decoupled weight decay of AdamW.
    clip : float or None
        The largest norm of the gradient of one arm, None for no limit.
    every : int
        Steps from one evaluation to the next.
    held_out : int
        Examples in the held-out set, drawn apart from the training set.
    device : str
        Where PyTorch computes: 'cpu' or 'cuda'.
    autocast : bool
        Whether products are in bfloat16.
    compile : bool
        Whether torch.compile compiles the network first.

    Raises
    ------
    ArgumentError
        Names what cannot be used.
    """

    SCORES: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "accuracy": {"long_name": "fraction of scored positions of the held-out set that are right", "units": "1"},
        "cross_entropy": {"long_name": "cross-entropy on scored positions of the held-out set", "units": "nat"},
    }
    """What the held-out set is scored by, and what the result says of it."""

    LOSS: ClassVar[Mapping[str, str]] = {"long_name": "loss on the batch of a step, before it", "units": "nat"}
    """What the result says of the loss."""

    MOST: ClassVar[int | None] = None
    """Examples of the held-out set that go through the network at once, None for all."""

    steps: int = 300
    batch: int = 64
    rate: float = 2e-3
    decay: float = 1e-4
    clip: float | None = 1.0
    every: int = 5
    held_out: int = 128
    device: str = "cpu"
    autocast: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "every", "held_out"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 1))
        object.__setattr__(self, "rate", real_number("rate", self.rate, positive=True))
        if self.clip is not None:
            object.__setattr__(self, "clip", real_number("clip", self.clip, positive=True))
        object.__setattr__(self, "decay", real_number("decay", self.decay))
        if self.decay < 0:
            raise ArgumentError("decay", self.decay, "a number of 0 or more")
        for name in ("autocast", "compile"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        if self.device != "cpu":
            from models.device import usable

            usable(self.device)

    @abstractmethod
    def network(self, arms: Sequence[Any], task: Any, seed: int) -> nn.Module:
        """The stacked network as `fit` takes it, one copy for each arm, on `device`.

        Parameters
        ----------
        arms : sequence
            What is trained.
        task : object
            What it is trained on.
        seed : int
            Of its weights.
        """

    def draw(self, task: Any, count: int, rng: Generator) -> Any:
        """Examples, as `fit` takes them: a frozen dataclass of arrays, `inputs` among them, with `len` and `take`;
        those that the task draws, unless the experiment says otherwise.

        Parameters
        ----------
        task : object
            What they are of.
        count : int
            How many.
        rng : numpy.random.Generator
            Source of randomness.
        """
        return task.draw(count, rng)

    @property
    def loss(self) -> Measure:
        """What each arm descends."""
        from training.fitting import cross_entropy

        return cross_entropy

    @property
    def scores(self) -> Mapping[str, Measure]:
        """What SCORES names."""
        from training.fitting import SCORES

        return SCORES

    def optimiser(self, arms: Sequence[Any]) -> Callable[[nn.Module], Optimizer]:
        """network → Optimizer, as `fit` takes it: AdamW with the same rate and decay for all arms.

        Parameters
        ----------
        arms : sequence
            What is trained.
        """
        from training.fitting import adamw

        return adamw(self.rate, self.decay)

    @property
    def schedule(self) -> Callable[[Optimizer], LRScheduler] | None:
        """Optimizer → LRScheduler, moved on after each step; None for a rate that stays."""
        return None

    def data(self, task: Any, size: int, seed: int) -> tuple[Any, Any]:
        """The training set and the held-out set, each drawn from a stream of its own.

        Parameters
        ----------
        task : object
            What they are of.
        size : int
            Examples in the training set.
        seed : int
            Of the study.
        """
        return (
            self.draw(task, size, stream(seed, "training")),
            self.draw(task, self.held_out, stream(seed, "held_out")),
        )

    @property
    def watched(self) -> tuple[int, ...]:
        """Numbers of steps after which the networks are looked into."""
        return ()

    def watching(self, arms: Sequence[Any], task: Any, seed: int, training_set: Any) -> Callable[[Any], Any]:
        """network → what is kept of it after the numbers of steps that are `watched`; by default a `Snapshot`.

        Parameters
        ----------
        arms : sequence
            What is trained.
        task : object
            What it is trained on.
        seed : int
            Of the study.
        training_set : object
            What it is trained on, as examples.
        """
        from training.fitting import Snapshot

        return Snapshot.of

    def seen(self, curves: Curves, arms: Sequence[Any], task: Any) -> Mapping[str, NDArray]:
        """Further columns, from what was `watched`.

        Parameters
        ----------
        curves : Curves
            Of the training.
        arms : sequence
            What was trained.
        task : object
            What it was trained on.
        """
        return {}

    @property
    def evaluated(self) -> NDArray[np.int64]:
        """Steps after which the held-out set is scored."""
        return np.array(sorted({*range(0, self.steps + 1, self.every), self.steps}))

    def columns(self, arms: Sequence[Any], tasks: Sequence[Any]) -> Mapping[str, Column]:
        """`loss` over `update` and the scores over `step`, for each arm."""
        count, evaluated = len(arms), len(self.evaluated)
        return {
            **{
                name: Column(("arm", "step"), (count, evaluated), float, np.nan, described)
                for name, described in self.SCORES.items()
            },
            "loss": Column(("arm", "update"), (count, self.steps), float, np.nan, self.LOSS),
        }

    def coordinates(self, arms: Sequence[Any], tasks: Sequence[Any]) -> Mapping[str, Variable]:
        """Steps of the optimiser: those taken before an evaluation, and the number of each."""
        evaluated = {"long_name": "steps taken before the evaluation", "units": "step"}
        updates = {"long_name": "number of the step", "units": "step"}
        return {
            "step": (("step",), self.evaluated, evaluated),
            "update": (("update",), np.arange(1, self.steps + 1), updates),
        }

    def train(self, arms: Sequence[Any], task: Any, size: int, seed: int, progress: Progress) -> Mapping[str, NDArray]:
        """Fit all arms on one training set and score them on one held-out set."""
        from training.fitting import fit

        net = self.network(arms, task, seed)
        training_set, held_out = self.data(task, size, seed)
        curves = fit(
            net,
            batches(training_set, self.batch, self.steps, stream(seed, "batches")),
            held_out,
            self.steps,
            loss=self.loss,
            scores=self.scores,
            optimiser=self.optimiser(arms),
            schedule=self.schedule,
            clip=self.clip,
            every=self.every,
            watch=self.watched,
            look=self.watching(arms, task, seed, training_set),
            most=self.MOST,
            autocast=self.autocast,
            compile=self.compile,
            stepped=lambda _: progress(1),
        )
        return {**curves.scores, "loss": curves.loss, **self.seen(curves, arms, task)}


def batches(examples: Any, most: int, steps: int, rng: Generator) -> Iterator[Any]:
    """One batch for each of so many `steps`, of at most `most` of the `examples`, each of them once an epoch.

    What is left over at the end of an epoch is dropped.
    """
    size, left = min(most, len(examples)), np.empty(0, dtype=np.int64)
    for _ in range(steps):
        if len(left) < size:
            left = rng.permutation(len(examples))
        yield examples.take(left[:size])
        left = left[size:]
