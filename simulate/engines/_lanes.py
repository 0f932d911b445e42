"""A compiled vector of LANES float64, one per parameter point, for the kernels of this package.

Points are laid out (…, LANES) and every operation acts on all lanes alike, so the machine code is
vectorised by construction (one AVX-512 or two AVX registers) and a lane never depends on its
neighbours. Multiplications and additions carry the `contract` flag only: they may fuse, nothing is
reordered, NaN and infinity keep their meaning. Importing this module imports numba.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from inspect import signature as signature_of
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic as _intrinsic
from numba.extending import lower_builtin, models, register_model

LANES = 8

intrinsic: Any = _intrinsic  # numba types the decorated function with its typing context

DOUBLE = ir.DoubleType()
VECTOR = ir.VectorType(DOUBLE, LANES)
INTEGERS = ir.VectorType(ir.IntType(64), LANES)


class LanesType(types.Type):
    """The numba type of a vector of LANES float64."""


lanes = LanesType(name=f"float64x{LANES}")


@register_model(LanesType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def lanes_of(builder: Any, value: Any) -> Any:
    """The scalar `value` in every lane."""
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, ir.IntType(32)(0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(VECTOR, ir.Undefined), everywhere)


def _vector(builder: Any, kind: Any, value: Any) -> Any:
    return value if kind == lanes else lanes_of(builder, value)


def _define(operation: Any, instruction: str) -> None:
    """Teach numba `operation` between vectors, and between a vector and a float64."""
    pairs = [(lanes, lanes), (lanes, types.float64), (types.float64, lanes)]

    @infer_global(operation)
    class Template(ConcreteTemplate):
        cases = [signature(lanes, *pair) for pair in pairs]  # noqa: RUF012

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        left, right = (_vector(builder, *item) for item in zip(sig.args, arguments, strict=True))
        return getattr(builder, instruction)(left, right, flags=("contract",))

    for pair in pairs:
        lower_builtin(operation, *pair)(lower)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


def _row(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    """Pointer to row number `row` of a C-contiguous (rows, LANES) array."""
    data = context.make_array(kind)(context, builder, array).data
    start = builder.mul(row, ir.Constant(row.type, LANES))
    return builder.bitcast(builder.gep(data, [start]), VECTOR.as_pointer())


@intrinsic
def load(typing: Any, array: Any, row: Any) -> Any:
    """The lanes of `array`[row], `array` (rows, LANES) float64."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.load(_row(context, builder, sig.args[0], *arguments), align=8)

    return lanes(array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, row: Any, value: Any) -> Any:
    """Write `value` to `array`[row], `array` (rows, LANES) float64."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        array, row, value = arguments
        builder.store(value, _row(context, builder, sig.args[0], array, row), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def load_from(typing: Any, array: Any, start: Any) -> Any:
    """LANES numbers of `array` (n,) float64, the first of them at `start`."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        array, start = arguments
        data = context.make_array(sig.args[0])(context, builder, array).data
        return builder.load(builder.bitcast(builder.gep(data, [start]), VECTOR.as_pointer()), align=8)

    return lanes(array, types.intp), generate


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """`value` in every lane."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return _vector(builder, types.float64, arguments[0])

    return lanes(types.float64), generate


def on_lanes(generate: Callable[..., Any]) -> Any:
    """An intrinsic from vectors to a vector; `generate`, from the builder and the values, makes its instructions."""

    def operation(typing: Any, *vectors: Any) -> Any:
        return lanes(*vectors), lambda context, builder, sig, values: generate(builder, *values)

    operation.__name__, operation.__signature__ = generate.__name__, signature_of(generate)  # type: ignore[attr-defined]
    return intrinsic(operation)


@on_lanes
def select_not_above(builder: Any, value: Any, limit: Any, yes: Any, no: Any) -> Any:
    """Lane by lane, `yes` where value ≤ limit and `no` elsewhere, also where either is NaN."""
    return builder.select(builder.fcmp_ordered("<=", value, limit), yes, no)


@on_lanes
def select_above(builder: Any, value: Any, limit: Any, yes: Any, no: Any) -> Any:
    """Lane by lane, `yes` where value > limit and `no` elsewhere, also where either is NaN."""
    return builder.select(builder.fcmp_ordered(">", value, limit), yes, no)


@on_lanes
def power_of_two(builder: Any, shifted: Any) -> Any:
    """2ⁿ from n + 1.5·2⁵²: the last bits of the argument are n in two's complement."""
    shift, bias = (ir.Constant(INTEGERS, [value] * LANES) for value in (52, 1023 << 52))
    return builder.bitcast(builder.add(builder.shl(builder.bitcast(shifted, INTEGERS), shift), bias), VECTOR)


@on_lanes
def rough_reciprocal(builder: Any, value: Any) -> Any:
    """1/value within 13 %, value > 0 and normal: a constant minus the bits, read as a logarithm."""
    constant = ir.Constant(INTEGERS, [0x7FDE623822FC16E6] * LANES)
    return builder.bitcast(builder.sub(constant, builder.bitcast(value, INTEGERS)), VECTOR)


SIXTEEN = binding.get_host_cpu_features().get("avx512f", False)
"""Whether `sixteenth_powers` exists: two registers of a processor with AVX-512 hold its table."""


@on_lanes
def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c rounded once; slow where the processor has no such instruction."""
    return builder.call(_declared(builder, f"llvm.fma.v{LANES}f64", [VECTOR] * 3), [a, b, c])


def sixteenth_powers() -> Any:
    """An intrinsic: 2^{m/16} from the argument m/16 + 1.5·2⁴⁸, whose last bits are m in two's complement.

    m = 16n + l: the mantissa of 2^{l/16} from a table, less the bits of l that n << 52 brings along.
    """
    entries = (np.exp2(np.arange(16) / 16).view(np.int64) - (np.arange(16) << 48)).view(np.float64)

    @on_lanes
    def powers(builder: Any, shifted: Any) -> Any:
        low, high = (_constant(entries[half : half + LANES]) for half in (0, LANES))
        choose = _declared(builder, "llvm.x86.avx512.vpermi2var.pd.512", [VECTOR, INTEGERS, VECTOR])
        bits = builder.bitcast(shifted, INTEGERS)
        chosen = builder.bitcast(builder.call(choose, [low, bits, high]), INTEGERS)
        exponent = builder.shl(bits, ir.Constant(INTEGERS, [48] * LANES))
        return builder.bitcast(builder.add(chosen, exponent), VECTOR)

    return powers


def _constant(values: Iterable[float]) -> Any:
    return ir.Constant(VECTOR, [ir.Constant(DOUBLE, float(value)) for value in values])


def _declared(builder: Any, name: str, arguments: Sequence[Any]) -> Any:
    """The instruction `name` of LLVM, which returns a vector."""
    kind = ir.FunctionType(VECTOR, arguments)
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
