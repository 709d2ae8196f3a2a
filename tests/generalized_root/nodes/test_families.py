"""Node families: roots, base measures, closed forms of the base family, refusal of values, lookup by name."""

import math
import pickle

import numpy as np
import pytest
import torch

from pyro_hoim.errors import InputError
from pyro_hoim.generalized_root.nodes.families import (
    ExponentialFamily,
    GaussianFamily,
    PoissonFamily,
    TruncatedPoissonFamily,
    node_family,
)
from pyro_hoim.testing import raises

FAMILIES = [PoissonFamily(), TruncatedPoissonFamily(7), ExponentialFamily(), GaussianFamily()]
ids = [f.name for f in FAMILIES]


def double(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def test_families_are_values():
    assert TruncatedPoissonFamily(3) == TruncatedPoissonFamily(3) != TruncatedPoissonFamily(4)
    assert PoissonFamily() == node_family("poisson") != ExponentialFamily()
    assert (
        len({PoissonFamily(), node_family("poisson"), TruncatedPoissonFamily(3), node_family("truncated-poisson", 3)})
        == 2
    )
    assert pickle.loads(pickle.dumps(TruncatedPoissonFamily(3))) == TruncatedPoissonFamily(3)
    assert [f.code for f in FAMILIES] == [0, 1, 2, 3]


@pytest.mark.parametrize("family", FAMILIES[:3], ids=ids[:3])
def test_roots_are_powers(family):
    x = torch.tensor([0, 1, 5, 64])
    found = family.roots(x, 4)
    np.testing.assert_allclose(found, np.stack([x.numpy() ** (1 / j) for j in range(1, 5)], -1), rtol=1e-6)
    assert found.shape == (4, 4) and torch.equal(found[:, 2], family.root(x, 3))
    assert family.roots(x.double(), 1).dtype == torch.float64


def test_gaussian_roots_keep_the_sign_only_in_the_second():
    found = GaussianFamily().roots(double(-8.0, 8.0), 4)
    np.testing.assert_allclose(found[0], [64, -8, 4, 8**0.5], rtol=1e-14)
    np.testing.assert_allclose(found[1], [64, 8, 4, 8**0.5], rtol=1e-14)


@pytest.mark.parametrize("family", FAMILIES, ids=ids)
def test_orders_below_one_are_refused(family):
    for order in (0, -1, 1.5, True):
        with raises("out-of-range", "order"):
            family.roots(torch.zeros(2), order)
        with raises("out-of-range", "j"):
            family.root(torch.zeros(2), order)


def test_base_measure():
    x = double(0.0, 3.0, 170.0)
    expected = [-math.lgamma(v + 1) for v in x.tolist()]
    np.testing.assert_allclose(PoissonFamily().log_base(x), expected, rtol=1e-14)
    np.testing.assert_allclose(TruncatedPoissonFamily(200).log_base(x), expected, rtol=1e-14)
    assert not ExponentialFamily().log_base(x).any() and not GaussianFamily().log_base(x).any()


@pytest.mark.parametrize("top", [1, 7, 40, 300])
@pytest.mark.parametrize("eta", [-30.0, -2.0, 0.0, 1.5, 6.0])
def test_truncated_log_partition_against_sums(top, eta):
    terms = [x * eta - math.lgamma(x + 1) for x in range(top + 1)]
    found = TruncatedPoissonFamily(top).base_log_partition(double(eta)).item()
    assert found == pytest.approx(np.logaddexp.reduce(terms), rel=1e-12)


def test_base_natural_inverts_the_mean():
    means = double(1e-3, 1.0, 40.0)
    np.testing.assert_allclose(PoissonFamily().base_natural(means).exp(), means, rtol=1e-12)
    np.testing.assert_allclose(-1 / ExponentialFamily().base_natural(means), means, rtol=1e-12)
    np.testing.assert_allclose(-0.5 / GaussianFamily().base_natural(means), means, rtol=1e-12)
    small = TruncatedPoissonFamily(1).base_natural(means[:1])
    np.testing.assert_allclose(small.exp() / (1 + small.exp()), means[:1], rtol=1e-12)


@pytest.mark.parametrize(
    ("family", "bad", "words"),
    [
        (PoissonFamily(), [0.0, math.nan], "counts, received nan at index (1,)"),
        (PoissonFamily(), [0.0, math.inf], "received inf"),
        (PoissonFamily(), [1.0, -1.0, -2.0], "not negative, received -1 at index (1,) (2 such"),
        (PoissonFamily(), [1.5], "whole numbers, received 1.5 at index (0,)"),
        (TruncatedPoissonFamily(7), [7.0, 8.0], "maximum 7 of the family, received 8 at index (1,)"),
        (ExponentialFamily(), [0.0, -0.5], "not negative, received -0.5"),
        (ExponentialFamily(), [math.nan], "finite numbers, received nan"),
        (GaussianFamily(), [0.0, -math.inf], "finite numbers, received -inf at index (1,)"),
    ],
)
def test_values_outside_the_domain_are_named(family, bad, words):
    with pytest.raises(InputError) as caught:
        family.check_values(torch.tensor(bad), "counts of row")
    assert words in str(caught.value) and str(caught.value).startswith("counts of row: expected")


def test_values_of_the_domain_pass():
    for family in FAMILIES:
        family.check_values(torch.tensor([0, 1, 7]), "x")
        family.check_values(torch.zeros(0), "x")
        assert bool(family.support.check(torch.tensor([0.0, 1.0, 7.0])).all())
    ExponentialFamily().check_values(torch.tensor(0.5), "x")
    GaussianFamily().check_values(torch.tensor([-0.5]), "x")


def test_names_and_maximum():
    assert [node_family(f.name, 7 if f.name == "truncated-poisson" else None) for f in FAMILIES] == FAMILIES
    with pytest.raises(InputError, match=r"family: expected 'poisson', .* or 'truncated-poisson', received 'poison'"):
        node_family("poison")
    for name, maximum in (("truncated-poisson", None), ("poisson", 3)):
        with raises("conflict", "maximum"):
            node_family(name, maximum)
    for wrong in (0, -4, 2**60, 2.0, True, None):
        with raises("out-of-range", "maximum"):
            TruncatedPoissonFamily(wrong)
