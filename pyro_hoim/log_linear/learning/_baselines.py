"""Models of independent variables that a learned model is held against. Private to the analysis."""

from __future__ import annotations

import torch

from ...data.observations import Observations
from ...structure.hypergraph import InteractionHypergraph
from ..energy import LogLinearEnergy
from ..training.exact import ExactTrainer
from ..training.ridge import InteractionRidge

_SMOOTHING = 0.5


def frequency_model(rows: Observations) -> LogLinearEnergy:
    """Single variables with their frequencies, half a count added to every level."""
    domain = rows.domain
    graph = InteractionHypergraph(domain, [(name,) for name in domain.names])
    tables = torch.zeros(graph.num_terms, dtype=torch.float64)
    for edge, where in graph.term_slices.items():
        logs = (rows.marginal_counts([edge]) + _SMOOTHING).log()
        tables[where] = logs - logs.mean()
    return LogLinearEnergy(graph, tables)


def one_body_model(rows: Observations, ridge: InteractionRidge) -> LogLinearEnergy:
    """Single variables trained under a penalty, exactly."""
    graph = InteractionHypergraph(rows.domain, [(name,) for name in rows.domain.names])
    trainer = ExactTrainer(rows, graph, penalty=ridge)
    trainer.train()
    return LogLinearEnergy(graph, trainer.tables)
