"""Sizes of 5 % tests of goodness of fit: chi-square at the limit of its rule, and both methods on sparse tables.

usage: bench_goodness_of_fit.py [--rounds N] [--append]

At the limit: independent variables with uniform (skew 0) and log-normal margins, as many rows as give an excess of the
mean of G2 of 0.05 standard deviations, and 0.4 as control; 20,000 tables each. Sparse: 2 x 60 x 3 and three more
independent tables, 200 of each; the exact test and the bootstrap with 199 tables.

Rounds: N tables each by the library's own choice of method, with 999 tables and 100 times as many where fewer than ten
of them are as extreme; control: the p-value of chi-square.
"""

import itertools
import math
import time
import warnings

import numpy as np
from harness import markdown, publish, script
from scipy.stats import chi2
from test_bootstrap import independent_law, order_model, statistics_of

from pyro_hoim import Domain, InteractionHypergraph, Observations, fit, goodness_of_fit
from pyro_hoim.log_linear import likelihood_ratio_test
from pyro_hoim.log_linear.goodness.p_values import MAX_MEAN_EXCESS

MODELS = {
    "4 x 4": ((4, 4), 1),
    "10 x 10": ((10, 10), 1),
    "2^5, pairs": ((2,) * 5, 2),
    "4 x 3 x 3, pairs": ((4, 3, 3), 2),
}
SPARSE = (((2, 60, 3), 600), ((30, 30), 400), ((2,) * 8, 100), ((2, 120, 2), 360))

LEVELS = (0.05, 0.01, 0.001)
ROUNDS = (  # tables, rows, models whose difference is tested; None for the saturated model
    ((2, 12, 3), 60, "a + b + c", None),
    ((2, 12, 3), 100, "a + b + c", "a*b + b*c"),
    ((3, 4, 5), 80, "a*b + b*c + a*c", None),
)


def sizes_of_rounds(cards, total, small, big, num_tables):
    """Rejections at three levels, of chi-square too, how often there was a second round, and seconds a table."""
    domain = Domain.from_cardinalities(dict(zip("abc", cards, strict=True)))
    graphs = [InteractionHypergraph.from_formula(domain, text) for text in (small, big) if text]
    random, law, found = np.random.default_rng(8), independent_law(cards, 0.3), []
    begin = time.process_time()
    for number in range(num_tables):
        data = Observations.from_table(domain, random.multinomial(total, law).reshape(cards))
        fits = [fit(graph, data) for graph in graphs]
        compare = goodness_of_fit if big is None else likelihood_ratio_test
        ours, plain = (compare(*fits, how, seed=number) for how in ("auto", "chi-square"))
        found.append([ours.p_value, plain.p_value, ours.num_tables > 999])
    ours, plain, more = np.array(found).T
    shares = [f"{(ours <= a).mean():.4f} ± {math.sqrt(a * (1 - a) / num_tables):.4f}" for a in LEVELS]
    name = f"{' x '.join(map(str, cards))}, {total}: {small} in {big or 'all'}"
    cells = [name, num_tables, *shares, *(f"{(plain <= a).mean():.3f}" for a in LEVELS[:2]), f"{more.mean():.3f}"]
    return [*cells, f"{(time.process_time() - begin) / num_tables:.3f}"]


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
    parser.add_argument("--rounds", type=int, default=1000)
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
    head = "null, rows: models | tables | 5 % | 1 % | 0.1 % | chi-square 5 % | chi-square 1 % | second rounds | s"
    rows = []
    for case in ROUNDS if arguments.rounds else ():
        rows.append(sizes_of_rounds(*case, arguments.rounds))
        print(*rows[-1], sep=" | ", flush=True)
    lines += ["", *markdown(head.split(" | "), rows)]
    about = (
        f"{time.process_time() - begin:.0f} seconds of processor time. "
        "`python tests/benchmarks/bench_goodness_of_fit.py`: share of tables that fit and are rejected at 5 %."
    )
    publish("Sizes of tests of goodness of fit", "\n".join([about, "", *lines]), arguments.append)


if __name__ == "__main__":
    main()
