"""Ways to choose the kernels and value maps of an engineered block.

A value map a + b𝒥 of planes that 𝒥 turns by π/2 is the number a + ib on one helicity (𝒥 = i) and its conjugate on the
other, so that the gains r_h of the heads on one set of features solve

    Σ_h λ_h(q_c) r_h = ζ_+,   Σ_h λ_h(q_c) conj(r_h) = ζ_−,   Σ_h r_h = r_0,

ζ_± = (ρ/ξ)e^{i(θ ± ψ)} − 1, r_0 = ρ(0)/ξ − 1, with the exact symbols λ_h of the ring. Where they have no solution a
construction gives what comes near, and `engineer` refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

import numpy as np
from scipy.optimize import brentq

from dispersion import ArgumentError, Kernel
from training.target import Target


@dataclass(frozen=True)
class Wave:
    """Kernel and value map of one head.

    phase : φ of b_r = s cos(q_c r − φ), None for b = 0; place : which features, as a number of a head of the frame;
    gain : r, a + ib for R = a + b𝒥.
    """

    phase: float | None
    place: int
    gain: complex


@dataclass(frozen=True)
class Wish:
    """What a construction works from: the target, the ring and the sizes of the frame."""

    target: Target
    n: int
    contraction: float
    sharpness: float
    heads: int
    head_width: int

    @property
    def zeta(self) -> tuple[complex, complex]:
        """ζ_+ and ζ_−; zero for a helicity that is not wanted."""
        t = self.target
        wanted = [
            t.growth / self.contraction * np.exp(1j * (t.angle + sign * t.rotation)) - 1
            if t.helicity in (0, sign)
            else 0j
            for sign in (1, -1)
        ]
        return complex(wanted[0]), complex(wanted[1])

    @property
    def mean(self) -> float:
        """r_0."""
        return self.target.homogeneous / self.contraction - 1

    @property
    def turns(self) -> bool:
        """Whether features turn, which takes planes."""
        return self.target.rotation != 0 or self.target.helicity != 0

    def kernel(self, phase: float | None) -> Kernel:
        """The kernel s cos(q_c r − φ) of one phase; uniform for None."""
        if phase is None:
            return Kernel.uniform(self.n)
        return Kernel.von_mises(self.n, self.target.wavenumber, self.sharpness, phase)

    def symbol(self, phase: float) -> complex:
        """λ(q_c) of one phase."""
        return complex(self.kernel(phase).symbol[self.target.wavenumber])

    def solved(self, ratio: Callable[[float], complex], phase: float) -> float:
        """The phase φ near `phase` at which `ratio`, of argument φ − `phase` up to the lattice, is positive.

        The lattice of n' = N/gcd(k_c, N) phases moves the argument by less than π/n'; where there is no such φ, as at
        q_c = π, `phase` itself.
        """
        lattice = self.n // gcd(self.target.wavenumber, self.n)
        off = lambda phi: float(np.angle(ratio(phi)))  # noqa: E731
        low, high = phase - np.pi / lattice, phase + np.pi / lattice
        if lattice < 3 or off(low) > 0 or off(high) < 0:
            return phase
        return float(brentq(off, low, high, xtol=1e-15))


def three(wish: Wish) -> list[Wave]:
    """All heads but the last with b = s cos(q_c r − φ), each on features of its own; the last is uniform, R = r_0.

    The gain is negative, R = ζ/λ with arg λ = π + arg ζ, as of a value map −I with a positional kernel; for a rotation
    φ = π and R = (G − I)/λ. Needs two heads or more; features turn or waves travel, not both.
    """
    if wish.heads < 2:
        raise ArgumentError("heads", wish.heads, "2 or more for construction 'three'")
    one_angle(wish, "three")
    zeta, _ = wish.zeta
    phase = np.pi if wish.turns else wish.solved(lambda phi: -zeta / wish.symbol(phi), np.pi - np.angle(zeta))
    gain = real_if(not wish.turns, zeta / wish.symbol(phase))
    return [*(Wave(phase, place, gain) for place in range(wish.heads - 1)), Wave(None, wish.heads - 1, wish.mean)]


def pair(wish: Wish) -> list[Wave]:
    """Pairs of heads with b = ±s cos(q_c r − φ) and R = r_0/2 ± D/2, each pair on features of its own.

    Travelling: D = |ζ|/|λ|, φ = −arg ζ; rotation: D = (G − I)/|λ|, φ = 0, up to what the lattice adds. Needs an even
    number of heads; features turn or waves travel, not both.
    """
    if wish.heads % 2:
        raise ArgumentError("heads", wish.heads, "an even number for construction 'pair'")
    one_angle(wish, "pair")
    zeta, _ = wish.zeta

    def difference(phi: float) -> complex:
        up, down = wish.symbol(phi), wish.symbol(phi + np.pi)
        return 2 * (zeta - wish.mean / 2 * (up + down)) / (up - down)

    phase = 0.0 if wish.turns else wish.solved(difference, -np.angle(zeta))
    half = real_if(not wish.turns, difference(phase)) / 2
    signs = ((0.0, half), (np.pi, -half))
    return [Wave(phase + turn, place, wish.mean / 2 + gain) for place in range(wish.heads // 2) for turn, gain in signs]


def four(wish: Wish) -> list[Wave]:
    """Four heads in quadrature, b_h = s cos(q_c r − hπ/2), on the same features, and so for every four heads.

    The gains are those of least norm that solve the equations. Without lattice terms
    R_0, R_2 = r_0/4 ± A/2 and R_1, R_3 = r_0/4 ± B/2, κ(A − iB) = ρ/ξ e^{iθ}Rot(ψ) − I. Needs a multiple of four heads;
    any angle, rotation and helicity.
    """
    if wish.heads % 4:
        raise ArgumentError("heads", wish.heads, "a multiple of 4 for construction 'four'")
    planes(wish)
    phases = np.pi / 2 * np.arange(4)
    symbols = np.array([wish.symbol(phase) for phase in phases])
    # r = a + ib: Σ λ r and Σ λ conj(r) are linear in the real a, b
    rows = np.block([[symbols, 1j * symbols], [symbols, -1j * symbols], [np.ones(4), 1j * np.ones(4)]])
    wanted = np.array([*wish.zeta, wish.mean])
    matrix, right = np.vstack([rows.real, rows.imag]), np.concatenate([wanted.real, wanted.imag])
    found = np.linalg.lstsq(matrix, right, rcond=1e-12)[0]
    gains = found[:4] + 1j * np.where(wish.turns, found[4:], 0.0)
    return [
        Wave(phase, place, complex(gain))
        for place in range(wish.heads // 4)
        for phase, gain in zip(phases, gains, strict=True)
    ]


CONSTRUCTIONS: dict[str, Callable[[Wish], list[Wave]]] = {"three": three, "pair": pair, "four": four}
"""The constructions by name."""


def one_angle(wish: Wish, name: str) -> None:
    """Refuse what a kernel of one phase cannot do."""
    planes(wish)
    if wish.target.helicity or (wish.target.rotation and wish.target.angle):
        got = f"angle {wish.target.angle:g} with rotation {wish.target.rotation:g}, helicity {wish.target.helicity}"
        raise ArgumentError("target", f"{got} by construction {name!r}", "one angle and helicity 0, or 'four'")


def planes(wish: Wish) -> None:
    """Refuse to turn features where a head has too few."""
    if wish.turns and wish.head_width < 2:
        raise ArgumentError("d", f"{wish.head_width} feature for each head", "2 or more, for features to turn")


def real_if(real: bool, value: complex) -> complex:
    """`value`, its imaginary part dropped if `real`."""
    return complex(value.real) if real else value
