"""Exponential and hyperbolic tangent of a vector of lanes, without branches.

x = n ln 2 + r with n whole and |r| ≤ (ln 2)/2;  e^x = 2ⁿ(1 + p),  p = e^r − 1 = r + r² Q(r),
Q of degree 9 interpolating at Chebyshev nodes: relative error of e^r 1.6e-17. n comes from adding
1.5·2⁵², whose last bit weighs 1, and 2ⁿ from writing n into the exponent bits: neither survives
reassociation, so `contract` is the only fast-math flag. Importing this module imports numba.
"""

from __future__ import annotations

from numba import njit

from dispersion.compiled import OPTIONS
from simulate.engines._lanes import (
    SIXTEEN,
    fused,
    power_of_two,
    rough_reciprocal,
    select_above,
    sixteenth_powers,
    splat,
)

LIMIT = 708.0
"""`exp` clamps its argument to ±LIMIT: beyond it 2ⁿ leaves the normal range of float64."""

LOWEST = -1000.0
"""Logits, in base 2, that lie further than this below the largest of their row count as this far."""

REMOVED = -1e300
"""Logit of a pair that is not there; below every logit of an admissible state, and finite."""

LN_2 = 0.6931471805599453
MAGIC = 1.5 * 2.0**52
LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01  # its last 32 bits are zero: n · LN2_HIGH is exact
LN2_LOW = 1.90821492927058770002e-10
Q = (
    0.5000000000000001,
    0.16666666666666669,
    0.041666666666624164,
    0.008333333333330065,
    0.0013888888917196881,
    0.0001984126986304067,
    2.4801521322116825e-05,
    2.7557268480116333e-06,
    2.762007599981065e-07,
    2.5100375924709717e-08,
)

MAGIC_16 = 1.5 * 2.0**48
Q_16 = (
    0.6931471805599457,
    0.24022650695910075,
    0.0555041086566393,
    0.009618129106919537,
    0.0013333781576784268,
    0.00015403723980749256,
)
"""(2^r − 1)/r on |r| ≤ 1/32, interpolated at Chebyshev nodes: relative error of 2^r 1.5e-17."""


@njit(**OPTIONS)
def _less_one(r):  # type: ignore[no-untyped-def]
    """e^r − 1, |r| ≤ (ln 2)/2."""
    q = r * Q[9] + Q[8]
    q = q * r + Q[7]
    q = q * r + Q[6]
    q = q * r + Q[5]
    q = q * r + Q[4]
    q = q * r + Q[3]
    q = q * r + Q[2]
    q = q * r + Q[1]
    q = q * r + Q[0]
    return r + (r * r) * q


@njit(**OPTIONS)
def _reduced(x):  # type: ignore[no-untyped-def]
    """(p, 2ⁿ) with e^x = 2ⁿ(1 + p)."""
    shifted = x * LOG2_E + MAGIC
    n = shifted - MAGIC
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    return _less_one(r), power_of_two(shifted)


if SIXTEEN:
    _powers = sixteenth_powers()

    @njit(**OPTIONS)
    def exp2_product(a, b):  # type: ignore[no-untyped-def]
        """2^{ab} where |ab| ≤ 1021 is known: within 2 ulp; NaN gives NaN. ab = m/16 + r, |r| ≤ 1/32."""
        shifted = fused(a, b, splat(MAGIC_16))
        r = fused(a, b, MAGIC_16 - shifted)
        q = r * Q_16[5] + Q_16[4]
        q = q * r + Q_16[3]
        q = q * r + Q_16[2]
        q = q * r + Q_16[1]
        q = q * r + Q_16[0]
        scale = _powers(shifted)
        return scale + scale * (r * q)

else:

    @njit(**OPTIONS)
    def exp2_product(a, b):  # type: ignore[no-untyped-def]
        """2^{ab} where |ab| ≤ 1021 is known: within 2 ulp of the rounded ab; NaN gives NaN. ab = n + r, |r| ≤ 1/2."""
        y = a * b
        shifted = y + MAGIC
        r = y - (shifted - MAGIC)
        scale = power_of_two(shifted)
        return scale + scale * _less_one(r * LN_2)


@njit(**OPTIONS)
def exp(x):  # type: ignore[no-untyped-def]
    """e^x, |x| ≤ 708 (clamped beyond): within 1.1 ulp; NaN gives NaN."""
    top, bottom = splat(LIMIT), splat(-LIMIT)
    x = select_above(x, top, top, x)
    x = select_above(bottom, x, bottom, x)
    p, scale = _reduced(x)
    return scale + scale * p


@njit(**OPTIONS)
def divided(a, b):  # type: ignore[no-untyped-def]
    """a/b where 1e-300 < b < 1e300 is known: within 1 ulp, in a third of the time of the machine's division.

    Two cubic steps r ← r(1 + e + e²), e = 1 − br, from a 13 % guess, and one correction of the quotient.
    """
    r = rough_reciprocal(b)
    e = 1.0 - b * r
    r = r + r * (e + e * e)
    e = 1.0 - b * r
    r = r + r * (e + e * e)
    q = a * r
    return q + r * (a - b * q)


@njit(**OPTIONS)
def tanh(y):  # type: ignore[no-untyped-def]
    """tanh y = ±m/(m + 2), m = e^{2|y|} − 1 = 2ⁿp + (2ⁿ − 1): within 4 ulp, odd to the last bit."""
    zero, saturated = splat(0.0), splat(40.0)
    x = select_above(zero, y, y * -2.0, y * 2.0)
    x = select_above(x, saturated, saturated, x)
    p, scale = _reduced(x)
    m = scale * p + (scale - 1.0)
    t = divided(m, m + 2.0)
    return select_above(zero, y, zero - t, t)
