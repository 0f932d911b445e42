"""The verdicts of the figure `masks` on the reviewer's questions: survival, its causes, wrong masks, and drift."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from figures.early import interval
from figures.masks.arms import Arm, arms_of, last, law, mean_of, settings, survived
from figures.report import Claim

STAYS = 0.9
"""Of its own start; a prior above it has stayed."""

LOST = 0.1
"""Of s_A; a prior that has lost less than it needs no cause."""

NEAR = 0.5
"""Percent by which an accuracy may differ: one point of the cube of 8 signs is 0.4."""


def verdicts(study: xr.Dataset) -> list[Claim]:
    """What the Boolean tasks together say: survival at each place, the reviewer's questions, and drift."""
    arms = arms_of(study)
    oracle = [_frozen_oracle(study, arms, decay) for decay in ("everywhere", "elsewhere")]
    found = [*survival(study, arms), *_places(study, arms), *oracle, *_washout(study, arms)]
    return [*found, _neutral(study), *_drift(study, arms), *_slopes(study, arms)]


def survival(study: xr.Dataset, arms: list[Arm]) -> Iterator[Claim]:
    """What is left of the correct pattern at each place, with weight decay and without."""
    left = survived(study).isel(watched=-1)
    for place in ("mask", "kernel", "svd", "opt"):
        for decay, name in _plain(arms, place).items():
            values = left.sel(arm=name)
            found = mean_of(values.mean("task"))
            lost = decay == "everywhere" and place in ("svd", "opt")
            word, where = ("lost", "below") if lost else ("kept", "above")
            listed = ", ".join(f"{task} {float(values.sel(task=task).mean()):.3f}" for task in study.task.values)
            yield Claim(
                f"masks.survival.{place}{_end(decay)}",
                f"the prior of {name} is {word} in training",
                word if decay == "everywhere" and place != "kernel" else None,
                float(found.difference),
                bool(found.high < 0.5 if lost else found.low > 0.5),
                f"s_A without content, mean over layers and tasks, {interval(found)} ({listed}); met {where} 1/2",
            )


def _frozen_oracle(study: xr.Dataset, arms: list[Arm], decay: str) -> Claim:
    """Whether misspecified masks move, and whether they extrapolate better than no prior."""
    kept, errors = survived(study, "survival_kept").isel(watched=-1), last(study, "unseen_mse")
    words, notes = set(), []
    for arm in arms:
        if (arm.place, arm.pattern, arm.decay, arm.optimiser) != ("mask", "wrong", decay, "adam"):
            continue
        for task in study.task.values:
            cell = {"task": task, "arm": arm.name}
            stays = mean_of(kept.sel(cell))
            less = mean_of(errors.sel(cell) - errors.sel(task=task, arm=arm.reference))
            moved = "stays" if stays.low > STAYS else "moves" if stays.high < STAYS else "undecided"
            better = "extrapolates" if less.high < 0 else "does not extrapolate"
            words.add((moved, better))
            notes.append(f"contrast {arm.contrast:g}, {task}: {moved} ({interval(stays)}), {better} ({interval(less)})")
    if not words:
        verdict = "not run"
    elif words == {("stays", "does not extrapolate")}:
        verdict = "frozen oracle"
    elif words == {("moves", "extrapolates")}:
        verdict = "adapts"
    else:
        verdict = "mixed"
    return Claim(
        "masks.frozen_oracle" + _end(decay),
        f"a misspecified mask adapts in training, weights decaying {decay}",
        None,
        verdict,
        verdict == "adapts",
        f"share of the attention at the start that is left, above {STAYS} it stays, and error on the unseen part less "
        f"that of the default: {'; '.join(notes)}",
    )


def _end(decay: str) -> str:
    """Of an id."""
    return "" if decay == "everywhere" else f".{decay}"


def _plain(arms: list[Arm], place: str) -> dict[str, str]:
    """{decay: name} of the arms with the correct pattern at a place, contrast 10, trained by Adam."""
    of_place = [arm for arm in arms if arm.name.split(",")[0] == arm.place == place]
    return {arm.decay: arm.name for arm in of_place if arm.pattern == "correct" and arm.optimiser == "adam"}


def _places(study: xr.Dataset, arms: list[Arm]) -> Iterator[Claim]:
    """Whether a mask keeps more than queries and keys that are trained alike."""
    left = survived(study).isel(watched=-1)
    masks = _plain(arms, "mask")
    for place in ("svd", "opt"):
        for decay, name in _plain(arms, place).items():
            if decay not in masks:
                continue
            more = left.sel(arm=masks[decay]) - left.sel(arm=name)
            found = mean_of(more.mean("task"))
            listed = ", ".join(f"{task} {interval(mean_of(more.sel(task=task)))}" for task in study.task.values)
            yield Claim(
                f"masks.place.{place}{_end(decay)}",
                f"a mask keeps more of its prior than {place}, weights decaying {decay}",
                None,
                float(found.difference),
                bool(found.low > 0),
                f"s_A of the mask less that of {place}, of the same seed, {interval(found)} ({listed}); met above 0",
            )


def _washout(study: xr.Dataset, arms: list[Arm]) -> Iterator[Claim]:
    """How much of what queries and keys lose is due to weight decay."""
    left = survived(study)
    verdicts, notes = [], []
    for place in ("svd", "opt"):
        named = _plain(arms, place)
        if not {"everywhere", "nowhere"} <= set(named):
            continue
        end = {decay: left.sel(arm=name).isel(watched=-1) for decay, name in named.items()}
        lost = left.sel(arm=named["everywhere"]).isel(watched=0) - end["everywhere"]
        spared = end["nowhere"] - end["everywhere"]
        verdict, share = _cause(lost.mean("task"), spared.mean("task"))
        tasks = {task: _cause(lost.sel(task=task), spared.sel(task=task)) for task in study.task.values}
        by_task = ", ".join(f"{task} {word} {part}" for task, (word, part) in tasks.items())
        verdicts.append(verdict)
        notes.append(f"{place}: {verdict}")
        listed = ", ".join(f"decay {decay} {interval(mean_of(kept.mean('task')))}" for decay, kept in end.items())
        yield Claim(
            f"masks.washout.cause.{place}",
            f"the loss of the prior of {place} is due to gradients of the loss, not to weight decay",
            "gradient",
            verdict,
            verdict == "gradient",
            f"share of the loss that is not there without decay, {share}: above 2/3 decay, below 1/3 gradient, else "
            f"both; none if less than {LOST} is lost; by task {by_task}; left: {listed}",
        )
    same = verdicts[0] if len(set(verdicts)) == 1 else "mixed" if verdicts else "not run"
    text = "queries and keys lose their prior to gradients of the loss, not to weight decay"
    yield Claim("masks.washout.cause", text, "gradient", same, same == "gradient", "; ".join(notes))


def _cause(lost: xr.DataArray, spared: xr.DataArray) -> tuple[str, str]:
    """(decay, gradient, both or none; the share of what is `lost` that is `spared` without decay, in words)."""
    if not mean_of(lost).low > LOST:
        return "none", f"({interval(mean_of(lost))} lost)"
    share = mean_of(spared / lost.where(lost != 0))
    word = "decay" if share.low > 2 / 3 else "gradient" if share.high < 1 / 3 else "both"
    return word, interval(share)


def _neutral(study: xr.Dataset) -> Claim:
    """Whether a mask that says nothing at first does as the default."""
    notes, differ = [], []
    for task in study.task.values:
        part = study.sel(task=task)
        found = {}
        for name, scale in (("unseen_mse", 1), ("accuracy", 100)):
            score = scale * last(part, name)
            found[name] = mean_of(score.sel(arm="neutral") - score.sel(arm="default"))
        notes.append(f"{task}: error {interval(found['unseen_mse'])}, accuracy {interval(found['accuracy'])} %")
        if found["accuracy"].low > NEAR or found["accuracy"].high < -NEAR:
            differ.append(f"{'better' if found['accuracy'].low > NEAR else 'worse'} in {task}")
    return Claim(
        "masks.neutral",
        "a neutral mask is as accurate as no mask",
        "as the default",
        ", ".join(differ) or "as the default",
        not differ,
        f"paired differences to the default: {'; '.join(notes)}; met if no interval of accuracies is {NEAR} off 0",
    )


def _drift(study: xr.Dataset, arms: list[Arm]) -> Iterator[Claim]:
    """Whether |m| follows weight decay alone."""
    size = study.mask_size.mean(("layer", "task", "seed"))
    for arm in _decaying(arms):
        here, wanted = size.sel(arm=arm.name).values, law(study, arm.contrast, arm.optimiser)
        off = float(np.abs(here - wanted).max() / arm.contrast)
        yield Claim(
            f"masks.drift.{arm.slug}",
            f"|m| of {arm.name} moves as weight decay alone moves it",
            None,
            float(here[-1]),
            off < 0.05,
            f"mean |m| after the last step, {wanted[-1]:.4f} by the law; largest distance {off:.4f} of the contrast, "
            "met below 0.05",
        )


def _slopes(study: xr.Dataset, arms: list[Arm]) -> Iterator[Claim]:
    """How hard the loss pulls at M at the start, against weight decay."""
    decay = settings(study)["decay"]
    slope = study.mask_slope.mean(("layer", "task")).isel(watched=0)
    for arm in _decaying(arms):
        if arm.optimiser != "adam":
            continue
        pull = slope.sel(arm=arm.name)
        found = mean_of(pull / (decay * arm.contrast))
        yield Claim(
            f"masks.slope.{arm.slug}",
            f"the loss pulls less at M of {arm.name} than weight decay does, before the first step",
            None,
            float(found.difference),
            bool(found.high < 1),
            f"mean |dloss/dM| over pairs, layers and tasks, {float(pull.mean()):.2e}, over decay · |m|, "
            f"{decay * arm.contrast:.2e}, [{float(found.low):.2e}, {float(found.high):.2e}]; met below 1",
        )


def _decaying(arms: list[Arm]) -> list[Arm]:
    """Arms with a mask that trains and decays, with the correct pattern."""
    masks = [arm for arm in arms if arm.place == "mask" and not arm.held and arm.pattern == "correct"]
    return [arm for arm in masks if arm.decay == "everywhere"]
