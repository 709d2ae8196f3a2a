"""What tests of reports share."""

import pytest

from support.few_tables import few_tables


@pytest.fixture(autouse=True, scope="module")
def quick_p_values():
    """Words and pictures are tested here."""
    with few_tables():
        yield
