"""Where a prior lives, and whether training keeps it: a figure of our own, on the mask-prior paper (arXiv 2608.00418).

a–d  four Boolean tasks: the error on the unseen part of the cube against what is left of the prior, every arm.
e  what is left of the prior as it trains;  f  the error on the unseen part of 2Parity;  g  |m| of masks and the law of
their drift under weight decay alone;  h, i  addition and multiplication, by the number of pairs that were seen. Bars
are bootstrap intervals over seeds.
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
TITLE = "Priors in masks, kernels, queries and keys: outcome, survival and drift"
MOSAIC = [list("aaabbb"), list("cccddd"), list("eeffgg"), list("hhhiii")]
SIZE = (TWO_COLUMNS, 9.4)

QUICK = (20, 2)
"""Steps and seeds of the studies trained for a `quick` figure."""

STUDIES = ("masks", "kernels", "addition", "multiplication")
"""What it is made of: results of the studies of these names."""


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """Results of STUDIES by their names.

    quick : trains small ones on the spot, in place of the saved ones; progress : show bars.
    """
    return tree({name: studies.results(name, QUICK if quick else None, progress) for name in STUDIES})
