"""One training step of a higher-order Boltzmann machine: the paper's sums, the authors' program, ours, and exact eta.

A step is ``--sweeps`` Gibbs sweeps of ``--chains`` chains of ``--variables`` binary variables and eta of all sets B.
The paper sums over all sets for every site of a sample and over all samples for every set, O(M |S(B)|^2) as printed:
"sums" does so literally in NumPy (O(M |B| n) per sweep). "authors" is the published program, if ``--program`` names a
folder with ``higher_order_boltzmann_machine.py``; it groups samples with equal neighbours, so it falls back to one sum
per distinct state. Ours keeps the energies of the chains, and counts states by one transform. "exact" has no samples.
Contenders take turns; processor time.

    python tests/benchmarks/bench_machine.py [--program FOLDER] [--orders 1 2 4 7 10] [--chains 10000] [--append]
"""

import contextlib
import importlib
import sys
from functools import partial

import numpy as np
import torch
from harness import about, in_turns, markdown, publish, script

from pyro_hoim import Domain, GibbsChains, InteractionHypergraph
from pyro_hoim.log_linear import LogLinearEnergy, Poset, gradient_steps, parametrization

WORDS = """Sums: every set for every site and sample, in NumPy, as the paper has it. Authors: the published program.
Ours: `GibbsChains` with new weights and cached energies, then one transform. Exact: eta without samples.
The weights are random, of scale 0.1."""


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


def main():
    parser = script(__doc__)
    parser.add_argument("--program")
    parser.add_argument("--orders", nargs="+", type=int, default=[1, 2, 4, 7, 10])
    parser.add_argument("--chains", type=int, default=10_000)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--variables", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    domain = Domain.from_cardinalities([2] * options.variables)
    poset = Poset.boolean_lattice(domain)
    strides, rows = 2 ** torch.arange(options.variables).flip(0), []
    for order in options.orders:
        graph = InteractionHypergraph.from_order(domain, order)
        theta = 0.1 * torch.randn(len(graph), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        where = poset.indices(graph.edges)
        chains = GibbsChains(LogLinearEnergy(graph, parametrization(graph).corner_tables(theta)), options.chains)
        rng = np.random.default_rng(1)
        members = np.array([[name in edge for name in domain.names] for edge in graph.edges])
        states = rng.random((options.chains, options.variables)) < 0.5
        eta = torch.full((len(graph),), 0.1, dtype=torch.float64)
        calls = {
            "sums": partial(literal_step, members, theta.numpy(), states, options.sweeps, rng),
            "ours": partial(cached_step, chains, theta, poset, where, strides, options.sweeps),
            "exact": partial(gradient_steps, poset, graph.edges, eta, num_iterations=1, theta=theta),
        }
        if options.program:
            sys.path.append(options.program)
            program = importlib.import_module("higher_order_boltzmann_machine")
            peer = program.Higher_Order_Boltzmann_Machine(states, order=order)
            peer.theta_vec = theta.numpy().copy()

            def authors(peer=peer):
                sampled = peer._get_model_samples(options.chains, options.sweeps)
                return peer._compute_eta(sampled, peer.C_vec)

            calls["authors"] = authors
        with contextlib.redirect_stdout(sys.stderr):
            found = in_turns(calls, options.rounds)
        used = {name: 1e3 * float(times[1]) for name, times in found.items()}
        peers = [f"{used[name]:.4g}" if name in used else "-" for name in ("sums", "authors", "ours", "exact")]
        ratios = [f"{used[name] / used['ours']:.3g}" if name in used else "-" for name in ("sums", "authors")]
        rows.append([order, len(graph), *peers, *ratios])
    head = ["order", "sets", "sums, ms", "authors, ms", "ours, ms", "exact, ms", "sums / ours", "authors / ours"]
    size = f"{options.chains:,} chains, {options.sweeps} sweeps, {options.variables} variables, {options.rounds} rounds"
    text = "\n".join(
        [
            f"{about()} One step with {size}; medians of processor time, one thread.",
            f"`{' '.join(['python', 'tests/benchmarks/bench_machine.py', *sys.argv[1:]])}`",
            "",
            WORDS,
            "",
            *markdown(head, rows),
        ]
    )
    publish("A training step of a higher-order Boltzmann machine (bench_machine.py)", text, options.append)


if __name__ == "__main__":
    main()
