"""How the figures look: a matplotlib context, colours, panel labels, and files without dates."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from dispersion.atomic import replacing
from dispersion.errors import shown

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
"""Widths of a figure, inches."""

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f0e442",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
"""The Okabe–Ito colours, which remain distinct in the common colour blindnesses."""
GREY = "#8c8c8c"

SEQUENTIAL = "viridis"
"""Colour map of amplitudes, errors, wavenumbers."""
DIVERGING = "RdBu_r"
"""Colour map of quantities with a meaningful middle, to be used with `centred`."""

STABLE: dict[str, Any] = {"linestyle": "-"}
UNSTABLE: dict[str, Any] = {"linestyle": (0, (3.5, 2))}
"""Line styles of stable and unstable states."""

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.titlepad": 4,
    "axes.labelpad": 2.5,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=[BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK]),
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.major.pad": 2.5,
    "ytick.major.pad": 2.5,
    "xtick.direction": "out",
    "ytick.direction": "out",
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.handletextpad": 0.5,
    "legend.labelspacing": 0.3,
    "legend.borderaxespad": 0.4,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "lines.markeredgewidth": 0.8,
    "patch.linewidth": 0.6,
    "hatch.linewidth": 0.4,
    "image.cmap": SEQUENTIAL,
    "image.interpolation": "nearest",
    "pcolor.shading": "nearest",
    "pcolormesh.snap": True,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.wspace": 0.04,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "tokenwaves",
}

UNDATED: dict[str, dict[str, None]] = {
    ".pdf": {"CreationDate": None},
    ".png": {"Software": None},
    ".svg": {"Date": None},
}
"""The kinds of picture, and what to leave out of each so that the same data give the same bytes."""


@contextmanager
def style() -> Iterator[None]:
    """The look of the figures inside a `with` block, whatever the user's own settings; they come back after it."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def verbatim(text: str) -> str:
    """`text`, such as the name of a file, to be drawn as it is, and not as a formula."""
    return shown(text, str).replace("$", r"\$")


def panel_label(ax: Axes, label: str, x: float = -2.0, y: float = 2.0) -> None:
    """Write `label` in bold at the top left corner of `ax`, outside it.

    x, y : offset from the corner, points; the text ends at x and stands on y.
    """
    ax.annotate(
        label,
        (0, 1),
        (x, y),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=9,
        fontweight="bold",
        annotation_clip=False,
    )


def centred(values: ArrayLike, centre: float = 0.0, span: float | None = None) -> Normalize:
    """The scale for a diverging map: `centre` in its middle, the finite `values` inside it.

    values : any shape; span : half the width of the scale, instead of the largest |value − centre|.
    """
    if span is None:
        distances = np.abs(np.asarray(values, dtype=np.float64) - centre)
        span = float(np.max(distances, where=np.isfinite(distances), initial=0.0))
    span = span or 1.0
    return Normalize(centre - span, centre + span)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `figure` to `folder` as `name`.pdf and `name`.png; returns both paths."""
    return [write_picture(figure, folder / f"{name}.{kind}") for kind in ("pdf", "png")]


@style()
def write_picture(figure: Figure, path: Path) -> Path:
    """Write `figure` to `path`, of a kind in UNDATED, the same bytes each time; returns `path`."""
    kind, drawn = path.suffix.lower(), BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # of the name of a file: an empty box in its place
        figure.savefig(drawn, format=kind[1:], metadata=UNDATED[kind])
    with replacing(path) as temporary:
        temporary.write_bytes(drawn.getvalue())
    return path
