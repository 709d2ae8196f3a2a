"""The regularised horseshoe: scales by a second computation, laws of shrinkage, posteriors that tell pairs apart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from law_models import theta_of
from pyro.infer import NUTS
from scipy import stats

from pyro_hoim import LogLinearStatistics, run_mcmc
from pyro_hoim.errors import ErrorCode
from pyro_hoim.log_linear import horseshoe_prior, normal_prior, parametrization
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

Double = torch.float64
DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 4})
THREE = InteractionHypergraph.from_order(DOMAIN, 3)


def _random_scales(per: str, *, has_heredity: bool, graph: InteractionHypergraph = THREE) -> tuple[np.ndarray, ...]:
    """tau, lambda, c squared and the scales for a batch of five."""
    prior = horseshoe_prior(graph, per=per, has_heredity=has_heredity)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    tau, own, slab = rng.uniform(0.1, 2, 5), rng.uniform(0.1, 5, (5, prior.num_own)), rng.uniform(1, 9, 5)
    scales = prior.scales(torch.from_numpy(tau), torch.from_numpy(own), torch.from_numpy(slab))
    return tau, own, slab, scales.numpy()


def _naive_precisions(
    graph: InteractionHypergraph, per: str, tau: float, own: np.ndarray, slab: float, *, has_heredity: bool
) -> list[float]:
    """Precisions by recursion over single coordinates, each named by its contrasts (variable, number)."""
    found: dict[frozenset[tuple[str, int]], float] = {}
    used = -1
    for edge, shape in zip(graph.edges, graph.edge_shapes, strict=True):
        if len(edge) > 1 and per == "edge":
            used += 1
        for contrasts in np.ndindex(*[n - 1 for n in shape]):
            key = frozenset(zip(edge, contrasts, strict=True))
            value = 1 / slab
            if len(edge) > 1:
                used += per == "coordinate"
                value += 1 / (tau * own[used]) ** 2
            if has_heredity and len(edge) > 2:
                value += sum(found.get(frozenset(part), 0.0) for part in combinations(sorted(key), len(edge) - 1))
            found[key] = value
    return list(found.values())


@pytest.mark.parametrize("per", ["edge", "coordinate"])
@pytest.mark.parametrize("has_heredity", [True, False])
@pytest.mark.parametrize("is_whole", [True, False], ids=["hierarchical", "parent missing"])
def test_scales_are_those_of_a_recursion_over_coordinates(per: str, has_heredity: bool, is_whole: bool) -> None:
    graph = THREE if is_whole else THREE.remove_edges([("a", "b")], hierarchical=False)
    tau, own, slab, scales = _random_scales(per, has_heredity=has_heredity, graph=graph)
    for k in range(5):
        wanted = _naive_precisions(graph, per, tau[k], own[k], slab[k], has_heredity=has_heredity)
        np.testing.assert_allclose(scales[k] ** -2, wanted, rtol=1e-12)


def _exceeds_a_parent(scales: np.ndarray) -> bool:
    """Whether a triple's scale is above that of one of its pairs; one lambda an edge."""
    first = {edge: scales[:, where.start] for edge, where in THREE.parameter_slices.items()}
    return any(
        bool((first[edge] > first[pair]).any()) for edge in first if len(edge) == 3 for pair in combinations(edge, 2)
    )


def test_a_child_is_below_its_parents_and_control_without_heredity_is_not() -> None:
    assert not _exceeds_a_parent(_random_scales("edge", has_heredity=True)[-1])
    assert _exceeds_a_parent(_random_scales("edge", has_heredity=False)[-1])


def _shrinkage_p_value(overall_scale: float) -> float:
    r"""Of the law Beta(1/2, 1/2) of :math:`1 / (1 + \lambda^2)`, which names the horseshoe; tau = 1, a far slab."""
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 20), 2)
    prior = horseshoe_prior(graph, overall_scale=overall_scale)
    with pyro.poutine.seed(rng_seed=1):  # type: ignore[attr-defined]
        nodes: Any = pyro.poutine.trace(prior).get_trace().nodes
    own = nodes["own"]["value"].expand(1, -1)
    far = torch.full((1,), 1e30, dtype=Double)
    variance = prior.scales(torch.full((1,), overall_scale, dtype=Double), own, far).numpy()[0, 20:] ** 2
    return float(stats.kstest(1 / (1 + variance), stats.beta(0.5, 0.5).cdf).pvalue)


def test_shrinkage_has_the_law_that_names_the_prior_and_control_with_another_scale() -> None:
    assert _shrinkage_p_value(1.0) > FALSE_ALARM_RATE
    assert _shrinkage_p_value(0.1) < FALSE_ALARM_RATE


def test_the_group_prior_does_not_depend_on_the_names_of_levels() -> None:
    prior = horseshoe_prior(THREE)
    tau, own, slab, _ = _random_scales("edge", has_heredity=True)
    scales = prior.scales(*(torch.from_numpy(v[0:1]) for v in (tau, own, slab)))[0]
    theta = theta_of(THREE, seed=2)
    codings = parametrization(THREE)
    table = codings.to_tables(theta)
    turned = table.clone()
    for edge, where in THREE.term_slices.items():
        if "d" in edge:
            shape = [DOMAIN[name].cardinality for name in edge]
            turned[where] = table[where].reshape(shape).flip(edge.index("d")).flatten()
    other = codings.from_tables(turned)
    law = torch.distributions.Normal(torch.zeros_like(scales), scales)
    assert not torch.allclose(other, theta)
    torch.testing.assert_close(law.log_prob(other).sum(), law.log_prob(theta).sum(), rtol=1e-12, atol=0)


@pytest.mark.slow
def test_nuts_frees_the_strong_pair_and_shrinks_the_others_more_than_a_normal_prior() -> None:
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 5), 2)
    theta = torch.zeros(graph.num_parameters, dtype=Double)
    theta[5] = 0.6
    counts, total = LogLinearStatistics(graph, theta, 400).mean, 400  # no noise: other pairs have estimates of zero
    prior = horseshoe_prior(graph)

    def program(draw_theta: Callable[[], torch.Tensor]) -> None:
        pyro.sample("counts", LogLinearStatistics(graph, draw_theta(), total), obs=counts)

    def normal() -> torch.Tensor:
        return pyro.sample("theta", normal_prior(graph, 1.0, dtype=Double))

    spreads, means = [], []
    for law in (prior, normal):
        kernel = NUTS(program, target_accept_prob=0.95)
        run = run_mcmc(kernel, 400, burn_in=400, num_chains=2, seed=1, model_args=(law,), progress=False)
        if law is normal:
            drawn = run.samples["theta"]
        else:
            parts = [run.samples[name] for name in ("overall", "own", "slab", "direction")]
            drawn = prior.scales(*parts[:3]) * parts[3]
        flat = drawn.flatten(0, 1)
        spreads.append(flat.std(0)[6:])
        means.append(flat.mean(0)[5])
    assert float((spreads[0] / spreads[1]).max()) < 0.7
    assert abs(float(means[0] - means[1])) < 0.1


@pytest.mark.parametrize(
    ("changes", "code", "argument"),
    [
        ({"overall_scale": 0.0}, "out-of-range", "overall_scale"),
        ({"slab_scale": float("nan")}, "out-of-range", "slab_scale"),
        ({"slab_degrees": -1}, "out-of-range", "slab_degrees"),
        ({"per": "row"}, "unknown-choice", "per"),
        ({"hypergraph": "abc"}, "wrong-type", "hypergraph"),
        ({"hypergraph": InteractionHypergraph.from_order(DOMAIN, 1)}, "empty", "hypergraph"),
    ],
)
def test_bad_input(changes: dict[str, object], code: ErrorCode, argument: str) -> None:
    with raises(code, argument):
        horseshoe_prior(**{"hypergraph": THREE, **changes})  # type: ignore[arg-type]
