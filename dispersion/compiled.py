"""Compiled functions that Python calls, kept on the disk from one run to the next. Importing this imports numba.

numba keeps a compiled function as long as its own file is the same, although others are compiled into it. Here it is
kept as long as the source of every compiled function in its folder is: a change anywhere there compiles anew. What is
kept is machine code in a pickle. It is read only from a folder that is the user's own and closed to others, and only if
its digest is right.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import numba
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from dispersion.atomic import replacing

OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
"""How everything here is compiled."""


def entry(variant: str = "") -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles a function and keeps it: in __pycache__, or in NUMBA_CACHE_DIR.

    variant : tells functions of one name apart that are made by another with different parts.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        made = njit(**OPTIONS)(function)
        with suppress(RuntimeError, OSError):  # no folder can be written to
            made._cache = _Kept(function, variant)
        return made

    return compiled


class _Kept(FunctionCache):
    """numba's cache of one function, with the source of all of them in the key; what cannot be kept is compiled."""

    def __init__(self, function: Callable[..., Any], variant: str) -> None:
        super().__init__(function)
        self._variant, self._home = variant, Path(function.__code__.co_filename).parent
        self._cache_file: Any = _Files(own_folder(Path(self._cache_path)), self._impl.filename_base)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function for `sig`, None if it is not there or cannot be used."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever numba meets in it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled function `data` for `sig` if that is possible."""
        with suppress(OSError):
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        # the second is the processor and what it can do
        return (sig, codegen.magic_tuple(), self._variant), (_source(self._home), numba.__version__)


class _Files:
    """The files of one function in `folder`, one for each signature, which begin with a digest of the rest.

    base : how their names begin.
    """

    def __init__(self, folder: Path, base: str) -> None:
        self.folder, self.base = folder, base

    def load(self, key: Any) -> Any:
        """What was saved for `key`, None if that is not there, damaged, or of another key."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        kept, data = pickle.loads(content[32:])
        return data if kept == key else None

    def save(self, key: Any, data: Any) -> None:
        """Save `data` for `key`, in place of what its signature had."""
        content = dumps((key, data))
        with replacing(self._path(key)) as temporary:
            temporary.write_bytes(hashlib.sha256(content).digest() + content)

    def _path(self, key: Any) -> Path:
        return self.folder / f"{self.base}.{hashlib.sha256(repr(key[0]).encode()).hexdigest()[:16]}.nbc"


def own_folder(parent: Path) -> Path:
    """A folder in `parent` that is the user's alone, made if need be; an OSError if it cannot be had."""
    if not hasattr(os, "geteuid"):  # no such owners and permissions here
        return parent
    folder = parent / f"tokenwaves-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is another's")
    if found.st_mode & 0o077:
        # others could have written to it
        for file in folder.iterdir():
            file.unlink()
        folder.chmod(0o700)
    return folder


@lru_cache
def _source(folder: Path) -> str:
    """A hash of the modules of a folder that hold compiled functions, those whose names begin with one underscore."""
    modules = [Path(__file__), *sorted(folder.glob("_[a-z]*.py"))]
    return hashlib.sha256(b"\0".join(module.read_bytes() for module in modules)).hexdigest()
