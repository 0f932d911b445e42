"""Time and peak memory of `tokenwaves check` on BERT-base and GPT-2 small, and of `measure` at the size of the paper's
ConViT: N = 256, d = 216, 9 heads.

python benchmarks/networks.py [bert] [gpt2] [measure] [--checkout FOLDER …]

The networks have random weights, made by transformers; each check is a process on two threads, of the code in
each FOLDER, by default the one that this file is in.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

MEGABYTE = 2**20 if sys.platform == "darwin" else 2**10
"""One in the units of ru_maxrss."""
HERE = Path(__file__).parent.parent
CHECKED = {"bert": "Bert", "gpt2": "GPT2"}


def peak() -> float:
    """The most memory that this process has held, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE


def checkpoint(family: str, folder: str) -> str:
    """A network of a `family` in the size that it is known in, with random weights, saved in a `folder`; its path."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{CHECKED[family]}Config")()
    getattr(transformers, f"{CHECKED[family]}Model")(config).save_pretrained(folder)
    return str(Path(folder) / "model.safetensors")


def check(family: str, path: str, checkout: Path) -> str:
    """What a check of the checkpoint `path` took, and its verdict."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    command = [sys.executable, "-m", "tokenwaves", "check", path, "--family", family]
    start = perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, **threads, "PYTHONPATH": str(checkout)}, cwd=checkout, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    printed = process.stdout.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    took, computed = perf_counter() - start, used.ru_utime + used.ru_stime
    verdict = next((line for line in printed.splitlines() if "confirmed" in line), f"exit status {status}")
    numbers = f"{took:.1f} s, {computed:.1f} s of the processor, peak {used.ru_maxrss / MEGABYTE:.0f} MB"
    return f"check {family} in {checkout}: {numbers}\n  {verdict}"


def measures() -> None:
    """Measure J(q) of the paper's ConViT, and compare with theory."""
    from dispersion import dispersion_relation
    from models import ConViT, export, measure, to_torch

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="time and peak memory of checks and measurements")
    parser.add_argument("what", nargs="*", default=[*CHECKED, "measure"], choices=[*CHECKED, "measure"])
    parser.add_argument("--checkout", type=Path, nargs="+", default=[HERE], metavar="FOLDER")
    options = parser.parse_args()
    for what in options.what:
        if what == "measure":
            measures()
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = checkpoint(what, folder)
            for checkout in options.checkout:
                print(check(what, path, checkout.resolve()), flush=True)
