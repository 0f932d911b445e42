"""Quasi-periodic states: an invariant circle X(θ) on which the map is a turn, F(X(θ)) = X(θ + Ω).

The standing wave of complex multipliers ±q (a symmetric kernel, d ≥ 2) is one: its crests stay where they are, while
every token oscillates with the phase θ. No layer maps it to itself or to its own translate, so that it is no
`ExactState`. X is a trigonometric polynomial in θ, through M samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.exact.equations import Floats, newton
from amplitude.exact.symmetry import Reduction, dominant, projection, shift_matrix, spectrum
from amplitude.summary import changes, motion, tokens
from dispersion import ArgumentError, Block, Mode
from dispersion.block.derivative import require_jacobian, value_and_jacobian
from dispersion.errors import frozen, frozen_array, instance, real_array, real_number, whole_number
from dispersion.grid import Wavenumber, grid_index
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64, harmless_underflow
from dispersion.summary import paragraph

TRUNCATED = 1e-6
"""A multiplier counts as unstable if |Λ| exceeds 1 by more than this, which truncation in θ may cause."""
RESOLVED = 1e-2
"""Part of its swing by which the map may leave an invariant circle between two samples."""


@dataclass(frozen=True, eq=False)
class Oscillation(Noun):
    """An invariant circle of a block, F(X(θ)) = X(θ + Ω).

    Attributes
    ----------
    block : Block
        The map.
    fields : (M, N, d) ndarray
        X at θ = 2πm/M, M odd.
    phase_advance : float
        Ω, radians per layer.
    residual : float
        max|F(X(θ)) − X(θ + Ω)| at the M samples. `defect` tells whether M is enough.
    """

    block: Block
    fields: Floats
    phase_advance: float
    residual: float

    @cached_property
    def k(self) -> Wavenumber:
        """The wavenumber that dominates the fundamental in θ."""
        return dominant(self.block.shape, self._fundamental)

    @property
    def amplitude(self) -> float:
        """R = |fft(X_1)[k]/N| of the fundamental X_1 = ⟨e^{−iθ}X(θ)⟩ at the dominant wavenumber.

        A standing wave has this R at k and at −k.
        """
        return self.amplitude_at(self.k)

    def amplitude_at(self, k: Wavenumber) -> float:
        """|fft(X_1)[k]/N| of the fundamental at one wavenumber.

        Parameters
        ----------
        k : int or tuple of int
            Wavenumber, on a torus one number for each axis.
        """
        index = grid_index("k", k, self.block.shape)
        return float(spectrum(self.block.shape, self._fundamental).ravel()[index])

    def projection(self, mode: Mode) -> float:
        """|wᴴX_1k|, how much of a mode the fundamental holds.

        Parameters
        ----------
        mode : Mode
            k and w, on the tokens of the block.
        """
        return projection(self.block.shape, self._fundamental, mode)

    @property
    def _fundamental(self) -> NDArray[np.complex128]:
        return np.asarray(np.fft.fft(self.fields, axis=0)[1] / len(self.fields))

    def field(self, theta: float) -> Floats:
        """(N, d) X at one phase.

        Parameters
        ----------
        theta : float
            θ, radians.
        """
        m = np.fft.fftfreq(len(self.fields), 1 / len(self.fields))
        modes = np.fft.fft(self.fields, axis=0) / len(self.fields)
        return np.tensordot(np.exp(1j * m * real_number("theta", theta)), modes, axes=1).real

    @property
    def defect(self) -> float:
        """max|F(X(θ)) − X(θ + Ω)| midway between the samples: the error of truncation in θ."""
        middle = np.pi / len(self.fields)
        after = self.block.forward(self.field(middle))
        return float(np.abs(after - self.field(middle + self.phase_advance)).max())

    @cached_property
    def multipliers(self) -> NDArray[np.complex128]:
        """(N·d,) Λ of v ↦ [DF(X) v](θ − Ω) on functions v(θ), the largest modulus first.

        With v also e^{imθ}v is an eigenfunction, of Λe^{−imΩ}: of each family the one with m nearest to 0 is given.
        Two are 1 in modulus, those of ∂X/∂θ and of translation.
        """
        count, size = len(self.fields), self.fields[0].size
        back = _turn(count, -self.phase_advance)
        slopes = np.array([value_and_jacobian(self.block, x)[1] for x in self.fields])
        # rows (m, i), columns (m', j): S_{mm'} DF(X_m')_ij
        operator = back[:, None, :, None] * np.moveaxis(slopes, 0, 1)[None, :, :, :]
        values, vectors = np.linalg.eig(operator.reshape(count * size, count * size))
        weight = np.linalg.norm(np.fft.fft(vectors.reshape(count, size, -1), axis=0), axis=1) ** 2
        centroid = np.fft.fftfreq(count, 1 / count) @ weight / weight.sum(axis=0)
        kept = values[np.argsort(np.abs(centroid), kind="stable")[:size]]
        return frozen(kept[np.argsort(-np.abs(kept), kind="stable")].astype(complex))

    @property
    def growth(self) -> float:
        """By what factor the fastest small change grows in a layer: the largest |Λ|."""
        return float(np.abs(self.multipliers[0]))

    def __str__(self) -> str:
        """What it is, in a few lines; multipliers only where there are not too many."""
        return paragraph(
            f"invariant circle through {len(self.fields)} fields, {tokens(self.k, self.block)}",
            motion(self.amplitude, self.phase_advance),
            changes(self, self.fields.size),
            f"residual {self.residual:.1e}, between the fields {self.defect:.1e}",
        )

    @property
    def stable(self) -> bool:
        """Whether no perturbation grows, |Λ| ≤ 1 + `TRUNCATED`."""
        return self.growth <= 1 + TRUNCATED


@beyond_float64
def find_oscillation(block: Block, start: ArrayLike, phase_advance: float, tolerance: float = 1e-12) -> Oscillation:
    """The invariant circle of a block that Newton's method reaches from a start.

    Parameters
    ----------
    block : Block
        The map.
    start : (M, N, d) array_like
        Guess of X at θ = 2πm/M, M odd and at least 3, such as `standing_start`; the reflections and translations that
        all M fields share are kept.
    phase_advance : float
        Guess of Ω, radians per layer.
    tolerance : float
        Largest |F(X(θ)) − X(θ + Ω)| accepted at the samples, relative to 1 + max|X|.

    Returns
    -------
    Oscillation
        The circle.

    Raises
    ------
    ArgumentError
        If Newton's method fails, if the circle shrinks to a point, or if F leaves it between samples.
    """
    instance("block", block, Block)
    x = frozen_array("start", start, (None, block.n, block.d))
    count, d = len(x), block.d
    if count < 3 or count % 2 == 0:
        raise ArgumentError("start", f"{count} fields", "an odd number of fields, 3 or more")
    require_jacobian(block, count**2)
    swing = np.ptp(x, axis=0).max()
    if not swing > 1e-9 * np.abs(x).max():
        raise ArgumentError("start", "fields that are all the same", "fields that oscillate")
    reduction = Reduction.of(block, np.swapaxes(x, 0, 1).reshape(block.n, -1))
    rows = reduction.size * d
    reference = np.concatenate([reduction.restrict(field) for field in x])
    pin = (_turn(count, 0.0, True) @ reference.reshape(count, rows)).ravel()
    pin /= max(float(np.linalg.norm(pin)), 1e-300)

    def system(u: Floats) -> tuple[Floats, Floats]:
        # F(X(θ)) − X(θ + Ω) = 0 at the samples, and ⟨∂X_0/∂θ, X − X_0⟩ = 0
        fields, turn = u[:-1].reshape(count, rows), _turn(count, u[-1])
        matrix = -np.einsum("mn,ij->minj", turn, np.eye(rows))
        residual = -turn @ fields
        for m, values in enumerate(fields):
            image, slope = value_and_jacobian(block, reduction.expand(values, d))
            residual[m] += image[reduction.first].ravel()
            matrix[m, :, m, :] += reduction.reduce(slope, d)
        moving = -(_turn(count, u[-1], True) @ fields).ravel()
        square = matrix.reshape(count * rows, count * rows)
        bordered = np.block([[square, moving[:, None]], [pin, np.zeros(1)]])
        return np.append(residual.ravel(), pin @ (u[:-1] - reference)), bordered

    limit = real_number("tolerance", tolerance, positive=True) * (1 + float(np.abs(x).max()))
    u, residual, steps = newton(system, np.append(reference, real_number("phase_advance", phase_advance)), limit)
    fields = np.array([reduction.expand(values, d) for values in u[:-1].reshape(count, rows)])
    if not residual <= limit:
        got = f"a guess of |X| ≤ {np.abs(x).max():.3g}, a residual of {residual:.2g} after {steps} Newton steps"
        raise ArgumentError("start", got, "a guess from which an invariant circle is reached")
    if np.ptp(fields, axis=0).max() <= 1e-3 * swing:
        raise ArgumentError("start", "a guess that falls back to one state", "a guess nearer to an oscillation")
    circle = Oscillation(block, frozen(fields), float(u[-1]), residual)
    if circle.defect > RESOLVED * np.ptp(fields, axis=0).max():
        got = f"{count} fields, between which F(X(θ)) and X(θ + Ω) differ by {circle.defect:.2g}"
        raise ArgumentError("start", got, "more fields, until they agree")
    return circle


@harmless_underflow
def standing_start(
    mode: Mode, amplitude: float, phase: float = 0.0, samples: int = 13, state: ArrayLike = 0.0
) -> Floats:
    """A guess for `find_oscillation`: a + 4R cos(q·j + ψ) Re(v e^{iθ}), waves of amplitude R at q and −q.

    Parameters
    ----------
    mode : Mode
        q and v.
    amplitude : float
        R.
    phase : float
        ψ, radians.
    samples : int
        M, odd and at least 3.
    state : (d,) array_like
        a; 0 by default.

    Returns
    -------
    (M, N, d) ndarray
        The fields at θ = 2πm/M.
    """
    instance("mode", mode, Mode)
    base = real_array("state", state)
    base = frozen_array("state", np.full(mode.right.shape, base) if base.ndim == 0 else base, mode.right.shape)
    theta = 2 * np.pi * np.arange(whole_number("samples", samples, 3)) / samples
    still = Mode(mode.k, mode.shape, 1.0, np.ones(1, complex), np.ones(1, complex), "standing")
    wave = still.field(2 * real_number("amplitude", amplitude), phase=phase)
    turning = np.real(np.exp(1j * theta)[:, None] * mode.right)
    return wave[None, :, :] * turning[:, None, :] + base


def _turn(count: int, advance: float, derivative: bool = False) -> Floats:
    """(M, M) the interpolated X(θ) ↦ X(θ + `advance`) on M = `count` samples, or its `derivative` by the advance."""
    step = 2 * np.pi / count
    matrix = shift_matrix((count,), 1, np.array([-advance / step]), 0 if derivative else None)
    return -matrix / step if derivative else matrix
