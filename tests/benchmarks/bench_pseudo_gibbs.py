"""Pseudo-Gibbs throughput beside the log-linear table kernel, in one run; appends to docs/benchmarks.md.

Networks over variables of the mushroom data's cardinalities: decision graphs that were grown at random (ten splits per
variable), and those learned from the data where PYRO_HOIM_DATA names a folder that has them. Beside them the table
kernel with model A3 of bench_gibbs.py: 40 random pairs and 20 random triples of the same variables. Times are for a
million updates of free variables, all chains counted; nothing is clamped. "Recorded" counts the levels of all variables
after every sweep, and for the table kernel the cells of all its interactions. All contenders take turns. The ratio is
that of the processor times of the table kernel and of ours, which other programs on the machine disturb less; it is to
be at least a third.

    python tests/benchmarks/bench_pseudo_gibbs.py [--chains 16 512 4096] [--no-append]
"""

import os
from functools import partial
from pathlib import Path

import numpy as np
import torch
from bench_gibbs import workload
from harness import CORES, MUSHROOM, Report, as_energy, in_turns, script

from pyro_hoim.datasets import load_mushroom
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    PseudoGibbsChains,
    learn_network,
)
from pyro_hoim.log_linear import GibbsChains
from pyro_hoim.schema import Domain

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


def main():
    parser = script(__doc__, appends=True)
    parser.add_argument("--chains", nargs="+", type=int, default=[16, 512, 4096])
    options = parser.parse_args()
    torch.set_num_threads(CORES)
    report = Report()
    cards, scopes, tables, _, sweeps = workload("A3")
    energy = as_energy((cards, list(zip(scopes, tables, strict=True))))
    networks = {"random graphs": random_network(), "learned graphs": learned_network()}
    slowest = 0.0
    for num_chains in options.chains:
        length = max(10, sweeps * 2 * 512 // num_chains)
        flags = {"bare": {}, "recorded": {"thin": 1, "counts": True}}
        contenders = {"log-linear tables": GibbsChains(energy, num_chains, engine="tables")}
        for name, network in networks.items():
            for scan in ("sequential", "random") if network is not None else ():
                made = PseudoGibbsChains(network, num_chains, scan=scan, check=False)
                contenders[f"{name}, {scan} scan"] = made
        calls = {
            (name, how): partial(chains.sweep, length, **flags[how])
            for name, chains in contenders.items()
            for how in flags
        }
        found = in_turns(calls)
        free = len(contenders["log-linear tables"].blocks)
        for (name, how), (elapsed, used) in found.items():
            million = free * length * num_chains / 1e6
            ratio = found["log-linear tables", how][1] / used
            slowest = max(slowest, 1 / ratio)
            note = f"{million / elapsed:.4g} million updates/s, {million / used:.4g} per second of a processor"
            what = f"mushroom cardinalities, {num_chains} chains: per million updates"
            report.add(what, f"{name}, {how}", elapsed / million, ratio, note)
    verdict = "within" if slowest <= MOST else "ABOVE"
    print(f"slowest: {slowest:.2f} times the table kernel's time, {verdict} the limit of {MOST:g}")
    if not options.no_append:
        report.append("Pseudo-Gibbs sampling")


if __name__ == "__main__":
    main()
