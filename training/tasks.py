"""The controlled tasks T1–T3: each needs one joint token–feature structure (App. J.2).

T1, `SpectralInfilling`, needs a wavenumber; T2, `CoherentShift`, a wave that travels; T3, `FeatureRotation`, features
that turn. Of the paper are the tasks, N, carriers, number of levels, nuisance wavenumbers, masks of T1 and T3, and
angles. Ours, for the paper does not tell, are amplitudes and noise, the mask of T2, levels by quantiles, codes, and
the positions that are scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import items, real_number, whole_number
from dispersion.noun import cached_property
from training.batch import Whole
from training.codes import Code, circle_code, value_code
from training.frame import Floats, Frame
from training.task import Task

SAMPLES = 2**16
"""Signals from which levels are computed."""


@dataclass(frozen=True, kw_only=True)
class Signal(Task):
    """A task on scalar waves x_j = a cos(q_0 j + φ) + ν Σ_m cos(q_m j + φ_m) in K levels; phases are uniform.

    Levels are equally likely: their edges are the quantiles of x_j over all signals.

    Parameters
    ----------
    n, carrier, levels, block, masked, score : int, float or str
        Those of `Task`.
    amplitudes : (float, float)
        a is uniform between these two, both above 0.
    nuisance : float
        ν, 0 or more.
    disturbances : tuple of int
        The k_m of the nuisance, q_m = 2πk_m/N, 0 … N/2.
    """

    amplitudes: tuple[float, float] = (0.7, 1.3)
    nuisance: float = 0.06
    disturbances: tuple[int, ...] = (11, 13)

    def __post_init__(self) -> None:
        super().__post_init__()
        amplitudes = tuple(real_number("amplitudes", a, positive=True) for a in items("amplitudes", self.amplitudes))
        if len(amplitudes) != 2 or amplitudes[0] > amplitudes[1]:
            raise ArgumentError("amplitudes", self.amplitudes, "two positive numbers, the smaller first")
        if real_number("nuisance", self.nuisance) < 0:
            raise ArgumentError("nuisance", self.nuisance, "a number of 0 or more")
        modes = [whole_number("disturbances", k, 0, self.n // 2) for k in items("disturbances", self.disturbances)]
        object.__setattr__(self, "amplitudes", amplitudes)
        object.__setattr__(self, "disturbances", tuple(modes))

    @cached_property
    def edges(self) -> Floats:
        """(K − 1,) where levels meet."""
        return np.quantile(self._sample, np.arange(1, self.levels) / self.levels)

    @cached_property
    def centres(self) -> Floats:
        """(K,) z_c: the mean of x_j in each level, shifted and scaled to mean 0 and variance 1 over the levels."""
        place = self._quantised(self._sample)
        means = np.array([self._sample[place == level].mean() for level in range(self.levels)])
        return (means - means.mean()) / means.std()

    def code(self, frame: Frame, gain: float = 1.0, sharpness: float = 8.0) -> Code:
        """`value_code` of `centres`.

        Parameters
        ----------
        frame : Frame
            Its first direction is that of the code.
        gain, sharpness : float
            g and β.
        """
        return value_code(self.centres, frame, gain, sharpness)

    def _tokens(self, count: int, rng: np.random.Generator) -> Whole:
        """(count, N) levels of signals drawn at random."""
        return self._quantised(self._signals(rng.random((count, 2 + len(self.disturbances))), np.arange(self.n)))

    def _signals(self, uniform: Floats, tokens: NDArray[np.int64]) -> Floats:
        """(B, n) values at the `tokens` (n,) of signals whose amplitude and phases B rows of numbers in [0, 1) give."""
        low, high = self.amplitudes
        waves = 2 * np.pi * np.array([self.carrier, *self.disturbances]) / self.n
        parts = np.cos(2 * np.pi * uniform[:, 1:, None] + waves[:, None] * tokens)
        return (low + (high - low) * uniform[:, :1]) * parts[:, 0] + self.nuisance * parts[:, 1:].sum(axis=1)

    def _quantised(self, values: Floats) -> Whole:
        """Level of each of the `values`."""
        return np.searchsorted(self.edges, values, side="right").astype(np.int64)

    @cached_property
    def _sample(self) -> Floats:
        """(SAMPLES,) values of one token, evenly over amplitudes and phases."""
        return self._signals(lattice(SAMPLES, 2 + len(self.disturbances)), np.zeros(1, dtype=np.int64))[:, 0]


@dataclass(frozen=True, kw_only=True)
class SpectralInfilling(Signal):
    """T1, spectral infilling: say the levels of a wave where they are hidden, nuisance included.

    Parameters
    ----------
    n, carrier, levels, block, masked, score : int, float or str
        Those of `Task`.
    amplitudes, nuisance, disturbances : float or tuple
        Those of `Signal`.
    """

    @property
    def name(self) -> str:
        """As in tables."""
        return f"infilling k={self.carrier}"

    def _sequences(self, count: int, rng: np.random.Generator) -> tuple[Whole, Whole]:
        tokens = self._tokens(count, rng)
        return tokens, tokens


@dataclass(frozen=True, kw_only=True)
class CoherentShift(Signal):
    """T2, coherent token shift: say the level that stands s tokens further on, x_{j+s}.

    Parameters
    ----------
    n, carrier, levels, block, masked, score : int, float or str
        Those of `Task`; unless told no block is hidden, and all positions are scored.
    amplitudes, nuisance, disturbances : float or tuple
        Those of `Signal`.
    shift : int
        s, tokens: the phase of the carrier turns by q_0 s.
    """

    block: int = 0
    score: str = "all"
    disturbances: tuple[int, ...] = (3, 5)
    shift: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("shift", self.shift, 1 - self.n, self.n - 1)

    @property
    def name(self) -> str:
        """As in tables."""
        return f"shift {self.shift:+d}"

    @property
    def _turns(self) -> tuple[float, float]:
        # within −π … π
        return float(np.angle(np.exp(1j * self.wavenumber * self.shift))), 0.0

    def _sequences(self, count: int, rng: np.random.Generator) -> tuple[Whole, Whole]:
        tokens = self._tokens(count, rng)
        return tokens, np.roll(tokens, -self.shift, axis=1)


@dataclass(frozen=True, kw_only=True)
class FeatureRotation(Task):
    """T3, local feature rotation: say the angle of a rotating wave where it is hidden, turned by ψ.

    The angle of token j is q_0 j + φ + ξ_j, φ uniform and ξ_j normal, in K equal sectors. With ψ a multiple of 2π/K
    the label is the sector itself that many sectors on.

    Parameters
    ----------
    n, carrier, levels, block, masked, score : int, float or str
        Those of `Task`.
    phase_noise : float
        Standard deviation of ξ_j, radians, 0 or more.
    turn : float
        ψ, radians.
    """

    phase_noise: float = 0.13
    turn: float = np.pi / 4

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "turn", real_number("turn", self.turn))
        if real_number("phase_noise", self.phase_noise) < 0:
            raise ArgumentError("phase_noise", self.phase_noise, "a number of 0 or more")

    @property
    def name(self) -> str:
        """As in tables."""
        return f"rotation {self.turn / np.pi:+.4g}π"

    def code(self, frame: Frame, gain: float = 1.0, sharpness: float = 8.0) -> Code:
        """`circle_code` of the sectors.

        Parameters
        ----------
        frame : Frame
            Its first two directions are the plane of the code.
        gain, sharpness : float
            g and β.
        """
        return circle_code(self.levels, frame, gain, sharpness)

    @property
    def _turns(self) -> tuple[float, float]:
        return 0.0, self.turn

    def _sequences(self, count: int, rng: np.random.Generator) -> tuple[Whole, Whole]:
        angles = 2 * np.pi * rng.random((count, 1)) + self.wavenumber * np.arange(self.n)
        angles = angles + self.phase_noise * rng.standard_normal((count, self.n))
        return self._sector(angles), self._sector(angles + self.turn)

    def _sector(self, angles: Floats) -> Whole:
        """Level of each of the `angles`: sector c is centred at 2π(c + ½)/K."""
        return np.floor(angles * self.levels / (2 * np.pi)).astype(np.int64) % self.levels


def lattice(count: int, dimensions: int) -> Floats:
    """(count, dimensions) numbers in [0, 1) that fill the cube evenly: multiples of the powers of 1/x modulo 1,
    x^{D+1} = x + 1.
    """
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (dimensions + 1))
    return (0.5 + np.arange(count)[:, None] * root ** -np.arange(1.0, dimensions + 1)) % 1
