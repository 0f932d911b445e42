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

import json
import os
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from dispersion import ArgumentError, Block
from dispersion.block.toml_reader import Reader, read_toml
from dispersion.errors import real_number, shown, whole_number
from figures.phase_diagram.arithmetic import evaluated, used
from figures.phase_diagram.homogeneous import Grid, sample
from figures.phase_diagram.maps import cluster_map, competition_map, wave_map, wavenumber_map
from figures.phase_diagram.picture import picture
from simulate.results import RESERVED

QUANTITIES: dict[str, tuple[str, str, str]] = {
    # simulated variable, its theory, label
    "amplitude": ("critical_amplitude", "amplitude_theory", "amplitude $R$"),
    "speed": ("critical_phase_advance", "phase_advance_theory", r"phase advance $\Omega$ (rad/layer)"),
    "clusters": ("separation", "separation_theory", "half separation $u$"),
    "wavenumber": ("wavenumber", "critical_wavenumber", "wavenumber $k$"),
    "competition": ("observed", "predicted", "regime"),
}
RINGS = ("wavenumber", "competition")
"""Quantities of a ring, for which a torus has no one number."""
ADDED: dict[str, tuple[str, ...]] = {
    "amplitude": ("amplitude_theory", "phase_advance_theory", "critical_angle", "excluded"),
    "speed": ("amplitude_theory", "phase_advance_theory", "critical_angle", "excluded"),
    "clusters": ("separation", "separation_theory", "excluded"),
    "wavenumber": ("growth", "excluded"),
    "competition": ("observed", "predicted", "mu", "transverse", "mode", "seed", "excluded"),
}
"""What a map holds besides the variables of a sweep."""
DEFAULTS: dict[str, Any] = {"depth": 5000, "seed": 0, "tolerance": 1e-12, "start": 1e-3}
"""Of the numbers of a specification; a competition has `modes` instead of `start`."""
OPTIONS = ("quantity", *DEFAULTS, "modes", "parameters")
BLOCK = ("block", "head", "feedforward", "attention_norm", "feedforward_norm")
DEPTH, POINTS = 10**8, 10**7
"""The most layers and points."""
NAME = 64
"""Characters of a parameter's name."""


@dataclass(frozen=True, eq=False)
class Diagram:
    """A phase diagram to be computed.

    path : of the specification; quantity : a key of QUANTITIES; grid : parameter → values, one or two; document : the
    tables of the block; settings : of `simulate.sweep`; modes : the two wavenumbers of a competition; text : of the
    specification.
    """

    path: Path
    quantity: str
    grid: Grid
    document: Mapping[str, Any]
    settings: Mapping[str, Any]
    modes: tuple[int, int] | None
    text: str = ""

    def block(self, *point: float) -> Block:
        """The block at the values `point` of the parameters, in the order of `grid`."""
        values = dict(zip(self.grid, map(float, point), strict=True))
        return Reader(self.path).block(evaluated(self.document, values))

    @property
    def identity(self) -> str:
        """What the file says, whatever its comments and spaces."""
        return json.dumps(tomllib.loads(self.text), sort_keys=True, default=str) if self.text else ""

    @property
    def points(self) -> int:
        """How many there are."""
        return prod(map(len, self.grid.values()))

    @property
    def estimate(self) -> str:
        """How much work it is: points, layers and memory, at most."""
        block = sample(self.block, self.grid)
        shape = " × ".join(f"{len(values)}" for values in self.grid.values())
        runs = f"{shape}, two starts each" if self.modes else shape
        # last state, spectrum and numbers of each point, held twice while they are written
        memory = 2 * self.points * (1 + (self.modes is not None)) * 8 * (2 * block.n * block.d + 30)
        size = f"{memory / 1e9:.1f} GB" if memory > 1e8 else f"{max(1, round(memory / 1e6))} MB"
        return f"{self.points:,} points ({runs}), up to {self.settings['depth']:,} layers each, about {size} of memory"

    def compute(self, **sweep: Any) -> xr.Dataset:
        """The simulated map with theory on the same grid; `sweep`: path, resume, backend, … of `simulate.sweep`."""
        settings = {**self.settings, "identity": {"specification": self.identity}, **sweep}
        if self.modes is not None:
            data = competition_map(self.block, self.modes, self.grid, seed=settings["rng"], **settings)
        else:
            compute = {"wavenumber": wavenumber_map, "clusters": cluster_map}.get(self.quantity, wave_map)
            data = compute(self.block, self.grid, **settings)
        return data.assign_attrs(quantity=self.quantity, specification=self.text)

    def picture(self, data: xr.Dataset) -> Figure:
        """The figure of the `data` of `compute`: a map, or a section over one parameter, with its legend."""
        return picture(data, self.quantity, *QUANTITIES[self.quantity])


def load_diagram(path: str | os.PathLike[str]) -> Diagram:
    """The specification in the TOML file `path`; an ArgumentError names the key that cannot be used, or is not used."""
    path = Path(path)
    document, text = read_toml(path, "spec", "a TOML file of a phase diagram")
    try:
        diagram = _diagram(path, document, text)
        _check_quantity(diagram, sample(diagram.block, diagram.grid))
    except ArgumentError as error:
        raise ArgumentError(f"{path.name}: {error.argument}", error.got, error.accepted) from None
    unused = [name for name in diagram.grid if name not in used(diagram.document)]
    if unused:
        got, accepted = "a parameter that no part of the block uses", 'one in an expression, as in value = "-gain"'
        raise ArgumentError(f"{path.name}: parameters.{unused[0]}", got, accepted)
    return diagram


def _diagram(path: Path, document: Mapping[str, Any], text: str) -> Diagram:
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

    def whole(key: str, least: int) -> int:
        return whole_number(key, reader.read(key, "int", document.get(key, DEFAULTS[key])), least)

    def real(key: str) -> float:
        return real_number(key, reader.read(key, "float", document.get(key, DEFAULTS[key])))

    settings: dict[str, Any] = {"depth": whole("depth", 1), "rng": whole("seed", 0), "tolerance": real("tolerance")}
    if settings["depth"] > DEPTH:
        raise ArgumentError("depth", settings["depth"], f"a whole number of at most {DEPTH:,} layers")
    if settings["tolerance"] < 0:
        raise ArgumentError("tolerance", settings["tolerance"], "a number above 0, or 0 for no early stop")
    modes = None
    if quantity == "competition":
        modes = _modes(document.get("modes"))
    else:
        settings["start"] = real_number("start", real("start"), positive=True)
    tables = {name: document[name] for name in BLOCK if name in document}
    return Diagram(path, quantity, _grid(reader, document.get("parameters")), tables, settings, modes, text)


def _modes(given: Any) -> tuple[int, int]:
    if not isinstance(given, list) or [type(k) for k in given] != [int, int]:
        raise ArgumentError("modes", _or_nothing(given), "two different whole wavenumbers, such as [4, 5]")
    return given[0], given[1]


def _or_nothing(value: Any) -> str:
    return "nothing" if value is None else shown(value)


def _check_quantity(diagram: Diagram, block: Block) -> None:
    """Refuse a quantity that the `block` does not have, modes that do not fit it, and names that are taken."""
    quantity = diagram.quantity
    if quantity in RINGS and len(block.shape) > 1:
        others = ", ".join(name for name in QUANTITIES if name not in RINGS)
        raise ArgumentError("quantity", f"{quantity!r} on tokens {block.shape}", f"a ring; on a torus {others}")
    if quantity == "competition" and block.d > 1:
        others = ", ".join(name for name in QUANTITIES if name != quantity)
        raise ArgumentError("quantity", f"{quantity!r} with d = {block.d}", f"d = 1; with more features {others}")
    if diagram.modes is not None and (
        not all(1 <= k <= block.n // 2 for k in diagram.modes) or diagram.modes[0] == diagram.modes[1]
    ):
        raise ArgumentError("modes", list(diagram.modes), f"two different wavenumbers, 1 … {block.n // 2}")
    for name in diagram.grid:
        if name in RESERVED or name in ADDED[quantity]:
            raise ArgumentError(f"parameters.{name}", "the name of a result", "another name")


def _grid(reader: Reader, table: Any) -> Grid:
    if not isinstance(table, dict) or not 1 <= len(table) <= 2:
        got = f"{len(table)}" if isinstance(table, dict) else _or_nothing(table)
        raise ArgumentError("parameters", got, "a table of one or two parameters")
    sizes = [_checked_axis(reader, name, value, len(table)) for name, value in table.items()]
    if prod(sizes) > POINTS:
        raise ArgumentError("parameters", f"{prod(sizes):,} points", f"at most {POINTS:,}")
    grid = {}
    for name, value in table.items():
        ends = isinstance(value, dict)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.linspace(value["from"], value["to"], value["points"]) if ends else np.array(value, dtype=float)
            increasing = np.isfinite(values).all() and (np.diff(values) > 0).all()
        if not increasing:
            accepted = "`from` well below `to`" if ends else "different numbers, from the lowest to the highest"
            raise ArgumentError(f"parameters.{name}", shown(value), accepted)
        grid[name] = values
    return grid


def _checked_axis(reader: Reader, name: str, value: Any, axes: int) -> int:
    """How many values the parameter `name` has; what is not a name or no axis of numbers is refused."""
    key = f"parameters.{name}"
    plain = name.isidentifier() and not iskeyword(name) and unicodedata.normalize("NFKC", name) == name
    if not plain or len(name) > NAME:
        raise ArgumentError(key, shown(name), f"a name of letters, digits and _, {NAME} characters at most")
    if isinstance(value, dict) and set(value) == {"from", "to", "points"}:
        for end in ("from", "to"):
            real_number(f"{key}.{end}", reader.read(f"{key}.{end}", "float", value[end]))
        return whole_number(f"{key}.points", reader.read(f"{key}.points", "int", value["points"]), 2)
    if not isinstance(value, list):
        raise ArgumentError(key, shown(value), "{from = …, to = …, points = …} or a list of numbers")
    for place, item in enumerate(value):
        real_number(f"{key}[{place}]", reader.read(f"{key}[{place}]", "float", item))
    if len(value) < axes:
        accepted = "two values or more, for a map over two parameters" if axes > 1 else "one number or more"
        raise ArgumentError(key, shown(value), accepted)
    return len(value)
