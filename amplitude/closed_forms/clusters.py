"""Two balanced clusters to cubic order: without positional encoding every heterogeneous mode has the same multiplier
α_1, and tokens gather in groups of equal value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.closed_forms.potential import one_mode_potential, saturated
from amplitude.closed_forms.scalar_forms import ROUNDING, At, ScalarForms
from amplitude.summary import stability
from dispersion import Block, ExclusionError
from dispersion.errors import choice
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow
from dispersion.summary import growth, number, numbers, paragraph

Scalar = TypeVar("Scalar", float, NDArray[np.float64])


@dataclass(frozen=True)
class Clusters(Noun):
    """Two equal clusters at m ± u, to cubic order: u⁺ = (1+μ)u − βu³ (Eq. 16).

    Attributes
    ----------
    mu : float
        μ = α_1 − 1.
    at : {'gain', 'onset', 'paper'}
        Where β was evaluated.
    beta : float
        β_cl.
    mean_ratio : float
        m/u².
    alpha2, alpha3 : float
        Taylor coefficients of H.
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
        return saturated(self.mu, self.beta, below=0.0)

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
        """1 ± 2α_2u + 2α_3u², the multipliers of differences inside the upper and the lower cluster, to order u²."""
        even, odd = 2 * self.alpha3 * self.amplitude**2, 2 * self.alpha2 * self.amplitude
        return 1 + odd + even, 1 - odd + even

    @property
    def stable(self) -> bool:
        """Whether the clusters exist and hold together: β, μ > 0, α_3 < 0 and |α_2| < |α_3|u."""
        return self.mu > 0 < self.beta and self.alpha3 < 0 and abs(self.alpha2) < -self.alpha3 * self.amplitude

    def __str__(self) -> str:
        """What it is, in a few lines."""
        return paragraph(
            f"two balanced clusters, cubic closed form at '{self.at}'",
            growth(1 + self.mu),
            f"values {numbers(self.values)}, β = {number(self.beta)}",
            stability(self.stable, f"to differences inside them: multipliers {numbers(self.within_multipliers)}"),
        )

    def potential(self, u: ArrayLike) -> NDArray[np.float64]:
        """V(u) = −μu²/2 + βu⁴/4 with u⁺ − u = −V'(u).

        Parameters
        ----------
        u : (…) array_like
            Half separations.

        Returns
        -------
        (…) ndarray
            V(u).
        """
        return one_mode_potential(u, self.mu, self.beta)


@harmless_underflow
def clusters(block: Block, at: At = "gain") -> Clusters:
    """Two balanced clusters of a scalar block without positional encoding, −2 < η < 0.

    Parameters
    ----------
    block : Block
        Scalar, without positional encoding. Several heads add: η = Σ_hη_h, ηχ = Σ_hη_hχ_h.
    at : {'gain', 'onset', 'paper'}
        Where β is evaluated: at the block's own α_1, at α_1 = 1, or at its own α_1 with the resolvent of onset.

    Returns
    -------
    Clusters
        The two clusters to cubic order.

    Raises
    ------
    ExclusionError
        If the derivation excludes it: d > 1, positional encoding, other η.

    Notes
    -----
    At onset β_cl = −ηχ − α_3 + 2(1+η)α_2²/η and m = −(α_2/η)u².
    """
    forms = without_positions(block)
    eta = float(forms.eta.sum())
    if not -2 < eta < 0:
        raise ExclusionError("block", f"η = {eta:g}", "−2 < η < 0, so that the mean is stable at onset")
    a1, a2, a3 = forms.alpha
    choice("at", at, ("gain", "onset", "paper"))
    here, multiplier = 1.0 if at == "onset" else a1, a1 if at == "gain" else 1.0
    if abs(multiplier**2 - here - here * eta) <= ROUNDING:
        raise ExclusionError("block", f"α_1 = {a1:g}, η = {eta:g}: the mean is in resonance", "α_1² ≠ α_1(1 + η)")
    beta, mean_ratio = saturation((here, a2, a3), eta, float(forms.eta @ forms.chi), multiplier)
    return Clusters(a1 - 1, at, beta, mean_ratio, a2, a3)


def saturation(
    alpha: tuple[Scalar, Scalar, Scalar], eta: Scalar, eta_chi: Scalar, multiplier: Scalar
) -> tuple[Scalar, Scalar]:
    """(β_cl, m/u²) with m = α_2u²/(Λ² − α_1(1+η)) and β_cl = −α_1ηχ − α_3 − 2α_2(1+η)m/u².

    alpha : α_1, α_2, α_3; eta, eta_chi : Ση and Σηχ; multiplier : Λ. Numbers, or arrays of one shape.
    """
    a1, a2, a3 = alpha
    resolvent = multiplier**2 - a1 - a1 * eta
    return -a1 * eta_chi - a3 - 2 * a2**2 * (1 + eta) / resolvent, a2 / resolvent


def without_positions(block: Block) -> ScalarForms:
    """The forms of a scalar `block` whose heads know no positions; others are refused."""
    forms = ScalarForms.of(block)
    if np.abs(forms.symbols[:, 1:]).max(initial=0.0) > 1e-12:
        raise ExclusionError("block", "a head with positional encoding", "Kernel.uniform in every head")
    return forms
