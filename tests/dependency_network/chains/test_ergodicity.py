"""Ergodicity of pseudo-Gibbs chains: hand-made networks with known faults, and eigenvalues of transition matrices."""

import numpy as np
import pytest
import torch
from network_oracles import pair as pair_over, update_matrix

from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    ModelConditional,
    PseudoGibbsChains,
    TableConditional,
    check_ergodic,
    stationary_law,
)
from pyro_hoim.errors import ConvergenceWarning, InputError
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

PAIR = Domain.from_labels({"a": ["no", "yes"], "b": ["no", "yes"]})
COPY, NEGATE = torch.eye(2), torch.eye(2).flip(0)
scans = pytest.mark.parametrize("scan", ["random", "sequential"])


def pair(of_a, of_b):
    """Two variables that read each other."""
    return pair_over(of_a, of_b, PAIR)


def absorbing():
    """Once both are yes they stay."""
    stay = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    return pair(stay, stay)


@scans
def test_positive_networks_of_any_size_are_ergodic(scan):
    domain = Domain.from_cardinalities([3] * 200)
    probs = torch.tensor([[0.2, 0.3, 0.5]] * 3)
    names = domain.names
    nodes = [TableConditional(domain, names[i], [names[i - 1]], probs) for i in range(200)]
    found = check_ergodic(DependencyConditionals(nodes), scan=scan)
    assert (found.is_ergodic, found.has_unique_law, found.method, found.zero_nodes) == (True, True, "positive", ())
    assert found.message == "the chain is ergodic"
    hypergraph = InteractionHypergraph.from_order(domain.project(names[:40]), 2)
    model = DependencyConditionals.from_model(LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms)))
    assert check_ergodic(model, scan=scan).is_ergodic


@scans
def test_two_closed_classes_are_named_and_refused(scan):
    found = check_ergodic(pair(COPY, COPY), scan=scan)
    assert (found.is_ergodic, found.has_unique_law, found.method) == (False, False, "enumeration")
    assert (found.num_closed, found.zero_nodes) == (2, ("a", "b"))
    assert (found.closed_states, found.num_transient) == (({"a": "no", "b": "no"}, {"a": "yes", "b": "yes"}), 2)
    assert found.transient_states == ({"a": "no", "b": "yes"}, {"a": "yes", "b": "no"})
    with pytest.raises(
        InputError,
        match="no single limiting law: the chain cannot go between a=no, b=no; a=yes, b=yes; smooth the conditionals "
        "of 'a', 'b', or pass check=False",
    ):
        PseudoGibbsChains(pair(COPY, COPY), 4, scan=scan)
    chains = PseudoGibbsChains(pair(COPY, COPY), 4, scan=scan, init=torch.tensor([0, 1]), check=False, engine="torch")
    chains.sweep(20)
    assert bool((chains.states[:, 0] == chains.states[:, 1]).all())


@scans
def test_an_absorbing_state_is_named_and_reached(scan):
    found = check_ergodic(absorbing(), scan=scan)
    assert (found.is_ergodic, found.has_unique_law, found.num_closed) == (False, True, 1)
    assert (found.closed_states, found.num_transient) == (({"a": "yes", "b": "yes"},), 3)
    assert found.transient_states[0] == {"a": "no", "b": "no"}
    assert found.message == (
        "the chain has a single limiting law; 3 states have probability zero in it, such as a=no, b=no"
    )
    chains = PseudoGibbsChains(absorbing(), 50, scan=scan, engine="torch")
    chains.sweep(300)
    assert chains.states.tolist() == [[1, 1]] * 50


def test_a_periodic_sequential_scan_is_refused_and_the_random_scan_is_not():
    conditionals = pair(COPY, NEGATE)
    found = check_ergodic(conditionals, scan="sequential")
    assert (found.is_ergodic, found.has_unique_law, found.period, found.num_closed) == (False, False, 2, 1)
    with pytest.raises(
        InputError,
        match=r"the sequential scan is periodic: from a=no, b=yes it comes back every 2 sweeps only; "
        r"stationary_law\(scan='sequential'\) gives the mean of its cyclic laws; to sample, use the random scan",
    ):
        PseudoGibbsChains(conditionals, 4, scan="sequential")
    law = stationary_law(conditionals, scan="sequential")  # which the message promises
    assert law.probs.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    chains = PseudoGibbsChains(
        conditionals, 1, scan="sequential", init=torch.tensor([0, 1]), check=False, engine="torch"
    )
    record = chains.sweep(4, thin=1, states=True)
    assert record.states[:, 0].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    found = check_ergodic(conditionals, scan="random")
    assert (found.is_ergodic, found.period, found.num_transient) == (True, 1, 0)
    PseudoGibbsChains(conditionals, 4, engine="torch")


@scans
def test_a_level_that_is_never_drawn_leaves_transient_states(scan):
    conditionals = pair(torch.tensor([[0.5, 0.5], [0.3, 0.7]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    found = check_ergodic(conditionals, scan=scan)
    assert (found.is_ergodic, found.has_unique_law, found.zero_nodes) == (False, True, ("b",))
    assert found.transient_states == ({"a": "no", "b": "yes"}, {"a": "yes", "b": "yes"})


def sparse_network(seed):
    """Three variables with many zero probabilities; two are decision graphs."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})

    def laws(*shape):
        weights = rng.random(shape) * (rng.random(shape) < rng.choice([0.4, 0.6, 0.9]))
        weights[weights.sum(-1) == 0] = np.eye(shape[-1])[rng.integers(shape[-1])]
        return torch.from_numpy(weights / weights.sum(-1, keepdims=True))

    of_a = DecisionGraph(domain, "a").split(0, "b").split(0, "c").merge(0, 3)
    of_c = DecisionGraph(domain, "c").split(0, "a").split(0, "b")
    return DependencyConditionals(
        [
            LeafConditional(of_a, laws(of_a.num_leaves, 2)),
            TableConditional(domain, "b", ["a", "c"], laws(2, 2, 3)),
            LeafConditional(of_c, laws(of_c.num_leaves, 2)),
        ]
    )


def sweep_matrix(conditionals, names, scan):
    """Transition matrix of a sequential sweep, or of one update at random."""
    steps = [update_matrix(conditionals, name) for name in names]
    return np.linalg.multi_dot(steps) if scan == "sequential" else np.mean(steps, 0)


@pytest.mark.fixed_seed  # these networks show every kind of verdict
@scans
def test_verdicts_agree_with_eigenvalues(scan):
    """Eigenvalues of modulus one are one for each closed class, or as many as its period."""
    seen = set()
    for seed in range(150):
        conditionals = sparse_network(seed)
        found = check_ergodic(conditionals, scan=["c", "a", "b"] if scan == "sequential" else scan)
        matrix = sweep_matrix(conditionals, "cab", scan)
        values = np.linalg.eigvals(matrix)
        num_one = int((np.abs(values - 1) < 1e-8).sum())
        num_modulus = int((np.abs(values) > 1 - 1e-8).sum())
        assert (found.num_closed, found.has_unique_law) == (num_one, num_modulus == 1)
        assert (found.period == 1) == (num_modulus == num_one)
        limit = np.linalg.matrix_power((matrix + np.eye(12)) / 2, 2**20)
        num_transient = int((limit.max(0) < 1e-9).sum())
        assert found.num_transient == num_transient
        for named, is_transient in ((found.transient_states, True), (found.closed_states, False)):
            for state in named:
                codes = conditionals.domain.encode_state(state)
                place = np.ravel_multi_index([codes[n] for n in "abc"], conditionals.domain.cardinalities)
                assert (limit.max(0)[place] < 1e-9) == is_transient
        assert found.is_ergodic == (num_modulus == 1 and num_transient == 0)
        small = check_ergodic(conditionals, scan=scan, max_states=1)  # as if there were too many states
        assert small.method in ("positive", "common state", "undecided")
        if small.method != "undecided":
            assert found.has_unique_law
        seen.add((found.has_unique_law, bool(num_transient), found.period, small.method))
    assert len(seen) >= (6 if scan == "sequential" else 4), seen
    assert {method for *_, method in seen} == {"positive", "common state", "undecided"}


def chain_of(num, probs):
    """Every variable reads the one before it, the first one the last."""
    domain = Domain.from_cardinalities([2] * num)
    return DependencyConditionals(
        TableConditional(domain, domain.names[i], [domain.names[i - 1]], probs) for i in range(num)
    )


def test_large_networks_are_decided_by_a_common_state_or_not_at_all():
    common = chain_of(60, torch.tensor([[0.5, 0.5], [1.0, 0.0]]))  # 0 is always possible
    found = check_ergodic(common)
    assert (found.is_ergodic, found.has_unique_law, found.method) == (None, True, "common state")
    PseudoGibbsChains(common, 2, engine="torch")
    domain = Domain.from_cardinalities([2] * 60)
    nodes = [TableConditional(domain, "x0", [], torch.tensor([0.5, 0.5]))]
    nodes += [TableConditional(domain, f"x{i}", [f"x{i - 1}"], COPY) for i in range(1, 60)]
    assert check_ergodic(DependencyConditionals(nodes)).method == "common state"  # once x0 is settled the others are
    copies = chain_of(60, COPY)
    found = check_ergodic(copies)
    assert (found.is_ergodic, found.has_unique_law, found.method) == (None, None, "undecided")
    assert found.zero_nodes == copies.domain.names
    with pytest.warns(ConvergenceWarning, match="not known whether.*'x0', 'x1'.*zero probabilities"):
        PseudoGibbsChains(copies, 2, engine="torch")
    assert check_ergodic(chain_of(8, COPY)).num_closed == 2  # the control: small enough to see that it is not


def test_foreign_conditionals_are_looked_at_too():
    always = TableConditional(PAIR, "a", [], torch.tensor([1.0, 0.0]))
    sure = ModelConditional(DependencyConditionals([always, TableConditional(PAIR, "b", ["a"], COPY)]), "a")
    found = check_ergodic(DependencyConditionals([sure, TableConditional(PAIR, "b", ["a"], COPY)]))
    assert found.closed_states == ({"a": "no", "b": "no"},)
    assert found.has_unique_law


@scans
def test_clamped_networks_are_judged_for_every_combination(scan):
    domain = Domain.from_labels({"a": ["no", "yes"], "b": ["no", "yes"], "s": ["free", "tied"]})
    half = torch.full((2,), 0.5)
    tied = torch.stack([half.expand(2, 2), COPY])  # (s, other, own)
    conditionals = DependencyConditionals(
        [
            TableConditional(domain, "a", ["s", "b"], tied),
            TableConditional(domain, "b", ["s", "a"], tied),
            TableConditional(domain, "s", [], half),
        ]
    )
    assert check_ergodic(conditionals, scan=scan).is_ergodic
    assert check_ergodic(conditionals, {"s": "free"}, scan=scan).is_ergodic
    for value in ("tied", torch.tensor([0, 1, 0])):
        found = check_ergodic(conditionals, {"s": value}, scan=scan)
        assert (found.has_unique_law, found.num_closed) == (False, 2)
        assert found.closed_states[0] == {"a": "no", "b": "no", "s": "tied"}
        with pytest.raises(InputError, match="cannot go between a=no, b=no, s=tied; a=yes, b=yes, s=tied"):
            PseudoGibbsChains(conditionals, 3, scan=scan, clamped={"s": value})


@pytest.mark.fixed_seed  # these networks show every kind of verdict
def test_many_combinations_are_judged_like_each_by_itself():
    """All rows in one graph, against one row at a time."""
    rng = np.random.default_rng(3)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "s": 40})

    def laws(*shape):
        weights = rng.random(shape) * (rng.random(shape) < 0.5)
        weights[weights.sum(-1) == 0] = np.eye(shape[-1])[0]
        return torch.from_numpy(weights / weights.sum(-1, keepdims=True))

    conditionals = DependencyConditionals(
        [
            TableConditional(domain, "a", ["s", "b"], laws(40, 3, 2)),
            TableConditional(domain, "b", ["s", "a", "c"], laws(40, 2, 2, 3)),
            TableConditional(domain, "c", ["s", "b"], laws(40, 3, 2)),
            TableConditional(domain, "s", [], torch.full((40,), 1 / 40, dtype=torch.float64)),
        ]
    )
    single = [check_ergodic(conditionals, {"s": s}) for s in range(40)]
    assert {found.num_closed for found in single} >= {1, 2}
    together = check_ergodic(conditionals, {"s": torch.arange(40)})
    assert together.num_closed == max(found.num_closed or 0 for found in single)
    assert together.num_transient == sum(found.num_transient or 0 for found in single)
    first = next(found for found in single if found.num_closed == together.num_closed)
    assert together.closed_states == first.closed_states
    transient = [state for found in single for state in found.transient_states]
    assert together.transient_states == tuple(transient[:3])
    unique = [s for s, found in enumerate(single) if found.has_unique_law]
    assert 0 < len(unique) < 40
    assert check_ergodic(conditionals, {"s": torch.tensor(unique)}).has_unique_law
    assert not check_ergodic(conditionals, {"s": torch.arange(40)}).has_unique_law


@pytest.mark.parametrize("num", [2, 60])
def test_evidence_of_probability_zero_is_refused(num):
    """Small networks by enumeration, large ones by the conditional of a clamped variable."""
    domain = Domain.from_cardinalities([2] * num)
    positive = torch.tensor([[0.5, 0.5], [0.3, 0.7]])
    nodes = [TableConditional(domain, "x0", [], torch.tensor([1.0, 0.0]))]
    nodes += [TableConditional(domain, f"x{i}", [f"x{i - 1}"], positive) for i in range(1, num)]
    conditionals = DependencyConditionals(nodes)
    with pytest.raises(InputError, match=r"clamped: x0=1 has probability zero.*pass check=False"):
        PseudoGibbsChains(conditionals, 3, clamped={"x0": 1})
    with pytest.raises(InputError, match="clamped: x0=1"):
        PseudoGibbsChains(conditionals, 2, clamped={"x0": [0, 1]})
    every = {name: int(i == 0) for i, name in enumerate(domain.names)}
    with pytest.raises(InputError, match="clamped: x0=1"):
        PseudoGibbsChains(conditionals, 3, clamped=every)
    chains = PseudoGibbsChains(conditionals, 3, clamped={"x0": 1}, check=False, engine="torch")
    chains.sweep(2)
    assert chains.states[:, 0].tolist() == [1, 1, 1]
    assert not check_ergodic(conditionals, {"x0": 0}).impossible
    assert not check_ergodic(conditionals, {"x1": 1}).impossible


def test_bad_arguments():
    with raises("unknown-choice", "scan"):
        check_ergodic(absorbing(), scan="cyclic")
