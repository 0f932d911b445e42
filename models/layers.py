"""The parts of a block as PyTorch modules: heads, feed-forward, activations, normalisations.

Each computes what its namesake in `dispersion` does, on tensors (…, tokens, features), and `part()` gives that back
with the parameters as they are now. Attention is eager, matmul and softmax, so that forward-mode derivatives exist.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dispersion import (
    Activation,
    ArgumentError,
    DyT,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    Normalisation,
    RMSNorm,
    Rotary,
)

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": nn.functional.gelu,
    "gelu_tanh": lambda y: nn.functional.gelu(y, approximate="tanh"),
    "silu": nn.functional.silu,
    "quick_gelu": lambda y: y * torch.sigmoid(1.702 * y),
    "erf": torch.erf,
    "sine": torch.sin,
    "relu": torch.relu,
    "relu_squared": lambda y: torch.relu(y) ** 2,
}
"""The activations of `dispersion` but the polynomial."""


def parameter(value: object) -> nn.Parameter:
    """`value` as a trainable float64 parameter of its own."""
    return nn.Parameter(torch.tensor(np.asarray(value, dtype=np.float64)))


def optional(value: object) -> nn.Parameter | None:
    """`parameter` of `value`, or None."""
    return None if value is None else parameter(value)


def array(tensor: Tensor | None) -> NDArray[np.float64]:
    """`tensor` as a float64 array of its own."""
    assert tensor is not None
    return np.array(tensor.detach().cpu().double().numpy())


def optional_array(tensor: Tensor | None) -> NDArray[np.float64] | None:
    """`array` of `tensor`, or None."""
    return None if tensor is None else array(tensor)


class Norm(nn.Module):
    """gain ∘ z(x) + bias of a LayerNorm, RMSNorm or DyT, `norm`; other subclasses of Normalisation are refused, with
    an ArgumentError that calls them `argument`.
    """

    def __init__(self, norm: Normalisation, argument: str = "norm") -> None:
        super().__init__()
        if type(norm) not in (LayerNorm, RMSNorm, DyT):
            raise ArgumentError(argument, type(norm).__name__, "LayerNorm, RMSNorm or DyT")
        self.kind = type(norm)
        self.gain, self.bias = parameter(norm.gain), parameter(norm.bias)
        self.eps = norm.eps if isinstance(norm, LayerNorm | RMSNorm) else 0.0
        self.alpha = parameter(norm.alpha) if isinstance(norm, DyT) else None

    def forward(self, x: Tensor) -> Tensor:
        """(…, d) → (…, d)."""
        if self.alpha is not None:
            return self.gain * torch.tanh(self.alpha * x) + self.bias
        return self.gain * standardised(x, self.eps, centred=self.kind is LayerNorm) + self.bias

    def part(self) -> Normalisation:
        """The normalisation with the parameters as they are now."""
        gain, bias = array(self.gain), array(self.bias)
        if self.alpha is not None:
            return DyT(gain, bias, float(array(self.alpha)))
        return LayerNorm(gain, bias, self.eps) if self.kind is LayerNorm else RMSNorm(gain, bias, self.eps)


def standardised(x: Tensor, eps: float, *, centred: bool) -> Tensor:
    """(…, d) z of a LayerNorm (`centred`) or RMSNorm, as in `dispersion`: squares of x/t, t the power of two just under
    the largest of |x| and √eps, stay within the range of the numbers.
    """
    size = x.detach().abs().amax(dim=-1, keepdim=True).clamp(min=max(sqrt(eps), torch.finfo(x.dtype).tiny))
    t = torch.ldexp(torch.ones_like(size), torch.frexp(size).exponent - 1)
    y = x / t
    if centred:
        y = y - y.mean(dim=-1, keepdim=True)
    return y / ((y**2).mean(dim=-1, keepdim=True) + eps / t / t).sqrt()


class Mlp(nn.Module):
    """φ(y) of the `feedforward`, with a gate or without."""

    def __init__(self, feedforward: FeedForward) -> None:
        super().__init__()
        self.weight_in, self.bias_in = parameter(feedforward.weight_in), parameter(feedforward.bias_in)
        self.weight_out, self.bias_out = parameter(feedforward.weight_out), parameter(feedforward.bias_out)
        self.weight_gate, self.bias_gate = optional(feedforward.weight_gate), optional(feedforward.bias_gate)
        self.name, self.coefficients = feedforward.activation.name, feedforward.activation.coefficients

    def forward(self, y: Tensor) -> Tensor:
        """(…, d) → (…, d)."""
        hidden = y @ self.weight_in.T + self.bias_in
        if self.weight_gate is None:
            hidden = self.activation(hidden)
        else:
            hidden = self.activation(nn.functional.linear(y, self.weight_gate, self.bias_gate)) * hidden
        return hidden @ self.weight_out.T + self.bias_out

    def activation(self, y: Tensor) -> Tensor:
        """act(y), elementwise."""
        if self.name != "polynomial":
            return FUNCTIONS[self.name](y)
        value = torch.zeros_like(y)
        for coefficient in reversed(self.coefficients):
            value = (value + coefficient) * y
        return value

    def part(self) -> FeedForward:
        """The feed-forward with the parameters as they are now."""
        weights = array(self.weight_in), array(self.weight_out)
        activation = Activation(self.name, self.coefficients)
        gate = optional_array(self.weight_gate), optional_array(self.bias_gate)
        return FeedForward(*weights, activation, array(self.bias_in), array(self.bias_out), *gate)


class Rotation(nn.Module):
    """Content logits (R(θ·i) q_i)ᵀ(R(θ·j) k_j)/√d_h of the `rotary` encoding, for tokens at `position` (n, D)."""

    frequencies: Tensor
    position: Tensor

    def __init__(self, rotary: Rotary, position: NDArray) -> None:
        super().__init__()
        self.query, self.query_bias = parameter(rotary.query), optional(rotary.query_bias)
        self.key, self.key_bias = parameter(rotary.key), optional(rotary.key_bias)
        self.pairing = rotary.pairing
        self.register_buffer("frequencies", torch.tensor(rotary.frequencies))
        self.register_buffer("position", torch.tensor(np.asarray(position, dtype=np.float64)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, n, n) logits of states `x` (…, n, d)."""
        angle = self.position @ self.frequencies.T
        cos, sin = torch.cos(angle), torch.sin(angle)
        q, k = x @ self.query.T, x @ self.key.T
        q = q if self.query_bias is None else q + self.query_bias
        k = k if self.key_bias is None else k + self.key_bias
        return self._rotated(q, cos, sin) @ self._rotated(k, cos, sin).transpose(-1, -2) / sqrt(len(self.query))

    def _rotated(self, u: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = u.shape[-1] // 2
        u1, u2 = (u[..., :half], u[..., half:]) if self.pairing == "half" else (u[..., ::2], u[..., 1::2])
        return torch.cat([cos * u1 - sin * u2, sin * u1 + cos * u2], dim=-1)

    def part(self) -> Rotary:
        """The rotary encoding with the parameters as they are now."""
        biases = optional_array(self.query_bias), optional_array(self.key_bias)
        return Rotary(array(self.query), array(self.key), array(self.frequencies), self.pairing, *biases)


class Attention(nn.Module):
    """Attention weights and value map of one `head`.

    index : (n, n) where in the flattened logits the lag of each pair of tokens stands, −1 where there is no such key.
    position : (n, D) of the tokens. by_lag : whether the head's bias counts by its first column, the lags of a ring,
    as on a chain, and not pair by pair.
    """

    index: Tensor
    missing: Tensor

    def __init__(self, head: Head, index: NDArray[np.int64], position: NDArray, by_lag: bool) -> None:
        super().__init__()
        self.causal, self.by_lag = head.kernel.causal, by_lag
        self.logits, self.value = parameter(head.kernel.logits), parameter(head.value)
        self.content = parameter(head.content) if head.rotary is None else None
        self.rotary = None if head.rotary is None else Rotation(head.rotary, position)
        self.gate, self.bias, self.key_bias = optional(head.gate), optional(head.bias), optional(head.key_bias)
        self.register_buffer("index", torch.tensor(np.maximum(index, 0)), persistent=False)
        self.register_buffer("missing", torch.tensor(index < 0), persistent=False)

    def positional(self) -> Tensor:
        """(n, n) positional logits, −inf for a pair that is not there."""
        logits = self.logits.flatten()
        if self.bias is not None and self.by_lag:
            logits = logits + self.bias[:, 0]
        pairs = logits[self.index].masked_fill(self.missing, -torch.inf)
        return pairs if self.bias is None or self.by_lag else pairs + self.bias

    def weights(self, x: Tensor) -> Tensor:
        """(…, n, n) attention weights at the states `x` (…, n, d)."""
        if self.rotary is not None:
            content = self.rotary(x)
        else:
            assert self.content is not None
            queries = x @ self.content
            content = (queries if self.key_bias is None else queries + self.key_bias) @ x.transpose(-1, -2)
        if self.gate is None:
            return torch.softmax(content + self.positional(), dim=-1)
        gate = self.gate.clamp(0, 1)
        return (1 - gate) * torch.softmax(content, dim=-1) + gate * torch.softmax(self.positional(), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Σ_j A_ij M x_j, (…, n, d) → (…, n, d)."""
        return self.weights(x) @ (x @ self.value.T)

    def part(self) -> Head:
        """The head with the parameters as they are now; a gate that training took out of [0, 1] counts as its end."""
        return Head(
            Kernel(array(self.logits), self.causal),
            array(self.value),
            optional_array(self.content),
            None if self.rotary is None else self.rotary.part(),
            None if self.gate is None else float(array(self.gate.clamp(0, 1))),
            optional_array(self.bias),
            optional_array(self.key_bias),
        )
