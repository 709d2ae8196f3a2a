"""What sums over grids tell beforehand and with their results: errors, refusals."""

import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln, logsumexp

from pyro_hoim.errors import IntractableError
from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily, RootAuto, RootEnumeration, RootStructure
from pyro_hoim.schema import Domain, Variable

PAIR = Domain([Variable(name, kind="count") for name in "ab"])


def test_the_error_beyond_a_thousand_nats_is_told():
    structure = RootStructure.simplified(PAIR, [])
    for eta, told in ((2.0, "1e-10"), (8.0, "5.96192e-10")):
        energy = GeneralizedRootEnergy(structure, torch.tensor([eta, eta]).double(), PoissonFamily())
        result = RootEnumeration().log_partition(energy)
        assert result.notes == (f"relative error of Z at most {told}",)
        assert abs(float(result.value) - 2 * math.exp(eta)) <= float(told)


def test_plans_refuse_where_the_search_for_the_grid_cannot_start():
    structure = RootStructure.simplified(PAIR, [PAIR.names])
    energy = GeneralizedRootEnergy(structure, torch.tensor([800.0, 0.0, -1.0]).double(), PoissonFamily())
    cost = RootEnumeration().plan_energy(energy)
    assert not cost.feasible and "single variables alone have no finite constant" in cost.reason
    with pytest.raises(IntractableError, match="single variables alone"):
        RootEnumeration().log_partition(energy)
    assert not RootAuto().plan_energy(energy).feasible


def test_two_counts_that_grow_together_need_no_wide_window():
    """Mean-field weights of the low mode bound the model by a product that reaches 8e8; other weights end near 200."""
    structure = RootStructure.simplified(PAIR, [PAIR.names])
    coefficients = torch.tensor([-6.16, -3.45, 17.51], dtype=torch.float64)
    energy = GeneralizedRootEnergy.from_coefficients(structure, coefficients, PoissonFamily())
    a = np.arange(400.0)
    log_q = -6.16 * a[:, None] - 3.45 * a + 17.51 * np.sqrt(a[:, None] * a) - gammaln(a + 1)[:, None] - gammaln(a + 1)
    result = RootAuto().log_partition(energy)
    assert result.kind == "exact"
    assert float(result.value) == pytest.approx(logsumexp(log_q), rel=1e-10)
    assert abs(float(result.value) - logsumexp(log_q[:40, :40])) > 1  # the control: a window that is too short
