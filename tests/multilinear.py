"""Amplitude coefficients from the full N·d map itself, by Cauchy integrals of `block.forward`.

Nothing of the package `amplitude` enters: F(1⊗a + Σ_s z_s d_s) is analytic in the z_s, so its
mixed derivatives are Fourier coefficients over circles |z_s| = r. They give the multilinear forms
F(x) = Ax + ½B(x,x) + ⅙C(x,x,x) + …, and Kuznetsov's formulas give normal forms from those.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

RADIUS = 0.03
PHASES = 12
"""Directions scaled to largest entry 1: rounding ~ 1e-16/r³ ~ 4e-12, aliasing ~ (r/ρ)^PHASES, less for ρ > 0.3."""


def mixed_derivative(block, a, directions, radius=RADIUS, phases=PHASES):
    """∂/∂z_1 … ∂/∂z_s F(1⊗a + Σ z_s d_s) at z = 0, (N·d,) complex, for `directions` (N·d,) each."""
    base = np.broadcast_to(np.reshape(a, -1), (block.n, block.d)).astype(complex)
    sizes = [np.abs(direction).max() for direction in directions]
    if min(sizes) == 0:
        return np.zeros(base.size, dtype=complex)
    circle = radius * np.exp(2j * np.pi * np.arange(phases) / phases)
    x = base
    for place, (direction, size) in enumerate(zip(directions, sizes, strict=True)):
        axis = [1] * len(directions)
        axis[place] = phases
        x = x + circle.reshape(*axis, 1, 1) * (direction / size).reshape(base.shape)
    axes = tuple(range(len(directions)))
    coefficients = np.fft.fftn(block.forward(x), axes=axes)[(1,) * len(directions)]
    return coefficients.reshape(-1) * prod(sizes) / (phases * radius) ** len(directions)


@dataclass
class FullMap:
    """The map X → F(X) around 1⊗a, as a map of C^{N·d}."""

    block: object
    a: object = 0.0

    def __post_init__(self):
        self.size = self.block.n * self.block.d
        self.A = np.array([mixed_derivative(self.block, self.a, [unit]) for unit in np.eye(self.size)]).T

    def B(self, u, v):
        """B(u,v) = D²F[u,v]."""
        return mixed_derivative(self.block, self.a, [u, v])

    def C(self, u, v, w):
        """C(u,v,w) = D³F[u,v,w]."""
        return mixed_derivative(self.block, self.a, [u, v, w])

    def resolve(self, multiplier, rhs):
        """(multiplier·I − A)^{-1} rhs; where that is singular in a sector `rhs` does not touch, the least solution."""
        return np.linalg.lstsq(multiplier * np.eye(self.size) - self.A, rhs, rcond=1e-10)[0]

    def mode(self, k, near=None):
        """(Λ, q, p) at wavenumber k: the eigenvector e_q⊗v of A and its adjoint e_q⊗w/N with <p,q> = 1.

        near : which eigenvalue of the sector; the largest by default.
        """
        n, d = self.block.n, self.block.d
        wave = np.exp(2j * np.pi * k * np.arange(n) / n)
        basis = np.kron(wave[:, None], np.eye(d))
        sector = basis.conj().T @ self.A @ basis / n
        values, vectors = np.linalg.eig(sector)
        place = np.argmax(np.abs(values)) if near is None else np.argmin(np.abs(values - near))
        v = vectors[:, place]
        w = np.linalg.inv(vectors)[place].conj()
        return values[place], basis @ v, basis @ w / n

    def cubic(self, mode, multiplier=None):
        """c of z⁺ = Λz + c|z|²z (Kuznetsov, Neimark–Sacker), with the resolvents of `multiplier`, Λ by default."""
        actual, q, p = mode
        L = actual if multiplier is None else multiplier
        mean = self.resolve(abs(L) ** 2, self.B(q, q.conj()))
        harmonic = self.resolve(L**2, self.B(q, q))
        return np.vdot(p, self.C(q, q, q.conj()) + 2 * self.B(q, mean) + self.B(q.conj(), harmonic)) / 2

    def cross(self, mode_i, mode_j):
        """β_ij of z_i⁺ = Λ_i z_i + (… + β_ij|z_j|²)z_i."""
        (L_i, q_i, p_i), (L_j, q_j, _) = mode_i, mode_j
        mean = self.resolve(abs(L_j) ** 2, self.B(q_j, q_j.conj()))
        difference = self.resolve(L_i * np.conj(L_j), self.B(q_i, q_j.conj()))
        total = self.resolve(L_i * L_j, self.B(q_i, q_j))
        terms = self.B(q_i, mean) + self.B(q_j, difference) + self.B(q_j.conj(), total)
        return np.vdot(p_i, self.C(q_i, q_j, q_j.conj()) + terms)

    def square(self, mode, conjugate=False):
        """The coefficient of z², or of z̄², in a scalar sector where it is resonant."""
        _, q, p = mode
        q = q.conj() if conjugate else q
        return np.vdot(p, self.B(q, q)) / 2

    def cube(self, mode, conjugate=False, slaved=True):
        """The coefficient of z³, or of z̄³; `slaved` adds the second harmonic, for sectors where z² is not resonant."""
        L, q, p = mode
        q, L = (q.conj(), np.conj(L)) if conjugate else (q, L)
        total = np.vdot(p, self.C(q, q, q)) / 6
        if slaved:
            total += np.vdot(p, self.B(q, self.resolve(L**2, self.B(q, q)))) / 2
        return total

    def cubic_without_harmonic(self, mode):
        """c of |z|²z where 2q ≡ −q is not slaved (q = 2π/3, d = 1)."""
        L, q, p = mode
        mean = self.resolve(abs(L) ** 2, self.B(q, q.conj()))
        return np.vdot(p, self.C(q, q, q.conj()) / 2 + self.B(q, mean))
