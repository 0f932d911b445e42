"""Datasets on disk: netCDF 4, written whole or not at all. xarray and netCDF4 are imported on first use."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.atomic import replacing
from dispersion.errors import ArgumentError, file_path, flag, instance
from dispersion.quiet import harmless_underflow

if TYPE_CHECKING:
    from xarray import Dataset

    from simulate.runs.result import Result

ROWS = 2**15
"""About how many points are copied at a time."""


@harmless_underflow
def save(dataset: Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset to a netCDF file and return the path.

    The file appears complete, through a temporary file in the same directory; the same dataset gives the same bytes.

    Parameters
    ----------
    dataset : xarray.Dataset
        What is written.
    path : path-like
        The file.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    ArgumentError
        A path that cannot be written.
    """
    import xarray

    instance("dataset", dataset, xarray.Dataset)
    path = file_path("path", path)
    with usable(path), replacing(path) as temporary:
        try:
            dataset.to_netcdf(temporary, engine="netcdf4", format="NETCDF4")
        except (TypeError, ValueError) as error:
            raise ArgumentError("dataset", str(error), "what a netCDF file can hold") from None
    return path


def write(result: Result, path: Path, draft: Path) -> None:
    """Write `result` as `save` writes its dataset, holding few points in memory at a time.

    draft : where it is written until it is whole.
    """
    from netCDF4 import Dataset as File

    with usable(path), replacing(path, draft), File(draft, "w", format="NETCDF4") as file:
        _fill(file, result)


def _fill(file: Any, result: Result) -> None:
    file.set_fill_off()
    file.setncatts(result.attributes)
    for dim, size in result.sizes.items():
        file.createDimension(dim, size)
    for name, (dims, values, described) in result.known.items():
        variable = _variable(file, name, values.dtype, dims, described)
        variable[...] = values.astype(object) if values.dtype.kind == "U" else values
    for name, (dims, kind, described) in result.variables.items():
        variable = _variable(file, name, np.dtype(kind), dims, described)
        for rows, first, last in _slabs(result.shape):
            values = result.store.rows(name, first, last)
            variable[rows] = values.reshape(-1, *result.shape[1:], *values.shape[1:])


@harmless_underflow
def load(path: str | os.PathLike[str], lazy: bool = False) -> Dataset:
    """The dataset saved in a file.

    Numbers among the attributes are those of Python, as in a dataset that was never in a file.

    Parameters
    ----------
    path : path-like
        The file.
    lazy : bool
        False: read into memory. True: only opened, then read when used, and to be closed.

    Returns
    -------
    xarray.Dataset
        As it was saved.

    Raises
    ------
    ArgumentError
        A path that cannot be read.
    """
    import xarray

    path, lazy = file_path("path", path), flag("lazy", lazy)
    try:
        dataset = (xarray.open_dataset if lazy else xarray.load_dataset)(path, engine="netcdf4")
    except (OSError, ValueError) as error:
        accepted = "a readable netCDF file"
        raise ArgumentError("path", f"{str(path)!r} ({getattr(error, 'strerror', None) or error})", accepted) from None
    holders: list[Any] = [dataset, *dataset.variables.values()]
    for holder in holders:
        holder.attrs = {name: _plain(value) for name, value in holder.attrs.items()}
    return dataset


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def checked_path(path: str | os.PathLike[str]) -> Path:
    """The file that `path` names now and later, whatever the working directory then: absolute and without links.

    A path whose directory takes no files is refused, before the work and not after it.
    """
    try:
        target = Path(os.path.realpath(os.fspath(path)))
        str(target).encode()
    except (TypeError, ValueError) as error:
        raise ArgumentError("path", f"{path!r} ({error})", "a path where a file can be written") from None
    with usable(target), tempfile.TemporaryFile(dir=target.parent):
        pass
    if target.exists() and not target.is_file():
        got = "a directory" if target.is_dir() else "no regular file"
        raise ArgumentError("path", f"{str(target)!r}, {got}", "a path where a file can be written")
    return target


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """What the system refuses meanwhile becomes an ArgumentError that names `path`."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # of the system, of netCDF
        got = f"{str(path)!r} ({getattr(error, 'strerror', None) or error})"
        raise ArgumentError("path", got, "a path where a file can be written") from None


def _variable(file: Any, name: str, kind: np.dtype, dims: tuple[str, ...], attributes: Mapping[str, Any]) -> Any:
    variable = file.createVariable(name, str if kind.kind in "OU" else kind, dims)
    variable.setncatts(attributes)
    return variable


def _slabs(shape: tuple[int, ...]) -> Iterator[tuple[slice, int, int]]:
    """(rows of the first axis, first point, last point), about ROWS points at a time."""
    width = int(np.prod(shape[1:], dtype=np.int64))
    step = max(1, ROWS // width)
    for row in range(0, shape[0], step):
        end = min(row + step, shape[0])
        yield slice(row, end), row * width, end * width
