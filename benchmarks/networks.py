"""Time and peak memory of `measure` at the size of the paper's ConViT: N = 256, d = 216, 9 heads.

python benchmarks/networks.py
"""

from __future__ import annotations

import resource
import sys
from time import perf_counter

import numpy as np

from dispersion import dispersion_relation
from models import ConViT, export, measure, to_torch

MEGABYTE = 2**20 if sys.platform == "darwin" else 2**10
"""One in the units of ru_maxrss."""


def peak() -> float:
    """The most memory that this process has held, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE


if __name__ == "__main__":
    network = ConViT.preset("-I+sharp pos")
    module = network.module()
    print(f"before: peak {peak():.0f} MB")
    found = []
    for label, fn in (
        ("ConViT, queries and values of width 24", module),
        ("to_torch of its block, maps d × d", to_torch(export(module))),
    ):
        start = perf_counter()
        measured = measure(fn, network.state, network.shape)
        matrices = measured.matrices
        print(f"measure, {label}: {perf_counter() - start:.1f} s, peak {peak():.0f} MB, defect {measured.defect:.1e}")
        found.append(matrices[:4].copy())
        del measured, matrices
    analytic = dispersion_relation(export(module), network.state).matrices[:4]
    errors = [np.abs(matrices - analytic).max() / np.abs(analytic).max() for matrices in found]
    print("relative error of J(q): " + ", ".join(f"{error:.1e}" for error in errors))
