"""Attention that is not translation invariant: any N×N weights, where J(q) does not exist.

At a homogeneous state 1⊗a the derivative of the weights drops out whatever they are, since rows sum to 1 (Eq. 55):

    DF = I⊗C + ε_a Σ_h A_h ⊗ C M_h N_1,   fields listed token by token: entry i·d + α is feature α of token i

One head reduces to N matrices of size d, one for each eigenvalue of A (Theorem 4.1); several heads that do not commute
need the whole matrix, or its action alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.block import Block, require_periodic
from dispersion.block.slopes import Slopes, jacobian_bytes, slopes_at
from dispersion.eigen import eigenvalues, ranking
from dispersion.errors import RNG, ArgumentError, generator, instance, whole_number
from dispersion.memory import require
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow
from dispersion.structured import EPSILON, components, conditioned, decays, moved, require_known, spectrum
from dispersion.summary import growth, paragraph

KRYLOV = 64
"""Least number of Arnoldi vectors."""

PARTNERS = 1e-6
"""Distance, in slopes of the largest Λ, under which a right and a left vector belong to one Λ."""

DENSE = 256
"""Size N·d up to which leading multipliers come from the dense Jacobian."""


@dataclass(frozen=True, eq=False)
class AttentionSpectrum(Noun):
    """The multipliers of a block with one head, from the eigenvalues of its attention weights (Theorem 4.1).

    Attributes
    ----------
    attention : (N, N) ndarray
        Weights A at the homogeneous state.
    symbols : (N,) complex ndarray
        Eigenvalues λ_k of A, repeated ones repeated.
    multipliers : (N, d) complex ndarray
        Eigenvalues of C[I + ε_a λ_k M N_1], by decreasing modulus; the λ_k are ordered by the largest of theirs. All of
        them together are the spectrum of DF, also if A is not diagonalisable.
    errors : (N,) ndarray
        How far those of each λ_k may be from the truth, by rounding: zero for a triangular A and d = 1, large where A
        is far from normal.
    """

    attention: NDArray[np.float64]
    symbols: NDArray[np.complex128]
    multipliers: NDArray[np.complex128]
    errors: NDArray[np.float64]

    def __str__(self) -> str:
        n, d = self.multipliers.shape
        largest = f"largest {growth(self.multipliers[0, 0])}, at λ = {self.symbols[0]:z.4g}"
        return paragraph(f"spectrum of attention among {n} tokens, d = {d}", largest)

    @property
    def growth(self) -> NDArray[np.float64]:
        """(N,) spectral radius for each λ_k, decreasing."""
        return np.abs(self.multipliers[:, 0])

    @property
    def stable(self) -> bool:
        """Whether every perturbation decays: all |Λ| < 1 (Eq. 22); an ExclusionError where `errors` leave it open."""
        return decays(self.growth, self.errors)


@harmless_underflow
def attention_spectrum(block: Block, state: ArrayLike | None = None) -> AttentionSpectrum:
    """sp(DF) = ∪_k sp(C[I + ε_a λ_k M N_1]) at 1⊗`state` of a `block` with one head, λ_k those of A (Eqs. 5, 22).

    Parameters
    ----------
    block : Block
        With one head. A may be any N×N weights, such as those of a head with a bias; of a block triangular A, in
        whatever order of the tokens, the diagonal blocks are diagonalised.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default.

    Returns
    -------
    AttentionSpectrum
        The weights, their eigenvalues and the multipliers.

    Raises
    ------
    ArgumentError
        Refuses several heads, and the bytes of more than 80 % of the available memory.
    """
    slopes = _slopes(block, state)
    if len(block.heads) != 1:
        accepted = "one head; full_jacobian or leading_multipliers for several"
        raise ArgumentError("block", f"{len(block.heads)} heads", accepted)
    require("block", f"attention of {block.n:,}² weights and its spectrum", 8 * 10 * block.n**2)
    (attention,) = slopes.attention()
    symbols, doubt = spectrum(attention)
    matrices = symbols[:, None, None] * slopes.channels[0] + slopes.pointwise
    multipliers = eigenvalues(matrices)
    multipliers = np.take_along_axis(multipliers, ranking(multipliers), axis=-1)
    sizes = np.linalg.norm(matrices, axis=(-2, -1))
    # what moves λ moves C + λV, beside the rounding of the matrix itself
    distance = doubt * np.linalg.norm(slopes.channels[0]) + EPSILON * block.d * sizes
    errors = moved(distance, sizes, conditioned(matrices)[1].min(axis=-1), block.d)
    order = ranking(multipliers[:, 0])
    return AttentionSpectrum(attention, symbols[order], multipliers[order], errors[order])


@harmless_underflow
def jacobian_memory(block: Block) -> int:
    """The bytes that `full_jacobian` of a `block` needs at its peak: two (N·d)² float64 matrices, and the weights.

    Parameters
    ----------
    block : Block
        Of N tokens and d features.
    """
    return jacobian_bytes(len(instance("block", block, Block).heads), block.n, block.d)


@harmless_underflow
def full_jacobian(block: Block, state: ArrayLike | None = None, memory: float | None = None) -> NDArray[np.float64]:
    """(N·d, N·d) DF at 1⊗`state` of a `block`: I⊗C + ε_a Σ_h A_h ⊗ C M_h N_1, tokens before features (Eq. 55).

    Parameters
    ----------
    block : Block
        Of N tokens and d features.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default.
    memory : float, optional
        The most bytes it may use, by default 80 % of those available.

    Returns
    -------
    (N·d, N·d) ndarray
        Entry i·d + α is feature α of token i, on both axes.

    Raises
    ------
    ArgumentError
        With the number, refuses more than `memory` before anything is allocated.
    """
    slopes = _slopes(block, state)
    require("block", f"a Jacobian of {block.n * block.d:,}²", jacobian_memory(block), memory)
    return slopes.dense(slopes.attention())


@harmless_underflow
def leading_multipliers(
    block: Block, state: ArrayLike | None = None, count: int = 6, memory: float | None = None, rng: RNG = 0
) -> NDArray[np.complex128]:
    """(count,) the `count` eigenvalues Λ of DF at 1⊗`state` of largest modulus, equal ones by decreasing phase.

    Parameters
    ----------
    block : Block
        Of any heads, which need not commute.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default.
    count : int
        How many, 1 … N·d.
    memory : float, optional
        The most bytes it may use, by default 80 % of those available; more is refused.
    rng : int or Generator
        Seed of the start.

    Returns
    -------
    (count,) complex ndarray
        The Λ.

    Raises
    ------
    ExclusionError
        Where DF is so far from normal that rounding may move these Λ by 1e-4 of the largest.

    Notes
    -----
    Tokens that attend to one another only one way, as under a causal mask, are taken apart: DF is block triangular in
    some order of theirs, and its spectrum that of the diagonal blocks. Of a block of more than N·d = 256 only the
    action of DF is used (Arnoldi), with the N×N weights of each head in memory; it may count a repeated Λ too few
    times.
    """
    slopes, size, draw = _slopes(block, state), block.n * block.d, generator("rng", rng)
    count = whole_number("count", count, 1)
    if count > size:
        raise ArgumentError("count", count, f"1 … {size}, as many as DF has")
    weights = jacobian_bytes(len(block.heads), block.n, 0)
    require("block", f"attention weights of {len(block.heads)} × {block.n:,}²", weights, memory)
    attention = slopes.attention()
    found = []
    for tokens in components(np.any([each != 0 for each in attention], axis=0)):
        within = attention if len(tokens) == block.n else [each[np.ix_(tokens, tokens)] for each in attention]
        size = len(tokens) * block.d
        if size <= DENSE or count >= size - 1:
            require("block", f"a Jacobian of {size:,}²", 16 * size**2 + weights, memory)
            found.append(spectrum(slopes.dense(within)))
        else:
            # one more, not to cut a complex pair
            found.append(_arnoldi(slopes, within, min(count + 1, size - 2), draw))
    values, errors = (np.concatenate(each) for each in zip(*found, strict=True))
    places = ranking(values)[:count]
    require_known("block", values, errors, places)
    return values[places]


def _slopes(block: Block, state: ArrayLike | None) -> Slopes:
    require_periodic(instance("block", block, Block))
    return slopes_at(block, state)


def _arnoldi(
    slopes: Slopes, attention: list[NDArray[np.float64]], count: int, rng: np.random.Generator
) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """(count,) leading Λ of DF of `attention` weights (n, n) of each head, and how far each may be from the truth."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    n, d = len(attention[0]), slopes.block.d

    def action(u: NDArray) -> NDArray:
        return slopes.apply(attention, u.reshape(n, d)).ravel()

    def transposed(u: NDArray) -> NDArray:
        return slopes.apply_transposed(attention, u.reshape(n, d)).ravel()

    def largest(act: Callable[[NDArray], NDArray], start: NDArray) -> tuple[NDArray, NDArray]:
        operator = LinearOperator((n * d, n * d), matvec=act, dtype=float)
        values, vectors = eigs(operator, count, which="LM", v0=start, ncv=min(n * d, max(2 * count + 1, KRYLOV)))
        return values, vectors

    start = rng.normal(size=n * d)
    if not action(start).any():
        return np.zeros(count, dtype=complex), np.zeros(count)
    try:
        values, right = largest(action, start)
        # a normal DF has the same vectors on its left, and they are found at once
        mates, left = largest(transposed, right.real.sum(axis=1) + 1e-3 / np.sqrt(n * d) * start)
    except ArpackNoConvergence as failure:
        got = f"{count}, of which {len(failure.eigenvalues)} converged"
        raise ArgumentError("count", got, "another count, or full_jacobian") from None
    size = float(np.linalg.norm(slopes.pointwise, 2) + sum(np.linalg.norm(each, 2) for each in slopes.channels))
    near = np.abs(values[:, None] - mates) <= PARTNERS * np.abs(values).max()
    cosines = np.full(count, np.nan)
    for k in np.flatnonzero(near.any(axis=1)):
        basis, _ = np.linalg.qr(left[:, near[k]].conj())
        cosines[k] = np.linalg.norm(basis.conj().T @ right[:, k])
    # one that a cut left without a partner is taken to be like the worst that has one
    cosines[np.isnan(cosines)] = np.nanmin(cosines) if near.any() else 0.0
    return values, moved(n * d * EPSILON * size, size, cosines, n * d)
