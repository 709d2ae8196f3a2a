"""Impossible states in tables that nobody lists: independent blocks, each of which is fitted by proportional fitting.

The law of 27 columns is a product over blocks of three, so that every figure has a closed form in the blocks' laws.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2

import pyro_hoim as hoim
from pyro_hoim import Domain, InputError, InteractionHypergraph, NonexistentEstimateWarning, Observations
from pyro_hoim.log_linear import L2, Auto, ImpossibleStates, Stopping, load_model, term_tests

from support.fitted_zeros import fitted_law

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")

SHAPE, NUM_ROWS, NUM_BLOCKS = (3, 2, 2), 800, 9
BLOCKS = {  # interactions of a block, what is impossible in it, and what its rows never hold
    "a pair that does not interact": ("a*b + b*c", {"a": 2, "c": 1}, None),
    "a pair that does": ("a*b + b*c", {"a": [0, 1], "b": 1}, None),
    "three columns": ("a*b + b*c", {"a": 0, "b": 0, "c": 0}, None),
    "a level": ("a + b + c", {"a": 1}, None),
    "never seen": ("a*b + b*c", None, (2, 1)),
    "both": ("a*b + b*c", {"b": 1, "c": 1}, (0, 0)),
    "none": ("a*b + b*c", None, None),
    "independent, a pair": ("a + b + c", {"b": 0, "c": 0}, None),
    "independent, three": ("a + b + c", {"a": 2, "b": 1, "c": 0}, None),
}


def names(block):
    return [f"{letter}{block}" for letter in "abc"]


def graph_of(formula):
    """Interactions of a block."""
    return InteractionHypergraph.from_formula(Domain.from_cardinalities(dict(zip("abc", SHAPE, strict=True))), formula)


@pytest.fixture(scope="module")
def wide():
    """Rows, formula, combinations, laws of the blocks and the fit."""
    random = np.random.default_rng(5)
    columns, terms, combinations, laws, counts_of = {}, [], [], [], []
    for block, (formula, combination, empty) in enumerate(BLOCKS.values()):
        lost = np.zeros(SHAPE, dtype=bool)
        if combination is not None:
            lost[np.ix_(*(np.atleast_1d(combination.get(n, range(k))) for n, k in zip("abc", SHAPE, strict=True)))] = (
                True
            )
            combinations.append({f"{name}{block}": codes for name, codes in combination.items()})
        weights = random.dirichlet(np.ones(12)).reshape(SHAPE) * ~lost + 0.02 * ~lost
        if empty is not None:
            weights[empty] = 0
        states = random.choice(12, NUM_ROWS, p=weights.ravel() / weights.sum())
        counts_of.append(np.bincount(states, minlength=12).reshape(SHAPE).astype(float))
        laws.append(fitted_law(counts_of[-1], lost, graph_of(formula)))
        columns |= dict(zip(names(block), map(list, np.unravel_index(states, SHAPE)), strict=True))
        terms.append("".join(f"{c}{block}" if c in "abc" else c for c in formula))
    domain = Domain.from_cardinalities(dict(zip([n for b in range(9) for n in names(b)], SHAPE * 9, strict=True)))
    rows = Observations.from_tensor(torch.tensor(np.array(list(columns.values())).T), domain)
    graph = InteractionHypergraph.from_formula(domain, " + ".join(terms))
    options = {"structural_zeros": combinations, "stopping": Stopping(tolerance=1e-9)}
    return rows, graph, options, laws, hoim.fit(graph, rows, **options)


def log_law(laws, frame):
    """Log-probability of whole rows."""
    codes = frame.astype(int)
    with np.errstate(divide="ignore"):
        return sum(np.log(law[tuple(codes[n] for n in names(block))]) for block, law in enumerate(laws))


def blocks_of(frame):
    """Of every block its rows as codes (rows, 3)."""
    return [frame[names(block)].astype(int).to_numpy() for block in range(NUM_BLOCKS)]


def test_scores_and_rows_are_those_of_the_limit(wide, tmp_path):
    rows, _, _, laws, result = wide
    frame = rows.to_pandas(count=None)
    each = log_law(laws, frame)
    assert result.status == "infinite" and not result.is_listed
    result.save(tmp_path / "m.safetensors")
    for model in (result, hoim.load(tmp_path / "m.safetensors")):
        np.testing.assert_allclose(model.row_log_likelihood(frame), each, atol=1e-6)
        assert hoim.score(model, frame)["nll"] == pytest.approx(-each.mean(), abs=1e-8)
        bad = frame.head(len(laws)).copy()
        for block, law in enumerate(laws):
            if (law == 0).any():
                bad.loc[block, names(block)] = [str(code) for code in np.argwhere(law == 0)[0]]
        lost = np.array([(law == 0).any() for law in laws])
        assert (np.isneginf(model.row_log_likelihood(bad)) == lost).all()
        assert hoim.score(model, bad)["impossible_rows"] == lost.sum() == 8
    assert result.log_likelihood == pytest.approx(each.sum(), abs=1e-5)
    kept = load_model(tmp_path / "m.safetensors").impossible
    assert kept.structure == result.impossible.structure and torch.equal(kept.excluded, result.impossible.excluded)


def test_draws_predictions_and_completions_are_those_of_the_limit(wide):
    _, _, _, laws, result = wide
    drawn = result.sample(4000, seed=3)
    for law, codes in zip(laws, blocks_of(drawn), strict=True):
        shares = np.zeros(SHAPE)
        np.add.at(shares, tuple(codes.T), 1 / 4000)
        assert (shares[law == 0] == 0).all()
        assert (np.abs(shares - law) < 5 * np.sqrt(law * (1 - law) / 4000) + 1e-9).all()
    partly = drawn.head(40).copy()
    for block, law in enumerate(laws):
        found = result.predict(partly.drop(columns=f"c{block}"), f"c{block}")
        a, b, _ = blocks_of(partly)[block].T
        np.testing.assert_allclose(found.filter(like="p("), law[a, b] / law[a, b].sum(1, keepdims=True), atol=1e-6)
        filled = result.impute(partly.assign(**{f"c{block}": None, f"a{block}": None}), seed=block)
        assert all(law[tuple(cell)] > 0 for cell in blocks_of(filled)[block])
    with pytest.raises(InputError, match="a0=2, c0=1 has probability zero"):
        result.sample(2, given={"a0": "2", "c0": "1"})


def test_margins_of_rows_are_fitted_and_parameters_are_counted(wide):
    rows, graph, options, laws, result = wide
    for block, law in enumerate(laws):
        np.testing.assert_allclose(Auto().log_marginal(result.model, names(block)).exp(), law, atol=1e-7)
    # Parameters that the rows identify, by the rank of the statistics on every block's cells.
    ranks, possible = [], 1
    for (formula, combination, _), law in zip(BLOCKS.values(), laws, strict=True):
        small = graph_of(formula)
        design = hoim.log_linear.fitting.design.design_matrix(small)[law.ravel() > 0]
        ranks.append(np.linalg.matrix_rank(design - design.mean(0)))
        states = None if combination is None else ImpossibleStates.of_combinations(small.domain, [combination])
        possible *= 12 if states is None else 12 - int(states.applied(flat(small)).energy(every(small)).isinf().sum())
    assert result.num_parameters_fitted == sum(ranks) < result.num_parameters
    assert result.num_cells_possible == possible > result.num_cells_fitted
    # Margins alone, ridges and pseudo-likelihoods have the same support.
    zeros = options["structural_zeros"]
    margins = hoim.fit(graph, rows.marginal_counts(graph.edges), **options)
    assert margins.log_likelihood == pytest.approx(result.log_likelihood, abs=1e-5)
    for other in (
        hoim.fit(graph, rows, structural_zeros=zeros, penalty=L2(0.5)),
        hoim.fit(graph, rows, structural_zeros=zeros, objective="pseudo-likelihood"),
    ):
        drawn = blocks_of(other.sample(1000, seed=1))
        lost = [ImpossibleStates.of_combinations(graph.domain, zeros).tally(as_rows(graph, drawn))]
        assert lost == [[]] and other.log_likelihood < result.log_likelihood + 1e-6


def test_odds_ratios_near_impossible_combinations_are_not_told(wide):
    _, _, _, _, result = wide
    found = result.odds_ratios()
    lost = set(found.loc[found["odds_ratio"].isna(), "term"])
    assert lost == {"a1:b1", "a4:b4", "a5:b5", "b5:c5"}  # of three columns each pair has rows where it is possible
    marked = result.interactions().set_index("term")["is_infinite"]
    assert {term for term, is_lost in marked.items() if is_lost and ":" in term} == lost


def flat(graph):
    return hoim.LogLinearEnergy(graph, torch.zeros(graph.num_terms, dtype=torch.float64))


def every(graph):
    return torch.cartesian_prod(*(torch.arange(n) for n in graph.domain.cardinalities))


def as_rows(graph, blocks):
    return Observations.from_tensor(torch.from_numpy(np.hstack(blocks)), graph.domain)


def test_rows_that_hold_a_combination_are_counted_and_named(wide):
    rows, graph, options, _, _ = wide
    codes = rows.codes.clone()
    codes[:7, 0], codes[:7, 2], codes[9, 3], codes[9, 4] = 2, 1, 0, 1
    expected = r"8 rows of data hold what is marked as impossible: \(a0=2, c0=1\); \(a1=0, b1=1\); correct"
    with pytest.raises(InputError, match=expected):
        hoim.fit(graph, Observations.from_tensor(codes, rows.domain), **options)
    with pytest.raises(InputError, match="margins of a1, b1 count rows"):
        hoim.fit(graph, Observations.from_tensor(codes, rows.domain).marginal_counts(graph.edges), **options)


def test_missing_cells_are_summed_over_possible_ones():
    """A chain of 24 columns with one column missing in some rows: by EM against enumeration of that column."""
    random = np.random.default_rng(1)
    domain = Domain.from_cardinalities({f"v{i}": 2 for i in range(24)})
    states = random.integers(0, 2, (400, 24))
    states[:, 1] &= 1 - states[:, 0]  # never both
    codes = torch.from_numpy(states)
    codes[::5, 1] = -1
    rows, graph = Observations.from_tensor(codes, domain), InteractionHypergraph.from_order(domain, 1)
    zeros = [{"v0": 1, "v1": 1}]
    result = hoim.log_linear.fit_incomplete(graph, rows, structural_zeros=zeros, stopping=Stopping(tolerance=1e-9))
    n = np.zeros((2, 3))  # v0 by v1, of which the last is missing
    np.add.at(n, (states[:, 0], np.where(codes[:, 1] < 0, 2, states[:, 1])), 1)
    best, law = -math.inf, None
    for p in np.linspace(0.001, 0.999, 999):  # of v1 given v0=0; v0 has its own parameter
        share = n[1].sum() / 400
        value = n[0, 0] * np.log((1 - share) * (1 - p)) + n[0, 1] * np.log((1 - share) * p)
        value += n[0, 2] * np.log(1 - share) + n[1].sum() * np.log(share)
        best, law = max((best, law), (value, p), key=lambda pair: pair[0])
    found = Auto().log_marginal(result.model, ["v0", "v1"]).exp()
    assert float(found[1, 1]) == 0 and float(found[0, 1] / found[0].sum()) == pytest.approx(law, abs=1e-3)


def test_interactions_are_tested_beside_structural_zeros(wide):
    rows, _, _, laws, result = wide
    found = term_tests(result, method="likelihood-ratio", terms=[("a6", "b6")], p_value="chi-square").iloc[0]
    counts = np.zeros(SHAPE)
    np.add.at(counts, tuple(blocks_of(rows.to_pandas(count=None))[6].T), 1)
    without = fitted_law(counts, None, graph_of("a + b*c"))
    statistic = 2 * (counts[counts > 0] * np.log(laws[6] / without)[counts > 0]).sum()
    assert found["statistic"] == pytest.approx(statistic, abs=1e-4) and found["df"] == 2


def test_a_wide_table_has_the_p_value_of_the_columns_that_are_tested():
    """A chain of twelve columns: the likelihood of its first pair is that of the two columns alone."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame({f"q{i}": random.integers(0, 3, 5000) for i in range(12)})
    frame["q1"] = np.where(frame["q0"] == 0, 0, frame["q1"])
    formula = " + ".join(f"q{i}*q{i + 1}" for i in range(11))
    result = hoim.fit(formula, frame, structural_zeros=[{"q0": 0, "q1": [1, 2]}])
    found = result.test_terms(terms=[("q0", "q1")]).iloc[0]
    counts = pd.crosstab(frame["q0"], frame["q1"]).to_numpy(float)
    law = (np.indices((3, 3))[0] > 0) | (np.indices((3, 3))[1] == 0)
    expected = law.astype(float)
    for _ in range(2000):
        for axis in (0, 1):
            expected = expected * counts.sum(axis, keepdims=True) / expected.sum(axis, keepdims=True)
    statistic = 2 * (counts[law] * np.log(counts[law] / expected[law])).sum()
    assert found["statistic"] == pytest.approx(statistic, rel=1e-3)
    assert found["df"] == 2 and found["p_value"] == pytest.approx(chi2.sf(found["statistic"], 2))


def test_what_is_not_known_of_the_zeros_is_said(tmp_path, monkeypatch):
    """All pairs of 15 columns: an empty margin is known, and whether the others force more is not."""
    monkeypatch.setattr("pyro_hoim.study.model.is_testable", lambda *_: False)  # how well it fits is not asked
    random = np.random.default_rng(2)
    states = random.integers(0, 2, (500, 15))
    states[:, 1] &= 1 - states[:, 0]
    names = [f"v{i}" for i in range(15)]
    graph = InteractionHypergraph(
        Domain.from_cardinalities(dict.fromkeys(names, 2)),
        [(a, b) for a, b in zip(names, names[1:] + names[:1], strict=True)],
        closure=True,
    )
    rows = Observations.from_tensor(torch.from_numpy(states), graph.domain)
    sentence = "here the known zeros are used, and there may be more"
    with pytest.warns(NonexistentEstimateWarning, match=f"v0=1, v1=1.*{sentence}"):
        result = hoim.fit(graph, rows)
    assert not result.is_support_known and "known zeros, perhaps not all" in repr(result)
    assert any(sentence in note for note in result.summary().attrs["notes"])
    assert sentence in result.report(tmp_path / "page").read_text(encoding="utf-8")
    # The control: without the ring the model is decomposable, and all zeros are known.
    chain = InteractionHypergraph(graph.domain, list(itertools.pairwise(names)), closure=True)
    assert hoim.fit(chain, rows).is_support_known


@pytest.mark.parametrize(
    ("zeros", "expected"),
    [
        ([{"a": "0", "q": "1"}], "unknown variable 'q'"),
        ([{"a": "9"}], "unknown label '9'"),
        ([{"a": None}], "column 'a': expected a label, received None"),
        ([{"a": [["0"]]}], "column 'a': expected one label"),
        ([{}], "levels by name, such as"),
        ([{"a": []}], "at least one level"),
        ([{"a": 3}], "unknown label '3'"),
        ("a=0", "write \\[{'a': '0'}\\]"),
        (["a=0, b = 1"], "write \\[{'a': '0', 'b': '1'}\\]"),
        (["a"], "levels by name, such as .* received 'a'"),
        (5, "combinations such as .* received 5"),
        ([[True], [True, False]], "rows of several lengths"),
        (np.zeros((3, 2)), "mask of booleans, combinations"),
    ],
)
def test_zeros_that_are_none_are_refused(zeros, expected):
    domain = Domain.from_cardinalities({"a": 3, "b": 2})
    rows = Observations.from_table(domain, np.ones((3, 2)))
    with pytest.raises((InputError, TypeError), match=expected):
        hoim.fit("a + b", rows, structural_zeros=zeros)


def test_zeros_of_other_variables_and_posteriors_of_theta():
    domain = Domain.from_cardinalities({"a": 3, "b": 2})
    rows = Observations.from_table(domain, np.ones((3, 2)))
    other = ImpossibleStates.of_combinations(Domain.from_cardinalities({"x": 2}), [{"x": 0}])
    with pytest.raises(InputError, match="states of the variables"):
        hoim.fit("a + b", rows, structural_zeros=other)
    frame = pd.DataFrame({"a": list("xxyyy"), "b": list("pqppp")})
    by_name = hoim.fit("a + b", frame, structural_zeros=[{"a": "y", "b": "q"}])
    by_states = hoim.fit("a + b", frame, structural_zeros=by_name.structural_zeros)
    assert by_name.log_likelihood == by_states.log_likelihood
