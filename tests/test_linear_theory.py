"""The tour of docs/linear-theory.md: its snippets print what they are said to print, and it leaves nothing out."""

import doctest
import re
from pathlib import Path

import pytest

import dispersion
import dispersion.symbolic
from dispersion.block.encodings import BUILT_IN

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "docs" / "linear-theory.md"
TEXT = TOUR.read_text(encoding="utf-8")


def test_snippets(monkeypatch):
    monkeypatch.chdir(ROOT)
    results = doctest.testfile(str(TOUR), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 80
    assert results.failed == 0


def test_every_constructor_and_every_function_is_named():
    exported = [name for name in dispersion.__all__ if name[0].islower()]
    missing = [name for name in (*BUILT_IN, *exported) if not re.search(rf"\b{name}\b", TEXT)]
    assert missing == []


def test_every_theorem_has_a_function():
    table = TEXT.split("| in the paper | here |")[1].split("\n\n")[0]
    for number in ("Theorem 4.1", "Theorem 4.5", "Theorem A.1", *(f"Proposition 4.{n}" for n in (2, 3, 4, 6))):
        assert f"| {number}" in table
    for number in ("Proposition A.2", "App. A.7", "App. A.8", "App. A.9", "App. A.10"):
        assert number in table


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Za-z_.]+)`", TEXT.split("## A block")[0]))))
def test_what_the_table_names_exists(name):
    if name == "dispersion":
        return
    first, *rest = name.split(".")
    owner = getattr(dispersion, first, None) or getattr(dispersion.symbolic, first)
    for part in rest:
        assert hasattr(owner, part) or part in getattr(owner, "__dataclass_fields__", {})


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT))))
def test_every_link_leads_somewhere(target):
    assert (TOUR.parent / target).exists()
