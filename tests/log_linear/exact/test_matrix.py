"""The design matrix that is kept: its entries, inference mode, functional transformations, and how much is kept."""

import functools
import gc
import itertools
import sys

import pytest
import torch

from pyro_hoim.log_linear import HierarchicalLogLinear, MatrixEnumeration
from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.log_linear.exact import enumeration
from pyro_hoim.log_linear.exact.enumeration import enumeration_axes
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, exact_log_partition


@pytest.fixture(autouse=True)
def _nothing_kept():
    enumeration._kept.clear()


def _hypergraph(last=2):
    return InteractionHypergraph.from_order(Domain.from_cardinalities([3, 2, last]), 2)


def _tables(hypergraph, *batch):
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
            assert table[tuple(code[v] for v in edge)] == 1
            assert table.sum() == 1


def test_a_first_call_in_inference_mode_leaves_later_gradients_alone(backend):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2, 2]), 2)
    tables = _tables(hypergraph)
    with torch.inference_mode():
        inside = backend.log_partition(LogLinearEnergy(hypergraph, tables)).value.clone()
        backend.expectations(LogLinearEnergy(hypergraph, tables))
        backend.marginal(LogLinearEnergy(hypergraph, tables), ("x1",))
    leaf = tables.clone().requires_grad_()
    value = backend.log_partition(LogLinearEnergy(hypergraph, leaf)).value
    value.backward()
    assert_close(value.detach(), inside)
    assert_close(leaf.grad, backend.expectations(LogLinearEnergy(hypergraph, tables)))


def test_a_matrix_made_in_inference_mode_would_fail():
    """Negative control: the same product with a tensor of inference mode cannot be differentiated."""
    with torch.inference_mode():
        wrong = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        torch.matmul(torch.ones(2, requires_grad=True), wrong)


def test_vmap_equals_a_batch(backend):
    hypergraph = _hypergraph()
    tables = _tables(hypergraph, 5)

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
    tables = _tables(hypergraph)
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
