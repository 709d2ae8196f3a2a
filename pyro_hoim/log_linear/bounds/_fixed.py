"""Lower bounds of log Z from a few states of a few variables, beside which the others are summed exactly."""

from __future__ import annotations

import math

import torch

from ...core.autograd import log_sum_exp
from ..energy import LogLinearEnergy
from ..exact.elimination import VariableElimination
from ._cutset import cutset

_ROUNDS = 3
_MOST = 64  # states of the fixed variables that are summed at once
_CELLS = 2**27  # of all tables of one round, about a second
_WIDER = 2**4  # tables that the exact method may form, times those of the mini-buckets


class FixedSums:
    r"""The sum of q over the states that agree with one of some settings of a few variables.

    .. math:: \log Z \ge \log \sum_{c \in S} \sum_{x : x_C = c} \prod_E \exp \theta^E_{x_E}

    The variables C are separators of the graph, so that the inner sums are exact. Settings come from states that are
    likely; where few of them hold most of the probability the bound is tight.

    Args:
        model: one model, without a batch.
        max_cells: tables of the exact sums.
    """

    def __init__(self, model: LogLinearEnergy, max_cells: int) -> None:
        self.fixed = cutset(model.hypergraph, max_cells)
        self.names = [model.domain.names[v] for v in self.fixed]
        self.backend = VariableElimination(max_cells=max_cells * _WIDER, max_slices=1)
        self.plan = self.backend.plan(model.hypergraph, evidence_names=self.names)
        self.most = max(1, min(_MOST, _CELLS // max(1, self.plan.total_cells)))
        self._sums: dict[tuple[int, ...], float] = {}

    @property
    def is_feasible(self) -> bool:
        """Whether the exact method runs."""
        return self.plan.feasible

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

    def sums(self, model: LogLinearEnergy, settings: torch.Tensor) -> torch.Tensor:
        """Log sums (n,) beside settings (n, fixed variables), differentiable in the tables."""
        if not self.names:
            return self.backend.log_partition(model).value.expand(len(settings))
        evidence = {name: settings[:, k] for k, name in enumerate(self.names)}
        rest, constant = model.condition(evidence)
        return constant + self.backend.log_partition(rest).value

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
            found = self.sums(model, torch.tensor(new, dtype=torch.long).reshape(len(new), len(self.fixed)))
            self._sums.update(zip(new, found.tolist(), strict=True))
            top = max(self._sums, key=self._sums.__getitem__)
            wanted = [
                (*top[:k], level, *top[k + 1 :])
                for k in range(len(cards))
                for level in range(cards[k])
                if level != top[k]
            ]
        return self.bound
