"""The engines, and which of them iterates a model: the first that fits."""

from __future__ import annotations

from dispersion import ArgumentError, Block
from dispersion.block.block import require_periodic
from dispersion.line.chain import Chain
from simulate.engines.engine import Engine, Model
from simulate.engines.long import Fft
from simulate.engines.scalar import Lanes
from simulate.engines.vector import Blas

ENGINES: tuple[Engine, ...] = (Lanes(), Fft(), Blas())
"""Their order is that of the numbers in results."""


def engine_of(model: Model) -> Engine:
    """The engine that iterates `model`."""
    return next(engine for engine in ENGINES if engine.fits(model))


def checked_model(argument: str, model: object) -> Model:
    """`model` if it is a Block or a Chain that can be iterated, else an ArgumentError."""
    if not isinstance(model, Block | Chain):
        raise ArgumentError(argument, type(model).__name__, "a Block or a Chain")
    if isinstance(model, Block):
        require_periodic(model)
    return model


def shape_of(model: Model) -> tuple[int, ...]:
    """(N,) of the ring or chain, (N_1, …, N_D) of the torus of `model`."""
    return model.shape if isinstance(model, Block) else (model.n,)
