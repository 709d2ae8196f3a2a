"""Fits: objectives, penalties and solvers in every combination, and everything around a run."""

import functools
import itertools
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_hoim import (
    ConvergenceWarning,
    Domain,
    InputError,
    InteractionHypergraph,
    IntractableError,
    LogLinearEnergy,
    NonexistentEstimateWarning,
    Observations,
    load_table,
)
from pyro_hoim.errors import DataWarning
from pyro_hoim.log_linear import (
    L1,
    L2,
    Enumeration,
    GroupL2,
    ImpossibleStates,
    Stopping,
    VariableElimination,
    fit,
    parametrization,
)
from pyro_hoim.log_linear.fitting import design
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.fitting.objectives import DenseLikelihood, Likelihood, Penalised, PseudoLikelihood
from pyro_hoim.runs import RunOptions
from pyro_hoim.runs.checkpoint import RunFile
from pyro_hoim.testing import assert_close, exact_table, raises, random_tables

from support.calls import noted, stopped_again


@pytest.fixture
def czech():
    return load_table("czech_autoworkers")


def order(data, k):
    return InteractionHypergraph.from_order(data.domain, k)


def statistics(hypergraph, data):
    eta = data.marginal_counts(hypergraph.edges) / data.total_count
    return parametrization(hypergraph).free_statistics(eta).numpy()


def score(result, data):
    """Gradient of the negative log-likelihood of all rows in the free parameters."""
    eta = parametrization(result.hypergraph).free_statistics(Enumeration().expectations(result.model)).numpy()
    return data.total_count * (eta - statistics(result.hypergraph, data))


def random_law(seed=3, cards=(2, 3, 2), k=2, edges=None):
    domain = Domain.from_cardinalities(list(cards))
    hypergraph = InteractionHypergraph.from_order(domain, k)
    if edges is not None:
        hypergraph = InteractionHypergraph(domain, edges, hierarchical=False)
    tables = random_tables(hypergraph, np.random.default_rng(seed))
    return hypergraph, torch.from_numpy(tables), torch.from_numpy(np.exp(exact_table(hypergraph, tables)))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_margins_of_the_fit_are_the_observed_ones(czech, k):
    hypergraph = order(czech, k)
    result = fit(hypergraph, czech)
    eta = Enumeration().expectations(result.model)
    assert_close(eta, czech.marginal_counts(hypergraph.edges) / czech.total_count, relative=1e-8)
    assert result.status == "converged"
    assert result.num_iterations <= 8
    assert "theta" not in repr(result)
    assert result.log_partition == pytest.approx(float(Enumeration().log_partition(result.model).value), rel=1e-12)


@pytest.mark.parametrize("partition", [None, Enumeration(), VariableElimination()])
def test_every_route_gives_the_same_estimate(czech, partition):
    hypergraph = order(czech, 2)
    newton = fit(hypergraph, czech)
    other = fit(hypergraph, czech, method="lbfgs", partition=partition, stopping=Stopping(tolerance=1e-7))
    assert other.method == "lbfgs"
    assert_close(other.theta, newton.theta, relative=1e-5)
    assert other.log_likelihood == pytest.approx(newton.log_likelihood, abs=1e-8)
    assert_close(other.covariance, newton.covariance, relative=1e-6)


@pytest.mark.parametrize("edges", [None, [("x0",), ("x0", "x1")]], ids=["pairs", "weak heredity"])
def test_generating_parameters_come_back_from_exact_counts(edges):
    hypergraph, tables, probs = random_law(edges=edges)
    result = fit(hypergraph, Observations.from_table(hypergraph.domain, weights=1000 * probs))
    assert_close(result.tables, tables, relative=1e-6 if edges is None else 1e-8)


def test_empty_hypergraph_and_constant_variables():
    domain = Domain.from_cardinalities({"a": 2, "b": 1})
    data = Observations.from_table(domain, [[3], [5]])
    empty = fit(InteractionHypergraph(domain), data)
    assert empty.log_likelihood == pytest.approx(-8 * np.log(2))
    full = fit(InteractionHypergraph.saturated(domain), data)
    assert_close(full.probs, [3 / 8, 5 / 8], relative=1e-9)


# Objectives


@pytest.mark.parametrize("kind", ["dense", "backend", "pseudo", "penalised"])
def test_gradients_and_hessians_against_finite_differences(kind):
    hypergraph, _, probs = random_law()
    data = Observations.from_table(hypergraph.domain, torch.round(200 * probs) + 1)
    mean = statistics(hypergraph, data)
    dense = DenseLikelihood(design_matrix(hypergraph), mean)
    objective = {
        "dense": dense,
        "backend": Likelihood(hypergraph, mean, Enumeration()),
        "pseudo": PseudoLikelihood(hypergraph, data),
        "penalised": Penalised(dense, L2(3.0), hypergraph, 10.0),
    }[kind]
    theta = np.random.default_rng(1).normal(size=hypergraph.num_parameters)
    gradient = objective.evaluate(theta).gradient
    hessian = None
    if kind in ("dense", "penalised"):
        hessian = objective.hessian()
        hessian = np.triu(hessian) + np.triu(hessian, 1).T
    step = 1e-5
    for i, unit in enumerate(np.eye(len(theta)) * step):
        up, down = (objective.evaluate(theta + s * unit) for s in (1, -1))
        assert gradient[i] == pytest.approx((up.value - down.value) / (2 * step), abs=1e-8)
        if hessian is not None:
            np.testing.assert_allclose(hessian[i], (up.gradient - down.gradient) / (2 * step), atol=1e-8)


def test_pseudo_likelihood_value_is_the_sum_of_conditionals():
    hypergraph, tables, probs = random_law()
    data = Observations.from_table(hypergraph.domain, torch.round(200 * probs) + 1)
    theta = parametrization(hypergraph).from_tables(tables, "free").numpy()
    by_hand = sum(float((data.table() * (probs / probs.sum(axis, keepdim=True)).log()).sum()) for axis in range(3))
    value = PseudoLikelihood(hypergraph, data).evaluate(theta).value
    assert value == pytest.approx(-by_hand / data.total_count, rel=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_pseudo_likelihood_equals_likelihood_for_independent_and_saturated_models(k):
    hypergraph, _, probs = random_law(k=k)
    data = Observations.from_table(hypergraph.domain, torch.round(300 * probs) + 1)
    exact = fit(hypergraph, data)
    pseudo = fit(hypergraph, data, objective="pseudo-likelihood", stopping=Stopping(tolerance=1e-8))
    assert_close(pseudo.theta, exact.theta, relative=1e-5)
    assert pseudo.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-6)


def test_pseudo_likelihood_is_consistent_but_not_the_estimate_of_other_models(czech):
    hypergraph, tables, probs = random_law(cards=(2, 2, 3, 2))
    data = Observations.from_table(hypergraph.domain, weights=1000 * probs)
    truth = fit(hypergraph, data, objective="pseudo-likelihood", stopping=Stopping(tolerance=1e-8))
    assert_close(truth.tables, tables, relative=1e-5)
    pseudo, exact = (fit(order(czech, 2), czech, objective=o) for o in ("pseudo-likelihood", "likelihood"))
    assert float((pseudo.theta - exact.theta).abs().max()) > 1e-4
    assert pseudo.log_likelihood < exact.log_likelihood


# Penalties: the test criterion is the optimality condition


@pytest.mark.parametrize("method", ["newton", "lbfgs", "proximal-gradient"])
def test_ridge_optimality(czech, method):
    hypergraph = order(czech, 2)
    result = fit(hypergraph, czech, method=method, penalty=L2(7.0), stopping=Stopping(tolerance=1e-8))
    np.testing.assert_allclose(score(result, czech) + 7.0 * result.theta.numpy(), 0, atol=1e-4)
    assert result.existence is None
    assert float(result.theta.norm()) < float(fit(hypergraph, czech).theta.norm())


@pytest.mark.parametrize("penalty", [L1(30.0), GroupL2(30.0), L1(30.0, min_order=2)])
def test_sparse_optimality(penalty):
    data = load_table("hair_eye_color")
    hypergraph = order(data, 2)
    result = fit(hypergraph, data, penalty=penalty, stopping=Stopping(tolerance=1e-9))
    assert (result.method, result.status) == ("proximal-gradient", "converged")
    theta, slope = result.theta.numpy(), score(result, data)
    zeros = 0
    for edge, where in hypergraph.parameter_slices.items():
        block, gradient = theta[where], slope[where]
        weight = 0.0 if len(edge) < penalty.min_order else 30.0
        if isinstance(penalty, GroupL2):
            weight *= len(block) ** 0.5
            if np.any(block):
                np.testing.assert_allclose(gradient, -weight * block / np.linalg.norm(block), atol=1e-3)
            else:
                zeros += 1
                assert np.linalg.norm(gradient) <= weight + 1e-3
        else:
            np.testing.assert_allclose(gradient[block != 0], -weight * np.sign(block[block != 0]), atol=1e-3)
            assert np.all(np.abs(gradient[block == 0]) <= weight + 1e-3)
            zeros += int((block == 0).sum())
    assert zeros > 0


def test_empty_margins_are_infinite_for_a_pseudo_likelihood_and_finite_under_a_penalty():
    data = load_table("titanic")
    result = fit(order(data, 2), data, penalty=L2(0.1))
    assert result.status == "converged"
    assert float(result.theta.abs().max()) < 10
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    with pytest.warns(NonexistentEstimateWarning, match="Class=Crew, Age=Child"):
        result = fit(hypergraph, data, objective="pseudo-likelihood")
    assert result.status == "infinite"
    assert fit(hypergraph, data, objective="pseudo-likelihood", penalty=L2(1.0)).status == "converged"  # control
    czech = load_table("czech_autoworkers")
    pairs = InteractionHypergraph.from_order(czech.domain, 2)
    assert fit(pairs, czech, objective="pseudo-likelihood").status == "converged"


def test_a_pseudo_likelihood_refuses_zeros_between_which_no_single_column_leads():
    """Of two equal columns it says nothing: all theta have the same conditionals, though not the same law."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    data, singles = Observations.from_table(domain, [[90, 0], [0, 10]]), InteractionHypergraph.from_order(domain, 1)
    zeros = ImpossibleStates.of_combinations(domain, [{"a": 0, "b": 1}, {"a": 1, "b": 0}])
    for theta in ([0.0, 0.0], [1.0, -3.0]):
        tables = LogLinearEnergy.from_theta(singles, torch.tensor(theta, dtype=torch.float64))
        assert zeros.applied(tables).log_pseudo_prob(torch.tensor([[0, 0], [1, 1]])).abs().max() == 0
    with pytest.raises(InputError, match=r"objective: .* from \(a=0, b=0\) to \(a=1, b=1\), .*objective='likelihood'"):
        fit(singles, data, objective="pseudo-likelihood", structural_zeros=zeros)

    def probs(result):
        return Enumeration().marginal(result.model, domain.names)

    assert_close(probs(fit(singles, data, structural_zeros=zeros)), data.table() / 100, relative=1e-6)
    # The control: one combination alone leaves a path, along which shares are compared.
    path, one = Observations.from_table(domain, [[60, 30], [0, 10]]), [{"a": 1, "b": 0}]
    with warnings.catch_warnings(action="error"):
        result = fit(singles, path, objective="pseudo-likelihood", structural_zeros=one)
    assert_close(probs(result), path.table() / 100, relative=1e-4)


def test_a_pseudo_likelihood_warns_of_zeros_that_it_learns_or_cannot_look_through():
    pairs = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2}), 2)
    for table, number in (([[90, 0], [0, 10]], 1), ([[60, 30], [0, 10]], 0)):
        with warnings.catch_warnings(record=True, action="always") as given:
            fit(pairs, Observations.from_table(pairs.domain, table), objective="pseudo-likelihood")
        texts = [str(each.message) for each in given if each.category is DataWarning]
        assert len(texts) == number and all(
            "no such steps lead from (a=0, b=0) to (a=1, b=1)" in text for text in texts
        )
    # Colours of a cycle of 40 columns have too many states to list.
    ring = Domain.from_cardinalities([3] * 40)
    names = ring.names
    equal = [{names[k]: c, names[k - 1]: c} for k in range(40) for c in range(3)]
    rows = [[(k + shift) % 2 + turn for k in range(40)] for shift in (0, 1) for turn in (0, 1)]
    singles = InteractionHypergraph.from_order(ring, 1)
    with pytest.warns(DataWarning, match="was not tested"):
        fit(
            singles,
            Observations.from_tensor(torch.tensor(rows), ring),
            objective="pseudo-likelihood",
            structural_zeros=equal,
            penalty=L2(1.0),
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "newton", "penalty": L1(1.0)}, "'newton' needs a smooth penalty"),
        ({"method": "lbfgs", "penalty": GroupL2(1.0)}, "'lbfgs' needs a smooth penalty"),
        ({"method": "proximal-gradient"}, "needs a penalty with a proximal map"),
        ({"method": "newton", "objective": "pseudo-likelihood"}, "needs a Hessian"),
        ({"method": "newton", "partition": Enumeration()}, "Hessian, which the likelihood through a partition backend"),
        ({"method": "descent"}, "method: expected 'auto', 'newton'"),
        ({"objective": "entropy"}, "objective: expected 'likelihood', 'pseudo-likelihood' or 'bound'"),
        ({"stopping": Stopping(patience=1)}, "patience: expected validation rows"),
        ({"run": RunOptions("/nowhere/at/all.safetensors")}, "the folder /nowhere/at does not exist"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(czech, options, message):
    with pytest.raises(InputError, match=message):
        fit(order(czech, 2), czech, **options)


@pytest.mark.parametrize("strength", [0, -1.0, float("nan"), float("inf"), True])
def test_strength_is_checked(strength):
    for kind in (L1, L2, GroupL2):
        with raises("out-of-range", "strength"):
            kind(strength)


def test_bad_data_is_refused_before_any_work(czech):
    hypergraph = order(czech, 2)
    margins = czech.marginal_counts(hypergraph.edges)
    broken = margins.clone()
    broken[0] += 1
    for data, code in [
        (Observations(czech.domain, torch.full((1, 6), -1)), "missing-cells"),
        (czech.project(czech.domain.names[:3]), "other-domain"),
        (Observations.from_table(czech.domain, czech.table() * 0), "empty"),
        (margins[:-1], "wrong-shape"),
        (broken, "other-domain"),
        (-margins, "out-of-range"),
        (margins * float("nan"), "not-finite"),
        (margins.long(), "wrong-type"),
        ("table", "wrong-type"),
    ]:
        with raises(code, "data"):
            fit(hypergraph, data)
    with raises("conflict", "objective"):
        fit(hypergraph, margins, objective="pseudo-likelihood")


def test_margins_that_share_variables_must_agree():
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    graph = InteractionHypergraph.from_formula(domain, "a*b")
    margins = torch.tensor([10.0, 90, 50, 50, 25, 25, 25, 25], dtype=torch.float64)  # a; b; ab has a = (50, 50)
    with pytest.raises(InputError, match="tables of a and a:b that differ by 40 over a"):
        fit(graph, margins)
    # Without the table of b itself, the two tables over b still have to agree.
    chain = InteractionHypergraph(domain, [("a", "b"), ("b", "c")], hierarchical=False)
    ab, bc = torch.tensor([20.0, 30, 10, 40]), torch.tensor([40.0, 10, 10, 40])
    with pytest.raises(InputError, match="over b"):
        fit(chain, torch.cat([ab, bc]))
    bc = torch.tensor([20.0, 10, 30, 40])
    assert fit(chain, torch.cat([ab, bc])).num_rows == 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounded_margins_are_accepted_and_wrong_ones_are_not(dtype):
    domain = Domain.from_cardinalities([3, 4, 5])
    weights = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e4 + 0.1
    data = Observations.from_table(domain, weights=weights)
    hypergraph = order(data, 2)
    exact = data.marginal_counts(hypergraph.edges)
    result = fit(hypergraph, exact.to(dtype))
    assert_close(result.theta, fit(hypergraph, data).theta, relative=1e-5)
    wrong = exact.clone()
    wrong[-1] += 1e-4 * data.total_count
    wrong[-2] -= 1e-4 * data.total_count
    with pytest.raises(InputError, match="expected margins of one table"):
        fit(hypergraph, wrong.to(dtype))


def test_too_large_is_refused_with_numbers():
    domain = Domain.from_cardinalities([10] * 12)
    data = Observations(domain, torch.zeros(3, 12, dtype=torch.long))
    with pytest.raises(IntractableError, match="cells"):
        fit(InteractionHypergraph.from_order(domain, 2), data)
    with pytest.raises(IntractableError, match="use method='lbfgs'"):
        fit(InteractionHypergraph.from_order(domain, 1), data, method="newton")


# Runs


def test_not_converged_is_a_status_and_a_warning_with_early_stopping_too(czech):
    with pytest.warns(ConvergenceWarning, match="max_iterations after 1 iterations"):
        result = fit(order(czech, 2), czech, method="lbfgs", stopping=Stopping(max_iterations=1))
    assert (result.status, result.is_converged) == ("max_iterations", False)
    assert result.gradient_norm > 1e-6
    train, validation = czech.split([0.5, 0.5], seed=0)
    with pytest.warns(ConvergenceWarning, match="max_iterations after 2 iterations of lbfgs"):
        result = fit(order(czech, 1), train, validation=validation, stopping=Stopping(max_iterations=2, patience=20))
    assert (result.status, result.is_converged) == ("max_iterations", False)
    # Patience beyond the last iteration: the criterion is met, but the parameters are those of an earlier one.
    full = fit(order(czech, 3), train, validation=validation, stopping=Stopping(patience=10**6))
    assert full.best_iteration < full.num_iterations
    assert full.status == "early_stopped"
    assert full.gradient_norm > 1e-6


def test_early_stopping_returns_the_best_iterate(czech):
    train, validation = czech.split([0.1, 0.9], seed=0)
    hypergraph = order(czech, 3)
    result = fit(hypergraph, train, validation=validation, stopping=Stopping(patience=5))
    assert result.status == "early_stopped"
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        limits = [Stopping(max_iterations=count, patience=10**6) for count in range(1, result.num_iterations + 1)]
        shorter = [fit(hypergraph, train, validation=validation, stopping=limit) for limit in limits]
        path = [fit(hypergraph, train, stopping=replace(limit, patience=None)).log_likelihood for limit in limits]
    assert path == sorted(path)  # last iterates: training goes on improving
    lowest = [entry.validation_kl for entry in shorter]  # up to every iteration
    assert result.validation_kl == min(lowest)
    assert result.best_iteration == 1 + int(np.argmin(lowest)) == result.num_iterations - 5
    # The validation divergence is that of the returned model, and training goes on improving.
    model = result.model
    direct = float(validation.counts @ model.energy(validation.codes)) / validation.total_count
    direct += result.log_partition - validation.entropy()
    assert result.validation_kl == pytest.approx(direct, abs=1e-10)
    with warnings.catch_warnings(action="ignore"):
        full = fit(hypergraph, train, penalty=L2(1e-4))
    worse = float(validation.counts @ full.model.energy(validation.codes)) / validation.total_count
    assert worse + full.log_partition - validation.entropy() > result.validation_kl
    assert full.log_likelihood > result.log_likelihood


def test_validation_rows_that_the_estimate_excludes_lose_infinitely_much():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    data = Observations.from_table(domain, [[30, 0], [20, 40]])
    hypergraph = InteractionHypergraph.saturated(domain)
    inside = Observations.from_table(domain, [[3, 0], [2, 1]])
    outside = Observations.from_table(domain, [[3, 1], [2, 1]])
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(hypergraph, data, validation=inside)
    law = data.table() / data.total_count
    share = inside.table() / 6
    direct = float((share[law > 0] * (share[law > 0] / law[law > 0]).log()).sum())
    assert result.validation_kl == pytest.approx(direct, abs=1e-9)
    with pytest.warns(NonexistentEstimateWarning):
        assert fit(hypergraph, data, validation=outside).validation_kl == np.inf


def test_validation_rows_follow_a_pseudo_likelihood_fit(czech):
    train, validation = czech.split([0.5, 0.5], seed=0)
    result = fit(order(czech, 2), train, objective="pseudo-likelihood", validation=validation)
    value = -float(validation.counts @ result.model.log_pseudo_prob(validation.codes)) / validation.total_count
    assert result.validation_kl == pytest.approx(value, rel=1e-10)


class Interrupting(Enumeration):
    """A backend that is interrupted at its tenth call."""

    calls = itertools.count()

    def log_partition(self, model):
        if next(self.calls) == 10:
            raise KeyboardInterrupt
        return super().log_partition(model)


def test_interrupt_keeps_the_last_iterate_and_a_checkpoint(czech, tmp_path, monkeypatch):
    monkeypatch.setattr(Interrupting, "calls", itertools.count())
    path = tmp_path / "checkpoint.safetensors"
    hypergraph = order(czech, 2)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        result = fit(hypergraph, czech, method="lbfgs", partition=Interrupting(), run=RunOptions(checkpoint=path))
    assert result.status == "interrupted"
    assert 1 <= result.num_iterations <= 10
    resumed = fit(
        hypergraph, czech, method="lbfgs", partition=Enumeration(), run=RunOptions(checkpoint=path, resume=True)
    )
    assert resumed.status == "converged"
    fresh = fit(hypergraph, czech, method="lbfgs", partition=Enumeration())
    assert torch.equal(resumed.theta, fresh.theta)
    run = RunOptions(checkpoint=path, resume=True)
    with pytest.raises(InputError, match="belongs to a run with another hypergraph"):
        fit(order(czech, 1), czech, method="lbfgs", run=run)
    with pytest.raises(InputError, match="belongs to a run with method='lbfgs', not 'newton'"):
        fit(hypergraph, czech, run=run)
    with pytest.raises(InputError, match="belongs to a run with penalty='None'"):
        fit(hypergraph, czech, method="lbfgs", penalty=L2(1.0), run=run)


RESUMED = {
    "newton": {"method": "newton"},
    "lbfgs": {"method": "lbfgs"},
    "gradient": {"method": "gradient", "stopping": Stopping(max_iterations=40)},
    "proximal-gradient": {"penalty": L1(20.0)},
    "corner coordinates": {"penalty": L1(20.0, coding="corner")},
    "patience": {"method": "lbfgs", "stopping": Stopping(patience=2)},
}


@pytest.mark.parametrize("kind", RESUMED)
def test_a_continued_fit_makes_the_same_steps(czech, tmp_path, monkeypatch, kind):
    train, validation = czech.split([0.6, 0.4], seed=1)
    options = {**RESUMED[kind], **({"validation": validation} if kind == "patience" else {})}
    warnings.simplefilter("ignore", ConvergenceWarning)
    made = functools.partial(fit, order(czech, 2), train, **options)
    whole, (*_, part) = stopped_again(monkeypatch, DenseLikelihood, made, tmp_path / "run.safetensors", 4)
    assert part.log_likelihood == whole.log_likelihood
    assert part.best_iteration == whole.best_iteration and part.validation_kl == whole.validation_kl


@pytest.mark.parametrize("method", ["newton", "lbfgs", "gradient"])
def test_interrupt_of_a_dense_fit_keeps_the_last_iterate(czech, monkeypatch, method):
    noted(monkeypatch, DenseLikelihood, "evaluate", 4)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        result = fit(order(czech, 2), czech, method=method)
    assert result.status == "interrupted"
    assert 1 <= result.num_iterations <= 3
    energy = float(czech.counts @ result.model.energy(czech.codes))
    assert result.log_likelihood == pytest.approx(-energy - czech.total_count * result.log_partition, rel=1e-12)


def test_interrupt_before_the_first_iterate_is_raised(czech, monkeypatch):
    noted(monkeypatch, DenseLikelihood, "evaluate", 1)
    with pytest.raises(KeyboardInterrupt):
        fit(order(czech, 2), czech)


def test_gradient_descent_is_the_purified_one(czech):
    hypergraph = order(czech, 2)
    with pytest.warns(ConvergenceWarning, match="max_iterations"):
        result = fit(hypergraph, czech, method="gradient", stopping=Stopping(max_iterations=2))
    coordinates = parametrization(hypergraph)
    eta_data = czech.marginal_counts(hypergraph.edges) / czech.total_count
    tables = torch.zeros(hypergraph.num_terms, dtype=torch.float64)
    for _ in range(2):
        eta = Enumeration().expectations(LogLinearEnergy(hypergraph, tables))
        tables = tables - 0.5 * coordinates.eta_to_pi(eta - eta_data)
    assert_close(result.tables, tables, relative=1e-12)


def test_checkpoints_are_written_while_a_fit_runs(czech, tmp_path, monkeypatch):
    hypergraph = order(czech, 1)
    run = RunOptions(tmp_path / "fit.safetensors", resume=True)  # nothing to resume from
    monkeypatch.setattr(RunFile, "is_due", True)
    assert fit(hypergraph, czech, run=run).status == "converged"
    with monkeypatch.context() as patch:
        patch.setattr(DenseLikelihood, "hessian", None)  # no further step is made
        assert fit(hypergraph, czech, run=run).status == "converged"
    with pytest.raises(InputError, match="exists; pass resume=True"):
        fit(hypergraph, czech, run=RunOptions(run.checkpoint))
    late = RunOptions(tmp_path / "late.safetensors")
    monkeypatch.setattr(RunFile, "is_due", False)
    fit(hypergraph, czech, run=late)
    assert not late.checkpoint.exists()
    with raises("conflict", "resume"):
        RunOptions(resume=True)


@pytest.mark.parametrize("bad", [{"tolerance": 0.0}, {"max_iterations": 0}, {"patience": 0}, {"tolerance": True}])
def test_criteria_are_checked(bad):
    with raises("out-of-range", next(iter(bad))):
        Stopping(**bad)


def test_progress_goes_to_standard_error(czech, capsys):
    fit(order(czech, 2), czech, method="lbfgs", run=RunOptions(progress=True))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "iteration" in captured.err


def test_rows_and_cells_and_repeats_give_the_same_fit(czech):
    hypergraph = order(czech, 2)
    expanded = Observations(czech.domain, torch.repeat_interleave(czech.codes, czech.counts.long(), 0))
    assert_close(fit(hypergraph, expanded).theta, fit(hypergraph, czech).theta, relative=1e-12)
    permuted = expanded.rows(torch.randperm(1841, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(fit(hypergraph, permuted).theta, fit(hypergraph, expanded).theta)


def test_nothing_is_printed_for_a_model_without_parameters(capfd):
    domain = Domain.from_cardinalities([1])
    result = fit(InteractionHypergraph.from_order(domain, 1), Observations.from_table(domain, [5]))
    assert result.status == "converged" and result.log_likelihood == 0
    assert capfd.readouterr() == ("", "")


# The dense design


def test_memory_is_that_of_the_design():
    hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2] * 9))
    design._small_design.cache_clear()
    tracemalloc.start()
    size = design_matrix(hypergraph).nbytes
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # All balanced tables as columns would take 38 times the design: 3^9 terms against 2^9 cells.
    assert peak < 3 * size


def test_kept_designs_are_bounded_by_their_entries(monkeypatch):
    graphs = [InteractionHypergraph.saturated(Domain.from_cardinalities([n])) for n in (3, 6, 7, 20)]
    monkeypatch.setattr(design, "_SMALL", 40)  # of 6, 30, 42 and 380 entries
    monkeypatch.setattr(design, "_LARGE", 100)
    design._small_design.cache_clear()
    built = [design_matrix(graph) for graph in graphs]
    assert [design_matrix(graph) is matrix for graph, matrix in zip(graphs, built, strict=True)] == [True] * 3 + [False]
    assert (design._small_design.cache_info().currsize, design._large_design.cache_info().maxsize) == (2, 1)
