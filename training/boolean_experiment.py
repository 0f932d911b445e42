"""Priors on the Boolean tasks: regression on the seen part of the cube, scored on all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dispersion import ArgumentError
from training.patterns import Pattern, pattern_of
from training.prior_arm import PriorArm
from training.prior_experiment import PriorExperiment
from training.streams import stream

if TYPE_CHECKING:
    from torch import Tensor

    from training.fitting import Measure


@dataclass(frozen=True)
class BooleanExperiment(PriorExperiment):
    """Encoders with one output trained on the squared error over seen points of the cube, and scored on all points.

    Parameters
    ----------
    steps, batch, rate, decay, clip, every, device, autocast, compile : int, float, str or bool
        Those of `Fitted`; `held_out` counts for nothing.
    decoupled, d, layers, heads, width, hidden, pool, rows, start_row, start_column, watch, held_out : int, float or str
        Those of `PriorExperiment`.
    """

    SCORES: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "mse": {"long_name": "squared error on the cube", "units": "1"},
        "seen_mse": {"long_name": "squared error on the seen part of the cube", "units": "1"},
        "unseen_mse": {"long_name": "squared error on the unseen part of the cube", "units": "1"},
        "accuracy": {"long_name": "fraction of the cube whose nearest valid label is right", "units": "1"},
    }
    OUTCOME: ClassVar[str | None] = "unseen_mse"
    LOSS: ClassVar[Mapping[str, str]] = {"long_name": "squared error on the batch of a step, before it", "units": "1"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool == "tokens":
            raise ArgumentError("pool", self.pool, "'mean' or 'cls'")

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    @property
    def loss(self) -> Measure:
        """The squared error."""
        return squared_error

    @property
    def scores(self) -> Mapping[str, Measure]:
        """Squared errors on the cube, its seen and its unseen part, and accuracy by the nearest valid label."""
        return {
            "mse": squared_error,
            "seen_mse": lambda outputs, batch: _errors(outputs, batch)[:, batch.seen].mean(1),
            "unseen_mse": lambda outputs, batch: _errors(outputs, batch)[:, ~batch.seen].mean(1),
            "accuracy": nearest_label,
        }

    def data(self, task: Any, size: int, seed: int) -> tuple[Any, Any]:
        """Seen points, at most `size` of them, and the whole cube.

        Parameters
        ----------
        task : BooleanTask
            Of which.
        size : int
            Points in the training set.
        seed : int
            Of the study.
        """
        return self.draw(task, size, stream(seed, "training")), task.whole

    def bare_pattern(self, arm: PriorArm, task: Any, seed: int) -> Pattern:
        """What `pattern_of` has for the task.

        Parameters
        ----------
        arm : PriorArm
            One of the arms.
        task : BooleanTask
            One of the tasks.
        seed : int
            Of the study, for a permutation.
        """
        return pattern_of(task.name, task.n, arm.pattern, self.rows, stream(seed, "arm"))


def squared_error(outputs: Tensor, batch: Any) -> Tensor:
    """(M,) mean of (output − target)².

    Parameters
    ----------
    outputs : (M, B) Tensor
        Of all copies.
    batch : object
        A tensor `targets` (B,).
    """
    return _errors(outputs, batch).mean(1)


def nearest_label(outputs: Tensor, batch: Any) -> Tensor:
    """(M,) fraction of points whose nearest valid label is the target, NaN for a copy that has diverged.

    Parameters
    ----------
    outputs : (M, B) Tensor
        Of all copies.
    batch : object
        Tensors `targets` (B,) and `labels` (K,).
    """
    nearest = batch.labels[(outputs[..., None] - batch.labels.to(outputs)).abs().argmin(-1)]
    right = (nearest == batch.targets).to(outputs.dtype)
    # adds NaN where an output is not finite
    return (right + 0 * outputs.detach()).mean(1)


def _errors(outputs: Tensor, batch: Any) -> Tensor:
    return (outputs - batch.targets.to(outputs)).square()
