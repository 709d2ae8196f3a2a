"""Fits of small tables against statsmodels and dit, the posterior gradient at two sizes; appends to docs/benchmarks.md.

Tables: 2^6 with all three-way margins, 5^4 with all two-way margins (Poisson counts about random log-normal means plus
one half). A fit of ours is the whole call, with the check of existence and the result object; the peers get their
design or distribution ready-made, as we get observations and hypergraph. statsmodels runs in this interpreter; dit
in its own virtual environment, named by PYRO_HOIM_PEER_DIT (path of a Python) or else made under the temporary folder.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_fit.py [--repeats 31] [--no-append]
"""

import os
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import statsmodels.api as sm
import torch
from harness import Report, in_turns, median, run_peer, script
from pyro.infer.mcmc.util import initialize_model

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.inference import NUTSSettings
from pyro_hoim.inference.posterior import log_linear_model, sample_posterior
from pyro_hoim.log_linear import fit, normal_prior, parametrization
from pyro_hoim.log_linear.fitting import design
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

CASES = [("2^6, all three-way", [2] * 6, 3), ("5^4, all two-way", [5] * 4, 2)]


def corner_design(hypergraph):
    matrix = design.design_matrix(hypergraph) @ parametrization(hypergraph).matrix("corner", "free").numpy()
    return np.column_stack([np.ones(len(matrix)), matrix])


def tables():
    rng = np.random.default_rng(0)
    for name, shape, order in CASES:
        mean = np.exp(rng.normal(0, 0.7, shape))
        yield name, order, rng.poisson(mean / mean.mean() * 20).astype(float) + 0.5


def fits(add, repeats):
    cases = list(tables())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables.npz"
        np.savez(path, **{f"{i}/{order}": table for i, (_, order, table) in enumerate(cases)})
        peers = run_peer("fit_dit", path, min(repeats, 7), OMP_NUM_THREADS="1")
    for (name, order, table), peer in zip(cases, peers, strict=True):
        domain = Domain.from_cardinalities(list(table.shape))
        hypergraph = InteractionHypergraph.from_order(domain, order)
        data = Observations.from_table(domain, weights=table)
        start = time.perf_counter()
        result = fit(hypergraph, data)
        cold = time.perf_counter() - start
        ours, fastest = median(lambda h=hypergraph, d=data: fit(h, d), repeats)
        size = f"{hypergraph.num_parameters} parameters"
        add(name, "pyro_hoim", ours, fastest, 1.0, f"{size}, {result.num_iterations} Newton steps")
        add(name, "pyro_hoim, first call", cold, cold, ours / cold, "matrices built")
        matrix, counts = corner_design(hypergraph), table.ravel()
        model = sm.GLM(counts, matrix, family=sm.families.Poisson())
        error = np.abs(model.fit().mu / counts.sum() - result.probs.numpy()).max()
        seconds, fast = median(lambda m=matrix, c=counts: sm.GLM(c, m, family=sm.families.Poisson()).fit(), repeats)
        who = f"statsmodels {version('statsmodels')} GLM Poisson"
        add(name, who, seconds, fast, seconds / ours, f"largest difference of probabilities {error:.0e}")
        error = np.abs(np.array(peer["probs"]) - result.probs.numpy()).max()
        who, note = f"{peer['peer']} maxent_dist", f"largest difference of probabilities {error:.0e}"
        add(name, who, peer["seconds"], peer["fastest"], peer["seconds"] / ours, note)


def potential(hypergraph, counts, total):
    """Potential function of NUTS for the posterior and a point of its domain."""
    args = (hypergraph, normal_prior(hypergraph, 1.0), counts, total)
    initial, function, _, _ = initialize_model(log_linear_model, args)
    return function, {name: value.detach() for name, value in initial.items()}


def gradient_of(function, point):
    theta = {name: value.clone().requires_grad_() for name, value in point.items()}
    return torch.autograd.grad(function(theta), list(theta.values()))


def allocated(call):
    """Bytes that one call allocates through PyTorch."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    return sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())


def posterior(add, repeats):
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    calls, memory, steps = {}, {}, {}
    for factor in (1, 1000):
        total = int(data.total_count) * factor
        counts = data.marginal_counts(hypergraph.edges) * factor
        function, point = potential(hypergraph, counts, total)
        calls[total] = lambda f=function, p=point: gradient_of(f, p)
        median(calls[total], 50)
        memory[total] = allocated(calls[total])
        settings = NUTSSettings(num_draws=100, burn_in=200, num_chains=1)
        run = sample_posterior(hypergraph, counts, total_count=total, settings=settings)
        steps[total] = np.mean(run.mcmc.diagnostics()["sample_stats"]["chain 0"]["n_steps"])
    times = {total: seconds for total, (seconds, _) in in_turns(calls, 40 * repeats).items()}
    for total, seconds in times.items():
        note = f"{memory[total] / 1024:.1f} KiB allocated; NUTS: {steps[total]:.1f} leapfrog steps a draw (100 draws)"
        what = f"Czech two-way posterior gradient, N = {total:,}"
        add(what, "pyro_hoim", seconds, None, seconds / times[int(data.total_count)], note)


def main():
    parser = script(__doc__, appends=True)
    parser.add_argument("--repeats", type=int, default=31)
    options = parser.parse_args()
    torch.set_num_threads(1)
    limit = os.environ.get("OMP_NUM_THREADS")
    threads = "One thread" if limit == "1" else f"OMP_NUM_THREADS {limit or 'not set'}"
    legend = f"{threads}. Milliseconds, median and fastest; the ratio is the peer's time over ours (in the last rows: "
    report = Report(("what", "who", "ms", "fastest", "ratio", "note"), f"{legend}over the time at the smaller N).")

    def add(what, who, seconds, fastest, ratio, note):
        least = "" if fastest is None else f"{fastest * 1e3:.2f}"
        report.row(what, who, f"{seconds * 1e3:.2f}", least, f"{ratio:.3g}", note)

    fits(add, options.repeats)
    posterior(add, options.repeats)
    if not options.no_append:
        report.append("Fits")


if __name__ == "__main__":
    main()
