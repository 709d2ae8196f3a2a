"""Pointwise log-likelihoods against closed forms, on programs with plates, scales, masks and vectors."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, Predictive

from pyro_hoim import Domain, InputError, InteractionHypergraph, testing
from pyro_hoim.inference import RecordingNUTS, log_joint, pointwise_log_likelihood
from pyro_hoim.log_linear import cell_log_likelihood, parametrization

X = torch.tensor([[0.5, -1.0], [2.0, 0.3], [0.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([0.1, -0.4, 2.0], dtype=torch.float64)


def _regression(x, y, scale=1.0):
    beta = pyro.sample("beta", dist.Normal(torch.zeros(2, dtype=torch.float64), 1.0).to_event(1))
    sigma = pyro.sample("sigma", dist.LogNormal(torch.zeros((), dtype=torch.float64), 1.0))
    mean = pyro.deterministic("mean", (x * beta.unsqueeze(-2)).sum(-1))
    with poutine.scale(scale=scale), pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mean, sigma), obs=y)


def _samples(*lead):
    rng = np.random.default_rng(0)
    return {"beta": torch.as_tensor(rng.standard_normal((*lead, 2))), "sigma": torch.as_tensor(rng.random(lead) + 0.5)}


def _exact(samples):
    beta, sigma = samples["beta"].numpy(), samples["sigma"].numpy()[..., None]
    z = (Y.numpy() - beta @ X.numpy().T) / sigma
    return -0.5 * z**2 - np.log(sigma) - 0.5 * math.log(2 * math.pi)


def test_regression_equals_the_closed_form():
    samples = _samples(2, 7)
    result = pointwise_log_likelihood(_regression, samples, X, Y)
    assert set(result) == {"y"}
    testing.assert_close(result["y"], _exact(samples), relative=1e-12)
    flat = {name: value.flatten(0, 1) for name, value in samples.items()}
    again = pointwise_log_likelihood(_regression, flat, X, Y, group_by_chain=False)
    testing.assert_close(again["y"].reshape(2, 7, 3), result["y"], relative=1e-12)


def test_scale_is_left_out_and_control():
    samples = _samples(1, 4)
    scaled = pointwise_log_likelihood(_regression, samples, X, Y, scale=10.0)["y"]
    testing.assert_close(scaled, _exact(samples), relative=1e-12)
    with pytest.raises(AssertionError):
        testing.assert_close(pointwise_log_likelihood(_regression, samples, X, Y + 0.01)["y"], _exact(samples))


def test_observed_and_deterministic_names_among_the_samples_are_ignored():
    samples = _samples(1, 4)
    extra = {**samples, "y": torch.zeros(1, 4, 3, dtype=torch.float64), "mean": torch.zeros(1, 4, 3)}
    testing.assert_close(pointwise_log_likelihood(_regression, extra, X, Y)["y"], _exact(samples), relative=1e-12)


@pytest.mark.parametrize(
    ("samples", "code", "argument"),
    [
        ({}, "empty", "samples"),
        ({"beta": torch.zeros(2, 3, 2)}, "missing-part", "samples"),
        ({"beta": torch.zeros(2, 3, 2), "sigma": torch.ones(3, 2)}, "wrong-shape", "samples"),
        ({"beta": torch.zeros(3)}, "wrong-shape", "samples"),
    ],
)
def test_samples_are_checked(samples, code, argument):
    with testing.raises(code, argument):
        pointwise_log_likelihood(_regression, samples, X, Y)


def test_a_model_without_data_is_refused():
    with pytest.raises(InputError, match="observed site"):
        pointwise_log_likelihood(lambda: pyro.sample("x", dist.Normal(0.0, 1.0)), {"x": torch.zeros(1, 2)})


def test_global_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    pointwise_log_likelihood(_regression, _samples(1, 3), X, Y)
    assert torch.equal(before, torch.random.get_rng_state())


def test_log_joint_is_prior_plus_likelihood():
    samples = _samples(2, 3)
    prior = dist.Normal(0.0, 1.0).log_prob(samples["beta"]).sum(-1) + dist.LogNormal(0.0, 1.0).log_prob(
        samples["sigma"]
    )
    expected = prior.numpy() + _exact(samples).sum(-1)
    testing.assert_close(log_joint(_regression, samples, X, Y), expected, relative=1e-6)


def test_predictive_samples_fit():
    drawn = Predictive(_regression, num_samples=5, return_sites=("beta", "sigma"))(X, Y)
    samples = {"beta": drawn["beta"].reshape(5, 2), "sigma": drawn["sigma"].reshape(5)}
    assert pointwise_log_likelihood(_regression, samples, X, Y, group_by_chain=False)["y"].shape == (5, 3)


def test_cell_terms_equal_the_exact_table(monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.laws.law._BATCH", 3)
    graph = InteractionHypergraph(
        Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), [["a", "b"], ["c"]], closure=True
    )
    theta = torch.as_tensor(np.random.default_rng(0).standard_normal((2, 5, graph.num_parameters)))
    states = torch.tensor([[0, 1, 1], [1, 2, 0], [0, 0, 0]])
    table = testing.exact_table(graph, parametrization(graph).to_tables(theta))
    expected = np.stack([table[:, :, i, j, k] for i, j, k in states.tolist()], -1)
    testing.assert_close(cell_log_likelihood(graph, theta, states), expected, relative=1e-10)
    with pytest.raises(AssertionError):
        testing.assert_close(cell_log_likelihood(graph, 1.05 * theta, states), expected, relative=1e-10)
    with testing.raises("wrong-shape", "states"):
        cell_log_likelihood(graph, theta, states[0])


def test_recording_changes_no_draw():
    data = torch.linspace(-1, 1, 6, dtype=torch.float64)

    def model():
        mu = pyro.sample("mu", dist.Normal(torch.zeros(3, dtype=torch.float64), 1.0).to_event(1))
        pyro.sample("y", dist.Normal(mu.sum(), 1.0).expand([6]).to_event(1), obs=data)

    draws = []
    for kernel in (NUTS(model), RecordingNUTS(model)):
        pyro.set_rng_seed(1)
        mcmc = MCMC(kernel, num_samples=30, warmup_steps=30, disable_progbar=True)
        mcmc.run()
        draws.append(mcmc.get_samples()["mu"])
    assert torch.equal(*draws)
    record = mcmc.diagnostics()["sample_stats"]["chain 0"]
    assert {len(values) for values in record.values()} == {30}
    joint = log_joint(model, {"mu": draws[1]}, group_by_chain=False)  # no constraint, so no Jacobian
    testing.assert_close(np.array(record["lp"]), joint, relative=1e-10)


def test_recording_kernel_without_sites():
    def model():
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.tensor(0.3))

    mcmc = MCMC(RecordingNUTS(model), num_samples=3, warmup_steps=2, disable_progbar=True)
    mcmc.run()
    assert mcmc.get_samples() == {}
