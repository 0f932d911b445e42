"""What `measure` accepts: maps of float64 states, checked before anything is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dispersion.errors import ArgumentError, whole_number

Map = Callable[[Tensor], Tensor]
"""A map of hidden states (N, d)."""


class _Largest(TorchDispatchMode):
    """The number of entries of the largest tensor made; a view, of a weight say, makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not getattr(func, "is_view", False):
            self.size = max(self.size, result.numel())
        return result


def forward(fn: Map, base: Tensor) -> tuple[NDArray[np.float64], int]:
    """(F(base), entries of the largest tensor on the way), after checking what comes out."""
    try:
        with torch.no_grad(), _Largest() as seen:
            out = fn(base)
    except ArgumentError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a layer may do anything, sys.exit() too
        accepted = f"a map of float64 tensors of shape {tuple(base.shape)}; a module in float64: net.double()"
        raise ArgumentError("fn", f"{type(error).__name__}: {one_line(error)}", accepted) from error
    if not isinstance(out, Tensor) or out.shape != base.shape:
        got = f"a result of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise ArgumentError("fn", got, f"a map to one tensor of the shape {tuple(base.shape)} of the states")
    if out.dtype != torch.float64:
        raise ArgumentError("fn", f"a result in {out.dtype}", "a map that computes in float64")
    if not bool(torch.isfinite(out).all()):
        raise ArgumentError("state", "a state that fn maps to NaN or infinity", "a state with a finite image")
    return out.detach().cpu().numpy(), seen.size


def check_module(fn: object) -> None:
    """Refuse an `fn` that is not callable, and a module in another precision or with dropout at work."""
    if not callable(fn):
        raise ArgumentError("fn", type(fn).__name__, "a callable on tensors (N, d)")
    if not isinstance(fn, nn.Module):
        return
    for name, tensor in [*fn.named_parameters(), *fn.named_buffers()]:
        if tensor.is_floating_point() and tensor.dtype != torch.float64:
            raise ArgumentError("fn", f"{name} in {tensor.dtype}", "weights in float64: net.double()")
    if any(isinstance(part, nn.modules.dropout._DropoutNd) and part.training and part.p for part in fn.modules()):
        raise ArgumentError("fn", "a module in training mode, with dropout", "a deterministic map: net.eval()")


def device_of(fn: object) -> torch.device | None:
    """Where the parameters of `fn` are, None if it has none."""
    tensors = fn.parameters() if isinstance(fn, nn.Module) else iter(())
    return next((tensor.device for tensor in tensors), None)


def plain(argument: str, value: ArrayLike | Tensor) -> ArrayLike:
    """`value` as an array; half precision and whole numbers in a tensor or array are refused."""
    if isinstance(value, Tensor):
        if value.dtype not in (torch.float64, torch.float32):
            raise ArgumentError(argument, str(value.dtype), "numbers in float64")
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype not in (np.float64, np.float32):
        raise ArgumentError(argument, str(value.dtype), "numbers in float64")
    return value


def grid_of(shape: tuple[int, ...] | int) -> tuple[int, ...]:
    """`shape` as (N,) or (N_1, …, N_D) of 2 tokens or more."""
    axes = tuple(shape) if isinstance(shape, tuple | list | torch.Size) else (shape,)
    least = 2 if len(axes) == 1 else 1
    grid = tuple(whole_number("shape", axis, least) for axis in axes)
    if not grid or prod(grid) < 2:
        raise ArgumentError("shape", shape, "N, (N,) or (N_1, …, N_D), 2 tokens or more")
    return grid


def operator(error: Exception) -> str:
    """The operator without a forward-mode derivative that `error` names."""
    words = str(error).split()
    names = [word for word in words if word.startswith(("_scaled", "aten", "_trans", "_native", "_eff", "_fused"))]
    return f"fused attention, {names[0]}" if names else one_line(error)


def one_line(error: BaseException) -> str:
    """What `error` says, on one line."""
    return " ".join(str(error).split())[:200]
