"""What tests of reports share."""

import pytest

from pyro_hoim.report import render
from pyro_hoim.report.pictures import Picture


@pytest.fixture
def words_alone(monkeypatch):
    """Leave out the pictures of a page, two thirds of its time, where others of the same figures are drawn."""
    monkeypatch.setattr(render, "picture", lambda _: Picture(b"", 1, 1))
