"""The dense design: its entries, its memory and what is kept of it."""

import tracemalloc

from pyro_hoim.log_linear.fitting import design
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph


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
