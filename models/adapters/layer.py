"""One trained Transformer layer: its weights, as a float64 torch module and as a Block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dispersion import Block, FeedForward, Head, Kernel, Normalisation, OutputValue, QueryKey, Rotary
from dispersion.block.encodings import Encoding
from dispersion.errors import ArgumentError
from models.layers import FUNCTIONS
from models.module import TorchBlock

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


def activation_of(function: Callable[[Tensor], Tensor]) -> str:
    """The name in `Activation` of a function or module, found by its values; an ArgumentError if it is none of them."""
    y = torch.linspace(-6.0, 6.0, 97, dtype=torch.float64)
    with torch.no_grad():
        values = function(y)
        for name, known in FUNCTIONS.items():
            if torch.allclose(values, known(y), rtol=1e-12, atol=1e-14):
                return name
    called = getattr(function, "__name__", type(function).__name__)
    raise ArgumentError("module", f"the activation {called}", ", ".join(FUNCTIONS))


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one layer, whatever its family calls them; maps act as W @ x on a token.

    Parameters
    ----------
    heads : int
        H.
    query, key, value : (H·d_h, d) ndarray
        One head after the other.
    out : (d, H·d_h) ndarray
        The output map.
    attention_norm, feedforward_norm : LayerNorm or RMSNorm, optional
        The normalisations of the two branches, or None.
    placement : {'pre', 'post'}
        Of the normalisations.
    weight_in : (m, d) ndarray
        First map of the feed-forward.
    weight_out : (d, m) ndarray
        Last map of the feed-forward.
    activation : str
        Its name in `Activation`.
    query_bias, key_bias, value_bias : (H·d_h,) ndarray, optional
        Biases of these maps, or None.
    out_bias : (d,) ndarray, optional
        Bias of the output map, or None.
    bias_in : (m,) ndarray, optional
        Bias of `weight_in`, or None.
    bias_out : (d,) ndarray, optional
        Bias of `weight_out`, or None.
    weight_gate : (m, d) ndarray, optional
        Of a gated feed-forward W_out (act(W_gate y + b_gate) ∘ (W_in y + b_in)), or None.
    bias_gate : (m,) ndarray, optional
        Its b_gate, or None.
    frequencies : (r,) ndarray, optional
        Of a rotary encoding of the first 2r ≤ d_h features of each head, radians per token, or None.
    causal : bool
        Whether token i sees only j ≤ i.
    pairing : {'half', 'interleaved'}
        Which of these 2r features turn together: m with m + r, or 2m with 2m + 1.
    encodings : tuple of Encoding, optional
        The positional encoding of each head, whose logits are added, or None.
    scale : float, optional
        What queries times keys are multiplied by; 1/√d_h if None.
    """

    heads: int
    query: Floats
    key: Floats
    value: Floats
    out: Floats
    attention_norm: Normalisation | None
    feedforward_norm: Normalisation | None
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
    pairing: str = "half"
    encodings: tuple[Encoding, ...] | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        if len(self.query) % self.heads:
            raise ArgumentError("config", f"{self.heads} heads for {len(self.query)} query features", "a divisor of it")
        if self.frequencies is not None and self.size % 2:
            raise ArgumentError("config", f"rotary heads of {self.size} features", "an even number")
        if self.frequencies is not None and 2 * len(self.frequencies) > self.size:
            raise ArgumentError(
                "config", f"{2 * len(self.frequencies)} rotary features", f"at most {self.size} of a head"
            )
        if self.encodings is not None and len(self.encodings) != self.heads:
            raise ArgumentError(
                "config", f"{len(self.encodings)} positional encodings", f"{self.heads}, one for each head"
            )

    @property
    def d(self) -> int:
        """Number of features."""
        return self.query.shape[1]

    @property
    def size(self) -> int:
        """d_h, features of a query."""
        return len(self.query) // self.heads

    @property
    def boundary(self) -> str:
        """'periodic' where the layer does not know positions at all, so that any ring fits; else 'open' or 'causal'."""
        if self.causal:
            return "causal"
        return "periodic" if self.frequencies is None and self.encodings is None else "open"

    def block(self, n: int | tuple[int, ...]) -> Block:
        """The same map as a Block on a ring of `n` tokens.

        A causal layer, or one with rotary frequencies off the grid, is that of a line: `Chain(block, n, …)` runs it.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens, or their shape.
        """
        plain = Kernel(np.zeros(n), causal=self.causal)
        kernels = [plain] * self.heads if self.encodings is None else [self._kernel(one, n) for one in self.encodings]
        return self._of(kernels)

    def module(self) -> nn.Module:
        """The same map as a float64 torch module, for any number of tokens; its parameters are frozen."""
        if self.encodings is not None:
            return AnyLength(self)
        return TorchBlock(self.block(2), self.boundary, any_length=True, fixed=True).requires_grad_(False)

    def _of(self, kernels: Sequence[Kernel], biases: Sequence[Floats] | None = None) -> Block:
        """The Block with these `kernels` of the heads, and a bias of each pair of tokens."""
        bias = np.zeros(self.d) if self.out_bias is None else self.out_bias
        if self.value_bias is not None:
            bias = bias + self.out @ self.value_bias
        gate = self.weight_gate, self.bias_gate
        feedforward = FeedForward(self.weight_in, self.weight_out, self.activation, self.bias_in, self.bias_out, *gate)
        pairs = [None] * self.heads if biases is None else biases
        return Block(
            [self._head(number, *each) for number, each in enumerate(zip(kernels, pairs, strict=True))],
            feedforward,
            attention_norm=self.attention_norm,
            feedforward_norm=self.feedforward_norm,
            placement=self.placement,
            attention_bias=bias,
        )

    def _kernel(self, encoding: Encoding, n: int | tuple[int, ...]) -> Kernel:
        kernel = Kernel.of(encoding, n)
        return kernel if kernel.causal == self.causal else Kernel(kernel.logits, self.causal)

    def _head(self, number: int, kernel: Kernel, bias: Floats | None = None) -> Head:
        rows = slice(number * self.size, (number + 1) * self.size)
        query, key = self.query[rows], self.key[rows]
        biases = [None if bias is None else bias[rows] for bias in (self.query_bias, self.key_bias)]
        if self.scale is not None:
            factor = self.scale * np.sqrt(self.size)
            query, biases[0] = factor * query, None if biases[0] is None else factor * biases[0]
        value = OutputValue(self.out[:, rows], self.value[rows])
        if self.frequencies is None:
            return Head(kernel, value, QueryKey(query, key, *biases), bias=bias)
        order, frequencies = self._turning
        turned = [None if bias is None else bias[order] for bias in biases]
        return Head(kernel, value, rotary=Rotary(query[order], key[order], frequencies, "half", *turned))

    @property
    def _turning(self) -> tuple[NDArray[np.int64], Floats]:
        """(order (d_h,), frequencies (d_h/2,)): the features of a head so that m turns with m + d_h/2; 0 turns none."""
        assert self.frequencies is not None
        r, half = len(self.frequencies), self.size // 2
        first, second = (
            (np.arange(r), r + np.arange(r)) if self.pairing == "half" else (2 * np.arange(r), 2 * np.arange(r) + 1)
        )
        still = np.arange(2 * r, self.size)
        order = np.concatenate([first, still[: half - r], second, still[half - r :]])
        return order, np.concatenate([self.frequencies, np.zeros(half - r)])


class AnyLength(nn.Module):
    """A layer with positional logits as a module on a line of any number of tokens, made anew for each number."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        self.made: dict[int, TorchBlock] = {}

    def forward(self, x: Tensor) -> Tensor:
        """(…, n, d) → (…, n, d)."""
        n = x.shape[-2]
        if n not in self.made:
            block = self.layer.block(2 * n - 1)
            net = TorchBlock(block, self.layer.boundary, n, fixed=True).requires_grad_(False)
            self.made = {n: net.to(x.device)}
        result: Tensor = self.made[n](x)
        return result


def scaled(gain: Floats | None, weight: Floats, bias: Floats | None) -> tuple[Floats, Floats | None]:
    """(W, b) of γ∘(Wx + b): LayerScale is part of the map before it; None for 1.

    Parameters
    ----------
    gain : (d,) ndarray or None
        γ.
    weight : (d, m) ndarray
        W.
    bias : (d,) ndarray or None
        b.
    """
    if gain is None:
        return weight, bias
    return gain[:, None] * weight, None if bias is None else gain * bias
