"""The linearised block on a chain, split into sectors whose spectra are computed one by one (App. A.7, corrected).

A sector is S = 1⊗B + Σ_h A°_h ⊗ B_h, A°_h the attention of a chain with ends. What splits:

- one head (or heads of one kernel): S = A°, and Λ runs over the eigenvalues of C(1 + ε_a ℓ V) for each ℓ of A° (Eq. 5);
- C and all C M_h triangular in one basis (as they are if they commute, and for d = 1): one scalar sector for each entry
  of the diagonal;
- otherwise one sector with blocks of d features, whose bulk set is derived only, and wrong if C and all M_h map a
  subspace of the features into itself (it should then be split).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.block import Block
from dispersion.block.kernel import Kernel
from dispersion.block.slopes import assembled, jacobian_bytes, slopes_at
from dispersion.errors import ArgumentError, instance
from dispersion.line.bulk import Symbol
from dispersion.line.chain import Chain, chain_attention, homogeneous_kernel, require_chain
from dispersion.memory import require
from dispersion.noun import Noun, cached_property
from dispersion.quiet import harmless_underflow
from dispersion.structured import require_known

NEGLIGIBLE = 1e-30
"""Weights below this fraction of the largest of a kernel are left out of a symbol; at |z|^r ≪ 1e30 they do nothing."""


COPIES = 12
"""Float64 matrices as large as a section while its spectrum is computed: six complex ones."""


@dataclass(frozen=True, eq=False)
class Sector(Noun):
    """S = 1⊗`base` + Σ_h A°_h ⊗ `mix`[h], and how its eigenvalues ℓ give multipliers Λ.

    kernels : one for each h; boundary : 'open' or 'causal'; base : (m, m); mix : (heads, m, m);
    outer : (C, ε_a C V), each (d, d), if Λ are the eigenvalues of C + ℓ ε_a C V, or None if Λ = ℓ.
    """

    kernels: tuple[Kernel, ...]
    boundary: str
    base: NDArray
    mix: NDArray
    outer: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    @property
    def m(self) -> int:
        """Features of a token in S."""
        return len(self.base)

    @cached_property
    def symbol(self) -> Symbol:
        """The symbol of S away from the ends."""
        weights = self._weights
        p, s = max(0, -min(map(min, weights))), max(0, *map(max, weights))
        coefficients = np.zeros((p + s + 1, self.m, self.m), dtype=np.result_type(self.base, self.mix))
        coefficients[p] += self.base
        size = np.abs(coefficients)
        for by_lag, B in zip(weights, self.mix, strict=True):
            for lag, weight in by_lag.items():
                coefficients[lag + p] += weight * B
                size[lag + p] += weight * np.abs(B)
        coefficients[np.abs(coefficients) <= 4 * np.finfo(float).eps * size] = 0  # what cancels, cancels
        return Symbol(coefficients, p, s)

    @cached_property
    def _weights(self) -> list[dict[int, float]]:
        """The weights by lag of each head, those that do nothing left out."""
        every = [_weights_by_lag(kernel, self.boundary) for kernel in self.kernels]
        used = [B.any() for B in self.mix]
        return [
            {lag: weight for lag, weight in by_lag.items() if use and weight > NEGLIGIBLE * max(by_lag.values())}
            or {0: 0.0}
            for by_lag, use in zip(every, used, strict=True)
        ]

    @cached_property
    def triangular(self) -> bool:
        """Whether every section is block triangular: no two lags of opposite sign."""
        lags = [lag for weights in self._weights for lag in weights]
        return min(lags) >= 0 or max(lags) <= 0

    @cached_property
    def homogeneous(self) -> NDArray[np.complex128]:
        """(m,) eigenvalues for u_j the same at every token, exact on any chain: 1 for S = A°."""
        return np.linalg.eigvals(self.base + self.mix.sum(axis=0)).astype(complex)

    def section(self, n: int) -> NDArray:
        """(n·m, n·m) S on a chain of `n` tokens; an ArgumentError names the bytes of one too large for its spectrum."""
        require("n", f"{n}, a spectrum of {n * self.m:,}²", jacobian_bytes(len(self.kernels), n, self.m, COPIES))
        attention = [chain_attention(kernel, n, self.boundary) for kernel in self.kernels]
        return assembled(self.base, self.mix, attention)

    def multipliers(self, values: NDArray) -> NDArray[np.complex128]:
        """(…, d) Λ for each ℓ of `values` (…); (…, 1), themselves, if there is no `outer`."""
        if self.outer is None:
            return values[..., None] + 0j
        C, V = self.outer
        return np.linalg.eigvals(C + values[..., None, None] * V).astype(complex)

    def growth(self, values: NDArray) -> NDArray[np.float64]:
        """(…) max |Λ| for each ℓ of `values` (…)."""
        return np.abs(self.multipliers(values)).max(axis=-1)

    def read(self, n: int) -> NDArray[np.complex128]:
        """(n·m,) eigenvalues of a `triangular` S, read off its block triangular `section` of `n` tokens."""
        blocks = self.section(n).reshape(n, self.m, n, self.m)
        return np.linalg.eigvals(np.einsum("iaib->iab", blocks)).astype(complex).ravel()

    def scaled(self, n: int, radius: float) -> NDArray:
        """R^{-1}SR with R = diag(ρ^i)⊗1, ρ = `radius`, on `n` tokens: same spectrum, other rounding."""
        matrix, lag = self.section(n), np.subtract.outer(np.arange(n), np.arange(n))
        power = np.exp(np.clip(-np.log(radius) * lag, -600, 600))  # far off the band, where S is zero, clipped
        return matrix * np.kron(power, np.ones((self.m, self.m)))

    @cached_property
    def gaps(self) -> tuple[float, float]:
        """The least and the largest ρ in the middle of the gap |z_ms(ℓ)| … |z_ms+1(ℓ)|, over a sample of |ℓ| ≤ ‖S‖."""
        rng = np.random.default_rng(0)
        size = np.abs(self.base).sum(axis=1).max() + sum(np.abs(B).sum(axis=1).max() for B in self.mix)
        sample = size * np.sqrt(rng.uniform(size=64)) * np.exp(2j * np.pi * rng.uniform(size=64))
        lows, highs = np.array([self.symbol.middle(value) for value in (*sample, *self.homogeneous)]).T
        centres = np.sqrt(np.clip(lows, 1e-6, 1e6) * np.clip(highs, 1e-6, 1e6))
        return float(centres.min() / 1.02), float(centres.max() * 1.02)

    def radii(self, n: int) -> NDArray[np.float64]:
        """Scalings ρ from end to end of `gaps`, so close that ρ^n changes by less than e² from one to the next."""
        low, high = self.gaps
        return np.geomspace(low, high, 5 + int(n * np.log(high / low) / 2))


def sectors(block: Block, boundary: str, state: ArrayLike | None = None) -> list[Sector]:
    """The sectors of `block` with 'open' or 'causal' `boundary`, linearised at 1⊗`state`."""
    require_chain(block)
    slopes = slopes_at(block, state)
    C = slopes.pointwise
    kernels: list[Kernel] = []
    merged: list[NDArray] = []
    for head, M in zip(block.heads, slopes.channels, strict=True):
        kernel = homogeneous_kernel(head, slopes.seen)
        same = [k for k, other in enumerate(kernels) if _same_kernel(kernel, other)]
        if same:
            merged[same[0]] = merged[same[0]] + M
        else:
            kernels.append(kernel)
            merged.append(M)
    if len(kernels) == 1:
        return [Sector(tuple(kernels), boundary, np.zeros((1, 1)), np.ones((1, 1, 1)), (C, merged[0]))]
    diagonals = _common_diagonals([C, *merged])
    if diagonals is None:
        return [Sector(tuple(kernels), boundary, C, np.array(merged))]
    return [Sector(tuple(kernels), boundary, x[0].reshape(1, 1), x[1:].reshape(-1, 1, 1)) for x in diagonals]


@harmless_underflow
def chain_spectrum(chain: Chain, state: ArrayLike | None = None) -> NDArray[np.complex128]:
    """Multipliers Λ of a chain with ends, linearised at 1⊗`state`.

    Parameters
    ----------
    chain : Chain
        With open or causal ends.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default.

    Returns
    -------
    (n·d,) complex ndarray
        Λ, largest modulus first.

    Raises
    ------
    ArgumentError
        Refuses a periodic chain, whose spectrum is that of J(q), and one too large.
    ExclusionError
        Refuses a chain whose leading Λ no scaling tells to 1e-4 of their size.

    Notes
    -----
    Each sector is diagonalised as R^{-1}SR, R = diag(ρ^i)⊗1, over a grid of ρ, and of each eigenvalue the best
    conditioned copy is kept: eigenvalues of the unscaled matrix are wrong on long chains. Block triangular sectors
    are read off their diagonal.
    """
    if instance("chain", chain, Chain).boundary == "periodic":
        raise ArgumentError(
            "chain", "periodic ends", "'open' or 'causal'; dispersion_relation has the periodic spectrum"
        )
    parts = []
    for sector in sectors(chain.block, chain.boundary, state):
        if sector.triangular:
            values = sector.read(chain.n)
        else:
            values, errors = _best_copies(sector, chain.n)
            require_known("chain", values, errors, np.array([np.abs(values).argmax()]))
        parts.append(sector.multipliers(values).ravel())
    spectrum = np.concatenate(parts)
    return spectrum[np.argsort(-np.abs(spectrum), kind="stable")]


def _best_copies(sector: Sector, n: int) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """(n·m,) eigenvalues of `section(n)` and their errors: over all scalings, the copies of smallest condition number
    1/|wᴴv|.
    """
    from scipy.linalg import eig

    values, errors, mine = [], [], []
    for radius in sector.radii(n):
        matrix = sector.scaled(n, radius)
        found, lefts, rights = eig(matrix, left=True, right=True)
        cosine = np.maximum(np.abs((lefts.conj() * rights).sum(axis=0)), 1e-300)
        order = np.argsort(-cosine)
        found, error = found[order], 100 * np.finfo(float).eps * np.linalg.norm(matrix) / cosine[order] + 1e-9
        near = np.abs(found[:, None] - found) <= error[:, None]
        values.append(found)
        errors.append(error)
        mine.append(np.tril(near).sum(axis=1))  # a multiple eigenvalue has several copies at one ρ
    pool, radius_of, rank = np.concatenate(values), np.concatenate(errors), np.concatenate(mine)
    kept, doubt = np.empty(n * sector.m, dtype=complex), np.empty(n * sector.m)
    count = 0
    for k in np.argsort(radius_of, kind="stable"):
        if rank[k] > (np.abs(kept[:count] - pool[k]) <= radius_of[k]).sum():
            kept[count], doubt[count] = pool[k], radius_of[k]
            count += 1
            if count == kept.size:
                break
    return kept[:count], doubt[:count]


def _weights_by_lag(kernel: Kernel, boundary: str) -> dict[int, float]:
    """A_r for each lag carried; lags r < 0 removed and the rest normalised if 'causal'."""
    pairs = sorted(zip(kernel.lags.tolist(), kernel.weights.tolist(), strict=True))
    kept = {lag: weight for lag, weight in pairs if weight > 0 and (boundary != "causal" or lag >= 0)}
    total = sum(kept.values())
    if not total > 0:
        raise ArgumentError("kernel", "no weight at a lag ≥ 0", "a causal chain needs one")
    return {lag: weight / total for lag, weight in kept.items()}


def _same_kernel(first: Kernel, second: Kernel) -> bool:
    return first.causal == second.causal and np.array_equal(first.logits, second.logits)


def _common_diagonals(matrices: list[NDArray]) -> NDArray | None:
    """(d, k) diagonals of the k `matrices` in a basis where all are triangular, or None: a random Schur basis."""
    from scipy.linalg import schur

    weights = np.random.default_rng(0).normal(size=len(matrices))
    _, Q = schur(sum(w * X for w, X in zip(weights, matrices, strict=True)), output="complex")
    turned = Q.conj().T @ np.array(matrices) @ Q
    size = np.abs(turned).max(axis=(1, 2))
    if (np.abs(np.tril(turned, -1)).max(axis=(1, 2)) > 1e-10 * size).any():
        return None
    diagonals = np.einsum("hii->ih", turned)
    return diagonals.real if (np.abs(diagonals.imag) <= 1e-10 * size).all() else diagonals
