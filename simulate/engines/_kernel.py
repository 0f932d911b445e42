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

from dispersion.compiled import OPTIONS, entry
from simulate.engines._exp import LOG2_E, LOWEST, exp, exp2_product, tanh
from simulate.engines._lanes import LANES, load, select_above, select_not_above, splat, store
from simulate.engines._moments import attend_by_moments
from simulate.engines.engine import LARGEST_STATE

ROOT_HALF = math.sqrt(0.5)
TANH_RATE = math.sqrt(8 / math.pi)

LARGEST_SQUARE = LARGEST_STATE**2


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
def _quick_gelu(z, coefficients, row):  # type: ignore[no-untyped-def]
    return z / (exp(z * -1.702) + 1.0)


@njit(**OPTIONS)
def _gelu_tanh(z, coefficients, row):  # type: ignore[no-untyped-def]
    # (1 + tanh u)/2 = 1/(1 + e^{−2u})
    twice = (z + (z * z) * z * 0.044715) * TANH_RATE
    return z / (exp(twice * -1.0) + 1.0)


@njit(**OPTIONS)
def _relu(z, coefficients, row):  # type: ignore[no-untyped-def]
    return select_not_above(z, splat(0.0), splat(0.0), z)


@njit(**OPTIONS)
def _relu_squared(z, coefficients, row):  # type: ignore[no-untyped-def]
    positive = select_not_above(z, splat(0.0), splat(0.0), z)
    return positive * positive


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
    "quick_gelu": _quick_gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": _relu,
    "relu_squared": _relu_squared,
    "polynomial": _polynomial,
    "sine": _lane_by_lane(lambda z: math.sin(z)),
    "erf": _lane_by_lane(lambda z: math.erf(z)),
    "gelu": _lane_by_lane(lambda z: 0.5 * z * math.erfc(-ROOT_HALF * z)),
}


@njit(**OPTIONS)
def _attend(x, weights, content, ratio, denominator):  # type: ignore[no-untyped-def]
    """Write S/T of one head into `ratio` (N, LANES); weights (N, LANES) are P_r at r mod N."""
    n = x.shape[0]
    zero, rate = splat(0.0), content * LOG2_E
    for i in range(n):
        store(ratio, i, zero)
        store(denominator, i, zero)
    for i in range(n):
        xi = load(x, i)
        tilt = rate * xi
        s, t = load(ratio, i), load(denominator, i)
        for j in range(i):
            xj = load(x, j)
            shared = exp2_product(tilt, xj)
            forward = load(weights, i - j) * shared
            backward = load(weights, n - i + j) * shared
            s = s + forward * xj
            t = t + forward
            store(ratio, j, load(ratio, j) + backward * xi)
            store(denominator, j, load(denominator, j) + backward)
        own = load(weights, 0) * exp2_product(tilt, xi)
        store(ratio, i, s + own * xi)
        store(denominator, i, t + own)
    for i in range(n):
        store(ratio, i, load(ratio, i) / load(denominator, i))


@njit(**OPTIONS)
def _attend_shifted(x, logits, content, ratio):  # type: ignore[no-untyped-def]
    """`_attend` where exponentials would leave float64: every row is shifted by its largest logit.

    logits : (N, LANES) b_r, in base 2, at r mod N; REMOVED for a lag that is not there.
    """
    n = x.shape[0]
    rate, one, lowest = content * LOG2_E, splat(1.0), splat(LOWEST)
    for i in range(n):
        tilt, top, s, t = rate * load(x, i), splat(-1.7e308), splat(0.0), splat(0.0)
        for j in range(n):
            y = tilt * load(x, j) + load(logits, i - j if j <= i else n + i - j)
            top = select_above(y, top, y, top)
        for j in range(n):
            xj = load(x, j)
            y = tilt * xj + load(logits, i - j if j <= i else n + i - j) - top
            e = exp2_product(select_above(lowest, y, lowest, y), one)
            s = s + e * xj
            t = t + e
        store(ratio, i, s / t)


@njit(**OPTIONS)
def _choose(peak, steady, reaches, table, chosen, coefficients):  # type: ignore[no-untyped-def]
    """(pairs, exact, shifted): pairs of moments that some lane needs, and whether some lane is beyond their reach,
    or beyond that of exponentials.

    peak (1, LANES) is |χ| max x², steady (LANES,) what exponentials take of it; chosen (2, LANES) keeps what each lane
    uses, its row of `table`, and 1 if it is beyond, 2 if beyond exponentials, and coefficients (2·pairs, LANES) its
    c_k, zero from where they end for it.
    """
    pairs, exact, shifted = 0, False, False
    for lane in range(LANES):
        row = 0
        while row < reaches.shape[0] and not peak[0, lane] <= reaches[row]:
            row += 1
        beyond = row == reaches.shape[0]
        if chosen[0, lane] != row:
            chosen[0, lane], chosen[1, lane] = row, 0.0
            for k in range(coefficients.shape[0]):
                coefficients[k, lane] = 0.0 if beyond else table[row, k]
        if not beyond:
            pairs = max(pairs, row + 1)
        elif peak[0, lane] > steady[lane]:
            chosen[1, lane], shifted = 2.0, True
        else:
            chosen[1, lane], exact = 1.0, True
    return pairs, exact, shifted


@lru_cache
def kernel(activation: str | None) -> Any:
    """The compiled `advance` for one activation; None is φ = 0.

    advance(first, last, layers, states, inputs, expansion, buffers), four tuples of arrays:
    first, last : the range of blocks to advance by `layers`.
    states : x, previous (blocks, N, LANES), the states, overwritten, and those one layer earlier; steps (blocks,
        LANES), layers completed, added to: a lane stops before the layer that would break |x| ≤ LARGEST_STATE, or give
        NaN, at any token; steady (blocks, LANES), |χ| max x² up to which exponentials need no shift.
    inputs : logits (blocks, H, N, LANES) in base 2, weights (blocks, H, N, LANES), content, value (blocks, H, LANES),
        weight_in, bias_in and weight_out (blocks, m, LANES), bias_out (blocks, 1, LANES), coefficients (blocks, degree,
        LANES), symbol_re, symbol_im (blocks, H, N, LANES), λ/N as `convolve` takes it, steepness (blocks, LANES),
        max |χ|.
    expansion : reaches, table, of `expansion`, as many pairs of moments as are worth while; roots, of `turns`.
    buffers : scratch (5, N, LANES), moments (2·pairs, N, LANES), chosen (3, LANES), series (2·pairs, LANES).

    A lane whose |χ| max x² is within `reaches` uses moments, any other exponentials, and those of shifted rows beyond
    `steady`: what a lane does depends on its own state alone.
    """
    act = ACTIVATIONS[activation]

    @entry(str(activation))
    def advance(first, last, layers, states, inputs, expansion, buffers):  # type: ignore[no-untyped-def]
        x, previous, steps, steady = states
        logits, weights, content, value, weight_in, bias_in, weight_out, bias_out, coefficients = inputs[:9]
        symbol_re, symbol_im, steepness = inputs[9:]
        reaches, table, roots = expansion
        scratch, moments, chosen, series = buffers
        n, heads, hidden = x.shape[1], weights.shape[1], weight_in.shape[1]
        ratio, denominator, other, fresh, row = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
        zero, one = splat(0.0), splat(1.0)
        for block in range(first, last):
            state, before, coefficient = x[block], previous[block], coefficients[block]
            bound, offset, steep = splat(LARGEST_SQUARE), load(bias_out[block], 0), load(steepness, block)
            alive, largest = one, zero
            chosen[0, :] = -1
            for i in range(n):
                square = load(state, i) * load(state, i)
                largest = select_above(square, largest, square, largest)
            for _ in range(layers):
                store(chosen, 2, largest * steep)
                pairs, exact, shifted = _choose(chosen[2:], steady[block], reaches, table, chosen, series)
                for i in range(n):
                    store(fresh, i, load(state, i))
                for h in range(heads):
                    chi, scale = load(content[block], h), load(value[block], h)
                    if pairs > 0:
                        needed = moments[: 2 * pairs]
                        attend_by_moments(
                            state, symbol_re[block, h], symbol_im[block, h], chi, roots, series, needed, ratio
                        )
                    if exact:
                        _attend(state, weights[block, h], chi, other, denominator)
                        beyond = load(chosen, 1)
                        for i in range(n):
                            store(ratio, i, select_above(beyond, zero, load(other, i), load(ratio, i)))
                    if shifted:
                        _attend_shifted(state, logits[block, h], chi, other)
                        far = load(chosen, 1)
                        for i in range(n):
                            store(ratio, i, select_above(far, one, load(other, i), load(ratio, i)))
                    for i in range(n):
                        store(fresh, i, load(fresh, i) + scale * load(ratio, i))
                peak = zero
                for i in range(n):
                    y = load(fresh, i)
                    z = y
                    for m in range(hidden):
                        inner = load(weight_in[block], m) * y + load(bias_in[block], m)
                        z = z + load(weight_out[block], m) * act(inner, coefficient, row)
                    z = z + offset
                    store(fresh, i, z)
                    square = z * z
                    alive = select_not_above(square, bound, alive, zero)
                    peak = select_above(square, peak, square, peak)
                largest = select_above(alive, zero, peak, largest)
                store(steps, block, load(steps, block) + alive)
                for i in range(n):
                    old = load(state, i)
                    store(before, i, select_above(alive, zero, old, load(before, i)))
                    store(state, i, select_above(alive, zero, load(fresh, i), old))

    return advance
