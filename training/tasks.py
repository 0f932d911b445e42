"""Controlled tasks on a ring of tokens: each needs one joint token–feature structure (App. J.2).

T1, `SpectralInfilling`, needs a wavenumber; T2, `CoherentShift`, an angle per token; T3, `FeatureRotation`, a
rotation of features. The paper's are the tasks, wavenumbers, number of levels, masks and angles; ours are the
amplitudes, nuisance, phase noise, levels by quantiles, and the positions that are scored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import RNG, check_shape, choice, generator, real_number, whole_array, whole_number
from dispersion.noun import Noun, cached_property
from training.codes import Code, circle_code, value_code
from training.engineering import Target
from training.frame import Floats, Frame

Whole = NDArray[np.int64]
SAMPLES = 2**15
"""Signals from which levels are computed."""


@dataclass(frozen=True, eq=False)
class Batch(Noun):
    """B sequences of N tokens with what is to be said of each.

    Parameters
    ----------
    inputs : (B, N) int array_like
        Tokens: a level 0 … K−1, or K for the mask.
    labels : (B, N) int array_like
        The level to be predicted, 0 … K−1.
    scored : (B, N) bool array_like
        The positions that count, in training and in the score.
    """

    inputs: Whole
    labels: Whole
    scored: NDArray[np.bool_]

    def __post_init__(self) -> None:
        inputs = np.array(whole_array("inputs", self.inputs))
        scored = np.array(self.scored, dtype=bool)
        if inputs.ndim != 2:
            raise ArgumentError("inputs", f"shape {inputs.shape}", "shape (B, N)")
        labels = np.array(whole_array("labels", self.labels))
        for name, array in (("labels", labels), ("scored", scored)):
            check_shape(name, array, inputs.shape)
        for name, array in (("inputs", inputs), ("labels", labels), ("scored", scored)):
            object.__setattr__(self, name, array)
        super().__post_init__()

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: ArrayLike | slice) -> Batch:
        """Some of the sequences.

        Parameters
        ----------
        rows : (b,) int array_like or slice
            Which.
        """
        chosen = rows if isinstance(rows, slice) else np.asarray(rows)
        return Batch(self.inputs[chosen], self.labels[chosen], self.scored[chosen])


@dataclass(frozen=True, kw_only=True)
class Masking(Noun):
    """What all tasks share: the ring, the carrier, the levels, and which tokens are hidden.

    Parameters
    ----------
    n : int
        N, tokens of the ring.
    carrier : int
        k_0 of the carrier q_0 = 2πk_0/N, 1 … N/2.
    levels : int
        K, classes of a token, 2 or more.
    block : int
        Neighbouring tokens that are hidden, around the ring from a place drawn at random.
    masked : float
        Chance of each other token to be hidden.
    score : str
        'masked' or 'all': the positions that are scored.
    """

    n: int = 32
    carrier: int = 4
    levels: int = 8
    block: int = 12
    masked: float = 0.25
    score: str = "masked"

    def __post_init__(self) -> None:
        whole_number("n", self.n, 2)
        whole_number("carrier", self.carrier, 1, self.n // 2)
        whole_number("levels", self.levels, 2)
        whole_number("block", self.block, 0, self.n - 1)
        if not 0 <= real_number("masked", self.masked) < 1:
            raise ArgumentError("masked", self.masked, "a chance from 0 to below 1")
        choice("score", self.score, ("masked", "all"))
        if self.score == "masked" and not (self.block or self.masked):
            raise ArgumentError("score", "'masked' with no token masked", "'all', or a block or masked above 0")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple | list):
                object.__setattr__(self, field.name, tuple(value))

    @property
    def wavenumber(self) -> float:
        """q_0, radians per token."""
        return 2 * np.pi * self.carrier / self.n

    def hidden(self, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(count, N) which tokens are hidden; one at least of each sequence where any is to be."""
        start = rng.integers(self.n, size=(count, 1))
        hidden = (np.arange(self.n) - start) % self.n < self.block
        hidden |= rng.random((count, self.n)) < self.masked
        if self.block == 0 and self.masked:
            hidden |= ~hidden.any(axis=1, keepdims=True) & (np.arange(self.n) == start)
        return hidden

    def batch(self, tokens: Whole, labels: Whole, rng: np.random.Generator) -> Batch:
        """The batch of these tokens, some of them hidden."""
        hidden = self.hidden(len(tokens), rng)
        scored = hidden if self.score == "masked" else np.ones_like(hidden)
        return Batch(np.where(hidden, self.levels, tokens), labels, scored)


@dataclass(frozen=True, kw_only=True)
class Signal(Masking):
    """A scalar wave on the ring, x_j = a cos(q_0 j + φ) + Σ_m ν cos(q_m j + φ_m), in K levels.

    The phases are uniform. Levels are equally likely: their edges are the quantiles of x_j over all signals.

    Parameters
    ----------
    amplitudes : (float, float)
        a is uniform between these two, the least above 0.
    nuisance : float
        ν.
    disturbances : tuple of int
        k_m of the nuisance, q_m = 2πk_m/N.
    """

    amplitudes: tuple[float, float] = (0.7, 1.3)
    nuisance: float = 0.06
    disturbances: tuple[int, ...] = (11, 13)

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.amplitudes
        if not 0 < real_number("amplitudes", low) <= real_number("amplitudes", high):
            raise ArgumentError("amplitudes", self.amplitudes, "two positive numbers, the larger last")
        if real_number("nuisance", self.nuisance) < 0:
            raise ArgumentError("nuisance", self.nuisance, "a number of 0 or more")
        for k in self.disturbances:
            whole_number("disturbances", k, 0, self.n // 2)

    def draw_signals(self, count: int, rng: np.random.Generator) -> Floats:
        """(count, N) signals."""
        return self.signals(rng.random((count, 2 + len(self.disturbances))))

    def signals(self, uniform: Floats) -> Floats:
        """(B, N) signals of amplitude and phases given by B rows of 2 + M numbers in [0, 1)."""
        low, high = self.amplitudes
        waves = 2 * np.pi * np.array([self.carrier, *self.disturbances]) / self.n
        phases = 2 * np.pi * uniform[:, 1:, None] + waves[:, None] * np.arange(self.n)
        parts = np.cos(phases)
        return (low + (high - low) * uniform[:, :1]) * parts[:, 0] + self.nuisance * parts[:, 1:].sum(axis=1)

    @cached_property
    def edges(self) -> Floats:
        """(K − 1,) where levels meet."""
        return self._levels[0]

    @cached_property
    def centres(self) -> Floats:
        """(K,) z_c: the mean of x_j over each level, all K of them to mean 0 and variance 1."""
        return self._levels[1]

    @cached_property
    def _levels(self) -> tuple[Floats, Floats]:
        values = self.signals(lattice(SAMPLES, 2 + len(self.disturbances)))[:, 0]
        edges = np.quantile(values, np.arange(1, self.levels) / self.levels)
        place = np.searchsorted(edges, values, side="right")
        means = np.array([values[place == level].mean() for level in range(self.levels)])
        return edges, (means - means.mean()) / means.std()

    def quantised(self, values: Floats) -> Whole:
        """Level of each of the `values`."""
        return np.searchsorted(self.edges, values, side="right")

    def code(self, frame: Frame, gain: float = 1.0, sharpness: float = 8.0) -> Code:
        """`value_code` of the levels.

        Parameters
        ----------
        frame : Frame
            Its first direction is that of the code.
        gain, sharpness : float
            Those of the code.
        """
        return value_code(self.centres, frame, gain, sharpness)


@dataclass(frozen=True, kw_only=True)
class SpectralInfilling(Signal):
    """T1, spectral infilling: the levels of a wave where they are hidden.

    Parameters
    ----------
    n, carrier, levels, block, masked, score : int, float or str
        Those of `Masking`.
    amplitudes, nuisance, disturbances : float or tuple
        Those of `Signal`.
    """

    @property
    def name(self) -> str:
        """As in tables."""
        return f"infilling k={self.carrier}"

    def matched(self, loops: int = 8) -> Target:
        """The target with this structure: a standing wave.

        Parameters
        ----------
        loops : int
            Layers of the network.
        """
        return Target.over(loops, self.carrier)

    def draw(self, count: int, rng: RNG) -> Batch:
        """Sequences at random.

        Parameters
        ----------
        count : int
            B.
        rng : int or numpy.random.Generator
            Source of randomness.
        """
        rng = generator("rng", rng)
        tokens = self.quantised(self.draw_signals(whole_number("count", count, 1), rng))
        return self.batch(tokens, tokens, rng)


@dataclass(frozen=True, kw_only=True)
class CoherentShift(Signal):
    """T2, coherent token shift: the level that stands s tokens further on.

    Parameters
    ----------
    n, carrier, levels, block, masked, score : int, float or str
        Those of `Masking`; unless told no block is hidden, and all positions are scored.
    amplitudes, nuisance, disturbances : float or tuple
        Those of `Signal`.
    shift : int
        s, tokens: the label at j is the level of x_{j+s}.
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
    def angle(self) -> float:
        """q_0 s, by which the carrier's phase turns, −π … π."""
        return float(np.angle(np.exp(1j * self.wavenumber * self.shift)))

    def matched(self, loops: int = 8) -> Target:
        """The target with this structure: a travelling wave that turns by q_0 s in all.

        Parameters
        ----------
        loops : int
            Layers of the network.
        """
        return Target.over(loops, self.carrier, angle=self.angle)

    def draw(self, count: int, rng: RNG) -> Batch:
        """Sequences at random.

        Parameters
        ----------
        count : int
            B.
        rng : int or numpy.random.Generator
            Source of randomness.
        """
        rng = generator("rng", rng)
        tokens = self.quantised(self.draw_signals(whole_number("count", count, 1), rng))
        return self.batch(tokens, np.roll(tokens, -self.shift, axis=1), rng)


@dataclass(frozen=True, kw_only=True)
class FeatureRotation(Masking):
    """T3, local feature rotation: the angle of a rotating wave where it is hidden, turned by a fixed angle.

    The angle of token j is q_0 j + φ + ξ_j, φ uniform and ξ_j normal; its levels are K equal sectors.

    Parameters
    ----------
    n, carrier, levels, block, masked, score : int, float or str
        Those of `Masking`.
    phase_noise : float
        Standard deviation of ξ_j, radians.
    turn : float
        ψ by which labels are turned, radians.
    """

    phase_noise: float = 0.13
    turn: float = np.pi / 4

    def __post_init__(self) -> None:
        super().__post_init__()
        real_number("turn", self.turn)
        if real_number("phase_noise", self.phase_noise) < 0:
            raise ArgumentError("phase_noise", self.phase_noise, "a number of 0 or more")

    @property
    def name(self) -> str:
        """As in tables."""
        return f"rotation {self.turn / np.pi:+.3g}π"

    def matched(self, loops: int = 8) -> Target:
        """The target with this structure: features that turn by ψ in all.

        Parameters
        ----------
        loops : int
            Layers of the network.
        """
        return Target.over(loops, self.carrier, rotation=self.turn)

    def code(self, frame: Frame, gain: float = 1.0, sharpness: float = 8.0) -> Code:
        """`circle_code` of the sectors.

        Parameters
        ----------
        frame : Frame
            Its first two directions are the plane of the code.
        gain, sharpness : float
            Those of the code.
        """
        return circle_code(self.levels, frame, gain, sharpness)

    def draw(self, count: int, rng: RNG) -> Batch:
        """Sequences at random.

        Parameters
        ----------
        count : int
            B.
        rng : int or numpy.random.Generator
            Source of randomness.
        """
        rng, count = generator("rng", rng), whole_number("count", count, 1)
        angles = 2 * np.pi * rng.random((count, 1)) + self.wavenumber * np.arange(self.n)
        angles = angles + self.phase_noise * rng.standard_normal((count, self.n))
        return self.batch(self._sector(angles), self._sector(angles + self.turn), rng)

    def _sector(self, angles: Floats) -> Whole:
        """Level of each of the `angles`: sector c is centred at 2π(c + ½)/K."""
        return np.floor(angles * self.levels / (2 * np.pi)).astype(np.int64) % self.levels


def lattice(count: int, dimensions: int) -> Floats:
    """(count, dimensions) numbers in [0, 1) that fill the cube evenly: the Kronecker sequence of the roots of
    x^{D+1} = x + 1.
    """
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (dimensions + 1))
    return (0.5 + np.arange(count)[:, None] * root ** -np.arange(1.0, dimensions + 1)) % 1
