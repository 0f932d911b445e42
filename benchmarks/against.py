"""The same work in this checkout and in another one of the project, in turns: ratios of times with their spread.

git worktree add ../before COMMIT && python benchmarks/against.py ../before [--rounds 9] [--only NAME …]

Each checkout runs in a process of its own, which compiles and warms up before the clock starts. A ratio is the time
here over the time there of one round; above 1 this checkout is slower. Only names that both have are used.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

HERE = Path(__file__).resolve().parents[1]


def works() -> dict[str, object]:
    """Named pieces of work, functions of nothing."""
    from amplitude import find_state, normal_form, standing_wave
    from dispersion import Block, Chain, FeedForward, Head, Kernel, dispersion_relation, full_jacobian
    from dispersion import symbols as symbols_of
    from simulate import iterate, sweep

    tanh = FeedForward.scalar("tanh", scale=-0.1)
    rng = np.random.default_rng(0)

    def ring(gain: float, strength: float) -> Block:
        return Block([Head(Kernel.gaussian_lobes(32, 4, 1.0, strength), value=-gain, content=1.5)], tanh)

    def wide(n: int, d: int, heads: int) -> Block:
        kernel = Kernel.gaussian_lobes(n, 4, 1.0, 2.0)
        maps = rng.normal(size=(2, heads, d, d)) / d
        return Block(
            [Head(kernel, -m, w) for m, w in zip(*maps, strict=True)],
            FeedForward(rng.normal(size=(2 * d, d)) / d, rng.normal(size=(d, 2 * d)) / d, "gelu"),
        )

    axes = {"gain": np.linspace(0.2, 0.8, 24), "strength": np.linspace(1, 3, 24)}
    scalar, small, vector, long = ring(0.4, 2.0), wide(16, 4, 4), wide(64, 16, 4), wide(32, 32, 4)
    kernels = rng.normal(size=(20_000, 32))
    line = Block([Head(Kernel.alibi(4096, 0.3), -0.4, 1.5)], tanh)
    mode = dispersion_relation(scalar).leading()
    guess = standing_wave(scalar, 4).amplitude * 2 * np.cos(np.pi / 4 * np.arange(32))
    state, small_state, scalar_state = (rng.normal(size=shape) for shape in ((64, 16), (16, 4), (32, 1)))

    def stored() -> None:
        with tempfile.TemporaryDirectory() as folder:
            sweep(ring, axes, depth=200, path=Path(folder) / "f.nc", tolerance=None)

    return {
        "sweep of 576 scalar points": lambda: sweep(ring, axes, depth=2000, tolerance=None),
        "sweep that stops early": lambda: sweep(ring, axes, depth=5000),
        "sweep into a file": stored,
        "scalar trajectory": lambda: iterate(scalar, 20_000, 1e-3, rng=0, tolerance=None),
        "long scalar ring": lambda: iterate(line, 100, 1e-3, rng=0, tolerance=None),
        "vector trajectory": lambda: iterate(vector, 200, 1e-3, rng=0, tolerance=None),
        "forward of a block": lambda: [vector.forward(state) for _ in range(50)],
        "forward of a small block": lambda: [small.forward(small_state) for _ in range(50)],
        "forward of a scalar block": lambda: [scalar.forward(scalar_state) for _ in range(50)],
        "dispersion relation, d = 32": lambda: dispersion_relation(long).multipliers,
        "symbols of many kernels": lambda: symbols_of(kernels),
        "full Jacobian": lambda: full_jacobian(vector),
        "chain forward": lambda: [Chain(scalar, 64, "open").forward(rng.normal(size=(64, 1))) for _ in range(20)],
        "blocks of a sweep": lambda: [ring(gain, 2.0) for gain in np.linspace(0.1, 1, 500)],
        "normal form, order 7, scalar": lambda: normal_form(scalar, [mode], order=7).coefficients,
        "normal form, order 5, d = 32": lambda: normal_form(long, dispersion_relation(long).leading(), 5).coefficients,
        "exact state": lambda: find_state(scalar, guess).stable,
    }


def serve() -> None:
    """Answer each name read with the seconds that its work took, or with an error."""
    sys.path.insert(0, os.environ["CHECKOUT"])
    pieces = works()
    print("ready", flush=True)
    for name in map(str.strip, sys.stdin):
        try:
            start = perf_counter()
            pieces[name]()  # type: ignore[operator]
            print(perf_counter() - start, flush=True)
        except Exception as error:
            print(f"failed: {error!r}", flush=True)


def main() -> None:
    """Time all the work in both checkouts and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", default=None)
    asked = parser.parse_args()
    workers = []
    for checkout in (HERE, asked.other.resolve()):
        environment = {**os.environ, "PYTHONPATH": str(checkout), "CHECKOUT": str(checkout), "SERVE": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers.append(subprocess.Popen([sys.executable, __file__], cwd=checkout, env=environment, **pipes))  # type: ignore[call-overload]
    for worker in workers:
        worker.stdout.readline()

    def ask(worker: subprocess.Popen[str], name: str) -> str:
        assert worker.stdin
        assert worker.stdout
        print(name, file=worker.stdin, flush=True)
        return worker.stdout.readline().strip()

    names = [name for name in works() if asked.only is None or any(part in name for part in asked.only)]
    print(f"{'':32}{'here':>10}{'there':>10}{'ratio':>8}   25 … 75 %")
    for name in names:
        answers = [[ask(worker, name) for worker in workers] for _ in range(asked.rounds + 1)][1:]
        if any(answer.startswith("failed") for row in answers for answer in row):
            print(f"{name:32}{answers[0]}")
            continue
        seconds = np.array(answers, dtype=float)
        ratio = seconds[:, 0] / seconds[:, 1]
        low, middle, high = np.quantile(ratio, [0.25, 0.5, 0.75])
        here, there = np.median(seconds, axis=0)
        print(f"{name:32}{here:9.4f}s{there:9.4f}s{middle:8.2f}   {low:.2f} … {high:.2f}", flush=True)


if __name__ == "__main__":
    serve() if os.environ.get("SERVE") else main()
