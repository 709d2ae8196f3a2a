"""Vectors of lanes as values of compiled code: loads, stores and arithmetic on :data:`LANES` numbers at once.

Code written with them keeps its intermediate results in registers and needs none of the checks for overlapping arrays
and for remainders that a compiler adds to loops over lanes. Every lane gets the same operations in the same order, so
results do not depend on the position of a chain. Indices are flat, unchecked and never negative.
"""
# ruff: noqa: ARG001, ARG002, ARG005, PLW0108 (hooks of the compiler have fixed signatures)
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportCallIssue=false, reportUnknownLambdaType=false, reportUntypedClassDecorator=false, reportUntypedBaseClass=false

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, overload, register_model

__all__ = [
    "LANES",
    "as_bits",
    "as_floats",
    "bit_count",
    "broadcast",
    "convert",
    "first_half",
    "fused",
    "larger",
    "less",
    "load",
    "load_as",
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


class VectorType(types.Type):
    """A vector of numbers of one dtype, :data:`LANES` of them or half as many."""

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


# Memory


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


@intrinsic
def load(typingctx, array, index):
    """The vector that starts at a flat index of a contiguous array."""
    result = VectorType(array.dtype)

    def codegen(context, builder, sig, args):
        vector = context.get_value_type(result)
        address = builder.bitcast(_address(context, builder, sig.args[0], *args), vector.as_pointer())
        return builder.load(address, align=result.dtype.bitwidth // 8)

    return result(array, types.intp), codegen


@intrinsic
def load_as(typingctx, like, array, index):
    """As :func:`load`, with as many lanes as the vector ``like``."""
    result = VectorType(array.dtype, like.lanes)

    def codegen(context, builder, sig, args):
        vector = context.get_value_type(result)
        address = builder.bitcast(_address(context, builder, sig.args[1], *args[1:]), vector.as_pointer())
        return builder.load(address, align=result.dtype.bitwidth // 8)

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
    """Write a vector from a flat index of a contiguous array on."""

    def codegen(context, builder, sig, args):
        vector = context.get_value_type(value)
        address = builder.bitcast(_address(context, builder, sig.args[0], *args[:2]), vector.as_pointer())
        builder.store(args[2], address, align=value.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


# Arithmetic


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


# Bits


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
