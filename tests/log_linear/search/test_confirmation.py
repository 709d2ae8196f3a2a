"""Confirmed interactions: p-values against exact conditional laws, their size, and what stands in for what."""

import itertools
import json
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import binom, chi2_contingency, hypergeom

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations
from pyro_hoim.log_linear import EdgeTest, EdgeTester, InteractionTest, confirm
from pyro_hoim.log_linear.search import conditional_fits, confirmation
from pyro_hoim.log_linear.search.conditional_fits import Design, evidence_strength, level_contrasts
from pyro_hoim.log_linear.search.confirmation import lone_pairs
from pyro_hoim.log_linear.search.edge_tests import conditional_terms
from pyro_hoim.results.confirmation import Asked, Hypotheses, StepwiseSearch
from pyro_hoim.testing import FALSE_ALARM_RATE

from studies.random_laws import random_law


def rows_of(codes):
    codes = np.ascontiguousarray(codes).astype(np.int64)
    sizes = {chr(97 + i): int(size) for i, size in enumerate(codes.max(0) + 1)}
    return Observations.from_tensor(torch.from_numpy(codes), Domain.from_cardinalities(sizes))


def halves(codes):
    rows = rows_of(codes)
    half = len(codes) // 2
    return rows.rows(torch.arange(half)), rows.rows(torch.arange(half, len(codes)))


def kept(found):
    return {test.edge for test in found.tests if test.is_kept}


def tails(law, seen):
    """Twice the smaller tail of a law on 0, 1, ..."""
    return min(1.0, 2 * min(law[seen:].sum(), law[: seen + 1].sum()))


def hypergeometric(table):
    """Law of the last cell of a 2 x 2 table given its margins."""
    row, column, total = table[1].sum(), table[:, 1].sum(), table.sum()
    return hypergeom(total, row, column).pmf(np.arange(min(row, column) + 1))


TABLES = [
    [[30, 10], [20, 40]],
    [[3870, 60], [67, 3]],
    [[3990, 5], [4, 1]],
    [[9980, 9], [9, 2]],
    [[3000, 120], [118, 0]],
    [[190_000, 5_000], [4_800, 200]],
]


@pytest.mark.parametrize("table", TABLES)
def test_pairs_alone_have_the_tail_of_fishers_test(table):
    table = np.array(table)
    tester = EdgeTester(Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), table))
    exact = tails(hypergeometric(table), table[1, 1])
    found = tester.test(("a", "b"), [])
    assert found.p_value == pytest.approx(exact, rel=0.06)
    assert lone_pairs(tester, [("a", "b")])[0].log_p_value == pytest.approx(found.log_p_value, abs=0.01)
    expected = table[1].sum() * table[:, 1].sum() / table.sum()
    if expected < 0.02:  # control: the normal limit
        assert 2 * ndtr(-(table[1, 1] - expected) / np.sqrt(expected)) < exact / 100


@pytest.mark.parametrize("counts", [(5, 3, 2), (40, 6, 30), (3, 1, 25)])
def test_pairs_beside_others_have_their_conditional_tail(counts):
    """Given c, the table of a and b is one of two strata, whose hypergeometric laws are convolved."""
    rng = np.random.default_rng(counts)
    c = rng.random(800) < 0.3
    a, b = (rng.random(800) < np.where(c, size / 100, 0.02) for size in counts[:2])
    a |= b & (rng.random(800) < counts[2] / 60)
    rows = rows_of(np.stack([a, b, c], 1))
    tables = np.zeros((2, 2, 2), int)
    np.add.at(tables, (c.astype(int), a.astype(int), b.astype(int)), 1)
    law = np.convolve(*(hypergeometric(table) for table in tables))
    exact = tails(law, tables[:, 1, 1].sum())
    found = EdgeTester(rows).test(("a", "b"), [("a", "c"), ("b", "c")]).p_value
    assert found == pytest.approx(exact, rel=0.06)
    assert EdgeTester(rows).test(("a", "b"), []).p_value != pytest.approx(exact, rel=0.06)  # control: marginal


def test_triples_have_the_tail_of_the_test_of_equal_odds_ratios():
    """The law of one cell of a 2 x 2 x 2 table given all its margins of two variables, by enumeration."""
    table = np.array([[[60, 9], [12, 1]], [[30, 4], [3, 6]]])
    signs = np.array([1, -1])[:, None, None] * np.array([1, -1])[:, None] * np.array([1, -1])
    moved = [table + k * signs for k in range(-table.min() - 50, table.max() + 50)]
    moved = [m for m in moved if m.min() >= 0]
    weights = np.array([-sum(torch.lgamma(torch.tensor(float(n) + 1)).item() for n in m.ravel()) for m in moved])
    law = np.exp(weights - weights.max())
    order = np.argsort([m[1, 1, 1] for m in moved])
    exact = tails((law / law.sum())[order], [moved[i][1, 1, 1] for i in order].index(table[1, 1, 1]))
    tester = EdgeTester(Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), table))
    assert tester.test(("a", "b", "c"), []).p_value == pytest.approx(exact, rel=0.05)


def numbers_with_findings(num_repeats):
    """How often independent rare columns yield anything, by our tests and by the normal limit."""
    counts = np.zeros(2, int)
    for seed in range(num_repeats):
        codes = (np.random.default_rng(seed).random((1500, 8)) < 0.005).astype(int)
        codes = codes[:, codes.any(0)]
        z = np.sqrt(1500) * np.abs(np.corrcoef(codes.T)[np.triu_indices(codes.shape[1], 1)])
        counts += bool(kept(confirm(*halves(codes), max_order=2))), bool((2 * ndtr(-z)).min() <= 0.1 / 28)
    return counts


def test_rare_independent_columns_yield_no_more_than_the_rate():
    """Where nothing is there, the false discovery rate is the probability of any finding."""
    num_repeats = 60
    limit = binom.isf(FALSE_ALARM_RATE, num_repeats, 0.1)
    conditional, normal = numbers_with_findings(num_repeats)
    assert conditional <= limit
    assert normal > limit  # the control


def test_weights_are_no_rows_that_confirm():
    """Equal weights change nothing, whatever they add up to; unequal ones of noise yield no more than the rate."""
    codes = (np.random.default_rng(0).random((400, 6)) < 0.4).astype(int)
    codes[:, 1] ^= codes[:, 0] & (np.arange(400) % 2)
    rows = rows_of(codes)
    same = Observations.from_tensor(rows.codes, rows.domain, weights=np.full(400, 50.0))
    for test, other in zip(confirm(rows, rows).tests, confirm(same, same).tests, strict=True):
        assert (other.edge, other.is_kept) == (test.edge, test.is_kept)
        assert [other.p_value, other.rise, other.gain_std_error] == pytest.approx(
            [test.p_value, test.rise, test.gain_std_error], rel=1e-9
        )
    found = np.zeros(2, int)
    for seed in range(16):
        random = np.random.default_rng(seed)
        codes, weights = (random.random((400, 4)) < 0.4).astype(int), random.integers(1, 100, 400)
        rows = rows_of(codes)
        weighted = Observations.from_tensor(rows.codes, rows.domain, weights=weights)
        counted = Observations.from_tensor(rows.codes, rows.domain, weights)
        found += [bool(kept(confirm(part, part, max_order=2))) for part in (weighted, counted)]
    limit = binom.isf(FALSE_ALARM_RATE, 16, 0.1)
    assert found[0] <= limit < found[1]  # the second is the control: numbers of rows


@pytest.mark.parametrize("prevalence", [0.03, 0.01])
def test_a_pair_beside_rare_columns_is_kept_and_few_others(prevalence):
    shares: list[float] = []
    for seed in range(12):
        rng = np.random.default_rng(100 + seed)
        a = rng.random(4000) < 0.3
        b = rng.random(4000) < np.where(a, 0.6, 0.3)
        codes = np.column_stack([a, b, rng.random((4000, 12)) < prevalence])
        found = confirm(*halves(codes))
        assert ("a", "b") in kept(found)
        shares.append(1 - 1 / len(kept(found)))
        assert max((test.z for test in found.tests[1:]), default=0) < 6  # the normal limit made hundreds of it
    assert np.mean(shares) <= 0.1 + 3 * 0.25 / np.sqrt(12)  # a share is 0 or at least a half


def test_substitutes_among_columns_that_hang_together():
    """Groups of columns hang together by something unseen; two others shut each other out, with G2 of about 120."""
    rng = np.random.default_rng(0)
    unseen = np.repeat(rng.random((9000, 3)) < 0.2, 4, axis=1)
    groups = rng.random((9000, 12)) < rng.uniform(0.01, 0.05, 12) * (1 + 9 * unseen)
    first = rng.random(9000) < 0.09
    second = rng.random(9000) < np.where(first, 0.005, 0.09)
    parts = halves(np.column_stack([groups, first, second]))
    names = parts[0].domain.names
    found = confirm(*parts, InteractionHypergraph.from_order(parts[0].domain, 2))
    for test in found.tests:
        if not test.is_kept:
            assert not test.is_confirmed or set(test.edge) <= {name for edge in test.replaced_by for name in edge}
        else:
            assert test.rise >= 2
    across = [edge for edge in kept(found) if len({names.index(name) // 4 for name in edge}) > 1]
    assert tuple(names[-2:]) in kept(found) and len(kept(found)) > 12
    assert len(across) <= 0.2 * len(kept(found))


def test_a_faint_triple_of_many_rows_is_found():
    signs = np.array(list(itertools.product((-1, 1), repeat=6)))
    log_p = -0.3 * signs.sum(1) + 0.3 * signs[:, 0] * signs[:, 1] + 0.031 * signs[:, 2] * signs[:, 3] * signs[:, 4]
    law = np.exp(log_p) / np.exp(log_p).sum()
    codes = (signs[np.random.default_rng(5).choice(len(law), size=50_000, p=law)] + 1) // 2
    found = confirm(*halves(codes))
    assert kept(found) == {("a", "b"), ("c", "d", "e")}
    assert {test.edge: 2 * test.rise < 60 for test in found.tests}["c", "d", "e"]


def rows_of_triples(edges, num_rows=320, num_laws=8):
    """Testers of rows of random laws of three variables of five levels."""
    domain = Domain.from_cardinalities(dict.fromkeys("abc", 5))
    for seed in range(num_laws):
        law = random_law(domain, [tuple(edge) for edge in edges], generator=torch.Generator().manual_seed(seed))
        counts = np.random.default_rng(seed).multinomial(num_rows, law.probs.numpy().ravel()).reshape(law.probs.shape)
        yield counts, EdgeTester(Observations.from_table(domain, counts))


def test_pairs_inside_a_triple_are_told_apart_in_few_rows():
    """A triple of 64 parameters, left free, would stand in for its pairs; the control has no pair."""
    singles, pairs, triple = ["a", "b", "c"], [("a", "b"), ("a", "c"), ("b", "c")], ("a", "b", "c")
    shares = []
    for planted in (pairs, []):
        values = [
            tester.test(edge, [*pairs, triple] if planted else [triple]).p_value
            for _, tester in rows_of_triples([*singles, *planted, triple])
            for edge in pairs
        ]
        shares.append(np.mean(np.array(values) <= 0.05))
    assert shares[0] >= 0.5
    assert shares[1] * 24 <= binom.isf(FALSE_ALARM_RATE, 24, 0.05)


def test_the_order_of_levels_does_not_matter_inside_a_triple():
    (counts, tester), *_ = rows_of_triples(["a", "b", "c", "ab", "abc"], 640, 1)
    moved = EdgeTester(
        Observations.from_table(Domain.from_cardinalities(dict.fromkeys("abc", 5)), counts[::-1, [2, 0, 1, 4, 3]])
    )
    log_p = [part.test(("a", "b"), [("a", "b", "c")], "b").log_p_value for part in (tester, moved)]
    assert log_p[0] == pytest.approx(log_p[1], rel=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_rows_choose_the_spread_of_larger_sets(scale):
    """With many rows the strength is the number of parameters over the squared length of the true ones."""
    sizes = dict.fromkeys("abc", 4)
    edges = [("a",), ("b",), ("c",), ("a", "b", "c")]
    law = random_law(Domain.from_cardinalities(sizes), edges, scale=scale, generator=torch.Generator().manual_seed(1))
    log_law = law.probs.log().numpy()
    for axis in range(3):
        log_law = log_law - log_law.mean(axis, keepdims=True)
    rows = Observations.from_table(law.domain, np.round(law.probs.numpy() * 1e6))
    tester = EdgeTester(rows)
    patterns = tester._patterns("c", ("a", "b"))
    design = tester._design(patterns, [(), ("a", "b")])
    is_triple = np.arange(len(design)) >= 3
    strength, _ = evidence_strength(design, patterns.counts, is_triple, 1e-3)
    assert strength == pytest.approx(27 / (log_law**2).sum(), rel=0.05)


def chain(number, seed, length=5):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, (number, length))
    for i in range(1, length):
        codes[:, i] = np.where(rng.random(number) < 0.2, codes[:, i], codes[:, i - 1])
    return codes


def test_what_is_left_out_is_named_with_what_replaces_it():
    """Pairs at a distance in a chain are significant alone and not beside the pairs that are named, which are kept."""
    codes = chain(2000, 0)
    parts, names = halves(codes), "abcde"
    found = confirm(*parts, InteractionHypergraph.from_order(parts[0].domain, 2))
    assert kept(found) == set(itertools.pairwise(names))
    tester = EdgeTester(*parts)
    for test in found.rejected:
        assert test.is_confirmed and set(test.replaced_by) <= kept(found)
        assert set(test.edge) <= {name for edge in test.replaced_by for name in edge}
        assert tester.test(test.edge, []).p_value < 1e-20
        assert all(tester.test(test.edge, test.replaced_by, name).p_value > 0.001 for name in test.edge)
        assert test.p_value == pytest.approx(tester.test(test.edge, sorted(kept(found))).p_value)
    assert not any(test.replaced_by for test in found.tests if test.is_kept)


def test_an_exclusive_or_is_a_triple_without_pairs():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, (2000, 4))
    codes[:, 2] = codes[:, 0] ^ codes[:, 1] ^ (rng.random(2000) < 0.3)
    assert kept(confirm(*halves(codes))) == {("a", "b", "c")}
    assert kept(confirm(*halves(codes), max_order=2)) == set()
    assert kept(confirm(*halves(codes), candidates=[("a", "b", "d"), ("a", "b")])) == set()  # not a hypothesis


def test_a_column_that_is_another_one_stays_tied_to_it():
    """Every row gains the same; independent columns are the control."""
    for cells, is_kept in ([[0, 0], [1, 1]], True), ([[0, 0], [0, 1], [1, 0], [1, 1]], False):
        codes = np.tile(cells, (40, 1))
        found = confirm(*halves(codes), InteractionHypergraph.from_order(rows_of(codes).domain, 2))
        (test,) = found.tests
        assert test.is_kept is is_kept, test
        assert InteractionTest.from_json(json.loads(json.dumps(test.to_json(), allow_nan=False))) == test


def test_rare_levels_count_by_themselves():
    """A level of one row in a hundred goes with one of another column, the other levels are independent."""
    rng = np.random.default_rng(3)
    codes = np.stack(
        [rng.choice(3, size=3000, p=p) for p in ([0.7, 0.29, 0.01], [0.6, 0.39, 0.01], [0.5, 0.49, 0.01])], 1
    )
    codes[:, 1] = np.where((codes[:, 0] == 2) & (rng.random(3000) < 0.4), 2, codes[:, 1])
    assert kept(confirm(*halves(codes))) == {("a", "b")}


def test_gain_is_that_of_the_conditional_law():
    """Of a pair alone: the mean of the log ratio of the joint to the product law of the training rows."""
    train, held = np.array([[300, 100], [200, 400]]), np.array([[40, 10], [30, 45]])
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    parts = [Observations.from_table(domain, table) for table in (train, held)]
    (test,) = confirm(*parts).tests
    law = train / train.sum()
    ratio = np.log(law / (law.sum(1, keepdims=True) * law.sum(0)))
    gain = (held * ratio).sum() / held.sum()
    error = np.sqrt((held * (ratio - gain) ** 2).sum()) / held.sum()
    assert (test.gain, test.gain_std_error) == (pytest.approx(gain, rel=0.02), pytest.approx(error, rel=0.02))
    assert kept(confirm(*parts, least_gain=test.rise - 0.01)) and not kept(confirm(*parts, least_gain=test.rise + 0.01))


@pytest.mark.parametrize("level", [0.01, 0.1, 0.5])
def test_confirmed_are_those_of_the_weighted_step_up_procedure(level):
    """Against its definition; sets without a test count as not confirmed."""
    rng = np.random.default_rng(3)
    domain = Domain.from_cardinalities([2] * 9)  # 36 pairs, 84 triples
    hypotheses = Hypotheses(domain.names, 3, None, level)
    for number in (0, 1, 7, 40):
        edges = [("x",) * int(size) for size in rng.integers(2, 4, number)]
        p = rng.random(number) ** 6
        tests = [EdgeTest(edge, float(np.log(v)), 9.0, "chi-square") for edge, v in zip(edges, p, strict=True)]
        weighted = np.array([v * 2 * {2: 36, 3: 84}[len(edge)] for edge, v in zip(edges, p, strict=True)])
        ranked = enumerate(np.sort(weighted), 1)
        largest = max((value for k, value in ranked if value <= level * k), default=-1.0)
        limit = hypotheses.limit(tests)
        assert [hypotheses.weighted(test) <= limit for test in tests] == (weighted <= largest).tolist()


def test_nothing_to_test():
    codes = chain(50, 4, 3)
    found = confirm(*halves(codes[:, :1]))
    assert found.hypergraph.edges == (("a",),) and found.tests == ()


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, float("nan"), True])
def test_rates_out_of_range(rate):
    rows = rows_of(chain(50, 5))
    with pytest.raises(InputError, match="false_discovery_rate: expected a number between 0 and 1"):
        confirm(rows, rows, false_discovery_rate=rate)


def test_tests_of_older_files():
    old = {"edge": ["a", "b"], "gain": 0.1, "gain_std_error": 0.0, "z": None, "p_value": 0.0, "is_kept": True}
    found = InteractionTest.from_json({**old, "is_confirmed": True, "is_refitted": True, "num_apart": 3.0})
    assert found.z == np.inf and found.replaced_by == () and found.rise is None


@pytest.mark.parametrize(("written", "pairs", "dense"), [(0, 0, 0), (2**20, 0, 0), (2**20, 2**20, 0), (0, 0, 3)])
def test_information_of_products_is_that_of_statistics_written_out(monkeypatch, written, pairs, dense):
    """By sparse products, by columns that are written out, by pairs of these, and by those of tables of few columns."""
    monkeypatch.setattr(conditional_fits, "_DENSE", dense)
    monkeypatch.setattr(conditional_fits, "_WRITTEN", written)
    monkeypatch.setattr(conditional_fits, "_PRODUCTS_OF_PAIRS", pairs)
    rng = np.random.default_rng(0)
    parts: list[Design] = []
    columns: list[np.ndarray] = []
    for shapes, contrasts in (((5, 2), (3, 3)), level_contrasts(4)), (((2, 2),), rng.normal(size=(4, 1))):
        cells = np.stack([rng.integers(0, n, 7) for n, _ in shapes], 1)
        tables, weights = tuple(rng.normal(size=shape) for shape in shapes), rng.normal(size=cells.shape)
        x = [table[cell] * weight[:, None] for table, cell, weight in zip(tables, cells.T, weights.T, strict=True)]
        columns.append(np.einsum("pf,rc->prfc", np.concatenate(x, 1), contrasts).reshape(7, 4, -1))
        numbers = cells + np.cumsum([0, *(n for n, _ in shapes[:-1])])
        parts.append(Design(numbers, ((tables, contrasts),), weights))
    design, probs, totals = parts[0] + parts[1], rng.dirichlet(np.ones(4), 7), rng.uniform(1, 9, 7)
    assert (design._written is None) == (written == dense == 0)  # control: each way is another one
    flat = np.concatenate(columns, 2)
    parameters = rng.normal(size=len(design))
    np.testing.assert_allclose(design.scores(parameters), flat @ parameters, rtol=1e-12)
    np.testing.assert_allclose(design.totals(probs), np.einsum("pr,prq->q", probs, flat), rtol=1e-12)
    mean = np.einsum("pr,prq->pq", probs, flat)
    second = np.einsum("p,pr,prq,prs->qs", totals, probs, flat, flat)
    expected = second - np.einsum("p,pq,ps->qs", totals, mean, mean)
    np.testing.assert_allclose(design.information(totals, probs), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(design.image(totals, probs, parameters), expected @ parameters, rtol=1e-10, atol=1e-12)
    # The diagonal is asked for where no pattern has a weight.
    bare = replace(design, weights=None)
    expected = bare.information(totals, probs).diagonal()
    np.testing.assert_allclose(bare.diagonal(totals, probs), expected, rtol=1e-10)


@pytest.mark.parametrize("least", [1.0, -1e-3])
def test_steps_by_a_curvature_that_rounding_left_not_positive(least):
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    values, slope = np.array([least, 2.0, 3.0, 4.0, 5.0, 6.0]), rng.normal(size=6)
    curvature = (axes * values) @ axes.T
    before = curvature.copy()
    step = conditional_fits._solved(curvature, slope)
    np.testing.assert_allclose(step, (axes / values) @ (axes.T @ slope), rtol=1e-10)
    np.testing.assert_array_equal(curvature, before)


def linked(num, seed):
    """Rows of a chain of columns of 3 to 5 levels, of which one copies another in most rows."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, (3, 4, 5, 3), (num, 4))
    codes[:, 1] = np.where(rng.random(num) < 0.3, codes[:, 0], codes[:, 1])
    codes[:, 2] = np.where(rng.random(num) < 0.9, codes[:, 1], codes[:, 2])
    return rows_of(codes)


def by_products(monkeypatch, most=0):
    """Laws of all sizes are large, and those of more parameters than ``most`` have no matrix."""
    monkeypatch.setattr(conditional_fits, "_LARGE", 0)
    monkeypatch.setattr(conditional_fits, "_WITH_MATRIX", most)


@pytest.mark.parametrize("most", [0, 10**6])
@pytest.mark.parametrize("others", [[], ["ab", "bc", "ad"], ["abd"], ["bcd", "bd", "cd", "bc"]], ids=str)
def test_tests_of_laws_of_many_parameters_are_those_of_few(others, most, monkeypatch):
    """Products with the information in place of matrices, and rough fits by these: pooled tests and held-out gains."""
    answers = []
    for is_many in (False, True):
        if is_many:
            by_products(monkeypatch, most)
        tester, judging = EdgeTester(linked(600, 0)), EdgeTester(linked(300, 1))
        beside = [tuple(other) for other in others]
        for edge in (("a", "b"), ("a", "c"), ("a", "b", "c"), ("b", "d")):
            patterns = tester._patterns("a" if "a" in edge else "b", ("a", "b", "c", "d"))
            terms = conditional_terms(patterns.response, edge, beside)
            null = tester._without(patterns, terms)
            test = tester._pooled_test(edge, patterns, tester.pooled(edge), null, Asked())
            answers.append([test.log_p_value, test.gain, *tester.held_out(edge, beside, judging)])
    few, many = np.split(np.array(answers), 2)
    assert (few != many).any(0).all() and few[:, 0].min() < -9  # control: ways differ, and something is there
    error = np.abs(many - few)
    assert (
        error[:, 0] < np.where(few[:, 0] > -0.8, 0.1, 0.03 - 0.01 * few[:, 0])
    ).all()  # a plain score stands for itself
    np.testing.assert_allclose(many[:, 1], few[:, 1], rtol=0.05, atol=0.03)
    assert (error[:, 2:] < 0.03 * few[:, [3]]).all()  # far below the error of a gain


def test_beside_many_parameters_a_set_is_tested_without_its_supersets(monkeypatch):
    others = [("a", "b", "c"), ("b", "c"), ("a", "c"), ("a", "d"), ("a", "c", "d")]
    tester = EdgeTester(linked(600, 0))
    few = tester.test(("a", "b"), others, "a")
    monkeypatch.setattr(conditional_fits, "_LARGE", 30)
    many, without = tester.test(("a", "b"), others, "a"), tester.test(("a", "b"), others[1:], "a")
    assert many == without and many != few  # control: in a small law the superset counts


def test_beside_many_parameters_cells_are_not_tested(monkeypatch):
    by_products(monkeypatch)
    monkeypatch.setattr(EdgeTester, "_extreme_cells", None)
    codes = np.random.default_rng(0).integers(0, 2, (400, 3))
    codes[:, 1] = np.where(np.random.default_rng(1).random(400) < 0.3, codes[:, 0], codes[:, 1])
    tester = EdgeTester(rows_of(codes))
    table = tester.tables(np.array([[0, 1]]))[0]
    expected = chi2_contingency(table, correction=False, lambda_="log-likelihood").statistic / 2
    test = tester.test(("a", "b"), [("b", "c"), ("a", "c")])
    assert test.method == "chi-square" and test.gain == pytest.approx(expected, abs=2.0)
    rare = rows_of(np.concatenate([np.zeros((400, 2), int), np.eye(3, dtype=int)[:, :2] * 2]))
    assert EdgeTester(rare).pooled(("a", "b")) is None
    assert EdgeTester(rare).test(("a", "b"), []).log_p_value == 0.0  # one group of levels is left


def test_beside_too_many_parameters_for_its_rows_nothing_is_confirmed(monkeypatch):
    rows = linked(600, 0)
    edge, others = ("b", "c"), [("b", "d")]
    codes = np.random.default_rng(0).integers(0, 4, (150, 4))
    copied = np.random.default_rng(1).random((150, 3)) < (0.9, 0.6, 0.5)
    codes[:, 1:] = np.where(copied, codes[:, :1], codes[:, 1:])
    assert kept(confirm(*halves(codes), max_order=2)) == {("a", "b"), ("a", "c"), ("a", "d")}  # control, too
    by_products(monkeypatch)
    terms = conditional_terms("b", edge, others)
    num = sum(EdgeTester(rows).num_parameters((*term, "b")) for term in [*terms, ("c",)])
    for count, is_enough in ((5 * num, True), (5 * num - 1, False)):
        tester = EdgeTester(rows.rows(torch.arange(count)))
        p_value = tester.test(edge, others, "b").p_value
        assert p_value < 1e-9 if is_enough else p_value == 1
    # The strongest set enters; with three sets the law of a column has 30 parameters, for which 180 rows are asked.
    some = kept(confirm(*halves(codes), max_order=2))
    assert ("a", "b") in some and sum("a" in pair for pair in some) == 2
    graph = InteractionHypergraph(rows_of(codes).domain, [("a", "b"), ("a", "c"), ("a", "d")], closure=True)
    tests = {test.edge: test for test in confirm(*halves(codes), graph, max_order=2).tests}
    (other,) = {("a", "b"), ("a", "c"), ("a", "d")} - some
    assert not tests[other].is_confirmed and tests[other].replaced_by == ()  # nothing replaces it


@pytest.mark.parametrize(("tried", "replaced_by"), [(8, (("a", "b"), ("b", "c"))), (1, ())])
def test_beside_many_parameters_few_sets_are_tried_as_what_replaces_another(tried, replaced_by, monkeypatch):
    by_products(monkeypatch)
    monkeypatch.setattr(confirmation, "_TRIED", tried)
    codes = chain(3000, 0, 3)
    graph = InteractionHypergraph(rows_of(codes).domain, [("a", "b"), ("b", "c"), ("a", "c")], closure=True)
    (test,) = [test for test in confirm(*halves(codes), graph).tests if not test.is_kept]
    assert test.edge == ("a", "c") and test.is_confirmed and test.replaced_by == replaced_by


def test_size_of_tests_beside_many_parameters(monkeypatch):
    """Absent sets of a chain of columns are as rarely below 0.05 as is said; those of the chain are, mostly."""
    by_products(monkeypatch)
    rng, num = np.random.default_rng(0), 200
    absent, control = [], []
    for _ in range(num):
        codes = rng.integers(0, (3, 4, 3, 3), (250, 4))
        for other in range(1, 4):
            codes[:, other] = np.where(rng.random(250) < 0.3, np.minimum(codes[:, other - 1], 2), codes[:, other])
        tester, others = EdgeTester(rows_of(codes)), [("a", "b"), ("b", "c"), ("c", "d"), ("a", "b", "c")]
        absent += [tester.test(edge, others).p_value for edge in (("a", "c"), ("b", "d"), ("a", "d"), ("b", "c", "d"))]
        control.append(tester.test(("c", "d"), others).p_value)
    below = int((np.array(absent) < 0.05).sum())
    assert binom.sf(below - 1, len(absent), 0.05) > FALSE_ALARM_RATE and below > 0
    assert (np.array(control) < 0.05).mean() > 0.9


def test_pairs_and_triples_of_columns_of_any_levels_are_tested_together_as_alone(monkeypatch):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, (2, 3, 2, 4), (400, 4))
    codes[:, 2] = np.where(rng.random(400) < 0.9, (codes[:, 0] + (codes[:, 1] > 0)) % 2, codes[:, 2])
    tester, pairs = EdgeTester(rows_of(codes)), list(itertools.combinations("abcd", 2))
    for pair, test in zip(pairs, lone_pairs(tester, pairs), strict=True):
        assert test.edge == pair
        assert test.log_p_value == pytest.approx(tester.test(pair, []).log_p_value, abs=0.02)
    every = confirmation.promising_triples(tester, "abcd", [])
    monkeypatch.setattr(confirmation, "_LOOK_UPS", 3 * tester.num_distinct)  # too few for all four
    around = confirmation.promising_triples(tester, "abcd", [("a", "b"), ("a", "c")])
    assert every[0] == around[0] == ("a", "b", "c") and confirmation.promising_triples(tester, "abcd", pairs) == []


def test_levels_that_a_table_given_never_has_leave_the_law():
    """The limit of a fit of all levels, which goes on by ever longer steps; not where only part of a table is given."""
    codes = np.random.default_rng(0).integers(0, 3, (90, 3))
    codes = codes[(codes[:, 0] != 2) | (codes[:, 1] == 0)]
    tester = EdgeTester(rows_of(codes))
    patterns = tester._patterns("a", ("b", "c"))
    whole, part = [(), ("b",), ("c",), ("b", "c")], [(), ("c",), ("b", "c")]
    design = tester._seen_design(patterns, whole)
    never = patterns.counts == 0  # every pattern is a cell of the whole table
    np.testing.assert_array_equal(design.never, never)
    fit = conditional_fits.maximised(design, patterns.counts)
    np.testing.assert_allclose(fit.probs, patterns.counts / patterns.counts.sum(1, keepdims=True), atol=1e-3)
    limit = conditional_fits.maximised(tester._design(patterns, whole), patterns.counts)
    assert limit.value < fit.value < limit.value + 1e-3
    assert never.any() and tester._seen_design(patterns, part).never is None
    four = EdgeTester(linked(60, 0))
    pure = [(), *itertools.combinations("bcd", 2), ("b", "c", "d")]  # pairs and a triple without single columns
    assert four._seen_design(four._patterns("a", ("b", "c", "d")), pure).never is None


def test_a_fit_without_the_set_serves_for_other_sets_of_its_variable():
    codes = np.random.default_rng(0).integers(0, (2, 3, 2, 4), (300, 4))
    kept = [("a", "b")]
    one, shared = EdgeTester(rows_of(codes)), EdgeTester(rows_of(codes))
    for edge in (("a", "c"), ("a", "d"), ("a", "b", "d")):
        alone = EdgeTester(rows_of(codes)).test(edge, kept, "a")
        assert shared.test(edge, kept, "a").log_p_value == pytest.approx(alone.log_p_value, rel=1e-6)
    assert len(shared._fits) == 2 < 3  # control: another collection has a fit of its own
    assert one.test(("a", "c"), [], "a").log_p_value != shared.test(("a", "c"), kept, "a").log_p_value


@pytest.mark.parametrize("seed", [1, 3, 4, 9])
def test_the_order_of_levels_does_not_matter_where_estimates_are_infinite(seed):
    """Columns that follow one hidden column leave directions without information, of which rounding must not decide."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 9, 1500)

    def follows(levels, share):
        copied = rng.integers(0, levels, 9)[hidden]
        return np.where(rng.random(1500) < share, copied, rng.integers(0, levels, 1500))

    codes = np.stack([hidden, *(follows(*how) for how in ((7, 1.0), (6, 1.0), (5, 0.97), (4, 1.0), (3, 0.9)))], 1)
    orders = [np.random.default_rng(9).permutation(size) for size in codes.max(0) + 1]
    one = EdgeTester(rows_of(codes))
    other = EdgeTester(rows_of(np.stack([order[column] for order, column in zip(orders, codes.T, strict=True)], 1)))
    kept = [tuple(pair) for pair in ("ab", "ac", "ad", "bc", "bd", "cd", "ae", "bf")]
    for edge in itertools.combinations("abcdef", 2):
        rest = [pair for pair in kept if pair != edge]
        expected = one.test(edge, rest).log_p_value
        assert other.test(edge, rest).log_p_value == pytest.approx(expected, rel=1e-5, abs=1e-5)


class DrawnSearch(StepwiseSearch):
    """A search whose tests are drawn for a set and the sets beside it that share its variables."""

    def tested(self, edge, others, response, asked):
        columns = set(edge)
        near = sorted("".join(other) for other in others if other != edge and not columns.isdisjoint(other))
        drawn = random.Random(" ".join(["".join(edge), *near]))  # a generator of NumPy takes ten times as long to seed
        return EdgeTest(edge, -drawn.expovariate(1 / 40), drawn.expovariate(1 / 20), "chi-square")


class Crowded(DrawnSearch):
    """One in which a column has room for one set."""

    def can_enter(self, edge, others):
        return all(set(edge).isdisjoint(other) for other in others)


def test_a_set_without_room_keeps_no_other_one_out():
    class Fixed(Crowded):
        def tested(self, edge, others, response, asked):
            return EdgeTest(edge, {"ad": -90.0, "abc": -60.0, "bc": -30.0}.get("".join(edge), 0.0), 9.0, "chi-square")

    search = Fixed(Hypotheses("abcd", 3, None, 0.1), 2.0, [])
    search.kept = [("a", "d")]
    search.settle([("a", "b", "c"), ("b", "c")])
    assert search.kept == [("a", "d"), ("b", "c")]


@pytest.mark.parametrize("kind", [DrawnSearch, Crowded])
@pytest.mark.parametrize("number", range(5))
def test_steps_end_with_every_set_tested_beside_what_is_kept(number, kind):
    """At the end none that is left out, and has room, is confirmed, and all that is kept is."""
    names = "abcdefghij"[: 6 + number]
    hypotheses = Hypotheses(names, 3, None, 0.1)
    pool = [edge for size in (2, 3) for edge in itertools.combinations(names, size)]
    search = kind(hypotheses, 2.0, [])
    search.settle(pool)
    free = [search.test(edge) for edge in pool if edge not in search.kept and search._times[edge] < 3]
    free = [test for test in free if test.gain >= 2.0]
    limit = hypotheses.limit(free, len(search.kept))
    confirmed = [test.edge for test in free if hypotheses.weighted(test) <= limit]
    assert not any(search.can_enter(edge, search.kept) for edge in confirmed)
    assert (len(confirmed) > 0) == (kind is Crowded)  # control: some have no room
    tests = [search.test(edge) for edge in search.kept]
    limit = hypotheses.limit(tests)
    assert all(hypotheses.weighted(test) <= limit and test.gain >= 2.0 for test in tests)
    assert search.kept


@pytest.mark.parametrize("limits", list(itertools.product((-25, -8, -2), (-2, 0), (0.5, 2))), ids=str)
def test_a_test_that_may_end_early_says_what_the_whole_test_says(limits):
    """On which side of two limits it is, and all between, of strong, weak and absent interactions and small sets."""
    asked, num = Asked(*limits), Counter()
    for _, tester in rows_of_triples(["a", "b", "c", ("a", "b"), ("b", "c")], 400, 3):
        beside = [], [("a", "b")], [("b", "c")], [("a", "b", "c")]
        edges = [*itertools.combinations("abc", 2), ("a", "b", "c")]
        for edge, others in itertools.product(edges, beside):
            others = [other for other in others if other != edge]
            whole, quick = tester.test(edge, others), tester.test(edge, others, asked=asked)
            side = (whole.log_p_value > asked.low) + (whole.log_p_value > asked.high)
            num[side] += quick.gain != pytest.approx(whole.gain, rel=1e-6)
            assert side == (quick.log_p_value > asked.low) + (quick.log_p_value > asked.high)
            if side == 1:
                assert quick.log_p_value == pytest.approx(whole.log_p_value, rel=1e-6)
            if side < 2:
                assert quick.gain == pytest.approx(whole.gain, rel=1e-6) or asked.least_gain <= quick.gain <= whole.gain
    assert num[0] > 0 and (num[2] > 0 or asked.high == 0)  # control: tests do end early, on both sides


def test_answers_serve_for_questions_that_ask_no_more():
    whole, both = Asked(), Asked(-9.0, -2.0, 2.0)
    assert whole.covers(both) and both.covers(both) and both.covers(Asked(-8.0, -3.0, 1.0))
    for more in (whole, both._replace(low=-10.0), both._replace(high=-1.0), both._replace(least_gain=3.0)):
        assert not both.covers(more)


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_are_those_of_whole_tests(seed, monkeypatch):
    """What a search keeps, replaces and says, where its tests may end early and where none does."""
    domain = Domain.from_cardinalities(dict(zip("abcde", (2, 3, 4, 2, 3), strict=True)))
    edges = [*"abcde", *itertools.pairwise("abcde"), ("a", "b", "e")]
    law = random_law(domain, [tuple(edge) for edge in edges], generator=torch.Generator().manual_seed(seed))
    counts = np.random.default_rng(seed).multinomial((300, 3000)[seed % 2], law.probs.numpy().ravel())
    rows = Observations.from_table(domain, counts.reshape(law.probs.shape)).split([0.6, 0.4, 0.0], seed=seed)
    triples, asked, original = InteractionHypergraph.from_order(domain, 3), list[Asked | None](), EdgeTester.test

    def whole(self, edge, others, response=None, question=None):
        asked.append(question)
        return original(self, edge, others, response)

    quick = confirm(rows[0], rows[1], triples)
    monkeypatch.setattr(EdgeTester, "test", whole)
    slow = confirm(rows[0], rows[1], triples)
    assert kept(quick) == kept(slow) != set()
    for one, other in zip(quick.tests, slow.tests, strict=True):
        assert (one.edge, one.is_confirmed, one.replaced_by) == (other.edge, other.is_confirmed, other.replaced_by)
        assert one.p_value == pytest.approx(other.p_value, rel=1e-4)
    assert not {*asked} <= {None, Asked()}  # control: less was asked than was answered
