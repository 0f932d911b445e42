"""The report of a run: what the paper claims, what was found here, and whether they agree."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dispersion import ArgumentError
from figures.files import write_text
from simulate.runs.versions import version

Value = float | int | str | None
"""What a claim compares: a number, a word, or nothing."""

PACKAGES = ("tokenwaves", "numpy", "scipy", "numba", "xarray", "matplotlib")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, tested against data.

    id : stable, such as 'fig3.amplitude.near_onset.cubic'; claim : what is claimed, a sentence.
    paper : the paper's value, None where it gives none; here : the value found; met : whether they
    agree, by the rule that `note` states.
    """

    id: str
    claim: str
    paper: Value
    here: Value
    met: bool
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "met", bool(self.met))

    def row(self) -> dict[str, object]:
        """The claim as plain values; a number that is not finite becomes None."""
        values = {name: getattr(self, name) for name in ("id", "claim", "paper", "here", "met", "note")}
        return {name: plain(value) for name, value in values.items()}


def plain(value: object) -> object:
    """`value` as JSON can hold it: numpy scalars and arrays unpacked, NaN and infinities as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a figure depends on; 'not installed' where one is not."""
    return {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}}


def write_report(claims: Sequence[Claim], folder: Path, settings: Mapping[str, object]) -> list[Path]:
    """Write report.json and report.md to `folder`; returns both paths.

    claims : in the order to list them, ids all different; settings : what the run was asked for and
    the settings and seeds of each figure, nested at most two deep.
    """
    ids = [claim.id for claim in claims]
    if len(set(ids)) < len(ids):
        twice = sorted({i for i in ids if ids.count(i) > 1})
        raise ArgumentError("claims", f"the id {twice[0]} more than once", "a different id for each claim")
    report = {"claims": [claim.row() for claim in claims], "settings": plain(settings), "versions": versions()}
    text = json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return [write_text(text, folder / "report.json"), write_text(markdown(claims, settings), folder / "report.md")]


def markdown(claims: Sequence[Claim], settings: Mapping[str, object]) -> str:
    """The report as Markdown: a row per claim, then settings and versions."""
    met = sum(claim.met for claim in claims)
    lines = [
        "# Claims of the paper",
        "",
        f"{met} of {len(claims)} met.",
        "",
        "| id | claim | paper | here | met | note |",
        "|---|---|---|---|---|---|",
    ]
    for claim in claims:
        cells = (
            f"`{claim.id}`",
            claim.claim,
            _text(claim.paper),
            _text(claim.here),
            "✓" if claim.met else "✗",
            claim.note,
        )
        lines.append("| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |")
    lines += ["", "## Settings", ""]
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines.append(f"- {key}")
            lines += [f"    - {name}: {_text(item)}" for name, item in value.items()]
        else:
            lines.append(f"- {key}: {_text(value)}")
    lines += ["", "## Versions", "", *(f"- {package} {number}" for package, number in versions().items()), ""]
    return "\n".join(lines)


def _text(value: object) -> str:
    value = plain(value)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, dict):
        return "; ".join(f"{key} {_text(item)}" for key, item in value.items())
    return str(value)
