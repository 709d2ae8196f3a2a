"""What every interaction of a fitted model is worth: the loss of removing it, exactly or bounded from samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from ..core.law import Law
from ..core.rows import check_count
from ..errors import check_type, none_received, unexpected, wrong_type
from ..log_linear.auto import Auto
from ..log_linear.coding import check_balanced_family
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.given import check_energy
from ..log_linear.impossible import check_possible
from ..log_linear.synthetic import synthesise
from ..runs.arguments import checked_seed, received
from ..structure.hypergraph import InteractionHypergraph
from .projection import project, scale_margins

__all__ = ["RemovalValue", "removal_values", "with_supersets"]

_MAX_EXACT_ENTRIES = 2**19
_MIN_ESS = 50.0
_IPF_STEPS = 500
_IPF_TOLERANCE = 1e-9


@dataclass(frozen=True)
class RemovalValue:
    """Information that a model loses with one interaction, in nats a row.

    Attributes:
        edge: the interaction.
        removed: the interactions that go: the edge and all that contain it.
        value: see :func:`removal_values`.
        kind: ``exact``; ``upper bound`` where a projection did not converge, so that the minimum may be lower; or
            ``estimated upper bound``.
        std_error: Monte Carlo standard error of an estimated bound, infinite where the weights of the samples do not
            support one; 0 otherwise.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
        >>> found = removal_values(model, [("a",)])[0]
        >>> found.removed, found.kind, found.std_error
        ((('a',), ('a', 'b')), 'exact', 0.0)
    """

    edge: tuple[str, ...]
    removed: tuple[tuple[str, ...], ...]
    value: float
    kind: Literal["exact", "upper bound", "estimated upper bound"]
    std_error: float


def with_supersets(hypergraph: InteractionHypergraph, edges: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The given edges and all that contain one of them, in the order of the hypergraph; others and none are refused."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    wanted = [_names(e) for e in edges]
    if not wanted:
        raise none_received("edges", "at least one interaction")
    kept = set(hypergraph.remove_edges(wanted, hierarchical=hypergraph.is_hierarchical).edges)
    return tuple(e for e in hypergraph.edges if e not in kept or any(set(w) <= set(e) for w in wanted))


def _names(edge: Sequence[str]) -> tuple[str, ...]:
    if isinstance(edge, str):
        raise wrong_type("edges", "sets of names", hint=f"write ({edge!r},)", received=f"the string {edge!r}")
    return tuple(edge)


def removal_values(
    model: LogLinearEnergy,
    edges: Iterable[Sequence[str]] | None = None,
    *,
    num_samples: int = 4096,
    seed: int = 0,
    samples: torch.Tensor | None = None,
    exact: bool | None = None,
) -> list[RemovalValue]:
    r"""Value of interactions given all others: the refined information of S added last (paper 1, eqs. 5 and C.1).

    .. math:: I_S = \min_{r \in \mathcal F_{-S}} D(q \| r) \;\le\; \min_g D\!\left(q \,\middle\|\,
        \tfrac{1}{Z_g} q \, e^{-f_S + g}\right), \qquad f_S = \sum_{T \supseteq S} \theta^T

    The family without S has no interaction that contains S. Small models: the exact minimum, by projecting the model's
    own table (``exact``). Large ones: S and what contains it is set to zero and only the interactions inside S are
    refitted (g is a sum of functions of proper subsets of S that are in the model), which bounds the exact value from
    above; with S of one variable nothing is refitted. The bound needs the law of q only,

    .. math:: \mathbb E_q[f_S - g] + \log \mathbb E_q[\exp(-f_S + g)],

    estimated from samples of q, each summed over its conditional law of one variable of S in turn (Rao-Blackwell).
    All others are held, so the exact value may be far below the bound where other interactions can take over.

    Args:
        model: one model.
        edges: the interactions to value; all with a free parameter when None.
        num_samples: states to draw for large models.
        seed: seed of those draws.
        samples: states of the model to use in place of drawing them, long (n, d).
        exact: True: exact always; False: bounds always; None: exact where states times parameters are at most 2^19.

    Raises:
        InputError, InputTypeError: no single model, an edge that it does not have, samples or numbers that are not so,
            ``exact`` for a model that is not hierarchical, or bounds for one with impossible states.
        IntractableError: ``exact`` beyond reach.

    Warns:
        ConvergenceWarning: a projection did not converge; the value is then an ``upper bound``.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
        >>> (row,) = removal_values(model, [("a", "b")])
        >>> row.kind, round(row.value, 4)
        ('exact', 0.1109)
    """
    check_energy(model)
    check_count(num_samples, "num_samples", 2)
    seed = checked_seed(seed)
    if model.batch_shape:
        found = f"a batch of shape {tuple(model.batch_shape)}"
        raise unexpected("model", "one model", received=found, code="wrong-shape")
    graph = model.hypergraph
    check_balanced_family(graph, "the value of an interaction")
    if edges is None:
        cards = dict(zip(graph.domain.names, graph.domain.cardinalities, strict=True))
        edges = [e for e in graph.edges if all(cards[n] > 1 for n in e)]
    wanted = [graph.domain.project(_names(e)).names for e in edges]
    groups = [with_supersets(graph, [e]) for e in wanted]
    if exact is None:
        exact = graph.is_hierarchical and graph.domain.num_states * max(1, graph.num_parameters) <= _MAX_EXACT_ENTRIES
    if exact:
        if not graph.is_hierarchical:
            raise unexpected("exact", "a hierarchical model", hint="exact=False gives bounds for any", code="no-method")
        return _exact_values(model, wanted, groups)
    if not wanted:
        return []
    check_possible(model, "model")
    if samples is not None and (not isinstance(samples, torch.Tensor) or samples.is_floating_point()):
        raise wrong_type("samples", "a tensor of level codes", received=received(samples))
    states: torch.Tensor = synthesise(model, num_samples, seed).codes if samples is None else samples
    if states.dim() != 2 or states.shape[1] != len(graph.domain) or len(states) < 2:
        expected = f"at least two states of {len(graph.domain)} variables"
        raise unexpected("samples", expected, received=tuple(states.shape), code="wrong-shape")
    if samples is not None:
        model.energy(states)  # refuses codes that are no level
    conditionals = {
        name: model.block_conditional([name], states, validate=False).exp().double()
        for name in sorted({n for e in wanted for n in e})
    }
    return [_bound(model, e, gone, states, conditionals) for e, gone in zip(wanted, groups, strict=True)]


def _exact_values(
    model: LogLinearEnergy, edges: Sequence[tuple[str, ...]], groups: Sequence[tuple[tuple[str, ...], ...]]
) -> list[RemovalValue]:
    """Divergences from the projections of the model's own table; bounds where these did not converge."""
    graph = model.hypergraph
    law = Law(graph.domain, Auto().marginal(model.to(dtype=torch.float64), graph.domain.names))
    found = [project(law, graph.remove_edges([edge])) for edge in edges]
    return [
        RemovalValue(edge, gone, nearest.divergence, "exact" if nearest.is_converged else "upper bound", 0.0)
        for edge, gone, nearest in zip(edges, groups, found, strict=True)
    ]


def _bound(
    model: LogLinearEnergy,
    edge: tuple[str, ...],
    gone: tuple[tuple[str, ...], ...],
    samples: torch.Tensor,
    conditionals: dict[str, torch.Tensor],
) -> RemovalValue:
    """Estimated bound of one interaction."""
    domain = model.domain
    shape = [domain[n].cardinality for n in edge]
    cell = torch.cat([_cells(model, edge, samples, name) for name in edge], 1)  # (n, sum of levels), as those below
    prob = torch.cat([conditionals[name] / len(edge) for name in edge], 1)
    f = torch.cat([_strength(model, gone, samples, name) for name in edge], 1)
    size = math.prod(shape)
    num = len(samples)
    shift = float(f.min())
    weight = prob * torch.exp(shift - f)
    margin = torch.zeros(size, dtype=torch.float64).index_add_(0, cell.flatten(), prob.flatten()) / num
    base = torch.zeros(size, dtype=torch.float64).index_add_(0, cell.flatten(), weight.flatten()) / num
    inside = [e for e in model.hypergraph.edges if set(e) < set(edge)]
    largest = [e for e in inside if not any(set(e) < set(o) for o in inside)]
    axes = [[edge.index(n) for n in e] for e in largest]
    g = _refit(base.reshape(shape).numpy(), margin.reshape(shape).numpy(), axes)
    tilt = torch.from_numpy(g.reshape(-1))[cell]
    weight = weight * torch.exp(tilt)
    mean_weight = weight.sum(1)
    log_mean = float(mean_weight.mean().log())
    gain = (prob * (f - tilt)).sum(1)
    influence = gain + mean_weight / mean_weight.mean()
    ess = float(mean_weight.sum() ** 2 / mean_weight.square().sum())
    error = float(influence.std()) / math.sqrt(num) if ess >= min(_MIN_ESS, num / 2) else math.inf
    value = max(float(gain.mean()) + log_mean - shift, 0.0)  # not negative but for rounding; in this order NaN stays
    return RemovalValue(edge, gone, value, "estimated upper bound", error)


def _strength(
    model: LogLinearEnergy, gone: Sequence[tuple[str, ...]], samples: torch.Tensor, name: str
) -> torch.Tensor:
    """Sum of the tables of ``gone`` at the samples with every level of ``name``: (n, levels)."""
    total = torch.zeros(len(samples), model.domain[name].cardinality, dtype=torch.float64)
    for edge in gone:
        table = model.tables[model.hypergraph.term_slices[edge]].double()
        total += table[_cells(model, edge, samples, name)]
    return total


def _cells(model: LogLinearEnergy, edge: Sequence[str], samples: torch.Tensor, name: str) -> torch.Tensor:
    """Positions in the table of an edge at the samples with every level of ``name``: (n, levels)."""
    domain = model.domain
    levels = torch.arange(domain[name].cardinality)
    index = torch.zeros(len(samples), len(levels), dtype=torch.long)
    for n in edge:
        index = index * domain[n].cardinality + (levels if n == name else samples[:, domain.index(n), None])
    return index


def _refit(base: np.ndarray, target: np.ndarray, subsets: Sequence[Sequence[int]]) -> np.ndarray:
    """Log factors g over the subsets of axes that give base * exp(g) the margins of target; every g gives a bound."""
    start = base / base.sum()
    if not subsets:
        return np.zeros_like(base)
    found, _, _ = scale_margins(target, subsets, _IPF_TOLERANCE, _IPF_STEPS, start)
    return np.log(np.divide(found, start, out=np.ones_like(base), where=(found > 0) & (start > 0)))
