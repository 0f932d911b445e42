"""The engines, and which of them iterates a model: the first that fits."""

from __future__ import annotations

from simulate.engines.engine import Engine, Model
from simulate.engines.long import Fft
from simulate.engines.scalar import Lanes
from simulate.engines.vector import Blas

ENGINES: tuple[Engine, ...] = (Lanes(), Fft(), Blas())
"""Their order is that of the numbers in results."""


def engine_of(model: Model) -> Engine:
    """The engine that iterates `model`."""
    return next(engine for engine in ENGINES if engine.fits(model))
