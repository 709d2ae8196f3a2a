"""Annealed estimates: results, gradients, randomness, options, and what they refuse."""

import math
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyro_hoim.core import PartitionBackend
from pyro_hoim.data import Observations
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, IntractableError, UnknownNameError
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Auto,
    LogLinearEnergy,
    log_frequencies,
)
from pyro_hoim.log_linear.annealed.importance import AnnealedLogLinear
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    assert_exact_law,
    count_states,
    exact_log_partition,
    exact_statistics,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

QUICK = {"num_chains": 256, "num_temperatures": 60}
DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 3)


def model_of(graph, seed=0, scale=0.7, batch=(), dtype=torch.float64):
    rng = np.random.default_rng(seed)
    return LogLinearEnergy(graph, torch.tensor(random_tables(graph, rng, scale=scale, batch_shape=batch), dtype=dtype))


def exact_of(model):
    return exact_log_partition(model.hypergraph, model.tables.detach().double())


def assert_honest(result, exact, sigmas=5.0):
    """Within five standard errors, which must be finite and small, and inside limits that are in order."""
    error = np.abs(result.value.detach().double().numpy() - exact)
    bars = result.std_error.double().numpy()
    assert np.all(np.isfinite(bars))
    assert np.all(bars < 0.2)
    assert np.all(error <= sigmas * bars + 1e-9), (error, bars)
    assert bool((result.lower <= result.upper).all())
    assert bool(result.verdicts.all())


VARIANTS = {
    "default": {},
    "forward only": {"reverse": False},
    "combined": {"combine": True},
    "uniform": {"reference": "uniform"},
    "own reference": {"reference": tuple(np.linspace(-0.5, 0.5, 9))},
    "interactions": {"schedule": GibbsSchedule("interactions")},
    "blocks": {"schedule": GibbsSchedule([("a", "b"), ("c", "d")])},
    "random scan": {"schedule": GibbsSchedule(scan="random")},
    "emphasis": {"schedule": GibbsSchedule(emphasised=[("a", "b")])},
    "adaptive": {"temperatures": "adaptive", "conditional_ess": 0.98},
    "given": {"temperatures": tuple(np.linspace(0, 1, 40) ** 2)},
    "two sweeps": {"sweeps_per_step": 2},
    "resampling": {"resample_below": 0.9, "islands": 16, "num_temperatures": 10},
    "float64 conditionals": {"precision": torch.float64},
    "torch engine": {"engine": "torch"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_estimate_agrees_with_enumeration(name):
    model = model_of(GRAPH, batch=(2,))
    result = AnnealedImportance(**{**QUICK, "seed": 3, **VARIANTS[name]}).log_partition(model)
    assert_honest(result, exact_of(model))
    assert result.kind == "biased"
    assert result.value.shape == result.std_error.shape == result.ess.shape == (2,)
    assert result.value.dtype == torch.float64
    assert (result.sandwich is None) == (name == "forward only")


@pytest.mark.fixed_seed  # a control: other models may happen to be near
def test_negative_control_a_wrong_start_is_noticed():
    model = model_of(GRAPH, scale=1.0)
    backend = AnnealedImportance(num_chains=4096, num_temperatures=3, seed=1)
    annealed = backend._annealed(model)
    chains = annealed.begin(4096, 1)
    chains.set_states(torch.zeros(4, dtype=torch.long))  # not the reference law
    weights = chains.anneal([0.0, 0.3, 0.6, 1.0]).numpy()
    log_z0 = float(annealed.log_z0)
    value = np.log(np.exp(weights).mean()) + log_z0
    error = np.exp(weights).std() / np.exp(weights).mean() / 64
    assert abs(value - exact_of(model)) > 10 * error


@pytest.mark.parametrize(
    ("cards", "edges"),
    [
        ([], []),
        ([2, 3], []),
        ([3], [["x0"]]),
        ([1], [["x0"]]),
        ([1, 3, 1], [["x0"], ["x1"], ["x2"], ["x0", "x1"]]),
        ([2, 2], [["x0"], ["x1"]]),
    ],
)
@pytest.mark.parametrize("options", [{}, {"reverse": False}, {"combine": True}, {"temperatures": "adaptive"}])
def test_small_structures_are_exact(cards, edges, options):
    graph = InteractionHypergraph(Domain.from_cardinalities(cards), edges)
    model = model_of(graph, scale=2.0)
    backend = AnnealedImportance(num_chains=32, num_temperatures=5, seed=1, **options)
    if len(graph) and max(map(len, graph.edges)) == 1:  # the reference is the model
        result = backend.log_partition(model)
        assert float(result.value) == pytest.approx(float(exact_of(model)), abs=1e-12)
        assert float(result.std_error) < 1e-9 + (0 if options == {"reverse": False} else 1 / 32)  # what 32 draws miss
    else:
        assert_honest(backend.log_partition(model), exact_of(model))
    assert backend.sample(model, (3,)).shape == (3, len(cards))
    assert backend.expectations(model).shape == (graph.num_terms,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_is_that_of_the_tables(dtype):
    model = model_of(GRAPH, dtype=dtype)
    backend = AnnealedImportance(**QUICK, seed=2)
    result = backend.log_partition(model)
    assert {result.value.dtype, result.std_error.dtype, result.lower.dtype, result.ess.dtype} == {dtype}
    assert backend.expectations(model).dtype == backend.marginal(model, ["a"]).dtype == dtype
    assert_honest(result, exact_of(model))


def test_batch_of_two_dimensions():
    model = model_of(GRAPH, batch=(2, 3))
    backend = AnnealedImportance(**QUICK, seed=5)
    result = backend.log_partition(model)
    assert result.value.shape == result.lower.shape == result.verdicts.shape == result.sandwich.gap.shape == (2, 3)
    assert_honest(result, exact_of(model))
    assert backend.sample(model, (4,)).shape == (4, 2, 3, 4)
    assert backend.marginal(model, ["c", "b"]).shape == (2, 3, 2, 3)


# Expectations and gradients


def test_gradient_is_eta_within_its_error():
    graph = InteractionHypergraph.from_order(DOMAIN, 2)
    model = model_of(graph)
    tables = model.tables.clone().requires_grad_()
    backend = AnnealedImportance(num_chains=20_000, num_temperatures=30, seed=4)
    result = backend.log_partition(LogLinearEnergy(graph, tables))
    assert result.sandwich is None
    (gradient,) = torch.autograd.grad(result.value, tables)
    eta = exact_statistics(graph, exact_table(graph, model.tables))
    error = np.sqrt(eta * (1 - eta) / float(result.ess))
    assert np.all(np.abs(gradient.numpy() - eta) < 5 * error)
    assert np.abs(gradient.numpy() - exact_statistics(graph, exact_table(graph, model.tables * 0.8))).max() > (
        5 * error.max()
    )  # the control: eta of a weaker model is told apart
    assert torch.equal(gradient, backend.expectations(model))
    for edge, where in graph.term_slices.items():
        assert torch.allclose(backend.marginal(model, edge).reshape(-1), gradient[where], atol=1e-12)


def test_gradient_weights_the_batch():
    tables = model_of(GRAPH, batch=(2,)).tables.clone().requires_grad_()
    backend = AnnealedImportance(**QUICK, seed=4)
    value = backend.log_partition(LogLinearEnergy(GRAPH, tables)).value
    (value * torch.tensor([2.0, -1.0])).sum().backward()
    eta = backend.expectations(LogLinearEnergy(GRAPH, tables.detach()))
    assert torch.allclose(tables.grad, eta * torch.tensor([[2.0], [-1.0]]))


def test_value_is_the_same_with_and_without_a_gradient():
    model = model_of(GRAPH)
    backend = AnnealedImportance(**QUICK, seed=4)
    with_gradient = backend.log_partition(LogLinearEnergy(GRAPH, model.tables.clone().requires_grad_()))
    assert torch.equal(with_gradient.value.detach(), backend.log_partition(model).value)
    both = AnnealedImportance(**QUICK, seed=4, reverse=True)
    assert both.log_partition(LogLinearEnergy(GRAPH, model.tables.clone().requires_grad_())).sandwich is not None


def test_second_derivatives_are_refused():
    tables = model_of(GRAPH).tables.clone().requires_grad_()
    backend = AnnealedImportance(**QUICK, seed=4)
    value = backend.log_partition(LogLinearEnergy(GRAPH, tables)).value
    (gradient,) = torch.autograd.grad(value, tables, create_graph=True)
    with pytest.raises(IntractableError, match="differentiable once"):
        torch.autograd.grad(gradient.sum(), tables)
    for result in (backend.expectations(LogLinearEnergy(GRAPH, tables)),):
        with pytest.raises(IntractableError, match="differentiable once"):
            result.sum().backward()
    with pytest.raises(InputError, match=r"torch\.func"):
        torch.func.vmap(lambda t: backend.log_partition(SimpleNamespace(hypergraph=GRAPH, tables=t)).value)(
            tables.detach()[None]
        )


def test_marginals_agree_with_enumeration():
    model = model_of(GRAPH)
    backend = AnnealedImportance(num_chains=20_000, num_temperatures=30, seed=6)
    exact = np.exp(exact_table(GRAPH, model.tables))
    for names, axes in ((["d", "b"], (0, 2)), ([], (0, 1, 2, 3)), (["a"], (1, 2, 3))):
        wanted = exact.sum(axis=axes)
        wanted = wanted.T if names == ["d", "b"] else wanted
        found = backend.marginal(model, names).numpy()
        assert found.shape == wanted.shape
        assert np.all(np.abs(found - wanted) < 5 * np.sqrt(wanted * np.maximum(1 - wanted, 0) / 15_000) + 1e-12)
        assert np.allclose(backend.log_marginal(model, names).exp().numpy(), found)
    with pytest.raises(UnknownNameError):
        backend.marginal(model, ["zzz"])


# Randomness


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # of runs with any seed
def test_randomness_follows_the_seed():
    model = model_of(InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 14), 2))  # few states are met
    fixed, fresh = AnnealedImportance(**QUICK, seed=9), AnnealedImportance(**QUICK)
    before = torch.get_rng_state()
    assert torch.equal(fixed.log_partition(model).value, fixed.log_partition(model).value)
    assert torch.equal(torch.get_rng_state(), before)
    first, second = fresh.log_partition(model).value, fresh.log_partition(model).value
    assert not torch.equal(first, second)
    torch.manual_seed(7)
    third = fresh.log_partition(model)
    torch.manual_seed(7)
    fourth = fresh.log_partition(model)
    assert torch.equal(third.value, fourth.value)
    assert torch.equal(third.upper, fourth.upper)


def test_draws_follow_the_law_and_the_generator():
    model = model_of(GRAPH)
    backend, shape = AnnealedImportance(burn_in=20, seed=1), (required_draws(24, 0.03),)
    draws = backend.sample(model, shape, torch.Generator().manual_seed(1))
    assert draws.dtype == torch.long
    law = np.exp(exact_table(GRAPH, model.tables)).reshape(-1)
    assert_exact_law(count_states(draws, DOMAIN.cardinalities), law)
    other = np.exp(exact_table(GRAPH, model.tables * 0.7)).reshape(-1)
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(draws, DOMAIN.cardinalities), other)
    before = torch.get_rng_state()
    again = backend.sample(model, shape, torch.Generator().manual_seed(1))
    assert torch.equal(draws, again)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(backend.sample(model, (50,)), backend.sample(model, (50,)))
    assert backend.sample(model).shape == (4,)
    assert backend.sample(model, (0,)).shape == (0, 4)


def test_many_draws_share_chains(monkeypatch):
    from pyro_hoim.log_linear.annealed import importance as annealed

    monkeypatch.setattr(annealed, "_MAX_CHAINS", 64)
    model = model_of(GRAPH, batch=(2,))
    draws = AnnealedImportance(burn_in=5).sample(model, (75,), torch.Generator().manual_seed(1))
    assert draws.shape == (75, 2, 4)


# Verdicts


def needle(height=18.0, size=16):
    """A law whose mass is in one state that single-site moves do not find."""
    names = Domain.from_cardinalities([2] * size)
    graph = InteractionHypergraph(names, [names.names], hierarchical=False)
    tables = torch.zeros(graph.num_terms, dtype=torch.float64)
    tables[-1] = height
    return LogLinearEnergy(graph, tables)


@pytest.mark.fixed_seed  # a control: in other runs a chain may meet the mode
def test_a_missed_mode_is_flagged(monkeypatch):
    model = needle()
    exact = exact_of(model)
    backend = AnnealedImportance(num_chains=64, num_temperatures=30, seed=1)
    with pytest.warns(ConvergenceWarning):
        result = backend.log_partition(model)
    assert result.verdict == "unreliable"
    assert math.isinf(float(result.std_error))
    assert 18.0 <= float(result.lower_bound) <= float(result.lower) <= float(result.value) <= exact
    assert float(result.upper) >= exact
    assert any("disagree" in note for note in result.notes)
    assert any("x0=1, x1=1" in note and "lower bound of log Z" in note for note in result.notes)
    assert float(result.sandwich.gap) > 1
    one_sided = AnnealedImportance(num_chains=64, num_temperatures=30, seed=1, reverse=False)
    with pytest.warns(ConvergenceWarning):  # the strongest interaction leads to the state without a reverse run too
        assert one_sided.log_partition(model).verdict == "unreliable"
    monkeypatch.setattr(AnnealedLogLinear, "ascend", lambda _, run: (run.ends, run.log_q))
    with warnings.catch_warnings():  # the control: without the search, the forward run looks perfect from inside
        warnings.simplefilter("error")
        blind = one_sided.log_partition(model)
    assert blind.verdict == "consistent"
    assert abs(float(blind.value) - exact) > 1
    assert any("unseen" in note for note in blind.notes)


def test_uneven_weights_are_flagged():
    model = model_of(GRAPH, scale=4.0)
    backend = AnnealedImportance(num_chains=64, temperatures=(0.0, 1.0), reference="uniform", seed=2, reverse=False)
    with pytest.warns(ConvergenceWarning):
        result = backend.log_partition(model)
    assert result.verdict == "unreliable"
    assert "uneven" in result.notes[0]
    assert math.isinf(float(result.upper))
    with pytest.warns(ConvergenceWarning):
        backend.expectations(model)


def test_too_few_chains_have_no_error_bar():
    with pytest.warns(ConvergenceWarning):
        result = AnnealedImportance(num_chains=1, num_temperatures=50, reverse=False).log_partition(model_of(GRAPH))
    assert math.isinf(float(result.std_error))
    assert "too few" in result.notes[0]


@pytest.mark.parametrize("count", [16, 20, 32])
def test_few_chains_with_even_weights_have_an_error_bar(count):
    """A reverse run of few chains overlaps with all of them, which is enough."""
    model = model_of(GRAPH, scale=0.1)
    result = AnnealedImportance(num_chains=count, num_temperatures=200, seed=1).log_partition(model)
    assert_honest(result, exact_of(model))
    assert result.verdict == "verified"


def test_without_perfect_samples_the_result_says_so(monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.exact.perfect.perfect_backend", lambda _: None)
    model = model_of(GRAPH, batch=(2,))
    result = AnnealedImportance(**QUICK, seed=1).log_partition(model)
    assert result.sandwich.start == "tempered"
    assert any("tempered" in note for note in result.notes)
    assert_honest(result, exact_of(model))
    with pytest.raises(IntractableError, match="perfect samples"):
        AnnealedImportance(**QUICK, combine=True).log_partition(model)


def test_progress_is_shown_on_standard_error_only_when_asked(capfd):
    model = model_of(GRAPH)
    quiet = AnnealedImportance(**QUICK, seed=1).log_partition(model)
    assert capfd.readouterr() == ("", "")
    shown = AnnealedImportance(**QUICK, seed=1, progress=True).log_partition(model)
    out, err = capfd.readouterr()
    assert out == ""
    assert "annealing" in err
    assert torch.equal(quiet.value, shown.value)


# Options


@pytest.mark.parametrize(
    ("options", "code", "name"),
    [
        ({"reference": "flat"}, "unknown-choice", "reference"),
        ({"reference": (math.inf,) * 9}, "not-finite", "reference"),
        ({"reference": torch.zeros(2, 2)}, "wrong-shape", "reference"),
        ({"reference": (0.0, 0.0)}, "wrong-shape", "reference"),
        ({"combine": True, "schedule": GibbsSchedule(scan="random")}, "conflict", "combine"),
        ({"engine": "steam"}, "unknown-choice", "engine"),
        ({"precision": torch.float16}, "unknown-choice", "precision"),
        ({"schedule": "sites"}, "wrong-type", "schedule"),
    ],
)
def test_bad_options(options, code, name):
    with raises(code, f"AnnealedImportance {name}"):
        AnnealedImportance(**options).log_partition(model_of(GRAPH))


def test_bad_models_and_no_mode():
    broken = SimpleNamespace(hypergraph=GRAPH, tables=torch.full((GRAPH.num_terms,), math.nan))
    with raises("not-finite"):
        AnnealedImportance().log_partition(broken)
    with raises("no-method", "mode"):
        AnnealedImportance().mode(model_of(GRAPH))


def test_options_are_values():
    backend = AnnealedImportance(reference=torch.zeros(9), temperatures=[0, 0.5, 1])
    assert backend == AnnealedImportance(reference=[0.0] * 9, temperatures=(0.0, 0.5, 1.0))
    assert hash(backend) == hash(pickle.loads(pickle.dumps(backend)))
    assert backend != AnnealedImportance()
    assert isinstance(backend, PartitionBackend)
    assert not backend.is_exact


def test_plan_tells_the_cost():
    cost = AnnealedImportance(num_chains=100, num_temperatures=10).plan(GRAPH)
    assert cost.feasible
    assert cost.method == "annealed importance sampling"
    assert "100 chains through 10 temperatures" in cost.reason
    assert AnnealedImportance(num_chains=200, num_temperatures=10).plan(GRAPH).flops == 2 * cost.flops
    assert AnnealedImportance().plan(GRAPH, evidence_names=["a"]).flops < AnnealedImportance().plan(GRAPH).flops
    wide = InteractionHypergraph(Domain.from_cardinalities([20] * 8), [])
    assert not AnnealedImportance().plan(wide, keep=wide.domain.names).feasible
    blocks = AnnealedImportance(schedule=GibbsSchedule([wide.domain.names]))
    assert "joint states" in blocks.plan(wide).reason
    with pytest.raises(IntractableError):
        blocks.log_partition(LogLinearEnergy(wide, torch.zeros(0)))
    with pytest.raises(UnknownNameError):
        AnnealedImportance().plan(GRAPH, evidence_names=["zzz"])


def test_frequencies_of_the_data_make_a_reference():
    data = Observations(DOMAIN, torch.tensor([[0, 2, 1, 1], [1, 2, -1, 0], [1, 1, 0, 0]]))
    weights = log_frequencies(data, smoothing=1.0)
    assert torch.allclose(weights[:2].exp(), torch.tensor([1.5, 2.5], dtype=torch.float64) / 4)
    assert torch.allclose(weights[5:7].exp(), torch.tensor([1.5, 1.5], dtype=torch.float64) / 3)
    model = model_of(GRAPH)
    result = AnnealedImportance(**QUICK, reference=weights, seed=2).log_partition(model)
    assert_honest(result, exact_of(model))
    with pytest.raises(InputError, match="smoothing"):
        log_frequencies(data, smoothing=0.0)
    with pytest.raises(InputTypeError, match="Observations"):
        log_frequencies(torch.zeros(3))


# The automatic choice


def test_auto_falls_back_only_when_asked():
    dense = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 40), 2)
    exact, either = Auto(), Auto(annealed=AnnealedImportance(num_chains=64, num_temperatures=20, reverse=False))
    with pytest.raises(IntractableError, match=r"Auto\(annealed=AnnealedImportance\(\)\)"):
        exact.select(dense)
    assert exact.is_exact
    assert not either.is_exact
    assert isinstance(either.select(dense), AnnealedImportance)
    assert either.plan(dense).feasible
    assert "Enumeration of 1099511627776 states" in either.plan(dense).reason
    assert either.select(GRAPH).is_exact
    assert hash(either) == hash(pickle.loads(pickle.dumps(either)))
    model = LogLinearEnergy(dense, torch.zeros(dense.num_terms, dtype=torch.float64))
    result = either.log_partition(model)
    assert result.method == "annealed importance sampling"
    assert float(result.value) == pytest.approx(40 * math.log(2))
    assert either.sample(model, (2,)).shape == (2, 40)
    assert either.marginal(model, ["x3"]).shape == (2,)
    with pytest.raises(IntractableError, match="mode"):
        either.mode(model)
    assert either.log_partition(model_of(GRAPH)).kind == "exact"
