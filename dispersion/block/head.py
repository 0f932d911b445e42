"""Attention heads: from logits to weights, at any state and at a homogeneous one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.kernel import Kernel, grid_symbol, symbol_at
from dispersion.errors import (
    ArgumentError,
    choice,
    frozen,
    frozen_array,
    frozen_logits,
    instance,
    real_array,
    real_number,
    states,
    vector,
    whole_number,
)
from dispersion.grid import lag_index, positions
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64


@dataclass(frozen=True, eq=False)
class Rotary(Noun):
    """Rotary position encoding: the content logit is (R(θ·i) q_i)ᵀ(R(θ·j) k_j)/√d_h, q = Qx + b_q, k = Kx + b_k.

    query, key : Q, K (d_h, d), d_h even. query_bias, key_bias : b_q, b_k (d_h,), or None for zero.
    frequencies : θ (d_h/2,) radians per token, one for each
        2-block, or (d_h/2, D) on a torus; a zero leaves its block unrotated.
    pairing : 'half' (features m and m + d_h/2 form a block) or 'interleaved' (2m and 2m + 1).
    """

    query: NDArray[np.float64]
    key: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    pairing: str
    query_bias: NDArray[np.float64] | None
    key_bias: NDArray[np.float64] | None

    def __init__(
        self,
        query: ArrayLike,
        key: ArrayLike,
        frequencies: ArrayLike,
        pairing: str = "half",
        query_bias: ArrayLike | None = None,
        key_bias: ArrayLike | None = None,
    ) -> None:
        query = frozen_array("query", query, (None, None))
        if len(query) % 2:
            raise ArgumentError("query", f"shape {query.shape}", "(d_h, d) with d_h even")
        frequencies = real_array("frequencies", frequencies)
        if frequencies.ndim < 2:
            frequencies = frequencies[..., None]
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "key", frozen_array("key", key, query.shape))
        object.__setattr__(self, "frequencies", frozen_array("frequencies", frequencies, (len(query) // 2, None)))
        object.__setattr__(self, "pairing", choice("pairing", pairing, ("half", "interleaved")))
        object.__setattr__(self, "query_bias", optional_vector("query_bias", query_bias, len(query)))
        object.__setattr__(self, "key_bias", optional_vector("key_bias", key_bias, len(query)))

    @beyond_float64
    def queries(self, x: NDArray) -> NDArray:
        """(…, d_h) q = Qx + b_q of states `x` (…, d)."""
        x = states("x", x, self.query.shape[1])
        return x @ self.query.T if self.query_bias is None else x @ self.query.T + self.query_bias

    @beyond_float64
    def keys(self, x: NDArray) -> NDArray:
        """(…, d_h) k = Kx + b_k of states `x` (…, d)."""
        x = states("x", x, self.key.shape[1])
        return x @ self.key.T if self.key_bias is None else x @ self.key.T + self.key_bias

    @beyond_float64
    def logits(self, x: NDArray, position: NDArray[np.int64]) -> NDArray:
        """(…, n, n) content logits of states `x` (…, n, d) of tokens at `position` (n, D)."""
        angle = states("position", position, self.frequencies.shape[1]) @ self.frequencies.T
        q, k = self.rotated(self.queries(x), angle), self.rotated(self.keys(x), angle)
        return (q @ np.swapaxes(k, -1, -2)) / np.sqrt(len(self.query))

    @beyond_float64
    def lag_logits(self, a: NDArray[np.float64], lags: NDArray[np.int64]) -> NDArray[np.float64]:
        """Content logit at the homogeneous state `a` (d,) for lags r = i − j (…, D): with p = Qa + b_q, k = Ka + b_k in
        2-blocks, d_h^{-1/2} Σ_m [⟨p_m,k_m⟩ cos θ_m·r + (p_m × k_m) sin θ_m·r] (App. A.8; the paper's Eq. 67
        has the opposite sign of the sine).
        """
        a, lags = vector("a", a, self.query.shape[1]), states("lags", lags, self.frequencies.shape[1])
        if not np.isfinite(lags).all():
            raise ArgumentError("lags", "values that are not finite", "lags in tokens")
        (p1, p2), (k1, k2) = self._blocks(self.queries(a)), self._blocks(self.keys(a))
        angle = lags @ self.frequencies.T
        return (np.cos(angle) @ (p1 * k1 + p2 * k2) + np.sin(angle) @ (p1 * k2 - p2 * k1)) / np.sqrt(len(self.query))

    def periodic_on(self, shape: tuple[int, ...]) -> bool:
        """Whether every frequency lies on the grid of a ring or torus of this `shape`."""
        axes = self.frequencies.shape[1]
        sizes = [whole_number("shape", size, 1) for size in instance("shape", shape, tuple, list)]
        if len(sizes) != axes:
            raise ArgumentError("shape", shape, f"{axes} sizes, one for each axis")
        turns = self.frequencies * np.array(sizes) / (2 * np.pi)
        return bool(np.abs(turns - np.round(turns)).max() <= 1e-9 * max(1.0, np.abs(turns).max()))

    def _blocks(self, u: NDArray) -> tuple[NDArray, NDArray]:
        half = u.shape[-1] // 2
        return (u[..., :half], u[..., half:]) if self.pairing == "half" else (u[..., ::2], u[..., 1::2])

    @beyond_float64
    def rotated(self, u: NDArray, angle: NDArray[np.float64]) -> NDArray:
        """R(angle) u of queries or keys u (…, d_h), block by block, by `angle` (…, d_h/2); the two halves of the
        result hold the first and the second features of all blocks.
        """
        u, angle = states("u", u, len(self.query)), states("angle", angle, len(self.frequencies))
        if angle.ndim > 1 and angle.shape[-2] not in (1, u.shape[-2] if u.ndim > 1 else 1):
            raise ArgumentError("angle", f"shape {angle.shape}", f"angles of {u.shape[:-1]} tokens")
        (u1, u2), c, s = self._blocks(u), np.cos(angle), np.sin(angle)
        return np.concatenate([c * u1 - s * u2, s * u1 + c * u2], axis=-1)


@dataclass(frozen=True, eq=False)
class Head(Noun):
    """One attention head.

    kernel : the positional logits b_r.
    value : M = O V, (d, d), or a number for d = 1.
    content : W = QᵀK/√d_h, (d, d), or a number for d = 1; the content logit is x_iᵀ W x_j.
    rotary : a Rotary, whose logit replaces the content logit.
    gate : g of gated positional attention (GPSA), 0 ≤ g ≤ 1:
        A = (1−g) softmax(content) + g softmax(positional); None for one softmax of their sum.
    bias : (N, N) further positional logits, for example `mask_logits` of a mask. −inf removes a pair.
        J(q) exists only if it is a function of the lag.
    key_bias : w (d,), a further content logit wᵀx_j, as biases of the queries make; None for zero.
    """

    kernel: Kernel
    value: NDArray[np.float64]
    content: NDArray[np.float64]
    rotary: Rotary | None
    gate: float | None
    bias: NDArray[np.float64] | None
    key_bias: NDArray[np.float64] | None

    def __init__(
        self,
        kernel: Kernel,
        value: ArrayLike,
        content: ArrayLike | None = None,
        rotary: Rotary | None = None,
        gate: float | None = None,
        bias: ArrayLike | None = None,
        key_bias: ArrayLike | None = None,
    ) -> None:
        instance("kernel", kernel, Kernel)
        value = _square("value", value, None)
        d = len(value)
        if rotary is not None:
            if content is not None or key_bias is not None:
                raise ArgumentError("content", "content or key_bias besides a rotary encoding", "one of the two")
            _check_rotary(rotary, kernel, d)
        gate = None if gate is None else real_number("gate", gate)
        if gate is not None and not 0 <= gate <= 1:
            raise ArgumentError("gate", gate, "a number between 0 and 1")
        set_field = object.__setattr__
        set_field(self, "kernel", kernel)
        set_field(self, "value", value)
        set_field(self, "content", _square("content", np.zeros((d, d)) if content is None else content, d))
        set_field(self, "rotary", rotary)
        set_field(self, "gate", gate)
        set_field(self, "bias", None if bias is None else _pair_logits(bias, kernel.n))
        set_field(self, "key_bias", optional_vector("key_bias", key_bias, d))
        if self.bias is not None and np.isneginf(self.positional()).all(axis=1).any():
            got = "a token without keys: where the kernel has a lag, the bias is −inf"
            raise ArgumentError("bias", got, "one pair or more for each token")

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.value)

    @property
    def plain(self) -> bool:
        """Whether the logit is just x_iᵀ W x_j + b_{i−j}: no rotary encoding, gate or bias."""
        return all(extra is None for extra in (self.rotary, self.gate, self.bias, self.key_bias))

    @property
    def periodic(self) -> bool:
        """Whether attention is periodic on the ring or torus: rotary frequencies lie on its grid."""
        return self.rotary is None or self.rotary.periodic_on(self.kernel.shape)

    @cached_property
    def lag_logits(self) -> NDArray[np.float64]:
        """Positional logits by lag, kernel and bias together, indexed as `kernel.logits`.

        An ArgumentError says if the bias is not a function of the lag.
        """
        if self.bias is None:
            return self.kernel.logits
        index = lag_index(self.kernel.shape)
        # the bias of the pairs (r, 0), one of each lag
        by_lag = np.empty(self.kernel.n)
        by_lag[index[:, 0]] = self.bias[:, 0]
        with np.errstate(invalid="ignore"):
            gap = np.where(self.bias == by_lag[index], 0.0, np.abs(self.bias - by_lag[index])).max()
        if gap > 1e-12 * max(1.0, np.abs(by_lag[np.isfinite(by_lag)]).max(initial=0.0)):
            accepted = (
                "a bias that depends on i − j alone; else attention_spectrum, leading_multipliers or full_jacobian"
            )
            raise ArgumentError("bias", f"{gap:.3g} between pairs of tokens of one lag", accepted)
        return frozen(self.kernel.logits + by_lag.reshape(self.kernel.shape))

    def positional(self) -> NDArray[np.float64]:
        """(N, N) positional logits b_{i−j} + bias_ij."""
        logits = self.kernel.logits.ravel()[lag_index(self.kernel.shape)]
        return logits if self.bias is None else logits + self.bias

    @beyond_float64
    def attention(
        self,
        x: NDArray,
        positional: NDArray[np.float64] | None = None,
        position: NDArray[np.int64] | None = None,
    ) -> NDArray:
        """(…, n, n) weights A_ij(X) at the states `x` (…, n, d).

        positional : (n, n) positional logits, −inf for a pair that is not there; by default those
            of the ring or torus, where n = N. position : (n, D) of the tokens, for rotary encodings.
        """
        x = states("x", x, None, self.d)
        positional = self.positional() if positional is None else positional
        if x.shape[-2] != len(positional):
            raise ArgumentError("x", f"shape {x.shape}", f"shape (…, {len(positional)}, {self.d})")
        if self.rotary is None:
            queries = x @ self.content if self.key_bias is None else x @ self.content + self.key_bias
            content = queries @ np.swapaxes(x, -1, -2)
        else:
            content = self.rotary.logits(x, positions(self.kernel.shape) if position is None else position)
        if self.gate is None:
            return softmax(content + positional)
        return (1 - self.gate) * softmax(content) + self.gate * softmax(positional)

    def lag_weights(self, a: NDArray[np.float64]) -> NDArray[np.float64]:
        """Attention weights A_r at the homogeneous state `a` (d,), indexed as `kernel.logits`.

        Content logits cancel, but for those of a rotary encoding; with a gate
        A = (1−g) softmax(content) + g softmax(positional), uniform content giving λ(q) = (1−g)δ_{q0} + gλ_pos(q).
        """
        a = vector("a", a, self.d)
        if self.plain:
            return self.kernel.weights
        shape, D = self.kernel.shape, len(self.kernel.shape)
        content = np.zeros(shape)
        if self.rotary is not None:
            content = self.rotary.lag_logits(a, self.kernel.lags.reshape(-1, D)).reshape(shape)
        if self.gate is None:
            return softmax_all(content + self.lag_logits)
        return (1 - self.gate) * softmax_all(content) + self.gate * softmax_all(self.lag_logits)

    def symbol(self, a: NDArray[np.float64]) -> NDArray[np.complex128]:
        """λ(q) on the grid at the homogeneous state `a` (d,), indexed by k as `kernel.symbol`."""
        a = vector("a", a, self.d)
        return self.kernel.symbol if self.plain else grid_symbol(self.lag_weights(a), len(self.kernel.shape))

    def symbol_at(self, q: ArrayLike, a: NDArray[np.float64]) -> NDArray[np.complex128]:
        """λ(q) at any `q`, as `kernel(q)`, at the homogeneous state `a` (d,)."""
        return symbol_at(self.lag_weights(a), self.kernel.lags, q)


def softmax(logits: NDArray) -> NDArray:
    """Softmax over the last axis; complex logits are continued analytically."""
    weights = np.exp(logits - logits.real.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def softmax_all(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax over all entries."""
    return softmax(logits.ravel()).reshape(logits.shape)


def _square(argument: str, value: ArrayLike, d: int | None) -> NDArray[np.float64]:
    matrix = real_array(argument, value)
    matrix = frozen_array(argument, matrix.reshape(1, 1) if matrix.ndim == 0 else matrix, (d, d))
    if matrix.shape[0] != matrix.shape[1]:
        raise ArgumentError(argument, f"shape {matrix.shape}", "a square matrix, or a number for d = 1")
    return matrix


def optional_vector(argument: str, value: ArrayLike | None, size: int) -> NDArray[np.float64] | None:
    """`value` as a read-only (size,) array, or None."""
    return None if value is None else frozen_array(argument, value, (size,))


def _check_rotary(rotary: Rotary, kernel: Kernel, d: int) -> None:
    instance("rotary", rotary, Rotary)
    if rotary.query.shape[1] != d:
        raise ArgumentError("rotary", f"query of {rotary.query.shape[1]} features", f"{d} as in value")
    if rotary.frequencies.shape[1] != len(kernel.shape):
        got = f"frequencies for {rotary.frequencies.shape[1]} axes"
        raise ArgumentError("rotary", got, f"{len(kernel.shape)} as in the kernel")


def _pair_logits(bias: ArrayLike, n: int) -> NDArray[np.float64]:
    array = frozen_logits("bias", bias, (n, n))
    if np.isneginf(array).all(axis=1).any():
        raise ArgumentError("bias", "a row of −inf", "finite numbers, −inf to remove a pair")
    return array
