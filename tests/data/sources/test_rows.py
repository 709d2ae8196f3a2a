"""Rows wherever they lie: equal bits from memory, files and clusters, with pandas as the oracle."""

import functools
import itertools
import operator
import socket
import threading
import time
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.core.operations import row_log_likelihood
from pyro_hoim.data import MemoryRows, Sum, open_rows
from pyro_hoim.data.frames import as_observations
from pyro_hoim.data.sources import sourced
from pyro_hoim.data.sources.cluster import local_client
from pyro_hoim.data.sources.folds import RowBatch, row_hashes
from pyro_hoim.errors import InputTypeError, IntractableError, MissingDataError, UnknownNameError
from pyro_hoim.log_linear import L2

COMPLETE = ("number", "text", "truth", "size")
SETS = [
    (),
    *itertools.combinations(COMPLETE, 1),
    *itertools.combinations(COMPLETE, 2),
    ("truth", "number"),
    ("size", "text", "number"),
    COMPLETE,
]


def counted(frame, domain, edge):
    """Counts of the cells of a set by pandas, row-major."""
    if not edge:
        return [len(frame)]
    labels = [frame[name].astype(str).to_list() for name in edge]
    found = Counter(zip(*labels, strict=True))
    return [found[cell] for cell in itertools.product(*(domain[name].labels for name in edge))]


def test_all_sources_find_the_domain_of_pandas(sources, frame):
    expected = Observations.from_pandas(frame)
    for rows in sources.values():
        assert (rows.domain, rows.num_rows) == (expected.domain, expected.num_rows)
        assert (rows.total_count, rows.num_missing_cells) == (expected.total_count, expected.num_missing_cells)
    assert expected.domain["size"].labels == ("none", "low", "high")


def test_margins_of_many_sets_are_those_of_pandas_with_equal_bits(sources, frame):
    domain = sources["memory"].domain
    expected = [n for edge in SETS for n in counted(frame, domain, edge)]
    for rows in sources.values():
        found = rows.marginal_counts(SETS)
        assert (found.dtype, found.tolist()) == (torch.long, expected)


def test_margins_are_those_of_crosstab(sources, frame):
    expected = pd.crosstab(frame["text"], frame["truth"]).reindex(["x", "y", "é"]).to_numpy()
    found = sources["files"].marginal_counts([("text", "truth")])
    assert np.array_equal(found.reshape(3, 2).numpy(), expected)


def test_control_a_row_more_is_seen(sources, frame):
    more = open_rows(pd.concat([frame, frame.iloc[:1]]))
    assert not torch.equal(more.marginal_counts(SETS), sources["memory"].marginal_counts(SETS))


def test_batches_come_in_order_and_hold_all_rows(sources, frame):
    expected = Observations.from_pandas(frame)
    for rows in sources.values():
        parts = [*rows.batches()]
        assert np.array_equal(np.concatenate([part.positions for part in parts]), np.arange(len(frame)))
        assert np.array_equal(np.concatenate([part.codes for part in parts], axis=1).T, expected.codes.numpy())
        assert {part.codes.dtype for part in parts} == {np.dtype(np.int8)}
        assert max(part.num_rows for part in parts) <= rows.chunk_rows
        assert torch.equal(rows.observations().codes, expected.codes)


def test_distinct_rows_are_those_of_observations(sources, frame, refused):
    expected = Observations.from_pandas(frame).unique()
    for rows in sources.values():
        found = rows.distinct()
        assert torch.equal(found.codes, expected.codes) and torch.equal(found.counts, expected.counts)
        with refused(IntractableError, "over-budget"):
            rows.distinct(max_rows=expected.num_rows - 1)


def test_splits_are_equal_disjoint_and_complete(sources):
    first, *others = (rows.split([0.2, 0.5, 0.3], seed=3) for rows in sources.values())
    expected = [part.observations().codes for part in first]
    assert sum(map(len, expected)) == first[0]._num_all()
    for parts in others:
        for part, codes in zip(parts, expected, strict=True):
            assert torch.equal(part.observations().codes, codes)
            assert part.num_rows == len(codes)
    positions = [{int(i) for batch in part.batches() for i in batch.positions} for part in first]
    assert sum(map(len, positions)) == len(set().union(*positions))
    again = [half.num_rows for half in first[1].split([0.5, 0.5], seed=3)]
    assert sum(again) == first[1].num_rows
    assert min(again) > 0.4 * sum(again)  # the same seed again is another stream, or one part would be empty


def test_other_seeds_split_otherwise(sources):
    one, other = (sources["memory"].split([0.5, 0.5], seed=seed)[0].observations().codes for seed in (1, 2))
    assert len(one) != len(other) or not torch.equal(one, other)


def test_samples_are_equal_and_without_replacement(sources):
    first, *others = sources.values()
    expected = first.sample(40, seed=5)
    for rows in others:
        assert torch.equal(rows.sample(40, seed=5).codes, expected.codes)
    assert expected.num_rows == 40
    assert torch.equal(first.sample(10**4, seed=5).codes, first.observations().codes)
    assert not torch.equal(first.sample(40, seed=6).codes, expected.codes)


def test_hashes_are_uniform_and_do_not_depend_on_neighbours():
    found = row_hashes(np.arange(200_000), seed=1) / 2**53
    bins = np.bincount((found * 64).astype(int), minlength=64)
    chi_square = float(((bins - 3125) ** 2 / 3125).sum())
    assert chi_square < 143.7  # 63 degrees of freedom, false alarms 1e-6 / 35 (and below: hashes too even)
    assert chi_square > 15
    lag = np.corrcoef(found[:-1], found[1:])[0, 1]
    assert abs(lag) < 5 / 200_000**0.5
    assert np.array_equal(row_hashes(np.arange(5, 9), 1), row_hashes(np.arange(20), 1)[5:9])
    even = np.bincount(np.arange(200_000) % 64, minlength=64)
    assert ((even - 3125) ** 2 / 3125).sum() < 15  # the control


def test_missing_cells_are_counted_refused_and_dropped(sources, frame, refused):
    expected = frame.dropna()
    for rows in sources.values():
        with refused(MissingDataError, "missing-cells", f"{frame['gaps'].isna().sum()} missing cells in 'gaps'"):
            rows.marginal_counts([("number", "gaps")])
        complete = rows.drop_missing()
        assert complete.num_rows == len(expected)
        assert complete.project(["text"]).num_rows == len(expected)  # also where the gaps are not looked at
        found = complete.marginal_counts([("gaps", "truth")])
        assert found.tolist() == pd.crosstab(expected["gaps"], expected["truth"]).to_numpy().ravel().tolist()


def test_folds_add_integers_and_nothing_else(sources, frame, refused):
    for rows in sources.values():
        found = rows.fold(lambda batch: (batch.codes[:1] == np.arange(4)[:, None]).sum(1))
        assert found.tolist() == frame["number"].value_counts().sort_index().to_list()
    with refused(InputTypeError, "wrong-type"):
        sources["memory"].fold(lambda batch: batch.codes.sum(1) / 2)


def test_sums_of_integers_do_not_depend_on_order_and_those_of_floats_do():
    parts = [np.array([2**52 + 1]), np.array([1]), np.array([-(2**52)])]
    add = Sum(lambda batch: batch.codes.sum(1)).combine
    assert len({int(add(order)[0]) for order in itertools.permutations(parts)}) == 1
    floats = [1e16, 1.0, -1e16]
    assert len({functools.reduce(operator.add, order) for order in itertools.permutations(floats)}) > 1


def test_columns_of_a_view_alone_are_counted(sources):
    for rows in sources.values():
        part = rows.project(["truth", "number"])
        assert part.domain.names == ("number", "truth")
        assert torch.equal(part.marginal_counts([("truth",)]), rows.marginal_counts([("truth",)]))
        assert next(part.batches()).codes.shape[0] == 2


def test_sets_are_refused_before_a_pass(sources, refused):
    rows = sources["files"]
    with refused(ValueError, "unknown-name", "did you mean 'text'"):
        rows.marginal_counts([("txt",)])
    with refused(ValueError, "repeated-name"):
        rows.marginal_counts([("text", "text")])
    with refused(IntractableError, "over-budget"):
        rows.marginal_counts([COMPLETE], max_cells=71)
    assert rows.num_cells([COMPLETE]) == 72


def test_counts_of_cells_are_added(client, refused):
    cells = pd.DataFrame({"a": list("xxyy"), "b": [0, 1, 0, 1], "count": [5, 0, 7, 2**40]})
    expected = Observations.from_pandas(cells)
    import dask.dataframe as dd

    for rows in (open_rows(cells), open_rows(dd.from_pandas(cells, npartitions=2), cluster=client)):
        assert rows.marginal_counts([("b",), ("a", "b")]).tolist() == [12, 2**40, 5, 0, 7, 2**40]
        assert rows.total_count == expected.total_count
        assert torch.equal(rows.distinct().counts, expected.unique().counts)
        with refused(ValueError, "conflict"):
            rows.split([0.5, 0.5], seed=0)


def test_wide_columns_and_many_levels_keep_their_codes():
    domain = Domain.from_cardinalities([126, 127, 128, 40_000])
    codes = torch.stack([torch.arange(40_000) % n for n in domain.cardinalities], 1)
    rows = MemoryRows.of(Observations(domain, codes), chunk_rows=999)
    assert torch.equal(rows.distinct().codes, Observations(domain, codes).unique().codes)
    for name in domain.names:
        expected = Observations(domain, codes).marginal_counts([name])
        assert torch.equal(rows.marginal_counts([name]).double(), expected)


def test_fractional_weights_are_refused(refused):
    data = Observations(Domain.from_cardinalities([2]), torch.tensor([[0]]), torch.tensor([0.5]))
    with refused(ValueError, "conflict"):
        open_rows(data)


def test_one_batch_of_one_column_of_one_row():
    rows = open_rows(pd.DataFrame({"a": ["x"]}))
    assert rows.marginal_counts([("a",), ()]).tolist() == [1, 1]
    (batch,) = rows.batches()
    assert isinstance(batch, RowBatch) and batch.weights.tolist() == [1]


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True])
def test_chunks_are_whole_numbers(wrong, refused):
    with refused(ValueError, "out-of-range"):
        open_rows(pd.DataFrame({"a": ["x"]}), chunk_rows=wrong)


# Models fitted to rows wherever they lie: equal bits.

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


# The cluster of threads that is used where no address of one is given: it needs no network.


@pytest.fixture
def no_ports(monkeypatch):
    """No socket may listen."""

    def refuse(*arguments):
        raise PermissionError("no port may be opened")

    monkeypatch.setattr(socket.socket, "bind", refuse, raising=False)


@pytest.mark.usefixtures("no_ports")
def test_the_local_cluster_opens_no_port():
    import dask.dataframe as dd

    frame = dd.from_pandas(pd.DataFrame({"a": list("xyxxy")}), npartitions=3)
    with local_client() as client, client.cluster:
        rows = open_rows(frame, cluster=client)
        assert rows.marginal_counts([("a",)]).tolist() == [3, 2]
        assert client.scheduler_info()["address"].startswith("inproc://")


@pytest.mark.usefixtures("no_ports")
def test_control_a_server_is_refused():
    with socket.socket() as listening, pytest.raises(PermissionError):
        listening.bind(("127.0.0.1", 0))


def test_nothing_is_warned_of_where_warnings_are_errors():
    with warnings.catch_warnings(action="error"), local_client(workers=2) as client, client.cluster:
        assert client.submit(sum, (1, 2)).result() == 3


def test_two_clusters_stand_side_by_side():
    with local_client() as one, one.cluster, local_client() as other, other.cluster:
        assert one.submit(sum, (1, 2)).result() == other.submit(sum, (1, 2)).result() == 3


def _slowly(batch):
    time.sleep(0.03)
    return (batch.codes == np.array([[0], [1]])).sum(1)


def test_a_worker_that_ends_on_the_way_costs_no_row():
    import dask.dataframe as dd

    frame = pd.DataFrame({"a": list("xyxxy") * 40, "b": list("yx") * 100})
    with local_client(workers=2) as client, client.cluster as cluster:
        rows = open_rows(dd.from_pandas(frame, npartitions=40), cluster=client)
        assert rows.num_rows == 200
        worker = cluster.workers[0]
        end = threading.Timer(0.1, client.sync, [worker.close])
        end.start()
        assert rows.fold(_slowly).tolist() == [120, 100]
        end.join()
        assert worker.status.name == "closed"
