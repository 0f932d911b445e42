"""`tokenwaves check`: predictions for a model against its own forward pass, as a table, as JSON, and drawn."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenwaves.arguments import Commands

NEEDED = "an environment with it: pip install 'tokenwaves[torch]'"


class Families(argparse.Action):
    """`--families`, which prints what is registered and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from dispersion import ArgumentError

        if find_spec("torch") is None:
            raise ArgumentError("families", "no PyTorch", NEEDED)
        from tokenwaves.check_families import table

        print(table())
        parser.exit()


def add(commands: Commands) -> argparse.ArgumentParser:
    """The parser of the verb, added to `commands`."""
    parser = commands.add_parser(
        "check",
        help="predictions for a network against its own forward pass",
        description="Predict from J(q), along the orbit of a homogeneous state, by how much each wavenumber grows "
        "through the layers of a network, run the network on perturbed states, and compare. Needs PyTorch.",
        epilog="example: tokenwaves check model.safetensors --family bert --state token:101 --plot check.pdf",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a block .toml, a program .pt2, a folder of save_pretrained, a checkpoint, or module:NAME of a callable "
        "or of a network in memory",
    )
    parser.add_argument("--families", nargs=0, action=Families, help="list the families of networks that are known")
    parser.add_argument("--family", metavar="NAME", help="of a checkpoint (default: that of its model_type)")
    parser.add_argument("--config", metavar="FILE", help="its settings (default: config.json beside the checkpoint)")
    parser.add_argument(
        "--state",
        metavar="STATE",
        help="the base state at every token: token:ID, mean (of the embedding), zeros, numbers with commas, or a .npy "
        "file (default: mean if there is an embedding, else zeros)",
    )
    parser.add_argument(
        "--tokens", type=int, metavar="N", help="how many, where the model leaves it open (default: 32)"
    )
    parser.add_argument(
        "--layers", type=int, metavar="L", help="the first L of a checkpoint (default: all), or L times one map"
    )
    parser.add_argument(
        "--boundary", choices=("periodic", "open", "causal"), help="of the tokens (default: as the model has it)"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument(
        "--trust", action="store_true", help="run the code that a program .pt2 holds, not the block in it"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the growth by layer and in all: .pdf, .png or .svg")
    parser.add_argument("--json", action="store_true", help="print the same numbers as JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print what was predicted for `options.model` and what its forward pass did."""
    from pathlib import Path

    from dispersion import ArgumentError
    from tokenwaves.output import as_title, check_plane, picture_path, report, save_picture

    picture = picture_path(options.plot)
    if find_spec("torch") is None:
        raise ArgumentError("check", "no PyTorch", NEEDED)
    from models.device import usable
    from models.opened import subject
    from tokenwaves.check_report import summary, text

    usable(options.device)
    names = ("model", "family", "config", "tokens", "layers", "boundary", "device", "trust")
    asked = subject(**{name: getattr(options, name) for name in names})
    if picture is not None:
        check_plane(asked.shape)
    base, name = asked.state(options.state)
    checked = asked.checked(base, device=options.device, progress=sys.stderr.isatty())
    found = summary(asked, checked, base, name)
    if picture is not None:
        from figures.check import draw

        title = f"{as_title(Path(options.model).name)}, {asked.kind}"
        found["plot"] = save_picture(draw(checked, title), picture)
    report(found, text, options.json)
    return 0
