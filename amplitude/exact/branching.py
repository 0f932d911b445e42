"""Onto a bifurcating branch: from a bifurcation of another one, and from the homogeneous state along a mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from amplitude.exact.bifurcations import FLIP, FOLD, NEIMARK_SACKER, Bifurcation, directions
from amplitude.exact.branch import Branch, follow, values_of
from amplitude.exact.continuation import Continuation, MakeBlock, Point, Walk
from amplitude.exact.equations import Floats, Kind, StateEquations, newton
from amplitude.exact.resting import fixed_point_equation
from amplitude.exact.states import ExactState
from amplitude.exact.symmetry import slides_of
from amplitude.progress import progress_bar
from dispersion import ArgumentError, Block, Mode, dispersion_relation
from dispersion.errors import flag, instance, real_number, whole_number
from dispersion.grid import Wavenumber, grid_index, grid_wavenumbers, wavenumber
from dispersion.quiet import beyond_float64
from dispersion.ring.mode import eigenmode

REAL = 1e-6
"""Phase of a multiplier, in radians, under which it counts as real."""


@beyond_float64
def switch(
    branch: Branch,
    bifurcation: Bifurcation,
    family: int = 0,
    side: int = 1,
    amplitude: float = 0.02,
    values: ArrayLike | None = None,
    points: int = 200,
    longest: float = 0.03,
    progress: bool = False,
) -> Branch:
    """The branch that leaves another one at a bifurcation; the state there is its first.

    At a branch point the new states are of the same kind; at a flip of steady states they alternate; at a
    Neimark–Sacker point of a homogeneous state they travel.

    Parameters
    ----------
    branch : Branch
        The branch that is left.
    bifurcation : Bifurcation
        One of its bifurcations.
    family : int
        Which null direction, where a symmetry makes several (`directions`).
    side : int
        ±1, which way along it.
    amplitude : float
        Root mean square of the first step along it.
    values : (2,) array_like, optional
        (start, stop), the range of the parameter, by default that of `branch`.
    points, longest, progress : int, float, bool
        As in `branch`: at most this many states; the longest step; whether to show a bar, on a terminal.

    Returns
    -------
    Branch
        The new branch.

    Raises
    ------
    ArgumentError
        At other bifurcations: nothing branches off at a fold, and cycles of four layers and quasi-periodic patterns
        are not followed.
    """
    state, kind = bifurcation.state, bifurcation.state.kind
    drift = state.drift
    if bifurcation.kind == FOLD:
        raise ArgumentError("bifurcation", "a fold", "a branch point, a flip or a Neimark–Sacker point")
    if bifurcation.kind == FLIP and kind != "steady":
        raise ArgumentError("bifurcation", f"a flip of a state that is {kind}", "a flip of steady states")
    if bifurcation.kind == NEIMARK_SACKER:
        if np.any(state.k) or kind != "steady":
            raise ArgumentError("bifurcation", "a Neimark–Sacker point of a pattern", "one of a homogeneous state")
        mode = _mode_of(state, bifurcation.multiplier)
        direction, kind, drift = mode.field(0.5, phase=0.0 if side > 0 else np.pi), "travelling", _drift_of(mode)
        if not mode.k:
            raise ArgumentError("bifurcation", "a Neimark–Sacker point at k = 0", "one with k ≠ 0, whose waves travel")
    else:
        choices = directions(bifurcation)
        if not 0 <= whole_number("family", family, 0) < len(choices):
            raise ArgumentError("family", family, f"0 … {len(choices) - 1}")
        direction = side * choices[family]
        kind = "alternating" if bifurcation.kind == FLIP else kind
    window = branch.window if values is None else values_of(values)
    return _leave(
        branch.make_block,
        bifurcation.value,
        state.field,
        direction,
        kind,
        drift,
        real_number("amplitude", amplitude, positive=True),
        Walk((float(window[0]), float(window[-1])), points - 2, longest, longest / 3),
        branch.name,
        progress,
    )


@beyond_float64
def pattern_branch(
    make_block: MakeBlock,
    values: ArrayLike,
    k: Wavenumber,
    phase: float | None = None,
    state: ArrayLike | None = None,
    name: str = "parameter",
    amplitude: float = 0.01,
    points: int = 200,
    longest: float = 0.03,
    locate: bool = True,
    progress: bool = False,
) -> Branch:
    """The branch of patterns of one wavenumber from its onset on the homogeneous state, which is its first state.

    Λ_k > 0 gives standing (steady) waves, Λ_k < 0 alternating ones, complex Λ_k travelling ones.

    Parameters
    ----------
    make_block : callable
        The Block of each parameter p.
    values : (2,) array_like
        (start, stop): the first onset |Λ_k| = 1 from start to stop is taken, and the branch followed, either way,
        until p leaves this range.
    k : int or tuple of int
        Wavenumber, on a torus one number for each axis.
    phase : float, optional
        θ_0 of the mode, radians; None takes of the families 0 and π/n (n tokens a period) the one that the lattice
        does not make slide. The eigenvector's sign counts: π for the opposite one.
    state : (d,) array_like, optional
        A guess of the homogeneous fixed point a at the first of `values`, zero by default.
    name : str
        What p is called.
    amplitude : float
        Root mean square of the first step along the mode.
    points, longest, progress : int, float, bool
        As in `branch`: at most this many states; the longest step; whether to show a bar, on a terminal.
    locate : bool
        Whether to look for bifurcations.

    Returns
    -------
    Branch
        The branch from the onset on.
    """
    marks = values_of(values)
    if not callable(make_block):
        raise ArgumentError("make_block", type(make_block).__name__, "a function from the parameter to a Block")
    first = instance("make_block", make_block(float(marks[0])), Block)
    longest, amplitude = real_number("longest", longest, positive=True), real_number("amplitude", amplitude)
    index = grid_index("k", k, first.shape)
    homogeneous = _Homogeneous(make_block, first, state)
    value = _first_onset(lambda p: abs(homogeneous.mode(p, index).multiplier) - 1, marks[0], marks[-1])
    if value is None:
        raise ArgumentError("values", f"{marks[0]:g} … {marks[-1]:g}", f"a range with an onset |Λ| = 1 of k = {k}")
    mode, base = homogeneous.mode(value, index), homogeneous.field(value)
    angle = abs(mode.phase)
    kind = "steady" if angle <= REAL else "alternating" if angle >= np.pi - REAL else "travelling"
    if kind == "travelling" and not ((2 * np.atleast_1d(mode.k)) % first.shape).any():
        raise ArgumentError("k", f"{k}, whose Λ = {mode.multiplier:.6g} is complex", "k ≠ 0, N/2, or find_oscillation")
    drift = _drift_of(mode) if kind == "travelling" else np.zeros(len(first.shape))
    window, steps = (float(marks[0]), float(marks[-1])), whole_number("points", points, 3) - 2
    plan = Walk(window, steps, longest, longest / 3, flag("locate", locate))

    def leave(angle: float, plan: Walk) -> Branch:
        direction = mode.field(0.5, phase=angle)
        direction = direction / np.sqrt((direction**2).mean())
        return _leave(
            make_block, value, base, direction, cast(Kind, kind), drift, amplitude, plan, name, progress
        )  # fmt: skip

    if phase is not None or kind == "travelling" or not mode.k:
        return leave(0.0 if phase is None else real_number("phase", phase), plan)
    q = grid_wavenumbers(first.shape).reshape(-1, len(first.shape))[index]
    n = round(float(np.prod([1 / _resolution(turn) for turn in q / (2 * np.pi)])))
    for angle in (0.0, np.pi / n):
        whole = leave(angle, plan)
        if not _made_to_slide(whole.states[len(whole) // 2]):
            return whole
    return whole


def _leave(
    make_block: MakeBlock,
    value: float,
    base: Floats,
    direction: Floats,
    kind: Kind,
    drift: Floats,
    amplitude: float,
    plan: Walk,
    name: str,
    progress: bool,
) -> Branch:
    """The branch X = base + amplitude·direction + … through `base` at `value`, the parameter free."""
    block = make_block(value)
    equations = StateEquations.of(block, kind, base + amplitude * direction)
    span = abs(plan.window[1] - plan.window[0])
    path = Continuation.of(make_block, equations, base, span, 1e-11 * (1 + float(np.abs(base).max())))
    for attempt in range(8):
        size = amplitude / 2**attempt
        along = np.append(equations.pack(size * direction, np.zeros(len(block.shape))), 0.0)
        origin = np.append(equations.pack(base, drift), value)
        z, residual, _ = path.solve(origin + along, along / path.scale)
        if (
            (z != origin).any()
            and residual <= path.tolerance
            and np.linalg.norm((z - origin - along) / path.scale) <= size * 10
        ):
            break
    else:
        raise ArgumentError(
            "amplitude", f"{amplitude:g}, and smaller ones, from which Newton's method fails", "another"
        )
    chord = (z - origin) / path.scale
    chord /= np.linalg.norm(chord)
    start = Point(origin, chord, path.point(origin, 0.0, chord).state)
    return follow(path, [start, path.point(z, residual, chord)], plan, name, progress_bar(progress, plan.points, name))


class _Homogeneous:
    """The homogeneous fixed point 1⊗a as a function of the parameter, from a guess at the first value."""

    def __init__(self, make_block: MakeBlock, first: Block, guess: ArrayLike | None) -> None:
        self.make_block, self.guess = make_block, first.homogeneous_state(guess)

    def field(self, p: float) -> Floats:
        block = self.make_block(p)
        return np.tile(self.state(block), (block.n, 1))

    def state(self, block: Block) -> Floats:
        """(d,) the fixed point a = g(a) of `block` that Newton's method reaches from the guess."""
        limit = 1e-12 * (1 + float(np.abs(self.guess).max()))
        a, residual, steps = newton(partial(fixed_point_equation, block), self.guess, limit)
        if not residual <= limit:
            got = f"{np.array2string(self.guess, threshold=4)}, |g(a) − a| = {residual:.2g} after {steps} Newton steps"
            raise ArgumentError("state", got, "a guess from which the homogeneous state is reached")
        return a

    def mode(self, p: float, index: int) -> Mode:
        block = self.make_block(p)
        a = self.state(block)
        matrices = dispersion_relation(block, state=a).matrices.reshape(-1, block.d, block.d)
        return eigenmode(matrices[index], 0, wavenumber(index, block.shape), block.shape)


def _first_onset(excess: Callable[[float], float], start: float, stop: float) -> float | None:
    """The root of `excess` nearest to `start` on 65 samples of the range, or None."""
    samples = np.linspace(start, stop, 65)
    before = excess(samples[0])
    for low, high in pairwise(samples):
        after = excess(high)
        if before * after <= 0:
            return float(brentq(excess, low, high, xtol=1e-15 * (1 + abs(low)), rtol=1e-14))
        before = after
    return None


def _mode_of(state: ExactState, multiplier: complex) -> Mode:
    """The mode of the homogeneous `state` whose multiplier is nearest to `multiplier` or its conjugate."""
    shape, d = state.block.shape, state.block.d
    relation = dispersion_relation(state.block, state=state.field[0])
    distance = np.minimum(
        *(np.abs(relation.multipliers.reshape(-1, d) - m) for m in (multiplier, multiplier.conjugate()))
    )
    index, rank = np.unravel_index(distance.argmin(), distance.shape)
    return eigenmode(relation.matrices.reshape(-1, d, d)[index], int(rank), wavenumber(int(index), shape), shape)


def _drift_of(mode: Mode) -> Floats:
    """(D,) the velocity of `mode`, −ωq/|q|² tokens per layer."""
    q = np.atleast_1d(np.asarray(mode.q, dtype=float))
    return -mode.phase * q / max(float(q @ q), 1e-300)


def _resolution(turn: float) -> float:
    """1/n for a fraction of a full turn m/n in lowest terms."""
    from fractions import Fraction

    return 1 / Fraction(float(turn)).limit_denominator(1 << 20).denominator


def _made_to_slide(state: ExactState) -> bool:
    """Whether the lattice makes the pattern slide: the multiplier along ∂X exceeds 1."""
    matrix = state.derivative()
    for slide in slides_of(state.block.shape, state.k, state.field):
        direction = slide.ravel()
        if direction @ direction > 0 and direction @ (matrix @ direction) / (direction @ direction) > 1 + 1e-9:
            return True
    return False
