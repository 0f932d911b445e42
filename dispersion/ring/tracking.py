"""Eigenvectors followed from one wavenumber to the next: degenerate groups, matching by left and right overlaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import ArgumentError, number_array, real_number
from dispersion.quiet import harmless_underflow
from dispersion.ring.mode import DEFECTIVE

DEGENERATE = 1e-7
"""Distance, relative to the largest |Λ|, under which multipliers count as one: the root of rounding, with room for a
defective pair.
"""

RESOLVED = 0.7
"""Overlap of neighbours above which a branch is followed without looking between them."""

CLOSE = 0.2
"""Approach of two branches within a step, relative to their distance at its ends, that is looked into."""

HALVINGS = 12
"""How often the interval between two wavenumbers is halved to resolve what happens there."""


@harmless_underflow
def degenerate_groups(multipliers: ArrayLike, tolerance: float = DEGENERATE) -> list[NDArray[np.intp]]:
    """The indices of equal multipliers, one array for each distinct value, ordered by first index.

    Parameters
    ----------
    multipliers : (d,) complex array_like
        Λ.
    tolerance : float
        Relative to the largest |Λ|; groups are closed under it, so members of a chain of near neighbours belong
        together.

    Returns
    -------
    list of int ndarray
        The indices of each group.
    """
    values = number_array("multipliers", multipliers) + 0j
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ArgumentError("multipliers", f"shape {values.shape}", "finite numbers of shape (d,)")
    reach = real_number("tolerance", tolerance) * np.abs(values).max(initial=0.0)
    label = np.arange(values.size)
    for i, j in zip(*np.nonzero(np.abs(values[:, None] - values) <= reach), strict=True):
        label[label == label[j]] = label[i]
    return [np.flatnonzero(label == name) for name in dict.fromkeys(label.tolist())]


class Point(NamedTuple):
    """One q with its multipliers (d,) and, by column, its right and left vectors (d, d), WᴴV = I."""

    q: NDArray[np.float64]
    multipliers: NDArray[np.complex128]
    right: NDArray[np.complex128]
    left: NDArray[np.complex128]


def point(q: NDArray[np.float64], multipliers: NDArray[np.complex128], right: NDArray[np.complex128]) -> Point:
    """The Point of eigenvalues and right eigenvectors in any order: by decreasing |Λ|."""
    order = np.argsort(-np.abs(multipliers), kind="stable")
    right = right[:, order]
    return Point(q, multipliers[order], right, _dual(right))


def _dual(right: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """W with WᴴV = I."""
    try:
        inverse: NDArray = np.linalg.inv(right)
    except np.linalg.LinAlgError:
        inverse = np.linalg.pinv(right, rcond=1e-300)
    return inverse.conj().T


def follow(
    relation: Callable[[ArrayLike], NDArray[np.complex128]],
    before: Point,
    after: Point,
    tolerance: float,
    halvings: int,
) -> tuple[Point, NDArray[np.float64]]:
    """`after` in the order and phases of `before`, and the overlaps (d,), looking in between where that is needed."""
    matched, overlap = _matched(before, after, tolerance)
    settled = overlap.min() >= RESOLVED and not _meet(before.multipliers, matched.multipliers, tolerance)
    if settled or not halvings:
        return matched, overlap
    q = (before.q + after.q) / 2
    middle = point(q, *np.linalg.eig(relation(q)))
    middle, first = follow(relation, before, middle, tolerance, halvings - 1)
    matched, second = follow(relation, middle, after, tolerance, halvings - 1)
    return matched, np.minimum(first, second)


def _meet(before: NDArray[np.complex128], after: NDArray[np.complex128], tolerance: float) -> bool:
    """Whether two branches drawn straight from `before` to `after` come close: they may cross there, or avoid to."""
    i, j = np.triu_indices(len(before), 1)
    start, end = before[i] - before[j], after[i] - after[j]
    chord = end - start
    square = np.maximum(np.abs(chord) ** 2, 1e-300)
    nearest = np.clip(-(start.conj() * chord).real / square, 0, 1)
    apart = np.maximum(np.abs(start), np.abs(end))
    apart_at_all = apart > tolerance * np.abs(before).max()
    return bool((apart_at_all & (np.abs(start + nearest * chord) < CLOSE * apart)).any())


def _matched(before: Point, after: Point, tolerance: float) -> tuple[Point, NDArray[np.float64]]:
    """`after` in the order and phases that overlap most with `before`, and by how much, (d,)."""
    from scipy.optimize import linear_sum_assignment

    there, back = before.left.conj().T @ after.right, after.left.conj().T @ before.right
    groups = degenerate_groups(after.multipliers, tolerance)
    groups = [part for group in groups for part in _sound(group, after, tolerance)]
    # w_iᴴ (Σ_j v_j w_jᴴ) v_i, summed over a group: any vector of a group counts with all of it
    shares = np.array([np.abs(np.einsum("ij,ji->i", there[:, group], back[group])) for group in groups])
    shares /= shares.sum(axis=0)
    overlap = np.empty_like(there, dtype=float)
    for group, share in zip(groups, shares, strict=True):
        overlap[:, group] = share[:, None]
    _, order = linear_sum_assignment(-overlap)
    right, values = after.right[:, order], after.multipliers[order]
    right = right * np.exp(-1j * np.angle(np.einsum("ab,ab->b", before.left.conj(), right)))
    place = np.argsort(order)
    for group in (place[group] for group in groups if len(group) > 1):
        right[:, group], values[group] = _rotated(right, values, group, before.right)
    return Point(after.q, values, right, _dual(right)), overlap[np.arange(len(order)), order]


def _sound(group: NDArray[np.intp], point: Point, tolerance: float) -> list[NDArray[np.intp]]:
    """The group if J is a number on its span to the tolerance, so that its vectors may be turned; else, as in a
    defective group, its members one by one.
    """
    values, size = point.multipliers[group], np.abs(point.multipliers).max()
    mixing = np.abs(values[:, None] - values).max() * np.linalg.cond(point.right[:, group])
    return [group] if mixing <= 10 * tolerance * size else list(group[:, None])


def _rotated(
    right: NDArray[np.complex128],
    values: NDArray[np.complex128],
    group: NDArray[np.intp],
    target: NDArray[np.complex128],
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """The vectors of `group` turned, within their span, to those of `target`, and their multipliers; as they are if
    that loses a vector.
    """
    turn = _dual(right)[:, group].conj().T @ target[:, group]
    if np.linalg.cond(turn) > 1 / DEFECTIVE:
        return right[:, group], values[group]
    turned = right[:, group] @ turn
    return turned / np.linalg.norm(turned, axis=0), np.diag(np.linalg.solve(turn, values[group][:, None] * turn))


def separation(multipliers: NDArray[np.complex128]) -> float:
    """The least distance between two of `multipliers` (d,); inf for one."""
    gaps = np.abs(multipliers[:, None] - multipliers) + np.diag(np.full(len(multipliers), np.inf))
    return float(gaps.min())
