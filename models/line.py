"""Checks on a line of tokens, where ends and masks leave no waves: the patterns that grow most, predicted and run.

Around 1⊗a the derivative of a layer is known for any attention (Theorem 4.1), and of L layers along the orbit of a

    D_l = I⊗C_l + Σ_h A_h ⊗ (ε_a C_l M_h N_1),   P = D_{L−1} … D_0,   P v = σ u

whose singular vectors v are the perturbations that grow most, σ times. The test is the network itself, whose response
to v is compared with σu as a vector. J(q) is what P is far from the ends, where there is such a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dispersion import Chain
from dispersion.block.slopes import Slopes
from dispersion.errors import frozen_array
from dispersion.noun import Noun
from models.check import TOLERANCE
from models.inputs import Map
from models.sender import MEMORY, STEP, Sender, sizes

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LineCheck(Noun):
    """What was predicted on a line of tokens and what the network did, for the patterns that grow most.

    layers : their number L. inputs : (m, n, d) the singular vectors v, |v| = 1, by decreasing gain.
    expected : (m, n, d) P v = σu. response : (m, n, d) the derivative of the forward pass along each v.
    noise : (m,) relative change of the response under a smaller perturbation: its uncertainty.
    """

    layers: int
    inputs: Floats
    expected: Floats
    response: Floats
    noise: Floats

    @property
    def gain(self) -> Floats:
        """(m,) predicted growth σ."""
        return sizes(self.expected)

    @property
    def measured_gain(self) -> Floats:
        """(m,) growth in the forward pass."""
        return sizes(self.response)

    @property
    def error(self) -> Floats:
        """(m,) |response − σu| / σ: of the whole field, so no less than the relative error of the growth."""
        return sizes(self.response - self.expected) / np.maximum(self.gain, np.finfo(float).tiny)

    @property
    def centres(self) -> Floats:
        """(m, 2) the mean token, counted from 0 and weighted by the square of the field, of v and of σu."""
        tokens = np.arange(self.inputs.shape[1])
        weights = np.stack([np.square(fields).sum(-1) for fields in (self.inputs, self.expected)], axis=1)
        return np.asarray(weights @ tokens / weights.sum(-1))

    @property
    def confirmed(self) -> bool:
        """Whether the error is within TOLERANCE for every pattern."""
        return bool(self.error.max() <= TOLERANCE)

    @property
    def verdict(self) -> str:
        """One line: whether the forward pass confirms the prediction, and how far anything grows."""
        leader = f"what grows most on it is multiplied by {self.gain[0]:.4g}"
        if self.confirmed:
            return f"confirmed to {self.error.max():.1e} on the line of tokens; {leader}"
        worst = int(np.argmax(self.error))
        known = f"the response itself is known to {self.noise[worst]:.1e}"
        return f"not confirmed on the line of tokens: error {self.error[worst]:.1e} of pattern {worst + 1} ({known})"


def line_check(
    layers: Sequence[Map],
    state: ArrayLike,
    chains: Sequence[Chain],
    *,
    patterns: int = 6,
    batched: bool = False,
    memory: int = MEMORY,
    device: str | torch.device | None = None,
    progress: bool = False,
    rng: int = 0,
) -> LineCheck:
    """Predict what grows most through `layers` on a line of tokens around 1⊗a, and run them to see.

    layers : maps of float64 tensors (n, d) to the same, the first layer first; chains : the same layers as Chains.
    state : a, (d,). patterns : how many, those of the largest gain. The rest as in `check`; rng : of Lanczos' start.
    """
    from scipy.sparse.linalg import LinearOperator, svds

    a = frozen_array("state", state, (chains[0].d,))
    n, d = chains[0].n, chains[0].d
    derivatives, base = [], a
    for chain in chains:
        derivatives.append((Slopes(chain.block, base), chain.attention(base)))
        base = chain.block.homogeneous_map(base)

    def through(v: Floats) -> list[Floats]:
        """(n, d) v after 0 … L layers."""
        return list(accumulate(derivatives, lambda u, layer: layer[0].apply(layer[1], u), initial=v.reshape(n, d)))

    def back(u: Floats) -> Floats:
        for slopes, attention in reversed(derivatives):
            u = slopes.apply_transposed(attention, u.reshape(n, d))
        return u.ravel()

    operator = LinearOperator((n * d, n * d), lambda v: through(v)[-1].ravel(), back, dtype=np.float64)
    start = np.random.default_rng(rng).normal(size=n * d)
    _, gains, rows = svds(operator, min(patterns, n * d - 1), v0=start)
    paths = np.array([through(v) for v in rows[np.argsort(-gains)]])
    inputs, expected = paths[:, 0], paths[:, -1]
    # small enough where it is largest
    scale = STEP * (float(np.linalg.norm(a)) or 1.0) / sizes(paths).max(axis=1)
    sender = Sender(layers, a, n, batched, memory, device, progress)
    response, noise = sender.limits(inputs, scale)
    return LineCheck(len(chains), inputs, expected, response, noise)
