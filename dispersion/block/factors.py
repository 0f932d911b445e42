"""What a head is made of: the queries and keys of its content logit, and the values and outputs of what it mixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import (
    ArgumentError,
    choice,
    frozen_array,
    instance,
    optional_vector,
    real_array,
    states,
    vector,
    whole_number,
)
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64

Floats = NDArray[np.float64]
Position = NDArray[np.int64] | None


class ContentLogit(Noun):
    """The content logit q_i·k_j/root of two tokens, their queries and keys being affine in their states.

    `position` (n, D) says where the tokens are, for those kinds in which the logit depends on it.
    """

    d: int
    """Number of features."""
    root: float
    """√d_h, or 1."""
    matrix: Floats
    """(d, d) W of the part x_iᵀ W x_j that depends on no position."""
    linear: Floats | None
    """(d,) w of the part wᵀx_j that depends on no position, or None for zero."""

    @beyond_float64
    def queries(self, x: NDArray, position: Position = None) -> NDArray:
        """(…, d_h) queries of states.

        Parameters
        ----------
        x : (…, d) ndarray
            States.
        position : (n, D) int ndarray, optional
            That of the tokens; if the encoding is rotary and it is given, queries are turned, as by `Rotary.rotated`.
        """
        return self._queries(states("x", x, self.d), position)

    @beyond_float64
    def keys(self, x: NDArray, position: Position = None) -> NDArray:
        """(…, d_h) keys of states.

        Parameters
        ----------
        x : (…, d) ndarray
            States.
        position : (n, D) int ndarray, optional
            That of the tokens; if the encoding is rotary and it is given, keys are turned, as by `Rotary.rotated`.
        """
        return self._keys(states("x", x, self.d), position)

    def _queries(self, x: NDArray, position: Position) -> NDArray:
        raise NotImplementedError

    def _keys(self, x: NDArray, position: Position) -> NDArray:
        raise NotImplementedError

    def query_slope(self, position: Position = None) -> Floats:
        """(d_h, d) derivative of a query by its state, or (n, d_h, d) where it depends on `position`."""
        raise NotImplementedError

    def key_slope(self, position: Position = None) -> Floats | None:
        """`query_slope` of the keys; None for the identity."""
        raise NotImplementedError

    @beyond_float64
    def logits(self, x: NDArray, position: Position = None) -> NDArray:
        """(…, n, n) content logits.

        Parameters
        ----------
        x : (…, n, d) ndarray
            States.
        position : (n, D) int ndarray, optional
            Where the tokens are, None for all at one.
        """
        return self._logits(states("x", x, None, self.d), position)

    def _logits(self, x: NDArray, position: Position) -> NDArray:
        products = self._queries(x, position) @ np.swapaxes(self._keys(x, position), -1, -2)
        return products if self.root == 1 else products / self.root

    def lag_logits(self, a: Floats, lags: NDArray[np.int64]) -> Floats:
        """(…) content logit at a homogeneous state, up to a constant.

        Parameters
        ----------
        a : (d,) ndarray
            The homogeneous state.
        lags : (…, D) int ndarray
            r = i − j.
        """
        return np.zeros(states("lags", lags, None).shape[:-1])

    def affine(self, lags: NDArray[np.int64]) -> Floats:
        """W̃ of the logit s̃_iᵀ W̃ s̃_j, s̃ = (x, 1), up to what is the same for every key.

        Parameters
        ----------
        lags : (N, D) int ndarray
            r = i − j.

        Returns
        -------
        (d+1, d+1) or (N, d+1, d+1) ndarray
            One for each of the lags where it depends on them.
        """
        matrix = np.pad(self.matrix, (0, 1))
        matrix[-1, :-1] = 0.0 if self.linear is None else self.linear
        return matrix

    def periodic_on(self, shape: tuple[int, ...]) -> bool:
        """Whether the logit is periodic on a ring or torus.

        Parameters
        ----------
        shape : tuple of int
            That of the ring or torus.
        """
        return True


@dataclass(frozen=True, eq=False)
class Bilinear(ContentLogit):
    """The content logit x_iᵀ W x_j + wᵀx_j: queries Wᵀx_i + w, and the states themselves for keys.

    matrix : W (d, d). linear : w (d,), or None for zero.
    """

    matrix: Floats
    linear: Floats | None = None
    root = 1.0

    @property
    def d(self) -> int:  # type: ignore[override]
        return len(self.matrix)

    def _queries(self, x: NDArray, position: Position) -> NDArray:
        return x @ self.matrix if self.linear is None else x @ self.matrix + self.linear

    def _keys(self, x: NDArray, position: Position) -> NDArray:
        return x

    def query_slope(self, position: Position = None) -> Floats:
        return self.matrix.T

    def key_slope(self, position: Position = None) -> None:
        return None


@dataclass(frozen=True, eq=False)
class QueryKey(ContentLogit):
    """The content logit q_iᵀ k_j/√d_h of queries q = Qx + b_q and keys k = Kx + b_k.

    Parameters
    ----------
    query, key : (d_h, d) array_like
        Q, K.
    query_bias, key_bias : (d_h,) array_like or None
        b_q, b_k, None for zero.
    """

    query: Floats
    key: Floats
    query_bias: Floats | None
    key_bias: Floats | None

    def __init__(
        self,
        query: ArrayLike,
        key: ArrayLike,
        query_bias: ArrayLike | None = None,
        key_bias: ArrayLike | None = None,
    ) -> None:
        query = frozen_array("query", query, (None, None))
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "key", frozen_array("key", key, query.shape))
        object.__setattr__(self, "query_bias", optional_vector("query_bias", query_bias, len(query)))
        object.__setattr__(self, "key_bias", optional_vector("key_bias", key_bias, len(query)))

    @property
    def d(self) -> int:  # type: ignore[override]
        """Number of features."""
        return self.query.shape[1]

    @property
    def root(self) -> float:  # type: ignore[override]
        """√d_h."""
        return float(np.sqrt(len(self.query)))

    def _queries(self, x: NDArray, position: Position) -> NDArray:
        return self._at(x @ self.query.T if self.query_bias is None else x @ self.query.T + self.query_bias, position)

    def _keys(self, x: NDArray, position: Position) -> NDArray:
        return self._at(x @ self.key.T if self.key_bias is None else x @ self.key.T + self.key_bias, position)

    def query_slope(self, position: Position = None) -> Floats:
        """(d_h, d) Q, the derivative of a query by its state, or (n, d_h, d) R(θ·i)Q.

        Parameters
        ----------
        position : (n, D) int ndarray, optional
            That of the tokens, i; the second form is taken if the encoding is rotary and it is given.
        """
        return self._slope_at(self.query, position)

    def key_slope(self, position: Position = None) -> Floats:
        """(d_h, d) K, the derivative of a key by its state, or (n, d_h, d) R(θ·j)K.

        Parameters
        ----------
        position : (n, D) int ndarray, optional
            That of the tokens, j; the second form is taken if the encoding is rotary and it is given.
        """
        return self._slope_at(self.key, position)

    def _at(self, u: NDArray, position: Position) -> NDArray:
        return u

    def _slope_at(self, weight: Floats, position: Position) -> Floats:
        return weight

    @cached_property
    def matrix(self) -> Floats:
        """(d, d) W = QᵀK/√d_h."""
        return np.asarray(self.query.T @ self.key / np.sqrt(len(self.query)))

    @cached_property
    def linear(self) -> Floats | None:
        """(d,) w = Kᵀb_q/√d_h, or None: of the biases only wᵀx_j counts, the rest being the same for every key."""
        return None if self.query_bias is None else self.key.T @ self.query_bias / np.sqrt(len(self.query))


@dataclass(frozen=True, eq=False)
class Rotary(QueryKey):
    """Rotary position encoding: the content logit is (R(θ·i) q_i)ᵀ(R(θ·j) k_j)/√d_h, q = Qx + b_q, k = Kx + b_k.

    Parameters
    ----------
    query, key : (d_h, d) array_like
        Q, K, d_h even.
    frequencies : (d_h/2,) or (d_h/2, D) array_like
        θ, radians per token, one for each 2-block, or (d_h/2, D) on a torus; a zero leaves its block unrotated.
    pairing : str
        'half' (features m and m + d_h/2 form a block) or 'interleaved' (2m and 2m + 1).
    query_bias, key_bias : (d_h,) array_like or None
        b_q, b_k, None for zero.
    """

    frequencies: Floats
    pairing: str

    def __init__(
        self,
        query: ArrayLike,
        key: ArrayLike,
        frequencies: ArrayLike,
        pairing: str = "half",
        query_bias: ArrayLike | None = None,
        key_bias: ArrayLike | None = None,
    ) -> None:
        super().__init__(query, key, query_bias, key_bias)
        if len(self.query) % 2:
            raise ArgumentError("query", f"shape {self.query.shape}", "(d_h, d) with d_h even")
        frequencies = real_array("frequencies", frequencies)
        if frequencies.ndim < 2:
            frequencies = frequencies[..., None]
        object.__setattr__(self, "frequencies", frozen_array("frequencies", frequencies, (len(self.query) // 2, None)))
        object.__setattr__(self, "pairing", choice("pairing", pairing, ("half", "interleaved")))

    def _at(self, u: NDArray, position: Position) -> NDArray:
        return u if position is None else self.rotated(u, self._angle(position))

    def _slope_at(self, weight: Floats, position: Position) -> Floats:
        if position is None:
            return weight
        return np.swapaxes(self.rotated(weight.T, self._angle(position)[..., None, :]), -1, -2)

    @cached_property
    def matrix(self) -> Floats:
        """(d, d) 0: no part of the logit is the same at every lag."""
        return np.zeros((self.d, self.d))

    @property
    def linear(self) -> None:  # type: ignore[override]
        """None: no part of the logit is the same at every lag."""
        return None

    @beyond_float64
    def lag_logits(self, a: Floats, lags: NDArray[np.int64]) -> Floats:
        """(…) content logit at a homogeneous state by lag.

        Parameters
        ----------
        a : (d,) ndarray
            The homogeneous state.
        lags : (…, D) int ndarray
            r = i − j, tokens.

        Notes
        -----
        With p = Qa + b_q, k = Ka + b_k in 2-blocks, d_h^{-1/2} Σ_m [⟨p_m,k_m⟩ cos θ_m·r + (p_m × k_m) sin θ_m·r]
        (App. A.8; the paper's Eq. 67 has the opposite sign of the sine).
        """
        a, lags = vector("a", a, self.d), states("lags", lags, self.frequencies.shape[1])
        if not np.isfinite(lags).all():
            raise ArgumentError("lags", "values that are not finite", "lags in tokens")
        (p1, p2), (k1, k2) = self._blocks(self.queries(a)), self._blocks(self.keys(a))
        angle = lags @ self.frequencies.T
        return (np.cos(angle) @ (p1 * k1 + p2 * k2) + np.sin(angle) @ (p1 * k2 - p2 * k1)) / np.sqrt(len(self.query))

    @beyond_float64
    def affine(self, lags: NDArray[np.int64]) -> Floats:
        """(N, d+1, d+1) W̃_r of the logit s̃_iᵀ W̃_r s̃_j, s̃ = (x, 1).

        Parameters
        ----------
        lags : (N, D) int ndarray
            r = i − j.
        """
        zero = np.zeros(self.d)
        angle = self._angle(states("lags", lags, None, self.frequencies.shape[1]))[..., None, :]
        query = self.rotated(np.vstack([self.query.T, self.queries(zero)]), angle)
        key = self.rotated(np.vstack([self.key.T, self.keys(zero)]), np.zeros(len(self.frequencies)))
        return np.einsum("...ah,bh->...ab", query, key) / np.sqrt(len(self.query))

    def periodic_on(self, shape: tuple[int, ...]) -> bool:
        """Whether every frequency lies on the grid of a ring or torus.

        Parameters
        ----------
        shape : tuple of int
            That of the ring or torus.
        """
        axes = self.frequencies.shape[1]
        sizes = [whole_number("shape", size, 1) for size in instance("shape", shape, tuple, list)]
        if len(sizes) != axes:
            raise ArgumentError("shape", shape, f"{axes} sizes, one for each axis")
        turns = self.frequencies * np.array(sizes) / (2 * np.pi)
        return bool(np.abs(turns - np.round(turns)).max() <= 1e-9 * max(1.0, np.abs(turns).max()))

    def _angle(self, position: NDArray[np.int64]) -> Floats:
        """(n, d_h/2) angle by which each block of a token is turned."""
        return np.asarray(states("position", position, self.frequencies.shape[1]) @ self.frequencies.T)

    def _blocks(self, u: NDArray) -> tuple[NDArray, NDArray]:
        half = u.shape[-1] // 2
        return (u[..., :half], u[..., half:]) if self.pairing == "half" else (u[..., ::2], u[..., 1::2])

    @beyond_float64
    def rotated(self, u: NDArray, angle: Floats) -> NDArray:
        """R(angle) u of queries or keys u, block by block.

        Parameters
        ----------
        u : (…, d_h) ndarray
            Queries or keys.
        angle : (…, d_h/2) ndarray
            Radians, one for each block.

        Returns
        -------
        (…, d_h) ndarray
            Its two halves hold the first and the second features of all blocks.
        """
        u, angle = states("u", u, len(self.query)), states("angle", angle, len(self.frequencies))
        if angle.ndim > 1 and angle.shape[-2] not in (1, u.shape[-2] if u.ndim > 1 else 1):
            raise ArgumentError("angle", f"shape {angle.shape}", f"angles of {u.shape[:-1]} tokens")
        (u1, u2), c, s = self._blocks(u), np.cos(angle), np.sin(angle)
        return np.concatenate([c * u1 - s * u2, s * u1 + c * u2], axis=-1)


@dataclass(frozen=True, eq=False)
class OutputValue(Noun):
    """The value map M = O V of a head.

    Parameters
    ----------
    output : (d, d_v) array_like
        O.
    value : (d_v, d) array_like or None
        V, or None for the identity, O being M itself.
    """

    output: Floats
    value: Floats | None

    def __init__(self, output: ArrayLike, value: ArrayLike | None = None) -> None:
        output = frozen_array("output", output, (None, None))
        if value is None and len(output) != output.shape[1]:
            raise ArgumentError("output", f"shape {output.shape}", "(d, d_v) with a value (d_v, d), or (d, d)")
        object.__setattr__(self, "output", output)
        object.__setattr__(self, "value", None if value is None else frozen_array("value", value, output.shape[::-1]))

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.output)

    @cached_property
    def matrix(self) -> Floats:
        """(d, d) M."""
        return self.output if self.value is None else self.output @ self.value

    @beyond_float64
    def values(self, x: NDArray) -> NDArray:
        """(…, d_v) V x.

        Parameters
        ----------
        x : (…, d) ndarray
            States.
        """
        return self._values(states("x", x, self.d))

    def _values(self, x: NDArray) -> NDArray:
        return x if self.value is None else x @ self.value.T

    @beyond_float64
    def mix(self, weights: NDArray, x: NDArray) -> NDArray:
        """(…, n, d) Σ_j A_ij M x_j.

        Parameters
        ----------
        weights : (…, n, n) ndarray
            Attention weights A.
        x : (…, n, d) ndarray
            States.
        """
        x = states("x", x, None, self.d)
        return self._mix(states("weights", weights, None, x.shape[-2]), x)

    def _mix(self, weights: NDArray, x: NDArray) -> NDArray:
        return np.asarray(weights @ self._values(x) @ self.output.T)

    @beyond_float64
    def mix_transposed(self, weights: NDArray, x: NDArray) -> NDArray:
        """(…, n, d) Σ_i A_ij Mᵀ x_i: the transpose of `mix`.

        Parameters
        ----------
        weights : (…, n, n) ndarray
            Attention weights A.
        x : (…, n, d) ndarray
            States.
        """
        x = states("x", x, None, self.d)
        back = np.swapaxes(states("weights", weights, x.shape[-2], None), -1, -2) @ (x @ self.output)
        return np.asarray(back if self.value is None else back @ self.value)


def summed(maps: Sequence[OutputValue]) -> Floats:
    """(d, d) Σ_h M_h of the value maps of several heads: their factors side by side are those of the sum."""
    whole = [part.output for part in maps if part.value is None]
    pairs = [(part.output, part.value) for part in maps if part.value is not None]
    if pairs:
        outputs, values = zip(*pairs, strict=True)
        whole.append(np.concatenate(outputs, axis=1) @ np.concatenate(values))
    return np.asarray(sum(whole[1:], start=whole[0]))
