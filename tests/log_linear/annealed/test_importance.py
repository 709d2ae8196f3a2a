"""Annealed estimates: results, gradients, randomness, options, devices, and weights against exact transitions."""

import itertools
import math
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from other_device import AWAY, pretend
from scipy import special, stats

from pyro_hoim import AnnealedImportance, Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy, Observations
from pyro_hoim.annealing import acceptance_ratio, log_mean_weight, runs as annealed_runs
from pyro_hoim.core import PartitionBackend
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, IntractableError, UnknownNameError
from pyro_hoim.log_linear import Auto, log_frequencies
from pyro_hoim.log_linear.annealed.importance import AnnealedLogLinear
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    count_states,
    enumerate_codes,
    exact_log_partition,
    exact_statistics,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

from support.transitions import block_update_matrix, sweep_matrix, tempered_law

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


def test_gradients_weight_the_batch_and_leave_the_value_alone():
    tables = model_of(GRAPH, batch=(2,)).tables.clone().requires_grad_()
    backend = AnnealedImportance(**QUICK, seed=4)
    value = backend.log_partition(LogLinearEnergy(GRAPH, tables)).value
    (value * torch.tensor([2.0, -1.0])).sum().backward()
    eta = backend.expectations(LogLinearEnergy(GRAPH, tables.detach()))
    assert torch.allclose(tables.grad, eta * torch.tensor([[2.0], [-1.0]]))
    model = model_of(GRAPH)
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


def test_uneven_weights_and_too_few_chains_are_flagged():
    model = model_of(GRAPH, scale=4.0)
    backend = AnnealedImportance(num_chains=64, temperatures=(0.0, 1.0), reference="uniform", seed=2, reverse=False)
    with pytest.warns(ConvergenceWarning):
        result = backend.log_partition(model)
    assert result.verdict == "unreliable"
    assert "uneven" in result.notes[0]
    assert math.isinf(float(result.upper))
    with pytest.warns(ConvergenceWarning):
        backend.expectations(model)
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
    monkeypatch.setattr("pyro_hoim.log_linear.annealed.importance.perfect_backend", lambda _: None)
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
    dense = InteractionHypergraph.from_order(wide.domain, 2)
    blocks = AnnealedImportance(schedule=GibbsSchedule([wide.domain.names]))
    assert blocks.plan(wide).feasible and "block" in blocks.plan(dense).reason  # by elimination, where it reaches
    with pytest.raises(IntractableError):
        blocks.log_partition(LogLinearEnergy(dense, torch.zeros(dense.num_terms)))
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
    assert (result.method, float(result.value)) == ("annealed importance sampling", pytest.approx(40 * math.log(2)))
    assert either.sample(model, (2,)).shape == (2, 40)
    assert either.marginal(model, ["x3"]).shape == (2,)
    with pytest.raises(IntractableError, match="mode"):
        either.mode(model)
    assert either.log_partition(model_of(GRAPH)).kind == "exact"


# Weights against exact transitions of the same schedule


CARDS = [2, 3, 2, 2]
STRUCTURE = InteractionHypergraph.from_order(Domain.from_cardinalities(CARDS), 3)
CODES = enumerate_codes(CARDS)
BETAS = np.array([0.0, 0.15, 0.45, 0.7, 1.0])
SITES = (("x0",), ("x1",), ("x2",), ("x3",))
PAIRS = (("x0", "x1"), ("x1", "x2"), ("x3",))
Z_LIMIT = -stats.norm.ppf(FALSE_ALARM_RATE / 2)


def together(graph, tables, blocks, *, beta, reference):
    """The control: all variables drawn at once from their single-site conditionals."""
    result = np.ones((len(CODES), len(CODES)))
    for i, block in enumerate(blocks):
        single = block_update_matrix(graph, tables, block, beta=beta, reference=reference)
        for level in range(CARDS[i]):
            column = single[:, CODES[:, i] == level].sum(1)
            result[:, CODES[:, i] == level] *= column[:, None]
    return result


def moment(model, start, betas, blocks, power=1, kernel=sweep_matrix, factor=1.0):
    """E[w ** power] of a run from the law ``start`` through ``betas``, by pushing the weighted law through."""
    tables, reference = model
    of_reference = reference[CODES + np.cumsum([0, *CARDS])[:-1]].sum(1)
    gain, mass = exact_table(STRUCTURE, tables, normalised=False).reshape(-1) - of_reference, start
    for before, after in itertools.pairwise(betas):
        mass = mass * np.exp(power * (after - before) * gain)
        mass = mass @ kernel(STRUCTURE, tables, blocks, beta=factor * after, reference=reference)
    return mass.sum()


def setting():
    """Tables with reference log weights, the log ratio of their constants, and the laws at both ends."""
    tables = random_tables(STRUCTURE, np.random.default_rng(0), balanced=False)
    reference = np.random.default_rng(1).normal(size=sum(CARDS))
    log_z0 = sum(special.logsumexp(part) for part in np.split(reference, np.cumsum(CARDS)[:-1]))
    laws = [tempered_law(STRUCTURE, tables, beta=beta, reference=reference) for beta in (1.0, 0.0)]
    return (tables, reference), float(exact_log_partition(STRUCTURE, tables)) - log_z0, laws


@pytest.mark.parametrize("blocks", [SITES, PAIRS])
def test_mean_weight_is_the_ratio_of_constants(blocks):
    model, log_ratio, (target, start) = setting()
    assert_close(np.log(moment(model, start, BETAS, blocks)), log_ratio, relative=1e-10)
    backwards = moment(model, target, BETAS[::-1], blocks[::-1])
    assert_close(-np.log(backwards), log_ratio, relative=1e-10)


def test_controls_break_the_identity():
    model, log_ratio, (target, start) = setting()
    assert abs(np.log(moment(model, start, BETAS, SITES, kernel=together)) - log_ratio) > 1e-3
    wrong = np.log(moment(model, start, np.array([0.05, *BETAS[1:]]), SITES))  # starts at another temperature
    assert abs(wrong - log_ratio) > 1e-3
    hotter = np.log(moment(model, start, BETAS, SITES, factor=0.95))  # moves at a beta off by 5 %, weights as before
    assert abs(hotter - log_ratio) > 1e-4
    assert abs(np.log(moment(model, target, BETAS, SITES)) - log_ratio) > 1e-3


def runs_of(blocks, num_chains, seed):
    """Forward and reverse log weights of the library on the setting."""
    tables, reference = map(torch.tensor, setting()[0])
    schedule = GibbsSchedule(blocks)
    options = AnnealedImportance(
        num_chains=num_chains, temperatures=BETAS, reference=reference, schedule=schedule, seed=seed
    )
    run = annealed_runs.forward(options._annealed(LogLinearEnergy(STRUCTURE, tables)), seed)
    return run.log_weights[0].numpy(), annealed_runs.reverse(run).log_weights[0].numpy()


@pytest.mark.parametrize("blocks", [SITES, PAIRS])
def test_library_weights_have_the_exact_moments(blocks):
    model, log_ratio, (target, start) = setting()
    count = 100_000
    forward, reverse = runs_of(blocks, count, seed=3)
    for log_weights, law, path, order, expected in (
        (forward, start, BETAS, blocks, log_ratio),
        (reverse, target, BETAS[::-1], blocks[::-1], -log_ratio),
    ):
        scaled = np.exp(log_weights - expected)
        moments = [moment(model, law, path, order, power) * np.exp(-power * expected) for power in (1, 2, 3, 4)]
        variance = moments[1] - 1
        fourth = moments[3] - 4 * moments[2] + 6 * moments[1] - 3
        assert abs(scaled.mean() - 1) < Z_LIMIT * np.sqrt(variance / count)
        spread = Z_LIMIT * np.sqrt((fourth / variance**2 - 1) / count)  # of the variance of these weights
        assert abs(scaled.var() / variance - 1) < spread
        skewness = (moments[2] - 3 * moments[1] + 2) / variance**1.5 / np.sqrt(count)
        expected_error = np.sqrt(variance / count) * (1 + 19 / 18 * max(skewness, 0))
        # the error goes with the root of the variance; 0.05 is for the skewness, estimated from the same weights
        assert log_mean_weight(log_weights[None]).error[0] == pytest.approx(expected_error, rel=spread / 2 + 0.05)
        assert abs(np.exp(log_weights - log_weights.mean()).mean() - 1) > 1e-2  # the control: another constant


def test_error_of_many_runs_is_the_exact_one():
    model, log_ratio, (_, start) = setting()
    forward, _ = runs_of(SITES, 128 * 500, seed=5)
    runs = log_mean_weight(forward.reshape(500, 128))
    exact = np.sqrt((moment(model, start, BETAS, SITES, 2) * np.exp(-2 * log_ratio) - 1) / 128)
    assert np.median(runs.error) == pytest.approx(exact, rel=0.25)
    errors = runs.value - log_ratio
    spread = np.sqrt(stats.chi2.ppf([FALSE_ALARM_RATE, 1 - FALSE_ALARM_RATE], 500) / 500)
    assert exact * spread[0] * 0.9 < np.sqrt(np.mean(errors**2)) < exact * spread[1] * 1.1


@pytest.mark.fixed_seed  # of the control, which is off by a tenth only
def test_reverse_runs_are_the_reversal_of_forward_runs():
    _, log_ratio, _ = setting()
    count = 100_000
    forward, reverse = runs_of(PAIRS, count, seed=7)
    both = acceptance_ratio(forward[None], reverse[None])
    assert abs(both.value[0] - log_ratio) < Z_LIMIT * both.error[0]
    assert both.error[0] < log_mean_weight(forward[None]).error[0]
    for c in (log_ratio - 1, log_ratio + 0.5):  # Crooks' relation at other places than the ratio itself
        # E_F[w g(w)] / E_F[w] = E_R[g(1 / w)] with g the logistic function of log w - c
        ahead = np.exp(forward - log_ratio) / (1 + np.exp(c - forward))
        behind = 1 / (1 + np.exp(c + reverse))
        error = np.sqrt((ahead.var() + behind.var()) / count)
        assert abs(ahead.mean() - behind.mean()) < Z_LIMIT * error
        assert abs(ahead.mean() - behind.mean() * 1.1) > Z_LIMIT * error


# On a device


TRIANGLE = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), [("a", "b"), ("b", "c"), ("a", "c")], closure=True
)
TABLES = random_tables(TRIANGLE, np.random.default_rng(3), batch_shape=(2,), balanced=False)
PLACES = ["away", pytest.param("cuda", marks=pytest.mark.cuda)]


def _estimate(device):
    """Log Z of both models, its error, eta and the verdict."""
    tables = torch.as_tensor(TABLES).to(device).requires_grad_()
    found = AnnealedImportance(num_chains=400, num_temperatures=10, seed=4).log_partition(
        LogLinearEnergy(TRIANGLE, tables)
    )
    assert found.value.device.type == found.std_error.device.type == torch.device(device).type
    (eta,) = torch.autograd.grad(found.value.sum(), tables)
    return found.value.detach().cpu().numpy(), found.std_error.cpu().numpy(), eta.cpu().numpy(), found.verdict


@pytest.mark.parametrize("where", PLACES)
def test_log_z_eta_and_verdict_on_a_device(where):
    if where == "away":
        with pretend():
            value, error, eta, verdict = _estimate(AWAY)
    else:
        value, error, eta, verdict = _estimate("cuda:0")
    assert verdict in ("verified", "consistent")
    assert (np.abs(value - exact_log_partition(TRIANGLE, TABLES)) < 5 * error).all() and (error < 0.1).all()
    assert (np.abs(value - exact_log_partition(TRIANGLE, 1.3 * TABLES)) > 5 * error).all()  # control
    wanted = exact_statistics(TRIANGLE, exact_table(TRIANGLE, TABLES))
    np.testing.assert_allclose(eta, wanted, atol=5 * 0.5 / np.sqrt(300))


@pytest.mark.parametrize("where", PLACES)
def test_mean_weight_on_a_device_is_the_ratio_of_constants(where):
    """From exact starts at beta 0 the mean weight of many short runs is Z over Z0, whatever the path."""

    def run(device):
        model = LogLinearEnergy(TRIANGLE, torch.as_tensor(TABLES).to(device))
        chains = GibbsChains(model, 6000, seed=2, engine="torch")
        return chains.anneal([0.0, 0.3, 0.6, 1.0]).cpu().numpy()

    if where == "away":
        with pretend():
            log_weights = run(AWAY)
    else:
        log_weights = run("cuda:0")
    weights = np.exp(log_weights - exact_log_partition(TRIANGLE, TABLES)[:, None] + np.log(12))
    error = weights.std(-1) / np.sqrt(6000)
    assert (np.abs(weights.mean(-1) - 1) < 5 * error).all()
    assert (np.abs(1.3 * weights.mean(-1) - 1) > 5 * error).all()  # control
