"""StateIndexReparam: the site of the index does all that the site of the state does, and what Pyro cannot do with it.

The oracle is own enumeration: the law's table times the normal density of the data, summed over the states in NumPy.
"""

import contextlib
import itertools
import warnings
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate, infer_discrete
from pyro.infer.mcmc.util import initialize_model
from scipy.stats import norm

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, Variable
from pyro_hoim.boltzmann import BoltzmannMachine, MachineStructure
from pyro_hoim.dependency_network import DependencyConditionals, DependencyNetwork, TableConditional
from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.generalized_root import GeneralizedRoot, RootStructure, TruncatedPoissonFamily
from pyro_hoim.inference import StateIndexReparam
from pyro_hoim.testing import assert_close, assert_exact_law, count_states

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3})
STATES = np.array(list(itertools.product(range(2), range(3))))
WEIGHTS = torch.tensor([1.0, -0.7], dtype=torch.float64)
DATA = torch.tensor([[1.2, -0.4, 0.3], [2.5, 0.1, -1.0]], dtype=torch.float64)
PLATES = {"no plate": (), "plate of 1": (1,), "plate of 2": (2,), "nested": (2, 3)}
REPARAM = {"x": StateIndexReparam()}


@pytest.fixture(autouse=True)
def fresh_pyro():
    pyro.clear_param_store()
    pyro.set_rng_seed(3)
    with pyro.validation_enabled(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found vars in model but not guide", UserWarning)
        yield


def law_of(*batch):
    graph = InteractionHypergraph.saturated(DOMAIN)
    theta = torch.linspace(-0.5, 0.6, graph.num_parameters, dtype=torch.float64)
    return HierarchicalLogLinear(graph, theta + torch.arange(np.prod(batch, dtype=int)).reshape(*batch, 1) / 4)


class Program:
    """States in plates, seen through one number (or two, as one event) with normal noise about a mean mu."""

    def __init__(self, plates, law=None, infer=None, seen=1):
        self.plates, self.law, self.infer, self.seen = plates, law_of() if law is None else law, infer or {}, seen
        self.data = DATA.reshape(-1)[: int(np.prod(plates, dtype=int))].reshape(plates)

    @contextlib.contextmanager
    def in_plates(self):
        with contextlib.ExitStack() as plates:
            for dim, size in zip(range(-len(self.plates), 0), self.plates, strict=True):
                plates.enter_context(pyro.plate(f"plate{dim}", size, dim=dim))
            yield

    def __call__(self, mu=None):
        if mu is None:
            mu = pyro.sample("mu", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        with self.in_plates():
            x = pyro.sample("x", self.law, infer=dict(self.infer))
            loc = (x.double() @ WEIGHTS).unsqueeze(-1).expand(*x.shape[:-1], self.seen) + mu
            data = self.data.unsqueeze(-1).expand(*self.plates, self.seen)
            pyro.sample("y", dist.Normal(loc, 1.0).to_event(1), obs=data)
        return x

    def log_joint(self, mu=0.0):
        """Log density of every state and of the data (*plates, states), from the law's table."""
        table = self.law.log_prob_table.detach().numpy().reshape(*self.law.batch_shape, -1)
        log_density = norm.logpdf(self.data.numpy()[..., None], STATES @ WEIGHTS.numpy() + mu) * self.seen
        return table + log_density


def log_sum(values):
    return np.logaddexp.reduce(values, axis=-1)


def loss(model, *arguments):
    elbo = TraceEnum_ELBO(max_plate_nesting=2, strict_enumeration_warning=False)
    return float(elbo.loss(model, lambda *_: None, *arguments))


CASES = [(name, batch, seen) for name in PLATES for batch, seen in ((False, 1), (True, 2))]


@pytest.mark.parametrize(("plates", "has_batch", "seen"), CASES)
def test_an_enumerated_site_is_summed_out_and_drawn_back(plates, has_batch, seen):
    sizes = PLATES[plates]
    program = Program(sizes, law_of(*sizes) if has_batch else None, {"enumerate": "parallel"}, seen)
    model, expected = poutine.reparam(program, REPARAM), program.log_joint()
    assert_close(loss(model, 0.0), -log_sum(expected).sum())
    posterior = np.exp(expected - log_sum(expected)[..., None])
    if 1 not in sizes:  # where Pyro 1.9.2 ends in a KeyError, for any site
        found = TraceEnum_ELBO(max_plate_nesting=2).compute_marginals(model, lambda _: None, 0.0)["x_index"]
        assert_close(found.probs, posterior)
    drawn = infer_discrete(model, first_available_dim=-3, temperature=0)(0.0)
    assert torch.equal(drawn, torch.from_numpy(STATES)[expected.argmax(-1)])
    potential = initialize_model(program, max_plate_nesting=2)[1]
    for mu in (-0.3, 0.8):
        log_density = log_sum(program.log_joint(mu)).sum() + norm.logpdf(mu)
        assert_close(potential({"mu": torch.tensor(mu, dtype=torch.float64)}), -log_density)
    with pytest.raises(ValueError, match="cannot handle discrete sample site 'x'"):  # Pyro's, before it reparametrises
        initialize_model(model, max_plate_nesting=2)


@pytest.mark.parametrize("plates", PLATES)
def test_a_site_that_is_not_enumerated_is_drawn(plates):
    program = Program(PLATES[plates])
    model = poutine.reparam(program, REPARAM)
    pyro.set_rng_seed(5)
    found = loss(model, 0.0)
    pyro.set_rng_seed(5)
    states = model(0.0)
    index = (states[..., 0] * 3 + states[..., 1]).numpy()
    assert_close(found, -np.take_along_axis(program.log_joint(), index[..., None], -1).sum())
    with pytest.warns(UserWarning, match="no sample sites configured for enumeration"):
        infer_discrete(model, first_available_dim=-3)(0.0)
    for enumerated in (poutine.reparam(config_enumerate(program), REPARAM), config_enumerate(model)):
        assert_close(loss(enumerated, 0.0), -log_sum(program.log_joint()).sum())


@pytest.mark.parametrize("plates", PLATES)
@pytest.mark.parametrize("enumerate_", ["parallel", "sequential"])
def test_a_guide_that_enumerates(plates, enumerate_):
    """The bound is the expectation under the law of the guide, which Pyro takes exactly by either way."""
    program = Program(PLATES[plates])
    log_q = law_of(*program.plates).log_prob_table.reshape(*program.plates, 6)

    def guide():
        with program.in_plates():
            pyro.sample("x_index", dist.Categorical(logits=log_q), infer={"enumerate": enumerate_})

    expected = (log_q.exp().numpy() * (log_q.numpy() - program.log_joint())).sum()
    model = partial(poutine.reparam(program, REPARAM), 0.0)
    assert_close(TraceEnum_ELBO(max_plate_nesting=2).loss(model, guide), expected)


def test_draws_follow_the_posterior_beside_another_enumerated_site():
    def model(rows):
        with pyro.plate("rows", rows):
            z = pyro.sample("z", dist.Categorical(torch.full((2,), 0.5).double()), infer={"enumerate": "parallel"})
            x = pyro.sample("x", law_of(), infer={"enumerate": "parallel"})
            loc = x.double() @ WEIGHTS + z
            pyro.sample("y", dist.Normal(loc, 1.0), obs=torch.full((rows,), 2.0, dtype=torch.float64))
        return x

    table = law_of().log_prob_table.numpy().reshape(-1)
    density = log_sum(np.stack([norm.logpdf(2.0, STATES @ WEIGHTS.numpy() + z) for z in (0, 1)], -1))
    posterior = np.exp(table + density - log_sum(table + density))
    drawn = infer_discrete(poutine.reparam(model, REPARAM), first_available_dim=-2)(4000)
    assert_exact_law(count_states(drawn, (2, 3)), posterior)
    with pytest.raises(AssertionError):  # the control: without its options the site is drawn from the law
        assert_exact_law(count_states(drawn, (2, 3)), np.exp(table))


@pytest.mark.parametrize("is_inside", [True, False])
def test_states_of_a_markov_chain(is_inside):
    """Every path of three steps is listed; a state shifts theta of the next by a number of its own."""
    shift, start = torch.tensor([0.9, -0.6, 0.4, 0.1, -0.3], dtype=torch.float64), torch.zeros(2, 2, dtype=torch.long)

    def law_after(state):
        theta = law_of().theta + (state.double() @ WEIGHTS).unsqueeze(-1) * shift
        return HierarchicalLogLinear(law_of().hypergraph, theta)

    def model():
        state, path = start, []
        with pyro.plate("rows", 2):
            for t in pyro.markov(range(3)):
                with contextlib.nullcontext() if is_inside else poutine.reparam(config={f"x{t}": StateIndexReparam()}):
                    state = pyro.sample(f"x{t}", law_after(state), infer={"enumerate": "parallel"})
                pyro.sample(f"y{t}", dist.Normal(state.double() @ WEIGHTS, 1.0), obs=DATA[:, t])
                path.append(state)
        return torch.stack(torch.broadcast_tensors(*path), -2)

    paths = torch.from_numpy(STATES)[torch.tensor(list(itertools.product(range(6), repeat=3)))]
    before = torch.cat([torch.zeros_like(paths[:, :1]), paths[:, :-1]], 1)
    prior = law_after(before).log_prob(paths).sum(-1).numpy()
    expected = prior + norm.logpdf(DATA[:, None].numpy(), (paths.double() @ WEIGHTS).numpy()).sum(-1)
    names = {f"x{t}": StateIndexReparam() for t in range(3)}
    program = poutine.reparam(model, names) if is_inside else model
    assert_close(loss(program), -log_sum(expected).sum())
    drawn = infer_discrete(program, first_available_dim=-2, temperature=0)()
    assert torch.equal(drawn, paths[expected.argmax(-1)])


def _mask(x):
    return poutine.mask(x, mask=torch.tensor([True, False]))


OBSERVED = torch.tensor([[1, 2], [0, 1]])
SITES = {
    "plain": lambda obs: _plated(law_of(), obs),
    "masked": lambda obs: _mask(_plated)(law_of(), obs),
    "scaled": lambda obs: poutine.scale(_plated, 2.5)(law_of(), obs),
    "masked law": lambda obs: _plated(law_of().mask(torch.tensor([False, True])), obs),
}


def _plated(law, obs):
    with pyro.plate("rows", 2):
        x = pyro.sample("x", law, obs=obs, infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(x.double() @ WEIGHTS, 1.0), obs=DATA[:, 0])
    return x


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("obs", [None, OBSERVED], ids=["latent", "observed"])
def test_masks_scales_and_observations_are_those_of_the_plain_site(site, obs):
    program = SITES[site]
    assert_close(loss(poutine.reparam(program, REPARAM), obs), loss(program, obs))
    if obs is not None:
        total = poutine.trace(program).get_trace(obs).log_prob_sum()
        assert_close(poutine.trace(poutine.reparam(program, REPARAM)).get_trace(obs).log_prob_sum(), total)


def test_rows_of_one_event_and_values_outside_the_support():
    def program(obs):
        return pyro.sample("x", law_of(2).to_event(1), obs=obs)

    changed = poutine.reparam(program, REPARAM)
    trace = poutine.trace(changed).get_trace(OBSERVED)
    assert_close(trace.log_prob_sum(), law_of(2).log_prob(OBSERVED).sum())
    assert poutine.trace(changed).get_trace(None).nodes["x"]["value"].shape == (2, 2)
    with pytest.raises(InputError, match="value"):  # 0, 3 has the index of 1, 0
        poutine.trace(changed).get_trace(torch.tensor([[0, 3], [0, 0]]))


def _machine():
    structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
    return BoltzmannMachine(structure, torch.tensor([0.2, -0.4, 0.1, 1.0, -1.5], dtype=torch.float64))


def _roots():
    domain = Domain([Variable(name, kind="count") for name in "ab"])
    psi = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    return GeneralizedRoot(RootStructure.simplified(domain, [("a", "b")]), psi, TruncatedPoissonFamily(2))


def _network():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    table = torch.tensor([[0.4, 0.6], [0.7, 0.3]], dtype=torch.float64)
    nodes = [TableConditional(domain, "a", ["b"], table), TableConditional(domain, "b", ["a"], table)]
    return DependencyNetwork(DependencyConditionals(nodes))


@pytest.mark.parametrize("make", [law_of, _machine, _roots, _network])
def test_every_law_with_states(make):
    law = make()
    states = law.enumerate_support()
    density = norm.logpdf(DATA[:, :1].numpy(), (states.double() @ WEIGHTS).numpy())
    expected = law.log_prob(states).numpy() + density
    model = poutine.reparam(_plated, REPARAM)
    assert_close(loss(model, law, None), -log_sum(expected).sum())
    found = TraceEnum_ELBO(max_plate_nesting=1).compute_marginals(model, lambda *_: None, law, None)["x_index"]
    assert_close(found.probs, np.exp(expected - log_sum(expected)[:, None]))
    drawn = infer_discrete(model, first_available_dim=-2, temperature=0)(law, None)
    assert torch.equal(drawn, states[expected.argmax(-1)])
    with pytest.raises(InputError, match="StateIndexReparam"):
        TraceEnum_ELBO(max_plate_nesting=1).compute_marginals(_plated, lambda *_: None, law, None)
    with pytest.raises(InputTypeError, match="received Categorical"):
        loss(model, dist.Categorical(torch.ones(2)), None)
