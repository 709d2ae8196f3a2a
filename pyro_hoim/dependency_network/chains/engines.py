"""Engines of pseudo-Gibbs updates: any conditionals in PyTorch; decision graphs and tables by compiled code."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.engine import NOTHING, Record, Wanted
from ...compute.lanes import SMALL, LaneChains, balanced_width, run_threads
from ...errors import out_of_reach, size_text, unexpected
from ...structure.hypergraph import InteractionHypergraph, cell_index, row_strides
from ..conditionals import update_log_probs
from ..decision_graph import CompiledGraph
from ..node_conditionals import LeafConditional, NodeConditional, TableConditional


class ConditionalEngine:
    """Chains whose updates draw one variable each from its conditional, of any kind, at their present state.

    All chains of an update are one tensor. Equal state and equal calls give equal results. Engines never validate:
    :class:`~pyro_hoim.dependency_network.PseudoGibbsChains` does, and drives this one or the compiled one alike. Yet
    conditionals from outside the library may return anything, so an update refuses what is no law.

    One generator serves all chains. In a random scan an update calls the conditional of every variable that some chain
    has picked, so that it costs up to as many calls as there are variables.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        nodes: Sequence[NodeConditional],
        selection: NDArray[np.float64] | None,
        num_chains: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self._hypergraph, self._nodes, self._device = hypergraph, tuple(nodes), device
        self._drawn = [hypergraph.domain.index(node.variable) for node in nodes]
        self._generator = torch.Generator(device).manual_seed(seed)
        self._bounds = None if selection is None else torch.from_numpy(selection.cumsum()).to(device)
        wide = max(hypergraph.domain.cardinalities, default=1) > 256
        self._kept = torch.int32 if wide else torch.uint8
        self._codes = torch.zeros(num_chains, len(hypergraph.domain), dtype=torch.long, device=device)

    def set_codes(self, codes: torch.Tensor) -> None:
        """Take states, long (1, num_chains, d)."""
        self._codes = codes[0].long().to(self._device, copy=True)

    def get_codes(self) -> torch.Tensor:
        """States, long (1, num_chains, d), a copy."""
        return self._codes[None].clone()

    def move(self, first: int, num_updates: int, wanted: Wanted = NOTHING) -> Record:
        """Make updates after ``first`` ones; counts are (num_terms,), states (records, num_chains, d)."""
        thin, counts, _, codes = wanted
        num_records = num_updates // thin if thin else 0
        total = torch.zeros(self._hypergraph.num_terms, dtype=torch.float64) if counts else None
        recorded = torch.zeros((num_records, *self._codes.shape), dtype=self._kept) if codes else None
        # Update after update, all chains at once; every ``thin`` updates they are looked at.
        with torch.no_grad():
            for k in range(num_updates):
                if self._nodes:
                    self._update(first + k)
                if not thin or (k + 1) % thin:
                    continue
                if total is not None:
                    total += self._counts()
                if recorded is not None:
                    recorded[k // thin] = self._codes
        return Record(num_records, total, None, recorded)

    def _update(self, number: int) -> None:
        """One update of every chain."""
        size = len(self._codes)
        uniform = torch.rand(size, dtype=torch.float64, generator=self._generator, device=self._device)
        if self._bounds is None:
            self._draw(number % len(self._nodes), slice(None), uniform)
            return
        # Chains that picked the same variable are drawn together.
        pick = torch.rand(size, dtype=torch.float64, generator=self._generator, device=self._device)
        chosen = torch.searchsorted(self._bounds, pick * self._bounds[-1], right=True).clamp(max=len(self._nodes) - 1)
        for k in chosen.unique().tolist():
            rows = (chosen == k).nonzero().squeeze(-1)
            self._draw(k, rows, uniform[rows])

    def _draw(self, k: int, rows: slice | torch.Tensor, uniform: torch.Tensor) -> None:
        """Draw one variable in some chains; a level of probability zero is never drawn."""
        total = update_log_probs(self._nodes[k], self._codes[rows]).to(self._device).double().exp().cumsum(-1)
        if not bool(((total[:, -1] > 0) & (total[:, -1] < math.inf)).all()):  # NaN too
            expected = f"log-probabilities of {self._nodes[k].variable!r} with a positive finite sum of probabilities"
            raise unexpected("conditionals", expected, hint="check log_probs of its conditional", received="others")
        # The level at which the cumulated probabilities pass a uniform number.
        limit = uniform[:, None] * total[:, -1:] * (1 - 2**-52)  # stays below the last sum
        self._codes[rows, self._drawn[k]] = (total <= limit).sum(-1)

    def _counts(self) -> torch.Tensor:
        """Chains in every cell of every edge, float64 (num_terms,)."""
        cells = cell_index(self._hypergraph).flat(self._codes).reshape(-1)
        return torch.bincount(cells, minlength=self._hypergraph.num_terms).double().cpu()

    def state(self) -> dict[str, torch.Tensor]:
        """States and random numbers, as tensors that safetensors can store."""
        return {"codes": self.get_codes().cpu(), "generator": self._generator.get_state()}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from :meth:`state` with equal bits."""
        self.set_codes(state["codes"])
        self._generator.set_state(state["generator"].cpu())


# Conditionals as one program that a lane walks: from a root, by the codes of a state, to a leaf with its law.

_MOST_ENTRIES = 2**31 - 1


class WalkerProgram(NamedTuple):
    """Decision graphs and tables of parents of several variables, for :mod:`._walker_kernels`.

    A node is a stretch of ``code``: the row of the state that it asks, then the position of the next node for every
    level. A leaf asks the row after the last variable, which is always 0, and leads to itself; then comes the
    position of its law in ``cuts`` and ``others`` (see :func:`alias_tables`).
    """

    code: NDArray[np.uint32]
    roots: NDArray[np.uint32]  # position of the first node of every variable
    depths: NDArray[np.int64]  # most questions on the way to a leaf
    levels: NDArray[np.uint32]  # of every variable
    cuts: NDArray[Any]  # shares of the levels, float32 or float64
    others: NDArray[np.uint32]  # levels


def is_walkable(node: NodeConditional) -> bool:
    """Whether a conditional can be compiled: a decision graph or a table of parents, on the CPU."""
    return isinstance(node, LeafConditional | TableConditional) and node.probs.device.type == "cpu"


def walker_program(nodes: Sequence[NodeConditional], dtype: torch.dtype) -> WalkerProgram:
    """The program of some conditionals of one domain, with laws in ``dtype``; tables too large for it are refused."""
    size = len(nodes[0].domain) if nodes else 0
    code, laws = list[NDArray[np.int64]](), list[NDArray[np.float64]]()
    roots, depths, levels = list[int](), list[int](), list[int]()
    # Programs and laws of all conditionals stand one after the other in one address space.
    begin = law = 0
    for node in nodes:
        assert isinstance(node, LeafConditional | TableConditional)
        cardinality = node.domain[node.variable].cardinality
        rows = node.probs.detach().double().reshape(-1, cardinality).numpy()
        if begin + 8 * len(rows) + law + rows.size > _MOST_ENTRIES:
            problem = f"the compiled engine addresses {size_text(_MOST_ENTRIES // 8, 'entries')} of tables at most"
            raise out_of_reach("conditionals", problem, "use engine='torch'")
        if isinstance(node, LeafConditional):
            graph = node.graph.compiled
            depths.append(_depth(graph, node.domain.cardinalities))
        else:
            # The graph that asks the parents in turn; leaves are the rows of the table.
            asked = [node.domain.index(name) for name in node.parents]
            cards = [node.domain.cardinalities[i] for i in asked]
            sizes = [math.prod(cards[:k]) for k in range(len(cards) + 1)]
            widths = np.repeat(cards, sizes[:-1]).astype(np.int64)
            offsets = np.concatenate([np.cumsum(widths) - widths, np.arange(sizes[-1])])
            graph = CompiledGraph(np.repeat([*asked, -1], sizes), offsets, np.arange(1, len(offsets)))
            depths.append(len(node.parents))
        code.append(_written(graph, begin, law, cardinality, size))
        laws.append(rows)
        roots.append(begin)
        levels.append(cardinality)
        begin, law = begin + len(code[-1]), law + rows.size
    # Laws as alias tables: one look-up draws, whatever the number of levels.
    tables = [alias_tables(rows) for rows in laws]
    real = np.float32 if dtype == torch.float32 else np.float64
    return WalkerProgram(
        np.concatenate([*code, np.zeros(1, dtype=np.int64)]).astype(np.uint32),
        np.array(roots, dtype=np.uint32),
        np.array(depths, dtype=np.int64),
        np.array(levels, dtype=np.uint32),
        np.concatenate([*(cuts.reshape(-1) for cuts, _ in tables), np.ones(1)]).astype(real),
        np.concatenate([*(others.reshape(-1) for _, others in tables), np.zeros(1, dtype=np.int64)]).astype(np.uint32),
    )


def _written(graph: CompiledGraph, begin: int, law: int, cardinality: int, size: int) -> NDArray[np.int64]:
    """The stretches of all nodes of a graph; laws begin at ``law`` and have ``cardinality`` entries each."""
    variables, offsets, children = (a.astype(np.int64) for a in (graph.variables, graph.offsets, graph.children))
    is_leaf = variables < 0
    # A node needs a word for its question and one for each answer; a leaf one for itself and its law.
    widths = np.full(len(variables), 2, dtype=np.int64)
    inner = np.flatnonzero(~is_leaf)
    ends = np.append(offsets[inner][1:], len(children))  # children lie in the order of the inner nodes
    widths[inner] = ends - offsets[inner]
    places = np.cumsum(widths + 1) - widths - 1
    code = np.empty(int(widths.sum()) + len(widths), dtype=np.int64)
    code[places] = np.where(is_leaf, size, variables)
    # Leaves lead to themselves, so that lanes that arrive early wait there.
    leaves = places[is_leaf]
    code[leaves + 1] = begin + leaves
    code[leaves + 2] = law + offsets[is_leaf] * cardinality
    # Answers of other nodes lead to the stretches of their children.
    within = np.arange(len(children)) - np.repeat(offsets[inner], widths[inner])
    code[np.repeat(places[inner] + 1, widths[inner]) + within] = begin + places[children]
    return code


def _depth(graph: CompiledGraph, cards: Sequence[int]) -> int:
    """Most questions from the root to a leaf."""
    steps = [0] * len(graph.variables)
    for node, (variable, first) in enumerate(zip(graph.variables.tolist(), graph.offsets.tolist(), strict=True)):
        if variable >= 0:
            for child in graph.children[first : first + cards[variable]].tolist():
                steps[child] = max(steps[child], steps[node] + 1)
    return max(steps)


def alias_tables(probs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Laws (rows, K) as equal slots that hold at most two levels each, so that one look-up draws from them.

    Slot j of K gives level j with probability ``cuts[j]`` and level ``others[j]`` else; a level of probability zero has
    cut zero and is in no other slot (Alastair Walker, ACM Transactions on Mathematical Software 3, 1977).
    """
    rows, size = probs.shape
    left = probs * (size / np.maximum(probs.sum(-1, keepdims=True), 1e-300))
    cuts = np.ones((rows, size))
    others = np.broadcast_to(np.arange(size), (rows, size)).copy()
    is_open = np.ones((rows, size), dtype=bool)
    every = np.arange(rows)
    # The emptiest open slot is filled up from the fullest and closed, in all laws at once.
    for _ in range(size - 1):
        least = np.where(is_open, left, np.inf).argmin(-1)
        most = np.where(is_open, left, -np.inf).argmax(-1)
        share = np.clip(left[every, least], 0, 1)
        is_part = (share < 1) & (least != most)
        cuts[every, least] = np.where(is_part, share, 1)
        others[every, least] = np.where(is_part, most, least)
        left[every, most] -= np.where(is_part, 1 - share, 0)
        is_open[every, least] = False
    return cuts, others


_READS = 512  # of numbers, whose time an update takes


class WalkerEngine(LaneChains):
    """Chains of conditionals that are decision graphs or tables, with the methods of :class:`ConditionalEngine`.

    An update costs one look-up per question on the way to a leaf and one for the new level, whatever the number of
    levels. Every chain has a generator of its own, so that neither threads nor more chains change its numbers.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        nodes: Sequence[NodeConditional],
        selection: NDArray[np.float64] | None,
        num_chains: int,
        seed: int,
        dtype: torch.dtype,
    ) -> None:
        cards = hypergraph.domain.cardinalities
        # Tiles of lanes, of which every thread gets about as many.
        width = balanced_width(1, num_chains, torch.get_num_threads())
        super().__init__((1, num_chains), seed, width, np.uint8 if max(cards, default=1) <= 256 else np.int32)
        real = np.float32 if dtype == torch.float32 else np.float64
        self._size = len(cards)
        self._program = walker_program(nodes, dtype)
        self._drawn = np.array([hypergraph.domain.index(node.variable) for node in nodes], dtype=np.uint32)
        self._picks: tuple[NDArray[Any], NDArray[np.uint32]] | None = None
        # Picks of a random scan are drawn from an alias table, too.
        if selection is not None:
            cuts, others = alias_tables(selection[None])
            self._picks = cuts[0].astype(real), others[0].astype(np.uint32)
        # First cell of every edge, bounds of its members, their variables and strides.
        members = [0, *itertools.accumulate(map(len, hypergraph.edge_indices))]
        strides = [n for shape in hypergraph.edge_shapes for n in row_strides(shape)]
        first = [where.start for where in hypergraph.term_slices.values()]
        variables = [v for edge in hypergraph.edge_indices for v in edge]
        self._edges = tuple(np.array(values, dtype=np.int64) for values in (first, members, variables, strides))
        self._num_cells = hypergraph.num_terms

    def _written(self, codes: NDArray[Any]) -> NDArray[Any]:
        zeros = np.zeros((*codes.shape[:-1], 1), dtype=codes.dtype)  # the row that leaves ask
        return super()._written(np.concatenate([codes, zeros], axis=-1))

    def _codes(self) -> NDArray[Any]:
        return np.ascontiguousarray(super()._codes()[..., : self._size])

    def move(self, first: int, num_updates: int, wanted: Wanted = NOTHING) -> Record:
        """Make updates, as :meth:`ConditionalEngine.move` does."""
        from ._walker_kernels import run

        thin, counts, _, codes = wanted
        tiles, num_chains = self._states, self._shape[1]
        num_records = num_updates // thin if thin else 0
        # Threads count into tables of their own, which are added up at the end.
        workers = 1 if len(tiles) * num_updates < SMALL else min(torch.get_num_threads(), len(tiles))
        cells = np.zeros((workers, self._num_cells if counts else 0), dtype=np.int64)
        states = np.zeros((num_records if codes else 0, num_chains, self._size), dtype=self._code)
        if num_updates:
            path = first % len(self._drawn), num_updates, thin
            program = self._program, self._drawn, self._picks, path, self._edges

            def work(first_tile: int, step: int) -> None:
                part = (first_tile, len(tiles), step)
                run(tiles, self._random, num_chains, part, *program, cells[first_tile % workers], states)

            run_threads(work, len(tiles), workers, float(num_chains) * num_updates * _READS)
        return Record(
            num_records,
            torch.from_numpy(cells.sum(0).astype(np.float64)) if counts else None,
            None,
            torch.from_numpy(states) if codes else None,
        )
