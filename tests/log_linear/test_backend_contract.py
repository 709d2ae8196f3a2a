"""What every backend does alike, exact or not: no names, empty batches, models without a state, and no model at all."""

import math
import warnings

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.errors import ConvergenceWarning, InputTypeError, IntractableError
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Auto,
    BucketImportance,
    Enumeration,
    ImpossibleStates,
    MatrixEnumeration,
    MiniBuckets,
    PossibleStates,
    VariableElimination,
)
from pyro_hoim.log_linear.bounds.annealed import BoundedAnnealing
from pyro_hoim.testing import assert_close, raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
ANNEALED = AnnealedImportance(num_chains=64, num_temperatures=20, seed=0, engine="torch")
BUCKETS = BucketImportance(max_cells=6, seed=0, num_draws=512)
BACKENDS = [
    Enumeration(),
    MatrixEnumeration(),
    VariableElimination(),
    Auto(),
    PossibleStates(Auto(), ImpossibleStates.of_combinations(DOMAIN, [{"a": 1, "b": 1}])),
    MiniBuckets(max_cells=6),
    BUCKETS,
    ANNEALED,
    BoundedAnnealing(BUCKETS, ANNEALED),
]
EVERY = pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: type(backend).__name__)


def model(*batch):
    theta = torch.linspace(-1, 1, GRAPH.num_terms, dtype=torch.float64)
    return LogLinearEnergy(GRAPH, theta.expand(*batch, -1).clone())


def lost(tables):
    """The tables with no possible state."""
    tables = tables.clone()
    tables[..., GRAPH.term_slices["a",]] = -math.inf
    return tables


@EVERY
@pytest.mark.parametrize("batch", [(), (2,), (0,), (2, 0)])
def test_no_names_have_probability_one(backend, batch):
    ones = torch.ones(batch, dtype=torch.float64)
    for names in ([], ()):
        assert_close(backend.marginal(model(*batch), names), ones)
        assert_close(backend.log_marginal(model(*batch), names), torch.zeros_like(ones))
    assert backend.plan(GRAPH, keep=[]).feasible


@EVERY
@pytest.mark.parametrize("batch", [(0,), (2, 0)])
def test_an_empty_batch_has_empty_results(backend, batch):
    empty, leaf = model(*batch), model(*batch).tables.requires_grad_()
    result = backend.log_partition(LogLinearEnergy(GRAPH, leaf))
    assert tuple(result.value.shape) == batch
    assert result.verdict == "verified"
    (slope,) = torch.autograd.grad(result.value.sum(), leaf)
    assert slope.shape == leaf.shape
    assert tuple(backend.expectations(empty).shape) == (*batch, GRAPH.num_terms)
    assert tuple(backend.marginal(empty, ["b", "a"]).shape) == (*batch, 3, 2)
    assert tuple(backend.sample(empty, (4,)).shape) == (4, *batch, 3)


@EVERY
@pytest.mark.parametrize("batch", [(), (2,)])
def test_log_z_of_no_possible_state_is_minus_infinity(backend, batch):
    leaf = lost(model(*batch).tables).requires_grad_()
    result = backend.log_partition(LogLinearEnergy(GRAPH, leaf))
    for part in (result.value, result.lower, result.upper):
        assert torch.equal(part.detach(), torch.full(batch, -math.inf, dtype=torch.float64))
    assert result.ess is None or not bool(torch.as_tensor(result.ess).any())
    (slope,) = torch.autograd.grad(result.value.sum(), leaf)
    assert torch.equal(slope, torch.zeros_like(leaf))
    for use in ("expectations", "sample"):
        with raises("impossible"):
            getattr(backend, use)(LogLinearEnergy(GRAPH, leaf.detach()))
    with raises("impossible"):
        backend.marginal(LogLinearEnergy(GRAPH, leaf.detach()), [])


@EVERY
def test_elements_without_a_possible_state_leave_the_others_as_they_are(backend):
    tables = model(3).tables
    tables[1] = lost(tables[1])
    leaf = tables.clone().requires_grad_()
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        result = backend.log_partition(LogLinearEnergy(GRAPH, leaf))
        alone = backend.log_partition(model())
    value = result.value.detach()
    assert float(value[1]) == -math.inf
    error = 6 * float(torch.as_tensor(alone.std_error).max()) + 1e-9
    assert bool((value[[0, 2]] - alone.value).abs().max() <= 2 * error)
    (slope,) = torch.autograd.grad(result.value[[0, 2]].sum(), leaf)
    assert not bool(slope[1].any())
    assert_close(slope[0][GRAPH.term_slices["a",]].sum(), 1.0)


LAW = HierarchicalLogLinear(InteractionHypergraph.from_order(DOMAIN, 1), torch.zeros(4))


@EVERY
@pytest.mark.parametrize(
    "wrong", ["a*b", None, 3, GRAPH, DOMAIN, np.zeros(3), LogLinearEnergy, LAW], ids=lambda value: type(value).__name__
)
def test_what_is_no_model_is_refused_at_the_door(backend, wrong):
    uses = {
        "log_partition": (),
        "expectations": (),
        "marginal": (["a"],),
        "log_marginal": (["a"],),
        "sample": ((2,),),
        "mode": (),
    }
    for name, rest in uses.items():
        with pytest.raises(InputTypeError, match="model: expected a log-linear model") as caught:
            getattr(backend, name)(wrong, *rest)
        assert (".energy" in str(caught.value)) == (wrong is LAW)


@EVERY
@pytest.mark.parametrize(
    "wrong", ["a*b", None, DOMAIN, model(), InteractionHypergraph], ids=lambda value: type(value).__name__
)
def test_a_plan_of_what_is_no_hypergraph_is_refused(backend, wrong):
    with pytest.raises(InputTypeError, match="hypergraph: expected an InteractionHypergraph") as caught:
        backend.plan(wrong)
    assert (".hypergraph" in str(caught.value)) == isinstance(wrong, LogLinearEnergy)


def test_the_control_has_a_mode_or_says_that_there_is_none():
    """The door lets models pass: what follows is the backend's own answer."""
    for backend in BACKENDS:
        try:
            states, _ = backend.mode(model())
        except IntractableError:
            continue
        assert tuple(states.shape) == (3,)
