"""Rotary pre-RMSNorm decoders with the layout of LLaMA; Mistral and Qwen2 share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dispersion import ArgumentError, RMSNorm
from dispersion.errors import real_number
from models.adapters.layer import Floats, Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.weights import Settings, Weights

KINDS = ("llama", "mistral", "qwen2")
"""Model types whose layers are these and nothing else."""


def rotary(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> Network:
    """A rotary pre-RMSNorm decoder from its state dict: half-split pairs, causal, grouped keys and values spread out.

    tensors : by the names of LLaMA, whatever stands before them; a feed-forward without gate_proj is a plain one.
    config : num_attention_heads; also num_key_value_heads (as many), rope_theta (10000), rms_norm_eps (1e-6),
    hidden_act ('silu') and is_causal (true).
    """
    weights, settings = Weights(tensors, "rotary"), Settings(config)
    settings.refuse("model_type", *KINDS)
    settings.refuse("rope_scaling")
    settings.refuse("use_sliding_window", False)
    if settings.values.get("sliding_window") and settings.values.get("model_type") == "mistral":
        window = settings.whole("sliding_window")
        weights.notes.append(f"the sliding window of {window} tokens is left out: exact for at most so many tokens")
    embedding = None
    if "embed_tokens.weight" in weights:
        embedding = Embedding(weights.take("embed_tokens.weight", None, None))
    numbers = range(weights.count(r"layers\.(\d+)\."))
    layers = tuple(_layer(weights, settings, f"layers.{number}.") for number in numbers)
    final = _norm(weights, settings, "norm", layers[0].d) if "norm.weight" in weights else None
    weights.finish(r"layers\.", r"rotary_emb\.inv_freq$")
    return Network("rotary", layers, embedding, final, tuple(weights.notes))


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> RMSNorm:
    return RMSNorm(weights.take(f"{name}.weight", d), None, settings.number("rms_norm_eps", 1e-6))


def _layer(weights: Weights, settings: Settings, prefix: str) -> Layer:
    heads = settings.whole("num_attention_heads")
    groups = settings.whole("num_key_value_heads", heads)
    width, d = weights.take(f"{prefix}self_attn.q_proj.weight", None, None).shape
    if heads % groups or width % heads or (width // heads) % 2:
        got = f"{heads} heads, {groups} of keys and values, for {width} query features"
        raise ArgumentError("config", got, "heads of an even number of features, a whole number to a group")
    size = width // heads
    m = weights.take(f"{prefix}mlp.up_proj.weight", None, d).shape[0]

    def spread(name: str, *shape: int) -> Floats:
        # each group of keys and values serves heads/groups heads in a row
        given = weights.take(f"{prefix}self_attn.{name}", groups * size, *shape).reshape(groups, size, *shape)
        return np.repeat(given, heads // groups, axis=0).reshape(width, *shape)

    def optional(name: str, *shape: int) -> Floats | None:
        return weights.find(f"{prefix}{name}", *shape)

    biased = f"{prefix}self_attn.k_proj.bias" in weights
    theta = real_number("rope_theta", settings.number("rope_theta", 10000.0), positive=True)
    with np.errstate(over="ignore"):  # infinite ones are refused with the layer
        frequencies = theta ** (-2 * np.arange(size // 2) / size)
    return Layer(
        heads=heads,
        query=weights.take(f"{prefix}self_attn.q_proj.weight", width, d),
        key=spread("k_proj.weight", d),
        value=spread("v_proj.weight", d),
        out=weights.take(f"{prefix}self_attn.o_proj.weight", d, width),
        attention_norm=_norm(weights, settings, f"{prefix}input_layernorm", d),
        feedforward_norm=_norm(weights, settings, f"{prefix}post_attention_layernorm", d),
        placement="pre",
        weight_in=weights.take(f"{prefix}mlp.up_proj.weight", m, d),
        weight_out=weights.take(f"{prefix}mlp.down_proj.weight", d, m),
        activation=activation_named(settings.get("hidden_act", "silu")),
        query_bias=optional("self_attn.q_proj.bias", width),
        key_bias=spread("k_proj.bias") if biased else None,
        value_bias=spread("v_proj.bias") if f"{prefix}self_attn.v_proj.bias" in weights else None,
        out_bias=optional("self_attn.o_proj.bias", d),
        bias_in=optional("mlp.up_proj.bias", m),
        bias_out=optional("mlp.down_proj.bias", d),
        weight_gate=optional("mlp.gate_proj.weight", m, d),
        bias_gate=optional("mlp.gate_proj.bias", m),
        frequencies=frequencies,
        causal=settings.flag("is_causal", True),
    )
