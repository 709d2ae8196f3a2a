"""Effective draws a second of Gibbs chains by their blocks: single variables beside trees and wider sets.

    python tests/benchmarks/bench_blocks.py [--append] [PART] [OPTIONS]

Effective draws are ArviZ's bulk effective sample size of the energies of all chains, after a quarter as many sweeps
that do not count. They say little where R-hat is far from 1. Seconds are processor time of one thread.
"""

import itertools
import time
import warnings

import arviz as az
import numpy as np
import torch
from bench_learn import indicators
from bench_uai import fetched
from harness import Report, main, part

from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy, read_uai
from pyro_hoim.datasets import load_mushroom
from pyro_hoim.runs import GibbsSchedule

from support.hard_models import copies

SCHEDULES = ("sites", "interactions", "trees", "width:2", "width:4", "width:6", "width:10")


def mushroom(num_pairs):
    """Pairs of indicator columns that share most information, a tree of them first, with tables of log p / (p p).

    One half is added to every count. On the tree alone this is the law of maximal likelihood of Chow and Liu.
    """
    rows = indicators(load_mushroom())
    x, total = rows.codes.double().numpy(), len(rows.codes) + 2.0
    cells = np.stack([[(a.T @ b) for b in (1 - x, x)] for a in (1 - x, x)]) + 0.5  # (2, 2, d, d)
    alone = cells.sum(1)[:, :, 0]
    gain = np.log(cells * total / (alone[:, None, :, None] * alone[None, :, None, :]))
    information = (cells / total * gain).sum((0, 1))
    pairs = sorted(itertools.combinations(range(x.shape[1]), 2), key=lambda pair: -information[pair])
    component, tree = list(range(x.shape[1])), []
    for a, b in pairs:
        if component[a] != component[b]:
            tree.append((a, b))
            component = [component[a] if c == component[b] else c for c in component]
    chosen = tree + [pair for pair in pairs if pair not in set(tree)][: num_pairs - len(tree)]
    names = rows.domain.names
    edges = [(name,) for name in names] + [(names[a], names[b]) for a, b in chosen]
    graph = InteractionHypergraph(rows.domain, edges, hierarchical=False)
    tables = torch.zeros(graph.num_terms, dtype=torch.float64)
    for k, name in enumerate(names):
        tables[graph.term_slices[(name,)]] = torch.as_tensor(np.log(alone[:, k] / total))
    for a, b in chosen:
        tables[graph.term_slices[(names[a], names[b])]] = torch.as_tensor(gain[:, :, a, b].reshape(-1))
    return LogLinearEnergy(graph, tables)


def looked_at(chains, count, thin):
    """Effective draws, R-hat and mean of energies of so many records, and processor time of the same sweeps without."""
    chains.sweep(count * thin // 4)
    start = time.process_time()
    chains.sweep(count * thin)
    seconds = time.process_time() - start
    energies = chains.sweep(count * thin, thin=thin, energies=True).energies.T.numpy()
    with warnings.catch_warnings(action="ignore"):
        effective, reduction = az.ess({"x": energies}, method="bulk"), az.rhat({"x": energies})
    return float(effective["x"]), float(reduction["x"]), float(energies.mean()), seconds


def compared(name, model, schedules, seconds, num_chains):
    """A table of schedules: 2,000 sweeps, and, where these give fewer than 2,000 effective draws, so many seconds.

    The ratio is that of effective draws a second to those of the first schedule.
    """
    report = Report("model|schedule|blocks|largest|ms a sweep|sweeps|effective draws|R-hat|a second|ratio|energy")
    first = None
    for schedule in schedules:
        chains = GibbsChains(model, num_chains, schedule=GibbsSchedule(schedule), seed=1)
        chains.sweep(2)
        start = time.process_time()
        chains.sweep(10)
        most = max(50, round(10 * seconds / (time.process_time() - start)))
        count, thin = min(2000, most), 1
        effective, reduction, energy, used = looked_at(chains, count, thin)
        if effective < 2000 and most > 2 * count:
            thin = most // count
            effective, reduction, energy, used = looked_at(chains, count, thin)
        first = first or effective / used
        figures = [f"{1e3 * used / count / thin:.3g}", count * thin, f"{effective:.0f}", f"{reduction:.3f}"]
        figures += [f"{effective / used:.3g}", f"{effective / used / first:.3g}", f"{energy:.2f}"]
        report.row(name, schedule, len(chains.blocks), max(map(len, chains.blocks)), *figures)
    return report.lines()


@part("Effective draws of columns that copy each other")
def chains_of_copies(
    sizes=(100,), coupling=4.0, seconds=2.0, num_chains=64, schedules=("sites", "interactions", "trees")
):
    """Paths, which are one tree, and rings, which two trees cover."""
    lines = []
    for size, is_ring in itertools.product(sizes, (False, True)):
        name = f"{'ring' if is_ring else 'path'} of {size}"
        lines += [*compared(name, copies(size, coupling, is_ring), schedules, seconds, num_chains), ""]
    return lines


@part("Effective draws of mushroom's indicator columns")
def indicator_columns(pairs=(117, 130, 160), seconds=4.0, num_chains=64, schedules=SCHEDULES[:6]):
    """Models of pairs that share most information: the tree of them, and the tree with more."""
    lines = []
    for number in pairs:
        model = mushroom(number)
        lines += [*compared(f"{number} pairs", model, schedules, seconds, num_chains), ""]
    return lines


@part("Effective draws of a grid of the UAI competition")
def grids(names=("Grids_30",), scales=(0.1, 0.2, 0.3, 1.0), seconds=4.0, num_chains=64, schedules=SCHEDULES):
    """At several inverse temperatures, of which 1 is the problem as it is; energies are of the problem times these."""
    lines = []
    for name, scale in itertools.product(names, scales):
        whole = read_uai(fetched() / f"{name}.uai")
        model = LogLinearEnergy(whole.hypergraph, scale * whole.tables)
        lines += [*compared(f"{name} at {scale:g}", model, schedules, seconds, num_chains), ""]
    return lines


@part("Planned and measured time of a sweep")
def calibration(num_chains=256, seconds=0.5):
    """Of every candidate of "auto", nanoseconds of a chain: what the constants of the cost model were fitted to."""
    whole = read_uai(fetched() / "Grids_30.uai")
    models = {
        "ring of 100": copies(100, 4.0, True),
        "grid at 0.2": LogLinearEnergy(whole.hypergraph, 0.2 * whole.tables),
    }
    models |= {f"{number} pairs": mushroom(number) for number in (117, 130, 160)}
    report = Report("model|blocks|planned|measured|ratio|effective draws a sweep|chosen")
    for name, model in models.items():
        choice = GibbsChains(model, num_chains, schedule=GibbsSchedule("auto"), seed=1).choice
        for candidate in choice.candidates:
            chains = GibbsChains(model, num_chains, schedule=candidate.schedule, seed=1)
            chains.sweep(1)
            count = max(1, round(1e9 * seconds / num_chains / candidate.planned))
            start = time.process_time()
            chains.sweep(count)
            measured = 1e9 * (time.process_time() - start) / num_chains / count
            figures = f"{candidate.planned:.0f}", f"{measured:.0f}", f"{measured / candidate.planned:.2f}"
            is_chosen = "yes" if candidate == choice.chosen else ""
            report.row(name, candidate.name, *figures, f"{candidate.effective:.3g}", is_chosen)
    return report.lines()


@part("Groups of columns of which at most one is set, listed and by single columns")
def groups(sizes=(12, 30, 100), count=4000, num_chains=64, field=3.0):
    """Effective draws of the energy are none, where all are equal: those of the slowest column are counted."""
    report = Report("columns|blocks|states|us a sweep|effective draws a second|ratio")
    for size in sizes:
        domain = Domain.from_cardinalities([2] * size)
        walls = list(itertools.combinations(domain.names, 2))
        graph = InteractionHypergraph(domain, [*((name,) for name in domain.names), *walls], hierarchical=False)
        tables = torch.tensor([0.0, field]).double().repeat(size)
        wall = torch.tensor([0, 0, 0, -torch.inf]).double().repeat(len(walls))
        model, first = LogLinearEnergy(graph, torch.cat([tables, wall])), None
        for schedule in (GibbsSchedule(), GibbsSchedule([domain.names])):
            chains = GibbsChains(model, num_chains, schedule=schedule, seed=1)
            chains.sweep(1000)
            start = time.process_time()
            states = chains.sweep(count, thin=1, states=True).states.double().numpy()
            used = time.process_time() - start
            rate = min(float(az.ess({"x": states[..., v].T}, method="mean")["x"]) for v in range(size)) / used
            first = first or rate
            figures = f"{1e6 * used / num_chains / count:.3g}", f"{rate:.3g}", f"{rate / first:.3g}"
            report.row(size, len(chains.blocks), 2 if len(chains.blocks) > 1 else size + 1, *figures)
    return report.lines()


if __name__ == "__main__":
    main(__doc__)
