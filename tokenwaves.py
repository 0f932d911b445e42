"""The command line: `tokenwaves figures`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on `arguments`, those of the process if None; returns the exit status.

    0 on success, 2 if something asked for cannot be used, 130 if interrupted.
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.action(options))
    except KeyboardInterrupt:
        print("tokenwaves: interrupted; what was finished is kept", file=sys.stderr)
        return 130
    except ValueError as error:
        from dispersion import ArgumentError

        if not isinstance(error, ArgumentError):
            raise
        print(f"tokenwaves: error: {error}", file=sys.stderr)
        return 2


def _figures(options: argparse.Namespace) -> int:
    """`tokenwaves figures`."""
    from figures.run import run

    run(options.names, options.out, quick=options.quick, progress=sys.stderr.isatty())
    return 0


class _Version(argparse.Action):
    """`--version`, which looks the number up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"tokenwaves {version('tokenwaves')}")
        except PackageNotFoundError:
            print("tokenwaves (not installed)")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tokenwaves",
        description="Pattern formation in Transformers: theory, simulation and figures.",
        epilog="example: tokenwaves figures fig2 --out figs",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_figures(commands)
    return parser


def _add_figures(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from figures import NAMES

    figures = commands.add_parser(
        "figures",
        help="make figures of the paper and a report of its claims",
        description="Compute and draw figures of the paper, each as PDF and PNG with its data as netCDF, and compare "
        "the paper's claims with those data in report.json and report.md.",
        epilog="example: tokenwaves figures fig2 fig14 --out figs --quick",
    )
    figures.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}; all of them if none is given"
    )
    figures.add_argument(
        "--out", default="tokenwaves-figures", metavar="DIR", help="folder to write to (default: %(default)s)"
    )
    figures.add_argument("--quick", action="store_true", help="coarser data in a fraction of the time")
    figures.set_defaults(action=_figures)


if __name__ == "__main__":
    sys.exit(main())
