"""The suite of impossible states, run by every family that can have them, and refused by laws that forget one."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

import pyro_hoim
from pyro_hoim import (
    DependencyConditionals,
    DependencyNetwork,
    Domain,
    HierarchicalLogLinear,
    InteractionHypergraph,
    LogLinearEnergy,
    Observations,
)
from pyro_hoim.core.operations import impute, predict, row_log_likelihood, sample, score
from pyro_hoim.errors import InputError
from pyro_hoim.log_linear import (
    Auto,
    Enumeration,
    ImpossibleStates,
    MatrixEnumeration,
    VariableElimination,
    load_model,
    parametrization,
)
from pyro_hoim.testing import SUPPORT_CHECKS, SupportCase, check_support, exact_table

from support.fitted_zeros import case, logs

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
PAIRS = [{"a": 0, "b": 1}, {"b": 2, "c": 1}]  # combinations of interactions
FACE = [{"a": 0, "b": 0, "c": 0}, {"a": 1, "b": 2, "c": 1}]  # of no interaction, as in Haberman's table


def theta(requires_grad=False):
    values = np.random.default_rng(4).normal(size=GRAPH.num_parameters)
    return torch.tensor(values, requires_grad=requires_grad)


def log_probs_without(*combinations):
    """By enumeration: the table of the law without impossible states, these taken out, normalised again."""
    table = exact_table(GRAPH, LogLinearEnergy.from_theta(GRAPH, theta()).tables)
    for combination in combinations:
        table[tuple(combination.get(name, slice(None)) for name in DOMAIN.names)] = -np.inf
    return table - np.log(np.exp(table).sum())


def law_case(*combinations, **options):
    impossible = ImpossibleStates.of_combinations(DOMAIN, combinations)
    law = HierarchicalLogLinear(GRAPH, theta(**options), impossible=impossible)
    return SupportCase.of(law, log_probs_without(*combinations))


def law_of_tables():
    """The table of all three columns in a saturated model."""
    log_probs, graph = log_probs_without(*PAIRS, *FACE), InteractionHypergraph.saturated(DOMAIN)
    return SupportCase.of(HierarchicalLogLinear.from_tables(graph, {DOMAIN.names: log_probs}), log_probs)


def law_of_a_column():
    table = log_probs_without(*PAIRS, *FACE)[..., 1]
    return SupportCase.of(law_case(*PAIRS, *FACE).subject.condition({"c": 1}), table - np.logaddexp.reduce(table, None))


def law_of_a_margin():
    table = np.logaddexp.reduce(log_probs_without({"a": 0, "b": 1}, *FACE), axis=2)
    return SupportCase.of(law_case({"a": 0, "b": 1}, *FACE).subject.marginal(["a", "b"]), table)


def energy_case(backend, *combinations, **options):
    energy = LogLinearEnergy.from_theta(GRAPH, theta())
    energy = ImpossibleStates.of_combinations(DOMAIN, combinations).applied(energy)
    tables = energy.tables.clone().requires_grad_(options.get("requires_grad", False))
    model = LogLinearEnergy(energy.hypergraph, tables)
    return SupportCase.of(model, log_probs_without(*combinations), backend=backend)


def larger(case, smaller):
    return replace(case, smaller=smaller)


def fit_case(name):
    _, law, result = case(name)
    return SupportCase.of(result, logs(law))


def network():
    """The conditionals of a law on its support belong together, so that their chain settles at that law."""
    energy = ImpossibleStates.of_combinations(DOMAIN, FACE).applied(LogLinearEnergy.from_theta(GRAPH, theta()))
    law = DependencyNetwork(DependencyConditionals.from_model(energy).tabulated())
    return SupportCase.of(law, log_probs_without(*FACE))


SLICED = VariableElimination(max_cells=8, max_slices=64)
CASES = {
    "energy, design matrix": lambda: energy_case(MatrixEnumeration(), *PAIRS),
    "energy, enumeration": lambda: energy_case(Enumeration(), *PAIRS, requires_grad=True),
    "energy, elimination": lambda: energy_case(VariableElimination(), *FACE, requires_grad=True),
    "energy, log space": lambda: energy_case(VariableElimination(space="log"), *PAIRS, *FACE, requires_grad=True),
    "energy, in slices": lambda: replace(energy_case(SLICED, *PAIRS), marginal=None),  # of all columns is too large
    "law": lambda: larger(law_case(*PAIRS), law_case(*PAIRS, *FACE)),
    "law with gradients": lambda: larger(law_case(*PAIRS, requires_grad=True), law_case(*PAIRS, *FACE)),
    "law on a face": lambda: larger(law_case(*FACE, requires_grad=True), law_case(*PAIRS, *FACE, requires_grad=True)),
    "law of tables": law_of_tables,
    "law given a column": law_of_a_column,
    "law of a margin": law_of_a_margin,
    "law of all states": lambda: larger(law_case(), law_case(*FACE)),
    "fit with structural zeros": lambda: fit_case("structural zeros on the diagonal"),
    "its file": lambda: made("fit with structural zeros").copied(),
    "fit with an empty margin": lambda: fit_case("an empty cell of a pair"),
    "file of an empty margin": lambda: made("fit with an empty margin").copied(),
    "fit on a face": lambda: fit_case("forced without an empty margin"),
    "dependency network": network,
    "file of a face": lambda: made("fit on a face").copied(),
}


made = functools.lru_cache(lambda name: CASES[name]())


@pytest.mark.parametrize("check", SUPPORT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CASES)
def test_family_obeys_its_support(name, check):
    check(made(name))


def test_a_law_that_forgets_one_combination_fails():
    forgetful = law_case(*PAIRS)
    case = replace(forgetful, log_probs=log_probs_without(*PAIRS, FACE[0]))
    with pytest.raises(AssertionError) as failure:
        check_support(larger(case, law_case(*PAIRS, *FACE)))
    named = {check.__name__ for check in SUPPORT_CHECKS if f"{check.__name__}:" in str(failure.value)}
    assert named >= {
        f"check_support_{name}" for name in ("log_prob", "total", "marginals", "entropy", "draws", "copies")
    }


def test_a_file_of_a_batch_has_one_set_of_impossible_states(tmp_path):
    law = law_case(*PAIRS).subject
    zeros = law.impossible.tables.expand(2, -1).clone()
    same = LogLinearEnergy(law.impossible.hypergraph, zeros.clone())
    zeros[1] = 0.0
    other = LogLinearEnergy(law.impossible.hypergraph, zeros)
    pyro_hoim.save(HierarchicalLogLinear(GRAPH, theta().expand(2, -1), impossible=same), tmp_path / "law.safetensors")
    read = load_model(tmp_path / "law.safetensors").energy
    assert read.tables.isneginf().equal(law.energy_model.tables.isneginf().expand(2, -1))
    for model in (other, HierarchicalLogLinear(GRAPH, theta().expand(2, -1), impossible=other)):
        with pytest.raises(InputError, match=r"the models of the batch \(2,\) have different impossible states"):
            pyro_hoim.save(model, tmp_path / "law.safetensors")


def test_every_door_refuses_a_batch():
    batch = HierarchicalLogLinear(GRAPH, theta().expand(2, -1), impossible=PAIRS)
    rows = Observations.from_tensor(torch.tensor([[0, 0, 0]]), DOMAIN)
    doors = [
        lambda: score(batch, rows),
        lambda: sample(batch, 3),
        lambda: impute(batch, rows),
        lambda: row_log_likelihood(batch, rows),
        lambda: predict(batch, rows, "a"),
    ]
    for door in doors:
        with pytest.raises(InputError, match=r"model: expected one model, received a batch of shape \(2,\)"):
            door()


def _outside(*_):
    return torch.tensor([0, 1, 0])  # one of PAIRS


BROKEN = {
    "check_support_log_prob": {
        "log_prob": lambda states: law_case(*PAIRS).log_prob(states).nan_to_num(neginf=torch.nan)
    },
    "check_support_mode": {"mode": _outside},
    "check_support_marginals": {"marginal": lambda names: law_case().marginal(names)},
    "check_support_conditioning": {"conditional": lambda name, _: torch.ones(DOMAIN[name].cardinality) / 2},
    "check_support_entropy": {"entropy": lambda: torch.tensor(torch.nan)},
    "check_support_divergence": {"divergence": lambda other: torch.zeros(())},
    "check_support_draws": {"draw": lambda number, seed, evidence: _outside().expand(number, 3)},
    "check_support_copies": {"copied": law_case},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_fails_its_check(name):
    case = larger(law_case(*PAIRS), law_case(*PAIRS, *FACE))
    check_support(case)
    with pytest.raises(AssertionError, match=rf"1 checks failed:\nsupport: {name}"):
        check_support(replace(case, **BROKEN[name]), skip=["check_support_total"])


def test_gradients_that_are_not_finite_fail():
    case = law_case(*PAIRS, requires_grad=True)
    slope = case.parameters.sum() - case.parameters.detach().sum()  # zero, with a root that has no slope
    broken = replace(case, log_prob=lambda states: case.log_prob(states) + slope.sqrt())
    with pytest.raises(AssertionError, match="check_support_gradients"):
        check_support(broken)


def random_case(seed):
    """A law of random interactions, tables and support, as often as not one whose support is not connected."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities(rng.integers(2, 4, size=rng.integers(2, 5)).tolist())
    sizes = rng.integers(1, min(3, len(domain)) + 1, size=3)
    edges = {tuple(sorted(rng.choice(domain.names, size=size, replace=False))) for size in sizes}
    graph = InteractionHypergraph(domain, edges, closure=True)
    cells = rng.random(domain.cardinalities) < rng.choice([0.1, 0.4, 0.8])
    cells[tuple(rng.integers(domain.cardinalities))] = False
    coding = ("free", "corner", "balanced")[seed % 3]
    values = parametrization(graph).convert(torch.from_numpy(rng.normal(size=graph.num_parameters)), "free", coding)
    backend = (Auto(), Enumeration(), VariableElimination())[seed // 3 % 3]
    with np.errstate(divide="ignore"):
        table = exact_table(graph, LogLinearEnergy.from_theta(graph, values, coding).tables) + np.log(~cells)
    table -= np.log(np.exp(table).sum())
    law = HierarchicalLogLinear(graph, values.requires_grad_(), impossible=cells, coding=coding, partition=backend)
    return SupportCase.of(law, table)


@pytest.mark.parametrize("seed", range(9))
def test_random_law_obeys_its_support(seed):
    check_support(random_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9, 189))
def test_many_random_laws_obey_their_supports(seed):
    check_support(random_case(seed))
