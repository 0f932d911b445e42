"""Trained networks by family: from a checkpoint file, or from a state dict, to a Network."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dispersion.errors import ArgumentError, file_path, shown
from models.adapters.bert import albert, bert
from models.adapters.encoder import encoder
from models.adapters.gpt2 import gpt2
from models.adapters.network import Network
from models.adapters.rotary import rotary
from models.adapters.vit import vit
from models.adapters.weights import read_config, read_tensors

Family = Callable[[Mapping[str, torch.Tensor], Mapping[str, Any]], Network]
FAMILIES: dict[str, Family] = {
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
    path, make = file_path("path", path), _family(family)
    given = config if config is None or isinstance(config, Mapping) else file_path("config", config)
    settings = given if isinstance(given, Mapping) else read_config(path, given)
    return make(read_tensors(path), settings)


def network_from(tensors: Mapping[str, torch.Tensor], family: str, config: Mapping[str, Any]) -> Network:
    """The network of a `family` with the state dict `tensors` and the settings `config`, as in `load_network`."""
    _check("tensors", tensors, Mapping, "tensors by name")
    _check("config", config, Mapping, "settings by name")
    for name, tensor in tensors.items():
        _check("tensors", name, str, "tensors by name")
        _check(f"tensors[{name!r}]", tensor, torch.Tensor, "a tensor")
    return _family(family)(tensors, config)


def _family(family: object) -> Family:
    """What makes a Network of the `family` of this name."""
    if not isinstance(family, str) or family not in FAMILIES:
        raise ArgumentError("family", shown(family), ", ".join(FAMILIES))
    return FAMILIES[family]


def _check(argument: str, value: object, kind: Any, accepted: str) -> None:
    if not isinstance(value, kind):
        raise ArgumentError(argument, f"{type(value).__name__} {shown(value)}", accepted)
