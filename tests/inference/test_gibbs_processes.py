"""Kernels of root models and dependency networks in Pyro's own runners: chains in processes, streamed statistics."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from pyro.infer.mcmc import StreamingMCMC

from pyro_hoim.dependency_network import DependencyConditionals, TableConditional
from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily, RootStructure
from pyro_hoim.inference import PseudoGibbs, RootGibbs
from pyro_hoim.schema import Domain, Variable


def kernel(name: str, engine: str = "torch") -> PseudoGibbs | RootGibbs:
    if name == "root":
        domain = Domain([Variable(letter, kind="count") for letter in "ab"])
        structure = RootStructure.simplified(domain, [("a", "b")])
        return RootGibbs(GeneralizedRootEnergy(structure, torch.tensor([1.0, 0.5, 0.2]), PoissonFamily()))
    domain = Domain.from_cardinalities({"a": 2, "b": 3})
    a = TableConditional(domain, "a", ["b"], torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]))
    b = TableConditional(domain, "b", ["a"], torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))
    return PseudoGibbs(DependencyConditionals([a, b]), num_sweeps=2, engine=engine)


@pytest.mark.parametrize("name", ["pseudo", "root"])
def test_streaming_mcmc_runs(name: str) -> None:
    mcmc = StreamingMCMC(kernel(name), num_samples=20, warmup_steps=2, disable_progbar=True)
    mcmc.run()
    (statistics,) = mcmc.get_statistics().values()
    assert statistics["mean"].shape == (2,)


SCRIPT = """
    import multiprocessing, os, sys
    import pyro, torch, torch.multiprocessing
    from pyro.infer import MCMC

    sys.path.insert(0, sys.argv[4])
    from test_gibbs_processes import kernel

    class Telling:
        def diagnostics(self):
            return {**super().diagnostics(), "process": os.getpid()}

    found = kernel(sys.argv[1], sys.argv[3])
    Told = type("Told", (Telling, type(found)), {})
    Told.__qualname__, Told.__module__ = "Told", "__main__"
    found.__class__ = Told

    if __name__ == "__main__":
        torch.multiprocessing.cpu_count = multiprocessing.cpu_count = lambda: 4
        pyro.set_rng_seed(3)
        mcmc = MCMC(found, num_samples=50, warmup_steps=5, num_chains=2, mp_context=sys.argv[2], disable_progbar=True)
        assert type(mcmc.sampler).__name__ == "_MultiSampler"
        mcmc.run()
        mcmc.summary()
        diagnostics = mcmc.diagnostics()
        processes = set(diagnostics["process"].values())
        assert len(processes) == 2 and os.getpid() not in processes, processes
        assert torch.isfinite(diagnostics["x"]["r_hat"]).all()
        assert len(diagnostics["sample_stats"]["chain 1"][found.statistic]) == 50
        draws = mcmc.get_samples(group_by_chain=True)["x"]
        assert draws.shape == (2, 50, 2)
        assert not torch.equal(draws[0], draws[1])
        is_coded = sys.argv[1] == "pseudo"
        assert found.decode({"x": draws})["x"].dtype == (torch.long if is_coded else torch.float64)
        print("chains ran in", len(processes), "processes")
"""


@pytest.mark.slow  # each process imports everything; a log-linear model does the same in every run
@pytest.mark.parametrize(
    ("name", "method", "engine"),
    [("pseudo", "spawn", "torch"), ("pseudo", "fork", "compiled"), ("root", "fork", "compiled")],
)
def test_chains_run_in_processes_with_streams_of_their_own(tmp_path: Path, name: str, method: str, engine: str) -> None:
    if method == "fork" and sys.platform != "linux":
        pytest.skip("no forked processes here")
    script = tmp_path / "chains.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), name, method, engine, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "chains ran in 2 processes" in done.stdout
