"""The real sectors that the wave formulas exclude: q = 0, π, 2π/3 and π/2.

There the lattice makes extra terms resonant, and each sector has an amplitude equation of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.closed_forms.cubic import self_coupling
from amplitude.closed_forms.potential import saturated
from amplitude.closed_forms.scalar_forms import At, ScalarForms
from amplitude.summary import motion, stability
from dispersion import Block, ExclusionError
from dispersion.errors import real_number
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64, harmless_underflow
from dispersion.summary import growth, number, paragraph


@dataclass(frozen=True)
class Sector(Noun, ABC):
    """What the sectors share: multiplier, Λ at the actual gain (real); at, where coefficients were evaluated."""

    pattern: ClassVar[str]
    multiplier: float
    at: str

    @property
    @abstractmethod
    def amplitude(self) -> float:
        """|B|; NaN if there is none."""

    @property
    @abstractmethod
    def stable(self) -> bool:
        """Whether the pattern of this amplitude exists and attracts within its own mode."""

    @property
    def psi(self) -> float:
        """ψ = arg B of the pattern, radians."""
        return 0.0

    @property
    def mu(self) -> float:
        """μ = |Λ| − 1."""
        return abs(self.multiplier) - 1

    @property
    def sign(self) -> float:
        """The sign of Λ: −1 if the sector flips from layer to layer."""
        return float(np.sign(self.multiplier))

    @property
    def phase_advance(self) -> float:
        """Radians per layer: 0, or π if the sector flips."""
        return float(np.angle(self.multiplier))

    def __str__(self) -> str:
        """What it is, in a few lines."""
        own = [field.name for field in fields(self) if field.name not in ("multiplier", "at")]
        return paragraph(
            f"pattern of {self.pattern}, cubic closed form at '{self.at}'",
            growth(self.multiplier),
            f"{motion(self.amplitude, self.phase_advance)}, ψ = {number(self.psi)}",
            ", ".join(f"{name} = {number(getattr(self, name))}" for name in own),
            stability(self.stable, "within its own mode; other modes are not asked"),
        )


@dataclass(frozen=True)
class PeriodTwo(Sector):
    """q = π, x_j = B(−1)^j + m: B⁺ = ΛB + γB³, m = mean_ratio·B².

    Attributes
    ----------
    multiplier : float
        Λ at the actual gain.
    at : {'gain', 'onset', 'paper'}
        Where γ was evaluated.
    gamma : float
        γ.
    mean_ratio : float
        m/B².
    """

    pattern: ClassVar[str] = "q = π"
    gamma: float
    mean_ratio: float

    @property
    def amplitude(self) -> float:
        """|B| with B² = −sign(Λ)μ/γ; NaN if there is none."""
        return saturated(-self.sign * self.mu, self.gamma)

    @property
    def mean(self) -> float:
        """m of the saturated pattern, relative to the base state."""
        return self.mean_ratio * self.amplitude**2

    @property
    def pattern_multiplier(self) -> float:
        """Multiplier of the pattern to first order in μ: 1 − 2μ, or 1 − 4μ of F∘F for a flip."""
        return 1 - (2 if self.sign > 0 else 4) * self.mu

    @property
    def stable(self) -> bool:
        """Whether the pattern exists and attracts."""
        return self.mu > 0 > self.sign * self.gamma


@dataclass(frozen=True)
class PeriodFour(Sector):
    """q = π/2: B⁺ = ΛB + c_1|B|²B + c_3B̄³, in two families, ψ = arg B ≡ 0 or π/4 (mod π/2).

    Attributes
    ----------
    multiplier : float
        Λ at the actual gain.
    at : {'gain', 'onset', 'paper'}
        Where c_1, c_3 were evaluated.
    c1, c3 : float
        c_1 and c_3, times sign(Λ).
    """

    pattern: ClassVar[str] = "q = π/2"
    c1: float
    c3: float

    @property
    def psi(self) -> float:
        """ψ of the family that can attract: 0 for c_3 > 0, else π/4."""
        return 0.0 if self.c3 > 0 else np.pi / 4

    @property
    def amplitude(self) -> float:
        """|B| of the family `psi`; NaN if there is none."""
        return self.amplitude_at(self.psi)

    @property
    def stable(self) -> bool:
        """Whether the family `psi` exists and attracts."""
        return self.stable_at(self.psi)

    def amplitude_at(self, psi: float) -> float:
        """|B| of one family: R² = −μ/(c_1 ± c_3).

        Parameters
        ----------
        psi : float
            ψ of the family, 0 or π/4 (mod π/2), radians.

        Returns
        -------
        float
            |B|; NaN if there is none.
        """
        return saturated(-self.mu, self.c1 + self._pull(psi))

    def phase_multiplier_at(self, psi: float) -> float:
        """Multiplier of the phase on one family: 1 − 4c_3R²cos 4ψ.

        Parameters
        ----------
        psi : float
            ψ of the family, 0 or π/4 (mod π/2), radians.
        """
        return 1 - 4 * self.c3 * self.amplitude_at(psi) ** 2 * _cosine(psi, 4, "0 or π/4 (mod π/2)")

    def stable_at(self, psi: float) -> bool:
        """Whether one family exists and attracts.

        Parameters
        ----------
        psi : float
            ψ of the family, 0 or π/4 (mod π/2), radians.
        """
        pull = self._pull(psi)
        return self.mu > 0 > self.c1 + pull and pull > 0

    def _pull(self, psi: float) -> float:
        """c_3cos 4ψ."""
        return _cosine(psi, 4, "0 or π/4 (mod π/2)") * self.c3


@dataclass(frozen=True)
class PeriodThree(Sector):
    """q = 2π/3, Λ > 0: B⁺ = ΛB + a_2B̄² + c_1|B|²B: transcritical, ψ = arg B with cos 3ψ = ±1.

    Attributes
    ----------
    multiplier : float
        Λ at the actual gain.
    at : {'gain', 'onset', 'paper'}
        Where a_2, c_1 were evaluated.
    a2, c1 : float
        a_2 and c_1.
    """

    pattern: ClassVar[str] = "q = 2π/3"
    a2: float
    c1: float

    @property
    def psi(self) -> float:
        """ψ of the family that can attract, σ = |a_2|: 0 for a_2 ≥ 0, else π/3."""
        return 0.0 if self.a2 >= 0 else np.pi / 3

    @property
    def amplitude(self) -> float:
        """R of the outer state of the family `psi`, that beyond the fold; NaN if there is none."""
        roots = self.amplitudes_at(self.psi)
        return float(roots[-1]) if len(roots) and self.c1 < 0 else float("nan")

    @property
    def stable(self) -> bool:
        """Whether that state exists and attracts; at a_2 = 0 no term of this order turns its phase."""
        if np.isnan(R := self.amplitude):
            return False
        radial, phase = self.multipliers_at(self.psi, R)
        return abs(radial) < 1 and abs(phase) <= 1

    def amplitudes_at(self, psi: float) -> NDArray[np.float64]:
        """Positive roots R of μ + σR + c_1R² = 0, σ = a_2cos 3ψ.

        Parameters
        ----------
        psi : float
            ψ = arg B, a multiple of π/3, radians.

        Returns
        -------
        (roots,) ndarray
            R, smallest first.
        """
        roots = np.roots([self.c1, self._sigma(psi), self.mu])
        return np.sort(roots[(roots.imag == 0) & (roots.real > 0)].real)

    @beyond_float64
    def multipliers_at(self, psi: float, R: float) -> tuple[float, float]:
        """Radial and phase multipliers 1 + σR + 2c_1R² and 1 − 3σR of a state, σ = a_2cos 3ψ.

        Parameters
        ----------
        psi : float
            ψ = arg B, radians.
        R : float
            R = |B|.

        Returns
        -------
        (float, float)
            The radial multiplier and that of the phase.
        """
        sigma, R = self._sigma(psi), np.float64(real_number("R", R))
        return float(1 + sigma * R + 2 * self.c1 * R**2), float(1 - 3 * sigma * R)

    @property
    def fold(self) -> tuple[float, float]:
        """(μ_f, R_f) = (a_2²/4c_1, −|a_2|/2c_1), where the branches meet; bistable for μ_f < μ < 0. NaN for c_1 = 0."""
        if self.c1 == 0:
            return float("nan"), float("nan")
        return self.a2**2 / (4 * self.c1), -abs(self.a2) / (2 * self.c1)

    def _sigma(self, psi: float) -> float:
        """a_2cos 3ψ."""
        return self.a2 * _cosine(psi, 3, "a multiple of π/3")


@dataclass(frozen=True)
class HomogeneousState(Sector):
    """q = 0: B⁺ = ΛB + b_2B² + b_3B³; attention drops out, so this is the map g alone.

    Attributes
    ----------
    multiplier : float
        Λ at the actual gain.
    at : {'gain', 'onset', 'paper'}
        Where b_2, b_3 were evaluated.
    b2, b3 : float
        b_2 and b_3.
    """

    pattern: ClassVar[str] = "q = 0"
    b2: float
    b3: float

    @property
    def amplitude(self) -> float:
        """|B| of the nearest of `roots` that attracts, |Λ + 2b_2B + 3b_3B²| < 1, or for Λ < 0 of the flip,
        B² = μ/(b_2² + b_3); NaN if there is none.
        """
        if self.sign < 0:
            return saturated(self.mu, self.flip_coefficient)
        attracting = [B for B in self.roots if abs(self.multiplier + 2 * self.b2 * B + 3 * self.b3 * B**2) < 1]
        return float(abs(attracting[0])) if attracting else float("nan")

    @property
    def stable(self) -> bool:
        """Whether the state of this amplitude exists and attracts; of the flip, to first order in μ."""
        return bool(np.isfinite(self.amplitude)) and (self.sign > 0 or self.mu > 0)

    @property
    def roots(self) -> NDArray[np.float64]:
        """Fixed points B ≠ 0, (Λ−1) + b_2B + b_3B² = 0, nearest to zero first."""
        coefficients = np.trim_zeros(np.array([self.b3, self.b2, self.multiplier - 1]), "f")
        roots = np.roots(coefficients) if len(coefficients) > 1 else np.zeros(0)
        real = roots[(roots.imag == 0) & (roots != 0)].real
        return real[np.argsort(np.abs(real))]

    @property
    def transcritical_root(self) -> float:
        """B = −μ/b_2, the bifurcating fixed point to first order at Λ = 1 + μ; NaN if b_2 = 0."""
        return -(self.multiplier - 1) / self.b2 if self.b2 else float("nan")

    @property
    def flip_coefficient(self) -> float:
        """b_2² + b_3, whose sign says whether the flip at Λ = −1 saturates (> 0)."""
        return self.b2**2 + self.b3


@harmless_underflow
def period_two(block: Block, at: At = "gain", state: ArrayLike | None = None) -> PeriodTwo:
    """The sector q = π (N even) of a scalar block.

    Parameters
    ----------
    block : Block
        Scalar, N even.
    at : {'gain', 'onset', 'paper'}
        Where coefficients are evaluated, see `ScalarForms.evaluate`.
    state : float, optional
        Base state a, a fixed point of g; 0 by default.

    Returns
    -------
    PeriodTwo
        Coefficients, amplitude and stability.

    Raises
    ------
    ExclusionError
        If Λ = 0, or a slaved mode is unstable or in resonance.

    Notes
    -----
    At a = 0 and onset γ = α_1ηχ(1−λ_π²) + α_3L_π³ + 2α_2²L_π³L_0/(1−J_0).
    """
    forms, k, multiplier = _forms(block, state, 2)
    forms.refuse_unstable(0)
    here, (L,) = forms.evaluate(at, k)
    mean = here.slaved(here.B(k, k), L**2, 0)
    gamma = here.C(k, k, k) + 2 * here.B(k, 0) * mean
    return PeriodTwo(multiplier, at, gamma.real, mean.real)


@harmless_underflow
def period_four(block: Block, at: At = "gain", state: ArrayLike | None = None) -> PeriodFour:
    """The sector q = π/2 (4 | N) of a scalar block with symmetric kernels.

    Parameters
    ----------
    block : Block
        Scalar, 4 | N, with symmetric kernels.
    at : {'gain', 'onset', 'paper'}
        Where coefficients are evaluated, see `ScalarForms.evaluate`.
    state : float, optional
        Base state a, a fixed point of g; 0 by default.

    Returns
    -------
    PeriodFour
        Coefficients, amplitude and stability of both families.

    Raises
    ------
    ExclusionError
        If Λ = 0, or a slaved mode is unstable or in resonance.

    Notes
    -----
    At a = 0 and onset c_3 = α_3L_c³ + α_1ηχ(λ_π−λ_c²) + 2α_2²L_c³L_π/(1−J_π); c_1 is that of a wave.
    """
    forms, k, multiplier = _forms(block, state, 4, symmetric=True)
    forms.refuse_unstable(0, 2 * k)
    here, (L,) = forms.evaluate(at, k)
    c1, _, harmonic = self_coupling(here, k, L)
    c3 = here.C(-k, -k, -k) + 2 * here.B(-k, 2 * k) * harmonic
    sign = np.sign(L.real)
    return PeriodFour(multiplier, at, float(sign * c1.real), float(sign * c3.real))


@harmless_underflow
def period_three(block: Block, at: At = "gain", state: ArrayLike | None = None) -> PeriodThree:
    """The sector q = 2π/3 (3 | N), Λ > 0, of a scalar block with symmetric kernels.

    Parameters
    ----------
    block : Block
        Scalar, 3 | N, with symmetric kernels and Λ > 0.
    at : {'gain', 'onset', 'paper'}
        Where coefficients are evaluated, see `ScalarForms.evaluate`.
    state : float, optional
        Base state a, a fixed point of g; 0 by default.

    Returns
    -------
    PeriodThree
        Coefficients, amplitudes and stability.

    Raises
    ------
    ExclusionError
        If Λ = 0, or a slaved mode is unstable or in resonance.

    Notes
    -----
    At a = 0 and onset a_2 = α_2L_c², c_1 = α_1ηχ(2+λ_c−3λ_c²) + 3α_3L_c³ + 4α_2²L_c³L_0/(1−J_0).
    """
    forms, k, multiplier = _forms(block, state, 3, symmetric=True)
    if multiplier < 0:
        raise ExclusionError("block", f"Λ = {multiplier:.6g} at q = 2π/3", "Λ > 0, or standing_wave")
    forms.refuse_unstable(0)
    here, (L,) = forms.evaluate(at, k)
    c1 = self_coupling(here, k, L, harmonic=False).coefficient
    return PeriodThree(multiplier, at, here.B(-k, -k).real, c1.real)


@harmless_underflow
def homogeneous_state(block: Block, at: At = "gain", state: ArrayLike | None = None) -> HomogeneousState:
    """The sector q = 0 of a scalar block.

    Parameters
    ----------
    block : Block
        Scalar.
    at : {'gain', 'onset', 'paper'}
        Where coefficients are evaluated, see `ScalarForms.evaluate`.
    state : float, optional
        Base state a, a fixed point of g; 0 by default.

    Returns
    -------
    HomogeneousState
        Coefficients, amplitude and stability.

    Raises
    ------
    ExclusionError
        At 'onset' and 'paper' if Λ = 0, at 'onset' also where no scale of the gains makes |Λ| = 1. At 'gain' Λ = 0 is
        no exception: nothing is divided by it, and no mode is slaved.

    Notes
    -----
    b_2 = α_2L_0², b_3 = α_3L_0³.
    """
    forms = ScalarForms.of(block, state)
    here, _ = forms.evaluate(at, 0)
    return HomogeneousState(forms.J(0).real, at, here.B(0, 0).real, here.C(0, 0, 0).real)


def _forms(
    block: Block, state: ArrayLike | None, period: int, symmetric: bool = False
) -> tuple[ScalarForms, int, float]:
    """The forms of a `block`, the wavenumber k of patterns of this `period`, and Λ there.

    symmetric : whether every symbol must be real, so that all coefficients are.
    """
    forms = ScalarForms.of(block, state)
    if forms.n % period:
        raise ExclusionError("block", f"N = {forms.n}", f"a multiple of {period}")
    if symmetric and np.abs(forms.symbols.imag).max() > 1e-10:
        raise ExclusionError("block", "a directional kernel", "symmetric kernels, travelling_wave or normal_form")
    k = forms.n // period
    return forms, k, forms.multiplier(k).real


def _cosine(psi: float, m: int, accepted: str) -> float:
    """cos mψ, where it is ±1."""
    cosine = np.cos(m * real_number("psi", psi))
    if abs(abs(cosine) - 1) > 1e-9:
        raise ExclusionError("psi", psi, accepted)
    return float(np.round(cosine))
