"""Tensors of other types, shapes and contents for distributions and their log-probabilities."""

import functools

import numpy as np
import torch
from harness import Reader

import pyro_hoim as hoim
from pyro_hoim.generalized_root import PoissonFamily

DOMAIN = hoim.Domain.from_cardinalities({"a": 2, "b": 3})
BINARY = hoim.Domain.from_cardinalities({"a": 2, "b": 2})
GRAPH = hoim.InteractionHypergraph.saturated(DOMAIN)
COUNTS = hoim.Domain([hoim.Variable(name, kind="count") for name in "ab"])
ROOTS = hoim.RootStructure.complete(COUNTS, 2)
ETA = torch.full((5,), 1 / 6, dtype=torch.float64)

MACHINE = hoim.RestrictedBoltzmannMachine
GOOD = {
    "theta": torch.linspace(-1, 1, 5, dtype=torch.float64),
    "psi": -torch.linspace(0.1, 1, ROOTS.num_terms, dtype=torch.float64),
    "eta": hoim.HierarchicalLogLinear(GRAPH, torch.zeros(5, dtype=torch.float64)).eta,
    "rows": torch.tensor([[0, 1], [1, 2]]),
    "codes": torch.tensor([[0, 1], [1, 0]]),
    "counts": torch.tensor([[0.0, 1.0], [3.0, 2.0]], dtype=torch.float64),
    "bias": torch.tensor([0.1, -0.2]),
    "weights": torch.tensor([[0.1, 0.3], [-0.5, 0.2]]),
    "total": torch.tensor(12.0, dtype=torch.float64),
    "statistics": torch.tensor([3.0, 4.0, 2.0, 1.0, 2.0], dtype=torch.float64),
}
OTHERS = [None, "x", [], [[0, 1]], 3, -1, float("nan"), True, {}, np.zeros(5)]
OTHERS += [torch.zeros(0), torch.zeros(2, 3, 4), torch.zeros(5, dtype=torch.complex64)]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int64, torch.uint8, torch.bool]


def odd(rng, tensor):
    """A tensor of another type, shape or content, or none at all."""
    how = rng.randrange(9)
    if how == 0:
        return rng.choice(OTHERS)
    if how == 1:
        return tensor.to(rng.choice(DTYPES))
    if how == 2:
        return rng.choice(
            [
                tensor[None],
                tensor.reshape(-1),
                tensor.expand(3, *tensor.shape),
                tensor[None][:0],
                tensor.reshape(-1)[:1],
            ]
        )
    if how == 3:
        return torch.cat([tensor, tensor], -1) if tensor.ndim else tensor.repeat(2)
    if how == 4:
        return rng.choice(
            [tensor.to("meta"), tensor.to_sparse(), tensor.numpy(), tensor.tolist(), tensor.double().requires_grad_()]
        )
    if how == 5:
        return tensor.transpose(0, -1)[..., :1] if tensor.ndim else tensor.reshape(1, 1, 1)
    changed = tensor.clone()
    values = (
        [-1, 2, 3, 99, 2**40]
        if not tensor.is_floating_point()
        else [float("nan"), float("inf"), -float("inf"), 1e308, -1.0, 0.5, 1e5]
    )
    changed.reshape(-1)[rng.randrange(changed.numel())] = torch.tensor(rng.choice(values), dtype=torch.float64).to(
        tensor.dtype
    )
    return changed


LAWS = {
    "log-linear": (("theta",), lambda theta: hoim.HierarchicalLogLinear(GRAPH, theta), "rows"),
    "log-linear, corner": (("theta",), lambda theta: hoim.HierarchicalLogLinear(GRAPH, theta, coding="corner"), "rows"),
    "statistics": (("theta", "total"), lambda *parts: hoim.LogLinearStatistics(GRAPH, *parts), "statistics"),
    "conjugate": (("eta", "total"), lambda *parts: hoim.DiaconisYlvisaker(GRAPH, *parts), "theta"),
    "root": (("psi",), lambda psi: hoim.GeneralizedRoot(ROOTS, psi, PoissonFamily()), "counts"),
    "restricted machine": (
        ("bias", "bias", "weights"),
        functools.partial(hoim.RestrictedBoltzmannMachine, BINARY),
        "codes",
    ),
    "network": ((), lambda: hoim.DependencyNetwork(_network()), "rows"),
}


@functools.cache
def _network():
    rows = hoim.Observations.from_table(DOMAIN, [[9, 3, 1], [2, 8, 5]])
    return hoim.learn_network(rows).conditionals


def draw(rng):
    name = rng.choice(list(LAWS))
    parts = [GOOD[part] for part in LAWS[name][0]]
    value = GOOD[LAWS[name][2]]
    if parts and rng.random() < 0.6:
        place = rng.randrange(len(parts))
        parts[place] = odd(rng, parts[place])
    else:
        value = odd(rng, value)
    return name, parts, value


def read(case, folder):
    """A log-probability is a number for every row, none above zero for rows of labels, and none is NaN."""
    name, parts, value = case
    law = LAWS[name][1](*parts)
    found = law.log_prob(value)
    assert not bool(found.isnan().any())
    if name in ("log-linear", "log-linear, corner", "network", "restricted machine"):
        assert bool((found <= 1e-6).all())
        rows = law.sample((2,))
        assert bool(torch.isfinite(law.log_prob(rows)).all())


READERS = [Reader("tensors of distributions", read, draw)]
