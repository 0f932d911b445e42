"""OPT: a causal decoder with learned absolute positions added to the input, normalised before or after its branches."""

from __future__ import annotations

import numpy as np

from dispersion import LayerNorm
from models.adapters.layer import Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

FIRST = 2
"""The row of the table of positions for the first token."""


@family(
    "opt",
    "OPT: pre-LN or post-LN, causal, learned absolute positions at the input",
    route="line",
    anchor=r"decoder\.layers\.0\.self_attn\.q_proj\.weight",
    within=r"decoder\.layers\.",
    model_types=("opt",),
    reference=Reference(r"decoder\.layers\.\d+"),
    harmless=("activation_dropout",),
)
def opt(weights: Weights, settings: Settings) -> Network:
    """An OPT decoder: num_attention_heads, activation_function, do_layer_norm_before,
    enable_bias, layer_norm_elementwise_affine, _remove_final_layer_norm.
    """
    count = settings.match("num_hidden_layers", weights.count(r"decoder\.layers\.(\d+)\."))
    heads, before = settings.whole("num_attention_heads", 12), settings.flag("do_layer_norm_before", True)
    activation = activation_named(settings.get("activation_function", "relu"))
    biased, affine = settings.flag("enable_bias", True), settings.flag("layer_norm_elementwise_affine", True)

    def norm(name: str, d: int) -> LayerNorm:
        if not affine:
            return LayerNorm(np.ones(d))
        return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d))

    def layer(at: str) -> Layer:
        d = settings.match("hidden_size", weights.take(f"{at}.self_attn.q_proj.weight", None, None).shape[1])
        (query, query_bias), (key, key_bias), (value, value_bias), (out, out_bias) = (
            weights.linear(f"{at}.self_attn.{part}_proj", d, d, biased) for part in ("q", "k", "v", "out")
        )
        weight_in, bias_in = weights.linear(f"{at}.fc1", None, d, biased)
        m = settings.match("ffn_dim", len(weight_in))
        weight_out, bias_out = weights.linear(f"{at}.fc2", d, m, biased)
        return Layer(
            heads=heads,
            query=query,
            key=key,
            value=value,
            out=out,
            attention_norm=norm(f"{at}.self_attn_layer_norm", d),
            feedforward_norm=norm(f"{at}.final_layer_norm", d),
            placement="pre" if before else "post",
            weight_in=weight_in,
            weight_out=weight_out,
            activation=activation,
            query_bias=query_bias,
            key_bias=key_bias,
            value_bias=value_bias,
            out_bias=out_bias,
            bias_in=bias_in,
            bias_out=bias_out,
            causal=True,
        )

    layers = tuple(layer(f"decoder.layers.{number}") for number in range(count))
    final = before and not settings.find("_remove_final_layer_norm")
    embedding = _embedding(weights, settings, layers[0].d) if "decoder.embed_tokens.weight" in weights else None
    return Network(weights.family, layers, embedding, norm("decoder.final_layer_norm", layers[0].d) if final else None)


def _embedding(weights: Weights, settings: Settings, d: int) -> Embedding:
    """Of tokens, mapped to d features where they have other ones, and positions."""
    tokens = weights.take("decoder.embed_tokens.weight", None, None)
    mapped = weights.find("decoder.project_in.weight", d, tokens.shape[1])
    settings.match("vocab_size", len(tokens))
    settings.match("word_embed_proj_dim", tokens.shape[1])
    positions = weights.take("decoder.embed_positions.weight", None, d)[FIRST:]
    settings.match("max_position_embeddings", len(positions))
    return Embedding(tokens if mapped is None else tokens @ mapped.T, positions)
