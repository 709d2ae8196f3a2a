"""Recovery of planted pairs and triples of a Poisson generalized root model against the number of rows.

usage: PYTHONPATH=tutorials bench_root_recovery.py [--rows N ...] [--repeats R] [--seed N] [--quick] [--append]

Twelve counts, eight pairs (coefficients +-0.4) and six triples (+-0.5) without pairs inside, all singles 0.5, chosen by
seed 0 before anything was fitted. Fits of order 3 and of pairs only run over four penalties, in units of the root of
log(d) / N; the one of the pseudo-likelihood is chosen on 4,000 rows of their own, and 4,000 others judge it.

    AUC, pairs | triples   area under the ROC curve of all sets over the path: of fits with triples; pairs of pairs only
    error                  mean absolute error of the planted coefficients, known structure and no penalty
    all                    the same over all sets, at the smallest penalty
    inside, outside        share of the pairs inside planted triples, and of all others not planted, in the chosen fit
    above the truth        pseudo-likelihood, nats a row, less than the planted model's
"""

import math

import torch
from harness import about, markdown, publish, script

from studies.recovery import plant_roots, root_recovery

HEAD = [
    "rows", "AUC pairs", "AUC triples", "AUC pairs, pairs only", "error pairs", "error triples", "all pairs",
    "all triples", "inside", "inside, pairs only", "outside", "outside, pairs only", "above the truth",
    "pairs only", "known", "independent", "seconds",
]  # fmt: skip


def line(size, found):
    """A row of the table: means over repeats."""
    ours, pairs, known = (found.loc[name] for name in ("pairs and triples", "pairs only", "known structure"))
    excess = found["pseudo_nll"] - found["pseudo_nll"]["truth"]
    cells = [
        ours["pair_auc"], ours["triple_auc"], pairs["pair_auc"], known["pair_error"], known["triple_error"],
        ours["pair_error"], ours["triple_error"], ours["inside"], pairs["inside"], ours["outside"], pairs["outside"],
        excess["pairs and triples"], excess["pairs only"], excess["known structure"], excess["independent"],
    ]  # fmt: skip
    return f"| {size:,} | {' | '.join(f'{value:.4f}' for value in cells)} | {ours['seconds'] + pairs['seconds']:.1f} |"


def slope(errors):
    """Least-squares slope of log error against log rows."""
    x, y = torch.tensor([(math.log(n), math.log(value)) for n, value in errors.items()]).T
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


def main():
    parser = script(__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[250, 500, 1000, 2000, 4000, 8000, 16_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="250, 1,000 and 4,000 rows, one sample each")
    options = parser.parse_args()
    sizes, repeats = ([250, 1000, 4000], 1) if options.quick else (options.rows, options.repeats)
    truth = plant_roots()
    frame = root_recovery(truth, sizes, repeats=repeats, held_out=4000, seed=options.seed)
    columns = frame.columns.drop(["num_rows", "repeat", "model"])
    means = frame.groupby(["num_rows", "model"])[list(columns)].mean()
    lines = [*markdown(HEAD), *(line(size, means.loc[size]) for size in sizes)]
    notes = []
    for model in ("known structure", "pairs and triples"):
        errors = means.xs(model, level="model")
        slopes = [f"{slope(errors[f'{name}_error']):.2f} for {name}s" for name in ("pair", "triple")]
        notes.append(f"{model}: {', '.join(slopes)}")
    text = (
        f"`python tests/benchmarks/bench_root_recovery.py`. {about()} Means of {repeats} samples. Log-log slope of the "
        f"error: {'; '.join(notes)}.\n\n"
    )
    publish("Recovery of planted roots", text + "\n".join(lines), options.append)


if __name__ == "__main__":
    main()
