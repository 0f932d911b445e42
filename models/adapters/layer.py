"""One trained Transformer layer: its weights, as a float64 torch module and as a Block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion import Block, FeedForward, Head, Kernel, Normalisation, OutputValue, QueryKey, Rotary
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
    attention_norm, feedforward_norm : LayerNorm or RMSNorm
        The normalisations of the two branches.
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
    frequencies : (d_h/2,) ndarray, optional
        Of a rotary encoding with half-split pairs, radians per token, or None.
    causal : bool
        Whether token i sees only j ≤ i.
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

    def block(self, n: int) -> Block:
        """The same map as a Block on a ring of `n` tokens.

        A causal layer, or one with rotary frequencies off the grid, is that of a line: `Chain(block, n, …)` runs it.

        Parameters
        ----------
        n : int
            Number of tokens.
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

    def module(self) -> TorchBlock:
        """The same map as a float64 torch module, for any number of tokens; its parameters are frozen."""
        boundary = "causal" if self.causal else "periodic" if self.frequencies is None else "open"
        net = TorchBlock(self.block(2), boundary, any_length=True)
        return net.requires_grad_(False)

    def _head(self, number: int, kernel: Kernel) -> Head:
        size = len(self.query) // self.heads
        rows = slice(number * size, (number + 1) * size)
        biases = (None if bias is None else bias[rows] for bias in (self.query_bias, self.key_bias))
        value = OutputValue(self.out[:, rows], self.value[rows])
        if self.frequencies is None:
            return Head(kernel, value, QueryKey(self.query[rows], self.key[rows], *biases))
        return Head(kernel, value, rotary=Rotary(self.query[rows], self.key[rows], self.frequencies, "half", *biases))
