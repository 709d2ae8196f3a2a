"""Printed numbers of paper 3: triangles of coefficients, propositions in exact integers, tables 1.2 and 1.3."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from pyro_hoim import HierarchicalLogLinear, InputError, InteractionHypergraph, load_table
from pyro_hoim.log_linear import (
    PseudoLikelihoodLoss,
    Stopping,
    SymmetricInteractionTensor,
    fit,
    multiplicity,
    num_interactions,
    slice_coefficient,
    subtensor_coefficient,
)

DATA = load_table("three_features")
PRINTED = [-3.6605, 1.4626, 0.7821, -0.4238, 1.1982, -0.8032]  # below table 1.2: q of X, Y, Z, XY, XZ, YZ
OPTIMUM = [-3.6612, 1.4631, 0.7823, -0.4238, 1.1981, -0.8035]
EMPIRICAL = [0.0983, 0.2105, 0.4172, 0.1849, 0.0011, 0.0612, 0.0060, 0.0208]  # table 1.3, Z fastest
FITTED = [0.0969, 0.2119, 0.4185, 0.1835, 0.0025, 0.0599, 0.0046, 0.0222]


@pytest.fixture(scope="module")
def tensor():
    pairs = InteractionHypergraph.from_order(DATA.domain, 2)
    result = fit(pairs, DATA, objective="pseudo-likelihood", stopping=Stopping(tolerance=1e-9))
    return SymmetricInteractionTensor.from_law(HierarchicalLogLinear(pairs, result.theta))


def test_table_1_2(tensor):
    np.testing.assert_allclose(tensor.entries, OPTIMUM, rtol=0, atol=1e-4)
    np.testing.assert_allclose(tensor.entries, PRINTED, rtol=0, atol=1e-3)
    assert not np.allclose(tensor.entries, PRINTED, rtol=0, atol=1e-4)  # the print stopped short of the optimum
    loss = PseudoLikelihoodLoss(DATA, 2)
    assert np.abs(loss.value_and_gradient(tensor.theta.numpy())[1]).max() < 1e-8
    printed = tensor.layout.multiplicity * np.array(PRINTED)
    assert np.abs(loss.value_and_gradient(printed)[1]).max() > 1e-6  # the control
    assert torch.equal(tensor.dense, tensor.dense.mT)


def test_table_1_3(tensor):
    np.testing.assert_allclose(DATA.table().flatten() / DATA.total_count, EMPIRICAL, rtol=0, atol=1e-12)
    probs = tensor.law().log_prob_table.exp().flatten()
    np.testing.assert_allclose(probs, FITTED, rtol=0, atol=1e-4)
    assert np.abs(probs.numpy() - EMPIRICAL).max() > 1e-3


def test_the_paper_s_node_conditional_of_order_2(tensor):
    """Section 1.2.2: twice the row of Q less its diagonal."""
    x = torch.tensor([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    q = tensor.dense
    for r in range(3):
        literal = [q[r, r] + 2 * sum(q[r, j] * row[j] for j in range(3) if j != r) for row in x]
        torch.testing.assert_close(tensor.node_logits(x)[:, r], torch.stack(literal), rtol=1e-12, atol=1e-12)


def test_tables_of_more_levels_have_no_tensor():
    titanic = load_table("titanic")
    graph = InteractionHypergraph.from_order(titanic.domain, 1)
    law = HierarchicalLogLinear(graph, torch.zeros(graph.num_parameters))
    with pytest.raises(InputError, match="law: expected binary variables, received 'Class' with 4 levels"):
        SymmetricInteractionTensor.from_law(law)


# Coefficients tau, psi and pi


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


def test_figures_2_4_to_2_6_but_for_one_misprint():
    assert [row(multiplicity, order) for order in range(1, 8)] == TAU
    ours = [row(subtensor_coefficient, order) for order in range(1, 8)]
    differ = [(k + 1, m + 1) for k in range(7) for m in range(k + 1) if ours[k][m] != PSI[k][m]]
    assert differ == [(6, 2)]
    assert (ours[5][1], PSI[5][1], TAU[5][1] / 2) == (31, 32, 31)
    assert ours[5][0] + ours[5][1] == 2**5  # proposition 2.11 at n = 2, where 32 would give 33
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


def test_propositions_2_7_and_2_11_powers_from_tau_and_psi():
    for order, n in itertools.product(range(1, 16), range(1, 20)):
        assert n**order == sum(multiplicity(order, i) * math.comb(n, i) for i in range(1, order + 1))
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


def test_proposition_2_12_by_counts_and_by_inclusion_and_exclusion():
    for order in range(1, 21):
        assert row(slice_coefficient, order) == slices_from_counts(order)
    # sum_m pi(K, m) t^(m-1) = t^K - (t - 1)^K: entries with r at some position are all less those without.
    for order, t in itertools.product(range(1, 21), range(-3, 25)):  # more points than the degree: a proof for each K
        assert (
            sum(slice_coefficient(order, m) * t ** (m - 1) for m in range(1, order + 1)) == t**order - (t - 1) ** order
        )


def test_table_1_1_and_orders_beyond_it():
    for num, printed in COMPLEXITY.items():
        ours = [num_interactions(num, order) for order in range(2, num + 1)]
        assert ours == printed
        assert ours[-1] == 2**num - 1  # conclusion 1.2, the column beside the table
    with pytest.raises(InputError, match="order: expected a whole number from 1 to 3, received 4"):
        num_interactions(3, 4)


@pytest.mark.parametrize("function", [multiplicity, subtensor_coefficient, slice_coefficient])
@pytest.mark.parametrize("arguments", [(3, 4), (3, 0), (0, 1), (2.0, 1)])
def test_arguments_out_of_range_are_refused(function, arguments):
    with pytest.raises(InputError, match="expected a whole number from 1"):
        function(*arguments)
