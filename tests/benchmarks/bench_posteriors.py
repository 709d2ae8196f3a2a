"""Posteriors: of theta without log Z, of pseudo-likelihoods, and over structures.

Czech autoworkers, all pairs: 21 parameters, 64 cells, 1,841 rows. The effective sample size is that of the worst
parameter over all chains; seconds are those of this process's processor time, which other work on the machine does not
change much.

    python tests/benchmarks/bench_posteriors.py [--append] [PART] [OPTIONS]
"""

import csv
import json
import os
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pyro
import torch
from harness import PEERS, ROOT, Report, grid_pairs, main, markdown, part, printed
from pyro.distributions import Normal
from pyro.ops.stats import effective_sample_size
from scipy import stats
from test_guide import bound_of, guide_by_score, random_rows

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
    ChainSettings,
    Exchange,
    Langevin,
    NoisyExchange,
    NUTSSettings,
    StructurePrior,
    enumerate_structures,
    log_evidence,
    log_linear_model,
    pseudo_model,
    run_mcmc,
    sample_posterior,
    sample_pseudo_posterior,
    sample_structures,
    structure_model,
)
from pyro_hoim.inference.calibration import calibrated_covariance, draw_calibrated, find_mode, inverse_of
from pyro_hoim.log_linear import Enumeration, LogLinearPseudoLikelihood, normal_prior, statistics_of
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.laws.natural_parameters import fisher_information, solve_natural_parameters

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


def entry(name, exact, found):
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
        entry("exchange", "yes", timed(Exchange(program), chains, draws)),
        entry("exchange, 3 bridges", "yes", timed(Exchange(program, num_bridges=3), chains, draws)),
        entry("exchange, autoregressive", "yes", timed(Exchange(program, proposal="autoregressive"), chains, draws)),
        entry("noisy, 4 data sets", "no", timed(NoisyExchange(program, 4), chains, draws)),
        entry("Langevin, exact gradients", "no", timed(Langevin(program), chains, draws)),
        entry("Langevin, kept chains", "no", timed(Langevin(program, gradient="persistent"), chains // 8, draws)),
    ]
    for name, exact, sample in (
        ("NUTS, exact log Z", "yes", sample_posterior),
        ("pseudo, calibrated", "no", sample_pseudo_posterior),
    ):

        def draw(num_draws, sample=sample):
            return sample(hypergraph, data, 1.0, NUTSSettings(4, num_draws), seed=1, progress=False).theta

        rows.append(entry(name, exact, once(draw, draws)))
    return rows


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
        entry("exchange, autoregressive", "no", timed(exchange, 8, 400, 50)),
        entry("noisy, 2 data sets", "no", timed(noisy, 8, 250, 50)),
        entry("Langevin, 64 kept chains", "no", timed(Langevin(program, num_particles=64), 8, 2000, 100)),
        entry("pseudo, calibrated", "no", once(pseudo, 500)),
    ]


HEAD = "method|exact|acceptance|smallest ESS|ESS per second|without burn-in and setup"


@part("Posteriors of theta without log Z")
def intractable(chains=1024, draws=500):
    """Beside NUTS with an exact log Z: smallest effective sample size per second, with burn-in and setup and without.

    The Czech pairs, standard normal prior; and an Ising grid of 32 x 32 spins with one field and one coupling, 20 rows,
    where log Z is beyond exact methods and auxiliary data come from Gibbs chains.
    """
    tables = [markdown(HEAD.split("|"), rows) for rows in (czech(chains, draws), ising())]
    told = f"Czech pairs, {chains} chains of {draws} draws after {BURN_IN}:"
    grid = "Ising, 32 x 32, 8 chains, auxiliary data after 50 sweeps:"
    return [told, "", *tables[0], "", grid, "", *tables[1]]


METHODS = ("exact", "curvature", "magnitude", "none")
HALF = stats.norm.isf(0.05)


def exact(hypergraph, data, scale):
    """Mode and standard deviations of the normal approximation of the exact posterior."""
    total = data.total_count
    precision = torch.full((hypergraph.num_parameters,), scale**-2, dtype=torch.float64)
    mean = statistics_of(data, hypergraph) / total
    mode = solve_natural_parameters(hypergraph, mean, Enumeration(), precision=precision / total)
    information = total * fisher_information(hypergraph, mode, Enumeration()) + torch.diag(precision)
    return mode.numpy(), np.sqrt(np.diag(inverse_of(information.numpy())))


def covered(hypergraph, data, scale, truth):
    """Whether every parameter is in its interval, by method."""
    mode, deviation = exact(hypergraph, data, scale)
    found = {"exact": np.abs(mode - truth) <= HALF * deviation}
    likelihood = LogLinearPseudoLikelihood(hypergraph, data)
    prior = normal_prior(hypergraph, scale, dtype=torch.float64)
    mode, is_mode = find_mode(likelihood, prior, np.zeros(len(truth)))
    assert is_mode
    for method in METHODS[1:]:
        covariance = calibrated_covariance(likelihood, mode, np.full(len(truth), scale**-2), method)
        found[method] = np.abs(mode - truth) <= HALF * np.sqrt(np.diag(covariance))
    return found


def extreme(shares, number):
    """Coverage of one pair with its exact interval."""
    low, high = stats.binomtest(round(shares * number), number).proportion_ci(0.95, method="exact")
    return f"{shares:.3f} [{low:.3f}, {high:.3f}]"


@part("Coverage of pseudo-posteriors")
def pseudo_coverage(tables=500):
    """Coverage of 90 % intervals over simulated tables: pseudo-posteriors, calibrated and not, and the exact posterior.

    Six binary variables, all pairs, as many rows as in the Czech table. "as Czech": theta is the posterior mode of that
    table, prior scale 1. "from the prior": theta is drawn anew for every table from the prior itself, of scale 0.3, so
    that the exact posterior covers 90 % by construction. Intervals are those of the normal approximation at the mode,
    of the exact posterior, too; nothing is drawn by NUTS. Coverage of all pairs and of all variables together, with its
    standard error over tables; then that of the pair covered least and of the pair covered most, with exact
    (Clopper-Pearson) 95 % intervals, which for an extreme of 15 pairs are too short.
    """
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    is_pair = hypergraph.spread(torch.tensor([len(edge) == 2 for edge in hypergraph.edges])).numpy()
    fixed = exact(hypergraph, data, 1.0)[0]
    report = Report("theta|calibration|all pairs|all variables|pair covered least|pair covered most")
    for name, scale in (("as Czech", 1.0), ("from the prior", 0.3)):
        rng, hits = np.random.default_rng(1), {method: [] for method in METHODS}
        for _ in range(tables):
            truth = fixed if scale == 1.0 else scale * rng.standard_normal(len(fixed))
            logits = design_matrix(hypergraph) @ truth
            probs = np.exp(logits - np.logaddexp.reduce(logits))
            counts = rng.multinomial(int(data.total_count), probs).reshape(data.domain.cardinalities)
            rows = Observations.from_table(data.domain, counts)
            for method, inside in covered(hypergraph, rows, scale, truth).items():
                hits[method].append(inside)
        for method in METHODS:
            inside = np.array(hits[method])
            each = [values.mean(1) for values in (inside[:, is_pair], inside[:, ~is_pair])]
            shares = [f"{v.mean():.3f} ± {v.std(ddof=1) / np.sqrt(len(v)):.3f}" for v in each]
            pairs = inside[:, is_pair].mean(0)
            report.row(name, method, *shares, *(extreme(p, len(inside)) for p in (pairs.min(), pairs.max())))
    return report.lines()


def compared(seed, num_steps):
    """Largest error of inclusion, gap of the bound, largest error of Laplace's evidence, seconds, and the data."""
    data = random_rows(seed)
    structures = StructurePrior(data.domain, space="pairwise")
    listed = enumerate_structures(data, "unit", structures)
    total = float((listed.log_evidence + structures.probs.log()).logsumexp(0))
    program, start = structure_model(data, structures), time.process_time()
    with torch.random.fork_rng():
        guide = guide_by_score(program, num_steps, seed)
        seconds = time.process_time() - start
        bound = bound_of(program, guide)
    off = float((guide.inclusion() - listed.inclusion.mean).abs().max())
    return off, total - bound, seconds, listed


def laplace_error(listed):
    """Largest error of Laplace's evidence on the three best collections, by the bridge."""
    return max(
        abs(log_evidence(m.hypergraph, listed.data, "unit", method="bridge").value - m.log_evidence)
        for m in listed.models(3)
    )


@part("Guides of structures on random programs")
def guides(programs=10, steps=2500):
    """The guide of structures on random programs, beside the list of all collections.

    Program s has 4 or 5 variables of 2 or 3 levels and 100 to 400 rows of a law in which half of the pairs interact,
    all drawn from the seed s; prior of unit information, every set of pairs equally likely (64 or 1,024 of them). The
    guide is fitted by SVI with its own loss over 32 draws (gradient="score"); the list has Laplace's evidence, which
    the bridge checks on the three best collections. Inclusion: largest error of a pair; gap: log evidence less the
    bound.
    """
    report = Report("seed|levels|rows|collections|inclusion off by|gap, nats|s|Laplace off by, nats")
    worst = [0.0, 0.0]
    for seed in range(programs):
        off, gap, seconds, listed = compared(seed, steps)
        worst = [max(worst[0], off), max(worst[1], gap)]
        cards = " x ".join(map(str, listed.data.domain.cardinalities))
        size = [seed, cards, f"{listed.data.total_count:.0f}", f"{listed.num_structures:,}"]
        report.row(*size, f"{off:.3f}", f"{gap:.3f}", f"{seconds:.0f}", f"{laplace_error(listed):.3f}")
    told = f"After {steps} steps. Largest of all: {worst[0]:.3f} and {worst[1]:.3f} nats."
    return [told, "", *report.lines()]


GOLDEN = json.loads((ROOT / "tests" / "golden" / "structure_posteriors.json").read_text(encoding="utf-8"))
PEER = os.environ.get("PYRO_HOIM_PEER_R")


def peer(name, data, order, iterations, seed=1):
    """What the R package says of a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", newline="") as file:
            rows = zip(data.codes.tolist(), data.counts.tolist(), strict=True)
            csv.writer(file).writerows([[*data.domain.names, "count"], *([*row, count] for row, count in rows)])
        (said,) = printed([PEER, PEERS / "structure.R", name, path, order, iterations, seed])
    return said


def letters(data, edge):
    """An interaction by the letters of its variables in schema order."""
    return "".join(sorted("abcdefgh"[data.domain.names.index(name)] for name in edge))


def timed_posterior(data, *arguments, **options):
    """A posterior by chains and its seconds of processor time."""
    start = time.process_time()
    posterior = sample_structures(data, *arguments, **options)
    return posterior, time.process_time() - start


def alcohol():
    """The table of alcohol, hypertension and obesity."""
    says = GOLDEN["alcohol"]
    domain = Domain.from_cardinalities(dict(zip(says["variables"], says["levels"], strict=True)))
    return Observations.from_table(domain, torch.tensor(says["counts"], dtype=torch.float64).reshape(says["levels"]))


def speed(iterations):
    czech = load_table("czech_autoworkers")
    cases = [
        ("unit information, Laplace", "unit", StructurePrior(czech.domain, max_order=3), True),
        ("unit information, jumps with theta", "unit", StructurePrior(czech.domain, max_order=3), False),
        ("conjugate, decomposable", "conjugate:1", StructurePrior(czech.domain, space="decomposable"), True),
    ]
    rows, rates = [], []
    for name, prior, structures, collapsed in cases:
        with warnings.catch_warnings(action="ignore"):  # so few draws only compile the kernels
            timed_posterior(czech, prior, structures, ChainSettings(2, 4, 0), collapsed=collapsed)
        settings = ChainSettings(num_chains=4, num_draws=1000, burn_in=0)
        _, seconds = timed_posterior(czech, prior, structures, settings, collapsed=collapsed, seed=1)
        moves = 4 * 1000 * structures.space.num_free
        rates.append(moves / seconds)
        rows.append([f"ours: {name}", f"{moves:,}", f"{seconds:.1f}", f"{moves / seconds:,.0f}", ""])
    for name, label, where, against in (
        ("conting", "conting 1.7, jumps with theta", 3, rates[:2]),
        ("bayesloglin", "bayesloglin 1.0.1, Laplace", "Hierarchical", rates[:1]),
        ("bayesloglin", "bayesloglin 1.0.1, decomposable", "Decomposable", rates[2:]),
    ):
        if PEER is None:
            rows.append([label, "not run", "", "", ""])
            continue
        said = peer(name, czech, where, iterations // 50)
        rate = said["iterations"] / said["seconds"]
        ratios = " and ".join(f"{ours / rate:,.0f}" for ours in against)
        rows.append([label, f"{said['iterations']:,}", f"{said['seconds']:.1f}", f"{rate:,.0f}", ratios])
    head = ["method", "moves", "seconds", "moves per second", "ours over it"]
    what = (
        "Czech autoworkers; every run begins with no collection scored. Ratios are to ours with the same law (conting: "
        "without and with theta):"
    )
    return [what, "", *markdown(head, rows)]


def agreement(iterations):
    text = []
    for name, data in (("Czech autoworkers", load_table("czech_autoworkers")), ("alcohol table", alcohol())):
        structures = StructurePrior(data.domain, max_order=3)
        settings = ChainSettings(num_chains=4, num_draws=4000, burn_in=500)
        laplace, jumps = (
            sample_structures(data, "unit", structures, settings, collapsed=c, seed=1) for c in (True, False)
        )
        said = peer("conting", data, 3, iterations) if PEER else None
        theirs = {}
        if said:
            theirs = {
                term.replace(":", "").lower(): probability
                for term, probability in zip(said["terms"], said["probability"], strict=True)
            }
        rows, gaps = [], [0.0, 0.0]
        for edge in structures.space.candidates:
            key = letters(data, edge)
            found = [float(p.inclusion[edge]) for p in (laplace, jumps)]
            if said:
                gaps = [max(gap, abs(value - theirs[key])) for gap, value in zip(gaps, found, strict=True)]
            if max(found) > 0.02:
                rows.append([key, *(f"{value:.3f}" for value in found), f"{theirs[key]:.3f}" if said else "not run"])
        head = ["interaction", "Laplace", "jumps with theta", f"conting, {iterations:,} iterations"]
        text += [f"{name}: inclusion ({laplace.status}, {jumps.status})", "", *markdown(head, rows), ""]
        if said:
            text += [f"Largest difference from conting over all candidates: {gaps[0]:.3f} and {gaps[1]:.3f}.", ""]
    return text


@part("Posteriors over interactions")
def structures(parts=("speed", "agreement"), iterations=50_000):
    """Beside conting (``--iterations`` of it) and bayesloglin: moves per second, and inclusion.

    Czech autoworkers: 6 binary variables, 1,841 rows, letters a to f in schema order; alcohol, hypertension and
    obesity: 4 x 2 x 3 cells, 491 rows. Prior of unit information, every
    hierarchical collection of interactions of at most three variables equally likely. The peers run
    under the Rscript that PYRO_HOIM_PEER_R names, with R_LIBS as it is; without it their rows say "not run".
    """
    known = {"speed": speed, "agreement": agreement}
    return [line for name in parts for line in (*known[name](iterations), "")]


if __name__ == "__main__":
    main(__doc__)
