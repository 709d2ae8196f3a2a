"""Gibbs throughput against thrml (sharded over all cores) and NumPyro, in one run; appends to docs/benchmarks.md.

Models: A1, an Ising grid of 32 x 32 spins; A2, 64 spins with 128 random pairs and 128 random triples; A3, variables of
the mushroom data's cardinalities with 40 random pairs and 20 random triples. Ours runs with a tenth of the variables
clamped, recording the counts of all cells and the energies of all chains after every sweep and after every tenth; the
peers run bare (no clamping, the last state kept). Rates are updates of free variables per second, all chains counted.
Each peer runs in its own virtual environment, named by the environment variable PYRO_HOIM_PEER_THRML or
PYRO_HOIM_PEER_NUMPYRO (path of a Python) or else made under the temporary folder.

    python tests/benchmarks/bench_gibbs.py [--models A1 A2 A3] [--chains 16 512 4096] [--sections thrml numpyro first]
        [--no-append]
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from harness import (
    CORES,
    MUSHROOM,
    Report,
    as_energy,
    first_call,
    grid_pairs,
    median,
    run_peer,
    script,
    subsets,
    write_models,
)

from pyro_hoim.log_linear import GibbsChains
from pyro_hoim.runs import GibbsSchedule


def spin_table(size, weight):
    """Table of weight times the product of +-1 spins."""
    signs = np.array([-1.0, 1.0])
    table = np.array(weight)
    for _ in range(size):
        table = table[..., None] * signs
    return table.astype(np.float32)


def workload(name):
    """Cardinalities, scopes, tables, weights of products (None for A3) and sweeps of one timed call."""
    if name == "A1":
        scopes = grid_pairs(32)
        weights = np.full(len(scopes), 0.3)
        cards, sweeps = [2] * 1024, 40
    elif name == "A2":
        rng = np.random.default_rng(1)
        scopes = subsets(rng, 64, 2, 128) + subsets(rng, 64, 3, 128)
        weights = rng.normal(0, 0.3, len(scopes))
        cards, sweeps = [2] * 64, 150
    else:
        rng = np.random.default_rng(2)
        d = len(MUSHROOM)
        scopes = [(i,) for i in range(d)] + subsets(rng, d, 2, 40) + subsets(rng, d, 3, 20)
        tables = [rng.normal(0, 0.3, [MUSHROOM[i] for i in s]).astype(np.float32) for s in scopes]
        return MUSHROOM, scopes, tables, None, 100
    return cards, scopes, [spin_table(len(s), w) for s, w in zip(scopes, weights, strict=True)], weights, sweeps


def write_workloads(folder, names):
    models = {}
    for name in names:
        cards, scopes, tables, weights, sweeps = workload(name)
        models[name] = {"cards": np.array(cards), "scopes": json.dumps(scopes), "sweeps": np.array(sweeps)}
        models[name] |= {"tables": tables} if weights is None else {"weights": weights}
    return write_models(folder, models)


def our_rate(name, num_chains, thin, *, is_clamped=True):
    """Updates per second and the last states (chains, d)."""
    cards, scopes, tables, _, sweeps = workload(name)
    energy = as_energy((cards, list(zip(scopes, tables, strict=True))))
    names = energy.domain.names
    clamped = {names[i]: 0 for i in range(0, len(names), 10)} if is_clamped else None
    chains = GibbsChains(energy, num_chains, clamped=clamped, schedule=GibbsSchedule("sites"))
    free = sum(len(block) for block in chains.blocks)
    sweeps = max(10, round(10 * sweeps * 512 / num_chains / 10) * 10)  # a call lasts about as long as one of the peer
    seconds, _ = median(lambda: chains.sweep(sweeps, thin=thin, counts=thin > 0, energies=thin > 0), 11, 2)
    return free * sweeps * num_chains / seconds, chains.states.double()


def against_thrml(report, names, chain_counts):
    torch.set_num_threads(CORES)
    with tempfile.TemporaryDirectory() as folder:
        peers = run_peer("gibbs_thrml", write_workloads(folder, names), 5, CORES, *chain_counts)
    for name in names:
        for num_chains in chain_counts:
            found = [r for r in peers if (r["model"], r["chains"]) == (name, num_chains)]
            best = max(r["rate"] for r in found)
            what = f"{name}, {num_chains} chains: per million updates"
            for row in found:
                note = f"{row['rate'] / 1e6:.3g} million updates/s; first call {row['first_call']:.1f} s"
                report.add(what, row["peer"], 1e6 / row["rate"], note=note)
            for thin, clamp in ((1, True), (10, True), (0, False)):
                rate, states = our_rate(name, num_chains, thin, is_clamped=clamp)
                how = f"recorded every {thin} sweeps, a tenth clamped" if thin else "bare"
                note = f"{rate / 1e6:.4g} million updates/s"
                if not clamp:
                    apart = distance(states, found[0]["means"])
                    note += f"; means are at most {apart:.1f} standard errors from the peer's"
                report.add(what, f"ours, {how}", 1e6 / rate, rate / best, note)


def distance(states, means):
    """Largest difference of two sets of means, each over as many chains, in standard errors."""
    error = (2 * states.var(0) / len(states)).sqrt().clamp(min=1e-9)
    return float(((states.mean(0) - torch.tensor(means)).abs() / error).max())


def against_numpyro(report):
    """A2 against DiscreteHMCGibbs, one chain and 64."""
    torch.set_num_threads(CORES)
    with tempfile.TemporaryDirectory() as folder:
        path = write_workloads(folder, ["A2"])
        for num_chains, sweeps in ((1, 2000), (64, 50)):
            (row,) = run_peer("gibbs_numpyro", path, "A2", sweeps, num_chains)
            note = f"{row['rate'] / 1e3:.4g} thousand updates/s, in the first run {row['rate_first'] / 1e3:.4g}"
            what = f"A2, {num_chains} chains: per million updates"
            report.add(what, row["peer"], 1e6 / row["rate"], note=note)
            rate, _ = our_rate("A2", num_chains, 1)
            who, note = "ours, recorded every sweep, a tenth clamped", f"{rate / 1e6:.4g} million updates/s"
            report.add(what, who, 1e6 / rate, rate / row["rate"], note)


FIRST = """
import sys, time
sys.path.insert(0, sys.argv[1])
from bench_gibbs import workload, as_energy, GibbsChains
cards, scopes, tables, _, sweeps = workload(sys.argv[2])
energy = as_energy((cards, list(zip(scopes, tables))))
start = time.perf_counter()
GibbsChains(energy, 512).sweep(10, thin=1, counts=True, energies=True)
print(time.perf_counter() - start)
"""


def first_calls(report, names):
    """Chains made and moved for the first time in a process, with an empty and a filled cache of compiled code."""
    for name in names:
        states = ("nothing compiled before", "compiled code in the cache")
        for state, seconds in zip(states, first_call(FIRST, str(Path(__file__).parent), name), strict=True):
            report.add(f"{name}: first call, {state}", "ours", seconds)


def main():
    parser = script(__doc__, appends=True)
    parser.add_argument("--models", nargs="+", default=["A1", "A2", "A3"])
    parser.add_argument("--chains", nargs="+", type=int, default=[16, 512, 4096])
    parser.add_argument("--sections", nargs="+", default=["thrml", "numpyro", "first"])
    options = parser.parse_args()
    report = Report()
    start = time.perf_counter()
    if "thrml" in options.sections:
        against_thrml(report, options.models, options.chains)
    if "numpyro" in options.sections:
        against_numpyro(report)
    if "first" in options.sections:
        first_calls(report, options.models)
    print(f"{time.perf_counter() - start:.0f} s")
    if not options.no_append:
        report.append("Gibbs sampling")


if __name__ == "__main__":
    main()
