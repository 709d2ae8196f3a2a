"""One small instance of every law and of what else keeps tensors, on names of its own, so that nothing is cached yet.

A maker takes a prefix of the names, and whether the parameters require a gradient; it returns an object, its parameters
and its quantities, functions of the object that give tensors which are the same whatever the names.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from pyro_hoim import Domain, InteractionHypergraph, Observations, Variable
from pyro_hoim.boltzmann import BoltzmannMachine, MachineStructure, RestrictedBoltzmannMachine
from pyro_hoim.core import Law
from pyro_hoim.dependency_network import DependencyConditionals, DependencyNetwork, TableConditional
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRoot,
    IndicatorFamily,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.inference.structure.prior import StructurePrior
from pyro_hoim.information import Projections
from pyro_hoim.log_linear import (
    AnnealedImportance,
    BucketImportance,
    DiaconisYlvisaker,
    HierarchicalLogLinear,
    LogLinearStatistics,
    MatrixEnumeration,
    MiniBuckets,
    SymmetricInteractionTensor,
    VariableElimination,
    fit,
    statistics_of,
)

Quantities = dict[str, Callable[[Any], torch.Tensor]]


class Made(NamedTuple):
    """An object with its parameters and quantities."""

    law: Any
    parameters: tuple[torch.Tensor, ...]
    quantities: Quantities


def _names(prefix: str, number: int) -> list[str]:
    return [f"{prefix}{k}" for k in range(number)]


def _finite(prefix: str, *cards: int) -> Domain:
    return Domain.from_cardinalities(dict(zip(_names(prefix, len(cards)), cards, strict=True)))


def _theta(size: int, grad: bool, shift: float = 0.0) -> torch.Tensor:
    return (torch.linspace(-0.4, 0.5, size, dtype=torch.float64) + shift).requires_grad_(grad)


_CODES = torch.tensor([[0, 0, 0], [1, 1, 1]])
_NUMBERS = torch.tensor([[1.0, 0.0], [2.0, 1.0]], dtype=torch.float64)

FINITE: Quantities = {
    "log_prob": lambda law: law.log_prob(_CODES[:, : len(law.domain)]),
    "table": lambda law: law.log_prob_table,
    "log_partition": lambda law: law.log_partition.value,
    "mean": lambda law: law.mean,
    "variance": lambda law: law.variance,
    "expand": lambda law: law.expand([2]).log_prob(_CODES[:, : len(law.domain)]),
    "states": lambda law: law.log_prob(law.enumerate_support()),
}
LOG_LINEAR = FINITE | {
    "entropy": lambda law: law.entropy(),
    "eta": lambda law: law.eta,
    "pseudo": lambda law: law.log_pseudo_prob(_CODES[:, : len(law.domain)]),
    "condition": lambda law: law.condition({law.domain.names[0]: 1}).log_partition.value,
    "marginal": lambda law: law.marginal(law.domain.names[:1]).probs,
}
ROOT: Quantities = {
    "log_prob": lambda law: law.log_prob(_NUMBERS),
    "log_partition": lambda law: law.log_partition.value,
    "mean": lambda law: law.mean,
    "variance": lambda law: law.variance,
    "expectations": lambda law: law.expectations,
    "pseudo": lambda law: law.log_pseudo_prob(_NUMBERS),
    "expand": lambda law: law.expand([2]).log_prob(_NUMBERS),
}


def _log_linear(prefix: str, grad: bool, coding: Any = None, partition: Any = None) -> Made:
    graph = InteractionHypergraph.from_order(_finite(prefix, 2, 3, 2), 2)
    theta = _theta(graph.num_parameters, grad)
    quantities = LOG_LINEAR
    if partition is not None and not partition.is_exact:  # differentiable once
        quantities = {name: LOG_LINEAR[name] for name in ("log_prob", "table", "log_partition", "pseudo", "condition")}
    return Made(HierarchicalLogLinear(graph, theta, coding=coding, partition=partition), (theta,), quantities)


def _statistics(prefix: str, grad: bool) -> Made:
    graph = InteractionHypergraph.from_order(_finite(prefix, 2, 3), 2)
    theta = _theta(graph.num_parameters, grad)
    codes = torch.tensor([[0, 0], [1, 2], [1, 1]])
    counts = statistics_of(codes, graph).double()
    quantities: Quantities = {
        "log_prob": lambda law: law.log_prob(counts),
        "mean": lambda law: law.mean,
        "variance": lambda law: law.variance,
        "support": lambda law: law.support.check(counts).double(),
    }
    return Made(LogLinearStatistics(graph, theta, 3), (theta,), quantities)


def _conjugate(prefix: str, grad: bool, *edges: str) -> Made:
    domain = _finite(prefix, 2, 2, 2)
    names = [[prefix + k for k in edge] for edge in edges]
    graph = InteractionHypergraph(domain, names, closure=True)
    n0 = torch.tensor(2.0, dtype=torch.float64, requires_grad=grad)
    law = DiaconisYlvisaker.uniform(graph, n0)
    theta = _theta(graph.num_parameters, False)
    quantities: Quantities = {"log_prob": lambda law: law.log_prob(theta), "mode": lambda law: law.mode}
    return Made(law, (n0,), quantities)


def _machine(prefix: str, grad: bool) -> Made:
    """A triangle of visible variables, which no layer sum covers."""
    domain = _finite(prefix, 2, 2, 2)
    a, b, c = domain.names
    structure = MachineStructure(domain, [f"{prefix}h"], [(a, b), (b, c), (a, c), (a, f"{prefix}h")])
    theta = _theta(structure.num_parameters, grad)
    return Made(BoltzmannMachine(structure, theta), (theta,), FINITE)


def _restricted(prefix: str, grad: bool) -> Made:
    parts = _theta(3, grad), _theta(2, grad), (_theta(6, False).reshape(3, 2) + 0.3).requires_grad_(grad)
    return Made(RestrictedBoltzmannMachine(_finite(prefix, 2, 2, 2), *parts), parts, FINITE)


def _root(prefix: str, grad: bool, family: Any, psi: tuple[float, ...], kind: str = "count") -> Made:
    a, b = _names(prefix, 2)
    domain = Domain([Variable(a, kind=kind), Variable(b, kind=kind)])
    structure = RootStructure.simplified(domain, [(a, b)])
    if family.name == "gaussian":
        structure = RootStructure.complete(domain, 2)
    given = torch.tensor(psi, dtype=torch.float64, requires_grad=grad)
    return Made(GeneralizedRoot(structure, given, family), (given,), ROOT)


def _mixture(prefix: str, grad: bool, families: tuple[Any, ...], sets: list[tuple[int, ...]]) -> Made:
    """A root model with a family for every variable; single terms of numbers outweigh all others."""
    names = _names(prefix, len(families))
    domain = Domain([Variable(name, kind=family.kind) for name, family in zip(names, families, strict=True)])
    structure = RootStructure.mixed(domain, [tuple(names[s] for s in members) for members in sets])
    psi = torch.linspace(-0.2, 0.3, structure.num_terms, dtype=torch.float64)
    for s, family in enumerate(families):
        if not family.is_discrete:
            psi[s] = -1.0
    rows = torch.tensor([[1.0, 0.0, 2.0, 0.5], [0.0, 1.0, 1.0, 1.5]], dtype=torch.float64)[:, : len(families)]
    quantities = {name: use for name, use in ROOT.items() if name not in ("log_prob", "pseudo", "expand")}
    quantities |= {
        "log_prob": lambda law: law.log_prob(rows),
        "pseudo": lambda law: law.log_pseudo_prob(rows),
        "expand": lambda law: law.expand([2]).log_prob(rows),
        "condition": lambda law: law.energy_model.condition({law.domain.names[-1]: 1})[0].energy(rows[:, :-1]),
    }
    given = psi.requires_grad_(grad)
    return Made(GeneralizedRoot(structure, given, families), (given,), quantities)


def _network(prefix: str, grad: bool) -> Made:
    domain = _finite(prefix, 2, 2)
    a, b = domain.names
    tables = [torch.tensor([[0.4, 0.6], [0.7, 0.3]], dtype=torch.float64, requires_grad=grad) for _ in range(2)]
    nodes = [TableConditional(domain, a, [b], tables[0]), TableConditional(domain, b, [a], tables[1])]
    rows = torch.tensor([[0, 1], [1, 1]])
    quantities: Quantities = {"pseudo": lambda law: law.log_pseudo_prob(rows)}
    if not grad:  # the law of a network has no gradient
        quantities |= {name: FINITE[name] for name in ("log_prob", "table", "mean", "variance", "expand", "states")}
    return Made(DependencyNetwork(DependencyConditionals(nodes)), tuple(tables), quantities)


def _structures(prefix: str, grad: bool) -> Made:
    del grad  # it has no parameters
    law = StructurePrior(_finite(prefix, 2, 2, 2), inclusion=0.3)
    members = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
    quantities: Quantities = {
        "log_prob": lambda law: law.log_prob(members),
        "probs": lambda law: law.probs,
        "inclusion": lambda law: law.marginal_inclusion,
    }
    return Made(law, (), quantities)


def _tensor(prefix: str, grad: bool) -> Made:
    del prefix  # it has no names
    theta = _theta(7, grad)
    ones = torch.ones(3, dtype=torch.float64)
    quantities: Quantities = {
        "entries": lambda tensor: tensor.entries,
        "dense": lambda tensor: tensor.dense,
        "contract": lambda tensor: tensor.contract(ones),
    }
    return Made(SymmetricInteractionTensor(theta, 3, 3), (theta,), quantities)


def _fit(prefix: str, grad: bool) -> Made:
    del grad  # a fit has none
    graph = InteractionHypergraph.from_order(_finite(prefix, 2, 3), 2)
    data = Observations.from_table(graph.domain, np.array([[9, 2, 5], [4, 10, 3]]))
    names = ["tables", "probs", "information", "covariance", "mean_statistics"]
    quantities: Quantities = {name: attrgetter(name) for name in names}
    quantities["energy"] = lambda found: found.model.energy(_CODES[:, :2])
    return Made(fit(graph, data), (), quantities)


def _projections(prefix: str, grad: bool) -> Made:
    del grad  # a table has none
    domain = _finite(prefix, 2, 2)
    graph = InteractionHypergraph.from_order(domain, 1)
    quantities: Quantities = {
        "probs": lambda known: known.project(graph).probs,
        "marginal": lambda known: known.marginal(domain.names[:1]).law.probs,
    }
    return Made(Projections(Law(domain, [[0.4, 0.2], [0.1, 0.3]])), (), quantities)


MAKERS: dict[str, Callable[[str, bool], Made]] = {
    "log-linear": _log_linear,
    "corner": lambda prefix, grad: _log_linear(prefix, grad, "corner"),
    "balanced": lambda prefix, grad: _log_linear(prefix, grad, "free", VariableElimination()),
    "matrix": lambda prefix, grad: _log_linear(prefix, grad, None, MatrixEnumeration()),
    "annealed": lambda prefix, grad: _log_linear(
        prefix, grad, None, AnnealedImportance(num_chains=16, num_temperatures=40, seed=1)
    ),
    "bounds": lambda prefix, grad: _log_linear(prefix, grad, None, MiniBuckets(max_cells=6, passes=2, orders=2)),
    "buckets": lambda prefix, grad: _log_linear(
        prefix, grad, None, BucketImportance(max_cells=6, passes=2, orders=2, num_draws=100, seed=1)
    ),
    "statistics": _statistics,
    "conjugate": lambda prefix, grad: _conjugate(prefix, grad, "01", "12"),
    "conjugate, not decomposable": lambda prefix, grad: _conjugate(prefix, grad, "01", "12", "02"),
    "machine": _machine,
    "restricted machine": _restricted,
    "poisson": lambda prefix, grad: _root(prefix, grad, PoissonFamily(), (0.1, 0.2, -0.3)),
    "truncated poisson": lambda prefix, grad: _root(prefix, grad, TruncatedPoissonFamily(4), (0.1, 0.2, 0.3)),
    "gaussian": lambda prefix, grad: _root(prefix, grad, GaussianFamily(), (-1.0, -0.8, 0.1, 0.2, 0.2), "real"),
    "category, count, number": lambda prefix, grad: _mixture(
        prefix,
        grad,
        (IndicatorFamily("c"), IndicatorFamily("c"), PoissonFamily(), GaussianFamily()),
        [(0, 2), (1, 3), (2, 3)],
    ),
    "0/1, number": lambda prefix, grad: _mixture(
        prefix, grad, (TruncatedPoissonFamily(1), TruncatedPoissonFamily(1), ExponentialFamily()), [(0, 1), (1, 2)]
    ),
    "network": _network,
    "structures": _structures,
    "tensor": _tensor,
    "fit": _fit,
    "projections": _projections,
}
