"""BERT and ALBERT: post-normalised encoders with learned absolute positions added to the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispersion import LayerNorm
from models.adapters.layer import Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

POOLER = (
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
)
"""Settings of the first BERT checkpoints about what comes after the last layer."""

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


@family(
    "bert",
    "BERT: post-LN, learned absolute positions at the input",
    route="ring",
    anchor=r"encoder\.layer\.0\.attention\.self\.query\.weight",
    within=r"encoder\.",
    model_types=("bert",),
    reference=Reference(r"encoder\.layer\.\d+"),
    harmless=POOLER,
)
def bert(weights: Weights, settings: Settings) -> Network:
    """A BERT encoder: num_attention_heads, hidden_act, layer_norm_eps."""
    settings.only("position_embedding_type", "absolute")
    embedding = _embedding(weights, settings, None)
    count = settings.match("num_hidden_layers", weights.count(r"encoder\.layer\.(\d+)\."))
    prefixes = [f"encoder.layer.{number}." for number in range(count)]
    layers = [_layer(weights, settings, prefix, _BERT, "gelu") for prefix in prefixes]
    return Network(weights.family, tuple(layers), embedding)


@family(
    "albert",
    "ALBERT: the same with shared layers",
    route="ring",
    anchor=r"encoder\.albert_layer_groups\.0\.albert_layers\.0\.attention\.query\.weight",
    within=r"encoder\.",
    model_types=("albert",),
    reference=Reference(r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+"),
    harmless=("down_scale_factor", "net_structure_type", "gap_size", "num_memory_blocks", "layers_to_keep"),
)
def albert(weights: Weights, settings: Settings) -> Network:
    """An ALBERT encoder, layers of one group sharing their weights: num_attention_heads, num_hidden_layers (how many
    times layers are applied), hidden_act, layer_norm_eps.
    """
    settings.only("position_embedding_type", "absolute")
    d = weights.take("encoder.embedding_hidden_mapping_in.weight", None, None).shape[0]
    embedding = _embedding(weights, settings, d)
    settings.match("embedding_size", weights.take("encoder.embedding_hidden_mapping_in.weight", d, None).shape[1])
    applied = settings.whole("num_hidden_layers", 12)
    group = r"encoder\.albert_layer_groups\.(\d+)\."
    groups = settings.match("num_hidden_groups", weights.count(group))
    inner = settings.match(
        "inner_group_num", weights.count(group.replace(r"(\d+)", r"\d+") + r"albert_layers\.(\d+)\.")
    )
    stacks = [
        [
            _layer(weights, settings, f"encoder.albert_layer_groups.{group}.albert_layers.{part}.", _ALBERT, "gelu_new")
            for part in range(inner)
        ]
        for group in range(groups)
    ]
    layers = [layer for number in range(applied) for layer in stacks[number * groups // applied]]
    return Network(weights.family, tuple(layers), embedding)


def _embedding(weights: Weights, settings: Settings, d: int | None) -> Embedding | None:
    """The embedding, None if the checkpoint holds the encoder alone; mapped to `d` features if given."""
    if "embeddings.word_embeddings.weight" not in weights:
        return None
    tokens = weights.take("embeddings.word_embeddings.weight", None, None)
    e = tokens.shape[1]
    positions = weights.take("embeddings.position_embeddings.weight", None, e)
    for name, value in {"vocab_size": len(tokens), "max_position_embeddings": len(positions)}.items():
        settings.match(name, value)
    kinds = weights.find("embeddings.token_type_embeddings.weight", None, e)
    mapped = "encoder.embedding_hidden_mapping_in"
    if kinds is not None and settings.match("type_vocab_size", len(kinds)) > 1:
        weights.notes.append("every token is of the first token type")
    return Embedding(
        tokens,
        positions,
        None if kinds is None else kinds[0],
        _norm(weights, settings, "embeddings.LayerNorm", e),
        None if d is None else weights.take(f"{mapped}.weight", d, e),
        None if d is None else weights.take(f"{mapped}.bias", d),
    )


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> LayerNorm:
    eps = settings.number("layer_norm_eps", 1e-12)
    return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)


def _layer(weights: Weights, settings: Settings, prefix: str, names: Mapping[str, str], usual: str) -> Layer:
    heads = settings.whole("num_attention_heads", 12 if names is _BERT else 64)
    d = weights.take(f"{prefix}{names['query']}.weight", None, None).shape[1]
    m = weights.take(f"{prefix}{names['in']}.weight", None, d).shape[0]

    settings.match("hidden_size", d)
    settings.match("intermediate_size", m)

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
