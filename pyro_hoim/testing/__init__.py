"""Public oracles, statistical assertions, random models and the conformance suite for new models and backends.

Four parts, all usable from other packages' tests:

* :mod:`~pyro_hoim.testing.oracles`: brute force over every joint state, in plain NumPy;
* :mod:`~pyro_hoim.testing.assertions`: tests of random output with a stated false-alarm rate;
* :mod:`~pyro_hoim.testing.strategies`: hypothesis strategies for domains, hypergraphs and parameters (hypothesis is
  imported when a strategy is made, never before);
* :mod:`~pyro_hoim.testing.conformance` and :mod:`~pyro_hoim.testing.backends`: ``check_distribution`` and
  ``check_backend``, which a new class registers with.
"""

from __future__ import annotations

from .assertions import (
    FALSE_ALARM_RATE,
    MINIMUM_EXPECTATION,
    POWER,
    LawCheck,
    RankCheck,
    assert_close,
    assert_exact_law,
    assert_stationary,
    assert_uniform_ranks,
    chi_square_p_value,
    required_draws,
    total_variation_bound,
)
from .backends import BACKEND_CHECKS, BackendCase, check_backend, standard_hypergraphs
from .conformance import DISTRIBUTION_CHECKS, DistributionCase, check_distribution
from .oracles import (
    count_states,
    enumerate_codes,
    exact_covariance,
    exact_log_partition,
    exact_statistics,
    exact_table,
    join_tables,
    random_tables,
    split_tables,
)
from .strategies import SCALES, RandomModel, domains, hypergraphs, models, thetas

__all__ = [
    "BACKEND_CHECKS",
    "DISTRIBUTION_CHECKS",
    "FALSE_ALARM_RATE",
    "MINIMUM_EXPECTATION",
    "POWER",
    "SCALES",
    "BackendCase",
    "DistributionCase",
    "LawCheck",
    "RandomModel",
    "RankCheck",
    "assert_close",
    "assert_exact_law",
    "assert_stationary",
    "assert_uniform_ranks",
    "check_backend",
    "check_distribution",
    "chi_square_p_value",
    "count_states",
    "domains",
    "enumerate_codes",
    "exact_covariance",
    "exact_log_partition",
    "exact_statistics",
    "exact_table",
    "hypergraphs",
    "join_tables",
    "models",
    "random_tables",
    "required_draws",
    "split_tables",
    "standard_hypergraphs",
    "thetas",
    "total_variation_bound",
]
