"""Where the outcomes of long work gather on the disk: a folder beside the result file, safe under kill -9.

The folder FILE.parts holds settings.json, one file of raw numbers for each variable, log.jsonl and lock. A range of
points is written to the variables first and flushed to the disk, then one line of the log says that it is done. A line
counts if its own checksum is right, made with the settings, and those of the numbers that it speaks for; the points
of any other are worked on again. A folder whose settings.json is not whole is not ours, and left as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dispersion.atomic import replacing
from dispersion.errors import ArgumentError
from simulate.runs.columns import Column, Part, joined
from simulate.runs.lock import Lock, Locked
from simulate.runs.netcdf import usable
from simulate.runs.store import Origins

SETTINGS, LOG, LOCK, NEW = "settings.json", "log.jsonl", "lock", "new"


class Journal:
    """A Store in the folder of a result file, open to one process at a time; a context manager.

    path : of the result. points : their number. columns : the variables that all work of this kind has.
    settings : strings by name, the same at every resumption. kind : what messages call the work.
    On leaving, a new folder in which nothing is done goes.
    An ArgumentError says if the folder is that of other work, in use, not ours, or there at all and not to be resumed.
    """

    def __init__(
        self,
        path: Path,
        points: int,
        columns: Mapping[str, Column],
        settings: Mapping[str, str],
        resume: bool,
        kind: str = "work",
    ) -> None:
        self.path, self.folder = path, path.with_name(f"{path.name}.parts")
        self._kind = kind
        self.columns = dict(columns)
        self.done = np.zeros(points, dtype=bool)
        self.origins: Origins = []
        self._reasons: dict[int, str] = {}
        self._key = checksum(json.dumps(dict(settings)).encode()).encode()
        with usable(path):
            self._fresh = self._lock_folder(resume)
            try:
                if self._fresh:
                    _write_whole(self.folder / SETTINGS, _sealed({"settings": dict(settings)}, b""))
                else:
                    self._check_settings(settings)
                    self._read_log()
            except BaseException:
                self._lock.release()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told = kind is None or issubclass(kind, Exception | KeyboardInterrupt)
        if told and self._fresh and not self.done.any():
            self.remove()
        else:
            self._lock.release()

    def put(self, part: Part) -> None:
        """Keep the outcomes of a range of points: on the disk when this returns."""
        with usable(self.path):
            self._put(part)

    def _put(self, part: Part) -> None:
        self.columns = joined(self.columns, part.columns)
        shapes, sums = {}, {}
        for name, values in part.values.items():
            column = self.columns[name]
            if column.kind is object:
                continue
            raw = np.ascontiguousarray(values, dtype=column.kind).tobytes()
            shapes[name], sums[name] = list(column.sizes), checksum(raw)
            file = self.folder / f"{name}.raw"
            file.touch()
            with open(file, "r+b") as numbers:
                numbers.seek(part.first * column.bytes_each)
                numbers.write(raw)
                _flush(numbers)
        reasons = {str(point): reason for point, reason in part.reasons.items()}
        line = {"first": part.first, "last": part.last, "origin": part.origin}
        line |= {"reasons": reasons, "shapes": shapes, "sums": sums}
        with open(self.folder / LOG, "ab") as log:
            log.write(_sealed(line, self._key) + b"\n")
            _flush(log)
        self._enter(line)

    def rows(self, name: str, first: int, last: int) -> NDArray:
        """(points, …) of one variable, `first` to `last`."""
        column = self.columns[name]
        found = column.blank(last - first)
        if column.kind is object:
            for point in self._reasons.keys() & set(range(first, last)):
                found[point - first] = self._reasons[point]
            return found
        raw = self._read(name, column, first, last)
        here = self.done[first:last]
        values = np.frombuffer(raw.ljust(found.nbytes, b"\0"), dtype=column.kind).reshape(found.shape)
        found[here] = values[here]
        return found

    def remove(self) -> None:
        """Remove what is ours of the folder, once the result is whole, and the folder if nothing else is in it.

        What is left after a kill in between is known as ours: settings.json goes last.
        """
        names = [LOG, *(f"{name}.raw" for name in self.columns), f"{LOG}.{NEW}", f"result.{NEW}"]
        for name in (*names, SETTINGS, f"{SETTINGS}.{NEW}"):
            with suppress(OSError):
                (self.folder / name).unlink()
        self._lock.remove()
        with suppress(OSError):  # something else lies in it, or another process begins anew
            self.folder.rmdir()

    @property
    def draft(self) -> Path:
        """Where the result is written before it is whole."""
        return self.folder / f"result.{NEW}"

    def _lock_folder(self, resume: bool) -> bool:
        """Make or enter the folder and lock it; whether it is new."""
        while True:
            self.folder.mkdir(exist_ok=True)
            if self.folder.is_symlink() or not self._ours():
                got = f"beside the folder {self.folder.name}, which is no journal of a {self._kind}, or a damaged one"
                raise self._refused(got, f"another path, or {self.folder.name} moved away")
            try:
                self._lock = Lock(self.folder / LOCK)
            except Locked:
                raise self._refused(
                    "which is being written by another process", "another path, or that process to end first"
                ) from None
            except FileNotFoundError:  # removed by its holder in between
                continue
            fresh = not (self.folder / SETTINGS).exists()
            if not fresh and not resume:
                self._lock.release()
                accepted = "resume=True to go on with it, another path, or the folder removed"
                raise self._refused(f"with the unfinished {self._kind} {self.folder.name}", accepted)
            return fresh

    def _ours(self) -> bool:
        """Whether the folder is a journal, or has only what one has before its settings are written."""
        names = set(os.listdir(self.folder))
        return names <= {LOCK, f"{SETTINGS}.{NEW}"} or _opened(_read_whole(self.folder / SETTINGS), b"") is not None

    def _check_settings(self, settings: Mapping[str, str]) -> None:
        found = _opened(_read_whole(self.folder / SETTINGS), b"") or {}
        if difference := differing(found.get("settings"), settings):
            got = f"an unfinished {self._kind} with {difference}"
            raise self._refused(got, "the same call again, or another path")

    def _read_log(self) -> None:
        """Enter the lines that count; the log is left with them alone."""
        log = self.folder / LOG
        text = _read_whole(log)
        kept = []
        for raw in text.splitlines(keepends=True):
            line = _opened(raw, self._key)
            if line is not None and raw.endswith(b"\n") and self._holds(line):
                self._enter(line)
                kept.append(raw)
        if b"".join(kept) != text:
            _write_whole(log, b"".join(kept))

    def _holds(self, line: Mapping[str, Any]) -> bool:
        """Whether the numbers that a whole `line` speaks for are those that were written."""
        first, last = line["first"], line["last"]
        columns = joined(self.columns, _custom(line["shapes"]))
        sums = line["sums"].items()
        return not self.done[first:last].any() and all(
            checksum(self._read(name, columns[name], first, last)) == known for name, known in sums
        )

    def _enter(self, line: Mapping[str, Any]) -> None:
        first, last = line["first"], line["last"]
        self.columns = joined(self.columns, _custom(line["shapes"]))
        self._reasons |= {int(point): reason for point, reason in line["reasons"].items()}
        self.origins.append((first, last, line["origin"]))
        self.done[first:last] = True

    def _read(self, name: str, column: Column, first: int, last: int) -> bytes:
        """What the file of a variable has of some points, less where it ends before."""
        try:
            with open(self.folder / f"{name}.raw", "rb") as numbers:
                numbers.seek(first * column.bytes_each)
                return numbers.read((last - first) * column.bytes_each)
        except FileNotFoundError:
            return b""

    def _refused(self, got: str, accepted: str) -> ArgumentError:
        return ArgumentError("path", f"{str(self.path)!r}, {got}", accepted)


def differing(found: object, settings: Mapping[str, str]) -> str:
    """What of `settings` is not as `found`, in words; empty where nothing differs."""
    known = found if isinstance(found, dict) else {}
    return ", ".join(f"another {name}" for name in {**settings, **known} if known.get(name) != settings.get(name))


def checksum(content: bytes, key: bytes = b"") -> str:
    """Hexadecimal digits that change with any change of `content`, made with `key`."""
    return blake2b(content, digest_size=8, key=key).hexdigest()


def _sealed(content: Mapping[str, Any], key: bytes) -> bytes:
    """A line of JSON with its checksum."""
    check = checksum(json.dumps(content, sort_keys=True).encode(), key)
    return json.dumps({**content, "check": check}).encode()


def _opened(line: bytes, key: bytes) -> dict[str, Any] | None:
    """What was sealed in `line`; None if the line is not what was written, or was made with another key."""
    try:
        content: dict[str, Any] = json.loads(line)
        check = content.pop("check")
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        return None
    return content if check == checksum(json.dumps(content, sort_keys=True).encode(), key) else None


def _custom(shapes: Mapping[str, list[int]]) -> dict[str, Column]:
    return {name: Column.custom(name, tuple(sizes)) for name, sizes in shapes.items()}


def _read_whole(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _write_whole(path: Path, content: bytes) -> None:
    with replacing(path, path.with_name(f"{path.name}.{NEW}")) as temporary:
        temporary.write_bytes(content)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
