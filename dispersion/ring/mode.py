"""One eigenmode of a linearised block."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dispersion.eigen import TOLERANCE, ranking
from dispersion.errors import ArgumentError, real_number
from dispersion.grid import Wavenumber, positions
from dispersion.noun import Noun
from dispersion.quiet import power_of_two
from dispersion.structured import EPSILON
from dispersion.summary import growth, on_tokens, paragraph

STEPS = 3
"""Of inverse iteration."""
SETTLED = 1e-13
"""Residual of an eigenvector from inverse iteration, relative to the matrix, that is rounding."""
DEFECTIVE = 1e-6
"""Overlap |wᴴv| of unit vectors under which a multiplier counts as defective."""


@dataclass(frozen=True, eq=False)
class Mode(Noun):
    """One eigenmode e^{iq·j} v of the linearised block, with its complex conjugate partner at −q.

    Attributes
    ----------
    k : int or tuple of int
        Wavenumber q = 2πk/N on each axis; an int with 0 ≤ k ≤ N/2 on a ring, a tuple on a torus.
    shape : tuple of int
        (N,) of the ring or (N_1, …, N_D) of the torus.
    multiplier : complex
        Λ = e^{γ+iω}, the factor per layer; its `growth` is |Λ|, its `rate` γ, its `phase` ω.
    right, left : (d,) complex ndarray
        J v = Λ v with |v| = 1 and wᴴ J = Λ wᴴ with wᴴ v = 1 (`left` is NaN where Λ is defective and no such w exists).
    morphology : str
        'homogeneous', 'standing', 'travelling', 'rotating', 'mixed' or 'alternating' (Prop. 4.6).
    """

    k: Wavenumber
    shape: tuple[int, ...]
    multiplier: complex
    right: NDArray[np.complex128]
    left: NDArray[np.complex128]
    morphology: str

    @property
    def n(self) -> int:
        """Number of tokens N."""
        return prod(self.shape)

    @property
    def q(self) -> float | NDArray[np.float64]:
        """Wavenumber 2πk/N, radians per token; (D,) on a torus."""
        return 2 * np.pi * self.k / self.n if isinstance(self.k, int) else 2 * np.pi * np.array(self.k) / self.shape

    @property
    def growth(self) -> float:
        """|Λ|, the factor by which the mode grows per layer."""
        return abs(self.multiplier)

    @property
    def rate(self) -> float:
        """γ = log|Λ| per layer; −inf for Λ = 0."""
        return float(np.log(self.growth)) if self.multiplier else -np.inf

    @property
    def phase(self) -> float:
        """ω = arg Λ, phase advance per layer in radians, in (−π, π]."""
        return float(np.angle(self.multiplier))

    @property
    def condition(self) -> float:
        """|w||v|/|wᴴv|, the condition number of Λ: how much a perturbation of J moves it; inf if defective."""
        return float("inf") if np.isnan(self.left).any() else float(np.linalg.norm(self.left))

    def __str__(self) -> str:
        factors = f"{growth(self.multiplier, '')}, phase {self.phase:+z.3g} rad"
        return paragraph(
            f"{self.morphology} mode, k = {self.k} {on_tokens(self.shape)}, d = {len(self.right)}", factors
        )

    def field(self, amplitude: float, layer: float = 0.0, phase: float = 0.0) -> NDArray[np.float64]:
        """(N, d) u_j = 2|B_0|e^{lγ}[v_R cos Θ − v_I sin Θ], Θ = q·j + lω + θ_0 (Eq. 11).

        Parameters
        ----------
        amplitude : float
            |B_0|.
        layer : float
            l.
        phase : float
            θ_0 in radians.
        """
        layer = real_number("layer", layer)
        theta = positions(self.shape) @ np.atleast_1d(self.q) + layer * self.phase + real_number("phase", phase)
        with np.errstate(over="ignore", divide="ignore"):
            size = real_number("amplitude", amplitude) * np.float64(abs(self.multiplier)) ** layer
        if not np.isfinite(size):
            raise ArgumentError("layer", layer, f"a power of |Λ| = {abs(self.multiplier):.6g} within float64")
        wave = size * np.exp(1j * theta)
        return 2 * np.real(wave[:, None] * self.right)


class Eigensystem:
    """All eigenvalues and eigenvectors of one J(q) = `matrix`, (d, d)."""

    def __init__(self, matrix: NDArray) -> None:
        from scipy import linalg

        # LAPACK returns other numbers near the ends of float64
        size = np.abs(matrix).max()
        scale = 1.0 if size == 0 or 1e-100 < size < 1e100 else power_of_two(size)
        self.matrix = matrix / scale
        # a real J gets real eigenvectors for its real multipliers
        real = self.matrix if self.matrix.imag.any() else self.matrix.real
        values, self.lefts, self.rights = linalg.eig(real, left=True, right=True)
        self.values = values * scale
        self.order = ranking(self.values)


class Isolated:
    """One multiplier of J(q) = `matrix`, (d, d), `value`, and its vectors by inverse iteration."""

    def __init__(self, matrix: NDArray, value: complex) -> None:
        from scipy import linalg

        real = not matrix.imag.any()
        if real and abs(value.imag) <= TOLERANCE * abs(value):
            value = complex(value.real)
        self.matrix, self.values, self.order = matrix, np.array([value]), np.zeros(1, dtype=int)
        base = matrix.real if real else matrix
        size = float(np.linalg.norm(base))
        # a shift that is off by rounding, so that the matrix can be inverted
        shift = value if value.imag else value.real
        factors = linalg.lu_factor(base - (shift + EPSILON * size) * np.eye(len(base)))
        start = np.random.default_rng(0).normal(size=len(base))
        pair = []
        for conjugate in (0, 2):
            v = start
            for _ in range(STEPS):
                v = linalg.lu_solve(factors, v, trans=conjugate)
                v = v / np.linalg.norm(v)
            pair.append(v[:, None])
        self.rights, self.lefts = pair
        residuals = base @ self.rights - value * self.rights, base.conj().T @ self.lefts - np.conj(value) * self.lefts
        self.settled = max(map(np.linalg.norm, residuals)) <= SETTLED * size


def eigenmode(matrix: NDArray | Eigensystem | Isolated, index: int, k: Wavenumber, shape: tuple[int, ...]) -> Mode:
    """The mode of J(q) = `matrix` (d, d) whose |Λ| is number `index`, equal ones ordered by decreasing phase.

    k, shape : its wavenumber and the grid.
    """
    system = matrix if isinstance(matrix, Eigensystem | Isolated) else Eigensystem(matrix)
    matrix, place = system.matrix, int(system.order[index])
    multiplier = complex(system.values[place])
    right: NDArray = system.rights[:, place]
    left: NDArray = system.lefts[:, place]
    right = right / np.linalg.norm(right)
    right = right * np.exp(-1j * _phase_to_real(right))
    overlap = np.vdot(left, right)
    defective = abs(overlap) <= DEFECTIVE * np.linalg.norm(left)
    left = np.full(len(matrix), np.nan + 0j) if defective else left / np.conj(overlap)
    return Mode(k, shape, multiplier, right + 0j, left + 0j, _morphology(matrix, k, multiplier, right))


def _morphology(matrix: NDArray, k: Wavenumber, multiplier: complex, right: NDArray[np.complex128]) -> str:
    directional = np.abs(matrix.imag).max() > TOLERANCE * np.abs(matrix).max()
    oscillates = abs(multiplier.imag) > TOLERANCE * abs(multiplier)
    if np.linalg.norm(right.imag) > TOLERANCE and (directional or oscillates):
        return "mixed" if directional else "rotating"
    if oscillates:
        return "travelling"
    if multiplier.real < 0:
        return "alternating"
    return "standing" if np.any(k) else "homogeneous"


def _phase_to_real(v: NDArray) -> float:
    """The phase θ for which e^{−iθ}v has the largest real part: 2θ = arg vᵀv, largest entry positive."""
    theta = np.angle(v @ v) / 2 if abs(v @ v) > TOLERANCE else np.angle(v[np.argmax(np.abs(v))])
    rotated = v * np.exp(-1j * theta)
    return float(theta + np.pi * (rotated[np.argmax(np.abs(rotated.real))].real < 0))
