"""What a study sets beside a posterior over structure: draws of theta, leave-one-out by exact evidence, both ArviZ."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import Domain, InteractionHypergraph, Observations, load_table
from pyro_hoim.inference import ChainSettings, StructureEvidence, StructurePrior, enumerate_structures, log_evidence
from pyro_hoim.inference.structure.chains import ThetaProposal, theta_given
from pyro_hoim.interop import backend
from pyro_hoim.log_linear import DiaconisYlvisaker, HierarchicalLogLinear, Prior, cell_log_likelihood
from pyro_hoim.runs.checkpoint import RunOptions
from pyro_hoim.study.structures import find_structures, record_structures
from pyro_hoim.testing import FALSE_ALARM_RATE

COUNTS = np.array([[[6, 2], [3, 4], [0, 2]], [[1, 5], [4, 1], [7, 3]]])
DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})


def rows(counts: Any = COUNTS, dtype: torch.dtype = torch.float64) -> Observations:
    """All cells with their counts, which may be weights."""
    codes = torch.cartesian_prod(*(torch.arange(n) for n in DOMAIN.cardinalities))
    return Observations(DOMAIN, codes, torch.from_numpy(np.asarray(counts)).reshape(-1).to(dtype))


# Theta given a collection


def _standardised(means: np.ndarray, expected: float) -> float:
    """Mean of independent chains less what is expected, in standard errors."""
    return float((means.mean() - expected) / (means.std(ddof=1) / math.sqrt(len(means))))


def test_theta_given_a_collection_has_the_moments_of_its_posterior() -> None:
    one = Domain.from_cardinalities({"a": 2})
    data = Observations.from_table(one, np.array([4, 0]))  # nothing was seen at one level: far from normal
    space = StructurePrior(one).space
    evidence = StructureEvidence(data, space, "normal:3")
    grid = np.linspace(-25, 25, 40_001)
    design = HierarchicalLogLinear(space.largest, torch.from_numpy(grid)[:, None]).probs.numpy()
    log_density = 4 * np.log(design[:, 0]) - grid**2 / 18
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    proposal = ThetaProposal(evidence, 0)
    drawn = theta_given(evidence, 0, 40, 200, seed=1)[..., 0].numpy()
    proposed = np.stack([proposal.many(200, np.random.default_rng(k))[0][:, 0] for k in range(40)])
    limit = stats.t.isf(FALSE_ALARM_RATE / 4, 39)
    for power in (1, 2):
        expected = float(density @ grid**power)
        assert abs(_standardised((drawn**power).mean(1), expected)) < limit
    assert abs(_standardised(proposed.mean(1), float(density @ grid))) > limit  # control: nothing is rejected


def test_theta_given_is_reproducible_and_exact_under_the_conjugate_prior() -> None:
    law = StructurePrior(DOMAIN, space="decomposable")
    evidence = StructureEvidence(rows(), law.space, "conjugate:2")
    graph = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c")], closure=True)
    mask = law.space.mask_of(graph)
    drawn = theta_given(evidence, mask, 20, 100, seed=3)
    assert drawn.shape == (20, 100, graph.num_parameters) and drawn.dtype == torch.float64
    assert torch.equal(drawn, theta_given(evidence, mask, 20, 100, seed=3))
    posterior = DiaconisYlvisaker.uniform(graph, 2.0, dtype=torch.float64).posterior(rows())
    probs = HierarchicalLogLinear(graph, drawn.flatten(0, 1)).probs[:, 0, 0, 0].reshape(20, 100).mean(1).numpy()
    expected = float(HierarchicalLogLinear(graph, posterior.sample((40_000,))).probs[:, 0, 0, 0].mean())
    assert abs(_standardised(probs, expected)) < stats.t.isf(FALSE_ALARM_RATE / 2, 19)


# Leave-one-out


def _exact_elpd(graph: InteractionHypergraph, prior: str) -> float:
    """Sum over rows of the log of the evidence with the row over that without it."""
    whole, total = log_evidence(graph, rows(), prior).value, 0.0
    for cell in np.argwhere(COUNTS > 0):
        fewer = COUNTS.copy()
        fewer[tuple(cell)] -= 1
        total += float(COUNTS[tuple(cell)]) * (whole - log_evidence(graph, rows(fewer), prior).value)
    return total


def test_leave_one_out_is_that_of_exact_evidence() -> None:
    law = StructurePrior(DOMAIN, space="decomposable")
    posterior = enumerate_structures(rows(), "conjugate:2", law)
    records = [record_structures(posterior, "list", 2, 300, seed=100 * k) for k in range(6)]
    limit = stats.t.isf(FALSE_ALARM_RATE / 10, 5)
    for number, rival in enumerate(records[0].rivals):
        found = [record.rivals[number].left_out for record in records]
        elpds = np.array([left.elpd for left in found if left is not None])
        expected = _exact_elpd(rival.hypergraph, "conjugate:2")
        assert abs(_standardised(elpds, expected)) < limit
        within = np.array([left.elpd + left.num_effective_parameters for left in found if left is not None])
        assert abs(_standardised(within, expected)) > limit  # control: the rows as they were fitted
    weights = [rival.left_out.weight for rival in records[0].rivals if rival.left_out is not None]
    assert sum(weights) == pytest.approx(1) and min(weights) >= 0
    probabilities = [rival.probability for rival in records[0].rivals]
    assert probabilities == sorted(probabilities, reverse=True) and len(probabilities) == 5


def test_both_generations_of_arviz_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = enumerate_structures(rows(), "unit")
    old = record_structures(posterior, "list", 4, 200, seed=1)
    version = backend.installed_version
    monkeypatch.setattr(backend, "installed_version", lambda name: None if name == "arviz" else version(name))
    new = record_structures(posterior, "list", 4, 200, seed=1)
    for one, two in zip(old.rivals, new.rivals, strict=True):
        assert one.left_out is not None and two.left_out is not None
        for field in dataclasses.fields(one.left_out):
            before, after = getattr(one.left_out, field.name), getattr(two.left_out, field.name)
            if field.name == "std_error":  # divided by n, or by n - 1
                assert after / before == pytest.approx(1, abs=0.02)
            elif field.name == "weight":
                assert after == pytest.approx(before, abs=0.005)  # found by an optimiser
            else:
                assert after == pytest.approx(before, abs=0.3), (
                    field.name
                )  # the efficiency of draws is found differently


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (COUNTS + 0.5, "the counts are not whole numbers"),
        (COUNTS * (COUNTS == 7), "all rows fall in one cell"),
        (COUNTS * 0, "all rows fall in one cell"),
    ],
)
def test_why_there_is_no_leave_one_out(counts: Any, reason: str) -> None:
    posterior = enumerate_structures(rows(counts), "unit")
    record = record_structures(posterior, "list", 2, 50, seed=1)
    assert record.reason == reason and all(rival.left_out is None for rival in record.rivals)
    assert record.cells is not None and float(record.cells.sum()) == pytest.approx(1)
    if not counts.any():  # the posterior is the prior
        prior = posterior.structure_prior.marginal_inclusion
        assert posterior.inclusion.mean.tolist() == pytest.approx(prior.tolist(), abs=1e-12)


def test_float32_rows_have_the_same_record() -> None:
    double, single = (
        record_structures(enumerate_structures(rows(dtype=dtype), "unit"), "list", 2, 50, seed=1)
        for dtype in (torch.float64, torch.float32)
    )
    assert double.to_json("f") == single.to_json("f")


# Routes


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_the_route_follows_the_space_and_the_settings() -> None:
    czech = load_table("czech_autoworkers")
    short = ChainSettings(2, 10, 2)
    for prior, space, settings, expected in (
        ("unit", "pairwise", None, "list"),
        ("unit", "pairwise", short, "chains"),
        ("unit", "hierarchical", short, "chains"),
        ("conjugate:1", "decomposable", None, "list"),
    ):
        law = StructurePrior(czech.domain, space=space)  # type: ignore[arg-type]
        _, route = find_structures(czech, Prior.parse(prior), law, settings, seed=1, run=RunOptions())
        assert route == expected


def test_a_large_table_has_neither_leave_one_out_nor_averaged_cells() -> None:
    wide = Domain.from_cardinalities([2] * 13)
    codes = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (30, 13)))
    law = StructurePrior(wide, space="decomposable", max_order=2)
    data = Observations(wide, codes)
    posterior, route = find_structures(
        data, Prior.parse("conjugate:1"), law, ChainSettings(2, 10, 0, starts="empty"), seed=1, run=RunOptions()
    )
    record = record_structures(posterior, route, 2, 50, seed=1)
    assert record.cells is None and record.reason == "the table has more than 4,096 cells"
    assert record.to_json("f")["models"][0]["elpd_loo"] is None


def test_the_log_likelihood_that_leave_one_out_rests_on_is_that_of_the_collection() -> None:
    graph = InteractionHypergraph.from_order(DOMAIN, 1)
    theta = torch.zeros(1, 2, graph.num_parameters, dtype=torch.float64)
    assert cell_log_likelihood(graph, theta, rows().codes) == pytest.approx(-math.log(12))
