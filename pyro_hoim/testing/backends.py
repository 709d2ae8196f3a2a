"""The conformance suite of exact partition backends: every quantity against enumeration in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..log_linear.energy import LogLinearEnergy
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .assertions import assert_close, assert_equal, assert_exact_law, required_draws
from .conformance import run_cases
from .oracles import (
    count_states,
    enumerate_codes,
    exact_covariance,
    exact_log_partition,
    exact_statistics,
    exact_table,
    random_tables,
)

SCALES = (0.0, 1.0, 30.0)
"""Standard deviations of theta that every identity must hold at, in nats."""


def standard_hypergraphs() -> dict[str, InteractionHypergraph]:
    """Small structures every backend must handle, by name.

    Chain, tree, cycle, three-way, saturated, disconnected, no edges, an unmentioned variable, one variable, one-state
    variables, the empty domain, and a collection that is not hierarchical.

    Example:
        >>> graphs = standard_hypergraphs()
        >>> len(graphs), [edge for edge in graphs["cycle"].edges if len(edge) > 1]
        (12, [('a', 'b'), ('a', 'e'), ('b', 'c'), ('c', 'd'), ('d', 'e')])
    """
    five = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2, "e": 2})

    def build(domain: Domain, *edges: str, hierarchical: bool = True) -> InteractionHypergraph:
        return InteractionHypergraph(domain, [tuple(e) for e in edges], closure=hierarchical, hierarchical=hierarchical)

    return {
        "chain": build(five, "ab", "bc", "cd", "de"),
        "tree": build(five, "ab", "ac", "cd", "ce"),
        "cycle": build(five, "ab", "bc", "cd", "de", "ae"),
        "three-way": build(five, "abc", "cd", "de"),
        "saturated": build(five, "abcde"),
        "disconnected": build(five, "ab", "cde"),
        "no edges": build(five),
        "unmentioned": build(five, "ab", "d"),
        "one variable": build(Domain.from_cardinalities({"a": 3}), "a"),
        "one state": build(Domain.from_cardinalities({"a": 1, "b": 3, "c": 1}), "abc"),
        "empty domain": build(Domain.from_cardinalities({})),
        "not hierarchical": build(five, "a", "abc", "de", hierarchical=False),
    }


@dataclass(frozen=True)
class BackendCase:
    """An exact backend with one small structure and one scale (in nats) of its tables.

    Example:
        >>> from pyro_hoim.log_linear import Enumeration
        >>> case = BackendCase(Enumeration(), standard_hypergraphs()["chain"], scale=0.0)
        >>> round(float(case.backend.log_partition(case.model()).value), 4)  # log of 48 states
        3.8712
    """

    backend: Any
    hypergraph: InteractionHypergraph
    scale: float = 1.0
    seed: int = 0

    def tables(self, *batch_shape: int) -> torch.Tensor:
        r"""Balanced tables (\*batch_shape, num_terms), float64; the same on every call."""
        if batch_shape not in self._drawn:
            rng = np.random.default_rng(self.seed)
            tables = random_tables(self.hypergraph, rng, scale=self.scale, batch_shape=batch_shape)
            self._drawn[batch_shape] = np.asarray(tables)
        return torch.tensor(self._drawn[batch_shape])

    @cached_property
    def _drawn(self) -> dict[tuple[int, ...], np.ndarray]:
        return {}

    def model(self, *batch_shape: int) -> LogLinearEnergy:
        """The model of :meth:`tables`."""
        return LogLinearEnergy(self.hypergraph, self.tables(*batch_shape))

    def table(self, *batch_shape: int) -> np.ndarray:
        r"""Exact log-probabilities (\*batch_shape, \*cardinalities)."""
        return exact_table(self.hypergraph, self.tables(*batch_shape))


def check_log_partition(case: BackendCase) -> None:
    """Log Z equals enumeration, is declared exact, balanced and without error, and has a cost known before."""
    result = case.backend.log_partition(case.model(2))
    expected = exact_log_partition(case.hypergraph, case.tables(2))
    assert_close(result.value, expected, what="log Z")
    assert_equal((result.kind, result.coding), ("exact", "balanced"), "kind and coding of log Z")
    is_known = case.backend.is_exact, case.backend.plan(case.hypergraph).feasible
    assert_equal(is_known, (True, True), "is_exact, and a feasible plan")


def check_expectations(case: BackendCase) -> None:
    """Expectations equal the marginal tables, and are the gradient of log Z in the tables."""
    expected = exact_statistics(case.hypergraph, case.table(2))
    assert_close(case.backend.expectations(case.model(2)), expected, what="eta")
    tables = case.tables(2).requires_grad_()
    value = case.backend.log_partition(LogLinearEnergy(case.hypergraph, tables)).value
    if value.requires_grad and case.hypergraph.num_terms:
        (gradient,) = torch.autograd.grad(value.sum(), tables)
        assert_close(gradient, expected, what="gradient of log Z")
    elif case.hypergraph.num_terms:
        raise AssertionError("log Z does not depend on the tables through autograd")


def check_hessian(case: BackendCase) -> None:
    """The Hessian of log Z equals the covariance of the statistics, in random directions, where every entry shows."""
    if not case.hypergraph.num_terms:
        return

    def log_z(tables: torch.Tensor) -> torch.Tensor:
        return case.backend.log_partition(LogLinearEnergy(case.hypergraph, tables, validate=False)).value

    tables = case.tables()
    covariance = torch.as_tensor(exact_covariance(case.hypergraph, case.table()))
    for direction in torch.as_tensor(np.random.default_rng(case.seed).normal(size=(2, len(tables)))):
        _, product = torch.autograd.functional.hvp(log_z, tables, direction)
        assert_close(product, covariance @ direction, what="Hessian in a direction")


def check_marginals(case: BackendCase) -> None:
    """Marginals of single names, pairs, all names and none, in the order asked for."""
    names, law = case.hypergraph.domain.names, np.exp(case.table(2))
    wanted = [(), *((name,) for name in names), tuple(reversed(names))]
    if len(names) > 1:
        wanted.append((names[0], names[-1]))
    # Each query in its own order of names.
    for query in wanted:
        positions = [case.hypergraph.domain.index(name) for name in query]
        others = tuple(1 + i for i in range(len(names)) if i not in positions)
        expected = law.sum(axis=others)
        remaining = [i for i in range(len(names)) if i in positions]
        expected = expected.transpose(0, *(1 + remaining.index(i) for i in positions))
        result = case.backend.marginal(case.model(2), query)
        assert_close(result, expected, what=f"marginal {query}")
        logs = case.backend.log_marginal(case.model(2), query)
        assert_close(logs.exp(), expected, what=f"log marginal {query}")


def check_mode(case: BackendCase) -> None:
    """The mode attains the largest unnormalised log-probability, and its value is that state's."""
    states, value = case.backend.mode(case.model(2))
    energies = exact_table(case.hypergraph, case.tables(2), normalised=False)
    assert_close(value, energies.reshape(2, -1).max(1), what="mode value")
    reached = [energies[b][tuple(int(i) for i in states[b])] for b in range(2)]
    assert_close(np.array(reached), value, what="value at the mode")


def check_condition(case: BackendCase) -> None:
    """Log Z of a conditioned model plus its constant is the log of the sum over the compatible states."""
    names = case.hypergraph.domain.names
    if not names:
        return
    name, code = names[-1], case.hypergraph.domain.cardinalities[-1] - 1
    rest, constant = case.model(2).condition({name: code})
    unnormalised = exact_table(case.hypergraph, case.tables(2), normalised=False)[..., code].reshape(2, -1)
    top = unnormalised.max(1)
    expected = np.log(np.exp(unnormalised - top[:, None]).sum(1)) + top
    value = case.backend.log_partition(rest).value + constant
    assert_close(value, expected, what="conditioned log Z")


def check_batch(case: BackendCase) -> None:
    """A batch of tables gives what its members give one by one, in any batch shape."""
    tables = case.tables(2, 3)
    result = case.backend.log_partition(LogLinearEnergy(case.hypergraph, tables)).value
    assert_equal(tuple(result.shape), (2, 3), "shape of log Z of a (2, 3) batch")
    for i in range(2):
        for j in range(3):
            single = case.backend.log_partition(LogLinearEnergy(case.hypergraph, tables[i, j])).value
            assert_close(single, result[i, j], what=f"member {(i, j)}")


def check_samples(case: BackendCase) -> None:
    """Perfect draws follow the exact law, repeat under a generator, and leave global random state alone (seed 3)."""
    cardinalities = case.hypergraph.domain.cardinalities
    size = required_draws(max(2, math.prod(cardinalities)), 0.05)
    # Draws repeat under a generator and leave the global one alone.
    before = torch.random.get_rng_state()
    draws = case.backend.sample(case.model(2), (size,), generator=torch.Generator().manual_seed(3))
    again = case.backend.sample(case.model(2), (size,), generator=torch.Generator().manual_seed(3))
    assert_equal(torch.random.get_rng_state(), before, "global random state, a generator being given")
    assert_equal((tuple(draws.shape), draws.dtype), ((size, 2, len(cardinalities)), torch.long), "shape of draws")
    assert_equal(again, draws, "draws under one seed")
    # Every member of the batch has its own law.
    probs = np.exp(case.table(2)).reshape(2, -1)
    for b in range(2):
        assert_exact_law(count_states(draws[:, b], cardinalities), probs[b] / probs[b].sum(), what=f"member {b}")


def check_float32(case: BackendCase) -> None:
    """Tables in float32 give float32 values that agree with float64 to single precision."""
    model = case.model(2).to(dtype=torch.float32)
    value = case.backend.log_partition(model).value
    assert_equal(value.dtype, torch.float32, "dtype of log Z of float32 tables")
    expected = exact_log_partition(case.hypergraph, model.tables.double())
    assert_close(value.double(), expected, relative=1e-5, what="float32 log Z")
    codes = torch.as_tensor(enumerate_codes(case.hypergraph.domain.cardinalities))[:, None]
    size = max(1.0, float(np.abs(expected).max()))
    total = (-model.energy(codes) - value).exp().sum(0)
    assert_close(total.double(), np.ones(2), relative=1e-5 * size, what="float32 total")


BACKEND_CHECKS: tuple[Callable[[BackendCase], None], ...] = (
    check_log_partition,
    check_expectations,
    check_hessian,
    check_marginals,
    check_mode,
    check_condition,
    check_batch,
    check_samples,
    check_float32,
)
"""Every check of an exact backend, in order of cost."""


def check_backend(
    backend: Any, *, hypergraphs: dict[str, InteractionHypergraph] | None = None, scales: Sequence[float] = SCALES
) -> None:
    """Hold an exact partition backend to enumeration on every standard structure and scale (in nats).

    Every failure is listed in one AssertionError.

    Example:
        >>> from pyro_hoim.log_linear import Enumeration
        >>> graphs = {"one variable": standard_hypergraphs()["one variable"]}
        >>> check_backend(Enumeration(), hypergraphs=graphs, scales=[1.0])
        >>> check_backend(None, hypergraphs=graphs, scales=[1.0])
        Traceback (most recent call last):
        AssertionError: 9 checks failed: one variable, scale 1: check_log_partition: ...
    """
    cases = (
        (f"{name}, scale {scale:g}", BackendCase(backend, hypergraph, scale))
        for name, hypergraph in (standard_hypergraphs() if hypergraphs is None else hypergraphs).items()
        for scale in scales
    )
    run_cases(BACKEND_CHECKS, cases)
