"""Annealed importance sampling: time and honesty of the error bar against exact log Z; appends to docs/benchmarks.md.

Model C: 20 spins with 40 random pairs and 40 random triples, weights normal with standard deviation 0.3 times a
scale; log Z by enumeration of all 2^20 states. The default path: 1,000 temperatures, 512 chains. Hard models: Ising
grids of 16 x 16 spins at, near and below the critical temperature, log Z by elimination.

    python tests/benchmarks/bench_ais.py [--sections speed checks coverage hard] [--repeats 1000] [--no-append]
"""

import time
import warnings
from contextlib import nullcontext
from functools import partial
from unittest import mock

import numpy as np
import torch
from bench_gibbs import spin_table
from harness import CORES, Report, as_energy, grid_pairs, median, script, subsets

from pyro_hoim.annealing import backend as verdict
from pyro_hoim.annealing.backend import Checks
from pyro_hoim.core.certificate import Certificate
from pyro_hoim.errors import ConvergenceWarning
from pyro_hoim.log_linear import AnnealedImportance, Enumeration, VariableElimination
from pyro_hoim.log_linear.exact import perfect


def model_c(scale=1.0):
    rng = np.random.default_rng(5)
    scopes = subsets(rng, 20, 2, 40) + subsets(rng, 20, 3, 40)
    weights = rng.normal(0, 0.3, len(scopes)) * scale
    tables = [(s, spin_table(len(s), w)) for s, w in zip(scopes, weights, strict=True)]
    return as_energy(([2] * 20, tables), torch.float64)


def ising(size, beta):
    return as_energy(([2] * size**2, [(s, spin_table(2, beta)) for s in grid_pairs(size)]), torch.float64)


RUNS = {"forward run alone": {"reverse": False}, "with the reverse run": {}, "combined": {"combine": True}}


def estimates(model, repeats, **options):
    """Results of repeated runs with seeds 1, 2, ..."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [AnnealedImportance(seed=seed, **options).log_partition(model) for seed in range(1, repeats + 1)]


def judge(results, exact):
    """How often the truth is within three standard errors, within the limits, or the result says it cannot tell."""
    errors = np.array([float(r.value) - exact for r in results])
    bars = np.array([float(r.std_error) for r in results])
    trusted = np.array([r.verdict != "unreliable" for r in results])
    within = np.abs(errors) <= 3 * bars
    sides = np.array([float(r.lower) <= exact <= float(r.upper) for r in results])
    flagged = np.array([not t for t in trusted])
    root = float(np.sqrt((errors**2).mean()))
    silent = int((~within & ~flagged).sum())
    ess = np.median([float(r.ess) for r in results])
    parts = (
        f"root mean square error {root:.2g}, median reported {np.median(bars):.2g}, median ESS {ess:.0f}",
        f"within 3 standard errors {100 * within.mean():.1f} %",
        f"flagged {100 * flagged.mean():.1f} %, misses not flagged {silent} of {len(results)}",
        f"within both limits {100 * sides.mean():.1f} %",
    )
    return "; ".join(parts)


def speed(report, _):
    model = model_c()
    for threads in sorted({1, CORES}):
        torch.set_num_threads(threads)
        for label in list(RUNS)[:2]:
            backend = AnnealedImportance(**RUNS[label])
            seconds, fastest = median(partial(backend.log_partition, model), 30, 5)
            what = f"C: 1,000 temperatures x 512 chains, {threads} threads"
            report.add(what, f"ours, {label}", seconds, note=f"fastest {fastest * 1e3:.1f} ms")


def checks(report, _):
    """Processor time of the states looked for and the runs from modes: with them, and with them switched off."""
    torch.set_num_threads(1)
    model, nothing = model_c(), np.zeros(1)
    unknown = Certificate(nothing - np.inf, np.zeros((1, 20), dtype=np.int64), nothing - np.inf, nothing > 0)
    off = mock.patch.object(verdict, "checked", return_value=Checks(unknown, None, nothing, ("",)))
    denied = mock.patch.object(perfect, "perfect_backend", return_value=None)
    cases = (
        ("forward run alone", {"reverse": False}, nullcontext()),
        ("perfect starts", {}, nullcontext()),
        ("tempered starts", {}, denied),
    )
    for label, options, start in cases:
        backend = AnnealedImportance(**options)
        with start:
            own, _ = median(partial(backend.log_partition, model), 15, 1, time.process_time)
            with off:
                bare, _ = median(partial(backend.log_partition, model), 15, 1, time.process_time)
        note = f"without them {bare * 1e3:.3g} ms; {own / bare:.2f} times"
        report.add(f"C: checks of the verdict, {label}, processor time", "ours", own, note=note)


def judged(report, what, model, exact_backend, repeats, runs):
    """Time and honesty of repeated runs of every kind."""
    torch.set_num_threads(CORES)
    exact = float(exact_backend.log_partition(model).value)
    for label in runs:
        start = time.perf_counter()
        results = estimates(model, repeats, **RUNS[label])
        each = (time.perf_counter() - start) / repeats
        report.add(f"{what}: {repeats} repetitions, {label}", "ours", each, note=judge(results, exact))


def coverage(report, repeats):
    for scale in (0.3, 1.0, 3.0):
        judged(report, f"C x {scale}", model_c(scale), Enumeration(), repeats, list(RUNS)[:2])


def hard(report, repeats):
    repeats = max(20, repeats // 25)
    for beta in (0.4, 0.4407, 0.6, 1.0):
        judged(report, f"Ising 16 x 16, coupling {beta}", ising(16, beta), VariableElimination(), repeats, RUNS)


SECTIONS = {"speed": speed, "checks": checks, "coverage": coverage, "hard": hard}


def main():
    parser = script(__doc__, appends=True)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--repeats", type=int, default=1000)
    options = parser.parse_args()
    report = Report()
    for name in options.sections:
        SECTIONS[name](report, options.repeats)
    if not options.no_append:
        report.append("Annealed importance sampling")


if __name__ == "__main__":
    main()
