"""Restricted machines learned by `fit_machine` and by scikit-learn's `BernoulliRBM` from the same rows, and sweeps.

usage: bench_machines.py [--append]

Rows: 5,000 of a random machine of 12 visible and 6 hidden units (weights normal, scale 2, exact draws), and the
Rochdale table (665 rows, 8 columns; 4 hidden units). Both make the same number of steps of persistent chains at rate
0.1 with 100 rows a step (`BernoulliRBM`: whole epochs). Log-likelihoods are exact and of all rows, by this library,
whose free energy of the other's parameters is theirs. Sweeps: 512 chains, 64 visible and 32 hidden units, one product
of matrices a layer against the compiled chains of the joint law with layers as colours; processor time.
"""

import time

import torch
from harness import about, markdown, publish, script
from sklearn.neural_network import BernoulliRBM

from pyro_hoim import Domain, GibbsChains, Observations, load_table
from pyro_hoim.boltzmann import LearningOptions, MachineStructure, RestrictedBoltzmannMachine, fit_machine
from pyro_hoim.boltzmann.law import as_machine
from pyro_hoim.runs import GibbsSchedule


def machine(n, m, scale, seed=0):
    structure = MachineStructure.restricted(Domain.from_cardinalities([2] * n), m)
    generator = torch.Generator().manual_seed(seed)
    theta = scale * torch.randn(structure.num_parameters, generator=generator, dtype=torch.float64)
    return as_machine(structure, theta)


def tables():
    law = machine(12, 6, 2.0)
    torch.manual_seed(1)
    yield "random machine", Observations.from_tensor(law.sample((5000,)), law.domain), 6
    rows = load_table("rochdale")
    yield "Rochdale", rows, 4


def log_likelihood(law, rows):
    merged = rows.unique()
    return float((law.log_prob(merged.codes) * merged.counts).sum()) / rows.total_count


def by_sklearn(rows, hidden, steps, seed):
    merged = rows.unique()
    data = merged.codes.repeat_interleave(merged.counts.long(), 0)
    data = data[torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))].double().numpy()
    epochs = round(steps / (len(data) / 100))
    found = BernoulliRBM(hidden, learning_rate=0.1, batch_size=100, n_iter=epochs, random_state=seed).fit(data)
    parts = (found.intercept_visible_, found.intercept_hidden_, found.components_.T.copy())
    return RestrictedBoltzmannMachine(rows.domain, *map(torch.from_numpy, parts))


def by_chains(method, iterations):
    def learned(rows, hidden, steps, seed):
        options = LearningOptions(method, iterations=iterations or steps)
        return fit_machine(rows, hidden, options, seed=seed).law

    return learned


def learning(steps=10_000, seeds=5):
    ways = {"pcd": by_chains("pcd", None), "cd": by_chains("cd", None), "BernoulliRBM": by_sklearn}
    ways["exact, 2,000 iterations"] = by_chains("exact", 2000)
    lines = []
    for name, rows, hidden in tables():
        independent = log_likelihood(fit_machine(rows, 0, LearningOptions("exact")).law, rows)
        for way, learned in ways.items():
            start = time.process_time()
            laws = [learned(rows, hidden, steps, seed) for seed in range(seeds)]
            seconds = (time.process_time() - start) / seeds
            values = [log_likelihood(law, rows) - independent for law in laws]
            lines.append([name, way, ", ".join(f"{value:.4f}" for value in values), f"{seconds:.1f}"])
    return markdown(["rows", "learned by", f"gain over independent columns, {seeds} seeds (nats a row)", "s"], lines)


def sweeps(chains=512, number=200):
    law = machine(64, 32, 0.3)
    rows = law.sweep(torch.zeros(chains, 64), 1)
    start = time.process_time()
    law.sweep(rows, number)
    dense = number / (time.process_time() - start)
    compiled = GibbsChains(law.joint.energy_model, chains, schedule=GibbsSchedule("colours"))
    compiled.sweep(2)
    start = time.process_time()
    compiled.sweep(number)
    joint = number / (time.process_time() - start)
    return (
        f"Sweeps a second of processor time: {dense:.0f} by products of matrices (float64), {joint:.0f} by compiled "
        f"chains; {chains} chains."
    )


def main():
    import warnings

    arguments = script(__doc__).parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    text = [about(), "", *learning(), "", sweeps()]
    publish("Machines with hidden units beside scikit-learn", "\n".join(text), arguments.append)


if __name__ == "__main__":
    main()
