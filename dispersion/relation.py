"""The matrix dispersion relation J(q) of a block at a homogeneous state, and its modes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from dispersion.block import Block
from dispersion.errors import ArgumentError, frozen, real_number, whole_number
from dispersion.kernel import grid_index

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOLERANCE = 1e-10
"""Relative size under which a phase, or the imaginary part of a vector, counts as zero."""


@dataclass(frozen=True, eq=False)
class Mode:
    """One eigenmode e^{iqj} v of the linearised block, with its complex conjugate partner at −q.

    k, n : wavenumber q = 2πk/n, 0 ≤ k ≤ n/2.
    multiplier : Λ = e^{γ+iω}, the factor per layer; it grows if |Λ| > 1.
    right, left : (d,) complex, J v = Λ v with |v| = 1 and wᴴ J = Λ wᴴ with wᴴ v = 1
        (`left` is NaN where Λ is defective and no such w exists).
    morphology : 'homogeneous', 'standing', 'travelling', 'rotating', 'mixed' or 'alternating' (Prop. 4.6).
    """

    k: int
    n: int
    multiplier: complex
    right: NDArray[np.complex128]
    left: NDArray[np.complex128]
    morphology: str

    @property
    def q(self) -> float:
        """Wavenumber 2πk/n, radians per token."""
        return 2 * np.pi * self.k / self.n

    @property
    def growth(self) -> float:
        """γ = log|Λ|, growth rate per layer."""
        return float(np.log(abs(self.multiplier)))

    @property
    def phase(self) -> float:
        """ω = arg Λ, phase advance per layer in radians, in (−π, π]."""
        return float(np.angle(self.multiplier))

    def field(self, amplitude: float, layer: float = 0.0, phase: float = 0.0) -> NDArray[np.float64]:
        """(n, d) u_j = 2|B_0|e^{lγ}[v_R cos Θ − v_I sin Θ], Θ = qj + lω + θ_0 (Eq. 11).

        amplitude : |B_0|; layer : l; phase : θ_0 in radians.
        """
        layer = real_number("layer", layer)
        theta = self.q * np.arange(self.n) + layer * self.phase + real_number("phase", phase)
        wave = real_number("amplitude", amplitude) * np.exp(layer * self.growth + 1j * theta)
        return 2 * np.real(wave[:, None] * self.right)


@dataclass(frozen=True, eq=False)
class Dispersion:
    """J(q) = C[I + ε_a Σ_h λ_h(q) M_h] of `block` at the homogeneous state 1⊗`state` (Eq. 9).

    Call it with wavenumbers: `relation(q)` has shape (*q.shape, d, d). Fields that end the
    sentence "on the grid" are indexed by k, q = 2πk/N, k = 0 … N−1.
    """

    block: Block
    state: NDArray[np.float64]

    @cached_property
    def pointwise(self) -> NDArray[np.float64]:
        """(d, d) C = DH(y*)."""
        return frozen(self.block.pointwise_jacobian(self.block.attended(self.state)))

    def __call__(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, d, d) J at the real or complex wavenumbers `q` (…)."""
        return self._assemble([head.kernel(q) for head in self.block.heads])

    @property
    def wavenumbers(self) -> NDArray[np.float64]:
        """(N,) the grid q = 2πk/N in radians per token."""
        return 2 * np.pi * np.arange(self.block.n) / self.block.n

    @cached_property
    def matrices(self) -> NDArray[np.complex128]:
        """(N, d, d) J(q) on the grid."""
        return frozen(self._assemble([head.kernel.symbol for head in self.block.heads]))

    @cached_property
    def multipliers(self) -> NDArray[np.complex128]:
        """(N, d) eigenvalues Λ of J(q) on the grid, the largest modulus first; of equal ones, the largest phase."""
        values = np.linalg.eigvals(self.matrices).astype(complex)
        return frozen(np.take_along_axis(values, _ranking(values, -np.angle(values)), axis=-1))

    @property
    def growth(self) -> NDArray[np.float64]:
        """(N,) spectral radius ρ(J(q)) on the grid: the growth factor per layer, critical at 1."""
        return np.abs(self.multipliers[:, 0])

    @property
    def phases(self) -> NDArray[np.float64]:
        """(N, d) arg Λ on the grid, radians per layer."""
        return np.angle(self.multipliers)

    @property
    def stable(self) -> bool:
        """Whether every mode decays: max_q ρ(J(q)) < 1 (Eq. 59)."""
        return bool(self.growth.max() < 1)

    def leading(self) -> Mode:
        """The mode with the largest |Λ|; of equal ones, that with the smallest k."""
        return self.modes(1)[0]

    def modes(self, count: int) -> list[Mode]:
        """The `count` modes with the largest |Λ| over 0 ≤ k ≤ N/2, largest first; of equal ones, smallest k first."""
        half = self.multipliers[: self.block.n // 2 + 1].ravel()
        order = _ranking(half, np.arange(half.size))[: whole_number("count", count, 1)]
        return [self.mode(*divmod(int(place), self.block.d)) for place in order]

    def mode(self, k: int, index: int = 0) -> Mode:
        """The mode at wavenumber `k` whose |Λ| is number `index` (0 the largest), in the order of `multipliers`.

        −k is taken as k: the two are conjugate, J(−q) = conj J(q).
        """
        n, d = self.block.n, self.block.d
        k = grid_index("k", k, n)
        k = min(k, n - k)
        if whole_number("index", index, 0) >= d:
            raise ArgumentError("index", index, f"0 … {d - 1}")
        matrix = self.matrices[k]
        # A real J gets real eigenvectors for its real multipliers.
        values, lefts, rights = linalg.eig(matrix if matrix.imag.any() else matrix.real, left=True, right=True)
        place = int(_ranking(values, -np.angle(values))[index])
        multiplier, right, left = complex(values[place]), rights[:, place], lefts[:, place]
        right = right / np.linalg.norm(right)
        right = right * np.exp(-1j * _phase_to_real(right))
        overlap = np.vdot(left, right)
        defective = abs(overlap) <= 1e-6 * np.linalg.norm(left)
        left = np.full(d, np.nan + 0j) if defective else left / np.conj(overlap)
        return Mode(k, n, multiplier, right + 0j, left + 0j, self._morphology(k, multiplier, right))

    def _morphology(self, k: int, multiplier: complex, right: NDArray[np.complex128]) -> str:
        matrix = self.matrices[k]
        directional = np.abs(matrix.imag).max() > TOLERANCE * np.abs(matrix).max()
        oscillates = abs(multiplier.imag) > TOLERANCE * abs(multiplier)
        if np.linalg.norm(right.imag) > TOLERANCE and (directional or oscillates):
            return "mixed" if directional else "rotating"
        if oscillates:
            return "travelling"
        if multiplier.real < 0:
            return "alternating"
        return "homogeneous" if k == 0 else "standing"

    def _assemble(self, symbols: list[NDArray[np.complex128]]) -> NDArray[np.complex128]:
        heads = zip(symbols, self.block.heads, strict=True)
        mixed = sum(symbol[..., None, None] * head.value for symbol, head in heads)
        return self.pointwise @ (np.eye(self.block.d) + self.block.attention_scale * mixed)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw ρ(J(q)) against k, with the line |Λ| = 1; `ax`: the axes, by default the current ones; returns them."""
        from dispersion.plot import plot_relation

        return plot_relation(self, ax)


def dispersion_relation(block: Block, state: ArrayLike | None = None) -> Dispersion:
    """The dispersion relation of `block` at the base state 1⊗a.

    state : a, (d,), or a number for d = 1; zero by default. It need not be a fixed point: J(q) is
    then the derivative of one layer from 1⊗a to 1⊗g(a).
    """
    if not isinstance(block, Block):
        raise ArgumentError("block", type(block).__name__, "a Block")
    return Dispersion(block, block.homogeneous_state(state))


def _ranking(multipliers: NDArray[np.complex128], tie: NDArray) -> NDArray[np.intp]:
    """The order of the last axis by decreasing |Λ|; moduli equal to TOLERANCE are ordered by increasing `tie`."""
    size = np.abs(multipliers)
    order = np.argsort(-size, axis=-1, kind="stable")
    size = np.take_along_axis(size, order, axis=-1)
    group = np.zeros(size.shape, dtype=int)
    group[..., 1:] = np.cumsum(size[..., 1:] < size[..., :-1] * (1 - TOLERANCE), axis=-1)
    np.put_along_axis(group, order, group.copy(), axis=-1)
    return np.lexsort((tie, group), axis=-1)


def _phase_to_real(v: NDArray[np.complex128]) -> float:
    """The phase θ for which e^{−iθ}v has the largest real part: 2θ = arg vᵀv, largest entry positive."""
    theta = np.angle(v @ v) / 2 if abs(v @ v) > TOLERANCE else np.angle(v[np.argmax(np.abs(v))])
    rotated = v * np.exp(-1j * theta)
    return float(theta + np.pi * (rotated[np.argmax(np.abs(rotated.real))].real < 0))
