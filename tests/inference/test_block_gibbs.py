"""The block Gibbs kernel: exact starts, Pyro's contract and its faults, programs it must refuse, processes."""

from __future__ import annotations

import functools
import json
import pickle
import subprocess
import sys
import textwrap
import warnings

import forkserver
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC, Predictive
from pyro.infer.mcmc import StreamingMCMC

from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.inference import BlockGibbs as _BlockGibbs, RecordingNUTS
from pyro_hoim.interop import choose_backend, get_group, to_arviz
from pyro_hoim.log_linear import AnnealedImportance, HierarchicalLogLinear
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    assert_close,
    assert_exact_law,
    count_states,
    enumerate_codes,
    exact_table,
    random_tables,
    required_draws,
)

DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["low", "mid", "high"], "c": ["off", "on"]})
HYPERGRAPH = InteractionHypergraph(DOMAIN, [["a", "b"], ["b", "c"], ["a", "c"]], closure=True)
STATES = enumerate_codes(DOMAIN.cardinalities)
BlockGibbs = functools.partial(_BlockGibbs, engine="torch")  # needs no compiler; the engines have tests of their own
SCHEDULES = {
    "sites": GibbsSchedule(),
    "colours": GibbsSchedule("colours"),
    "interactions": GibbsSchedule("interactions"),
    "blocks": GibbsSchedule([["a", "c"], ["b"]]),
    "random": GibbsSchedule("interactions", scan="random"),
}


def law_of(seed: int = 0, scale: float = 0.8, batch: tuple[int, ...] = ()) -> tuple[HierarchicalLogLinear, np.ndarray]:
    """A random law and its table of probabilities (*batch, states) by enumeration."""
    tables = random_tables(HYPERGRAPH, np.random.default_rng(seed), scale=scale, batch_shape=batch)
    law = HierarchicalLogLinear.from_tables(HYPERGRAPH, torch.from_numpy(tables))
    return law, np.exp(exact_table(HYPERGRAPH, tables)).reshape(*batch, -1)


def program(law: HierarchicalLogLinear) -> None:
    pyro.sample("state", law)


def run(kernel: _BlockGibbs, num_draws: int = 30, **options) -> MCMC:
    mcmc = MCMC(kernel, num_samples=num_draws, warmup_steps=5, disable_progbar=True, **options)
    mcmc.run()
    return mcmc


# The law


def draws_after(kernel: _BlockGibbs, start: np.ndarray, seed: int) -> np.ndarray:
    """States after one transition from given states (R, d)."""
    kernel = kernel.with_chains(len(start))
    pyro.set_rng_seed(seed)
    kernel.initial_params = {"x": torch.from_numpy(start)}
    kernel.setup(0)
    return kernel.decode(kernel.sample(kernel.initial_params))["x"].numpy()


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_transition_from_the_exact_law_keeps_it(name):
    law, probs = law_of()
    size = required_draws(len(probs), 0.02)
    start = STATES[np.random.default_rng(1).choice(len(probs), size, p=probs)]
    after = draws_after(BlockGibbs(law, schedule=SCHEDULES[name]), start, 2)
    assert_exact_law(count_states(after, DOMAIN.cardinalities), probs)
    assert (after != start).any(axis=0).all()


def test_another_law_does_not_keep_it():
    law, probs = law_of()
    size = required_draws(len(probs), 0.02)
    start = STATES[np.random.default_rng(1).choice(len(probs), size, p=probs)]
    colder = HierarchicalLogLinear(HYPERGRAPH, 0.7 * law.theta)
    after = draws_after(BlockGibbs(colder), start, 2)
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(after, DOMAIN.cardinalities), probs)


@pytest.mark.parametrize("wrong", [False, True])
def test_clamped_variables_stay_and_the_rest_follows_the_conditional_law(wrong):
    law, probs = law_of(3)
    joint = probs.reshape(DOMAIN.cardinalities)
    conditional = joint[:, 2] / joint[:, 2].sum()
    size = required_draws(conditional.size, 0.02)
    pick = np.random.default_rng(4).choice(conditional.size, size, p=conditional.reshape(-1))
    start = np.insert(enumerate_codes((2, 2))[pick], 1, 2, axis=1)
    after = draws_after(BlockGibbs(law, clamped={"b": 1 if wrong else "high"}), start, 5)
    assert set(after[:, 1]) == {1 if wrong else 2}
    counts = count_states(after[:, [0, 2]], (2, 2))
    if wrong:
        with pytest.raises(AssertionError):
            assert_exact_law(counts, conditional.reshape(-1))
    else:
        assert_exact_law(counts, conditional.reshape(-1))


def test_a_batch_of_laws_is_sampled_element_by_element():
    law, probs = law_of(6, batch=(3,))
    size = required_draws(probs.shape[-1], 0.05)
    rng = np.random.default_rng(7)
    start = np.stack([STATES[rng.choice(probs.shape[-1], size, p=p)] for p in probs], axis=1)
    after = draws_after(BlockGibbs(law), start, 8)
    assert after.shape == (size, 3, 3)
    for i in range(3):
        assert_exact_law(count_states(after[:, i], DOMAIN.cardinalities), probs[i])
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(after[:, 0], DOMAIN.cardinalities), probs[1])


def test_energy_of_every_draw_is_that_of_its_codes():
    law, _ = law_of(9, batch=(2,))
    kernel = BlockGibbs(law, num_chains=4)
    kernel.setup(1)
    params, codes = kernel.initial_params, []
    for step in range(6):
        if step == 3:  # another kernel moved the site
            params = {"x": torch.zeros(4, 2, 3)}
        params = kernel.sample(params)
        codes.append(kernel.decode(params)["x"])
    energy = torch.tensor(kernel.diagnostics()["sample_stats"]["energy"], dtype=torch.float64)
    expected = torch.stack([law.energy(c).sum(-1) for c in codes[1:]])
    assert_close(energy, expected, relative=1e-9)


def test_a_move_from_outside_is_the_start_of_the_next_transition():
    law, _ = law_of(10, scale=0.0)
    kernel = BlockGibbs(law, schedule=GibbsSchedule([["a"], ["b"], ["c"]]), clamped={"a": "yes", "b": 2})
    kernel.setup(0)
    params = kernel.initial_params
    params["x"][...] = 0  # in place, clamped variables too
    assert kernel.sample(params)["x"][:2].tolist() == [1, 2]
    with pytest.raises(InputError, match="states"):
        kernel.sample({"x": torch.tensor([0.0, 0.0, 7.0])})


# Pyro's contract


def test_in_pyro_mcmc_everything_works(capsys):
    law, _ = law_of()
    kernel = BlockGibbs(law)
    pyro.set_rng_seed(1)
    mcmc = run(kernel)
    mcmc.summary()
    assert "x[0]" in capsys.readouterr().out
    diagnostics = mcmc.diagnostics()
    assert diagnostics["divergences"] == {"chain 0": []}
    assert diagnostics["x"]["r_hat"].shape == (3,)
    draws = mcmc.get_samples(group_by_chain=True)["x"]
    assert draws.shape == (1, 30, 3)
    assert draws.dtype == torch.float32
    codes = kernel.decode(mcmc.get_samples())["x"]
    assert codes.dtype == torch.long
    assert_close(diagnostics["sample_stats"]["chain 0"]["energy"], law.energy(codes), relative=1e-9)
    assert json.loads(json.dumps(kernel.logging()))["energy"]
    pickle.loads(pickle.dumps(mcmc))


def test_arviz_takes_the_run():
    law, _ = law_of()
    kernel = BlockGibbs(program, num_sweeps=2)
    mcmc = MCMC(kernel, num_samples=40, warmup_steps=0, num_chains=1, disable_progbar=True)
    mcmc.run(law)
    for backend in ("arviz", "arviz_base"):
        data = to_arviz(mcmc, backend=backend)
        assert get_group(data, "posterior")["state"].dtype == np.int64
        assert get_group(data, "sample_stats")["energy"].shape == (1, 40)
        assert not get_group(data, "sample_stats")["diverging"].any()
    engine = choose_backend("arviz")
    if not engine.is_tree:
        data = engine.data.from_pyro(mcmc)
        assert data.posterior["state"].shape == (1, 40, 3)


def test_the_global_seed_reproduces_and_setup_resets():
    law, _ = law_of()
    kernel, drawn = BlockGibbs(law), []
    for seed in (1, 1, 2):
        pyro.set_rng_seed(seed)
        drawn.append(run(kernel).get_samples()["x"])
        assert len(kernel.diagnostics()["sample_stats"]["lp"]) == 30
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    again = pickle.loads(pickle.dumps(kernel))
    pyro.set_rng_seed(1)
    assert torch.equal(run(again).get_samples()["x"], drawn[0])


def test_initial_params_are_taken_once_and_chains_in_turn_differ():
    law, _ = law_of(scale=0.0)
    kernel = BlockGibbs(law, clamped={"a": 1})
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

        kernel.setup = spy  # type: ignore[method-assign]
        mcmc.run()
    assert first == [[1, 2, 1], [1, 0, 0]]
    draws = mcmc.get_samples(group_by_chain=True)["x"]
    assert not torch.equal(draws[0], draws[1])
    assert kernel._given is None


def test_streaming_mcmc_runs():
    law, _ = law_of()
    mcmc = StreamingMCMC(BlockGibbs(law), num_samples=20, warmup_steps=2, disable_progbar=True)
    mcmc.run()
    (statistics,) = mcmc.get_statistics().values()
    assert statistics["mean"].shape == (3,)


def test_a_law_with_gradients_and_a_law_out_of_reach():
    wide = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
    theta = 0.05 * torch.randn(wide.num_parameters, generator=torch.Generator().manual_seed(0))
    leaf = theta.requires_grad_()
    kernel = BlockGibbs(HierarchicalLogLinear(wide, 2 * leaf))
    pickle.loads(pickle.dumps(kernel))
    assert run(kernel, 5).get_samples()["x"].shape == (5, 60)

    def model():
        pyro.sample("x", HierarchicalLogLinear(wide, 2 * leaf))
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.tensor(0.3))

    assert run(BlockGibbs(model), 5).get_samples()["x"].shape == (5, 60)

    def observed_law():
        pyro.sample("x", HierarchicalLogLinear(wide, theta.detach(), partition=AnnealedImportance()))
        pyro.sample("z", HierarchicalLogLinear(wide, theta.detach()), obs=torch.zeros(60))

    assert run(BlockGibbs(observed_law), 5).get_samples()["x"].shape == (5, 60)


# Programs


def test_a_plate_and_independent_observations():
    law, probs = law_of()

    def model(data):
        with pyro.plate("data", len(data)):
            pyro.sample("y", dist.Normal(0.0, 1.0), obs=data)
        with pyro.plate("field", 4):
            pyro.sample("state", law)
        pyro.deterministic("twice", 2 * torch.ones(2))

    kernel = BlockGibbs(model)
    kernel.setup(0, torch.randn(5, generator=torch.Generator().manual_seed(1)))
    assert kernel.site == "state"
    assert kernel.initial_params["state"].shape == (4, 3)
    mcmc = MCMC(kernel, 600, 50, disable_progbar=True)
    pyro.set_rng_seed(0)
    mcmc.run(torch.zeros(5))
    counts = count_states(kernel.decode(mcmc.get_samples())["state"], DOMAIN.cardinalities)
    assert 0.5 * np.abs(counts / counts.sum() - probs).sum() < 0.1
    grouped = BlockGibbs(lambda: pyro.sample("state", law.expand([4]).to_event(1)))
    grouped.setup(0)
    assert grouped.initial_params["state"].shape == (4, 3)


def xor(state: torch.Tensor) -> torch.Tensor:
    return (state[..., 0] + state[..., 2]) % 2


def rare(state: torch.Tensor) -> torch.Tensor:
    return 1.0 * (state.sum(-1) > 300)


DEPENDENT = {
    "mean": lambda x: pyro.sample("y", dist.Normal(1.0 * x[..., 1], 1.0), obs=torch.tensor(0.0)),
    "xor": lambda x: pyro.sample("y", dist.Normal(1.0 * xor(x), 1.0), obs=torch.tensor(0.0)),
    "rare": lambda x: pyro.sample("y", dist.Normal(rare(x), 1.0), obs=torch.tensor(0.0)),
    "law": lambda x: pyro.sample("y", HierarchicalLogLinear(HYPERGRAPH, law_of()[0].theta * x[0]), obs=torch.zeros(3)),
    "law value": lambda x: pyro.sample("y", law_of()[0], obs=x),
    "value": lambda x: pyro.sample("y", dist.Normal(0.0, 1.0), obs=1.0 * x[..., 0]),
    "factor": lambda x: pyro.factor("y", -1.0 * x[..., 0]),
    "branch": lambda x: pyro.sample("y", dist.Normal(float(int(x[..., 1])), 1.0), obs=torch.tensor(0.0)),
    "site": lambda x: pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.tensor(0.0)) if x[..., 0] > 0 else None,
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_observations_that_depend_on_the_value_are_refused(name):
    law, _ = law_of()
    with pytest.raises(InputError, match=r"\['y'\] depend on the latent site 'x'.*MixedGibbs"):
        BlockGibbs(lambda: DEPENDENT[name](pyro.sample("x", law))).setup(0)


def test_random_programs_without_dependence_are_not_refused():
    law, _ = law_of()

    def model():
        x = pyro.sample("x", law)
        noise = torch.randn(3)
        pyro.sample("y", dist.Normal(noise, 1.0).to_event(1), obs=torch.zeros(3))
        pyro.deterministic("sum", x.sum())

    draws = []
    for _ in range(2):
        pyro.set_rng_seed(7)
        kernel = BlockGibbs(model)
        kernel.setup(0)
        assert kernel.site == "x"
        draws.append(kernel.sample(kernel.initial_params)["x"])
        energy = kernel.diagnostics()["sample_stats"]["energy"][-1]
        assert_close(torch.tensor(energy), law.energy(draws[-1]), relative=1e-5)
    assert torch.equal(*draws)


def two_laws() -> None:
    law, _ = law_of()
    pyro.sample("x", law)
    pyro.sample("z", law)


def with_parameter() -> None:
    theta = pyro.sample("theta", dist.Normal(torch.zeros(HYPERGRAPH.num_parameters), 1.0).to_event(1))
    pyro.sample("x", HierarchicalLogLinear(HYPERGRAPH, theta))


def without_law() -> None:
    pyro.sample("theta", dist.Normal(0.0, 1.0))


def scaled() -> None:
    law, _ = law_of()
    with pyro.poutine.scale(scale=2.0):
        pyro.sample("x", law)


def masked() -> None:
    law, _ = law_of()
    with pyro.poutine.mask(mask=torch.tensor(False)):
        pyro.sample("x", law)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (two_laws, r"found also \['z'\]"),
        (with_parameter, r"found also \['theta'\].*MixedGibbs"),
        (without_law, r"expected a latent HierarchicalLogLinear site, found the latent sites \['theta'\]"),
        (scaled, "masked, scaled"),
        (masked, "masked, scaled"),
    ],
)
def test_other_programs_are_refused(model, message):
    state = torch.get_rng_state()
    with pytest.raises(InputError, match=message):
        BlockGibbs(model).setup(0)
    assert state is not None


# Bad arguments


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_sweeps": 0}, InputError, "num_sweeps: expected a whole number from 1"),
        ({"num_sweeps": True}, InputError, "num_sweeps: expected a whole number from 1"),
        ({"num_chains": 0}, InputError, "num_chains: expected a whole number from 1"),
        ({"schedule": "sites"}, InputTypeError, "schedule: expected a GibbsSchedule"),
        ({"clamped": [1]}, InputTypeError, "clamped: expected a mapping"),
        ({"model": 3}, InputTypeError, "model: expected a log-linear law or a Pyro program"),
    ],
)
def test_bad_arguments(options, error, message):
    law, _ = law_of()
    with pytest.raises(error, match=message):
        BlockGibbs(**{"model": law, **options})


@pytest.mark.parametrize(
    ("options", "start", "error", "message"),
    [
        ({"clamped": {"d": 1}}, None, UnknownNameError, "'d'"),
        ({"clamped": {"b": 3}}, None, InputError, "0 to 2"),
        ({"clamped": {"b": "huge"}}, None, UnknownNameError, "huge"),
        ({"schedule": GibbsSchedule([["a", "e"]])}, None, UnknownNameError, "'e'"),
        ({"engine": "gpu"}, None, InputError, "engine: expected"),
        ({}, {"y": torch.zeros(3)}, InputError, r"expected values of 'x' alone, received \['y'\]"),
        ({}, {"x": torch.zeros(4)}, InputError, "expected shape"),
        ({}, {"x": torch.tensor([0.0, 5.0, 0.0])}, InputError, "whole numbers from 0 to 2"),
        ({}, {"x": torch.tensor([0.5, 0.0, 0.0])}, InputError, "whole numbers"),
    ],
)
def test_bad_values_at_setup(options, start, error, message):
    law, _ = law_of()
    kernel = BlockGibbs(law, **options)

    def begin() -> None:
        kernel.initial_params = start
        kernel.setup(0)

    with pytest.raises(error, match=message):
        begin()


def test_misuse_is_told():
    law, _ = law_of()
    kernel = BlockGibbs(law)
    with pytest.raises(InputError, match=r"call setup\(\) first"):
        kernel.sample({"x": torch.zeros(3)})
    with pytest.raises(InputError, match=r"call setup\(\) first"):
        _ = kernel.initial_params
    with pytest.raises(InputError, match="a law takes no arguments"):
        kernel.setup(0, 1)
    with pytest.raises(InputTypeError, match="initial_params"):
        kernel.initial_params = [1]  # type: ignore[assignment]
    with pytest.raises(InputError, match="samples: expected whole numbers"):
        kernel.decode({"x": torch.tensor([0.5])})


def test_recording_nuts_is_untouched():
    mcmc = MCMC(RecordingNUTS(without_law), num_samples=10, warmup_steps=10, disable_progbar=True)
    mcmc.run()
    assert len(mcmc.diagnostics()["sample_stats"]["chain 0"]["lp"]) == 10


def test_predictive_of_decoded_draws():
    law, _ = law_of()
    kernel = BlockGibbs(program)
    mcmc = MCMC(kernel, 10, 0, disable_progbar=True)
    mcmc.run(law)
    replayed = Predictive(program, kernel.decode(mcmc.get_samples()), return_sites=("state",))(law)
    assert torch.equal(replayed["state"].reshape(10, 3), mcmc.get_samples()["state"].long())


# Processes

SCRIPT = """
    import multiprocessing, os, sys
    import torch, torch.multiprocessing
    import pyro
    from pyro.infer import MCMC
    from pyro_hoim.log_linear import HierarchicalLogLinear
    from pyro_hoim.inference import BlockGibbs
    from pyro_hoim.schema import Domain
    from pyro_hoim.structure import InteractionHypergraph

    HYPERGRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities({cardinalities}), 2)
    THETA = torch.linspace(-0.5, 0.5, HYPERGRAPH.num_parameters)

    def model(theta):
        pyro.sample("state", HierarchicalLogLinear(HYPERGRAPH, theta))

    class Telling(BlockGibbs):
        def diagnostics(self):
            return {{**super().diagnostics(), "process": os.getpid()}}

    if __name__ == "__main__":
        torch.set_num_threads(2)
        method, engine = sys.argv[1:]
        torch.multiprocessing.cpu_count = multiprocessing.cpu_count = lambda: 4
        kernel = Telling(model, num_sweeps=2, engine=engine)
        parent = BlockGibbs(HierarchicalLogLinear(HYPERGRAPH, THETA), num_chains=512, engine=engine)
        parent.setup(0)
        parent.sample(parent.initial_params)  # kernels and threads have run before the processes start
        runs = []
        for _ in range(1 if method == "spawn" else 2):
            pyro.set_rng_seed(3)
            mcmc = MCMC(kernel, num_samples=50, warmup_steps=5, num_chains=2, mp_context=method, disable_progbar=True)
            assert type(mcmc.sampler).__name__ == "_MultiSampler"
            mcmc.run(THETA)
            runs.append(mcmc.get_samples(group_by_chain=True)["state"])
        mcmc.summary()
        found = set(mcmc.diagnostics()["process"].values())
        assert len(found) == 2 and os.getpid() not in found, found
        first = runs[0]
        assert torch.equal(first, runs[-1])
        assert first.shape == (2, 50, len(HYPERGRAPH.domain))
        assert not torch.equal(first[0], first[1])
        assert kernel.decode({{"state": first}})["state"].dtype == torch.long
        print("chains ran in", len(found), "processes")
"""


def case(method: str, engine: str, cardinalities: list[int], *marks: pytest.MarkDecorator) -> object:
    forks = pytest.mark.skipif(method == "fork" and sys.platform != "linux", reason="processes are not forked here")
    return pytest.param(method, engine, cardinalities, marks=[forks, *marks])


@pytest.mark.parametrize(
    ("method", "engine", "cardinalities"),
    [
        case("spawn", "torch", [2, 3, 2], pytest.mark.slow),
        case("fork", "auto", [2, 2, 2]),
        case("spawn", "auto", [2, 3, 2], pytest.mark.slow),
        case("fork", "auto", [2, 3, 2], pytest.mark.slow),
        case("fork", "torch", [2, 3, 2], pytest.mark.slow),
    ],
)
def test_chains_run_in_processes(tmp_path, method, engine, cardinalities):
    program = textwrap.dedent(SCRIPT).format(cardinalities=cardinalities)
    if method == "fork":
        written = forkserver.run(program, tmp_path / "output", method, engine)
    else:
        script = tmp_path / "chains.py"
        script.write_text(program)
        written = subprocess.check_output([sys.executable, str(script), method, engine], text=True, timeout=240)
    assert "chains ran in 2 processes" in written
