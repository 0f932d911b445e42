"""What `tokenwaves check` reports: predictions and measurements as plain values, and as lines to read."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwaves.output import aligned, factor, wave_name

if TYPE_CHECKING:
    from models.check import Check
    from models.line import LineCheck
    from models.subject import Subject

SOURCES = {
    "blocks": "its blocks",
    "chains": "its blocks, of the middle token of the line",
    "measured": "derivatives of each layer",
}
"""Where J(q) comes from."""
MODES = 6
"""How many leading modes are listed."""


def summary(asked: Subject, checked: Check, base: Any, name: str) -> dict[str, Any]:
    """What the command reports of the model `asked` about, `checked` at the state `base`, (d,), called `name`."""
    growth = checked.growth, checked.measured_growth, checked.relative
    columns = (checked.modes, *growth, checked.error, checked.leak, checked.noise)
    waves = [
        {
            "k": _plain(mode.k),
            "predicted": float(predicted),
            "measured": float(measured),
            "against_state": float(relative),
            "error": float(error),
            "leak": float(leak),
            "noise": float(noise),
        }
        for mode, predicted, measured, relative, error, leak, noise in zip(*columns, strict=True)
    ]
    return {
        "model": asked.name,
        "kind": asked.kind,
        "shape": list(asked.shape),
        "d": len(base),
        "layers": checked.layers,
        "boundary": asked.boundary,
        "state": {"name": name, "norm": float(np.linalg.norm(base))},
        "source": checked.source,
        "notes": list(asked.notes),
        "verdict": checked.verdict,
        "confirmed": checked.confirmed,
        "tolerance": checked.tolerance if checked.line is None else checked.line.tolerance,
        "defect": checked.defect,
        "meaning": checked.meaning,
        "spread": checked.spread,
        "stretch": checked.stretch,
        "waves": waves,
        "rows": _merged(waves, _wave_text),
        "modes": [
            {
                "k": _plain(mode.k),
                "multiplier": [mode.multiplier.real, mode.multiplier.imag],
                "growth": mode.growth,
                "rate": mode.rate / checked.layers,
                "phase": mode.phase,
                "morphology": mode.morphology,
            }
            for mode in checked.predicted.modes(MODES)
        ],
        "patterns": [] if checked.line is None else _patterns(checked.line),
    }


def _patterns(line: LineCheck) -> list[dict[str, float]]:
    columns = (line.gain, line.measured_gain, line.error, line.noise, *line.centres.T)
    names = ("predicted", "measured", "error", "noise", "from", "to")
    return [dict(zip(names, map(float, row), strict=True)) for row in zip(*columns, strict=True)]


def _merged(rows: list[dict[str, Any]], read: Callable[[dict[str, Any]], tuple]) -> list[dict[str, Any]]:
    """`rows` with those whose k follow each other and that `read` the same in one: k a list of the first and, of
    several, of the last; error, leak and noise the largest of them.
    """
    merged: list[dict[str, Any]] = []
    for row in rows:
        k, before = row["k"], merged[-1] if merged else None
        if before and isinstance(k, int) and k == before["k"][-1] + 1 and read(row) == read(before):
            worst = {name: max(before[name], row[name]) for name in ("error", "leak", "noise") if name in row}
            before.update(**worst, k=[before["k"][0], k])
        else:
            merged.append({**row, "k": [k]})
    return merged


def _wave_text(wave: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{wave[name]:.9g}" for name in ("predicted", "measured"))


def _mode_text(mode: dict[str, Any]) -> tuple[str, ...]:
    return factor(mode["growth"]), _signed(mode["phase"]), mode["morphology"]


def _waves(ks: list[Any]) -> str:
    return " … ".join(wave_name(k) for k in ks)


def text(found: dict[str, Any]) -> str:
    """`found`, a `summary`, as lines to read."""
    shape, count = found["shape"], found["layers"]
    line = "ring" if found["boundary"] == "periodic" else "line"
    tokens = f"{line} of {shape[0]} tokens" if len(shape) == 1 else f"torus of {' × '.join(map(str, shape))} tokens"
    source, against = SOURCES[found["source"]], isfinite(found["stretch"])
    lines = [
        f"{found['model']} ({found['kind']}): {tokens}, d = {found['d']}, {_layers(count)}",
        f"state {found['state']['name']}, |a| = {found['state']['norm']:.4g}; J(q) from {source}",
        *(f"note: {note}" for note in found["notes"]),
        found["verdict"],
        f"in short: {found['meaning']}",
        *([f"the state itself is multiplied by {found['stretch']:.4g}"] if against else []),
        f"circulant defect {found['defect']:.1e}, spread of the state over the tokens {found['spread']:.1e}",
        "",
        *_on_a_line(found),
        *aligned(
            [
                ("k", "predicted growth", "measured growth", *["against the state"] * against, "relative error"),
                *(
                    (
                        _waves(row["k"]),
                        f"{row['predicted']:.9g}",
                        f"{row['measured']:.9g}",
                        *[f"{row['against_state']:.4g}"] * against,
                        f"{row['error']:.1e}",
                    )
                    for row in found["rows"]
                ),
            ]
        ),
        "",
        f"leading modes over {count} layer{'s' * (count > 1)}:",
        *aligned(
            [
                ("k", "|Λ|", "rate per layer", "arg Λ", "morphology"),
                *(
                    (
                        _waves(row["k"]),
                        factor(row["growth"]),
                        *map(_signed, (row["rate"], row["phase"])),
                        row["morphology"],
                    )
                    for row in _merged(found["modes"], _mode_text)
                ),
            ]
        ),
    ]
    return "\n".join([*lines, *(["", f"wrote {found['plot']}"] if "plot" in found else [])])


def _on_a_line(found: dict[str, Any]) -> list[str]:
    """The patterns that grow most on a line of tokens, before the waves; nothing on a ring."""
    if not found["patterns"]:
        return []
    over = _layers(found["layers"])
    return [
        f"what grows most on the line over {over}, and around which token:",
        *aligned(
            [
                ("predicted growth", "measured growth", "relative error", "token before", "after"),
                *(
                    (
                        f"{p['predicted']:.9g}",
                        f"{p['measured']:.9g}",
                        f"{p['error']:.1e}",
                        f"{p['from']:.1f}",
                        f"{p['to']:.1f}",
                    )
                    for p in found["patterns"]
                ),
            ]
        ),
        "",
        f"waves over {over}, as J(q) has them:",
    ]


def _layers(count: int) -> str:
    return f"{count} layer{'s' * (count > 1)}"


def _signed(value: float) -> str:
    return f"{value:+z.6f}" if isfinite(value) else "–"


def _plain(k: Any) -> Any:
    return k if isinstance(k, int) else list(k)
