"""The tensor of a model of order K against literal sums, the enumerated law and the log-linear one."""

import itertools
import math
import pickle
import warnings
from collections import Counter

import cvxpy
import numpy as np
import pytest
import torch

from pyro_hoim import ConvergenceWarning, Domain, InputError, InteractionHypergraph, IntractableError, load_table
from pyro_hoim.errors import InputTypeError
from pyro_hoim.log_linear import (
    HierarchicalLogLinear,
    PseudoLikelihoodLoss,
    Stopping,
    SymmetricInteractionTensor,
    fit,
    latent_dual_norm,
    latent_norm,
    multiplicity,
    num_interactions,
    overlapped_norm,
    schatten_norm,
    slice_coefficient,
    subtensor_coefficient,
    tensor_layout,
    unfold,
)
from pyro_hoim.testing import enumerate_codes

SIZES = [(n, order) for n in range(2, 9) for order in range(2, min(n, 6) + 1)]


def drawn(num, order, *batch, dtype=torch.float64, seed=0):
    """A tensor with standard normal theta."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * num + order)
    layout = tensor_layout(num, order)
    return SymmetricInteractionTensor(
        torch.randn(*batch, layout.num_parameters, dtype=torch.float64, generator=generator).to(dtype), num, order
    )


def states(num):
    return torch.from_numpy(enumerate_codes([2] * num))


def literal_form(dense, x):
    """Q[x]^K, one entry at a time."""
    entries, dense, x = itertools.product(range(len(x)), repeat=dense.ndim), dense.numpy(), x.tolist()
    return math.fsum(dense[entry] * math.prod(x[i] for i in entry) for entry in entries)


def enumerated_conditionals(tensor):
    """p(x_r = 1 | the others) at every state, from literal log weights of all of them."""
    num = tensor.num_variables
    sets = [s for m in range(1, tensor.order + 1) for s in itertools.combinations(range(num), m)]
    codes = enumerate_codes([2] * num)
    weight = [
        math.fsum(t for s, t in zip(sets, tensor.theta.tolist(), strict=True) if all(x[i] for i in s)) for x in codes
    ]
    cube = np.reshape(weight, [2] * num)
    answer = np.empty((len(codes), num))
    for row, x in enumerate(codes):
        for r in range(num):
            one, zero = (cube[tuple(v if i == r else int(x[i]) for i in range(num))] for v in (1, 0))
            answer[row, r] = 1 / (1 + math.exp(zero - one))
    return answer


@pytest.mark.parametrize("representation", ["standard", "slice"])
@pytest.mark.parametrize(("num", "order"), SIZES)
def test_node_conditionals_are_those_of_the_enumerated_law(num, order, representation):
    tensor = drawn(num, order)
    ours = tensor.node_logits(states(num), representation).sigmoid().numpy()
    np.testing.assert_allclose(ours, enumerated_conditionals(tensor), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("num", "order"), [(2, 2), (4, 2), (4, 3), (5, 5)])
def test_energy_and_form_against_literal_sums(num, order):
    tensor = drawn(num, order)
    x = torch.randn(3, num, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for row, value in zip(x, tensor.contract(x), strict=True):
        assert float(value) == pytest.approx(literal_form(tensor.dense, row), rel=1e-12, abs=1e-12)
    codes = states(num)
    torch.testing.assert_close(tensor.contract(codes.double()), -tensor.energy(codes), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("num", "order"), [(3, 2), (3, 3), (6, 4)])
def test_the_law_is_the_log_linear_one(num, order):
    tensor = drawn(num, order, 2)
    law = tensor.law()
    assert isinstance(law, HierarchicalLogLinear)
    assert law.coding == "corner"
    codes = states(num)
    weights = -tensor.energy(codes[:, None])
    torch.testing.assert_close(law.log_prob(codes[:, None]), weights.log_softmax(0), rtol=1e-12, atol=1e-12)
    again = SymmetricInteractionTensor.from_law(law)
    assert again.order == order
    assert torch.equal(again.theta, tensor.theta)
    free = HierarchicalLogLinear(law.hypergraph, torch.randn(law.hypergraph.num_parameters, dtype=torch.float64))
    other = SymmetricInteractionTensor.from_law(free)
    torch.testing.assert_close(other.law().log_prob(codes), free.log_prob(codes), rtol=1e-12, atol=1e-12)


def test_a_law_with_fewer_interactions_has_zeros():
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    law = HierarchicalLogLinear(
        InteractionHypergraph(domain, [("b", "c")], closure=True), torch.tensor([1.0, 2.0, 3.0]), coding="corner"
    )
    with pytest.raises(InputError, match="order: expected at least 3"):
        SymmetricInteractionTensor.from_law(drawn(3, 3).law(), 2)
    tensor = SymmetricInteractionTensor.from_law(law, 3)
    assert tensor.theta.tolist() == [0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 0.0]
    assert SymmetricInteractionTensor.from_law(law).order == 2


@pytest.mark.parametrize(("num", "order"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_conversions_are_exact(num, order, dtype):
    tensor = drawn(num, order, 2, dtype=dtype)
    assert tensor.dense.dtype == dtype
    again = SymmetricInteractionTensor.from_dense(tensor.dense, order)
    torch.testing.assert_close(again.theta, tensor.theta, rtol=2 * torch.finfo(dtype).eps, atol=0)
    whole = (100 * tensor.theta).round() * math.lcm(*tensor.layout.multiplicity.tolist())  # entries are whole numbers
    if dtype == torch.float64:
        tensor = SymmetricInteractionTensor(whole, num, order)
        assert torch.equal(SymmetricInteractionTensor.from_dense(tensor.dense, order).theta, whole)


def test_lemma_1_3_the_law_identifies_theta():
    """Theta by Moebius inversion of the log-probabilities; the statistics with a constant have full rank."""
    for num, order in [(3, 2), (4, 3), (5, 5)]:
        tensor = drawn(num, order)
        table = tensor.law().log_prob_table
        sets = [s for m in range(1, order + 1) for s in itertools.combinations(range(num), m)]
        for at, members in enumerate(sets):
            subsets = [t for m in range(len(members) + 1) for t in itertools.combinations(members, m)]
            signed = [
                (-1) ** (len(members) - len(t)) * float(table[tuple(int(i in t) for i in range(num))]) for t in subsets
            ]
            assert math.fsum(signed) == pytest.approx(float(tensor.theta[at]), abs=1e-12)
        design = np.array([[all(x[i] for i in s) for s in [(), *sets]] for x in enumerate_codes([2] * num)], float)
        assert np.linalg.matrix_rank(design) == 1 + len(sets)


def sum_over_sets(tensor, x, r, m):
    """Sum over sets of m - 1 others of q x_r times their product, the inner sum of the standard representation."""
    others, dense, x = [i for i in range(tensor.num_variables) if i != r], tensor.dense.numpy(), x.tolist()
    sets = itertools.combinations(others, m - 1)
    return sum(dense[(r, *s, *[r] * (tensor.order - m))] * x[r] * math.prod(x[i] for i in s) for s in sets)


def sum_over_slices(tensor, x, r, m):
    """Sum over m - 1 free indices of q x_r times the product, the inner sum of the slice representation."""
    dense, x = tensor.dense.numpy(), x.tolist()
    free = itertools.product(range(tensor.num_variables), repeat=m - 1)
    return sum(dense[(*[r] * (tensor.order - m + 1), *s)] * x[r] * math.prod(x[i] for i in s) for s in free)


def node_exponent(tensor, x, r):
    """What the log weight gains by x_r."""
    with_r, without = x.clone(), x.clone()
    without[r] = 0
    return float(tensor.energy(without) - tensor.energy(with_r))


def test_representations_of_order_3():
    """Lemma 2.1, the standard one; proposition 2.2, sums of both; lemma 2.3, that of slices."""
    tensor = drawn(4, 3)
    for x, r in itertools.product(states(4), range(4)):
        sets, slices = ([total(tensor, x, r, m) for m in (1, 2, 3)] for total in (sum_over_sets, sum_over_slices))
        exact = pytest.approx(node_exponent(tensor, x, r), abs=1e-12)
        assert 6 * sets[2] + 6 * sets[1] + sets[0] == exact == 3 * slices[2] - 3 * slices[1] + slices[0]
        assert slices[2] == pytest.approx(2 * sets[2] + 3 * sets[1] + sets[0], abs=1e-12)
        assert slices[1] == pytest.approx(sets[1] + sets[0], abs=1e-12)


@pytest.mark.parametrize("order", range(2, 7))
def test_proposition_2_8_subtensors_of_every_order(order):
    num = max(order, 3)
    tensor = drawn(num, order)
    for r, one in [(0, torch.ones(num, dtype=torch.long)), (1, torch.tensor([0, *[1] * (num - 1)]))]:
        for fixed in range(1, order + 1):
            left = order - fixed
            expected = math.fsum(
                subtensor_coefficient(left + 1, j + 1) * sum_over_sets(tensor, one, r, j + 1) for j in range(left + 1)
            )
            subtensor = tensor.subtensor(fixed, r)
            value = literal_form(subtensor, one) if left else float(subtensor)
            assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("order", range(2, 7))
def test_printed_sums_over_m_indices_are_wrong(order):
    """Both definitions of 2.2.2 and the formula of 2.2.3 as printed; with m - 1 indices they hold."""
    num = order + 1
    tensor = drawn(num, order, seed=3)
    x, r = torch.ones(num, dtype=torch.long), 0
    exact = node_exponent(tensor, x, r)
    tau = [multiplicity(order, m) for m in range(1, order + 1)]
    pi = [slice_coefficient(order, m) for m in range(1, order + 1)]
    standard = sum(t * sum_over_sets(tensor, x, r, m) for m, t in enumerate(tau, 1))
    slices = sum(p * sum_over_slices(tensor, x, r, m) for m, p in enumerate(pi, 1))
    assert standard == pytest.approx(exact, abs=1e-11)
    assert slices == pytest.approx(exact, abs=1e-11)
    others = range(1, num)
    dense = tensor.dense.numpy()
    printed = sum(  # sets of m others, shortened to the first K indices where they are K + 1
        t * dense[(r, *rest, *[r] * order)[:order]]
        for m, t in enumerate(tau, 1)
        for rest in itertools.combinations(others, m)
    )
    assert abs(printed - exact) > 0.5
    reversed_slices = sum(p * sum_over_slices(tensor, x, r, order - m + 1) for m, p in enumerate(pi, 1))
    assert abs(reversed_slices - exact) > 0.5


def test_lemma_3_1_unfoldings_are_equal():
    for num, order in [(4, 2), (4, 3), (3, 3), (5, 4)]:
        tensor = drawn(num, order, 2)
        for mode in range(1, order + 1):
            assert torch.equal(tensor.unfolding(mode), tensor.unfolding(1))
        assert tensor.unfolding().shape == (2, num, num ** (order - 1))
    other = torch.randn(3, 3, 3, dtype=torch.float64)
    assert not torch.equal(unfold(other, 1), unfold(other, 2))  # the control: no symmetry, other unfoldings


def test_float32_batches_and_derivatives():
    tensor = drawn(4, 3, 2, dtype=torch.float32)
    codes = states(4)
    assert tensor.energy(codes[:, None]).shape == (16, 2)
    assert tensor.energy(codes[:2]).shape == (2,)
    assert tensor.node_logits(codes[:, None]).shape == (16, 2, 4)
    torch.testing.assert_close(
        tensor.node_logits(codes[:, None], "slice"), tensor.node_logits(codes[:, None]), rtol=1e-4, atol=1e-5
    )
    wide = states(4)[:, None].double()
    assert tensor.contract(wide).dtype == torch.float32
    torch.testing.assert_close(tensor.contract(wide), -tensor.energy(codes[:, None]), rtol=1e-5, atol=1e-5)
    none = SymmetricInteractionTensor(tensor.theta[:0], 4, 3)  # no tensor at all
    assert SymmetricInteractionTensor.from_dense(none.dense, 3).theta.shape == (0, 14)
    assert none.contract(wide).shape == (16, 0) and none.node_logits(codes[0], "slice").shape == (0, 4)
    theta = drawn(3, 3).theta.requires_grad_()
    x = states(3)[3:6]

    def everything(theta):
        made = SymmetricInteractionTensor(theta, 3, 3)
        again = SymmetricInteractionTensor.from_dense(made.dense)
        return (
            again.energy(x),
            made.contract(x.double()),
            made.node_logits(x, "slice"),
            made.node_logits(x),
            made.overlapped_norm(),
        )

    assert torch.autograd.gradcheck(everything, theta)
    grads = torch.func.vmap(torch.func.grad(lambda t: SymmetricInteractionTensor(t, 3, 3).contract(x.double()).sum()))
    torch.testing.assert_close(grads(drawn(3, 3, 2).theta)[0], grads(drawn(3, 3, 2).theta)[1])


def test_asymmetric_tensors_are_refused_with_the_first_offending_indices():
    dense = drawn(3, 3).dense.clone()
    dense[0, 1, 1] += 1
    with pytest.raises(InputError) as caught:
        SymmetricInteractionTensor.from_dense(dense)
    first, wrong = float(dense[0, 0, 1]), float(dense[0, 1, 1])
    assert str(caught.value).startswith(
        "dense: expected a strongly symmetric tensor, equal entries for equal sets of indices, "
        f"received {wrong} at index (0, 1, 1) and {first} at (0, 0, 1); give a tolerance"
    )
    permuted = torch.zeros(3, 3, 3, dtype=torch.float64)  # symmetric under permutations, and not strongly so
    for at in [(0, 0, 1), (0, 1, 0), (1, 0, 0)]:
        permuted[at] = 1
    with pytest.raises(InputError, match=r"received 0.0 at index \(0, 1, 1\) and 1.0 at \(0, 0, 1\)"):
        SymmetricInteractionTensor.from_dense(permuted)
    nearest = SymmetricInteractionTensor.from_dense(permuted, tolerance=1.0)
    assert nearest.dense[0, 1, 1] == 0.5
    batch = torch.stack([drawn(3, 3).dense, dense])
    with pytest.raises(InputError, match=r"at index \(1, 0, 1, 1\) and"):
        SymmetricInteractionTensor.from_dense(batch, 3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SymmetricInteractionTensor(torch.zeros(7), 3, 4), "order: expected a whole number from 2 to 3"),
        (lambda: SymmetricInteractionTensor(torch.zeros(3), 3, 1), "order: expected a whole number from 2 to 3"),
        (lambda: SymmetricInteractionTensor(torch.zeros(7), 3, 2), r"theta: expected shape \(\.\.\., 6\)"),
        (lambda: SymmetricInteractionTensor(torch.full((6,), math.nan), 3, 2), "theta: expected finite numbers"),
        (lambda: SymmetricInteractionTensor.from_dense(torch.zeros(2, 3)), "dense: expected shape"),
        (lambda: SymmetricInteractionTensor.from_dense(torch.zeros(3)), "dense: expected shape"),
        (lambda: drawn(3, 2).energy(torch.tensor([0, 1, 2])), "x: expected codes from 0 to 1 for variable 'x2'"),
        (lambda: drawn(3, 2).node_logits(torch.tensor([0, 1, -1])), "x: expected codes from 0 to 1 for variable 'x2'"),
        (lambda: drawn(3, 2).node_logits(torch.tensor([0, 1, 1]), "other"), "representation: expected"),
        (lambda: drawn(3, 2).contract(torch.zeros(2)), "x: expected shape"),
        (lambda: drawn(3, 2).subtensor(3, 0), "num_fixed: expected a whole number from 1 to 2"),
        (lambda: drawn(3, 2).subtensor(1, 3), "variable: expected a whole number from 0 to 2"),
        (lambda: drawn(3, 2).unfolding(3), "mode: expected a whole number from 1 to 2"),
        (lambda: drawn(3, 2).law(Domain.from_cardinalities([2, 2])), "domain: expected 3 variables, received 2"),
        (
            lambda: drawn(3, 2).law(Domain.from_cardinalities([2, 3, 2])),
            "domain: expected binary variables, received 'x1'",
        ),
        (lambda: drawn(3, 2, 2).tucker_rank(), "theta: expected shape"),
    ],
)
def test_bad_input(make, text):
    with pytest.raises(InputError, match=text):
        make()


def test_laws_of_other_variables_and_theta_of_other_types_are_refused():
    domain = Domain.from_cardinalities([2, 3])
    law = HierarchicalLogLinear(InteractionHypergraph.from_order(domain, 1), torch.zeros(3))
    with pytest.raises(InputError, match="law: expected binary variables, received 'x1' with 3 levels"):
        SymmetricInteractionTensor.from_law(law)
    with pytest.raises(InputTypeError, match="theta: expected a floating-point tensor"):
        SymmetricInteractionTensor(torch.zeros(6, dtype=torch.long), 3, 2)
    assert repr(drawn(3, 2, 4)) == "SymmetricInteractionTensor(num_variables=3, order=2, batch_shape=(4,))"


# Layouts


LAYOUTS = [(n, order) for n in range(2, 7) for order in range(2, n + 1)] + [(8, 4), (12, 3)]


@pytest.mark.parametrize(("num", "order"), LAYOUTS)
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


@pytest.mark.parametrize(("num", "order"), LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dense_and_back(num, order, dtype):
    layout = tensor_layout(num, order)
    theta = torch.randn(2, layout.num_parameters, dtype=dtype, generator=torch.Generator().manual_seed(num))
    dense = layout.dense(theta)
    assert (dense.shape, dense.dtype) == ((2, *layout.shape), dtype)
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
    assert (str(caught.value), caught.value.code) == (text, "out-of-range")


def test_layouts_beyond_the_budget_and_wrong_arguments_of_the_maps_are_refused():
    with pytest.raises(
        IntractableError, match=r"order 5 over 100 variables: a tensor has 10000000000 entries"
    ) as caught:
        tensor_layout(100, 5)
    assert (caught.value.code, caught.value.hint) == ("over-budget", "take a lower order or fewer variables")
    layout = tensor_layout(3, 2)
    with pytest.raises(InputError, match=r"theta: expected shape \(\.\.\., 6\), received \(5,\)"):
        layout.dense(torch.zeros(5))
    with pytest.raises(InputError, match=r"dense: expected shape \(\.\.\., 3, 3\), received \(3, 2\)"):
        layout.project(torch.zeros(3, 2))
    with pytest.raises(InputTypeError, match="theta: expected a floating-point tensor"):
        layout.dense(torch.zeros(6, dtype=torch.int64))


# Norms


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def symmetric(num, order, seed=0):
    """A strongly symmetric tensor with standard normal entries."""
    layout = tensor_layout(num, order)
    theta = normal(layout.num_parameters, seed=seed) * torch.from_numpy(layout.multiplicity.copy())
    return SymmetricInteractionTensor(theta, num, order)


def diagonal(num, order, seed=0):
    """A strongly symmetric tensor with nothing off the diagonal."""
    theta = torch.zeros(tensor_layout(num, order).num_parameters, dtype=torch.float64)
    theta[:num] = normal(num, seed=seed)
    return SymmetricInteractionTensor(theta, num, order)


def test_schatten_norms_of_known_singular_values():
    u, v = torch.linalg.qr(normal(4, 4))[0], torch.linalg.qr(normal(6, 6, seed=1))[0]
    values = torch.tensor([3.0, 2.0, 0.5, 0.0], dtype=torch.float64)
    matrix = (u * values) @ v[:4]
    for p in (1, 1.5, 2, 7):
        assert float(schatten_norm(matrix, p)) == pytest.approx(float((values**p).sum() ** (1 / p)), rel=1e-12)
    assert float(schatten_norm(matrix, math.inf)) == pytest.approx(3, rel=1e-12)
    assert float(schatten_norm(matrix, 2)) == pytest.approx(float(matrix.norm()), rel=1e-12)
    assert schatten_norm(torch.stack([matrix, 2 * matrix]).float()).shape == (2,)


def test_the_dual_of_the_nuclear_norm_is_the_spectral_norm():
    x = normal(3, 9)
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    best = u @ v  # attains it
    assert float(schatten_norm(best, math.inf)) == pytest.approx(1, rel=1e-12)
    assert float((best * x).sum()) == pytest.approx(float(schatten_norm(x, 1)), rel=1e-12)
    for seed in range(20):  # nothing in the ball attains more
        y = normal(3, 9, seed=seed)
        assert float((y * x).sum()) <= float(schatten_norm(y, math.inf) * schatten_norm(x, 1)) * (1 + 1e-12)
        assert float((y * x).sum()) <= float(schatten_norm(y, 3) * schatten_norm(x, 1.5)) * (1 + 1e-12)


def test_unfoldings_entry_by_entry():
    dense = normal(2, 3, 4)
    for mode in (1, 2, 3):
        others = [m for m in (0, 1, 2) if m != mode - 1]
        literal = [
            [
                dense[tuple(i if m == mode - 1 else (a if m == others[0] else b) for m in range(3))]
                for a in range(dense.shape[others[0]])
                for b in range(dense.shape[others[1]])
            ]
            for i in range(dense.shape[mode - 1])
        ]
        assert torch.equal(unfold(dense, mode), torch.tensor(literal, dtype=torch.float64))
    assert torch.equal(unfold(normal(5, 2, 3, 4), 2, order=3)[2], unfold(normal(5, 2, 3, 4)[2], 2))


def test_overlapped_norm_and_tucker_rank():
    dense = normal(2, 3, 4)
    total = sum(float(torch.linalg.matrix_norm(unfold(dense, mode), "nuc")) for mode in (1, 2, 3))
    assert float(overlapped_norm(dense)) == pytest.approx(total, rel=1e-12)
    tensor = symmetric(4, 3)
    assert float(tensor.overlapped_norm()) == pytest.approx(float(overlapped_norm(tensor.dense)), rel=1e-12)
    assert float(tensor.overlapped_norm(2)) == pytest.approx(3 * float(tensor.dense.norm()), rel=1e-12)
    assert float(tensor.l1_norm()) == pytest.approx(float(tensor.dense.abs().sum()), rel=1e-12)
    assert tensor.tucker_rank() == (4, 4, 4)
    assert diagonal(4, 3).tucker_rank() == (4, 4, 4)
    assert diagonal(4, 3).tucker_rank(tolerance=float(diagonal(4, 3).theta[:4].abs().max())) == (0, 0, 0)
    ones = SymmetricInteractionTensor.from_dense(torch.ones(5, 5, 5))
    assert ones.tucker_rank() == (1, 1, 1)


def solved(dense):
    """The latent norm of a tensor of order 3 by a generic convex solver."""
    n = dense.shape[0]
    parts = [cvxpy.Variable((n, n * n)) for _ in range(3)]
    constraints = []
    for i in range(n):
        for j in range(n):
            for k in range(n):
                columns = [(i, j * n + k), (j, i * n + k), (k, i * n + j)]
                constraints.append(
                    sum(part[at] for part, at in zip(parts, columns, strict=True)) == float(dense[i, j, k])
                )
    problem = cvxpy.Problem(cvxpy.Minimize(sum(cvxpy.normNuc(part) for part in parts)), constraints)
    return problem.solve(solver=cvxpy.CLARABEL)


@pytest.mark.parametrize("dense", [symmetric(3, 3).dense, normal(3, 3, 3)], ids=["symmetric", "any"])
def test_latent_norm_by_a_generic_solver(dense):
    norm = latent_norm(dense, tolerance=1e-8)
    value = solved(dense)
    assert norm.lower * (1 - 1e-6) <= value <= norm.upper * (1 + 1e-6)
    assert norm.gap <= 1e-8 * norm.upper


def check_certificate(norm, dense):
    """Both values from what is given alone."""
    modes = range(1, dense.ndim + 1)
    torch.testing.assert_close(norm.parts.sum(0), dense, rtol=1e-12, atol=1e-12)
    upper = sum(float(schatten_norm(unfold(part, mode))) for part, mode in zip(norm.parts, modes, strict=True))
    assert upper == pytest.approx(norm.upper, rel=1e-10)
    assert float(latent_dual_norm(norm.dual)) <= 1 + 1e-12
    assert float((norm.dual * dense).sum()) == pytest.approx(norm.lower, rel=1e-10)
    assert norm.lower <= norm.upper * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 3, 2, 3)])
def test_certificates_of_any_tensor(shape):
    dense = normal(*shape)
    norm = latent_norm(dense)
    assert norm.status == "converged"
    assert norm.gap <= 1e-6 * norm.upper
    check_certificate(norm, dense)
    if len(shape) == 2:
        assert norm.upper == pytest.approx(float(schatten_norm(dense)), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_lemma_3_2_fails_for_random_tensors_and_holds_for_diagonal_ones(seed):
    tensor = symmetric(4, 3, seed)
    norm = tensor.latent_norm()
    check_certificate(norm, tensor.dense)
    assert 3 * norm.upper < 0.99 * float(tensor.overlapped_norm())  # a decomposition that the lemma rules out
    part = norm.parts[0]
    assert not torch.allclose(part, part.movedim(0, 1), atol=1e-3)  # its parts are not symmetric
    tensor = diagonal(4, 3, seed)
    norm = tensor.latent_norm()
    check_certificate(norm, tensor.dense)
    assert 3 * norm.lower >= float(tensor.overlapped_norm()) * (1 - 1e-6)  # no decomposition does better
    assert 3 * norm.upper == pytest.approx(float(tensor.overlapped_norm()), rel=1e-6)


def test_lemma_3_2_holds_for_matrices_and_is_an_upper_bound_otherwise():
    for num, order in [(5, 2), (3, 3), (4, 4)]:
        tensor = symmetric(num, order)
        bound = float(tensor.overlapped_norm()) / order
        norm = tensor.latent_norm()
        assert norm.lower <= bound * (1 + 1e-12)
        assert (norm.lower >= bound * (1 - 1e-6)) == (order == 2)


def test_zero_one_step_and_bad_input():
    zero = latent_norm(torch.zeros(2, 2, 2))
    assert (zero.upper, zero.lower, zero.status) == (0.0, 0.0, "converged")
    with pytest.warns(ConvergenceWarning, match="latent_norm: the gap is"):
        rough = latent_norm(symmetric(4, 3).dense, max_iterations=1)
    assert rough.status == "max_iterations"
    check_certificate(rough, symmetric(4, 3).dense)
    tiny = latent_norm(1e-200 * symmetric(4, 3).dense)  # whose squares are zero
    assert tiny.upper == pytest.approx(1e-200 * latent_norm(symmetric(4, 3).dense).upper, rel=1e-9)
    with warnings.catch_warnings(action="error"):
        latent_norm(symmetric(4, 3).dense)
    for call, text in [
        (lambda: latent_norm(torch.zeros(3)), "dense: expected shape"),
        (lambda: latent_norm(torch.full((2, 2), math.inf)), "dense: expected finite numbers"),
        (lambda: latent_norm(torch.eye(2), tolerance=0), "tolerance: expected a positive finite number"),
        (lambda: schatten_norm(torch.eye(2), 0.5), "p: expected a number from 1"),
        (lambda: schatten_norm(torch.ones(2)), "matrix: expected shape"),
        (lambda: schatten_norm(torch.eye(2), "1"), "p: expected a number from 1"),
        (lambda: unfold(torch.ones(3), 1), "dense: expected shape"),
        (lambda: overlapped_norm(torch.ones(3)), "dense: expected shape"),
        (lambda: overlapped_norm(torch.eye(2), order=0), "order: expected a whole number from 2 to 2"),
        (lambda: latent_dual_norm(torch.tensor(1.0)), "dense: expected shape"),
        (lambda: symmetric(4, 3).tucker_rank(-1.0), "tolerance: expected a finite number from 0"),
        (lambda: unfold(torch.eye(2), 3), "mode: expected a whole number from 1 to 2"),
    ]:
        with pytest.raises(InputError, match=text):
            call()
    with pytest.raises(InputTypeError, match="dense: expected a floating-point tensor"):
        latent_norm(torch.zeros(2, 2, dtype=torch.long))
    with pytest.raises(IntractableError, match="the latent norm: needs 40000000 entries"):
        latent_norm(torch.zeros(1, dtype=torch.float32).expand(2000, 10000))


@pytest.mark.parametrize("entry", [math.nan, math.inf])
def test_entries_that_are_not_finite_are_refused(entry):
    with pytest.raises(InputError, match="matrix: expected finite numbers"):
        schatten_norm(torch.tensor([[1.0, entry], [0.0, 1.0]]))


# Printed numbers of paper 3: triangles of coefficients, propositions in exact integers, tables 1.2 and 1.3.

DATA = load_table("three_features")
PRINTED = [-3.6605, 1.4626, 0.7821, -0.4238, 1.1982, -0.8032]  # below table 1.2: q of X, Y, Z, XY, XZ, YZ
OPTIMUM = [-3.6612, 1.4631, 0.7823, -0.4238, 1.1981, -0.8035]
EMPIRICAL = [0.0983, 0.2105, 0.4172, 0.1849, 0.0011, 0.0612, 0.0060, 0.0208]  # table 1.3, Z fastest
FITTED = [0.0969, 0.2119, 0.4185, 0.1835, 0.0025, 0.0599, 0.0046, 0.0222]


@pytest.fixture(scope="module")
def tensor():
    pairs = InteractionHypergraph.from_order(DATA.domain, 2)
    result = fit(pairs, DATA, objective="pseudo-likelihood", stopping=Stopping(tolerance=1e-9))
    return SymmetricInteractionTensor.from_law(HierarchicalLogLinear(pairs, result.theta))


def test_table_1_2(tensor):
    np.testing.assert_allclose(tensor.entries, OPTIMUM, rtol=0, atol=1e-4)
    np.testing.assert_allclose(tensor.entries, PRINTED, rtol=0, atol=1e-3)
    assert not np.allclose(tensor.entries, PRINTED, rtol=0, atol=1e-4)  # the print stopped short of the optimum
    loss = PseudoLikelihoodLoss(DATA, 2)
    assert np.abs(loss.value_and_gradient(tensor.theta.numpy())[1]).max() < 1e-8
    printed = tensor.layout.multiplicity * np.array(PRINTED)
    assert np.abs(loss.value_and_gradient(printed)[1]).max() > 1e-6  # the control
    assert torch.equal(tensor.dense, tensor.dense.mT)


def test_table_1_3(tensor):
    np.testing.assert_allclose(DATA.table().flatten() / DATA.total_count, EMPIRICAL, rtol=0, atol=1e-12)
    probs = tensor.law().log_prob_table.exp().flatten()
    np.testing.assert_allclose(probs, FITTED, rtol=0, atol=1e-4)
    assert np.abs(probs.numpy() - EMPIRICAL).max() > 1e-3


def test_the_paper_s_node_conditional_of_order_2(tensor):
    """Section 1.2.2: twice the row of Q less its diagonal."""
    x = torch.tensor([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    q = tensor.dense
    for r in range(3):
        literal = [q[r, r] + 2 * sum(q[r, j] * row[j] for j in range(3) if j != r) for row in x]
        torch.testing.assert_close(tensor.node_logits(x)[:, r], torch.stack(literal), rtol=1e-12, atol=1e-12)


def test_tables_of_more_levels_have_no_tensor():
    titanic = load_table("titanic")
    graph = InteractionHypergraph.from_order(titanic.domain, 1)
    law = HierarchicalLogLinear(graph, torch.zeros(graph.num_parameters))
    with pytest.raises(InputError, match="law: expected binary variables, received 'Class' with 4 levels"):
        SymmetricInteractionTensor.from_law(law)


# Coefficients tau, psi and pi


TAU = [  # figure 2.4 as printed
    [1],
    [1, 2],
    [1, 6, 6],
    [1, 14, 36, 24],
    [1, 30, 150, 240, 120],
    [1, 62, 540, 1560, 1800, 720],
    [1, 126, 1806, 8400, 16800, 15120, 5040],
]
PSI = [  # figure 2.5 as printed
    [1],
    [1, 1],
    [1, 3, 2],
    [1, 7, 12, 6],
    [1, 15, 50, 60, 24],
    [1, 32, 180, 390, 360, 120],
    [1, 63, 602, 2100, 3360, 2520, 720],
]
PI = [  # figure 2.6 as printed
    [1],
    [-1, 2],
    [1, -3, 3],
    [-1, 4, -6, 4],
    [1, -5, 10, -10, 5],
    [-1, 6, -15, 20, -15, 6],
    [1, -7, 21, -35, 35, -21, 7],
]
COMPLEXITY = {2: [3], 3: [6, 7], 4: [10, 14, 15], 5: [15, 25, 30, 31], 6: [21, 41, 56, 62, 63]}  # table 1.1, K from 2


def row(coefficient, order):
    return [coefficient(order, m) for m in range(1, order + 1)]


def test_figures_2_4_to_2_6_but_for_one_misprint():
    assert [row(multiplicity, order) for order in range(1, 8)] == TAU
    ours = [row(subtensor_coefficient, order) for order in range(1, 8)]
    differ = [(k + 1, m + 1) for k in range(7) for m in range(k + 1) if ours[k][m] != PSI[k][m]]
    assert differ == [(6, 2)]
    assert (ours[5][1], PSI[5][1], TAU[5][1] / 2) == (31, 32, 31)
    assert ours[5][0] + ours[5][1] == 2**5  # proposition 2.11 at n = 2, where 32 would give 33
    assert [row(slice_coefficient, order) for order in range(1, 8)] == PI


@pytest.mark.parametrize("order", range(1, 7))
def test_tau_and_psi_count_dense_entries(order):
    entries = list(itertools.product(range(order), repeat=order))
    sets = Counter(frozenset(entry) for entry in entries)
    first = Counter(frozenset(entry) for entry in entries if entry[0] == 0)
    for m in range(1, order + 1):
        assert sets[frozenset(range(m))] == multiplicity(order, m)
        assert first[frozenset(range(m))] == subtensor_coefficient(order, m)


def partitions(total, parts, largest=None):
    """Partitions of a number into so many parts, descending."""
    largest = total if largest is None else largest
    if parts == 0:
        return [()] if total == 0 else []
    return [(k, *rest) for k in range(1, min(largest, total) + 1) for rest in partitions(total - k, parts - 1, k)]


def test_lemma_2_5_and_proposition_2_9():
    for order in range(1, 11):
        for m in range(1, order + 1):
            total = 0
            for parts in partitions(order, m):
                arrangements = math.factorial(order) // math.prod(math.factorial(k) for k in parts)
                total += (
                    arrangements * math.factorial(m) // math.prod(math.factorial(c) for c in Counter(parts).values())
                )
            assert multiplicity(order, m) == total
            assert subtensor_coefficient(order, m) * m == total


def test_propositions_2_6_and_2_10():
    for order in range(2, 21):
        tau, psi = [0, *row(multiplicity, order - 1), 0], [0, *row(subtensor_coefficient, order - 1), 0]
        assert row(multiplicity, order) == [m * (tau[m - 1] + tau[m]) for m in range(1, order + 1)]
        assert row(subtensor_coefficient, order) == [(m - 1) * psi[m - 1] + m * psi[m] for m in range(1, order + 1)]
        assert multiplicity(order, order) == math.factorial(order)
        assert subtensor_coefficient(order, order) == math.factorial(order - 1)  # printed as K! in proposition 2.10


def test_propositions_2_7_and_2_11_powers_from_tau_and_psi():
    for order, n in itertools.product(range(1, 16), range(1, 20)):
        assert n**order == sum(multiplicity(order, i) * math.comb(n, i) for i in range(1, order + 1))
    for order, n in itertools.product(range(1, 16), range(1, 20)):
        total = sum(subtensor_coefficient(order, i) * math.comb(n - 1, i - 1) for i in range(1, order + 1))
        assert n ** (order - 1) == total
        printed = sum(subtensor_coefficient(order, i) * math.comb(n, i - 1) for i in range(1, order + 1))
        assert (printed == n ** (order - 1)) == (order == 1)


def slices_from_counts(order):
    """Coefficients of the slices by back substitution: of the sets of m indices with r, each slice has psi."""
    found = {}
    for m in range(order, 0, -1):
        rest = sum(found[k] * subtensor_coefficient(k, m) for k in range(m + 1, order + 1))
        found[m], odd = divmod(multiplicity(order, m) - rest, subtensor_coefficient(m, m))
        assert odd == 0
    return [found[m] for m in range(1, order + 1)]


def test_proposition_2_12_by_counts_and_by_inclusion_and_exclusion():
    for order in range(1, 21):
        assert row(slice_coefficient, order) == slices_from_counts(order)
    # sum_m pi(K, m) t^(m-1) = t^K - (t - 1)^K: entries with r at some position are all less those without.
    for order, t in itertools.product(range(1, 21), range(-3, 25)):  # more points than the degree: a proof for each K
        assert (
            sum(slice_coefficient(order, m) * t ** (m - 1) for m in range(1, order + 1)) == t**order - (t - 1) ** order
        )


def test_table_1_1_and_orders_beyond_it():
    for num, printed in COMPLEXITY.items():
        ours = [num_interactions(num, order) for order in range(2, num + 1)]
        assert ours == printed
        assert ours[-1] == 2**num - 1  # conclusion 1.2, the column beside the table
    with pytest.raises(InputError, match="order: expected a whole number from 1 to 3, received 4"):
        num_interactions(3, 4)


@pytest.mark.parametrize("function", [multiplicity, subtensor_coefficient, slice_coefficient])
@pytest.mark.parametrize("arguments", [(3, 4), (3, 0), (0, 1), (2.0, 1)])
def test_arguments_out_of_range_are_refused(function, arguments):
    with pytest.raises(InputError, match="expected a whole number from 1"):
        function(*arguments)
