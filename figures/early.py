"""Early learning of a family of tasks over one window, as claims and drawings need it."""

from __future__ import annotations

from dataclasses import dataclass

import xarray as xr

from figures.families import FAMILIES, Family
from training.experiment import MATCHED, MISMATCHED
from training.statistics import early_auc, paired


@dataclass(frozen=True)
class Early:
    """Early AUC of a family over one window, and what the paper says of it.

    values : over task, seed and arm; found : as `paired`.
    """

    name: str
    window: int
    data: xr.Dataset
    values: xr.DataArray
    found: xr.Dataset

    @classmethod
    def of(cls, name: str, data: xr.Dataset, window: int) -> Early:
        """That of the study `data` of the family `name`."""
        values = early_auc(data, window)
        return cls(name, window, data, values, paired(values, data.role))

    @property
    def family(self) -> Family:
        """Its family."""
        return FAMILIES[self.name]

    @property
    def tasks(self) -> int:
        """Tasks of which there are results."""
        return int((self.found.seeds > 0).sum())

    @property
    def diagonal(self) -> int:
        """Tasks whose matched arm has the highest mean."""
        return int(self.found.diagonal.sum())

    @property
    def matched(self) -> xr.DataArray:
        """Of the matched arm, over task and seed."""
        return self.values.where(self.data.role == MATCHED).max("arm")

    @property
    def differences(self) -> xr.DataArray:
        """Of the matched arm, less that of the strongest mismatched one of the same seed, over task and seed."""
        return self.matched - self.values.where(self.data.role == MISMATCHED).max("arm")

    @property
    def strongest(self) -> xr.DataArray:
        """Of the mismatched arm of highest mean, one for all seeds, over task and seed."""
        return self.values.where(self.data.arm == self.found.strongest).max("arm")


def interval(found: xr.Dataset) -> str:
    """A mean with its interval, of `over_seeds`."""
    return f"{float(found.difference):.3f} [{float(found.low):.3f}, {float(found.high):.3f}]"


def fate(share: xr.Dataset) -> str:
    """What training has done to a mode, from the interval of the share that is left."""
    if share.low > 1:
        return "sharpened"
    if share.high < 0.5:
        return "washed out"
    return "weakened" if share.high < 1 else "kept"
