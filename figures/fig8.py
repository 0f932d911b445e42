"""Figure 8: the two-dimensional dispersion of ConViT variants at initialisation (App. K.3, K.4.4).

Rows: gated attention with pre-LN, and positional logits inside the content softmax (PSA). Columns: initialisations with
positional structure; those of the gated network without norm are in Figure 5a.
"""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.axes import Axes

from figures.fig5 import colour_bar, selection, shared_scale, title
from figures.report import Claim
from figures.style import TWO_COLUMNS, panel_label
from figures.torus import draw_map, growth_data
from models.convit import ConViT

NAME = "fig8"
TITLE = "Two-dimensional dispersion of ConViT variants: pre-LN and PSA"
MOSAIC = [list("abcd"), list("efgh")]
SIZE = (TWO_COLUMNS, 3.2)

SEED = 0
INITIALISATIONS = ("default+pos", "+I+pos", "-I+pos", "-I+sharp pos")
VARIANTS: dict[str, dict[str, Any]] = {"GPSA, pre-LN": {"norm": "pre"}, "PSA": {"attention": "psa"}}
KEYS = {"GPSA, pre-LN": "pre_ln", "PSA": "psa"}


def compute(quick: bool = False, progress: bool = False) -> xr.Dataset:
    """ρ(J(q)) over (variant, initialisation, k1, k2), k = 0 … N−1 on each axis.

    quick : the small preset, 8×8 and d = 36, in place of 16×16 and d = 216; progress : show a bar.
    """
    size = "small" if quick else "paper"
    networks = [
        ConViT.preset(name, size, rng=SEED, **options) for options in VARIANTS.values() for name in INITIALISATIONS
    ]
    over = {"variant": tuple(VARIANTS), "name": INITIALISATIONS}
    return growth_data(over, networks, size, SEED, progress, NAME)


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw the maps, each row on a scale of its own."""
    growth = data.to_dataset()["growth"]
    for row, variant in zip(MOSAIC, VARIANTS, strict=True):
        scale = shared_scale(growth.sel(variant=variant))
        panels = [axes[letter] for letter in row]
        for ax, name in zip(panels, INITIALISATIONS, strict=True):
            mesh = draw_map(growth.sel(variant=variant, name=name), ax, scale)
            if row is MOSAIC[0]:
                ax.set_title(title(name))
            else:
                ax.set_xlabel("$k_2$")
        panels[0].set_ylabel(f"{variant}\n$k_1$")
        colour_bar(mesh, panels, growth.sel(variant=variant), aspect=16)
    for letter, ax in axes.items():
        panel_label(ax, letter, y=3)


def claims(data: xr.DataTree) -> list[Claim]:
    """That the sign of OV selects homogeneous or heterogeneous modes in the variants too."""
    growth = data.to_dataset()["growth"]
    pairs = ((f"fig8.leading.{key}", f"{variant}: ", growth.sel(variant=variant)) for variant, key in KEYS.items())
    return [claim for pair in pairs for claim in selection(*pair)]
