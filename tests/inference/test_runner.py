"""The runner: chains as a dimension, integers as integers, seeds, any kernel of Pyro."""

import functools
import random

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import HMC, MCMC, NUTS
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph
from pyro_hoim.inference import BlockGibbs as _BlockGibbs, MCMCRun, RecordingNUTS, VectorizedKernel, run_mcmc
from pyro_hoim.testing import (
    assert_close,
    assert_exact_law,
    count_states,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

HYPERGRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
TABLES = random_tables(HYPERGRAPH, np.random.default_rng(0))
LAW = HierarchicalLogLinear.from_tables(HYPERGRAPH, torch.from_numpy(TABLES))
BlockGibbs = functools.partial(_BlockGibbs, engine="torch")
run_quietly = functools.partial(run_mcmc, progress=False)


def scale_model(data=None):
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    loc = pyro.sample("loc", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    pyro.sample("y", dist.Normal(loc, scale).to_event(1), obs=torch.zeros(2) if data is None else data)


class Counter(MCMCKernel):
    """Counts upwards in integers and floats; has none of the optional attributes."""

    def __init__(self):
        self.start = {"n": torch.tensor([0, 10]), "x": torch.tensor(0.5)}
        self.calls = []

    @property
    def initial_params(self):
        return self.start

    @initial_params.setter
    def initial_params(self, params):
        self.start = params

    def setup(self, warmup_steps, *args, **kwargs):
        self.calls.append(f"setup {warmup_steps} {args} {kwargs}")

    def cleanup(self):
        self.calls.append("cleanup")

    def diagnostics(self):
        return None

    def sample(self, params):
        return {name: value + 1 for name, value in params.items()}


# Chains as a dimension


def test_all_chains_together_follow_the_law():
    probs = np.exp(exact_table(HYPERGRAPH, TABLES)).reshape(-1)
    size = required_draws(len(probs), 0.02)
    run = run_quietly(BlockGibbs(LAW, num_sweeps=8), 1, burn_in=1, num_chains=size, seed=4)
    assert run.samples["x"].shape == (size, 1, 2)
    assert_exact_law(count_states(run.samples["x"][:, 0], (2, 3)), probs)
    wrong = run_quietly(BlockGibbs(LAW, clamped={"x0": 0}), 1, burn_in=1, num_chains=size, seed=4)
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(wrong.samples["x"][:, 0], (2, 3)), probs)


def test_block_gibbs_keeps_integers_and_statistics():
    law = LAW.expand([4])
    run = run_quietly(BlockGibbs(law), 25, burn_in=3, num_chains=7, seed=1)
    codes = run.samples["x"]
    assert (codes.shape, codes.dtype) == ((7, 25, 4, 2), torch.long)
    assert_close(run.sample_stats["energy"], LAW.energy(codes).sum(-1), relative=1e-9)
    assert_close(run.sample_stats["lp"], -run.sample_stats["energy"])
    assert not run.sample_stats["diverging"].any()
    assert (run.num_chains, run.num_draws, run.burn_in, run.num_divergences) == (7, 25, 3, 0)
    assert isinstance(BlockGibbs(law), VectorizedKernel)
    assert run.get_samples()["x"].shape == (175, 4, 2)
    assert torch.equal(run.get_samples(group_by_chain=True)["x"], codes)
    assert repr(run) == "MCMCRun(7 chains, 25 draws, sites: x (4, 2))"
    assert set(run.diagnostics()["divergences"]) == {f"chain {i}" for i in range(7)}


def test_the_number_of_chains_is_the_kernels_own_when_not_given():
    assert run_quietly(BlockGibbs(LAW, num_chains=6), 2).num_chains == 6
    assert run_quietly(BlockGibbs(LAW), 2, burn_in=0).num_chains == 4
    assert run_quietly(BlockGibbs(LAW, num_chains=6), 2, num_chains=3).num_chains == 3


def test_initial_values_reach_every_chain():
    start = torch.tensor([[0, 2], [1, 0]])
    frozen = BlockGibbs(LAW, clamped={"x1": torch.tensor(1)})
    run = run_quietly(frozen, 1, burn_in=0, num_chains=2, seed=0, initial_params={"x": start})
    assert run.samples["x"][:, 0, 1].tolist() == [1, 1]
    run = run_quietly(Counter(), 2, burn_in=1, num_chains=2, initial_params={"n": start, "x": torch.zeros(2)})
    assert run.samples["n"].tolist() == [[[2, 4], [3, 5]], [[3, 2], [4, 3]]]


# Any kernel


def test_a_bare_kernel_runs_chain_after_chain():
    kernel = Counter()
    run = run_quietly(kernel, 3, burn_in=2, num_chains=2, model_args=[5], model_kwargs={"a": 1})
    assert kernel.calls == ["setup 2 (5,) {'a': 1}", "cleanup"] * 2
    assert (run.samples["n"].dtype, run.samples["n"][1].tolist()) == (torch.long, [[3, 13], [4, 14], [5, 15]])
    assert (run.samples["x"].tolist(), run.sample_stats, run.diagnostics()) == ([[3.5, 4.5, 5.5]] * 2, {}, {})


@pytest.mark.parametrize("kernel", [NUTS, functools.partial(HMC, num_steps=4), RecordingNUTS])
def test_nuts_gives_the_draws_that_pyro_gives(kernel):
    data = torch.tensor([0.3, -0.2])
    run = run_quietly(kernel(scale_model), 5, burn_in=5, num_chains=1, seed=3, model_args=(data,))
    assert (run.samples["scale"] > 0).all()
    pyro.set_rng_seed(int(np.random.SeedSequence([3, 1]).generate_state(1)[0]))
    mcmc = MCMC(kernel(scale_model), num_samples=5, warmup_steps=5, disable_progbar=True)
    mcmc.run(data)
    for name, value in mcmc.get_samples(group_by_chain=True).items():
        assert torch.equal(run.samples[name], value)
    assert run.sample_stats["diverging"].shape == (1, 5)
    if kernel is RecordingNUTS:
        assert run.sample_stats["n_steps"].shape == (1, 5)


def test_save_params_keep_their_names_in_any_order():
    kernel = NUTS(scale_model)
    kernel.save_params = ["scale"]
    run = run_quietly(kernel, 5, burn_in=5, num_chains=1, seed=3)
    whole = run_quietly(NUTS(scale_model), 5, burn_in=5, num_chains=1, seed=3)
    assert set(run.samples) == {"scale"}
    assert torch.equal(run.samples["scale"], whole.samples["scale"])
    kernel.save_params = ["scale", "loc"]  # unsorted: Pyro's MCMC would exchange the values
    both = run_quietly(kernel, 5, burn_in=5, num_chains=1, seed=3)
    assert torch.equal(both.samples["loc"], whole.samples["loc"])


# Seeds


@pytest.mark.parametrize("make", [lambda: BlockGibbs(LAW), lambda: NUTS(scale_model)])
def test_seeds(make):
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    options = {"burn_in": 3, "num_chains": 2}
    name = "x" if isinstance(make(), _BlockGibbs) else "loc"
    first, second, other = (run_quietly(make(), 8, seed=seed, **options).samples[name] for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    pyro.set_rng_seed(7)
    global_first = run_quietly(make(), 8, **options).samples[name]
    global_second = run_quietly(make(), 8, **options).samples[name]
    pyro.set_rng_seed(7)
    assert torch.equal(run_quietly(make(), 8, **options).samples[name], global_first)
    assert not torch.equal(global_first, global_second)


def test_a_chain_does_not_depend_on_the_number_of_chains():
    one, two = (run_quietly(NUTS(scale_model), 5, burn_in=5, num_chains=n, seed=1).samples["loc"] for n in (1, 2))
    assert torch.equal(one[0], two[0])


def test_an_error_restores_the_generators_and_cleans_up():
    class Broken(Counter):
        def sample(self, params):
            torch.rand(3)
            raise RuntimeError("broken")

    before, kernel = torch.get_rng_state(), Broken()
    with pytest.raises(RuntimeError, match="broken"):
        run_quietly(kernel, 3, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert kernel.calls[-1] == "cleanup"


def test_an_outer_program_does_not_see_the_run():
    def outer():
        run_quietly(NUTS(scale_model), 1, burn_in=1, num_chains=1, seed=1)
        pyro.sample("z", dist.Normal(0.0, 1.0))

    assert "loc" not in pyro.poutine.trace(outer).get_trace().nodes


def test_progress_goes_to_standard_error(capsys):
    run_mcmc(BlockGibbs(LAW), 3, burn_in=2, seed=1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "5/5" in captured.err
    run_quietly(BlockGibbs(LAW), 3, burn_in=2, seed=1)
    assert capsys.readouterr().err == ""


# Bad arguments


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"kernel": LAW}, "wrong-type", "kernel"),
        ({"num_draws": 0}, "out-of-range", "num_draws"),
        ({"burn_in": -1}, "out-of-range", "burn_in"),
        ({"num_chains": 0}, "out-of-range", "num_chains"),
        ({"num_chains": 2.0}, "out-of-range", "num_chains"),
        ({"seed": -1}, "out-of-range", "seed"),
        ({"seed": 2**63}, "out-of-range", "seed"),
        ({"initial_params": {"x": torch.zeros(3, 2)}}, "wrong-shape", "initial_params['x']"),
        ({"initial_params": {"x": 1.0}}, "wrong-type", "initial_params['x']"),
        ({"initial_params": [1]}, "wrong-type", "initial_params"),
        ({"model_args": (1,)}, "conflict", "setup"),
    ],
)
def test_bad_arguments(options, code, argument):
    with raises(code, argument):
        run_quietly(**{"kernel": BlockGibbs(LAW), "num_draws": 3, **options})


def test_the_result_is_a_value():
    run = run_quietly(BlockGibbs(LAW), 2, burn_in=0, num_chains=1, seed=1)
    assert isinstance(run, MCMCRun)
    with pytest.raises(AttributeError):
        run.seed = 2
