"""What a study file of priors may have as tasks and arms: a list in place of one value makes an arm of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from dispersion.errors import ArgumentError
from training.arithmetic import Addition, Multiplication
from training.boolean import Cyclic3, Majority3, ThreeSym, TwoParity
from training.prior_arm import PriorArm
from training.priors import KernelPrior, MaskPrior, NeutralMask, NoPrior, Prior, StructuredOpt, StructuredSVD

Numbers = float | Sequence[float]
Words = str | Sequence[str]

BOOLEAN: dict[str, Callable[..., Any]] = {task.name: task for task in (TwoParity, Cyclic3, Majority3, ThreeSym)}
"""Boolean tasks by their `type`."""

ARITHMETIC: dict[str, Callable[..., Any]] = {task.name: task for task in (Addition, Multiplication)}
"""Arithmetic tasks by their `type`."""


def default(decay: Words = "everywhere", optimiser: Words = "adam") -> list[PriorArm]:
    """Arms without a prior."""
    return _arms([NoPrior()], "correct", decay, optimiser)


def neutral(decay: Words = "everywhere", optimiser: Words = "adam") -> list[PriorArm]:
    """Arms with a mask that is trained from M = 0."""
    return _arms([NeutralMask()], "correct", decay, optimiser)


def mask(
    contrast: Numbers = 10.0,
    frozen: bool = False,
    hard: bool = False,
    pattern: Words = "correct",
    decay: Words = "everywhere",
    optimiser: Words = "adam",
) -> list[PriorArm]:
    """Arms with the pattern in a mask."""
    found = [MaskPrior(size, frozen=frozen, hard=hard) for size in _several("contrast", contrast)]
    return _arms(found, pattern, decay, optimiser)


def placed(prior: Callable[..., Prior]) -> Callable[..., list[PriorArm]]:
    """Reader of arms with the pattern where `prior` puts it, at a contrast."""

    def arms(
        contrast: Numbers = 10.0,
        frozen: bool = False,
        pattern: Words = "correct",
        decay: Words = "everywhere",
        optimiser: Words = "adam",
    ) -> list[PriorArm]:
        found = [prior(size, frozen=frozen) for size in _several("contrast", contrast)]
        return _arms(found, pattern, decay, optimiser)

    return arms


def opt(
    contrast: Numbers = 10.0,
    frozen: bool = False,
    pattern: Words = "correct",
    decay: Words = "everywhere",
    optimiser: Words = "adam",
    steps: int = 2000,
    rate: float = 1e-3,
) -> list[PriorArm]:
    """Arms with the pattern in queries and keys, by training them for it first."""
    found = [StructuredOpt(c, frozen=frozen, steps=steps, rate=rate) for c in _several("contrast", contrast)]
    return _arms(found, pattern, decay, optimiser)


PRIORS: dict[str, Callable[..., Any]] = {
    "default": default,
    "neutral": neutral,
    "mask": mask,
    "kernel": placed(KernelPrior),
    "svd": placed(StructuredSVD),
    "opt": opt,
}
"""Arms by their `type`."""


def _arms(priors: Sequence[Prior], pattern: Words, decay: Words, optimiser: Words) -> list[PriorArm]:
    rest = (_several(*pair) for pair in (("pattern", pattern), ("optimiser", optimiser), ("decay", decay)))
    return [PriorArm(prior, which, where, how) for prior, which, how, where in product(priors, *rest)]


def _several(argument: str, value: Any) -> Sequence[Any]:
    found = value if isinstance(value, tuple | list) else (value,)
    if not found:
        raise ArgumentError(argument, "an empty list", "one value or more")
    return found
