"""The README's examples print what it says they print, and its commands are the ones that are tested."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def namespace():
    """The examples are read from top to bottom, as one session."""
    return {}


@pytest.mark.parametrize(("source", "output"), EXAMPLES)
def test_example_prints_what_it_says(source, output, namespace):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(source, namespace)
    assert printed.getvalue() == output


def test_every_example_is_run():
    assert len(EXAMPLES) == README.count("```python") > 0


def test_there_are_exactly_two_commands():
    commands = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", README, flags=re.DOTALL), re.MULTILINE)
    assert commands == [
        "python -m pip install -c constraints.txt . && tokenwaves figures",
        "python -m pip install -c constraints.txt '.[test]' && python -m pytest",
    ]


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)]+)\)", README))
def test_every_link_leads_somewhere(target):
    assert (Path(__file__).parent.parent / target).exists()
