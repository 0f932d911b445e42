"""docs/networks.md prints what it says it prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from models.families import FAMILIES

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "networks.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", TEXT, re.DOTALL)


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


def test_every_example_is_run_and_the_first_is_ten_lines():
    assert len(EXAMPLES) == TEXT.count("```python") == 2
    lines = [line for line in EXAMPLES[0][0].splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 10


def test_every_family_is_described():
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == set(FAMILIES)


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)]+)\)", TEXT))
def test_every_link_leads_somewhere(target):
    assert (DOCS / target).exists()
