"""The pointwise parts of a block as PyTorch modules: feed-forward, activations, normalisations.

Each computes what its namesake in `dispersion` does, on tensors (…, tokens, features), and `part()` gives that back
with the parameters as they are now.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dispersion import (
    ArgumentError,
    DyT,
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


def shared(value: object) -> nn.Parameter:
    """`value` as a float64 parameter that is not trained, over its memory if it is an array: nobody may write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")
        return nn.Parameter(torch.from_numpy(np.asarray(value, dtype=np.float64)), requires_grad=False)


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


class Numbers(nn.Module):
    """The numbers in the fields of a noun, or of `nouns` of one form, as trainable parameters of the same names; those
    of a list have one noun after another along a first axis.

    nouns : one, or a list. fixed : whether nothing is trained: the numbers of one noun are then those in its memory.
    Rotary frequencies are a buffer, and eps is not trained.
    """

    def __init__(self, nouns: Any, fixed: bool = False) -> None:
        super().__init__()
        several = isinstance(nouns, list)
        self.kind = type(nouns[0] if several else nouns)
        self.rest: dict[str, Any] = {}
        made = shared if fixed else parameter
        for name in _names(self.kind):
            values = [getattr(noun, name) for noun in nouns] if several else getattr(nouns, name)
            first = values[0] if several else values
            if name == "frequencies":
                self.register_buffer(name, torch.tensor(np.array(values)))
            elif first is None or (isinstance(first, float | np.ndarray) and name != "eps"):
                self.register_parameter(name, None if first is None else made(values))
            else:
                self.rest[name] = first

    def part(self, number: int | None = None) -> Any:
        """The noun with the parameters as they are now, of several the one of this `number`."""
        tensors = {name: getattr(self, name) for name in _names(self.kind) if name not in self.rest}
        now = {
            name: array(tensor if number is None else tensor[number])
            for name, tensor in tensors.items()
            if tensor is not None
        }
        return self.kind(**self.rest, **{name: value if value.ndim else float(value) for name, value in now.items()})


def form(noun: Any) -> tuple[Any, ...]:
    """What nouns must share to be `Numbers` together: their class, the shapes of their numbers, and all the rest."""
    values = (getattr(noun, name) for name in _names(type(noun)))
    return type(noun), *(np.shape(value) if isinstance(value, np.ndarray) else value for value in values)


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


class Norm(Numbers):
    """gain ∘ z(x) + bias of a LayerNorm, RMSNorm or DyT, `norm`; other subclasses of Normalisation are refused, with
    an ArgumentError that calls them `argument`.
    """

    gain: nn.Parameter
    bias: nn.Parameter
    alpha: nn.Parameter

    def __init__(self, norm: Normalisation, argument: str = "norm") -> None:
        if type(norm) not in (LayerNorm, RMSNorm, DyT):
            raise ArgumentError(argument, type(norm).__name__, "LayerNorm, RMSNorm or DyT")
        super().__init__(norm)

    def forward(self, x: Tensor) -> Tensor:
        """(…, d) → (…, d)."""
        if self.kind is DyT:
            return self.gain * torch.tanh(self.alpha * x) + self.bias
        return self.gain * standardised(x, self.rest["eps"], centred=self.kind is LayerNorm) + self.bias


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


class Mlp(Numbers):
    """φ(y) of a FeedForward, with a gate or without."""

    weight_in: nn.Parameter
    weight_out: nn.Parameter
    bias_in: nn.Parameter
    bias_out: nn.Parameter
    weight_gate: nn.Parameter | None
    bias_gate: nn.Parameter | None

    def forward(self, y: Tensor) -> Tensor:
        """(…, d) → (…, d)."""
        hidden = nn.functional.linear(y, self.weight_in, self.bias_in)
        if self.weight_gate is None:
            hidden = self.activation(hidden)
        else:
            hidden = self.activation(nn.functional.linear(y, self.weight_gate, self.bias_gate)) * hidden
        return nn.functional.linear(hidden, self.weight_out, self.bias_out)

    def activation(self, y: Tensor) -> Tensor:
        """act(y), elementwise."""
        activation = self.rest["activation"]
        if activation.name != "polynomial":
            return FUNCTIONS[activation.name](y)
        value = torch.zeros_like(y)
        for coefficient in reversed(activation.coefficients):
            value = (value + coefficient) * y
        return value
