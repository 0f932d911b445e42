"""torch's own nn.TransformerEncoderLayer, alone or in an nn.TransformerEncoder, norm_first either way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dispersion import ArgumentError, LayerNorm
from models.adapters.layer import Layer, activation_named
from models.adapters.network import Network
from models.adapters.weights import Settings, Weights


def encoder(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> Network:
    """An nn.TransformerEncoder, or one nn.TransformerEncoderLayer, from its state dict.

    tensors : by torch's names, whatever stands before them. config : nhead and norm_first, which the state dict does
    not tell; also activation ('relu') and layer_norm_eps (1e-5). The mask, if any, is left out.
    """
    weights, settings = Weights(tensors, "encoder"), Settings(config)
    stacked = "layers.0.self_attn.in_proj_weight" in weights
    numbers = range(weights.count(r"layers\.(\d+)\.")) if stacked else ()
    prefixes = [f"layers.{number}." for number in numbers] or [""]
    layers = tuple(_layer(weights, settings, prefix) for prefix in prefixes)
    final = _norm(weights, settings, "norm", layers[0].d) if stacked and "norm.weight" in weights else None
    weights.finish(r"layers\." if stacked else r"(self_attn|linear|norm)")
    return Network("encoder", layers, None, final, tuple(weights.notes))


def from_module(module: nn.Module) -> Network:
    """The Network of an nn.TransformerEncoder or nn.TransformerEncoderLayer.

    Parameters
    ----------
    module : nn.Module
        One of these; the settings are read from it.

    Returns
    -------
    Network
        Without an embedding: it takes hidden states.
    """
    layer = module.layers[0] if isinstance(module, nn.TransformerEncoder) else module
    if not isinstance(layer, nn.TransformerEncoderLayer):
        accepted = "nn.TransformerEncoder or nn.TransformerEncoderLayer"
        raise ArgumentError("module", type(module).__name__, accepted)
    function = getattr(layer.activation, "__name__", type(layer.activation).__name__.lower())
    config = {
        "nhead": layer.self_attn.num_heads,
        "norm_first": bool(layer.norm_first),
        "activation": function,
        "layer_norm_eps": layer.norm1.eps,
    }
    return encoder(module.state_dict(), config)


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> LayerNorm:
    eps = settings.number("layer_norm_eps", 1e-5)
    return LayerNorm(weights.take(f"{name}.weight", d), weights.find(f"{name}.bias", d), eps)


def _layer(weights: Weights, settings: Settings, prefix: str) -> Layer:
    d = weights.take(f"{prefix}self_attn.in_proj_weight", None, None).shape[1]
    m = weights.take(f"{prefix}linear1.weight", None, d).shape[0]
    query, key, value = np.split(weights.take(f"{prefix}self_attn.in_proj_weight", 3 * d, d), 3)
    bias = weights.find(f"{prefix}self_attn.in_proj_bias", 3 * d)
    query_bias, key_bias, value_bias = (None, None, None) if bias is None else np.split(bias, 3)
    return Layer(
        heads=settings.whole("nhead"),
        query=query,
        key=key,
        value=value,
        out=weights.take(f"{prefix}self_attn.out_proj.weight", d, d),
        attention_norm=_norm(weights, settings, f"{prefix}norm1", d),
        feedforward_norm=_norm(weights, settings, f"{prefix}norm2", d),
        placement="pre" if settings.flag("norm_first") else "post",
        weight_in=weights.take(f"{prefix}linear1.weight", m, d),
        weight_out=weights.take(f"{prefix}linear2.weight", d, m),
        activation=activation_named(settings.get("activation", "relu")),
        query_bias=query_bias,
        key_bias=key_bias,
        value_bias=value_bias,
        out_bias=weights.find(f"{prefix}self_attn.out_proj.bias", d),
        bias_in=weights.find(f"{prefix}linear1.bias", m),
        bias_out=weights.find(f"{prefix}linear2.bias", d),
    )
