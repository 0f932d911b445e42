"""Attention in PyTorch: heads of one form side by side, by their queries, keys, values and outputs.

It is eager, matmul and softmax, so that forward-mode derivatives exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logit
from torch import Tensor, nn

from dispersion import AttentionMask, Head
from dispersion.block.factors import Bilinear, Rotary
from models.encodings import Positional
from models.layers import Numbers, array, form, parameter


class Content(Numbers):
    """Content logits of H heads, of a list of one form of Bilinear, QueryKey or Rotary."""

    matrix: nn.Parameter
    linear: nn.Parameter | None
    query: nn.Parameter
    key: nn.Parameter
    query_bias: nn.Parameter | None
    key_bias: nn.Parameter | None
    frequencies: Tensor

    def forward(self, x: Tensor, position: Tensor | None = None) -> Tensor:
        """(…, H, n, n) logits of states `x` (…, n, d) of tokens at `position` (n, D), by default 0 … n−1."""
        if self.kind is Bilinear:
            return projected(x, self.matrix.transpose(-1, -2), self.linear) @ x.unsqueeze(-3).transpose(-1, -2)
        queries, keys = projected(x, self.query, self.query_bias), projected(x, self.key, self.key_bias)
        return self.products(queries, keys, position) / sqrt(self.query.shape[-2])

    def products(self, queries: Tensor, keys: Tensor, position: Tensor | None) -> Tensor:
        """(…, H, n, n) of `queries` and `keys` (…, H, n, d_h), rotated by `position` if the encoding is rotary."""
        return self.rotated(queries, position) @ self.rotated(keys, position).transpose(-1, -2)

    def rotated(self, u: Tensor, position: Tensor | None) -> Tensor:
        """R(θ·i) u_i of queries or keys `u` (…, H, n, d_h) at `position` i, the first features of all 2-blocks before
        the second; `u` itself if the encoding is not rotary.
        """
        if self.kind is not Rotary:
            return u
        if position is None:
            position = torch.arange(u.shape[-2], dtype=u.dtype, device=u.device)[:, None]
        angle = position @ self.frequencies.transpose(-1, -2)
        cos, sin = torch.cos(angle), torch.sin(angle)
        u1, u2 = u.chunk(2, dim=-1) if self.rest["pairing"] == "half" else (u[..., ::2], u[..., 1::2])
        return torch.cat([cos * u1 - sin * u2, sin * u1 + cos * u2], dim=-1)


class Mix(Numbers):
    """Σ_h A_h X V_hᵀ O_hᵀ of H heads, of a list of one form of OutputValue."""

    output: nn.Parameter
    value: nn.Parameter | None

    def forward(self, weights: Tensor, x: Tensor) -> Tensor:
        """(…, n, d) of attention `weights` (…, H, n, n) and states `x` (…, n, d)."""
        values = x.unsqueeze(-3) if self.value is None else projected(x, self.value)
        mixed = (weights @ values).transpose(-2, -3).flatten(-2)
        return mixed @ self.output.transpose(0, 1).flatten(1).T


class Gate(nn.Module):
    """The `gates` (H,) of H heads, σ(logit), so that training finds a slope at any of them and none leaves [0, 1].

    A gate of exactly 0 or 1 is at an `end`, −∞ or ∞ added to its logit, and no training moves it. `rest` is what
    rounding to float64 cuts off a logit: with it the gate is the one given to the last digit.
    """

    end: Tensor
    rest: Tensor

    def __init__(self, gates: NDArray[np.float64]) -> None:
        super().__init__()
        ends = (gates == 0) | (gates == 1)
        self.logit = parameter(logit(np.where(ends, 0.5, gates)))
        shares = torch.sigmoid(self.logit.detach()).numpy()
        # σ(θ + δ) = σ + σ(1 − σ)δ
        rest = np.where(ends, 0.0, (gates - shares) / (shares * (1 - shares)))
        self.register_buffer("end", torch.tensor(np.where(ends, logit(gates), 0.0)))
        self.register_buffer("rest", torch.tensor(rest))

    def forward(self) -> Tensor:
        """(H,) the gates."""
        shares = torch.sigmoid(self.logit + self.end)
        return shares + shares * (1 - shares) * self.rest


class Masks(nn.Module):
    """The logits log σ(M) of H `masks`, whose numbers M train; infinite ones stay as they are."""

    finite: Tensor | None
    rest: Tensor | None

    def __init__(self, masks: Sequence[AttentionMask]) -> None:
        super().__init__()
        self.masks = list(masks)
        m = np.array([mask.m for mask in masks])
        finite = np.isfinite(m)
        self.m = parameter(np.where(finite, m, 0.0))
        some = not finite.all()
        self.register_buffer("finite", torch.tensor(finite) if some else None)
        self.register_buffer("rest", torch.tensor(np.where(finite, 0.0, m)) if some else None)

    def forward(self) -> Tensor:
        """(H, N, N)."""
        return nn.functional.logsigmoid(self._m())

    def part(self, number: int) -> AttentionMask:
        """The mask of this `number` as it is now; rows that training has made constant are left free."""
        m, before = array(self._m()[number]), self.masks[number]
        same = np.array_equal(m, before.m.astype(np.float32) if self.m.dtype == torch.float32 else before.m)
        return before if same else AttentionMask(m, rows="free")

    def _m(self) -> Tensor:
        return self.m if self.finite is None or self.rest is None else torch.where(self.finite, self.m, self.rest)


class Attention(nn.Module):
    """Attention of H `heads` of one `form_of`, (…, n, d) → (…, n, d).

    index : (n, n) where in the flattened logits the lag of each pair of tokens stands, −1 where there is no such key;
    None for any number of tokens, without positional logits. position : (n, D) of the tokens, with `index`. by_lag :
    whether biases count by their first column, the lags of a ring, as on a chain, and not pair by pair. causal :
    whether token i sees only j ≤ i, where there is no `index`. fixed : as of Numbers.
    """

    gate: Gate | None
    masks: Masks | None
    bias: nn.Parameter | None
    index: Tensor | None
    position: Tensor | None

    def __init__(
        self,
        heads: Sequence[Head],
        index: NDArray[np.int64] | None = None,
        position: NDArray | None = None,
        by_lag: bool = False,
        causal: bool = False,
        fixed: bool = False,
    ) -> None:
        super().__init__()
        self.by_lag, self.causal = by_lag, causal
        self.content = Content([head.query_key for head in heads], fixed)
        self.mix = Mix([head.output_value for head in heads], fixed)
        self.kernels = [head.kernel for head in heads]
        self.positions: Any = nn.ModuleList() if index is None else nn.ModuleList(map(Positional, self.kernels))
        self.gate = None if heads[0].gate is None else Gate(np.array([head.gate for head in heads]))
        masks = [head.mask for head in heads if head.mask is not None]
        self.masks = Masks(masks) if masks else None
        self.bias = None if masks or heads[0].bias is None else parameter([head.bias for head in heads])
        position = None if position is None else np.asarray(position, dtype=np.float64)
        for name, value in (("index", index), ("position", position)):
            self.register_buffer(name, None if value is None else torch.tensor(value), persistent=False)

    def positional(self, x: Tensor) -> Tensor:
        """(H, n, n) positional logits for states `x` (…, n, d), −inf for a pair that is not there."""
        if self.index is None:
            pairs = x.new_zeros(x.shape[-2], x.shape[-2])
            later = torch.ones_like(pairs, dtype=torch.bool).triu(1)
            return pairs.masked_fill(later, -torch.inf) if self.causal else pairs
        logits = torch.stack([positional() for positional in self.positions]).flatten(1)
        bias = self.bias if self.masks is None else self.masks()
        if bias is not None and self.by_lag:
            logits = logits + bias[:, :, 0]
        # the index −1 finds the last one
        pairs = torch.cat([logits, torch.full_like(logits[:, :1], -torch.inf)], dim=1)[:, self.index]
        return pairs if bias is None or self.by_lag else pairs + bias

    def weights(self, x: Tensor) -> Tensor:
        """(…, H, n, n) attention weights at the states `x` (…, n, d)."""
        content, positional = self.content(x, self.position), self.positional(x)
        if self.gate is None:
            return torch.softmax(content + positional, dim=-1)
        gate = self.gate()[:, None, None]
        return (1 - gate) * torch.softmax(content, dim=-1) + gate * torch.softmax(positional, dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Σ_h Σ_j A_ij M_h x_j, (…, n, d) → (…, n, d)."""
        mixed: Tensor = self.mix(self.weights(x), x)
        return mixed

    def head(self, number: int) -> Head:
        """The head of this `number` with the parameters as they are now."""
        query_key = self.content.part(number)
        bilinear = isinstance(query_key, Bilinear)
        bias = None if self.bias is None else array(self.bias[number])
        return Head(
            self.positions[number].part() if self.positions else self.kernels[number],
            self.mix.part(number),
            query_key.matrix if bilinear else query_key,
            gate=None if self.gate is None else float(array(self.gate()[number])),
            bias=bias if self.masks is None else self.masks.part(number),
            key_bias=query_key.linear if bilinear else None,
        )


def form_of(head: Head) -> tuple[Any, ...]:
    """What heads must share to stand side by side."""
    biased = head.bias is None, head.mask is None
    return form(head.query_key), form(head.output_value), head.kernel.causal, head.gate is None, *biased


def projected(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(…, H, n, d_h) of states `x` (…, n, d) by the maps `weight` (H, d_h, d) and `bias` (H, d_h)."""
    flat = nn.functional.linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
    return flat.unflatten(-1, weight.shape[:2]).transpose(-2, -3)
