"""The trained network of nanoguard 0.1.0: its weights, its maps on a line and on a ring, and their dispersion relation.

A token is x0 = RMSnorm(embedding). Before layer l the tokens are mixed with x0 again; the layer is pre-normalised
without gains or biases, its queries and keys are turned by their position and then RMS-normed over a head's features:

    z_0 = (r_0 + c_0) x0,   z_{l+1} = r_{l+1} F_l(z_l) + c_{l+1} x0,   out = RMSnorm(F_{L−1}(z_{L−1}))
    logits_ij = RMSnorm(R(−θi) q_i)ᵀ RMSnorm(R(−θj) k_j)/√d_h = RMSnorm(q_i)ᵀ R(θ(i−j)) RMSnorm(k_j)/√d_h

The second form holds as a rotation keeps the norm. It has only the lag in it, so a ring of N tokens takes the shortest
signed lag, −N/2 ≤ r < N/2 as in `Kernel` (for even N the antipode is r = −N/2), and is translation invariant with the
trained weights.

At 1⊗z_l all values are equal, and weights sum to one: what a perturbation does to the logits drops out at first order.
With C_l = DH(y*), λ_h the symbol of softmax_r[RMSnorm(q)ᵀR(θr)RMSnorm(k)/√d_h] at the state, and N_1 of the norm,

    J_l(q) = C_l(z_l)[I + Σ_h λ_h(q; z_l) M_h N_1(z_l)]
    G_0 = (r_0 + c_0) I,   G_{l+1}(q) = r_{l+1} J_l(q) G_l(q) + c_{l+1} I,   G(q) = N_out J_{L−1}(q) G_{L−1}(q)

The last line is the derivative of the first display: a wave e^{iqj} in x0 reaches layer l as G_l(q), once through the
layers before and once by re-injection. G(q) is the transfer from a perturbation of x0 to the output.

Every RMSnorm has the eps of torch's `rms_norm` for its dtype; all is float64 here, so 2⁻⁵² (float32: 2⁻²³).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from dispersion import Block, Dispersion, FeedForward, Head, Kernel, RMSNorm, Rotary, dispersion_relation
from dispersion.errors import frozen
from dispersion.grid import grid_lags
from dispersion.ring.relation import Spectrum
from models.adapters.layer import Layer
from models.attention import Content

Floats = NDArray[np.float64]
Complex = NDArray[np.complex128]

MODEL = "assets/model.pt"
BASE = 10000.0
"""The rotary base."""
EPS = float(torch.finfo(torch.float64).eps)
"""The eps of `rms_norm` in float64."""


@dataclass(frozen=True, eq=False)
class NanoGuard:
    """The weights of the network, in float64.

    layers : L; their rotary frequencies are −θ, for it turns the other way than `Layer`.
    residual, reinjection : r, c (L,). embedding : (V, d), a row for each token of the vocabulary.
    """

    layers: tuple[Layer, ...]
    residual: Floats
    reinjection: Floats
    embedding: Floats

    @property
    def d(self) -> int:
        """Number of features."""
        return self.embedding.shape[1]

    @cached_property
    def norm(self) -> RMSNorm:
        """The RMSNorm without gain that stands everywhere."""
        return RMSNorm(np.ones(self.d), eps=EPS)

    def tokens(self, ids: ArrayLike) -> Floats:
        """(…, d) x0 = RMSnorm(embedding) of the tokens `ids` (…)."""
        return self.norm(self.embedding[np.asarray(ids)])

    def module(self, ring: bool) -> NetworkModule:
        """The map x0 → output on a ring, or on a line as the network was trained."""
        return NetworkModule(self, ring)

    def states(self, x0: Floats) -> Floats:
        """(L, d) z_l, what each token is before each layer where all tokens are `x0` (d,)."""
        states = [(self.residual[0] + self.reinjection[0]) * x0]
        for layer, r, c in zip(self.layers, self.residual[1:], self.reinjection[1:], strict=False):
            states.append(r * block_at(layer, 2, states[-1]).homogeneous_map(states[-1]) + c * x0)
        return np.array(states)

    def transfer(self, x0: Floats, n: int) -> Transfer:
        """G(q) on a ring of `n` tokens that are all `x0` (d,), in closed form."""
        states = self.states(x0)
        pairs = zip(self.layers, states, strict=True)
        relations = tuple(dispersion_relation(block_at(layer, n, z), z) for layer, z in pairs)
        final = relations[-1].block.homogeneous_map(states[-1])
        return Transfer(relations, self.residual, self.reinjection, self.norm.jacobian(final))

    def shuffled(self, rng: int) -> NanoGuard:
        """The same architecture with random weights: the entries of every matrix of the layers in random order, so
        that sizes stay and structure goes. Embedding, r and c stay. rng : the seed.
        """
        generator = np.random.default_rng(rng)
        names = ("query", "key", "value", "out", "weight_in", "weight_out")

        def shuffle(layer: Layer) -> Layer:
            fresh: dict[str, Any] = {name: generator.permuted(getattr(layer, name), axis=None) for name in names}
            return replace(layer, **fresh)

        return replace(self, layers=tuple(map(shuffle, self.layers)))


def load(path: Path) -> NanoGuard:
    """The network from the checkpoint at `path`, a dict with config and model_state_dict."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    config, tensors = checkpoint["config"], checkpoint["model_state_dict"]
    heads, d = config["n_head"], config["n_embd"]
    angles = BASE ** (-np.arange(0, d // heads, 2) / (d // heads))
    norm = RMSNorm(np.ones(d), eps=EPS)

    def weight(name: str) -> Floats:
        return tensors[name].double().numpy()

    def layer(number: int) -> Layer:
        attention, mlp = f"transformer.h.{number}.attn.", f"transformer.h.{number}.mlp."
        return Layer(
            heads=heads,
            query=weight(f"{attention}c_q.weight"),
            key=weight(f"{attention}c_k.weight"),
            value=weight(f"{attention}c_v.weight"),
            out=weight(f"{attention}c_proj.weight"),
            attention_norm=norm,
            feedforward_norm=norm,
            placement="pre",
            weight_in=weight(f"{mlp}c_fc.weight"),
            weight_out=weight(f"{mlp}c_proj.weight"),
            activation="relu_squared",
            frequencies=-angles,
        )

    count = config["n_layer"]
    return NanoGuard(
        tuple(map(layer, range(count))),
        weight("resid_lambdas"),
        weight("x0_lambdas"),
        weight("transformer.wte.weight"),
    )


def block_at(layer: Layer, n: int, z: Floats) -> Block:
    """A Block on a ring of `n` tokens with the J(q) and the homogeneous map of `layer` at 1⊗`z` (d,).

    Its kernels are the rotary logits by lag at this state. It is no more than that: elsewhere the layer differs.
    """
    assert layer.frequencies is not None
    frequencies, seen, lags = layer.frequencies, layer.attention_norm(z), grid_lags((n,))[:, None]
    size = len(layer.query) // layer.heads

    def head(number: int) -> Head:
        rows = slice(number * size, (number + 1) * size)
        query, key = (weight[rows] / _rms(weight[rows] @ seen) for weight in (layer.query, layer.key))
        logits = Rotary(query, key, frequencies).lag_logits(seen, lags)
        return Head(Kernel(logits), layer.out[:, rows] @ layer.value[rows])

    return Block(
        list(map(head, range(layer.heads))),
        FeedForward(layer.weight_in, layer.weight_out, layer.activation),
        attention_norm=layer.attention_norm,
        feedforward_norm=layer.feedforward_norm,
    )


@dataclass(frozen=True, eq=False)
class Transfer(Spectrum):
    """G(q) of the whole network on a ring, from a perturbation of x0 to the output; growth and modes of any Spectrum.

    relations : J_l(q) at z_l. residual, reinjection : r, c (L,). final : (d, d) N_out, the slope of the last norm.
    """

    relations: tuple[Dispersion, ...]
    residual: Floats
    reinjection: Floats
    final: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) of the ring."""
        return self.relations[0].shape

    def __call__(self, q: ArrayLike) -> Complex:
        """(…, d, d) G at the wavenumbers `q` (…)."""
        return self._composed([relation(q) for relation in self.relations])

    @cached_property
    def matrices(self) -> Complex:
        """(N, d, d) G(q) on the grid."""
        return frozen(self._composed([relation.matrices for relation in self.relations]))

    @cached_property
    def alone(self) -> Floats:
        """(d, d) G without attention, all λ_h = 0: what a token does to itself in the layers and by re-injection."""
        return frozen(self._composed([relation.pointwise for relation in self.relations]))

    @cached_property
    def symbols(self) -> Complex:
        """(L, heads, N) λ_h(q) of each layer on the grid."""
        return np.array([relation.symbols for relation in self.relations])

    def _composed(self, layers: list[NDArray]) -> NDArray:
        identity = np.eye(len(self.final))
        # G_{l+1} = r_{l+1} J_l G_l + c_{l+1} I, and J_{−1} G_{−1} = I
        through = identity
        for r, c, J in zip(self.residual, self.reinjection, layers, strict=True):
            through = J @ (r * through + c * identity)
        return self.final @ through


class NetworkModule(nn.Module):
    """The map x0 → output on (…, N, d).

    network : its weights. ring : angles by the shortest lag on a ring, or by position on a line.
    """

    def __init__(self, network: NanoGuard, ring: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for layer in network.layers:
            net = layer.module()
            content = (RingContent if ring else LineContent)([head.query_key for head in layer.block(2).heads])
            net.attention[0].content = content.requires_grad_(False)
            self.layers.append(net)
        self.residual, self.reinjection = network.residual.tolist(), network.reinjection.tolist()

    def forward(self, x0: torch.Tensor) -> torch.Tensor:
        """The normed output for tokens `x0` (…, N, d)."""
        x = x0
        for layer, r, c in zip(self.layers, self.residual, self.reinjection, strict=True):
            x = layer(r * x + c * x0)
        return _normed(x)


class LineContent(Content):
    """Content logits of a layer on a line of tokens 0 … N−1, as trained."""

    def products(self, queries: torch.Tensor, keys: torch.Tensor, position: torch.Tensor | None) -> torch.Tensor:
        """(…, heads, N, N) of `queries` and `keys` (…, heads, N, d_h), turned by their `position` and then normed."""
        return _normed(self.rotated(queries, position)) @ _normed(self.rotated(keys, position)).transpose(-2, -1)


class RingContent(Content):
    """Content logits of a layer on a ring of N tokens."""

    def products(self, queries: torch.Tensor, keys: torch.Tensor, position: torch.Tensor | None) -> torch.Tensor:
        """(…, heads, N, N) of normed `queries` and `keys` (…, heads, N, d_h), the keys turned by the shortest lag
        whatever their `position`.
        """
        n = queries.shape[-2]
        lags = torch.tensor(grid_lags((n,))[np.subtract.outer(np.arange(n), np.arange(n)) % n])
        angle = -lags[..., None] * self.frequencies[0, :, 0]
        (q1, q2), (k1, k2) = (_normed(u).chunk(2, dim=-1) for u in (queries, keys))
        straight = _pairs(q1, k1) + _pairs(q2, k2)
        crossed = _pairs(q2, k1) - _pairs(q1, k2)
        return (torch.cos(angle) * straight + torch.sin(angle) * crossed).sum(dim=-1)


def _pairs(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(…, N, N, m) q_im k_jm."""
    return q[..., :, None, :] * k[..., None, :, :]


def _normed(x: torch.Tensor) -> torch.Tensor:
    """RMSnorm of `x` (…, d)."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPS)


def _rms(u: Floats) -> float:
    """√(mean u² + eps)."""
    return float(np.sqrt(np.mean(u**2) + EPS))
