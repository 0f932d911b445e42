"""A derivation: steps from a definition to a closed form, and the proof that the two agree."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy
from sympy import Eq, Expr, MatrixBase

from dispersion.noun import Noun, cached_property

WIDTH = 110
"""Columns of a printed derivation, less its indent."""


@dataclass(frozen=True, eq=False)
class Derivation(Noun):
    """Steps from a definition to a closed form, with the proof of the result.

    Parameters
    ----------
    name : str
        What it is called.
    title : str
        What it shows, in words.
    steps : tuple of (str, expression)
        The way there, each expression with its text.
    result : tuple of Eq
        The equations claimed, symbol = closed form.
    derived : tuple of expression
        For each of them what the derivation gave instead of the closed form.
    where : tuple of Eq
        Definitions symbol = expression used by `result` and `derived`, applied in this order.
    notes : str
        What the other symbols mean, in words.
    modulus : tuple of Expr
        Polynomials that vanish, such as zᴺ − 1: differences are reduced by them.
    samples : tuple of mapping
        Values of the symbols. If given, the proof is numerical, at these; infinite sums are then cut at |m| ≤ 24.
    digits : int
        To how many digits the numerical proof goes.
    """

    name: str
    title: str
    steps: tuple[tuple[str, Any], ...]
    result: tuple[Eq, ...]
    derived: tuple[Any, ...]
    where: tuple[Eq, ...] = ()
    notes: str = ""
    modulus: tuple[Expr, ...] = ()
    samples: tuple[Mapping[Expr, Any], ...] = ()
    digits: int = 30

    @cached_property
    def proved(self) -> bool:
        """Whether every difference derived − claimed vanishes."""
        pairs = zip(self.derived, self.result, strict=True)
        return all(self._vanishes(entry) for made, claim in pairs for entry in _entries(made - claim.rhs))

    @property
    def method(self) -> str:
        """How `proved` is decided, in words."""
        if self.samples:
            return f"numerically, to {self.digits} digits at {len(self.samples)} points"
        return "symbolically: the difference simplifies to zero"

    def against(self, claims: Mapping[str, Any]) -> Derivation:
        """The same derivation compared with other right-hand sides.

        Parameters
        ----------
        claims : mapping
            A new right-hand side for the name of each left-hand side that changes.
        """
        return replace(self, result=tuple(equation(old.lhs, claims.get(str(old.lhs), old.rhs)) for old in self.result))

    def evaluate(self, values: Mapping[str, complex]) -> dict[str, Any]:
        """What was derived (not what was claimed) as numbers, or arrays where it is a matrix.

        Parameters
        ----------
        values : mapping
            A number for the name of each symbol left after the definitions `where`. An earlier result may be used by a
            later one.

        Returns
        -------
        dict
            A number or array for the name of each left-hand side. Results that need a symbol without a value are
            left out.
        """
        known, found = dict(values), {}
        for claim, made in zip(self.result, self.derived, strict=True):
            expression = self.resolved(made)
            symbols = sorted(expression.free_symbols, key=str)
            if {str(symbol) for symbol in symbols} <= set(known):
                function = sympy.lambdify(symbols, expression, "numpy")
                found[str(claim.lhs)] = known[str(claim.lhs)] = function(*(known[str(symbol)] for symbol in symbols))
        return found

    def resolved(self, expression: Any) -> Any:
        """`expression` with the definitions `where` inserted.

        Parameters
        ----------
        expression : expression or Matrix
            In the symbols that `where` defines, and others.
        """
        for definition in self.where:
            expression = expression.subs(definition.lhs, definition.rhs)
        return expression

    def to_latex(self) -> str:
        """The derivation as LaTeX paragraphs and displayed equations (amsmath)."""
        return "\n".join(
            [rf"\textbf{{{self.title}}}"] + [line for item in self._lines() for line in _paragraph(item, r"\[", r"\]")]
        )

    def _repr_latex_(self) -> str:
        return "\n".join([self.title] + [line for item in self._lines() for line in _paragraph(item, "$$", "$$")])

    def __str__(self) -> str:
        lines = [self.title, "=" * len(self.title)]
        for text, expressions in self._lines():
            lines += ["", textwrap.fill(_sentence(text, expressions), WIDTH, break_on_hyphens=False)]
            lines += ["\n" + textwrap.indent(_printed(expression), "    ") for expression in expressions]
        return "\n".join(lines)

    def _lines(self) -> Iterable[tuple[str, list[Any]]]:
        """Every paragraph: its text and the equations below it."""
        yield from ((text, [expression]) for text, expression in self.steps)
        yield ("Result", list(dict.fromkeys(self.result)))
        if self.where:
            yield ("Here", list(self.where))
        if self.notes:
            yield (self.notes, [])
        yield (f"Proved {self.method}" if self.proved else "Not proved: the difference does not vanish", [])

    def _vanishes(self, difference: Expr) -> bool:
        difference = self.resolved(difference)
        if not self.samples:
            return vanishes(difference, self.modulus)
        size = (abs(sympy.N(truncated(difference.subs(sample)), self.digits + 20)) for sample in self.samples)
        return all(bool(value < sympy.Float(10) ** -self.digits) for value in size)


def equation(left: Any, right: Any) -> Eq:
    """left = right, not evaluated; `left` and `right`: expressions or matrices."""
    return Eq(left, sympy.ImmutableMatrix(right) if isinstance(right, MatrixBase) else right, evaluate=False)


def vanishes(expression: Expr, modulus: Iterable[Expr] = ()) -> bool:
    """Whether a rational `expression` is zero, where the polynomials `modulus`, each in one symbol, are zero."""
    numerator, _ = sympy.together(expression).as_numer_denom()
    numerator = sympy.expand(numerator)
    for polynomial in modulus:
        (variable,) = polynomial.free_symbols
        numerator = sympy.rem(numerator, polynomial, variable)
    return bool(sympy.expand(numerator) == 0)


def truncated(expression: Expr, terms: int = 24) -> Expr:
    """`expression` with its sums written out; infinite ones are cut at |m| ≤ `terms`."""

    def written(summand: Expr, limits: Any) -> Expr:
        index, *ends = limits
        low, high = (int(end) if end.is_finite else terms * int(sympy.sign(end)) for end in ends)
        return sympy.Add(*(summand.subs(index, value) for value in range(low, high + 1)))

    return expression.replace(sympy.Sum, written)


def _entries(value: Any) -> list[Expr]:
    return list(value) if isinstance(value, MatrixBase) else [value]


def _paragraph(item: tuple[str, list[Any]], opening: str, closing: str) -> list[str]:
    text, expressions = item
    return [
        "",
        _sentence(text, expressions),
        *(f"{opening} {sympy.latex(expression)} {closing}" for expression in expressions),
    ]


def _sentence(text: str, expressions: list[Any]) -> str:
    return text + (":" if expressions else ".")


def _printed(expression: Any) -> str:
    """In two dimensions where that fits the width, else as code, a matrix entry by entry."""
    text = sympy.pretty(expression, wrap_line=False)
    if max(map(len, text.splitlines())) <= WIDTH:
        return text
    sides = expression.args if isinstance(expression, Eq) else (expression,)
    if isinstance(sides[-1], MatrixBase):
        matrix = sides[-1]
        places = ((c, e) for c in range(matrix.rows) for e in range(matrix.cols))
        name = sympy.sstr(sides[0]) if len(sides) > 1 else "entry"
        return "\n".join(_wrapped(f"{name}[{c + 1},{e + 1}] = {sympy.sstr(matrix[c, e])}") for c, e in places)
    return _wrapped(" = ".join(map(sympy.sstr, sides)))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False, subsequent_indent="    ")
