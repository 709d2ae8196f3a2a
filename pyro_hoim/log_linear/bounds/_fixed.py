"""Lower bounds of log Z from a few states of a few variables, beside which the others are summed exactly."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from ..._modes import plain_mode
from ...annealing.backend import constant as once
from ...core.autograd import log_z_with_gradient
from ...structure.hypergraph import InteractionHypergraph
from ..energy import LogLinearEnergy
from ._cutset import cutset
from ._join_graph import JoinGraph, compiled, join_graph
from ._sweeps import Sweeps

_ROUNDS = 3
_MOST = 64  # states of the fixed variables that are summed in one round
_CELLS = 2**26  # of all tables of one round, about half a second
_WIDER, _WIDEST = 2**4, 2**20  # fewer variables are fixed for larger tables, which are cheap up to here
_ROUNDING = 1e-13  # of the sum of what the fixed variables add, relative


class FixedPlan(NamedTuple):
    """The variables that are fixed, the exact sum beside one of their settings, and how many sums a round has."""

    fixed: tuple[int, ...]
    names: tuple[str, ...]
    graph: JoinGraph
    most: int

    @property
    def memory_bytes(self) -> int:
        """Of one sum, and of the tables that are left beside all settings of a round."""
        if not self.graph.is_exact:
            return 0
        size = compiled(self.graph)
        return 8 * (4 * size.num_values + 7 * size.num_block + 2 * self.most * size.num_terms)


@lru_cache(maxsize=64)
@plain_mode()
def fixed_plan(hypergraph: InteractionHypergraph, max_cells: int) -> FixedPlan:
    """How lower bounds by few fixed variables are found, known from the structure."""
    max_cells = max(max_cells, min(_WIDER * max_cells, _WIDEST))
    fixed = cutset(hypergraph, max_cells)
    names = tuple(hypergraph.domain.names[v] for v in fixed)
    graph = join_graph(hypergraph.restrict(names) if names else hypergraph, max_cells)
    return FixedPlan(fixed, names, graph, max(1, min(_MOST, _CELLS // max(1, graph.total_cells))))


class FixedSums:
    r"""The sum of q over the states that agree with one of some settings of a few variables.

    .. math:: \log Z \ge \log \sum_{c \in S} \sum_{x : x_C = c} \prod_E \exp \theta^E_{x_E}

    The variables C are separators of the graph, so that the inner sums are exact. Settings come from states that are
    likely; where few of them hold most of the probability the bound is tight.

    Args:
        model: one model, without a batch.
        max_cells: tables of mini-buckets; those of exact sums may have 16 times as many cells, up to 2^20.
    """

    def __init__(self, model: LogLinearEnergy, max_cells: int) -> None:
        self.plan = fixed_plan(model.hypergraph, max_cells)
        self._sums: dict[tuple[int, ...], float] = {}
        self._slack = 0.0

    @property
    def is_feasible(self) -> bool:
        """Whether tables are small enough beside the fixed variables."""
        return self.plan.graph.is_exact

    @property
    def bound(self) -> float:
        """The log of the sum so far, rounded downward."""
        if not self._sums:
            return -math.inf
        total = float(np.logaddexp.reduce(list(self._sums.values())))
        return total - self._slack - _ROUNDING * (1.0 + abs(total)) if total > -math.inf else total

    @property
    def settings(self) -> torch.Tensor:
        """Settings that were summed and are possible, long (n, fixed variables), the largest sum first."""
        ranked = sorted((c for c in self._sums if self._sums[c] > -math.inf), key=lambda c: -self._sums[c])
        return torch.tensor(ranked, dtype=torch.long).reshape(len(ranked), len(self.plan.fixed))

    def sums(self, model: LogLinearEnergy, settings: torch.Tensor) -> torch.Tensor:
        """Log sums (n,) beside settings (n, fixed variables), differentiable in the tables."""
        if self.plan.names:
            rest, constant = model.condition({name: settings[:, k] for k, name in enumerate(self.plan.names)})
            tables = rest.tables
        else:
            tables, constant = model.tables.expand(len(settings), -1), torch.zeros(1, dtype=torch.float64)
        values, slopes = list[float](), list[torch.Tensor]()
        for row in tables.detach().numpy():
            sweeps = Sweeps(self.plan.graph, row, True)
            next(sweeps.passes(1))
            values.append(sweeps.best)
            self._slack = max(self._slack, sweeps.slack)
            if tables.requires_grad:
                slopes.append(torch.from_numpy(sweeps.eta))
        log_sums = torch.tensor(values, dtype=torch.float64)
        if slopes:
            number, eta = log_sums, torch.stack(slopes)
            log_sums = log_z_with_gradient(tables, lambda _: (number, eta), lambda t: once(t, eta))
        return constant + log_sums

    def slopes(self, model: LogLinearEnergy) -> torch.Tensor:
        """Gradient of the bound in the tables, (num_terms,): means beside the settings, by their shares of the sum."""
        settings, slopes = self.settings, torch.zeros_like(model.tables)
        shares = torch.tensor([self._sums[tuple(row)] for row in settings.tolist()], dtype=slopes.dtype).softmax(0)
        parts = zip(settings.split(self.plan.most), shares.split(self.plan.most), strict=True)
        for some, weights in parts if len(settings) else ():
            with torch.enable_grad():
                leaf = model.tables.detach().requires_grad_()
                total = self.sums(LogLinearEnergy._trusted(model.hypergraph, leaf), some) @ weights
            slopes += torch.autograd.grad(total, leaf)[0]
        return slopes

    @torch.no_grad()
    def raise_bound(self, model: LogLinearEnergy, states: torch.Tensor, log_probs: torch.Tensor) -> float:
        """Sum beside the settings of the likeliest of some states (n, d), then beside neighbours of the best one."""
        best: dict[tuple[int, ...], float] = {}
        for row, value in zip(states[:, list(self.plan.fixed)].tolist(), log_probs.tolist(), strict=True):
            best[tuple(row)] = max(value, best.get(tuple(row), -math.inf))
        wanted = sorted(best, key=lambda c: -best[c])[: self.plan.most]
        cards = [model.domain.cardinalities[v] for v in self.plan.fixed]
        for _ in range(_ROUNDS):
            new = [c for c in wanted if c not in self._sums][: self.plan.most]
            if not new:
                break
            settings = torch.tensor(new, dtype=torch.long).reshape(len(new), len(cards))
            self._sums.update(zip(new, self.sums(model, settings).tolist(), strict=True))
            top = max(self._sums, key=self._sums.__getitem__)
            wanted = [
                (*top[:k], level, *top[k + 1 :])
                for k in range(len(cards))
                for level in range(cards[k])
                if level != top[k]
            ]
        return self.bound
