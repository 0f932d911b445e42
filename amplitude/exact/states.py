"""Exact states of the full map by Newton's method, with their multipliers: steady, alternating and travelling."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.exact.equations import KINDS, Floats, Kind, StateEquations, newton
from amplitude.exact.symmetry import (
    circulant,
    dominant,
    projection,
    shift_matrix,
    slides_of,
    snapped,
    spectrum,
    unwrapped,
)
from amplitude.summary import changes, motion, tokens
from dispersion import ArgumentError, Block, Mode
from dispersion.block.derivative import require_jacobian, value_and_jacobian
from dispersion.eigen import eigenvalues, ranking
from dispersion.errors import choice, frozen, frozen_array, instance, real_array, real_number, whole_number
from dispersion.grid import Wavenumber, grid_index
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64
from dispersion.summary import numbers, paragraph

NEUTRAL = 1e-9
"""A multiplier counts as unstable if |Λ| exceeds 1 by more than this."""
SLIDING = 1e-5
"""Distance from 1 under which the multiplier of a translation is that of a pattern free to slide."""
CLOSED = 1e-3
"""Part of the first layer's displacement up to which a second one that undoes it makes a cycle."""
HELD = 1e-2
"""Part of a layer's displacement under which the lattice defect of a travelling wave must stay; against locking after
m layers, which is weaker, its m-th root."""
STEADFAST = 1e-3
"""Relative change of R under iteration from which on a travelling wave counts as breathing."""


@dataclass(frozen=True, eq=False)
class ExactState(Noun):
    """A field that the block maps to itself: F(X) = X, F(F(X)) = X or F(X) = T_s X.

    Attributes
    ----------
    block : Block
        The map.
    kind : {'steady', 'alternating', 'travelling'}
        Standing waves, clusters and homogeneous states are steady.
    field : (N, d) ndarray
        X.
    drift : (D,) ndarray
        s, the velocity in tokens per layer along each axis, 0 unless travelling; T_s moves the Fourier interpolation
        of the field.
    residual : float
        max|F(X) − X|, of F∘F or against T_s X.
    """

    block: Block
    kind: Kind
    field: Floats
    drift: Floats
    residual: float

    def derivative(self) -> NDArray:
        """(N·d, N·d) what multiplies a perturbation: DF, D(F∘F) for two layers, or T_{−s}DF in the moving frame."""
        slope = value_and_jacobian(self.block, self.field, 2 if self.kind == "alternating" else 1)[1]
        if self.kind == "travelling":
            back = shift_matrix(self.block.shape, self.k, -self.drift, unitary=True)
            slope = np.tensordot(back, slope.reshape(self.block.n, -1), axes=1).reshape(slope.shape)
        return slope

    @property
    def multipliers(self) -> NDArray[np.complex128]:
        """(N·d,) eigenvalues of `derivative`, the largest modulus first: factors per layer, per two if alternating."""
        return self._spectrum[0]

    @property
    def sliding(self) -> NDArray[np.int64]:
        """Places in `multipliers` of those of translations, 1 ± O(R^{n−2}) for a pattern of n tokens a period.

        A translation is recognised if DF ∂X = Λ∂X about as well as tokens can tell and |Λ − 1| ≤ `SLIDING`; a pattern
        that the lattice holds more firmly has none. A travelling wave has always, for it slides.
        """
        return self._spectrum[1]

    @cached_property
    def _spectrum(self) -> tuple[NDArray[np.complex128], NDArray[np.int64]]:
        matrix = self.derivative()
        values = _eigenvalues(self, matrix).astype(complex)
        values = values[ranking(values)]
        return frozen(values), frozen(_translations(self, matrix, values))

    def eigenvectors(self, count: int = 1) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
        """The multipliers of largest modulus and their eigenvectors.

        Parameters
        ----------
        count : int
            How many, 1 … N·d.

        Returns
        -------
        values : (count,) complex ndarray
            Multipliers.
        vectors : (count, N, d) complex ndarray
            Their unit eigenvectors.
        """
        count = whole_number("count", count, 1, self.field.size)
        values, vectors = np.linalg.eig(self.derivative())
        order = ranking(values)[:count]
        return values[order] + 0j, (vectors.T[order] + 0j).reshape(-1, *self.field.shape)

    @cached_property
    def critical(self) -> NDArray[np.complex128]:
        """The `multipliers` that decide stability: all, but for a travelling state without those of translations."""
        return frozen(np.delete(self.multipliers, self.sliding if self.kind == "travelling" else []))

    @property
    def growth(self) -> float:
        """By what factor the fastest small change grows in a layer: the largest |Λ| of `critical`."""
        largest = float(np.abs(self.critical[0]))
        return largest**0.5 if self.kind == "alternating" else largest

    @property
    def unstable(self) -> int:
        """How many of `critical` lie outside the unit circle by more than `NEUTRAL`."""
        return int((np.abs(self.critical) > 1 + NEUTRAL).sum())

    @property
    def stable(self) -> bool:
        """Whether no perturbation grows: |Λ| ≤ 1 + `NEUTRAL`; never said of a travelling wave that `breathes`.

        Of the two families of a standing wave, with a crest on a token and between two, the lattice makes one unstable
        to sliding, by O(R^{n−2}).
        """
        return self.unstable == 0 and not self.breathes

    @cached_property
    def spectrum(self) -> Floats:
        """(*shape) |X_k|, the norm over features of fft(X)[k]/N, indexed by k."""
        return frozen(spectrum(self.block.shape, self.field))

    @cached_property
    def k(self) -> Wavenumber:
        """The dominant wavenumber, that of the largest |X_k| with k ≠ 0; 0 of a homogeneous state."""
        return dominant(self.block.shape, self.field)

    @property
    def amplitude(self) -> float:
        """R = |fft(X)[k]/N| at the dominant wavenumber: half a crest, at π a whole."""
        return self.amplitude_at(self.k)

    def amplitude_at(self, k: Wavenumber) -> float:
        """|fft(X)[k]/N| at one wavenumber.

        Parameters
        ----------
        k : int or tuple of int
            Wavenumber, on a torus one number for each axis.
        """
        return float(self.spectrum.ravel()[grid_index("k", k, self.block.shape)])

    def projection(self, mode: Mode) -> float:
        """|wᴴX_k|, how much of a mode the state holds: R where X_k has parts in other modes of its wavenumber.

        Parameters
        ----------
        mode : Mode
            k and w, on the tokens of the block.
        """
        return projection(self.block.shape, self.field, mode)

    @property
    def phase_advance(self) -> float:
        """Ω of the dominant wavenumber, see `phase_advance_at`."""
        return self.phase_advance_at(self.k)

    def phase_advance_at(self, k: Wavenumber) -> float:
        """Ω = −q·s of one wavenumber, radians per layer in (−π, π]; π if alternating.

        Parameters
        ----------
        k : int or tuple of int
            Wavenumber, on a torus one number for each axis.
        """
        index = grid_index("k", k, self.block.shape)
        if self.kind == "alternating":
            return float(np.pi)
        own = self.k if isinstance(self.k, tuple) else (self.k,)
        q = unwrapped(self.block.shape, own)[0][index]
        return float(np.pi - (np.pi + q @ self.drift) % (2 * np.pi)) + 0.0

    def __str__(self) -> str:
        """What it is, in a few lines; multipliers only where there are not too many."""
        moves = self.kind == "travelling"
        return paragraph(
            f"exact {self.kind} state, {tokens(self.k, self.block)}",
            motion(self.amplitude, self.phase_advance),
            f"drift {numbers(self.drift)} tokens a layer" if moves else "",
            changes(self, self.field.size),
            f"residual {self.residual:.1e}",
        )

    @cached_property
    def lattice_defect(self) -> float:
        """max|F(T_p X) − T_{p+s} X| for p of a quarter, half and three quarters of the step between two places where
        the tokens are alike: how far they are from being a continuum. A travelling wave of n tokens a period is exact
        up to this, O(R^{n−1})."""
        worst = 0.0
        for part in (0.25, 0.5, 0.75):
            place = part / self._copies
            moved = shift_matrix(self.block.shape, self.k, place) @ self.field
            ahead = shift_matrix(self.block.shape, self.k, place + self.drift) @ self.field
            worst = max(worst, float(np.abs(self.block.forward(moved) - ahead).max()))
        return worst

    @property
    def _copies(self) -> Floats:
        """(D,) periods k/gcd(k, N) after which a wave repeats on tokens: it may be moved by the inverse of that."""
        return np.array([max(k // gcd(k, n), 1) for k, n in zip(np.atleast_1d(self.k), self.block.shape, strict=True)])

    @cached_property
    def breathes(self) -> bool:
        """Whether a travelling state is none: the tokens hold it, or R changes as it goes over them.

        T_s is no symmetry of a short ring. Against every place where m ≤ 4 layers would lock on the tokens the drift
        must show beyond the lattice defect, `HELD`; and where that, adding up for 1/(1 − |Λ|) layers, could change R,
        the true map must leave R as it is, to `STEADFAST`.
        """
        if self.kind != "travelling":
            return False
        slide = np.array([np.abs(slide).max() for slide in slides_of(self.block.shape, self.k, self.field)])
        m = np.arange(1, 5)
        steps = m[:, None] * self._copies
        off = np.abs(self.drift * steps - np.round(self.drift * steps)) / steps
        defect = self.lattice_defect + np.finfo(float).eps * float(np.abs(self.field).max())
        if (defect > HELD ** (1 / m) * (off @ slide)).any():
            return True
        decay = max(1 - float(np.abs(self.critical).max(initial=0.0)), 1e-3)
        if self.unstable or defect <= 0.1 * STEADFAST * decay * self.amplitude:
            return False
        x = self.field
        for _ in range(int(4 / decay)):
            x = self.block.forward(x)
            if abs(spectrum(self.block.shape, x)[self.k] / self.amplitude - 1) > STEADFAST:
                return True
        return False


@beyond_float64
def find_state(
    block: Block,
    start: ArrayLike,
    kind: Kind | None = None,
    drift: ArrayLike | None = None,
    tolerance: float = 1e-12,
) -> ExactState:
    """The exact state of a block that Newton's method reaches from a guess.

    F itself, applied once more, confirms what is returned.

    Parameters
    ----------
    block : Block
        The map.
    start : (N, d) array_like, or (N,) for d = 1
        The guess: the field of a closed form or normal form, or the end of a trajectory. Its reflections and
        translations are kept: the state has them too, and no perturbation that breaks them slows it.
    kind : {'steady', 'alternating', 'travelling'}, optional
        By default what the first layer does to the dominant mode.
    drift : (D,) array_like, optional
        First guess of a travelling state's velocity in tokens per layer, a number on a ring; by default from the first
        layer.
    tolerance : float
        Largest |F(X) − X| accepted, relative to 1 + max|X|.

    Returns
    -------
    ExactState
        The state, with its multipliers.

    Raises
    ------
    ArgumentError
        If Newton's method fails, slides back to a homogeneous or steady state, or finds a wave that cannot travel on so
        few tokens, since they hold it or make it breathe; where no `kind` was given it is then sought as a steady and
        an alternating state.
    """
    instance("block", block, Block)
    require_jacobian(block)
    x = field_of(block, start)
    if kind is not None:
        choice("kind", kind, KINDS)
    limit = real_number("tolerance", tolerance, positive=True) * (1 + float(np.abs(x).max()))
    guess, kinds = _first_layer(block, x)
    if drift is not None:
        guess = frozen_array("drift", np.atleast_1d(real_array("drift", drift)), (len(block.shape),))
    first, *others = kinds if kind is None else (kind,)
    try:
        return _state(block, x, first, guess, limit)
    except ArgumentError:
        for other in others:
            with suppress(ArgumentError):
                state = _state(block, x, other, guess, limit)
                size = float(spectrum(block.shape, x)[state.k])
                if state.k == dominant(block.shape, x) and size / 2 < state.amplitude < 2 * size:
                    return state
        raise


def _state(block: Block, x: Floats, kind: Kind, drift: Floats, limit: float) -> ExactState:
    """The state of one `kind` near the field `x` (N, d), with max|F(X) − X| ≤ `limit`."""
    if kind == "travelling" and not circulant(block):
        raise ArgumentError("kind", "'travelling'", "a block whose attention depends on i − j alone, or another kind")
    equations = StateEquations.of(block, kind, x)
    u, residual, steps = newton(partial(equations, block), equations.pack(x, drift), limit)
    if not residual <= limit and kind != "travelling":
        # a wave at no phase of its families, which the lattice draws there only slowly: begin on one
        for even in snapped(block, x):
            equations = StateEquations.of(block, kind, even)
            u, residual, steps = newton(partial(equations, block), equations.pack(even, drift), limit)
            if residual <= limit:
                break
    state = state_of(block, equations, u, residual)
    if residual <= limit:
        residual = _mismatch(state)
        state = replace(state, residual=residual)
    if not residual <= limit:
        got = f"a guess of |X| ≤ {np.abs(x).max():.3g}, max|F(X) − X| = {residual:.2g} after {steps} Newton steps"
        accepted = "a guess from which the {} state is reached{}"
        raise ArgumentError("start", got, accepted.format(kind, ", or another kind" if kind == "travelling" else ""))
    if np.ptp(x, axis=0).max() > 1e-6 and np.ptp(state.field, axis=0).max() <= 1e-3 * np.ptp(x, axis=0).max():
        raise ArgumentError("start", "a guess that falls back to a homogeneous state", "a guess nearer to a pattern")
    if kind == "alternating":
        swing = np.abs(block.forward(state.field) - state.field).max()
        if swing <= 1e-3 * np.abs(block.forward(x) - x).max() or swing <= limit:
            raise ArgumentError("start", "a guess that falls back to a steady state", "a guess nearer to a cycle")
    if state.breathes:
        got = f"a wave that drifts {state.drift} tokens a layer, lattice defect {state.lattice_defect:.2g}: it breathes"
        raise ArgumentError(
            "start", got, "one that travels steadily over the tokens, or another kind; iterate it, or find_oscillation"
        )
    return state


def state_of(block: Block, equations: StateEquations, u: Floats, residual: float) -> ExactState:
    """The solution `u` of `equations` as a state of `block`, with its `residual`."""
    x, drift = equations.unpack(u)
    return ExactState(block, equations.kind, frozen(x.copy()), frozen(drift.copy()), residual)


def _mismatch(state: ExactState) -> float:
    """max|F(X) − X| by the map itself, of F∘F or against T_s X: `residual` as iteration would see it."""
    block, x = state.block, state.field
    image = block.forward(block.forward(x) if state.kind == "alternating" else x)
    target = shift_matrix(block.shape, state.k, state.drift) @ x if state.kind == "travelling" else x
    return float(np.abs(image - target).max())


def field_of(block: Block, start: ArrayLike) -> Floats:
    """`start` as a field (N, d) of `block`; (N,) is accepted for d = 1."""
    shape = (block.n, block.d)
    return frozen_array("start", np.reshape(start, shape) if np.shape(start) == (block.n,) else start, shape)


def _first_layer(block: Block, x: Floats) -> tuple[Floats, tuple[Kind, ...]]:
    """The drift (D,) that one layer suggests, and the kinds of state, the likeliest first, from the phase advance Ω of
    the dominant mode."""
    shape = block.shape
    drift, k = np.zeros(len(shape)), dominant(shape, x)
    if not np.any(k):
        far = np.abs(block.forward(x) + x).max() < np.abs(block.forward(x) - x).max()
        return drift, ("alternating" if far else "steady",)
    image = block.forward(x)
    swing = float(np.abs(image - x).max())
    if swing > 1e-6 * np.abs(x).max() and np.abs(block.forward(image) - x).max() <= CLOSED * swing:
        return drift, ("alternating", "steady")
    axes = tuple(range(len(shape)))
    before, after = (np.fft.fftn(np.reshape(y, (*shape, -1)), axes=axes) for y in (x, image))
    place = np.unravel_index(grid_index("k", k, shape), shape)
    ratio = np.vdot(before[place], after[place])
    standing: tuple[Kind, Kind] = ("steady", "alternating") if ratio.real > 0 else ("alternating", "steady")
    if abs(ratio.imag) <= 1e-4 * abs(ratio):
        return drift, standing[:1]
    q = np.array(2 * np.pi * np.array(np.atleast_1d(k)) / np.array(shape))
    return -np.angle(ratio) * q / (q @ q), ("travelling", *standing)


def _eigenvalues(state: ExactState, matrix: NDArray) -> NDArray:
    """Eigenvalues of `matrix`, sector by sector where the pattern of `state` on a ring repeats every n tokens.

    Perturbations e^{iκj} w_j with w of period n, κ = 2πm/N, do not mix: D_κ = Σ_c D_{i, j+cn} e^{iκ(j+cn−i)}.
    """
    block = state.block
    N, d, period = block.n, block.d, 0
    if state.kind != "travelling" and len(block.shape) == 1 and circulant(block):
        period = next(n for n in range(1, N + 1) if N % n == 0 and _repeats(state.field, n))
    if not 0 < period < N:
        return eigenvalues(matrix)
    copies = N // period
    blocks = matrix[: period * d].reshape(period * d, copies, period * d)
    sectors = np.moveaxis(np.fft.ifft(blocks, axis=1) * copies, 1, 0)  # similar to D_κ
    half = np.linalg.eigvals(sectors[1 : (copies + 1) // 2])
    real = [np.linalg.eigvals(sectors[m].real) for m in {0, copies // 2 if copies % 2 == 0 else 0}]
    return np.concatenate([*real, half.ravel(), half.conj().ravel()])


def _translations(state: ExactState, matrix: NDArray, values: NDArray) -> NDArray[np.int64]:
    """Places in `values` of the multipliers of translations."""
    found: list[int] = []
    for slide in slides_of(state.block.shape, state.k, state.field) if circulant(state.block) else ():
        direction = slide.ravel()
        size = np.linalg.norm(direction)
        if size <= 1e-9 * (1 + np.abs(state.field).max()):
            continue
        # Λ = ⟨∂X, DF ∂X⟩/|∂X|²
        image = matrix @ direction
        near = direction @ image / size**2
        limit = 0.1 if state.kind == "travelling" else SLIDING
        if abs(near - 1) <= limit and np.linalg.norm(image - near * direction) <= np.sqrt(limit) * size:
            distance = np.abs(values - near)
            distance[found] = np.inf
            found.append(int(distance.argmin()))
    return np.array(found, dtype=np.int64)


def _repeats(x: Floats, n: int) -> bool:
    return bool(np.abs(x - np.roll(x, n, axis=0)).max() <= 1e-11 * (1 + np.abs(x).max()))
