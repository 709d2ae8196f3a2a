"""Learning from rows that do not fit into memory, against the same rows in memory."""

import dataclasses
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph, IntractableError, Observations, learn
from pyro_hoim.data import ChunkedRows, ColumnGroup, JoinedColumns, MemoryRows, RowSource, open_rows
from pyro_hoim.data.sources import sourced
from pyro_hoim.data.sources.sourced import SourcedRows, held_rows, rows_of
from pyro_hoim.log_linear import ExactTrainer, SampledTraining, fit_collection, score_rows
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import raises

from support.calls import noted

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 2, "c": 3, "d": 2, "e": 2})
QUICK = SampledTraining(num_chains=500, num_iterations=150, loss_standard_error=0.1, refresh_chains=200)
SHORT = SampledTraining(num_chains=200, num_iterations=40, loss_standard_error=0.1, refresh_chains=100)


def planted(number=6000, seed=0):
    """Rows in which b follows a, and e is mostly the exclusive or of a and d."""
    random = np.random.default_rng(seed)
    a, c, d = random.integers(0, 2, number), random.integers(0, 3, number), random.integers(0, 2, number)
    b = np.where(random.random(number) < 0.8, a, 1 - a)
    e = np.where(random.random(number) < 0.85, a ^ d, 1 - (a ^ d))
    return Observations(DOMAIN, torch.from_numpy(np.stack([a, b, c, d, e], 1)))


@pytest.fixture
def too_many(monkeypatch):
    """Every source has more distinct rows than fit, and a thousand of them are held."""

    monkeypatch.setattr(RowSource, "distinct", Mock(side_effect=IntractableError("too many rows", argument="distinct")))
    monkeypatch.setattr(sourced, "_MOST_ROWS", 1000)


def of_order(order):
    return InteractionHypergraph.from_order(DOMAIN, order).edges


# Rows of sources


@pytest.mark.usefixtures("too_many")
def test_margins_are_those_of_all_rows_and_are_counted_once(monkeypatch):
    rows = planted()
    found = rows_of(MemoryRows.of(rows))
    passes = noted(monkeypatch, MemoryRows, "marginal_counts")
    edges = [("b", "a"), ("a", "b", "e"), "c"]
    assert torch.equal(found.marginal_counts(edges), rows.marginal_counts(edges))
    assert torch.equal(found.marginal_counts([*edges, ("d", "e")]), rows.marginal_counts([*edges, ("d", "e")]))
    # Single variables were counted in the beginning.
    assert [list(sets) for _, sets in passes] == [[("b", "a"), ("a", "b", "e")], [("d", "e")]]
    assert found.marginal_counts([]).shape == (0,)
    assert found.unique() is found and found.total_count == 6000.0


@pytest.mark.usefixtures("too_many")
def test_a_sample_stands_for_the_rows_and_parts_of_a_split_are_disjoint():
    rows = planted()
    found = rows_of(MemoryRows.of(rows))
    assert isinstance(found, SourcedRows) and held_rows(rows) is rows
    assert found.num_rows == 1000 and held_rows(found).counts.tolist() == [1.0] * 1000
    assert found.counts.sum().item() == pytest.approx(6000, abs=1e-6)
    assert (found.codes.double().mean(0) - rows.codes.double().mean(0)).abs().max() < 0.1
    both = SourcedRows.of(MemoryRows.of(rows), MemoryRows.of(planted(2000, 1)))
    assert both.num_rows == 1000 and both.total_count == 8000.0
    assert held_rows(both).counts.tolist() == pytest.approx([1.5] * 500 + [0.5] * 500)  # as the rows are
    together = rows.marginal_counts(of_order(2)) + planted(2000, 1).marginal_counts(of_order(2))
    assert torch.equal(both.marginal_counts(of_order(2)), together)
    parts = rows_of(MemoryRows.of(rows)).split([0.75, 0.25], 3)
    assert sum(part.total_count for part in parts) == 6000 and abs(parts[1].total_count - 1500) < 200
    total = sum(part.marginal_counts(of_order(3)) for part in parts)
    assert torch.equal(total, rows.marginal_counts(of_order(3)))


def test_rows_that_fit_are_the_distinct_ones():
    assert type(rows_of(MemoryRows.of(planted()))) is Observations


@pytest.mark.usefixtures("too_many")
def test_missing_cells_and_no_rows_are_refused():
    codes = planted(50).codes.clone()
    codes[7, 2] = -1
    with raises("missing-cells", "marginal_counts"):
        learn(MemoryRows.of(Observations(DOMAIN, codes)))
    assert learn(MemoryRows.of(Observations(DOMAIN, codes)).drop_missing()).num_rows < 49
    with raises("empty", "data"):
        learn(MemoryRows.of(Observations(DOMAIN, codes[:0])))


# Learning


@pytest.fixture
def parts(tmp_path):
    """The same rows in memory, and in a file that is read piece by piece, each in two parts."""
    rows = planted()
    rows.to_pandas(count=None).to_csv(tmp_path / "rows.csv", index=False)
    chunked = open_rows(tmp_path / "rows.csv", domain=DOMAIN, chunk_rows=700)
    assert isinstance(chunked, ChunkedRows)
    return MemoryRows.of(rows).split([0.7, 0.3], 0), chunked.split([0.7, 0.3], 0)


def same(first, second):
    found, other = (
        {
            "edges": one.hypergraph.edges,
            "tables": one.tables.tolist(),
            "ridge": one.ridge.to_json(),
            "losses": [entry.validation_loss for entry in one.selection.rounds],
            "structure": one.structure.hypergraph.edges,
            "tests": [dataclasses.astuple(test) for test in one.structure.confirmation.tests],
            "rows": one.num_rows,
        }
        for one in (first, second)
    )
    assert found == other


@pytest.mark.parametrize("trainer", ["exact", "sampled"])
def test_rows_in_files_and_in_memory_give_the_same_model(parts, trainer, too_many):
    memory, chunked = (learn(*found, trainer=trainer, sampling=SHORT) for found in parts)
    same(memory, chunked)
    if trainer == "exact":
        with pytest.raises(AssertionError):  # negative control
            same(memory, learn(parts[1][1], parts[1][0], trainer=trainer))


def test_exact_fits_of_margins_are_those_of_the_rows(parts, request):
    held = learn(*(part.observations() for part in parts[0]), refit=True)
    request.getfixturevalue("too_many")
    found = learn(*parts[1], refit=True)
    assert found.hypergraph == held.hypergraph and found.num_rows == held.num_rows == 6000
    assert found.structure.hypergraph == held.structure.hypergraph
    assert {("a", "b"), ("a", "d", "e")} <= set(found.structure.hypergraph.edges)
    assert torch.allclose(found.tables, held.tables, atol=2e-3)
    for one, other in zip(found.selection.rounds, held.selection.rounds, strict=True):
        assert one.validation_loss == pytest.approx(other.validation_loss, abs=1e-9)
        assert one.validation_kl is None and other.validation_kl is not None  # entropies need the rows


def test_a_sampled_model_is_close_to_an_exact_one(parts, too_many):
    options = {"sampling": QUICK, "false_discovery_rate": None}
    sampled, exact = (learn(*parts[0], trainer=name, **options) for name in ("sampled", "exact"))
    rows = planted(2000, 9)
    assert sampled.gain(rows) == pytest.approx(exact.gain(rows), abs=0.02)
    assert exact.gain(rows) > 0.4


def test_a_quarter_is_set_aside_by_the_source(parts, too_many):
    whole = MemoryRows.of(planted())
    learned = learn(whole, seed=5)
    train, _ = whole.split([0.75, 0.25], 5)
    assert learned.num_rows == train.total_count


def test_a_learned_run_is_resumed(parts, tmp_path, too_many):
    folder = tmp_path / "run"
    whole = learn(*parts[0], run=RunOptions(checkpoint=folder))
    (folder / "final.safetensors").unlink()
    same(whole, learn(*parts[1], run=RunOptions(checkpoint=folder, resume=True)))
    with raises("other-run", "checkpoint"):
        learn(parts[0][1], parts[0][0], run=RunOptions(checkpoint=folder, resume=True))


def test_what_needs_the_rows_is_refused(parts, too_many):
    with raises("over-budget", "trainer"):
        learn(*parts[0], trainer="pseudo-likelihood")
    with raises("over-budget", "trainer"):
        fit_collection(parts[0][0], InteractionHypergraph.from_order(DOMAIN, 2), trainer="pseudo-likelihood")
    groups = JoinedColumns(DOMAIN, (ColumnGroup(("a", "b"), ((0, 1), (1, 0))),))
    for join in ("exclusive", "determined", groups):
        with raises("over-budget", "join"):
            learn(*parts[0], join=join)


def test_progress_tells_the_gain_over_independent_columns(parts, capsys, too_many):
    learned = learn(*parts[0], run=RunOptions(progress=True))
    held = parts[0][1].observations()
    gain = score_rows(learned.independent, held).nll - learned.selection.best.validation_loss
    assert f"gain over independence {gain:.4f}" in capsys.readouterr().err


def test_a_trainer_takes_margins(too_many):
    rows = planted()
    graph = InteractionHypergraph.from_order(DOMAIN, 2)
    trainers = [ExactTrainer(each, graph) for each in (rows, rows_of(MemoryRows.of(rows)))]
    for trainer in trainers:
        trainer.train()
    assert torch.equal(trainers[0].tables, trainers[1].tables)
