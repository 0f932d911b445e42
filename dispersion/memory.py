"""How much memory a call may take: what it would allocate is counted first, and refused with the number.

Available is what the system, the limit of the address space and every control group of this process (versions 1 and 2,
as containers use) leave; files that a group could drop do not count as used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dispersion.errors import ArgumentError, real_number

SHARE = 0.8
"""Part of the available memory that a call may take."""

SMALL = 2**26
"""Bytes that are not worth asking the system about."""

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def require(argument: str, got: str, needed: float, memory: float | None = None) -> None:
    """Refuse to allocate `needed` bytes if that is more than `memory`, by default SHARE of what is available.

    argument, got : what the ArgumentError says it is about.
    """
    if memory is None and needed <= SMALL:
        return
    allowed = SHARE * available_memory() if memory is None else real_number("memory", memory, positive=True)
    if needed > allowed:
        raise ArgumentError(
            argument, f"{got} that needs {int(needed):,} bytes", f"at most {int(allowed):,} bytes of memory"
        )


def available_memory() -> int:
    """Bytes that this process can allocate now."""
    return max(0, int(min([*_system(), *_address_space(), *_control_groups()], default=2**63)))


def _system() -> Iterator[float]:
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
        yield next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        try:
            yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
        except (AttributeError, ValueError, OSError):  # not a Unix
            return


def _address_space() -> Iterator[float]:
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int((PROC / "self" / "statm").read_text().split()[0])
            yield limit - pages * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        return


def _control_groups() -> Iterator[float]:
    """What each group of this process, and each that holds it, leaves."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for number, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if number == "0" and not controllers:
            root, files = GROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, files = GROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = root / path.lstrip("/")
        # seen from within a container a path may not exist, and the group is then the root
        for folder in (group, *group.parents):
            if folder == root or root in folder.parents:
                yield from _left(folder, *files)


def _left(folder: Path, limit: str, usage: str, droppable: str) -> Iterator[float]:
    try:
        most, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
        if most == "max":
            return
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        yield int(most) - used + int(stat.get(droppable, 0))
    except (OSError, ValueError):
        return
