import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from law_models import GRAPHS


@pytest.fixture(params=sorted(GRAPHS))
def hypergraph(request):
    return GRAPHS[request.param]
