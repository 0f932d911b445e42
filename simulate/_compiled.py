"""Compiled functions that Python calls, kept on the disk from one run to the next. Importing this imports numba.

numba keeps a compiled function as long as its own file is the same, although others are compiled into it. Here it is
kept as long as the source of every compiled function is: a change anywhere compiles anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
"""How everything here is compiled."""


def entry(variant: str = "") -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles a function and keeps it: in __pycache__, or in NUMBA_CACHE_DIR.

    variant : tells functions of one name apart that are made by another with different parts.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        made = njit(**OPTIONS)(function)
        with suppress(RuntimeError):  # no folder can be written to
            made._cache = _Kept(function, variant)
        return made

    return compiled


class _Kept(FunctionCache):
    """numba's cache of one function, with the source of all of them in the key."""

    def __init__(self, function: Callable[..., Any], variant: str) -> None:
        super().__init__(function)
        self._variant = variant

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        # the second is the processor and what it can do
        return sig, codegen.magic_tuple(), _source(), self._variant


@lru_cache
def _source() -> str:
    """A hash of the modules that hold compiled functions, those whose names begin with one underscore."""
    modules = sorted(Path(__file__).parent.glob("_[a-z]*.py"))
    return hashlib.sha256(b"\0".join(module.read_bytes() for module in modules)).hexdigest()
