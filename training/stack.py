"""M blocks of one form side by side, and their map on states with the batch along the last axis.

A state is (M, d, N·B): every linear map is then one product of a small matrix with a wide one, for each copy, and no
axis changes its place from one loop to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dispersion import ArgumentError, Block, Head, Kernel
from dispersion.block.factors import QueryKey
from dispersion.grid import lag_index
from models.attention import form_of
from models.layers import FUNCTIONS, Numbers, array, form, parameter
from training.fast import activated, attention

T = TypeVar("T")


class Stack(nn.Module):
    """The maps F of M blocks of one form, (M, d, N·B) → (M, d, N·B), with all their numbers as trainable parameters.

    blocks : of one N, d and number of heads, each head a kernel with a QueryKey and an OutputValue of low rank, without
    gates, masks or normalisations; positional logits train by lag, −inf ones stay −inf.
    """

    index: Tensor
    attention_scale: Tensor

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        first = _of_one_form(blocks)
        self.copies, self.heads, self.n, self.d = len(blocks), len(first.heads), first.n, first.d
        self.kernels = [[head.kernel for head in block.heads] for block in blocks]
        heads = [head for block in blocks for head in block.heads]
        self.content: Any = Numbers([head.query_key for head in heads])
        self.mix: Any = Numbers([head.output_value for head in heads])
        self.logits = parameter([head.kernel.logits.ravel() for head in heads])
        branches = [block.feedforward for block in blocks]
        self.feedforward: Any = None if branches[0] is None else Numbers(branches)
        self.register_buffer("index", torch.tensor(lag_index(first.shape)), persistent=False)
        scales = torch.tensor([block.attention_scale for block in blocks], dtype=torch.float64)
        self.register_buffer("attention_scale", scales)

    def maps(self) -> Maps:
        """What one forward pass through any number of loops needs, made of the parameters once."""
        return Maps(self)

    def blocks(self) -> list[Block | None]:
        """The M blocks with the parameters as they are now, None for one whose numbers are no longer finite."""
        return finite(self._block, self.copies)

    def _block(self, copy: int) -> Block:
        heads = []
        for place, kernel in enumerate(self.kernels[copy]):
            number = copy * self.heads + place
            logits = array(self.logits[number]).reshape(kernel.shape)
            same = np.array_equal(logits, kernel.logits.astype(array_type(self.logits)))
            kernel = kernel if same else Kernel(logits, kernel.causal)
            heads.append(Head(kernel, self.mix.part(number), self.content.part(number)))
        branch = None if self.feedforward is None else self.feedforward.part(copy)
        return Block(heads, branch, float(array(self.attention_scale[copy])))


def finite(make: Callable[[int], T], count: int) -> list[T | None]:
    """What is made of each of `count` copies, None where its numbers are not finite."""

    def made(copy: int) -> T | None:
        try:
            return make(copy)
        except ArgumentError:
            return None

    return [made(copy) for copy in range(count)]


def array_type(tensor: Tensor) -> type[np.floating[Any]]:
    """The numpy type of the numbers of `tensor`."""
    return np.float32 if tensor.dtype == torch.float32 else np.float64


class Maps:
    """The maps of a `Stack` as they are applied: projections of all heads as one matrix, logits by pairs of tokens."""

    def __init__(self, stack: Stack) -> None:
        M, H = stack.copies, stack.heads
        content, mix = stack.content, stack.mix
        self.heads, self.n, self.width = H, stack.n, content.query.shape[1]
        root = sqrt(self.width)
        rows = [content.query / root, content.key, mix.value]
        self.projection = torch.cat([weight.reshape(M, -1, stack.d) for weight in rows], dim=1)
        self.projection_bias = None
        if content.query_bias is not None or content.key_bias is not None:
            found = [content.query_bias, content.key_bias, None]
            sides = [
                weight.new_zeros(M, weight.shape[1] * H) if bias is None else bias.reshape(M, -1)
                for weight, bias in zip(rows, found, strict=True)
            ]
            sides[0] = sides[0] / root
            self.projection_bias = torch.cat(sides, dim=1)[..., None]
        # (M·H, d, d_v) → (M, d, H·d_v)
        output = mix.output.unflatten(0, (M, H)).transpose(1, 2).flatten(2)
        self.output = output * stack.attention_scale[:, None, None]
        self.pairs = stack.logits[:, stack.index].unflatten(0, (M, H))
        self.feedforward = stack.feedforward

    def __call__(self, x: Tensor) -> Tensor:
        """F(X) of states (M, d, N·B)."""
        projected = torch.bmm(self.projection, x)
        if self.projection_bias is not None:
            projected = projected + self.projection_bias
        x = _added(x, self.output, attention(projected, self.pairs, self.width))
        branch = self.feedforward
        if branch is None:
            return x
        hidden = activated(torch.bmm(branch.weight_in, x), branch.bias_in, branch.rest["activation"].name)
        return _added(x + branch.bias_out[..., None], branch.weight_out, hidden)


def _added(x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """x + weight y; autocast rounds the product alone, not the sum that goes on from loop to loop."""
    rounded = torch.is_autocast_enabled(x.device.type)
    return x + torch.bmm(weight, y) if rounded else torch.baddbmm(x, weight, y)


def _of_one_form(blocks: Sequence[Block]) -> Block:
    """The first of `blocks`; an ArgumentError unless they can stand side by side."""
    if not isinstance(blocks, Sequence) or not blocks or not all(isinstance(block, Block) for block in blocks):
        raise ArgumentError("blocks", blocks, "one Block or more, in a list")
    for number, block in enumerate(blocks):
        name, branch = f"blocks[{number}]", block.feedforward
        if any(part is not None for part in (block.attention_norm, block.feedforward_norm, block.attention_bias)):
            raise ArgumentError(name, "a normalisation or an attention bias", "a block without them")
        for head in block.heads:
            if type(head.query_key) is not QueryKey or head.output_value.value is None:
                got = f"a head of {type(head.query_key).__name__} and {type(head.output_value).__name__}"
                raise ArgumentError(name, got, "heads of a QueryKey and an OutputValue with both factors")
            if head.gate is not None or head.bias is not None:
                raise ArgumentError(name, "a head with a gate or a mask", "heads without them")
        if branch is not None and (branch.gated or branch.activation.name not in FUNCTIONS):
            accepted = f"one without a gate, of {', '.join(FUNCTIONS)}"
            raise ArgumentError(name, f"a feed-forward of {branch.activation.name}", accepted)
        if {_form(block, head) for head in block.heads} != {_form(blocks[0], blocks[0].heads[0])}:
            raise ArgumentError(
                name, "a block or head of another form", "the tokens, heads and widths of the first one"
            )
    return blocks[0]


def _form(block: Block, head: Head) -> tuple[Any, ...]:
    return block.shape, len(block.heads), form_of(head), block.feedforward and form(block.feedforward)
