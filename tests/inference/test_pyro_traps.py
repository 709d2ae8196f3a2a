"""What Pyro 1.9.2 does with sites like ours where a user would not expect it, as docs/limits.md says.

Every oracle is a sum over two states. A test that fails says that the installed Pyro does otherwise: correct the page.
"""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, Predictive, RenyiELBO, TraceEnum_ELBO, config_enumerate, infer_discrete
from pyro.infer.mcmc import api
from pyro.infer.mcmc.util import initialize_model

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, MixedGibbs
from pyro_hoim.testing import assert_exact_law

pytestmark = [
    pytest.mark.usefixtures("float64"),
    pytest.mark.filterwarnings("ignore:num_chains=.* is more than available_cpu"),
]

NUMBER = 2000
GRAPH = InteractionHypergraph.saturated(Domain.from_cardinalities([2]))
LAW = HierarchicalLogLinear(GRAPH, torch.tensor([0.7], dtype=torch.float64))
PRIOR = LAW.log_prob(LAW.enumerate_support())
Y = torch.tensor(1.5, dtype=torch.float64)
LIKELIHOOD = dist.Normal(torch.tensor([0.0, 1.0], dtype=torch.float64), 1.0).log_prob(Y)


def program(around):
    """Independent copies of a latent state and an observation, and what Pyro's context does with them."""

    def model():
        with pyro.plate("copies", NUMBER), around():
            x = pyro.sample("x", LAW, infer={"enumerate": "parallel"})
            pyro.sample("y", dist.Normal(x[..., 0].double(), 1.0), obs=Y.expand(NUMBER))
        return x

    return model


def masked_label():
    """As above, the mask on the latent state alone."""
    with pyro.plate("copies", NUMBER):
        with poutine.mask(mask=False):
            k = pyro.sample("k", dist.Categorical(logits=PRIOR), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(k.double(), 1.0), obs=Y.expand(NUMBER))
    return k


def by_elbo(model):
    """Log of the sum over the states of one copy as TraceEnum_ELBO has it."""
    return -TraceEnum_ELBO(max_plate_nesting=1).loss(model, lambda: None) / NUMBER


def by_nuts(model):
    """The same as NUTS and HMC have it."""

    def with_continuous_site():
        pyro.sample("w", dist.Normal(0.0, 1.0))
        model()

    _, potential, _, _ = initialize_model(with_continuous_site, max_plate_nesting=1)
    zero = torch.tensor(0.0)
    return float(-potential({"w": zero}) - dist.Normal(0.0, 1.0).log_prob(zero)) / NUMBER


def by_discrete(model):
    """Counts of the states that infer_discrete draws."""
    pyro.set_rng_seed(1)
    return infer_discrete(model, first_available_dim=-2)().flatten().bincount(minlength=2).numpy()


def by_gibbs(model, site):
    """Counts of the states that MixedGibbs draws last."""
    pyro.set_rng_seed(2)
    mcmc = MCMC(MixedGibbs(model), num_samples=1, warmup_steps=30, disable_progbar=True)
    mcmc.run()
    return mcmc.get_samples()[site].flatten().long().bincount(minlength=2).numpy()


def total(*terms):
    return float(sum(terms).logsumexp(0))


def law_of(*terms):
    return torch.softmax(sum(terms), 0).numpy()


def test_a_mask_on_an_enumerated_site_is_ignored_by_sums_and_applied_elsewhere():
    assert by_elbo(masked_label) == pytest.approx(total(PRIOR, LIKELIHOOD))  # ignored
    marginals = TraceEnum_ELBO(max_plate_nesting=1).compute_marginals(masked_label, lambda: None)
    torch.testing.assert_close(marginals["k"].probs, torch.softmax(PRIOR + LIKELIHOOD, 0).expand(NUMBER, 2))
    assert by_nuts(masked_label) == pytest.approx(total(LIKELIHOOD)) != pytest.approx(total(PRIOR, LIKELIHOOD))
    for counts in (by_discrete(masked_label), by_gibbs(masked_label, "k")):
        assert_exact_law(counts, law_of(LIKELIHOOD))
        with pytest.raises(AssertionError):
            assert_exact_law(counts, law_of(PRIOR, LIKELIHOOD))  # control


def test_a_mask_in_the_distribution_is_applied_by_sums_too():
    def model():
        with pyro.plate("copies", NUMBER):
            k = pyro.sample("k", dist.Categorical(logits=PRIOR).mask(False), infer={"enumerate": "parallel"})
            pyro.sample("y", dist.Normal(k.double(), 1.0), obs=Y.expand(NUMBER))

    assert by_elbo(model) == pytest.approx(total(LIKELIHOOD)) == by_nuts(model)


def test_a_scale_stands_outside_the_sum_inside_it_or_nowhere():
    model = program(lambda: poutine.scale(scale=3.0))
    assert by_elbo(model) == pytest.approx(3 * total(PRIOR, LIKELIHOOD))
    assert by_nuts(model) == pytest.approx(total(3 * PRIOR, 3 * LIKELIHOOD)) != pytest.approx(by_elbo(model))

    def label():
        with pyro.plate("copies", NUMBER), poutine.scale(scale=3.0):
            k = pyro.sample("k", dist.Categorical(logits=PRIOR), infer={"enumerate": "parallel"})
            pyro.sample("y", dist.Normal(k.double(), 1.0), obs=Y.expand(NUMBER))
        return k

    assert_exact_law(by_discrete(label), law_of(PRIOR, LIKELIHOOD))
    assert_exact_law(by_gibbs(model, "x"), law_of(3 * PRIOR, 3 * LIKELIHOOD))
    with pytest.raises(AssertionError):
        assert_exact_law(by_discrete(label), law_of(3 * PRIOR, 3 * LIKELIHOOD))  # control


def test_obs_mask_drops_infer_and_config_enumerate_does_not():
    def model():
        with pyro.plate("rows", 2):
            seen, values = torch.tensor([True, False]), torch.tensor([[1], [0]])
            pyro.sample("x", LAW, obs=values, obs_mask=seen, infer={"enumerate": "parallel"})

    sites = poutine.trace(model).get_trace().nodes
    assert sites["x_unobserved"]["infer"] == {}
    sites = poutine.trace(config_enumerate(model)).get_trace().nodes
    assert sites["x_unobserved"]["infer"]["enumerate"] == "parallel"


@pytest.mark.parametrize("rows", [3, 4])
def test_parallel_predictions_are_transposed_where_draws_are_as_many_as_rows(rows):
    theta = torch.tensor([[-40.0], [40.0], [-40.0]])  # so that the state follows from the draw

    def model():
        own = pyro.sample("theta", dist.Normal(torch.zeros(1), 1.0).to_event(1))
        with pyro.plate("rows", rows):
            pyro.sample("x", HierarchicalLogLinear(GRAPH, own))

    right = (theta > 0).long().expand(3, rows)
    one_by_one, spread = (
        Predictive(model, {"theta": draws}, parallel=parallel)()["x"][..., 0]
        for draws, parallel in ((theta, False), (theta.unsqueeze(1), True))
    )
    assert torch.equal(one_by_one, right) and torch.equal(spread, right)
    if rows == len(theta):
        assert torch.equal(Predictive(model, {"theta": theta}, parallel=True)()["x"][..., 0], right.T)
    else:
        with pytest.raises(ValueError, match="Shape mismatch inside plate"):
            Predictive(model, {"theta": theta}, parallel=True)()


@pytest.mark.parametrize(("alpha", "has_gradient"), [(0, False), (0.5, True)])
def test_renyi_of_order_zero_has_no_gradient_for_a_discrete_guide(alpha, has_gradient):
    def model():
        pyro.sample("y", dist.Normal(pyro.sample("x", LAW)[..., 0].double(), 1.0), obs=Y)

    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    theta = torch.zeros(1, requires_grad=True)
    elbo = RenyiELBO(alpha=alpha, num_particles=20)
    elbo.loss_and_grads(model, lambda: pyro.sample("x", HierarchicalLogLinear(GRAPH, pyro.param("theta", theta))))
    gradient = pyro.param("theta").grad
    assert bool((gradient is not None) and gradient.abs().max() > 0) == has_gradient


def test_the_second_chain_depends_on_how_many_run_at_once():
    """One after the other, the second goes on where the random numbers of the first end; beside it, it has a seed."""

    def chains(seed, number):
        pyro.set_rng_seed(seed)
        kernel = NUTS(lambda: pyro.sample("w", dist.Normal(0.0, 1.0)))
        mcmc = MCMC(kernel, num_samples=5, warmup_steps=5, num_chains=number, mp_context="spawn", disable_progbar=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(api.mp, "cpu_count", lambda: 1)
            mcmc.run()
        return mcmc.get_samples(group_by_chain=True)["w"]

    both = chains(7, 2)
    assert torch.equal(both[0], chains(7, 1)[0])
    pyro.set_rng_seed(7)
    seed = api._Worker(1, None, None, None, None, 5, 5).rng_seed  # of a process
    assert seed == 8 and not torch.equal(both[1], chains(seed, 1)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_float32_label_beside_a_float64_law_fails_in_the_sum(dtype):
    label = dist.Categorical(torch.tensor([0.25, 0.75], dtype=dtype))

    @config_enumerate
    def model():
        mean = pyro.sample("x", LAW)[..., 0].double() + pyro.sample("k", label)
        pyro.sample("y", dist.Normal(mean, 1.0), obs=Y)

    elbo = TraceEnum_ELBO(max_plate_nesting=0)
    if dtype == torch.float32:
        with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
            elbo.loss(model, lambda: None)
        return
    means = torch.tensor([[0.0, 1.0], [1.0, 2.0]])
    terms = dist.Normal(means, 1.0).log_prob(Y) + PRIOR[:, None] + label.probs.log()
    assert -elbo.loss(model, lambda: None) == pytest.approx(float(terms.flatten().logsumexp(0)))
