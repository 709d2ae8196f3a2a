"""What tests of reports share."""

import pytest

from support.few_tables import few_tables
from support.figures import figures_of_one_pixel


@pytest.fixture(autouse=True, scope="module")
def quick_p_values():
    """Words and pictures are tested here."""
    with few_tables():
        yield


@pytest.fixture
def words_alone():
    """Leave out the pictures of a page, two thirds of its time, where others of the same figures are drawn."""
    with figures_of_one_pixel():
        yield
