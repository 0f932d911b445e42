"""Layers on a window of tokens in two dimensions, whose logits have a bias for each offset: Swin and BEiT.

As a network runs them the window has edges. Around a torus of its size, where the bias is that of the shortest offset,
they are Blocks, and J(q) has its closed form.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from torch import Tensor, nn

from dispersion import Block, Kernel
from dispersion.errors import ArgumentError
from dispersion.grid import grid_lags
from models.adapters.layer import Floats, Layer
from models.module import TorchBlock


@dataclass(frozen=True, eq=False)
class WindowLayer(Layer):
    """A Layer on a window of M_1 × M_2 tokens in C order, after a class token if there is one.

    Parameters
    ----------
    table : (H, 2M_1−1, 2M_2−1) ndarray
        The bias of each head, entry r + M − 1 that of r = query − key.
    beside : (H, 3) ndarray, optional
        The biases of a class token: as it sees a token, as a token sees it, as it sees itself. None without one.
    """

    table: Floats = None  # type: ignore[assignment]
    beside: Floats | None = None

    @classmethod
    def of(cls, layer: Layer, table: Floats, beside: Floats | None = None) -> WindowLayer:
        """The WindowLayer with the weights of `layer`.

        Parameters
        ----------
        layer : Layer
            Without positional logits.
        table, beside : ndarray
            As in WindowLayer.
        """
        return cls(**{one.name: getattr(layer, one.name) for one in fields(Layer)}, table=table, beside=beside)

    @property
    def window(self) -> tuple[int, int]:
        """(M_1, M_2)."""
        _, rows, columns = self.table.shape
        return rows // 2 + 1, columns // 2 + 1

    @property
    def tokens(self) -> int:
        """Their number, a class token among them."""
        return int(np.prod(self.window)) + (self.beside is not None)

    @property
    def boundary(self) -> str:
        """'open': the window has edges."""
        return "open"

    def block(self, n: int | tuple[int, ...]) -> Block:
        """The Block on the torus of the window, without a class token: each bias is that of the shortest offset.

        Parameters
        ----------
        n : tuple of int
            (M_1, M_2).
        """
        if n != self.window:
            raise ArgumentError("n", n, f"{self.window}, the window, around whose torus its layers are Blocks")
        lags = grid_lags(self.window, False).reshape(*self.window, 2)
        entries = tuple(np.moveaxis(lags, -1, 0) + np.array(self.window)[:, None, None] - 1)
        return self._of([Kernel(logits[entries]) for logits in self.table])

    def module(self) -> nn.Module:
        """The map of the layer on the window, its parameters frozen."""
        zero = Kernel(np.zeros(self.tokens))
        block = self._of([zero] * self.heads, list(self._pairs()))
        return WindowModule(TorchBlock(block, fixed=True).requires_grad_(False), self.tokens)

    def _pairs(self) -> Floats:
        """(H, n, n) the bias of each pair of tokens."""
        rows, columns = (np.arange(size) for size in self.window)
        at = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)
        offsets = at[:, None] - at[None] + np.array(self.window) - 1
        patches = self.table[:, offsets[..., 0], offsets[..., 1]]
        if self.beside is None:
            return np.asarray(patches)
        pairs = np.empty((len(patches), len(at) + 1, len(at) + 1))
        pairs[:, 1:, 1:], pairs[:, 0, :], pairs[:, :, 0] = patches, self.beside[:, :1], self.beside[:, 1:2]
        pairs[:, 0, 0] = self.beside[:, 2]
        return pairs


class WindowModule(nn.Module):
    """The map of a WindowLayer as a module."""

    def __init__(self, made: TorchBlock, tokens: int) -> None:
        super().__init__()
        self.made, self.tokens = made, tokens

    def forward(self, x: Tensor) -> Tensor:
        """(…, n, d) → (…, n, d)."""
        if x.shape[-2] != self.tokens:
            raise ArgumentError("shape", f"{x.shape[-2]} tokens", f"{self.tokens}, those of the window")
        result: Tensor = self.made(x)
        return result
