"""What makes a sweep the same sweep: a digest of each of its settings, so that a resumed one is not another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import metadata
from typing import Any

import numpy as np

from simulate.points import Plan


def settings_of(plan: Plan, start: Any, first: object) -> dict[str, str]:
    """The settings of `plan` by name, each as a number or a digest.

    start : as checked, arrays included. first : the first block that could be built, which stands for what
    make_block does, its own code apart.
    """
    return {
        "depth": str(plan.depth),
        "tolerance": repr(plan.tolerance),
        "rng": str(plan.seed),
        "start": digest(start),
        "parameters": digest(dict(plan.axes)),
        "make_block": digest(plan.make_block),
        "block": digest(first),
        "measure": digest((plan.measures.names, plan.measures.functions)),
        "version": _version(),
    }


def digest(value: object) -> str:
    """Sixteen hexadecimal digits of numbers, strings, arrays, functions (name and code), and what is made of them."""
    made = hashlib.sha256()
    _feed(made, value)
    return made.hexdigest()[:16]


def _feed(made: Any, value: Any) -> None:
    made.update(type(value).__name__.encode())
    if isinstance(value, np.ndarray):
        made.update(f"{value.dtype.str}{value.shape}".encode())
        made.update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            _feed(made, getattr(value, item.name))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _feed(made, (name, item))
    elif isinstance(value, tuple | list):
        for item in value:
            _feed(made, item)
    elif callable(value):
        code = getattr(value, "__code__", None)
        made.update(getattr(value, "__qualname__", type(value).__qualname__).encode())
        made.update(b"" if code is None else code.co_code)
        _feed(made, [c for c in getattr(code, "co_consts", ()) if isinstance(c, int | float | str | tuple)])
    else:
        made.update(repr(value).encode())


def _version() -> str:
    try:
        return metadata.version("tokenwaves")
    except metadata.PackageNotFoundError:
        return "not installed"
