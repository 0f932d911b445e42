"""Trained networks by family: from a checkpoint file or folder, a state dict, or a module in memory, to a Network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dispersion.errors import ArgumentError, file_path, shown
from models.adapters.comparison import Difference
from models.adapters.judge import Judge
from models.adapters.network import Network
from models.adapters.reference import Reference, Run, of_tokens
from models.adapters.registry import Family, families, family_named, family_of
from models.adapters.settings import CONFIG, Settings, beside, read_config
from models.adapters.weights import Weights, files_in, read_tensors


def load_network(
    path: str | os.PathLike[str],
    family: str | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> Network:
    """The network in the checkpoint `path`, in float64; nothing is downloaded and no code of the file is run.

    path : a .safetensors file, a state dict saved by torch, or a folder of save_pretrained. family : the name of one of
    `registry.families()`; by default the one that has the model_type of the settings. config : settings by the names of
    the reference implementation, or a JSON file of them; config.json beside the checkpoint by default.
    An ArgumentError says in one line what does not fit: the family, a missing, spare or misshapen tensor, a setting.
    """
    path = file_path("path", path)
    chosen = None if family is None else family_named(family)
    if path.is_dir():
        files_in(path)
    given = config if config is None or isinstance(config, Mapping) else file_path("config", config)
    try:
        settings = given if isinstance(given, Mapping) else read_config(path, given)
        chosen = family_of(settings) if chosen is None else chosen
        weights, told = chosen.open(read_tensors(path), settings)
        return _judged(chosen, weights, told)
    except ArgumentError as error:
        if config is None and error.argument == "config" and beside(path).is_file():
            raise ArgumentError(CONFIG, error.got, error.accepted) from None
        raise


def network_from(tensors: Mapping[str, torch.Tensor], family: str | None, config: Mapping[str, Any]) -> Network:
    """The network of a `family` with the state dict `tensors` and the settings `config`, as in `load_network`."""
    _check("tensors", tensors, Mapping, "tensors by name")
    _check("config", config, Mapping, "settings by name")
    for name, tensor in tensors.items():
        _check("tensors", name, str, "tensors by name")
        _check(f"tensors[{name!r}]", tensor, torch.Tensor, "a tensor")
    chosen = family_of(config) if family is None else family_named(family)
    return _judged(chosen, *chosen.open(tensors, config))


def from_module(module: nn.Module) -> Network:
    """The Network of a module in memory: a model of transformers, an nn.TransformerEncoder or a layer of it.

    Parameters
    ----------
    module : nn.Module
        Of one of the families; its settings are read from it.

    Returns
    -------
    Network
        In float64.

    Raises
    ------
    ArgumentError
        Names what is not of a known family, and what in it would change the map.
    """
    module = _plain(module)
    chosen, tensors, config = _read(module)
    return _judged(chosen, *chosen.open(tensors, config), module)


def is_known(module: nn.Module) -> bool:
    """Whether `from_module` has a family for a module in memory.

    Parameters
    ----------
    module : nn.Module
        Any.
    """
    module = _plain(module)
    kinds = {kind for known in families().values() for kind in known.model_types}
    described = (known.described for known in families().values() if known.described is not None)
    return _config(module).get("model_type") in kinds or any(one(module) is not None for one in described)


def _read(module: nn.Module) -> tuple[Family, Mapping[str, torch.Tensor], Mapping[str, Any]]:
    """The family, the state dict and the settings of a module in memory."""
    _check("module", module, nn.Module, "a module of a known family")
    tensors = {name: tensor.cpu() for name, tensor in module.state_dict().items()}
    settings = _config(module)
    if settings.get("model_type") is not None:
        return family_of(settings), tensors, settings
    for known in families().values():
        described = None if known.described is None else known.described(module)
        if described is not None:
            return known, tensors, described
    accepted = f"a model of transformers, or nn.TransformerEncoder; families: {', '.join(families())}"
    raise ArgumentError("module", type(module).__name__, accepted)


def own_layers(module: nn.Module, layers: str, boundary: str = "open", run: Run = of_tokens) -> Network:
    """The Network of a module in memory of any kind, whose layers are its own, as its forward pass calls them.

    Parameters
    ----------
    module : nn.Module
        That can be copied, and computes in float64 when its weights are.
    layers : str
        A regular expression for the names of the modules that are its layers, maps of hidden states.
    boundary : {'periodic', 'open', 'causal'}
        The ends of its tokens.
    run : callable
        Runs the module on n tokens; by default on tokens, as text models of transformers are run.

    Returns
    -------
    Network
        Without Blocks: its layers are measured, and run on a line. It has an embedding if that is all that tokens go
        through before the first layer.
    """
    _check("module", module, nn.Module, "a module")
    module = _plain(module)
    kind = type(module).__name__
    family = Family(kind, "", "measured", "", "", _no_layers, reference=Reference(layers, run), boundary=boundary)
    judge = Judge(family, Weights({}, kind), Settings({}), module)
    return judge.itself(Network(kind, ()))


def _no_layers(weights: Weights, settings: Settings) -> Network:
    return Network(weights.family, ())


def first_difference(module: nn.Module) -> Difference | None:
    """The first layer, and the part of it, in which a module in memory is another map than as rebuilt; None if in none.

    Parameters
    ----------
    module : nn.Module
        As in `from_module`.

    Returns
    -------
    Difference or None
        For whoever writes an adapter.
    """
    module = _plain(module)
    chosen, tensors, config = _read(module)
    weights, settings = chosen.open(tensors, config)
    network = chosen.network(weights, settings)
    return Judge(chosen, weights, settings, module).first(network)


def _plain(module: nn.Module) -> nn.Module:
    """`module` as it is without torch.compile."""
    found: nn.Module = getattr(module, "_orig_mod", module)
    return found


def _config(module: nn.Module) -> Mapping[str, Any]:
    """The settings that a module in memory carries, {} if it carries none."""
    config: Any = getattr(module, "config", None)
    found = config.to_dict() if hasattr(config, "to_dict") else config
    return found if isinstance(found, Mapping) else {}


def _judged(family: Family, weights: Weights, settings: Settings, module: nn.Module | None = None) -> Network:
    """The network as `family` rebuilds it, compared with its reference where there is one."""
    network = family.network(weights, settings)
    weights.let_go()
    reference = family.reference
    if family.route == "measured":
        if module is None and not (reference is not None and reference.installed):
            accepted = f"the reference implementation: pip install {reference.package if reference else family.name}"
            raise ArgumentError("family", f"{family.name}, whose layers are no Blocks", accepted)
        return Judge(family, weights, settings, module).itself(network)
    if reference is None or (module is None and not (settings.typed and reference.installed)):
        return network
    return replace(network, comparison=Judge(family, weights, settings, module).compared(network))


def _check(argument: str, value: object, kind: Any, accepted: str) -> None:
    if not isinstance(value, kind):
        raise ArgumentError(argument, f"{type(value).__name__} {shown(value)}", accepted)
