"""The reduced map z⁺ = f(z) of a normal form: its steady states, their phases and their stability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import gcd

import numpy as np
from numpy.typing import NDArray

from amplitude.monomials import Monomials, monomials

Complex = NDArray[np.complex128]

STABLE = 1e-9
"""A multiplier counts as stable if its modulus is under 1 by more than this."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A nonzero state with f(z) = e^{iΩ}z: steady but for phases.

    z : (modes,) complex amplitudes; phase_advances : (modes,) Ω in radians per layer, NaN for a mode that is absent;
    multipliers : complex multipliers of small changes, without those of the free phases, largest modulus first.
    """

    z: Complex
    phase_advances: NDArray[np.float64]
    multipliers: Complex

    @property
    def stable(self) -> bool:
        """Whether every multiplier is inside the unit circle."""
        return bool(np.abs(self.multipliers).max(initial=0.0) < 1 - STABLE)

    @property
    def active(self) -> NDArray[np.bool_]:
        """(modes,) which modes are present."""
        return self.z != 0

    def advanced(self, layer: float) -> Complex:
        """(modes,) the amplitudes `layer` layers later."""
        return self.z * np.exp(1j * layer * np.nan_to_num(self.phase_advances))


@dataclass(frozen=True, eq=False)
class ReducedMap:
    """f as polynomials: `coefficients` (V, M) over the monomials `table` of V variables.

    conjugate : for each variable the number of its complex conjugate, its own for a real amplitude; a complex
        amplitude and its conjugate follow each other.
    """

    table: Monomials
    coefficients: Complex
    conjugate: tuple[int, ...]

    @cached_property
    def phase_free(self) -> bool:
        """Whether every term of f_s is z_s times powers of the |z_t|², so that each phase turns freely."""
        for s, partner in enumerate(self.conjugate):
            exponents = self.table.exponents[self.coefficients[s] != 0].copy()
            exponents[:, s] -= 1
            if partner == s or (exponents != exponents[:, self.conjugate]).any():
                return False
        return True

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """(modes,) the number of the variable that is the amplitude of each mode."""
        return np.array([s for s, conjugate in enumerate(self.conjugate) if s <= conjugate])

    @property
    def complex_modes(self) -> NDArray[np.bool_]:
        """(modes,) whether the amplitude of each mode is complex."""
        return np.array([self.conjugate[s] != s for s in self.first])

    @property
    def multipliers(self) -> Complex:
        """(modes,) Λ_s."""
        numbers = self.table.number_of(np.eye(self.table.variables, dtype=np.int64)[self.first])
        return self.coefficients[self.first, numbers]

    @property
    def terms(self) -> tuple[dict[tuple[int, ...], complex], ...]:
        """For each mode its nonlinear terms, exponents → coefficient."""
        found = []
        for s in self.first:
            kept = np.flatnonzero((self.coefficients[s] != 0) & (self.table.degrees > 1))
            found.append({tuple(map(int, self.table.exponents[m])): complex(self.coefficients[s, m]) for m in kept})
        return tuple(found)

    def truncated(self, order: int) -> ReducedMap:
        """The map without the terms above `order`."""
        lower = monomials(self.table.variables, order)
        kept = self.table.number_of(lower.exponents)
        return ReducedMap(lower, self.coefficients[:, kept], self.conjugate)

    def variables_at(self, z: Complex) -> Complex:
        """(V,) every variable at the amplitudes `z` (modes,)."""
        values = np.empty(len(self.conjugate), dtype=complex)
        values[np.array(self.conjugate)[self.first]] = np.conj(z)
        values[self.first] = z
        return values

    def monomials_at(self, z: Complex) -> Complex:
        """(M,) every monomial at the amplitudes `z` (modes,)."""
        return np.prod(self.variables_at(z) ** self.table.exponents, axis=1)

    def __call__(self, z: Complex) -> Complex:
        """(modes,) f at the amplitudes `z` (modes,)."""
        return self.coefficients[self.first] @ self.monomials_at(z)

    def jacobian(self, z: Complex) -> Complex:
        """(V, V) ∂f_v/∂z_w at `z`, variables and conjugates taken as independent."""
        values, exponents = self.variables_at(z), self.table.exponents
        columns = []
        for w in range(len(values)):
            lowered = exponents.copy()
            lowered[:, w] = np.maximum(lowered[:, w] - 1, 0)
            columns.append(self.coefficients @ (exponents[:, w] * np.prod(values**lowered, axis=1)))
        return np.stack(columns, axis=1)

    @cached_property
    def solutions(self) -> tuple[Solution, ...]:
        """Every nonzero steady state found, by increasing size; those on one orbit of the symmetries once."""
        states = self._single() if len(self.first) == 1 else self._several()
        found: list[Solution] = []
        for z in states:
            size = np.abs(z)
            if not any(np.abs(np.abs(other.z) - size).max() <= 1e-6 * size.max() for other in found):
                found.append(self._solution(z))
            elif not self.phase_free:
                twins = [other for other in found if np.abs(np.abs(other.z) - size).max() <= 1e-6 * size.max()]
                here = self._solution(z)
                if not any(_alike(here.multipliers, other.multipliers) for other in twins):
                    found.append(here)
        return tuple(sorted(found, key=lambda solution: float(np.linalg.norm(solution.z))))

    @cached_property
    def _phases(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(directions (g, modes), offset (modes,)): the steady phase advances are offset + Σ_j c_j direction_j.

        Rotating z_s by α_s leaves f alone if Σ_t (m_t − m̄_t)α_t = α_s for every term of f_s; real amplitudes
        do not rotate. The offset is the solution of those conditions mod 2π nearest to arg Λ.
        """
        angle, rows = np.angle(self.multipliers), []
        for s, (number, terms) in enumerate(zip(self.first, self.terms, strict=True)):
            for exponents in terms:
                row = np.array([exponents[t] - exponents[self.conjugate[t]] for t in self.first], dtype=float)
                row[~self.complex_modes] = 0.0
                if self.conjugate[number] != number:
                    row[s] -= 1
                    rows.append(row)
        rows += [np.eye(len(self.first))[s] for s in np.flatnonzero(~self.complex_modes)]
        conditions = np.unique(np.array(rows).reshape(-1, len(self.first)), axis=0)
        conditions = conditions[np.abs(conditions).any(axis=1)] if len(conditions) else conditions
        if not len(conditions):
            return np.eye(len(self.first)), angle
        _, sizes, right = np.linalg.svd(conditions)
        directions = right[int((sizes > 1e-9 * sizes.max()).sum()) :]
        real = np.where(self.complex_modes, 0.0, np.where(angle > np.pi / 2, np.pi, 0.0))
        excess = conditions @ (angle - real)
        excess = np.angle(np.exp(1j * excess))
        return directions, angle - np.linalg.pinv(conditions) @ excess

    def _solution(self, z: Complex) -> Solution:
        active = np.abs(z) > 1e-12 * np.abs(z).max()
        z = np.where(active, z, 0.0)
        image = self(z)
        advance = np.where(active, np.angle(np.where(active, image, 1) / np.where(active, z, 1)), np.nan)
        directions, offset = self._phases
        turning = np.where(active, np.nan_to_num(advance), offset)
        by_variable = np.zeros(len(self.conjugate))
        by_variable[np.array(self.conjugate)[self.first]] = -turning
        by_variable[self.first] = turning
        values = np.linalg.eigvals(np.exp(-1j * by_variable)[:, None] * self.jacobian(z))
        free = int(np.linalg.matrix_rank(directions[:, active])) if len(directions) else 0
        values = values[np.argsort(np.abs(values - 1))][free:]
        return Solution(z, advance, values[np.argsort(-np.abs(values))])

    # One mode: roots of a polynomial

    def _single(self) -> list[Complex]:
        s = int(self.first[0])
        kept = np.flatnonzero(self.coefficients[s] != 0)
        coefficients, exponents = self.coefficients[s, kept], self.table.exponents[kept]
        if not self.complex_modes[0]:
            return [
                np.array([root + 0j]) for root in _real_roots(_collect(coefficients, exponents[:, 0] - 1, self.sign))
            ]
        if self.phase_free:
            # |P(ρ)|² = 1, f = z P(|z|²)
            P = _collect(coefficients, exponents[:, self.conjugate[s]], 0.0)
            square = np.convolve(P, P.conj()).real
            square[0] -= 1
            return [np.array([np.sqrt(rho) + 0j]) for rho in _real_roots(square) if rho > 0]
        turns = exponents[:, s] - exponents[:, self.conjugate[s]] - 1
        n = gcd(*map(int, turns))
        if np.abs(coefficients.imag).max() > 1e-9 * np.abs(coefficients).max():
            return self._several()
        rays = (0.0, np.pi / n)
        states = []
        for psi in rays:
            radial = _collect((coefficients * np.exp(1j * psi * turns)).real, exponents.sum(axis=1) - 1, self.sign)
            states += [np.array([R * np.exp(1j * psi)]) for R in _real_roots(radial) if R > 0]
        return states

    @property
    def sign(self) -> float:
        """The sign of the real part of the first Λ: what a state that flips is multiplied by."""
        return 1.0 if self.multipliers[0].real > 0 else -1.0

    # Several modes: Newton's method from many starts

    def _several(self) -> list[Complex]:
        modes = range(len(self.first))
        subsets = [list(chosen) for size in range(1, len(self.first) + 1) for chosen in combinations(modes, size)]
        states = []
        for active in subsets:
            for start in self._starts(active):
                z = self._newton(start, active)
                if z is not None:
                    states.append(z)
        return states

    def _starts(self, active: list[int]) -> list[Complex]:
        """Guesses: moduli from the cubic terms, several sizes and phases."""
        scales = []
        mu = np.abs(self.multipliers) - 1
        for s in active:
            cubic = [abs(c) for m, c in self.terms[s].items() if sum(m) == 3]
            scales.append(np.sqrt(max(abs(mu[s]), 1e-6) / max([*cubic, 1e-12])))
        phases = (0.0,) if self.phase_free else tuple(np.pi * np.arange(6) / 5.5)
        starts = []
        for factors in product((0.4, 1.0, 1.8), repeat=len(active)):
            for turned in product(phases, repeat=len(active) if len(active) < 3 else 1):
                z = np.zeros(len(self.first), dtype=complex)
                z[active] = np.array(scales) * np.array(factors) * np.exp(1j * np.resize(turned, len(active)))
                starts.append(z)
        return starts

    def _newton(self, start: Complex, active: list[int]) -> Complex | None:
        """The state with f_s = e^{iΩ_s}z_s near `start` in which the modes `active` are present, if any.

        Unknown are z (real and imaginary parts in units of the start, the latter only of complex amplitudes) and
        how far Ω goes along each free direction; each direction is pinned at the phase of the start.
        """
        directions, offset = self._phases
        directions = directions[:, active]
        directions = directions[np.abs(directions).max(axis=1, initial=0.0) > 1e-9]
        own, turnable = self.first[active], np.flatnonzero(self.complex_modes[active])
        partner, size = np.array(self.conjugate)[own], np.abs(start[active])
        x = start[active] / size
        c, unit = np.zeros(len(directions)), x.copy()
        for _ in range(30):
            z = np.zeros(len(self.first), dtype=complex)
            z[active] = x * size
            turned = np.exp(-1j * (offset[active] + c @ directions))
            image, slopes = turned * self(z)[active] / size, self.jacobian(z)
            gap = image - x
            pins = directions @ (unit.conj() * x).imag
            along, against = (
                turned[:, None] * slopes[np.ix_(own, columns)] * size / size[:, None] for columns in (own, partner)
            )
            real = np.where(self.complex_modes[active], along + against, along) - np.eye(len(own))
            imaginary = 1j * (along - against - np.eye(len(own)))[:, turnable]
            phase = -1j * image[:, None] * directions.T
            columns = np.hstack([real, imaginary, phase])
            pinned = [-directions * unit.imag, (directions * unit.real)[:, turnable], np.zeros((len(c), len(c)))]
            system = np.vstack([columns.real, columns.imag[turnable], np.hstack(pinned)])
            residual = np.concatenate([gap.real, gap.imag[turnable], pins])
            try:
                step = np.linalg.solve(system, -residual)
            except np.linalg.LinAlgError:
                return None
            step *= min(1.0, 0.5 / np.abs(step).max(initial=1e-300))
            x = x + step[: len(own)]
            x[turnable] += 1j * step[len(own) : len(own) + len(turnable)]
            c = c + step[len(own) + len(turnable) :]
            if np.abs(step).max() < 1e-13:
                break
        else:
            return None
        if np.abs(x).min() < 1e-6 or np.abs(np.delete(self(z), active)).max(initial=0.0) > 1e-12 * size.max():
            return None
        z[active] = x * size
        return z

    def potential(self, R: NDArray[np.float64]) -> NDArray[np.float64]:
        """V(R) = −∫_0^R (|f(r)| − r) dr of a single mode, by Gauss–Legendre quadrature."""
        nodes, weights = np.polynomial.legendre.leggauss(self.table.order + 8)
        points = R[..., None] * (nodes + 1) / 2
        image = np.vectorize(lambda r: (self(np.array([r + 0j]))[0] * np.exp(-1j * np.angle(self.multipliers[0]))).real)
        return -((image(points) - points) @ weights) * R / 2


def _collect(coefficients: NDArray, powers: NDArray[np.int64], less: float) -> NDArray:
    """The polynomial Σ coefficient·x^power − less, lowest power first."""
    out = np.zeros(int(powers.max()) + 1, dtype=coefficients.dtype)
    np.add.at(out, powers, coefficients)
    out[0] -= less
    return out


def _real_roots(polynomial: NDArray) -> list[float]:
    """Nonzero real roots of the real polynomial, lowest power first."""
    roots = np.polynomial.polynomial.polyroots(np.trim_zeros(polynomial.real, "b"))
    size = np.abs(roots).max(initial=0.0)
    return [float(r.real) for r in roots if abs(r.imag) <= 1e-9 * abs(r) and abs(r) > 1e-12 * size]


def _alike(a: Complex, b: Complex) -> bool:
    """Whether two sets of multipliers are the same."""
    return bool(np.abs(np.sort_complex(np.round(a, 7)) - np.sort_complex(np.round(b, 7))).max(initial=0.0) < 1e-6)
