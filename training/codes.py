"""Codes: how tokens of a task become states, and states classes again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import frozen_array
from dispersion.noun import Noun

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

    @property
    def levels(self) -> int:
        """K."""
        return len(self.readout)

    @property
    def d(self) -> int:
        """Number of features."""
        return self.readout.shape[1]
