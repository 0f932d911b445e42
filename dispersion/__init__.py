"""Linear theory: kernels, blocks, the matrix dispersion relation J(q) and its modes."""

from dispersion.block.absolute import absolute_logits, sinusoidal, toeplitz_part, translation_invariant_share
from dispersion.block.activation import Activation
from dispersion.block.block import Block
from dispersion.block.encodings import (
    T5,
    Alibi,
    ConViTLearned,
    ConViTPosition,
    Encoding,
    Fire,
    GaussianLobes,
    KerpleLog,
    KerplePower,
    Mask,
    SkewedLobe,
    Swin,
    Uniform,
    VonMises,
    about,
    alibi_slopes,
    mask_logits,
    relu_mlp,
    t5_bucket,
)
from dispersion.block.factors import OutputValue, QueryKey, Rotary
from dispersion.block.feedforward import FeedForward
from dispersion.block.head import Head
from dispersion.block.kernel import Kernel, symbols
from dispersion.block.mask import AttentionMask
from dispersion.block.normalisation import DyT, LayerNorm, Normalisation, RMSNorm
from dispersion.block.sensitivity import MaskedSoftmax
from dispersion.errors import ArgumentError, ExclusionError
from dispersion.line.chain import Chain, core, tail_bound, tail_mass
from dispersion.line.pseudospectra import Pseudospectrum, pseudospectrum
from dispersion.line.sectors import chain_spectrum
from dispersion.line.verdict import Verdict, stability
from dispersion.ring.bands import Branches, branches, derivative
from dispersion.ring.depth import Optimal, Propagator, along_orbit, asymptotic_rate, orbit, through_layers
from dispersion.ring.general import (
    AttentionSpectrum,
    attention_spectrum,
    full_jacobian,
    jacobian_memory,
    leading_multipliers,
)
from dispersion.ring.homogeneous import FixedPoint, fixed_points
from dispersion.ring.mode import Mode
from dispersion.ring.relation import Dispersion, dispersion_relation
from dispersion.ring.tracking import degenerate_groups

__all__ = [
    "T5",
    "Activation",
    "Alibi",
    "ArgumentError",
    "AttentionMask",
    "AttentionSpectrum",
    "Block",
    "Branches",
    "Chain",
    "ConViTLearned",
    "ConViTPosition",
    "Dispersion",
    "DyT",
    "Encoding",
    "ExclusionError",
    "FeedForward",
    "Fire",
    "FixedPoint",
    "GaussianLobes",
    "Head",
    "Kernel",
    "KerpleLog",
    "KerplePower",
    "LayerNorm",
    "Mask",
    "MaskedSoftmax",
    "Mode",
    "Normalisation",
    "Optimal",
    "OutputValue",
    "Propagator",
    "Pseudospectrum",
    "QueryKey",
    "RMSNorm",
    "Rotary",
    "SkewedLobe",
    "Swin",
    "Uniform",
    "Verdict",
    "VonMises",
    "about",
    "absolute_logits",
    "alibi_slopes",
    "along_orbit",
    "asymptotic_rate",
    "attention_spectrum",
    "branches",
    "chain_spectrum",
    "core",
    "degenerate_groups",
    "derivative",
    "dispersion_relation",
    "fixed_points",
    "full_jacobian",
    "jacobian_memory",
    "leading_multipliers",
    "mask_logits",
    "orbit",
    "pseudospectrum",
    "relu_mlp",
    "sinusoidal",
    "stability",
    "symbols",
    "t5_bucket",
    "tail_bound",
    "tail_mass",
    "through_layers",
    "toeplitz_part",
    "translation_invariant_share",
]
