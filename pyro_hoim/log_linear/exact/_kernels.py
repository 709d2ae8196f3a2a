"""Compiled loops of elimination and perfect sampling in scaled linear space (Numba, CPU). Imported when first needed.

Values are stored divided by scales that are kept as logarithms. For every node a lower and an upper bound of the log
of its stored values is known, and whether some of these may be zero, which the lower bound then leaves out; before a
step whose result might leave the range of the dtype, its operands are rescaled by their true maximum. If that does not
help, the caller is told and turns to log space.
The functions release the interpreter lock and use no parallel runtime, so that a forked process may call them. What
they call a program are the :class:`~._program.Arrays` of one.

The counters of the loop nest are written out in both ``contract_rows`` and ``accumulate``: shared through a helper,
even an inlined one, they no longer stay in registers, and small models take 1.2 to 1.6 times as long.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportConstantRedefinition=false

import math

import numpy as np

from ...compute.jit import njit

LOG_TWO = math.log(2.0)
_FLAGS = {"reassoc", "contract", "nsz"}


@njit(cache=True, fastmath=_FLAGS)
def contract_rows(X, x, Y, y, Z, z, loops, first, last, low, high, num_reduced):
    """Rows ``low`` to ``high`` of Z = sum X Y; each row is written, then added to ``num_reduced`` - 1 times."""
    q = last - 1
    n, ix, iy, iz = loops[0, q], loops[1, q], loops[2, q], loops[3, q]
    count = np.zeros(last - first, dtype=np.int64)
    # Where iteration ``low`` of the outer loops is.
    rest = low
    for k in range(q - 1, first - 1, -1):
        c = rest % loops[0, k]
        rest //= loops[0, k]
        count[k - first] = c
        x += c * loops[1, k]
        y += c * loops[2, k]
        z += c * loops[3, k]
    # Inner loops that the compiler turns into vector instructions.
    form = 0
    if iz == 1 and ix == 1 and iy == 0:
        form = 1
    elif iz == 1 and ix == 1 and iy == 1:
        form = 2
    elif iz == 0 and ix == 1 and iy == 1:
        form = 3
    elif iz == 0 and ix == 1 and iy == 0:
        form = 4
    elif iz == 0:
        form = 5
    turn = 0
    for _ in range(low, high):
        if form == 1:
            value = Y[y]
            if turn == 0:
                for j in range(n):
                    Z[z + j] = X[x + j] * value
            else:
                for j in range(n):
                    Z[z + j] += X[x + j] * value
        elif form == 2:
            if turn == 0:
                for j in range(n):
                    Z[z + j] = X[x + j] * Y[y + j]
            else:
                for j in range(n):
                    Z[z + j] += X[x + j] * Y[y + j]
        elif form == 0:
            if turn == 0:
                for j in range(n):
                    Z[z + j * iz] = X[x + j * ix] * Y[y + j * iy]
            else:
                for j in range(n):
                    Z[z + j * iz] += X[x + j * ix] * Y[y + j * iy]
        else:
            total = X[x] * Y[y]
            if form == 3:
                for j in range(1, n):
                    total += X[x + j] * Y[y + j]
            elif form == 4:
                part = X[x]
                for j in range(1, n):
                    part += X[x + j]
                total = part * Y[y]
            else:
                for j in range(1, n):
                    total += X[x + j * ix] * Y[y + j * iy]
            if turn == 0:
                Z[z] = total
            else:
                Z[z] += total
        # The next iteration of the outer loops.
        turn += 1
        if turn == num_reduced:
            turn = 0
        k = q - 1
        while k >= first:
            count[k - first] += 1
            x += loops[1, k]
            y += loops[2, k]
            z += loops[3, k]
            if count[k - first] < loops[0, k]:
                break
            count[k - first] = 0
            x -= loops[1, k] * loops[0, k]
            y -= loops[2, k] * loops[0, k]
            z -= loops[3, k] * loops[0, k]
            k -= 1


@njit(cache=True, fastmath=_FLAGS)
def accumulate(X, x, Y, y, sums, loops, first, last, low, high):
    """Add iterations ``low`` to ``high`` of a contraction to the small float64 array ``sums``."""
    q = last - 1
    n, ix, iy, iz = loops[0, q], loops[1, q], loops[2, q], loops[3, q]
    count = np.zeros(last - first, dtype=np.int64)
    # Where iteration ``low`` of the outer loops is.
    z = 0
    rest = low
    for k in range(q - 1, first - 1, -1):
        c = rest % loops[0, k]
        rest //= loops[0, k]
        count[k - first] = c
        x += c * loops[1, k]
        y += c * loops[2, k]
        z += c * loops[3, k]
    for _ in range(low, high):
        if iz == 0:
            total = X[x] * Y[y]
            if ix == 1 and iy == 1:
                for j in range(1, n):
                    total += X[x + j] * Y[y + j]
            elif ix == 1 and iy == 0:
                part = X[x]
                for j in range(1, n):
                    part += X[x + j]
                total = part * Y[y]
            else:
                for j in range(1, n):
                    total += X[x + j * ix] * Y[y + j * iy]
            sums[z] += total
        else:
            for j in range(n):
                sums[z + j * iz] += X[x + j * ix] * Y[y + j * iy]
        # The next iteration of the outer loops.
        k = q - 1
        while k >= first:
            count[k - first] += 1
            x += loops[1, k]
            y += loops[2, k]
            z += loops[3, k]
            if count[k - first] < loops[0, k]:
                break
            count[k - first] = 0
            x -= loops[1, k] * loops[0, k]
            y -= loops[2, k] * loops[0, k]
            z -= loops[3, k] * loops[0, k]
            k -= 1


@njit
def contract(X, x, Y, y, Z, z, size, program, number, sums):
    """One whole contraction into Z[z : z + size]."""
    loops, form = program.loops, program.form[number]
    first, last = program.pointer[number], program.pointer[number + 1]
    start, total = np.int64(0), np.int64(1)  # a bare 0 or 1 would be a type of its own and compile everything anew
    for k in range(first, last - 1):
        total *= loops[0, k]
    if form[1]:
        contract_rows(X, x, Y, y, Z, z, loops, first, last, start, total, form[2])
    else:
        sums[:size] = 0.0
        accumulate(X, x, Y, y, sums, loops, first, last, start, total)
        for j in range(size):
            Z[z + j] = sums[j]


@njit(cache=True)
def load(tables, start, V, bounds, exponential):
    """Copy tables less their maxima to V[1:], exponentiated if wanted; returns the sum of the maxima."""
    scale = 0.0
    for t in range(len(start) - 1):
        top = tables[start[t]]
        bottom = top
        for i in range(start[t], start[t + 1]):
            value = tables[i]
            if value > top:
                top = value
            if value < bottom:
                bottom = value
        has_zeros = bottom == -np.inf
        if has_zeros:
            if top == -np.inf:
                top = tables.dtype.type(0)
            bottom = top
            for i in range(start[t], start[t + 1]):
                if tables[i] < bottom and tables[i] > -np.inf:
                    bottom = tables[i]
        # Every table is divided by its largest entry.
        if exponential:
            for i in range(start[t], start[t + 1]):
                V[i + 1] = np.exp(tables[i] - top)
        else:
            for i in range(start[t], start[t + 1]):
                V[i + 1] = tables[i] - top
        scale += top
        bounds[t + 1, 0] = bottom - top
        bounds[t + 1, 1] = 0.0
        bounds[t + 1, 2] = has_zeros
    V[0] = 1.0
    bounds[0] = 0.0
    return scale


@njit
def tighten(V, start, size, node, bounds, factor):
    """Divide a node's values by a power of two near their maximum and bound them; returns its log."""
    top = V[start]
    bottom = top
    for i in range(start, start + size):
        top = max(top, V[i])
        bottom = min(bottom, V[i])
    if bounds[node, 2] != 0.0:
        bottom = top
        for i in range(start, start + size):
            if V[i] < bottom and V[i] > 0.0:
                bottom = V[i]
        if top == 0.0:
            bounds[node, 0] = 0.0
            bounds[node, 1] = 0.0
            return 0.0
    if not (bottom > 0.0 and top < np.inf):
        bounds[node, 0] = -np.inf
        return 0.0
    exponent = math.frexp(np.float64(top))[1]
    scale = 2.0**-exponent  # a power of two: the division is exact
    for i in range(start, start + size):
        V[i] *= scale
    factor[node] *= scale
    bounds[node, 0] = np.log(np.float64(bottom)) - exponent * LOG_TWO
    bounds[node, 1] = np.log(np.float64(top)) - exponent * LOG_TWO
    return exponent * LOG_TWO


@njit(cache=True)
def prepare(V, step, offset, size, cells, bounds, factor, limit):
    """Make a step safe: bound its result, rescaling operands if need be.

    Returns the log of the scales taken out, or NaN if the result may leave the range of the dtype.
    """
    x, y, z = step[0], step[1], step[2]
    grow = np.log(cells / size[z])
    scale = 0.0
    for attempt in range(2):
        low = bounds[x, 0] + bounds[y, 0]
        high = bounds[x, 1] + bounds[y, 1] + grow
        if low >= -limit and high <= limit:
            bounds[z, 2] = max(bounds[x, 2], bounds[y, 2])
            bounds[z, 0] = low if bounds[z, 2] != 0.0 else low + grow  # one term of a sum may be all that is not zero
            bounds[z, 1] = high
            return scale
        if attempt == 0:
            for node in (x, y):
                # What underflowed beside the zeros of a table is not told from them.
                if node != 0 and (bounds[node, 2] == 0.0 or bounds[node, 0] >= -limit):
                    scale += tighten(V, offset[node], size[node], node, bounds, factor)
    return np.nan


@njit(cache=True)
def upward(V, program, offset, bounds, factor, limit, sums, begin, end):
    """Steps ``begin`` to ``end``; returns the log of the scales taken out, NaN if the range does not suffice."""
    steps, size, work, form = program.steps, program.size, program.work, program.form
    scale = 0.0
    for i in range(begin, end):
        more = prepare(V, steps[i], offset, size, work[i], bounds, factor, limit)
        if np.isnan(more):
            return np.nan
        scale += more
        x, y, z = steps[i, 0], steps[i, 1], steps[i, 2]
        if form[3 * i, 0]:
            x, y = y, x
        contract(V, offset[x], V, offset[y], V, offset[z], size[z], program, 3 * i, sums)
    return scale


@njit(cache=True)
def silence(V, start, G, gradient, size):
    """Zero adjoints where values are zero: no state has these cells, and what the others give there is unbounded."""
    for j in range(size):
        if V[start + j] == 0.0:
            G[gradient + j] = 0.0


@njit(cache=True)
def downward(V, G, program, offset, bounds, factor, sums, begin, end):
    """Adjoints of steps ``end`` - 1 down to ``begin``."""
    steps, size, gradient, form = program.steps, program.size, program.gradient, program.form
    for i in range(end - 1, begin - 1, -1):
        z = steps[i, 2]
        if factor[z] != 1.0:
            for j in range(gradient[z], gradient[z] + size[z]):
                G[j] *= factor[z]
        if bounds[z, 2] != 0.0:
            silence(V, offset[z], G, gradient[z], size[z])
        for r in range(1, 3):
            node, other = steps[i, r - 1], steps[i, 2 - r]
            if node == 0:
                continue
            X, x, Y, y = G, gradient[z], V, offset[other]
            if form[3 * i + r, 0]:
                X, x, Y, y = Y, y, X, x
            contract(X, x, Y, y, G, gradient[node], size[node], program, 3 * i + r, sums)


@njit(cache=True)
def run_batch(tables, log_z, eta, want_eta, constant, program, offset, num_values, num_gradients, limit):
    """Log Z (B,) and, if wanted, eta (B, num_terms) of small programs; NaN where the range does not suffice.

    Of a model without a possible state log Z is minus infinity, and its eta are zero.
    """
    start, gradient, num_steps = program.table_start, program.gradient, len(program.steps)
    V = np.empty(num_values, dtype=tables.dtype)
    G = np.empty(num_gradients if want_eta else 0, dtype=tables.dtype)
    sums = np.empty(256, dtype=np.float64)
    bounds = np.empty((len(program.size), 3), dtype=np.float64)
    factor = np.empty(len(program.size), dtype=np.float64)
    # Up to the roots, whose product is Z; down from them for the marginals.
    for b in range(len(tables)):
        factor[:] = 1.0
        scale = constant + load(tables[b], start, V, bounds, np.bool_(True))
        scale += upward(V, program, offset, bounds, factor, limit, sums, 0, num_steps)
        for r in program.roots:
            scale += np.log(np.float64(V[offset[r]]))
        log_z[b] = scale
        if want_eta and scale == -np.inf:
            eta[b] = 0.0
        elif want_eta and not np.isnan(scale):
            for r in program.roots:
                G[gradient[r]] = 1.0 / V[offset[r]]
            downward(V, G, program, offset, bounds, factor, sums, 0, num_steps)
            for t in range(len(start) - 1):
                if bounds[t + 1, 2] != 0.0:
                    silence(V, start[t] + 1, G, start[t] + 1, start[t + 1] - start[t])
            for i in range(start[-1]):
                eta[b, i] = V[i + 1] * G[i + 1]


@njit(cache=True)
def trace_back(V, visits, outer, uniforms, states, begin, end):
    """Draw columns ``begin`` to ``end`` of states (d, n), one variable at a time.

    Args:
        V: values of all nodes.
        visits: rows (variable, levels; place and stride in the first node, in the second; first outer variable of the
            first node, of the second, and the end).
        outer: rows (variable, stride) of the other variables of the nodes.
        uniforms: numbers in [0, 1), (visits, n).
        states: out; zero where a variable has one level.
        begin: first column.
        end: end of the columns.
    """
    count = end - begin
    x, y = np.empty(count, np.int64), np.empty(count, np.int64)
    for k in range(len(visits)):
        variable, levels = visits[k, 0], visits[k, 1]
        x_step, y_step = visits[k, 3], visits[k, 5]
        # Where the rows of both nodes begin, given what is drawn.
        x[:] = visits[k, 2]
        y[:] = visits[k, 4]
        for j in range(visits[k, 6], visits[k, 7]):
            v, step = outer[j, 0], outer[j, 1]
            for i in range(count):
                x[i] += states[v, begin + i] * step
        for j in range(visits[k, 7], visits[k, 8]):
            v, step = outer[j, 0], outer[j, 1]
            for i in range(count):
                y[i] += states[v, begin + i] * step
        # The level, by inversion.
        for i in range(count):
            total = 0.0
            for level in range(levels):
                total += np.float64(V[x[i] + level * x_step]) * np.float64(V[y[i] + level * y_step])
            threshold = uniforms[k, begin + i] * total
            total = 0.0
            code = 0
            for level in range(levels - 1):
                total += np.float64(V[x[i] + level * x_step]) * np.float64(V[y[i] + level * y_step])
                code += threshold >= total
            states[variable, begin + i] = code
