"""The conjugate penalty against a fit to rows with the fictive ones added, and the named priors of an analysis."""

import itertools
import math

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InputError, InteractionHypergraph, LogLinearEnergy, Observations, load_table
from pyro_hoim.log_linear import L2, Conjugate, Enumeration, InteractionRidge, Prior, Stopping, fit, fit_incomplete
from pyro_hoim.study import PosteriorSettings, analyse, run_posterior
from pyro_hoim.testing import raises

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
    mask = np.zeros(TITANIC.domain.cardinalities, dtype=bool)
    mask[3, :, 0] = True
    for options, message in (
        ({"objective": "pseudo-likelihood"}, "goes with the likelihood"),
        ({"method": "proximal-gradient"}, "needs a penalty with a proximal map"),
        ({"structural_zeros": mask}, "spreads rows over all cells"),
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
    run = run_posterior(graph, data, PosteriorSettings(2, 60, 30, prior=Prior.parse("conjugate:9000")), seed=1)
    mode, control = (fit(graph, data, penalty=Conjugate(number)).theta.numpy() for number in (9000.0, 1.0))
    mean, error = run.theta.mean((0, 1)), run.theta.reshape(-1, graph.num_parameters).std(0) / 4
    assert (np.abs(mean - mode) < 6 * error).all()
    assert np.abs(mean - control).max() > 6 * error.max()  # control: the mode under another prior
    assert str(run.prior) == "conjugate:9000" and "9000 fictive rows" in run.description
