"""Batches of tables in dependency networks: equal to one network at a time; what needs one network says so."""

import itertools

import pytest
import torch

from pyro_hoim.core.law import Law
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    DependencyNetwork,
    LeafConditional,
    NetworkFile,
    PseudoGibbsChains,
    TableConditional,
    check_ergodic,
    fc_limit,
    stationary_law,
)
from pyro_hoim.errors import InputError
from pyro_hoim.schema import Domain
from pyro_hoim.testing import assert_close, raises

DOMAIN = Domain.from_labels({"a": "xy", "b": "uvw", "c": "pq"})
STATES = torch.tensor(list(itertools.product(range(2), range(3), range(2))))


def normalised(values):
    return values / values.sum(-1, keepdim=True)


def tables(dtype=torch.float64):
    """Batches (2, 1), (3,) and none of the tables of a given b, c; of b given a; and of the leaves of c."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (2, 1, 3, 2, 2), "b": (3, 2, 3), "c": (2, 2)}
    return {n: normalised(torch.rand(s, generator=generator, dtype=dtype) + 0.1) for n, s in shapes.items()}


def network(found):
    of_c = LeafConditional(DecisionGraph(DOMAIN, "c").split(0, "a"), found["c"])
    read = {"a": ["b", "c"], "b": ["a"]}
    return DependencyConditionals([of_c, *(TableConditional(DOMAIN, n, read[n], found[n]) for n in read)])


def element(found, i, k):
    return network({"a": found["a"][i, 0], "b": found["b"][k], "c": found["c"]})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pseudo_likelihoods_are_those_of_every_element(dtype):
    found = tables(dtype)
    law = DependencyNetwork(network(found))
    assert law.batch_shape == network(found).batch_shape == (2, 3)
    assert DependencyNetwork.infer_shapes(conditionals=network(found)) == ((2, 3), (3,))
    rows = STATES[:, None, None]
    values = law.log_pseudo_prob(rows)
    assert values.shape == (12, 2, 3) and values.dtype == dtype
    conditionals = law.conditionals.node("a").log_probs(rows)
    for i, k in itertools.product(range(2), range(3)):
        one = element(found, i, k)
        assert_close(values[:, i, k], one.log_pseudo_prob(STATES), absolute=1e-6 if dtype == torch.float32 else 1e-12)
        assert torch.equal(conditionals[:, i, 0], one.node("a").log_probs(STATES))
    assert float((values[:, 0] - values[:, 1]).abs().max()) > 0.01  # the control: elements differ
    assert torch.equal(law.expand((4, 2, 3)).log_pseudo_prob(rows[:, None]), values[:, None].expand(12, 4, 2, 3))


def test_gradients_reach_every_table():
    found = {name: value.requires_grad_() for name, value in tables().items()}
    batched = torch.autograd.grad(network(found).log_pseudo_prob(STATES[:, None, None]).sum(), list(found.values()))
    total = sum(element(found, i, k).log_pseudo_prob(STATES).sum() for i in range(2) for k in range(3))
    for gradient, expected in zip(batched, torch.autograd.grad(total, list(found.values())), strict=True):
        assert_close(gradient, expected, absolute=1e-10)


@pytest.mark.parametrize(
    "evidence",
    [
        {"b": torch.tensor([[0, 2, 1]])},
        {"a": torch.tensor([[1], [0]]), "b": 2},
        {"a": "y", "c": torch.tensor(1)},
        {"a": torch.randint(2, (4, 2, 3), generator=torch.Generator().manual_seed(1))},
    ],
)
def test_clamped_rows_are_those_of_single_values(evidence):
    found = tables()
    law = DependencyNetwork(network(found)).condition(evidence)
    assert law.batch_shape[-2:] == (2, 3)
    left = [name for name in DOMAIN.names if name not in evidence]
    x = torch.tensor(list(itertools.product(*(range(DOMAIN[name].cardinality) for name in left))))
    values = law.log_pseudo_prob(x.reshape(len(x), *(1 for _ in law.batch_shape), len(left)))
    for where in itertools.product(*map(range, law.batch_shape)):
        state = {
            name: int(code.expand(law.batch_shape)[where]) if isinstance(code, torch.Tensor) else code
            for name, code in evidence.items()
        }
        expected = element(found, *where[-2:]).condition(state).log_pseudo_prob(x)
        assert_close(values[(slice(None), *where)], expected, absolute=1e-12)


def test_rows_of_evidence_for_a_single_network():
    one = element(tables(), 0, 1)
    codes = torch.tensor([1, 0, 1])
    law = DependencyNetwork(one).condition({"a": codes})
    assert law.batch_shape == (3,)
    x = torch.tensor([2, 1])
    for row, code in enumerate(codes.tolist()):
        assert_close(law.log_pseudo_prob(x)[row], one.condition({"a": code}).log_pseudo_prob(x), absolute=1e-12)


CALLS = {
    "log_prob": lambda n: DependencyNetwork(n).log_prob(STATES[0]),
    "sample": lambda n: DependencyNetwork(n).sample(),
    "log_prob_table": lambda n: DependencyNetwork(n).probs,
    "mean": lambda n: DependencyNetwork(n).mean,
    "mode": lambda n: DependencyNetwork(n).mode,
    "entropy": lambda n: DependencyNetwork(n).entropy(),
    "marginal": lambda n: DependencyNetwork(n).marginal(["a"]),
    "full_table": lambda n: n.full_table("a"),
    "tabulated": lambda n: n.tabulated(),
    "conditionals": lambda n: PseudoGibbsChains(n, 4),
    "conditionals ": lambda n: check_ergodic(n),
    "conditionals  ": lambda n: stationary_law(n),
    "conditionals   ": lambda n: NetworkFile(n),
    "node": lambda n: fc_limit(Law(DOMAIN, torch.full((2, 3, 2), 1 / 12, dtype=torch.float64)), n),
}


@pytest.mark.parametrize("what", CALLS)
def test_what_needs_one_network_says_so(what):
    with pytest.raises(InputError, match=rf"{what.strip()}: expected one .*batch of shape \(2,"):
        CALLS[what](network(tables()))


def test_wrong_batches():
    found = tables()
    node = TableConditional(DOMAIN, "b", ["a"], found["b"])
    for argument, call in {
        "probs": lambda: node.with_probs(found["b"].transpose(1, 2)),
        "nodes": lambda: network({**found, "a": found["a"][:, 0]}),
        "x": lambda: node.log_probs(STATES[:2]),
        "evidence of 'a'": lambda: node.condition({"a": torch.zeros(2).long()}),
    }.items():
        with raises("wrong-shape", argument):
            call()
