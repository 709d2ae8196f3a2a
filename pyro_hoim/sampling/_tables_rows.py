r"""Sums of table rows for the lanes of a tile, as vector instructions (LLVM, any processor).

The log weights of one variable given its neighbours are sums of table rows, one row per interaction. Numba would
gather them entry by entry; here a row is read as a whole, eight lanes keep their sums in registers, and a transposed
write brings them into the layout [state, lane] in which everything else runs over lanes.
"""
# ruff: noqa: ARG001 (signatures of compiler hooks)
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["add_rows1", "add_rows4", "add_rows8"]

_LANES = 8
_INT64 = ir.IntType(64)
_LOW, _HIGH = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
_EVEN, _ODD = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
_FRONT, _BACK = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)


def _shuffle(builder: Any, a: Any, b: Any, mask: Sequence[int]) -> Any:
    order = ir.Constant(ir.VectorType(ir.IntType(32), len(mask)), list(mask))
    return builder.shuffle_vector(a, b, order)


def _transposed(builder: Any, rows: list[Any], width: int) -> list[Any]:
    """Eight rows of ``width`` states as ``width`` vectors of eight lanes, by exchanging halves of vectors."""
    if width == 1:
        vector = ir.Constant(ir.VectorType(rows[0].type, _LANES), ir.Undefined)
        for lane, value in enumerate(rows):
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), lane))
        return [vector]
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
    def add_rows(typingctx: Any, table: Any, index: Any, num: Any, lane: Any, state: Any, out: Any) -> Any:
        """out[state + k, lane + l] = sum over f < num of table[index[f, lane + l] + state + k], k < width, l < 8.

        ``num`` is at least 1; ``index`` is uint32 (factors, lanes) and ``out`` (states, lanes), both contiguous.
        """
        signature = types.void(table, index, num, lane, state, out)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            tables, places, sums = (context.make_array(kinds[i])(context, builder, args[i]) for i in (0, 1, 5))
            count, first, offset = (context.cast(builder, args[i], kinds[i], types.int64) for i in (2, 3, 4))
            scalar = context.get_value_type(kinds[0].dtype)
            vector = scalar if width == 1 else ir.VectorType(scalar, width)
            align = kinds[0].dtype.bitwidth // 8
            stride = builder.extract_value(places.shape, 1)
            base = builder.gep(tables.data, [offset])
            start = builder.gep(places.data, [first])

            before = builder.block
            loop, after = builder.append_basic_block("rows"), builder.append_basic_block("rows.end")
            builder.branch(loop)
            builder.position_at_end(loop)
            factor = builder.phi(_INT64)
            totals = [builder.phi(vector) for _ in range(_LANES)]
            row = builder.gep(start, [builder.mul(factor, stride)])
            added: list[Any] = []
            for position, total in enumerate(totals):
                place = builder.load(builder.gep(row, [ir.Constant(_INT64, position)]))
                entry = builder.gep(base, [builder.zext(place, _INT64)])
                values = builder.load(builder.bitcast(entry, vector.as_pointer()), align=align)
                added.append(builder.fadd(total, values))
            following = builder.add(factor, ir.Constant(_INT64, 1))
            factor.add_incoming(ir.Constant(_INT64, 0), before)
            factor.add_incoming(following, loop)
            for total, value in zip(totals, added, strict=True):
                total.add_incoming(ir.Constant(vector, 0.0 if width == 1 else [0.0] * width), before)
                total.add_incoming(value, loop)
            builder.cbranch(builder.icmp_signed("<", following, count), loop, after)

            builder.position_at_end(after)
            lanes = builder.extract_value(sums.shape, 1)
            target = builder.gep(sums.data, [builder.add(builder.mul(offset, lanes), first)])
            for k, value in enumerate(_transposed(builder, added, width)):
                place = builder.gep(target, [builder.mul(ir.Constant(_INT64, k), lanes)])
                builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=align)
            return context.get_dummy_value()

        return signature, codegen

    return add_rows


add_rows1 = _add_rows(1)
add_rows4 = _add_rows(4)
add_rows8 = _add_rows(8)
