"""Posteriors over all collections: published numbers, an independent sum, averages by oracles, draws, bad input."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import optimize
from scipy.special import gammaln

from pyro_hoim.data import Observations
from pyro_hoim.inference import (
    ChainSettings,
    StructureEvidence,
    StructurePosterior,
    StructurePrior,
    enumerate_structures,
    log_evidence,
    sample_structures,
)
from pyro_hoim.log_linear import DiaconisYlvisaker, HierarchicalLogLinear, unit_information_prior
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_exact_law, raises, required_draws


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
    assert best.hypergraph == czech.model(text)
    assert best.probability == pytest.approx(probability, abs=says["tolerance"])
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
    mode = posterior.evidence.posterior(structures.space.mask_of(best))[2].mode
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
        expected = torch.from_numpy(posterior.evidence.posterior(mask)[2].mode.theta)
    else:
        expected = DiaconisYlvisaker.uniform(best, 2.0, dtype=torch.float64).posterior(data).mean
    error = (theta.mean(0) - expected) / (theta.std(0) / math.sqrt(len(theta)))
    assert error.abs().max() < 4.9
    shifted = posterior.evidence.posterior(mask)[2].mode.theta + 0.2  # control
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


def test_bad_input_is_refused_before_any_work(czech):
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
