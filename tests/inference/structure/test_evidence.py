"""Evidence of collections and posteriors over all of them: published values, closed forms, quadrature, bad input."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from pyro.distributions import MultivariateNormal, Normal, StudentT
from scipy import optimize
from scipy.special import gammaln, logsumexp

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.inference import (
    ChainSettings,
    StructureEvidence,
    StructurePosterior,
    StructurePrior,
    enumerate_structures,
    log_evidence,
    sample_structures,
)
from pyro_hoim.inference.structure import kernel as kernels
from pyro_hoim.inference.structure.chains import ThetaProposal
from pyro_hoim.inference.structure.prior import StructureSpace
from pyro_hoim.log_linear import DiaconisYlvisaker, HierarchicalLogLinear, normal_prior, unit_information_prior
from pyro_hoim.testing import assert_exact_law, raises, required_draws

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
    monkeypatch.setattr(kernels, "MAX_CELLS", 32)
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


@pytest.mark.fixed_seed  # of rows whose modes are alike to the last digits
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


# Posteriors over all collections


def small(num=60.0, seed=0):
    """Rows of three variables, two of which depend on each other."""
    rng = np.random.default_rng(seed)
    probs = np.einsum("ab,c->abc", [[0.3, 0.1, 0.1], [0.05, 0.15, 0.3]], [0.6, 0.4])
    counts = rng.multinomial(int(num), probs.ravel()).reshape(2, 3, 2)
    return Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), counts)


# Published numbers


def test_all_decomposable_collections_of_six_variables(czech, golden):
    says = golden["all_decomposable"]
    posterior = enumerate_structures(
        czech.table, says["prior"], StructurePrior(czech.table.domain, space="decomposable")
    )
    assert posterior.num_structures == says["num_models"]
    assert posterior.is_exact and posterior.status == "exact" and posterior.method == "exact"
    text, probability = says["best"]
    best = posterior.models(1)[0]
    assert (best.hypergraph, best.probability) == (czech.model(text), pytest.approx(probability, abs=says["tolerance"]))
    for letters, expected in says["inclusion"].items():
        assert posterior.inclusion[czech.edge(letters)] == pytest.approx(expected, abs=says["tolerance"])
    assert float(posterior.probabilities.sum()) == pytest.approx(1, rel=1e-12)
    assert best.log_evidence == pytest.approx(log_evidence(best.hypergraph, czech.table, says["prior"]).value, abs=1e-8)


def test_pairs_of_six_variables_with_unit_information(czech, golden):
    says = golden["unit_information"]
    posterior = enumerate_structures(czech.table, says["prior"], StructurePrior(czech.table.domain, space="pairwise"))
    assert posterior.num_structures == 32768 and posterior.status == "approximate"
    best, second = posterior.models(2)
    assert best.hypergraph == czech.model(says["best"])
    low, high = says["best_probability"]
    assert low <= best.probability <= high + 0.005 and second.probability < best.probability
    for letters, expected in says["inclusion"].items():
        assert posterior.inclusion[czech.edge(letters)] == pytest.approx(expected, abs=says["tolerance"])


@pytest.mark.parametrize("is_jumping", [False, True])
def test_alcohol_obesity_and_hypertension_as_conting_finds_them(golden, is_jumping):
    says = golden["alcohol"]
    domain = Domain.from_cardinalities(dict(zip(says["variables"], says["levels"], strict=True)))
    table = Observations.from_table(domain, torch.tensor(says["counts"], dtype=torch.float64).reshape(says["levels"]))
    if is_jumping:
        posterior = sample_structures(table, says["prior"], settings=ChainSettings(num_draws=3000), collapsed=False)
        assert posterior.is_exact
    else:
        posterior = enumerate_structures(table, says["prior"])
    assert table.total_count == 491 and posterior.num_structures <= 9
    found = {model.hypergraph.edges[3:]: model.probability for model in posterior.models(9)}
    assert found[()] == pytest.approx(says["independence"], abs=says["tolerance"])
    assert found[(("obesity", "hypertension"),)] == pytest.approx(says["obesity_hypertension"], abs=says["tolerance"])
    other = enumerate_structures(table, "normal:1").models(9)  # a prior that conting did not have
    assert {m.hypergraph.edges[3:]: m.probability for m in other}[()] < says["independence"] - 2 * says["tolerance"]


# Oracles


def walsh_evidence(counts, edges):
    """Laplace evidence under unit information by SciPy, in an orthonormal basis of its own (QR of level indicators)."""
    shape = counts.shape
    columns, precision = [], []
    for edge in edges:
        part = np.ones((1, 1))
        for axis, levels in enumerate(shape):
            basis = np.linalg.qr(np.c_[np.ones(levels), np.eye(levels)[:, : levels - 1]])[0][:, 1:]
            part = np.kron(part, basis if axis in edge else np.ones((levels, 1)))
        columns.append(part)
        precision += [1 / math.prod(shape[i] for i in edge)] * part.shape[1]
    design, weight, flat = np.hstack(columns), np.array(precision), counts.ravel()

    def loss(theta):
        logits = design @ theta
        log_z = np.log(np.exp(logits).sum())
        return -(flat @ (logits - log_z)) + 0.5 * weight @ theta**2 - 0.5 * np.log(weight / (2 * np.pi)).sum()

    found = optimize.minimize(loss, np.zeros(len(weight)), method="BFGS", options={"gtol": 1e-9})
    probs = np.exp(design @ found.x)
    probs /= probs.sum()
    centred = design - probs @ design
    hessian = flat.sum() * centred.T @ (probs[:, None] * centred) + np.diag(weight)
    return -found.fun + 0.5 * len(weight) * math.log(2 * math.pi) - 0.5 * np.linalg.slogdet(hessian)[1]


@pytest.mark.fixed_seed  # of rows that show the pair
@pytest.mark.parametrize("inclusion", [0.5, 0.2, ("beta", 1.0, 2.0)])
def test_three_variables_by_an_independent_sum(inclusion):
    data = small()
    prior = StructurePrior(data.domain, inclusion=inclusion)
    posterior = enumerate_structures(data, "unit", prior)
    pairs = [(0, 1), (0, 2), (1, 2)]
    singles = [(0,), (1,), (2,)]
    models = [list(kept) for k in range(4) for kept in itertools.combinations(pairs, k)] + [[*pairs, (0, 1, 2)]]
    log_weights = []
    for model in models:
        k = len(model)
        if isinstance(inclusion, tuple):
            _, a, b = inclusion
            log_prior = gammaln(a + k) + gammaln(b + 4 - k)
        else:
            log_prior = k * math.log(inclusion) + (4 - k) * math.log(1 - inclusion)
        log_weights.append(walsh_evidence(data.table().numpy(), singles + model) + log_prior)
    weights = np.exp(np.array(log_weights) - max(log_weights))
    weights /= weights.sum()
    found = {model.hypergraph.edge_indices[3:]: model.probability for model in posterior.models(20)}
    for model, weight in zip(models, weights, strict=True):
        assert found[tuple(model)] == pytest.approx(weight, rel=1e-5)
    for edge in [*pairs, (0, 1, 2)]:
        expected = sum(w for model, w in zip(models, weights, strict=True) if edge in model)
        names = [data.domain.names[i] for i in edge]
        assert posterior.inclusion[names] == pytest.approx(expected, rel=1e-5)
        before = float(prior.marginal_inclusion[prior.index(names)])
        factor = expected / (1 - expected) / (before / (1 - before))
        assert posterior.bayes_factor(names) == pytest.approx(factor, rel=1e-4)
    assert posterior.inclusion["b", "a"] > 0.9 > 0.5 > posterior.inclusion["a", "c"]
    assert posterior.median_model.maximal_edges == (("c",), ("a", "b"))


def one_more(data, cell):
    counts = data.table().numpy().ravel().copy()
    counts[cell] += 1
    return Observations.from_table(data.domain, counts.reshape(data.domain.cardinalities))


@pytest.mark.fixed_seed  # of rows whose expansions differ by little
@pytest.mark.parametrize(("prior", "space"), [("conjugate:2", "decomposable"), ("unit", "hierarchical")])
def test_cells_are_the_chance_of_one_more_row(prior, space):
    """The mean probability of a cell is the evidence of the rows and one more, divided by that of the rows."""
    data = small(200)
    structures = StructurePrior(data.domain, space=space)
    posterior = enumerate_structures(data, prior, structures)
    table = posterior.cell_probabilities()
    assert table.shape == (2, 3, 2) and float(table.sum()) == pytest.approx(1)
    total = float(posterior.log_evidence.logsumexp(0))
    expected = [
        math.exp(float(enumerate_structures(one_more(data, cell), prior, structures).log_evidence.logsumexp(0)) - total)
        for cell in range(12)
    ]
    # Closed forms are equal; two expansions to second order differ by the third: (number of cells / N)^2 or so.
    assert table.ravel().tolist() == pytest.approx(expected, rel=1e-7 if prior != "unit" else 4e-3)
    best = posterior.models(1)[0].hypergraph
    mode = posterior.evidence.posterior(structures.space.mask_of(best))[1].mode
    plugged = HierarchicalLogLinear(best, torch.from_numpy(mode.theta)).probs.ravel()
    assert plugged.tolist() != pytest.approx(expected, rel=1e-2)  # control: the best model alone, at its mode


def test_cells_of_the_general_route_are_the_same():
    data = small(200)
    compiled = enumerate_structures(data, "unit").cell_probabilities()
    general = enumerate_structures(data, unit_information_prior).cell_probabilities()
    torch.testing.assert_close(compiled, general, rtol=1e-6, atol=0)


@pytest.mark.parametrize("prior", ["conjugate:2", "unit"])
def test_draws_are_of_the_collections_and_of_theta(prior):
    data = small(100)
    structures = StructurePrior(data.domain, space="decomposable", inclusion=0.4)
    posterior = enumerate_structures(data, prior, structures)
    num = required_draws(posterior.num_structures, 0.05)
    before = torch.get_rng_state()
    draws = posterior.sample(num, seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    masks = structures.space.masks_of(draws.gamma.numpy() == 1)
    places = {mask: k for k, mask in enumerate(structures.space.masks_of(posterior.gamma.numpy()))}
    assert_exact_law(np.bincount([places[m] for m in masks], minlength=len(places)), posterior.probabilities.numpy())
    assert torch.equal(draws.theta != 0, structures.parameter_mask(draws.gamma) != 0)
    assert torch.equal(posterior.sample(5, seed=1).theta, posterior.sample(5, seed=1).theta)
    best = posterior.models(1)[0].hypergraph
    mask = structures.space.mask_of(best)
    theta = draws.theta[torch.tensor([m == mask for m in masks])]
    theta = theta[:, structures.parameter_mask(structures.gamma_of(best)) != 0]
    if prior == "unit":
        expected = torch.from_numpy(posterior.evidence.posterior(mask)[1].mode.theta)
    else:
        expected = DiaconisYlvisaker.uniform(best, 2.0, dtype=torch.float64).posterior(data).mean
    error = (theta.mean(0) - expected) / (theta.std(0) / math.sqrt(len(theta)))
    assert error.abs().max() < 4.9
    shifted = posterior.evidence.posterior(mask)[1].mode.theta + 0.2  # control
    assert ((theta.mean(0) - torch.from_numpy(shifted)) / (theta.std(0) / math.sqrt(len(theta)))).abs().max() > 4.9


def chains_of(index, posterior):
    shares = torch.bincount(index.ravel(), minlength=posterior.num_structures).double() / index.numel()
    return StructurePosterior(
        posterior.evidence, posterior.structure_prior, posterior.gamma, posterior.log_evidence, shares, index=index
    )


def test_chains_have_errors_and_r_hat():
    data = small(12)
    posterior = enumerate_structures(data, "unit", StructurePrior(data.domain, inclusion=0.9))
    generator = torch.Generator().manual_seed(0)
    index = torch.multinomial(posterior.probabilities, 4000, replacement=True, generator=generator).reshape(4, 1000)
    inclusion = chains_of(index, posterior).inclusion
    assert inclusion.r_hat is not None and inclusion.per_chain is not None and inclusion.per_chain.shape == (4, 4)
    assert float(inclusion.r_hat.max()) < 1.02
    expected = posterior.inclusion.mean
    assert ((inclusion.mean - expected).abs() < 4.9 * inclusion.mcse + 1e-12).all()
    independent = (expected * (1 - expected) / 4000).sqrt()
    assert (inclusion.mcse / independent).tolist() == pytest.approx([1.0] * 4, rel=0.25)
    # Stuck: every chain stays where it began, two without an interaction and two with all of them.
    stuck = torch.tensor([0, 0, posterior.num_structures - 1, posterior.num_structures - 1])[:, None].expand(4, 50)
    torn = chains_of(stuck, posterior).inclusion
    assert torn.r_hat is not None and torn.r_hat.tolist() == [math.inf] * 4 and torn.mean.tolist() == [0.5] * 4
    assert bool(torn.mcse.isnan().all())
    agreed = chains_of(torch.zeros(4, 50, dtype=torch.long), posterior).inclusion
    assert agreed.r_hat is not None and agreed.r_hat.tolist() == [1.0] * 4 and agreed.mcse.tolist() == [0.0] * 4


# Bad and odd input


@pytest.mark.parametrize("prior", ["unit", "conjugate:1"])
def test_without_rows_the_posterior_is_the_prior(prior):
    domain = Domain.from_cardinalities([2, 3, 2])
    data = Observations.from_tensor(torch.zeros(0, 3, dtype=torch.long), domain)
    structures = StructurePrior(domain, space="decomposable", inclusion=0.3)
    posterior = enumerate_structures(data, prior, structures)
    torch.testing.assert_close(posterior.probabilities, structures.probs, rtol=1e-10, atol=0)
    torch.testing.assert_close(posterior.cell_probabilities().ravel(), torch.full((12,), 1 / 12).double())
    assert [posterior.bayes_factor(edge) for edge in structures.space.candidates] == pytest.approx([1.0] * 4)


def test_one_variable_one_level_identical_columns_and_weights():
    one = enumerate_structures(Observations.from_table(Domain.from_cardinalities([2]), np.array([5, 2])))
    assert one.num_structures == 1 and one.probabilities.tolist() == [1.0] and one.inclusion.edges == ()
    assert one.median_model.edges == (("x0",),)
    level = Observations.from_table(Domain.from_cardinalities({"a": 1, "b": 2, "c": 2}), np.array([[[30, 5], [4, 40]]]))
    posterior = enumerate_structures(level)
    assert posterior.inclusion["a", "b"] == pytest.approx(float(posterior.inclusion["a", "c"]), rel=1e-9)
    assert posterior.inclusion["b", "c"] > 0.99
    rows = torch.randint(2, (80, 2), generator=torch.Generator().manual_seed(0))
    copies = Observations.from_tensor(torch.cat([rows, rows[:, :1]], 1), Domain.from_cardinalities([2, 2, 2]))
    for prior in ("unit", "normal:1000", "normal:0.001"):
        found = enumerate_structures(copies, prior).inclusion
        assert bool(torch.isfinite(found.mean).all())
        assert (found["x0", "x2"] > 0.999) is (prior != "normal:0.001")
    weighted = Observations.from_table(level.domain, weights=np.array([[[1.5, 0.25], [0.5, 2.5]]]))
    assert 0 < enumerate_structures(weighted).inclusion["b", "c"] < posterior.inclusion["b", "c"]


def test_bad_input_of_lists_is_refused_before_any_work(czech):
    with raises("over-budget", "structure_prior"):
        enumerate_structures(czech.table)
    with pytest.raises(ValueError, match=r"over 6 variables up to order 6 has 7785062 .* limit of a list is 65536"):
        enumerate_structures(czech.table)
    data = small()
    with raises("conflict", "method"):
        enumerate_structures(data, "conjugate:1")
    with raises("wrong-type", "structure_prior"):
        enumerate_structures(data, "unit", 0.5)
    with raises("other-domain", "data"):
        enumerate_structures(data, "unit", StructurePrior(czech.table.domain, max_order=2))
    with raises("wrong-type", "data"):
        enumerate_structures(torch.zeros(3, 3))
    posterior = enumerate_structures(data)
    with raises("out-of-range", "edge"):
        _ = posterior.inclusion["a", "z"]
    with raises("out-of-range", "limit"):
        posterior.models(0)
    with raises("out-of-range", "num_draws"):
        posterior.sample(0)


def test_large_tables_have_no_list_of_cells():
    domain = Domain.from_cardinalities([9, 9, 9, 9])
    codes = torch.randint(9, (50, 4), generator=torch.Generator().manual_seed(0))
    data = Observations.from_tensor(codes, domain)
    posterior = enumerate_structures(data, "conjugate:1", StructurePrior(domain, space="decomposable"))
    assert posterior.num_structures == 61
    with raises("over-budget", "cell_probabilities"):
        posterior.cell_probabilities()
    chosen = StructureEvidence(data, posterior.structure_prior.space, "conjugate:1")
    single = InteractionHypergraph.from_order(domain, 1)
    assert chosen(0) == pytest.approx(log_evidence(single, data, "conjugate:1").value, abs=1e-8)
