"""Pseudo-Gibbs updates by walking decision graphs and tables, compiled for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.engine import Record
from ...compute.lanes import SMALL, balanced_width, from_tiles, lane_seeds, run_threads, to_tiles
from ...structure.hypergraph import InteractionHypergraph
from ..node_conditionals import NodeConditional
from ._walker_structure import alias_tables, walker_program

__all__ = ["WalkerEngine"]

_READS = 512  # of numbers, whose time an update takes


class WalkerEngine:
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
        real = np.float32 if dtype == torch.float32 else np.float64
        self._num_chains, self._size = num_chains, len(cards)
        self._program = walker_program(nodes, dtype)
        self._drawn = np.array([hypergraph.domain.index(node.variable) for node in nodes], dtype=np.uint32)
        self._picks: tuple[NDArray[Any], NDArray[np.uint32]] | None = None
        if selection is not None:
            cuts, others = alias_tables(selection[None])
            self._picks = cuts[0].astype(real), others[0].astype(np.uint32)
        self._edges = _edge_arrays(hypergraph)
        self._num_cells = hypergraph.num_terms
        self._code = np.uint8 if max(cards, default=1) <= 256 else np.int32
        self._width = balanced_width(1, num_chains, torch.get_num_threads())
        self._random = lane_seeds(seed, 1, num_chains, self._width)
        self._tiles: NDArray[Any] = np.zeros((self._random.shape[1], self._size + 1, self._width), dtype=self._code)

    def set_codes(self, codes: torch.Tensor) -> None:
        states = codes.cpu().numpy().astype(self._code)
        zeros = np.zeros((len(states), 1), dtype=self._code)
        self._tiles = to_tiles(np.concatenate([states, zeros], axis=1)[None], self._width)

    def get_codes(self) -> torch.Tensor:
        return torch.from_numpy(self._codes().astype(np.int64))

    def _codes(self) -> NDArray[Any]:
        return np.ascontiguousarray(from_tiles(self._tiles, 1, self._num_chains)[0, :, : self._size])

    def move(self, first: int, num_updates: int, *, thin: int = 0, counts: bool = False, codes: bool = False) -> Record:
        from ._walker_kernels import run

        num_records = num_updates // thin if thin else 0
        workers = 1 if len(self._tiles) * num_updates < SMALL else min(torch.get_num_threads(), len(self._tiles))
        kept_counts = np.zeros((workers, self._num_cells if counts else 0), dtype=np.int64)
        kept_codes = np.zeros((num_records if codes else 0, self._num_chains, self._size), dtype=self._code)
        if num_updates:
            p = self._program
            arguments = (p.code, p.roots, p.depths, p.levels, p.cuts, p.others, self._drawn, self._picks)

            def work(first_tile: int, step: int) -> None:
                run(
                    self._tiles,
                    self._random,
                    self._num_chains,
                    (first_tile, len(self._tiles), step),
                    *arguments,
                    first % len(self._drawn),
                    num_updates,
                    thin,
                    self._edges,
                    kept_counts[first_tile % workers],
                    kept_codes,
                )

            cost = float(self._num_chains) * num_updates * _READS
            run_threads(work, len(self._tiles), workers, cost)
        return Record(
            num_records,
            torch.from_numpy(kept_counts.sum(0).astype(np.float64)) if counts else None,
            None,
            torch.from_numpy(kept_codes) if codes else None,
        )

    def state(self) -> dict[str, torch.Tensor]:
        random = self._random.reshape(4, -1)[:, : self._num_chains].astype(np.int64)
        return {"codes": torch.from_numpy(self._codes()), "random": torch.from_numpy(random)}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self.set_codes(state["codes"])
        self._random.reshape(4, -1)[:, : self._num_chains] = state["random"].cpu().numpy().astype(np.uint32)


def _edge_arrays(hypergraph: InteractionHypergraph) -> tuple[NDArray[np.int64], ...]:
    """First cell of every edge, bounds of its members, their variables and strides."""
    first = [where.start for where in hypergraph.term_slices.values()]
    member, variables, strides = [0], list[int](), list[int]()
    for edge, shape in zip(hypergraph.edge_indices, hypergraph.edge_shapes, strict=True):
        variables += edge
        strides += np.append(np.cumprod(shape[:0:-1])[::-1], 1).astype(int).tolist()
        member.append(len(variables))
    return (
        np.array(first, dtype=np.int64),
        np.array(member, dtype=np.int64),
        np.array(variables, dtype=np.int64),
        np.array(strides, dtype=np.int64),
    )
