"""Boundary modes: eigenvalues that the ends of a long chain add to the bulk set, since rows are normalised (App. A.7).

Away from the ends an eigenvector of ℓ is a sum of z_k^j over the roots of det z^s(J(z) − ℓ). At the left end only the
ms roots of smallest modulus may take part, and the first s rows are ms conditions on them: a square matrix B(ℓ) that is
singular at a boundary mode (derived). The right end is the left end of the reflected chain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import whole_number
from dispersion.line.bulk import Symbol, pencil
from dispersion.line.sectors import Sector

GAP = 1e-4
"""Least relative difference of |z_ms| and |z_ms+1| at a boundary mode."""


def boundary_modes(sector: Sector, tokens: int | None = None) -> NDArray[np.complex128]:
    """(K,) the eigenvalues ℓ of long chains of a `sector` that are neither in its bulk set nor homogeneous.

    tokens : N, by default 60 or twice the range of S. Guesses are the eigenvalues of scaled chains of N tokens that the
    gap |z_ms(ℓ)| < ρ < |z_ms+1(ℓ)| sets apart from the bulk; each is then solved for at an end of an endless chain, so
    that what is returned does not depend on N. A mode is overlooked if its gap is below about 1/N.
    """
    symbol = sector.symbol
    if sector.triangular:
        values = sector.read(symbol.s + symbol.p + 1)
        return apart(values, [*np.linalg.eigvals(symbol.coefficients[symbol.p]), *sector.homogeneous], 1e-12)
    n = max(60, 2 * (symbol.p + symbol.s)) if tokens is None else whole_number("tokens", tokens, 2)
    section = sector.section(2 * (symbol.p + symbol.s) + 1)
    ends = [(symbol, section, 1), (symbol.reflected, _reflected(section, sector.m), -1)]
    found: list[complex] = []
    for guess, radius in _guesses(sector, n):
        for side, matrix, sign in ends:
            mode = None if side.s == 0 else _solve(side, matrix, guess, radius**sign)
            if mode is not None:
                found.append(mode)
    return apart(np.array(found, dtype=complex), list(sector.homogeneous), 1e-8)


def _guesses(sector: Sector, n: int) -> list[tuple[complex, float]]:
    """(ℓ, ρ), ρ in the middle of the gap, for the eigenvalues of chains of `n` tokens that may be boundary modes."""
    known: list[complex] = []  # values met before, with their gaps: most come back at every ρ
    gaps: list[tuple[float, float]] = []
    guesses: dict[int, float] = {}
    for radius in sector.radii(n):
        for value in np.linalg.eigvals(sector.scaled(n, radius)):
            near = np.flatnonzero(np.abs(np.array(known) - value) < 1e-6)
            k = int(near[0]) if near.size else len(known)
            if k == len(known):
                known.append(complex(value))
                gaps.append(sector.symbol.middle(value))
            low, high = gaps[k]
            if low < radius < high and (low / high) ** n < 0.5:
                guesses[k] = float(np.sqrt(max(low, radius / 10) * min(high, radius * 10)))
    return [(known[k], radius) for k, radius in guesses.items()]


def _solve(symbol: Symbol, section: NDArray, guess: complex, radius: float) -> complex | None:
    """The ℓ near a `guess` where B(ℓ) is singular at the left end, by the secant method on 1/(cᵀB^{-1}b); or None."""
    span = symbol.d * (symbol.p + symbol.s)
    rows = section[: symbol.d * symbol.s, :span] * _powers(radius, symbol)
    frame = _decaying(symbol, guess, radius)
    if frame is None:
        return None
    b, c = np.random.default_rng(0).normal(size=(2, symbol.d * symbol.s))

    def singularity(value: complex) -> complex | None:
        basis = _decaying(symbol, value, radius)
        if basis is None:
            return None
        basis = basis @ np.linalg.inv(frame.conj().T @ basis)  # analytic in ℓ
        B = rows @ basis - value * basis[: len(rows)]
        try:
            return complex(1 / (c @ np.linalg.solve(B, b)))
        except np.linalg.LinAlgError:  # singular to the last bit
            return 0j

    value, ahead = guess, guess + 1e-5 * (1 + 1j)
    f = singularity(value)
    for _ in range(30):
        g = singularity(ahead)
        if g == 0:
            value = ahead
        if f is None or g is None or g in (0, f):
            break
        value, ahead, f = ahead, ahead - g * (ahead - value) / (g - f), g
        if abs(ahead - value) < 1e-14 * max(1.0, abs(ahead)):
            break
    low, high = symbol.middle(ahead)
    converged = abs(ahead - value) < 1e-11 * max(1.0, abs(ahead))
    return ahead if converged and low < radius < high and low < high * (1 - GAP) else None


def _decaying(symbol: Symbol, value: complex, radius: float) -> NDArray | None:
    """(d(p+s), ds) orthonormal basis of the windows (u_0, …, u_{p+s−1}) ρ^{−j} that decay; None if not ds do."""
    from scipy.linalg import ordqz

    lags = np.arange(-symbol.p, symbol.s + 1)
    shifted = symbol.coefficients * (radius ** -lags.astype(float))[:, None, None] + 0j
    shifted[symbol.p] -= value * np.eye(symbol.d)
    step, lead = pencil(shifted)
    _, _, alpha, beta, _, Z = ordqz(step, lead, sort=lambda a, b: np.abs(a) < np.abs(b), output="complex")
    count = int((np.abs(alpha) < np.abs(beta)).sum())
    return Z[:, :count] if count == symbol.d * symbol.s else None


def _powers(radius: float, symbol: Symbol) -> NDArray:
    """(ds, d(p+s)) ρ^{j−i} for the first rows of a section."""
    i, j = np.arange(symbol.s), np.arange(symbol.p + symbol.s)
    return np.kron(radius ** (j - i[:, None]).astype(float), np.ones((symbol.d, symbol.d)))


def _reflected(section: NDArray, m: int) -> NDArray:
    """The `section` with its tokens in reverse order, the m features of each kept."""
    n = len(section) // m
    return section.reshape(n, m, n, m)[::-1, :, ::-1].reshape(n * m, n * m)


def apart(values: NDArray, others: list[complex], tolerance: float) -> NDArray[np.complex128]:
    """The distinct `values` that are none of `others`, each to a relative `tolerance` (absolute below 1)."""
    kept: list[complex] = []
    for value in values:
        if all(abs(value - other) > tolerance * max(1.0, abs(value)) for other in (*others, *kept)):
            kept.append(complex(value))
    return np.array(kept, dtype=complex)
