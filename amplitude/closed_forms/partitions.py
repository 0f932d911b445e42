"""Which partitions of the tokens into clusters are stable (no positional encoding; exact reduction, derived).

n_c tokens share the value X_c, p_c = n_c/N. With m_c and Var_c the mean and variance of X under p_b e^{χX_cX_b},
h_c = X_c + Ση m_c and X_c⁺ = H(h_c). The N multipliers are those of this map of K values, and for each cluster of at
least two tokens H'(h_c)(1 + Σηχ Var_c), n_c − 1 times: differences inside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from amplitude.closed_forms.clusters import ClusterState
from amplitude.closed_forms.scalar_forms import ScalarForms
from dispersion import ArgumentError, Block, ExclusionError
from dispersion.errors import whole_number
from dispersion.memory import require
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow

Floats = NDArray[np.float64]

MERGED = 1e-6
"""Difference of two cluster values, against the larger of them and 1e-3, under which they count as one."""


@dataclass(frozen=True, eq=False)
class Partition(Noun):
    """An exact state of clusters of whole numbers of tokens.

    counts : (K,) tokens in each cluster, that of the largest value first; state : the ClusterState.
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

    @property
    def tokens(self) -> Floats:
        """(N,) the value of each token."""
        return np.repeat(self.state.values, self.counts)


@harmless_underflow
def partitions(block: Block, clusters: int = 2) -> tuple[Partition, ...]:
    """The exact states found in which the N tokens of a scalar block form `clusters` clusters, stable or not.

    block : without positional encoding; clusters : K, 2 or 3. For every (n_1, …, n_K), by Newton's method from many
    starts and from the states of neighbouring partitions. Sorted by counts; a state and what remains of it after a
    permutation of tokens are one.
    """
    if whole_number("clusters", clusters, 2) > 3:
        raise ArgumentError("clusters", clusters, "2 or 3")
    forms = _without_positions(block)
    n = block.n
    if n < clusters:
        raise ArgumentError("clusters", clusters, f"at most the {n} tokens")
    many = comb(n - 1, clusters - 1)
    require("block", f"{n:,} tokens in {clusters} clusters, {many:,} partitions", 1000 * many)
    cuts = np.array(list(combinations(range(1, n), clusters - 1)))
    counts = np.diff(np.hstack([np.zeros((len(cuts), 1), int), cuts, np.full((len(cuts), 1), n)]), axis=1)
    reduced = ClusterMap(forms.eta, forms.chi, *_pointwise(block))
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
    return tuple(_partition(reduced, c, X, n) for c, states in found.items() for X in states)


@harmless_underflow
def stable_partitions(block: Block, clusters: int = 2) -> tuple[Partition, ...]:
    """The stable ones of `partitions(block, clusters)`: K values that attract all N tokens near them.

    block : scalar, without positional encoding; clusters : K, 2 or 3.
    """
    return tuple(partition for partition in partitions(block, clusters) if partition.stable)


@dataclass(frozen=True, eq=False)
class ClusterMap:
    """X_c⁺ for many states at once: eta, chi (heads,) or (heads, B); value, slope : H and H', (B, K) → (B, K)."""

    eta: Floats
    chi: Floats
    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]

    def advance(self, p: Floats, X: Floats) -> tuple[Floats, Floats, Floats]:
        """X⁺ (B, K), ∂X⁺/∂X (B, K, K), and the multipliers within clusters (B, K), for shares p (B, K)."""
        h, own, other = X.copy(), np.ones_like(X), np.zeros((*X.shape, X.shape[1]))
        for eta, chi in zip(self.eta, self.chi, strict=True):
            eta, chi = np.reshape(eta, (-1, 1)), np.reshape(chi, (-1, 1))
            logits = chi[..., None] * X[:, :, None] * X[:, None, :]
            weights = p[:, None, :] * np.exp(logits - logits.max(axis=2, keepdims=True))
            weights /= weights.sum(axis=2, keepdims=True)
            mean = np.einsum("bcd,bd->bc", weights, X)
            deviation = X[:, None, :] - mean[:, :, None]
            h += eta * mean
            own += eta * chi * (weights * deviation**2).sum(axis=2)
            other += eta[..., None] * weights * (1 + chi[..., None] * X[:, :, None] * deviation)
        slope = self.slope(h)
        diagonal = own[:, :, None] * np.eye(X.shape[1])
        return self.value(h), slope[:, :, None] * (diagonal + other), slope * own

    def solve(self, p: Floats, X: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """(X (B, K), which converged (B,)): Newton's method from X, step lengths at most half of the largest value."""
        X = X.copy()
        for _ in range(60):
            advanced, jacobian, _ = self.advance(p, X)
            system = jacobian - np.eye(X.shape[1])
            singular = np.abs(np.linalg.det(system)) < 1e-14
            system[singular] -= 1e-7 * np.eye(X.shape[1])
            step = np.linalg.solve(system, (advanced - X)[..., None])[..., 0]
            longest = 0.5 * np.abs(X).max(axis=1) + 1e-3
            step *= np.minimum(1, longest / np.maximum(np.abs(step).max(axis=1), 1e-300))[:, None]
            X = np.clip(X - step, -20, 20)
            if np.abs(step).max() < 1e-14:
                break
        residual = np.abs(self.advance(p, X)[0] - X).max(axis=1)
        return X, residual < 1e-12 * (1 + np.abs(X).max(axis=1))


def _partition(reduced: ClusterMap, counts: tuple[int, ...], X: Floats, n: int) -> Partition:
    p = np.array(counts) / n
    _, jacobian, within = reduced.advance(p[None], X[None])
    between = np.linalg.eigvals(jacobian[0]).astype(complex)
    return Partition(np.array(counts), ClusterState(p, X, within[0], between))


def _pointwise(block: Block) -> tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]:
    """H and H' of a scalar block, elementwise; H' by a complex step."""
    return (
        lambda h: block.pointwise(h[..., None])[..., 0],
        lambda h: block.pointwise((h + 1e-30j)[..., None])[..., 0].imag / 1e-30,
    )


def _starts(forms: ScalarForms, counts: tuple[int, ...]) -> list[Floats]:
    """(K,) decreasing values without a mean, about the size at which the cubic terms balance the growth."""
    a1, a2, a3 = forms.alpha
    eta, p = float(forms.eta.sum()), np.array(counts) / sum(counts)
    beta = -float(forms.eta @ forms.chi) - a3 + (2 * (1 + eta) * a2**2 / eta if eta else 0.0)
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


def _without_positions(block: Block) -> ScalarForms:
    forms = ScalarForms.of(block)
    if np.abs(forms.symbols[:, 1:]).max(initial=0.0) > 1e-12:
        raise ExclusionError("block", "a head with positional encoding", "Kernel.uniform in every head")
    return forms
