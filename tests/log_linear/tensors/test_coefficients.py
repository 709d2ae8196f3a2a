"""Coefficients tau, psi and pi: the printed triangles, the recursions and the propositions, in exact integers."""

import itertools
import math
from collections import Counter

import pytest

from pyro_hoim.errors import InputError
from pyro_hoim.log_linear.tensors.coefficients import (
    multiplicity,
    num_interactions,
    slice_coefficient,
    subtensor_coefficient,
)

TAU = [  # figure 2.4 as printed
    [1],
    [1, 2],
    [1, 6, 6],
    [1, 14, 36, 24],
    [1, 30, 150, 240, 120],
    [1, 62, 540, 1560, 1800, 720],
    [1, 126, 1806, 8400, 16800, 15120, 5040],
]
PSI = [  # figure 2.5 as printed
    [1],
    [1, 1],
    [1, 3, 2],
    [1, 7, 12, 6],
    [1, 15, 50, 60, 24],
    [1, 32, 180, 390, 360, 120],
    [1, 63, 602, 2100, 3360, 2520, 720],
]
PI = [  # figure 2.6 as printed
    [1],
    [-1, 2],
    [1, -3, 3],
    [-1, 4, -6, 4],
    [1, -5, 10, -10, 5],
    [-1, 6, -15, 20, -15, 6],
    [1, -7, 21, -35, 35, -21, 7],
]
COMPLEXITY = {2: [3], 3: [6, 7], 4: [10, 14, 15], 5: [15, 25, 30, 31], 6: [21, 41, 56, 62, 63]}  # table 1.1, K from 2


def row(coefficient, order):
    return [coefficient(order, m) for m in range(1, order + 1)]


def test_figure_2_4():
    assert [row(multiplicity, order) for order in range(1, 8)] == TAU


def test_figure_2_5_but_for_one_misprint():
    ours = [row(subtensor_coefficient, order) for order in range(1, 8)]
    differ = [(k + 1, m + 1) for k in range(7) for m in range(k + 1) if ours[k][m] != PSI[k][m]]
    assert differ == [(6, 2)]
    assert (ours[5][1], PSI[5][1], TAU[5][1] / 2) == (31, 32, 31)
    assert ours[5][0] + ours[5][1] == 2**5  # proposition 2.11 at n = 2, where 32 would give 33


def test_figure_2_6():
    assert [row(slice_coefficient, order) for order in range(1, 8)] == PI


@pytest.mark.parametrize("order", range(1, 7))
def test_tau_and_psi_count_dense_entries(order):
    entries = list(itertools.product(range(order), repeat=order))
    sets = Counter(frozenset(entry) for entry in entries)
    first = Counter(frozenset(entry) for entry in entries if entry[0] == 0)
    for m in range(1, order + 1):
        assert sets[frozenset(range(m))] == multiplicity(order, m)
        assert first[frozenset(range(m))] == subtensor_coefficient(order, m)


def partitions(total, parts, largest=None):
    """Partitions of a number into so many parts, descending."""
    largest = total if largest is None else largest
    if parts == 0:
        return [()] if total == 0 else []
    return [(k, *rest) for k in range(1, min(largest, total) + 1) for rest in partitions(total - k, parts - 1, k)]


def test_lemma_2_5_and_proposition_2_9():
    for order in range(1, 11):
        for m in range(1, order + 1):
            total = 0
            for parts in partitions(order, m):
                arrangements = math.factorial(order) // math.prod(math.factorial(k) for k in parts)
                total += (
                    arrangements * math.factorial(m) // math.prod(math.factorial(c) for c in Counter(parts).values())
                )
            assert multiplicity(order, m) == total
            assert subtensor_coefficient(order, m) * m == total


def test_propositions_2_6_and_2_10():
    for order in range(2, 21):
        tau, psi = [0, *row(multiplicity, order - 1), 0], [0, *row(subtensor_coefficient, order - 1), 0]
        assert row(multiplicity, order) == [m * (tau[m - 1] + tau[m]) for m in range(1, order + 1)]
        assert row(subtensor_coefficient, order) == [(m - 1) * psi[m - 1] + m * psi[m] for m in range(1, order + 1)]
        assert multiplicity(order, order) == math.factorial(order)
        assert subtensor_coefficient(order, order) == math.factorial(order - 1)  # printed as K! in proposition 2.10


def test_proposition_2_7_powers_from_tau():
    for order, n in itertools.product(range(1, 16), range(1, 20)):
        assert n**order == sum(multiplicity(order, i) * math.comb(n, i) for i in range(1, order + 1))


def test_proposition_2_11_powers_from_psi():
    for order, n in itertools.product(range(1, 16), range(1, 20)):
        total = sum(subtensor_coefficient(order, i) * math.comb(n - 1, i - 1) for i in range(1, order + 1))
        assert n ** (order - 1) == total
        printed = sum(subtensor_coefficient(order, i) * math.comb(n, i - 1) for i in range(1, order + 1))
        assert (printed == n ** (order - 1)) == (order == 1)


def slices_from_counts(order):
    """Coefficients of the slices by back substitution: of the sets of m indices with r, each slice has psi."""
    found = {}
    for m in range(order, 0, -1):
        rest = sum(found[k] * subtensor_coefficient(k, m) for k in range(m + 1, order + 1))
        found[m], odd = divmod(multiplicity(order, m) - rest, subtensor_coefficient(m, m))
        assert odd == 0
    return [found[m] for m in range(1, order + 1)]


def test_proposition_2_12():
    for order in range(1, 21):
        assert row(slice_coefficient, order) == slices_from_counts(order)


def test_proposition_2_12_by_inclusion_and_exclusion():
    """sum_m pi(K, m) t^(m-1) = t^K - (t - 1)^K: entries with r at some position are all less those without."""
    for order, t in itertools.product(range(1, 21), range(-3, 25)):  # more points than the degree: a proof for each K
        assert (
            sum(slice_coefficient(order, m) * t ** (m - 1) for m in range(1, order + 1)) == t**order - (t - 1) ** order
        )


def test_table_1_1():
    for num, printed in COMPLEXITY.items():
        ours = [num_interactions(num, order) for order in range(2, num + 1)]
        assert ours == printed
        assert ours[-1] == 2**num - 1  # conclusion 1.2, the column beside the table


@pytest.mark.parametrize("function", [multiplicity, subtensor_coefficient, slice_coefficient])
@pytest.mark.parametrize("arguments", [(3, 4), (3, 0), (0, 1), (2.0, 1)])
def test_arguments_out_of_range_are_refused(function, arguments):
    with pytest.raises(InputError, match="expected a whole number from 1"):
        function(*arguments)


def test_more_orders_than_variables_are_refused():
    with pytest.raises(InputError, match="order: expected a whole number from 1 to 3, received 4"):
        num_interactions(3, 4)
