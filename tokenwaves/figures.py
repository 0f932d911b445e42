"""`tokenwaves figures`: figures of the paper, and the report of its claims."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import figures

if TYPE_CHECKING:
    from tokenwaves.arguments import Commands


def add(commands: Commands) -> argparse.ArgumentParser:
    """The parser of the verb, added to `commands`."""
    parser = commands.add_parser(
        "figures",
        help="make figures of the paper and a report of its claims",
        description="Compute and draw figures of the paper, each as PDF and PNG with its data as netCDF, and compare "
        "the paper's claims with those data in report.json and report.md.",
        epilog="example: tokenwaves figures fig2 fig14 --out figs --quick",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"any of {', '.join(figures.NAMES)}; those of the paper if none is given",
    )
    parser.add_argument(
        "--out", default="tokenwaves-figures", metavar="DIR", help="folder to write to (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="coarser data in a fraction of the time")
    return parser


def run(options: argparse.Namespace) -> int:
    """Make the figures `options.names`, each once, or all, and say where each was written.

    The report is brought up to date after each figure: an interruption loses only the one in the making.
    """
    import time
    from pathlib import Path

    from figures.files import writable
    from figures.making import available, load, make
    from figures.report import Claim, write_report

    if not options.names and len(available()) < len(figures.NAMES):
        print(f"left out without the extra [torch]: {', '.join(figures.NETWORKS)}", flush=True)
    modules = [load(name) for name in dict.fromkeys(options.names or available())]
    folder = writable(Path(options.out))
    claims: list[Claim] = []
    made: list[str] = []
    settings: dict[str, object] = {"figures": made, "quick": options.quick}
    report: list[Path] = []
    for module in modules:
        start = time.perf_counter()
        data, files = make(module, folder, options.quick, progress=sys.stderr.isatty())
        found = module.claims(data)
        claims += found
        made.append(module.NAME)
        settings[module.NAME] = {"title": module.TITLE, **data.attrs}
        report = write_report(claims, folder, settings)
        met = sum(claim.met for claim in found)
        print(f"{module.NAME}: {met} of {len(found)} claims met, {time.perf_counter() - start:.1f} s", flush=True)
        print(*(f"  {path}" for path in files), sep="\n", flush=True)
    print("report:", *(f"  {path}" for path in report), sep="\n")
    return 0
