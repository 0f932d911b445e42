"""`tokenwaves derive`: a derivation of the theory, proved symbolically."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenwaves.arguments import Commands


def add(commands: Commands) -> argparse.ArgumentParser:
    """The parser of the verb, added to `commands`."""
    parser = commands.add_parser(
        "derive",
        help="print a derivation of the theory, proved symbolically",
        description="Derive a formula of the theory from the definition of a block and print the steps and the proof; "
        "without a NAME, list what can be derived. Some take up to a minute.",
        epilog="example: tokenwaves derive layernorm --latex",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="what to derive")
    parser.add_argument("--latex", action="store_true", help="print LaTeX instead of text")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the derivation `options.name`, or a line on each that there is."""
    import sys

    from amplitude.symbolic import DERIVATIONS as NONLINEAR
    from dispersion import ArgumentError
    from dispersion.symbolic import DERIVATIONS as LINEAR

    derivations = {**LINEAR, **NONLINEAR}
    if options.name is None:
        width = max(map(len, derivations))
        for name, derive in derivations.items():
            first = (derive.__doc__ or "").strip().split("\n")[0]
            print(f"{name:<{width}}  {first}".rstrip())
    elif options.name not in derivations:
        raise ArgumentError("derivation", repr(options.name), ", ".join(derivations))
    else:
        if sys.stderr.isatty():
            print(f"deriving {options.name} …", flush=True, file=sys.stderr)
        derivation = derivations[options.name]()
        print(derivation.to_latex() if options.latex else derivation)
    return 0
