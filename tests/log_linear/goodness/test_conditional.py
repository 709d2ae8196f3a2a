"""Conditional tests: against enumeration by another way, published values, uniform p-values with a control."""

import itertools
import math

import numpy as np
import pytest
from fitted import DIAGONAL, of_table, order_fit
from scipy.special import gammaln, xlogy
from scipy.stats import chi2, kstest

from pyro_hoim.data import Observations
from pyro_hoim.log_linear import fit, goodness_of_fit, likelihood_ratio_test
from pyro_hoim.log_linear.goodness import fibre as module
from pyro_hoim.log_linear.goodness.fibre import Fibre, conditional_p_value, listed_tables
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")

# Fisher (1935), The design of experiments, chapter 2; births and deaths by month of 82 descendants of Queen Victoria,
# Andrews and Herzberg (1985), page 429, as in Diaconis and Sturmfels (1998), table 1.
# Convictions of twins of criminals, Fisher (1962), and rabbits injected with penicillin, Mantel (1963), with p-values
# of the pages of fisher.test and mantelhaen.test of R 4.
TEA = [[3, 1], [1, 3]]
TWINS = [[2, 15], [10, 3]]
RABBITS = [[[0, 3, 6, 5, 2], [6, 3, 0, 1, 0]], [[0, 0, 2, 6, 5], [5, 6, 4, 0, 0]]]  # delay, cured, penicillin
MONTHS = [
    [1, 0, 0, 0, 1, 2, 0, 0, 1, 0, 1, 0],
    [1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 2],
    [1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 1],
    [3, 0, 2, 0, 0, 0, 1, 0, 1, 3, 1, 1],
    [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0],
    [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    [2, 0, 2, 1, 0, 0, 0, 0, 1, 1, 1, 2],
    [0, 0, 0, 3, 0, 0, 1, 0, 0, 1, 0, 2],
    [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0],
    [1, 1, 0, 2, 0, 0, 1, 0, 0, 1, 1, 0],
    [0, 1, 1, 1, 2, 0, 0, 2, 0, 1, 1, 0],
    [0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
]
SHAPES = {  # of small fibres: cardinalities, model, rows
    "independence": ((3, 3), "a + b", 9),
    "one level fitted": ((3, 2), "a", 5),
    "chain": ((2, 2, 3), "a*b + b*c", 12),
    "pairs": ((2, 3, 3), "a*b + b*c + a*c", 40),
    "pairs of three": ((3, 3, 3), "a*b + b*c + a*c", 20),
    "a pair apart": ((2, 2, 3), "a*b + c", 7),
    "cycle": ((2, 2, 2, 2), "a*b + b*c + c*d + d*a", 10),
    "pairs of four": ((2, 2, 2, 2), "a*b + a*c + a*d + b*c + b*d + c*d", 22),
    "triples": ((2, 2, 3, 2), "a*b*c + a*b*d + a*c*d + b*c*d", 150),
    "glued": ((2, 2, 2, 2), "a*b + b*c + a*c + c*d", 14),
}


def model(cards, formula):
    return InteractionHypergraph.from_formula(
        Domain.from_cardinalities(dict(zip("abcde", cards, strict=False))), formula
    )


def margins_of(graph):
    cards, codes = graph.domain.cardinalities, np.indices(graph.domain.cardinalities).reshape(len(graph.domain), -1)
    where = [graph.domain.indices(edge) for edge in graph.maximal_edges]
    return [np.ravel_multi_index(tuple(codes[list(i)]), [cards[k] for k in i]) for i in where]


def enumerated(graph, counts):
    """All tables of a fibre: those margins that are not fitted take any values, and fix the table (Moebius inversion).

    A product of differences from the first level raises one such margin at one combination of other levels and leaves
    those alone that no smaller product raises.
    """
    cards, facets = graph.domain.cardinalities, [set(graph.domain.indices(edge)) for edge in graph.maximal_edges]
    moves, ranges = [], []
    for size in range(1, len(cards) + 1):
        for which in itertools.combinations(range(len(cards)), size):
            if any(set(which) <= facet for facet in facets):
                continue
            bounds = [
                counts.sum(tuple(set(range(len(cards))) - (facet & set(which))), keepdims=True) for facet in facets
            ]
            margin = counts.sum(tuple(set(range(len(cards))) - set(which)), keepdims=True)
            highest = np.broadcast_to(np.minimum.reduce(np.broadcast_arrays(*bounds)), counts.shape)
            for levels in itertools.product(*(range(1, cards[i]) for i in which)):
                at = tuple(levels[which.index(i)] if i in which else 0 for i in range(len(cards)))
                now = np.broadcast_to(margin, counts.shape)[at]
                move = np.ones(())
                for i, card in enumerate(cards):
                    line = np.zeros(card)
                    line[0] = -1.0 if i in which else 1.0
                    line[at[i]] = 1.0
                    move = np.multiply.outer(move, line)
                moves.append(move.ravel())
                ranges.append(np.arange(-now, highest[at] - now + 1))
    assert math.prod(map(len, ranges)) < 3e6
    tables = counts.ravel()[None]
    for number, (move, steps) in enumerate(zip(moves, ranges, strict=True)):
        tables = (tables[:, None] + steps[None, :, None] * move).reshape(-1, counts.size)
        fixed = np.all(
            [np.array(later)[None] == 0 for later in moves[number + 1 :]] or [np.ones((1, counts.size), bool)], 0
        )
        tables = tables[(tables[:, fixed[0]] >= 0).all(1)]
    weights = -gammaln(tables + 1).sum(1)
    weights = np.exp(weights - weights.max())
    return tables, weights / weights.sum()


def small_fibre(name, number):
    """A table with a fibre of 2 to 3,000 tables."""
    cards, formula, total = SHAPES[name]
    graph, random = model(cards, formula), np.random.default_rng([number, *map(ord, name)])
    while True:
        law = random.dirichlet(np.full(math.prod(cards), 2.0))
        counts = random.multinomial(total, law).reshape(cards)
        listed = listed_tables(counts.ravel(), np.ones(counts.size, bool), margins_of(graph))
        if listed is not None and 2 <= len(listed[0]) <= 3000:
            return graph, counts


def expected_of(graph, counts):
    """Expected counts, 0 in cells that no table of the fibre fills."""
    result = fit(graph, Observations.from_table(graph.domain, counts))
    return result.num_rows * result.probs.numpy()


def truth_of(graph, counts):
    """P-value of G2 by full enumeration."""
    tables, probs = enumerated(graph, counts)
    statistics, observed = xlogy(tables, tables).sum(1), xlogy(counts, counts).sum()
    return float(probs[statistics >= observed - 1e-9 * (1 + observed)].sum()), len(tables)


def by_chains(monkeypatch, graph, counts, num_tables, seed=0):
    with monkeypatch.context() as patched:
        patched.setattr(module, "listed_tables", lambda *_: None)
        means = expected_of(graph, counts)
        return conditional_p_value(graph, None, counts.ravel(), means, 5, num_tables=num_tables, seed=seed)


@pytest.mark.parametrize("name", SHAPES)
def test_listed_and_drawn_tables_are_those_of_another_enumeration(name, monkeypatch):
    graph, counts = small_fibre(name, 1)
    truth, size = truth_of(graph, counts)
    result = fit(graph, Observations.from_table(graph.domain, counts))
    listed = goodness_of_fit(result, "conditional")
    assert f"over all {size:,} tables" in listed.p_value_note and listed.p_value_std_error == 0
    assert listed.p_value == pytest.approx(truth, rel=1e-9)
    drawn = by_chains(monkeypatch, graph, counts, 1500)
    assert abs(drawn.p_value - truth) < 5 * math.sqrt(truth * (1 - truth) / 1500) + 1 / 1501
    assert drawn.std_error == pytest.approx(math.sqrt(drawn.p_value * (1 - drawn.p_value) / 1500))
    assert by_chains(monkeypatch, graph, counts, 99, 1) == by_chains(monkeypatch, graph, counts, 99, 1)


@pytest.mark.parametrize("name", ["chain", "pairs", "pairs of four", "triples"])  # two to four blocks, circuits
def test_moves_found_among_the_rows_keep_the_law_of_the_fibre(name):
    graph, counts = small_fibre(name, 1)
    tables, probs = enumerated(graph, counts)
    numbers = {table.tobytes(): number for number, table in enumerate(tables.astype(np.int64))}
    fibre = Fibre(graph, np.ones(counts.size, dtype=bool))
    drawn = fibre.chains(counts.ravel(), 1500, 2, is_sparse=True).draw(1000)
    found = np.bincount([numbers[table.tobytes()] for table in drawn], minlength=len(tables))
    for law, is_true in ((probs, True), (np.full(len(probs), 1 / len(probs)), False)):  # the latter is a control
        means = 1000 * law
        often, rest = means >= 5, means < 5
        statistic = np.square(found[often] - means[often]) @ (1 / means[often])
        statistic += (found[rest].sum() - means[rest].sum()) ** 2 / max(means[rest].sum(), 1)
        assert (chi2.sf(statistic, often.sum()) > FALSE_ALARM_RATE) == is_true


def test_published_p_values():
    tea = goodness_of_fit(order_fit(of_table(TEA), 1), "conditional")
    assert (tea.p_value, tea.p_value_pearson) == (pytest.approx(34 / 70), pytest.approx(34 / 70))  # 0.486, two-sided
    twins = goodness_of_fit(order_fit(of_table(TWINS), 1), "conditional")
    assert (twins.p_value, twins.p_value_pearson) == (pytest.approx(0.0005367241), pytest.approx(0.0005367241))
    rabbits, pairs = of_table(RABBITS), InteractionHypergraph.from_formula
    small, big = (fit(pairs(rabbits.domain, text), rabbits) for text in ("a*c + b*c", "a*b + a*c + b*c"))
    found = likelihood_ratio_test(small, big, "conditional")
    assert found.p_value == pytest.approx(0.0399449, rel=1e-6)
    months = goodness_of_fit(order_fit(of_table(MONTHS), 1), "conditional", num_tables=4999)
    assert months.pearson == pytest.approx(115.56, abs=0.005) and months.df == 121
    error = 5 * math.sqrt(0.32 * 0.68 / 4999)
    assert abs(1 - months.p_value_pearson - 0.3208) < error  # theirs is the share of smaller statistics
    assert abs(chi2.cdf(months.pearson, 121) - 0.3208) > error  # control


def randomised(how, cards, formula, total, num, interaction=0.0):
    """P-values of tables from a law of the model, with ties broken at random, or by chi-square."""
    graph, random, found = model(cards, formula), np.random.default_rng(5), []
    logits = sum(
        random.normal(0, 0.4, [card if i in graph.domain.indices(edge) else 1 for i, card in enumerate(cards)])
        for edge in graph.maximal_edges
    )
    logits = logits + interaction * random.normal(size=cards)
    law = np.exp(logits).ravel() / np.exp(logits).sum()
    for number in range(num):
        counts = random.multinomial(total, law)
        result = fit(graph, Observations.from_table(graph.domain, counts.reshape(cards)))
        quality = goodness_of_fit(result, "chi-square")
        if how == "chi-square":
            found.append(quality.p_value)
            continue
        means = result.num_rows * result.probs.numpy()
        test = conditional_p_value(graph, None, counts, means, quality.df, num_tables=99, seed=number)
        found.append(test.p_value_larger + random.random() * (test.p_value - test.p_value_larger))
    return np.array(found)


def test_p_values_are_uniform_under_the_model_and_those_of_chi_square_are_not():
    case = ((3, 4, 4), "a*b + b*c + a*c", 90)
    assert kstest(randomised("conditional", *case, 40), "uniform").pvalue > FALSE_ALARM_RATE
    assert kstest(randomised("conditional", *case, 40, interaction=1.0), "uniform").pvalue < FALSE_ALARM_RATE
    assert kstest(randomised("chi-square", *case, 120), "uniform").pvalue < FALSE_ALARM_RATE


def test_structural_zeros_stay_zero():
    data = of_table(DIAGONAL)
    possible = order_fit(data, 1, structural_zeros=np.eye(3, dtype=bool))
    found = goodness_of_fit(possible, "conditional")
    counts, step = np.asarray(DIAGONAL), np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]])  # the only move
    tables = np.array([counts + k * step for k in range(-counts.max(), counts.max() + 1)])
    tables = tables[(tables >= 0).all((1, 2))]
    weights = np.exp(-gammaln(tables + 1).sum((1, 2)) + gammaln(counts + 1).sum())
    large = xlogy(tables, tables).sum((1, 2)) >= xlogy(counts, counts).sum() - 1e-9
    assert found.p_value == pytest.approx(weights[large].sum() / weights.sum(), rel=1e-9)
    zeros = ~np.eye(4, dtype=bool).ravel()
    start = np.where(zeros, 3, 0)
    drawn = Fibre(order_fit(of_table(start.reshape(4, 4) + np.eye(4, dtype=int)), 1).hypergraph, zeros)
    tables = drawn.chains(start, 500, 1).draw(50).reshape(50, 4, 4)
    assert (
        not drawn.is_connected and tables[:, np.eye(4, dtype=bool)].max() == 0 and len(np.unique(tables, axis=0)) > 40
    )
    for axis in (1, 2):
        assert (tables.sum(axis) == 9).all()


def test_every_table_of_whole_counts_has_a_p_value(monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.p_values._BUDGET", 1e7)
    random = np.random.default_rng(3)
    for cards, order, total in (((3, 4, 5), 2, 200), ((20,) * 3, 2, 500), ((7,) * 4, 2, 150), ((2, 3, 3, 3), 3, 400)):
        counts = random.multinomial(total, np.full(math.prod(cards), 1 / math.prod(cards))).reshape(cards)
        test = goodness_of_fit(order_fit(of_table(counts), order))
        assert test.p_value_method == "conditional" and 0.001 <= test.p_value <= 1 and test.num_tables >= 99
        assert "found no other table" not in test.p_value_note and test.p_value < 1


def test_nested_models_are_compared_among_the_tables_of_the_smaller():
    counts = np.array([[[2, 1], [0, 3]], [[1, 0], [4, 1]]])
    small, big = model((2, 2, 2), "a*b + c"), model((2, 2, 2), "a*b + b*c")
    data = Observations.from_table(small.domain, counts)
    found = likelihood_ratio_test(fit(small, data), fit(big, data), "conditional")
    tables, probs = enumerated(small, counts)
    pairs = tables.reshape(-1, 2, 2, 2).sum(1)  # given its margins only the table of b and c moves the statistic
    statistics, observed = xlogy(pairs, pairs).sum((1, 2)), xlogy(counts.sum(0), counts.sum(0)).sum()
    assert found.p_value_method == "conditional"
    assert found.p_value == pytest.approx(probs[statistics >= observed - 1e-9].sum(), rel=1e-9)
