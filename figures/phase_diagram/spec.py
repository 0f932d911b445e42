"""Phase diagrams from a TOML specification: a block with arithmetic in its numbers, swept over one or two parameters.

quantity = "amplitude"          # amplitude, wavenumber, speed, competition (of two `modes`) or clusters
depth = 5000                    # also: seed, tolerance, start; modes = [4, 5] instead of start for a competition

[parameters]                    # one or two
gain = {from = 0.1, to = 1.0, points = 40}          # or a list of values
strength = {from = 0.5, to = 4.0, points = 40}

[block]                         # from here on a block file; a string with the name of a parameter is arithmetic
n = 32

[[head]]
kernel = {type = "gaussian_lobes", separation = 4, width = 1.0, strength = "strength"}
value = "-gain"
content = 1.5

docs/files.md describes every key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, Block
from dispersion.block.toml_reader import Reader, read_toml
from dispersion.errors import real_number, shown, whole_number
from figures.phase_diagram.arithmetic import evaluated, used
from figures.phase_diagram.diagram import PhaseDiagram, check_size, increasing
from figures.phase_diagram.quantities import QUANTITIES

KINDS = {"depth": "int", "seed": "int", "tolerance": "float", "start": "float"}
"""Of the numbers of a specification; a competition has `modes` instead of `start`."""
DEFAULTS = {name: getattr(PhaseDiagram, name) for name in KINDS}
OPTIONS = ("quantity", *DEFAULTS, "modes", "parameters")
BLOCK = ("block", "head", "feedforward", "attention_norm", "feedforward_norm")


@dataclass(frozen=True)
class Template:
    """A Block from the values of parameters by name.

    path : of the specification; document : the tables of the block, with expressions.
    """

    path: Path
    document: Mapping[str, Any]

    def __call__(self, **values: float) -> Block:
        return Reader(self.path).block(evaluated(self.document, values))


def load(path: str | os.PathLike[str]) -> PhaseDiagram:
    """As `PhaseDiagram.load`."""
    path = Path(path)
    document, text = read_toml(path, "spec", "a TOML file of a phase diagram")
    try:
        diagram = _diagram(path, document, text)
    except ArgumentError as error:
        raise ArgumentError(f"{path.name}: {error.argument}", error.got, error.accepted) from None
    unused = [name for name in diagram.parameters if name not in used({key: document.get(key) for key in BLOCK})]
    if unused:
        got, accepted = "a parameter that no part of the block uses", 'one in an expression, as in value = "-gain"'
        raise ArgumentError(f"{path.name}: parameters.{unused[0]}", got, accepted)
    return diagram


def _diagram(path: Path, document: Mapping[str, Any], text: str) -> PhaseDiagram:
    for key in document:
        if key not in (*OPTIONS, *BLOCK):
            raise ArgumentError(key, "an unknown key", ", ".join((*OPTIONS, *BLOCK)))
    quantity = document.get("quantity")
    if not isinstance(quantity, str) or quantity not in QUANTITIES:
        raise ArgumentError("quantity", _or_nothing(quantity), ", ".join(QUANTITIES))
    unused = "start" if quantity == "competition" else "modes"
    if unused in document:
        raise ArgumentError(unused, f"a key that {quantity!r} does not use", "no such key")
    reader = Reader(path)
    numbers = {key: reader.read(key, kind, document[key]) for key, kind in KINDS.items() if key in document}
    modes = document.get("modes")
    if modes is not None and not isinstance(modes, list):
        raise ArgumentError("modes", shown(modes), "two different whole wavenumbers, such as [4, 5]")
    block = Template(path, {name: document[name] for name in BLOCK if name in document})
    return PhaseDiagram(
        block, _axes(reader, document.get("parameters")), quantity, **numbers, modes=modes, specification=text
    )


def _or_nothing(value: Any) -> str:
    return "nothing" if value is None else shown(value)


def _axes(reader: Reader, table: Any) -> dict[str, NDArray[np.float64]]:
    if not isinstance(table, dict):
        raise ArgumentError("parameters", _or_nothing(table), "a table of one or two parameters")
    check_size([_checked_size(reader, name, value) for name, value in table.items()])
    return {name: _values(name, value) for name, value in table.items()}


def _values(name: str, value: Any) -> NDArray[np.float64]:
    if isinstance(value, list):
        return np.array(value, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.linspace(value["from"], value["to"], value["points"])
    if not increasing(values):
        raise ArgumentError(f"parameters.{name}", shown(value), "`from` well below `to`")
    return values


def _checked_size(reader: Reader, name: str, value: Any) -> int:
    """How many values the parameter `name` has; what is no axis of numbers is refused."""
    key = f"parameters.{name}"
    if isinstance(value, dict) and set(value) == {"from", "to", "points"}:
        for end in ("from", "to"):
            real_number(f"{key}.{end}", reader.read(f"{key}.{end}", "float", value[end]))
        return whole_number(f"{key}.points", reader.read(f"{key}.points", "int", value["points"]), 2)
    if not isinstance(value, list):
        raise ArgumentError(key, shown(value), "{from = …, to = …, points = …} or a list of numbers")
    for place, item in enumerate(value):
        real_number(f"{key}[{place}]", reader.read(f"{key}[{place}]", "float", item))
    return len(value)
