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
from models.inputs import Map

MEGABYTE = 2**20 if sys.platform == "darwin" else 2**10
"""One in the units of ru_maxrss."""


def peak() -> float:
    """The most memory that this process has held, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE


def report(label: str, fn: Map, state: np.ndarray, matrices: np.ndarray) -> None:
    """Measure `fn` and print how long it took and how far it is from the analytic `matrices`."""
    start = perf_counter()
    measured = measure(fn, state, (16, 16))
    seconds = perf_counter() - start
    error = np.abs(measured.matrices - matrices).max() / np.abs(matrices).max()
    print(f"{label}: {seconds:.1f} s, peak {peak():.0f} MB, relative error {error:.1e}, defect {measured.defect:.1e}")


if __name__ == "__main__":
    network = ConViT.preset("-I+sharp pos")
    module = network.module()
    print(f"before: peak {peak():.0f} MB")
    block = export(module)
    matrices = dispersion_relation(block, network.state).matrices
    print(f"analytic: peak {peak():.0f} MB")
    report("measure, factored heads (d_h = 24)", module, network.state, matrices)
    report("measure, to_torch of the block (d × d maps)", to_torch(block), network.state, matrices)
