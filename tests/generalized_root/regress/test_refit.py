"""Refits of joined regressions and confirmed sets: closed forms, exact conditional laws, other optimisers."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import torch
from scipy.stats import binom, hypergeom

from pyro_hoim import Domain, Variable
from pyro_hoim.errors import ConvergenceWarning, CostWarning, InputError, IntractableError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    L1Rule,
    PoissonFamily,
    RootAuto,
    RootSettings,
    RootStructure,
    TruncatedPoissonFamily,
    check_normalizable,
    choose_l1,
    confirm_roots,
    fit_root_path,
    fit_roots,
    refit_roots,
)
from pyro_hoim.generalized_root.regress import _regression, confirm
from pyro_hoim.generalized_root.regress._regression import JointRegression, JointTerm
from pyro_hoim.generalized_root.regress.confirm import RootSetTester
from pyro_hoim.generalized_root.regress.rows import prepare_rows
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

from support.calls import noted


def spread_counts(seed, num_rows=60, width=4):
    """Counts more spread than Poisson, that vary a little together; every third table has an outlier."""
    rng = np.random.default_rng(seed)
    together = 2.0 * rng.gamma(0.5, 1.0, (num_rows, 1))
    x = rng.negative_binomial(1, 0.4, (num_rows, width)) + rng.poisson(together, (num_rows, width))
    x[0, rng.integers(width)] += 40 * (seed % 3 == 2)
    return x.astype(float)


def positive(seed, num_rows=8, width=4):
    rng = np.random.default_rng(seed)
    return np.exp(rng.normal(size=(num_rows, 1)) + 0.3 * rng.normal(size=(num_rows, width)))


def values_of(fitted):
    return {(term.key, term.names): term.coefficient for term in fitted.terms()}


# Against other ways to the same numbers


@pytest.mark.parametrize("refit", ["singles", "all"])
def test_an_independent_column_has_the_log_of_its_mean(refit):
    x = np.array([[1.0], [0.0], [3.0], [2.0]])
    other = fit_roots([[7], [9]], order=1, settings=RootSettings(tolerance=1e-12))
    fitted = refit_roots(other, x, refit)
    assert fitted.psi.item() == pytest.approx(math.log(1.5), abs=1e-10)
    assert fitted.refit.pseudo_nll == pytest.approx(fitted.refit.independent_pseudo_nll, abs=1e-12)
    assert fitted.refit.joined_pseudo_nll > fitted.refit.pseudo_nll + 1


@pytest.mark.parametrize("refit", ["singles", "all"])
def test_columns_without_tuples_become_independent(refit):
    x = spread_counts(0)
    fitted = fit_roots(x, order=3, settings=RootSettings(candidates={2: [], 3: []}), refit=refit)
    np.testing.assert_allclose(fitted.psi.numpy(), np.log(x.mean(0)), rtol=0, atol=1e-10)


PAIRS = ([0, 1], [1, 2])


def gaussian_objective(flat, x):
    """Minus the mean log pseudo-likelihood of a normal law without the pair of the outer columns, and its gradient."""
    point = torch.from_numpy(flat).requires_grad_()
    precision = torch.diag(point[:3])
    for (s, t), value in zip(PAIRS, point[3:5], strict=True):
        precision[s, t] = precision[t, s] = value
    total = torch.tensor(0.0, dtype=torch.float64)
    for s in range(3):
        others = [t for t in range(3) if t != s]
        mean = (point[5 + s] - torch.from_numpy(x[:, others]) @ precision[s, others]) / precision[s, s]
        law = torch.distributions.MultivariateNormal(mean[:, None], precision_matrix=precision[s, s].reshape(1, 1))
        total = total - law.log_prob(torch.from_numpy(x[:, [s]])).mean()
    total.backward()
    return total.item(), point.grad.numpy()


def normal_rows():
    rng = np.random.default_rng(1)
    return rng.normal(size=(40, 3)) @ rng.normal(size=(3, 3)) + [1.0, -0.5, 0.2]


def gaussian_fit(refit="all", **options):
    """A fit of these rows, with the precision and the linear part of its law."""
    settings = RootSettings(refit_share=0.0, tolerance=1e-9, **options)
    fitted = fit_roots(normal_rows(), "gaussian", order=2, l1=1e-4, full=True, refit=refit, settings=settings)
    return fitted, *(part.numpy() for part in fitted.energy().gaussian_precision())


def test_gaussian_refit_is_the_optimum_of_another_optimiser():
    fitted, precision, h = gaussian_fit(candidates=[("x0", "x1"), ("x1", "x2")])
    assert fitted.structure.num_terms == 8
    start = np.array([1.0, 1, 1, 0, 0, 0, 0, 0])
    peer = scipy.optimize.minimize(
        gaussian_objective, start, args=(normal_rows(),), jac=True, method="L-BFGS-B",
        bounds=[(1e-3, None)] * 3 + [(None, None)] * 5, options={"gtol": 1e-9, "ftol": 0.0},
    )  # fmt: skip
    assert fitted.refit.pseudo_nll == pytest.approx(peer.fun, abs=1e-8)
    found = np.concatenate([precision.diagonal(), [precision[s, t] for s, t in PAIRS], h])
    np.testing.assert_allclose(found, peer.x, rtol=1e-5, atol=1e-6)


def test_gaussian_refit_of_all_pairs_is_the_inverse_of_the_covariance():
    """The pseudo-likelihood of a normal law with all pairs has the same optimum as the likelihood."""
    x = normal_rows()
    _, precision, h = gaussian_fit()
    inverse = np.linalg.inv(np.cov(x.T, ddof=0))
    np.testing.assert_allclose(precision, inverse, rtol=1e-6)
    np.testing.assert_allclose(h, inverse @ x.mean(0), rtol=1e-6)
    _, joined, _ = gaussian_fit("none")
    assert abs(joined - inverse).max() > 1e-4 * abs(inverse).max()  # the negative control


def brute_force(coefficients, x, terms, top):
    """Pseudo-NLL of a truncated Poisson root model, every conditional law by the sum over its values."""
    total, values = 0.0, np.arange(top + 1.0)
    for row in x:
        for s in range(len(row)):
            states = np.tile(row, (top + 1, 1))
            states[:, s] = values
            logs = -scipy.special.gammaln(values + 1)
            for c, (j, names) in zip(coefficients, terms, strict=True):
                if s in names:
                    logs += c * (states[:, names] ** (1 / j)).prod(1)
            total -= logs[int(row[s])] - scipy.special.logsumexp(logs)
    return total / len(x)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_truncated_refit_is_the_optimum_of_the_plainly_written_objective(share):
    rng = np.random.default_rng(2)
    x = np.minimum(rng.poisson(rng.gamma(1.0, 1.2, (14, 1)), (14, 3)), 3).astype(float)
    settings, options = RootSettings(refit_share=share, tolerance=1e-9), {"order": 2, "l1": 0.05}
    fitted = fit_roots(x, TruncatedPoissonFamily(3), refit="all", settings=settings, **options)
    places = {name: i for i, name in enumerate(fitted.domain.names)}
    terms = [(key[0], tuple(places[n] for n in names)) for key, names in fitted.structure.names]
    found = fitted.coefficients.numpy()
    penalties = np.array([0.0 if len(names) == 1 else share * 0.05 * len(names) for _, names in terms])

    def objective(c):
        return brute_force(c, x, terms, 3) + float(penalties @ np.abs(c))

    assert len(terms) > 3
    assert fitted.refit.objective == pytest.approx(objective(found), abs=1e-10)
    assert fitted.refit.pseudo_nll == pytest.approx(brute_force(found, x, terms, 3), abs=1e-10)
    before = fit_roots(x, TruncatedPoissonFamily(3), settings=settings, **options)
    assert before.structure == fitted.structure
    joined = brute_force(before.coefficients.numpy(), x, terms, 3)
    assert fitted.refit.joined_pseudo_nll == pytest.approx(joined, abs=1e-10)
    # No coefficient was zero at the optimum, so it is smooth there.
    peer = scipy.optimize.minimize(objective, found + 0.1, method="BFGS", options={"gtol": 1e-8})
    assert fitted.refit.objective <= peer.fun + 1e-9
    np.testing.assert_allclose(found, peer.x, rtol=0, atol=2e-5)


def test_singles_are_the_best_beside_the_joined_tuples():
    x = spread_counts(3)
    joined = fit_roots(x, order=3, l1=0.01, settings=RootSettings(tolerance=1e-9))
    fitted = refit_roots(joined, x, "singles")
    before, after = ({t: v for t, v in values_of(f).items() if len(t[1]) > 1} for f in (joined, fitted))
    assert before == pytest.approx(after)
    roots = torch.from_numpy(x)
    assert -float(fitted.energy().node_log_prob(roots).sum(1).mean()) == pytest.approx(
        fitted.refit.pseudo_nll, abs=1e-10
    )
    for place in range(3):  # moving one intercept either way makes it worse
        for step in (-1e-3, 1e-3):
            psi = fitted.psi.clone()
            psi[place] += step
            energy = type(fitted.energy())(fitted.structure, psi, fitted.family)
            assert -float(energy.log_pseudo_prob(roots).mean()) > fitted.refit.pseudo_nll
    assert fitted.refit.pseudo_nll < fitted.refit.joined_pseudo_nll - 1e-4


@pytest.mark.parametrize(
    "family", [PoissonFamily(), TruncatedPoissonFamily(60), ExponentialFamily(), GaussianFamily()], ids=lambda f: f.name
)
def test_gradient_of_the_joint_objective_is_that_of_finite_differences(family):
    x = spread_counts(4, 12, 3) if family.is_discrete else positive(4, 12, 3)
    rows = prepare_rows(x, family, 3)
    keys = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]
    terms = [JointTerm(key, names) for key in keys for names in itertools.combinations(range(3), key[1])]
    joint = JointRegression(rows, terms, np.zeros(len(terms)), None)
    rng = np.random.default_rng(5)
    point = np.array([-0.8 if term.key == (1, 1) else 0.02 * rng.normal() for term in terms])
    gradient = joint.point(point).gradients
    for place in range(len(terms)):
        step = np.zeros(len(terms))
        step[place] = 1e-5
        slope = (joint.objective(point + step) - joint.objective(point - step)) / 2e-5
        assert gradient[place] == pytest.approx(slope, rel=1e-6, abs=1e-7)


# Never worse than independent columns


@pytest.mark.fixed_seed  # a control: how often joined regressions are worse is a matter of the tables
def test_a_refit_of_all_terms_is_never_worse_than_independence():
    worse = 0
    for seed in range(6):
        x = spread_counts(seed)
        for order in (2, 3):
            fitted = fit_roots(x, order=order, l1=0.01)
            everything = refit_roots(fitted, x, "all", settings=RootSettings(refit_share=(0.0, 0.5, 1.0)[seed % 3]))
            told = everything.refit
            score = -float(everything.log_pseudo_prob(x).mean())
            independent = -scipy.stats.poisson.logpmf(x, x.mean(0)).sum(1).mean()
            assert told.status == "converged" and told.kkt_residual <= 1e-6
            found = (told.pseudo_nll, told.independent_pseudo_nll)
            assert found == pytest.approx((score, independent), abs=1e-9)
            assert score <= independent + 1e-9
            singles = refit_roots(fitted, x, "singles").refit
            assert singles.pseudo_nll <= singles.joined_pseudo_nll + 1e-9
            worse += told.joined_pseudo_nll > independent + 1e-6
    assert worse >= 4  # the negative control: joined regressions often are worse


@pytest.mark.parametrize("family", ["exponential", "gaussian"])
@pytest.mark.fixed_seed  # a control: joined regressions of few tables have no constant
def test_refits_of_reals_are_never_worse_and_never_without_a_constant(family):
    disproven = 0
    for seed in (0, 3, 11, 12):
        x = positive(seed) if family == "exponential" else np.log(positive(seed))
        fitted = fit_roots(x, family, order=2)
        disproven += check_normalizable(fitted.energy()).verdict == "disproven"
        for refit in ("singles", "all"):
            found = refit_roots(fitted, x, refit)
            assert check_normalizable(found.energy()).verdict == found.refit.verdict == "proven"
            assert found.refit.is_converged
            if refit == "all":
                assert found.refit.pseudo_nll <= found.refit.independent_pseudo_nll + 1e-9
    assert disproven  # the negative control: of the joined regressions some have no constant


@pytest.mark.fixed_seed  # of few rows whose pairs have no constant beside other singles
def test_singles_without_a_constant_are_not_returned():
    """Columns that are large one at a time need nothing of the pairs learned from others, whatever these promise."""
    fitted = fit_roots(positive(11), "exponential", order=2)
    check_shortened(fitted, np.kron(np.eye(4), np.ones((2, 1))) * 50.0, "singles")


@pytest.mark.fixed_seed  # of few rows whose best terms have no constant
def test_all_terms_without_a_constant_are_not_returned():
    """Three rows of four columns do not limit the pairs enough."""
    rows = np.log(positive(1, 3))
    told = check_shortened(fit_roots(rows, "gaussian", order=2), rows, "all")
    assert told.pseudo_nll <= told.independent_pseudo_nll + 1e-9
    with pytest.warns(ConvergenceWarning, match="was shortened") as caught:
        fit_roots(rows, "gaussian", order=2, refit="all", settings=RootSettings(refit_share=0.0))
    assert caught[-1].filename == __file__


def check_shortened(fitted, rows, refit):
    with pytest.warns(ConvergenceWarning) as caught:
        found = refit_roots(fitted, rows, refit, settings=RootSettings(refit_share=0.0))
    (warning,) = caught
    assert f"the refit of {refit!r} was shortened" in str(warning.message)
    assert f"way={found.refit.way:.2g} of the distance" in str(warning.message)
    assert warning.filename == __file__
    assert (found.refit.status, found.refit.verdict) == ("shortened", "proven")
    assert 0 <= found.refit.way < 1
    assert check_normalizable(found.energy()).is_proven
    score = -float(found.log_pseudo_prob(rows).mean())
    assert score == pytest.approx(found.refit.pseudo_nll, rel=1e-8)
    return found.refit


# What comes back


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("refit", ["singles", "all"])
def test_scores_are_those_of_the_energy(refit, full):
    x = spread_counts(6, 40, 4)
    fitted = fit_roots(x[:30], order=3, l1=0.02, full=full, refit=refit)
    expected = fitted.energy().node_log_prob(torch.from_numpy(x[30:]))
    torch.testing.assert_close(fitted.log_pseudo_prob(x[30:], by_node=True), expected, rtol=0, atol=1e-9)
    own = fitted.log_pseudo_prob(x[30:], symmetrized=False)
    joined = fitted.joined()
    torch.testing.assert_close(own, joined.log_pseudo_prob(x[30:], symmetrized=False), rtol=0, atol=0)
    assert joined.refit is None
    assert joined.structure == fit_roots(x[:30], order=3, l1=0.02, full=full).structure
    assert f"refit {refit!r}" in repr(fitted)
    place = fitted.structure.slices[(1, 1)]
    torch.testing.assert_close(fitted.intercepts, fitted.psi[place])
    assert not torch.equal(fitted.intercepts, joined.intercepts)


def test_full_refits_may_use_every_root_of_every_column():
    x = spread_counts(7, 40, 3)
    fitted = fit_roots(x, order=3, l1=0.05, full=True)
    for refit in ("singles", "all"):
        assert {term.key for term in refit_roots(fitted, x, refit).terms() if term.key[1] == 1} >= {(1, 1), (2, 1)}


def test_fixed_columns_stay_out():
    x = spread_counts(8, 30, 4)
    x[:, 1] = 0
    fitted = fit_roots(x, order=2, l1=0.02, refit="all")
    plain = fit_roots(x[:, [0, 2, 3]], order=2, l1=0.02, refit="all", names=["x0", "x2", "x3"])
    assert values_of(fitted) == pytest.approx(values_of(plain))
    assert fitted.intercepts[1] == -math.inf
    nothing = fit_roots(np.zeros((3, 2)), order=2, refit="all")
    assert (nothing.structure.num_terms, nothing.refit.pseudo_nll) == (0, 0.0)


def test_workers_do_not_matter(monkeypatch):
    monkeypatch.setattr(_regression, "LEAST_SHARED", 0)  # threads also for few rows
    x = spread_counts(9, 60, 5)
    for refit in ("singles", "all"):
        one, two = (fit_roots(x, order=3, refit=refit, settings=RootSettings(jobs=jobs)) for jobs in (1, 2))
        assert one.structure == two.structure
        assert torch.equal(one.psi, two.psi)


def test_paths_and_choices_score_the_refitted_models():
    x, held = spread_counts(10, 60, 4), spread_counts(11, 60, 4)
    path = fit_root_path(x, [0.2, 0.05], order=2, refit="all")
    for fitted, l1 in zip(path, (0.2, 0.05), strict=True):
        single = fit_roots(x, order=2, l1=l1, refit="all")
        assert values_of(fitted) == pytest.approx(values_of(single), abs=1e-4)
    chosen = choose_l1(x, [0.2, 0.05], order=2, refit="all", validation=held)
    assert chosen.scores == pytest.approx([float(fitted.log_pseudo_prob(held).mean()) for fitted in path], abs=1e-12)
    assert chosen.fit.refit.method == "all"


def test_an_interrupted_refit_is_continued(tmp_path, monkeypatch):
    x = spread_counts(12, 60, 4)
    options = {"order": 3, "l1": 0.01, "full": True}
    whole = fit_roots(x, refit="all", **options)
    assert whole.refit.num_steps >= 3
    file, calls = tmp_path / "run.checkpoint", noted(monkeypatch, JointRegression, "point", 3)
    with pytest.raises(KeyboardInterrupt):
        fit_roots(x, refit="all", run=RunOptions(file), **options)
    resume = RunOptions(file, resume=True)
    again = fit_roots(x, refit="all", run=resume, **options)
    assert np.array_equal(calls[3][1], calls[1][1])  # it begins where it stopped
    assert torch.equal(again.psi, whole.psi)
    assert again.refit.num_steps == whole.refit.num_steps
    # Another refit uses the regressions of the file, and none of its refits.
    options["settings"] = RootSettings(refit_share=1.0)
    other = fit_roots(x, refit="all", run=resume, **options)
    assert torch.equal(other.psi, fit_roots(x, refit="all", **options).psi)
    assert not torch.equal(other.psi, whole.psi)
    assert torch.equal(fit_roots(x, run=resume, **options).psi, fit_roots(x, **options).psi)


# Bad input


def test_bad_arguments_are_named():
    x = spread_counts(13)
    with raises("unknown-choice", "refit"):
        fit_roots(x, refit="both")
    with raises("wrong-type", "refit_share"):
        fit_roots(x, refit="all", settings=RootSettings(refit_share="half"))
    fitted = fit_roots(x, order=2)
    with raises("wrong-shape", "data names"):
        refit_roots(fitted, x[:, :2])
    empty = x.copy()
    empty[:, 1] = 0
    with pytest.raises(InputError, match="column 'x1' has the value 0 in all rows"):
        refit_roots(fitted, empty)
    assert refit_roots(fitted, x, "none") is fitted


@pytest.mark.parametrize(
    "family", [PoissonFamily(), TruncatedPoissonFamily(9), ExponentialFamily()], ids=lambda f: f.name
)
def test_rows_that_are_impossible_under_the_fit_are_refused(family):
    x = np.minimum(spread_counts(16, 30, 3), 8.0) + (0.0 if family.is_discrete else 0.5)
    edge = 9.0 if isinstance(family, TruncatedPoissonFamily) else 0.0
    x[:, 2] = edge
    fitted = fit_roots(x, family, order=2, l1=0.02)
    again = x.copy()
    again[4, 2], again[7, 2] = 5.0, 3.0
    assert list(fitted.fixed_columns.values()) == [edge]
    for refit in ("singles", "all"):
        with pytest.raises(InputError, match=rf"column 'x2' is fixed at {edge:g} in the fit, received 5 in row 4"):
            refit_roots(fitted, again, refit)
        found = refit_roots(fitted, x, refit)
        assert found.refit.pseudo_nll == pytest.approx(-float(found.log_pseudo_prob(x).mean()), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        *(("max_iterations", value, "out-of-range") for value in (-5, 1.5, "a", True)),
        *(("refit_share", value, "out-of-range") for value in (2, 1.5)),
        ("jobs", 0, "out-of-range"),
        *(("fit", value, "wrong-type") for value in ("a", None)),
    ],
)
@pytest.mark.parametrize("refit", ["none", "singles", "all"])
def test_arguments_of_a_refit_are_checked_before_the_rows_are_read(name, value, code, refit):
    fit = value if name == "fit" else fit_roots([[1, 2], [0, 1], [2, 0]], order=2)
    with raises(code, name):
        refit_roots(fit, Unread(), refit, RootSettings(**({} if name == "fit" else {name: value})))


class Unread:
    """Rows that nothing may read."""

    def __array__(self, *arguments, **options):
        raise AssertionError("the rows were read")


def test_too_much_memory_is_refused(monkeypatch):
    monkeypatch.setattr(_regression, "MOST_BYTES", 1000)
    with pytest.raises(IntractableError, match=r"the limit is 1000\. Refit 'singles'"):
        fit_roots(spread_counts(14), order=2, refit="all")
    assert fit_roots(spread_counts(14), order=2, refit="singles").is_converged


def test_steps_that_do_not_suffice_are_told():
    x = spread_counts(15)
    fitted = fit_roots(x, order=3)
    with pytest.warns(ConvergenceWarning, match="the refit of 'all' has not converged") as caught:
        found = refit_roots(fitted, x, "all", settings=RootSettings(max_iterations=1))
    assert caught[0].filename == __file__
    assert found.refit.status == "max_iterations"
    assert not found.is_converged
    assert found.refit.kkt_residual > 1e-6


@pytest.mark.parametrize(
    ("refit", "helps"), [("all", "raise l1 or refit_share, or leave out full"), ("singles", "raise l1, or leave out")]
)
@pytest.mark.fixed_seed  # of few rows that drive an intercept to its end
def test_the_edge_of_the_domain_is_told_with_what_helps(refit, helps):
    x = np.exp(1.5 * np.random.default_rng(1).normal(size=(15, 3)))
    with pytest.warns(ConvergenceWarning):
        fitted = fit_roots(x, "exponential", order=2, l1=0.05, full=True)
    with pytest.warns(ConvergenceWarning) as caught:
        assert refit_roots(fitted, x, refit).refit.status == "stalled"
    assert f"edge of the family's domain, stops the line search: {helps}" in str(caught[0].message)
    assert fit_roots(x, "exponential", order=2, l1=0.05, refit=refit).is_converged


# Confirmed sets: p-values against exact conditional laws, their size, and what stands in for what


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
