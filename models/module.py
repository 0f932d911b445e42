"""Blocks as PyTorch modules and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dispersion import ArgumentError, Block, Chain, Head, Kernel, Normalisation
from dispersion.block.block import require_periodic
from dispersion.errors import whole_number
from dispersion.grid import lag_index, positions
from dispersion.line.chain import chain_logits
from dispersion.memory import require
from models.attention import Attention, form_of
from models.device import usable
from models.layers import Mlp, Norm, array, optional, optional_array, parameter

DTYPES = (torch.float64, torch.float32)
PAIR = 32
"""Bytes that a head takes for each pair of tokens: where its logit stands, and weights in a forward pass."""


class TorchBlock(nn.Module):
    """The map F of a block on n tokens, (…, n, d) → (…, n, d), with all its numbers as trainable parameters.

    block : the Block; boundary : 'periodic', 'open' or 'causal'; n : number of tokens, None for those of the block, on
    its ring or torus. any_length : whether it is for any number of tokens instead, which a block without positional
    logits allows; `n` and `shape` are then None. fixed : whether heads and feed-forward are not to be trained, and may
    lie in the memory of the block. Rotary frequencies are a buffer; −inf logits stay −inf in training,
    and gates train as their logits, those of 0 and 1 not at all.
    """

    def __init__(
        self,
        block: Block,
        boundary: str = "periodic",
        n: int | None = None,
        any_length: bool = False,
        fixed: bool = False,
    ) -> None:
        super().__init__()
        self.boundary, self.placement, self.d = boundary, block.placement, block.d
        self.n: int | None = None
        self.shape: tuple[int, ...] | None = None
        chained = boundary != "periodic" or n is not None
        if any_length:
            ring = boundary == "periodic"
            if any(head.kernel.logits.any() or head.bias is not None or (ring and head.rotary) for head in block.heads):
                accepted = "a block without them, or with rotary ones and ends, for any number of tokens"
                raise ArgumentError("block", "positional logits", accepted)
        elif chained:
            self.n = Chain(block, block.n if n is None else n, boundary).n
            self.shape, position = (self.n,), np.arange(self.n)[:, None]
        else:
            require_periodic(block)
            self.n, self.shape, position = block.n, block.shape, positions(block.shape)
        require("block", f"attention of {self.n or 0:,} tokens", PAIR * len(block.heads) * (self.n or 0) ** 2)
        self.members = _groups(block.heads, chained)
        self.attention = nn.ModuleList()
        for members in self.members:
            heads = [block.heads[number] for number in members]
            if self.n is None:
                self.attention.append(Attention(heads, causal=boundary == "causal", fixed=fixed))
                continue
            index = _chain_index(heads[0].kernel, self.n, boundary) if chained else lag_index(block.shape)
            self.attention.append(Attention(heads, index, position, by_lag=chained, fixed=fixed))
        self.attention_scale, self.attention_bias = parameter(block.attention_scale), optional(block.attention_bias)
        self.feedforward = None if block.feedforward is None else Mlp(block.feedforward, fixed)
        self.attention_norm = _norm("attention_norm", block.attention_norm)
        self.feedforward_norm = _norm("feedforward_norm", block.feedforward_norm)

    def forward(self, x: Tensor) -> Tensor:
        """F(X), (…, n, d) → (…, n, d)."""
        if x.ndim < 2 or x.shape[-2:] != (x.shape[-2] if self.n is None else self.n, self.d):
            raise ArgumentError("x", f"shape {tuple(x.shape)}", f"shape (…, {self.n or 'n'}, {self.d})")
        pre = self.placement == "pre"
        seen = self._normalised(self.attention_norm, x) if pre else x
        mixed = sum((heads(seen) for heads in self.attention), start=torch.zeros_like(x))
        if self.attention_bias is not None:
            mixed = mixed + self.attention_bias
        y = x + self.attention_scale * mixed
        if pre:
            return y + self._branch(self._normalised(self.feedforward_norm, y))
        h = self._normalised(self.attention_norm, y)
        return self._normalised(self.feedforward_norm, h + self._branch(h))

    def to_block(self) -> Block:
        """The Block with the parameters as they are now, on the ring or torus it came from."""
        made: dict[int, Head] = {}
        for members, attention in zip(self.members, self.attention, strict=True):
            made |= {number: cast(Attention, attention).head(place) for place, number in enumerate(members)}
        return Block(
            [made[number] for number in range(len(made))],
            None if self.feedforward is None else self.feedforward.part(),
            float(array(self.attention_scale)),
            None if self.attention_norm is None else self.attention_norm.part(),
            None if self.feedforward_norm is None else self.feedforward_norm.part(),
            self.placement,
            optional_array(self.attention_bias),
        )

    def extra_repr(self) -> str:
        """What is not a module, for `repr`."""
        return f"shape={self.shape}, d={self.d}, boundary={self.boundary!r}, placement={self.placement!r}"

    def _branch(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y) if self.feedforward is None else self.feedforward(y)

    @staticmethod
    def _normalised(norm: nn.Module | None, x: Tensor) -> Tensor:
        return x if norm is None else norm(x)


def to_torch(
    block: Block,
    boundary: str = "periodic",
    n: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device | None = None,
) -> TorchBlock:
    """An nn.Module that computes what `block.forward` does, (…, N, d) → (…, N, d), eagerly; usable in training.

    Parameters
    ----------
    block : Block
        On a ring or torus.
    boundary : {'periodic', 'open', 'causal'}
        'periodic' on the ring or torus of the block, or the ends of a `Chain`.
    n : int, optional
        The number of tokens of a `Chain`; by default that of the block.
    dtype : torch.dtype
        torch.float64 or torch.float32.
    device : str or torch.device, optional
        Where its parameters are, the CPU by default.

    Returns
    -------
    nn.Module
        `export` is the inverse, exact in float64.

    Raises
    ------
    ArgumentError
        Names what cannot be used, as in `Chain`.
    """
    if not isinstance(block, Block):
        raise ArgumentError("block", type(block).__name__, "a Block")
    if dtype not in DTYPES:
        raise ArgumentError("dtype", dtype, "torch.float64 or torch.float32")
    if n is not None:
        whole_number("n", n, 2)
    return TorchBlock(block, boundary, n).to(dtype=dtype, device=usable(device))


def export(module: nn.Module) -> Block:
    """The Block that a module computes, with its parameters as they are now.

    Parameters
    ----------
    module : nn.Module
        What `to_torch` or `ConViT.module` made, trained or not, or any module with a method `to_block`.

    Returns
    -------
    Block
        A module with ends gives the block of its ring.

    Raises
    ------
    ArgumentError
        Refuses other modules: `measure` takes those.
    """
    made = getattr(module, "to_block", None)
    if not isinstance(module, nn.Module) or not callable(made):
        accepted = "a module made by to_torch or convit, or with a method to_block; measure takes any callable"
        raise ArgumentError("module", type(module).__name__, accepted)
    block: Block = made()
    return block


def _norm(argument: str, norm: Normalisation | None) -> Norm | None:
    return None if norm is None else Norm(norm, argument)


def _groups(heads: Sequence[Head], chained: bool) -> list[list[int]]:
    """The numbers of the `heads` that can stand side by side: of one form and, on a chain, with the same keys."""
    groups: dict[object, list[int]] = {}
    for number, head in enumerate(heads):
        keys = np.isfinite(head.kernel.logits).tobytes() if chained else b""
        groups.setdefault((form_of(head), keys), []).append(number)
    return list(groups.values())


def _chain_index(kernel: Kernel, n: int, boundary: str) -> NDArray[np.int64]:
    """(n, n) where in the logits of `kernel` the lag of each pair stands, −1 where there is no such key."""
    # the place of each logit as a logit itself, so that `chain_logits` alone says which keys there are
    places = Kernel(np.where(np.isfinite(kernel.logits), np.arange(kernel.n), -np.inf), kernel.causal)
    index = chain_logits(places, n, boundary)
    return np.where(np.isfinite(index), index, -1).astype(np.int64)
