"""Linear theory: kernels, blocks, the matrix dispersion relation J(q) and its modes."""

from dispersion.activation import Activation
from dispersion.block import Block, FeedForward, Head
from dispersion.errors import ArgumentError, ExclusionError
from dispersion.fixed_points import FixedPoint, fixed_points
from dispersion.kernel import Kernel
from dispersion.relation import Dispersion, Mode, dispersion_relation

__all__ = [
    "Activation",
    "ArgumentError",
    "Block",
    "Dispersion",
    "ExclusionError",
    "FeedForward",
    "FixedPoint",
    "Head",
    "Kernel",
    "Mode",
    "dispersion_relation",
    "fixed_points",
]
