"""Posets and laws on them: zeta and Moebius functions, coordinates, projections, diagrams."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pyro
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.distributions import kl_divergence

from pyro_hoim import ConvergenceWarning, Domain, InputError, InteractionHypergraph, IntractableError
from pyro_hoim.core import Law
from pyro_hoim.information import bias_variance, project
from pyro_hoim.log_linear import Poset, PosetLaw, e_projection, hasse_figure, m_projection
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


def test_large_orders_need_no_list_of_pairs_or_triples():
    lattice = Poset.boolean_lattice(18)  # 3^18 comparable pairs
    values = torch.zeros(2**18, dtype=torch.float64)
    values[lattice.index(["x3", "x7"])] = 1.0
    above = lattice.sums(values)
    assert float(above.sum()) == 2**16
    assert torch.equal(lattice.differences(above), values)
    # All pairs of 600 elements: 180,300, but 36 million triples.
    chain = Poset.from_matrix(np.triu(np.ones((600, 600), dtype=int)))
    assert chain.covers == tuple(itertools.pairwise(range(600)))


def test_one_order_from_pairs_matrix_comparison_and_covers():
    numbers = [6, 1, 2, 3]
    by_division = Poset.divisibility(numbers)
    matrix = [[j % i == 0 for j in numbers] for i in numbers]
    for other in (Poset.from_matrix(matrix, numbers), Poset(numbers, by_division.covers)):
        assert torch.equal(other.zeta_matrix(), by_division.zeta_matrix())
    assert (by_division.covers, by_division.bottom) == (((1, 2), (1, 3), (2, 6), (3, 6)), 1)


def test_subsets_are_found_by_names_in_any_order():
    assert LATTICE.index(("w", "u")) == LATTICE.index(["u", "w"]) == 0b101
    assert ("u", "w") in LATTICE and ("u", "z") not in LATTICE and "u" not in LATTICE and [] in LATTICE
    assert "b" in DIAMOND and "z" not in DIAMOND and ["b"] not in DIAMOND


def test_refusals_of_orders():
    with pytest.raises(InputError, match=r"'b' <= 'c' <= 'd' <= 'b'|'c' <= 'd' <= 'b' <= 'c'|'d' <= 'b' <= 'c' <= 'd'"):
        Poset("abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])
    with raises("conflict", "relation"):
        Poset.from_matrix([[1, 1], [1, 1]])
    with pytest.raises(InputError, match="no bottom: nothing is below both 1 and 2"):
        _ = NO_BOTTOM.bottom
    assert NO_BOTTOM.minimal == (1, 2)
    with pytest.raises(IntractableError, match=r"30 variables has 1073741824 elements .* max_elements=16777216"):
        Poset.boolean_lattice(30)
    for code, argument, call in (
        ("over-budget", "relation", lambda: Poset(range(100), itertools.pairwise(range(100)), max_pairs=1000)),
        ("over-budget", "poset", lambda: Poset.boolean_lattice(13).zeta_matrix()),
        ("unknown-name", "relation", lambda: Poset("abc", [("a", "z")])),
        ("unknown-name", "element", lambda: DIAMOND.zeta("a", "z")),
        ("unknown-name", "element", lambda: LATTICE.index(("u", "z"))),
        ("unknown-name", "element", lambda: LATTICE.index("u")),
        ("repeated-name", "elements", lambda: Poset("aba", [])),
        ("empty", "elements", lambda: Poset([], [])),
        ("invalid-value", "relation", lambda: Poset("abc", ["abc"])),
        ("wrong-type", "relation", lambda: Poset("abc", 5)),
        ("wrong-shape", "matrix", lambda: Poset.from_matrix([[1, 0]])),
        ("out-of-range", "matrix", lambda: Poset.from_matrix([[2]])),
        ("wrong-type", "elements", lambda: Poset([["unhashable"]], [])),
        ("invalid-value", "variables", lambda: Poset.boolean_lattice(Domain.from_cardinalities([2, 3]))),
        ("wrong-type", "variables", lambda: Poset.boolean_lattice("abc")),
        ("out-of-range", "numbers", lambda: Poset.divisibility([0, 1])),
        ("wrong-shape", "values", lambda: DIAMOND.sums(torch.zeros(3))),
        ("wrong-type", "values", lambda: DIAMOND.sums(torch.zeros(4, dtype=torch.long))),
        ("unknown-choice", "direction", lambda: DIAMOND.sums(torch.zeros(4), "up")),
        ("not-finite", "values", lambda: LATTICE.sums(torch.full((8,), -math.inf))),
    ):
        with raises(code, argument):
            call()


# Laws


TREE = Poset(["leaf", "root", "stem", "twig"], [("root", "stem"), ("stem", "leaf"), ("stem", "twig")])
OF_TWELVE = Poset.divisibility([12, 1, 2, 3, 4, 6])
WITH_BOTTOM = pytest.mark.parametrize("poset", [DIAMOND, TREE, OF_TWELVE, LATTICE], ids=repr)


def random_theta(poset, *batch, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, len(poset) - 1, generator=generator, dtype=torch.float64)


def above_bottom(poset):
    return [x for x in poset.elements if x != poset.bottom]


@WITH_BOTTOM
def test_coordinates_are_equations_4_and_5_and_convert_both_ways(poset):
    theta = random_theta(poset)
    law = PosetLaw(poset, theta)
    values = dict(zip(above_bottom(poset), theta.tolist(), strict=True))
    weights = [math.exp(sum(t for s, t in values.items() if poset.is_below(s, x))) for x in poset.elements]
    p = [w / sum(weights) for w in weights]
    assert_close(law.probs, p)
    assert_close(law.log_partition, math.log(sum(weights)))
    etas = [sum(q for y, q in zip(poset.elements, p, strict=True) if poset.is_below(x, y)) for x in above_bottom(poset)]
    assert_close(law.eta, etas)
    mu = [sum(poset.moebius(s, x) * math.log(q) for s, q in zip(poset.elements, p, strict=True)) for x in values]
    assert_close(theta, mu)
    assert_close(law.log_prob(torch.arange(len(poset))), np.log(p))
    theta = random_theta(poset, 2, 3).requires_grad_()
    law = PosetLaw(poset, theta)
    assert law.batch_shape == (2, 3) and law.event_shape == ()
    assert_close(PosetLaw.from_probs(poset, law.probs).theta, theta)
    assert_close(PosetLaw.from_eta(poset, law.eta).theta, theta, relative=1e-9)
    assert_close(law.probs[1, 2], PosetLaw(poset, theta[1, 2]).probs)
    (gradient,) = torch.autograd.grad(law.log_partition.sum(), theta)
    assert_close(gradient, law.eta)  # the dual coordinate
    assert torch.autograd.gradcheck(lambda t: PosetLaw.from_eta(poset, PosetLaw(poset, t).eta).theta, theta[0, :1])


@WITH_BOTTOM
def test_fisher_information_is_the_covariance_and_the_hessian(poset):
    theta = random_theta(poset)
    law = PosetLaw(poset, theta)
    hessian = torch.autograd.functional.hessian(lambda t: PosetLaw(poset, t).log_partition, theta)
    assert_close(law.fisher_information(), hessian)
    some = above_bottom(poset)[::2]
    where = [above_bottom(poset).index(x) for x in some]
    assert_close(law.fisher_information(some), hessian[where][:, where])
    batch = PosetLaw(poset, theta.expand(2, -1)).fisher_information(some)
    assert_close(batch[1], hessian[where][:, where])
    # control: without the product of the means it is not the covariance
    moments = law.fisher_information() + law.eta[:, None] * law.eta
    assert not torch.allclose(moments, hessian)


def test_the_law_is_a_pyro_site():
    law = PosetLaw(DIAMOND, random_theta(DIAMOND, 2).float())
    wide = law.expand([3, 2])
    assert wide.batch_shape == (3, 2) and wide.theta.shape == (3, 2, 3) and type(wide) is PosetLaw
    assert torch.equal(wide.eta[2], law.eta)
    assert law.enumerate_support(expand=False).shape == (4, 1)
    assert torch.equal(pickle.loads(pickle.dumps(law)).theta, law.theta)
    assert_close(kl_divergence(law, law), torch.zeros(2))

    def model():
        theta = pyro.sample("theta", pyro.distributions.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", 5):
            return pyro.sample("x", PosetLaw(DIAMOND, theta), obs=torch.tensor([0, 1, 3, 3, 2]))

    trace = pyro.poutine.trace(model).get_trace()
    assert math.isfinite(float(trace.log_prob_sum()))


@pytest.mark.parametrize("poset", [Poset(["x"], []), Poset.boolean_lattice(0)], ids=repr)
def test_one_element_has_one_law(poset):
    law = PosetLaw(poset, torch.zeros(0))
    assert law.probs.tolist() == [1.0] and law.eta.shape == (0,) and float(law.log_partition) == 0
    assert law.fisher_information().shape == (0, 0)
    assert m_projection(poset, torch.ones(1), []).probs.tolist() == [1.0]


def test_boolean_laws_are_log_linear_laws_in_corner_coding():
    theta = random_theta(LATTICE, 4)
    law = PosetLaw(LATTICE, theta)
    twin = law.to_log_linear()
    assert twin.coding == "corner"
    assert_close(twin.log_prob_table.reshape(4, 8), law.log_prob_table)
    corner = twin.theta[..., list(twin.hypergraph.edges).index(("u", "w"))]
    assert_close(corner, theta[..., LATTICE.index(("u", "w")) - 1])
    other = Domain.from_cardinalities({"w": 2, "u": 2, "v": 2})
    turned = law.to_log_linear(other).log_prob_table.permute(0, 2, 3, 1)
    assert_close(turned.reshape(4, 8), law.log_prob_table)
    for names in (["u", "v"], ["u", "v", "w", "z"], ["u", "v", "z"]):  # a part would be the law given w = 0
        with raises("other-domain", "domain"):
            law.to_log_linear(Domain.from_cardinalities(dict.fromkeys(names, 2)))
    with raises("other-domain", "domain"):
        law.to_log_linear(Domain.from_cardinalities({"u": 2, "v": 3, "w": 2}))
    with raises("no-method", "poset"):
        PosetLaw(DIAMOND, random_theta(DIAMOND)).to_log_linear()


def oracle(poset, members, target, base):
    """Coordinates by plain gradient steps of an accelerated kind; shares no code with Newton's method."""
    features = np.array([[float(poset.is_below(b, x)) for b in members] for x in poset.elements])
    theta = np.zeros(len(members))
    ahead, speed = theta.copy(), 1.0
    for _ in range(12_000):
        weights = np.exp(features @ ahead + base)
        gradient = weights @ features / weights.sum() - target
        if np.abs(gradient).max(initial=0.0) < 1e-15:
            break
        new = ahead - gradient / (0.25 * len(members))
        faster = (1 + math.sqrt(1 + 4 * speed**2)) / 2
        if (new - theta) @ gradient > 0:
            faster, ahead = 1.0, new
        else:
            ahead = new + (speed - 1) / faster * (new - theta)
        theta, speed = new, faster
    weights = np.exp(features @ ahead + base)
    return weights / weights.sum()


CASES = {
    "diamond": (DIAMOND, ["d", "b"]),
    "tree": (TREE, ["leaf", "stem"]),
    "divisors": (OF_TWELVE, [2, 6]),
    "not hierarchical": (LATTICE, [("u", "v", "w"), ("u",)]),
    "order 2": (LATTICE, LATTICE.up_to(2)),
    "nothing": (LATTICE, []),
}


@pytest.mark.parametrize("name", CASES)
def test_m_projections_keep_eta_on_the_collection_and_have_no_theta_outside(name):
    poset, members = CASES[name]
    p = np.random.default_rng(2).random(len(poset))
    result = m_projection(poset, torch.tensor(p), members)
    p /= p.sum()
    assert result.is_converged and result.is_attained and result.error < 1e-12
    law, whole = result.law, PosetLaw.from_probs(poset, torch.tensor(p))
    names = above_bottom(poset)
    inside = [names.index(x) for x in members]
    outside = [i for i in range(len(names)) if i not in inside]
    assert_close(law.eta[inside], whole.eta[inside])
    assert_close(law.theta[outside], torch.zeros(len(outside)), relative=1e-9)
    assert_close(law.theta[inside], result.theta, relative=1e-9)
    assert_close(result.probs, oracle(poset, members, whole.eta[inside].numpy(), np.zeros(len(poset))), relative=1e-7)
    # Pythagoras, with any member; control: with a law outside the submanifold it does not hold
    other = torch.zeros(len(names), dtype=torch.float64)
    other[inside] = random_theta(poset, seed=3)[inside]
    member, stranger = PosetLaw(poset, other), PosetLaw(poset, random_theta(poset, seed=4))
    assert result.divergence == pytest.approx(float(kl_divergence(whole, law)), abs=1e-12)
    gap = kl_divergence(whole, member) - result.divergence - kl_divergence(law, member)
    assert abs(float(gap)) < 1e-10
    assert abs(float(kl_divergence(whole, stranger) - result.divergence - kl_divergence(law, stranger))) > 1e-3
    divided = bias_variance(whole, law, member)
    assert abs(float(divided.total - divided.bias - divided.variance)) < 1e-8


@pytest.mark.parametrize("name", CASES)
def test_e_projections_keep_theta_outside_and_have_the_given_eta(name):
    poset, members = CASES[name]
    law, other = (PosetLaw(poset, random_theta(poset, seed=seed)) for seed in (5, 6))
    names = above_bottom(poset)
    inside = [names.index(x) for x in members]
    outside = [i for i in range(len(names)) if i not in inside]
    result = e_projection(law, members, other.eta[inside])
    assert result.is_converged
    assert_close(result.law.eta[inside], other.eta[inside])
    assert_close(result.law.theta[outside], law.theta[outside], relative=1e-9)
    base = law.log_prob_table.numpy()
    assert_close(result.probs, oracle(poset, members, other.eta[inside].numpy(), base), relative=1e-7)
    # Pythagoras on the other side: the given law is one with this eta
    gap = kl_divergence(other, law) - kl_divergence(other, result.law) - kl_divergence(result.law, law)
    assert abs(float(gap)) < 1e-10
    assert result.divergence == pytest.approx(float(kl_divergence(result.law, law)), abs=1e-12)


def test_projections_of_hierarchical_collections_are_those_of_the_log_linear_family():
    domain = Domain.from_cardinalities({"u": 2, "v": 2, "w": 2})
    p = torch.tensor(np.random.default_rng(7).dirichlet(np.ones(8)))
    graph = InteractionHypergraph.from_order(domain, 2)
    expected = project(Law(domain, p.reshape(2, 2, 2)), graph).probs
    assert_close(m_projection(LATTICE, p, LATTICE.up_to(2)).probs, expected.reshape(-1), relative=1e-9)
    assert LATTICE.up_to(2) == graph.edges
    assert OF_TWELVE.up_to(1) == (2, 3) and OF_TWELVE.up_to(0) == ()


@pytest.mark.parametrize("zeros", [[1], [0, 3, 5, 6], [1, 3, 5, 7]])
def test_projections_of_laws_with_zeros_are_limits_where_they_must_be(zeros):
    """No pair (0, 3, 5, 6: none is empty, and yet no estimate of order 2), one cell, and a variable that is never 1."""
    p = torch.tensor(np.random.default_rng(8).random(8))
    p[zeros] = 0
    domain = Domain.from_cardinalities({"u": 2, "v": 2, "w": 2})
    law = Law(domain, (p / p.sum()).reshape(2, 2, 2))
    for order in (1, 2, 3):
        expected = project(law, InteractionHypergraph.from_order(domain, order)).probs.reshape(-1)
        result = m_projection(LATTICE, p, LATTICE.up_to(order))
        assert_close(result.probs, expected, relative=1e-8, absolute=1e-9)
        assert result.is_attained is bool((result.probs > 0).all()) is bool((expected > 1e-9).all())
        assert result.is_converged and result.divergence == pytest.approx(
            law.divergence(Law(domain, expected.reshape(2, 2, 2))), abs=1e-8
        )
        if not result.is_attained:
            with raises("out-of-range", "probs"):
                _ = result.law


def test_projections_that_do_not_converge_end_in_a_warning():
    with pytest.warns(ConvergenceWarning, match="eta 0.* off"):
        result = e_projection(PosetLaw(DIAMOND, torch.zeros(3)), ["b", "d"], torch.tensor([0.3, 0.5]))
    assert not result.is_converged
    with pytest.warns(ConvergenceWarning, match="max_iterations after 1 steps"):
        result = m_projection(
            LATTICE, torch.rand(8, generator=torch.Generator().manual_seed(1)), LATTICE.up_to(2), max_iterations=1
        )
    assert not result.is_converged and result.error > 1e-6


def test_theta_of_a_divergence_is_kept_where_validation_is_off():
    with pyro.validation_enabled(False):
        law = PosetLaw(DIAMOND, torch.full((3,), math.nan))
        assert bool(law.log_prob(torch.tensor(1)).isnan())


def test_refusals():
    with raises("missing-part", "poset"):
        PosetLaw(Poset("ab", []), torch.zeros(1))
    with raises("wrong-shape", "theta"):
        PosetLaw(DIAMOND, torch.zeros(4))
    with raises("not-finite", "theta"):
        PosetLaw(DIAMOND, torch.full((3,), math.nan))
    with pytest.raises(InputError, match=r"positive probabilities, received p\('c'\) = 0"):
        PosetLaw.from_probs(DIAMOND, torch.tensor([0.5, 0.25, 0.0, 0.25]))
    with pytest.raises(InputError, match=r"received p\('a'\) = -0.2"):
        PosetLaw.from_eta(DIAMOND, torch.tensor([0.6, 0.6, 0.0]))
    with raises("unknown-name", "element"):
        m_projection(DIAMOND, torch.ones(4), ["z"])
    with raises("invalid-value", "elements"):
        m_projection(DIAMOND, torch.ones(4), ["a"])
    for repeat in (
        lambda: m_projection(LATTICE, torch.ones(8), [("u", "v"), ("v", "u")]),
        lambda: e_projection(PosetLaw(DIAMOND, torch.zeros(3)), ["b", "b"], torch.tensor([0.3, 0.3])),
        lambda: PosetLaw(DIAMOND, torch.zeros(3)).fisher_information(["b", "b"]),
    ):
        with raises("repeated-name", "elements"):
            repeat()
    with raises("out-of-range", "probs"):
        m_projection(DIAMOND, torch.zeros(4), ["b"])
    with raises("wrong-shape", "probs"):
        m_projection(DIAMOND, torch.ones(3), ["b"])
    with raises("over-budget", "members"):
        m_projection(Poset.boolean_lattice(13), torch.ones(2**13), Poset.boolean_lattice(13).up_to(13))
    with raises("out-of-range", "eta"):
        e_projection(PosetLaw(DIAMOND, torch.zeros(3)), ["b"], torch.tensor([1.5]))


# Hasse diagrams


FOUR = Poset.boolean_lattice(["1", "2", "3", "4"])


def drawn(figure):
    """Circles by their labels, and lines, of a figure."""
    (axes,) = figure.axes
    places = {text.get_text(): tuple(np.asarray(text.xy)) for text in axes.texts}
    segments = {tuple(map(tuple, segment)) for segment in axes.collections[0].get_segments()}
    faces = [line.get_markerfacecolor() for line in axes.lines]
    return places, segments, faces


def test_figure_1b_of_paper_4_and_its_members():
    places, segments, faces = drawn(hasse_figure(FOUR))
    assert len(places) == 16 and len(set(places.values())) == 16
    assert {label: y for label, (_, y) in places.items() if label in ("∅", "3", "24", "123", "1234")} == {
        "∅": 0, "3": 1, "24": 2, "123": 3, "1234": 4,
    }  # fmt: skip
    names = {element: "".join(element) or "∅" for element in FOUR.elements}
    assert segments == {(places[names[x]], places[names[y]]) for x, y in FOUR.covers}
    assert [faces.count(colour) for colour in ("#22303c", "#5b8c5a", "#2a6f97", "#a23e48", "#ffffff")] == [
        1,
        4,
        6,
        4,
        1,
    ]
    _, _, faces = drawn(hasse_figure(FOUR, members=FOUR.up_to(1)))
    assert faces.count("white") == 11 and faces.count("#5b8c5a") == 4


@pytest.mark.parametrize("poset", [Poset.divisibility([1, 2, 3, 4, 6, 12]), Poset(["b", "a"], []), Poset(["x"], [])])
def test_other_posets_have_their_covers(poset):
    places, segments, _ = drawn(hasse_figure(poset))
    assert segments == {(places[str(x)], places[str(y)]) for x, y in poset.covers}
    assert len(set(places.values())) == len(poset)


def test_long_names_stand_below_their_circles_and_crowds_are_refused():
    places, segments, _ = drawn(hasse_figure(Poset.boolean_lattice(["smoking", "exercise"])))
    assert set(places) == {"∅", "smoking", "exercise", "smoking\nexercise"} and len(segments) == 4
    with raises("over-budget", "poset"):
        hasse_figure(Poset.boolean_lattice(9))
    with raises("unknown-name", "element"):
        hasse_figure(FOUR, members=[("5",)])
