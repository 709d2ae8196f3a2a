"""The mean of likelihood ratios of few rows, and the p-values that it decides on: closed forms, sums, simulation."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from fitted import of_table
from scipy.stats import binom, chi2

from pyro_hoim.data import Observations
from pyro_hoim.errors import NonexistentEstimateWarning
from pyro_hoim.log_linear import fit, goodness_of_fit, likelihood_ratio_test, term_tests
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.goodness.p_values import mean_shift, mean_shifts, saturated_shift
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")


def graphs(cards, tested=("a", "b")):
    """All pairs, and all but one."""
    whole = InteractionHypergraph.from_order(Domain.from_cardinalities(dict(zip("abcdefgh", cards, strict=False))), 2)
    return whole.remove_edges([tested]), whole


def drawn(graph, rows, seed, scale=0.5):
    """A table of the model without the pair that is tested."""
    random = np.random.default_rng(seed)
    logs = design_matrix(graph) @ random.normal(0, scale, graph.num_parameters)
    probs = np.exp(logs - logs.max())
    counts = random.multinomial(rows, probs / probs.sum())
    return Observations.from_table(graph.domain, counts.reshape(graph.domain.cardinalities))


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (2, 7)])
def test_of_two_way_tables_the_shift_is_that_of_williams(shape):
    random = np.random.default_rng(0)
    rows, columns = (random.dirichlet(np.ones(k)) * 40 for k in shape)
    small = np.array([[*np.eye(shape[0])[i], *np.eye(shape[1])[j]] for i, j in itertools.product(*map(range, shape))])
    found = mean_shift(small, np.eye(len(small)), np.outer(rows, columns).ravel() / 40)
    assert found == pytest.approx(((40 / rows).sum() - 1) * ((40 / columns).sum() - 1) / 240, rel=1e-9)


def test_the_shift_is_the_difference_of_the_sums_over_pairs_of_cells():
    """Lawley's sums, written out for each model; nested models of three variables, with a column too many."""
    small, large = (np.column_stack([np.ones(24), design_matrix(graph)]) for graph in graphs((3, 4, 2)))
    means = np.random.default_rng(1).uniform(1, 9, 24)

    def whole(design):
        z = design @ np.linalg.solve(design.T @ (means[:, None] * design), design.T)
        own = means * np.diag(z)
        return (3 * own @ z @ own + 2 * means @ z**3 @ means - 3 * own @ np.diag(z)) / 12

    found = mean_shift(small, np.column_stack([large, large[:, :2].sum(1)]), means)
    assert found == pytest.approx(whole(large) - whole(small), rel=1e-9)
    assert mean_shift(small, small, means) == pytest.approx(0, abs=1e-12)
    for part in (small, small[:, :3]):  # summed over cells, and over columns
        assert saturated_shift(part, means) == pytest.approx(mean_shift(part, np.eye(24), means), rel=1e-9)
    without = np.eye(large.shape[1])[[i for i in range(large.shape[1]) if not (small == large[:, [i]]).all(0).any()]]
    (by_contrasts,) = mean_shifts(large, [without], means)
    assert by_contrasts == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize(("rows", "method"), [(2000, "chi-square"), (70, "bartlett")])
def test_likelihood_ratios_keep_their_level_by_either_method(rows, method):
    """Tables without one pair of 3 x 3 x 2 x 2; the control has it."""
    graphs_of, num, rejected = graphs((3, 3, 2, 2)), 120, [0, 0]
    for planted, seed in [*itertools.product((False,), range(num)), *itertools.product((True,), range(num // 3))]:
        data = drawn(graphs_of[planted], rows, seed, 0.8 if planted else 0.3)
        how = "chi-square" if planted else "auto"  # of what is plain, drawn tables would say no more
        test = likelihood_ratio_test(*(fit(graph, data) for graph in graphs_of), how)
        if not planted:
            assert test.p_value_method == method and test.num_tables == 0
        rejected[planted] += test.p_value <= 0.05
    least, most = binom.ppf(FALSE_ALARM_RATE, num, 0.05), binom.isf(FALSE_ALARM_RATE, num, 0.05)
    assert least <= rejected[False] <= most < rejected[True]


@pytest.mark.parametrize(("cards", "rows"), [((2,) * 4, 300), ((2,) * 8, 300), ((2,) * 8, 3000), ((3, 4, 2, 5), 1500)])
def test_every_pair_of_ordinary_tables_has_a_p_value_by_chi_square(cards, rows):
    _, whole = graphs(cards)
    result = fit(whole, drawn(whole, rows, 5, 0.25))
    terms = [edge for edge in whole.edges if len(edge) == 2][:6]
    ratios, walds = (term_tests(result, terms=terms, method=how) for how in ("likelihood-ratio", "wald"))
    assert set(walds["p_value_method"]) == {"chi-square"}
    assert set(ratios["p_value_method"]) <= {"chi-square", "bartlett"}
    if max(cards) == 2:
        plain = chi2.sf(ratios["statistic"], ratios["df"].astype(float))
        assert ratios["p_value_method"].eq("chi-square").all() and np.allclose(ratios["p_value"], plain, rtol=1e-9)


def test_strong_interactions_have_no_floor_beneath_their_p_values():
    table = np.array([[[40, 3], [2, 30]], [[35, 2], [4, 28]]])
    data = of_table(table)
    strong = term_tests(fit(InteractionHypergraph.from_order(data.domain, 2), data)).iloc[-1]
    assert strong["statistic"] > 60 and strong["p_value"] < 1e-12
    assert strong["p_value_method"] in ("chi-square", "bartlett")


TAILS = {  # tables, and by which method they have a p-value
    "listed": ([[10, 0], [0, 10]], "conditional"),
    "a tail": ([[30, 9, 5, 2], [12, 20, 18, 6], [3, 8, 24, 45]], "chi-square"),
    "a corrected tail": ([[30, 2, 1, 1], [6, 12, 9, 2], [2, 3, 9, 18], [2, 2, 4, 9]], "bartlett"),
    "more draws": ([[65, 15, 33, 9], [9, 12, 28, 6], [2, 2, 0, 1]], "exact"),
    "drawn alone": ([[9, 0, 0, 1, 0], [0, 8, 1, 0, 0], [0, 0, 7, 0, 1], [1, 0, 0, 9, 0]], "exact"),
}


@pytest.mark.parametrize("name", TAILS)
def test_against_the_saturated_model_there_is_no_floor_where_finer_p_values_can_be_had(name, monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.p_values._BUDGET", 2e8 if name == "more draws" else 2e7)
    table, method = TAILS[name]
    data = of_table(table)
    small, big = (fit(InteractionHypergraph.from_order(data.domain, k), data) for k in (1, 2))
    found, other = goodness_of_fit(small), likelihood_ratio_test(small, big)
    assert found.p_value_method == other.p_value_method == method
    assert found.p_value == pytest.approx(other.p_value, rel=1e-6)
    drawn = goodness_of_fit(small, "exact")
    assert drawn.p_value == 1 / (drawn.num_tables + 1) == 0.001  # control: no drawn table has as large a statistic
    plain = chi2.sf(found.deviance, found.df_adjusted)
    if name == "listed":
        weights = np.array([1 / math.prod(math.factorial(c) for c in (a, 10 - a, 10 - a, a)) for a in range(11)])
        assert found.p_value == pytest.approx(2 * weights[0] / weights.sum(), rel=1e-9)
    elif name == "more draws":  # 200,000 tables of another seed: 0.000075, with a standard error of 0.00002
        assert found.num_tables > 20_000 and abs(found.p_value - 0.000075) < 4 * math.hypot(
            2e-5, found.p_value_std_error
        )
    elif name == "drawn alone":
        assert found.num_tables > 2000 and found.p_value == 1 / (found.num_tables + 1) > plain
        assert "p is smaller than can be told from tables drawn" in found.p_value_note
    else:
        assert plain <= found.p_value < 10 * plain < 1e-5


def test_one_empty_combination_leaves_the_tests_of_the_other_pairs():
    _, whole = graphs((2, 3, 2, 2))
    counts = drawn(whole, 800, 3, 0.2).table().numpy().copy()
    counts[1, 2] = 0  # no row has both
    data = Observations.from_table(whole.domain, counts)
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(whole, data)
    for how in ("likelihood-ratio", "wald"):
        frame = term_tests(result, method=how).set_index("term")
        others = frame.drop(index="a:b")
        assert others["p_value"].notna().all(), how
    assert math.isnan(frame.loc["a:b", "p_value"]) and "infinite" in frame.loc["a:b", "note"]


def test_a_pair_has_one_p_value_in_every_table():
    """Wald's test of a pair of two levels each is that of its coefficient, whatever the counts are."""
    _, whole = graphs((2,) * 5)
    for rows in (30, 1000):
        result = fit(whole, drawn(whole, rows, 2, 0.2))
        summary: pd.DataFrame = result.summary().set_index("term")
        walds = term_tests(result, method="wald").set_index("term")
        np.testing.assert_allclose(walds["p_value"], summary.loc[walds.index, "p_value"].astype(float), rtol=1e-6)
        rough = walds.index[walds["note"].str.startswith("rough")].tolist()
        told = f"p-values are rough, because the expected counts are small: {', '.join(rough)}"
        assert (told in summary.attrs["notes"]) == bool(rough) == (rows == 30)
