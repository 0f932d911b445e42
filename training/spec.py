"""Studies from a TOML specification: how the networks train, the tasks and the arms.

steps = 300                     # also: batch, rate, d, …, the fields of the experiment that the tasks belong to
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
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path
from typing import Any

from dispersion import ArgumentError, Block
from dispersion.block.toml_reader import Reader, read_toml
from dispersion.errors import shown
from training.arithmetic_experiment import ArithmeticExperiment
from training.arms import Engineered, Given, RandomMode, Sinusoidal, Standard
from training.boolean_experiment import BooleanExperiment
from training.engineering import Target
from training.fitted import Fitted
from training.looped_experiment import LoopedExperiment
from training.prior_spec import ARITHMETIC, BOOLEAN, PRIORS
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


@dataclass(frozen=True)
class Family:
    """An experiment, what a [[task]] and an [[arm]] of it may be by `type`, and its fields that do not apply."""

    experiment: type[Fitted]
    tasks: Mapping[str, Callable[..., Any]]
    arms: Mapping[str, Callable[..., Any]]
    without: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """Fields of the experiment that a file has."""
        return tuple(item.name for item in fields(self.experiment) if item.name not in (*OUTSIDE, *self.without))

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys of a file."""
        return (*self.settings, "seeds", "sizes", "task", "arm")


FAMILIES = (
    Family(LoopedExperiment, TASKS, ARMS),
    Family(BooleanExperiment, BOOLEAN, PRIORS, ("held_out",)),
    Family(ArithmeticExperiment, ARITHMETIC, PRIORS, ("pool", "rows", "start_row", "start_column")),
)
"""A study file is of the one that its first task belongs to."""

LISTS: dict[str, tuple[Any, str]] = {
    "tuple[int, ...]": (int | float, "whole numbers"),
    "tuple[float, float]": (int | float, "numbers"),
    "Sequence[str]": (str, "names"),
    "Sequence[int]": (int | float, "whole numbers"),
    "int | Sequence[int]": (int | float, "whole numbers, or one number"),
    "Numbers": (int | float, "numbers, or one number"),
    "Words": (str, "names, or one name"),
}
"""Annotations of what is a list in a file, what its items are, and how to say it."""

ONE: dict[str, tuple[type, ...]] = {"int | Sequence[int]": (int,), "Numbers": (int, float), "Words": (str,)}
"""What may stand there in place of a list."""


class StudyReader(Reader):
    """Reads lists besides what blocks are made of."""

    def read(self, path: str, annotation: str, value: object) -> Any:
        """`value` for a parameter with this `annotation`."""
        if annotation not in LISTS:
            return super().read(path, annotation, value)
        if type(value) in ONE.get(annotation, ()):
            return value
        kinds, words = LISTS[annotation]
        if not isinstance(value, list) or not all(isinstance(item, kinds) for item in value):
            raise ArgumentError(path, shown(value), f"a list of {words}")
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
    tables = _tables("task", document.get("task"))
    family = _family(tables[0])
    for key in document:
        if key not in family.keys:
            raise ArgumentError(key, "an unknown key", ", ".join(family.keys))
    settings = {key: document[key] for key in family.settings if key in document}
    experiment = reader.make("", settings, family.experiment, **changes)
    tasks = [reader.choose(f"task[{number}]", table, family.tasks) for number, table in enumerate(tables)]
    given = {"loops": getattr(experiment, "turning", 1), "folder": reader.file.parent}
    arms: list[Any] = []
    for number, table in enumerate(_tables("arm", document.get("arm"))):
        made = reader.choose(f"arm[{number}]", table, family.arms, **given)
        arms += made if isinstance(made, list) else [made]
    many = {name: reader.read(name, kind, document[name]) for name, kind in MANY.items() if name in document}
    return Study(experiment, arms, tasks, **many, specification=text)


def _family(table: Any) -> Family:
    """That of a task."""
    kind = table.get("type") if isinstance(table, dict) else ""
    for family in FAMILIES:
        if isinstance(kind, str) and kind in family.tasks:
            return family
    if not isinstance(table, dict):
        return FAMILIES[0]
    every = ", ".join(name for family in FAMILIES for name in family.tasks)
    raise ArgumentError("task[0].type", "nothing" if kind is None else shown(kind), every)


MANY = {"seeds": "int | Sequence[int]", "sizes": "Sequence[int]"}


def _tables(name: str, value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        got = "nothing" if value is None else shown(value)
        raise ArgumentError(name, got, f"[[{name}]], in two brackets, once for each {name}")
    return value
