"""Random batches of rows: gradients that are right on average, also in Pyro; and information from margins."""

import itertools

import numpy as np
import pandas as pd
import pyro
import pytest
import torch

from pyro_hoim import HierarchicalLogLinear, InteractionHypergraph, LogLinearEnergy, Observations
from pyro_hoim.data import InformationTable, MemoryRows, RowSource, open_rows
from pyro_hoim.errors import InputError, MissingDataError

from support.calls import noted

COLUMNS = ["number", "text", "truth", "size"]


@pytest.fixture(scope="module")
def uneven(frame, tmp_path_factory):
    """Sorted rows in pieces of very different sizes, which are unlike one another."""
    folder = tmp_path_factory.mktemp("uneven")
    rows = frame[COLUMNS].sort_values(["truth", "number"]).reset_index(drop=True)
    for i, (start, stop) in enumerate(itertools.pairwise([0, 10, 30, 700, 1000])):
        rows.iloc[start:stop].to_parquet(folder / f"{i}.parquet")
    return open_rows(folder), Observations.from_pandas(rows)


def log_likelihood(graph, theta, rows):
    """Log-likelihood of all rows, with log Z by enumeration."""
    energy = LogLinearEnergy.from_theta(graph, theta)
    cells = torch.cartesian_prod(*(torch.arange(n) for n in graph.domain.cardinalities))
    log_z = torch.logsumexp(-energy.energy(cells), 0)
    return -(rows.counts * energy.energy(rows.codes)).sum() - rows.total_count * log_z


def gradient(graph, theta, rows):
    theta = theta.clone().requires_grad_()
    log_likelihood(graph, theta, rows).backward()
    return theta.grad.numpy()


def z_scores(draws, expected):
    """Distances of means from what they should be, in standard errors."""
    return (draws.mean(0) - expected) / (draws.std(0, ddof=1) / np.sqrt(len(draws)) + 1e-12)


def test_gradients_of_batches_are_unbiased(uneven):
    source, rows = uneven
    graph = InteractionHypergraph.from_order(rows.domain, 2)
    theta = torch.linspace(-0.5, 0.5, graph.num_parameters, dtype=torch.float64)
    expected = gradient(graph, theta, rows)
    draws = np.stack([gradient(graph, theta, batch) for batch in itertools.islice(source.minibatches(8, seed=4), 200)])
    assert np.abs(z_scores(draws, expected)).max() < 4.5


def test_control_pieces_of_equal_probability_are_biased(uneven, monkeypatch):
    source, rows = uneven
    graph = InteractionHypergraph.from_order(rows.domain, 1)
    theta = torch.zeros(graph.num_parameters, dtype=torch.float64)
    monkeypatch.setattr("pyro_hoim.data.sources.rows._first_and_total", lambda batch: (batch.positions[:1], 250))
    draws = np.stack([gradient(graph, theta, b) for b in itertools.islice(source.minibatches(8, seed=4), 200)])
    assert np.abs(z_scores(draws, gradient(graph, theta, rows))).max() > 6


def test_a_plate_of_pyro_scales_as_the_counts_do(uneven):
    source, rows = uneven
    graph = InteractionHypergraph.from_order(rows.domain, 2)
    law = HierarchicalLogLinear(graph, torch.linspace(-0.5, 0.5, graph.num_parameters, dtype=torch.float64))
    batch = next(source.minibatches(5, seed=0))
    assert batch.is_weighted  # also where N / m is whole

    def model():
        with pyro.plate("rows", int(rows.total_count), subsample_size=5, subsample=torch.arange(5)):
            pyro.sample("x", law, obs=batch.codes)

    found = float(pyro.poutine.trace(model).get_trace().log_prob_sum())
    assert found == pytest.approx(float((batch.counts * law.log_prob(batch.codes)).sum()), rel=1e-12)


def test_batches_of_all_sources(sources, frame):
    for name, rows in sources.items():
        batches = [*itertools.islice(rows.project(COLUMNS).minibatches(50, seed=1, per_piece=3), 4)]
        assert all(batch.num_rows == 50 and batch.total_count == pytest.approx(len(frame)) for batch in batches), name
        assert len({batch.codes.numpy().tobytes() for batch in batches}) == 4


def test_views_and_counts_weigh_the_pieces():
    cells = pd.DataFrame({"a": list("xyxy"), "b": [0, 0, 1, 1], "count": [1, 0, 3, 996]})
    rows = open_rows(cells, chunk_rows=1)
    drawn = torch.cat([batch.codes for batch in itertools.islice(rows.minibatches(1, seed=2), 300)])
    assert not bool(((drawn[:, 0] == 1) & (drawn[:, 1] == 0)).any())
    assert 0.97 < float(((drawn[:, 0] == 1) & (drawn[:, 1] == 1)).double().mean()) <= 1
    for wrong in ({"size": 0}, {"size": 2, "per_piece": 0}, {"size": 1.5}):
        with pytest.raises(InputError):
            rows.minibatches(**{"seed": 0, **wrong})


SETS = [*itertools.combinations(COLUMNS, 2), *itertools.combinations(COLUMNS, 3), ("truth",), COLUMNS]


@pytest.mark.parametrize("correction", [None, "miller-madow"])
def test_information_from_margins_is_that_of_rows(sources, frame, correction):
    expected = InformationTable(Observations.from_pandas(frame[COLUMNS]), correction=correction)
    first = None
    for rows in sources.values():
        found = InformationTable(rows.project(COLUMNS), correction=correction)
        for quantity in ("interaction_information", "mutual_information", "entropy", "divergence"):
            values = getattr(found, quantity)(SETS)
            assert torch.allclose(values, getattr(expected, quantity)(SETS), atol=1e-12)
            if first is None and quantity == "interaction_information":
                first = values
            assert quantity != "interaction_information" or torch.equal(values, first)


def test_triples_and_their_subsets_cost_one_pass(sources, monkeypatch):
    passes = noted(monkeypatch, RowSource, "reduce")
    table = InformationTable(sources["files"].project(COLUMNS))
    table.interaction_information([*itertools.combinations(COLUMNS, 2), *itertools.combinations(COLUMNS, 3)])
    table.interaction_information(itertools.combinations(COLUMNS, 3))
    assert len(passes) == 1


def test_control_information_of_other_rows(sources, frame):
    one = InformationTable(sources["files"].project(COLUMNS)).interaction_information([("text", "truth")])
    other = InformationTable(open_rows(frame.iloc[50:])).interaction_information([("text", "truth")])
    assert abs(float(one - other)) > 1e-6


def test_gaps_are_refused(sources):
    with pytest.raises(MissingDataError):
        InformationTable(sources["files"]).entropy([("gaps", "text")])
    assert isinstance(sources["memory"], MemoryRows)
