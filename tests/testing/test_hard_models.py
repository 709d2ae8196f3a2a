"""Log Z of the hard models against sums over all states, and the rule of false claims."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_hoim.errors import InputError
from pyro_hoim.log_linear import AnnealedImportance, VariableElimination
from pyro_hoim.testing import exact_log_partition

from support.hard_models import (
    blocks_of_levels,
    broad_phase,
    condensate_and_dimers,
    condensing_level,
    curie_weiss,
    enumerated_log_z,
    hidden_needle,
    mean_field_spins,
    needle,
    potts_complete,
    potts_grid,
    root_counts,
    shuffled,
    sign_grid,
    spin_glass,
    two_wells,
    xor_sat,
)
from support.hard_suite import HARD_CLASSES, easy_models, hard_models, is_false_claim
from support.root_models import listed, log_sum

SMALL = [
    mean_field_spins(7, -1.3, 2.2, 5.0),
    curie_weiss(8, 1.3, 0.1),
    two_wells(7, 0.4, 1.0, 2.5),
    condensing_level(5, 4, 0.7),
    blocks_of_levels(5, [1, 3, 1, 2], [0.3, 0.7, 1.1, -0.4], [0.6, 0.0, -0.2]),
    broad_phase(6, 3, 2, 1.5, field=1.2),
    condensate_and_dimers(5, 6, 1.3, 1.5, 2.0),
    shuffled(condensate_and_dimers(4, 5, 0.9, 1.1, 0.4), 3),
    potts_complete(6, 3, 3.1),
    potts_complete(5, 4, 2.0, 0.8),
    potts_grid(3, 3, 3, 0.9),
    sign_grid(3, 4, 1.1, seed=3),
    spin_glass(9, 1.5, seed=2),
    xor_sat(9, 2.0, seed=4),
    needle(5, 6.0, others=3, seed=1),
    hidden_needle(3, 6, 4.0, decoys=3, seed=1),
]


@pytest.mark.parametrize("model", SMALL, ids=lambda model: f"{model.name} {model.parameters}")
def test_log_z_is_the_sum_over_all_states(model):
    exact = float(exact_log_partition(model.energy.hypergraph, model.energy.tables))
    assert abs(model.log_z - exact) <= 1e-12 * abs(exact)
    assert abs(enumerated_log_z(model.energy) - exact) <= 1e-12 * abs(exact)
    tables = model.energy.tables.clone()  # the control: one entry of one table changed
    tables[-1] += 1e-3
    assert abs(model.log_z - float(exact_log_partition(model.energy.hypergraph, tables))) > 1e-12 * abs(exact)


@pytest.mark.parametrize(("size", "linear", "pair"), [(2, -0.3, 0.4), (3, -1.0, 0.3), (3, -4.0, 2.0)])
def test_log_z_of_counts_is_the_sum_over_all_counts(size, linear, pair):
    model = root_counts(size, linear, pair)
    exact = log_sum(listed("poisson", model.energy, {2: 200, 3: 60}[size])[1])
    assert abs(model.log_z - exact) < 1e-10
    assert abs(root_counts(size, linear, pair + 1e-6).log_z - exact) > 1e-7  # the control


def test_equations_of_xor_sat_have_one_solution_for_every_right_hand_side():
    model = xor_sat(10, 1.0, seed=3)
    states = np.indices((2,) * 10).reshape(10, -1)
    products = np.stack([states[list(scope)].sum(0) % 2 for scope in model.energy.hypergraph.edge_indices])
    assert len(np.unique(products, axis=1).T) == 2**10


def test_large_grid_agrees_with_elimination():
    model = sign_grid(10, 10, 2.0, seed=0)
    found = float(VariableElimination().log_partition(model.energy).value)
    assert abs(found - model.log_z) < 1e-9


def test_suite_has_the_counterexamples_and_finite_constants():
    for name in HARD_CLASSES:
        first = next(hard_models(name))
        assert first.name == name
        assert math.isfinite(first.log_z)
    sizes = {model.parameters["size"]: model.log_z for model in hard_models("spins of orders 1 to 3")}
    assert abs(sizes[30] - 263.444) < 1e-3
    with pytest.raises(InputError, match="expected '"):
        hard_models("soft")


def test_easy_models_stay_small_and_weak():
    for model in easy_models(16):
        assert math.prod(model.energy.hypergraph.domain.cardinalities) <= 2**16
        assert float(model.energy.tables.abs().max()) < 3


def test_rule_of_false_claims():
    model = curie_weiss(8, 0.5)
    result = AnnealedImportance(seed=1, num_chains=64, num_temperatures=50).log_partition(model.energy)
    assert not is_false_claim(result, model.log_z)
    shifted = replace(result, value=result.value + 1.0)
    assert is_false_claim(shifted, model.log_z)
    assert not is_false_claim(replace(shifted, verdicts=torch.zeros_like(result.verdicts)), model.log_z)
    assert not is_false_claim(replace(shifted, std_error=torch.tensor(0.3)), model.log_z)
    assert not is_false_claim(replace(result, value=torch.tensor(model.log_z + 0.04), std_error=0.0), model.log_z)
