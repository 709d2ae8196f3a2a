r"""What short vectors do with tables: codes, choices, exponentials, and sums of table rows.

Numba's loops over arrays become vector instructions only when the compiler can prove that nothing overlaps, which
takes seconds per kernel. With these functions and those of :mod:`~pyro_hoim.compute.vectors` a kernel says itself what
happens to :data:`~pyro_hoim.compute.vectors.FEW` lanes at once.
"""
# ruff: noqa: ARG001 (signatures of compiler hooks)
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportMissingTypeArgument=false
# pyright: reportUntypedBaseClass=false

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import FEW, VectorType

__all__ = ["add_rows1", "add_rows4", "add_rows8", "count_at_most", "exp", "load_codes", "splat"]

_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


def _address(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def _int64(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.cast(builder, value, kind, types.int64)


def _read(builder: Any, pointer: Any, length: int) -> Any:
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
        values = _read(builder, _address(context, builder, kind, args[0], where), FEW)
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

        value = builder.select(builder.fcmp_ordered(">", args[0], constant(low)), args[0], constant(low))
        value = builder.select(builder.fcmp_ordered("<", value, constant(high)), value, constant(high))
        shifter = constant(1.5 * 2.0**bits)
        shifted = _fused(builder, value, constant(math.log2(math.e)), shifter)  # low bits hold the nearest integer
        power = builder.fsub(shifted, shifter)
        rest = _fused(builder, power, constant(-upper), value)
        rest = _fused(builder, power, constant(-lower), rest)
        result = constant(1 / math.factorial(degree))
        for k in range(degree - 1, -1, -1):
            result = _fused(builder, result, rest, constant(1 / math.factorial(k)))
        whole = ir.VectorType(ir.IntType(32 if single else 64), FEW)
        raised = builder.shl(builder.bitcast(shifted, whole), _repeat(whole.element, bits))
        return builder.bitcast(builder.add(builder.bitcast(result, whole), raised), args[0].type)

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
        place: Any,
        stride: Any,
    ) -> Any:
        """out[place + k * stride + l] = sum over f < num of table[index[first + f * step + l] + state + k], k < width.

        One row of ``width`` entries is read as a whole for each of the eight lanes l; ``num`` is at least 1 and
        ``index`` is uint32.
        """
        signature = types.void(table, state, index, first, step, num, out, place, stride)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            offset, begin, jump, count, to, apart = (
                _int64(context, builder, kinds[i], args[i]) for i in (1, 3, 4, 5, 7, 8)
            )
            base = _address(context, builder, kinds[0], args[0], offset)
            start = _address(context, builder, kinds[2], args[2], begin)
            scalar = base.type.pointee
            vector = scalar if width == 1 else ir.VectorType(scalar, width)
            zero = ir.Constant(vector, 0.0 if width == 1 else [0.0] * width)

            before = builder.block
            loop, after = builder.append_basic_block("rows"), builder.append_basic_block("rows.end")
            builder.branch(loop)
            builder.position_at_end(loop)
            factor = builder.phi(_INT64)
            totals = [builder.phi(vector) for _ in range(FEW)]
            row = builder.gep(start, [builder.mul(factor, jump)])
            sums: list[Any] = []
            for lane, total in enumerate(totals):
                place = builder.load(builder.gep(row, [ir.Constant(_INT64, lane)]))
                entry = builder.gep(base, [builder.zext(place, _INT64)])
                values = builder.load(entry) if width == 1 else _read(builder, entry, width)
                sums.append(builder.fadd(total, values))
            following = builder.add(factor, ir.Constant(_INT64, 1))
            factor.add_incoming(ir.Constant(_INT64, 0), before)
            factor.add_incoming(following, loop)
            for total, value in zip(totals, sums, strict=True):
                total.add_incoming(zero, before)
                total.add_incoming(value, loop)
            builder.cbranch(builder.icmp_signed("<", following, count), loop, after)

            builder.position_at_end(after)
            pointer = _address(context, builder, kinds[6], args[6], to)
            for k, value in enumerate(_transposed(builder, sums, width)):
                _write(builder, builder.gep(pointer, [builder.mul(ir.Constant(_INT64, k), apart)]), value)
            return context.get_dummy_value()

        return signature, codegen

    return add_rows


add_rows1 = _add_rows(1)
add_rows4 = _add_rows(4)
add_rows8 = _add_rows(8)
