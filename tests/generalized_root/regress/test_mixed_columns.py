"""Regressions of columns with families of their own, against generalised linear models, Lasso and written-out sums."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import statsmodels.api as sm
import torch
from scipy.stats import binom
from sklearn.linear_model import Lasso, LogisticRegression

from pyro_hoim import load
from pyro_hoim.data import open_rows
from pyro_hoim.errors import DataWarning
from pyro_hoim.generalized_root import (
    GaussianFamily,
    IndicatorFamily,
    L1Rule,
    PoissonFamily,
    RootPseudoLikelihood,
    RootSettings,
    TruncatedPoissonFamily,
    UserFamily,
    choose_l1,
    confirm_roots,
    fit_root_path,
    fit_roots,
    refit_roots,
)
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

FAMILIES = {
    "ill": TruncatedPoissonFamily(1),
    "rooms": TruncatedPoissonFamily(3),
    "visits": PoissonFamily(),
    "days": "exponential",
    "change": "gaussian",
}
NAMES = list(FAMILIES)
TIGHT = RootSettings(tolerance=1e-9, false_discovery_rate=None)


def mixed_rows(num_rows=150, seed=0):
    """A yes/no column that acts on counts and numbers, in units far from each other."""
    rng = np.random.default_rng(seed)
    ill = (rng.random(num_rows) < 0.4).astype(float)
    rooms = np.minimum(rng.poisson(1.0, num_rows), 3)
    visits = rng.poisson(np.exp(0.2 + 0.8 * ill))
    days = rng.exponential(0.3 * (1 + ill))
    change = 0.7 * (ill - 0.4) + 0.2 * (rooms - 1) + 0.6 * rng.normal(size=num_rows)
    return np.stack([ill, rooms, visits, days, change], 1)


def fitted_rows(x, **options):
    return fit_roots(x, FAMILIES, **{"order": 2, "l1": 0.05, "names": NAMES, "settings": TIGHT, **options})


def equal(one, other, tolerance=1e-7):
    assert one.structure == other.structure
    torch.testing.assert_close(one.psi, other.psi, rtol=tolerance, atol=tolerance)


# Oracles that share nothing with the library


def roots(name, x, order):
    """Roots 1 to k of a column by their definition, (n, k)."""
    if name == "change":
        return np.stack([np.square(x), x, np.cbrt(np.square(x))][:order], 1)
    return np.stack([x ** (1 / j) for j in range(1, order + 1)], 1)


def log_partition(name, eta):
    """Node log partition by sums over counts, and by the trapezoid rule in the sixth and third root."""
    if name in ("ill", "rooms", "visits"):
        x = torch.arange({"ill": 2, "rooms": 4, "visits": 60}[name], dtype=torch.float64)
        table, weight = torch.from_numpy(roots("visits", x.numpy(), eta.shape[1])), -torch.lgamma(x + 1)
    else:
        power, low, high = (6, 0.0, 1.9) if name == "days" else (3, -1.8, 1.8)
        y = torch.linspace(low, high, 4001, dtype=torch.float64)
        weight = (power * y.abs() ** (power - 1) * (high - low) / 4000).log()
        table = torch.stack([y**6, y**3, y**2][: eta.shape[1]], 1)
    return torch.logsumexp(eta @ table.T + weight, 1)


def slow_problem(x, node, order, l1, full=False):
    """Keys of all features of a node, their units and penalties, and the smooth part of its objective."""
    name, n = NAMES[node], len(x)
    table = [roots(other, x[:, i], order) for i, other in enumerate(NAMES)]
    spread = [column.std(0) for column in table]
    keys = [(1, ()), *([(2, ())] if name == "change" else [])]
    rest = [t for t in range(len(NAMES)) if t != node]
    if full and name != "ill":  # all roots of a 0/1 column are equal, and no others of these here
        keys += [(j, ()) for j in range(2, order + 1) if (j, ()) not in keys]
    for size in range(2, order + 1):
        roots_of = range(size, order + 1) if full else (size,)
        keys += [(j, others) for j in roots_of for others in itertools.combinations(rest, size - 1)]
    columns = np.stack([np.prod([table[t][:, j - 1] for t in others], axis=0) * np.ones(n) for j, others in keys], 1)
    unit = torch.tensor([math.prod(spread[t][j - 1] for t in (node, *others)) for j, others in keys])
    free = [(1, ()), *([(2, ())] if name == "change" else [])]
    penalty = torch.tensor([0.0 if key in free else l1 * float(unit[i]) for i, key in enumerate(keys)])
    root = torch.tensor([j - 1 for j, _ in keys])

    def smooth(values):
        eta = torch.stack([(torch.from_numpy(columns) * values)[:, root == j].sum(1) for j in range(order)], 1)
        return (log_partition(name, eta) - (eta * torch.from_numpy(table[node])).sum(1)).mean()

    return keys, unit, penalty, smooth


def slow_conditions(x, node, order, l1, terms, full=False):
    """Largest distance of a subgradient from zero over all features of a node, per unit of each; and the objective."""
    keys, unit, penalty, loss = slow_problem(x, node, order, l1, full)
    assert set(terms) <= set(keys)
    values = torch.tensor([terms.get(key, 0.0) for key in keys], dtype=torch.float64, requires_grad=True)
    smooth = loss(values)
    (slope,) = torch.autograd.grad(smooth, values)
    c = values.detach()
    distance = torch.where(c != 0, (slope + penalty * c.sign()).abs(), (slope.abs() - penalty).clamp(min=0))
    return float((distance / unit).max()), float(smooth.detach() + (penalty * c.abs()).sum())


def node_terms(fitted, node):
    """{(root, positions of the others): coefficient} of one regression."""
    result = fitted.nodes[node]
    pairs = [(term, [n for n in term.names if n != result.variable]) for term in result.terms]
    terms = {(term.key[0], tuple(map(NAMES.index, others))): term.coefficient for term, others in pairs}
    return terms | {(1, ()): result.intercept}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("order", [2, 3])
def test_every_subgradient_holds_in_units_of_standard_deviations(order, full):
    x, l1 = mixed_rows(60 if order == 3 else 150), 0.08
    fitted = fitted_rows(x, order=order, l1=l1, full=full)
    assert fitted.is_converged
    num_terms = 0
    for node in range(len(NAMES)):
        terms = node_terms(fitted, node)
        residual, objective = slow_conditions(x, node, order, l1, terms, full)
        assert residual < 1e-6
        assert objective == pytest.approx(fitted.nodes[node].objective, abs=1e-8)
        assert slow_conditions(x, node, order, 1.01 * l1, terms, full)[0] > 1e-4 or len(terms) < 3  # control
        num_terms += len(terms)
    assert num_terms > len(NAMES) + 5


def descend(x, node, order, l1, num_steps):
    """Proximal gradient steps in standardised coefficients, with momentum and restarts: the objective."""
    keys, unit, penalty, loss = slow_problem(x, node, order, l1, full=True)
    unit, penalty = unit.double(), penalty.double()
    point = torch.zeros(len(keys), dtype=torch.float64)
    ahead, momentum, rate = point, 1.0, 0.5

    def value(z):
        return float(loss(z / unit))

    for _ in range(num_steps):
        z = ahead.clone().requires_grad_()
        at = loss(z / unit)
        (slope,) = torch.autograd.grad(at, z)
        for _ in range(60):
            after = ahead - rate * slope
            after = after.sign() * (after.abs() - rate * penalty / unit).clamp(min=0)
            move = after - ahead
            if value(after) <= float(at.detach()) + float(slope @ move + move @ move / (2 * rate)) + 1e-13:
                break
            rate *= 0.5
        if float((ahead - after) @ (after - point)) > 0:  # away from the minimum
            momentum = 1.0
        larger = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead, point, momentum = after + (momentum - 1) / larger * (after - point), after, larger
        rate *= 1.05
    return value(point) + float((penalty * (point / unit).abs()).sum())


@pytest.mark.parametrize("name", ["ill", "visits"])
def test_full_regressions_are_where_proximal_gradients_end(name):
    x, l1, node = mixed_rows(80), 0.05, NAMES.index(name)
    fitted = fitted_rows(x, order=2, l1=l1, full=True).nodes[node]
    objective = descend(x, node, 2, l1, 400)
    assert fitted.objective == pytest.approx(objective, abs=1e-7)
    assert objective < descend(x, node, 2, l1, 5) - 1e-4  # control: a few steps are not enough


def test_without_a_penalty_regressions_are_generalised_linear_models():
    """Yes/no columns are logistic, Gaussian ones linear regressions on the square roots of counts."""
    x = mixed_rows()
    fitted = fitted_rows(x, l1=0.0)
    table = np.stack([roots(name, x[:, i], 2)[:, 1] for i, name in enumerate(NAMES)], 1)
    for node, family in ((0, sm.families.Binomial()), (4, sm.families.Gaussian())):
        others = [t for t in range(len(NAMES)) if t != node]
        peer = sm.GLM(x[:, node], sm.add_constant(table[:, others]), family).fit(tol=1e-12)
        variance = 1.0 if node == 0 else ((x[:, node] - peer.fittedvalues) ** 2).mean()
        terms = node_terms(fitted, node)
        mine = [terms[(1 if node == 0 else 2), ()], *(terms[2, (t,)] for t in others)]
        np.testing.assert_allclose(np.array(mine) * variance, peer.params, rtol=1e-6, atol=1e-7)
        if node:
            assert terms[1, ()] == pytest.approx(-0.5 / variance, rel=1e-6)
    # Columns alone: Poisson with the log of the mean, Gaussian with mean and variance.
    alone = fitted_rows(x, order=1)
    pairs = zip(alone.structure.names, alone.psi.tolist(), strict=True)
    own = {names[0]: value for (key, names), value in pairs if key == (1, 1)}
    peer = sm.GLM(x[:, 2], np.ones(len(x)), sm.families.Poisson()).fit(tol=1e-12)
    assert own["visits"] == pytest.approx(peer.params[0], rel=1e-7)
    assert own["days"] == pytest.approx(-1 / x[:, 3].mean(), rel=1e-7)
    assert own["change"] == pytest.approx(-0.5 / x[:, 4].var(), rel=1e-7)


@pytest.mark.parametrize("l1", [0.1, 0.02])
def test_penalised_regressions_are_logistic_and_lasso_on_standardised_features(l1):
    x = mixed_rows()
    fitted = fitted_rows(x, l1=l1)
    table = np.stack([roots(name, x[:, i], 2)[:, 1] for i, name in enumerate(NAMES)], 1)
    z, spread = table / table.std(0), table.std(0)
    # Coefficient times the feature's spread; the penalty has the spread of the response, too.
    logistic = LogisticRegression(
        C=1 / (len(x) * l1 * spread[0]), l1_ratio=1.0, solver="saga", tol=1e-12, max_iter=100_000
    ).fit(z[:, 1:], x[:, 0])
    terms = node_terms(fitted, 0)
    mine = [terms.get((2, (t,)), 0.0) * spread[t] for t in range(1, 5)]
    np.testing.assert_allclose(mine, logistic.coef_[0], rtol=0, atol=1e-6)
    # Given the variance v the coefficients times v are those of the Lasso.
    lasso = Lasso(alpha=l1 * spread[4], tol=1e-14, max_iter=10**6).fit(z[:, :4], x[:, 4])
    terms = node_terms(fitted, 4)
    variance = -0.5 / terms[1, ()]
    mine = [terms.get((2, (t,)), 0.0) * spread[t] * variance for t in range(4)]
    np.testing.assert_allclose(mine, lasso.coef_, rtol=0, atol=1e-7)
    assert terms[2, ()] * variance == pytest.approx(lasso.intercept_, abs=1e-7)
    assert np.count_nonzero(lasso.coef_) > 0


def test_units_of_numbers_do_not_matter():
    """Only coefficients change, each by the units of its roots; of 0/1 and Gaussian columns the origin is free, too."""
    x = mixed_rows()
    y = x * np.array([1, 1, 1, 1000.0, 0.001])
    one, other = fitted_rows(x), fitted_rows(y)
    assert one.structure == other.structure and one.num_interactions > 2
    for (key, names), a, b in zip(one.structure.names, one.psi.tolist(), other.psi.tolist(), strict=True):
        exponents = {"days": 1 / key[0], "change": 2 / key[0]}
        unit = math.prod({"days": 1000.0, "change": 0.001}.get(n, 1.0) ** exponents.get(n, 0.0) for n in names)
        assert a == pytest.approx(b * unit, rel=1e-5), names
    some, families = [0, 4], [FAMILIES["ill"], "gaussian"]
    fine = RootSettings(tolerance=1e-8, false_discovery_rate=None)  # rounding at 40 may reach 1e-9
    one, other = (fit_roots(x[:, some] + [0, c], families, order=2, l1=0.05, settings=fine) for c in (0.0, 40.0))
    assert one.terms((2, 2))[0].coefficient == pytest.approx(other.terms((2, 2))[0].coefficient, rel=1e-6)


def test_one_family_is_fitted_as_ever_however_it_is_given():
    x = mixed_rows()[:, 1:3]
    plain = fit_roots(x, order=2, l1=0.01, names=["a", "b"])
    for family in (["poisson"] * 2, {"b": PoissonFamily(), "a": "poisson"}):
        given = fit_roots(x, family, order=2, l1=0.01, names=["a", "b"])
        assert given.family == PoissonFamily() and given.scales is None
        assert given.structure == plain.structure and torch.equal(given.psi, plain.psi)
        assert torch.equal(given.objective, plain.objective)


# Joint models


@pytest.mark.parametrize("order", [2, 3])
def test_pseudo_likelihood_is_that_of_the_energy(order):
    x = mixed_rows(90)
    fitted = fitted_rows(x[:60], order=order)
    assert fitted.families == fitted.energy().families
    expected = fitted.energy().node_log_prob(torch.from_numpy(x[60:]))
    torch.testing.assert_close(fitted.log_pseudo_prob(x[60:], by_node=True), expected, rtol=0, atol=1e-8)
    frame = pd.DataFrame(x[60:], columns=NAMES)
    torch.testing.assert_close(fitted.log_pseudo_prob(frame), expected.sum(1), rtol=0, atol=1e-8)


def test_refits_of_all_terms_are_the_optimum_of_the_pseudo_likelihood():
    x = mixed_rows()
    fitted = fitted_rows(x, refit="all", settings=RootSettings(tolerance=1e-9, refit_share=0.0))
    assert fitted.refit.is_converged and fitted.refit.way == 1.0
    assert fitted.refit.pseudo_nll < min(fitted.refit.joined_pseudo_nll, fitted.refit.independent_pseudo_nll)
    joint = RootPseudoLikelihood(fitted.structure, torch.from_numpy(x), fitted.families)
    psi = fitted.psi.clone().requires_grad_()
    value = joint(psi) / len(x)
    assert -value.item() == pytest.approx(fitted.refit.pseudo_nll, abs=1e-9)
    (slope,) = torch.autograd.grad(value, psi)
    assert float(slope.abs().max()) < 1e-6
    assert fitted.confirmed.refit.method == "all"
    again = refit_roots(fitted.joined(), x, settings=RootSettings(refit_share=0.0))
    equal(again, fitted, 1e-6)
    singles = refit_roots(fitted.joined(), x, "singles")
    assert fitted.refit.pseudo_nll < singles.refit.pseudo_nll < singles.refit.joined_pseudo_nll


@pytest.mark.parametrize("way", ["mean", "and", "or"])
def test_regressions_are_joined_by_every_rule(way):
    fitted = fitted_rows(mixed_rows()).joined(way)
    sizes = {term.names: sum(term.names in {t.names for t in node.terms} for node in fitted.nodes)
             for term in fitted.terms((2, 2))}  # fmt: skip
    assert sizes and (set(sizes.values()) == {2} if way == "and" else 1 in sizes.values())
    assert {names for key, names in fitted.structure.names if key == (2, 1)} == {("change",)}


# Rows of all kinds, runs and files


def test_kinds_of_data_workers_and_runs_do_not_matter(tmp_path):
    x = mixed_rows()
    whole = fitted_rows(x)
    equal(fitted_rows(scipy.sparse.csr_matrix(x)), whole)
    equal(fitted_rows(pd.DataFrame(x, columns=NAMES), names=None), whole)
    equal(fitted_rows(x, settings=RootSettings(tolerance=1e-9, jobs=2, false_discovery_rate=None)), whole)
    counts = 1 + np.arange(len(x)) % 3
    equal(fitted_rows(x, counts=counts), fitted_rows(np.repeat(x, counts, 0)))
    for full in (False, True):
        path, options = tmp_path / f"run-{full}.checkpoint", {"full": full}
        first = fitted_rows(x, run=RunOptions(path), **options)
        equal(first, fitted_rows(x, **options) if full else whole)
        equal(fitted_rows(x, run=RunOptions(path, resume=True), **options), first)
        path_of = fit_root_path(x, [0.2, 0.05], FAMILIES, order=2, names=NAMES, settings=TIGHT, **options)
        equal(path_of[1], first, 1e-5)
    pd.DataFrame(x, columns=NAMES).to_csv(tmp_path / "rows.csv", index=False)
    equal(fitted_rows(open_rows(tmp_path / "rows.csv", allow=["days", "change"]), names=None), whole)
    path = fit_root_path(x, [0.2, 0.05], FAMILIES, order=2, names=NAMES, settings=TIGHT)
    for one, l1 in zip(path, (0.2, 0.05), strict=True):
        equal(one, fitted_rows(x, l1=l1), 1e-5)


@pytest.mark.parametrize("rule", ["held-out", "ebic", "stability"])
def test_penalties_are_chosen(rule):
    x, l1s = mixed_rows(), [0.5, 0.1]
    chosen = choose_l1(x, l1s, FAMILIES, L1Rule(rule, folds=2, num_subsamples=2), order=2, names=NAMES)
    assert chosen.l1 in l1s and chosen.fit.family == chosen.path[0].family
    if rule == "ebic":
        for fitted, score in zip(chosen.path, chosen.scores, strict=True):
            own = fitted.log_pseudo_prob(x, symmetrized=False).sum() - fitted.families.log_base(torch.tensor(x)).sum()
            num = sum(len(node.terms) for node in fitted.nodes)
            extended = sum(math.log(math.comb(4, sum(t.key[1] == 2 for t in node.terms))) for node in fitted.nodes)
            assert score == pytest.approx(float(-2 * own) + num * math.log(len(x)) + extended, abs=1e-6)


def test_results_record_families_and_travel(tmp_path):
    x = np.column_stack([mixed_rows(), np.zeros(150), np.full(150, 2.5)])
    families = {**FAMILIES, "none": "poisson", "always": "gaussian"}
    fitted = fit_roots(x, families, order=2, l1=0.05, names=list(families))
    assert dict(fitted.fixed_columns) == {"none": 0.0, "always": 2.5}
    assert [family.name for family in fitted.families][-2:] == ["poisson", "gaussian"]
    assert set(fitted.structure.domain.names) == set(NAMES)
    assert fitted.log_pseudo_prob(x).isfinite().all() and (fitted.log_pseudo_prob(x + np.eye(7)[6]) == -math.inf).all()
    fitted.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert list(again.summary()["term"]) == list(fitted.summary()["term"])
    assert {variable.name: variable.kind for variable in again.as_stored.model.domain} == {
        **dict.fromkeys(["ill", "rooms", "visits", "none"], "count"), "days": "positive", "change": "real",
        "always": "real",
    }  # fmt: skip
    assert again.as_stored.model.families == fitted.free_families
    assert "5 variables" not in repr(fitted) and "7 variables" in repr(fitted)


# What rows confirm


def planted_rows(num_rows, seed):
    """Nine columns of four families: four pairs that are tied and one column that is not."""
    rng = np.random.default_rng(seed)
    a, b, c = ((rng.random(num_rows) < p).astype(float) for p in (0.5, 0.3, 0.4))
    count = rng.poisson(np.exp(0.3 + 0.5 * a))
    number = 0.5 * (b - 0.3) + rng.normal(size=num_rows)
    time = rng.exponential(np.where(c > 0, 1.6, 1.0))
    first = rng.normal(size=num_rows)
    second = 0.3 * first + rng.normal(size=num_rows)
    return np.stack([a, count, b, number, c, time, first, second, rng.poisson(1.5, num_rows)], 1)


PLANTED_FAMILIES = [
    TruncatedPoissonFamily(1), PoissonFamily(), TruncatedPoissonFamily(1), GaussianFamily(), TruncatedPoissonFamily(1),
    "exponential", "gaussian", GaussianFamily(), "poisson",
]  # fmt: skip
PLANTED = {("x0", "x1"), ("x2", "x3"), ("x4", "x5"), ("x6", "x7")}


def test_planted_pairs_are_confirmed_and_few_others():
    x = planted_rows(1000, 0)
    fitted = fit_roots(x, PLANTED_FAMILIES, order=2, l1=0.03)
    edges = {term.names for term in fitted.terms((2, 2))}
    assert edges > PLANTED  # the penalty alone lets others through
    assert set(fitted.confirmed.confirmation.kept) == PLANTED
    again = confirm_roots(fitted, x, settings=RootSettings(candidates=[("x0", "x1"), ("x2", "x8")]))
    assert set(again.confirmation.kept) == {("x0", "x1")}


def far_from_zero(num_rows, seed):
    """Two tied pairs beside counts whose roots vary little, so that their products with others are like the others."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(4.0, num_rows)
    time, number = rng.exponential(1.0 / (0.3 + 0.4 * np.sqrt(count))), rng.normal(size=num_rows)
    some = rng.random(num_rows) < 1 / (1 + np.exp(-0.8 * number))
    return np.column_stack([count, time, rng.poisson(9.0, num_rows), number, some, rng.poisson(9.0, num_rows)])


def test_pairs_that_triples_stand_in_for_are_confirmed_with_a_refit():
    x = far_from_zero(1000, 0)
    families = ["poisson", "exponential", "poisson", "gaussian", TruncatedPoissonFamily(1), "poisson"]
    settings = RootSettings(false_discovery_rate=None)
    fitted = fit_roots(x, families, order=3, l1=0.1, settings=settings)
    assert ("x0", "x1") not in fitted.sets and any({"x0", "x1"} < set(edge) for edge in fitted.sets)
    pairs = [("x0", "x1"), ("x3", "x4")]
    assert set(confirm_roots(fitted, x).confirmation.kept) == {("x3", "x4")}  # control: those that were found alone
    found = confirm_roots(fitted, x, refit="all")
    assert set(found.confirmation.kept) == set(pairs) == set(found.sets)
    # The oracle: the refit of regressions that are given the pairs.
    settings = RootSettings(false_discovery_rate=None, candidates=pairs)
    given = fit_roots(x, families, order=2, l1=0.1, refit="all", settings=settings)
    assert given.structure == found.structure and given.refit.objective == pytest.approx(
        found.refit.objective, abs=1e-9
    )
    np.testing.assert_allclose(found.psi, given.psi, rtol=1e-3, atol=1e-5)


def test_a_pair_with_a_category_that_a_triple_stands_in_for_has_a_coefficient_for_every_level():
    rng = np.random.default_rng(0)
    region, visits = rng.integers(0, 3, 600), rng.poisson(9.0, 600)
    ill = rng.random(600) < np.array([0.2, 0.5, 0.8])[region]
    frame = pd.DataFrame({"region": np.array(list("nsw"))[region], "ill": ill, "visits": visits})
    settings, options = (
        RootSettings(false_discovery_rate=0.1, refit_share=0.0),
        {"l1": {2: 5.0, 3: 0.02}, "refit": "all"},
    )
    fitted = fit_roots(frame, {"visits": "count"}, order=3, settings=settings, **options)
    assert list(fitted.sets) == [("region", "ill", "visits")] and list(fitted.confirmed.sets) == [("region", "ill")]
    given = fit_roots(frame, {"visits": "count"}, interactions="region*ill", settings=settings, l1=0.0)
    assert fitted.confirmed.structure == given.structure
    np.testing.assert_allclose(fitted.confirmed.psi, given.psi, rtol=1e-3, atol=1e-5)


def test_independent_mixed_columns_yield_no_more_than_the_rate():
    """The control is what the penalty alone lets through."""
    num_repeats, counts = 25, np.zeros(2, int)
    for seed in range(num_repeats):
        rng = np.random.default_rng(seed)
        some, many = (rng.random(200) < 0.4), rng.negative_binomial(1, 0.4, (2, 200))
        x = np.column_stack([some, *many, rng.standard_t(4, 200), rng.normal(size=200)])
        fitted = fit_roots(x, [TruncatedPoissonFamily(1), "poisson", "poisson", "gaussian", "gaussian"], order=2)
        counts += bool(fitted.num_interactions), bool(fitted.confirmed.num_interactions)
    assert counts[1] <= binom.isf(FALSE_ALARM_RATE, num_repeats, 0.1) < counts[0]


# What is refused


X = mixed_rows(20)


def changed(row, column, value):
    x = X.copy()
    x[row, column] = value
    return x


@pytest.mark.parametrize(
    ("arguments", "code", "argument"),
    [
        ({"settings": RootSettings(objective="upper-bound")}, "conflict", "objective"),
        ({"family": {**FAMILIES, "ill": IndicatorFamily("state")}}, "out-of-range", "data, row 0 (counted from 0)"),
        ({"family": {**FAMILIES, "ill": 1}}, "wrong-type", "family of 'ill'"),
        ({"family": {**FAMILIES, "ill": "bernoulli"}}, "unknown-choice", "family"),
        ({"family": {"ill": "poisson"}}, "missing-part", "family"),
        ({"family": {**FAMILIES, "height": "gaussian"}}, "unknown-name", "family"),
        ({"family": ["poisson", "gaussian"]}, "wrong-shape", "family"),
        ({"family": 3}, "wrong-type", "family"),
        ({"data": changed(3, 2, 0.5)}, "out-of-range", "data, row 3 (counted from 0), column 'visits'"),
        ({"data": changed(4, 0, 2.0)}, "out-of-range", "data, row 4 (counted from 0), column 'ill'"),
        ({"data": changed(5, 3, -1.0)}, "out-of-range", "data, row 5 (counted from 0), column 'days'"),
        ({"data": changed(6, 4, math.nan)}, "out-of-range", "data, row 6 (counted from 0), column 'change'"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(arguments, code, argument):
    options = {"data": X, "family": FAMILIES, "order": 2, "names": NAMES} | arguments
    with raises(code, argument):
        fit_roots(**options)


def test_numbers_far_from_zero_are_told_where_that_matters():
    x = mixed_rows(40) + np.array([0, 0, 0, 0, 30.0])
    with pytest.warns(DataWarning, match="mean of 'change' is more than a standard deviation from 0"):
        fitted_rows(x, l1=0.3)
    fit_roots(x[:, [0, 4]], [FAMILIES["ill"], "gaussian"], order=2, l1=0.3)  # control: shifts are made up for


# Odd tables and options


def test_odd_tables_have_the_models_of_others():
    kinds = [TruncatedPoissonFamily(1), "gaussian"]
    for x in ([[1, 0.5]], [[1, 2.0]] * 4):
        fitted = fit_roots(x, kinds, order=2, refit="all")
        assert set(fitted.fixed_columns) == {"x0", "x1"} and fitted.structure.num_terms == 0
    assert fit_roots([[1], [0]], kinds[:1], order=2).family == kinds[0]
    with raises("empty", "data"):
        fit_roots(np.zeros((0, 2)), kinds)
    x = mixed_rows(80)
    equal(fitted_rows(torch.from_numpy(x).float(), l1=0.1), fitted_rows(x.astype(np.float32), l1=0.1))


def test_stages_bounds_and_families_of_users():
    x = mixed_rows(80)
    stages = fitted_rows(x, order=3, settings=RootSettings(stagewise=True, false_discovery_rate=None))
    pairs = {names for key, names in fitted_rows(x).structure.names if key == (2, 2)}
    triples = [names for key, names in stages.structure.names if key == (3, 3)]
    assert stages.is_converged and all(set(itertools.combinations(names, 2)) <= pairs for names in triples)
    counts, families = x[:, [0, 2]], [FAMILIES["ill"], "poisson"]
    bound = RootSettings(objective="upper-bound", num_subdomains=40)
    exact, above = (fit_roots(counts, families, order=2, l1=0.05, settings=one) for one in (None, bound))
    assert above.psi.tolist() == pytest.approx(exact.psi.tolist(), abs=0.05)
    poisson = UserFamily("user", "count", lambda v: -np.vectorize(math.lgamma)(v + 1.0), is_normalizable=True)
    user = fit_roots(counts, [FAMILIES["ill"], poisson], order=2, l1=0.05, settings=TIGHT)
    equal(user, fit_roots(counts, families, order=2, l1=0.05, settings=TIGHT), 1e-6)
