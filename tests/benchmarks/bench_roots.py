"""Root models: regressions, sums of nodes, the published experiment, recovery, refits, and false discoveries.

Classic3 has 3,893 rows; the workload of the paper's section 5 is k = 3, l1 = 0.01, Poisson (2,653 s there on a cluster
node).

    PYTHONPATH=tutorials python tests/benchmarks/bench_roots.py [--append] [PART] [OPTIONS]
"""

import importlib
import importlib.util
import itertools
import json
import math
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from harness import CORES, ROOT, Report, apart, first_call, main, markdown, median, part, peak_mb
from scipy import integrate, special
from scipy.special import gammaln
from scipy.stats import false_discovery_control

from pyro_hoim.data import CountTable
from pyro_hoim.datasets import load_classic3
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    RootSettings,
    UserFamily,
    confirm_roots,
    fit_root_path,
    fit_roots,
    refit_roots,
)
from pyro_hoim.generalized_root.nodes.families import PoissonFamily
from pyro_hoim.generalized_root.nodes.kernels import evaluate_nodes
from pyro_hoim.generalized_root.regress._set_tests import RootSetTester
from pyro_hoim.generalized_root.regress._space import search_space
from pyro_hoim.generalized_root.regress.node import solve_node
from pyro_hoim.generalized_root.regress.rows import prepare_rows

from studies.recovery import draw_root_rows, plant_roots, root_recovery

PUBLISHED_SECONDS = 2653
FIRST_CALL = """
import time
from pyro_hoim.generalized_root import fit_roots
start = time.perf_counter()
fit_roots([[2, 1, 0], [0, 0, 1], [1, 3, 2], [3, 2, 0]], order=3)
print(time.perf_counter() - start)
"""


def load():
    folder = Path(os.environ["PYRO_HOIM_DATA"])
    words = (folder / "classic3_sqr_top1000_vocab.txt").read_text().split()[:500]
    return words, scipy.sparse.load_npz(folder / "classic3_sqr_top1000.npz").tocsr()[:, :500]


def slow_node(rows, node, l1, tolerance=1e-6, most=3000):
    """FISTA over every pair and triple of one node; returns seconds, objective, KKT residual, steps."""
    start = time.perf_counter()
    n, d = rows.num_rows, len(rows.domain)
    x = rows.matrix.copy()
    own = rows.column_roots(node)
    rest = np.array([t for t in range(d) if t != node])
    root = x[:, rest]
    cube = root.copy()
    root.data, cube.data = np.sqrt(root.data), np.cbrt(root.data)
    places, columns, entries = [], [], []
    for i in range(n):
        here = slice(cube.indptr[i], cube.indptr[i + 1])
        index, value = cube.indices[here], cube.data[here]
        a, b = np.triu_indices(len(index), 1)
        places.append(np.full(len(a), i))
        columns.append(np.minimum(index[a], index[b]) * d + np.maximum(index[a], index[b]))
        entries.append(value[a] * value[b])
    _, numbers = np.unique(np.concatenate(columns), return_inverse=True)
    triples = scipy.sparse.csr_matrix((np.concatenate(entries), (np.concatenate(places), numbers)))
    triples.resize(n, triples.shape[1])
    counts = np.arange(max(60, int(2 * own[:, 0].max())) + 1.0)
    steps = np.stack([counts, np.sqrt(counts), np.cbrt(counts)], 1)
    base = -gammaln(counts + 1)
    ends = np.cumsum([1, root.shape[1], triples.shape[1]])
    penalty = np.full(ends[-1], l1)
    penalty[0] = 0.0

    def smooth(c):
        eta = np.stack([np.full(n, c[0]), root @ c[1 : ends[1]], triples @ c[ends[1] :]], 1)
        logs = eta @ steps.T + base
        peak = logs.max(1, keepdims=True)
        weights = np.exp(logs - peak)
        sums = weights.sum(1)
        residual = (weights @ steps / sums[:, None] - own) / n
        value = (peak[:, 0] + np.log(sums) - (eta * own).sum(1)).mean()
        return value, np.concatenate([[residual[:, 0].sum()], root.T @ residual[:, 1], triples.T @ residual[:, 2]])

    c = np.zeros(ends[-1])
    c[0] = np.log(own[:, 0].mean())
    y, momentum, lipschitz, last = c, 1.0, 1.0, np.inf
    residual = np.inf
    taken = 0
    while taken < most:
        taken += 1
        f, g = smooth(y)
        while True:
            target = y - g / lipschitz
            new = np.sign(target) * np.maximum(np.abs(target) - penalty / lipschitz, 0)
            value, slope = smooth(new)
            if value <= f + g @ (new - y) + lipschitz / 2 * ((new - y) ** 2).sum() + 1e-15:
                break
            lipschitz *= 2
        total = value + penalty @ np.abs(new)
        wrong = np.where(new != 0, np.abs(slope + penalty * np.sign(new)), np.maximum(np.abs(slope) - penalty, 0))
        residual = float(wrong.max())
        if total > last:
            y, momentum, last = c, 1.0, np.inf
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        y = new + (momentum - 1) / following * (new - c)
        c, momentum, last = new, following, total
        if residual <= tolerance:
            break
    return time.perf_counter() - start, last, residual, taken


@part("Root regressions")
def regressions(nodes=3, repeats=3):
    """Root regressions of Classic3: time by jobs, scores, pairs and a path; nodes beside a slow reference and skglm.

    FIRST_CALL is a process with an empty Numba cache. The reference is FISTA over all features of a node held as a
    sparse matrix, stopped at the same KKT residual or after 3,000 steps, timed on a few nodes; skglm, where it is
    installed, solves another problem of the same size (Poisson regression with a log link on raw counts, pairs only).
    """
    report, (words, counts) = Report(), load()
    what = f"Classic3, {counts.shape[0]} x {counts.shape[1]}, k = 3, l1 = 0.01"
    compiling, _ = first_call(FIRST_CALL)
    report.add("first call", "compilation", compiling, note="once per machine, then cached on disk")
    fit_roots(counts[:, :5], order=3)

    def fitted(order=3, jobs=CORES):
        settings = RootSettings(jobs=jobs, false_discovery_rate=None)
        return fit_roots(counts, order=order, l1=0.01, names=words, settings=settings)

    for jobs in (1, CORES):
        busy = time.process_time()
        seconds, _ = median(partial(fitted, jobs=jobs), repeats, warm=0)
        busy = (time.process_time() - busy) / repeats
        ratio = PUBLISHED_SECONDS / seconds
        report.add(what, f"fit_roots, {jobs} jobs", seconds, ratio, f"{busy:.1f} s of processor time; ratio to 2,653 s")
    seconds, _ = median(partial(fitted().log_pseudo_prob, counts), repeats, warm=0)
    report.add(what, "log_pseudo_prob of all rows", seconds)
    pairs, _ = median(partial(fitted, 2), repeats, warm=0)
    report.add(what.replace("k = 3", "k = 2"), f"fit_roots, {CORES} jobs", pairs)
    l1s, settings = [0.08, 0.04, 0.02, 0.01], RootSettings(jobs=CORES)
    path, _ = median(partial(fit_root_path, counts, l1s, order=3, settings=settings), 1, warm=0)
    report.add("the same, l1 = 0.08, 0.04, 0.02, 0.01", f"fit_root_path, {CORES} jobs", path)
    # single nodes beside programs that hold all features
    rows = prepare_rows(counts, PoissonFamily(), 3, words)
    space = search_space(500, 3, {2: 0.01, 3: 0.01}, False, {})
    chosen = [(word, words.index(word)) for word in ("boundary", "friction", "patients")[:nodes]]
    for word, node in chosen:
        mine = solve_node(rows, node, space, RootSettings())
        slow, objective, residual, steps = slow_node(rows, node, 0.01)
        note = f"objective {objective - mine.outcome.objective:+.1e} of ours, KKT {residual:.0e} after {steps} steps"
        report.add(f"node {word!r}", "solve_node", mine.outcome.seconds)
        report.add(f"node {word!r}", "FISTA, all features", slow, slow / mine.outcome.seconds, note)
    if importlib.util.find_spec("skglm") is None:
        return [*report.lines(), "", "skglm is not installed: its rows are left out."]
    skglm = importlib.import_module("skglm")
    penalty, solver = skglm.penalties.L1(0.01), skglm.solvers.ProxNewton(fit_intercept=True, tol=1e-6)
    model, dense = skglm.GeneralizedLinearEstimator(skglm.datafits.Poisson(), penalty, solver), counts.toarray()
    for word, node in chosen:
        design = scipy.sparse.csc_matrix(np.sqrt(np.delete(dense.astype(float), node, 1)))
        seconds, _ = median(partial(model.fit, design, dense[:, node].astype(float)), 3)
        report.add(f"node {word!r}, log link, pairs", "skglm ProxNewton", seconds)
    return report.lines()


ROWS = 3893


def ours(family, eta, order):
    n, k = eta.shape
    value, mean, cov = np.empty(n), np.empty((n, k)), np.empty((n, k, k))
    evaluate_nodes(family, eta, order, value, mean, cov)
    return value, mean, cov


def numpy_sums(eta, order, last=100):
    """The same by broadcasting, with every table made beforehand."""
    x = np.arange(last, dtype=float)
    roots = np.stack([x ** (1 / j) for j in range(1, eta.shape[1] + 1)])
    base = -special.gammaln(x + 1)

    def call():
        logs = eta @ roots + base
        top = logs.max(1, keepdims=True)
        weights = np.exp(logs - top)
        total = weights.sum(1, keepdims=True)
        value = (top + np.log(total))[:, 0]
        if order == 0:
            return value, None, None
        weights /= total
        mean = weights @ roots.T
        if order == 1:
            return value, mean, None
        products = (roots[:, None] * roots[None]).reshape(-1, last)
        cov = (weights @ products.T).reshape(-1, *2 * roots.shape[:1]) - mean[:, :, None] * mean[:, None]
        return value, mean, cov

    return call


def scipy_quadrature(eta):
    """Value, means and second moments of every row by adaptive quadrature."""
    k = eta.shape[1]
    orders = range(1, k + 1)
    powers = {0.0, *(1 / i for i in orders), *(1 / i + 1 / j for i in orders for j in orders)}

    def density(x, row, power):
        return x**power * math.exp(sum(e * x ** (1 / j) for j, e in enumerate(row, 1)))

    def call():
        return [integrate.quad(density, 0, math.inf, (row, p), epsrel=1e-10)[0] for row in eta for p in powers]

    return call


@part("Node log partitions")
def nodes():
    """Node log partitions with gradient and Hessian, against plain NumPy sums and SciPy quadrature.

    Poisson, k = 3, one row for each text of Classic3, eta from -3 to 3. The peer adds the counts from 0 to 99 for all
    rows at once in NumPy, enough for these rows; for the exponential family it is scipy.integrate.quad, one row and one
    moment after the other.
    """
    rng, report = np.random.default_rng(0), Report()
    typical = rng.uniform(-3, 3, (ROWS, 3))
    poisson, own = PoissonFamily(), UserFamily("own Poisson", "count", lambda x: -special.gammaln(x + 1))
    for order in (0, 1, 2):
        peer = numpy_sums(typical, order)
        for found, expected in zip(ours(poisson, typical, order), peer(), strict=True):
            if expected is not None:
                np.testing.assert_allclose(found, expected, rtol=1e-8)
        mine, fastest = median(partial(ours, poisson, typical, order), 30)
        theirs, _ = median(peer, 10)
        what = f"Poisson, k = 3, {ROWS} rows, order {order}"
        report.add(what, "pyro_hoim", mine, theirs / mine, f"fastest {fastest * 1e3:.2f} ms")
        report.add(what, "NumPy sums", theirs)
    sparse = typical - [3.0, 0.0, 0.0]
    mine, fastest = median(partial(ours, poisson, sparse, 2), 30)
    theirs, _ = median(numpy_sums(sparse, 2), 10)
    note = f"fastest {fastest * 1e3:.2f} ms"
    report.add("Poisson, the same with eta_1 from -6 to 0, order 2", "pyro_hoim", mine, theirs / mine, note)
    large = np.column_stack([rng.uniform(10, 16, 200), rng.uniform(-3, 3, (200, 2))])
    real = np.column_stack([-rng.uniform(0.1, 3, 200), rng.uniform(-3, 3, (200, 2))])
    theirs = 20 * median(scipy_quadrature(real[:10]), 1, warm=0)[0]
    report.add("exponential, k = 3, 200 rows, order 2", "scipy.integrate.quad (10 rows, scaled)", theirs)
    for what, family, rows, peer in (
        ("Poisson, 200 rows with means of 1e4 to 1e7", poisson, large, 0),
        (f"Poisson as a user's family, k = 3, {ROWS} rows", own, typical, 0),
        ("exponential, k = 3, 200 rows", ExponentialFamily(), real, theirs),
        ("Gaussian, k = 3, 200 rows", GaussianFamily(), real, 0),
        ("exponential as a user's family, k = 3, 200 rows", UserFamily("own", "positive", np.zeros_like), real, 0),
    ):
        mine, _ = median(partial(ours, family, rows, 2), 5)
        report.add(f"{what}, order 2", "pyro_hoim", mine, peer / mine, f"{mine / len(rows) * 1e6:.0f} µs a row")
    return report.lines()


def spread_counts(num_rows, seed):
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
            yield f"spread, {n} rows", spread_counts(n, 3), spread_counts(4000, 4), (0.01,)


@part("Refits of root models")
def refits(data=("classic3", "planted", "spread"), l1=None, shares=(1.0, 0.5, 0.2)):
    """What refits of joined root models are worth on rows that were not learned from, and what they cost.

    Classic3 is split 60/20/20 by seed 0, and the last part is scored; "planted" has 12 Poisson counts with 8 pairs and
    6 triples fixed beforehand (seed 0), "spread" four counts around a common gamma factor, more spread than Poisson
    ones. Losses are minus the log pseudo-likelihood, nats a row; each refit begins from the same regressions, whose
    time is not in its own.
    """
    kinds = ["none", "singles", *(f"all, {share:g}" for share in shares)]
    report = Report(["rows", "l1", "independent", *kinds, "s of the regressions", "s of singles; all"])
    for name in data:
        for what, train, test, penalties in tables(name):
            alone = -float(fit_roots(train, order=1).log_pseudo_prob(test).mean())
            for strength in penalties if l1 is None else (float(l1),):
                start = time.perf_counter()
                joined = fit_roots(train, order=3, l1=strength, settings=RootSettings(false_discovery_rate=None))
                learning, losses, seconds = time.perf_counter() - start, [], []
                for kind in kinds:
                    start, method, _, share = time.perf_counter(), *kind.partition(", ")
                    settings = RootSettings(**({"refit_share": float(share)} if share else {}))
                    fitted = joined if method == "none" else refit_roots(joined, train, method, settings)
                    seconds.append(time.perf_counter() - start)
                    losses.append(-float(fitted.log_pseudo_prob(test).mean()))
                times = f"{seconds[1]:.1f}; " + ", ".join(f"{s:.1f}" for s in seconds[2:])
                figures = [f"{v:.2f}" if alone > 100 else f"{v:.3f}" for v in [alone, *losses]]
                report.row(what, f"{strength:g}", *figures, f"{learning:.1f}", times)
    return report.lines()


RECOVERED = [
    "rows", "AUC pairs", "AUC triples", "AUC pairs, pairs only", "error pairs", "error triples", "all pairs",
    "all triples", "inside", "inside, pairs only", "outside", "outside, pairs only", "above the truth",
    "pairs only", "known", "independent", "seconds",
]  # fmt: skip


def recovery_line(size, found):
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


@part("Recovery of planted roots")
def recovery(rows=(250, 500, 1000, 2000, 4000, 8000, 16_000), repeats=3, seed=0):
    """Recovery of planted pairs and triples of a Poisson generalized root model against the number of rows.

    Twelve counts, eight pairs (coefficients +-0.4) and six triples (+-0.5) without pairs inside, all singles 0.5,
    chosen by seed 0 before anything was fitted. Fits of order 3 and of pairs only run over four penalties, in units of
    the root of log(d) / N; the one of the pseudo-likelihood is chosen on 4,000 rows of their own, and 4,000 others
    judge it.

        AUC, pairs | triples   area under the ROC curve of all sets over the path, with triples and of pairs only
        error                  mean absolute error of the planted coefficients, known structure and no penalty
        all                    the same over all sets, at the smallest penalty
        inside, outside        share of the pairs inside planted triples, and of all others not planted, in that fit
        above the truth        pseudo-likelihood, nats a row, less than the planted model's
    """
    frame = root_recovery(plant_roots(), rows, repeats=repeats, held_out=4000, seed=seed)
    columns = frame.columns.drop(["num_rows", "repeat", "model"])
    means = frame.groupby(["num_rows", "model"])[list(columns)].mean()
    notes = []
    for model in ("known structure", "pairs and triples"):
        errors = means.xs(model, level="model")
        slopes = [f"{slope(errors[f'{name}_error']):.2f} for {name}s" for name in ("pair", "triple")]
        notes.append(f"{model}: {', '.join(slopes)}")
    told = f"Means of {repeats} samples. Log-log slope of the error: {'; '.join(notes)}."
    return [told, "", *markdown(RECOVERED), *(recovery_line(size, means.loc[size]) for size in rows)]


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


@part("False discoveries of root models")
def confirmation(runs=20, laws=LAWS, rows=(2000,), rules=("and",), seed=0):
    """False discoveries and recall before and after sets are confirmed, where the law is known.

    Laws, each drawn anew for every run: "planted C S": 15 counts of a Poisson root model with 18 pairs of coefficients
    +-C and singles of S (the ends of Gibbs chains). "permuted C S": the same with every column permuted, so that
    nothing is there and columns are overdispersed. "poisson M": 15 independent Poisson columns of mean M.
    "overdispersed M": 15 independent negative binomial columns of mean M and shape 1. "triples": 12 counts, eight pairs
    and six triples as in "recovery", learned with order 3; a pair inside a planted triple is not false. Rules: how the
    regressions are joined (l1 0.01). Shown are, before and after, the mean share of false sets among those found with
    its standard error, the numbers of false ones and of planted ones found, and the seconds of processor time of the
    regressions and of the tests.
    """
    report = Report(HEAD)
    for law, num, rule in itertools.product(laws, rows, rules):
        report.row(law, f"{num:,}", rule, *figures(law, num, rule, runs, seed))
    return report.lines()


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


@part("Root models whose structure is known", is_default=False)
def confirmation_known(runs=20, laws=LAWS, rows=(2000,), seed=0):
    """Benjamini and Hochberg's procedure over all pairs, each tested beside all planted others: the best there is."""
    report = Report(["law", "rows", "false share", "found"])
    for law, num in itertools.product(laws, rows):
        report.row(law, f"{num:,}", *known(law, num, runs, seed))
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
    from pyro_hoim.datasets import load_classic3
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


if __name__ == "__main__":
    main(__doc__)
