"""Layers that are no Blocks: the reference's own, as its forward pass calls them, in float64 throughout."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dispersion import ArgumentError, Block
from models.adapters.double import lifted
from models.adapters.reference import Call, Reference


class Source:
    """Forward passes of a `model`, whose layers `reference` finds; the last one is kept."""

    def __init__(self, reference: Reference, model: nn.Module) -> None:
        self.reference, self.model = reference, model
        self._kept: tuple[object, tuple[Call, ...]] = (None, ())

    def calls(self, n: int, device: torch.device) -> tuple[Call, ...]:
        """The calls of the layers in a forward pass of `n` tokens on a `device`, what asks for float32 in float64."""
        if self._kept[0] != (n, device):
            self.model.to(device)
            with lifted(), device:
                self._kept = (n, device), self.reference.calls(self.model, n).calls
        return self._kept[1]


class OpaqueModule(nn.Module):
    """The map of one layer of a Source on hidden states of any number of tokens."""

    def __init__(self, source: Source, number: int, module: nn.Module) -> None:
        super().__init__()
        self.source, self.number, self.layer = source, number, module

    def forward(self, x: Tensor) -> Tensor:
        """(…, n, d) → (…, n, d), one state after another."""
        call = self.source.calls(x.shape[-2], x.device)[self.number]
        with lifted(), sdpa_kernel(SDPBackend.MATH):  # which has derivatives
            if x.ndim == 2:
                return call(x)
            states = x.reshape(-1, *x.shape[-2:])
            return torch.stack([call(state) for state in states]).reshape(x.shape)


@dataclass(frozen=True, eq=False)
class Opaque:
    """A layer of the reference that is no Block: it is measured, and run on a line.

    Parameters
    ----------
    source : Source
        Forward passes of the reference.
    number : int
        Which of their calls.
    boundary : {'periodic', 'open', 'causal'}
        The ends of its tokens.
    d : int
        Number of features.
    """

    source: Source
    number: int
    boundary: str
    d: int

    def module(self) -> nn.Module:
        """The map of the layer as a module, its parameters frozen."""
        call = self.source.calls(8, torch.device("cpu"))[self.number]
        return OpaqueModule(self.source, self.number, call.module).requires_grad_(False)

    def block(self, n: int | tuple[int, ...]) -> Block:
        """Refused: there is none.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens.
        """
        raise ArgumentError("network", "layers that are no Blocks", "a network that is made of Blocks")
