"""Exact states of clusters, of a map of K values (no positional encoding; exact reduction, derived)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from amplitude.closed_forms.clusters import clusters, without_positions
from amplitude.summary import stability
from dispersion import ArgumentError, Block
from dispersion.errors import real_array
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64
from dispersion.summary import number, numbers, paragraph

Floats = NDArray[np.float64]

MERGED = 1e-6
"""Difference of two cluster values, against the larger of them and 1e-3, under which they count as one."""


@dataclass(frozen=True, eq=False)
class ClusterState(Noun):
    """An exact state of K clusters.

    Attributes
    ----------
    fractions : (K,) ndarray
        Share of the tokens in each.
    values : (K,) ndarray
        X_c.
    within : (K,) ndarray
        H'(h_c)(1 + Σηχ Var_c), the multiplier of differences inside cluster c (multiplicity n_c − 1 each).
    between : (K,) complex ndarray
        Multipliers of the values themselves.

    Notes
    -----
    `within` and `between` together are the whole spectrum of the N-token Jacobian.
    """

    fractions: NDArray[np.float64]
    values: NDArray[np.float64]
    within: NDArray[np.float64]
    between: NDArray[np.complex128]

    @property
    def mean(self) -> float:
        """Mean over tokens."""
        return float(self.fractions @ self.values)

    @property
    def stable(self) -> bool:
        """Whether every multiplier, within and between clusters, is inside the unit circle."""
        return bool(max(np.abs(self.within).max(), np.abs(self.between).max()) < 1)

    def __str__(self) -> str:
        """What it is, in a few lines."""
        return paragraph(
            f"exact state of {len(self.values)} clusters, values {numbers(self.values)}",
            f"shares {numbers(self.fractions)}",
            f"largest multiplier inside clusters {number(np.abs(self.within).max())}, "
            f"between them {number(np.abs(self.between).max())}",
            stability(self.stable, "to any change"),
        )


@dataclass(frozen=True, eq=False)
class ClusterMap:
    """The map of cluster values for B states at once: h_c = X_c + Σηm_c and X_c⁺ = H(h_c), with m_c and Var_c the mean
    and variance of X under p_b e^{χX_cX_b}.

    eta, chi : (heads,) or (heads, B); pointwise : h (B, K) ↦ H(h) and H'(h).
    """

    eta: Floats
    chi: Floats
    pointwise: Callable[[Floats], tuple[Floats, Floats]]

    @classmethod
    def of(cls, block: Block) -> ClusterMap:
        """The map of a scalar `block` without positional encoding."""
        forms = without_positions(block)

        def pointwise(h: Floats) -> tuple[Floats, Floats]:
            y = h[..., None]
            return block.pointwise(y)[..., 0], block.pointwise_jacobian(y)[..., 0, 0]

        return cls(forms.eta, forms.chi, pointwise)

    def advance(self, p: Floats, X: Floats) -> tuple[Floats, Floats, Floats]:
        """X⁺ (B, K), ∂X⁺/∂X (B, K, K) and H'(h_c)(1 + Σηχ Var_c) (B, K), that within clusters, for shares p (B, K)."""
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
        image, slope = self.pointwise(h)
        diagonal = own[:, :, None] * np.eye(X.shape[1])
        return image, slope[:, :, None] * (diagonal + other), slope * own

    def state(self, p: Floats, X: Floats) -> ClusterState:
        """The fixed point `X` (K,) for shares `p` (K,), with its multipliers."""
        _, jacobian, within = self.advance(p[None], X[None])
        return ClusterState(p, X, within[0], np.linalg.eigvals(jacobian[0]).astype(complex))

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


@beyond_float64
def cluster_state(block: Block, fractions: ArrayLike = (0.5, 0.5), start: ArrayLike | None = None) -> ClusterState:
    """The exact cluster state of a scalar block without positional encoding, by Newton's method.

    Parameters
    ----------
    block : Block
        Scalar, without positional encoding.
    fractions : (K,) array_like
        Positive shares p_c with sum 1, whatever N: p_c N need not be whole.
    start : (K,) array_like, optional
        First guess; by default the cubic prediction for two clusters, weighted so that the mean is kept.

    Returns
    -------
    ClusterState
        The state with its multipliers.

    Raises
    ------
    ArgumentError
        If Newton's method fails or clusters merge.

    Notes
    -----
    With m_c, Var_c the mean and variance of X under weights p_b e^{χX_cX_b}:
    X_c⁺ = H(X_c + Σ_h η_h m_c), solved for X⁺ = X.
    """
    reduced = ClusterMap.of(block)
    p = real_array("fractions", fractions)
    if p.ndim != 1 or p.size < 1 or not (p > 0).all() or abs(p.sum() - 1) > 1e-12:
        raise ArgumentError("fractions", fractions, "positive numbers with sum 1")
    if start is None:
        if p.size != 2:
            raise ArgumentError("start", None, f"a first guess of shape ({p.size},)")
        guess = clusters(block).amplitude * np.array([np.sqrt(p[1] / p[0]), -np.sqrt(p[0] / p[1])])
    else:
        guess = np.array(real_array("start", start))
    if guess.shape != p.shape or not np.isfinite(guess).all():
        raise ArgumentError("start", guess, f"{p.size} finite numbers")
    identity = np.eye(p.size)
    result = optimize.root(
        lambda X: reduced.advance(p[None], X[None])[0][0] - X,
        guess,
        jac=lambda X: reduced.advance(p[None], X[None])[1][0] - identity,
        tol=1e-15,
    )
    (advanced,) = reduced.advance(p[None], result.x[None])[0]
    gaps = np.abs(result.x[:, None] - result.x)[~np.eye(p.size, dtype=bool)]
    if not np.abs(advanced - result.x).max() <= 1e-12 * (1 + np.abs(result.x).max()):
        raise ArgumentError("start", guess, "a guess from which Newton's method converges")
    if gaps.size and gaps.min() <= 1e-9:
        raise ArgumentError("start", guess, "a guess from which the clusters do not merge")
    return reduced.state(p, result.x)
