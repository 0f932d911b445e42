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

    Parameters
    ----------
    gain : (d,) array_like
        The factor of each feature.
    bias : (d,) array_like, optional
        Zero by default.
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
        """Gain one and bias zero, as at initialisation.

        Parameters
        ----------
        d : int
            Number of features.
        """
        require("d", f"{whole_number('d', d, 1):,} features", 32 * d)
        return cls(np.ones(d))

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.gain)

    @beyond_float64
    def __call__(self, x: NDArray) -> NDArray:
        """(…, d) gain ∘ z(x) + bias.

        Parameters
        ----------
        x : (…, d) ndarray
            States; complex ones are continued analytically.
        """
        return self._image(states("x", x, self.d))

    def _image(self, x: NDArray) -> NDArray:
        return self.gain * self._standard(x) + self.bias

    @beyond_float64
    def jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, d, d) derivative.

        Parameters
        ----------
        x : (…, d) ndarray
            Real states.
        """
        return self.gain[:, None] * self._derivative(real_states("x", x, self.d))

    def _standard(self, x: NDArray) -> NDArray:
        raise NotImplementedError

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, d, d) dz/dx, by complex steps, exact to rounding, where a subclass has no formula."""
        steps = self._standard(x[..., None, :] + 1e-30j * np.eye(self.d))
        return np.swapaxes(steps.imag, -1, -2) / 1e-30


@dataclass(frozen=True, eq=False)
class _Rescaled(Normalisation):
    """z = c/σ, σ = √(mean c² + eps), c a projection of x."""

    eps: float

    def __init__(self, gain: ArrayLike, bias: ArrayLike | None = None, eps: float = 1e-5) -> None:
        super().__init__(gain, bias)
        eps = real_number("eps", eps)
        if eps < 0:
            raise ArgumentError("eps", eps, "a number ≥ 0")
        object.__setattr__(self, "eps", eps)

    def _projected(self, x: NDArray) -> NDArray:
        """(…, d) c of `x` (…, d)."""
        raise NotImplementedError

    def _projection(self) -> NDArray[np.float64]:
        """(d, d) dc/dx."""
        raise NotImplementedError

    def _standard(self, x: NDArray) -> NDArray:
        return self._parts(x)[0]

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        # D = σ^{-1}[dc/dx − zzᵀ/d]
        z, sigma = self._parts(x)
        return (self._projection() - z[..., :, None] * z[..., None, :] / self.d) / sigma[..., None]

    def _parts(self, x: NDArray) -> tuple[NDArray, NDArray]:
        """z (…, d) and σ (…, 1) at `x` (…, d), refused where eps = 0 and c is rounding of x.

        Computed on x/t, t the power of two just under the largest of |x| and √eps: squares stay within float64.
        """
        t = power_of_two(np.maximum(np.abs(x).max(axis=-1, keepdims=True), np.sqrt(self.eps)))
        y = x / t
        c = self._projected(y)
        square = (c**2).mean(axis=-1, keepdims=True)
        if self.eps == 0 and (np.abs(square) <= 1e-30 * np.abs((y**2).mean(axis=-1, keepdims=True))).any():
            accepted = "another state, or eps > 0 in the norm"
            raise ArgumentError("state", "no variance over features with eps = 0", accepted)
        root = np.sqrt(square + self.eps / t / t)
        return c / root, t * root


@dataclass(frozen=True, eq=False, init=False)
class LayerNorm(_Rescaled):
    """z = (x − mean x)/σ, σ = √(var x + eps) with the biased variance over features.

    Parameters
    ----------
    gain : (d,) array_like
        The factor of each feature.
    bias : (d,) array_like, optional
        Zero by default.
    eps : float
        ≥ 0. A state of equal features with eps = 0 has no derivative: ArgumentError.
    """

    def _projected(self, x: NDArray) -> NDArray:
        return x - x.mean(axis=-1, keepdims=True)

    def _projection(self) -> NDArray[np.float64]:
        return np.eye(self.d) - 1 / self.d


@dataclass(frozen=True, eq=False, init=False)
class RMSNorm(_Rescaled):
    """z = x/ρ, ρ = √(mean x² + eps).

    Parameters
    ----------
    gain : (d,) array_like
        The factor of each feature.
    bias : (d,) array_like, optional
        Zero by default.
    eps : float
        ≥ 0. The state 0 with eps = 0 has no derivative: ArgumentError.
    """

    def _projected(self, x: NDArray) -> NDArray:
        return x

    def _projection(self) -> NDArray[np.float64]:
        return np.eye(self.d)


@dataclass(frozen=True, eq=False)
class DyT(Normalisation):
    """Dynamic tanh, z = tanh(αx), elementwise.

    Parameters
    ----------
    gain : (d,) array_like
        The factor of each feature.
    bias : (d,) array_like, optional
        Zero by default.
    alpha : float
        α.
    """

    alpha: float

    def __init__(self, gain: ArrayLike, bias: ArrayLike | None = None, alpha: float = 0.5) -> None:
        super().__init__(gain, bias)
        object.__setattr__(self, "alpha", real_number("alpha", alpha))

    def _standard(self, x: NDArray) -> NDArray:
        return np.tanh(self.alpha * x)

    def _derivative(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return (self.alpha * (1 - np.tanh(self.alpha * x) ** 2))[..., None] * np.eye(self.d)
