"""GPT-2: a pre-normalised causal decoder with learned absolute positions added to the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dispersion import LayerNorm
from models.adapters.layer import Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.weights import Settings, Weights

BUFFERS = r"attn\.(bias|masked_bias)$"
"""The causal mask, which some checkpoints hold."""


def gpt2(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> Network:
    """A GPT-2 decoder (pre-LN, causal) from its state dict.

    tensors : by the names of the reference implementation, whatever stands before them; its linear maps are stored
    (in, out). config : n_head; also activation_function ('gelu_new') and layer_norm_epsilon (1e-5).
    """
    weights, settings = Weights(tensors, "gpt2"), Settings(config)
    settings.refuse("scale_attn_weights", True)
    settings.refuse("scale_attn_by_inverse_layer_idx", False)
    settings.refuse("add_cross_attention", False)
    embedding = None
    if "wte.weight" in weights:
        tokens = weights.take("wte.weight", None, None)
        embedding = Embedding(tokens, weights.take("wpe.weight", None, tokens.shape[1]))
    layers = tuple(_layer(weights, settings, f"h.{number}.") for number in range(weights.count(r"h\.(\d+)\.")))
    final = _norm(weights, settings, "ln_f", layers[0].d) if "ln_f.weight" in weights else None
    weights.finish(r"h\.", BUFFERS)
    return Network("gpt2", layers, embedding, final, tuple(weights.notes))


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> LayerNorm:
    eps = settings.number("layer_norm_epsilon", 1e-5)
    return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)


def _layer(weights: Weights, settings: Settings, prefix: str) -> Layer:
    d = weights.take(f"{prefix}attn.c_attn.weight", None, None).shape[0]
    m = weights.take(f"{prefix}mlp.c_fc.weight", d, None).shape[1]
    query, key, value = np.split(weights.take(f"{prefix}attn.c_attn.weight", d, 3 * d).T, 3)
    query_bias, key_bias, value_bias = np.split(weights.take(f"{prefix}attn.c_attn.bias", 3 * d), 3)
    return Layer(
        heads=settings.whole("n_head"),
        query=query,
        key=key,
        value=value,
        out=weights.take(f"{prefix}attn.c_proj.weight", d, d).T,
        attention_norm=_norm(weights, settings, f"{prefix}ln_1", d),
        feedforward_norm=_norm(weights, settings, f"{prefix}ln_2", d),
        placement="pre",
        weight_in=weights.take(f"{prefix}mlp.c_fc.weight", d, m).T,
        weight_out=weights.take(f"{prefix}mlp.c_proj.weight", m, d).T,
        activation=activation_named(settings.get("activation_function", "gelu_new")),
        query_bias=query_bias,
        key_bias=key_bias,
        value_bias=value_bias,
        out_bias=weights.take(f"{prefix}attn.c_proj.bias", d),
        bias_in=weights.take(f"{prefix}mlp.c_fc.bias", m),
        bias_out=weights.take(f"{prefix}mlp.c_proj.bias", d),
        causal=True,
    )
