"""All backends equal brute force in NumPy on random models, 1,000 in `make slow`; relative tolerance 1e-10."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from pyro_hoim.log_linear import Auto, Enumeration, MatrixEnumeration, VariableElimination
from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, exact_log_partition, exact_statistics, exact_table, random_tables

from support.strategies import domains, hypergraphs, models

ANY_DOMAIN = domains(min_variables=0, max_variables=5, max_cardinality=4, max_states=128)
ANY_MODEL = models(hypergraph=hypergraphs(domain=ANY_DOMAIN, hierarchical=False), batch_shape=(2,))
BACKENDS = (Enumeration(), MatrixEnumeration(), VariableElimination(), VariableElimination(space="log"), Auto())
BACKENDS += (VariableElimination(max_cells=8),)


@given(ANY_MODEL)
def test_log_z_marginals_and_modes_equal_brute_force(drawn):
    model = LogLinearEnergy(drawn.hypergraph, drawn.tables)
    table = exact_table(drawn.hypergraph, drawn.tables, normalised=False)
    expected = exact_log_partition(drawn.hypergraph, drawn.tables)
    eta = exact_statistics(drawn.hypergraph, exact_table(drawn.hypergraph, drawn.tables))
    for backend in BACKENDS:
        if not backend.plan(drawn.hypergraph).feasible:
            continue
        assert_close(backend.log_partition(model).value, expected, what=f"log Z, {backend}")
        assert_close(backend.expectations(model), eta, what=f"eta, {backend}")
        states, value = backend.mode(model)
        assert_close(value, table.reshape(2, -1).max(1), what=f"value of the mode, {backend}")
        reached = [table[b][tuple(states[b].tolist())] for b in range(2)]
        assert_close(np.array(reached), value, what=f"mode, {backend}")


def test_a_small_error_is_found():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2]), 2)
    tables = random_tables(hypergraph, np.random.default_rng(0))
    value = VariableElimination().log_partition(LogLinearEnergy(hypergraph, torch.as_tensor(tables * (1 + 1e-8)))).value
    with pytest.raises(AssertionError):
        assert_close(value, exact_log_partition(hypergraph, tables))


@given(ANY_MODEL, st.randoms(use_true_random=False))
def test_any_elimination_order_gives_the_same(drawn, random):
    order = list(drawn.hypergraph.domain.names)
    random.shuffle(order)
    model = LogLinearEnergy(drawn.hypergraph, drawn.tables)
    best, given_order = VariableElimination(), VariableElimination(order=tuple(order))
    assert given_order.plan(drawn.hypergraph).order == tuple(order)
    assert_close(given_order.log_partition(model).value, best.log_partition(model).value)
    assert_close(given_order.expectations(model), best.expectations(model))


@given(ANY_MODEL, ANY_MODEL)
def test_disjoint_models_add_log_z(one, two):
    names = {f"a{n}": c for n, c in zip(one.hypergraph.domain.names, one.hypergraph.domain.cardinalities, strict=True)}
    more = {f"b{n}": c for n, c in zip(two.hypergraph.domain.names, two.hypergraph.domain.cardinalities, strict=True)}
    domain = Domain.from_cardinalities(names | more)
    edges = [tuple(f"a{n}" for n in e) for e in one.hypergraph.edges]
    edges += [tuple(f"b{n}" for n in e) for e in two.hypergraph.edges]
    joint = InteractionHypergraph(domain, edges, hierarchical=False)
    tables = torch.zeros(2, joint.num_terms, dtype=torch.float64)
    for letter, part in (("a", one), ("b", two)):
        for edge, piece in part.hypergraph.term_slices.items():
            tables[:, joint.term_slices[tuple(letter + n for n in edge)]] = part.tables[:, piece]
    for backend in (VariableElimination(), Auto()):
        parts = [backend.log_partition(LogLinearEnergy(m.hypergraph, m.tables)).value for m in (one, two)]
        assert_close(backend.log_partition(LogLinearEnergy(joint, tables)).value, parts[0] + parts[1])


@given(ANY_MODEL, st.randoms(use_true_random=False))
def test_relabelling_variables_and_levels_changes_nothing(drawn, random):
    hypergraph = drawn.hypergraph
    names = list(hypergraph.domain.names)
    shuffled = random.sample(names, len(names))
    cards = dict(zip(names, hypergraph.domain.cardinalities, strict=True))
    levels = {n: random.sample(range(cards[n]), cards[n]) for n in names}
    other = InteractionHypergraph(
        Domain.from_cardinalities({n: cards[n] for n in shuffled}), hypergraph.edges, hierarchical=False
    )
    tables = torch.zeros_like(drawn.tables)
    back = {}
    for edge, piece in hypergraph.term_slices.items():
        table = drawn.tables[:, piece].reshape(2, *(cards[n] for n in edge))
        for axis, name in enumerate(edge):
            table = table.index_select(axis + 1, torch.tensor(levels[name]))
        new_edge = tuple(sorted(edge, key=shuffled.index))
        axes = [edge.index(n) + 1 for n in new_edge]
        tables[:, other.term_slices[new_edge]] = table.permute(0, *axes).reshape(2, -1)
        back[edge] = (new_edge, axes)
    backend = VariableElimination()
    one, two = LogLinearEnergy(hypergraph, drawn.tables), LogLinearEnergy(other, tables)
    assert_close(backend.log_partition(two).value, backend.log_partition(one).value)
    eta, moved = backend.expectations(one), backend.expectations(two)
    for edge, (new_edge, axes) in back.items():
        table = eta[:, hypergraph.term_slices[edge]].reshape(2, *(cards[n] for n in edge))
        for axis, name in enumerate(edge):
            table = table.index_select(axis + 1, torch.tensor(levels[name]))
        assert_close(moved[:, other.term_slices[new_edge]], table.permute(0, *axes).reshape(2, -1))


@given(ANY_MODEL)
def test_a_zero_interaction_changes_nothing(drawn):
    names = drawn.hypergraph.domain.names
    if not names:
        return
    wider = drawn.hypergraph.add_edges([names], hierarchical=False)
    tables = torch.zeros(2, wider.num_terms, dtype=torch.float64)
    for edge, piece in drawn.hypergraph.term_slices.items():
        tables[:, wider.term_slices[edge]] = drawn.tables[:, piece]
    backend = VariableElimination()
    before = backend.log_partition(LogLinearEnergy(drawn.hypergraph, drawn.tables)).value
    assert_close(backend.log_partition(LogLinearEnergy(wider, tables)).value, before)


@given(ANY_MODEL, st.sampled_from([(), (1,), (3,), (2, 3), (0,)]))
def test_batch_shapes(drawn, batch):
    hypergraph = drawn.hypergraph
    tables = drawn.tables[0].expand(*batch, -1)
    for backend in BACKENDS:
        if not backend.plan(hypergraph).feasible:
            continue
        model = LogLinearEnergy(hypergraph, tables)
        assert backend.log_partition(model).value.shape == batch
        assert backend.expectations(model).shape == tables.shape
        names = hypergraph.domain.names[:2]
        if backend.plan(hypergraph, keep=names).feasible:
            shape = tuple(hypergraph.domain[n].cardinality for n in names)
            assert backend.marginal(model, names).shape == (*batch, *shape)
        assert backend.sample(model, (4,)).shape == (4, *batch, len(hypergraph.domain))
        states, value = backend.mode(model)
        assert states.shape == (*batch, len(hypergraph.domain))
        assert value.shape == batch


@given(models(hypergraph=hypergraphs(domain=domains(min_variables=0, max_states=64)), scales=(0.3, 3.0)))
def test_float32_is_exact_to_single_precision(drawn):
    tables = drawn.tables.float()
    model = LogLinearEnergy(drawn.hypergraph, tables)
    expected = exact_log_partition(drawn.hypergraph, tables.double())
    eta = exact_statistics(drawn.hypergraph, exact_table(drawn.hypergraph, tables.double()))
    size = 1 + float(tables.abs().sum())
    for backend in (Enumeration(), VariableElimination(), Auto()):
        value = backend.log_partition(model).value
        assert value.dtype == backend.expectations(model).dtype == torch.float32
        assert_close(value.double(), expected, relative=1e-6 * size)
        assert_close(backend.expectations(model).double(), eta, relative=1e-6 * size)
