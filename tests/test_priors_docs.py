"""docs/priors.md prints what it says it prints, and its numbers are those of the claims."""

import re

import pytest

pytest.importorskip("torch")

from pages import Page

import figures.masks

PAGE = Page("docs/priors.md")
ROW = re.compile(r"^\|[^|]*\| `(masks\.[^`<]*)`[^|]*\| ([^|]+?) \|", re.MULTILINE)
"""A row of a table: a claim, and what it comes to."""


def test_examples_and_links():
    PAGE.check()


def test_numbers_are_those_of_the_claims():
    found = {claim.id: claim.here for claim in figures.masks.claims(figures.masks.compute())}
    rows = ROW.findall(PAGE.text)
    assert len(rows) > 12
    for name, told in rows:
        here = found[name]
        if isinstance(here, str):
            assert told == here, name
        else:
            places = len(told.partition(".")[2])
            assert float(told) == pytest.approx(here, abs=0.5001 * 10**-places), name
