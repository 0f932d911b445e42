"""The leading multiplier of many scalar blocks at once, at the state 0: what a sweep compares with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispersion import Activation
from dispersion.block.kernel import grid_symbol
from dispersion.eigen import TOLERANCE
from simulate.engines.scalar import Parameters


class Critical(NamedTuple):
    """k : (P,) leading wavenumber, −1 where undefined; multiplier : (P,) complex Λ, NaN there."""

    k: NDArray[np.int64]
    multiplier: NDArray[np.complex128]


def critical_modes(parameters: Parameters) -> Critical:
    """`dispersion_relation(block).leading()` of P scalar blocks: Λ_k = C(1 + Σ_h η_h λ_h(2πk/N)) (Eq. 9).

    Undefined where C is: ReLU with a unit of zero bias.
    """
    n = parameters.n
    weights = parameters.weights / parameters.weights.sum(axis=-1, keepdims=True)
    symbol = grid_symbol(weights, 1)[..., : n // 2 + 1]
    multipliers = _pointwise_slope(parameters)[:, None] * (1 + np.einsum("ph,phk->pk", parameters.value, symbol))
    growth = np.abs(multipliers)
    k = np.argmax(growth >= growth.max(axis=1, keepdims=True) * (1 - TOLERANCE), axis=1)
    leading = multipliers[np.arange(len(k)), k]
    return Critical(np.where(np.isnan(leading), -1, k), leading)


def _pointwise_slope(parameters: Parameters) -> NDArray[np.float64]:
    """(P,) C = 1 + Σ_m o_m w_m act'(b_m)."""
    bias = parameters.bias_in
    if parameters.activation is None:
        slope = np.zeros_like(bias)
    elif parameters.activation == "polynomial":
        degrees = np.arange(1, parameters.coefficients.shape[1] + 1)
        slope = (degrees * parameters.coefficients[:, None, :] * bias[..., None] ** (degrees - 1)).sum(axis=-1)
    elif parameters.activation == "relu":
        slope = np.where(bias == 0, np.nan, bias > 0)
    else:
        slope = Activation(parameters.activation).taylor(bias, 1)[..., 1]
    through = parameters.weight_out * parameters.weight_in
    return 1 + np.where(through == 0, 0.0, through * slope).sum(axis=1)
