"""Annealed estimates of models in which states are impossible, against sums over all their states."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_hoim import Auto, ConvergenceWarning, IntractableError, LogLinearEnergy
from pyro_hoim.log_linear import AnnealedImportance, Enumeration, MatrixEnumeration, VariableElimination
from pyro_hoim.log_linear.annealed import importance
from pyro_hoim.log_linear.annealed.ascents import ascend
from pyro_hoim.log_linear.impossible import ProductInside, walled
from pyro_hoim.runs import GibbsSchedule

from support.supports import NO, forbidding, log_weights, one_hot, random_model

QUICK = AnnealedImportance(num_chains=128, num_temperatures=150, seed=1)


@pytest.mark.filterwarnings("ignore:AnnealedImportance. the estimate is unreliable")
@pytest.mark.parametrize("start", ["exact", "tempered"])
def test_log_z_is_that_of_the_possible_states(start, monkeypatch):
    """Random supports, connected or not; control: the sum under walls of three nats, which lets others in."""
    if start == "tempered":
        monkeypatch.setattr(importance, "perfect_backend", lambda _: None)
    rng, errors, verdicts, controls = np.random.default_rng(6), [], [], 0
    for trial in range(40):
        model = random_model(rng, (2,) if trial % 3 == 0 else ())
        logs = log_weights(model)[1]
        if not bool(torch.isneginf(logs).any()):
            continue
        if bool(torch.isneginf(logs).all(-1).any()):
            lost = torch.isneginf(logs).all(-1)
            assert bool((torch.isneginf(QUICK.log_partition(model).value) == lost).all())
            continue
        result, exact = QUICK.log_partition(model), logs.logsumexp(-1)
        reliable = result.verdicts > 0
        error = torch.as_tensor(result.std_error)[reliable]
        errors += ((result.value - exact)[reliable] / error).tolist()
        controls += int(((log_weights(walled(model, 3.0))[1].logsumexp(-1) - exact)[reliable].abs() > 4 * error).sum())
        verdicts += result.verdicts.reshape(-1).tolist()
        assert result.sandwich.start == start and bool((result.lower_bound <= exact + 1e-9).all())
    assert len(errors) > 25 and np.mean(np.array(verdicts) > 0) > 0.8
    assert max(map(abs, errors)) < 4 < controls


def test_expectations_gradients_marginals_and_draws_are_those_of_the_possible_states():
    model = one_hot(5, more=2)
    codes, logs = log_weights(model)
    probs = logs.softmax(-1)
    tables = model.tables.clone().requires_grad_()
    QUICK.log_partition(LogLinearEnergy(model.hypergraph, tables)).value.backward()
    eta = QUICK.expectations(model)
    for edge, where in model.hypergraph.term_slices.items():
        members = list(model.domain.indices(edge))
        exact = torch.zeros([2] * len(edge), dtype=torch.float64).index_put_(codes[:, members].unbind(1), probs, True)
        exact = exact.reshape(-1)
        for found in (eta[where], tables.grad[where]):
            assert bool((found[exact == 0] == 0).all()) and float((found - exact).abs().max()) < 0.15
    marginal = QUICK.marginal(model, ["x0", "x6"])
    exact = torch.zeros(2, 2, dtype=torch.float64).index_put_((codes[:, 0], codes[:, 6]), probs, True)
    assert float((marginal - exact).abs().max()) < 0.15
    drawn = QUICK.sample(model, (2000,), torch.Generator().manual_seed(1))
    assert bool((drawn[:, :5].sum(1) == 1).all())
    assert float((drawn.double().mean(0) - (probs[:, None] * codes).sum(0)).abs().max()) < 0.05


SINGLE = AnnealedImportance(
    num_chains=64, num_temperatures=100, seed=1, schedule=GibbsSchedule([(f"x{i}",) for i in range(7)])
)


def test_chains_that_do_not_connect_the_possible_states_make_an_estimate_unreliable(monkeypatch):
    model = one_hot(5, more=2)
    apart = "the chains do not reach every possible state: none leads from .x0=0, x1=0, x2=0, x3=0, x4=1. to .x0=0"
    with pytest.warns(ConvergenceWarning, match="the estimate is unreliable"):
        result = SINGLE.log_partition(model)
    assert result.verdict == "unreliable" and "the chains do not reach" in result.notes[-1]
    with pytest.warns(ConvergenceWarning, match="the estimate is unreliable"):
        SINGLE.expectations(model)
    with pytest.warns(ConvergenceWarning, match=apart) as warned:
        SINGLE.sample(model, (5,))
    assert len(warned) == 1
    default = QUICK.log_partition(model)
    assert default.verdict != "unreliable" and not any("chains do not reach" in note for note in default.notes)


def test_what_was_not_tested_is_a_note():
    """Three colours on a ring of 40, whose number of colourings is 2^40 + 2."""
    turns = {(i, i + 1): [(a, a) for a in range(3)] for i in range(39)}
    ring = forbidding([3] * 40, {**turns, (0, 39): [(a, a) for a in range(3)]})
    model = LogLinearEnergy(ring.hypergraph, ring.tables.masked_fill(torch.isfinite(ring.tables), 0.0))
    result = QUICK.log_partition(model)
    assert float(result.value) == pytest.approx(math.log(2**40 + 2), abs=1e-9)
    assert "not tested" in result.notes[-1] and result.verdict != "unreliable"
    with pytest.warns(ConvergenceWarning, match="sample: whether the chains reach every possible state was not tested"):
        drawn = QUICK.sample(model, (20,))
    assert bool((drawn != drawn.roll(1, -1)).all())


def test_ascents_end_in_possible_states_and_at_the_best_one():
    rng, reached = np.random.default_rng(8), []
    for _ in range(30):
        model = random_model(rng, (1,))
        logs = log_weights(model)[1]
        if not bool(torch.isneginf(logs).any()) or bool(torch.isneginf(logs).all()):
            continue
        annealed = QUICK._annealed(model)
        run = importance.AnnealedBackend._forward(QUICK, [annealed])[0]
        states, log_q = ascend(annealed.energy, run, "auto", annealed.inside.support)
        assert torch.allclose(-LogLinearEnergy(model.hypergraph, model.tables[:, None]).energy(states), log_q)
        assert bool(torch.isfinite(log_q).all())
        reached.append(bool(torch.isclose(log_q.max(), logs.max())))
    assert len(reached) > 8 and all(reached)


def test_laws_fitted_to_phases_are_those_of_the_possible_states():
    model = one_hot(4, more=1)
    codes, logs = log_weights(model)
    states = codes[torch.isfinite(logs)].numpy()
    annealed = QUICK._annealed(model)
    law = annealed.fitted(states[None, None])
    assert np.exp(law.log_prob(states[None])).sum() == pytest.approx(1, abs=1e-12)
    assert np.exp(importance.ProductLaws.of(model.hypergraph, states[None, None]).log_prob(states[None])).sum() < 0.6


def test_weights_need_exact_sums_over_the_impossible_combinations_and_draws_do_not(monkeypatch):
    monkeypatch.setattr(ProductInside, "_backend", None)
    model = one_hot(4)
    for call in (QUICK.log_partition, QUICK.expectations, lambda model: QUICK.marginal(model, ["x0"])):
        with pytest.raises(IntractableError, match="summing over the possible states of 4 variables is out of reach"):
            call(model)
    assert bool((QUICK.sample(model, (30,)).sum(1) == 1).all())


def test_what_is_out_of_reach_names_an_estimate_only_where_that_answers(monkeypatch):
    """Against the estimate itself, which answers, and which refuses once the impossible combinations are too many."""
    model = one_hot(4)
    small = Auto(
        MatrixEnumeration(max_entries=1), Enumeration(max_states=1), VariableElimination(max_cells=1, max_slices=1)
    )
    calls = (small.log_partition, small.expectations, lambda model: small.marginal(model, ["x0"]))
    for call in calls:
        with pytest.raises(IntractableError, match=r"or Auto\(annealed=AnnealedImportance"):
            call(model)
    either = replace(small, annealed=QUICK)
    assert float(either.log_partition(model).value) == pytest.approx(float(Auto().log_partition(model).value), abs=0.5)
    monkeypatch.setattr(ProductInside, "_backend", None)
    for call in calls:
        with pytest.raises(IntractableError, match="draw with GibbsChains") as caught:
            call(model)
        assert "AnnealedImportance" not in str(caught.value)
    with pytest.raises(IntractableError, match="summing over the possible states of 4 variables is out of reach"):
        either.log_partition(model)
    with pytest.raises(IntractableError) as caught:
        small.mode(model)
    assert "AnnealedImportance" not in str(caught.value)  # which refuses modes


def test_a_model_of_one_possible_state_is_known():
    cells = [(a, b) for a in range(2) for b in range(3) if (a, b) != (1, 2)]
    model = forbidding([2, 3], {(0, 1): cells})
    result = QUICK.log_partition(model)
    assert float(result.value) == pytest.approx(float(model.tables[model.tables != NO]), abs=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"temperatures": "adaptive"},
        {"resample_below": 0.5},
        {"combine": True},
        {"starts": [[1] * 8, [0] * 8]},  # impossible both
        {"reference": "uniform", "precision": torch.float64},
        {"engine": "torch", "sweeps_per_step": 2},
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_option_obeys(options):
    model = one_hot(5, more=3)
    exact = float(log_weights(model)[1].logsumexp(-1))
    result = AnnealedImportance(num_chains=256, num_temperatures=100, seed=1, **options).log_partition(model)
    assert abs(float(result.value) - exact) < 4 * float(result.std_error) < 0.2
    assert float(result.lower_bound) <= exact + 1e-9
