"""docs/networks.md prints what it says it prints."""

import re

import pytest

pytest.importorskip("torch")

from pages import Page

from models.adapters.registry import families

PAGE = Page("docs/networks.md")


def test_examples_and_links():
    PAGE.check()


def test_your_own_model_takes_ten_lines():
    lines = [line for line in PAGE.examples[0][0].splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 10


def test_every_family_is_described():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE.text, re.MULTILINE)) == set(families())
