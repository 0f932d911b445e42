"""T5 encoders and MPNet: learned logits by bucket of the distance, of which J(q) on a ring is in closed form."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dispersion import LayerNorm, RMSNorm
from dispersion.block.encodings import T5
from models.adapters.layer import Floats, Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference, token_ids
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

FARTHEST = 1024
"""The largest distance at which buckets are compared."""


def run_encoder(model: Any, n: int) -> Tensor:
    """(1, n, d) what the encoder of a T5 makes of `n` tokens.

    Parameters
    ----------
    model : nn.Module
        With the encoder, and perhaps a decoder.
    n : int
        Number of tokens.
    """
    result: Tensor = model.encoder(input_ids=token_ids(model, n)).last_hidden_state
    return result


@family(
    "t5",
    "encoders of T5, mT5, UMT5: pre-RMSNorm, bucketed bias",
    route="kernel",
    anchor=r"encoder\.block\.0\.layer\.0\.SelfAttention\.q\.weight",
    within=r"encoder\.block\.",
    model_types=("t5", "mt5", "umt5"),
    reference=Reference(
        r"encoder\.block\.\d+",
        run_encoder,
        "AutoModelForTextEncoding",
        tokens=lambda config: min(config.relative_attention_max_distance, FARTHEST) + 2,
    ),
    harmless=("num_decoder_layers", "n_positions", "tokenizer_class", "scalable_attention"),
)
def t5(weights: Weights, settings: Settings) -> Network:
    """The encoder of a T5, whose queries are not scaled: num_heads, d_kv, feed_forward_proj, layer_norm_epsilon,
    relative_attention_num_buckets, relative_attention_max_distance. The bias is that of the first layer, in UMT5 each
    layer has its own.
    """
    count = settings.match("num_layers", weights.count(r"encoder\.block\.(\d+)\."))
    tokens = weights.find("shared.weight", None, None)
    if tokens is not None:
        settings.match("vocab_size", len(tokens))
    layers = tuple(_t5_layer(weights, settings, number) for number in range(count))
    if weights.names(r"decoder\."):
        weights.notes.append("the encoder alone: its decoder is left out")
    final = "encoder.final_layer_norm.weight"
    norm = _rms(weights, settings, final, layers[0].d) if final in weights else None
    return Network(weights.family, layers, None if tokens is None else Embedding(tokens), norm)


def _rms(weights: Weights, settings: Settings, name: str, d: int) -> RMSNorm:
    return RMSNorm(weights.take(name, d), None, settings.number("layer_norm_epsilon", 1e-6))


def _t5_layer(weights: Weights, settings: Settings, number: int) -> Layer:
    attention, rest = (f"encoder.block.{number}.layer.{part}." for part in (0, 1))
    heads, own = settings.whole("num_heads", 8), settings.find("model_type") == "umt5"
    width, d = weights.take(f"{attention}SelfAttention.q.weight", None, None).shape
    settings.match("d_model", d)
    settings.match("d_kv", width // heads)
    kind = str(
        settings.get("feed_forward_proj", "gated-gelu" if own or settings.find("model_type") == "mt5" else "relu")
    )
    gated, act = kind.startswith("gated-"), kind.removeprefix("gated-")
    dense = f"{rest}DenseReluDense."
    weight_in = weights.take(f"{dense}{'wi_1' if gated else 'wi'}.weight", None, d)
    m = settings.match("d_ff", len(weight_in))
    for derived, value in {"is_gated_act": gated, "dense_act_fn": "gelu_new" if kind == "gated-gelu" else act}.items():
        settings.only(derived, value)
    first = f"encoder.block.{number if own else 0}.layer.0.SelfAttention.relative_attention_bias.weight"
    buckets = settings.whole("relative_attention_num_buckets", 32)
    return Layer(
        heads=heads,
        query=weights.take(f"{attention}SelfAttention.q.weight", width, d),
        key=weights.take(f"{attention}SelfAttention.k.weight", width, d),
        value=weights.take(f"{attention}SelfAttention.v.weight", width, d),
        out=weights.take(f"{attention}SelfAttention.o.weight", d, width),
        attention_norm=_rms(weights, settings, f"{attention}layer_norm.weight", d),
        feedforward_norm=_rms(weights, settings, f"{rest}layer_norm.weight", d),
        placement="pre",
        weight_in=weight_in,
        weight_out=weights.take(f"{dense}wo.weight", d, m),
        activation=activation_named("gelu_new" if kind == "gated-gelu" else act),
        weight_gate=weights.take(f"{dense}wi_0.weight", m, d) if gated else None,
        encodings=_by_bucket(
            weights.take(first, buckets, heads), settings.whole("relative_attention_max_distance", 128)
        ),
        scale=1.0,
    )


def _by_bucket(table: Floats, distance: int) -> tuple[T5, ...]:
    """The encoding of each head, of a `table` (buckets, heads)."""
    return tuple(T5(logits, distance) for logits in table.T)


@family(
    "mpnet",
    "MPNet: post-LN, learned absolute positions at the input, bucketed bias",
    route="kernel",
    anchor=r"encoder\.layer\.0\.attention\.attn\.q\.weight",
    within=r"encoder\.",
    model_types=("mpnet",),
    reference=Reference(r"encoder\.layer\.\d+", tokens=lambda config: min(130, config.max_position_embeddings - 2)),
)
def mpnet(weights: Weights, settings: Settings) -> Network:
    """An MPNet encoder: num_attention_heads, hidden_act, layer_norm_eps, relative_attention_num_buckets, pad_token_id
    (its positions begin after it). All layers have one bias.
    """
    count = settings.match("num_hidden_layers", weights.count(r"encoder\.layer\.(\d+)\."))
    heads = settings.whole("num_attention_heads", 12)
    buckets = settings.whole("relative_attention_num_buckets", 32)
    table = weights.take("encoder.relative_attention_bias.weight", buckets, heads)
    layers = tuple(_mpnet_layer(weights, settings, f"encoder.layer.{number}.", table) for number in range(count))
    embedding = None
    if "embeddings.word_embeddings.weight" in weights:
        d, first = layers[0].d, 1 + settings.whole("pad_token_id", 1)
        tokens = weights.take("embeddings.word_embeddings.weight", None, d)
        positions = weights.take("embeddings.position_embeddings.weight", None, d)
        settings.match("vocab_size", len(tokens))
        settings.match("max_position_embeddings", len(positions))
        norm = _layer_norm(weights, settings, "embeddings.LayerNorm", d)
        embedding = Embedding(tokens, positions[first:], norm=norm)
    return Network(weights.family, layers, embedding)


def _layer_norm(weights: Weights, settings: Settings, name: str, d: int) -> LayerNorm:
    eps = settings.number("layer_norm_eps", 1e-12)
    return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)


def _mpnet_layer(weights: Weights, settings: Settings, prefix: str, table: Floats) -> Layer:
    d = settings.match("hidden_size", weights.take(f"{prefix}attention.attn.q.weight", None, None).shape[1])
    (query, query_bias), (key, key_bias), (value, value_bias), (out, out_bias) = (
        weights.linear(f"{prefix}attention.attn.{part}", d, d, True) for part in "qkvo"
    )
    weight_in, bias_in = weights.linear(f"{prefix}intermediate.dense", None, d, True)
    m = settings.match("intermediate_size", len(weight_in))
    weight_out, bias_out = weights.linear(f"{prefix}output.dense", d, m, True)
    return Layer(
        heads=table.shape[1],
        query=query,
        key=key,
        value=value,
        out=out,
        attention_norm=_layer_norm(weights, settings, f"{prefix}attention.LayerNorm", d),
        feedforward_norm=_layer_norm(weights, settings, f"{prefix}output.LayerNorm", d),
        placement="post",
        weight_in=weight_in,
        weight_out=weight_out,
        activation=activation_named(settings.get("hidden_act", "gelu")),
        query_bias=query_bias,
        key_bias=key_bias,
        value_bias=value_bias,
        out_bias=out_bias,
        bias_in=bias_in,
        bias_out=bias_out,
        encodings=_by_bucket(table, 128),
    )
