"""Scores, intervals and strengths against direct computation."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from pyro_hoim.core.operations import score
from pyro_hoim.core.scores import mean_gain, rows_are_distinct
from pyro_hoim.data import CountTable, Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.dependency_network import analyse_network, learn_network
from pyro_hoim.errors import ConvergenceWarning, InputError, NonexistentEstimateWarning
from pyro_hoim.generalized_root import PoissonFamily, analyse_roots
from pyro_hoim.log_linear import (
    Enumeration,
    LogLinearEnergy,
    Stopping,
    coefficient_intervals,
    fit,
    interaction_table,
    parametrization,
    score_rows,
)
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.study import PosteriorSettings, analyse, file_stem, run_posterior
from pyro_hoim.testing import raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 2})
SATURATED = InteractionHypergraph.saturated(DOMAIN)


def table(counts):
    """Observations of a two-by-two table."""
    return Observations.from_table(DOMAIN, counts)


@pytest.mark.parametrize("partition", [None, Enumeration()], ids=["dense", "backend"])
def test_impossible_rows_of_an_infinite_fit(partition):
    train = table([[10, 0], [5, 5]])
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(SATURATED, train, partition=partition)
    assert result.status == "infinite"
    assert score_rows(result.model, table([[4, 3], [2, 3]])).impossible_rows == 3
    scores = score_rows(result.model, train)  # of which one combination has no weight
    assert scores.impossible_rows == 0 and math.isfinite(scores.pseudo_nll)


def test_impossible_rows_are_counted_beyond_the_listed_combinations(monkeypatch):
    """The list of offending combinations is cut for readers; the count must not depend on where."""
    monkeypatch.setattr("pyro_hoim.log_linear.fitting.existence._LISTED", 1)
    domain = Domain.from_cardinalities({"a": 3, "b": 3})
    graph = InteractionHypergraph.saturated(domain)
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(graph, Observations.from_table(domain, np.diag([4, 5, 6])), partition=Enumeration())
    assert result.existence is not None
    assert (len(result.existence.offending), result.existence.num_offending) == (1, 6)
    assert score_rows(result.model, Observations.from_table(domain, np.ones((3, 3), dtype=int))).impossible_rows == 6


def test_no_row_is_impossible_for_a_finite_fit():
    train, other = table([[10, 0], [5, 5]]), table([[4, 1], [2, 3]])
    stopped = fit(SATURATED, train, validation=other, stopping=Stopping(patience=20), partition=Enumeration())
    assert stopped.status == "early_stopped" and score_rows(stopped.model, other).impossible_rows == 0
    assert score_rows(fit(SATURATED, table([[10, 1], [5, 5]])).model, other).impossible_rows == 0


def test_parts_of_an_analysis_are_infinite_only_where_a_row_is_impossible():
    with pytest.warns(NonexistentEstimateWarning):
        study = analyse({"train": table([[10, 0], [5, 5]]), "test": table([[4, 1], [2, 3]])}, {"all": SATURATED})
    train, validation, test = study.chosen.parts.values()
    assert train and test and validation is None
    assert test.scores.nll == test.scores.kl == math.inf and test.scores.impossible_rows == 1
    assert math.isfinite(train.scores.nll) and math.isfinite(test.independent.kl or math.nan)


def test_score_rows_of_a_saturated_fit_is_the_entropy():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.saturated(data.domain), data)
    scores = score_rows(LogLinearEnergy(result.hypergraph, result.tables), data)
    assert scores.nll == pytest.approx(data.entropy(), rel=1e-8) and scores.kl == pytest.approx(0, abs=1e-8)
    worse = fit(InteractionHypergraph.from_order(data.domain, 1), data)
    assert (score_rows(LogLinearEnergy(worse.hypergraph, worse.tables), data).kl or 0) > 0.1  # control


def test_intervals_from_draws_and_from_the_information():
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
        stopped = fit(result.hypergraph, data, stopping=Stopping(max_iterations=3), method="lbfgs")
    assert coefficient_intervals(stopped) == []


def test_interaction_table_skips_what_has_no_parameter():
    graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 3, "one": 1}))
    theta = torch.tensor([0.6, 0.0], dtype=torch.float64)
    (row,) = interaction_table(LogLinearEnergy.from_theta(graph, theta))
    assert row["edge"] == ["a"] and row["value"] == pytest.approx(0.6 / 3**0.5)
    assert row["levels"] == ["1"] and row["coefficient"] == pytest.approx(0.6 * (1 - 1 / (3 + 3**0.5)))


def test_bad_parts_are_refused():
    empty, holed = table([[0, 0], [0, 0]]), Observations.from_tensor(torch.tensor([[0, -1]]), DOMAIN)
    good = table([[3, 1], [1, 3]])
    with raises("empty", "train"):
        analyse({"train": empty}, {"all": SATURATED})
    with raises("empty", "validation"):
        analyse({"train": good, "validation": empty}, {"all": SATURATED})
    with pytest.raises(InputError, match="without validation and posterior"):
        analyse({"train": holed}, {"all": SATURATED}, posterior=PosteriorSettings(1, 10, 10))
    with pytest.raises(InputError, match="early stopping needs complete rows"):
        analyse({"train": good, "validation": holed}, {"all": SATURATED})


def test_file_stems_are_short_plain_and_distinct():
    assert file_stem("order 2") == "order-2"
    stems = {file_stem(name) for name in ("a/b", "a:b", "a*b", "a b", "x" * 300, "x" * 301)}
    assert len(stems) == 6
    assert all(len(stem) <= 50 and not set(stem) & set("/\\:* ") for stem in stems)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # the run is short on purpose
def test_posterior_predicts_the_table_and_judges_its_chains():
    run = run_posterior(SATURATED, table([[30, 10], [20, 40]]), PosteriorSettings(2, 100, 50), seed=3)
    group = run.data["posterior_predictive"]["table"]
    assert group.shape == (2, 100, 2, 2) and (group.values.sum((2, 3)) == 100).all()
    assert run.data["observed_data"]["table"].values.tolist() == [[30, 10], [20, 40]]
    assert math.isfinite(run.elpd_loo) and run.elpd_loo < 0
    assert replace(run, max_r_hat=1.0, num_divergences=0).is_converged
    assert not replace(run, max_r_hat=1.2, num_divergences=0).is_converged
    assert not replace(run, max_r_hat=1.0, num_divergences=1).is_converged


# The gain over independent columns


WEIGHTED = [[31, 9], [11, 49]]


def by_row(counts, log_probs, reference):
    """Mean gain, its paired and its unpaired standard error, from one entry for every row of a table."""
    rows = np.repeat(np.arange(4), np.ravel(counts))
    ours, alone = np.ravel(log_probs)[rows], np.ravel(reference)[rows]
    paired = np.std(ours - alone) / math.sqrt(len(rows))
    return float(np.mean(ours - alone)), float(paired), math.sqrt((np.var(ours) + np.var(alone)) / len(rows))


def joint_and_product(counts):
    """Log-probabilities of the saturated and of the independent estimate."""
    p = np.asarray(counts) / np.sum(counts)
    return np.log(p), np.log(np.outer(p.sum(1), p.sum(0)))


def test_gain_and_its_error_against_rows_one_by_one():
    train = [[30, 10], [15, 45]]
    analysis = analyse({"train": table(train), "test": table(WEIGHTED)}, {"saturated": SATURATED})
    found = analysis.parts
    for part, counts in (("train", train), ("test", WEIGHTED)):
        gain, paired, unpaired = by_row(counts, *joint_and_product(train))
        scores = found[part]
        assert scores is not None and scores.gain == pytest.approx(gain, rel=1e-5)
        assert scores.gain_std_error == pytest.approx(paired, rel=1e-5)
        assert scores.gain_std_error != pytest.approx(unpaired, rel=0.01)  # the rows are the same
    assert found["validation"] is None and analysis.judged_on == "test"


def test_gain_does_not_depend_on_how_rows_are_counted():
    ours, alone = (torch.from_numpy(values).flatten() for values in joint_and_product(WEIGHTED))
    counts = torch.tensor(WEIGHTED).flatten()
    rows = torch.repeat_interleave(torch.arange(4), counts)
    merged = mean_gain(ours, alone, counts.double())
    assert merged == pytest.approx(mean_gain(ours[rows], alone[rows], torch.ones(len(rows)).double()), rel=1e-12)
    assert merged[1] != pytest.approx(mean_gain(ours, alone, torch.ones(4).double())[1], rel=0.2)


def test_gain_where_rows_are_impossible_or_single():
    one, zero = torch.tensor([-1.0]), torch.tensor([-math.inf])
    count = torch.ones(1)
    assert mean_gain(one, one, count) == (0.0, None)
    assert mean_gain(zero, one, count) == (-math.inf, None)
    assert mean_gain(one, zero, count) == (math.inf, None)
    assert mean_gain(zero, zero, count) == (None, None)
    with pytest.warns(NonexistentEstimateWarning):
        found = analyse(
            {"train": table([[10, 0], [5, 5]]), "test": table([[4, 3], [2, 3]])}, {"saturated": SATURATED}
        ).chosen.parts["test"]
    assert found is not None and found.gain == -math.inf and found.gain_std_error is None


def test_the_kl_of_independent_columns_is_finite_where_that_of_the_model_is_not():
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(SATURATED, table([[10, 0], [5, 5]]))
    figures = score(result, table([[4, 3], [2, 3]]))
    shares = np.outer([10, 10], [15, 5]) / 20**2
    seen = np.array([[4, 3], [2, 3]]) / 12
    assert figures["kl"] == math.inf
    assert figures["independent_kl"] == pytest.approx((seen * np.log(seen / shares)).sum(), rel=1e-12)
    known = score(result, table([[4, 0], [2, 3]]))  # where both are finite, they differ by the gain
    assert known["independent_kl"] == pytest.approx(known["kl"] + known["gain"], rel=1e-12)


def test_gain_of_a_network_and_of_a_root_model_is_paired():
    rows = table(WEIGHTED)
    part = analyse_network({"train": rows}).parts["train"]
    assert part is not None and part.gain > 0.1
    learned = analyse_network({"train": rows}).learned.conditionals
    cells = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    alone = analyse_network({"train": rows}, learn=partial(learn_network, max_leaves=1)).learned.conditionals
    ours, other = (c.log_conditionals(cells).sum(1).numpy() for c in (learned, alone))
    gain, paired, unpaired = by_row(WEIGHTED, ours, other)
    assert (part.gain, part.scores.gain_std_error) == pytest.approx((gain, paired), rel=1e-6)
    assert part.scores.gain_std_error != pytest.approx(unpaired, rel=0.01)

    matrix = np.random.default_rng(0).poisson(2.0, (60, 1)) + np.random.default_rng(1).poisson(1.0, (60, 3))
    counts = CountTable.from_matrix(matrix, ["a", "b", "c"])
    found = analyse_roots({"train": counts}, PoissonFamily(), order=2)
    held = found.parts["train"]
    assert held is not None
    mean = matrix.mean(0)
    logs = matrix * np.log(mean) - mean - np.array([[math.lgamma(v + 1) for v in row] for row in matrix])
    change = found.fit.log_pseudo_prob(counts).numpy() - logs.sum(1)
    assert held.gain == pytest.approx(change.mean(), rel=1e-6)
    assert held.gain_std_error == pytest.approx(change.std() / math.sqrt(60), rel=1e-6)
    assert held.gain_std_error != pytest.approx(held.scores.pseudo_nll_std_error, rel=0.01)


def test_distinct_rows_are_told_from_rows_that_repeat():
    for size in (1, 4, 10**6):
        assert rows_are_distinct(size, 9.0, 9.0 - math.log(size))
    twice = math.log(10**6) - 2 * math.log(2) / 10**6  # a single pair of equal rows in a million
    assert not rows_are_distinct(10**6, 9.0, 9.0 - twice)
    assert not rows_are_distinct(4, math.inf, math.inf) and not rows_are_distinct(4, 9.0, None)
