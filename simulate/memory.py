"""How much memory a sweep needs, before it takes any."""

from __future__ import annotations

from collections.abc import Mapping

from dispersion import Block
from dispersion.memory import require
from simulate.engines.choice import Model, engine_of
from simulate.runs.columns import Column


def check_memory(model: Model, points: int, working: int, columns: Mapping[str, Column], in_memory: bool) -> None:
    """Refuse a sweep whose results and working arrays do not fit in the memory.

    model : of one point. working : points iterated at once. columns : what is recorded. in_memory : whether the
    whole result is held in memory; it counts twice, once more while it is written.
    """
    held = points if in_memory else working
    results = 2 * held * sum(column.bytes_each for column in columns.values())
    got = f"{points} points of {model.n} tokens and {model.d} features"
    require("parameters", got, results + working_bytes(model, min(points, working)))


def check_run(model: Model, points: int, depth: int, every: int) -> None:
    """Refuse to iterate `points` states of `model` for `depth` layers, one of `every` kept, if they do not fit."""
    records = depth // every + 2
    got = f"{points:,} states of {model.n:,} tokens and {model.d:,} features, {records:,} layers of them kept,"
    require("block", got, working_bytes(model, points) + 16 * records * points * model.n * model.d)


def working_bytes(model: Model, points: int) -> int:
    """About what iterating `points` points like `model` takes, in bytes."""
    heads = (model if isinstance(model, Block) else model.block).heads
    states = 8 * points * model.n * model.d * 40
    if engine_of(model) == "lanes":
        return states + 8 * points * model.n * 10 * len(heads)
    if engine_of(model) == "fft":
        return states + 8 * model.n * (12 + 8 * len(heads))
    return states + 8 * model.n**2 * (3 * len(heads) + 6)
