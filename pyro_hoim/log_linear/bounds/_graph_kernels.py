"""Compiled search for the mini-buckets of an order, and their layout as arrays (Numba, CPU). Imported when needed."""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportCallIssue=false

from typing import Any

import numpy as np

from ...compute.jit import njit, write

_ONE = np.uint64(1)
_AXES = 8  # variables of two and more levels in one block
_BASIS, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # of the hash of Fowler, Noll and Vo


@njit
def _room(array, count) -> Any:
    """The array, with more rows behind it if it has fewer than ``count``."""
    if count <= len(array):
        return array
    larger = np.zeros((max(count, 2 * len(array)), array.shape[1]), dtype=array.dtype)
    for i in range(len(array)):
        write(larger[i], array[i])
    return larger


@njit
def _grown(item, pool, levels, mask, size, most):
    """Cells of a group with one more table, infinitely many where they would be more than ``most``."""
    for k in range(item[2], item[2] + item[3]):
        rank = pool[k, 0]
        if not mask[rank // 64] >> np.uint64(rank % 64) & _ONE:
            size *= levels[rank]
    return size if size <= most else np.inf


@njit
def _divide(bucket, items, pool, levels, most, masks, sizes, group):
    """Write the group of every table of a bucket, the largest first; their number. ``bucket`` is sorted in place."""
    count = len(bucket)
    cells = np.ones(count)
    for i in range(count):
        for k in range(items[bucket[i], 2], items[bucket[i], 2] + items[bucket[i], 3]):
            cells[i] *= levels[pool[k, 0]]
    write(bucket, bucket[np.argsort(-cells, kind="mergesort")])
    groups = 0
    for i in range(count):
        item, best, growth = items[bucket[i]], -1, np.inf
        for g in range(groups):
            ratio = _grown(item, pool, levels, masks[g], sizes[g], most) / sizes[g]
            if ratio < growth:
                best, growth = g, ratio
        if best < 0:
            best = groups
            groups += 1
            masks[best], sizes[best] = _ONE - _ONE, 1.0
            growth = _grown(item, pool, levels, masks[best], 1.0, np.inf)
        sizes[best] *= growth
        group[i] = best
        for k in range(item[2], item[2] + item[3]):
            masks[best, pool[k, 0] // 64] |= _ONE << np.uint64(pool[k, 0] % 64)
    return groups


@njit
def _listed(mask, levels, pool, end):
    """Write the variables of a set, and strides of a table over them, behind ``end``; the new end."""
    start = end
    for word in range(len(mask)):
        for bit in range(64 if mask[word] else 0):
            if mask[word] >> np.uint64(bit) & _ONE:
                pool[end, 0] = 64 * word + bit
                end += 1
    stride = 1
    for k in range(end - 1, start - 1, -1):
        pool[k, 1] = stride
        stride *= levels[pool[k, 0]]
    return end


@njit
def _tables(pointer, members, cards, rank):
    """Tables without the variables that have no rank: items, and the rest of their variables with their strides."""
    items, pool, end = np.zeros((2 * len(pointer) + 2, 4), dtype=np.int64), np.zeros((len(members) + 2, 2), np.int64), 0
    for number in range(len(pointer) - 1):
        start = end
        for k in range(pointer[number], pointer[number + 1]):
            if rank[members[k]] >= 0:
                pool[end, 0], pool[end, 1] = rank[members[k]], 1
                for later in range(k + 1, pointer[number + 1]):
                    pool[end, 1] *= cards[members[later]]
                end += 1
        items[number, 1], items[number, 2], items[number, 3] = number, start, end - start
    return items, pool, end


@njit(cache=True)
def divided(pointer, members, cards, order, most):
    """Mini-buckets of an order, whose tables have at most ``most`` cells where single interactions do.

    Returns items (kind, number, start, length), whose variables and strides are (length) rows of a pool from start on;
    mini-buckets (start, length, first input, last input) and their cells, the items that are their inputs, and ends of
    buckets. Variables of the pool are ranks in the order. Those that are not in the order are fixed.
    """
    size = len(order)
    rank, levels = np.full(len(cards), -1, dtype=np.int64), cards[order]
    for i in range(size):
        rank[order[i]] = i
    items, pool, end = _tables(pointer, members, cards, rank)
    count, words = len(pointer) - 1, (size + 63) // 64
    # Tables, then messages, wait in the bucket of their first variable, as lists.
    head, tail = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    following = np.full((len(items), 1), -1, dtype=np.int64)
    for number in range(count):
        if items[number, 3]:
            first = pool[items[number, 2] : items[number, 2] + items[number, 3], 0].min()
            following[number] = -1
            if head[first] < 0:
                head[first] = number
            else:
                following[tail[first], 0] = number
            tail[first] = number
    nodes, inputs = np.zeros((2 * size + 2, 4), dtype=np.int64), np.zeros((2 * len(items), 1), dtype=np.int64)
    buckets, num_nodes, num_inputs, num_shifts = np.zeros(size + 1, dtype=np.int64), 0, 0, 0
    common, cells = np.zeros(words, dtype=np.uint64), np.zeros((2 * size + 2, 1))
    for v in range(size):
        waiting, item = 0, head[v]
        while item >= 0:
            waiting, item = waiting + 1, following[item, 0]
        bucket, item = np.empty(waiting, dtype=np.int64), head[v]
        for i in range(waiting):
            bucket[i], item = item, following[item, 0]
        masks, group = np.zeros((max(1, waiting), words), dtype=np.uint64), np.empty(waiting, dtype=np.int64)
        sizes = np.full(max(1, waiting), float(levels[v]))
        groups = max(1, _divide(bucket, items, pool, levels, most, masks, sizes, group))
        common[:] = ~(_ONE - _ONE)
        for g in range(groups):
            masks[g, v // 64] |= _ONE << np.uint64(v % 64)
            common &= masks[g]
        nodes, items = _room(nodes, num_nodes + groups), _room(items, count + 2 * groups)
        following, inputs = _room(following, count + 2 * groups), _room(inputs, num_inputs + waiting + groups)
        pool, cells = _room(pool, end + (groups + 1) * (size - v)), _room(cells, num_nodes + groups)
        shared = end
        if groups > 1:
            end = _listed(common, levels, pool, shared)
        width = end - shared
        for g in range(groups):
            start = end
            end = _listed(masks[g], levels, pool, start)
            nodes[num_nodes, 0], nodes[num_nodes, 1], nodes[num_nodes, 2] = start, end - start, num_inputs
            for i in range(waiting):
                if group[i] == g:
                    inputs[num_inputs] = bucket[i]
                    num_inputs += 1
            if groups > 1:
                items[count, 0], items[count, 1], items[count, 2], items[count, 3] = 2, num_shifts, shared, width
                inputs[num_inputs] = count
                num_shifts, count, num_inputs = num_shifts + 1, count + 1, num_inputs + 1
            nodes[num_nodes, 3], cells[num_nodes, 0] = num_inputs, sizes[g]
            # The message waits in the bucket of its first variable.
            if nodes[num_nodes, 1] > 1:
                first = pool[start + 1, 0]
                items[count, 0], items[count, 1], items[count, 2] = 1, num_nodes, start + 1
                items[count, 3], following[count] = nodes[num_nodes, 1] - 1, -1
                if head[first] < 0:
                    head[first] = count
                else:
                    following[tail[first], 0] = count
                tail[first] = count
                count += 1
            num_nodes += 1
        buckets[v + 1] = num_nodes
    return items[:count], pool[:end], nodes[:num_nodes], cells[:num_nodes, 0], inputs[:num_inputs, 0], buckets


@njit
def _places(strides, levels, where):
    """Where the cells of a block stand in an input, from strides and levels of the block's variables; their form.

    Form 0 is one cell for all, form 1 a cell for each, one after the other.
    """
    where[0], count = 0, 1
    for k in range(len(strides) - 1, -1, -1):
        for level in range(1, levels[k]):
            for j in range(count):
                where[level * count + j] = where[j] + level * strides[k]
        count *= levels[k]
    is_constant, is_plain = True, True
    for j in range(count):
        is_constant &= where[j] == 0
        is_plain &= where[j] == j
    return 0 if is_constant else 1 if is_plain else 2


@njit
def _cut(scope, levels, most):
    """Of a message's variables, how many are looped over outside of blocks of at most ``most`` cells; cells of one."""
    cut, block = len(scope), 1
    while cut and block * levels[scope[cut - 1, 0]] <= most:
        cut -= 1
        block *= levels[scope[cut, 0]]
    return cut, block


@njit
def _slot(numbers, keys, key):
    """Where the number of a key is, or an empty place for it, in a table of hashes."""
    hashed = _BASIS
    for j in range(len(key)):
        hashed = (hashed ^ np.uint64(key[j])) * _PRIME
    slot = np.int64((hashed >> np.uint64(20)) % np.uint64(len(numbers)))
    while numbers[slot] >= 0 and not np.array_equal(keys[numbers[slot]], key):
        slot = (slot + 1) % len(numbers)
    return slot


@njit
def _rows(pool, nodes, buckets, levels, end, most):
    """Rows of mini-buckets, and numbers of outer loops, the most of one of them, of values passed back, in a block."""
    rows, num_loops, width, num_kept, num_block = np.zeros((len(nodes), 9), dtype=np.int64), 0, 1, 0, 1
    for b in range(len(buckets) - 1):
        is_divided = buckets[b + 1] - buckets[b] > 1
        for k in range(buckets[b], buckets[b + 1]):
            scope = pool[nodes[k, 0] : nodes[k, 0] + nodes[k, 1], 0]
            cells = 1
            for j in range(1, len(scope)):
                cells *= levels[scope[j]]
            # As many of the last variables as fit make a block.
            cut, block = len(scope) - 1, 1
            while cut and block * levels[scope[cut]] <= most:
                block *= levels[scope[cut]]
                cut -= 1
            rows[k, 0], rows[k, 1], rows[k, 2], rows[k, 3] = levels[scope[0]], cells, block, end
            rows[k, 4], rows[k, 5], rows[k, 6], rows[k, 7] = nodes[k, 2], nodes[k, 3], num_loops, num_loops + cut
            rows[k, 8] = num_kept if is_divided else -1
            num_kept += cells if is_divided else 0
            num_loops, width, end = num_loops + cut, max(width, cut), end + cells
            num_block = max(num_block, block * levels[scope[0]])
    return rows, num_loops, width, num_kept, num_block


@njit
def _starts(items, pool, levels, starts, end):
    """Places of tables and, behind ``end``, of shifts; cells of all items; the new end."""
    places, cells = np.zeros(len(items), dtype=np.int64), np.ones(len(items), dtype=np.int64)
    for i in range(len(items)):
        for k in range(items[i, 2], items[i, 2] + items[i, 3]):
            cells[i] *= levels[pool[k, 0]]
        if items[i, 0] == 0:
            places[i] = starts[items[i, 1]]
        elif items[i, 0] == 2:
            places[i] = end
            end += cells[i]
    return places, cells, end


@njit(cache=True)
def arranged(items, pool, nodes, inputs, buckets, levels, starts, num_terms, most):
    """Arrays of :class:`~._join_graph.Program` for what :func:`divided` returns, and numbers of cells.

    ``starts`` are places of the tables; shifts stand behind the tables, then messages. Blocks have at most ``most``
    cells. The numbers are those of terms and shifts, of all values, of those passed back, and of one block.
    """
    places, cells, num_shared = _starts(items, pool, levels, starts, num_terms)
    rows, num_loops, width, num_kept, num_block = _rows(pool, nodes, buckets, levels, num_shared, most)
    num_values = num_shared if len(rows) == 0 else rows[-1, 3] + rows[-1, 1]
    count, loops = len(inputs), np.ones(num_loops + 1, dtype=np.int64)
    table, strides = np.zeros((count, 7), dtype=np.int64), np.zeros((count, width), dtype=np.int64)
    pointer, walk = np.zeros(1 + count, dtype=np.int64), np.zeros((len(pool) + 1, 2), dtype=np.int64)
    # Inputs of equal strides in a block share the places of its cells.
    numbers, keys, known = np.full(2 * count + 1, -1, dtype=np.int64), np.zeros((64, 2 * _AXES), dtype=np.int64), 0
    forms, key = np.zeros((64, 2), dtype=np.int64), np.zeros(2 * _AXES, dtype=np.int64)
    index, num_index, where = np.zeros((1024, 1), dtype=np.uint32), 0, np.zeros(num_block, dtype=np.int64)
    step = np.zeros(len(levels), dtype=np.int64)
    for k in range(len(nodes)):
        scope = pool[nodes[k, 0] : nodes[k, 0] + nodes[k, 1], 0]
        cut, block = rows[k, 7] - rows[k, 6], rows[k, 2]
        for j in range(cut):
            loops[rows[k, 6] + j] = levels[scope[1 + j]]
        for i in range(nodes[k, 2], nodes[k, 3]):
            item = items[inputs[i]]
            step[scope] = 0
            pointer[i + 1] = pointer[i]
            walk = _room(walk, pointer[i] + item[3])
            for j in range(item[2], item[2] + item[3]):
                step[pool[j, 0]] = pool[j, 1]
                if pool[j, 0] != scope[0]:
                    walk[pointer[i + 1], 0], walk[pointer[i + 1], 1] = pool[j, 0], pool[j, 1]
                    pointer[i + 1] += 1
            for j in range(cut):
                strides[i, j] = step[scope[1 + j]]
            axes = 0
            for j in range(1 + cut, len(scope)):
                if levels[scope[j]] > 1:
                    key[axes], key[_AXES + axes] = step[scope[j]], levels[scope[j]]
                    axes += 1
            key[axes:_AXES], key[_AXES + axes :] = 0, 1
            slot = _slot(numbers, keys, key)
            if numbers[slot] < 0:
                keys, forms = _room(keys, known + 1), _room(forms, known + 1)
                numbers[slot] = known
                write(keys[known], key)
                forms[known, 0] = _places(key[:axes], key[_AXES : _AXES + axes], where)
                if forms[known, 0] == 2:
                    index = _room(index, num_index + block)
                    write(index[num_index:, 0], where[:block])
                    forms[known, 1] = num_index
                    num_index += block
                known += 1
            number, kind = numbers[slot], item[0]
            start = rows[item[1], 3] if kind == 1 else places[inputs[i]]
            table[i, 0], table[i, 1], table[i, 2] = start, step[scope[0]], forms[number, 0]
            table[i, 3], table[i, 4], table[i, 5], table[i, 6] = forms[number, 1], kind, cells[inputs[i]], item[1]
    program = rows, table, loops, strides, index[: max(1, num_index), 0], walk[: pointer[count]], pointer
    return program, (num_terms, num_shared - num_terms, num_values, num_kept, num_block)
