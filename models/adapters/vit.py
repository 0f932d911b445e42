"""Vision Transformers: pre-normalised encoders in the layouts of timm and transformers (ViT and DINOv2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dispersion import LayerNorm
from models.adapters.layer import Floats, Layer, activation_named, activation_of, scaled
from models.adapters.network import Embedding, Network
from models.adapters.reference import Reference, of_pixels
from models.adapters.registry import family
from models.adapters.settings import Settings
from models.adapters.weights import Weights

_TIMM = {
    "layer": "blocks",
    "out": "attn.proj",
    "norm_1": "norm1",
    "norm_2": "norm2",
    "in": "mlp.fc1",
    "outward": "mlp.fc2",
    "scale_1": "ls1.gamma",
    "scale_2": "ls2.gamma",
    "final": "norm",
    "positions": "pos_embed",
    "patch": "patch_embed.proj.bias",
}
_VIT = {
    "layer": "encoder.layer",
    "out": "attention.output.dense",
    "norm_1": "layernorm_before",
    "norm_2": "layernorm_after",
    "in": "intermediate.dense",
    "outward": "output.dense",
    "scale_1": "",
    "scale_2": "",
    "final": "layernorm",
    "positions": "embeddings.position_embeddings",
    "patch": "embeddings.patch_embeddings.projection.bias",
}
_DINO = _VIT | {
    "norm_1": "norm1",
    "norm_2": "norm2",
    "in": "mlp.fc1",
    "outward": "mlp.fc2",
    "scale_1": "layer_scale1.lambda1",
    "scale_2": "layer_scale2.lambda1",
}


def run(model: Any, n: int) -> Tensor:
    """(1, N, d) what a ViT of transformers or timm makes of a random image, whose size says N.

    Parameters
    ----------
    model : nn.Module
        The whole network.
    n : int
        Not used.
    """
    if not hasattr(model, "forward_features"):
        return of_pixels(model, n)
    patches = model.patch_embed
    size = (1, patches.proj.in_channels, *patches.img_size)
    image = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result: Tensor = model.forward_features(image)
    return result


def described(module: Any) -> dict[str, Any] | None:
    """The settings of a VisionTransformer of timm, as its first block has them; None for other modules.

    Parameters
    ----------
    module : nn.Module
        Any.
    """
    if not (type(module).__module__.startswith("timm.") and hasattr(module, "forward_features")):
        return None
    block: Any = next(iter(getattr(module, "blocks", ())), None)
    if not all(hasattr(block, part) for part in ("attn", "mlp", "norm1")):
        return None
    return {
        "num_heads": block.attn.num_heads,
        "hidden_act": activation_of(block.mlp.act),
        "layer_norm_eps": block.norm1.eps,
        "block_fn": type(block).__name__,
    }


@family(
    "vit",
    "ViT and DINOv2 in the layouts of transformers and timm: pre-LN, LayerScale",
    route="ring",
    anchor=r"(encoder\.layer\.0\.attention\.attention\.query|blocks\.0\.attn\.qkv)\.weight",
    within=r"(encoder\.layer|blocks)\.",
    model_types=("vit", "dinov2"),
    reference=Reference(r"(encoder\.layer|blocks)\.\d+", run),
    described=described,
    buffers=r"relative_position_index$",
    harmless=(
        *("encoder_stride", "qkv_bias", "layerscale_value", "mlp_ratio", "stage_names", "out_features", "out_indices"),
        *("apply_layernorm", "reshape_hidden_states", "use_mask_token"),
    ),
)
def vit(weights: Weights, settings: Settings) -> Network:
    """A ViT encoder, LayerScale if it has it: num_attention_heads (num_heads in timm), hidden_act, layer_norm_eps, and
    block_fn in timm. The base state 'mean' is the bias of the patch map at the mean position.
    """
    timm = bool(weights.names(r"blocks\.0\."))
    names = _TIMM if timm else _DINO if "encoder.layer.0.mlp.fc1.weight" in weights else _VIT
    if timm:  # the same names are in blocks whose norms stand elsewhere
        settings.get("block_fn")
        settings.only("block_fn", "Block")
    settings.only("use_swiglu_ffn", False)
    eps = settings.number("layer_norm_eps", 1e-12 if names is _VIT else 1e-6)
    heads = settings.whole("num_heads") if timm else settings.whole("num_attention_heads", 12)
    count = settings.match("num_hidden_layers", weights.count(rf"{re.escape(names['layer'])}\.(\d+)\."))
    layers = tuple(
        _layer(weights, settings, f"{names['layer']}.{number}.", names, eps, heads) for number in range(count)
    )
    final = _norm(weights, names["final"], layers[0].d, eps) if f"{names['final']}.weight" in weights else None
    return Network(weights.family, layers, _embedding(weights, names, layers[0].d), final)


def _embedding(weights: Weights, names: Mapping[str, str], d: int) -> Embedding | None:
    positions = weights.find(names["positions"], 1, None, d)
    if positions is None:
        return None
    weights.notes.append("the state 'mean' leaves out the class token and the image")
    grid = positions[0]
    extra = len(grid) - int(np.sqrt(len(grid))) ** 2  # the class token stands first
    return Embedding(None, grid[extra:], weights.find(names["patch"], d))


def _norm(weights: Weights, name: str, d: int, eps: float) -> LayerNorm:
    return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)


def _layer(
    weights: Weights, settings: Settings, prefix: str, names: Mapping[str, str], eps: float, heads: int
) -> Layer:
    d = weights.take(f"{prefix}{names['out']}.weight", None, None).shape[0]
    m = weights.take(f"{prefix}{names['in']}.weight", None, d).shape[0]
    settings.match("hidden_size", d)
    if names is _VIT:
        settings.match("intermediate_size", m)
    if names is _TIMM:
        query, key, value = np.split(weights.take(f"{prefix}attn.qkv.weight", 3 * d, d), 3)
        bias = weights.find(f"{prefix}attn.qkv.bias", 3 * d)
        biases: list[Floats | None] = [None] * 3 if bias is None else list(np.split(bias, 3))
    else:
        parts = [f"{prefix}attention.attention.{part}" for part in ("query", "key", "value")]
        query, key, value = (weights.take(f"{part}.weight", d, d) for part in parts)
        biases = [weights.find(f"{part}.bias", d) for part in parts]

    def mapped(branch: str, scale: str, columns: int) -> tuple[Floats, Floats | None]:
        name = prefix + names[branch]
        gamma = weights.find(prefix + names[scale], d) if names[scale] else None
        return scaled(gamma, weights.take(f"{name}.weight", d, columns), weights.take(f"{name}.bias", d))

    out, out_bias = mapped("out", "scale_1", d)
    weight_out, bias_out = mapped("outward", "scale_2", m)
    return Layer(
        heads=heads,
        query=query,
        key=key,
        value=value,
        out=out,
        attention_norm=_norm(weights, prefix + names["norm_1"], d, eps),
        feedforward_norm=_norm(weights, prefix + names["norm_2"], d, eps),
        placement="pre",
        weight_in=weights.take(f"{prefix}{names['in']}.weight", m, d),
        weight_out=weight_out,
        activation=activation_named(settings.get("hidden_act", "gelu")),
        query_bias=biases[0],
        key_bias=biases[1],
        value_bias=biases[2],
        out_bias=out_bias,
        bias_in=weights.take(f"{prefix}{names['in']}.bias", m),
        bias_out=bias_out,
    )
