"""Sizes of tests of one interaction by chi-square, where the rule relies on it and where it does not.

usage: bench_nested_tests.py [--tables N] [--tails N] [--weighted N] [--append]

Rows are drawn from random models of all pairs without the one tested; both models are estimated by Newton's method of
this script. The library takes the chi-square distribution as it is where the mean of the likelihood ratio is off by at
most 0.05 standard deviations, and up to 0.3 after division by Bartlett's factor. Control: no division there.

Then tails of tests of independence against the saturated model, where the library divides by Bartlett's factor if no
table that is drawn has as large a statistic; and weighted rows, whose p-values it calls rough beyond 0.05 standard
deviations.
"""

import itertools
import math
import time
import warnings

import numpy as np
from harness import markdown, publish, script
from scipy.special import xlogy
from scipy.stats import chi2

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.log_linear import fit, likelihood_ratio_test, term_tests
from pyro_hoim.log_linear.goodness.p_values import MAX_MEAN_EXCESS, mean_shift, saturated_shift

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


TAILS = (
    ((3, 4), 60),
    ((3, 4), 100),
    ((5, 6), 200),
    ((2, 2, 2), 40),
    ((3, 3, 3), 150),
    ((2, 3, 4), 120),
    ((2,) * 5, 200),
)
LEVELS = (0.01, 0.001, 0.0001)


def tails_of(cards, total, num_tables):
    """Shares of independent tables that are rejected at small levels, where Bartlett's factor is relied on."""
    random, size = np.random.default_rng(6), math.prod(cards)
    codes = np.indices(cards).reshape(len(cards), -1)
    indicators = [np.eye(card)[of] for card, of in zip(cards, codes, strict=True)]
    design, df = np.hstack(indicators), size - 1 - sum(card - 1 for card in cards)
    rejected, plain, used, shifts = np.zeros(3), np.zeros(3), 0, []
    for _ in range(num_tables // 1000):
        margins = [np.exp(0.5 * random.normal(size=card)) for card in cards]
        law = np.prod([(of / of.sum())[code] for of, code in zip(margins, codes, strict=True)], axis=0)
        tables = random.multinomial(total, law, size=1000).astype(float)
        means = total * np.prod([(tables @ of / total) @ of.T for of in indicators], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = 2 * xlogy(tables, tables / means).sum(1)
        for number in np.flatnonzero((means > 0).all(1)):
            # of small statistics the shift is looked up in the first tables alone, to count how often it is relied on
            if number >= 20 and ratio[number] < chi2.isf(2 * LEVELS[0], df):
                continue
            unit = math.sqrt(2 * df)
            shift = saturated_shift(design, means[number]) / unit
            if number < 20:
                shifts.append(shift)
            if abs(shift) <= MOST:
                rejected += chi2.sf(ratio[number] / (1 + shift * unit / df), df) <= LEVELS
                plain += chi2.sf(ratio[number], df) <= LEVELS
    used = (np.abs(shifts) <= MOST).mean() * num_tables
    cells = [f"{' x '.join(map(str, cards))}, {total}", df, num_tables, f"{np.median(shifts):.3f}"]
    cells += [f"{used / num_tables:.2f}"]
    return [
        *cells,
        *(f"{of / used:.5f} ± {math.sqrt(p / used):.5f}" for of, p in zip(rejected, LEVELS, strict=True)),
        f"{plain[1] / used:.5f}",
    ]


WEIGHTED = (((3, 4), 600), ((3, 4), 150), ((3, 4), 80), ((2, 2), 40), ((2, 2, 3), 60))


def weighted_row(cards, total, num_tables):
    """Sizes at 5 % of tests of a pair under weights that tell nothing."""
    domain = Domain.from_cardinalities(dict(zip("abc", cards, strict=False)))
    graph, random = InteractionHypergraph.from_order(domain, 2), np.random.default_rng(7)
    small, found, rough = graph.remove_edges([("a", "b")]), [], 0
    for _ in range(num_tables):
        codes = np.stack([random.choice(card, total, p=random.dirichlet(np.full(card, 8.0))) for card in cards], axis=1)
        data = Observations.from_tensor(codes, domain, weights=random.gamma(2.0, 1.0, total))
        larger = fit(graph, data)
        ratio = likelihood_ratio_test(fit(small, data), larger)
        wald = term_tests(larger, method="wald", terms=[("a", "b")]).iloc[0]
        found.append([ratio.p_value, wald["p_value"]])
        rough += ratio.p_value_note.startswith("rough")
    name = f"{' x '.join(map(str, cards))}, {total}"
    shares = []
    for values in np.array(found, dtype=float).T:
        known = values[~np.isnan(values)]
        shares.append(f"{(known <= 0.05).mean():.3f} ± {math.sqrt(0.0475 / len(known)):.3f}")
    return [name, num_tables, f"{rough / num_tables:.2f}", *shares]


def _sizes(values, df, level):
    values = values[~np.isnan(values)]
    if len(values) < 20:
        return "–"
    rate = (chi2.sf(values, df) <= level).mean()
    return f"{rate:.3f} ± {math.sqrt(level * (1 - level) / len(values)):.3f}"


def main():
    parser = script(__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--tails", type=int, default=200_000)
    parser.add_argument("--weighted", type=int, default=300)
    arguments = parser.parse_args()
    begin = time.process_time()
    head = (
        "table, rows | df | tables | predicted shift | shift | by chi-square | by Bartlett's factor | LR 5 % | LR 1 %"
    )
    head += " | control: LR 5 % where not divided | Wald 5 % | Wald 5 % where rough"
    rows = []
    for case in GRID if arguments.tables else ():
        rows.append(row_of(case, arguments.tables))
        print(*markdown(rows[-1])[:1], flush=True)
    head_of_tails = (
        "independent, rows | df | tables | predicted shift | relied on | 1 % | 0.1 % | 0.01 % | control: 0.1 %"
    )
    tails = [tails_of(*case, arguments.tails) for case in TAILS]
    print(*markdown(head_of_tails.split(" | "), tails), sep="\n", flush=True)
    head_of_weights = "weighted rows | tables | rough | Rao and Scott 5 % | Wald 5 %"
    warnings.simplefilter("ignore")
    weights = [weighted_row(*case, arguments.weighted) for case in WEIGHTED]
    about = (
        f"{time.process_time() - begin:.0f} seconds of processor time. "
        f"`python tests/benchmarks/bench_nested_tests.py --tables {arguments.tables}`: shares of tables without the "
        "tested interaction that are rejected, with standard errors at the level, by the likelihood ratio (LR), which "
        "is divided by Bartlett's factor where its mean is off by 0.05 to 0.3 standard deviations of chi-square; that "
        "shift, predicted (median) and of these tables. Beyond 0.3 neither is used."
    )
    lines = [*markdown(head.split(" | "), rows), "", *markdown(head_of_tails.split(" | "), tails), ""]
    lines += markdown(head_of_weights.split(" | "), weights)
    publish("Sizes of tests of nested models", "\n".join([about, "", *lines]), arguments.append)


if __name__ == "__main__":
    main()
