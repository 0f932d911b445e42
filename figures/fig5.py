"""Figure 5a: what a ConViT amplifies at initialisation, ρ(J(q)) over the torus (Sec. 6.3, App. K.3).

a–c, e–h  the seven initialisations, k = N/2 shown at both ends;  d  all of them along the diagonal.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize

from figures.report import Claim
from figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, TWO_COLUMNS, VERMILION, panel_label
from figures.torus import draw_map, growth_data, leading
from models.convit import NAMES, ConViT

NAME = "fig5"
TITLE = "Two-dimensional dispersion of ConViT at initialisation"
MOSAIC = [list("abcd"), list("efgh")]
SIZE = (TWO_COLUMNS, 3.55)

SEED = 0
FLAT = 0.1
"""ρ(J) counts as nearly flat if its largest and smallest values differ by less than this fraction."""
COLOURS = {"default+pos": GREEN, "+I+pos": VERMILION, "-I+pos": BLUE, "-I+sharp pos": BLACK, "-I": ORANGE, "+I": GREY}


def compute(quick: bool = False, progress: bool = False) -> xr.Dataset:
    """ρ(J(q)) over (initialisation, k1, k2), k = 0 … N−1 on each axis.

    quick : the small preset, 8×8 and d = 36, in place of 16×16 and d = 216; progress : show a bar.
    """
    size = "small" if quick else "paper"
    networks = [ConViT.preset(name, size, rng=SEED) for name in NAMES]
    return growth_data({"name": NAMES}, networks, size, SEED, progress, NAME)


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw the maps on one scale, and profiles."""
    growth = data.to_dataset()["growth"]
    scale = shared_scale(growth)
    panels = [axes[letter] for letter in "abcefgh"]
    for ax, name in zip(panels, NAMES, strict=True):
        mesh = draw_map(growth.sel(name=name), ax, scale)
        ax.set_title(title(name))
    for letter in "efgh":
        axes[letter].set_xlabel("$k_2$")
    for letter in "ae":
        axes[letter].set_ylabel("$k_1$")
    colour_bar(mesh, list(axes.values()), growth, aspect=32)
    _draw_profiles(growth, axes["d"])
    for letter, ax in axes.items():
        panel_label(ax, letter, y=3)


def title(name: str) -> str:
    """The initialisation `name` with a minus sign."""
    return name.replace("-I", "−I")


def colour_bar(mesh: QuadMesh, panels: list[Axes], growth: xr.DataArray, aspect: float) -> None:
    """A bar beside `panels` for the drawn `mesh`, over the values that `growth` takes."""
    bar = panels[0].figure.colorbar(mesh, ax=panels, aspect=aspect, pad=0.015)
    bar.set_label(r"growth per layer, $\rho(J(q))$")
    bar.ax.set_ylim(min(1.0, float(growth.min())), float(growth.max()))


def shared_scale(growth: xr.DataArray) -> Normalize:
    """The scale of all maps, centred at 1 and wide enough for the largest."""
    span = float(np.abs(growth - 1).max())
    return Normalize(1 - span, 1 + span)


def _draw_profiles(growth: xr.DataArray, ax: Axes) -> None:
    n = growth.sizes["k1"]
    k = np.arange(n // 2 + 1)
    ax.axhline(1, color=GREY, linewidth=0.5, zorder=0)
    for name, colour in COLOURS.items():
        diagonal = growth.sel(name=name).values[k, k]
        dashed = "pos" not in name
        ax.plot(k, diagonal, "--" if dashed else "-", color=colour, label=title(name))
    ax.set(xlabel="$k_1=k_2$", xlim=(0, n // 2), xticks=[0, n // 4, n // 2])
    ax.set_title("along the diagonal")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.42 * (high - low))
    ax.legend(loc="upper center", ncols=2, handlelength=0.9, fontsize=5.2, columnspacing=0.5, borderaxespad=0.2)
    ax.set_box_aspect(1)


def claims(data: xr.DataTree) -> list[Claim]:
    """What App. K.3 reads from the maps."""
    growth = data.to_dataset()["growth"]
    found = []
    for name, key in (("default", "default"), ("+I", "plus_I"), ("-I", "minus_I")):
        one = growth.sel(name=name)
        spread = float(one.max() / one.min() - 1)
        homogeneous = leading(one) == (0, 0)
        found.append(
            Claim(
                id=f"fig5.flat.{key}",
                claim=f"without positional structure ({name}) the dispersion is nearly flat or led by q = 0",
                paper="nearly flat or homogeneous",
                here=f"spread {spread:.3g}, led by k = {leading(one)}",
                met=spread < FLAT or homogeneous,
                note=f"met if led by k = 0, or max ρ / min ρ − 1 < {FLAT:g}",
            )
        )
    return [*found, *selection("fig5.leading", "", growth), _sharper(growth)]


def selection(prefix: str, subject: str, growth: xr.DataArray) -> list[Claim]:
    """That the sign of OV selects homogeneous or heterogeneous modes, in the maps `growth` (name, k1, k2).

    prefix : of the ids. subject : what the claims are about, before the initialisation.
    """
    found = []
    for name, key in (("+I+pos", "plus_I_pos"), ("-I+pos", "minus_I_pos"), ("-I+sharp pos", "engineered")):
        one = growth.sel(name=name)
        k = leading(one)
        wanted = "homogeneous" if name.startswith("+") else "heterogeneous"
        here = "homogeneous" if k == (0, 0) else "heterogeneous"
        found.append(
            Claim(
                id=f"{prefix}.{key}",
                claim=f"{subject}{name} amplifies {wanted} modes most",
                paper=wanted,
                here=here,
                met=here == wanted,
                note=f"the largest ρ(J(q)), {float(one.max()):.4g}, is at k = {k}",
            )
        )
    return found


def _sharper(growth: xr.DataArray) -> Claim:
    local, sharp = (float(growth.sel(name=name).max() / growth.sel(name=name)[0, 0]) for name in NAMES[5:])
    return Claim(
        id="fig5.sharpening",
        claim="sharper positional attention shifts amplification further towards heterogeneous modes",
        paper=None,
        here=sharp / local,
        met=sharp > local,
        note=f"max ρ(J(q)) / ρ(J(0)) of -I+sharp pos ({sharp:.4g}) over that of -I+pos ({local:.4g}); met if above 1",
    )
