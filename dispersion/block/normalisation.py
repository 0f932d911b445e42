"""Pointwise normalisations of a token's features, with their derivatives (App. A.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import ArgumentError, frozen_array, real_number, real_states, states, whole_number
from dispersion.memory import require
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64, power_of_two


@dataclass(frozen=True, eq=False)
class Normalisation(Noun):
    """A map of a token's d features to gain ∘ z(x) + bias; its subclasses say what z is.

    gain, bias : (d,); bias is zero by default.
    """

    gain: NDArray[np.float64]
    bias: NDArray[np.float64]

    def __init__(self, gain: ArrayLike, bias: ArrayLike | None = None) -> None:
        gain = frozen_array("gain", gain, (None,))
        bias = np.zeros(len(gain)) if bias is None else bias
        object.__setattr__(self, "gain", gain)
        object.__setattr__(self, "bias", frozen_array("bias", bias, (len(gain),)))

    @classmethod
    def identity(cls, d: int) -> Self:
        """Gain one and bias zero on `d` features, as at initialisation."""
        require("d", f"{whole_number('d', d, 1):,} features", 32 * d)
        return cls(np.ones(d))

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.gain)

    @beyond_float64
    def __call__(self, x: NDArray) -> NDArray:
        """(…, d) → (…, d); complex states are continued analytically."""
        return self.gain * self._standard(states("x", x, self.d)) + self.bias

    @beyond_float64
    def jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, d, d) derivative at the real states `x` (…, d)."""
        return self.gain[:, None] * self._derivative(real_states("x", x, self.d))

    def _standard(self, x: NDArray) -> NDArray:
        raise NotImplementedError

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class LayerNorm(Normalisation):
    """z = (x − mean x)/σ, σ = √(var x + eps) with the biased variance over features.

    gain, bias : (d,); eps : ≥ 0. A state of equal features with eps = 0 has no derivative: ArgumentError.
    """

    eps: float

    def __init__(self, gain: ArrayLike, bias: ArrayLike | None = None, eps: float = 1e-5) -> None:
        super().__init__(gain, bias)
        object.__setattr__(self, "eps", _eps(eps))

    def _standard(self, x: NDArray) -> NDArray:
        y, t = _scaled(x, self.eps)
        centred = y - y.mean(axis=-1, keepdims=True)
        return centred / _root(centred, self.eps, t, y)

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        # D = σ^{-1}[I − 11ᵀ/d − zzᵀ/d]
        y, t = _scaled(x, self.eps)
        z, sigma = self._standard(x), t * _root(y - y.mean(axis=-1, keepdims=True), self.eps, t, y)
        return (np.eye(self.d) - 1 / self.d - _outer(z) / self.d) / sigma[..., None]


@dataclass(frozen=True, eq=False)
class RMSNorm(Normalisation):
    """z = x/ρ, ρ = √(mean x² + eps).

    gain, bias : (d,); eps : ≥ 0. The state 0 with eps = 0 has no derivative: ArgumentError.
    """

    eps: float

    def __init__(self, gain: ArrayLike, bias: ArrayLike | None = None, eps: float = 1e-5) -> None:
        super().__init__(gain, bias)
        object.__setattr__(self, "eps", _eps(eps))

    def _standard(self, x: NDArray) -> NDArray:
        y, t = _scaled(x, self.eps)
        return y / _root(y, self.eps, t, y)

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        # D = ρ^{-1}[I − zzᵀ/d]
        y, t = _scaled(x, self.eps)
        z, rho = self._standard(x), t * _root(y, self.eps, t, y)
        return (np.eye(self.d) - _outer(z) / self.d) / rho[..., None]


@dataclass(frozen=True, eq=False)
class DyT(Normalisation):
    """Dynamic tanh, z = tanh(αx), elementwise.

    gain, bias : (d,); alpha : α.
    """

    alpha: float

    def __init__(self, gain: ArrayLike, bias: ArrayLike | None = None, alpha: float = 0.5) -> None:
        super().__init__(gain, bias)
        object.__setattr__(self, "alpha", real_number("alpha", alpha))

    def _standard(self, x: NDArray) -> NDArray:
        return np.tanh(self.alpha * x)

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return (self.alpha * (1 - np.tanh(self.alpha * x) ** 2))[..., None] * np.eye(self.d)


def _eps(eps: float) -> float:
    eps = real_number("eps", eps)
    if eps < 0:
        raise ArgumentError("eps", eps, "a number ≥ 0")
    return eps


def _outer(z: NDArray) -> NDArray:
    """(…, d, d) zzᵀ of `z` (…, d)."""
    return z[..., :, None] * z[..., None, :]


def _scaled(x: NDArray, eps: float) -> tuple[NDArray, NDArray[np.float64]]:
    """(x/t, t) with t (…, 1) the power of two just under the largest of |x| and √eps: squares stay within float64."""
    size = np.maximum(np.abs(x).max(axis=-1, keepdims=True), np.sqrt(eps))
    t = power_of_two(size)
    return x / t, t


def _root(y: NDArray, eps: float, t: NDArray[np.float64], whole: NDArray) -> NDArray:
    """(…, 1) √(mean y² + eps/t²), refused where eps = 0 and y (…, d) is rounding of the numbers `whole`."""
    square = (y**2).mean(axis=-1, keepdims=True)
    if eps == 0 and (np.abs(square) <= 1e-30 * np.abs((whole**2).mean(axis=-1, keepdims=True))).any():
        raise ArgumentError("state", "no variance over features with eps = 0", "another state, or eps > 0 in the norm")
    return np.sqrt(square + eps / t / t)
