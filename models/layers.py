"""The pointwise parts of a block as PyTorch modules: feed-forward, activations, normalisations.

Each computes what its namesake in `dispersion` does, on tensors (…, tokens, features), and `part()` gives that back
with the parameters as they are now.
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
    LayerNorm,
    Normalisation,
    RMSNorm,
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
