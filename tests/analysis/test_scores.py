"""Scores, intervals and strengths against direct computation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_hoim.analysis import (
    PosteriorSettings,
    analyse,
    coefficient_intervals,
    file_stem,
    interaction_table,
    num_impossible,
    run_posterior,
    score_rows,
)
from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.errors import ConvergenceWarning, InputError, NonexistentEstimateWarning
from pyro_hoim.learning import fit
from pyro_hoim.models import LogLinearEnergy, parametrization
from pyro_hoim.partition import Enumeration
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 2})
SATURATED = InteractionHypergraph.saturated(DOMAIN)


def table(counts: list[list[int]]) -> Observations:
    """Observations of a two-by-two table."""
    return Observations.from_table(DOMAIN, counts)


@pytest.mark.parametrize("partition", [None, Enumeration()], ids=["dense", "backend"])
def test_impossible_rows_of_an_infinite_fit(partition: Enumeration | None) -> None:
    train = table([[10, 0], [5, 5]])
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(SATURATED, train, partition=partition)
    assert result.status == "infinite"
    assert num_impossible(result, table([[4, 3], [2, 3]])) == 3
    assert num_impossible(result, train) == 0


def test_impossible_rows_are_counted_beyond_the_listed_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of offending combinations is cut for readers; the count must not depend on where."""
    monkeypatch.setattr("pyro_hoim.learning.existence._LISTED", 1)
    domain = Domain.from_cardinalities({"a": 3, "b": 3})
    graph = InteractionHypergraph.saturated(domain)
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(graph, Observations.from_table(domain, np.diag([4, 5, 6])), partition=Enumeration())
    assert result.existence is not None
    assert (len(result.existence.offending), result.existence.num_offending) == (1, 6)
    unfaced = replace(result, existence=replace(result.existence, facial_set=None))
    for found in (result, unfaced):
        assert num_impossible(found, Observations.from_table(domain, np.ones((3, 3), dtype=int))) == 6


def test_no_row_is_impossible_for_a_finite_fit() -> None:
    train, other = table([[10, 0], [5, 5]]), table([[4, 1], [2, 3]])
    stopped = fit(SATURATED, train, validation=other, early_stopping=True, partition=Enumeration())
    assert stopped.status == "early_stopped" and num_impossible(stopped, other) == 0
    assert num_impossible(fit(SATURATED, table([[10, 1], [5, 5]])), other) == 0


def test_parts_of_an_analysis_are_infinite_only_where_a_row_is_impossible() -> None:
    with pytest.warns(NonexistentEstimateWarning):
        study = analyse(table([[10, 0], [5, 5]]), {"all": SATURATED}, test=table([[4, 1], [2, 3]]))
    scores = study.chosen.scores
    assert scores.nll["test"] == scores.kl["test"] == math.inf and scores.impossible_rows["test"] == 1
    assert math.isfinite(scores.nll["train"] or math.nan) and scores.nll["validation"] is None
    assert math.isfinite(scores.independent_kl["test"] or math.nan)


def test_score_rows_of_a_saturated_fit_is_the_entropy() -> None:
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.saturated(data.domain), data)
    scores = score_rows(LogLinearEnergy(result.hypergraph, result.tables), data)
    assert scores.nll == pytest.approx(data.entropy(), rel=1e-8) and scores.kl == pytest.approx(0, abs=1e-8)
    worse = fit(InteractionHypergraph.from_order(data.domain, 1), data)
    assert (score_rows(LogLinearEnergy(worse.hypergraph, worse.tables), data).kl or 0) > 0.1  # control


def test_intervals_from_draws_and_from_the_information() -> None:
    data = load_table("czech_autoworkers")
    result = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    rows = coefficient_intervals(result, level=0.9, top=5)
    errors = result.standard_errors("balanced").numpy()
    for row in rows:
        assert row.estimate == pytest.approx(float(result.tables[row.index]))
        assert row.upper - row.lower == pytest.approx(2 * 1.6448536 * errors[row.index], rel=1e-6)
    draws = np.random.default_rng(0).normal(size=(4000, result.hypergraph.num_parameters))
    tables = parametrization(result.hypergraph).to_tables(torch.from_numpy(draws), "free").numpy()
    for row in coefficient_intervals(result, draws, level=0.8, top=5):
        assert (row.lower, row.upper) == pytest.approx(tuple(np.quantile(tables[:, row.index], [0.1, 0.9])))
    with pytest.warns(ConvergenceWarning):
        stopped = fit(result.hypergraph, data, max_iterations=3, method="lbfgs")
    assert coefficient_intervals(stopped) == []


def test_interaction_table_skips_what_has_no_parameter() -> None:
    graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 3, "one": 1}))
    theta = torch.tensor([0.6, 0.0], dtype=torch.float64)
    (row,) = interaction_table(LogLinearEnergy.from_theta(graph, theta))
    assert row["edge"] == ["a"] and row["value"] == pytest.approx(0.6 / 3**0.5)
    assert row["levels"] == ["1"] and row["coefficient"] == pytest.approx(0.6 * (1 - 1 / (3 + 3**0.5)))


def test_bad_parts_are_refused() -> None:
    empty, holed = table([[0, 0], [0, 0]]), Observations.from_tensor(torch.tensor([[0, -1]]), DOMAIN)
    good = table([[3, 1], [1, 3]])
    with pytest.raises(InputError, match="train: expected at least one row"):
        analyse(empty, {"all": SATURATED})
    with pytest.raises(InputError, match="validation: expected at least one row"):
        analyse(good, {"all": SATURATED}, validation=empty)
    with pytest.raises(InputError, match="without validation and posterior"):
        analyse(holed, {"all": SATURATED}, posterior=PosteriorSettings(1, 10, 10))
    with pytest.raises(InputError, match="early stopping needs complete rows"):
        analyse(good, {"all": SATURATED}, validation=holed)


def test_file_stems_are_short_plain_and_distinct() -> None:
    assert file_stem("order 2") == "order-2"
    stems = {file_stem(name) for name in ("a/b", "a:b", "a*b", "a b", "x" * 300, "x" * 301)}
    assert len(stems) == 6
    assert all(len(stem) <= 50 and not set(stem) & set("/\\:* ") for stem in stems)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # the run is short on purpose
def test_posterior_predicts_the_table_and_judges_its_chains() -> None:
    run = run_posterior(SATURATED, table([[30, 10], [20, 40]]), PosteriorSettings(2, 100, 50), seed=3)
    group = run.data["posterior_predictive"]["table"]
    assert group.shape == (2, 100, 2, 2) and (group.values.sum((2, 3)) == 100).all()
    assert run.data["observed_data"]["table"].values.tolist() == [[30, 10], [20, 40]]
    assert math.isfinite(run.elpd_loo) and run.elpd_loo < 0
    assert replace(run, max_r_hat=1.0, num_divergences=0).is_converged
    assert not replace(run, max_r_hat=1.2, num_divergences=0).is_converged
    assert not replace(run, max_r_hat=1.0, num_divergences=1).is_converged
