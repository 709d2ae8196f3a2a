"""Sizes of 5 % tests of goodness of fit: chi-square at the limit of its rule, and both methods on sparse tables.

usage: bench_goodness_of_fit.py [--append]

At the limit: independent variables with uniform (skew 0) and log-normal margins, as many rows as give an excess of the
mean of G2 of 0.05 standard deviations, and 0.4 as control; 20,000 tables each. Sparse: 2 x 60 x 3 and three more
independent tables, 200 of each; the exact test and the bootstrap with 199 tables.
"""

import itertools
import math
import time
import warnings

import numpy as np
from harness import markdown, publish, script
from scipy.stats import chi2
from test_bootstrap import independent_law, order_model, statistics_of

from pyro_hoim import Observations, fit, goodness_of_fit
from pyro_hoim.log_linear.goodness.p_values import MAX_MEAN_EXCESS

MODELS = {
    "4 x 4": ((4, 4), 1),
    "10 x 10": ((10, 10), 1),
    "2^5, pairs": ((2,) * 5, 2),
    "4 x 3 x 3, pairs": ((4, 3, 3), 2),
}
SPARSE = (((2, 60, 3), 600), ((30, 30), 400), ((2,) * 8, 100), ((2, 120, 2), 360))


def sizes_at_the_limit(cards, order, skew, excess, num_tables=20_000):
    law = independent_law(cards, skew)
    df = law.size - 1 - order_model(cards, order).num_parameters
    total = math.ceil((1 / law).sum() / (6 * excess * math.sqrt(2 * df)))
    *found, df = statistics_of(cards, order, law, total, num_tables)
    return total, [(chi2.sf(values, df) <= 0.05).mean() for values in found]


def sparse_sizes(cards, total, num_tables=200):
    graph = order_model(cards, 1)
    random, probs, found = np.random.default_rng(11), independent_law(cards, 0.3), []
    seconds = 0.0
    for number in range(num_tables):
        table = random.multinomial(total, probs).reshape(cards)
        result = fit(graph, Observations.from_table(graph.domain, table))
        begin = time.process_time()
        ours = goodness_of_fit(result, "exact", num_tables=199, seed=number)
        seconds += time.process_time() - begin
        drawn = goodness_of_fit(result, "bootstrap", num_tables=199, seed=number)
        theirs = goodness_of_fit(result, "chi-square")
        found.append([ours.p_value, ours.p_value_pearson, drawn.p_value, theirs.p_value, theirs.p_value_pearson])
    return (np.array(found) <= 0.05).mean(0), seconds / num_tables


def main():
    parser = script(__doc__)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    begin = time.process_time()
    head = "independent or of pairs, skew | rows at excess 0.05 | G2 | X2 | G2 at excess 0.4"
    lines = markdown(head.split(" | "))
    for (name, (cards, order)), skew in itertools.product(MODELS.items(), (0.0, 0.7)):
        total, (deviance, pearson) = sizes_at_the_limit(cards, order, skew, MAX_MEAN_EXCESS)
        _, (control, _) = sizes_at_the_limit(cards, order, skew, 8 * MAX_MEAN_EXCESS)
        lines.append(f"| {name}, {skew} | {total} | {deviance:.3f} | {pearson:.3f} | {control:.3f} |")
    head = "independent, rows | exact G2 | exact X2 | bootstrap X2 | chi-square G2 | chi-square X2 | s per exact test"
    lines += ["", *markdown(head.split(" | "))]
    for cards, total in SPARSE:
        shares, seconds = sparse_sizes(cards, total)
        name = " x ".join(map(str, cards))
        lines.append(f"| {name}, {total} | " + " | ".join(f"{share:.3f}" for share in shares) + f" | {seconds:.3f} |")
    about = (
        f"{time.process_time() - begin:.0f} seconds of processor time. "
        "`python tests/benchmarks/bench_goodness_of_fit.py`: share of tables that fit and are rejected at 5 %."
    )
    publish("Sizes of tests of goodness of fit", "\n".join([about, "", *lines]), arguments.append)


if __name__ == "__main__":
    main()
