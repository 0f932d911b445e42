"""`tokenwaves dispersion`: the leading modes of a block from its file, as a table, as JSON, and drawn."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenwaves.arguments import Commands


def add(commands: Commands) -> argparse.ArgumentParser:
    """The parser of the verb, added to `commands`."""
    parser = commands.add_parser(
        "dispersion",
        help="the leading modes of a block, from its file",
        description="Print the modes that a block amplifies most at a homogeneous state: wavenumber k and q = 2πk/N, "
        "growth factor |Λ| a layer, rate γ = log |Λ|, phase ω = arg Λ, wavelength in tokens, morphology, and the "
        "condition number of Λ.",
        epilog="example: tokenwaves dispersion examples/rotating.toml --state=-0.1,0.2 --plot rotating.svg",
    )
    parser.add_argument("block", metavar="BLOCK", help="a TOML file as those in examples/, or as Block.save writes")
    parser.add_argument(
        "--state", metavar="A", help="state of every token: numbers such as 0.1,0.2, or a .npy file (default: 0)"
    )
    parser.add_argument(
        "--modes", dest="count", type=int, default=6, metavar="COUNT", help="how many (default: %(default)s)"
    )
    parser.add_argument("--fixed-points", action="store_true", help="also list the homogeneous fixed points")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw |Λ| and ω against k, or a map on a torus: .pdf, .png or .svg"
    )
    parser.add_argument("--json", action="store_true", help="print the same numbers as JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the leading modes of the block in the file `options.block`."""
    from pathlib import Path

    from dispersion import Block, dispersion_relation, fixed_points
    from tokenwaves.dispersion_report import state_of, summary, text
    from tokenwaves.output import as_title, check_plane, picture_path, report, save_picture

    picture = picture_path(options.plot)
    block = Block.load(options.block)
    if picture is not None:
        check_plane(block.shape)
    relation = dispersion_relation(block, state_of(options.state))
    modes = relation.modes(options.count)
    points = fixed_points(block) if options.fixed_points else None
    found = {"file": options.block, **summary(relation, modes, points)}
    if picture is not None:
        from figures.modes import draw

        title = as_title(Path(options.block).stem)
        found["plot"] = save_picture(draw(relation, modes[0], title), picture)
    report(found, text, options.json)
    return 0
