"""The compiled map: F applied layer after layer to blocks of LANES scalar (d = 1) points.

y_i = x_i + Σ_h η_h S_i/T_i,  S_i = Σ_j P_{i−j} e^{χ x_i x_j} x_j,  T_i = Σ_j P_{i−j} e^{χ x_i x_j}   (Eq. 13)
x_i⁺ = y_i + Σ_m o_m act(w_m y_i + b_m) + c                                                          (Eq. 2)

e^{χ x_i x_j} is symmetric in (i, j): one exponential serves the pair. Importing this imports numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import njit

from simulate._exp import OPTIONS, exp, exp_within, tanh
from simulate._lanes import LANES, load, select_above, select_not_above, splat, store

ROOT_HALF = math.sqrt(0.5)


@njit(**OPTIONS)
def _identity(z, coefficients, row):  # type: ignore[no-untyped-def]
    return z


@njit(**OPTIONS)
def _tanh(z, coefficients, row):  # type: ignore[no-untyped-def]
    return tanh(z)


@njit(**OPTIONS)
def _silu(z, coefficients, row):  # type: ignore[no-untyped-def]
    return z / (exp(z * -1.0) + 1.0)


@njit(**OPTIONS)
def _relu(z, coefficients, row):  # type: ignore[no-untyped-def]
    return select_not_above(z, splat(0.0), splat(0.0), z)


@njit(**OPTIONS)
def _polynomial(z, coefficients, row):  # type: ignore[no-untyped-def]
    value = splat(0.0)
    for degree in range(coefficients.shape[0], 0, -1):
        value = (value + load(coefficients, degree - 1)) * z
    return value


def _lane_by_lane(scalar: Callable[[float], float]) -> Any:
    """An activation whose library function takes one number at a time."""
    compiled = njit(**OPTIONS)(scalar)

    @njit(**OPTIONS)
    def activation(z, coefficients, row):  # type: ignore[no-untyped-def]
        store(row, 0, z)
        for lane in range(LANES):
            row[0, lane] = compiled(row[0, lane])
        return load(row, 0)

    return activation


ACTIVATIONS: dict[str | None, Any] = {
    None: _identity,
    "tanh": _tanh,
    "silu": _silu,
    "relu": _relu,
    "polynomial": _polynomial,
    "sine": _lane_by_lane(lambda z: math.sin(z)),
    "erf": _lane_by_lane(lambda z: math.erf(z)),
    "gelu": _lane_by_lane(lambda z: 0.5 * z * math.erfc(-ROOT_HALF * z)),
}


@njit(**OPTIONS)
def _attend(x, weights, content, numerator, denominator):  # type: ignore[no-untyped-def]
    """Write S and T of one head, (N, LANES) each; weights (N, LANES) are P_r at r mod N."""
    n = x.shape[0]
    zero = splat(0.0)
    for i in range(n):
        store(numerator, i, zero)
        store(denominator, i, zero)
    for i in range(n):
        xi = load(x, i)
        tilt = content * xi
        s, t = load(numerator, i), load(denominator, i)
        for j in range(i):
            xj = load(x, j)
            shared = exp_within(tilt * xj)
            forward = load(weights, i - j) * shared
            backward = load(weights, n - i + j) * shared
            s = s + forward * xj
            t = t + forward
            store(numerator, j, load(numerator, j) + backward * xi)
            store(denominator, j, load(denominator, j) + backward)
        own = load(weights, 0) * exp_within(tilt * xi)
        store(numerator, i, s + own * xi)
        store(denominator, i, t + own)


@lru_cache
def kernel(activation: str | None) -> Any:
    """The compiled `advance` for one activation; None is φ = 0.

    advance(first, last, layers, x, previous, steps, limit, weights, content, value,
            weight_in, bias_in, weight_out, bias_out, coefficients, scratch)
    first, last : the range of blocks to advance by `layers`.
    x, previous : (blocks, N, LANES) the states, overwritten, and those one layer earlier.
    steps : (blocks, LANES) layers completed, added to. A lane stops before the layer that would
        break x² ≤ limit (blocks, LANES), or give NaN, at any token.
    weights (blocks, H, N, LANES), content and value (blocks, H, LANES), weight_in, bias_in and
        weight_out (blocks, m, LANES), bias_out (blocks, 1, LANES), coefficients (blocks, degree, LANES).
    scratch : (4, N, LANES).
    """
    act = ACTIVATIONS[activation]

    @njit(**OPTIONS)
    def advance(  # type: ignore[no-untyped-def]
        first,
        last,
        layers,
        x,
        previous,
        steps,
        limit,
        weights,
        content,
        value,
        weight_in,
        bias_in,
        weight_out,
        bias_out,
        coefficients,
        scratch,
    ):
        n, heads, hidden = x.shape[1], weights.shape[1], weight_in.shape[1]
        numerator, denominator, fresh, row = scratch[0], scratch[1], scratch[2], scratch[3]
        zero, one = splat(0.0), splat(1.0)
        for block in range(first, last):
            state, before, coefficient = x[block], previous[block], coefficients[block]
            bound, offset = load(limit, block), load(bias_out[block], 0)
            alive = one
            for _ in range(layers):
                for i in range(n):
                    store(fresh, i, load(state, i))
                for h in range(heads):
                    _attend(state, weights[block, h], load(content[block], h), numerator, denominator)
                    scale = load(value[block], h)
                    for i in range(n):
                        store(fresh, i, load(fresh, i) + scale * (load(numerator, i) / load(denominator, i)))
                for i in range(n):
                    y = load(fresh, i)
                    z = y
                    for m in range(hidden):
                        inner = load(weight_in[block], m) * y + load(bias_in[block], m)
                        z = z + load(weight_out[block], m) * act(inner, coefficient, row)
                    z = z + offset
                    store(fresh, i, z)
                    alive = select_not_above(z * z, bound, alive, zero)
                store(steps, block, load(steps, block) + alive)
                for i in range(n):
                    old = load(state, i)
                    store(before, i, select_above(alive, zero, old, load(before, i)))
                    store(state, i, select_above(alive, zero, load(fresh, i), old))

    return advance
