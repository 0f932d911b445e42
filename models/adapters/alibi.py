"""BLOOM and MPT: pre-normalised decoders whose logits fall with the distance, ALiBi, each head at its own slope.

They are causal, and stand on a line; with `is_causal` false in a config of one's own they see both sides, as encoders
with ALiBi do, and J(q) on a ring is in closed form.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from dispersion import ArgumentError, LayerNorm, alibi_slopes
from dispersion.block.encodings import Alibi
from dispersion.errors import shown
from models.adapters.layer import Floats, Layer
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference, of_tokens
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

GELU = 0.79788456 / np.sqrt(2 / np.pi)
"""BLOOM's tanh form of GELU has √(2/π) to 8 digits: a factor of what goes in and comes out, up to 4·10⁻¹¹."""


def run_in_float64(model: nn.Module, n: int) -> Tensor:
    """(1, n, d) what a model makes of `n` tokens whose mask is of the default type, which has to hold what it holds.

    Parameters
    ----------
    model : nn.Module
        Of transformers, in float64.
    n : int
        Number of tokens.
    """
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return of_tokens(model, n)
    finally:
        torch.set_default_dtype(usual)


@family(
    "bloom",
    "BLOOM: pre-LN, causal, ALiBi",
    route="line",
    anchor=r"h\.0\.self_attention\.query_key_value\.weight",
    within=r"h\.",
    model_types=("bloom",),
    reference=Reference(r"h\.\d+"),
    harmless=(
        *("pretraining_tp", "attention_softmax_in_fp32", "masked_softmax_fusion", "bias_dropout_fusion"),
        *("skip_bias_add", "skip_bias_add_qkv", "offset_alibi", "seq_length", "n_embed"),
    ),
)
def bloom(weights: Weights, settings: Settings) -> Network:
    """A BLOOM decoder, whose queries, keys and values lie beside each other head by head: n_head or
    num_attention_heads, layer_norm_epsilon, is_causal.
    """
    settings.only("apply_residual_connection_post_layernorm", False)
    settings.only("slow_but_exact", False)
    count = settings.match("n_layer", weights.count(r"h\.(\d+)\."))
    settings.match("num_hidden_layers", count)
    both = [name for name in ("n_head", "num_attention_heads") if settings.find(name) is not None]
    heads = settings.whole(both[0] if both else "n_head", 8)
    settings.match(both[-1] if both else "n_head", heads)
    eps, causal = settings.number("layer_norm_epsilon", 1e-5), settings.flag("is_causal", True)
    encodings = _by_slope(alibi_slopes(heads), causal)

    def norm(name: str, d: int) -> LayerNorm:
        return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)

    def layer(at: str) -> Layer:
        joint = weights.take(f"{at}.self_attention.query_key_value.weight", None, None)
        d = settings.match("hidden_size", joint.shape[1])
        if len(joint) != 3 * d or d % heads:
            raise ArgumentError("config", f"{heads} heads for a map to {len(joint)} features", f"a divisor of {d}")
        query, key, value = joint.reshape(heads, 3, -1, d).swapaxes(0, 1).reshape(3, d, d)
        bias = weights.take(f"{at}.self_attention.query_key_value.bias", 3 * d)
        query_bias, key_bias, value_bias = bias.reshape(heads, 3, -1).swapaxes(0, 1).reshape(3, d)
        out, out_bias = weights.linear(f"{at}.self_attention.dense", d, d, True)
        weight_in = weights.take(f"{at}.mlp.dense_h_to_4h.weight", 4 * d, d)
        weight_out, bias_out = weights.linear(f"{at}.mlp.dense_4h_to_h", d, 4 * d, True)
        return Layer(
            heads=heads,
            query=query,
            key=key,
            value=value,
            out=out,
            attention_norm=norm(f"{at}.input_layernorm", d),
            feedforward_norm=norm(f"{at}.post_attention_layernorm", d),
            placement="pre",
            weight_in=GELU * weight_in,
            weight_out=weight_out / GELU,
            activation="gelu_tanh",
            query_bias=query_bias,
            key_bias=key_bias,
            value_bias=value_bias,
            out_bias=out_bias,
            bias_in=GELU * weights.take(f"{at}.mlp.dense_h_to_4h.bias", 4 * d),
            bias_out=bias_out,
            causal=causal,
            encodings=encodings,
        )

    layers = tuple(layer(f"h.{number}") for number in range(count))
    embedding, final = None, None
    if "word_embeddings.weight" in weights:
        tokens = weights.take("word_embeddings.weight", None, layers[0].d)
        settings.match("vocab_size", len(tokens))
        embedding = Embedding(tokens, norm=norm("word_embeddings_layernorm", layers[0].d))
    if "ln_f.weight" in weights:
        final = norm("ln_f", layers[0].d)
    return Network(weights.family, layers, embedding, final)


@family(
    "mpt",
    "MPT: pre-LN, causal, ALiBi",
    route="line",
    anchor=r"blocks\.0\.attn\.Wqkv\.weight",
    within=r"blocks\.",
    model_types=("mpt",),
    reference=Reference(r"blocks\.\d+", run_in_float64),
    harmless=(
        *("d_model", "n_layers", "max_seq_len", "emb_pdrop", "init_device", "logit_scale", "verbose"),
        *("embedding_fraction", "learned_pos_emb", "init_config", "tokenizer_name"),
    ),
)
def mpt(weights: Weights, settings: Settings) -> Network:
    """An MPT decoder, without biases: n_heads, layer_norm_epsilon, attn_config with softmax_scale and alibi_bias_max,
    is_causal.
    """
    settings.only("no_bias", True)
    settings.only("expansion_ratio", 4)
    settings.only("norm_type", "low_precision_layernorm", "layernorm")
    count = settings.match("n_layers", weights.count(r"blocks\.(\d+)\."))
    heads, eps = settings.whole("n_heads", 16), settings.number("layer_norm_epsilon", 1e-5)
    causal = settings.flag("is_causal", True)
    inside = settings.find("attn_config") or {}
    if not isinstance(inside, Mapping):
        raise ArgumentError("config", f"attn_config = {shown(inside)}", "a JSON object")
    attention = Settings({**inside, "model_type": "mpt"} if settings.typed else inside)
    for name, usual in {"qk_ln": False, "prefix_lm": False, "alibi": True, "attn_uses_sequence_id": False}.items():
        attention.only(name, usual)
    attention.only("attn_type", "multihead_attention")
    attention.only("clip_qkv")
    scale = None if attention.find("softmax_scale") is None else attention.number("softmax_scale")
    encodings = _by_slope(mpt_slopes(heads, attention.number("alibi_bias_max", 8)), causal)
    attention.finish("attn_config", ("attn_impl", "attn_pdrop"))

    def norm(name: str, d: int) -> LayerNorm:
        return LayerNorm(weights.take(f"{name}.weight", d), None, eps)

    def layer(at: str) -> Layer:
        joint = weights.take(f"{at}.attn.Wqkv.weight", None, None)
        d = settings.match("d_model", joint.shape[1])
        query, key, value = np.split(weights.take(f"{at}.attn.Wqkv.weight", 3 * d, d), 3)
        return Layer(
            heads=heads,
            query=query,
            key=key,
            value=value,
            out=weights.take(f"{at}.attn.out_proj.weight", d, d),
            attention_norm=norm(f"{at}.norm_1", d),
            feedforward_norm=norm(f"{at}.norm_2", d),
            placement="pre",
            weight_in=weights.take(f"{at}.ffn.up_proj.weight", 4 * d, d),
            weight_out=weights.take(f"{at}.ffn.down_proj.weight", d, 4 * d),
            activation="gelu",
            causal=causal,
            encodings=encodings,
            scale=scale,
        )

    layers = tuple(layer(f"blocks.{number}") for number in range(count))
    embedding = None
    if "wte.weight" in weights:
        tokens = weights.take("wte.weight", None, layers[0].d)
        settings.match("vocab_size", len(tokens))
        embedding = Embedding(tokens)
    return Network(
        weights.family, layers, embedding, norm("norm_f", layers[0].d) if "norm_f.weight" in weights else None
    )


def mpt_slopes(heads: int, most: float) -> Floats:
    """(heads,) 2^{−hb/P}, h = 1 … P, for the power of two P ≥ H and b = `most`; if P > H those of even h come first.

    Parameters
    ----------
    heads : int
        H.
    most : float
        b, the exponent of the last of P heads, 8 in MPT.
    """
    power = 1 << (heads - 1).bit_length()
    slopes = np.exp2(-np.arange(1, power + 1) * (most / power))
    return slopes if power == heads else np.concatenate([slopes[1::2], slopes[::2]])[:heads]


def _by_slope(slopes: Floats, causal: bool) -> tuple[Alibi, ...]:
    return tuple(Alibi(float(slope), causal) for slope in slopes)
