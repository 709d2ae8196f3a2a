"""Throughput of generalized root Gibbs sweeps beside a straightforward vectorised one in NumPy, in one run.

Poisson models of third order in the simplified form, with weak random interactions: a small dense one and a sparse one
as wide as the word counts of Classic3 (3,893 variables, mean counts near 0.1). The peer moves all chains together: of
every variable it takes the natural parameters by loops over the incident terms, tabulates log-probabilities of the
counts 0, ..., 63 for all chains, and inverts their cumulative sums; it has no counts above 63, ours does. Both run with
one thread and take turns. Draws from single conditionals of the other families are timed too. Prints only.

    python tests/benchmarks/bench_root_gibbs.py [--chains 4 64 512] [--rounds 5]
"""

import numpy as np
import torch
from harness import in_turns, plain_script
from scipy.special import gammaln

from pyro_hoim.generalized_root import (
    GeneralizedRootEnergy,
    PoissonFamily,
    RootChains,
    RootStructure,
    draw_from_nodes,
    node_family,
)
from pyro_hoim.schema import Domain, Variable

LEVELS = 64


def workload(d, num_pairs, num_triples, mean):
    """A model with random pairs and triples."""
    rng = np.random.default_rng(1)
    domain = Domain([Variable(f"v{i}", kind="count") for i in range(d)])
    tuples = {tuple(sorted(rng.choice(d, 2, replace=False))) for _ in range(num_pairs)}
    tuples |= {tuple(sorted(rng.choice(d, 3, replace=False))) for _ in range(num_triples)}
    structure = RootStructure.simplified(domain, [tuple(f"v{i}" for i in members) for members in sorted(tuples)])
    coefficients = 0.05 * torch.from_numpy(rng.standard_normal(structure.num_terms))
    coefficients[structure.slices[1, 1]] = float(np.log(mean))
    return GeneralizedRootEnergy.from_coefficients(structure, coefficients, PoissonFamily())


class Peer:
    """What one writes first: all chains at once, one variable after the other."""

    def __init__(self, energy, num_chains):
        self.rng = np.random.default_rng(0)
        d, order = len(energy.domain), energy.order
        self.linear, self.incident = np.zeros((d, order)), [[] for _ in range(d)]
        for ((j, _), names), a in zip(energy.structure.names, energy.coefficients.tolist(), strict=True):
            members = energy.domain.indices(names)
            for s in members:
                if len(members) == 1:
                    self.linear[s, j - 1] = a
                else:
                    self.incident[s].append((j - 1, a, [t for t in members if t != s]))
        x = np.arange(LEVELS, dtype=np.float64)
        self.table = np.stack([x ** (1 / j) for j in range(1, order + 1)])
        self.base = -gammaln(x + 1)
        self.roots = np.zeros((order, d, num_chains))

    def sweep(self, num_sweeps):
        num_chains = self.roots.shape[2]
        for _ in range(num_sweeps):
            for s, incident in enumerate(self.incident):
                natural = np.repeat(self.linear[s][None], num_chains, axis=0)
                for j, a, others in incident:
                    natural[:, j] += a * self.roots[j, others].prod(0)
                log_p = natural @ self.table + self.base
                cumulative = np.exp(log_p - log_p.max(1, keepdims=True)).cumsum(1)
                u = self.rng.random(num_chains) * cumulative[:, -1]
                x = (cumulative < u[:, None]).sum(1)
                self.roots[:, s] = self.table[:, x]

    @property
    def mean(self):
        return self.roots[0].mean()


CONDITIONALS = {
    "poisson": [[-2.3, 0.1, 0.1], [1.0, 0.3, -0.2], [3.0, 0.3, -0.2], [5.5, 1.0, 0.0], [16.0, 0, 0], [16.2, -20, 4]],
    "exponential": [[-1.0], [-1.0, 3.0, 0.2], [-1.0, -3.0, 2.0], [-1.0, 30.0, -47.3]],
    "gaussian": [[-0.5, 0.3], [-0.5, 0.3, -2.0], [-0.5, 0.3, 5.0]],
}


def main():
    parser = plain_script(__doc__)
    parser.add_argument("--chains", nargs="+", type=int, default=[4, 64, 512])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = {
        "20 variables, 190 pairs, 200 triples, mean 2": (workload(20, 600, 200, 2.0), 2**15),
        "3,893 variables, 4,000 pairs, 2,000 triples, mean 0.1": (workload(3893, 4000, 2000, 0.1), 2**18),
    }
    for what, (energy, draws) in models.items():
        for num_chains in options.chains:
            length = max(1, draws // (len(energy.domain) * num_chains))
            ours = RootChains(energy, num_chains, seed=torch.Generator().manual_seed(0))
            peer = Peer(energy, num_chains)
            found = in_turns({"ours": lambda: ours.sweep(length), "NumPy": lambda: peer.sweep(length)}, options.rounds)
            made = length * len(energy.domain) * num_chains
            for name, (elapsed, used) in found.items():
                print(
                    f"{what}, {num_chains} chains | {name} | {made / elapsed / 1e6:.3g} million draws/s, "
                    f"{used / made * 1e9:.0f} ns of a processor per draw"
                )
            print(
                f"  ratio {found['NumPy'][1] / found['ours'][1]:.1f}; means {ours.states.mean():.3f}, {peer.mean:.3f}"
            )
    for name, laws in CONDITIONALS.items():
        for natural in laws:
            rows = torch.tensor(natural, dtype=torch.float64).expand(20_000, len(natural))
            used = in_turns({"": lambda: draw_from_nodes(node_family(name), rows)}, options.rounds)[""][1]
            print(f"one conditional, {name} {natural}: {used / 20_000 * 1e9:.0f} ns of a processor per draw")


if __name__ == "__main__":
    main()
