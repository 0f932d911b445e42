"""One block iterated: the states by depth and what is measured on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block, Mode, dispersion_relation
from dispersion.errors import RNG, frozen_array, generator, real_array, real_number, whole_number
from dispersion.grid import Wavenumber, grid_index
from dispersion.memory import require
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64, power_of_two
from simulate import many_features, one_feature
from simulate.engines.choice import engine_of
from simulate.engines.engine import Model, checked_model, inside
from simulate.settle import CHECK, DIVERGED, SETTLED, STATUS, UNSETTLED, Snapshot, checks, stop_tolerance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RECORDS = 1000
"""About how many states are kept unless `every` says otherwise."""

APART = 0.05
"""Distance, in parts of the largest between two tokens along one feature, from which clusters are apart."""


@dataclass(frozen=True, eq=False)
class Trajectory(Noun):
    """States of a weight-tied block by depth.

    The properties measure the last state. With d > 1 the size of a Fourier coefficient B_k (d,) is its norm over the
    features, and the phase advance is arg Σ_features conj(B before) B after. A wavenumber is an int on a ring or chain
    and a tuple on a torus.

    Attributes
    ----------
    block : Block or Chain
        What was iterated.
    layers : (T,) int ndarray
        Numbers of the recorded layers, from 0 (the start) to the last one applied.
    states : (T, N, d) ndarray
        The states there.
    previous : (N, d) ndarray
        The state one layer before the last.
    status : str
        'settled' (steady, alternating or turning steadily, to the tolerance), 'unsettled' (not shown to be) or
        'diverged' (the last state is then the last admissible one).
    engine : str
        The name of what computed it, of simulate.engines.choice.ENGINES.
    """

    block: Model
    layers: NDArray[np.int64]
    states: NDArray[np.float64]
    previous: NDArray[np.float64]
    status: str
    engine: str = ""

    @property
    def state(self) -> NDArray[np.float64]:
        """(N, d) the last state."""
        return self.states[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) of the ring or chain, (N_1, …, N_D) of the torus."""
        return self.block.shape

    @property
    def depth(self) -> int:
        """Layers applied: fewer than asked for after an early stop or a divergence."""
        return int(self.layers[-1])

    @property
    @beyond_float64
    def spectrum(self) -> NDArray[np.float64]:
        """(N//2+1, d) |B_k| of each feature; (*shape, d) on a torus; without the last axis for d = 1."""
        if len(self.shape) == 1:
            moduli = one_feature.spectrum(self.state.T).T
        else:
            moduli = np.abs(many_features.grid_fourier(self.state, self.shape)).reshape(*self.shape, -1)
        return moduli[..., 0] if self.block.d == 1 else moduli

    @property
    def wavenumber(self) -> Wavenumber:
        """The dominant k ≠ 0; 0, or (0, …, 0), when the state is homogeneous."""
        return many_features.dominant(many_features.grid_fourier(self.state, self.shape), self.shape)

    @property
    @beyond_float64
    def amplitude(self) -> float:
        """|B_k| at the dominant wavenumber: x_j = B e^{iqj} + c.c."""
        return float(np.linalg.norm(self._coefficient(self.state, self.wavenumber)))

    @property
    @beyond_float64
    def phase_advance(self) -> float:
        """arg(B_k after / B_k before) of the dominant wavenumber over the last layer, radians; NaN where either is but
        rounding.
        """
        before, after = (self._coefficient(x, self.wavenumber) for x in (self.previous, self.state))
        for B, x in ((before, self.previous), (after, self.state)):
            if np.linalg.norm(B) <= one_feature.ROUNDING * np.abs(x).max():
                return float("nan")
        return float(one_feature.turn(1.0, np.vdot(before, after)))

    @property
    @beyond_float64
    def mean(self) -> NDArray[np.float64]:
        """(d,) average over tokens; a number for d = 1."""
        mean: NDArray[np.float64] = self.state.mean(axis=0)
        return mean[0] if self.block.d == 1 else mean

    @property
    @beyond_float64
    def cluster_values(self) -> NDArray[np.float64]:
        """(d, 2) mean of the tokens below and above the mid-range, each feature apart; (2,) for d = 1."""
        values = one_feature.cluster_values(self.state.T)
        return values[0] if self.block.d == 1 else values

    @property
    @beyond_float64
    def heterogeneity(self) -> float:
        """‖X − mean‖/‖X‖ with norms over tokens and features, small at rank collapse; 0 at zero."""
        x = self.state / power_of_two(np.abs(self.state).max())
        size = np.linalg.norm(x)
        return float(np.linalg.norm(x - x.mean(axis=0)) / size) if size > 0 else 0.0

    @cached_property
    def leading_mode(self) -> Mode | None:
        """The leading mode of the block at the state 0; None where it does not exist, and for a Chain."""
        if not isinstance(self.block, Block):
            return None
        try:
            return dispersion_relation(self.block).leading()
        except ArgumentError:
            return None

    def projection(self, left: ArrayLike, k: Wavenumber) -> complex:
        """z = wᴴB_k of the last state: |z| is the amplitude of the mode with left vector w.

        Parameters
        ----------
        left : (d,) array_like
            w.
        k : int or tuple of int
            The wavenumber.
        """
        return complex(many_features.project(self.state, left, k, self.shape))

    def mode_advance(self, left: ArrayLike, k: Wavenumber) -> float:
        """arg(z after / z before) of the `projection` over the last layer, radians; NaN where either is but rounding.

        Parameters
        ----------
        left : (d,) array_like
            The left vector w of the mode.
        k : int or tuple of int
            The wavenumber.
        """
        before, after = (many_features.project(x, left, k, self.shape) for x in (self.previous, self.state))
        return float(one_feature.turn(before, after))

    def rotation(self, plane: ArrayLike) -> float:
        """Angle by which the tokens turned in a plane of features over the last layer, radians.

        Parameters
        ----------
        plane : (2, d) array_like
            Two vectors of features.
        """
        return float(many_features.rotation(self.previous, self.state, plane))

    def clusters(self, tolerance: float | None = None) -> NDArray[np.int64]:
        """(N,) cluster label of each token.

        Parameters
        ----------
        tolerance : float, optional
            Tokens at most this far apart, directly or through others, are together. By default 5 % of the largest
            range of a feature over the tokens, or 1e-12 if that is more.
        """
        default = max(APART * float(np.ptp(self.state, axis=0).max()), one_feature.HOMOGENEOUS)
        return many_features.token_clusters(self.state, default if tolerance is None else tolerance)

    def cluster_count(self, tolerance: float | None = None) -> int:
        """Number of `clusters`.

        Parameters
        ----------
        tolerance : float, optional
            As in `clusters`.
        """
        return int(self.clusters(tolerance).max()) + 1

    def cluster_separation(self, tolerance: float | None = None) -> float:
        """The smallest distance between two cluster means, 0 for one cluster.

        Parameters
        ----------
        tolerance : float, optional
            As in `clusters`.
        """
        return many_features.cluster_separation(self.state, self.clusters(tolerance))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the first feature over tokens and layers.

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure.

        Returns
        -------
        Axes
            Those drawn on.
        """
        from simulate.plot import plot_trajectory

        return plot_trajectory(self, ax)

    def _coefficient(self, x: NDArray[np.float64], k: Wavenumber) -> NDArray[np.complex128]:
        at_k: NDArray[np.complex128] = many_features.grid_fourier(x, self.shape)[grid_index("k", k, self.shape)]
        return at_k


@beyond_float64
def iterate(
    block: Model,
    depth: int = 5000,
    start: ArrayLike = 1e-3,
    rng: RNG = 0,
    tolerance: float | None = 1e-12,
    every: int | None = None,
) -> Trajectory:
    """Apply a block to a start state a number of times, or until it settles or diverges.

    Parameters
    ----------
    block : Block or Chain
        A Block, on a ring or torus, or a Chain with open or causal ends.
    depth : int
        Layers at most.
    start : float or (N, d) array_like
        A number, the standard deviation of a normal draw from `rng`, or a state; (N,) for d = 1.
    rng : int, Generator or None
        Whatever numpy.random.default_rng accepts.
    tolerance : float, optional
        Of the early stop (see simulate.settle); None or 0: exactly `depth` layers.
    every : int, optional
        Layers between two recorded states; by default about 1000 states are kept.

    Returns
    -------
    Trajectory
        Its `engine` names the one chosen by kind and size (see simulate.engines). Diverged means |x| > 1e6.

    Raises
    ------
    ArgumentError
        Names what cannot be used.
    """
    model = checked_model("block", block)
    depth = whole_number("depth", depth, 1)
    _check_memory(model, 1, depth, _every(depth, every))
    state = start_state(model, start, generator("rng", rng))
    return _trajectories(model, state[None], depth, tolerance, every)[0]


@beyond_float64
def iterate_many(
    block: Model,
    starts: ArrayLike,
    depth: int = 5000,
    tolerance: float | None = 1e-12,
    every: int | None = None,
) -> list[Trajectory]:
    """`iterate` from many start states at once; all are iterated until the last one has ended.

    Parameters
    ----------
    block : Block or Chain
        A Block, on a ring or torus, or a Chain with open or causal ends.
    starts : (P, N, d) array_like
        The start states; (P, N) for d = 1.
    depth : int
        As in `iterate`.
    tolerance : float, optional
        As in `iterate`.
    every : int, optional
        As in `iterate`.

    Returns
    -------
    list of Trajectory
        One of each start.
    """
    model = checked_model("block", block)
    depth = whole_number("depth", depth, 1)
    starts = real_array("starts", starts)
    _check_memory(model, len(starts) if starts.ndim else 1, depth, _every(depth, every))
    starts = starts[..., None] if model.d == 1 and starts.ndim == 2 else starts
    starts = frozen_array("starts", starts, (None, model.n, model.d))
    return _trajectories(model, starts, depth, tolerance, every)


def _check_memory(model: Model, points: int, depth: int, every: int) -> None:
    """Refuse to iterate `points` states of `model` for `depth` layers, one of `every` kept, if they do not fit."""
    records = depth // every + 2
    got = f"{points:,} states of {model.n:,} tokens and {model.d:,} features, {records:,} layers of them kept,"
    require("block", got, engine_of(model).bytes(model, points) + 16 * records * points * model.n * model.d)


def _every(depth: int, every: int | None) -> int:
    """Layers between two that are kept."""
    return -(-depth // RECORDS) if every is None else whole_number("every", every, 1)


def _trajectories(
    model: Model, starts: NDArray[np.float64], depth: int, tolerance: float | None, every: int | None
) -> list[Trajectory]:
    tolerance = stop_tolerance(tolerance)
    every = _every(depth, every)
    engine, shape = engine_of(model), model.shape
    batch = engine.system([model] * len(starts)).begin(starts)
    layers, records = [0], [starts]
    status = np.where(inside(starts), UNSETTLED, DIVERGED)
    ends: dict[int, Trajectory] = {}

    def end(p: int, last: int, now: NDArray[np.float64], before: NDArray[np.float64]) -> None:
        kept = [index for index, layer in enumerate(layers) if layer < last]
        numbers = np.array([layers[index] for index in kept] + [last])
        states = np.array([records[index][p] for index in kept] + [now[p]])
        ends[p] = Trajectory(model, numbers, states, before[p], STATUS[status[p]], engine.name)

    for p in np.flatnonzero(status == DIVERGED):
        end(int(p), 0, starts, starts)

    def advance(done: int, target: int) -> None:
        while done < target:
            fresh = min(target, (done // every + 1) * every)
            batch.advance(fresh - done)
            done = fresh
            if done % every == 0:
                layers.append(done)
                records.append(batch.states)

    done, last = 0, Snapshot.of(starts, starts, shape)
    for first, second in checks(depth):
        if len(ends) == len(starts):
            break
        if first > done:
            advance(done, first)
            last = Snapshot.of(batch.states, batch.previous, shape)
        advance(first, second)
        done, now, before, steps = second, batch.states, batch.previous, batch.steps
        running = np.array([p for p in range(len(starts)) if p not in ends])
        status[running[steps[running] < done]] = DIVERGED
        check = Snapshot.of(now, before, shape)
        if tolerance > 0 and second - first == CHECK:
            status[running[(check.settled(last, tolerance) & (status == UNSETTLED))[running]]] = SETTLED
        last = check
        for p in running[(status[running] != UNSETTLED) | (done == depth)]:
            end(int(p), int(steps[p]), now, before)
    return [ends[p] for p in range(len(starts))]


def start_state(model: Model, start: ArrayLike, rng: Generator) -> NDArray[np.float64]:
    """(N, d) the start: `start` times a standard normal draw for a number, else the array itself."""
    start = real_array("start", start)
    if start.ndim == 0:
        return real_number("start", start) * rng.standard_normal((model.n, model.d))
    if model.d == 1 and start.ndim == 1:
        return frozen_array("start", start, (model.n,))[:, None]
    return frozen_array("start", start, (model.n, model.d))
