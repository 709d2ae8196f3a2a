"""Verdicts on models with a family per variable: cases by hand, and integrals over growing boxes and along curves."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, Variable
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
    UserFamily,
    check_normalizable,
)
from pyro_hoim.generalized_root.normalizability.check import check_normalizability
from pyro_hoim.testing import raises

from support.mixed_growth import FAMILIES, MixedModel, log_density, log_density_along, log_masses, random_model
from support.root_models import domain_of


def verdict_on(letters, terms, groups=()):
    """Verdict on a model by the letters of its families and its terms, whose variables are digits."""
    model = MixedModel(letters, {(j, tuple(map(int, row))): c for (j, row), c in terms.items()})
    return model, check_normalizability(*model.parameters(), model.families, groups)


LOG_Z = np.array([40.0, 60.0])


def log_q_along(model, answer):
    """Log q with the measure far out on the curve of a verdict that disproves, at two places; it does not fall."""
    with np.errstate(divide="ignore", invalid="ignore"):
        along = log_density_along(model, answer.witness.numpy(), answer.exponents.numpy(), LOG_Z)
        moduli = MixedModel(model.letters, {term: abs(c) for term, c in model.terms.items()})
        size = log_density_along(moduli, answer.witness.abs().numpy(), answer.exponents.numpy(), LOG_Z)
    assert along[1] >= along[0] - 0.01 - 1e-13 * np.abs(size[1]), (model, answer, along)
    return along


# A curve of x = r, y = r or sqrt(r), with the critical coefficient of the highest product where there is one.
QUARTER = 1 / (0.25**0.25 * 0.75**0.75)  # max of -u - w + c u^(1/4) w^(3/4) is zero


@pytest.mark.parametrize(
    ("letters", "terms", "verdict"),
    [
        # exp(-x - y^2 + 3 y sqrt(x)) falls along every straight ray in (x, y) and diverges along y = 1.5 sqrt(x).
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 3}, "disproven"),
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): -3}, "disproven"),
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 1.99}, "proven"),
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): -1.99}, "proven"),
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2.01}, "disproven"),
        ("egg", {(1, "0"): -1, (1, "1"): -1, (1, "2"): -1, (3, "012"): 2.99}, "proven"),
        ("egg", {(1, "0"): -1, (1, "1"): -1, (1, "2"): -1, (3, "012"): 3.01}, "disproven"),
        # Three pairs, of which an odd number is negative: signs of two variables cannot make all positive.
        ("egg", {(1, "0"): -1, (1, "1"): -1, (1, "2"): -1, (2, "01"): 1.3, (2, "02"): -1.3, (2, "12"): 1.3}, "proven"),
        (
            "egg",
            {(1, "0"): -1, (1, "1"): -1, (1, "2"): -1, (2, "01"): 1.3, (2, "02"): 1.3, (2, "12"): 1.3},
            "disproven",
        ),
        ("eeg", {(1, "0"): -1, (1, "1"): -1, (1, "2"): -1, (2, "01"): -9, (2, "02"): 1.9, (2, "12"): 1.9}, "proven"),
        # Zero along one direction exactly: the next power decides there.
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2, (3, "0"): -1}, "proven"),
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2, (3, "0"): 1}, "disproven"),
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): -2, (4, "01"): 1, (3, "0"): -2}, "disproven"),
        ("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2}, "undecided"),
        ("ggb", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2, (3, "0"): -1}, "proven"),
        ("ggb", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2, (3, "0"): -1, (2, "02"): 0.01}, "disproven"),
        ("egb", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2, (2, "0"): -1, (2, "02"): 0.9}, "proven"),
        ("egb", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2, (2, "0"): -1, (2, "02"): 1.1}, "disproven"),
        ("egp", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2, (2, "0"): 1, (2, "02"): -9}, "disproven"),
        ("ggb", {(1, "0"): -2, (1, "1"): -2, (2, "01"): 4, (2, "0"): -3, (2, "1"): -1}, "disproven"),
        # Counts and bounded values do not matter where the form of the numbers is negative.
        ("ep", {(1, "0"): -1, (2, "01"): 100}, "proven"),
        ("eb", {(1, "0"): -1e-3, (2, "01"): 100}, "proven"),
        ("gp", {(1, "0"): -1, (2, "01"): 100}, "proven"),
        # They decide where it is zero.
        ("eb", {(2, "0"): -1, (2, "01"): 0.9}, "proven"),
        ("eb", {(2, "0"): -1, (2, "01"): 1.0}, "disproven"),
        ("eb", {(2, "0"): 1, (2, "01"): -9}, "disproven"),
        ("et", {(2, "0"): -1.8, (2, "01"): 1}, "proven"),
        ("et", {(2, "0"): -1.7, (2, "01"): 1}, "disproven"),
        ("ebb", {(2, "0"): -1.5, (2, "01"): 1, (2, "02"): 1}, "disproven"),
        ("ebb", {(2, "0"): -1.5, (2, "01"): 1, (2, "02"): 1, (3, "012"): -9}, "disproven"),
        ("gb", {(3, "0"): -1, (2, "01"): 1e-3}, "disproven"),
        ("gb", {(3, "0"): -1, (3, "01"): 0.9}, "proven"),
        ("gb", {(2, "01"): 1}, "disproven"),
        ("ggb", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 2, (2, "02"): 1}, "disproven"),
        ("ep", {(2, "0"): -1, (2, "01"): -1}, "proven"),
        ("ep", {(2, "0"): -1, (2, "01"): 0.01}, "disproven"),
        ("ep", {(2, "01"): -1}, "disproven"),  # nothing holds the number where the count is zero
        ("ep", {(2, "0"): -1, (4, "01"): 50}, "proven"),
        # The number is as the square of the count where they compete, and z log z wins.
        ("ep", {(2, "0"): -1, (3, "01"): 50}, "proven"),
        # Finite at all counts, but the sum over them is not: log q is about z^2 at x = z^4.
        ("epp", {(2, "0"): -1, (3, "012"): 0.1}, "disproven"),
        ("epp", {(1, "0"): -1, (3, "012"): 99}, "proven"),
        # Numbers that grow at different powers: degrees 3/4, 1 and 4/3.
        ("eg", {(1, "0"): -1, (2, "1"): 0, (3, "1"): -1, (5, "01"): 9}, "proven"),
        ("eg", {(1, "0"): -1, (3, "1"): -1, (4, "01"): 0.99 * QUARTER}, "proven"),
        ("eg", {(1, "0"): -1, (3, "1"): -1, (4, "01"): 1.01 * QUARTER}, "disproven"),
        ("eg", {(1, "0"): -1, (3, "1"): -1, (3, "01"): 0.1}, "disproven"),
        ("egb", {(1, "0"): -1, (3, "1"): -1, (4, "01"): 0.5 * QUARTER, (5, "012"): 9}, "proven"),
        # The positive product wins over its own power, and loses to a negative product of a higher one.
        ("eg", {(3, "0"): -1, (3, "1"): -1, (6, "01"): 5}, "disproven"),
        ("eg", {(3, "0"): -1, (3, "1"): -1, (6, "01"): 5, (4, "01"): -1}, "proven"),
        ("eg", {(3, "0"): -1, (3, "1"): -1, (2, "01"): -1}, "disproven"),  # of the sign that makes it positive
        # The integral over y is 1 / x^(1/2), that over x is 1 / y^2: the first is integrable near zero.
        ("eg", {(1, "0"): -1, (4, "01"): -1}, "proven"),
        ("eg", {(1, "1"): -1, (4, "01"): -1}, "disproven"),
        ("eg", {(1, "1"): -1}, "disproven"),
        ("eg", {(3, "01"): -1}, "disproven"),
        ("bt", {(2, "01"): 50}, "proven"),
        ("bp", {(2, "01"): 50}, "proven"),
    ],
)
def test_cases_by_hand(letters, terms, verdict):
    model, answer = verdict_on(letters, terms)
    assert answer.verdict == verdict, answer.reason
    if verdict == "disproven":
        log_q_along(model, answer)


def test_the_curve_of_a_number_that_grows_as_a_root():
    _, answer = verdict_on("eg", {(1, "0"): -1, (1, "1"): -1, (2, "01"): 3})
    x, y = answer.witness.tolist()
    assert x + y**2 == pytest.approx(1)
    assert -x - y**2 + 3 * y * x**0.5 > 0
    assert answer.exponents.tolist() == [1.0, 0.5]


def test_values_that_disprove_stay_where_they_are():
    _, answer = verdict_on("et", {(2, "0"): -1.7, (2, "01"): 1})
    assert answer.witness[1] == 3
    assert answer.exponents[1] == 0
    assert "= 3" in answer.reason


def test_indicators_of_one_category_are_not_set_together():
    terms = {(2, "0"): -1.5, (2, "01"): 1, (2, "02"): 1}
    assert verdict_on("ebb", terms)[1].verdict == "disproven"
    assert verdict_on("ebb", terms, [(1, 2)])[1].verdict == "proven"
    # One is always set, and so nothing holds the number where the other is.
    assert verdict_on("ebb", {(2, "01"): -1, (2, "02"): -1}, [(1, 2)])[1].verdict == "proven"
    assert verdict_on("ebb", {(2, "01"): -1, (2, "02"): -1})[1].verdict == "disproven"
    assert verdict_on("ebb", {(2, "01"): -1}, [(1, 2)])[1].verdict == "disproven"


@pytest.mark.parametrize("family", [ExponentialFamily(), GaussianFamily(), PoissonFamily()], ids=lambda f: f.name)
def test_one_family_for_every_variable_is_one_for_all(family):
    structure = RootStructure.complete(domain_of(3, family), 3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        psi = torch.randn(structure.num_terms, generator=generator, dtype=torch.float64)
        psi[structure.slices[1, 1]] -= 1.5
        one = check_normalizable(GeneralizedRootEnergy(structure, psi, family))
        many = check_normalizability(structure, psi, [family] * 3)
        assert (one.verdict, one.reason) == (many.verdict, many.reason)
        if one.witness is not None:
            assert torch.equal(one.witness, many.witness)


def straight_verdict(model):
    """The control: a check of straight rays in the values themselves, which takes no notice of roots."""
    # Directions of the numbers, counts at zero, as columns beside two scales.
    ends = [[0.0] if letter in "btp" else np.linspace(-1, 1, 9) for letter in model.letters]
    v = np.array(list(itertools.product(*ends)))[:, :, None]
    v = v[np.abs(v).sum(1)[:, 0] > 0]
    growth = np.array([2.0 if letter == "g" else 1.0 for letter in model.letters])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = [a * (np.log(np.abs(v[:, s])) + np.array([30.0, 40.0])) for s, a in enumerate(growth)]
        along = log_density(model, logs, [np.where(v[:, s] < 0, -1.0, 1.0) for s in range(len(growth))])
    return "disproven" if (along[:, 1] > along[:, 0]).any() else "proven"


def contradictions(numbers, largest_unbounded):
    """Verdicts on random models, those that integrals contradict, and those of the control that they contradict."""
    verdicts, wrong, control = Counter(), [], 0
    for number in numbers:
        model = random_model(np.random.default_rng(number), largest_unbounded)
        answer = check_normalizability(*model.parameters(), model.families)
        verdicts[answer.verdict] += 1
        step = {1: 0.5, 2: 1.0, 3: 2.0}[sum(letter in "peg" for letter in model.letters)]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            masses = log_masses(model, (24.0, 48.0, 72.0), step)
        is_infinite = masses[2] - masses[1] > 0.1
        if answer.verdict == "disproven":
            # A grid misses a narrow ridge: the mass of a tube as wide as 1 / z about the curve is a lower bound.
            tube = log_q_along(model, answer) - len(model.letters) * LOG_Z
            is_infinite |= tube[1] > tube[0] + 1
        truth = "disproven" if is_infinite else "proven"
        control += straight_verdict(model) != truth
        if answer.verdict not in (truth, "undecided"):
            wrong.append((number, answer, masses))
    return verdicts, wrong, control


@pytest.mark.parametrize(
    ("numbers", "size", "undecided", "least", "least_wrong"),
    [(range(150), 2, 2, 40, 5), pytest.param(range(1000, 3000), 3, 20, 500, 50, marks=pytest.mark.slow)],
)
def test_random_models_against_integrals(numbers, size, undecided, least, least_wrong):
    """No contradiction, few models undecided; rays that take no notice of roots are wrong often."""
    verdicts, wrong, control = contradictions(numbers, size)
    assert not wrong
    assert verdicts["undecided"] <= undecided, verdicts
    assert min(verdicts["proven"], verdicts["disproven"]) >= least, verdicts
    assert control >= least_wrong


@pytest.mark.parametrize("scale", [0.02, 0.2])
def test_thirty_columns_of_all_families(scale):
    letters = "btpeg" * 6
    domain = Domain([Variable(f"v{i}", kind=FAMILIES[c].kind) for i, c in enumerate(letters)])
    structure = RootStructure.complete(domain, 2)
    psi = scale * torch.randn(structure.num_terms, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    psi[:30] = -1.0
    answer = check_normalizability(structure, psi, [FAMILIES[c] for c in letters])
    assert answer.verdict == ("proven" if scale < 0.1 else answer.verdict)
    psi[structure.index(("v3", "v4"))] = 1.01
    assert check_normalizability(structure, psi, [FAMILIES[c] for c in letters]).verdict == "disproven"


def test_a_reason_is_said_once_for_all_components():
    pairs = {(2, f"{i}{i + 1}"): 0.1 for i in (0, 2, 4)}
    singles = {(1, str(i)): -1.0 for i in range(8)}
    for letters in ("eeggegpp", "eeeeeeee", "gggggggg"):
        answer = verdict_on(letters, {**singles, **pairs})[1]
        said = answer.reason.split("; ")
        assert answer.verdict == "proven" and len({way.split(",")[0] for way in said}) == len(said)
    assert answer.reason.count("negative in every direction") == 1  # control: of eight components


def test_users_families_among_others():
    flat = UserFamily("flat", "positive", np.zeros_like)
    known = UserFamily("known", "positive", np.zeros_like, is_normalizable=True)
    twos = UserFamily("no twos", "count", lambda x: np.where(x == 2, -np.inf, 0.0), maximum=3)
    domain = Domain([Variable("a", kind="positive"), Variable("b", kind="positive")])
    structure = RootStructure.simplified(domain)
    psi = torch.tensor([-1.0, -1.0])
    assert check_normalizability(structure, psi, [flat, ExponentialFamily()]).verdict == "undecided"
    assert check_normalizability(structure, psi, [known, ExponentialFamily()]).verdict == "proven"
    assert check_normalizability(structure, -psi, [known, ExponentialFamily()]).verdict == "disproven"
    joined = RootStructure.simplified(domain, [("a", "b")])
    triple = torch.tensor([-1.0, -1.0, -1.0])
    assert check_normalizability(joined, triple, [known, ExponentialFamily()]).verdict == "undecided"
    # The largest root is that of 3, and where 3 has no mass that of 2.
    counts = Domain([Variable("a", kind="positive"), Variable("n", kind="count")])
    structure = RootStructure(counts, {(2, 1): [("a",)], (2, 2): [("a", "n")]})
    for single, verdict in ((-1.74, "proven"), (-1.72, "disproven")):
        coefficients = torch.tensor([single, 0.5])
        assert check_normalizability(structure, coefficients, [ExponentialFamily(), twos]).verdict == verdict
    only = UserFamily("only zero and two", "count", lambda x: np.where(x % 2 == 1, -np.inf, 0.0), maximum=3)
    coefficients = torch.tensor([-1.5, 0.5])
    assert check_normalizability(structure, coefficients, [ExponentialFamily(), only]).verdict == "proven"
    assert check_normalizability(structure, coefficients, [ExponentialFamily(), twos]).verdict == "disproven"


def test_batches_edge_cases_and_wrong_arguments():
    model = MixedModel("eg", {(1, (0,)): -1.0, (1, (1,)): -1.0, (2, (0, 1)): 1.0})
    structure, psi = model.parameters()
    strong = torch.tensor([1.0, 1.0, 3.0])
    batch = torch.stack([psi, psi * strong]).float()
    answer = check_normalizability(structure, batch, model.families)
    assert (answer.verdict, answer.index) == ("disproven", (1,))
    assert check_normalizability(structure, batch[:0], model.families).verdict == "proven"
    empty = RootStructure.independent(Domain([]))
    assert check_normalizability(empty, torch.zeros(0), []).verdict == "proven"
    with raises("wrong-shape", "families"):
        check_normalizability(structure, psi, model.families[:1])
    with raises("not-finite", "psi"):
        check_normalizability(structure, psi * torch.inf, model.families)


def test_many_values_of_bounded_counts():
    """Bounds for all values at once where they are too many to list, and corners for counterexamples."""
    large = TruncatedPoissonFamily(2**40)
    domain = Domain([Variable("a", kind="positive"), *[Variable(f"n{i}", kind="count") for i in range(12)]])
    structure = RootStructure(domain, {(2, 1): [("a",)], (2, 2): [("a", f"n{i}") for i in range(12)]})
    families = [ExponentialFamily(), *[large] * 12]
    psi = torch.full((13,), -1.0, dtype=torch.float64)
    assert check_normalizability(structure, psi, families).verdict == "proven"
    psi[5] = 1e-5
    answer = check_normalizability(structure, psi, families)
    assert answer.verdict == "disproven"
