"""Posets: zeta and Moebius functions against their definitions, transforms against dense matrices, and refusals."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyro_hoim import Domain, InputError, IntractableError
from pyro_hoim.log_linear import Poset
from pyro_hoim.testing import assert_close, raises

DIAMOND = Poset("abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
DIVISORS = Poset.divisibility([n for n in range(1, 361) if 360 % n == 0])
LATTICE = Poset.boolean_lattice(["u", "v", "w"])
NO_BOTTOM = Poset([1, 2, "top"], [(1, "top"), (2, "top")])
EVERY = [DIAMOND, DIVISORS, LATTICE, NO_BOTTOM, Poset(["alone"], []), Poset.boolean_lattice(0)]


def reachable(n, pairs):
    """Reflexive and transitive closure by Warshall's algorithm."""
    matrix = np.eye(n, dtype=bool)
    for i, j in pairs:
        matrix[i, j] = True
    for k in range(n):
        matrix |= matrix[:, [k]] & matrix[[k]]
    return matrix


def inverse(zeta):
    """Moebius function by its definition, in exact arithmetic."""
    n = len(zeta)
    values = {}

    def mu(x, y):
        if (x, y) not in values:
            between = [s for s in range(n) if zeta[x][s] and zeta[s][y] and s != y]
            values[x, y] = Fraction(1) if x == y else -sum((mu(x, s) for s in between), Fraction(0))
        return values[x, y]

    return [[int(mu(x, y)) if zeta[x][y] else 0 for y in range(n)] for x in range(n)]


orders = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.permutations(range(n)),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).map(sorted), max_size=18),
    )
)


@settings(deadline=None, max_examples=60)
@given(orders)
def test_functions_transforms_and_covers_of_random_orders(drawn):
    """A random relation along a hidden order of the labels has no cycle."""
    hidden, pairs = drawn
    n, pairs = len(hidden), [(hidden[i], hidden[j]) for i, j in pairs]
    poset = Poset(range(n), pairs)
    zeta = reachable(n, pairs)
    mu = inverse(zeta)
    for x, y in itertools.product(range(n), repeat=2):
        assert (poset.zeta(x, y), poset.moebius(x, y)) == (int(zeta[x, y]), mu[x][y])
    assert poset.zeta_matrix().tolist() == zeta.astype(float).tolist()
    assert poset.moebius_matrix().tolist() == np.array(mu, dtype=float).tolist()
    strict = zeta & ~np.eye(n, dtype=bool)
    hasse = strict & ~(strict.astype(int) @ strict.astype(int) > 0)
    assert set(poset.covers) == {tuple(pair) for pair in np.argwhere(hasse).tolist()}
    assert len(poset.covers) == hasse.sum()


@pytest.mark.parametrize("poset", EVERY, ids=repr)
@pytest.mark.parametrize("direction", ["below", "above"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transforms_are_the_dense_products_and_inverse(poset, direction, dtype):
    n = len(poset)
    values = torch.randn(2, 3, n, generator=torch.Generator().manual_seed(1), dtype=dtype)
    zeta = torch.tensor([[float(poset.is_below(x, y)) for y in poset.elements] for x in poset.elements], dtype=dtype)
    matrix = zeta if direction == "below" else zeta.T
    sums = poset.sums(values, direction)
    relative = 1e-12 if dtype == torch.float64 else 1e-4
    assert sums.dtype == dtype
    assert_close(sums, values @ matrix, relative=relative)
    assert_close(poset.differences(sums, direction), values, relative=relative)
    assert_close(poset.sums(poset.differences(values, direction), direction), values, relative=relative)
    if n > 1:  # control: the other direction is another map
        other = "above" if direction == "below" else "below"
        assert not torch.allclose(poset.sums(values, other), sums)


@pytest.mark.parametrize("poset", [DIAMOND, LATTICE], ids=repr)
def test_transforms_are_differentiable(poset):
    values = torch.randn(2, len(poset), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values.requires_grad_()
    for transform in (poset.sums, poset.differences):
        for direction in ("below", "above"):
            assert torch.autograd.gradcheck(lambda x, f=transform, d=direction: f(x, d).exp(), values)


def test_moebius_function_of_number_theory():
    """On divisors mu(m, n) is the Moebius function of n / m, which a sieve gives."""

    def classical(n):
        sign, k = 1, 2
        while n > 1:
            if n % k == 0:
                n //= k
                if n % k == 0:
                    return 0
                sign = -sign
            k += 1
        return sign

    for m, n in itertools.product(DIVISORS.elements, repeat=2):
        assert DIVISORS.moebius(m, n) == (classical(n // m) if n % m == 0 else 0)
    # Euler's totient: the numbers up to n are divided by their common divisors with n
    totients = DIVISORS.differences(torch.tensor(DIVISORS.elements, dtype=torch.float64))
    expected = [sum(math.gcd(k, n) == 1 for k in range(1, n + 1)) for n in DIVISORS.elements]
    assert totients.tolist() == expected


@pytest.mark.parametrize("n", [0, 1, 4, 6])
def test_boolean_lattice_is_inclusion_in_the_order_of_cells(n):
    names = [f"x{i}" for i in range(n)]
    lattice = Poset.boolean_lattice(Domain.from_cardinalities(dict.fromkeys(names, 2)))
    states = list(itertools.product((0, 1), repeat=n))
    assert lattice.elements == tuple(tuple(name for name, x in zip(names, s, strict=True) if x) for s in states)
    assert [lattice.index(element) for element in lattice.elements] == list(range(2**n))
    listed = Poset.from_comparison(lattice.elements, lambda x, y: set(x) <= set(y))
    assert lattice.covers == listed.covers
    assert lattice.heights.tolist() == listed.heights.tolist() == [sum(s) for s in states]
    assert lattice.bottom == listed.bottom == ()
    for x, y in itertools.product(lattice.elements, repeat=2):
        assert lattice.zeta(x, y) == listed.zeta(x, y)
        assert lattice.moebius(x, y) == listed.moebius(x, y)
    values = torch.randn(2, 2**n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    for direction in ("below", "above"):
        assert_close(lattice.sums(values, direction), listed.sums(values, direction))
        assert_close(lattice.differences(values, direction), listed.differences(values, direction))


def test_the_lattice_of_twenty_variables_needs_no_list_of_pairs():
    lattice = Poset.boolean_lattice(20)  # 3^20 comparable pairs
    values = torch.zeros(2**20, dtype=torch.float64)
    values[lattice.index(["x3", "x7"])] = 1.0
    above = lattice.sums(values)
    assert float(above.sum()) == 2**18
    assert torch.equal(lattice.differences(above), values)


def test_one_order_from_pairs_matrix_comparison_and_covers():
    numbers = [6, 1, 2, 3]
    by_division = Poset.divisibility(numbers)
    matrix = [[j % i == 0 for j in numbers] for i in numbers]
    for other in (Poset.from_matrix(matrix, numbers), Poset(numbers, by_division.covers)):
        assert torch.equal(other.zeta_matrix(), by_division.zeta_matrix())
    assert by_division.covers == ((1, 2), (1, 3), (2, 6), (3, 6))
    assert by_division.bottom == 1


def test_subsets_are_found_by_names_in_any_order():
    assert LATTICE.index(("w", "u")) == LATTICE.index(["u", "w"]) == 0b101
    assert ("u", "w") in LATTICE and ("u", "z") not in LATTICE and "u" not in LATTICE and [] in LATTICE
    assert "b" in DIAMOND and "z" not in DIAMOND and ["b"] not in DIAMOND


def test_covers_of_a_long_chain_are_found_without_comparing_triples():
    """All pairs of 600 elements: 180,300, but 36 million triples."""
    chain = Poset.from_matrix(np.triu(np.ones((600, 600), dtype=int)))
    assert chain.covers == tuple(itertools.pairwise(range(600)))


def test_a_cycle_is_named():
    with pytest.raises(InputError, match=r"'b' <= 'c' <= 'd' <= 'b'|'c' <= 'd' <= 'b' <= 'c'|'d' <= 'b' <= 'c' <= 'd'"):
        Poset("abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])
    with raises("conflict", "relation"):
        Poset.from_matrix([[1, 1], [1, 1]])


def test_the_missing_bottom_is_said_with_two_minimal_elements():
    with pytest.raises(InputError, match="no bottom: nothing is below both 1 and 2"):
        _ = NO_BOTTOM.bottom
    assert NO_BOTTOM.minimal == (1, 2)


def test_lattices_beyond_the_budget_are_refused_with_their_size():
    with pytest.raises(IntractableError, match=r"30 variables has 1073741824 elements .* max_elements=16777216"):
        Poset.boolean_lattice(30)
    with raises("over-budget", "relation"):
        Poset(range(100), itertools.pairwise(range(100)), max_pairs=1000)
    with raises("over-budget", "poset"):
        Poset.boolean_lattice(13).zeta_matrix()


def test_other_refusals():
    with raises("unknown-name", "relation"):
        Poset("abc", [("a", "z")])
    with raises("unknown-name", "element"):
        DIAMOND.zeta("a", "z")
    with raises("unknown-name", "element"):
        LATTICE.index(("u", "z"))
    with raises("unknown-name", "element"):
        LATTICE.index("u")
    with raises("repeated-name", "elements"):
        Poset("aba", [])
    with raises("empty", "elements"):
        Poset([], [])
    with raises("invalid-value", "relation"):
        Poset("abc", ["abc"])
    with raises("wrong-type", "relation"):
        Poset("abc", 5)
    with raises("wrong-shape", "matrix"):
        Poset.from_matrix([[1, 0]])
    with raises("out-of-range", "matrix"):
        Poset.from_matrix([[2]])
    with raises("wrong-type", "elements"):
        Poset([["unhashable"]], [])
    with raises("invalid-value", "variables"):
        Poset.boolean_lattice(Domain.from_cardinalities([2, 3]))
    with raises("wrong-type", "variables"):
        Poset.boolean_lattice("abc")
    with raises("out-of-range", "numbers"):
        Poset.divisibility([0, 1])
    with raises("wrong-shape", "values"):
        DIAMOND.sums(torch.zeros(3))
    with raises("wrong-type", "values"):
        DIAMOND.sums(torch.zeros(4, dtype=torch.long))
    with raises("unknown-choice", "direction"):
        DIAMOND.sums(torch.zeros(4), "up")
    with raises("not-finite", "values"):
        LATTICE.sums(torch.full((8,), -math.inf))
