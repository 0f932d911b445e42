"""The text encoder of VITS as the theory sees it: each layer as a torch module, and its J(q) in closed form.

A layer is post-normalised, y = LN_1(x + attention(x)), F(x) = LN_2(y + K_2 * ReLU(K_1 * y + b_1) + b_2). Attention has
relative keys ρ_r and relative values ω_r, shared by its heads and zero outside |r| ≤ 4, at the lag r = i − j:

    l_ij = [Q x_i + b_Q]·[K x_j + b_K + ρ_{i−j}]/s,   o_i = Σ_j softmax_j(l_ij) [V x_j + b_V + ω_{i−j}],   O o_i + b_O

and the convolutions K_1, K_2 see tokens i − 1, i, i + 1. Nothing else knows about positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dispersion import ArgumentError, Propagator
from dispersion.errors import frozen, frozen_array, whole_number
from dispersion.ring.relation import Spectrum
from models.adapters.network import Embedding

Floats = NDArray[np.float64]
WINDOW = 4
"""The largest lag with a relative key and value."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of a layer in float64; maps act on columns, W x + b.

    query, key, value, out : (d, d), the heads of the first three one after the other, with biases *_bias (d,).
    relative_key, relative_value : (9, d_h) ρ_r and ω_r at the lags r = −4 … 4. logit_scale : s, √d_h.
    conv_in, conv_out : (f, d, 3) and (d, f, 3), for tokens i − 1, i, i + 1, with biases conv_in_bias, conv_out_bias.
    gain, shift : (2, d) of LN_1 and LN_2; epsilon : added to the variance by both.
    """

    query: Floats
    query_bias: Floats
    key: Floats
    key_bias: Floats
    value: Floats
    value_bias: Floats
    out: Floats
    out_bias: Floats
    relative_key: Floats
    relative_value: Floats
    conv_in: Floats
    conv_in_bias: Floats
    conv_out: Floats
    conv_out_bias: Floats
    gain: Floats
    shift: Floats
    logit_scale: float
    epsilon: float

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.query)

    @property
    def heads(self) -> int:
        """Number of heads h = d/d_h."""
        return self.d // self.relative_key.shape[1]

    def initialised(self, generator: np.random.Generator) -> Layer:
        """The layer before training, as VITS draws it: Q, K, V uniform within √(3/d), ρ and ω normal of deviation
        1/√d_h; the other maps and all biases uniform within 1/√(inputs); gains one, shifts zero.
        """
        d, d_h = self.d, self.relative_key.shape[1]
        inputs = dict.fromkeys(("query", "key", "value", "out"), d)
        inputs |= {"conv_in": 3 * d, "conv_out": 3 * len(self.conv_in)}
        drawn = {}
        for name, count in inputs.items():
            bound = np.sqrt(3 / d) if name in ("query", "key", "value") else count**-0.5
            drawn[name] = generator.uniform(-bound, bound, getattr(self, name).shape)
            drawn[f"{name}_bias"] = generator.uniform(-(count**-0.5), count**-0.5, len(drawn[name]))
        for name in ("relative_key", "relative_value"):
            drawn[name] = generator.normal(size=self.relative_key.shape) / np.sqrt(d_h)
        return replace(self, gain=np.ones((2, d)), shift=np.zeros((2, d)), **drawn)


class LayerModule(torch.nn.Module):
    """The map of a `Layer` on hidden states (…, N, d), float64: on a line as the network runs, or on a `ring`.

    On a ring the lag is the shortest one, −N/2 ≤ r < N/2, and the convolutions wrap, so the map is translation
    invariant. N must be 9 or more there, for no two lags of the window to be the same.
    """

    def __init__(self, layer: Layer, ring: bool = False) -> None:
        super().__init__()
        self.heads, self.ring = layer.heads, ring
        self.logit_scale, self.epsilon = layer.logit_scale, layer.epsilon
        for name, value in vars(layer).items():
            if isinstance(value, np.ndarray):
                self.register_buffer(name, torch.tensor(value))

    def forward(self, x: Tensor) -> Tensor:
        """(…, N, d) → (…, N, d)."""
        y = self._norm(0, x + self._attention(x))
        inner = torch.relu(self._convolution(y, self.conv_in, self.conv_in_bias))
        return self._norm(1, y + self._convolution(inner, self.conv_out, self.conv_out_bias))

    def _attention(self, x: Tensor) -> Tensor:
        query, key, value = (self._by_head(x, name) for name in ("query", "key", "value"))
        rho, omega = self._relative(x.shape[-2])
        logits = query @ key.transpose(-1, -2) + torch.einsum("...hic,ijc->...hij", query, rho)
        weights = torch.softmax(logits / self.logit_scale, dim=-1)
        mixed = weights @ value + torch.einsum("...hij,ijc->...hic", weights, omega)
        return mixed.transpose(-3, -2).flatten(-2) @ self.out.T + self.out_bias

    def _by_head(self, x: Tensor, name: str) -> Tensor:
        """(…, heads, N, d_h)."""
        mapped = x @ getattr(self, name).T + getattr(self, f"{name}_bias")
        return mapped.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def _relative(self, n: int) -> tuple[Tensor, Tensor]:
        """(N, N, d_h) each, ρ and ω at the lag i − j, zero outside the window."""
        lags = torch.arange(n)[:, None] - torch.arange(n)
        if self.ring:
            lags = (lags + _ring(n) // 2) % n - n // 2
        place = lags.clamp(-WINDOW, WINDOW) + WINDOW
        seen = (lags.abs() <= WINDOW)[..., None]
        return self.relative_key[place] * seen, self.relative_value[place] * seen

    def _convolution(self, x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        near = torch.stack([self._moved(x, step) for step in (1, 0, -1)], dim=-1)
        return near.flatten(-2) @ kernel.flatten(1).T + bias

    def _moved(self, x: Tensor, step: int) -> Tensor:
        """x_{i−step} at token i, zero beyond the ends of a line."""
        moved = x.roll(step, -2)
        if self.ring or step == 0:
            return moved
        inside = torch.ones(x.shape[-2], 1, dtype=x.dtype)
        inside[0 if step > 0 else -1] = 0
        return moved * inside

    def _norm(self, number: int, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        return scaled * self.gain[number] + self.shift[number]


@dataclass(frozen=True, eq=False)
class ShawDispersion(Spectrum):
    """J(q) of a `layer` in closed form, on a ring of `n` tokens at the homogeneous state 1⊗a.

    With u = Qa + b_Q of a head, its weights p_r = softmax_r(u·ρ_r/s) depend on the lag alone, for the content u·k is
    the same everywhere. A wave ε e^{iqj} moves the logits by δl_r = [ρ_r·Qε + (u·Kε) e^{−iqr}]/s + const, and with
    ω̄ = Σ_r p_r ω_r, λ(q) = Σ_r p_r e^{−iqr}, the head's output is multiplied by

        A(q) = λ(q) V + (1/s) { Cov_p(ω, ρ) Q + [Σ_r p_r (ω_r − ω̄) e^{−iqr}] (Kᵀu)ᵀ },
        Cov_p(ω, ρ) = Σ_r p_r (ω_r − ω̄) ρ_rᵀ.

    Without relative values only λ(q) V is left, the theory's channel. The query term is the same at every q; the key
    term has rank one and is zero at q = 0. With D_1, D_2 the derivatives of LN_1, LN_2, S that of ReLU (a diagonal of
    zeros and ones) and K(q) = Σ_m K_m e^{iqm} over the neighbours m = −1, 0, 1,

        J(q) = D_2 [ I + K_2(q) S K_1(q) ] D_1 [ I + Σ_h O_h A_h(q) ].

    layer : the weights. state : a, (d,). n : tokens, 9 or more. A call takes any real or complex q.
    """

    layer: Layer
    state: Floats
    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", frozen_array("state", self.state, (self.layer.d,)))
        _ring(whole_number("n", self.n, 1))

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,)."""
        return (self.n,)

    @cached_property
    def lags(self) -> NDArray[np.int64]:
        """(N,) r = −N/2 … N/2 − 1."""
        return np.arange(self.n) - self.n // 2

    @cached_property
    def weights(self) -> Floats:
        """(heads, N) p_r, the attention weights at the homogeneous state by lag."""
        logits = self._query @ self._table(self.layer.relative_key).T / self.layer.logit_scale
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return frozen(powers / powers.sum(axis=-1, keepdims=True))

    @cached_property
    def attended(self) -> Floats:
        """(d,) y = LN_1(a + attention)."""
        return self._norm(0, self._before_first)

    @cached_property
    def image(self) -> Floats:
        """(d,) g(a), for F(1⊗a) = 1⊗g(a)."""
        return self._norm(1, self._before_second)

    def symbols(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, heads) λ_h(q) at `q` (…)."""
        return np.asarray(self._waves(q) @ self.weights.T)

    @cached_property
    def channels(self) -> Floats:
        """(heads, d, d) O_h V_h, what λ_h(q) multiplies."""
        return frozen(self._out.transpose(0, 2, 1) @ self._split(self.layer.value))

    def attention(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, d, d) Σ_h O_h A_h(q) at `q` (…)."""
        layer, omega = self.layer, self._table(self.layer.relative_value)
        around = self.weights[..., None] * (omega - (self.weights @ omega)[:, None])  # p_r (ω_r − ω̄), by head
        moved = around @ self._out
        by_query = np.einsum("hrd,hre->de", moved, self._table(layer.relative_key) @ self._split(layer.query))
        turned = (self._query[:, None] @ self._split(layer.key))[:, 0]  # Kᵀu, by head
        by_key = np.einsum("...hd,he->...de", np.tensordot(self._waves(q), moved, (-1, 1)), turned)
        return np.tensordot(self.symbols(q), self.channels, axes=1) + (by_query + by_key) / layer.logit_scale

    @cached_property
    def taps(self) -> Floats:
        """(5, d, d) of C(q) = Σ_m T_m e^{iqm} over the neighbours m = −2 … 2 that two convolutions reach."""
        on = self._inner > 0
        taps = np.zeros((5, self.layer.d, self.layer.d))
        taps[2] = np.eye(self.layer.d)
        for first, second in np.ndindex(3, 3):
            taps[first + second] += self.layer.conv_out[:, on, second] @ self.layer.conv_in[on, :, first]
        return frozen(taps)

    def feedforward(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, d, d) C(q) = I + K_2(q) S K_1(q) at `q` (…)."""
        waves = np.exp(1j * np.multiply.outer(np.asarray(q), np.arange(-2, 3)))
        return np.tensordot(waves, self.taps, axes=1)

    def __call__(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, d, d) J at the real or complex wavenumbers `q` (…), radians per token."""
        first, second = self._norm_jacobian(0, self._before_first), self._norm_jacobian(1, self._before_second)
        return np.asarray(second @ self.feedforward(q) @ first @ (np.eye(self.layer.d) + self.attention(q)))

    @cached_property
    def matrices(self) -> NDArray[np.complex128]:
        """(N, d, d) J(q) on the grid."""
        return frozen(self(self.wavenumbers))

    @cached_property
    def _query(self) -> Floats:
        """(heads, d_h) u of each head."""
        return self._split(self.layer.query @ self.state + self.layer.query_bias)

    @cached_property
    def _out(self) -> Floats:
        """(heads, d_h, d) Oᵀ of each head."""
        return self._split(self.layer.out.T)

    @cached_property
    def _before_first(self) -> Floats:
        layer = self.layer
        value = self._split(layer.value @ self.state + layer.value_bias)
        mixed = value + self.weights @ self._table(layer.relative_value)
        return self.state + layer.out @ mixed.ravel() + layer.out_bias

    @cached_property
    def _inner(self) -> Floats:
        """(f,) what ReLU sees."""
        return self.layer.conv_in.sum(-1) @ self.attended + self.layer.conv_in_bias

    @cached_property
    def _before_second(self) -> Floats:
        layer = self.layer
        return self.attended + layer.conv_out.sum(-1) @ np.maximum(self._inner, 0) + layer.conv_out_bias

    def _waves(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, N) e^{−iqr}."""
        return np.exp(-1j * np.multiply.outer(np.asarray(q), self.lags))

    def _table(self, values: Floats) -> Floats:
        """(N, d_h) relative `values` at every lag, zero outside the window."""
        table = np.zeros((self.n, values.shape[1]))
        table[np.abs(self.lags) <= WINDOW] = values
        return table

    def _split(self, values: Floats) -> Floats:
        """(heads, d_h, …) of `values` (d, …)."""
        return values.reshape(self.layer.heads, -1, *values.shape[1:])

    def _norm(self, number: int, x: Floats) -> Floats:
        scaled = (x - x.mean()) / np.sqrt(x.var() + self.layer.epsilon)
        return scaled * self.layer.gain[number] + self.layer.shift[number]

    def _norm_jacobian(self, number: int, x: Floats) -> Floats:
        """(d, d) of LN: diag(gain) [I − 11ᵀ/d − zzᵀ/d]/σ with z = (x − x̄)/σ, σ² = var x + ε."""
        sigma = np.sqrt(x.var() + self.layer.epsilon)
        z = (x - x.mean()) / sigma
        return self.layer.gain[number][:, None] * (np.eye(len(x)) - (1 + np.multiply.outer(z, z)) / len(x)) / sigma


@dataclass(frozen=True, eq=False)
class Encoder:
    """The text encoder: vectors of the phonemes, and the layers, the first first.

    embedding : √d times the learned vectors, no positions. layers : their weights.
    ring : whether `modules` are those of a ring of tokens, or of a line as the network runs.
    """

    embedding: Embedding
    layers: tuple[Layer, ...]
    ring: bool = False

    @property
    def d(self) -> int:
        """Number of features."""
        return self.layers[0].d

    @cached_property
    def modules(self) -> tuple[LayerModule, ...]:
        """The map of each layer, (…, N, d) → (…, N, d)."""
        return tuple(LayerModule(layer, self.ring) for layer in self.layers)

    def through_layers(self, state: ArrayLike, n: int) -> Propagator:
        """The product of J(q) in closed form along the layers, from 1⊗`state` on a ring of `n` tokens."""
        relations: list[ShawDispersion] = []
        for layer in self.layers:
            relations.append(ShawDispersion(layer, relations[-1].image if relations else np.asarray(state), n))
        return Propagator(tuple(relations))

    def initialised(self, rng: int) -> Encoder:
        """The same architecture before training, as VITS draws it; rng : the seed."""
        generator = np.random.default_rng(rng)
        assert self.embedding.tokens is not None
        return Encoder(
            Embedding(tokens=generator.normal(size=self.embedding.tokens.shape)),
            tuple(layer.initialised(generator) for layer in self.layers),
            self.ring,
        )


def load(path: Path | str) -> Encoder:
    """The encoder in the ONNX file of a voice of Piper, read by the package onnx; an ArgumentError if it has none."""
    import onnx

    graph = onnx.load(path).graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor).astype(float) for tensor in graph.initializer}
    inputs = {node.name: list(node.input) for node in graph.node}
    layers = range(sum(name.startswith("enc_p.") and name.endswith("emb_rel_k") for name in stored))
    try:
        vectors, scale = stored[inputs["/enc_p/emb/Gather"][0]], stored[inputs["/enc_p/Mul"][1]]
        return Encoder(Embedding(tokens=vectors * scale), tuple(_layer(stored, inputs, number) for number in layers))
    except KeyError as error:
        raise ArgumentError("path", f"{path} without {error}", "the ONNX file of a voice of Piper") from None


def _layer(stored: dict[str, Floats], inputs: dict[str, list[str]], number: int) -> Layer:
    attention, conv = f"enc_p.encoder.attn_layers.{number}.", f"enc_p.encoder.ffn_layers.{number}.conv_"
    norms = [f"enc_p.encoder.norm_layers_{which}.{number}." for which in (1, 2)]
    parts: dict[str, Floats] = {}
    for name, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "o")):
        parts[name] = stored[f"{attention}conv_{letter}.weight"][..., 0]
        parts[f"{name}_bias"] = stored[f"{attention}conv_{letter}.bias"]
    for name, digit in (("conv_in", 1), ("conv_out", 2)):
        parts[name], parts[f"{name}_bias"] = stored[f"{conv}{digit}.weight"], stored[f"{conv}{digit}.bias"]
    return Layer(
        **parts,
        # stored by key − query, and r = query − key
        relative_key=stored[f"{attention}emb_rel_k"][0, ::-1].copy(),
        relative_value=stored[f"{attention}emb_rel_v"][0, ::-1].copy(),
        gain=np.array([stored[f"{norm}gamma"] for norm in norms]),
        shift=np.array([stored[f"{norm}beta"] for norm in norms]),
        logit_scale=float(stored[inputs[f"/enc_p/encoder/attn_layers.{number}/Div"][1]]),
        epsilon=float(stored[inputs[f"/enc_p/encoder/norm_layers_1.{number}/Add"][1]]),
    )


def _ring(n: int) -> int:
    if n < 2 * WINDOW + 1:
        raise ArgumentError("n", n, f"a ring of {2 * WINDOW + 1} tokens or more, for the window of ±{WINDOW} to fit")
    return n
