r"""Compiled moves of the engine for binary variables (Numba, CPU). Imported when the first engine is made.

States are spins -1 and +1 and the model is a sum of weighted products of spins. The *field* of a set T of variables of
a block is the sum over all products that meet the block in T of weight times the spins outside the block, so that the
log weight of the spins s of a block is the sum over T of field times the product of s in T. A single site needs one
field and moves by a comparison in registers; a larger block sums its fields by a fast Walsh-Hadamard transform.

A forest passes messages up its trees: the log weight of a spin s and that of its parent t is a s + j s t, and summed
over s a constant plus h t with tanh h = tanh a tanh j. Spins are then drawn from the roots down.

Products with one, two and more spins outside the block are lists of their own. Log odds are
``2 (beta * field + (1 - beta) * reference field)``.
"""

# ruff: noqa: ARG001 (hooks of the compiler have fixed signatures)
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ...compute.jit import LINKED, njit
from ...compute.vectors import (
    FEW,
    LANES,
    as_bits,
    as_floats,
    bits_of_lanes,
    broadcast,
    convert,
    exp_negative,
    first_half,
    fused,
    larger,
    less,
    load,
    load_as,
    load_few,
    load_four,
    peek,
    poke,
    second_half,
    select_negative,
    sign_bits,
    store,
    sum_digits,
    to_double,
    transpose_bits,
    widen,
)

# Compiled weighted sums of products of spins (Numba, CPU). Imported when the first engine is made.


@njit(forceinline=True)
def _put(out, place, lanes, total):
    """Put the sum of the lanes of a vector into out; lanes is (16,) scratch."""
    store(lanes, 0, total)
    a, b, c, d = peek(lanes, 0), peek(lanes, 1), peek(lanes, 2), peek(lanes, 3)
    for k in range(4, LANES, 4):
        a += peek(lanes, k)
        b += peek(lanes, k + 1)
        c += peek(lanes, k + 2)
        d += peek(lanes, k + 3)
    poke(out, place, (a + b) + (c + d))


@njit(cache=True)
def weighted_sums(first, step, x, lane_weights, cells, out):
    """Put into out[tile, k] the sum over lanes of weight times the product of spins k of a tile, in float64.

    x is (tiles, d, width) with a width of whole vectors, the weights (tiles, width); products of one, two and three
    spins come first.
    """
    num_tiles, _, width = x.shape
    cell_first, member, orders = cells
    lanes = np.empty(LANES, np.float64)
    num = out.shape[1]
    for tile in range(first, num_tiles, step):
        xt, weights = x[tile], lane_weights[tile]
        base = tile * num
        m = 0
        # Single spins, then products of two, then all longer ones: short loops need no list of members.
        for k in range(orders[0]):
            a = peek(member, m) * width
            total = broadcast(lanes, 0.0)
            for start in range(0, width, LANES):
                total = fused(load(weights, start), widen(load(xt, a + start)), total)
            _put(out, base + k, lanes, total)
            m += 1
        for k in range(orders[0], orders[1]):
            a, b = peek(member, m) * width, peek(member, m + 1) * width
            total = broadcast(lanes, 0.0)
            for start in range(0, width, LANES):
                product = load(xt, a + start) * load(xt, b + start)
                total = fused(load(weights, start), widen(product), total)
            _put(out, base + k, lanes, total)
            m += 2
        for k in range(orders[1], num):
            total = broadcast(lanes, 0.0)
            begin, end = peek(cell_first, k), peek(cell_first, k + 1)
            for start in range(0, width, LANES):
                product = load(xt, peek(member, begin) * width + start)
                for i in range(begin + 1, end):
                    product = product * load(xt, peek(member, i) * width + start)
                total = fused(load(weights, start), widen(product), total)
            _put(out, base + k, lanes, total)


_INLINE: Any = {**LINKED, "forceinline": True}
_SINGLE = np.zeros(1, np.float32)
_CHUNK = 256  # products whose weights are sums of the same units; a power of two
_REFRESH = 128  # sweeps after which energies kept by differences are computed anew


@njit(forceinline=True)
def _draw(like, rng, base, width):
    """One step of xoshiro128+ in every lane; rng is [word, lane] from ``base`` on."""
    s0 = load_as(like, rng, base)
    s1 = load_as(like, rng, base + width)
    s2 = load_as(like, rng, base + 2 * width)
    s3 = load_as(like, rng, base + 3 * width)
    result = s0 + s3
    t = s1 << broadcast(s1, 9)
    s2 = s2 ^ s0
    s3 = s3 ^ s1
    store(rng, base + width, s1 ^ s2)
    store(rng, base, s0 ^ s3)
    store(rng, base + 2 * width, s2 ^ t)
    store(rng, base + 3 * width, (s3 << broadcast(s3, 11)) | (s3 >> broadcast(s3, 21)))
    return result


def _uniform(like, rng, base, width):
    """Uniform numbers and their unit: odd numbers below 2^31 and 2^-31 for float32, 53 bits and 1 for float64."""
    raise NotImplementedError


@overload(_uniform, jit_options=_INLINE)
def _uniform_overload(like, rng, base, width):
    if like.dtype == types.float32:

        def single(like, rng, base, width):
            bits = _draw(like, rng, base, width)
            bits = (bits >> broadcast(bits, 1)) | broadcast(bits, 1)
            return convert(bits), broadcast(like, 2.0**-31)

        return single

    def double(like, rng, base, width):
        high = widen(_draw(like, rng, base, width))
        low = widen(_draw(like, rng, base, width))
        bits = (high << broadcast(high, 20)) | (low >> broadcast(low, 12)) | broadcast(high, 1023 << 52)
        return as_floats(bits) - broadcast(like, 1.0 - 2.0**-53), broadcast(like, 1.0)

    return double


@njit(forceinline=True)
def _spin(log_odds, rng, base, width):
    """Spins with the given log odds of +1.

    The rarer value is the one compared with the random number, so that both tails are resolved equally well.
    """
    bits = as_bits(log_odds)
    e = exp_negative(as_floats(bits | as_bits(broadcast(log_odds, -0.0))))
    u, unit = _uniform(log_odds, rng, base, width)
    rare = less(u * fused(e, unit, unit), e)
    return select_negative(bits ^ rare, broadcast(e, -1.0), broadcast(e, 1.0))


@njit(forceinline=True)
def _field(x, start, f, structure, weights, row):
    """Field f for the lanes from ``start`` on of a tile x; ``row`` is the row of the weights."""
    _, _, _, pair_first, pair_other, triple_first, triple_others, high_first, high_start, high_others = structure[:10]
    bias, pair_weight, triple_weight, high_weight, _ = weights
    total = broadcast(bias, peek(bias, row * bias.shape[1] + f))
    # One other spin, two others, and any number of others.
    base = row * pair_weight.shape[1]
    for k in range(peek(pair_first, f), peek(pair_first, f + 1)):
        weight = broadcast(bias, peek(pair_weight, base + k))
        total = fused(weight, load(x, start + peek(pair_other, k)), total)
    base = row * triple_weight.shape[1]
    for k in range(peek(triple_first, f), peek(triple_first, f + 1)):
        weight = broadcast(bias, peek(triple_weight, base + k))
        product = weight * load(x, start + peek(triple_others, 2 * k))
        total = fused(product, load(x, start + peek(triple_others, 2 * k + 1)), total)
    base = row * high_weight.shape[1]
    for k in range(peek(high_first, f), peek(high_first, f + 1)):
        product = broadcast(bias, peek(high_weight, base + k))
        for m in range(peek(high_start, k), peek(high_start, k + 1)):
            product = product * load(x, start + peek(high_others, m))
        total = total + product
    return total


@njit
def _visit_block(x, rng, width, block, structure, weights, rows, two_beta, two_gamma, scratch):
    """Draw the spins of a block of m variables jointly; rows are of weights and reference, scratch is (2^m, lanes)."""
    field_first, member_first, member = structure[:3]
    reference = weights[4]
    first_member = peek(member_first, block)
    size = peek(member_first, block + 1) - first_member
    num_states = 1 << size
    base = rows[1] * reference.shape[1]
    for start in range(0, width, LANES):
        # Fields of all products of the block's spins.
        store(scratch, 0, broadcast(scratch, 0.0))
        for k in range(1, num_states):
            f = peek(field_first, block) + k - 1
            by_reference = broadcast(scratch, 0.5 * two_gamma * peek(reference, base + f))
            by_model = _field(x, start, f, structure, weights, rows[0])
            store(scratch, k * LANES, fused(by_model, broadcast(scratch, 0.5 * two_beta), by_reference))
        highest = load(scratch, 0)
        # Sums and differences of these (a Walsh-Hadamard transform) are the log weights of its states.
        for bit in range(size):
            step = 1 << bit
            for k in range(num_states):
                if k & step == 0:
                    a = load(scratch, k * LANES)
                    b = load(scratch, (k + step) * LANES)
                    store(scratch, k * LANES, a - b)
                    store(scratch, (k + step) * LANES, a + b)
        highest = load(scratch, 0)
        for k in range(1, num_states):
            highest = larger(highest, load(scratch, k * LANES))
        total = broadcast(scratch, 0.0)
        for k in range(num_states):
            total = total + exp_negative(load(scratch, k * LANES) - highest)
            store(scratch, k * LANES, total)
        # The state is drawn by inversion of the cumulative weights.
        u, unit = _uniform(total, rng, start, width)
        u = (u * unit) * total
        state = as_bits(broadcast(scratch, 0.0))
        for k in range(num_states - 1):
            state = state - less(load(scratch, k * LANES), u)
        for m in range(size):
            # the bit of the member, moved to the sign
            sign = as_bits(broadcast(scratch, -0.0)) & (state << broadcast(state, scratch.itemsize * 8 - 1 - m))
            spin = select_negative(sign, broadcast(scratch, 1.0), broadcast(scratch, -1.0))
            store(x, start + peek(member, first_member + m), spin)


def _twice_area_tangent(z):
    """log((1 + z) / (1 - z)) of lanes within -1/3 and 1/3, by its series."""
    raise NotImplementedError


@overload(_twice_area_tangent, jit_options=_INLINE)
def _twice_area_tangent_overload(z):
    if z.dtype == types.float32:

        def single(z):
            y = z * z
            p = fused(broadcast(z, 2 / 15), y, broadcast(z, 2 / 13))
            p = fused(p, y, broadcast(z, 2 / 11))
            p = fused(p, y, broadcast(z, 2 / 9))
            p = fused(p, y, broadcast(z, 2 / 7))
            p = fused(p, y, broadcast(z, 2 / 5))
            p = fused(p, y, broadcast(z, 2 / 3))
            return fused(p, y, broadcast(z, 2.0)) * z

        return single

    def double(z):
        y = z * z
        p = broadcast(z, 2 / 31)
        for k in range(29, -1, -2):
            p = fused(p, y, broadcast(z, 2.0 / k))
        return p * z

    return double


@njit(forceinline=True)
def _message(a, j):
    """Log odds that a spin of log odds a gives its parent through a product, of which j is twice the weight."""
    minus_zero = as_bits(broadcast(a, -0.0))
    equal, other = as_floats(as_bits(a + j) | minus_zero), as_floats(as_bits(a - j) | minus_zero)
    p, q = exp_negative(equal), exp_negative(other)
    ratio = _twice_area_tangent((p - q) / (p + q + broadcast(a, 2.0)))
    return fused(other - equal, broadcast(a, 0.5), ratio)


@njit
def _visit_forest(x, rng, width, block, structure, weights, rows, two_beta, two_gamma, scratch):
    """Draw the spins of a forest jointly; rows are of weights and reference, scratch is (2 spins, lanes)."""
    field_first, member_first, member = structure[:3]
    parent, reference = structure[11], weights[4]
    first_member = peek(member_first, block)
    size = peek(member_first, block + 1) - first_member
    base = rows[1] * reference.shape[1]
    for start in range(0, width, LANES):
        for k in range(size):
            store(scratch, k * LANES, broadcast(scratch, 0.0))
        # Log odds with the messages of the children, and messages on to the parents, which come later.
        for k in range(size):
            f, up = peek(field_first, block) + 2 * k, peek(parent, first_member + k)
            field = _field(x, start, f, structure, weights, rows[0])
            by_reference = broadcast(scratch, two_gamma * peek(reference, base + f))
            odds = fused(field, broadcast(scratch, two_beta), by_reference) + load(scratch, k * LANES)
            store(scratch, k * LANES, odds)
            if up >= 0:
                pair = _field(x, start, f + 1, structure, weights, rows[0]) * broadcast(scratch, two_beta)
                store(scratch, (size + k) * LANES, pair)
                store(scratch, up * LANES, load(scratch, up * LANES) + _message(odds, pair))
        for k in range(size - 1, -1, -1):
            up, at = peek(parent, first_member + k), start + peek(member, first_member + k)
            odds = load(scratch, k * LANES)
            if up >= 0:
                above = load(x, start + peek(member, first_member + up))
                odds = fused(load(scratch, (size + k) * LANES), above, odds)
            store(x, at, _spin(first_half(odds), rng, start, width))
            store(x, at + LANES // 2, _spin(second_half(odds), rng, start + LANES // 2, width))


@njit
def _energies(x, width, products, row, out):
    """Log weights of the model (out[0]) and of the reference law (out[1]) of a tile, in float64."""
    first, member, weight, constant, half, middle = products
    num, size = weight.shape[1], half.shape[1]
    for start in range(0, width, LANES):
        total = broadcast(out, peek(constant, row))
        for k in range(num):
            begin = peek(first, k)
            product = load(x, start + peek(member, begin))
            for m in range(begin + 1, peek(first, k + 1)):
                product = product * load(x, start + peek(member, m))
            total = fused(broadcast(out, peek(weight, row * num + k)), widen(product), total)
        store(out, start, total)
        # The reference law has single spins alone.
        total = broadcast(out, peek(middle, row))
        for v in range(size):
            total = fused(broadcast(out, peek(half, row * size + v)), widen(load(x, v * width + start)), total)
        store(out, width + start, total)


@njit
def _mark(x, width, signs):
    """Put the signs of every variable of a tile, one bit per lane, into words (d,)."""
    for v in range(x.shape[0]):
        word = np.uint64(0)
        for start in range(0, width, LANES):
            word |= sign_bits(load(x, v * width + start)) << np.uint64(start)
        signs[v] = word


@njit
def _write(signs, codes):
    """Put the codes of the states with the signs (d,) into codes (width, d)."""
    for b in range(codes.shape[0]):
        row, shift = codes[b], np.uint64(b)
        for v in range(row.shape[0]):
            row[v] = np.uint8((~signs[v] >> shift) & np.uint64(1))


@njit
def _join(signs, number, valid, masks):
    """Put the signs of the valid lanes (FEW, d) of the first records into masks (d, FEW), zero for others."""
    for v in range(signs.shape[1]):
        for slot in range(FEW):
            word = signs[slot, v] & valid if slot < number else np.uint64(0)
            poke(masks, v * FEW + slot, word)


@njit
def _count(masks, used, cells, base, counts):
    """Add products over ``used`` lanes of some records, from their masks, to counts from base.

    A product is -1 in the lanes of the exclusive or of its members' masks.
    """
    first, member, orders = cells
    for k in range(first.shape[0] - 1):
        word = load_few(masks, peek(member, peek(first, k)) * FEW)
        if k >= orders[0]:
            for i in range(peek(first, k) + 1, peek(first, k + 1)):
                word = word ^ load_few(masks, peek(member, i) * FEW)
        poke(counts, base + k, peek(counts, base + k) + used - 2 * bits_of_lanes(word))


@njit
def _spread(masks, cells, products, begin, end, slot, bits):
    """Put the bits of each lane of eight products, of four records from a slot on, into one byte.

    bits are (eights, 8, 4) words, of which byte b of row j is lane 8b + j.
    """
    first, member = cells[:2]
    for k in range(8 * begin, 8 * end):
        product = peek(products, k)
        word = load_four(masks, peek(member, peek(first, product)) * FEW + slot)
        for i in range(peek(first, product) + 1, peek(first, product + 1)):
            word = word ^ load_four(masks, peek(member, i) * FEW + slot)
        at = 4 * (k - 8 * begin)
        store(bits, at, word)
        if at % 32 == 28:
            transpose_bits(bits, at - 28)


@njit
def _record_energies(masks, cells, number, width, lists, row, spare, out, offset, apart):
    """Put the energies of ``number`` records of a tile into out, from ``offset`` on in steps of ``apart``.

    Weights are integers (see ``whole_weights``), whose sums over the products that are -1 come from tables of their
    digits, four products at once. Sums are exact to the rounding of float64. spare is scratch.
    """
    products, digits, units, constant, first, lacking, _ = lists
    bits, total = spare
    chunks, num = units.shape[1], products.shape[0] // 8
    # Four records at a time; chunk by chunk, since the bits of a chunk stay in the cache.
    for slot in range(0, number, 4):
        for start in range(0, 256, LANES):
            store(total, start, broadcast(total, peek(constant, row)))
        for chunk in range(chunks):
            begin, end, unit = peek(first, chunk), peek(first, chunk + 1), 2 * (row * chunks + chunk)
            _spread(masks, cells, products, begin, end, slot, bits)
            for j in range(8):
                high = as_bits(broadcast(_SINGLE, 0.0)) + broadcast(lacking, peek(lacking, unit))
                low = as_bits(broadcast(_SINGLE, 0.0)) + broadcast(lacking, peek(lacking, unit + 1))
                for k in range(begin, end, 256):
                    at, base, steps = (k - begin) * 32 + 4 * j, 256 * (row * num + k), min(256, end - k)
                    high = high + sum_digits(bits, at, 32, digits, base, steps)
                    low = low + sum_digits(bits, at, 32, digits, base + 128, steps)
                # Coarse and fine multiples back to nats.
                sums = fused(broadcast(total, peek(units, unit)), to_double(high), load(total, 32 * j))
                sums = fused(broadcast(total, peek(units, unit + 1)), to_double(low), sums)
                store(total, 32 * j, sums)
        for record in range(slot, min(slot + 4, number)):
            for lane in range(width):
                at = (lane & 7) * 32 + (record - slot) * 8 + (lane >> 3)
                poke(out, offset + record * apart + lane, peek(total, at))


@njit(cache=True)
def move(first, step, x, rng, structure, weights, products, whole, cells, layout, path, is_annealing, is_tracking, out):
    """Move the tiles first, first + step, ... of x (tiles, d, width) through all inverse temperatures.

    Weights have rows by group, or one for all; or a row for every step after the first, which beta does not scale. The
    layout is (tiles per group, chains, such steps or 0). The path is (order, betas (groups or 1, steps), sweeps per
    step, sweeps between records). When annealing, log weights grow by the change of beta before every step but the
    first; when tracking, energies follow from differences (single sites only). Out: energies of the model and the
    reference and log weights (tiles, width), counts (tiles, products), energies (records, tiles, width) and codes
    (records, tiles, width, d), of which the last four may be empty.
    """
    order, betas, sweeps_per_step, thin = path
    model_energy, reference_energy, log_weights, counts, energies, codes = out
    num_tiles, size, width = x.shape
    tiles_per_group, num_chains, num_steps = layout
    field_first, member_first, member = structure[0], structure[1], structure[2]
    reference = weights[4]
    num_fields = reference.shape[1]
    visits = order.shape[1]
    # Memory for one tile at a time.
    is_forest, room = structure[10], 1
    for block in range(member_first.shape[0] - 1):
        members = member_first[block + 1] - member_first[block]
        room = max(room, 2 * members if is_forest[block] else 1 << members)
    scratch = np.empty((room, LANES), x.dtype)
    exact = np.empty((2, width), np.float64)
    change = np.empty(width, x.dtype)
    for b in range(width):
        change[b] = 0
    # Records wait as bits until there are some, or the tile is done.
    num_counted = cells[0].shape[0] - 1
    masks, signs = np.empty(size * FEW, np.uint64), np.empty((FEW, size), np.uint64)
    spare = np.empty(32 * whole[6], np.uint64), np.empty(256, np.float64)
    is_counting = counts.shape[0] + energies.shape[0] > 0
    scale = np.empty(2, x.dtype)
    for tile in range(first, num_tiles, step):
        group = tile // tiles_per_group
        row = group if reference.shape[0] > 1 else 0
        beta_row = group if betas.shape[0] > 1 else 0
        used = min(width, num_chains - (tile % tiles_per_group) * width)
        valid = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - used)
        xt, rt = x[tile], rng[tile]
        if is_annealing:
            _energies(xt, width, products, row, exact)
        sweep = 0
        record = 0
        waiting = 0
        for k in range(betas.shape[1]):
            beta = betas[beta_row, k]
            # Log weights grow by the change of beta before the sweeps at the new one.
            if is_annealing:
                if k == 0:
                    continue
                growth = beta - betas[beta_row, k - 1]
                for b in range(width):
                    log_weights[tile, b] += growth * (exact[0, b] - exact[1, b])
            scale[0], scale[1] = 2.0 * beta, 2.0 * (1.0 - beta)
            weight_row = row
            if num_steps > 0:
                scale[0], scale[1] = 2.0, 0.0
                weight_row = row * num_steps + k - 1
            two_beta, two_gamma = scale[0], scale[1]
            for _ in range(sweeps_per_step):
                base = (sweep % order.shape[0]) * visits
                # One sweep: blocks jointly, single sites straight from their field.
                for visit in range(visits):
                    block = peek(order, base + visit)
                    if peek(is_forest, block):
                        rows = weight_row, row
                        _visit_forest(xt, rt, width, block, structure, weights, rows, two_beta, two_gamma, scratch)
                        continue
                    if peek(member_first, block + 1) - peek(member_first, block) > 1:
                        rows = weight_row, row
                        _visit_block(xt, rt, width, block, structure, weights, rows, two_beta, two_gamma, scratch)
                        continue
                    f = peek(field_first, block)
                    offset = peek(member, peek(member_first, block))
                    by_reference = peek(reference, row * num_fields + f)
                    for start in range(0, width, LANES):
                        field = _field(xt, start, f, structure, weights, weight_row)
                        odds = fused(field, broadcast(field, two_beta), broadcast(field, two_gamma * by_reference))
                        # in halves, which need no more registers than there are
                        middle = start + LANES // 2
                        low = _spin(first_half(odds), rt, start, width)
                        high = _spin(second_half(odds), rt, middle, width)
                        if is_tracking:
                            field = field - broadcast(field, by_reference)
                            flip = low - load_as(low, xt, offset + start)
                            store(change, start, fused(flip, first_half(field), load_as(low, change, start)))
                            flip = high - load_as(high, xt, offset + middle)
                            store(change, middle, fused(flip, second_half(field), load_as(high, change, middle)))
                        store(xt, offset + start, low)
                        store(xt, offset + middle, high)
                sweep += 1
                # Energies follow by differences, which are made anew now and then, or are looked up.
                is_record = thin > 0 and sweep % thin == 0
                if is_tracking:
                    if sweep % _REFRESH == 0:
                        _energies(xt, width, products, row, exact)
                        for b in range(width):
                            change[b] = 0
                    else:
                        for b in range(width):
                            exact[0, b] += change[b]
                            change[b] = 0
                elif is_annealing:
                    _energies(xt, width, products, row, exact)
                # What was asked for at a record.
                if is_record:
                    _mark(xt, width, signs[waiting])
                    if codes.shape[0] > 0:
                        _write(signs[waiting], codes[record, tile])
                    if is_counting:
                        waiting += 1
                    record += 1
                if waiting == FEW or (waiting > 0 and sweep == betas.shape[1] * sweeps_per_step):
                    _join(signs, waiting, valid, masks)
                    if counts.shape[0] > 0:
                        _count(masks, used * waiting, cells, tile * num_counted, counts)
                    if energies.shape[0] > 0:
                        offset = ((record - waiting) * num_tiles + tile) * width
                        apart = num_tiles * width
                        _record_energies(masks, cells, waiting, width, whole, row, spare, energies, offset, apart)
                    waiting = 0
        _energies(xt, width, products, row, exact)
        for b in range(width):
            model_energy[tile, b] = -exact[0, b]
            reference_energy[tile, b] = -exact[1, b]
