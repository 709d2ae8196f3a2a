from .assertions import (
    FALSE_ALARM_RATE as FALSE_ALARM_RATE,
    MINIMUM_EXPECTATION as MINIMUM_EXPECTATION,
    POWER as POWER,
    assert_close as assert_close,
    assert_equal as assert_equal,
    assert_exact_law as assert_exact_law,
    assert_stationary as assert_stationary,
    assert_uniform_ranks as assert_uniform_ranks,
    chi_square_p_value as chi_square_p_value,
    raises as raises,
    required_draws as required_draws,
    total_variation_bound as total_variation_bound,
)
from .backends import (
    BACKEND_CHECKS as BACKEND_CHECKS,
    BackendCase as BackendCase,
    check_backend as check_backend,
    standard_hypergraphs as standard_hypergraphs,
)
from .chains import (
    ENGINE_CHECKS as ENGINE_CHECKS,
    EngineCase as EngineCase,
    binary_hypergraphs as binary_hypergraphs,
    check_engine as check_engine,
)
from .conformance import (
    DISTRIBUTION_CHECKS as DISTRIBUTION_CHECKS,
    DistributionCase as DistributionCase,
    check_distribution as check_distribution,
)
from .oracles import (
    count_states as count_states,
    enumerate_codes as enumerate_codes,
    exact_covariance as exact_covariance,
    exact_log_partition as exact_log_partition,
    exact_statistics as exact_statistics,
    exact_table as exact_table,
    join_tables as join_tables,
    random_tables as random_tables,
    split_tables as split_tables,
)
from .results import RESULT_CHECKS as RESULT_CHECKS, ResultCase as ResultCase, check_result as check_result
from .root_radial import radial_log_partition as radial_log_partition
from .strategies import (
    SCALES as SCALES,
    RandomModel as RandomModel,
    domains as domains,
    hypergraphs as hypergraphs,
    models as models,
)
from .training import TRAINER_CHECKS as TRAINER_CHECKS, TrainerCase as TrainerCase, check_trainer as check_trainer
from .transitions import (
    block_update_matrix as block_update_matrix,
    random_scan_matrix as random_scan_matrix,
    recompute_counts as recompute_counts,
    recompute_energy as recompute_energy,
    slice_states as slice_states,
    sweep_matrix as sweep_matrix,
    tempered_law as tempered_law,
)
