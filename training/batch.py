"""Sequences of tokens with their labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import check_shape, whole_array
from dispersion.noun import Noun

Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batch(Noun):
    """B sequences of N tokens with what is to be said of each token.

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
        arrays = {name: np.array(whole_array(name, getattr(self, name))) for name in ("inputs", "labels")}
        arrays["scored"] = np.array(self.scored)
        if arrays["inputs"].ndim != 2:
            raise ArgumentError("inputs", f"shape {arrays['inputs'].shape}", "shape (B, N)")
        if arrays["scored"].dtype != bool:
            raise ArgumentError("scored", f"an array of {arrays['scored'].dtype}", "True or False at each position")
        for name, array in arrays.items():
            check_shape(name, array, arrays["inputs"].shape)
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
        chosen = rows if isinstance(rows, slice) else whole_array("rows", rows)
        try:
            return Batch(self.inputs[chosen], self.labels[chosen], self.scored[chosen])
        except IndexError:
            raise ArgumentError("rows", f"rows beyond {len(self)}", f"0 … {len(self) - 1}") from None
