"""Exact backends: the conformance suite, derivatives, brute force on random models, kept matrices."""

import dataclasses
import functools
import gc
import itertools
import pickle
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd.gradcheck import GradcheckError

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.core import PartitionBackend
from pyro_hoim.log_linear import (
    Auto,
    Enumeration,
    HierarchicalLogLinear,
    LogLinearEnergy,
    MatrixEnumeration,
    VariableElimination,
)
from pyro_hoim.log_linear.exact import enumeration
from pyro_hoim.log_linear.exact.enumeration import enumeration_axes
from pyro_hoim.testing import (
    BACKEND_CHECKS,
    BackendCase,
    assert_close,
    check_backend,
    exact_covariance,
    exact_log_partition,
    exact_statistics,
    exact_table,
    random_tables,
    standard_hypergraphs,
)

from support.strategies import domains, hypergraphs, models


def test_backend_conforms(backend):
    assert isinstance(backend, PartitionBackend)
    if getattr(backend, "max_cells", None) != 9:
        check_backend(backend)
        return
    checks = [check for check in BACKEND_CHECKS if check.__name__ != "check_marginals"]  # of more than nine cells
    for check, hypergraph in itertools.product(checks, standard_hypergraphs().values()):
        check(BackendCase(backend, hypergraph, scale=1.0))


def test_exact_results_are_verified_and_backends_are_values(backend):
    result = backend.log_partition(BackendCase(backend, standard_hypergraphs()["cycle"]).model())
    assert (result.verdict, result.notes, result.sandwich) == ("verified", (), None)
    options = {field.name: getattr(backend, field.name) for field in dataclasses.fields(backend)}
    other = type(backend)(**options)
    assert pickle.loads(pickle.dumps(backend)) == backend == other
    assert hash(backend) == hash(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(backend, next(iter(options)), None)


class DropsAnInteraction(VariableElimination):
    """Negative control: forgets the last interaction table."""

    def log_partition(self, model):
        return super().log_partition(_dropped(model))

    def expectations(self, model):
        return super().expectations(_dropped(model))

    def log_marginal(self, model, names):
        return super().log_marginal(_dropped(model), names)

    def sample(self, model, sample_shape=(), generator=None):
        return super().sample(_dropped(model), sample_shape, generator)

    def mode(self, model):
        return super().mode(_dropped(model))


def _dropped(model):
    keep = model.tables.new_ones(model.hypergraph.num_terms)
    keep[list(model.hypergraph.term_slices.values())[-1]] = 0
    return LogLinearEnergy(model.hypergraph, model.tables * keep)


@pytest.mark.parametrize(
    "check", [c for c in BACKEND_CHECKS if c.__name__ not in ("check_batch",)], ids=lambda c: c.__name__
)
def test_suite_finds_a_dropped_interaction(check):
    case = BackendCase(DropsAnInteraction(), standard_hypergraphs()["three-way"], scale=1.0)
    with pytest.raises(AssertionError):
        check(case)


# Derivatives of log Z, eta and marginals

HYPERGRAPH = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2}),
    [("c",), ("a", "b"), ("b", "c", "d")],
    hierarchical=False,
)


def _tables(scale=1.0):
    return torch.as_tensor(random_tables(HYPERGRAPH, np.random.default_rng(5), scale=scale))


def _log_z(backend):
    return lambda tables: backend.log_partition(LogLinearEnergy(HYPERGRAPH, tables)).value


def _eta(backend):
    return lambda tables: backend.expectations(LogLinearEnergy(HYPERGRAPH, tables))


def test_gradcheck_of_log_z_eta_and_marginals(backend):
    tables = _tables().requires_grad_()
    assert torch.autograd.gradcheck(_log_z(backend), (tables,))
    assert torch.autograd.gradgradcheck(_log_z(backend), (tables,))
    assert torch.autograd.gradcheck(_eta(backend), (tables,))
    assert torch.autograd.gradgradcheck(_eta(backend), (tables,))

    def log_marginal(value):
        return backend.log_marginal(LogLinearEnergy(HYPERGRAPH, value), ("d", "a"))

    assert torch.autograd.gradcheck(log_marginal, (tables,))
    assert torch.autograd.gradgradcheck(log_marginal, (tables,))


def test_control_a_gradient_without_its_graph_has_no_second_derivative():
    def detached(tables):
        return (_eta(VariableElimination())(tables.detach()) * tables).sum()

    with pytest.raises(GradcheckError):
        torch.autograd.gradgradcheck(detached, (_tables().requires_grad_(),))


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_jacobian_of_eta_is_the_covariance(backend, scale):
    tables = _tables(scale)
    covariance = exact_covariance(HYPERGRAPH, exact_table(HYPERGRAPH, tables))
    assert_close(torch.autograd.functional.jacobian(_eta(backend), tables), covariance)


def test_batched_gradients_do_not_mix_and_no_graph_is_kept_without_need(backend):
    tables = torch.stack([_tables(), 2 * _tables()]).requires_grad_()
    (gradient,) = torch.autograd.grad(_log_z(backend)(tables)[0], tables)
    assert_close(gradient[0], _eta(backend)(tables[0].detach()))
    assert not gradient[1].any()
    model = LogLinearEnergy(HYPERGRAPH, _tables().requires_grad_())
    with torch.no_grad():
        assert not backend.log_partition(model).value.requires_grad
        assert not backend.expectations(model).requires_grad
    assert backend.log_partition(model).value.requires_grad
    assert not backend.sample(model).requires_grad
    assert not backend.mode(model)[1].requires_grad


# Random models, 1,000 in `make slow`


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


# The design matrix that is kept


@pytest.fixture(autouse=True)
def _nothing_kept():
    enumeration._kept.clear()


def _hypergraph(last=2):
    return InteractionHypergraph.from_order(Domain.from_cardinalities([3, 2, last]), 2)


def _drawn_tables(hypergraph, *batch):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*batch, hypergraph.num_terms, dtype=torch.float64, generator=generator)


def test_rows_select_the_terms_of_their_state():
    hypergraph = _hypergraph()
    cards, axes = hypergraph.domain.cardinalities, enumeration_axes(hypergraph)
    design = enumeration._design(hypergraph, torch.float64, torch.device("cpu"))
    for row, levels in zip(design, itertools.product(*(range(cards[v]) for v in axes)), strict=True):
        code = dict(zip(axes, levels, strict=True))
        for edge, piece in zip(hypergraph.edge_indices, hypergraph.term_slices.values(), strict=True):
            table = row[piece].reshape([cards[v] for v in edge])
            assert (table[tuple(code[v] for v in edge)], table.sum()) == (1, 1)


def test_a_first_call_in_inference_mode_leaves_later_gradients_alone(backend):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2, 2]), 2)
    tables = _drawn_tables(hypergraph)
    with torch.inference_mode():
        inside = backend.log_partition(LogLinearEnergy(hypergraph, tables)).value.clone()
        eta = backend.expectations(LogLinearEnergy(hypergraph, tables)).clone()
        backend.marginal(LogLinearEnergy(hypergraph, tables), ("x1",))
    leaf = tables.clone().requires_grad_()
    value = backend.log_partition(LogLinearEnergy(hypergraph, leaf)).value
    value.backward()
    assert_close(value.detach(), inside)
    assert_close(leaf.grad, backend.expectations(LogLinearEnergy(hypergraph, tables)))
    assert_close(leaf.grad, eta)


def test_a_matrix_made_in_inference_mode_would_fail():
    """Negative control: the same product with a tensor of inference mode cannot be differentiated."""
    with torch.inference_mode():
        wrong = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        torch.matmul(torch.ones(2, requires_grad=True), wrong)


def test_vmap_equals_a_batch(backend):
    hypergraph = _hypergraph()
    tables = _drawn_tables(hypergraph, 5)

    def log_z(value):
        return backend.log_partition(LogLinearEnergy(hypergraph, value, validate=False)).value

    assert_close(torch.func.vmap(log_z)(tables), exact_log_partition(hypergraph, tables))
    model = LogLinearEnergy(hypergraph, tables)
    assert_close(torch.func.vmap(torch.func.grad(log_z))(tables), backend.expectations(model))
    leaf = tables.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(backend.log_partition(LogLinearEnergy(hypergraph, leaf)).value.sum(), leaf)
    assert_close(gradient, backend.expectations(model))
    hessian = torch.func.hessian(log_z)(tables[0])
    assert_close(hessian, torch.autograd.functional.hessian(log_z, tables[0]))


def test_many_variables_of_one_level():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([1] * 80 + [3]), 1)
    tables = _drawn_tables(hypergraph)
    value = MatrixEnumeration().log_partition(LogLinearEnergy(hypergraph, tables)).value
    assert_close(value, tables[:80].sum() + torch.logsumexp(tables[80:], -1))


def test_matrices_are_kept_up_to_a_number_of_entries(monkeypatch):
    structures = [_hypergraph(last) for last in (2, 3, 4)]
    sizes = [h.domain.num_states * h.num_terms for h in structures]
    monkeypatch.setattr(enumeration, "_KEPT_ENTRIES", sum(sizes) - 1)
    made = [enumeration._design(h, torch.float64, torch.device("cpu")) for h in structures]
    assert [key[0] for key in enumeration._kept] == structures[1:]
    assert enumeration._design(structures[1], torch.float64, torch.device("cpu")) is made[1]
    enumeration._design(structures[0], torch.float64, torch.device("cpu"))
    assert [key[0] for key in enumeration._kept][-2:] == [structures[1], structures[0]]
    assert sum(kept.numel() for kept in enumeration._kept.values()) <= sum(sizes) - 1
    monkeypatch.setattr(enumeration, "_KEPT_ENTRIES", 1)
    assert torch.equal(enumeration._design(structures[2], torch.float64, torch.device("cpu")), made[2])
    assert len(enumeration._kept) == 1


@pytest.mark.parametrize("kept", [64, 10**6], ids=["bounded", "control"])
def test_a_loop_over_structures_does_not_hold_them(monkeypatch, kept):
    monkeypatch.setattr(enumeration, "_KEPT", kept)
    for number in range(300):
        structure = InteractionHypergraph.from_order(Domain.from_cardinalities({f"{kept} {number}": 2, "b": 2}), 1)
        HierarchicalLogLinear(structure, torch.zeros(structure.num_parameters)).log_prob(torch.zeros(2))
    gc.collect()
    found = [each for each in gc.get_objects() if type(each) is InteractionHypergraph]
    alive = sum(str(each.domain.names[0]).startswith(str(kept)) for each in found if len(each.domain))
    assert (alive <= 256 + 2) is (kept == 64)  # as many as the largest of the other caches


def test_every_cache_of_the_package_has_a_bound():
    modules = [module for name, module in sys.modules.items() if name.startswith("pyro_hoim.")]
    spaces = [vars(module) for module in modules]
    spaces += [vars(each) for space in spaces for each in space.values() if isinstance(each, type)]
    caches = [each for space in spaces for each in space.values() if type(each) is functools._lru_cache_wrapper]
    assert len(caches) > 10 and all(each.cache_parameters()["maxsize"] is not None for each in caches)
