"""A trained network as the theory sees it: layers, embedding and base states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from dispersion import ArgumentError, Block, Chain, Normalisation, absolute_logits, translation_invariant_share
from models.adapters.comparison import Comparison
from models.adapters.layer import Layer
from models.adapters.opaque import Opaque
from models.adapters.window import WindowLayer
from models.layers import Norm

Floats = NDArray[np.float64]
Part = TypeVar("Part", Layer, "Embedding")


@dataclass(frozen=True, eq=False)
class Embedding:
    """What turns tokens and positions into hidden states: W·LN(t + p + shift) + c.

    Parameters
    ----------
    tokens : (V, e) ndarray, optional
        t, or None for a network without a vocabulary.
    positions : (P, e) ndarray, optional
        p, learned, or None.
    shift : (e,) ndarray, optional
        The same at every token.
    norm : Normalisation, optional
        LN on e features, or None.
    weight : (d, e) ndarray, optional
        W, or None where e = d.
    bias : (d,) ndarray, optional
        c, or None where e = d.
    """

    tokens: Floats | None = None
    positions: Floats | None = None
    shift: Floats | None = None
    norm: Normalisation | None = None
    weight: Floats | None = None
    bias: Floats | None = None

    def __call__(self, ids: ArrayLike, first: int = 0) -> Floats:
        """(…, N, d) hidden states of the tokens `ids`.

        Parameters
        ----------
        ids : (…, N) array_like of int
            The tokens.
        first : int
            Position of the first of them, 0 by default.
        """
        numbers = np.asarray(ids)
        vectors = self._tokens()[numbers]
        if self.positions is not None:
            vectors = vectors + self.positions[first : first + numbers.shape[-1]]
        return self._finished(vectors)

    def state(self, token: int | None = None, n: int | None = None) -> Floats:
        """(d,) the hidden state of a token at the mean position: the base state of a homogeneous text.

        Parameters
        ----------
        token : int, optional
            The token; the mean of all tokens if None.
        n : int, optional
            The position is the mean of the first `n`, of all of them if None.
        """
        if token is not None and not 0 <= token < len(self._tokens()):
            raise ArgumentError("state", f"token:{token}", f"token:ID with 0 ≤ ID < {len(self._tokens())}")
        parts = [] if self.tokens is None else [self.tokens.mean(axis=0) if token is None else self.tokens[token]]
        parts += [] if self.positions is None else [self.positions[:n].mean(axis=0)]
        return self._finished(np.sum(parts, axis=0))

    def position_table(self, positions: slice | Sequence[int] = slice(None)) -> Floats:
        """(P, d) the learned positions, their mean taken off, in hidden features: W(p − p̄), no normalisation.

        Parameters
        ----------
        positions : slice or sequence of int
            Which P positions; all by default.
        """
        if self.positions is None:
            raise ArgumentError("network", "no learned absolute positions", "a network that has them")
        table = self.positions[positions]
        table = table - table.mean(axis=0)
        return table if self.weight is None else table @ self.weight.T

    def _tokens(self) -> Floats:
        if self.tokens is None:
            raise ArgumentError("state", "a token of a network without a vocabulary", "mean, zeros or FILE.npy")
        return self.tokens

    def _finished(self, vectors: Floats) -> Floats:
        x = vectors if self.shift is None else vectors + self.shift
        x = x if self.norm is None else self.norm(x)
        x = x if self.weight is None else x @ self.weight.T
        return np.asarray(x if self.bias is None else x + self.bias)


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network of one of the families: the map of each layer, as torch modules and as Blocks.

    Parameters
    ----------
    family : str
        Its name.
    layers : tuple of Layer or Opaque
        The weights of each application, the first first; a layer applied twice is there twice. A layer that is no Block
        is Opaque.
    embedding : Embedding, optional
        Or None if the network takes hidden states.
    final_norm : Normalisation, optional
        After the last layer, or None.
    notes : tuple of str
        What was assumed or changed on reading, a line each.
    comparison : Comparison or None
        How far the layers are from those of the reference implementation, None if they were not compared.
    """

    family: str
    layers: tuple[Layer | Opaque, ...]
    embedding: Embedding | None = None
    final_norm: Normalisation | None = None
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None

    @property
    def d(self) -> int:
        """Number of features."""
        return self.layers[0].d

    @property
    def boundary(self) -> str:
        """'periodic' where a layer does not know positions at all, so that any ring fits; else 'open' or 'causal'."""
        ends = {layer.boundary for layer in self.layers}
        return next(boundary for boundary in ("causal", "open", "periodic") if boundary in ends)

    @property
    def window(self) -> WindowLayer | None:
        """The first layer, where layers run on a window in two dimensions and no other number of tokens; else None."""
        first = self.layers[0]
        return first if isinstance(first, WindowLayer) else None

    @property
    def obstacle(self) -> str | None:
        """Why J(q) of the layers cannot come from Blocks on a ring, or None if it can."""
        if any(isinstance(layer, Opaque) for layer in self.layers):
            return "its layers are no Blocks"
        if self.boundary == "causal":
            return "its attention is causal, so rows have different weights"
        if any(isinstance(layer, Layer) and layer.frequencies is not None for layer in self.layers):
            return "its rotary frequencies are off the grid of a ring"
        if self.window is not None:
            return "it runs on a window, whose edges have fewer tokens to see"
        return None if self.boundary == "periodic" else "it runs on a line, whose ends have fewer tokens to see"

    @cached_property
    def modules(self) -> tuple[nn.Module, ...]:
        """The hidden-state map (…, N, d) → (…, N, d) of each layer, float64; one module for a layer applied often."""
        made: dict[int, nn.Module] = {}
        for layer in self.layers:
            if id(layer) not in made:
                made[id(layer)] = layer.module()
        return tuple(made[id(layer)] for layer in self.layers)

    def blocks(self, n: int | tuple[int, ...]) -> list[Block]:
        """The same layers as Blocks on a ring, or around the torus of a window, one for a layer applied often.

        Exact on the ring where `obstacle` is None; for causal or rotary layers see `chains`.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens, or the shape of the window.
        """
        made: dict[int, Block] = {}
        for layer in self.layers:
            if id(layer) not in made:
                made[id(layer)] = layer.block(n)
        return [made[id(layer)] for layer in self.layers]

    def chains(self, n: int) -> list[Chain]:
        """The same layers as Chains with the ends that `boundary` says, one for a layer applied often.

        Parameters
        ----------
        n : int
            Number of tokens.
        """
        blocks = self.blocks(2 * n - 1)  # a ring with every lag of the line
        made = {id(block): Chain(block, n, self.boundary) for block in {id(block): block for block in blocks}.values()}
        return [made[id(block)] for block in blocks]

    def forward(self, x: ArrayLike | torch.Tensor) -> torch.Tensor:
        """(…, N, d) what the layers and the final normalisation make of hidden states.

        Parameters
        ----------
        x : (…, N, d) array_like or Tensor
            The hidden states.
        """
        with torch.no_grad():
            hidden = torch.as_tensor(x, dtype=torch.float64)
            for module in self.modules:
                hidden = module(hidden)
            return hidden if self.final_norm is None else Norm(self.final_norm)(hidden)

    def initialised(self, rng: int, std: float = 0.02) -> Network:
        """The same architecture as it is before training: weights normal, biases zero, gains one.

        A layer that is applied often stays one layer.

        Parameters
        ----------
        rng : int
            The seed.
        std : float
            Standard deviation of the weights.
        """
        generator = np.random.default_rng(rng)
        made: dict[int, Layer] = {}
        for layer in self.layers:
            if isinstance(layer, Opaque):
                raise ArgumentError("network", "layers that are no Blocks", "a network whose weights are Layers")
            if id(layer) not in made:
                made[id(layer)] = _initialised(layer, generator, std)
        layers = tuple(made[id(layer)] for layer in self.layers)
        embedding = None if self.embedding is None else _initialised(self.embedding, generator, std)
        final = None if self.final_norm is None else _plain_norm(self.final_norm)
        return replace(self, layers=layers, embedding=embedding, final_norm=final, comparison=None)

    def position_logits(self, positions: slice | Sequence[int], layer: int = 0) -> Floats:
        """(H, P, P) the part p_iᵀW_h p_j of the logits that learned positions make among themselves.

        p is `Embedding.position_table`: without the normalisation, the biases and the tokens.

        Parameters
        ----------
        positions : slice or sequence of int
            Which P positions.
        layer : int
            Which of `layers`, 0 the first.
        """
        if self.embedding is None:
            raise ArgumentError("network", "no embedding", "a network with learned absolute positions")
        table = self.embedding.position_table(positions)
        return np.stack([absolute_logits(table, head.content) for head in self.layers[layer].block(2).heads])

    def position_shares(self, positions: slice | Sequence[int], layer: int = 0) -> Floats:
        """(H,) translation-invariant share of `position_logits` of each head, off the diagonal: 1 if they are Toeplitz.

        Parameters
        ----------
        positions : slice or sequence of int
            Which P positions.
        layer : int
            Which of `layers`, 0 the first.
        """
        return np.array([translation_invariant_share(logits) for logits in self.position_logits(positions, layer)])


def _initialised(part: Part, generator: np.random.Generator, std: float) -> Part:
    """`part` with fresh weights; frequencies of a rotary encoding stay."""
    fresh: dict[str, Any] = {}
    for entry in fields(part):
        value = getattr(part, entry.name)
        if isinstance(value, Normalisation):
            fresh[entry.name] = _plain_norm(value)
        elif isinstance(value, np.ndarray) and entry.name != "frequencies":
            bias = "bias" in entry.name
            fresh[entry.name] = np.zeros(value.shape) if bias else generator.normal(0.0, std, value.shape)
    return replace(part, **fresh)


def _plain_norm(norm: Normalisation) -> Normalisation:
    return replace(norm, gain=np.ones(norm.d), bias=np.zeros(norm.d))
