"""The claims of the figure `masks` on arithmetic: accuracies of every arm, and the order of the places."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import xarray as xr

from figures.early import interval
from figures.masks.arms import arms_of, last, mean_of
from figures.report import Claim, Value

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
    stem, paper = f"masks.{task}-{size}", SEQUENCES[task] if size == SEEN[task] else {}
    places: dict[str, xr.DataArray] = {}
    for arm in arms_of(study):
        place = arm.place if arm.pattern == "correct" else arm.slug
        places[place] = whole = 100 * right.sel(arm=arm.name)
        more = mean_of(whole - 100 * right.sel(arm=arm.reference))
        said: Value = paper.get(place)
        yield Claim(
            f"{stem}.{arm.slug}.sequence_accuracy",
            f"{arm.name} has a higher sequence accuracy in {task} of {size} seen pairs than {arm.reference}, percent",
            said,
            float(whole.mean()),
            bool(more.low > 0) or arm.place == "default",
            f"{interval(mean_of(whole))}, digits {interval(mean_of(100 * digits.sel(arm=arm.name)))} %, cross-entropy "
            f"{interval(mean_of(entropy.sel(arm=arm.name)))} nat; above {arm.reference} by {interval(more)}; met if "
            "above 0",
        )
    expected = sorted(SEQUENCES[task], key=SEQUENCES[task].__getitem__)
    here = sorted((place for place in expected if place in places), key=lambda place: float(places[place].mean()))
    found = here[:1]
    for low, high in pairwise(here):
        found += ["<" if mean_of(places[high] - places[low]).low > 0 else "≈", high]
    text = f"the order of places in {task} of {size} seen pairs is that of the paper, by sequence accuracy"
    wanted, order = " < ".join(expected), " ".join(found)
    yield Claim(f"{stem}.order", text, wanted, order, order == wanted, "≈ where the paired difference may be 0")
