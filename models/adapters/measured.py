"""Decoders and encoders whose layers are no Blocks: the reference's own are taken, which are measured and run.

GPT-NeoX, GPT-J and Phi have attention and feed-forward side by side, x + f(x) + g(x). Qwen3 has norms on queries and
keys, Gemma 2 norms after the branches as well and a tanh on the logits. DeBERTa's logits have the contents of one token
times the distance: around a homogeneous state they are a function of the lag, as with Shaw's relative keys, but one
that moves with the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from dispersion import ArgumentError, LayerNorm
from dispersion.errors import shown
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights


def frequencies(model: nn.Module) -> Mapping[str, Tensor]:
    """The frequencies of rotary encodings in float64, as transformers makes them within `lifted`.

    Parameters
    ----------
    model : nn.Module
        Of transformers.
    """
    made: dict[str, Tensor] = {}
    for name, part in model.named_modules():
        initial: Any = getattr(part, "rope_init_fn", None)
        if initial is not None:
            made[f"{name}.inv_freq"] = initial(part.config, None)[0]
    return made


@family(
    "gpt_neox",
    "GPT-NeoX, Pythia: branches side by side, rotary in part, causal",
    route="measured",
    anchor=r"layers\.0\.attention\.query_key_value\.weight",
    within=r"layers\.",
    model_types=("gpt_neox",),
    reference=Reference(r"layers\.\d+", tables=frequencies),
    boundary="causal",
)
def gpt_neox(weights: Weights, settings: Settings) -> Network:
    """A GPT-NeoX decoder, whose layers are those of the reference."""
    return Network(weights.family, ())


@family(
    "gptj",
    "GPT-J: branches side by side, rotary pairs interleaved, causal",
    route="measured",
    anchor=r"h\.0\.attn\.q_proj\.weight",
    within=r"h\.",
    model_types=("gptj",),
    reference=Reference(r"h\.\d+"),
    harmless=(
        "summary_type",
        "summary_use_proj",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
    ),
    boundary="causal",
)
def gptj(weights: Weights, settings: Settings) -> Network:
    """A GPT-J decoder, whose layers are those of the reference."""
    settings.only("rotary", True)
    settings.only("scale_attn_weights", True)
    return Network(weights.family, ())


@family(
    "phi",
    "Phi: branches side by side, rotary in part, causal",
    route="measured",
    anchor=r"layers\.0\.self_attn\.dense\.weight",
    within=r"layers\.",
    model_types=("phi",),
    reference=Reference(r"layers\.\d+", tables=frequencies),
    boundary="causal",
)
def phi(weights: Weights, settings: Settings) -> Network:
    """A Phi decoder, whose layers are those of the reference."""
    return Network(weights.family, ())


@family(
    "qwen3",
    "Qwen3: norms on queries and keys, rotary, causal, gated",
    route="measured",
    anchor=r"layers\.0\.self_attn\.q_norm\.weight",
    within=r"layers\.",
    model_types=("qwen3",),
    reference=Reference(r"layers\.\d+", tables=frequencies),
    boundary="causal",
)
def qwen3(weights: Weights, settings: Settings) -> Network:
    """A Qwen3 decoder, whose layers are those of the reference."""
    return Network(weights.family, ())


@family(
    "gemma2",
    "Gemma 2: norms before and after the branches, rotary, causal, gated, windows",
    route="measured",
    anchor=r"layers\.0\.pre_feedforward_layernorm\.weight",
    within=r"layers\.",
    model_types=("gemma2",),
    reference=Reference(r"layers\.\d+", tables=frequencies),
    harmless=("cache_implementation",),
    boundary="causal",
)
def gemma2(weights: Weights, settings: Settings) -> Network:
    """A Gemma 2 decoder, whose layers are those of the reference; its embedding is times √d."""
    tokens = weights.find("embed_tokens.weight", None, None)
    scaled = None if tokens is None else Embedding(np.sqrt(tokens.shape[1]) * tokens)
    return Network(weights.family, (), scaled)


@family(
    "deberta",
    "DeBERTa v2 and v3: post-LN, contents times distances in the logits",
    route="measured",
    anchor=r"encoder\.layer\.0\.attention\.self\.query_proj\.weight",
    within=r"encoder\.",
    model_types=("deberta-v2",),
    reference=Reference(r"encoder\.layer\.\d+"),
)
def deberta(weights: Weights, settings: Settings) -> Network:
    """A DeBERTa encoder, whose layers are those of the reference; layer_norm_eps, position_biased_input; what it reads
    beside its own settings: position_buckets, norm_rel_ebd, share_att_key, attention_head_size, embedding_size.

    A convolution beside the first layer is refused: it is none of them.
    """
    for name in ("position_buckets", "norm_rel_ebd", "share_att_key", "attention_head_size", "embedding_size"):
        settings.find(name)  # attributes that the reference looks for
    kernel = settings.find("conv_kernel_size")
    if kernel not in (None, 0):
        raise ArgumentError("config", f"conv_kernel_size = {shown(kernel)}", "a network without a convolution")
    tokens = weights.find("embeddings.word_embeddings.weight", None, None)
    if tokens is None:
        return Network(weights.family, ())
    e = tokens.shape[1]
    positions = None
    if settings.flag("position_biased_input", True):
        positions = weights.take("embeddings.position_embeddings.weight", None, e)
    kinds = weights.find("embeddings.token_type_embeddings.weight", None, e)
    name, eps = "embeddings.LayerNorm", settings.number("layer_norm_eps", 1e-7)
    mapped, d = weights.find("embeddings.embed_proj.weight", None, e), e
    tokens, positions, shift = (
        part if part is None or mapped is None else part @ mapped.T
        for part in (tokens, positions, None if kinds is None else kinds[0])
    )
    d = e if mapped is None else len(mapped)
    norm = LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)
    return Network(weights.family, (), Embedding(tokens, positions, shift, norm))
