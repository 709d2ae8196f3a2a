"""The Gibbs kernels of the families: exact starts, Pyro's contract and its faults, ArviZ, bad input."""

import json
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import MCMC, Predictive
from scipy.stats import norm

from pyro_hoim import DependencyConditionals, Domain, HierarchicalLogLinear, InputError, InteractionHypergraph, Variable
from pyro_hoim.dependency_network import DecisionGraph, LeafConditional, TableConditional, cyclic_laws, stationary_law
from pyro_hoim.generalized_root import ExponentialFamily, GeneralizedRootEnergy, RootStructure, TruncatedPoissonFamily
from pyro_hoim.inference import BlockGibbs, PseudoGibbs, RootGibbs, run_mcmc
from pyro_hoim.interop import choose_backend, diagnose_chains, get_group, to_arviz
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    count_states,
    enumerate_codes,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["low", "mid", "high"], "c": ["off", "on"]})
HYPERGRAPH = InteractionHypergraph(DOMAIN, [["a", "b"], ["b", "c"], ["a", "c"]], closure=True)
COUNTS = Domain([Variable(name, kind="count") for name in "abc"])
SHAPES = {"block": (2, 3, 2), "pseudo": (2, 3, 2), "root": (3, 3, 3)}
WEIGHTS = {"a": 0.2, "b": 0.5, "c": 0.3}
FAMILIES = pytest.mark.parametrize("family", SHAPES)


def law_of(seed=0, scale=0.8, batch=()):
    """A random law and its table of probabilities (*batch, states) by enumeration."""
    tables = random_tables(HYPERGRAPH, np.random.default_rng(seed), scale=scale, batch_shape=batch)
    law = HierarchicalLogLinear.from_tables(HYPERGRAPH, torch.from_numpy(tables))
    return law, np.exp(exact_table(HYPERGRAPH, tables)).reshape(*batch, -1)


def network(seed=0):
    rng = np.random.default_rng(seed)
    graph = DecisionGraph(DOMAIN, "b").split(0, "a").split(0, "c").merge(0, 2)
    nodes = [
        TableConditional(DOMAIN, "a", ["b", "c"], torch.from_numpy(rng.dirichlet([1.0] * 2, (3, 2)))),
        LeafConditional(graph, torch.from_numpy(rng.dirichlet([1.0] * 3, graph.num_leaves))),
        TableConditional(DOMAIN, "c", ["a"], torch.from_numpy(rng.dirichlet([1.0] * 2, 2))),
    ]
    return DependencyConditionals(nodes)


def roots(seed=0):
    structure = RootStructure.complete(COUNTS, 3)
    psi = 0.4 * torch.randn(structure.num_terms, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return GeneralizedRootEnergy(structure, psi, TruncatedPoissonFamily(2))


def kernel_of(family, **options):
    """A kernel that needs no compiler where there is one; the engines have tests of their own."""
    if family == "block":
        return BlockGibbs(law_of()[0], **{"engine": "torch", **options})
    return (
        PseudoGibbs(network(), **{"engine": "torch", **options})
        if family == "pseudo"
        else RootGibbs(roots(), **options)
    )


def statistic(family, states):
    """What the kernel tells of draws, from the model itself."""
    if family == "block":
        return law_of()[0].energy(states)
    return network().log_pseudo_prob(states) if family == "pseudo" else -roots().energy(states.double())


def run(kernel, num_draws=30, **options):
    mcmc = MCMC(kernel, num_samples=num_draws, warmup_steps=5, disable_progbar=True, **options)
    mcmc.run()
    return mcmc


# The law


def root_law():
    return torch.softmax(-roots().energy(torch.from_numpy(enumerate_codes(SHAPES["root"])).double()), 0).numpy()


def clamped_law(probs):
    """The law of all states that gives the states with b = high the given probabilities."""
    whole = np.zeros(DOMAIN.cardinalities)
    whole[:, 2] = np.reshape(probs, (2, 2)) / np.sum(probs)
    return whole.reshape(-1)


def stationary(**options):
    return stationary_law(network(), **options).probs.numpy().reshape(-1)


def after(variable):
    return cyclic_laws(network(), ["b", "a", "c"]).after(variable).numpy().reshape(-1)


def block(**options):
    """A kernel with its law, and one of a colder law."""
    law, probs = law_of()
    wrong = HierarchicalLogLinear(HYPERGRAPH, 0.7 * law.theta)
    return (BlockGibbs(law, engine="torch", **options), probs), (BlockGibbs(wrong, engine="torch", **options), probs)


def pseudo(law, wrong, **options):
    """A kernel with its law, and with another one."""
    return (kernel_of("pseudo", **options), law), (kernel_of("pseudo", **options), wrong)


def clamped_block():
    joint = law_of()[1].reshape(DOMAIN.cardinalities)
    kernel = kernel_of("block", clamped={"b": "high"})
    return (kernel, clamped_law(joint[:, 2])), (kernel, clamped_law(joint[:, 1]))


# Each: a kernel with the law that a transition keeps, and a control that fails.
TRANSITIONS = {
    "sites": lambda: block(schedule=GibbsSchedule()),
    "colours": lambda: block(schedule=GibbsSchedule("colours")),
    "interactions": lambda: block(schedule=GibbsSchedule("interactions")),
    "blocks": lambda: block(schedule=GibbsSchedule([["a", "c"], ["b"]])),
    "random": lambda: block(schedule=GibbsSchedule("interactions", scan="random")),
    "clamped block": clamped_block,
    "random scan": lambda: pseudo(
        stationary(scan=WEIGHTS), stationary(scan={"a": 0.8, "b": 0.1, "c": 0.1}), scan=WEIGHTS, num_sweeps=2
    ),
    "sequential scan": lambda: pseudo(after("c"), after("b"), scan=["b", "a", "c"]),
    "clamped network": lambda: pseudo(
        clamped_law(stationary(clamped={"b": "high"})),
        clamped_law(stationary().reshape(DOMAIN.cardinalities)[:, 2]),
        clamped={"b": "high"},
    ),
    "root": lambda: ((RootGibbs(roots()), root_law()), (RootGibbs(roots(seed=5)), root_law())),
}


def counts_after(kernel, law):
    """States after one transition of many chains from a law; every variable that is not clamped must move."""
    shape = SHAPES["root" if isinstance(kernel, RootGibbs) else "block"]
    size = required_draws(len(law), 0.05 if len(law) == 27 else 0.02)
    start = enumerate_codes(shape)[np.random.default_rng(1).choice(len(law), size, p=law)]
    many = kernel.with_chains(size)
    pyro.set_rng_seed(2)
    many.initial_params = {"x": torch.from_numpy(start)}
    many.setup(0)
    found = many.decode(many.sample(many.initial_params))["x"].long().numpy()
    assert (found != start).any(axis=0).sum() >= 3 - len(kernel.clamped)
    return count_states(found, shape)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_one_transition_from_the_exact_law_keeps_it(name):
    (kernel, law), (wrong_kernel, wrong_law) = TRANSITIONS[name]()
    counts = counts_after(kernel, law)
    assert_exact_law(counts, law)
    with pytest.raises(AssertionError):
        assert_exact_law(counts if kernel is wrong_kernel else counts_after(wrong_kernel, law), wrong_law)


def test_a_batch_of_laws_is_sampled_element_by_element():
    law, probs = law_of(6, batch=(3,))
    size = required_draws(probs.shape[-1], 0.05)
    rng = np.random.default_rng(7)
    states = enumerate_codes(DOMAIN.cardinalities)
    kernel = BlockGibbs(law, engine="torch").with_chains(size)
    pyro.set_rng_seed(8)
    kernel.initial_params = {"x": torch.from_numpy(np.stack([states[rng.choice(12, size, p=p)] for p in probs], 1))}
    kernel.setup(0)
    found = kernel.decode(kernel.sample(kernel.initial_params))["x"].numpy()
    assert found.shape == (size, 3, 3)
    for i in range(3):
        assert_exact_law(count_states(found[:, i], DOMAIN.cardinalities), probs[i])
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(found[:, 0], DOMAIN.cardinalities), probs[1])


def test_energy_of_every_draw_is_that_of_its_codes():
    law, _ = law_of(9, batch=(2,))
    kernel = BlockGibbs(law, engine="torch", num_chains=4)
    kernel.setup(1)
    params, codes = kernel.initial_params, []
    for step in range(6):
        if step == 3:  # another kernel moved the site
            params = {"x": torch.zeros(4, 2, 3)}
        params = kernel.sample(params)
        codes.append(kernel.decode(params)["x"])
    energy = torch.tensor(kernel.diagnostics()["sample_stats"]["energy"], dtype=torch.float64)
    assert_close(energy, torch.stack([law.energy(c).sum(-1) for c in codes[1:]]), relative=1e-9)


@FAMILIES
def test_moves_from_outside_and_initial_values_do_not_move_what_is_clamped(family):
    kernel = kernel_of(family, clamped={"a": 1, "b": 2})
    kernel.initial_params = {"x": torch.tensor([0.0, 0.0, 1.0])}
    for free in (1, None):
        kernel.setup(0)
        params = kernel.initial_params
        assert params["x"][:2].tolist() == [1, 2] and free in (None, params["x"][2])
        params["x"][...] = 0  # in place, clamped variables too
        assert kernel.sample(params)["x"][:2].tolist() == [1, 2]
        with raises("out-of-range", None if family == "root" else "states"):
            kernel.sample({"x": torch.tensor([0.0, 0.0, 7.0])})
        kernel.cleanup()
        kernel.initial_params = None


# Pyro's contract


@FAMILIES
def test_in_pyro_mcmc_everything_works(family, capsys):
    kernel = kernel_of(family)
    is_coded, name = family != "root", {"block": "energy", "pseudo": "log_pseudo_prob", "root": "log_q"}[family]
    pyro.set_rng_seed(1)
    mcmc = run(kernel)
    mcmc.summary()
    assert "x[0]" in capsys.readouterr().out
    diagnostics = mcmc.diagnostics()
    assert diagnostics["divergences"] == {"chain 0": []}
    assert diagnostics["x"]["r_hat"].shape == (3,)
    draws = mcmc.get_samples(group_by_chain=True)["x"]
    assert draws.shape == (1, 30, 3) and draws.dtype == (torch.float32 if is_coded else torch.float64)
    states = kernel.decode(mcmc.get_samples())["x"]
    assert states.dtype == (torch.long if is_coded else torch.float64)
    recorded = torch.tensor(diagnostics["sample_stats"]["chain 0"][name], dtype=torch.float64)
    assert_close(recorded, statistic(family, states), relative=1e-9)
    assert set(json.loads(json.dumps(kernel.logging()))) == ({"energy"} if family == "block" else set())
    pickle.loads(pickle.dumps(mcmc))


@FAMILIES
def test_arviz_takes_runs_of_one_chain_and_of_many(family):
    kernel = kernel_of(family, num_sweeps=2)
    drawn = run_mcmc(kernel, 100, burn_in=10, num_chains=4, seed=2, progress=False)
    states, name = drawn.samples["x"], kernel.statistic
    assert states.shape == (4, 100, 3) and drawn.num_divergences == 0
    assert_close(drawn.sample_stats[name], statistic(family, states), relative=1e-9)
    mcmc = run(kernel, 40)
    of_one = [mcmc.diagnostics()["sample_stats"]["chain 0"][name]]
    for backend in ("arviz", "arviz_base"):
        for source, lead, recorded in ((drawn, (4, 100), drawn.sample_stats[name]), (mcmc, (1, 40), of_one)):
            data = to_arviz(source, backend=backend)
            assert get_group(data, "posterior")["x"].shape == (*lead, 3)
            assert np.array_equal(get_group(data, "posterior")["x"], source.get_samples(group_by_chain=True)["x"])
            assert get_group(data, "posterior")["x"].dtype == np.int64
            assert get_group(data, "sample_stats")[name].shape == lead
            assert np.array_equal(get_group(data, "sample_stats")[name], torch.as_tensor(recorded, dtype=torch.float64))
            assert not get_group(data, "sample_stats")["diverging"].any()
    engine = choose_backend("arviz")
    if not engine.is_tree:
        assert engine.data.from_pyro(mcmc).posterior["x"].shape == (1, 40, 3)


def test_diagnosed_draws_of_a_network_have_its_limiting_law():
    drawn = run_mcmc(kernel_of("pseudo"), 300, burn_in=20, num_chains=4, seed=2, progress=False)
    report = diagnose_chains(InteractionHypergraph.from_order(DOMAIN, 1), drawn.samples["x"], edges="all")
    assert report["r_hat"].max() < 1.05
    assert report[["ess_bulk", "ess_tail"]].min().min() > 200
    probs = stationary().reshape(DOMAIN.cardinalities)
    marginals = np.concatenate([probs.sum(tuple({0, 1, 2} - {i})) for i in range(3)])
    uniform = np.concatenate([np.full(n, 1 / n) for n in DOMAIN.cardinalities])
    gaps, controls = (float(((report["mean"] - law).abs() / report["mcse_mean"]).max()) for law in (marginals, uniform))
    assert gaps < norm.isf(FALSE_ALARM_RATE / 2 / 7) < controls


@FAMILIES
def test_the_global_seed_reproduces_and_setup_resets(family):
    kernel, drawn = kernel_of(family), []
    for seed in (1, 1, 2):
        pyro.set_rng_seed(seed)
        drawn.append(run(kernel).get_samples()["x"])
        assert len(kernel.diagnostics()["sample_stats"][kernel.statistic]) == 30
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    pyro.set_rng_seed(1)
    assert torch.equal(run(pickle.loads(pickle.dumps(kernel))).get_samples()["x"], drawn[0])


def test_initial_params_are_taken_once_and_chains_in_turn_differ():
    law, _ = law_of(scale=0.0)
    kernel = BlockGibbs(law, engine="torch", clamped={"a": 1})
    start = torch.tensor([[0, 2, 1], [1, 0, 0]])
    first = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="num_chains=2 is more than available_cpu")
        mcmc = MCMC(kernel, 20, 0, initial_params={"x": start}, num_chains=2, disable_progbar=True)
        mcmc.sampler = type(run(kernel, 1).sampler)(kernel, 20, 0, 2, True, {"x": start})
        original = kernel.setup

        def spy(*arguments):
            original(*arguments)
            first.append(kernel.initial_params["x"].tolist())

        kernel.setup = spy
        mcmc.run()
    assert first == [[1, 2, 1], [1, 0, 0]]
    draws = mcmc.get_samples(group_by_chain=True)["x"]
    assert not torch.equal(draws[0], draws[1])
    assert kernel._given is None


def test_a_law_with_gradients_out_of_reach():
    wide = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
    theta = 0.05 * torch.randn(wide.num_parameters, generator=torch.Generator().manual_seed(0))
    kernel = BlockGibbs(HierarchicalLogLinear(wide, 2 * theta.requires_grad_()), engine="torch")
    pickle.loads(pickle.dumps(kernel))
    assert run(kernel, 5).get_samples()["x"].shape == (5, 60)


def test_reals():
    domain = Domain([Variable(name, kind="positive") for name in "ab"])
    structure = RootStructure.simplified(domain, [("a", "b")])
    psi = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64)
    pyro.set_rng_seed(3)
    draws = run(RootGibbs(GeneralizedRootEnergy(structure, psi, ExponentialFamily()))).get_samples()["x"]
    assert bool((draws > 0).all()) and len(torch.unique(draws)) == 60


def test_a_law_with_conditionals_is_taken_too():
    kernel = PseudoGibbs(SimpleNamespace(conditionals=network()), engine="torch")
    assert kernel.conditionals.domain == DOMAIN


def test_predictive_of_decoded_draws():
    kernel = kernel_of("block", site="state")
    codes = run(kernel, 10).get_samples()
    replayed = Predictive(lambda: pyro.sample("state", law_of()[0]), kernel.decode(codes), return_sites=("state",))()
    assert torch.equal(replayed["state"].reshape(10, 3), codes["state"].long())


# Bad input


@FAMILIES
@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"num_sweeps": 0}, "out-of-range", "num_sweeps"),
        ({"num_sweeps": True}, "out-of-range", "num_sweeps"),
        ({"num_chains": 0}, "out-of-range", "num_chains"),
        ({"clamped": [1]}, "wrong-type", "clamped"),
    ],
)
def test_bad_arguments(family, options, code, argument):
    with raises(code, argument):
        kernel_of(family, **options)


@pytest.mark.parametrize(
    ("make", "argument"), [(BlockGibbs, "law"), (PseudoGibbs, "conditionals"), (RootGibbs, "energy")]
)
def test_other_models_are_refused(make, argument):
    for model in (3, "model", lambda: None):
        with raises("wrong-type", argument):
            make(model)


SITES = ("block", "pseudo")


@pytest.mark.parametrize(
    ("families", "options", "start", "code"),
    [
        (SHAPES, {"clamped": {"d": 1}}, None, "unknown-name"),
        (SITES, {"clamped": {"b": 3}}, None, "out-of-range"),
        (SITES, {"clamped": {"b": "huge"}}, None, "unknown-name"),
        (SITES, {"engine": "gpu"}, None, "unknown-choice"),
        (["block"], {"schedule": GibbsSchedule([["a", "e"]])}, None, "unknown-name"),
        (["block"], {"schedule": "sites"}, None, "wrong-type"),
        (["pseudo"], {"scan": "cyclic"}, None, "unknown-choice"),
        (["pseudo"], {"scan": ["a"]}, None, "missing-part"),
        (["pseudo"], {"scan": {**WEIGHTS, "a": 0.0}}, None, "out-of-range"),
        (SHAPES, {}, {"x": torch.zeros(4)}, "wrong-shape"),
        (SHAPES, {}, {"x": torch.tensor([0.0, 5.0, 0.0])}, "out-of-range"),
        (SHAPES, {}, {"x": torch.tensor([0.5, 0.0, 0.0])}, "out-of-range"),
    ],
)
def test_bad_values_at_setup(families, options, start, code):
    for family in families:
        kernel = kernel_of(family, **options)
        kernel.initial_params = start
        with raises(code):
            kernel.setup(0)


@FAMILIES
def test_misuse_is_told(family):
    made = kernel_of(family, clamped={"a": 1})
    made.setup(0)
    kernel = pickle.loads(pickle.dumps(made))  # without its chain
    with pytest.raises(InputError, match=r"no chain is set up; call setup\(\) first"):
        kernel.sample({"x": torch.zeros(3)})
    with raises("missing-part"):
        _ = kernel.initial_params
    with pytest.raises(InputError, match=f"a {kernel.model_noun} takes no arguments"):
        kernel.setup(0, 1)
    for start, code in (([1], "wrong-type"), ({"y": torch.zeros(3)}, "unknown-name")):
        with raises(code, "initial_params"):
            kernel.initial_params = start
    kernel.setup(0)
    assert kernel.sample(kernel.initial_params)["x"][0] == 1
    if kernel.is_coded:
        with raises("out-of-range", "samples"):
            kernel.decode({"x": torch.tensor([0.5])})


def test_a_network_that_cannot_reach_every_state_is_refused():
    copies = torch.eye(2)
    pair = Domain.from_cardinalities({"a": 2, "b": 2})
    tables = [TableConditional(pair, "a", ["b"], copies), TableConditional(pair, "b", ["a"], copies)]
    with pytest.raises(InputError, match="cannot go between a=0, b=0; a=1, b=1"):
        PseudoGibbs(DependencyConditionals(tables)).setup(0)


def test_a_law_with_impossible_states_is_drawn_from_possible_ones_alone():
    """Against all states, given a clamped variable; control: the law that forgets them."""
    rng = np.random.default_rng(4)
    impossible = rng.random((2, 3, 2)) < 0.4
    impossible[1, 1, 1] = impossible[1, 0, 0] = False
    theta = torch.as_tensor(rng.normal(size=HYPERGRAPH.num_parameters))
    law = HierarchicalLogLinear(HYPERGRAPH, theta, impossible=impossible)
    kernel = BlockGibbs(law, clamped={"a": 1})
    run = run_mcmc(kernel, 200, burn_in=20, num_chains=20, seed=1, progress=False)
    drawn = run.samples["x"].reshape(-1, 3).long()
    counts = torch.zeros(2, 3, 2).index_put_(drawn.T.unbind(0), torch.ones(len(drawn)), True) / len(drawn)
    free = HierarchicalLogLinear(HYPERGRAPH, theta).probs
    for probs, limit in ((law.probs, 0.04), (free, -0.04)):
        given = torch.cat([torch.zeros_like(probs[:1]), probs[1:] / probs[1:].sum()])
        assert (float((counts - given).abs().max()) < abs(limit)) == (limit > 0)
    assert float(counts[torch.as_tensor(impossible)].sum()) == 0
    with raises("impossible", "states"):
        kernel.setup(0)
        kernel.sample({"x": torch.tensor([1.0, *np.argwhere(impossible[1])[0]])})
