"""Normal forms of any order for any block (the general method, derived).

The invariant manifold of the critical modes is parameterised by their amplitudes z, X(z) = a + Σ_m X_m z^m, and
the block acts on it as z⁺ = f(z). Both follow, order by order, from X(f(z)) = F(X(z)) (see `manifold`).
Wavenumbers count modulo N, so lattice resonances are part of the form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.normal_forms.manifold import feature_gauge, place_of, solve, variables_of, with_mirror_images
from amplitude.normal_forms.nearby import PERSISTS, NearbyState, nearby_states
from amplitude.normal_forms.power_series import Grading
from amplitude.normal_forms.reduced_map import ReducedMap, Solution
from amplitude.normal_forms.steady import solutions
from amplitude.normal_forms.verdicts import judged, verdict
from amplitude.plot import plot_potential
from amplitude.summary import motion, stability, tokens
from dispersion import ArgumentError, Block, Dispersion, ExclusionError, Mode, dispersion_relation
from dispersion.errors import check_shape, instance, items, number_array, real_array, whole_number
from dispersion.grid import Wavenumber, conjugate_pairs, wavenumber
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64, harmless_underflow
from dispersion.summary import growth, paragraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAFETY = 1.25
"""Bound on the error, in parts of the distance found by Newton's method."""
ROUNDING = 1e-14
"""Relative error of one layer that does not count."""
CLEAR = 1.0
"""max|F(X) − X⁺|/2μR up to which a state of two orders is one of the block."""
FAR = 20.0
"""max|F(X) − X⁺|/2μR from which a state of the form has nothing to do with the block."""
NEAR = 0.99
"""|Λ| from which a mode that is left out can spoil a form."""


@dataclass(frozen=True, eq=False)
class NormalForm(Noun):
    """The map z⁺ = f(z) of the amplitudes of some modes, and the field that they stand for.

    Attributes
    ----------
    block : Block
        The block.
    state : (d,) ndarray
        The base state a.
    modes : tuple of Mode
        The modes, one amplitude each, with the mode's mirror image −k counted as a mode where a symmetric kernel with
        complex Λ makes both critical.
    order : int
        Highest degree.
    map : ReducedMap
        f.
    field_coefficients : (M, d) complex ndarray
        X_m of each monomial.
    places : (M,) ndarray of int
        Flat index of k(m).
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
        return self.map.nonlinear_terms

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

        From order 5 on those count near which the block itself has a state: to half their size, by Newton's method,
        unless one layer and the form of two orders less confirm it already.
        """
        stable = tuple(solution for solution in self.solutions if solution.stable)
        if self.order < 5 or not stable:
            return stable
        lower = self.truncated(self.order - 2).solutions
        lasting = (any(_gap(s, other) <= PERSISTS for other in lower) and self._defect(s) <= CLEAR for s in stable)
        return tuple(s for s, known in zip(stable, lasting, strict=True) if known or self.has_state_near(s))

    @property
    def solution(self) -> Solution | None:
        """The smallest of `stable_solutions`, or None if there is none."""
        return next(iter(self.stable_solutions), None)

    def regime(self) -> str:
        """What becomes of two modes, one of `amplitude.REGIMES`: 'collapsed' (neither grows nor persists), 'mode 1',
        'mode 2', 'bistable' (each alone is stable), 'coexistence', or 'undecided'.

        The states are those of f, and the block judges them: only those count near which it has one, and of steady and
        alternating ones its own multipliers decide. A mode below a tenth of the other is not present. Undecided are
        no stable state, other ones, a change that grows by less than 2 % of μ a layer, and a growing mode whose pure
        state was not found.
        """
        if len(self.modes) != 2:
            raise ExclusionError("modes", f"{len(self.modes)} of them", "a form of two modes")
        growing = tuple(bool(abs(mode.multiplier) > 1) for mode in self.modes)
        states = [judged(self, solution) for solution in self.solutions if self._defect(solution) <= FAR]
        return verdict(
            [state for state in states if state is not None],
            growing,
            not any(abs(value) > 1 for _, value in self.neighbours),
        )

    @property
    def stable(self) -> bool:
        """Whether the form has a stable state, `solution`."""
        return self.solution is not None

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
        """|w_sᴴB_k| of a solution, relative to the base state.

        What turns at another rate than z_s, and so averages out over layers, is left out.

        Parameters
        ----------
        solution : Solution or None
            One of `solutions`, or none of them.

        Returns
        -------
        (modes,) ndarray
            Amplitudes; 0 or NaN for None, as in `amplitude`.
        """
        if solution is None:
            return np.full(len(self.modes), np.nan if self.growing else 0.0)
        instance("solution", solution, Solution)
        terms, values = self.field_coefficients * self.map.monomials_at(solution.z)[:, None], []
        ahead = self.map.turns @ np.nan_to_num(solution.phase_advances)
        for mode, active, angle in zip(self.modes, solution.active, ahead, strict=True):
            kept = (self.places == place_of(mode.k, mode.shape)) & (self.map.table.degrees > 0)
            if active:
                kept &= np.abs(np.exp(1j * angle) - 1) < 1e-6
            values.append(abs(np.vdot(mode.left, terms[kept].sum(axis=0))))
        return np.array(values)

    def field(self, layer: float = 0.0, solution: Solution | None = None) -> NDArray[np.float64]:
        """The state X(z) of a solution.

        Parameters
        ----------
        layer : float
            By how many layers it is advanced.
        solution : Solution, optional
            One of `solutions`, by default the smallest stable one.

        Returns
        -------
        (N, d) ndarray
            X(z).
        """
        solution = self.solution if solution is None else solution
        if solution is None:
            raise ArgumentError("solution", None, "a solution: this form has no stable state")
        return self.field_at(instance("solution", solution, Solution).advanced(layer))

    @beyond_float64
    def field_at(self, z: ArrayLike) -> NDArray[np.float64]:
        """The state X(z) = a + Σ_m X_m z^m at any amplitudes.

        Parameters
        ----------
        z : (modes,) array_like
            Amplitudes, complex or real.

        Returns
        -------
        (N, d) ndarray
            X(z).
        """
        amplitudes = number_array("z", z)
        check_shape("z", amplitudes, (len(self.modes),))
        return self.fields(self.map.monomials_at(amplitudes + 0j)).real

    def fields(self, values: NDArray[np.complexfloating]) -> NDArray[np.complex128]:
        """Σ_m X_m e^{ik(m)j} values_m for any values of the monomials.

        Parameters
        ----------
        values : (…, M) complex ndarray
            A value of each monomial.

        Returns
        -------
        (…, N, d) complex ndarray
            The sum at each token.
        """
        shape, before = self.block.shape, values.shape[:-1]
        by_place = np.zeros((self.block.n, *before, self.block.d), dtype=complex)
        np.add.at(by_place, self.places, np.moveaxis(values[..., None] * self.field_coefficients, -2, 0))
        grid = by_place.reshape(*shape, *before, self.block.d)
        field = np.fft.ifftn(grid, axes=tuple(range(len(shape)))).reshape(by_place.shape) * self.block.n
        return np.moveaxis(field, 0, -2)

    def truncated(self, order: int) -> NormalForm:
        """The form cut at a lower order; its coefficients are the same.

        Parameters
        ----------
        order : int
            Highest degree that is kept, 1 … that of this form.
        """
        if whole_number("order", order, 1) > self.order:
            raise ArgumentError("order", order, f"1 … {self.order}")
        table, lower = self.map.table, self.map.truncated(order)
        kept = table.number_of(lower.table.exponents)
        return NormalForm(
            self.block, self.state, self.modes, order, lower, self.field_coefficients[kept], self.places[kept]
        )

    def has_state_near(self, solution: Solution) -> bool:
        """Whether the block itself has a state near a solution, within half its size.

        Parameters
        ----------
        solution : Solution
            One of `solutions`.
        """
        instance("solution", solution, Solution)
        return self._defect(solution) <= FAR and nearby_states(self, solution)[0].found

    def error(self) -> float:
        """Bound on the relative error of `amplitude`, against the largest of the amplitudes: one and a quarter of its
        distance from the exact state, by a few steps of Newton's method on the block (`nearby`).

        It covers both families of standing waves where the block leaves neither quickly. 0 without a growing mode or
        stable state; NaN where the form has no stable state, the block none within half its size, or one that it
        leaves, to modes that the form does not know.
        """
        solution = self.solution
        if solution is None:
            return float("nan") if self.growing else 0.0
        near = [state for state in self._near if state.found and not state.leaves(self._mu)]
        if not near:
            return float("nan")
        gap = max(float(np.abs(solution.multipliers - 1).min(initial=1.0)), 1e-6)
        return SAFETY * max(state.change for state in near) + ROUNDING / gap

    @cached_property
    def _near(self) -> list[NearbyState]:
        """The states of the block near `solution`."""
        return [] if self.solution is None else nearby_states(self, self.solution)

    @property
    def _mu(self) -> float:
        """The largest |μ| of the modes."""
        return max(abs(abs(mode.multiplier) - 1) for mode in self.modes)

    @cached_property
    def neighbours(self) -> tuple[tuple[Wavenumber, complex], ...]:
        """(k, Λ) of the modes besides those of the form with |Λ| > 0.99, one of each pair ±k, largest modulus first."""
        relation, gauge = dispersion_relation(self.block, self.state), feature_gauge(self.block)
        values = np.linalg.eigvals(gauge @ relation.matrices.reshape(-1, self.block.d, self.block.d))
        for variable in variables_of(self.modes, self.block.shape):
            values[variable.place, np.abs(values[variable.place] - variable.multiplier).argmin()] = 0
        half, _ = conjugate_pairs(self.block.shape)
        places = [(place, value) for place in half for value in values[place] if abs(value) > NEAR]
        places.sort(key=lambda item: -abs(item[1]))
        return tuple((wavenumber(int(place), self.block.shape), complex(value)) for place, value in places)

    def caveats(self) -> tuple[str, ...]:
        """What `amplitude` and `error` do not cover, in plain sentences; none where all is well."""
        found = list(self._crowd)
        if self.solution is None and self.growing:
            found.append(f"no stable state at order {self.order}")
        elif self.solution is not None and not self._near[0].found:
            found.append(f"the block has no state within half the size of the one at order {self.order}")
        elif self.solution is not None and np.isnan(self.error()):
            factor = min(state.growth for state in self._near)
            found.append(f"the block leaves this state: small changes grow by a factor of {factor:.4f} a layer")
        return tuple(found)

    @property
    def _crowd(self) -> tuple[str, ...]:
        """Which of the `neighbours` grow, and which nearly do, in plain sentences."""
        found = list[str]()
        for what, growing in (
            ("grow as well, and this state may lose to them", True),
            ("nearly grow, so that the series may converge badly", False),
        ):
            chosen = [item for item in self.neighbours if (abs(item[1]) > 1) == growing]
            if chosen:
                names = ", ".join(f"k = {k} (|Λ| = {abs(value):.4f})" for k, value in chosen[:3])
                more = f" and {len(chosen) - 3} more" if len(chosen) > 3 else ""
                found.append(f"other modes {what}: {names}{more}")
        return tuple(found)

    def __str__(self) -> str:
        """What it is, in a few lines; what the block itself says is left to `error` and `caveats`."""
        return paragraph(
            f"normal form of order {self.order}, {tokens([mode.k for mode in self.modes], self.block)}",
            growth([mode.multiplier for mode in self.modes]),
            motion(self.amplitude, self.phase_advance),
            f"{'super' if self.supercritical else 'sub'}critical" if len(self.modes) == 1 else "",
            stability(self.stable, "within these modes; error() bounds the error of the amplitude"),
            *self._crowd,
        )

    @beyond_float64
    def potential(self, R: ArrayLike) -> NDArray[np.float64]:
        """V(R) = −∫(Re(Λ̂^{-1}f(R)) − R) dR of a single mode: minima are stable amplitudes (Eq. 19 at order 3).

        Parameters
        ----------
        R : (…) array_like
            Amplitudes of either sign.

        Returns
        -------
        (…) ndarray
            V(R).
        """
        if len(self.modes) != 1:
            raise ExclusionError("modes", f"{len(self.modes)} of them", "a form of one mode")
        return self.map.potential(real_array("R", R))

    def plot_potential(self, ax: Axes | None = None) -> Axes:
        """Draw V(R) of a single mode, its minima as filled dots and its maxima as open ones.

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure.

        Returns
        -------
        Axes
            Those drawn on.
        """
        unit = np.exp(-1j * np.angle(self.modes[0].multiplier))
        stationary = {0.0: abs(self.modes[0].multiplier) < 1}
        for solution in self.solutions:
            for R in (abs(solution.z[0]), -abs(solution.z[0])):
                # on this axis, and not on another ray
                if abs((unit * self.map(np.array([R + 0j]))[0]).real - R) < 1e-8 * abs(R) and len(stationary) < 5:
                    stationary[R] = solution.stable
        return plot_potential(self.potential, stationary, ax)

    def _defect(self, solution: Solution) -> float:
        """max|F(X) − X⁺| of a `solution`, against its size and how fast the slowest growth makes up for it."""
        ahead = self.field_at(solution.z * np.exp(1j * solution.turning))
        residual = (self.block.forward(self.field(solution=solution)) - ahead) @ feature_gauge(self.block)
        return float(np.abs(residual).max() / (2 * self._mu * np.abs(solution.z).max()))


@harmless_underflow
def normal_form(
    block: Block, modes: Sequence[Mode] | Mode, order: int = 3, state: ArrayLike | None = None
) -> NormalForm:
    """The normal form of some modes of a block up to any order, at the homogeneous fixed point 1⊗a.

    Parameters
    ----------
    block : Block
        Any block.
    modes : Mode or sequence of Mode
        Modes of `dispersion_relation(block, state)`, near critical. Where the kernel is symmetric and Λ complex, the
        mirror image at −k is added: travelling against standing waves.
    order : int
        Highest degree of the terms, at least 1; 3 is cubic.
    state : (d,) array_like, optional
        a; zero by default. Where LayerNorm makes the mean over features neutral, states count up to it.

    Returns
    -------
    NormalForm
        The map of the amplitudes and the field that they stand for.

    Raises
    ------
    ExclusionError
        If a slaved mode is itself critical.
    ArgumentError
        Names what cannot be used.
    """
    order = whole_number("order", order, 1)
    relation = dispersion_relation(block, state)
    a, gauge = relation.state, feature_gauge(block)
    residual = float(np.abs(gauge @ (block.homogeneous_map(a) - a)).max())
    if residual > 1e-9 * (1 + np.abs(a).max()):
        raise ArgumentError("state", f"{a} with |g(a) − a| = {residual:.2g}", "a fixed point of g")
    given = (modes,) if isinstance(modes, Mode) else tuple(instance("modes", modes, Sequence))
    chosen = with_mirror_images(relation, given)
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


@harmless_underflow
def best_form(
    block: Block,
    modes: Sequence[Mode] | Mode,
    orders: Sequence[int] = (3, 5, 7, 9, 11),
    state: ArrayLike | None = None,
) -> NormalForm:
    """The normal form of some modes with the smallest `error` among several orders: the best that the series can do.

    Parameters
    ----------
    block, modes, state : Block, Mode or sequence of Mode, (d,) array_like
        As for `normal_form`.
    orders : sequence of int
        At least one.

    Returns
    -------
    NormalForm
        Where every error is NaN it is the form of the highest order, whose `caveats` say why.
    """
    wanted = sorted({whole_number("orders", order, 1) for order in items("orders", orders)})
    if not wanted:
        raise ArgumentError("orders", "none", "one order or more")
    highest = normal_form(block, modes, wanted[-1], state)
    forms = [highest.truncated(order) for order in wanted]
    return min(reversed(forms), key=lambda form: np.nan_to_num(form.error(), nan=np.inf))
