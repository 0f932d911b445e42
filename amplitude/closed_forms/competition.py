"""Two modes at once: B_i⁺ = Λ_i B_i + (β_ii|B_i|² + β_ij|B_j|²) B_i (Eqs. 139, 172)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.closed_forms.cubic import cross_coupling, self_coupling
from amplitude.closed_forms.potential import saturated, two_mode_potential
from amplitude.closed_forms.scalar_forms import At, ScalarForms
from dispersion import Block, ExclusionError
from dispersion.errors import whole_number
from dispersion.grid import grid_index
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow
from dispersion.summary import growth, numbers, paragraph

REGIMES = ("collapsed", "mode 1", "mode 2", "bistable", "coexistence", "undecided")
"""Regimes of two competing modes; 'undecided' where cubic order has no single verdict."""


@dataclass(frozen=True, eq=False)
class Competition(Noun):
    """Self and cross coefficients of two modes, and what they decide.

    Attributes
    ----------
    k : (int, int)
        The two wavenumbers.
    n : int
        Number of tokens.
    multipliers : (2,) complex ndarray
        Λ_i at the actual gain.
    at : {'gain', 'onset', 'paper'}
        Where the coefficients were evaluated.
    coefficients : (2, 2) complex ndarray
        −e^{−iω_i}β_ij.

    Notes
    -----
    With R_i = |B_i|: R_i⁺ = R_i(1 + μ_i − s_i R_i² − c_ij R_j²), s_i and c_ij the real parts.
    """

    k: tuple[int, int]
    n: int
    multipliers: NDArray[np.complex128]
    at: str
    coefficients: NDArray[np.complex128]

    @property
    def mu(self) -> NDArray[np.float64]:
        """(2,) μ_i = |Λ_i| − 1."""
        return np.abs(self.multipliers) - 1

    @property
    def self_coefficients(self) -> NDArray[np.float64]:
        """(2,) s_i: a mode alone saturates if s_i > 0."""
        return np.diag(self.coefficients).real

    @property
    def cross_coefficients(self) -> NDArray[np.float64]:
        """(2,) c_12 (of mode 2 on mode 1) and c_21."""
        return np.array([self.coefficients[0, 1].real, self.coefficients[1, 0].real])

    def pure(self, mode: int) -> float:
        """R of one mode alone, √(μ/s).

        Parameters
        ----------
        mode : int
            Number of the mode, 1 or 2.

        Returns
        -------
        float
            R; NaN if there is none.
        """
        whole_number("mode", mode, 1, 2)
        return saturated(self.mu[mode - 1], self.self_coefficients[mode - 1])

    def transverse(self, mode: int) -> float:
        """Multiplier of the other mode on a pure mode: 1 + μ_j − c_ji μ_i/s_i (Eq. 172).

        Parameters
        ----------
        mode : int
            Number i of the pure mode, 1 or 2.
        """
        whole_number("mode", mode, 1, 2)
        return float(1 + self.mu[2 - mode] - self.cross_coefficients[2 - mode] * self.pure(mode) ** 2)

    @property
    def mixed(self) -> NDArray[np.float64]:
        """(2,) R_1, R_2 of the state with both modes; NaN if there is none."""
        matrix = self.coefficients.real
        if abs(np.linalg.det(matrix)) <= 1e-14 * np.abs(matrix).max() ** 2:
            return np.full(2, np.nan)
        squares = np.linalg.solve(matrix, self.mu)
        return np.sqrt(squares) if (squares > 0).all() else np.full(2, np.nan)

    @property
    def mixed_stable(self) -> bool:
        """Whether the mixed state exists and attracts."""
        R = self.mixed
        if np.isnan(R).any():
            return False
        flow = -2 * np.outer(R, R) * self.coefficients.real
        return bool(np.trace(flow) < 0 < np.linalg.det(flow))

    def _pure_stable(self, mode: int) -> bool:
        return bool(self.mu[mode - 1] > 0 < self.self_coefficients[mode - 1] and self.transverse(mode) < 1)

    @property
    def regime(self) -> str:
        """What cubic order says (Eqs. 139, 172): 'collapsed', 'mode 1', 'mode 2', 'bistable' (each alone is stable),
        'coexistence', or 'undecided' when it offers no stable state, or marginal ones.

        It is a statement about the cubic equations, not about the block; `normal_form(block, modes).regime` asks both.
        """
        stable = (self._pure_stable(1), self._pure_stable(2), self.mixed_stable)
        if (self.mu < 0).all():
            return "collapsed"
        verdicts = {
            (True, False, False): "mode 1",
            (False, True, False): "mode 2",
            (True, True, False): "bistable",
            (False, False, True): "coexistence",
        }
        return verdicts.get(stable, "undecided")

    @property
    def amplitudes(self) -> NDArray[np.float64]:
        """(states, 2) the amplitudes R_1, R_2 of every stable state; (0, 2) if undecided."""
        states = {
            "collapsed": [(0.0, 0.0)],
            "mode 1": [(self.pure(1), 0.0)],
            "mode 2": [(0.0, self.pure(2))],
            "bistable": [(self.pure(1), 0.0), (0.0, self.pure(2))],
            "coexistence": [tuple(self.mixed)],
        }
        return np.array(states.get(self.regime, []), dtype=np.float64).reshape(-1, 2)

    @property
    def phase_advances(self) -> NDArray[np.float64]:
        """(states, 2) Ω_i = ω_i − Σ_j Im(coefficient_ij) R_j² of each stable state, radians per layer."""
        return np.angle(self.multipliers) - self.amplitudes**2 @ self.coefficients.imag.T

    def __str__(self) -> str:
        """What it is, in a few lines."""
        states = ", ".join(f"({numbers(R)})" for R in self.amplitudes)
        return paragraph(
            f"competition of k = {self.k[0]} and {self.k[1]} on {self.n} tokens, cubic closed form at '{self.at}'",
            growth(self.multipliers),
            f"saturation by itself {numbers(self.self_coefficients)}, by the other {numbers(self.cross_coefficients)}",
            f"{self.regime}: stable (R_1, R_2) {states}" if states else f"{self.regime}: no stable state at this order",
            "other modes are not asked",
        )

    def potential(self, R1: ArrayLike, R2: ArrayLike) -> NDArray[np.float64]:
        """V(R1, R2) of Eq. 122.

        Parameters
        ----------
        R1, R2 : array_like
            Amplitudes, broadcast together.

        Returns
        -------
        (…) ndarray
            V(R1, R2).

        Raises
        ------
        ExclusionError
            Unless c_12 = c_21.
        """
        c12, c21 = self.cross_coefficients
        if abs(c12 - c21) > 1e-9 * max(abs(c12), abs(c21)):
            raise ExclusionError(
                "potential", f"c_12 = {c12:.6g}, c_21 = {c21:.6g}", "c_12 = c_21 (for one head: equal gains)"
            )
        s1, s2 = self.self_coefficients
        return two_mode_potential(R1, R2, (self.mu[0], self.mu[1]), (s1, s2), c12)


@harmless_underflow
def competition(block: Block, k1: int, k2: int, at: At = "gain", state: ArrayLike | None = None) -> Competition:
    """Competition of the modes k1 and k2 of a scalar block, at equal or unequal gains.

    Parameters
    ----------
    block : Block
        Scalar.
    k1, k2 : int
        Two wavenumbers, 0 < k < N/2.
    at : {'gain', 'onset', 'paper'}
        Where coefficients are evaluated, see `ScalarForms.evaluate`.
    state : float, optional
        Base state a, a fixed point of g; 0 by default.

    Returns
    -------
    Competition
        Self and cross coefficients, regime and amplitudes.

    Raises
    ------
    ExclusionError
        If the derivation excludes it: d > 1, q = 0 and π, equal modes, resonances n_1q_1 + n_2q_2 ≡ 0 with
        |n_1| + |n_2| ≤ 4, unstable slaved modes, Λ = 0.

    Notes
    -----
    At a = 0 (Eq. 139)
    β_ij = 2α_1ηχ[1−|λ_j|²+λ_{i+j}+λ_{i−j}−2λ_iRe λ_j] + 6α_3L_i|L_j|²
    + 4α_2²L_i|L_j|²[L_0/(|Λ_j|²−J_0) + L_{i+j}/(Λ_iΛ_j−J_{i+j}) + L_{i−j}/(Λ_iΛ̄_j−J_{i−j})].
    """
    forms = ScalarForms.of(block, state)
    n = forms.n
    k = tuple(min(j, n - j) for j in (grid_index("k1", k1, n), grid_index("k2", k2, n)))
    _refuse_resonance(k[0], k[1], forms)
    i, j = k
    forms.refuse_unstable(0, 2 * i, 2 * j, i + j, i - j, critical=(i, j))
    here, multipliers = forms.evaluate(at, i, j)
    first, second = zip(k, multipliers, strict=True)
    beta = np.array(
        [
            [self_coupling(here, *first).coefficient, cross_coupling(here, *first, *second)],
            [cross_coupling(here, *second, *first), self_coupling(here, *second).coefficient],
        ]
    )
    phases = np.exp(-1j * np.angle(multipliers))
    actual = np.array([forms.J(i), forms.J(j)])
    return Competition((i, j), n, actual, at, -phases[:, None] * beta)


def _refuse_resonance(i: int, j: int, forms: ScalarForms) -> None:
    """Refuse equal modes and n_i q_i + n_j q_j ≡ 0, |n_i| + |n_j| ≤ 4, where Λ̂_i^{n_i} Λ̂_j^{n_j} ≈ 1."""
    n = forms.n
    if i == j:
        raise ExclusionError("k2", f"{j}, the same mode as k1", "two different wavenumbers")
    for k, name in ((i, "k1"), (j, "k2")):
        if k in (0, n - k):
            raise ExclusionError(name, k, f"0 < k < {n}/2")
    units = [forms.multiplier(k) / abs(forms.J(k)) for k in (i, j)]
    width = max(1e-8, *(abs(abs(forms.J(k)) - 1) for k in (i, j)))
    for n_i in range(5):
        for n_j in range(-4 + n_i, 5 - n_i):
            if (n_i, n_j) == (0, 0) or (n_i * i + n_j * j) % n:
                continue
            if abs(units[0] ** n_i * units[1] ** n_j - 1) <= width:
                raise ExclusionError("k1, k2", f"{i}, {j}: {n_i}·{i} + {n_j}·{j} ≡ 0 (mod {n})", "non-resonant modes")
