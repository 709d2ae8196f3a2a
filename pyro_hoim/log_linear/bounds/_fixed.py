"""Lower bounds of log Z from a few states of a few variables, beside which the others are summed exactly."""

from __future__ import annotations

import math

import torch

from ...annealing.backend import constant as once
from ...core.autograd import log_sum_exp, log_z_with_gradient
from ..energy import LogLinearEnergy
from ._cutset import cutset
from ._join_graph import join_graph
from ._sweeps import Sweeps

_ROUNDS = 3
_MOST = 64  # states of the fixed variables that are summed at once
_CELLS = 2**26  # of all tables of one round, about half a second
_WIDER, _WIDEST = 2**4, 2**20  # fewer variables are fixed for larger tables, which are cheap up to here


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
        max_cells = max(max_cells, min(_WIDER * max_cells, _WIDEST))
        self.fixed = cutset(model.hypergraph, max_cells)
        self.names = [model.domain.names[v] for v in self.fixed]
        self.graph = join_graph(model.hypergraph.restrict(self.names), max_cells)
        self.most = max(1, min(_MOST, _CELLS // max(1, self.graph.total_cells)))
        self._sums: dict[tuple[int, ...], float] = {}

    @property
    def is_feasible(self) -> bool:
        """Whether tables are small enough beside the fixed variables."""
        return self.graph.is_exact

    @property
    def bound(self) -> float:
        """The log of the sum so far."""
        sums = torch.tensor(list(self._sums.values()), dtype=torch.float64)
        return float(log_sum_exp(sums)) if len(sums) else -math.inf

    @property
    def settings(self) -> torch.Tensor:
        """Settings that were summed and are possible, long (n, fixed variables), the largest sum first."""
        ranked = sorted((c for c in self._sums if self._sums[c] > -math.inf), key=lambda c: -self._sums[c])
        return torch.tensor(ranked, dtype=torch.long).reshape(len(ranked), len(self.fixed))

    def _rest(self, model: LogLinearEnergy, settings: torch.Tensor) -> tuple[LogLinearEnergy, torch.Tensor]:
        """What is left of a model beside settings (n, fixed variables), a batch of n, and constants (n,)."""
        evidence = {name: settings[:, k] for k, name in enumerate(self.names)}
        if not evidence:
            return LogLinearEnergy._trusted(model.hypergraph, model.tables.expand(len(settings), -1)), torch.zeros(1)
        return model.condition(evidence)

    def sums(self, model: LogLinearEnergy, settings: torch.Tensor) -> torch.Tensor:
        """Log sums (n,) beside settings (n, fixed variables), differentiable in the tables."""
        rest, constant = self._rest(model, settings)
        values, slopes = list[float](), list[torch.Tensor]()
        for row in rest.tables.detach().numpy():
            sweeps = Sweeps(self.graph, row, True)
            next(sweeps.passes(1))
            values.append(sweeps.best)
            if rest.tables.requires_grad:
                slopes.append(torch.from_numpy(sweeps.eta))
        log_sums = torch.tensor(values, dtype=torch.float64)
        if slopes:
            eta = torch.stack(slopes)
            log_sums = log_z_with_gradient(rest.tables, lambda _: (log_sums, eta), lambda t: once(t, eta))
        return constant + log_sums

    @torch.no_grad()
    def raise_bound(self, model: LogLinearEnergy, states: torch.Tensor, log_probs: torch.Tensor) -> float:
        """Sum beside the settings of the likeliest of some states (n, d), then beside neighbours of the best one."""
        best: dict[tuple[int, ...], float] = {}
        for row, value in zip(states[:, list(self.fixed)].tolist(), log_probs.tolist(), strict=True):
            best[tuple(row)] = max(value, best.get(tuple(row), -math.inf))
        wanted = sorted(best, key=lambda c: -best[c])[: self.most]
        cards = [model.domain.cardinalities[v] for v in self.fixed]
        for _ in range(_ROUNDS):
            new = [c for c in wanted if c not in self._sums][: self.most]
            if not new:
                break
            log_sums = self.sums(model, torch.tensor(new, dtype=torch.long).reshape(len(new), len(self.fixed)))
            self._sums.update(zip(new, log_sums.tolist(), strict=True))
            top = max(self._sums, key=self._sums.__getitem__)
            wanted = [
                (*top[:k], level, *top[k + 1 :])
                for k in range(len(cards))
                for level in range(cards[k])
                if level != top[k]
            ]
        return self.bound
