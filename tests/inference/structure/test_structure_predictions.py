"""Predictions of posteriors over structure: exact conditionals of cells averaged over collections, and draws."""

import itertools

import numpy as np
import pytest
import torch

from pyro_hoim import Observations
from pyro_hoim.inference import (
    ChainSettings,
    StructurePrior,
    average_decomposable,
    enumerate_structures,
    sample_structures,
)
from pyro_hoim.inference.structure import posterior as posteriors
from pyro_hoim.schema import Domain
from pyro_hoim.testing import raises

COUNTS = np.random.default_rng(1).poisson([2, 5, 4, 9, 3, 8, 1, 6, 2, 5, 4, 6, 9, 3, 5, 1]).reshape((2,) * 4)
FOUR = Observations.from_table(Domain.from_labels({n: ["no", "yes"] for n in "abcd"}), COUNTS)
GRAPHS = StructurePrior(FOUR.domain, space="decomposable")
EVERY = Observations.from_tensor(torch.tensor(list(itertools.product([-1, 0, 1], repeat=4))), FOUR.domain)
LISTED = enumerate_structures(FOUR, "conjugate:3", GRAPHS)


def by_models(row, column):
    """The probabilities of a column, from sums over collections of products of Dirichlet means along their cliques."""
    counts = FOUR.table().numpy() + 3 / 16
    joint = np.zeros((2,) * 4)
    for graph, probability, _ in LISTED.models(LISTED.num_structures):
        left, edges = list(range(4)), [frozenset(FOUR.domain.indices(e)) for e in graph.edges if len(e) > 1]
        product = np.full((2,) * 4, probability)
        while left:
            near = {v: [w for w in left if frozenset((v, w)) in edges and w != v] for v in left}
            v = next(v for v in left if all(frozenset(p) in edges for p in itertools.combinations(near[v], 2)))
            others = tuple(w for w in range(4) if w != v and w not in near[v])
            both = counts.sum(others, keepdims=True)
            product = product * both / both.sum(v, keepdims=True)
            left.remove(v)
        joint += product
    known = tuple(slice(None) if k == column or code < 0 else slice(code, code + 1) for k, code in enumerate(row))
    found = joint[known].sum(tuple(k for k in range(4) if k != column))
    return found / found.sum()


@pytest.mark.parametrize("target", ["a", "c"])
def test_listed_predictions_are_those_of_sums_over_collections(target):
    found, column = LISTED.predict(EVERY, target), FOUR.domain.index(target)
    wanted = np.stack([by_models(row, column) for row in EVERY.codes.tolist()])
    np.testing.assert_allclose(found.probs, wanted, atol=1e-6)  # collections that together have as little are left out
    assert found.kind == "exact" and bool((found.std_error == 0).all()) and found.labels == FOUR.domain[target].labels
    assert torch.equal(found.truth, EVERY.codes[:, column])
    best = LISTED.models(1)[0].hypergraph
    alone = enumerate_structures(FOUR, "conjugate:3", StructurePrior(FOUR.domain, space="decomposable", inclusion=1e-9))
    assert best != alone.models(1)[0].hypergraph  # a control: one collection alone predicts otherwise
    assert float((alone.predict(EVERY, target).probs - found.probs).abs().max()) > 0.01


def test_rows_over_some_columns_and_no_rows():
    some = Observations.from_tensor(torch.tensor([[1, 0]]), Domain([FOUR.domain["d"], FOUR.domain["b"]]))
    found = LISTED.predict(some, "c")
    np.testing.assert_allclose(found.probs[0], by_models([-1, 0, -1, 1], 2), atol=1e-6)
    assert found.truth.tolist() == [-1]
    none = Observations.from_tensor(torch.zeros(0, 4, dtype=torch.long), FOUR.domain)
    assert LISTED.predict(none, "c").probs.shape == (0, 2)
    flat = Observations.from_tensor(torch.tensor([[0, 0], [1, 0], [1, 0]]), Domain.from_cardinalities([2, 1]))
    assert enumerate_structures(flat).predict(flat, "x1").probs.tolist() == [[1.0]] * 3
    one = Observations.from_tensor(torch.tensor([[0], [1], [1]]), Domain.from_cardinalities([2]))
    prior = StructurePrior(one.domain, space="decomposable")
    assert enumerate_structures(one, "conjugate:2", prior).predict(one, "x0").probs[0].tolist() == pytest.approx(
        [2 / 5, 3 / 5]
    )


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # a hair above the limit
@pytest.mark.parametrize("kind", ["chains", "chains with theta", "trees"])
def test_drawn_predictions_are_the_listed_ones_up_to_their_error(kind):
    settings = ChainSettings(8, 300, 50)
    if kind == "trees":
        drawn = average_decomposable(FOUR, "conjugate:3", GRAPHS, num_draws=4_000, seed=1)
    else:
        drawn = sample_structures(FOUR, "conjugate:3", GRAPHS, settings, collapsed=kind == "chains", seed=1)
    found, wanted = drawn.predict(EVERY, "b"), LISTED.predict(EVERY, "b")
    off = (found.probs - wanted.probs).abs()
    assert found.kind == "biased" and float(found.std_error.max()) < 0.03
    # Seven degrees of freedom of eight chains: 12 standard errors have a tail of some 1e-6.
    assert bool((off <= 12 * found.std_error + 1e-9).all())
    others = enumerate_structures(FOUR.rows(torch.arange(8)), "conjugate:3", GRAPHS).predict(EVERY, "b")
    assert bool(((found.probs - others.probs).abs() > 12 * found.std_error).any())


def test_laplace_is_not_called_exact_and_comes_near_conjugate_means():
    unit = enumerate_structures(FOUR, "unit", GRAPHS).predict(EVERY, "b")
    assert unit.kind == "biased" and float((unit.probs - LISTED.predict(EVERY, "b").probs).abs().max()) < 0.02


def test_large_tables_are_predicted_by_draws(monkeypatch):
    before = torch.get_rng_state()
    exact = LISTED.predict(FOUR, "b")
    monkeypatch.setattr(posteriors, "MAX_CELLS", 8)
    found = LISTED.predict(FOUR, "b", num_draws=200, seed=1)
    assert torch.equal(before, torch.get_rng_state()) and found.kind == "biased"
    assert torch.equal(found.probs, LISTED.predict(FOUR, "b", num_draws=200, seed=1).probs)
    # What a row says of theta is of the order of one in 70 rows.
    assert bool(((found.probs - exact.probs).abs() < 5.5 * found.std_error + 2e-3).all())
    assert 0 < float(found.std_error.max()) < 0.015


def test_bad_input():
    with raises("unknown-name", "target"):
        LISTED.predict(FOUR, "height")
    with raises("other-domain", "data"):
        LISTED.predict(Observations.from_tensor(torch.zeros(1, 1).long(), Domain.from_cardinalities({"b": 3})), "b")
    with raises("wrong-type", None):
        LISTED.predict([[0, 1, 0, 1]], "b")
