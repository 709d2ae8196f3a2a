"""Lower bounds of log Z from possible states: their sum of q, counted once each, whatever else the bounds reach."""

import itertools
import math

import numpy as np
import pytest
import torch

from pyro_hoim import LogLinearEnergy
from pyro_hoim.log_linear import BucketImportance, MiniBuckets
from pyro_hoim.log_linear.bounds._join_graph import join_graph
from pyro_hoim.log_linear.bounds._met import met
from pyro_hoim.log_linear.bounds._sweeps import Sweeps
from pyro_hoim.structure.hypergraph import cell_index
from pyro_hoim.testing import assert_close

from support.bounded import enumerated, log_q_table, model_of, random_model


def hard_model(seed=2, levels=3):
    """Pairs of nine variables, 5 % of whose combinations are impossible, so that sums with negative weights fail."""
    rng = np.random.default_rng(seed)
    tables = {
        pair: np.where(rng.random((levels, levels)) < 0.05, -np.inf, rng.normal(0, 3, (levels, levels)))
        for pair in itertools.combinations(range(9), 2)
    }
    return model_of([levels] * 9, tables)


@pytest.mark.parametrize("case", range(6))
def test_states_prove_the_log_of_their_sum_once_each(case):
    model = random_model(case, is_divided=True)
    logs = log_q_table(model).reshape(-1).numpy()
    cards = model.domain.cardinalities
    index = np.random.default_rng(case).integers(len(logs), size=300).repeat(2)
    states = np.stack(np.unravel_index(index, cards), 1).astype(np.uint8)
    proof, exact = met(model.hypergraph, model.tables, states), np.logaddexp.reduce(logs[np.unique(index)])
    assert proof.bound <= exact
    assert_close(proof.bound, exact, relative=1e-10)
    every = np.indices(cards).reshape(len(cards), -1).T
    assert_close(met(model.hypergraph, model.tables, every).bound, enumerated(model), relative=1e-10)
    # The control: states counted as often as they were drawn prove too much.
    assert np.isneginf(exact) or np.logaddexp.reduce(logs[index]) > exact + 0.6


def test_no_possible_state_proves_nothing():
    model = model_of([2, 2], {(0, 1): np.full((2, 2), -np.inf)})
    proof = met(model.hypergraph, model.tables, np.zeros((5, 2), dtype=np.uint8))
    assert (proof.bound, len(proof.logs)) == (-math.inf, 0)
    assert torch.equal(proof.slopes(model.hypergraph), torch.zeros(model.hypergraph.num_terms, dtype=torch.float64))


@pytest.mark.parametrize("make", [MiniBuckets, BucketImportance])
@pytest.mark.parametrize("limit", [None, 1e-6])
@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_a_draw_that_is_possible_leaves_no_infinite_lower_bound(make, limit):
    """Also where time ends before any other lower bound is looked for."""
    for model in map(hard_model, range(6)):
        result = make(max_cells=9, passes=1, orders=1, time_limit=limit, seed=0).log_partition(model)
        lower, value, upper = (float(part) for part in (result.lower_bound, result.value, result.upper_bound))
        assert -math.inf < lower <= value <= upper
        assert lower <= enumerated(model) + 1e-12 <= upper + 1e-9
        # The control: the sum with negative weights alone proves nothing of such a model.
        below = Sweeps(join_graph(model.hypergraph, 9), model.tables.numpy(), False)
        assert next(below.passes(1)) == -math.inf


def test_the_slope_of_states_is_that_of_their_sum():
    model = hard_model()
    rng = np.random.default_rng(0)
    states = rng.integers(3, size=(2000, 9))
    proof = met(model.hypergraph, model.tables, states)
    assert len(proof.logs) > 1
    leaf = model.tables.clone().requires_grad_()
    where = cell_index(model.hypergraph).flat(torch.from_numpy(proof.states))
    total = leaf[where].sum(-1).logsumexp(0)
    (slope,) = torch.autograd.grad(total, leaf)
    assert_close(proof.slopes(model.hypergraph), slope, relative=1e-10)


def test_the_lower_side_of_mini_buckets_has_the_slope_of_the_bound_that_is_largest():
    model = hard_model()
    leaf = model.tables.clone().requires_grad_()
    backend = MiniBuckets(max_cells=9, passes=1, orders=1, time_limit=1e-6, side="lower")
    value = backend.log_partition(LogLinearEnergy(model.hypergraph, leaf)).value
    (slope,) = torch.autograd.grad(value, leaf)
    # Of every table the cells have the shares of a mean over states.
    for where in model.hypergraph.term_slices.values():
        assert_close(slope[where].sum(), 1.0, relative=1e-10)
