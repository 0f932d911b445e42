"""Addition and multiplication of two numbers, all digits of the result said at once (not one after another).

The mask-prior paper has three digits, all 10⁶ pairs, and the patterns: aligned digits for addition, and other pairs of
digits in each head for multiplication. Ours, for the paper does not tell, are the order of digits, least significant
first, and where each digit of the result is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import RNG, choice, generator, whole_number
from dispersion.noun import Noun, cached_property
from training.batch import Batch
from training.patterns import KINDS, Pattern

Whole = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Arithmetic(Noun):
    """Two numbers a and b of D digits each, tokens a_0 … a_{D−1} b_0 … b_{D−1}, digit 0 that of the units.

    A subclass gives `name`, `places`, `_results` and `_opened`.

    Parameters
    ----------
    digits : int
        D, 1 … 4; there are 10²ᴰ pairs of numbers.
    """

    digits: int = 3

    name: ClassVar[str]
    """As in tables."""

    vocabulary: ClassVar[int] = 10
    """Kinds of tokens, and classes of each digit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digits", whole_number("digits", self.digits, 1, 4))

    @property
    def n(self) -> int:
        """Tokens, 2D."""
        return 2 * self.digits

    @property
    def pairs(self) -> int:
        """Pairs of numbers, 10²ᴰ."""
        return int(10**self.n)

    @cached_property
    def places(self) -> Whole:
        """Tokens at which the digits of the result are said, those of the units first."""
        raise NotImplementedError

    def of(self, numbers: Whole) -> Batch:
        """The examples of pairs of numbers.

        Parameters
        ----------
        numbers : (B,) int ndarray
            a + 10ᴰ b, 0 … 10²ᴰ − 1.
        """
        a, b = numbers % 10**self.digits, numbers // 10**self.digits
        labels, scored = np.zeros((2, len(numbers), self.n), dtype=np.int64)
        labels[:, self.places] = digits_of(self._results(a, b), len(self.places))
        scored[:, self.places] = 1
        return Batch(np.hstack([digits_of(a, self.digits), digits_of(b, self.digits)]), labels, scored == 1)

    def split(self, count: int, held_out: int, rng: RNG) -> tuple[Batch, Batch]:
        """A training set and a held-out set without a pair in common.

        Of one `rng` and `held_out`, a smaller training set is part of a larger one, and the held-out set is the same.

        Parameters
        ----------
        count, held_out : int
            Examples of each.
        rng : int or numpy.random.Generator
            Source of randomness: of a study `training.streams.stream`, by purpose.
        """
        count, held_out = whole_number("count", count, 1), whole_number("held_out", held_out, 1)
        if count + held_out > self.pairs:
            raise ArgumentError("count", f"{count} and {held_out} held out", f"{self.pairs} pairs at most in all")
        order = generator("rng", rng).permutation(self.pairs)
        return self.of(order[held_out : held_out + count]), self.of(order[:held_out])

    def draw(self, count: int, rng: RNG) -> Batch:
        """Different pairs at random.

        Parameters
        ----------
        count : int
            How many.
        rng : int or numpy.random.Generator
            Source of randomness.
        """
        count = whole_number("count", count, 1, self.pairs)
        return self.of(generator("rng", rng).choice(self.pairs, count, replace=False))

    def pattern(self, which: str = "correct", heads: int = 4, rng: RNG = 0) -> Pattern:
        """The pattern of the task, or a misspecified one.

        Parameters
        ----------
        which : str
            'correct'; 'wrong', keys two tokens on; 'shifted', keys one token on; 'permuted', keys permuted at random.
        heads : int
            How many heads there are.
        rng : int or numpy.random.Generator
            Source of randomness of 'permuted'.
        """
        choice("which", which, KINDS)
        token = np.arange(self.digits)
        found = np.eye(self.n, dtype=bool)[None].repeat(whole_number("heads", heads, 1), axis=0)
        for head, opened in enumerate(found):
            cross = self._opened(head, token[:, None], token)
            opened[: self.digits, self.digits :] = cross
            opened[self.digits :, : self.digits] = cross.T
        made = Pattern(found, which)
        if which == "permuted":
            return replace(made.permuted(rng), name=which)
        by = {"correct": 0, "shifted": 1, "wrong": 2}[which]
        return replace(made.shifted(by), name=which)

    def _results(self, a: Whole, b: Whole) -> Whole:
        raise NotImplementedError

    def _opened(self, head: int, i: Whole, j: Whole) -> NDArray[np.bool_]:
        """(D, D) whether a_i and b_j attend to each other in a head."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Addition(Arithmetic):
    """a + b: digit i is said at a_i, the last carry at b_{D−1}; aligned digits a_i and b_i are open in all heads.

    Parameters
    ----------
    digits : int
        D.
    """

    name: ClassVar[str] = "addition"

    @cached_property
    def places(self) -> Whole:
        """The tokens of a, and the last of b."""
        return np.array([*range(self.digits), self.n - 1])

    def _results(self, a: Whole, b: Whole) -> Whole:
        return a + b

    def _opened(self, head: int, i: Whole, j: Whole) -> NDArray[np.bool_]:
        return np.asarray(i == j)


@dataclass(frozen=True, kw_only=True)
class Multiplication(Arithmetic):
    """ab: digit i is said at token i; head h opens the partial products a_i b_j with j − i = h modulo D.

    A head beyond the D-th opens all pairs of a digit of a and one of b.

    Parameters
    ----------
    digits : int
        D.
    """

    name: ClassVar[str] = "multiplication"

    @cached_property
    def places(self) -> Whole:
        """All tokens."""
        return np.arange(self.n)

    def _results(self, a: Whole, b: Whole) -> Whole:
        return a * b

    def _opened(self, head: int, i: Whole, j: Whole) -> NDArray[np.bool_]:
        return np.asarray(((j - i) % self.digits == head) | (head >= self.digits))


def digits_of(numbers: Whole, count: int) -> Whole:
    """(…, count) decimal digits of whole numbers, those of the units first.

    Parameters
    ----------
    numbers : (…) int ndarray
        0 or more, below 10 to the power of `count`.
    count : int
        How many digits.
    """
    return np.asarray(numbers[..., None] // 10 ** np.arange(count) % 10)
