"""Docstrings of everything public are in numpydoc form: every parameter has its entry."""

import inspect
import re

import pytest
from test_arrows import EXPORTED


def entries(text, section):
    """Names that have an entry in a `section` of the docstring `text`."""
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}$|\Z)", inspect.cleandoc(text or ""), re.M | re.S)
    heads = re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) :", found[1], re.M) if found else []
    return {name.strip("* ") for head in heads for name in head.split(",")}


def documented(thing):
    """Names with an entry; a class may leave them to where its constructor comes from."""
    texts = [base.__doc__ for base in thing.__mro__[:-1]] if inspect.isclass(thing) else [thing.__doc__]
    return set().union(*(entries(text, section) for text in texts for section in ("Parameters", "Attributes")))


@pytest.mark.parametrize("thing", [thing for _, thing in EXPORTED], ids=[label for label, _ in EXPORTED])
def test_every_parameter_has_an_entry(thing):
    parameters = {name for name in inspect.signature(thing).parameters if name not in ("self", "cls")}
    assert parameters <= documented(thing)


def test_entries_are_found():
    text = "Line.\n\nParameters\n----------\nx, y : (N,) array\n    What.\n*args : int\n\nReturns\n-------\nz : float\n"
    assert entries(text, "Parameters") == {"x", "y", "args"}
    assert entries(text, "Returns") == {"z"}
    assert entries(text, "Attributes") == set()
