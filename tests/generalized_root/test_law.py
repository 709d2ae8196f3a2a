"""Generalized root laws as Pyro distributions."""

import copy
import itertools
import math
import pickle
import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO
from pyro.infer.autoguide import AutoNormal

from pyro_hoim.errors import ConvergenceWarning, InputError, IntractableError, UnknownNameError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRoot,
    PoissonFamily,
    RootAnnealed,
    RootAuto,
    RootEnumeration,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.testing import assert_close, assert_exact_law, raises

from support.root_models import domain_of

POISSON, EXPONENTIAL, GAUSSIAN = PoissonFamily(), ExponentialFamily(), GaussianFamily()
QUICK = RootAnnealed(num_chains=64, num_temperatures=20, burn_in=10)


def pairs(size, family):
    domain = domain_of(size, family)
    return RootStructure.simplified(domain, list(itertools.combinations(domain.names, 2)))


def counts(psi=(-0.5, 0.2, 0.4), **options):
    return GeneralizedRoot(pairs(2, POISSON), torch.tensor(psi, dtype=torch.float64), POISSON, **options)


def table(law, top=40):
    """Probabilities of all pairs of counts below a top by brute force."""
    a, b, c = law.psi.tolist()
    x = np.arange(float(top))
    base = -np.array([math.lgamma(v + 1) for v in x])
    log_q = (a * x + base)[:, None] + (b * x + base)[None] + 2 * c * np.sqrt(np.outer(x, x))
    return np.exp(log_q - log_q.max()) / np.exp(log_q - log_q.max()).sum()


@pytest.fixture(autouse=True)
def fresh():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


# Probabilities


def test_log_prob_of_counts_is_the_normalised_law():
    law = counts()
    probs = table(law)
    states = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    assert_close(law.log_prob(states).exp().reshape(40, 40), probs, relative=1e-10)
    assert_close(law.log_prob(states.double()), law.log_prob(states))
    x = np.arange(40.0)
    assert_close(law.mean, [probs.sum(1) @ x, probs.sum(0) @ x], relative=1e-9)
    assert_close(law.variance, [p @ x**2 - (p @ x) ** 2 for p in (probs.sum(1), probs.sum(0))], relative=1e-8)
    assert_close(law.expectations[2], (probs * np.sqrt(np.outer(x, x))).sum(), relative=1e-9)
    assert law.log_partition.kind == "exact"
    assert law.sample_is_exact and law.sample_burn_in == 0
    pyro.set_rng_seed(0)
    draws = law.sample((7,))
    pyro.set_rng_seed(0)
    assert torch.equal(draws, RootAuto().sample(law.energy_model, (7,)))


def test_gaussian_pairs_are_multivariate_normal():
    structure = RootStructure.complete(domain_of(3, GAUSSIAN), 2)
    psi = torch.tensor([-1.0, -1.5, -0.8, 0.3, -0.2, 0.5, 0.2, -0.1, 0.3], dtype=torch.float64, requires_grad=True)
    law = GeneralizedRoot(structure, psi, GAUSSIAN)
    loc, precision = law.energy_model.gaussian_parameters()
    normal = dist.MultivariateNormal(loc, precision_matrix=precision)
    x = torch.randn(4, 3, dtype=torch.float64)
    assert_close(law.log_prob(x), normal.log_prob(x), relative=1e-12)
    (own,), (other,) = (torch.autograd.grad(p.log_prob(x).sum(), psi, retain_graph=True) for p in (law, normal))
    assert_close(own, other, relative=1e-10)
    assert_close(law.mean, normal.mean)
    assert_close(law.variance, normal.variance)
    other = GeneralizedRoot(structure, 1.1 * psi.detach(), GAUSSIAN)
    loc, precision = other.energy_model.gaussian_parameters()
    expected = torch.distributions.kl_divergence(normal, dist.MultivariateNormal(loc, precision_matrix=precision))
    assert_close(torch.distributions.kl_divergence(law, other), expected, relative=1e-10)
    assert law.sample_is_exact


def test_chains_are_close_where_draws_are_not_exact():
    law = GeneralizedRoot(pairs(2, EXPONENTIAL), torch.tensor([-1.0, -2.0, 0.5], dtype=torch.float64), EXPONENTIAL)
    assert not law.sample_is_exact
    assert law.sample_burn_in == 100
    draws = GeneralizedRoot(law.structure, law.psi, EXPONENTIAL, num_sweeps=10).sample((200,))
    assert bool((draws >= 0).all())
    assert bool(((draws.mean(0) - law.mean).abs() < 6 * (law.variance / 200).sqrt()).all())
    x = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(law.log_prob(x).sum(), x)
    a, b, c = law.psi.tolist()
    u, v = x.detach().unbind(-1)
    assert_close(slope, torch.stack([a + c * (v / u).sqrt(), b + c * (u / v).sqrt()], -1), relative=1e-10)


def _tied_and_untied():
    """A Gaussian pair correlated so strongly that chains crawl, beside a pair with cube roots, which needs chains."""
    domain = domain_of(4, GAUSSIAN)
    quick, slow = domain.names[:2], domain.names[2:]
    terms = {(1, 1): [(name,) for name in domain.names], (2, 2): [slow], (3, 2): [quick]}
    structure = RootStructure(domain, terms)
    psi = torch.zeros(structure.num_terms, dtype=torch.float64)
    psi[structure.slices[(1, 1)]] = -1.0
    psi[structure.index(slow, 2)] = 0.9999
    psi[structure.index(quick, 3)] = 0.1
    return structure, psi


def _cells_of_the_pair(draws):
    """Counts in nine cells of equal probability of the exact pair, whose sum and difference are independent normal."""
    total, difference = draws[:, 2] + draws[:, 3], draws[:, 2] - draws[:, 3]
    # exp(-x^2 - y^2 + 2 * 0.9999 x y) = exp(-0.0001 (x + y)^2 / 2 - 1.9999 (x - y)^2 / 2)
    levels = [torch.special.ndtr(total * 0.0001**0.5), torch.special.ndtr(difference * 1.9999**0.5)]
    rows, columns = ((3 * level).long().clamp(max=2) for level in levels)
    return torch.bincount(3 * rows + columns, minlength=9)


def test_components_with_exact_draws_are_drawn_exactly_beside_chains():
    structure, psi = _tied_and_untied()
    law = GeneralizedRoot(structure, psi, GAUSSIAN, num_sweeps=1)
    assert not law.sample_is_exact
    assert law.sample_burn_in == 1
    draws = law.sample((400,))
    assert_exact_law(_cells_of_the_pair(draws), np.full(9, 1 / 9))
    assert bool(((draws.mean(0) - law.mean).abs() < 6 * (law.variance / 400).sqrt()).all())
    wide = GeneralizedRoot(structure, psi.expand(2, 1, -1), GAUSSIAN, num_sweeps=1).expand([2, 2, 3])
    assert wide.sample((5,)).shape == (5, 2, 2, 3, 4)
    # The control: chains in all components, as the annealed backend has them, are far from the law of the pair.
    chains = RootAnnealed(burn_in=1).sample(law.energy_model, (400,))
    with pytest.raises(AssertionError):
        assert_exact_law(_cells_of_the_pair(chains), np.full(9, 1 / 9))


def test_gradients_and_the_score_identity():
    law = counts()
    psi = law.psi.clone().requires_grad_(True)
    own = GeneralizedRoot(law.structure, psi, POISSON)
    x = torch.tensor([[1.0, 4.0], [0.0, 2.0]], dtype=torch.float64)
    for _ in range(2):  # the graph of the first pass is gone; the law makes another
        (slope,) = torch.autograd.grad(own.log_prob(x).sum(), psi)
        statistics = law.energy_model.statistics(x)
        expected = law.structure.multiplicity * (statistics - law.expectations).sum(0)
        assert_close(slope, expected, relative=1e-10)
    with torch.no_grad():
        psi.mul_(0.5)
    assert_close(own.log_prob(x), counts((-0.25, 0.1, 0.2)).log_prob(x), relative=1e-12)


def test_conditional_law_and_pseudo_likelihood():
    law = counts()
    x = torch.tensor([2.0, 3.0], dtype=torch.float64)
    probs = torch.tensor(table(law))
    first = law.condition({"v1": 3})
    assert first.domain.names == ("v0",)
    assert_close(first.log_prob(torch.arange(5.0)[:, None].double()).exp(), probs[:5, 3] / probs[:, 3].sum())
    pseudo = (probs[2, 3] / probs[:, 3].sum()).log() + (probs[2, 3] / probs[2].sum()).log()
    assert_close(law.log_pseudo_prob(x), pseudo, relative=1e-9)
    empty = law.condition({"v0": 1, "v1": 0})
    assert empty.event_shape == (0,)
    assert_close(empty.log_prob(torch.zeros(0)), 0.0)
    assert empty.sample((3,)).shape == (3, 0)
    assert law.expand([3]).condition({"v0": 1}).batch_shape == (3,)
    with pytest.raises(UnknownNameError, match="unknown variable 'v7'; known: 'v0', 'v1'"):
        law.condition({"v7": 1})
    with pytest.raises(InputError, match="evidence"):
        law.condition({"v0": -1})


def test_divergence_of_counts():
    law, other = counts(), counts((0.0, 0.1, 0.3))
    p, q = table(law), table(other)
    keep = p > 0
    expected = (p[keep] * np.log(p[keep] / q[keep])).sum()
    assert_close(torch.distributions.kl_divergence(law, other), expected, relative=1e-9)
    assert_close(torch.distributions.kl_divergence(law, law), 0.0, absolute=1e-12)
    with pytest.raises(InputError, match="same structure"):
        torch.distributions.kl_divergence(law, GeneralizedRoot(pairs(3, POISSON), torch.zeros(6), POISSON))
    with pytest.raises(IntractableError, match="exact log Z"):
        torch.distributions.kl_divergence(law, counts(partition=QUICK))


# Pyro's contract


def test_shapes_and_expansion():
    psi = torch.zeros(3, 1, 3, dtype=torch.float64)
    law = GeneralizedRoot(pairs(2, POISSON), psi, POISSON)
    assert (law.batch_shape, law.event_shape) == ((3, 1), (2,))
    wide = law.expand([2, 3, 4])
    assert (wide.batch_shape, wide.sample((5,)).shape) == ((2, 3, 4), (5, 2, 3, 4, 2))
    assert wide.log_prob(torch.ones(2)).shape == (2, 3, 4)
    assert wide.log_prob(torch.ones(6, 2, 3, 1, 2)).shape == (6, 2, 3, 4)
    assert wide.mean.shape == wide.variance.shape == (2, 3, 4, 2)
    assert wide.psi.shape == wide.expectations.shape == (2, 3, 4, 3)
    assert wide.log_partition.value.shape == (2, 3, 4)
    assert wide.energy(torch.ones(2)).shape == wide.log_pseudo_prob(torch.ones(2)).shape == (2, 3, 4)
    draws = wide.sample()
    assert not torch.equal(draws[0, 0, 0], draws[1, 2, 3]) or not torch.equal(draws[0, 1, 1], draws[1, 1, 2])
    assert GeneralizedRoot.infer_shapes(structure=law.structure, psi=(3, 1, 3), family=POISSON) == ((3, 1), (2,))
    assert law.sample((0,)).shape == (0, 3, 1, 2)
    assert "PoissonFamily" in repr(law)
    assert not law.has_enumerate_support


def test_small_domains():
    nothing = GeneralizedRoot(RootStructure.independent(domain_of(0, POISSON)), torch.zeros(2, 0), POISSON)
    assert_close(nothing.log_prob(torch.zeros(2, 0)), torch.zeros(2))
    assert (nothing.sample((3,)).shape, nothing.mean.shape) == ((3, 2, 0), (2, 0))
    one = GeneralizedRoot(RootStructure.independent(domain_of(1, POISSON)), torch.tensor([0.7]), POISSON)
    x = torch.arange(6.0)
    assert_close(one.log_prob(x[:, None]), dist.Poisson(torch.tensor(0.7).exp()).log_prob(x), relative=1e-6)
    assert one.sample((4,)).dtype == torch.float32
    rate = GeneralizedRoot(RootStructure.independent(domain_of(1, EXPONENTIAL)), torch.tensor([-2.0]), EXPONENTIAL)
    assert_close(rate.log_prob(x[:, None]), dist.Exponential(torch.tensor(2.0)).log_prob(x), relative=1e-6)
    assert rate.sample_is_exact
    assert rate.sample((4,)).shape == (4, 1)


@pytest.mark.parametrize(
    ("family", "good", "bad"),
    [
        (POISSON, [0, 7], [[-1, 0], [0.5, 1], [math.nan, 0], [math.inf, 0]]),
        (TruncatedPoissonFamily(3), [0, 3], [[4, 0], [0, -1]]),
        (EXPONENTIAL, [0.0, 2.5], [[-0.1, 1], [math.nan, 1]]),
        (GAUSSIAN, [-3.0, 2.5], [[math.inf, 1]]),
    ],
)
def test_support(family, good, bad):
    law = GeneralizedRoot(pairs(2, family), torch.tensor([-1.0, -1.0, 0.2]), family, validate_args=True)
    assert law.support.event_dim == 1
    assert bool(law.support.check(torch.tensor(good)))
    assert bool(torch.isfinite(law.log_prob(torch.tensor(good))))
    for value in bad:
        if all(math.isfinite(v) for v in value):
            assert not bool(law.support.check(torch.tensor(value)))
        with raises("out-of-range", "value"):
            law.log_prob(torch.tensor(value))
    for code, wrong in (
        ("wrong-shape", torch.ones(3)),
        ("wrong-shape", torch.ones(())),
        ("wrong-type", [1.0, 2.0]),
        ("wrong-type", torch.tensor([True, False])),
    ):
        with raises(code, "value"):
            law.log_prob(wrong)


def test_an_annealed_law_is_copied_with_its_seed():
    law = counts(partition=RootAnnealed(seed=1, num_chains=64, num_temperatures=20)).expand([2])
    for clone in (pickle.loads(pickle.dumps(law)), copy.deepcopy(law)):
        assert torch.equal(clone.log_prob(torch.ones(2)), law.log_prob(torch.ones(2)))


def test_wrong_arguments():
    structure = pairs(2, POISSON)
    zero = torch.zeros(3)
    for code, argument, arguments, options in (
        ("wrong-shape", "psi", (structure, torch.zeros(4), POISSON), {}),
        ("not-finite", "psi", (structure, torch.tensor([0.0, math.nan, 0.0]), POISSON), {}),
        ("conflict", "structure", (structure, zero, GAUSSIAN), {}),
        ("wrong-type", "structure", ("ab", zero, POISSON), {}),
        ("wrong-type", "partition", (structure, zero, POISSON), {"partition": "exact"}),
        ("out-of-range", "num_sweeps", (structure, zero, POISSON), {"num_sweeps": 0}),
    ):
        with raises(code, argument):
            GeneralizedRoot(*arguments, **options)


def test_laws_that_cannot_be_normalised():
    psi = torch.tensor([-1.0, -1.0, 1.5])
    with pytest.raises(InputError, match=r"cannot be normalised.*direction") as caught:
        GeneralizedRoot(pairs(2, EXPONENTIAL), psi, EXPONENTIAL)
    assert "0.5" in str(caught.value)
    lazy = GeneralizedRoot(pairs(2, EXPONENTIAL), psi, EXPONENTIAL, validate_args=False)
    assert lazy.normalizability.witness is not None
    for use in (lambda: lazy.log_prob(torch.ones(2)), lambda: lazy.sample(), lambda: lazy.mean):
        with pytest.raises(InputError, match="cannot be normalised"):
            use()
    with pyro.validation_enabled(False):
        silent = GeneralizedRoot(pairs(2, EXPONENTIAL), psi, EXPONENTIAL)
        assert bool(silent.log_prob(torch.ones(4, 2)).isnan().all())
        assert bool(silent.log_pseudo_prob(torch.ones(2)).isnan())
        with pytest.raises(InputError, match="cannot be normalised"):
            silent.sample()
        broken = GeneralizedRoot(pairs(2, EXPONENTIAL), psi * math.nan, EXPONENTIAL)
        assert bool(broken.log_prob(torch.ones(2)).isnan())


def test_beyond_the_budget():
    small = RootAuto(RootEnumeration(max_cells=50))
    with pytest.raises(IntractableError, match="max_cells=50"):
        counts(partition=small).log_prob(torch.ones(2))
    far = (9.0, 9.0, 1.0)
    with pytest.raises(IntractableError, match="cells"):
        counts(far, partition=RootAuto(RootEnumeration(max_cells=2**14))).log_prob(torch.ones(2))
    with pyro.validation_enabled(False):
        with pytest.raises(IntractableError, match="max_cells=50"):
            counts(partition=small).log_prob(torch.ones(2))
        law = counts(far, partition=RootAuto(RootEnumeration(max_cells=2**14)))
        with pytest.warns(ConvergenceWarning, match="a divergence for HMC"):
            assert bool(law.log_prob(torch.ones(2)).isnan())


def test_estimates():
    law = counts(partition=RootAnnealed(num_chains=128, num_temperatures=40, seed=1))
    exact = counts()
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    result = law.log_partition
    assert abs(float(law.log_prob(x) - exact.log_prob(x))) < 5 * float(result.std_error)
    assert not law.sample_is_exact
    assert law.sample((2,)).shape == (2, 2)
    assert bool(((law.mean - exact.mean).abs() < 6 * (exact.variance / 128).sqrt()).all())
    assert law.log_partition is result  # one law, one estimate
    fresh = RootAnnealed(num_chains=128, num_temperatures=40)
    assert float(counts(partition=fresh).log_prob(x)) != float(counts(partition=fresh).log_prob(x))


# Programs


def rows_of(law, number):
    return law.sample((number,)).to(torch.get_default_dtype())


def bayes(structure, rows, scale=0.5, **options):
    """A normal prior on psi and observed counts."""

    def program():
        size = structure.num_terms
        psi = pyro.sample("psi", dist.Normal(torch.zeros(size), scale).to_event(1))
        with pyro.plate("rows", len(rows)):
            pyro.sample("x", GeneralizedRoot(structure, psi, POISSON, **options), obs=rows)

    return program


def nuts(program, draws, warmup=0, **options):
    """Draws by short trees; the chain."""
    mcmc = MCMC(NUTS(program, **options), draws, warmup_steps=warmup, disable_progbar=True)
    mcmc.run()
    return mcmc.get_samples()


SMALL = {"step_size": 0.01, "adapt_step_size": False, "max_tree_depth": 2}


def assert_moves(draws, size):
    assert draws.shape == (4, size)
    assert bool(torch.isfinite(draws).all())
    assert len(draws.unique(dim=0)) > 1


def test_program_with_plates_and_predictive():
    structure = pairs(2, POISSON)

    def program(number):
        psi = pyro.sample("psi", dist.Normal(torch.zeros(3), 0.2).to_event(1))
        with pyro.plate("rows", number):
            return pyro.sample("x", GeneralizedRoot(structure, psi, POISSON))

    drawn = Predictive(program, num_samples=3)(4)
    assert drawn["x"].shape == (3, 4, 2)
    parallel = Predictive(program, num_samples=3, parallel=True)(4)
    assert parallel["x"].shape == (3, 4, 2)
    trace = pyro.poutine.trace(program).get_trace(4)
    trace.compute_log_prob()
    assert trace.nodes["x"]["log_prob"].shape == (4,)


def test_variational_posterior_of_psi():
    law = counts()
    rows = rows_of(law, 400)
    program = bayes(law.structure, rows)
    guide = AutoNormal(program, init_scale=0.05)
    svi = SVI(program, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step() for _ in range(40)]
    assert np.mean(losses[-10:]) < np.mean(losses[:5])
    psi = guide.median()["psi"].double()
    assert bool(((psi - law.psi).abs() < 0.35).all())


def test_nuts_with_exact_log_z():
    law = counts()
    rows = rows_of(law, 100)
    assert_moves(nuts(bayes(law.structure, rows), 4, 4, **SMALL)["psi"], 3)


def test_nuts_refuses_noise_but_takes_a_seed():
    structure, rows = pairs(2, POISSON), torch.ones(5, 2)
    with pytest.raises(ValueError, match=r"without randomness inside Pyro's NUTS|RootAnnealed without a seed"):
        nuts(bayes(structure, rows, partition=QUICK), 1)
    mixed = RootAuto(RootEnumeration(max_cells=4), QUICK)
    with pytest.raises(ValueError, match="without a seed"):
        nuts(bayes(structure, rows, partition=mixed), 1)
    seeded = RootAnnealed(num_chains=32, num_temperatures=5, seed=1)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        assert nuts(bayes(structure, rows, 0.1, partition=seeded), 1, **SMALL)["psi"].shape == (1, 3)
    exact_inside = RootAuto(annealed=QUICK)  # an exact row of the table applies, so there is no noise
    nuts(bayes(structure, rows, 0.1, partition=exact_inside), 1, **SMALL)


def test_nuts_over_psi_with_the_pseudo_posterior():
    """A model of 12 counts, whose log Z nobody needs."""
    domain = domain_of(12, POISSON)
    structure = RootStructure.simplified(domain, list(itertools.pairwise(domain.names)))
    rows = torch.poisson(torch.full((30, 12), 1.0))

    def program():
        psi = pyro.sample("psi", dist.Normal(torch.zeros(structure.num_terms), 0.3).to_event(1))
        law = GeneralizedRoot(structure, psi, POISSON)
        pyro.factor("rows", law.log_pseudo_prob(rows).sum())

    draws = nuts(program, 4, 4, step_size=0.03, adapt_step_size=False, max_tree_depth=3)["psi"]
    assert_moves(draws, structure.num_terms)


def test_nuts_over_a_latent_real_vector():
    law = GeneralizedRoot(pairs(2, EXPONENTIAL), torch.tensor([-1.0, -2.0, 0.5]), EXPONENTIAL)
    assert bool((nuts(lambda: pyro.sample("x", law), 5, 5, max_tree_depth=3)["x"] > 0).all())


def test_mixture_of_a_batch():
    psi = torch.tensor([[-1.0, -1.0, 0.3], [1.0, 1.2, -0.2]], dtype=torch.float64)
    parts = GeneralizedRoot(pairs(2, POISSON), psi, POISSON)
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    mixture = dist.MixtureSameFamily(dist.Categorical(weights), parts)
    x = torch.tensor([[0.0, 1.0], [3.0, 2.0], [5.0, 5.0]], dtype=torch.float64)
    expected = torch.logsumexp(weights.log() + parts.log_prob(x[:, None]), -1)
    assert_close(mixture.log_prob(x), expected, relative=1e-12)
    assert mixture.sample((7,)).shape == (7, 2)
    assert_close(mixture.mean, weights @ parts.mean, relative=1e-12)


def test_mixture_with_an_enumerated_latent_variable():
    psi = torch.tensor([[-1.0, -1.0, 0.3], [1.0, 1.2, -0.2]])
    structure, weights, x = pairs(2, POISSON), torch.tensor([0.3, 0.7]), torch.tensor([[0.0, 1.0], [3.0, 2.0]])

    def program():
        with pyro.plate("rows", len(x)):
            z = pyro.sample("z", dist.Categorical(weights), infer={"enumerate": "parallel"})
            pyro.sample("x", GeneralizedRoot(structure, psi[z], POISSON), obs=x)

    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(program, lambda: None)
    mixture = dist.MixtureSameFamily(dist.Categorical(weights), GeneralizedRoot(structure, psi, POISSON))
    assert_close(-loss, float(mixture.log_prob(x).sum()), relative=1e-5)


def test_from_coefficients():
    coefficients = torch.tensor([-0.5, 0.2, 0.8], dtype=torch.float64)
    law = GeneralizedRoot.from_coefficients(pairs(2, POISSON), coefficients, POISSON, num_sweeps=7)
    assert_close(law.psi, [-0.5, 0.2, 0.4])
    assert_close(law.coefficients, coefficients)
    assert law.family == POISSON
    assert isinstance(law.partition, RootAuto)
