"""`tokenwaves phase-diagram`: a block simulated over one or two parameters, with theory drawn over it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tokenwaves.streams import say

if TYPE_CHECKING:
    from pathlib import Path

    from xarray import Dataset

    from figures.phase_diagram import PhaseDiagram
    from tokenwaves.arguments import Commands

SCHEDULERS = ("loky", "threading", "dask", "ray")
"""Backends of joblib that the command line takes: those that start no copy of this process."""


def add(commands: Commands) -> argparse.ArgumentParser:
    """The parser of the verb, added to `commands`."""
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
    parser.set_defaults(also={"path": "--out", "backend": "--scheduler", "n_jobs": "--scheduler"})
    return parser


def run(options: argparse.Namespace) -> int:
    """Compute and draw the specification in the file `options.spec`."""
    import time
    from pathlib import Path

    from dispersion import ArgumentError
    from figures.files import writable, write_data
    from figures.phase_diagram import PhaseDiagram, draw
    from figures.phase_diagram.picture import outcome_lines
    from figures.style import save

    if options.scheduler is not None and options.scheduler not in SCHEDULERS:
        raise ArgumentError("scheduler", repr(options.scheduler), ", ".join(SCHEDULERS))
    diagram = PhaseDiagram.load(options.spec)
    folder, name = writable(Path(options.out)), Path(options.spec).stem.removesuffix(".diagram")
    for kind in ("pdf", "png", "nc"):
        if (folder / f"{name}.{kind}").is_dir():
            raise ArgumentError("out", f"a directory {name}.{kind} in it", "a folder where that file can be written")
    print(f"{name}: {diagram.estimate}", flush=True)
    start, unfinished = time.perf_counter(), folder / f"{name}.sweep.nc"
    data = _computed(diagram, unfinished, options)
    if data is None:
        say(f"tokenwaves: interrupted; go on with --resume from {unfinished}")
        return 130
    written = write_data(data, folder / f"{name}.nc")
    files = [*save(draw(data), folder, name), written]
    unfinished.unlink(missing_ok=True)
    settled = float((data.status == 0).mean())
    print(f"{name}: {diagram.points:,} points, {settled:.0%} settled, {time.perf_counter() - start:.1f} s")
    print(*(f"  {line}" for line in [*outcome_lines(data), *files]), sep="\n")
    return 0


def _computed(diagram: PhaseDiagram, path: Path, options: argparse.Namespace) -> Dataset | None:
    """The data of `diagram`, its sweep kept at `path`; None if interrupted."""
    import warnings

    from simulate import SweepInterrupted

    progress = None if sys.stderr.isatty() else "lines"
    sweep: dict[str, Any] = {"path": path, "resume": options.resume, "progress": progress}
    if options.scheduler:
        sweep |= {"backend": options.scheduler, "n_jobs": -1}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SweepInterrupted)
            data = diagram.compute(**sweep)
    except KeyboardInterrupt:
        return None
    return None if data.attrs.get("interrupted") else data
