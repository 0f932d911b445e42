"""Rotary pre-RMSNorm decoders with the layout of LLaMA; Mistral, Qwen2 and Gemma share it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dispersion import ArgumentError, RMSNorm
from dispersion.block.encodings import Swin
from models.adapters.angles import angles, theta_named
from models.adapters.layer import Floats, Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

FARTHEST = 1024
"""The largest window that is compared."""
USUAL = 4096
"""The window of a Mistral whose settings do not say one; null says that there is none."""


def past_the_window(config: object) -> int:
    """How many tokens show a sliding window, 0 where there is none or it is longer than FARTHEST.

    Parameters
    ----------
    config : object
        Of transformers.
    """
    window = getattr(config, "sliding_window", None) or 0
    return window + 2 if 0 < window <= FARTHEST else 0


@family(
    "rotary",
    "LLaMA, Mistral, Qwen2: pre-RMSNorm, rotary, causal, gated",
    route="line",
    anchor=r"layers\.0\.self_attn\.q_proj\.weight",
    within=r"layers\.",
    model_types=("llama", "mistral", "qwen2"),
    reference=Reference(r"layers\.\d+", renamed=theta_named, tokens=past_the_window),
    buffers=r"rotary_emb\.inv_freq$",
    harmless=("pretraining_tp", "max_window_layers", "attention_bias", "mlp_bias"),
)
def rotary(weights: Weights, settings: Settings) -> Network:
    """A rotary pre-RMSNorm decoder, causal, grouped keys and values spread out, without gate_proj not gated:
    num_attention_heads, rope_theta and rope_scaling or rope_parameters, rms_norm_eps, hidden_act, is_causal. A token of
    Mistral sees the last sliding_window tokens, itself among them.
    """
    settings.only("use_sliding_window", False)
    kind, window = settings.find("model_type"), None
    if kind == "qwen2":
        settings.find("sliding_window")  # not used, as above
    elif kind != "llama":
        usual = kind == "mistral" and "sliding_window" not in settings.values
        if usual or settings.find("sliding_window") is not None:
            window = settings.whole("sliding_window", USUAL)
    if window is not None and window > FARTHEST:
        weights.notes.append(f"its sliding window of {window} tokens is longer than what is compared")
    return _decoder(weights, settings, 32, "silu", window=window)


@family(
    "gemma",
    "Gemma: pre-RMSNorm of gain 1 + w, rotary, causal, gated",
    route="line",
    anchor=r"layers\.0\.self_attn\.q_proj\.weight",
    within=r"layers\.",
    model_types=("gemma",),
    reference=Reference(r"layers\.\d+", renamed=theta_named),
    buffers=r"rotary_emb\.inv_freq$",
    harmless=("attention_bias", "hidden_activation"),  # transformers has hidden_act alone
)
def gemma(weights: Weights, settings: Settings) -> Network:
    """A Gemma decoder, its norms with the gain 1 + w and its embedding times √d: the settings of `rotary`."""
    found = _decoder(weights, settings, 16, "gelu_pytorch_tanh", 1.0)
    if found.embedding is None or found.embedding.tokens is None:
        return found
    return replace(found, embedding=Embedding(np.sqrt(found.d) * found.embedding.tokens))


def _decoder(
    weights: Weights, settings: Settings, heads: int, act: str, unit: float = 0.0, window: int | None = None
) -> Network:
    """A decoder of so many `heads` and this activation if the settings do not say; norms have the gain `unit` + w."""
    count = settings.match("num_hidden_layers", weights.count(r"layers\.(\d+)\."))
    settings.only("layer_types", ["full_attention"] * count)
    embedding = None
    if "embed_tokens.weight" in weights:
        tokens = weights.take("embed_tokens.weight", None, None)
        settings.match("vocab_size", len(tokens))
        embedding = Embedding(tokens)
    layers = tuple(_layer(weights, settings, f"layers.{number}.", heads, act, unit, window) for number in range(count))
    final = _norm(weights, settings, "norm", layers[0].d, unit) if "norm.weight" in weights else None
    return Network(weights.family, layers, embedding, final)


def _norm(weights: Weights, settings: Settings, name: str, d: int, unit: float) -> RMSNorm:
    return RMSNorm(unit + weights.take(f"{name}.weight", d), None, settings.number("rms_norm_eps", 1e-6))


def _layer(
    weights: Weights, settings: Settings, prefix: str, usual: int, act: str, unit: float, window: int | None
) -> Layer:
    heads = settings.whole("num_attention_heads", usual)
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
    turning = angles(settings, size)
    return Layer(
        heads=heads,
        query=weights.take(f"{prefix}self_attn.q_proj.weight", width, d),
        key=spread("k_proj.weight", d),
        value=spread("v_proj.weight", d),
        out=weights.take(f"{prefix}self_attn.o_proj.weight", d, width),
        attention_norm=_norm(weights, settings, f"{prefix}input_layernorm", d, unit),
        feedforward_norm=_norm(weights, settings, f"{prefix}post_attention_layernorm", d, unit),
        placement="pre",
        weight_in=weights.take(f"{prefix}mlp.up_proj.weight", m, d),
        weight_out=weights.take(f"{prefix}mlp.down_proj.weight", d, m),
        activation=activation_named(settings.get("hidden_act", act)),
        query_bias=optional("self_attn.q_proj.bias", width),
        key_bias=spread("k_proj.bias") if biased else None,
        value_bias=spread("v_proj.bias") if f"{prefix}self_attn.v_proj.bias" in weights else None,
        out_bias=optional("self_attn.o_proj.bias", d),
        bias_in=optional("mlp.up_proj.bias", m),
        bias_out=optional("mlp.down_proj.bias", d),
        weight_gate=optional("mlp.gate_proj.weight", m, d),
        bias_gate=optional("mlp.gate_proj.bias", m),
        frequencies=turning.frequencies,
        scale=turning.scale(size),
        causal=settings.flag("is_causal", True),
        encodings=None if window is None else (Swin(np.zeros(2 * window - 1)),) * heads,
    )
