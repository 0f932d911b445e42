"""BERT and ALBERT: post-normalised encoders with learned absolute positions added to the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dispersion import LayerNorm
from models.adapters.layer import Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.weights import Settings, Weights

_BERT = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "norm_1": "attention.output.LayerNorm",
    "in": "intermediate.dense",
    "outward": "output.dense",
    "norm_2": "output.LayerNorm",
}
_ALBERT = {
    "query": "attention.query",
    "key": "attention.key",
    "value": "attention.value",
    "out": "attention.dense",
    "norm_1": "attention.LayerNorm",
    "in": "ffn",
    "outward": "ffn_output",
    "norm_2": "full_layer_layer_norm",
}


def bert(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> Network:
    """A BERT encoder (post-LN) from its state dict.

    tensors : by the names of the reference implementation, whatever stands before them. config : num_attention_heads;
    also hidden_act ('gelu') and layer_norm_eps (1e-12).
    """
    weights, settings = Weights(tensors, "bert"), _checked(config)
    embedding = _embedding(weights, settings, None)
    layers = tuple(
        _layer(weights, settings, f"encoder.layer.{number}.", _BERT, "gelu")
        for number in range(weights.count(r"encoder\.layer\.(\d+)\."))
    )
    weights.finish(r"encoder\.")
    return Network("bert", layers, embedding, None, tuple(weights.notes))


def albert(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> Network:
    """An ALBERT encoder (post-LN, layers of one group share their weights) from its state dict.

    tensors : by the names of the reference implementation, whatever stands before them. config : num_attention_heads
    and num_hidden_layers, how many times layers are applied; also hidden_act ('gelu_new'), layer_norm_eps (1e-12),
    num_hidden_groups (1) and inner_group_num (1).
    """
    weights, settings = Weights(tensors, "albert"), _checked(config)
    d = weights.take("encoder.embedding_hidden_mapping_in.weight", None, None).shape[0]
    embedding = _embedding(weights, settings, d)
    applied, groups = settings.whole("num_hidden_layers"), settings.whole("num_hidden_groups", 1)
    inner = settings.whole("inner_group_num", 1)
    stacks = [
        [
            _layer(weights, settings, f"encoder.albert_layer_groups.{group}.albert_layers.{part}.", _ALBERT, "gelu_new")
            for part in range(inner)
        ]
        for group in range(groups)
    ]
    weights.finish(r"encoder\.")
    layers = [layer for number in range(applied) for layer in stacks[number * groups // applied]]
    return Network("albert", tuple(layers), embedding, None, tuple(weights.notes))


def _checked(config: Mapping[str, Any]) -> Settings:
    settings = Settings(config)
    settings.refuse("position_embedding_type", "absolute")
    settings.refuse("is_decoder", False)
    return settings


def _embedding(weights: Weights, settings: Settings, d: int | None) -> Embedding | None:
    """The embedding, None if the checkpoint holds the encoder alone; mapped to `d` features if given."""
    if "embeddings.word_embeddings.weight" not in weights:
        return None
    tokens = weights.take("embeddings.word_embeddings.weight", None, None)
    e = tokens.shape[1]
    kinds = weights.find("embeddings.token_type_embeddings.weight", None, e)
    mapped = "encoder.embedding_hidden_mapping_in"
    if kinds is not None and len(kinds) > 1:
        weights.notes.append("every token is of the first token type")
    return Embedding(
        tokens,
        weights.take("embeddings.position_embeddings.weight", None, e),
        None if kinds is None else kinds[0],
        _norm(weights, settings, "embeddings.LayerNorm", e),
        None if d is None else weights.take(f"{mapped}.weight", d, e),
        None if d is None else weights.take(f"{mapped}.bias", d),
    )


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> LayerNorm:
    eps = settings.number("layer_norm_eps", 1e-12)
    return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)


def _layer(weights: Weights, settings: Settings, prefix: str, names: Mapping[str, str], usual: str) -> Layer:
    heads = settings.whole("num_attention_heads")
    d = weights.take(f"{prefix}{names['query']}.weight", None, None).shape[1]
    m = weights.take(f"{prefix}{names['in']}.weight", None, d).shape[0]

    def linear(part: str, rows: int, columns: int) -> tuple[Any, Any]:
        name = prefix + names[part]
        return weights.take(f"{name}.weight", rows, columns), weights.take(f"{name}.bias", rows)

    query, query_bias = linear("query", d, d)
    key, key_bias = linear("key", d, d)
    value, value_bias = linear("value", d, d)
    out, out_bias = linear("out", d, d)
    weight_in, bias_in = linear("in", m, d)
    weight_out, bias_out = linear("outward", d, m)
    return Layer(
        heads=heads,
        query=query,
        key=key,
        value=value,
        out=out,
        attention_norm=_norm(weights, settings, prefix + names["norm_1"], d),
        feedforward_norm=_norm(weights, settings, prefix + names["norm_2"], d),
        placement="post",
        weight_in=weight_in,
        weight_out=weight_out,
        activation=activation_named(settings.get("hidden_act", usual)),
        query_bias=query_bias,
        key_bias=key_bias,
        value_bias=value_bias,
        out_bias=out_bias,
        bias_in=bias_in,
        bias_out=bias_out,
    )
