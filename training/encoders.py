"""Encoders side by side in PyTorch: M networks of one form, each with its own numbers, on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dispersion import ArgumentError
from dispersion.grid import lag_index
from models.device import usable
from models.layers import Numbers, form
from models.module import DTYPES
from training.encoder import Encoder
from training.fast import activated, attention, normalised
from training.stack import finite


class Encoders(nn.Module):
    """The maps of M encoders, (B, n) tokens → (M, B) or (M, B, T, K) outputs, with all their numbers as parameters.

    Parameters
    ----------
    encoders : sequence of Encoder
        One for each copy, of one form.
    frozen : sequence of collections of str, optional
        Names of fields of `Encoder` that are held, for each copy.
    dtype : torch.dtype
        torch.float32 or torch.float64.
    device : str or torch.device, optional
        Where its parameters are, the CPU by default.
    """

    index: Tensor
    closed: Tensor | None

    def __init__(
        self,
        encoders: Sequence[Encoder],
        frozen: Sequence[Sequence[str]] | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device | None = None,
    ) -> None:
        super().__init__()
        found = list(encoders)
        if not found or not all(isinstance(encoder, Encoder) for encoder in found):
            raise ArgumentError("encoders", encoders, "one Encoder or more, in a list")
        if len({form(encoder) for encoder in found}) > 1:
            raise ArgumentError("encoders", "encoders of different forms", "encoders of the same sizes and readout")
        if dtype not in DTYPES:
            raise ArgumentError("dtype", dtype, "torch.float64 or torch.float32")
        # a pair closed for good has no number to train
        closed = np.isneginf([encoder.mask for encoder in found])
        masks = [np.where(shut, 0, encoder.mask) for encoder, shut in zip(found, closed, strict=True)]
        self.copies, self.first = len(found), found[0]
        self.numbers: Any = Numbers([replace(one, mask=mask) for one, mask in zip(found, masks, strict=True)])
        self.register_buffer("index", torch.tensor(lag_index((found[0].tokens,))), persistent=False)
        self.register_buffer("closed", torch.tensor(closed) if closed.any() else None)
        self.to(dtype=dtype, device=usable(device))
        self._held: list[tuple[nn.Parameter, Tensor, Tensor]] = []
        self._hold(frozen)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs, one number for each input where K = 1 and it is not every token that is read out.

        Parameters
        ----------
        inputs : (B, n) int Tensor
            Tokens, the same for all copies.
        """
        w, eps = self.numbers, self.first.eps
        x, pairs = self._embedded(inputs), self._pairs()
        layers = zip(*(getattr(w, name).unbind(1) for name in LAYERED), pairs.unbind(1), strict=True)
        for values in layers:
            of = dict(zip((*LAYERED, "pairs"), values, strict=True))
            x = self._layer(x, of, eps)
        x = x.unflatten(-1, (self.first.tokens, -1))
        if self.first.pool == "mean":
            x = x.mean(dim=2)
        elif self.first.pool == "cls":
            x = x[:, :, 0]
        else:
            x = x.flatten(2)
        y = torch.baddbmm(w.bias[..., None], w.readout, normalised(x.contiguous(), w.final_gain, w.final_shift, eps))
        if self.first.pool == "tokens":
            return y.unflatten(-1, (self.first.tokens, -1)).permute(0, 3, 2, 1)
        return y[:, 0] if y.shape[1] == 1 else y.transpose(1, 2)

    def encoders(self) -> list[Encoder | None]:
        """The networks with the parameters as they are now, None for one whose numbers are no longer finite."""

        def one(copy: int) -> Encoder:
            found: Encoder = self.numbers.part(copy)
            if self.closed is None:
                return found
            return replace(found, mask=np.where(self.closed[copy].cpu().numpy(), -np.inf, found.mask))

        return finite(one, self.copies)

    def hold(self) -> None:
        """Put back what is held in some copies alone, after a step of an optimiser that may have moved it."""
        with torch.no_grad():
            for weights, rows, before in self._held:
                weights[rows] = before

    def _embedded(self, inputs: Tensor) -> Tensor:
        """(M, d, T·B) what tokens are embedded as, positions and the token that is read out included."""
        w = self.numbers
        # a product with indicators, whose derivative needs no scattered sums
        one = nn.functional.one_hot(inputs.T, w.embedding.shape[1]).to(w.embedding.dtype)
        x = torch.matmul(w.embedding.transpose(1, 2), one.flatten(0, 1).T).unflatten(-1, one.shape[:2])
        if w.start is not None:
            x = torch.cat([w.start[:, :, None, None].expand(*x.shape[:2], 1, x.shape[3]), x], dim=2)
        return (x + w.positions.transpose(1, 2)[..., None]).flatten(2)

    def _pairs(self) -> Tensor:
        """(M, L, H, T, T) logits log σ(M_ij) + b_{i−j}, −inf where a pair is closed."""
        logits = nn.functional.logsigmoid(self.numbers.mask) + self.numbers.kernel[..., self.index]
        return logits if self.closed is None else logits.masked_fill(self.closed, -torch.inf)

    def _layer(self, x: Tensor, of: Mapping[str, Tensor], eps: float) -> Tensor:
        """(M, d, T·B) states after a layer with these numbers."""
        width = of["query"].shape[2]
        y = normalised(x, of["attention_gain"], of["attention_shift"], eps)
        rows = torch.cat([of["query"] / width**0.5, of["key"], of["value"]], dim=1).flatten(1, 2)
        mixed = attention(torch.bmm(rows, y), of["pairs"], width)
        x = torch.baddbmm(x + of["output_bias"][..., None], of["output"].flatten(2), mixed)
        y = normalised(x, of["mlp_gain"], of["mlp_shift"], eps)
        hidden = activated(torch.bmm(of["weight_in"], y), of["bias_in"], "gelu")
        return torch.baddbmm(x + of["bias_out"][..., None], of["weight_out"], hidden)

    def _hold(self, frozen: Sequence[Sequence[str]] | None) -> None:
        """Leave numbers as they are in some copies, or a parameter in all of them, which then has no gradient."""
        each = [()] * self.copies if frozen is None else list(frozen)
        if len(each) != self.copies or any(isinstance(parts, str) for parts in each):
            raise ArgumentError("frozen", frozen, f"a collection of names for each of {self.copies} copies")
        names = dict(self.numbers.named_parameters())
        unknown = {part for parts in each for part in parts} - set(names)
        if unknown:
            raise ArgumentError("frozen", ", ".join(sorted(map(str, unknown))), f"of {', '.join(names)}")
        for name, weights in names.items():
            copies = torch.tensor([name in parts for parts in each], device=weights.device)
            if copies.all():
                weights.requires_grad_(False)
            elif copies.any():
                rows = copies.view(-1, *[1] * (weights.ndim - 1))
                weights.register_hook(lambda slope, rows=rows: slope.masked_fill(rows, 0))
                self._held.append((weights, copies, weights.detach()[copies].clone()))


LAYERED = (
    "attention_gain",
    "attention_shift",
    "query",
    "key",
    "value",
    "output",
    "output_bias",
    "mlp_gain",
    "mlp_shift",
    "weight_in",
    "bias_in",
    "weight_out",
    "bias_out",
)
"""The fields of an Encoder of which every layer has its own."""
