"""GPT-2: a pre-normalised causal decoder with learned absolute positions added to the input."""

from __future__ import annotations

import numpy as np

from dispersion import LayerNorm
from models.adapters.layer import Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights


@family(
    "gpt2",
    "GPT-2: pre-LN, causal, learned absolute positions at the input",
    route="line",
    anchor=r"h\.0\.attn\.c_attn\.weight",
    within=r"h\.",
    model_types=("gpt2",),
    reference=Reference(r"h\.\d+"),
    buffers=r"attn\.(bias|masked_bias)$",  # the causal mask, which some checkpoints hold
    harmless=(
        *("summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout", "summary_proj_to_labels"),
        *("n_ctx", "n_special", "predict_special_tokens"),
    ),
)
def gpt2(weights: Weights, settings: Settings) -> Network:
    """A GPT-2 decoder, whose linear maps are stored (in, out): n_head, activation_function, layer_norm_epsilon."""
    settings.only("scale_attn_weights", True)
    settings.only("scale_attn_by_inverse_layer_idx", False)
    settings.only("reorder_and_upcast_attn", False)
    embedding = None
    if "wte.weight" in weights:
        tokens = weights.take("wte.weight", None, None)
        positions = weights.take("wpe.weight", None, tokens.shape[1])
        settings.match("vocab_size", len(tokens))
        settings.match("n_positions", len(positions))
        embedding = Embedding(tokens, positions)
    count = settings.match("n_layer", weights.count(r"h\.(\d+)\."))
    layers = tuple(_layer(weights, settings, f"h.{number}.") for number in range(count))
    final = _norm(weights, settings, "ln_f", layers[0].d) if "ln_f.weight" in weights else None
    return Network(weights.family, layers, embedding, final)


def _norm(weights: Weights, settings: Settings, name: str, d: int) -> LayerNorm:
    eps = settings.number("layer_norm_epsilon", 1e-5)
    return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)


def _layer(weights: Weights, settings: Settings, prefix: str) -> Layer:
    d = weights.take(f"{prefix}attn.c_attn.weight", None, None).shape[0]
    m = weights.take(f"{prefix}mlp.c_fc.weight", d, None).shape[1]
    settings.match("n_embd", d)
    settings.match("n_inner", m)
    query, key, value = np.split(weights.take(f"{prefix}attn.c_attn.weight", d, 3 * d).T, 3)
    query_bias, key_bias, value_bias = np.split(weights.take(f"{prefix}attn.c_attn.bias", 3 * d), 3)
    return Layer(
        heads=settings.whole("n_head", 12),
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
