"""Odds ratios of interactions against statsmodels, closed forms and profile likelihoods, by every route."""

import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2
from statsmodels.stats.contingency_tables import Table2x2

from pyro_hoim import Domain, InteractionHypergraph, Observations, fit, fit_roots, learn_network, load, load_table
from pyro_hoim.data import open_rows
from pyro_hoim.errors import InputError, IntractableError, UnknownNameError
from pyro_hoim.log_linear import L1, L2
from pyro_hoim.results import SummaryTable

PAIR = Domain.from_labels({"smoke": ["n", "y"], "ill": ["n", "y"]})
ABC = Domain.from_labels({"a": ["n", "y"], "b": ["0", "1", "2"], "c": ["u", "v"]})
TABLES = ("summary", "odds_ratios")
infinite = pytest.mark.filterwarnings("ignore::pyro_hoim.NonexistentEstimateWarning")


def table_of(counts, domain=PAIR):
    return Observations.from_table(domain, counts)


def counts_of(seed=0, low=8, high=60):
    return np.random.default_rng(seed).integers(low, high, (2, 3, 2)).astype(float)


def poisson(counts, formula):
    """The same model by statsmodels, as a Poisson regression of the cells."""
    rows = list(itertools.product(*(v.labels for v in ABC)))
    frame = pd.DataFrame(rows, columns=list(ABC.names)).assign(count=np.asarray(counts).ravel())
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():  # saturated ones fit perfectly
        warnings.simplefilter("ignore")
        return smf.glm(f"count ~ {formula}", frame, family=sm.families.Poisson()).fit(tol=1e-14, maxiter=100)


def term_of(row):
    """Name of a contrast in statsmodels."""
    steps = [step.split("=") for step in row["levels"].split(", ")]
    return ":".join(f"{name}[T.{label.split(' vs ')[0]}]" for name, label in steps)


@pytest.mark.parametrize("formula", ["a*b + b*c + a*c", "a*b*c", "a*b + c"])
def test_odds_ratios_intervals_and_tests_are_those_of_a_poisson_regression(formula):
    table, oracle = fit(formula, table_of(counts_of(), ABC)).odds_ratios(level=0.9), poisson(counts_of(), formula)
    limits, names = oracle.conf_int(alpha=0.1), [name for name in oracle.params.index if ":" in name]
    assert sorted(names) == sorted(term_of(row) for row in table.to_dict("records"))
    for row in table.to_dict("records"):
        name = term_of(row)
        expected = np.exp([oracle.params[name], *limits.loc[name]])
        assert [row[c] for c in ("odds_ratio", "lower", "upper")] == pytest.approx(expected.tolist(), rel=1e-8)
        assert row["p_value"] == pytest.approx(oracle.pvalues[name], rel=1e-6, abs=1e-10)
    # Control: intervals of another level are others.
    assert not np.allclose(fit(formula, table_of(counts_of(), ABC)).odds_ratios()["lower"], table["lower"], rtol=1e-3)


def test_a_logistic_regression_has_the_same_odds_ratios_of_its_response():
    counts = counts_of(3)
    rows = list(itertools.product(*(v.labels for v in ABC)))
    frame = pd.DataFrame(rows, columns=list(ABC.names)).assign(count=counts.ravel(), y=lambda f: (f.a == "y") * 1.0)
    oracle = smf.glm("y ~ b + c", frame, family=sm.families.Binomial(), freq_weights=frame["count"]).fit(tol=1e-14)
    table = fit("a*b + a*c + b*c", table_of(counts, ABC)).odds_ratios()
    limits = oracle.conf_int()
    for row in table.to_dict("records"):
        if not row["term"].startswith("a:"):
            continue
        name = term_of(row).split(":")[1]
        expected = np.exp([oracle.params[name], *limits.loc[name]])
        assert [row[c] for c in ("odds_ratio", "lower", "upper")] == pytest.approx(expected.tolist(), rel=1e-8)


@pytest.mark.parametrize("counts", [[[30, 10], [20, 40]], [[3, 1], [2, 4]], [[1000, 999], [998, 1001]]])
def test_a_table_of_two_by_two_has_its_closed_form(counts):
    row = fit("smoke*ill", table_of(counts)).odds_ratios().iloc[0]
    oracle = Table2x2(np.array(counts, dtype=float))
    assert row["levels"] == "smoke=y vs n, ill=y vs n"
    expected = [oracle.oddsratio, *oracle.oddsratio_confint()]
    assert [row[c] for c in ("odds_ratio", "lower", "upper")] == pytest.approx(expected, rel=1e-8)
    assert row["p_value"] == pytest.approx(oracle.oddsratio_pvalue(), rel=1e-8)


def test_other_reference_levels_are_those_of_a_relevelled_regression():
    counts = counts_of(1)
    table = fit("a*b + c", table_of(counts, ABC)).odds_ratios(reference={"b": "2"})
    flipped = fit("a*b + c", table_of(counts[:, ::-1], Domain.from_labels({**_labels(), "b": ["2", "1", "0"]})))
    expected = flipped.odds_ratios()
    assert set(table["levels"]) == {f"a=y vs n, b={k} vs 2" for k in "01"}
    both = table.set_index("levels")["odds_ratio"], expected.set_index("levels")["odds_ratio"]
    pd.testing.assert_series_equal(both[0].sort_index(), both[1].sort_index(), rtol=1e-9)
    assert "reference level (b 2" in str(table)


def _labels():
    return {v.name: list(v.labels) for v in ABC}


def test_the_strongest_comes_first_by_the_end_of_its_interval_nearest_to_one():
    # Few rows make the odds ratio of c with a large and uncertain, many rows that of b small and certain.
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    counts = np.array([[[400.0, 1.0], [100.0, 1.0]], [[100.0, 2.0], [400.0, 2.0]]])
    table = fit("a*b + a*c", Observations.from_table(domain, counts)).odds_ratios()
    assert table["term"].tolist() == ["a:b", "a:c"]
    assert table["odds_ratio"].iloc[0] > table["lower"].iloc[0] > 1 > table["lower"].iloc[1]


def test_probabilities_give_the_ratio_of_two_odds_ratios_of_three_columns():
    result = fit("a*b*c", table_of(counts_of(5), ABC))
    log = result.probs.reshape(2, 3, 2).log().numpy()
    by_c = [(log[1, 1, c] - log[1, 0, c] - log[0, 1, c] + log[0, 0, c]) for c in range(2)]
    table = result.odds_ratios().set_index("levels")["odds_ratio"]
    assert table["a=y vs n, b=1 vs 0, c=v vs u"] == pytest.approx(math.exp(by_c[1] - by_c[0]), rel=1e-9)
    assert table["a=y vs n, b=1 vs 0"] == pytest.approx(math.exp(by_c[0]), rel=1e-9)  # at the first level of c
    assert "ratio of two odds ratios" in str(result.odds_ratios())


def test_collections_that_lack_subsets_have_the_contrasts_of_their_probabilities():
    graph = InteractionHypergraph(ABC, [("a", "b", "c"), ("a", "b"), ("c",)], hierarchical=False)
    result = fit(graph, table_of(counts_of(2), ABC))
    log = result.probs.reshape(2, 3, 2).log().numpy()
    table = result.odds_ratios().set_index("levels")["odds_ratio"]
    assert len(table) == 4
    assert table["a=y vs n, b=2 vs 0"] == pytest.approx(
        math.exp(log[1, 2, 0] - log[1, 0, 0] - log[0, 2, 0] + log[0, 0, 0]), rel=1e-9
    )


def test_adjusted_p_values_are_those_of_benjamini_and_hochberg():
    table = fit("a*b + b*c + a*c", table_of(counts_of(7), ABC)).odds_ratios()
    expected = sm.stats.multipletests(table["p_value"], method="fdr_bh")[1]
    np.testing.assert_allclose(table["p_value_adjusted"], expected, rtol=1e-12)
    assert (table["p_value_adjusted"] > table["p_value"]).any()  # control


def profile_limit(counts, level):
    """Finite limit of an empty cell's odds ratio: both margins' parameters maximised for every odds ratio."""
    counts = np.asarray(counts, dtype=float)

    def loglikelihood(log_odds):
        def loss(logit, row):
            p = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(-logit - log_odds))
            return -sum(counts[k, 1] * np.log(p[k]) + counts[k, 0] * np.log1p(-p[k]) for k in range(2))

        return -minimize_scalar(loss, bounds=(-25, 25), args=(0,), method="bounded", options={"xatol": 1e-12}).fun

    share = counts / counts.sum(1, keepdims=True)
    best = float((counts[counts > 0] * np.log(share[counts > 0])).sum())
    low = 2 * (best - loglikelihood(0.0))
    return brentq(lambda v: 2 * (best - loglikelihood(v)) - chi2.ppf(level, 1), -3, 15, xtol=1e-10), chi2.sf(low, 1)


@infinite
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_an_infinite_odds_ratio_has_the_finite_limit_of_its_profile_likelihood(level):
    counts = [[30, 0], [20, 40]]
    row = fit("smoke*ill", table_of(counts)).odds_ratios(level).iloc[0]
    limit, p_value = profile_limit(counts, level)
    assert row["odds_ratio"] == row["upper"] == math.inf
    assert row["lower"] == pytest.approx(math.exp(limit), rel=1e-6)
    assert row["p_value"] == pytest.approx(p_value, rel=1e-5)
    # Turned round it is zero, with the inverse limit.
    other = fit("smoke*ill", table_of([[20, 40], [30, 0]])).odds_ratios(level).iloc[0]
    assert other["odds_ratio"] == other["lower"] == 0.0 and other["upper"] == pytest.approx(1 / row["lower"], rel=1e-6)


@infinite
def test_an_odds_ratio_that_the_rows_do_not_tell_is_said_to_be_absent():
    table = fit("smoke*ill", table_of([[30, 10], [0, 0]])).odds_ratios()
    assert table[["odds_ratio", "lower", "upper", "p_value"]].isna().all(axis=None)
    assert "not identified" in str(table) and "1 odds ratio is not identified" in str(table)
    assert "not identified" not in str(fit("smoke*ill", table_of([[30, 10], [5, 5]])).odds_ratios())  # control


@pytest.mark.parametrize("formula", ["smoke + ill", "smoke"])
def test_a_model_without_interactions_says_so(formula):
    table = fit(formula, table_of([[30, 10], [20, 40]])).odds_ratios()
    assert len(table) == 0 and {"term", "levels", "odds_ratio"} <= set(table.columns)
    assert "no interactions" in str(table) and "no interactions" in table._repr_html_()


def test_columns_of_one_level_have_no_contrast():
    domain = Domain.from_labels({"a": ["n", "y"], "b": ["n", "y"], "c": ["only"]})
    rows = Observations.from_table(domain, np.array([[30.0, 10.0], [20.0, 40.0]])[:, :, None])
    table = fit(InteractionHypergraph.saturated(domain), rows).odds_ratios()
    assert table["levels"].tolist() == ["a=y vs n, b=y vs n"] and table["odds_ratio"].iloc[0] == pytest.approx(6.0)


def test_scores_have_the_odds_ratio_of_one_step():
    counts = counts_of(4)[:, :, 0]
    domain = Domain.from_labels({"a": ["1", "2"], "b": ["1", "2", "3"]})
    table = fit("linear(a):linear(b)", Observations.from_table(domain, counts)).odds_ratios()
    rows = pd.DataFrame(list(itertools.product((1, 2), (1, 2, 3))), columns=["a", "b"]).assign(count=counts.ravel())
    oracle = smf.glm("count ~ C(a) + C(b) + a:b", rows, family=sm.families.Poisson()).fit(tol=1e-14)
    assert table["levels"].tolist() == ["per step of a, per step of b"]
    expected = np.exp([oracle.params["a:b"], *oracle.conf_int().loc["a:b"]])
    assert table[["odds_ratio", "lower", "upper"]].iloc[0].tolist() == pytest.approx(expected.tolist(), rel=1e-8)
    slopes = fit("linear(b):a", Observations.from_table(domain, counts)).odds_ratios()
    assert slopes["levels"].tolist() == ["a=2 vs 1, per step of b"]
    assert slopes["odds_ratio"].iloc[0] == pytest.approx(math.exp(oracle.params["a:b"]), rel=1e-8)


def test_symmetric_terms_have_the_odds_ratio_of_both_ways_round():
    domain = Domain.from_labels({"a": ["x", "y", "z"], "b": ["x", "y", "z"]})
    rows = Observations.from_table(domain, np.random.default_rng(0).integers(5, 40, (3, 3)).astype(float))
    result = fit("symmetric(a, b)", rows)
    log, table = result.probs.reshape(3, 3).log().numpy(), result.odds_ratios().set_index("levels")["odds_ratio"]
    expected = math.exp(log[1, 2] - log[1, 0] - log[0, 2] + log[0, 0])
    assert table["a=y vs x, b=z vs x (or exchanged)"] == pytest.approx(expected, rel=1e-9)
    assert expected == pytest.approx(math.exp(log[2, 1] - log[2, 0] - log[0, 1] + log[0, 0]), rel=1e-9)


@pytest.mark.parametrize(
    ("penalty", "has_interval"), [(None, True), (L2(1.0), True), (L1(1.0), False)], ids=["none", "l2", "l1"]
)
def test_penalised_fits_have_intervals_where_they_have_a_covariance_and_no_tests(penalty, has_interval):
    table = fit("a*b*c", table_of(counts_of(), ABC), penalty=penalty).odds_ratios()
    assert table["lower"].notna().all() == has_interval and ("p_value" in table) == (penalty is None)
    assert ("no standard errors" in str(table)) != has_interval
    if penalty is not None and has_interval:
        assert "drawn towards zero" in str(table) and "Wald" not in str(table)


EMPTY, HALF = (np.where(np.arange(12).reshape(2, 3, 2) < k, 0.0, counts_of()) for k in (2, 6))
LACKING = InteractionHypergraph(ABC, [("a", "b", "c"), ("a", "b"), ("c",)], hierarchical=False)


@infinite
@pytest.mark.parametrize(
    ("formula", "counts", "options"),
    [
        ("a*b*c", counts_of(), {}),
        ("a*b*c", counts_of(), {"penalty": L2(1.0)}),
        ("a*b*c", counts_of(), {"penalty": L1(1.0)}),
        ("a*b + b*c", counts_of() / 7, {}),
        ("a*b + b*c", counts_of(), {"objective": "pseudo-likelihood"}),
        ("linear(b):a + c", counts_of(), {}),
        (LACKING, counts_of(), {}),
        ("a + b", counts_of(), {}),
        ("a*b", EMPTY, {}),
        ("a*b", HALF, {}),
        ("linear(b):a + a", EMPTY, {}),
    ],
    ids=[
        *("three", "ridge", "lasso", "weights", "pseudo", "scores", "lacking", "none", "infinite"),
        *("absent", "infinite-scores"),
    ],
)
def test_a_loaded_model_says_the_same(formula, counts, options, tmp_path):
    rows = table_of(counts_of(), ABC)
    is_whole = bool((counts == np.floor(counts)).all())
    rows = table_of(counts, ABC) if is_whole else Observations(ABC, rows.codes, torch.from_numpy(counts.ravel()))
    result = fit(formula, rows, **options)
    result.save(tmp_path / "m.safetensors")
    model = load(tmp_path / "m.safetensors")
    for level in (0.95,) if result.status == "infinite" else (0.95, 0.5):  # a file has finite limits of 95 % alone
        for loaded, table in ((getattr(m, name)(level=level) for m in (model, result)) for name in TABLES):
            pd.testing.assert_frame_equal(pd.DataFrame(loaded), pd.DataFrame(table), check_exact=True)
            assert loaded.attrs == table.attrs
    if not is_whole:
        assert "robust (sandwich)" in str(model.summary()) and "robust (sandwich)" in str(model.odds_ratios())


def test_a_loaded_model_says_of_what_it_keeps_no_errors(tmp_path):
    result = fit("a*b*c", table_of(counts_of(), ABC))
    result.save(tmp_path / "m.safetensors")
    table = load(tmp_path / "m.safetensors").summary(coding="balanced")
    expected = result.summary(coding="balanced").set_index(["term", "levels"])["estimate"]
    pd.testing.assert_series_equal(table.set_index(["term", "levels"])["estimate"][expected.index], expected)
    assert "std_error" not in table and "keeps those in corner coding against the first levels alone" in str(table)


@pytest.mark.parametrize("change", [{"rows": []}, {"compared": ["", "a=y vs n, b=1 vs 0"]}, {"coding": "corners"}])
def test_coefficients_that_do_not_fit_the_model_are_refused(change):
    from pyro_hoim.core.operations import stored_model
    from pyro_hoim.log_linear.file import ModelFile

    result = fit("a*b*c", table_of(counts_of(), ABC))
    family, stored = stored_model(result)
    record = family.complete_record(result, stored.model)
    info = {**record.info, "coefficients": {**record.info["coefficients"], **change}}
    with pytest.raises(InputError, match=r"coding|coefficients"):
        ModelFile(record.hypergraph, record.theta, record.coding, info)
    ModelFile(record.hypergraph, record.theta, record.coding, record.info)  # control


def test_models_of_too_many_parameters_say_so(monkeypatch):
    from pyro_hoim.log_linear import infinite as module

    monkeypatch.setattr(module, "_MOST_PARAMETERS", 9)
    result = fit("a*b*c", table_of(counts_of(), ABC))
    for table in (result.summary(), result.odds_ratios()):
        assert "the model has 11 parameters, and they are computed for at most" in str(table)


def test_a_loaded_model_has_estimates_against_other_levels_and_no_intervals(tmp_path):
    result = fit("a*b*c", table_of(counts_of(), ABC))
    result.save(tmp_path / "m.safetensors")
    table, expected = (m.odds_ratios(reference={"b": "1"}) for m in (load(tmp_path / "m.safetensors"), result))
    assert table["lower"].isna().all() and "keeps those against the first levels alone" in str(table)
    ratios = (t.set_index("levels")["odds_ratio"].sort_index() for t in (table, expected))
    pd.testing.assert_series_equal(*ratios, rtol=1e-9)


def test_bad_arguments_are_refused(tmp_path):
    result = fit("smoke*ill", table_of([[30, 10], [20, 40]]))
    for options, error, words in (
        ({"level": 1.0}, InputError, "level"),
        ({"levels": 0.9}, UnknownNameError, "levels"),
        ({"covariance": "sandwich"}, InputError, "robust"),
        ({"reference": {"smoke": "maybe"}}, UnknownNameError, "maybe"),
    ):
        with pytest.raises(error, match=words):
            result.odds_ratios(**options)
    result.save(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match="keeps no rows"):
        load(tmp_path / "m.safetensors").odds_ratios(covariance="robust")


def test_the_table_is_one_of_results():
    table = fit("smoke*ill", table_of([[30, 10], [20, 40]])).odds_ratios()
    assert isinstance(table, SummaryTable) and table.attrs["level"] == 0.95
    assert [*table.columns] == ["term", "levels", "odds_ratio", "lower", "upper", "p_value", "p_value_adjusted"]
    assert torch.get_default_dtype() == torch.float32


def test_a_fit_within_norm_balls_has_odds_ratios_and_no_intervals():
    from pyro_hoim.runs import RunOptions
    from pyro_hoim.study.constrained import Constraint, as_fit, fit_constrained

    data = load_table("czech_autoworkers")
    result = as_fit(fit_constrained(data, 2, Constraint.parse("l1:1", "penalty"), RunOptions()), data, 0.0)
    table = result.odds_ratios()
    assert len(table) == 15 and table["lower"].isna().all() and "no standard errors" in str(table)
    with pytest.raises(InputError, match="bounded by norms"):
        result.robust_covariance()
    # Control: the same objective without bounds has both.
    free = fit(InteractionHypergraph.from_order(data.domain, 2), data, objective="pseudo-likelihood")
    assert free.odds_ratios()["lower"].notna().all()


def frame_of(counts, seed=0):
    """Rows of ABC, one a line, in any order."""
    cells = list(itertools.product(*(v.labels for v in ABC)))
    rows = [cell for cell, number in zip(cells, np.asarray(counts).ravel(), strict=True) for _ in range(int(number))]
    return pd.DataFrame(rows, columns=list(ABC.names)).sample(frac=1, random_state=seed, ignore_index=True)


TIED = np.array([[[80.0, 20], [10, 30], [9, 8]], [[10, 20], [60, 40], [31, 12]]])


@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_a_network_has_the_odds_ratios_of_its_pairs_by_logistic_regression(level, has_missing, tmp_path):
    frame = frame_of(TIED)
    if has_missing:
        frame.loc[::7, "a"], frame.loc[::5, "b"] = None, None
    network = learn_network(frame, missing="marginalise")
    network.save(tmp_path / "n")
    pairs = {tuple(sorted(edge)) for edge in network.conditionals.edges}
    table, loaded = network.odds_ratios(level), load(tmp_path / "n").odds_ratios(level)
    pd.testing.assert_frame_equal(pd.DataFrame(loaded), pd.DataFrame(table), check_exact=True)
    assert loaded.attrs == table.attrs and "two columns alone" in str(table)
    assert {tuple(term.split(":")) for term in table["term"]} == pairs and ("a", "b") in pairs
    for row in table.to_dict("records"):
        first, second = row["term"].split(":")
        known = frame.dropna(subset=[first, second])
        step = dict(part.split("=") for part in row["levels"].split(", "))
        levels = [step[name].split(" vs ") for name in (first, second)]
        part = known[known[first].isin(levels[0]) & known[second].isin(levels[1])]
        part = part.assign(y=(part[first] == levels[0][0]) * 1.0)
        oracle = smf.glm(f"y ~ C({second})", part, family=sm.families.Binomial()).fit(tol=1e-14)
        expected = np.exp([oracle.params.iloc[1], *oracle.conf_int(alpha=1 - level).iloc[1]])
        assert [row[c] for c in ("odds_ratio", "lower", "upper")] == pytest.approx(expected.tolist(), rel=1e-7)


def test_weights_of_a_network_count_as_effective_rows():
    rng = np.random.default_rng(0)
    frame = frame_of(TIED).assign(w=lambda f: rng.uniform(0.5, 2.0, len(f)))
    table = learn_network(frame, weights="w").odds_ratios()
    total, squares = frame["w"].sum(), (frame["w"] ** 2).sum()
    row = next(r for r in table.to_dict("records") if r["levels"] == "a=y vs n, b=1 vs 0")
    cells = frame.groupby(["a", "b"])["w"].sum() * total / squares
    oracle = Table2x2(np.array([[cells["n", "0"], cells["n", "1"]], [cells["y", "0"], cells["y", "1"]]]))
    expected = [oracle.oddsratio, *oracle.oddsratio_confint()]
    assert [row[c] for c in ("odds_ratio", "lower", "upper")] == pytest.approx(expected, rel=1e-8)
    assert learn_network(frame.drop(columns="w")).odds_ratios()["lower"].iloc[0] != table["lower"].iloc[0]  # control


def test_the_order_of_rows_and_where_they_lie_leave_the_odds_ratios_of_a_network(tmp_path):
    frame = frame_of(np.concatenate([TIED] * 2, 0)[:2] * 3)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    table = learn_network(frame).odds_ratios()
    for rows in (frame[::-1], open_rows(tmp_path / "rows.parquet", chunk_rows=64)):
        pd.testing.assert_frame_equal(pd.DataFrame(learn_network(rows).odds_ratios()), pd.DataFrame(table))


def test_a_network_made_by_hand_has_no_odds_ratios():
    law = learn_network(frame_of(TIED)).conditionals
    from pyro_hoim.core.family import family_of_model

    with pytest.raises(IntractableError, match=r"not learned from rows .*learn_network"):
        family_of_model(law).odds_ratios(law)


def test_a_root_model_has_the_multiplicative_effect_of_its_coefficients(tmp_path):
    rng = np.random.default_rng(0)
    shared = rng.gamma(2, 0.5, (300, 1))
    frame = pd.DataFrame(rng.poisson(np.concatenate([shared, 1.5 * shared, shared], 1)), columns=list("abc"))
    result = fit_roots(frame, order=3)
    result.save(tmp_path / "r")
    table = result.odds_ratios()
    pd.testing.assert_frame_equal(pd.DataFrame(load(tmp_path / "r").odds_ratios()), pd.DataFrame(table))
    # The oracle: differences of the log density at 0 and 1, the other columns at 0.
    energy = result.energy()
    assert len(table) and table[["lower", "upper"]].isna().all(axis=None) and "no intervals" in str(table)
    for row in table.to_dict("records"):
        names = row["term"].split(":")
        logs = 0.0
        for bits in itertools.product((0, 1), repeat=len(names)):
            state = torch.tensor([[float(dict(zip(names, bits, strict=True)).get(name, 0)) for name in "abc"]])
            logs -= (-1) ** (len(names) - sum(bits)) * float(energy.energy(state.double()))
        assert row["levels"] == ", ".join(f"{name}=1 vs 0" for name in names)
        assert row["odds_ratio"] == pytest.approx(math.exp(logs), rel=1e-9)
    assert (table["odds_ratio"].map(math.log).abs().diff().dropna() <= 1e-12).all()


def test_a_root_model_of_real_numbers_has_the_effect_of_one_standard_deviation():
    from pyro_hoim.core.family import family_of_model
    from pyro_hoim.generalized_root import RootFile

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)) @ (np.eye(3) + 0.5 * np.eye(3, k=1)), columns=list("abc"))
    result = fit_roots(frame, "gaussian", order=2)
    table = result.odds_ratios()
    coefficients = result.summary().query("term == 'a:b'")["estimate"]
    assert table.set_index("levels").loc["a=1 vs 0, b=1 vs 0", "odds_ratio"] == pytest.approx(
        math.exp(coefficients.sum()), rel=1e-9
    )
    scaled = RootFile(result.structure, result.psi, result.family, {"scales": {"a": 2.0, "b": 3.0, "c": 1.0}})
    ratio = family_of_model(scaled).odds_ratios(scaled).set_index("levels").loc["a=1 SD vs 0, b=1 SD vs 0"]
    assert ratio["odds_ratio"] == pytest.approx(table_ratio(result, (2.0, 3.0)), rel=1e-9)


def table_ratio(result, values):
    """The odds ratio of two columns at some values against 0, the third at 0, by the energies of four states."""
    x, y = values
    states = torch.tensor([[x, y, 0.0], [0.0, 0.0, 0.0], [x, 0.0, 0.0], [0.0, y, 0.0]], dtype=torch.float64)
    logs = -result.energy().energy(states)
    return math.exp(float(logs[0] + logs[1] - logs[2] - logs[3]))
