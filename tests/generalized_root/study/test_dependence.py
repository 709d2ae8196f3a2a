"""Moments of two variables against sums and integrals written out, closed forms, and Gibbs chains."""

import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln

from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootChains,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.generalized_root.study.dependence import log_odds_ratio, pair_moments
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import FALSE_ALARM_RATE, raises


def _model(family, terms, coefficients, names="ab"):
    domain = Domain([Variable(name, kind=family.kind) for name in names])
    structure = RootStructure(domain, {key: [tuple(s) for s in sets] for key, sets in terms.items()})
    return GeneralizedRootEnergy.from_coefficients(structure, torch.tensor(coefficients, dtype=torch.float64), family)


def _pair(family, single, coefficient):
    return _model(family, {(1, 1): "ab", (2, 2): ["ab"]}, [single, single / 2, coefficient])


def _written_out(x, y, log_weights):
    """Log Z, means, variances and covariance of a table of weights."""
    log_z = np.logaddexp.reduce(log_weights, None)
    p = np.exp(log_weights - log_z)
    mx, my = (p * x).sum(), (p * y).sum()
    return log_z, mx, my, (p * (x - mx) ** 2).sum(), (p * (y - my) ** 2).sum(), (p * (x - mx) * (y - my)).sum()


def _flat(found):
    return (found.log_z, *found.mean.tolist(), *found.variance.tolist(), found.covariance)


@pytest.mark.parametrize("coefficient", [-3.0, -0.5, 0.0, 0.7, 1.5])
@pytest.mark.parametrize("maximum", [None, 7])
def test_counts_against_the_table(coefficient, maximum):
    family = PoissonFamily() if maximum is None else TruncatedPoissonFamily(maximum)
    found = pair_moments(_pair(family, 0.8, coefficient))
    x, y = np.meshgrid(*[np.arange(120.0 if maximum is None else maximum + 1)] * 2, indexing="ij")
    log_q = 0.8 * x + 0.4 * y + coefficient * np.sqrt(x * y) - gammaln(x + 1) - gammaln(y + 1)
    expected = _written_out(x, y, log_q)
    assert _flat(found) == pytest.approx(expected, rel=1e-10, abs=1e-10)
    assert found.correlation == pytest.approx(expected[5] / math.sqrt(expected[3] * expected[4]), abs=1e-10)
    assert np.sign(round(found.correlation, 9)) == np.sign(coefficient)
    if coefficient:
        assert abs(found.covariance - pair_moments(_pair(family, 0.8, 1.1 * coefficient)).covariance) > 1e-3


def test_all_keys_of_order_three():
    terms = {(1, 1): "ab", (2, 1): "ab", (2, 2): ["ab"], (3, 1): "a", (3, 2): ["ab"]}
    energy = _model(PoissonFamily(), terms, [0.3, -0.2, -1.0, 0.5, 0.9, 1.2, -0.7])
    x, y = np.meshgrid(*[np.arange(100.0)] * 2, indexing="ij")
    log_q = 0.3 * x - 0.2 * y - np.sqrt(x) + 0.5 * np.sqrt(y) + 0.9 * np.sqrt(x * y)
    log_q = log_q + 1.2 * np.cbrt(x) - 0.7 * np.cbrt(x * y) - gammaln(x + 1) - gammaln(y + 1)
    assert _flat(pair_moments(energy)) == pytest.approx(_written_out(x, y, log_q), rel=1e-10)


@pytest.mark.parametrize("coefficient", [-4.0, 0.5, 1.3])
def test_positive_numbers_against_a_product_quadrature(coefficient):
    """x = u^2 makes the integrand smooth; 400 Gauss-Legendre nodes a side."""
    found = pair_moments(_pair(ExponentialFamily(), -1.0, coefficient))
    nodes, weights = np.polynomial.legendre.leggauss(400)
    top = 22.0
    u, w = (nodes + 1) / 2 * top, weights / 2 * top
    x, y = np.meshgrid(u**2, u**2, indexing="ij")
    log_weights = -x - 0.5 * y + coefficient * np.sqrt(x * y) + np.log(np.outer(2 * u * w, 2 * u * w))
    assert _flat(found) == pytest.approx(_written_out(x, y, log_weights), rel=1e-8)


def test_closed_form_without_interaction():
    found = pair_moments(_model(ExponentialFamily(), {(1, 1): "ab"}, [-2.0, -1e-3]))
    assert found.log_z == pytest.approx(-math.log(2.0) - math.log(1e-3), abs=1e-9)
    assert found.mean.tolist() == pytest.approx([0.5, 1000.0], rel=1e-9)
    assert found.variance.tolist() == pytest.approx([0.25, 1e6], rel=1e-9)
    assert found.covariance == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("family", "single"), [(PoissonFamily(), 0.5), pytest.param(ExponentialFamily(), -1.0, marks=pytest.mark.slow)]
)
def test_chains_have_the_correlation(family, single):
    """20,000 independent chains; the bound is normal, from the spread of the centred products, at the stated rate."""
    energy = _pair(family, single, 0.6)
    exact = pair_moments(energy)
    chains = RootChains(energy, 20_000, seed=torch.Generator().manual_seed(7))
    chains.sweep(30)
    centred = chains.states - exact.mean
    products = centred.prod(1)
    bound = math.sqrt(2 * math.log(2 / FALSE_ALARM_RATE)) * float(products.std()) / math.sqrt(len(products))
    assert abs(float(products.mean()) - exact.covariance) < bound
    assert abs(float(products.mean()) - pair_moments(_pair(family, single, 0.0)).covariance) > bound  # the control


def test_clamped_variables():
    energy = _model(PoissonFamily(), {(1, 1): "abc", (3, 3): ["abc"]}, [0.5, 0.5, 0.5, 0.8], "abc")
    found = [pair_moments(energy.condition({"c": c})[0]).correlation for c in (0.0, 1.0, 8.0)]
    assert found[0] == pytest.approx(0.0, abs=1e-12)
    x, y = np.meshgrid(*[np.arange(200.0)] * 2, indexing="ij")
    log_q = 0.5 * (x + y) + 0.8 * 2.0 * np.cbrt(x * y) - gammaln(x + 1) - gammaln(y + 1)
    expected = _written_out(x, y, log_q)
    assert found[2] == pytest.approx(expected[5] / math.sqrt(expected[3] * expected[4]), abs=1e-10)
    assert 0 < found[1] < found[2]


def test_log_odds_ratio_of_pairs_is_constant_and_of_triples_is_not():
    triple = _model(PoissonFamily(), {(1, 1): "abc", (3, 3): ["abc"]}, [0.5, 0.5, 0.5, 0.8], "abc")
    pairs = _model(PoissonFamily(), {(1, 1): "abc", (2, 2): ["ab", "ac"]}, [0.5, 0.5, 0.5, 0.8, -1.0], "abc")
    for c in (0, 1, 5, 27):
        assert log_odds_ratio(pairs, ("b", "a"), {"c": c}) == pytest.approx(0.8, abs=1e-12)
        assert log_odds_ratio(triple, ("a", "b"), {"c": c}) == pytest.approx(0.8 * c ** (1 / 3), abs=1e-12)
    expected = 0.8 * (np.cbrt(2 * 2 * 8) + np.cbrt(5 * 5 * 8) - 2 * np.cbrt(2 * 5 * 8))
    assert log_odds_ratio(triple, ("a", "b"), {"c": 8}, low=2, high=5) == pytest.approx(expected, abs=1e-12)
    with raises("missing-part", "given"):
        log_odds_ratio(triple, ("a", "b"), {})
    with raises("repeated-name", "names"):
        log_odds_ratio(triple, ("a", "a"), {"c": 0})


def test_refusals():
    refused = [
        (3, "wrong-type"),
        (_model(PoissonFamily(), {(1, 1): "abc"}, [0.0] * 3, "abc"), "wrong-shape"),
        (_pair(PoissonFamily(), 0.0, 0.1).expand((2,)), "wrong-shape"),
        (_pair(GaussianFamily(), -1.0, 0.1), "no-method"),
        (_pair(ExponentialFamily(), -1.0, 1.5), "not-normalizable"),
    ]
    for energy, code in refused:
        with raises(code):
            pair_moments(energy)
