"""What tests of results share."""

import pytest

from support.few_tables import few_tables
from support.figures import figures_of_one_pixel


@pytest.fixture(autouse=True, scope="module")
def quick_pages():
    """Pages are tested by their words here."""
    with few_tables(), figures_of_one_pixel():
        yield
