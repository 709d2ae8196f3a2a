"""Programs under ``torch.jit.trace``: traced functions give what the program gives at all parameters, or are refused.

The oracle is the program itself without tracing, at parameters other than those of the trace.
"""

import math
from collections.abc import Callable

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC, NUTS, SVI, JitTrace_ELBO
from pyro.infer.mcmc.util import initialize_model

from pyro_hoim import Domain, InputError, InteractionHypergraph, Variable
from pyro_hoim.dependency_network import DependencyConditionals, DependencyNetwork, TableConditional
from pyro_hoim.generalized_root import ExponentialFamily, GeneralizedRoot, PoissonFamily, RootStructure
from pyro_hoim.log_linear import (
    Auto,
    DiaconisYlvisaker,
    Enumeration,
    HierarchicalLogLinear,
    LogLinearStatistics,
    MatrixEnumeration,
    VariableElimination,
    statistics_of,
)
from pyro_hoim.log_linear.laws.natural_parameters import solve_natural_parameters

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
EDGES = InteractionHypergraph.from_order(DOMAIN, 2)
TREE = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c")], closure=True)
ROWS = torch.tensor([[0, 1, 1], [1, 2, 0]])
COUNTS = statistics_of(ROWS, EDGES)
PAIR = Domain.from_cardinalities({"a": 2, "b": 2})
BACKENDS = {
    "auto": Auto(),
    "enumeration": Enumeration(),
    "matrix": MatrixEnumeration(),
    "elimination": VariableElimination(),
    "elimination in log space": VariableElimination(space="log"),
}
NAN, INF = math.nan, math.inf

Function = Callable[[torch.Tensor], torch.Tensor]


def numbers(size, seed, scale=0.5):
    return scale * torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_traced(function, start, others):
    """The function traced at ``start``, with and without gradients, agrees with itself at ``others``."""
    for needs_grad in (False, True):
        traced = torch.jit.trace(function, (start.clone().requires_grad_(needs_grad),), check_trace=False)
        for other in others:
            plain, compiled = other.clone().requires_grad_(), other.clone().requires_grad_()
            expected, found = function(plain), traced(compiled)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12, equal_nan=True)
            if needs_grad and expected.isfinite().all():
                for result, point in ((expected, plain), (found, compiled)):
                    result.sum().backward()
                    assert point.grad is not None
                torch.testing.assert_close(compiled.grad, plain.grad, rtol=1e-10, atol=1e-12)


def assert_refused(function, start):
    for needs_grad in (False, True):
        with pytest.raises(InputError, match="jit_compile=False"):
            torch.jit.trace(function, (start.clone().requires_grad_(needs_grad),), check_trace=False)


# What is traced


def log_linear(name, backend):
    def law(theta):
        return HierarchicalLogLinear(EDGES, theta, partition=BACKENDS[backend])

    return {
        "log_prob": lambda t: law(t).log_prob(ROWS),
        "statistics": lambda t: LogLinearStatistics(EDGES, t, 2, partition=BACKENDS[backend]).log_prob(COUNTS),
        "eta": lambda t: law(t).eta,
        "entropy": lambda t: law(t).entropy(),
        "probs": lambda t: law(t).probs,
        "marginal": lambda t: law(t).marginal(["a", "c"]).log_prob(ROWS[:, [0, 2]]),
        "condition": lambda t: law(t).condition({"a": 1}).log_prob(ROWS[:, 1:]),
        "log_pseudo_prob": lambda t: law(t).log_pseudo_prob(ROWS),
    }[name]


QUANTITIES = ["log_prob", "statistics", "eta", "entropy", "probs", "marginal", "condition", "log_pseudo_prob"]


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, backend) for name in QUANTITIES for backend in list(BACKENDS)[:4]]
    + [("log_prob", "elimination in log space")],
)
def test_log_linear_quantities_follow_theta(name, backend):
    size = EDGES.num_parameters
    assert_traced(log_linear(name, backend), numbers(size, 1), [numbers(size, 2), numbers(size, 3, 2.0)])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["log_prob", "statistics"])
def test_a_theta_that_diverges_is_nan_and_others_are_not(name, backend):
    """Without validation, as inside Pyro's MCMC; from a diverging theta too, which the trace must not keep."""
    good = numbers(EDGES.num_parameters, 1)
    bad = [torch.where(torch.arange(len(good)) == 2, value, good) for value in (NAN, INF, -INF, 1e200)]
    with pyro.validation_enabled(False):
        assert_traced(log_linear(name, backend), good, bad)
        assert_traced(log_linear(name, backend), bad[0], [*bad, good])
        assert log_linear(name, backend)(bad[3]).isnan().all()


def test_rows_of_a_batch_diverge_one_by_one():
    thetas = torch.stack([numbers(EDGES.num_parameters, 1), torch.full((EDGES.num_parameters,), NAN).double()])
    with pyro.validation_enabled(False):
        traced = torch.jit.trace(lambda t: HierarchicalLogLinear(EDGES, t).log_prob(ROWS), (thetas.flip(0),))
    found = traced(thetas)
    assert found[0].isfinite() and found[1].isnan()


@pytest.mark.parametrize("edges", [EDGES, TREE], ids=["cycle", "tree"])
def test_the_conjugate_prior_follows_its_value_and_arguments(edges):
    size = edges.num_parameters
    prior = DiaconisYlvisaker.uniform(edges, 2.0, dtype=torch.float64)
    value = numbers(size, 1)
    bad = torch.where(torch.arange(size) == 1, INF, value)
    with pyro.validation_enabled(False):
        assert_traced(prior.log_prob, value, [numbers(size, 2), bad])
        assert_traced(prior.log_prob, bad, [value, bad])
        both = torch.stack([value, bad])
        assert prior.log_prob(both).isnan().tolist() == [False, True]
    number = torch.tensor([1.0, 2.5, 9.0]).double()
    assert_traced(lambda n: DiaconisYlvisaker.uniform(edges, n).log_prob(value), number[0], list(number[1:]))
    means = [HierarchicalLogLinear(edges, numbers(size, seed)).eta for seed in (1, 2)]
    assert_traced(lambda s: DiaconisYlvisaker(edges, s, 2.0).log_prob(value), means[0], means[1:])


def network(table):
    first, second = torch.stack([table, 1 - table], -1), torch.stack([1 - table, table], -1)
    nodes = [TableConditional(PAIR, "a", ["b"], first), TableConditional(PAIR, "b", ["a"], second)]
    return DependencyNetwork(DependencyConditionals(nodes))


def test_the_pseudo_likelihood_of_a_network_follows_its_tables():
    rows = torch.tensor([[0, 1], [1, 1]])
    tables = torch.tensor([[0.3, 0.6], [0.8, 0.1]]).double()
    assert_traced(lambda t: network(t).log_pseudo_prob(rows), tables[0], [tables[1]])


def test_control_work_in_numpy_is_frozen():
    """What the oracle must notice: log Z by NumPy stays that of the first theta."""

    def log_prob(theta):
        return theta[0] - torch.from_numpy(np.logaddexp.reduce(theta.detach().numpy(), keepdims=True))[0]

    with pytest.raises(AssertionError):
        assert_traced(log_prob, numbers(3, 1), [numbers(3, 2)])


# What is refused


COUNT_PAIR = Domain([Variable(name, kind="count") for name in "ab"])
REAL_PAIR = Domain([Variable(name, kind=ExponentialFamily().kind) for name in "ab"])
ROOT_ROWS = torch.tensor([[0.0, 1.0], [2.0, 3.0]])


def root(psi):
    return GeneralizedRoot(RootStructure.simplified(COUNT_PAIR, [("a", "b")]), psi, PoissonFamily())


@pytest.mark.parametrize("is_validated", [True, False])
@pytest.mark.parametrize(
    "use",
    [
        lambda law: law.log_prob(ROOT_ROWS),
        lambda law: law.log_pseudo_prob(ROOT_ROWS),
        lambda law: law.mean,
        lambda law: law.expectations,
        lambda law: law.sample(),
        lambda law: law.condition({"a": 1}).energy(ROOT_ROWS[:, 1:]),
    ],
    ids=["log_prob", "log_pseudo_prob", "mean", "expectations", "sample", "condition"],
)
def test_root_models_are_refused(use, is_validated):
    with pyro.validation_enabled(is_validated):
        assert_refused(lambda psi: use(root(psi)), torch.tensor([0.1, -0.2, 0.1]).double())


def test_the_energy_of_a_root_model_and_a_model_that_is_a_constant_are_traced():
    psi = torch.tensor([0.1, -0.2, 0.1]).double()
    assert_traced(lambda p: root(p).energy(ROOT_ROWS), psi, [2 * psi])
    known = root(psi)
    assert_traced(lambda x: x * known.log_pseudo_prob(ROOT_ROWS), psi[:2], [psi[1:]])


@pytest.mark.parametrize(
    ("use", "start"),
    [
        (lambda t: HierarchicalLogLinear(EDGES, t).sample(), numbers(EDGES.num_parameters, 1)),
        (lambda t: LogLinearStatistics(EDGES, t, 2).sample(), numbers(EDGES.num_parameters, 1)),
        (lambda t: network(t).sample(), torch.tensor([0.3, 0.6])),
        (lambda t: network(t).mean, torch.tensor([0.3, 0.6])),
        (lambda s: solve_natural_parameters(EDGES, s, Auto()), HierarchicalLogLinear(EDGES, numbers(9, 1)).eta),
    ],
    ids=["rows", "counts", "states of a network", "mean of a network", "mode"],
)
def test_draws_and_iterated_solutions_are_refused(use, start):
    assert_refused(use, start)


def test_the_law_of_a_network_is_refused_unless_it_was_found_before():
    table, rows = torch.tensor([0.3, 0.6]).double(), torch.tensor([[0, 1], [1, 1]])
    with torch.no_grad(), pytest.raises(InputError, match="stationary_law before"):
        torch.jit.trace(lambda t: network(t).log_prob(rows), (table,), check_trace=False)
    known = network(table)
    expected = known.log_prob(rows)
    torch.testing.assert_close(torch.jit.trace(lambda x: x * known.log_prob(rows), (table,))(table), table * expected)


# Inside Pyro


@pytest.mark.parametrize("backend", ["auto", "elimination"])
def test_the_compiled_potential_of_nuts_is_the_potential(backend):
    def program():
        n0 = pyro.sample("n0", dist.Gamma(2.0, torch.tensor(1.0).double()))
        theta = pyro.sample("theta", DiaconisYlvisaker.uniform(EDGES, n0))
        pyro.sample("t", LogLinearStatistics(EDGES, theta, 2, partition=BACKENDS[backend]), obs=COUNTS)

    size = EDGES.num_parameters
    points = [{"theta": numbers(size, seed), "n0": numbers(1, seed)[0]} for seed in (1, 2)]
    points.append({"theta": torch.full((size,), 1e200, dtype=torch.float64), "n0": numbers(1, 3)[0]})
    with pyro.validation_enabled(False):
        plain, compiled = (
            initialize_model(program, jit_compile=flag, skip_jit_warnings=True)[1] for flag in (False, True)
        )
        for point in points:
            torch.testing.assert_close(compiled(point), plain(point), rtol=1e-10, atol=1e-10, equal_nan=True)
        assert compiled(points[2]).isnan()


def test_nuts_refuses_to_compile_a_pseudo_posterior_with_draws_without_a_law():
    """Before, 2 % of the draws were psi without a law, and none was a divergence."""
    structure = RootStructure.simplified(REAL_PAIR, [("a", "b")])

    def program():
        psi = pyro.sample("psi", dist.Normal(torch.tensor([-1.0, -1.0, 0.3]), 0.5).to_event(1))
        pyro.factor("rows", GeneralizedRoot(structure, psi, ExponentialFamily()).log_pseudo_prob(ROOT_ROWS).sum())

    kernel = NUTS(program, jit_compile=True, ignore_jit_warnings=True)
    with pytest.raises(InputError, match="jit_compile=False"):
        MCMC(kernel, 2, warmup_steps=0, disable_progbar=True).run()


def test_a_compiled_elbo_refuses_a_guide_that_draws_states():
    pyro.clear_param_store()

    def model():
        pyro.sample("x", HierarchicalLogLinear(EDGES, torch.zeros(EDGES.num_parameters)))

    def guide():
        theta = pyro.param("theta", lambda: torch.zeros(EDGES.num_parameters))
        pyro.sample("x", HierarchicalLogLinear(EDGES, theta))

    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), JitTrace_ELBO(ignore_jit_warnings=True))
    with pytest.raises(InputError, match="Trace_ELBO"):
        svi.step()
