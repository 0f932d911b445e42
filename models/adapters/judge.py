"""The network itself as the judge: rebuilt layers against those of the reference, on random states of natural size.

Some references compute a norm, a softmax or angles in float32 whatever their weights. They are known by measurement:
they differ from the rebuilt layers by no more than float32 rounds, and not at all once what asks for float32 inside
gets float64.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from dispersion.errors import ArgumentError
from models.adapters.comparison import Comparison, Difference
from models.adapters.double import built, copied, lifted, renewed
from models.adapters.network import Embedding, Network
from models.adapters.opaque import Opaque, Source
from models.adapters.reference import Pass, Reference, token_ids, vocabulary
from models.adapters.registry import Family
from models.adapters.settings import Settings
from models.adapters.stages import first_stage
from models.adapters.weights import Weights
from models.layers import Norm

EXACT = 1e-10
"""Relative difference of two computations of the same map in float64."""
SINGLE = 1e-3
"""Relative difference that float32 somewhere inside may make, at most: large logits multiply what it rounds off."""


class Judge:
    """The reference of one network.

    family, weights, settings : what the network was read from. module : the network in memory; by default the reference
    is built from the settings.
    """

    def __init__(self, family: Family, weights: Weights, settings: Settings, module: nn.Module | None = None) -> None:
        assert family.reference is not None
        self.family, self.weights, self.settings = family, weights, settings
        self.reference: Reference = family.reference
        self.part = None if module is None else module.get_submodule(weights.prefix.removesuffix("."))
        self.model = self._built() if self.part is None else copied(self.part, weights)

    @property
    def name(self) -> str:
        """The class of the reference, and where it is from."""
        kind = type(self.model)
        package = kind.__module__.partition(".")[0]
        version = getattr(sys.modules.get(package), "__version__", None)
        return kind.__name__ if version is None else f"{kind.__name__} ({package} {version})"

    @property
    def _accepted(self) -> str:
        return f"a network whose layers are those of {self.family.name} as rebuilt"

    def compared(self, network: Network) -> Comparison:
        """The Comparison of `network`, an ArgumentError that names the first layer where it is another map."""
        worst = _worst(self._differences(network))
        if worst.size <= EXACT:
            return Comparison(self.name, worst.size)
        if worst.size <= SINGLE:
            double = _worst(self._in_float64(network))
            if double.size <= EXACT:
                return Comparison(self.name, double.size, worst.size)
        got = f"{self.name}, which differs in {self.first(network) or worst}"
        raise ArgumentError("network", got, self._accepted)

    def itself(self, network: Network) -> Network:
        """`network` with the reference's own layers."""
        source = Source(self.reference, self.model)
        with lifted(), torch.no_grad():
            renewed(self.model, self._tables())
            made = self._pass()
            calls = made.calls
            if not calls:
                raise ArgumentError("layers", repr(self.reference.layers), "a pattern that names of modules match")
            for one in self._of_embedding(network, made):
                if not one.size <= EXACT:
                    raise ArgumentError("network", f"{self.name}, which differs in {one}", self._accepted)
        odd = next((call.input for call in calls if prod(call.input.shape[:-2]) != 1), None)
        if odd is not None:
            got = f"one that is called on hidden states of shape {tuple(odd.shape)}"
            raise ArgumentError("layers", got, "layers that are called on (1, n, d)")
        boundary, d = self.family.boundary, calls[0].input.shape[-1]
        layers = tuple(Opaque(source, number, boundary, d) for number in range(len(calls)))
        embedding = self._tokens(network, made) if network.embedding is None else network.embedding
        return replace(network, layers=layers, embedding=embedding, comparison=Comparison(self.name, 0.0))

    def _tokens(self, network: Network, made: Pass) -> Embedding | None:
        """The embedding of the reference if the first layer sees that of tokens and nothing else, else None."""
        find: Any = getattr(self.model, "get_input_embeddings", None)
        table = None if find is None else find()
        if not isinstance(table, nn.Embedding) or table.embedding_dim != made.calls[0].input.shape[-1]:
            return None
        found = Embedding(table.weight.detach().numpy())
        (difference,) = self._of_embedding(replace(network, embedding=found), made)
        return found if difference.size <= EXACT else None

    def first(self, network: Network) -> Difference | None:
        """The first Difference of `network`, None if there is none."""
        first = next((one for one in self._in_float64(network) if not one.size <= EXACT), None)
        if first is None or first.layer is None:
            return first
        with lifted():
            call = self._pass().calls[first.layer]
            part = first_stage(network.modules[first.layer], call, _states(call.input, first.layer))
        return Difference(first.layer, part, first.size)

    def _in_float64(self, network: Network) -> list[Difference]:
        """The differences with what the reference computes in float32 in float64."""
        with lifted():
            found = self._differences(network)
            if EXACT < _worst(found).size <= SINGLE and self.settings.typed:
                renewed(self.model, dict(self._built().named_buffers()) | self._tables())
                found = self._differences(network)
        return found

    def _tables(self) -> dict[str, Tensor]:
        return {} if self.reference.tables is None else dict(self.reference.tables(self.model))

    def _built(self) -> nn.Module:
        return built(self.family, self.settings, self.weights)

    def _pass(self) -> Pass:
        try:
            return self.reference.calls(self.model)
        except Exception as error:  # a model may do anything
            line = " ".join(str(error).split())[:200]
            got = f"{self.name}, which raises {type(error).__name__}: {line}"
            raise ArgumentError("network", got, f"a {self.family.name} that runs") from None

    def _of_embedding(self, network: Network, made: Pass) -> list[Difference]:
        """The difference of the embedding, where tokens go into the reference."""
        embedding, first = network.embedding, made.calls[0].input
        if embedding is None or embedding.tokens is None or vocabulary(self.model) is None:
            return []
        ids = token_ids(self.model, first.shape[-2])[0]
        return [Difference(None, "embedding", _distance(torch.tensor(embedding(ids.numpy())), first))]

    def _differences(self, network: Network) -> list[Difference]:
        """Of the embedding, of each layer, and of the norm after them, where there are such."""
        made = self._pass()
        if len(made.calls) != len(network.layers):
            got = f"{self.name}, which calls {len(made.calls)} layers"
            raise ArgumentError("network", got, f"the {len(network.layers)} of the weights")
        found = []
        with torch.no_grad():
            found += self._of_embedding(network, made)
            for number, (call, module) in enumerate(zip(made.calls, network.modules, strict=True)):
                x = _states(call.input, number)
                found.append(Difference(number, "the whole of it", _distance(module(x), call(x))))
            after = made.calls[-1].output
            if network.final_norm is not None and made.last.shape == after.shape:
                found.append(Difference(None, "final norm", _distance(Norm(network.final_norm)(after), made.last)))
        return found


def _worst(found: list[Difference]) -> Difference:
    return max(found, key=lambda one: one.size)


def _states(seen: Tensor, seed: int) -> Tensor:
    """(n, d) random states of the size of those `seen` by a layer, (1, n, d) or (n, d)."""
    shape = seen.shape[-2:]
    size = float(seen.double().square().mean().sqrt()) or 1.0
    return size * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _distance(mine: Tensor, theirs: Any) -> float:
    """The largest difference, relative to the largest entry; infinite where there are NaN."""
    theirs = theirs.double().reshape(mine.shape) if theirs.numel() == mine.numel() else theirs[..., :0]
    if mine.shape != theirs.shape:
        return float("inf")
    size = float(theirs.abs().max())
    distance = float((mine - theirs).abs().max()) / (size or 1.0)
    return distance if distance == distance else float("inf")
