"""Posteriors of theta without log Z beside NUTS with an exact one: smallest effective sample size per second.

usage: bench_intractable.py [--chains C] [--draws N] [--append]

Czech autoworkers, all pairs: 21 parameters, 64 cells, 1,841 rows, standard normal prior. The effective sample size is
that of the worst parameter over all chains; seconds are those of this process's processor time, which other work on the
machine does not change much, once with burn-in and setup and once for the draws alone. The prototype is a loop of one
chain in NumPy with the same Laplace shape and exact multinomial tables.
"""

import math
import time
from functools import partial

import numpy as np
import torch
from harness import about, markdown, publish, script
from pyro.ops.stats import effective_sample_size

from pyro_hoim import InteractionHypergraph, load_table
from pyro_hoim.inference import Exchange, NoisyExchange, NUTSSettings, log_linear_model, run_mcmc, sample_posterior
from pyro_hoim.log_linear import normal_prior, parametrization, statistics_of

BURN_IN = 200


def timed(kernel, chains, draws):
    """Smallest effective sample size, seconds of a run, seconds of its burn-in alone, mean acceptance."""
    seconds = []
    for wanted in (1, draws):
        start = time.process_time()
        run = run_mcmc(kernel, wanted, burn_in=BURN_IN, num_chains=chains, seed=1, progress=False)
        seconds.append(time.process_time() - start)
    theta = run.samples["theta"]
    size = float(effective_sample_size(theta, chain_dim=0, sample_dim=1).min())
    return size, seconds[1], seconds[0], float(run.sample_stats["is_accepted"].mean()), theta


def prototype(hypergraph, counts, total, theta, steps=20000):
    """One chain of the exchange algorithm in NumPy, Laplace shape from draws, scale 0.3."""
    cells = np.indices(hypergraph.domain.cardinalities).reshape(len(hypergraph.domain), -1).T
    codings = parametrization(hypergraph)
    basis = codings.to_tables(torch.eye(codings.num("free"), dtype=torch.float64)).numpy()
    design = codings.statistics(torch.from_numpy(cells)).numpy() @ basis.T
    target = counts.numpy() @ basis.T
    factor = np.linalg.cholesky(np.cov(theta.reshape(-1, theta.shape[-1]).T))
    rng, here = np.random.default_rng(0), theta.reshape(-1, theta.shape[-1]).mean(0)
    drawn = np.empty((steps, len(here)))
    start = time.process_time()
    for i in range(steps):
        there = here + 0.3 * factor @ rng.standard_normal(len(here))
        logits = design @ there
        probs = np.exp(logits - logits.max())
        table = rng.multinomial(int(total), probs / probs.sum())
        log_ratio = (there - here) @ (target - design.T @ table) - 0.5 * (there @ there - here @ here)
        if math.log(rng.random()) < log_ratio:
            here = there
        drawn[i] = here
    seconds = time.process_time() - start
    kept = torch.from_numpy(drawn[steps // 10 :]).unsqueeze(0)
    return float(effective_sample_size(kept, chain_dim=0, sample_dim=1).min()), seconds


def main():
    parser = script(__doc__)
    parser.add_argument("--chains", type=int, default=1024)
    parser.add_argument("--draws", type=int, default=500)
    arguments = parser.parse_args()
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    counts, total = statistics_of(data, hypergraph), data.total_count
    program = partial(log_linear_model, hypergraph, normal_prior(hypergraph, dtype=torch.float64), counts, total)
    kernels = {
        "exchange": Exchange(program),
        "exchange, 3 bridges": Exchange(program, num_bridges=3),
        "exchange, autoregressive": Exchange(program, proposal="autoregressive"),
        "noisy, 4 data sets": NoisyExchange(program, 4),
    }
    for kernel in kernels.values():
        run_mcmc(kernel, 1, burn_in=1, num_chains=2, seed=1, progress=False)  # compiles
    rows = []
    for name, kernel in kernels.items():
        size, seconds, burn_in, rate, theta = timed(kernel, arguments.chains, arguments.draws)
        exact = "no" if isinstance(kernel, NoisyExchange) else "yes"
        rows.append(
            [name, exact, f"{rate:.2f}", f"{size:.0f}", f"{size / seconds:.0f}", f"{size / (seconds - burn_in):.0f}"]
        )
    settings = NUTSSettings(num_chains=4, num_draws=arguments.draws)
    start = time.process_time()
    found = sample_posterior(hypergraph, data, 1.0, settings, seed=1, progress=False)
    seconds, size = time.process_time() - start, float(found.ess.min())
    rows.append(["NUTS, exact log Z", "yes", "-", f"{size:.0f}", f"{size / seconds:.0f}", "-"])
    size, seconds = prototype(hypergraph, counts, total, theta.numpy())
    rows.append(["one chain in NumPy", "yes", "-", f"{size:.0f}", f"{size / seconds:.0f}", "-"])
    head = ["method", "exact", "acceptance", "smallest ESS", "ESS per second", "without burn-in and setup"]
    what = f"{about()} {arguments.chains} chains of {arguments.draws} draws after {BURN_IN}; processor seconds."
    text = ["`python tests/benchmarks/bench_intractable.py`", "", what, "", *markdown(head, rows)]
    publish("Posteriors of theta without log Z", "\n".join(text), arguments.append)


if __name__ == "__main__":
    main()
