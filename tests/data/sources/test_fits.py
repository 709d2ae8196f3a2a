"""Models fitted to rows wherever they lie: equal bits."""

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import InteractionHypergraph, Observations
from pyro_hoim.core.operations import row_log_likelihood
from pyro_hoim.data import open_rows
from pyro_hoim.data.frames import as_observations
from pyro_hoim.data.sources import sourced
from pyro_hoim.errors import IntractableError, MissingDataError, UnknownNameError
from pyro_hoim.log_linear import L2

COLUMNS = ["number", "text", "truth", "size"]


@pytest.fixture(scope="module")
def held(frame):
    """Those of the columns without gaps in memory."""
    return Observations.from_pandas(frame[COLUMNS])


@pytest.fixture
def few(monkeypatch):
    """No distinct rows fit."""
    monkeypatch.setattr(sourced, "HELD_CELLS", 10)


@pytest.mark.parametrize("options", [{}, {"penalty": L2(1.0)}, {"objective": "pseudo-likelihood"}])
def test_fits_are_those_of_memory_with_equal_bits(sources, held, options):
    penalty = options.get("penalty") or L2(0.5)
    options = {**options, "penalty": penalty}
    graph = InteractionHypergraph.from_order(held.domain, 2)
    expected = hoim.log_linear.fit(graph, held.unique(), **options)
    for rows in sources.values():
        found = hoim.log_linear.fit(graph, rows.project(COLUMNS), **options)
        assert torch.equal(found.theta, expected.theta)
        assert found.log_likelihood == expected.log_likelihood


@pytest.mark.usefixtures("few")
def test_fits_to_margins_are_those_of_rows(sources, held):
    penalty = L2(0.5)
    graph = InteractionHypergraph.from_order(held.domain, 2)
    rows = hoim.log_linear.fit(graph, held, penalty=penalty)
    margins = hoim.log_linear.fit(graph, held.marginal_counts(graph.edges), penalty=penalty)
    assert torch.allclose(margins.theta, rows.theta, atol=1e-6)
    for source in sources.values():
        found = hoim.log_linear.fit(graph, source.project(COLUMNS), penalty=penalty)
        assert found.data is None
        assert torch.equal(found.theta, margins.theta)
        assert found.num_rows == held.total_count


def test_the_front_reads_the_columns_of_a_formula(sources, frame):
    expected = hoim.fit("text*truth + number", frame, prior="ridge:1")
    for rows in sources.values():
        found = hoim.fit("text*truth + number", rows, prior="ridge:1")
        assert found.hypergraph == expected.hypergraph
        assert torch.allclose(found.theta, expected.theta, atol=1e-9)
        assert torch.equal(hoim.fit(rows, edges=["text:truth", ("number",)], prior="ridge:1").theta, found.theta)
    with pytest.raises(UnknownNameError, match="did you mean"):
        hoim.fit("txt*truth", sources["files"])


def test_missing_cells_are_dropped_or_summed_over(sources, frame):
    for missing in ("drop", "marginalise"):
        expected = hoim.fit("gaps*truth", frame, missing=missing, prior=L2(1.0))
        for name in ("memory", "files", "dask"):
            found = hoim.fit("gaps*truth", sources[name], missing=missing, prior=L2(1.0))
            assert torch.allclose(found.theta, expected.theta, atol=1e-6)
    with pytest.raises(MissingDataError):
        hoim.fit("gaps*truth", sources["files"])


@pytest.mark.usefixtures("few")
def test_missing_cells_of_margins(sources, frame):
    expected = hoim.fit("gaps*truth", frame, missing="drop", prior=L2(1.0))
    found = hoim.fit("gaps*truth", sources["files"], missing="drop", prior=L2(1.0))
    assert torch.allclose(found.theta, expected.theta, atol=1e-6)
    with pytest.raises(MissingDataError):
        hoim.fit("gaps*truth", sources["files"])


def test_models_are_learned_from_any_source_with_equal_bits(sources, held):
    parts = held.unique().split([0.7, 0.3], seed=3)
    expected = hoim.learn(*parts)
    first = None
    for name in ("memory", "files", "dask"):
        rows = sources[name].project(COLUMNS)
        found = hoim.learn(rows, seed=2)
        first = first or found
        assert found.hypergraph == first.hypergraph
        assert torch.equal(found.tables, first.tables)
        assert found.gain(rows) == first.gain(rows)
    assert first.hypergraph.domain == expected.hypergraph.domain


def test_scores_are_those_of_memory(sources, held):
    model = hoim.fit(held, order=2, prior="ridge:1")
    expected = hoim.score(model, held.unique())
    for rows in sources.values():
        assert hoim.score(model, rows.project(COLUMNS)) == expected


def test_what_is_said_of_rows_is_said_of_each_in_its_place(sources, held, frame):
    model = hoim.fit(held, order=2, prior="ridge:1")
    gaps = frame[COLUMNS].assign(text=frame["text"].mask(frame["gaps"].isna()))
    expected = hoim.predict(model, held, "text"), row_log_likelihood(model, held)
    completed = hoim.impute(model, gaps, seed=1)
    for rows in sources.values():
        part = rows.project(COLUMNS)
        assert hoim.predict(model, part, "text").equals(expected[0])
        assert row_log_likelihood(model, part).equals(expected[1])
    found = hoim.impute(model, open_rows(gaps, domain=held.domain, chunk_rows=7), seed=1)
    assert found["text"].tolist() == completed["text"].tolist() and completed["text"].nunique() == 3


def test_control_one_row_less_is_another_model(sources, frame):
    other = open_rows(frame.iloc[1:], domain=sources["memory"].domain)
    one, two = (hoim.fit("text*truth", rows, prior="ridge:1") for rows in (sources["files"], other))
    assert not torch.equal(one.theta, two.theta)


@pytest.mark.parametrize("levels", [3, 8])  # counted in a table, and merged
def test_distinct_rows_with_gaps(levels):
    random = np.random.default_rng(0)
    codes = torch.from_numpy(random.integers(-1, levels, (3_000, 8)))
    codes = codes[torch.from_numpy(random.integers(0, 700, 3_000))]
    data = Observations(hoim.Domain.from_cardinalities([levels] * 8), codes)
    found = open_rows(data, chunk_rows=333).distinct()
    assert torch.equal(found.codes, data.unique().codes) and torch.equal(found.counts, data.unique().counts)


def test_too_many_rows_for_what_needs_them_are_refused(monkeypatch):
    from pyro_hoim.data.sources import rows

    monkeypatch.setattr(rows, "MAX_CELLS", 10)
    source = open_rows(pd.DataFrame({"a": [0, 1, 2] * 9, "b": [*range(9)] * 3}))
    with pytest.raises(IntractableError, match="distinct"):
        as_observations(source)
