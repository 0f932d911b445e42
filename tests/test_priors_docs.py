"""docs/priors.md prints what it says it prints, and names claims that there are."""

import pytest

pytest.importorskip("torch")

from pages import Page

PAGE = Page("docs/priors.md")


def test_examples_and_links():
    PAGE.check()
