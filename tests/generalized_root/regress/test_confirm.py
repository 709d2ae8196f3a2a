"""Confirmed sets of root models: p-values against exact conditional laws, their size, and what stands in for what."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, hypergeom

from pyro_hoim import Domain, InputError, Variable
from pyro_hoim.errors import CostWarning
from pyro_hoim.generalized_root import (
    GaussianFamily,
    GeneralizedRootEnergy,
    L1Rule,
    PoissonFamily,
    RootAuto,
    RootSettings,
    RootStructure,
    choose_l1,
    confirm_roots,
    fit_roots,
    refit_roots,
)
from pyro_hoim.generalized_root.regress import confirm
from pyro_hoim.generalized_root.regress._set_tests import RootSetTester
from pyro_hoim.generalized_root.regress.rows import prepare_rows
from pyro_hoim.testing import FALSE_ALARM_RATE

PAIR = ("x0", "x1")


def set_tester(x, family=None, counts=None):
    return RootSetTester(prepare_rows(x, family or PoissonFamily(), 2, None, counts), {})


def tails(law, seen):
    """Twice the smaller tail of a law on 0, 1, ..."""
    return min(1.0, 2 * min(law[seen:].sum(), law[: seen + 1].sum()))


def hypergeometric(x, y):
    """Law of the number of rows where both are one, given how often each is."""
    return hypergeom(len(x), x.sum(), y.sum()).pmf(np.arange(min(x.sum(), y.sum()) + 1))


@pytest.mark.parametrize(("shares", "num"), [((0.3, 0.2), 200), ((0.01, 0.02), 3000), ((0.003, 0.004), 3000)])
def test_pairs_of_zeros_and_ones_have_the_tail_of_fishers_test(shares, num):
    rng = np.random.default_rng(5)
    x, y = (rng.random((2, num)) < np.array(shares)[:, None]).astype(int)
    y[: num // 4] |= x[: num // 4]
    exact = tails(hypergeometric(x, y), int(x @ y))
    for name in PAIR:
        assert set_tester(np.stack([x, y], 1)).test(PAIR, [], name).p_value == pytest.approx(exact, rel=0.05)


def test_pairs_beside_others_have_their_conditional_tail():
    """Given z, the rows where both are one are those of two strata, whose hypergeometric laws are convolved."""
    rng = np.random.default_rng(2)
    z = (rng.random(1500) < 0.3).astype(int)
    x, y = ((rng.random(1500) < np.where(z, share, 0.01)).astype(int) for share in (0.04, 0.3))
    y[x * z == 1] = 1
    law = np.convolve(*(hypergeometric(x[z == level], y[z == level]) for level in (0, 1)))
    exact = tails(law, int(x @ y))
    found = set_tester(np.stack([x, y, z], 1))
    assert found.test(PAIR, [("x0", "x2"), ("x1", "x2")], "x0").p_value == pytest.approx(exact, rel=0.06)
    assert found.test(PAIR, [], "x0").p_value != pytest.approx(exact, rel=0.5)  # control: marginal


@pytest.mark.parametrize("seed", range(3))
def test_pairs_of_counts_have_the_tail_of_the_permutation_test(seed):
    """By all orders of eight values; the sum of roots has no lattice."""
    rng = np.random.default_rng(seed)
    x = np.arange(8) + rng.integers(0, 2, 8)
    y = rng.permutation(np.arange(8) ** 2)
    orders = np.array(list(itertools.permutations(np.sqrt(y))))
    sums, seen = orders @ np.sqrt(x), np.sqrt(x) @ np.sqrt(y)
    exact = 2 * min((sums >= seen - 1e-9).mean(), (sums <= seen + 1e-9).mean())
    found = [set_tester(np.stack([x, y], 1)).test(PAIR, [], name).p_value for name in PAIR]
    assert found == pytest.approx([exact, exact], rel=0.08, abs=0.01)


def test_gaussian_pairs_beside_others_have_the_p_value_of_the_partial_correlation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 3))
    x[:, :2] += x[:, 2:]
    x[:, 1] += 0.04 * x[:, 0]
    residuals = [x[:, i] - x[:, 2] * (x[:, i] @ x[:, 2]) / (x[:, 2] @ x[:, 2]) for i in (0, 1)]
    r = np.corrcoef(residuals)[0, 1]
    exact = math.erfc(abs(np.arctanh(r)) * math.sqrt(3000 - 4) / math.sqrt(2))
    found = set_tester(x, GaussianFamily())
    assert found.test(PAIR, [("x0", "x2"), ("x1", "x2")]).log_p_value == pytest.approx(math.log(exact), abs=0.5)
    assert found.test(PAIR, []).p_value < exact / 1e9  # control


def findings(rows):
    """Sets that the regressions find, and those of them that are confirmed."""
    found = fit_roots(rows, order=2, settings=RootSettings(symmetrize="and"))
    return bool(found.num_interactions), bool(found.confirmed.num_interactions)


@pytest.mark.parametrize("shape", [None, 1.0])
def test_independent_columns_yield_no_more_than_the_rate(shape):
    """Also those that vary more than Poisson ones; the control is what the penalty alone lets through."""
    num_repeats, counts = 25, np.zeros(2, int)
    for seed in range(num_repeats):
        rng = np.random.default_rng(seed)
        rates = np.full((400, 5), 1.0) if shape is None else rng.gamma(shape, size=(400, 5)) / shape
        counts += findings(rng.poisson(rates))
    limit = binom.isf(FALSE_ALARM_RATE, num_repeats, 0.1)
    assert counts[1] <= limit < counts[0]


def chain():
    """Counts of a root model of which each is tied to the next, and an independent one."""
    structure = RootStructure.simplified(
        Domain([Variable(f"x{i}", kind="count") for i in range(4)]), [PAIR, ("x1", "x2")]
    )
    energy = GeneralizedRootEnergy(structure, torch.tensor([0.0, -0.3, 0.0, 0.5, 0.35, 0.35]).double(), PoissonFamily())
    return RootAuto().sample(energy, (1500,), torch.Generator().manual_seed(0)).numpy()


def test_what_is_left_out_is_named_with_what_replaces_it():
    x = chain()
    found = fit_roots(x, order=2, l1=0.001)
    kept = {("x0", "x1"), ("x1", "x2")}
    confirmed = found.confirmed
    assert set(confirmed.confirmation.kept) == kept == {term.names for term in confirmed.terms((2, 2))}
    tests = {test.edge: test for test in confirmed.confirmation.tests}
    assert set(tests) == {term.names for term in found.terms((2, 2))} > kept
    assert tests["x0", "x2"].is_confirmed and not tests["x0", "x2"].is_kept
    assert tests["x0", "x2"].replaced_by and set(tests["x0", "x2"].replaced_by) <= kept
    assert tests["x0", "x1"].gain is None and tests["x0", "x1"].rise > 2
    refitted = refit_roots(found, x).confirmed
    assert refitted.refit.method == "all" and {term.names for term in refitted.terms((2, 2))} == kept
    for other in (refitted.joined(), refitted.joined("or"), refit_roots(refitted, x, "singles")):
        assert {term.names for term in other.terms((2, 2))} == kept == set(other.confirmation.kept)
    assert refit_roots(found, x).joined().confirmed is None  # of other coefficients
    again = confirm_roots(fit_roots(x, order=2, l1=0.001, refit="all"), x, least_gain=1e6)
    assert again.num_interactions == 0 and again.refit.method == "all"


def test_sets_of_three_are_confirmed_beyond_their_pairs():
    rng = np.random.default_rng(1)
    x = rng.poisson(2.0, (2500, 4))
    x[:, 2] = rng.poisson(np.where((x[:, 0] > 1) == (x[:, 1] > 1), 4.0, 1.5))
    assert ("x0", "x1", "x2") in fit_roots(x, order=3, l1=0.003).confirmed.confirmation.kept
    tests = {test.edge: test for test in fit_roots(chain(), order=3, l1=0.0005).confirmed.confirmation.tests}
    assert ("x0", "x1", "x2") in tests and not tests["x0", "x1", "x2"].is_kept  # control: pairs alone


def test_counted_rows_are_repeated_rows_and_many_values_are_grouped():
    x = np.random.default_rng(3).poisson(60.0, (200, 3))
    x[:, 1] += x[:, 0]
    times = np.arange(200) % 3
    whole, short = set_tester(np.repeat(x, times, 0)), set_tester(x, counts=times)
    for edge in (PAIR, ("x0", "x2")):
        assert short.test(edge, []).log_p_value == pytest.approx(whole.test(edge, []).log_p_value, rel=1e-6)
    assert len(whole._column(0).shares) <= 24 < whole._column(0).num_values


def test_the_step_is_the_default_and_can_be_left_out(monkeypatch):
    x = chain()
    plain = fit_roots(x, order=2, settings=RootSettings(false_discovery_rate=None))
    assert plain.confirmed is None and plain.confirmation is None
    whole = fit_roots(x, order=2)
    assert whole.structure == plain.structure and whole.confirmed.confirmation.false_discovery_rate == 0.1
    listed = RootSettings(candidates=[PAIR])
    assert fit_roots(x, order=2, settings=listed).confirmed.confirmation.kept == (PAIR,)
    chosen = choose_l1(x, [0.1, 0.01], rule=L1Rule("ebic"), order=2)
    assert [fit.confirmed is None for fit in chosen.path] == [fit is not chosen.fit for fit in chosen.path]
    with pytest.raises(InputError, match="false_discovery_rate: expected a number between 0 and 1"):
        RootSettings(false_discovery_rate=1.5)
    assert fit_roots(np.zeros((5, 2)) + np.eye(5)[:, :2] * 0, order=2).confirmed.num_interactions == 0
    monkeypatch.setattr(confirm, "_MOST_SECONDS", 1e-6)
    with pytest.warns(CostWarning, match="were not tested"):
        assert fit_roots(x, order=2).confirmed is None
