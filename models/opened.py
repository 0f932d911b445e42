"""Subjects from what users name: a block, a program, a checkpoint or folder, a network in memory, a callable."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from dispersion import ArgumentError, Block
from dispersion.errors import whole_number
from dispersion.memory import require
from models.adapters.layer import Layer
from models.adapters.network import Network
from models.check import AGAINST_NETWORK, AS_REBUILT, CLOSED
from models.families import from_module, is_known, load_network
from models.inputs import one_line
from models.module import to_torch
from models.program import load_program
from models.subject import Subject

TOKENS = 32
"""Number of tokens where the model does not say it."""
MOST = 10_000
"""The largest number of tokens or layers that may be asked for: every layer is run on d · N states of N tokens."""
HEADS = 16
"""Heads of a layer that does not say how many it has."""
COPIES = 4
"""Arrays of the size of the attention weights that a layer holds at once."""
MODELS = "a block .toml, a program .pt2, a folder of save_pretrained, a checkpoint with family=NAME, or module:callable"


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
        found = _network(model, load_network(model, family, config), tokens, layers, boundary)
    elif suffix == ".toml":
        found = _block(model, tokens, layers or 1)
    elif suffix == ".pt2":
        found = _program(model, tokens, layers or 1, device, trust)
    elif ":" in model:
        found = _callable(model, tokens, layers, boundary)
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
    return _network(name, network, shape, None, boundary)


def _between(argument: str, value: int | None, least: int, most: int) -> None:
    if value is not None and whole_number(argument, value, least) > most:
        raise ArgumentError(argument, value, f"at most {most:,}")


def _block(model: str, tokens: int | None, layers: int) -> Subject:
    block = Block.load(model)
    if tokens not in (None, block.n):
        raise ArgumentError("tokens", tokens, f"{block.n}, as the block has, or none")
    net = to_torch(block)
    return Subject(model, "block", (net,) * layers, block.shape, block.d, blocks=(block,) * layers, batched=True)


def _network(model: str, network: Network, tokens: int | None, layers: int | None, boundary: str | None) -> Subject:
    count = len(network.layers) if layers is None else layers
    if count > len(network.layers):
        raise ArgumentError("layers", count, f"at most the {len(network.layers)} of the checkpoint")
    window = network.window
    n = (tokens or TOKENS) if window is None else window.tokens
    if tokens not in (None, n):
        raise ArgumentError("tokens", tokens, f"{n}, those of the window")
    heads = max(getattr(layer, "heads", HEADS) for layer in network.layers)
    require("tokens", f"{n:,} and {heads} heads, attention", 8 * COPIES * heads * n**2)
    notes = [_told(network), *network.notes]
    blocky = all(isinstance(layer, Layer) for layer in network.layers)
    asked = Subject(
        model,
        network.family,
        tuple(network.modules[:count]),
        (n,),
        network.d,
        network.boundary,
        embedding=network.embedding,
        notes=tuple(notes),
        batched=True,
        judge=AS_REBUILT if network.comparison is None else AGAINST_NETWORK,
    )
    if network.obstacle is None:
        return replace(asked, blocks=tuple(network.blocks(n)[:count])).with_ends(boundary)
    if blocky and boundary == "periodic" and network.boundary == "open":
        around = (n,) if window is None else window.window
        blocks = network.blocks(n if window is None else around)
        closed = _closed(replace(asked, shape=around), tuple(blocks[:count]))
        if closed is not None:
            return closed
    line = blocky and window is None
    which = "that of the middle token" if line else "measured"
    chains = tuple(network.chains(n)[:count]) if line else None
    told = (*notes, f"J(q) is {which}: {network.obstacle}")
    return replace(asked, chains=chains, notes=told).with_ends(boundary)


def _closed(asked: Subject, blocks: tuple[Block, ...]) -> Subject | None:
    """`asked`, on a line, closed to a ring, where its layers are `blocks`; None where positions do not fit a ring."""
    if not all(head.periodic for block in blocks for head in block.heads):
        return None
    made = {id(block): to_torch(block) for block in {id(block): block for block in blocks}.values()}
    note = "closed to a ring: the network itself runs on a line, where this J(q) holds far from the ends"
    layers = tuple(made[id(block)] for block in blocks)
    notes = (*asked.notes, note)
    return replace(asked, layers=layers, boundary="periodic", blocks=blocks, notes=notes, judge=CLOSED)


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


def _callable(model: str, tokens: int | None, layers: int | None, boundary: str | None) -> Subject:
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
        return _network(model, from_module(thing), tokens, layers, boundary)
    return Subject(model, "callable", (thing,) * (layers or 1), (tokens or TOKENS,), d if isinstance(d, int) else None)
