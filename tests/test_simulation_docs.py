"""docs/simulation.md prints what it says it prints."""

from pages import Page


def test_examples_and_links():
    Page("docs/simulation.md").check()
