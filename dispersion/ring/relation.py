"""The matrix dispersion relation J(q) of a block at a homogeneous state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.block import Block, require_periodic
from dispersion.block.slopes import Slopes, slopes_at
from dispersion.eigen import TOLERANCE, eigenvalues, ranking
from dispersion.errors import ArgumentError, ExclusionError, instance, items, number_array, whole_number
from dispersion.grid import Wavenumber, conjugate_pairs, grid_index, grid_wavenumbers, unfolded, wavenumber
from dispersion.memory import require
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64, harmless_underflow
from dispersion.ring.mode import Eigensystem, Isolated, Mode, eigenmode
from dispersion.structured import EPSILON, conditioned, decays, moved
from dispersion.summary import growth, on_tokens, paragraph, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LARGEST = 10**8
"""N·d³ up to which printing computes multipliers."""
LARGE = 128
"""Number of features from which a mode alone is cheaper than all of its matrix."""
APART = 1e-6
"""Distance from the others, relative to the largest, from which a multiplier is alone."""
GROUPED = 16
"""The least number of features for which it pays to look for equal J(q)."""
ROUNDING = 4 * EPSILON
"""How far apart λ(q) may be that are equal but for rounding."""


class Spectrum(Noun):
    """What follows from the matrices J(q) on the grid of a ring (N,) or torus (N_1, …, N_D).

    A subclass gives `shape`, the grid, and `matrices`, (*shape, d, d) with J(−q) = conj J(q). Fields "on the
    grid" are indexed by k, q = 2πk/N, k = 0 … N−1 on each axis.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) of the ring or (N_1, …, N_D) of the torus."""
        raise NotImplementedError

    @property
    def matrices(self) -> NDArray[np.complex128]:
        """(*shape, d, d) J(q) on the grid."""
        raise NotImplementedError

    @property
    def distinct(self) -> tuple[NDArray, NDArray[np.intp]]:
        """((G, d, d) the different J(q), real if all are; (K,) which of them each wavenumber has, one of each pair ±q).

        Wavenumbers are in the order of the grid. A subclass says where it knows matrices to be equal.
        """
        half, _ = conjugate_pairs(self.shape)
        return self.matrices.reshape(-1, self.d, self.d)[half], self.places

    @property
    def places(self) -> NDArray[np.intp]:
        """(K,) which of the `distinct` matrices each wavenumber has, one of each pair ±q."""
        return np.arange(len(conjugate_pairs(self.shape)[0]))

    @property
    def d(self) -> int:
        """Number of features."""
        return self.matrices.shape[-1]

    @property
    def wavenumbers(self) -> NDArray[np.float64]:
        """The grid q = 2πk/N in radians per token, (N,) on a ring and (*shape, D) on a torus."""
        return grid_wavenumbers(self.shape)

    @cached_property
    def multipliers(self) -> NDArray[np.complex128]:
        """(*shape, d) eigenvalues Λ of J(q) on the grid by decreasing modulus, equal ones by decreasing phase."""
        count, d = prod(self.shape), self.d
        require("block", f"multipliers of {d:,} features at {count:,} wavenumbers", 48 * count * d)
        matrices, place = self.distinct
        values = eigenvalues(matrices)
        return unfolded(np.take_along_axis(values, ranking(values), axis=-1)[place], self.shape)

    @property
    def growth(self) -> NDArray[np.float64]:
        """(*shape) spectral radius ρ(J(q)) on the grid: the growth factor per layer, critical at 1."""
        return np.abs(self.multipliers[..., 0])

    @property
    def phases(self) -> NDArray[np.float64]:
        """(*shape, d) arg Λ on the grid, radians per layer."""
        return np.angle(self.multipliers)

    @cached_property
    def errors(self) -> NDArray[np.float64]:
        """(*shape) how far `growth` may be from the truth by rounding: large where J(q) is far from normal."""
        matrices = self.matrices.reshape(-1, self.d, self.d)
        values, cosines = conditioned(matrices)
        sizes = np.linalg.norm(matrices, axis=(-2, -1))
        distance = EPSILON * self.d * self._magnitude().reshape(-1)
        spread = moved(distance[:, None], sizes[:, None], cosines, self.d)
        moduli = np.abs(values)
        # another multiplier may be the largest in truth
        upper, lower = (moduli + spread).max(axis=-1), (moduli - spread).max(axis=-1)
        growth = moduli.max(axis=-1)
        return np.maximum(upper - growth, growth - lower).reshape(self.shape)

    def _magnitude(self) -> NDArray[np.float64]:
        """(*shape) size of what J(q) was added up from, of which rounding is a part."""
        return np.linalg.norm(self.matrices, axis=(-2, -1))

    @property
    def stable(self) -> bool:
        """Whether every mode decays: max_q ρ(J(q)) < 1 (Eq. 59), by more than rounding.

        An ExclusionError says where J(q) is so far from normal that `errors` leave it open.
        """
        return decays(self.growth, self.errors, 1 - TOLERANCE)

    def leading(self) -> Mode:
        """The mode with the largest |Λ|; of equal ones, that with the smallest k."""
        return self.modes(1)[0]

    @property
    def leading_wavenumber(self) -> Wavenumber:
        """k of the `leading` mode, an int on a ring and a tuple on a torus."""
        return self._leading(1)[0][0]

    def modes(self, count: int) -> list[Mode]:
        """The modes of largest |Λ|, one of each pair ±k, by decreasing |Λ|, equal ones by increasing k.

        Parameters
        ----------
        count : int
            How many, 1 or more.

        Returns
        -------
        list of Mode
            `count` of them, or all if there are fewer.
        """
        return [self.mode(k, index) for k, index in self._leading(whole_number("count", count, 1))]

    @harmless_underflow
    def _leading(self, count: int) -> list[tuple[Wavenumber, int]]:
        half, _ = conjugate_pairs(self.shape)
        values = self.multipliers.reshape(-1, self.d)[half].ravel()
        places = (divmod(int(place), self.d) for place in ranking(values, np.arange(values.size))[:count])
        return [(wavenumber(int(half[row]), self.shape), index) for row, index in places]

    def mode(self, k: Wavenumber, index: int = 0) -> Mode:
        """The mode at wavenumber `k` whose |Λ| is number `index`, in the order of `multipliers`.

        Parameters
        ----------
        k : int or tuple of int
            An int on a ring, a tuple on a torus. −k is taken as k: the two are conjugate.
        index : int
            0 for the largest |Λ|, … d−1.

        Returns
        -------
        Mode
            The mode, with right and left vectors.
        """
        if whole_number("index", index, 0) >= self.d:
            raise ArgumentError("index", index, f"0 … {self.d - 1}")
        group, place, _ = self._group(k)
        at = wavenumber(place, self.shape), self.shape
        if self.d >= LARGE:
            values = self.multipliers.reshape(-1, self.d)[place]
            apart = np.abs(np.delete(values, index) - values[index]).min()
            found = Isolated(self._kind(group), complex(values[index])) if apart > APART * abs(values[0]) else None
            if found is not None and found.settled:
                return eigenmode(found, 0, *at)
        return eigenmode(self._eigensystem(group), index, *at)

    def matrix(self, k: Wavenumber) -> NDArray:
        """(d, d) J(q) at one wavenumber of the grid, real if all are.

        Parameters
        ----------
        k : int or tuple of int
            An int on a ring, a tuple on a torus.
        """
        group, _, conjugate = self._group(k)
        matrix = self._kind(group)
        return matrix.conj() if conjugate else matrix

    @beyond_float64
    def images(self, k: Sequence[Wavenumber], vectors: ArrayLike) -> NDArray[np.complex128]:
        """(n, d) J(q) v of n vectors, each at a wavenumber of its own.

        Parameters
        ----------
        k : sequence of int or of tuple of int
            (n,) wavenumbers of the grid, an int on a ring, a tuple on a torus; one at least.
        vectors : (n, d) array_like
            v of each, real or complex.
        """
        waves = items("k", k)
        if not waves:
            raise ArgumentError("k", "none", "one wavenumber or more")
        v = number_array("vectors", vectors)
        if v.shape != (len(waves), self.d):
            raise ArgumentError("vectors", f"shape {v.shape}", f"numbers of shape ({len(waves)}, {self.d})")
        groups, _, turned = (np.array(part) for part in zip(*map(self._group, waves), strict=True))
        # J(−q) v = conj(J(q) conj v)
        found = self._images(groups, np.where(turned[:, None], v.conj(), v))
        return np.where(turned[:, None], found.conj(), found).astype(complex)

    def _images(self, groups: NDArray[np.intp], vectors: NDArray) -> NDArray:
        """(n, d) of `vectors` by those of the `distinct` matrices that `groups` (n,) names."""
        matrices, images = self.distinct[0], np.empty(vectors.shape, dtype=complex)
        for group in np.unique(groups):
            images[groups == group] = vectors[groups == group] @ matrices[group].T
        return images

    def _group(self, k: Wavenumber) -> tuple[int, int, bool]:
        """(which of the `distinct` matrices `k` has, the flat index of the k or −k there, whether that is −k)."""
        half, partner = conjugate_pairs(self.shape)
        place = grid_index("k", k, self.shape)
        there = min(place, int(partner[place]))
        return int(self.places[np.searchsorted(half, there)]), there, there != place

    @cached_property
    def _eigensystem(self) -> Callable[[int], Eigensystem]:
        """The Eigensystem of one of the `distinct` matrices, the last ones asked for kept."""
        return lru_cache(maxsize=2)(lambda group: Eigensystem(self._kind(group)))

    def _kind(self, group: int) -> NDArray:
        """(d, d) one of the `distinct` matrices."""
        matrix: NDArray = self.distinct[0][group]
        return matrix

    def __str__(self) -> str:
        if "multipliers" not in vars(self) and prod(self.shape) * self.d**3 > LARGEST:
            return paragraph(self._title(), "its multipliers are not computed: ask for leading()")
        try:
            mode = self.leading()
        except ArgumentError as error:
            return paragraph(self._title(), f"not computed: {error}")
        found = f"largest {growth(mode.multiplier, self._span())}, at k = {mode.k}: {mode.morphology}"
        return paragraph(self._title(), found, self._verdict())

    def _title(self) -> str:
        return f"J(q) {on_tokens(self.shape)}, d = {self.d}"

    def _span(self) -> str:
        """Over what a multiplier is a factor."""
        return " a layer"

    def _verdict(self) -> str:
        try:
            return "stable" if self.stable else "not stable"
        except ExclusionError as error:
            return f"stability undecided: {error.got}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw ρ(J(q)), against k on a ring and as a map on a 2-D torus.

        Parameters
        ----------
        ax : Axes, optional
            The axes, by default the current ones.

        Returns
        -------
        Axes
            The axes.
        """
        from dispersion.plot import plot_spectrum

        return plot_spectrum(self, ax)


class Mixed(Spectrum):
    """A Spectrum J(q) = C + Σ_h λ_h(q) ε_a C M_h N_1, of which a subclass gives `slopes` and `symbols`."""

    slopes: Slopes
    """C, the channels and what else of the block does not depend on q."""
    symbols: NDArray[np.complex128]
    """(heads, *shape) λ_h on the grid."""

    @property
    def d(self) -> int:
        """Number of features."""
        return self.slopes.block.d

    @cached_property
    def matrices(self) -> NDArray[np.complex128]:
        """(*shape, d, d) J(q) on the grid."""
        return self.slopes.matrices(self.symbols)

    @property
    def distinct(self) -> tuple[NDArray, NDArray[np.intp]]:
        """((G, d, d) the different J(q), real if all are; (K,) which of them each wavenumber has, one of each pair ±q).

        Where all λ_h(q) are equal up to rounding there is one matrix, if d ≥ GROUPED.
        """
        if self.d < GROUPED:
            return super().distinct
        symbols, places = self._kinds
        matrices = self.slopes.matrices(symbols)
        return matrices if matrices.imag.any() else np.array(matrices.real), places

    @property
    def places(self) -> NDArray[np.intp]:
        """(K,) which of the `distinct` matrices each wavenumber has, one of each pair ±q."""
        return super().places if self.d < GROUPED else self._kinds[1]

    @cached_property
    def _kinds(self) -> tuple[NDArray[np.complex128], NDArray[np.intp]]:
        """((heads, G) the different λ, (K,) which of them each wavenumber has)."""
        half, _ = conjugate_pairs(self.shape)
        symbols = self.symbols.reshape(len(self.symbols), -1)[:, half]
        first, place = alike(symbols)
        return symbols[:, first], place


@dataclass(frozen=True, eq=False)
class Dispersion(Mixed):
    """J(q) = C[I + ε_a Σ_h λ_h(q) M_h N_1] of `block` at the homogeneous state 1⊗`state` (Eqs. 9, 68).

    Call it with wavenumbers: `relation(q)` has shape (…, d, d) for q (…), or (…, D) on a torus.

    Attributes
    ----------
    block : Block
        The block.
    state : (d,) ndarray
        The base state a of 1⊗a.
    """

    block: Block
    state: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) of the ring or (N_1, …, N_D) of the torus."""
        return self.block.shape

    def _title(self) -> str:
        heads = len(self.block.heads)
        return f"{super()._title()}, {heads} head{'s' * (heads > 1)}, at the state {vector(self.state)}"

    @cached_property
    def slopes(self) -> Slopes:
        """C, the channels and what else of the block does not depend on q."""
        return slopes_at(self.block, self.state)

    @property
    def pointwise(self) -> NDArray[np.float64]:
        """(d, d) C = DH(y*)."""
        return self.slopes.pointwise

    @property
    def channels(self) -> NDArray[np.float64]:
        """(heads, d, d) ε_a C M_h N_1, what λ_h(q) multiplies."""
        return self.slopes.channels

    @cached_property
    def symbols(self) -> NDArray[np.complex128]:
        """(heads, *shape) λ_h on the grid at this state."""
        return np.array([head.symbol(self.slopes.seen) for head in self.block.heads])

    def __call__(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, d, d) J at real or complex wavenumbers.

        Parameters
        ----------
        q : (…) or (…, D) array_like
            Radians per token, (…) on a ring and (…, D) on a torus.

        Returns
        -------
        (…, d, d) complex ndarray
            J(q).
        """
        return self.slopes.matrices(np.array([head.symbol_at(q, self.slopes.seen) for head in self.block.heads]))

    @cached_property
    def distinct(self) -> tuple[NDArray, NDArray[np.intp]]:
        """As of Mixed."""
        return super().distinct


@harmless_underflow
def dispersion_relation(block: Block, state: ArrayLike | None = None) -> Dispersion:
    """The dispersion relation of `block` at the base state 1⊗a.

    Parameters
    ----------
    block : Block
        The block, on a ring or torus.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default. It need not be a fixed point: J(q) is then the derivative of one
        layer from 1⊗a to 1⊗g(a).

    Returns
    -------
    Dispersion
        J(q) on the grid, and at any q when called.

    Raises
    ------
    ArgumentError
        Where J(q) does not exist: a normalisation at a state without variance, ReLU at its kink, a bias that is not a
        function of the lag, rotary frequencies off the grid, logits beyond float64.
    """
    require_periodic(instance("block", block, Block))
    relation = Dispersion(block, block.homogeneous_state(state))
    _ = relation.slopes  # now, not when first used
    if not np.isfinite(relation.symbols).all():
        raise ArgumentError("state", "logits beyond float64", "a state whose logits are finite")
    return relation


def alike(symbols: NDArray[np.complex128]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """((G,) the first wavenumber of each kind, (K,) the kind of each) of `symbols` λ_h(q), (heads, K).

    Those of one kind agree to the rounding of λ, a sum of weights that add up to one.
    """
    parts = np.concatenate([symbols.real, symbols.imag]) / ROUNDING
    _, first, place = np.unique(np.round(parts) + 0.0, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[place.ravel()]
