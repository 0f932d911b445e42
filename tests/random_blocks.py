"""Random blocks near onset, each kind from whole-number seeds: what the predictions of theory are judged on."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pytest
from scipy.optimize import brentq

from amplitude import normal_form
from amplitude.exact.resting import resting_state
from dispersion import (
    Activation,
    ArgumentError,
    Block,
    DyT,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    RMSNorm,
    dispersion_relation,
)

T = TypeVar("T")

ATTEMPTS = 400
"""Draws after which a seed is given up: none is, of those used."""


def seeds(short: range, slow: range, long: range) -> pytest.MarkDecorator:
    """Parametrise a test by `seed`: those of `short` by default, others of `slow` and `long` with the marks of that
    name, slow and exhaustive.
    """
    marks = dict.fromkeys(long, pytest.mark.exhaustive)
    marks |= dict.fromkeys(slow, pytest.mark.slow)
    marks |= dict.fromkeys(short, ())
    return pytest.mark.parametrize("seed", [pytest.param(seed, marks=marks[seed]) for seed in sorted(marks)])


def vector_block(seed: int) -> Block:
    """A block of 2 … 4 features and 1 … 3 heads on 5 … 40 tokens with leading |Λ| in (1.002, 1.02), supercritical.

    Kernels are tables, lobes, ALiBi or von Mises, half of the blocks symmetric; feed-forwards of all smooth kinds;
    a part has norms or biases. Nothing else is chosen.
    """

    def draw(rng: np.random.Generator) -> Block | None:
        d, n, symmetric = int(rng.integers(2, 5)), int(rng.integers(5, 41)), rng.random() < 0.5
        content = rng.choice([0.3, 1.0, 2.0])
        heads = [
            Head(
                kernel(rng, n, symmetric),
                rng.normal(size=(d, d)) / np.sqrt(d),
                content * rng.normal(size=(d, d)),
            )
            for _ in range(rng.integers(1, 4))
        ]
        biased, norms = rng.random() < 0.4, {}
        if rng.random() < 0.4:
            norms = {"attention_norm": norm(rng, d, biased), "feedforward_norm": norm(rng, d, biased)}
            norms["placement"] = "pre" if rng.random() < 0.7 else "post"
        block = Block(heads, feedforward(rng, d, biased), **norms)
        return supercritical(near_onset(block, rng.uniform(1.002, 1.02)))

    return _first(draw, 1, seed)


def two_mode_kernel(seed: int) -> tuple[Block, int, int]:
    """A scalar block whose kernel mixes two lobes so that two modes grow and no third, and their wavenumbers, the one
    that grows faster first.
    """

    def draw(rng: np.random.Generator) -> tuple[Block, int, int] | None:
        n, strength = int(rng.integers(24, 41)), rng.uniform(1, 4)
        near = Kernel.gaussian_lobes(n, rng.uniform(1.5, 4), rng.uniform(0.5, 1.3), strength)
        far = Kernel.gaussian_lobes(n, rng.uniform(3, 7), rng.uniform(0.5, 1.3), strength)
        share = np.linspace(0, 1, 41)
        symbols = np.array([((1 - w) * near + w * far).symbol.real[1 : (n + 1) // 2] for w in share])
        leading = symbols.argmin(axis=1) + 1
        change = np.flatnonzero(leading[:-1] != leading[1:])
        if not len(change):
            return None
        place = rng.choice(change)
        i, j = sorted((int(leading[place]), int(leading[place + 1])))

        def gap(w: float) -> float:
            symbol = ((1 - w) * near + w * far).symbol.real
            return float(symbol[i] - symbol[j])

        if gap(share[place]) * gap(share[place + 1]) >= 0:
            return None
        w = brentq(gap, share[place], share[place + 1]) + rng.normal() * 0.003
        mixed = (1 - w) * near + w * far
        a1, a2, a3 = rng.uniform(0.75, 0.97), rng.choice([0.0, rng.uniform(-0.3, 0.3)]), rng.uniform(-0.6, 0.2)
        series = Activation.polynomial([a1 - 1, a2, a3]) if rng.random() < 0.7 else None
        part = FeedForward.scalar(series, 1.0) if series else FeedForward.scalar("tanh", a1 - 1)
        mu = 10 ** rng.uniform(-2.7, -1.5)
        symbol = mixed.symbol.real
        gain = ((1 + mu) / a1 - 1) / symbol[1 : (n + 1) // 2].min()
        block = Block([Head(mixed, gain, rng.uniform(0.3, 2.5))], part)
        growth = np.abs(dispersion_relation(block).multipliers[: n // 2 + 1, 0])
        first, second, third = np.argsort(-growth)[:3]
        if {int(first), int(second)} != {i, j} or not growth[second] > 1 > growth[third]:
            return None
        return block, int(first), int(second)

    return _first(draw, 2, seed)


def rotating_block(seed: int) -> Block:
    """A block of 2 … 4 features with symmetric kernels and a complex leading Λ, 0 < q < π: waves travel or stand."""

    def draw(rng: np.random.Generator) -> Block | None:
        d, n = int(rng.integers(2, 5)), int(rng.integers(8, 41))
        angle = rng.uniform(0.3, 2.8)
        turn = np.eye(d) * rng.uniform(-0.5, 1)
        turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        value = turn @ (np.eye(d) + 0.2 * rng.normal(size=(d, d)))
        heads = [
            Head(kernel(rng, n, True), rng.choice([-1, 1]) * value, rng.normal(size=(d, d)) * rng.choice([0.5, 2]))
        ]
        if rng.random() < 0.3:
            heads.append(Head(kernel(rng, n, True), 0.2 * rng.normal(size=(d, d)), rng.normal(size=(d, d))))
        block = near_onset(Block(heads, feedforward(rng, d, rng.random() < 0.2)), rng.uniform(1.002, 1.03))
        if block is None:
            return None
        mode = dispersion_relation(block, resting_state(block)).leading()
        if not 0 < 2 * mode.k < n or abs(mode.multiplier.imag) < 1e-3:
            return None
        return supercritical(block)

    return _first(draw, 3, seed)


def ring_block(seed: int) -> Block:
    """A scalar block on 5 … 40 tokens, even maps and odd ones, Λ of both signs, |Λ| in (1.003, 1.1) at 0 < q ≤ π."""

    def draw(rng: np.random.Generator) -> Block | None:
        n, symmetric = 5 + seed % 36, rng.random() < 0.8
        odd, a1 = rng.random() < 0.5, rng.choice([1, 1, -1]) * rng.uniform(0.7, 0.97)
        kind = rng.integers(3)
        if a1 > 0 and kind == 0:
            part = FeedForward.scalar(rng.choice(["tanh", "sine", "erf"]), a1 - 1)
        elif a1 > 0 and kind == 1:
            part = FeedForward.scalar(rng.choice(["gelu", "silu"]), 2 * (a1 - 1))
        else:
            cubic = rng.uniform(-0.6, 0.2) * np.sign(a1)
            part = FeedForward.scalar(Activation.polynomial([a1 - 1, 0 if odd else rng.uniform(-0.4, 0.4), cubic]))
        head = Head(kernel(rng, n, symmetric), rng.choice([-1, -1, -1, 1]), rng.uniform(0, 2.5))
        block = near_onset(Block([head], part), rng.uniform(1.003, 1.1))
        if block is None or dispersion_relation(block).leading().k == 0:
            return None
        return block

    return _first(draw, 4, seed)


def cluster_block(seed: int) -> Block:
    """A scalar block of 4 … 16 tokens without positional encoding, 1 or 2 heads, C in (1.002, 1.08): clusters form."""

    def draw(rng: np.random.Generator) -> Block | None:
        n, a1 = int(rng.integers(4, 17)), 1 + rng.uniform(0.002, 0.08)
        series = [a1 - 1, rng.choice([0.0, 1.0]) * rng.uniform(-0.3, 0.3), -rng.uniform(0.05, 0.6)]
        kind = rng.integers(3)
        if kind == 0:
            part = FeedForward.scalar(rng.choice(["tanh", "sine", "erf"]), a1 - 1)
        else:
            part = FeedForward.scalar(Activation.polynomial(series))
        share = rng.dirichlet(np.ones(rng.integers(1, 3)))
        gain = rng.uniform(-1.8, -0.1)
        return Block([Head(Kernel.uniform(n), gain * w, rng.uniform(-0.5, 2.5)) for w in share], part)

    return _first(draw, 5, seed)


def kernel(rng: np.random.Generator, n: int, symmetric: bool) -> Kernel:
    """A random kernel of one of four kinds on `n` tokens."""
    kind = rng.integers(4)
    strength = rng.uniform(0.5, 4)
    if kind == 0:
        logits = rng.normal(size=n) * rng.choice([0.5, 1.0, 2.0])
        return Kernel.table((logits + np.roll(logits[::-1], 1)) / np.sqrt(2) if symmetric else logits)
    if kind == 1:
        separation, width = rng.uniform(0, n / 3), rng.uniform(0.4, 2)
        if symmetric:
            return Kernel.gaussian_lobes(n, separation, width, strength)
        return Kernel.skewed_lobe(n, separation, width, rng.uniform(0.4, 3), strength)
    if kind == 2:
        return Kernel.alibi(n, 10 ** rng.uniform(-1, 0.3), causal=not symmetric)
    return Kernel.von_mises(n, int(rng.integers(1, n // 2 + 1)), strength, 0.0 if symmetric else rng.uniform(0, 6.28))


def feedforward(rng: np.random.Generator, d: int, biased: bool) -> FeedForward:
    """A random smooth feed-forward that damps on average, or None."""
    size = rng.uniform(0.05, 0.4)
    kind = rng.choice(["tanh", "gelu", "silu", "sine", "polynomial"])
    if kind == "polynomial":
        coefficients = [-size, rng.uniform(-0.3, 0.3), -rng.uniform(0, 0.4)]
        return FeedForward(np.eye(d), np.eye(d), Activation.polynomial(coefficients))
    if rng.random() < 0.3:
        return FeedForward.elementwise(str(kind), d, -size)
    hidden = int(rng.integers(d, 2 * d + 1))
    inner = rng.normal(size=(hidden, d)) / np.sqrt(d)
    outer = -2 * size * inner.T / hidden * d + 0.1 * rng.normal(size=(d, hidden)) / np.sqrt(hidden)
    biases = (0.5 * rng.normal(size=hidden), 0.1 * rng.normal(size=d)) if biased else ()
    return FeedForward(inner, outer, str(kind), *biases)


def norm(rng: np.random.Generator, d: int, biased: bool) -> LayerNorm | RMSNorm | DyT:
    """A random normalisation of `d` features."""
    gain, bias = rng.uniform(0.5, 1.5, d), 0.3 * rng.normal(size=d) if biased else None
    kind = rng.integers(3)
    if kind == 0:
        return LayerNorm(gain, bias, eps=10 ** rng.uniform(-2, 0))
    return RMSNorm(gain, bias, eps=10 ** rng.uniform(-2, 0)) if kind == 1 else DyT(gain, bias, rng.uniform(0.3, 1.5))


def near_onset(block: Block, growth: float) -> Block | None:
    """`block` with the smallest ε_a found at which the leading |Λ| at its state of rest is `growth`, or None."""

    def scaled(scale: float) -> Block:
        return replace(block, attention_scale=scale)

    def excess(scale: float) -> float:
        trial = scaled(scale)
        relation = dispersion_relation(trial, resting_state(trial))
        return float(np.abs(relation.multipliers).max()) - growth

    try:
        scales = np.geomspace(0.03, 6, 25)
        before = excess(scales[0])
        for low, high in pairwise(scales):
            after = excess(high)
            if before < 0 < after:
                return scaled(brentq(excess, low, high, xtol=1e-12))
            before = after
    except ArgumentError:  # no state of rest
        pass
    return None


def supercritical(block: Block | None) -> Block | None:
    """`block` if the cubic form of its leading mode saturates it, else None."""
    if block is None:
        return None
    state = resting_state(block)
    try:
        form = normal_form(block, dispersion_relation(block, state).leading(), 3, state)
    except ArgumentError:
        return None
    return block if form.supercritical else None


def _first(draw: Callable[[np.random.Generator], T | None], kind: int, seed: int) -> T:
    """The first of the draws of `seed` that is not None."""
    rng = np.random.default_rng((kind, seed))
    for _ in range(ATTEMPTS):
        found = draw(rng)
        if found is not None:
            return found
    raise RuntimeError(f"nothing found for seed {seed} of kind {kind}")
