"""Spectra of long open chains: Laurent symbols, their bulk set, and finite chains by scaling (App. A.7, corrected).

A banded Toeplitz matrix G_{i−j}, lags −p … s, has the symbol J(z) = Σ_r G_r z^{−r} (z = e^{iq}). Its spectrum on a long
open chain is not the range of the symbol on |z| = 1 but the **bulk set**: Λ belongs iff, of the roots of
det z^s(J(z) − Λ) ordered by modulus, numbers ds and ds+1 have equal moduli (Schmidt and Spitzer for d = 1; for d > 1,
derived only). Its eigenvectors grow like |z|^j, so a dense eigenvalue solver resolves them only after a scaling by ρ^j.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import ArgumentError
from dispersion.memory import require
from dispersion.noun import Noun

EQUAL = 1e-7
"""Relative difference under which two moduli count as equal."""
SADDLE = 1e-4
"""The same where two roots merge and are known to half the digits only."""
LARGEST = 400
"""Largest d²(p+s), the size of the eigenvalue problem of a bulk set."""

Growth = Callable[[NDArray], NDArray]


@dataclass(frozen=True, eq=False)
class Symbol(Noun):
    """J(z) = Σ_{r=−p}^{s} G_r z^{−r}.

    coefficients : (p+s+1, d, d), G_{−p} … G_s; p : the largest lag ahead; s : the largest lag behind.
    """

    coefficients: NDArray
    p: int
    s: int

    @property
    def d(self) -> int:
        """Size of the coefficients."""
        return self.coefficients.shape[-1]

    @property
    def one_sided(self) -> bool:
        """Whether the Toeplitz matrix is block triangular: its spectrum is then that of G_0, whatever the symbol."""
        return self.p == 0 or self.s == 0

    @property
    def trimmed(self) -> Symbol:
        """The same symbol without outer coefficients that are zero."""
        kept = np.append(np.flatnonzero(self.coefficients.any(axis=(1, 2))) - self.p, 0)
        p, s = -int(kept.min()), int(kept.max())
        return Symbol(self.coefficients[self.p - p : self.p + s + 1], p, s)

    def __call__(self, z: NDArray) -> NDArray:
        """(…, d, d) J at the complex points `z` (…)."""
        powers = np.asarray(z, dtype=complex)[..., None] ** -np.arange(-self.p, self.s + 1)
        return np.tensordot(powers, self.coefficients, 1)

    def derivative(self, z: complex) -> NDArray:
        """(d, d) z dJ/dz at `z`."""
        lags = np.arange(-self.p, self.s + 1)
        return np.tensordot(-lags * complex(z) ** -lags.astype(float), self.coefficients, 1)

    @property
    def reflected(self) -> Symbol:
        """The symbol of the chain read from its other end: J(1/z)."""
        return Symbol(self.coefficients[::-1], self.s, self.p)

    def roots(self, value: complex) -> NDArray:
        """The d(p+s) roots of det z^s(J(z) − Λ), Λ = `value`, smallest modulus first; inf for those at infinity."""
        shifted = self.coefficients.astype(complex)
        shifted[self.p] -= value * np.eye(self.d)
        return polynomial_roots(shifted)

    def middle(self, value: complex) -> tuple[float, float]:
        """(|z_ds|, |z_ds+1|) at Λ = `value`: a ρ between them makes the scaled Toeplitz problem well posed."""
        moduli = np.concatenate([[0.0], np.abs(self.roots(value)), [np.inf]])
        return float(moduli[self.d * self.s]), float(moduli[self.d * self.s + 1])

    def pinched(self, value: complex, modulus: float, tolerance: float = EQUAL) -> bool:
        """Whether the middle pair of roots at `value` have this `modulus`, to a relative `tolerance`."""
        return bool(np.abs(np.array(self.middle(value)) - modulus).max() <= tolerance * modulus)

    def shared(self, angle: float) -> list[tuple[complex, complex]]:
        """All (z, Λ) such that Λ is an eigenvalue of J(z) and of J(z e^{iφ}) at φ = `angle`."""
        size = self.d**2 * (self.p + self.s)
        if size > LARGEST:
            raise ArgumentError("block", f"d²(p+s) = {size} for its bulk set", f"at most {LARGEST}")
        eye, turn = np.eye(self.d), np.exp(-1j * angle * np.arange(-self.p, self.s + 1))
        # det[J(z)⊗1 − 1⊗J(ze^{iφ})ᵀ] = 0
        terms = [np.kron(G, eye) - t * np.kron(eye, G.T) for G, t in zip(self.coefficients, turn, strict=True)]
        roots = polynomial_roots(np.stack(terms))
        farthest = 10 ** min(6.0, 150 / (self.p + self.s))  # powers of z stay finite
        roots = roots[(np.abs(roots) > 1 / farthest) & (np.abs(roots) < farthest)]
        if self.d == 1:
            roots = roots[self._plausible(roots)]
        pairs = []
        for z in roots:
            here, there = np.linalg.eigvals(self(np.array([z, z * np.exp(1j * angle)])))
            i, _ = np.unravel_index(np.abs(here[:, None] - there).argmin(), (self.d, self.d))
            pairs.append((complex(z), complex(here[i])))
        return pairs

    def _plausible(self, z: NDArray) -> NDArray[np.bool_]:
        """Whether λ(·) − λ(z) has fewer than s zeros in a disc smaller than |z| by 3 % and more in one as much larger.

        A quick winding count (d = 1); it errs only by keeping too many.
        """
        lags, size = np.arange(-self.p, self.s + 1), 256 * (1 + (self.p + self.s) // 8)
        value, inside = self(z)[:, 0, 0], []
        for factor in (0.97, 1.03):
            scaled = np.zeros((z.size, size), dtype=complex)
            scaled[:, lags % size] = self.coefficients[:, 0, 0] * (factor * np.abs(z)[:, None]) ** -lags.astype(float)
            curve = np.fft.fft(scaled) - value[:, None]
            phase = np.angle(curve)
            steps = np.diff(phase, axis=1, append=phase[:, :1])
            inside.append(np.rint((np.remainder(steps + np.pi, 2 * np.pi) - np.pi).sum(axis=1) / (2 * np.pi)))
        return (inside[0] < 0) & (inside[1] > 0)  # zeros inside, less s


@dataclass(frozen=True, eq=False)
class Bulk(Noun):
    """The bulk set of a symbol, sampled.

    values : (K,) complex points Λ; moduli : (K,) the common |z_ds| = |z_ds+1| of each; angles : (K,) the angle φ
    between the two roots, 0 at a saddle. A one-sided symbol has its values at modulus NaN.
    """

    values: NDArray[np.complex128]
    moduli: NDArray[np.float64]
    angles: NDArray[np.float64]

    @property
    def saddles(self) -> NDArray[np.complex128]:
        """The ends Λ of its arcs, where the two roots merge: λ'(z) = 0 for d = 1."""
        return self.values[self.angles == 0]


def bulk_set(symbol: Symbol, points: int = 96) -> Bulk:
    """The bulk set of `symbol`: at `points` angles φ in (0, π), the pinched Λ shared by z and ze^{iφ}; and the saddles.

    An ArgumentError names a symbol too large for it.
    """
    symbol = symbol.trimmed
    if symbol.one_sided:
        values = np.linalg.eigvals(symbol.coefficients[symbol.p]).astype(complex)
        return Bulk(values, np.full(values.size, np.nan), np.full(values.size, np.nan))
    rows = []
    for angle in bulk_angles(points):
        rows += [(value, abs(z), angle, z) for z, value in pinched_pairs(symbol, angle)]
    saddles: list[tuple[complex, complex]] = []
    for value, _, angle, z in rows:
        if angle < 0.3:
            found = _saddle(symbol, z * np.exp(0.5j * angle), value)
            if found is not None and all(abs(found[1] - other) > 1e-9 for _, other in saddles):
                saddles.append(found)
    rows += [(value, abs(z), 0.0, z) for z, value in saddles]
    if not rows:
        raise ArgumentError("points", points, "more: no point of the bulk set was found")
    table = np.array(rows)
    return Bulk(table[:, 0], table[:, 1].real, table[:, 2].real)


def bulk_maximum(symbol: Symbol, bulk: Bulk, growth: Growth) -> tuple[float, complex]:
    """(g, Λ): the largest `growth`(Λ) over the `bulk` set of `symbol`, refined along its arcs."""
    from scipy.optimize import minimize_scalar

    symbol, sizes = symbol.trimmed, growth(bulk.values)
    best = int(sizes.argmax())
    if symbol.one_sided or bulk.angles[best] == 0:
        return float(sizes[best]), complex(bulk.values[best])

    def along(angle: float) -> tuple[float, complex]:
        values = np.array([value for _, value in pinched_pairs(symbol, angle)])
        if not values.size:
            return -1.0, 0j
        size = growth(values)
        return float(size.max()), complex(values[size.argmax()])

    step = 2 * (np.pi - np.unique(bulk.angles)[-1])
    bounds = (max(bulk.angles[best] - step, 1e-3), min(bulk.angles[best] + step, np.pi))
    found = minimize_scalar(lambda angle: -along(angle)[0], bounds=bounds, method="bounded", options={"xatol": 1e-9})
    return max((float(sizes[best]), complex(bulk.values[best])), along(float(found.x)), key=lambda pair: pair[0])


def bulk_angles(points: int) -> NDArray[np.float64]:
    """(points,) angles in (0, π), none a simple fraction of π: there a coefficient of λ(z) − λ(ze^{iφ}) vanishes."""
    require("points", f"{points:,} angles, each with its points of the bulk set", 500 * points)
    return np.pi * (np.arange(points) + 0.381966) / points


def pinched_pairs(symbol: Symbol, angle: float) -> list[tuple[complex, complex]]:
    """The (z, Λ) of `symbol` shared at this `angle` whose two roots are the middle pair."""
    return [(z, value) for z, value in symbol.shared(angle) if symbol.pinched(value, abs(z))]


def eigenvalue_slope(symbol: Symbol, z: complex, value: complex) -> tuple[complex, complex]:
    """(Λ, z dΛ/dz) of the eigenvalue of J(`z`) closest to `value`: wᴴ (zJ') v / wᴴv."""
    from scipy.linalg import eig

    if symbol.d == 1:
        return complex(symbol(np.array(z))[0, 0]), complex(symbol.derivative(z)[0, 0])
    values, lefts, rights = eig(symbol(np.array(z)), left=True, right=True)
    k = int(np.abs(values - value).argmin())
    w, v = lefts[:, k], rights[:, k]
    return complex(values[k]), complex(np.vdot(w, symbol.derivative(z) @ v) / np.vdot(w, v))


def _saddle(symbol: Symbol, z: complex, value: complex) -> tuple[complex, complex] | None:
    """The pinched saddle (z, Λ), z dΛ/dz = 0, near a guess, by the secant method in log z."""
    x, step = np.log(complex(z)), 1e-4 + 0j
    value, slope = eigenvalue_slope(symbol, np.exp(x), value)
    for _ in range(40):
        value, ahead = eigenvalue_slope(symbol, np.exp(x + step), value)
        x, previous, slope = x + step, slope, ahead
        if slope == previous or abs(step) < 1e-13:
            break
        step = -step * slope / (slope - previous)
        if abs(step) > 1:
            return None
    z = complex(np.exp(x))
    return (z, value) if symbol.pinched(value, abs(z), SADDLE) else None


def pencil(coefficients: NDArray) -> tuple[NDArray, NDArray]:
    """(step, lead), step·x = z·lead·x for x = (1, z, …, z^{k−1})⊗v if Σ_n c_n z^{k−n} v = 0.

    coefficients : (k+1, m, m), the c_n; step and lead are (km, km) complex.
    A sequence u_j of solutions has the windows x = (u_j, …, u_{j+k−1}).
    """
    degree, m = len(coefficients) - 1, coefficients.shape[-1]
    step, lead = np.eye(degree * m, k=m, dtype=complex), np.eye(degree * m, dtype=complex)
    step[-m:] = -np.concatenate(coefficients[:0:-1], axis=1)
    lead[-m:, -m:] = coefficients[0]
    return step, lead


def polynomial_roots(coefficients: NDArray) -> NDArray:
    """(k·m,) roots of det Σ_n c_n z^{k−n}, `coefficients` (k+1, m, m), by modulus; inf for those at infinity."""
    from scipy.linalg import eig

    degree, m = len(coefficients) - 1, coefficients.shape[-1]
    if degree == 0:
        return np.zeros(0)
    if m == 1:
        roots = np.roots(coefficients[:, 0, 0])  # drops exact zeros at either end
        at_infinity = int(np.flatnonzero(coefficients[:, 0, 0])[0]) if roots.size < degree else 0
        roots = np.concatenate([roots, np.full(at_infinity, np.inf)])
    else:
        alpha, beta = eig(*pencil(coefficients), right=False, homogeneous_eigvals=True)
        infinite = np.abs(beta) <= 1e-14 * np.abs(alpha)
        roots = np.where(infinite, np.inf, alpha / np.where(infinite, 1, beta))
    return roots[np.argsort(np.abs(roots), kind="stable")]
