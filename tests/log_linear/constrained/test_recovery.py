"""Planted interactions are found again, more closely with more rows; independent columns give none beyond chance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_hoim.data import Observations
from pyro_hoim.log_linear.constrained.frank_wolfe import fit_penalised
from pyro_hoim.log_linear.constrained.losses import InteractionScreeningLoss, PseudoLikelihoodLoss
from pyro_hoim.log_linear.constrained.norms import L1Norm, NormPenalty, OverlappedNorm
from pyro_hoim.log_linear.constrained.splitting import douglas_rachford
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

NUM = 8
GRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities({f"x{i}": 2 for i in range(NUM)}), 3)
CELLS = np.array(list(itertools.product((0, 1), repeat=NUM)))
MONOMIALS = np.stack([CELLS[:, edge].prod(1) for edge in GRAPH.edge_indices], 1).astype(float)
IS_TRIPLE = np.array([len(edge) == 3 for edge in GRAPH.edge_indices])


def draw(theta: np.ndarray, number: int, rng: np.random.Generator) -> Observations:
    weights = np.exp(MONOMIALS @ theta)
    return Observations.from_table(GRAPH.domain, rng.multinomial(number, weights / weights.sum()).reshape((2,) * NUM))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PseudoLikelihoodLoss, InteractionScreeningLoss])
def test_planted_triples_are_found_with_many_rows_and_none_of_independent_columns(kind: type) -> None:
    hits, errors, alone = {300: [], 20_000: []}, {300: [], 20_000: []}, []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        theta = np.where([len(edge) == 1 for edge in GRAPH.edge_indices], -0.7, 0.0)
        planted = rng.choice(np.flatnonzero(IS_TRIPLE), 4, replace=False)
        main = theta.copy()
        theta[planted] = rng.choice([-1.5, 1.5], 4)
        for number in hits:
            penalty = NormPenalty(L1Norm(), 0.6 * np.sqrt(np.log(len(theta)) / number))
            found = fit_penalised(kind(draw(theta, number, rng), 3), penalty).theta.numpy()
            top = np.argsort(-np.abs(found * IS_TRIPLE))[:4]
            hits[number].append(np.isin(top, planted).mean())
            errors[number].append(np.linalg.norm(found - theta))
        none = fit_penalised(kind(draw(main, 20_000, rng), 3), penalty).theta.numpy()  # control: the last strength
        alone.append(np.abs(none * IS_TRIPLE).max())
    assert min(hits[20_000]) == 1.0
    assert np.mean(hits[300]) < 1.0
    assert np.mean(errors[20_000]) < 0.5 * np.mean(errors[300])
    assert max(alone) < 0.3


@pytest.mark.slow
def test_a_planted_low_rank_tensor_is_nearer_by_low_rank_than_by_few_entries() -> None:
    norm = OverlappedNorm(GRAPH)
    counts = norm.unfolding.multiplicity
    inside = np.array([[set(edge) <= block for edge in GRAPH.edge_indices] for block in ({0, 1, 2, 3}, {4, 5, 6, 7})])
    theta = counts * (np.array([0.08, -0.08]) @ inside)
    errors = {(name, number): [] for name in ("low", "l1") for number in (500, 20_000)}
    for seed, (name, number) in itertools.product(range(5), errors):
        loss = PseudoLikelihoodLoss(draw(theta, number, np.random.default_rng([seed, number])), 3)
        scale = np.sqrt(np.log(NUM) / number)
        if name == "low":
            found = douglas_rachford(loss, NormPenalty(norm, 0.7 * scale))
        else:
            found = fit_penalised(loss, NormPenalty(L1Norm(), 0.25 * scale))
        errors[name, number].append(np.sqrt(((found.theta.numpy() - theta) ** 2 / counts).sum()))
    mean = {key: np.mean(value) for key, value in errors.items()}
    assert mean["low", 20_000] < 0.7 * mean["low", 500]
    for number in (500, 20_000):
        assert mean["low", number] < mean["l1", number]
