"""A single wave x_j = B e^{iqj} + c.c. + slaved modes, 0 < q < π: B⁺ = ΛB + c|B|²B."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.closed_forms.cubic import self_coupling
from amplitude.closed_forms.potential import one_mode_potential, saturated
from amplitude.closed_forms.scalar_forms import At, ScalarForms
from amplitude.plot import plot_potential
from amplitude.summary import motion, stability
from dispersion import Block, ExclusionError
from dispersion.errors import real_number
from dispersion.grid import grid_index
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow
from dispersion.summary import growth, paragraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Wave(Noun):
    """The saturated wave of one mode.

    Attributes
    ----------
    k, n : int
        Wavenumber q = 2πk/n on n tokens.
    multiplier : complex
        Λ at the actual gain.
    at : {'gain', 'onset', 'paper'}
        Where c was evaluated.
    coefficient : complex
        c.
    beta : float or complex
        β = −e^{−iω}c with ω where c was evaluated, a float for a symmetric kernel; the wave saturates (is
        supercritical) if Re β > 0.
    mean_ratio : float
        The slaved mean, X_0 = mean_ratio·|B|².
    harmonic_ratio : complex
        The slaved harmonic, X_2q = harmonic_ratio·B².
    state : float
        The base state a.
    """

    k: int
    n: int
    multiplier: complex
    at: str
    coefficient: complex
    beta: float | complex
    mean_ratio: float
    harmonic_ratio: complex
    state: float

    @property
    def mu(self) -> float:
        """μ = |Λ| − 1, the distance to onset."""
        return abs(self.multiplier) - 1

    @property
    def omega(self) -> float:
        """ω = arg Λ, the linear phase advance per layer; π for an alternating wave."""
        return float(np.angle(self.multiplier))

    @property
    def supercritical(self) -> bool:
        """Whether the cubic term saturates growth: Re β > 0."""
        return self.beta.real > 0

    @property
    def amplitude(self) -> float:
        """R = |B| = √(μ/Re β) (Eq. 17): 0 below a supercritical onset, NaN where cubic order gives none."""
        return saturated(self.mu, self.beta.real, below=0.0)

    @property
    def stable(self) -> bool:
        """Whether the wave of this amplitude exists and attracts within its own mode."""
        return self.supercritical and self.mu > 0

    @property
    def phase_advance(self) -> float:
        """Ω = ω − Im(β)R², the phase advance per layer of the saturated wave, ω at the actual gain."""
        return self.omega - self.beta.imag * self.amplitude**2

    @property
    def mean(self) -> float:
        """Mean over tokens of the saturated wave, a + X_0."""
        return self.state + self.mean_ratio * self.amplitude**2

    def __str__(self) -> str:
        """What it is, in a few lines."""
        kind = "alternating" if self.multiplier.real < 0 else "standing"
        kind = "travelling" if isinstance(self.beta, complex) else kind
        return paragraph(
            f"{kind} wave, k = {self.k} on {self.n} tokens, cubic closed form at '{self.at}'",
            growth(self.multiplier),
            motion(self.amplitude, self.phase_advance),
            f"β = {self.beta:z.4g}, {'super' if self.supercritical else 'sub'}critical",
            stability(self.stable, "within its own mode; other modes are not asked"),
        )

    def field(self, layer: float = 0.0, phase: float = 0.0) -> NDArray[np.float64]:
        """The saturated wave to second order, x_j = a + X_0 + 2Re(z + X_2 z²), z = R e^{i(qj + Ωl + θ_0)}.

        Parameters
        ----------
        layer : float
            l.
        phase : float
            θ_0, radians.

        Returns
        -------
        (n,) ndarray
            x_j.
        """
        layer, phase = real_number("layer", layer), real_number("phase", phase)
        theta = 2 * np.pi * self.k * np.arange(self.n) / self.n + self.phase_advance * layer + phase
        z = self.amplitude * np.exp(1j * theta)
        return self.mean + 2 * np.real(z + self.harmonic_ratio * z**2)

    def potential(self, R: ArrayLike) -> NDArray[np.float64]:
        """V(R) = −μR²/2 + Re(β)R⁴/4 with R⁺ − R = −V'(R) (Eq. 19).

        Parameters
        ----------
        R : (…) array_like
            Amplitudes.

        Returns
        -------
        (…) ndarray
            V(R).
        """
        return one_mode_potential(R, self.mu, self.beta.real)

    def plot_potential(self, ax: Axes | None = None) -> Axes:
        """Draw V(R) with its extrema marked.

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure.

        Returns
        -------
        Axes
            Those drawn on.
        """
        stationary = {0.0: self.mu < 0}
        if self.amplitude > 0:
            stationary |= {self.amplitude: self.stable, -self.amplitude: self.stable}
        return plot_potential(self.potential, stationary, ax)


@harmless_underflow
def standing_wave(block: Block, k: int, at: At = "gain", state: ArrayLike | None = None) -> Wave:
    """The standing wave (Λ > 0) or alternating wave (Λ < 0) of a scalar block with symmetric kernels.

    Parameters
    ----------
    block : Block
        Scalar, with symmetric kernels.
    k : int
        Wavenumber, 0 < k < N/2.
    at : {'gain', 'onset', 'paper'}
        Where c is evaluated, see `ScalarForms.evaluate`.
    state : float, optional
        Base state a, a fixed point of g; 0 by default.

    Returns
    -------
    Wave
        Its coefficients, amplitude, stability and field.

    Raises
    ------
    ExclusionError
        If the derivation excludes it: d > 1, directional kernels, q = 0 and π, a lattice resonance 3q or 4q ≡ 0,
        unstable slaved modes, Λ = 0.

    Notes
    -----
    At a = 0 and onset (Eqs. 96–97)
    β_st = −α_1ηχ[2(1−λ_c²)+λ_2−λ_c²] − 3α_3L_c³ − 2α_2²L_c³[2L_0/(1−J_0) + L_2/(1−J_2)].
    """
    return _wave(block, k, at, state, symmetric=True)


@harmless_underflow
def travelling_wave(block: Block, k: int, at: At = "gain", state: ArrayLike | None = None) -> Wave:
    """The travelling wave of a scalar block with a directional kernel.

    Parameters
    ----------
    block : Block
        Scalar, with a directional kernel.
    k : int
        Wavenumber, 0 < k < N/2.
    at : {'gain', 'onset', 'paper'}
        Where c is evaluated, see `ScalarForms.evaluate`.
    state : float, optional
        Base state a, a fixed point of g; 0 by default.

    Returns
    -------
    Wave
        Its coefficients, amplitude, phase advance, stability and field.

    Raises
    ------
    ExclusionError
        If the kernel is symmetric, or as in `standing_wave`: d > 1, q = 0 and π, a lattice resonance 3q or 4q ≡ 0,
        unstable slaved modes, Λ = 0.

    Notes
    -----
    β_tr = −e^{−iω}c, amplitude √(μ/Re β), phase advance Ω = ω − Im(β)R². The sign of β follows Eqs. 107 and 120; the
    paper's Eq. 119 has the opposite one.
    """
    return _wave(block, k, at, state, symmetric=False)


def _wave(block: Block, k: int, at: At, state: ArrayLike | None, symmetric: bool) -> Wave:
    forms = ScalarForms.of(block, state)
    if symmetric != all(head.kernel.symmetric for head in block.heads):
        kinds = ("a directional kernel", "symmetric kernels only")
        other = ("symmetric kernels, or travelling_wave", "a directional kernel, or standing_wave")
        raise ExclusionError("block", kinds[not symmetric], other[not symmetric])
    k, n = grid_index("k", k, forms.n), forms.n
    k = min(k, n - k)
    _refuse_lattice(k, n, forms.multiplier(k))
    forms.refuse_unstable(0, 2 * k, critical=(k,))
    here, (multiplier,) = forms.evaluate(at, k)
    c, mean, harmonic = self_coupling(here, k, multiplier)
    beta = -c * abs(multiplier) / multiplier
    return Wave(
        k=k,
        n=n,
        multiplier=forms.J(k),
        at=at,
        coefficient=c,
        beta=beta.real if symmetric else beta,
        mean_ratio=mean.real,
        harmonic_ratio=harmonic,
        state=forms.state,
    )


def _refuse_lattice(k: int, n: int, multiplier: complex) -> None:
    """Refuse q = 0 and π, and the resonance z̄^{m−1} of m = N/gcd(k,N) = 3, 4 where e^{imω} ≈ 1."""
    special = {1: "homogeneous_state", 2: "period_two", 3: "period_three", 4: "period_four"}
    m = n // gcd(k, n)
    detuning = abs((multiplier / abs(multiplier)) ** m - 1)
    if m <= 2 or (m <= 4 and detuning <= max(1e-8, abs(abs(multiplier) - 1))):
        raise ExclusionError(
            "k", f"{k} on {n} tokens, where {m}q ≡ 0 (mod 2π) is resonant", f"other k, or {special[m]}"
        )
