"""Derivations of the amplitude equations with sympy, by series expansion of the scalar map."""

from amplitude.symbolic.equations import (
    DERIVATIONS,
    alphas,
    base_state,
    clusters,
    competition,
    cumulants,
    homogeneous,
    period_four,
    period_three,
    period_two,
    standing,
    travelling,
)
from dispersion.symbolic.derivation import Derivation

__all__ = [
    "DERIVATIONS",
    "Derivation",
    "alphas",
    "base_state",
    "clusters",
    "competition",
    "cumulants",
    "homogeneous",
    "period_four",
    "period_three",
    "period_two",
    "standing",
    "travelling",
]
