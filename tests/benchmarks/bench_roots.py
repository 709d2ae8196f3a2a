"""Root regressions of Classic3: time by jobs, scores, pairs and a path; nodes beside a slow reference and skglm.

usage: bench_roots.py [--nodes N] [--repeats N] [--append]

The workload is that of the paper's section 5: 3,893 x 500 counts, k = 3, l1 = 0.01, Poisson (2,653 s there on a cluster
node; memory and the published tables are those of bench_classic3.py). FIRST_CALL is a process with an empty Numba
cache. The reference is FISTA over all features of a node held as a sparse matrix, stopped at the same KKT residual or
after 3,000 steps, timed on a few nodes; skglm, where it is installed, solves another problem of the same size (Poisson
regression with a log link on the raw counts, pairs only). Without --append nothing is written to docs/benchmarks.md.
"""

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse
from harness import CORES, Report, first_call, median, script
from scipy.special import gammaln

from pyro_hoim.generalized_root import RootSettings, fit_root_path, fit_roots
from pyro_hoim.generalized_root.nodes.families import PoissonFamily
from pyro_hoim.generalized_root.regress._space import search_space
from pyro_hoim.generalized_root.regress.node import solve_node
from pyro_hoim.generalized_root.regress.rows import prepare_rows

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


def main():
    parser = script(__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    report = Report()
    words, counts = load()
    what = f"Classic3, {counts.shape[0]} x {counts.shape[1]}, k = 3, l1 = 0.01"
    compiling, _ = first_call(FIRST_CALL)
    report.add("first call", "compilation", compiling, note="once per machine, then cached on disk")
    fit_roots(counts[:, :5], order=3)

    def fitted(order=3, jobs=CORES):
        settings = RootSettings(jobs=jobs, false_discovery_rate=None)
        return fit_roots(counts, order=order, l1=0.01, names=words, settings=settings)

    for jobs in (1, CORES):
        busy = time.process_time()
        seconds, _ = median(partial(fitted, jobs=jobs), arguments.repeats, warm=0)
        busy = (time.process_time() - busy) / arguments.repeats
        ratio = PUBLISHED_SECONDS / seconds
        report.add(what, f"fit_roots, {jobs} jobs", seconds, ratio, f"{busy:.1f} s of processor time; ratio to 2,653 s")
    seconds, _ = median(partial(fitted().log_pseudo_prob, counts), arguments.repeats, warm=0)
    report.add(what, "log_pseudo_prob of all rows", seconds)
    pairs, _ = median(partial(fitted, 2), arguments.repeats, warm=0)
    report.add(what.replace("k = 3", "k = 2"), f"fit_roots, {CORES} jobs", pairs)
    l1s, settings = [0.08, 0.04, 0.02, 0.01], RootSettings(jobs=CORES)
    path, _ = median(partial(fit_root_path, counts, l1s, order=3, settings=settings), 1, warm=0)
    report.add("the same, l1 = 0.08, 0.04, 0.02, 0.01", f"fit_root_path, {CORES} jobs", path)
    rows = prepare_rows(counts, PoissonFamily(), 3, words)
    space = search_space(500, 3, {2: 0.01, 3: 0.01}, False, {})
    for word in ("boundary", "friction", "patients")[: arguments.nodes]:
        node = words.index(word)
        mine = solve_node(rows, node, space, RootSettings())
        slow, objective, residual, steps = slow_node(rows, node, 0.01)
        note = f"objective {objective - mine.outcome.objective:+.1e} of ours, KKT {residual:.0e} after {steps} steps"
        report.add(f"node {word!r}", "solve_node", mine.outcome.seconds)
        report.add(f"node {word!r}", "FISTA, all features", slow, slow / mine.outcome.seconds, note)
    try:
        from skglm import GeneralizedLinearEstimator
        from skglm.datafits import Poisson
        from skglm.penalties import L1
        from skglm.solvers import ProxNewton
    except ImportError:
        print("skglm is not installed: its rows are left out")
    else:
        dense = counts.toarray().astype(float)
        for word in ("boundary", "friction", "patients")[: arguments.nodes]:
            node = words.index(word)
            design = scipy.sparse.csc_matrix(np.sqrt(np.delete(dense, node, 1)))
            model = GeneralizedLinearEstimator(Poisson(), L1(0.01), ProxNewton(fit_intercept=True, tol=1e-6))
            seconds, _ = median(lambda: model.fit(design, dense[:, node]), 3)
            report.add(f"node {word!r}, log link, pairs", "skglm ProxNewton", seconds)
    if arguments.append:
        report.append("Root regressions")


if __name__ == "__main__":
    main()
