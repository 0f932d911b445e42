"""The encoders of BART, post-normalised, and of Whisper, pre-normalised, alone or within the whole network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.adapters.layer import Layer, activation_named
from models.adapters.named import layer_named, norm_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference, token_ids
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

ANCHOR = r"(?:encoder\.)?layers\.0\.self_attn\.q_proj\.weight"
WITHIN = r"(?:encoder\.)?layers\."
LAYERS = r"(?:encoder\.)?layers\.\d+"
EPS = 1e-5
"""Of every norm: it is no setting."""
FIRST = 2
"""Before the first position BART leaves out two."""
_NAMES = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "norm_1": "self_attn_layer_norm",
    "in": "fc1",
    "outward": "fc2",
    "norm_2": "final_layer_norm",
}
_DECODER = tuple(f"decoder_{name}" for name in ("layers", "ffn_dim", "attention_heads", "layerdrop"))
_SPECTROGRAM = (
    *("mask_time_prob", "mask_time_length", "mask_time_min_masks", "mask_feature_prob", "mask_feature_length"),
    *("mask_feature_min_masks", "apply_spec_augment", "num_mel_bins", "max_target_positions", "median_filter_width"),
    *("use_weighted_layer_sum", "classifier_proj_size", "num_hidden_layers", "scale_embedding"),
)


def of_text(model: Any, n: int) -> Tensor:
    """(1, n, d) what the encoder of a BART makes of `n` tokens.

    Parameters
    ----------
    model : nn.Module
        The whole network, or its encoder.
    n : int
        Number of tokens.
    """
    encoder = getattr(model, "encoder", model)
    result: Tensor = encoder(input_ids=token_ids(model, n)).last_hidden_state
    return result


def of_sound(model: Any, n: int) -> Tensor:
    """(1, N, d) what the encoder of a Whisper makes of a random spectrogram, whose length its settings say.

    Parameters
    ----------
    model : nn.Module
        The whole network, or its encoder.
    n : int
        Not used.
    """
    encoder, generator = getattr(model, "encoder", model), torch.Generator().manual_seed(0)
    size = 1, encoder.num_mel_bins, 2 * encoder.max_source_positions
    sound = torch.randn(size, generator=generator, dtype=torch.float64)
    result: Tensor = encoder(input_features=sound).last_hidden_state
    return result


@family(
    "bart",
    "BART, its encoder: post-LN, learned absolute positions at the input",
    route="ring",
    anchor=ANCHOR,
    within=WITHIN,
    model_types=("bart",),
    reference=Reference(LAYERS, of_text),
    harmless=("encoder_layerdrop", "num_hidden_layers", *_DECODER),
)
def bart(weights: Weights, settings: Settings) -> Network:
    """The encoder of a BART: encoder_attention_heads, activation_function, scale_embedding."""
    at, layers = _layers(weights, settings, 16, "post")
    embedding, d = None, layers[0].d
    tokens = weights.find("shared.weight" if "shared.weight" in weights else f"{at}embed_tokens.weight", None, d)
    if tokens is not None:
        positions = weights.take(f"{at}embed_positions.weight", None, d)[FIRST:]
        settings.match("vocab_size", len(tokens))
        settings.match("max_position_embeddings", len(positions))
        scale = np.sqrt(d) if settings.flag("scale_embedding", False) else 1.0
        embedding = Embedding(scale * tokens, positions, norm=norm_named(weights, f"{at}layernorm_embedding", d, EPS))
    return Network(weights.family, layers, embedding)


@family(
    "whisper",
    "Whisper, its encoder: pre-LN, absolute positions at the input",
    route="ring",
    anchor=ANCHOR,
    within=WITHIN,
    model_types=("whisper",),
    reference=Reference(LAYERS, of_sound),
    harmless=("encoder_layerdrop", *_DECODER, *_SPECTROGRAM),
)
def whisper(weights: Weights, settings: Settings) -> Network:
    """The encoder of a Whisper: encoder_attention_heads, activation_function."""
    at, layers = _layers(weights, settings, 6, "pre", ("key",))
    embedding, d = None, layers[0].d
    positions = weights.find(f"{at}embed_positions.weight", None, d)
    if positions is not None:
        settings.match("max_source_positions", len(positions))
        weights.notes.append("the state 'mean' leaves out the sound")
        embedding = Embedding(None, positions)
    final = norm_named(weights, f"{at}layer_norm", d, EPS) if f"{at}layer_norm.weight" in weights else None
    return Network(weights.family, layers, embedding, final)


def _layers(
    weights: Weights, settings: Settings, heads: int, placement: str, unbiased: tuple[str, ...] = ()
) -> tuple[str, tuple[Layer, ...]]:
    """(what stands before the names of an encoder, its layers); `heads` is the default of the reference."""
    at = "encoder." if weights.names(r"encoder\.layers\.") else ""
    heads = settings.whole("encoder_attention_heads", heads)
    act = activation_named(settings.get("activation_function", "gelu"))
    count = settings.match("encoder_layers", weights.count(r"(?:encoder\.)?layers\.(\d+)\."))
    layers = tuple(
        layer_named(
            weights,
            f"{at}layers.{number}.",
            _NAMES,
            heads=heads,
            eps=EPS,
            placement=placement,
            activation=act,
            unbiased=unbiased,
        )
        for number in range(count)
    )
    settings.match("d_model", layers[0].d)
    settings.match("encoder_ffn_dim", len(layers[0].weight_in))
    return at, layers
