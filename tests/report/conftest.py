"""What tests of reports share."""

import pytest

from pyro_hoim.report import render


@pytest.fixture
def words_alone(monkeypatch):
    """Leave out the pictures of a page, two thirds of its time, where others of the same figures are drawn."""
    monkeypatch.setattr(render, "as_data_uri", lambda *_: "data:image/png;base64,")
