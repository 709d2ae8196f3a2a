"""Verdicts on normalisability against dense grids of directions, known copositive matrices and integrals."""

import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import torch

from pyro_hoim import Domain, InputError, IntractableError, Variable
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
    check_normalizable,
)
from pyro_hoim.generalized_root.normalizability.form import Form, bounded_by_planes, branch_and_bound, is_definite
from pyro_hoim.testing import raises

from support.root_models import domain_of

HORN = np.array([[1 if (i - j) % 5 in (0, 2, 3) else -1 for j in range(5)] for i in range(5)], dtype=float)
EXPONENTIAL, GAUSSIAN = ExponentialFamily(), GaussianFamily()


def make(family, names, terms):
    """Model from coefficients, by key and the letters of each term."""
    domain = Domain([Variable(name, kind=family.kind) for name in names])
    structure = RootStructure(domain, {key: list(map(tuple, sets)) for key, sets in terms.items()})
    coefficients = torch.zeros(structure.num_terms, dtype=torch.float64)
    for (j, _), sets in terms.items():
        for letters, value in sets.items():
            coefficients[structure.index(letters if not isinstance(letters, str) else tuple(letters), j)] = value
    return GeneralizedRootEnergy.from_coefficients(structure, coefficients, family)


def from_matrix(matrix, family=EXPONENTIAL):
    """Model with eta_1 = -y' M y, y the square roots of the direction (exponential) or the direction (Gaussian)."""
    d = len(matrix)
    domain = domain_of(d, family)
    structure = RootStructure.complete(domain, 2).without({(2, 1): [(name,) for name in domain.names]})
    pairs = [-matrix[i, j] for i, j in itertools.combinations(range(d), 2)]
    psi = torch.tensor([*(-np.diag(matrix)), *pairs], dtype=torch.float64)
    return GeneralizedRootEnergy(structure, psi, family)


def simplex_grid(d, steps):
    """All points of the simplex with coordinates that are multiples of 1 / steps."""
    grids = np.meshgrid(*[np.arange(steps + 1)] * (d - 1), indexing="ij")
    rows = np.stack([g.ravel() for g in grids], -1)
    rows = rows[rows.sum(1) <= steps]
    return np.concatenate([rows, steps - rows.sum(1, keepdims=True)], 1) / steps


def largest_leading(model, steps):
    """Largest eta_1 over a grid of directions, and over signs for the Gaussian family."""
    v = torch.from_numpy(simplex_grid(len(model.domain), steps))
    if model.family.name == "gaussian":
        signs = torch.tensor(list(itertools.product([1.0, -1.0], repeat=len(model.domain))), dtype=torch.float64)
        v = v.sqrt() * signs[:, None]
    return float(model.radial_natural(v)[1].max())


def assert_witness(model, witness):
    """The first power with a nonzero parameter along the direction has a positive one."""
    assert witness is not None
    values = [float(eta) for eta in model.radial_natural(witness).values()]
    leading = next((value for value in values if value != 0), 0.0)
    assert leading > 0 or not any(values)


@pytest.mark.parametrize("family", [EXPONENTIAL, GAUSSIAN], ids=lambda f: f.name)
@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("d", [2, 3])
def test_random_models_against_a_grid(family, order, d):
    structure = RootStructure.complete(domain_of(d, family), order)
    generator = torch.Generator().manual_seed(order * 10 + d)
    seen = {"proven": 0, "disproven": 0}
    for number in range(15):
        psi = torch.randn(structure.num_terms, generator=generator, dtype=torch.float64)
        if number < 2:  # of either verdict there are two for certain
            psi *= 0.01
        psi[structure.slices[1, 1]] -= 1.5
        if number in (2, 3):
            psi[structure.slices[1, 1].start] = 1.0  # without a constant along the first variable
        model = GeneralizedRootEnergy(structure, psi, family)
        found = check_normalizable(model)
        largest = largest_leading(model, 200 if d == 2 else 40)
        assert found.verdict != "undecided", found.reason
        if found.is_proven:
            assert largest < 0
            found.check()
        else:
            assert_witness(model, found.witness)
            assert largest > -0.2  # the grid is coarse where roots are steep
            with pytest.raises(InputError, match="cannot be normalised"):
                found.check()
        seen[found.verdict] += 1
    assert min(seen.values()) >= 2, seen


def random_form(rng, d, sizes, shift):
    sets = [np.array(list(itertools.combinations(range(d), size))) for size in sizes]
    weights = [rng.normal(size=len(rows)) for rows in sets]
    return Form(rng.normal(size=d) * 0.3 - shift, tuple(sets), tuple(weights))


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 3)])
@pytest.mark.parametrize("shift", [0.5, 1.0, 1.5, 2.5])
def test_proofs_hold_and_branch_and_bound_decides(sizes, shift):
    rng = np.random.default_rng(int(10 * shift) + len(sizes))
    points = simplex_grid(4, 24)
    for _ in range(10):
        form = random_form(rng, 4, sizes, shift)
        largest = form.value(points)[0].max()
        sign, point, _ = branch_and_bound(form, 200_000)
        assert sign == ("negative" if largest < -0.02 else sign)
        if sign == "positive":
            assert point is not None and form.value(point)[0] > 0
        if sign == "negative" or bounded_by_planes(form) or is_definite(form)[0]:
            assert largest < 0
        if largest > 0:
            assert sign == "positive"


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 3, 4)])
def test_planes_are_sharp_where_all_products_are_positive(sizes):
    """The upper form is concave there: the bound proves up to the largest value itself, in any dimension."""
    rng = np.random.default_rng(3)
    form = random_form(rng, 6, sizes, 1.0)
    positive = Form(-np.abs(form.linear), form.sets, tuple(np.abs(c) for c in form.weights))
    low, high = 0.0, 100.0
    for _ in range(20):
        middle = (low + high) / 2
        scaled = Form(positive.linear, positive.sets, tuple(c * middle for c in positive.weights))
        low, high = (middle, high) if bounded_by_planes(scaled) else (low, middle)
    points = rng.dirichlet(np.full(6, 0.7), 4000)
    means = positive.value(points)[0] - points @ positive.linear
    best = float((means / (points @ -positive.linear)).max())
    assert low < 1 / best
    assert low > 0.9 / best


def assert_verdict(model, verdict):
    """The verdict, with a direction where it is that there is no law."""
    found = check_normalizable(model)
    assert found.verdict == verdict, found.reason
    if verdict == "disproven":
        assert_witness(model, found.witness)
    return found


@pytest.mark.parametrize("shift", [0.3, 0.03])
def test_copositive_matrices(shift):
    """The Horn matrix is copositive, but no sum of a semi-definite and a non-negative one, and has zeros."""
    assert "branch and bound" in assert_verdict(from_matrix(HORN + shift * np.eye(5)), "proven").reason
    assert_verdict(from_matrix(HORN - shift * np.eye(5)), "disproven")
    assert_verdict(from_matrix(HORN + shift * np.eye(5), GAUSSIAN), "disproven")


def test_boundary_of_the_copositive_cone_is_undecided():
    found = assert_verdict(from_matrix(HORN), "undecided")
    with pytest.raises(IntractableError, match="undecided"):
        found.check()


def test_two_variables_have_a_closed_form():
    """-a - b + c sqrt(ab) is negative everywhere if and only if c < 2; with a third root and three variables, c < 3."""
    for factor in (-5.0, 0.0, 0.999, 1.001, 9.0):
        pair = make(EXPONENTIAL, "ab", {(1, 1): {"a": -1, "b": -1}, (2, 2): {"ab": 2 * factor}})
        triple = make(EXPONENTIAL, "abc", {(1, 1): {"a": -1, "b": -1, "c": -1}, (3, 3): {"abc": 3 * factor}})
        for model in (pair, triple):
            assert_verdict(model, "proven" if factor < 1 else "disproven")
    assert_verdict(make(EXPONENTIAL, "ab", {(1, 1): {"a": -1, "b": -1}, (2, 2): {"ab": 2}}), "undecided")


@pytest.mark.parametrize("d", [1, 2, 5, 60])
def test_gaussian_pairs_are_positive_definiteness(d):
    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, d))
    definite = root @ root.T + 0.1 * np.eye(d)
    assert_verdict(from_matrix(definite, GAUSSIAN), "proven")
    values, vectors = np.linalg.eigh(definite)
    for level in (-1e-6, -0.1):
        model = from_matrix(definite + (level - values[0]) * np.outer(vectors[:, 0], vectors[:, 0]), GAUSSIAN)
        found = assert_verdict(model, "disproven")
        assert abs(float(found.witness @ torch.from_numpy(vectors[:, 0]))) > 0.99
        assert float(found.witness.norm()) == pytest.approx(1)


def test_singular_precisions_are_told_from_definite_ones_in_rational_numbers():
    singular = np.array([[1.0, 2, 3], [2, 4, 6], [3, 6, 10]])
    tiny = np.diag([0, 2.0**-50, 0])
    assert "rational" in assert_verdict(from_matrix(singular + tiny, GAUSSIAN), "proven").reason
    for matrix in (singular, singular - tiny):
        assert check_normalizable(from_matrix(matrix, GAUSSIAN)).verdict == "disproven"
    for zero in (np.zeros((1, 1)), np.diag([1.0, 0.0]), np.array([[0.0, 1], [1, 0]])):
        assert check_normalizable(from_matrix(zero, GAUSSIAN)).verdict == "disproven"


@pytest.mark.parametrize(
    ("names", "terms", "verdict"),
    [
        ("a", {(1, 1): {"a": -1e-9}, (2, 1): {"a": 1e3}}, "proven"),
        ("a", {(1, 1): {"a": 0}, (2, 1): {"a": -1}}, "proven"),
        ("a", {(2, 1): {"a": 1}}, "disproven"),
        ("a", {(1, 1): {"a": 1e-9}, (2, 1): {"a": -1e3}}, "disproven"),
        ("a", {(2, 1): {"a": 0}, (3, 1): {"a": -1}}, "proven"),
        ("a", {}, "disproven"),
        ("ab", {(1, 1): {"a": -1}}, "disproven"),
        ("ab", {(1, 1): {"a": -1}, (2, 1): {"b": -1}}, "proven"),
        ("ab", {(1, 1): {"a": -1}, (2, 1): {"b": -1}, (2, 2): {"ab": -1}}, "proven"),
        ("ab", {(1, 1): {"a": -1}, (2, 1): {"b": -1}, (2, 2): {"ab": 1e-3}}, "disproven"),
        ("ab", {(1, 1): {"a": -1}, (2, 1): {"b": -1}, (4, 2): {"ab": 5}}, "proven"),
        ("ab", {(1, 1): {"a": -1}, (2, 1): {"b": 1}, (2, 2): {"ab": -1}}, "disproven"),
        ("ab", {(2, 1): {"a": -1, "b": -1}, (4, 2): {"ab": 1.9}}, "proven"),
        ("ab", {(2, 1): {"a": -1, "b": -1}, (4, 2): {"ab": 2.1}}, "disproven"),
        # a near sqrt(b) makes log q grow as sqrt(b), although every ray falls: not proven.
        ("ab", {(1, 1): {"a": -1}, (3, 1): {"b": -1}, (3, 2): {"ab": 1}}, "undecided"),
        # The integral over b is 2 / a; with two partners it is 2 / (sqrt(a) + sqrt(c))^2, which is integrable.
        ("ab", {(1, 1): {"a": -1}, (2, 2): {"ab": -1}}, "disproven"),
        ("abc", {(1, 1): {"a": -1, "c": -1}, (2, 2): {"ab": -1, "bc": -1}}, "undecided"),
    ],
)
def test_lower_powers_decide_where_the_highest_is_absent(names, terms, verdict):
    assert_verdict(make(EXPONENTIAL, names, terms), verdict)


def log_mass(terms, log_top):
    """Log integral of q over two variables from 1e-6 to exp(log_top), by the trapezoidal rule in logarithms."""
    grid = np.arange(-14, log_top, 0.15)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    log_q = a + b
    for (j, _), sets in terms.items():
        for letters, value in sets.items():
            log_q += value * np.exp(sum({"a": a, "b": b}[letter] for letter in letters) / j)
    return float(log_q.max() + np.log(np.exp(log_q - log_q.max()).sum()))


def test_random_models_at_the_boundary_against_integrals():
    """Models where some powers are absent: the mass far out grows if disproven, and does not if proven."""
    rng = np.random.default_rng(0)
    seen = {"proven": 0, "disproven": 0, "undecided": 0}
    for _ in range(30):
        terms = {}
        for key, names in {(1, 1): "ab", (2, 1): "ab", (2, 2): ["ab"], (3, 1): "ab", (3, 2): ["ab"]}.items():
            terms[key] = {name: float(rng.choice([0, -1, 1], p=[0.4, 0.4, 0.2]) * rng.choice([1, 2])) for name in names}
        found = check_normalizable(make(EXPONENTIAL, "ab", terms))
        growth = log_mass(terms, 26) - log_mass(terms, 20)
        if found.verdict == "proven":
            assert growth < 1e-5, (terms, found.reason)
        if found.verdict == "disproven" and "occurs only in products" not in found.reason:
            assert growth > 1e-3, (terms, found.reason)
        seen[found.verdict] += 1
    assert min(seen["proven"], seen["disproven"]) >= 6, seen


def test_a_proof_on_every_ray_would_be_no_proof():
    """The case left undecided above diverges: its inner integral over a grows faster than exp(-b^(1/3)) falls."""

    def log_inner(b):
        top = (b ** (1 / 3) / 3) ** 1.5
        peak = (top * b) ** (1 / 3) - top
        area, _ = scipy.integrate.quad(lambda a: math.exp((a * b) ** (1 / 3) - a - peak), 0, 40 * top + 40, limit=500)
        return peak + math.log(area) - b ** (1 / 3)

    assert log_inner(1e4) > log_inner(1e3) > log_inner(1e2) > 0


@pytest.mark.parametrize(
    ("names", "terms", "verdict"),
    [
        ("a", {(1, 1): {"a": -1}, (2, 1): {"a": 50}, (3, 1): {"a": 50}}, "proven"),
        ("a", {(2, 1): {"a": 1e-3}, (3, 1): {"a": -50}}, "disproven"),
        ("a", {(2, 1): {"a": -1e-3}, (3, 1): {"a": -50}}, "disproven"),
        ("a", {(3, 1): {"a": -1}}, "proven"),
        ("abc", {(1, 1): {"a": -1, "b": -1, "c": -1}, (3, 3): {"abc": 2.99}}, "proven"),
        ("abc", {(1, 1): {"a": -1, "b": -1, "c": -1}, (3, 3): {"abc": 3.01}}, "disproven"),
        ("abc", {(1, 1): {"a": -1, "b": -1, "c": -1}, (3, 3): {"abc": -99}, (2, 2): {"ab": 1.9}}, "proven"),
        # Three pairs that no signs make positive at once: their moduli prove nothing, definiteness does.
        ("abc", {(1, 1): {"a": -1, "b": -1, "c": -1}, (2, 2): {"ab": -1.5, "bc": -1.5, "ac": -1.5}}, "proven"),
        ("abc", {(1, 1): {"a": -1, "b": -1, "c": -1}, (2, 2): {"ab": 1.5, "bc": -1.5, "ac": -1.5}}, "disproven"),
        ("abc", {(1, 1): {"a": -1, "b": -1, "c": -1}, (2, 2): {"ab": 0.9, "bc": 0.9, "ac": 0.9}}, "proven"),
    ],
)
def test_gaussian_models_with_higher_roots(names, terms, verdict):
    assert_verdict(make(GAUSSIAN, names, terms), verdict)


def test_patterns_of_signs_are_searched():
    """Too strong for moduli, indefinite as pairs, and yet negative: a negative triple holds the one bad direction."""
    for pair, verdict in ((1.2, "proven"), (1.4, "proven"), (2.5, "disproven")):
        terms = {(1, 1): {"a": -1, "b": -1, "c": -1}, (2, 2): {"ab": pair, "bc": pair, "ac": pair}, (3, 3): {"abc": -3}}
        model = make(GAUSSIAN, "abc", terms)
        assert (largest_leading(model, 60) < 0) == (verdict == "proven")
        found = check_normalizable(model)
        assert found.verdict == verdict
        if verdict == "proven":
            assert "branch and bound" in found.reason
            without = make(GAUSSIAN, "abc", {key: terms[key] for key in ((1, 1), (2, 2))})
            assert check_normalizable(without).verdict == "disproven"


@pytest.mark.parametrize("family", [PoissonFamily(), TruncatedPoissonFamily(5)], ids=lambda f: f.name)
def test_counts_are_always_normalisable(family):
    structure = RootStructure.complete(domain_of(3, family), 3)
    model = GeneralizedRootEnergy(structure, torch.full((2, structure.num_terms), 1e6), family)
    assert check_normalizable(model).verdict == "proven"


@pytest.mark.parametrize("family", [EXPONENTIAL, GAUSSIAN], ids=lambda f: f.name)
def test_many_variables_are_cheap(family):
    rng = np.random.default_rng(0)
    d = 300
    domain = domain_of(d, family)
    sets = {size: np.unique(np.sort([rng.choice(d, size, False) for _ in range(900)], 1), axis=0) for size in (2, 3)}
    structure = RootStructure.from_positions(domain, {(1, 1): np.arange(d)[:, None], (2, 2): sets[2], (3, 3): sets[3]})
    psi = 0.02 * torch.from_numpy(rng.normal(size=structure.num_terms))
    psi[:d] = -1.0
    assert check_normalizable(GeneralizedRootEnergy(structure, psi, family)).verdict == "proven"
    psi[structure.index(("v0", "v1")) if ("v0", "v1") in structure.tuples((2, 2)) else d] = 3.0
    assert_verdict(GeneralizedRootEnergy(structure, psi, family), "disproven")


def test_parts_are_examined_one_by_one():
    blocks = np.zeros((10, 10))
    for start in range(0, 10, 5):
        blocks[start : start + 5, start : start + 5] = HORN + 0.3 * np.eye(5)
    assert_verdict(from_matrix(blocks), "proven")
    blocks[7, 7] = -0.1
    found = assert_verdict(from_matrix(blocks), "disproven")
    assert found.witness is not None and found.witness.argmax() == 7


def test_batches_name_the_worst_model():
    good, bad, open_ = -1.0, 2.0, 1.0
    structure = make(EXPONENTIAL, "ab", {(1, 1): {"a": 0, "b": 0}, (2, 2): {"ab": 0}}).structure

    def verdict(pairs):
        psi = torch.tensor([[[-1.0, -1.0, p] for p in row] for row in pairs], dtype=torch.float64)
        return check_normalizable(GeneralizedRootEnergy(structure, psi, EXPONENTIAL))

    assert verdict([[good, good]]).verdict == "proven"
    found = verdict([[good, open_], [good, good]])
    assert (found.verdict, found.index) == ("undecided", (0, 1))
    found = verdict([[good, open_], [bad, good]])
    assert (found.verdict, found.index) == ("disproven", (1, 0))
    with pytest.raises(InputError, match=r"batch index \(1, 0\)"):
        found.check()


def test_edge_cases_and_wrong_arguments():
    for family in (EXPONENTIAL, GAUSSIAN):
        assert check_normalizable(make(family, "", {})).verdict == "proven"
        empty = make(family, "a", {(1, 1): {"a": -1}})
        batch = GeneralizedRootEnergy(empty.structure, torch.zeros(0, 1), family)
        assert check_normalizable(batch).verdict == "proven"
    with raises("wrong-type", "energy"):
        check_normalizable(3)
    wrong = GeneralizedRootEnergy(empty.structure, torch.tensor([math.nan]), GAUSSIAN, validate=False)
    with raises("not-finite", "psi"):
        check_normalizable(wrong)


def test_verdicts_do_not_depend_on_scale_or_order():
    matrix = HORN + 0.1 * np.eye(5)
    order = [3, 0, 4, 1, 2]
    for scale in (1e-6, 1.0, 1e6):
        assert check_normalizable(from_matrix(scale * matrix)).verdict == "proven"
        assert check_normalizable(from_matrix(scale * matrix[order][:, order])).verdict == "proven"
        assert check_normalizable(from_matrix(scale * (HORN - 0.1 * np.eye(5)))).verdict == "disproven"
