"""The README's examples print what it says they print, and its commands are the ones that are tested."""

import re

from pages import Page

README = Page("README.md")


def test_examples_and_links():
    README.check()


def test_there_are_exactly_two_commands():
    lines = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", README.text, flags=re.DOTALL), re.MULTILINE)
    python = re.compile(r"from|print")  # tests/test_networks_docs.py runs these
    assert [line for line in lines if not python.match(line)] == [
        "python -m pip install -c constraints.txt . && tokenwaves figures",
        "python -m pip install -c constraints.txt '.[test]' && python -m pytest",
    ]
