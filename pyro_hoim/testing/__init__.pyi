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
    SCALES as SCALES,
    BackendCase as BackendCase,
    check_backend as check_backend,
    standard_hypergraphs as standard_hypergraphs,
)
from .conformance import (
    DISTRIBUTION_CHECKS as DISTRIBUTION_CHECKS,
    Axis as Axis,
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
    random_tables as random_tables,
    split_tables as split_tables,
)
from .results import RESULT_CHECKS as RESULT_CHECKS, ResultCase as ResultCase, check_result as check_result
from .support import SUPPORT_CHECKS as SUPPORT_CHECKS, SupportCase as SupportCase, check_support as check_support
