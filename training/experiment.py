"""What a study repeats: arms trained side by side on one task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

from simulate.runs.columns import Column
from simulate.runs.result import Variable
from simulate.runs.task import Progress

MATCHED, MISMATCHED, BASELINE = ROLES = ("matched", "mismatched", "baseline")
"""What an arm is to a task: made for it, made for another one, or made for none."""


class Experiment(ABC):
    """How arms are trained side by side on a task; small, and to be pickled.

    A study knows no more of its arms, its tasks and their training than what is here.
    """

    OUTCOME: ClassVar[str | None] = None
    """The score that counts at the end of training, None where it is how early matched arms learn."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of the training of all arms together, which its progress counts."""

    @abstractmethod
    def columns(self, arms: Sequence[Any], tasks: Sequence[Any]) -> Mapping[str, Column]:
        """What is recorded of one training, by name.

        Parameters
        ----------
        arms : sequence
            What is trained; the dimension `arm`.
        tasks : sequence
            What it is trained on.
        """

    @abstractmethod
    def coordinates(self, arms: Sequence[Any], tasks: Sequence[Any]) -> Mapping[str, Variable]:
        """(dimensions, values, attributes) of the dimensions of `columns` other than `arm`, by name.

        Parameters
        ----------
        arms : sequence
            What is trained.
        tasks : sequence
            What it is trained on.
        """

    @abstractmethod
    def train(self, arms: Sequence[Any], task: Any, size: int, seed: int, progress: Progress) -> Mapping[str, NDArray]:
        """What `columns` names, of all arms trained from one seed on the same data.

        Parameters
        ----------
        arms : sequence
            What is trained.
        task : object
            What it is trained on.
        size : int
            Examples in the training set.
        seed : int
            Of all random numbers, by purpose: `training.streams.stream`.
        progress : callable
            Told the steps done.
        """

    def check(self, arms: Sequence[Any], task: Any, seed: int) -> None:  # noqa: B027
        """Refuse, with an ArgumentError, arms that cannot be trained on a task; before anything is.

        Parameters
        ----------
        arms : sequence
            What would be trained.
        task : object
            What it would be trained on.
        seed : int
            The first of the study.
        """

    def role(self, arm: Any, task: Any) -> str:
        """What an arm is to a task: one of ROLES.

        Parameters
        ----------
        arm : object
            One of the arms.
        task : object
            One of the tasks.
        """
        return BASELINE
