"""The generations of ArviZ that are installed: one where the package ``arviz`` is of the second itself."""

import pytest

from pyro_hoim.interop import choose_backend


@pytest.fixture(params=["arviz"] if choose_backend("arviz").is_tree else ["arviz", "arviz_base"])
def backend(request):
    return request.param
