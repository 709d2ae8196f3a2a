"""The exact backends that tests run over."""

import pytest

from pyro_hoim.log_linear import Auto, Enumeration, MatrixEnumeration, VariableElimination

BACKENDS = {
    "enumeration": Enumeration(),
    "design matrix": MatrixEnumeration(),
    "elimination": VariableElimination(),
    "elimination in log space": VariableElimination(space="log"),
    "elimination in slices": VariableElimination(max_cells=9),
    "auto": Auto(),
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every exact backend, one of which conditions on variables."""
    return BACKENDS[request.param]
