"""Truncated power series, degree by degree: the elementary operations.

Each series holds the coefficients of one intermediate quantity and computes those of degree p from those of its inputs
up to degree p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from amplitude.normal_forms.monomials import Monomials, TwoPoint, monomials, two_point
from dispersion import Activation

Values = NDArray[np.complex128]


@dataclass(frozen=True)
class Grading:
    """Monomials of `variables` variables with their wavenumbers.

    shape : of the ring or torus; waves : (variables, D) wavenumber of each variable; order : highest degree.
    """

    shape: tuple[int, ...]
    waves: tuple[tuple[int, ...], ...]
    order: int

    @property
    def table(self) -> Monomials:
        """The monomials."""
        return monomials(len(self.waves), self.order)

    @property
    def pairs(self) -> TwoPoint:
        """The two-point monomials."""
        return two_point(len(self.waves), self.order)

    def places(self) -> NDArray[np.int64]:
        """(M,) flat index of the wavenumber k(m) of each monomial."""
        k = self.table.exponents @ np.array(self.waves).reshape(len(self.waves), -1) % np.array(self.shape)
        return np.ravel_multi_index(tuple(k.T), self.shape)


class Series:
    """Coefficients `values` (M, …) of a quantity, complete up to the degree last updated."""

    def __init__(self, grading: Grading, width: int, constant: NDArray | float) -> None:
        self.table = grading.table
        self.values: Values = np.zeros((len(self.table), width), dtype=complex)
        self.values[0] = constant

    def update(self, p: int) -> None:
        """Compute the coefficients of degree p ≥ 1."""
        raise NotImplementedError

    def product(self, a: Values, b: Values, p: int) -> Values:
        """Degree p of the product a·b."""
        pairs = self.table.pairs(p)
        return pairs.sum(a[pairs.first] * b[pairs.second])


class Field(Series):
    """The unknown X: its coefficients are set from outside."""

    def update(self, p: int) -> None:
        """Nothing: X is given."""


class Affine(Series):
    """matrix · x + constant, for an input series x."""

    def __init__(self, grading: Grading, x: Series, matrix: NDArray, shift: NDArray | float = 0.0) -> None:
        super().__init__(grading, len(matrix), matrix @ x.values[0] + shift)
        self.x, self.matrix = x, matrix

    def update(self, p: int) -> None:
        """(matrix x)_p."""
        degree = self.table.degree(p)
        self.values[degree] = self.x.values[degree] @ self.matrix.T


class Sum(Series):
    """Sum of series of one width."""

    def __init__(self, grading: Grading, *terms: Series) -> None:
        super().__init__(grading, terms[0].values.shape[1], sum(term.values[0] for term in terms))
        self.terms = terms

    def update(self, p: int) -> None:
        """Σ terms_p."""
        degree = self.table.degree(p)
        self.values[degree] = sum(term.values[degree] for term in self.terms)


class Pointwise(Series):
    """act(x), elementwise: Σ_n c_n (x − x_0)^n with the Taylor coefficients c_n at the constant x_0."""

    def __init__(self, grading: Grading, x: Series, activation: Activation) -> None:
        centre = x.values[0].real
        super().__init__(grading, len(centre), activation(centre))
        self.x = x
        self.taylor = activation.taylor(centre, grading.order)
        # a polynomial ends, and so does a composition: powers that cannot count are not formed
        self.highest = max(1, int(np.flatnonzero(np.abs(self.taylor).max(axis=0))[-1])) if self.taylor.any() else 1
        self.powers = np.zeros((self.highest + 1, *self.values.shape), dtype=complex)

    def update(self, p: int) -> None:
        """Σ_n c_n ((x − x_0)^n)_p."""
        degree = self.table.degree(p)
        self.powers[1][degree] = self.x.values[degree]
        top = min(p, self.highest)
        if top > 1:
            # (x^n)_p = Σ_a x_a (x^{n−1})_{p−a}, all n at once: every factor has a degree under p
            pairs = self.table.pairs(p)
            lower = self.powers[1:top, pairs.second]
            products = self.powers[1][pairs.first] * lower
            self.powers[2 : top + 1, degree] = np.add.reduceat(products, pairs.starts, axis=1)
        self.values[degree] = np.einsum("nmw,wn->mw", self.powers[1 : top + 1, degree], self.taylor[:, 1 : top + 1])


class Power(Series):
    """x^exponent elementwise, x_0 ≠ 0, from x·(z·∇f) = exponent·f·(z·∇x)."""

    def __init__(self, grading: Grading, x: Series, exponent: float) -> None:
        super().__init__(grading, x.values.shape[1], x.values[0] ** exponent)
        self.x, self.exponent = x, exponent

    def update(self, p: int) -> None:
        """p x_0 f_p = Σ_{a=1}^p (exponent·a − (p − a)) x_a f_{p−a}."""
        pairs = self.table.pairs(p)
        a = self.table.degrees[pairs.first]
        factor = np.where(a > 0, self.exponent * a - (p - a), 0.0)[:, None]
        known = pairs.sum(factor * self.x.values[pairs.first] * self.values[pairs.second])
        self.values[self.table.degree(p)] = known / (p * self.x.values[0])


class Product(Series):
    """a·b, elementwise; b may have width 1."""

    def __init__(self, grading: Grading, a: Series, b: Series) -> None:
        super().__init__(grading, a.values.shape[1], a.values[0] * b.values[0])
        self.a, self.b = a, b

    def update(self, p: int) -> None:
        """(ab)_p."""
        self.values[self.table.degree(p)] = self.product(self.a.values, self.b.values, p)
