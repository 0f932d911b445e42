"""Random blocks, codes and batches for tests of looped networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion import Block, FeedForward, Head, Kernel
from dispersion.block.factors import OutputValue, QueryKey
from training.codes import Code


@dataclass(frozen=True)
class Batch:
    """(B, N) each."""

    inputs: NDArray[np.int64]
    labels: NDArray[np.int64]
    scored: NDArray[np.bool_]


def random_block(
    rng: np.random.Generator, n: int = 16, d: int = 12, heads: int = 3, m: int = 20, scale: float = 1.0
) -> Block:
    """A block with low-rank heads, biases of its queries and keys, and a table of logits."""
    w = d // heads
    return Block(
        [
            Head(
                Kernel.table(rng.normal(size=n)),
                OutputValue(rng.normal(size=(d, w)) / d, scale * rng.normal(size=(w, d)) / d),
                QueryKey(*rng.normal(size=(2, w, d)) / np.sqrt(d), *rng.normal(size=(2, w))),
            )
            for _ in range(heads)
        ],
        FeedForward(
            rng.normal(size=(m, d)) / d, rng.normal(size=(d, m)) / d, "tanh", rng.normal(size=m), rng.normal(size=d) / 8
        ),
        attention_scale=0.8,
    )


def random_code(rng: np.random.Generator, d: int = 12, levels: int = 5) -> Code:
    """A code without structure."""
    return Code(rng.normal(size=(levels + 1, d)), rng.normal(size=(levels, d)), rng.normal(size=levels))


def random_batch(rng: np.random.Generator, count: int = 6, n: int = 16, levels: int = 5) -> Batch:
    """Tokens and labels without relation."""
    inputs = rng.integers(0, levels + 1, (count, n))
    return Batch(inputs, rng.integers(0, levels, (count, n)), rng.random((count, n)) < 0.5)
