"""The reduced map z⁺ = f(z) of a normal form: its terms, values, derivatives and phase symmetries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from amplitude.normal_forms.monomials import Monomials, monomials
from dispersion.errors import real_number
from dispersion.noun import Noun, cached_property

Complex = NDArray[np.complexfloating]

STABLE = 1e-9
"""A multiplier counts as unstable if its modulus exceeds 1 by more than this: the lattice may hold a phase weakly."""


@dataclass(frozen=True, eq=False)
class Solution(Noun):
    """A nonzero state with f(z) = e^{iΩ}z: steady but for phases.

    Attributes
    ----------
    z : (modes,) complex ndarray
        Amplitudes.
    phase_advances : (modes,) ndarray
        Ω in radians per layer, NaN for a mode that is absent.
    multipliers : complex ndarray
        Multipliers of small changes, without those of the free phases, largest modulus first.
    turning : (modes,) ndarray
        Ω in radians per layer, and for a mode that is absent what it would turn at.
    """

    z: Complex
    phase_advances: NDArray[np.float64]
    multipliers: Complex
    turning: NDArray[np.float64]

    @property
    def stable(self) -> bool:
        """Whether no multiplier is outside the unit circle (by more than `STABLE`)."""
        return bool(np.abs(self.multipliers).max(initial=0.0) <= 1 + STABLE)

    @property
    def active(self) -> NDArray[np.bool_]:
        """(modes,) which modes are present."""
        return self.z != 0

    def advanced(self, layer: float) -> Complex:
        """(modes,) the amplitudes some layers later.

        Parameters
        ----------
        layer : float
            How many layers.
        """
        return self.z * np.exp(1j * real_number("layer", layer) * np.nan_to_num(self.phase_advances))


@dataclass(frozen=True, eq=False)
class ReducedMap(Noun):
    """f as polynomials: `coefficients` (V, M) over the monomials `table` of V variables.

    conjugate : for each variable the number of its complex conjugate, its own for a real amplitude; a complex
        amplitude and its conjugate follow each other.
    """

    table: Monomials
    coefficients: Complex
    conjugate: tuple[int, ...]

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """(modes,) the number of the variable that is the amplitude of each mode."""
        return np.array([s for s, conjugate in enumerate(self.conjugate) if s <= conjugate])

    @cached_property
    def partner(self) -> NDArray[np.int64]:
        """(modes,) the number of the variable that is its conjugate."""
        return np.array(self.conjugate)[self.first]

    @cached_property
    def complex_modes(self) -> NDArray[np.bool_]:
        """(modes,) whether the amplitude of each mode is complex."""
        return self.first != self.partner

    @property
    def multipliers(self) -> Complex:
        """(modes,) Λ_s."""
        numbers = self.table.number_of(np.eye(self.table.variables, dtype=np.int64)[self.first])
        return self.coefficients[self.first, numbers]

    @property
    def nonlinear_terms(self) -> tuple[dict[tuple[int, ...], complex], ...]:
        """For each mode its nonlinear terms, exponents → coefficient."""
        found = []
        for s in self.first:
            kept = np.flatnonzero((self.coefficients[s] != 0) & (self.table.degrees > 1))
            found.append({tuple(map(int, self.table.exponents[m])): complex(self.coefficients[s, m]) for m in kept})
        return tuple(found)

    @cached_property
    def turns(self) -> NDArray[np.int64]:
        """(modes, M, modes) by how many turns a term m of f_s goes ahead of z_s when each z_t turns once:
        m_t − m̄_t, less 1 for t = s; for a real amplitude, which can only change its sign, m_t.
        """
        exponents = self.table.exponents
        own = exponents[:, self.first] - np.where(self.complex_modes, exponents[:, self.partner], 0)
        return own - np.eye(len(self.first), dtype=np.int64)[:, None]

    @cached_property
    def locking(self) -> NDArray[np.bool_]:
        """(modes, M) which terms of f depend on the phases of complex amplitudes otherwise than z_s itself."""
        turned = np.any(self.turns[:, :, self.complex_modes], axis=2)
        return turned & (self.coefficients[self.first] != 0)

    @property
    def phase_free(self) -> bool:
        """Whether every amplitude is complex and every term of f_s is z_s times powers of the |z_t|²."""
        return bool(self.complex_modes.all()) and not self.locking.any()

    @cached_property
    def averaged(self) -> ReducedMap:
        """The map without the terms that depend on phases: where no phase locks they average out."""
        coefficients = self.coefficients.copy()
        coefficients[self.first] = np.where(self.locking, 0, coefficients[self.first])
        number = self.table.number_of(self.table.exponents[:, np.array(self.conjugate)])
        coefficients[self.partner] = coefficients[self.first][:, number].conj()
        return ReducedMap(self.table, coefficients, self.conjugate)

    @cached_property
    def phases(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(directions (g, modes), offset (modes,)): the steady phase advances are offset + Σ_j c_j direction_j.

        Turning z_s by α_s leaves f alone if Σ_t turns_t α_t ≡ 0 (mod 2π) for every term; the α of a real amplitude is
        0 or π, that of its Λ. The offset is the solution nearest to arg Λ.
        """
        offset = np.where(
            self.complex_modes, np.angle(self.multipliers), np.where(self.multipliers.real > 0, 0.0, np.pi)
        )
        kept = self.turns[(self.coefficients[self.first] != 0) & (self.table.degrees > 1)]
        rows = np.unique(kept[kept[:, self.complex_modes].any(axis=1)], axis=0).astype(float)
        free = np.eye(len(self.first))[self.complex_modes]
        if not len(rows):
            return free, offset
        excess = np.angle(np.exp(1j * rows @ offset))
        rows[:, ~self.complex_modes] = 0.0
        _, sizes, right = np.linalg.svd(np.vstack([rows, np.eye(len(self.first))[~self.complex_modes]]))
        return right[int((sizes > 1e-9).sum()) :], offset - np.linalg.pinv(rows) @ excess

    def truncated(self, order: int) -> ReducedMap:
        """The map without the terms above `order`."""
        lower = monomials(self.table.variables, order)
        return ReducedMap(lower, self.coefficients[:, self.table.number_of(lower.exponents)], self.conjugate)

    def restricted(self, mode: int) -> ReducedMap:
        """The map of `mode` alone, the others zero."""
        own = np.unique([self.first[mode], self.partner[mode]])
        lower = monomials(len(own), self.table.order)
        exponents = np.zeros((len(lower), self.table.variables), dtype=np.int64)
        exponents[:, own] = lower.exponents
        conjugate = (0,) if len(own) == 1 else (1, 0)
        return ReducedMap(lower, self.coefficients[np.ix_(own, self.table.number_of(exponents))], conjugate)

    def variables_at(self, z: Complex) -> Complex:
        """(…, V) every variable at the amplitudes `z` (…, modes)."""
        values = np.empty((*z.shape[:-1], len(self.conjugate)), dtype=complex)
        values[..., self.partner] = np.conj(z)
        values[..., self.first] = z
        return values

    def monomials_at(self, z: Complex) -> Complex:
        """(…, M) every monomial at the amplitudes `z` (…, modes)."""
        return _product(self._powers(z), self.table.exponents)

    def __call__(self, z: Complex) -> Complex:
        """(…, modes) f at the amplitudes `z` (…, modes)."""
        exponents, coefficients = self._kept
        image: Complex = _product(self._powers(z), exponents) @ coefficients[self.first].T
        return image

    def slopes_at(self, z: Complex) -> Complex:
        """(…, M, V) ∂/∂z_v of every monomial at `z` (…, modes), variables and conjugates taken as independent."""
        powers, exponents = self._powers(z), self.table.exponents
        lowered = np.maximum(exponents[:, None] - np.eye(exponents.shape[1], dtype=np.int64), 0)
        slopes: Complex = _product(powers, lowered) * exponents
        return slopes

    def jacobian(self, z: Complex) -> Complex:
        """(…, V, V) ∂f_v/∂z_w at `z` (…, modes), variables and conjugates taken as independent."""
        (exponents, coefficients), powers = self._kept, self._powers(z)
        columns = []
        for w in range(len(self.conjugate)):
            lowered = exponents.copy()
            lowered[:, w] = np.maximum(lowered[:, w] - 1, 0)
            columns.append((_product(powers, lowered) * exponents[:, w]) @ coefficients.T)
        return np.stack(columns, axis=-1)

    def potential(self, R: NDArray[np.float64]) -> NDArray[np.float64]:
        """V(R) = −∫_0^R (Re(Λ̂^{-1}f(r)) − r) dr of a single mode at `R` (…), by Gauss–Legendre quadrature."""
        nodes, weights = np.polynomial.legendre.leggauss(self.table.order + 8)
        points = R[..., None] * (nodes + 1) / 2
        image = (self(points[..., None] + 0j)[..., 0] * np.exp(-1j * np.angle(self.multipliers[0]))).real
        return -((image - points) @ weights) * R / 2

    @cached_property
    def _kept(self) -> tuple[NDArray[np.int64], Complex]:
        """Exponents and coefficients of the terms that occur."""
        kept = (self.coefficients != 0).any(axis=0)
        return self.table.exponents[kept], self.coefficients[:, kept]

    def _powers(self, z: Complex) -> Complex:
        """(…, V, order + 1) powers of every variable."""
        values = np.repeat(self.variables_at(z)[..., None], self.table.order + 1, axis=-1)
        values[..., 0] = 1
        return np.cumprod(values, axis=-1)


def _product(powers: Complex, exponents: NDArray[np.int64]) -> Complex:
    """(…, K) monomials with `exponents` (K, V) from the `powers` (…, V, order + 1)."""
    product: Complex = np.prod(powers[..., np.arange(exponents.shape[-1]), exponents], axis=-1)
    return product
