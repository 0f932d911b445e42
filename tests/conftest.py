"""Settings and random inputs shared by the tests."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from dispersion import Block, FeedForward, Head, Kernel

settings.register_profile(
    "tokenwaves",
    deadline=None,
    max_examples=30,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.filter_too_much],  # blocks far from what a theorem is about are many
)
settings.load_profile("tokenwaves")

SMOOTH = ("tanh", "gelu", "gelu_tanh", "silu", "quick_gelu", "erf", "sine")


@pytest.fixture
def random_block():
    """A maker of random blocks: directional kernels, dense weights, all biases, ε_a ≠ 1."""

    def make(seed, n=8, d=2, heads=2, activation="tanh", hidden=None, gated=False):
        rng = np.random.default_rng(seed)
        hidden = d + 2 if hidden is None else hidden
        attention = [
            Head(
                Kernel.table(rng.normal(size=n), causal=bool(rng.integers(2))),
                rng.normal(size=(d, d)) / np.sqrt(d),
                rng.normal(size=(d, d)),
            )
            for _ in range(heads)
        ]
        feedforward = FeedForward(
            rng.normal(size=(hidden, d)) / np.sqrt(d),
            rng.normal(size=(d, hidden)) / np.sqrt(hidden),
            activation,
            rng.normal(size=hidden),
            rng.normal(size=d),
            *((rng.normal(size=(hidden, d)) / np.sqrt(d), rng.normal(size=hidden)) if gated else ()),
        )
        return Block(attention, feedforward, attention_scale=rng.uniform(0.3, 1.2))

    return make
