"""Dependency networks as Pyro distributions, against transition matrices over all states made by loops."""

import copy
import itertools
import math
import pickle
import sys
import warnings
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from network_oracles import PAIR, fixed_law, laws, pair, update_matrix
from pyro import poutine
from pyro.infer import SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.inspect import get_model_relations
from pyro.optim import ClippedAdam

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph
from pyro_hoim.core import StateSpace
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    DependencyNetwork,
    LeafConditional,
    ModelConditional,
    PseudoGibbsChains,
    TableConditional,
)
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, IntractableError
from pyro_hoim.testing import (
    DISTRIBUTION_CHECKS,
    DistributionCase,
    assert_close,
    assert_exact_law,
    count_states,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

from support.calls import noted

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
SELECTION = {"a": 0.2, "b": 0.5, "c": 0.3}
ORDER = ("c", "b", "a")  # not the schema order shifted, which has the same laws


@pytest.fixture(autouse=True)
def fresh_pyro():
    pyro.clear_param_store()
    pyro.set_rng_seed(7)
    with pyro.validation_enabled(True):
        yield
    pyro.clear_param_store()


SHAPES = ((2, 3, 2), (2, 3), (3, 2))


def network_of(of_a, of_b, of_c):
    """A table, a decision graph with a merge and a table of one parent, of the shapes ``SHAPES``."""
    graph = DecisionGraph(DOMAIN, "b").split(0, "a").split(1, "c").merge(0, 2)
    of_others = [TableConditional(DOMAIN, "a", ["c", "b"], of_a), TableConditional(DOMAIN, "c", ["b"], of_c)]
    return DependencyConditionals([LeafConditional(graph, of_b), *of_others])


def inconsistent(dtype=torch.float64):
    """Three conditionals that belong to no joint law."""
    return network_of(*(laws(shape, seed) for seed, shape in enumerate(SHAPES))).to(dtype=dtype)


def random_scan_law(network, selection=None):
    """The stationary law (*cardinalities)."""
    names = network.domain.names
    weights = selection or dict.fromkeys(names, 1 / len(names))
    matrix = sum(weights[name] * update_matrix(network, name) for name in names)
    return fixed_law(np.asarray(matrix)).reshape(network.domain.cardinalities)


def sequential_law(network, order):
    """Mean of the laws after the update of every variable."""
    steps = [update_matrix(network, name) for name in order]
    law = fixed_law(np.linalg.multi_dot(steps) if len(steps) > 1 else steps[0])
    visited = []
    for step in steps:
        law = law @ step
        visited.append(law)
    return np.mean(visited, axis=0).reshape(network.domain.cardinalities)


def scans():
    network = inconsistent()
    return [
        ({}, random_scan_law(network)),
        ({"scan": SELECTION}, random_scan_law(network, SELECTION)),
        ({"scan": "sequential"}, sequential_law(network, DOMAIN.names)),
        ({"scan": ORDER}, sequential_law(network, ORDER)),
    ]


SCANS = scans()


# Probabilities


def test_control_the_scans_have_different_laws_and_none_has_the_conditionals():
    tables = [table for _, table in SCANS]
    assert min(np.abs(x - y).max() for x, y in itertools.combinations(tables, 2)) > 1e-4
    for table in tables:
        theirs = inconsistent().full_table("a").numpy()
        assert np.abs(table / table.sum(0, keepdims=True) - theirs).max() > 1e-3


@pytest.mark.parametrize("case", range(4))
def test_probabilities_of_every_state_are_those_of_the_chain(case):
    options, table = SCANS[case]
    network = DependencyNetwork(inconsistent(), **options)
    states = network.enumerate_support()
    assert_close(network.log_prob(states), np.log(table).reshape(-1), relative=1e-10)
    assert_close(network.log_prob(states.double()), np.log(table).reshape(-1), relative=1e-10)
    assert_close(network.probs, table, relative=1e-10)
    assert_close(network.log_prob_table, np.log(table), relative=1e-10)
    assert_close(network.entropy(), -(table * np.log(table)).sum(), relative=1e-10)
    codes = [np.arange(n) for n in DOMAIN.cardinalities]
    one = [table.sum(axis=tuple(j for j in range(3) if j != i)) for i in range(3)]
    mean = np.array([p @ v for p, v in zip(one, codes, strict=True)])
    assert_close(network.mean, mean, relative=1e-10)
    assert_close(network.variance, [p @ v**2 - m**2 for p, v, m in zip(one, codes, mean, strict=True)], relative=1e-9)
    assert network.mode.tolist() == list(np.unravel_index(table.argmax(), table.shape))
    kept = network.marginal(["c", "a"])
    assert kept.domain == DOMAIN.project(["a", "c"])
    assert_close(kept.probs, table.sum(1), relative=1e-10)
    assert_close(network.marginal([]).probs, 1.0, relative=1e-12)
    assert network.stationary_law.scan.kind == network.scan.kind


def test_conditionals_of_a_joint_law_give_that_law_by_every_scan():
    hypergraph = InteractionHypergraph.from_order(DOMAIN, 2)
    tables = torch.from_numpy(random_tables(hypergraph, np.random.default_rng(3)))
    law = HierarchicalLogLinear(hypergraph, tables, coding="balanced")
    expected = exact_table(hypergraph, tables)
    for options, _ in SCANS:
        network = DependencyNetwork(DependencyConditionals.from_model(law.energy_model), **options)
        assert_close(network.log_prob_table, expected, relative=1e-10)
    states = law.enumerate_support()
    assert_close(network.log_pseudo_prob(states), law.log_pseudo_prob(states), relative=1e-10)


def test_pseudo_probability_and_conditionals_are_those_of_the_network():
    conditionals = inconsistent()
    network = DependencyNetwork(conditionals)
    states = network.enumerate_support()
    by_hand = sum(conditionals.full_table(name).log().reshape(-1) for name in DOMAIN.names)
    assert_close(network.log_pseudo_prob(states), by_hand, relative=1e-12)
    assert_close(network.log_pseudo_prob(states.float()), by_hand, relative=1e-12)
    with pytest.raises(InputError, match="variable 'b' has codes 0 to 2, received 3"):
        network.log_pseudo_prob(torch.tensor([0, 3, 0]))


def test_states_that_the_chain_leaves_for_good_have_probability_zero():
    conditionals = pair(torch.tensor([[0.5, 0.5], [0.25, 0.75]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    network = DependencyNetwork(conditionals)
    assert network.log_prob(torch.tensor([[0, 1], [1, 1]])).tolist() == [-math.inf] * 2
    assert_close(network.probs, [[0.5, 0.0], [0.5, 0.0]], absolute=1e-7)
    assert_close(network.entropy(), math.log(2), relative=1e-6)
    assert (network.sample((1000,))[:, 1] == 0).all()


# Batches, copies, precision


def one_row(theta, validate_args=True):
    """A network of any number of equal rows of theta, the logits of its tables."""
    parts = theta.reshape(-1, theta.shape[-1])[0].split([math.prod(shape) for shape in SHAPES])
    tables = (part.reshape(shape).softmax(-1) for part, shape in zip(parts, SHAPES, strict=True))
    network = DependencyNetwork(network_of(*tables), validate_args=validate_args)
    return network.expand(theta.shape[:-1]) if theta.dim() > 1 else network


THETA = torch.randn(24, generator=torch.Generator().manual_seed(0), dtype=torch.float64).expand(2, 24)


@pytest.mark.parametrize("check", DISTRIBUTION_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check):
    expected = np.log(random_scan_law(one_row(THETA).conditionals))
    case = DistributionCase(one_row, THETA, np.stack([expected] * 2))
    if check.__name__ == "check_gradients":  # it has none, and says so
        with pytest.raises(InputError, match="found without gradients"):
            check(case)
    else:
        check(case)


def test_shapes_of_expanded_laws():
    network = DependencyNetwork(inconsistent())
    assert (network.batch_shape, network.event_shape) == ((), (3,))
    assert DependencyNetwork.infer_shapes(conditionals=inconsistent(), scan=()) == ((), (3,))
    wide = network.expand((4, 1)).expand((4, 5))
    assert (wide.sample((2,)).shape, wide.sample((0,)).shape) == ((2, 4, 5, 3), (0, 4, 5, 3))
    assert wide.log_prob(torch.zeros(3)).shape == (4, 5)
    assert (wide.log_pseudo_prob(torch.zeros(6, 1, 1, 3)).shape, wide.probs.shape) == ((6, 4, 5), (4, 5, 2, 3, 2))
    assert wide.marginal(["b"]).probs.shape == (3,)
    for values in (wide.mean, wide.variance, wide.mode):
        assert values.shape == (4, 5, 3)
    assert (wide.entropy().shape, wide.condition({"b": 1}).batch_shape) == ((4, 5), (4, 5))
    assert isinstance(wide.support, StateSpace)
    assert wide.support.cardinalities == (2, 3, 2)
    inner = "DependencyConditionals(3 variables, 5 edges)"
    assert repr(wide) == f"DependencyNetwork({inner}, scan='random', batch_shape=(4, 5))"
    with pytest.raises(InputError, match="broadcasts with"):
        wide.log_prob(torch.zeros(3, 3))


def test_float32_tables_give_float32_results():
    single = DependencyNetwork(inconsistent(dtype=torch.float32))
    double = DependencyNetwork(inconsistent())
    states = single.enumerate_support()
    results = [single.log_prob(states), single.log_pseudo_prob(states), single.probs, single.mean, single.variance]
    results += [single.entropy(), single.log_prob_table]
    assert {r.dtype for r in results} == {torch.float32}
    assert_close(single.log_prob(states).double(), double.log_prob(states), absolute=2e-6)


def test_copies_keep_everything():
    for options, table in SCANS:
        network = DependencyNetwork(inconsistent(), num_sweeps=7, max_states=13, validate_args=True, **options)
        for clone in (pickle.loads(pickle.dumps(network)), copy.deepcopy(network), network.expand(())):
            assert_close(clone.probs, table, relative=1e-10)
            assert (clone.scan, clone.max_states) == (network.scan, 13)
            assert clone._validate_args is True


def test_the_law_is_found_once(monkeypatch):
    import pyro_hoim.dependency_network.law as module

    calls = noted(monkeypatch, module, "stationary_law")
    network = DependencyNetwork(inconsistent())
    _ = network.expand((3,)).sample((5,)), network.mean, network.expand((2,)).log_prob(torch.zeros(3)), network.probs
    assert len(calls) == 1


# Samples


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("sampler", ["exact", "pseudo-gibbs"])
def test_samples_follow_the_law(case, sampler):
    options, table = SCANS[case]
    network = DependencyNetwork(inconsistent(), sampler=sampler, num_sweeps=30, **options)
    assert (network.sample_is_exact, network.sample_burn_in) == (sampler == "exact", 0 if sampler == "exact" else 30)
    draws = network.sample((required_draws(12, 0.03),))
    assert draws.dtype == torch.long
    assert_exact_law(count_states(draws, DOMAIN.cardinalities), table.reshape(-1) / table.sum())


def test_control_the_last_states_of_sequential_sweeps_are_told_from_the_mean_over_places():
    network = inconsistent()
    table = sequential_law(network, DOMAIN.names)
    chains = PseudoGibbsChains(network, required_draws(12, 0.03), scan="sequential", seed=1)
    chains.sweep(30)
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(chains.states, DOMAIN.cardinalities), table.reshape(-1) / table.sum())


def test_few_sweeps_are_visible_as_such():
    """Negative control: one sweep from uniform levels does not reach the law of a sticky network."""
    sticky = torch.tensor([[0.99, 0.01], [0.03, 0.97]], dtype=torch.float64)
    conditionals = pair(sticky, sticky)
    table = random_scan_law(conditionals)
    far = DependencyNetwork(conditionals, sampler="pseudo-gibbs", num_sweeps=1).sample((4000,))
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(far, (2, 2)), table.reshape(-1))
    near = DependencyNetwork(conditionals, sampler="pseudo-gibbs", num_sweeps=600).sample((4000,))
    assert_exact_law(count_states(near, (2, 2)), table.reshape(-1))


def test_sequential_draws_in_blocks_and_with_variables_of_one_level(monkeypatch):
    monkeypatch.setattr("pyro_hoim.dependency_network.law._RECORDED_CODES", 1)
    domain = Domain.from_cardinalities({"n": 1, "a": 2, "b": 3, "m": 1})
    nodes = [
        TableConditional(domain, "n", [], torch.ones(1).double()),
        TableConditional(domain, "a", ["b"], laws((3, 2), 5)),
        TableConditional(domain, "b", ["a", "m"], laws((2, 1, 3), 6)),
        TableConditional(domain, "m", ["a"], torch.ones(2, 1).double()),
    ]
    network = DependencyConditionals(nodes)
    order = ("n", "b", "m", "a")
    table = sequential_law(network, order)
    for sampler in ("exact", "pseudo-gibbs"):
        law = DependencyNetwork(network, scan=order, sampler=sampler, num_sweeps=20)
        assert_close(law.probs, table, relative=1e-10)
        draws = law.sample((required_draws(6, 0.03),))
        assert_exact_law(count_states(draws, domain.cardinalities), table.reshape(-1))


def test_the_seed_of_pyro_fixes_the_draws():
    for sampler in ("exact", "pseudo-gibbs"):
        network = DependencyNetwork(inconsistent(), sampler=sampler)
        pyro.set_rng_seed(3)
        first = network.sample((20,))
        second = network.sample((20,))
        pyro.set_rng_seed(3)
        assert torch.equal(network.sample((20,)), first)
        assert not torch.equal(second, first)


def test_expanded_members_are_drawn_independently():
    draws = DependencyNetwork(inconsistent(), sampler="pseudo-gibbs").expand((2,)).sample((200,))
    assert (draws[:, 0] != draws[:, 1]).any()


# Large networks


def chain_network(size):
    """A chain in which every variable copies its neighbour before it with probability 0.8."""
    domain = Domain.from_cardinalities([2] * size)
    copies = torch.tensor([[0.8, 0.2], [0.2, 0.8]])
    nodes = [TableConditional(domain, "x0", [], torch.tensor([0.3, 0.7]))]
    nodes += [TableConditional(domain, f"x{i}", [f"x{i - 1}"], copies) for i in range(1, size)]
    return DependencyConditionals(nodes)


def test_beyond_the_budget_everything_else_works_and_the_error_names_the_pseudo_likelihood():
    network = DependencyNetwork(chain_network(17))
    assert network.has_enumerate_support
    assert not network.sample_is_exact
    x = network.sample((3000,))
    assert x.shape == (3000, 17)
    # The first variable has no parents, so its law is its table.
    assert_exact_law(torch.bincount(x[:, 0], minlength=2).numpy(), np.array([0.3, 0.7]))
    assert network.log_pseudo_prob(x).shape == (3000,)
    wanted = r"needs 131072 states, the budget is max_states=65536\. Raise max_states, or use log_pseudo_prob; in a "
    for name, call in {
        "log_prob": lambda: network.log_prob(x),
        "log_prob_table": lambda: network.probs,
        "mean": lambda: network.mean,
        "variance": lambda: network.variance,
        "mode": lambda: network.mode,
        "entropy": lambda: network.entropy(),
        "marginal": lambda: network.marginal(["x0"]),
        "stationary_law": lambda: network.stationary_law,
        "enumerate_support": lambda: network.enumerate_support(),
        "sample": lambda: DependencyNetwork(chain_network(17), sampler="exact").sample(),
    }.items():
        with pytest.raises(IntractableError, match=rf"^{name}: the law of a dependency network .* {wanted}"):
            call()
    large = DependencyNetwork(chain_network(200), num_sweeps=2)
    with pytest.raises(IntractableError, match=r"about 1\.61e\+60 states"):
        large.log_prob(torch.zeros(200))
    assert large.sample((3,)).shape == (3, 200)


def test_the_budget_is_an_option():
    conditionals = inconsistent()
    assert DependencyNetwork(conditionals, max_states=12).log_prob(torch.zeros(3)).isfinite()
    network = DependencyNetwork(conditionals, max_states=11)
    assert not network.sample_is_exact
    with pytest.raises(IntractableError, match="needs 12 states, the budget is max_states=11"):
        network.log_prob(torch.zeros(3))


# Clamping


def test_clamped_networks_have_the_law_of_conditional_pseudo_gibbs():
    conditionals = inconsistent()
    for options, table in SCANS:
        network = DependencyNetwork(conditionals, **options)
        rest = network.condition({"b": "2"})
        assert rest.domain.names == ("a", "c")
        clamped = conditionals.condition({"b": 2})
        if weights := network.scan.selection:
            total = weights["a"] + weights["c"]
            expected = random_scan_law(clamped, {name: weights[name] / total for name in ("a", "c")})
            assert rest.scan.selection == pytest.approx({"a": weights["a"] / total, "c": weights["c"] / total})
        else:
            expected = sequential_law(clamped, tuple(name for name in network.scan.order if name != "b"))
            assert rest.scan.order == tuple(name for name in network.scan.order if name != "b")
        assert_close(rest.probs, expected, relative=1e-10)
        own = table[:, 2] / table[:, 2].sum()
        assert np.abs(rest.probs.numpy() - own).max() > 1e-3  # not the network's own conditional law


def test_clamping_keeps_options_and_consistent_conditionals_give_the_conditional_law():
    hypergraph = InteractionHypergraph.from_order(DOMAIN, 2)
    law = HierarchicalLogLinear(hypergraph, torch.linspace(-1, 1, hypergraph.num_parameters).double())
    conditionals = DependencyConditionals.from_model(law.energy_model)
    network = DependencyNetwork(conditionals, num_sweeps=11, sampler="pseudo-gibbs", max_states=20, validate_args=True)
    rest = network.condition({"a": 1})
    assert_close(rest.probs, law.condition({"a": 1}).probs, relative=1e-10)
    assert (rest.sample_burn_in, rest.max_states, rest._validate_args) == (11, 20, True)
    assert not rest.sample_is_exact


def test_clamping_every_variable_leaves_the_law_of_the_empty_vector():
    for options, _ in SCANS:
        empty = DependencyNetwork(inconsistent(), **options).condition({"a": 0, "b": 1, "c": 1})
        assert (empty.event_shape, empty.sample((4,)).shape) == ((0,), (4, 0))
        assert empty.log_prob(torch.zeros(4, 0)).tolist() == [0.0] * 4
        assert (empty.log_pseudo_prob(torch.zeros(4, 0)).tolist(), empty.entropy()) == ([0.0] * 4, 0)
        assert empty.enumerate_support().shape == (1, 0)
        assert empty.mean.shape == empty.mode.shape == (0,)
    same = DependencyNetwork(inconsistent()).condition({})
    assert_close(same.probs, SCANS[0][1], relative=1e-10)


def test_evidence_that_cannot_be_is_refused():
    network = DependencyNetwork(pair(torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.1, 0.9]])))
    with pytest.raises(InputError, match=r"evidence: .*a=1.*; smooth"):
        network.condition({"a": 1})
    assert_close(network.condition({"a": 0}).probs, [0.5, 0.5], relative=1e-6)
    for evidence, code in [({"z": 0}, "unknown-name"), ({"a": 2}, "out-of-range"), ({"a": "x"}, "unknown-name")]:
        with raises(code):
            network.condition(evidence)


# Networks without a single law


def test_networks_that_remember_their_start_are_refused_and_the_states_named():
    for sampler in ("exact", "pseudo-gibbs"):
        network = DependencyNetwork(pair(torch.eye(2), torch.eye(2)), sampler=sampler)
        for call in (lambda n: n.sample((3,)), lambda n: n.log_prob(torch.zeros(2))):
            with pytest.raises(InputError, match=r"conditionals: .*a=0, b=0.*a=1, b=1") as error:
                call(network)
            assert "check=False" not in str(error.value)  # an option that a law lacks
    assert network.log_pseudo_prob(torch.tensor([[0, 0], [0, 1]])).tolist() == [0.0, -math.inf]


def foreign(domain, name):
    """Even odds from a model of which nothing else is known: it may say zero."""
    fair = torch.full((2,), 0.5, dtype=torch.float64)
    return ModelConditional(DependencyConditionals(TableConditional(domain, n, [], fair) for n in domain.names), name)


def test_undecided_networks_warn_once():
    domain = Domain.from_cardinalities([2] * 17)
    nodes = [foreign(domain, name) for name in domain.names]
    network = DependencyNetwork(DependencyConditionals(nodes), num_sweeps=1)
    with pytest.warns(ConvergenceWarning, match="not known whether the chain has a single limiting law"):
        network.sample((2,))
    with warnings.catch_warnings(action="error"):
        assert network.expand((2,)).sample((2,)).shape == (2, 2, 17)


def test_conditionals_of_models_serve():
    of_b = TableConditional(PAIR, "b", ["a"], torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64))
    network = DependencyNetwork(DependencyConditionals([foreign(PAIR, "a"), of_b]))
    assert_close(network.probs, random_scan_law(network.conditionals), relative=1e-10)
    draws = DependencyNetwork(network.conditionals, sampler="pseudo-gibbs", num_sweeps=20).sample((3000,))
    assert_exact_law(count_states(draws, (2, 2)), network.probs.numpy().reshape(-1))


# Arguments


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"scan": "chequered"}, "unknown-choice", "scan"),
        ({"sampler": "gibbs"}, "unknown-choice", "sampler"),
        ({"method": "guess"}, "unknown-choice", "method"),
        ({"num_sweeps": 0}, "out-of-range", "num_sweeps"),
        ({"num_sweeps": 1.5}, "out-of-range", "num_sweeps"),
        ({"max_states": -1}, "out-of-range", "max_states"),
        ({"max_states": True}, "out-of-range", "max_states"),
        ({"scan": ["a", "b"]}, "missing-part", "scan"),
        ({"scan": ["a", "b", "b", "c"]}, "repeated-name", "scan"),
        ({"scan": ["a", "b", "z"]}, "unknown-name", "scan"),
        ({"scan": [0.2, 0.5, 0.3]}, "unknown-name", "scan"),
        ({"scan": {"a": 0.5, "b": 0.5}}, "out-of-range", "scan"),
        ({"scan": {**SELECTION, "a": 0.0}}, "out-of-range", "scan"),
        ({"scan": {**SELECTION, "a": 0.3}}, "out-of-range", "scan"),
        ({"scan": {**SELECTION, "z": 0.3}}, "unknown-name", "scan"),
    ],
)
def test_unsuitable_options_are_refused(options, code, argument):
    with raises(code, argument):
        DependencyNetwork(inconsistent(), **options)


def test_other_objects_are_refused_and_holders_of_networks_are_taken():
    with pytest.raises(InputTypeError, match="expected DependencyConditionals, received str"):
        DependencyNetwork("network")
    conditionals = inconsistent()
    assert DependencyNetwork(SimpleNamespace(conditionals=conditionals)).conditionals is conditionals
    network = DependencyNetwork(conditionals)
    assert DependencyNetwork(network).conditionals is conditionals
    assert PseudoGibbsChains(network, 3).conditionals is conditionals
    with pytest.raises(InputTypeError, match="the string 'a'"):
        network.marginal("a")
    with pytest.raises(InputError, match="'a' is repeated"):
        network.marginal(["a", "a"])


@pytest.mark.parametrize("validate_args", [True, False])
def test_wrong_values_are_refused_with_and_without_validation(validate_args):
    network = DependencyNetwork(inconsistent(), validate_args=validate_args)
    for value, code in [
        (torch.tensor([0, 3, 0]), "out-of-range"),
        (torch.tensor([0, -1, 0]), "out-of-range"),
        (torch.tensor([0.0, 0.5, 0.0]), "out-of-range"),
        (torch.tensor([0, 0]), "wrong-shape"),
        (torch.tensor([True, False, True]), "wrong-type"),
        ([0, 0, 0], "wrong-type"),
    ]:
        for method in (network.log_prob, network.log_pseudo_prob):
            with raises(code, "value"):
                method(value)


# Pyro programs


WEIGHTS = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
DATA = torch.tensor([0.2, 2.5, -1.0, 1.3], dtype=torch.float64)


def latent(network, data):
    """A latent state for every row, seen through a normal reading."""
    with pyro.plate("rows", len(data)):
        x = pyro.sample("x", network, infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(x.to(WEIGHTS) @ WEIGHTS, 1.0), obs=data)


@pytest.mark.parametrize("expand", [False, True])
def test_trace_enum_elbo_sums_over_a_latent_network_exactly(expand):
    for options, table in SCANS:
        network = DependencyNetwork(inconsistent(), **options)
        model = config_enumerate(latent, "parallel", expand=expand)
        loss = TraceEnum_ELBO(max_plate_nesting=1).loss(model, lambda *args: None, network, DATA)
        states = network.enumerate_support().double()
        reading = dist.Normal(states @ WEIGHTS, 1.0).log_prob(DATA[:, None])
        expected = (torch.from_numpy(table).reshape(-1).log() + reading).logsumexp(-1).sum()
        assert_close(-loss, expected, relative=1e-10)
    with pytest.raises(AssertionError):
        assert_close(-loss, expected + 1e-3, relative=1e-10)


def test_a_program_beyond_the_budget_names_the_pseudo_likelihood():
    network = DependencyNetwork(chain_network(20))
    rows = network.sample((5,))

    def site():
        with pyro.plate("rows", 5):
            pyro.sample("x", network, obs=rows)

    with pytest.raises(ValueError, match=r"pyro\.factor\(name, network\.log_pseudo_prob\(x\)\.sum\(\)\)"):
        poutine.trace(site).get_trace().compute_log_prob()

    def factor():
        pyro.factor("rows", network.log_pseudo_prob(rows).sum())

    trace = poutine.trace(factor).get_trace()
    assert_close(trace.log_prob_sum(), network.log_pseudo_prob(rows).sum(), relative=1e-12)
    assert Predictive(lambda: pyro.sample("x", network), num_samples=3)()["x"].shape == (3, 20)


ROWS = torch.tensor([[0, 0], [0, 1], [1, 1], [1, 1], [0, 0], [1, 1]])
COUNTS = {"a": torch.tensor([[2.0, 0.0], [1.0, 3.0]]), "b": torch.tensor([[2.0, 1.0], [0.0, 3.0]])}


def bayesian(rows):
    """Dirichlet priors on the tables, and the pseudo-likelihood of the rows as a factor."""
    prior = dist.Dirichlet(torch.tensor([2.0, 3.0]).double()).expand([2]).to_event(1)
    network = DependencyNetwork(pair(pyro.sample("a", prior), pyro.sample("b", prior)))
    pyro.factor("rows", network.log_pseudo_prob(rows).sum())


def test_dirichlet_priors_and_the_pseudo_likelihood_make_dirichlet_posteriors():
    """Oracle: the density of a conjugate posterior, up to one constant; and its gradient."""
    posterior = {name: dist.Dirichlet(torch.tensor([2.0, 3.0]) + counts).to_event(1) for name, counts in COUNTS.items()}
    differences = []
    for seed in range(4):
        tables = {name: laws((2, 2), seed + 10 * i).requires_grad_() for i, name in enumerate("ab")}
        trace = poutine.trace(poutine.condition(bayesian, data=tables)).get_trace(ROWS)
        expected = sum(posterior[name].log_prob(table) for name, table in tables.items())
        differences.append(float((trace.log_prob_sum() - expected).detach()))
        found = torch.autograd.grad(trace.log_prob_sum(), list(tables.values()))
        wanted = torch.autograd.grad(expected, list(tables.values()))
        for left, right in zip(found, wanted, strict=True):
            assert_close(left, right, relative=1e-9)
    assert_close(torch.tensor(differences), torch.full((4,), differences[0]), relative=1e-9)
    prior_of_a = dist.Dirichlet(torch.tensor([2.0, 3.0]).double()).expand([2]).to_event(1)
    without = expected - posterior["a"].log_prob(tables["a"]) + prior_of_a.log_prob(tables["a"])
    assert abs(float((trace.log_prob_sum() - without).detach()) - differences[0]) > 1e-2


def test_svi_fits_tables_by_the_pseudo_likelihood():
    """The maximum of the pseudo-likelihood is the table of frequencies."""
    rows = torch.tensor([[0, 0]] * 6 + [[0, 1]] * 2 + [[1, 0]] * 1 + [[1, 1]] * 3)

    def model():
        tables = (pyro.param(name, torch.zeros(2, 2, dtype=torch.float64)).softmax(-1) for name in "ab")
        pyro.factor("rows", DependencyNetwork(pair(*tables)).log_pseudo_prob(rows).sum())

    svi = SVI(model, lambda: None, ClippedAdam({"lr": 0.3, "lrd": 0.97}), Trace_ELBO())
    for _ in range(150):
        svi.step()
    assert_close(pyro.param("a").softmax(-1), [[6 / 7, 1 / 7], [2 / 5, 3 / 5]], absolute=1e-3)
    assert_close(pyro.param("b").softmax(-1), [[6 / 8, 2 / 8], [1 / 4, 3 / 4]], absolute=1e-3)


def test_log_prob_refuses_tables_whose_gradient_it_would_lose():
    table = torch.full((2, 2), 0.5, requires_grad=True)
    network = DependencyNetwork(pair(table, torch.tensor([0.5, 0.5])))
    with pytest.raises(InputError, match=r"log_prob: .* a table requires one; use log_pseudo_prob"):
        network.log_prob(torch.zeros(2))
    with pytest.raises(InputError, match=r"log_prob_table: "):
        _ = network.probs
    with torch.no_grad():
        assert_close(network.log_prob(torch.zeros(2)), math.log(0.25), relative=1e-6)
    assert network.log_pseudo_prob(torch.zeros(2)).requires_grad
    assert not network.condition({"b": 0}).conditionals.node("a").probs.is_leaf


def test_inspection_and_rendering_know_the_site(monkeypatch):
    network = DependencyNetwork(inconsistent())

    def model():
        with pyro.plate("rows", 4):
            x = pyro.sample("x", network)
            pyro.sample("y", dist.Normal(x.double().sum(-1), 1.0), obs=torch.zeros(4).double())

    relations = get_model_relations(model)
    assert relations["sample_dist"]["x"] == "DependencyNetwork"
    assert relations["sample_sample"]["y"] == ["x"]
    drawn = MagicMock()  # stands in for graphviz, an optional package
    monkeypatch.setitem(sys.modules, "graphviz", SimpleNamespace(Digraph=lambda *_, **__: drawn))
    pyro.render_model(model, render_distributions=True)
    assert {"x", "y"} <= {call.args[0] for call in drawn.node.call_args_list}
    assert [call.args for call in drawn.edge.call_args_list] == [("x", "y")]


@pytest.mark.cuda
def test_cuda():
    for options, _ in SCANS:
        for sampler in ("exact", "pseudo-gibbs"):
            here = DependencyNetwork(inconsistent(), sampler=sampler, **options)
            there = DependencyNetwork(inconsistent().to(device="cuda"), sampler=sampler, **options)
            states = there.enumerate_support()
            assert states.is_cuda
            assert there.sample((5,)).is_cuda
            for found, expected in (
                (there.log_prob(states), here.log_prob(states.cpu())),
                (there.log_pseudo_prob(states), here.log_pseudo_prob(states.cpu())),
                (there.mean, here.mean),
                (there.condition({"b": 1}).probs, here.condition({"b": 1}).probs),
            ):
                assert found.is_cuda
                assert_close(found.cpu(), expected, relative=1e-10)
