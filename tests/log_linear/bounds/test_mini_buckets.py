"""Bounds of log Z by mini-buckets: against sums over all states, an independent weighted sum, and their contract."""

import dataclasses
import itertools
import math
import pickle
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.core import PartitionBackend
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, IntractableError
from pyro_hoim.log_linear import BucketImportance, MiniBuckets
from pyro_hoim.log_linear.bounds import _kernels
from pyro_hoim.log_linear.bounds._draws import independent, met
from pyro_hoim.log_linear.bounds._join_graph import join_graph
from pyro_hoim.log_linear.bounds._sweeps import Sweeps
from pyro_hoim.structure.hypergraph import cell_index
from pyro_hoim.testing import (
    BACKEND_CHECKS,
    BackendCase,
    assert_close,
    assert_exact_law,
    count_states,
    exact_table,
    raises,
    required_draws,
    standard_hypergraphs,
)

from support.bounded import (
    CRITICAL,
    WeightedSums,
    enumerated,
    kaufman_log_z,
    largest_table,
    log_q_table,
    model_of,
    random_model,
    torus,
)
from support.calls import noted
from support.hard_models import log_linear_energy, spin_glass


def small_buckets(model, case=0, **options):
    """Mini-buckets as small as the interactions allow, or a little larger."""
    cells = max((8, 16, 64)[case % 3], largest_table(model.hypergraph))
    return MiniBuckets(**{"max_cells": cells, "passes": 1 + case % 7, "orders": 1 + case % 3, **options})


def divided(case=0, **options):
    """A model of pairs with its bounds, on both sides, that passes found for divided buckets."""
    model = random_model(case, is_divided=True)
    cells = max(16, largest_table(model.hypergraph))
    backend = MiniBuckets(**{"max_cells": cells, "passes": 4, "orders": 1, **options})
    return model, backend._brackets(model, 0)[0]


def finite_cases(number):
    """Numbers of divided models without impossible combinations."""
    cases = (case for case in itertools.count() if bool(random_model(case, is_divided=True).tables.isfinite().all()))
    return list(itertools.islice(cases, number))


# The truth is never outside


def outside(cases):
    """Models whose log Z by enumeration is outside the bounds or not what no divided bucket gives, and the kinds."""
    wrong, kinds = [], []
    for case in cases:
        model = random_model(case, is_divided=case % 2 == 1)
        exact, result = enumerated(model), small_buckets(model, case).log_partition(model)
        # Enumeration rounds, too: by some units in the last place of the largest term.
        rounding = 1e-13 * (1 + abs(exact)) if exact > -math.inf else 0.0
        inside = float(result.lower) - rounding <= exact <= float(result.upper) + rounding
        if not inside or (result.kind == "exact" and not math.isclose(float(result.value), exact, rel_tol=1e-11)):
            wrong.append((case, result.kind, float(result.lower), exact, float(result.upper)))
        kinds.append(result.kind)
    return wrong, kinds


def test_no_log_z_is_outside_the_bounds():
    wrong, kinds = outside(range(200))
    assert wrong == []
    assert kinds.count("exact") > 50
    assert kinds.count("upper bound") > 50


@pytest.mark.slow
def test_no_log_z_of_two_thousand_models_is_outside_the_bounds():
    wrong, kinds = outside(range(1000, 3000))
    assert wrong == []
    assert kinds.count("upper bound") > 500


def test_control_weights_that_do_not_sum_to_one_bound_nothing():
    """Hölder's inequality wants weights that sum to one: with sums of one half, weak interactions are not bounded."""
    below = 0
    for case in finite_cases(8):
        model, bracket = divided(case)
        sums = WeightedSums(bracket.upper)
        sums.weights = np.where(sums.weights < 1.0, sums.weights / 2, sums.weights)
        sums.shifts = {number: 0.0 * shift for number, shift in sums.shifts.items()}
        weak = LogLinearEnergy(model.hypergraph, 0.01 * model.tables)
        below += float(sums(weak.tables)) < enumerated(weak)
    assert below == 8


@pytest.mark.parametrize("side", [5, 8, 11])
def test_bounds_of_a_critical_torus_hold_kaufmans_formula(side):
    model = torus(side, CRITICAL)
    result = MiniBuckets(max_cells=2**8, passes=5, orders=2).log_partition(model)
    log_z = kaufman_log_z(side, CRITICAL)
    assert float(result.lower) <= log_z <= float(result.upper)
    assert float(result.upper - result.lower) < 0.05 * side**2


@pytest.mark.parametrize(("side", "coupling"), [*itertools.product((3, 4), (0.2, CRITICAL, 0.9))])
def test_kaufmans_formula_is_the_sum_over_all_states(side, coupling):
    assert kaufman_log_z(side, coupling) == pytest.approx(enumerated(torus(side, coupling)), rel=1e-12)


def test_more_cells_and_passes_do_not_loosen_the_best_bound():
    for case in finite_cases(4):
        model = random_model(case, is_divided=True)
        uppers = [float(small_buckets(model, passes=n, orders=1).log_partition(model).upper) for n in (1, 2, 5, 20)]
        assert uppers == sorted(uppers, reverse=True)
        whole = MiniBuckets(max_cells=2**20).log_partition(model)
        assert whole.kind == "exact"
        assert uppers[-1] >= float(whole.value)


def test_rounding_is_within_the_margin_of_long_sums():
    """A chain of zero tables has log Z = d log 2, by thousands of sums each of which rounds."""
    domain = Domain.from_cardinalities([2] * 3000)
    pairs = list(itertools.pairwise(domain.names))
    graph = InteractionHypergraph(domain, pairs, hierarchical=False)
    result = MiniBuckets().log_partition(LogLinearEnergy(graph, torch.zeros(graph.num_terms, dtype=torch.float64)))
    assert float(result.lower) <= 3000 * math.log(2) <= float(result.upper)
    assert float(result.upper - result.lower) < 1e-6
    shift = LogLinearEnergy(graph, torch.full((graph.num_terms,), 1e4 / 3, dtype=torch.float64))
    result = MiniBuckets().log_partition(shift)
    whole = 3000 * math.log(2) + math.fsum([1e4 / 3] * 2999)
    assert float(result.lower) <= whole <= float(result.upper)


# The loops against the weighted sum in PyTorch


@pytest.mark.parametrize("case", range(12))
def test_bounds_and_slopes_are_those_of_the_weighted_sum(case):
    model, bracket = divided(case)
    for sweeps in (bracket.upper, bracket.lower):
        if sweeps is None or math.isinf(sweeps.best):
            continue
        eta, tables = sweeps.eta, model.tables.clone().requires_grad_()
        value = WeightedSums(sweeps)(tables)
        assert_close(value.detach(), sweeps.best, relative=1e-12, what="bound")
        assert_close(eta, torch.autograd.grad(value, tables)[0], absolute=1e-9, what="slope")


@pytest.mark.parametrize("is_upper", [True, False])
def test_slopes_are_finite_differences_of_the_frozen_bound(is_upper):
    model, bracket = divided(finite_cases(3)[2])
    sweeps = bracket.upper if is_upper else bracket.lower
    eta, sums, step = sweeps.eta, WeightedSums(sweeps), 1e-5
    for k in range(0, len(eta), 7):
        moved = [model.tables.clone() for _ in range(2)]
        moved[0][k] += step
        moved[1][k] -= step
        slope = (float(sums(moved[0])) - float(sums(moved[1]))) / (2 * step)
        assert eta[k] == pytest.approx(slope, abs=1e-8)


def test_tables_that_meet_are_the_model_and_shifts_cancel():
    for case in range(6):
        model, bracket = divided(case)
        for sweeps in (bracket.upper, bracket.lower):
            if sweeps is None or math.isinf(sweeps.best):
                continue
            sums = WeightedSums(sweeps)
            parts = sums.nodes(model.tables, is_summed=False)
            codes = torch.from_numpy(np.indices(model.domain.cardinalities).reshape(len(model.domain), -1).T)
            total = sum(
                part[tuple(codes[:, v] for v in node.scope)]
                for part, node in zip(parts, sweeps.graph.nodes, strict=True)
            )
            assert_close(total, log_q_table(model).reshape(-1), absolute=1e-8, what="log q")
            for bucket in sweeps.graph.buckets:
                weights = sums.weights[bucket.start : bucket.stop]
                assert weights.sum() == pytest.approx(1.0, abs=1e-12)
                assert (weights > 0).sum() == (len(bucket) if sweeps.is_upper else 1)


def test_the_upper_bound_is_convex_in_the_tables_and_the_lower_is_not():
    bends = {True: [], False: []}
    rng = np.random.default_rng(3)
    for case in finite_cases(5):
        model, bracket = divided(case)
        for is_upper, sweeps in ((True, bracket.upper), (False, bracket.lower)):
            sums = WeightedSums(sweeps)
            middle = float(sums(model.tables))
            for _ in range(20):
                line = torch.from_numpy(rng.normal(size=len(model.tables)))
                bends[is_upper].append(sum(float(sums(model.tables + t * line)) - middle for t in (-1.0, 1.0)))
    assert min(bends[True]) > -1e-9
    assert min(bends[False]) < -1e-3  # the control


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_the_value_is_expectations(side, dtype):
    model = random_model(finite_cases(1)[0], is_divided=True).to(dtype=dtype)
    tables = torch.stack([model.tables, model.tables * 0.5, -model.tables]).reshape(3, 1, -1).requires_grad_()
    batch = LogLinearEnergy(model.hypergraph, tables)
    backend = small_buckets(model, side=side)
    result = backend.log_partition(batch)
    assert (tuple(result.value.shape), result.value.dtype, result.kind) == ((3, 1), dtype, f"{side} bound")
    assert torch.equal(result.value, getattr(result, side))
    (slope,) = torch.autograd.grad(
        (result.value * torch.tensor([[1.0], [2.0], [-1.0]])).sum(), tables, retain_graph=True
    )
    eta = backend.expectations(batch)
    assert_close(slope, eta.detach() * torch.tensor([[[1.0]], [[2.0]], [[-1.0]]]), relative=1e-6)
    with pytest.raises(IntractableError):
        torch.autograd.grad(eta.sum(), tables)
    (slope,) = torch.autograd.grad(result.value.sum(), tables, create_graph=True)
    with pytest.raises(IntractableError):
        torch.autograd.grad(slope.sum(), tables)


def test_the_slope_of_sums_beside_fixed_variables_is_that_of_the_listed_states():
    """The second lower bound sums q over the states that agree with its settings, which enumeration does, too."""
    seen = 0
    for case in finite_cases(12):
        model, bracket = divided(case)
        fixed = bracket.fixed
        if fixed is None or not fixed.plan.fixed:
            continue
        seen += 1
        codes = torch.from_numpy(np.indices(model.domain.cardinalities).reshape(len(model.domain), -1).T)
        among = (codes[:, None, list(fixed.plan.fixed)] == fixed.settings).all(-1).any(-1)
        tables = model.tables.clone().requires_grad_()
        listed = torch.logsumexp(log_q_table(model, tables).reshape(-1)[among], 0)
        (slopes,) = torch.autograd.grad(listed, tables)
        assert_close(fixed.bound, listed.detach(), relative=1e-9)
        for most in (fixed.plan.most, 1):  # as many settings at a time as the plan holds
            fixed.plan = fixed.plan._replace(most=most)
            assert_close(fixed.slopes(model), slopes, absolute=1e-9)
    assert seen >= 3


# The contract of a backend


def test_mini_buckets_are_a_backend_of_values():
    backend = MiniBuckets(max_cells=99, side="lower", seed=3)
    assert isinstance(backend, PartitionBackend)
    assert isinstance(BucketImportance(), PartitionBackend)
    assert pickle.loads(pickle.dumps(backend)) == backend == dataclasses.replace(backend)
    assert backend.is_exact is False


@pytest.mark.parametrize("name", standard_hypergraphs())
@pytest.mark.parametrize(
    "check",
    [
        c
        for c in BACKEND_CHECKS
        if c.__name__ in {"check_expectations", "check_condition", "check_batch", "check_samples", "check_float32"}
    ],
    ids=lambda c: c.__name__,
)
def test_undivided_buckets_pass_the_suite_of_exact_backends(name, check):
    """All laws of exact backends but second derivatives, modes, and joint tables that no mini-bucket holds."""
    check(BackendCase(MiniBuckets(), standard_hypergraphs()[name]))


@pytest.mark.parametrize("name", standard_hypergraphs())
def test_undivided_buckets_are_exact(name):
    case = BackendCase(MiniBuckets(), standard_hypergraphs()[name])
    model = case.model(2)
    result = case.backend.log_partition(model)
    expected = np.array([enumerated(LogLinearEnergy(model.hypergraph, row)) for row in model.tables])
    assert_close(result.value, expected, relative=1e-13, what="log Z")
    assert (result.kind, result.verdict, result.std_error, result.notes) == ("exact", "verified", 0.0, ())
    law = np.exp(exact_table(case.hypergraph, case.tables(2)))
    for edge, scope in zip(case.hypergraph.edges, case.hypergraph.edge_indices, strict=True):
        others = tuple(1 + v for v in range(law.ndim - 1) if v not in scope)
        names, axes = edge[::-1], (0, *range(len(edge), 0, -1))
        assert_close(case.backend.marginal(model, names), law.sum(others).transpose(axes), what=f"marginal {names}")
    assert case.backend.marginal(model, ()).shape == (2,)


def test_marginals_are_beliefs_of_one_mini_bucket_and_refused_beyond():
    model = random_model(finite_cases(1)[0], is_divided=True)
    backend, names = small_buckets(model), model.domain.names
    for edge in model.hypergraph.edges:
        joint = backend.marginal(model, edge)
        assert joint.shape == tuple(model.domain.cardinalities[model.domain.index(name)] for name in edge)
        assert_close(joint.sum(), 1.0, relative=1e-12)
        assert bool((joint >= 0).all())
        assert torch.equal(backend.log_marginal(model, edge), joint.log())
    plan = backend.plan(model.hypergraph, keep=names)
    assert plan.feasible is False
    with pytest.raises(IntractableError, match="no mini-bucket holds"):
        backend.marginal(model, names)


def test_a_mode_is_refused():
    model = random_model(1, is_divided=True)
    with pytest.raises(IntractableError, match="which state is the most probable"):
        small_buckets(model).mode(model)


@pytest.mark.parametrize("make", [MiniBuckets, BucketImportance])
@pytest.mark.parametrize("method", ["log_partition", "expectations", "sample"])
def test_what_cannot_be_summed_is_refused(make, method):
    model = random_model(1, is_divided=True)
    backend = make(max_cells=64)
    for number in (math.nan, math.inf):
        tables = model.tables.clone()
        tables[3] = number
        with raises("not-finite"):
            getattr(backend, method)(LogLinearEnergy(model.hypergraph, tables, validate=False))
    with pytest.raises(InputError, match=r"torch\.func"):
        torch.func.vmap(
            lambda t: getattr(backend, method)(LogLinearEnergy(model.hypergraph, t, validate=False)),
            randomness="different",
        )(model.tables.expand(2, -1))


@pytest.mark.parametrize("make", [MiniBuckets, BucketImportance])
@pytest.mark.parametrize("option", ["max_cells", "passes", "orders", "max_memory_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, math.nan, "8", None])
def test_options_that_are_no_positive_whole_numbers_are_refused(make, option, value):
    with pytest.raises((InputError, InputTypeError), match=option):
        make(**{option: value})


@pytest.mark.parametrize("options", [{"side": "both"}, {"side": None}, {"seed": -1}, {"seed": None}, {"seed": 0.5}])
def test_other_options_of_bounds_are_refused(options):
    with pytest.raises((InputError, InputTypeError), match=next(iter(options))):
        MiniBuckets(**options)


@pytest.mark.parametrize("make", [MiniBuckets, BucketImportance])
def test_budgets_are_refused_with_numbers_before_any_work(make, monkeypatch):
    model = spin_glass(12, 1.0, 0).energy
    large = log_linear_energy([5, 5], {(0, 1): np.zeros((5, 5))})
    monkeypatch.setattr(_kernels, "forward", Mock(side_effect=AssertionError("work was done")))
    for refused, energy, numbers in (
        (make(max_cells=24), large, "25 cells, the budget is 24"),
        (make(max_memory_bytes=1000), model, r"need at least \d+ bytes .*, the budget is 1000"),
    ):
        assert refused.plan(energy.hypergraph).feasible is False
        for method in ("log_partition", "expectations", "sample"):
            with pytest.raises(IntractableError, match=numbers):
                getattr(refused, method)(energy)


@pytest.mark.parametrize("make", [MiniBuckets, BucketImportance])
@pytest.mark.parametrize("share", [0.9, 0.3, 0.02])
def test_a_refusal_for_memory_names_the_cells_that_fit(make, share):
    """The largest power of two: twice as many do not fit. Where none does, none is named."""
    graph = spin_glass(16, 1.0, 0).energy.hypergraph
    least, whole = (make(max_cells=cells).plan(graph).memory_bytes for cells in (4, 2**10))
    budget = int(least + share * (whole - least))
    with pytest.raises(IntractableError, match="lower max_cells to") as refusal:
        make(max_cells=2**10, max_memory_bytes=budget).plan(graph).check()
    cells = int(str(refusal.value).split("lower max_cells to ")[1].split()[0].rstrip("."))
    assert make(max_cells=cells, max_memory_bytes=budget).plan(graph).feasible
    assert not make(max_cells=2 * cells, max_memory_bytes=budget).plan(graph).feasible
    assert make(max_cells=2**10, max_memory_bytes=1000).plan(graph).hint.endswith("for no max_cells fits")


# Impossible states


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_a_model_without_a_possible_state_has_minus_infinity_and_no_slope(side):
    rng = np.random.default_rng(0)
    tables = {pair: rng.normal(size=(2, 2)) for pair in itertools.combinations(range(6), 2)}
    tables[0, 1] = np.full((2, 2), -np.inf)
    tables[6,] = np.zeros(2)  # a component that is possible
    model = model_of([2] * 7, tables)
    for backend in (MiniBuckets(max_cells=4, side=side), MiniBuckets(side=side)):
        leaf = model.tables.clone().requires_grad_()
        result = backend.log_partition(LogLinearEnergy(model.hypergraph, leaf))
        assert [float(x) for x in (result.value.detach(), result.lower, result.upper)] == [-math.inf] * 3
        assert result.verdict == "verified"
        assert float(torch.as_tensor(result.std_error)) == 0.0
        (slope,) = torch.autograd.grad(result.value, leaf)
        assert torch.equal(slope, torch.zeros_like(leaf))
        for use in (
            lambda b=backend: b.expectations(model),
            lambda b=backend: b.marginal(model, ["x2"]),
            lambda b=backend: b.log_marginal(model, ["x2"]),
            lambda b=backend: b.sample(model, (2,)),
        ):
            with raises("impossible"):
                use()


def test_a_lower_bound_of_nothing_has_an_infinite_error():
    """Where no lower bound is found the distance of the bounds is infinite, not the largest number there is."""
    rng = np.random.default_rng(2)
    tables = {pair: np.where(rng.random((3, 3)) < 0.4, -np.inf, 0.0) for pair in itertools.combinations(range(9), 2)}
    model = model_of([3] * 9, tables)
    result = MiniBuckets(max_cells=9, passes=1, orders=1).log_partition(model)
    assert float(result.lower) == -math.inf < float(result.upper)
    assert float(result.std_error) == math.inf
    assert result.verdict == "consistent"


# Precision


@pytest.mark.parametrize("case", range(40))
def test_single_precision_rounds_outward(case):
    model = random_model(case, is_divided=case % 2 == 1).to(dtype=torch.float32)
    result, wide = small_buckets(model, case).log_partition(model), model.to(dtype=torch.float64)
    inside = small_buckets(model, case).log_partition(wide)
    assert result.value.dtype == result.lower.dtype == result.upper.dtype == torch.float32
    assert float(result.lower) <= float(inside.lower)
    assert float(result.upper) >= float(inside.upper)
    if float(inside.upper) > -math.inf:
        assert float(result.upper) - float(inside.upper) <= 3e-7 * (1 + abs(float(inside.upper)))
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        drawn = BucketImportance(max_cells=64, num_draws=64, seed=0).log_partition(model)
    assert float(drawn.lower) <= float(drawn.value) <= float(drawn.upper)


# Draws by rejection


def test_draws_have_the_exact_law():
    model = random_model(finite_cases(2)[1], is_divided=True)
    weak = LogLinearEnergy(
        model.hypergraph, torch.stack([0.5 * model.tables / model.tables.abs().max(), torch.zeros_like(model.tables)])
    )
    backend, cards = small_buckets(model), model.domain.cardinalities
    size = required_draws(math.prod(cards), 0.1)
    draws = backend.sample(weak, (size,), torch.Generator().manual_seed(1))
    assert (tuple(draws.shape), draws.dtype) == ((size, 2, len(cards)), torch.long)
    for b in range(2):
        law = np.exp(exact_table(weak.hypergraph, weak.tables[b])).reshape(-1)
        assert_exact_law(count_states(draws[:, b], cards), law)
    again = backend.sample(weak, (size,), torch.Generator().manual_seed(1))
    assert torch.equal(draws, again)
    # The control: proposals that are not rejected have another law.
    sweeps = small_buckets(model)._upper(model.hypergraph, model.tables)
    proposals = independent(sweeps, size, 1).states
    law = np.exp(exact_table(model.hypergraph, model.tables)).reshape(-1)
    with pytest.raises(AssertionError, match="chi-square"):
        assert_exact_law(count_states(torch.from_numpy(proposals).long(), cards), law)


def test_draws_that_would_hardly_ever_be_kept_are_refused_with_numbers(monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.bounds.mini_buckets._MOST_PROPOSALS", 2**14)
    model = spin_glass(20, 4.0, 0).energy
    with pytest.raises(IntractableError, match=r"\d+ of 16384 draws could be kept, 100 states are asked for"):
        MiniBuckets(max_cells=4, passes=1).sample(model, (100,))


@pytest.mark.parametrize("make", [MiniBuckets, BucketImportance])
def test_draws_end_at_the_time_limit_and_show_their_number(make, capsys):
    """All pairs of 45 columns in tiny mini-buckets, of which four million draws would be made, without a word."""
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 45), 2)
    rng = np.random.default_rng(0)
    model = LogLinearEnergy(graph, torch.from_numpy(rng.normal(0, 0.5, graph.num_terms)))
    backend = make(max_cells=16, passes=1, orders=1, time_limit=0.1, progress=True)
    with pytest.raises(IntractableError, match=r"\d+ of \d+ draws could be kept, 50 states .* limit of 0.1 s"):
        backend.sample(model, (50,))
    assert "of 50 states, from" in capsys.readouterr().err


def test_no_draws_are_a_tensor_without_rows():
    model = random_model(1, is_divided=True)
    assert small_buckets(model).sample(model, (0, 3)).shape == (0, 3, len(model.domain))
    empty = LogLinearEnergy(model.hypergraph, torch.zeros(0, model.hypergraph.num_terms, dtype=torch.float64))
    assert small_buckets(model).sample(empty, (2,)).shape == (2, 0, len(model.domain))
    assert small_buckets(model).log_partition(empty).value.shape == (0,)
    assert small_buckets(model).expectations(empty).shape == (0, model.hypergraph.num_terms)


# Interrupts


@pytest.mark.filterwarnings("ignore::pyro_hoim.ConvergenceWarning")  # bounds are wide by then, and estimates unreliable
@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("make", [MiniBuckets, BucketImportance])
def test_an_interrupt_after_the_first_pass_leaves_bounds_that_hold(make, number, monkeypatch):
    model = random_model(finite_cases(1)[0], is_divided=True)
    backend = make(max_cells=24, passes=20, orders=2, seed=0)
    noted(monkeypatch, _kernels, "forward", number)
    result = backend.log_partition(model)
    assert any(note.startswith("interrupted") for note in result.notes)
    assert float(result.lower) <= enumerated(model) <= float(result.upper) < math.inf
    assert float(result.lower) <= float(result.value) <= float(result.upper)


@pytest.mark.parametrize(
    ("use", "number"),
    [
        (lambda method, model: method.log_partition(model), 1),  # before any bound
        (lambda method, model: method.expectations(model), 2),
        (lambda method, model: method.marginal(model, ["x0"]), 2),
        (lambda method, model: method.sample(model, (1,)), 2),
        (
            lambda method, model: method.log_partition(LogLinearEnergy(model.hypergraph, model.tables.expand(3, -1))),
            2,
        ),
    ],
)
def test_an_interrupt_is_raised_where_an_answer_would_be_partial(use, number, monkeypatch):
    model = random_model(finite_cases(1)[0], is_divided=True)
    noted(monkeypatch, _kernels, "forward", number)
    with pytest.raises(KeyboardInterrupt):
        use(MiniBuckets(max_cells=24), model)


# Memory

_MEASURE = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from support.bounded import CRITICAL, torus
from pyro_hoim.log_linear import BucketImportance, MiniBuckets

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])

small = torus(4, CRITICAL)
backend = {backend}
type(backend)(max_cells=8, passes=2, orders=2).log_partition(small)  # loads and compiles
model = torus({side}, CRITICAL)
plan = backend.plan(model.hypergraph)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = resident("VmRSS")
backend.log_partition(model)
print(plan.memory_bytes, resident("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read as Linux says it")
@pytest.mark.parametrize(
    "backend",
    [
        "MiniBuckets(max_cells=2**18, passes=3, orders=2)",
        "BucketImportance(max_cells=2**14, passes=3, orders=2, seed=0, max_error=1e-6)",
    ],
)
def test_memory_is_within_the_plan(backend):
    script = _MEASURE.format(tests=str(Path(__file__).parents[2]), backend=backend, side=20)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    planned, used = map(int, run.stdout.split())
    assert used <= planned + 2**25
    assert used > planned / 20


# Lower bounds of log Z from possible states: their sum of q, counted once each, whatever else the bounds reach.


def hard_model(seed=2, levels=3):
    """Pairs of nine variables, 5 % of whose combinations are impossible, so that sums with negative weights fail."""
    rng = np.random.default_rng(seed)
    tables = {
        pair: np.where(rng.random((levels, levels)) < 0.05, -np.inf, rng.normal(0, 3, (levels, levels)))
        for pair in itertools.combinations(range(9), 2)
    }
    return model_of([levels] * 9, tables)


@pytest.mark.parametrize("case", range(6))
def test_states_prove_the_log_of_their_sum_once_each(case):
    model = random_model(case, is_divided=True)
    logs = log_q_table(model).reshape(-1).numpy()
    cards = model.domain.cardinalities
    index = np.random.default_rng(case).integers(len(logs), size=300).repeat(2)
    states = np.stack(np.unravel_index(index, cards), 1).astype(np.uint8)
    proof, exact = met(model.hypergraph, model.tables, states), np.logaddexp.reduce(logs[np.unique(index)])
    assert proof.bound <= exact
    assert_close(proof.bound, exact, relative=1e-10)
    every = np.indices(cards).reshape(len(cards), -1).T
    assert_close(met(model.hypergraph, model.tables, every).bound, enumerated(model), relative=1e-10)
    # The control: states counted as often as they were drawn prove too much.
    assert np.isneginf(exact) or np.logaddexp.reduce(logs[index]) > exact + 0.6


def test_no_possible_state_proves_nothing():
    model = model_of([2, 2], {(0, 1): np.full((2, 2), -np.inf)})
    proof = met(model.hypergraph, model.tables, np.zeros((5, 2), dtype=np.uint8))
    assert (proof.bound, len(proof.logs)) == (-math.inf, 0)
    assert torch.equal(proof.slopes(model.hypergraph), torch.zeros(model.hypergraph.num_terms, dtype=torch.float64))


@pytest.mark.parametrize("make", [MiniBuckets, partial(BucketImportance, num_draws=2**12)], ids=["bounds", "draws"])
@pytest.mark.parametrize("limit", [None, 1e-6])
@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_a_draw_that_is_possible_leaves_no_infinite_lower_bound(make, limit):
    """Also where time ends before any other lower bound is looked for."""
    for model in map(hard_model, range(6)):
        result = make(max_cells=9, passes=1, orders=1, time_limit=limit, seed=0).log_partition(model)
        lower, value, upper = (float(part) for part in (result.lower_bound, result.value, result.upper_bound))
        assert -math.inf < lower <= value <= upper
        assert lower <= enumerated(model) + 1e-12 <= upper + 1e-9
        # The control: the sum with negative weights alone proves nothing of such a model.
        below = Sweeps(join_graph(model.hypergraph, 9), model.tables.numpy(), False)
        assert next(below.passes(1)) == -math.inf


def test_the_slope_of_states_is_that_of_their_sum():
    model = hard_model()
    rng = np.random.default_rng(0)
    states = rng.integers(3, size=(2000, 9))
    proof = met(model.hypergraph, model.tables, states)
    assert len(proof.logs) > 1
    leaf = model.tables.clone().requires_grad_()
    where = cell_index(model.hypergraph).flat(torch.from_numpy(proof.states))
    total = leaf[where].sum(-1).logsumexp(0)
    (slope,) = torch.autograd.grad(total, leaf)
    assert_close(proof.slopes(model.hypergraph), slope, relative=1e-10)


def test_the_lower_side_of_mini_buckets_has_the_slope_of_the_bound_that_is_largest():
    model = hard_model()
    leaf = model.tables.clone().requires_grad_()
    backend = MiniBuckets(max_cells=9, passes=1, orders=1, time_limit=1e-6, side="lower")
    value = backend.log_partition(LogLinearEnergy(model.hypergraph, leaf)).value
    (slope,) = torch.autograd.grad(value, leaf)
    # Of every table the cells have the shares of a mean over states.
    for where in model.hypergraph.term_slices.values():
        assert_close(slope[where].sum(), 1.0, relative=1e-10)
