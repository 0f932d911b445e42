"""The feed-forward branch of a block, applied to each token alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.activation import MOST, Activation
from dispersion.errors import ArgumentError, frozen_array, number_array, real_number, states, whole_number
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64


@dataclass(frozen=True, eq=False)
class FeedForward(Noun):
    """φ(y) = W_out act(W_in y + b_in) + b_out; the block applies H(y) = y + φ(y).

    With a gate φ(y) = W_out [act(W_gate y + b_gate) ∘ (W_in y + b_in)] + b_out; act = SiLU makes it SwiGLU.

    Parameters
    ----------
    weight_in : (m, d) array_like
        W_in.
    weight_out : (d, m) array_like
        W_out.
    activation : Activation or str
        act, or its name.
    bias_in : (m,) array_like, optional
        b_in, zero by default.
    bias_out : (d,) array_like, optional
        b_out, zero by default.
    weight_gate : (m, d) array_like, optional
        W_gate, or None for no gate.
    bias_gate : (m,) array_like, optional
        b_gate, with a gate only; zero by default.
    """

    weight_in: NDArray[np.float64]
    weight_out: NDArray[np.float64]
    activation: Activation
    bias_in: NDArray[np.float64]
    bias_out: NDArray[np.float64]
    weight_gate: NDArray[np.float64] | None
    bias_gate: NDArray[np.float64] | None

    def __init__(
        self,
        weight_in: ArrayLike,
        weight_out: ArrayLike,
        activation: Activation | str,
        bias_in: ArrayLike | None = None,
        bias_out: ArrayLike | None = None,
        weight_gate: ArrayLike | None = None,
        bias_gate: ArrayLike | None = None,
    ) -> None:
        weight_in = frozen_array("weight_in", weight_in, (None, None))
        m, d = weight_in.shape
        set_field = object.__setattr__
        set_field(self, "weight_in", weight_in)
        set_field(self, "weight_out", frozen_array("weight_out", weight_out, (d, m)))
        set_field(self, "activation", Activation.of(activation))
        set_field(self, "bias_in", _bias("bias_in", bias_in, m))
        set_field(self, "bias_out", _bias("bias_out", bias_out, d))
        if weight_gate is None and bias_gate is not None:
            raise ArgumentError("bias_gate", "a bias without weight_gate", "None, or weight_gate too")
        gate = None if weight_gate is None else frozen_array("weight_gate", weight_gate, (m, d))
        set_field(self, "weight_gate", gate)
        set_field(self, "bias_gate", None if gate is None else _bias("bias_gate", bias_gate, m))

    @property
    def d(self) -> int:
        """Number of features."""
        return self.weight_in.shape[1]

    @property
    def gated(self) -> bool:
        """Whether there is a gate."""
        return self.weight_gate is not None

    @beyond_float64
    def __call__(self, y: NDArray) -> NDArray:
        """(…, d) φ(y).

        Parameters
        ----------
        y : (…, d) ndarray
            States.
        """
        return self._image(states("y", y, self.d))

    def _image(self, y: NDArray) -> NDArray:
        hidden = self.activation._image(self._activated(y))
        if self.gated:
            hidden = hidden * self._inward(y)
        return hidden @ self.weight_out.T + self.bias_out

    @beyond_float64
    def jacobian(self, y: NDArray) -> NDArray[np.float64]:
        """(…, d, d) derivative Dφ.

        Parameters
        ----------
        y : (…, d) ndarray
            States.
        """
        y = states("y", y, self.d)
        series = self.activation.taylor(self._activated(y), 1)
        value, slope = series[..., None, :, 0], series[..., None, :, 1]
        if self.weight_gate is None:
            return np.asarray((self.weight_out * slope) @ self.weight_in)
        through_gate = (self.weight_out * slope * self._inward(y)[..., None, :]) @ self.weight_gate
        return np.asarray(through_gate + (self.weight_out * value) @ self.weight_in)

    @beyond_float64
    def taylor(self, y: ArrayLike, order: int) -> NDArray[np.float64]:
        """(…, order+1) Taylor coefficients φ⁽ⁿ⁾(y)/n! of a scalar (d = 1) feed-forward.

        Parameters
        ----------
        y : (…) array_like
            Points.
        order : int
            The largest n, 0 … 170.
        """
        if self.d != 1:
            raise ArgumentError("feedforward", f"d = {self.d}", "d = 1")
        y, degrees = number_array("y", y)[..., None], np.arange(whole_number("order", order, 0, MOST) + 1)
        inner = self.weight_in if self.weight_gate is None else self.weight_gate
        series = self.activation.taylor(self._activated(y), order) * inner**degrees
        if self.gated:
            # times W_in (y + s) + b_in
            shifted = np.concatenate([np.zeros_like(series[..., :1]), series[..., :-1]], axis=-1)
            series = series * self._inward(y)[..., None] + shifted * self.weight_in
        return self.weight_out[0] @ series + self.bias_out[0] * (degrees == 0)

    def _inward(self, y: NDArray) -> NDArray:
        """(…, m) W_in y + b_in."""
        return np.asarray(y @ self.weight_in.T + self.bias_in)

    def _activated(self, y: NDArray) -> NDArray:
        """(…, m) what the activation acts on."""
        if self.weight_gate is None or self.bias_gate is None:
            return self._inward(y)
        return np.asarray(y @ self.weight_gate.T + self.bias_gate)

    @classmethod
    def scalar(cls, activation: Activation | str, scale: float = 1.0) -> FeedForward:
        """φ(h) = scale · act(h), d = 1.

        Parameters
        ----------
        activation : Activation or str
            act, or its name.
        scale : float
            The factor.
        """
        return cls.elementwise(activation, 1, scale)

    @classmethod
    def elementwise(cls, activation: Activation | str, d: int, scale: float = 1.0) -> FeedForward:
        """φ(h) = scale · act(h) on each of d features.

        Parameters
        ----------
        activation : Activation or str
            act, or its name.
        d : int
            Number of features.
        scale : float
            The factor.
        """
        identity = np.eye(whole_number("d", d, 1))
        return cls(identity, real_number("scale", scale) * identity, activation)


def _bias(name: str, bias: ArrayLike | None, size: int) -> NDArray[np.float64]:
    return frozen_array(name, np.zeros(size) if bias is None else bias, (size,))
