"""Attention that is not translation invariant: any N×N weights, where J(q) does not exist.

At a homogeneous state 1⊗a the derivative of the weights drops out whatever they are, since rows sum to 1 (Eq. 55):

    DF = I⊗C + ε_a Σ_h A_h ⊗ C M_h N_1,   fields listed token by token: entry i·d + α is feature α of token i

One head reduces to N matrices of size d, one for each eigenvalue of A (Theorem 4.1); several heads that do not commute
need the whole matrix, or its action alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block import Block, require_periodic
from dispersion.eigen import eigenvalues, ranking
from dispersion.errors import ArgumentError, frozen, real_number, whole_number
from dispersion.relation import Dispersion

BUDGET = 0.8
"""Share of the available memory that is used unless told otherwise."""

KRYLOV = 64
"""Least number of Arnoldi vectors."""

DENSE = 256
"""Size N·d up to which leading multipliers come from the dense Jacobian."""


@dataclass(frozen=True, eq=False)
class AttentionSpectrum:
    """The multipliers of a block with one head, from the eigenvalues of its attention weights (Theorem 4.1).

    attention : (N, N) weights A at the homogeneous state.
    symbols : (N,) complex eigenvalues λ_k of A, repeated ones repeated.
    multipliers : (N, d) complex eigenvalues of C[I + ε_a λ_k M N_1], by decreasing modulus; the λ_k are ordered by
        the largest of theirs. All of them together are the spectrum of DF, also if A is not diagonalisable.
    """

    attention: NDArray[np.float64]
    symbols: NDArray[np.complex128]
    multipliers: NDArray[np.complex128]

    @property
    def growth(self) -> NDArray[np.float64]:
        """(N,) spectral radius for each λ_k, decreasing."""
        return np.abs(self.multipliers[:, 0])

    @property
    def stable(self) -> bool:
        """Whether every perturbation decays: all |Λ| < 1 (Eq. 22)."""
        return bool(self.growth.max() < 1)


def attention_spectrum(block: Block, state: ArrayLike | None = None) -> AttentionSpectrum:
    """sp(DF) = ∪_k sp(C[I + ε_a λ_k M N_1]) at 1⊗`state` of a `block` with one head, λ_k those of A (Eqs. 5, 22).

    state : a, (d,), or a number for d = 1; zero by default. A may be any N×N weights, such as those of a head with
    a bias; those of a triangular A are its diagonal, exactly. An ArgumentError refuses several heads.
    """
    parts = _linearised(block, state)
    if len(block.heads) != 1:
        accepted = "one head; full_jacobian or leading_multipliers for several"
        raise ArgumentError("block", f"{len(block.heads)} heads", accepted)
    (attention,) = _attention(parts)
    symbols = np.linalg.eigvals(attention)
    multipliers = eigenvalues(symbols.astype(complex)[:, None, None] * parts.channels[0] + parts.pointwise)
    multipliers = np.take_along_axis(multipliers, ranking(multipliers, -np.angle(multipliers)), axis=-1)
    order = ranking(multipliers[:, 0], -np.angle(multipliers[:, 0]))
    return AttentionSpectrum(frozen(attention), frozen(symbols.astype(complex)[order]), frozen(multipliers[order]))


def jacobian_memory(block: Block) -> int:
    """The bytes that `full_jacobian` of a `block` needs at its peak: two (N·d)² float64 matrices, and the weights."""
    return 16 * (block.n * block.d) ** 2 + weights_memory(block)


def weights_memory(block: Block) -> int:
    """The bytes of the N×N attention weights of every head of a `block`, with four more while they are made."""
    return 8 * (len(block.heads) + 4) * block.n**2


def full_jacobian(block: Block, state: ArrayLike | None = None, memory: float | None = None) -> NDArray[np.float64]:
    """(N·d, N·d) DF at 1⊗`state` of a `block`: I⊗C + ε_a Σ_h A_h ⊗ C M_h N_1, tokens before features (Eq. 55).

    state : a, (d,), or a number for d = 1; zero by default. memory : the most bytes it may use, by default
    80 % of those available; an ArgumentError with the number refuses more before anything is allocated.
    """
    parts = _linearised(block, state)
    _fit("block", f"a Jacobian of {block.n * block.d:,}²", jacobian_memory(block), memory)
    jacobian = np.zeros((block.n, block.d, block.n, block.d))
    token = np.arange(block.n)
    jacobian[token, :, token, :] = parts.pointwise
    for weights, channel in zip(_attention(parts), parts.channels, strict=True):
        jacobian += weights[:, None, :, None] * channel[None, :, None, :]
    return jacobian.reshape(block.n * block.d, block.n * block.d)


def leading_multipliers(
    block: Block, state: ArrayLike | None = None, count: int = 6, memory: float | None = None, rng: int = 0
) -> NDArray[np.complex128]:
    """(count,) the `count` eigenvalues Λ of DF at 1⊗`state` of largest modulus, equal ones by decreasing phase.

    block : any heads, which need not commute. state : a, (d,), or a number for d = 1; zero by default.
    memory : the most bytes it may use, by default 80 % of those available; more is refused. rng : seed of the start.
    Beyond N·d = 256 only the action of DF is used (Arnoldi), with the N×N weights of each head in memory. It may
    count a repeated Λ too few times, and a Λ that is far from normal is found as well as its condition allows.
    """
    parts, size = _linearised(block, state), block.n * block.d
    if whole_number("count", count, 1) > size:
        raise ArgumentError("count", count, f"1 … {size}, as many as DF has")
    if size <= DENSE or count >= size - 1:
        values = np.linalg.eigvals(full_jacobian(block, state, memory)).astype(complex)
    else:
        _fit("block", f"attention weights of {len(block.heads)} × {block.n:,}²", weights_memory(block), memory)
        values = _arnoldi(parts, min(count + 1, size - 2), rng)  # one more, not to cut a complex pair
    return values[ranking(values, -np.angle(values))[:count]]


def available_memory() -> int:
    """Bytes that can be allocated now, as the system reports them."""
    try:
        with open("/proc/meminfo") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        from os import sysconf

        return sysconf("SC_PHYS_PAGES") * sysconf("SC_PAGE_SIZE") // 2


def _linearised(block: Block, state: ArrayLike | None) -> Dispersion:
    """C and the channels ε_a C M_h N_1; its symbols are not asked for."""
    if not isinstance(block, Block):
        raise ArgumentError("block", type(block).__name__, "a Block")
    require_periodic(block)
    parts = Dispersion(block, block.homogeneous_state(state))
    parts.channels  # noqa: B018  (refuse now, not when first used)
    return parts


def _attention(parts: Dispersion) -> list[NDArray[np.float64]]:
    """The (N, N) weights of each head at 1⊗a."""
    seen = np.tile(parts.block.seen(parts.state), (parts.block.n, 1))
    return [head.attention(seen) for head in parts.block.heads]


def _arnoldi(parts: Dispersion, count: int, rng: int) -> NDArray[np.complex128]:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    attention, n, d = _attention(parts), parts.block.n, parts.block.d

    def action(u: NDArray) -> NDArray:
        # u_i → C u_i + Σ_h Σ_j (A_h)_ij (ε_a C M_h N_1) u_j
        u = u.reshape(n, d)
        heads = zip(attention, parts.channels, strict=True)
        return (u @ parts.pointwise.T + sum(weights @ u @ channel.T for weights, channel in heads)).ravel()

    operator = LinearOperator((n * d, n * d), matvec=action, dtype=float)
    start = np.random.default_rng(rng).normal(size=n * d)
    if not action(start).any():
        return np.zeros(count, dtype=complex)
    try:
        basis = min(n * d, max(2 * count + 1, KRYLOV))
        return eigs(operator, count, which="LM", v0=start, ncv=basis, return_eigenvectors=False)
    except ArpackNoConvergence as failure:
        got = f"{count}, of which {len(failure.eigenvalues)} converged"
        raise ArgumentError("count", got, "another count, or full_jacobian") from None


def _fit(argument: str, what: str, needed: int, memory: float | None) -> None:
    allowed = BUDGET * available_memory() if memory is None else real_number("memory", memory, positive=True)
    if needed > allowed:
        raise ArgumentError(
            argument, f"{what} that needs {needed:,} bytes", f"at most {int(allowed):,} bytes (memory=)"
        )
