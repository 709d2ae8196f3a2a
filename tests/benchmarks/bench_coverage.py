"""Coverage of the Monte Carlo errors of `sample_chains`: random models, and two wells with few and long visits.

usage: bench_coverage.py [--models N] [--append]

Random models: 2 to 5 variables of 2 or 3 levels, all interactions of up to three of them, tables normal with a scale
between 0.3 and 3 (log-uniform); 4 to 200 chains, 200 to 5,000 sweeps (log-uniform) after half as many of burn-in.
Wells: two spins, a log odds ratio of 2 a, a difference of fields of 2.975; 100 seeds. Exact values come from
enumeration; runs whose chains differ (`is_mixed` not True) are left out. Batches alone: errors from the variance of
batches only, with one over the number of looks where a cell never changed; the negative control.
"""

import warnings

import numpy as np
import torch
from harness import markdown, publish, script

from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy, sample_chains
from pyro_hoim.log_linear import Enumeration
from pyro_hoim.runs import sampling as recorder

WELLS = ((7, 100, 1000), (8, 100, 1000), (7, 16, 2000), (8, 64, 4000), (8, 20, 4000))


def wells(log_odds):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 2)
    field, pair = torch.tensor([2.975, -2.975]) / 2, torch.tensor([1.0, -1.0, -1.0, 1.0]) * log_odds / 2
    return LogLinearEnergy(hypergraph, torch.cat([field, field, pair]).double())


def errors_in_units(model, num_chains, num_draws, *, seed, engine="auto", **options):
    """|error| over the standard error of every cell by both rules, and whether the chains agree."""
    recorders = []
    summary = recorder.Recorder.summary

    def kept(self):
        recorders.append(self)
        return summary(self)

    recorder.Recorder.summary = kept
    try:
        run = sample_chains(GibbsChains(model, num_chains, seed=seed, engine=engine), num_draws, **options)
    finally:
        recorder.Recorder.summary = summary
    sums, looks = recorders[0]._sums, recorders[0]._num_batches
    total, states = run.num_draws * run.chains.num_chains, looks * run.chains.num_chains
    is_constant = (sums["total"] == 0) | (sums["total"] == total)
    batches = torch.where(is_constant, 1 / states, (sums["squares"] / (looks * (looks - 1))).sqrt()).reshape(-1)
    exact = Enumeration().expectations(model)
    gap = (run.eta.reshape(-1) - exact).abs()
    return (gap / run.std_error.reshape(-1)).numpy(), (gap / batches).numpy(), exact.numpy(), run.is_mixed is True


def random_runs(number):
    rng = np.random.default_rng(0)

    def between(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    for seed in range(number):
        cards = rng.integers(2, 4, int(rng.integers(2, 6))).tolist()
        hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities(cards), min(3, len(cards)))
        tables = between(0.3, 3) * torch.from_numpy(rng.standard_normal(hypergraph.num_terms))
        sweeps = int(between(200, 5000))
        model = LogLinearEnergy(hypergraph, tables)
        yield errors_in_units(model, int(between(4, 200)), sweeps, burn_in=sweeps // 2, seed=seed, engine="tables")


def main():
    parser = script(__doc__)
    parser.add_argument("--models", type=int, default=400)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    runs = [run for run in random_runs(arguments.models) if run[3]]
    share = np.concatenate([np.minimum(run[2], 1 - run[2]) for run in runs])
    title = (
        f"`python tests/benchmarks/bench_coverage.py --models {arguments.models}`: errors of `sample_chains` over "
        f"their standard errors; {len(runs)} random models whose chains agree, {len(share)} cells."
    )
    head = "cells with min(p, 1 - p); number; beyond 2; beyond 3; beyond 5; batches alone: beyond 3; beyond 5"
    lines = [title, "", *markdown(head.split("; "))]
    both = [np.concatenate([run[k] for run in runs]) for k in (0, 1)]
    for low, high in ((0.05, 0.5), (0.005, 0.05), (0.0, 0.005)):
        chosen = (share >= low) & (share <= high) if high == 0.5 else (share >= low) & (share < high)
        ours, batches = (found[chosen] for found in both)
        lines.append(
            f"| {low:g} to {high:g} | {chosen.sum()} | {(ours > 2).mean():.2%} | {(ours > 3).mean():.3%} "
            f"| {(ours > 5).mean():.3%} | {(batches > 3).mean():.2%} | {(batches > 5).mean():.2%} |"
        )
    for k, name in ((0, "stated errors"), (1, "batches alone")):
        lines += ["", f"Models with a cell beyond 5, {name}: {np.mean([run[k].max() > 5 for run in runs]):.2%}."]
    head = "wells: a, chains, sweeps; p; seeds whose chains agree; all within 3; a cell beyond 5"
    lines += ["", *markdown([*head.split("; "), "batches alone: within 3", "beyond 5"])]
    for log_odds, chains, sweeps in WELLS:
        model = wells(log_odds)
        found = [errors_in_units(model, chains, sweeps, burn_in=500, seed=seed) for seed in range(100)]
        found = [run for run in found if run[3]]
        ours, batches = (np.array([run[k].max() for run in found]) for k in (0, 1))
        lines.append(
            f"| {log_odds}, {chains}, {sweeps} | {found[0][2][0]:.5f} | {len(found)} | {(ours < 3).mean():.0%} "
            f"| {(ours > 5).mean():.0%} | {(batches < 3).mean():.0%} | {(batches > 5).mean():.0%} |"
        )
    publish("Errors of chains", "\n".join(lines), arguments.append)


if __name__ == "__main__":
    main()
