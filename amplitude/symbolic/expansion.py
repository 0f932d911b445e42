"""Expansion of the scalar map in the amplitudes of modes, by truncated polynomial algebra.

A field is a polynomial in mode variables z_1, z̄_1, z_2, …, each standing for B e^{iqj}: a monomial
has a wavenumber, the sum of those of its variables, and a positional average multiplies it by λ at
that wavenumber. Nothing is ever summed over tokens. The softmax is expanded from its definition, as
a quotient of two averages of the exponential.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import factorial

import sympy
from sympy import QQ, Eq, Expr, Rational, Symbol
from sympy.polys.orderings import lex
from sympy.polys.rings import PolyElement, PolyRing

from dispersion.symbolic.derivation import equation

ORDER = 3
Monomial = tuple[int, ...]
Wave = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Series:
    """A polynomial of degree ≤ 3 in the mode variables: `terms` maps exponents to coefficients (ring elements)."""

    terms: Mapping[Monomial, PolyElement]

    def __getitem__(self, monomial: Monomial) -> PolyElement:
        return self.terms.get(monomial, 0)

    def __add__(self, other: Series) -> Series:
        total = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total[monomial] = total.get(monomial, 0) + coefficient
        return Series(total)

    def __mul__(self, other: Series | PolyElement) -> Series:
        if not isinstance(other, Series):
            return Series({monomial: coefficient * other for monomial, coefficient in self.terms.items()})
        total: dict[Monomial, PolyElement] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                if sum(left) + sum(right) <= ORDER:
                    monomial = tuple(map(sum, zip(left, right, strict=True)))
                    total[monomial] = total.get(monomial, 0) + a * b
        return Series(total)


class Symbols:
    """The symbols of a scalar map: η, χ, ξ, λ of each head, and L and J made of them.

    heads : number of heads; subscripts : wavenumber → subscript of λ there, with its negative the conjugate,
        or None where λ = 0; other wavenumbers get a subscript of their own.
    symmetric : whether every λ is its own conjugate. A subscript with '~' in front means the conjugate.
    """

    def __init__(self, heads: int, subscripts: Mapping[Wave, str | None], symmetric: bool = False) -> None:
        self.heads, self.symmetric = range(1, heads + 1), symmetric
        self.subscripts = dict(subscripts)
        self._used: dict[str, None] = {}

    def subscript(self, wave: Wave) -> str | None:
        """The subscript at wavenumber `wave`, '0' for the mean, None where λ = 0."""
        if not any(wave):
            return "0"
        if wave in self.subscripts:
            return self.subscripts[wave]
        opposite = tuple(-part for part in wave)
        if opposite in self.subscripts:
            name = self.subscripts[opposite]
            return name if name is None or self.symmetric else f"~{name}"
        return ",".join(map(str, wave))

    def parameter(self, name: str, head: int) -> Expr:
        """The symbol of a parameter `name` of one `head`."""
        return Symbol(name if len(self.heads) == 1 else f"{name}_{head}")

    def symbol(self, name: str | None, head: int) -> Expr:
        """λ of one `head` at the subscript `name`; 1 for '0' and 0 for None."""
        if name is None or name == "0":
            return sympy.Integer(name is not None)
        stem = f"lambdabar_{name[1:]}" if name[0] == "~" and not self.symmetric else f"lambda_{name.lstrip('~')}"
        return Symbol(stem if len(self.heads) == 1 else f"{stem}^{head}")

    def total(self, term: Callable[[Callable[[str], Expr]], Expr]) -> Expr:
        """Σ_h `term`(s), where s('eta'), s('chi'), s('xi') are parameters of head h and s(subscript) its λ."""
        plain = ("eta", "chi", "xi")
        pick = [
            lambda name, head=head: self.parameter(name, head) if name in plain else self.symbol(name, head)
            for head in self.heads
        ]
        return sympy.Add(*(term(of) for of in pick))

    def L(self, name: str) -> Expr:
        """The symbol of L = 1 + Σ_h η_h λ_h at the subscript `name`."""
        if self.symmetric:
            name = name.lstrip("~")
        self._used[name] = None
        return Symbol(f"Lbar_{name[1:]}" if name[0] == "~" else f"L_{name}")

    def J(self, name: str) -> Expr:
        """J = α_1 L at the subscript `name`."""
        return Symbol("alpha_1") * self.L(name)

    @property
    def definitions(self) -> tuple[Eq, ...]:
        """L = 1 + Σ_h η_h λ_h for every L that was asked for."""
        return tuple(
            equation(self.L(name), 1 + self.total(lambda s, name=name: s("eta") * s(name)))  # type: ignore[misc]
            for name in self._used
        )


@dataclass(frozen=True, eq=False)
class Expansion:
    """The scalar map around a homogeneous state, on given modes, to third order.

    modes : variable name → wavenumber, a tuple of whole numbers, one for each basic wave.
    names : the symbols; period : if not 0, wavenumbers count modulo it; base : whether the state is not
        zero, so that ξ = χa appears.

    A monomial is written as its variables, 'z z zbar'.
    """

    modes: Mapping[str, Wave]
    names: Symbols
    period: int = 0
    base: bool = False

    def exponents(self, monomial: str) -> Monomial:
        """The exponents of a `monomial`."""
        return tuple(monomial.split().count(name) for name in self.modes)

    def wave(self, exponents: Monomial) -> Wave:
        """The wavenumber of the monomial with these `exponents`; modulo the period it is at most half of it."""
        axes = zip(*self.modes.values(), strict=True)
        total = [sum(n * part for n, part in zip(exponents, axis, strict=True)) for axis in axes]
        if not self.period:
            return tuple(total)
        half = (self.period - 1) // 2
        return tuple((part + half) % self.period - half for part in total)

    @cached_property
    def slaved(self) -> dict[Monomial, Expr]:
        """Quadratic monomials and the modes they drive, X; those that drive a critical mode are left out."""
        critical = {self.wave(self.exponents(name)) for name in self.modes}
        pairs = [m for m in _monomials(len(self.modes)) if sum(m) == 2]
        return {m: Symbol(f"X_{','.join(map(str, m))}") for m in pairs if self.wave(m) not in critical}

    @cached_property
    def ring(self) -> PolyRing:
        """The coefficient ring: α's, η's, χ's, ξ's, λ's and the slaved amplitudes."""
        waves = {self.wave(m) for m in _monomials(len(self.modes))}
        parameters = ["eta", "chi", *(["xi"] if self.base else [])]
        used = {self.names.parameter(name, head) for name in parameters for head in self.names.heads}
        used |= {self.names.symbol(self.names.subscript(wave), head) for wave in waves for head in self.names.heads}
        symbols = [symbol for symbol in used if symbol.is_Symbol] + list(self.slaved.values())
        return PolyRing([*sympy.symbols("alpha_1:4"), *sorted(symbols, key=str)], QQ, lex)

    def average(self, field: Series, head: int) -> Series:
        """A_h applied to a `field`: each monomial times λ_h, `head` = h, at its wavenumber."""
        factor = {m: self.ring(self.names.symbol(self.names.subscript(self.wave(m)), head)) for m in field.terms}
        return Series({m: coefficient * factor[m] for m, coefficient in field.terms.items()})

    def attention(self, u: Series, head: int) -> Series:
        """Mean of `u` under weights ∝ A_h e^{θ_i u_j}, θ_i = ξ_h + χ_h u_i, a quotient of two series; `head` = h."""
        unit = Series({(0,) * len(self.modes): self.ring.one})
        theta = u * self.ring(self.names.parameter("chi", head))
        if self.base:
            theta = theta + unit * self.ring(self.names.parameter("xi", head))
        tilt, power, above, below = unit, unit, Series({}), Series({})
        for n in range(ORDER + 1):  # θⁿ/n! · A uⁿ
            weight = tilt * self.ring(Rational(1, factorial(n)))
            below = below + weight * self.average(power, head)
            power = power * u
            above = above + weight * self.average(power, head)
            tilt = tilt * theta
        excess, inverse = below + unit * -self.ring.one, unit
        for _ in range(ORDER):  # 1/(1 + e) = 1 − e(1 − e(1 − e))
            inverse = unit + excess * inverse * -self.ring.one
        return above * inverse

    @cached_property
    def step(self) -> Series:
        """F(a + u) − a, u the modes and what they drive at second order."""
        u = Series({self.exponents(name): self.ring.one for name in self.modes})
        y = u = u + Series({m: self.ring(X) for m, X in self.slaved.items()})
        for head in self.names.heads:
            y = y + self.attention(u, head) * self.ring(self.names.parameter("eta", head))
        first, second, third = self.ring.gens[:3]
        return y * first + y * y * second + y * y * y * third

    def slaving(self, pair: str) -> tuple[Expr, Expr]:
        """(D, p) of the quadratic monomial `pair`: X = p/D, D = Λ^m − J.

        Invariance, X(f(z)) = F(X(z)), reads Λ^m X = J X + p at second order.
        """
        driven, unknown = self.step[self.exponents(pair)], self.ring(self.slaved[self.exponents(pair)])
        J = driven.diff(unknown)
        factors = (self.step[self.exponents(name)].as_expr() for name in pair.split())
        return sympy.Mul(*factors) - J.as_expr(), self._arranged(driven - J * unknown)

    def coefficient(self, monomial: str) -> Expr:
        """The coefficient of `monomial` in F, with the driven modes X as symbols."""
        return self._arranged(self.step[self.exponents(monomial)])

    def _arranged(self, polynomial: PolyElement) -> Expr:
        """`polynomial` with its coefficients of the α's and X's factored."""
        outer = [*self.ring.symbols[:3], *self.slaved.values()]
        terms = sympy.Poly(polynomial.as_expr(), *outer).as_dict()
        return sympy.Add(
            *(
                sympy.factor(inner) * sympy.Mul(*(x**n for x, n in zip(outer, powers, strict=True)))
                for powers, inner in terms.items()
            )
        )


def _monomials(count: int) -> list[Monomial]:
    if count == 0:
        return [()]
    return [(power, *rest) for rest in _monomials(count - 1) for power in range(ORDER + 1 - sum(rest))]
