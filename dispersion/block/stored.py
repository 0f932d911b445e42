"""Numbers from .npy and .npz files of strangers: nothing is unpickled, and no more is read than was asked for."""

from __future__ import annotations

import os
import warnings
import zipfile
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

REAL = "iuf"
"""Kinds of dtypes that are real numbers."""
DEFLATED = 1100
"""Bytes that one byte of a deflated file can stand for, at most."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_numbers(path: str | os.PathLike[str]) -> NDArray:
    """The real numbers in the file `path`, .npy, an array of its own; an OSError or a ValueError if there are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # mapped: a size that the file does not have is refused before any memory is taken
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # of whatever the header says
        raise ValueError(_why(error)) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in REAL:
        raise ValueError("no array of real numbers")
    return np.array(array)


class Arrays:
    """The arrays in the npz file `path`, each read when asked for.

    Its methods raise an OSError, or a ValueError that says why an array cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> NDArray | None:
        """The array `name`, None if there is none."""
        size = self.path.stat().st_size
        try:
            with zipfile.ZipFile(self.path) as archive:
                if f"{name}.npy" not in archive.namelist():
                    return None
                info = archive.getinfo(f"{name}.npy")
                with archive.open(info) as file:
                    shape, dtype = _header(file)
                    if dtype.hasobject:
                        raise ValueError(f"Python objects in {name}, which would take allow_pickle and can be code")
                    needed = prod(shape) * dtype.itemsize
                    if needed != info.file_size - file.tell() or needed > DEFLATED * min(info.compress_size, size):
                        raise ValueError(f"{name} of {needed} bytes, which it does not hold")
                    file.seek(0)
                    return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        except OSError:
            raise
        except Exception as error:  # zipfile, zlib and numpy each have errors of their own
            raise ValueError(_why(error)) from None

    def names(self) -> list[str]:
        """The names of the arrays of real numbers, of those that can be read."""
        found = []
        with zipfile.ZipFile(self.path) as archive:
            for info in archive.infolist():
                try:
                    with archive.open(info) as file:
                        real = _header(file)[1].kind in REAL
                except Exception:  # an array that cannot be read is none to offer
                    continue
                if real and info.filename.endswith(".npy"):
                    found.append(info.filename.removesuffix(".npy"))
        return found


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """(shape, dtype) that the array in `file` says it has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
    return shape, dtype


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
