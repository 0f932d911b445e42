"""What `tokenwaves check` is asked about: a block, a program, a checkpoint or a callable, as maps of hidden states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from dispersion import ArgumentError, Block, Chain
from dispersion.block.stored import read_numbers
from models.adapters.network import Embedding
from models.check import TOLERANCE, Check, check
from models.inputs import Map
from models.line import LineCheck, line_check

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
        do not tell apart, as far as they were `checked`, there.
        """
        invariant = checked is None or max(checked.defect, checked.spread) <= TOLERANCE
        if self.chains is None and self.boundary == "periodic" and invariant:
            return None
        layers, where = self._on(device)
        tokens = None if self.chains else int(np.prod(self.shape))
        known = checked.predicted if checked is not None and checked.source == "chains" else None
        return line_check(layers, state, self.chains, known=known, tokens=tokens, batched=self.batched, device=where)

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
