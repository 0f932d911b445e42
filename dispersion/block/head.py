"""Attention heads: from logits to weights, at any state and at a homogeneous one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.factors import Bilinear, ContentLogit, OutputValue, QueryKey, Rotary
from dispersion.block.kernel import Kernel, grid_symbol, softmax, symbol_at
from dispersion.block.mask import AttentionMask
from dispersion.errors import (
    ArgumentError,
    frozen,
    frozen_array,
    frozen_logits,
    instance,
    optional_vector,
    real_array,
    real_number,
    states,
    vector,
)
from dispersion.grid import lag_index, positions
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64


@dataclass(frozen=True, eq=False)
class Head(Noun):
    """One attention head.

    It keeps `output_value`, O and V, `query_key`, the Bilinear, QueryKey or Rotary that makes queries, keys and content
    logits, and `pair_bias`, the bias or its mask. The matrices `value` and `content` of factors are multiplied out when
    asked for, and so are the logits `bias` of a mask.

    Parameters
    ----------
    kernel : Kernel
        The positional logits b_r.
    value : (d, d) array_like or OutputValue
        M = O V, or a number for d = 1, or its factors, an OutputValue.
    content : (d, d) array_like, QueryKey or None
        W = QᵀK/√d_h, or a number for d = 1, or its factors, a QueryKey; the content logit is x_iᵀ W x_j. None for zero.
    rotary : Rotary or None
        Its logit replaces the content logit.
    gate : float or None
        g of gated positional attention (GPSA), 0 ≤ g ≤ 1: A = (1−g) softmax(content) + g softmax(positional); None for
        one softmax of their sum.
    bias : (N, N) array_like, AttentionMask or None
        Further positional logits, or the mask whose logits they are. −inf removes a pair. J(q) exists only if it is a
        function of the lag.
    key_bias : (d,) array_like or None
        w, a further content logit wᵀx_j, as biases of the queries make; None for zero.
    """

    kernel: Kernel
    output_value: OutputValue
    query_key: ContentLogit
    gate: float | None
    pair_bias: NDArray[np.float64] | AttentionMask | None

    def __init__(
        self,
        kernel: Kernel,
        value: ArrayLike | OutputValue,
        content: ArrayLike | QueryKey | None = None,
        rotary: Rotary | None = None,
        gate: float | None = None,
        bias: ArrayLike | AttentionMask | None = None,
        key_bias: ArrayLike | None = None,
    ) -> None:
        instance("kernel", kernel, Kernel)
        output_value = value if isinstance(value, OutputValue) else OutputValue(_square("value", value, None))
        d = output_value.d
        if rotary is not None:
            if content is not None or key_bias is not None:
                raise ArgumentError("content", "content or key_bias besides a rotary encoding", "one of the two")
            content = instance("rotary", rotary, Rotary)
        gate = None if gate is None else real_number("gate", gate)
        if gate is not None and not 0 <= gate <= 1:
            raise ArgumentError("gate", gate, "a number between 0 and 1")
        set_field = object.__setattr__
        set_field(self, "kernel", kernel)
        set_field(self, "output_value", output_value)
        set_field(self, "query_key", _content_logit(content, key_bias, kernel, d))
        set_field(self, "gate", gate)
        set_field(self, "pair_bias", None if bias is None else _pair_bias(bias, kernel.n))
        if self.bias is not None and np.isneginf(self.positional()).all(axis=1).any():
            got = "a token without keys: where the kernel has a lag, the bias is −inf"
            raise ArgumentError("bias", got, "one pair or more for each token")

    @property
    def d(self) -> int:
        """Number of features."""
        return self.output_value.d

    @property
    def value(self) -> NDArray[np.float64]:
        """(d, d) M."""
        return self.output_value.matrix

    @property
    def content(self) -> NDArray[np.float64]:
        """(d, d) W; zero with a rotary encoding."""
        return self.query_key.matrix

    @property
    def key_bias(self) -> NDArray[np.float64] | None:
        """(d,) w, or None for zero; of a QueryKey Kᵀb_q/√d_h."""
        return self.query_key.linear

    @property
    def mask(self) -> AttentionMask | None:
        """The mask whose logits are `bias`, or None."""
        return self.pair_bias if isinstance(self.pair_bias, AttentionMask) else None

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """(N, N) further positional logits, of a mask log σ(M); None for zero."""
        return self.pair_bias.logits if isinstance(self.pair_bias, AttentionMask) else self.pair_bias

    @property
    def rotary(self) -> Rotary | None:
        """The rotary encoding, or None."""
        return self.query_key if isinstance(self.query_key, Rotary) else None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `Head` that make this head, factors as they are."""
        bilinear, rotary = isinstance(self.query_key, Bilinear), self.rotary
        return {
            "kernel": self.kernel,
            "value": self.value if self.output_value.value is None else self.output_value,
            "content": self.content if bilinear else self.query_key if rotary is None else None,
            "rotary": rotary,
            "gate": self.gate,
            "bias": self.pair_bias,
            "key_bias": self.key_bias if bilinear else None,
        }

    @property
    def plain(self) -> bool:
        """Whether the logit is just x_iᵀ W x_j + b_{i−j}: no rotary encoding, gate or bias."""
        return all(extra is None for extra in (self.rotary, self.gate, self.bias, self.key_bias))

    @property
    def periodic(self) -> bool:
        """Whether attention is periodic on the ring or torus: rotary frequencies lie on its grid."""
        return self.query_key.periodic_on(self.kernel.shape)

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
        """(…, n, n) weights A_ij(X).

        Parameters
        ----------
        x : (…, n, d) ndarray
            States X.
        positional : (n, n) ndarray, optional
            Positional logits, −inf for a pair that is not there; by default those of the ring or torus, where n = N.
        position : (n, D) int ndarray, optional
            That of the tokens, for rotary encodings; by default that on the ring or torus.
        """
        x = states("x", x, None, self.d)
        positional = self.positional() if positional is None else positional
        if x.shape[-2] != len(positional):
            raise ArgumentError("x", f"shape {x.shape}", f"shape (…, {len(positional)}, {self.d})")
        return self._attention(x, positional, positions(self.kernel.shape) if position is None else position)

    def _attention(self, x: NDArray, positional: NDArray[np.float64], position: NDArray[np.int64]) -> NDArray:
        content = self.query_key._logits(x, position)
        if self.gate is None:
            return softmax(content + positional)
        return (1 - self.gate) * softmax(content) + self.gate * softmax(positional)

    def lag_weights(self, a: NDArray[np.float64]) -> NDArray[np.float64]:
        """Attention weights A_r at a homogeneous state.

        Parameters
        ----------
        a : (d,) ndarray
            The homogeneous state.

        Returns
        -------
        (N,) or (N_1, …, N_D) ndarray
            A_r, indexed as `kernel.logits`.

        Notes
        -----
        Content logits cancel, but for those of a rotary encoding; with a gate
        A = (1−g) softmax(content) + g softmax(positional), uniform content giving λ(q) = (1−g)δ_{q0} + gλ_pos(q).
        """
        a = vector("a", a, self.d)
        if self.plain:
            return self.kernel.weights
        shape, D = self.kernel.shape, len(self.kernel.shape)
        content = self.query_key.lag_logits(a, self.kernel.lags.reshape(-1, D)).reshape(shape)
        if self.gate is None:
            return softmax(content + self.lag_logits, D)
        return (1 - self.gate) * softmax(content, D) + self.gate * softmax(self.lag_logits, D)

    def symbol(self, a: NDArray[np.float64]) -> NDArray[np.complex128]:
        """λ(q) on the grid at a homogeneous state, indexed by k as `kernel.symbol`.

        Parameters
        ----------
        a : (d,) ndarray
            The homogeneous state.
        """
        a = vector("a", a, self.d)
        return self.kernel.symbol if self.plain else grid_symbol(self.lag_weights(a), len(self.kernel.shape))

    def symbol_at(self, q: ArrayLike, a: NDArray[np.float64]) -> NDArray[np.complex128]:
        """(…) λ(q) at any q, as `kernel(q)`, at a homogeneous state.

        Parameters
        ----------
        q : (…) or (…, D) array_like
            Wavenumbers, (…) on a ring and (…, D) on a torus.
        a : (d,) ndarray
            The homogeneous state.
        """
        return symbol_at(self.lag_weights(a), self.kernel.lags, q)


def _square(argument: str, value: ArrayLike, d: int | None) -> NDArray[np.float64]:
    matrix = real_array(argument, value)
    matrix = frozen_array(argument, matrix.reshape(1, 1) if matrix.ndim == 0 else matrix, (d, d))
    if matrix.shape[0] != matrix.shape[1]:
        raise ArgumentError(argument, f"shape {matrix.shape}", "a square matrix, or a number for d = 1")
    return matrix


def _content_logit(
    content: ArrayLike | QueryKey | None, key_bias: ArrayLike | None, kernel: Kernel, d: int
) -> ContentLogit:
    """The content logit of a head of `d` features whose arguments these are."""
    if not isinstance(content, QueryKey):
        matrix = _square("content", np.zeros((d, d)) if content is None else content, d)
        return Bilinear(matrix, optional_vector("key_bias", key_bias, d))
    if key_bias is not None:
        raise ArgumentError("key_bias", "key_bias besides queries and keys", "the query_bias of the QueryKey")
    argument = "rotary" if isinstance(content, Rotary) else "content"
    if content.d != d:
        raise ArgumentError(argument, f"query of {content.d} features", f"{d} as in value")
    if isinstance(content, Rotary) and content.frequencies.shape[1] != len(kernel.shape):
        got = f"frequencies for {content.frequencies.shape[1]} axes"
        raise ArgumentError(argument, got, f"{len(kernel.shape)} as in the kernel")
    return content


def _pair_bias(bias: ArrayLike | AttentionMask, n: int) -> NDArray[np.float64] | AttentionMask:
    if isinstance(bias, AttentionMask):
        if bias.n != n:
            raise ArgumentError("bias", f"a mask of {bias.n} tokens", f"one of {n}, as in the kernel")
        return bias
    array = frozen_logits("bias", bias, (n, n))
    if np.isneginf(array).all(axis=1).any():
        raise ArgumentError("bias", "a row of −inf", "finite numbers, −inf to remove a pair")
    return array
