"""Choice of the penalty, and stability of tuples."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from pyro_hoim.generalized_root import L1Rule, choose_l1, fit_root_path, fit_roots
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import raises

L1S = [0.4, 0.1, 0.03, 0.003]


def planted(seed=0, num_rows=400):
    """x1 follows x0; x2 and x3 are independent of everything."""
    rng = np.random.default_rng(seed)
    x = rng.poisson(1.0, (num_rows, 4)).astype(float)
    x[:, 1] = rng.poisson(0.3 + x[:, 0])
    return x


def test_held_out_score_is_the_pseudo_likelihood():
    x = planted()
    found = choose_l1(x[:300], L1S, order=2, validation=x[300:])
    path = fit_root_path(x[:300], L1S, order=2)
    expected = [float(fitted.log_pseudo_prob(x[300:]).mean()) for fitted in path]
    assert list(found.scores) == pytest.approx(expected, abs=1e-10)
    assert found.l1 == L1S[int(np.argmax(expected))]
    assert found.fit is found.path[int(np.argmax(expected))]
    assert found.l1 < 0.4  # the pair is worth having


def test_cross_validation_scores_every_row_once():
    """With the row order known, the parts can be repeated by hand."""
    x = planted(1, 90)
    found = choose_l1(x, L1S, order=2, rule=L1Rule(folds=3), generator=torch.Generator().manual_seed(3))
    order = torch.randperm(90, generator=torch.Generator().manual_seed(3)).numpy()
    values = np.zeros((len(L1S), 90))
    for part in np.array_split(order, 3):
        rest = np.setdiff1d(np.arange(90), part)
        for step, fitted in enumerate(fit_root_path(x[rest], L1S, order=2)):
            values[step, part] = fitted.log_pseudo_prob(x[part]).numpy()
    assert list(found.scores) == pytest.approx(values.mean(1).tolist(), abs=1e-8)
    assert list(found.std_errors) == pytest.approx((values.std(1, ddof=1) / math.sqrt(90)).tolist(), abs=1e-8)


def test_columns_that_are_zero_in_a_part_do_not_spoil_the_score():
    x = planted(2, 60)
    x = np.concatenate([x, np.eye(60)[:, :1]], axis=1)  # one single 1: zero in the other rows
    found = choose_l1(x, [0.4, 0.05], order=2, rule=L1Rule(folds=4))
    assert all(math.isfinite(score) for score in found.scores)


def test_impossible_validation_rows_do_not_spoil_the_score():
    x, later = planted(0, 300), planted(1, 100)
    expected = choose_l1(x, [5.0, 0.01], order=2, validation=later)
    found = choose_l1(
        np.hstack([x, np.zeros((300, 1))]), [5.0, 0.01], order=2, validation=np.hstack([later, np.ones((100, 1))])
    )
    assert found.l1 == expected.l1 == 0.01
    assert found.scores == pytest.approx(expected.scores, abs=1e-9)


def test_extended_bic_by_hand():
    x = planted(3)
    found = choose_l1(x, L1S, order=2, rule=L1Rule("ebic", gamma=1.0))
    for fitted, score in zip(found.path, found.scores, strict=True):
        own = fitted.log_pseudo_prob(x, symmetrized=False, by_node=True).sum(0)
        base = torch.lgamma(torch.from_numpy(x) + 1).sum(0)
        total = 0.0
        for node, value, constant in zip(fitted.nodes, own.tolist(), base.tolist(), strict=True):
            m = len(node.terms)
            total += -2 * (value + constant) + m * math.log(400) + 2 * math.log(math.comb(3, m))
        assert score == pytest.approx(total, abs=1e-6)
    assert ((2, 2), ("x0", "x1")) in found.fit.structure.names
    assert found.l1 not in (L1S[0], L1S[-1])


def test_planted_pair_is_stable_and_noise_is_not():
    x, rule = planted(4), L1Rule("stability")
    found = choose_l1(x, [0.25, 0.15], order=2, rule=rule)
    high, low = found.scores
    assert high == 0.0 <= low < 0.05
    assert [term.names for term in found.path[0].terms((2, 2))] == [("x0", "x1")]  # in every half, as nothing else
    assert len(fit_roots(x[:, 2:], order=2, l1=0.15).terms((2, 2))) == 0
    # Negative control: with hardly a penalty noise comes and goes.
    assert choose_l1(x[:, 2:], [0.02], order=2, rule=rule).scores[0] > 0.1


def test_stability_rule_takes_the_weakest_stable_penalty():
    x = planted(5)
    l1s = [0.25, 0.18, 0.05, 0.02]
    random = torch.Generator().manual_seed(1)
    found = choose_l1(x, l1s, order=2, rule=L1Rule("stability", limit=0.05), generator=random)
    stable = int((np.maximum.accumulate(found.scores) <= 0.05).sum())
    assert 0 < stable < 4
    assert found.l1 == l1s[stable - 1]
    assert ((2, 2), ("x0", "x1")) in found.fit.structure.names


def test_results_do_not_touch_global_random_state():
    state = torch.get_rng_state()
    first = choose_l1(planted(6, 50), [0.3, 0.1], order=2, rule=L1Rule(folds=2))
    second = choose_l1(planted(6, 50), [0.3, 0.1], order=2, rule=L1Rule(folds=2))
    assert torch.equal(state, torch.get_rng_state())
    assert first.scores == second.scores


def test_false_pairs_at_lambda_max_are_rare():
    """At twice the 0.999 quantile of a null gradient no pair enters: 6 pairs x 2 nodes of independent columns."""
    rng = np.random.default_rng(7)
    x = rng.poisson(1.0, (1000, 4)).astype(float)
    spread = np.sqrt(x).std() ** 2 / math.sqrt(1000)
    assert len(fit_roots(x, order=2, l1=2 * scipy.stats.norm.ppf(0.9995) * spread).terms((2, 2))) == 0
    assert len(fit_roots(x, order=2, l1=0.01 * spread).terms((2, 2))) == 6


@pytest.mark.parametrize(
    ("arguments", "code", "argument"),
    [
        ({"rule": "ebic"}, "wrong-type", "rule"),
        ({"rule": L1Rule(folds=31)}, "out-of-range", "folds"),
        ({"l1s": 0.1}, "wrong-type", "l1s"),
        ({"l1s": []}, "empty", "l1s"),
        ({"run": RunOptions("file")}, "conflict", "checkpoint"),
        ({"generator": 3}, "wrong-type", "generator"),
        ({"order": 0}, "out-of-range", "order"),
    ],
)
def test_bad_arguments(arguments, code, argument):
    with raises(code, argument):
        choose_l1(planted(0, 30), **({"l1s": [0.3, 0.1], "order": 2} | arguments))


@pytest.mark.parametrize(
    ("name", "value"), [("name", "aic"), ("gamma", 2.0), ("limit", 0.7), ("folds", 1), ("num_subsamples", 1)]
)
def test_bad_rules(name, value):
    with raises("unknown-choice" if name == "name" else "out-of-range", "rule" if name == "name" else name):
        L1Rule(**{name: value})
