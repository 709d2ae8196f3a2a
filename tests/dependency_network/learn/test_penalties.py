"""Penalties of information sources and the conditions of theorem 5."""

import math

import pytest

from pyro_hoim.dependency_network import AIC, MDL, check_theorem_conditions
from pyro_hoim.dependency_network.learn.penalties import leaf_penalties
from pyro_hoim.errors import InputError
from pyro_hoim.testing import raises


def test_values_of_mdl_and_aic():
    assert MDL()(6, 1000.0) == 6 * math.log(1000) / 2000
    assert AIC()(6, 1000.0) == 0.006
    assert MDL()(6, 0.5) == 0.0
    assert (MDL(), AIC()) == (MDL(), AIC()) and MDL() != AIC()


@pytest.mark.parametrize("penalty", ["mdl", "aic", MDL(), AIC(), lambda k, n: math.sqrt(k) / n**0.7])
def test_conditions_hold_with_the_lossless_source(penalty):
    found = check_theorem_conditions(penalty, 2**11, 1000, lossless=True)
    assert found.hold and found.message == ""
    without = check_theorem_conditions(penalty, 2**11, 1000)
    assert without.is_positive and without.vanishes and not (without.lossless_is_candidate or without.hold)
    assert without.message == "the lossless source is not among the candidates; pass lossless=True"


@pytest.mark.parametrize("size", [1, 3, 7, 32])
@pytest.mark.parametrize("number", [3, 10, 37, 1000, 12345])
def test_a_root_of_the_number_of_rows_vanishes_in_spite_of_rounding(size, number):
    assert check_theorem_conditions(lambda k, n: k / math.sqrt(n), size, number, lossless=True).vanishes


@pytest.mark.parametrize(
    ("penalty", "positive", "vanishes"),
    [
        (lambda k, n: 0.0, False, True),
        (lambda k, n: 0.01 * k, True, False),
        (lambda k, n: k * math.log(n) / math.log(n + 1), True, False),
        (lambda k, n: k * n, True, False),
        (lambda k, n: 0.0 if n > 1e6 else k / n, False, True),
    ],
)
def test_conditions_that_fail_are_named(penalty, positive, vanishes):
    found = check_theorem_conditions(penalty, 8, 100, lossless=True)
    assert (found.is_positive, found.vanishes, found.hold) == (positive, vanishes, False)
    assert ("not positive" in found.message, "is not seen to tend to 0" in found.message) == (
        not positive,
        not vanishes,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "argument"),
    [
        (("mdl", 0, 100), "out-of-range", "num_parameters"),
        (("mdl", 2, 0), "out-of-range", "num_observations"),
        (("none", 2, 10), "unknown-choice", "penalty"),
        ((1.0, 2, 10), "wrong-type", "penalty"),
    ],
)
def test_bad_arguments_of_the_check(arguments, code, argument):
    with raises(code, argument):
        check_theorem_conditions(*arguments)


def test_penalties_by_leaves_end_where_the_entropy_cannot_pay_for_them():
    values = leaf_penalties(AIC(), 2, 100.0, 7.0, 50)
    assert values.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]  # one leaf costs 7 + 2 nats
    assert leaf_penalties(AIC(), 2, 100.0, 7.0, 3).tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_penalty_that_overflows_is_refused_with_the_sizes():
    with pytest.raises(InputError, match=r"penalty: no value for 32 parameters and 1000 observations \(.*out of range"):
        check_theorem_conditions(lambda k, n: 10.0**400 if k == 32 else float(k), 32, 1000, lossless=True)
