"""Fits by a lower bound of the likelihood: against sums over all states, exact fits, and planted models beyond them."""

import functools
import itertools
import json
import math
import warnings

import numpy as np
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import (
    ConvergenceWarning,
    Domain,
    InputError,
    InteractionHypergraph,
    IntractableError,
    LogLinearEnergy,
    NonexistentEstimateWarning,
    Observations,
)
from pyro_hoim.errors import DataWarning, MissingDataError
from pyro_hoim.estimators import InteractionDensity
from pyro_hoim.log_linear import (
    L1,
    L2,
    AnnealedImportance,
    Auto,
    Conjugate,
    GroupL2,
    ImpossibleStates,
    MiniBuckets,
    Stopping,
    VariableElimination,
    fit,
    fit_incomplete,
    goodness_of_fit,
    likelihood_ratio_test,
)
from pyro_hoim.log_linear.bounds._join_graph import join_graph
from pyro_hoim.log_linear.bounds._sweeps import Sweeps
from pyro_hoim.log_linear.bounds.variational import VariationalBound
from pyro_hoim.log_linear.fitting.bound import LikelihoodBound
from pyro_hoim.log_linear.fitting.design import own_coordinates
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import assert_close, raises

from support.bounded import WeightedSums, enumerated, largest_table, random_model
from support.calls import stopped_again

pytestmark = pytest.mark.usefixtures("words_alone")

SMALL = MiniBuckets(max_cells=9, passes=4, orders=2)


def pairs(cards, density=1.0, seed=0):
    """All variables and a share of the pairs."""
    rng = np.random.default_rng(seed)
    edges = [edge for edge in itertools.combinations(range(len(cards)), 2) if rng.random() < density]
    domain = Domain.from_cardinalities(list(cards))
    names = domain.names
    return InteractionHypergraph(domain, [(n,) for n in names] + [(names[a], names[b]) for a, b in edges])


def grid(rows, columns):
    """Binary variables on a grid, tied to their neighbours."""
    names = [[f"x{i}_{j}" for j in range(columns)] for i in range(rows)]
    edges = [(name,) for line in names for name in line]
    edges += [(a, b) for line in names for a, b in itertools.pairwise(line)]
    edges += [(a, b) for one, two in itertools.pairwise(names) for a, b in zip(one, two, strict=True)]
    domain = Domain.from_cardinalities(dict.fromkeys(itertools.chain.from_iterable(names), 2))
    return InteractionHypergraph(domain, edges)


def drawn(graph, number, scale, seed):
    """Theta of a model, and rows that it drew exactly."""
    theta = torch.from_numpy(np.random.default_rng(seed).normal(0, scale, graph.num_parameters))
    generator = torch.Generator().manual_seed(seed)
    states = VariableElimination().sample(LogLinearEnergy.from_theta(graph, theta), (number,), generator)
    return theta, Observations.from_tensor(states, graph.domain)


@pytest.fixture(scope="module")
def small():
    """Seven variables of which all pairs are tied, and rows."""
    graph = pairs([2, 2, 3, 2, 2, 3, 2], seed=1)
    return graph, drawn(graph, 400, 0.5, 1)[1]


def log_likelihood(result, rows):
    """By the sum over all states."""
    energy = float(rows.counts @ result.model.energy(rows.codes))
    return -energy - rows.total_count * enumerated(result.model)


# The bound holds


def bounded_fits(cases):
    """Fits to rows of random models of up to 4,096 states, whose buckets are divided."""
    for case in cases:
        rng = np.random.default_rng(case)
        cards = rng.integers(2, 4, int(rng.integers(4, 8))).tolist()
        graph = pairs(cards, density=0.9, seed=case)
        rows = drawn(graph, int(rng.integers(5, 200)), float(rng.choice([0.1, 0.5, 1.5])), case)[1]
        cells = max((4, 8, 16)[case % 3], largest_table(graph))
        backend = MiniBuckets(max_cells=cells, passes=1 + case % 5, orders=1 + case % 3)
        penalty = (L2(1.0), L2(0.1), L1(1.0, min_order=2), GroupL2(2.0, min_order=2))[case % 4]
        yield fit(graph, rows, objective="bound", partition=backend, penalty=penalty), rows


def test_no_bound_is_above_the_likelihood():
    gaps = [
        log_likelihood(result, rows) - result.log_likelihood_bound
        for result, rows in bounded_fits(range(12))
        if result.objective == "bound"
    ]
    assert len(gaps) > 7
    assert min(gaps) >= 0
    assert max(gaps) > 1  # control: some bounds are loose, so that there is something to be above of


@pytest.mark.slow
def test_no_bound_of_many_fits_is_above_the_likelihood():
    for result, rows in bounded_fits(range(1000, 1300)):
        if result.objective == "bound":
            assert result.log_likelihood_bound <= log_likelihood(result, rows)


def test_a_bound_of_a_table_without_rows_holds_too(small):
    """From margins alone, which no pseudo-likelihood helps to begin with."""
    graph, rows = small
    margins = rows.marginal_counts(graph.edges)
    options = {"objective": "bound", "partition": SMALL, "penalty": L2(1.0)}
    one, other = fit(graph, margins, **options), fit(graph, rows, **options)
    assert one.log_likelihood is None and one.log_likelihood_bound <= log_likelihood(one, rows)
    assert one.log_likelihood_bound == pytest.approx(other.log_likelihood_bound, abs=0.01 * rows.total_count)


# Its derivatives, and that it is convex


def frozen(case):
    """Random mini-buckets of divided buckets after some passes, without impossible states."""
    models = (random_model(number, is_divided=True) for number in itertools.count(case))
    for model in models:
        cells = max(16, largest_table(model.hypergraph))
        graph = MiniBuckets(max_cells=cells)._graphs(model.hypergraph)[0]
        if not graph.is_exact and bool(model.tables.isfinite().all()):
            break
    sweeps = Sweeps(graph, model.tables.numpy(), True)
    for _ in sweeps.passes(3):
        pass
    return model, VariationalBound(sweeps)


def random_point(model, bound, rng, scale=0.3):
    """Tables, and parameters of the bound, some way from those of the passes."""
    tables = model.tables.numpy() + rng.normal(0, scale, len(model.tables))
    return tables, bound.tightest + rng.normal(0, scale, bound.num_free)


@pytest.mark.parametrize("case", range(4))
def test_gradients_are_those_of_the_weighted_sum(case):
    """Against dense sums and autograd through them; of weights, against finite differences of these sums."""
    model, bound = frozen(100 * case)
    tables, free = random_point(model, bound, np.random.default_rng(case))
    value, eta, slopes = bound.evaluate(tables, free)

    leaf = torch.from_numpy(tables).requires_grad_()

    def oracle(free):
        bound.sweeps.evaluate(tables, *bound.parts(free))
        return WeightedSums(bound.sweeps)(leaf)

    expected = oracle(free)
    assert value == pytest.approx(float(expected.detach()), rel=1e-12)
    assert_close(torch.from_numpy(eta), torch.autograd.grad(expected, leaf)[0], relative=1e-9)
    size = 1e-5
    with torch.no_grad():
        steps = [float(oracle(free + sign * size * unit)) for unit in np.eye(bound.num_free) for sign in (1, -1)]
    differences = np.diff(np.reshape(steps, (-1, 2))[:, ::-1], axis=1)[:, 0] / (2 * size)
    assert np.abs(slopes - differences).max() < 1e-7 * (1 + np.abs(differences).max())
    assert np.abs(slopes[-len(bound._index.nodes) :]).max() > 1e-3  # control: weights matter here
    assert np.abs(slopes[: -len(bound._index.nodes)]).max() > 1e-3


@pytest.mark.parametrize("is_with_zeros", [False, True])
def test_gradients_of_the_objective_against_finite_differences(small, is_with_zeros):
    graph, rows = small
    zeros = ImpossibleStates.of_combinations(graph.domain, [{"x0": 1, "x3": 1}, {"x2": 2, "x5": 0, "x6": 1}])
    coordinates = own_coordinates(graph)
    means = coordinates.statistics(rows.marginal_counts(graph.edges)) / rows.total_count
    objective = LikelihoodBound(graph, means, SMALL, coordinates, zeros if is_with_zeros else None)
    rng = np.random.default_rng(5)
    theta, direction = rng.normal(0, 0.4, (2, graph.num_parameters))
    slope, size = float(objective.evaluate(theta).gradient @ direction), 1e-5
    ends = [objective.evaluate(theta + sign * size * direction).loss for sign in (1, -1)]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * size), rel=1e-7, abs=1e-9)
    assert abs(float(objective.evaluate(theta + direction).gradient @ direction) - slope) > 1e-3  # control


def test_the_bound_is_convex_in_tables_costs_and_weights_together():
    excess, of_logs = [], []
    for case in range(12):
        model, bound = frozen(50 * case)
        rng = np.random.default_rng(case)
        ends = [random_point(model, bound, rng, scale=1.0) for _ in range(2)]
        points = [(tables, *bound.parts(free)) for tables, free in ends]
        inner = [0.25 * a + 0.75 * b for a, b in zip(*points, strict=True)]
        one, other, between = (bound.sweeps.evaluate(*point) for point in (*points, inner))
        excess.append(0.25 * one + 0.75 * other - between)
        # Control: in the logarithms of weights, which a solver moves, it is not convex.
        tables, free = ends[0]
        logs = np.zeros_like(free)
        logs[-len(bound._index.nodes) :] = rng.normal(0, 1.5, len(bound._index.nodes))
        sides = [bound.evaluate(tables, free + sign * logs)[0] for sign in (-1, 1)]
        of_logs.append(sum(sides) / 2 - bound.evaluate(tables, free)[0])
    assert min(excess) > 0
    assert min(of_logs) < 0


@pytest.mark.parametrize("scale", [0.0, 30.0, 1e3])
def test_any_numbers_give_a_bound(scale):
    """However far a solver goes: the parts it makes of them are costs that cancel, and weights that sum to one."""
    for case in range(6):
        model, bound = frozen(10 * case)
        free = np.random.default_rng(case).normal(0, scale, bound.num_free)
        assert bound.evaluate(model.tables.numpy(), free)[0] >= enumerated(model) * (1 - 1e-12)


# The estimate


@pytest.mark.parametrize("penalty", [None, L2(2.0), L1(3.0, min_order=2), GroupL2(3.0, coding="corner")])
def test_without_divided_buckets_it_is_the_likelihood(small, penalty):
    """All that an exact fit has comes with it, and the objective says so."""
    graph, rows = small
    exact = fit(graph, rows, penalty=penalty)
    bound = fit(graph, rows, objective="bound", partition=MiniBuckets(max_cells=2**12), penalty=penalty)
    assert bound.objective == "likelihood" and bound.log_likelihood_bound is None
    assert bound.log_likelihood == exact.log_likelihood
    assert torch.equal(bound.theta, exact.theta)


def test_the_solver_of_bounds_finds_the_likelihoods_maximum_where_these_are_the_same(small, monkeypatch):
    """The likelihood is not put in the bound's place here."""
    graph, rows = small
    exact = fit(graph, rows, penalty=L2(1.0))
    monkeypatch.setattr("pyro_hoim.log_linear.fitting.fit.is_exact_as_cheap", lambda *_: False)
    large = MiniBuckets(max_cells=2**12)
    bound = fit(graph, rows, objective="bound", partition=large, penalty=L2(1.0), stopping=Stopping(tolerance=1e-9))
    assert bound.objective == "bound"
    assert_close(bound.theta, exact.theta, relative=1e-6)
    assert bound.log_likelihood_bound <= bound.log_likelihood
    assert bound.log_likelihood_bound == pytest.approx(exact.log_likelihood, abs=1e-6)


def test_larger_buckets_give_larger_bounds_and_the_likelihood_in_the_end(small):
    graph, rows = small
    exact = fit(graph, rows, penalty=L2(1.0))
    fits = [
        fit(graph, rows, objective="bound", partition=MiniBuckets(max_cells=cells), penalty=L2(1.0))
        for cells in (12, 36, 72)
    ]
    values = [result.log_likelihood_bound - result.penalty_value for result in fits]
    assert values == sorted(values)
    assert values[-1] < exact.log_likelihood - exact.penalty_value
    errors = [float((result.theta - exact.theta).norm() / exact.theta.norm()) for result in fits]
    assert errors == sorted(errors, reverse=True)


def test_without_a_budget_of_its_own_exact_sums_that_cost_no_more_take_its_place(small):
    graph, rows = small
    assert fit(graph, rows, objective="bound").objective == "likelihood"


def test_a_tolerance_that_is_given_asks_for_more(small):
    graph, rows = small
    options = {"objective": "bound", "partition": SMALL, "penalty": L2(1.0)}
    fits = [fit(graph, rows, **options, stopping=stopping) for stopping in (None, Stopping(tolerance=1e-5))]
    assert [result.status for result in fits] == ["converged", "converged"]
    one, other = (result.log_likelihood_bound - result.penalty_value for result in fits)
    assert one < other < one + 0.01 * rows.total_count
    assert fits[0].num_iterations < fits[1].num_iterations


def bound_of(theta, rows, backend, graph):
    """The bound of the log-likelihood at other parameters, by the backend alone."""
    model = LogLinearEnergy.from_theta(graph, theta)
    return -float(rows.counts @ model.energy(rows.codes)) - rows.total_count * float(backend.log_partition(model).upper)


@pytest.fixture(scope="module")
def planted():
    """A grid of 8 times 8 binary variables, and its fit in mini-buckets of 64 cells, of 256 that a sum would take."""
    graph = grid(8, 8)
    theta, rows = drawn(graph, 1000, 0.5, 3)
    backend = MiniBuckets(max_cells=64)
    result = fit(graph, rows, objective="bound", partition=backend, penalty=L2(1.0))
    return theta, rows, backend, result


def test_a_planted_model_is_found_and_its_bound_is_larger_than_those_of_other_estimates(planted):
    theta, rows, backend, result = planted
    graph = result.hypergraph
    pseudo = fit(graph, rows, objective="pseudo-likelihood", penalty=L2(1.0))
    least = result.log_likelihood_bound
    assert least > bound_of(pseudo.theta, rows, backend, graph)
    assert least > bound_of(theta, rows, backend, graph)
    shuffled = result.theta[torch.randperm(graph.num_parameters, generator=torch.Generator().manual_seed(0))]
    assert least - bound_of(shuffled, rows, backend, graph) > 1000  # control
    error, none = (float((estimate - theta).norm() / theta.norm()) for estimate in (result.theta, 0 * theta))
    assert error < 0.2 * none


def test_what_a_fit_by_a_bound_says_of_its_likelihood(planted, tmp_path):
    """The bound is quoted as one: in the print, the summary, the page, comparisons, and by the saved model."""
    result = planted[3]
    least = result.log_likelihood_bound
    assert least <= result.log_likelihood  # which a sum of 2^8 cells knows
    words = f"{math.floor(100 * least) / 100:.2f}"
    unknown = hoim.log_linear.fitting.result.FitResult.__new__(type(result))
    vars(unknown).update({k: v for k, v in result.__getstate__().items() if k != "_design"})
    vars(unknown).update(log_likelihood=None, log_partition=None, _design=None)
    assert f"log-likelihood at least {words}, converged, bound of the likelihood, penalty" in repr(unknown)
    summary = unknown.summary()
    assert "std_error" not in summary and "p_value" not in summary
    notes = " ".join(summary.attrs["notes"])
    assert f"maximise a lower bound of the log-likelihood, which is {words} nats or more" in notes
    assert "no standard errors: the curvature of a bound" in notes
    # Comparisons have it in a column of its own, without AIC and BIC.
    table = hoim.compare({"bound": unknown, "other": unknown})
    assert table["log_likelihood_bound"].tolist() == [least, least]
    assert "AIC" not in table and "log_likelihood" not in table
    # So does the file, and what is loaded from it.
    unknown.save(tmp_path / "model.safetensors")
    loaded = hoim.load(tmp_path / "model.safetensors")
    assert loaded.info["log_likelihood_bound"] == least and loaded.info["log_likelihood"] is None
    assert f"log-likelihood at least {words}, converged" in repr(loaded)
    assert words in " ".join(loaded.summary().attrs["notes"])
    json.dumps(loaded.info, allow_nan=False)
    for number, model in enumerate((unknown, loaded)):
        page = model.report(tmp_path / f"page{number}").read_text("utf-8")
        assert f"log-likelihood on its 1000 rows is at least {words} nats (a lower bound)" in page.replace(",", "")
        assert "strong interactions come out too weak" in page


def test_what_needs_the_likelihood_or_its_curvature_is_refused(small):
    graph, rows = small
    result = fit(graph, rows, objective="bound", partition=SMALL, penalty=L2(1.0))
    for ask in (
        lambda: result.covariance,
        result.robust_covariance,
        result.standard_errors,
        lambda: result.summary(covariance="robust"),
    ):
        with pytest.raises(InputError, match="curvature of a bound of the likelihood is not that of the likelihood"):
            ask()
    with pytest.raises(InputError, match="maximum-likelihood fit without penalty, received objective 'bound'"):
        result.test_terms()
    assert goodness_of_fit(result).p_value_note == "the fit is one of a bound of the likelihood"
    assert math.isnan(goodness_of_fit(result).aic)
    unknown = fit(graph, rows.marginal_counts(graph.edges), objective="bound", partition=SMALL, penalty=L2(1.0))
    with pytest.raises(InputError):
        goodness_of_fit(unknown)
    one = fit(InteractionHypergraph.from_order(graph.domain, 1), rows)
    with pytest.raises(InputError, match=r"objective 'bound'"):
        likelihood_ratio_test(one, result)


# Impossible states and infinite estimates


def test_structural_zeros_have_no_probability_and_no_part_in_the_bound(small):
    graph, rows = small
    states = [{"x0": 1, "x3": 1}, {"x2": 2, "x5": 0, "x6": 1}]
    zeros = ImpossibleStates.of_combinations(graph.domain, states)
    possible = rows.rows(
        torch.isfinite(zeros.applied(LogLinearEnergy(graph, torch.zeros(graph.num_terms))).energy(rows.codes))
    )
    assert possible.num_rows < rows.num_rows
    options = {"objective": "bound", "partition": MiniBuckets(max_cells=18, passes=3), "penalty": L2(1.0)}
    result = fit(graph, possible, structural_zeros=states, **options)
    exact = fit(graph, possible, structural_zeros=states, penalty=L2(1.0))
    assert result.log_likelihood_bound <= log_likelihood(result, possible) <= exact.log_likelihood + 1e-6
    assert float(VariableElimination().marginal(result.model, ["x0", "x3"])[1, 1]) == 0
    with pytest.raises(InputError, match="marked as impossible"):
        fit(graph, rows, structural_zeros=states, **options)
    # Control: without them every bound is of a law that spends probability on them.
    assert fit(graph, possible, **options).log_likelihood_bound < result.log_likelihood_bound


def test_an_empty_margin_makes_the_estimate_infinite(small):
    graph, rows = small
    fewer = rows.rows(~((rows.codes[:, 0] == 1) & (rows.codes[:, 1] == 1)))
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(graph, fewer, objective="bound", partition=SMALL)
    assert result.status == "infinite" and result.impossible is not None
    assert result.log_likelihood_bound <= log_likelihood(result, fewer)
    with pytest.warns(NonexistentEstimateWarning):
        exact = fit(graph, fewer)
    assert result.log_likelihood_bound <= exact.log_likelihood + 1e-6


# Runs


@pytest.mark.parametrize("penalty", [L2(1.0), L1(5.0, min_order=2)], ids=["lbfgs", "proximal-gradient"])
def test_a_continued_fit_makes_the_same_steps(small, tmp_path, monkeypatch, penalty):
    graph, rows = small
    options = {"objective": "bound", "partition": SMALL, "penalty": penalty}
    warnings.simplefilter("ignore", ConvergenceWarning)
    made = functools.partial(fit, graph, rows, **options)
    whole, parts = stopped_again(monkeypatch, LikelihoodBound, made, tmp_path / "run.safetensors", 6)
    assert all(part.log_likelihood_bound <= log_likelihood(part, rows) for part in parts)  # interrupted fits, too
    assert parts[-1].log_likelihood_bound == whole.log_likelihood_bound


@pytest.mark.parametrize("orders", [2, 5, 80])
def test_orders_are_known_again_when_caches_have_forgotten_them(orders):
    graph = grid(4, 4)
    backend = MiniBuckets(max_cells=8, passes=1, orders=orders)
    total = len(backend._graphs(graph))
    assert total == orders + 1  # with the banded one
    for number in (0, 1, total // 2, total - 1):
        bound = VariationalBound.of_order(backend, graph, number)
        join_graph.cache_clear()
        again = VariationalBound.of_order(backend, graph, bound.order(backend))
        assert np.array_equal(again.sweeps.graph.order, bound.sweeps.graph.order)
        assert again.num_free == bound.num_free
    # More orders than caches hold do not end a fit, and its bound is one.
    _, rows = drawn(graph, 50, 0.5, 3)
    result = fit(graph, rows, objective="bound", partition=backend, penalty=L2(1.0))
    assert result.objective == "bound" and result.log_likelihood_bound <= log_likelihood(result, rows)


def test_a_damaged_checkpoint_is_refused_and_other_buckets_are_another_run(small, tmp_path, monkeypatch):
    graph, rows = small
    options = {"objective": "bound", "penalty": L2(1.0)}
    run = RunOptions(tmp_path / "run.safetensors", resume=True)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        few = Stopping(max_iterations=4)
        monkeypatch.setattr("pyro_hoim.runs.checkpoint.RunFile.is_due", True)
        fit(graph, rows, partition=SMALL, stopping=few, run=run, **options)
    with pytest.raises(InputError, match="belongs to a run with partition="):
        fit(graph, rows, partition=MiniBuckets(max_cells=16), run=run, **options)


def test_validation_rows_stop_it_early_and_progress_is_shown(small, capsys):
    graph, rows = small
    train, validation = rows.split([0.5, 0.5], seed=1)
    options = {"objective": "bound", "partition": SMALL, "validation": validation}
    result = fit(graph, train, **options, stopping=Stopping(patience=3), run=RunOptions(progress=True))
    assert result.status == "early_stopped" and result.best_iteration < result.num_iterations
    assert "validation" in capsys.readouterr().err
    # The divergence is at most what the bound says.
    exact = -log_likelihood(result, validation) / validation.total_count - validation.entropy()
    assert exact <= result.validation_kl + 1e-9 < exact + 2


# What does not fit together


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "newton"}, "'newton' needs a Hessian, which the bound does not offer"),
        ({"method": "gradient"}, "'gradient' takes steps of one length"),
        ({"method": "proximal-gradient"}, "needs a penalty with a proximal map"),
        ({"penalty": Conjugate(2.0)}, "goes with the likelihood, received objective 'bound'"),
        ({"partition": Auto()}, "needs an upper bound of log Z, received Auto"),
        ({"partition": AnnealedImportance()}, "needs an upper bound of log Z, received AnnealedImportance"),
        ({"partition": MiniBuckets(side="lower")}, "needs an upper bound of log Z, received MiniBuckets"),
        ({"objective": "likelihood", "partition": MiniBuckets()}, "objective='bound'"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(small, options, message):
    graph, rows = small
    with pytest.raises(InputError, match=message):
        fit(graph, rows, **{"objective": "bound", **options})


def test_missing_cells_restricted_interactions_and_too_little_memory_are_refused(small):
    graph, rows = small
    codes = rows.codes.clone()
    codes[0, 0] = -1
    missing = Observations.from_tensor(codes, graph.domain)
    with pytest.raises(MissingDataError):
        fit(graph, missing, objective="bound", partition=SMALL)
    with raises("conflict", "objective"):
        fit_incomplete(graph, missing, objective="bound", partition=SMALL)
    with raises("conflict", "objective"):
        fit(hoim.log_linear.restricted_interactions(graph.domain, "linear(x2):x5"), rows, objective="bound")
    with pytest.raises(IntractableError, match="the budget is 20000"):
        fit(graph, rows, objective="bound", partition=MiniBuckets(max_cells=16, max_memory_bytes=20000))
    with pytest.raises(IntractableError, match="an interaction has 9 cells"):
        fit(graph, rows, objective="bound", partition=MiniBuckets(max_cells=8))


@pytest.mark.filterwarnings("ignore::pyro_hoim.ConvergenceWarning")  # the estimates below are rough
def test_no_fit_quotes_a_bound_or_an_estimate_as_its_likelihood(small):
    graph, rows = small
    annealed = AnnealedImportance(num_temperatures=10, num_chains=8, seed=1)
    for objective, backend in (("pseudo-likelihood", SMALL), ("pseudo-likelihood", annealed), ("likelihood", annealed)):
        result = fit(graph, rows, objective=objective, partition=backend, penalty=L2(1.0))
        assert result.log_likelihood is None or result.log_likelihood == pytest.approx(log_likelihood(result, rows))


# Other doors


def test_frames_and_estimators_take_it(small):
    graph = grid(6, 4)
    _, rows = drawn(graph, 300, 0.5, 0)
    frame = rows.to_pandas(count=None)
    edges = [edge for edge in graph.edges if len(edge) == 2]
    result = hoim.fit(frame, edges=edges, objective="bound", partition=MiniBuckets(max_cells=8), prior="normal:1")
    assert result.objective == "bound" and result.log_likelihood_bound < result.log_likelihood
    density = InteractionDensity(edges=edges, options={"objective": "bound"}).fit(frame)
    assert density.result_.objective == "likelihood"  # a sum of 2^5 cells
    # Missing cells and other backends are refused at every door.
    gaps = frame.astype(object).mask(np.eye(*frame.shape, dtype=bool))
    for ask in (
        lambda: hoim.fit(frame, edges=edges, objective="bound", partition=Auto()),
        lambda: hoim.fit(gaps, edges=edges, objective="bound", missing="marginalise"),
        lambda: InteractionDensity(edges=edges, options={"objective": "bound"}).fit(gaps),
    ):
        with warnings.catch_warnings(action="ignore", category=DataWarning), raises("conflict"):
            ask()
