"""Positional encodings in PyTorch: the parameters of each family trainable, the logits by lag computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import pi
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dispersion import Kernel
from dispersion.block.encodings import (
    T5,
    Alibi,
    ConViTLearned,
    ConViTPosition,
    GaussianLobes,
    KerpleLog,
    KerplePower,
    Mask,
    SkewedLobe,
    Swin,
    Uniform,
    VonMises,
)
from models.layers import Numbers, array, parameter

Formula = Callable[[Any, Tensor], Tensor]


def _length(r: Tensor) -> Tensor:
    return (r**2).sum(-1).sqrt()


def _offsets(r: Tensor) -> Tensor:
    """Key − query, each in [−N/2, N/2)."""
    n = torch.tensor(r.shape[:-1], device=r.device)
    return (n // 2 - r) % n - n // 2


def _lobes(e: Any, r: Tensor) -> Tensor:
    centres = e.separation, -e.separation
    return e.strength * sum(torch.exp(-((r - c) ** 2).sum(-1) / (2 * e.width**2)) for c in centres)


def _skewed(e: Any, r: Tensor) -> Tensor:
    distance = r[..., 0] - e.separation
    width = torch.where(distance <= 0, e.width_below, e.width_above)
    return e.strength * torch.exp(-(distance**2) / (2 * width**2))


def _von_mises(e: Any, r: Tensor) -> Tensor:
    k = torch.tensor(e.rest["wavenumber"], dtype=r.dtype, device=r.device).reshape(-1)
    q = 2 * pi * k / torch.tensor(r.shape[:-1], device=r.device)
    return e.strength * torch.cos(r @ q - e.phase)


def _convit_learned(e: Any, r: Tensor) -> Tensor:
    offsets = _offsets(r)
    return (offsets**2).sum(-1) * e.weights[0] + offsets @ e.weights[1:]


FORMULAS: dict[type, Formula] = {
    Uniform: lambda e, r: torch.zeros_like(r[..., 0]),
    GaussianLobes: _lobes,
    SkewedLobe: _skewed,
    VonMises: _von_mises,
    Alibi: lambda e, r: -e.slope * _length(r),
    KerpleLog: lambda e, r: -e.r1 * torch.log1p(e.r2 * _length(r)),
    KerplePower: lambda e, r: -e.r1 * _length(r) ** e.r2,
    ConViTPosition: lambda e, r: -e.strength * ((_offsets(r) - e.centre) ** 2).sum(-1),
    ConViTLearned: _convit_learned,
    Mask: lambda e, r: nn.functional.logsigmoid(e.m),
}
"""Logits of the encodings whose parameters train: of the parameters, by the names of the fields, and the lags
(N_1, …, N_D, D). Of another encoding, or a kernel without one, the logits themselves train.
"""


def places(kernel: Kernel) -> NDArray[np.int64] | None:
    """Where in the table of its encoding, T5 or Swin, each logit of the `kernel` stands, −1 for none; None for another
    kernel, and where two entries meet at one lag.
    """
    encoding = kernel.encoding
    if not isinstance(encoding, T5 | Swin):
        return None
    if isinstance(encoding, Swin) and any(n < size for n, size in zip(kernel.shape, encoding.table.shape, strict=True)):
        return None
    numbered = np.arange(encoding.table.size, dtype=np.float64).reshape(encoding.table.shape)
    found = replace(encoding, table=numbered).logits(kernel.shape)
    return np.where(np.isfinite(found), found, -1).astype(np.int64)


class Positional(nn.Module):
    """The logits of a `kernel` by lag, (N,) or (N_1, …, N_D)."""

    lags: Tensor
    places: Tensor | None

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel, table = kernel, places(kernel)
        self.register_buffer("places", None if table is None else torch.tensor(table), persistent=False)
        known = table is not None or type(kernel.encoding) in FORMULAS
        self.encoding: Any = Numbers(kernel.encoding) if known else None
        terms = () if self.encoding is not None else kernel.terms
        self.terms: Any = nn.ModuleList(Positional(term) for _, term in terms)
        self.weights: Any = parameter([weight for weight, _ in terms]) if terms else None
        self.logits = None if self.encoding is not None or terms else parameter(kernel.logits)
        self.before = {name: array(values) for name, values in self.named_parameters()}
        lags = kernel.lags.reshape(*kernel.shape, len(kernel.shape))
        self.register_buffer("lags", torch.tensor(lags, dtype=torch.float64), persistent=False)

    def forward(self) -> Tensor:
        """(N,) or (N_1, …, N_D)."""
        if self.places is not None:
            return nn.functional.pad(self.encoding.table.flatten(), (0, 1), value=-torch.inf)[self.places]
        if self.encoding is not None:
            return FORMULAS[self.encoding.kind](self.encoding, self.lags)
        if self.logits is not None:
            return self.logits
        total = torch.zeros_like(self.lags[..., 0])
        for weight, term in zip(self.weights, self.terms, strict=True):
            logits = term()
            removed = torch.isneginf(logits)
            total = total + (weight * logits.masked_fill(removed, 0)).masked_fill(removed, -torch.inf)
        return total

    def part(self) -> Kernel:
        """The kernel with the parameters as they are now."""
        if all(np.array_equal(array(values), self.before[name]) for name, values in self.named_parameters()):
            return self.kernel
        if self.encoding is not None:
            return Kernel.of(self.encoding.part(), self.kernel.shape)
        if self.logits is not None:
            return Kernel(array(self.logits), self.kernel.causal)
        first, *others = (
            float(weight) * term.part() for weight, term in zip(array(self.weights), self.terms, strict=True)
        )
        return sum(others, start=first)
