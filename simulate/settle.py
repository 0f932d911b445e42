"""Early stop: which points have settled, and iterating a batch until all have.

A point is compared with itself CHECK layers earlier, every CHECK layers at first and rarer later on. Its state
X_k = fft(x)_k/N has settled if
(i)  every modulus |X_k| moved by at most tol · max_k|X_k| since then, and
(ii) over the last layer either no Fourier mode turns, CHECK · |X_k||sin Δψ_k| ≤ tol · max_k|X_k| (a steady
     state; a mode that changes sign, Δψ = π, alternates steadily), or the dominant mode turns at a constant
     rate, |Δψ − Δψ at the previous check| ≤ tol |Δψ|.
(ii) keeps a standing wave whose phase still creeps to its locked value from passing for settled.
A state that decays has settled once max_k|X_k| ≤ 1e-14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import real_number
from simulate.engines.engine import System, inside

CHECK = 64
"""Layers between two checks; even, so that a state alternating from layer to layer looks steady."""

RARER = 64
"""The part of the layers done, one in so many, that may pass without a check."""

VANISHED = 1e-14

STATUS = ("settled", "unsettled", "diverged", "failed", "not run")
"""How a point ended; `Trajectory` uses the first three, `sweep` stores the position in this tuple."""

SETTLED, UNSETTLED, DIVERGED, FAILED, NOT_RUN = range(len(STATUS))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What one check remembers of P points.

    moduli : (P, K, d) |X_k|; scale : (P,) their maximum; drift : (P,) max |X_k||sin Δψ_k| over modes;
    turn : (P,) Δψ of the dominant mode k ≥ 1 over the last layer.
    """

    moduli: NDArray[np.float64]
    scale: NDArray[np.float64]
    drift: NDArray[np.float64]
    turn: NDArray[np.float64]

    @classmethod
    def of(
        cls, states: NDArray[np.float64], previous: NDArray[np.float64], shape: tuple[int, ...] | None = None
    ) -> Snapshot:
        """From states (P, N, d) and those one layer earlier; `shape` of the torus, by default a ring."""
        after, before = (_modes(x, shape or x.shape[1:2]) for x in (states, previous))
        moduli = np.abs(after)
        turned = np.conj(before) * after
        drift = np.abs(turned.imag) / np.maximum(np.abs(before), np.finfo(float).tiny)
        dominant = np.argmax((moduli[:, 1:] ** 2).sum(axis=2), axis=1) + 1
        turn = np.angle(turned.sum(axis=2)[np.arange(len(states)), dominant])
        return cls(moduli, moduli.max(axis=(1, 2)), drift.max(axis=(1, 2)), turn)

    def settled(self, last: Snapshot, tolerance: float) -> NDArray[np.bool_]:
        """(P,) which points have settled between the check `last` and this one."""
        still = np.abs(self.moduli - last.moduli).max(axis=(1, 2)) <= tolerance * self.scale
        steady = CHECK * self.drift <= tolerance * self.scale
        change = np.abs(np.angle(np.exp(1j * (self.turn - last.turn))))
        rotating = change <= tolerance * np.abs(self.turn)
        vanished = (self.scale <= VANISHED) & (self.scale <= last.scale)
        return (still & (steady | rotating)) | vanished

    def take(self, points: NDArray) -> Snapshot:
        """The same for some of the points."""
        return Snapshot(self.moduli[points], self.scale[points], self.drift[points], self.turn[points])


def checks(depth: int) -> Iterator[tuple[int, int]]:
    """The pairs of layers whose states are compared in a run of `depth`, CHECK apart but for what is left at its end.

    The first of a pair is the second of the last one, or later once 1/RARER of the layers done is more than CHECK.
    """
    done = 0
    while done < depth:
        first = done + max(0, min(done // (CHECK * RARER) * CHECK, depth - done - CHECK))
        done = min(first + CHECK, depth)
        yield first, done


def _modes(x: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.complex128]:
    """(P, K, d) X_k of states `x` (P, N, d), one of each pair ±k on most axes, k = 0 first."""
    points, n, d = x.shape
    modes = np.fft.rfftn(x.reshape(points, *shape, d), axes=tuple(range(1, 1 + len(shape)))) / n
    return modes.reshape(points, np.prod(modes.shape[1:-1], dtype=int), d)


@dataclass(frozen=True, eq=False)
class Outcome:
    """How P points ended: states and previous (P, N, d), layers (P,) applied, status (P,) numbers of STATUS."""

    states: NDArray[np.float64]
    previous: NDArray[np.float64]
    layers: NDArray[np.int64]
    status: NDArray[np.int8]


def evolve(
    system: System,
    starts: NDArray[np.float64],
    depth: int,
    tolerance: float,
    progress: Callable[[int], object] = lambda layers: None,
    shape: tuple[int, ...] | None = None,
) -> Outcome:
    """Iterate P points from `starts` (P, N, d) for `depth` layers, each only until it settles or diverges.

    system : maps the points. tolerance : of the early stop; 0 turns it off. progress : told the layers done or no
    longer needed. shape : of the torus, by default a ring.
    """
    points = len(starts)
    states, previous = starts.copy(), starts.copy()
    layers, status = np.zeros(points, dtype=np.int64), np.full(points, UNSETTLED, dtype=np.int8)
    status[~inside(starts)] = DIVERGED
    running = np.flatnonzero(status == UNSETTLED)
    progress(depth * (points - len(running)))
    done, last, schedule = 0, Snapshot.of(starts[running], starts[running], shape), checks(depth)
    while done < depth and len(running):
        order = system.take(running).arranged(states[running])
        running, last = running[order], last.take(order)
        batch, base, members, until = system.take(running).begin(states[running]), done, running, 2 * done + CHECK
        still = np.arange(len(running))
        # The batch is packed anew once a quarter of it is idle, and now and then to keep like states together.
        while done < min(depth, until) and 4 * len(still) > 3 * len(members):
            first, second = next(schedule)
            if first > done:
                batch.advance(first - done)
                last = Snapshot.of(batch.states[still], batch.previous[still], shape)
            batch.advance(second - first)
            chunk, done = second - done, second
            now, before, steps = batch.states, batch.previous, batch.steps + base
            check = Snapshot.of(now[still], before[still], shape)
            diverged = steps[still] < done
            finished = diverged | (done == depth)
            if tolerance > 0 and second - first == CHECK:
                ended = check.settled(last, tolerance) & ~diverged
                status[members[still[ended]]] = SETTLED
                finished |= ended
            status[members[still[diverged]]] = DIVERGED
            gone = still[finished]
            states[members[gone]], previous[members[gone]] = now[gone], before[gone]
            layers[members[gone]] = steps[gone]
            progress(chunk * int((~finished).sum()) + (depth - done + chunk) * len(gone))
            still, last = still[~finished], check.take(~finished)
        running = members[still]
        states[running], previous[running] = batch.states[still], batch.previous[still]
    return Outcome(states, previous, layers, status)


def stop_tolerance(tolerance: float | None) -> float:
    """The tolerance as a number, 0 for None: no early stop. Negative or not finite: an ArgumentError."""
    number = 0.0 if tolerance is None else real_number("tolerance", tolerance)
    if number < 0:
        raise ArgumentError("tolerance", number, "a number ≥ 0, or None for no early stop")
    return number
