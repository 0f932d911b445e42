"""Trained networks by family: from a checkpoint file, or from a state dict, to a Network."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dispersion.errors import ArgumentError
from models.adapters.bert import albert, bert
from models.adapters.encoder import encoder
from models.adapters.gpt2 import gpt2
from models.adapters.network import Network
from models.adapters.rotary import rotary
from models.adapters.vit import vit
from models.adapters.weights import read_config, read_tensors

FAMILIES: dict[str, Callable[[Mapping[str, torch.Tensor], Mapping[str, Any]], Network]] = {
    "bert": bert,
    "albert": albert,
    "gpt2": gpt2,
    "rotary": rotary,
    "encoder": encoder,
    "vit": vit,
}
"""What makes a Network of a state dict and its settings, by the name of the family."""


def load_network(
    path: str | os.PathLike[str], family: str, config: str | os.PathLike[str] | Mapping[str, Any] | None = None
) -> Network:
    """The network in the checkpoint file `path`, in float64; nothing is downloaded and no code of the file is run.

    path : a .safetensors file, or a state dict saved by torch. family : 'bert', 'albert', 'gpt2', 'rotary' (LLaMA and
    its kin), 'encoder' (nn.TransformerEncoder) or 'vit'. config : settings by the names of the reference
    implementation, or a JSON file of them; config.json beside the checkpoint by default.
    An ArgumentError says in one line what does not fit: the family, a missing, spare or misshapen tensor, a setting.
    """
    if family not in FAMILIES:
        raise ArgumentError("family", repr(family), ", ".join(FAMILIES))
    settings = config if isinstance(config, Mapping) else read_config(path, config)
    return FAMILIES[family](read_tensors(path), settings)


def network_from(tensors: Mapping[str, torch.Tensor], family: str, config: Mapping[str, Any]) -> Network:
    """The network of a `family` with the state dict `tensors` and the settings `config`, as in `load_network`."""
    if family not in FAMILIES:
        raise ArgumentError("family", repr(family), ", ".join(FAMILIES))
    return FAMILIES[family](tensors, config)
