"""Standing waves of many scalar blocks at once: Newton's method and multipliers in batches.

A pattern of wavenumber k of a block with gain η is followed from its onset η_c, where α_1(1 + Ση_hλ_h(k)) = 1: the gain
grows in steps from η_c to η, and the field with it as √(η − η_c). The fields are even about a centre c,
X_{c−j} = X_j, or odd, so that sliding is no obstacle.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import gcd

import numpy as np
from numpy.typing import NDArray

from amplitude.closed_forms.cubic import self_coupling
from amplitude.closed_forms.scalar_forms import ScalarForms
from amplitude.exact.equations import Floats
from amplitude.exact.states import NEUTRAL
from dispersion import Block, ExclusionError, FeedForward
from dispersion.block.scalar_blocks import ScalarHeads
from dispersion.grid import lag_index
from dispersion.memory import require

STEPS = 8
"""Gains between onset and the block's own at which the pattern is computed."""


def fits(block: Block) -> bool:
    """Whether `block` is one of those this module is for: scalar, plain but for a gate, symmetric kernels, φ(0) = 0.

    Without φ there is no onset to begin at: all Λ are 1 where the gain is 0.
    """
    part = block.feedforward
    return (
        block.d == 1
        and replace(block, feedforward=None).plain
        and all(head.kernel.symmetric for head in block.heads)
        and part is not None
        and abs(float(part(np.zeros(1))[0])) <= 1e-15
        and part.activation.name not in ("relu", "relu_squared")
    )


def likeness(block: Block) -> tuple[object, ...]:
    """Equal for blocks that can be computed together."""
    part = block.feedforward
    assert part is not None  # so says `fits`
    arrays = [value for value in vars(part).values() if isinstance(value, np.ndarray)]
    return block.n, len(block.heads), part.activation, part.gated, *(array.tobytes() for array in arrays)


def standing_patterns(
    blocks: list[Block], k: int, phase: float, centre: int
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """(fields (B, N), found (B,), largest |Λ| (B,)) of the standing wave 2R cos(qj + ψ) + … of each block.

    blocks : of one `likeness`, each with Λ_k > 1; k : wavenumber, k > 0; phase : ψ, 0 or π/n, or π/2n if F is odd;
    centre : c, X_{c−j} = X_j, or −X_j at π/2n.
    Where it is not found the field and |Λ| mean nothing.
    """
    heads, part, n = ScalarHeads.of(blocks), blocks[0].feedforward, blocks[0].n
    assert part is not None  # so says `fits`
    linearised = partial(_linearised, heads, part)
    require("blocks", f"{len(blocks):,} derivatives of {n:,}²", 48 * len(blocks) * n**2)
    angle = 2 * np.pi * k * np.arange(n) / n + phase
    crest, slide = np.cos(angle), np.sin(angle)
    size = float(slide @ slide)
    sideways = np.outer(slide, slide) / size if size > 1e-9 else np.zeros((n, n))
    onset, excess, cubic = _onset(heads, part, k)
    with np.errstate(all="ignore"):
        first = 1.0 / STEPS**2
        x = np.sqrt(4 * excess * first / -cubic)[:, None] * crest
        found: NDArray[np.bool_] = np.isfinite(x).all(axis=1) & (onset > 0) & (onset < 1)
        x[~found], onset = 0.0, np.where(found, onset, 0.5)
        for step in range(1, STEPS + 1):
            gain = onset + (1 - onset) * (step / STEPS) ** 2
            x, residual, slope = _newton(linearised, x, gain, sideways, 12 if step == STEPS else 3)
            if step < STEPS:
                x *= (step + 1) / step
        spectrum = np.abs(np.fft.rfft(x, axis=1))
        spectrum[:, 0] = 0.0
        found &= (residual <= 1e-12 * (1 + np.abs(x).max(axis=1))) & (spectrum.argmax(axis=1) == min(k, n - k))
        found &= spectrum.max(axis=1) > 1e-7 * n
    largest = np.full(len(x), np.nan)
    if found.any():
        largest[found] = _largest(slope[found], n // gcd(k, n), centre)
    return x, found, largest


def _linearised(heads: ScalarHeads, part: FeedForward, x: Floats, gain: Floats) -> tuple[Floats, Floats]:
    """F(X), (B, N), and DF, (B, N, N), at the states `x` (B, N), every η_h times `gain` (B,)."""
    n = x.shape[1]
    y, slope = x.copy(), np.zeros((len(x), n, n))
    diagonal = np.ones_like(x)
    index = lag_index((n,))
    for h in range(heads.value.shape[1]):
        eta, chi = (heads.value[:, h] * gain)[:, None], heads.content[:, h, None]
        weights = (chi * x)[:, :, None] * x[:, None, :] + heads.logits[:, h][:, index]
        weights -= weights.max(axis=2, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=2, keepdims=True)
        mean = np.einsum("bij,bj->bi", weights, x)
        square = np.einsum("bij,bj->bi", weights, x**2)
        y += eta * mean
        diagonal += eta * chi * (square - mean**2)
        # η A_ij [1 + χ x_i (x_j − m_i)]
        tilt = chi * x
        weights *= (1 - tilt * mean)[:, :, None] + tilt[:, :, None] * x[:, None, :]
        slope += eta[:, :, None] * weights
    slope[:, np.arange(n), np.arange(n)] += diagonal
    series = part.taylor(y, 1)
    return y + series[..., 0], (1 + series[..., 1])[:, :, None] * slope


def _onset(heads: ScalarHeads, part: FeedForward, k: int) -> tuple[Floats, Floats, Floats]:
    """(B,) the factor of η at which Λ_k = 1, Λ_k − 1 of the blocks themselves, and the cubic coefficient at an onset
    between 0 and 1, NaN elsewhere."""
    a1, a2, a3 = part.taylor(0.0, 3)[1:] + np.array([1.0, 0.0, 0.0])
    symbols, n = heads.symbols.real, heads.n
    branch = (heads.value * symbols[..., k % n]).sum(axis=1)
    with np.errstate(all="ignore"):
        onset = (1 / a1 - 1) / branch
    cubic = np.full(len(onset), np.nan)
    for place in np.flatnonzero((onset > 0) & (onset < 1)):
        eta = onset[place] * heads.value[place]
        forms = ScalarForms(n, (a1, a2, a3), eta, heads.content[place], symbols[place])
        with suppress(ExclusionError):  # nothing follows the wave where α_2 = 0
            cubic[place] = self_coupling(forms, k, 1.0, harmonic=bool(a2)).coefficient.real
    return onset, a1 * (1 + branch) - 1, cubic


def _newton(
    linearised: Callable[[Floats, Floats], tuple[Floats, Floats]], x: Floats, gain: Floats, sideways: Floats, steps: int
) -> tuple[Floats, Floats, Floats]:
    """(x, max|F(X) − X|, DF) after at most `steps` steps; even and odd fields have no component along
    `sideways`."""
    identity = np.eye(x.shape[1])
    for _ in range(steps):
        image, slope = linearised(x, gain)
        residual = image - x
        if np.abs(residual).max(initial=0.0, where=np.isfinite(residual)) <= 1e-15:
            break
        matrix = slope - identity + sideways
        sound: NDArray[np.bool_] = np.asarray(np.isfinite(matrix).all(axis=(1, 2)))
        matrix[~sound] = identity
        try:
            step = np.linalg.solve(matrix, residual[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:  # one of them is singular
            step = (np.linalg.pinv(matrix) @ residual[:, :, None])[:, :, 0]
        # no step longer than the field, which might fall back to zero or to another pattern
        limit = np.linalg.norm(x, axis=1) / np.maximum(np.linalg.norm(step, axis=1), 1e-300)
        step *= np.minimum(1.0, limit)[:, None]
        x = np.where(sound[:, None], x - step, 0.0)
    image, slope = linearised(x, gain)
    return x, np.abs(image - x).max(axis=1), slope


def _largest(slope: Floats, n: int, centre: int) -> Floats:
    """(B,) the largest |Λ| of DF (B, N, N) at fields of period `n` that are even about `centre`."""
    size = slope.shape[1]
    if n < size:  # sectors e^{iκj} w_j, κ = 2πm/N
        blocks = slope[:, :n].reshape(-1, n, size // n, n)
        sectors = np.moveaxis(np.fft.fft(blocks, axis=2), 2, 1)[:, : size // n // 2 + 1]
        return np.abs(np.linalg.eigvals(sectors)).max(axis=(1, 2))
    mirror = np.eye(size)[(centre - np.arange(size)) % size]
    largest = []
    for sign in (1, -1):
        values, vectors = np.linalg.eigh((np.eye(size) + sign * mirror) / 2)
        basis = vectors[:, values > 0.5]
        largest.append(np.abs(np.linalg.eigvals(basis.T @ slope @ basis)).max(axis=1))
    return np.maximum(*largest)


def stable(largest: Floats) -> NDArray[np.bool_]:
    """Whether no multiplier of modulus up to `largest` (B,) grows: |Λ| ≤ 1 + `NEUTRAL`."""
    with np.errstate(invalid="ignore"):
        return np.asarray(largest <= 1 + NEUTRAL)
