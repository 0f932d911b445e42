"""The README's examples print what it says they print, and its commands are the ones that are tested."""

import re

from pages import Page

README = Page("README.md")


def test_examples_and_links():
    README.check()


def test_there_are_exactly_two_commands():
    commands = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", README.text, flags=re.DOTALL), re.MULTILINE)
    assert commands == [
        "python -m pip install -c constraints.txt . && tokenwaves figures",
        "python -m pip install -c constraints.txt '.[test]' && python -m pytest",
    ]
