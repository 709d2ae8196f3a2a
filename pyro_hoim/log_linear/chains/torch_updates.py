"""What the PyTorch engine looks up: steps of a sweep, and the index arrays of blocks that are drawn at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ...structure.hypergraph import InteractionHypergraph, row_strides
from .listing import Lists

Blocks = tuple[tuple[int, ...], ...]
_SPLIT = 2**12  # chains from which blocks of unequal numbers of states are not padded to one


class Places(NamedTuple):
    """Positions in the tables, as ``start + sum_j stride[j] * code[variable[j]]``, and how many there are."""

    start: torch.Tensor  # (n,)
    variable: tuple[torch.Tensor, ...]  # D times (n,)
    stride: tuple[torch.Tensor, ...]  # D times (n, 1, 1)

    def __call__(self, codes: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        """Positions (n, groups, chains) of codes (d, groups, chains); ``offset`` (groups, 1) is added."""
        index = (self.start[:, None, None] + offset).expand(-1, -1, codes.shape[2])
        for variable, stride in zip(self.variable, self.stride, strict=True):
            index = index + codes.index_select(0, variable) * stride
        return index


class Update(NamedTuple):
    """Index arrays of n blocks that share no interaction, padded to F factors and K states.

    A factor is an interaction that meets the block. Padding points at a weight of zero, appended to the tables.
    """

    places: Places  # of n * F factors
    step: torch.Tensor  # (n, F, K, 1, 1) what a state of the block adds to the position
    reference: torch.Tensor  # (n, K, m) positions in the reference tables
    not_state: torch.Tensor | None  # (n, K, 1, 1) padding among the states; None where there is none
    state: torch.Tensor  # (m, n * K) codes of the members in every state
    first: torch.Tensor  # (n, 1, 1) position of a block's first state there
    members: torch.Tensor  # (m, n) variables of the blocks


def steps(
    hypergraph: InteractionHypergraph,
    blocks: Blocks,
    row: Sequence[int],
    num_chains: int,
    max_cells: int,
    num_states: Sequence[int],
) -> Iterator[tuple[int, ...]]:
    """Visits of a sweep in steps that share no interaction and no variable, with the same result as one by one.

    A visit joins the first step after all earlier visits that it must wait for. A step of more than ``max_cells``
    look-ups is made in parts; a block that is not drawn from the list of its states, with a number of them of zero, is
    a part of its own.
    """
    meeting = hypergraph.incident
    visits_by_step: list[list[int]] = []
    last: dict[tuple[bool, int], int] = {}
    # A visit waits for those that touch one of its interactions or variables.
    for b in row:
        met = {(True, e) for i in blocks[b] for e in meeting[i]} | {(False, i) for i in blocks[b]}
        step = 1 + max((last.get(thing, -1) for thing in met), default=-1)
        last.update(dict.fromkeys(met, step))
        if step == len(visits_by_step):
            visits_by_step.append([])
        visits_by_step[step].append(b)

    levels = num_states.__getitem__
    # Parts of equal numbers of states where there are many chains, and within the bound.
    for step_visits in visits_by_step:
        yield from ((b,) for b in step_visits if not num_states[b])
        visits = [b for b in step_visits if num_states[b]]
        parts = [visits] if visits else []
        if num_chains >= _SPLIT:
            parts = [list(part) for _, part in itertools.groupby(sorted(visits, key=levels), key=levels)]
        for part in parts:
            num_factors = max(len({e for i in blocks[b] for e in meeting[i]}) for b in part)
            each = max(1, num_factors) * max(map(levels, part)) * num_chains
            size = max(1, max_cells // each)
            yield from (tuple(part[k : k + size]) for k in range(0, len(part), size))


def places_of_edges(
    hypergraph: InteractionHypergraph, edges: range, dtype: torch.dtype, device: torch.device
) -> Places:
    """Positions of the cells that a state selects in some interactions."""
    starts = [where.start for where in hypergraph.term_slices.values()]
    members = [
        list(zip(hypergraph.edge_indices[e], row_strides(hypergraph.edge_shapes[e]), strict=True)) for e in edges
    ]
    return _places([starts[e] for e in edges], members, dtype, device)


def _places(
    starts: list[int], members: list[list[tuple[int, int]]], dtype: torch.dtype, device: torch.device
) -> Places:
    """From (variable, stride) of every table."""
    depth = max(map(len, members), default=0)
    padded = np.zeros((2, depth, len(starts)), dtype=np.int64)  # a stride of zero adds nothing
    for k, pairs in enumerate(members):
        for j, pair in enumerate(pairs):
            padded[:, j, k] = pair
    variable, stride = torch.from_numpy(padded).to(device)
    return Places(
        torch.tensor(starts, dtype=dtype).to(device), tuple(variable), tuple(stride.to(dtype)[..., None, None])
    )


def update_of(
    hypergraph: InteractionHypergraph,
    blocks: Blocks,
    dtype: torch.dtype,
    device: torch.device,
    factors: list[list[int]] | None = None,
    lists: Lists | None = None,
) -> Update:
    """Index arrays of blocks that share no interaction.

    Where ``factors`` says which interactions each block meets, the blocks are buckets: the reference is that of their
    last variables alone. ``lists`` are the possible joint states of blocks of which not all are.
    """
    # Sizes of the largest block, to which the others are padded.
    cards, meeting = hypergraph.domain.cardinalities, hypergraph.incident
    starts = [where.start for where in hypergraph.term_slices.values()]
    first_level = [0, *itertools.accumulate(cards)]
    is_bucket = factors is not None
    if factors is None:
        factors = [sorted({e for i in block for e in meeting[i]}) for block in blocks]
    n, num_factors, size = len(blocks), max(map(len, factors)), max(map(len, blocks))
    listed = [
        np.indices([cards[i] for i in block]).reshape(len(block), -1) if states is None else np.array(states).T
        for block, states in zip(blocks, lists or (None,) * n, strict=True)
    ]
    num_states = max(codes.shape[1] for codes in listed)
    # Padding: factors point at the appended weight of zero, a stride of zero adds nothing.
    start = np.full((n, num_factors), hypergraph.num_terms)
    outside: list[list[tuple[int, int]]] = [[] for _ in range(n * num_factors)]
    step = np.zeros((n, num_factors, num_states), dtype=np.int64)
    reference = np.full((n, num_states, size), sum(cards))
    is_state = np.zeros((n, num_states), dtype=bool)
    state = np.zeros((size, n, num_states), dtype=np.int64)
    members = np.zeros((size, n), dtype=np.int64)
    # A factor's position has a part of the states outside the block and a step for every state of it.
    for b, (block, edges, codes) in enumerate(zip(blocks, factors, listed, strict=True)):
        count = codes.shape[1]
        is_state[b, :count] = True
        state[: len(block), b, :count] = codes
        state[len(block) :, b, :count] = codes[0]  # padded members repeat the first one
        members[:, b] = [*block, *[block[0]] * (size - len(block))]
        for k, i in enumerate(block):
            if is_bucket and k < len(block) - 1:
                continue
            reference[b, :count, k] = first_level[i] + codes[k]
        for f, e in enumerate(edges):
            start[b, f] = starts[e]
            for i, stride in zip(hypergraph.edge_indices[e], row_strides(hypergraph.edge_shapes[e]), strict=True):
                if i in block:
                    step[b, f, :count] += stride * codes[block.index(i)]
                else:
                    outside[b * num_factors + f].append((i, stride))

    def there(values: np.ndarray, kind: torch.dtype = torch.long) -> torch.Tensor:
        return torch.from_numpy(values).to(device, kind)

    return Update(
        _places(start.reshape(-1).tolist(), outside, dtype, device),
        there(step, dtype)[..., None, None],
        there(reference),
        None if is_state.all() else there(~is_state, torch.bool)[..., None, None],
        there(state.reshape(size, -1), torch.int32 if max(cards) > 256 else torch.uint8),
        there(np.arange(n) * num_states)[:, None, None],
        there(members),
    )
