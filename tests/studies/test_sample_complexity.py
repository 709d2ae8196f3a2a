"""Judging methods on samples of a known law: enumeration, closed forms, and methods whose result is known."""

import itertools
import math
from functools import partial, reduce

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import torch

from pyro_hoim import Domain, InputError, InteractionHypergraph
from pyro_hoim.core import Law
from pyro_hoim.log_linear import ExactTrainer, InteractionRidge, SelectionOptions, Stopping, prune, select
from pyro_hoim.testing import FALSE_ALARM_RATE, chi_square_p_value, exact_table, raises

from studies.complexity import draw_rows, law_divergence, normalised_errors, sample_complexity, structure_recovery
from studies.random_laws import random_dirichlet_law, random_law, random_uniform_law

DOMAIN = Domain.from_cardinalities({"a": 3, "b": 2, "c": 4})
TRUTH = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c")], closure=True)


def _laws():
    generator = torch.Generator().manual_seed(5)
    return random_law(DOMAIN, generator=generator), random_law(DOMAIN, generator=generator)


def _written_out(truth, model, name):
    """Normalised error by one loop over all states, row by row."""
    i = truth.domain.indices([name])[0]
    p, q = truth.probs.tolist(), model.probs.tolist()

    def at(table, state):
        for k in state:
            table = table[k]
        return float(table)

    right = {"model": 0.0, "bayes": 0.0}
    frequency = [0.0] * truth.domain.cardinalities[i]
    for state in itertools.product(*(range(n) for n in truth.domain.cardinalities)):
        options = [(*state[:i], k, *state[i + 1 :]) for k in range(truth.domain.cardinalities[i])]
        frequency[state[i]] += at(p, state)
        for key, table in (("model", q), ("bayes", p)):
            if max(options, key=lambda o: at(table, o)) == state:
                right[key] += at(p, state)
    bayes = 1 - right["bayes"]
    return (1 - right["model"] - bayes) / (1 - max(frequency) - bayes)


def test_errors_are_those_written_out():
    truth, model = _laws()
    found = normalised_errors(truth, model)
    assert list(found) == ["a", "b", "c"]
    for name, value in found.items():
        assert value == pytest.approx(_written_out(truth, model, name), abs=1e-12)
    assert max(abs(found[name] - _written_out(model, truth, name)) for name in found) > 0.1  # the other way round


def test_errors_of_the_truth_are_zero_and_of_its_own_margins_one():
    truth, _ = _laws()
    assert normalised_errors(truth, truth) == {"a": 0.0, "b": 0.0, "c": 0.0}
    a, b, c = (truth.marginal([name]).probs for name in "abc")
    independent = Law(DOMAIN, torch.einsum("a,b,c->abc", a, b, c))
    assert list(normalised_errors(truth, independent).values()) == pytest.approx([1, 1, 1], abs=1e-12)


def test_levels_that_tie_are_drawn_evenly():
    truth, _ = _laws()
    uniform = Law(DOMAIN, torch.full(DOMAIN.cardinalities, 1 / 24))
    p = truth.probs
    best, ignorant = p.amax(0).sum(), p.sum((1, 2)).max()
    assert normalised_errors(truth, uniform)["a"] == pytest.approx(float((best - 1 / 3) / (best - ignorant)))


def test_a_variable_that_cannot_be_predicted_has_no_error():
    law = Law(DOMAIN, torch.einsum("a,bc->abc", torch.tensor([0.5, 0.3, 0.2]), torch.full((2, 4), 1 / 8)))
    assert math.isnan(normalised_errors(law, law)["a"])


def test_divergence():
    truth, model = _laws()
    p, q = truth.probs.numpy(), model.probs.numpy()
    assert law_divergence(truth, model) == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-12)
    assert law_divergence(truth, truth) == 0.0
    nearly = Law(truth.domain, p * (1 + 1e-15 * np.cos(np.arange(p.size)).reshape(p.shape)))
    assert law_divergence(truth, nearly) == pytest.approx(0.0, abs=1e-15) and law_divergence(truth, nearly) >= 0.0
    for factor in (1.001, 0.999):  # without the check the sum would be -0.001, shown as 0, and 0.001
        other = Law(truth.domain, p)
        other.probs.mul_(factor)
        with pytest.raises(InputError, match=rf"model: expected a law, received a table that sums to {factor}"):
            law_divergence(truth, other)
        with pytest.raises(InputError, match="truth: expected a law"):
            law_divergence(other, truth)
    holed = truth.probs.clone()
    holed[0, 0, 0] = 0
    hole = Law(DOMAIN, holed / holed.sum())
    assert law_divergence(truth, hole) == math.inf
    assert law_divergence(hole, truth) == pytest.approx(-math.log(1 - float(truth.probs[0, 0, 0])), rel=1e-9)


def test_recovery_counts():
    found = InteractionHypergraph(
        DOMAIN, [("a", "b", "c")], closure=True
    )  # ab, ac, bc, abc, of which ab and bc are true
    assert structure_recovery(found, TRUTH) == (0.5, 1.0, pytest.approx(2 / 3))
    assert structure_recovery(TRUTH, found) == (1.0, 0.5, pytest.approx(2 / 3))
    none = InteractionHypergraph.from_order(DOMAIN, 1)
    assert (structure_recovery(none, TRUTH), structure_recovery(none, none)) == ((1.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert structure_recovery(none, TRUTH, min_order=1).precision == 1.0
    assert structure_recovery(found, TRUTH, min_order=3) == (0.0, 1.0, 0.0)


def test_rows_follow_the_law():
    truth, other = _laws()
    rows = draw_rows(truth, 60_000, generator=torch.Generator().manual_seed(17))
    assert rows.total_count == 60_000
    assert chi_square_p_value(rows.table(), truth.probs)[0] > FALSE_ALARM_RATE
    mixed = 0.9 * truth.probs + 0.1 * other.probs
    assert chi_square_p_value(rows.table(), mixed)[0] < FALSE_ALARM_RATE  # the control: a law near by is told apart


def _fit(edges):
    def method(rows):
        hypergraph = InteractionHypergraph(DOMAIN, [tuple(e) for e in edges], closure=True)
        trainer = ExactTrainer(rows, hypergraph, penalty=InteractionRidge(0.5))
        trainer.train()
        return trainer

    return method


def test_study_of_methods():
    theta = torch.randn(TRUTH.num_parameters, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    helmert = [reduce(np.kron, (scipy.linalg.helmert(n).T for n in shape)) for shape in TRUTH.edge_shapes]
    tables = scipy.linalg.block_diag(*helmert) @ theta.numpy()
    law = Law(DOMAIN, torch.from_numpy(np.exp(exact_table(TRUTH, torch.from_numpy(tables)))))
    methods = {"independent": _fit(["a", "b", "c"]), "oracle": _fit(["ab", "bc"]), "saturated": _fit(["abc"])}
    state = torch.get_rng_state()
    frame = sample_complexity(law, methods, [50, 20_000], repeats=3, seed=4, truth=TRUTH)
    assert torch.equal(state, torch.get_rng_state())
    assert len(frame) == 18
    mean = frame.groupby(["method", "num_rows"])[["kl", "train_kl", "error", "f1", "num_parameters"]].mean()
    assert mean.loc[("oracle", 20_000), "kl"] < 0.005 < mean.loc[("oracle", 50), "kl"]
    p = law.probs.numpy()
    product = reduce(np.multiply.outer, (p.sum((1, 2)), p.sum((0, 2)), p.sum((0, 1))))
    least = (p * np.log(p / product)).sum()  # the divergence from the nearest law of independent variables
    assert least <= mean.loc[("independent", 20_000), "kl"] < least + 0.005
    assert mean.loc[("independent", 20_000), "kl"] > 2 * mean.loc[("oracle", 20_000), "kl"]
    assert mean.loc[("oracle", 20_000), "kl"] < mean.loc[("saturated", 20_000), "kl"]
    assert mean.loc[("oracle", 50), "train_kl"] > mean.loc[("saturated", 50), "train_kl"]
    assert [mean.loc[(name, n), "f1"] for name in ("independent", "oracle") for n in (50, 20_000)] == [0, 0, 1, 1]
    assert mean.loc[("saturated", 50), "num_parameters"] == 23
    errors = frame[[f"error_{name}" for name in "abc"]].mean(axis=1, skipna=False)
    assert np.allclose(errors, frame["error"], equal_nan=True)  # NaN where the others do not help to predict one
    part = sample_complexity(law, methods, [20_000], repeats=1, seed=4)
    kept = frame[(frame["num_rows"] == 20_000) & (frame["repeat"] == 0)]
    assert part["kl"].tolist() == kept["kl"].tolist()
    assert sample_complexity(law, methods, [20_000], repeats=1, seed=5)["kl"].tolist() != part["kl"].tolist()


def test_divergences_are_those_of_the_tables():
    law = random_law(DOMAIN, generator=torch.Generator().manual_seed(8))
    trainer = _fit(["ab", "c"])(draw_rows(law, 300, generator=torch.Generator().manual_seed(9)))
    entry = sample_complexity(law, {"fixed": lambda rows: trainer}, [40], repeats=1, seed=1).iloc[0]
    theta, log_q = trainer.tables.numpy(), np.zeros(DOMAIN.cardinalities)
    for edge, where in trainer.hypergraph.term_slices.items():
        members = DOMAIN.indices(edge)
        log_q += theta[where].reshape([n if i in members else 1 for i, n in enumerate(DOMAIN.cardinalities)])
    q = np.exp(log_q - np.logaddexp.reduce(log_q, None))
    p = law.probs.numpy()
    assert entry["kl"] == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-9)


def _train(rows):
    raise AssertionError("trained")


UNIFORM = Law(DOMAIN, torch.full(DOMAIN.cardinalities, 1 / 24))
OTHER = InteractionHypergraph(Domain.from_cardinalities({"a": 2, "b": 2}), [("a",)])
ONE = {"one": _train}
WRONG = object()


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda: structure_recovery(WRONG, TRUTH), "wrong-type", "found"),
        (lambda: structure_recovery(TRUTH, WRONG), "wrong-type", "truth"),
        (lambda: structure_recovery(TRUTH, OTHER), "other-domain", "found"),
        (lambda: draw_rows(WRONG, 3), "wrong-type", "law"),
        (lambda: draw_rows(UNIFORM, 0), "out-of-range", "num_rows"),
        (lambda: law_divergence(WRONG, WRONG), "wrong-type", "truth"),
        (lambda: normalised_errors(WRONG, WRONG), "wrong-type", "truth"),
        (lambda: normalised_errors(UNIFORM, Law(OTHER.domain, [[0.25] * 2] * 2)), "other-domain", "model"),
        (lambda: sample_complexity(UNIFORM, {"none": lambda rows: WRONG}, [10]), "wrong-type", "methods"),
        (lambda: sample_complexity(UNIFORM, {}, [10]), "empty", "methods, sizes"),
        (lambda: sample_complexity(UNIFORM, ONE, []), "empty", "methods, sizes"),
        *((partial(sample_complexity, UNIFORM, ONE, [10, n]), "out-of-range", "sizes") for n in (0, -3, 2.5)),
        (lambda: sample_complexity(UNIFORM, ONE, [10], repeats=0), "out-of-range", "repeats"),
        (lambda: sample_complexity(UNIFORM, ONE, [10], seed=-1), "out-of-range", "seed"),
        (lambda: sample_complexity(UNIFORM, ONE, [10], truth=OTHER), "other-domain", "truth"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_trained(call, code, argument):
    with raises(code, argument):
        call()


def _medium():
    domain = Domain.from_cardinalities(dict.fromkeys("1234", 5))
    return InteractionHypergraph(domain, [("1", "4"), ("1", "2", "3")], closure=True)


def _selection(score):
    def method(rows):
        train, validation = rows.split([0.7, 0.3], seed=0)
        start = InteractionHypergraph.from_order(rows.domain, 1)
        trainer = ExactTrainer(train, start, penalty=InteractionRidge(3.0), stopping=Stopping(tolerance=1e-4))
        found = select(train, validation, trainer, search=SelectionOptions(score=score, per_round=1, heredity=1.0))
        trainer.restructure(found.hypergraph)
        smaller = prune(train, validation, trainer)
        trainer.restructure(smaller.hypergraph)
        return trainer

    return method


@pytest.mark.fixed_seed  # F1 of four models, whose spread over models is that of the published figure
def test_selection_finds_the_structure_of_medium_complexity():
    """Paper 1, appendix B.2; F1 at least 0.9 at 10,240 rows, which 80 rows (the control) do not give."""
    methods = {"gain": _selection("gain"), "refined": _selection("refined")}
    frames = []
    for number in range(4):
        law = random_law(_medium().domain, _medium().edges, generator=torch.Generator().manual_seed(70 + number))
        frames.append(sample_complexity(law, methods, [80, 10_240], repeats=1, seed=number, truth=_medium()))
    f1 = pd.concat(frames).groupby(["method", "num_rows"])["f1"].mean()
    for name in methods:
        assert f1[name, 10_240] >= 0.9 and f1[name, 80] < 0.9


# Random laws of the papers: interactions, moments and cells are those of the distribution they are drawn from.

ABC = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
BINARY = Domain.from_cardinalities([2, 2, 2, 2])


def test_random_laws_have_the_interactions_asked_for(generator):
    domain = Domain.from_cardinalities({"a": 3, "b": 2, "c": 4})
    law = random_law(domain, [("a",), ("a", "b"), ("b", "c")], generator=generator)
    logs = law.probs.log().numpy()
    for edge in InteractionHypergraph.saturated(domain).edges:
        part, axes = logs, domain.indices(edge)
        for i in range(3):
            mean = part.mean(i, keepdims=True)
            part = part - mean if i in axes else mean
        assert (np.abs(part).max() > 1e-3) == (edge in {("a",), ("a", "b"), ("b", "c")})


def test_random_laws_follow_appendix_b2(generator):
    """Normal tables, then centred: entry variance is prod(1 - 1 / I_k); 500 laws, z-test of the mean square."""
    domain = Domain.from_cardinalities({"a": 5, "b": 3})
    squares = []
    for _ in range(500):
        logs = random_law(domain, [("a", "b")], generator=generator).probs.log()
        pure = logs - logs.mean(0, keepdim=True) - logs.mean(1, keepdim=True) + logs.mean()
        squares.append(float((pure**2).mean()))
    expected = (1 - 1 / 5) * (1 - 1 / 3)  # mean of chi-square with 8 degrees of freedom, over 15 cells
    error = expected * math.sqrt(2 / 8) / math.sqrt(500)
    assert abs(np.mean(squares) - expected) < 5 * error
    assert abs(np.mean(squares) - 1) > 5 * error  # negative control: tables that were not centred


def test_random_laws_are_reproducible_and_leave_the_global_state_alone():
    before = torch.get_rng_state()
    for make in (random_law, random_dirichlet_law):
        one, two, other = (make(ABC, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
        assert torch.equal(one.probs, two.probs) and not torch.equal(one.probs, other.probs)
    assert torch.equal(torch.get_rng_state(), before)


def test_dirichlet_laws_have_the_right_second_moment(generator):
    """Sum of squares of a symmetric Dirichlet law of K cells has the mean (a + 1) / (K a + 1)."""
    domain = Domain.from_cardinalities([5, 5])
    for concentration in (0.2, 1.0):
        draws = [
            float((random_dirichlet_law(domain, concentration, generator=generator).probs ** 2).sum())
            for _ in range(1000)
        ]
        expected = (concentration + 1) / (25 * concentration + 1)
        assert abs(np.mean(draws) - expected) < 5 * np.std(draws) / math.sqrt(1000)


@pytest.mark.parametrize(
    ("make", "code", "argument"),
    [
        (lambda: random_law(ABC, scale=-1.0), "out-of-range", "scale"),
        (lambda: random_dirichlet_law(ABC, 0.0), "out-of-range", "concentration"),
        (lambda: random_law(ABC, [("a", "z")]), "unknown-name", None),
        (lambda: random_law(Domain.from_cardinalities([2] * 30), [("x0",)]), "over-budget", None),
        (lambda: random_law([2, 2]), "wrong-type", "domain"),
    ],
)
def test_arguments_of_random_laws_are_checked(make, code, argument):
    with raises(code, argument):
        make()


def test_uniform_random_laws_are_uniform_numbers_over_their_sum():
    law = random_uniform_law(BINARY, generator=torch.Generator().manual_seed(1))
    weights = torch.rand(2, 2, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(law.probs, weights / weights.sum())
    # the largest cell of many is near twice the mean, which of Dirichlet draws it is not
    wide = random_uniform_law(Domain.from_cardinalities([2] * 12), generator=torch.Generator().manual_seed(1)).probs
    assert 1.9 < float(wide.max()) * 4096 < 2.1
