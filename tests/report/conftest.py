"""What tests of reports share."""

import pytest

from support.figures import figures_of_one_pixel


@pytest.fixture
def words_alone():
    """Leave out the pictures of a page, two thirds of its time, where others of the same figures are drawn."""
    with figures_of_one_pixel():
        yield
