"""What verbs print and draw: tables, JSON and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispersion import ArgumentError
from dispersion.block.toml_reader import reason
from dispersion.errors import shown
from tokenwaves.streams import encodable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".pdf", ".png", ".svg")


def report(found: dict[str, Any], text: Callable[[dict[str, Any]], str], as_json: bool) -> None:
    """Print `found` as JSON, with null for what JSON has no number for, or as the `text` of it."""
    print(json.dumps(_finite(found), indent=2, allow_nan=False) if as_json else text(found))


def picture_path(plot: str | None) -> Path | None:
    """The picture to write, of a kind in PICTURES; None for none."""
    if plot is not None and Path(plot).suffix.lower() not in PICTURES:
        raise ArgumentError("plot", repr(plot), f"a name ending in {', '.join(PICTURES)}")
    return None if plot is None else Path(plot)


def check_plane(shape: tuple[int, ...]) -> None:
    """Refuse to draw over the wavenumbers of tokens of this `shape` if they have more than two axes."""
    if len(shape) > 2:
        raise ArgumentError("plot", f"a torus of {len(shape)} axes", "a ring or a torus of two axes")


def factor(size: float) -> str:
    """|Λ|, a factor per layer, to six digits behind the point, or six of them where it is large."""
    return f"{size:.6f}" if size < 1e6 else f"{size:.5e}"


def save_picture(figure: Figure, path: Path) -> str:
    """Write `figure` to `path`; returns that as text."""
    from figures.style import write_picture

    try:
        return str(write_picture(figure, path))
    except OSError as error:
        raise ArgumentError("plot", f"{str(path)!r} ({reason(error)})", "a file that can be written") from None


def as_title(name: str) -> str:
    """The `name` of a file in one line, cut if long."""
    text = shown(name, str)
    return text if len(text) <= 40 else f"{text[:20]}…{text[-15:]}"


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """`rows` with their columns to the right, as standard output can show them."""
    rows = [tuple(map(encodable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]


def wave_name(k: Any) -> str:
    """The wavenumber `k`, a number or a list of them, as text."""
    return str(k) if isinstance(k, int) else ", ".join(map(str, k))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not isfinite(value) else value
