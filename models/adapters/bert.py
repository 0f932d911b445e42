"""BERT and its kin: post-normalised encoders with learned absolute positions added to the input."""

from __future__ import annotations

from collections.abc import Mapping

from dispersion import LayerNorm
from dispersion.errors import whole_number
from models.adapters.layer import Layer, activation_named
from models.adapters.named import layer_named, norm_named
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
    return _of_bert(weights, settings, _embedding(weights, settings))


@family(
    "roberta",
    "RoBERTa, XLM-RoBERTa, CamemBERT: BERT whose positions begin after that of padding",
    route="ring",
    anchor=r"encoder\.layer\.0\.attention\.self\.query\.weight",
    within=r"encoder\.",
    model_types=("roberta", "xlm-roberta", "camembert"),
    reference=Reference(r"encoder\.layer\.\d+"),
)
def roberta(weights: Weights, settings: Settings) -> Network:
    """A RoBERTa encoder: num_attention_heads, hidden_act, layer_norm_eps, pad_token_id: positions begin after it."""
    padding = whole_number("pad_token_id", settings.get("pad_token_id", 1), 0)
    return _of_bert(weights, settings, _embedding(weights, settings, first=1 + padding))


@family(
    "electra",
    "ELECTRA: BERT whose embedding may be narrower, then mapped",
    route="ring",
    anchor=r"encoder\.layer\.0\.attention\.self\.query\.weight",
    within=r"encoder\.",
    model_types=("electra",),
    reference=Reference(r"encoder\.layer\.\d+"),
    harmless=("summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"),
)
def electra(weights: Weights, settings: Settings) -> Network:
    """An ELECTRA encoder: num_attention_heads, hidden_act, layer_norm_eps."""
    mapped = "embeddings_project" if "embeddings_project.weight" in weights else None
    embedding = _embedding(weights, settings, mapped)
    if embedding is not None and embedding.tokens is not None:
        settings.match("embedding_size", embedding.tokens.shape[1])
    return _of_bert(weights, settings, embedding, heads=4)


def _of_bert(weights: Weights, settings: Settings, embedding: Embedding | None, heads: int = 12) -> Network:
    """A network with the layers of BERT; `heads` is the default of the reference."""
    settings.only("position_embedding_type", "absolute")
    count = settings.match("num_hidden_layers", weights.count(r"encoder\.layer\.(\d+)\."))
    layers = [_layer(weights, settings, f"encoder.layer.{number}.", _BERT, heads=heads) for number in range(count)]
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
    mapped = "encoder.embedding_hidden_mapping_in"
    embedding = _embedding(weights, settings, mapped)
    settings.match("embedding_size", weights.take(f"{mapped}.weight", None, None).shape[1])
    applied = settings.whole("num_hidden_layers", 12)
    group = r"encoder\.albert_layer_groups\.(\d+)\."
    groups = settings.match("num_hidden_groups", weights.count(group))
    inner = settings.match(
        "inner_group_num", weights.count(group.replace(r"(\d+)", r"\d+") + r"albert_layers\.(\d+)\.")
    )
    stacks = [
        [
            _layer(
                weights,
                settings,
                f"encoder.albert_layer_groups.{group}.albert_layers.{part}.",
                _ALBERT,
                "gelu_new",
                64,
            )
            for part in range(inner)
        ]
        for group in range(groups)
    ]
    layers = [layer for number in range(applied) for layer in stacks[number * groups // applied]]
    return Network(weights.family, tuple(layers), embedding)


def _embedding(weights: Weights, settings: Settings, mapped: str | None = None, first: int = 0) -> Embedding | None:
    """The embedding, None if the checkpoint holds the encoder alone; then `mapped`, positions from the `first` on."""
    if "embeddings.word_embeddings.weight" not in weights:
        return None
    tokens = weights.take("embeddings.word_embeddings.weight", None, None)
    e = tokens.shape[1]
    positions = weights.take("embeddings.position_embeddings.weight", None, e)
    for name, value in {"vocab_size": len(tokens), "max_position_embeddings": len(positions)}.items():
        settings.match(name, value)
    kinds = weights.find("embeddings.token_type_embeddings.weight", None, e)
    if kinds is not None and settings.match("type_vocab_size", len(kinds)) > 1:
        weights.notes.append("every token is of the first token type")
    weight, bias = (None, None) if mapped is None else weights.linear(mapped, None, e, True)
    return Embedding(
        tokens,
        positions[first:],
        None if kinds is None else kinds[0],
        _norm(weights, settings, "embeddings.LayerNorm", e),
        weight,
        bias,
    )


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> LayerNorm:
    return norm_named(weights, name, d, settings.number("layer_norm_eps", 1e-12))


def _layer(
    weights: Weights, settings: Settings, prefix: str, names: Mapping[str, str], usual: str = "gelu", heads: int = 12
) -> Layer:
    """A layer of these `names`; `usual` and `heads` are the defaults of the reference."""
    layer = layer_named(
        weights,
        prefix,
        names,
        heads=settings.whole("num_attention_heads", heads),
        eps=settings.number("layer_norm_eps", 1e-12),
        placement="post",
        activation=activation_named(settings.get("hidden_act", usual)),
    )
    settings.match("hidden_size", layer.d)
    settings.match("intermediate_size", len(layer.weight_in))
    return layer
