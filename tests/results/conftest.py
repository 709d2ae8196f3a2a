"""What tests of results share."""

import pytest

from support.few_tables import few_tables


@pytest.fixture(autouse=True, scope="module")
def quick_p_values():
    """Pages are tested by their words here."""
    with few_tables():
        yield
