"""The guide of structures on random programs, beside the list of all collections.

usage: bench_guide.py [--programs N] [--steps N] [--append]

Program s has 4 or 5 variables of 2 or 3 levels and 100 to 400 rows of a law in which half of the pairs interact, all
drawn from the seed s; prior of unit information, every set of pairs equally likely (64 or 1,024 of them). The guide is
fitted by SVI with its own loss over 32 draws (gradient="score"); the list has Laplace's evidence, which the bridge
checks on the three best collections. Seconds are processor time.
"""

import sys
import time

import numpy as np
import pyro
import torch
from harness import about, markdown, plain_script, publish
from pyro.infer import SVI
from pyro.optim import ClippedAdam

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.inference import AutoStructure, StructurePrior, enumerate_structures, log_evidence, structure_model
from pyro_hoim.log_linear import HierarchicalLogLinear


def random_rows(seed):
    """Rows of a random law of pairs."""
    rng = np.random.default_rng(seed)
    cards = rng.choice([2, 2, 3], size=4 + seed % 2).tolist()
    domain = Domain.from_cardinalities(cards)
    graph = InteractionHypergraph.from_order(domain, 2)
    is_there = torch.from_numpy(np.concatenate([np.ones(len(cards)), rng.integers(0, 2, len(graph) - len(cards))]))
    theta = torch.from_numpy(rng.normal(scale=0.6, size=graph.num_parameters)) * graph.spread(is_there)
    probs = HierarchicalLogLinear(graph, theta).probs.reshape(-1).numpy()
    counts = rng.multinomial(int(rng.integers(100, 400)), probs / probs.sum())
    return Observations.from_table(domain, counts.reshape(cards))


def fitted(program, num_steps, seed):
    """The guide after some steps, its bound (mean of 20,480 draws), and seconds."""
    start = time.process_time()
    with torch.random.fork_rng():
        pyro.set_rng_seed(seed)
        pyro.clear_param_store()
        guide = AutoStructure(program)
        svi = SVI(
            program, guide, ClippedAdam({"lr": 0.05, "lrd": 0.02 ** (1 / num_steps)}), guide.elbo(gradient="score")
        )
        for _ in range(num_steps):
            svi.step()
        seconds = time.process_time() - start
        loss = guide.elbo(512, gradient="score")
        return guide, -float(np.mean([loss.loss(program, guide) for _ in range(40)])), seconds


def compared(seed, num_steps):
    """Largest error of inclusion, gap of the bound, largest error of Laplace's evidence, seconds, and the data."""
    data = random_rows(seed)
    structures = StructurePrior(data.domain, space="pairwise")
    listed = enumerate_structures(data, "unit", structures)
    total = float((listed.log_evidence + structures.probs.log()).logsumexp(0))
    guide, bound, seconds = fitted(structure_model(data, structures), num_steps, seed)
    off = float((guide.inclusion() - listed.inclusion.mean).abs().max())
    return off, total - bound, seconds, listed


def laplace_error(listed):
    """Largest error of Laplace's evidence on the three best collections, by the bridge."""
    return max(
        abs(log_evidence(m.hypergraph, listed.data, "unit", method="bridge").value - m.log_evidence)
        for m in listed.models(3)
    )


def main():
    parser = plain_script(__doc__)
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--append", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, worst = [], [0.0, 0.0]
    for seed in range(options.programs):
        off, gap, seconds, listed = compared(seed, options.steps)
        worst = [max(worst[0], off), max(worst[1], gap)]
        cards = " x ".join(map(str, listed.data.domain.cardinalities))
        found = [f"{off:.3f}", f"{gap:.3f}", f"{seconds:.0f}"]
        size = [str(seed), cards, f"{listed.data.total_count:.0f}", f"{listed.num_structures:,}"]
        rows.append([*size, *found, f"{laplace_error(listed):.3f}"])
        print(rows[-1], flush=True)
    head = ["seed", "levels", "rows", "collections", "inclusion off by", "gap, nats", "s"]
    head += ["Laplace off by, nats"]
    told = f"After {options.steps} steps. Inclusion: largest error of a pair; gap: log evidence less the bound. "
    told += f"Largest of all: {worst[0]:.3f} and {worst[1]:.3f} nats."
    command = " ".join(["python", "tests/benchmarks/bench_guide.py", *sys.argv[1:]])
    text = [f"`{command}`", "", about(), "", told, "", *markdown(head, rows)]
    publish("Guides of structures on random programs", "\n".join(text), options.append)


if __name__ == "__main__":
    main()
