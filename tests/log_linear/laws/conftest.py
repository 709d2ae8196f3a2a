import pytest
from law_models import GRAPHS


@pytest.fixture(params=sorted(GRAPHS))
def hypergraph(request):
    return GRAPHS[request.param]
