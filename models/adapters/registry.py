"""Families of trained networks: registered by a decorator, in a module of this package or of anyone's.

A package of your own names its module in the entry points of the group `tokenwaves.families`, and is imported when
families are first asked for.
"""

from __future__ import annotations

import pkgutil
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import nn

from dispersion.errors import ArgumentError, choice, shown
from dispersion.line.chain import BOUNDARIES
from models.adapters.network import Network
from models.adapters.reference import Reference
from models.adapters.settings import Settings
from models.adapters.weights import Weights, prefix_of

GROUP = "tokenwaves.families"
ROUTES = {
    "ring": "J(q) from Blocks on any ring",
    "kernel": "J(q) from Blocks on a ring, the kernel in closed form; as it runs, Blocks on a line",
    "line": "what grows most from Blocks on a line",
    "measured": "the reference's own layers, measured",
}
"""How predictions for a family are made."""

Read = Callable[[Weights, Settings], Network]
Described = Callable[[nn.Module], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Family:
    """How the networks of a family are read.

    Parameters
    ----------
    name : str
        By which it is asked for.
    what : str
        Which networks, in a few words.
    route : str
        One of ROUTES.
    anchor : str
        A regular expression for the name of a tensor that only its checkpoints have, after what stands before all.
    within : str
        One that the names of all tensors of its layers match from their start: each of them has to be taken.
    read : callable
        From Weights and Settings to a Network of `weights.family`, without layers if the route is 'measured'.
    model_types : tuple of str
        What its config.json calls the `model_type`; none for networks that have no such file.
    reference : Reference or None
        The implementation that its layers are compared with, None if there is none.
    buffers : str
        A regular expression for names within the layers that hold no weights.
    harmless : tuple of str
        Settings that do not change the map of a layer, beside `settings.HARMLESS`.
    described : callable or None
        From a module in memory that has no config to its settings, None if it is of another kind.
    boundary : {'periodic', 'open', 'causal'}
        The ends of the tokens, where the route is 'measured'; Layers tell theirs.
    half : tuple of str or None
        (model_type, part) of networks that have one of this family as a part: settings of it under part_config, and the
        module part_model.
    """

    name: str
    what: str
    route: str
    anchor: str
    within: str
    read: Read
    model_types: tuple[str, ...] = ()
    reference: Reference | None = None
    buffers: str = r"(?!)"
    harmless: tuple[str, ...] = ()
    described: Described | None = None
    boundary: str = "open"
    half: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        choice("route", self.route, ROUTES)
        choice("boundary", self.boundary, BOUNDARIES)

    def open(self, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> tuple[Weights, Settings]:
        """What `read` gets, an ArgumentError if they are of another family.

        Parameters
        ----------
        tensors : mapping of str to Tensor
            The state dict, with anything before its names.
        config : mapping of str to Any
            The settings, of the network or of the whole that it is a half of.
        """
        if self.half is not None and config.get("model_type") == self.half[0]:
            config = self._own(config, f"{self.half[1]}_config")
        settings = Settings(config)
        settings.only("model_type", *self.model_types)
        prefix = prefix_of(tensors, self.anchor)
        if prefix is None:
            kin = [other.name for other in families().values() if prefix_of(tensors, other.anchor) is not None]
            got = f"tensors of {' or '.join(kin)}" if kin else f"tensors such as {reprlib.repr(sorted(tensors)[:3])}"
            raise ArgumentError("family", f"{self.name!r} for {got}", kin[0] if kin else f"a {self.name} checkpoint")
        return Weights(tensors, self.name, prefix), settings

    def _own(self, config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """The settings `name` within those of a whole, which need not repeat their model_type."""
        own = config.get(name)
        if not isinstance(own, Mapping):
            raise ArgumentError("config", f"{name} = {shown(own)}", f"the settings of {self.name}")
        return {"model_type": self.model_types[0], **own}

    def network(self, weights: Weights, settings: Settings) -> Network:
        """The Network of `weights` and `settings`; an ArgumentError names what was left over.

        Parameters
        ----------
        weights : Weights
            The state dict.
        settings : Settings
            Those of the config.
        """
        made = self.read(weights, settings)
        if self.route == "measured":  # the reference has every weight and knows every setting
            settings.hand_on()
        else:
            weights.finish(self.within, self.buffers)
            settings.finish(self.name, self.harmless)
        return replace(made, notes=(*weights.notes, *made.notes))


_REGISTERED: dict[str, Family] = {}


def family(
    name: str,
    what: str,
    *,
    route: str,
    anchor: str,
    within: str,
    model_types: tuple[str, ...] = (),
    reference: Reference | None = None,
    buffers: str = r"(?!)",
    harmless: tuple[str, ...] = (),
    described: Described | None = None,
    boundary: str = "open",
    half: tuple[str, str] | None = None,
) -> Callable[[Read], Read]:
    """A decorator that registers what reads a family.

    Parameters
    ----------
    name, what, route, anchor, within, model_types, reference, buffers, harmless, described, boundary,
    half
        As in Family.
    """

    def registered(read: Read) -> Read:
        known = _REGISTERED.get(name)
        if known is not None and known.read.__module__ != read.__module__:
            raise ArgumentError("name", repr(name), f"a name that {known.read.__module__} has not taken")
        more = model_types, reference, buffers, harmless, described, boundary, half
        _REGISTERED[name] = Family(name, what, route, anchor, within, read, *more)
        return read

    return registered


def families() -> Mapping[str, Family]:
    """Every family by its name: those of this package, then those of installed packages."""
    _load()
    return _REGISTERED


def family_named(name: object) -> Family:
    """The Family of this name, an ArgumentError if there is none.

    Parameters
    ----------
    name : object
        The name, if it is one.
    """
    known = families()
    if not isinstance(name, str) or name not in known:
        raise ArgumentError("family", shown(name), ", ".join(known))
    return known[name]


def family_of(config: Mapping[str, Any]) -> Family:
    """The Family whose `model_types` have that of a config, an ArgumentError if none has.

    Parameters
    ----------
    config : mapping of str to Any
        The settings.
    """
    kind = config.get("model_type")
    for known in families().values():
        if kind in known.model_types:
            return known
    halves = {one.name: one.half[1] for one in families().values() if one.half is not None and one.half[0] == kind}
    if halves:
        inside = " or ".join(f"{part}_model" for part in halves.values())
        accepted = f"the family {' or '.join(halves)}, of a half of it; in memory its {inside}"
        raise ArgumentError("config", f"model_type = {shown(kind)}, two networks", accepted)
    if kind is None:
        raise ArgumentError("family", "none, and no config.json that says a model_type", ", ".join(families()))
    accepted = ", ".join(kind for known in families().values() for kind in known.model_types)
    own = "or models.families.own_layers, which takes a network in memory of any kind"
    raise ArgumentError("config", f"model_type = {shown(kind)}", f"{accepted}; {own}")


@cache
def _load() -> None:
    """Import the modules of this package, and those that entry points name."""
    import models.adapters

    for module in pkgutil.iter_modules(models.adapters.__path__):
        import_module(f"models.adapters.{module.name}")
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # whatever a stranger's module does
            got = f"the entry point {point.name} = {point.value}, which raises {type(error).__name__}: {error}"
            raise ArgumentError("family", shown(got, str), "a package whose families can be imported") from None
