"""A block to first order at a homogeneous state 1⊗a, where the derivative of the attention weights drops out (Eq. 55):

u_i → C [u_i + ε_a Σ_h Σ_j (A_h)_ij M_h N_1 u_j],   C = DH(y*),   N_1 = DLN_1(a)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.block import Block
from dispersion.block.factors import summed
from dispersion.errors import ArgumentError, frozen, instance
from dispersion.memory import require
from dispersion.noun import Noun, cached_property
from dispersion.stacks import LARGE

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Slopes(Noun):
    """The slopes of a `block` at 1⊗`state`, (d,): what is the same whatever the attention weights A_h are.

    Fields u are (n, d) for any n; `attention` is A_h, (n, n) for each head.
    """

    block: Block
    state: Floats

    @cached_property
    def seen(self) -> Floats:
        """(d,) LN_1(a), what every head sees of every token."""
        return self.block.seen(self.state)

    @cached_property
    def pointwise(self) -> Floats:
        """(d, d) C = DH(y*)."""
        return self.block.pointwise_jacobian(self.block.attended(self.state))

    @cached_property
    def inner(self) -> Floats:
        """(d, d) N_1."""
        return self.block.seen_jacobian(self.state)

    @cached_property
    def factors(self) -> tuple[Floats, Floats] | None:
        """(ε_a C [O_1 O_2 …] (d, m), [V_1; V_2; …] N_1 (m, d)) of value maps M_h = O_h V_h side by side; None where one
        has no factors.
        """
        maps = [head.output_value for head in self.block.heads]
        values = [part.value for part in maps if part.value is not None]
        if len(values) < len(maps):
            return None
        write = self.block.attention_scale * self.pointwise @ np.concatenate([part.output for part in maps], axis=1)
        return np.asarray(write), np.concatenate(values) @ self.inner

    @cached_property
    def _ends(self) -> NDArray[np.intp]:
        """Where in the `factors` every head but the first begins."""
        return np.cumsum([head.output_value.output.shape[1] for head in self.block.heads])[:-1]

    @cached_property
    def channels(self) -> Floats:
        """(heads, d, d) ε_a C M_h N_1, what λ_h(q) multiplies."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self.factors is not None:
                write, read = self.factors
                pairs = zip(np.split(write, self._ends, axis=1), np.split(read, self._ends), strict=True)
                return np.array([out @ value for out, value in pairs])
            values = np.array([head.value for head in self.block.heads])
            return np.asarray(self.block.attention_scale * self.pointwise @ values @ self.inner)

    def channel(self, heads: Sequence[int]) -> Floats:
        """(d, d) ε_a C Σ_h M_h N_1 of the `heads` of these numbers, what a λ(q) that they share multiplies."""
        return self._channels[tuple(heads)]

    @cached_property
    def _channels(self) -> _Made:
        return _Made(self)

    @property
    def homogeneous(self) -> Floats:
        """(d, d) Dg(a) = C[I + ε_a Σ_h M_h N_1] = J(0), where every λ_h is 1."""
        attention = self.block.attention_scale * summed([head.output_value for head in self.block.heads]) @ self.inner
        return np.asarray(self.pointwise @ (np.eye(self.block.d) + attention))

    @property
    def finite(self) -> bool:
        """Whether C and every channel are within float64; channels of factors are made only if their sizes leave it
        open.
        """
        if not np.isfinite(self.pointwise).all():
            return False
        maps = [head.output_value for head in self.block.heads]
        factors = [(part.output, part.value) for part in maps if part.value is not None]
        if len(factors) == len(maps):
            sizes = [[np.abs(each).max() for each in (self.pointwise, *pair, self.inner)] for pair in factors]
            # sums over d, d_v and d in a row; a small factor must not hide a large product before it
            largest = np.log10(np.maximum(sizes, 1)).sum(axis=1).max() + 4 * np.log10(self.block.d)
            if largest + np.log10(max(1.0, abs(self.block.attention_scale))) < np.finfo(float).maxexp * np.log10(2) - 1:
                return True
        return bool(np.isfinite(self.channels).all())

    def matrices(self, symbols: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """(…, d, d) J = C + Σ_h λ_h (ε_a C M_h N_1) where the heads have the `symbols` λ_h, (heads, …) (Eqs. 9, 68).

        Heads with one λ at all wavenumbers count as one.
        """
        count, d = symbols[0].size, self.block.d
        require("block", f"J(q) of {d:,} features at {count:,} wavenumbers", 64 * count * d**2)
        alike: dict[bytes, list[int]] = {}
        for number, symbol in enumerate(symbols):
            alike.setdefault(symbol.tobytes(), []).append(number)
        groups, channels = list(alike.values()), self.channels if len(alike) == len(symbols) else None
        if channels is None:
            channels, symbols = np.array([self.channel(group) for group in groups]), symbols[[g[0] for g in groups]]
        if d < LARGE:
            mixed: NDArray[np.complex128] = np.tensordot(symbols, channels.astype(complex), axes=(0, 0))
            return mixed + self.pointwise
        matrices = np.empty((*symbols[0].shape, d, d), dtype=complex)
        matrices.real = np.tensordot(symbols.real, channels, axes=(0, 0))
        matrices.real += self.pointwise
        matrices.imag = np.tensordot(symbols.imag, channels, axes=(0, 0))
        return matrices

    def attention(self) -> list[Floats]:
        """(N, N) A_h of each head on the ring or torus of the block."""
        seen = np.tile(self.seen, (self.block.n, 1))
        weights = [head.attention(seen) for head in self.block.heads]
        if not all(np.isfinite(each).all() for each in weights):
            raise ArgumentError("state", "logits beyond float64", "a state whose logits are finite")
        return weights

    def apply(self, attention: Sequence[Floats] | Floats, u: NDArray) -> NDArray:
        """(n, d) [u + ε_a Σ_h A_h (u N_1ᵀ) M_hᵀ] Cᵀ."""
        if self.factors is not None:
            write, read = self.factors
            return np.asarray(u @ self.pointwise.T + self._mixed(attention, u @ read.T) @ write.T)
        inner, heads = u @ self.inner.T, zip(attention, self.block.heads, strict=True)
        mixed = sum(head.output_value.mix(weights, inner) for weights, head in heads)
        return np.asarray((u + self.block.attention_scale * mixed) @ self.pointwise.T)

    def apply_transposed(self, attention: Sequence[Floats] | Floats, u: NDArray) -> NDArray:
        """(n, d) v + ε_a Σ_h (A_hᵀ v M_h) N_1, v = u C: the transpose of `apply`."""
        if self.factors is not None:
            write, read = self.factors
            back = self._mixed([np.transpose(weights) for weights in attention], u @ write)
            return np.asarray(u @ self.pointwise + back @ read)
        v, heads = u @ self.pointwise, zip(attention, self.block.heads, strict=True)
        mixed = sum(head.output_value.mix_transposed(weights, v) for weights, head in heads)
        return np.asarray(v + self.block.attention_scale * mixed @ self.inner)

    def _mixed(self, attention: Sequence[Floats] | Floats, u: NDArray) -> NDArray:
        """(n, m) A_h of each head on its features of `u` (n, m), in the order of the `factors`."""
        heads = zip(attention, np.split(u, self._ends, axis=1), strict=True)
        return np.concatenate([weights @ part for weights, part in heads], axis=1)

    def dense(self, attention: Sequence[Floats] | Floats) -> Floats:
        """(n·d, n·d) I⊗C + Σ_h A_h ⊗ ε_a C M_h N_1: the matrix of `apply`, tokens before features."""
        return assembled(self.pointwise, self.channels, attention)


class _Made(dict[tuple[int, ...], Floats]):
    """The channels of groups of heads that were asked for."""

    def __init__(self, slopes: Slopes) -> None:
        super().__init__()
        self.slopes = slopes

    def __missing__(self, heads: tuple[int, ...]) -> Floats:
        block, C, N = self.slopes.block, self.slopes.pointwise, self.slopes.inner
        made = block.attention_scale * C @ summed([block.heads[number].output_value for number in heads]) @ N
        self[heads] = frozen(np.asarray(made))
        return self[heads]


def slopes_at(block: Block, state: ArrayLike | None) -> Slopes:
    """The slopes of `block` at 1⊗`state`, (d,) or a number for d = 1, zero for None; computed now, not when first used.

    An ArgumentError says where they do not exist or are beyond float64.
    """
    slopes = Slopes(instance("block", block, Block), block.homogeneous_state(state))
    if not slopes.finite:
        raise ArgumentError("state", "a J(q) that is not finite", "a state and weights whose J(q) is within float64")
    return slopes


def jacobian_bytes(heads: int, n: int, d: int, matrices: int = 2) -> int:
    """The bytes of `matrices` (n·d)² float64 matrices, and of the (n, n) weights of all `heads` with four more while
    they are made.
    """
    return 8 * matrices * (n * d) ** 2 + 8 * (heads + 4) * n**2


def assembled(base: NDArray, mix: Sequence[NDArray] | NDArray, attention: Sequence[Floats] | Floats) -> NDArray:
    """(n·m, n·m) I⊗B + Σ_h A_h ⊗ B_h of `base` B and `mix` B_h, (m, m), and `attention` A_h, (n, n)."""
    n, m = len(attention[0]), len(base)
    matrix, token = np.zeros((n, m, n, m), dtype=np.result_type(base, *mix)), np.arange(n)
    matrix[token, :, token, :] = base
    for weights, part in zip(attention, mix, strict=True):
        matrix += weights[:, None, :, None] * part[None, :, None, :]
    return matrix.reshape(n * m, n * m)
