"""Predictions against enumeration: complete rows, missing cells summed over, and averages over clamped chains."""

import itertools
import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from pyro_hoim import ConvergenceWarning, Domain, InputError, InteractionHypergraph, IntractableError, Observations
from pyro_hoim.core.prediction import ClampedGibbs, Prediction, extend_rows, row_patterns
from pyro_hoim.errors import UnknownNameError
from pyro_hoim.log_linear import Auto, LogLinearEnergy, impute, predict, row_log_likelihood, row_log_weights
from pyro_hoim.log_linear.given import _ascend, condition_rows, impossible_rows, row_chains, synthesise
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

from support.supports import forbidding, log_weights, one_hot, random_model

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 4, "e": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 3)
LARGE = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)


def small_model(seed=3, scale=0.5):
    return LogLinearEnergy(GRAPH, torch.from_numpy(random_tables(GRAPH, np.random.default_rng(seed), scale=scale)))


def large_model(scale=0.05):
    generator = torch.Generator().manual_seed(1)
    theta = scale * torch.randn(LARGE.num_parameters, generator=generator, dtype=torch.float64)
    return LogLinearEnergy.from_theta(LARGE, theta)


def random_rows(num, share, seed=0):
    """Rows over the small domain with missing cells."""
    generator = np.random.default_rng(seed)
    codes = np.stack([generator.integers(0, n, num) for n in DOMAIN.cardinalities], 1)
    codes[generator.random(codes.shape) < share] = -1
    return Observations.from_tensor(torch.from_numpy(codes), DOMAIN)


def oracle(model, data, target):
    """Conditional laws of the target by enumeration, (N, K)."""
    table = np.exp(exact_table(model.hypergraph, model.tables.numpy()))
    axis = DOMAIN.index(target)
    rows = []
    for row in data.codes.tolist():
        cells = table
        for i in reversed(range(len(row))):
            if i != axis:
                cells = cells.sum(i, keepdims=True) if row[i] < 0 else cells.take([row[i]], i)
        rows.append(cells.ravel() / cells.sum())
    return np.array(rows)


@pytest.mark.parametrize("method", ["auto", "exact"])
@pytest.mark.parametrize("target", DOMAIN.names)
def test_exact_predictions_are_those_of_enumeration(target, method):
    model, data = small_model(), random_rows(60, 0.4)
    assert {len(names) for names, _ in row_patterns(data)} > {0, 1, 2, 3}
    found = predict(model, data, target, method=method)
    assert_close(found.probs, oracle(model, data, target), relative=1e-10)
    assert found.kind == "exact" and bool(found.is_exact.all()) and not bool(found.std_error.any())
    thinned = torch.where(torch.arange(GRAPH.num_terms) < GRAPH.num_terms - 8, model.tables, 0.0)  # control
    with pytest.raises(AssertionError):
        assert_close(found.probs, oracle(LogLinearEnergy(GRAPH, thinned), data, target), relative=1e-10)


def test_conditioned_rows_are_single_conditioned_models():
    model, data = small_model(), random_rows(7, 0.0)
    batch, constants = condition_rows(model, ["b", "d"], data.codes)
    for row, tables, constant in zip(data.codes.tolist(), batch.tables, constants, strict=True):
        known = {n: row[DOMAIN.index(n)] for n in ("a", "c", "e")}
        single, expected = model.condition(known)
        assert_close(constant, expected, relative=1e-12, absolute=1e-12)
        assert single.hypergraph == batch.hypergraph
        assert_close(tables, single.tables, relative=1e-12, absolute=1e-12)


def test_weights_of_rows_are_sums_over_completions_within_their_budget():
    model, data = small_model(), random_rows(60, 0.4)
    table = np.exp(exact_table(GRAPH, model.tables.numpy(), normalised=False))
    expected = [
        math.log(table[tuple(slice(None) if code < 0 else code for code in row)].sum()) for row in data.codes.tolist()
    ]
    assert_close(row_log_weights(model, data), expected, relative=1e-10)
    assert_close(row_log_weights(model, data), row_log_likelihood(model, data, normalised=False), relative=1e-10)
    with pytest.raises(AssertionError):  # control
        assert_close(row_log_weights(small_model(4), data), expected, relative=1e-10)
    assert len(row_log_weights(model, data.rows(torch.zeros(0, dtype=torch.long)))) == 0
    with pytest.raises(IntractableError, match=r"needs .* operations, the limit is 10; leave out the rows"):
        row_log_weights(model, data, max_operations=10)
    holed = torch.randint(0, 2, (3, 60), generator=torch.Generator().manual_seed(0))
    holed[:, :50] = -1
    with pytest.raises(IntractableError, match="rows that miss x0, x1"):
        row_log_weights(large_model(), Observations.from_tensor(holed, LARGE.domain))


def worst_deviation(found, law, num_chains):
    """Smallest p value of all rows and levels, each by Student's t over chains, corrected for their number."""
    statistic = np.abs(found.probs.numpy() - law) / found.std_error.numpy()
    return float(2 * student.sf(statistic.max(), num_chains - 1) * statistic.size)


def test_chains_average_to_the_conditional_law():
    model, data = small_model(), random_rows(12, 0.5, seed=5)
    incomplete = Observations.from_tensor(data.codes[(data.codes[:, 1:] < 0).any(1)], DOMAIN)
    settings = ClampedGibbs(num_chains=400, num_temperatures=20, burn_in=50, num_sweeps=20, thin=2)
    found = predict(model, incomplete, "a", method="gibbs", gibbs=settings, seed=2)
    assert found.kind == "biased" and not bool(found.is_exact.any())
    assert worst_deviation(found, oracle(model, incomplete, "a"), 400) > FALSE_ALARM_RATE
    tempered = LogLinearEnergy(GRAPH, 0.9 * model.tables)  # control: the law at another temperature is told apart
    assert worst_deviation(found, oracle(tempered, incomplete, "a"), 400) < FALSE_ALARM_RATE
    again = predict(model, incomplete, "a", method="gibbs", gibbs=settings, seed=2)
    other = predict(model, incomplete, "a", method="gibbs", gibbs=settings, seed=3)
    assert torch.equal(found.log_probs, again.log_probs) and not torch.equal(found.log_probs, other.log_probs)


def test_averages_over_what_does_not_matter_are_exact():
    """Rao-Blackwell: where missing cells do not touch the target, every state gives the exact conditional law."""
    graph = InteractionHypergraph(DOMAIN, [("a", "b"), ("c", "d"), ("d", "e")], closure=True)
    model = LogLinearEnergy(graph, torch.from_numpy(random_tables(graph, np.random.default_rng(1))))
    rows = Observations.from_tensor(torch.tensor([[0, 1, -1, -1, 0], [1, 2, -1, -1, 1]]), DOMAIN)
    settings = ClampedGibbs(num_chains=2, num_temperatures=1, burn_in=0, num_sweeps=2, thin=1)
    found = predict(model, rows, "a", method="gibbs", gibbs=settings)
    assert_close(found.probs, oracle(model, rows, "a"), relative=1e-12)
    assert float(found.std_error.max()) < 1e-12


def test_complete_rows_of_a_large_model_need_no_normaliser(monkeypatch):
    for name in ("plan", "log_partition", "log_marginal", "select"):
        monkeypatch.setattr(Auto, name, Mock(side_effect=AssertionError("a normaliser was asked for")))
    model = large_model()
    codes = torch.randint(0, 2, (50, 60), generator=torch.Generator().manual_seed(0))
    found = predict(model, Observations.from_tensor(codes, LARGE.domain), "x7")
    flipped = torch.stack([codes.clone(), codes.clone()])
    flipped[0, :, 7], flipped[1, :, 7] = 0, 1
    assert_close(found.log_probs, torch.log_softmax(-model.energy(flipped), 0).T, relative=1e-10)


def test_large_models_with_missing_cells():
    model = large_model(0.2)
    codes = torch.randint(0, 2, (4, 60), generator=torch.Generator().manual_seed(0))
    few, many = codes.clone(), codes.clone()
    few[:, 3:9] = -1
    many[:, 3:50] = -1
    exact = predict(model, Observations.from_tensor(few, LARGE.domain), "x5")
    assert exact.kind == "exact"
    grid = torch.tensor(list(itertools.product(range(2), repeat=6)))
    states = few[:, None, :].repeat(1, len(grid), 1)
    states[:, :, 3:9] = grid
    weights = torch.softmax(-model.energy(states), -1)
    assert_close(exact.probs[:, 1], (weights * grid[:, 2]).sum(-1), relative=1e-10)
    data = Observations.from_tensor(many, LARGE.domain)
    estimated = predict(model, data, "x5", gibbs=ClampedGibbs(num_chains=8, num_sweeps=40, burn_in=20))
    assert estimated.kind == "biased" and bool((estimated.std_error > 0).all())
    assert_close(estimated.probs.sum(1), torch.ones(4), relative=1e-9)
    with pytest.raises(IntractableError, match="approximate method, gibbs"):
        predict(model, data, "x5", method="exact")


def test_the_target_of_a_row_is_not_read():
    model, data = small_model(), random_rows(30, 0.0)
    hidden = data.codes.clone()
    hidden[:, 3] = -1
    found, blind = (predict(model, Observations.from_tensor(c, DOMAIN), "d") for c in (data.codes, hidden))
    assert torch.equal(found.log_probs, blind.log_probs)
    narrow = Observations.from_tensor(data.codes[:, [0, 1, 2, 4]], DOMAIN.project(["a", "b", "c", "e"]))
    assert torch.equal(predict(model, narrow, "d").log_probs, found.log_probs)
    assert blind.rows == 0 and math.isnan(blind.accuracy) and math.isnan(blind.log_loss)
    assert math.isnan(blind.majority_accuracy) and all(math.isnan(v) for v in blind.class_accuracy.values())


def test_scores_by_hand():
    log_probs = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7]]).double().log()
    found = Prediction(
        "t",
        ("u", "v", "w"),
        log_probs,
        torch.zeros(4, 3),
        torch.ones(4, dtype=torch.bool),
        torch.tensor([0, 1, 1, -1]),
        torch.tensor([2.0, 1.0, 3.0, 5.0], dtype=torch.float64),
    )
    assert found.codes.tolist() == [0, 1, 0, 2] and found.labels_predicted == ("u", "v", "u", "w")
    assert found.rows == 6 and found.accuracy == pytest.approx(0.5) and found.majority_accuracy == pytest.approx(4 / 6)
    assert found.confusion.tolist() == [[2, 0, 0], [3, 1, 0], [0, 0, 0]]
    shares = found.class_accuracy
    assert (shares["u"], shares["v"]) == (1.0, 0.25) and math.isnan(shares["w"])
    expected = -(2 * math.log(0.6) + math.log(0.7) + 3 * math.log(0.4)) / 6
    assert found.log_loss == pytest.approx(expected, rel=1e-6)  # float32 probabilities above
    frame = found.to_pandas()
    assert list(frame.columns) == ["predicted", "p(u)", "p(v)", "p(w)", "is_exact"] and len(frame) == 4


def test_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    predict(small_model(), random_rows(3, 0.6), "a", method="gibbs", gibbs=ClampedGibbs(num_chains=2, num_sweeps=2))
    assert torch.equal(before, torch.get_rng_state())
    for method in ("exact", "gibbs"):
        impute(MODEL, rows(*MISSING), method=method)
    assert torch.equal(before, torch.get_rng_state())


def test_bad_arguments_are_refused():
    model, data = small_model(), random_rows(3, 0.3)
    other, foreign = (
        Observations.from_tensor(torch.tensor([[0]]), Domain.from_cardinalities(cards))
        for cards in ({"a": 5}, {"q": 2})
    )
    for call, error, words in (
        (lambda: predict(model, data, "z"), UnknownNameError, "target: unknown variable 'z'"),
        (lambda: predict(model.expand([2]), data, "a"), InputError, "expected one model"),
        (lambda: extend_rows(other, DOMAIN), InputError, "'a' has other labels"),
        (lambda: predict(model, foreign, "a"), UnknownNameError, "unknown variable 'q'"),
        (lambda: ClampedGibbs(num_sweeps=3, thin=2), InputError, "multiple of thin=2"),
    ):
        with pytest.raises(error, match=words):
            call()
    for call, code, argument in (
        (lambda: predict(model, data, "a", method="best"), "unknown-choice", "method"),
        (lambda: ClampedGibbs(num_chains=1), "out-of-range", "num_chains"),
        (lambda: ClampedGibbs(burn_in=-1), "out-of-range", "burn_in"),
        (lambda: ClampedGibbs(thin=1.0), "wrong-type", "thin"),
    ):
        with raises(code, argument):
            call()


# Imputation


OF_FOUR = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})
TRIPLES = InteractionHypergraph.from_order(OF_FOUR, 3)
MODEL = LogLinearEnergy(TRIPLES, torch.from_numpy(random_tables(TRIPLES, np.random.default_rng(4), scale=0.5)))
DRAWS = required_draws(12, 0.02)
MISSING = [(0, -1, 1, -1), (1, -1, 0, -1), (-1, 2, -1, -1), (1, 1, 1, 1)]


def rows(*codes):
    return Observations.from_tensor(torch.tensor(codes), OF_FOUR)


def conditional(row):
    """Law of the missing cells of a row, axes in schema order."""
    table = np.exp(exact_table(TRIPLES, MODEL.tables.numpy()))
    cells = table[tuple(slice(None) if code < 0 else code for code in row)]
    return cells / cells.sum()


def counts(codes, row):
    """Draws (M, d) of a row in the cells of its missing variables."""
    gone = [i for i, code in enumerate(row) if code < 0]
    table = np.zeros([OF_FOUR.cardinalities[i] for i in gone])
    np.add.at(table, tuple(codes[:, gone].numpy().T), 1)
    return table


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_draws_have_the_conditional_law_of_every_row(method):
    found = impute(MODEL, rows(*MISSING), DRAWS, method=method, gibbs=ClampedGibbs(burn_in=40), seed=11)
    for number, row in enumerate(MISSING[:3]):
        table = counts(found.codes[:, number], row)
        assert_exact_law(table, conditional(row), what=f"{method}, row {number}")
        for i, code in enumerate(row):
            assert code < 0 or bool((found.codes[:, number, i] == code).all())
    with pytest.raises(AssertionError):  # control: the law given the other row's cells
        assert_exact_law(counts(found.codes[:, 0], MISSING[0]), conditional(MISSING[1]))
    assert bool((found.codes[:, 3] == 1).all())
    assert found.is_exact.tolist() == [method == "exact"] * 3 + [True]


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_most_probable_completions_are_modes(method):
    data = rows(*[(a, b, -1, -1) for a in (-1, 0, 1) for b in (-1, 0, 1, 2)])
    found = impute(MODEL, data, how="most probable", method=method)
    for row, completed in zip(data.codes.tolist(), found.codes[0].tolist(), strict=True):
        law = conditional(tuple(row))
        mode = np.unravel_index(law.argmax(), law.shape)
        assert [c for c, known in zip(completed, row, strict=True) if known < 0] == list(mode)
    wrong = impute(LogLinearEnergy(TRIPLES, -MODEL.tables), data, how="most probable", method=method)  # control
    assert not torch.equal(wrong.codes, found.codes)


def test_large_models_are_filled_exactly_or_by_chains():
    generator = torch.Generator().manual_seed(1)
    theta = 0.05 * torch.randn(LARGE.num_parameters, generator=generator, dtype=torch.float64)
    model = LogLinearEnergy.from_theta(LARGE, theta)
    codes = torch.randint(0, 2, (6, 60), generator=generator)
    holed = codes.clone()
    holed[:3, :5] = -1
    holed[3:, :50] = -1
    data = Observations.from_tensor(holed, LARGE.domain)
    found = impute(model, data, 3, seed=5)
    assert found.is_exact.tolist() == [True] * 3 + [False] * 3
    assert bool(((found.codes == holed) | (holed < 0)).all()) and bool((found.codes >= 0).all())
    assert torch.equal(impute(model, data, 3, seed=5).codes, found.codes)
    assert not torch.equal(impute(model, data, 3, seed=6).codes, found.codes)
    best = impute(model, data, how="most probable")
    assert bool((model.energy(best.codes[0]) <= model.energy(found.codes).min(0).values + 1e-9).all())
    for i in range(60):  # a local maximum: no single change of a missing cell helps
        changed = best.codes[0].clone()
        changed[:, i] = 1 - changed[:, i]
        free = holed[:, i] < 0
        assert bool((model.energy(changed) >= model.energy(best.codes[0]) - 1e-9)[free].all())
    with pytest.raises(IntractableError, match="approximate method, gibbs"):
        impute(model, data, method="exact")


def test_tables_for_readers():
    data = Observations.from_tensor(torch.tensor([[0, -1, 1, 0], [1, 1, 1, 1]]), OF_FOUR, counts=[2, 3])
    found = impute(MODEL, data, 2)
    assert found.observations(1).counts.tolist() == [2, 3] and not found.observations(1).has_missing
    frame = found.to_pandas()
    assert list(frame.columns) == ["imputation", "a", "b", "c", "d"] and frame["imputation"].tolist() == [1, 1, 2, 2]
    assert list(impute(MODEL, data).to_pandas().columns) == ["a", "b", "c", "d"]
    with pytest.raises(InputError, match="number: expected 0 to 1"):
        found.observations(2)
    narrow = Observations.from_tensor(torch.tensor([[0]]), OF_FOUR.project(["c"]))
    assert int(impute(MODEL, narrow).codes[0, 0, 2]) == 0


@pytest.mark.fixed_seed  # a control: which ascents go in a circle is a matter of rounding
def test_the_ascent_ends_where_states_tie_but_for_rounding():
    domain = Domain.from_cardinalities([2] * 4)
    graph = InteractionHypergraph.saturated(domain)
    num_circles = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tables = {e: 50 * rng.normal(size=[2] * len(e)) for e in graph.edges[:-1]}
        total = sum(t.reshape([2 if n in e else 1 for n in domain.names]) for e, t in tables.items())
        tables[domain.names] = -np.asarray(total)  # every state has the energy 0, up to rounding
        flat = torch.from_numpy(np.concatenate([tables[e].ravel() for e in graph.edges])).float()
        model = LogLinearEnergy(graph, flat, validate=False)
        assert _ascend(model, torch.zeros(1, 4, dtype=torch.long), [0, 1, 2, 3]).shape == (1, 4)
        num_circles += _goes_in_a_circle(model)
    assert num_circles > 0  # control: in single precision some never end


def _goes_in_a_circle(model):
    """Whether the same ascent in single precision comes back to a state that it has left."""
    state, seen = torch.zeros(1, 4, dtype=torch.long), set[tuple[int, ...]]()
    while True:
        before = state.clone()
        for column, name in enumerate(model.domain.names):
            log_probs = model.block_conditional([name], state)
            if float(log_probs.max() - log_probs[0, state[0, column]]) > 1e-12:
                state[0, column] = int(log_probs.argmax())
        if torch.equal(before, state):
            return False
        key = tuple(state[0].tolist())
        if key in seen:
            return True
        seen.add(key)


def test_bad_arguments_of_imputation_are_refused():
    data = rows(*MISSING)
    for row_data, options, code, argument in (
        (data, {"num_imputations": 0}, "out-of-range", "num_imputations"),
        (data, {"num_imputations": 1.5}, "wrong-type", "num_imputations"),
        (rows((1, 1, 1, 1)), {"gibbs": 50}, "wrong-type", "gibbs"),  # refused though no chain is needed
        (data, {"how": "mean"}, "unknown-choice", "how"),
        (data, {"method": "mcmc"}, "unknown-choice", "method"),
    ):
        with raises(code, argument):
            impute(MODEL, row_data, **options)
    with pytest.raises(InputError, match="one most probable completion"):
        impute(MODEL, data, 2, how="most probable")


# Rows of which some cells are known, under models in which states are impossible, by chains and against all states.

CHAINS = ClampedGibbs(num_chains=50, num_temperatures=10, burn_in=20, num_sweeps=40)


def rows_with_gaps(model, rng, number=60):
    """Random states with random gaps, and which of them no possible state agrees with."""
    codes, logs = log_weights(model)
    rows = torch.as_tensor(np.stack([rng.integers(0, n, size=number) for n in model.domain.cardinalities], 1))
    gaps = rng.random((6, rows.shape[1])) < 0.6
    rows[torch.as_tensor(gaps[rng.integers(0, 6, size=number)])] = -1
    agree = ((rows[:, None] == codes) | (rows[:, None] < 0)).all(-1)
    law = torch.where(agree, logs.exp(), 0.0)
    return Observations.from_tensor(rows, model.domain), law


def test_completions_and_predictions_by_chains_are_possible_and_have_the_conditional_law():
    rng, errors, lost, compared = np.random.default_rng(11), [], 0, 0
    for trial in range(8):
        model = random_model(rng) if trial else one_hot(5, more=1)
        codes, logs = log_weights(model)
        if not bool(torch.isfinite(logs).any()):
            continue
        rows, law = rows_with_gaps(model, rng)
        is_lost = law.sum(1) == 0
        assert torch.equal(impossible_rows(model, rows.codes), is_lost)
        lost += int(is_lost.sum())
        done = impute(model, rows, 4, method="gibbs", gibbs=CHAINS, seed=trial)
        same = (done.codes[:, :, None] == codes).all(-1)
        assert bool((same & (law > 0)).any(-1)[:, ~is_lost].all())
        assert torch.equal(done.codes[:, is_lost], rows.codes[is_lost].expand(4, -1, -1))
        best = impute(model, rows, how="most probable", method="gibbs", gibbs=CHAINS, seed=trial).codes[0, ~is_lost]
        assert bool(((best[:, None] == codes).all(-1) & (law[~is_lost] > 0)).any(-1).all())
        target = model.domain.names[-1]
        hidden = rows.codes.clone()
        hidden[:, -1] = -1
        found = predict(model, rows, target, method="gibbs", gibbs=CHAINS, seed=trial).probs
        agree = ((hidden[:, None] == codes) | (hidden[:, None] < 0)).all(-1)
        exact = torch.stack([((codes[:, -1] == k) & agree).double() @ logs.exp() for k in range(found.shape[1])], 1)
        is_known = exact.sum(1) > 0
        exact = exact / exact.sum(1, keepdim=True)
        assert bool(found[~is_known].isnan().all()) and bool((found[is_known][exact[is_known] == 0] == 0).all())
        errors += (found - exact)[is_known].abs().max(1).values.tolist()
        compared += int(is_known.sum())
    assert lost > 20 and compared > 150
    assert np.mean(errors) < 0.02 and np.quantile(errors, 0.99) < 0.15


def test_rows_whose_completions_no_chain_connects_are_completed_with_a_warning():
    """Two groups of 13 columns in one half of their levels: 16,384 possible joint states, too many for a block."""
    halves = [(a, b) for a, b in itertools.product(range(4), repeat=2) if a // 2 != b // 2]
    model = forbidding([4] * 26, {(i, i + 1): halves for i in itertools.chain(range(12), range(13, 25))})
    rows = Observations.from_tensor(torch.tensor([[3] + [-1] * 25, [-1] * 25 + [0]]), model.domain)
    with pytest.warns(ConvergenceWarning, match="method 'gibbs': the chains do not reach every possible state"):
        done = impute(model, rows, 50, method="gibbs")
    first, second = (done.codes // 2)[..., :13], (done.codes // 2)[..., 13:]
    assert all(bool((part == part[..., :1]).all()) for part in (first, second))
    assert bool((first[:, 0] == 1).all()) and bool((second[:, 1] == 0).all())
    assert 0 < float(second[:, 0].double().mean()) < 1 and 0 < float(first[:, 1].double().mean()) < 1


def test_synthetic_rows_by_chains_are_possible():
    model = one_hot(6, more=3)
    drawn = synthesise(model, 3000, method="gibbs", burn_in=30).codes
    codes, logs = log_weights(model)
    share = torch.softmax(logs, -1) @ codes.double()
    assert bool((drawn[:, :6].sum(1) == 1).all()) and float((drawn.double().mean(0) - share).abs().max()) < 0.05


def test_more_exclusions_than_are_looked_at_give_no_warning():
    """Seven columns that none of seven known ones may equal in a one, nor a neighbour: 128 sets of exclusions."""
    pairs = [*((i, 7 + i) for i in range(7)), *((i, i + 1) for i in range(6))]
    model = forbidding([2] * 14, {pair: [(1, 1)] for pair in pairs})
    known = torch.tensor(list(itertools.product([0, 1], repeat=7)))
    rows = torch.cat([torch.full((128, 7), -1), known], 1)
    chains = row_chains(model, model.domain.names[:7], rows, 2, CHAINS, seed=1)
    assert chains.connectedness == "untested" and bool(torch.isfinite(chains.energy).all())
    done = impute(model, Observations.from_tensor(rows, model.domain), 2, method="gibbs", gibbs=CHAINS)
    assert bool(torch.isfinite(model.energy(done.codes)).all()) and bool((done.codes[..., :7] == 1).any())
