"""Iterated maps against the usual ways to write them; ratios are measured side by side, in turns.

python -m pip install -r benchmarks/requirements.txt    (the peers; those that are absent are left out)
python benchmarks/simulation.py [scalar] [long] [vector] [figure]

scalar : N = 32, 4096 points each with a kernel of its own, against JAX, NumPy and torch.
long : rings of 2¹² to 2²⁰ tokens, and the dense loop at 2¹⁴.
vector : N = 256, d = 64, 8 heads, against the matrix products and exponentials it needs, and torch.
figure : all of Figure 3 in full, with and without early stop.
"""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion import Block, FeedForward, Head, Kernel
from dispersion.block.scalar_blocks import ScalarBlocks
from simulate.engines.long import LongRing
from simulate.engines.scalar import Batch, ScalarPoints
from simulate.engines.threads import thread_count
from simulate.engines.vector import VectorMap

TANH = FeedForward.scalar("tanh", scale=-0.1)
ETA, CHI = -0.6, 1.5


def fastest(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Shortest time of each of `runs`, taken in turns so that a noisy machine is noisy for all."""
    times = dict.fromkeys(runs, np.inf)
    for turn in range(repeats + 1):  # the first turn compiles
        for name, run in runs.items():
            sleep(0.02)  # threads of the one before may still be spinning
            start = perf_counter()
            run()
            if turn:
                times[name] = min(times[name], perf_counter() - start)
    return times


# Small rings


def scalar(points: int = 4096, n: int = 32, layers: int = 10, repeats: int = 8) -> None:
    """One layer of `points` points, each with its own kernel, from small and from saturated states."""
    rng = np.random.default_rng(0)
    kernels = [
        Kernel.gaussian_lobes(n, rng.uniform(2, 6), width=1.0, strength=rng.uniform(1, 3)) for _ in range(points)
    ]
    packed = ScalarBlocks.of([Block([Head(kernel, ETA, CHI)], TANH) for kernel in kernels])
    lag = (np.arange(n)[:, None] - np.arange(n)) % n
    matrices = np.exp(packed.logits[:, 0])[:, lag]
    peak = peak_flops()
    for name, x in _states(packed, points, n).items():
        order = ScalarPoints(packed).arranged(x[..., None])  # as a sweep does
        batch = Batch(packed.take(order), x[order, :, None])
        runs: dict[str, Callable[[], object]] = {"tokenwaves": _from_the_start(batch, layers)}
        count = {"tokenwaves": layers}
        for peer in (_numpy, _torch, _jax):
            for label, run in peer(matrices, x, layers).items():
                runs[label], count[label] = run, layers if label.startswith("JAX") else 1
        times = {label: time / count[label] for label, time in fastest(runs, repeats).items()}
        ours = times.pop("tokenwaves")
        pairs = points * n * n
        print(f"scalar, {name}: {1e3 * ours:.3f} ms a layer, {1e9 * ours * thread_count() / pairs:.3f} ns·core a pair")
        if name == "large":
            rate, slots = pairs / 2 * _FLOPS / ours, pairs / 2 * _OPERATIONS / ours
            print(f"  {rate / 1e9:.0f} Gflop/s, {rate / peak:.0%} of the {peak / 1e9:.0f} measured as peak,", end=" ")
            print(f"in {slots / (peak / 2):.0%} of the vector operations that fit in the time")
        for label in sorted({label.split(",")[0] for label in times}):
            best = min((time, key) for key, time in times.items() if key.startswith(label))
            print(f"  {best[0] / ours:6.1f} × faster than {best[1]} ({1e3 * best[0]:.2f} ms)")


_OPERATIONS, _FLOPS = 19, 26
"""Of two pairs, (i, j) and (j, i), with one exponential: 13 operations for it, 8 of them fused multiply-adds and 3 not
arithmetic; 6 for the sums, 2 of them fused."""


def _from_the_start(batch: Batch, layers: int) -> Callable[[], object]:
    """A run of `layers` that begins again at the same states."""
    start = batch._x.copy()

    def run() -> None:
        batch._x[...] = start
        batch.advance(layers)

    return run


def _states(packed: object, points: int, n: int) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(1)
    small = 1e-3 * rng.standard_normal((points, n))
    batch = Batch(packed, 0.2 * rng.standard_normal((points, n, 1)))  # type: ignore[arg-type]
    batch.advance(500)
    large = rng.uniform(-1.5, 1.5, (points, n))
    return {"small": small, "saturated": batch.states[..., 0], "large": large}


def _numpy(matrices: NDArray, x: NDArray, layers: int) -> dict[str, Callable[[], object]]:
    """Broadcasting, in chunks of several sizes."""

    def layer(chunk: int) -> None:
        for first in range(0, len(x), chunk):
            s = x[first : first + chunk]
            A = (CHI * s)[:, :, None] * s[:, None, :]
            np.exp(A, out=A)
            A *= matrices[first : first + chunk]
            y = s + ETA * (A @ s[:, :, None])[:, :, 0] / A.sum(axis=-1)
            y - 0.1 * np.tanh(y)

    return {f"NumPy, chunks of {chunk}": lambda chunk=chunk: layer(chunk) for chunk in (16, 64, 256, 4096)}


def _torch(matrices: NDArray, x: NDArray, layers: int) -> dict[str, Callable[[], object]]:
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(thread_count())
    P, state = torch.tensor(matrices), torch.tensor(x)

    def layer(chunk: int) -> None:
        for first in range(0, len(x), chunk):
            s = state[first : first + chunk]
            A = (CHI * s)[:, :, None] * s[:, None, :]
            A.exp_()
            A *= P[first : first + chunk]
            y = s + ETA * torch.bmm(A, s[:, :, None])[:, :, 0] / A.sum(-1)
            y - 0.1 * torch.tanh(y)

    return {f"torch eager, chunks of {chunk}": lambda chunk=chunk: layer(chunk) for chunk in (128, 512, 4096)}


def _jax(matrices: NDArray, x: NDArray, layers: int) -> dict[str, Callable[[], object]]:
    """jit + vmap + scan of three ways to write a layer."""
    try:
        import jax
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    P, state = jnp.array(matrices), jnp.array(x)

    def product(P, s):  # type: ignore[no-untyped-def]
        A = P * jnp.exp(CHI * s[:, None] * s[None, :])
        y = s + ETA * (A @ s) / A.sum(-1)
        return y - 0.1 * jnp.tanh(y)

    def sums(P, s):  # type: ignore[no-untyped-def]
        A = P * jnp.exp(CHI * s[:, None] * s[None, :])
        y = s + ETA * (A * s).sum(-1) / A.sum(-1)
        return y - 0.1 * jnp.tanh(y)

    def softmax(P, s):  # type: ignore[no-untyped-def]
        y = s + ETA * (jax.nn.softmax(CHI * s[:, None] * s[None, :] + jnp.log(P), axis=-1) @ s)
        return y - 0.1 * jnp.tanh(y)

    def compiled(layer):  # type: ignore[no-untyped-def]
        def orbit(P, s):  # type: ignore[no-untyped-def]
            return jax.lax.scan(lambda s, _: (layer(P, s), None), s, None, length=layers)[0]

        run = jax.jit(jax.vmap(orbit))
        return lambda: run(P, state).block_until_ready()

    return {f"JAX, {layer.__name__}": compiled(layer) for layer in (product, sums, softmax)}


def peak_flops() -> float:
    """Multiply-adds of vectors in registers on all threads, two operations each, per second."""
    from concurrent.futures import ThreadPoolExecutor

    from numba import njit

    from dispersion.compiled import OPTIONS
    from simulate.engines._lanes import LANES, load, splat, store

    @njit(**OPTIONS)
    def chains(count, out):  # type: ignore[no-untyped-def]
        a, b, c, d = load(out, 0), load(out, 1), load(out, 2), load(out, 3)
        e, f, g, h = load(out, 4), load(out, 5), load(out, 6), load(out, 7)
        k, m, p, q = load(out, 8), load(out, 9), load(out, 10), load(out, 11)
        factor, step = splat(0.999), splat(1e-3)
        for _ in range(count):
            a, b, c, d = a * factor + step, b * factor + step, c * factor + step, d * factor + step
            e, f, g, h = e * factor + step, f * factor + step, g * factor + step, h * factor + step
            k, m, p, q = k * factor + step, m * factor + step, p * factor + step, q * factor + step
        store(out, 0, a + b + c + d + e + f + g + h + k + m + p + q)

    count, threads = 2_000_000, thread_count()
    with ThreadPoolExecutor(threads) as pool:

        def run() -> None:
            for future in [pool.submit(chains, count, np.ones((12, LANES))) for _ in range(threads)]:
                future.result()

        time = fastest({"peak": run}, 8)["peak"]
    return 2 * 12 * LANES * count * threads / time


# Long rings


def long(layers: int = 10) -> None:
    """Time per token and layer of long rings with the same number of terms, and the dense loop."""
    per_token = {}
    for power in (12, 14, 16, 18, 20):
        n = 2**power
        distance = np.minimum(np.arange(n), n - np.arange(n))
        ring = LongRing(Block([Head(Kernel.table(-0.3 * distance), ETA, CHI)], TANH))
        x = np.random.default_rng(0).uniform(-0.2, 0.2, n)
        x[0] = 0.2
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        time = fastest({"fft": lambda ring=ring, x=x: ring.layer(x)}, max(layers, 2 ** (18 - power)))["fft"]
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        per_token[power] = time / n
        print(
            f"long: N = 2^{power}, {ring.terms(x)} terms, {1e9 * time / n:.0f} ns a token and layer, "
            f"peak memory grew by {1024 * grown / n:.0f} bytes a token"
        )
        if power == 14:
            for label, dense in fastest(_dense(ring, x), 1).items():
                print(f"  {dense / time:.0f} × faster than {label} ({dense:.2f} s)")
    print(f"  a token at 2^20 takes {per_token[20] / per_token[12]:.2f} × the time of one at 2^12")


def _dense(ring: LongRing, x: NDArray) -> dict[str, Callable[[], object]]:
    """The loop over all pairs as one would write it, and the fallback of the engine."""
    from numba import njit

    @njit(fastmath=True, error_model="numpy")
    def loop(weights, x, content, out):  # type: ignore[no-untyped-def]
        n = len(x)
        for i in range(n):
            s = t = 0.0
            for j in range(n):
                e = weights[(i - j) % n] * math.exp(content * x[i] * x[j])
                s += e * x[j]
                t += e
            out[i] = s / t

    weights, out = ring.block.heads[0].kernel.weights, np.empty(len(x))
    return {
        "the dense numba loop": lambda: loop(weights, x, CHI, out),
        "the dense fallback": lambda: ring.layer(x, 0),
    }


# Vector blocks


def vector(n: int = 256, d: int = 64, heads: int = 8, layers: int = 20, repeats: int = 15) -> None:
    """Layers of a block with full-rank maps, and of one whose heads have d/heads features, `layers` in a row."""
    rng = np.random.default_rng(0)
    x = 0.3 * rng.standard_normal((n, d))
    for name, rank in (("full rank", d), (f"rank {d // heads}", d // heads)):

        def matrix(rank: int = rank) -> NDArray[np.float64]:
            return 0.01 * rng.standard_normal((d, rank)) @ rng.standard_normal((rank, d)) / np.sqrt(rank)

        made = [Head(Kernel.gaussian_lobes(n, h + 1, 1.0, 2.0), matrix(), matrix()) for h in range(heads)]
        block = Block(made, FeedForward.elementwise("tanh", d, -0.1))
        engine = VectorMap(block)
        runs = {"tokenwaves": lambda engine=engine: engine(x), "bare": _bare(block, x)} | _torch_layer(block, x)
        times = {name: time / layers for name, time in fastest(_often(runs, layers), repeats).items()}
        ours = times.pop("tokenwaves")
        print(f"vector, {name}: {1e3 * ours:.2f} ms a layer")
        print(f"  {ours / times.pop('bare'):.2f} × the time of the d×d and n×n matrix products and exponentials alone")
        for label, time in times.items():
            print(f"  {time / ours:.2f} × faster than {label}")


def _often(runs: dict[str, Callable[[], object]], times: int) -> dict[str, Callable[[], object]]:
    return {name: lambda run=run: [run() for _ in range(times)] for name, run in runs.items()}  # type: ignore[misc]


def _bare(block: Block, x: NDArray) -> Callable[[], object]:
    n, heads = block.n, block.heads
    logits, weights = np.empty((n, n)), np.empty((n, n))
    contents, values = [head.content for head in heads], [head.value.T.copy() for head in heads]
    forward = block.feedforward
    assert forward is not None

    def run() -> None:
        for content, value in zip(contents, values, strict=True):
            np.matmul(x @ content, x.T, out=logits)
            np.exp(logits, out=weights)
            weights @ (x @ value)
        np.tanh(x @ forward.weight_in.T) @ forward.weight_out.T

    return run


def _torch_layer(block: Block, x: NDArray) -> dict[str, Callable[[], object]]:
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(thread_count())
    forward = block.feedforward
    assert forward is not None
    W, M = (torch.tensor(np.array(a)) for a in ([h.content for h in block.heads], [h.value.T for h in block.heads]))
    b, state = torch.tensor(np.array([head.positional() for head in block.heads])), torch.tensor(x)
    inward, outward = torch.tensor(forward.weight_in.T.copy()), torch.tensor(forward.weight_out.T.copy())

    def together() -> object:
        A = torch.softmax((state @ W) @ state.T + b, -1)
        y = state + (A @ (state @ M)).sum(0)
        return y + torch.tanh(y @ inward) @ outward

    def each() -> object:
        y = state.clone()
        for h in range(len(W)):
            y += torch.softmax(torch.addmm(b[h], state @ W[h], state.T), -1) @ (state @ M[h])
        return y + torch.tanh(y @ inward) @ outward

    return {"torch eager, all heads at once": together, "torch eager, head by head": each}


# Figure 3


def figure() -> None:
    """Figure 3 in full with and without early stop: time of its panels, and the largest difference of its numbers."""
    from importlib import import_module

    from figures import fig3
    from simulate import sweep

    # by its name: the package has a function `scaling` of the same name
    modules = {name: import_module(f"figures.{name}") for name in ("fig3.maps", "phase_diagram.maps", "fig3.beyond")}
    modules["fig3.scaling"] = import_module("figures.fig3.scaling")
    panels = {"scaling": fig3, "amplitude": modules["fig3.maps"], "wavenumber": modules["fig3.maps"]}
    panels["competing"] = modules["fig3.maps"]
    keywords: dict[str, Any] = {}
    numbers, clock = {}, dict.fromkeys([*panels, "sweeps"], 0.0)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **others: Any) -> Any:
            start = perf_counter()
            found = function(*arguments, **others)
            found = list(found) if name == "scaling" else found  # it computes as it is asked
            clock[name] += perf_counter() - start
            return found

        return run

    for name, module in panels.items():
        setattr(module, name, timed(name, getattr(module, name)))
    for module in modules.values():
        if hasattr(module, "sweep"):
            module.sweep = timed("sweeps", lambda *arguments, **others: sweep(*arguments, **others | keywords))  # type: ignore[attr-defined]
    for label, tolerance in (("early stop", {}), ("all layers", {"tolerance": None})):
        keywords.update(tolerance)
        clock.update(dict.fromkeys(clock, 0.0))
        start = perf_counter()
        numbers[label] = {claim.id: float(claim.here) for claim in fig3.claims(fig3.compute())}
        whole, four = perf_counter() - start, sum(clock[name] for name in panels)
        each = ", ".join(f"{letter} {clock[name]:.0f}" for letter, name in zip("abcd", panels, strict=True))
        print(f"figure 3, {label}: the four panels of the paper {four:.0f} s ({each}),", end=" ")
        print(f"with those beyond it {whole:.0f} s; all sweeps {clock['sweeps']:.0f} s")
    gap = max(abs(numbers["early stop"][name] - value) for name, value in numbers["all layers"].items())
    print(f"  the {len(numbers['all layers'])} report numbers differ by at most {gap:.1e}")


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["scalar", "long", "vector", "figure"]
    for name in chosen:
        {"scalar": scalar, "long": long, "vector": vector, "figure": figure}[name]()
