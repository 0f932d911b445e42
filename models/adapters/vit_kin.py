"""DeiT, the encoder of ViT-MAE, and YOLOS: the layers of ViT with other tokens beside the patches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dispersion.errors import ArgumentError
from models.adapters.layer import activation_named
from models.adapters.named import PARTS, layer_named, norm_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference, of_pixels
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

ANCHOR = r"encoder\.layer\.0\.attention\.attention\.query\.weight"
WITHIN = r"encoder\."
LAYERS = r"encoder\.layer\.\d+"
_NAMES = {
    "query": "attention.attention.query",
    "key": "attention.attention.key",
    "value": "attention.attention.value",
    "out": "attention.output.dense",
    "norm_1": "layernorm_before",
    "in": "intermediate.dense",
    "outward": "output.dense",
    "norm_2": "layernorm_after",
}
_OF_DECODER = ("num_attention_heads", "hidden_size", "num_hidden_layers", "intermediate_size")
_OF_LOSSES = ("class_cost", "bbox_cost", "giou_cost", "bbox_loss_coefficient", "giou_loss_coefficient")


@family(
    "deit",
    "DeiT: ViT with a distillation token",
    route="ring",
    anchor=ANCHOR,
    within=WITHIN,
    model_types=("deit",),
    reference=Reference(LAYERS, of_pixels),
    harmless=("encoder_stride",),
)
def deit(weights: Weights, settings: Settings) -> Network:
    """A DeiT encoder: num_attention_heads, hidden_act, layer_norm_eps, qkv_bias."""
    return _network(weights, settings, slice(2, None), "the class and distillation tokens")


def all_patches(model: Any, n: int) -> Tensor:
    """(1, N, d) what a ViT-MAE makes of a random image, of which it masks the same patches every time.

    Parameters
    ----------
    model : nn.Module
        The whole network.
    n : int
        Not used.
    """
    patches = model.embeddings.patch_embeddings.num_patches
    return of_pixels(model, n, noise=torch.arange(patches, dtype=torch.float64)[None])


@family(
    "vit_mae",
    "ViT-MAE: its encoder, a ViT that sees some of the patches",
    route="ring",
    anchor=ANCHOR,
    within=WITHIN,
    model_types=("vit_mae",),
    reference=Reference(LAYERS, all_patches),
    harmless=("mask_ratio", "norm_pix_loss", *(f"decoder_{name}" for name in _OF_DECODER)),
)
def vit_mae(weights: Weights, settings: Settings) -> Network:
    """The encoder of a ViT-MAE: num_attention_heads, hidden_act, layer_norm_eps, qkv_bias."""
    return _network(weights, settings, slice(1, None), "the class token")


@family(
    "yolos",
    "YOLOS: ViT with detection tokens, positions at the input alone",
    route="ring",
    anchor=ANCHOR,
    within=WITHIN,
    model_types=("yolos",),
    reference=Reference(LAYERS, of_pixels),
    harmless=("auxiliary_loss", "eos_coefficient", *_OF_LOSSES),
)
def yolos(weights: Weights, settings: Settings) -> Network:
    """A YOLOS encoder: num_attention_heads, hidden_act, layer_norm_eps, qkv_bias, num_detection_tokens. One that adds
    positions between its layers too is refused: its layers do not follow each other.
    """
    if settings.flag("use_mid_position_embeddings", True):
        raise ArgumentError("config", "use_mid_position_embeddings = True", "False: positions at the input alone")
    count = settings.whole("num_detection_tokens", 100)
    return _network(weights, settings, slice(1, -count), "the class and detection tokens")


def _network(weights: Weights, settings: Settings, patches: slice, others: str) -> Network:
    """An encoder, the `patches` among its positions, and what its `others` are called."""
    heads, eps = settings.whole("num_attention_heads", 12), settings.number("layer_norm_eps", 1e-12)
    unbiased = () if settings.flag("qkv_bias", True) else PARTS[:3]
    act = activation_named(settings.get("hidden_act", "gelu"))
    count = settings.match("num_hidden_layers", weights.count(r"encoder\.layer\.(\d+)\."))
    layers = tuple(
        layer_named(
            weights,
            f"encoder.layer.{number}.",
            _NAMES,
            heads=heads,
            eps=eps,
            placement="pre",
            activation=act,
            unbiased=unbiased,
        )
        for number in range(count)
    )
    d = settings.match("hidden_size", layers[0].d)
    settings.match("intermediate_size", len(layers[0].weight_in))
    final = norm_named(weights, "layernorm", d, eps) if "layernorm.weight" in weights else None
    positions = weights.find("embeddings.position_embeddings", 1, None, d)
    embedding = None
    if positions is not None:
        weights.notes.append(f"the state 'mean' leaves out {others} and the image")
        bias = weights.find("embeddings.patch_embeddings.projection.bias", d)
        embedding = Embedding(None, positions[0][patches], bias)
    return Network(weights.family, layers, embedding, final)
