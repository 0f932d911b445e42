"""What the arms of a study of priors are, and their numbers at the end of training."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from training.statistics import over_seeds
from training.survival import drift

PLACES = {
    "NoPrior": "default",
    "NeutralMask": "neutral",
    "MaskPrior": "mask",
    "KernelPrior": "kernel",
    "StructuredSVD": "svd",
    "StructuredOpt": "opt",
}
"""Where a prior is, by its class."""


@dataclass(frozen=True)
class Arm:
    """An arm of a study, read from its results.

    name : in the results; place : one of PLACES; contrast : NaN without one; held : frozen or hard; the rest as of
    `training.prior_arm.PriorArm`.
    """

    name: str
    place: str
    contrast: float
    held: bool
    pattern: str
    decay: str
    optimiser: str

    @property
    def slug(self) -> str:
        """As in ids of claims."""
        return self.name.replace(",", "").replace(" ", "-")

    @property
    def reference(self) -> str:
        """The arm without a prior that is trained alike: its name."""
        return "default" + (", decay nowhere" if self.decay == "nowhere" else "") + self.suffix

    @property
    def suffix(self) -> str:
        """What the name says of the optimiser."""
        return "" if self.optimiser == "adam" else f", {self.optimiser}"


def arms_of(data: xr.Dataset) -> list[Arm]:
    """Those of the results of a study."""
    found = []
    for name, table in zip(data.arm.values, json.loads(data.attrs["arms"]), strict=True):
        prior = table["prior"]
        plain = prior["type"] in ("NoPrior", "NeutralMask")
        held = not plain and bool(prior["frozen"] or prior.get("hard"))
        place, contrast = PLACES[prior["type"]], prior.get("contrast", np.nan)
        found.append(Arm(str(name), place, contrast, held, table["pattern"], table["decay"], table["optimiser"]))
    return found


def last(data: xr.Dataset, name: str) -> xr.DataArray:
    """A score at the last step."""
    return data[name].isel(step=-1, drop=True)


def survived(data: xr.Dataset, name: str = "survival_home") -> xr.DataArray:
    """What is left of the pattern over `watched`, the mean over layers."""
    return data[name].mean("layer")


def mean_of(values: xr.DataArray) -> xr.Dataset:
    """A mean over seeds with its interval, NaN ends for a single seed."""
    return over_seeds(values)


def law(data: xr.Dataset, contrast: float, optimiser: str = "adam") -> NDArray[np.float64]:
    """(watched,) |m| of a mask that nothing but weight decay moves, along the cosine of the study."""
    experiment = settings(data)
    steps = experiment["steps"]
    rates = experiment["rate"] * (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2
    decoupled = optimiser == "adamw"
    size = drift(contrast, rates, experiment["decoupled" if decoupled else "decay"], decoupled)
    return np.asarray(size[data.watched.values])


def settings(data: xr.Dataset) -> dict[str, Any]:
    """Those of the experiment."""
    found: dict[str, Any] = json.loads(data.attrs["experiment"])
    return found
