"""Swin and BEiT: pre-normalised encoders of images with a bias for each offset in two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dispersion import LayerNorm
from dispersion.errors import ArgumentError, shown
from models.adapters.layer import Floats, Layer, activation_named
from models.adapters.named import PARTS, layer_named, norm_named
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference, of_pixels
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights
from models.adapters.window import WindowLayer

_NAMES = {
    "out": "attention.output.dense",
    "norm_1": "layernorm_before",
    "in": "intermediate.dense",
    "outward": "output.dense",
    "norm_2": "layernorm_after",
}
_SWIN = _NAMES | {part: f"attention.self.{part}" for part in PARTS[:3]}
_BEIT = _NAMES | {part: f"attention.attention.{part}" for part in PARTS[:3]}
_FIRST = "encoder.layers.0."
_OF_HEADS = (
    *("pool_scales", "use_auxiliary_head", "auxiliary_loss_weight", "auxiliary_channels", "auxiliary_num_convs"),
    *("auxiliary_concat_input", "semantic_loss_ignore_index", "add_fpn", "use_mean_pooling"),
)
_STAGES = ("out_features", "out_indices", "stage_names", "use_mask_token", "reshape_hidden_states")


def on_one_window(model: Any, n: int) -> Tensor:
    """(1, M², d) what the layers of a stage of a Swin make of random tokens on one window.

    Parameters
    ----------
    model : nn.Module
        The whole network, of which the first stage runs, or a stage.
    n : int
        Not used.
    """
    stage = model.encoder.layers[0] if hasattr(model, "encoder") else model
    size, generator = stage.config.window_size, torch.Generator().manual_seed(0)
    states = torch.randn(1, size**2, stage.dim, generator=generator, dtype=torch.float64)
    result: Tensor = stage(states, (size, size))[1]
    return result


@family(
    "swin",
    "Swin, a stage of it (the first, or one given alone) on one window: pre-LN, 2-D relative bias",
    route="kernel",
    anchor=r"(?:encoder\.layers\.0\.)?blocks\.0\.attention\.self\.query\.weight",
    within=r"(?:encoder\.layers\.0\.)?blocks\.",
    model_types=("swin",),
    reference=Reference(r"(?:encoder\.layers\.0\.)?blocks\.\d+", on_one_window),
    buffers=r"relative_position_index$",
    harmless=("encoder_stride", "num_layers", "use_absolute_embeddings", *_STAGES),
)
def swin(weights: Weights, settings: Settings) -> Network:
    """A stage of a Swin: window_size, depths, num_heads, hidden_act, layer_norm_eps, qkv_bias, mlp_ratio."""
    whole = bool(weights.names(r"encoder\.layers\.0\."))
    at, count = _FIRST if whole else "", weights.count(r"(?:encoder\.layers\.0\.)?blocks\.(\d+)\.")
    eps, size = settings.number("layer_norm_eps", 1e-5), settings.whole("window_size", 7)
    act = activation_named(settings.get("hidden_act", "gelu"))
    unbiased = () if settings.flag("qkv_bias", True) else PARTS[:3]
    layers = []
    for number in range(count):
        before = f"{at}blocks.{number}."
        table = weights.take(f"{before}attention.self.relative_position_bias_table", (2 * size - 1) ** 2, None)
        layer = _layer(weights, before, _SWIN, table.shape[1], eps, act, unbiased)
        layers.append(WindowLayer.of(layer, _square(table, size)))
    d, heads = layers[0].d, layers[0].heads
    for name, has in {"depths": count, "num_heads": heads}.items():
        said = settings.find(name)
        if isinstance(said, list | tuple) and has not in (said[:1] if whole else said):
            raise ArgumentError("config", f"{name} = {shown(said)}", f"{has} of the stage, as the weights have it")
    settings.number("mlp_ratio", 4.0)
    if whole:
        settings.match("embed_dim", d)
    else:
        settings.find("embed_dim")
    weights.notes.append("on one window, where nothing is shifted; what joins windows and merges patches is left out")
    bias = weights.find("embeddings.patch_embeddings.projection.bias", d) if whole else None
    embedding = None if bias is None else Embedding(shift=bias, norm=norm_named(weights, "embeddings.norm", d, 1e-5))
    return Network(weights.family, tuple(layers), embedding)


@family(
    "beit",
    "BEiT: pre-LN, LayerScale, 2-D relative bias among patches and a class token",
    route="kernel",
    anchor=r"encoder\.layer\.0\.attention\.attention\.query\.weight",
    within=r"encoder\.",
    model_types=("beit",),
    reference=Reference(r"encoder\.layer\.\d+", of_pixels),
    buffers=r"relative_position_index$",
    harmless=(*_OF_HEADS, *_STAGES),
)
def beit(weights: Weights, settings: Settings) -> Network:
    """A BEiT encoder: num_attention_heads, hidden_act, layer_norm_eps, layer_scale_init_value, use_*_position_bias.
    Its layers run with the class token; around the torus they are those of the patches alone.
    """
    heads, eps = settings.whole("num_attention_heads", 12), settings.number("layer_norm_eps", 1e-12)
    act = activation_named(settings.get("hidden_act", "gelu"))
    scaled = settings.number("layer_scale_init_value", 0.1) > 0
    names = _BEIT | ({"gain_1": "lambda_1", "gain_2": "lambda_2"} if scaled else {})
    own = settings.flag("use_relative_position_bias", False)
    shared = settings.flag("use_shared_relative_position_bias", False)
    count = settings.match("num_hidden_layers", weights.count(r"encoder\.layer\.(\d+)\."))
    layers: list[Layer] = []
    for number in range(count):
        at = f"encoder.layer.{number}."
        layer = _layer(weights, at, names, heads, eps, act, ("key",))
        places = [f"{at}attention.attention."] * own + ["encoder."] * shared
        if places:
            name = "relative_position_bias.relative_position_bias_table"
            table = np.sum([weights.take(place + name, None, heads) for place in places], axis=0)
            size = int(np.sqrt(max(len(table) - 3, 0))) // 2 + 1
            if (2 * size - 1) ** 2 != len(table) - 3:
                raise ArgumentError("checkpoint", f"a bias table of {len(table)} rows", "(2M − 1)² + 3, a square image")
            layer = WindowLayer.of(layer, _square(table[:-3], size), table[-3:].T)
        layers.append(layer)
    d = settings.match("hidden_size", layers[0].d)
    settings.match("intermediate_size", len(layers[0].weight_in))
    settings.flag("use_absolute_position_embeddings", False)
    bias = weights.find("embeddings.patch_embeddings.projection.bias", d)
    embedding = None
    if bias is not None:
        positions = weights.find("embeddings.position_embeddings", 1, None, d)
        weights.notes.append("the state 'mean' leaves out the class token and the image")
        embedding = Embedding(None, None if positions is None else positions[0][1:], bias)
    final: LayerNorm | None = None
    if "layernorm.weight" in weights:
        final = norm_named(weights, "layernorm", d, eps)
    return Network(weights.family, tuple(layers), embedding, final)


def _square(table: Floats, size: int) -> Floats:
    """(H, 2M−1, 2M−1) of a table with a row for each offset."""
    return table.T.reshape(-1, 2 * size - 1, 2 * size - 1)


def _layer(weights: Weights, at: str, names: Any, heads: int, eps: float, act: str, unbiased: Any) -> Layer:
    return layer_named(weights, at, names, heads=heads, eps=eps, placement="pre", activation=act, unbiased=unbiased)
