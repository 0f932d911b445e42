"""Which part of a rebuilt layer is the first that the reference does not have: for whoever writes an adapter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from models.adapters.layer import AnyLength
from models.adapters.reference import Call
from models.module import TorchBlock

ALIKE = 1e-9
"""Relative difference up to which two results count as the same."""


def first_stage(module: nn.Module, call: Call, x: Tensor) -> str:
    """The first part of the rebuilt layer `module` whose result at `x`, (n, d), the reference's `call` does not have.

    It is the one after the last that is found among what goes into and out of the modules of the reference's layer.
    """
    seen: list[Tensor] = []

    def hook(part: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        given = [*args, *kwargs.values(), *(output if isinstance(output, tuple) else [output])]
        seen.extend(value.double() for value in given if isinstance(value, Tensor) and value.is_floating_point())

    hooks = [part.register_forward_hook(hook, with_kwargs=True) for part in call.module.modules()]
    try:
        with torch.no_grad():
            call(x)
            stages = _stages(module, x)
    finally:
        for handle in hooks:
            handle.remove()
    names = list(stages)
    known = [number for number, name in enumerate(names) if _among(stages[name], seen)]
    return names[min(1 + max(known, default=-1), len(names) - 1)]


def _among(stage: Tensor, seen: list[Tensor]) -> bool:
    size = stage.abs().max()
    alike = (value.reshape(stage.shape) for value in seen if value.numel() == stage.numel())
    return any(bool((value - stage).abs().max() <= ALIKE * size) for value in alike)


def _stages(module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """What the parts of a rebuilt layer make of `x`, in the order of computation."""
    if isinstance(module, AnyLength):
        module(x)
        (module,) = module.made.values()
    assert isinstance(module, TorchBlock)
    stages: dict[str, Tensor] = {}

    def normed(name: str, y: Tensor) -> Tensor:
        norm = getattr(module, name)
        if norm is not None:
            y = stages[name.replace("_", " ")] = norm(y)
        return y

    pre = module.placement == "pre"
    seen = normed("attention_norm", x) if pre else x
    mixed = sum((heads(seen) for heads in module.attention), start=torch.zeros_like(x))
    bias = module.attention_bias
    mixed = stages["attention"] = mixed if bias is None else mixed + bias
    y = stages["sum after attention"] = x + module.attention_scale * mixed
    y = normed("feedforward_norm", y) if pre else normed("attention_norm", y)
    mlp = module.feedforward
    if mlp is not None:
        hidden = stages["first map of the feed-forward"] = nn.functional.linear(y, mlp.weight_in, mlp.bias_in)
        if mlp.weight_gate is None:
            stages["activation"] = mlp.activation(hidden)
        else:
            gate = stages["gate"] = nn.functional.linear(y, mlp.weight_gate, mlp.bias_gate)
            stages["activation"] = mlp.activation(gate) * hidden
        out = stages["feed-forward"] = mlp(y)
        if not pre:
            stages["sum after the feed-forward"] = y + out
            normed("feedforward_norm", y + out)
    stages["result"] = module(x)
    return stages
