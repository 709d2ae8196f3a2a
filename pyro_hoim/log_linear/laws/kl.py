r"""Kullback-Leibler divergences, registered for :func:`torch.distributions.kl_divergence`.

.. math:: D(p, q) = \sum_{S \in \mathcal I_p \cup \mathcal I_q} \eta_p^S \cdot (\theta_p^S - \theta_q^S)
    - \log Z_p + \log Z_q

Exact where the backends of both laws are. With an annealed backend the estimates of log Z and eta are put in: the
result is biased in O(1 / chains), has the errors of ``log_partition`` of both laws, and may be a little below zero.
"""

from __future__ import annotations

import torch
from torch.distributions import kl_divergence, register_kl

from ...errors import refused
from .law import HierarchicalLogLinear, exact_backend, extended_expectations
from .statistics import LogLinearStatistics

__all__: list[str] = []


@register_kl(HierarchicalLogLinear, HierarchicalLogLinear)
def _kl_log_linear(p: HierarchicalLogLinear, q: HierarchicalLogLinear) -> torch.Tensor:
    """D(p, q) in nats over the union of the edges, (*broadcast batch)."""
    if p.domain != q.domain:
        names = f"{p.domain.names} and {q.domain.names}"
        problem = f"the laws have different domains, {names} (names, labels and order must agree)"
        raise refused("kl_divergence", problem, code="other-domain")
    if not (p._law.is_finite and q._law.is_finite):
        raise refused("kl_divergence", "theta holds NaN or an infinity", code="not-finite")
    common = (p._law.eta * p._law.tables).sum(-1) - p._law.log_partition.value
    # Expectation under p of the sum of q's tables
    slices, edges = p.hypergraph.term_slices, q.hypergraph.edges
    missing = [edge for edge in edges if edge not in slices]
    eta = {edge: p._law.eta[..., slices[edge]] for edge in edges if edge in slices}
    if missing:
        backend = exact_backend(p.partition) if p._law.draws_exactly else p.partition
        if backend.plan(p.hypergraph.add_edges(missing, hierarchical=False)).feasible:
            flat, where = extended_expectations(p._law, missing)
            eta = {edge: flat[..., where[edge]] for edge in edges}
        else:
            eta |= {edge: backend.marginal(p._law.model, edge).flatten(-len(edge)) for edge in missing}
    total = p._law.theta.new_zeros(())
    for edge, where in q.hypergraph.term_slices.items():
        total = total + (eta[edge] * q._law.tables[..., where]).sum(-1)
    cross = total - q._law.log_partition.value
    shape = torch.broadcast_shapes(p.batch_shape, q.batch_shape)
    return (common - cross).expand(shape)


@register_kl(LogLinearStatistics, LogLinearStatistics)
def _kl_statistics(p: LogLinearStatistics, q: LogLinearStatistics) -> torch.Tensor:
    """N times the divergence of one row; the statistic must be the same (hypergraph and total_count)."""
    if p.hypergraph != q.hypergraph:
        raise refused("kl_divergence", "the statistics belong to different hypergraphs", code="other-domain")
    if not bool((p.total_count == q.total_count).all()):
        raise refused("kl_divergence", "the numbers of rows differ", code="other-domain")
    return p.total_count * kl_divergence(p.rows, q.rows)
