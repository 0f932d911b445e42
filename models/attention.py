"""Attention in PyTorch: heads of one form side by side, by their queries, keys, values and outputs.

Attention is eager, matmul and softmax, so that forward-mode derivatives exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dispersion import Head, Kernel, Rotary
from models.layers import array, parameter

PARTS = ("logits", "query", "key", "query_bias", "key_bias", "output", "gate", "bias")
"""What a head may have as trainable numbers; a part that it lacks is None."""


class Attention(nn.Module):
    """Σ_h A_h(X) X M_hᵀ of H `heads` of one `form`, (…, n, d) → (…, n, d), each parameter with H in front.

    index : (n, n) where in the flattened logits the lag of each pair of tokens stands, −1 where there is no such key;
    None for any number of tokens, which the kernels must then not tell apart. position : (n, D) of the tokens, with
    `index`. by_lag : whether biases count by their first column, the lags of a ring, as on a chain, and not pair by
    pair. causal : whether token i sees only j ≤ i, where there is no `index`.
    """

    logits: nn.Parameter
    query: nn.Parameter
    key: nn.Parameter | None
    query_bias: nn.Parameter | None
    key_bias: nn.Parameter | None
    output: nn.Parameter
    gate: nn.Parameter | None
    bias: nn.Parameter | None
    index: Tensor | None
    position: Tensor | None
    frequencies: Tensor | None

    def __init__(
        self,
        heads: Sequence[Head],
        index: NDArray[np.int64] | None,
        position: NDArray | None,
        by_lag: bool = False,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.count, self.by_lag, self.causal = len(heads), by_lag, causal
        self.kernel_causal = heads[0].kernel.causal
        parts = [_parts(head) for head in heads]
        for name in PARTS:
            given = [part[name] for part in parts]
            setattr(self, name, None if given[0] is None else parameter(np.stack(given)))
        rotary = [head.rotary for head in heads if head.rotary is not None]
        self.pairing = rotary[0].pairing if rotary else "half"
        frequencies = torch.tensor(np.stack([each.frequencies for each in rotary])) if rotary else None
        self.register_buffer("frequencies", frequencies)
        position = None if position is None else np.asarray(position, dtype=np.float64)
        for name, value in (("index", index), ("position", position)):
            self.register_buffer(name, None if value is None else torch.tensor(value), persistent=False)

    def positional(self, n: int) -> Tensor:
        """(H, n, n) positional logits, −inf for a pair that is not there."""
        if self.index is None:
            pairs = self.output.new_zeros(n, n)
            later = torch.ones(n, n, dtype=torch.bool, device=pairs.device).triu(1)
            return pairs.masked_fill(later, -torch.inf) if self.causal else pairs
        logits = self.logits.flatten(1)
        if self.bias is not None and self.by_lag:
            logits = logits + self.bias[:, :, 0]
        # the index −1 finds the last one
        pairs = torch.cat([logits, torch.full_like(logits[:, :1], -torch.inf)], dim=1)[:, self.index]
        return pairs if self.bias is None or self.by_lag else pairs + self.bias

    def content(self, x: Tensor) -> Tensor:
        """(…, H, n, n) content logits q_i·k_j/√d_h at the states `x` (…, n, d)."""
        queries = _projected(x, self.query, self.query_bias)
        if self.key is None:
            return queries @ x.unsqueeze(-3).transpose(-1, -2)
        return self.products(queries, _projected(x, self.key, self.key_bias)) / sqrt(self.query.shape[1])

    def products(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(…, H, n, n) q_i·k_j of `queries` and `keys` (…, H, n, d_h), rotated where the encoding is rotary."""
        return self.rotated(queries) @ self.rotated(keys).transpose(-1, -2)

    def rotated(self, u: Tensor) -> Tensor:
        """R(θ·i) u_i of queries or keys `u` (…, H, n, d_h); the first features of all 2-blocks, then the second."""
        if self.frequencies is None:
            return u
        position = self.position
        if position is None:
            position = torch.arange(u.shape[-2], dtype=u.dtype, device=u.device)[:, None]
        angle = position @ self.frequencies.transpose(-1, -2)
        cos, sin = torch.cos(angle), torch.sin(angle)
        u1, u2 = u.chunk(2, dim=-1) if self.pairing == "half" else (u[..., ::2], u[..., 1::2])
        return torch.cat([cos * u1 - sin * u2, sin * u1 + cos * u2], dim=-1)

    def weights(self, x: Tensor) -> Tensor:
        """(…, H, n, n) attention weights at the states `x` (…, n, d)."""
        content, positional = self.content(x), self.positional(x.shape[-2])
        if self.gate is None:
            return torch.softmax(content + positional, dim=-1)
        gate = self.gate.clamp(0, 1)[:, None, None]
        return (1 - gate) * torch.softmax(content, dim=-1) + gate * torch.softmax(positional, dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Σ_h Σ_j A_ij M_h x_j, (…, n, d) → (…, n, d)."""
        mixed = (self.weights(x) @ x.unsqueeze(-3)).transpose(-2, -3).flatten(-2)
        return mixed @ self.output.transpose(0, 1).flatten(1).T

    def heads(self) -> list[Head]:
        """The heads with the parameters as they are now; a gate that left [0, 1] in training counts as its end."""
        return [self._head(number) for number in range(self.count)]

    def _head(self, number: int) -> Head:
        parameters: dict[str, Any] = {name: getattr(self, name) for name in PARTS}
        now: dict[str, Any] = {
            name: value if value is None else array(value[number]) for name, value in parameters.items()
        }
        gate = None if now["gate"] is None else float(np.clip(now["gate"], 0, 1))
        kernel, bias = Kernel(now["logits"], self.kernel_causal), now["bias"]
        if self.frequencies is None:
            return Head(kernel, now["output"], now["query"].T, None, gate, bias, now["query_bias"])
        matrices = now["query"], now["key"], array(self.frequencies[number])
        rotary = Rotary(*matrices, self.pairing, now["query_bias"], now["key_bias"])
        return Head(kernel, now["output"], None, rotary, gate, bias)


def form(head: Head) -> tuple[Any, ...]:
    """What heads must share to stand side by side: which parts they have, and of which shape."""
    shapes = tuple(None if value is None else np.shape(value) for value in _parts(head).values())
    return shapes, head.kernel.causal, None if head.rotary is None else head.rotary.pairing


def _parts(head: Head) -> dict[str, Any]:
    rotary = head.rotary
    queries = (
        (head.content.T, None, head.key_bias, None)
        if rotary is None
        else (rotary.query, rotary.key, rotary.query_bias, rotary.key_bias)
    )
    return dict(zip(PARTS, (head.kernel.logits, *queries, head.value, head.gate, head.bias), strict=True))


def _projected(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(…, H, n, d_h) of `x` (…, n, d) by the maps `weight` (H, d_h, d) and `bias` (H, d_h)."""
    flat = nn.functional.linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
    return flat.unflatten(-1, weight.shape[:2]).transpose(-2, -3)
