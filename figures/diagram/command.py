"""`tokenwaves phase-diagram SPEC.toml`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures.streams import say

if TYPE_CHECKING:
    from xarray import Dataset

    from figures.diagram.spec import Diagram

SCHEDULERS = ("loky", "threading", "dask", "ray")
"""Backends of joblib that the command line takes: those that start no copy of this process."""


def add_phase_diagram(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to `commands`."""
    parser = commands.add_parser(
        "phase-diagram",
        help="simulate a block over one or two parameters and draw theory over it",
        description="Simulate the block of a specification over one or two of its parameters and draw the map with the "
        "linear threshold, the lines where the leading mode changes and the cubic theory over it.",
        epilog="example: tokenwaves phase-diagram examples/amplitude.diagram.toml --out diagrams",
    )
    parser.add_argument("spec", metavar="SPEC.toml", help="the specification (see examples/)")
    parser.add_argument("--out", default=".", metavar="DIR", help="folder to write to (default: the current one)")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run of the same specification")
    parser.add_argument(
        "--scheduler",
        metavar="NAME",
        help=f"a joblib backend ({', '.join(SCHEDULERS)}) instead of this process alone",
    )
    parser.set_defaults(action=phase_diagram)


def phase_diagram(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit status."""
    from dispersion import ArgumentError
    from figures.diagram.picture import outcome_lines
    from figures.diagram.spec import load_diagram
    from figures.files import write_data
    from figures.run import writable
    from figures.style import save, style

    if options.scheduler is not None and options.scheduler not in SCHEDULERS:
        raise ArgumentError("--scheduler", repr(options.scheduler), ", ".join(SCHEDULERS))
    diagram = load_diagram(options.spec)
    folder, name = writable(Path(options.out)), Path(options.spec).stem.removesuffix(".diagram")
    for kind in ("pdf", "png", "nc"):
        if (folder / f"{name}.{kind}").is_dir():
            raise ArgumentError("--out", f"a directory {name}.{kind} in it", "a folder where that file can be written")
    print(f"{name}: {diagram.estimate}", flush=True)
    start = time.perf_counter()
    data = _computed(diagram, folder / f"{name}.sweep.nc", options)
    if data is None:
        say(f"tokenwaves: interrupted; go on with --resume from {folder / f'{name}.sweep.nc'}")
        return 130
    files = [write_data(data, folder / f"{name}.nc")]
    with style():
        files = [*save(diagram.picture(data), folder, name), *files]
    (folder / f"{name}.sweep.nc").unlink(missing_ok=True)
    settled = float((data.status == 0).mean())
    print(f"{name}: {diagram.points:,} points, {settled:.0%} settled, {time.perf_counter() - start:.1f} s")
    print(*(f"  {line}" for line in [*outcome_lines(data), *files]), sep="\n")
    return 0


def _computed(diagram: Diagram, path: Path, options: argparse.Namespace) -> Dataset | None:
    """The data of `diagram`, its sweep kept at `path`; None if interrupted."""
    from dispersion import ArgumentError
    from simulate import SweepInterrupted

    sweep: dict[str, Any] = {
        "path": path,
        "resume": options.resume,
        "progress": None if sys.stderr.isatty() else "lines",
    }
    if options.scheduler:
        sweep |= {"backend": options.scheduler, "n_jobs": -1}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SweepInterrupted)
            data = diagram.compute(**sweep)
    except KeyboardInterrupt:
        return None
    except ArgumentError as error:
        option = {"path": "--out", "resume": "--resume", "backend": "--scheduler", "n_jobs": "--scheduler"}
        accepted = error.accepted.replace("resume=True", "--resume").replace("resume=False", "no --resume")
        raise ArgumentError(option.get(error.argument, error.argument), error.got, accepted) from None
    return None if data.attrs.get("interrupted") else data
