"""ESM and RoFormer: rotary encoders, pre- and post-normalised, with pairs in halves and interleaved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dispersion import ArgumentError, LayerNorm
from models.adapters.layer import Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

SEEN = 1 - 0.15 * 0.8
"""Share of the tokens that ESM saw in training, a factor of its embedding where none is masked."""
THETA = 10000.0
"""The base of the frequencies of both, which is no setting."""


@family(
    "esm",
    "ESM-2: pre-LN, rotary",
    route="line",
    anchor=r"encoder\.layer\.0\.attention\.LayerNorm\.weight",
    within=r"encoder\.layer\.",
    model_types=("esm",),
    reference=Reference(r"encoder\.layer\.\d+"),
    harmless=("mask_token_id", "vocab_list", "esmfold_config"),
)
def esm(weights: Weights, settings: Settings) -> Network:
    """An ESM-2 encoder: num_attention_heads, layer_norm_eps, token_dropout, emb_layer_norm_before. The frequencies are
    those of the checkpoint.
    """
    settings.only("is_folding_model", False)
    if settings.get("position_embedding_type", "absolute") != "rotary":
        raise ArgumentError(
            "config", f"position_embedding_type = {settings.find('position_embedding_type')!r}", "'rotary'"
        )
    count = settings.match("num_hidden_layers", weights.count(r"encoder\.layer\.(\d+)\."))
    names = ("attention.LayerNorm", "LayerNorm")
    layers = []
    for number in range(count):
        at = f"encoder.layer.{number}."
        layer = _layer(weights, settings, at, names, "pre", "gelu")
        frequencies = weights.find(f"{at}attention.self.rotary_embeddings.inv_freq", layer.size // 2)
        layers.append(layer if frequencies is None else replace(layer, frequencies=frequencies))
    embedding, d = None, layers[0].d
    before = bool(settings.find("emb_layer_norm_before"))
    if "embeddings.word_embeddings.weight" in weights:
        tokens = weights.take("embeddings.word_embeddings.weight", None, d)
        settings.match("vocab_size", len(tokens))
        tokens = SEEN * tokens if settings.flag("token_dropout", False) else tokens
        embedding = Embedding(tokens, norm=_norm(weights, settings, "embeddings.layer_norm", d) if before else None)
    final = "encoder.emb_layer_norm_after"
    norm = _norm(weights, settings, final, d) if f"{final}.weight" in weights else None
    return Network(weights.family, tuple(layers), embedding, norm)


def tables(model: Any) -> Mapping[str, Tensor]:
    """The sines and cosines of a RoFormer in float64, which its table keeps in float32.

    Parameters
    ----------
    model : nn.Module
        A RoFormerModel.
    """
    name = "encoder.embed_positions.weight"
    positions, size = model.get_parameter(name).shape
    angles = np.outer(np.arange(positions), _frequencies(size))
    return {name: torch.tensor(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))}


@family(
    "roformer",
    "RoFormer: post-LN, rotary pairs interleaved",
    route="line",
    anchor=r"encoder\.layer\.0\.attention\.self\.query\.weight",
    within=r"encoder\.layer\.",
    model_types=("roformer",),
    reference=Reference(r"encoder\.layer\.\d+", tables=tables),
)
def roformer(weights: Weights, settings: Settings) -> Network:
    """A RoFormer encoder: num_attention_heads, hidden_act, layer_norm_eps."""
    settings.only("rotary_value", False)
    count = settings.match("num_hidden_layers", weights.count(r"encoder\.layer\.(\d+)\."))
    names = ("attention.output.LayerNorm", "output.LayerNorm")
    layers = [_layer(weights, settings, f"encoder.layer.{number}.", names, "post") for number in range(count)]
    layers = [replace(layer, pairing="interleaved") for layer in layers]
    embedding = None
    if "embeddings.word_embeddings.weight" in weights:
        tokens = weights.take("embeddings.word_embeddings.weight", None, None)
        e = settings.match("embedding_size", tokens.shape[1])
        settings.match("vocab_size", len(tokens))
        kinds = weights.take("embeddings.token_type_embeddings.weight", None, e)
        if settings.match("type_vocab_size", len(kinds)) > 1:
            weights.notes.append("every token is of the first token type")
        mapped = e != layers[0].d
        weight, bias = weights.linear("embeddings_project", layers[0].d, e, True) if mapped else (None, None)
        norm = _norm(weights, settings, "embeddings.LayerNorm", e)
        embedding = Embedding(tokens, None, kinds[0], norm, weight, bias)
    return Network(weights.family, tuple(layers), embedding)


def _frequencies(size: int) -> Any:
    return THETA ** (-2 * np.arange(size // 2) / size)


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> LayerNorm:
    eps = settings.number("layer_norm_eps", 1e-12)
    return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)


def _layer(
    weights: Weights, settings: Settings, at: str, norms: tuple[str, str], placement: str, act: str | None = None
) -> Layer:
    """A layer with the names of BERT, `norms` beside; `act` where the activation is no setting."""
    heads = settings.whole("num_attention_heads", 12)
    d = settings.match("hidden_size", weights.take(f"{at}attention.self.query.weight", None, None).shape[1])
    (query, query_bias), (key, key_bias), (value, value_bias) = (
        weights.linear(f"{at}attention.self.{part}", d, d, True) for part in ("query", "key", "value")
    )
    out, out_bias = weights.linear(f"{at}attention.output.dense", d, d, True)
    weight_in, bias_in = weights.linear(f"{at}intermediate.dense", None, d, True)
    m = settings.match("intermediate_size", len(weight_in))
    weight_out, bias_out = weights.linear(f"{at}output.dense", d, m, True)
    return Layer(
        heads=heads,
        query=query,
        key=key,
        value=value,
        out=out,
        attention_norm=_norm(weights, settings, at + norms[0], d),
        feedforward_norm=_norm(weights, settings, at + norms[1], d),
        placement=placement,
        weight_in=weight_in,
        weight_out=weight_out,
        activation=act or activation_named(settings.get("hidden_act", "gelu")),
        query_bias=query_bias,
        key_bias=key_bias,
        value_bias=value_bias,
        out_bias=out_bias,
        bias_in=bias_in,
        bias_out=bias_out,
        frequencies=_frequencies(d // heads),
    )
