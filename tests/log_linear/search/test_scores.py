"""Candidates under heredity and their scores: brute force, formulas by loops, bounds, laws without structure."""

import itertools
import math
import time
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.stats import binom

from pyro_hoim import Domain, InputError, InteractionHypergraph, NonexistentEstimateWarning, Observations
from pyro_hoim.core import Margins
from pyro_hoim.errors import InputTypeError
from pyro_hoim.log_linear import (
    CandidatePool,
    ExactTrainer,
    Gain,
    InteractionInformation,
    Refined,
    ScoreContext,
    Screened,
    fit,
    parametrization,
)
from pyro_hoim.log_linear.fitting.design import fitted_margins
from pyro_hoim.log_linear.search.scores import CONCENTRATIONS
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 4})


class TableModel:
    """Stands in for a trainer: a law given as a table of all states, and a collection."""

    name = "exact"

    def __init__(self, rows, hypergraph, law, sample_size=math.inf):
        self.rows, self.hypergraph, self.law, self.sample_size = rows, hypergraph, np.asarray(law), sample_size

    def margins(self, edges):
        names = self.rows.domain.names
        parts = [self.law.sum(tuple(i for i, n in enumerate(names) if n not in edge)).ravel() for edge in edges]
        return Margins(torch.from_numpy(np.concatenate(parts)), self.sample_size)


def random_law(rng, shape=DOMAIN.cardinalities, scale=1.0):
    law = np.exp(scale * rng.normal(size=shape))
    return law / law.sum()


def sample(rng, law, size, domain=DOMAIN):
    return Observations.from_table(domain, rng.multinomial(size, law.ravel()).reshape(law.shape))


def independent_law(rows):
    law = np.ones(())
    for name, n in zip(rows.domain.names, rows.domain.cardinalities, strict=True):
        law = np.multiply.outer(law, rows.marginal_counts([(name,)]).numpy().reshape(n) / rows.total_count)
    return law


def divergence(p, q):
    kept = p > 0
    return float((p[kept] * np.log(p[kept] / q[kept])).sum())


def fitted_law(rows, hypergraph):
    with warnings.catch_warnings(action="ignore", category=NonexistentEstimateWarning):  # the limit is what is wanted
        return fit(hypergraph, rows, method="newton").probs.numpy().reshape(rows.domain.cardinalities)


def all_sets(domain, low, high):
    return [e for k in range(low, high + 1) for e in itertools.combinations(domain.names, k)]


def test_gain_equals_its_formula_written_out():
    rng = np.random.default_rng(1)
    rows = sample(rng, random_law(rng), 60)
    hypergraph = InteractionHypergraph.from_order(DOMAIN, 3)
    model = TableModel(rows, hypergraph, random_law(rng))
    edges = [("b",), ("b", "a"), ("a", "c", "d"), DOMAIN.names]
    found = Gain().estimate(edges, ScoreContext(rows, model))
    for i, edge in enumerate(edges):
        gone = tuple(k for k, n in enumerate(DOMAIN.names) if n not in edge)
        counts, q = rows.table().numpy().sum(gone).ravel(), model.law.sum(gone).ravel()
        values = {}
        for a in CONCENTRATIONS:
            values[a] = sum(
                c / 60 * math.log((c - 1 + a * p) / ((59 + a) * p)) for c, p in zip(counts, q, strict=True) if c
            )
        best = max(values, key=values.__getitem__)
        assert found.gain[i] == pytest.approx(values[best], abs=1e-12)
        assert found.divergence[i] == pytest.approx(divergence(counts / 60, q), abs=1e-12)


@pytest.mark.parametrize("size", [30, 300, 30_000])
def test_gain_is_below_divergence_and_that_below_refined_information(size):
    rng = np.random.default_rng(size)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})
    law = random_law(rng, domain.cardinalities) + 0.01
    rows = sample(rng, law / law.sum(), size, domain)
    p = rows.table().numpy() / size
    pairs = InteractionHypergraph.from_order(domain, 2)
    for hypergraph, candidates in (
        (InteractionHypergraph.from_order(domain, 1), all_sets(domain, 2, 2)),
        (pairs, all_sets(domain, 3, 3)),
        (pairs.remove_edges([("c", "d")]), [("a", "b", "c"), ("c", "d")]),
    ):
        q = fitted_law(rows, hypergraph)
        refined = [divergence(p, q) - divergence(p, fitted_law(rows, hypergraph.add_edges([e]))) for e in candidates]
        found = Gain().estimate(candidates, ScoreContext(rows, TableModel(rows, hypergraph, q)))
        assert (found.gain <= found.divergence + 1e-12).all()
        assert (found.divergence <= np.array(refined) + 1e-7).all()
        assert not (found.divergence <= 0.3 * np.array(refined)).any()  # control: the bound is not idle
        if size == 30_000:
            np.testing.assert_allclose(found.gain, found.divergence, atol=30 / size)


def test_first_candidates_of_an_independent_model_have_exact_divergence():
    # One pair beside an independent model: the refined information is the mutual information, and equals the bound.
    rng = np.random.default_rng(5)
    rows = sample(rng, random_law(rng), 500)
    model = TableModel(rows, InteractionHypergraph.from_order(DOMAIN, 1), independent_law(rows))
    pairs = all_sets(DOMAIN, 2, 2)
    context = ScoreContext(rows, model)
    found = Gain().estimate(pairs, context)
    np.testing.assert_allclose(found.divergence, InteractionInformation()(pairs, context), atol=1e-12)


def test_absent_subsets_do_not_count_for_a_larger_set():
    # The law has pairs and no triple; the collection has only one of the pairs.
    rng = np.random.default_rng(2)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 3})
    log_law = sum(rng.normal(size=s) for s in ((2, 3, 1), (2, 1, 3), (1, 3, 3)))
    law = np.exp(log_law) / np.exp(log_law).sum()
    rows = Observations.from_table(domain, weights=law * 10_000)
    weak = InteractionHypergraph(domain, [("a",), ("b",), ("c",), ("a", "b")])
    q = law.sum(2, keepdims=True) * law.sum((0, 1), keepdims=True)
    context = ScoreContext(rows, TableModel(rows, weak, q))
    found = Gain().estimate([("a", "b", "c"), ("a", "c")], context)
    assert found.divergence[0] < 1e-6
    pair = law.sum(1)
    mutual = divergence(pair, pair.sum(0) * pair.sum(1, keepdims=True))
    assert found.divergence[1] == pytest.approx(mutual, abs=1e-12)
    assert divergence(law, q) > mutual  # control: the plain margin of the triple would count the two absent pairs
    strong = ScoreContext(rows, TableModel(rows, InteractionHypergraph.from_order(domain, 2), q))
    assert Gain().estimate([("a", "b", "c")], strong).divergence[0] == pytest.approx(divergence(law, q), abs=1e-12)


CLOSING = Domain.from_cardinalities({"a": 2, "b": 3, "c": 3, "d": 2})
WEAK = InteractionHypergraph(  # the triple is in the collection, its pair b:c is not
    CLOSING, [("a",), ("b",), ("c",), ("d",), ("a", "b"), ("a", "c"), ("a", "b", "c"), ("c", "d")], hierarchical=False
)


def fitted_context(rows, hypergraph):
    trainer = ExactTrainer(rows, hypergraph)
    assert trainer.train().status == "converged"
    return ScoreContext(rows, trainer)


@pytest.mark.parametrize("seed", range(6))
def test_a_set_that_closes_a_present_one_is_scored_by_what_both_can_say(seed):
    rng = np.random.default_rng(seed)
    rows = sample(rng, random_law(rng, CLOSING.cardinalities), 20_000, CLOSING)
    context = fitted_context(rows, WEAK)
    candidates = [("c", "b"), ("a", "d")]
    found, refined = Gain().estimate(candidates, context), Refined()(candidates, context)
    q = context.trainer.margins([("b", "c"), ("a", "b", "c")]).probs.numpy()
    p = rows.marginal_counts([("b", "c"), ("a", "b", "c")]).numpy() / rows.total_count
    own, both = divergence(p[:9], q[:9]), divergence(p[9:], q[9:])
    assert found.divergence[0] == pytest.approx(both, rel=1e-9)
    assert own < 0.95 * both  # control: the set's own margin says less
    assert (found.divergence <= refined + 1e-7).all()  # still a lower bound
    assert found.divergence[0] > 0.99 * refined[0]  # all but tight: nothing else tells b and c more
    assert own < found.gain[0] <= found.divergence[0]
    # One more missing subset, and nothing is closed: the set has its own margin alone.
    open_context = fitted_context(rows, WEAK.remove_edges([("a", "c")], hierarchical=False))
    q = open_context.trainer.margins([("b", "c")]).probs.numpy()
    assert Gain().estimate([("b", "c")], open_context).divergence[0] == pytest.approx(divergence(p[:9], q), rel=1e-9)


def num_false_closings(repeats, score):
    """Among data sets of laws without b:c, those in which its score is above zero."""
    codings, found = parametrization(WEAK), 0
    rng = np.random.default_rng(20_261_122)
    for _ in range(repeats):
        log_law = np.zeros(CLOSING.cardinalities)
        tables = codings.to_tables(torch.from_numpy(rng.normal(size=WEAK.num_parameters)))
        for edge, table in codings.split(tables).items():
            log_law += table.numpy().reshape([CLOSING[n].cardinality if n in edge else 1 for n in CLOSING.names])
        law = np.exp(log_law - log_law.max())
        rows = sample(rng, law / law.sum(), 400, CLOSING)
        found += score([("b", "c")], fitted_context(rows, WEAK))[0] > 0
    return int(found)


def test_a_set_that_would_close_a_present_one_in_vain_is_not_selected():
    repeats = 60
    assert binom.sf(num_false_closings(repeats, Gain()) - 1, repeats, 0.05) > FALSE_ALARM_RATE
    control = num_false_closings(20, lambda candidates, context: Gain().estimate(candidates, context).divergence)
    assert binom.sf(control - 1, 20, 0.05) < FALSE_ALARM_RATE


def test_estimated_margins_never_give_an_infinite_gain():
    rng = np.random.default_rng(3)
    rows = sample(rng, random_law(rng), 300)
    hypergraph = InteractionHypergraph.from_order(DOMAIN, 2)
    truth = random_law(rng)
    draws = rng.multinomial(40, truth.ravel()).reshape(truth.shape) / 40
    edges = all_sets(DOMAIN, 2, 4)
    found = Gain().estimate(edges, ScoreContext(rows, TableModel(rows, hypergraph, draws, sample_size=40.0)))
    assert np.isfinite(found.gain).all()
    assert np.isfinite(found.divergence).all()
    exact = Gain().estimate(edges, ScoreContext(rows, TableModel(rows, hypergraph, draws)))
    assert exact.divergence.max() > 10  # control: taken as exact, the empty cells are all but infinitely surprising
    close = Gain().estimate(edges, ScoreContext(rows, TableModel(rows, hypergraph, truth, sample_size=1e9)))
    known = Gain().estimate(edges[:6], ScoreContext(rows, TableModel(rows, hypergraph, truth)))
    np.testing.assert_allclose(close.gain[:6], known.gain, atol=1e-6)


def num_laws_with_a_false_triple(repeats, score):
    """Among data sets of six independent variables, those with a triple that a score above zero would select."""
    domain = Domain.from_cardinalities([2, 3, 2, 4, 2, 3])
    triples = all_sets(domain, 3, 3)
    hypergraph = InteractionHypergraph.from_order(domain, 2)
    rng = np.random.default_rng(20_261_121)
    found = 0
    for _ in range(repeats):
        law = np.ones(())
        for n in domain.cardinalities:
            law = np.multiply.outer(law, rng.dirichlet(np.full(n, 3.0)))
        rows = sample(rng, law, 400, domain)
        found += score(triples, ScoreContext(rows, TableModel(rows, hypergraph, independent_law(rows)))).max() > 0
    return int(found)


def test_independent_data_select_no_triple():
    repeats = 200
    assert binom.sf(num_laws_with_a_false_triple(repeats, Gain()) - 1, repeats, 0.05) > FALSE_ALARM_RATE

    def plain(candidates, context):
        return Gain().estimate(candidates, context).divergence

    controls = (plain, InteractionInformation())  # without leaving a row out every data set selects one
    for control in controls:
        count = num_laws_with_a_false_triple(20, control)
        assert count == 20
        assert binom.sf(count - 1, 20, 0.05) < FALSE_ALARM_RATE


def test_cost_of_the_search_and_division():
    rng = np.random.default_rng(4)
    rows = sample(rng, random_law(rng), 200)
    context = ScoreContext(rows, TableModel(rows, InteractionHypergraph.from_order(DOMAIN, 1), independent_law(rows)))
    pairs = all_sets(DOMAIN, 2, 2)
    plain = Gain().estimate(pairs, context).gain
    np.testing.assert_allclose(Gain()(pairs, context), plain - math.log(6) / 200, atol=1e-14)
    np.testing.assert_allclose(Gain(search_cost=False)(pairs, context), plain, atol=1e-14)
    parameters = np.array([2, 1, 3, 2, 6, 3])
    np.testing.assert_allclose(Gain(per_parameter=True, search_cost=False)(pairs, context), plain / parameters)
    divided = InteractionInformation(per_parameter=True)(pairs, context)
    np.testing.assert_allclose(divided, InteractionInformation()(pairs, context) / parameters)
    assert Gain()([], context).shape == (0,)


def test_interaction_information_by_loops():
    rng = np.random.default_rng(6)
    rows = sample(rng, random_law(rng), 100)
    p = rows.table().numpy() / 100
    edges = all_sets(DOMAIN, 1, 4)
    expected = []
    for edge in edges:
        value = 0.0
        for size in range(len(edge) + 1):
            for part in itertools.combinations(edge, size):
                gone = tuple(i for i, n in enumerate(DOMAIN.names) if n not in part)
                margin = p.sum(gone)
                value += (-1) ** (len(edge) - size) * divergence(margin.ravel(), np.full(margin.size, 1 / margin.size))
        expected.append(abs(value))
    context = ScoreContext(rows, TableModel(rows, InteractionHypergraph(DOMAIN), np.full(DOMAIN.cardinalities, 1 / 48)))
    np.testing.assert_allclose(InteractionInformation()(edges, context), expected, atol=1e-12)


# Screening by a cheap score

WIDE = Domain.from_cardinalities([2, 3, 2, 2, 3])
WIDE_PAIRS = list(itertools.combinations(WIDE.names, 2))


@pytest.fixture(scope="module")
def context():
    draws = torch.Generator().manual_seed(3)
    codes = torch.stack([torch.randint(n, (300,), generator=draws) for n in WIDE.cardinalities], 1)
    codes[:, 3] = codes[:, 0]
    rows = Observations.from_tensor(codes, WIDE)
    return ScoreContext(rows, ExactTrainer(rows, InteractionHypergraph.from_order(WIDE, 1)))


def test_the_best_by_the_first_score_get_the_second_and_the_others_none(context):
    rough = InteractionInformation()(WIDE_PAIRS, context)
    values = Screened(keep=4)(WIDE_PAIRS, context)
    passed = set(np.argsort(-rough)[:4].tolist())
    assert {i for i, value in enumerate(values) if np.isfinite(value)} == passed
    full = Gain(search_cost=False)(WIDE_PAIRS, context)
    kept = Screened(Gain(search_cost=False), keep=4)(WIDE_PAIRS, context)
    assert all(kept[i] == full[i] for i in passed)
    assert int(values.argmax()) == WIDE_PAIRS.index((WIDE.names[0], WIDE.names[3]))
    assert np.array_equal(Screened(keep=len(WIDE_PAIRS))(WIDE_PAIRS, context), Gain()(WIDE_PAIRS, context))
    values = Screened(first=lambda candidates, _: np.arange(len(candidates), dtype=float), keep=2)(WIDE_PAIRS, context)
    assert not np.isfinite(values[WIDE_PAIRS.index((WIDE.names[0], WIDE.names[3]))])


@pytest.mark.parametrize("keep", [0, True, 1.5])
def test_bad_keep_is_refused(keep):
    with pytest.raises(InputError, match="keep"):
        Screened(keep=keep)


# Candidates under heredity


FOUR = Domain.from_cardinalities(dict.fromkeys("abcd", 2))
HEREDITIES = (0.3, 0.5, 2 / 3, 1.0, "semi-strong")


def sets(text):
    return tuple(tuple(word) for word in text.split())


def collection(text, domain=FOUR):
    return InteractionHypergraph(domain, sets(text), hierarchical=False)


def next_available(hypergraph, heredity, **options):
    pool = CandidatePool(hypergraph.domain, heredity, **options)
    pool.add(hypergraph.edges)
    return pool.available()


def by_power_set(hypergraph, heredity, max_order=None):
    """Algorithm 2, NEXTAVAILABLEINTERACTIONS, as printed but for >= in place of >; the empty set is selected."""
    selected = {frozenset(), *map(frozenset, hypergraph.edges)}
    found = []
    names = hypergraph.domain.names
    for size in range(1, (max_order or len(names)) + 1):
        for edge in itertools.combinations(names, size):
            present = sum(frozenset(edge) - {name} in selected for name in edge)
            passes = present >= size - 1 if heredity == "semi-strong" else present / size >= heredity - 1e-12
            if passes and frozenset(edge) not in selected:
                found.append(edge)
    return tuple(found)


@pytest.mark.parametrize(
    ("present", "heredity", "expected"),
    [
        ("", 1.0, "a b c d"),
        ("a", 0.3, "b c d ab ac ad"),
        ("a", 1.0, "b c d"),
        ("a", "semi-strong", "b c d ab ac ad"),
        ("a b c d", 1.0, "ab ac ad bc bd cd"),
        ("a b c d ab", 0.3, "ac ad bc bd cd abc abd"),  # one of three pairs passes 30 %
        ("a b c d ab", 0.5, "ac ad bc bd cd"),
        ("a b c d ab ac", 0.5, "ad bc bd cd abc"),  # two of three pass 50 % and semi-strong, not 100 %
        ("a b c d ab ac", "semi-strong", "ad bc bd cd abc"),
        ("a b c d ab ac", 1.0, "ad bc bd cd"),
        ("a b c d ab ac bc", 1.0, "ad bd cd abc"),
        ("a b c d ab abc", 0.3, "ac ad bc bd cd abd"),  # not downward closed; one of four triples is 25 %
        ("a b c d ab abc abd", 0.3, "ac ad bc bd cd abcd"),
        ("a b c d ab abc abd", "semi-strong", "ac ad bc bd cd"),
        ("a b c d ab abc abd acd", "semi-strong", "ac ad bc bd cd abcd"),
    ],
)
def test_hand_made_collections(present, heredity, expected):
    assert next_available(collection(present), heredity) == sets(expected)


@given(
    st.sets(st.sampled_from([e for k in range(1, 5) for e in itertools.combinations("abcd", k)])),
    st.sampled_from(HEREDITIES),
    st.sampled_from([None, 1, 2, 3]),
)
def test_equals_the_power_set(edges, heredity, max_order):
    hypergraph = InteractionHypergraph(FOUR, edges, hierarchical=False)
    assert next_available(hypergraph, heredity, max_order=max_order) == by_power_set(hypergraph, heredity, max_order)


@given(st.lists(st.sampled_from([e for k in range(1, 5) for e in itertools.combinations("abcd", k)]), max_size=12))
def test_growing_equals_starting_anew(added):
    pool = CandidatePool(FOUR, 0.5)
    for edge in added:
        pool.add([edge])
    assert pool.available() == next_available(InteractionHypergraph(FOUR, set(added), hierarchical=False), 0.5)


def test_variables_of_one_level_and_given_sets_restrict_the_candidates():
    domain = Domain.from_cardinalities({"a": 2, "b": 1, "c": 3})
    hypergraph = InteractionHypergraph.from_order(domain, 1)
    assert next_available(hypergraph, 0.3) == (("a", "c"),)
    assert next_available(hypergraph, None, allowed=[("a", "b"), ("a", "c")]) == (("a", "c"),)
    hypergraph = collection("a b c d ab")
    known = sets("abc bcd da")  # the order of names is of no account
    assert next_available(hypergraph, 0.3, allowed=known) == sets("ad abc")
    assert next_available(hypergraph, None, allowed=known) == sets("ad abc bcd")
    assert next_available(hypergraph, 0.3, allowed=[]) == ()


def test_five_hundred_variables_take_seconds():
    domain = Domain.from_cardinalities([2] * 500)
    start = time.process_time()
    pool = CandidatePool(domain, 0.3, max_order=3)
    pool.add((name,) for name in domain.names)
    pairs = pool.available()
    pool.add(pairs[:: len(pairs) // 300])
    triples = [edge for edge in pool.available() if len(edge) == 3]
    assert len(pairs) == 124_750
    assert 100_000 < len(triples) <= 301 * 498
    assert time.process_time() - start < 10


@pytest.mark.parametrize("heredity", [0, -0.1, 1.01, float("nan"), True, "strong", None])
def test_bad_heredity(heredity):
    with pytest.raises(InputError, match="heredity: expected"):
        CandidatePool(FOUR, heredity)


def test_bad_arguments():
    for options, code, argument in (
        ({"max_order": 0}, "out-of-range", "max_order"),
        ({"max_order": 2.0}, "wrong-type", "max_order"),
        ({"allowed": [("a", "z")]}, "unknown-name", None),
    ):
        with raises(code, argument):
            CandidatePool(FOUR, 0.3, **options)
    with pytest.raises(InputTypeError, match=r"received the string 'ab'; write \('ab',\)"):
        CandidatePool(FOUR, 0.3, allowed=["ab"])
    with pytest.raises(InputError, match="empty set"):
        CandidatePool(FOUR, 0.3, allowed=[()])


@pytest.mark.parametrize("number", [5, 40])
def test_few_and_many_tables_are_fitted_to_the_closed_form_of_a_chain(number):
    data = np.random.default_rng(0).dirichlet(np.ones(12), number).reshape(number, 2, 3, 2)
    fitted = fitted_margins(np.full_like(data, 1 / 12), data, [(0, 1), (1, 2)])
    chain = data.sum(3, keepdims=True) * data.sum(1, keepdims=True) / data.sum((1, 3), keepdims=True)
    np.testing.assert_allclose(fitted, chain, rtol=1e-12)
    assert not np.allclose(fitted, data)
