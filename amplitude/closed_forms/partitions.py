"""Which partitions of the tokens into clusters are stable (no positional encoding; exact reduction, derived).

n_c tokens share the value X_c, p_c = n_c/N. The N multipliers are those of the `ClusterMap` of K values, and for each
cluster of at least two tokens that of differences inside it, n_c − 1 times.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from amplitude.closed_forms.cluster_states import MERGED, ClusterMap, ClusterState
from amplitude.closed_forms.clusters import saturation, without_positions
from amplitude.closed_forms.scalar_forms import ScalarForms
from amplitude.summary import stability
from dispersion import ArgumentError, Block
from dispersion.errors import whole_number
from dispersion.memory import require
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow
from dispersion.summary import growth, listed, numbers, paragraph

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Partition(Noun):
    """An exact state of clusters of whole numbers of tokens.

    Attributes
    ----------
    counts : (K,) ndarray of int
        Tokens in each cluster, that of the largest value first.
    state : ClusterState
        The values and multipliers of the clusters.
    """

    counts: NDArray[np.int64]
    state: ClusterState

    @property
    def multipliers(self) -> NDArray[np.complex128]:
        """(N,) every multiplier of the N tokens, the largest modulus first."""
        values = np.concatenate([np.repeat(self.state.within + 0j, self.counts - 1), self.state.between])
        return values[np.argsort(-np.abs(values), kind="stable")]

    @property
    def stable(self) -> bool:
        """Whether all of them are inside the unit circle; a single token has no differences inside."""
        return bool(np.abs(self.multipliers[0]) < 1)

    def __str__(self) -> str:
        """What it is, in a few lines."""
        return paragraph(
            f"{self.counts.sum()} tokens in clusters of {listed(self.counts)}, values {numbers(self.state.values)}",
            growth(self.multipliers[0]),
            stability(self.stable, "to any change"),
        )

    @property
    def tokens(self) -> Floats:
        """(N,) the value of each token."""
        return np.repeat(self.state.values, self.counts)


@harmless_underflow
def partitions(block: Block, clusters: int = 2) -> tuple[Partition, ...]:
    """The exact states found in which the N tokens of a scalar block form clusters, stable or not.

    They are sought for every (n_1, …, n_K), by Newton's method from many starts and from the states of neighbouring
    partitions.

    Parameters
    ----------
    block : Block
        Scalar, without positional encoding.
    clusters : int
        K, 2 or 3.

    Returns
    -------
    tuple of Partition
        Sorted by counts; a state and what remains of it after a permutation of tokens are one.
    """
    if whole_number("clusters", clusters, 2) > 3:
        raise ArgumentError("clusters", clusters, "2 or 3")
    forms = without_positions(block)
    n = block.n
    if n < clusters:
        raise ArgumentError("clusters", clusters, f"at most the {n} tokens")
    many = comb(n - 1, clusters - 1)
    require("block", f"{n:,} tokens in {clusters} clusters, {many:,} partitions", 1000 * many)
    cuts = np.array(list(combinations(range(1, n), clusters - 1)))
    counts = np.diff(np.hstack([np.zeros((len(cuts), 1), int), cuts, np.full((len(cuts), 1), n)]), axis=1)
    reduced = ClusterMap.of(block)
    found: dict[tuple[int, ...], list[Floats]] = {tuple(map(int, c)): [] for c in counts}
    pending = [(c, start) for c in found for start in _starts(forms, c)]
    if clusters == 3:
        for pair in partitions(block, 2):
            upper, lower = pair.state.values
            for c in found:
                if pair.counts[0] in (c[0], c[0] + c[1]):
                    pending += [(c, np.array([upper, lower + t * (upper - lower), lower])) for t in (0.2, 0.5, 0.8)]
    for _ in range(n):
        if not pending:
            break
        p = np.array([c for c, _ in pending]) / n
        states, converged = reduced.solve(p, np.array([start for _, start in pending]))
        fresh = []
        for (c, _), X in zip([pending[i] for i in np.flatnonzero(converged)], states[converged], strict=True):
            size = max(np.abs(X).max(), 1e-3)
            known = any(np.abs(other - X).max() < MERGED * size for other in found[c])
            if not known and -np.diff(X).max() > MERGED * size:
                found[c].append(X)
                fresh.append((c, X))
        pending = [(other, X) for c, X in fresh for other in _neighbours(c) if not found[other]]
    return tuple(
        Partition(np.array(c), reduced.state(np.array(c) / n, X)) for c, states in found.items() for X in states
    )


@harmless_underflow
def stable_partitions(block: Block, clusters: int = 2) -> tuple[Partition, ...]:
    """The stable ones of `partitions(block, clusters)`: K values that attract all N tokens near them.

    Parameters
    ----------
    block : Block
        Scalar, without positional encoding.
    clusters : int
        K, 2 or 3.

    Returns
    -------
    tuple of Partition
        Sorted by counts.
    """
    return tuple(partition for partition in partitions(block, clusters) if partition.stable)


def _starts(forms: ScalarForms, counts: tuple[int, ...]) -> list[Floats]:
    """(K,) decreasing values without a mean, about the size at which the cubic terms balance the growth."""
    a1, a2, a3 = forms.alpha
    p = np.array(counts) / sum(counts)
    # without attention the mean is not slaved: −1 takes its term out of β
    beta, _ = saturation((1.0, a2, a3), float(forms.eta.sum()) or -1.0, float(forms.eta @ forms.chi), 1.0)
    u = np.sqrt(max(abs(a1 - 1), 1e-4) / max(abs(beta), 1e-2))
    shapes = [np.array([1.0, -1.0])] if len(counts) == 2 else [np.array([1.0, m, -1.0]) for m in (-0.5, 0.5)]
    moved = [shape - p @ shape for shape in shapes]
    return [size * u * shape / np.sqrt(p @ shape**2) for shape in moved for size in (0.3, 0.6, 1.0, 1.5, 2.5, 4.0)]


def _neighbours(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The partitions with one token moved from a cluster to another."""
    found = []
    for source in range(len(counts)):
        for target in range(len(counts)):
            moved = list(counts)
            moved[source] -= 1
            moved[target] += 1
            if source != target and min(moved) > 0:
                found.append(tuple(moved))
    return found
