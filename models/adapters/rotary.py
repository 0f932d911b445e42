"""Rotary pre-RMSNorm decoders with the layout of LLaMA; Mistral and Qwen2 share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dispersion import ArgumentError, RMSNorm
from dispersion.errors import real_number, shown
from models.adapters.layer import Floats, Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights


def theta_named(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """`settings` as transformers 4 knows them: θ under its own name.

    Parameters
    ----------
    settings : mapping of str to Any
        The config.
    """
    inside = settings.get("rope_parameters") or {}
    rest = {name: value for name, value in settings.items() if name != "rope_parameters"}
    return rest | ({"rope_theta": inside["rope_theta"]} if "rope_theta" in inside else {})


@family(
    "rotary",
    "LLaMA, Mistral, Qwen2: pre-RMSNorm, rotary, causal, gated",
    route="line",
    anchor=r"layers\.0\.self_attn\.q_proj\.weight",
    within=r"layers\.",
    model_types=("llama", "mistral", "qwen2"),
    reference=Reference(r"layers\.\d+", renamed=theta_named),
    buffers=r"rotary_emb\.inv_freq$",
    harmless=("pretraining_tp", "max_window_layers", "attention_bias", "mlp_bias"),
)
def rotary(weights: Weights, settings: Settings) -> Network:
    """A rotary pre-RMSNorm decoder, causal, grouped keys and values spread out, without gate_proj not gated:
    num_attention_heads, rope_theta or rope_parameters, rms_norm_eps, hidden_act, is_causal.
    """
    settings.only("rope_scaling")
    settings.only("use_sliding_window", False)
    count = settings.match("num_hidden_layers", weights.count(r"layers\.(\d+)\."))
    settings.only("layer_types", ["full_attention"] * count)
    if settings.find("sliding_window") is not None and settings.find("model_type") == "mistral":
        window = settings.whole("sliding_window")
        weights.notes.append(f"the sliding window of {window} tokens is left out: exact for at most so many tokens")
    embedding = None
    if "embed_tokens.weight" in weights:
        tokens = weights.take("embed_tokens.weight", None, None)
        settings.match("vocab_size", len(tokens))
        embedding = Embedding(tokens)
    layers = tuple(_layer(weights, settings, f"layers.{number}.") for number in range(count))
    final = _norm(weights, settings, "norm", layers[0].d) if "norm.weight" in weights else None
    return Network(weights.family, layers, embedding, final)


def base_of(settings: Settings) -> float:
    """θ of the rotary encoding, of rope_theta or in rope_parameters; encodings of another rope_type are refused.

    Parameters
    ----------
    settings : Settings
        The config.
    """
    inside = settings.find("rope_parameters")
    if inside is None:
        return real_number("rope_theta", settings.number("rope_theta", 10000.0), positive=True)
    if not isinstance(inside, Mapping):
        raise ArgumentError("config", f"rope_parameters = {shown(inside)}", "a JSON object")
    within = Settings({"model_type": "default", **inside})
    within.only("rope_type", "default")
    within.finish("rope_parameters", ("rope_theta",))
    theta = real_number("rope_theta", within.number("rope_theta", 10000.0), positive=True)
    outside = settings.find("rope_theta")
    if outside is not None and outside != theta:
        raise ArgumentError("config", f"rope_theta = {shown(outside)}", f"{theta}, as in rope_parameters")
    return theta


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> RMSNorm:
    return RMSNorm(weights.take(f"{name}.weight", d), None, settings.number("rms_norm_eps", 1e-6))


def _layer(weights: Weights, settings: Settings, prefix: str) -> Layer:
    heads = settings.whole("num_attention_heads", 32)
    width, d = weights.take(f"{prefix}self_attn.q_proj.weight", None, None).shape
    rows = weights.take(f"{prefix}self_attn.k_proj.weight", None, d).shape[0]
    size = width // heads
    groups = rows // max(size, 1)
    if width % heads or size % 2 or rows % max(size, 1) or heads % max(groups, 1):
        got = f"{heads} heads for {width} query and {rows} key features"
        raise ArgumentError("config", got, "heads of an even number of features, a whole number to a group of keys")
    settings.match("num_key_value_heads", groups)
    settings.match("head_dim", size)
    settings.match("hidden_size", d)
    m = settings.match("intermediate_size", weights.take(f"{prefix}mlp.up_proj.weight", None, d).shape[0])

    def spread(name: str, *shape: int) -> Floats:
        # each group of keys and values serves heads/groups heads in a row
        given = weights.take(f"{prefix}self_attn.{name}", groups * size, *shape).reshape(groups, size, *shape)
        return np.repeat(given, heads // groups, axis=0).reshape(width, *shape)

    def optional(name: str, *shape: int) -> Floats | None:
        return weights.find(f"{prefix}{name}", *shape)

    biased = f"{prefix}self_attn.k_proj.bias" in weights
    with np.errstate(over="ignore"):  # infinite ones are refused with the layer
        frequencies = base_of(settings) ** (-2 * np.arange(size // 2) / size)
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
