"""The blocks of Figure 3 (App. I.2)."""

from __future__ import annotations

import numpy as np

from dispersion import Activation, Block, FeedForward, Head, Kernel

N = 32
CHI = 1.5
DEPTH = 5000
SEED = 0
START = 1e-3
"""Standard deviation of the noise from which maps start."""
NEAR_ONSET = 1.05
SETTLED_MU = 1e-3
FEEDFORWARD = FeedForward.scalar("tanh", scale=-0.1)
GAIN = FEEDFORWARD.taylor(0.0, 1)[1] + 1
"""α_1 of H(h) = h − 0.1 tanh h."""


def two_lobes(strength: float, separation: float = 4.0, width: float = 1.0) -> Kernel:
    """s K_Δ, the symmetric kernel of the paper."""
    return Kernel.gaussian_lobes(N, separation, width, strength)


def one_lobe(strength: float) -> Kernel:
    """The directional kernel of the travelling series."""
    return Kernel.skewed_lobe(N, 4, 0.7, 2.0, strength)


def four_and_ten(w: float) -> Kernel:
    """4[(1−w)K_2 + wK_4.5] of width 0.7, which can make k = 4 and 10 critical together."""
    return 4.0 * ((1 - w) * two_lobes(1.0, 2, 0.7) + w * two_lobes(1.0, 4.5, 0.7))


def four_and_five(w: float, strength: float) -> Kernel:
    """s[(1−w)K_4 + wK_3], the kernel of panel d; the second lobe has width 0.7."""
    return strength * ((1 - w) * two_lobes(1.0) + w * two_lobes(1.0, 3, 0.7))


def tanh_block(kernel: Kernel, eta: float) -> Block:
    """One head with value η and content χ, and φ(h) = −0.1 tanh h."""
    return Block([Head(kernel, value=eta, content=CHI)], FEEDFORWARD)


def cluster_block(mu: float) -> Block:
    """No positional encoding, η = −0.6, φ(y) = μy + 0.3y² − y³/3."""
    polynomial = Activation.polynomial([mu, 0.3, -1 / 3])
    return Block([Head(Kernel.uniform(N), value=-0.6, content=CHI)], FeedForward.scalar(polynomial))


def gain_for(kernel: Kernel, k: int, mu: float) -> float:
    """The η < 0 for which |α_1(1 + ηλ(q))| = 1 + μ."""
    symbol = kernel.symbol[k]
    roots = np.roots([abs(symbol) ** 2, 2 * symbol.real, 1 - ((1 + mu) / GAIN) ** 2]).real
    return float(roots[roots < 0].max())
