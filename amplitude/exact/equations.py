"""The equations of an exact state and Newton's method for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from amplitude.exact.symmetry import Reduction, dominant, shift_matrix, slides_of, twist
from dispersion import Block
from dispersion.block.derivative import value_and_jacobian
from dispersion.grid import Wavenumber

Floats = NDArray[np.float64]
Kind = Literal["steady", "alternating", "travelling"]
KINDS = ("steady", "alternating", "travelling")

NULL = 1e-12
"""Relative size under which a direction counts as null: Newton's steps have no component along it."""


@dataclass(frozen=True, eq=False)
class StateEquations:
    """G(u) = 0, one of F(X) = X (steady), F(F(X)) = X (alternating) and F(X) = T_s X (travelling).

    The unknown u, (m·d,) or (m·d + D,), holds X on the orbits of its own symmetries and, for a travelling state,
    the drift s, tokens per layer on each of D axes; then D more equations keep X from sliding along itself.

    kind : which; reduction : the symmetries; shape, d : tokens and features; k : dominant wavenumber.
    pins : (D, m·d) ∂X of the reference field on the orbits, weighted by their size; reference : (m·d,) that field.
    mirror : (N,) a reflection R, where F(X) = RX is solved for alternating states, and F(X) = −RX for steady ones that
    are odd: of these a wave's phase is isolated, however loosely the tokens hold it.
    """

    kind: Kind
    reduction: Reduction
    shape: tuple[int, ...]
    d: int
    k: Wavenumber
    pins: Floats
    reference: Floats
    mirror: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, block: Block, kind: Kind, x: Floats) -> StateEquations:
        """The equations of `kind` for `block`, with the symmetries of the field `x` (N, d)."""
        moves, k = kind == "travelling", dominant(block.shape, x)
        reduction = Reduction.of(block, x, reflections=not moves)
        pins = np.zeros((0, reduction.size * block.d))
        if moves:
            slides = [reduction.restrict(slide) for slide in slides_of(block.shape, k, x)]
            counts = np.repeat(np.bincount(reduction.orbit), block.d)
            pins = np.array([slide * counts / np.sqrt(max(float(counts @ slide**2), 1e-300)) for slide in slides])
        mirror = None if moves else twist(block, kind, x)
        return cls(kind, reduction, block.shape, block.d, k, pins, reduction.restrict(x), mirror)

    def pack(self, x: Floats, drift: Floats) -> Floats:
        """u of the field `x` (N, d) and the `drift` (D,), which only a travelling state has."""
        field = self.reduction.restrict(x)
        return np.append(field, drift) if self.kind == "travelling" else field

    def unpack(self, u: Floats) -> tuple[Floats, Floats]:
        """The field (N, d) and the drift (D,) of `u`."""
        size = self.reduction.size * self.d
        drift = u[size:] if self.kind == "travelling" else np.zeros(len(self.shape))
        return self.reduction.expand(u[:size], self.d), drift

    def image(self, block: Block, u: Floats) -> Floats:
        """The part of G(u) that depends on `block`, zero where it does not: F(X), F(F(X)) or ±F(RX) on the orbits."""
        x = self.unpack(u)[0]
        y = block.forward(x)
        if self.mirror is not None:
            y = self._sign * y[self.mirror]
        elif self.kind == "alternating":
            y = block.forward(y)
        values = y[self.reduction.first].ravel()
        return np.append(values, np.zeros(len(u) - len(values)))

    @property
    def _sign(self) -> int:
        return 1 if self.kind == "alternating" else -1

    def __call__(self, block: Block, u: Floats) -> tuple[Floats, Floats]:
        """G(u) and its derivative for `block`, both square in the length of `u`."""
        x, drift = self.unpack(u)
        twice = self.kind == "alternating" and self.mirror is None
        image, slope = value_and_jacobian(block, x, 2 if twice else 1)
        if self.mirror is not None:
            image = self._sign * image[self.mirror]
            slope = self._sign * slope.reshape(len(x), -1)[self.mirror].reshape(slope.shape)
        reduced, restrict = self.reduction.reduce(slope, self.d), self.reduction.first
        if self.kind != "travelling":
            return (image - x)[restrict].ravel(), reduced - np.eye(len(reduced))
        # F(X) − T_s X = 0 and ⟨pins, X − X_ref⟩ = 0, with derivatives DF − T_s and −∂T_s/∂s X
        turn = np.kron(shift_matrix(self.shape, self.k, drift), np.eye(self.d))
        axes = range(len(self.shape))
        moving = [(shift_matrix(self.shape, self.k, drift, axis) @ x)[restrict].ravel() for axis in axes]
        residual = (image - (turn @ x.ravel()).reshape(x.shape))[restrict].ravel()
        field = u[: len(residual)]
        matrix = np.block(
            [
                [reduced - self.reduction.reduce(turn, self.d), -np.array(moving).T],
                [self.pins, np.zeros((len(self.pins), len(self.pins)))],
            ]
        )
        return np.append(residual, self.pins @ (field - self.reference)), matrix


def least_step(matrix: Floats, residual: Floats) -> Floats:
    """The smallest δ that solves `matrix` δ = −`residual` as well as it can be."""
    solution: Floats = linalg.lstsq(matrix, -residual, cond=NULL, lapack_driver="gelsy", check_finite=False)[0]
    return solution


def newton(
    system: Callable[[Floats], tuple[Floats, Floats]], u: Floats, tolerance: float, iterations: int = 40
) -> tuple[Floats, float, int]:
    """(u, max|G|, steps) after Newton's method with step halving on `system`, u ↦ (G, DG), from the guess `u`.

    It stops at `tolerance` in max|G|, after `iterations`, or where no step along Newton's direction helps; one more
    step is taken after that if it helps. What it reached is for the caller to judge.
    """
    with np.errstate(all="ignore"):
        residual, matrix = system(u)
        size = float(np.abs(residual).max())
        for count in range(iterations):
            if not np.isfinite(size) or not np.isfinite(matrix).all() or size <= 0.01 * tolerance:
                return u, size, count
            step = least_step(matrix, residual)
            for halving in range(1 if size <= tolerance else 8):
                trial = u + step / 2**halving
                after, slope = system(trial)
                if np.isfinite(after).all() and np.linalg.norm(after) < np.linalg.norm(residual):
                    break
            else:
                return u, size, count
            u, residual, matrix, size = trial, after, slope, float(np.abs(after).max())
    return u, size, iterations
