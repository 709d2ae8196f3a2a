"""Vectors of lanes as values of compiled code: loads, stores and arithmetic on :data:`LANES` numbers at once.

Code written with them keeps its intermediate results in registers and needs none of the checks for overlapping arrays
and for remainders that a compiler adds to loops over lanes. Every lane gets the same operations in the same order, so
results do not depend on the position of a chain. Indices are flat, unchecked and never negative.
"""
# ruff: noqa: ARG001, ARG002, ARG005, PLW0108 (hooks of the compiler have fixed signatures)
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportCallIssue=false
# pyright: reportUntypedClassDecorator=false, reportUntypedBaseClass=false

from __future__ import annotations

import math
import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, overload, register_model

__all__ = [
    "FEW",
    "LANES",
    "VectorType",
    "as_bits",
    "as_floats",
    "bit_count",
    "broadcast",
    "convert",
    "exp_negative",
    "first_half",
    "fused",
    "larger",
    "less",
    "load",
    "load_as",
    "load_few",
    "negative",
    "peek",
    "poke",
    "second_half",
    "select_negative",
    "sign_bits",
    "store",
    "to_double",
    "widen",
]

LANES = 32
"""Lanes of a vector: several registers, so that weights are loaded once for many lanes and latencies overlap."""

FEW = 8
"""Lanes of a short vector, for states that each look up rows of their own."""


class VectorType(types.Type):
    """A vector of numbers of one dtype: :data:`LANES` of them, half as many, or :data:`FEW`."""

    def __init__(self, dtype: types.Type, lanes: int = LANES) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Lanes({dtype}, {lanes})")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type) -> None:
        super().__init__(dmm, fe_type, ir.VectorType(dmm.lookup(fe_type.dtype).get_value_type(), fe_type.lanes))


def _integer(dtype):
    """The integer dtype of the same size."""
    return types.int32 if dtype in (types.float32, types.int32) else types.int64


def _float(dtype):
    """The floating dtype of the same size."""
    return types.float32 if dtype in (types.float32, types.int32) else types.float64


def _splat(builder, scalar, vector):
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None))


def _address(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index], inbounds=True)


@intrinsic
def peek(typingctx, array, index):
    """Element of a contiguous array at a flat index, without a check for negative indices."""

    def codegen(context, builder, sig, args):
        return builder.load(_address(context, builder, sig.args[0], *args))

    return array.dtype(array, types.intp), codegen


@intrinsic
def poke(typingctx, array, index, value):
    """Write an element of a contiguous array at a flat index, without a check for negative indices."""

    def codegen(context, builder, sig, args):
        builder.store(args[2], _address(context, builder, sig.args[0], *args[:2]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


def _read(context, builder, array_type, array, index, result):
    vector = context.get_value_type(result)
    address = builder.bitcast(_address(context, builder, array_type, array, index), vector.as_pointer())
    return builder.load(address, align=result.dtype.bitwidth // 8)


def _load(name, lanes):
    """The vector of so many lanes that starts at a flat index of a contiguous array."""

    def typed(typingctx, array, index):
        result = VectorType(array.dtype, lanes)

        def codegen(context, builder, sig, args):
            return _read(context, builder, sig.args[0], *args, result)

        return result(array, types.intp), codegen

    typed.__name__ = name
    return intrinsic(typed)


load = _load("load", LANES)
load_few = _load("load_few", FEW)


@intrinsic
def load_as(typingctx, like, array, index):
    """As :func:`load`, with as many lanes as the vector ``like``."""
    result = VectorType(array.dtype, like.lanes)

    def codegen(context, builder, sig, args):
        return _read(context, builder, sig.args[1], *args[1:], result)

    return result(like, array, types.intp), codegen


def _half(name, first):
    """One half of the lanes of a vector."""

    def typed(typingctx, value):
        result = VectorType(value.dtype, value.lanes // 2)

        def codegen(context, builder, sig, args):
            chosen = [ir.Constant(ir.IntType(32), first * result.lanes + k) for k in range(result.lanes)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), result.lanes), chosen)
            return builder.shuffle_vector(args[0], args[0], mask)

        return result(value), codegen

    typed.__name__ = name
    return intrinsic(typed)


first_half = _half("first_half", 0)
second_half = _half("second_half", 1)


@intrinsic
def store(typingctx, array, index, value):
    """Write a vector from a flat index of a contiguous array on; integers are cut to its type."""
    target = VectorType(array.dtype, value.lanes)

    def codegen(context, builder, sig, args):
        vector, values = context.get_value_type(target), args[2]
        if target.dtype.bitwidth < value.dtype.bitwidth:
            values = builder.trunc(values, vector)
        address = builder.bitcast(_address(context, builder, sig.args[0], *args[:2]), vector.as_pointer())
        builder.store(values, address, align=target.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def broadcast(typingctx, like, value):
    """The vector whose lanes are all ``value``, of the dtype of ``like`` (an array or a vector)."""
    result = VectorType(like.dtype, like.lanes if isinstance(like, VectorType) else LANES)

    def codegen(context, builder, sig, args):
        scalar = context.cast(builder, args[1], sig.args[1], result.dtype)
        return _splat(builder, scalar, context.get_value_type(result))

    return result(like, value), codegen


@intrinsic
def fused(typingctx, a, b, c):
    """Fused a * b + c."""

    def codegen(context, builder, sig, args):
        vector = args[0].type
        name = f"llvm.fma.v{vector.count}f{sig.return_type.dtype.bitwidth}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
        return builder.call(function, args)

    return a(a, a, a), codegen


@intrinsic
def larger(typingctx, a, b):
    """The larger of two floats, lane by lane."""

    def codegen(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, a), codegen


@intrinsic
def less(typingctx, a, b):
    """An integer with all bits set where a < b, else zero."""
    result = VectorType(_integer(a.dtype), a.lanes)

    def codegen(context, builder, sig, args):
        return builder.sext(builder.fcmp_ordered("<", *args), context.get_value_type(result))

    return result(a, a), codegen


@intrinsic
def select_negative(typingctx, sign, a, b):
    """The lane of a where the integer ``sign`` is negative, else that of b."""

    def codegen(context, builder, sig, args):
        return builder.select(builder.icmp_signed("<", args[0], ir.Constant(args[0].type, None)), args[1], args[2])

    return a(sign, a, a), codegen


@intrinsic
def negative(typingctx, value):
    """An integer with all bits set where the integer lane is negative, else zero."""

    def codegen(context, builder, sig, args):
        return builder.sext(builder.icmp_signed("<", args[0], ir.Constant(args[0].type, None)), args[0].type)

    return value(value), codegen


def _cast(name, dtype_of, method):
    """A conversion of vectors through one LLVM instruction."""

    def typed(typingctx, value):
        result = VectorType(dtype_of(value.dtype), value.lanes)

        def codegen(context, builder, sig, args):
            return getattr(builder, method)(args[0], context.get_value_type(result))

        return result(value), codegen

    typed.__name__ = name
    return intrinsic(typed)


as_bits = _cast("as_bits", _integer, "bitcast")
as_floats = _cast("as_floats", _float, "bitcast")
convert = _cast("convert", _float, "sitofp")
to_double = _cast("to_double", lambda dtype: types.float64, "sitofp")
_widen_float = _cast("_widen_float", lambda dtype: types.float64, "fpext")
_widen_bits = _cast("_widen_bits", lambda dtype: types.int64, "zext")


def widen(value):
    """A vector of 32-bit numbers as 64-bit numbers (bits as unsigned); 64-bit numbers as they are."""
    raise NotImplementedError


@overload(widen)
def _widen(value):
    if value.dtype == types.float32:
        return lambda value: _widen_float(value)
    if value.dtype == types.int32:
        return lambda value: _widen_bits(value)
    return lambda value: value


class _OnVectors(AbstractTemplate):
    """An operator on two vectors of the same type."""

    def generic(self, args, kws):
        is_ours = len(args) == 2 and isinstance(args[0], VectorType) and args[0] == args[1]
        return signature(args[0], *args) if is_ours else None


def _operator(function, of_floats, of_integers):
    """Let a Python operator on vectors be one LLVM instruction (as an overload it would be a function to compile)."""
    infer_global(function, types.Function(type(f"_{function.__name__}", (_OnVectors,), {"key": function})))

    def lower(context, builder, sig, args):
        is_float = isinstance(sig.return_type.dtype, types.Float)
        return getattr(builder, of_floats if is_float else of_integers)(*args)

    lower_builtin(function, VectorType, VectorType)(lower)


_operator(operator.add, "fadd", "add")
_operator(operator.sub, "fsub", "sub")
_operator(operator.mul, "fmul", "mul")
_operator(operator.xor, "", "xor")
_operator(operator.and_, "", "and_")
_operator(operator.or_, "", "or_")
_operator(operator.lshift, "", "shl")
_operator(operator.rshift, "", "lshr")


_LOG2E = math.log2(math.e)
_LN2 = math.log(2)
_LN2_HIGH = 0.693145751953125  # 20 bits, so that products with exponents are exact
_LN2_LOW = _LN2 - _LN2_HIGH


def exp_negative(z):
    """Exponentials of non-positive lanes; float32 cut at -87 (relative error 1e-7), float64 at -708."""
    raise NotImplementedError


@overload(exp_negative, jit_options={"forceinline": True, "nogil": True, "error_model": "numpy"})
def _exp_negative(z):
    if z.dtype == types.float32:

        def single(z):
            z = larger(z, broadcast(z, -87.0))
            t = fused(z, broadcast(z, _LOG2E), broadcast(z, 1.5 * 2**23))
            n = t - broadcast(z, 1.5 * 2**23)
            r = fused(n, broadcast(z, -_LN2), z)  # 2e-9 off per unit of n
            p = fused(broadcast(z, 0.0013836824830193023), r, broadcast(z, 0.008374832307597703))
            p = fused(p, r, broadcast(z, 0.041668226821133726))
            p = fused(p, r, broadcast(z, 0.16666419974210028))
            p = fused(p, r, broadcast(z, 0.4999999207030617))
            p = fused(p, r, broadcast(z, 1.0))
            p = fused(p, r, broadcast(z, 1.0))
            bits = as_bits(t)
            return as_floats(as_bits(p) + (bits << broadcast(bits, 23)))

        return single

    def double(z):
        z = larger(z, broadcast(z, -708.0))
        t = fused(z, broadcast(z, _LOG2E), broadcast(z, 1.5 * 2**52))
        n = t - broadcast(z, 1.5 * 2**52)
        r = fused(n, broadcast(z, -_LN2_HIGH), z)
        r = fused(n, broadcast(z, -_LN2_LOW), r)
        p = broadcast(z, 1.0 / 6227020800.0)
        p = fused(p, r, broadcast(z, 1.0 / 479001600.0))
        p = fused(p, r, broadcast(z, 1.0 / 39916800.0))
        p = fused(p, r, broadcast(z, 1.0 / 3628800.0))
        p = fused(p, r, broadcast(z, 1.0 / 362880.0))
        p = fused(p, r, broadcast(z, 1.0 / 40320.0))
        p = fused(p, r, broadcast(z, 1.0 / 5040.0))
        p = fused(p, r, broadcast(z, 1.0 / 720.0))
        p = fused(p, r, broadcast(z, 1.0 / 120.0))
        p = fused(p, r, broadcast(z, 1.0 / 24.0))
        p = fused(p, r, broadcast(z, 1.0 / 6.0))
        p = fused(p, r, broadcast(z, 0.5))
        p = fused(p, r, broadcast(z, 1.0))
        p = fused(p, r, broadcast(z, 1.0))
        bits = as_bits(t)
        return as_floats(as_bits(p) + (bits << broadcast(bits, 52)))

    return double


@intrinsic
def sign_bits(typingctx, value):
    """The sign bits of the lanes as one uint64, the first lane lowest."""

    def codegen(context, builder, sig, args):
        bits = builder.bitcast(args[0], ir.VectorType(ir.IntType(value.dtype.bitwidth), value.lanes))
        negative = builder.icmp_signed("<", bits, ir.Constant(bits.type, None))
        return builder.zext(builder.bitcast(negative, ir.IntType(value.lanes)), ir.IntType(64))

    return types.uint64(value), codegen


@intrinsic
def bit_count(typingctx, value):
    """Number of bits set in a uint64."""

    def codegen(context, builder, sig, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen
