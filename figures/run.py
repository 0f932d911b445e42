"""Making figures: compute, save the data, draw, and report the claims."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dispersion import ArgumentError
from figures import NAMES, NEEDS_TORCH, NETWORKS
from figures.files import write_data
from figures.report import Claim, write_report
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
    if name not in NAMES:
        raise ArgumentError("figure", repr(name), ", ".join(NAMES))
    if name in NEEDS_TORCH and not _has_torch():
        raise ArgumentError("figure", f"{name!r} without PyTorch", "an installation with the extra [torch]")
    return cast(FigureModule, import_module(f"figures.{name}"))


def _available() -> list[str]:
    """The figures that can be made here, after saying which cannot."""
    if _has_torch():
        return list(NAMES)
    print(f"left out without the extra [torch]: {', '.join(NETWORKS)}", flush=True)
    return [name for name in NAMES if name not in NETWORKS]


def _has_torch() -> bool:
    return find_spec("torch") is not None


def figure_of(module: FigureModule, data: xr.DataTree) -> Figure:
    """The drawn figure, without pyplot or a window; call it within `style()`."""
    figure = Figure(figsize=module.SIZE, layout="constrained")
    axes = figure.subplot_mosaic(module.MOSAIC)
    module.draw(data, axes)
    return figure


def run(names: Sequence[str], out: str | os.PathLike[str], quick: bool = False, progress: bool = False) -> list[Claim]:
    """Make figures and their report, saying on standard output where each was written; returns the claims.

    names : figures, all if empty, each made once; out : folder for NAME.pdf, NAME.png, NAME.nc,
    report.json and report.md, created if need be; quick : coarser and faster; progress : show bars.
    The report is brought up to date after each figure: an interruption loses only the one in the making.
    An ArgumentError, before anything is computed, names a figure or folder that cannot be used.
    """
    modules = [load(name) for name in dict.fromkeys(names or _available())]
    folder = writable(Path(out))
    claims: list[Claim] = []
    settings: dict[str, object] = {"figures": [], "quick": quick}
    report: list[Path] = []
    for module in modules:
        start = time.perf_counter()
        data = _compute(module, quick, progress)
        tree = data if isinstance(data, xr.DataTree) else xr.DataTree(data)
        with style():
            files = save(figure_of(module, tree), folder, module.NAME)
        files.append(write_data(data, folder / f"{module.NAME}.nc"))
        found = module.claims(tree)
        claims += found
        settings["figures"] = [*cast(list[str], settings["figures"]), module.NAME]
        settings[module.NAME] = {"title": module.TITLE, **tree.attrs}
        report = write_report(claims, folder, settings)
        met = sum(claim.met for claim in found)
        print(f"{module.NAME}: {met} of {len(found)} claims met, {time.perf_counter() - start:.1f} s", flush=True)
        print(*(f"  {path}" for path in files), sep="\n", flush=True)
    print("report:", *(f"  {path}" for path in report), sep="\n")
    sys.stdout.flush()
    return claims


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


def writable(folder: Path) -> Path:
    """`folder`, created if need be; an ArgumentError if files cannot be written there."""
    probe = folder / f".tokenwaves.{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ArgumentError("out", f"{str(folder)!r} ({reason})", "a folder that can be written to") from None
    return folder
