"""The command line: `tokenwaves dispersion`, `derive`, `check` and `figures`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # what is imported here cannot be interrupted in one line
    import argparse
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on `arguments`, those of the process if None; returns the exit status.

    0 on success, 1 if the reader of the output went away, 2 if something asked for cannot be used or written, 130 if
    interrupted. Errors are one line on standard error.
    """
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        status, line = 130, "interrupted; what was finished is kept"
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough
        status, line = 1, ""
    except (ValueError, OSError, MemoryError) as error:
        status, line = 2, f"error: {_reason(error)}"
    from figures.streams import discard, say

    if line:
        say(f"tokenwaves: {line}")
    try:
        sys.stdout.flush()
    except (OSError, AttributeError):
        discard(sys.stdout)
    return status


def _main(arguments: Sequence[str]) -> int:
    from figures.streams import prepare

    prepare()
    try:
        if any("\0" in argument for argument in arguments):
            from dispersion import ArgumentError

            raise ArgumentError("arguments", "a name with NUL in it", "names of files, and options")
        options = _parser().parse_args(_joined(arguments))
        return int(options.action(options))
    finally:
        sys.stdout.flush()


def _reason(error: Exception) -> str:
    """What the user is told of `error`, in one line; a ValueError that is none about a value given is raised."""
    from dispersion import ArgumentError
    from dispersion.errors import shown

    if isinstance(error, MemoryError):
        return f"memory: got {shown(str(error) or 'too little', str)}; accepted: a smaller problem"
    if isinstance(error, OSError):
        name = shown(error.filename, str) if error.filename else "output"
        return f"{name}: got {shown(error.strerror or error, str).lower()}; accepted: a place that can be written to"
    if not isinstance(error, ArgumentError):
        raise error
    return str(error)


def _dispersion(options: argparse.Namespace) -> int:
    """`tokenwaves dispersion`."""
    from figures.modes import run

    run(
        options.block,
        state=options.state,
        count=options.modes,
        plot=options.plot,
        as_json=options.json,
        with_fixed_points=options.fixed_points,
    )
    return 0


def _derive(options: argparse.Namespace) -> int:
    """`tokenwaves derive`."""
    import re

    from amplitude.symbolic import DERIVATIONS as NONLINEAR
    from dispersion import ArgumentError
    from dispersion.symbolic import DERIVATIONS as LINEAR

    derivations = {**LINEAR, **NONLINEAR}
    if options.name is None:
        width = max(map(len, derivations))
        for name, derive in derivations.items():
            first = (derive.__doc__ or "").strip().split("\n")[0]
            print(f"{name:<{width}}  {re.sub(r'[;,] `?[a-z]+`? ?:.*', '.', first)}".rstrip())
    elif options.name not in derivations:
        raise ArgumentError("derivation", repr(options.name), ", ".join(derivations))
    else:
        if sys.stderr.isatty():
            print(f"deriving {options.name} …", flush=True, file=sys.stderr)
        derivation = derivations[options.name]()
        print(derivation.to_latex() if options.latex else derivation)
    return 0


def _check(options: argparse.Namespace) -> int:
    """`tokenwaves check`."""
    from figures.check import run

    run(
        options.model,
        family=options.family,
        config=options.config,
        state=options.state,
        tokens=options.tokens,
        layers=options.layers,
        boundary=options.boundary,
        device=options.device,
        trust=options.trust,
        plot=options.plot,
        as_json=options.json,
    )
    return 0


def _figures(options: argparse.Namespace) -> int:
    """`tokenwaves figures`."""
    from figures.run import run

    run(options.names, options.out, quick=options.quick, progress=sys.stderr.isatty())
    return 0


def _joined(arguments: Sequence[str]) -> list[str]:
    """`arguments` with a state that starts with a minus joined to its option: argparse takes it for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined[-1:] == ["--state"] and argument.startswith("-") and argument[1:2] in tuple("0123456789.i"):
            argument = f"{joined.pop()}={argument}"
        joined.append(argument)
    return joined


def _parser() -> argparse.ArgumentParser:
    from figures.arguments import Parser, Version
    from figures.diagram.command import add_phase_diagram

    parser: argparse.ArgumentParser = Parser(
        prog="tokenwaves",
        description="Pattern formation in Transformers: theory, simulation and figures.",
        epilog="example: tokenwaves dispersion examples/travelling.toml --plot travelling.pdf",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_dispersion(commands)
    _add_derive(commands)
    _add_check(commands)
    add_phase_diagram(commands)
    _add_figures(commands)
    return parser


def _add_dispersion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    dispersion = commands.add_parser(
        "dispersion",
        help="the leading modes of a block, from its file",
        description="Print the modes that a block amplifies most at a homogeneous state: wavenumber k and q = 2πk/N, "
        "growth factor |Λ| a layer, rate γ = log |Λ|, phase ω = arg Λ, wavelength in tokens, morphology, and the "
        "condition number of Λ.",
        epilog="example: tokenwaves dispersion examples/rotating.toml --state=-0.1,0.2 --plot rotating.svg",
    )
    dispersion.add_argument("block", metavar="BLOCK", help="a TOML file as those in examples/, or as Block.save writes")
    dispersion.add_argument(
        "--state", metavar="A", help="state of every token: numbers such as 0.1,0.2, or a .npy file (default: 0)"
    )
    dispersion.add_argument("--modes", type=int, default=6, metavar="COUNT", help="how many (default: %(default)s)")
    dispersion.add_argument("--fixed-points", action="store_true", help="also list the homogeneous fixed points")
    dispersion.add_argument(
        "--plot", metavar="FILE", help="draw |Λ| and ω against k, or a map on a torus: .pdf, .png or .svg"
    )
    dispersion.add_argument("--json", action="store_true", help="print the same numbers as JSON")
    dispersion.set_defaults(action=_dispersion)


def _add_derive(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    derive = commands.add_parser(
        "derive",
        help="print a derivation of the theory, proved symbolically",
        description="Derive a formula of the theory from the definition of a block and print the steps and the proof; "
        "without a NAME, list what can be derived. Some take up to a minute.",
        epilog="example: tokenwaves derive layernorm --latex",
    )
    derive.add_argument("name", nargs="?", metavar="NAME", help="what to derive")
    derive.add_argument("--latex", action="store_true", help="print LaTeX instead of text")
    derive.set_defaults(action=_derive)


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = commands.add_parser(
        "check",
        help="predictions for a network against its own forward pass",
        description="Predict from J(q), along the orbit of a homogeneous state, by how much each wavenumber grows "
        "through the layers of a network, run the network on perturbed states, and compare. Needs PyTorch.",
        epilog="example: tokenwaves check model.safetensors --family bert --state token:101 --plot check.pdf",
    )
    check.add_argument(
        "model", metavar="MODEL", help="a block .toml, a program .pt2, a checkpoint with --family, or module:callable"
    )
    check.add_argument("--family", metavar="NAME", help="of a checkpoint: bert, albert, gpt2, rotary, encoder or vit")
    check.add_argument("--config", metavar="FILE", help="its settings (default: config.json beside the checkpoint)")
    check.add_argument(
        "--state",
        metavar="STATE",
        help="the base state at every token: token:ID, mean (of the embedding), zeros, numbers with commas, or a .npy "
        "file (default: mean if there is an embedding, else zeros)",
    )
    check.add_argument("--tokens", type=int, metavar="N", help="how many, where the model leaves it open (default: 32)")
    check.add_argument(
        "--layers", type=int, metavar="L", help="the first L of a checkpoint (default: all), or L times one map"
    )
    check.add_argument(
        "--boundary", choices=("periodic", "open", "causal"), help="of the tokens (default: as the model has it)"
    )
    check.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    check.add_argument(
        "--trust", action="store_true", help="run the code that a program .pt2 holds, not the block in it"
    )
    check.add_argument("--plot", metavar="FILE", help="draw the growth by layer and in all: .pdf, .png or .svg")
    check.add_argument("--json", action="store_true", help="print the same numbers as JSON")
    check.set_defaults(action=_check)


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
