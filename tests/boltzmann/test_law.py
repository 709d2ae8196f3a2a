"""Boltzmann machines against sums over all states of visible and hidden variables."""

import itertools
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from machines import domain, exact_log_probs, machine, marginal_scores, random_theta, restricted, structures
from pyro.infer import MCMC, NUTS

from pyro_hoim import AnnealedImportance, Domain
from pyro_hoim.boltzmann import BoltzmannMachine, MachineStructure, MarginalEnergy, RestrictedBoltzmannMachine
from pyro_hoim.core import EnergyModel
from pyro_hoim.errors import InputError, IntractableError
from pyro_hoim.log_linear import Auto, Enumeration
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import assert_close, assert_exact_law, assert_stationary, check_distribution, raises

NAMES = sorted(structures())
QUICK = AnnealedImportance(num_chains=64, num_temperatures=40, seed=3, schedule=GibbsSchedule("colours"), burn_in=20)


@pytest.mark.parametrize("name", NAMES)
def test_conformance(name):
    structure = structures()[name]
    theta = random_theta(structure, 2)
    check_distribution(
        partial(BoltzmannMachine, structure),
        theta,
        log_probs=exact_log_probs(structure, theta),
        shape_arguments={"structure": structure},
    )


def test_conformance_of_restricted_machines():
    structure = structures()["restricted"]
    theta = random_theta(structure, 2, scale=2.0)
    check_distribution(
        partial(restricted, structure), theta, log_probs=exact_log_probs(structure, theta), skip=["check_infer_shapes"]
    )
    shapes = RestrictedBoltzmannMachine.infer_shapes(
        domain=structure.domain, visible_bias=(4,), hidden_bias=(5, 3), weights=(2, 1, 4, 3)
    )
    assert shapes == ((2, 5), (4,))


@pytest.mark.parametrize("name", NAMES)
def test_marginals_log_z_and_moments_equal_enumeration(name):
    structure = structures()[name]
    theta = random_theta(structure, 3, scale=3.0, seed=1)
    law = BoltzmannMachine(structure, theta)
    scores = np.stack([marginal_scores(structure, row) for row in theta.numpy()])
    states = law.enumerate_support()
    assert_close(-law.free_energy(states).T.reshape(scores.shape), scores, what="free energy")
    log_z = np.log(np.exp(scores).reshape(3, -1).sum(1))
    assert_close(law.log_partition.value, log_z, what="log Z")
    assert law.log_partition.coding == "corner" and law.log_partition.verdict == "verified"
    probs = np.exp(exact_log_probs(structure, theta))
    assert_close(law.probs, probs, what="probabilities")
    n = structure.num_visible
    mean = np.stack([probs.sum(tuple(k for k in range(1, n + 1) if k != i + 1))[:, 1] for i in range(n)], -1)
    assert_close(law.mean, mean, what="mean")
    assert_close(law.variance, mean * (1 - mean), what="variance")
    assert_close(law.entropy(), -(probs * np.log(probs)).reshape(3, -1).sum(1), what="entropy")
    # joint: log p(0, ..., 0) = -log Z in corner coding
    zero = torch.zeros(len(structure.names), dtype=torch.long)
    assert_close(-law.joint.log_prob(zero), log_z, what="log Z of the joint law")


def test_control_pairs_counted_twice_give_another_law():
    structure = structures()["visible edges"]
    theta = random_theta(structure, 1)
    doubled = theta.clone()
    doubled[:, len(structure.names) :] *= 2
    found = BoltzmannMachine(structure, doubled).log_prob_table
    with pytest.raises(AssertionError):
        assert_close(found, exact_log_probs(structure, theta))


@pytest.mark.parametrize("name", ["restricted", "layered", "triangle"])
@pytest.mark.parametrize("backend", [Enumeration(), Auto()])
def test_every_backend_gives_the_same_law(name, backend):
    law = machine(name, partition=backend)
    assert_close(law.log_prob_table, exact_log_probs(law.structure, law.theta[None])[0])
    assert_close(law.log_prob(law.enumerate_support()), law.log_prob_table.reshape(-1))
    assert law.sample_is_exact and law.sample((3,)).shape == (3, law.structure.num_visible)
    assert_close(law.mean, machine(name).mean)


def test_free_energy_conditionals_and_pseudo_likelihood():
    law = machine("triangle")
    model, states = law.energy_model, law.enumerate_support()
    assert isinstance(model, EnergyModel)
    table = law.log_prob_table
    both = model.block_conditional(["v2", "v0"], states)
    for row, v in zip(both, states, strict=True):
        part = table[:, int(v[1]), :]
        assert_close(row, (part - part.logsumexp((0, 1))).T)
    single = sum(
        model.block_conditional([name], states).gather(-1, states[:, [i]]).squeeze(-1)
        for i, name in enumerate(law.domain.names)
    )
    assert_close(law.log_pseudo_prob(states), single)


@pytest.mark.parametrize("name", ["restricted", "triangle", "layered"])
def test_conditioning_is_conditioning_of_the_table(name):
    law = machine(name)
    table = law.log_prob_table
    found = law.condition({"v1": torch.tensor([1, 0])})
    assert found.batch_shape == (2,) and "v1" not in found.domain
    expected = torch.stack([table.select(1, code) for code in (1, 0)])
    expected = expected - expected.flatten(1).logsumexp(-1).reshape(2, *(1,) * (expected.dim() - 1))
    assert_close(found.log_prob_table, expected)


def test_conditioning_keeps_a_restricted_machine_restricted():
    structure = structures()["restricted"]
    law = restricted(structure, random_theta(structure, 2))
    found = law.condition({"v0": "1", "v3": 0})
    assert isinstance(found, RestrictedBoltzmannMachine) and found.batch_shape == (2,)
    general = BoltzmannMachine(structure, law.theta).condition({"v0": 1, "v3": 0})
    assert_close(found.log_prob_table, general.log_prob_table)
    nothing = law.condition(dict.fromkeys(law.domain.names, 1))
    assert nothing.log_prob(torch.zeros(0)).tolist() == [0, 0] and nothing.log_prob_table.tolist() == [0, 0]
    single = BoltzmannMachine(structure, law.theta[0]).condition(dict.fromkeys(law.domain.names, 1))
    assert single.log_prob_table.tolist() == 0 and single.entropy() == 0


def test_layers_given_one_another_and_the_sweep_leave_the_law_as_it_is():
    structure = MachineStructure.restricted(domain(3), 2)
    law = restricted(structure, random_theta(structure, scale=2.0))
    states = law.enumerate_support()
    hidden = torch.tensor(list(itertools.product((0, 1), repeat=2)))
    up, down = law.hidden_probs(states), law.visible_probs(hidden)
    log_up = dist.Bernoulli(up[:, None]).to_event(1).log_prob(hidden.double())  # (v, h)
    log_down = dist.Bernoulli(down[:, None]).to_event(1).log_prob(states.double())  # (h, v)
    assert_stationary(log_up.exp() @ log_down.exp(), law.probs.reshape(-1))
    wrong = dist.Bernoulli(law.hidden_probs(states)[:, None].flip(-1)).to_event(1).log_prob(hidden.double())
    with pytest.raises(AssertionError):
        assert_stationary(wrong.exp() @ log_down.exp(), law.probs.reshape(-1))
    start = torch.zeros(60_000, 3, dtype=torch.long)
    ends = law.sweep(start, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(ends @ torch.tensor([4, 2, 1]), minlength=8)
    assert_exact_law(counts, (log_up.exp() @ log_down.exp())[0].numpy())


def test_colours_are_the_layers():
    structure = MachineStructure.restricted(domain(4), 3)
    assert set(map(frozenset, structure.hypergraph.colouring())) == {
        frozenset(structure.domain.names),
        frozenset(structure.hidden),
    }
    deep = MachineStructure.layered(domain(3), 2, 4).graph.layers
    assert deep is not None and deep.listed == (3, 4) and structures()["triangle"].graph.layers is None


@pytest.mark.parametrize("name", ["restricted", "triangle"])
def test_annealed_log_z_brackets_the_exact_one(name):
    exact, found = machine(name), machine(name, partition=QUICK)
    result = found.log_partition
    assert result.kind == "biased" and result.coding == "corner"
    assert abs(float(result.value - exact.log_partition.value)) < 5 * float(result.std_error)
    assert float(result.lower) <= float(exact.log_partition.value) <= float(result.upper)
    assert float(result.sandwich.forward) == pytest.approx(float(result.value), abs=0.5)
    states = exact.enumerate_support()
    assert_close(found.free_energy(states), exact.free_energy(states))
    difference = found.log_prob(states) - exact.log_prob(states)
    assert float(difference.std()) < 1e-12  # one error for all
    assert not found.sample_is_exact and found.sample_burn_in == 20
    assert found.sample((5,)).shape == (5, exact.structure.num_visible)
    assert_close(found.log_prob_table, exact.log_prob_table)


def test_gradient_of_annealed_log_z_is_that_of_the_estimate():
    structure = structures()["restricted"]
    theta = random_theta(structure).requires_grad_()
    value = BoltzmannMachine(structure, theta, partition=QUICK).log_partition.value
    (found,) = torch.autograd.grad(value, theta)
    (exact,) = torch.autograd.grad(BoltzmannMachine(structure, theta).log_partition.value, theta)
    assert float((found - exact).abs().max()) < 0.25


def test_large_layers_are_summed_in_pieces_with_the_same_gradient(monkeypatch):
    from pyro_hoim.boltzmann import structure as layers

    structure = structures()["restricted"]
    theta = random_theta(structure, 2).requires_grad_()
    whole = BoltzmannMachine(structure, theta).log_partition.value
    (slope,) = torch.autograd.grad(whole.sum(), theta)
    monkeypatch.setattr(layers, "_CHUNK", 8)
    pieces = BoltzmannMachine(structure, theta).log_partition.value
    assert_close(pieces, whole)
    assert_close(torch.autograd.grad(pieces.sum(), theta)[0], slope)
    assert torch.autograd.gradgradcheck(lambda t: BoltzmannMachine(structure, t).log_partition.value, theta[0])


def test_log_z_of_many_visible_variables_is_a_sum_over_the_hidden_layer():
    structure = MachineStructure.restricted(domain(200), 3)
    law = restricted(structure, 0.1 * random_theta(structure))
    cost = law.log_partition.cost
    assert cost.cells == 8 and law.log_partition.kind == "exact"
    assert law.sample((2,)).shape == (2, 200) and not bool(law.log_prob(law.sample((4,))).isnan().any())
    by_elimination = -law.joint.log_prob(torch.zeros(203, dtype=torch.long))
    assert_close(law.log_partition.value, by_elimination)


def test_what_is_too_large_is_refused_with_its_size():
    structure = MachineStructure.restricted(domain(60), 30)
    law = restricted(structure, torch.zeros(structure.num_parameters))
    for action in (lambda: law.log_partition, lambda: law.log_prob(torch.zeros(60)), law.sample):
        with pytest.raises(IntractableError, match="30 units, so 1073741824 states") as error:
            action()
        assert (error.value.code, error.value.argument) == ("over-budget", "log_partition")
    with raises("over-budget"):
        law.enumerate_support()
    with raises("over-budget", "log_prob_table"):
        law.entropy()
    assert law.free_energy(torch.zeros(60)) == pytest.approx(-30 * np.log(2), rel=1e-6)
    names = domain(3).names
    dense = MachineStructure(domain(3), 40, itertools.combinations([*names, *(f"h{k + 1}" for k in range(40))], 2))
    with raises("over-budget"):
        MarginalEnergy(dense, torch.zeros(dense.num_parameters)).energy(torch.zeros(3))


def test_bad_input_has_one_clear_error():
    with raises("out-of-range", "variable 'b'"):
        MachineStructure(Domain.from_cardinalities({"a": 2, "b": 3}), 1)
    with raises("out-of-range", "variable 'b'"):
        MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 1}), 1)
    with raises("conflict", "hidden"):
        MachineStructure.restricted(Domain.from_cardinalities({"h1": 2, "b": 2}), 1)
    with raises("out-of-range", "hidden"):
        MachineStructure.restricted(domain(2), -1)
    for name in (1, "", None, ["h1"]):
        with raises("wrong-type", "hidden"):
            MachineStructure.restricted(domain(2), [name])
    with raises("unknown-name", "edges"):
        MachineStructure(domain(2), 1, [("v0", "h2")])
    for edges in ([("v0", "v1"), ("v1", "v0")], [("v0", "v0")], [("v0", "v1", "h1")], ["v0"]):
        with pytest.raises(InputError, match="edges: "):
            MachineStructure(domain(2), 1, edges)
    with raises("wrong-shape", "weights"):
        RestrictedBoltzmannMachine(domain(2), torch.zeros(2), torch.zeros(1), torch.zeros(1, 2))
    with raises("wrong-shape", "theta"):
        BoltzmannMachine(structures()["restricted"], torch.zeros(3))
    with raises("not-finite", "theta"):
        restricted(structures()["restricted"], torch.full((19,), torch.nan))


def test_free_energies_are_those_of_scikit_learn():
    from sklearn.neural_network import BernoulliRBM

    structure = structures()["restricted"]
    law = restricted(structure, random_theta(structure, scale=3.0))
    peer = BernoulliRBM(3).fit(np.array([[0, 1, 1, 0], [1, 0, 0, 1]]))
    peer.intercept_visible_, peer.intercept_hidden_ = law.visible_bias.numpy(), law.hidden_bias.numpy()
    peer.components_ = law.weights.numpy().T
    states = law.enumerate_support()
    assert_close(law.free_energy(states), peer._free_energy(states.double().numpy()))
    assert_close(law.hidden_probs(states), peer.transform(states.double().numpy()))


def test_theta_of_places_biases_and_weights():
    structure = structures()["visible edges"]
    theta = structure.theta_of({"v1": 1.0, ("h1", "v1"): torch.tensor([2.0, 3.0])})
    assert theta.shape == (2, structure.num_parameters)
    joint = BoltzmannMachine(structure, theta).joint
    slices = joint.hypergraph.parameter_slices
    assert theta[:, slices[("v1", "h1")]].tolist() == [[2.0], [3.0]] and theta[0, slices[("v1",)]] == 1
    with raises("unknown-name", "values"):
        structure.theta_of({("v0", "h1"): 1.0})


def program(data):
    structure = MachineStructure.restricted(Domain.from_cardinalities([2] * 3), 1)
    b = pyro.sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    w = pyro.sample("w", dist.HalfNormal(torch.ones(3, 1)).to_event(2))
    law = RestrictedBoltzmannMachine(structure.domain, b, torch.zeros(1), w)
    with pyro.plate("rows", len(data)):
        pyro.sample("x", law, obs=data)


def test_transformations_agree_with_plain_calls_and_traces_are_refused(monkeypatch):
    structure = structures()["layered"]
    states = torch.tensor([[0, 1, 1], [1, 0, 0]])

    def log_prob(theta):
        return BoltzmannMachine(structure, theta).log_prob(states)

    theta = random_theta(structure, 2)
    assert_close(torch.func.vmap(log_prob)(theta), torch.stack([log_prob(row) for row in theta]))
    monkeypatch.setattr(torch.jit, "is_tracing", lambda: True)
    with pytest.raises(InputError, match="a program that is not traced"):
        log_prob(theta[0])


def test_nuts_over_the_weights_of_a_tiny_machine():
    data = torch.tensor([[0, 0, 0]] * 12 + [[1, 1, 1]] * 12 + [[0, 1, 1]] * 3)
    pyro.set_rng_seed(0)
    mcmc = MCMC(NUTS(program), num_samples=30, warmup_steps=20, disable_progbar=True)
    mcmc.run(data)
    weights = mcmc.get_samples()["w"]
    assert weights.shape == (30, 3, 1) and float(weights.mean()) > 0.5  # the columns agree, more than apart
    annealed = partial(_annealed_program, AnnealedImportance(num_chains=16, num_temperatures=5))
    chain = MCMC(NUTS(annealed), num_samples=2, warmup_steps=1, disable_progbar=True)
    with pytest.raises(ValueError, match="AnnealedImportance without a seed"):
        chain.run(data)


def _annealed_program(partition, data):
    b = pyro.sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    law = RestrictedBoltzmannMachine(domain(3), b, torch.zeros(1), torch.zeros(3, 1), partition=partition)
    with pyro.plate("rows", len(data)):
        pyro.sample("x", law, obs=data)


@pytest.mark.parametrize("edges", [None, 3, [None], [3], "ab"])
def test_edges_that_are_no_pairs_are_refused(edges):
    with raises("invalid-value" if isinstance(edges, list | str) else "wrong-type", "edges"):
        MachineStructure(domain(2), 1, edges)
