"""Datasets on disk: netCDF 4, written whole or not at all. xarray is imported on first use."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dispersion import ArgumentError

if TYPE_CHECKING:
    from xarray import Dataset


def save(dataset: Dataset, path: str | os.PathLike[str]) -> Path:
    """Write `dataset` to the netCDF file `path` and return the path.

    The file appears complete, through a temporary file in the same directory; the same dataset
    gives the same bytes. A path that cannot be written is an ArgumentError.
    """
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(suffix=".nc", prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise _unusable(target, error) from None
    try:
        dataset.to_netcdf(temporary, engine="netcdf4", format="NETCDF4")
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise _unusable(target, error) from None
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target


def load(path: str | os.PathLike[str]) -> Dataset:
    """The dataset saved at `path`, read into memory. A path that cannot be read is an ArgumentError."""
    import xarray

    try:
        return xarray.load_dataset(path, engine="netcdf4")
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


def _unusable(target: Path, error: OSError) -> ArgumentError:
    got = f"{str(target)!r} ({error.strerror or error})"
    return ArgumentError("path", got, "a path where a file can be written")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
