"""The choice of a backend beyond exact reach: estimates between bounds, annealed ones, and both together."""

import math
import re
import warnings

import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
from pyro_hoim.core import Cost, LogPartition, Verdict
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, IntractableError
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Auto,
    BucketImportance,
    Enumeration,
    HierarchicalLogLinear,
    LogLinearEnergy,
    LogLinearStatistics,
    MatrixEnumeration,
    MiniBuckets,
    PossibleStates,
    VariableElimination,
)
from pyro_hoim.log_linear.bounds.annealed import BoundedAnnealing, better_of

PAIRS = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 12), 2)
BUCKETS = BucketImportance(max_cells=2**4, seed=1)
ANNEALED = AnnealedImportance(num_chains=64, num_temperatures=50, seed=1)
TINY = {
    "matrix": MatrixEnumeration(max_entries=2),
    "enumeration": Enumeration(max_states=2),
    "elimination": VariableElimination(max_cells=8, max_slices=1),
}
"""Budgets that twelve variables exceed, so that exact results are at hand to compare with."""


def model_of(scale, *batch, graph=PAIRS):
    generator = torch.Generator().manual_seed(3)
    return LogLinearEnergy(graph, scale * torch.randn(*batch, graph.num_terms, generator=generator).double())


def exact(model):
    return Enumeration().log_partition(model).value


@pytest.mark.parametrize(
    ("options", "kind", "method"),
    [
        ({"buckets": BUCKETS}, BucketImportance, "importance sampling from mini-buckets"),
        ({"annealed": ANNEALED}, AnnealedImportance, "annealed importance sampling"),
        (
            {"buckets": BUCKETS, "annealed": ANNEALED},
            BoundedAnnealing,
            "importance sampling from mini-buckets, then annealed importance sampling",
        ),
        # Mini-buckets beyond their budget of memory leave the annealed runs.
        (
            {"buckets": BucketImportance(max_memory_bytes=8), "annealed": ANNEALED},
            AnnealedImportance,
            "annealed importance sampling",
        ),
    ],
)
def test_rows_of_the_table_beyond_exact_reach(options, kind, method):
    auto = Auto(**TINY, **options)
    cost = auto.plan(PAIRS)
    assert type(auto.select(PAIRS)) is kind
    assert cost.feasible and cost.method == method and not auto.is_exact
    assert "elimination needs a table" in cost.reason  # why it is not exact
    assert Auto(**options).select(PAIRS).is_exact  # control: within reach nothing is estimated


def test_without_estimates_the_refusal_names_both():
    with pytest.raises(IntractableError, match=r"the budget is 8.*buckets=BucketImportance.*annealed=Annealed"):
        Auto(**TINY).log_partition(model_of(0.1))
    with pytest.raises(IntractableError, match="max_memory_bytes"):
        Auto(**TINY, buckets=BucketImportance(max_memory_bytes=8)).log_partition(model_of(0.1))


@pytest.mark.parametrize("wrong", [MiniBuckets(), ANNEALED, True])
def test_another_object_in_the_place_of_buckets_is_refused(wrong):
    with pytest.raises(InputTypeError, match="Auto buckets: expected BucketImportance"):
        Auto(buckets=wrong)


@pytest.mark.parametrize("options", [{"buckets": BUCKETS}, {"buckets": BUCKETS, "annealed": ANNEALED}])
def test_estimates_agree_with_enumeration(options):
    model = model_of(0.5, 3)
    auto, value = Auto(**TINY, **options), exact(model)
    result = auto.log_partition(model)
    assert result.verdict == "verified" and result.method == "importance sampling from mini-buckets"
    assert bool((result.lower <= value).all()) and bool((value <= result.upper).all())
    assert bool(((result.value - value).abs() < 5 * result.std_error).all())
    assert bool(((result.value + 0.3 - value).abs() > 5 * result.std_error).all())  # a wrong value would be seen
    assert result.cost.flops == auto.plan(PAIRS).flops


def test_log_z_by_itself_stays_exact_where_only_marginals_are_out_of_reach():
    budget = VariableElimination().plan(PAIRS).memory_bytes - 1
    options = TINY | {"elimination": VariableElimination(max_memory_bytes=budget)}
    model, auto = model_of(0.3), Auto(**options, buckets=BUCKETS)
    assert not auto.plan(PAIRS).method.startswith("variable")  # control: marginals are estimated
    result = auto.log_partition(model)
    assert result.kind == "exact" and float(result.value) == pytest.approx(float(exact(model)), rel=1e-12)


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("kind", ["elimination", "auto"])
def test_a_refusal_quotes_the_memory_of_what_was_asked_for(kind, needs_gradient):
    """The number that a refusal gives is one that suffices, and a byte less does not."""
    model = LogLinearEnergy(PAIRS, model_of(0.3).tables.clone().requires_grad_(needs_gradient))

    def backend(memory):
        elimination = VariableElimination(max_memory_bytes=memory)
        return elimination if kind == "elimination" else Auto(**TINY | {"elimination": elimination})

    with pytest.raises(IntractableError) as told:
        backend(8).log_partition(model)
    found = re.search(r"needs (\d+) bytes .* for (log Z[a-z ]*), the budget is 8", str(told.value))
    assert found is not None and found[2] == ("log Z and all marginals" if needs_gradient else "log Z alone")
    assert backend(int(found[1])).log_partition(model).kind == "exact"
    with pytest.raises(IntractableError, match=f"the budget is {int(found[1]) - 1}"):
        backend(int(found[1]) - 1).log_partition(model)
    if kind == "auto":
        assert "Enumeration of 4096 states exceeds the budget of 2" in str(told.value)
        assert "Auto(buckets=BucketImportance())" in str(told.value)


@pytest.mark.parametrize("wrong", [Auto, MiniBuckets, "auto", 3])
def test_a_class_or_a_word_in_the_place_of_a_backend_is_refused(wrong):
    theta = torch.zeros(PAIRS.num_parameters)
    rows = Observations.from_tensor(torch.zeros(3, 12, dtype=torch.long), PAIRS.domain)
    for call in (
        lambda: HierarchicalLogLinear(PAIRS, theta, partition=wrong),
        lambda: LogLinearStatistics(PAIRS, theta, 3, partition=wrong),
        lambda: PossibleStates(wrong, None),
        lambda: fit(PAIRS, rows, partition=wrong),
        lambda: Auto(elimination=wrong),
    ):
        with pytest.raises(InputTypeError, match=r"partition|Auto elimination"):
            call()


def test_annealed_runs_decide_where_draws_are_too_few_and_stay_within_the_bounds():
    model = model_of(0.3, 2)
    few = BucketImportance(max_cells=4, passes=1, num_draws=30, seed=0, max_error=1e-3)
    with warnings.catch_warnings(action="error"):  # the draws alone would warn
        result = Auto(**TINY, buckets=few, annealed=ANNEALED).log_partition(model)
    with pytest.warns(ConvergenceWarning, match="few draws"):
        alone = few.log_partition(model)
    value = exact(model)
    assert alone.verdict == "unreliable" and result.verdict != "unreliable"
    assert result.method == "annealed importance sampling" and result.sandwich is not None
    assert bool((result.upper - result.lower < alone.upper - alone.lower).all())
    assert bool((result.lower <= value).all()) and bool((value <= result.upper).all())
    assert torch.equal(result.upper_bound, alone.upper_bound) and bool((result.lower_bound >= alone.lower_bound).all())


@pytest.mark.parametrize("draws", [30, 2**12])
def test_expectations_are_the_gradient_of_the_estimate_taken(draws):
    backend = BoundedAnnealing(BucketImportance(max_cells=2**3, passes=1, num_draws=draws, seed=0), ANNEALED)
    model = model_of(0.3, 2)
    leaf = LogLinearEnergy(PAIRS, model.tables.clone().requires_grad_())
    (slope,) = torch.autograd.grad(backend.log_partition(leaf).value.sum(), leaf.tables)
    assert torch.equal(backend.expectations(model), slope)
    eta = Enumeration().expectations(model)
    assert float((slope - eta).abs().max()) < 0.2 < float((slope - eta.flip(0)).abs().max())
    pair = backend.marginal(model, ["x0", "x1"])
    assert torch.allclose(pair.sum((-1, -2)), torch.ones(2).double())
    assert torch.equal(backend.log_marginal(model, ["x0", "x1"]), pair.log())
    assert torch.equal(
        backend.sample(model, (5,), torch.Generator().manual_seed(0)),
        ANNEALED.sample(model, (5,), torch.Generator().manual_seed(0)),
    )


def test_nothing_is_expected_where_no_state_is_possible():
    tables = torch.full((PAIRS.num_terms,), -math.inf).double()
    backend = BoundedAnnealing(BUCKETS, ANNEALED)
    assert float(backend.log_partition(LogLinearEnergy(PAIRS, tables)).value) == -math.inf
    with pytest.raises(InputError, match="no state is possible"):
        backend.expectations(LogLinearEnergy(PAIRS, tables))


def test_laws_take_both_and_modes_stay_exact():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 40), 2)
    few = BucketImportance(max_cells=2**6, seed=0)
    theta = torch.zeros(graph.num_parameters).double()
    law = HierarchicalLogLinear(graph, theta, partition=Auto(buckets=few, annealed=ANNEALED))
    assert float(law.log_prob(torch.zeros(40))) == pytest.approx(-40 * math.log(2), abs=1e-6)
    assert law.sample_burn_in == ANNEALED.burn_in
    with pytest.raises(IntractableError, match="the budget is"):
        _ = law.mode


# Which of two estimates is taken

COST = Cost(1, 1, 1, 1, True, "test", "test")


def estimate(value, error, lower, upper, verdict, method):
    parts = [torch.tensor(number, dtype=torch.float64) for number in (value, error, lower, upper)]
    ess, grade = torch.tensor(200.0).double(), torch.tensor(int(verdict), dtype=torch.int8)
    bounds = torch.tensor(0.0).double(), torch.tensor(20.0).double()
    low, high = bounds if method == "buckets" else (torch.tensor(1.0).double(), None)
    return LogPartition(
        parts[0], "biased", parts[1], ess, parts[2], parts[3], COST, method,
        verdicts=grade, lower_bound=low, upper_bound=high,
    )  # fmt: skip


UNRELIABLE, CONSISTENT, VERIFIED = Verdict.UNRELIABLE, Verdict.CONSISTENT, Verdict.VERIFIED


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        # (value, error, lower, upper, verdict) of both, and what is reported
        pytest.param(
            (10, math.inf, 5, 12, UNRELIABLE), (11, 0.1, 10.7, 11.3, CONSISTENT),
            (11, 0.1, 10.7, 11.3, "consistent", "annealed"), id="the better verdict",
        ),
        pytest.param(
            (10, 0.3, 9, 12, CONSISTENT), (10.1, 0.1, 8, 10.4, CONSISTENT),
            (10.1, 0.1, 9, 10.4, "consistent", "annealed"), id="the smaller error, limits intersect",
        ),
        pytest.param(
            (10, 0.1, 9, 12, CONSISTENT), (10.1, 0.3, 9.5, 13, CONSISTENT),
            (10, 0.1, 9.5, 12, "consistent", "buckets"), id="the smaller error of the first",
        ),
        pytest.param(
            (10, 0.3, 9, 11, CONSISTENT), (11.1, 0.5, 10, 12, CONSISTENT),
            (10, 0.3, 9, 11, "consistent", "buckets"), id="outside the limits within its error",
        ),
        pytest.param(
            (10, 0.3, 9, 11, CONSISTENT), (13, 0.1, 12.7, 13.2, VERIFIED),
            (10, math.inf, 9, 11, "unreliable", "buckets"), id="a contradiction of the limits",
        ),
        pytest.param(
            (10, 0.1, 5, 15, CONSISTENT), (12, 0.1, 11.7, 12.3, CONSISTENT),
            (10, math.inf, 5, 15, "unreliable", "buckets"), id="a contradiction of the estimates",
        ),
        pytest.param(
            (10, 0.3, 9, 11, CONSISTENT), (13, math.inf, 2, math.inf, UNRELIABLE),
            (10, 0.3, 9, 11, "consistent", "buckets"), id="an unreliable estimate contradicts nothing",
        ),
        pytest.param(
            (10, 0.1, 9.9, 10.1, VERIFIED), (13, 0.1, 12.7, 13.3, VERIFIED),
            (10, 0.1, 9.9, 10.1, "verified", "buckets"), id="verified by the mini-buckets",
        ),
        pytest.param(
            (10, math.inf, 5, 15, UNRELIABLE), (12, math.inf, 2, math.inf, UNRELIABLE),
            (10, math.inf, 5, 15, "unreliable", "buckets"), id="none is reliable",
        ),
    ],
)  # fmt: skip
def test_the_better_estimate_is_taken_within_limits_that_hold(first, then, expected):
    value, error, lower, upper, verdict, method = expected
    result = better_of(estimate(*first, "buckets"), estimate(*then, "annealed"))
    numbers = [float(part) for part in (result.value, result.std_error, result.lower, result.upper)]
    assert numbers == [value, error, lower, upper]
    assert (result.verdict, result.method) == (verdict, method)
    assert result.kind == "biased"
    assert (float(result.lower_bound), float(result.upper_bound)) == (1.0, 20.0)
    is_against = math.isfinite(first[1]) and verdict == "unreliable"
    assert any("contradicts" in note for note in result.notes) is is_against


# What a time limit ends


def test_a_time_limit_ends_passes_and_draws_and_the_limits_hold():
    model = model_of(2.0)
    cut = {"max_cells": 2**3, "seed": 0, "time_limit": 1e-9}
    for backend in (MiniBuckets(**cut), BucketImportance(**cut, max_error=1e-6)):
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            result = backend.log_partition(model)
        assert (
            "the time limit of 1e-09 s ended" in result.notes[-1] and "passes for the upper bound" in result.notes[-1]
        )
        assert float(result.lower) <= float(exact(model)) <= float(result.upper)
        assert float(result.lower_bound) <= float(result.lower) <= float(result.upper) <= float(result.upper_bound)
    loose, tight = (MiniBuckets(**{**cut, "time_limit": limit}).log_partition(model) for limit in (1e-9, 600.0))
    assert not any("time limit" in note for note in tight.notes)
    assert float(tight.upper - tight.lower) < float(loose.upper - loose.lower)
    assert torch.equal(tight.upper, MiniBuckets(max_cells=2**3).log_partition(model).upper)
    for wrong in (0, -1.0, math.nan, "5"):
        with pytest.raises(InputError, match="MiniBuckets time_limit"):
            MiniBuckets(time_limit=wrong)


def test_bounds_so_far_are_shown_where_asked_for(capsys):
    MiniBuckets(max_cells=2**3, passes=2, progress=True).log_partition(model_of(0.5))
    assert "log Z between -inf and " in capsys.readouterr().err
    MiniBuckets(max_cells=2**3, passes=2).log_partition(model_of(0.5))
    assert capsys.readouterr().err == ""
