"""Linear theory against the bare library calls it needs; ratios are measured side by side, in turns.

python benchmarks/linear_theory.py
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from dispersion import Block, Head, Kernel, dispersion_relation, symbols


def seconds(*runs: Callable[[], object], repeats: int = 3) -> list[float]:
    """Median time of each of `runs`, taken in turns so that a noisy machine is noisy for all."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, record in zip(runs, times, strict=True):
            start = perf_counter()
            run()
            record.append(perf_counter() - start)
    return [median(record) for record in times]


def torus_spectrum() -> None:
    """The 16×16 torus with d = 216 and 9 heads: 256 matrices, of which 130 are not conjugates of others."""
    rng, d = np.random.default_rng(0), 216
    heads = [Head(Kernel(rng.normal(size=(16, 16))), rng.normal(size=(d, d)) / np.sqrt(9 * d)) for _ in range(9)]
    block = Block(heads)
    matrices = dispersion_relation(block).matrices.reshape(-1, d, d)[:130].copy()
    ours, bare = seconds(lambda: dispersion_relation(block).multipliers, lambda: np.linalg.eigvals(matrices))
    print(f"torus spectrum: {ours:.2f} s, {ours / bare:.2f} × the {bare:.2f} s of numpy.linalg.eigvals on 130 matrices")


def scalar_kernels() -> None:
    """10⁵ scalar kernels at 32 wavenumbers."""
    logits = np.random.default_rng(0).normal(size=(100_000, 32))
    (ours,) = seconds(lambda: symbols(logits))
    print(f"10⁵ scalar kernels × 32 wavenumbers: {ours:.3f} s")


def import_time() -> None:
    """`import dispersion` in a fresh interpreter, less the interpreter and numpy alone."""

    def fresh(program: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", program], check=True)

    bare, with_numpy, ours = seconds(fresh(""), fresh("import numpy"), fresh("import dispersion"), repeats=7)
    print(
        f"import dispersion: {ours - bare:.3f} s, of which numpy {with_numpy - bare:.3f} s (interpreter {bare:.3f} s)"
    )


if __name__ == "__main__":
    torus_spectrum()
    scalar_kernels()
    import_time()
