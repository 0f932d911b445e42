"""Reading the arguments of the command line, with every refusal one line."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from figures.streams import say


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
