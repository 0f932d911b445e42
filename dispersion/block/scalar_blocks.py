"""Many scalar (d = 1) blocks on rings of one N at once: their fields as arrays, points first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.activation import Activation
from dispersion.block.block import Block
from dispersion.block.kernel import grid_symbol
from dispersion.errors import ArgumentError
from dispersion.noun import Noun, cached_property

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScalarHeads(Noun):
    """The heads of P plain scalar blocks; a block with fewer heads than others has zero heads at its end.

    logits : (P, H, N) b_r − max b, by lag r mod N. content : (P, H) χ_h. value : (P, H) η_h, ε_a times the value.
    """

    logits: Floats
    content: Floats
    value: Floats

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Self:
        """Those of `blocks`, all with d = 1 and one N."""
        return cls(**_heads(blocks))

    @property
    def n(self) -> int:
        """Number of tokens N."""
        return self.logits.shape[-1]

    @cached_property
    def weights(self) -> Floats:
        """(P, H, N) attention weights A_r at the state 0."""
        weights = np.exp(self.logits)
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    @property
    def symbols(self) -> NDArray[np.complex128]:
        """(P, H, N) λ_h(2πk/N), as `Kernel.symbol`."""
        return grid_symbol(self.weights, 1)


@dataclass(frozen=True, eq=False)
class ScalarBlocks(ScalarHeads):
    """P plain scalar blocks with one activation: heads and feed-forwards, missing hidden units being zero.

    activation : its name, None for no feed-forward at any point.
    weight_in, bias_in, weight_out : (P, m); bias_out : (P, 1).
    coefficients : (P, degree) of a polynomial activation; degree 0 otherwise.
    """

    activation: str | None
    weight_in: Floats
    bias_in: Floats
    weight_out: Floats
    bias_out: Floats
    coefficients: Floats

    @classmethod
    def of(cls, blocks: Sequence[Block], labels: Sequence[str] | None = None) -> Self:
        """Those of `blocks`, all plain with d = 1, one N and one activation (or no feed-forward).

        An ArgumentError names, by its label, the first block that does not fit.
        """
        n = blocks[0].n
        forwards = [block.feedforward for block in blocks]
        activation = next((part.activation.name for part in forwards if part is not None), None)
        for label, block in zip(labels or [f"blocks[{i}]" for i in range(len(blocks))], blocks, strict=True):
            if (block.n, block.d) != (n, 1):
                raise ArgumentError(label, f"N = {block.n}, d = {block.d}", f"N = {n}, d = 1 at every point")
            if not block.plain:
                accepted = "a ring, and no norm, gate, bias or rotary encoding"
                raise ArgumentError(label, "a block beyond Eqs. 1–2", accepted)
            if block.feedforward is not None and block.feedforward.activation.name != activation:
                got = f"activation {block.feedforward.activation.name!r}"
                raise ArgumentError(label, got, f"{activation!r} at every point")
        return cls(
            **_heads(blocks),
            activation=activation,
            weight_in=_padded([() if part is None else part.weight_in[:, 0] for part in forwards]),
            bias_in=_padded([() if part is None else part.bias_in for part in forwards]),
            weight_out=_padded([() if part is None else part.weight_out[0] for part in forwards]),
            bias_out=np.array([[0.0 if part is None else part.bias_out[0]] for part in forwards]),
            coefficients=_padded([() if part is None else part.activation.coefficients for part in forwards]),
        )

    def take(self, points: NDArray) -> Self:
        """Some of the points."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "activation"}
        return replace(self, **{name: array[points] for name, array in arrays.items()})

    @property
    def pointwise(self) -> Floats:
        """(P,) C = 1 + Σ_m o_m w_m act'(b_m) at the state 0; NaN where ReLU has a unit of zero bias."""
        bias = self.bias_in
        if self.activation is None:
            slope = np.zeros_like(bias)
        elif self.activation == "polynomial":
            degrees = np.arange(1, self.coefficients.shape[1] + 1)
            slope = (degrees * self.coefficients[:, None, :] * bias[..., None] ** (degrees - 1)).sum(axis=-1)
        elif self.activation == "relu":
            slope = np.where(bias == 0, np.nan, bias > 0)
        else:
            slope = Activation(self.activation).taylor(bias, 1)[..., 1]
        through = self.weight_out * self.weight_in
        return np.asarray(1 + np.where(through == 0, 0.0, through * slope).sum(axis=1))

    @property
    def multipliers(self) -> NDArray[np.complex128]:
        """(P, N//2+1) Λ_k = C(1 + Σ_h η_h λ_h(2πk/N)) at the state 0 (Eq. 9), 0 ≤ k ≤ N/2; NaN where C is."""
        symbols = self.symbols[..., : self.n // 2 + 1]
        return np.asarray(self.pointwise[:, None] * (1 + np.einsum("ph,phk->pk", self.value, symbols)))


def _heads(blocks: Sequence[Block]) -> dict[str, Any]:
    logits = _padded([[head.kernel.logits for head in block.heads] for block in blocks], (blocks[0].n,))
    scale = np.array([block.attention_scale for block in blocks])
    return {
        "logits": logits - logits.max(axis=-1, keepdims=True),
        "content": _padded([[head.content[0, 0] for head in block.heads] for block in blocks]),
        "value": scale[:, None] * _padded([[head.value[0, 0] for head in block.heads] for block in blocks]),
    }


def _padded(rows: Sequence[ArrayLike], tail: tuple[int, ...] = ()) -> Floats:
    """(rows, longest, *tail) the ragged rows, filled up with zeros."""
    lengths = [np.shape(row)[0] for row in rows]
    longest = max(lengths)
    if longest and min(lengths) == longest:
        return np.array(rows, dtype=np.float64)
    padded = np.zeros((len(rows), longest, *tail))
    for place, row, length in zip(padded, rows, lengths, strict=True):
        if length:
            place[:length] = row
    return padded
