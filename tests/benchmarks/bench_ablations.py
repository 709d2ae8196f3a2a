"""Ablations of paper 1's B.5: what each idea of its training costs and brings, one switched at a time.

usage: bench_ablations.py [--data NAME] [--seeds N] [--only NAME ...] [--chains N] [--iterations N] [--append]

Breast cancer (whole) or the first ten columns of mushroom, learned by sampled training with the defaults of ``learn``
otherwise, on 35 % of the rows with 15 % for validation; the gain over independent columns on the other half, with an
exact log Z. Processor seconds of everything, and processor time of a sweep of 1,000 chains on the final collection.

The switches: ``blocks`` and ``emphasis`` of ``SampledTraining``; and the end of the search by annealed log Z, or by the
pseudo-likelihood of the validation rows (which then trains the model, too), or after six rounds whatever the loss, the
last collection being kept and fitted once more. Energies are cached always: of the sets that share variables with a
block, each is looked up once for every state of those variables, and no other set is. The last columns count look-ups
of a sweep so, and once for every set and state of the block.
"""

import math
import time

import numpy as np
import torch
from harness import about, markdown, publish, script

from pyro_hoim import InteractionHypergraph
from pyro_hoim.datasets import load_breast_cancer, load_mushroom
from pyro_hoim.log_linear import (
    ExactTrainer,
    GibbsChains,
    SampledTraining,
    SelectionOptions,
    fit_collection,
    learn,
    score_rows,
)
from pyro_hoim.log_linear.training.sampled._weighted_chains import schedule_of

SWITCHES = {
    "sites (default)": {},
    "whole interactions": {"blocks": "interactions"},
    "whole interactions, half to new ones": {"blocks": "interactions", "emphasis": 0.5},
    "sites, half to new interactions": {"emphasis": 0.5},
    "ended by pseudo-likelihood": {"pseudo": True},
    "not ended by a loss: six rounds": {"rounds": 6},
}
HEAD = (
    "switch",
    "test gain",
    "per split",
    "interactions",
    "rounds",
    "learning, s",
    "sweep, ms",
    "look-ups",
    "uncached",
)


def parts(name, seed):
    """Train, validation and test rows."""
    rows = load_breast_cancer() if name == "breast_cancer" else load_mushroom()
    if name == "mushroom10":
        rows = rows.project(rows.domain.names[:10])
    return rows.split([0.35, 0.15, 0.5], seed)


def exact_gain(learned, rows):
    """Gain over independent columns with an exact log Z."""
    judge = ExactTrainer(rows, learned.hypergraph)
    judge.load_state_dict({"tables": learned.tables})
    return score_rows(learned.independent, rows).nll - judge.loss(rows).value


def sweep_cost(learned, blocks):
    """Processor milliseconds of a sweep of 1,000 chains, and look-ups of a chain in it with and without caching."""
    graph = learned.energy.hypergraph
    settings = SampledTraining(blocks=blocks)
    schedule = schedule_of(graph, settings)
    chains = GibbsChains(learned.energy, 1000, schedule=schedule, seed=0)
    chains.sweep(2)
    begin = time.process_time()
    chains.sweep(10)
    milliseconds = 100 * (time.process_time() - begin)
    size = graph.domain.cardinalities
    cached = uncached = 0
    for block in schedule.resolve(graph):
        shared = [set(block) & set(edge) for edge in graph.edge_indices]
        cached += sum(math.prod(size[i] for i in common) for common in shared if common)
        uncached += math.prod(size[i] for i in block) * len(graph)
    return milliseconds, cached, uncached


def one(data, name, seed, settings):
    """Figures of one split."""
    train, validation, test = parts(data, seed)
    options = dict(SWITCHES[name])
    is_pseudo, rounds = options.pop("pseudo", False), options.pop("rounds", None)
    begin = time.process_time()
    if is_pseudo:
        found = learn(train, validation, trainer="pseudo-likelihood", false_discovery_rate=None, seed=seed)
    else:
        sampling = SampledTraining(**settings, **options)
        how = {"trainer": "sampled", "sampling": sampling, "seed": seed}
        search = None if rounds is None else SelectionOptions(patience=rounds, max_rounds=rounds)
        found = learn(train, validation, search, false_discovery_rate=None, **how)
    selection = found.selection
    if rounds is not None:
        last = {edge for step in selection.rounds for edge in step.changed} | {(v,) for v in train.domain.names}
        found = fit_collection(train, InteractionHypergraph(train.domain, last), **how)
    seconds = time.process_time() - begin
    blocks = options.get("blocks", "sites")
    line = exact_gain(found, test), found.hypergraph.num_interactions, len(selection.rounds), seconds
    print("   ", data, name, seed, *(f"{value:.4g}" for value in line), flush=True)
    return *line, *sweep_cost(found, blocks)


def main():
    parser = script(__doc__)
    parser.add_argument("--data", default="breast_cancer", choices=["breast_cancer", "mushroom10"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=list(SWITCHES), default=list(SWITCHES))
    parser.add_argument("--chains", type=int, default=4000)
    parser.add_argument("--iterations", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = {"num_chains": options.chains, "num_iterations": options.iterations, "margin_states": 200_000}
    rows = []
    for name in options.only:
        figures = list(zip(*(one(options.data, name, seed, settings) for seed in range(options.seeds)), strict=True))
        gains, sets, rounds, seconds, sweeps, cached, uncached = figures
        each = ", ".join(f"{gain:.3f}" for gain in gains)
        whole = [f"{np.median(values):,.0f}" for values in (sets, rounds, seconds)]
        numbers = (*whole, f"{np.mean(sweeps):.3g}", f"{np.median(cached):,.0f}", f"{np.median(uncached):,.0f}")
        rows.append((name, f"{np.mean(gains):.3f}", each, *numbers))
        print(markdown(HEAD, rows)[-1], flush=True)
    text = f"{about()} One thread; {options.data}, {options.seeds} splits, {options.chains} chains, "
    text += f"{options.iterations} steps a fit.\n\n"
    publish("Ablations of B.5 of paper 1", text + "\n".join(markdown(HEAD, rows)), options.append)


if __name__ == "__main__":
    main()
