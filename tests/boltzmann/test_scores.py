"""Rows with missing cells, interactions of the visible variables, and model files."""

import numpy as np
import pytest
import torch
from machines import domain, exact_log_probs, machine, random_theta, restricted, structures

from pyro_hoim import InteractionHypergraph, Observations
from pyro_hoim.boltzmann import (
    MachineFile,
    MachineStructure,
    RestrictedBoltzmannMachine,
    effective_interactions,
    impute_machine,
    load_machine,
    predict_machine,
    row_log_scores,
    save_machine,
)
from pyro_hoim.errors import ModelFileError
from pyro_hoim.log_linear import HierarchicalLogLinear
from pyro_hoim.testing import assert_close, assert_exact_law, raises

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


def test_damaged_files_are_refused(tmp_path):
    structure = structures()["restricted"]
    save_machine(tmp_path / "m", MachineFile(structure, random_theta(structure)))
    data = (tmp_path / "m").read_bytes()
    for old, new in ((b"h1", b"v1"), (b"restricted", b"restrjcted"), (b"boltzmann", b"boltsmann")):
        assert old in data
        (tmp_path / "n").write_bytes(data.replace(old, new))
        with pytest.raises(ModelFileError):
            load_machine(tmp_path / "n")
    (tmp_path / "n").write_bytes(data[:-9])
    with pytest.raises(ModelFileError):
        load_machine(tmp_path / "n")
    with raises("not-finite", "theta"):
        MachineFile(structure, torch.full((structure.num_parameters,), torch.inf))
