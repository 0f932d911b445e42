"""The parts of a block that are not products of large matrices, compiled for float32 on the CPU and in PyTorch else.

States are (M, features, N·B). Attention of heads with eight features is limited by how numbers are moved, not by
arithmetic: the compiled one takes a third of the time of PyTorch's. What is compiled has first derivatives alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.layers import FUNCTIONS


def attention(projected: Tensor, pairs: Tensor, width: int) -> Tensor:
    """(M, H·d_v, N·B) Σ_j A_ij v_j of queries, keys and values `projected` (M, H·(2d_h + d_v), N·B), d_h = `width`.

    pairs : (M, H, N, N) positional logits. Queries come divided by √d_h.
    """
    if _compiled(projected):
        mixed: Tensor = _Attention.apply(projected.float(), pairs.float(), width)
        return mixed
    heads, n = pairs.shape[1:3]
    inner = heads * width
    queries, keys, values = (
        # (M, H·d_h, N·B) → (M, H, B, N, d_h)
        part.unflatten(1, (heads, -1)).unflatten(-1, (n, -1)).permute(0, 1, 4, 3, 2)
        for part in projected.split([inner, inner, projected.shape[1] - 2 * inner], dim=1)
    )
    weights = torch.softmax(queries @ keys.transpose(-1, -2) + pairs[:, :, None], dim=-1)
    return (weights @ values).permute(0, 1, 4, 3, 2).flatten(3).flatten(1, 2)


def activated(product: Tensor, bias: Tensor, activation: str) -> Tensor:
    """act(product + bias) of `product` (M, m, N·B), which may be overwritten, and `bias` (M, m)."""
    if activation == "tanh" and _compiled(product):
        values: Tensor = _Tanh.apply(product.float().contiguous(), bias.float())
        return values
    return FUNCTIONS[activation](product + bias[..., None])


def normalised(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
    """gain ∘ z + shift of states `x` (M, d, N·B), a LayerNorm over d; gain and shift are (M, d)."""
    if _compiled(x):
        values: Tensor = _Norm.apply(x.float(), gain.float(), shift.float(), eps)
        return values
    centred = x - x.mean(dim=1, keepdim=True)
    z = centred * (centred.square().mean(dim=1, keepdim=True) + eps).rsqrt()
    return torch.addcmul(shift[..., None], z, gain[..., None])


def _compiled(x: Tensor) -> bool:
    """Whether the compiled parts take `x`; bfloat16 on the CPU, which autocast makes, is widened for them."""
    return x.dtype in (torch.float32, torch.bfloat16) and x.device.type == "cpu" and not torch.compiler.is_compiling()


class _Attention(torch.autograd.Function):
    """`attention`, with the weights made anew in the derivative."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, pairs: Tensor, width: int) -> Tensor:
        from training._attention import attend

        copies, heads, n, _ = pairs.shape
        rows, columns = projected.shape[1:]
        outer = rows // heads - 2 * width
        projected, pairs = projected.contiguous(), pairs.contiguous()
        mixed = projected.new_empty(copies, heads * outer, columns)
        tops, sums = (projected.new_empty(copies, heads, columns) for _ in range(2))
        ctx.sizes = copies, heads, width, outer, n, columns // n
        attend(*map(_flat, (projected, pairs, mixed, tops, sums)), *ctx.sizes)
        ctx.save_for_backward(projected, pairs, mixed, tops, sums)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        from training._attention import attend_back

        projected, pairs = ctx.saved_tensors[:2]
        found = torch.empty_like(projected), torch.empty_like(pairs)
        attend_back(*map(_flat, (slope.contiguous(), *ctx.saved_tensors, *found)), *ctx.sizes)
        return *found, None


class _Tanh(torch.autograd.Function):
    """tanh(product + bias), over `product`."""

    @staticmethod
    def forward(ctx: Any, product: Tensor, bias: Tensor) -> Tensor:
        from training._activation import tanh_rows

        ctx.mark_dirty(product)
        tanh_rows(_flat(product), _flat(bias.contiguous()), product.shape[-1])
        ctx.save_for_backward(product)
        return product

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        from training._activation import tanh_rows_back

        (values,) = ctx.saved_tensors
        made, bias_slope = torch.empty_like(values), values.new_empty(values.shape[:2])
        tanh_rows_back(*map(_flat, (slope.contiguous(), values, made, bias_slope)), values.shape[-1])
        return made, bias_slope


class _Norm(torch.autograd.Function):
    """`normalised`, of whose values the derivative needs z and 1/√(variance + eps)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
        from training._normalisation import normalise

        x, gain = x.contiguous(), gain.contiguous()
        made, z, scale = torch.empty_like(x), torch.empty_like(x), x.new_empty(x.shape[0], x.shape[2])
        normalise(*map(_array, (x, gain, shift.contiguous(), made, z, scale)), np.float32(eps))
        ctx.save_for_backward(z, scale, gain)
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        from training._normalisation import normalise_back

        z, scale, gain = ctx.saved_tensors
        found = torch.empty_like(z), torch.empty_like(gain), torch.empty_like(gain)
        normalise_back(*map(_array, (slope.contiguous(), z, scale, gain, *found)))
        return *found, None


def _array(x: Tensor) -> NDArray[np.float32]:
    return x.detach().numpy()


def _flat(x: Tensor) -> NDArray[np.float32]:
    return _array(x).reshape(-1)
