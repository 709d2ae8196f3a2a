"""Coverage of 90 % intervals over simulated tables: pseudo-posteriors, calibrated and not, and the exact posterior.

usage: bench_pseudo_coverage.py [--tables N] [--append]

Six binary variables, all pairs, 1,841 rows as in the Czech table. "as Czech": theta is the posterior mode of that
table, prior scale 1. "from the prior": theta is drawn anew for every table from the prior itself, of scale 0.3, so that
the exact posterior covers 90 % by construction. Intervals are those of the normal approximation at the mode, of the
exact posterior, too; nothing is drawn by NUTS. Coverage of all pairs and of all variables together, with its standard
error over tables; then that of the pair covered least and of the pair covered most, with exact (Clopper-Pearson) 95 %
intervals, which for an extreme of 15 pairs are too short.
"""

import numpy as np
import torch
from harness import about, markdown, publish, script
from scipy import stats

from pyro_hoim import InteractionHypergraph, Observations, load_table
from pyro_hoim.inference.calibration import calibrated_covariance, find_mode, inverse_of
from pyro_hoim.log_linear import Enumeration, LogLinearPseudoLikelihood, normal_prior, statistics_of
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.laws.natural_parameters import fisher_information, solve_natural_parameters

METHODS = ("exact", "curvature", "magnitude", "none")
HALF = stats.norm.isf(0.05)


def exact(hypergraph, data, scale):
    """Mode and standard deviations of the normal approximation of the exact posterior."""
    total = data.total_count
    precision = torch.full((hypergraph.num_parameters,), scale**-2, dtype=torch.float64)
    mean = statistics_of(data, hypergraph) / total
    mode = solve_natural_parameters(hypergraph, mean, Enumeration(), precision=precision / total)
    information = total * fisher_information(hypergraph, mode, Enumeration()) + torch.diag(precision)
    return mode.numpy(), np.sqrt(np.diag(inverse_of(information.numpy())))


def covered(hypergraph, data, scale, truth):
    """Whether every parameter is in its interval, by method."""
    mode, deviation = exact(hypergraph, data, scale)
    found = {"exact": np.abs(mode - truth) <= HALF * deviation}
    likelihood = LogLinearPseudoLikelihood(hypergraph, data)
    prior = normal_prior(hypergraph, scale, dtype=torch.float64)
    mode, is_mode = find_mode(likelihood, prior, np.zeros(len(truth)))
    assert is_mode
    for method in METHODS[1:]:
        covariance = calibrated_covariance(likelihood, mode, np.full(len(truth), scale**-2), method)
        found[method] = np.abs(mode - truth) <= HALF * np.sqrt(np.diag(covariance))
    return found


def extreme(shares, number):
    """Coverage of one pair with its exact interval."""
    low, high = stats.binomtest(round(shares * number), number).proportion_ci(0.95, method="exact")
    return f"{shares:.3f} [{low:.3f}, {high:.3f}]"


def main():
    parser = script(__doc__)
    parser.add_argument("--tables", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    is_pair = hypergraph.spread(torch.tensor([len(edge) == 2 for edge in hypergraph.edges])).numpy()
    fixed, rows = exact(hypergraph, data, 1.0)[0], []
    for name, scale in (("as Czech", 1.0), ("from the prior", 0.3)):
        rng = np.random.default_rng(1)
        found = {method: [] for method in METHODS}
        for _ in range(arguments.tables):
            truth = fixed if scale == 1.0 else scale * rng.standard_normal(len(fixed))
            logits = design_matrix(hypergraph) @ truth
            probs = np.exp(logits - np.logaddexp.reduce(logits))
            counts = rng.multinomial(int(data.total_count), probs).reshape(data.domain.cardinalities)
            for method, inside in covered(
                hypergraph, Observations.from_table(data.domain, counts), scale, truth
            ).items():
                found[method].append(inside)
        for method in METHODS:
            inside = np.array(found[method])
            row = [name, method]
            for part in (inside[:, is_pair], inside[:, ~is_pair]):
                each = part.mean(1)
                row.append(f"{each.mean():.3f} ± {each.std(ddof=1) / np.sqrt(len(each)):.3f}")
            pairs = inside[:, is_pair].mean(0)
            rows.append([*row, extreme(pairs.min(), len(inside)), extreme(pairs.max(), len(inside))])
    head = ["theta", "calibration", "all pairs", "all variables", "pair covered least", "pair covered most"]
    command = f"`python tests/benchmarks/bench_pseudo_coverage.py --tables {arguments.tables}`"
    what = f"{about()} {arguments.tables} tables of {data.total_count:.0f} rows; nominal coverage 0.9."
    text = [command, "", what, "", *markdown(head, rows)]
    publish("Coverage of pseudo-posteriors", "\n".join(text), arguments.append)


if __name__ == "__main__":
    main()
