"""Writing files: all or nothing, and the same data give the same bytes."""

from __future__ import annotations

import os
from errno import EIO
from pathlib import Path

import xarray as xr

from dispersion import ArgumentError
from dispersion.atomic import replacing
from dispersion.block.toml_reader import reason


def write_text(text: str, path: Path) -> Path:
    """Write `text` to `path` as UTF-8; returns `path`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def write_data(data: xr.Dataset | xr.DataTree, path: Path) -> Path:
    """Write `data` to `path` as netCDF-4, without dates; returns `path`."""
    with replacing(path) as temporary:
        try:
            data.to_netcdf(temporary, engine="netcdf4")
        except RuntimeError as error:  # what netCDF4 makes of a full disk
            raise OSError(EIO, f"not written, {error}") from None
    return path


def read_data(path: Path) -> xr.DataTree:
    """What `write_data` wrote to `path`, in memory; a Dataset comes back as the root of a tree."""
    with xr.open_datatree(path, engine="netcdf4") as data:
        return data.load()


def writable(folder: Path) -> Path:
    """`folder`, created if need be; an ArgumentError if files cannot be written there."""
    probe = folder / f".tokenwaves.{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ArgumentError("out", f"{str(folder)!r} ({reason(error)})", "a folder that can be written to") from None
    return folder
