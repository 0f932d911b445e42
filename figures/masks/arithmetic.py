"""The claims of the figure `masks` on arithmetic: accuracies of every arm, and the order of the places."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import xarray as xr

from figures.early import interval
from figures.masks.arms import arms_of, last, mean_of
from figures.report import Claim

SEQUENCES = {
    "addition": {"default": 1.19, "svd": 0.87, "opt": 3.39, "mask": 77.49},
    "multiplication": {"default": 5.01, "svd": 11.13, "opt": 27.82, "mask": 69.49},
}
"""Percent of whole results that are right, Table 2 of the paper."""

SEEN = {"addition": 4000, "multiplication": 30000}
"""Pairs in the training set of that table, 0.4 % and 3 % of all."""


def claims(study: xr.Dataset) -> Iterator[Claim]:
    """Those of a study of one arithmetic task, for each size of the training set."""
    task = str(study.task.item())
    for size in study["size"].values:
        yield from _of_size(study.isel(task=0).sel(size=size), task, int(size))


def _of_size(study: xr.Dataset, task: str, size: int) -> Iterator[Claim]:
    right, digits, entropy = (last(study, name) for name in ("sequence_accuracy", "accuracy", "cross_entropy"))
    stem = f"masks.{task}-{size}"
    paper: dict[str, float] = SEQUENCES[task] if size == SEEN[task] else {}
    places: dict[str, xr.DataArray] = {}
    for arm in arms_of(study):
        place = arm.place if arm.pattern == "correct" else arm.slug
        places[place] = whole = 100 * right.sel(arm=arm.name)
        found, said = mean_of(whole), paper.get(place)
        parts = [
            interval(found),
            f"digits {interval(mean_of(100 * digits.sel(arm=arm.name)))} %",
            f"cross-entropy {interval(mean_of(entropy.sel(arm=arm.name)))} nat",
        ]
        if place == "default":
            text = f"sequence accuracy of {arm.name} in {task} of {size} seen pairs, percent"
            met = said is None or bool(found.low <= said <= found.high)
            parts.append("met if the paper's is within the interval")
        else:
            than = arm.reference
            text = f"{arm.name} has a higher sequence accuracy in {task} of {size} seen pairs than {than}, percent"
            more = mean_of(whole - 100 * right.sel(arm=than))
            met = bool(more.low > 0)
            parts.append(f"above {than} by {interval(more)}; met if above 0")
        name = f"{stem}.{arm.slug}.sequence_accuracy"
        yield Claim(name, text, said, float(found.difference), met, ", ".join(parts))
    expected = sorted(SEQUENCES[task], key=SEQUENCES[task].__getitem__)
    here = sorted((place for place in expected if place in places), key=lambda place: float(places[place].mean()))
    words = here[:1]
    for low, high in pairwise(here):
        words += ["<" if mean_of(places[high] - places[low]).low > 0 else "≈", high]
    text = f"the order of places in {task} of {size} seen pairs is that of the paper, by sequence accuracy"
    wanted, order = " < ".join(expected), " ".join(words)
    yield Claim(f"{stem}.order", text, wanted, order, order == wanted, "≈ where the paired difference may be 0")
