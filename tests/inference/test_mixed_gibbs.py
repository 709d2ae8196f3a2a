"""The mixed kernel against enumeration and quadrature, how it evaluates programs, and its contract with Pyro."""

import json
import logging
import pickle
import re
import warnings
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import HMC, MCMC, NUTS
from scipy import stats

from pyro_hoim import AnnealedImportance, Domain, HierarchicalLogLinear, InteractionHypergraph, LogLinearStatistics
from pyro_hoim.errors import InputError, InputTypeError, IntractableError, UnknownNameError
from pyro_hoim.inference import MixedGibbs, RecordingNUTS, run_mcmc
from pyro_hoim.inference.mixed._full_conditional import DiscreteMoves, Program
from pyro_hoim.inference.mixed._sites import find_dependence, find_sites, sample_nodes, start
from pyro_hoim.interop import to_arviz
from pyro_hoim.log_linear import Auto, Enumeration, MatrixEnumeration, VariableElimination, parametrization
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    count_states,
    enumerate_codes,
    exact_table,
    raises,
)

from support.transitions import recompute_counts

PAIRS = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), 2)
WEIGHTS = torch.tensor([-0.5, 0.4, -0.3, 0.9, -0.8, 0.7], dtype=torch.float64)
DATA = torch.tensor([-0.3, 1.4, 0.6], dtype=torch.float64)
LEVELS = torch.tensor([-0.5, 1.0], dtype=torch.float64)
POINTS = torch.tensor([-2.0, -1.2, 0.3, 1.1, 2.4], dtype=torch.float64)

fixed_hmc = partial(HMC, step_size=0.3, num_steps=4, adapt_step_size=False, adapt_mass_matrix=False)


def field_program(copies=1, data=DATA):
    """Independent copies of: strength s, field x with theta = s w, and a normal observation per variable."""
    with pyro.plate("copies", copies):
        strength = pyro.sample("strength", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        x = pyro.sample("x", HierarchicalLogLinear(PAIRS, strength.unsqueeze(-1) * WEIGHTS))
        pyro.sample("y", dist.Normal(LEVELS[x], 0.9).to_event(1), obs=data)


def single_field(data=DATA):
    strength = pyro.sample("strength", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
    x = pyro.sample("x", HierarchicalLogLinear(PAIRS, strength * WEIGHTS))
    with pyro.plate("variables", 3):
        pyro.sample("y", dist.Normal(LEVELS[x], 0.9), obs=data)


def mixture(copies=1, data=POINTS):
    with pyro.plate("copies", copies, dim=-2):
        centre = pyro.sample("centre", dist.Normal(torch.tensor([-1.0, 1.0], dtype=torch.float64), 1.0).to_event(1))
        with pyro.plate("rows", len(data), dim=-1):
            group = pyro.sample("group", dist.Categorical(torch.tensor([0.4, 0.6], dtype=torch.float64)))
            loc = torch.where(group == 1, centre[..., 1], centre[..., 0])
            pyro.sample("y", dist.Normal(loc, 0.8), obs=data)


def prior_only(copies=1):
    with pyro.plate("copies", copies):
        strength = pyro.sample("strength", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        pyro.sample("x", HierarchicalLogLinear(PAIRS, strength.unsqueeze(-1) * WEIGHTS))


def assert_means(draws, expected, what):
    """Means of copies (draws, copies, quantities), which are independent, against exact ones."""
    by_copy = draws.double().mean(0).numpy()
    error = by_copy.std(0, ddof=1) / np.sqrt(len(by_copy))
    scores = np.abs(by_copy.mean(0) - expected) / error
    limit = stats.t.isf(FALSE_ALARM_RATE / 2 / scores.size, len(by_copy) - 1)
    assert scores.max() < limit, f"{what}: z scores {scores}"


def exact_field_posterior():
    """E[s], E[s^2] and Pr(x_v = 1) given DATA, by quadrature and enumeration."""
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    codes = enumerate_codes([2, 2, 2])
    law = HierarchicalLogLinear(PAIRS, torch.as_tensor(points)[:, None] * WEIGHTS)
    energies = -law.energy_model.energy(torch.as_tensor(codes)[:, None]).numpy().T
    log_field = energies - np.logaddexp.reduce(energies, axis=1, keepdims=True)
    likelihood = stats.norm.logpdf(DATA.numpy(), LEVELS.numpy()[codes], 0.9).sum(-1)
    joint = weights[:, None] * np.exp(log_field + likelihood)
    joint /= joint.sum()
    return np.array([joint.sum(1) @ points, joint.sum(1) @ points**2]), joint.sum(0) @ codes


def test_posterior_of_a_field_and_its_strength_equals_quadrature():
    run = run_mcmc(MixedGibbs(field_program, fixed_hmc), 100, burn_in=20, num_chains=1, seed=1, model_args=(200,),
                   progress=False)  # fmt: skip
    strength, x = run.samples["strength"][0], run.samples["x"][0]
    assert x.dtype == torch.long and x.shape == (100, 200, 3)
    moments, marginals = exact_field_posterior()
    assert_means(torch.stack([strength, strength**2], -1), moments, "strength")
    assert_means(x, marginals, "field")
    with pytest.raises(AssertionError):
        assert_means(x, marginals + 0.03, "control")


def test_mixture_equals_enumeration():
    run = run_mcmc(MixedGibbs(mixture, fixed_hmc), 80, burn_in=20, num_chains=1, seed=2, model_args=(150,),
                   progress=False)  # fmt: skip
    grid = np.linspace(-5, 5, 201)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    prior = stats.norm.pdf(first, -1) * stats.norm.pdf(second, 1)
    parts = np.stack([
        [0.4 * stats.norm.pdf(y, first, 0.8), 0.6 * stats.norm.pdf(y, second, 0.8)] for y in POINTS.numpy()
    ])  # (rows, groups, grid, grid): TraceEnum's sum, term by term  # fmt: skip
    weight = prior * parts.sum(1).prod(0)
    weight /= weight.sum()
    shares = (weight * parts[:, 1] / parts.sum(1)).sum((1, 2))
    assert_means(run.samples["group"][0], shares, "group")
    means = np.array([(weight * first).sum(), (weight * second).sum()])
    assert_means(run.samples["centre"][0].squeeze(-2), means, "centre")


def test_a_law_that_nothing_depends_on_is_moved_by_its_own_chains():
    kernel = MixedGibbs(prior_only, fixed_hmc)
    run = run_mcmc(kernel, 60, burn_in=15, num_chains=1, seed=3, model_args=(200,), progress=False)
    assert kernel.evaluation == {"x": "law alone"}
    x, strength = run.samples["x"][0], run.samples["strength"][0]
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    pair = HierarchicalLogLinear(PAIRS, torch.as_tensor(points)[:, None] * WEIGHTS).marginal(["a", "b"]).probs
    same = (pair[:, 0, 0] + pair[:, 1, 1]).numpy() @ weights / weights.sum()
    # Agreement of a and b, and its product with the strength: a stale theta would lose the second.
    agree = (x[..., 0] == x[..., 1]).double()
    product = ((pair[:, 0, 0] + pair[:, 1, 1]).numpy() * points) @ weights / weights.sum()
    found = torch.stack([strength, agree, strength * agree], -1)
    assert_means(found, np.array([0.0, same, product]), "prior")


def two_laws(copies):
    with pyro.plate("copies", copies):
        pyro.sample("x", HierarchicalLogLinear(PAIRS, THETAS[0]))
        pyro.sample("w", HierarchicalLogLinear(PAIRS, THETAS[0]))


def test_two_laws_that_nothing_depends_on_are_independent():
    kernel = MixedGibbs(two_laws)
    run = run_mcmc(kernel, 2, burn_in=25, num_chains=1, seed=3, model_args=(3000,), progress=False)
    assert kernel.evaluation == {"x": "law alone", "w": "law alone"}
    single = np.exp(exact_table(PAIRS, parametrization(PAIRS).to_tables(THETAS[0], "free"))).reshape(-1)
    both = torch.cat([run.samples["x"][0, -1], run.samples["w"][0, -1]], -1).numpy()
    assert_exact_law(count_states(both, [2] * 6), np.outer(single, single).reshape(-1))
    coalesced = np.concatenate([both[:, :3], both[:, :3]], -1)
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(coalesced, [2] * 6), np.outer(single, single).reshape(-1))


# Full conditionals against the log-joint of every state


def hidden_sum():
    """Rows are declared independent and are not."""
    shift = pyro.sample("shift", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 3):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.2, 0.3, 0.5])))
        pyro.sample("y", dist.Normal(z.float().sum(-1, keepdim=True) + shift, 1.0), obs=torch.zeros(3))


def outside_sum(keepdim=False):
    shift = pyro.sample("shift", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 3):
        z = pyro.sample("z", dist.Bernoulli(0.3))
    pyro.sample("y", dist.Normal(z.sum(-1, keepdim) + shift, 1.0), obs=torch.tensor([1.5] if keepdim else 1.5))


def first_index(is_last=False):
    """Indexing from the left is not vectorised: a candidate dimension would be taken for the event."""
    strength = pyro.sample("strength", dist.Normal(0.0, 1.0))
    x = pyro.sample("x", HierarchicalLogLinear(PAIRS, strength * WEIGHTS.float()))
    first, third = (x[..., 0], x[..., 2]) if is_last else (x[0], x[2])
    pyro.sample("y", dist.Normal(LEVELS.float()[first] * third, 0.5), obs=torch.tensor(0.4))


def branching(in_tensors=False):
    shift = pyro.sample("shift", dist.Normal(0.0, 1.0))
    gate = pyro.sample("gate", dist.Bernoulli(0.5))
    z = pyro.sample("z", dist.Categorical(torch.ones(3)))
    loc = torch.where(gate > 0, z, 0.0) if in_tensors else z.float() if gate.item() else torch.zeros(())
    pyro.sample("y", dist.Normal(loc + shift, 1.0), obs=torch.tensor(1.5))


def law_picked_by_a_site():
    """Theta depends on a discrete site, whose moves need log Z."""
    strength = pyro.sample("strength", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("rows", 3):
        z = pyro.sample("z", dist.Categorical(torch.ones(2)))
        x = pyro.sample("x", HierarchicalLogLinear(PAIRS, strength[..., z].unsqueeze(-1) * WEIGHTS.float()))
        pyro.sample("y", dist.Normal(LEVELS.float()[x], 0.9).to_event(1), obs=DATA.float())


def vectors():
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.3))
    bits = pyro.sample("bits", dist.Bernoulli(torch.tensor([0.2, 0.7])).to_event(1))
    hot = pyro.sample("hot", dist.OneHotCategorical(torch.tensor([0.2, 0.3, 0.5])))
    count = pyro.sample("count", dist.Binomial(3, 0.4))
    loc = (bits * torch.tensor([1.0, -2.0])).sum(-1) + (hot * torch.arange(3.0)).sum(-1) + count
    pyro.sample("y", dist.Normal(loc, scale), obs=torch.tensor(1.0))


def masked_and_scaled():
    strength = pyro.sample("strength", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 3), poutine.mask(mask=torch.tensor([True, False, True])), poutine.scale(scale=0.5):
        x = pyro.sample("x", HierarchicalLogLinear(PAIRS, strength * WEIGHTS.float()))
        pyro.sample("y", dist.Normal(LEVELS.float()[x], 0.9).to_event(1), obs=DATA.float())


def unevenly_scaled():
    """A scale per row: the law is not drawn from plainly although nothing depends on it."""
    with pyro.plate("rows", 3), poutine.scale(scale=torch.tensor([0.5, 1.0, 2.0])):
        pyro.sample("x", HierarchicalLogLinear(PAIRS, WEIGHTS.float()))


def moving_probabilities():
    """Broadcasting mixes probabilities that depend on a site with a number of trials that does not."""
    k = pyro.sample("k", dist.Categorical(torch.tensor([0.3, 0.7])))
    pyro.sample("count", dist.Binomial(3, torch.tensor([0.2, 0.6])[k]))


CASES = {
    "single_field": (single_field, {"x": "rows together"}),
    "field_program": (partial(field_program, 2), {"x": "rows together"}),
    "mixture": (partial(mixture, 2), {"group": "rows together"}),
    "hidden_sum": (hidden_sum, {"z": "row by row"}),
    "outside_sum": (outside_sum, {"z": "one by one"}),
    "first_index": (first_index, {"x": "one by one"}),
    "branching": (branching, {"gate": "one by one", "z": "one by one"}),
    "law_picked_by_a_site": (law_picked_by_a_site, {"z": "rows together", "x": "rows together"}),
    "vectors": (vectors, dict.fromkeys(("bits", "hot", "count"), "rows together")),
    "masked_and_scaled": (masked_and_scaled, {"x": "rows together"}),
    "prior_only": (prior_only, {"x": "law alone"}),
    "unevenly_scaled": (unevenly_scaled, {"x": "rows together"}),
    "moving_probabilities": (moving_probabilities, {"k": "rows together", "count": "rows together"}),
}


def prepared(model, schedule=None, **options):
    trace = start(model, (), {})
    sites = find_sites(trace, None, schedule)
    values = {n: m["value"] for n, m in trace.nodes.items() if m["type"] == "sample" and not m["is_observed"]}
    values = {n: v for n, v in values.items() if not n.endswith(("copies", "rows", "variables"))}
    options = {"is_parallel": True, "seed": 0, **options}
    program = Program(model, (), {})
    return DiscreteMoves(program, sites, values, find_dependence(program.run, values), **options), sites, values


def log_joint(model, values):
    return float(poutine.trace(poutine.condition(model, values)).get_trace().log_prob_sum())


@pytest.mark.parametrize("name", CASES)
def test_full_conditionals_are_those_of_the_log_joint(name):
    """Also says how each program is evaluated; log Z is in the oracle and not in what is compared with it."""
    model, modes = CASES[name]
    pyro.set_rng_seed(5)
    moves, sites, values = prepared(model, GibbsSchedule([("a", "b"), ("b", "c")]))
    with torch.no_grad():
        values = moves.sweep(values)
        assert moves.modes == modes
        for site in sites:
            for visit in site.visits if modes[site.name] != "law alone" else ():
                for row in range(site.num_rows):
                    together = modes[site.name] == "rows together"
                    if modes[site.name] == "one by one":
                        logits = moves._one_by_one(site, visit, values, row)[0]
                    else:
                        logits = moves._together(site, visit, values, None if together else row)
                        logits = logits[row : row + 1] if together else logits
                    exact = []
                    for candidate in visit.candidates:
                        rows = site.rows(values[site.name]).clone()
                        rows[row, list(visit.columns)] = candidate
                        exact.append(log_joint(model, {**values, site.name: rows.reshape(site.shape)}))
                    expected = torch.tensor([exact], dtype=torch.float64)
                    assert_close(logits.softmax(-1), expected.softmax(-1), relative=2e-6, what=f"{site.name} {row}")


def reshaping():
    x = pyro.sample("x", HierarchicalLogLinear(PAIRS, WEIGHTS))
    pyro.sample("y", dist.Normal(x.view(3).double().sum(-1), 0.5), obs=torch.tensor(0.4))


def in_place():
    z = pyro.sample("z", dist.Categorical(torch.ones(3)))
    loc = torch.zeros(2)
    loc[0] = z
    pyro.sample("y", dist.Normal(loc, 1.0).to_event(1), obs=torch.ones(2))


REASONS = {
    "hidden_sum": {"z": r"^row by row, because candidates side by side get other .*; let .*keepdim=True"},
    "outside_sum": {
        "z": r"^one by one, because site 'y' depends on it and is outside the plate 'rows'; and row by row"
    },
    "first_index": {"x": r"^one by one, because the program raises IndexError: index 2 .*x\[\.\.\., i\]"},
    "branching": dict.fromkeys(
        ("gate", "z"),
        r"the value of 'gate' out of the tensors by item\(\) \(line \d+ of test_mixed_gibbs.py\); .*where",
    ),
    "reshaping": {"x": r"^one by one, because the program raises RuntimeError: shape '\[3\]' is invalid .*; let"},
    "in_place": {"z": r"assignment into a tensor changes .* value of 'z' \(line \d+ of test_mixed_gibbs.py\); keep"},
}


@pytest.mark.parametrize("name", [*CASES, "reshaping", "in_place"])
def test_slow_evaluations_say_why(name):
    pyro.set_rng_seed(5)
    moves, _, values = prepared(CASES[name][0] if name in CASES else globals()[name])
    moves.sweep(values)
    expected = REASONS.get(name, {})
    assert set(moves.reasons) == set(expected)  # none for sites evaluated the fast way: the control
    for site, pattern in expected.items():
        assert re.search(pattern, moves.reasons[site]), moves.reasons[site]


@pytest.mark.parametrize(
    ("slow", "fast", "mode"),
    [
        (branching, partial(branching, in_tensors=True), "rows together"),
        (first_index, partial(first_index, is_last=True), "rows together"),
        (outside_sum, partial(outside_sum, keepdim=True), "row by row"),
    ],
)
def test_the_fast_spelling_is_the_same_program_and_only_the_slow_one_is_logged(slow, fast, mode, caplog):
    pyro.set_rng_seed(5)
    values = {n: node["value"] for n, node in sample_nodes(start(slow, (), {})).items() if not node["is_observed"]}
    assert log_joint(slow, values) == pytest.approx(log_joint(fast, values), rel=1e-6)
    for program, wanted in ((slow, "one by one"), (fast, mode)):
        caplog.clear()
        kernel = MixedGibbs(program, {"max_tree_depth": 1})
        with caplog.at_level(logging.WARNING, "pyro_hoim"):
            run = run_mcmc(kernel, 1, burn_in=1, num_chains=2, seed=1, progress=False)
        assert set(kernel.evaluation.values()) == {wanted}
        assert run.chain_diagnostics[0]["evaluation"] == {**kernel.evaluation, **kernel.evaluation_reasons}
        lines = [record.getMessage() for record in caplog.records]
        lines = [line for line in lines if line.startswith("MixedGibbs")]
        reasons = kernel.evaluation_reasons if program is slow else {}
        # Once for both chains.
        assert lines == [f"MixedGibbs: site {site!r} is evaluated {why}" for site, why in reasons.items()]
        assert bool(lines) == (program is slow)


STATE = torch.tensor([0, 1, 0])
THETAS = torch.stack([WEIGHTS, -2 * WEIGHTS + 0.5 * torch.tensor([-1, -1, -1, 1, 1, 1])])


def exact_log_prob(theta, state=STATE):
    """Log-probability of a state by enumeration, without the library's log Z."""
    table = exact_table(PAIRS, parametrization(PAIRS).to_tables(theta, "free"))
    return float(table[tuple(state.tolist())])


def weighted(kind, data):
    """The discrete site says which of two laws of known theta counts, or how much."""
    k = pyro.sample("k", dist.Categorical(torch.tensor([0.3, 0.7], dtype=torch.float64)))
    for j in range(2):
        law = HierarchicalLogLinear(PAIRS, THETAS[j])
        if kind == "poutine.mask":
            with poutine.mask(mask=k == j):
                pyro.sample(f"x{j}", law, obs=data)
        elif kind == "mask of the law":
            pyro.sample(f"x{j}", law.mask(k == j), obs=data)
        else:
            with poutine.scale(scale=1.0 + j + k):
                pyro.sample(f"x{j}", law, obs=data)


@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize("data", [STATE, None], ids=["observed", "latent"])
@pytest.mark.parametrize("kind", ["poutine.mask", "mask of the law", "poutine.scale"])
def test_log_z_counts_where_a_site_decides_on_the_weight_of_a_law(kind, data, is_parallel):
    pyro.set_rng_seed(5)
    moves, sites, values = prepared(partial(weighted, kind, data), is_parallel=is_parallel)
    with torch.no_grad():
        values = moves.sweep({**values, **({} if data is not None else {"x0": STATE, "x1": STATE})})
        states = [values.get(f"x{j}", STATE) for j in range(2)]
        weights = [[1.0 + j + k if kind == "poutine.scale" else 1.0 * (j == k) for j in range(2)] for k in range(2)]
        parts = torch.tensor([exact_log_prob(THETAS[j], states[j]) for j in range(2)], dtype=torch.float64)
        expected = torch.log(torch.tensor([0.3, 0.7], dtype=torch.float64)) + torch.tensor(weights).double() @ parts
        evaluate = moves._together if is_parallel else lambda *given: moves._one_by_one(*given)[0]
        logits = evaluate(sites[0], sites[0].visits[0], values, 0)
    assert moves.modes["k"] == ("rows together" if is_parallel else "one by one")
    assert_close(logits[0].softmax(-1), expected.softmax(-1), relative=2e-6)
    without = expected + torch.tensor(weights).double() @ log_z_of(THETAS)
    assert float((without.softmax(-1) - expected.softmax(-1)).abs().max()) > 0.05  # what is tested makes a difference


def log_z_of(thetas):
    """Log Z by enumeration: energy of a state and its exact log-probability."""
    energies = [float(HierarchicalLogLinear(PAIRS, theta).energy(STATE)) for theta in thetas]
    exact = [exact_log_prob(theta) for theta in thetas]
    return torch.tensor([-e - p for e, p in zip(energies, exact, strict=True)], dtype=torch.float64)


def test_control_rows_drawn_together_although_they_depend():
    pyro.set_rng_seed(5)
    moves, (site,), values = prepared(hidden_sum)
    values = moves.sweep(values)
    wrong = moves._together(site, site.visits[0], values, None)[0].softmax(-1)
    right = moves._one_by_one(site, site.visits[0], values, 0)[0][0].softmax(-1)
    assert float((wrong - right).abs().max()) > 0.05


def test_switching_parallel_evaluation_off_gives_the_same_draws():
    draws = []
    for is_parallel in (True, False):
        pyro.set_rng_seed(6)
        moves, _, values = prepared(single_field, is_parallel=is_parallel)
        values = {**values, "x": torch.tensor([0, 1, 0]), "strength": torch.tensor(0.7, dtype=torch.float64)}
        pyro.set_rng_seed(7)
        states = []
        for _ in range(20):
            values = moves.sweep(values)
            states.append(values["x"])
        draws.append(torch.stack(states))
    assert moves.modes == {"x": "one by one"}
    assert moves.reasons["x"].startswith("one by one, because parallel is False")
    assert torch.equal(*draws)


class Refusing(VariableElimination):
    """A backend whose log Z must not be asked for."""

    def log_partition(self, model):
        raise AssertionError("log Z was computed")


def intractable(size=30):
    """A dense field whose log Z is out of reach and constant, picked up by observations."""
    hypergraph = _dense(size)
    theta = 0.1 * torch.linspace(-1, 1, hypergraph.num_parameters)
    noise = pyro.sample("noise", dist.LogNormal(0.0, 0.2))
    x = pyro.sample("x", HierarchicalLogLinear(hypergraph, theta, partition=Refusing()))
    with pyro.plate("variables", size):
        pyro.sample("y", dist.Normal(x.float(), noise), obs=torch.linspace(-1, 2, size))


def _dense(size):
    return InteractionHypergraph.from_order(Domain.from_cardinalities([2] * size), 2)


def test_a_law_of_any_size_works_where_its_theta_is_fixed():
    pyro.set_rng_seed(8)
    kernel = MixedGibbs(intractable, partial(fixed_hmc, step_size=0.02))
    kernel.setup(0)
    params = kernel.initial_params
    for _ in range(3):
        params = kernel.sample(params)
    assert kernel.evaluation == {"x": "rows together"}
    assert kernel.diagnostics()["moved"]["x"] > 0


def stepping(kind):
    """Log Z depends on a continuous site, and no derivative shows it."""
    z = pyro.sample("z", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
    if kind == "theta":
        pyro.sample("x", HierarchicalLogLinear(PAIRS, torch.where(z > 0, THETAS[0], THETAS[1])))
    elif kind == "branch":
        pyro.sample("x", HierarchicalLogLinear(PAIRS, THETAS[0] if z > 0 else THETAS[1]))
    elif kind == "mask":
        with poutine.mask(mask=z > 0):
            pyro.sample("x", HierarchicalLogLinear(PAIRS, THETAS[0]))
    else:
        with poutine.scale(scale=torch.where(z > 0, 2.0, 0.5)):
            pyro.sample("x", HierarchicalLogLinear(PAIRS, THETAS[0]))


@pytest.mark.parametrize("kind", ["theta", "branch", "mask", "scale"])
def test_the_potential_of_the_inner_kernel_has_log_z_where_a_continuous_site_decides_on_it(kind):
    kernel = MixedGibbs(partial(stepping, kind), fixed_hmc)
    kernel.initial_params = {"x": STATE}
    kernel.setup(0)
    potentials = [float(kernel.inner.potential_fn({"z": torch.tensor(z, dtype=torch.float64)})) for z in (0.5, -1.5)]
    first, second = exact_log_prob(THETAS[0]), exact_log_prob(THETAS[1])
    above, below = {"mask": (first, 0.0), "scale": (2 * first, 0.5 * first)}.get(kind, (first, second))
    expected = above - below + stats.norm.logpdf(0.5) - stats.norm.logpdf(1.5)
    assert_close(torch.tensor(potentials[1] - potentials[0]), torch.tensor(expected), relative=1e-6)


def test_a_step_in_theta_leaves_the_prior_of_what_decides_on_it_alone():
    """The law of z given nothing observed is its prior, whatever the two log Z are."""
    transitions = 400
    kernel = MixedGibbs(partial(stepping, "theta"), partial(fixed_hmc, step_size=0.9, num_steps=2))
    run = run_mcmc(kernel, transitions, burn_in=20, num_chains=1, seed=4, progress=False)
    positive = (run.samples["z"][0] > 0).double().numpy()
    blocks = positive.reshape(20, -1).mean(1)  # blocks of 20 transitions are nearly independent
    score = (blocks.mean() - 0.5) / (blocks.std(ddof=1) / np.sqrt(len(blocks)))
    assert abs(score) < stats.t.isf(FALSE_ALARM_RATE / 2, len(blocks) - 1)


def dependent_on_statistics(data):
    """The observed counts have a log Z of their own, which does not change with the discrete site."""
    theta = pyro.sample("theta", dist.Normal(torch.zeros(6), 1.0).to_event(1))
    pyro.sample("counts", LogLinearStatistics(PAIRS, theta, 10), obs=data)
    z = pyro.sample("z", dist.Bernoulli(0.4))
    pyro.sample("y", dist.Normal(z + theta[..., 0], 1.0), obs=torch.tensor(0.3))


def test_the_discrete_move_leaves_out_what_does_not_depend_on_it(monkeypatch):
    pyro.set_rng_seed(9)
    counts = LogLinearStatistics(PAIRS, torch.zeros(6), 10).sample()
    kernel = MixedGibbs(dependent_on_statistics, fixed_hmc)
    kernel.setup(0, counts)
    values = {"theta": torch.zeros(6), "z": torch.tensor(1.0)}
    monkeypatch.setattr(LogLinearStatistics, "log_prob", lambda *_: pytest.fail("log Z was computed"))
    kernel._move_discrete(values)
    assert kernel.evaluation == {"z": "rows together"}


# Estimates of log Z

ROUGH = partial(AnnealedImportance, num_chains=16, num_temperatures=10, engine="torch", reverse=False)
NOTHING_EXACT = partial(
    Auto,
    matrix=MatrixEnumeration(max_entries=1),
    enumeration=Enumeration(max_states=1),
    elimination=VariableElimination(max_cells=2, max_slices=1),
)


def estimated(kind, partition):
    """The discrete site picks theta of an observed law whose log Z is estimated; the continuous one scales it."""
    z = pyro.sample("z", dist.LogNormal(torch.zeros((), dtype=torch.float64), 1.0))
    k = pyro.sample("k", dist.Categorical(torch.ones(2, dtype=torch.float64)))
    theta, data = z * THETAS[k], torch.stack([STATE, 1 - STATE])
    if kind == "statistics":
        counts = torch.as_tensor(recompute_counts(PAIRS, data))
        pyro.sample("y", LogLinearStatistics(PAIRS, theta, 2, partition=partition), obs=counts)
    elif kind == "event":
        law = HierarchicalLogLinear(PAIRS, theta, partition=partition)
        pyro.sample("y", law.expand(torch.Size([2])).to_event(1), obs=data)
    else:
        with pyro.plate("rows", 2):
            pyro.sample("y", HierarchicalLogLinear(PAIRS, theta, partition=partition), obs=data)


@pytest.mark.parametrize("kind", ["plate", "event", "statistics"])
def test_random_estimates_of_log_z_are_refused_in_the_discrete_move(kind):
    for partition in (ROUGH(), NOTHING_EXACT(annealed=ROUGH())):
        model = poutine.condition(partial(estimated, kind, partition), {"z": torch.tensor(1.0, dtype=torch.float64)})
        with pytest.raises(InputError, match="without randomness inside MixedGibbs"):
            transition(lambda model=model: MixedGibbs(model))


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # rough on purpose
@pytest.mark.parametrize("kind", ["plate", "event", "statistics"])
@pytest.mark.parametrize("is_auto", [False, True])
def test_both_moves_have_the_same_target_where_log_z_is_estimated_with_a_seed(kind, is_auto):
    backend = ROUGH(seed=1)
    partition = NOTHING_EXACT(annealed=backend) if is_auto else backend
    pyro.set_rng_seed(3)
    kernel = transition(lambda: MixedGibbs(partial(estimated, kind, partition), fixed_hmc))
    assert kernel.evaluation == {"k": "one by one"}
    assert "the log Z of 'y', which depends on it, is an estimate with a seed" in kernel.evaluation_reasons["k"]
    position, potentials = torch.tensor(-0.2, dtype=torch.float64), []
    z = position.exp()
    for k in range(2):
        kernel._refresh_inner({"k": torch.tensor(k)})
        potentials.append(float(kernel.inner.potential_fn({"z": position})))
    site, moves = kernel._sites[0], kernel._moves
    with torch.no_grad():
        logits, _ = moves._one_by_one(site, site.visits[0], {"z": z, "k": torch.tensor(0)}, 0)
        batch = moves._together(site, site.visits[0], {"z": z, "k": torch.tensor(0)}, 0)
    expected = torch.tensor(potentials[0] - potentials[1], dtype=torch.float64)
    assert_close(logits[0, 1] - logits[0, 0], expected, relative=2e-6)
    assert abs(float(batch[0, 1] - batch[0, 0] - expected)) > 1e-3  # control: candidates in a batch, other streams


# Caches


class NotRefreshed(MixedGibbs):
    """Control: the inner kernel is not told that its potential belongs to other discrete values."""

    def _refresh_inner(self, discrete):
        self._conditioned.values = discrete


@pytest.mark.parametrize(("kernel_class", "is_fresh"), [(MixedGibbs, True), (NotRefreshed, False)])
def test_the_inner_kernel_starts_from_the_potential_of_the_new_discrete_values(kernel_class, is_fresh, monkeypatch):
    pyro.set_rng_seed(10)
    kernel = kernel_class(single_field, fixed_hmc)
    kernel.setup(0)
    params, gaps = kernel.initial_params, []
    original = kernel.inner.sample

    def checked(position):
        z, potential, _ = kernel.inner._fetch_from_cache()
        if z is not None:
            gaps.append(float((kernel.inner.potential_fn(z) - potential).abs()))
        return original(position)

    monkeypatch.setattr(kernel.inner, "sample", checked)
    for _ in range(10):
        params = kernel.sample(params)
        z, _, _ = kernel.inner._fetch_from_cache()
        assert torch.equal(z["strength"], params["strength"])
    assert (max(gaps, default=0.0) < 1e-9) == is_fresh


def test_values_given_to_sample_count_and_not_those_of_the_last_transition():
    pyro.set_rng_seed(11)
    kernel = MixedGibbs(single_field, partial(HMC, step_size=1e-12, num_steps=1, adapt_step_size=False))
    kernel.setup(0)
    kernel.sample(kernel.initial_params)
    moved = kernel.sample({"strength": torch.tensor(3.0, dtype=torch.float64), "x": torch.zeros(3)})
    assert abs(float(moved["strength"]) - 3.0) < 1e-6


# Pyro's MCMC


def test_mcmc_of_pyro_with_chains_in_turn(monkeypatch):
    monkeypatch.setattr("pyro.infer.mcmc.api.mp.cpu_count", lambda: 1)  # a process for each of two chains otherwise
    pyro.set_rng_seed(12)
    kernel = MixedGibbs(single_field, {"max_tree_depth": 3})
    assert isinstance(kernel.inner, type(None))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="num_chains=2 is more than")
        mcmc = MCMC(kernel, num_samples=12, warmup_steps=4, num_chains=2, disable_progbar=True)
    mcmc.run()
    draws = mcmc.get_samples(group_by_chain=True)
    assert draws["x"].shape == (2, 12, 3) and draws["x"].is_floating_point()
    decoded = kernel.decode(draws)
    assert decoded["x"].dtype == torch.long and decoded["strength"] is draws["strength"]
    assert dict(kernel.discrete_sites) == {"x": torch.long}
    diagnostics = mcmc.diagnostics()
    assert {"divergences", "acceptance rate", "sample_stats", "moved"} <= set(diagnostics)
    assert isinstance(kernel.inner, RecordingNUTS)
    assert json.loads(json.dumps(kernel.logging()))["moved"]
    assert "x" in to_arviz(mcmc).posterior


def test_constrained_sites_come_back_constrained_and_adaptation_ran():
    pyro.set_rng_seed(13)
    kernel = MixedGibbs(vectors)
    mcmc = MCMC(kernel, num_samples=10, warmup_steps=30, disable_progbar=True)
    mcmc.run()
    assert bool((mcmc.get_samples()["scale"] > 0).all())
    assert kernel.inner is not None and kernel.inner.step_size != 1
    assert set(kernel.transforms) == {"scale"}
    first = kernel.inner
    kernel.setup(5)
    assert kernel.inner is not first and kernel.inner._t == 0


def test_unsorted_save_params_keep_their_values():
    pyro.set_rng_seed(14)
    kernel = MixedGibbs(single_field, fixed_hmc)
    mcmc = MCMC(kernel, num_samples=5, warmup_steps=0, disable_progbar=True, save_params=["x", "strength"])
    mcmc.run()
    assert set(kernel.decode(mcmc.get_samples())["x"].unique().tolist()) <= {0, 1}
    with pytest.raises(InputError, match="unknown site 'xx'"):
        MCMC(MixedGibbs(single_field), 5, 0, disable_progbar=True, save_params=["xx"]).run()


def test_initial_params_of_both_kinds():
    start_at = {"strength": torch.tensor(0.25, dtype=torch.float64), "x": torch.tensor([1.0, 0.0, 1.0])}
    for names in (("strength", "x"), ("strength",), ("x",)):
        kernel = MixedGibbs(single_field, fixed_hmc)
        kernel.initial_params = {name: start_at[name] for name in names}
        kernel.setup(0)
        for name in names:
            assert torch.equal(kernel.initial_params[name], start_at[name])
    mcmc = MCMC(kernel, 2, 0, initial_params=start_at, disable_progbar=True)
    mcmc.run()


def test_large_integers_stay_exact():
    def model():
        noise = pyro.sample("noise", dist.LogNormal(0.0, 1.0))
        z = pyro.sample("z", dist.Categorical(torch.ones(3)))
        pyro.sample("y", dist.Normal(z.float(), noise), obs=torch.tensor(2.0))

    from pyro_hoim.inference.mixed.kernel import _to_float

    assert _to_float(torch.tensor([2**30 + 1])).dtype == torch.float64
    assert _to_float(torch.tensor([7])).dtype == torch.float32
    run = run_mcmc(MixedGibbs(model, fixed_hmc), 5, burn_in=0, num_chains=2, seed=1, progress=False)
    assert run.samples["z"].dtype == torch.long


def test_a_program_without_continuous_sites():
    def model():
        with pyro.plate("rows", 400):
            z = pyro.sample("z", dist.Bernoulli(0.3))
            pyro.sample("y", dist.Normal(z, 1.0), obs=torch.full((400,), 1.0))

    run = run_mcmc(MixedGibbs(model), 30, burn_in=0, num_chains=1, seed=1, progress=False)
    expected = 0.3 * stats.norm.pdf(0) / (0.3 * stats.norm.pdf(0) + 0.7 * stats.norm.pdf(1))
    total = float(run.samples["z"].sum())  # rows and transitions are independent here
    assert stats.binomtest(int(total), 12_000, expected).pvalue > FALSE_ALARM_RATE
    assert run.num_divergences == 0


def test_pickles_and_runs_again_with_the_same_draws():
    kernel = MixedGibbs(single_field, fixed_hmc)
    options = {"burn_in": 2, "num_chains": 2, "seed": 3, "progress": False}
    first = run_mcmc(kernel, 5, **options)
    copy = pickle.loads(pickle.dumps(kernel))
    assert copy.discrete_sites == {} and copy.transforms is None
    second = run_mcmc(copy, 5, **options)
    assert all(torch.equal(first.samples[name], second.samples[name]) for name in first.samples)
    assert not torch.equal(first.samples["x"][0], first.samples["x"][1])


# Bad input


def poisson():
    rate = pyro.sample("rate", dist.LogNormal(0.0, 1.0))
    k = pyro.sample("k", dist.Poisson(rate))
    pyro.sample("y", dist.Normal(k, 1.0), obs=torch.tensor(2.0))


def subsampled():
    rate = pyro.sample("rate", dist.LogNormal(0.0, 1.0))
    with pyro.plate("rows", 10, subsample_size=5):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        pyro.sample("y", dist.Normal(z, rate), obs=torch.zeros(5))


def subsampled_by_hand():
    rate = pyro.sample("rate", dist.LogNormal(0.0, 1.0))
    with pyro.plate("rows", 4, subsample=torch.arange(2)):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        pyro.sample("y", dist.Normal(z, rate), obs=torch.zeros(2))


def growing_support(is_hidden):
    """The number of values of a site depends on another one."""
    k = pyro.sample("k", dist.Categorical(torch.ones(3)))
    total = torch.tensor(1.0 + k.item()) if is_hidden else 1.0 + k
    pyro.sample("x", dist.Binomial(total, torch.tensor(0.5)))


def growing_levels():
    k = pyro.sample("k", dist.Categorical(torch.ones(2)))
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2 + int(k)]), 1)
    pyro.sample("x", HierarchicalLogLinear(hypergraph, torch.zeros(hypergraph.num_parameters)))


def only_continuous():
    pyro.sample("z", dist.Normal(0.0, 1.0))


def changing():
    z = pyro.sample("z", dist.Bernoulli(0.5))
    if z.item() > 0:
        pyro.sample("extra", dist.Normal(0.0, 1.0), obs=torch.tensor(0.0))


def impossible():
    loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
    z = pyro.sample("z", dist.Bernoulli(0.5))
    pyro.factor("never", -torch.inf * torch.ones(()) + 0 * (z + loc))


def uneven():
    with pyro.plate("rows", 2):
        pyro.sample("k", dist.Binomial(torch.tensor([2.0, 3.0]), 0.5))


def transition(make):
    kernel = make()
    kernel.setup(0)
    kernel.sample(kernel.initial_params)
    return kernel


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MixedGibbs(3), InputTypeError, "model: expected a Pyro program, received int"),
        (lambda: MixedGibbs(poisson), InputError, "site 'k': expected a law with finite support, received Poisson"),
        (lambda: MixedGibbs(uneven), InputError, "site 'k': expected elements with one common support"),
        (lambda: MixedGibbs(subsampled), InputError, "plate 'rows' takes 5 of 10 elements"),
        (lambda: MixedGibbs(subsampled_by_hand), InputError, "plate 'rows' takes 2 of 4 elements"),
        (lambda: MixedGibbs(partial(growing_support, False)), InputError, "site 'x': expected the same support"),
        (lambda: MixedGibbs(partial(growing_support, True)), InputError, "site 'x': expected the same support"),
        (lambda: MixedGibbs(growing_levels), InputError, "site 'x': expected the same support"),
        (lambda: MixedGibbs(only_continuous), InputError, "found none; use NUTS or HMC alone"),
        (lambda: MixedGibbs(changing), InputError, "whether 'extra' is there depends on the values"),
        (lambda: MixedGibbs(impossible, fixed_hmc), ValueError, "valid initial params"),
        (lambda: MixedGibbs(single_field, 3), InputTypeError, "continuous: expected a kernel class"),
        (lambda: MixedGibbs(single_field, {"jit_compile": True}), InputError, "jit_compile=False"),
        (lambda: MixedGibbs(single_field, lambda _: object()), InputTypeError, "HMC or NUTS kernel, received object"),
        (lambda: MixedGibbs(single_field, lambda _: NUTS(poisson)), InputError, "received another's"),
        (lambda: MixedGibbs(single_field, discrete_sites="x"), InputTypeError, "received the string 'x'"),
        (lambda: MixedGibbs(single_field, discrete_sites=["xx"]), UnknownNameError, "did you mean 'x'|known: 'x'"),
        (lambda: MixedGibbs(single_field, discrete_sites=["strength"]), InputError, "'strength' is continuous"),
        (lambda: MixedGibbs(vectors, discrete_sites=["hot", "bits"]), InputError, "'count' is left out"),
        (lambda: MixedGibbs(single_field, num_discrete_sweeps=0), InputError, "num_discrete_sweeps"),
        (lambda: MixedGibbs(mixture, schedule={"group": GibbsSchedule()}), InputError, "'group' is not a log-linear"),
        (lambda: MixedGibbs(single_field, schedule={"z": GibbsSchedule()}), UnknownNameError, "schedule"),
        (lambda: MixedGibbs(single_field, schedule=[("a",)]), InputTypeError, "expected a GibbsSchedule"),
        (lambda: MixedGibbs(single_field, schedule=GibbsSchedule([("a",)])), InputError, "is in none"),
    ],
)
def test_bad_input(make, error, message):
    pyro.set_rng_seed(0)
    with pytest.raises(error, match=message):
        transition(make)


@pytest.mark.parametrize(
    ("model", "params", "code"),
    [
        (single_field, {"x": torch.tensor([0.0, 1.0])}, "wrong-shape"),
        (single_field, {"x": torch.tensor([0.0, 1.0, 2.0])}, "impossible"),
        (single_field, {"x": torch.tensor([0.0, 0.5, 1.0])}, "impossible"),
        (single_field, {"xx": torch.zeros(3)}, "unknown-name"),
        (single_field, {"x": 3}, "wrong-type"),
        (vectors, {"bits": torch.tensor([0.0, 3.0])}, "impossible"),
    ],
)
def test_bad_initial_params(model, params, code):
    kernel = MixedGibbs(model)
    with raises(code):
        kernel.initial_params = params
        kernel.setup(0)


def test_bad_use():
    kernel = MixedGibbs(single_field)
    for use in (lambda: kernel.sample({"x": torch.zeros(3)}), lambda: kernel.decode({})):
        with raises("missing-part"):
            use()
    kernel.setup(0)
    with raises("out-of-range", "samples"):
        kernel.decode({"x": torch.tensor([0.5])})


def test_an_intractable_law_whose_theta_moves_is_refused_by_nuts():
    hypergraph = _dense(60)

    def model():
        scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
        x = pyro.sample("x", HierarchicalLogLinear(hypergraph, scale * torch.ones(hypergraph.num_parameters),
                                                   partition=VariableElimination()))  # fmt: skip
        pyro.sample("y", dist.Normal(x[..., 0].float(), scale), obs=torch.tensor(1.0))

    with pytest.raises(IntractableError):
        MixedGibbs(model, fixed_hmc).setup(0)
    assert Auto().plan(PAIRS).feasible
