"""Boltzmann machines and their learning against sums over all states of visible and hidden variables in NumPy."""

import itertools
import math
import warnings
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC, NUTS

from pyro_hoim import AnnealedImportance, Domain, InteractionHypergraph, Observations
from pyro_hoim.boltzmann import (
    BoltzmannMachine,
    LearningOptions,
    MachineFile,
    MachineStructure,
    MarginalEnergy,
    RestrictedBoltzmannMachine,
    effective_interactions,
    fit_machine,
    impute_machine,
    load_machine,
    predict_machine,
    row_log_scores,
    save_machine,
)
from pyro_hoim.boltzmann.learning import LearningJob, contrastive_gradient, layer_statistics, model_statistics
from pyro_hoim.core import EnergyModel
from pyro_hoim.errors import ConvergenceWarning, InputError, IntractableError, MissingDataError
from pyro_hoim.log_linear import Auto, Enumeration, HierarchicalLogLinear
from pyro_hoim.runs import GibbsSchedule, RunOptions
from pyro_hoim.runs.checkpoint import RunFile
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    assert_stationary,
    check_distribution,
    raises,
)

from support.calls import noted


def domain(n):
    return Domain.from_cardinalities({f"v{i}": 2 for i in range(n)})


def structures():
    return {
        "restricted": MachineStructure.restricted(domain(4), 3),
        "wide": MachineStructure.restricted(domain(2), 4),
        "no hidden": MachineStructure.restricted(domain(3), 0),
        "layered": MachineStructure.layered(domain(3), 2, 2),
        "visible edges": MachineStructure(domain(3), 2, [("v0", "v1"), ("v1", "h1"), ("v2", "h2"), ("v0", "h2")]),
        "triangle": MachineStructure(
            domain(3), 3, [("v0", "v1"), ("v1", "h1"), ("h1", "h2"), ("h2", "h3"), ("h1", "h3"), ("v2", "h3")]
        ),
        "visible triangle": MachineStructure(domain(3), 1, [("v0", "v1"), ("v1", "v2"), ("v0", "v2"), ("v2", "h1")]),
        "one variable": MachineStructure(domain(1), 0),
        "no edges": MachineStructure(domain(2), 1),
        "edges apart": MachineStructure(domain(2), 2, [("v0", "v1"), ("h1", "h2")]),
    }


def joint_scores(structure, theta):
    """Log weights (2, ..., 2) of all states of all variables, every pair counted once."""
    names = [*structure.domain.names, *structure.hidden]
    place = {name: i for i, name in enumerate(names)}
    scores = np.zeros((2,) * len(names))
    for state in itertools.product((0, 1), repeat=len(names)):
        total = sum(t * x for t, x in zip(theta, state, strict=False))
        for k, (a, b) in enumerate(structure.edges):
            total += theta[len(names) + k] * state[place[a]] * state[place[b]]
        scores[state] = total
    return scores


def marginal_scores(structure, theta):
    """Log weights (2, ..., 2) of the visible states."""
    scores = joint_scores(structure, np.asarray(theta))
    weights = np.exp(scores).sum(tuple(range(len(structure.domain), scores.ndim)))
    return np.log(weights)


def exact_log_probs(structure, theta):
    """Log-probabilities (B, 2, ..., 2) of the visible states under each row of theta."""
    tables = [marginal_scores(structure, row) for row in np.asarray(theta)]
    return np.stack([table - np.log(np.exp(table).sum()) for table in tables])


def random_theta(structure, *batch, scale=1.0, seed=0):
    """Normal quantiles of multiples of the golden ratio: no generator, so the machines never change."""
    shape = (*batch, structure.num_parameters)
    places = (torch.arange(1, math.prod(shape) + 1) + 997 * seed).double() * (math.sqrt(5) - 1) / 2
    return scale * torch.special.ndtri((places % 1).clamp(1e-3, 1 - 1e-3)).reshape(shape)


def machine(name, seed=0, **options):
    structure = structures()[name]
    return BoltzmannMachine(structure, random_theta(structure, seed=seed), **options)


def restricted(structure, theta, **options):
    n, m = structure.num_visible, structure.num_hidden
    weights = theta[..., n + m :].reshape(*theta.shape[:-1], n, m)
    return RestrictedBoltzmannMachine(structure.domain, theta[..., :n], theta[..., n : n + m], weights, **options)


# Laws


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


# Missing cells, interactions of the visible variables, and files


ROWS = torch.tensor([[0, 1, 1], [-1, 1, 0], [1, -1, -1], [-1, -1, -1], [0, -1, 1], [1, 1, 1]])


def table_of(law):
    return torch.from_numpy(np.exp(exact_log_probs(law.structure, law.theta[None])[0]))


def summed(table, row):
    for axis in reversed(range(len(row))):
        table = table.sum(axis) if row[axis] < 0 else table.select(axis, int(row[axis]))
    return float(table)


@pytest.mark.parametrize("name", ["visible edges", "triangle", "layered"])
def test_rows_with_missing_cells_are_summed_over(name):
    law = machine(name)
    table, data = table_of(law), Observations.from_tensor(ROWS, law.domain)
    expected = np.log([summed(table, row) for row in ROWS])
    assert_close(row_log_scores(law, data) - law.log_partition.value, expected)
    for target in law.domain.names:
        column = law.domain.index(target)
        found = predict_machine(law, data, target)
        both = []
        for level in (0, 1):
            rows = ROWS.clone()
            rows[:, column] = level
            both.append([summed(table, row) for row in rows])
        both = np.array(both).T
        assert_close(found.probs, both / both.sum(1, keepdims=True))
        assert found.truth.tolist() == ROWS[:, column].tolist() and found.kind == "exact"


def test_missing_cells_are_drawn_given_the_others():
    structure = MachineStructure.restricted(domain(3), 2)
    law = restricted(structure, random_theta(structure, scale=3.0))
    table, data = table_of(law), Observations.from_tensor(ROWS, law.domain)
    torch.manual_seed(1)
    found = impute_machine(law, data, 20_000)
    known = ROWS >= 0
    assert bool((found.codes[:, known] == ROWS[known]).all())
    counts = torch.bincount(found.codes[:, 2, 1] * 2 + found.codes[:, 2, 2], minlength=4)
    probs = table[1].reshape(-1)
    assert_exact_law(counts, (probs / probs.sum()).numpy())
    with pytest.raises(AssertionError):  # control: the law of these cells without the known one
        assert_exact_law(counts, table.sum(0).reshape(-1).numpy())


def test_interactions_of_all_orders_give_the_log_linear_law():
    law = restricted(MachineStructure.restricted(domain(4), 2), random_theta(structures()["restricted"])[:14])
    values = effective_interactions(law, 4)
    hypergraph = InteractionHypergraph.saturated(law.domain)
    assert tuple(values) == hypergraph.edges
    theta = torch.tensor(list(values.values()), dtype=torch.float64)
    assert_close(HierarchicalLogLinear(hypergraph, theta, coding="corner").log_prob_table, law.log_prob_table)
    assert effective_interactions(law, 2) == {names: v for names, v in values.items() if len(names) <= 2}
    assert abs(values[law.domain.names]) > 1e-3  # one hidden unit joins all four


def test_interactions_that_are_too_many_or_of_no_order_are_refused():
    large = MachineStructure.restricted(domain(200), 1)
    law = restricted(large, random_theta(large))
    assert len(effective_interactions(law)) == 200 + 199 * 100
    with raises("over-budget", "order"):
        effective_interactions(law, 4)
    with raises("out-of-range", "order"):
        effective_interactions(machine("layered"), 4)
    with raises("wrong-shape", "law"):
        effective_interactions(machine("layered").expand((2,)))


@pytest.mark.parametrize("name", sorted(structures()))
def test_files_give_back_what_was_written(name, tmp_path):
    structure = structures()[name]
    file = MachineFile(structure, random_theta(structure), {"a": 1})
    save_machine(tmp_path / "m", file)
    found = load_machine(tmp_path / "m")
    assert found.structure == structure and torch.equal(found.theta, file.theta) and found.info == {"a": 1}
    assert isinstance(found.law(), RestrictedBoltzmannMachine) is structure.is_restricted
    assert_close(found.law().log_prob_table, exact_log_probs(structure, file.theta[None])[0])
    save_machine(tmp_path / "n", found)
    assert (tmp_path / "m").read_bytes() == (tmp_path / "n").read_bytes()


def test_files_have_finite_numbers():
    structure = structures()["restricted"]
    with raises("not-finite", "theta"):
        MachineFile(structure, torch.full((structure.num_parameters,), torch.inf))


# Annealed log-likelihoods


def machines(number):
    """Machines of 8 to 16 visible and 3 to 12 hidden units, weights from weak to strong."""
    for k in range(number):
        structure = MachineStructure.restricted(domain(8 + 2 * (k % 5)), 3 + k % 10)
        yield structure, random_theta(structure, scale=(0.3, 0.6, 1.0, 1.5)[k % 4], seed=k)


def log_likelihoods(structure, theta, seed, path=1.0):
    """Exact mean log-likelihood of 50 rows of the machine, the annealed one with its error, and its limits."""
    exact = restricted(structure, theta)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rows = Observations.from_tensor(exact.sample((50,)), exact.domain)
    backend = AnnealedImportance(
        num_chains=128, num_temperatures=300, seed=seed, reverse=False, schedule=GibbsSchedule("colours")
    )
    annealed = restricted(structure, path * theta, partition=backend)
    result = annealed.log_partition
    # on the rows of the exact machine: only log Z may differ
    difference = float(exact.log_partition.value - result.value)
    found = float((-exact.free_energy(rows.codes) - result.value).mean())
    assert found == pytest.approx(float(exact.log_prob(rows.codes).mean()) + difference, abs=1e-9)
    return difference, float(result.std_error), result.verdict


def scores(number, path=1.0):
    found = [log_likelihoods(*pair, seed=k, path=path) for k, pair in enumerate(machines(number))]
    believed = [(d, e) for d, e, verdict in found if verdict != "unreliable"]
    return [abs(d) / e for d, e in believed], len(believed)


def check(found, number):
    """No estimate that calls itself reliable is off by five of its errors, and two thirds are within one and a half."""
    values, believed = found
    assert believed >= 0.9 * number
    assert max(values) < 5
    assert sum(value < 1.5 for value in values) > 2 * len(values) / 3
    return math.sqrt(sum(value**2 for value in values) / len(values))


def test_annealed_log_likelihoods_are_within_their_error_on_a_hundred_machines():
    size = check(scores(100), 100)
    assert size < 1.5  # root mean square of the errors in their own units


def test_control_machines_with_weights_off_by_a_twentieth_are_not():
    with pytest.raises(AssertionError):
        check(scores(8, path=1.05), 8)


# Learning


STRUCTURE = MachineStructure.restricted(domain(4), 2)


def rows_of(law, number, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Observations.from_tensor(law.sample((number,)), law.domain)


def teacher(n=5, m=2, scale=3.0):
    """A machine whose columns are on half of the time, by the biases, and depend on one another."""
    weights = scale * torch.cos(1.3 * torch.outer(torch.arange(1.0, n + 1), torch.arange(2.0, m + 2))).double()
    return RestrictedBoltzmannMachine(domain(n), -weights.sum(1) / 2, -weights.sum(0) / 2, weights)


def log_likelihood(law, rows):
    merged = rows.unique()
    return float((law.log_prob(merged.codes) * merged.counts).sum() / merged.total_count)


# Gradients


def enumerated(theta, shares, steps):
    """Mean statistics of rows with given shares of the 2^n states, h exact, and of chains after k sweeps from there."""
    n, m = 4, 2
    b, c, w = (part.numpy() for part in (theta[:n], theta[n : n + m], theta[n + m :].reshape(n, m)))
    visible = np.array(list(itertools.product((0, 1), repeat=n)), dtype=float)
    hidden = np.array(list(itertools.product((0, 1), repeat=m)), dtype=float)
    joint = np.exp(visible @ b[:, None] + hidden @ c + visible @ w @ hidden.T)
    up, down = joint / joint.sum(1, keepdims=True), joint / joint.sum(0)
    law = joint.sum(1) / joint.sum()

    def means(weights):
        pairs = weights[:, None, None, None] * up[:, :, None, None] * visible[:, None, :, None] * hidden[:, None, :]
        share = (weights[:, None] * up).sum(0)
        return np.concatenate([weights @ visible, share @ hidden, pairs.sum((0, 1)).ravel()])

    ends = shares @ np.linalg.matrix_power(up @ down.T, steps)
    return means(shares), means(ends), means(law)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_estimate_of_the_gradient_has_the_enumerated_mean(steps):
    theta = random_theta(STRUCTURE, scale=1.5, seed=2)
    shares = torch.softmax(torch.linspace(-1, 1, 16).double()[torch.arange(16) * 5 % 16], 0)
    data, chains, _ = enumerated(theta, shares.numpy(), steps)
    other = enumerated(theta, shares.numpy(), 4 - steps)[1]
    model, states = (
        MarginalEnergy(STRUCTURE, theta),
        torch.tensor(list(itertools.product((0.0, 1.0), repeat=4))).double(),
    )
    assert_close(layer_statistics(model, states, shares), data, what="data term")
    generator = torch.Generator().manual_seed(4)
    rows = states[shares.multinomial(200_000, replacement=True, generator=generator)]
    found, ends = contrastive_gradient(model, rows, rows, steps, generator)
    # Hoeffding: every statistic of a row lies in [0, 1], two means of 200,000
    limit = 2 * math.sqrt(math.log(4 * len(theta) / FALSE_ALARM_RATE) / (2 * len(rows)))
    assert np.abs(found.numpy() - (data - chains)).max() < limit
    assert np.abs(found.numpy() - (data - other)).max() > limit  # control: another number of sweeps
    assert set(ends.unique().tolist()) == {0.0, 1.0}


def test_rows_with_shares_count_as_often_in_the_chains_that_start_there():
    theta = random_theta(STRUCTURE, scale=1.5, seed=2)
    shares = torch.softmax(torch.linspace(-3, 3, 16).double()[torch.arange(16) * 5 % 16], 0)
    data, chains, _ = enumerated(theta, shares.numpy(), 1)
    even = enumerated(theta, np.full(16, 1 / 16), 1)[1]
    states = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4))).double().repeat(5000, 1)
    weights, generator = shares.repeat(5000) / 5000, torch.Generator().manual_seed(5)
    found, _ = contrastive_gradient(MarginalEnergy(STRUCTURE, theta), states, states, 1, generator, weights)
    # Hoeffding for weighted sums of statistics in [0, 1]
    limit = math.sqrt(float(weights.square().sum()) * math.log(2 * len(theta) / FALSE_ALARM_RATE) / 2)
    assert np.abs(found.numpy() - (data - chains)).max() < limit
    assert np.abs(found.numpy() - (data - even)).max() > limit  # control: all chains count alike


def test_the_exact_gradient_is_the_data_term_less_the_mean_under_the_law():
    theta = random_theta(STRUCTURE, scale=1.5, seed=2).requires_grad_()
    rows = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0]])
    shares = np.bincount((rows.numpy() @ [8, 4, 2, 1]), minlength=16) / 3
    (slope,) = torch.autograd.grad(restricted(STRUCTURE, theta).log_prob(rows).mean(), theta)
    data, _, law = enumerated(theta.detach(), shares, 1)
    assert_close(slope, data - law)


@pytest.mark.parametrize("size", [2, 4, 0, 6])
def test_means_under_the_law_are_the_gradient_of_log_z(size):
    structure = MachineStructure.restricted(domain(4), size)
    theta = random_theta(structure, scale=2.0).requires_grad_()
    log_z = restricted(structure, theta).log_partition.value
    found, means = model_statistics(MarginalEnergy(structure, theta.detach()))
    assert_close(found, log_z)
    assert_close(means, torch.autograd.grad(log_z, theta)[0])


# Optima


def test_without_hidden_units_the_optimum_is_the_independent_law():
    rows = rows_of(teacher(), 400)
    found = fit_machine(rows, 0, LearningOptions("exact"))
    assert found.converged and isinstance(found.law, RestrictedBoltzmannMachine)
    mean = rows.codes.double().mean(0)
    assert_close(found.law.visible_bias, mean.logit(), relative=1e-5)


def test_exact_learning_finds_an_optimum_and_persistent_chains_come_near():
    law = teacher()
    rows = rows_of(law, 3000)
    exact = fit_machine(rows, 2, LearningOptions("exact", iterations=1000, scale=0.5), seed=3)
    assert exact.converged and exact.score_name == "log-likelihood"
    best, independent = (
        log_likelihood(exact.law, rows),
        log_likelihood(fit_machine(rows, 0, LearningOptions("exact")).law, rows),
    )
    assert best > log_likelihood(law, rows) > independent + 0.05
    options = LearningOptions("pcd", iterations=2500, scale=0.5)
    found = fit_machine(rows, 2, options, seed=3)
    assert found.converged is None and found.iterations == 2500 and len(found.curve) == 101
    reached = log_likelihood(found.law, rows)
    assert reached > independent + 0.8 * (best - independent)
    assert found.curve[-1][1] == pytest.approx(reached, abs=1e-9)  # all distinct rows are shown
    # control: without a gradient nothing is learned
    still = fit_machine(rows, 2, LearningOptions("pcd", iterations=100, rate=1e-9, scale=0.5), seed=3)
    assert log_likelihood(still.law, rows) < independent


def test_layered_machines_are_learned_by_exact_gradients():
    structure = MachineStructure.layered(domain(4), 2, 1)
    counts = torch.zeros(2, 2, 2, 2)
    counts[0, 0, 0, 0] = counts[0, 1, 1, 1] = counts[1, 0, 1, 0] = 100
    rows = Observations.from_table(domain(4), counts)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        found = fit_machine(rows, structure, LearningOptions("exact", iterations=60, decay=0.01, scale=0.5))
    assert found.law.structure == structure and found.curve[-1][1] > found.curve[0][1] + 0.05
    scores = marginal_scores(structure, found.law.theta)
    merged = rows.unique()
    exact = scores[tuple(merged.codes.T.numpy())] - np.log(np.exp(scores).sum())
    assert found.curve[-1][1] == pytest.approx(float((exact * merged.counts.numpy()).sum() / 300), abs=1e-9)


def test_decay_keeps_weights_small_and_what_cannot_converge_is_said():
    rows = Observations.from_tensor(torch.tensor([[0, 0, 1], [1, 1, 0]]), domain(3))
    with pytest.warns(ConvergenceWarning, match="the gradient has not vanished after 5 iterations"):
        free = fit_machine(rows, 1, LearningOptions("exact", iterations=5, scale=1.0))
    assert free.converged is False
    sizes = [
        float(fit_machine(rows, 1, LearningOptions("exact", decay=decay, scale=1.0)).law.weights.square().sum())
        for decay in (0.01, 0.1)
    ]
    assert sizes[0] > sizes[1]


# Runs


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # whether 200 iterations are enough
@pytest.mark.parametrize("method", ["pcd", "cd", "exact"])
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path, monkeypatch, method):
    rows = rows_of(teacher(), 100)
    options = LearningOptions(method, iterations=200, batch_size=None if method == "cd" else 20, momentum=0.5)
    whole = fit_machine(rows, 2, options, seed=5)
    monkeypatch.setattr(RunFile, "SECONDS", 0.0)
    noted(monkeypatch, LearningJob, "advance", 2)
    with pytest.raises(KeyboardInterrupt):
        fit_machine(rows, 2, options, seed=5, run=RunOptions(tmp_path / "run"))
    found = fit_machine(rows, 2, options, seed=5, run=RunOptions(tmp_path / "run", resume=True))
    assert torch.equal(found.law.theta, whole.law.theta) and found.curve == whole.curve
    with raises("other-run", "checkpoint"):
        fit_machine(rows, 3, options, seed=5, run=RunOptions(tmp_path / "run", resume=True))


def test_validation_stops_a_run_and_keeps_the_best_machine():
    law = teacher(n=8, scale=1.0)
    rows, held = rows_of(law, 20), rows_of(law, 200, seed=1)
    options = LearningOptions("cd", iterations=20_000, rate=0.5, batch_size=None, patience=5)
    found = fit_machine(rows, 4, options, validation=held)
    assert found.iterations < 20_000
    scores = [score for _, _, score in found.curve]
    assert int(np.argmax(scores)) == len(scores) - 6
    assert log_likelihood(found.law, held) == pytest.approx(max(scores), abs=1e-9)


def test_larger_machines_are_scored_by_the_pseudo_likelihood():
    rows = rows_of(teacher(n=16), 60)
    found = fit_machine(rows, 16, LearningOptions(iterations=20))
    assert found.score_name == "pseudo-log-likelihood"
    merged = rows.unique()
    exact = (found.law.log_pseudo_prob(merged.codes) * merged.counts).sum() / 60
    assert found.curve[-1][1] == pytest.approx(float(exact))


def test_a_start_is_where_learning_begins():
    rows = rows_of(teacher(), 100)
    start = random_theta(MachineStructure.restricted(domain(5), 2))
    found = fit_machine(rows, 2, LearningOptions("cd", iterations=1, rate=1e-12), start=start)
    assert_close(found.law.theta, start)


@pytest.mark.parametrize("method", ["cd", "pcd"])
def test_a_rate_that_diverges_is_named(method):
    with raises("not-finite", "rate"):
        fit_machine(rows_of(teacher(), 10), 1, LearningOptions(method, rate=100, decay=1, iterations=500))


def test_bad_input_of_learning_has_one_clear_error():
    rows = rows_of(teacher(), 10)
    three = Observations.from_tensor(torch.tensor([[0, 2]]), Domain.from_cardinalities({"a": 2, "b": 3}))
    with raises("out-of-range", "variable 'b'"):
        fit_machine(three, 2)
    with raises("out-of-range", "hidden"):
        fit_machine(rows, -1)
    with raises("conflict", "hidden"):
        fit_machine(rows, ["v0"])
    with raises("empty", "data"):
        fit_machine(rows.rows(torch.zeros(0, dtype=torch.long)), 1)
    missing = Observations.from_tensor(torch.tensor([[0, -1]]), domain(2))
    with pytest.raises(MissingDataError, match="1 cells"):
        fit_machine(missing, 1)
    with raises("other-domain", "validation"):
        fit_machine(rows, 1, validation=Observations.from_tensor(torch.zeros(1, 2, dtype=torch.long), domain(2)))
    with raises("other-domain", "hidden"):
        fit_machine(rows, structures()["restricted"])
    with raises("conflict", "method"):
        fit_machine(rows, MachineStructure.layered(domain(5), 1, 1))
    with raises("conflict", "patience"):
        fit_machine(rows, 1, LearningOptions(patience=3))
    with raises("wrong-shape", "start"):
        fit_machine(rows, 1, start=torch.zeros(3))
    with raises("wrong-type", "options"):
        fit_machine(rows, 1, "exact")
    for seed in (-1, 2**63):
        with raises("out-of-range", "seed"):
            fit_machine(rows, 1, seed=seed)
    many = Observations.from_tensor(torch.zeros(1, 40, dtype=torch.long), domain(40))
    with pytest.raises(Exception, match="30 units, so 1073741824 states"):
        fit_machine(many, 30, LearningOptions("exact"))
    for name, value in (
        ("method", "ml"),
        ("steps", 0),
        ("rate", 0.0),
        ("momentum", 1.0),
        ("batch_size", 0),
        ("decay", -1),
    ):
        with raises("unknown-choice" if name == "method" else "out-of-range", name):
            LearningOptions(**{name: value})


@pytest.mark.parametrize("start", [[1.0], "x", torch.zeros(3, dtype=torch.long)])
def test_starts_that_are_no_tensors_of_numbers_are_refused(start):
    rows = Observations.from_table(domain(2), [[3, 1], [2, 4]])
    with raises("wrong-type", "start"):
        fit_machine(rows, 1, start=start)
