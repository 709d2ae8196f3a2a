"""The program of collections and theta: its density, masks instead of smaller laws, and the methods that it serves."""

import math
import pickle
from typing import Any, cast

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import HMC, SVI
from pyro.optim import ClippedAdam
from scipy import stats

from pyro_hoim import LogLinearStatistics, Observations, run_mcmc
from pyro_hoim.inference import AutoStructure, MixedGibbs, StructurePrior, enumerate_structures, structure_model
from pyro_hoim.inference.mixed import _sites as sites
from pyro_hoim.log_linear import DiaconisYlvisaker, statistics_of
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.schema import Domain
from pyro_hoim.testing import FALSE_ALARM_RATE, raises


def rows_of(counts, *cards):
    return Observations.from_table(Domain.from_cardinalities(cards), np.array(counts).reshape(cards))


TWO = rows_of([6, 2, 3, 4], 2, 2)
THREE = rows_of([6, 2, 3, 4, 1, 5, 4, 7], 2, 2, 2)
MIXED = rows_of([6, 2, 3, 4, 1, 5, 4, 7, 0, 2, 3, 1], 2, 3, 2)


def hmc(program):
    """Five steps of fixed length."""
    return HMC(program, step_size=cast(Any, 0.4), num_steps=5, adapt_step_size=False)


def log_density(program, gamma, theta):
    """Log joint density of the sites of a program at given values."""
    given = pyro.poutine.condition(program, data={"gamma": gamma, "theta": theta})
    return torch.as_tensor(pyro.poutine.trace(given).get_trace().log_prob_sum())


def values_of(program):
    """What one run with a seed draws and returns."""
    with pyro.poutine.seed(rng_seed=1):
        nodes = dict(pyro.poutine.trace(program).get_trace().nodes)
    return {name: nodes[name]["value"] for name in ("gamma", "theta", "_RETURN")}


@pytest.mark.parametrize("space", ["hierarchical", "pairwise", "decomposable"])
def test_the_density_is_that_of_sums_over_cells(space):
    prior = StructurePrior(MIXED.domain, space=space, inclusion=0.3)
    program, rng = structure_model(MIXED, prior), np.random.default_rng(1)
    design, counts = design_matrix(prior.largest), MIXED.table().numpy().reshape(-1)
    scales = np.concatenate(
        [
            np.full(int(np.prod([c - 1 for c in cards])), math.sqrt(math.prod(cards)))
            for cards in prior.largest.edge_shapes
        ]
    )
    members = prior.enumerate_support().double()
    sizes = members[:, : prior.space.num_free].sum(1)
    weights = 0.3**sizes * 0.7 ** (prior.space.num_free - sizes)
    for gamma, weight in zip(members, weights / weights.sum(), strict=True):
        theta = rng.normal(size=design.shape[1])
        mask = np.concatenate([np.ones(4), *([g] * n for g, n in zip(gamma.tolist(), (2, 1, 2, 2), strict=False))])
        logits = design @ (theta * mask)
        rows = counts @ (logits - np.log(np.exp(logits).sum()))
        wanted = math.log(weight) + stats.norm.logpdf(theta, scale=scales).sum() + rows
        assert float(log_density(program, gamma, torch.from_numpy(theta))) == pytest.approx(wanted, rel=1e-12)
        single = float(log_density(program, gamma.float(), torch.from_numpy(theta)))
        assert single == pytest.approx(wanted, rel=1e-6)


def test_masks_of_the_largest_collection_are_its_parts():
    prior = StructurePrior(MIXED.domain)
    largest, rng = prior.largest, np.random.default_rng(2)
    for gamma in prior.enumerate_support().double():
        theta, mask = torch.from_numpy(rng.normal(size=largest.num_parameters)), prior.parameter_mask(gamma)
        ones = torch.cat([torch.ones(3, dtype=torch.float64), gamma])
        assert torch.equal(mask, largest.spread(ones))
        whole = LogLinearStatistics(largest, theta * mask, 38).log_prob(statistics_of(MIXED, largest))
        part = prior.hypergraph_of(gamma)
        own = LogLinearStatistics(part, theta[mask == 1], 38).log_prob(statistics_of(MIXED, part))
        assert float(whole) == pytest.approx(float(own), rel=1e-12)


def test_other_priors_weights_no_rows_and_copies():
    prior = StructurePrior(TWO.domain)
    theta = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    wide = torch.distributions.StudentT(4.0, torch.zeros(3).double(), 2.0)
    law = torch.distributions.Independent(wide, 1)
    for given in (law, lambda _: law):
        difference = log_density(structure_model(TWO, prior, given), torch.ones(1), theta)
        difference = difference - log_density(structure_model(TWO, prior, "normal:2"), torch.ones(1), theta)
        wanted = law.log_prob(theta) - torch.distributions.Normal(0.0, 2.0).log_prob(theta).sum()
        assert float(difference) == pytest.approx(float(wanted), rel=1e-6)
    none = Observations(TWO.domain, torch.zeros(0, 2, dtype=torch.long))
    wanted = math.log(0.5) + float(torch.distributions.Normal(0.0, 0.5).log_prob(theta).sum())
    assert float(log_density(structure_model(none, prior, 0.5), torch.ones(1), theta)) == pytest.approx(
        wanted, rel=1e-6
    )
    half = Observations.from_table(TWO.domain, weights=TWO.table() / 3)
    values = [log_density(structure_model(data), torch.ones(1), theta) for data in (none, half, TWO)]
    assert 3 * float(values[1] - values[0]) == pytest.approx(float(values[2] - values[0]), rel=1e-6)
    flat = structure_model(rows_of([1, 2], 2, 1))
    assert values_of(flat)["theta"].shape == (1,) and flat.structure_prior.event_shape == (1,)
    program = structure_model(MIXED)
    first, second = (values_of(made) for made in (program, pickle.loads(pickle.dumps(program))))
    assert all(torch.equal(first[name], second[name]) for name in ("gamma", "theta", "_RETURN"))
    assert torch.equal(first["_RETURN"], first["theta"] * program.structure_prior.parameter_mask(first["gamma"]))


# Methods


def assert_inclusion(data, num_draws, num_chains=4):
    """Draws of MixedGibbs include what the list does, up to their error, and not what another prior includes."""
    kernel = MixedGibbs(structure_model(data), hmc)
    run = run_mcmc(kernel, num_draws, burn_in=20, num_chains=num_chains, seed=1, progress=False)
    gamma = run.samples["gamma"].double()
    length = math.isqrt(num_draws)
    batches = gamma[:, : num_draws // length * length].unflatten(1, (-1, length)).mean(2).flatten(0, 1)
    error = batches.std(0) / math.sqrt(len(batches))
    size = gamma.shape[-1]
    limit = stats.t.isf(FALSE_ALARM_RATE / 2 / size, len(batches) - 1)
    for inclusion, method, is_right in ((0.5, "bridge", True), (0.9, "laplace", False)):
        structures = StructurePrior(data.domain, inclusion=inclusion)
        wanted = enumerate_structures(data, "unit", structures, method=cast(Any, method)).inclusion.mean
        assert bool(((batches.mean(0) - wanted).abs() < limit * error + 0.005).all()) is is_right
    assert kernel.evaluation == {"gamma": "rows together"}


def test_mixed_gibbs_agrees_with_the_list_of_two_variables():
    assert_inclusion(TWO, 64, 2)


@pytest.mark.slow
@pytest.mark.parametrize("most", [512, 2], ids=["together", "one by one"])
def test_mixed_gibbs_agrees_with_the_list_of_three_variables(most, monkeypatch):
    monkeypatch.setattr(sites, "_MAX_TOGETHER", most)
    assert_inclusion(THREE, 1_500)


def test_mixed_gibbs_moves_indicators_one_by_one_where_collections_are_many():
    wide = rows_of([1] * 32, 2, 2, 2, 2, 2)
    spaces = [("hierarchical", 26), ("pairwise", 10)]
    for space, visits in spaces:
        program = structure_model(wide, StructurePrior(wide.domain, space=space))
        kernel = MixedGibbs(program, hmc)
        kernel.setup(0)
        (site,) = kernel._sites
        assert len(site.visits) == visits and all(len(visit.candidates) == 2 for visit in site.visits)
    graphs = structure_model(wide, StructurePrior(wide.domain, space="graphical"))
    kernel = MixedGibbs(graphs, hmc)
    kernel.setup(0)
    assert [len(visit.candidates) for visit in kernel._sites[0].visits] == [1_024]


def test_the_guide_follows_the_program():
    program = structure_model(TWO)
    structures = enumerate_structures(TWO, "unit", method="bridge")
    total = float((structures.log_evidence + structures.structure_prior.probs.log()).logsumexp(0))
    with torch.random.fork_rng():
        pyro.set_rng_seed(1)
        pyro.clear_param_store()
        guide = AutoStructure(program)
        svi = SVI(program, guide, ClippedAdam({"lr": 0.05, "lrd": 0.99}), guide.elbo())
        for _ in range(120):
            svi.step()
        loss = np.mean([svi.evaluate_loss() for _ in range(100)])
    assert -0.05 < loss + total < 0.2
    assert float(guide.inclusion()[0]) == pytest.approx(structures.inclusion["x0", "x1"], abs=0.05)


def test_bad_input():
    with raises("conflict", "prior"):
        structure_model(TWO, prior="conjugate:1")
    with raises("conflict", "prior"):
        structure_model(TWO, prior=lambda h: DiaconisYlvisaker.uniform(h, 1.0))
    with raises("conflict", "prior"):
        structure_model(TWO, prior="none")
    with raises("wrong-type", "structure_prior"):
        structure_model(TWO, "unit")
    with raises("wrong-type", "partition"):
        structure_model(TWO, partition="exact")
    with raises("wrong-type", None):
        structure_model([[0, 1]])
    with raises("other-domain", "data"):
        structure_model(TWO, StructurePrior(THREE.domain))
    with raises("out-of-range", "data"):
        structure_model(Observations.from_table(TWO.domain, weights=TWO.table() / 2))
    with raises("missing-cells"):
        structure_model(Observations.from_tensor(torch.tensor([[0, -1]]), TWO.domain))
    with raises("wrong-shape", "prior"):
        structure_model(TWO, prior=torch.distributions.Normal(torch.zeros(2), 1.0))
