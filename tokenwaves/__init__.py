"""The command line: `tokenwaves VERB …`, each verb in the module of its name."""

from __future__ import annotations

import _thread
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # what is imported here cannot be interrupted in one line
    import argparse
    from collections.abc import Sequence
    from types import FrameType
    from typing import Any

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
    restored = _delay_interrupts()
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        status, line = 130, "interrupted; what was finished is kept"
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough
        status, line = 1, ""
    except (ValueError, OSError, MemoryError) as error:
        status, line = 2, f"error: {_reason(error)}"
    finally:
        if restored is not None:
            # what is done stays done: a Ctrl-C while the interpreter shuts down would end it as killed
            signal.signal(signal.SIGINT, signal.SIG_IGN if arguments is None else restored)
    from tokenwaves.streams import discard, say

    if line:
        say(f"tokenwaves: {line}")
    try:
        sys.stdout.flush()
    except (OSError, AttributeError):
        discard(sys.stdout)
    return status


def _delay_interrupts() -> Any:
    """Let Ctrl-C wait for the end of an import, which makes any error of it; the handler before, None if it is left."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                _thread.start_new_thread(again, ())
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    def again() -> None:
        time.sleep(0.01)
        _thread.interrupt_main()

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return None
    try:
        return signal.signal(signal.SIGINT, interrupt)
    except ValueError:
        # not in the main thread, which alone is told of it
        return None


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
