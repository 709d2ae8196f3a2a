"""Bucket elimination in log space, in PyTorch: any device, dtype, range of parameters and order of derivative."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch

from ...checks import is_transformed
from ...core.partition import log_sum_exp, may_have_zeros
from ._program import Bucket, BucketPlan

Reduce = Callable[[torch.Tensor], torch.Tensor]

_BATCH_CELLS = 2**24  # cells of a chunk of the batch that are alive at once
_TEMPORARY = 3  # tables of the largest size alive while one is summed


def cells_alive(plan: BucketPlan, with_graph: bool) -> int:
    """Cells alive at once for one element of the batch: messages and temporaries, or all that a graph holds."""
    terms = plan.hypergraph.num_terms
    alive = terms + plan.message_cells + _TEMPORARY * plan.largest_cells
    return alive + plan.num_slices * (terms + plan.message_cells + plan.total_cells) if with_graph else alive


def split(plan: BucketPlan, tables: torch.Tensor, with_graph: bool) -> Sequence[torch.Tensor]:
    """Tables (B, num_terms) in chunks of the batch that keep memory bounded."""
    return tables.split(max(1, _BATCH_CELLS // cells_alive(plan, with_graph)))


def _view(plan: BucketPlan, table: torch.Tensor, scope: tuple[int, ...], union: tuple[int, ...]) -> torch.Tensor:
    """The table with axes of length one where a variable of ``union`` is not in its scope."""
    return table.reshape(table.shape[0], *(plan.cards[v] if v in scope else 1 for v in union))


def _sum_of(plan: BucketPlan, factors: list[torch.Tensor], bucket: Bucket, like: torch.Tensor) -> torch.Tensor:
    """Sum of a bucket's log tables over its message's scope and, last, its variable."""
    union = (*bucket.scope, bucket.variable)
    views = [_view(plan, factors[f], plan.scopes[f], union) for f in bucket.factors]
    if not views:
        return like.new_zeros(like.shape[0], plan.cards[bucket.variable])
    total: torch.Tensor = views[0]
    for view in sorted(views[1:], key=lambda t: t.numel()):
        total = total + view
    return total


log_sum = partial(torch.logsumexp, dim=-1)
log_sum_of_zeros = partial(log_sum_exp, dim=-1)
log_max = partial(torch.amax, dim=-1)


def upward(
    plan: BucketPlan, tables: torch.Tensor, reduce: Reduce = log_sum, release: bool = False
) -> list[torch.Tensor]:
    """All factors, tables (B, terms of the slice) and messages, of one slice; with ``release`` only the roots stay."""
    # Log tables (B, *cardinalities), axes in the plan's order, from flat ones (B, terms of one slice).
    factors: list[torch.Tensor] = []
    start = 0
    for f, edge in enumerate(plan.hypergraph.edge_indices):
        shape = tuple(plan.cards[v] for v in edge)
        size = math.prod(shape)
        table = tables[:, start : start + size].reshape(tables.shape[0], *shape)
        start += size
        axes = [edge.index(v) + 1 for v in plan.scopes[f]]
        factors.append(table if axes == sorted(axes) else table.permute(0, *axes))
    gone = tables.new_empty(0)
    for bucket in plan.buckets:
        factors.append(reduce(_sum_of(plan, factors, bucket, tables)))
        if release:
            for f in bucket.factors:
                factors[f] = gone
    return factors


def log_root(plan: BucketPlan, factors: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Unnormalised log table (B, *cardinalities of keep), log Z if nothing is kept."""
    total = like.new_zeros(like.shape[0], *(plan.cards[v] for v in plan.keep))
    for f in plan.roots:
        total = total + _view(plan, factors[f], plan.scopes[f], plan.keep)
    return total


def log_z(plan: BucketPlan, tables: torch.Tensor, reduce: Reduce = log_sum) -> torch.Tensor:
    """Log Z (B,), or the unnormalised log table over ``keep``, all slices together, of flat tables (B, num_terms)."""
    with_graph = torch.is_grad_enabled() and tables.requires_grad
    if reduce is log_sum and (with_graph or is_transformed(tables)) and may_have_zeros(tables):
        reduce = log_sum_of_zeros
    return torch.cat([_log_z(plan, chunk, reduce) for chunk in split(plan, tables, with_graph)])


def _log_z(plan: BucketPlan, tables: torch.Tensor, reduce: Reduce) -> torch.Tensor:
    """One chunk of :func:`log_z`."""
    if not plan.slices:
        total = log_root(plan, upward(plan, tables, reduce, release=True), tables)
        return _cut_off(total) if reduce is log_sum_of_zeros else total
    parts: list[torch.Tensor] = []
    for _, terms in plan.each_slice():
        piece = tables.index_select(1, terms.to(tables.device))
        parts.append(log_root(plan, upward(plan, piece, reduce, release=True), piece))
    stacked = torch.stack(parts, -1)
    return reduce(_cut_off(stacked) if reduce is log_sum_of_zeros else stacked)


def _cut_off(logs: torch.Tensor) -> torch.Tensor:
    """The same numbers, of which those that are minus infinity do not depend on the tables of other components."""
    return logs.masked_fill(logs == -math.inf, -math.inf)


def trace_back(
    plan: BucketPlan,
    tables: torch.Tensor,
    num_draws: int,
    choose: Callable[[torch.Tensor], torch.Tensor],
    reduce: Reduce,
) -> torch.Tensor:
    """States (draws, B, d) of tables (B, num_terms): the slice first, then its variables.

    ``choose`` maps log weights (n, cardinality) of slices, or of a variable given those chosen, to codes (n,).
    """
    d = len(plan.cards)
    parts = [torch.zeros(num_draws, 0, d, dtype=torch.long, device=tables.device)]
    for chunk in split(plan, tables, False) if len(tables) else ():
        rows = torch.arange(len(chunk), device=tables.device).repeat(num_draws)
        if not plan.slices:
            states = _trace_slice(plan, upward(plan, chunk, reduce), rows, choose)
        else:
            # Slices are made again where they are drawn, so that no two are held at once.
            values: list[torch.Tensor] = []
            for _, terms in plan.each_slice():
                piece = chunk.index_select(1, terms.to(chunk.device))
                values.append(log_root(plan, upward(plan, piece, reduce), piece))
            picked = choose(torch.stack(values, -1)[rows])
            states = rows.new_zeros(rows.numel(), d)
            for number, (state, terms) in enumerate(plan.each_slice()):
                mine = (picked == number).nonzero()[:, 0]
                if mine.numel():
                    factors = upward(plan, chunk.index_select(1, terms.to(chunk.device)), reduce)
                    drawn = _trace_slice(plan, factors, rows[mine], choose)
                    drawn[:, list(plan.slices)] = rows.new_tensor(state)
                    states[mine] = drawn
        parts.append(states.reshape(num_draws, len(chunk), d))
    return torch.cat(parts, 1)


def _trace_slice(
    plan: BucketPlan, factors: list[torch.Tensor], rows: torch.Tensor, choose: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """States (n, d) of batch elements ``rows`` (n,) of one slice, one variable at a time against the order."""
    states = rows.new_zeros(rows.numel(), len(plan.cards))
    for bucket in reversed(plan.buckets):
        size = plan.cards[bucket.variable]
        if size == 1:
            continue
        weights = torch.zeros(rows.numel(), size, dtype=factors[0].dtype if factors else None, device=rows.device)
        for f in bucket.factors:
            rest = plan.scopes[f][:-1]
            flat = factors[f].reshape(factors[f].shape[0], plan.size(rest), size)
            index = torch.zeros_like(rows)
            for v in rest:
                index = index * plan.cards[v] + states[:, v]
            weights = weights + flat[rows, index]
        states[:, bucket.variable] = choose(weights)
    return states
