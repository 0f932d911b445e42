"""Pointwise functions and their Taylor coefficients at any point, to any order.

Each function satisfies an ordinary differential equation; inserting a power series gives a
recurrence for its coefficients, exact to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial, pi, sqrt
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import ArgumentError, choice, frozen_array, number_array, real_array, whole_number
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64

Series = list[NDArray]

MOST = 170
"""Largest order of a Taylor coefficient: 171! is beyond float64."""


@dataclass(frozen=True)
class Activation(Noun):
    """A pointwise function φ with φ(y + s) = Σ_n c_n(y) sⁿ.

    Parameters
    ----------
    name : str
        One of `Activation.names()`.
    coefficients : sequence of float
        (c1, c2, …) of φ(y) = c1 y + c2 y² + …, for the polynomial only.
    """

    name: str
    coefficients: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        choice("activation", self.name, FUNCTIONS)
        given = real_array("coefficients", self.coefficients).size
        if (self.name == "polynomial") != bool(given):
            raise ArgumentError("coefficients", self.coefficients, "numbers for 'polynomial' and only for it")
        coefficients = frozen_array("coefficients", self.coefficients, (None,)).tolist() if given else ()
        object.__setattr__(self, "coefficients", tuple(coefficients))

    @beyond_float64
    def __call__(self, y: ArrayLike) -> NDArray:
        """(…) φ(y), elementwise.

        Parameters
        ----------
        y : (…) array_like
            Real or complex, its shape kept.
        """
        return self._image(number_array("y", y))

    def _image(self, y: NDArray) -> NDArray:
        return FUNCTIONS[self.name].value(y, self.coefficients)

    @beyond_float64
    def taylor(self, y: ArrayLike, order: int) -> NDArray:
        """(…, order+1) Taylor coefficients φ⁽ⁿ⁾(y)/n!.

        Parameters
        ----------
        y : (…) array_like
            Points.
        order : int
            The largest n, 0 … 170.

        Raises
        ------
        ArgumentError
            ReLU has none beyond the first, and no first at y = 0; its square has none beyond the first at y = 0:
            refused.
        """
        y = number_array("y", y)
        whole_number("order", order, 0, MOST)
        series = FUNCTIONS[self.name].series(y, order, self.coefficients)
        return np.stack([np.broadcast_to(term, y.shape) for term in series], axis=-1)

    @classmethod
    def tanh(cls) -> Activation:
        """φ(y) = tanh y."""
        return cls("tanh")

    @classmethod
    def gelu(cls) -> Activation:
        """φ(y) = y(1 + erf(y/√2))/2, the exact GELU."""
        return cls("gelu")

    @classmethod
    def gelu_tanh(cls) -> Activation:
        """φ(y) = y(1 + tanh(√(2/π)(y + 0.044715 y³)))/2, the tanh form of GELU."""
        return cls("gelu_tanh")

    @classmethod
    def silu(cls) -> Activation:
        """φ(y) = yσ(y), σ(y) = 1/(1 + e^{−y})."""
        return cls("silu")

    @classmethod
    def quick_gelu(cls) -> Activation:
        """φ(y) = yσ(1.702 y)."""
        return cls("quick_gelu")

    @classmethod
    def erf(cls) -> Activation:
        """φ(y) = erf y."""
        return cls("erf")

    @classmethod
    def sine(cls) -> Activation:
        """φ(y) = sin y."""
        return cls("sine")

    @classmethod
    def relu(cls) -> Activation:
        """φ(y) = max(y, 0), usable in forward maps; refused where smoothness is needed."""
        return cls("relu")

    @classmethod
    def relu_squared(cls) -> Activation:
        """φ(y) = max(y, 0)²; refused at y = 0 where a second derivative is needed."""
        return cls("relu_squared")

    @classmethod
    def polynomial(cls, coefficients: ArrayLike) -> Activation:
        """φ(y) = c1 y + c2 y² + …

        Parameters
        ----------
        coefficients : array_like
            (c1, c2, …).
        """
        return cls("polynomial", coefficients)  # type: ignore[arg-type]

    @classmethod
    def of(cls, activation: Activation | str) -> Activation:
        """The activation itself, or the one with that name.

        Parameters
        ----------
        activation : Activation or str
            An activation, or one of `Activation.names()`.
        """
        return activation if isinstance(activation, Activation) else cls(activation)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of all activations."""
        return tuple(FUNCTIONS)


def _special() -> Any:
    """scipy.special, imported when first needed: it takes longer than the rest of this package."""
    from scipy import special

    return special


@dataclass(frozen=True)
class _Function:
    value: Callable[[NDArray, tuple[float, ...]], NDArray]
    series: Callable[[NDArray, int, tuple[float, ...]], Series]


def _product(a: Series, b: Series, n: int) -> NDArray:
    """The n-th coefficient of the product of two power series."""
    return sum((a[m] * b[n - m] for m in range(n + 1)), start=np.zeros(()))


def _times_argument(y: NDArray, f: Series) -> Series:
    """Coefficients of (y + s) f(y + s)."""
    return [y * f[0]] + [y * f[n] + f[n - 1] for n in range(1, len(f))]


def _tanh(y: NDArray, order: int, _: tuple[float, ...]) -> Series:
    t = [np.tanh(y)]
    for n in range(order):  # t' = 1 − t²
        t.append(((n == 0) - _product(t, t, n)) / (n + 1))
    return t


def _gaussian_integral(y: NDArray, order: int, value: NDArray, slope: NDArray, rate: float) -> Series:
    """Coefficients of the f with f(y) = `value`, f' = g, g(y) = `slope` and g' = −rate·y·g."""
    f, g = [value], [slope]
    for n in range(order):
        f.append(g[n] / (n + 1))
        g.append(-rate * _times_argument(y, g)[n] / (n + 1))
    return f


def _erf(y: NDArray, order: int, _: tuple[float, ...]) -> Series:
    return _gaussian_integral(y, order, _special().erf(y), 2 / sqrt(pi) * np.exp(-(y**2)), 2.0)


def _gelu(y: NDArray, order: int, _: tuple[float, ...]) -> Series:
    density = np.exp(-(y**2) / 2) / sqrt(2 * pi)
    return _times_argument(y, _gaussian_integral(y, order, _special().ndtr(y), density, 1.0))


def _sigmoid(y: NDArray) -> NDArray:
    """σ(y) = 1/(1 + e^{−y}) without overflow."""
    if not np.iscomplexobj(y):
        return np.asarray(_special().expit(y))
    right = y.real > 0
    decaying = np.exp(np.where(right, -y, y))
    return np.where(right, 1, decaying) / (1 + decaying)


def _gated_by(p: Polynomial) -> _Function:
    """φ(y) = yσ(p(y))."""

    def series(y: NDArray, order: int, _: tuple[float, ...]) -> Series:
        slope = [p.deriv(n + 1)(y) / factorial(n) for n in range(p.degree())]
        s, curved = [_sigmoid(p(y))], []
        for n in range(order):  # σ(p)' = p'(σ − σ²)
            curved.append(s[n] - _product(s, s, n))
            s.append(sum(slope[m] * curved[n - m] for m in range(min(n + 1, len(slope)))) / (n + 1))
        return _times_argument(y, s)

    return _Function(lambda y, _: y * _sigmoid(p(y)), series)


def _sine(y: NDArray, order: int, _: tuple[float, ...]) -> Series:
    return [np.sin(y + n * pi / 2) / factorial(n) for n in range(order + 1)]


def _polynomial(y: NDArray, order: int, coefficients: tuple[float, ...]) -> Series:
    p = Polynomial((0.0, *coefficients))
    return [p.deriv(n)(y) / factorial(n) if n else p(y) for n in range(order + 1)]


def _relu(y: NDArray, order: int, _: tuple[float, ...]) -> Series:
    if order > 1 or (order == 1 and (y == 0).any()):
        raise ArgumentError("activation", "'relu', which has no Taylor series here", "a smooth activation")
    return [np.where(y.real > 0, y, 0), (y.real > 0) * 1.0][: order + 1]


def _relu_squared(y: NDArray, order: int, _: tuple[float, ...]) -> Series:
    if order > 1 and (y == 0).any():
        raise ArgumentError("activation", "'relu_squared', which has no second derivative at 0", "a smooth activation")
    r = np.where(y.real > 0, y, 0)
    return [r**2, 2 * r, (y.real > 0) * 1.0, *[np.zeros(())] * order][: order + 1]


FUNCTIONS = {
    "tanh": _Function(lambda y, _: np.tanh(y), _tanh),
    "gelu": _Function(lambda y, _: y * _special().ndtr(y), _gelu),
    "gelu_tanh": _gated_by(sqrt(8 / pi) * Polynomial((0.0, 1.0, 0.0, 0.044715))),  # (1 + tanh u)/2 = σ(2u)
    "silu": _gated_by(Polynomial((0.0, 1.0))),
    "quick_gelu": _gated_by(Polynomial((0.0, 1.702))),
    "erf": _Function(lambda y, _: _special().erf(y), _erf),
    "sine": _Function(lambda y, _: np.sin(y), _sine),
    "relu": _Function(lambda y, _: np.where(y.real > 0, y, 0), _relu),
    "relu_squared": _Function(lambda y, _: np.where(y.real > 0, y, 0) ** 2, _relu_squared),
    "polynomial": _Function(lambda y, c: Polynomial((0.0, *c))(y), _polynomial),
}
