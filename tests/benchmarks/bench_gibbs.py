"""Chains: throughput beside other programs, a step of training, and the stated errors of their averages.

Models: A1, an Ising grid of 32 x 32 spins; A2, 64 spins with 128 random pairs and 128 random triples; A3, variables of
the mushroom data's cardinalities with 40 random pairs and 20 random triples. Rates are updates of free variables per
second, all chains counted. Each peer runs in its own virtual environment, named by the environment variable
PYRO_HOIM_PEER_THRML or PYRO_HOIM_PEER_NUMPYRO (path of a Python) or else made under the temporary folder.

    python tests/benchmarks/bench_gibbs.py [--append] [peers | networks | training-step | coverage] [OPTIONS]
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import warnings
from functools import partial
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
    in_turns,
    main,
    markdown,
    median,
    part,
    run_peer,
    write_models,
)

from pyro_hoim import Domain, InteractionHypergraph, sample_chains
from pyro_hoim.datasets import load_mushroom
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    PseudoGibbsChains,
    learn_network,
)
from pyro_hoim.log_linear import Enumeration, GibbsChains, LogLinearEnergy, Poset, gradient_steps, parametrization
from pyro_hoim.runs import GibbsSchedule, sampling as recorder

from support.hard_models import subsets


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


@part("Gibbs sampling")
def peers(models=("A1", "A2", "A3"), chains=(16, 512, 4096), sections=("thrml", "numpyro", "first")):
    """Against thrml, whose chains are sharded over all cores, and NumPyro.

    Ours runs with a tenth of the variables clamped, recording the counts of all cells and the energies of all chains
    after every sweep and after every tenth; the peers run bare (no clamping, the last state kept).
    """
    report = Report()
    if "thrml" in sections:
        against_thrml(report, models, chains)
    if "numpyro" in sections:
        against_numpyro(report)
    if "first" in sections:
        # Chains made and moved for the first time in a process, with an empty and a filled cache of compiled code
        for name in models:
            states = ("nothing compiled before", "compiled code in the cache")
            for state, seconds in zip(states, first_call(FIRST, str(Path(__file__).parent), name), strict=True):
                report.add(f"{name}: first call, {state}", "ours", seconds)
    return report.lines()


MOST = 3.0
"""How many times slower than the table kernel is allowed."""


def random_network(num_splits=10):
    """Decision graphs that split a random leaf on a random variable."""
    rng = np.random.default_rng(3)
    domain = Domain.from_cardinalities({f"v{i}": levels for i, levels in enumerate(MUSHROOM)})
    nodes = []
    for variable in domain:
        others = [v.name for v in domain if v.name != variable.name and v.cardinality > 1]
        graph = DecisionGraph(domain, variable.name)
        for _ in range(num_splits):
            graph = graph.split(int(rng.integers(graph.num_leaves)), str(rng.choice(others)))
        probs = rng.dirichlet(np.ones(variable.cardinality), graph.num_leaves)
        nodes.append(LeafConditional(graph, torch.from_numpy(probs)))
    return DependencyConditionals(nodes)


def learned_network():
    """The network learned from the mushroom data, or None where there are none."""
    folder = os.environ.get("PYRO_HOIM_DATA")
    if not folder or not Path(folder).is_dir():
        return None
    return learn_network(load_mushroom()).conditionals


@part("Pseudo-Gibbs sampling")
def networks(chains=(16, 512, 4096)):
    """Chains of dependency networks beside the table kernel with A3; a million updates of free variables, none clamped.

    Decision graphs over variables of the mushroom data's cardinalities that were grown at random (ten splits per
    variable), and those learned from the data where PYRO_HOIM_DATA names a folder that has them. "Recorded" counts the
    levels of all variables after every sweep, and for the table kernel the cells of all its interactions. All
    contenders take turns. The ratio is that of the processor times of the table kernel and of ours; it is to be at
    least a third.
    """
    torch.set_num_threads(CORES)
    report, slowest = Report(), 0.0
    cards, scopes, tables, _, sweeps = workload("A3")
    energy = as_energy((cards, list(zip(scopes, tables, strict=True))))
    graphs = {"random graphs": random_network(), "learned graphs": learned_network()}
    flags = {"bare": {}, "recorded": {"thin": 1, "counts": True}}
    for num_chains in chains:
        length = max(10, sweeps * 2 * 512 // num_chains)
        contenders = {"log-linear tables": GibbsChains(energy, num_chains, engine="tables")}
        for name, network in graphs.items():
            for scan in ("sequential", "random") if network is not None else ():
                contenders[f"{name}, {scan} scan"] = PseudoGibbsChains(network, num_chains, scan=scan, check=False)
        calls = {
            (name, how): partial(runs.sweep, length, **flags[how]) for name, runs in contenders.items() for how in flags
        }
        times = in_turns(calls)
        million = len(contenders["log-linear tables"].blocks) * length * num_chains / 1e6
        for (name, how), (elapsed, used) in times.items():
            ratio = times["log-linear tables", how][1] / used
            slowest = max(slowest, 1 / ratio)
            note = f"{million / elapsed:.4g} million updates/s, {million / used:.4g} per second of a processor"
            what = f"mushroom cardinalities, {num_chains} chains: per million updates"
            report.add(what, f"{name}, {how}", elapsed / million, ratio, note)
    verdict = "within" if slowest <= MOST else "ABOVE"
    told = f"Slowest: {slowest:.2f} times the table kernel's time, {verdict} the limit of {MOST:g}."
    return [*report.lines(), "", told]


def literal_step(members, theta, states, sweeps, rng):
    """Sweeps and eta by sums over all sets, of states (M, n) and members (|B|, n), both boolean."""
    for _ in range(sweeps):
        for i in range(states.shape[1]):
            states[:, i] = True
            with_i = members[:, i]
            active = (states.astype(np.float32) @ members[with_i].T.astype(np.float32)) == members[with_i].sum(1)
            states[:, i] = rng.random(len(states)) < 1 / (1 + np.exp(-(active @ theta[with_i])))
    return np.array([states[:, member].all(1).mean() for member in members])


def cached_step(chains, theta, poset, where, strides, sweeps):
    """Ours: new weights, chains with cached energies, then one transform of the counted states."""
    graph = chains.hypergraph
    chains.set_model(LogLinearEnergy(graph, parametrization(graph).corner_tables(theta)))
    chains.sweep(sweeps)
    shares = torch.bincount(chains.states.long() @ strides, minlength=len(poset)).double() / chains.num_chains
    return poset.sums(shares, "above")[where]


@part("A training step of a higher-order Boltzmann machine")
def training_step(program=None, orders=(1, 2, 4, 7, 10), chains=10_000, sweeps=3, variables=10, rounds=5):
    """The paper's sums, the authors' program, ours, and exact eta, in turns; weights of scale 0.1, processor time.

    A step is some Gibbs sweeps of chains of binary variables and eta of all sets B. The paper sums over all sets for
    every site of a sample and over all samples for every set, O(M |S(B)|^2) as printed: "sums" does so literally in
    NumPy (O(M |B| n) per sweep). "authors" is the published program, if ``--program`` names a folder with
    ``higher_order_boltzmann_machine.py``; it groups samples with equal neighbours, so it falls back to one sum per
    distinct state. Ours keeps the energies of the chains, and counts states by one transform. "exact" has no samples.
    """
    domain = Domain.from_cardinalities([2] * variables)
    poset = Poset.boolean_lattice(domain)
    strides, rows = 2 ** torch.arange(variables).flip(0), []
    for order in orders:
        graph = InteractionHypergraph.from_order(domain, order)
        theta = 0.1 * torch.randn(len(graph), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        where = poset.indices(graph.edges)
        moving = GibbsChains(LogLinearEnergy(graph, parametrization(graph).corner_tables(theta)), chains)
        rng = np.random.default_rng(1)
        members = np.array([[name in edge for name in domain.names] for edge in graph.edges])
        states = rng.random((chains, variables)) < 0.5
        eta = torch.full((len(graph),), 0.1, dtype=torch.float64)
        calls = {
            "sums": partial(literal_step, members, theta.numpy(), states, sweeps, rng),
            "ours": partial(cached_step, moving, theta, poset, where, strides, sweeps),
            "exact": partial(gradient_steps, poset, graph.edges, eta, num_iterations=1, theta=theta),
        }
        if program:
            sys.path.append(program)
            module = importlib.import_module("higher_order_boltzmann_machine")
            peer = module.Higher_Order_Boltzmann_Machine(states, order=order)
            peer.theta_vec = theta.numpy().copy()

            def authors(peer=peer):
                return peer._compute_eta(peer._get_model_samples(chains, sweeps), peer.C_vec)

            calls["authors"] = authors
        with contextlib.redirect_stdout(sys.stderr):
            used = {name: 1e3 * float(times[1]) for name, times in in_turns(calls, rounds).items()}
        peers = [f"{used[name]:.4g}" if name in used else "-" for name in ("sums", "authors", "ours", "exact")]
        ratios = [f"{used[name] / used['ours']:.3g}" if name in used else "-" for name in ("sums", "authors")]
        rows.append([order, len(graph), *peers, *ratios])
    head = ["order", "sets", "sums, ms", "authors, ms", "ours, ms", "exact, ms", "sums / ours", "authors / ours"]
    return markdown(head, rows)


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


@part("Errors of chains")
def coverage(models=400):
    """Coverage of the Monte Carlo errors of `sample_chains`: random models, and two wells with few and long visits.

    Random models: 2 to 5 variables of 2 or 3 levels, all interactions of up to three of them, tables normal with a
    scale between 0.3 and 3 (log-uniform); 4 to 200 chains, 200 to 5,000 sweeps (log-uniform) after half as many of
    burn-in. Wells: two spins, a log odds ratio of 2 a, a difference of fields of 2.975; 100 seeds. Exact values come
    from enumeration; runs whose chains differ (`is_mixed` not True) are left out. Batches alone: errors from the
    variance of batches only, with one over the number of looks where a cell never changed; the negative control.
    """
    warnings.simplefilter("ignore")
    runs = [run for run in random_runs(models) if run[3]]
    share = np.concatenate([np.minimum(run[2], 1 - run[2]) for run in runs])
    head = "cells with min(p, 1 - p); number; beyond 2; beyond 3; beyond 5; batches alone: beyond 3; beyond 5"
    lines = [f"{len(runs)} random models whose chains agree, {len(share)} cells.", "", *markdown(head.split("; "))]
    both = [np.concatenate([run[k] for run in runs]) for k in (0, 1)]
    for low, high in ((0.05, 0.5), (0.005, 0.05), (0.0, 0.005)):
        chosen = (share >= low) & (share <= high) if high == 0.5 else (share >= low) & (share < high)
        ours, batches = (errors[chosen] for errors in both)
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
        runs = [errors_in_units(model, chains, sweeps, burn_in=500, seed=seed) for seed in range(100)]
        runs = [run for run in runs if run[3]]
        ours, batches = (np.array([run[k].max() for run in runs]) for k in (0, 1))
        lines.append(
            f"| {log_odds}, {chains}, {sweeps} | {runs[0][2][0]:.5f} | {len(runs)} | {(ours < 3).mean():.0%} "
            f"| {(ours > 5).mean():.0%} | {(batches < 3).mean():.0%} | {(batches > 5).mean():.0%} |"
        )
    return lines


if __name__ == "__main__":
    main(__doc__)
