"""Reading the arguments of the command line, with every refusal one line in the words of the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tokenwaves.streams import say

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    """What the parser of a verb is added to."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one line, without the usage."""

    def print_help(self, file: Any = None) -> None:
        """As in argparse, but a stream that cannot be written to is an OSError."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        """Say `message`, cut short if it is long, and exit with 2."""
        from dispersion.errors import shown

        say(f"tokenwaves: error: {shown(message, str)}; see {self.prog} --help")
        self.exit(2)


class Version(argparse.Action):
    """`--version`, which looks the number up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"tokenwaves {version('tokenwaves')}")
        except PackageNotFoundError:
            print("tokenwaves (not installed)")
        parser.exit()


def joined(arguments: Sequence[str]) -> list[str]:
    """`arguments` with a state that starts with a minus joined to its option: argparse takes it for an option."""
    together: list[str] = []
    for argument in arguments:
        if together[-1:] == ["--state"] and argument.startswith("-") and argument[1:2] in tuple("0123456789.i"):
            argument = f"{together.pop()}={argument}"
        together.append(argument)
    return together


def in_options(error: ValueError, command: argparse.ArgumentParser) -> ValueError:
    """`error` as the user of `command` knows its arguments: `state` as --state, `trust=True` as --trust, `family=NAME`
    as --family NAME.

    An argument with another name than its option has that as the default `also` of `command`, {argument: option}.
    """
    from dispersion import ArgumentError

    if not isinstance(error, ArgumentError):
        return error
    names = {action.dest: action.option_strings[-1] for action in command._actions if action.option_strings}
    names |= command.get_default("also") or {}

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in names:
            return found[0]
        return {"True": names[name], "False": f"no {names[name]}"}.get(value, f"{names[name]} {value}")

    got, accepted = (re.sub(r"\b(\w+)=(True|False|[A-Z]+)\b", option, text) for text in (error.got, error.accepted))
    return ArgumentError(names.get(error.argument, error.argument), got, accepted)
