"""Making a figure: its module by name, its data, its drawing, its files."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import figures
from dispersion import ArgumentError
from figures.files import write_data
from figures.report import Claim
from figures.style import save, style
from simulate import SweepInterrupted


class FigureModule(Protocol):
    """What a figure's module provides.

    NAME : of the figure and its files; TITLE : one line; MOSAIC, SIZE : panels, as
    `Figure.subplot_mosaic` takes them, and width and height in inches.
    """

    NAME: str
    TITLE: str
    MOSAIC: Any
    SIZE: tuple[float, float]

    def compute(self, quick: bool = False, progress: bool = False) -> xr.DataTree | xr.Dataset:
        """The data of the figure, settings and seeds in its attributes."""
        ...

    def draw(self, data: xr.DataTree, axes: dict[str, Axes]) -> None:
        """Draw `data`, and nothing else, into the panels."""
        ...

    def claims(self, data: xr.DataTree) -> list[Claim]:
        """The claims of the paper that `data` can test."""
        ...


def load(name: str) -> FigureModule:
    """The module of the figure `name`; an ArgumentError lists those that exist."""
    if name not in figures.NAMES:
        raise ArgumentError("figure", repr(name), ", ".join(figures.NAMES))
    if name in figures.NEEDS_TORCH and not _has_torch():
        raise ArgumentError("figure", f"{name!r} without PyTorch", "an installation with the extra [torch]")
    return cast(FigureModule, import_module(f"figures.{name}"))


def available() -> list[str]:
    """The names of the figures that are made here without being asked for."""
    return [name for name in figures.NAMES if _has_torch() or name not in figures.NETWORKS]


def _has_torch() -> bool:
    return find_spec("torch") is not None


@style()
def figure_of(module: FigureModule, data: xr.DataTree) -> Figure:
    """The drawn figure, without pyplot or a window."""
    figure = Figure(figsize=module.SIZE, layout="constrained")
    axes = figure.subplot_mosaic(module.MOSAIC)
    module.draw(data, axes)
    return figure


def make(
    module: FigureModule, folder: Path, quick: bool = False, progress: bool = False
) -> tuple[xr.DataTree, list[Path]]:
    """The data of a figure, and the files NAME.pdf, NAME.png and NAME.nc that were written of it to the `folder`.

    module : of the figure; quick : coarser and faster; progress : show bars.
    """
    data = _compute(module, quick, progress)
    tree = data if isinstance(data, xr.DataTree) else xr.DataTree(data)
    files = save(figure_of(module, tree), folder, module.NAME)
    return tree, [*files, write_data(data, folder / f"{module.NAME}.nc")]


def _compute(module: FigureModule, quick: bool, progress: bool) -> xr.DataTree | xr.Dataset:
    """The data of a figure. Ctrl-C ends a sweep early with a warning and a part of the points: here it ends the
    figure, for a part of it must not pass for the whole.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=SweepInterrupted)
        try:
            return module.compute(quick=quick, progress=progress)
        except SweepInterrupted as warning:
            raise KeyboardInterrupt from warning
