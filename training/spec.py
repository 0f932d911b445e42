"""Studies from a TOML specification: how the networks train, the tasks and the arms.

steps = 300                     # also: batch, rate, loops, d, …, the fields of LoopedExperiment
seeds = 12
sizes = [512]

[[task]]                        # once for each task
type = "spectral_infilling"
carrier = 4

[[arm]]                         # once for each arm
type = "engineered"
wavenumber = 4

docs/files.md describes every key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

from dispersion import ArgumentError, Block
from dispersion.block.toml_reader import Reader, read_toml
from dispersion.errors import shown
from training.arms import Engineered, Given, RandomMode, Sinusoidal, Standard
from training.engineering import Target
from training.looped_experiment import LoopedExperiment
from training.study import Study
from training.tasks import CoherentShift, FeatureRotation, SpectralInfilling

TASKS: dict[str, Callable[..., Any]] = {
    "spectral_infilling": SpectralInfilling,
    "coherent_shift": CoherentShift,
    "feature_rotation": FeatureRotation,
}
"""What a [[task]] may be, by its `type`."""


def engineered(
    loops: int,
    wavenumber: int,
    angle: float = 0.0,
    rotation: float = 0.0,
    growth: float = 1.10,
    homogeneous: float = 1.045,
    helicity: int = 0,
    construction: str = "three",
    contraction: float = 0.9,
    sharpness: float = 4.0,
    label: str = "",
) -> Engineered:
    """An `Engineered` arm that turns by these angles in so many `loops`."""
    target = Target.over(loops, wavenumber, angle, rotation, growth, homogeneous, helicity)
    return Engineered(target, construction, contraction, sharpness, label)


def saved(folder: Path, file: str, label: str = "") -> Given:
    """The `Given` arm of a block file, whose place is told from the `folder` of the study."""
    try:
        block = Block.load(folder / file)
    except ArgumentError as error:
        raise ArgumentError("file", f"{file!r} ({error.argument}: got {error.got})", error.accepted) from None
    return Given(block, label or Path(file).stem)


ARMS: dict[str, Callable[..., Any]] = {
    "engineered": engineered,
    "random_mode": RandomMode,
    "standard": Standard,
    "sinusoidal": Sinusoidal,
    "block": saved,
}
"""What an [[arm]] may be, by its `type`."""

OUTSIDE = ("device", "autocast", "compile")
"""Fields of the experiment that a file does not have: they are of the machine."""

SETTINGS = tuple(item.name for item in fields(LoopedExperiment) if item.name not in OUTSIDE)
KEYS = (*SETTINGS, "seeds", "sizes", "task", "arm")

LISTS = {"tuple[int, ...]": "whole numbers", "tuple[float, float]": "numbers", "Sequence[str]": "names"}
LISTS |= {"Sequence[int]": "whole numbers", "int | Sequence[int]": "whole numbers, or one number"}
"""Annotations of what is a list in a file, and what it is of."""


class StudyReader(Reader):
    """Reads lists besides what blocks are made of."""

    def read(self, path: str, annotation: str, value: object) -> Any:
        """`value` for a parameter with this `annotation`."""
        if annotation not in LISTS:
            return super().read(path, annotation, value)
        if annotation.startswith("int |") and type(value) is int:
            return value
        kinds = str if annotation == "Sequence[str]" else int | float
        if not isinstance(value, list) or not all(isinstance(item, kinds) for item in value):
            raise ArgumentError(path, shown(value), f"a list of {LISTS[annotation]}")
        return tuple(value)

    def choose(self, path: str, table: object, kinds: Mapping[str, Callable[..., Any]], **given: Any) -> Any:
        """What the `table` makes, of the kind that its `type` names."""
        if not isinstance(table, dict):
            raise ArgumentError(path, shown(table), "a table of keys")
        kind = table.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            raise ArgumentError(f"{path}.type", "nothing" if kind is None else shown(kind), ", ".join(kinds))
        rest = {key: value for key, value in table.items() if key != "type"}
        taken = {name: given[name] for name in signature(kinds[kind]).parameters if name in given}
        return self.make(path, rest, kinds[kind], **taken)


def load(path: str | os.PathLike[str], **changes: Any) -> Study:
    """As `Study.load`."""
    path = Path(path)
    document, text = read_toml(path, "study", "a TOML file of a study")
    try:
        return _study(StudyReader(path), document, text, changes)
    except ArgumentError as error:
        name = re.sub(r"^(arm|task)s\b", r"\1", error.argument).lstrip(".")
        where = name if name in OUTSIDE else f"{path.name}: {name}"
        raise ArgumentError(where, error.got, error.accepted) from None


def _study(reader: StudyReader, document: Mapping[str, Any], text: str, changes: Mapping[str, Any]) -> Study:
    for key in document:
        if key not in KEYS:
            raise ArgumentError(key, "an unknown key", ", ".join(KEYS))
    settings = {key: document[key] for key in SETTINGS if key in document}
    experiment = reader.make("", settings, LoopedExperiment, **changes)
    tasks = [
        reader.choose(f"task[{number}]", table, TASKS)
        for number, table in enumerate(_tables("task", document.get("task")))
    ]
    arms = [
        reader.choose(f"arm[{number}]", table, ARMS, loops=experiment.turning, folder=reader.file.parent)
        for number, table in enumerate(_tables("arm", document.get("arm")))
    ]
    given = {name: reader.read(name, kind, document[name]) for name, kind in MANY.items() if name in document}
    return Study(experiment, arms, tasks, **given, specification=text)


MANY = {"seeds": "int | Sequence[int]", "sizes": "Sequence[int]"}


def _tables(name: str, value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        got = "nothing" if value is None else shown(value)
        raise ArgumentError(name, got, f"[[{name}]], in two brackets, once for each {name}")
    return value
