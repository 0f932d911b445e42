"""Blocks as files: a TOML text that people can write, with large arrays in an npz file of the same name beside it.

    [block]
    n = 32                          # or shape = [16, 16]; also attention_scale, attention_bias, placement

    [[head]]                        # one for each head, with the arguments of `Head`
    kernel = {type = "gaussian_lobes", separation = 4, width = 1.0, strength = 2.0}
    value = -0.4
    content = 1.5

    [feedforward]                   # the arguments of `FeedForward`, or `scale` for scale · act(h)
    activation = "tanh"
    scale = -0.1

A kernel is a constructor of `Kernel` (type) with its arguments but the number of tokens, which is that of the block;
without a type it is a table, {logits = […], causal = false}. A list of kernels is the sum of their logits, each times
its `weight`. [attention_norm] and [feedforward_norm] have a type, LayerNorm, RMSNorm or DyT, and its arguments, the
gain being one if not given. [head.rotary] has the arguments of `Rotary`, [head.content] those of `QueryKey`,
[head.value] those of `OutputValue` and [head.bias] those of `AttentionMask`, where they stand for the array of that
name. An array is a nested list, or
{npz = "name"} for the one of that name in the npz file. Unknown keys are refused.
"""

from __future__ import annotations

import json
import os
import textwrap
import threading
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import reduce
from inspect import signature
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion.atomic import replacing
from dispersion.block.activation import Activation
from dispersion.block.block import Block
from dispersion.block.encodings import ENCODINGS, Encoding, ReluMlp
from dispersion.block.feedforward import FeedForward
from dispersion.block.head import Head
from dispersion.block.kernel import Kernel
from dispersion.block.normalisation import Normalisation
from dispersion.block.toml_reader import NORMS, Reader, Table, read_toml, reason
from dispersion.errors import ArgumentError, file_path

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

LARGE = 256
"""Arrays of more numbers than this are written to the npz file."""
WIDTH = 100
"""Columns of a line of numbers."""
MARK = b"arrays of a tokenwaves block"
"""The comment in an npz file by which it is known as one that was saved with a block."""
PATIENCE = 500
"""Hundredths of a second to wait for another process that saves."""
_SAVING = threading.Lock()
ZERO_IF_ABSENT = {(Head, "content"), *((norm, "bias") for norm in NORMS.values())} | {
    (FeedForward, name) for name in ("bias_in", "bias_out", "bias_gate")
}


def save_block(block: Block, path: str | os.PathLike[str]) -> None:
    """Write `block` to the file `path`, NAME.toml, and arrays of more than LARGE numbers to NAME.npz.

    Every number comes back bit for bit, and equal blocks give the same bytes. A file is replaced whole or not at all,
    and of several who save to one path at once each ends well, one of them last. A NAME.npz that was saved
    with no block is never replaced, nor is a symbolic link.
    An ArgumentError says if `path` cannot be written, or a normalisation has no name.
    """
    path = file_path("path", path)
    if path.suffix != ".toml":
        raise ArgumentError("path", repr(str(path)), "a name that ends in .toml")
    arrays: dict[str, Any] = {}
    tokens = {"n": block.n} if len(block.shape) == 1 else {"shape": list(block.shape)}
    header = {**tokens, "attention_scale": block.attention_scale, "placement": block.placement}
    if block.attention_bias is not None:
        header["attention_bias"] = _array(block.attention_bias, "block.attention_bias", arrays)
    sections = _section("[block]", "", header)
    for number, head in enumerate(block.heads):
        sections += _section("[[head]]", "head", _entries(head, f"head[{number}]", arrays))
    for name in ("feedforward", "attention_norm", "feedforward_norm"):
        part = getattr(block, name)
        if part is not None:
            sections += _section(f"[{name}]", name, _entries(part, name, arrays))
    try:
        with _SAVING, _turn(path.parent, "LOCK_EX"):
            _refuse_strangers(path, bool(arrays))
            with ExitStack() as stack:
                # contexts end in reverse: the arrays are there before the text that refers to them
                text = stack.enter_context(replacing(path))
                text.write_text("\n".join(sections), encoding="utf-8", newline="\n")
                if arrays:
                    stored = stack.enter_context(replacing(path.with_suffix(".npz")))
                    with stored.open("wb") as file:
                        np.savez(file, **arrays)
                    with zipfile.ZipFile(stored, "a") as archive:
                        archive.comment = MARK
    except OSError as error:
        raise ArgumentError("path", f"{str(path)!r} ({reason(error)})", "a file that can be written") from None


def load_block(path: str | os.PathLike[str]) -> Block:
    """The block in the TOML file `path`; an ArgumentError names the key that cannot be used, as in head[1].value."""
    path = file_path("path", path)
    with _turn(path.parent, "LOCK_SH"):
        document, _ = read_toml(path, "path", "a TOML file of a block")
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return Reader(path).block(document)
        except MemoryError:
            raise ArgumentError(path.name, "a block that takes more memory than there is", "a smaller one") from None
        except ArgumentError as error:
            raise ArgumentError(f"{path.name}: {error.argument}", error.got, error.accepted) from None


@contextmanager
def _turn(folder: Path, lock: str) -> Iterator[None]:
    """Waits until no block is being saved in `folder`, for a few seconds at most where another process does not end.

    lock : 'LOCK_EX' to save one, 'LOCK_SH' to load one.
    """
    with ExitStack() as stack:
        # not every folder can be opened, and not every file system or Windows has such locks
        with suppress(OSError, AttributeError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            for _ in range(PATIENCE):
                try:
                    fcntl.flock(descriptor, getattr(fcntl, lock) | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.01)
        yield


def _refuse_strangers(path: Path, with_arrays: bool) -> None:
    """Refuse symbolic links at `path`, NAME.toml, and a NAME.npz that would be replaced but was saved with no block."""
    arrays = path.with_suffix(".npz")
    for file in (path, arrays) if with_arrays else (path,):
        if file.is_symlink():
            raise ArgumentError("path", f"{str(file)!r}, a symbolic link", "a file, or a name that is free")
    if with_arrays and arrays.exists() and not _ours(path):
        got = f"{str(path)!r} beside {arrays.name}, which was not saved with a block"
        raise ArgumentError("path", got, "a name whose .npz is free, or has that file moved away")


def _ours(path: Path) -> bool:
    """Whether the npz file beside `path` was saved with a block: by its mark, or as just what the TOML file names."""
    try:
        with zipfile.ZipFile(path.with_suffix(".npz")) as archive:
            if archive.comment == MARK:
                return True
            stored = {name.removesuffix(".npy") for name in archive.namelist()}
        return stored == set(_named(tomllib.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile):
        return False


def _named(value: object) -> Iterator[str]:
    """The arrays of an npz file that the tables in `value` name."""
    if isinstance(value, dict) and set(value) == {"npz"}:
        yield str(value["npz"])
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _named(entry)


def _entries(thing: Any, path: str, arrays: dict[str, Any]) -> Table:
    """What makes `thing` as the entries of its table; large arrays go to `arrays`."""
    entries: Table = {}
    if isinstance(thing, Normalisation):
        if NORMS.get(type(thing).__name__) is not type(thing):
            raise ArgumentError(path, type(thing).__name__, ", ".join(NORMS))
        entries["type"] = type(thing).__name__
    head = isinstance(thing, Head)
    arguments = thing.arguments if head else {name: getattr(thing, name) for name in signature(type(thing)).parameters}
    for name, value in arguments.items():
        if isinstance(value, Activation):
            entries[name] = value.name
            if value.coefficients:
                entries["coefficients"] = [float(number) for number in value.coefficients]
        elif isinstance(value, Kernel):
            entries[name] = _kernel(value, f"{path}.{name}", arrays)
        elif is_dataclass(value):
            entries[name] = _entries(value, f"{path}.{name}", arrays)
        elif not isinstance(value, np.ndarray):
            entries |= {} if value is None else {name: list(value) if isinstance(value, tuple) else value}
        elif (type(thing), name) in ZERO_IF_ABSENT and not value.any() and not np.signbit(value).any():
            continue
        elif head and value.size == 1 and name in ("value", "content"):
            entries[name] = value.item()
        else:
            entries[name] = _array(value, f"{path}.{name}", arrays)
    return entries


def _kernel(kernel: Kernel, path: str, arrays: dict[str, Any]) -> Any:
    """`kernel` as its encoding or the terms of its sum, if these give every logit bit for bit; else as a table."""
    encoding, terms = kernel.encoding, kernel.terms
    if terms and _same(kernel, reduce(add, (term if weight == 1 else weight * term for weight, term in terms))):
        tables = [(weight, _kernel(term, f"{path}[{number}]", arrays)) for number, (weight, term) in enumerate(terms)]
        return [{**table, **({} if weight == 1 else {"weight": weight})} for weight, table in tables]
    if encoding is not None and _written(encoding) and _same(kernel, Kernel.of(encoding, kernel.shape)):
        return {"type": encoding.encoding_name, **_entries(encoding, path, arrays)}
    return {"logits": _array(kernel.logits, f"{path}.logits", arrays), "causal": kernel.causal}


def _written(encoding: Encoding) -> bool:
    """Whether files know the `encoding` and can hold its fields."""
    values = [getattr(encoding, field.name) for field in fields(encoding)]
    known = ENCODINGS.get(encoding.encoding_name) is type(encoding)
    return known and all(isinstance(value, float | int | str | tuple | np.ndarray | ReluMlp) for value in values)


def _same(kernel: Kernel, other: Kernel) -> bool:
    return (kernel.logits.tobytes(), kernel.causal) == (other.logits.tobytes(), other.causal)


def _array(value: NDArray[np.float64], path: str, arrays: dict[str, Any]) -> Any:
    """`value` as the entry of a table, by its name `path` in `arrays` if it is large."""
    if value.size <= LARGE:
        return value.tolist()
    arrays[path] = np.ascontiguousarray(value)
    return {"npz": path}


def _section(title: str, path: str, entries: Table) -> list[str]:
    """The lines of a table and of the tables in it."""
    below = {key: value for key, value in entries.items() if _has_tables(value)}
    lines = [title, *(f"{key} = {_text(value)}" for key, value in entries.items() if key not in below), ""]
    for key, value in below.items():
        for table in value if isinstance(value, list) else [value]:
            brackets = f"[[{path}.{key}]]" if isinstance(value, list) else f"[{path}.{key}]"
            lines += _section(brackets, f"{path}.{key}", table)
    return lines


def _has_tables(value: object) -> bool:
    """Whether `value` is a table, but not that of the name of an array, or a list of tables."""
    if isinstance(value, list):
        return any(isinstance(entry, dict) for entry in value)
    return isinstance(value, dict) and "npz" not in value


def _text(value: Any, indent: str = "") -> str:
    """`value` as TOML: a list on one line if it is short, else with a row of numbers to a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_text(entry)}" for key, entry in value.items()) + "}"
    if not isinstance(value, list):
        return repr(value) if type(value) is float else json.dumps(value)
    entries = [_text(entry, indent + "    ") for entry in value]
    line = f"[{', '.join(entries)}]"
    if len(line) <= WIDTH and "\n" not in line:
        return line
    inner = indent + "    "
    if isinstance(value[0], list):
        rows = "".join(f"{inner}{entry},\n" for entry in entries)
    else:
        rows = textwrap.fill(
            ", ".join(entries), WIDTH, initial_indent=inner, subsequent_indent=inner, break_on_hyphens=False
        )
        rows += "\n"
    return f"[\n{rows}{indent}]"
