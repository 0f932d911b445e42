"""The claims of the figure `masks`: outcome and survival of every arm, and the verdicts on the reviewer's questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from figures.early import interval
from figures.masks import arithmetic
from figures.masks.arms import Arm, arms_of, last, mean_of
from figures.masks.verdicts import NEAR, survival, verdicts
from figures.report import Claim, Value
from figures.studies import marked

ACCURACY = {
    "2parity": {"default": 75.0, "svd": 75.0, "opt": 75.0, "mask": 100.0, "neutral": 75.0},
    "cyclic3": {"default": 87.45, "svd": 87.48, "opt": 87.47, "mask": 99.98, "neutral": 87.46},
    "majority3": {"default": 87.40, "svd": 87.40, "opt": 87.40, "mask": 100.0, "neutral": 87.4},
}
"""Percent of the cube by the nearest valid label, Tables 1 and 4 of the paper; none for ThreeSym."""


def claims(data: xr.DataTree) -> list[Claim]:
    """Outcomes and survival of the arms, verdicts, the drift of masks, and arithmetic."""
    study, kernels, *sums = (data[name].to_dataset() for name in ("masks", "kernels", "addition", "multiplication"))
    study, kernels = study.isel(size=0), kernels.isel(size=0)
    found = marked([*_outcomes(study, arms_of(study)), *verdicts(study)], [study])
    found += marked([*_outcomes(kernels, placed(kernels)), *survival(kernels, placed(kernels))], [kernels])
    for part in sums:
        found += marked(arithmetic.claims(part), [part])
    return [*found, _configurations([data[name].to_dataset() for name in data])]


def placed(kernels: xr.Dataset) -> list[Arm]:
    """The arms with a kernel; the others of that study are what they are compared with."""
    return [arm for arm in arms_of(kernels) if arm.place == "kernel"]


def _outcomes(study: xr.Dataset, arms: list[Arm]) -> Iterator[Claim]:
    """Error and accuracy of arms on every task."""
    for task in study.task.values:
        yield from _outcome(study.sel(task=task), str(task), arms)


def _outcome(study: xr.Dataset, task: str, arms: list[Arm]) -> Iterator[Claim]:
    errors, accuracy = last(study, "unseen_mse"), 100 * last(study, "accuracy")
    for arm in arms:
        error, right = mean_of(errors.sel(arm=arm.name)), mean_of(accuracy.sel(arm=arm.name))
        full = int((accuracy.sel(arm=arm.name) == 100).sum())
        seeds = int(right.seeds)
        share = f"{full} of {seeds} seeds at 100 %"
        name = f"masks.{task}.{arm.slug}"
        if arm.place == "default":
            text, met = f"without a prior ({arm.name}) not every seed learns the unseen part of {task}", full < seeds
            rule = f"met unless all seeds are at 100 %: {share}"
        else:
            less = mean_of(errors.sel(arm=arm.name) - errors.sel(arm=arm.reference))
            text, met = f"{arm.name} has a lower error on the unseen part of {task} than {arm.reference}", less.high < 0
            rule = f"paired difference {interval(less)}; met if below 0"
        yield Claim(f"{name}.unseen_mse", text, None, float(error.difference), bool(met), f"{interval(error)}; {rule}")
        paper: Value = ACCURACY.get(task, {}).get(arm.name)
        if paper is None:
            met, rule = full == seeds > 0, "met if all are"
        else:
            met = bool(right.low - NEAR <= paper <= right.high + NEAR)
            rule = f"met within {NEAR} of the interval"
        text = f"accuracy of {arm.name} on {task}, percent of the cube"
        yield Claim(
            f"{name}.accuracy", text, paper, float(right.difference), met, f"{interval(right)}, {share}; {rule}"
        )


def _configurations(studies: Sequence[xr.Dataset]) -> Claim:
    scores = [last(study, "accuracy") for study in studies]
    number = sum(score.size // score.sizes["seed"] for score in scores)
    missing = sum(int((~np.isfinite(score)).sum()) for score in scores)
    return Claim(
        "masks.configurations",
        "every task, arm, size and seed of the studies is in the report",
        None,
        number,
        missing == 0,
        f"tasks × arms × sizes, each with {' or '.join(map(str, sorted({score.sizes['seed'] for score in scores})))} "
        f"seeds; {missing} trainings that have diverged or are not done",
    )
