"""What makes a computation the same one: digests of values, and of functions with all that they refer to.

Numbers, strings, arrays, dataclasses and what is made of them are known by their values. A function is known by its
code, defaults, closure and the globals it names, as far as these are not a library's; any other object by its class
and the state it would be pickled with. What even that does not show (a file that is read, a counter inside an
extension) no digest can.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import blake2b
from marshal import dumps
from operator import attrgetter
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from dispersion.errors import ArgumentError

SIZE = 16
"""Bytes of a digest."""

OURS = ("amplitude", "dispersion", "figures", "models", "simulate", "tokenwaves", "training")
"""Packages whose functions the version stands for."""

PLAIN = {type(None), bool, int, float, complex, str, bytes}
MARSHAL = 2
"""The version of the format that shows values alone, and not which of them are one object."""

Memo = dict[int, tuple[Any, bytes]]
"""By id: the object itself, so that it lives as long as the entry, and its code."""


def digest(value: object, memo: Memo | None = None) -> str:
    """Hexadecimal digits that are the same for the same value; `memo` as of `encode`."""
    try:
        return blake2b(encode(value, {} if memo is None else memo), digest_size=SIZE).hexdigest()
    except RecursionError:
        raise ArgumentError("measure", "an object nested too deeply to be known again", "a plainer one") from None


def encode(value: Any, memo: Memo) -> bytes:
    """Bytes that are the same for the same value; `memo` remembers the objects already seen."""
    kind: Any = type(value)
    if kind in PLAIN:
        return dumps(value, MARSHAL)
    if kind is np.ndarray and value.dtype.kind != "O":
        return dumps((value.dtype.str, value.shape, value.tobytes()), MARSHAL)
    if kind is tuple:
        return b"(%d " % len(value) + b"".join([encode(part, memo) for part in value])
    known = memo.get(id(value))
    if known is None:
        memo[id(value)] = value, b"itself"  # what refers to itself ends here
        values = _values_of(kind)
        if values is None:
            parts = [encode(part, memo) for part in _parts(value)]
            content = blake2b(b"%d %b" % (len(parts), b"".join(parts)), digest_size=SIZE).digest()
        else:
            plain = [dumps(v, MARSHAL) if type(v) in PLAIN else encode(v, memo) for v in values(value)]
            content = b"".join(plain)
        memo[id(value)] = known = value, _name(kind) + content
    return known[1]


def total(digests: Iterable[str]) -> str:
    """One digest of many, whatever their order and grouping: their sum."""
    return f"{sum([int(digest, 16) for digest in digests]) % 256**SIZE:0{2 * SIZE}x}"


def _parts(value: Any) -> Iterable[object]:
    """What tells `value` from others of its class."""
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if isinstance(value, set | frozenset):
        return sorted(digest(item) for item in value)
    if isinstance(value, np.ndarray):
        return [value.shape, value.tolist()]
    if isinstance(value, np.generic):
        return [value.dtype.str, value.tobytes()]
    if isinstance(value, CodeType):
        return [value.co_code, *_constants(value), *value.co_names]
    if isinstance(value, FunctionType):
        return _function(value)
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, ModuleType):
        return [value.__name__]
    if isinstance(value, type):
        own = [] if _library(value) else [part for part in vars(value).items() if part[0] not in HIDDEN]
        return [value.__module__, value.__qualname__, *value.__bases__, *own]
    if isinstance(value, property):
        return [value.fget, value.fset]
    if isinstance(value, BuiltinFunctionType | np.ufunc):
        return [value.__name__, *([] if isinstance(value, np.ufunc) else [getattr(value, "__self__", None)])]
    return _state(value)


HIDDEN = ("__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__")


@cache
def _values_of(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """What gives the fields of a dataclass of ours, which are all that there is to it; None for any other class."""
    ours = is_dataclass(kind) and kind.__module__.partition(".")[0] in OURS
    names = [item.name for item in fields(kind)] if ours else []
    return attrgetter(*names) if len(names) > 1 else None


@cache
def _name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}:".encode()


def _function(value: FunctionType) -> list[object]:
    if _library(value):
        return [value.__module__, value.__qualname__]
    cells = [_content(cell) for cell in value.__closure__ or ()]
    return [value.__qualname__, value.__code__, value.__defaults__, value.__kwdefaults__, cells, _globals(value)]


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return "nothing"


def _globals(function: FunctionType) -> dict[str, object]:
    """The globals that the code of `function` names; of a module those of its attributes that the code names too."""
    names = sorted(_names(function.__code__))
    found: dict[str, object] = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, value in list(found.items()):
        if isinstance(value, ModuleType):
            found |= {f"{name}.{other}": vars(value)[other] for other in names if other in vars(value)}
    return found


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names}.union(*inner)


def _constants(code: CodeType) -> tuple[object, ...]:
    """The constants of `code`, but for its documentation."""
    documented = bool(code.co_consts) and isinstance(code.co_consts[0], str) and code.co_name != "<lambda>"
    return code.co_consts[1:] if documented else code.co_consts


def _library(value: Any) -> bool:
    """Whether a function or class belongs to a library, whose version is taken to stay."""
    name = getattr(value, "__module__", None) or "builtins"
    top = name.partition(".")[0]
    if top == "__main__":
        return False
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return top in sys.stdlib_module_names or top in OURS or "site-packages" in file or "dist-packages" in file


def _state(value: Any) -> list[object]:
    """The class of any other object, and what it would be pickled with."""
    wrapped = getattr(value, "py_func", None) or getattr(value, "__wrapped__", None)
    if isinstance(wrapped, FunctionType):  # compiled by numba, or decorated
        return [type(value), wrapped]
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:
        return [type(value), getattr(value, "__dict__", None)]
    return [type(value), reduced] if isinstance(reduced, str) else [type(value), *reduced[1:3]]
