"""The picture of a phase diagram by itself: the drawing, what became of the points, and a legend for all of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from amplitude import REGIMES
from dispersion import ArgumentError
from dispersion.errors import shown
from figures.phase_diagram.drawing import (
    REGIME_COLOURS,
    STABLE_GREY,
    axes_of,
    draw_competition,
    draw_quantity,
    draw_section,
    draw_wavenumber,
    unstable,
)
from figures.phase_diagram.quantities import QUANTITIES
from figures.style import ONE_COLUMN, style
from simulate import STATUS

HEIGHT, ROW = 2.7, 0.15
"""Of the axes, and of a row of the legend, inches."""
REASONS = 3
"""How many are told apart."""
HATCHES = {"missing": "xxxxx", "unsettled": "....", "homogeneous": "////"}
INKS = {"missing": "0.6", "unsettled": "0.5", "homogeneous": "0.6"}
"""Of points without a result, points that have not settled, and points where k = 0 alone grows."""


@dataclass(frozen=True)
class Outcomes:
    """What became of the points of a diagram, (…) each.

    missing : no value to draw, the run having diverged or failed, or the quantity not being defined; unsettled : a
    value, but the run was still changing; homogeneous : k = 0 leads and the run shows no other wavenumber; runs : how
    many runs ended in which status.
    """

    missing: NDArray[np.bool_]
    unsettled: NDArray[np.bool_]
    homogeneous: NDArray[np.bool_]
    runs: Counter[str]

    @classmethod
    def of(cls, data: xr.Dataset, simulated: str) -> Outcomes:
        """Those of `data`, whose variable `simulated` is drawn."""
        status = data.status.values.reshape(*data.critical_growth.shape, -1)
        k, seen = (_flat(data[name], data) for name in ("critical_wavenumber", "wavenumber"))
        ended = (status >= STATUS.index("diverged")).any(axis=-1)
        values = data[simulated].values
        missing = ended | (unstable(data).values & ~(np.isfinite(values) & (values != -1)))
        unsettled = (status == STATUS.index("unsettled")).any(axis=-1) & ~missing
        homogeneous = unstable(data).values & (k == 0) & (seen == 0) & ~missing
        runs = Counter(STATUS[int(number)] for number in status.ravel())
        return cls(missing, unsettled, homogeneous, runs)


def _flat(variable: xr.DataArray, data: xr.Dataset) -> NDArray[np.int64]:
    """The largest |entry| of `variable` at each point, over the runs of a point and the axes of a torus."""
    return np.abs(variable.values).reshape(*data.critical_growth.shape, -1).max(axis=-1)


@style()
def draw(data: xr.Dataset) -> Figure:
    """The figure of a phase diagram: a map, or a section over one parameter, with its legend.

    Parameters
    ----------
    data : xarray.Dataset
        From `PhaseDiagram.compute`, or read from its file.

    Returns
    -------
    Figure
        Of matplotlib.

    Raises
    ------
    ArgumentError
        Says if the data are not of a phase diagram.
    """
    quantity = str(data.attrs.get("quantity"))
    if quantity in QUANTITIES:
        drawn = QUANTITIES[quantity]
        simulated, theory, label = drawn.simulated, drawn.theory, drawn.label
    elif quantity in data and "label" in data[quantity].attrs:
        simulated, theory, label = quantity, "", data[quantity].attrs["label"]
    else:
        raise ArgumentError("data", "no phase diagram", "the data of PhaseDiagram.compute, with their attributes")
    outcomes = Outcomes.of(data, simulated)
    section = len(data.critical_growth.dims) == 1
    figure = Figure(layout="constrained")
    ax = figure.subplots()
    if section:
        draw_section(data, ax, simulated, theory, label)
        entries = _mark_section(data, ax, simulated, outcomes)
    else:
        if quantity == "wavenumber":
            draw_wavenumber(data, ax)
        elif quantity == "competition":
            draw_competition(data, ax, named=False)
        else:
            draw_quantity(data, ax, simulated, theory, label)
        x, y = map(_edges, axes_of(data))
        ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        entries = [*_lines(data, quantity, theory), *_areas(data, quantity), *_mark_map(data, ax, outcomes)]
    if outcomes.missing.all():
        said = "\n".join(f"{count} {status}" for status, count in outcomes.runs.items())
        box = {"facecolor": "white", "edgecolor": "none", "pad": 4}
        text = f"no point has a result\n{said}"
        ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", bbox=box)
    figure.set_size_inches(ONE_COLUMN, HEIGHT + ROW * -(-len(entries) // 2))
    figure.legend(handles=entries, loc="outside lower center", ncols=2, fontsize=6, handlelength=2.2, columnspacing=1)
    return figure


def _lines(data: xr.Dataset, quantity: str, theory: str) -> list[Artist]:
    """Legend entries of the lines that can be in a map."""
    entries: list[Artist] = []
    if float(data.critical_growth.min()) < 1 < float(data.critical_growth.max()):
        entries.append(Line2D([], [], color="black", linewidth=1.2, label=r"linear threshold $\max\,|\Lambda| = 1$"))
    shadow = [withStroke(linewidth=1.4, foreground="0.25")]
    white: dict[str, Any] = {"color": "white", "linestyle": "--", "linewidth": 0.9, "path_effects": shadow}
    if quantity == "wavenumber":
        leading = data.growth.fillna(0).argmax("k").values[(data.growth.max("k") > 1).values]
        if len(set(leading)) > 1:
            entries.append(Line2D([], [], label="linear theory: leading $k$ changes", **white))
    elif quantity == "competition":
        transverse = data.transverse.where(data.mu > 0)
        if float(transverse.min()) < 1 < float(transverse.max()):
            dashed: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 0.9}
            entries.append(Line2D([], [], label="cubic theory: one mode alone\nloses its stability", **dashed))
    elif theory in data and data[theory].where(unstable(data)).notnull().sum() > 3:
        entries.append(Line2D([], [], label="cubic theory: lines, numbers", **white))
    return entries


def _areas(data: xr.Dataset, quantity: str) -> list[Artist]:
    """Legend entries of the plain colours."""
    edge: dict[str, Any] = {"edgecolor": "0.4", "linewidth": 0.5}
    if quantity != "competition":
        grey = (data.critical_growth <= 1).any()
        return [Patch(facecolor=STABLE_GREY, label="homogeneous state is stable", **edge)] if grey else []
    names = {f"mode {place + 1}": f"$k = {int(k)}$ wins" for place, k in enumerate(data.mode)}
    names["collapsed"] = "collapsed: neither of them"
    there = [regime for place, regime in enumerate(REGIMES) if (data.observed == place).any()]
    return [Patch(facecolor=REGIME_COLOURS[name], label=names.get(name, name), **edge) for name in there]


def _mark_map(data: xr.Dataset, ax: Axes, outcomes: Outcomes) -> list[Artist]:
    """Hatch the points that are not what a colour says; returns the legend entries."""
    x, y = map(_edges, axes_of(data))
    entries: list[Artist] = []
    for name, text in _texts(outcomes).items():
        face = "white" if name == "missing" else "none"
        look: dict[str, Any] = {"edgecolor": INKS[name], "linewidth": 0.0, "hatch": HATCHES[name]}
        cells = [
            [(x[i], y[j]), (x[i + 1], y[j]), (x[i + 1], y[j + 1]), (x[i], y[j + 1])]
            for i, j in np.argwhere(getattr(outcomes, name))
        ]
        ax.add_collection(PolyCollection(cells, facecolor=face, zorder=1.5, rasterized=True, **look))
        entries.append(Patch(label=text, facecolor="white" if name == "missing" else "0.9", **look))
    return entries


def _edges(values: xr.DataArray) -> NDArray[np.float64]:
    """(n + 1,) where the cells around the `values` (n,) end."""
    middle = (values.values[1:] + values.values[:-1]) / 2
    return np.concatenate([[2 * values.values[0] - middle[0]], middle, [2 * values.values[-1] - middle[-1]]])


def _mark_section(data: xr.Dataset, ax: Axes, simulated: str, outcomes: Outcomes) -> list[Artist]:
    """Mark the points that are not what a circle says; returns all the legend entries."""
    (name,) = data.critical_growth.dims
    handles, labels = ax.get_legend_handles_labels()
    for handle, text in zip(handles, labels, strict=True):
        handle.set_label(
            text if text == "simulated" else "linear theory" if simulated == "wavenumber" else "cubic theory"
        )
    if legend := ax.get_legend():
        legend.remove()
    entries: list[Artist] = [
        line for line in handles if isinstance(line, Line2D) and np.isfinite(np.asarray(line.get_ydata())).any()
    ]
    if (data.critical_growth <= 1).any():
        entries.append(Patch(facecolor=STABLE_GREY, label="homogeneous state is stable"))
    looks = {"missing": "x", "unsettled": ".", "homogeneous": "|"}
    for kind, text in _texts(outcomes).items():
        where = getattr(outcomes, kind)
        at = data[name].values[where]
        low = kind == "missing"
        values = np.full(len(at), 0.03) if low else data[simulated].values[where]
        transform = ax.get_xaxis_transform() if low else ax.transData
        entries += ax.plot(
            at, values, looks[kind], color="black", markersize=4 if low else 3, transform=transform, label=text
        )
    return entries


def _texts(outcomes: Outcomes) -> dict[str, str]:
    """What the legend says of each kind of mark that is in the picture, with the share or the reasons."""
    ended = ", ".join(
        f"{n} {name}" for name, n in outcomes.runs.items() if STATUS.index(name) >= STATUS.index("diverged")
    )
    texts = {
        "missing": f"no result: {ended or 'not defined'}",
        "unsettled": f"not settled: {outcomes.unsettled.mean():.0%} of the points",
        "homogeneous": "$k = 0$ alone grows: no pattern",
    }
    return {name: text for name, text in texts.items() if getattr(outcomes, name).any()}


def outcome_lines(data: xr.Dataset) -> list[str]:
    """What became of the runs that did not settle, and why theory refuses points: counts, and the commonest reasons."""
    names = [STATUS[int(number)] for number in data.status.values.ravel()]
    lines = [f"{count:,} {name}" for name, count in Counter(names).items() if name not in ("settled", "failed")]
    lines += _reasons("failed", data.reason.values.ravel())
    return lines + _reasons("without theory", data.excluded.values.ravel())


def _reasons(label: str, reasons: NDArray) -> list[str]:
    given = Counter(str(reason) for reason in reasons if reason)
    commonest = [f"{count:,} {label}: {shown(reason, str)}" for reason, count in given.most_common(REASONS)]
    rest = given.total() - sum(count for _, count in given.most_common(REASONS))
    return [*commonest, *([f"{rest:,} {label} for other reasons"] if rest else [])]
