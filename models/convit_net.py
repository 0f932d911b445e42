"""The block of the weight-tied ConViT as a PyTorch module, with queries, keys and values of width d/H for each head."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dispersion.block.block import Block
from dispersion.grid import positions
from models.layers import array, parameter

if TYPE_CHECKING:
    from models.convit import ConViT


NAMES = ("query", "key", "value", "output", "position", "gate", "weight_in", "weight_out")
"""The parameters, called as in `ConViT`."""


class ConViTNet(nn.Module):
    """One application of the block with these `weights`, (…, N, d) → (…, N, d); the network applies it again and again.

    The norms have neither gain nor bias.
    """

    offsets: Tensor
    query: nn.Parameter
    key: nn.Parameter
    value: nn.Parameter
    output: nn.Parameter
    position: nn.Parameter
    gate: nn.Parameter
    weight_in: nn.Parameter
    weight_out: nn.Parameter

    def __init__(self, weights: ConViT) -> None:
        super().__init__()
        self.origin = weights
        for name in NAMES:
            setattr(self, name, parameter(getattr(weights, name)))
        self.attention_scale = parameter(weights.attention_scale)
        self.norm = nn.LayerNorm(weights.d, elementwise_affine=False) if weights.norm == "pre" else nn.Identity()
        self.register_buffer("offsets", _offsets(weights.shape), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """F(X), (…, N, d) → (…, N, d)."""
        seen = self.norm(x)
        weights, values = self.weights(seen), self._split(seen @ self.value.T)
        mixed = (weights @ values).transpose(-2, -3).flatten(-2) @ self.output.T
        y = x + self.attention_scale * mixed
        return y + nn.functional.gelu(self.norm(y) @ self.weight_in.T) @ self.weight_out.T

    def weights(self, seen: Tensor) -> Tensor:
        """(…, heads, N, N) attention weights where tokens see `seen` (…, N, d)."""
        q, k = self._split(seen @ self.query.T), self._split(seen @ self.key.T)
        content = (q / sqrt(q.shape[-1])) @ k.transpose(-1, -2)
        positional = (self.offsets @ self.position.T).permute(2, 0, 1)
        if self.origin.attention == "psa":
            return torch.softmax(content + positional, dim=-1)
        gate = torch.sigmoid(self.gate)[:, None, None]
        return (1 - gate) * torch.softmax(content, dim=-1) + gate * torch.softmax(positional, dim=-1)

    def _split(self, x: Tensor) -> Tensor:
        """(…, N, d) → (…, heads, N, d_h)."""
        return x.unflatten(-1, (self.origin.heads, -1)).transpose(-2, -3)

    def trained(self) -> ConViT:
        """The ConViT with the parameters as they are now."""
        now: dict[str, Any] = {name: array(getattr(self, name)) for name in NAMES}
        return replace(self.origin, **now, attention_scale=float(array(self.attention_scale)))

    def to_block(self) -> Block:
        """The Block with the parameters as they are now."""
        return self.trained().block()


def run(layer: nn.Module, x: NDArray[np.float64], depth: int) -> NDArray[np.float64]:
    """(…, N, d) the states `x` after `depth` applications of `layer`, without gradients."""
    with torch.no_grad():
        state = torch.as_tensor(x)
        for _ in range(depth):
            state = layer(state)
    return np.array(state.numpy())


def _offsets(shape: tuple[int, int]) -> Tensor:
    """(N, N, 3) of each pair of tokens ‖δ‖², δ_1, δ_2, δ = key − query with −N/2 ≤ δ < N/2 on each axis."""
    token, n = torch.tensor(positions(shape)), torch.tensor(shape)
    delta = (token[None, :, :] - token[:, None, :] + n // 2) % n - n // 2
    return torch.cat([(delta**2).sum(dim=-1, keepdim=True), delta], dim=-1).double()
