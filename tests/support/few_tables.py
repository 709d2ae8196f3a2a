"""Fewer tables drawn for p-values; tests of goodness of fit draw them as users do."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest


@contextmanager
def few_tables() -> Generator[None]:
    """Draw no more tables where few are as extreme, which takes a second a fit, and those by fewer moves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyro_hoim.log_linear.goodness.p_values._FINER", 1)
        patch.setattr("pyro_hoim.log_linear.goodness.fibre._STEPS_PER_CELL", 1)
        yield
