"""Verdicts on models with a family per variable, against integrals over growing boxes."""

import pytest
import torch

from pyro_hoim import Domain, Variable
from pyro_hoim.generalized_root import ExponentialFamily, GaussianFamily, RootStructure
from pyro_hoim.generalized_root.normalizability.check import check_normalizability

FAMILIES = {"x": ExponentialFamily(), "y": GaussianFamily()}


@pytest.mark.parametrize(("pair", "verdict"), [(3.0, "disproven"), (-3.0, "disproven"), (1.9, "proven")])
def test_a_real_number_grows_as_the_root_of_a_positive_one(pair, verdict):
    """exp(-x - y^2 + 3 y sqrt(x)) falls along every straight ray in (x, y) and diverges along y = sqrt(x)."""
    domain = Domain([Variable(name, kind=family.kind) for name, family in FAMILIES.items()])
    structure = RootStructure.simplified(domain, [("x", "y")])
    psi = torch.tensor([-1.0, -1.0, pair / 2], dtype=torch.float64)
    answer = check_normalizability(structure, psi, list(FAMILIES.values()))
    assert answer.verdict == verdict
    if verdict == "disproven":
        x, y = answer.witness.tolist()
        assert -x - y * y + pair * y * x**0.5 > 0
        assert answer.exponents.tolist() == [1.0, 0.5]
