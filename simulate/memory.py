"""How much memory a sweep needs, before it takes any."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dispersion import ArgumentError, Block
from simulate.engines import Model, engine_of
from simulate.results import Column

MEMORY_SHARE = 0.8
"""Part of the available memory that a sweep may take."""


def check_memory(model: Model, points: int, working: int, columns: Mapping[str, Column], in_memory: bool) -> None:
    """Refuse a sweep whose results and working arrays exceed MEMORY_SHARE of the available memory.

    model : of one point. working : points iterated at once. columns : what is recorded. in_memory : whether the
    whole result is held in memory; it counts twice, once more while it is written.
    """
    held = points if in_memory else working
    results = 2 * held * sum(column.bytes_each for column in columns.values())
    needed, available = results + working_bytes(model, min(points, working)), available_memory()
    if needed > MEMORY_SHARE * available:
        got = f"{points} points of {model.n} tokens and {model.d} features, about {needed / 1e9:.1f} GB"
        accepted = f"up to {MEMORY_SHARE:.0%} of the {available / 1e9:.1f} GB available; sweep fewer points at a time"
        raise ArgumentError("parameters", got, accepted)


def working_bytes(model: Model, points: int) -> int:
    """About what iterating `points` points like `model` takes, in bytes."""
    heads = (model if isinstance(model, Block) else model.block).heads
    states = 8 * points * model.n * model.d * 40
    if engine_of(model) == "lanes":
        return states + 8 * points * model.n * 4 * len(heads)
    if engine_of(model) == "fft":
        return states + 8 * model.n * (12 + 8 * len(heads))
    return states + 8 * model.n**2 * (3 * len(heads) + 2)


def available_memory() -> float:
    """Bytes a process can take now; infinite where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
