"""ModernBERT: a pre-normalised rotary encoder, gated, most of whose layers see a window of tokens on either side."""

from __future__ import annotations

import numpy as np

from dispersion import LayerNorm
from dispersion.block.encodings import Swin
from dispersion.errors import real_number
from models.adapters.layer import Layer, activation_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

FARTHEST = 1024
"""The largest window that is compared."""


@family(
    "modernbert",
    "ModernBERT: pre-LN, rotary, gated, layers with a window and without",
    route="line",
    anchor=r"layers\.0\.attn\.Wqkv\.weight",
    within=r"layers\.",
    model_types=("modernbert",),
    reference=Reference(
        r"layers\.\d+",
        tokens=lambda config: min(config.local_attention // 2 + 2, config.max_position_embeddings, FARTHEST),
    ),
    buffers=r"rotary_emb\.inv_freq$",
    harmless=(
        *("mlp_dropout", "decoder_bias", "classifier_pooling", "classifier_bias", "deterministic_flash_attn"),
        *("sparse_prediction", "sparse_pred_ignore_index", "reference_compile", "repad_logits_with_grad"),
        *("position_embedding_type",),
    ),
)
def modernbert(weights: Weights, settings: Settings) -> Network:
    """A ModernBERT encoder: num_attention_heads, hidden_activation, norm_eps, norm_bias, attention_bias, mlp_bias,
    global_attn_every_n_layers, local_attention (both sides together), global_rope_theta, local_rope_theta.
    """
    settings.only("rope_scaling")
    count = settings.match("num_hidden_layers", weights.count(r"layers\.(\d+)\."))
    heads, eps = settings.whole("num_attention_heads", 12), settings.number("norm_eps", 1e-5)
    activation = activation_named(settings.get("hidden_activation", "gelu"))
    shifted, biased = settings.flag("norm_bias", False), settings.flag("attention_bias", False)
    dense = settings.flag("mlp_bias", False)
    every, window = settings.whole("global_attn_every_n_layers", 3), settings.whole("local_attention", 128) // 2
    far = real_number("global_rope_theta", settings.number("global_rope_theta", 160000.0), positive=True)
    near = real_number("local_rope_theta", settings.number("local_rope_theta", 10000.0), positive=True)
    inside = Swin(np.zeros(2 * window + 1))

    def norm(name: str, d: int) -> LayerNorm:
        return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d) if shifted else None, eps)

    def layer(number: int) -> Layer:
        at, local = f"layers.{number}", number % every > 0
        joint, bias = weights.linear(f"{at}.attn.Wqkv", None, None, biased)
        d = settings.match("hidden_size", joint.shape[1])
        query, key, value = joint.reshape(3, d, d)
        query_bias, key_bias, value_bias = [None] * 3 if bias is None else bias.reshape(3, d)
        out, out_bias = weights.linear(f"{at}.attn.Wo", d, d, biased)
        gate, weight_in = np.split(weights.take(f"{at}.mlp.Wi.weight", None, d), 2)
        m = settings.match("intermediate_size", len(weight_in))
        bias_gate, bias_in = np.split(weights.take(f"{at}.mlp.Wi.bias", 2 * m), 2) if dense else (None, None)
        weight_out, bias_out = weights.linear(f"{at}.mlp.Wo", d, m, dense)
        size = d // heads
        return Layer(
            heads=heads,
            query=query,
            key=key,
            value=value,
            out=out,
            attention_norm=norm(f"{at}.attn_norm", d) if number else None,  # the embedding has a norm already
            feedforward_norm=norm(f"{at}.mlp_norm", d),
            placement="pre",
            weight_in=weight_in,
            weight_out=weight_out,
            activation=activation,
            query_bias=query_bias,
            key_bias=key_bias,
            value_bias=value_bias,
            out_bias=out_bias,
            bias_in=bias_in,
            bias_out=bias_out,
            weight_gate=gate,
            bias_gate=bias_gate,
            frequencies=(near if local else far) ** (-2 * np.arange(size // 2) / size),
            encodings=(inside,) * heads if local else None,
        )

    layers = tuple(layer(number) for number in range(count))
    embedding, d = None, layers[0].d
    if "embeddings.tok_embeddings.weight" in weights:
        tokens = weights.take("embeddings.tok_embeddings.weight", None, d)
        settings.match("vocab_size", len(tokens))
        embedding = Embedding(tokens, norm=norm("embeddings.norm", d))
    return Network(weights.family, layers, embedding, norm("final_norm", d) if "final_norm.weight" in weights else None)
