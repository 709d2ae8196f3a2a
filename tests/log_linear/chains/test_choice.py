"""Blocks "auto": the estimate of effective draws, what is chosen for which model, and that chains are those of it."""

import itertools
import warnings

import arviz as az
import numpy as np
import pytest
import torch

from pyro_hoim import AnnealedImportance, Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy, sample_chains
from pyro_hoim.log_linear.chains import choice as choices
from pyro_hoim.log_linear.chains.choice import effective_draws, planned_cost
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import exact_log_partition, exact_table, raises

from support.hard_models import copies
from support.supports import forbidding, one_hot

AUTO = GibbsSchedule("auto")


def _at_most_one(size, field):
    """Binary columns of which at most one is set, each with a log weight; none is set with a weight of 1."""
    domain = Domain.from_cardinalities([2] * size)
    walls = list(itertools.combinations(domain.names, 2))
    graph = InteractionHypergraph(domain, [*((n,) for n in domain.names), *walls], hierarchical=False)
    tables = torch.tensor([0.0, field]).double().repeat(size)
    return LogLinearEnergy(graph, torch.cat([tables, torch.tensor([0, 0, 0, -torch.inf]).double().repeat(len(walls))]))


# Effective draws


@pytest.mark.fixed_seed  # of sums of noise that end where those of ArviZ do
@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9, 0.98])
def test_effective_draws_are_those_of_arviz_and_of_the_closed_form(memory):
    """Of an autoregression n (1 - a) / (1 + a); the control are chains that disagree, and those of one half alone."""
    rng, draws, chains = np.random.default_rng(1), 2000, 16
    noise = rng.normal(size=(draws, chains, 2))
    noise[1:] *= np.sqrt(1 - memory**2)
    values = noise.copy()
    for k in range(1, draws):
        values[k] += memory * values[k - 1]
    found = effective_draws(values)
    for k in range(2):
        assert found[k] == pytest.approx(float(az.ess(values[..., k].T, method="mean")), rel=0.1)
    assert found.mean() == pytest.approx(draws * chains * (1 - memory) / (1 + memory), rel=0.15)
    apart = values + 5 * np.arange(chains)[:, None]
    assert (effective_draws(apart) < 3 * chains).all()


def test_effective_draws_of_constants_and_of_chains_that_stay_where_they_are():
    rng = np.random.default_rng(2)
    stuck = np.broadcast_to(rng.normal(size=(1, 16, 1)), (400, 16, 1))
    constant = np.full((400, 16, 1), 3.0)
    assert effective_draws(constant) == pytest.approx(6400)
    assert effective_draws(stuck)[0] < 17


# What is chosen


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (copies(30, 4.0), "trees"),
        (copies(30, 4.0, is_ring=True), "width:2"),
        (copies(30, 4.0, is_ring=True, cards=3), "width:2"),
        (copies(30, 0.2, is_ring=True), "sites"),
        (_at_most_one(12, 5.0), "groups"),
    ],
    ids=["path", "ring", "ring of three levels", "weak ring", "at most one"],
)
def test_models_get_the_blocks_that_suit_them(model, kind):
    """For every seed that was looked at; the chains are those of the chosen blocks, and no more random."""
    before = torch.get_rng_state()
    for seed in (1, 2):
        chains = GibbsChains(model, 20, schedule=AUTO, seed=seed)
        assert chains.choice.chosen.name == kind
        given = GibbsChains(model, 20, schedule=chains.schedule, seed=seed)
        assert given.choice is None and given.blocks == chains.blocks and given.fingerprint == chains.fingerprint
        for each in (chains, given):
            each.sweep(3)
        assert torch.equal(chains.states, given.states)
    assert torch.equal(torch.get_rng_state(), before)
    assert GibbsChains(model, 20, schedule=AUTO, seed=2).choice == chains.choice
    assert kind in str(chains.choice)


def test_chosen_groups_make_the_effective_draws_that_single_columns_do_not():
    """Of which of twelve columns is set, from records of the chains themselves; none is set in 1 of 1,782 draws."""
    model, effective = _at_most_one(12, 5.0), []
    for schedule in (AUTO, GibbsSchedule()):
        chains = GibbsChains(model, 16, schedule=schedule, seed=3)
        states = chains.sweep(400, thin=1, states=True).states.double().numpy()
        effective.append(effective_draws(states).min())
    assert effective[0] > 10 * effective[1]


def test_what_was_tried_is_said(caplog):
    with caplog.at_level("INFO", "pyro_hoim"):
        chains = GibbsChains(copies(30, 4.0), 8, schedule=AUTO)
    choice = chains.choice
    assert str(choice) in caplog.text and "blocks 'trees', chosen before 'sites', 'interactions'" in caplog.text
    names = [candidate.name for candidate in choice.candidates]
    assert names == ["sites", "interactions", "trees"] and choice.chosen.num_blocks == 1 and choice.chosen.largest == 30
    assert choice.chosen.is_resolved and choice.chosen.effective == pytest.approx(1, rel=0.2)
    assert all(candidate.sweeps and candidate.rate > 0 for candidate in choice.candidates)


def test_planned_costs_bound_what_is_tried(monkeypatch):
    """Nothing dearer than the budget moves; and costs grow with the width of blocks."""
    domain = Domain.from_cardinalities([2] * 36)
    names = np.array(domain.names).reshape(6, 6)
    pairs = [*zip(names[:, :-1].ravel(), names[:, 1:].ravel(), strict=True)]
    pairs += zip(names[:-1].ravel(), names[1:].ravel(), strict=True)
    graph = InteractionHypergraph(domain, pairs, hierarchical=False)
    tables = torch.as_tensor(np.random.default_rng(5).normal(size=(len(pairs), 1)) * np.array([3, -3, -3, 3])).reshape(
        -1
    )
    kinds = ("sites", "trees", "width:2", "width:4")
    costs = [
        planned_cost(graph, GibbsSchedule(kind).resolve(graph), None, GibbsSchedule(kind).max_listed) for kind in kinds
    ]
    assert costs == sorted(costs) and costs[0] > 0
    whole = GibbsChains(LogLinearEnergy(graph, tables), 4, schedule=AUTO).choice
    monkeypatch.setattr(choices, "_BUDGET", 16 * choices._FEWEST * 400.0)
    few = GibbsChains(LogLinearEnergy(graph, tables), 4, schedule=AUTO).choice
    assert {c.name for c in few.candidates} < {c.name for c in whole.candidates}
    assert all(c.planned <= 400 for c in few.candidates)


# Which models have it


_LONE = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 1)
_EDGE_CASES = {
    "one variable": (copies(1, 1.0), {}),
    "one level": (copies(3, 1.0, cards=1), {}),
    "no interaction": (LogLinearEnergy(_LONE, torch.ones(5)), {}),
    "all clamped": (copies(3, 1.0), {"clamped": {"x0": 0, "x1": 1, "x2": 0}}),
    "one possible state": (forbidding([2, 2], {(0, 1): [(0, 0), (0, 1), (1, 1)]}), {}),
    "exactly one": (one_hot(5, more=2), {}),
    "batch": (LogLinearEnergy(copies(6, 3.0).hypergraph, torch.linspace(-2, 2, 140).reshape(7, 20)), {}),
    "clamped per chain": (copies(6, 3.0), {"clamped": {"x2": torch.tensor([0, 1, 1])}}),
    "first states": (copies(6, 3.0), {"init": torch.zeros(6, dtype=torch.long)}),
    "reference": (copies(6, 3.0), {"reference": torch.linspace(-1, 1, 12).double()}),
    "float64": (copies(6, 3.0), {"precision": torch.float64}),
    "torch": (copies(6, 3.0, cards=3), {"engine": "torch"}),
    "tables": (copies(6, 3.0), {"engine": "tables"}),
    "products": (copies(6, 3.0, is_ring=True), {"engine": "products"}),
}  # fmt: skip


@pytest.mark.parametrize("name", _EDGE_CASES)
def test_every_model_has_blocks(name, monkeypatch):
    monkeypatch.setattr(choices, "_BUDGET", 1e5)
    model, options = _EDGE_CASES[name]
    schedule = GibbsSchedule("auto", scan="random", emphasised=[model.domain.names[:1]], emphasis=0.25)
    chains = GibbsChains(model, 3, schedule=schedule, **options)
    assert chains.schedule.blocks != "auto" and chains.choice.schedule == chains.schedule
    assert (chains.schedule.scan, chains.schedule.emphasised, chains.schedule.emphasis) == (
        "random",
        (tuple(model.domain.names[:1]),),
        0.25,
    )
    chains.sweep(3)
    assert torch.isfinite(chains.energy).all() and chains.connectedness == "proved"


def test_blocks_without_a_model_are_refused():
    with raises("conflict", "blocks"):
        AUTO.resolve(copies(4, 1.0).hypergraph)


# What else takes it


def test_recorded_chains_continue_from_a_checkpoint(tmp_path):
    from pyro_hoim.runs import RunOptions

    def chains():
        return GibbsChains(copies(20, 3.0, is_ring=True), 8, schedule=AUTO, seed=5)

    whole = sample_chains(chains(), 40, record="energies")
    sample_chains(chains(), 40, record="energies", run=RunOptions(checkpoint=tmp_path / "run"))
    again = sample_chains(chains(), 40, record="energies", run=RunOptions(checkpoint=tmp_path / "run", resume=True))
    assert torch.equal(whole.energies, again.energies)


def test_annealed_runs_are_those_of_the_chosen_blocks():
    """Log Z of a ring within six errors, the same as with the blocks by name, which the cost names."""
    model = copies(16, 3.0, is_ring=True)
    options = {"num_chains": 200, "num_temperatures": 40, "seed": 2}
    result = AnnealedImportance(schedule=AUTO, **options).log_partition(model)
    exact = float(exact_log_partition(model.hypergraph, model.tables.numpy()))
    assert abs(float(result.value) - exact) < 6 * float(result.std_error) + 1e-6
    assert "blocks 'width:2', chosen before 'sites'" in result.cost.reason
    given = AnnealedImportance(schedule=GibbsSchedule("width:2"), **options).log_partition(model)
    assert float(given.value) == float(result.value) and "chosen" not in given.cost.reason
    with warnings.catch_warnings(action="ignore"):
        draws = AnnealedImportance(schedule=AUTO, **options).sample(model, (50,), torch.Generator().manual_seed(1))
    law = np.exp(exact_table(model.hypergraph, model.tables.numpy()))
    assert draws.shape == (50, 16) and law.shape == (2,) * 16
