"""What `tokenwaves dispersion` reports: the leading modes of a block as plain values, and as lines to read."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, Dispersion, FixedPoint, Mode
from dispersion.block.stored import read_numbers
from tokenwaves.output import aligned, factor, wave_name

MARGIN = 1e-12
"""Relative size under which max |Λ| − 1 and g(a) − a count as zero."""
COLUMNS = ("k", "q", "|Λ|", "γ", "ω", "wavelength", "morphology", "condition")


def state_of(given: str | None) -> NDArray | None:
    """The state that the option `given` names: numbers with commas between them, or a .npy file; None for none."""
    if given is None:
        return None
    accepted = "numbers with commas between them, such as 0.1,0.2, or a .npy file of numbers"
    try:
        if given.endswith(".npy"):
            return read_numbers(given)
        return np.array([float(part) for part in given.split(",")])
    except (OSError, ValueError):
        raise ArgumentError("state", repr(given), accepted) from None


def summary(relation: Dispersion, modes: list[Mode], points: list[FixedPoint] | None) -> dict[str, Any]:
    """What the command reports of `relation`, of its leading `modes` and of the fixed `points`, if they are asked for;
    infinite where there is no finite value.
    """
    block, state = relation.block, relation.state
    growth = float(relation.growth.max())
    verdict = "marginal" if abs(growth - 1) <= MARGIN else "stable" if growth < 1 else "unstable"
    found: dict[str, Any] = {
        "shape": list(block.shape),
        "d": block.d,
        "heads": len(block.heads),
        "state": state.tolist(),
        "drift": float(np.linalg.norm(block.homogeneous_map(state) - state)),
        "verdict": verdict,
        "growth": growth,
        "modes": [_mode(mode) for mode in modes],
    }
    if points is not None:
        found["fixed_points"] = [
            {"state": point.state.tolist(), "stable": point.stable, "multipliers": _pairs(point.multipliers)}
            for point in points
        ]
    return found


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
        f"{found['verdict']}: max |Λ| = {factor(found['growth'])} at k = {wave_name(modes[0]['k'])}",
        "",
        *aligned([COLUMNS, *(_row(mode) for mode in modes)]),
    ]
    points = found.get("fixed_points")
    if points is not None:
        lines += ["", "homogeneous fixed points, and max |Λ| at k = 0:" if points else "no isolated fixed point found"]
        rows = [(_numbers(point["state"]), abs(complex(*point["multipliers"][0])), point["stable"]) for point in points]
        lines += aligned([(a, factor(size), "stable" if stable else "unstable") for a, size, stable in rows])
    return "\n".join([*lines, *(["", f"wrote {found['plot']}"] if "plot" in found else [])])


def _mode(mode: Mode) -> dict[str, Any]:
    # the wavelength is that of q in [−π, π) on each axis
    wavelength = np.linalg.norm((np.atleast_1d(mode.q) + np.pi) % (2 * np.pi) - np.pi)
    return {
        "k": mode.k if isinstance(mode.k, int) else list(mode.k),
        "q": mode.q if isinstance(mode.q, float) else mode.q.tolist(),
        "multiplier": [mode.multiplier.real, mode.multiplier.imag],
        "growth": mode.growth,
        "rate": mode.rate,
        "phase": mode.phase,
        "wavelength": float(2 * np.pi / wavelength) if wavelength else inf,
        "morphology": mode.morphology,
        "condition": mode.condition,
    }


def _row(mode: dict[str, Any]) -> tuple[str, ...]:
    q = mode["q"] if isinstance(mode["q"], list) else [mode["q"]]
    sizes = (factor(mode["growth"]), *(f"{mode[name]:+z.6f}" for name in ("rate", "phase")))
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


def _numbers(values: list[float], most: int = 6) -> str:
    if not any(values):
        return "0"
    shown = ", ".join(f"{value:.5g}" for value in values[:most])
    return shown if len(values) == 1 else f"({shown}{', …' * (len(values) > most)})"


def _pairs(values: NDArray[np.complex128]) -> list[list[float]]:
    return [[value.real, value.imag] for value in values.tolist()]
