"""Steady states of a reduced map, up to phases: roots of polynomials for one mode, Newton's method for several."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import gcd

import numpy as np
from numpy.typing import NDArray

from amplitude.normal_forms.reduced_map import Complex, ReducedMap, Solution

Floats = NDArray[np.floating]

STARTS = 600
"""Most starts of Newton's method for one set of modes."""
ITERATIONS = 30
"""Most steps of Newton's method."""
WEAK = 5
"""Degree from which terms that depend on phases are taken to change moduli little."""


def solutions(f: ReducedMap) -> tuple[Solution, ...]:
    """Every nonzero steady state of `f` that is found, by increasing size; those on one orbit of the phases once.

    Where phases run through, a resonance being too weak for its detuning, those of `ReducedMap.averaged` count.
    """
    modes, found = range(len(f.first)), list[Solution]()
    forcing: dict[tuple[int, ...], list[Complex]] = {}
    for size in range(1, len(f.first) + 1):
        for active in combinations(modes, size):
            states = _states(f, list(active), forcing.get(active, []))
            alone = _leave_others_alone(f, states)
            for z in states[~alone]:
                z = _completed(f, z)
                forcing.setdefault(tuple(map(int, np.flatnonzero(z))), []).append(z)
            found += _distinct(f, states[alone])
            if f.locking[list(active)].any() and not _all_real(f):
                means = _distinct(f.averaged, _states(f.averaged, list(active)))
                found += [solution for solution in means if _runs_through(f, solution)]
    return tuple(sorted(found, key=lambda solution: float(np.linalg.norm(solution.z))))


def solution_at(f: ReducedMap, z: Complex) -> Solution:
    """The `Solution` at the steady state `z` (modes,) of `f`, with its phase advances and multipliers."""
    active, (advance, turning), directions = z != 0, _turning(f, z), f.phases[0]
    # eigenvalues of e^{−iΩ}Df
    by_variable = np.zeros(len(f.conjugate))
    by_variable[f.partner], by_variable[f.first] = -turning, turning
    values = np.linalg.eigvals(np.exp(-1j * by_variable)[:, None] * f.jacobian(z))
    free = np.linalg.matrix_rank(directions[:, active]) if len(directions) else 0
    values = values[np.argsort(np.abs(values - 1))][free:]
    return Solution(z, advance, values[np.argsort(-np.abs(values))], turning)


def _turning(f: ReducedMap, z: Complex) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(modes,) the phase advances at the state `z`, NaN for absent modes, and those with which absent ones turn along:
    with the modes they are tied to.
    """
    active, image = z != 0, f(z)
    advance = np.where(active, np.angle(np.where(active, image, 1) / np.where(active, z, 1)), np.nan)
    advance = np.where(advance < 1e-12 - np.pi, np.pi, advance)
    directions, offset = f.phases
    # Ω = offset + Σ_j c_j direction_j at the modes that are there: how far along the free directions
    behind = np.angle(np.exp(1j * (advance - offset)[active]))
    turning = offset + np.linalg.lstsq(directions[:, active].T, behind, rcond=1e-9)[0] @ directions
    turning[active] = advance[active]
    return advance, turning


def _leave_others_alone(f: ReducedMap, states: Complex) -> NDArray[np.bool_]:
    """(states,) at which f leaves the modes that are absent alone."""
    forced = np.where(states == 0, np.abs(f(states)), 0).max(axis=1, initial=0.0)
    return np.asarray(forced <= 1e-9 * np.abs(states).max(axis=1, initial=0.0))


def _completed(f: ReducedMap, z: Complex) -> Complex:
    """The state `z` with what it forces into the modes that are absent, to first order."""
    # (e^{iΩ} − ∂f_s/∂z_s) δz_s = f_s(z)
    image, slopes = f(z), np.diagonal(f.jacobian(z))[f.first]
    resist = np.exp(1j * _turning(f, z)[1]) - slopes
    forced = image / np.where(np.abs(resist) < 1e-9, np.inf, resist)
    forced = np.where(f.complex_modes, forced, forced.real)
    return np.where((z == 0) & (np.abs(image) > 1e-9 * np.abs(z).max()), forced, z)


def _all_real(f: ReducedMap) -> bool:
    """Whether all coefficients are real, to rounding against others of the degree: then no phase runs through."""
    coefficients = f.coefficients[f.first]
    largest = np.maximum.reduceat(np.abs(coefficients).max(axis=0), np.unique(f.table.degrees, return_index=True)[1])
    return bool((np.abs(coefficients.imag) <= 1e-9 * largest[f.table.degrees]).all())


def _runs_through(f: ReducedMap, solution: Solution) -> bool:
    """Whether no term of f can lock the phases of a `solution` of the averaged map: each turns on faster, by
    Σ_t turns_t Ω_t a layer, than all terms together can hold it.
    """
    active = solution.active
    pull = np.abs(f.coefficients[f.first] * f.monomials_at(solution.z)) * f.locking
    if pull[~active].any():
        return False
    s, m = np.nonzero(pull)
    held = (pull.sum(axis=1) / np.where(active, np.abs(solution.z), 1)).max()
    detuning = np.angle(np.exp(1j * f.turns[s, m] @ np.nan_to_num(solution.phase_advances)))
    return bool((np.abs(detuning) > held * np.abs(f.turns[s, m]).sum(axis=1)).all())


def _distinct(f: ReducedMap, states: Complex) -> list[Solution]:
    """The solutions at `states`, one of those that have the same moduli and multipliers."""
    found: list[Solution] = []
    for z in states:
        size, solution = np.abs(z), None
        twins = [other for other in found if np.abs(np.abs(other.z) - size).max() <= 1e-7 * size.max()]
        if not twins or not f.phase_free:
            solution = solution_at(f, z)
            if not any(_same_multipliers(solution.multipliers, other.multipliers) for other in twins):
                found.append(solution)
    return found


def _same_multipliers(a: Complex, b: Complex) -> bool:
    gaps = np.abs(a[:, None] - b)
    return len(a) == len(b) and bool(max(gaps.min(axis=0).max(initial=0), gaps.min(axis=1).max(initial=0)) < 1e-7)


def _states(f: ReducedMap, active: list[int], near: Sequence[Complex] = ()) -> Complex:
    """(states, modes) amplitudes at which the modes `active` are steady and all present, others left out; `near`: where
    to look for some as well.
    """
    if len(active) > 1:
        states = _newton_states(f, np.vstack([_starts(f, active), *near]), active)
    else:
        one = f if len(f.first) == 1 else f.restricted(active[0])
        alone = _single_mode(one)
        states = np.zeros((len(alone), len(f.first)), dtype=complex)
        states[:, active[0]] = alone
    return states


def _single_mode(f: ReducedMap) -> Complex:
    """(states,) steady amplitudes of the map of a single mode."""
    kept = f.coefficients[0] != 0
    coefficients, exponents = f.coefficients[0, kept], f.table.exponents[kept]
    degrees, sign = exponents.sum(axis=1), 1.0 if f.multipliers[0].real > 0 else -1.0
    if not f.complex_modes[0]:
        return np.array(_real_roots(_collect(coefficients.real, degrees - 1, sign)), dtype=complex)
    real = _all_real(f)
    if f.phase_free:  # f = z P(|z|²): P = ±1, or |P|² = 1
        P = _collect(coefficients, exponents[:, 1], 0.0)
        square = P.real if real else np.convolve(P, P.conj()).real
        square[0] -= sign if real else 1
        return np.sqrt(np.array([rho for rho in _real_roots(square) if rho > 0], dtype=complex))
    if not real:
        return _newton_states(f, _starts(f, [0]), [0])[:, 0]
    # real coefficients: states lie on the rays of the reflections
    turns = exponents[:, 0] - exponents[:, 1] - 1
    states: list[complex] = []
    for psi in (0.0, np.pi / gcd(*map(int, turns))):
        radial = _collect((coefficients * np.exp(1j * psi * turns)).real, degrees - 1, sign)
        states += [R * np.exp(1j * psi) for R in _real_roots(radial) if R > 0]
    return np.array(states, dtype=complex)


def _collect(coefficients: NDArray, powers: NDArray[np.int64], less: float) -> NDArray:
    """The polynomial Σ coefficient·x^power − less, lowest power first."""
    out = np.zeros(int(powers.max()) + 1, dtype=coefficients.dtype)
    np.add.at(out, powers, coefficients)
    out[0] -= less
    return out


def _real_roots(polynomial: Floats) -> list[float]:
    """Nonzero real roots of the real `polynomial`, lowest power first; its constant is the distance to onset."""
    if abs(polynomial[0]) < 1e-14:
        polynomial = polynomial[1:]
    # a highest coefficient of rounding alone has its root at infinity, and numpy.roots would lose the others
    last = np.flatnonzero(np.abs(polynomial) >= 1e-15 * np.abs(polynomial).max())[-1]
    descending = polynomial[: last + 1][::-1]
    roots = np.roots(descending)
    found = roots[(np.abs(roots.imag) <= 1e-9 * np.abs(roots)) & (roots != 0)].real
    slope = np.polyval(np.polyder(descending), found)
    polished = found - np.polyval(descending, found) / np.where(slope == 0, np.inf, slope)
    return [float(root) for root in polished]


def _starts(f: ReducedMap, active: list[int]) -> Complex:
    """(starts, modes) guesses: moduli about those at which the nonlinear terms balance growth, or where phases matter
    only at high degree those without it, and phases all round.
    """
    locking = f.locking[active].any(axis=0)
    if locking.any() and f.table.degrees[locking].min() >= WEAK and f.complex_modes[active].all():
        radii = np.abs(_states(f.averaged, active)[:, active])
    else:
        balance = _balance(f, active)
        radii = _scales(f, active) * np.array(list(product((0.35, 0.7, 1.0, 1.5), repeat=len(active))))
        radii = radii if balance is None else np.vstack([balance, radii])
    around = np.exp(2j * np.pi * (np.arange(8) + 0.11) / 8) if locking.any() else np.ones(1)
    choices = [around if f.complex_modes[s] else np.array([1.0, -1.0]) for s in active]
    starts = (radii[:, None] * np.array(list(product(*choices)))).reshape(-1, len(active))
    if len(starts) > STARTS:
        starts = starts[np.random.default_rng(0).choice(len(starts), STARTS, replace=False)]
    out = np.zeros((len(starts), len(f.first)), dtype=complex)
    out[:, active] = starts
    return out


def _scales(f: ReducedMap, active: list[int]) -> Floats:
    """(active,) moduli at which some term balances the growth of each mode."""
    mu, scales = np.abs(np.abs(f.multipliers) - 1), []
    for s in active:
        sizes: dict[int, float] = {}
        for exponents, coefficient in f.nonlinear_terms[s].items():
            sizes[sum(exponents)] = max(sizes.get(sum(exponents), 0.0), abs(coefficient))
        excess = max(float(mu[s]), 0.1 * float(mu[active].max()), 1e-9)
        scales.append(min(((excess / c) ** (1 / (p - 1)) for p, c in sizes.items()), default=1.0))
    return np.array(scales)


def _balance(f: ReducedMap, active: list[int]) -> Floats | None:
    """(active,) moduli at which the phase-free cubic terms balance growth, if there are."""
    if not f.complex_modes[active].all() or f.table.order < 3:
        return None
    unit = np.eye(len(f.conjugate), dtype=np.int64)
    own, partner, phases = f.first[active], f.partner[active], np.exp(-1j * np.angle(f.multipliers[active]))
    # Σ_t Re(e^{−iω_s}c_st)|z_t|² = 1 − |Λ_s|
    exponents = unit[own][:, None] + (unit[own] + unit[partner])[None]
    matrix = (phases[:, None] * f.coefficients[own[:, None], f.table.number_of(exponents)]).real
    squares = np.linalg.lstsq(matrix, 1 - np.abs(f.multipliers[active]), rcond=1e-12)[0]
    return np.sqrt(squares) if (squares > 0).all() else None


def _newton_states(f: ReducedMap, starts: Complex, active: list[int]) -> Complex:
    """(states, modes) with f_s = e^{iΩ_s}z_s in which the modes `active` are present, reached from `starts`.

    Unknown are z (real and imaginary parts in units of the start, the latter only of complex amplitudes) and
    how far Ω goes along each free direction; each direction is pinned at the phase of the start.
    """
    directions, offset = f.phases
    _, sizes, right = np.linalg.svd(directions[:, active], full_matrices=False)
    directions, offset = right[sizes > 1e-9], offset[active]
    own, partner, turnable = f.first[active], f.partner[active], np.flatnonzero(f.complex_modes[active])
    a, t, g = len(active), len(turnable), len(directions)
    size = np.abs(starts[:, active])
    x = starts[:, active] / size
    unit, c = x.copy(), np.zeros((len(x), g))
    pins = np.concatenate(
        [
            -directions * unit.imag[:, None],
            directions[:, turnable] * unit.real[:, None, turnable],
            np.zeros((len(x), g, g)),
        ],
        axis=2,
    )
    converged: list[Complex] = []
    for _ in range(ITERATIONS):
        z = np.zeros((len(x), len(f.first)), dtype=complex)
        z[:, active] = x * size
        # e^{−iΩ(c)}f(z) − z and its derivatives by Re z, Im z and c, in units of the start
        turned = np.exp(-1j * (offset + c @ directions))
        image, slopes = turned * f(z)[:, active] / size, f.jacobian(z)
        scale = turned[:, :, None] * size[:, None] / size[:, :, None]
        along, against = slopes[:, own[:, None], own] * scale, slopes[:, own[:, None], partner] * scale
        real = np.where(f.complex_modes[active], along + against, along) - np.eye(a)
        imaginary = 1j * (along - against - np.eye(a))[:, :, turnable]
        columns = np.concatenate([real, imaginary, -1j * image[:, :, None] * directions.T], axis=2)
        system = np.concatenate([columns.real, columns.imag[:, turnable], pins], axis=1)
        gap, pinned = image - x, (unit.conj() * x).imag @ directions.T
        residual = np.concatenate([gap.real, gap.imag[:, turnable], pinned], axis=1)
        step = -_least(system, residual)
        # where one is forced along the lattice may hold phases at rounding only: there a zero is enough
        zero = (np.abs(residual).max(axis=1, initial=0.0) < 1e-13) & (size.max(axis=1) > 1e3 * size.min(axis=1))
        step[zero] = 0.0
        largest = np.abs(step).max(axis=1, initial=1e-300)
        step *= np.minimum(1.0, 0.5 / largest)[:, None]
        x = x + step[:, :a]
        x[:, turnable] += 1j * step[:, a : a + t]
        c = c + step[:, a + t :]
        done = (largest < 1e-12) & (np.abs(residual).max(axis=1, initial=0.0) < 1e-9)
        converged += list((x * size)[done & (np.abs(x).min(axis=1) > 1e-5)])
        left = ~done & (np.abs(x).max(axis=1) < 1e3)
        x, c, unit, size, pins = x[left], c[left], unit[left], size[left], pins[left]
        if not len(x):
            break
    z = np.zeros((len(converged), len(f.first)), dtype=complex)
    z[:, active] = np.array(converged).reshape(-1, a)
    return z


def _least(systems: Floats, right: Floats) -> Floats:
    """(n, m) solutions of `systems` (n, m, m) for `right` (n, m), the least ones where a system is singular."""
    try:
        return np.linalg.solve(systems, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        return (np.linalg.pinv(systems, rcond=1e-13) @ right[..., None])[..., 0]
