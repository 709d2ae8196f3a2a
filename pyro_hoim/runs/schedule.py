"""Which variables a Gibbs sampler draws together, and in which order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import (
    check_choice,
    check_fraction,
    check_names,
    check_unique,
    conflict,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_type,
)
from ..structure.elimination_order import block_buckets, bucket_cells, low_width_blocks
from ..structure.hypergraph import InteractionHypergraph

MAX_BLOCK_STATES = 4096
"""Most joint states of a block that is drawn from a list of them."""

MAX_BLOCK_CELLS = 2**20
"""Most cells of the tables that are formed when a larger block is drawn by elimination."""

_FEW_STATES = 16  # of blocks of low treewidth that are listed, which is then faster
MAX_WIDTH = 18
_KINDS = "sites", "colours", "interactions", "trees", "auto"

Blocks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class GibbsSchedule:
    r"""Blocks of variables that are drawn together, and the scan that visits them.

    One *sweep* is as many visits as there are blocks. Every visit draws the block from its exact conditional law given
    all other variables, so every schedule leaves the target invariant. A block is drawn from a list of its joint
    states, or, where it has many, by elimination: messages are passed up an elimination order of what the interactions
    leave of it given the rest, and its variables drawn against that order. This takes time and memory in proportion to
    the cells of the tables that are formed, :math:`2^{w + 1}` per binary variable at treewidth w.

    Args:
        blocks: ``"sites"`` (one variable at a time, in schema order), ``"colours"`` (one variable at a time, classes
            of variables that share no interaction one after the other; the form that runs in parallel on a GPU),
            ``"interactions"`` (the maximal interactions, each drawn as a whole; a variable in none is a block of its
            own), ``"trees"`` (sets of variables within which interactions join them as trees, as large as a greedy
            choice makes them; the sets overlap and cover all variables), ``"width:W"`` (the same with treewidth at most
            W), ``"auto"`` (whichever of these gives most effective draws in equal planned time in short pilot runs with
            the model), or a sequence of tuples of names. Blocks of more than 4,096 possible joint states, and those of
            trees and widths that have more than 16 states, are drawn by elimination.
        scan: ``"sequential"`` visits the blocks in order; ``"random"`` draws every visit. The order is drawn once for
            all chains: given the order chains are independent, and every chain alone is a random scan.
        emphasised: interactions that get extra weight, such as those just added to a model. A block is emphasised
            when it is contained in one of them or contains one.
        emphasis: share of the visits that go to the emphasised blocks, in (0, 1). A sequential sweep visits every
            emphasised block once and then as many of the others as the share asks for, but at least one, taking turns
            over sweeps; a random visit picks the emphasised class with this probability.

    Raises:
        InputError: an unknown kind of blocks or scan, an emphasis outside (0, 1), or an empty block.
        InputTypeError: blocks that are not sequences of names.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, appendix B.5 (higher-order block sampling, upsampling of active interactions).
        Firas Hamze and Nando de Freitas, From fields to trees, UAI 2004 (trees drawn as a whole).

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), 2)
        >>> GibbsSchedule("interactions").resolve(hypergraph, clamped=["a"])
        ((1,), (2,), (1, 2))
        >>> ring = InteractionHypergraph.from_formula(hypergraph.domain, "a*b + b*c + a*c")
        >>> GibbsSchedule("trees").resolve(ring)
        ((1, 2), (0, 2))
    """

    blocks: str | Sequence[Sequence[str]] = "sites"
    scan: Literal["sequential", "random"] = "sequential"
    emphasised: Sequence[Sequence[str]] = ()
    emphasis: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.blocks, str):
            if self.width is None:
                check_choice(self.blocks, (*_KINDS, "width:W"), "blocks")
        else:
            object.__setattr__(self, "blocks", _name_tuples(self.blocks, "blocks"))
        object.__setattr__(self, "emphasised", _name_tuples(self.emphasised, "emphasised"))
        check_choice(self.scan, ("sequential", "random"), "scan")
        check_fraction(self.emphasis, "emphasis")

    @property
    def width(self) -> int | None:
        """Most treewidth of blocks that the schedule makes, 1 of trees; None where it does not say one."""
        if self.blocks == "trees":
            return 1
        if not isinstance(self.blocks, str) or not self.blocks.startswith("width:"):
            return None
        number = self.blocks.removeprefix("width:")
        if not number.isdecimal() or not 1 <= int(number) <= MAX_WIDTH:
            raise out_of_range("blocks", f"'width:W' with a whole number W from 1 to {MAX_WIDTH}", received=self.blocks)
        return int(number)

    @property
    def max_listed(self) -> int:
        """Most joint states of a block that is drawn from a list of them; larger ones are drawn by elimination."""
        return MAX_BLOCK_STATES if self.width is None else _FEW_STATES

    def resolve(
        self,
        hypergraph: InteractionHypergraph,
        clamped: Sequence[str] = (),
        has_list: Callable[[tuple[str, ...]], bool] | None = None,
    ) -> Blocks:
        """Blocks as tuples of schema positions without the clamped variables, in the order of a sequential scan.

        Variables with one level are never drawn. A block that loses members to clamping keeps the others; a block
        that then equals or lies inside no other block stays, exact repetitions are dropped. ``has_list`` says of the
        names of a block whether so few of its joint states are possible that these are listed.

        Raises:
            UnknownNameError: a block, an emphasised interaction or ``clamped`` names a variable not in the domain.
            InputError: a name twice in a block, or blocks that leave a free variable out.
            IntractableError: a block with more than :data:`MAX_BLOCK_STATES` joint states and more than
                :data:`MAX_BLOCK_CELLS` cells in the tables by which it is drawn.
        """
        # Names of this schedule are those of the model.
        domain = hypergraph.domain
        names = domain.names
        if self.blocks == "auto":
            raise conflict("blocks", "'auto' is chosen by pilot runs with a model, and has no blocks without one")
        check_names(clamped, names, "clamped")
        for edge in self.emphasised:
            check_names(edge, names, "emphasised")
        # Blocks by name, then without what is never drawn.
        fixed = {domain.index(n) for n in clamped} | {i for i, n in enumerate(domain.cardinalities) if n == 1}
        if isinstance(self.blocks, str):
            if self.blocks == "sites":
                given = tuple((n,) for n in names)
            elif self.blocks == "colours":
                given = tuple((n,) for group in hypergraph.colouring() for n in group)
            elif self.width is not None:
                free = [i for i in range(len(domain)) if i not in fixed]
                parts = low_width_blocks(hypergraph, free, self.width, MAX_BLOCK_CELLS)
                given = tuple(tuple(names[i] for i in block) for block in parts)
            else:
                given = hypergraph.blocks()
        else:
            given = tuple(tuple(b) for b in self.blocks)
            for block in given:
                check_names(block, names, "blocks")
                check_unique(block, f"blocks: block {block}")
        free = (tuple(i for i in domain.indices(block) if i not in fixed) for block in given)
        resolved = tuple(dict.fromkeys(tuple(sorted(b)) for b in free if b))
        # Every free variable has to be drawn, and no block to be too large.
        missing = set(range(len(domain))) - fixed - {i for b in resolved for i in b}
        if missing:
            left_out = ", ".join(repr(names[i]) for i in sorted(missing))
            problem = f"expected every free variable in a block, but {left_out} is in none"
            raise refused("blocks", problem, "add or clamp", code="missing-part")
        for block in resolved:
            num_states = math.prod(domain.cardinalities[i] for i in block)
            if num_states <= MAX_BLOCK_STATES or (has_list and has_list(tuple(names[i] for i in block))):
                continue
            cells = bucket_cells(block_buckets(hypergraph, block), domain.cardinalities)
            if cells > MAX_BLOCK_CELLS:
                problem = (
                    f"a block of {len(block)} variables, of which {names[block[0]]!r} is the first, has "
                    f"{size_text(num_states, 'joint states')} and takes tables of {size_text(cells, 'cells')} to draw, "
                    f"more than the limit of {MAX_BLOCK_CELLS}"
                )
                raise out_of_reach("blocks", problem, "use smaller blocks, or blocks='trees' or 'width:W'")
        return resolved

    def order(self, hypergraph: InteractionHypergraph, blocks: Blocks, first: int, num: int, seed: int) -> Orders:
        """Indices of the blocks visited in sweeps ``first`` to ``first + num``, int32 (num or 1, visits).

        One row stands for all sweeps when they are equal. Depends on the arguments only, so that a resumed run
        continues the same scan.
        """
        # A plain scan visits the blocks as they stand.
        count = len(blocks)
        if not count:
            return np.zeros((1, 0), dtype=np.int32)
        if self.scan == "sequential" and not self.emphasised:
            return np.arange(count, dtype=np.int32)[None]
        # Emphasised blocks, and all others, take their shares of the visits.
        wanted = [frozenset(hypergraph.domain.indices(edge)) for edge in self.emphasised]
        is_new = np.array([any(set(b) <= edge or set(b) >= edge for edge in wanted) for b in blocks], dtype=bool)
        new, old = np.flatnonzero(is_new), np.flatnonzero(~is_new)
        mixed = bool(len(new)) and bool(len(old))
        if self.scan == "sequential":
            if not mixed:
                return np.arange(count, dtype=np.int32)[None]
            share = max(1, round(len(new) * (1 - self.emphasis) / self.emphasis))
            # All new blocks, then others by turns that go on from sweep to sweep.
            turns = (first + np.arange(num))[:, None] * share + np.arange(share)
            rest = old[turns % len(old)]
            return np.concatenate([np.broadcast_to(new, (num, len(new))), rest], 1).astype(np.int32)
        # A counter for every sweep, so that any of them can be drawn by itself; to make a generator takes ten times as
        # long as to set it to a counter.
        rows = np.empty((num, count), dtype=np.int32)
        bits = np.random.Philox(key=seed)
        fresh, draw = bits.state, np.random.Generator(bits)
        for k in range(num):
            fresh["state"]["counter"][1] = first + k
            bits.state = fresh
            if mixed:
                from_new = draw.random(count) < self.emphasis
                rows[k] = np.where(from_new, draw.choice(new, count), draw.choice(old, count))
            else:
                rows[k] = draw.integers(0, count, count)
        return rows


Orders = NDArray[np.int32]


def _name_tuples(blocks: Sequence[Sequence[str]], argument: str) -> tuple[tuple[str, ...], ...]:
    """Nested sequences of names as tuples."""
    if isinstance(blocks, str) or not isinstance(blocks, Sequence):
        raise wrong_type(argument, "a sequence of blocks of names", received=repr(blocks))
    for block in blocks:
        if isinstance(block, str) or not isinstance(block, Sequence):
            raise wrong_type(argument, "blocks that are sequences of names", received=repr(block))
        if not block:
            raise unexpected(argument, "blocks with at least one name", received="an empty one", code="empty")
    return tuple(tuple(block) for block in blocks)
