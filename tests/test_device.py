"""Distributions of all families on a device that is not the CPU: every result lies there, and equals that of the CPU.

The device is a pretended one (``other_device``), on which a tensor made on the CPU by mistake raises PyTorch's error.
Where there is CUDA, the same runs there.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from other_device import AWAY, pretend

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, Variable
from pyro_hoim.boltzmann import BoltzmannMachine, MachineStructure, RestrictedBoltzmannMachine
from pyro_hoim.dependency_network import DependencyConditionals, DependencyNetwork, TableConditional
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRoot,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.log_linear import (
    Auto,
    DiaconisYlvisaker,
    Enumeration,
    LogLinearStatistics,
    VariableElimination,
    normal_prior,
    statistics_of,
)

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})
GRAPH = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")], closure=True)
COUNTS = Domain([Variable(name, kind="count") for name in "ab"])
POSITIVE = Domain([Variable(name, kind="positive") for name in "ab"])
REALS = Domain([Variable(name, kind="real") for name in "ab"])


class Draws(NamedTuple):
    """Random states, which compiled code of the CPU draws in another way."""

    states: torch.Tensor


def _values(size, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=size))


def log_linear(device, partition):
    theta = _values((2, GRAPH.num_parameters)).to(device).requires_grad_()
    law = HierarchicalLogLinear(GRAPH, theta, partition=partition)
    x = torch.tensor([[0, 2, 1, 1], [1, 0, 0, 1]], device=device)
    yield law.log_prob(x)
    yield torch.autograd.grad(law.log_prob(x).sum(), theta)[0]
    yield law.log_partition.value
    yield law.log_pseudo_prob(x)
    yield law.eta
    yield law.mean
    yield law.entropy()
    yield law.mode
    yield law.marginal(["a", "b"]).probs
    yield law.variance
    yield Draws(law.sample((7,)))
    given = law.condition({"a": torch.tensor([0, 1], device=device)})
    yield given.log_prob(x[:, 1:])
    yield Draws(given.sample((3,)))
    yield Draws(law.expand((3, 2)).sample())


def log_linear_others(device):
    theta = _values(GRAPH.num_parameters).to(device)
    statistics = LogLinearStatistics(GRAPH, theta, 20)
    counts = statistics_of(torch.tensor([[0, 2, 1, 1], [1, 0, 0, 1]], device=device).repeat(10, 1), GRAPH)
    yield counts
    yield statistics.log_prob(counts.to(theta))
    yield Draws(statistics.sample((3,)))
    yield statistics.mean
    prior = DiaconisYlvisaker.uniform(GRAPH, torch.tensor(3.0, dtype=torch.float64, device=device))
    yield prior.log_prob(theta)
    yield prior.posterior(counts.to(theta), 20).log_prob(theta)
    yield normal_prior(GRAPH, torch.tensor(1.5, dtype=torch.float64, device=device)).log_prob(theta)
    yield torch.distributions.kl_divergence(
        HierarchicalLogLinear(GRAPH, theta), HierarchicalLogLinear(GRAPH, 2 * theta)
    )


def machine(device):
    structure = MachineStructure.restricted(Domain.from_cardinalities([2] * 3), 2)
    theta = _values((2, structure.num_parameters)).to(device).requires_grad_()
    law = BoltzmannMachine(structure, theta)
    x = torch.tensor([0, 1, 1], device=device)
    yield law.log_prob(x)
    yield torch.autograd.grad(law.log_prob(x).sum(), theta)[0]
    yield law.free_energy(x)
    yield law.log_pseudo_prob(x)
    yield law.entropy()
    yield Draws(law.sample((5,)))
    yield law.probs
    yield law.condition({"x0": 1}).log_prob(x[1:])
    weights = _values((3, 2)).to(device)
    plain = RestrictedBoltzmannMachine(Domain.from_cardinalities([2] * 3), weights[:, 0], weights[0], weights)
    yield plain.log_prob(x)
    yield plain.hidden_probs(x)
    yield Draws(plain.sample((5,)))


def roots(device, family, domain, values):
    structure = RootStructure.simplified(domain, [("a", "b")])
    psi = torch.tensor([[-1.0, -1.2, -0.3], [-1.5, -1.0, 0.2]], dtype=torch.float64, device=device).requires_grad_()
    law = GeneralizedRoot(structure, psi, family)
    x = torch.tensor(values, dtype=torch.float64, device=device)
    yield law.log_prob(x)
    yield torch.autograd.grad(law.log_prob(x).sum(), psi)[0]
    yield law.log_pseudo_prob(x)
    yield law.mean
    yield law.expectations
    yield Draws(law.sample((5,)))
    given = law.condition({"a": x[0]})
    yield given.log_prob(x[1:])
    yield Draws(given.sample())


def network(device):
    tables = {"a": ("b",), "b": ("a", "c"), "c": ("b",)}
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
    cards = dict(zip(domain.names, domain.cardinalities, strict=True))
    nodes = [
        TableConditional(domain, name, parents, _values([*(cards[p] for p in parents), cards[name]], k).softmax(-1))
        for k, (name, parents) in enumerate(tables.items())
    ]
    conditionals = DependencyConditionals(nodes).to(device=device)
    for sampler in ("exact", "pseudo-gibbs"):
        law = DependencyNetwork(conditionals, sampler=sampler, num_sweeps=20)
        x = torch.tensor([[0, 2, 1], [1, 0, 0]], device=device)
        yield law.log_prob(x)
        yield law.log_pseudo_prob(x)
        yield law.mean
        yield law.mode
        yield law.entropy()
        yield Draws(law.sample((5,)))
        yield law.condition({"b": 1}).probs


CASES = {
    "exact by choice": lambda device: log_linear(device, Auto()),
    "enumeration": lambda device: log_linear(device, Enumeration()),
    "elimination": lambda device: log_linear(device, VariableElimination()),
    "statistics and priors": log_linear_others,
    "machine": machine,
    "poisson": lambda device: roots(device, PoissonFamily(), COUNTS, [1.0, 2.0]),
    "truncated poisson": lambda device: roots(device, TruncatedPoissonFamily(5), COUNTS, [1.0, 2.0]),
    "exponential": lambda device: roots(device, ExponentialFamily(), POSITIVE, [0.4, 1.5]),
    "gaussian": lambda device: roots(device, GaussianFamily(), REALS, [0.4, -1.5]),
    "network": network,
}


def _results(case, device):
    torch.manual_seed(3)
    return list(CASES[case](device))


def _check(case, device, wanted):
    """Results of a case lie on the device; all but draws equal those of the CPU."""
    found = _results(case, device)
    draws = [part.states for part in found if isinstance(part, Draws)]
    found = [part for part in found if not isinstance(part, Draws)]
    assert not [k for k, part in enumerate((*found, *draws)) if part.device.type != device.type]
    wanted = [part.detach() for part in wanted if not isinstance(part, Draws)]
    for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
        values = one.detach().cpu()
        message = f"result {k} differs by {float((values - other).abs().max())}"
        torch.testing.assert_close(values, other, rtol=1e-9, atol=1e-9, msg=message)


@pytest.mark.parametrize("case", CASES)
def test_results_lie_on_the_device_and_equal_those_of_the_cpu(case):
    wanted = _results(case, torch.device("cpu"))
    with pretend():
        _check(case, AWAY, wanted)


@pytest.mark.cuda
@pytest.mark.parametrize("case", CASES)
def test_results_of_cuda_equal_those_of_the_cpu(case):
    _check(case, torch.device("cuda", 0), _results(case, torch.device("cpu")))


def test_control_a_tensor_made_on_the_cpu_is_refused():
    with pretend(), pytest.raises(RuntimeError, match="same device"):
        _values(3).to(AWAY) + torch.zeros(3)
