"""Conditional tests: speed beside a walk of one kind of table, uniform p-values, enumeration of small fibres.

usage: bench_conditional.py [--append]

Speed: 2 x J x 3 tables without a three-way interaction, 99 chains of 4,000 steps each by the parallel method, beside an
own walk of that kind of table alone (one circuit of four or six cells a step, Metropolis' rule, compiled), on the same
tables in turn; power is that at 5 % with a three-way interaction of standard deviation 0.8. Uniform: eleven shapes, 200
tables of the model each, ties broken at random. Enumeration: 100 small fibres, 4,000 tables of chains against all
tables; z-scores. Moves: of tables of 300 rows in 10 x 10 x 10 x 10 cells with log-normal levels, the sets of four rows
that a move exchanges with all pairs kept, counted one by one, and how many of 20,000 steps change the table.
"""

import itertools
import math
import sys
import time
import warnings

import numpy as np
from harness import markdown, publish, script
from scipy.stats import kstest
from test_conditional import SHAPES, expected_of, model, randomised, small_fibre, truth_of

from pyro_hoim.compute.jit import njit
from pyro_hoim.log_linear.goodness import fibre as module
from pyro_hoim.log_linear.goodness.fibre import Fibre

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

SPARSE = "spread | cells with rows | sets of four rows | moves | microseconds a step | by random levels | microseconds"


@njit(cache=False)
def peer_walk(start, num_steps, seed):  # Numba's own generator, as the peer has it
    """A walk on 2 x J x K tables by circuits of two or three rows and columns, lifted to both layers."""
    np.random.seed(seed)  # noqa: NPY002
    table = start.copy()
    _, rows, columns = table.shape
    for _ in range(num_steps):
        layers = np.random.permutation(2)  # noqa: NPY002
        length = 2 if np.random.random() < 0.6 else 3  # noqa: NPY002
        j, k = np.random.permutation(rows)[:length], np.random.permutation(columns)[:length]  # noqa: NPY002
        sign = 1 if np.random.random() < 0.5 else -1  # noqa: NPY002
        log_ratio, is_table = 0.0, True
        for a in range(length):
            for side in range(2):
                column = k[(a + side) % length]
                for q in range(2):
                    old = table[layers[q], j[a], column]
                    new = old + (sign if side == q else -sign)
                    if new < 0:
                        is_table = False
                    else:
                        log_ratio += -math.log(new) if new > old else math.log(old)
        if is_table and (log_ratio >= 0 or np.random.random() < math.exp(log_ratio)):  # noqa: NPY002
            for a in range(length):
                for side in range(2):
                    step = sign if side == 0 else -sign
                    table[layers[0], j[a], k[(a + side) % length]] += step
                    table[layers[1], j[a], k[(a + side) % length]] -= step
    return table


def peer_chains(counts, random):
    hidden = peer_walk(counts, 4000, random.integers(2**31))
    return np.array([peer_walk(hidden, 4000, random.integers(2**31)).ravel() for _ in range(99)])


def share_as_large(counts, drawn, means):
    """P-value of Pearson's statistic, as the peer has it."""
    held = means > 1e-9
    found = [((t[held] - means[held]) ** 2 / means[held]).sum() for t in (counts.ravel(), *drawn)]
    return np.mean(np.array(found) >= found[0] - 1e-9)


def side_by_side(levels, total, num):
    """Median seconds of chains, sizes and powers at 5 %, ours and the peer's."""
    cards = (2, levels, 3)
    graph, random = model(cards, PAIRS), np.random.default_rng(13)
    fibre, seconds, values = Fibre(graph, np.ones(6 * levels, dtype=bool)), [], []
    logits = random.normal(0, 0.3, (1, levels, 1)) + random.normal(0, 0.5, (2, 1, 3))
    logits = logits + random.normal(0, 0.3, (1, levels, 3))
    for scale in (0.0, 0.8):
        for number in range(num):
            law = np.exp(logits + scale * random.normal(size=cards))
            counts = random.multinomial(total, (law / law.sum()).ravel()).reshape(cards)
            means, begin = expected_of(graph, counts), time.process_time()
            ours = fibre.chains(counts.ravel(), 4000, number).draw(99)
            middle = time.process_time()
            theirs = peer_chains(counts, random)
            seconds.append((middle - begin, time.process_time() - middle))
            values.append([share_as_large(counts, drawn, means) for drawn in (ours, theirs)])
    rejected = (np.array(values) <= 0.05).reshape(2, num, 2).mean(1)
    times = np.median(seconds[1:], axis=0)
    return [*times, times[1] / times[0], *rejected[0], *rejected[1]]


def z_scores(num):
    """Of p-values by chains of 4,000 tables, against full enumeration."""
    module.listed_tables, found = (lambda *_: None), []
    for number in range(num):
        graph, counts = small_fibre(list(SHAPES)[number % len(SHAPES)], 100 + number)
        truth, _ = truth_of(graph, counts)
        means = expected_of(graph, counts)
        test = module.conditional_p_value(graph, None, counts.ravel(), means, 5, num_tables=4000, seed=number)
        share = (test.p_value * 4001 - 1) / 4000  # without the observed table
        error = math.sqrt(max(truth * (1 - truth), 1e-12) / 4000)
        found.append(0.0 if abs(share - truth) < 1e-6 else (share - truth) / error)
    return np.array(found)


def sets_of_four(rows):
    """How many sets of four rows of four variables can exchange levels so that all pairs stay.

    Two rows that agree in two variables swap a third one, and two others, which agree there too, swap it back.
    """
    found = set()
    for i, j in itertools.combinations(range(4), 2):
        block, pairs = [k for k in range(4) if k not in (i, j)], {}
        for x, y in itertools.combinations(rows, 2):
            if all(x[k] == y[k] for k in block) and x[i] != y[i] and x[j] != y[j]:
                is_straight = (x[i] < y[i]) == (x[j] < y[j])
                levels = tuple(sorted((x[i], y[i]))), tuple(sorted((x[j], y[j])))
                pairs.setdefault(levels, ([], []))[is_straight].append((x, y))
        for crossed, straight in pairs.values():
            for one, other in itertools.product(crossed, straight):
                if any(one[0][k] != other[0][k] for k in block):
                    found.add(frozenset((*one, *other)))
    return len(found)


def moves_of_sparse(spread, seed):
    """Sets of four rows, and moves in 20,000 steps, found among the rows and by random levels; microseconds a step."""
    cards = (10,) * 4
    graph, random, logits = model(cards, "a*b + a*c + a*d + b*c + b*d + c*d"), np.random.default_rng(seed), 0.0
    for axis in range(4):
        logits = logits + spread * random.normal(size=[10 if i == axis else 1 for i in range(4)])
    law = np.exp(logits) * np.ones(cards)
    counts = random.multinomial(300, (law / law.sum()).ravel())
    fibre, found = Fibre(graph, np.ones(counts.size, dtype=bool)), []
    for is_sparse in (True, False):
        fibre.chains(counts, 10, 1, is_sparse=is_sparse)
        begin = time.process_time()
        moves = fibre.chains(counts, 20_000, 1, is_sparse=is_sparse).num_moves
        found += [moves, f"{(time.process_time() - begin) * 50:.2f}"]
    rows = [tuple(map(int, x)) for x in np.argwhere(counts.reshape(cards))]
    return [f"{spread}", len(rows), sets_of_four(rows), *found]


def main():
    arguments = script(__doc__).parse_args()
    warnings.simplefilter("ignore")
    begin = time.process_time()
    speeds = [
        [f"2 x {levels} x 3, {total} rows", *side_by_side(levels, total, num)]
        for levels, total, num in ((60, 600, 12), (20, 300, 12))
    ]
    print(*speeds, sep="\n", file=sys.stderr, flush=True)
    uniform = []
    for name, case in UNIFORM.items():
        values = randomised("conditional", *case, 200)
        control = randomised("conditional", *case, 25, interaction=1.0)
        uniform.append(
            [name, case[2], kstest(values, "uniform").pvalue, (values <= 0.05).mean(), (control <= 0.05).mean()]
        )
        print(*uniform[-1], file=sys.stderr, flush=True)
    scores = z_scores(100)
    lines = [
        (
            f"{time.process_time() - begin:.0f} seconds of processor time. "
            "`python tests/benchmarks/bench_conditional.py`: beside a walk for one kind of table, each 99 chains of "
            "4,000 steps; p-values of eleven models, ties broken at random, and rejections at 5 % of untrue models."
        ),
        "",
        *markdown(
            [
                "table",
                "ours s",
                "peer s",
                "times",
                "ours rejects",
                "peer rejects",
                "ours with interaction",
                "peer with interaction",
            ],
            [[r[0], *(f"{v:.3g}" for v in r[1:])] for r in speeds],
        ),
        "",
        *markdown(
            ["model", "rows", "KS p", "rejected at 5 %", "with another interaction"],
            [[name, total, f"{p:.2g}", f"{size:.3f}", f"{power:.2f}"] for name, total, p, size, power in uniform],
        ),
        "",
        (
            f"100 small fibres against enumeration: root mean square z {np.sqrt((scores**2).mean()):.2f}, largest "
            f"{np.abs(scores).max():.2f}."
        ),
    ]
    lines += [
        "",
        *markdown(SPARSE.split(" | "), [moves_of_sparse(*of) for of in itertools.product((0, 0.5, 1), (3, 4))]),
    ]
    publish("Conditional tests", "\n".join(lines), arguments.append)


if __name__ == "__main__":
    main()
