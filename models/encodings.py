"""Positional encodings in PyTorch: the parameters of each family trainable, the logits by lag computed from them."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dispersion import Encoding, Kernel
from dispersion.block.encodings import Swin
from models.layers import Numbers, array, parameter


def trains(kernel: Kernel) -> bool:
    """Whether the parameters of the encoding of the `kernel` train: it has a formula, and no two entries of a table
    meet at one lag, where they must stay the same.
    """
    encoding = kernel.encoding
    if isinstance(encoding, Swin) and any(n < m for n, m in zip(kernel.shape, encoding.table.shape, strict=True)):
        return False
    return encoding is not None and type(encoding).formula is not Encoding.formula


class Positional(nn.Module):
    """The logits of a `kernel` by lag, (N,) or (N_1, …, N_D): the parameters of its encoding train, or those of its
    terms and their weights, else the logits themselves.
    """

    lags: Tensor

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.encoding: Any = Numbers(kernel.encoding) if trains(kernel) else None
        terms = () if self.encoding is not None else kernel.terms
        self.terms: Any = nn.ModuleList(Positional(term) for _, term in terms)
        self.weights: Any = parameter([weight for weight, _ in terms]) if terms else None
        self.logits = None if self.encoding is not None or terms else parameter(kernel.logits)
        self.before = {name: array(values) for name, values in self.named_parameters()}
        lags = kernel.lags.reshape(*kernel.shape, len(kernel.shape))
        self.register_buffer("lags", torch.tensor(lags, dtype=torch.float64), persistent=False)

    def forward(self) -> Tensor:
        """(N,) or (N_1, …, N_D)."""
        if self.encoding is not None:
            encoding: Any = copy(self.kernel.encoding)
            for name, values in self.encoding.named_parameters():
                object.__setattr__(encoding, name, values)
            with self.lags.device:
                return encoding.formula(self.lags, torch)
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
