"""The snippets of docs/errata.md print what they are said to print."""

import doctest
from pathlib import Path

ERRATA = Path(__file__).parents[1] / "docs" / "errata.md"


def test_snippets():
    results = doctest.testfile(str(ERRATA), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 30
    assert results.failed == 0


def test_every_erratum_is_here():
    titles = [line for line in ERRATA.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    for subject in ("Eq. 67", "Eq. 119", "3q_c", "Clusters", "Fig. 3(b)"):
        assert any(subject in title for title in titles)
