"""Derivations of linear theory with sympy: J(q) of the block, λ(q) in closed form, and the masked softmax."""

from dispersion.symbolic.block import SymbolicBlock, SymbolicHead, symbolic_jacobian
from dispersion.symbolic.derivation import Derivation
from dispersion.symbolic.kernels import closed_form
from dispersion.symbolic.masks import masked_softmax, masked_softmax_bounds, masked_softmax_norms
from dispersion.symbolic.relation import (
    DERIVATIONS,
    jacobian,
    jacobian_layer_norm,
    jacobian_no_positions,
    jacobian_post_layer_norm,
    layer_norm_derivative,
    rms_norm_derivative,
)

__all__ = [
    "DERIVATIONS",
    "Derivation",
    "SymbolicBlock",
    "SymbolicHead",
    "closed_form",
    "jacobian",
    "jacobian_layer_norm",
    "jacobian_no_positions",
    "jacobian_post_layer_norm",
    "layer_norm_derivative",
    "masked_softmax",
    "masked_softmax_bounds",
    "masked_softmax_norms",
    "rms_norm_derivative",
    "symbolic_jacobian",
]
