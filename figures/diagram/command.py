"""`tokenwaves phase-diagram SPEC.toml`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any


def add_phase_diagram(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to `commands`."""
    parser = commands.add_parser(
        "phase-diagram",
        help="simulate a block over one or two parameters and draw theory over it",
        description="Simulate the block of a specification over one or two of its parameters and draw the map with the "
        "linear threshold, the lines where the leading mode changes and the cubic theory over it.",
        epilog="example: tokenwaves phase-diagram examples/amplitude.toml --out diagrams",
    )
    parser.add_argument("spec", metavar="SPEC.toml", help="the specification (see examples/)")
    parser.add_argument("--out", default=".", metavar="DIR", help="folder to write to (default: the current one)")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run of the same specification")
    parser.add_argument(
        "--scheduler",
        metavar="NAME",
        help="a joblib backend (loky, threading, dask, ray) instead of this process alone",
    )
    parser.set_defaults(action=phase_diagram)


def phase_diagram(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit status."""
    from matplotlib.figure import Figure

    from figures.diagram.spec import load_diagram
    from figures.files import write_data
    from figures.run import writable
    from figures.style import save, style
    from simulate import SweepInterrupted

    diagram = load_diagram(options.spec)
    folder, name = (
        writable(Path(options.out)),
        Path(options.spec).stem.removesuffix(".diagram").removesuffix(".diagram"),
    )
    start = time.perf_counter()
    sweep: dict[str, Any] = {"path": folder / f"{name}.sweep.nc", "resume": options.resume, "progress": None}
    if options.scheduler:
        sweep |= {"backend": options.scheduler, "n_jobs": -1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SweepInterrupted)
        data = diagram.compute(**sweep)
    if data.attrs.get("interrupted"):
        print(f"tokenwaves: interrupted; go on with --resume from {sweep['path']}", file=sys.stderr)
        return 130
    files = [write_data(data, folder / f"{name}.nc")]
    with style():
        figure = Figure(figsize=(3.4, 2.8), layout="constrained")
        diagram.draw(data, figure.subplots())
        files = [*save(figure, folder, name), *files]
    Path(sweep["path"]).unlink(missing_ok=True)
    settled = float((data.status == 0).mean())
    print(f"{name}: {data.status.size} points, {settled:.0%} settled, {time.perf_counter() - start:.1f} s")
    print(*(f"  {path}" for path in files), sep="\n")
    return 0
