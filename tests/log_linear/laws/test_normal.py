"""Normal priors and the regularised horseshoe: invariance, scales by a second computation, laws of shrinkage."""

import itertools
import math
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

from pyro_hoim import Domain, HoimError, InputError, InteractionHypergraph, LogLinearStatistics, run_mcmc
from pyro_hoim.errors import ErrorCode
from pyro_hoim.log_linear import (
    Enumeration,
    InteractionRidge,
    Prior,
    horseshoe_prior,
    normal_prior,
    parametrization,
    unit_information_prior,
)
from pyro_hoim.log_linear.laws.natural_parameters import fisher_information
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

Double = torch.float64
SATURATED = InteractionHypergraph.from_formula(Domain.from_cardinalities({"a": 2, "b": 3}), "a*b")
CHAIN = InteractionHypergraph.from_formula(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), "a*b + b*c")
CYCLE = InteractionHypergraph.from_formula(Domain.from_cardinalities({"a": 2, "b": 2, "c": 3}), "a*b + a*c + b*c")


def test_normal_prior_of_numbers_mappings_and_tensors_of_no_dimension():
    prior = normal_prior(CHAIN, 2.0, dtype=Double)
    assert prior.event_shape == (CHAIN.num_parameters,) and prior.batch_shape == ()
    assert prior.stddev.dtype == Double and prior.stddev.tolist() == [2.0] * CHAIN.num_parameters
    assert normal_prior(CHAIN, {1: 1.0, 2: 0.5}).stddev.tolist() == [1.0] * 4 + [0.5] * 4
    by_edge = {edge: 1.0 + i for i, edge in enumerate(CHAIN.edges)}
    assert normal_prior(CHAIN, by_edge).stddev.tolist() == [1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 5.0]
    found = normal_prior(CHAIN, {1: torch.tensor([1.0, 2.0], dtype=Double), np.int64(2): np.float32(0.5)})
    assert found.stddev.tolist() == [[1.0] * 4 + [0.5] * 4, [2.0] * 4 + [0.5] * 4] and found.stddev.dtype == Double
    assert normal_prior(CHAIN, torch.tensor(2.0, dtype=Double), dtype=torch.float32).stddev.tolist() == [2.0] * 8
    empty = InteractionHypergraph(Domain.from_cardinalities([2]), [])
    for scale in (1.0, torch.tensor(1.0), torch.ones(0), {}):
        assert normal_prior(empty, scale).event_shape == (0,)
    assert normal_prior(empty, torch.ones(3, 0)).batch_shape == (3,)
    with pyro.validation_enabled(False):
        prior = normal_prior(CHAIN, torch.zeros(len(CHAIN)))
        assert not bool(torch.isfinite(prior.log_prob(torch.zeros(CHAIN.num_parameters))))


@pytest.mark.parametrize("hypergraph", [SATURATED, CHAIN, CYCLE], ids=["saturated", "chain", "cycle"])
def test_normal_prior_does_not_depend_on_the_names_of_levels(hypergraph):
    codings = parametrization(hypergraph)
    prior = normal_prior(hypergraph, {1: 1.5, 2: 0.4}, dtype=Double)
    tables = codings.to_tables(theta_of(hypergraph, seed=1))
    corner_changes = []
    for variable in hypergraph.domain:
        for order in itertools.permutations(range(variable.cardinality)):
            moved = {}
            for edge, table in codings.split(tables).items():
                axis = edge.index(variable.name) if variable.name in edge else None
                moved[edge] = table if axis is None else table.index_select(axis, torch.tensor(order))
            renamed = codings.join(moved)
            before, after = codings.from_tables(tables), codings.from_tables(renamed)
            assert prior.log_prob(after).item() == pytest.approx(prior.log_prob(before).item(), rel=1e-10)
            # Control: the same normal law over corner coordinates singles out the reference level.
            corner = [codings.from_tables(t, "corner").square().sum().item() for t in (tables, renamed)]
            corner_changes.append(abs(corner[0] - corner[1]))
    assert max(corner_changes) > 0.1


BINARY = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 2]), 2)
DEGENERATE = InteractionHypergraph(Domain.from_cardinalities({"a": 1, "b": 3}), [["a"], ["b"]])


@pytest.mark.parametrize("dtype", [torch.float32, Double])
@pytest.mark.parametrize("batch", [(), (4,), (2, 1, 3)])
def test_normal_prior_of_a_tensor_is_that_of_every_coordinate(dtype, batch):
    generator = torch.Generator().manual_seed(0)
    per_edge = torch.rand((*batch, len(CHAIN)), generator=generator, dtype=dtype) + 0.1
    per_coordinate = torch.rand((*batch, CHAIN.num_parameters), generator=generator, dtype=dtype) + 0.1
    theta = torch.randn((*batch, CHAIN.num_parameters), generator=generator, dtype=dtype)
    written = torch.empty_like(per_coordinate)
    for i, where in enumerate(CHAIN.parameter_slices.values()):
        written[..., where] = per_edge[..., i, None]
    for scale, expected in ((per_edge, written), (per_coordinate, per_coordinate)):
        prior = normal_prior(CHAIN, scale)
        assert prior.batch_shape == batch and prior.event_shape == (CHAIN.num_parameters,)
        assert prior.mean.dtype == dtype and torch.equal(prior.stddev, expected)
        log_prob = (-0.5 * (theta / expected) ** 2 - expected.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
        torch.testing.assert_close(prior.log_prob(theta), log_prob)
    assert torch.equal(CHAIN.spread(per_edge), written)
    as_mapping = {edge: per_edge[..., i] for i, edge in enumerate(CHAIN.edges)}
    assert torch.equal(normal_prior(CHAIN, as_mapping).stddev, written)
    # Control: the entries of other hyperedges are another prior.
    assert not torch.equal(normal_prior(CHAIN, per_edge.flip(-1)).stddev, written)


def test_normal_prior_carries_gradients_to_random_scales():
    scale = torch.full((len(CHAIN),), 2.0, dtype=Double, requires_grad=True)
    theta = theta_of(CHAIN, seed=3)
    (found,) = torch.autograd.grad(normal_prior(CHAIN, scale).log_prob(theta), scale)
    pieces = [theta[where] for where in CHAIN.parameter_slices.values()]
    assert found.tolist() == pytest.approx([float((t**2 / 8 - 0.5).sum()) for t in pieces])


def test_lengths_that_fit_twice_are_unambiguous():
    scale = torch.arange(1.0, 7.0)
    assert BINARY.num_parameters == len(BINARY) == 6
    for per in (None, "edge", "coordinate"):  # one coordinate each: the meanings coincide
        assert torch.equal(normal_prior(BINARY, scale, per=per).stddev, scale)
    assert DEGENERATE.num_parameters == len(DEGENERATE) == 2
    with pytest.raises(InputError, match=r"as many but not one each; say per='edge' or per='coordinate'"):
        normal_prior(DEGENERATE, torch.tensor([1.0, 2.0]))
    assert normal_prior(DEGENERATE, torch.tensor([1.0, 2.0]), per="edge").stddev.tolist() == [2.0, 2.0]
    assert normal_prior(DEGENERATE, torch.tensor([1.0, 2.0]), per="coordinate").stddev.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("scale", "options", "code", "message"),
    [
        (0.0, {}, "out-of-range", "positive"),
        (-1.0, {}, "out-of-range", "positive"),
        (math.nan, {}, "out-of-range", "positive"),
        (math.inf, {}, "out-of-range", "positive"),
        ({1: 1.0}, {}, "missing-part", "2 is missing"),
        ({("a",): 1.0}, {}, "missing-part", "missing"),
        ({**dict.fromkeys(CHAIN.edges, 1.0), ("a", "c"): 1.0}, {}, "unknown-name", "not a hyperedge"),
        (torch.ones(7), {}, "wrong-shape", r"last dimension of 5 \(edges\) or 8 \(coordinates\), received 7"),
        (torch.ones(8), {"per": "edge"}, "wrong-shape", r"last dimension of 5 \(edges\), received 8"),
        (torch.ones(5), {"per": "term"}, "unknown-choice", "per: expected 'edge'"),
        (torch.tensor([1.0, -2.0, 1.0, 1.0, 1.0]), {}, "out-of-range", "received -2"),
        (torch.tensor([1.0, math.nan, 1.0, 1.0, 1.0]), {}, "out-of-range", "received nan"),
        (torch.ones(5, dtype=torch.long), {}, "wrong-type", "received dtype torch.int64"),
        ({1: torch.tensor(1.0), 2: torch.tensor(0.0)}, {}, "out-of-range", "received 0"),
        ([1.0] * 5, {}, "wrong-type", "number, a mapping to numbers or a tensor, received list"),
        ("1", {}, "wrong-type", "scale"),
        (1.0, {"hypergraph": "a*b"}, "wrong-type", "hypergraph"),
    ],
)
def test_normal_prior_refuses_bad_scales(scale, options, code, message):
    with pytest.raises(HoimError, match=message) as caught:
        normal_prior(**{"hypergraph": CHAIN, "scale": scale, **options})
    assert caught.value.code == code


MIXED = InteractionHypergraph.from_formula(Domain.from_cardinalities({"a": 3, "b": 2, "c": 3, "d": 2}), "a*b*c + c*d")
WEAK = InteractionHypergraph(MIXED.domain, [["a"], ["a", "c"], ["b", "c", "d"]], hierarchical=False)


@pytest.mark.parametrize("rows", [1.0, 0.5, 7])
@pytest.mark.parametrize("hypergraph", [BINARY, SATURATED, CYCLE, MIXED, WEAK, DEGENERATE], ids=repr)
def test_unit_information_is_the_information_of_rows_of_a_uniform_table(
    hypergraph: InteractionHypergraph, rows: float
) -> None:
    zero = torch.zeros(hypergraph.num_parameters, dtype=Double)
    information = rows * fisher_information(hypergraph, zero, Enumeration())
    precision = torch.diag(unit_information_prior(hypergraph, rows, dtype=Double).variance.reciprocal())
    torch.testing.assert_close(information, precision, rtol=1e-12, atol=1e-14)


def test_control_a_normal_with_one_scale_has_not_the_information_of_a_row() -> None:
    zero = torch.zeros(MIXED.num_parameters, dtype=Double)
    information = fisher_information(MIXED, zero, Enumeration())
    ratio = normal_prior(MIXED, 2.0, dtype=Double).variance.reciprocal() / information.diagonal()
    assert ratio.max() / ratio.min() > 8  # interactions of 2 to 18 cells


def test_the_prior_unit_of_the_command_line_is_unit_information_of_one_row() -> None:
    for hypergraph in (BINARY, MIXED, WEAK):
        named, direct = Prior.parse("unit").distribution(hypergraph), unit_information_prior(hypergraph)
        assert torch.equal(named.stddev, direct.stddev) and named.stddev.dtype == torch.get_default_dtype()
        penalty = Prior.parse("unit").penalty(hypergraph)
        assert isinstance(penalty, InteractionRidge)
        strengths = torch.tensor([penalty.by_edge[edge] for edge in hypergraph.edges], dtype=Double)
        double = unit_information_prior(hypergraph, dtype=Double)
        torch.testing.assert_close(hypergraph.spread(strengths), double.variance.reciprocal(), rtol=1e-14, atol=0)
    assert unit_information_prior(BINARY, 4.0).stddev.tolist() == pytest.approx([0.5**0.5] * 3 + [1.0] * 3)


@pytest.mark.parametrize("rows", [0, -1.0, math.nan, math.inf, "1"])
def test_unit_information_needs_a_number_of_rows(rows: float) -> None:
    with raises("out-of-range", "rows"):
        unit_information_prior(BINARY, rows)
    with raises("wrong-type", "hypergraph"):
        unit_information_prior("a*b")  # type: ignore[arg-type]


# The regularised horseshoe


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
