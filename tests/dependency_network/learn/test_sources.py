"""Networks from rows held as bits and from rows that lie anywhere: equal bits with the search on rows in memory."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_hoim.data import MemoryRows, Observations, open_rows
from pyro_hoim.data.sources import rows
from pyro_hoim.dependency_network import edge_information, learn_network
from pyro_hoim.dependency_network.learn import _source
from pyro_hoim.dependency_network.learn._row_kernels import add_bits, bit_level, pack_bits, unpack_bits
from pyro_hoim.dependency_network.learn._rows import PreparedRows, bit_keys, bit_planes
from pyro_hoim.dependency_network.learn._search import bit_places, search
from pyro_hoim.dependency_network.learn.node import NodeTask, SearchOptions
from pyro_hoim.dependency_network.learn.penalties import AIC, MDL
from pyro_hoim.errors import IntractableError
from pyro_hoim.runs import RunOptions
from pyro_hoim.schema import Domain
from pyro_hoim.testing import raises


def planted(num_rows=600, num_columns=70, cards=(2,), seed=0, flips=0.1):
    """Columns that are noisy sums of two earlier ones."""
    rng = np.random.default_rng(seed)
    sizes = [cards[j % len(cards)] for j in range(num_columns)]
    codes = np.stack([rng.integers(0, n, num_rows) for n in sizes], axis=1)
    for j in range(4, num_columns):
        found = codes[:, rng.choice(j, 2, replace=False)].sum(1) % sizes[j]
        codes[:, j] = np.where(rng.random(num_rows) < flips, codes[:, j], found)
    return Observations(Domain.from_cardinalities(sizes), torch.from_numpy(codes))


def check_equal(one, other):
    assert one.nodes == other.nodes
    assert one.edges == other.edges
    assert (one.penalty, one.alpha, one.num_observations) == (other.penalty, other.alpha, other.num_observations)
    for first, second in zip(one.conditionals.nodes, other.conditionals.nodes, strict=True):
        assert first.graph == second.graph
        assert torch.equal(first.probs, second.probs)
    for first, second in zip(one.counts, other.counts, strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("cards", [(2,), (3, 2, 5), (70, 2)])
@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 1_500])
def test_bits_count_what_numpy_counts(cards, num_rows):
    data = planted(num_rows, 40, cards)
    codes, sizes = data.codes.numpy(), np.array(data.domain.cardinalities)
    planes, num_words = bit_planes(sizes)
    first = np.cumsum(sizes) - sizes
    bits = np.zeros((num_rows, num_words), dtype=np.uint64)
    flat = np.concatenate([np.arange(n) for n in sizes])
    pack_bits(np.ascontiguousarray(codes.T.astype(np.int8)), flat, first, planes, bits)
    found = np.empty(num_rows, dtype=np.int32)
    for j, size in enumerate(sizes):
        unpack_bits(bits, planes[j], size, found)
        assert np.array_equal(found, codes[:, j])
        assert bit_level(bits, num_rows - 1, planes[j], size) == codes[-1, j]
    rng = np.random.default_rng(3)
    rows = np.sort(rng.choice(num_rows, -(-num_rows // 2), replace=False)).astype(np.int32)
    x = codes[:, 1].astype(np.int32)
    levels = np.zeros((sizes[1], sizes.sum()))
    words, spots = bit_places(first, sizes, planes)
    add_bits(levels, bits, words, spots, first, sizes, x, rows, 0, len(rows), 1.0)
    expected = np.zeros_like(levels)
    for j in range(len(sizes)):
        np.add.at(expected, (x[rows], first[j] + codes[rows, j]), 1.0)
    assert np.array_equal(levels, expected)
    add_bits(levels, bits, words, spots, first, sizes, x, rows, 0, len(rows), -1.0)
    assert not levels.any()
    # two rows have one key where they are equal, and not otherwise
    keys = bit_keys(bits, planes, sizes, first)
    assert len(np.unique(keys)) == len(np.unique(codes, axis=0))


@pytest.mark.parametrize("cards", [(2,), (3, 2, 4)])
@pytest.mark.parametrize("penalty", [MDL(), AIC()])
def test_searches_on_bits_and_on_numbers_of_levels_are_one(cards, penalty):
    data = planted(800, 72, cards, flips=0.3)
    both = PreparedRows.from_rows(data)
    assert len(both.bits)
    assert len(both.ids)
    numbers = dataclasses.replace(both, bits=np.zeros((0, 0), dtype=np.uint64))
    bits = dataclasses.replace(both, ids=both.ids[:0])
    options = SearchOptions(penalty, lossless=False, max_leaves=None)
    for index, reads in itertools.product((0, 5, 40), (None, (1, 2, 6, 50, 71))):
        tasks = [NodeTask(rows, data.domain, index, reads) for rows in (numbers, both, bits)]
        found = [search(*task.arguments(options)) for task in tasks]
        for other in found[1:]:
            for one, two in zip(found[0][:-1], other[:-1], strict=True):
                assert np.array_equal(one, two)
        reports = [task.finish(its, options)[2] for task, its in zip(tasks, found, strict=True)]
        assert reports[0] == reports[1] == reports[2]


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
    monkeypatch.setattr(_source, "SourceRows", None)  # rows as bits are not kept
    check_equal(learn_network(MemoryRows.of(data)), learn_network(data))
    monkeypatch.setattr(_source, "_packed", None)  # nor are they made where no more than 2^6 rows can differ
    check_equal(learn_network(MemoryRows.of(narrow)), learn_network(narrow))


def test_rows_too_many_for_bits_are_searched_as_their_distinct_ones(monkeypatch):
    data = planted(300, 66).rows(torch.arange(100).repeat(3))
    monkeypatch.setattr(_source, "MAX_SOURCE_BYTES", 1_000)
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
    monkeypatch.setattr(_source, "MAX_SOURCE_BYTES", 1_000)
    monkeypatch.setattr(rows, "MAX_CELLS", 50)
    with pytest.raises(IntractableError, match=r"rows: as bits, 300 rows take .* bytes"):
        learn_network(MemoryRows.of(data))
