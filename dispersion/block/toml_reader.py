"""Reading the TOML tables of a block (see `files`): every key is a parameter of what the table makes."""

from __future__ import annotations

import reprlib
import tomllib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import reduce
from inspect import Parameter, signature
from math import prod
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.activation import Activation
from dispersion.block.block import Block
from dispersion.block.encodings import ENCODINGS, relu_mlp
from dispersion.block.factors import OutputValue, QueryKey, Rotary
from dispersion.block.feedforward import FeedForward
from dispersion.block.head import Head
from dispersion.block.kernel import Kernel
from dispersion.block.mask import AttentionMask
from dispersion.block.normalisation import DyT, LayerNorm, Normalisation, RMSNorm
from dispersion.block.stored import REAL, Arrays
from dispersion.errors import ArgumentError, whole_number
from dispersion.memory import require

Table = dict[str, Any]
NPZ = "an npz file of numbers beside the TOML file"
NORMS: dict[str, type[Normalisation]] = {norm.__name__: norm for norm in (LayerNorm, RMSNorm, DyT)}
PARTS: dict[str, Callable] = {"OutputValue": OutputValue, "QueryKey": QueryKey, "AttentionMask": AttentionMask}
SCALARS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a string"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "float | None": ((int, float), "a number"),
    "int | tuple[int, ...]": ((int, list), "a whole number, or a list of them on a torus"),
}
"""What may stand for an argument so annotated, and how to say it."""


LARGEST = 2**24
"""Bytes of a TOML file; large arrays have a place in the npz file."""

AXES = 8
"""Of a torus."""
TOKEN = 200
"""Bytes that a token takes in the least that can be asked of a block, its leading mode."""


def read_toml(path: Path, argument: str, accepted: str) -> tuple[Table, str]:
    """What the TOML file `path` says, and its text; an ArgumentError about `argument` says if it cannot be read."""
    try:
        content = bytearray()
        with open(path, "rb") as file:
            while chunk := file.read(2**16):
                content += chunk
                if len(content) > LARGEST:
                    raise ArgumentError(argument, f"{str(path)!r}, of more than {LARGEST:,} bytes", accepted)
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        return tomllib.loads(text), text
    except ArgumentError:
        raise
    except OSError as error:
        raise ArgumentError(argument, f"{str(path)!r} ({reason(error)})", accepted) from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(path.name, str(error) or "lists within lists", accepted) from None


class Reader:
    """Makes the parts of a block from the tables of the file `path`, each by a call read as its signature says."""

    def __init__(self, path: Path) -> None:
        self.file = path.with_suffix(".npz")

    def block(self, document: Table) -> Block:
        norms = ("attention_norm", "feedforward_norm")
        _check_keys("", document, ["block", "head", "feedforward", *norms], ["block", "head"])
        header = _table("block", document["block"])
        self.tokens = _tokens(header)
        tables = document["head"]
        if not isinstance(tables, list) or not tables:
            raise ArgumentError("head", reprlib.repr(tables), "[[head]], in two brackets, once for each head")
        heads = [self.make(f"head[{number}]", table, Head) for number, table in enumerate(tables)]
        parts: Table = {name: self.norm(name, document, heads[0].d) for name in norms}
        parts["feedforward"] = self.feedforward("feedforward", document, heads[0].d)
        block: Block = self.make("block", header, Block, heads=heads, **parts)
        return block

    def make(self, path: str, value: object, function: Callable, **given: Any) -> Any:
        """`function` of the entries of the table `value`, read as its signature says, and of those `given` besides."""
        parameters = {name: kind for name, kind in signature(function).parameters.items() if name not in given}
        required = [name for name, kind in parameters.items() if kind.default is Parameter.empty]
        table = _table(path, value)
        _check_keys(path, table, list(parameters), required)
        kinds = {name: getattr(kind.annotation, "__name__", kind.annotation) for name, kind in parameters.items()}
        arguments = {name: self.read(f"{path}.{name}", str(kinds[name]), table[name]) for name in table}
        with _within(path, table):
            return function(**given, **arguments)

    def read(self, path: str, annotation: str, value: object) -> Any:
        """`value` for a parameter with this `annotation`."""
        if annotation in SCALARS:
            types, accepted = SCALARS[annotation]
            if type(value) not in types or (isinstance(value, int) and abs(value) >= 2**63):
                raise ArgumentError(path, reprlib.repr(value), accepted)
            return tuple(value) if isinstance(value, list) else value
        if annotation == "Kernel":
            return self.kernel(path, value)
        if annotation == "Rotary | None":
            return self.make(path, value, Rotary)
        for name, part in PARTS.items():
            if name in annotation and isinstance(value, dict) and set(value) != {"npz"}:
                return self.make(path, value, part)
        if annotation.startswith("Callable"):
            return self.make(path, value, relu_mlp)
        return self.numbers(path, value)

    def kernel(self, path: str, value: object) -> Kernel:
        if not isinstance(value, list):
            return self.term(path, value)
        terms = [self.term(f"{path}[{number}]", term) for number, term in enumerate(value)]
        if not terms:
            raise ArgumentError(path, "an empty list", "one kernel or more")
        with _within(path):
            return reduce(add, terms)

    def term(self, path: str, value: object) -> Kernel:
        table = _table(path, value)
        weight = self.read(f"{path}.weight", "float", table.pop("weight", 1.0))
        name = _choice(f"{path}.type", table.pop("type", "table"), ("table", *ENCODINGS))
        made = self.make(path, table, Kernel if name == "table" else ENCODINGS[name])
        with _within(path, table):
            kernel = made if isinstance(made, Kernel) else Kernel.of(made, self.tokens)
        shape = (self.tokens,) if isinstance(self.tokens, int) else self.tokens
        if kernel.shape != shape:
            raise ArgumentError(path, f"shape {kernel.shape}", f"shape {shape}, the tokens of the block")
        with _within(f"{path}.weight"):
            return kernel if weight == 1 else weight * kernel

    def norm(self, name: str, document: Table, d: int) -> Normalisation | None:
        if name not in document:
            return None
        table = _table(name, document[name])
        kind = NORMS[_choice(f"{name}.type", table.pop("type", None), NORMS)]
        norm: Normalisation = self.make(name, {"gain": [1.0] * d, **table}, kind)
        return norm

    def feedforward(self, name: str, document: Table, d: int) -> FeedForward | None:
        if name not in document:
            return None
        table = _table(name, document[name])
        weights = any(key.startswith(("weight_", "bias_")) for key in table)
        made: FeedForward = self.make(name, table, _weights) if weights else self.make(name, table, _scaled, d=d)
        return made

    def numbers(self, path: str, value: object) -> Any:
        """`value` as a number or array; its shape and range are for the constructor to check."""
        if isinstance(value, dict) and set(value) == {"npz"}:
            return self.stored(f"{path}.npz", value["npz"])
        if not all(type(leaf) in (int, float) for leaf in _leaves(value)):
            raise ArgumentError(path, reprlib.repr(value), 'a number, a nested list of numbers, or {npz = "name"}')
        try:
            return np.array(value, dtype=np.float64) if isinstance(value, list) else float(value)  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            raise ArgumentError(path, reprlib.repr(value), "float64 numbers, in rows of equal length") from None

    def stored(self, path: str, name: object) -> NDArray:
        """The array `name` of the npz file."""
        arrays = Arrays(self.file)
        with _within(path):
            try:
                array = arrays.read(name) if isinstance(name, str) else None
                if array is not None and array.dtype.kind in REAL:
                    return array
                real = arrays.names()
            except OSError as error:
                raise ArgumentError("npz", f"{self.file.name!r} ({reason(error)})", NPZ) from None
            except ValueError as error:
                raise ArgumentError("npz", f"{self.file.name!r} ({error})", NPZ) from None
            accepted = f"an array of real numbers in {self.file.name}: {', '.join(real) or 'there is none'}"
            raise ArgumentError("name", reprlib.repr(name), accepted)


def _weights(
    activation: str,
    weight_in: ArrayLike,
    weight_out: ArrayLike,
    bias_in: ArrayLike | None = None,
    bias_out: ArrayLike | None = None,
    weight_gate: ArrayLike | None = None,
    bias_gate: ArrayLike | None = None,
    coefficients: ArrayLike | None = None,
) -> FeedForward:
    act = _activation(activation, coefficients)
    return FeedForward(weight_in, weight_out, act, bias_in, bias_out, weight_gate, bias_gate)


def _scaled(d: int, activation: str, scale: float = 1.0, coefficients: ArrayLike | None = None) -> FeedForward:
    return FeedForward.elementwise(_activation(activation, coefficients), d, scale)


def _activation(name: str, coefficients: ArrayLike | None) -> Activation:
    numbers = () if coefficients is None else Activation.polynomial(coefficients).coefficients
    return Activation(name, numbers)


def _tokens(header: Table) -> int | tuple[int, ...]:
    """N, or the shape of a torus, taken out of the table [block]."""
    given = [key for key in ("n", "shape") if key in header]
    if len(given) != 1:
        raise ArgumentError("block", " and ".join(given) or "no number of tokens", "n = N, or shape = [N_1, N_2]")
    key, value = f"block.{given[0]}", header.pop(given[0])
    if given == ["n"]:
        sizes = [whole_number(key, value, 2)]
    elif not isinstance(value, list) or not 1 <= len(value) <= AXES:
        raise ArgumentError(key, reprlib.repr(value), f"a list of {AXES} whole numbers at most")
    else:
        sizes = [whole_number(f"{key}[{axis}]", size, 1) for axis, size in enumerate(value)]
    require(key, f"{prod(sizes):.3g} tokens", TOKEN * prod(sizes))
    return tuple(sizes) if len(sizes) > 1 else sizes[0]


def _table(path: str, value: object) -> Table:
    """A copy of the table `value`."""
    if not isinstance(value, dict):
        raise ArgumentError(path, reprlib.repr(value), "a table of keys")
    return dict(value)


def _choice(path: str, value: object, accepted: Collection[str]) -> str:
    if not isinstance(value, str) or value not in accepted:
        raise ArgumentError(path, "nothing" if value is None else reprlib.repr(value), ", ".join(accepted))
    return value


def _check_keys(path: str, table: Table, accepted: Collection[str], required: Collection[str]) -> None:
    for key in table:
        if key not in accepted:
            raise ArgumentError(f"{path}.{key}".lstrip("."), "an unknown key", ", ".join(accepted) or "no other key")
    for key in required:
        if key not in table:
            raise ArgumentError(f"{path}.{key}".lstrip("."), "nothing", f"a value, which {path or 'a block'} needs")


@contextmanager
def _within(path: str, table: Collection[str] | None = None) -> Iterator[None]:
    """Has the errors of a call name the key of `table` that is at fault, or `path` if there is no table."""
    try:
        yield
    except ArgumentError as error:
        name = f"{path}.{error.argument}"
        if table is None:
            name = path
        elif error.argument in ("n", "shape") and error.argument not in table:
            name = f"{path}, {error.argument} of the block"
        elif path == "block" and error.argument not in table:
            name = error.argument.replace("heads[", "head[")
        raise ArgumentError(name, error.got, error.accepted) from None


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, list):
        for entry in value:
            yield from _leaves(entry)
    else:
        yield value


def reason(error: OSError) -> str:
    """Why the system refused a file, in its words."""
    return (error.strerror or type(error).__name__).lower()
