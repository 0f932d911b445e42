"""Where stability changes on a branch: bifurcations located between two of its points and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.optimize import brentq

from amplitude.exact.continuation import Continuation, Point
from amplitude.exact.equations import Floats
from amplitude.exact.states import NEUTRAL, ExactState
from amplitude.exact.symmetry import circulant, flips, moves
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow
from dispersion.summary import number

FOLD, BRANCH_POINT, FLIP, NEIMARK_SACKER = "fold", "branch point", "flip", "Neimark–Sacker"

TOGETHER = 1e-5
"""Fraction of a step within which crossings count as one, and distance of Λ from ±1 that still names it so."""


@dataclass(frozen=True, eq=False)
class Bifurcation(Noun):
    """A point of a branch where a multiplier Λ crosses the unit circle, or the parameter p turns.

    Attributes
    ----------
    kind : {'fold', 'branch point', 'flip', 'Neimark–Sacker'}
        A branch point has Λ = 1, a flip Λ = −1, a Neimark–Sacker point a complex pair, or one in the moving frame.
    value : float
        p.
    state : ExactState
        The exact state there.
    multiplier : complex
        Λ as computed, which tells how well the point was located.
    multiplicity : int
        How many multipliers cross together.
    place : float
        Number of the point of the branch before it, plus the fraction of the step to the next.
    """

    kind: str
    value: float
    state: ExactState
    multiplier: complex
    multiplicity: int
    place: float

    def __str__(self) -> str:
        """What it is, in a line."""
        return f"{self.kind} at {number(self.value)}, amplitude {number(self.state.amplitude)} of k = {self.state.k}"


def bifurcations_between(path: Continuation, a: Point, b: Point, place: int) -> list[Bifurcation]:
    """The bifurcations on `path` between its neighbouring points `a` and `b`, in order; `place` : the number of `a`.

    The moduli of the multipliers, sorted, are continuous: where n multipliers more are outside the unit circle at one
    end than at the other, n of these sorted moduli cross 1, and each crossing is found by itself.
    """
    known: dict[float, Point] = {0.0: a, 1.0: b}

    def at(part: float) -> Point:
        if part not in known:
            between = path.between(a, b, part)
            if between is None:
                raise _LostError
            known[part] = between
        return known[part]

    def modulus(rank: int) -> Callable[[float], float]:
        return lambda part: float(np.abs(at(part).state.critical[rank])) - 1 - NEUTRAL

    low, high = sorted((a.state.unstable, b.state.unstable))
    crossings: dict[float, list[int]] = {}
    for rank in range(low, high):
        part = _crossing(modulus(rank))
        if part is None or abs(modulus(rank)(part)) > 1e-7 or _slides(at(part), a, b):
            continue
        near = next((other for other in crossings if abs(other - part) <= TOGETHER), part)
        crossings.setdefault(near, []).append(rank)
    found = []
    for part, ranks in crossings.items():
        multiplier = complex(at(part).state.critical[ranks[0]])
        found.append(_event(_kind_of(multiplier, at(part)), at(part), part + place, multiplier, len(ranks)))
    if a.tangent[-1] * b.tangent[-1] < 0:
        part = _crossing(lambda part: float(at(part).tangent[-1]))
        if part is not None:
            same = [e for e in found if e.kind == BRANCH_POINT and abs(e.place - place - part) <= 0.05]
            found = [event for event in found if event not in same[:1]]
            multipliers = at(part).state.critical
            nearest = complex(multipliers[np.abs(multipliers - 1).argmin()])
            found.append(_event(FOLD, at(part), part + place, nearest, 1))
    return sorted(found, key=lambda event: event.place)


def _slides(point: Point, a: Point, b: Point) -> bool:
    """Whether what crosses at `point` is a translation that is neutral to rounding at `a` or `b`: no bifurcation."""

    def translation(point: Point) -> float:
        places = point.state.sliding
        return float(np.abs(np.abs(point.state.multipliers[places]) - 1).min()) if len(places) else np.inf

    return translation(point) <= 2 * NEUTRAL and min(translation(a), translation(b)) <= 10 * NEUTRAL


class _LostError(Exception):
    """Newton's method failed between two points of a branch."""


def _crossing(function: Callable[[float], float]) -> float | None:
    """The root in (0, 1) of a `function` whose ends have opposite signs, to 1e-11; None if states get lost."""
    try:
        return float(brentq(function, 0.0, 1.0, xtol=1e-11, rtol=1e-14, maxiter=60))
    except (_LostError, ValueError):
        return None


def _kind_of(multiplier: complex, point: Point) -> str:
    if abs(multiplier - 1) <= TOGETHER:
        return BRANCH_POINT
    # in a moving frame the phase of Λ depends on the frame, and −1 is as good as any
    return FLIP if abs(multiplier + 1) <= TOGETHER and point.state.kind != "travelling" else NEIMARK_SACKER


def _event(kind: str, point: Point, place: float, multiplier: complex, multiplicity: int) -> Bifurcation:
    return Bifurcation(kind, point.value, point.state, multiplier, multiplicity, place)


@harmless_underflow
def directions(bifurcation: Bifurcation) -> list[Floats]:
    """The real directions in which states leave a bifurcation, inequivalent ones only.

    Of a single multiplier the eigenvector. Where a symmetry makes several equal, those eigenvectors that keep a
    reflection or translation of the state, as the equivariant branching lemma asks; the whole eigenspace if none does.

    Parameters
    ----------
    bifurcation : Bifurcation
        A bifurcation of a branch.

    Returns
    -------
    list of (N, d) ndarray
        Directions of root mean square 1.
    """
    state = bifurcation.state
    target = 1.0 if bifurcation.kind == BRANCH_POINT else -1.0
    size = len(state.multipliers)
    # the null space of DF ∓ I, to the accuracy of the location
    vectors = linalg.svd(state.derivative().real - target * np.eye(size))[2][::-1][: bifurcation.multiplicity].T
    if vectors.shape[1] == 1 or not circulant(state.block):
        return [_sized(vector, state) for vector in vectors.T]
    found: list[Floats] = []
    for sign in flips(state.block):
        for move in moves(state.block.shape, sign):
            if np.abs(state.field[move] - state.field).max() > 1e-8 * (1 + np.abs(state.field).max()):
                continue
            image = vectors.reshape(*state.field.shape, -1)[move].reshape(vectors.shape)
            kept = linalg.null_space(image - vectors, rcond=1e-6)
            if kept.shape[1] == 1:
                candidate = _sized(vectors @ kept[:, 0], state)
                if not any(_equivalent(candidate, other) for other in found):
                    found.append(candidate)
    return found or [_sized(vector, state) for vector in vectors.T]


def _sized(vector: Floats, state: ExactState) -> Floats:
    field = np.real(vector).reshape(state.field.shape)
    return field / np.sqrt((field**2).mean())


def _equivalent(a: Floats, b: Floats) -> bool:
    """Whether two directions are each other's image under a permutation of tokens and a sign."""

    def sorted_rows(x: Floats) -> NDArray:
        return x[np.lexsort(np.round(x, 6).T)]

    return any(
        np.abs(sorted_rows(np.round(a, 8)) - sorted_rows(np.round(sign * b, 8))).max() < 1e-5 for sign in (1, -1)
    )
