"""Rows of which some cells are known, under models in which states are impossible, by chains and against all states."""

import itertools

import numpy as np
import pytest
import torch

from pyro_hoim import ConvergenceWarning, Observations
from pyro_hoim.core.rows import ClampedGibbs
from pyro_hoim.log_linear.given import impossible_rows, impute, predict, row_chains, synthesise

from support.supports import forbidding, log_weights, one_hot, random_model

CHAINS = ClampedGibbs(num_chains=50, num_temperatures=10, burn_in=20, num_sweeps=40)


def rows_with_gaps(model, rng, number=60):
    """Random states with random gaps, and which of them no possible state agrees with."""
    codes, logs = log_weights(model)
    rows = torch.as_tensor(np.stack([rng.integers(0, n, size=number) for n in model.domain.cardinalities], 1))
    gaps = rng.random((6, rows.shape[1])) < 0.6
    rows[torch.as_tensor(gaps[rng.integers(0, 6, size=number)])] = -1
    agree = ((rows[:, None] == codes) | (rows[:, None] < 0)).all(-1)
    law = torch.where(agree, logs.exp(), 0.0)
    return Observations.from_tensor(rows, model.domain), law


def test_completions_and_predictions_by_chains_are_possible_and_have_the_conditional_law():
    rng, errors, lost, compared = np.random.default_rng(11), [], 0, 0
    for trial in range(8):
        model = random_model(rng) if trial else one_hot(5, more=1)
        codes, logs = log_weights(model)
        if not bool(torch.isfinite(logs).any()):
            continue
        rows, law = rows_with_gaps(model, rng)
        is_lost = law.sum(1) == 0
        assert torch.equal(impossible_rows(model, rows.codes), is_lost)
        lost += int(is_lost.sum())
        done = impute(model, rows, 4, method="gibbs", gibbs=CHAINS, seed=trial)
        same = (done.codes[:, :, None] == codes).all(-1)
        assert bool((same & (law > 0)).any(-1)[:, ~is_lost].all())
        assert torch.equal(done.codes[:, is_lost], rows.codes[is_lost].expand(4, -1, -1))
        best = impute(model, rows, how="most probable", method="gibbs", gibbs=CHAINS, seed=trial).codes[0, ~is_lost]
        assert bool(((best[:, None] == codes).all(-1) & (law[~is_lost] > 0)).any(-1).all())
        target = model.domain.names[-1]
        hidden = rows.codes.clone()
        hidden[:, -1] = -1
        found = predict(model, rows, target, method="gibbs", gibbs=CHAINS, seed=trial).probs
        agree = ((hidden[:, None] == codes) | (hidden[:, None] < 0)).all(-1)
        exact = torch.stack([((codes[:, -1] == k) & agree).double() @ logs.exp() for k in range(found.shape[1])], 1)
        is_known = exact.sum(1) > 0
        exact = exact / exact.sum(1, keepdim=True)
        assert bool(found[~is_known].isnan().all()) and bool((found[is_known][exact[is_known] == 0] == 0).all())
        errors += (found - exact)[is_known].abs().max(1).values.tolist()
        compared += int(is_known.sum())
    assert lost > 20 and compared > 150
    assert np.mean(errors) < 0.02 and np.quantile(errors, 0.99) < 0.15


def test_rows_whose_completions_no_chain_connects_are_completed_with_a_warning():
    """Two groups of 13 columns in one half of their levels: 16,384 possible joint states, too many for a block."""
    halves = [(a, b) for a, b in itertools.product(range(4), repeat=2) if a // 2 != b // 2]
    model = forbidding([4] * 26, {(i, i + 1): halves for i in itertools.chain(range(12), range(13, 25))})
    rows = Observations.from_tensor(torch.tensor([[3] + [-1] * 25, [-1] * 25 + [0]]), model.domain)
    with pytest.warns(ConvergenceWarning, match="method 'gibbs': the chains do not reach every possible state"):
        done = impute(model, rows, 50, method="gibbs")
    first, second = (done.codes // 2)[..., :13], (done.codes // 2)[..., 13:]
    assert all(bool((part == part[..., :1]).all()) for part in (first, second))
    assert bool((first[:, 0] == 1).all()) and bool((second[:, 1] == 0).all())
    assert 0 < float(second[:, 0].double().mean()) < 1 and 0 < float(first[:, 1].double().mean()) < 1


def test_synthetic_rows_by_chains_are_possible():
    model = one_hot(6, more=3)
    drawn = synthesise(model, 3000, method="gibbs", burn_in=30).codes
    codes, logs = log_weights(model)
    share = torch.softmax(logs, -1) @ codes.double()
    assert bool((drawn[:, :6].sum(1) == 1).all()) and float((drawn.double().mean(0) - share).abs().max()) < 0.05


def test_more_exclusions_than_are_looked_at_give_no_warning():
    """Seven columns that none of seven known ones may equal in a one, nor a neighbour: 128 sets of exclusions."""
    pairs = [*((i, 7 + i) for i in range(7)), *((i, i + 1) for i in range(6))]
    model = forbidding([2] * 14, {pair: [(1, 1)] for pair in pairs})
    known = torch.tensor(list(itertools.product([0, 1], repeat=7)))
    rows = torch.cat([torch.full((128, 7), -1), known], 1)
    chains = row_chains(model, model.domain.names[:7], rows, 2, CHAINS, seed=1)
    assert chains.connectedness == "untested" and bool(torch.isfinite(chains.energy).all())
    done = impute(model, Observations.from_tensor(rows, model.domain), 2, method="gibbs", gibbs=CHAINS)
    assert bool(torch.isfinite(model.energy(done.codes)).all()) and bool((done.codes[..., :7] == 1).any())
