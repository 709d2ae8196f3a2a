"""What the names of free coordinates say: raising one raises the probability of the levels that it is named by."""

import itertools
import math
from functools import reduce

import numpy as np
import pyro
import pytest
import torch
from hypothesis import given, strategies as st

from pyro_hoim.interop import choose_backend, to_arviz
from pyro_hoim.log_linear import DiaconisYlvisaker, HierarchicalLogLinear, parametrization, theta_coords
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

SHAPES = st.lists(st.integers(2, 6), min_size=1, max_size=3).map(tuple)


def labelled(shape):
    """All interactions of variables whose labels begin with their name: a0, a1, ..., b0, ..."""
    return InteractionHypergraph.saturated(
        Domain.from_labels({name: [f"{name}{i}" for i in range(n)] for name, n in zip("abc", shape, strict=False)})
    )


def helmert(n):
    """Another orthonormal basis: column j is j ones, then -j; a positive coordinate lowers level j. The control."""
    columns = [[1.0] * j + [-float(j)] + [0.0] * (n - j - 1) for j in range(1, n)]
    return np.array(columns).T / [math.sqrt(j * (j + 1)) for j in range(1, n)]


def balanced_tables(graph, theta, is_control):
    """Tables of free coordinates (*batch, num_parameters), in the library's basis or in that of the control."""
    if not is_control:
        return parametrization(graph).to_tables(theta)
    bases = [torch.from_numpy(reduce(np.kron, map(helmert, shape))) for shape in graph.edge_shapes]
    pieces = [theta[..., where] for where in graph.parameter_slices.values()]
    return torch.cat([piece @ basis.T for piece, basis in zip(pieces, bases, strict=True)], -1)


def named_probs(graph, tables):
    """Probability of the levels that each coordinate is named by (*batch, num_parameters); levels found by label."""
    table = HierarchicalLogLinear(graph, tables, coding="balanced").probs
    names, found = graph.domain.names, []
    for interaction, level in zip(*(theta_coords(graph)[key] for key in ("interaction", "level")), strict=True):
        state = graph.domain.encode_state(dict(zip(interaction.split(":"), level.split(","), strict=True)))
        found.append(table[(..., *(state.get(name, slice(None)) for name in names))])
        found[-1] = found[-1].reshape(len(tables), -1).sum(-1)
    return torch.stack(found, -1)


def rises(shape, seed, step, is_control):
    """Of every coordinate of a random model, whether raising it raises what its name says (num_parameters,)."""
    graph = labelled(shape)
    theta = torch.from_numpy(np.random.default_rng(seed).standard_normal(graph.num_parameters))
    moved = torch.cat([theta[None], theta + step * torch.eye(len(theta), dtype=torch.float64)])
    probs = named_probs(graph, balanced_tables(graph, moved, is_control))
    return probs[1:].diagonal() > probs[0]


@given(SHAPES, st.integers(0, 2**32 - 1), st.floats(0.05, 3))
def test_raising_a_coordinate_raises_the_probability_of_its_levels(shape, seed, step):
    assert bool(rises(shape, seed, step, is_control=False).all())
    lowered = rises(shape, seed, -step, is_control=False)
    assert not bool(lowered.any())


@given(SHAPES, st.integers(0, 2**32 - 1), st.floats(0.05, 3))
def test_control_the_basis_turned_round_fails(shape, seed, step):
    graph = labelled(shape)
    found = dict(zip(theta_coords(graph)["interaction"], rises(shape, seed, step, is_control=True), strict=True))
    assert not any(bool(found[name]) for name in graph.domain.names)


@pytest.mark.parametrize("n", range(2, 7))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_of_a_coordinate_of_one_variable(n, dtype):
    """Log-probability of the level less a weighted mean of all; differences are log ratios."""
    law = HierarchicalLogLinear(
        labelled((n,)), torch.randn(7, n - 1, dtype=dtype, generator=torch.Generator().manual_seed(n))
    )
    logits = law.probs.log()
    weights = torch.tensor([1 / math.sqrt(n)] + [1 / (n + math.sqrt(n))] * (n - 1), dtype=dtype)
    tight = {"rtol": 0.0, "atol": 64 * torch.finfo(dtype).eps}
    torch.testing.assert_close(weights.sum(), torch.ones((), dtype=dtype), **tight)
    torch.testing.assert_close(law.theta, logits[:, 1:] - (logits * weights).sum(-1, keepdim=True), **tight)
    for i, j in itertools.combinations(range(n - 1), 2):
        torch.testing.assert_close(law.theta[:, i] - law.theta[:, j], logits[:, i + 1] - logits[:, j + 1], **tight)


def test_levels_from_the_second_on_are_treated_alike():
    """Permuting them permutes the coordinates: independent priors of one scale favour none of them."""
    graph = labelled((4, 3))
    maps = parametrization(graph)
    theta = torch.arange(1.0, graph.num_parameters + 1, dtype=torch.float64)
    tables = maps.split(maps.to_tables(theta))
    swapped = {e: t[[0, 3, 1, 2]] if e[0] == "a" else t for e, t in tables.items()}
    found = maps.from_tables(maps.join(swapped))
    for edge, where in graph.parameter_slices.items():
        expected = theta[where].reshape([graph.domain[name].cardinality - 1 for name in edge])
        expected = expected[[2, 0, 1]] if edge[0] == "a" else expected
        torch.testing.assert_close(found[where].reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


def test_summary_of_a_posterior_points_to_the_level_that_the_data_prefer():
    domain = Domain.from_labels({"smoke": ["no", "yes"], "age": ["old", "mid", "new"]})
    graph = InteractionHypergraph(domain, [["smoke"], ["age"]])
    shares = torch.tensor([0.2, 0.8, 0.1, 0.1, 0.8], dtype=torch.float64)
    pyro.set_rng_seed(0)
    theta = DiaconisYlvisaker(graph, mean_statistics=shares, prior_sample_size=100).sample((1, 100))
    draws = to_arviz({"theta": theta.numpy()}, hypergraph=graph, backend="arviz")
    means = choose_backend("arviz").stats.summary(draws)["mean"]
    assert means["theta[smoke[yes]]"] > 0.5
    assert means["theta[age[new]]"] > 0.5 > 0 > means["theta[age[mid]]"]
