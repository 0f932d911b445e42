"""Priors on arithmetic: every digit of a result is classified at a token of its own, in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dispersion import ArgumentError
from training.patterns import Pattern
from training.prior_arm import PriorArm
from training.prior_experiment import PriorExperiment
from training.streams import stream

if TYPE_CHECKING:
    from torch import Tensor

    from training.fitting import Measure


@dataclass(frozen=True)
class ArithmeticExperiment(PriorExperiment):
    """Encoders that classify the digits of a result, trained on some pairs of numbers and scored on others.

    Parameters
    ----------
    steps, batch, rate, decay, clip, every, held_out, device, autocast, compile : int, float, str or bool
        Those of `Fitted`; training and held-out set have no pair in common.
    decoupled, d, layers, heads, width, hidden, pool, rows, start_row, start_column, watch : int, float or str
        Those of `PriorExperiment`; the pool is 'tokens'.
    """

    SCORES: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "sequence_accuracy": {"long_name": "fraction of held-out results with all digits right", "units": "1"},
        "accuracy": {"long_name": "fraction of digits of held-out results that are right", "units": "1"},
        "cross_entropy": {"long_name": "cross-entropy of a digit of held-out results", "units": "nat"},
    }
    OUTCOME: ClassVar[str | None] = "sequence_accuracy"

    batch: int = 128
    rate: float = 1e-3
    held_out: int = 1024
    decoupled: float = 1e-3
    layers: int = 3
    heads: int = 4
    pool: str = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool != "tokens":
            raise ArgumentError("pool", self.pool, "'tokens'")

    @property
    def outputs(self) -> int:
        """Ten classes."""
        return 10

    @property
    def scores(self) -> Mapping[str, Measure]:
        """Whole results and digits that are right, and the cross-entropy."""
        from training.fitting import SCORES

        return {"sequence_accuracy": sequence_accuracy, **SCORES}

    def data(self, task: Any, size: int, seed: int) -> tuple[Any, Any]:
        """A training set and a held-out set of other pairs.

        Parameters
        ----------
        task : Arithmetic
            Of which.
        size : int
            Examples in the training set.
        seed : int
            Of the study.
        """
        found: tuple[Any, Any] = task.split(size, self.held_out, stream(seed, "training"))
        return found

    def bare_pattern(self, arm: PriorArm, task: Any, seed: int) -> Pattern:
        """That of the task.

        Parameters
        ----------
        arm : PriorArm
            One of the arms.
        task : Arithmetic
            One of the tasks.
        seed : int
            Of the study, for a permutation.
        """
        found: Pattern = task.pattern(arm.pattern, self.heads, stream(seed, "arm"))
        return found


def sequence_accuracy(logits: Tensor, batch: Any) -> Tensor:
    """(M,) fraction of sequences that are right at all scored positions, NaN for a copy that has diverged.

    Parameters
    ----------
    logits : (M, B, N, levels) Tensor
        Of all copies.
    batch : object
        Tensors `labels` and `scored`, (B, N).
    """
    right = ((logits.argmax(-1) == batch.labels) | ~batch.scored).all(-1).to(logits.dtype)
    # adds NaN where a logit is not finite
    return (right + 0 * logits.detach().sum((-2, -1))).mean(1)
