"""Transformer encoders with untied layers and masks of their own, as nouns: the numbers of one network.

    x_j = E[token_j] + p_j,  x ← x + O A(LN x) V LN x + c,  x ← x + φ(LN x),  y = W LN(pooled x) + b

with A = softmax(q_i·k_j/√d_h + log σ(M_ij) + b_{i−j}) and φ of one GELU layer, as the GOTU experiments have it. Every
layer is a `dispersion.Block`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block, FeedForward, Head, Kernel, LayerNorm, mask_logits
from dispersion.block.factors import OutputValue, QueryKey
from dispersion.errors import (
    RNG,
    check_shape,
    choice,
    frozen_array,
    frozen_logits,
    generator,
    real_number,
    whole_array,
    whole_number,
)
from dispersion.noun import Noun, cached_property

Floats = NDArray[np.float64]

POOLS = ("mean", "cls", "tokens")
"""What is read out: the mean over tokens, a token of its own that comes first, or every token."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Encoder(Noun):
    """One network of L layers of H heads of w features on T tokens, whose queries, keys and masks can be replaced.

    Parameters
    ----------
    embedding : (V, d) array_like
        E, one row for each kind of token.
    positions : (T, d) array_like
        p.
    start : (d,) array_like or None
        What the first token is embedded as where it is read out ('cls'); T is then one more than the inputs have.
    attention_gain, attention_shift : (L, d) array_like
        Of the LayerNorm before attention.
    query, key, value : (L, H, w, d) array_like
        Without biases.
    output : (L, d, H, w) array_like
        O of each head, side by side.
    output_bias : (L, d) array_like
        c.
    mask : (L, H, T, T) array_like
        M; −inf closes a pair for good, and a constant is no mask.
    kernel : (L, H, T) array_like
        b_r by lag r = i − j on the ring of all T tokens.
    mlp_gain, mlp_shift : (L, d) array_like
        Of the LayerNorm before the feed-forward.
    weight_in, bias_in, weight_out, bias_out : (L, m, d), (L, m), (L, d, m) and (L, d) array_like
        Of the feed-forward.
    final_gain, final_shift : (d,) array_like
        Of the LayerNorm before the readout.
    readout, bias : (K, d) and (K,) array_like
        W and b.
    pool : str
        'mean', 'cls' or 'tokens'.
    eps : float
        Of all LayerNorms.
    """

    embedding: Floats
    positions: Floats
    start: Floats | None = None
    attention_gain: Floats
    attention_shift: Floats
    query: Floats
    key: Floats
    value: Floats
    output: Floats
    output_bias: Floats
    mask: Floats
    kernel: Floats
    mlp_gain: Floats
    mlp_shift: Floats
    weight_in: Floats
    bias_in: Floats
    weight_out: Floats
    bias_out: Floats
    final_gain: Floats
    final_shift: Floats
    readout: Floats
    bias: Floats
    pool: str = "mean"
    eps: float = 1e-5

    def __post_init__(self) -> None:
        choice("pool", self.pool, POOLS)
        object.__setattr__(self, "eps", real_number("eps", self.eps, positive=True))
        query = np.shape(self.query)
        if len(query) != 4:
            raise ArgumentError("query", f"shape {query}", "shape (L, H, w, d)")
        (L, H, w, d), T = query, len(self.positions)
        m, K = np.shape(self.weight_in)[1], len(self.bias)
        shapes: dict[str, tuple[int | None, ...]] = {
            "embedding": (None, d),
            "positions": (T, d),
            **dict.fromkeys(("query", "key", "value"), (L, H, w, d)),
            "output": (L, d, H, w),
            "kernel": (L, H, T),
            **dict.fromkeys(("attention_gain", "attention_shift", "mlp_gain", "mlp_shift"), (L, d)),
            **dict.fromkeys(("output_bias", "bias_out"), (L, d)),
            "weight_in": (L, m, d),
            "bias_in": (L, m),
            "weight_out": (L, d, m),
            **dict.fromkeys(("final_gain", "final_shift"), (d,)),
            "readout": (K, d),
            "bias": (K,),
        }
        for name, shape in shapes.items():
            object.__setattr__(self, name, frozen_array(name, getattr(self, name), shape))
        object.__setattr__(self, "mask", frozen_logits("mask", self.mask, (L, H, T, T)))
        if (self.start is None) == (self.pool == "cls"):
            raise ArgumentError("start", "none" if self.start is None else "one", "one with the pool 'cls' alone")
        if self.start is not None:
            object.__setattr__(self, "start", frozen_array("start", self.start, (d,)))

    @classmethod
    def draw(
        cls,
        rng: RNG,
        *,
        vocabulary: int = 2,
        n: int = 8,
        d: int = 64,
        layers: int = 2,
        heads: int = 3,
        width: int = 16,
        hidden: int = 64,
        outputs: int = 1,
        pool: str = "mean",
    ) -> Encoder:
        """A network as PyTorch and GOTU start it: N(0, 1) embeddings and positions, U(±1/√fan-in) elsewhere, M = 0.

        Parameters
        ----------
        rng : int or numpy.random.Generator
            Source of randomness.
        vocabulary, n, d, layers, heads, width, hidden, outputs : int
            V, tokens of an input, d, L, H, w, m and K.
        pool : str
            'mean', 'cls' or 'tokens'.
        """
        sizes = {"vocabulary": vocabulary, "n": n, "d": d, "layers": layers, "heads": heads, "width": width}
        sizes |= {"hidden": hidden, "outputs": outputs}
        V, n, d, L, H, w, m, K = (whole_number(name, size, 1) for name, size in sizes.items())
        rng, cls_token = generator("rng", rng), choice("pool", pool, POOLS) == "cls"
        T = n + cls_token

        def uniform(fan_in: int, *shape: int) -> Floats:
            return rng.uniform(-1, 1, shape) / sqrt(fan_in)

        ones, zeros = np.ones((L, d)), np.zeros((L, d))
        return cls(
            embedding=rng.normal(size=(V, d)),
            positions=rng.normal(size=(T, d)),
            start=rng.normal(size=d) if cls_token else None,
            attention_gain=ones,
            attention_shift=zeros,
            query=uniform(d, L, H, w, d),
            key=uniform(d, L, H, w, d),
            value=uniform(d, L, H, w, d),
            output=uniform(H * w, L, d, H, w),
            output_bias=uniform(H * w, L, d),
            mask=np.zeros((L, H, T, T)),
            kernel=np.zeros((L, H, T)),
            mlp_gain=ones,
            mlp_shift=zeros,
            weight_in=uniform(d, L, m, d),
            bias_in=uniform(d, L, m),
            weight_out=uniform(m, L, d, m),
            bias_out=uniform(m, L, d),
            final_gain=ones[0],
            final_shift=zeros[0],
            readout=uniform(d, K, d),
            bias=uniform(d, K),
            pool=pool,
        )

    @property
    def tokens(self) -> int:
        """T, the token that is read out included."""
        return len(self.positions)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The L layers, with log σ(M) as the bias of each head."""
        bias, found = mask_logits(self.mask), []
        for layer in range(len(self.query)):
            heads = [
                Head(
                    Kernel.table(self.kernel[layer, h]),
                    OutputValue(self.output[layer, :, h], self.value[layer, h]),
                    QueryKey(self.query[layer, h], self.key[layer, h]),
                    bias=bias[layer, h],
                )
                for h in range(self.query.shape[1])
            ]
            weights = self.weight_in[layer], self.weight_out[layer]
            found.append(
                Block(
                    heads,
                    FeedForward(*weights, "gelu", self.bias_in[layer], self.bias_out[layer]),
                    attention_norm=LayerNorm(self.attention_gain[layer], self.attention_shift[layer], self.eps),
                    feedforward_norm=LayerNorm(self.mlp_gain[layer], self.mlp_shift[layer], self.eps),
                    attention_bias=self.output_bias[layer],
                )
            )
        return tuple(found)

    @cached_property
    def home_states(self) -> Floats:
        """(L, T, d) states before each layer of a sequence without content: every token is the mean embedding."""
        return self._through(self._embedded(self.embedding.mean(axis=0)))[:-1]

    @cached_property
    def home(self) -> Floats:
        """(L, T, d) `home_states` as queries and keys see them, after the LayerNorm."""
        return self._seen(self.home_states)

    @cached_property
    def home_attention(self) -> Floats:
        """(L, H, T, T) attention weights of the sequence without content."""
        return self._attention(self.home)

    def states(self, inputs: ArrayLike) -> Floats:
        """(L + 1, B, T, d) states before each layer and after the last.

        Parameters
        ----------
        inputs : (B, n) int array_like
            Tokens.
        """
        kinds = whole_array("inputs", inputs)
        n, V = self.tokens - (self.start is not None), len(self.embedding)
        check_shape("inputs", kinds, (None, n))
        if not ((kinds >= 0) & (kinds < V)).all():
            raise ArgumentError("inputs", f"tokens {kinds.min()} … {kinds.max()}", f"tokens 0 … {V - 1}")
        return self._through(self._embedded(self.embedding[kinds]))

    def attention(self, inputs: ArrayLike) -> Floats:
        """(L, H, B, T, T) attention weights.

        Parameters
        ----------
        inputs : (B, n) int array_like
            Tokens.
        """
        return self._attention(self._seen(self.states(inputs)[:-1]))

    def __call__(self, inputs: ArrayLike) -> Floats:
        """(B, K) outputs, or (B, T, K) of every token.

        Parameters
        ----------
        inputs : (B, n) int array_like
            Tokens.
        """
        x = self.states(inputs)[-1]
        pooled = {"mean": lambda: x.mean(axis=1), "cls": lambda: x[:, 0], "tokens": lambda: x}[self.pool]()
        return np.asarray(LayerNorm(self.final_gain, self.final_shift, self.eps)(pooled) @ self.readout.T + self.bias)

    def _embedded(self, content: Floats) -> Floats:
        """(…, T, d) of the `content` of the inputs, (…, n, d) or (d,) for all the same."""
        if content.ndim == 1:
            content = np.broadcast_to(content, (self.tokens - (self.start is not None), len(content)))
        if self.start is not None:
            first = np.broadcast_to(self.start, (*content.shape[:-2], 1, len(self.start)))
            content = np.concatenate([first, content], axis=-2)
        return content + self.positions

    def _through(self, x: Floats) -> Floats:
        found = [x]
        for block in self.blocks:
            found.append(block.forward(found[-1]))
        return np.array(found)

    def _seen(self, states: Floats) -> Floats:
        norms = zip(self.attention_gain, self.attention_shift, states, strict=True)
        return np.array([LayerNorm(gain, shift, self.eps)(x) for gain, shift, x in norms])

    def _attention(self, seen: Floats) -> Floats:
        layers = zip(self.blocks, seen, strict=True)
        return np.array([[head.attention(x) for head in block.heads] for block, x in layers])
