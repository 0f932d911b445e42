"""A compiled vector of LANES float32, one for each of as many sequences, for the kernels of this package.

Every operation acts on all lanes alike, so the machine code is vectorised by construction (one AVX-512 or two AVX
registers) and a lane never depends on its neighbours. Importing this module imports numba.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic as _intrinsic
from numba.extending import lower_builtin, models, register_model

from dispersion.compiled import OPTIONS

LANES = 16

intrinsic: Any = _intrinsic  # numba types the decorated function with its typing context

VECTOR = ir.VectorType(ir.FloatType(), LANES)
INTEGERS = ir.VectorType(ir.IntType(32), LANES)


class LanesType(types.Type):
    """The numba type of a vector of LANES float32."""


lanes = LanesType(name=f"float32x{LANES}")


@register_model(LanesType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def _everywhere(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(VECTOR, ir.Undefined), zeros)


def _define(operation: Any, instruction: str) -> None:
    """Teach numba `operation` between vectors, and between a vector and a float32."""
    pairs = [(lanes, lanes), (lanes, types.float32), (types.float32, lanes)]

    @infer_global(operation)
    class Template(ConcreteTemplate):
        cases = [signature(lanes, *pair) for pair in pairs]  # noqa: RUF012

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        vectors = (
            value if kind == lanes else _everywhere(builder, value)
            for kind, value in zip(sig.args, arguments, strict=True)
        )
        return getattr(builder, instruction)(*vectors, flags=("contract",))

    for pair in pairs:
        lower_builtin(operation, *pair)(lower)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


def _pointer(context: Any, builder: Any, kind: Any, array: Any, start: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), VECTOR.as_pointer())


@intrinsic
def load(typing: Any, array: Any, start: Any) -> Any:
    """LANES numbers of `array` (n,) float32, the first of them at `start`."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, sig.args[0], *arguments), align=4)

    return lanes(array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, start: Any, value: Any) -> Any:
    """Write `value` to `array` (n,) float32 from `start` on."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        array, start, value = arguments
        builder.store(value, _pointer(context, builder, sig.args[0], array, start), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """The float32 `value` in every lane."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return _everywhere(builder, arguments[0])

    return lanes(types.float32), generate


@intrinsic
def above(typing: Any, value: Any, limit: Any, yes: Any, no: Any) -> Any:
    """Lane by lane, `yes` where value > limit and `no` elsewhere, also where either is NaN."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        value, limit, yes, no = arguments
        return builder.select(builder.fcmp_ordered(">", value, limit), yes, no)

    return lanes(lanes, lanes, lanes, lanes), generate


@intrinsic
def power_of_two(typing: Any, shifted: Any) -> Any:
    """2ⁿ from n + 1.5·2²³: the last bits of the argument are n in two's complement."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], INTEGERS)
        shift, bias = (ir.Constant(INTEGERS, [value] * LANES) for value in (23, 127 << 23))
        return builder.bitcast(builder.add(builder.shl(bits, shift), bias), VECTOR)

    return lanes(lanes), generate


@intrinsic
def total_of(typing: Any, value: Any) -> Any:
    """The float32 sum of the lanes."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        while arguments[0].type.count > 1:
            (value,) = arguments
            half = value.type.count // 2
            low, high = (
                builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), _numbers(start, half))
                for start in (0, half)
            )
            arguments = [builder.fadd(low, high)]
        return builder.extract_element(arguments[0], ir.IntType(32)(0))

    return types.float32(lanes), generate


def _numbers(start: int, count: int) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(start, start + count)))


MAGIC = np.float32(1.5 * 2.0**23)
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)  # its last bits are zero: n · LN2_HIGH is exact
LN2_LOW = np.float32(-2.12194440e-4)
Q = tuple(map(np.float32, (0.5, 0.16666667, 0.041666303, 0.0083333, 0.0013981999507, 0.00019875691500)))
"""(e^r − 1 − r)/r² on |r| ≤ (ln 2)/2."""
LOWEST = np.float32(-87.0)
"""e^x is 0 below, where 2ⁿ leaves the normal range of float32."""
SATURATED = np.float32(20.0)
ZERO, ONE, TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)


@njit(**OPTIONS)
def _reduced(x):  # type: ignore[no-untyped-def]
    """(p, 2ⁿ) with e^x = 2ⁿ(1 + p)."""
    shifted = x * LOG2_E + MAGIC
    n = shifted - MAGIC
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    q = r * Q[5] + Q[4]
    q = q * r + Q[3]
    q = q * r + Q[2]
    q = q * r + Q[1]
    q = q * r + Q[0]
    return r + (r * r) * q, power_of_two(shifted)


@njit(**OPTIONS)
def exp(x):  # type: ignore[no-untyped-def]
    """e^x, x ≤ 88: within 2 ulp, 0 for x < −87; NaN gives NaN."""
    lowest = splat(LOWEST)
    p, scale = _reduced(above(lowest, x, lowest, x))
    return above(lowest, x, splat(ZERO), scale + scale * p)


@njit(**OPTIONS)
def tanh(y):  # type: ignore[no-untyped-def]
    """tanh y = ±m/(m + 2), m = e^{2|y|} − 1 = 2ⁿp + (2ⁿ − 1): within 4 ulp, odd to the last bit; NaN gives NaN."""
    zero, saturated = splat(ZERO), splat(SATURATED)
    x = above(zero, y, y * -TWO, y * TWO)
    x = above(x, saturated, saturated, x)
    p, scale = _reduced(x)
    m = scale * p + (scale - ONE)
    t = m / (m + TWO)
    return above(zero, y, zero - t, t)
