"""Public oracles, statistical assertions, random models and the conformance suite for new models and backends.

Four parts, all usable from other packages' tests:

* :mod:`~pyro_hoim.testing.oracles`: brute force over every joint state, in plain NumPy;
* :mod:`~pyro_hoim.testing.assertions`: tests of random output with a stated false-alarm rate;
* :mod:`~pyro_hoim.testing.strategies`: hypothesis strategies for domains, hypergraphs and parameters (hypothesis is
  imported when a strategy is made, never before);
* :mod:`~pyro_hoim.testing.conformance`: ``check_distribution`` and ``check_backend``, which a new class registers with.
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

__all__ = [
    "FALSE_ALARM_RATE",
    "MINIMUM_EXPECTATION",
    "POWER",
    "LawCheck",
    "RankCheck",
    "assert_close",
    "assert_exact_law",
    "assert_stationary",
    "assert_uniform_ranks",
    "chi_square_p_value",
    "count_states",
    "enumerate_codes",
    "exact_covariance",
    "exact_log_partition",
    "exact_statistics",
    "exact_table",
    "join_tables",
    "random_tables",
    "required_draws",
    "split_tables",
    "total_variation_bound",
]
