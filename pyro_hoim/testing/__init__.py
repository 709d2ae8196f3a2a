"""Public oracles, statistical assertions, random models and the conformance suite for new models and backends.

Seven parts, all usable from other packages' tests:

* :mod:`~pyro_hoim.testing.oracles`: brute force over every joint state, in plain NumPy;
* :mod:`~pyro_hoim.testing.assertions`: tests of random output with a stated false-alarm rate;
* :mod:`~pyro_hoim.testing.strategies`: hypothesis strategies for domains, hypergraphs and parameters (hypothesis is
  imported when a strategy is made, never before);
* :mod:`~pyro_hoim.testing.transitions`: transition matrices of Gibbs sweeps by enumeration;
* :mod:`~pyro_hoim.testing.hard_models`: models with known log Z that is hard to estimate, and
  :mod:`~pyro_hoim.testing.hard_suite`, the published choice of them;
* :mod:`~pyro_hoim.testing.conformance`, :mod:`~pyro_hoim.testing.backends` and :mod:`~pyro_hoim.testing.chains`:
  ``check_distribution``, ``check_backend`` and ``check_engine``, which a new class registers with; likewise
  ``check_trainer`` of :mod:`~pyro_hoim.testing.training`;
* :mod:`~pyro_hoim.testing.raising`: the code and the argument of an exception.
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
from .chains import ENGINE_CHECKS, EngineCase, binary_hypergraphs, check_engine
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
from .raising import raises
from .root_radial import RootRadial
from .strategies import SCALES, RandomModel, domains, hypergraphs, models, thetas
from .training import TRAINER_CHECKS, TrainerCase, check_trainer
from .transitions import (
    block_update_matrix,
    random_scan_matrix,
    recompute_counts,
    recompute_energy,
    slice_states,
    sweep_matrix,
    tempered_law,
)

__all__ = [
    "BACKEND_CHECKS",
    "DISTRIBUTION_CHECKS",
    "ENGINE_CHECKS",
    "FALSE_ALARM_RATE",
    "MINIMUM_EXPECTATION",
    "POWER",
    "SCALES",
    "TRAINER_CHECKS",
    "BackendCase",
    "DistributionCase",
    "EngineCase",
    "LawCheck",
    "RandomModel",
    "RankCheck",
    "RootRadial",
    "TrainerCase",
    "assert_close",
    "assert_exact_law",
    "assert_stationary",
    "assert_uniform_ranks",
    "binary_hypergraphs",
    "block_update_matrix",
    "check_backend",
    "check_distribution",
    "check_engine",
    "check_trainer",
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
    "raises",
    "random_scan_matrix",
    "random_tables",
    "recompute_counts",
    "recompute_energy",
    "required_draws",
    "slice_states",
    "split_tables",
    "standard_hypergraphs",
    "sweep_matrix",
    "tempered_law",
    "thetas",
    "total_variation_bound",
]
