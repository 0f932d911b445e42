"""Phase diagrams from a TOML specification: a block with arithmetic in its numbers, swept over one or two parameters.

quantity = "amplitude"          # amplitude, wavenumber, speed, competition (of two `modes`) or clusters
depth = 5000                    # also: seed, start (a number), tolerance, modes = [4, 5]

[parameters]                    # one or two
gain = {from = 0.1, to = 1.0, points = 40}          # or a list of values
strength = {from = 0.5, to = 4.0, points = 40}

[block]                         # from here on a block file; a string with the name of a parameter is arithmetic
n = 32

[[head]]
kernel = {type = "gaussian_lobes", separation = 4, width = 1.0, strength = "strength"}
value = "-gain"
content = 1.5
"""

from __future__ import annotations

import ast
import operator
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from dispersion import ArgumentError, Block
from dispersion.errors import frozen_array, real_number, whole_number
from dispersion.toml_reader import Reader, reason
from figures.diagram.drawing import draw_competition, draw_quantity, draw_section, draw_wavenumber
from figures.diagram.maps import cluster_map, competition_map, wave_map, wavenumber_map
from figures.diagram.rest import Grid
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
OPTIONS = ("quantity", "depth", "seed", "start", "tolerance", "modes", "parameters")
BLOCK = ("block", "head", "feedforward", "attention_norm", "feedforward_norm")
OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True, eq=False)
class Diagram:
    """A phase diagram to be computed.

    path : of the specification; quantity : a key of QUANTITIES; grid : parameter → values, one or two; document : the
    tables of the block; settings : of `simulate.sweep`; modes : the two wavenumbers of a competition.
    """

    path: Path
    quantity: str
    grid: Grid
    document: Mapping[str, Any]
    settings: Mapping[str, Any]
    modes: tuple[int, int] | None

    def block(self, *point: float) -> Block:
        """The block at the values `point` of the parameters, in the order of `grid`."""
        values = dict(zip(self.grid, map(float, point), strict=True))
        return Reader(self.path).block(_evaluated(self.document, values))

    def compute(self, **sweep: Any) -> xr.Dataset:
        """The simulated map with theory on the same grid; `sweep`: path, resume, backend, … of `simulate.sweep`."""
        settings = {**self.settings, **sweep}
        if self.modes is not None:
            return competition_map(self.block, self.modes, self.grid, seed=settings["rng"], **settings)
        compute = {"wavenumber": wavenumber_map, "clusters": cluster_map}.get(self.quantity, wave_map)
        return compute(self.block, self.grid, **settings)

    def draw(self, data: xr.Dataset, ax: Axes) -> None:
        """Draw the `data` of `compute`: a map, or a section over one parameter."""
        simulated, theory, label = QUANTITIES[self.quantity]
        if len(self.grid) == 1:
            draw_section(data, ax, simulated, theory, label)
        elif self.quantity == "wavenumber":
            draw_wavenumber(data, ax)
        elif self.quantity == "competition":
            draw_competition(data, ax)
        else:
            draw_quantity(data, ax, simulated, theory, label)


def load_diagram(path: str | os.PathLike[str]) -> Diagram:
    """The specification in the TOML file `path`; an ArgumentError names the key that cannot be used."""
    path = Path(path)
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ArgumentError("spec", f"{str(path)!r} ({reason(error)})", "a TOML file of a phase diagram") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(path.name, str(error) or "lists within lists", "a TOML file of a phase diagram") from None
    unknown = sorted(set(document) - {*OPTIONS, *BLOCK})
    if unknown:
        raise ArgumentError(f"{path.name}: {unknown[0]}", "an unknown key", ", ".join((*OPTIONS, *BLOCK)))
    quantity = document.get("quantity")
    if quantity not in QUANTITIES:
        raise ArgumentError(f"{path.name}: quantity", repr(quantity), ", ".join(QUANTITIES))
    modes = None
    if quantity == "competition":
        given = document.get("modes")
        if not isinstance(given, list) or len(given) != 2 or not all(isinstance(k, int) for k in given):
            raise ArgumentError(f"{path.name}: modes", given, "two whole wavenumbers, for a competition")
        modes = (given[0], given[1])
    settings: dict[str, Any] = {
        "depth": whole_number("depth", document.get("depth", 5000), 1),
        "rng": whole_number("seed", document.get("seed", 0), 0),
        "tolerance": real_number("tolerance", document.get("tolerance", 1e-12)),
    }
    if modes is None:
        settings["start"] = real_number("start", document.get("start", 1e-3))
    tables = {name: document[name] for name in BLOCK if name in document}
    diagram = Diagram(path, quantity, _grid(path, document.get("parameters")), tables, settings, modes)
    try:
        block = diagram.block(*(float(values[0]) for values in diagram.grid.values()))
    except ArgumentError as error:
        raise ArgumentError(f"{path.name}: {error.argument}", error.got, error.accepted) from None
    _check_quantity(diagram, block)
    return diagram


def _check_quantity(diagram: Diagram, block: Block) -> None:
    """Refuse a quantity that the `block` does not have, modes that do not fit it, and names that are taken."""
    file, quantity = diagram.path.name, diagram.quantity
    if quantity in RINGS and len(block.shape) > 1:
        others = ", ".join(name for name in QUANTITIES if name not in RINGS)
        raise ArgumentError(
            f"{file}: quantity", f"{quantity!r} on tokens {block.shape}", f"a ring; on a torus {others}"
        )
    if quantity == "competition" and block.d > 1:
        others = ", ".join(name for name in QUANTITIES if name != quantity)
        raise ArgumentError(
            f"{file}: quantity", f"{quantity!r} with d = {block.d}", f"d = 1; with more features {others}"
        )
    if diagram.modes is not None and (
        not all(1 <= k <= block.n // 2 for k in diagram.modes) or diagram.modes[0] == diagram.modes[1]
    ):
        raise ArgumentError(f"{file}: modes", list(diagram.modes), f"two different wavenumbers, 1 … {block.n // 2}")
    for name in diagram.grid:
        if name in RESERVED or name in ADDED[quantity]:
            raise ArgumentError(f"{file}: parameters.{name}", "the name of a result", "another name")


def _grid(path: Path, table: Any) -> Grid:
    if not isinstance(table, dict) or not 1 <= len(table) <= 2:
        got = "none" if table is None else f"{len(table)}" if isinstance(table, dict) else repr(table)
        raise ArgumentError(f"{path.name}: parameters", got, "a table of one or two parameters")
    grid = {}
    for name, value in table.items():
        key = f"{path.name}: parameters.{name}"
        if isinstance(value, dict) and set(value) == {"from", "to", "points"}:
            first, last = (real_number(f"{key}.{end}", value[end]) for end in ("from", "to"))
            grid[name] = np.linspace(first, last, whole_number(f"{key}.points", value["points"], 2))
        elif isinstance(value, list):
            grid[name] = frozen_array(key, value, (None,))
            if len(value) < len(table):
                raise ArgumentError(key, value, "two values or more, for a map over two parameters")
        else:
            raise ArgumentError(key, repr(value), "{from = …, to = …, points = …} or a list of numbers")
        if not name.isidentifier():
            raise ArgumentError(key, repr(name), "a name of letters, digits and _")
    return grid


def _evaluated(value: Any, parameters: Mapping[str, float]) -> Any:
    """`value` with every string that names a parameter replaced by the number it stands for."""
    if isinstance(value, dict):
        return {key: _evaluated(item, parameters) for key, item in value.items()}
    if isinstance(value, list):
        return [_evaluated(item, parameters) for item in value]
    if not isinstance(value, str):
        return value
    try:
        tree = ast.parse(value, mode="eval").body
    except SyntaxError:
        return value
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return _number(tree, value, parameters) if names & set(parameters) else value


def _number(node: ast.expr, text: str, parameters: Mapping[str, float]) -> float:
    """The arithmetic expression `node`, part of `text`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name) and node.id in parameters:
        return parameters[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_number(node.operand, text, parameters))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        sides = (_number(side, text, parameters) for side in (node.left, node.right))
        try:
            return OPERATORS[type(node.op)](*sides)
        except ArithmeticError as error:
            at = ", ".join(f"{name} = {value:g}" for name, value in parameters.items())
            raise ArgumentError("expression", f"{text!r} at {at} ({error})", "a finite number") from None
    raise ArgumentError("expression", repr(text), f"numbers, + − * / ** and the parameters {', '.join(parameters)}")
