"""The families of networks that `tokenwaves check` knows: their model types, and how predictions for them are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwaves.streams import encodable

if TYPE_CHECKING:
    from models.adapters.reference import Reference


def table() -> str:
    """The families that are registered, a line each."""
    from models.adapters.registry import ROUTES, families

    rows = [("family", "model_type", "what", "prediction", "compared with")]
    for one in families().values():
        kinds = ", ".join(one.model_types) or "–"
        rows.append((one.name, kinds, one.what, ROUTES[one.route], _package(one.reference)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return encodable("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows))


def _package(reference: Reference | None) -> str:
    if reference is None:
        return "nothing"
    return reference.package if reference.installed else f"{reference.package} (not installed)"
