"""Compiled parts of a node regression: columns of features, their gradients, scans of all pairs, coordinate descent.

A node's rows are held by columns (CSC) and by rows (CSR) with one array of roots per order. A feature of the node
is the product of one root over some other variables; its column is nonzero where all of them are.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

import numpy as np

from ...compute.jit import njit, write

_CELLS = 2**21


@njit
def _intersection(indptr, rows, roots, variables, size, out_rows, out_values):
    """Rows and products of the columns ``variables[:size]``; returns how many rows they have in common."""
    count = 0
    first = variables[0]
    for entry in range(indptr[first], indptr[first + 1]):
        out_rows[count] = rows[entry]
        out_values[count] = roots[entry]
        count += 1
    for k in range(1, size):
        entry = indptr[variables[k]]
        end = indptr[variables[k] + 1]
        num_common = 0
        for c in range(count):
            row = out_rows[c]
            while entry < end and rows[entry] < row:
                entry += 1
            if entry == end:
                break
            if rows[entry] == row:
                out_rows[num_common] = row
                out_values[num_common] = out_values[c] * roots[entry]
                num_common += 1
        count = num_common
    return count


@njit(cache=True)
def feature_columns(indptr, rows, roots, num_rows, orders, sizes, others):
    """Columns (starts, rows, values) of features by order, size (0: a column of ones) and other variables."""
    num = len(orders)
    starts = np.zeros(num + 1, np.int64)
    capacity = 1024
    all_rows = np.empty(capacity, np.int64)
    all_values = np.empty(capacity)
    some_rows = np.empty(num_rows, np.int64)
    some_values = np.empty(num_rows)
    for f in range(num):
        # A constant touches all rows, other features those that all their variables touch.
        if sizes[f] == 0:
            count = num_rows
            for i in range(num_rows):
                some_rows[i] = i
                some_values[i] = 1.0
        else:
            count = _intersection(indptr, rows, roots[orders[f]], others[f], sizes[f], some_rows, some_values)
        # Columns one behind the other, in memory that doubles.
        start = starts[f]
        if start + count > capacity:
            capacity = 2 * (start + count)
            wider_rows = np.empty(capacity, np.int64)
            wider_values = np.empty(capacity)
            write(wider_rows, all_rows[:start])
            write(wider_values, all_values[:start])
            all_rows, all_values = wider_rows, wider_values
        write(all_rows[start:], some_rows[:count])
        write(all_values[start:], some_values[:count])
        starts[f + 1] = start + count
    return starts, all_rows[: starts[num]].copy(), all_values[: starts[num]].copy()


@njit(cache=True)
def feature_products(starts, rows, values, orders, coefficients, out):
    """Natural parameters: adds coefficient x feature to ``out`` (rows, k) in the column of its order."""
    for f in range(len(orders)):
        c = coefficients[f]
        if c != 0.0:
            for place in range(starts[f], starts[f + 1]):
                out[rows[place], orders[f]] += c * values[place]


@njit(cache=True)
def feature_gradients(starts, rows, values, orders, residuals, out):
    """Sum over rows of feature x residual of its order; ``residuals`` (rows, k)."""
    for f in range(len(orders)):
        total = 0.0
        j = orders[f]
        for place in range(starts[f], starts[f + 1]):
            total += values[place] * residuals[rows[place], j]
        out[f] = total


@njit(cache=True)
def scan_singles(indptr, rows, roots, residuals, out):
    """Sum over rows of root x residual for every variable; ``roots`` (nnz,), ``residuals`` (n,)."""
    for t in range(len(indptr) - 1):
        total = 0.0
        for place in range(indptr[t], indptr[t + 1]):
            total += roots[place] * residuals[rows[place]]
        out[t] = total


@njit(cache=True)
def screened_columns(row_end, columns, row_roots, residuals, num, skipped, threshold):
    """Rows with only the columns that may be in a pair beyond a threshold: their ends, columns, roots; the columns.

    The sum of a pair is at most the larger of its parts with positive and with negative residuals, and a part at most
    that of one column times the largest root of the row. Columns are numbered anew, in order. Time: nnz.
    """
    # Bounds of the parts with positive and with negative residuals, by column.
    above, below = np.zeros(num), np.zeros(num)
    start = 0
    for row in range(len(row_end)):
        end = row_end[row]
        top = 0.0
        for entry in range(start, end):
            if columns[entry] != skipped:
                top = max(top, abs(row_roots[entry]))
        scale = top * abs(residuals[row])
        side = above if residuals[row] > 0.0 else below
        for entry in range(start, end):
            side[columns[entry]] += scale * abs(row_roots[entry])
        start = end
    # Columns that may be in a pair, numbered anew.
    number = np.full(num, -1)
    num_columns = 0
    for t in range(num):
        if t != skipped and max(above[t], below[t]) > threshold * (1.0 - 1e-9):
            number[t] = num_columns
            num_columns += 1
    # The rows of these alone.
    ends = np.empty_like(row_end)
    some_columns, some_roots = np.empty_like(columns), np.empty_like(row_roots)
    count = start = 0
    for row in range(len(row_end)):
        end = row_end[row]
        if residuals[row] != 0.0:
            for entry in range(start, end):
                new = number[columns[entry]]
                if new >= 0:
                    some_columns[count] = new
                    some_roots[count] = row_roots[entry]
                    count += 1
        ends[row] = count
        start = end
    return ends, some_columns[:count], some_roots[:count], np.flatnonzero(number >= 0)


@njit(cache=True)
def scan_pairs(row_end, columns, row_roots, residuals, num, skipped, threshold):
    """Pairs t < r of other variables whose summed product of roots and residual exceeds a threshold, with the sums.

    ``row_end`` and ``columns`` are unsigned, which spares tests for negative places in the innermost loop. Sums are
    kept for as many t at a time as fit the cells allowed. Time: sum over rows of nnz^2 / 2, plus num^2 / 2.
    """
    # As many first variables at a time as fit the cells.
    block = max(1, min(num, _CELLS // num))
    total = np.zeros((block, num))
    place_of = np.zeros_like(row_end)
    write(place_of[1:], row_end[:-1])
    capacity = 256
    count = 0
    first = np.empty(capacity, np.int64)
    second = np.empty(capacity, np.int64)
    value = np.empty(capacity)
    for low in range(0, num, block):
        high = min(num, low + block)
        # Sums of all pairs of the block, row by row.
        for row in range(len(row_end)):
            end = row_end[row]
            stop = end
            scale = residuals[row]
            for entry in range(place_of[row], end):
                if columns[entry] >= high:
                    stop = entry
                    break
                sums = total[columns[entry] - low]
                weight = row_roots[entry] * scale
                for q in range(entry + 1, end):
                    sums[columns[q]] += weight * row_roots[q]
            place_of[row] = stop
        # Pairs beyond the threshold, in memory that doubles.
        for t in range(low, high):
            for r in range(t + 1, num):
                summed = total[t - low, r]
                total[t - low, r] = 0.0
                if abs(summed) > threshold and r != skipped and t != skipped:
                    if count == capacity:
                        capacity *= 2
                        wider_first = np.empty(capacity, np.int64)
                        wider_second = np.empty(capacity, np.int64)
                        wider_value = np.empty(capacity)
                        write(wider_first, first)
                        write(wider_second, second)
                        write(wider_value, value)
                        first, second, value = wider_first, wider_second, wider_value
                    first[count] = t
                    second[count] = r
                    value[count] = summed
                    count += 1
    return first[:count], second[:count], value[:count]


@njit(cache=True)
def scan_tuples(indptr, rows, roots, num_rows, tuples, residuals, out):
    """Sum over rows of the product of roots and residual for listed tuples; ``tuples`` (M, size)."""
    some_rows = np.empty(num_rows, np.int64)
    some_values = np.empty(num_rows)
    for m in range(len(tuples)):
        count = _intersection(indptr, rows, roots, tuples[m], tuples.shape[1], some_rows, some_values)
        total = 0.0
        for c in range(count):
            total += some_values[c] * residuals[some_rows[c]]
        out[m] = total


@njit(cache=True)
def descend(starts, rows, values, orders, gradients, hessians, l1, coefficients, tolerance, max_sweeps, steps):
    """Cyclic coordinate descent on the l1-penalised quadratic model of an objective; fills steps, returns the sweeps.

    Sweeps of nonzero coordinates alternate with sweeps of all; ``hessians`` (rows, k, k) are weighted covariances.
    """
    num, k = len(orders), hessians.shape[1]
    # The diagonal of the Hessian.
    curvatures = np.empty(num)
    moved = np.zeros((len(hessians), k))  # Hessian times change of the natural parameters, by row
    for f in range(num):
        j = orders[f]
        total = 0.0
        for entry in range(starts[f], starts[f + 1]):
            total += values[entry] * values[entry] * hessians[rows[entry], j, j]
        curvatures[f] = total
        steps[f] = 0.0
    # Sweeps, each coordinate to its minimum by soft thresholding.
    is_full = True
    sweep = 0
    while sweep < max_sweeps:
        sweep += 1
        worst = 0.0
        for f in range(num):
            now = coefficients[f] + steps[f]
            if not is_full and now == 0.0:
                continue
            j = orders[f]
            slope = gradients[f]
            for entry in range(starts[f], starts[f + 1]):
                slope += values[entry] * moved[rows[entry], j]
            if now == 0.0 and abs(slope) <= l1[f]:
                continue
            if curvatures[f] <= 0.0:
                continue
            target = now - slope / curvatures[f]
            shrink = l1[f] / curvatures[f]
            new = max(target - shrink, 0.0) + min(target + shrink, 0.0)
            change = new - now
            if change == 0.0:
                continue
            steps[f] = new - coefficients[f]
            if new == 0.0:
                steps[f] = -coefficients[f]
            worst = max(worst, abs(change) * curvatures[f])
            for entry in range(starts[f], starts[f + 1]):
                row = rows[entry]
                amount = change * values[entry]
                for i in range(k):
                    moved[row, i] += hessians[row, j, i] * amount
        # Only a sweep of all coordinates ends the descent.
        if worst <= tolerance:
            if is_full:
                break
            is_full = True
        else:
            is_full = False
    return sweep


@njit(cache=True)
def descend_matrix(curvature, gradients, l1, coefficients, tolerance, max_sweeps, steps):
    """The same by the Hessian (F, F) of all coordinates, whose slopes follow every change."""
    num = len(steps)
    slopes = gradients.copy()
    steps[:] = 0.0
    is_full = True
    for sweep in range(max_sweeps):
        worst = 0.0
        for f in range(num):
            now, bend = coefficients[f] + steps[f], curvature[f, f]
            if bend <= 0.0 or (now == 0.0 and (not is_full or abs(slopes[f]) <= l1[f])):
                continue
            target, shrink = now - slopes[f] / bend, l1[f] / bend
            new = max(target - shrink, 0.0) + min(target + shrink, 0.0)
            change = new - now
            if change != 0.0:
                steps[f] = new - coefficients[f]
                worst = max(worst, abs(change) * bend)
                for g in range(num):
                    slopes[g] += curvature[f, g] * change
        if worst <= tolerance and is_full:
            return sweep + 1
        is_full = worst <= tolerance
    return max_sweeps


@njit
def group_blocks(starts, lines, values, group_starts, hessians, roots, vectors):
    """Eigenvalues and eigenvectors of the Hessian of every group, one behind the other; singles are themselves."""
    k = hessians.shape[1]
    dense = np.zeros((len(hessians), k))
    used = np.zeros(len(hessians), np.bool_)
    offset = 0
    for g in range(len(group_starts) - 1):
        first, size = group_starts[g], group_starts[g + 1] - group_starts[g]
        block = np.zeros((size, size))
        for a in range(size):
            # Hessian times the feature as a dense table, beside each of the others.
            f = first + a
            for entry in range(starts[f], starts[f + 1]):
                row, j = lines[entry] // k, lines[entry] % k
                used[row] = True
                for i in range(k):
                    dense[row, i] += values[entry] * hessians[row, j, i]
            for b in range(a, size):
                total = 0.0
                for entry in range(starts[first + b], starts[first + b + 1]):
                    row = lines[entry] // k
                    if used[row]:
                        total += values[entry] * dense[row, lines[entry] % k]
                block[a, b] = total
                block[b, a] = total
            for entry in range(starts[f], starts[f + 1]):
                row = lines[entry] // k
                used[row] = False
                dense[row] = 0.0
        if size == 1:
            roots[first] = block[0, 0]
            vectors[offset] = 1.0
        else:
            some, matrix = np.linalg.eigh(block)
            write(roots[first:], some)
            for a in range(size):
                for b in range(size):
                    vectors[offset + a * size + b] = matrix[a, b]
        offset += size * size


@njit
def group_minimum(curvatures, slopes, penalty, out):
    """Coordinates b that minimise the sum of h b^2 / 2 - w b, plus penalty times the norm of b; h is positive.

    The norm t solves the sum of (w / (h t + penalty))^2 = 1: Newton's steps for its inverse root, from below.
    """
    norm = 0.0
    for i in range(len(slopes)):
        norm += slopes[i] * slopes[i]
    norm = np.sqrt(norm)
    if norm <= penalty:
        out[:] = 0.0
        return
    t = (norm - penalty) / curvatures.max()
    if len(slopes) > 1 and penalty > 0.0:
        for _ in range(60):
            total = change = 0.0
            for i in range(len(slopes)):
                below = curvatures[i] * t + penalty
                square = (slopes[i] / below) ** 2
                total += square
                change += curvatures[i] * square / below
            step = (1.0 - total**-0.5) * total**1.5 / change
            t += step
            if abs(step) <= 1e-15 * t:
                break
    for i in range(len(slopes)):
        out[i] = slopes[i] * t / (curvatures[i] * t + penalty) if penalty > 0.0 else slopes[i] / curvatures[i]


@njit(cache=True)
def descend_groups(
    starts, lines, values, group_starts, penalties, gradients, hessians, coefficients, tolerance, max_sweeps, steps
):
    """Cyclic descent, group by group, on a quadratic model plus penalties on the groups' norms; returns the sweeps.

    As :func:`descend`, which is that of groups of one; ``lines`` are row times k plus order of every entry.
    """
    num, k = len(coefficients), hessians.shape[1]
    sizes = group_starts[1:] - group_starts[:-1]
    roots, vectors = np.empty(num), np.empty((sizes * sizes).sum())
    group_blocks(starts, lines, values, group_starts, hessians, roots, vectors)
    moved = np.zeros(len(hessians) * k)  # Hessian times change of the natural parameters, by row
    steps[:] = 0.0
    widest = sizes.max()
    slopes, new, change = np.empty(widest), np.empty(widest), np.empty(widest)
    is_full = True
    sweep = 0
    while sweep < max_sweeps:
        sweep += 1
        worst = 0.0
        offset = 0
        for g in range(len(sizes)):
            first, size = group_starts[g], sizes[g]
            matrix = vectors[offset : offset + size * size].reshape(size, size)
            offset += size * size
            is_zero = True
            for f in range(first, first + size):
                is_zero = is_zero and coefficients[f] + steps[f] == 0.0
            if is_zero and not is_full:
                continue
            top = roots[first : first + size].max()
            if top <= 0.0:
                continue
            # Slopes of the quadratic alone at zero, along the eigenvectors, which hold what varies at all.
            for a in range(size):
                f = first + a
                total = gradients[f]
                for entry in range(starts[f], starts[f + 1]):
                    total += values[entry] * moved[lines[entry]]
                change[a] = total
            curvatures = np.maximum(roots[first : first + size], 1e-12 * top)
            for b in range(size):
                total = 0.0
                for a in range(size):
                    now = coefficients[first + a] + steps[first + a]
                    total += matrix[a, b] * (curvatures[b] * now - change[a])
                slopes[b] = total
            group_minimum(curvatures, slopes[:size], penalties[g], new[:size])
            # The step, and what it changes in the rows.
            moves = 0.0
            for a in range(size):
                f = first + a
                total = 0.0
                for b in range(size):
                    total += matrix[a, b] * new[b]
                change[a] = total - (coefficients[f] + steps[f])
                steps[f] = total - coefficients[f]
                moves += change[a] ** 2
            worst = max(worst, np.sqrt(moves) * top)
            for a in range(size):
                if change[a] != 0.0:
                    f = first + a
                    for entry in range(starts[f], starts[f + 1]):
                        amount = change[a] * values[entry]
                        row, j = lines[entry] // k, lines[entry] % k
                        for i in range(k):
                            moved[row * k + i] += hessians[row, j, i] * amount
        # Only a sweep of all groups ends the descent.
        if worst <= tolerance:
            if is_full:
                break
            is_full = True
        else:
            is_full = False
    return sweep
