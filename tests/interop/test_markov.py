"""Markov networks of pgmpy and mbi, whose inference is the oracle; each test runs where its library is installed."""

import itertools
import math

import numpy as np
import pytest
import torch

from pyro_hoim import AnnealedImportance, Auto, Domain, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.interop import from_mbi, from_pgmpy, to_mbi, to_pgmpy

DOMAIN = Domain.from_labels(
    {"weather": ("rain", "sun"), "b": ("low", "mid", "high"), "a": ("10", "9"), "alone": ("y", "n")}
)
EDGES = [("weather", "b"), ("b", "a"), ("weather", "b", "a"), ("a",)]


def _model(seed, zeros=0.2):
    rng = np.random.default_rng(seed)
    graph = InteractionHypergraph(DOMAIN, EDGES, hierarchical=False)
    tables = rng.normal(size=graph.num_terms)
    tables[rng.random(len(tables)) < zeros] = -math.inf
    return LogLinearEnergy(graph, torch.from_numpy(tables))


MODELS = [_model(seed) for seed in (1, 2, 4)] + [_model(5, zeros=0.0)]


def _law(energy, names):
    """Log Z and probabilities by labels of the variables named, by enumeration."""
    states = torch.tensor(list(itertools.product(*map(range, energy.domain.cardinalities))))
    weights = torch.exp(-energy.energy(states)).numpy()
    shares = {}
    for state, weight in zip(states.tolist(), weights.tolist(), strict=True):
        key = tuple(energy.domain[name].labels[state[energy.domain.index(name)]] for name in names)
        shares[key] = shares.get(key, 0.0) + weight / weights.sum()
    return math.log(weights.sum()), shares


def _permuted_factor(discrete, rng, names, states, weights):
    """The same factor with its variables and their states in another order."""
    axes = rng.permutation(len(names)).tolist()
    names, weights = [names[i] for i in axes], weights.transpose(axes)
    order = [rng.permutation(n).tolist() for n in weights.shape]
    names_of = {name: [states[name][k] for k in own] for name, own in zip(names, order, strict=True)}
    return discrete.DiscreteFactor(names, weights.shape, weights[np.ix_(*order)], state_names=names_of)


@pytest.mark.parametrize("energy", MODELS)
def test_pgmpy_has_the_same_law_and_comes_back(energy):
    inference = pytest.importorskip("pgmpy.inference")
    network = to_pgmpy(energy)
    assert network.check_model()
    log_z, _ = _law(energy, [])
    assert math.log(network.get_partition_function()) == pytest.approx(log_z, abs=1e-12)
    found = inference.VariableElimination(network).query(["a", "weather"], show_progress=False)
    found.normalize()
    _, shares = _law(energy, ["a", "weather"])
    for key, share in shares.items():
        assert found.get_value(a=key[0], weather=key[1]) == pytest.approx(share, abs=1e-12)
    again = from_pgmpy(network)
    assert {v.name: v.labels for v in again.domain} == {v.name: v.labels for v in DOMAIN}
    for names in (["a", "weather"], ["b", "alone"]):
        assert _law(again, names)[1] == pytest.approx(_law(energy, names)[1], abs=1e-12)
    assert float(Auto().log_partition(again).value) == pytest.approx(log_z, abs=1e-12)


def test_factors_of_pgmpy_may_have_any_order_of_variables_and_states():
    discrete = pytest.importorskip("pgmpy.factors.discrete")
    models = pytest.importorskip("pgmpy.models")
    rng = np.random.default_rng(0)
    states = {"b": ["low", "mid", "high"], "a": [3, 1], "c": [True, False]}
    edges = [("a", "b"), ("b", "c"), ("c", "a")]
    weights = [rng.exponential(size=[len(states[name]) for name in edge]) for edge in edges]
    network = models.DiscreteMarkovNetwork(edges)
    factors = [_permuted_factor(discrete, rng, e, states, w) for e, w in zip(edges, weights, strict=True)]
    network.add_factors(*factors)
    energy = from_pgmpy(network)
    _, shares = _law(energy, ["a", "b", "c"])
    expected = np.einsum("ab,bc,ca->abc", *weights)
    for key, share in shares.items():
        index = tuple(
            [str(level) for level in states[name]].index(label) for name, label in zip("abc", key, strict=True)
        )
        assert share == pytest.approx(expected[index] / expected.sum(), abs=1e-12)
    # Control: by position the law would be another one.
    by_position = np.einsum(
        *(arg for f in factors for arg in (f.values, ["abc".index(v) for v in f.variables])), [0, 1, 2]
    )
    assert not np.allclose(by_position / by_position.sum(), expected / expected.sum(), atol=1e-3)


def test_bayesian_networks_of_pgmpy_are_named_the_way_to_markov_networks():
    """The way is pgmpy's: the network that it converts to has the product of the conditional tables."""
    cpd = pytest.importorskip("pgmpy.factors.discrete").TabularCPD
    network = pytest.importorskip("pgmpy.models").DiscreteBayesianNetwork([("a", "b")])
    network.add_cpds(cpd("a", 2, [[0.25], [0.75]]), cpd("b", 2, [[0.5, 0.1], [0.5, 0.9]], ["a"], [2]))
    with pytest.raises(InputTypeError, match=r"received DiscreteBayesianNetwork; convert it by model\.to_markov_model"):
        from_pgmpy(network)
    log_z, shares = _law(from_pgmpy(network.to_markov_model()), ["a", "b"])
    assert log_z == pytest.approx(0, abs=1e-12)
    assert shares == pytest.approx({("0", "0"): 0.125, ("0", "1"): 0.125, ("1", "0"): 0.075, ("1", "1"): 0.675})


def test_other_objects_are_no_networks_of_pgmpy():
    class Directed:
        def to_markov_model(self):
            raise NotImplementedError

    with pytest.raises(InputTypeError, match=r"a DiscreteMarkovNetwork of pgmpy, received Directed; convert it by"):
        from_pgmpy(Directed())
    with pytest.raises(InputTypeError, match=r"a DiscreteMarkovNetwork of pgmpy, received int$"):
        from_pgmpy(3)


def test_networks_of_pgmpy_that_cannot_be_read_are_refused():
    discrete = pytest.importorskip("pgmpy.factors.discrete")
    models = pytest.importorskip("pgmpy.models")
    network = models.DiscreteMarkovNetwork([("a", "b")])
    network.add_factors(discrete.DiscreteFactor(["a"], [2], [1, 2]))
    with pytest.raises(InputError, match="'b' is in no factor"):
        from_pgmpy(network)
    network.add_factors(
        discrete.DiscreteFactor(["b", "a"], [2, 2], [1, 2, 3, 4], state_names={"a": ["x", "y"], "b": [0, 1]})
    )
    with pytest.raises(InputError, match="the levels"):
        from_pgmpy(network)
    negative = models.DiscreteMarkovNetwork([("a", "b")])
    negative.add_factors(discrete.DiscreteFactor(["a", "b"], [2, 2], [1, 2, 3, -4]))
    with pytest.raises(InputError, match="finite weights from 0"):
        from_pgmpy(negative)
    twice = models.DiscreteMarkovNetwork([(1, "1")])
    twice.add_factors(discrete.DiscreteFactor([1, "1"], [2, 2], [1, 2, 3, 4]))
    with pytest.raises(InputError, match="'1' is repeated"):
        from_pgmpy(twice)
    large = LogLinearEnergy(InteractionHypergraph(DOMAIN, [("a",)]), torch.tensor([0.0, -800.0]).double())
    with pytest.raises(InputError, match="range of float64"):
        to_pgmpy(large)


@pytest.mark.parametrize("energy", MODELS)
def test_mbi_has_the_same_law_and_comes_back(energy):
    pytest.importorskip("mbi")
    field = to_mbi(energy, total=100.0)
    for names in (["a", "weather"], ["a", "b"]):  # the first pair is in no clique alone, the second is
        found = field.project(tuple(names))
        _, shares = _law(energy, names)
        for key, share in shares.items():
            index = tuple(DOMAIN[name].code(label) for name, label in zip(names, key, strict=True))
            order = tuple(names.index(name) for name in found.domain.attributes)
            assert float(found.values[tuple(index[i] for i in order)]) == pytest.approx(100 * share, abs=2e-3)
    again = from_mbi(field)
    assert again.domain == DOMAIN
    assert _law(again, ["a", "b"])[1] == pytest.approx(_law(energy, ["a", "b"])[1], abs=1e-5)
    assert torch.equal(torch.isneginf(again.tables), torch.isneginf(energy.tables))


def test_attributes_of_mbi_without_labels_have_numbers_and_constraints_exclude():
    mbi = pytest.importorskip("mbi")
    domain = mbi.Domain(("u", "v"), (2, 3))
    potentials = mbi.CliqueVector.zeros(domain, [("v", "u")])
    excluded = mbi.Constraint(domain, invalid=np.array([[0, 2], [1, 0]]))
    field = mbi.MarkovRandomField(potentials=potentials, marginals=potentials, constraints=(excluded,))
    energy = from_mbi(field)
    assert [variable.labels for variable in energy.domain] == [("0", "1"), ("0", "1", "2")]
    assert _law(energy, ["u", "v"])[0] == pytest.approx(math.log(4))
    assert {key for key, share in _law(energy, ["u", "v"])[1].items() if share == 0} == {("0", "2"), ("1", "0")}


def test_what_is_no_model_is_refused():
    for read, library in ((from_pgmpy, "pgmpy"), (from_mbi, "mbi")):
        with pytest.raises(InputTypeError, match=f"of {library}, received dict"):
            read({})
    batch = LogLinearEnergy(InteractionHypergraph(DOMAIN, [("a",)]), torch.zeros(3, 2).double())
    for write in (to_pgmpy, to_mbi):
        with pytest.raises(InputError, match="one model"):
            write(batch)
        with pytest.raises(InputTypeError, match="LogLinearEnergy"):
            write({})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"total": math.nan}, "total: expected a positive finite number, received nan"),
        ({"total": -1}, "total: expected a positive finite number"),
        ({"total": 0}, "total: expected a positive finite number"),
        ({"partition": AnnealedImportance()}, "partition: expected an exact backend"),
        ({"partition": Auto(annealed=AnnealedImportance())}, "partition: expected an exact backend"),
        ({"partition": 3}, "partition: expected a partition backend, received int"),
    ],
)
def test_totals_and_backends_without_marginals_are_refused_with_or_without_mbi(words, message):
    with pytest.raises((InputError, InputTypeError)) as caught:
        to_mbi(MODELS[0], **words)
    assert str(caught.value).startswith(message)
