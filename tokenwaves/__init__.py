"""The command line: `tokenwaves VERB …`, each verb in the module of its name."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # what is imported here cannot be interrupted in one line
    import argparse
    from collections.abc import Sequence

VERBS = ("dispersion", "derive", "check", "train", "phase_diagram", "figures")
"""The verbs there are, in the order of the help; the module of each has `add`, its parser, and `run`."""

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; errors are one line on standard error.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after `tokenwaves`; those of the process by default.

    Returns
    -------
    int
        The exit status: 0 on success, 1 if the reader of the output went away, 2 if something asked for cannot be used
        or written, 130 if interrupted.
    """
    try:
        status = _main(sys.argv[1:] if arguments is None else arguments)
        if arguments is None:
            _leave()
        return status
    except KeyboardInterrupt:
        status, line = 130, "interrupted; what was finished is kept"
    except ImportError as error:
        if not _interrupted(error):
            raise
        status, line = 130, "interrupted; what was finished is kept"
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough
        status, line = 1, ""
    except (ValueError, OSError, MemoryError) as error:
        status, line = 2, f"error: {_reason(error)}"
    from tokenwaves.streams import discard, say

    if line:
        say(f"tokenwaves: {line}")
    try:
        sys.stdout.flush()
    except (OSError, AttributeError):
        discard(sys.stdout)
    return status


def _main(arguments: Sequence[str]) -> int:
    from tokenwaves.streams import prepare

    prepare()
    try:
        if any("\0" in argument for argument in arguments):
            from dispersion import ArgumentError

            raise ArgumentError("arguments", "a name with NUL in it", "names of files, and options")
        from tokenwaves.arguments import in_options, joined

        options = _parser().parse_args(joined(arguments))
        try:
            return int(options.run(options))
        except ValueError as error:
            raise in_options(error, options.command) from None
    finally:
        sys.stdout.flush()


def _leave() -> None:
    """What is done stays done: a Ctrl-C while the interpreter shuts down would end the process as killed."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _parser() -> argparse.ArgumentParser:
    from importlib import import_module

    from tokenwaves.arguments import Parser, Version

    parser: argparse.ArgumentParser = Parser(
        prog="tokenwaves",
        description="Pattern formation in Transformers: theory, simulation and figures.",
        epilog="example: tokenwaves dispersion examples/travelling.toml --plot travelling.pdf",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in VERBS:
        verb = import_module(f"tokenwaves.{name}")
        command = verb.add(commands)
        command.set_defaults(run=verb.run, command=command)
    return parser


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


def _interrupted(error: BaseException | None) -> bool:
    """Whether a KeyboardInterrupt led to `error`: numpy makes an ImportError of one that meets its own imports."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
