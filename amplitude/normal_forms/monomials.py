"""Monomials of several variables up to an order, and tables for multiplying polynomials degree by degree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from dispersion.memory import require

Index = NDArray[np.int64]


BYTES = 64
"""Of a product of two monomials, while it is looked up and multiplied."""


@dataclass(frozen=True)
class Pairs:
    """The products that make up one degree: factors `first` and `second` by number, sorted by the product,
    and `starts`, where each product's own begin.
    """

    first: Index
    second: Index
    starts: Index

    def sum(self, products: NDArray) -> NDArray:
        """Sums of `products` (pairs, …) over the pairs of each product."""
        return np.add.reduceat(products, self.starts, axis=0)


class Monomials:
    """The monomials z^m of `variables` variables with |m| ≤ `order`, by increasing degree; number 0 is 1."""

    def __init__(self, variables: int, order: int) -> None:
        many = comb(variables + order, order)
        got = f"{order}, with {many:,} monomials of {variables} variables"
        require("order", got, many * (60 + 16 * order + order * variables + 24 * variables))
        self.variables, self.order = variables, order
        rows, self._start = [np.zeros((1, variables), dtype=np.int64)], [0, 1]
        for degree in range(1, order + 1):
            chosen = np.array(list(combinations_with_replacement(range(variables), degree)))
            rows.append((chosen[:, :, None] == np.arange(variables)).sum(axis=1))
            self._start.append(self._start[-1] + len(chosen))
        self.exponents: Index = np.concatenate(rows)
        self.degrees: Index = self.exponents.sum(axis=1)
        self._base = (order + 1) ** np.arange(variables)
        self.codes: Index = self.exponents @ self._base
        self._sorter = np.argsort(self.codes)

    def __len__(self) -> int:
        return len(self.exponents)

    def degree(self, p: int) -> slice:
        """The numbers of the monomials of degree p."""
        return slice(self._start[p], self._start[p + 1])

    def number(self, codes: Index) -> Index:
        """The numbers of monomials with these codes; codes add when monomials multiply."""
        return self._sorter[np.searchsorted(self.codes, codes, sorter=self._sorter)]

    def number_of(self, exponents: Index) -> Index:
        """The numbers of the monomials with `exponents` (…, variables)."""
        return self.number(np.asarray(exponents) @ self._base)

    def pairs(self, p: int) -> Pairs:
        """All products of two monomials that have degree p."""
        return self._pairs[p]

    @cached_property
    def _pairs(self) -> list[Pairs]:
        many = comb(2 * self.variables + self.order, self.order)
        got = f"{self.order}, with {many:,} products of monomials of {self.variables} variables"
        require("order", got, BYTES * many)
        return [
            grouped(*_outer(self, self, p, 0), lambda a, b: self.number(self.codes[a] + self.codes[b]), self.degree(p))
            for p in range(self.order + 1)
        ]

    @cached_property
    def parents(self) -> tuple[Index, Index]:
        """For each monomial of degree ≥ 1 one variable that divides it, and the number of the quotient."""
        variable = np.argmax(self.exponents > 0, axis=1)
        quotient = self.number(np.maximum(self.codes - self._base[variable], 0))
        return variable, quotient


@lru_cache(maxsize=16)
def monomials(variables: int, order: int) -> Monomials:
    """The table for `variables` variables up to `order`, made once."""
    return Monomials(variables, order)


class TwoPoint:
    """Monomials z_i^m z_j^n of the same variables taken at a query i and a key j, |m| + |n| ≤ order.

    both : the 2V-variable table; query, key : number of z^m and of z^n in the V-variable table;
    total : number of z^{m+n}.
    """

    def __init__(self, variables: int, order: int) -> None:
        self.one, self.both = monomials(variables, order), monomials(2 * variables, order)
        at_query, at_key = self.both.exponents[:, :variables], self.both.exponents[:, variables:]
        self.query, self.key = self.one.number_of(at_query), self.one.number_of(at_key)
        self.total = self.one.number_of(at_query + at_key)

    @cached_property
    def _collapse(self) -> list[tuple[Index, Index]]:
        tables = []
        for p in range(self.one.order + 1):
            total = self.total[self.both.degree(p)]
            order = np.argsort(total, kind="stable")
            wanted = np.arange(len(self.one))[self.one.degree(p)]
            tables.append((order, np.searchsorted(total[order], wanted)))
        return tables

    def collapse(self, values: NDArray, p: int) -> NDArray:
        """Sum `values` of the two-point monomials of degree p into the one-point monomials of degree p."""
        order, starts = self._collapse[p]
        return np.add.reduceat(values[order], starts, axis=0)

    @cached_property
    def _weighted(self) -> list[tuple[Pairs, Index]]:
        one, both, tables = self.one, self.both, []
        for p in range(one.order + 1):
            first, second = _outer(both, one, p, 1)
            if not len(first):
                tables.append((Pairs(first, second, first), first))
                continue
            pairs = grouped(
                first, second, lambda a, b: one.number(one.codes[self.total[a]] + one.codes[b]), one.degree(p)
            )
            key = one.number(one.codes[self.key[pairs.first]] + one.codes[pairs.second])
            tables.append((pairs, key))
        return tables

    def weighted(self, p: int) -> tuple[Pairs, Index]:
        """Products of a two-point monomial and z_j^n, |n| ≥ 1, of total degree p ≥ 1, grouped into one-point
        monomials, and the number of the one-point monomial that each has at the key.
        """
        return self._weighted[p]


@lru_cache(maxsize=16)
def two_point(variables: int, order: int) -> TwoPoint:
    """The two-point table for `variables` variables up to `order`, made once."""
    return TwoPoint(variables, order)


def _outer(left: Monomials, right: Monomials, p: int, least: int) -> tuple[Index, Index]:
    """Numbers of all pairs of degree p in all, the second of degree ≥ `least`."""
    blocks = [
        np.meshgrid(np.arange(len(left))[left.degree(p - b)], np.arange(len(right))[right.degree(b)], indexing="ij")
        for b in range(least, p + 1)
    ]
    if not blocks:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    first, second = (np.concatenate([block[side].ravel() for block in blocks]) for side in (0, 1))
    return first, second


def grouped(first: Index, second: Index, product, targets: slice) -> Pairs:  # type: ignore[no-untyped-def]
    """`Pairs` of `first` and `second`, sorted by `product`(first, second), which covers all of `targets`."""
    number = product(first, second)
    order = np.argsort(number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(targets.start, targets.stop))
    return Pairs(first[order], second[order], starts)
