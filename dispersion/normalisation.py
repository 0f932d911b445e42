"""Pointwise normalisations of a token's features, with their derivatives (App. A.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import ArgumentError, frozen_array, real_number, whole_number


@dataclass(frozen=True, eq=False)
class Normalisation:
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
        return cls(np.ones(whole_number("d", d, 1)))

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.gain)

    def __call__(self, x: NDArray) -> NDArray:
        """(…, d) → (…, d); complex states are continued analytically."""
        return self.gain * self._standard(x) + self.bias

    def jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(d, d) derivative at the state `x` (d,)."""
        return self.gain[:, None] * self._derivative(x)

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
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / _root(_mean_square(centred), self.eps, _mean_square(x))

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        # D = σ^{-1}[I − 11ᵀ/d − zzᵀ/d]
        z, sigma = self._standard(x), _root(np.var(x), self.eps, np.mean(x**2))
        return (np.eye(self.d) - 1 / self.d - np.outer(z, z) / self.d) / sigma


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
        return x / _root(_mean_square(x), self.eps, _mean_square(x))

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        # D = ρ^{-1}[I − zzᵀ/d]
        z, rho = self._standard(x), _root(np.mean(x**2), self.eps, np.mean(x**2))
        return (np.eye(self.d) - np.outer(z, z) / self.d) / rho


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
        return np.diag(self.alpha * (1 - np.tanh(self.alpha * x) ** 2))


def _eps(eps: float) -> float:
    eps = real_number("eps", eps)
    if eps < 0:
        raise ArgumentError("eps", eps, "a number ≥ 0")
    return eps


def _mean_square(x: NDArray) -> NDArray:
    return (x**2).mean(axis=-1, keepdims=True)


def _root(square: NDArray | np.floating, eps: float, scale: NDArray | np.floating) -> NDArray:
    """√(square + eps), refused where eps = 0 and `square` is rounding of numbers whose square is `scale`."""
    if eps == 0 and (np.abs(square) <= 1e-30 * np.abs(scale)).any():
        raise ArgumentError("state", "no variance over features with eps = 0", "another state, or eps > 0 in the norm")
    return np.sqrt(square + eps)
