"""The feed-forward branch of a block, applied to each token alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.activation import Activation
from dispersion.errors import ArgumentError, frozen_array, real_number, whole_number


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
