"""e^y as a short polynomial on |y| ≤ reach, and how short it may be: scipy is imported on first use.

e^y = I_0(z) + 2 Σ_k I_k(z) T_k(y/z) on |y| ≤ z, with modified Bessel functions I_k and Chebyshev polynomials T_k;
the terms left out add up to about the first of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def coefficients(degree: int, z: float) -> NDArray[np.float64]:
    """(degree + 1,) a_k of Σ_k a_k y^k, the Chebyshev expansion of e^y on |y| ≤ `z` > 0, cut off at `degree`."""
    from scipy.special import iv

    chebyshev = 2 * iv(np.arange(degree + 1), z)
    chebyshev[0] /= 2
    return np.polynomial.chebyshev.cheb2poly(chebyshev) / z ** np.arange(degree + 1)


def error(degree: int, z: float) -> float:
    """Bound on the relative error of `coefficients`: what is left out against the smallest e^y, e^{−z}."""
    from scipy.special import iv

    return float(2 * np.exp(z) * iv(np.arange(degree + 1, degree + 12), z).sum())


def reach(degree: int, tolerance: float) -> float:
    """The largest z with a relative `error` of at most `tolerance`."""
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if error(degree, middle) <= tolerance else (low, middle)
    return low
