"""Where the outcomes of a sweep gather: in memory, or in a folder beside the result file, safe under kill -9.

The folder FILE.parts holds settings.json, one file of raw numbers for each variable, and log.jsonl. A range of
points is written to the variables first and flushed to the disk, then one line of the log says that it is done; what
no whole line of the log speaks for does not count.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from simulate.points import Part, check_sizes
from simulate.results import Column, custom_column

BLOCK = 2**16
"""Points that are filled at a time."""


class Store(Protocol):
    """Outcomes by point. done : (points,) which points have one. columns : the variables so far, by name."""

    done: NDArray[np.bool_]
    columns: dict[str, Column]

    def put(self, part: Part) -> None:
        """Keep the outcomes of a range of points."""

    def rows(self, name: str, first: int, last: int) -> NDArray:
        """(points, …) of one variable, `first` to `last`."""


class Memory:
    """A Store in memory, of `columns` for `points` points."""

    def __init__(self, points: int, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)
        self.done = np.zeros(points, dtype=bool)
        self._values = {name: column.blank(points) for name, column in columns.items()}

    def put(self, part: Part) -> None:
        """Keep the outcomes of a range of points."""
        for name, values in part.values.items():
            column = self.columns.setdefault(name, part.columns[name])
            check_sizes(name, values.shape[1:], column)
            if name not in self._values:
                self._values[name] = column.blank(len(self.done))
            self._values[name][part.first : part.last] = values
        self.done[part.first : part.last] = True

    def rows(self, name: str, first: int, last: int) -> NDArray:
        """(points, …) of one variable, `first` to `last`."""
        return self._values[name][first:last]


class Journal:
    """A Store in the folder of a result file.

    path : of the result. points : of the sweep. columns : the variables that all sweeps of this kind have.
    settings : strings by name, the same at every resumption. An ArgumentError says if the folder is that of another
    sweep, or there at all and not to be resumed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        points: int,
        columns: Mapping[str, Column],
        settings: Mapping[str, str],
        resume: bool,
    ) -> None:
        self.folder = journal_folder(path)
        self.columns = dict(columns)
        self.done = np.zeros(points, dtype=bool)
        self._reasons: dict[int, str] = {}
        if self.folder.exists():
            if not resume:
                accepted = "resume=True to go on with it, another path, or the folder removed"
                raise ArgumentError("path", f"{str(path)!r} with the unfinished sweep {self.folder.name}", accepted)
            _check_settings(self._read_settings(), settings, str(path))
            self._read_log()
        else:
            try:
                self.folder.mkdir()
            except OSError as error:
                got = f"{str(path)!r} ({error.strerror or error})"
                raise ArgumentError("path", got, "a path where a folder can be made") from None
        _write_whole(self.folder / "settings.json", json.dumps(dict(settings), indent=1).encode())

    def put(self, part: Part) -> None:
        """Keep the outcomes of a range of points: on the disk when this returns."""
        shapes = {}
        for name, values in part.values.items():
            column = self.columns.setdefault(name, part.columns[name])
            check_sizes(name, values.shape[1:], column)
            if column.kind is object:
                continue
            shapes[name] = list(column.sizes)
            file = self._file(name, column)
            with open(file, "r+b") as numbers:
                numbers.seek(part.first * column.bytes_each)
                numbers.write(np.ascontiguousarray(values, dtype=column.kind).tobytes())
                _flush(numbers)
        reasons = {str(point): reason for point, reason in part.reasons.items()}
        line = {"first": part.first, "last": part.last, "reasons": reasons, "shapes": shapes}
        with open(self.folder / "log.jsonl", "ab") as log:
            log.write(json.dumps(line).encode() + b"\n")
            _flush(log)
        self._reasons |= part.reasons
        self.done[part.first : part.last] = True

    def rows(self, name: str, first: int, last: int) -> NDArray:
        """(points, …) of one variable, `first` to `last`."""
        column = self.columns[name]
        if column.kind is object:
            found = column.blank(last - first)
            for point in self._reasons.keys() & set(range(first, last)):
                found[point - first] = self._reasons[point]
            return found
        with open(self._file(name, column), "rb") as numbers:
            numbers.seek(first * column.bytes_each)
            raw = numbers.read((last - first) * column.bytes_each)
        values = np.frombuffer(raw, dtype=column.kind).reshape(last - first, *column.sizes).copy()
        values[~self.done[first:last]] = column.fill
        return values

    def remove(self) -> None:
        """Remove the folder, once the result is whole."""
        shutil.rmtree(self.folder)

    def _file(self, name: str, column: Column) -> Path:
        """The file of a variable, made whole and blank when first asked for."""
        file = self.folder / f"{name}.raw"
        if not file.exists():
            temporary = file.with_suffix(".new")
            with open(temporary, "wb") as numbers:
                for first in range(0, len(self.done), BLOCK):
                    count = min(BLOCK, len(self.done) - first)
                    numbers.write(column.blank(count).tobytes())
                _flush(numbers)
            os.replace(temporary, file)
        return file

    def _read_settings(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads((self.folder / "settings.json").read_bytes())
        except (OSError, ValueError):
            found = {}
        return found

    def _read_log(self) -> None:
        for line in _whole_lines(self.folder / "log.jsonl"):
            self.done[line["first"] : line["last"]] = True
            self._reasons |= {int(point): reason for point, reason in line["reasons"].items()}
            for name, sizes in line["shapes"].items():
                self.columns.setdefault(name, custom_column(name, tuple(sizes)))


def journal_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of the result file `path`."""
    return Path(f"{os.fspath(path)}.parts")


def _check_settings(found: Mapping[str, str], settings: Mapping[str, str], path: str) -> None:
    other = [name for name in settings if found.get(name) != settings[name]]
    if found and other:
        got = f"{path!r}, an unfinished sweep with another {', another '.join(other)}"
        raise ArgumentError("path", got, "the same call again, or another path")


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log that were written to their end; what follows a torn one is cut off."""
    if not path.exists():
        return
    text = path.read_bytes()
    end = text.rfind(b"\n") + 1
    if end < len(text):
        with open(path, "r+b") as log:
            log.truncate(end)
    for line in text[:end].splitlines():
        yield json.loads(line)


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".new")
    with open(temporary, "wb") as file:
        file.write(content)
        _flush(file)
    os.replace(temporary, path)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
