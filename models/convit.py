"""Weight-tied ConViT on a torus of patches, with seven initialisations (App. K).

One block, applied at every depth, of gated positional self-attention (GPSA, arXiv 2103.10697) and a GELU MLP:

    A_h = (1 − g_h) softmax(q_iᵀk_j/√d_h) + g_h softmax(v_h·(‖δ‖², δ_1, δ_2)),   g_h = σ(gate_h),   δ = key − query
    y_i = x_i + ε_a Σ_h Σ_j A_h,ij O_h V_h n(x_j),   F(X)_i = y_i + φ(n(y_i))

or, with PSA, of one softmax of the sum of both logits; δ is periodic, and n is the identity or LayerNorm.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dispersion.block.block import Block
from dispersion.block.factors import OutputValue, QueryKey
from dispersion.block.feedforward import FeedForward
from dispersion.block.head import Head
from dispersion.block.kernel import Kernel
from dispersion.block.normalisation import LayerNorm
from dispersion.errors import ArgumentError, real_number, whole_number
from dispersion.noun import Noun

if TYPE_CHECKING:
    from models.module import TorchBlock

Floats = NDArray[np.float64]

NAMES = ("default", "+I", "-I", "default+pos", "+I+pos", "-I+pos", "-I+sharp pos")
"""The seven initialisations of App. K.2; the last is the paper's 'engineered'."""

PRESETS = {"paper": ((16, 16), 216, 9, 12), "small": ((8, 8), 36, 9, 12)}
"""Torus, d, heads and depth: those of the paper, and small ones for tests and quick figures."""

LOCALITY, SHARP = 1.0, 4.0
"""Locality strengths α of '+pos', as in ConViT's reference code, and of '+sharp pos', which the paper leaves open."""
GATE = 1.0
"""Initial gate of ConViT's reference code, g = σ(1) = 0.73."""
SPREAD = 0.02
"""Standard deviation of small random weights, truncated at two of it."""
OV, QK = 0.4, 0.7
"""Mimetic initialisation (arXiv 2305.09828): OV = 0.4 Z ± 0.4 I, QᵀK = 0.7 Z + 0.7 I, Z of variance 1/d."""
RESIDUAL = 0.25
"""ε_a at initialisation, which the paper leaves open (it is learned)."""
PATCH = 12
"""Numbers in a patch: 2 × 2 pixels of three colours."""


@dataclass(frozen=True, eq=False)
class ConViT(Noun):
    """A weight-tied ConViT as numbers: `block()` is its Block, `module()` its PyTorch network.

    Parameters
    ----------
    shape : tuple of int
        (N_1, N_2) of the torus of patches.
    depth : int
        How often the block is applied.
    query, key, value, output : (d, d) ndarray
        Q, K, V, O as in nn.Linear; head h has rows h·d_h … of Q, K, V and these columns of O.
    position : (heads, 3) ndarray
        v_h, of (‖δ‖², δ_1, δ_2).
    gate : (heads,) ndarray
        Before the sigmoid.
    weight_in : (4d, d) ndarray
        First map of the MLP, which has no biases.
    weight_out : (d, 4d) ndarray
        Second map of the MLP.
    state : (d,) ndarray
        a, an image of one colour after the patch embedding: the base state 1⊗a.
    attention : {'gpsa', 'psa'}
        Gated, or one softmax of the sum of both logits.
    norm : {None, 'pre'}
        Where the normalisations are.
    attention_scale : float
        ε_a.
    """

    shape: tuple[int, int]
    depth: int
    query: Floats
    key: Floats
    value: Floats
    output: Floats
    position: Floats
    gate: Floats
    weight_in: Floats
    weight_out: Floats
    state: Floats
    attention: str = "gpsa"
    norm: str | None = None
    attention_scale: float = RESIDUAL

    @classmethod
    def preset(
        cls,
        name: str,
        size: str = "paper",
        attention: str = "gpsa",
        norm: str | None = None,
        attention_scale: float = RESIDUAL,
        rng: int = 0,
    ) -> ConViT:
        """One of the seven initialisations.

        Parameters
        ----------
        name : str
            'default' (all weights small and random, no positional logits), '+I' or '-I' (mimetic QK and
            OV = 0.4 Z ± 0.4 I), each also with '+pos' (positional logits as ConViT initialises them), or
            '-I+sharp pos'.
        size : {'paper', 'small'}
            'paper' (16×16, d = 216, 9 heads, 12 layers) or 'small' (8×8, d = 36).
        attention : {'gpsa', 'psa'}
            Gated, or one softmax of the sum of both logits.
        norm : {None, 'pre'}
            Where the normalisations are.
        attention_scale : float
            ε_a.
        rng : int
            The seed; Z and the small weights of one seed are the same in all that have them.
        """
        known = {"name": (name, NAMES), "size": (size, tuple(PRESETS)), "attention": (attention, ("gpsa", "psa"))}
        for argument, (given, accepted) in {**known, "norm": (norm, (None, "pre"))}.items():
            if given not in accepted:
                raise ArgumentError(argument, repr(given), ", ".join(map(repr, accepted)))
        shape, d, heads, depth = PRESETS[size]
        scale = real_number("attention_scale", attention_scale)
        # each part has a stream of its own
        streams = np.random.default_rng(whole_number("rng", rng, 0)).spawn(8)
        small = [_truncated(stream, (d, d)) for stream in streams[:4]]
        weight_in, weight_out = _truncated(streams[4], (4 * d, d)), _truncated(streams[5], (d, 4 * d))
        if not name.startswith("default"):
            sign = 1.0 if name.startswith("+") else -1.0
            small = [*_mimetic_pairs(streams[0], d, heads), *reversed(_factors(streams[2], d, OV, sign * OV, d))]
        strength = SHARP if "sharp" in name else LOCALITY if "pos" in name else 0.0
        query, key, value, output = small
        return cls(
            shape=shape,
            depth=depth,
            query=query,
            key=key,
            value=value,
            output=output,
            position=strength * _local(heads),
            gate=np.full(heads, GATE),
            weight_in=weight_in,
            weight_out=weight_out,
            state=_embedded(streams[6], d),
            attention=attention,
            norm=norm,
            attention_scale=scale,
        )

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.state)

    @property
    def heads(self) -> int:
        """Number of heads."""
        return len(self.gate)

    def block(self) -> Block:
        """The Block of one layer, for `dispersion_relation` and `along_orbit`."""
        d, width = self.d, self.d // self.heads
        heads = []
        for h in range(self.heads):
            rows = slice(h * width, (h + 1) * width)
            kernel = Kernel.convit_learned(self.shape, self.position[h])
            gate = float(1 / (1 + np.exp(-self.gate[h]))) if self.attention == "gpsa" else None
            factors = OutputValue(self.output[:, rows], self.value[rows]), QueryKey(self.query[rows], self.key[rows])
            heads.append(Head(kernel, *factors, gate=gate))
        norm = None if self.norm is None else LayerNorm.identity(d)
        feedforward = FeedForward(self.weight_in, self.weight_out, "gelu")
        return Block(heads, feedforward, self.attention_scale, norm, norm)

    def module(self) -> TorchBlock:
        """The PyTorch module in float64, (…, N, d) → (…, N, d), of one layer; `export` gives the block back.

        The norms and the MLP have no gains and biases to train.
        """
        from models.module import to_torch

        net = to_torch(self.block())
        for name, numbers in net.named_parameters():
            numbers.requires_grad_("norm" not in name and "bias" not in name)
        return net

    def forward(self, x: Floats, depth: int | None = None) -> Floats:
        """(…, N, d) the states after some layers of the PyTorch module.

        Parameters
        ----------
        x : (…, N, d) ndarray
            The states before them.
        depth : int, optional
            Number of layers, all L by default.
        """
        import torch

        net, state = self.module(), torch.tensor(x)
        with torch.no_grad():
            for _ in range(self.depth if depth is None else whole_number("depth", depth, 0)):
                state = net(state)
        return np.array(state.numpy())


def _truncated(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Normal numbers of standard deviation SPREAD, those beyond two of it drawn again."""
    values = rng.normal(size=shape)
    while (far := np.abs(values) > 2).any():
        values[far] = rng.normal(size=int(far.sum()))
    return SPREAD * values


def _factors(rng: np.random.Generator, d: int, random: float, identity: float, rank: int) -> tuple[Floats, Floats]:
    """(L, R), (d, rank) and (rank, d), with LR the best approximation of `random` Z + `identity` I of that rank."""
    matrix = random * rng.normal(size=(d, d)) / np.sqrt(d) + identity * np.eye(d)
    U, S, V = np.linalg.svd(matrix)
    root = np.sqrt(S[:rank])
    return U[:, :rank] * root, root[:, None] * V[:rank]


def _mimetic_pairs(rng: np.random.Generator, d: int, heads: int) -> tuple[Floats, Floats]:
    """(Q, K) with Q_hᵀK_h ≈ 0.7 Z_h + 0.7 I for each head."""
    pairs = [_factors(rng, d, QK, QK, d // heads) for _ in range(heads)]
    return np.concatenate([left.T for left, _ in pairs]), np.concatenate([right for _, right in pairs])


def _local(heads: int) -> Floats:
    """(heads, 3) v = −(1, −2Δ_1, −2Δ_2), the centres Δ = key − query of the heads on a square around the query."""
    side = isqrt(heads)
    axis = np.arange(side) - (side - 1) / 2
    centres = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    return -np.concatenate([np.ones((heads, 1)), -2 * centres], axis=1)


def _embedded(rng: np.random.Generator, d: int) -> Floats:
    """(d,) an image of ones through a patch embedding with PyTorch's default initialisation of a convolution."""
    bound = 1 / np.sqrt(PATCH)
    return rng.uniform(-bound, bound, size=(d, PATCH + 1)).sum(axis=1)
