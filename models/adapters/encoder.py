"""torch's own nn.TransformerEncoderLayer, alone or in an nn.TransformerEncoder, norm_first either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dispersion import ArgumentError, LayerNorm
from models.adapters.layer import Layer, activation_named, activation_of
from models.adapters.network import Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights


def run(module: Any, n: int) -> Tensor:
    """(1, n, d) what `module` makes of random hidden states.

    Parameters
    ----------
    module : nn.Module
        An nn.TransformerEncoder or nn.TransformerEncoderLayer.
    n : int
        Number of tokens.
    """
    d = next(layer for layer in module.modules() if isinstance(layer, nn.LayerNorm)).normalized_shape[0]
    states = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result: Tensor = module(states)[None]
    return result


def described(module: nn.Module) -> dict[str, Any] | None:
    """The settings of an nn.TransformerEncoder or nn.TransformerEncoderLayer, those of each layer its own; None for
    other modules.

    Parameters
    ----------
    module : nn.Module
        Any.
    """
    stack = list(module.layers) if isinstance(module, nn.TransformerEncoder) else [module]
    if not all(isinstance(layer, nn.TransformerEncoderLayer) for layer in stack):
        return None
    final = getattr(module, "norm", None)
    return {
        "layers": [_of_layer(f"layers.{number}", layer) for number, layer in enumerate(stack)],
        **({} if final is None else {"norm_eps": _eps("norm", final)}),
    }


def _of_layer(name: str, layer: Any) -> dict[str, Any]:
    attention = layer.self_attn
    if attention.add_zero_attn or attention.bias_k is not None:
        got = f"{name}.self_attn with {'add_zero_attn' if attention.add_zero_attn else 'add_bias_kv'}"
        raise ArgumentError("module", got, "attention over the tokens alone")
    return {
        "nhead": attention.num_heads,
        "norm_first": bool(layer.norm_first),
        "activation": activation_of(layer.activation),
        "layer_norm_eps": [_eps(f"{name}.{norm}", getattr(layer, norm)) for norm in ("norm1", "norm2")],
    }


def _eps(name: str, norm: nn.Module) -> float:
    if not isinstance(norm, nn.LayerNorm):
        raise ArgumentError("module", f"{name}, a {type(norm).__name__}", "nn.LayerNorm")
    return norm.eps


@family(
    "encoder",
    "`nn.TransformerEncoder`, or one layer of it, `norm_first` either way, without a mask",
    route="ring",
    anchor=r"(layers\.0\.)?self_attn\.in_proj_weight",
    within=r"(layers\.|self_attn|linear|norm\d)",
    reference=Reference(r"(layers\.\d+)?", run, package="torch"),
    described=described,
)
def encoder(weights: Weights, settings: Settings) -> Network:
    """nhead, norm_first, activation and layer_norm_eps, or a list of such `layers`; norm_eps of a last norm."""
    stacked = "layers.0.self_attn.in_proj_weight" in weights
    prefixes = [f"layers.{number}." for number in range(weights.count(r"layers\.(\d+)\."))] if stacked else [""]
    each = settings.find("layers")
    own = [settings] * len(prefixes) if each is None else [Settings(values) for values in each]
    layers = tuple(_layer(weights, one, prefix) for one, prefix in zip(own, prefixes, strict=True))
    final = None
    if stacked and "norm.weight" in weights:
        final = _norm(weights, "norm", layers[0].d, settings.number("norm_eps"))
    return Network(weights.family, layers, None, final)


def _norm(weights: Weights, name: str, d: int, eps: float) -> LayerNorm:
    return LayerNorm(weights.take(f"{name}.weight", d), weights.find(f"{name}.bias", d), eps)


def _layer(weights: Weights, settings: Settings, prefix: str) -> Layer:
    d = weights.take(f"{prefix}self_attn.in_proj_weight", None, None).shape[1]
    m = weights.take(f"{prefix}linear1.weight", None, d).shape[0]
    query, key, value = np.split(weights.take(f"{prefix}self_attn.in_proj_weight", 3 * d, d), 3)
    bias = weights.find(f"{prefix}self_attn.in_proj_bias", 3 * d)
    query_bias, key_bias, value_bias = (None, None, None) if bias is None else np.split(bias, 3)
    both = settings.find("layer_norm_eps")
    first, second = both if isinstance(both, list) and len(both) == 2 else [settings.number("layer_norm_eps")] * 2
    return Layer(
        heads=settings.whole("nhead"),
        query=query,
        key=key,
        value=value,
        out=weights.take(f"{prefix}self_attn.out_proj.weight", d, d),
        attention_norm=_norm(weights, f"{prefix}norm1", d, first),
        feedforward_norm=_norm(weights, f"{prefix}norm2", d, second),
        placement="pre" if settings.flag("norm_first") else "post",
        weight_in=weights.take(f"{prefix}linear1.weight", m, d),
        weight_out=weights.take(f"{prefix}linear2.weight", d, m),
        activation=activation_named(settings.get("activation")),
        query_bias=query_bias,
        key_bias=key_bias,
        value_bias=value_bias,
        out_bias=weights.find(f"{prefix}self_attn.out_proj.bias", d),
        bias_in=weights.find(f"{prefix}linear1.bias", m),
        bias_out=weights.find(f"{prefix}linear2.bias", d),
    )
