"""Screening by a cheap score: who passes, what they get, and that nothing else changes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations
from pyro_hoim.log_linear import ExactTrainer, Gain, InteractionInformation, ScoreContext, Screened

DOMAIN = Domain.from_cardinalities([2, 3, 2, 2, 3])
PAIRS = list(itertools.combinations(DOMAIN.names, 2))


@pytest.fixture(scope="module")
def context() -> ScoreContext:
    draws = torch.Generator().manual_seed(3)
    codes = torch.stack([torch.randint(n, (300,), generator=draws) for n in DOMAIN.cardinalities], 1)
    codes[:, 3] = codes[:, 0]
    rows = Observations.from_tensor(codes, DOMAIN)
    return ScoreContext(rows, ExactTrainer(rows, InteractionHypergraph.from_order(DOMAIN, 1)))


def test_the_best_by_the_first_score_get_the_second_and_the_others_none(context: ScoreContext) -> None:
    rough = InteractionInformation()(PAIRS, context)
    values = Screened(keep=4)(PAIRS, context)
    passed = set(np.argsort(-rough)[:4].tolist())
    assert {i for i, value in enumerate(values) if np.isfinite(value)} == passed
    full = Gain(search_cost=False)(PAIRS, context)
    kept = Screened(Gain(search_cost=False), keep=4)(PAIRS, context)
    assert all(kept[i] == full[i] for i in passed)
    assert int(values.argmax()) == PAIRS.index((DOMAIN.names[0], DOMAIN.names[3]))


def test_few_candidates_are_not_screened(context: ScoreContext) -> None:
    assert np.array_equal(Screened(keep=len(PAIRS))(PAIRS, context), Gain()(PAIRS, context))


def test_a_first_score_that_knows_nothing_loses_the_pair(context: ScoreContext) -> None:
    values = Screened(first=lambda candidates, _: np.arange(len(candidates), dtype=float), keep=2)(PAIRS, context)
    assert not np.isfinite(values[PAIRS.index((DOMAIN.names[0], DOMAIN.names[3]))])


@pytest.mark.parametrize("keep", [0, True, 1.5])
def test_bad_keep_is_refused(keep: object) -> None:
    with pytest.raises(InputError, match="keep"):
        Screened(keep=keep)  # type: ignore[arg-type]
