"""The invariant manifold of some modes and the map on it, order by order (the general method, derived).

    [Λ^m I − J(k(m))] X_m + Σ_s v_s f_{s,m} = (F(X))_m − (X(f))_m, both without X_m and f_{s,m}.

A monomial stays in f_s if it is resonant, k(m) ≡ k_s and Λ̂^m ≈ Λ̂_s with Λ̂ = Λ/|Λ|; the rest is removed by X_m.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from amplitude.normal_forms.block_series import BlockSeries
from amplitude.normal_forms.monomials import Monomials
from amplitude.normal_forms.power_series import Grading
from dispersion import ArgumentError, Block, Dispersion, ExclusionError, LayerNorm, Mode
from dispersion.eigen import TOLERANCE
from dispersion.memory import require

Complex = NDArray[np.complexfloating]

RESONANCE = 0.05
"""|Λ̂^m − Λ̂_s| up to which a monomial of the right wavenumber is kept in the normal form."""
SINGULAR = 1e-12
"""Relative size of the smallest singular value under which a slaved mode cannot be solved for."""


@dataclass(frozen=True, eq=False)
class Variable:
    """One variable of the form: the amplitude of a mode (k, Λ, v, w), or the conjugate of one.

    k : (D,) wavenumber, place its flat index; multiplier, right, left : Λ, v, w; conjugate : the number of the variable
    that is its complex conjugate, its own for a real amplitude.
    """

    k: tuple[int, ...]
    place: int
    multiplier: complex
    right: Complex
    left: Complex
    conjugate: int


def feature_gauge(block: Block) -> NDArray[np.float64]:
    """(d, d) the identity, or I − 11ᵀ/d where adding one number to all features of a token passes through the `block`
    unchanged: pre-normalisation by LayerNorm in both branches. That number is then neutral at every wavenumber
    (J(q)1 = 1) and acts on nothing, so the form describes states up to it.
    """
    norms = [block.attention_norm] + ([block.feedforward_norm] if block.feedforward is not None else [])
    if block.placement == "pre" and all(isinstance(norm, LayerNorm) for norm in norms):
        return np.eye(block.d) - 1 / block.d
    return np.eye(block.d)


def place_of(k: object, shape: tuple[int, ...]) -> int:
    """Flat index of the wavenumber `k` on a grid of this `shape`."""
    return int(np.ravel_multi_index(tuple(np.atleast_1d(np.asarray(k)) % np.array(shape)), shape))


def with_mirror_images(relation: Dispersion, modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """`modes`, checked to be modes of `relation`, and the mirror image −k of those that need it: where J is real
    and Λ complex both travel, to the left and to the right.
    """
    if not modes or not all(isinstance(mode, Mode) for mode in modes):
        raise ArgumentError("modes", [type(mode).__name__ for mode in modes], "one Mode or more")
    images, gauge = list[Mode](), feature_gauge(relation.block)
    for mode in modes:
        place = place_of(mode.k, relation.shape) if mode.shape == relation.shape else -1
        J = relation.matrices.reshape(-1, relation.d, relation.d)[place]
        mapped = J @ mode.right if len(mode.right) == relation.d else np.inf
        if place < 0 or np.abs(mapped - mode.multiplier * mode.right).max() > 1e-8 * np.abs(J).max():
            got = f"k = {mode.k}, Λ = {mode.multiplier:.6g}"
            raise ArgumentError("modes", got, "modes of this block at this state")
        if np.abs(gauge @ mode.right).max() < 1e-6:
            raise ExclusionError(
                "modes", "the neutral mean over features", "a mode that changes differences of features"
            )
        if np.isnan(mode.left).any() or mode.multiplier == 0:
            kind = "a zero" if mode.multiplier == 0 else "a defective"
            raise ExclusionError("modes", f"{kind} multiplier at k = {mode.k}", "a simple one near the unit circle")
        mirror = tuple(int(part) for part in -np.atleast_1d(mode.k) % relation.shape)
        image = replace(mode, k=mirror[0] if len(mirror) == 1 else mirror)
        oscillates = abs(mode.multiplier.imag) > TOLERANCE * abs(mode.multiplier)
        if oscillates and np.abs(J.imag).max() <= TOLERANCE * np.abs(J).max() and place_of(mirror, mode.shape) != place:
            images.append(image)
    names = [_identity(mode) for mode in modes]
    return modes + tuple(image for image in images if _identity(image) not in names)


def _identity(mode: Mode) -> tuple[int, complex]:
    return place_of(mode.k, mode.shape), complex(np.round(mode.multiplier, 9))


def variables_of(modes: tuple[Mode, ...], shape: tuple[int, ...]) -> list[Variable]:
    """The amplitude of each of `modes` on a grid of this `shape`, each followed by its conjugate unless it is real.

    It is real at q = 0 and π (on every axis) with a real Λ.
    """
    variables: list[Variable] = []
    for mode in modes:
        k = tuple(int(part) % n for part, n in zip(np.atleast_1d(mode.k), shape, strict=True))
        mirror = tuple(-part % n for part, n in zip(k, shape, strict=True))
        number = len(variables)
        real = k == mirror and abs(mode.multiplier.imag) <= TOLERANCE * abs(mode.multiplier)
        own = k, place_of(k, shape), mode.multiplier, mode.right, mode.left
        variables.append(Variable(*own, number if real else number + 1))
        if not real:
            conjugate = np.conj(mode.multiplier), mode.right.conj(), mode.left.conj()
            variables.append(Variable(mirror, place_of(mirror, shape), *conjugate, number))
    taken = {(variable.place, complex(np.round(variable.multiplier, 9))) for variable in variables}
    if len(taken) < len(variables):
        raise ArgumentError("modes", "the same mode twice", "different modes")
    return variables


def solve(
    block: Block, relation: Dispersion, grading: Grading, variables: list[Variable]
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """X (M, d) and f (variables, M) over the monomials of `grading`.

    block, relation : F, and J at the base state; variables : those of the form.
    """
    table, places, d = grading.table, grading.places(), block.d
    got = f"{grading.order}, with {len(table):,} monomials of {len(variables)} variables"
    require("order", got, 32 * len(table) ** 2)
    series, gauge = BlockSeries(block, relation.state, grading), feature_gauge(block)
    X, matrices = series.field.values, gauge @ relation.matrices.reshape(-1, d, d)
    multipliers = np.array([variable.multiplier for variable in variables])
    units = multipliers / np.abs(multipliers)
    products, turned = (np.prod(values**table.exponents, axis=1) for values in (multipliers, units))
    own = np.array([variable.place for variable in variables])
    # k(m) ≡ k_s and Λ̂^m ≈ Λ̂_s
    resonant = (own[:, None] == places) & (np.abs(turned - units[:, None]) <= RESONANCE)
    linear = table.number_of(np.eye(len(variables), dtype=np.int64))
    f = np.zeros((len(variables), len(table)), dtype=complex)
    f[np.arange(len(variables)), linear] = multipliers
    powers = np.zeros((len(table), len(table)), dtype=complex)  # row n holds the series of f^n
    powers[linear] = f
    X[linear] = np.array([variable.right for variable in variables]) @ gauge
    series.update(1)
    for p in range(2, grading.order + 1):
        degree = table.degree(p)
        _compose(table, f, powers, p)
        series.update(p)
        # [Λ^m − J(k(m))]X_m + Σ_s v_s f_{s,m} = (F(X))_m − (X(f))_m, X_m and f_{s,m} left out on the right
        known = series.image.values[degree] @ gauge - powers[: degree.start, degree].T @ X[: degree.start]
        systems = products[degree, None, None] * np.eye(d) - matrices[places[degree]]
        free = ~resonant[:, degree].any(axis=0)
        X[degree][free] = _solved(systems[free], known[free])
        for number in np.flatnonzero(~free):
            kept = np.flatnonzero(resonant[:, degree.start + number])
            solved = _bordered(systems[number], known[number], [variables[s] for s in kept])
            X[degree.start + number], f[kept, degree.start + number] = solved[:d], solved[d:]
        powers[linear, degree] = f[:, degree]
        series.update(p)
    return X, f


def _bordered(system: Complex, known: Complex, kept: list[Variable]) -> Complex:
    """X_m (d,) and f_{s,m} in one, from [Λ^m − J]X_m + Σ_s v_s f_{s,m} = known, w_sᴴX_m = 0 for the resonant s."""
    d, r = len(system), len(kept)
    whole = np.zeros((d + r, d + r), dtype=complex)
    whole[:d, :d] = system
    for column, variable in enumerate(kept, d):
        whole[:d, column], whole[column, :d] = variable.right, variable.left.conj()
    return _solved(whole[None], np.concatenate([known, np.zeros(r)])[None])[0]


def _solved(systems: Complex, known: Complex) -> Complex:
    """(n, d) the solutions of `systems` (n, d, d) for the right sides `known` (n, d)."""
    scalar = systems.shape[-1] == 1
    smallest = np.abs(systems[:, 0, 0]) if scalar else np.linalg.svd(systems, compute_uv=False)[:, -1]
    if (smallest <= SINGULAR * np.maximum(1, np.abs(systems).max(axis=(1, 2)))).any():
        got = "a slaved mode whose multiplier is a product of multipliers"
        raise ExclusionError("modes", got, "that mode among the modes, or a block away from this resonance")
    solved: Complex = known / systems[:, 0] if scalar else np.linalg.solve(systems, known[..., None])[..., 0]
    return solved


def _compose(table: Monomials, f: Complex, powers: Complex, p: int) -> None:
    """Degree p of f^n for every n of degree 2 … p: f^n = f^{n'} f_s with f_s known below degree p."""
    rows = slice(table.degree(2).start, table.degree(p).stop)
    variable, parent = table.parents
    pairs = table.pairs(p)
    inner = (table.degrees[pairs.first] >= 1) & (table.degrees[pairs.first] < p)
    # f has few terms: only their products count
    kept = np.flatnonzero(inner & np.any(f, axis=0)[pairs.first])
    first, second = pairs.first[kept], pairs.second[kept]
    products = powers[parent[rows]][:, second] * f[variable[rows]][:, first]
    target, starts = np.unique(table.number(table.codes[first] + table.codes[second]), return_index=True)
    powers[rows, target] = np.add.reduceat(products, starts, axis=1)
