"""Which versions of what computed a result."""

from __future__ import annotations

import platform
from importlib import metadata


def version(package: str = "tokenwaves") -> str:
    """The version of `package`, by default this one."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    """Versions of what computed a result, as dataset attributes."""
    packages = ("numpy", "numba", "xarray", "tokenwaves")
    return {
        "python_version": platform.python_version(),
        **{f"{package}_version": version(package) for package in packages},
    }
