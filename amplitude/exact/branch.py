"""Branches of exact states along a parameter of the block, and the bifurcations on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.exact.bifurcations import Bifurcation, bifurcations_between
from amplitude.exact.continuation import Continuation, MakeBlock, Point, Walk, walk
from amplitude.exact.equations import Floats, Kind, StateEquations
from amplitude.exact.states import ExactState, find_state
from amplitude.progress import progress_bar
from amplitude.summary import LARGEST
from dispersion import ArgumentError
from dispersion.errors import frozen, frozen_array, real_number, whole_number
from dispersion.grid import Wavenumber
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64
from dispersion.summary import number, paragraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from tqdm import tqdm


@dataclass(frozen=True, eq=False)
class Branch(Noun):
    """Exact states along a parameter p of a block.

    Attributes
    ----------
    make_block : callable
        The Block of each p.
    name : str
        What p is called.
    values : (P,) ndarray
        p of each state.
    states : tuple of ExactState
        P of them.
    bifurcations : tuple of Bifurcation
        In the order in which they lie on the branch.
    ended : str
        Why it has no more points.
    window : (float, float)
        The range of p that was asked for.
    """

    make_block: MakeBlock
    name: str
    values: Floats
    states: tuple[ExactState, ...]
    bifurcations: tuple[Bifurcation, ...]
    ended: str
    window: tuple[float, float]

    def __len__(self) -> int:
        return len(self.states)

    @property
    def k(self) -> Wavenumber:
        """The dominant wavenumber of the last state."""
        return self.states[-1].k

    @property
    def amplitude(self) -> Floats:
        """(P,) R of each state at the wavenumber `k`."""
        return self.amplitude_at(self.k)

    def amplitude_at(self, k: Wavenumber) -> Floats:
        """(P,) R of each state at one wavenumber.

        Parameters
        ----------
        k : int or tuple of int
            Wavenumber, on a torus one number for each axis.
        """
        return np.array([state.amplitude_at(k) for state in self.states])

    @property
    def phase_advance(self) -> Floats:
        """(P,) Ω of each state at the wavenumber `k`, radians per layer."""
        return self.phase_advance_at(self.k)

    def phase_advance_at(self, k: Wavenumber) -> Floats:
        """(P,) Ω of each state at one wavenumber, radians per layer.

        Parameters
        ----------
        k : int or tuple of int
            Wavenumber, on a torus one number for each axis.
        """
        return np.array([state.phase_advance_at(k) for state in self.states])

    @property
    def multipliers(self) -> NDArray[np.complex128]:
        """(P, N·d) multipliers of each state, the largest modulus first."""
        return np.array([state.multipliers for state in self.states])

    @property
    def stable(self) -> NDArray[np.bool_]:
        """(P,) whether each state is stable."""
        return np.array([state.stable for state in self.states])

    def __str__(self) -> str:
        """What it is, in a few lines; stability only where there are not too many multipliers."""
        R, cost = self.amplitude, len(self) * self.states[0].field.size ** 3
        return paragraph(
            f"branch of {len(self)} exact {self.states[-1].kind} states, k = {self.k}",
            f"{self.name} from {number(self.values[0])} to {number(self.values[-1])}, "
            f"amplitude from {number(R[0])} to {number(R[-1])}",
            f"{self.stable.sum()} of them stable" if cost <= LARGEST**3 else "ask stable for the stability of each",
            *(f"{event}" for event in self.bifurcations),
            f"ended: {self.ended}",
        )

    @property
    def residual(self) -> float:
        """The largest max|F(X) − X| of all states."""
        return max(state.residual for state in self.states)

    def plot(
        self, ax: Axes | None = None, k: Wavenumber | None = None, color: str = "#0072b2", label: str | None = None
    ) -> Axes:
        """Draw R against p, stable parts solid, unstable ones dashed, bifurcations marked and named.

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure.
        k : int or tuple of int, optional
            Wavenumber of R, by default the dominant one of the last state.
        color, label : str
            Of the lines.

        Returns
        -------
        Axes
            Those drawn on.
        """
        from amplitude.exact.drawing import plot_branch

        return plot_branch(self, ax, k, color, label)


@beyond_float64
def branch(
    make_block: MakeBlock,
    values: ArrayLike,
    start: ExactState | ArrayLike,
    kind: Kind | None = None,
    name: str = "parameter",
    points: int = 200,
    longest: float = 0.03,
    tolerance: float = 1e-11,
    progress: bool = False,
) -> Branch:
    """The branch of exact states through the one reached from a start.

    Every bifurcation of codimension one is located: folds, branch points (Λ = 1), flips (Λ = −1) and Neimark–Sacker
    points (complex Λ).

    Parameters
    ----------
    make_block : callable
        The Block of each parameter p, all of one N and d.
    values : (2,) or (P,) array_like
        (start, stop), to follow by pseudo-arclength through folds until p leaves that range; or three or more numbers
        in order, for the states at just these, without folds.
    start : ExactState or (N, d) array_like
        A state, or a field near one, at the first of `values`.
    kind : {'steady', 'alternating', 'travelling'}, optional
        As in `find_state`.
    name : str
        What p is called.
    points : int
        At most this many states.
    longest : float
        Longest step, in a measure where the range of p is 1 and so is the size of the first field.
    tolerance : float
        Largest |F(X) − X| accepted, relative to 1 + max|X|.
    progress : bool
        Whether to show a bar, on a terminal.

    Returns
    -------
    Branch
        The states with their multipliers and bifurcations.

    Raises
    ------
    ArgumentError
        Names what cannot be used.
    """
    marks = values_of(values)
    if not callable(make_block):
        raise ArgumentError("make_block", type(make_block).__name__, "a function from the parameter to a Block")
    first = make_block(float(marks[0]))
    if isinstance(start, ExactState):
        state = find_state(first, start.field, start.kind if kind is None else kind, start.drift, tolerance)
    else:
        state = find_state(first, start, kind, tolerance=tolerance)
    equations = StateEquations.of(first, state.kind, state.field)
    limit = tolerance * (1 + float(np.abs(state.field).max()))
    path = Continuation.of(make_block, equations, state.field, abs(marks[-1] - marks[0]), limit)
    z = np.append(equations.pack(state.field, state.drift), marks[0])
    along = np.append(np.zeros(len(z) - 1), np.sign(marks[-1] - marks[0]))
    point = path.point(z, state.residual, along)
    if len(marks) > 2:
        return _at_values(path, point, marks, name, progress_bar(progress, len(marks), name))
    if point.tangent[-1] * along[-1] < 0:
        point = path.point(z, state.residual, -point.tangent)
    longest = real_number("longest", longest, positive=True)
    plan = Walk((marks[0], marks[1]), whole_number("points", points, 2) - 1, longest, longest / 3)
    return follow(path, [point], plan, name, progress_bar(progress, points, name))


def follow(path: Continuation, points: Sequence[Point], plan: Walk, name: str, bar: tqdm[Any]) -> Branch:
    """The branch that begins with `points` on `path` and goes on from the last as `plan` says.

    name : what the parameter is called; bar : shows the progress.
    """
    found, bifurcations, ended = list(points), list[Bifurcation](), ""
    with bar:
        for after in walk(path, found[-1], plan):
            if isinstance(after, str):
                ended = after
                break
            if plan.locate:
                bifurcations += bifurcations_between(path, found[-1], after, len(found) - 1)
            found.append(after)
            bar.update()
    return _branch(path, found, bifurcations, name, ended, plan.window)


def _at_values(path: Continuation, point: Point, marks: Floats, name: str, bar: tqdm[Any]) -> Branch:
    found, bifurcations, ended = [point], list[Bifurcation](), "all values done"
    along = np.append(np.zeros(len(point.z) - 1), 1.0)
    with bar:
        for value in marks[1:]:
            last = found[-1]
            guess = last.z + (value - last.value) / last.tangent[-1] / path.scale[-1] * last.tangent * path.scale
            guess[-1] = value
            z, size, _ = path.solve(guess, along)
            if not size <= path.tolerance:
                ended = f"no state near the last one at {value:.6g}"
                break
            z[-1] = value
            found.append(path.point(z, size, np.sign(value - last.value) * along))
            bifurcations += bifurcations_between(path, last, found[-1], len(found) - 2)
            bar.update()
    return _branch(path, found, bifurcations, name, ended, (float(marks[0]), float(marks[-1])))


def _branch(
    path: Continuation,
    points: Sequence[Point],
    bifurcations: Sequence[Bifurcation],
    name: str,
    ended: str,
    window: tuple[float, float],
) -> Branch:
    values = frozen(np.array([point.value for point in points]))
    states = tuple(point.state for point in points)
    return Branch(path.make_block, name, values, states, tuple(bifurcations), ended, window)


def values_of(values: ArrayLike) -> Floats:
    """`values` as two or more different numbers in increasing or decreasing order."""
    marks = frozen_array("values", values, (None,))
    steps = np.diff(marks)
    if len(marks) < 2 or not ((steps > 0).all() or (steps < 0).all()):
        raise ArgumentError("values", marks, "(start, stop), or numbers that only increase or only decrease")
    return marks
