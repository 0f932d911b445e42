"""Looped networks side by side: embedding, one block applied L times, readout."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dispersion import ArgumentError, Block
from dispersion.errors import frozen_array, whole_number
from models.device import usable
from models.layers import Numbers, form
from models.module import DTYPES
from training.codes import Code
from training.stack import Stack, finite

PARTS = {
    "positional": ("stack.logits",),
    "content": ("stack.content.",),
    "values": ("stack.mix.",),
    "feedforward": ("stack.feedforward.",),
    "embedding": ("code.embedding",),
    "readout": ("code.readout", "code.bias"),
}
"""How the names of the parameters of each part begin. A part trains or is held as a whole."""


class Looped(nn.Module):
    """M looped networks of one form: tokens → E[token] + positions → F∘…∘F → W x + b, class logits at every position.

    Parameters
    ----------
    blocks : sequence of Block
        One for each copy, of one form, as `Stack` takes them.
    codes : Code or sequence of Code
        Embedding and readout of each copy, or of all.
    loops : int
        L, how often the block is applied.
    positions : sequence of (N, d) array_like or None, optional
        What is added to the embedding in each copy, None for nothing. It is held.
    frozen : collection of str, or sequence of them, optional
        The `PARTS` that are held, in all copies or one collection for each.
    dtype : torch.dtype
        torch.float32 or torch.float64.
    device : str or torch.device, optional
        Where its parameters are, the CPU by default.
    """

    positions: Tensor | None

    def __init__(
        self,
        blocks: Sequence[Block],
        codes: Code | Sequence[Code],
        loops: int = 8,
        positions: Sequence[NDArray[np.float64] | None] | None = None,
        frozen: Collection[str] | Sequence[Collection[str]] = (),
        dtype: torch.dtype = torch.float32,
        device: str | torch.device | None = None,
    ) -> None:
        super().__init__()
        self.stack = Stack(blocks)
        self.copies, self.n, self.d = self.stack.copies, self.stack.n, self.stack.d
        self.loops = whole_number("loops", loops, 1)
        found = self._codes(codes)
        self.code: Any = Numbers(found)
        self.levels = found[0].levels
        if dtype not in DTYPES:
            raise ArgumentError("dtype", dtype, "torch.float64 or torch.float32")
        self.register_buffer("positions", self._positions(positions))
        self.to(dtype=dtype, device=usable(device))
        self._held: list[tuple[nn.Parameter, Tensor, Tensor]] = []
        self._hold(frozen)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class logits of tokens.

        Parameters
        ----------
        inputs : (B, N) or (M, B, N) int Tensor
            Tokens, the same for all copies or their own; `levels` is the mask.

        Returns
        -------
        (M, B, N, levels) Tensor
        """
        x = self.states(inputs)
        maps = self.stack.maps()
        for _ in range(self.loops):
            x = maps(x)
        logits = torch.baddbmm(self.code.bias[..., None], self.code.readout, x)
        # (M, levels, N·B) → (M, B, N, levels)
        return logits.unflatten(-1, (self.n, -1)).permute(0, 3, 2, 1)

    def states(self, inputs: Tensor) -> Tensor:
        """(M, d, N·B) what tokens are embedded as, positions included.

        Parameters
        ----------
        inputs : (B, N) or (M, B, N) int Tensor
            Tokens.
        """
        # a product with indicators, whose derivative needs no scattered sums
        one = nn.functional.one_hot(inputs.transpose(-1, -2), self.levels + 1).to(self.code.embedding.dtype)
        chosen = one.flatten(-3, -2).transpose(-1, -2)
        x = self.code.embedding.transpose(-1, -2) @ chosen
        if self.positions is None:
            return x
        shifted = x.unflatten(-1, (self.n, -1)) + self.positions.transpose(-1, -2)[..., None]
        return shifted.flatten(-2)

    def blocks(self) -> list[Block | None]:
        """The blocks of the M copies with the parameters as they are now, None for a copy that has diverged.

        In float64 what was not trained is as it was to the last bit.
        """
        return self.stack.blocks()

    def codes(self) -> list[Code | None]:
        """Their embeddings and readouts as they are now, None for a copy that has diverged."""
        return finite(self.code.part, self.copies)

    def hold(self) -> None:
        """Put back what is held in some copies alone, after a step of an optimiser that may have moved it."""
        with torch.no_grad():
            for weights, rows, before in self._held:
                weights[rows] = before

    def _hold(self, frozen: Collection[str] | Sequence[Collection[str]]) -> None:
        each = [frozen] * self.copies if all(isinstance(part, str) for part in frozen) else list(frozen)
        if isinstance(frozen, str) or len(each) != self.copies:
            raise ArgumentError("frozen", frozen, f"parts, or a collection of them for each of {self.copies} copies")
        unknown = {part for parts in each for part in parts} - set(PARTS)
        if unknown:
            raise ArgumentError("frozen", ", ".join(sorted(map(str, unknown))), f"of {', '.join(PARTS)}")
        for part, starts in PARTS.items():
            copies = torch.tensor([part in parts for parts in each], device=self.code.bias.device)
            if not copies.any():
                continue
            for name, weights in self.named_parameters():
                if not name.startswith(starts):
                    continue
                if copies.all():
                    weights.requires_grad_(False)
                    continue
                rows = copies.repeat_interleave(len(weights) // self.copies)
                self._held.append((weights, rows, weights.detach()[rows].clone()))
                weights.register_hook(
                    lambda slope, rows=rows: slope.masked_fill(rows.view(-1, *[1] * (slope.ndim - 1)), 0)
                )

    def _codes(self, codes: Code | Sequence[Code]) -> list[Code]:
        found = [codes] * self.copies if isinstance(codes, Code) else list(codes)
        if len(found) != self.copies or not all(isinstance(code, Code) for code in found):
            raise ArgumentError("codes", codes, f"a Code, or one for each of {self.copies} copies")
        if len({form(code) for code in found}) > 1 or found[0].d != self.d:
            raise ArgumentError(
                "codes", [(code.levels, code.d) for code in found], f"codes of one size with d = {self.d}"
            )
        return found

    def _positions(self, positions: Sequence[NDArray[np.float64] | None] | None) -> Tensor | None:
        if positions is None or all(table is None for table in positions):
            return None
        if len(positions) != self.copies:
            raise ArgumentError("positions", f"{len(positions)} tables", f"{self.copies}, one for each copy, or None")
        zero = np.zeros((self.n, self.d))
        tables = [zero if table is None else frozen_array("positions", table, zero.shape) for table in positions]
        return torch.tensor(np.array(tables))
