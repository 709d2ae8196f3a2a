"""Recovery of planted interactions: ROC curves by counting pairs, laws by enumeration, and small planted models."""

import itertools
import math

import numpy as np
import pytest
import torch

from pyro_hoim import CountTable, InputError
from pyro_hoim.generalized_root import ExponentialFamily, RootSettings, fit_root_path, fit_roots
from pyro_hoim.testing import FALSE_ALARM_RATE, chi_square_p_value, raises

from studies.recovery import coefficient_errors, draw_root_rows, plant_roots, roc_curve, root_recovery, tuple_scores


def _area(scores, is_true):
    """Share of pairs of a true and a false one that are in order, ties counting half."""
    wins = [(a > b) + 0.5 * (a == b) for a in scores[is_true] for b in scores[~is_true]]
    return float(np.mean(wins))


@pytest.mark.parametrize("seed", range(5))
def test_area_counts_pairs_in_order(seed):
    rng = np.random.default_rng(seed)
    scores, is_true = rng.integers(0, 6, 40).astype(float), rng.random(40) < 0.3
    found = roc_curve(scores, is_true)
    assert found.auc == pytest.approx(_area(scores, is_true), abs=1e-12)
    assert roc_curve(-scores, is_true).auc == pytest.approx(1 - found.auc, abs=1e-12)
    assert len(found.true_positive_rate) == len(np.unique(scores)) + 1
    for rate in (found.true_positive_rate, found.false_positive_rate):
        assert rate[0] == 0 and rate[-1] == 1 and (np.diff(rate) >= 0).all()
    at = [((scores >= t) & is_true).sum() / is_true.sum() for t in np.unique(scores)[::-1]]
    assert found.true_positive_rate[1:].tolist() == pytest.approx(at)


def test_planted_sets_share_no_pair():
    planted = plant_roots(12, 8, 6, seed=3)
    sets = [names for (_, size), names in planted.structure.names if size > 1]
    pairs = [pair for names in sets for pair in itertools.combinations(names, 2)]
    assert len(sets) == 14 and len(set(pairs)) == len(pairs) == 8 + 3 * 6
    place = planted.structure.slices
    assert planted.coefficients[place[1, 1]].tolist() == [0.5] * 12
    assert sorted(planted.coefficients[place[2, 2]].tolist()) == [-0.4] * 4 + [0.4] * 4
    assert sorted(planted.coefficients[place[3, 3]].tolist()) == [-0.5] * 3 + [0.5] * 3
    assert torch.equal(planted.psi[place[3, 3]], planted.coefficients[place[3, 3]] / 6)
    assert plant_roots(12, 8, 6, seed=4).structure != planted.structure == plant_roots(12, 8, 6, seed=3).structure
    assert plant_roots(3, 1, 0, single=-1.0, family=ExponentialFamily()).domain["x1"].kind == "positive"


def _law(energy, shape):
    """Law on a box of counts, written out."""
    grids = np.meshgrid(*(np.arange(n, dtype=float) for n in shape), indexing="ij")
    total = -sum(np.vectorize(math.lgamma)(x + 1) for x in grids)
    for (key, names), c in zip(energy.structure.names, energy.coefficients.tolist(), strict=True):
        total = total + c * np.prod([grids[int(name[1:]) - 1] ** (1 / key[0]) for name in names], axis=0)
    return np.exp(total - np.logaddexp.reduce(total, None))


def test_rows_follow_the_enumerated_law():
    """A triple without pairs; the control is the law of the same singles without it."""
    planted = plant_roots(3, 0, 1, single=0.0, triple=0.5)
    rows = draw_root_rows(planted, 40_000, generator=torch.Generator().manual_seed(11))
    assert rows.num_rows == 40_000 and rows.domain == planted.domain
    shape = (16, 16, 16)
    counts = np.zeros(shape)
    np.add.at(counts, tuple(rows.to_array().astype(int).T), 1)
    assert chi_square_p_value(counts, _law(planted, shape))[0] > FALSE_ALARM_RATE
    assert chi_square_p_value(counts, _law(plant_roots(3, 0, 0, single=0.0), shape))[0] < FALSE_ALARM_RATE
    fewer = draw_root_rows(planted, 10, generator=torch.Generator().manual_seed(11))
    assert (fewer.to_array() == rows.to_array()[:10]).all()


def test_scores_rank_by_entry_and_then_by_size():
    rows = draw_root_rows(plant_roots(5, 2, 1, seed=1), 300, generator=torch.Generator().manual_seed(2))
    path = fit_root_path(rows, [0.2, 0.05, 0.02], order=3)
    for size in (2, 3):
        sets, scores = tuple_scores(path, size)
        assert sets == list(itertools.combinations(rows.domain.names, size))
        for names, score in zip(sets, scores, strict=True):
            values = [
                next((abs(term.coefficient) for term in fit.terms((size, size)) if term.names == names), 0.0)
                for fit in path
            ]
            entered = sum(value > 0 for value in values)
            assert score == pytest.approx(entered + values[-1] / (1 + values[-1]), abs=1e-12)
    assert (tuple_scores(path[::-1], 2)[1] != tuple_scores(path, 2)[1]).any()
    with raises("other-domain", "path"):
        tuple_scores([path[0], fit_roots([[1, 2], [0, 1]], order=2)], 2)


def test_errors_of_coefficients():
    planted = plant_roots(4, 1, 1, seed=5)
    rows = draw_root_rows(planted, 500, generator=torch.Generator().manual_seed(3))
    fit = fit_roots(rows, order=3, l1=0.01)
    for size, strength in ((2, 0.4), (3, 0.5)):
        true = planted.structure.tuples((size, size))
        found = {term.names: term.coefficient for term in fit.terms((size, size))}
        sets = list(itertools.combinations(rows.domain.names, size))
        expected = [found.get(names, 0.0) - strength * (names in true) for names in sets]
        assert coefficient_errors(fit, planted, size).tolist() == pytest.approx(expected, abs=1e-12)
        ours = coefficient_errors(fit, planted, size, planted=True)
        assert ours.tolist() == pytest.approx([found.get(true[0], 0.0) - strength], abs=1e-12)


@pytest.fixture(scope="module")
def study():
    # differences of 0.004 nats are to be seen, so that their standard error is to be about 0.001
    return root_recovery(plant_roots(6, 3, 2, seed=1), [200, 3000], held_out=20_000, seed=1)


def test_planted_sets_are_found(study):
    frame = study.set_index(["num_rows", "model"])
    ours, pairs = frame.loc[(3000, "pairs and triples")], frame.loc[(3000, "pairs only")]
    assert ours["triple_auc"] >= 0.95 and ours["pair_auc"] >= 0.95 and ours["sign"] == 1
    assert pairs["inside"] > 0.8 > ours["inside"]  # pairs that are there only because triples are left out
    assert pairs["pair_error"] > 2 * ours["pair_error"]
    nll = frame["pseudo_nll"].loc[3000]
    assert nll["truth"] < nll["pairs and triples"] < nll["pairs only"] < nll["independent"]
    assert math.isnan(pairs["triple_auc"]) and math.isnan(frame.loc[(200, "truth"), "l1"])


def _slope(planted, tables, few, many):
    """Log-log slope of the mean absolute error of planted coefficients against the number of rows."""
    sets = {size: planted.structure.tuples((size, size)) for size in (2, 3)}

    def error(rows):
        fit = fit_roots(rows, order=3, l1=0.0, settings=RootSettings(candidates=sets))
        return float(np.mean([np.abs(coefficient_errors(fit, planted, size, planted=True)).mean() for size in sets]))

    small, large = (np.mean([error(rows.rows(np.arange(n))) for rows in tables]) for n in (few, many))
    return math.log(large / small) / math.log(many / few)


def test_errors_fall_with_the_root_of_the_rows():
    """Slope -1/2; its standard deviation is about 0.08. The control: columns shuffled, so that errors stay."""
    planted = plant_roots(6, 3, 2, seed=1)
    tables = [draw_root_rows(planted, 2000, generator=torch.Generator().manual_seed(i)) for i in range(8)]
    assert abs(_slope(planted, tables, 250, 2000) + 0.5) < 0.35
    rng = np.random.default_rng(5)
    shuffled = [CountTable.from_matrix(rng.permuted(rows.to_array(), axis=0), rows.domain.names) for rows in tables[:3]]
    assert abs(_slope(planted, shuffled, 250, 2000) + 0.5) > 0.35


def test_without_triples_they_bring_nothing():
    """The control: where pairs alone are planted, triples gain nothing on other rows."""
    frame = root_recovery(plant_roots(6, 4, 0, seed=1), [2000], held_out=1500, seed=2, penalties=[0.8, 0.4])
    nll = frame.set_index("model")["pseudo_nll"]
    assert nll["pairs and triples"] > nll["pairs only"] - 0.003
    assert "triple_auc" not in frame and "inside" not in frame


def test_a_study_is_that_of_its_seed():
    both, again, other = (
        root_recovery(plant_roots(6, 3, 2, seed=1), sizes, held_out=500, seed=seed)
        for sizes, seed in (([200, 400], 1), ([200], 1), ([200], 2))
    )
    ours = both[both["num_rows"] == 200].drop(columns="seconds").reset_index(drop=True)
    assert len(again) == 5 and set(again["model"]) == set(ours["model"])
    # Rows of the smaller size are the first of the larger: the same fits, held-out rows included.
    for column in ("pseudo_nll", "pair_auc", "triple_auc", "l1"):
        assert np.array_equal(again[column], ours[column], equal_nan=True)
    assert other["pseudo_nll"].tolist() != again["pseudo_nll"].tolist()


PLANTED = plant_roots(4, 1, 1)
OTHER = CountTable.from_matrix([[1]])


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda: roc_curve([1.0, 2.0], [True, True]), "empty", "is_true"),
        (lambda: roc_curve([1.0, 2.0], [True]), "wrong-shape", "scores, is_true"),
        (lambda: roc_curve([1.0, math.nan], [True, False]), "out-of-range", "scores"),
        (lambda: plant_roots(4, 0, 2), "invalid-value", "num_pairs, num_triples"),
        (lambda: plant_roots(4, -1, 0), "out-of-range", "num_pairs"),
        (lambda: draw_root_rows(PLANTED, 0), "out-of-range", "num_rows"),
        (lambda: tuple_scores([], 2), "empty", "path"),
        (lambda: root_recovery(PLANTED, []), "empty", "sizes, penalties"),
        (lambda: root_recovery(PLANTED, [10, 0]), "out-of-range", "sizes"),
        (lambda: root_recovery(PLANTED, [10], penalties=[0.1, 0.2]), "out-of-range", "penalties"),
        (lambda: root_recovery(PLANTED, [10], penalties=[0.1, 0.0]), "out-of-range", "penalties"),
        (lambda: root_recovery(PLANTED, [10], repeats=0), "out-of-range", "repeats"),
        (lambda: root_recovery(PLANTED, [10], held_out=0), "out-of-range", "held_out"),
        (lambda: root_recovery(PLANTED, [10], seed=-1), "out-of-range", "seed"),
        (lambda: root_recovery(OTHER, [10]), "wrong-type", "truth"),
        (lambda: root_recovery(plant_roots(2, 1, 0), [10]), "invalid-value", "truth"),
        (lambda: root_recovery(PLANTED.expand((2,)), [10]), "wrong-shape", "truth"),
    ],
)
def test_bad_arguments_are_refused(call, code, argument):
    with raises(code, argument):
        call()


def test_messages_say_what_is_wrong():
    for call, words in (
        (lambda: plant_roots(4, 0, 2), "no further set of 3 among 4"),
        (lambda: root_recovery(plant_roots(2, 1, 0), [10]), "three variables"),
        (lambda: root_recovery(PLANTED.expand((2,)), [10]), "simplified"),
        (lambda: root_recovery(PLANTED, [10], penalties=[0.1, 0.2]), "falling order"),
    ):
        with pytest.raises(InputError, match=words):
            call()
