"""One trained Transformer layer: its weights, as a float64 torch module and as a Block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dispersion import Block, FeedForward, Head, Kernel, LayerNorm, Normalisation, RMSNorm, Rotary
from dispersion.errors import ArgumentError
from models.layers import FUNCTIONS, standardised

Floats = NDArray[np.float64]

NAMED = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
    "swish": "silu",
    "relu2": "relu_squared",
}
"""Names of activations in the settings of reference implementations, and here."""


def activation_named(name: object) -> str:
    """The name in `Activation` of what a config calls `name`; an ArgumentError if it is unknown."""
    found = NAMED.get(str(name), str(name))
    if found not in FUNCTIONS:
        raise ArgumentError("activation", repr(name), ", ".join([*FUNCTIONS, *NAMED]))
    return found


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one layer, whatever its family calls them; maps act as W @ x on a token.

    heads : H. query, key, value : (H·d_h, d), one head after the other; out : (d, H·d_h). Their biases, or None.
    placement : of the normalisations, 'pre' or 'post'; attention_norm, feedforward_norm : LayerNorm or RMSNorm.
    weight_in : (m, d); weight_out : (d, m), and biases; activation : its name in `Activation`.
    weight_gate : (m, d) of a gated feed-forward W_out (act(W_gate y + b_gate) ∘ (W_in y + b_in)), or None.
    frequencies : (d_h/2,) of a rotary encoding with half-split pairs, radians per token, or None.
    causal : whether token i sees only j ≤ i.
    """

    heads: int
    query: Floats
    key: Floats
    value: Floats
    out: Floats
    attention_norm: Normalisation
    feedforward_norm: Normalisation
    placement: str
    weight_in: Floats
    weight_out: Floats
    activation: str
    query_bias: Floats | None = None
    key_bias: Floats | None = None
    value_bias: Floats | None = None
    out_bias: Floats | None = None
    bias_in: Floats | None = None
    bias_out: Floats | None = None
    weight_gate: Floats | None = None
    bias_gate: Floats | None = None
    frequencies: Floats | None = None
    causal: bool = False

    def __post_init__(self) -> None:
        if len(self.query) % self.heads:
            raise ArgumentError("config", f"{self.heads} heads for {len(self.query)} query features", "a divisor of it")

    @property
    def d(self) -> int:
        """Number of features."""
        return self.query.shape[1]

    def content(self, head: int) -> Floats:
        """(d, d) W_h = Q_hᵀ K_h / √d_h of the head with this number, `head`."""
        rows = self._rows(head)
        return np.asarray(self.query[rows].T @ self.key[rows] / np.sqrt(len(self.query) // self.heads))

    def block(self, n: int) -> Block:
        """The same map as a Block on a ring of `n` tokens.

        A causal layer, or one with rotary frequencies off the grid, is that of a line: `Chain(block, n, …)` runs it.
        """
        kernel = Kernel(np.zeros(n), causal=self.causal)
        bias = np.zeros(self.d) if self.out_bias is None else self.out_bias
        if self.value_bias is not None:
            bias = bias + self.out @ self.value_bias
        gate = self.weight_gate, self.bias_gate
        feedforward = FeedForward(self.weight_in, self.weight_out, self.activation, self.bias_in, self.bias_out, *gate)
        return Block(
            [self._head(number, kernel) for number in range(self.heads)],
            feedforward,
            attention_norm=self.attention_norm,
            feedforward_norm=self.feedforward_norm,
            placement=self.placement,
            attention_bias=bias,
        )

    def module(self) -> LayerModule:
        """The same map as a torch module in float64."""
        return LayerModule(self)

    def _rows(self, head: int) -> slice:
        size = len(self.query) // self.heads
        return slice(head * size, (head + 1) * size)

    def _head(self, number: int, kernel: Kernel) -> Head:
        rows = self._rows(number)
        value = self.out[:, rows] @ self.value[rows]
        query, key = self.query[rows], self.key[rows]
        query_bias, key_bias = (None if bias is None else bias[rows] for bias in (self.query_bias, self.key_bias))
        if self.frequencies is not None:
            return Head(kernel, value, rotary=Rotary(query, key, self.frequencies, "half", query_bias, key_bias))
        # (Qx_i + b_q)ᵀ(Kx_j + b_k) = x_iᵀQᵀKx_j + b_qᵀKx_j + a constant along the row
        by_key = None if query_bias is None else key.T @ query_bias / np.sqrt(len(query))
        return Head(kernel, value, self.content(number), key_bias=by_key)


class LayerModule(nn.Module):
    """The map of one trained layer on hidden states (…, N, d), eager attention.

    layer : its weights.
    """

    frequencies: torch.Tensor | None

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.heads, self.activation, self.causal = layer.heads, layer.activation, layer.causal
        self.pre = layer.placement == "pre"
        self.query, self.key = _linear(layer.query, layer.query_bias), _linear(layer.key, layer.key_bias)
        self.value, self.out = _linear(layer.value, layer.value_bias), _linear(layer.out, layer.out_bias)
        self.inward, self.outward = _linear(layer.weight_in, layer.bias_in), _linear(layer.weight_out, layer.bias_out)
        self.gate = None if layer.weight_gate is None else _linear(layer.weight_gate, layer.bias_gate)
        self.attention_norm, self.feedforward_norm = (
            NormModule(layer.attention_norm),
            NormModule(layer.feedforward_norm),
        )
        frequencies = None if layer.frequencies is None else torch.tensor(layer.frequencies)
        self.register_buffer("frequencies", frequencies)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output for hidden states `x` (…, N, d)."""
        if self.pre:
            y: torch.Tensor = x + self.attention(self.attention_norm(x))
            return y + self.feedforward(self.feedforward_norm(y))
        h = self.attention_norm(x + self.attention(x))
        result: torch.Tensor = self.feedforward_norm(h + self.feedforward(h))
        return result

    def attention(self, seen: torch.Tensor) -> torch.Tensor:
        """The attention branch where the heads see `seen` (…, N, d)."""
        projected = (part(seen) for part in (self.query, self.key, self.value))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for part in projected)
        if self.frequencies is not None:
            q, k = self._rotated(q), self._rotated(k)
        logits = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if self.causal:
            n = seen.shape[-2]
            later = torch.ones(n, n, dtype=torch.bool, device=seen.device).triu(1)
            logits = logits.masked_fill(later, -torch.inf)
        mixed = torch.softmax(logits, dim=-1) @ v
        result: torch.Tensor = self.out(mixed.transpose(-3, -2).flatten(-2))
        return result

    def feedforward(self, y: torch.Tensor) -> torch.Tensor:
        """The feed-forward branch of `y` (…, d)."""
        act = FUNCTIONS[self.activation]
        hidden = act(self.inward(y)) if self.gate is None else act(self.gate(y)) * self.inward(y)
        result: torch.Tensor = self.outward(hidden)
        return result

    def _rotated(self, u: torch.Tensor) -> torch.Tensor:
        # feature m and m + d_h/2 turn together by i·θ_m
        assert self.frequencies is not None
        angle = torch.arange(u.shape[-2], dtype=u.dtype, device=u.device)[:, None] * self.frequencies
        first, second = u.chunk(2, dim=-1)
        cosine, sine = torch.cos(angle), torch.sin(angle)
        return torch.cat([cosine * first - sine * second, sine * first + cosine * second], dim=-1)


class NormModule(nn.Module):
    """A LayerNorm or RMSNorm of `dispersion` as a torch module in float64.

    norm : the normalisation.
    """

    def __init__(self, norm: Normalisation) -> None:
        super().__init__()
        if not isinstance(norm, LayerNorm | RMSNorm):
            raise ArgumentError("norm", type(norm).__name__, "LayerNorm or RMSNorm")
        self.centred, self.eps = isinstance(norm, LayerNorm), norm.eps
        self.gain, self.bias = _parameter(norm.gain), _parameter(norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalised `x` (…, d)."""
        return self.gain * standardised(x, self.eps, centred=self.centred) + self.bias


def _parameter(values: Any) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64), requires_grad=False)


def _linear(weight: Floats, bias: Floats | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = _parameter(weight)
    if bias is not None:
        linear.bias = _parameter(bias)
    return linear
