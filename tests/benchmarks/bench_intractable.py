"""Posteriors of theta without log Z beside NUTS with an exact one: smallest effective sample size per second.

usage: bench_intractable.py [--chains C] [--draws N] [--append]

Czech autoworkers, all pairs: 21 parameters, 64 cells, 1,841 rows, standard normal prior; and an Ising grid of 32 x 32
spins with one field and one coupling, 20 rows, where log Z is beyond exact methods and auxiliary data come from Gibbs
chains. The effective sample size is
that of the worst parameter over all chains; seconds are those of this process's processor time, which other work on the
machine does not change much, once with burn-in and setup and once for the draws alone. The prototype is a loop of one
chain in NumPy with the same Laplace shape and exact multinomial tables.
"""

import math
import time
from functools import partial

import numpy as np
import pyro
import torch
from harness import about, grid_pairs, markdown, publish, script
from pyro.distributions import Normal
from pyro.ops.stats import effective_sample_size

from pyro_hoim import (
    Domain,
    GibbsChains,
    HierarchicalLogLinear,
    InteractionHypergraph,
    LogLinearEnergy,
    Observations,
    load_table,
)
from pyro_hoim.core.laws.pseudo_likelihood import PseudoLikelihood
from pyro_hoim.inference import (
    Exchange,
    Langevin,
    NoisyExchange,
    NUTSSettings,
    log_linear_model,
    pseudo_model,
    run_mcmc,
    sample_posterior,
    sample_pseudo_posterior,
)
from pyro_hoim.inference.calibration import draw_calibrated
from pyro_hoim.log_linear import LogLinearPseudoLikelihood, normal_prior, parametrization, statistics_of

BURN_IN = 200
SWEEPS = 50  # to an auxiliary data set of the Ising grid


def timed(kernel, chains, draws, burn_in=BURN_IN):
    """Smallest effective sample size, seconds of a run, seconds of its burn-in alone, mean acceptance, draws."""
    run_mcmc(kernel, 1, burn_in=1, num_chains=2, seed=1, progress=False)  # compiles
    seconds = []
    for wanted in (1, draws):
        start = time.process_time()
        run = run_mcmc(kernel, wanted, burn_in=burn_in, num_chains=chains, seed=1, progress=False)
        seconds.append(time.process_time() - start)
    (theta,) = run.samples.values()
    size = float(effective_sample_size(theta, chain_dim=0, sample_dim=1).min())
    rate = run.sample_stats.get("is_accepted")
    return size, seconds[1], seconds[0], "-" if rate is None else f"{float(rate.mean()):.2f}", theta


def line(name, exact, found):
    """A row of the table from the results of :func:`timed`."""
    size, seconds, burn_in, rate, theta = found
    print(name, size, seconds, theta.flatten(0, 1).std(0)[:2].tolist(), flush=True)
    own = f"{size / (seconds - burn_in):.3g}" if burn_in else "-"
    return [name, exact, rate, f"{size:.0f}", f"{size / seconds:.3g}", own]


def once(draw, num_draws):
    """What :func:`timed` gives, of draws without a kernel; the first call compiles."""
    draw(4)
    start = time.process_time()
    found = draw(num_draws)
    seconds = time.process_time() - start
    return float(effective_sample_size(found, chain_dim=0, sample_dim=1).min()), seconds, 0, "-", found


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


class Tied(PseudoLikelihood):
    """A log pseudo-likelihood of few unknowns, of which theta is a linear function (num_unknowns, num_parameters)."""

    argument = "strength"

    def __init__(self, whole, direction):
        self.whole, self.direction = whole, direction
        self.num_unknowns, self.weights = len(direction), whole.weights

    def log_prob(self, vector):
        return self.whole.log_prob(vector @ self.direction)

    def value_and_gradient(self, vector):
        value, gradient = self.whole.value_and_gradient(vector @ self.direction)
        return value, self.direction @ gradient

    def row_scores(self, vector):
        return self.whole.row_scores(vector @ self.direction) @ self.direction.T

    def hessian(self, vector):
        return self.direction @ self.whole.hessian(vector @ self.direction) @ self.direction.T


def czech(chains, draws):
    """Rows of the table of the Czech pairs."""
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    counts, total = statistics_of(data, hypergraph), data.total_count
    program = partial(log_linear_model, hypergraph, normal_prior(hypergraph, dtype=torch.float64), counts, total)
    rows = [
        line("exchange", "yes", timed(Exchange(program), chains, draws)),
        line("exchange, 3 bridges", "yes", timed(Exchange(program, num_bridges=3), chains, draws)),
        line("exchange, autoregressive", "yes", timed(Exchange(program, proposal="autoregressive"), chains, draws)),
        line("noisy, 4 data sets", "no", timed(NoisyExchange(program, 4), chains, draws)),
        line("Langevin, exact gradients", "no", timed(Langevin(program), chains, draws)),
        line("Langevin, kept chains", "no", timed(Langevin(program, gradient="persistent"), chains // 8, draws)),
    ]
    for name, exact, sample in (
        ("NUTS, exact log Z", "yes", sample_posterior),
        ("pseudo, calibrated", "no", sample_pseudo_posterior),
    ):

        def draw(num_draws, sample=sample):
            return sample(hypergraph, data, 1.0, NUTSSettings(4, num_draws), seed=1, progress=False).theta

        found = once(draw, draws)
        rows.append(line(name, exact, found))
    size, seconds = prototype(hypergraph, counts, total, found[-1].numpy())
    return [*rows, ["one chain in NumPy", "yes", "-", f"{size:.0f}", f"{size / seconds:.3g}", "-"]]


def ising(num_rows=20, size=32):
    """Rows of the table of the Ising grid, of field 0.05 and coupling 0.25."""
    domain = Domain.from_cardinalities({f"v{i}": 2 for i in range(size**2)})
    grid = InteractionHypergraph(domain, [(f"v{i}", f"v{j}") for i, j in grid_pairs(size)], closure=True)
    is_pair = torch.tensor([len(edge) == 2 for edge in grid.edges], dtype=torch.float64)
    direction = torch.stack([2**0.5 * (1 - is_pair), 2 * is_pair])  # a table of a pair holds half a coordinate
    model = LogLinearEnergy.from_theta(grid, torch.tensor([0.05, 0.25], dtype=torch.float64) @ direction)
    chains = GibbsChains(model, num_rows, seed=1)
    chains.sweep(5000)
    rows, prior = chains.states, Normal(torch.zeros(2, dtype=torch.float64), 1.0).to_event(1)

    def program():
        strength = pyro.sample("strength", prior)
        with pyro.plate("rows", num_rows):
            pyro.sample("x", HierarchicalLogLinear(grid, strength @ direction), obs=rows)

    likelihood = Tied(LogLinearPseudoLikelihood(grid, Observations(domain, rows)), direction.numpy())

    def pseudo(num_draws):
        options = {"calibrate": "curvature", "seed": 1, "progress": False}
        settings = NUTSSettings(4, num_draws)
        return draw_calibrated(pseudo_model, "theta", prior, likelihood, np.zeros(2), settings, **options).draws

    options = {"proposal": "autoregressive", "num_sweeps": SWEEPS}
    exchange, noisy = Exchange(program, **options), NoisyExchange(program, 2, **options)
    return [
        line("exchange, autoregressive", "no", timed(exchange, 8, 400, 50)),
        line("noisy, 2 data sets", "no", timed(noisy, 8, 250, 50)),
        line("Langevin, 64 kept chains", "no", timed(Langevin(program, num_particles=64), 8, 2000, 100)),
        line("pseudo, calibrated", "no", once(pseudo, 500)),
    ]


def main():
    parser = script(__doc__)
    parser.add_argument("--chains", type=int, default=1024)
    parser.add_argument("--draws", type=int, default=500)
    arguments = parser.parse_args()
    head = ["method", "exact", "acceptance", "smallest ESS", "ESS per second", "without burn-in and setup"]
    what = f"{about()} {arguments.chains} chains of {arguments.draws} draws after {BURN_IN}; processor seconds."
    command = f"bench_intractable.py --chains {arguments.chains} --draws {arguments.draws}"
    text = [f"`python tests/benchmarks/{command}`", "", what, "", "Czech pairs:", ""]
    text += [*markdown(head, czech(arguments.chains, arguments.draws)), ""]
    text += ["Ising, 32 x 32, 8 chains, auxiliary data after 50 sweeps:", "", *markdown(head, ising())]
    publish("Posteriors of theta without log Z", "\n".join(text), arguments.append)


if __name__ == "__main__":
    main()
