"""Planted interactions of binary variables found again: sparse triples, low-rank tensors, frustrated couplings.

usage: bench_interaction_recovery.py [sparse] [low-rank] [frustrated] [--laws N] [--rows N ...] [--jobs N] [--seed N]

Rows are exact draws of the enumerated law; figures are means over the laws, every law with all numbers of rows.

sparse: 10 variables, singles -0.7, six random triples of +-1, no pairs; an l1 penalty of 0.6 sqrt(log P / N) on all
corner coordinates up to order 3 (P of them). Shown are the share of the six triples of largest modulus that are true,
F1 of the triples that are not zero, and the error of theta relative to its length.
low-rank: 10 variables, 0.05 on all entries of the tensor of order 3 within five variables, -0.05 within the others,
rank 2. The penalty is chosen of a path of ten by as many rows again. Shown are the error in the norm of all entries of
the tensor, the rank, the singular values above a tenth of the largest, and what the held-out loss exceeds the truth's.
frustrated: products of signs with random signs times beta, the 18 pairs of a periodic 3 x 3 grid or 8 triples on it; an
l1 penalty of 0.05 sqrt(log P / N). Shown are how often all couplings are those of largest modulus of their order, and
the error of the couplings of that order relative to their length, by pseudo-likelihood and by screening.
"""

import itertools

import joblib
import numpy as np
from harness import markdown, plain_script

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.log_linear import Stopping
from pyro_hoim.log_linear.constrained.frank_wolfe import fit_penalised
from pyro_hoim.log_linear.constrained.losses import InteractionScreeningLoss, PseudoLikelihoodLoss
from pyro_hoim.log_linear.constrained.norms import L1Norm, NormPenalty, OverlappedNorm
from pyro_hoim.log_linear.constrained.splitting import douglas_rachford

LOSSES = {"pseudo-likelihood": PseudoLikelihoodLoss, "screening": InteractionScreeningLoss}
TRIPLES = [(0, 1, 3), (1, 2, 4), (2, 5, 7), (3, 4, 6), (4, 5, 8), (0, 6, 7), (1, 7, 8), (2, 6, 8)]
GRID = sorted(
    {
        tuple(sorted(pair))
        for i in range(3)
        for j in range(3)
        for pair in ((3 * i + j, 3 * i + (j + 1) % 3), (3 * i + j, 3 * ((i + 1) % 3) + j))
    }
)


def interactions(num, order):
    return InteractionHypergraph.from_order(Domain.from_cardinalities({f"x{i}": 2 for i in range(num)}), order)


def states(num):
    return np.array(list(itertools.product((0, 1), repeat=num)))


def draw(domain, logits, number, rng):
    """Exact draws of a law with logits of all states."""
    probs = np.exp(logits - logits.max())
    counts = rng.multinomial(number, probs / probs.sum())
    return Observations.from_table(domain, counts.reshape(domain.cardinalities))


def monomials(graph):
    cells = states(len(graph.domain))
    return np.stack([cells[:, edge].prod(1) for edge in graph.edge_indices], 1).astype(float)


def sparse_law(number, rows, seed):
    """Figures of both losses for one law."""
    graph, rng = interactions(10, 3), np.random.default_rng([seed, number])
    is_triple = np.array([len(edge) == 3 for edge in graph.edge_indices])
    theta = np.where([len(edge) == 1 for edge in graph.edge_indices], -0.7, 0.0)
    theta[rng.choice(np.flatnonzero(is_triple), 6, replace=False)] = rng.choice([-1.0, 1.0], 6)
    found = {}
    for size in rows:
        data = draw(graph.domain, monomials(graph) @ theta, size, rng)
        for name, kind in LOSSES.items():
            strength = 0.6 * np.sqrt(np.log(len(theta)) / size)
            estimate = fit_penalised(kind(data, 3), NormPenalty(L1Norm(), strength)).theta.numpy()
            triples = np.where(is_triple, estimate, 0.0)
            hits = np.mean(theta[np.argsort(-np.abs(triples))[:6]] != 0)
            f1 = 2 * np.sum((triples != 0) & (theta != 0)) / (np.sum(triples != 0) + 6)
            found[name, size] = hits, f1, np.linalg.norm(estimate - theta) / np.linalg.norm(theta)
    return found


def low_rank_law(number, rows, seed):
    """Figures of both penalties for one law."""
    graph, rng = interactions(10, 3), np.random.default_rng([seed, number])
    norm = OverlappedNorm(graph)
    counts = norm.unfolding.multiplicity
    order = rng.permutation(10)
    sets = [set(order[:5]), set(order[5:])]
    inside = np.array([[set(edge) <= block for edge in graph.edge_indices] for block in sets], dtype=float)
    theta = counts * (np.array([0.05, -0.05]) @ inside)
    found = {}
    for size in rows:
        data, held = (draw(graph.domain, monomials(graph) @ theta, size, rng) for _ in range(2))
        loss, judge = PseudoLikelihoodLoss(data, 3), PseudoLikelihoodLoss(held, 3)
        scale = np.sqrt(np.log(10) / size)
        for name in ("low rank", "l1"):
            best, last = (np.inf, None), None
            for factor in np.geomspace(8.0, 0.1, 10) * scale:
                if name == "l1":
                    last = fit_penalised(loss, NormPenalty(L1Norm(), factor))
                else:
                    term = NormPenalty(norm, factor / 3)
                    last = douglas_rachford(loss, term, start=last, stopping=Stopping(tolerance=1e-6))
                value = judge.value(last.theta.numpy())
                best = (value, last) if value < best[0] else best
            value, chosen = best
            values = np.linalg.svd(norm.unfolding.matrix(chosen.theta.numpy()), compute_uv=False)
            error = np.sqrt(((chosen.theta.numpy() - theta) ** 2 / counts).sum() / (theta**2 / counts).sum())
            rank = np.sum(values > 1e-6 * values[0])
            found[name, size] = error, rank, np.sum(values > 0.1 * values[0]), value - judge.value(theta)
    return found


def frustrated_law(number, rows, seed):
    """Figures of both losses for random signs on the grid, at several beta."""
    found = {}
    for order, base in ((2, GRID), (3, TRIPLES)):
        graph, rng = interactions(9, order), np.random.default_rng([seed, number, order])
        is_top = np.array([len(edge) == order for edge in graph.edge_indices])
        signs = dict(zip(base, rng.choice([-1.0, 1.0], len(base)), strict=True))
        truth = np.array([signs.get(edge, 0.0) for edge in graph.edge_indices])
        products = np.stack([(2 * states(9) - 1)[:, edge].prod(1) for edge in graph.edge_indices], 1)
        for beta, size in itertools.product((0.4, 0.8, 1.2, 1.6), rows):
            data = draw(graph.domain, products @ (beta * truth), size, rng)
            strength = 0.05 * np.sqrt(np.log(len(truth)) / size)
            for name, kind in LOSSES.items():
                theta = fit_penalised(kind(data, order), NormPenalty(L1Norm(), strength)).theta.numpy()
                couplings = np.where(is_top, theta / 2**order, 0.0)
                is_found = set(np.argsort(-np.abs(couplings))[: len(base)]) == set(np.flatnonzero(truth))
                error = np.linalg.norm(couplings - beta * truth) / np.linalg.norm(beta * truth)
                found[f"order {order}, beta {beta}, {name}", size] = float(is_found), error
    return found


PARTS = {
    "sparse": (sparse_law, "{:.2f} / {:.2f} / {:.2f}"),
    "low-rank": (low_rank_law, "{:.2f} / {:.1f} / {:.1f} / {:.4f}"),
    "frustrated": (frustrated_law, "{:.2f} / {:.2f}"),
}


def main():
    parser = plain_script(__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--laws", type=int, default=20)
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 1000, 3000, 10_000, 30_000])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    for part in options.parts or PARTS:
        law, form = PARTS[part]
        tasks = (joblib.delayed(law)(number, options.rows, options.seed) for number in range(options.laws))
        results = joblib.Parallel(n_jobs=options.jobs)(tasks)
        print(*markdown([part, *(f"{n:,}" for n in options.rows)]), sep="\n")
        for name in dict.fromkeys(key for key, _ in results[0]):
            means = [np.mean([result[name, size] for result in results], axis=0) for size in options.rows]
            print(f"| {name} | {' | '.join(form.format(*mean) for mean in means)} |", flush=True)
        print()


if __name__ == "__main__":
    main()
