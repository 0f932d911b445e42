"""The tour of the amplitude theory prints what it says, and leaves nothing public out."""

import doctest
from pathlib import Path

import amplitude

TOUR = Path(__file__).parents[1] / "docs" / "amplitude-theory.md"

ELSEWHERE = {"ScalarForms", "one_mode_potential", "two_mode_potential", "directions", "REGIMES"}
"""Parts of the machinery, and drawings of potentials, which the tour need not show."""


def test_snippets():
    results = doctest.testfile(str(TOUR), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 60
    assert results.failed == 0


def test_every_function_is_shown():
    text = TOUR.read_text(encoding="utf-8")
    functions = {name for name in amplitude.__all__ if name[0].islower()} - ELSEWHERE
    assert {name for name in functions if name not in text} == set()


def test_every_limit_is_named():
    limits = TOUR.read_text(encoding="utf-8").split("## Where it fails, and says so")[1]
    for subject in ("Far from onset", "NaN", "Other modes", "Slow phases", "resonance", "causal", "ReLU"):
        assert subject in limits
