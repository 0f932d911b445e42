"""What came of comparing a rebuilt network with its reference implementation."""

from __future__ import annotations

from dataclasses import dataclass

from dispersion.noun import Noun


@dataclass(frozen=True)
class Difference:
    """Where a rebuilt network differs from its reference.

    Parameters
    ----------
    layer : int or None
        Which, 0 the first; None for what comes before and after the layers.
    part : str
        Of the layer, the first whose result is not found in the reference; or 'embedding' or 'final norm'.
    size : float
        The largest difference of the result, relative to its largest entry.
    """

    layer: int | None
    part: str
    size: float

    def __str__(self) -> str:
        where = self.part if self.layer is None else f"layer {self.layer} ({self.part})"
        return f"{where} by {self.size:.1e} of its size"


@dataclass(frozen=True)
class Comparison(Noun):
    """How far a rebuilt network is from its reference.

    Parameters
    ----------
    reference : str
        Its class, and where that is from.
    error : float
        The largest relative difference of a layer, with what the reference computes in float32 in float64.
    single : float or None
        The same as the reference is, None where it computes in float64 throughout.
    """

    reference: str
    error: float
    single: float | None = None

    @property
    def note(self) -> str:
        """One line."""
        if self.error == 0:
            return f"its layers are those of {self.reference} themselves"
        if self.single is None:
            return f"its layers are those of {self.reference} to {self.error:.1e}"
        single = f"to {self.single:.1e} as it is, to {self.error:.1e} with that in float64"
        return f"its layers are those of {self.reference}, which computes in float32 inside: {single}"
