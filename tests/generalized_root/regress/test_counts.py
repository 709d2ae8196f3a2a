"""Rows with counts: the fit of rows repeated as often, from arrays and from rows that lie elsewhere."""

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_hoim import CountTable
from pyro_hoim.data import open_rows
from pyro_hoim.errors import InputError, InputTypeError, MissingDataError
from pyro_hoim.generalized_root import L1Rule, RootSettings, choose_l1, fit_root_path, fit_roots

NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def rows():
    """Sixty distinct rows of dependent counts, and how often each was seen, some never."""
    random = np.random.default_rng(3)
    x = random.poisson(1.5, (60, 3))
    x[:, 1] += x[:, 0] * (random.random(60) < 0.7)
    x[:, 2] += (x[:, 0] * x[:, 1] > 2) * random.integers(0, 3, 60)
    return x, random.integers(0, 6, 60)


def equal(found, expected):
    assert found.structure == expected.structure and found.num_rows == expected.num_rows
    assert torch.allclose(found.psi, expected.psi, rtol=0, atol=1e-9)
    assert torch.allclose(found.objective, expected.objective, rtol=0, atol=1e-9)


TIGHT = RootSettings(tolerance=1e-10)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("poisson", {"order": 3, "l1": 0.01}),
        ("poisson", {"order": 2, "l1": 0.02, "full": True, "refit": "all"}),
        ("poisson", {"order": 2, "l1": 0.02, "refit": "singles"}),
        ("gaussian", {"order": 2, "l1": 0.05}),
        ("exponential", {"order": 2, "l1": 0.05}),
    ],
)
def test_counts_are_rows_repeated(rows, family, options):
    x, counts = rows
    x = x - 2.5 if family == "gaussian" else x + 0.5 * (family == "exponential")
    options = {"settings": TIGHT, "names": NAMES, **options}
    equal(fit_roots(x, family, counts=counts, **options), fit_roots(np.repeat(x, counts, 0), family, **options))


def test_counts_along_a_path(rows):
    x, counts = rows
    some = fit_root_path(x, [0.1, 0.02], order=2, settings=TIGHT, counts=counts)
    expected = fit_root_path(np.repeat(x, counts, 0), [0.1, 0.02], order=2, settings=TIGHT)
    for one, other in zip(some, expected, strict=True):
        equal(one, other)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # of both fits alike, near the bound
def test_counts_under_the_upper_bound(rows):
    x, counts = rows
    settings = RootSettings(objective="upper-bound", num_subdomains=8)
    some = fit_roots(x, order=2, l1=0.05, settings=settings, counts=counts)
    expected = fit_roots(np.repeat(x, counts, 0), order=2, l1=0.05, settings=settings)
    assert [node.status for node in some.nodes] == [node.status for node in expected.nodes]
    assert torch.allclose(some.objective, expected.objective, rtol=0, atol=1e-9)


def test_control_rows_without_their_counts_are_another_fit(rows):
    x, counts = rows
    one, other = (fit_roots(x, counts=held, order=2, l1=0.01) for held in (counts, None))
    assert not torch.allclose(one.objective, other.objective, atol=1e-3)


def test_rows_that_lie_elsewhere_are_counted(rows, tmp_path):
    x = np.repeat(*rows, 0)
    frame = pd.DataFrame(x, columns=NAMES)
    frame.iloc[:50].to_parquet(tmp_path / "0.parquet")
    frame.iloc[50:].astype(float).to_parquet(tmp_path / "1.parquet")
    expected = fit_roots(CountTable.from_matrix(x, NAMES), order=2, l1=0.01, settings=TIGHT)
    equal(fit_roots(open_rows(tmp_path), order=2, l1=0.01, settings=TIGHT), expected)
    real = fit_roots(x - 0.25, "gaussian", order=2, l1=0.05, settings=TIGHT, names=NAMES)
    equal(fit_roots(open_rows(frame - 0.25), "gaussian", order=2, l1=0.05, settings=TIGHT), real)
    with pytest.raises(InputTypeError, match="fit_roots alone"):
        expected.log_pseudo_prob(open_rows(frame))


@pytest.mark.parametrize("counts", [[1, 2], [[1] * 60] * 2, [1.5] * 60, [-1] * 60, ["x"] * 60])
def test_counts_that_are_none_are_refused(rows, counts):
    with pytest.raises(InputError, match="counts"):
        fit_roots(rows[0], counts=counts)


def test_no_row_and_no_number(rows):
    with pytest.raises(InputError, match="at least one row"):
        fit_roots(rows[0], counts=np.zeros(60))
    words = pd.DataFrame({"a": ["x", "y"] * 9, "b": [1, 2] * 9})
    with pytest.raises(InputError):
        fit_roots(open_rows(words))
    gaps = pd.DataFrame({"a": [1.0, None] * 9, "b": [1, 2] * 9})
    with pytest.raises(MissingDataError, match="drop_missing"):
        fit_roots(open_rows(gaps))
    with pytest.raises(InputError, match="a source has its own"):
        fit_roots(open_rows(gaps), counts=[1])
    with pytest.raises(InputError, match="repeat the rows"):
        choose_l1(rows[0], [0.1], rule=L1Rule("ebic"), counts=rows[1])
