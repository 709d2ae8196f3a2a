"""Sizes of tests of one interaction by chi-square, where the rule relies on it and where it does not.

usage: bench_nested_tests.py [--tables N] [--append]

Rows are drawn from random models of all pairs without the one tested; both models are estimated by Newton's method of
this script. The library takes the chi-square distribution as it is where the mean of the likelihood ratio is off by at
most 0.05 standard deviations, and up to 0.3 after division by Bartlett's factor. Control: no division there.
"""

import itertools
import math
import time

import numpy as np
from harness import markdown, publish, script
from scipy.stats import chi2

from pyro_hoim.log_linear.goodness.mean_shift import mean_shift
from pyro_hoim.log_linear.goodness.p_values import MAX_MEAN_EXCESS

MOST = 0.3  # standard deviations, beyond which the library draws tables

MIXED = (2, 3, 2, 4, 2, 3, 2, 5, 2)
GRID = (  # levels, rows, tested columns, spread of main effects and of log odds ratios, share of the tables asked for
    ((2,) * 4, 60, (0, 3), 0.5, 1.0, 1),
    ((2,) * 4, 300, (0, 3), 0.5, 1.0, 1),
    ((2,) * 5, 300, (0, 1, 2), 0.5, 1.0, 1),
    ((2,) * 8, 300, (0, 7), 0.5, 1.0, 1),
    ((2,) * 8, 1000, (0, 7), 0.5, 1.0, 1),
    ((2,) * 8, 3000, (0, 7), 0.5, 1.0, 1),
    ((2,) * 12, 10_000, (0, 11), 0.5, 0.5, 0.2),
    (MIXED, 4057, (0, 2), 0.5, 0.5, 0.2),
    (MIXED, 4057, (3, 7), 0.5, 0.5, 0.2),
    ((2, 3, 4, 5, 6), 1000, (0, 1), 0.5, 0.7, 0.5),
    ((2, 3, 4, 5, 6), 1000, (3, 4), 0.5, 0.7, 0.5),
    ((2, 2, 3, 4), 300, (2, 3), 1.5, 0.7, 1),
    ((3, 4, 5), 200, (1, 2), 0.5, 0.7, 1),
    ((4, 5, 3, 6, 4), 250, (0, 2), 0.7, 0.7, 0.3),
    ((2, 60, 3), 600, (0, 1), 0.5, 0.5, 0.3),
)


def design_of(cards, tested):
    """Centred indicators of levels and products of pairs, with the variables of each column."""
    codes = np.indices(cards).reshape(len(cards), -1)
    single = [[(codes[i] == level) - 1 / size for level in range(1, size)] for i, size in enumerate(cards)]
    edges = [*itertools.combinations(range(len(cards)), 1), *itertools.combinations(range(len(cards)), 2)]
    edges += [] if tested in edges else [tested]
    members, columns = [], []
    for edge in edges:
        for parts in itertools.product(*(single[i] for i in edge)):
            members.append(edge)
            columns.append(np.prod(parts, axis=0))
    return np.array(columns).T, members


def maximum(design, table, theta):
    """Newton's method: log-likelihood, parameters and probabilities; infinite estimates are followed to rounding."""
    total, target = table.sum(), table @ design

    def at(values):
        logits = design @ values
        weights = np.exp(logits - logits.max())
        return weights / weights.sum(), target @ values - total * (logits.max() + math.log(weights.sum()))

    probs, value = at(theta)
    for _ in range(60):
        centred = design - probs @ design
        information = total * (centred.T @ (probs[:, None] * centred))
        information[np.diag_indices(len(theta))] += 1e-9 * total
        step, size = np.linalg.solve(information, target - total * (probs @ design)), 1.0
        while at(theta + size * step)[1] < value - 1e-10 and size > 1e-6:
            size /= 2
        theta, before = theta + size * step, value
        probs, value = at(theta)
        if value - before < 1e-9:
            break
    return value, theta, probs


def information_of(design, probs, total):
    centred = design - probs @ design
    return total * (centred.T @ (probs[:, None] * centred))


def one_table(design, tested, law, total, random):
    """Likelihood ratio, Wald's statistic, and the predicted shift of the mean of the first."""
    table = random.multinomial(total, law).astype(float)
    low, theta, null = maximum(design[:, ~tested], table, np.zeros((~tested).sum()))
    start = np.zeros(len(tested))
    start[~tested] = theta
    high, theta, probs = maximum(design, table, start)
    covariance = np.linalg.pinv(information_of(design, probs, total), rcond=1e-10, hermitian=True)
    part = covariance[np.ix_(tested, tested)]
    is_infinite = probs.min() < 1e-8 / total and np.abs(theta[tested]).max() > 10
    wald = math.nan if is_infinite else theta[tested] @ np.linalg.solve(part, theta[tested])
    cells = null * total > 1e-7
    whole = np.column_stack([np.ones(int(cells.sum())), design[cells]])
    shift = mean_shift(whole[:, [True, *~tested]], whole, total * null[cells])
    return 2 * (high - low), wald, shift / math.sqrt(2 * tested.sum())


def row_of(case, num_tables):
    cards, total, edge, main, pair, share = case
    design, members = design_of(cards, edge)
    tested = np.array([member == edge for member in members])
    df = int(tested.sum())
    spread = np.where([len(member) == 1 for member in members], main, pair) * ~tested
    random, found = np.random.default_rng(5), []
    for _ in range(math.ceil(share * num_tables)):
        logits = design @ (spread * random.normal(size=len(members)))
        law = np.exp(logits - logits.max())
        found.append(one_table(design, tested, law / law.sum(), total, random))
    ratio, wald, shift = np.array(found, dtype=float).T
    plain, corrected = np.abs(shift) <= MAX_MEAN_EXCESS, (np.abs(shift) > MAX_MEAN_EXCESS) & (np.abs(shift) <= MOST)
    name = " x ".join(map(str, cards)) if len(set(cards)) > 1 else f"{cards[0]}^{len(cards)}"
    excess, unit = ratio - df, math.sqrt(2 * df)
    off = f"{excess.mean() / unit:.3f} ± {excess.std() / unit / math.sqrt(len(excess)):.3f}"
    cells = [f"{name}, {total}", df, len(found), f"{np.median(shift):.3f}", off]
    cells += [f"{plain.mean():.2f}", f"{corrected.mean():.2f}"]
    used = np.where(plain, ratio, ratio / (1 + shift * unit / df))[plain | corrected]
    cells += [_sizes(used, df, level) for level in (0.05, 0.01)]
    return [*cells, _sizes(ratio[corrected], df, 0.05), *(_sizes(wald[part], df, 0.05) for part in (plain, ~plain))]


def _sizes(values, df, level):
    values = values[~np.isnan(values)]
    if len(values) < 20:
        return "–"
    rate = (chi2.sf(values, df) <= level).mean()
    return f"{rate:.3f} ± {math.sqrt(level * (1 - level) / len(values)):.3f}"


def main():
    parser = script(__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    arguments = parser.parse_args()
    begin = time.process_time()
    head = (
        "table, rows | df | tables | predicted shift | shift | by chi-square | by Bartlett's factor | LR 5 % | LR 1 %"
    )
    head += " | control: LR 5 % where not divided | Wald 5 % | Wald 5 % where rough"
    rows = []
    for case in GRID:
        rows.append(row_of(case, arguments.tables))
        print(*markdown(rows[-1])[:1], flush=True)
    about = (
        f"{time.process_time() - begin:.0f} seconds of processor time. "
        f"`python tests/benchmarks/bench_nested_tests.py --tables {arguments.tables}`: shares of tables without the "
        "tested interaction that are rejected, with standard errors at the level, by the likelihood ratio (LR), which "
        "is divided by Bartlett's factor where its mean is off by 0.05 to 0.3 standard deviations of chi-square; that "
        "shift, predicted (median) and of these tables. Beyond 0.3 neither is used."
    )
    publish(
        "Sizes of tests of nested models", "\n".join([about, "", *markdown(head.split(" | "), rows)]), arguments.append
    )


if __name__ == "__main__":
    main()
