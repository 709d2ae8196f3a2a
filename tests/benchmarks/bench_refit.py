"""What refits of joined root models are worth on rows that were not learned from, and what they cost.

usage: PYTHONPATH=tutorials bench_refit.py [--data classic3 planted spread] [--l1 LAMBDA ...] [--shares R ...]
    [--append]

Classic3 is split 60/20/20 by seed 0, and the last part is scored; ``planted`` has 12 Poisson counts with 8 pairs and 6
triples fixed beforehand (seed 0), ``spread`` four counts around a common gamma factor, more spread than Poisson ones.
Losses are minus the log pseudo-likelihood, nats a row; each refit begins from the same regressions, whose time is not
in its own.
"""

import time

import numpy as np
import torch
from harness import markdown, publish, script

from pyro_hoim.data import CountTable
from pyro_hoim.datasets import load_classic3
from pyro_hoim.generalized_root import RootSettings, fit_roots, refit_roots

from studies.recovery import draw_root_rows, plant_roots


def spread(num_rows, seed):
    rng = np.random.default_rng(seed)
    common = rng.gamma(0.8, 1.0, (num_rows, 1))
    counts = rng.negative_binomial(1.5, 1.5 / (1.5 + 1.5 * common * np.array([0.5, 1.0, 1.5, 2.0])))
    return CountTable.from_matrix(counts, list("abcd"))


def tables(name):
    """(what, training rows, rows to score, penalties)."""
    if name == "classic3":
        train, _, test = load_classic3("published").columns(500).split((0.6, 0.2, 0.2), 0)
        yield f"Classic3, {train.num_rows} rows", train, test, (0.02, 0.01, 0.005)
    elif name == "planted":
        truth = plant_roots(seed=0)
        test = draw_root_rows(truth, 4000, generator=torch.Generator().manual_seed(1))
        for n, l1 in ((200, 0.05), (1000, 0.02), (5000, 0.01)):
            yield (
                f"planted, {n} rows",
                draw_root_rows(truth, n, generator=torch.Generator().manual_seed(2)),
                test,
                (l1,),
            )
    else:
        for n in (100, 300, 2000):
            yield f"spread, {n} rows", spread(n, 3), spread(4000, 4), (0.01,)


def main():
    parser = script(__doc__)
    parser.add_argument("--data", nargs="+", default=["classic3", "planted", "spread"])
    parser.add_argument("--l1", nargs="+", type=float)
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.5, 0.2])
    arguments = parser.parse_args()
    refits = ["none", "singles", *(f"all, {share:g}" for share in arguments.shares)]
    head = ["rows", "l1", "independent", *refits, "s of the regressions", "s of singles; all"]
    lines = ["`python tests/benchmarks/bench_refit.py`", "", *markdown(head)]
    for name in arguments.data:
        for what, train, test, penalties in tables(name):
            alone = -float(fit_roots(train, order=1).log_pseudo_prob(test).mean())
            for l1 in arguments.l1 or penalties:
                start = time.perf_counter()
                found = fit_roots(train, order=3, l1=l1, settings=RootSettings(false_discovery_rate=None))
                learning, losses, seconds = time.perf_counter() - start, [], []
                for kind in refits:
                    start, method, _, share = time.perf_counter(), *kind.partition(", ")
                    options = {"refit_share": float(share)} if share else {}
                    fitted = found if method == "none" else refit_roots(found, train, method, RootSettings(**options))
                    seconds.append(time.perf_counter() - start)
                    losses.append(-float(fitted.log_pseudo_prob(test).mean()))
                times = f"{seconds[1]:.1f}; " + ", ".join(f"{s:.1f}" for s in seconds[2:])
                cells = [what, f"{l1:g}", *(f"{v:.2f}" if alone > 100 else f"{v:.3f}" for v in [alone, *losses])]
                lines.append(f"| {' | '.join(cells)} | {learning:.1f} | {times} |")
                print(lines[-1], flush=True)
    publish("Refits of root models", "\n".join(lines), arguments.append)


if __name__ == "__main__":
    main()
