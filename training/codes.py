"""Codes: how tokens of a task become states, and states classes again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import RNG, frozen_array, generator, real_number, whole_number
from dispersion.noun import Noun
from training.frame import Frame

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Code(Noun):
    """Embedding and readout of a task with K levels on d features: x_j = E[token_j], logits W x_j + b.

    Parameters
    ----------
    embedding : (K + 1, d) array_like
        E, the mask token last.
    readout : (K, d) array_like
        W.
    bias : (K,) array_like
        b.
    """

    embedding: Floats
    readout: Floats
    bias: Floats

    def __post_init__(self) -> None:
        readout = frozen_array("readout", self.readout, (None, None))
        levels, d = readout.shape
        object.__setattr__(self, "readout", readout)
        object.__setattr__(self, "embedding", frozen_array("embedding", self.embedding, (levels + 1, d)))
        object.__setattr__(self, "bias", frozen_array("bias", self.bias, (levels,)))

    @classmethod
    def random(cls, levels: int, d: int, gain: float = 1.0, sharpness: float = 8.0, rng: RNG = 0) -> Code:
        """Embedding and readout drawn independently: no structure that a block could use. The mask is zero.

        Parameters
        ----------
        levels, d : int
            K and the number of features.
        gain, sharpness : float
            Root mean square of the norms of the rows of E, and of W times `gain`.
        rng : int or numpy.random.Generator
            Source of randomness.
        """
        rng, shape = generator("rng", rng), (whole_number("levels", levels, 2), whole_number("d", d, 1))
        gain, sharpness = scales(gain, sharpness)
        embedding = np.vstack([gain * rng.standard_normal(shape) / np.sqrt(d), np.zeros(d)])
        return cls(embedding, sharpness / gain * rng.standard_normal(shape) / np.sqrt(d), np.zeros(levels))

    @property
    def levels(self) -> int:
        """K."""
        return len(self.readout)

    @property
    def d(self) -> int:
        """Number of features."""
        return self.readout.shape[1]


def value_code(centres: ArrayLike, frame: Frame, gain: float = 1.0, sharpness: float = 8.0) -> Code:
    """The code of levels on a line: E_c = g z_c e, logits β(z_c y/g − z_c²/2) of y = eᵀx, so that y/g nearest z_c wins.

    Parameters
    ----------
    centres : (K,) array_like
        z_c.
    frame : Frame
        e is its first direction.
    gain, sharpness : float
        g and β.
    """
    z = frozen_array("centres", centres, (None,))
    e = frame.directions(0)[:, 0]
    gain, sharpness = scales(gain, sharpness)
    embedding = np.vstack([gain * z[:, None] * e, np.zeros(frame.d)])
    return Code(embedding, sharpness / gain * z[:, None] * e, -sharpness * z**2 / 2)


def circle_code(levels: int, frame: Frame, gain: float = 1.0, sharpness: float = 8.0) -> Code:
    """The code of K sectors of a circle: E_c = g u_c, logits (β/g) u_cᵀx, u_c = (cos, sin) of 2π(c + ½)/K.

    Parameters
    ----------
    levels : int
        K.
    frame : Frame
        The circle lies in the plane of its first two directions.
    gain, sharpness : float
        g and β.
    """
    angles = 2 * np.pi * (np.arange(whole_number("levels", levels, 2)) + 0.5) / levels
    if frame.head_width < 2:
        raise ArgumentError("frame", "1 feature for each head", "2 or more, the plane of the circle")
    gain, sharpness = scales(gain, sharpness)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1) @ frame.directions(0)[:, :2].T
    return Code(np.vstack([gain * circle, np.zeros(frame.d)]), sharpness / gain * circle, np.zeros(levels))


def scales(gain: float, sharpness: float) -> tuple[float, float]:
    """Both as positive numbers."""
    return real_number("gain", gain, positive=True), real_number("sharpness", sharpness, positive=True)
