"""Vectors of lanes as values of compiled code: loads, stores and arithmetic on :data:`LANES` numbers at once.

Code written with them keeps its intermediate results in registers and needs none of the checks for overlapping arrays
and for remainders that a compiler adds to loops over lanes. Every lane gets the same operations in the same order, so
results do not depend on the position of a chain. Indices are flat, unchecked and never negative.
"""

# ruff: noqa: ARG001 (signatures of compiler hooks)
# ruff: noqa: ARG002, ARG005, PLW0108 (hooks of the compiler have fixed signatures)
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportCallIssue=false
# pyright: reportUntypedClassDecorator=false, reportUntypedBaseClass=false, reportMissingTypeArgument=false

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, overload, register_model

from .jit import LINKED

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


_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


def _has_avx2(context):
    """Whether code is compiled for processors with these instructions."""
    return "+avx2" in getattr(context.codegen(), "_tm_features", "")


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
load_four = _load("load_four", 4)


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


@overload(widen, jit_options=LINKED)
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
_operator(operator.truediv, "fdiv", "")
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


@overload(exp_negative, jit_options=LINKED | {"forceinline": True})
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

    # Thirteen terms of the Taylor sum for double precision.
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
        if bits.type == ir.VectorType(_INT32, 32) and _has_avx2(context):
            # narrower numbers with the same signs, whose order one permutation restores
            parts = [_shuffle(builder, bits, bits, range(first, first + 8)) for first in range(0, 32, 8)]
            for name, size in (("packssdw", 16), ("packsswb", 8)):
                kind = ir.FunctionType(ir.VectorType(ir.IntType(size), 256 // size), [parts[0].type] * 2)
                function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx2.{name}")
                parts = [builder.call(function, parts[k : k + 2]) for k in range(0, len(parts), 2)]
            order = [4 * (k % 2 * 4 + k // 2) + byte for k in range(8) for byte in range(4)]
            bits = _shuffle(builder, parts[0], parts[0], order)
        negative = builder.icmp_signed("<", bits, ir.Constant(bits.type, None))
        return builder.zext(builder.bitcast(negative, ir.IntType(value.lanes)), ir.IntType(64))

    return types.uint64(value), codegen


@intrinsic
def bit_count(typingctx, value):
    """Number of bits set in a uint64."""

    def codegen(context, builder, sig, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def bits_of_lanes(typingctx, value):
    """Number of bits set in all lanes of a vector of uint64."""

    def codegen(context, builder, sig, args):
        count, total = (
            cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, [args[0].type]), name)
            for result, name in (
                (args[0].type, f"llvm.ctpop.v{value.lanes}i64"),
                (ir.IntType(64), f"llvm.vector.reduce.add.v{value.lanes}i64"),
            )
        )
        return builder.call(total, [builder.call(count, args)])

    return types.int64(value), codegen


@intrinsic
def add_where(typingctx, total, value, word, start):
    """Add a number to the lanes of an integer vector whose bits are set in a uint64, the first lane's at ``start``."""

    def codegen(context, builder, sig, args):
        lanes = builder.trunc(builder.lshr(args[2], args[3]), ir.IntType(total.lanes))
        chosen = builder.bitcast(lanes, ir.VectorType(ir.IntType(1), total.lanes))
        return builder.select(chosen, builder.add(args[0], _splat(builder, args[1], args[0].type)), args[0])

    return total(total, total.dtype, types.uint64, types.uint64), codegen


# What short vectors do with tables: codes, choices, exponentials, and sums of table rows.
#
# Numba's loops over arrays become vector instructions only when the compiler can prove that nothing overlaps, which
# takes seconds per kernel. With these functions and those of :mod:`~pyro_hoim.compute.vectors` a kernel says itself
# what happens to :data:`~pyro_hoim.compute.vectors.FEW` lanes at once.


def _entry_address(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def _int64(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.cast(builder, value, kind, types.int64)


def _read_lanes(builder: Any, pointer: Any, length: int) -> Any:
    scalar = pointer.type.pointee
    pointer = builder.bitcast(pointer, ir.VectorType(scalar, length).as_pointer())
    return builder.load(pointer, align=_size(scalar))


def _write(builder: Any, pointer: Any, value: Any) -> None:
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=_size(value.type.element))


def _size(scalar: Any) -> int:
    """Bytes of a number."""
    if isinstance(scalar, ir.IntType):
        return scalar.width // 8
    return 4 if isinstance(scalar, ir.FloatType) else 8


def _repeat(scalar: Any, value: float) -> Any:
    return ir.Constant(ir.VectorType(scalar, FEW), [value] * FEW)


def _joined(builder: Any, values: list[Any]) -> Any:
    vector = ir.Constant(ir.VectorType(values[0].type, len(values)), ir.Undefined)
    for lane, value in enumerate(values):
        vector = builder.insert_element(vector, value, ir.Constant(_INT32, lane))
    return vector


@intrinsic
def load_codes(typingctx: Any, array: Any, offset: Any) -> Any:
    """Eight non-negative integers of any width, as uint32."""
    signature = VectorType(types.uint32, FEW)(array, offset)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind, place = signature.args
        where = _int64(context, builder, place, args[1])
        values = _read_lanes(builder, _entry_address(context, builder, kind, args[0], where), FEW)
        return values if kind.dtype.bitwidth == 32 else builder.zext(values, ir.VectorType(_INT32, FEW))

    return signature, codegen


@intrinsic
def splat(typingctx: Any, value: Any) -> Any:
    """Eight times the same number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _joined(builder, [args[0]] * FEW)

    return VectorType(value, FEW)(value), codegen


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    name = f"llvm.fma.v{FEW}f{8 * _size(a.type.element)}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return builder.call(function, [a, b, c])


@intrinsic
def count_at_most(typingctx: Any, count: Any, a: Any, b: Any) -> Any:
    """Add one to a count (uint32) where a <= b."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sub(args[0], builder.sext(builder.fcmp_ordered("<=", args[1], args[2]), args[0].type))

    return count(count, a, b), codegen


@intrinsic
def exp(typingctx: Any, z: Any) -> Any:
    """Exponential by its Taylor sum after taking out a power of two, arguments cut to the range of normal numbers.

    Relative errors are below 2e-7 (float32) and 1e-15 (float64).
    """
    signature = z(z)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type.element
        single = isinstance(kind, ir.FloatType)
        bits, degree, low, high = (23, 7, -87.0, 88.0) if single else (52, 13, -708.0, 709.0)
        upper = float(np.float32(0.693359375)) if single else float.fromhex("0x1.62e42fee00000p-1")
        lower = math.log(2) - upper if single else float.fromhex("0x1.a39ef35793c76p-33")

        def constant(value: float) -> Any:
            return _repeat(kind, float(np.float32(value)) if single else value)

        # Within the range of normal numbers, then the power of two is taken out.
        value = builder.select(builder.fcmp_ordered(">", args[0], constant(low)), args[0], constant(low))
        value = builder.select(builder.fcmp_ordered("<", value, constant(high)), value, constant(high))
        shifter = constant(1.5 * 2.0**bits)
        shifted = _fused(builder, value, constant(math.log2(math.e)), shifter)  # low bits hold the nearest integer
        power = builder.fsub(shifted, shifter)
        rest = _fused(builder, power, constant(-upper), value)
        rest = _fused(builder, power, constant(-lower), rest)
        # Taylor sum of the rest, and the power of two added to the exponent.
        result = constant(1 / math.factorial(degree))
        for k in range(degree - 1, -1, -1):
            result = _fused(builder, result, rest, constant(1 / math.factorial(k)))
        whole = ir.VectorType(ir.IntType(32 if single else 64), FEW)
        raised = builder.shl(builder.bitcast(shifted, whole), _repeat(whole.element, bits))
        return builder.bitcast(builder.add(builder.bitcast(result, whole), raised), args[0].type)

    return signature, codegen


@intrinsic
def log(typingctx: Any, x: Any) -> Any:
    """Logarithm of positive normal numbers: a power of two, and the area tangent's series of the rest.

    Absolute errors are below 2e-7 (float32) and 1e-15 (float64) for arguments near 1, relative ones for others.
    """
    signature = x(x)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type.element
        single = isinstance(kind, ir.FloatType)
        width, bits, terms = (32, 23, 5) if single else (64, 52, 11)
        whole = ir.VectorType(ir.IntType(width), FEW)

        def constant(value: float) -> Any:
            return _repeat(kind, float(np.float32(value)) if single else value)

        # x = 2^power * rest with a rest between the square roots of one half and of two.
        low = int(np.float32(0.5**0.5).view(np.int32) if single else np.float64(0.5**0.5).view(np.int64))
        above = builder.sub(builder.bitcast(args[0], whole), _repeat(whole.element, low))
        shift = builder.ashr(above, _repeat(whole.element, bits))
        inside = builder.and_(above, _repeat(whole.element, (1 << bits) - 1))
        rest = builder.bitcast(builder.add(inside, _repeat(whole.element, low)), args[0].type)
        power = builder.sitofp(shift, args[0].type)
        ratio = builder.fdiv(builder.fsub(rest, constant(1.0)), builder.fadd(rest, constant(1.0)))
        square = builder.fmul(ratio, ratio)
        result = constant(2 / (2 * terms - 1))
        for k in range(terms - 2, -1, -1):
            result = _fused(builder, result, square, constant(2 / (2 * k + 1)))
        return _fused(builder, power, constant(math.log(2)), builder.fmul(result, ratio))

    return signature, codegen


_LOW, _HIGH = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
_EVEN, _ODD = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
_FRONT, _BACK = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)


def _shuffle(builder: Any, a: Any, b: Any, mask: Sequence[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT32, len(mask)), list(mask)))


def _transposed(builder: Any, rows: list[Any], width: int) -> list[Any]:
    """Eight rows of ``width`` states as ``width`` vectors of eight lanes, by exchanging halves of vectors."""
    if width == 1:
        return [_joined(builder, rows)]
    if width == 4:
        rows = [_shuffle(builder, rows[j], rows[j + 4], range(8)) for j in range(4)]
    pairs = [_shuffle(builder, rows[j], rows[j + 1], m) for j in range(0, len(rows), 2) for m in (_LOW, _HIGH)]
    fours = [
        _shuffle(builder, pairs[j + i], pairs[j + i + 2], m)
        for j in range(0, len(pairs), 4)
        for i in range(2)
        for m in (_EVEN, _ODD)
    ]
    if width == 4:
        return fours
    return [_shuffle(builder, fours[j], fours[j + 4], m) for m in (_FRONT, _BACK) for j in range(4)]


def _add_rows(width: int) -> Any:
    @intrinsic
    def add_rows(
        typingctx: Any,
        table: Any,
        state: Any,
        index: Any,
        first: Any,
        step: Any,
        num: Any,
        out: Any,
        target: Any,
        stride: Any,
    ) -> Any:
        """out[target + k * stride + l] = sum over f < num of table[index[first + f * step + l] + state + k], k < width.

        One row of ``width`` entries is read as a whole for each of the eight lanes l; ``num`` is at least 1 and
        ``index`` is uint32.
        """
        signature = types.void(table, state, index, first, step, num, out, target, stride)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            offset, begin, jump, count, to, apart = (
                _int64(context, builder, kinds[i], args[i]) for i in (1, 3, 4, 5, 7, 8)
            )
            base = _entry_address(context, builder, kinds[0], args[0], offset)
            start = _entry_address(context, builder, kinds[2], args[2], begin)
            scalar = base.type.pointee
            vector = scalar if width == 1 else ir.VectorType(scalar, width)
            zero = ir.Constant(vector, 0.0 if width == 1 else [0.0] * width)

            # A loop over the factors with a sum for every lane.
            before = builder.block
            loop, after = builder.append_basic_block("rows"), builder.append_basic_block("rows.end")
            builder.branch(loop)
            builder.position_at_end(loop)
            factor = builder.phi(_INT64)
            totals = [builder.phi(vector) for _ in range(FEW)]
            row = builder.gep(start, [builder.mul(factor, jump)])
            sums: list[Any] = []
            for lane, total in enumerate(totals):
                base_of = builder.load(builder.gep(row, [ir.Constant(_INT64, lane)]))
                entry = builder.gep(base, [builder.zext(base_of, _INT64)])
                values = builder.load(entry) if width == 1 else _read_lanes(builder, entry, width)
                sums.append(builder.fadd(total, values))
            following = builder.add(factor, ir.Constant(_INT64, 1))
            factor.add_incoming(ir.Constant(_INT64, 0), before)
            factor.add_incoming(following, loop)
            for total, value in zip(totals, sums, strict=True):
                total.add_incoming(zero, before)
                total.add_incoming(value, loop)
            builder.cbranch(builder.icmp_signed("<", following, count), loop, after)

            # Rows of states become vectors of lanes.
            builder.position_at_end(after)
            pointer = _entry_address(context, builder, kinds[6], args[6], to)
            for k, value in enumerate(_transposed(builder, sums, width)):
                _write(builder, builder.gep(pointer, [builder.mul(ir.Constant(_INT64, k), apart)]), value)
            return context.get_dummy_value()

        return signature, codegen

    return add_rows


add_rows1 = _add_rows(1)
add_rows4 = _add_rows(4)
add_rows8 = _add_rows(8)


def _looked_up(context: Any, builder: Any, table: Any, index: Any) -> Any:
    """The entries of a table of sixteen bytes at 32 indices below sixteen."""
    machine = builder.module.triple.partition("-")[0]
    if _has_avx2(context):
        name, lanes = "llvm.x86.avx2.pshuf.b", 32
    elif machine in ("aarch64", "arm64"):
        name, lanes = "llvm.aarch64.neon.tbl1.v16i8", 16
    else:  # compilers know some other processors' instructions by this form
        every = [builder.extract_element(index, ir.Constant(_INT32, lane)) for lane in range(32)]
        return _joined(builder, [builder.extract_element(table, one) for one in every])
    vector = ir.VectorType(ir.IntType(8), lanes)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector, vector]), name)
    table = _shuffle(builder, table, table, [k % 16 for k in range(lanes)])
    parts = [_shuffle(builder, index, index, range(first, first + lanes)) for first in range(0, 32, lanes)]
    parts = [builder.call(function, [table, part]) for part in parts]
    return parts[0] if lanes == 32 else _shuffle(builder, *parts, range(32))


@intrinsic
def transpose_bits(typingctx: Any, words: Any, first: Any) -> Any:
    """Bit i of every byte of row j of words (8, 4), from ``first`` on, changes places with bit j of that of row i."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(_INT64, 4)
        start = _entry_address(context, builder, signature.args[0], *args)
        rows = [builder.gep(start, [ir.Constant(_INT64, 4 * j)]) for j in range(8)]
        values = [_read_lanes(builder, row, 4) for row in rows]
        # Blocks of four by four bits change places, then of two by two, then single bits.
        for apart, low in ((4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333), (1, 0x5555555555555555)):
            shift, mask = (ir.Constant(vector, [n] * 4) for n in (apart, low))
            for j in (j for j in range(8) if not j & apart):
                moved = builder.xor(builder.lshr(values[j], shift), values[j + apart])
                moved = builder.and_(moved, mask)
                values[j] = builder.xor(values[j], builder.shl(moved, shift))
                values[j + apart] = builder.xor(values[j + apart], moved)
        for row, value in zip(rows, values, strict=True):
            _write(builder, row, value)
        return context.get_dummy_value()

    return types.void(words, types.intp), codegen


_DIGITS, _BITS = 4, 7  # of a sum of four numbers: two such digits still fit a byte


@intrinsic
def sum_digits(typingctx: Any, index: Any, first: Any, step: Any, digits: Any, start: Any, num: Any) -> Any:
    """Sums of ``num`` times two numbers from tables, for 32 bytes that each say which: their low and their high half.

    The bytes are those of the words ``index`` from ``first`` on, in steps of words; at most 256 steps. Numbers have
    four digits of seven bits, from the lowest on, each with tables of sixteen bytes for both halves, from ``start`` on
    in steps of 256 bytes.
    """
    signature = VectorType(types.int32, 32)(index, types.intp, types.intp, digits, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, pairs, wide = (ir.VectorType(ir.IntType(n), m) for n, m in ((8, 32), (16, 16), (32, 16)))
        words = _entry_address(context, builder, signature.args[0], args[0], args[1])
        tables = _entry_address(context, builder, signature.args[3], args[3], args[4])
        four, eight = (ir.Constant(pairs, [n] * 16) for n in (4, 8))
        half = ir.Constant(byte, [15] * 32)

        # A loop over the bytes of a lane; even and odd lanes add up in 16 bits.
        before = builder.block
        loop, after = builder.append_basic_block("digits"), builder.append_basic_block("digits.end")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_INT64)
        totals = [builder.phi(pairs) for _ in range(2 * _DIGITS)]
        word = builder.bitcast(builder.gep(words, [builder.mul(k, args[2])]), byte.as_pointer())
        word = builder.load(word, align=8)
        low = builder.and_(word, half)
        high = builder.and_(builder.bitcast(builder.lshr(builder.bitcast(word, pairs), four), byte), half)
        here = builder.gep(tables, [builder.mul(k, ir.Constant(_INT64, 256))])
        sums: list[Any] = []
        for digit in range(_DIGITS):
            places = [builder.gep(here, [ir.Constant(_INT64, 32 * digit + at)]) for at in (0, 16)]
            parts = [
                _looked_up(context, builder, _read_lanes(builder, at, 16), part)
                for at, part in zip(places, (low, high), strict=True)
            ]
            both = builder.bitcast(builder.add(*parts), pairs)
            sums += [builder.add(totals[2 * digit], both)]
            sums += [builder.add(totals[2 * digit + 1], builder.lshr(both, eight))]
        following = builder.add(k, ir.Constant(_INT64, 1))
        k.add_incoming(ir.Constant(_INT64, 0), before)
        k.add_incoming(following, loop)
        for total, value in zip(totals, sums, strict=True):
            total.add_incoming(ir.Constant(pairs, [0] * 16), before)
            total.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, args[5]), loop, after)

        # The digits of even and of odd lanes, and both in turn.
        builder.position_at_end(after)
        halves: list[Any] = []
        for is_odd in (False, True):
            number = ir.Constant(wide, [0] * 16)
            for digit in reversed(range(_DIGITS)):
                part = sums[2 * digit + 1]
                if not is_odd:
                    part = builder.sub(sums[2 * digit], builder.shl(part, eight))
                number = builder.add(builder.shl(number, ir.Constant(wide, [_BITS] * 16)), builder.zext(part, wide))
            halves.append(number)
        return _shuffle(builder, *halves, [k // 2 + 16 * (k % 2) for k in range(32)])

    return signature, codegen
