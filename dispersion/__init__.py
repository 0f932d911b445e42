"""Linear theory: kernels, blocks, the matrix dispersion relation J(q) and its modes."""

from dispersion.absolute import absolute_logits, sinusoidal, toeplitz_part, translation_invariant_share
from dispersion.activation import Activation
from dispersion.block import Block
from dispersion.encodings import alibi_slopes, mask_logits, relu_mlp, t5_bucket
from dispersion.errors import ArgumentError, ExclusionError
from dispersion.feedforward import FeedForward
from dispersion.fixed_points import FixedPoint, fixed_points
from dispersion.head import Head, Rotary
from dispersion.kernel import Kernel, symbols
from dispersion.mode import Mode
from dispersion.normalisation import DyT, LayerNorm, Normalisation, RMSNorm
from dispersion.relation import Dispersion, dispersion_relation

__all__ = [
    "Activation",
    "ArgumentError",
    "Block",
    "Dispersion",
    "DyT",
    "ExclusionError",
    "FeedForward",
    "FixedPoint",
    "Head",
    "Kernel",
    "LayerNorm",
    "Mode",
    "Normalisation",
    "RMSNorm",
    "Rotary",
    "absolute_logits",
    "alibi_slopes",
    "dispersion_relation",
    "fixed_points",
    "mask_logits",
    "relu_mlp",
    "sinusoidal",
    "symbols",
    "t5_bucket",
    "toeplitz_part",
    "translation_invariant_share",
]
