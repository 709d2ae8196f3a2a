"""Training by pseudo-likelihood: the compiled loss against autograd and enumeration, masking, laws of the contract."""

import itertools
import math

import numpy as np
import pytest
import torch

from pyro_hoim.compute import lanes
from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_mushroom
from pyro_hoim.errors import IntractableError
from pyro_hoim.log_linear import (
    ExactTrainer,
    InteractionRidge,
    LogLinearEnergy,
    PseudoTrainer,
    Refined,
    ScoreContext,
    Stopping,
    VariableElimination,
    parametrization,
)
from pyro_hoim.log_linear.fitting import _pseudo_kernels
from pyro_hoim.log_linear.fitting.objectives import ConditionalLayout, PseudoRows
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, exact_table, raises, random_tables, standard_hypergraphs

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 4, "d": 2})
WEAK = InteractionHypergraph(DOMAIN, [("a",), ("b",), ("a", "b", "c"), ("c", "d")], hierarchical=False)


def order(k, domain=DOMAIN):
    return InteractionHypergraph.from_order(domain, k)


def rows(seed=0, mean=4.0, domain=DOMAIN, low=0):
    counts = low + np.random.default_rng(seed).poisson(mean, domain.cardinalities)
    return Observations.from_table(domain, counts)


def likelihood(trainer, data):
    """Mean negative log-likelihood of rows under the tables of a trainer."""
    frequencies = (data.marginal_counts(trainer.hypergraph.edges) / data.total_count).double()
    return float(trainer.log_partition().value - trainer.tables @ frequencies)


def graphs():
    found = {name: graph for name, graph in standard_hypergraphs().items() if len(graph.domain)}
    wide = Domain.from_cardinalities({"a": 5, "b": 2, "c": 1, "d": 3, "e": 2})
    return found | {"weak": WEAK, "wide": order(4, wide)}


# The compiled loss


def by_autograd(graph, data, theta):
    """Mean negative log pseudo-likelihood at free parameters and its gradient, from the energy's conditionals."""
    free = torch.from_numpy(theta).clone().requires_grad_()
    model = LogLinearEnergy(graph, parametrization(graph).to_tables(free), validate=False)
    value = -(data.counts @ model.log_pseudo_prob(data.codes)) / data.total_count
    return float(value.detach()), torch.autograd.grad(value, free)[0].numpy()


def check_against_autograd(graph, data, tables, relative, what=""):
    """The compiled loss, its value alone and its gradient."""
    codings, layout, kernel = parametrization(graph), ConditionalLayout(graph), PseudoRows(data)
    theta = codings.convert(torch.from_numpy(tables), "balanced", "free").numpy()
    expected, slopes = by_autograd(graph, data, theta)
    loss, gradient = kernel.evaluate(layout, tables)
    assert_close(loss, expected, relative=relative, what=what)
    assert_close(kernel.value(layout, tables), expected, relative=relative, what=what)
    free = codings.free_statistics(torch.from_numpy(gradient))
    assert_close(free, slopes, relative=1e-11, absolute=1e-12, what=what)
    return lambda others: kernel.value(layout, others) - expected


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_loss_and_gradient_equal_those_of_autograd(scale):
    for name, graph in graphs().items():
        tables = random_tables(graph, np.random.default_rng(2), scale=scale)
        difference = check_against_autograd(graph, rows(1, domain=graph.domain), tables, 1e-11, name)
        if scale == 1.0 and name == "three-way":  # negative control: one table in another order
            where = graph.term_slices["a", "b"]
            tables[where] = tables[where][::-1]
            assert abs(difference(tables)) > 1e-3


def test_many_rows_fill_several_blocks():
    domain = Domain.from_cardinalities([2, 3, 2, 4, 2, 5, 3, 2])
    codes = np.random.default_rng(3).integers(0, domain.cardinalities, (2000, 8))
    data = Observations(domain, torch.from_numpy(codes))
    assert len(data.unique().codes) > 600
    graph = order(3, domain)
    check_against_autograd(graph, data, random_tables(graph, np.random.default_rng(4), scale=0.5), 1e-12)


# Masking


def sparse_rows():
    """Level 2 of b never occurs with level 1 of a, and level 3 of c never with level 0 of d."""
    counts = 1 + np.random.default_rng(8).poisson(4.0, DOMAIN.cardinalities)
    counts[1, 2] = 0
    counts[:, :, 3, 0] = 0
    return Observations.from_table(DOMAIN, counts)


def masked_law(trainer):
    table = exact_table(trainer.hypergraph, trainer.tables)
    table[1, 2] = -math.inf
    table[:, :, 3, 0] = -math.inf
    return table - np.log(np.exp(table).sum())


def test_masked_conditionals_are_those_of_the_law_without_the_excluded_states():
    data = sparse_rows()
    trainer = PseudoTrainer(data, order(2), masked=True, penalty=InteractionRidge(0.1))
    assert trainer.train().status == "converged"
    law = masked_law(trainer)
    counts = data.table().numpy()
    seen = counts > 0
    expected = 0.0
    for axis in range(4):
        margin = np.logaddexp.reduce(law, axis, keepdims=True)
        terms = np.broadcast_to(margin, law.shape)[seen] - law[seen]
        expected += float(counts[seen] @ terms) / counts.sum()
    assert_close(trainer.loss(data).value, expected, relative=1e-10)
    expected = -float(counts[seen] @ law[seen]) / counts.sum()
    assert_close(likelihood(trainer, data), expected, relative=1e-10)
    probs = trainer.margins([("a", "b"), ("c", "d")]).probs
    assert_close(probs[:6], np.exp(law).sum((2, 3)).reshape(-1), relative=1e-10, absolute=1e-14)
    assert probs[5] == 0.0
    assert "left out" in trainer.log_partition().notes[0]


def test_rows_with_an_excluded_combination_lose_infinitely_much_only_when_masked():
    data = sparse_rows()
    codes = torch.tensor([[0, 0, 0, 0], [1, 2, 0, 1]])
    other = Observations(DOMAIN, codes)
    masked = PseudoTrainer(data, order(2), masked=True, penalty=InteractionRidge(0.1))
    plain = PseudoTrainer(data, order(2), masked=False, penalty=InteractionRidge(0.1))
    for trainer in (masked, plain):
        trainer.train()
        assert math.isfinite(trainer.loss(data).value)
    assert masked.loss(other).value == math.inf
    assert math.isfinite(plain.loss(other).value)
    assert masked.loss(data).value < plain.loss(data).value
    masked.restructure(order(1))  # single variables exclude nothing
    assert math.isfinite(masked.loss(other).value)


def test_masking_changes_nothing_where_every_combination_occurs():
    data = rows(9, 6.0, low=1)
    trainers = [PseudoTrainer(data, order(3), masked=masked) for masked in (True, False)]
    for trainer in trainers:
        trainer.train()
    assert torch.equal(trainers[0].tables, trainers[1].tables)


def test_masked_gradient_equals_finite_differences():
    data = sparse_rows()
    trainer = PseudoTrainer(data, order(2), masked=True)
    graph, codings = trainer.hypergraph, parametrization(trainer.hypergraph)
    theta = 0.5 * np.random.default_rng(10).standard_normal(graph.num_parameters)

    def value(theta):
        tables = codings.to_tables(torch.from_numpy(theta), "free").numpy()
        return trainer._pseudo_rows(data).value(trainer._layout, trainer._effective(tables))

    step = 1e-5
    slopes = [(value(theta + m) - value(theta - m)) / (2 * step) for m in step * np.eye(len(theta))]
    tables = codings.to_tables(torch.from_numpy(theta), "free").numpy()
    _, gradient = trainer._pseudo_rows(data).evaluate(trainer._layout, trainer._effective(tables))
    free = codings.free_statistics(torch.from_numpy(gradient)).numpy()
    assert_close(free, slopes, relative=1e-6, absolute=1e-8)
    _, unmasked = trainer._pseudo_rows(data).evaluate(trainer._layout, tables)  # negative control
    assert np.abs(codings.free_statistics(torch.from_numpy(unmasked)).numpy() - slopes).max() > 1e-3


# Reach and arguments


def test_large_domains_train_and_refuse_what_needs_log_z():
    domain = Domain.from_cardinalities([2] * 40)
    generator = torch.Generator().manual_seed(0)
    data = Observations(domain, torch.randint(0, 2, (80, 40), generator=generator))
    trainer = PseudoTrainer(data, order(2, domain), penalty=InteractionRidge(5.0))
    assert trainer.train().status == "converged"
    assert trainer.log_partition() is None
    with pytest.raises(IntractableError, match="out of exact reach"):
        trainer.margins([("x0",)])
    assert math.isfinite(trainer.loss(data).value)
    chain = InteractionHypergraph(domain, list(itertools.pairwise(domain.names)), closure=True)
    trainer.restructure(chain)
    assert trainer.log_partition().kind == "exact"
    assert_close(trainer.margins([("x0", "x39")]).probs.sum(), 1.0, relative=1e-12)
    masked = PseudoTrainer(sparse_rows(), order(2), masked=True, partition=VariableElimination())
    assert masked.log_partition() is None
    with pytest.raises(IntractableError, match="backend"):
        masked.margins([("a",)])


def test_a_component_beyond_the_range_of_floats_is_refused_in_words():
    names = [f"x{i}" for i in range(1100)]
    domain = Domain.from_cardinalities(dict.fromkeys(names, 2))
    rows = Observations(domain, torch.zeros(3, len(names), dtype=torch.long))
    block = list(itertools.combinations(names[:50], 2))
    hypergraph = InteractionHypergraph(domain, [*itertools.pairwise(names), *block], closure=True)
    trainer = PseudoTrainer(rows, hypergraph)
    assert trainer.log_partition() is None
    with pytest.raises(IntractableError, match=r"out of exact reach .* needs about \d\.\d\de\+\d+ cells"):
        trainer.margins([("x0",)])
    with pytest.raises(IntractableError, match="score 'refined'"):
        Refined()([("x0", "x2")], ScoreContext(rows, trainer))


def test_wrong_arguments():
    with raises("wrong-type", "masked"):
        PseudoTrainer(rows(), order(1), masked=1)


# The contract


@pytest.mark.usefixtures("shared_data")
def test_mushroom_many_body_rows_of_table_4():
    """Pseudo-likelihood is worse than the likelihood by far on two bodies, as published, and better than one body."""
    data = load_mushroom()
    data = data.project(data.domain.names[:10])
    _, rest = data.split([0.5, 0.5], 0)
    train, validation = rest.split([0.7, 0.3], 0)
    entropy = validation.entropy()
    trainer = PseudoTrainer(train, order(1, data.domain))
    one = likelihood(trainer, validation) - entropy
    assert 4.4 < one < 4.8  # published: 4.6062
    trainer = PseudoTrainer(train, order(2, data.domain), validation=validation, stopping=Stopping(max_iterations=100))
    trainer.train()
    pseudo = likelihood(trainer, validation) - entropy
    exact = ExactTrainer(train, order(2, data.domain), validation=validation, stopping=Stopping(max_iterations=60))
    exact.train()
    assert exact.loss(validation).value - entropy < pseudo < one


def test_rows_in_pieces_have_the_bits_of_one_go(monkeypatch):
    """Between two pieces Ctrl-C is answered."""
    random = np.random.default_rng(0)
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 4, 5, 3]), 3)
    cells = torch.cartesian_prod(*(torch.arange(size) for size in (2, 3, 4, 5, 3)))
    rows = PseudoRows(Observations(graph.domain, cells.repeat(3, 1)))
    rows._codes, rows._weights = np.tile(rows._codes, (6, 1))[:2000], random.random(2000)
    layout, tables = ConditionalLayout(graph), random.normal(size=graph.num_terms)
    loss, gradient = rows.evaluate(layout, tables)
    calls = []
    compiled = _pseudo_kernels.conditionals
    monkeypatch.setattr(lanes, "PIECE", 2.0**16)
    counted = lambda codes, *more: (calls.append(len(codes)), compiled(codes, *more))[1]  # noqa: E731
    monkeypatch.setattr(_pseudo_kernels, "conditionals", counted)
    again, same = rows.evaluate(layout, tables)
    assert calls == [256] * 7 + [208]
    assert again == loss
    np.testing.assert_array_equal(same, gradient)
