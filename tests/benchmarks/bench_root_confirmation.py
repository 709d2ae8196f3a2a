"""False discoveries and recall of root models before and after their sets are confirmed, where the law is known.

usage: PYTHONPATH=tutorials bench_root_confirmation.py RUNS [--laws LAW ...] [--rows N ...] [--rules RULE ...] [--sizes]

Laws, each drawn anew for every run: "planted C S": 15 counts of a Poisson root model with 18 pairs of coefficients +-C
and singles of S (the ends of Gibbs chains). "permuted C S": the same with every column permuted, so that nothing is
there and columns are overdispersed. "poisson M": 15 independent Poisson columns of mean M. "overdispersed M": 15
independent negative binomial columns of mean M and shape 1. "triples": 12 counts, eight pairs (+-0.4) and six triples
(+-0.5) as in bench_root_recovery.py, learned with order 3; a pair inside a planted triple is not false.

Rules: how the regressions are joined (l1 0.01). Shown are, before and after, the mean share of false sets among those
found with its standard error, the numbers of false ones and of planted ones found, and the seconds of processor time of
the regressions and of the tests.

--sizes: instead, the share of p-values at most 0.001, 0.01, 0.05 and 0.1 of all absent pairs beside the planted ones:
of the larger of both members' p-values, of one member's, and of the score test.

--known: instead, the same figures for Benjamini and Hochberg's procedure over all pairs, each tested beside all planted
others: what could be found at best were the structure known.
"""

import itertools
import time

import numpy as np
import torch
from harness import about, markdown, plain_script, stamp
from scipy.stats import false_discovery_control

from pyro_hoim.generalized_root import PoissonFamily, RootSettings, confirm_roots, fit_roots
from pyro_hoim.generalized_root.regress._set_tests import RootSetTester
from pyro_hoim.generalized_root.regress.rows import prepare_rows

from studies.recovery import draw_root_rows, plant_roots

LAWS = [
    *("planted 0.4 0.5", "planted 0.2 0.5", "planted 0.5 -1.5", "permuted 0.4 0.5", "permuted 0.5 -1.5"),
    *("poisson 1", "overdispersed 1", "triples"),
]
HEAD = ["law", "rows", "rule", "false share before", "after", "false before", "after", "found before", "after", "s"]
LEVELS = (0.001, 0.01, 0.05, 0.1)


def draw(law, num, seed):
    """Rows (n, d), names and the planted sets."""
    kind, *rest = law.split()
    rng = np.random.default_rng([seed, num, *map(ord, law)])
    if kind in ("poisson", "overdispersed"):
        mean = float(rest[0])
        rates = mean * rng.gamma(1.0, size=(num, 15)) if kind == "overdispersed" else np.full((num, 15), mean)
        return rng.poisson(rates).astype(float), [f"x{i + 1}" for i in range(15)], []
    if kind == "triples":
        truth = plant_roots(seed=seed)
    else:
        pair, single = map(float, rest)
        truth = plant_roots(15, 18, 0, pair=pair, single=single, seed=seed)
    rows = draw_root_rows(truth, num, burn_in=100, generator=torch.Generator().manual_seed(seed)).to_array()
    planted = [names for (_, size), names in truth.structure.names if size > 1]
    if kind == "permuted":
        rows, planted = rng.permuted(rows, axis=0), []
    return rows, truth.domain.names, planted


def counts(fit, planted):
    """False sets, planted sets that were found, and the share of the false ones."""
    found = {term.names for term in fit.terms() if term.key[1] > 1}
    wrong = [names for names in found if not any(set(names) <= set(other) for other in planted)]
    return len(wrong), len(found & set(planted)), len(wrong) / max(1, len(found))


def figures(law, num, rule, runs, seed):
    """Cells of a line."""
    before, after, seconds = [], [], []
    for run in range(seed, seed + runs):
        rows, names, planted = draw(law, num, run)
        settings = RootSettings(symmetrize=rule, false_discovery_rate=None)
        times = [time.process_time()]
        fit = fit_roots(rows, order=3 if law == "triples" else 2, l1=0.01, names=names, settings=settings)
        times.append(time.process_time())
        confirmed = confirm_roots(fit, rows)
        times.append(time.process_time())
        before.append(counts(fit, planted))
        after.append(counts(confirmed, planted))
        seconds.append(np.diff(times))
    shares = [[found[2] for found in part] for part in (before, after)]
    cells = [f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(runs):.3f}" for values in shares]
    of = f" of {len(planted)}" if planted else ""
    for place in (0, 1):
        cells += [f"{np.mean([found[place] for found in part]):.2f}{of if place else ''}" for part in (before, after)]
    return [*cells, " + ".join(f"{value:.2g}" for value in np.mean(seconds, 0))]


def sizes(law, num, runs, seed):
    """Shares of small p-values of absent pairs beside the planted ones, by three tests."""
    found = {"larger of both": [], "one member": [], "score": []}
    for run in range(seed, seed + runs):
        rows, names, planted = draw(law, num, run)
        tester = RootSetTester(prepare_rows(rows, PoissonFamily(), 2, list(names)), {})
        for pair in set(itertools.combinations(names, 2)) - set(planted):
            both = [tester.test(pair, planted, name).p_value for name in pair]
            found["larger of both"].append(max(both))
            found["one member"].append(both[0])
            found["score"].append(tester.test(pair, planted, pair[0], is_rough=True).p_value)
    total = len(found["score"])
    return [(test, total, *(f"{np.mean(np.array(p) <= level):.4f}" for level in LEVELS)) for test, p in found.items()]


def known(law, num, runs, seed):
    """Mean share of false pairs and number of planted ones found, each pair tested beside the other planted ones."""
    shares, found = [], []
    for run in range(seed, seed + runs):
        rows, names, planted = draw(law, num, run)
        tester = RootSetTester(prepare_rows(rows, PoissonFamily(), 2, list(names)), {})
        pairs = list(itertools.combinations(names, 2))
        p = [tester.test(pair, [other for other in planted if other != pair]).p_value for pair in pairs]
        kept = {pair for pair, is_kept in zip(pairs, false_discovery_control(p) <= 0.1, strict=True) if is_kept}
        shares.append(len(kept - set(planted)) / max(1, len(kept)))
        found.append(len(kept & set(planted)))
    error = np.std(shares, ddof=1) / np.sqrt(runs)
    return [f"{np.mean(shares):.3f} ± {error:.3f}", f"{np.mean(found):.2f} of {len(planted)}"]


def main():
    parser = plain_script(__doc__)
    parser.add_argument("runs", type=int)
    parser.add_argument("--laws", nargs="+", default=LAWS)
    parser.add_argument("--rows", nargs="+", type=int, default=[2000])
    parser.add_argument("--rules", nargs="+", choices=["and", "mean"], default=["and"])
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{stamp()}, {about()} {args.runs} runs.\n", flush=True)
    head = ["law", "rows", "test", "pairs", *map(str, LEVELS)] if args.sizes else HEAD
    print("\n".join(markdown(["law", "rows", "false share", "found"] if args.known else head)))
    for law, num in itertools.product(args.laws, args.rows):
        if args.known:
            print(markdown([law, f"{num:,}", *known(law, num, args.runs, args.seed)])[0], flush=True)
            continue
        if args.sizes:
            for line in sizes(law, num, args.runs, args.seed):
                print(markdown([law, f"{num:,}", *line])[0], flush=True)
            continue
        for rule in args.rules:
            print(markdown([law, f"{num:,}", rule, *figures(law, num, rule, args.runs, args.seed)])[0], flush=True)


if __name__ == "__main__":
    main()
