"""Evidence of one collection: published values, closed forms, quadrature, methods and routes agree, bad input."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from pyro.distributions import MultivariateNormal, Normal, StudentT
from scipy.special import logsumexp

from pyro_hoim.data import Observations
from pyro_hoim.inference import StructureEvidence, StructurePrior, log_evidence
from pyro_hoim.inference.structure import kernel as kernels
from pyro_hoim.inference.structure.drawn.sampling import ThetaProposal
from pyro_hoim.inference.structure.space import StructureSpace
from pyro_hoim.log_linear import DiaconisYlvisaker, HierarchicalLogLinear, normal_prior, unit_information_prior
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

Z = 4.9
"""Standard errors that a million comparisons together pass with probability one half; a single one with 1e-6."""


def _named(value):
    """The text of a case without addresses, which differ between processes of one run."""
    return re.sub(r" at 0x\w+", "", str(value))


def rows_of(cards, num, seed, *, strength=0.6):
    """Rows of a saturated law with random tables."""
    domain = Domain.from_cardinalities(cards)
    generator = torch.Generator().manual_seed(seed)
    hypergraph = InteractionHypergraph.saturated(domain)
    theta = strength * torch.randn(hypergraph.num_parameters, generator=generator, dtype=torch.float64)
    probs = HierarchicalLogLinear(hypergraph, theta).probs.reshape(-1)
    index = torch.multinomial(probs, num, replacement=True, generator=generator)
    counts = torch.bincount(index, minlength=len(probs)).reshape(*cards)
    return Observations.from_table(domain, counts)


def by_quadrature(law, data, hypergraph, width=12.0):
    """Log evidence by the trapezoid rule, for up to two parameters, on a grid that is wide.

    Its steps of 0.1 are a third of the standard deviations here at most.
    """
    grid = torch.linspace(-width, width, 241, dtype=torch.float64)
    size = hypergraph.num_parameters
    points = torch.cartesian_prod(*[grid] * size).reshape(-1, size)
    rows = HierarchicalLogLinear(hypergraph, points)
    unique = data.unique()
    log_kernel = law.log_prob(points)
    for code, count in zip(unique.codes, unique.counts, strict=True):
        log_kernel = log_kernel + count * rows.log_prob(code)
    return float(logsumexp(log_kernel.numpy()) + size * math.log(float(grid[1] - grid[0])))


# Published values


def test_closed_forms_are_the_published_ones(czech, golden):
    says = golden["conjugate_decomposable"]
    values = [log_evidence(czech.model(text), czech.table, says["prior"]) for text, _ in says["models"]]
    assert all(value.method == "exact" and value.is_exact and value.std_error == 0 for value in values)
    assert values[0].value == pytest.approx(says["log_evidence"], abs=says["tolerance"])
    for (_, below), value in zip(says["models"], values, strict=True):
        assert values[0].value - value.value == pytest.approx(below, abs=says["tolerance"])


@pytest.mark.parametrize("name", ["laplace_hierarchical", "laplace_graphical"])
def test_laplace_gives_the_published_differences(czech, golden, name):
    says = golden[name]
    models = [czech.model(text) for text, _ in says["models"]]
    values = [log_evidence(model, czech.table, says["prior"], method="laplace") for model in models]
    assert all(value.method == "laplace" and value.std_error is None and not value.is_exact for value in values)
    for (_, below), value in zip(says["models"], values, strict=True):
        assert values[0].value - value.value == pytest.approx(below, abs=says["tolerance"])


def test_published_models_of_rochdale_are_among_the_largest(rochdale, golden):
    says = golden["rochdale"]
    structures = StructurePrior(rochdale.table.domain, max_order=4)
    evidence = StructureEvidence(rochdale.table, structures.space, says["prior"])

    def gain(model):
        """Log of the largest evidence one birth or death away over its own."""
        mask = structures.space.mask_of(model)
        births, deaths = structures.space.moves(mask)
        return float(evidence.many(births + deaths).max() - evidence(mask))

    models = [rochdale.model(says[who]) for who in ("whittaker", "dobra")]
    first, second = (log_evidence(model, rochdale.table, says["prior"], method="laplace").value for model in models)
    assert max(abs(first - second), *map(gain, models)) < math.log(2)
    assert gain(InteractionHypergraph.from_order(rochdale.table.domain, 2)) > math.log(2)  # all pairs


def test_laplace_makes_the_constant_of_one_fictive_row_too_small(czech, golden):
    says = golden["laplace_constant_too_small"]
    for text, gap in says["models"]:
        model = czech.model(text)
        exact = log_evidence(model, czech.table, says["prior"]).value
        laplace = log_evidence(model, czech.table, says["prior"], method="laplace").value
        assert laplace - exact == pytest.approx(gap, abs=0.02)
        # With as many fictive rows as real ones it is right to 0.1 nats.
        exact = log_evidence(model, czech.table, "conjugate:2000").value
        assert log_evidence(model, czech.table, "conjugate:2000", method="laplace").value == pytest.approx(
            exact, abs=0.1
        )


# Oracles


@pytest.mark.parametrize(("cards", "num"), [([2], 9), ([3], 12), ([2, 2], 25)])
@pytest.mark.parametrize("make", ["unit", "wide", "student", "conjugate"])
def test_methods_agree_with_quadrature(cards, num, make):
    data = rows_of(cards, num, seed=1)
    hypergraph = InteractionHypergraph.from_order(data.domain, 1)
    size = hypergraph.num_parameters
    zero, one = torch.zeros(size, dtype=torch.float64), torch.ones(size, dtype=torch.float64)
    laws = {
        "unit": unit_information_prior(hypergraph, dtype=torch.float64),
        "wide": Normal(zero + 0.3, 2 * one).to_event(1),
        "student": StudentT(5 * one, zero, one).to_event(1),
        "conjugate": DiaconisYlvisaker.uniform(hypergraph, 3.0, dtype=torch.float64),
    }
    law = laws[make]
    exact = by_quadrature(law, data, hypergraph)
    if make != "conjugate":
        found = log_evidence(hypergraph, data, law, method="bridge", seed=3)
        assert found.std_error is not None and 0 < found.std_error < 0.02
        assert abs(found.value - exact) < Z * found.std_error + 1e-4
    laplace = log_evidence(hypergraph, data, law, method="laplace").value
    assert 1e-5 < abs(laplace - exact) < 0.4
    if make == "conjugate":
        assert log_evidence(hypergraph, data, law).value == pytest.approx(exact, abs=1e-4)
        path = log_evidence(hypergraph, data, law, method="path", seed=3)
        assert path.std_error is not None and path.std_error < 0.02
        assert abs(path.value - exact) < Z * path.std_error + 1e-3
        # Control: the same rows with other fictive rows are many standard errors away.
        other = DiaconisYlvisaker.uniform(hypergraph, 4.0, dtype=torch.float64)
        assert abs(by_quadrature(other, data, hypergraph) - exact) > Z * path.std_error + 1e-3


def decomposable(domain, seed):
    space = StructureSpace(domain, space="decomposable")
    assert space.members is not None
    mask = space.masks_of(space.members)[int(np.random.default_rng(seed).integers(len(space.members)))]
    return space.hypergraph_of(mask)


def error_of_path(seed):
    """Error in standard errors on one random collection and table; it may be off by 0.005 more."""
    rng = np.random.default_rng(seed)
    cards = rng.choice([2, 2, 2, 3], size=int(rng.integers(3, 5))).tolist()
    data = rows_of(cards, int(rng.integers(20, 400)), seed)
    hypergraph = decomposable(data.domain, seed)
    prior = f"conjugate:{rng.choice([1, 4, 20])}"
    exact = log_evidence(hypergraph, data, prior).value
    found = log_evidence(hypergraph, data, prior, method="path", seed=seed)
    assert found.std_error is not None and found.std_error < 0.02 and found.method == "path"
    return abs(found.value - exact) / math.hypot(found.std_error, 0.005)


@pytest.mark.parametrize("seed", [0, pytest.param(5, marks=pytest.mark.slow)])
def test_path_agrees_with_closed_forms(seed):
    assert error_of_path(seed) < Z


@pytest.mark.slow
def test_path_agrees_with_closed_forms_on_many_collections():
    errors = [error_of_path(seed) for seed in range(100, 300)]
    assert max(errors) < Z
    assert np.sqrt(np.mean(np.square(errors))) < 1.5  # the errors are what they say, not only bounded


def errors_of_bridge(seed, num_draws):
    """Errors of bridge and Laplace on one random collection and table, in standard errors of bridge and truth together.

    The truth is an average without bias: the joint density over that of a Student law at the mode, at draws of it.
    """
    rng = np.random.default_rng(seed)
    cards = rng.choice([2, 2, 2, 3], size=int(rng.integers(3, 5))).tolist()
    data = rows_of(cards, int(rng.integers(20, 400)), seed)
    space = StructureSpace(data.domain, max_order=3 if len(cards) == 3 else 2)
    assert space.members is not None
    mask = space.masks_of(space.members)[int(rng.integers(len(space.members)))]
    prior = str(rng.choice(["unit", "normal:0.5", "normal:2"]))
    proposal = ThetaProposal(StructureEvidence(data, space, prior), mask)
    logs = np.array([proposal.draw(rng).log_weight for _ in range(num_draws)])
    weights = np.exp(logs - logs.max())
    truth = logs.max() + math.log(weights.mean())
    error = weights.std() / weights.mean() / math.sqrt(num_draws)
    found = log_evidence(space.hypergraph_of(mask), data, prior, method="bridge", seed=seed)
    assert found.std_error is not None and found.std_error < 0.02 and found.method == "bridge"
    both = math.hypot(found.std_error, error)
    laplace = log_evidence(space.hypergraph_of(mask), data, prior, method="laplace").value
    return abs(found.value - truth) / both, abs(laplace - truth) / both


def test_bridge_agrees_with_an_average_without_bias():
    assert max(errors_of_bridge(seed, 4_000)[0] for seed in (0, 1)) < Z


@pytest.mark.slow
def test_bridge_agrees_with_averages_without_bias_on_many_collections():
    errors = np.array([errors_of_bridge(seed, 20_000) for seed in range(100, 300)])
    assert errors[:, 0].max() < Z < errors[:, 1].max()  # the second: a control
    assert np.sqrt(np.mean(np.square(errors[:, 0]))) < 1.5


def test_normal_priors_however_they_are_written(czech):
    model = czech.model("ac,ad,bc,e,f")
    law = unit_information_prior(model, dtype=torch.float64)
    expected = log_evidence(model, czech.table).value
    for prior in ("unit", law, unit_information_prior, lambda hypergraph: unit_information_prior(hypergraph)):
        assert log_evidence(model, czech.table, prior).value == pytest.approx(expected, abs=1e-5)
    dense = MultivariateNormal(torch.zeros(model.num_parameters, dtype=torch.float64), torch.diag(law.variance))
    assert log_evidence(model, czech.table, dense).value == pytest.approx(expected, abs=1e-8)
    for prior in (2.0, "normal:2", "ridge:0.25", normal_prior(model, 2.0)):
        assert log_evidence(model, czech.table, prior).value == pytest.approx(
            log_evidence(model, czech.table, 2.0).value, rel=1e-12
        )
    heavy = StudentT(4 * torch.ones(model.num_parameters).double(), 0.0, 1.0).to_event(1)
    assert log_evidence(model, czech.table, heavy, method="laplace").value != pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("prior", ["unit", "conjugate:5"])
def test_tables_that_are_not_small_give_the_same(czech, prior, monkeypatch):
    model = czech.model("ac,ad,ae,bc,ce,de,f")
    small = log_evidence(model, czech.table, prior, method="laplace")
    monkeypatch.setattr(kernels, "_MAX_CELLS", 32)
    assert log_evidence(model, czech.table, prior, method="laplace").value == pytest.approx(small.value, rel=1e-11)


def test_a_table_of_many_cells_goes_through_the_backend():
    domain = Domain.from_cardinalities([2] * 14)
    codes = torch.randint(2, (300, 14), generator=torch.Generator().manual_seed(0))
    data = Observations.from_tensor(codes, domain)
    chain = InteractionHypergraph(domain, itertools.pairwise(domain.names), closure=True)
    exact = log_evidence(chain, data, "conjugate:50")
    assert exact.method == "exact"
    assert log_evidence(chain, data, "conjugate:50", method="laplace").value == pytest.approx(exact.value, abs=1)


# Many at once


@pytest.mark.parametrize(
    ("prior", "options", "method"),
    [
        ("unit", {"heredity": 0.5}, "auto"),
        ("normal:0.7", {"max_order": 2}, "auto"),
        ("conjugate:2", {}, "laplace"),
        ("conjugate:2", {"space": "decomposable"}, "auto"),
        (unit_information_prior, {"space": "graphical"}, "auto"),
    ],
    ids=_named,
)
def test_many_values_are_those_of_one_by_one(prior, options, method):
    data = rows_of([2, 3, 2, 2], 200, seed=2)
    space = StructureSpace(data.domain, **options)
    assert space.members is not None
    masks = space.masks_of(space.members)[::7]
    evidence = StructureEvidence(data, space, prior, method=method)
    values = evidence.many(masks)
    assert evidence.is_exact == (evidence.method == "exact")
    for mask, value in zip(masks, values, strict=True):
        assert evidence(mask) == value
        single = log_evidence(space.hypergraph_of(mask), data, prior, method=method)
        assert value == pytest.approx(single.value, abs=1e-5 if callable(prior) else 1e-8)
        assert single.method == evidence.method


# Bad and odd input


def test_no_rows_say_nothing():
    domain = Domain.from_cardinalities([2, 3])
    data = Observations.from_tensor(torch.zeros(0, 2, dtype=torch.long), domain)
    hypergraph = InteractionHypergraph.saturated(domain)
    for prior, method in (*itertools.product(["unit", "conjugate:1"], ["auto", "laplace"]), ("unit", "bridge")):
        assert log_evidence(hypergraph, data, prior, method=method).value == pytest.approx(0, abs=1e-9)


def test_one_variable_one_level_and_weights():
    one = Observations.from_table(Domain.from_cardinalities([2]), np.array([3, 1]))
    single = InteractionHypergraph.from_order(one.domain, 1)
    assert log_evidence(single, one, "conjugate:2").value == pytest.approx(math.log(0.05))  # 3! 1! / 5!
    table = np.array([[3.0, 1.0, 2.0]])
    constant = Observations.from_table(Domain.from_cardinalities({"a": 1, "b": 3}), table.astype(int))
    both = InteractionHypergraph.saturated(constant.domain)
    free = InteractionHypergraph.from_order(constant.domain, 1)
    for prior in ("unit", "conjugate:1"):  # an interaction with one level has no parameters, and changes nothing
        assert log_evidence(both, constant, prior).value == pytest.approx(log_evidence(free, constant, prior).value)
    halves = Observations.from_table(constant.domain, weights=table / 2)
    assert log_evidence(free, halves).value == pytest.approx(log_evidence(free, constant).value / 2, abs=1.0)
    copies = Observations.from_table(Domain.from_cardinalities([2, 2]), np.array([[40, 0], [0, 60]]))
    pair = InteractionHypergraph.saturated(copies.domain)
    apart = InteractionHypergraph.from_order(copies.domain, 1)
    for prior in ("unit", "normal:1000", "conjugate:1"):
        assert log_evidence(pair, copies, prior).value > log_evidence(apart, copies, prior).value + 40
    narrow = log_evidence(pair, copies, "normal:0.001").value
    assert narrow == pytest.approx(100 * math.log(0.25), abs=0.1)  # theta is zero, whatever the rows


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"prior": "none"}, "conflict", "prior"),
        ({"prior": "flat"}, "unknown-choice", "prior"),
        ({"prior": -1.0}, "unknown-choice", "prior"),
        ({"prior": "conjugate:0"}, "unknown-choice", "prior"),
        ({"prior": None}, "wrong-type", "prior"),
        ({"prior": lambda hypergraph: hypergraph}, "wrong-type", "prior"),
        ({"prior": Normal(torch.zeros(4), 1.0).to_event(1)}, "wrong-shape", "prior"),
        ({"method": "exact"}, "conflict", "method"),
        ({"method": "path"}, "conflict", "method"),
        ({"method": "harmonic"}, "unknown-choice", "method"),
        ({"prior": "conjugate:1", "method": "exact"}, "no-method", "method"),
        ({"prior": "conjugate:1", "method": "bridge"}, "conflict", "method"),
        ({"data": torch.zeros(3, 3)}, "wrong-type", "data"),
        ({"partition": "x"}, "wrong-type", "partition"),
        ({"hypergraph": "a*b"}, "wrong-type", "hypergraph"),
        (
            {"data": Observations.from_table(Domain.from_cardinalities([2, 2]), np.ones((2, 2), int))},
            "other-domain",
            None,
        ),
    ],
    ids=_named,
)
def test_bad_input_is_refused_before_any_work(options, code, argument):
    data = rows_of([2, 2, 2], 20, 0)
    arguments = {"hypergraph": InteractionHypergraph.from_order(data.domain, 2), "data": data, **options}
    with raises(code, argument):
        log_evidence(**arguments)


def test_other_refusals():
    data = rows_of([2, 2, 2], 20, 0)
    cycle = InteractionHypergraph.from_order(data.domain, 2)
    edges = [["x0"], ["x1"], ["x2"], ["x0", "x1"], ["x0", "x2"], ["x0", "x1", "x2"]]
    other = InteractionHypergraph(data.domain, edges, hierarchical=False)  # as many parameters
    with raises("other-domain", "prior"):
        log_evidence(cycle, data, DiaconisYlvisaker.uniform(other))
    holes = Observations.from_tensor(torch.tensor([[0, 1, -1]]), data.domain)
    with raises("missing-cells"):
        log_evidence(cycle, holes)
    space = StructureSpace(data.domain)
    with raises("missing-cells"):
        StructureEvidence(holes, space)
    with raises("conflict", "prior"):
        StructureEvidence(data, space, unit_information_prior(space.largest))
    with raises("conflict", "method"):
        StructureEvidence(data, space, "conjugate:1")
    with raises("conflict", "method"):
        StructureEvidence(data, space, "unit", method="exact")
    with raises("other-domain", "data"):
        StructureEvidence(data, StructureSpace(Domain.from_cardinalities([2, 2])))


def test_seeds_repeat_and_leave_global_generators_alone():
    data = rows_of([2, 2], 60, 0)
    cycle = InteractionHypergraph(data.domain, [["x0"], ["x0", "x1"]], hierarchical=False)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first, again, other = (log_evidence(cycle, data, "conjugate:2", seed=seed) for seed in (1, 1, 2))
    assert first == again and first.value != other.value and first.method == "path"
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002
    assert first.std_error is not None and other.std_error is not None
    assert abs(first.value - other.value) < Z * math.hypot(first.std_error, other.std_error)
