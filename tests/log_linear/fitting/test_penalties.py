"""Penalties in free and in corner coordinates and fits of corner families against other solvers; the conjugate one."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from law_models import corner_indicators
from scipy import optimize

import pyro_hoim
from pyro_hoim import (
    Domain,
    InputError,
    InteractionHypergraph,
    LogLinearEnergy,
    NonexistentEstimateWarning,
    Observations,
    load_table,
)
from pyro_hoim.information import removal_values
from pyro_hoim.log_linear import (
    L1,
    L2,
    Conjugate,
    Enumeration,
    ExactTrainer,
    GroupL2,
    HierarchicalLogLinear,
    InteractionRidge,
    Prior,
    Stopping,
    VariableElimination,
    coefficient_intervals,
    coefficient_table,
    fit,
    fit_incomplete,
    interaction_table,
    log_partition,
    odds_ratio_table,
    unit_information_prior,
)
from pyro_hoim.study import PosteriorSettings, analyse, run_posterior
from pyro_hoim.testing import assert_close, raises

EXACT = Stopping(tolerance=1e-9, max_iterations=20_000)
OBJECTIVES = ["likelihood", "pseudo-likelihood"]


def drawn(levels, seed=0, rows=200):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(rows, rng.dirichlet(np.full(math.prod(levels), 0.7))).reshape(levels)
    return Observations.from_table(Domain.from_cardinalities(levels), counts.astype(float))


def loss(graph, data, objective, theta):
    """Negative log-likelihood of all rows, or pseudo-likelihood, and its gradient, from the whole table."""
    design = corner_indicators(graph)
    counts = data.table().numpy().ravel()
    logits, cards = design @ theta, graph.domain.cardinalities
    if objective == "likelihood":
        top = logits.max()
        probs = np.exp(logits - top)
        value = counts.sum() * (top + math.log(probs.sum())) - counts @ logits
        return value, design.T @ (counts.sum() * probs / probs.sum() - counts)
    value, slope = 0.0, np.zeros(len(logits))
    table, number = logits.reshape(cards), counts.reshape(cards)
    for axis in range(len(cards)):
        shares = np.exp(table - table.max(axis, keepdims=True))
        shares /= shares.sum(axis, keepdims=True)
        value -= float((number * np.log(shares)).sum())
        slope += (shares * number.sum(axis, keepdims=True) - number).ravel()
    return value, design.T @ slope


def smallest(value_and_slope, size, weights):
    """Minimiser of a smooth function plus weighted absolute values, by splitting theta into two positive parts."""

    def split(parts):
        value, slope = value_and_slope(parts[:size] - parts[size:])
        return value + weights @ (parts[:size] + parts[size:]), np.concatenate([slope + weights, weights - slope])

    bounds, start = [(0, None)] * (2 * size), np.full(2 * size, 0.1)
    options = {"maxiter": 2_000, "ftol": 1e-15}
    found = optimize.minimize(split, start, jac=True, bounds=bounds, method="SLSQP", options=options)
    return found.x[:size] - found.x[size:], found.fun


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("levels", "order"), [([2, 2, 2, 2], 3), ([3, 2, 3], 2)], ids=["binary", "levels"])
def test_l1_in_corner_coordinates_solves_that_problem(objective, levels, order):
    data = drawn(levels)
    graph = InteractionHypergraph.from_order(data.domain, order)
    penalty = L1(6.0, min_order=2, coding="corner")
    result = fit(graph, data, objective=objective, penalty=penalty, stopping=EXACT)
    weights = np.array(
        [6.0 * (len(edge) > 1) for edge, w in graph.parameter_slices.items() for _ in range(w.stop - w.start)]
    )
    theta = result.coefficients("corner").numpy()
    reference, least = smallest(partial(loss, graph, data, objective), len(theta), weights)
    value, slope = loss(graph, data, objective, theta)
    assert abs(value + weights @ np.abs(theta) - least) < 1e-7 * least
    np.testing.assert_allclose(theta, reference, atol=2e-4)
    # Optimality: zero lies in the subdifferential, with exact zeros.
    zero = theta == 0
    assert zero.any() and not zero.all()
    np.testing.assert_allclose(slope[~zero], -weights[~zero] * np.sign(theta[~zero]), atol=1e-5)
    assert (np.abs(slope[zero]) <= weights[zero] + 1e-5).all()
    assert_close(result.penalty_value, weights @ np.abs(theta), relative=1e-12)
    assert result.coding == "free" and "coding='corner'" in repr(result)
    assert coefficient_table_says(result) == repr(penalty)
    # Control: the same penalty of free coordinates has another estimate.
    other = fit(graph, data, objective=objective, penalty=L1(6.0, min_order=2), stopping=EXACT)
    away = other.coefficients("corner").numpy()
    assert loss(graph, data, objective, away)[0] + weights @ np.abs(away) > least + 1e-2


def coefficient_table_says(result):
    """The penalty that the table of coefficients names; a penalty that is not smooth leaves no table of errors."""
    with raises("no-method"):
        coefficient_table(result)
    return result.penalty.__class__.__name__ + str(result.penalty)[2:]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_group_penalty_in_corner_coordinates_is_at_its_optimum(objective):
    data = drawn([3, 2, 3], 3)
    graph = InteractionHypergraph.from_order(data.domain, 3)
    result = fit(graph, data, objective=objective, penalty=GroupL2(6.0, coding="corner"), stopping=EXACT)
    theta = result.coefficients("corner").numpy()
    _, slope = loss(graph, data, objective, theta)
    sizes = []
    for where in graph.parameter_slices.values():
        weight, norm = 6.0 * math.sqrt(where.stop - where.start), np.linalg.norm(theta[where])
        sizes.append(norm)
        if norm:
            np.testing.assert_allclose(slope[where], -weight * theta[where] / norm, atol=1e-4)
        else:
            assert np.linalg.norm(slope[where]) <= weight + 1e-4
    assert 0 < sum(size == 0 for size in sizes) < len(sizes)


def test_ridge_in_corner_coordinates_with_its_errors_by_every_method():
    data = drawn([2, 3, 2], 5)
    graph = InteractionHypergraph.from_order(data.domain, 2)
    design, counts = corner_indicators(graph), data.table().numpy().ravel()
    found = [
        fit(graph, data, penalty=L2(2.0, coding="corner"), **options)
        for options in ({}, {"partition": VariableElimination()}, {"method": "lbfgs"}, {"method": "proximal-gradient"})
    ]
    for result in found:
        theta = result.coefficients("corner").numpy()
        np.testing.assert_allclose(loss(graph, data, "likelihood", theta)[1] + 2.0 * theta, 0, atol=1e-3)
        np.testing.assert_allclose(theta, found[0].coefficients("corner"), atol=1e-4)
        probs = np.exp(design @ theta)
        probs /= probs.sum()
        mean = probs @ design
        information = counts.sum() * ((design - mean) * probs[:, None]).T @ (design - mean) + 2.0 * np.eye(len(theta))
        errors = np.sqrt(np.diag(np.linalg.inv(information)))
        np.testing.assert_allclose(result.standard_errors("corner"), errors, rtol=1e-3)
    assert coefficient_table(found[0]).attrs == {"coding": "corner", "penalty": "L2(strength=2.0, coding='corner')"}
    free = fit(graph, data, penalty=L2(2.0))  # control
    assert np.abs((free.coefficients("corner") - found[0].coefficients("corner")).numpy()).max() > 0.01


# Families of corner tables

CORNER = InteractionHypergraph(
    Domain.from_cardinalities([2, 3, 2, 2]),
    [["x0"], ["x0", "x1"], ["x1", "x2", "x3"], ["x3"]],
    hierarchical=False,
    coding="corner",
)


def estimate(graph, data):
    """Maximum-likelihood estimate and the inverse of its information, by Newton's method on the definition."""
    design, counts = corner_indicators(graph), data.table().numpy().ravel()
    theta, total = np.zeros(design.shape[1]), counts.sum()
    for _ in range(50):
        probs = np.exp(design @ theta)
        probs /= probs.sum()
        mean = probs @ design
        information = total * ((design - mean) * probs[:, None]).T @ (design - mean)
        theta = theta + np.linalg.solve(information, counts @ design - total * mean)
    return theta, np.linalg.inv(information), -loss(graph, data, "likelihood", theta)[0]


@pytest.mark.parametrize(
    "options",
    [{}, {"partition": VariableElimination()}, {"method": "lbfgs"}, {"method": "gradient"}],
    ids=["newton", "backend", "lbfgs", "gradient"],
)
def test_fit_of_a_corner_family_is_its_maximum(options):
    data = drawn([2, 3, 2, 2], 1, 400)
    theta, covariance, likelihood = estimate(CORNER, data)
    result = fit(CORNER, data, **options)
    assert result.status == "converged" and result.coding == "corner"
    np.testing.assert_allclose(result.theta, theta, atol=1e-4)
    assert_close(result.log_likelihood, likelihood, relative=1e-9)
    design = corner_indicators(CORNER)
    assert_close(result.log_partition, np.log(np.exp(design @ result.theta.numpy()).sum()), relative=1e-10)
    assert_close(result.log_partition, log_partition(result.model, "corner").value, relative=1e-10)
    np.testing.assert_allclose(result.standard_errors(), np.sqrt(np.diag(covariance)), rtol=1e-3)
    frame = coefficient_table(result)
    np.testing.assert_allclose(frame["estimate"], theta, atol=1e-4)
    np.testing.assert_allclose(frame["std_error"], np.sqrt(np.diag(covariance)), rtol=1e-3)
    ratio = odds_ratio_table(result, "x2", "x3", given={"x1": 1})
    place = CORNER.parameter_slices["x1", "x2", "x3"].start
    assert_close(ratio["log_odds_ratio"].iloc[0], float(result.theta[place]), relative=1e-9)
    assert_close(ratio["std_error"].iloc[0], float(frame["std_error"].iloc[place]), relative=1e-9)
    assert odds_ratio_table(result, "x2", "x3", given={"x1": 0})["log_odds_ratio"].iloc[0] == 0
    # Control: the same sets with balanced tables are another family.
    assert abs(fit(CORNER.in_coding("balanced"), data).log_likelihood - likelihood) > 0.5


def test_other_ways_to_fit_a_corner_family():
    data = drawn([2, 3, 2, 2], 1, 400)
    theta, _, likelihood = estimate(CORNER, data)
    margins = fit(CORNER, data.marginal_counts(CORNER.edges))
    np.testing.assert_allclose(margins.theta, theta, atol=1e-6)
    pseudo = fit(CORNER, data, objective="pseudo-likelihood", stopping=EXACT)
    np.testing.assert_allclose(loss(CORNER, data, "pseudo-likelihood", pseudo.theta.numpy())[1], 0, atol=1e-4)
    assert pseudo.coding == "corner" and pseudo.log_likelihood < likelihood
    sparse = fit(CORNER, data, penalty=L1(5.0, coding="corner"), stopping=EXACT)
    reference, _ = smallest(partial(loss, CORNER, data, "likelihood"), len(theta), np.full(len(theta), 5.0))
    np.testing.assert_allclose(sparse.theta, reference, atol=2e-4)
    early = fit(CORNER, data, validation=data, stopping=Stopping(patience=3))
    assert_close(early.validation_kl, -likelihood / 400 - data.entropy(), absolute=1e-5)
    holes = data.codes.clone()
    holes[::7, 1] = -1
    partial_rows = Observations.from_tensor(holes, data.domain, weights=data.counts)
    found = fit_incomplete(CORNER, partial_rows)
    assert found.coding == "corner" and found.log_likelihood > likelihood
    mask = np.zeros([2, 3, 2, 2], dtype=bool)
    mask[0, 0, 0, 0] = True
    rest = Observations.from_table(data.domain, np.where(mask, 0.0, data.table().numpy()))
    without = fit(CORNER, rest, structural_zeros=mask)
    moments = corner_indicators(CORNER).T @ (without.probs.numpy() - rest.table().numpy().ravel() / rest.total_count)
    np.testing.assert_allclose(moments, 0, atol=1e-7)
    intervals = coefficient_intervals(margins)
    assert len(intervals) == len(interaction_table(margins.model)) == len(CORNER)


def test_an_infinite_estimate_of_a_corner_family():
    """Nobody has x0 = x1 = 1 together, so that entry falls without end; its margins alone would not say so."""
    counts = drawn([2, 3, 2, 2], 2, 300).table().numpy()
    counts[1, 1] = 0
    data = Observations.from_table(CORNER.domain, counts)
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(CORNER, data)
    assert result.status == "infinite" and result.existence.exists is False
    assert float(result.probs.reshape(2, 3, 2, 2)[1, 1].sum()) < 1e-9
    place = CORNER.parameter_slices["x0", "x1"].start
    errors = result.standard_errors()
    assert math.isinf(errors[place]) and int(torch.isinf(errors).sum()) == 1
    moments = corner_indicators(CORNER).T @ (result.probs.numpy() - counts.ravel() / counts.sum())
    np.testing.assert_allclose(moments, 0, atol=1e-7)


def test_what_has_no_meaning_is_refused():
    data = drawn([2, 3, 2, 2], 1)
    plain = CORNER.in_coding("balanced")
    for graph, penalty in (
        (CORNER, L1(1.0)),
        (CORNER, GroupL2(1.0)),
        (CORNER, L2(1.0)),
        (CORNER, Conjugate(1.0)),
        (CORNER, InteractionRidge(1.0)),
        (plain, L1(1.0, coding="corner")),
    ):
        with raises("conflict", "penalty"):
            fit(graph, data, penalty=penalty)
    for make in (L1, L2, GroupL2):
        with raises("unknown-choice", "coding"):
            make(1.0, coding="balanced")
    result = fit(CORNER, data, penalty=L2(1.0, coding="corner"))
    for coding in ("free", "balanced"):
        for call in (result.coefficients, result.standard_errors, lambda c: coefficient_table(result, coding=c)):
            with raises("no-method"):
                call(coding)
    for call in (
        lambda: ExactTrainer(data, CORNER),
        lambda: ExactTrainer(data, plain).restructure(CORNER),
        lambda: unit_information_prior(CORNER),
        lambda: analyse({"train": data}, {"corner": CORNER}),
        lambda: removal_values(result.model),
    ):
        with raises("no-method"):
            call()
    with raises("conflict", "penalty"):
        ExactTrainer(data, plain, penalty=L2(1.0, coding="corner"))


def test_files_of_corner_families(tmp_path):
    data = drawn([2, 3, 2, 2], 1, 400)
    result = fit(CORNER, data, penalty=L2(1.0, coding="corner"))
    law = HierarchicalLogLinear(CORNER, result.theta)
    for name, model in (("fit", result), ("law", law), ("energy", result.model)):
        path = tmp_path / f"{name}.safetensors"
        pyro_hoim.save(model, path)
        stored = pyro_hoim.load(path)
        assert stored.model.hypergraph == CORNER and stored.model.hypergraph.coding == stored.model.coding == "corner"
        assert torch.equal(stored.model.theta, result.theta)
        scored = pyro_hoim.score(stored, data)
        assert_close(scored["nll"], -result.log_likelihood / 400, relative=1e-12)
        rows = pyro_hoim.sample(stored, 50, {"x1": 2}, seed=1)
        assert len(rows) == 50 and (rows["x1"].astype(str) == "2").all()
    assert pyro_hoim.load(tmp_path / "fit.safetensors").info["penalty"] == "L2(strength=1.0, coding='corner')"
    # Control: the same numbers on the same sets in balanced tables are another model.
    pyro_hoim.save(HierarchicalLogLinear(CORNER.in_coding("balanced"), result.theta), tmp_path / "other.safetensors")
    assert pyro_hoim.score(pyro_hoim.load(tmp_path / "other.safetensors"), data)["nll"] > scored["nll"] + 0.01


# The conjugate penalty and named priors


TITANIC = load_table("titanic")
PAIRS = InteractionHypergraph.from_order(TITANIC.domain, 2)


def with_rows(data, number):
    """The same data with fictive rows spread evenly over the cells."""
    return Observations.from_table(data.domain, weights=data.table() + number / data.domain.num_states)


@pytest.mark.parametrize(
    "options", [{}, {"method": "lbfgs"}, {"partition": Enumeration()}], ids=["newton", "lbfgs", "z"]
)
@pytest.mark.parametrize("number", [0.5, 40.0])
def test_the_estimate_is_that_of_more_rows(number, options):
    result = fit(PAIRS, TITANIC, penalty=Conjugate(number), stopping=Stopping(tolerance=1e-8), **options)
    oracle = fit(PAIRS, with_rows(TITANIC, number))
    assert result.status == "converged" and result.existence is None
    torch.testing.assert_close(result.theta, oracle.theta, rtol=0, atol=2e-3 if options else 1e-6)
    energy = LogLinearEnergy(PAIRS, result.tables)
    log_z = Enumeration().log_partition(energy).value
    own = -float(TITANIC.counts @ energy.energy(TITANIC.codes)) - TITANIC.total_count * float(log_z)
    assert result.log_likelihood == pytest.approx(own, rel=1e-12)  # of the observed rows alone
    assert Conjugate(number).value(result.theta.numpy(), PAIRS) == pytest.approx(number * float(log_z), rel=1e-12)
    if not options:
        torch.testing.assert_close(result.information, oracle.information, rtol=1e-6, atol=1e-6)
        other = fit(PAIRS, TITANIC, penalty=Conjugate(2 * number))
        assert float((other.theta - oracle.theta).abs().max()) > 1e-2  # control: twice the rows


def test_a_conjugate_penalty_goes_with_the_likelihood_of_all_cells():
    for options, message in (
        ({"objective": "pseudo-likelihood"}, "goes with the likelihood"),
        ({"method": "proximal-gradient"}, "needs a penalty with a proximal map"),
    ):
        with pytest.raises(InputError, match=message):
            fit(PAIRS, TITANIC, penalty=Conjugate(1.0), **options)
    for number in (0, -1.0, math.inf, "1"):
        with raises("out-of-range", "num_rows"):
            Conjugate(number)


def test_a_penalised_fit_of_incomplete_rows_maximises_the_penalised_likelihood():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    codes = torch.tensor([[0, 0], [0, 1], [1, 1], [0, -1], [1, -1], [-1, 0]])
    data = Observations.from_tensor(codes, domain, weights=torch.tensor([9.0, 4, 6, 3, 5, 2]))
    graph = InteractionHypergraph.saturated(domain)
    result = fit_incomplete(graph, data, penalty=L2(3.0), tolerance=1e-14)

    def loss(theta):
        model = LogLinearEnergy.from_theta(graph, theta)
        probs = (-model.energy(torch.cartesian_prod(torch.arange(2), torch.arange(2)))).softmax(0).reshape(2, 2)
        known = [probs[0, 0], probs[0, 1], probs[1, 1], probs[0].sum(), probs[1].sum(), probs[:, 0].sum()]
        return -(data.counts @ torch.stack(known).log()) + 1.5 * theta @ theta

    theta = result.theta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(theta), theta)
    assert float(gradient.abs().max()) < 1e-4
    with torch.no_grad():
        own = float(1.5 * theta @ theta - loss(theta))
    assert result.log_likelihood == pytest.approx(own, rel=1e-9)


def test_named_priors_are_the_penalties_they_say():
    table = {"none": None, "normal:0.5": L2(4.0), "ridge:4": L2(4.0), "conjugate:3": Conjugate(3.0)}
    for text, penalty in table.items():
        assert Prior.parse(text).penalty(PAIRS) == penalty
        assert str(Prior.parse(f"  {text} ")) == text and Prior.parse(str(Prior.parse(text))) == Prior.parse(text)
    unit = Prior.parse("unit").penalty(PAIRS)
    assert isinstance(unit, InteractionRidge)
    # The information of a row of the uniform table about every coordinate, from enumeration.
    uniform = fit(PAIRS, Observations.from_table(TITANIC.domain, weights=np.ones(TITANIC.domain.cardinalities)))
    information = np.diagonal(uniform.information.numpy()) / uniform.num_rows
    np.testing.assert_allclose(unit.parameters(PAIRS), information, rtol=1e-9)


@pytest.mark.parametrize("text", ["none", "unit", "normal:2", "ridge:0.25", "conjugate:7"])
def test_penalty_and_distribution_of_a_prior_agree(text):
    prior = Prior.parse(text)
    if prior.is_flat:
        with pytest.raises(InputError, match="needs a proper prior"):
            prior.distribution(PAIRS)
        return
    penalty, law = prior.penalty(PAIRS), prior.distribution(PAIRS)
    thetas = torch.randn(3, PAIRS.num_parameters, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    values = [penalty.value(theta.numpy(), PAIRS) for theta in thetas]
    logs = [float(law.log_prob(theta.to(law.sample().dtype))) for theta in thetas]
    for (a, b), (c, d) in zip(itertools.pairwise(values), itertools.pairwise(logs), strict=True):
        assert a - b == pytest.approx(d - c, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize(
    "text", ["", "flat", "normal", "normal:", "normal:0", "normal:-1", "ridge:nan", "unit:0", "none:0", "conjugate:inf"]
)
def test_other_texts_are_refused(text):
    with raises("unknown-choice", "--prior"):
        Prior.parse(text, "--prior")


def test_strengths_of_a_search():
    domain = TITANIC.domain
    assert Prior.parse("ridge:2").strengths(domain, 3) == InteractionRidge(2.0)
    unit = Prior.parse("unit").strengths(domain, 3)
    assert unit.strength(("Class", "Age")) == 1 / 8 and unit.strength(("Sex", "Age", "Survived")) == 1 / 8
    for text in ("none", "conjugate:1"):
        with pytest.raises(InputError, match="a search needs unit, normal:S or ridge:S"):
            Prior.parse(text).strengths(domain, 2)
    wide = Domain.from_cardinalities([2] * 60)
    with pytest.raises(InputError, match="unit has a strength for each of 36050 sets"):
        Prior.parse("unit").strengths(wide, 3)


def test_an_analysis_under_a_prior_is_finite_and_has_no_p_value():
    analysis = analyse({"train": TITANIC}, {"pairs": PAIRS}, prior=Prior.parse("conjugate:1"))
    model = analysis.chosen
    assert model.fit.status == "converged" and not any(row["is_infinite"] for row in model.interactions)
    torch.testing.assert_close(model.fit.theta, fit(PAIRS, TITANIC, penalty=Conjugate(1.0)).theta)
    assert model.goodness.p_value_method is None and "penalised" in model.goodness.p_value_note
    assert math.isnan(model.goodness.aic) and model.cells is None


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_a_posterior_is_drawn_under_its_prior():
    data = load_table("ucb_admissions")
    graph = InteractionHypergraph.from_order(data.domain, 1)
    run = run_posterior(graph, data, PosteriorSettings(2, 30, 20, prior=Prior.parse("conjugate:9000")), seed=1)
    mode, control = (fit(graph, data, penalty=Conjugate(number)).theta.numpy() for number in (9000.0, 1.0))
    mean, error = run.theta.mean((0, 1)), run.theta.reshape(-1, graph.num_parameters).std(0) / 4
    assert (np.abs(mean - mode) < 6 * error).all()
    assert np.abs(mean - control).max() > 6 * error.max()  # control: the mode under another prior
    assert str(run.prior) == "conjugate:9000" and "9000 fictive rows" in run.description
