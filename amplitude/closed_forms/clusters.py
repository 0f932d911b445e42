"""Clusters: without positional encoding every heterogeneous mode has the same multiplier α_1, and
tokens gather in groups of equal value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from amplitude.closed_forms.potential import one_mode_potential
from amplitude.closed_forms.scalar_forms import ROUNDING, At, ScalarForms
from dispersion import ArgumentError, Block, ExclusionError
from dispersion.errors import choice, real_array
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64, harmless_underflow


@dataclass(frozen=True)
class Clusters(Noun):
    """Two equal clusters at m ± u, to cubic order: u⁺ = (1+μ)u − βu³ (Eq. 16).

    mu : α_1 − 1; at : where β was evaluated; beta : β_cl; mean_ratio : m/u²;
    alpha2, alpha3 : Taylor coefficients of H.
    """

    mu: float
    at: str
    beta: float
    mean_ratio: float
    alpha2: float
    alpha3: float

    @property
    def amplitude(self) -> float:
        """u = √(μ/β), half the separation: 0 below a supercritical onset, NaN where cubic order gives none."""
        if self.mu * self.beta > 0:
            return float(np.sqrt(self.mu / self.beta))
        return 0.0 if self.mu <= 0 else float("nan")

    @property
    def mean(self) -> float:
        """m, the mean over tokens: −(α_2/η)u² at onset."""
        return self.mean_ratio * self.amplitude**2

    @property
    def values(self) -> tuple[float, float]:
        """The two cluster values m + u and m − u."""
        return self.mean + self.amplitude, self.mean - self.amplitude

    @property
    def within_multipliers(self) -> tuple[float, float]:
        """1 ± 2α_2u + 2α_3u²: growth of differences inside the upper and the lower cluster, to order u²."""
        even, odd = 2 * self.alpha3 * self.amplitude**2, 2 * self.alpha2 * self.amplitude
        return 1 + odd + even, 1 - odd + even

    @property
    def stable(self) -> bool:
        """Whether the clusters exist and hold together: β, μ > 0, α_3 < 0 and |α_2| < |α_3|u."""
        return self.mu > 0 < self.beta and self.alpha3 < 0 and abs(self.alpha2) < -self.alpha3 * self.amplitude

    def potential(self, u: ArrayLike) -> NDArray[np.float64]:
        """V(u) = −μu²/2 + βu⁴/4 with u⁺ − u = −V'(u), at half separations `u` (any shape)."""
        return one_mode_potential(u, self.mu, self.beta)


@harmless_underflow
def clusters(block: Block, at: At = "gain") -> Clusters:
    """Two balanced clusters of a scalar block without positional encoding, −2 < η < 0.

    at : 'gain' (the block's own α_1), 'onset' (α_1 = 1) or 'paper' (own α_1, resolvent of onset).
    At onset β_cl = −ηχ − α_3 + 2(1+η)α_2²/η and m = −(α_2/η)u². Several heads add: η = Σ_hη_h, ηχ = Σ_hη_hχ_h.
    An ExclusionError says what the derivation excludes: d > 1, positional encoding, other η.
    """
    forms = _without_positions(block)
    eta = float(forms.eta.sum())
    if not -2 < eta < 0:
        raise ExclusionError("block", f"η = {eta:g}", "−2 < η < 0, so that the mean is stable at onset")
    a1, a2, a3 = forms.alpha
    choice("at", at, ("gain", "onset", "paper"))
    growth = 1.0 if at == "onset" else a1
    resolvent = (a1 if at == "gain" else 1.0) ** 2 - growth * (1 + eta)
    if abs(resolvent) <= ROUNDING:
        raise ExclusionError("block", f"α_1 = {a1:g}, η = {eta:g}: the mean is in resonance", "α_1² ≠ α_1(1 + η)")
    beta = -growth * float(forms.eta @ forms.chi) - a3 - 2 * a2**2 * (1 + eta) / resolvent
    return Clusters(a1 - 1, at, beta, a2 / resolvent, a2, a3)


@dataclass(frozen=True, eq=False)
class ClusterState(Noun):
    """An exact state of K clusters.

    fractions : (K,) share of the tokens in each; values : (K,) X_c;
    within : (K,) H'(h_c)(1 + Σηχ Var_c), the multiplier of differences inside cluster c (multiplicity
    n_c − 1 each); between : (K,) complex multipliers of the values themselves.
    Together they are the whole spectrum of the N-token Jacobian.
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


@beyond_float64
def cluster_state(block: Block, fractions: ArrayLike = (0.5, 0.5), start: ArrayLike | None = None) -> ClusterState:
    """The exact cluster state of a scalar block without positional encoding, by Newton's method.

    With m_c, Var_c the mean and variance of X under weights p_b e^{χX_cX_b}:
    X_c⁺ = H(X_c + Σ_h η_h m_c), solved for X⁺ = X.

    fractions : (K,) positive shares p_c with sum 1 (whatever N: p_c N need not be whole);
    start : (K,) first guess, by default the cubic prediction for two clusters, weighted so that the
        mean is kept. Raises ArgumentError if Newton's method fails or clusters merge.
    """
    forms = _without_positions(block)
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
        lambda X: _advance(block, forms, p, X)[0] - X,
        guess,
        jac=lambda X: _advance(block, forms, p, X)[1] - identity,
        tol=1e-15,
    )
    advanced, jacobian, within = _advance(block, forms, p, result.x)
    gaps = np.abs(result.x[:, None] - result.x)[~np.eye(p.size, dtype=bool)]
    if not np.abs(advanced - result.x).max() <= 1e-12 * (1 + np.abs(result.x).max()):
        raise ArgumentError("start", guess, "a guess from which Newton's method converges")
    if gaps.size and gaps.min() <= 1e-9:
        raise ArgumentError("start", guess, "a guess from which the clusters do not merge")
    return ClusterState(p, result.x, within, np.linalg.eigvals(jacobian).astype(complex))


def _advance(
    block: Block, forms: ScalarForms, p: NDArray[np.float64], X: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """X⁺ (K,), ∂X⁺/∂X (K, K), and the multipliers within clusters (K,)."""
    h, own, other = X.copy(), np.ones_like(X), np.zeros((X.size, X.size))
    for eta, chi in zip(forms.eta, forms.chi, strict=True):
        logits = chi * np.outer(X, X)
        weights = p * np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mean = weights @ X
        deviation = X - mean[:, None]
        h += eta * mean
        own += eta * chi * (weights * deviation**2).sum(axis=1)
        other += eta * weights * (1 + chi * X[:, None] * deviation)
    slope = block.pointwise_jacobian(h[:, None])[:, 0, 0]
    advanced = block.pointwise(h[:, None])[:, 0]
    return advanced, slope[:, None] * (np.diag(own) + other), slope * own


def _without_positions(block: Block) -> ScalarForms:
    forms = ScalarForms.of(block)
    if np.abs(forms.symbols[:, 1:]).max() > 1e-12:
        raise ExclusionError("block", "a head with positional encoding", "Kernel.uniform in every head")
    return forms
