"""Layouts of strongly symmetric tensors against sets written out one entry at a time."""

import itertools
import pickle
from collections import Counter

import numpy as np
import pytest
import torch

from pyro_hoim.errors import InputError, InputTypeError, IntractableError
from pyro_hoim.log_linear.tensors.layout import tensor_layout
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

SIZES = [(n, order) for n in range(2, 7) for order in range(2, n + 1)] + [(8, 4), (12, 3)]


@pytest.mark.parametrize(("num", "order"), SIZES)
def test_every_entry_stands_at_the_set_of_its_indices(num, order):
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * num), order)
    layout = tensor_layout(num, order)
    position = {frozenset(edge): at for at, edge in enumerate(graph.edge_indices)}
    literal = [position[frozenset(entry)] for entry in itertools.product(range(num), repeat=order)]
    assert layout.num_parameters == graph.num_parameters
    assert layout.index.shape == layout.shape == (num,) * order
    assert layout.index.ravel().tolist() == literal
    assert layout.sizes.tolist() == [len(edge) for edge in graph.edges]
    counts = Counter(literal)
    assert layout.multiplicity.tolist() == [counts[at] for at in range(graph.num_parameters)]


@pytest.mark.parametrize(("num", "order"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dense_and_back(num, order, dtype):
    layout = tensor_layout(num, order)
    theta = torch.randn(2, layout.num_parameters, dtype=dtype, generator=torch.Generator().manual_seed(num))
    dense = layout.dense(theta)
    assert dense.shape == (2, *layout.shape)
    assert dense.dtype == dtype
    for axes in itertools.permutations(range(order)):
        assert torch.equal(dense, dense.permute(0, *(1 + axis for axis in axes)))
    rounding = torch.finfo(dtype).eps * (2 + layout.multiplicity.max())  # a sum of so many equal terms
    torch.testing.assert_close(layout.project(dense), theta, rtol=float(rounding), atol=0)


def test_the_projection_is_orthogonal():
    layout = tensor_layout(5, 3)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(*layout.shape, dtype=torch.float64, generator=generator)
    basis = layout.dense(torch.eye(layout.num_parameters, dtype=torch.float64)).flatten(1)
    nearest = basis.T @ torch.linalg.lstsq(basis.T, dense.reshape(-1, 1)).solution
    torch.testing.assert_close(layout.dense(layout.project(dense)).reshape(-1, 1), nearest, rtol=1e-12, atol=1e-12)


def test_derivatives():
    layout = tensor_layout(3, 3)
    theta = torch.randn(2, layout.num_parameters, dtype=torch.float64, requires_grad=True)
    dense = torch.randn(*layout.shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layout.dense, theta)
    assert torch.autograd.gradcheck(layout.project, dense)


def test_layouts_are_shared_read_only_and_pickled():
    layout = tensor_layout(4, 3)
    assert tensor_layout(4, 3) is layout
    assert pickle.loads(pickle.dumps(layout)) is layout
    assert repr(layout) == "TensorLayout(num_variables=4, order=3)"
    for array in (layout.index, layout.sizes, layout.multiplicity):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert np.issubdtype(layout.index.dtype, np.int64)


@pytest.mark.parametrize(
    ("num", "order", "text"),
    [
        (3, 4, "order: expected a whole number from 2 to 3, received 4"),
        (3, 1, "order: expected a whole number from 2 to 3, received 1"),
        (1, 1, "num_variables: expected a whole number from 2, received 1"),
        (3, 2.0, "order: expected a whole number from 2 to 3, received 2.0"),
    ],
)
def test_sizes_out_of_range_are_refused(num, order, text):
    with pytest.raises(InputError) as caught:
        tensor_layout(num, order)
    assert str(caught.value) == text
    assert caught.value.code == "out-of-range"


def test_tensors_beyond_the_budget_are_refused_with_their_size():
    with pytest.raises(
        IntractableError, match=r"order 5 over 100 variables: a tensor has 10000000000 entries"
    ) as caught:
        tensor_layout(100, 5)
    assert caught.value.code == "over-budget"
    assert caught.value.hint == "take a lower order or fewer variables"


def test_wrong_arguments_of_the_maps():
    layout = tensor_layout(3, 2)
    with pytest.raises(InputError, match=r"theta: expected shape \(\.\.\., 6\), received \(5,\)"):
        layout.dense(torch.zeros(5))
    with pytest.raises(InputError, match=r"dense: expected shape \(\.\.\., 3, 3\), received \(3, 2\)"):
        layout.project(torch.zeros(3, 2))
    with pytest.raises(InputTypeError, match="theta: expected a floating-point tensor"):
        layout.dense(torch.zeros(6, dtype=torch.int64))
