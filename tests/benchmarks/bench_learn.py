"""Models learned from mushroom, adult and breast cancer: gains over independence, accuracies, time and memory.

usage: bench_learn.py [--data NAME ...] [--seeds N] [--append]

Split as published: half of the rows to test on, the rest 70/30 for training and validation, shuffled by the seed. The
independent model has the smoothed frequencies (count + 1/2) of the training rows. Every data set and seed runs in a
process of its own, whose wall time and peak memory are printed. "Learned" models are fitted to the training rows;
"refitted" ones are the same interactions and strengths, fitted to training and validation rows together (their time
is what that adds), and their gain is over the independent model of those rows. Accuracies are those of the learned
model, beside scikit-learn's logistic regression and naive Bayes, trained on the same rows.
"""

import argparse
import json
import sys
import tempfile
import time
import warnings

import numpy as np
import pandas as pd
from harness import LOADERS, about, markdown, peak_mb, printed, publish, script, spread

from pyro_hoim import InteractionHypergraph
from pyro_hoim.log_linear import fit_collection, learn, predict, score_rows
from pyro_hoim.runs import RunOptions

TARGETS = {
    "mushroom": {"class": 99.7, "odor": 79.7, "habitat": 66.0},
    "adult": {"income": 85.2, "race": 86.5, "sex": 84.5},
    "breast_cancer": {"class": 80.2, "deg-malig": 51.6},
}
PUBLISHED = {"mushroom": (11.00, 13.27), "adult": (2.25, 2.86), "breast_cancer": (0.34, 0.82)}


def peers(train, test, target):
    """Accuracies of logistic regression on indicators and of naive Bayes on codes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import CategoricalNB

    at = train.domain.index(target)
    cards = [n for i, n in enumerate(train.domain.cardinalities) if i != at]

    def columns(part):
        codes = part.codes.numpy()
        return np.delete(codes, at, axis=1), codes[:, at]

    (x, y), (x_test, y_test) = columns(train), columns(test)

    def indicators(codes):
        return np.concatenate([np.eye(n)[codes[:, j]] for j, n in enumerate(cards)], axis=1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logistic = LogisticRegression(max_iter=1000).fit(indicators(x), y)
        bayes = CategoricalNB(min_categories=cards).fit(x, y)
    return logistic.score(indicators(x_test), y_test), bayes.score(x_test, y_test)


def one(name, seed):
    data = LOADERS[name]()
    train, validation, test = data.split([0.35, 0.15, 0.5], seed)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        learned = learn(train, validation, seed=seed, run=RunOptions(checkpoint=folder, progress=True))
        seconds = time.perf_counter() - start
        peak, start = peak_mb(), time.perf_counter()
        again = RunOptions(checkpoint=folder, resume=True, progress=True)
        refitted = learn(train, validation, seed=seed, run=again, refit=True)
        refit_seconds = time.perf_counter() - start
    log_z = learned.log_partition
    gap = None if log_z.sandwich is None else float(log_z.sandwich.gap)
    start = time.perf_counter()
    pairs = fit_collection(train, InteractionHypergraph.from_order(data.domain, 2), seed=seed)
    pair_seconds = time.perf_counter() - start
    one_body = learned.one_body
    independent = score_rows(learned.independent, test).nll
    accuracies = {}
    for target in TARGETS[name]:
        logistic, bayes = peers(train, test, target)
        accuracies[target] = (predict(learned.energy, test, target).accuracy, logistic, bayes)
    figures = {
        "name": name,
        "seed": seed,
        "one_body": independent - score_rows(one_body, test).nll,
        "pairs": pairs.gain(test),
        "pairs_se": float(pairs.log_partition.std_error),
        "learned": learned.gain(test),
        "refitted": refitted.gain(test),
        "refit_seconds": refit_seconds,
        "validation": learned.gain(validation),
        "kl": learned.row_scores(test).kl,
        "independent_kl": independent - test.entropy(),
        "interactions": len(learned.hypergraph),
        "std_error": float(log_z.std_error),
        "gap": gap,
        "verdict": log_z.verdict,
        "seconds": seconds,
        "pair_seconds": pair_seconds,
        "memory_mb": peak,
        "accuracies": accuracies,
    }
    print(json.dumps(figures))


def main():
    parser = script(__doc__)
    parser.add_argument("--data", nargs="+", choices=list(LOADERS), default=list(LOADERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], int(options.one[1]))
        return
    results = []
    for name in options.data:
        for seed in range(options.seeds):
            results += printed([sys.executable, __file__, "--one", name, seed])
            print(results[-1], flush=True)
    frame = pd.DataFrame(results)
    seeds = f"split seeds 0 to {options.seeds - 1}"
    head = "data | all pairs | learned | refitted | published (pairs, selected) | sets | log Z error | s | MB"
    lines = [f"`python tests/benchmarks/bench_learn.py` {about()} {seeds}", "", *markdown(head.split(" | "))]
    for name, rows in frame.groupby("name", sort=False):
        first = {kind: f"{spread(rows[kind])} (seed 0: {rows[kind].iloc[0]:.3f})" for kind in ("learned", "refitted")}
        lines.append(
            f"| {name} | {spread(rows.pairs)} | {first['learned']} | {first['refitted']} | "
            f"{PUBLISHED[name][0]}, {PUBLISHED[name][1]} | {rows.interactions.mean():.0f} | "
            f"{rows.std_error.max():.3f} | {rows.seconds.mean():.0f} + {rows.refit_seconds.mean():.0f} | "
            f"{rows.memory_mb.max():.0f} |"
        )
    head = "data | column | learned | logistic regression | naive Bayes | published"
    lines += ["", *markdown(head.split(" | "))]
    for name, rows in frame.groupby("name", sort=False):
        for target, published in TARGETS[name].items():
            values = 100 * np.array([entry[target] for entry in rows.accuracies])
            shown = " | ".join(f"{m:.1f} ± {s:.1f}" for m, s in zip(values.mean(0), values.std(0), strict=True))
            lines.append(f"| {name} | {target} | {shown} | {published} |")
    publish("Learned models", "\n".join(lines), options.append)


if __name__ == "__main__":
    main()
