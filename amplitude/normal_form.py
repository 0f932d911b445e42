"""Normal forms of any order for any block (the general method, derived).

The invariant manifold of the critical modes is parameterised by their amplitudes z, X(z) = a + Σ_m X_m z^m, and
the block acts on it as z⁺ = f(z). Both follow, order by order, from X(f(z)) = F(X(z)):

    [Λ^m I − J(k(m))] X_m + Σ_s v_s f_{s,m} = (F(X))_m − (X(f))_m, both without X_m and f_{s,m}.

A monomial stays in f_s if it is resonant, k(m) ≡ k_s and Λ̂^m ≈ Λ̂_s with Λ̂ = Λ/|Λ|; the rest is removed by X_m.
Wavenumbers count modulo N, so lattice resonances are part of the form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.monomials import Monomials
from amplitude.potential import plot_potential
from amplitude.reduced import ReducedMap, Solution
from amplitude.series import BlockSeries, Grading
from dispersion import ArgumentError, Block, Dispersion, ExclusionError, LayerNorm, Mode, dispersion_relation
from dispersion.eigen import TOLERANCE
from dispersion.errors import whole_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESONANCE = 0.05
"""|Λ̂^m − Λ̂_s| up to which a monomial of the right wavenumber is kept in the normal form."""


@dataclass(frozen=True, eq=False)
class Variable:
    """One variable of the form: the amplitude of a mode (k, Λ, v, w), or the conjugate of one.

    k : (D,) wavenumber; mode : number of the mode it belongs to; conjugate : the number of the variable that is its
    complex conjugate, its own for a real amplitude.
    """

    k: tuple[int, ...]
    multiplier: complex
    right: NDArray[np.complex128]
    left: NDArray[np.complex128]
    mode: int
    conjugate: int


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
        exponents[0] = 2 if self.map.complex_modes[0] else 3
        if self.map.complex_modes[0]:
            exponents[1] = 1
        return self.coefficients[0].get(tuple(exponents), 0j)

    @property
    def supercritical(self) -> bool:
        """Whether the cubic term of the first mode saturates it: Re(−Λ̂^{-1}c_1) > 0."""
        multiplier = self.modes[0].multiplier
        return (-self.cubic * abs(multiplier) / multiplier).real > 0

    @property
    def solutions(self) -> tuple[Solution, ...]:
        """Every nonzero state of f that is steady up to phases (see `Solution`), smallest first."""
        return self.map.solutions

    @property
    def solution(self) -> Solution | None:
        """The smallest stable nonzero state, or None if there is none."""
        return next((solution for solution in self.solutions if solution.stable), None)

    @property
    def amplitude(self) -> float | NDArray[np.float64]:
        """The observable |w_sᴴB_k| of the stable state: the Fourier coefficient B_k (d,) at each mode, projected on its
        left vector (|B_k| itself for d = 1), all monomials with that wavenumber included.

        A number for one mode, (modes,) for several; 0 without a growing mode, NaN where f has no stable state.
        """
        values = self.amplitudes_of(self.solution)
        return float(values[0]) if len(self.modes) == 1 else values

    @property
    def phase_advance(self) -> float | NDArray[np.float64]:
        """The phase advance per layer of the stable state, radians; NaN without one. Shaped as `amplitude`."""
        solution = self.solution
        values = np.full(len(self.modes), np.nan) if solution is None else solution.phase_advances
        return float(values[0]) if len(self.modes) == 1 else values

    def amplitudes_of(self, solution: Solution | None) -> NDArray[np.float64]:
        """(modes,) |w_sᴴB_k| of a `solution`; 0 or NaN for None, as in `amplitude`."""
        if solution is None:
            growing = any(abs(mode.multiplier) > 1 for mode in self.modes)
            return np.full(len(self.modes), np.nan if growing else 0.0)
        terms = self.field_coefficients * self.map.monomials_at(solution.z)[:, None]
        return np.array(
            [abs(np.vdot(mode.left, terms[self.places == _place(mode, mode.shape)].sum(axis=0))) for mode in self.modes]
        )

    def field(self, solution: Solution | None = None, layer: float = 0.0) -> NDArray[np.float64]:
        """(N, d) the state X(z) of a `solution`, by default the stable one, advanced in phase by `layer` layers."""
        solution = self.solution if solution is None else solution
        if solution is None:
            raise ArgumentError("solution", None, "a solution: this form has no stable state")
        terms = self.field_coefficients * self.map.monomials_at(solution.advanced(layer))[:, None]
        by_place = np.zeros((self.block.n, self.block.d), dtype=complex)
        np.add.at(by_place, self.places, terms)
        grid = by_place.reshape(*self.block.shape, self.block.d)
        axes = tuple(range(len(self.block.shape)))
        return (np.fft.ifftn(grid, axes=axes) * self.block.n).real.reshape(self.block.n, self.block.d)

    def truncated(self, order: int) -> NormalForm:
        """The form cut at a lower `order`; its coefficients are the same."""
        if not 1 <= whole_number("order", order, 1) <= self.order:
            raise ArgumentError("order", order, f"1 … {self.order}")
        table, lower = self.map.table, self.map.truncated(order)
        kept = table.number_of(lower.table.exponents)
        return NormalForm(
            self.block, self.state, self.modes, order, lower, self.field_coefficients[kept], self.places[kept]
        )

    @property
    def error(self) -> float:
        """Estimate of the relative truncation error of `amplitude`: its change from two orders less to this one.

        NaN where either has no stable state: the form cannot be trusted there.
        """
        if self.order < 5:
            return float("nan")
        here, before = np.atleast_1d(self.amplitude), np.atleast_1d(self.truncated(self.order - 2).amplitude)
        scale = np.abs(here).max()
        return float(np.abs(here - before).max() / scale) if scale > 0 else float(np.nan_to_num(scale, nan=np.nan))

    def potential(self, R: ArrayLike) -> NDArray[np.float64]:
        """V(R) = −∫(|f(R)| − R) dR of a single mode, R any shape: minima are stable amplitudes (Eq. 19 at order 3)."""
        return self.map.potential(np.asarray(R, dtype=float))

    def plot_potential(self, ax: Axes | None = None) -> Axes:
        """Draw V(R) of a single mode with its extrema; `ax`: the axes, by default the current ones; returns them."""
        stationary = {0.0: abs(self.modes[0].multiplier) < 1}
        smallest = self.solutions[:1]
        return plot_potential(self.potential, stationary | {abs(s.z[0]): s.stable for s in smallest}, ax)


def normal_form(
    block: Block, modes: Sequence[Mode] | Mode, order: int = 3, state: ArrayLike | None = None
) -> NormalForm:
    """The normal form of `modes` of a `block` up to `order`, at the homogeneous fixed point 1⊗a.

    modes : one Mode or several, of `dispersion_relation(block, state)`, near critical. Where the kernel is
        symmetric and Λ complex, the mirror image at −k is added: travelling against standing waves.
    state : a, (d,); zero by default. Where LayerNorm makes the mean over features neutral, states count up to it.
    An ExclusionError says if a slaved mode is itself critical; an ArgumentError names what cannot be used.
    """
    order = whole_number("order", order, 1)
    relation = dispersion_relation(block, state)
    a, gauge = relation.state, feature_gauge(block)
    residual = float(np.abs(gauge @ (block.homogeneous_map(a) - a)).max())
    if residual > 1e-9 * (1 + np.abs(a).max()):
        raise ArgumentError("state", f"{a} with |g(a) − a| = {residual:.2g}", "a fixed point of g")
    chosen = _with_mirror_images(relation, (modes,) if isinstance(modes, Mode) else tuple(modes))
    variables = _variables(chosen, block)
    grading = Grading(block.shape, tuple(variable.k for variable in variables), order)
    series, f = _solve(block, relation, grading, variables)
    reduced = ReducedMap(grading.table, f, tuple(variable.conjugate for variable in variables))
    return NormalForm(block, a, chosen, order, reduced, series.field.values, grading.places())


def feature_gauge(block: Block) -> NDArray[np.float64]:
    """(d, d) the identity, or I − 11ᵀ/d where adding one number to all features of a token passes through the block
    unchanged: pre-normalisation by LayerNorm in both branches. That number is then neutral at every wavenumber
    (J(q)1 = 1) and acts on nothing, so the form describes states up to it.
    """
    norms = [block.attention_norm] + ([block.feedforward_norm] if block.feedforward is not None else [])
    if block.placement == "pre" and all(isinstance(norm, LayerNorm) for norm in norms):
        return np.eye(block.d) - 1 / block.d
    return np.eye(block.d)


def _solve(
    block: Block, relation: Dispersion, grading: Grading, variables: list[Variable]
) -> tuple[BlockSeries, NDArray[np.complex128]]:
    """X (in the series' field) and f (variables, M), order by order."""
    table, places = grading.table, grading.places()
    series = BlockSeries(block, relation.state, grading)
    X, gauge = series.field.values, feature_gauge(block)
    multipliers = np.array([variable.multiplier for variable in variables])
    f = np.zeros((len(variables), len(table)), dtype=complex)
    powers = np.zeros((len(table), len(table)), dtype=complex)  # row n holds the series of f^n
    linear = np.arange(len(table))[table.degree(1)]
    for number in linear:
        (s,) = np.flatnonzero(table.exponents[number])
        X[number], f[s, number] = gauge @ variables[s].right, variables[s].multiplier
    powers[linear] = f[[int(np.flatnonzero(table.exponents[number])[0]) for number in linear]]
    series.update(1)
    matrices = gauge @ relation.matrices.reshape(-1, block.d, block.d)
    growth = np.prod(multipliers**table.exponents, axis=1)
    phase = np.prod((multipliers / np.abs(multipliers)) ** table.exponents, axis=1)
    for p in range(2, grading.order + 1):
        degree = table.degree(p)
        _compose(table, f, powers, p)
        series.update(p)
        composed = powers[: degree.start, degree].T @ X[: degree.start]
        known = series.image.values[degree] @ gauge - composed
        for number in range(degree.start, degree.stop):
            resonant = [
                s
                for s, variable in enumerate(variables)
                if _place(variable, grading.shape) == places[number]
                and abs(phase[number] - variable.multiplier / abs(variable.multiplier)) <= RESONANCE
            ]
            X[number], f[resonant, number] = _homological(
                growth[number], matrices[places[number]], known[number - degree.start], [variables[s] for s in resonant]
            )
        powers[linear, degree] = f[[int(np.flatnonzero(table.exponents[number])[0]) for number in linear], degree]
        series.update(p)
    return series, f


def _homological(
    growth: complex, J: NDArray[np.complex128], known: NDArray[np.complex128], resonant: list[Variable]
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """X_m and f_{s,m} from [Λ^m − J]X_m + Σ_s v_s f_{s,m} = known, w_sᴴX_m = 0 for the resonant s."""
    d, r = len(J), len(resonant)
    system = np.zeros((d + r, d + r), dtype=complex)
    system[:d, :d] = growth * np.eye(d) - J
    for column, variable in enumerate(resonant, d):
        system[:d, column], system[column, :d] = variable.right, variable.left.conj()
    if np.linalg.cond(system) > 1e12:
        raise ExclusionError("modes", "a slaved mode with the multiplier of a product of modes", "that mode as well")
    solved = np.linalg.solve(system, np.concatenate([known, np.zeros(r)]))
    return solved[:d], solved[d:]


def _compose(table: Monomials, f: NDArray[np.complex128], powers: NDArray[np.complex128], p: int) -> None:
    """Degree p of f^n for every n of degree 2 … p: f^n = f^{n'} f_s with f_s known below degree p."""
    rows = np.arange(len(table))[(table.degrees >= 2) & (table.degrees <= p)]
    variable, parent = table.parents
    pairs = table.pairs(p)
    inner = (table.degrees[pairs.first] >= 1) & (table.degrees[pairs.first] < p)
    products = powers[parent[rows]][:, pairs.second] * np.where(inner, f[variable[rows]][:, pairs.first], 0)
    powers[rows, table.degree(p)] = np.add.reduceat(products, pairs.starts, axis=1)


def _with_mirror_images(relation: Dispersion, modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    if not modes or not all(isinstance(mode, Mode) for mode in modes):
        raise ArgumentError("modes", [type(mode).__name__ for mode in modes], "one Mode or more")
    chosen = list(modes)
    for mode in modes:
        place = _place(mode, relation.shape)
        J = relation.matrices.reshape(-1, relation.d, relation.d)[place]
        if np.abs(J @ mode.right - mode.multiplier * mode.right).max() > 1e-8 * np.abs(J).max():
            raise ArgumentError(
                "modes", f"k = {mode.k}, Λ = {mode.multiplier:.6g}", "modes of this block at this state"
            )
        if np.isnan(mode.left).any():
            raise ExclusionError("modes", f"a defective multiplier at k = {mode.k}", "a simple one")
        mirror = tuple(int(part) for part in -np.atleast_1d(mode.k) % relation.shape)
        oscillates = abs(mode.multiplier.imag) > TOLERANCE * abs(mode.multiplier)
        image = replace(mode, k=mirror[0] if len(mirror) == 1 else mirror)
        if oscillates and not J.imag.any() and _place(image, relation.shape) != place:
            chosen.append(image)
    return tuple(chosen)


def _variables(modes: tuple[Mode, ...], block: Block) -> list[Variable]:
    variables: list[Variable] = []
    for number, mode in enumerate(modes):
        k = tuple(int(part) % n for part, n in zip(np.atleast_1d(mode.k), block.shape, strict=True))
        mirror = tuple(-part % n for part, n in zip(k, block.shape, strict=True))
        place = len(variables)
        real = k == mirror and abs(mode.multiplier.imag) <= TOLERANCE * abs(mode.multiplier)
        first = Variable(k, mode.multiplier, mode.right, mode.left, number, place if real else place + 1)
        variables.append(first)
        if not real:
            conjugate = np.conj(mode.multiplier), mode.right.conj(), mode.left.conj()
            variables.append(Variable(mirror, *conjugate, number, place))
    taken = [(variable.k, np.round(variable.multiplier, 9)) for variable in variables]
    if len(set(taken)) < len(taken):
        raise ArgumentError("modes", "the same mode twice", "different modes")
    return variables


def _place(mode: Mode | Variable, shape: tuple[int, ...]) -> int:
    """Flat index of the wavenumber of a mode or variable."""
    return int(np.ravel_multi_index(tuple(np.atleast_1d(mode.k) % np.array(shape)), shape))
