"""Sizes of tests: goodness of fit, conditional tests and their chains, nested models, pairs inside triples.

python tests/benchmarks/bench_tests.py [--append] [PART] [OPTIONS]
"""

import itertools
import math
import time
import warnings

import numpy as np
from harness import Report, main, part, reported
from scipy.special import xlogy
from scipy.stats import chi2, kstest
from test_p_values import (
    SHAPES,
    expected_of,
    independent_law,
    order_model,
    randomised,
    small_fibre,
    statistics_of,
    truth_of,
)

from pyro_hoim import Domain, InteractionHypergraph, Observations, fit, goodness_of_fit
from pyro_hoim.log_linear import EdgeTester, likelihood_ratio_test, term_tests
from pyro_hoim.log_linear.goodness import fibre as module
from pyro_hoim.log_linear.goodness.p_values import MAX_MEAN_EXCESS, mean_shift, saturated_shift

warnings.simplefilter("ignore")  # estimates of sparse tables are often infinite

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


@part("Sizes of tests of goodness of fit")
def at_the_limit():
    """Sizes of 5 % tests by chi-square at the limit of its rule, independent variables or pairs, 20,000 tables each.

    Uniform (skew 0) and log-normal margins, as many rows as give an excess of the mean of G2 of 0.05 standard
    deviations, and 0.4 as control.
    """
    report = Report(["independent or of pairs, skew", "rows at excess 0.05", "G2", "X2", "G2 at excess 0.4"])
    for (name, (cards, order)), skew in itertools.product(MODELS.items(), (0.0, 0.7)):
        total, (deviance, pearson) = sizes_at_the_limit(cards, order, skew, MAX_MEAN_EXCESS)
        _, (control, _) = sizes_at_the_limit(cards, order, skew, 8 * MAX_MEAN_EXCESS)
        report.row(f"{name}, {skew}", total, f"{deviance:.3f}", f"{pearson:.3f}", f"{control:.3f}")
    return report.lines()


@part("Sizes of tests of sparse tables")
def sparse():
    """2 x 60 x 3 and three more independent tables, 200 of each: the exact test and the bootstrap with 199 tables."""
    head = "independent, rows | exact G2 | exact X2 | bootstrap X2 | chi-square G2 | chi-square X2 | s per exact test"
    report = Report(head.split(" | "))
    for cards, total in SPARSE:
        shares, seconds = sparse_sizes(cards, total)
        name = " x ".join(map(str, cards))
        report.row(f"{name}, {total}", *(f"{share:.3f}" for share in shares), f"{seconds:.3f}")
    return report.lines()


@part("Sizes of tests in two rounds")
def rounds(tables=1000):
    """By the library's own choice: 999 tables, and 100 times as many where fewer than ten of them are as extreme.

    Control: the p-value of chi-square.
    """
    head = "null, rows: models | tables | 5 % | 1 % | 0.1 % | chi-square 5 % | chi-square 1 % | second rounds | s"
    return reported(head.split(" | "), (sizes_of_rounds(*case, tables) for case in ROUNDS))


PAIRS = "a*b + b*c + a*c"
UNIFORM = {
    "2 x 60 x 3, pairs": ((2, 60, 3), PAIRS, 600),
    "3 x 4 x 5, pairs": ((3, 4, 5), PAIRS, 200),
    "3 x 3 x 3, pairs": ((3, 3, 3), PAIRS, 60),
    "2^4, pairs": ((2,) * 4, "a*b + a*c + a*d + b*c + b*d + c*d", 60),
    "2^5, pairs": ((2,) * 5, "a*b + a*c + a*d + a*e + b*c + b*d + b*e + c*d + c*e + d*e", 150),
    "3 x 3 x 2 x 2, triples": ((3, 3, 2, 2), "a*b*c + a*b*d + a*c*d + b*c*d", 150),
    "2 x 3 x 4 x 2, cycle": ((2, 3, 4, 2), "a*b + b*c + c*d + d*a", 100),
    "6 x 4 x 3, chain": ((6, 4, 3), "a*b + b*c", 120),
    "6 x 7, independence": ((6, 7), "a + b", 50),
    "5^4, pairs, sparse": ((5,) * 4, "a*b + a*c + a*d + b*c + b*d + c*d", 90),
    "3 x 3 x 3 x 2, pairs glued to d": ((3, 3, 3, 2), PAIRS + " + c*d", 90),
}


def z_scores(num):
    """Of p-values by chains of 4,000 tables, against full enumeration."""
    module.listed_tables, found = (lambda *_: None), []
    for number in range(num):
        graph, counts = small_fibre(list(SHAPES)[number % len(SHAPES)], 100 + number)
        truth, _ = truth_of(graph, counts)
        means = expected_of(graph, counts)
        test = module.conditional_p_value(graph, None, counts.ravel(), means, 5, num_tables=4000, seed=number)[0]
        share = (test.p_value * 4001 - 1) / 4000  # without the observed table
        error = math.sqrt(max(truth * (1 - truth), 1e-12) / 4000)
        found.append(0.0 if abs(share - truth) < 1e-6 else (share - truth) / error)
    return np.array(found)


@part("P-values of conditional tests")
def uniform():
    """Eleven shapes, 200 tables of the model each, ties broken at random; and 25 with another interaction."""
    report = Report(["model", "rows", "KS p", "rejected at 5 %", "with another interaction"])
    for name, case in UNIFORM.items():
        values = randomised("conditional", *case, 200)
        control = randomised("conditional", *case, 25, interaction=1.0)
        uniform_p = kstest(values, "uniform").pvalue
        shares = (values <= 0.05).mean(), (control <= 0.05).mean()
        report.row(name, case[2], f"{uniform_p:.2g}", f"{shares[0]:.3f}", f"{shares[1]:.2f}")
    return report.lines()


@part("Conditional tests against enumeration")
def enumeration():
    """100 small fibres, 4,000 tables of chains against all tables; z-scores."""
    scores = z_scores(100)
    return [f"Root mean square z {np.sqrt((scores**2).mean()):.2f}, largest {np.abs(scores).max():.2f}."]


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
TAIL_LEVELS = (0.01, 0.001, 0.0001)


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
            if number >= 20 and ratio[number] < chi2.isf(2 * TAIL_LEVELS[0], df):
                continue
            unit = math.sqrt(2 * df)
            shift = saturated_shift(design, means[number]) / unit
            if number < 20:
                shifts.append(shift)
            if abs(shift) <= MOST:
                rejected += chi2.sf(ratio[number] / (1 + shift * unit / df), df) <= TAIL_LEVELS
                plain += chi2.sf(ratio[number], df) <= TAIL_LEVELS
    used = (np.abs(shifts) <= MOST).mean() * num_tables
    cells = [f"{' x '.join(map(str, cards))}, {total}", df, num_tables, f"{np.median(shifts):.3f}"]
    cells += [f"{used / num_tables:.2f}"]
    return [
        *cells,
        *(f"{of / used:.5f} ± {math.sqrt(p / used):.5f}" for of, p in zip(rejected, TAIL_LEVELS, strict=True)),
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


@part("Sizes of tests of nested models")
def nested(tables=1000):
    """Sizes of tests of one interaction by chi-square, where the rule relies on it and where it does not.

    Rows are drawn from random models of all pairs without the one tested; both models are estimated by Newton's method
    of this script. The library takes the chi-square distribution as it is where the mean of the likelihood ratio is off
    by at most 0.05 standard deviations (predicted by the median, and of these tables), and up to 0.3 after division by
    Bartlett's factor; beyond neither is used. Control: no division there. Standard errors are those at the level.
    """
    head = (
        "table, rows | df | tables | predicted shift | shift | by chi-square | by Bartlett's factor | LR 5 % | LR 1 %"
    )
    head += " | control: LR 5 % where not divided | Wald 5 % | Wald 5 % where rough"
    return reported(head.split(" | "), (row_of(case, tables) for case in GRID))


@part("Tails of tests of independence")
def tails(tables=200_000):
    """Against the saturated model, where the library divides by Bartlett's factor if no table has as large a one."""
    head = "independent, rows | df | tables | predicted shift | relied on | 1 % | 0.1 % | 0.01 % | control: 0.1 %"
    return reported(head.split(" | "), (tails_of(*case, tables) for case in TAILS))


@part("Tests of weighted rows")
def weighted(tables=300):
    """Weighted rows, whose p-values the library calls rough beyond 0.05 standard deviations."""
    head = ["weighted rows", "tables", "rough", "Rao and Scott 5 %", "Wald 5 %"]
    return reported(head, (weighted_row(*case, tables) for case in WEIGHTED))


KINDS = [
    ("normal", 2, 5),
    ("cell", 3, 5),
    ("cell", 6, 5),
    ("linear", 1, 5),
    ("linear", 3, 5),
    ("linear", 2, 3),
    ("exponential", 1, 5),
    ("exponential", 3, 5),
]


def triple_law(kind, size, levels, rng):
    scores = np.linspace(-1, 1, levels)
    singles = [rng.normal(size=levels) for _ in range(3)]
    if kind == "normal":
        triple = size * rng.normal(size=(levels,) * 3)
    elif kind == "cell":
        triple = np.zeros((levels,) * 3)
        triple[tuple(rng.integers(0, levels, 3))] = size
    else:
        slope, own = (1.5, scores) if kind == "linear" else (1.0, np.exp(1.5 * scores) / 2)
        triple = size * own[:, None, None] * own[:, None] * own
        singles = [slope * scores * rng.choice([-1, 1]) for _ in range(3)]
    for axis in range(3):
        triple = triple - triple.mean(axis, keepdims=True)
    log_law = triple + singles[0][:, None, None] + singles[1][:, None] + singles[2]
    found = np.exp(log_law - log_law.max())
    return found / found.sum()


@part("Absent pairs inside triples")
def inside_triples(runs=100, rows=(300, 2000)):
    """How often a pair that is absent is rejected beside its triple, for triples of several kinds, at 5 and 1 %.

    Tables of three variables with random or sloping single frequencies and one triple: normal entries, one cell, or a
    product of linear or of exponential scores, centred.
    """
    report = Report(["triple", "size", "levels", *(f"{num:,} rows" for num in rows)])
    for kind, size, levels in KINDS:
        domain, cells = Domain.from_cardinalities(dict.fromkeys("abc", levels)), []
        for num in rows:
            values = []
            for number in range(runs):
                rng = np.random.default_rng([number, num, levels, 10 * size])
                counts = rng.multinomial(num, triple_law(kind, size, levels, rng).ravel()).reshape((levels,) * 3)
                tester = EdgeTester(Observations.from_table(domain, counts))
                pair = [("a", "b"), ("a", "c"), ("b", "c")][number % 3]
                values.append(tester.test(pair, [("a", "b", "c")]).p_value)
            cells.append(", ".join(f"{np.mean(np.array(values) <= level):.3f}" for level in (0.05, 0.01)))
        report.row(kind, size, levels, *cells)
    return report.lines()


if __name__ == "__main__":
    main(__doc__)
