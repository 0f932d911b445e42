"""Studies: arms trained on tasks, from several seeds and training sizes, all arms of a seed on the same draws."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import instance, items, shown, whole_number
from simulate.runs.identity import PLAIN, digest
from simulate.runs.netcdf import checked_path, load
from simulate.runs.spread import Jobs, jobs_of
from simulate.runs.store import Memory
from simulate.runs.versions import version
from simulate.runs.work import Work
from training.experiment import Experiment
from training.units import ENDINGS, STATUS, Units

if TYPE_CHECKING:
    from xarray import Dataset

    from simulate.runs.progress import Shown

SEEDS = 10**6
"""The most seeds that can be asked for by their number."""

DESCRIBED = ("experiment", "arms", "tasks")
"""Fields of a study that its results have as attributes, in JSON."""

RESERVED = {*ENDINGS, "task", "seed", "size", "arm", "role"}


@dataclass(frozen=True, eq=False)
class Study:
    """Arms × tasks × seeds × training sizes, paired: the arms of a seed share everything but what they are.

    The unit of work is one task, seed and size, with all arms side by side, so that no number depends on who did it.

    Parameters
    ----------
    experiment : Experiment
        How arms are trained.
    arms, tasks : sequence of object
        What is trained, and on what; each has a `name` of its own. Objects of any class that `experiment` takes.
    seeds : int or sequence of int
        Whole numbers, or how many from 0 on.
    sizes : sequence of int
        Examples in the training set.
    specification : str
        The text it was read from, if it was; kept in the result.

    Raises
    ------
    ArgumentError
        Names what cannot be used.
    """

    experiment: Experiment
    arms: Sequence[Any]
    tasks: Sequence[Any]
    seeds: int | Sequence[int] = 12
    sizes: Sequence[int] = (512,)
    specification: str = ""

    def __post_init__(self) -> None:
        instance("experiment", self.experiment, Experiment)
        for name in ("arms", "tasks"):
            object.__setattr__(self, name, _named(name, getattr(self, name)))
        seeds: Any = self.seeds
        if not isinstance(seeds, Sequence | np.ndarray):
            seeds = range(whole_number("seeds", seeds, 1, SEEDS))
        object.__setattr__(self, "seeds", _different("seeds", seeds, 0))
        object.__setattr__(self, "sizes", _different("sizes", self.sizes, 1))
        for name in (taken := set(self.experiment.columns(self.arms, self.tasks))) & RESERVED:
            raise ArgumentError("experiment", f"a column {name!r}", "other names than those of every study")
        for name in set(self.experiment.coordinates(self.arms, self.tasks)) & (RESERVED | taken):
            raise ArgumentError("experiment", f"a dimension {name!r}", "other names than those of every study")
        for task in self.tasks:
            self.experiment.check(self.arms, task, self._axes["seed"][0].item())

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], device: str = "cpu", autocast: bool = False, compile: bool = False
    ) -> Study:
        """The study that a TOML file specifies.

        Parameters
        ----------
        path : path-like
            The file; docs/files.md has its keys.
        device, autocast, compile : str or bool
            Of `Fitted`, which a file does not say.

        Raises
        ------
        ArgumentError
            Names the key that cannot be used.
        """
        from training.spec import load

        return load(path, device=device, autocast=autocast, compile=compile)

    @property
    def units(self) -> int:
        """Units of work."""
        return prod(map(len, self._axes.values()))

    @property
    def estimate(self) -> str:
        """How much work it is."""
        parts = " × ".join(f"{len(values)} {name}{'s' * (len(values) > 1)}" for name, values in self._axes.items())
        arms = f"{len(self.arms)} arm{'s' * (len(self.arms) > 1)}"
        return f"{self.units} unit{'s' * (self.units > 1)} ({parts}) of {arms}, {self.experiment.steps} steps each"

    def run(
        self,
        path: str | os.PathLike[str] | None = None,
        resume: bool = True,
        workers: int = 1,
        progress: Shown = None,
    ) -> Dataset:
        """Train what is not trained yet.

        Ctrl-C ends it early: what is finished is kept and the attribute `interrupted` is 1; the same call goes on.
        After kill -9 no finished unit is lost either.

        Parameters
        ----------
        path : path-like, optional
            A netCDF file for the result; finished units gather in the folder `path`.parts until then.
        resume : bool
            Go on with the unfinished study at `path`, or return a finished one, if it has the same settings.
        workers : int
            Processes, each with one thread; 1 for this process alone. They change no number.
        progress : bool or 'lines', optional
            A bar on stderr; None shows it on a terminal only; 'lines' for a plain line every half minute.

        Returns
        -------
        xarray.Dataset
            Over task, seed, size and arm: what the experiment records, status and reason of each unit, and the role of
            each arm for each task.

        Raises
        ------
        ArgumentError
            A file that holds another study, or cannot be written; a study of which nothing could be trained.
        """
        workers = whole_number("workers", workers, 1, 1024)
        axes = self._axes
        seeds, sizes = (tuple(axes[name].tolist()) for name in ("seed", "size"))
        units = Units(self.experiment, tuple(self.arms), tuple(self.tasks), seeds, sizes)
        jobs = Jobs(0, {}) if workers == 1 else jobs_of(workers, "loky")
        work = Work(
            units, axes, self._settings(), None, jobs, 1, self._attributes(), self._coordinates(), self._variables()
        )
        if path is None:
            store = Memory(len(units), units.columns)
            work.run(store, progress)
            data = work.result(store).dataset()
        else:
            target = checked_path(path)
            work.run_at(target, resume, progress)
            data = load(target)
        if (data.status != STATUS.index("failed")).any():
            return data
        raise ArgumentError("study", f"no unit that can be trained ({data.reason.values.flat[0]})", "one at least")

    def recognise(self, data: Dataset) -> None:
        """Refuse results of another study.

        What the results do not know, such as a setting that came later, and versions do not count.

        Parameters
        ----------
        data : xarray.Dataset
            Results, with the attributes that `run` gives them.

        Raises
        ------
        ArgumentError
            Names what is not that of this study.
        """
        try:
            known = {name: json.loads(data.attrs[name]) for name in DESCRIBED}
            known |= {name: data[name[:-1]].values.tolist() for name in ("seeds", "sizes")}
        except (KeyError, TypeError, ValueError):
            raise ArgumentError("data", "no results of a study", "what a study has written") from None
        here = {name: _tables(getattr(self, name)) for name in known}
        if other := [name for name in known if not _within(known[name], here[name])]:
            raise ArgumentError("data", f"results with other {', '.join(other)}", "those of this study")

    @property
    def _axes(self) -> dict[str, NDArray]:
        """What numbers the units, by name."""
        return {
            "task": np.array([task.name for task in self.tasks]),
            "seed": np.array(self.seeds, dtype=np.int64),
            "size": np.array(self.sizes, dtype=np.int64),
        }

    def _settings(self) -> dict[str, str]:
        """What makes a study another, by name."""
        columns = self.experiment.columns(self.arms, self.tasks)
        parts = {name: digest(getattr(self, name)) for name in ("arms", "tasks", "seeds", "sizes")}
        return {
            "experiment": type(self.experiment).__qualname__,
            **{name: _setting(value) for name, value in _fields(self.experiment).items()},
            **parts,
            "columns": digest([(name, column.dims, column.sizes) for name, column in columns.items()]),
            "version": version(),
            "version of torch": version("torch"),
        }

    def _attributes(self) -> dict[str, Any]:
        return {
            "title": f"{len(self.arms)} arms trained on {len(self.tasks)} tasks, paired by seed",
            **{name: _described(getattr(self, name)) for name in DESCRIBED},
            "specification": self.specification,
            "torch_version": version("torch"),
        }

    def _coordinates(self) -> dict[str, Any]:
        names = np.array([arm.name for arm in self.arms])
        return {"arm": (("arm",), names, {"long_name": "arm"}), **self.experiment.coordinates(self.arms, self.tasks)}

    def _variables(self) -> dict[str, Any]:
        roles = [[self.experiment.role(arm, task) for arm in self.arms] for task in self.tasks]
        described = {"long_name": "what the arm is to the task: matched, mismatched or baseline", "units": "1"}
        return {"role": (("task", "arm"), np.array(roles), described)}


def _named(argument: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """`values`, one or more, each with a name of its own that can be printed."""
    found = tuple(items(argument, values))
    if not found:
        raise ArgumentError(argument, "none", "one or more")
    taken: set[str] = set()
    for number, value in enumerate(found):
        name = getattr(value, "name", None)
        if not isinstance(name, str) or not name or name != shown(name, str) or name in taken:
            got = f"{type(value).__name__} with the name {shown(name)}"
            raise ArgumentError(f"{argument}[{number}]", got, "an object with a name of its own, in one line")
        taken.add(name)
    return found


def _different(argument: str, values: Sequence[int], least: int) -> tuple[int, ...]:
    """`values`, one or more different whole numbers."""
    found = [whole_number(f"{argument}[{place}]", value, least) for place, value in enumerate(items(argument, values))]
    if not found or len(set(found)) < len(found):
        raise ArgumentError(argument, shown(found), "one whole number or more, all different")
    return tuple(found)


def _fields(value: Any) -> Mapping[str, Any]:
    """The fields of a dataclass by name, else all that there is to an object."""
    if is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    return {"settings": value}


def _setting(value: Any) -> str:
    return repr(value) if type(value) in PLAIN else digest(value)


def _described(value: Any) -> str:
    """`value` as JSON, dataclasses as tables with their type."""
    return json.dumps(_tables(value), ensure_ascii=False)


def _within(known: Any, here: Any) -> bool:
    """Whether tables agree, but for keys that are `here` alone."""
    if isinstance(known, dict):
        return isinstance(here, dict) and all(key in here and _within(known[key], here[key]) for key in known)
    if isinstance(known, list):
        same = isinstance(here, list) and len(known) == len(here)
        return same and all(_within(*pair) for pair in zip(known, here, strict=True))
    return bool(known == here)


def _tables(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, **{name: _tables(part) for name, part in _fields(value).items()}}
    if isinstance(value, Mapping):
        return {str(name): _tables(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_tables(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value if type(value) in PLAIN - {bytes, complex} else shown(type(value).__qualname__, str)
