"""Reference models in float64: built from settings, copied from memory, and kept from computing in float32 inside."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dispersion.errors import ArgumentError, shown
from dispersion.memory import require
from models.adapters.reference import Reference
from models.adapters.settings import SIZES, Settings
from models.adapters.weights import Weights, prefix_of

if TYPE_CHECKING:
    from models.adapters.registry import Family

ROUNDED = 1e-6
"""Relative difference that a few roundings to float32 make."""


class _Lifted(TorchFunctionMode):
    """Where float32 is asked for by name, float64 is given."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            func = Tensor.double
        args = tuple(torch.float64 if value is torch.float32 else value for value in args)
        named = {name: torch.float64 if value is torch.float32 else value for name, value in (kwargs or {}).items()}
        return func(*args, **named)


@contextmanager
def lifted() -> Iterator[None]:
    """Within it, what asks for float32 gets float64: casts, softmax and tables of angles."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Lifted():
            yield
    finally:
        torch.set_default_dtype(usual)


def copied(module: nn.Module, weights: Weights) -> nn.Module:
    """A copy of `module` in float64, on the CPU and in eval mode, that shares the tensors of `weights`.

    Parameters
    ----------
    module : nn.Module
        The part of it whose names `weights` has.
    weights : Weights
        Its state dict.
    """
    memo: dict[int, Any] = {}
    for name, parameter in module.named_parameters():
        tensor = weights.cast[name] if name in weights.cast else parameter.detach().cpu().double()
        memo[id(parameter)] = nn.Parameter(tensor, requires_grad=False)
    for buffer in module.buffers():
        here = buffer.detach().cpu()
        memo[id(buffer)] = here.double() if here.is_floating_point() else here
    try:
        model = copy.deepcopy(module, memo).train(False)
    except Exception as error:  # whatever a stranger's module holds
        got = f"a {type(module).__name__} that cannot be copied ({type(error).__name__}: {error})"
        raise ArgumentError("module", shown(got, str), "a module that copy.deepcopy takes") from None
    return _eager(model)


def built(family: Family, settings: Settings, weights: Weights) -> nn.Module:
    """The model of transformers with these settings and weights, in float64 and eval mode, its attention eager.

    Parameters
    ----------
    family : Family
        Which class, and which names.
    settings : Settings
        Those that were asked for, those of the family and sizes are handed on; other defaults are those of the class.
    weights : Weights
        The state dict; tensors that a family has taken are shared.
    """
    reference = family.reference
    assert reference is not None
    handed = settings.asked | SIZES | {"pad_token_id", *family.harmless}  # padding lies within the vocabulary
    asked = {name: settings.values[name] for name in settings.values if name in handed}
    asked = {name: value for name, value in asked.items() if value is not None} | settings.seen
    asked = dict(asked if reference.renamed is None else reference.renamed(asked))
    make = _maker(reference, asked)
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in make().state_dict().items()}
    for name in sorted((settings.handed & set(asked)) - set(family.harmless) - _known(reference, asked)):
        got = f"{shown(name, str)} = {shown(asked[name])}, which {family.name} does not know"
        raise ArgumentError("config", got, f"the settings of {family.name}; leave out what does not change its map")
    inner = prefix_of(shapes, family.anchor) or ""
    named = {name: name.removeprefix(inner) for name in shapes if name.startswith(inner)}
    given = {name: weights.get(own) for name, own in named.items()}
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != shapes[name]:
            got = f"{name} of shape {tuple(shapes[name])} by the settings"
            raise ArgumentError("config", got, f"{tuple(tensor.shape)}, as in the checkpoint")
    missing = [name for name in shapes if given.get(name) is None]
    for name in missing:
        if re.match(rf"({reference.layers})\.", name.removeprefix(inner)):
            accepted = f"every weight of a layer of {settings.values['model_type']}"
            raise ArgumentError("checkpoint", f"no tensor {name}", accepted)
    require("config", "weights that the checkpoint lacks", 8 * sum(shapes[name].numel() for name in missing))
    model = make()
    model.load_state_dict({name: tensor for name, tensor in given.items() if tensor is not None}, False, assign=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(False)
            if name in missing:
                parameter.normal_(0.0, 0.02, generator=generator)
    tie: Any = getattr(model, "tie_weights", None)
    if tie is not None:
        tie()
    return _eager(model.double().train(False))


def renewed(model: nn.Module, tables: Mapping[str, Tensor]) -> None:
    """Give `model` the `tables` of these names, where its own are the same but for the rounding of float32.

    Parameters
    ----------
    model : nn.Module
        With tables of angles, say, that were made in float32.
    tables : mapping of str to Tensor
        The same in float64.
    """
    for name, known in [*model.named_buffers(), *model.named_parameters()]:
        new = tables.get(name)
        if new is not None and new.shape == known.shape and torch.allclose(new, known, rtol=ROUNDED, atol=0):
            known.data = new


def _known(reference: Reference, settings: Mapping[str, Any]) -> set[str]:
    """The names of the settings that transformers knows for a model_type, every name where it is of another package."""
    if reference.build is not None:
        return set(settings)
    import transformers

    named: Any = getattr(transformers, reference.model)
    kind = getattr(named, "config_class", None) or type(transformers.AutoConfig.for_model(settings["model_type"]))
    return {*kind().to_dict(), *kind.attribute_map, *signature(kind.__init__).parameters}


def _maker(reference: Reference, settings: Mapping[str, Any]) -> Callable[[], nn.Module]:
    build = reference.build
    if build is not None:
        return lambda: build(settings)
    import transformers
    from transformers.modeling_utils import no_init_weights

    kind, name = getattr(transformers, reference.model), str(settings.get("model_type"))
    values = {name: value for name, value in settings.items() if name != "model_type"}

    def make() -> nn.Module:
        try:
            with warnings.catch_warnings(), no_init_weights():
                warnings.simplefilter("ignore")
                if reference.model.startswith("Auto"):
                    config = transformers.AutoConfig.for_model(name, **values)
                    found = kind.from_config(config, attn_implementation="eager", trust_remote_code=False)
                else:
                    found = kind._from_config(kind.config_class(**values), attn_implementation="eager")
        except Exception as error:  # a config may say anything
            got = f"settings of which transformers makes no {name} ({type(error).__name__}: {error})"
            raise ArgumentError("config", shown(got, str), f"the settings of a {name}") from None
        model: nn.Module = found
        return model

    return make


def _eager(model: nn.Module) -> nn.Module:
    """`model` with eager attention, and without a cache."""
    for part in model.modules():
        config: Any = getattr(part, "config", None)
        if hasattr(config, "_attn_implementation"):
            config._attn_implementation = "eager"
        if hasattr(config, "use_cache"):
            config.use_cache = False
    return model
