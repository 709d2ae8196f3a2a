"""Analyses with generalized root models against enumeration; laws of independent columns; moments of two variables."""

import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm
import torch
from scipy import sparse
from scipy.special import gammaln

from pyro_hoim import CountTable, Domain, Observations, Variable
from pyro_hoim.errors import InputError, UnknownNameError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootChains,
    RootModel,
    RootStructure,
    TruncatedPoissonFamily,
    analyse_roots,
    choose_l1,
    draw_roots,
    fit_roots,
    load_roots,
    predict_roots,
)
from pyro_hoim.generalized_root.study import analysis as roots
from pyro_hoim.generalized_root.study.baselines import BASELINES, _negative_binomial_size, fit_independent
from pyro_hoim.generalized_root.study.dependence import log_odds_ratio, pair_moments
from pyro_hoim.generalized_root.study.scores import root_scores
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_exact_law, raises

FAMILY = TruncatedPoissonFamily(3)
NAMES = ["a", "b", "c"]


def made_rows(num=240, maximum=3):
    """Counts that share a cause, in three columns."""
    generator = np.random.default_rng(3)
    rate = generator.gamma(1.0, 1.0, size=(num, 1))
    return np.minimum(generator.poisson(rate * np.array([1.0, 0.7, 0.5])), maximum)


def made_table(num=240, maximum=3):
    return CountTable.from_matrix(made_rows(num, maximum), NAMES)


def made_parts(shares=(0.5, 0.25, 0.25), seed=1, **rows):
    return dict(zip(("train", "validation", "test"), made_table(**rows).split(shares, seed), strict=True))


@lru_cache
def analysis(order=3):
    return analyse_roots(made_parts(), FAMILY, order=order, l1=[0.02, 0.005], title="made")


def enumerated(model):
    """All states and their log probabilities, summed by brute force."""
    top = int(FAMILY.maximum)
    states = torch.tensor(list(itertools.product(range(top + 1), repeat=len(model.domain))), dtype=torch.float64)
    log_q = torch.from_numpy(model.log_q(CountTable.from_matrix(states, model.domain.names)))
    return states, log_q - torch.logsumexp(log_q, 0)


def counted(rows):
    """How often each state of a few columns was drawn, in the order of enumeration."""
    size = int(FAMILY.maximum) + 1
    place = (rows * size ** torch.arange(rows.shape[1] - 1, -1, -1)).sum(1).long()
    return torch.bincount(place, minlength=size ** rows.shape[1])


def test_scores_agree_with_enumeration():
    found = analysis()
    model = RootModel.from_fit(found.fit)
    states, log_probs = enumerated(model)
    assert float(found.log_partition.value) == pytest.approx(
        float(torch.logsumexp(torch.from_numpy(model.log_q(CountTable.from_matrix(states, NAMES))), 0)), rel=1e-10
    )
    place = {tuple(state): i for i, state in enumerate(states.int().tolist())}
    for name, rows in made_parts().items():
        scores = found.parts[name].scores
        values = [tuple(row) for row in rows.to_array().astype(int).tolist()]
        nll = -np.mean([float(log_probs[place[v]]) for v in values])
        pseudo = 0.0
        for row in values:
            for s in range(3):
                same = [(*row[:s], x, *row[s + 1 :]) for x in range(4)]
                each = torch.stack([log_probs[place[v]] for v in same])
                pseudo -= float(log_probs[place[row]] - torch.logsumexp(each, 0)) / len(values)
        entropy = Observations.from_numpy(np.array(values)).entropy()
        assert (scores.nll, scores.pseudo_nll) == (pytest.approx(nll, rel=1e-9), pytest.approx(pseudo, rel=1e-9))
        assert scores.kl == pytest.approx(nll - entropy, rel=1e-9)
        assert rows.entropy() == pytest.approx(entropy, rel=1e-12)
        assert found.parts[name].baselines["pairwise"].nll is None
        assert found.parts[name].independent.nll == found.parts[name].independent.pseudo_nll


def test_fit_and_loaded_model_score_alike(tmp_path):
    found = analysis()
    found.save(tmp_path)
    stored = load_roots(tmp_path / "model.safetensors")
    assert stored.structure == found.fit.structure
    assert torch.equal(stored.psi, found.fit.psi)
    assert stored.family == FAMILY
    assert stored.info["columns"] == NAMES
    rows = made_table(50)
    loaded = RootModel.from_file(stored).log_pseudo_prob(rows)
    assert loaded.tolist() == RootModel.from_fit(found.fit).log_pseudo_prob(rows).tolist()
    direct = found.fit.log_pseudo_prob(rows).numpy()
    assert RootModel.from_fit(found.fit).log_pseudo_prob(rows) == pytest.approx(direct, abs=1e-10)


def test_the_penalty_is_chosen_on_validation_rows():
    found = analysis()
    assert [step.l1 for step in found.path] == [0.02, 0.005]
    best = min(found.path, key=lambda step: step.validation)
    assert found.l1 == best.l1
    assert found.parts["validation"].scores.pseudo_nll == pytest.approx(best.validation, rel=1e-12)
    assert found.path[0].num_terms <= found.path[1].num_terms
    assert found.path[1].train <= found.path[0].train  # less penalty fits the training rows better
    assert (found.judged_on, found.fit.order) == ("test", 3)
    assert analysis(2).pairwise is None
    assert max(size for _, size in found.pairwise.structure.keys) <= 2


def test_without_validation_rows_the_penalty_is_that_of_choose_l1():
    table, options = made_table(120), {"order": 2, "l1s": [0.2, 0.02], "refit": "all"}
    found = analyse_roots({"train": table}, FAMILY, order=2, l1=[0.2, 0.02], seed=7)
    chosen = choose_l1(table, family=FAMILY, generator=torch.Generator().manual_seed(7), **options)
    assert [-step.validation for step in found.path] == pytest.approx(chosen.scores, rel=1e-12)
    assert found.l1 == chosen.l1 and found.fit.psi.tolist() == chosen.fit.psi.tolist()
    other = choose_l1(table, family=FAMILY, **options)  # control: other parts
    assert [-step.validation for step in found.path] != pytest.approx(other.scores, rel=1e-12)


def test_ties_go_to_the_larger_penalty():
    parts = dict.fromkeys(("train", "validation"), made_table(60, 9))
    found = analyse_roots(parts, PoissonFamily(), order=2, l1=[50.0, 90.0, 70.0], pairwise=False)
    assert len({step.validation for step in found.path}) == 1
    assert found.l1 == 90.0


def test_a_score_that_is_no_number_is_never_chosen(monkeypatch):
    parts = dict.fromkeys(("train", "validation"), made_table(60, 9))
    scores = [math.nan, -3.0, -2.0]
    monkeypatch.setattr(roots, "held_out_scores", lambda path, rows: (tuple(scores), ()))
    options = {"order": 2, "l1": [0.5, 0.1, 0.05], "pairwise": False}
    assert analyse_roots(parts, PoissonFamily(), **options).l1 == 0.05
    scores[:] = [math.nan, -math.inf, math.nan]
    assert analyse_roots(parts, PoissonFamily(), **options).l1 == 0.1
    scores[:] = [math.nan] * 3
    with pytest.raises(InputError, match="no penalty has a score"):
        analyse_roots(parts, PoissonFamily(), **options)


@pytest.mark.fixed_seed  # of the few held-out rows
def test_records_of_a_comparison():
    parts = made_parts((0.6, 0.0, 0.4), 2, num=120, maximum=50)
    records = analyse_roots(parts, PoissonFamily()).comparison_records()
    assert [r["model"] for r in records if r["part"] == "test"] == [
        "poisson", "negative-binomial", "pairwise", "grm order 3"
    ]  # fmt: skip
    assert {r["part"] for r in records} == {"train", "test"}
    independent = {r["part"]: r["pseudo_nll"] for r in records if r["model"] == "poisson"}
    assert all(r["gain"] == independent[r["part"]] - r["pseudo_nll"] for r in records)
    assert all(r["gain"] > 0 for r in records if r["model"] == "grm order 3")


# Predictions


def test_predictions_agree_with_enumeration():
    model = RootModel.from_fit(analysis().fit)
    states, log_probs = enumerated(model)
    rows = made_table(30)
    for s, target in enumerate(NAMES):
        found = predict_roots(model, rows, target)
        for i, row in enumerate(rows.to_array()):
            others = [k for k in range(3) if k != s]
            same = (states[:, others] == torch.from_numpy(row[others])).all(1)
            probs = (log_probs[same] - torch.logsumexp(log_probs[same], 0)).exp()
            values = states[same][:, s]
            mean = float(probs @ values)
            assert found.mean[i] == pytest.approx(mean, rel=1e-9)
            assert found.std[i] == pytest.approx(math.sqrt(float(probs @ (values - mean) ** 2)), rel=1e-8)
            assert found.log_probs[i] == pytest.approx(float(probs[int(row[s])].log()), rel=1e-9)
        error = rows.column(target) - found.mean
        assert found.rmse == pytest.approx(math.sqrt(np.mean(error**2)))
        assert found.mae == pytest.approx(np.mean(np.abs(error)))
    unknown = predict_roots(model, rows, "a", is_known=False)
    assert (unknown.values, unknown.rmse, unknown.log_loss) == (None, None, None)
    with pytest.raises(UnknownNameError, match="unknown variable"):
        predict_roots(model, rows, "z")


def test_predictions_of_normals_are_regressions():
    generator = np.random.default_rng(0)
    first = generator.normal(size=(400, 1))
    values = np.hstack([first, first + 0.5 * generator.normal(size=(400, 1))])
    table = CountTable.from_matrix(values, ["x", "y"], kind="real")
    fit = fit_roots(table, GaussianFamily(), order=2, l1=0.0)
    found = predict_roots(RootModel.from_fit(fit), table, "y")
    coefficients = dict(zip(fit.structure.names, fit.coefficients.tolist(), strict=True))
    slope = coefficients[(2, 2), ("x", "y")] / (-2 * coefficients[(1, 1), ("y",)])
    assert found.mean == pytest.approx(slope * values[:, 0], rel=1e-8)
    assert found.std == pytest.approx(math.sqrt(-0.5 / coefficients[(1, 1), ("y",)]), rel=1e-8)
    alone = predict_roots(RootModel.from_fit(fit_roots(table, GaussianFamily(), order=1)), table, "y")
    assert alone.mean == pytest.approx(np.zeros(400), abs=1e-12)


# Draws


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_draws_follow_the_law(method):
    model = RootModel.from_fit(analysis().fit)
    _, log_probs = enumerated(model)
    drawn = draw_roots(model, 6000, method=method, burn_in=30, seed=4)
    assert drawn.is_exact == (method == "exact")
    assert_exact_law(counted(drawn.values), log_probs.exp())
    # Control: the independent member is another law.
    alone = fit_roots(made_table(), FAMILY, order=1)
    other = draw_roots(RootModel.from_fit(alone), 6000, seed=4).values
    with pytest.raises(AssertionError):
        assert_exact_law(counted(other), log_probs.exp())


def test_draws_given_values():
    model = RootModel.from_fit(analysis().fit)
    states, log_probs = enumerated(model)
    drawn = draw_roots(model, 4000, clamped={"b": 2}, seed=1).values
    assert drawn[:, 1].unique().tolist() == [2.0]
    inside = states[:, 1] == 2
    probs = (log_probs[inside] - torch.logsumexp(log_probs[inside], 0)).exp()
    assert_exact_law(counted(drawn[:, [0, 2]]), probs)
    assert torch.equal(draw_roots(model, 5, seed=9).values, draw_roots(model, 5, seed=9).values)
    assert draw_roots(model, 3, clamped={"a": 1, "b": 0, "c": 2}).values.tolist() == [[1.0, 0.0, 2.0]] * 3
    with pytest.raises(InputError, match="clamped 'a'"):
        draw_roots(model, 1, clamped={"a": 0.5})
    with pytest.raises(UnknownNameError):
        draw_roots(model, 1, clamped={"z": 0.5})


# Columns that are no part of the model


def test_zero_columns_stay_zero():
    rows = np.hstack([made_rows(100, 9), np.zeros((100, 1), dtype=int)])
    table = CountTable.from_matrix(rows, [*NAMES, "never"])
    later = CountTable.from_matrix(np.array([[1, 0, 0, 0], [1, 0, 0, 2]]), table.domain.names)
    found = analyse_roots({"train": table, "test": later}, PoissonFamily(), order=2)
    assert found.fit.zero_columns == ("never",)
    model = RootModel.from_fit(found.fit)
    scores = found.parts["test"].scores
    assert (scores.impossible_rows, scores.pseudo_nll, scores.kl) == (1, math.inf, math.inf)
    assert model.log_pseudo_prob(later)[0] == pytest.approx(float(found.fit.log_pseudo_prob(later)[0]), rel=1e-10)
    assert model.log_pseudo_prob(later)[1] == -math.inf
    assert found.parts["test"].independent.impossible_rows == 1
    drawn = draw_roots(model, 20, seed=0).values
    assert drawn[:, 3].unique().tolist() == [0.0]
    with pytest.raises(InputError, match="was 0 in all rows"):
        draw_roots(model, 1, clamped={"never": 1})
    prediction = predict_roots(model, later, "never")
    assert (prediction.mean.tolist(), prediction.log_probs.tolist()) == ([0.0, 0.0], [0.0, -math.inf])
    only = analyse_roots({"train": CountTable.from_matrix(np.zeros((3, 2)))}, PoissonFamily(), order=2)
    assert only.parts["train"].scores.pseudo_nll == 0.0
    assert draw_roots(RootModel.from_fit(only.fit), 2).values.tolist() == [[0.0, 0.0]] * 2


def test_reals_have_no_kl():
    values = np.random.default_rng(0).gamma(2.0, size=(60, 2))
    found = analyse_roots({"train": CountTable.from_matrix(values, kind="positive")}, ExponentialFamily(), order=1)
    scores = found.parts["train"].scores
    assert list(found.parts["train"].baselines) == ["exponential"]
    assert scores.nll == pytest.approx(found.parts["train"].independent.nll, rel=1e-6)
    assert scores.kl is None


def test_long_sums_are_made_on_demand_only(monkeypatch):
    from pyro_hoim.generalized_root.study import scores as module

    model = RootModel.from_fit(analysis().fit)
    assert module.exact_log_partition(model.energy)[0] is not None
    monkeypatch.setattr(module, "_MOST_FLOPS", 1)
    found, reason = module.exact_log_partition(model.energy)
    assert found is None
    assert "on demand only" in reason
    assert not draw_roots(model, 2, burn_in=1).is_exact
    assert draw_roots(model, 2, method="exact").is_exact


def test_scores_of_rows():
    found = root_scores(np.array([-1.0, -3.0]))
    assert (found.rows, found.pseudo_nll, found.pseudo_nll_std_error, found.nll) == (2, 2.0, 1.0, None)
    assert math.isnan(root_scores(np.array([-1.0])).pseudo_nll_std_error)


@pytest.mark.parametrize(
    ("parts", "options", "code", "argument"),
    [
        ({}, {}, "empty", "parts"),
        ({"train": 0}, {}, "empty", "parts"),
        ({"train": 5, "rest": 5}, {}, "unknown-choice", "parts"),
        ({"train": 4}, {"l1": [0.1, 0.2]}, "out-of-range", "data"),
        ({"train": 4, "validation": 0}, {"l1": [0.1, 0.2]}, "out-of-range", "data"),
        ({"train": 5}, {"l1": []}, "empty", "l1"),
    ],
)
def test_bad_arguments(parts, options, code, argument):
    tables = {name: CountTable.from_matrix(made_rows()[:num], NAMES) for name, num in parts.items()}
    with raises(code, argument):
        analyse_roots(tables, FAMILY, **options)


def test_other_columns_are_refused():
    model, other = RootModel.from_fit(analysis().fit), CountTable.from_matrix(made_rows(), ["x", "y", "z"])
    with raises("other-domain", "table"):
        model.log_pseudo_prob(other)
    with raises("other-domain", "parts['test']"):
        analyse_roots({"train": made_table(), "test": other}, FAMILY)
    energy = GeneralizedRootEnergy(RootStructure.independent(model.domain), torch.zeros(3), FAMILY)
    with raises("other-domain", "fixed"):
        RootModel(energy, model.domain, {"a": 0.0})


# Laws of independent columns


COUNTS = np.random.default_rng(0).negative_binomial([0.3, 2.0, 40.0], [0.1, 0.5, 0.9], size=(200, 3))
REALS = np.random.default_rng(1).gamma(2.0, 1.5, size=(100, 2))


def fitted(values, kind, family):
    table = CountTable.from_matrix(values, kind=family.kind)
    return table, fit_independent(table, kind, family)


# Densities


def test_negative_binomial_densities():
    table, law = fitted(COUNTS, "negative-binomial", PoissonFamily())
    size, mean = np.asarray(law.second), COUNTS.mean(0)
    assert np.isfinite(size).all()
    expected = scipy.stats.nbinom.logpmf(COUNTS, size, size / (size + mean)).sum(1)
    assert law.log_prob(table) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("values", "kind", "family", "expected"),
    [
        (COUNTS, "poisson", PoissonFamily(), scipy.stats.poisson.logpmf(COUNTS, COUNTS.mean(0))),
        (REALS, "exponential", ExponentialFamily(), scipy.stats.expon.logpdf(REALS, scale=REALS.mean(0))),
        (REALS, "normal", GaussianFamily(), scipy.stats.norm.logpdf(REALS, REALS.mean(0), REALS.std(0))),
    ],
)
def test_densities(values, kind, family, expected):
    table, law = fitted(values, kind, family)
    assert law.log_prob(table) == pytest.approx(expected.sum(1), rel=1e-12)


@pytest.mark.parametrize("maximum", [1, 2, 7])
def test_truncated_poisson_matches_the_mean(maximum):
    values = np.minimum(COUNTS, maximum)
    table, law = fitted(values, "truncated-poisson", TruncatedPoissonFamily(maximum))
    every = np.arange(maximum + 1)
    for column in range(values.shape[1]):
        probs = np.exp(law.log_density(np.full(maximum + 1, column), every.astype(float)))
        assert probs.sum() == pytest.approx(1, abs=1e-12)
        assert probs @ every == pytest.approx(values[:, column].mean(), rel=1e-9)
    weights = np.array([[r**x / math.factorial(x) for x in every] for r in law.first])
    expected = np.log(weights / weights.sum(1, keepdims=True))[np.arange(3), values].sum(1)
    assert law.log_prob(table) == pytest.approx(expected, rel=1e-10)


# Estimates


@pytest.mark.parametrize("column", range(2))
def test_negative_binomial_agrees_with_statsmodels(column):
    values = COUNTS[:, column].astype(float)
    peer = sm.NegativeBinomial(values, np.ones(len(values))).fit(disp=0)
    size, mean = _negative_binomial_size(values), values.mean()
    best = float(scipy.stats.nbinom.logpmf(values, size, size / (size + mean)).sum())
    assert best >= peer.llf - 1e-9
    assert best == pytest.approx(peer.llf, rel=1e-6)
    assert size == pytest.approx(1 / peer.params[1], rel=1e-2)


def test_no_other_size_is_more_likely():
    for column in range(3):
        values = COUNTS[:, column].astype(float)
        best, mean = _negative_binomial_size(values), values.mean()

        def log_likelihood(size, values=values, mean=mean):
            return float(scipy.stats.nbinom.logpmf(values, size, size / (size + mean)).sum())

        assert all(log_likelihood(best) > log_likelihood(best * factor) for factor in (0.5, 0.99, 1.01, 2.0))


@pytest.mark.parametrize("values", [[0, 0, 0], [2, 2, 2], [0, 1, 0, 1], [1, 2, 3]])
def test_without_overdispersion_the_law_is_poisson(values):
    assert _negative_binomial_size(np.array(values, dtype=float)) == math.inf
    column = np.array(values)[:, None]
    table, law = fitted(column, "negative-binomial", PoissonFamily())
    assert law.log_prob(table) == pytest.approx(fitted(column, "poisson", PoissonFamily())[1].log_prob(table))
    # Control: one larger count makes it overdispersed.
    assert _negative_binomial_size(np.array([*values, 30.0])) < math.inf


def test_huge_counts_have_a_size():
    values = np.array([1e7, 2e7, 5e6, 0.0])
    size, mean = _negative_binomial_size(values), values.mean()
    best = scipy.stats.nbinom.logpmf(values, size, size / (size + mean)).sum()
    assert best > scipy.stats.nbinom.logpmf(values, 1.01 * size, 1.01 * size / (1.01 * size + mean)).sum()


# Edges


def test_a_column_of_zeros_allows_nothing_else():
    train = CountTable.from_matrix([[0, 1], [0, 3]])
    later = CountTable.from_matrix([[0, 2], [1, 2]])
    for kind in BASELINES["poisson"]:
        found = fit_independent(train, kind, PoissonFamily()).log_prob(later)
        assert np.isfinite(found[0])
        assert found[1] == -math.inf
    family = TruncatedPoissonFamily(3)
    full = fit_independent(CountTable.from_matrix([[3], [3]]), "truncated-poisson", family)
    assert full.log_prob(CountTable.from_matrix([[3], [2]])).tolist() == [0.0, -math.inf]
    for kind, reals in (("exponential", ExponentialFamily()), ("normal", GaussianFamily())):
        law = fit_independent(CountTable.from_matrix([[0.0], [0.0]], kind=reals.kind), kind, reals)
        assert law.log_prob(CountTable.from_matrix([[0.0], [1.0]], kind=reals.kind)).tolist() == [0.0, -math.inf]


def test_sparse_and_dense_rows_agree():
    mixed = COUNTS * (np.random.default_rng(2).random(COUNTS.shape) < 0.2)
    table = CountTable.from_matrix(sparse.csr_matrix(mixed))
    for kind in BASELINES["poisson"]:
        law = fit_independent(table, kind, PoissonFamily())
        each = [law.log_density(np.full(len(mixed), s), mixed[:, s].astype(float)) for s in range(3)]
        assert law.log_prob(table) == pytest.approx(np.sum(each, axis=0), rel=1e-12)


def test_bad_arguments_of_baselines():
    table = CountTable.from_matrix(COUNTS)
    with raises("unknown-choice", "kind"):
        fit_independent(table, "binomial", PoissonFamily())
    with raises("empty", "table"):
        fit_independent(CountTable.from_matrix(np.zeros((0, 1))), "poisson", PoissonFamily())
    with raises("other-domain", "table"):
        fit_independent(table, "poisson", PoissonFamily()).log_prob(table.columns(2))


# Moments of two variables


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
