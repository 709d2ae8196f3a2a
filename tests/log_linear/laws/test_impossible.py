"""Laws with impossible states: what the suite of ``pyro_hoim.testing`` does not ask for."""

import copy
import math

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import TraceEnum_ELBO, config_enumerate, infer_discrete
from torch.distributions import kl_divergence

from pyro_hoim import (
    AnnealedImportance,
    Auto,
    Domain,
    HierarchicalLogLinear,
    InteractionHypergraph,
    LogLinearEnergy,
    LogLinearStatistics,
)
from pyro_hoim.inference import StateIndexReparam
from pyro_hoim.log_linear import ImpossibleStates, log_partition, statistics_of
from pyro_hoim.testing import assert_close, enumerate_codes, exact_table, raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
CELLS = np.zeros((2, 3, 2), dtype=bool)
CELLS[0, 1] = CELLS[1, 2, 0] = CELLS[0, 0, 0] = True


def theta(*batch):
    return torch.from_numpy(np.random.default_rng(2).normal(size=(*batch, GRAPH.num_parameters)))


def probs_of(values, cells=CELLS):
    """By enumeration of the law without impossible states."""
    weights = np.exp(exact_table(GRAPH, LogLinearEnergy.from_theta(GRAPH, values).tables)) * ~cells
    return weights / weights.sum(axis=(-3, -2, -1), keepdims=True)


def test_a_batch_and_its_expansion_share_impossible_states():
    law = HierarchicalLogLinear(GRAPH, theta(3), impossible=CELLS)
    assert_close(law.probs, probs_of(theta(3)))
    wide = law.expand((2, 3))
    assert_close(wide.probs[1], probs_of(theta(3)))
    assert_close(copy.deepcopy(wide).entropy()[0], law.entropy())
    assert wide.sample((50,)).shape == (50, 2, 3, 3)
    assert bool((wide.log_prob(wide.sample((50,))) > -math.inf).all())
    listed = wide.enumerate_support(expand=False)
    assert listed.shape == (12 - CELLS.sum(), 1, 1, 3)
    assert "impossible=" in repr(law)
    assert "impossible" not in repr(HierarchicalLogLinear(GRAPH, theta()))


def test_elements_of_a_batch_have_supports_of_their_own():
    law = HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS)
    given = law.condition({"a": torch.tensor([0, 1])})
    whole = probs_of(theta())
    assert_close(given.probs, whole / whole.sum(axis=(1, 2), keepdims=True))
    assert given.enumerate_support(expand=False).shape[0] == 6  # possible for a=0 or for a=1
    # A batch of energies says the same; theta without their batch is refused.
    again = HierarchicalLogLinear(given.hypergraph, given.theta, impossible=given.energy_model)
    assert_close(again.probs, given.probs)
    with pytest.raises(
        ValueError, match=r"the batch \(2,\) of its models does not broadcast to the batch \(\) of theta"
    ):
        HierarchicalLogLinear(given.hypergraph, given.theta[0], impossible=given.energy_model)


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
def test_tables_with_minus_infinity_give_the_law_on_the_others(coding):
    pair = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 3}))
    tables = torch.tensor([[0.0, 1.0, -math.inf], [2.0, -math.inf, 0.5]], dtype=torch.float64)
    law = HierarchicalLogLinear.from_tables(pair, {("a", "b"): tables}, coding=coding)
    assert_close(law.probs, tables.exp() / tables.exp().sum())
    assert bool(torch.isfinite(law.theta).all())
    batch = torch.stack([tables, tables.flip(0)])
    laws = HierarchicalLogLinear.from_tables(pair, {("a", "b"): batch}, coding=coding)
    assert_close(laws.probs, torch.stack([law.probs, law.probs.flip(0)]))
    # Log Z of the tables is that in the balanced coding of the finite part.
    assert_close(law.log_partition_in("balanced").value, law.log_partition.value)


def test_log_z_in_a_coding_is_that_of_the_finite_part_over_possible_states():
    """By enumeration; the reference of the corner coding, state 000, is impossible itself."""
    law = HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS)
    finite = LogLinearEnergy.from_theta(GRAPH, theta())
    logs = -finite.energy(torch.from_numpy(enumerate_codes(DOMAIN.cardinalities))).numpy().reshape(CELLS.shape)
    for coding, constant in (("balanced", 0.0), ("corner", logs[0, 0, 0])):
        wanted = np.log(np.exp(logs - constant)[~CELLS].sum())
        assert_close(law.log_partition_in(coding).value, wanted)
        with raises("impossible", "model"):
            log_partition(law.energy_model, coding=coding)


def test_a_model_without_a_possible_state_has_no_law():
    """All of one column is impossible: what needs no sum says so, and what needs one is refused."""
    never = ImpossibleStates.of_combinations(DOMAIN, [{"a": 0}, {"a": 1}])
    law, states = HierarchicalLogLinear(GRAPH, theta(), impossible=never), torch.tensor([[0, 1, 0], [1, 2, 1]])
    energy = law.energy_model
    assert Auto().log_partition(energy).value == -math.inf
    assert torch.isneginf(law.log_pseudo_prob(states)).all()
    assert torch.isneginf(energy.block_conditional(["a"], states)).all()
    assert torch.isposinf(energy.energy(states)).all()
    assert law.enumerate_support().shape == (0, 3)
    for call in (
        lambda: law.log_partition,
        lambda: law.log_prob(states),
        lambda: law.probs,
        lambda: law.entropy(),
        lambda: law.mode,
        lambda: law.sample((2,)),
        lambda: law.condition({"a": 0}),
        lambda: Auto().expectations(energy),
    ):
        with raises("impossible"):
            call()


def test_what_is_impossible_is_refused_by_name():
    law = HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS)
    with pytest.raises(ValueError, match=r"evidence: a=0, b=1 has probability zero") as failure:
        law.condition({"a": 0, "b": 1})
    assert failure.value.code == "impossible"
    with pytest.raises(ValueError, match=r"a=0, b=1 has probability zero|a=0, b=1 at index \(1,\)"):
        law.condition({"a": torch.tensor([1, 0]), "b": 1})
    with pytest.raises(ValueError, match="impossible: expected at least one possible cell"):
        HierarchicalLogLinear(GRAPH, theta(), impossible=np.ones((2, 3, 2), dtype=bool))
    nothing = HierarchicalLogLinear(GRAPH, theta(), impossible=[{"a": [0, 1]}])
    for call in (
        lambda: nothing.log_prob(torch.tensor([0, 0, 0])),
        nothing.sample,
        nothing.entropy,
        lambda: nothing.mode,
        lambda: nothing.probs,
    ):
        with raises("impossible"):
            call()
    with raises("wrong-shape", "impossible"):
        HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS[0])
    with raises("wrong-type", "impossible"):
        HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS.astype(int))
    others = Domain.from_cardinalities({"a": 2, "d": 3})
    with raises("other-domain", "impossible"):
        states = ImpossibleStates.of_combinations(others, [{"a": 0, "d": 1}])
        HierarchicalLogLinear(GRAPH, theta(), impossible=states)


def test_counts_of_rows_are_those_of_the_law_on_its_support():
    pairs = ImpossibleStates.of_combinations(DOMAIN, [{"a": 0, "b": 1}, {"b": 2, "c": 0}])
    values = theta().requires_grad_()
    law = LogLinearStatistics(GRAPH, values, 40, impossible=pairs)
    rows = law.rows.sample((40,))
    counts = statistics_of(rows, GRAPH)
    assert_close(law.log_prob(counts), law.rows.log_prob(rows).sum())
    broken = rows.clone()
    broken[0] = torch.tensor([0, 1, 0])
    assert float(law.log_prob(statistics_of(broken, GRAPH)).detach()) == -math.inf
    (gradient,) = torch.autograd.grad(law.log_prob(torch.stack([counts, statistics_of(broken, GRAPH)])).sum(), values)
    assert bool(torch.isfinite(gradient).all())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = law.sample((200,))
    assert bool((law.log_prob(drawn) > -math.inf).all())
    assert_close(drawn.mean(0) / 40, law.rows.eta.detach(), absolute=0.05)
    free = LogLinearStatistics(GRAPH, values, 40)
    assert_close(kl_divergence(law, free), 40 * kl_divergence(law.rows, free.rows))
    assert float(kl_divergence(free, law).detach()) == math.inf


def test_divergence_is_infinite_for_the_elements_that_reach_outside():
    p = HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS).condition({"a": torch.tensor([0, 1])})
    q = HierarchicalLogLinear(p.hypergraph, p.theta[0], impossible=CELLS[0])
    assert torch.isinf(kl_divergence(p, q)).tolist() == [False, True]
    # A probability that underflows is still one of a state that is possible.
    far = theta() * 0
    far[0] = -3000.0
    law, other = HierarchicalLogLinear(GRAPH, far), HierarchicalLogLinear(GRAPH, far, impossible=CELLS)
    assert float(kl_divergence(law, other)) == math.inf


def test_derivatives_inside_transformations():
    support = ImpossibleStates.of_cells(GRAPH, CELLS)
    states = torch.from_numpy(np.argwhere(~CELLS)[::3])

    def log_prob(values):
        return HierarchicalLogLinear(GRAPH, values, impossible=support, validate_args=False).log_prob(states)

    batch = theta(4)
    assert_close(torch.func.vmap(log_prob)(batch), torch.stack([log_prob(values) for values in batch]))
    assert torch.autograd.gradcheck(log_prob, (theta().requires_grad_(),))
    assert torch.autograd.gradgradcheck(log_prob, (theta().requires_grad_(),))
    hessian = torch.func.hessian(lambda values: log_prob(values).sum())(theta())
    assert_close(hessian, torch.autograd.functional.hessian(lambda values: log_prob(values).sum(), theta()))


def test_a_latent_state_is_summed_over_possible_states_alone():
    law = HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS)
    means = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(2, 3, 2)
    seen = torch.tensor(0.3, dtype=torch.float64)

    def program():
        x = pyro.sample("x", law, infer={"enumerate": "parallel"})
        pyro.sample("y", pyro.distributions.Normal(means[x[..., 0], x[..., 1], x[..., 2]], 0.5), obs=seen)

    likelihood = torch.distributions.Normal(means, 0.5).log_prob(seen).exp().numpy()
    joint = probs_of(theta()) * likelihood
    elbo = TraceEnum_ELBO(max_plate_nesting=0)
    assert_close(-elbo.loss(program, lambda: None), math.log(joint.sum()))
    # By an index of all states; the impossible ones have probability zero.
    indexed = pyro.poutine.reparam(program, {"x": StateIndexReparam()})
    marginal = elbo.compute_marginals(config_enumerate(indexed), lambda: None)["x_index"].probs
    assert_close(marginal, joint.ravel() / joint.sum())
    trace = pyro.poutine.trace(infer_discrete(indexed, first_available_dim=-1)).get_trace()
    assert not CELLS[tuple(trace.nodes["x"]["value"].tolist())]


def test_an_annealed_law_stays_on_its_support():
    backend = AnnealedImportance(num_chains=256, num_temperatures=50, seed=3)
    law = HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS, partition=backend)
    exact = HierarchicalLogLinear(GRAPH, theta(), impossible=CELLS)
    log_z = law.log_partition
    assert abs(float(log_z.value - exact.log_partition.value)) < 5 * float(log_z.std_error)
    assert_close(law.probs, exact.probs)  # of a small table, by its own sum
    assert_close(law.mean, exact.mean, absolute=0.2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert bool((law.log_prob(law.sample((200,))) > -math.inf).all())
    assert law.condition({"a": 1}).mode.tolist() == exact.condition({"a": 1}).mode.tolist()


STATES = ImpossibleStates.of_combinations(DOMAIN, [{"a": 0, "b": 1}])
OTHERS = ImpossibleStates.of_combinations(Domain.from_cardinalities({"a": 2, "d": 3}), [{"a": 0, "d": 1}])
WRONG = {
    "hypergraph": lambda: ImpossibleStates.of_cells(DOMAIN, CELLS),
    "cells, a list": lambda: ImpossibleStates.of_cells(GRAPH, CELLS.tolist()),
    "cells, numbers": lambda: ImpossibleStates.of_cells(GRAPH, CELLS.astype(float)),
    "domain": lambda: ImpossibleStates.of_combinations(GRAPH, [{"a": 0}]),
    "combinations": lambda: ImpossibleStates.of_combinations(DOMAIN, 3),
    "structure": lambda: ImpossibleStates(DOMAIN, STATES.excluded),
    "energy, a number": lambda: ImpossibleStates.of_energy(3),
    "energy, a law": lambda: STATES.applied(HierarchicalLogLinear(GRAPH, theta())),
    "states": lambda: ImpossibleStates.union([STATES, STATES]),
    "other": lambda: STATES.without(3),
}
UNLIKE = {
    "states": lambda: ImpossibleStates.union(STATES, OTHERS),
    "other": lambda: STATES.without(OTHERS),
    "impossible": lambda: OTHERS.applied(LogLinearEnergy.from_theta(GRAPH, theta())),
}


@pytest.mark.parametrize("argument", WRONG)
def test_states_of_a_wrong_type_are_one_error(argument):
    with raises("wrong-type", argument.split(",")[0]):
        WRONG[argument]()


@pytest.mark.parametrize("argument", UNLIKE)
def test_states_of_other_variables_are_one_error(argument):
    with raises("other-domain", argument):
        UNLIKE[argument]()


def test_tables_and_masks_of_a_wrong_shape_are_one_error():
    with raises("wrong-shape", "cells"):
        ImpossibleStates.of_cells(GRAPH, CELLS[0])
    flat = ImpossibleStates.of_cells(GRAPH, CELLS.ravel())  # the control
    assert_close(HierarchicalLogLinear(GRAPH, theta(), impossible=flat).probs, probs_of(theta()))
    with pytest.raises(ValueError, match=r"tables: expected batches that broadcast, received \(2,\) and \(3,\)"):
        HierarchicalLogLinear.from_tables(GRAPH, {"a": torch.zeros(2, 2), "b": torch.zeros(3, 3)})


def test_tables_that_are_not_balanced_become_a_law_as_the_error_says():
    graph = InteractionHypergraph(DOMAIN, [("a", "b")], hierarchical=False)
    table = torch.from_numpy(np.random.default_rng(3).normal(size=(2, 3)))
    table[1, 2] = -math.inf
    with pytest.raises(ValueError, match=r"take hypergraph and tables of LogLinearEnergy\(.*\)\.on_closure\(\)"):
        HierarchicalLogLinear.from_tables(graph, {("a", "b"): table})
    model = LogLinearEnergy(graph, table.ravel()).on_closure()
    law = HierarchicalLogLinear.from_tables(model.hypergraph, model.tables)
    assert_close(law.marginal(["a", "b"]).probs, table.exp() / table.exp().sum())
