"""Datasets on disk: netCDF 4, written whole or not at all. xarray and netCDF4 are imported on first use."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion import ArgumentError

if TYPE_CHECKING:
    from xarray import Dataset

    from simulate.assemble import Result

ROWS = 2**15
"""About how many points are copied at a time."""


def save(dataset: Dataset, path: str | os.PathLike[str]) -> Path:
    """Write `dataset` to the netCDF file `path` and return the path.

    The file appears complete, through a temporary file in the same directory; the same dataset
    gives the same bytes. A path that cannot be written is an ArgumentError.
    """
    with whole_file(path) as temporary:
        dataset.to_netcdf(temporary, engine="netcdf4", format="NETCDF4")
    return Path(path)


def write(result: Result, path: str | os.PathLike[str]) -> Path:
    """Write the `result` of a sweep as `save` writes its dataset, holding few points in memory at a time."""
    from netCDF4 import Dataset as File

    with whole_file(path) as temporary, File(temporary, "w", format="NETCDF4") as file:
        file.set_fill_off()
        file.setncatts(result.attributes)
        for dim, size in result.sizes.items():
            file.createDimension(dim, size)
        for name, (dims, values, attributes) in (result.coordinates | result.starts).items():
            _variable(file, name, values.dtype, (dims,) if isinstance(dims, str) else dims, attributes)[...] = (
                values.astype(object) if values.dtype.kind == "U" else values
            )
        for name, (dims, kind, attributes) in result.variables.items():
            variable = _variable(file, name, np.dtype(kind), dims, attributes)
            for rows, first, last in _slabs(result.shape):
                values = result.store.rows(name, first, last)
                variable[rows] = values.reshape(-1, *result.shape[1:], *values.shape[1:])
    return Path(path)


def load(path: str | os.PathLike[str], lazy: bool = False) -> Dataset:
    """The dataset saved at `path`, read into memory, or only opened if `lazy`: then read when used, and to be closed.

    A path that cannot be read is an ArgumentError.
    """
    import xarray

    try:
        return (xarray.open_dataset if lazy else xarray.load_dataset)(path, engine="netcdf4")
    except OSError as error:
        accepted = "a readable netCDF file"
        raise ArgumentError("path", f"{str(path)!r} ({error.strerror or error})", accepted) from None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path whose directory takes no files, before the work and not after it."""
    target = Path(path)
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise _unusable(target, error) from None
    if target.is_dir():
        raise ArgumentError("path", f"{str(target)!r}, a directory", "a path where a file can be written")


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[str]:
    """A temporary file that becomes `path` when what is done with it succeeds, and vanishes otherwise."""
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(suffix=".nc", prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise _unusable(target, error) from None
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except (OSError, RuntimeError) as error:  # the latter is what netCDF4 makes of a full disk
        raise _unusable(target, error) from None
    finally:
        Path(temporary).unlink(missing_ok=True)


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


def _unusable(target: Path, error: OSError | RuntimeError) -> ArgumentError:
    got = f"{str(target)!r} ({getattr(error, 'strerror', None) or error})"
    return ArgumentError("path", got, "a path where a file can be written")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
