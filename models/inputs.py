"""What `measure` accepts: maps of float64 states, checked before anything is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
ROUNDING = 1e-12
"""Relative difference between two runs that may be rounding in another order, as on many threads."""


@dataclass(frozen=True, eq=False)
class Run:
    """A forward pass. image : (n, d) its result. largest : entries of the largest tensor on the way. eps : of the
    coarsest floating-point numbers on the way.
    """

    image: NDArray[np.float64]
    largest: int
    eps: float


class _Watch(TorchDispatchMode):
    """What a `Run` says of the tensors made; a view, of a weight say, makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.eps = 0, torch.finfo(torch.float64).eps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not getattr(func, "is_view", False):
            self.largest = max(self.largest, result.numel())
            if result.is_floating_point():
                self.eps = max(self.eps, torch.finfo(result.dtype).eps)
        return result


def forward(fn: Map, base: Tensor) -> Run:
    """The Run of `fn` on a copy of `base`, after checking what comes out; its result is a copy too."""
    try:
        with torch.no_grad(), _Watch() as seen:
            out = fn(base.clone())
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
    return Run(out.detach().cpu().numpy().copy(), seen.largest, seen.eps)


def steady(fn: Map, base: Tensor, near: Tensor) -> Run:
    """The Run at `base`, after refusing an `fn` that does not give the same every time there and `near` it.

    What it remembers of one state shows at the other, and dropout of what is zero at the one does not at the other. A
    module that writes its buffers, other than when it first runs, is left with those it had.
    """
    before = _buffers(fn)
    run = forward(fn, base)
    if not np.isfinite(run.image).all():
        raise ArgumentError("state", "a state that fn maps to NaN or infinity", "a state with a finite image")
    settled = _buffers(fn)
    beside = forward(fn, near)
    check_same(fn, base, run)
    check_same(fn, near, beside)
    written = [name for name, values in _buffers(fn).items() if not _same(values, settled.get(name))]
    if written:
        for name, buffer in fn.named_buffers() if isinstance(fn, nn.Module) else ():
            if name in before and buffer.shape == before[name].shape:
                buffer.copy_(before[name])
        got = f"a module that writes its buffer {written[0]} when it runs"
        raise ArgumentError("fn", got, "a map that leaves itself as it is: net.eval()")
    return run


def check_same(fn: Map, base: Tensor, run: Run) -> None:
    """Refuse an `fn` that no longer gives what it gave in `run`, at `base`."""
    away = np.abs(forward(fn, base).image - run.image).max()
    if away > ROUNDING * np.abs(run.image).max():
        got = f"results of one state that differ by {away:.1e} from run to run"
        raise ArgumentError("fn", got, "a map that gives the same every time: net.eval(), no noise, cache or memory")


def _buffers(fn: object) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in fn.named_buffers()} if isinstance(fn, nn.Module) else {}


def _same(one: Tensor, other: Tensor | None) -> bool:
    equal = other is not None and one.shape == other.shape
    return equal and bool(((one == other) | (one != one)).all())


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
