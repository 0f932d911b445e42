"""Attention patterns: which token attends to which, whatever a prior is placed in, and ways of getting it wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.block.mask import ROWS
from dispersion.errors import RNG, bool_array, choice, flag, frozen, generator, instance, items, shown, whole_number
from dispersion.grid import lag_index
from dispersion.noun import Noun, cached_property

Pairs = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Pattern(Noun):
    """Which pairs of tokens are open.

    Parameters
    ----------
    open : (T, T) or (heads, T, T) bool array_like
        Whether token i attends to token j, in all heads or in each.
    name : str
        As in tables.
    rows : str
        What a row without an open pair is: 'refuse', 'isolate' or 'free'.

    Raises
    ------
    ArgumentError
        Names what cannot be used, such as a row without an open pair under 'refuse'.
    """

    open: Pairs
    name: str = "pattern"
    rows: str = "refuse"

    def __post_init__(self) -> None:
        instance("name", self.name, str)
        choice("rows", self.rows, ROWS)
        given = bool_array("open", self.open)
        if given.ndim not in (2, 3) or given.shape[-1] != given.shape[-2] or given.shape[-1] < 2 or not given.size:
            raise ArgumentError("open", f"shape {given.shape}", "(T, T) or (heads, T, T), 2 tokens or more")
        if self.rows == "refuse" and not given.any(axis=-1).all():
            row = np.argwhere(~given.any(axis=-1))[0].tolist()
            got = f"row {row[-1]}" + (f" of head {row[0]}" if len(row) > 1 else "") + " closed everywhere"
            accepted = "an open pair in each row, or rows='isolate' or 'free': a softmax ignores a constant shift"
            raise ArgumentError("open", got, accepted)
        object.__setattr__(self, "open", frozen(given.copy()))

    @classmethod
    def pairs(
        cls,
        n: int,
        pairs: Sequence[tuple[int, int]],
        diagonal: bool = False,
        name: str = "pairs",
        rows: str = "isolate",
    ) -> Pattern:
        """Tokens that attend to one another, (i, j) and (j, i) both open.

        Parameters
        ----------
        n : int
            T, tokens.
        pairs : sequence of (int, int)
            Which.
        diagonal : bool
            Whether these tokens attend to themselves as well.
        name, rows : str
            As in `Pattern`.
        """
        n = whole_number("n", n, 2)
        opened = np.zeros((n, n), dtype=bool)
        for pair in items("pairs", pairs):
            if np.shape(pair) != (2,):
                raise ArgumentError("pairs", shown(pair), "pairs of tokens (i, j)")
            i, j = (whole_number("pairs", token, 0, n - 1) for token in pair)
            opened[i, j] = opened[j, i] = True
            if flag("diagonal", diagonal):
                opened[i, i] = opened[j, j] = True
        return cls(opened, name, rows)

    @classmethod
    def neighbours(cls, n: int, offsets: Sequence[int] = (1,), name: str = "neighbours") -> Pattern:
        """Every token i attends to i + s on the ring.

        Parameters
        ----------
        n : int
            T, tokens.
        offsets : sequence of int
            The s, key minus query; 0 is the token itself.
        name : str
            As in `Pattern`.
        """
        n = whole_number("n", n, 2)
        opened, token = np.zeros((n, n), dtype=bool), np.arange(n)
        for offset in items("offsets", offsets):
            opened[token, (token + whole_number("offsets", offset, -(2**63))) % n] = True
        return cls(opened, name)

    @classmethod
    def diagonal(cls, n: int, name: str = "diagonal") -> Pattern:
        """Every token attends to itself alone.

        Parameters
        ----------
        n : int
            T, tokens.
        name : str
            As in `Pattern`.
        """
        return cls.neighbours(n, (0,), name)

    @classmethod
    def stacked(cls, patterns: Sequence[Pattern], name: str = "heads") -> Pattern:
        """Several patterns, one for each head.

        Parameters
        ----------
        patterns : sequence of Pattern
            Of the same tokens, each for one head, with one rule for `rows`.
        name : str
            As in `Pattern`.
        """
        found = items("patterns", patterns)
        if not found or not all(isinstance(one, Pattern) and one.open.ndim == 2 for one in found):
            raise ArgumentError("patterns", shown(patterns), "patterns (T, T), one for each head")
        if len({(one.n, one.rows) for one in found}) > 1:
            got = ", ".join(f"{one.n} tokens, rows={one.rows!r}" for one in found)
            raise ArgumentError("patterns", got, "the same tokens and rows in all heads")
        return cls(np.array([one.open for one in found]), name, found[0].rows)

    @property
    def n(self) -> int:
        """T."""
        return self.open.shape[-1]

    @cached_property
    def allowed(self) -> Pairs:
        """(…, T, T) the open pairs once empty rows are decided: the token itself where isolated, none where free."""
        if self.rows != "isolate":
            return self.open
        return self.open | (np.eye(self.n, dtype=bool) & self.free[..., None])

    @cached_property
    def free(self) -> Pairs:
        """(…, T) rows without an open pair as given."""
        return np.asarray(~self.open.any(axis=-1))

    @cached_property
    def restricts(self) -> Pairs:
        """(…, T) rows that the pattern restricts: neither empty nor open everywhere, once empty ones are decided."""
        return np.asarray(self.allowed.any(axis=-1) & ~self.allowed.all(axis=-1))

    @cached_property
    def target(self) -> NDArray[np.float64]:
        """(…, T, T) P, attention shared equally among open pairs; 1/T in a row that is free."""
        spread = np.where(self.allowed.any(axis=-1, keepdims=True), self.allowed, True)
        return np.asarray(spread / spread.sum(axis=-1, keepdims=True))

    @cached_property
    def circulant(self) -> bool:
        """Whether every open pair is a matter of its lag i − j on the ring alone."""
        by_lag = self.allowed[..., :, 0]
        return bool((self.allowed == by_lag[..., lag_index((self.n,))]).all())

    @property
    def by_lag(self) -> Pairs:
        """(…, T) whether lag r = i − j modulo T is open; an ArgumentError where the pattern is not circulant."""
        if not self.circulant:
            raise ArgumentError("pattern", f"{self.name!r}, which is not circulant", "one of lags i − j alone")
        return self.allowed[..., :, 0]

    def over(self, heads: int, n: int) -> Pairs:
        """(heads, T, T) the pairs `allowed`, in so many heads.

        Parameters
        ----------
        heads, n : int
            Those of the network. A pattern for other numbers is refused.
        """
        if self.n != n or (self.open.ndim == 3 and len(self.open) != heads):
            shape = f"shape {self.open.shape}"
            raise ArgumentError("pattern", f"{self.name!r} of {shape}", f"({n}, {n}) or ({heads}, {n}, {n})")
        return np.broadcast_to(self.allowed, (heads, n, n))

    def moved(self, by: int = 2) -> Pattern:
        """The same among other tokens, i + `by` in place of i: such as a wrong pair.

        Parameters
        ----------
        by : int
            How many tokens on, around the ring.
        """
        by = whole_number("by", by, -(2**63))
        return self._misspecified(np.roll(self.open, (by, by), axis=(-2, -1)), f"moved by {by}")

    def shifted(self, by: int = 1) -> Pattern:
        """The same queries with the keys shifted, j + `by` in place of j.

        Parameters
        ----------
        by : int
            How many tokens on, around the ring.
        """
        by = whole_number("by", by, -(2**63))
        return self._misspecified(np.roll(self.open, by, axis=-1), f"shifted by {by}")

    def permuted(self, rng: RNG = 0) -> Pattern:
        """The same queries with the keys moved along a random cycle of all tokens: no row that is partly open stays.

        Parameters
        ----------
        rng : int or numpy.random.Generator
            Source of randomness.
        """
        order = generator("rng", rng).permutation(self.n)
        found = np.empty_like(self.open)
        # a cycle through all tokens takes no set of some of them to itself
        found[..., np.roll(order, -1)] = self.open[..., order]
        return self._misspecified(found, "permuted")

    def with_start(self, row: str = "all", column: str = "closed") -> Pattern:
        """The pattern of T + 1 tokens, the new one a classification token at place 0.

        Parameters
        ----------
        row : str
            What it attends to: 'all' tokens, or the 'relevant' ones, whose rows the pattern has open pairs in.
        column : str
            Whether others attend to it, 'open' or 'closed'. Rows without an open pair are left to `rows`.
        """
        choice("row", row, ("all", "relevant"))
        choice("column", column, ("open", "closed"))
        n, some = self.n, ~self.free
        opened = np.zeros((*self.open.shape[:-2], n + 1, n + 1), dtype=bool)
        opened[..., 1:, 1:] = self.open
        opened[..., 0, 1:] = True if row == "all" else some
        opened[..., 0, 0] = row == "all"
        if column == "open":
            opened[..., 1:, 0] = some
        return replace(self, open=opened)

    def _misspecified(self, opened: Pairs, how: str) -> Pattern:
        return replace(self, open=opened, name=f"{self.name}, {how}")


def pattern_of(task: str, n: int, which: str = "correct", rows: str = "isolate", rng: RNG = 0) -> Pattern:
    """The pattern of a Boolean task, or a misspecified one.

    2Parity opens the pair of tokens 0 and 1; Cyclic3 has every token attend to the next; the majority has every token
    attend to itself; ThreeSym opens the pairs (0, 1), (1, 2) and (2, 0), one in each of three heads.

    Parameters
    ----------
    task : str
        '2parity', 'cyclic3', 'majority3' or 'threesym'.
    n : int
        Tokens without the classification token.
    which : str
        'correct'; 'wrong', two tokens on, or keys half a ring on where all tokens are alike; 'shifted', keys one token
        on; 'permuted', keys permuted at random.
    rows : str
        As in `Pattern`, for tokens that the task does not need.
    rng : int or numpy.random.Generator
        Source of randomness of 'permuted'.

    Returns
    -------
    Pattern
        Named `which`.
    """
    choice("task", task, TASKS)
    choice("which", which, KINDS)
    found = TASKS[task](whole_number("n", n, 4), rows)
    if which == "wrong":
        found = found.shifted(n // 2) if found.circulant else found.moved(2)
    elif which == "shifted":
        found = found.shifted(1)
    elif which == "permuted":
        found = found.permuted(rng)
    return replace(found, name=which)


def _three(n: int, rows: str) -> Pattern:
    return Pattern.stacked([Pattern.pairs(n, [pair], rows=rows) for pair in ((0, 1), (1, 2), (2, 0))])


TASKS = {
    "2parity": lambda n, rows: Pattern.pairs(n, [(0, 1)], rows=rows),
    "cyclic3": lambda n, rows: Pattern.neighbours(n, (1,)),
    "majority3": lambda n, rows: Pattern.diagonal(n),
    "threesym": _three,
}
"""The correct pattern of each Boolean task."""

KINDS = ("correct", "wrong", "shifted", "permuted")
"""What a pattern can be to a task."""
