# ruff: noqa: E402
"""Each low-level part of the engines against what libraries do in its place, on its own work, in turns, on one thread.

python benchmarks/engines.py [moments] [vector] [long] [rows]     a minute for all; rocket-fft and torch if installed

moments : plain rings of 2^m tokens: `_moments`, against exponentials for each pair, and the same expansion with the
    transforms of scipy.fft and of rocket-fft.
vector : blocks of many features: products by BLAS and exponentials by numpy, against torch's attention.
long : long rings: moments by scipy.fft, against one exponential for each pair.
rows : long rings in steep states: one exponential for each pair, against numpy and BLAS in chunks of rows.

Times are of the processor, which a busy machine falsifies less. A ratio is the median over turns of that of the
alternative over ours in the same turn, with its quartiles.
"""

from __future__ import annotations

import os

for _name in ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import sys
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from dispersion import Block, FeedForward, Head, Kernel
from dispersion.block.factors import OutputValue, QueryKey
from dispersion.block.scalar_blocks import ScalarBlocks
from simulate.engines._moments import expansion, most_pairs
from simulate.engines.long import LongRing
from simulate.engines.scalar import Batch, ScalarPoints
from simulate.engines.vector import VectorMap

TANH = FeedForward.scalar("tanh", scale=-0.1)
ETA, CHI = -0.6, 1.5
Runs = dict[str, Callable[[], Any]]


def compare(title: str, runs: Runs, seconds: float = 2.0) -> None:
    """Print the time of the first of `runs` and the ratios of the others to it; all must give the same."""
    ours, *others = runs
    expected = runs[ours]()
    for name in others:
        np.testing.assert_allclose(runs[name](), expected, rtol=0, atol=1e-10, err_msg=f"{title}, {name}")
    begin = perf_counter()
    runs[ours]()
    often = max(1, int(0.02 / (perf_counter() - begin)))
    turns: list[list[float]] = []
    begin = perf_counter()
    while len(turns) < 5 or perf_counter() - begin < seconds:
        turns.append([])
        for run in runs.values():
            start = process_time()
            for _ in range(often):
                run()
            turns[-1].append((process_time() - start) / often)
    times = np.array(turns)
    said = []
    for place, name in enumerate(others, 1):
        low, middle, high = np.percentile(times[:, place] / times[:, 0], [25, 50, 75])
        said.append(f"{name} {middle:.2f} ({low:.2f}-{high:.2f})")
    print(f"{title}: {1e3 * np.median(times[:, 0]):.3f} ms; times longer: {', '.join(said)}", flush=True)


# Plain rings


def moments(points: int = 512) -> None:
    """One layer of `points` rings, from small and from saturated states."""
    for n in (32, 128, 512):
        rng = np.random.default_rng(0)
        count = max(8, points * 32 // n)
        kernels = [Kernel.gaussian_lobes(n, rng.uniform(2, 6), 1.0, rng.uniform(1, 3)) for _ in range(count)]
        blocks = ScalarBlocks.of([Block([Head(kernel, ETA, CHI)], TANH) for kernel in kernels])
        grown = Batch(blocks, 0.2 * rng.standard_normal((count, n, 1)))
        grown.advance(300)
        for name, x in {"small": 1e-3 * rng.standard_normal((count, n)), "saturated": grown.states[..., 0]}.items():
            order = ScalarPoints(blocks).arranged(x[..., None])  # as a sweep does
            blocks, x = blocks.take(order), x[order]
            peak = CHI * (x**2).max(axis=1)
            pairs = np.searchsorted(expansion()[0], peak) + 1
            reached = pairs <= most_pairs(n)
            symbol = np.fft.fft(blocks.weights[:, 0])
            runs: Runs = {
                "_moments": _layer(blocks, x, True),
                "exponentials": _layer(blocks, x, False),
                "scipy.fft": lambda x=x, s=symbol, p=pairs: _expanded(x, s, p),
            }
            rocket = _rocket(x, symbol, pairs)
            if rocket is not None:
                runs["rocket-fft"] = rocket
            compare(f"moments, N = {n}, {name}, {reached.mean():.0%} in reach, pairs up to {pairs.max()}", runs)


def _layer(blocks: ScalarBlocks, x: NDArray, with_moments: bool) -> Callable[[], NDArray]:
    batch = Batch(blocks, x[..., None])
    start = batch._x.copy()
    if not with_moments:
        reaches, table, roots = batch._expansion
        batch._expansion = reaches[:0], table, roots

    def run() -> NDArray:
        batch._x[...] = start
        batch.advance(1)
        return batch.states[..., 0]

    return run


def _expanded(x: NDArray, symbol: NDArray, pairs: NDArray) -> NDArray:
    """The same expansion, the points of one number of pairs together."""
    table = expansion()[1]
    out = np.empty_like(x)
    for count in np.unique(pairs):
        some = np.flatnonzero(pairs == count)
        s, c = x[some], table[count - 1]
        power = s[:, None, :] ** np.arange(1, 2 * count + 1)[:, None] * c[: 2 * count, None]
        both = power[:, 0::2] + 1j * power[:, 1::2]
        found = scipy.fft.ifft(scipy.fft.fft(both, axis=-1) * symbol[some][:, None, :], axis=-1, overwrite_x=True)
        t = CHI * s
        total = found[:, -1].imag
        slope = total.copy()
        for k in range(2 * count - 2, -1, -1):
            total = total * t + (found[:, k // 2].imag if k % 2 else found[:, k // 2].real)
            slope = slope * t + total
        y = s + ETA * slope / (total * t + 1.0)
        out[some] = y - 0.1 * np.tanh(y)
    return out


def _rocket(x: NDArray, symbol: NDArray, pairs: NDArray) -> Callable[[], NDArray] | None:
    """The same point by point, compiled, with the transforms of rocket-fft."""
    try:
        import rocket_fft  # noqa: F401
    except ImportError:
        return None
    from numba import njit

    table, fft = expansion()[1], scipy.fft

    @njit(fastmath={"contract"}, error_model="numpy")
    def layer(x, symbol, pairs, table, out):  # type: ignore[no-untyped-def]
        n = x.shape[1]
        for p in range(x.shape[0]):
            count = pairs[p]
            both = np.empty((count, n), dtype=np.complex128)
            for i in range(n):
                power = 1.0
                for k in range(count):
                    odd = power * x[p, i]
                    power = odd * x[p, i]
                    both[k, i] = complex(table[count - 1, 2 * k] * odd, table[count - 1, 2 * k + 1] * power)
            turned = fft.fft(both)
            for k in range(count):
                for i in range(n):
                    turned[k, i] *= symbol[p, i]
            found = fft.ifft(turned)
            for i in range(n):
                t = CHI * x[p, i]
                total = found[count - 1, i].imag
                slope = total
                for k in range(2 * count - 2, -1, -1):
                    total = total * t + (found[k // 2, i].imag if k % 2 else found[k // 2, i].real)
                    slope = slope * t + total
                y = x[p, i] + ETA * slope / (total * t + 1.0)
                out[p, i] = y - 0.1 * np.tanh(y)
        return out

    out = np.empty_like(x)
    return lambda: layer(x, symbol, pairs, table, out)


# Many features


def vector() -> None:
    """Layers of blocks of several sizes, with maps of the rank d/heads or of full rank."""
    for n, d, heads, rank in ((32, 2, 1, 2), (64, 16, 4, 16), (256, 64, 8, 64), (256, 64, 8, 8), (128, 256, 4, 64)):
        rng = np.random.default_rng(0)
        made = []
        for h in range(heads):
            query, key, value = rng.standard_normal((3, rank, d)) / d
            output = 0.1 * rng.standard_normal((d, rank))
            kernel = Kernel.gaussian_lobes(n, h + 1, 1.0, 2.0)
            made.append(Head(kernel, OutputValue(output, value), QueryKey(query, key)))
        block = Block(made, FeedForward.elementwise("tanh", d, -0.1))
        engine, x = VectorMap(block), 0.3 * rng.standard_normal((n, d))
        runs: Runs = {"blas": lambda engine=engine, x=x: engine(x)}
        compare(f"vector, n = {n}, d = {d}, {heads} heads of rank {rank}", runs | _torch(block, x))


def _torch(block: Block, x: NDArray) -> Runs:
    """torch's attention of all heads at once."""
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(1)
    attention = torch.nn.functional.scaled_dot_product_attention
    pairs = [(head.query_key, head.output_value) for head in block.heads]
    query, key, value, output = (
        torch.tensor(np.array(maps))
        for maps in zip(*((logit.query, logit.key, mix.value, mix.output) for logit, mix in pairs), strict=True)
    )
    bias, state = torch.tensor(np.array([head.positional() for head in block.heads])), torch.tensor(x)

    def run() -> NDArray:
        mean = attention(state @ query.mT, state @ key.mT, state @ value.mT, attn_mask=bias)
        return block.pointwise((state + (mean @ output.mT).sum(0)).numpy())

    return {"torch": run}


# Long rings


def _long_ring(n: int, size: float) -> tuple[LongRing, NDArray]:
    distance = np.minimum(np.arange(n), n - np.arange(n))
    ring = LongRing(Block([Head(Kernel.table(-0.3 * distance), ETA, CHI)], TANH))
    return ring, np.random.default_rng(0).uniform(-size, size, n)


def long() -> None:
    """One layer of long rings."""
    for power in (10, 11, 13):
        for size in (0.2, 1.0):
            ring, x = _long_ring(2**power, size)
            runs: Runs = {
                "moments": lambda ring=ring, x=x: ring.layer(x),
                "exponentials": lambda ring=ring, x=x: ring.layer(x, 0),
            }
            compare(f"long, N = 2^{power}, {ring.terms(x)} terms", runs)


def rows() -> None:
    """One layer of long rings in a state beyond the moments."""
    for n in (600, 4096):
        ring, x = _long_ring(n, 3.0)
        compare(
            f"rows, N = {n}",
            {"_rows": lambda ring=ring, x=x: ring.layer(x, 0), "numpy": lambda ring=ring, x=x: _numpy_rows(ring, x)},
        )


def _numpy_rows(ring: LongRing, x: NDArray, chunk: int = 64) -> NDArray:
    """All pairs in chunks of rows: exponentials by numpy, sums by BLAS."""
    n, weights = len(x), ring._heads[0].weights
    twice, ones = np.concatenate([weights[::-1], weights[::-1]]), np.stack([x, np.ones(n)], axis=1)
    attended = np.empty(n)
    lines = np.lib.stride_tricks.sliding_window_view(twice, n)
    for first in range(0, n, chunk):
        some = np.arange(first, min(first + chunk, n))
        e = np.multiply.outer(CHI * x[some], x)
        np.exp(e, out=e)
        e *= lines[n - 1 - some]
        sums = e @ ones
        attended[some] = sums[:, 0] / sums[:, 1]
    return np.asarray(ring.block.pointwise((x + ETA * attended)[:, None])[:, 0])


if __name__ == "__main__":
    for name in sys.argv[1:] or ["moments", "vector", "long", "rows"]:
        {"moments": moments, "vector": vector, "long": long, "rows": rows}[name]()
