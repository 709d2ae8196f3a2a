"""The Gibbs kernels in Pyro's own runners: chains in processes, streamed statistics."""

import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import forkserver
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc import StreamingMCMC

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, Variable
from pyro_hoim.dependency_network import DependencyConditionals, TableConditional
from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily, RootStructure
from pyro_hoim.inference import BlockGibbs, MixedGibbs, PseudoGibbs, RootGibbs

GRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 2)


def program():
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
    x = pyro.sample("x", HierarchicalLogLinear(GRAPH, scale * torch.tensor([-1.0, -1.0, 1.0])))
    pyro.sample("y", dist.Normal(x.float(), scale).to_event(1), obs=torch.ones(2))


def kernel(name, engine="torch"):
    if name == "mixed":
        return MixedGibbs(program, {"max_tree_depth": 3})
    if name == "root":
        domain = Domain([Variable(letter, kind="count") for letter in "ab"])
        structure = RootStructure.simplified(domain, [("a", "b")])
        return RootGibbs(GeneralizedRootEnergy(structure, torch.tensor([1.0, 0.5, 0.2]), PoissonFamily()))
    domain = Domain.from_cardinalities({"a": 2, "b": 2 if name == "binary" else 3})
    if name != "pseudo":
        graph = InteractionHypergraph.saturated(domain)
        law = HierarchicalLogLinear(graph, torch.linspace(-0.5, 0.5, graph.num_parameters))
        return BlockGibbs(law, num_sweeps=2, engine=engine)
    a = TableConditional(domain, "a", ["b"], torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]))
    b = TableConditional(domain, "b", ["a"], torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))
    return PseudoGibbs(DependencyConditionals([a, b]), num_sweeps=2, engine=engine)


@pytest.mark.parametrize("name", ["block", "pseudo", "root"])
def test_streaming_mcmc_runs(name):
    mcmc = StreamingMCMC(kernel(name), num_samples=20, warmup_steps=2, disable_progbar=True)
    mcmc.run()
    (statistics,) = mcmc.get_statistics().values()
    assert statistics["mean"].shape == (2,)


SCRIPT = """
    import multiprocessing, os, sys
    import pyro, torch, torch.multiprocessing
    from pyro.infer import MCMC

    name, method, engine, folder = sys.argv[1:]
    sys.path.insert(0, folder)
    from test_gibbs_processes import kernel

    class Telling:
        def diagnostics(self):
            return {**super().diagnostics(), "process": os.getpid()}

    found = kernel(name, engine)
    Told = type("Told", (Telling, type(found)), {})
    Told.__qualname__, Told.__module__ = "Told", "__main__"
    found.__class__ = Told

    if __name__ == "__main__":
        torch.set_num_threads(2)
        torch.multiprocessing.cpu_count = multiprocessing.cpu_count = lambda: 4
        parent = kernel(name, engine)
        parent = parent.with_chains(512) if hasattr(parent, "with_chains") else parent
        parent.setup(0)
        parent.sample(parent.initial_params)  # kernels and threads have run before the processes start
        runs = []
        for _ in range(1 if method == "spawn" else 2):
            pyro.set_rng_seed(3)
            mcmc = MCMC(found, num_samples=50, warmup_steps=5, num_chains=2, mp_context=method, disable_progbar=True)
            assert type(mcmc.sampler).__name__ == "_MultiSampler"
            mcmc.run()
            runs.append(mcmc.get_samples(group_by_chain=True)["x"])
        mcmc.summary()
        diagnostics = mcmc.diagnostics()
        processes = set(diagnostics["process"].values())
        assert len(processes) == 2 and os.getpid() not in processes, processes
        assert torch.isfinite(diagnostics["x"]["r_hat"]).all()
        assert set(diagnostics["divergences"]) == {"chain 0", "chain 1"}
        assert len(diagnostics["sample_stats"]["chain 1"][getattr(found, "statistic", "lp")]) == 50
        draws = runs[0]
        assert torch.equal(draws, runs[-1])
        assert draws.shape == (2, 50, 2)
        assert not torch.equal(draws[0], draws[1])
        assert found.decode({"x": draws})["x"].dtype == (torch.float64 if name == "root" else torch.long)
        print("chains ran in", len(processes), "processes")
"""

SLOW = pytest.mark.slow  # each process imports everything


@pytest.mark.parametrize(
    ("name", "method", "engine"),
    [
        ("binary", "fork", "auto"),
        pytest.param("block", "fork", "auto", marks=SLOW),
        pytest.param("block", "fork", "torch", marks=SLOW),
        pytest.param("block", "spawn", "auto", marks=SLOW),
        pytest.param("block", "spawn", "torch", marks=SLOW),
        pytest.param("pseudo", "fork", "compiled", marks=SLOW),
        pytest.param("pseudo", "spawn", "torch", marks=SLOW),
        pytest.param("root", "fork", "compiled", marks=SLOW),
        pytest.param("mixed", "spawn", "torch", marks=SLOW),
    ],
)
def test_chains_run_in_processes_with_streams_of_their_own(tmp_path, name, method, engine):
    if method == "fork" and sys.platform != "linux":
        pytest.skip("no forked processes here")
    program, folder = textwrap.dedent(SCRIPT), str(Path(__file__).parent)
    if method == "fork":
        written = forkserver.run(program, tmp_path / "output", name, method, engine, folder)
    else:
        script = tmp_path / "chains.py"
        script.write_text(program)
        command = [sys.executable, str(script), name, method, engine, folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        written = done.stdout
    assert "chains ran in 2 processes" in written


FRESH = """
    import pickle, sys, torch, pyro
    sys.path.insert(0, sys.argv[1])
    kernel = pickle.load(open(sys.argv[2], "rb"))
    pyro.set_rng_seed(1)
    kernel.setup(1)
    params = kernel.initial_params
    for _ in range(3):
        params = kernel.sample(params)
    assert set(params) == {"scale", "x"} and kernel.decode(params)["x"].dtype == torch.long
    print("done")
"""


def test_a_mixed_kernel_goes_to_a_fresh_process(tmp_path):
    """What spawned chains need, without Pyro's two workers."""
    made = kernel("mixed")
    made.setup(0)  # the chain that is under way stays behind
    (tmp_path / "kernel.pkl").write_bytes(pickle.dumps(made))
    folder = str(Path(__file__).parent)
    found = forkserver.run(textwrap.dedent(FRESH), tmp_path / "output", folder, str(tmp_path / "kernel.pkl"))
    assert "done" in found
