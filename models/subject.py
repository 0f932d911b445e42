"""What `tokenwaves check` is asked about: a block, a program, a checkpoint or a callable, as maps of hidden states."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from dispersion import ArgumentError, Block, Chain
from dispersion.block.stored import read_numbers
from dispersion.errors import whole_number
from dispersion.memory import require
from models.adapters.layer import Layer
from models.adapters.network import Embedding, Network
from models.check import AGAINST_NETWORK, AS_REBUILT, TOLERANCE, Check, check
from models.families import from_module, is_known, load_network
from models.inputs import Map, one_line
from models.line import LineCheck, line_check
from models.module import to_torch
from models.program import load_program

TOKENS = 32
"""Number of tokens where the model does not say it."""
MOST = 10_000
"""The largest number of tokens or layers that may be asked for: every layer is run on d · N states of N tokens."""
HEADS = 16
"""Heads of a layer that does not say how many it has."""
COPIES = 4
"""Arrays of the size of the attention weights that a layer holds at once."""
MODELS = "a block .toml, a program .pt2, a folder of save_pretrained, a checkpoint with family=NAME, or module:callable"
NUMBERS = "token:ID, mean, zeros, numbers with commas between them, or a .npy file of them"


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, ready to be checked.

    name, kind : of the model, for the reader. layers : the map of each layer on hidden states.
    shape : (N,) or (N_1, …, N_D). d : number of features, None if only a state can tell.
    boundary : as in `measure`. blocks : the layers as Blocks on that ring, or None. chains : the layers
    as Chains on that line, or None where there is a ring, or no Blocks.
    embedding : where states of tokens come from, or None. notes : a line each. batched : whether layers take (…, N, d).
    judge : as in Check.
    """

    name: str
    kind: str
    layers: tuple[Map, ...]
    shape: tuple[int, ...]
    d: int | None
    boundary: str = "periodic"
    blocks: tuple[Block, ...] | None = None
    chains: tuple[Chain, ...] | None = None
    embedding: Embedding | None = None
    notes: tuple[str, ...] = ()
    batched: bool = False
    judge: str = ""

    def state(self, given: str | None) -> tuple[NDArray[np.float64], str]:
        """((d,) a, its name) of the base state `given` on the command line; None: mean if there is one, else zeros."""
        if given is None:
            given = "zeros" if self.embedding is None else "mean"
        kind, _, number = given.partition(":")
        if given in ("mean", "zeros") or kind == "token":
            return self._named(given, kind, number), given
        try:
            if given.endswith(".npy"):
                state = np.asarray(read_numbers(given), dtype=np.float64)
            else:
                state = np.array([float(part) for part in given.split(",")])
        except (OSError, ValueError):
            raise ArgumentError("state", repr(given), NUMBERS) from None
        if state.ndim != 1 or (self.d is not None and len(state) != self.d):
            raise ArgumentError("state", f"shape {state.shape}", f"({'d' if self.d is None else self.d},)")
        return state, given

    def checked(self, state: ArrayLike | str | None = None, **options: Any) -> Check:
        """The Check of this model at 1⊗`state`, a, or its name as in `state`; on a line of tokens what grows most too.

        options : as in `models.check.check`, waves, memory, device and progress.
        """
        a = self.state(state)[0] if state is None or isinstance(state, str) else np.asarray(state, dtype=np.float64)
        layers, options["device"] = self._on(options.get("device"))
        found = check(layers, a, self.shape, self.blocks or self.chains, self.boundary, batched=self.batched, **options)
        return replace(found, line=self.line_check(a, options["device"], found), judge=self.judge)

    def line_check(
        self, state: NDArray[np.float64], device: str | torch.device | None = None, checked: Check | None = None
    ) -> LineCheck | None:
        """What grows most on the line of tokens around 1⊗`state`, on a `device`; None on a ring whose tokens the layers
        do not tell apart, as far as they were `checked`.
        """
        invariant = checked is None or max(checked.defect, checked.spread) <= TOLERANCE
        if self.chains is None and self.boundary == "periodic" and invariant:
            return None
        layers, where = self._on(device)
        tokens = None if self.chains else int(np.prod(self.shape))
        return line_check(layers, state, self.chains, tokens=tokens, batched=self.batched, device=where)

    def with_ends(self, boundary: str | None) -> Subject:
        """This model with other ends of the tokens, None for its own; then J(q) is measured."""
        if boundary is None or boundary == self.boundary:
            return self
        return replace(self, boundary=boundary, blocks=None, chains=None)

    def _on(self, device: str | torch.device | None) -> tuple[list[Map], torch.device]:
        where = torch.device("cpu" if device is None else device)
        return [layer.to(where) if isinstance(layer, nn.Module) else layer for layer in self.layers], where

    def _named(self, given: str, kind: str, number: str) -> NDArray[np.float64]:
        if given == "zeros":
            if self.d is None:
                raise ArgumentError("state", "zeros for a callable, whose features only a state tells", NUMBERS)
            return np.zeros(self.d)
        if self.embedding is None:
            raise ArgumentError("state", f"{given!r} for a {self.kind}, which has no embedding", NUMBERS)
        if kind == "token" and not (number.isdecimal() and len(number) < 20):
            raise ArgumentError("state", repr(given), NUMBERS)
        try:
            return self.embedding.state(int(number) if kind == "token" else None, int(np.prod(self.shape)))
        except ArgumentError as error:
            raise ArgumentError("state", error.got, error.accepted) from None


def subject(
    model: str,
    family: str | None = None,
    config: str | None = None,
    tokens: int | None = None,
    layers: int | None = None,
    boundary: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> Subject:
    """The Subject that the command line calls `model`.

    family, config : of a checkpoint, as in `load_network`. tokens : N, where the model leaves it open (32).
    layers : how many, the first ones of a checkpoint (all of them), or how often to apply one map (once).
    boundary : 'periodic', 'open' or 'causal', that of the model by default. device, trust : of a program, as in
    `load_program`.
    An ArgumentError names what cannot be used.
    """
    _between("tokens", tokens, 2, MOST)
    _between("layers", layers, 1, MOST)
    suffix = Path(model).suffix.lower()
    checkpoint = suffix in (".safetensors", ".bin", ".pt", ".pth")
    if family is not None or checkpoint or Path(model).is_dir():
        found = _network(model, load_network(model, family, config), tokens, layers)
    elif suffix == ".toml":
        found = _block(model, tokens, layers or 1)
    elif suffix == ".pt2":
        found = _program(model, tokens, layers or 1, device, trust)
    elif ":" in model:
        found = _callable(model, tokens, layers)
    else:
        raise ArgumentError("model", repr(model), MODELS)
    if boundary not in (None, found.boundary) and suffix == ".toml":
        raise ArgumentError("boundary", repr(boundary), "'periodic': a block stands on a ring")
    return found.with_ends(boundary)


def of_network(
    model: nn.Module | Network | str | os.PathLike[str],
    shape: tuple[int, ...] | int | None = None,
    boundary: str | None = None,
) -> Subject:
    """The Subject of a whole network: a module in memory, a Network, a checkpoint or folder.

    shape : its tokens, a number or (N,), 32 by default. boundary : that of the model by default.
    """
    if isinstance(shape, tuple | list):
        if len(shape) != 1:
            raise ArgumentError("shape", tuple(shape), "N or (N,) for a network")
        (shape,) = shape
    _between("shape", shape, 2, MOST)
    if isinstance(model, nn.Module):
        network, name = from_module(model), type(model).__name__
    elif isinstance(model, Network):
        network, name = model, model.family
    else:
        network, name = load_network(model), str(model)
    return _network(name, network, shape, None).with_ends(boundary)


def _between(argument: str, value: int | None, least: int, most: int) -> None:
    if value is not None and whole_number(argument, value, least) > most:
        raise ArgumentError(argument, value, f"at most {most:,}")


def _block(model: str, tokens: int | None, layers: int) -> Subject:
    block = Block.load(model)
    if tokens not in (None, block.n):
        raise ArgumentError("tokens", tokens, f"{block.n}, as the block has, or none")
    net = to_torch(block)
    return Subject(model, "block", (net,) * layers, block.shape, block.d, blocks=(block,) * layers, batched=True)


def _network(model: str, network: Network, tokens: int | None, layers: int | None) -> Subject:
    count = len(network.layers) if layers is None else layers
    if count > len(network.layers):
        raise ArgumentError("layers", count, f"at most the {len(network.layers)} of the checkpoint")
    n = tokens or TOKENS
    heads = max(getattr(layer, "heads", HEADS) for layer in network.layers)
    require("tokens", f"{n:,} and {heads} heads, attention", 8 * COPIES * heads * n**2)
    notes = [_told(network), *network.notes]
    blocks: tuple[Block, ...] | None = None
    chains: tuple[Chain, ...] | None = None
    blocky = all(isinstance(layer, Layer) for layer in network.layers)
    if network.obstacle is None:
        blocks = tuple(network.blocks(n)[:count])
    else:
        which = "that of the middle token" if blocky else "measured"
        notes.append(f"J(q) is {which}: {network.obstacle}")
        chains = tuple(network.chains(n)[:count]) if blocky else None
    return Subject(
        model,
        network.family,
        tuple(network.modules[:count]),
        (n,),
        network.d,
        network.boundary,
        blocks,
        chains,
        network.embedding,
        tuple(notes),
        batched=True,
        judge=AS_REBUILT if network.comparison is None else AGAINST_NETWORK,
    )


def _told(network: Network) -> str:
    if network.comparison is not None:
        return network.comparison.note
    return "its layers are as rebuilt from the weights and settings: they were not compared with those of the network"


def _program(model: str, tokens: int | None, layers: int, device: str | None, trust: bool) -> Subject:
    try:
        program = load_program(model, device, trust)
    except ArgumentError as error:
        raise ArgumentError("model", error.got, error.accepted) from None
    n = int(np.prod(program.shape))
    if tokens not in (None, n):
        raise ArgumentError("tokens", tokens, f"{n}, as the program was exported for, or none")
    kind = "program" if trust else "block of a program"
    return Subject(model, kind, (program,) * layers, program.shape, program.d, program.boundary, batched=True)


def _callable(model: str, tokens: int | None, layers: int | None) -> Subject:
    module, _, name = model.partition(":")
    sys.path.insert(0, "")
    try:
        thing: Any = import_module(module)
        for part in name.split("."):
            thing = getattr(thing, part)
        d = getattr(thing, "d", None)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError("model", f"{model!r} ({error})", MODELS) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the module does when it is imported
        got = f"{model!r}, which raises {type(error).__name__}: {one_line(error)}"
        raise ArgumentError("model", got, "a module that can be imported") from None
    finally:
        sys.path.remove("")
    if not callable(thing):
        raise ArgumentError("model", f"{model!r}, a {type(thing).__name__}", "a callable on tensors (N, d)")
    if isinstance(thing, nn.Module) and is_known(thing):
        return _network(model, from_module(thing), tokens, layers)
    return Subject(model, "callable", (thing,) * (layers or 1), (tokens or TOKENS,), d if isinstance(d, int) else None)
