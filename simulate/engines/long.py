"""The engine of long scalar rings: moments by fast Fourier transforms, O(N log N) time and O(N) memory a layer.

Σ_j P_{i−j} e^{χ x_i x_j} = 1 + Σ_{k=1}^{M} c_k (χ x_i)^k (P * x^k)_i, and its derivative by χx_i is the numerator.
M is chosen from |χ| max x² for a relative error below TOLERANCE in every exponential. Where that needs
more than MOST_TERMS, or cancels too many digits, one exponential for each pair is computed: O(N²) time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion import Block, Kernel
from dispersion.block.scalar_blocks import ScalarBlocks
from simulate.engines.engine import Engine, Model, heads_of, is_plain_ring
from simulate.engines.exponential import coefficients, reach
from simulate.engines.scalar import steady
from simulate.engines.states import OneMap
from simulate.engines.threads import pool, thread_count

TOLERANCE = 1e-13
"""Relative error allowed in e^{χ x_i x_j}."""

STEEPEST = 3.0
"""|χ| max x² beyond which the terms cancel too much: rounding grows by e^{2|χ|max x²}."""

THREADED = 2**14
"""Tokens from which threads are worth while."""

MOST_TERMS = next(degree for degree in range(1, 60) if degree % 2 and reach(degree, TOLERANCE) >= STEEPEST) + 1
REACHES = [reach(degree, TOLERANCE) for degree in range(1, MOST_TERMS, 2)]


class Fft(Engine):
    """Plain blocks of one feature on rings of any length."""

    name = "fft"

    def fits(self, model: Model) -> bool:
        """Whether `model` is such a block."""
        return is_plain_ring(model)

    def system(self, models: Sequence[Model]) -> OneMap:
        """The points of one of these `models`, the first."""
        block = models[0]
        assert isinstance(block, Block)
        return OneMap(LongRing(block), ScalarBlocks.of([block]))

    def operations(self, model: Model) -> float:
        """Of the transforms."""
        return float(heads_of(model) * model.n * 40 * np.log2(model.n))

    def bytes(self, model: Model, points: int) -> float:
        """Of states, and transforms."""
        return 8 * model.n * (40 * points + 12 + 8 * heads_of(model))


class LongRing:
    """The map F of a scalar block on a long ring.

    block : plain, d = 1.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        content = np.array([head.content[0, 0] for head in block.heads])
        self._steep = float(np.abs(content).max())
        self._heads = [_LongHead(head.kernel, chi) for head, chi in zip(block.heads, content, strict=True)]
        self._steady = min(head.steady for head in self._heads)
        self._values = [block.attention_scale * head.value[0, 0] for head in block.heads]

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(P, N, 1) F(X)."""
        return np.stack([self.layer(state[:, 0]) for state in x])[..., None]

    def terms(self, x: NDArray[np.float64]) -> int:
        """M for the state `x` (N,): even; 0 if it is beyond the moments."""
        peak = self._steep * float(np.abs(x).max()) ** 2
        return next((2 * row + 2 for row, z in enumerate(REACHES) if peak <= min(z, STEEPEST)), 0)

    def layer(self, x: NDArray[np.float64], terms: int | None = None) -> NDArray[np.float64]:
        """(N,) F(x); `terms`: M, by default `self.terms(x)`; 0 for exponentials."""
        terms = self.terms(x) if terms is None else terms
        attended = self._by_moments(x, terms) if terms else self._exactly(x)
        y = x + sum(eta * mean for eta, mean in zip(self._values, attended, strict=True))
        out: NDArray[np.float64] = self.block.pointwise(y[:, None])[:, 0]
        return out

    def _exactly(self, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        shifted = self._steep * float(np.abs(x).max()) ** 2 > self._steady
        return [head.exact(x, shifted) for head in self._heads]

    def _by_moments(self, x: NDArray[np.float64], terms: int) -> list[NDArray[np.float64]]:
        from scipy import fft

        n, heads = len(x), range(len(self._heads))
        slope = coefficients(terms - 1, REACHES[terms // 2 - 1])
        c = slope / np.arange(1, terms + 1)
        workers = thread_count() if n >= THREADED else 1
        tilts = [head.content * x for head in self._heads]
        squares = [t * t for t in tilts]
        power, batch = np.ones(n), np.empty((min(workers, terms // 2), n), dtype=complex)
        numerators, denominators, powers = np.zeros((len(heads), n)), np.ones((len(heads), n)), np.ones((len(heads), n))
        for first in range(1, terms, 2 * len(batch)):
            ks = range(first, min(first + 2 * len(batch), terms), 2)
            for pair, k in zip(batch, ks, strict=False):
                odd = power * x
                power = odd * x
                pair.real, pair.imag = c[k - 1] * odd, c[k] * power
            spectrum = fft.fft(batch[: len(ks)], axis=-1, workers=workers)
            for h in heads:
                moments = fft.ifft(spectrum * self._heads[h].symbol, axis=-1, workers=workers, overwrite_x=True)
                t = tilts[h]
                for pair, k in zip(moments, ks, strict=True):  # T and S = dT/dt, k at a time
                    odd, even = pair.real, pair.imag * t
                    numerators[h] += powers[h] * (k * odd + (k + 1) * even)
                    denominators[h] += powers[h] * t * (odd + even)
                    powers[h] *= squares[h]
        return list(numerators / denominators)


class _LongHead:
    """kernel : b_r by r mod N. content : χ."""

    def __init__(self, kernel: Kernel, content: float) -> None:
        from scipy import fft

        self.content = float(content)
        self.symbol = fft.fft(kernel.weights)
        self.weights, self.logits = kernel.weights, kernel.logits - kernel.logits.max()
        self.steady = float(steady(self.logits))

    def exact(self, x: NDArray[np.float64], shifted: bool) -> NDArray[np.float64]:
        """(N,) S/T with one exponential for each pair of tokens, of rows `shifted` by their largest logit or not."""
        from simulate.engines._exp import LOG2_E, REMOVED
        from simulate.engines._lanes import LANES
        from simulate.engines._rows import exact_rows, shifted_rows

        n = len(x)
        keys = np.zeros(-(-n // LANES) * LANES)
        keys[:n] = x
        positional = np.maximum(self.logits * LOG2_E, REMOVED) if shifted else self.weights
        reverse = positional[::-1]
        positional = np.concatenate([reverse, reverse, np.zeros(LANES)])
        ratio = np.empty(n)
        edges = np.linspace(0, n, thread_count() + 1).astype(int)
        x = np.ascontiguousarray(x)
        rest: tuple[Any, ...] = (x, keys, positional, self.content, ratio)
        rows = shifted_rows if shifted else exact_rows
        for future in [pool().submit(rows, int(a), int(b), *rest) for a, b in pairwise(edges)]:
            future.result()
        return ratio
