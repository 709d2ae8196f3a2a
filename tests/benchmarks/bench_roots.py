"""Root models: the published experiment, and false discoveries.

Classic3 has 3,893 rows; the workload of the paper's section 5 is k = 3, l1 = 0.01, Poisson (2,653 s there on a cluster
node).

    PYTHONPATH=tutorials python tests/benchmarks/bench_roots.py [--append] [PART] [OPTIONS]

Peers of ``binary``: skglm in an environment that PYRO_HOIM_PEER_SKGLM names or that is made, and glmnet under the
Rscript that PYRO_HOIM_PEER_R names, with R_LIBS as it is.
"""

import itertools
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from harness import PEERS, ROOT, Report, apart, main, part, peak_mb, printed, reported, run_peer

from pyro_hoim.datasets import load_classic3
from pyro_hoim.generalized_root import PoissonFamily, RootSettings, TruncatedPoissonFamily, confirm_roots, fit_roots
from pyro_hoim.generalized_root.regress.confirm import RootSetTester
from pyro_hoim.generalized_root.regress.rows import prepare_rows

from studies.recovery import draw_root_rows, plant_roots

PUBLISHED_SECONDS = 2653


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


@part("False discoveries of root models")
def confirmation(runs=20, laws=LAWS, rows=(2000,), rules=("and",), seed=0):
    """False discoveries and recall before and after sets are confirmed, where the law is known.

    Laws, each drawn anew for every run: "planted C S": 15 counts of a Poisson root model with 18 pairs of coefficients
    +-C and singles of S (the ends of Gibbs chains). "permuted C S": the same with every column permuted, so that
    nothing is there and columns are overdispersed. "poisson M": 15 independent Poisson columns of mean M.
    "overdispersed M": 15 independent negative binomial columns of mean M and shape 1. "triples": 12 counts, eight pairs
    and six triples, learned with order 3; a pair inside a planted triple is not false. Rules: how the
    regressions are joined (l1 0.01). Shown are, before and after, the mean share of false sets among those found with
    its standard error, the numbers of false ones and of planted ones found, and the seconds of processor time of the
    regressions and of the tests.
    """
    cases = itertools.product(laws, rows, rules)
    return reported(HEAD, ((law, f"{num:,}", rule, *figures(law, num, rule, runs, seed)) for law, num, rule in cases))


@part("Sizes of tests of root models", is_default=False)
def confirmation_sizes(runs=20, laws=LAWS, rows=(2000,), seed=0):
    """Share of p-values at most 0.001, 0.01, 0.05 and 0.1 of all absent pairs beside the planted ones.

    Of the larger of both members' p-values, of one member's, and of the score test.
    """
    report = Report(["law", "rows", "test", "pairs", *map(str, LEVELS)])
    for law, num in itertools.product(laws, rows):
        for cells in sizes(law, num, runs, seed):
            report.row(law, f"{num:,}", *cells)
    return report.lines()


GOLDEN = ROOT / "tests" / "golden" / "grm_classic3.json"
LISTS = {
    "singles": ((1, 1), 0),
    "positive_pairs": ((2, 2), 1),
    "negative_pairs": ((2, 2), -1),
    "positive_triples": ((3, 3), 1),
    "negative_triples": ((3, 3), -1),
}


def fit_words(which, columns, jobs, tolerance, stop, subdomains, stagewise):
    """Body of a process: one fit."""
    start = time.perf_counter()
    from pyro_hoim.generalized_root import RootSettings, fit_roots

    torch.set_num_threads(1)
    imports = time.perf_counter() - start
    table = load_classic3(columns=columns if which == "published" else 500)
    if which == "rebuilt":
        table = load_classic3("rebuilt", columns=table.domain.names)
    elif which == "frequent":
        table = load_classic3("rebuilt")
        most = np.argsort(-np.asarray(table.matrix.sum(0)).reshape(-1), kind="stable")[:columns]
        table = table.columns([table.domain.names[i] for i in np.sort(most)])
    elif which == "few":
        table = table.columns(20)
    start, busy = time.perf_counter(), time.process_time()
    bound = {"objective": "upper-bound", "num_subdomains": subdomains} if subdomains else {}
    bound["false_discovery_rate"] = None
    settings = RootSettings(tolerance=tolerance, jobs=jobs, stop=stop, stagewise=stagewise, **bound)
    found = fit_roots(table, "poisson", order=3, l1=0.01, refit="none", settings=settings)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    return {
        "rows": table.num_rows,
        "imports": imports,
        "seconds": seconds,
        "busy": busy,
        "peak": peak_mb(),
        "residual": float(found.kkt_residual.max()),
        "statuses": sorted({node.status for node in found.nodes}),
        "terms": [(term.key, term.names, term.coefficient) for term in found.terms()],
    }


def agrees(ours, published):
    allowed = max(0.01 * abs(published), 0.5e-4) if abs(published) >= 0.05 else 0.003
    return abs(ours - published) <= allowed


def compare(terms, golden):
    """By list: how many printed tuples, readable values, agreements, overlap, present with that sign; and all rows."""
    values = {(len(names), frozenset(names)): value for _, names, value in terms}
    counts, rows = {}, []
    for name, (key, sign) in LISTS.items():
        ours = [(v, frozenset(n)) for k, n, v in terms if tuple(k) == key and (sign == 0 or v * sign > 0)]
        ranked = [names for _, names in sorted(ours, key=lambda pair: -pair[0] * (sign or 1))]
        listed = [(value, frozenset(words), words) for value, words in golden[name]]
        top = set(ranked[: len(listed)])
        readable = [row for row in listed if row[0] is not None]
        found = [(value, values.get((len(names), names), 0.0), words) for value, names, words in readable]
        rows += [(name, words, value, ours) for value, ours, words in found]
        counts[name] = {
            "printed": len(listed),
            "readable": len(readable),
            "agree": sum(agrees(ours, float(value)) for value, ours, _ in found),
            "overlap": sum(names in top for _, names, _ in listed),
            "present": sum(names in ranked for _, names, _ in listed),
            "ours": len(ranked),
        }
    return counts, rows


CLASSIC3_HEADS = (
    ("matrix", "jobs", "tolerance", "s", "processor s", "2,653 s over ours", "imports s", "peak MB",
     "largest KKT residual", "printed values that agree", "status"),
    ("matrix", "tolerance", "list", "printed", "agree", "among our first as many", "present", "ours in all"),
    ("matrix", "tolerance", "list", "tuple", "printed", "ours", "off by"),
)  # fmt: skip


@part("Generalized root model of Classic3")
def classic3(
    matrix=("published", "rebuilt"),
    jobs=(1,),
    tolerance=(1e-6,),
    worst=12,
    published_stop=False,
    subdomains=0,
    columns=500,
    stagewise=False,
):
    """The published experiment on Classic3: time, memory, and every printed coefficient beside ours.

    Each fit, with all pairs and all triples searched, runs in a fresh process; what Numba compiles is on disk from a
    process before it. Seconds and processor seconds are those of the fit (read and imported before), the peak is that
    of the whole process. "published" is the matrix of the authors, "rebuilt" the one made anew from the raw
    collections, with the same words, "frequent" its most frequent ones. ``--published-stop`` stops as the authors'
    program does, ``--subdomains N`` fits upper bounds on so many subdomains, ``--stagewise`` pairs first, then triples
    whose pairs are there. A printed value agrees within 1 % or half a unit of its last digit, one below 0.05 within
    0.003. The overlap is how many of a printed list's tuples are in ours of the same length.
    """
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    apart(fit_words, "few", 500, 1, 1e-6, "residual", 0, False)
    stop = "published" if published_stop else "residual"
    times, lists, off = (Report(head) for head in CLASSIC3_HEADS)
    for which, accuracy in itertools.product(matrix, tolerance):
        for number in jobs:
            run = apart(fit_words, which, columns, number, accuracy, stop, subdomains, stagewise)
            counted, rows = compare(run["terms"], golden)
            agree, readable = (sum(c[name] for c in counted.values()) for name in ("agree", "readable"))
            times.row(
                f"{which}, {run['rows']} rows", number, f"{accuracy:.0e}", f"{run['seconds']:.1f}",
                f"{run['busy']:.1f}", f"{PUBLISHED_SECONDS / run['seconds']:.0f}", f"{run['imports']:.1f}",
                f"{run['peak']:.0f}", f"{run['residual']:.1e}", f"{agree} of {readable}", ", ".join(run["statuses"]),
            )  # fmt: skip
        for name, c in counted.items():
            agreed = f"{c['agree']} of {c['readable']}"
            cells = (name.replace("_", " "), c["printed"], agreed, c["overlap"], c["present"], c["ours"])
            lists.row(which, f"{accuracy:.0e}", *cells)
        far = [(abs(ours / float(p) - 1), name, words, p, ours) for name, words, p, ours in rows]
        far = sorted((row for row in far if not agrees(row[4], float(row[3]))), key=lambda row: -row[0])
        for share, name, words, p, ours in far[:worst]:
            cells = name.replace("_", " "), " ".join(words), p, f"{ours:.4f}", f"{share:.1%}"
            off.row(which, f"{accuracy:.0e}", *cells)
    count = sum(len(golden[name]) for name in LISTS)
    told = f"The whole fit of {columns} words and the {count} tuples that the paper prints; its 2,653 s are of MATLAB."
    return [told, "", *times.lines(), "", *lists.lines(), "", *off.lines()]


def binary_table(num_rows, num_columns):
    """0/1 rows, thresholds of 20 normal factors that each load on a seventh of the columns."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(num_rows, 20))
    loadings = rng.normal(size=(20, num_columns)) * (rng.random((20, num_columns)) < 0.15)
    noise = rng.normal(size=(num_rows, num_columns)) + 0.5 * rng.normal(size=num_columns)
    return (factors @ loadings + noise > 0).astype(np.int64)


def binary_figures(path, penalty, tolerance):
    """Processor seconds of the regressions of all columns, and the objectives."""
    torch.set_num_threads(1)
    table, settings = np.load(path), RootSettings(false_discovery_rate=None, tolerance=tolerance)
    options = {"family": TruncatedPoissonFamily(1), "order": 2, "l1": penalty, "settings": settings}
    fit_roots(table[:200, :10], **options)  # compiles
    start = time.process_time()
    fit = fit_roots(table, **options)
    return {"seconds": time.process_time() - start, "objectives": [node.objective for node in fit.nodes]}


@part("Node regressions of binary tables")
def binary(tables=("5000x200", "10000x1000"), shares=(0.1, 0.03), nodes=10, rounds=3):
    """l1-penalised logistic regressions of every column on all others, at shares of the median largest penalty.

    Milliseconds of processor time a column, medians of interleaved rounds, one thread; ours are of all columns with
    what joins them, the peers' of some. "Above" is by how much the sum of the objectives of these exceeds the least.
    """
    report = Report("table|penalty|program|ms a column|times ours|objective above the least")
    with tempfile.TemporaryDirectory() as folder:
        for name, share in itertools.product(tables, shares):
            table = binary_table(*map(int, name.split("x")))
            path, text = Path(folder) / "table.npy", Path(folder) / "table.csv"
            np.save(path, table)
            np.savetxt(text, table, fmt="%d", delimiter=",")
            centred = table - table.mean(0)
            products = np.abs(centred.T @ centred) / len(table)
            np.fill_diagonal(products, 0.0)
            penalty = share * float(np.median(products.max(0)))
            chosen = np.linspace(0, table.shape[1] - 1, nodes).astype(int).tolist()
            figures: dict[str, list[tuple[float, float]]] = {}
            for _ in range(rounds):
                ours = apart(binary_figures, str(path), penalty, 1e-6, OMP_NUM_THREADS="1")
                objective = sum(ours["objectives"][node] for node in chosen)
                figures.setdefault("ours", []).append((ours["seconds"] / table.shape[1], objective))
                for tolerance in (1e-4, 1e-6):
                    (row,) = run_peer("node_skglm", path, penalty, tolerance, *chosen, OMP_NUM_THREADS="1")
                    which = figures.setdefault(f"skglm, tol {tolerance:g}", [])
                    which.append((row["seconds"] / nodes, row["objective"]))
                if program := os.environ.get("PYRO_HOIM_PEER_R"):
                    script = [program, PEERS / "node_glmnet.R", text, penalty, *(node + 1 for node in chosen)]
                    (row,) = printed(script, OMP_NUM_THREADS="1")
                    figures.setdefault("glmnet", []).append((row["seconds"] / nodes, row["objective"]))
                else:
                    print("glmnet NOT RUN: PYRO_HOIM_PEER_R names no Rscript", flush=True)
            least = min(objective for runs in figures.values() for _, objective in runs)
            own = float(np.median([seconds for seconds, _ in figures["ours"]]))
            for program, runs in figures.items():
                seconds, above = float(np.median([s for s, _ in runs])), runs[-1][1] / least - 1
                report.row(name, f"{share:g}", program, f"{1e3 * seconds:.4g}", f"{seconds / own:.3g}", f"{above:.1e}")
    return report.lines()


if __name__ == "__main__":
    main(__doc__)
