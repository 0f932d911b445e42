"""One block iterated: the states by depth and what is measured on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.random import BitGenerator, Generator, SeedSequence
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block
from dispersion.errors import frozen_array, real_number, whole_number
from simulate import observables
from simulate._engine import LARGEST_STATE, Batch, pack
from simulate.settle import CHECK, DIVERGED, SETTLED, STATUS, UNSETTLED, Check, stop_tolerance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RECORDS = 1000
"""About how many states are kept unless `every` says otherwise."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """States of a weight-tied block by depth.

    block : what was iterated.
    layers : (T,) numbers of the recorded layers, from 0 (the start) to the last one applied.
    states : (T, N, d) the states there. previous : (N, d) the state one layer before the last.
    status : 'settled' (steady, alternating or turning steadily, to the tolerance), 'unsettled'
        (not shown to be) or 'diverged' (the last state is then the last admissible one).

    The properties measure the last state. With d > 1 the size of a Fourier coefficient B_k (d,) is
    its norm over the features, and the phase advance is arg Σ_features conj(B before) B after.
    """

    block: Block
    layers: NDArray[np.int64]
    states: NDArray[np.float64]
    previous: NDArray[np.float64]
    status: str

    @property
    def state(self) -> NDArray[np.float64]:
        """(N, d) the last state."""
        return self.states[-1]

    @property
    def depth(self) -> int:
        """Layers applied: fewer than asked for after an early stop or a divergence."""
        return int(self.layers[-1])

    @property
    def spectrum(self) -> NDArray[np.float64]:
        """(N//2+1, d) |B_k| of each feature; (N//2+1,) for d = 1."""
        moduli = observables.spectrum(self.state.T).T
        return moduli[:, 0] if self.block.d == 1 else moduli

    @property
    def wavenumber(self) -> int:
        """The dominant k ≥ 1; 0 when the state is homogeneous."""
        return int(observables.dominant_of_spectrum(_norm(observables.spectrum(self.state.T))))

    @property
    def amplitude(self) -> float:
        """|B_k| at the dominant wavenumber: x_j = B e^{iqj} + c.c."""
        return float(_norm(observables.amplitude(self.state.T, self.wavenumber)))

    @property
    def phase_advance(self) -> float:
        """arg(B_k after / B_k before) of the dominant wavenumber over the last layer, radians."""
        before, after = (observables.fourier(x.T)[:, self.wavenumber] for x in (self.previous, self.state))
        product = np.vdot(before, after)
        return float(np.angle(product)) if product != 0 else float("nan")

    @property
    def mean(self) -> NDArray[np.float64]:
        """(d,) average over tokens; a number for d = 1."""
        mean: NDArray[np.float64] = self.state.mean(axis=0)
        return mean[0] if self.block.d == 1 else mean

    @property
    def cluster_values(self) -> NDArray[np.float64]:
        """(d, 2) mean of the tokens below and above the mid-range, each feature apart; (2,) for d = 1."""
        values = observables.cluster_values(self.state.T)
        return values[0] if self.block.d == 1 else values

    @property
    def heterogeneity(self) -> float:
        """‖X − mean‖/‖X‖ with norms over tokens and features; 0 at zero."""
        size = np.linalg.norm(self.state)
        return float(np.linalg.norm(self.state - self.state.mean(axis=0)) / size) if size > 0 else 0.0

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the first feature over tokens and layers; `ax`: the axes, by default the current ones; returns them."""
        from simulate.plot import plot_trajectory

        return plot_trajectory(self, ax)


def iterate(
    block: Block,
    depth: int = 5000,
    start: ArrayLike = 1e-3,
    rng: int | SeedSequence | BitGenerator | Generator | None = 0,
    tolerance: float | None = 1e-12,
    every: int | None = None,
) -> Trajectory:
    """Apply `block` to a start state `depth` times, or until it settles or diverges.

    start : a number, the standard deviation of a normal draw from `rng`, or a state (N, d);
        (N,) for d = 1.
    rng : whatever numpy.random.default_rng accepts.
    tolerance : of the early stop (see simulate.settle); None or 0: exactly `depth` layers.
    every : layers between two recorded states; by default about 1000 states are kept.

    A plain d = 1 block runs compiled, others through `Block.forward`. Diverged means |x| > 1e6, and for
    d = 1 also max_h|χ_h| max x² > 600, where e^{χ x_i x_j} nears the end of float64. An
    ArgumentError names what cannot be used.
    """
    if not isinstance(block, Block):
        raise ArgumentError("block", type(block).__name__, "a Block")
    if len(block.shape) != 1:
        raise ArgumentError("block", f"a torus {block.shape}", "a ring")
    depth = whole_number("depth", depth, 1)
    tolerance = stop_tolerance(tolerance)
    every = -(-depth // RECORDS) if every is None else whole_number("every", every, 1)
    state = start_state(block, start, np.random.default_rng(rng))
    runner: _Runner = _Scalar(block, state) if block.d == 1 and block.plain else _General(block, state)
    layers, states = [0], [state]
    status, done, last = UNSETTLED, 0, Check.of(state[None], state[None])
    while done < depth and status == UNSETTLED:
        target = min(depth, (done // every + 1) * every, (done // CHECK + 1) * CHECK)
        done = runner.advance(target - done) + done
        if done < target:
            status = DIVERGED
        elif done % CHECK == 0 and tolerance > 0:
            check = Check.of(runner.state[None], runner.previous[None])
            status = SETTLED if check.settled(last, tolerance)[0] else UNSETTLED
            last = check
        if done > layers[-1] and (done % every == 0 or done == depth or status != UNSETTLED):
            layers.append(done)
            states.append(runner.state)
    return Trajectory(block, np.array(layers), np.array(states), runner.previous, STATUS[status])


def start_state(block: Block, start: ArrayLike, rng: Generator) -> NDArray[np.float64]:
    """(N, d) the start: `start` times a standard normal draw for a number, else the array itself."""
    if np.ndim(start) == 0:
        return real_number("start", start) * rng.standard_normal((block.n, block.d))
    if block.d == 1 and np.ndim(start) == 1:
        return frozen_array("start", start, (block.n,))[:, None]
    return frozen_array("start", start, (block.n, block.d))


class _Runner(Protocol):
    state: NDArray[np.float64]
    previous: NDArray[np.float64]

    def advance(self, layers: int) -> int:
        """Apply up to `layers` layers, stopping before the state diverges; how many were applied."""


class _Scalar:
    """A d = 1 block, compiled."""

    def __init__(self, block: Block, state: NDArray[np.float64]) -> None:
        parameters = pack([block])
        self.state = self.previous = state
        self._batch = Batch(parameters, state.T) if (state**2).max() <= parameters.limit[0] else None
        self._steps = 0

    def advance(self, layers: int) -> int:
        if self._batch is None:
            return 0
        self._batch.advance(layers)
        self.state, self.previous = self._batch.states.T, self._batch.previous.T
        before, self._steps = self._steps, int(self._batch.steps[0])
        return self._steps - before


class _General:
    """A block of any d, through `Block.forward`."""

    def __init__(self, block: Block, state: NDArray[np.float64]) -> None:
        self.block = block
        self.state = self.previous = state

    def advance(self, layers: int) -> int:
        for done in range(layers):
            with np.errstate(all="ignore"):
                state = self.block.forward(self.state)
            if not np.abs(state).max() <= LARGEST_STATE:
                return done
            self.previous, self.state = self.state, state
        return layers


def _norm(moduli: NDArray[np.float64]) -> NDArray[np.float64]:
    """(…) norm over features of |B_k|, the features along the first axis."""
    norm: NDArray[np.float64] = np.linalg.norm(moduli, axis=0)
    return norm
