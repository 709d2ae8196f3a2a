"""The dense design: its entries, its memory and what is kept of it."""

import tracemalloc

import numpy as np
import torch

from pyro_hoim.data import Observations
from pyro_hoim.log_linear import parametrization
from pyro_hoim.log_linear.fitting import design
from pyro_hoim.log_linear.fitting.design import cell_codes, cell_counts, design_matrix
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph


def test_rows_are_the_free_statistics_of_the_cells():
    domain = Domain.from_cardinalities([2, 3, 1, 4])
    for hypergraph in (
        InteractionHypergraph.saturated(domain),
        InteractionHypergraph(domain, [("x1", "x3"), ("x0",)], hierarchical=False),
        InteractionHypergraph(domain),
    ):
        maps = parametrization(hypergraph)
        expected = maps.free_statistics(maps.statistics(torch.from_numpy(cell_codes(hypergraph))))
        np.testing.assert_allclose(design_matrix(hypergraph), expected.numpy(), atol=1e-15)


def test_counts_of_cells_are_those_of_the_table():
    domain = Domain.from_cardinalities([2, 3, 2])
    counts = np.random.default_rng(0).integers(0, 5, (2, 3, 2)).astype(float)
    assert np.array_equal(cell_counts(Observations.from_table(domain, counts)), counts.ravel())


def test_memory_is_that_of_the_design():
    hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2] * 9))
    design._small_design.cache_clear()
    tracemalloc.start()
    size = design_matrix(hypergraph).nbytes
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # All balanced tables as columns would take 38 times the design: 3^9 terms against 2^9 cells.
    assert peak < 3 * size


def test_kept_designs_are_bounded_by_their_entries(monkeypatch):
    graphs = [InteractionHypergraph.saturated(Domain.from_cardinalities([n])) for n in (3, 6, 7, 20)]
    monkeypatch.setattr(design, "_SMALL", 40)  # of 6, 30, 42 and 380 entries
    monkeypatch.setattr(design, "_LARGE", 100)
    design._small_design.cache_clear()
    built = [design_matrix(graph) for graph in graphs]
    assert [design_matrix(graph) is matrix for graph, matrix in zip(graphs, built, strict=True)] == [True] * 3 + [False]
    assert (design._small_design.cache_info().currsize, design._large_design.cache_info().maxsize) == (2, 1)
