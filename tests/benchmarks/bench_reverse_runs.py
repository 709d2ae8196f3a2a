"""Pseudo-marginal moves with unbiased estimates of 1/Z, from independent annealed runs in reverse, beside exchange.

usage: bench_reverse_runs.py [--chains C] [--draws N] [--append]

A run in reverse from a perfect draw at theta to a reference is unbiased for Z(reference)/Z(theta), so that one run for
every row is unbiased for the likelihood up to a factor. With perfect draws at every one of K steps the product over
rows is exp(sum_k (theta_{k+1} - theta_k)' T_k), T_k the statistics of a table drawn at theta_k. Proposals are
independent draws from the Laplace approximation. Czech autoworkers, all pairs, standard normal prior, as in
bench_intractable.py. What both methods pay for is tables, so the smallest effective sample size is given per thousand.
"""

import numpy as np
import torch
from harness import about, markdown, publish, script
from pyro.ops.stats import effective_sample_size

from pyro_hoim import InteractionHypergraph, load_table
from pyro_hoim.log_linear import parametrization, statistics_of

STEPS = (5, 10, 20, 40, 80)


class Posterior:
    """Log posterior, mode, its Cholesky factor and tables of the Czech pairs, over all 64 cells."""

    def __init__(self):
        data = load_table("czech_autoworkers")
        hypergraph = InteractionHypergraph.from_order(data.domain, 2)
        codings = parametrization(hypergraph)
        cells = np.indices(data.domain.cardinalities).reshape(len(data.domain), -1).T
        basis = codings.to_tables(torch.eye(codings.num("free"), dtype=torch.float64))
        self.design = codings.statistics(torch.from_numpy(cells)) @ basis.T
        self.target = statistics_of(data, hypergraph) @ basis.T
        self.total = int(data.total_count)
        self.mode = torch.zeros(self.design.shape[1], dtype=torch.float64)
        for _ in range(50):
            probs = torch.softmax(self.design @ self.mode, 0)
            mean = probs @ self.design
            spread = self.design.T @ (probs[:, None] * self.design) - torch.outer(mean, mean)
            self.precision = self.total * spread + torch.eye(len(mean), dtype=torch.float64)
            self.mode = self.mode + torch.linalg.solve(self.precision, self.target - self.total * mean - self.mode)
        self.factor = torch.linalg.cholesky(torch.linalg.inv(self.precision))

    def density(self, theta):
        """Log joint density without the constant of the likelihood."""
        return theta @ self.target - 0.5 * (theta * theta).sum(-1)

    def tables(self, theta, rng):
        """Statistics of one table for every theta."""
        probs = torch.softmax(theta @ self.design.T, -1).numpy()
        return torch.from_numpy(rng.multinomial(self.total, probs)).double() @ self.design


def pseudo_marginal(law, steps, chains, draws, rng):
    """Draws (chains, draws, P) and the rate of acceptance."""

    def propose():
        normal = torch.from_numpy(rng.standard_normal((chains, len(law.mode))))
        theta = law.mode + normal @ law.factor.T
        ladder = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[:, None, None]
        path = theta + ladder * (law.mode - theta)
        tables = torch.stack([law.tables(at, rng) for at in path[:-1]])
        estimate = ((path[1:] - path[:-1]) * tables).sum((0, -1))
        return theta, law.density(theta) + estimate + 0.5 * (normal * normal).sum(-1)

    here, weight = propose()
    kept, rates = [], []
    for _ in range(draws + draws // 4):
        there, proposed = propose()
        is_accepted = torch.from_numpy(np.log(rng.random(chains))) < proposed - weight
        here = torch.where(is_accepted[:, None], there, here)
        weight = torch.where(is_accepted, proposed, weight)
        kept.append(here)
        rates.append(is_accepted.double().mean())
    return torch.stack(kept[draws // 4 :], 1), float(torch.stack(rates).mean())


def exchange(law, shift, chains, draws, rng):
    """The exchange algorithm with proposals that keep the Laplace approximation, ``shift`` of the way to a new draw."""
    keep = (1 - shift * shift) ** 0.5
    normal = torch.from_numpy(rng.standard_normal((chains, len(law.mode))))
    here, kept, rates = law.mode + normal @ law.factor.T, [], []
    for _ in range(draws + draws // 4):
        new = torch.from_numpy(rng.standard_normal((chains, len(law.mode)))) @ law.factor.T
        there = law.mode + keep * (here - law.mode) + shift * new
        log_ratio = law.density(there) - law.density(here) + ((here - there) * law.tables(there, rng)).sum(-1)
        for theta, sign in ((here, 1), (there, -1)):
            away = theta - law.mode
            log_ratio = log_ratio + sign * 0.5 * ((away @ law.precision) * away).sum(-1)
        is_accepted = torch.from_numpy(np.log(rng.random(chains))) < log_ratio
        here = torch.where(is_accepted[:, None], there, here)
        kept.append(here)
        rates.append(is_accepted.double().mean())
    return torch.stack(kept[draws // 4 :], 1), float(torch.stack(rates).mean())


def main():
    parser = script(__doc__)
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--draws", type=int, default=400)
    options = parser.parse_args()
    torch.set_num_threads(1)
    law, rows, means = Posterior(), [], []

    def add(name, found, cost):
        theta, rate = found
        size = float(effective_sample_size(theta, chain_dim=0, sample_dim=1).min())
        per_table = size / (options.chains * options.draws * cost)
        means.append(theta.mean((0, 1)))
        rows.append([name, cost, f"{rate:.2f}", f"{size:.0f}", f"{1000 * per_table:.1f}"])

    for shift in (0.2, 0.4, 0.6):
        found = exchange(law, shift, options.chains, options.draws, np.random.default_rng(1))
        add(f"exchange, shift {shift}", found, 1)
    for steps in STEPS:
        found = pseudo_marginal(law, steps, options.chains, options.draws, np.random.default_rng(1))
        add(f"pseudo-marginal, {steps} steps", found, steps)
    scale = law.factor.norm(dim=1)
    gap = max(float(((a - means[0]) / scale).abs().max()) for a in means[1:])
    head = ["method", "tables a move", "acceptance", "smallest ESS", "ESS per 1,000 tables"]
    what = (
        f"{about()} {options.chains} chains of {options.draws} draws. Means agree within {gap:.2f} standard deviations."
    )
    text = ["`python tests/benchmarks/bench_reverse_runs.py`", "", what, "", *markdown(head, rows)]
    publish("Unbiased estimates of 1/Z beside exchange", "\n".join(text), options.append)


if __name__ == "__main__":
    main()
