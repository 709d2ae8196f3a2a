"""Synthetic rows and the comparison of margins, against enumeration and counting by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pyro_hoim.data import Observations
from pyro_hoim.errors import InputError, InputTypeError, IntractableError
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.log_linear.synthetic import expected_variation, synthesise, synthetic_quality
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    assert_exact_law,
    count_states,
    exact_table,
    raises,
    random_tables,
    required_draws,
    total_variation_bound,
)

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
MODEL = LogLinearEnergy(GRAPH, torch.from_numpy(random_tables(GRAPH, np.random.default_rng(0), scale=0.5)))


@pytest.mark.parametrize("method", ["auto", "gibbs"])
def test_rows_have_the_law_of_the_model(method: str) -> None:
    number = required_draws(12, 0.05)
    found = synthesise(MODEL, number, 3, method=method)  # type: ignore[arg-type]
    counts = count_states(found.codes.numpy(), DOMAIN.cardinalities)
    law = np.exp(exact_table(GRAPH, MODEL.tables.numpy()))
    assert_exact_law(counts, law.reshape(counts.shape))
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.full(counts.shape, 1 / 12))
    assert torch.equal(found.codes, synthesise(MODEL, number, 3, method=method).codes)  # type: ignore[arg-type]
    assert list(found.to_pandas(count=None).columns) == ["a", "b", "c"]


@pytest.mark.parametrize(("first", "second"), [([3, 1, 0], [1, 2, 1]), ([2, 0, 1], [0, 2, 4]), ([5], [3]), ([1], [1])])
def test_expected_variation_is_the_mean_over_all_ways_to_deal_the_rows(first: list[int], second: list[int]) -> None:
    pooled = np.repeat(np.arange(len(first)), np.add(first, second))
    size, other = sum(first), sum(second)
    values = []
    for chosen in itertools.combinations(range(len(pooled)), size):
        one = np.bincount(pooled[list(chosen)], minlength=len(first))
        two = np.bincount(pooled, minlength=len(first)) - one
        values.append(0.5 * np.abs(one / size - two / other).sum())
    assert expected_variation(np.array(first), np.array(second)) == pytest.approx(np.mean(values), rel=1e-12, abs=1e-15)


def test_margins_are_compared_by_hand() -> None:
    synthetic = Observations.from_table(DOMAIN, np.array([[[4, 0], [0, 0], [2, 0]], [[0, 2], [0, 0], [0, 0]]]))
    real = Observations.from_table(DOMAIN, np.array([[[1, 0], [1, 0], [0, 0]], [[0, 1], [0, 0], [1, 0]]]))
    train = Observations.from_tensor(torch.tensor([[0, 0, 0], [1, 0, 1], [1, 0, -1]]), DOMAIN)
    found = synthetic_quality(synthetic, real, train)
    rows = found.margins.set_index("variables")
    assert rows.loc[[("a",)], "tv"].item() == pytest.approx(abs(6 / 8 - 2 / 4))
    assert rows.loc[[("a", "b")], "tv"].item() == pytest.approx(0.5 * (1 / 4 + 1 / 4 + 1 / 4 + 0 + 1 / 4))
    pooled = expected_variation(np.array([4, 0, 2, 2, 0, 0]), np.array([1, 1, 0, 1, 0, 1]))
    assert rows.loc[[("a", "b")], "expected"].item() == pytest.approx(pooled)
    assert found.summary["margins"].tolist() == [3, 3]
    assert (found.copies, found.real_copies) == (6, 2)
    assert "copies of training rows: 6 (75.0%)" in found.text and "no proof of privacy" in found.text
    assert found.margins["excess"].is_monotonic_decreasing
    assert synthetic_quality(synthetic, real).copies is None and "copies" not in synthetic_quality(synthetic, real).text


def test_rows_of_the_model_look_like_a_second_sample_and_others_do_not() -> None:
    number = 4000
    real, synthetic = (synthesise(MODEL, number, seed) for seed in (1, 2))
    other = synthesise(LogLinearEnergy(GRAPH, torch.zeros(GRAPH.num_terms, dtype=torch.float64)), number, 3)
    for rows, agrees in ((synthetic, True), (other, False)):
        found = synthetic_quality(rows, real)
        cells = [int(np.prod([DOMAIN[n].cardinality for n in e])) for e in found.margins["variables"]]
        bounds = np.array([2 * total_variation_bound(c, number) for c in cells])  # each sample against the law
        assert bool((found.margins["tv"] < bounds).all()) is agrees
    assert synthetic_quality(other, real).summary["ratio"].max() > 5


def test_bad_arguments_are_refused() -> None:
    rows = synthesise(MODEL, 5)
    for number, kind in ((0, InputError), (2.0, InputTypeError), (True, InputTypeError)):
        with pytest.raises(kind, match="num_rows"):
            synthesise(MODEL, number)  # type: ignore[arg-type]
    with raises("unknown-choice", "method"):
        synthesise(MODEL, 1, method="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected one model"):
        synthesise(MODEL.expand([2]), 1)
    large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
    with pytest.raises(IntractableError, match="method='gibbs'"):
        synthesise(LogLinearEnergy(large, torch.zeros(large.num_terms)), 1, method="exact")
    holed = Observations.from_tensor(torch.tensor([[0, -1, 0]]), DOMAIN)
    with raises("missing-cells", "synthetic"):
        synthetic_quality(holed, rows)
    with raises("empty", "real"):
        synthetic_quality(rows, Observations.from_tensor(rows.codes, DOMAIN, weights=np.full(5, 0.5)))
    with raises("other-domain", "synthetic"):
        synthetic_quality(rows.project(["a"]), rows)
    with pytest.raises(InputError, match="max_order"):
        synthetic_quality(rows, rows, max_order=0)
