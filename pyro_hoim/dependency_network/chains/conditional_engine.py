"""Pseudo-Gibbs updates in PyTorch from any conditionals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.engine import NOTHING, Record, Wanted
from ...errors import unexpected
from ...structure.hypergraph import InteractionHypergraph, cell_index
from ..node_conditionals import NodeConditional

__all__ = ["ConditionalEngine"]


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
        """Make updates after the ``first``; the record has counts (num_terms,) and states (records, num_chains, d)."""
        thin, counts, _, codes = wanted
        num_records = num_updates // thin if thin else 0
        total = torch.zeros(self._hypergraph.num_terms, dtype=torch.float64) if counts else None
        recorded = torch.zeros((num_records, *self._codes.shape), dtype=self._kept) if codes else None
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
        pick = torch.rand(size, dtype=torch.float64, generator=self._generator, device=self._device)
        chosen = torch.searchsorted(self._bounds, pick * self._bounds[-1], right=True).clamp(max=len(self._nodes) - 1)
        for k in chosen.unique().tolist():
            rows = (chosen == k).nonzero().squeeze(-1)
            self._draw(k, rows, uniform[rows])

    def _draw(self, k: int, rows: slice | torch.Tensor, uniform: torch.Tensor) -> None:
        """Draw one variable in some chains; a level of probability zero is never drawn."""
        total = self._nodes[k].log_probs(self._codes[rows]).to(self._device).double().exp().cumsum(-1)
        if not bool(((total[:, -1] > 0) & (total[:, -1] < math.inf)).all()):  # NaN too
            expected = f"log-probabilities of {self._nodes[k].variable!r} with a positive finite sum of probabilities"
            raise unexpected("conditionals", expected, hint="check log_probs of its conditional", received="others")
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
