"""Blocks of low treewidth drawn by elimination in PyTorch: buckets that wait for no other are done together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...structure.hypergraph import InteractionHypergraph, row_strides
from ...structure.low_width import BlockBucket, block_buckets
from .torch_updates import Update, update_of

_LOWEST = -1e30  # stands for the log weight of impossible states, which are then never drawn


class Level(NamedTuple):
    """n buckets of equal shape whose messages wait for none of the others.

    Cells of a bucket are the states of its scope (outer) and, last, of its variable.
    """

    update: Update  # tables that meet the buckets, K = outer * states
    shape: tuple[int, int]  # outer, states
    received: torch.Tensor | None  # (n, R, K) positions of messages from earlier levels; the last one is zero
    sent: slice  # positions of the messages, n * outer
    variables: torch.Tensor  # (n,)
    scope: tuple[torch.Tensor, ...]  # variables (n,) of the scope
    strides: tuple[int, ...]
    drawn: slice  # positions of the random numbers


class Levels(NamedTuple):
    """The levels of a block, leaves first, and the number of cells of all messages."""

    levels: tuple[Level, ...]
    num_messages: int
    num_cells: int
    num_draws: int

    def draw(
        self,
        codes: torch.Tensor,
        uniform: torch.Tensor,
        law: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        beta: torch.Tensor | None,
    ) -> None:
        """Replace the codes (d, groups, chains) of a block by draws with uniform numbers (variables, groups, chains).

        The law is tables, flat, with the offsets of the groups (groups, 1), and reference log weights; at beta None it
        is that of the tables alone.
        """
        tables, offset, base = law
        messages = uniform.new_zeros(self.num_messages + 1, *codes.shape[1:])
        shares: list[torch.Tensor] = []
        # Messages up, with the cumulative weights of the levels given the scopes.
        for level in self.levels:
            n, num_factors, num_cells = level.update.step.shape[:3]
            places = level.update.places(codes, offset).reshape(n, num_factors, 1, *codes.shape[1:])
            cells = places + level.update.step
            weights = tables.index_select(0, cells.reshape(-1)).reshape(cells.shape).sum(1)
            if beta is not None:
                reference = base[:, level.update.reference].sum(-1).movedim(0, -1)[..., None]
                weights = beta * weights + (1 - beta) * reference
            if level.received is not None:
                taken = messages.index_select(0, level.received.reshape(-1))
                weights = weights + taken.reshape(n, -1, num_cells, *codes.shape[1:]).sum(1)
            weights = weights.clamp(min=_LOWEST).unflatten(1, level.shape)
            top = weights.amax(2, keepdim=True)
            total = (weights - top).exp_().cumsum(2)
            shares.append(total)
            if level.shape[0] > 1:
                message = top.squeeze(2) + total[:, :, -1].log()
                messages[level.sent] = (message - message.amax(1, keepdim=True)).flatten(0, 1)
        # Draws against the order.
        for level, total in zip(reversed(self.levels), reversed(shares), strict=True):
            row = torch.zeros_like(total[:, 0, 0], dtype=torch.long)
            for variables, stride in zip(level.scope, level.strides, strict=True):
                row = row + codes.index_select(0, variables).long() * stride
            picked = total.gather(1, row[:, None, None].expand(-1, 1, level.shape[1], -1, -1)).squeeze(1)
            chosen = (picked <= (uniform[level.drawn] * picked[:, -1])[:, None]).sum(1)
            codes.index_copy_(0, level.variables, chosen.to(codes.dtype))


def levels_of(
    hypergraph: InteractionHypergraph, block: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Levels:
    """Index arrays by which a block is drawn."""
    buckets, cards = block_buckets(hypergraph, block), hypergraph.domain.cardinalities
    rank = {bucket.variable: k for k, bucket in enumerate(buckets)}
    # Tables go to the bucket of the first of their members to go, messages to that of the first of their scope.
    factors: list[list[int]] = [[] for _ in buckets]
    for e in sorted({e for v in block for e in hypergraph.incident[v]}):
        factors[min(rank[v] for v in hypergraph.edge_indices[e] if v in rank)].append(e)
    senders: list[list[int]] = [[] for _ in buckets]
    height = [0] * len(buckets)
    for k, bucket in enumerate(buckets):
        height[k] = 1 + max((height[j] for j in senders[k]), default=-1)
        if bucket.scope:
            senders[min(rank[u] for u in bucket.scope)].append(k)
    shapes = [(math.prod(cards[u] for u in b.scope), cards[b.variable]) for b in buckets]
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for k, (variable, scope) in enumerate(buckets):
        groups.setdefault((height[k], tuple(cards[u] for u in (*scope, variable))), []).append(k)
    # Messages in the order in which they are sent.
    first = dict[int, int]()
    num_messages = num_draws = 0
    levels: list[Level] = []
    for _, members in sorted(groups.items()):
        begin, shape = num_messages, shapes[members[0]]
        for k in members:
            first[k] = num_messages
            num_messages += shape[0] if shape[0] > 1 else 0
        chosen = [buckets[k] for k in members]
        axes = [(*b.scope, b.variable) for b in chosen]
        scopes = torch.tensor([b.scope for b in chosen], dtype=torch.long).reshape(len(chosen), -1)
        levels.append(
            Level(
                update_of(hypergraph, tuple(axes), dtype, device, [factors[k] for k in members]),
                shape,
                _received([senders[k] for k in members], axes, buckets, first, cards),
                slice(begin, num_messages),
                torch.tensor([b.variable for b in chosen]).to(device),
                tuple(scopes.to(device).unbind(1)),
                row_strides([cards[u] for u in chosen[0].scope]),
                slice(num_draws, num_draws + len(members)),
            )
        )
        num_draws += len(members)
    at_end = [
        level if level.received is None else level._replace(received=level.received.to(device) % (num_messages + 1))
        for level in levels
    ]
    return Levels(tuple(at_end), num_messages, sum(a * b for a, b in shapes), num_draws)


def _received(
    senders: Sequence[Sequence[int]],
    axes: Sequence[tuple[int, ...]],
    buckets: Sequence[BlockBucket],
    first: dict[int, int],
    cards: Sequence[int],
) -> torch.Tensor | None:
    """Positions (n, R, K) of the cells of messages to buckets; -1 where one has fewer than R."""
    most = max(map(len, senders))
    if not most:
        return None
    rows: list[torch.Tensor] = []
    for given, variables in zip(senders, axes, strict=True):
        codes = torch.cartesian_prod(*(torch.arange(cards[v]) for v in variables)).reshape(-1, len(variables))
        row = torch.full((most, len(codes)), -1)
        for j, k in enumerate(given):
            scope = buckets[k].scope
            row[j] = first[k]
            for u, stride in zip(scope, row_strides([cards[u] for u in scope]), strict=True):
                row[j] += stride * codes[:, variables.index(u)]
        rows.append(row)
    return torch.stack(rows)
