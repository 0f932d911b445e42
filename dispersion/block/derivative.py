"""The derivative of a block's whole nonlinear map at any state, not only a homogeneous one.

With s_i = LN_1(x_i), values v_j = M s_j and content logits q_i·k_j, q_i = G_i s_i and k_j = K_j s_j, softmax weights P
and their mean m_i = Σ_j P_ij v_j,

    ∂y_i/∂s_j = ε_a Σ_h [ A_ij M + P_ij (v_j − m_i)(q_iᵀ K_j) + δ_ij Σ_l P_il (v_l − m_i) k_lᵀ G_i ]
    DF_ij = DH(y_i) [ δ_ij I + (∂y_i/∂s_j) DLN_1(x_j) ]

where A = P, or A = (1−g)P + g softmax(positional) for a gated head, whose P counts 1−g times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispersion.block.block import Block, require_periodic
from dispersion.block.head import Head
from dispersion.block.kernel import softmax
from dispersion.block.slopes import jacobian_bytes
from dispersion.grid import positions
from dispersion.memory import require

Floats = NDArray[np.float64]


def value_and_jacobian(block: Block, x: Floats, layers: int = 1) -> tuple[Floats, Floats]:
    """F(X), (N, d), and DF(X), (N·d, N·d), token-major, of `block` at the real state `x` (N, d); those of F applied
    once in each of several `layers`.

    An ArgumentError says where DF does not exist: ReLU at its kink, a normalisation without variance.
    """
    require_periodic(block)
    require_jacobian(block)
    n, d = x.shape
    seen = block.seen(x)
    slope = np.zeros((n, d, n, d))
    weights = [_head(head, seen, slope) for head in block.heads]
    y = x + block.mix(weights, seen)
    if block.attention_scale != 1:
        slope *= block.attention_scale
    if block.attention_norm is not None and block.placement == "pre":
        slope = np.einsum("iajb,jbc->iajc", slope, block.seen_jacobian(x), optimize=True)
    token = np.arange(n)
    slope[token, :, token, :] += np.eye(d)
    outer = block.pointwise_jacobian(y)
    full = slope * outer[:, :, :, None] if d == 1 else outer @ slope.reshape(n, d, n * d)
    image, full = block.pointwise(y), full.reshape(n * d, n * d)
    if layers == 1:
        return image, full
    image, further = value_and_jacobian(block, image, layers - 1)
    return image, further @ full


def require_jacobian(block: Block, at_once: int = 1) -> None:
    """Refuse a `block` of which `at_once` dense derivatives do not fit in the memory."""
    n, d = block.n, block.d
    needed = jacobian_bytes(len(block.heads), n, d, 5 * at_once) + 24 * d * n**2
    require("block", f"derivatives of {n * d:,}² at {n:,} tokens", needed)


def _head(head: Head, seen: Floats, slope: Floats) -> Floats:
    """(n, n) A of one head at `seen` (n, d); ∂/∂s of its Σ_j A_ij v_j is added to `slope` (n, d, n, d)."""
    n = len(seen)
    values = seen @ head.value.T
    logit, position = head.query_key, positions(head.kernel.shape)
    queries, keys = logit._queries(seen, position) / logit.root, logit._keys(seen, position)
    query_slopes, key_slopes = logit.query_slope(position) / logit.root, logit.key_slope(position)
    content, positional = queries @ keys.T, head.positional()
    if head.gate is None:
        soft = softmax(content + positional)
        weights, share = soft, 1.0
    else:
        soft, share = softmax(content), 1 - head.gate
        weights = share * soft + head.gate * softmax(positional)
    mean = soft @ values
    deviation = values[None, :, :] - mean[:, None, :]
    tilted = (share * soft)[:, :, None] * deviation  # (i, j, a): P_ij (v_j − m_i)
    slope += weights[:, None, :, None] * head.value[None, :, None, :]
    sideways = tilted.transpose(0, 2, 1)[..., None]  # (i, a, j, 1)
    if key_slopes is not None and key_slopes.ndim == 3:
        slope += sideways * np.tensordot(queries, key_slopes, axes=(1, 1))[:, None, :, :]
    else:
        slope += sideways * (queries if key_slopes is None else queries @ key_slopes)[:, None, None, :]
    token = np.arange(n)
    slope[token, :, token, :] += (tilted.transpose(0, 2, 1) @ keys) @ query_slopes
    return np.asarray(weights)
