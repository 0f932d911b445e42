"""A sweep of 10⁶ points in bounded memory, killed half-way and resumed: the same file as without the kill.

python benchmarks/soak.py [POINTS [DEPTH]]
"""

from __future__ import annotations

import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

import numpy as np

from dispersion import Block, FeedForward, Head, Kernel
from simulate import sweep

FEEDFORWARD = FeedForward.scalar("tanh", scale=-0.1)


def make_block(gain: float, strength: float) -> Block:
    """A ring of 16 tokens."""
    kernel = Kernel.gaussian_lobes(16, separation=3, width=1.0, strength=strength)
    return Block([Head(kernel, value=-gain, content=1.5)], FEEDFORWARD)


def run(path: str, points: int, depth: int) -> None:
    """The sweep, or what is left of it; then the largest private memory of this process."""
    side = round(points**0.5)
    axes = {"gain": np.linspace(0.2, 1.0, side), "strength": np.linspace(0.5, 4.0, side)}
    data = sweep(make_block, axes, depth=depth, path=path, resume=True, lazy=True, progress=False)
    print(f"{data.status.size} points, at most {_peak() / 1e6:.0f} MB of memory", flush=True)
    data.close()


def _peak() -> int:
    """Largest resident size of this process so far, in bytes."""
    with open("/proc/self/status") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _worker(path: Path, points: int, depth: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "run", str(path), str(points), str(depth)])


def _done(path: Path) -> int:
    log = Path(f"{path}.parts") / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def main(points: int = 10**6, depth: int = 10) -> None:
    """Run it whole, run it killed, compare."""
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder, "whole.nc"), Path(folder, "killed.nc")
        start = perf_counter()
        if _worker(whole, points, depth).wait():
            sys.exit("the uninterrupted sweep failed")
        print(f"uninterrupted: {perf_counter() - start:.0f} s, {whole.stat().st_size / 1e6:.0f} MB on the disk")
        half = points // 2048 // 2
        process = _worker(killed, points, depth)
        while _done(killed) < half:
            sleep(0.05)
        process.kill()
        process.wait()
        print(f"killed after {_done(killed)} groups of points, {killed.exists() = }")
        start = perf_counter()
        if _worker(killed, points, depth).wait():
            sys.exit("the resumed sweep failed")
        print(f"resumed: {perf_counter() - start:.0f} s")
        same = filecmp.cmp(whole, killed, shallow=False)
        print("the two files are", "the same, byte for byte" if same else "DIFFERENT")
        sys.exit(0 if same else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(*map(int, sys.argv[1:]))
