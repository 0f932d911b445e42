"""Normal forms, warm: how long from a block and its critical modes to coefficients and amplitudes.

python benchmarks/normal_forms.py
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from amplitude import normal_form
from dispersion import Block, FeedForward, Head, Kernel, Mode, dispersion_relation


def seconds(run: Callable[[], object], repeats: int = 15) -> float:
    """Least time of `run`, after once to fill the tables: what it takes on a quiet core."""
    run()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return min(times)


def scalar() -> None:
    """The block of Fig. 3, one mode and two."""
    kernel = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0)
    block = Block([Head(kernel, -0.4, 1.5)], FeedForward.scalar("tanh", -0.1))
    relation = dispersion_relation(block)
    for order in (3, 5, 7, 9):
        report(f"scalar, one mode, order {order}", block, [relation.mode(4)], order, 0.010 if order == 9 else None)
    for order in (3, 5, 7):
        report(f"scalar, two modes, order {order}", block, [relation.mode(4), relation.mode(5)], order)


def vector() -> None:
    """d = 32, 4 heads, 128 hidden units, one mode."""
    rng, d = np.random.default_rng(0), 32
    heads = [
        Head(Kernel.table(rng.normal(size=32)), 0.3 * rng.normal(size=(d, d)) / np.sqrt(d), rng.normal(size=(d, d)) / d)
        for _ in range(4)
    ]
    inner, outer = rng.normal(size=(128, d)) / np.sqrt(d), 0.1 * rng.normal(size=(d, 128)) / np.sqrt(128)
    block = Block(heads, FeedForward(inner, outer, "gelu"))
    mode = dispersion_relation(block).leading()
    for order in (3, 5, 7):
        report(f"d = 32, 4 heads, one mode, order {order}", block, [mode], order, 2.0 if order == 3 else None)


def report(name: str, block: Block, modes: list[Mode], order: int, limit: float | None = None) -> None:
    """Print the time of the form of `modes` of a `block`, and of it with its amplitude; `limit`: what is promised."""
    alone = seconds(lambda: normal_form(block, modes, order))
    whole = seconds(lambda: normal_form(block, modes, order).amplitude)
    promise = "" if limit is None else f" (promised: the form in {1e3 * limit:g} ms)"
    print(f"{name}: {1e3 * alone:.1f} ms, with its amplitude {1e3 * whole:.1f} ms{promise}")


if __name__ == "__main__":
    scalar()
    vector()
