"""Perfect draws and modes: the exact law, with a sampler that ignores an interaction as the control that must fail."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from pyro_hoim.generalized_root import (
    GaussianClosedForm,
    IndependentClosedForm,
    RootAnnealed,
    RootAuto,
    RootEnumeration,
)
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Auto,
    Enumeration,
    HierarchicalLogLinear,
    MatrixEnumeration,
    VariableElimination,
)
from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.log_linear.exact import _linear_space as linear_samples
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_exact_law, count_states, exact_table, raises, random_tables, required_draws

from support.root_models import random_energy

HYPERGRAPH = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2, "e": 1}),
    [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("e",)],
    closure=True,
)
CARDINALITIES = HYPERGRAPH.domain.cardinalities
TABLES = torch.as_tensor(random_tables(HYPERGRAPH, np.random.default_rng(8), scale=1.0, batch_shape=(2,)))
PROBS = np.exp(exact_table(HYPERGRAPH, TABLES)).reshape(2, -1)
DRAWS = required_draws(math.prod(CARDINALITIES), 0.02)  # a total variation of 0.02 is found with power 0.999
BACKENDS = (
    VariableElimination(),
    VariableElimination(max_cells=6),
    VariableElimination(order=("c", "a", "e", "b", "d")),
    Enumeration(),
    MatrixEnumeration(),
    Auto(),
)


def _counts(backend, tables, seed):
    draws = backend.sample(LogLinearEnergy(HYPERGRAPH, tables), (DRAWS,), torch.Generator().manual_seed(seed))
    return [count_states(draws[:, b], CARDINALITIES) for b in range(2)]


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_draws_follow_the_exact_law(backend):
    dropped = TABLES.clone()
    dropped[:, HYPERGRAPH.term_slices["c", "d"]] = 0
    for counts, wrong, probs in zip(*(_counts(backend, tables, 1) for tables in (TABLES, dropped)), PROBS, strict=True):
        assert_exact_law(counts, probs)
        with pytest.raises(AssertionError):  # control: a sampler that ignores one interaction
            assert_exact_law(wrong, probs)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_generators(backend):
    draw = partial(backend.sample, LogLinearEnergy(HYPERGRAPH, TABLES), (3, 5))
    one, other = (draw(torch.Generator().manual_seed(seed)) for seed in (4, 5))
    assert one.shape == (3, 5, 2, 5)
    assert not torch.equal(one, other)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = draw()
        torch.manual_seed(3)
        assert torch.equal(draw(), first)


def test_extreme_laws_never_draw_impossible_states():
    """At scale 30 nearly all mass sits on a few states; none of the others may appear in 2,000 draws."""
    tables = torch.as_tensor(random_tables(HYPERGRAPH, np.random.default_rng(2), scale=30.0))
    probs = np.exp(exact_table(HYPERGRAPH, tables)).reshape(-1)
    for backend in BACKENDS:
        draws = backend.sample(LogLinearEnergy(HYPERGRAPH, tables), (2000,), torch.Generator().manual_seed(6))
        counts = count_states(draws, CARDINALITIES)
        assert not counts[probs < 1e-12].any()


@pytest.mark.parametrize("options", [{}, {"max_cells": 6}, {"order": ("c", "a", "e", "b", "d")}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_and_log_space_draw_the_same_states(options, dtype):
    """Equal uniforms give equal states, but for ties in rounding; other weights do not."""
    model = LogLinearEnergy(HYPERGRAPH, TABLES[0].to(dtype))
    linear, log, other = (
        VariableElimination(space=space, **options).sample(of, (4000,), torch.Generator().manual_seed(2))
        for space, of in (("auto", model), ("log", model), ("auto", LogLinearEnergy(HYPERGRAPH, 0.9 * model.tables)))
    )
    assert (linear != log).any(-1).sum() <= (0 if dtype == torch.float64 else 4)
    assert (linear != other).any(-1).sum() > 50


def test_draws_are_made_in_log_space_where_the_range_does_not_suffice():
    tables = TABLES.clone()
    tables[1] *= 1e4
    both, alone = (
        VariableElimination().sample(LogLinearEnergy(HYPERGRAPH, t), (100,), torch.Generator().manual_seed(2))
        for t in (tables, tables[:1])
    )
    assert torch.equal(both[:, 0], alone[:, 0])
    best, _ = VariableElimination().mode(LogLinearEnergy(HYPERGRAPH, tables[1]))
    assert (both[:, 1] == best).all()


def test_many_draws_and_many_models(monkeypatch):
    """Draws in pieces and on threads, and the batch of tiny models, follow the exact law."""
    monkeypatch.setattr(linear_samples, "_UNIFORMS", 2**13)
    monkeypatch.setattr(linear_samples, "_LARGE", 1)
    for counts, probs in zip(_counts(VariableElimination(), TABLES, 1), PROBS, strict=True):
        assert_exact_law(counts, probs)
    many = LogLinearEnergy(HYPERGRAPH, TABLES[0].expand(DRAWS, -1))
    draws = VariableElimination().sample(many, (), torch.Generator().manual_seed(1))
    assert_exact_law(count_states(draws, CARDINALITIES), PROBS[0])


def test_draws_of_many_variables_have_the_right_means():
    """A chain of 60 variables: pair frequencies against exact marginals, 5 standard errors on 236 cells."""
    domain = Domain.from_cardinalities([2] * 60)
    chain = InteractionHypergraph(domain, zip(domain.names, domain.names[1:], strict=False), closure=True)
    tables = torch.as_tensor(random_tables(chain, np.random.default_rng(3)))
    model = LogLinearEnergy(chain, tables)
    eta = VariableElimination().expectations(model)
    draws = VariableElimination().sample(model, (20_000,), torch.Generator().manual_seed(1))
    for edge, piece in chain.term_slices.items():
        index = torch.zeros(len(draws), dtype=torch.long)
        for name in edge:
            index = 2 * index + draws[:, domain.index(name)]
        share = torch.bincount(index, minlength=2 ** len(edge)) / len(draws)
        error = (eta[piece] * (1 - eta[piece]) / len(draws)).sqrt()
        assert ((share - eta[piece]).abs() <= 5.5 * error + 1e-9).all()


MODEL = LogLinearEnergy(HYPERGRAPH, TABLES)
COUNTS, REALS = random_energy("poisson", 2, 1, seed=1), random_energy("gaussian", 2, 2, seed=1)
SAMPLERS = {
    **{str(backend): partial(backend.sample, MODEL) for backend in (*BACKENDS, AnnealedImportance(burn_in=1))},
    **{
        type(backend).__name__: partial(backend.sample, COUNTS)
        for backend in (IndependentClosedForm(), RootEnumeration(), RootAuto(), RootAnnealed(burn_in=1))
    },
    "GaussianClosedForm": partial(GaussianClosedForm().sample, REALS),
    "law": HierarchicalLogLinear(HYPERGRAPH, TABLES, coding="balanced").sample,
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_sample_shapes_are_sequences_of_whole_numbers(name):
    sample = SAMPLERS[name]
    for shape in ((), (2,), [3, 1], torch.Size([2, 0]), (np.int64(2),)):
        draws, single = sample(shape), sample(())
        assert draws.shape == (*shape, *single.shape)
    for shape in (2, 2.0, "2", (2.0,), (True,), None, torch.tensor([2])):
        with raises("wrong-type", "sample_shape"):
            sample(shape)
    with raises("out-of-range", "sample_shape"):
        sample((2, -1))
