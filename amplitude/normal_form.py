"""Normal forms of any order for any block (the general method, derived).

The invariant manifold of the critical modes is parameterised by their amplitudes z, X(z) = a + Σ_m X_m z^m, and
the block acts on it as z⁺ = f(z). Both follow, order by order, from X(f(z)) = F(X(z)) (`amplitude.manifold`).
Wavenumbers count modulo N, so lattice resonances are part of the form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.manifold import feature_gauge, place_of, solve, variables_of, with_mirror_images
from amplitude.nodes import Grading
from amplitude.reduced import ReducedMap, Solution
from amplitude.steady import solutions
from dispersion import ArgumentError, Block, Dispersion, ExclusionError, Mode, dispersion_relation
from dispersion.errors import whole_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PERSISTS = 0.5
"""Relative change of the moduli from two orders less up to which a steady state counts as the same one."""


@dataclass(frozen=True, eq=False)
class NormalForm:
    """The map z⁺ = f(z) of the amplitudes of some modes, and the field that they stand for.

    block, state : the block and the base state a (d,); modes : the modes, one amplitude each (with the mode's
        mirror image −k counted as a mode where a symmetric kernel with complex Λ makes both critical).
    order : highest degree; map : f; field_coefficients : (M, d) X_m; places : (M,) flat index of k(m).
    """

    block: Block
    state: NDArray[np.float64]
    modes: tuple[Mode, ...]
    order: int
    map: ReducedMap
    field_coefficients: NDArray[np.complex128]
    places: NDArray[np.int64]

    @property
    def coefficients(self) -> tuple[dict[tuple[int, ...], complex], ...]:
        """For each mode the nonlinear terms of f: exponents of the variables → coefficient.

        The variables are z_1, z̄_1, z_2, z̄_2, …, or one real z_s for a mode at q = 0 or π with real Λ.
        """
        return self.map.terms

    @property
    def cubic(self) -> complex:
        """c_1 of z⁺ = Λz + c_1|z|²z + …, for the first mode; the coefficient of z³ for a real amplitude."""
        exponents = [0] * self.map.table.variables
        exponents[:2] = (2, 1) if self.map.complex_modes[0] else (3, *exponents[1:2])
        return self.coefficients[0].get(tuple(exponents), 0j)

    @property
    def supercritical(self) -> bool:
        """Whether the cubic term of the first mode saturates it: Re(−Λ̂^{-1}c_1) > 0."""
        multiplier = self.modes[0].multiplier
        return (-self.cubic * abs(multiplier) / multiplier).real > 0

    @property
    def growing(self) -> bool:
        """Whether one of the modes grows: |Λ| > 1."""
        return any(abs(mode.multiplier) > 1 for mode in self.modes)

    @cached_property
    def solutions(self) -> tuple[Solution, ...]:
        """Every nonzero state of f that is found to be steady up to phases (see `Solution`), smallest first."""
        return solutions(self.map)

    @cached_property
    def stable_solutions(self) -> tuple[Solution, ...]:
        """The stable states among `solutions`, smallest first, without artefacts of the truncation.

        From order 5 on those count that the form of two orders less has as well, to half their size; if it has none
        of them, all count where a mode grows, and none where nothing does.
        """
        stable = tuple(solution for solution in self.solutions if solution.stable)
        if self.order < 5 or not stable:
            return stable
        lower = self.truncated(self.order - 2).solutions
        lasting = tuple(s for s in stable if any(_gap(s, other) <= PERSISTS for other in lower))
        return lasting or (stable if self.growing else ())

    @property
    def solution(self) -> Solution | None:
        """The smallest of `stable_solutions`, or None if there is none."""
        return next(iter(self.stable_solutions), None)

    @property
    def regime(self) -> str:
        """What becomes of two modes, one of `amplitude.REGIMES`: 'collapsed' (neither grows nor persists), 'mode 1',
        'mode 2', 'bistable' (each alone is stable), 'coexistence', or 'undecided': no stable state, or others as well.
        """
        if len(self.modes) != 2:
            raise ExclusionError("modes", f"{len(self.modes)} of them", "a form of two modes")
        present = {(bool(solution.active[0]), bool(solution.active[1])) for solution in self.stable_solutions}
        one, two = (True, False), (False, True)
        verdicts = {
            frozenset({one}): "mode 1",
            frozenset({two}): "mode 2",
            frozenset({one, two}): "bistable",
            frozenset({(True, True)}): "coexistence",
        }
        if not self.growing:
            return "undecided" if present else "collapsed"
        return verdicts.get(frozenset(present), "undecided")

    @property
    def amplitude(self) -> float | NDArray[np.float64]:
        """The observable |w_sᴴB_k| of `solution`: the Fourier coefficient B_k (d,) at each mode, projected on its
        left vector (|B_k| itself for d = 1), all monomials with that wavenumber included (see `amplitudes_of`).

        A number for one mode, (modes,) for several; 0 without a growing mode, NaN where f has no stable state.
        """
        values = self.amplitudes_of(self.solution)
        return float(values[0]) if len(self.modes) == 1 else values

    @property
    def phase_advance(self) -> float | NDArray[np.float64]:
        """The phase advance per layer of `solution`, radians; NaN without one. Shaped as `amplitude`."""
        solution = self.solution
        values = np.full(len(self.modes), np.nan) if solution is None else solution.phase_advances
        return float(values[0]) if len(self.modes) == 1 else values

    def amplitudes_of(self, solution: Solution | None) -> NDArray[np.float64]:
        """(modes,) |w_sᴴB_k| of a `solution`, relative to the base state and without what turns at another rate than
        z_s and so averages out over layers; 0 or NaN for None, as in `amplitude`.
        """
        if solution is None:
            return np.full(len(self.modes), np.nan if self.growing else 0.0)
        terms, values = self.field_coefficients * self.map.monomials_at(solution.z)[:, None], []
        ahead = self.map.turns @ np.nan_to_num(solution.phase_advances)
        for mode, active, angle in zip(self.modes, solution.active, ahead, strict=True):
            kept = (self.places == place_of(mode.k, mode.shape)) & (self.map.table.degrees > 0)
            if active:
                kept &= np.abs(np.exp(1j * angle) - 1) < 1e-6
            values.append(abs(np.vdot(mode.left, terms[kept].sum(axis=0))))
        return np.array(values)

    def field(self, solution: Solution | None = None, layer: float = 0.0) -> NDArray[np.float64]:
        """(N, d) the state X(z) of a `solution`, by default the smallest stable one, advanced by `layer` layers."""
        solution = self.solution if solution is None else solution
        if solution is None:
            raise ArgumentError("solution", None, "a solution: this form has no stable state")
        return self.field_at(solution.advanced(layer))

    def field_at(self, z: ArrayLike) -> NDArray[np.float64]:
        """(N, d) the state X(z) = a + Σ_m X_m z^m at any amplitudes `z` (modes,)."""
        terms = self.field_coefficients * self.map.monomials_at(np.asarray(z, dtype=complex))[:, None]
        by_place = np.zeros((self.block.n, self.block.d), dtype=complex)
        np.add.at(by_place, self.places, terms)
        grid = by_place.reshape(*self.block.shape, self.block.d)
        axes = tuple(range(len(self.block.shape)))
        return (np.fft.ifftn(grid, axes=axes) * self.block.n).real.reshape(self.block.n, self.block.d)

    def truncated(self, order: int) -> NormalForm:
        """The form cut at a lower `order`; its coefficients are the same."""
        if whole_number("order", order, 1) > self.order:
            raise ArgumentError("order", order, f"1 … {self.order}")
        table, lower = self.map.table, self.map.truncated(order)
        kept = table.number_of(lower.table.exponents)
        return NormalForm(
            self.block, self.state, self.modes, order, lower, self.field_coefficients[kept], self.places[kept]
        )

    @cached_property
    def error(self) -> float:
        """Estimate of the relative truncation error of `amplitude`: how much the next two orders change it, against
        the largest of the amplitudes. It takes the form of those orders, computed here.

        0 without a growing mode or stable state; NaN where one of the two forms has no stable state, or they have
        different ones: the form cannot be trusted there.
        """
        relation = dispersion_relation(self.block, self.state)
        here, following = self.solution, _form(self.block, relation, self.modes, self.order + 2)
        there = following.solution
        if here is None and there is None and not self.growing:
            return 0.0
        if here is None or there is None or _gap(here, there) == np.inf:
            return float("nan")
        before, after = self.amplitudes_of(here), following.amplitudes_of(there)
        return float(np.abs(after - before).max() / after.max())

    def potential(self, R: ArrayLike) -> NDArray[np.float64]:
        """V(R) = −∫(Re(Λ̂^{-1}f(R)) − R) dR of a single mode, R any shape and sign: minima are stable amplitudes
        (Eq. 19 at order 3).
        """
        if len(self.modes) != 1:
            raise ExclusionError("modes", f"{len(self.modes)} of them", "a form of one mode")
        return self.map.potential(np.asarray(R, dtype=float))

    def plot_potential(self, ax: Axes | None = None) -> Axes:
        """Draw V(R) of a single mode, its minima as filled dots and its maxima as open ones; `ax`: the axes, by
        default the current ones; returns them.
        """
        import matplotlib.pyplot as plt

        ax = plt.gca() if ax is None else ax
        unit = np.exp(-1j * np.angle(self.modes[0].multiplier))
        places = {0.0: abs(self.modes[0].multiplier) < 1}
        for solution in self.solutions:
            for R in (abs(solution.z[0]), -abs(solution.z[0])):
                # on this axis, and not on another ray
                if abs((unit * self.map(np.array([R + 0j]))[0]).real - R) < 1e-8 * abs(R) and len(places) < 5:
                    places[R] = solution.stable
        R = np.linspace(-1.6, 1.6, 401) * (max(map(abs, places)) or 1.0)
        (line,) = ax.plot(R, self.potential(R))
        for place, minimum in places.items():
            face = line.get_color() if minimum else "white"
            ax.plot([place], self.potential([place]), "o", color=line.get_color(), mfc=face, ms=5, zorder=3)
        ax.set(xlabel="amplitude $R$", ylabel="potential $V(R)$")
        return ax


def normal_form(
    block: Block, modes: Sequence[Mode] | Mode, order: int = 3, state: ArrayLike | None = None
) -> NormalForm:
    """The normal form of `modes` of a `block` up to `order`, at the homogeneous fixed point 1⊗a.

    modes : one Mode or several, of `dispersion_relation(block, state)`, near critical. Where the kernel is
        symmetric and Λ complex, the mirror image at −k is added: travelling against standing waves.
    order : highest degree of the terms, at least 1; 3 is cubic.
    state : a, (d,); zero by default. Where LayerNorm makes the mean over features neutral, states count up to it.
    An ExclusionError says if a slaved mode is itself critical; an ArgumentError names what cannot be used.
    """
    order = whole_number("order", order, 1)
    relation = dispersion_relation(block, state)
    a, gauge = relation.state, feature_gauge(block)
    residual = float(np.abs(gauge @ (block.homogeneous_map(a) - a)).max())
    if residual > 1e-9 * (1 + np.abs(a).max()):
        raise ArgumentError("state", f"{a} with |g(a) − a| = {residual:.2g}", "a fixed point of g")
    chosen = with_mirror_images(relation, (modes,) if isinstance(modes, Mode) else tuple(modes))
    return _form(block, relation, chosen, order)


def _form(block: Block, relation: Dispersion, modes: tuple[Mode, ...], order: int) -> NormalForm:
    variables = variables_of(modes, block.shape)
    grading = Grading(block.shape, tuple(variable.k for variable in variables), order)
    X, f = solve(block, relation, grading, variables)
    reduced = ReducedMap(grading.table, f, tuple(variable.conjugate for variable in variables))
    return NormalForm(block, relation.state, modes, order, reduced, X, grading.places())


def _gap(one: Solution, other: Solution) -> float:
    """The largest relative difference of the moduli of two states; inf if other modes are active."""
    if (one.active != other.active).any():
        return float("inf")
    return float(np.abs(np.abs(one.z) - np.abs(other.z)).max() / np.abs(one.z).max())
