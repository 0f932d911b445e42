"""CLIP and SigLIP: their text and vision encoders, each a network of its own, pre-normalised."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from models.adapters.layer import activation_named
from models.adapters.named import layer_named, norm_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference, of_pixels, of_tokens
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

WITHIN = r"encoder\."
LAYERS = r"((text|vision)_model\.)?encoder\.layers\.\d+"
TEXT = r"(?<!vision_model\.)encoder\.layers\.0\.self_attn\.q_proj\.weight"
VISION = r"(?<!text_model\.)encoder\.layers\.0\.self_attn\.q_proj\.weight"
POOLED = ("projection_dim", "projection_size", "vision_use_head")
_NAMES = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "norm_1": "layer_norm1",
    "in": "mlp.fc1",
    "outward": "mlp.fc2",
    "norm_2": "layer_norm2",
}
_ACT, _EPS = {"clip": "quick_gelu", "siglip": "gelu_pytorch_tanh"}, {"clip": 1e-5, "siglip": 1e-6}


def of_causal_tokens(model: nn.Module, n: int) -> Tensor:
    """(1, n, d) what a text encoder makes of `n` tokens, its mask in float64 as its weights are.

    Parameters
    ----------
    model : nn.Module
        Of transformers.
    n : int
        Number of tokens.
    """
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # the mask is made in the default, with the least number of the weights'
    try:
        return of_tokens(model, n)
    finally:
        torch.set_default_dtype(usual)


@family(
    "clip_text",
    "CLIP, its text encoder: pre-LN, causal, learned absolute positions at the input",
    route="line",
    anchor=TEXT,
    within=WITHIN,
    model_types=("clip_text_model",),
    half=("clip", "text"),
    reference=Reference(LAYERS, of_causal_tokens),
    harmless=POOLED,
)
def clip_text(weights: Weights, settings: Settings) -> Network:
    """The text encoder of a CLIP: num_attention_heads, hidden_act, layer_norm_eps."""
    return _text(weights, settings, "clip", 8, True)


@family(
    "siglip_text",
    "SigLIP, its text encoder: pre-LN, learned absolute positions at the input",
    route="ring",
    anchor=TEXT,
    within=WITHIN,
    model_types=("siglip_text_model",),
    half=("siglip", "text"),
    reference=Reference(LAYERS, model="SiglipTextModel"),
    harmless=POOLED,
)
def siglip_text(weights: Weights, settings: Settings) -> Network:
    """The text encoder of a SigLIP: num_attention_heads, hidden_act, layer_norm_eps."""
    return _text(weights, settings, "siglip", 12, False)


@family(
    "clip_vision",
    "CLIP, its vision encoder: ViT with a norm before the first layer",
    route="ring",
    anchor=VISION,
    within=WITHIN,
    model_types=("clip_vision_model",),
    half=("clip", "vision"),
    reference=Reference(LAYERS, of_pixels),
    harmless=POOLED,
)
def clip_vision(weights: Weights, settings: Settings) -> Network:
    """The vision encoder of a CLIP: num_attention_heads, hidden_act, layer_norm_eps. The norm after its last layer is
    that of the class token alone.
    """
    layers, eps = _layers(weights, settings, "clip", 12, False)
    embedding, d = None, layers[0].d
    positions = weights.find("embeddings.position_embedding.weight", None, d)
    if positions is not None:
        weights.notes.append("the state 'mean' leaves out the class token and the image")
        embedding = Embedding(None, positions[1:], norm=norm_named(weights, "pre_layrnorm", d, eps))
    return Network(weights.family, layers, embedding)


@family(
    "siglip_vision",
    "SigLIP, its vision encoder: ViT without a class token",
    route="ring",
    anchor=VISION,
    within=WITHIN,
    model_types=("siglip_vision_model",),
    half=("siglip", "vision"),
    reference=Reference(LAYERS, of_pixels),
    harmless=POOLED,
)
def siglip_vision(weights: Weights, settings: Settings) -> Network:
    """The vision encoder of a SigLIP: num_attention_heads, hidden_act, layer_norm_eps."""
    layers, eps = _layers(weights, settings, "siglip", 12, False)
    embedding, d = None, layers[0].d
    positions = weights.find("embeddings.position_embedding.weight", None, d)
    if positions is not None:
        weights.notes.append("the state 'mean' leaves out the image")
        embedding = Embedding(None, positions, weights.find("embeddings.patch_embedding.bias", d))
    return Network(weights.family, layers, embedding, _final(weights, "post_layernorm", d, eps))


def _text(weights: Weights, settings: Settings, kind: str, heads: int, causal: bool) -> Network:
    layers, eps = _layers(weights, settings, kind, heads, causal)
    embedding, d = None, layers[0].d
    tokens = weights.find("embeddings.token_embedding.weight", None, d)
    if tokens is not None:
        positions = weights.take("embeddings.position_embedding.weight", None, d)
        settings.match("vocab_size", len(tokens))
        settings.match("max_position_embeddings", len(positions))
        embedding = Embedding(tokens, positions)
    return Network(weights.family, layers, embedding, _final(weights, "final_layer_norm", d, eps))


def _final(weights: Weights, name: str, d: int, eps: float) -> Any:
    return norm_named(weights, name, d, eps) if f"{name}.weight" in weights else None


def _layers(weights: Weights, settings: Settings, kind: str, heads: int, causal: bool) -> tuple[Any, float]:
    """(layers, eps); the defaults are those of the reference of this `kind`."""
    heads, eps = settings.whole("num_attention_heads", heads), settings.number("layer_norm_eps", _EPS[kind])
    act = activation_named(settings.get("hidden_act", _ACT[kind]))
    count = settings.match("num_hidden_layers", weights.count(r"encoder\.layers\.(\d+)\."))
    layers = tuple(
        layer_named(
            weights,
            f"encoder.layers.{number}.",
            _NAMES,
            heads=heads,
            eps=eps,
            placement="pre",
            activation=act,
            causal=causal,
        )
        for number in range(count)
    )
    settings.match("hidden_size", layers[0].d)
    settings.match("intermediate_size", len(layers[0].weight_in))
    return layers, eps
