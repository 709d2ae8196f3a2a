"""The suite of impossible states, run by every family that can have them, and refused by laws that forget one."""

import itertools

import numpy as np
import pytest
import torch

import pyro_hoim
from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, LogLinearEnergy, Observations
from pyro_hoim.log_linear import Enumeration, ImpossibleStates, MatrixEnumeration, VariableElimination
from pyro_hoim.testing import SUPPORT_CHECKS, SupportCase, check_support, exact_table

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


def energy_case(backend, *combinations, **options):
    energy = LogLinearEnergy.from_theta(GRAPH, theta())
    energy = ImpossibleStates.of_combinations(DOMAIN, combinations).applied(energy)
    tables = energy.tables.clone().requires_grad_(options.get("requires_grad", False))
    model = LogLinearEnergy(energy.hypergraph, tables)
    return SupportCase.of(model, log_probs_without(*combinations), backend=backend)


def larger(case, smaller):
    return SupportCase(**{**vars(case), "smaller": smaller})


def fitted_probs(counts, margins, cells):
    """Iterative proportional fitting on the possible cells: the limit of maximum likelihood, by its definition."""
    probs = np.where(cells, 1.0, 0.0)
    for _ in range(5000):
        for axes in margins:
            others = tuple(i for i in range(counts.ndim) if i not in axes)
            have, want = (table.sum(axis=others, keepdims=True) for table in (probs, counts))
            with np.errstate(invalid="ignore", divide="ignore"):
                probs = probs * np.nan_to_num(want / have)
    return probs / probs.sum()


def fit_case(counts, formula, margins, cells, **options):
    domain = Domain.from_cardinalities(dict(zip("abc", counts.shape, strict=False)))
    states = np.argwhere(counts)
    rows = Observations(domain, torch.from_numpy(states), torch.from_numpy(counts[tuple(states.T)]))
    result = pyro_hoim.fit(formula, rows, **options)
    with np.errstate(divide="ignore"):
        return SupportCase.of(result, np.log(fitted_probs(counts, margins, cells)))


SOCIAL = np.array([[0, 12, 7, 3], [10, 0, 9, 5], [4, 8, 0, 11], [2, 6, 13, 0]])
EMPTY_PAIR = np.array([[[5, 3], [8, 2], [6, 1]], [[4, 7], [0, 0], [3, 5]], [[2, 4], [9, 6], [5, 3]]])
HABERMAN = np.array([[[0, 4], [3, 5]], [[6, 2], [7, 0]]])
THREE = [(0, 1), (0, 2), (1, 2)]


def quasi_independence():
    return fit_case(SOCIAL, "a + b", [(0,), (1,)], ~np.eye(4, dtype=bool), structural_zeros=np.eye(4, dtype=bool))


def empty_margin():
    cells = np.broadcast_to(EMPTY_PAIR.sum(2, keepdims=True) > 0, EMPTY_PAIR.shape)
    return fit_case(EMPTY_PAIR, "a*b + b*c", [(0, 1), (1, 2)], cells)


def forced_zeros():
    return fit_case(HABERMAN, "(a + b + c)^2", THREE, HABERMAN > 0)


CASES = {
    "energy, design matrix": lambda: energy_case(MatrixEnumeration(), *PAIRS),
    "energy, enumeration": lambda: energy_case(Enumeration(), *PAIRS, requires_grad=True),
    "energy, elimination": lambda: energy_case(VariableElimination(), *FACE, requires_grad=True),
    "energy, log space": lambda: energy_case(VariableElimination(space="log"), *PAIRS, *FACE, requires_grad=True),
    "law": lambda: larger(law_case(*PAIRS), law_case(*PAIRS, *FACE)),
    "law with gradients": lambda: larger(law_case(*PAIRS, requires_grad=True), law_case(*PAIRS, *FACE)),
    "law on a face": lambda: larger(law_case(*FACE, requires_grad=True), law_case(*PAIRS, *FACE, requires_grad=True)),
    "law of all states": lambda: larger(law_case(), law_case(*FACE)),
    "fit with structural zeros": quasi_independence,
    "its file": lambda: quasi_independence().copied(),
    "fit with an empty margin": empty_margin,
    "file of an empty margin": lambda: empty_margin().copied(),
    "fit on a face": forced_zeros,
    "file of a face": lambda: forced_zeros().copied(),
}


@pytest.mark.parametrize("check", SUPPORT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CASES)
def test_family_obeys_its_support(name, check):
    check(CASES[name]())
