"""Boolean functions that are seen on a part of the cube alone: generalisation on the unseen (GOTU).

Tasks are those of Abbe et al. (2023) and of the mask-prior paper. What a function of low degree says of the unseen
part is `minimum_degree`; the closed forms are the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import RNG, generator, real_states, whole_number
from dispersion.noun import Noun, cached_property
from training.cube import MOST, Floats, cube, minimum_degree

Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Values(Noun):
    """B points of the cube with the value of a function at each.

    Parameters
    ----------
    inputs : (B, n) int array_like
        Tokens: 0 stands for x_i = +1, 1 for x_i = −1.
    targets : (B,) array_like
        The values.
    seen : (B,) bool array_like
        Which points belong to the seen part.
    labels : (K,) array_like
        The values that the function takes anywhere, for accuracy by the nearest of them.
    """

    inputs: Whole
    targets: Floats
    seen: NDArray[np.bool_]
    labels: Floats

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: ArrayLike | slice) -> Values:
        """Some of the points.

        Parameters
        ----------
        rows : (b,) int array_like or slice
            Which.
        """
        return replace(self, inputs=self.inputs[rows], targets=self.targets[rows], seen=self.seen[rows])  # type: ignore[index]


@dataclass(frozen=True, kw_only=True)
class BooleanTask(Noun):
    """A function f of x ∈ {−1, 1}ⁿ, known where `seen`. A subclass gives `name`, `_values`, `_seen` and `_closed_form`.

    Parameters
    ----------
    n : int
        Variables, 3 … 15, one token each.
    """

    n: int = 8

    name: ClassVar[str]
    """As in tables."""

    vocabulary: ClassVar[int] = 2
    """Kinds of tokens."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number("n", self.n, 3, MOST))

    def values(self, x: ArrayLike) -> Floats:
        """(…) f(x).

        Parameters
        ----------
        x : (…, n) array_like
            Points of the cube, ±1.
        """
        return self._values(self._points(x))

    def seen(self, x: ArrayLike) -> NDArray[np.bool_]:
        """(…) whether a point belongs to the seen part.

        Parameters
        ----------
        x : (…, n) array_like
            Points of the cube, ±1.
        """
        return self._seen(self._points(x))

    def closed_form(self, x: ArrayLike) -> Floats:
        """(…) the minimum-degree interpolator of the seen part, as the paper has it.

        Parameters
        ----------
        x : (…, n) array_like
            Points of the cube, ±1.
        """
        return self._closed_form(self._points(x))

    @cached_property
    def cube(self) -> Floats:
        """(2ⁿ, n) all points; the last variable changes fastest, from +1 to −1."""
        return cube(self.n)

    @cached_property
    def labels(self) -> Floats:
        """(K,) the values that f takes on the cube, in ascending order."""
        return np.unique(self.values(self.cube))

    @cached_property
    def minimum_degree(self) -> Floats:
        """(2ⁿ,) the minimum-degree interpolator of the seen part on the cube, by `minimum_degree`."""
        return minimum_degree(self.values(self.cube), self.seen(self.cube))

    @cached_property
    def whole(self) -> Values:
        """All points of the cube."""
        return Values((self.cube < 0).astype(np.int64), self.values(self.cube), self.seen(self.cube), self.labels)

    def draw(self, count: int, rng: RNG) -> Values:
        """Different points of the seen part in random order, all of them if there are no more than `count`.

        Parameters
        ----------
        count : int
            How many at most.
        rng : int or numpy.random.Generator
            Source of randomness: of a study `training.streams.stream`, by purpose.
        """
        rows = np.flatnonzero(self.whole.seen)
        chosen = generator("rng", rng).permutation(rows)[: whole_number("count", count, 1)]
        return self.whole.take(chosen)

    def _points(self, x: ArrayLike) -> Floats:
        return real_states("x", x, self.n)

    def _values(self, x: Floats) -> Floats:
        raise NotImplementedError

    def _seen(self, x: Floats) -> NDArray[np.bool_]:
        raise NotImplementedError

    def _closed_form(self, x: Floats) -> Floats:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TwoParity(BooleanTask):
    """f = x_0 x_1, seen where x_0 or x_1 is +1; its interpolator of lowest degree is x_0 + x_1 − 1.

    Parameters
    ----------
    n : int
        Variables.
    """

    name: ClassVar[str] = "2parity"

    def _values(self, x: Floats) -> Floats:
        """(…) f(x)."""
        return x[..., 0] * x[..., 1]

    def _seen(self, x: Floats) -> NDArray[np.bool_]:
        """(…) whether x_0 or x_1 is +1."""
        return np.asarray((x[..., :2] > 0).any(axis=-1))

    def _closed_form(self, x: Floats) -> Floats:
        """(…) x_0 + x_1 − 1."""
        return x[..., 0] + x[..., 1] - 1


@dataclass(frozen=True, kw_only=True)
class Cyclic3(BooleanTask):
    """f = Σ_i x_i x_{i+1} x_{i+2}, indices modulo n, seen except where x_0 = x_1 = x_2 = −1.

    Parameters
    ----------
    n : int
        Variables; 4 or more, for with 3 all terms are one.
    """

    name: ClassVar[str] = "cyclic3"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number("n", self.n, 4, MOST))

    def _values(self, x: Floats) -> Floats:
        """(…) f(x)."""
        return (x * np.roll(x, -1, axis=-1) * np.roll(x, -2, axis=-1)).sum(axis=-1)

    def _seen(self, x: Floats) -> NDArray[np.bool_]:
        """(…) whether x_0, x_1 or x_2 is +1."""
        return np.asarray((x[..., :3] > 0).any(axis=-1))

    def _closed_form(self, x: Floats) -> Floats:
        """(…) f with x_0x_1 + x_1x_2 + x_2x_0 − x_0 − x_1 − x_2 + 1 in place of x_0x_1x_2."""
        a, b, c = np.moveaxis(x[..., :3], -1, 0)
        return self._values(x) - a * b * c + (a * b + b * c + c * a - a - b - c + 1)


@dataclass(frozen=True, kw_only=True)
class Majority3(BooleanTask):
    """f = (x_0 + x_1 + x_2 − x_0x_1x_2)/2, the majority of three, seen where x_0 or x_1 is +1.

    Parameters
    ----------
    n : int
        Variables.
    """

    name: ClassVar[str] = "majority3"

    def _values(self, x: Floats) -> Floats:
        """(…) f(x)."""
        return (x[..., :3].sum(axis=-1) - x[..., :3].prod(axis=-1)) / 2

    def _seen(self, x: Floats) -> NDArray[np.bool_]:
        """(…) whether x_0 or x_1 is +1."""
        return np.asarray((x[..., :2] > 0).any(axis=-1))

    def _closed_form(self, x: Floats) -> Floats:
        """(…) (x_0 + x_1 + 2x_2 − x_0x_2 − x_1x_2)/2."""
        a, b, c = np.moveaxis(x[..., :3], -1, 0)
        return (a + b + 2 * c - a * c - b * c) / 2


@dataclass(frozen=True, kw_only=True)
class ThreeSym(BooleanTask):
    """f = x_0x_1 − 1.25 x_1x_2 + 1.5 x_2x_0, seen where x_0x_1x_2 = 1.

    Parameters
    ----------
    n : int
        Variables.
    """

    name: ClassVar[str] = "threesym"

    def _values(self, x: Floats) -> Floats:
        """(…) f(x)."""
        a, b, c = np.moveaxis(x[..., :3], -1, 0)
        return a * b - 1.25 * b * c + 1.5 * c * a

    def _seen(self, x: Floats) -> NDArray[np.bool_]:
        """(…) whether x_0x_1x_2 is +1."""
        return np.asarray(x[..., :3].prod(axis=-1) > 0)

    def _closed_form(self, x: Floats) -> Floats:
        """(…) x_2 − 1.25 x_0 + 1.5 x_1."""
        return x[..., 2] - 1.25 * x[..., 0] + 1.5 * x[..., 1]


TASKS = (TwoParity, Cyclic3, Majority3, ThreeSym)
"""The four Boolean tasks."""
