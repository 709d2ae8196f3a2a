"""Learning of a whole network: smoothing, workers, checkpoints, what is reported."""

import dataclasses
import itertools
import math
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch

from pyro_hoim import Domain, InputError, IntractableError
from pyro_hoim.data import MemoryRows, Observations, open_rows
from pyro_hoim.data.sources import rows
from pyro_hoim.datasets import load_breast_cancer, load_mushroom
from pyro_hoim.dependency_network import AIC, EBIC, MDL, edge_information, leaf_probs, learn_network, learn_node
from pyro_hoim.dependency_network.learn import _rows, network
from pyro_hoim.dependency_network.learn._row_kernels import add_bits, bit_level, order_rows, pack_bits, split_bits
from pyro_hoim.dependency_network.learn._rows import PreparedRows, bit_keys, bit_planes, by_place, no_bits
from pyro_hoim.dependency_network.learn._search import bit_places, search
from pyro_hoim.dependency_network.learn.network import NodeTask, SearchOptions
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import raises

from support.calls import noted


def related(seed=0, num_rows=300, missing=0.0):
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 4, "e": 2})
    codes = np.empty((num_rows, 5), dtype=np.int64)
    codes[:, 1] = rng.integers(0, 3, num_rows)
    codes[:, 2] = rng.random(num_rows) < 0.3
    codes[:, 0] = (codes[:, 1] > 0) ^ (rng.random(num_rows) < 0.1)
    codes[:, 3] = (codes[:, 1] + codes[:, 2] + (rng.random(num_rows) < 0.2)) % 4
    codes[:, 4] = codes[:, 3] // 2
    codes[rng.random(codes.shape) < missing] = -1
    return Observations(domain, torch.from_numpy(codes))


def check_equal(one, other):
    assert one.nodes == other.nodes and one.edges == other.edges
    assert (one.penalty, one.alpha, one.num_observations) == (other.penalty, other.alpha, other.num_observations)
    for first, second in zip(one.conditionals.nodes, other.conditionals.nodes, strict=True):
        assert first.graph == second.graph
        assert torch.equal(first.probs, second.probs)
    for first, second in zip(one.counts, other.counts, strict=True):
        assert torch.equal(first, second)


# Tables and what is reported


def test_every_node_is_learned_as_by_itself():
    data = related(missing=0.1)
    reads = {"a": ["b", "c"], "e": []}
    learned = learn_network(data, penalty=AIC(), reads=reads, max_leaves=6, lossless=True, alpha=2.0)
    assert learned.conditionals.domain == data.domain
    assert (learned.penalty, learned.alpha, learned.num_observations) == ("aic", 2.0, 300.0)
    for name, counts, report in zip(data.domain.names, learned.counts, learned.nodes, strict=True):
        graph, own, own_report = learn_node(
            data, name, penalty=AIC(), reads=reads.get(name), max_leaves=6, lossless=True
        )
        node = learned.conditionals.node(name)
        assert node.graph == graph
        assert torch.equal(counts, own)
        assert report == own_report
        size = data.domain[name].cardinality
        expected = (own + 2 / size) / (own.sum(1, keepdim=True) + 2)
        torch.testing.assert_close(node.probs, expected, rtol=1e-14, atol=0)
    assert learned.cost == pytest.approx(sum(report.cost for report in learned.nodes) / 5, abs=1e-15)


def test_smoothing_of_leaf_tables():
    counts = torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert leaf_probs(counts, 0.0).tolist() == [[0.75, 0.25, 0.0], [1 / 3, 1 / 3, 1 / 3]]
    assert leaf_probs(counts, 3.0).tolist() == [[4 / 7, 2 / 7, 1 / 7], [1 / 3, 1 / 3, 1 / 3]]
    assert leaf_probs(counts, 1e-310).sum(1).tolist() == [1.0, 1.0]
    learned = learn_network(related(), alpha=0.0)
    check_equal(learned.with_alpha(1.5), learn_network(related(), alpha=1.5))
    with pytest.raises(InputError, match="alpha: expected a finite number from 0"):
        learned.with_alpha(-1.0)


def test_fc_limit_is_that_of_the_rows_law():
    data = related()
    learned = learn_network(data, alpha=0.0)
    p = data.table() / data.total_count
    total = 0.0
    for i, name in enumerate(data.domain.names):
        own = p / p.sum(i, keepdim=True)
        theta = learned.conditionals.full_table(name)
        keep = p > 0
        total += float((p[keep] * (own[keep] / theta[keep]).log()).sum())
    assert learned.fc_limit == pytest.approx(total / 5, abs=1e-12)
    assert learned.fc_limit > 0.01
    assert learn_network(related(missing=0.1)).fc_limit is None


def test_fc_limit_counts_the_variables_that_may_not_be_read():
    """A node kept from its only neighbour loses log 2 - H(1/9); with what it may read alone it would lose nothing."""
    table = [[[40, 5], [40, 5]], [[5, 40], [5, 40]]]
    data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), table)
    learned = learn_network(data, reads={"a": ["b"], "c": ["b"]})
    lost = math.log(2) + math.log(1 / 9) / 9 + math.log(8 / 9) * 8 / 9
    assert [report.divergence for report in learned.nodes] == pytest.approx([lost, 0.0, lost], abs=1e-12)
    assert learned.fc_limit == pytest.approx(2 * lost / 3, abs=1e-12)
    assert learned.nodes[0].lossless_entropy == pytest.approx(math.log(2), abs=1e-12)


def test_pseudo_likelihood_of_the_training_rows_is_minus_the_entropies():
    data = related(3)
    learned = learn_network(data, alpha=0.0)
    mean = float(learned.conditionals.log_pseudo_prob(data.codes).double().mean())
    assert mean == pytest.approx(-sum(report.entropy for report in learned.nodes), abs=1e-11)


def test_conditions_of_theorem_5_are_reported():
    data = related()
    assert learn_network(data, lossless=True).conditions.hold
    without = learn_network(data).conditions
    assert (without.lossless_is_candidate, without.is_positive, without.vanishes) == (False, True, True)
    assert not learn_network(data, lossless=True, reads={"a": ["b"]}).conditions.lossless_is_candidate
    assert not learn_network(data, lossless=True, max_leaves=10).conditions.lossless_is_candidate
    wide = Observations(Domain.from_cardinalities([2] * 70), torch.eye(70, dtype=torch.long)[:30])
    learned = learn_network(wide, lossless=True)
    assert not learned.conditions.lossless_is_candidate
    assert (learned.nodes[0].lossless_leaves, learned.nodes[0].lossless_cost) == (2**69, math.inf)


def test_dependencies_of_a_chain_are_found():
    """Rows of a Markov chain: every variable reads its neighbours and nothing else."""
    rng = np.random.default_rng(1)
    codes = np.empty((20_000, 6), dtype=np.int64)
    codes[:, 0] = rng.integers(0, 2, 20_000)
    for j in range(1, 6):
        codes[:, j] = codes[:, j - 1] ^ (rng.random(20_000) < 0.2)
    data = Observations(Domain.from_cardinalities([2] * 6), torch.from_numpy(codes))
    learned = learn_network(data)
    expected = {(f"x{i}", f"x{j}") for i, j in itertools.product(range(6), repeat=2) if abs(i - j) == 1}
    assert set(learned.conditionals.edges) == expected


def test_dependencies_that_are_not_there_are_rarely_found():
    """A pair of independent columns is split on with P(chi-square(1) > log N) = 0.0086, of 600 pairs about 5."""
    rng = np.random.default_rng(1)
    domain = Domain.from_cardinalities([2] * 6)
    found = 0
    for _ in range(40):
        data = Observations(domain, torch.from_numpy(rng.integers(0, 2, (1000, 6))))
        found += len({frozenset(edge) for edge in learn_network(data).conditionals.edges})
    assert found <= scipy.stats.binom.ppf(1 - 1e-6, 600, scipy.stats.chi2.sf(math.log(1000), 1))


# Many columns


def wide(num_rows=600, num_columns=80):
    """Columns of 0 and 1, of which the first says much of the second, and no others of any."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 2, (num_rows, num_columns))
    codes[:, 1] = codes[:, 0] ^ (rng.random(num_rows) < 0.2)
    return Observations(Domain.from_cardinalities([2] * num_columns), torch.from_numpy(codes))


def test_ebic_is_mdl_with_the_price_of_the_choice_among_columns():
    for k, n, m in itertools.product((1, 4), (10.0, 1e6), (1, 2, 500)):
        assert EBIC(m)(k, n) == pytest.approx(k * (math.log(n) + 2 * math.log(m)) / (2 * n), rel=1e-14)
        assert EBIC(1)(k, n) == MDL()(k, n)
    data = related()
    check_equal(
        learn_network(data, penalty="ebic"), dataclasses.replace(learn_network(data, penalty=EBIC(4)), penalty="ebic")
    )
    (graph, *_), (other, *_) = (learn_node(data, "d", penalty=penalty) for penalty in ("ebic", EBIC(4)))
    assert graph.reads == other.reads


def test_of_many_columns_ebic_takes_those_that_say_something_and_mdl_others_too():
    """A first split on a column that says nothing is taken where a chi-square exceeds 2 N R(1, N).

    Of 3,160 pairs that is 0.3 under ebic, of which seven or more have probability 5e-8, and 36 under mdl.
    """
    arrows = {penalty: {*learn_network(wide(), penalty=penalty).conditionals.edges} for penalty in ("ebic", "mdl")}
    planted = {("x0", "x1"), ("x1", "x0")}
    tail = {
        penalty: scipy.stats.chi2.sf(1200 * price(1, 600), 1) for penalty, price in (("ebic", EBIC(79)), ("mdl", MDL()))
    }
    assert 3160 * tail["ebic"] < 0.35 and 3160 * tail["mdl"] > 35
    assert planted <= arrows["ebic"] and len(arrows["ebic"] - planted) <= 12
    assert len(arrows["mdl"] - planted) > 40


# Workers


@pytest.mark.usefixtures("shared_data")
@pytest.mark.parametrize("jobs", [2, -1])
def test_jobs_do_not_change_the_result(jobs):
    data = load_breast_cancer()
    check_equal(learn_network(data, jobs=jobs, penalty="aic"), learn_network(data, penalty="aic"))


def test_a_search_travels_between_processes():
    data = related(missing=0.1)
    prepared = network.PreparedRows.from_rows(data)
    task = network.NodeTask(prepared, data.domain, 0, None)
    options = network.SearchOptions(AIC(), False, None)
    search, arguments = pickle.loads(pickle.dumps((network.search, task.arguments(options))))
    graph, counts, report = task.finish(pickle.loads(pickle.dumps(search(*arguments))), options)
    expected_graph, expected_counts, expected_report = learn_node(data, "a", penalty="aic")
    assert graph == expected_graph and report == expected_report
    assert torch.equal(counts, expected_counts)


@pytest.mark.slow
def test_processes_give_the_same_result():
    data = related()
    expected = learn_network(data, penalty="aic")
    with joblib.parallel_config(backend="loky", n_jobs=2):
        check_equal(learn_network(data, penalty="aic"), expected)


@pytest.mark.usefixtures("shared_data")
def test_a_dask_cluster_gives_the_same_result():
    from distributed import Client, LocalCluster

    data = load_breast_cancer()
    expected = learn_network(data, penalty="aic")
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        check_equal(learn_network(data, penalty="aic"), expected)


# Checkpoints


def test_an_interrupted_run_continues_and_ends_with_the_same_result(tmp_path, monkeypatch):
    data = related(missing=0.05)
    expected = learn_network(data, alpha=0.5)
    path = tmp_path / "run.safetensors"
    with monkeypatch.context() as patch:
        searched = noted(patch, network, "search", 4)
        with pytest.raises(KeyboardInterrupt):
            learn_network(data, alpha=0.5, run=RunOptions(path))
        assert len(searched) == 4  # the last of which was interrupted
    with monkeypatch.context() as patch:
        searched = noted(patch, network, "search", 6)
        check_equal(learn_network(data, alpha=0.5, run=RunOptions(path, resume=True)), expected)
        assert len(searched) == 2
    with monkeypatch.context() as patch:
        searched = noted(patch, network, "search")
        check_equal(learn_network(data, alpha=2.0, run=RunOptions(path, resume=True)), expected.with_alpha(2.0))
        assert searched == []


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    data = related()
    path = tmp_path / "run.safetensors"
    learn_network(data, run=RunOptions(path))
    with pytest.raises(InputError, match="exists; pass resume=True"):
        learn_network(data, run=RunOptions(path))
    own = tmp_path / "own.safetensors"
    learn_network(data, penalty=lambda k, n: 0.01 * k, run=RunOptions(own))
    for table, file, options, found in [
        (data, path, {"penalty": "aic"}, "penalty='mdl', not 'aic'"),
        (data, own, {"penalty": lambda k, n: 0.02 * k}, "another penalty"),
        (data, path, {"max_leaves": 3}, "max_leaves=None, not 3"),
        (related(1), path, {}, "another data"),
    ]:
        with pytest.raises(InputError, match=f"belongs to a run with {found}"):
            learn_network(table, run=RunOptions(file, resume=True), **options)
    mixed = data.rows(torch.randperm(300, generator=torch.Generator().manual_seed(0)))
    check_equal(learn_network(mixed, run=RunOptions(path, resume=True)), learn_network(data))


def test_progress_counts_the_nodes(capsys):
    learn_network(related(), run=RunOptions(progress=True))
    assert "0/5" in capsys.readouterr().err
    learn_network(related())
    assert capsys.readouterr().err == ""


# Bad input


@pytest.mark.parametrize(
    ("rows", "options", "code", "argument"),
    [
        (related().rows(torch.zeros(300, dtype=torch.bool)), {}, "empty", "rows"),
        (Observations(Domain(), torch.zeros((3, 0), dtype=torch.long)), {}, "empty", "rows"),
        (related(), {"alpha": math.nan}, "out-of-range", "alpha"),
        (related(), {"alpha": "one"}, "out-of-range", "alpha"),
        (related(), {"jobs": 0}, "out-of-range", "jobs"),
        (related(), {"jobs": 1.5}, "wrong-type", "jobs"),
        (related(), {"reads": {"aa": ["b"]}}, "unknown-name", "reads"),
        (related(), {"reads": {"a": ["bb"]}}, "unknown-name", None),
        (related(), {"reads": {"a": 5}}, "wrong-type", "reads"),
        (related(), {"reads": ["a"]}, "wrong-type", "reads"),
        (related(), {"run": "file"}, "wrong-type", "run"),
    ],
)
def test_bad_arguments(rows, options, code, argument):
    with raises(code, argument):
        learn_network(rows, **options)


def test_columns_of_one_level_and_one_row():
    domain = Domain.from_cardinalities({"a": 1, "b": 9, "c": 2})
    learned = learn_network(Observations(domain, torch.tensor([[0, 3, 1]])), alpha=0.9)
    assert (learned.conditionals.edges, learned.conditionals.node("a").probs.tolist()) == ((), [[1.0]])
    assert learned.conditionals.node("b").probs[0, 3].item() == pytest.approx(1.1 / 1.9)


@pytest.mark.usefixtures("shared_data")
def test_a_published_data_set():
    learned = learn_network(load_mushroom(), jobs=2)
    assert sum(report.num_leaves for report in learned.nodes) == 137
    assert learned.cost == pytest.approx(0.31276405644876853, abs=1e-12)
    assert learned.fc_limit == pytest.approx(0.004239024236624887, abs=1e-12)
    by_name = {report.variable: report for report in learned.nodes}
    assert (by_name["class"].num_leaves, by_name["class"].entropy) == (2, 0.0)
    assert (by_name["class"].cost, by_name["veil-type"].num_parameters) == (MDL()(2, 8124.0), 0)


# Rows that lie anywhere


def planted(num_rows=600, num_columns=70, cards=(2,), seed=0, flips=0.1):
    """Columns that are noisy sums of two earlier ones."""
    rng = np.random.default_rng(seed)
    sizes = [cards[j % len(cards)] for j in range(num_columns)]
    codes = np.stack([rng.integers(0, n, num_rows) for n in sizes], axis=1)
    for j in range(4, num_columns):
        found = codes[:, rng.choice(j, 2, replace=False)].sum(1) % sizes[j]
        codes[:, j] = np.where(rng.random(num_rows) < flips, codes[:, j], found)
    return Observations(Domain.from_cardinalities(sizes), torch.from_numpy(codes))


@pytest.mark.parametrize("cards", [(2,), (3, 2, 5), (70, 2)])
@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 10_000])  # bytes count the sums of 4,080 rows
def test_bits_count_what_numpy_counts(cards, num_rows):
    data = planted(num_rows, 40, cards)
    codes, sizes = data.codes.numpy(), np.array(data.domain.cardinalities)
    planes, num_words = bit_planes(sizes)
    first = np.cumsum(sizes) - sizes
    bits = no_bits(num_rows, num_words)
    flat = np.concatenate([np.arange(n) for n in sizes])
    pack_bits(np.ascontiguousarray(codes.T.astype(np.int8)), flat, first, planes, bits)
    for j, size in enumerate(sizes):
        assert bit_level(bits, num_rows - 1, planes[j], size) == codes[-1, j]
    # rows by the node's level, then those of a leaf by that of a column
    lines, x = by_place(bits, num_rows), codes[:, 1].astype(np.int32)
    ordered = order_rows(x, np.bincount(x, minlength=sizes[1]))
    assert np.array_equal(ordered, np.argsort(x, kind="stable"))
    rows = ordered[np.random.default_rng(3).random(num_rows) < 0.5]
    expected = rows[np.argsort(codes[rows, 2], kind="stable")]
    stop = split_bits(lines, planes[2], sizes[2], rows, 0, len(rows), np.empty_like(rows))
    assert np.array_equal(rows, expected)
    assert np.array_equal(stop, np.cumsum(np.bincount(codes[rows, 2], minlength=sizes[2])))
    # counts of levels: those of the rows of a child
    rows = rows[stop[0] : stop[1]].copy()
    counts = np.bincount(x[rows], minlength=sizes[1]).astype(float)
    levels = np.zeros((sizes[1], sizes.sum()))
    groups, spots = bit_places(first, sizes, planes)
    add_bits(levels, bits, groups, spots, first, sizes, rows, 0, counts, 1.0)
    expected = np.zeros_like(levels)
    for j in range(len(sizes)):
        np.add.at(expected, (x[rows], first[j] + codes[rows, j]), 1.0)
    assert np.array_equal(levels, expected)
    add_bits(levels, bits, groups, spots, first, sizes, rows, 0, counts, -1.0)
    assert not levels.any()
    # two rows have one key where they are equal, and not otherwise
    keys = bit_keys(bits, num_rows, planes, sizes, first)
    assert len(np.unique(keys)) == len(np.unique(codes, axis=0))


@pytest.mark.parametrize("cards", [(2,), (3, 2, 4)])
@pytest.mark.parametrize("penalty", [MDL(), AIC()])
def test_searches_on_bits_and_on_numbers_of_levels_are_one(cards, penalty, monkeypatch):
    data = planted(800, 72, cards, flips=0.3)
    bits = PreparedRows.from_rows(data)
    assert len(bits.bits)
    assert not len(bits.ids)
    monkeypatch.setattr(_rows, "_LEAST_BITS", np.inf)
    numbers = PreparedRows.from_rows(data)
    assert len(numbers.ids)
    for one, two in itertools.product((0, 5, 40), (1, 6)):
        assert np.array_equal(bits.own(one), numbers.own(one))
        assert np.array_equal(bits.level_counts(one), numbers.level_counts(one))
        assert np.array_equal(bits.table(one, two, 1.0), numbers.table(one, two, 1.0))
    asked = ((None, False), ((1, 2, 6, 50, 71), False), ((1, 2, 6), True))
    for index, (reads, lossless) in itertools.product((0, 5, 40), asked):
        options = SearchOptions(penalty, lossless, max_leaves=None)
        tasks = [NodeTask(rows, data.domain, index, reads) for rows in (numbers, bits)]
        found = [search(*task.arguments(options)) for task in tasks]
        for other in found[1:]:
            for one, two in zip(found[0][:-1], other[:-1], strict=True):
                assert np.array_equal(one, two)
        reports = [task.finish(its, options)[2] for task, its in zip(tasks, found, strict=True)]
        assert reports[0] == reports[1]


def test_edges_from_the_counts_of_the_search_are_those_of_a_replay():
    for data in (planted(), planted(500, 8, (3, 2, 4)), planted(60, 6)):
        learned = learn_network(data, penalty=AIC())
        assert learned.edges == edge_information(learned.conditionals, data)[0]


@pytest.mark.parametrize(("num_columns", "num_rows", "cards"), [(70, 500, (2,)), (6, 400, (2, 3)), (5, 300, (4, 3))])
def test_a_source_gives_equal_bits_with_rows_in_memory(num_columns, num_rows, cards, tmp_path):
    data = planted(num_rows, num_columns, cards, seed=1)
    expected = learn_network(data)
    check_equal(learn_network(MemoryRows.of(data, chunk_rows=37)), expected)
    frame = pd.DataFrame(data.codes.numpy(), columns=list(data.domain.names))
    for i, part in enumerate(np.array_split(np.arange(num_rows), 3)):
        frame.iloc[part].to_parquet(tmp_path / f"{i}.parquet")
    held = open_rows(tmp_path, domain=data.domain, chunk_rows=100)
    check_equal(learn_network(held, jobs=2), expected)
    reads = {data.domain.names[0]: list(data.domain.names[2:4]), data.domain.names[1]: []}
    check_equal(
        learn_network(held, penalty="aic", reads=reads, max_leaves=5),
        learn_network(data, penalty="aic", reads=reads, max_leaves=5),
    )


def test_ties_between_levels_are_broken_as_in_memory():
    rng = np.random.default_rng(2)
    half = rng.integers(0, 2, (40, 66))
    half[:, 1] = half[:, 0] ^ (rng.random(40) < 0.2)
    codes = np.concatenate([half, 1 - half])  # every level of every column in 40 rows
    codes[:5, 7] ^= 1
    data = Observations(Domain.from_cardinalities([2] * 66), torch.from_numpy(codes))
    check_equal(learn_network(MemoryRows.of(data)), learn_network(data))


def test_missing_cells_counts_and_the_lossless_source_take_the_distinct_rows():
    data = planted(300, 5, (2, 3), seed=3)
    codes = data.codes.clone()
    codes[:20, 2] = -1
    gaps = Observations(data.domain, codes)
    check_equal(learn_network(MemoryRows.of(gaps)), learn_network(gaps.unique()))
    counted = data.unique()
    check_equal(learn_network(MemoryRows.of(counted)), learn_network(counted))
    check_equal(learn_network(MemoryRows.of(data), lossless=True), learn_network(data, lossless=True))


def test_many_equal_rows_are_searched_once_each(monkeypatch):
    data, narrow = planted(2_000, 8, flips=0.0), planted(2_000, 6)
    monkeypatch.setattr(_rows, "SourceRows", None)  # rows as bits are not kept
    check_equal(learn_network(MemoryRows.of(data)), learn_network(data))
    monkeypatch.setattr(_rows, "_packed", None)  # nor are they made where no more than 2^6 rows can differ
    check_equal(learn_network(MemoryRows.of(narrow)), learn_network(narrow))


def test_rows_too_many_for_bits_are_searched_as_their_distinct_ones(monkeypatch):
    data = planted(300, 66).rows(torch.arange(100).repeat(3))
    monkeypatch.setattr(_rows, "MAX_SOURCE_BYTES", 1_000)
    check_equal(learn_network(MemoryRows.of(data)), learn_network(data))


def test_control_another_row_changes_the_result():
    data = planted()
    codes = data.codes.clone()
    codes[0, 0] ^= 1
    other = learn_network(MemoryRows.of(Observations(data.domain, codes)))
    assert other.nodes != learn_network(data).nodes


def test_a_run_on_a_source_goes_on_from_its_checkpoint(tmp_path):
    data = planted(300, 66)
    source, path = MemoryRows.of(data), tmp_path / "network.safetensors"
    first = learn_network(source, run=RunOptions(path))
    check_equal(learn_network(source, run=RunOptions(path, resume=True)), first)
    with raises("other-run"):
        learn_network(MemoryRows.of(planted(300, 66, seed=9)), run=RunOptions(path, resume=True))


def test_work_and_bytes_are_refused_with_their_numbers_before_the_search(monkeypatch):
    data = planted(300, 5)
    with pytest.raises(
        IntractableError, match=r"max_work: 5 nodes of \d+ rows look at .* budget of 10; restrict reads"
    ):
        learn_network(data, max_work=10)
    monkeypatch.setattr(_rows, "MAX_SOURCE_BYTES", 1_000)
    monkeypatch.setattr(rows, "MAX_CELLS", 50)
    with pytest.raises(IntractableError, match=r"rows: as bits, 300 rows take .* bytes"):
        learn_network(MemoryRows.of(data))
