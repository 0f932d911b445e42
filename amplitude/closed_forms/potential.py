"""Effective potentials of the amplitude equations, R⁺ − R = −∂V/∂R."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import broadcast, frozen_array, real_array, real_number
from dispersion.quiet import beyond_float64


def saturated(mu: float, beta: float, below: float = math.nan) -> float:
    """R = √(μ/β) (Eq. 17), the extremum of the potential beside 0, stable or not; NaN where cubic order gives none.

    mu, beta : μ and β; below : what it is below an onset, μ ≤ 0, where there is none.
    """
    if mu * beta > 0:
        return math.sqrt(mu / beta)
    return below if mu <= 0 else math.nan


@beyond_float64
def one_mode_potential(R: ArrayLike, mu: float, beta: float) -> NDArray[np.float64]:
    """V(R) = −μR²/2 + βR⁴/4 (Eq. 19).

    Parameters
    ----------
    R : (…) array_like
        Amplitudes, signed, so that the symmetry R → −R shows.
    mu, beta : float
        μ and β.

    Returns
    -------
    (…) ndarray
        V(R).
    """
    R, mu, beta = real_array("R", R), real_number("mu", mu), real_number("beta", beta)
    return -mu * R**2 / 2 + beta * R**4 / 4


@beyond_float64
def two_mode_potential(
    R1: ArrayLike, R2: ArrayLike, mu: ArrayLike, beta_self: ArrayLike, beta_cross: float
) -> NDArray[np.float64]:
    """V(R1, R2) = Σ_i(−μ_i R_i²/2 + β_i R_i⁴/4) + β_× R1²R2²/2 (Eq. 122).

    Parameters
    ----------
    R1, R2 : array_like
        Amplitudes, broadcast together.
    mu, beta_self : (2,) array_like
        μ_i and β_i of each mode.
    beta_cross : float
        β_×, the same for both modes: without that symmetry no potential exists.

    Returns
    -------
    (…) ndarray
        V(R1, R2).
    """
    R1, R2 = broadcast(real_array, R1=R1, R2=R2)
    mu, beta_self = frozen_array("mu", mu, (2,)), frozen_array("beta_self", beta_self, (2,))
    beta_cross = real_number("beta_cross", beta_cross)
    separate = one_mode_potential(R1, mu[0], beta_self[0]) + one_mode_potential(R2, mu[1], beta_self[1])
    return separate + beta_cross * R1**2 * R2**2 / 2
