"""The leading modes of a block from its file: as a table, as JSON, and drawn."""

from __future__ import annotations

import json
import os
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, Block, Dispersion, Mode, dispersion_relation, fixed_points
from dispersion.block.stored import read_numbers
from dispersion.errors import shown
from figures.streams import encodable

PICTURES = (".pdf", ".png", ".svg")
MARGIN = 1e-12
"""Relative size under which max |Λ| − 1 and g(a) − a count as zero."""
COLUMNS = ("k", "q", "|Λ|", "γ", "ω", "wavelength", "morphology", "condition")


def run(
    path: str | os.PathLike[str],
    state: str | None = None,
    count: int = 6,
    plot: str | os.PathLike[str] | None = None,
    as_json: bool = False,
    with_fixed_points: bool = False,
) -> None:
    """Print the leading modes of the block in the file `path`.

    state : numbers with commas between them, or the name of a .npy file; zero if None; count : how many modes;
    plot : a picture to write, .pdf, .png or .svg; as_json : print JSON instead of a table;
    with_fixed_points : list the homogeneous fixed points too.
    An ArgumentError names what cannot be used, options by their names on the command line.
    """
    if plot is not None and Path(plot).suffix.lower() not in PICTURES:
        raise ArgumentError("--plot", repr(str(plot)), f"a name ending in {', '.join(PICTURES)}")
    block = Block.load(path)
    if plot is not None and len(block.shape) > 2:
        raise ArgumentError("--plot", f"a torus of {len(block.shape)} axes", "a ring or a torus of two axes")
    try:
        relation = dispersion_relation(block, _state(state))
        modes = relation.modes(count)
        found = summary(relation, modes)
        if with_fixed_points:
            found["fixed_points"] = [
                {"state": point.state.tolist(), "stable": point.stable, "multipliers": _pairs(point.multipliers)}
                for point in fixed_points(block)
            ]
    except ArgumentError as error:
        option = {"state": "--state", "count": "--modes"}.get(error.argument, error.argument)
        raise ArgumentError(option, error.got, error.accepted) from None
    found = {"file": str(path), **found}
    if plot is not None:
        from figures.modes_plot import save_picture

        found["plot"] = str(save_picture(relation, modes[0], Path(plot), as_title(Path(path).stem)))
    print(json.dumps(finite(found), indent=2, allow_nan=False) if as_json else text(found))


def summary(relation: Dispersion, modes: list[Mode]) -> dict[str, Any]:
    """What the command reports of `relation` and of its leading `modes`; infinite where there is no finite value."""
    block, state = relation.block, relation.state
    growth = float(relation.growth.max())
    verdict = "marginal" if abs(growth - 1) <= MARGIN else "stable" if growth < 1 else "unstable"
    return {
        "shape": list(block.shape),
        "d": block.d,
        "heads": len(block.heads),
        "state": state.tolist(),
        "drift": float(np.linalg.norm(block.homogeneous_map(state) - state)),
        "verdict": verdict,
        "growth": growth,
        "modes": [_mode(mode) for mode in modes],
    }


def text(found: dict[str, Any]) -> str:
    """`found`, a `summary` with the file's name, as lines to read."""
    shape, modes, state = found["shape"], found["modes"], found["state"]
    tokens = f"ring of {shape[0]} tokens" if len(shape) == 1 else f"torus of {' × '.join(map(str, shape))} tokens"
    heads = f"{found['heads']} head{'s' * (found['heads'] > 1)}"
    fixed = found["drift"] <= MARGIN * (1 + np.linalg.norm(state))
    at = "a fixed point" if fixed else f"not a fixed point: one layer moves it by {found['drift']:.3g}"
    lines = [
        f"{found['file']}: {tokens}, d = {found['d']}, {heads}",
        f"state {_numbers(state)}, {at}",
        f"{found['verdict']}: max |Λ| = {found['growth']:.6f} at k = {wave_name(modes[0]['k'])}",
        "",
        *aligned([COLUMNS, *(_row(mode) for mode in modes)]),
    ]
    points = found.get("fixed_points")
    if points is not None:
        lines += ["", "homogeneous fixed points, and max |Λ| at k = 0:" if points else "no isolated fixed point found"]
        rows = [(_numbers(point["state"]), abs(complex(*point["multipliers"][0])), point["stable"]) for point in points]
        lines += aligned([(a, f"{size:.6f}", "stable" if stable else "unstable") for a, size, stable in rows])
    return "\n".join([*lines, *(["", f"wrote {found['plot']}"] if "plot" in found else [])])


def as_title(name: str) -> str:
    """The `name` of a file as text of a picture, where a dollar would begin mathematics; cut if long."""
    text = shown(name, str)
    return (text if len(text) <= 40 else f"{text[:20]}…{text[-15:]}").replace("$", r"\$")


def _state(given: str | None) -> NDArray | None:
    if given is None:
        return None
    accepted = "numbers with commas between them, such as 0.1,0.2, or a .npy file of numbers"
    try:
        if given.endswith(".npy"):
            return read_numbers(given)
        return np.array([float(part) for part in given.split(",")])
    except (OSError, ValueError):
        raise ArgumentError("--state", repr(given), accepted) from None


def _mode(mode: Mode) -> dict[str, Any]:
    # the wavelength is that of q in [−π, π) on each axis
    wavelength = np.linalg.norm((np.atleast_1d(mode.q) + np.pi) % (2 * np.pi) - np.pi)
    return {
        "k": mode.k if isinstance(mode.k, int) else list(mode.k),
        "q": mode.q if isinstance(mode.q, float) else mode.q.tolist(),
        "multiplier": [mode.multiplier.real, mode.multiplier.imag],
        "modulus": abs(mode.multiplier),
        "growth": mode.growth,
        "phase": mode.phase,
        "wavelength": float(2 * np.pi / wavelength) if wavelength else inf,
        "morphology": mode.morphology,
        "condition": mode.condition,
    }


def _row(mode: dict[str, Any]) -> tuple[str, ...]:
    q = mode["q"] if isinstance(mode["q"], list) else [mode["q"]]
    sizes = (f"{mode['modulus']:.6f}", *(f"{mode[name]:+z.6f}" for name in ("growth", "phase")))
    wavelength = f"{mode['wavelength']:.2f}" if isfinite(mode["wavelength"]) else "–"
    condition = f"{mode['condition']:.4g}" if isfinite(mode["condition"]) else "defective"
    return (
        wave_name(mode["k"]),
        ", ".join(f"{part:.4f}" for part in q),
        *sizes,
        wavelength,
        mode["morphology"],
        condition,
    )


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """`rows` with their columns to the right, as standard output can show them."""
    rows = [tuple(map(encodable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]


def _parts(k: Any) -> tuple[int, ...]:
    return (k,) if isinstance(k, int) else tuple(k)


def wave_name(k: Any) -> str:
    """The wavenumber `k`, a number or a list of them, as text."""
    return ", ".join(map(str, _parts(k)))


def _numbers(values: list[float], most: int = 6) -> str:
    if not any(values):
        return "0"
    shown = ", ".join(f"{value:.5g}" for value in values[:most])
    return shown if len(values) == 1 else f"({shown}{', …' * (len(values) > most)})"


def _pairs(values: NDArray[np.complex128]) -> list[list[float]]:
    return [[value.real, value.imag] for value in values.tolist()]


def finite(value: Any) -> Any:
    """`value` with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not isfinite(value) else value
