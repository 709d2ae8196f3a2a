"""Random laws of the papers: interactions, moments and cells are those of the distribution they are drawn from."""

import math

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.testing import raises

from studies.random_laws import random_dirichlet_law, random_law, random_uniform_law

ABC = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
BINARY = Domain.from_cardinalities([2, 2, 2, 2])


def test_random_laws_have_the_interactions_asked_for(generator):
    domain = Domain.from_cardinalities({"a": 3, "b": 2, "c": 4})
    law = random_law(domain, [("a",), ("a", "b"), ("b", "c")], generator=generator)
    logs = law.probs.log().numpy()
    for edge in InteractionHypergraph.saturated(domain).edges:
        part, axes = logs, domain.indices(edge)
        for i in range(3):
            mean = part.mean(i, keepdims=True)
            part = part - mean if i in axes else mean
        assert (np.abs(part).max() > 1e-3) == (edge in {("a",), ("a", "b"), ("b", "c")})


def test_random_laws_follow_appendix_b2(generator):
    """Normal tables, then centred: entry variance is prod(1 - 1 / I_k); 500 laws, z-test of the mean square."""
    domain = Domain.from_cardinalities({"a": 5, "b": 3})
    squares = []
    for _ in range(500):
        logs = random_law(domain, [("a", "b")], generator=generator).probs.log()
        pure = logs - logs.mean(0, keepdim=True) - logs.mean(1, keepdim=True) + logs.mean()
        squares.append(float((pure**2).mean()))
    expected = (1 - 1 / 5) * (1 - 1 / 3)  # mean of chi-square with 8 degrees of freedom, over 15 cells
    error = expected * math.sqrt(2 / 8) / math.sqrt(500)
    assert abs(np.mean(squares) - expected) < 5 * error
    assert abs(np.mean(squares) - 1) > 5 * error  # negative control: tables that were not centred


def test_random_laws_are_reproducible_and_leave_the_global_state_alone():
    before = torch.get_rng_state()
    for make in (random_law, random_dirichlet_law):
        one, two, other = (make(ABC, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
        assert torch.equal(one.probs, two.probs) and not torch.equal(one.probs, other.probs)
    assert torch.equal(torch.get_rng_state(), before)


def test_dirichlet_laws_have_the_right_second_moment(generator):
    """Sum of squares of a symmetric Dirichlet law of K cells has the mean (a + 1) / (K a + 1)."""
    domain = Domain.from_cardinalities([5, 5])
    for concentration in (0.2, 1.0):
        draws = [
            float((random_dirichlet_law(domain, concentration, generator=generator).probs ** 2).sum())
            for _ in range(1000)
        ]
        expected = (concentration + 1) / (25 * concentration + 1)
        assert abs(np.mean(draws) - expected) < 5 * np.std(draws) / math.sqrt(1000)


@pytest.mark.parametrize(
    ("make", "code", "argument"),
    [
        (lambda: random_law(ABC, scale=-1.0), "out-of-range", "scale"),
        (lambda: random_dirichlet_law(ABC, 0.0), "out-of-range", "concentration"),
        (lambda: random_law(ABC, [("a", "z")]), "unknown-name", None),
        (lambda: random_law(Domain.from_cardinalities([2] * 30), [("x0",)]), "over-budget", None),
        (lambda: random_law([2, 2]), "wrong-type", "domain"),
    ],
)
def test_arguments_of_random_laws_are_checked(make, code, argument):
    with raises(code, argument):
        make()


def test_uniform_random_laws_are_uniform_numbers_over_their_sum():
    law = random_uniform_law(BINARY, generator=torch.Generator().manual_seed(1))
    weights = torch.rand(2, 2, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(law.probs, weights / weights.sum())
    # the largest cell of many is near twice the mean, which of Dirichlet draws it is not
    wide = random_uniform_law(Domain.from_cardinalities([2] * 12), generator=torch.Generator().manual_seed(1)).probs
    assert 1.9 < float(wide.max()) * 4096 < 2.1
