"""Where a prior lives, and whether training keeps it: a figure of our own, on the mask-prior paper (arXiv 2608.00418).

a–d  four Boolean tasks: the error on the unseen part of the cube against what is left of the prior, every arm.
e  what is left of the prior as it trains;  f  the error on the unseen part of 2Parity;  g  |m| of masks and the law of
their drift under weight decay alone. Bars are bootstrap intervals over seeds.
"""

from __future__ import annotations

import xarray as xr

import figures.studies as studies
from figures.families import tree
from figures.masks.assessment import claims
from figures.masks.drawing import draw
from figures.style import TWO_COLUMNS

__all__ = ["MOSAIC", "NAME", "SIZE", "TITLE", "claims", "compute", "draw"]

NAME = "masks"
TITLE = "Priors in masks and in queries and keys: outcome, survival and drift"
MOSAIC = [list("aaabbb"), list("cccddd"), list("eeffgg")]
SIZE = (TWO_COLUMNS, 7.4)

QUICK = (20, 2)
"""Steps and seeds of the studies trained for a `quick` figure."""

ARITHMETIC = ("addition", "multiplication")


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """Results of the Boolean tasks, 'boolean', and of arithmetic where they are saved, by the name of the task.

    quick : trains small studies of the Boolean tasks on the spot, in place of the saved ones; progress : show bars.
    """
    nodes = {"boolean": studies.results("masks", QUICK if quick else None, progress).isel(size=0)}
    for name in ARITHMETIC:
        if not quick and (studies.FOLDER / f"{name}.nc").exists():
            nodes[name] = studies.saved(name).isel(size=0)
    return tree(nodes)
