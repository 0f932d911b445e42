"""The Transformer block: heads, feed-forward, and the map F they make.

y_i = x_i + ε_a Σ_h Σ_j A^h_ij(X) M_h x_j,   A^h_ij = softmax_j(x_iᵀ W_h x_j + b^h_{i−j})   (Eq. 1)
F(X)_i = H(y_i),   H(y) = y + φ(y)                                                            (Eq. 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import circulant

from dispersion.activation import Activation
from dispersion.errors import ArgumentError, frozen, frozen_array, real_number, whole_number
from dispersion.kernel import Kernel


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head.

    kernel : the positional logits b_r.
    value : M = O V, (d, d), or a number for d = 1.
    content : W = QᵀK/√d_h, (d, d), or a number for d = 1; the content logit is x_iᵀ W x_j.
    """

    kernel: Kernel
    value: NDArray[np.float64]
    content: NDArray[np.float64]

    def __init__(self, kernel: Kernel, value: ArrayLike, content: ArrayLike | None = None) -> None:
        if not isinstance(kernel, Kernel):
            raise ArgumentError("kernel", type(kernel).__name__, "a Kernel")
        value = _square("value", value, None)
        d = len(value)
        content = np.zeros((d, d)) if content is None else content
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "content", _square("content", content, d))

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.value)

    def attention(self, x: NDArray) -> NDArray:
        """(…, N, N) weights A_ij(X) at the states `x` (…, N, d)."""
        logits = x @ self.content @ np.swapaxes(x, -1, -2) + circulant(self.kernel.logits)
        weights = np.exp(logits - logits.real.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class FeedForward:
    """φ(y) = W_out act(W_in y + b_in) + b_out; the block applies H(y) = y + φ(y).

    weight_in : (m, d); weight_out : (d, m); bias_in : (m,); bias_out : (d,); biases default to zero.
    activation : an Activation, or its name.
    """

    weight_in: NDArray[np.float64]
    weight_out: NDArray[np.float64]
    activation: Activation
    bias_in: NDArray[np.float64]
    bias_out: NDArray[np.float64]

    def __init__(
        self,
        weight_in: ArrayLike,
        weight_out: ArrayLike,
        activation: Activation | str,
        bias_in: ArrayLike | None = None,
        bias_out: ArrayLike | None = None,
    ) -> None:
        weight_in = frozen_array("weight_in", weight_in, (None, None))
        m, d = weight_in.shape
        set_field = object.__setattr__
        set_field(self, "weight_in", weight_in)
        set_field(self, "weight_out", frozen_array("weight_out", weight_out, (d, m)))
        set_field(self, "activation", Activation.of(activation))
        set_field(self, "bias_in", frozen_array("bias_in", np.zeros(m) if bias_in is None else bias_in, (m,)))
        set_field(self, "bias_out", frozen_array("bias_out", np.zeros(d) if bias_out is None else bias_out, (d,)))

    @property
    def d(self) -> int:
        """Number of features."""
        return self.weight_in.shape[1]

    def __call__(self, y: NDArray) -> NDArray:
        """φ(y), (…, d) → (…, d)."""
        hidden = self.activation(y @ self.weight_in.T + self.bias_in)
        return hidden @ self.weight_out.T + self.bias_out

    def jacobian(self, y: NDArray) -> NDArray[np.float64]:
        """(d, d) derivative Dφ at the state `y` (d,)."""
        slope = self.activation.taylor(self.weight_in @ y + self.bias_in, 1)[:, 1]
        return (self.weight_out * slope) @ self.weight_in

    def taylor(self, y: float, order: int) -> NDArray[np.float64]:
        """(order+1,) Taylor coefficients φ⁽ⁿ⁾(y)/n! of a scalar (d = 1) feed-forward."""
        if self.d != 1:
            raise ArgumentError("feedforward", f"d = {self.d}", "d = 1")
        coefficients = self.activation.taylor(self.weight_in[:, 0] * y + self.bias_in, order)
        powers = self.weight_in ** np.arange(order + 1)
        constant = self.bias_out[0] * (np.arange(order + 1) == 0)
        return self.weight_out[0] @ (coefficients * powers) + constant

    @classmethod
    def scalar(cls, activation: Activation | str, scale: float = 1.0) -> FeedForward:
        """φ(h) = scale · act(h), d = 1; `activation`: an Activation or its name."""
        return cls.elementwise(activation, 1, scale)

    @classmethod
    def elementwise(cls, activation: Activation | str, d: int, scale: float = 1.0) -> FeedForward:
        """φ(h) = scale · act(h) on each of d features; `activation`: an Activation or its name."""
        identity = np.eye(whole_number("d", d, 1))
        return cls(identity, real_number("scale", scale) * identity, activation)


@dataclass(frozen=True, eq=False)
class Block:
    """A weight-tied Transformer block on a ring of N tokens with d features: the map F.

    heads : at least one Head, all of one d and one N.
    feedforward : φ, or None for φ = 0.
    attention_scale : ε_a, the residual scale of the attention branch.
    """

    heads: tuple[Head, ...]
    feedforward: FeedForward | None
    attention_scale: float

    def __init__(
        self,
        heads: Sequence[Head],
        feedforward: FeedForward | None = None,
        attention_scale: float = 1.0,
    ) -> None:
        if not isinstance(heads, Sequence):
            raise ArgumentError("heads", type(heads).__name__, "a sequence of one Head or more")
        heads = tuple(heads)
        if not heads or not all(isinstance(head, Head) for head in heads):
            raise ArgumentError("heads", [type(head).__name__ for head in heads], "one Head or more")
        n, d = heads[0].kernel.n, heads[0].d
        for number, head in enumerate(heads):
            if (head.kernel.n, head.d) != (n, d):
                got = f"N = {head.kernel.n}, d = {head.d}"
                raise ArgumentError(f"heads[{number}]", got, f"N = {n}, d = {d} as in the first head")
        if not isinstance(feedforward, FeedForward | None):
            raise ArgumentError("feedforward", type(feedforward).__name__, "a FeedForward or None")
        if feedforward is not None and feedforward.d != d:
            raise ArgumentError("feedforward", f"d = {feedforward.d}", f"d = {d} as in the heads")
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "feedforward", feedforward)
        object.__setattr__(self, "attention_scale", real_number("attention_scale", attention_scale))

    @property
    def n(self) -> int:
        """Number of tokens N."""
        return self.heads[0].kernel.n

    @property
    def d(self) -> int:
        """Number of features d."""
        return self.heads[0].d

    def forward(self, x: ArrayLike) -> NDArray:
        """F(X) for states `x` (…, N, d) → (…, N, d); (…, N) → (…, N) is accepted for d = 1.

        Complex states are accepted: F is continued analytically.
        """
        x, squeezed = self._states(x)
        y = x + self.attention_scale * sum(head.attention(x) @ x @ head.value.T for head in self.heads)
        out = self.pointwise(y)
        return out[..., 0] if squeezed else out

    def pointwise(self, y: NDArray) -> NDArray:
        """H(y) = y + φ(y), (…, d) → (…, d)."""
        return y if self.feedforward is None else y + self.feedforward(y)

    def pointwise_jacobian(self, y: NDArray) -> NDArray[np.float64]:
        """(d, d) derivative C = DH at the state `y` (d,)."""
        identity = np.eye(self.d)
        return identity if self.feedforward is None else identity + self.feedforward.jacobian(y)

    def attended(self, a: ArrayLike | None = None) -> NDArray[np.float64]:
        """(d,) y* = a + ε_a Σ_h M_h a, what the feed-forward sees at the homogeneous state 1⊗a."""
        a = self.homogeneous_state(a)
        return a + self.attention_scale * sum(head.value for head in self.heads) @ a

    def homogeneous_map(self, a: ArrayLike) -> NDArray[np.float64]:
        """(d,) g(a) = H(a + ε_a Σ_h M_h a): F(1⊗a) = 1⊗g(a)."""
        return self.pointwise(self.attended(a))

    def homogeneous_state(self, a: ArrayLike | None) -> NDArray[np.float64]:
        """`a` as a (d,) array: zero for None; a number is accepted for d = 1."""
        if a is None:
            return frozen(np.zeros(self.d))
        return frozen_array("state", np.reshape(a, 1) if self.d == 1 and np.ndim(a) == 0 else a, (self.d,))

    def _states(self, x: ArrayLike) -> tuple[NDArray, bool]:
        x = np.asarray(x)
        if x.ndim >= 2 and x.shape[-2:] == (self.n, self.d):
            return x, False
        if self.d == 1 and x.ndim >= 1 and x.shape[-1] == self.n:
            return x[..., None], True
        also = f" or (…, {self.n})" if self.d == 1 else ""
        raise ArgumentError("x", f"shape {x.shape}", f"shape (…, {self.n}, {self.d}){also}")


def _square(argument: str, value: ArrayLike, d: int | None) -> NDArray[np.float64]:
    matrix = frozen_array(argument, np.reshape(value, (1, 1)) if np.ndim(value) == 0 else value, (d, d))
    if matrix.shape[0] != matrix.shape[1]:
        raise ArgumentError(argument, f"shape {matrix.shape}", "a square matrix, or a number for d = 1")
    return matrix
