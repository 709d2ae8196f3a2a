"""Bounds of log Z: their width and time beside weighted mini-buckets of pygms 0.4.1, and estimates from them.

python tests/benchmarks/bench_bounds.py [--append] [bounds | grids | estimates | fits] [OPTIONS]

pygms runs in an environment of its own, made on first use (pip install pygms), or by the Python that
PYRO_HOIM_PEER_PYGMS names. Problems of UAI come as those of bench_uai.py do.
"""

import math
import os
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch
from bench_uai import fetched, grid
from harness import CORES, Report, apart, as_energy, grid_pairs, main, part, run_peer

from pyro_hoim import ConvergenceWarning, HoimError, InteractionHypergraph, Observations, read_uai
from pyro_hoim.datasets import load_mushroom
from pyro_hoim.log_linear import L2, BucketImportance, LogLinearEnergy, MiniBuckets, Stopping, VariableElimination, fit

from support.hard_models import subsets

CRITICAL = math.log(1 + math.sqrt(2)) / 2
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def random_model(size, order, number, scale, seed, levels=2):
    """Fields, and normal tables of random sets of variables."""
    rng = np.random.default_rng(seed)
    scopes = [(v,) for v in range(size)] + subsets(rng, size, order, number)
    tables = [(s, scale * rng.standard_normal([levels] * len(s))) for s in scopes]
    return as_energy(([levels] * size, tables), torch.float64)


def spins(size, pairs, couplings):
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    tables = [(pair, j * signs) for pair, j in zip(pairs, couplings, strict=True)]
    return as_energy(([2] * size, tables), torch.float64)


def torus(size, coupling=CRITICAL):
    index = np.arange(size * size).reshape(size, size)
    ends = [np.stack([index, np.roll(index, -1, axis)], -1).reshape(-1, 2) for axis in (0, 1)]
    pairs = sorted({tuple(sorted(pair)) for pair in np.concatenate(ends).tolist()})
    return spins(size * size, pairs, [coupling] * len(pairs))


def glass(size, scale, seed):
    pairs = grid_pairs(size)
    return spins(size * size, pairs, scale * np.random.default_rng(seed).standard_normal(len(pairs)))


def ladder(rungs, width, scale, seed):
    index = np.arange(rungs * width).reshape(rungs, width)
    ends = [np.stack([index[:-1], index[1:]], -1), np.stack([index[:, :-1], index[:, 1:]], -1)]
    pairs = sorted(tuple(pair) for pair in np.concatenate([e.reshape(-1, 2) for e in ends]).tolist())
    return spins(rungs * width, pairs, scale * np.random.default_rng(seed).standard_normal(len(pairs)))


def mushroom():
    """Pairs of columns of the mushroom data, one to five apart in their order, by pseudo-likelihood."""
    data = load_mushroom().drop_missing()
    names = [name for name in data.domain.names if data.domain[name].cardinality > 1]
    rows = data.project(names)
    edges = [(a, b) for k, a in enumerate(names) for b in names[k + 1 : k + 6]]
    graph = InteractionHypergraph(rows.domain, edges, closure=True)
    found = fit(graph, rows, objective="pseudo-likelihood", penalty=L2(0.5), stopping=Stopping(tolerance=1e-4))
    return LogLinearEnergy.from_theta(graph, found.theta.double())


def competition(name):
    return read_uai(fetched() / f"{name}.uai")


def uai_grid(number):
    return read_uai(grid(number))


PROBLEMS = {
    "Grids_23": (partial(competition, "Grids_23"), 14),
    "Grids_26": (partial(competition, "Grids_26"), 14),
    "Grids_30": (partial(competition, "Grids_30"), 14),
    "triples, 30, scale 0.5": (partial(random_model, 30, 3, 60, 0.5, 1), 10),
    "triples, 30, scale 1": (partial(random_model, 30, 3, 60, 1.0, 2), 10),
    "triples, 30, scale 2": (partial(random_model, 30, 3, 60, 2.0, 3), 10),
    "triples, 60, scale 0.5": (partial(random_model, 60, 3, 90, 0.5, 4), 12),
    "triples, 60, scale 1": (partial(random_model, 60, 3, 90, 1.0, 5), 12),
    "triples, 60, scale 2": (partial(random_model, 60, 3, 90, 2.0, 6), 12),
    "pairs, 40, scale 0.3": (partial(random_model, 40, 2, 160, 0.3, 7), 10),
    "pairs, 40, scale 1": (partial(random_model, 40, 2, 160, 1.0, 8), 10),
    "pairs, 30, five levels": (partial(random_model, 30, 2, 70, 1.0, 9, 5), 12),
    "mushroom, 22 columns": (mushroom, 16),
    "spin glass, 20 x 20": (partial(glass, 20, 1.0, 10), 10),
    "ladder, 100 x 4": (partial(ladder, 100, 4, 1.0, 11), 3),
    "ladder, 200 x 6": (partial(ladder, 200, 6, 1.0, 12), 4),
    "critical torus, 10 x 10": (partial(torus, 10), 10),
    "critical torus, 16 x 16": (partial(torus, 16), 12),
    "critical torus, 24 x 24": (partial(torus, 24), 14),
    "critical torus, 32 x 32": (partial(torus, 32), 12),
}


def warmed():
    """One thread, and all that is imported or loaded at first use."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    small = random_model(40, 2, 100, 1.0, 0)
    MiniBuckets(max_cells=2**4).log_partition(small)
    BucketImportance(max_cells=2**4, seed=1, num_draws=2).log_partition(small)


def bounded(path, bits, passes):
    """Bounds in nats and processor time of one model, orders and plans counted."""
    warmed()
    model = read_uai(path)
    start = time.process_time()
    result = MiniBuckets(max_cells=2**bits, passes=passes).log_partition(model)
    seconds = time.process_time() - start
    return {"lower": float(result.lower), "upper": float(result.upper), "seconds": seconds}


def exact_value(model, bits=24):
    """Log Z where tables of 2^bits cells are enough."""
    try:
        return float(VariableElimination(max_cells=2**bits, max_slices=64).log_partition(model).value)
    except HoimError:
        return math.nan


@part("Bounds of log Z beside pygms")
def bounds(pattern="", passes=10, rounds=2, no_peer=False):
    """Bounds at equal cells of the largest table and equal passes; processor time of one thread, orders included.

    Ours and the peer's runs alternate, each in a new process, and the fastest of the rounds counts. The peer's first
    order is its default of least fill-in, the others have random ties; the tightest bounds of all of them count. Where
    log Z is known, bounds that it is outside of are an error.
    """
    report = Report("problem|variables|cells|log Z|ours|width|s|pygms|width|s|width of pygms' |times faster")
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, bits) in PROBLEMS.items():
            if pattern not in name:
                continue
            model, path = make(), Path(folder) / "model.uai"
            model.to_uai(path)
            truth, ours, theirs = exact_value(model), list[dict](), list[dict]()
            for number in range(rounds):
                ours.append(apart(bounded, str(path), bits, passes, **ONE_THREAD))
                if not no_peer:
                    theirs += run_peer("bounds_pygms", path, bits, passes, number, **ONE_THREAD)
            report.row(name, len(model.domain), f"2^{bits}", *compared(truth, ours, theirs))
    return report.lines()


@part("Brackets of the grids of UAI 2014 beside pygms")
def grids(pattern="", bits=18, passes=10):
    """Bounds within the default budget of memory, tables of 2^bits cells, beside those of pygms with 2^14 cells.

    Ten passes of both programs; log Z of no grid but Grids_30, left out here, is known.
    """
    report = Report("problem|variables|cells|log Z|ours|width|s|pygms|width|s|width of pygms' |times faster")
    with tempfile.TemporaryDirectory() as folder:
        for number in (18, 19, *range(21, 30)):
            name, model, path = f"Grids_{number}", uai_grid(number), Path(folder) / "model.uai"
            if pattern in name:
                model.to_uai(path)
                ours = [apart(bounded, str(path), bits, passes, **ONE_THREAD)]
                theirs = run_peer("bounds_pygms", path, 14, passes, 0, **ONE_THREAD)
                report.row(name, len(model.domain), f"2^{bits}", *compared(math.nan, ours, theirs))
    return report.lines()


def shown(runs):
    """Bounds, width and fastest time of some runs of one problem."""
    if not runs:
        return ["", "", ""]
    low, high = max(r["lower"] for r in runs), min(r["upper"] for r in runs)
    return [f"{low:.3f} to {high:.3f}", f"{high - low:.3g}", f"{min(r['seconds'] for r in runs):.3g}"]


def compared(truth, ours, theirs):
    """Cells of a row about log Z, our runs and the peer's."""
    for run in ours:
        if not math.isnan(truth) and not run["lower"] - 1e-9 <= truth <= run["upper"] + 1e-9:
            raise AssertionError(f"log Z is {truth}, and the bounds are {run}")
    cells = ["" if math.isnan(truth) else f"{truth:.3f}", *shown(ours), *shown(theirs)]
    if not theirs:
        return [*cells, "", ""]
    widths = [min(r["upper"] for r in runs) - max(r["lower"] for r in runs) for runs in (ours, theirs)]
    times = [min(r["seconds"] for r in runs) for runs in (ours, theirs)]
    share = f"{widths[0] / widths[1]:.3f}" if widths[1] > 1e-6 else "both exact"
    return [*cells, share, f"{times[1] / times[0]:.0f}"]


def estimated(path, options):
    """An estimate, its limits and processor time."""
    warmed()
    model = read_uai(path)
    start, used = time.perf_counter(), time.process_time()
    result = BucketImportance(seed=1, **options).log_partition(model)
    return {
        "value": float(result.value),
        "error": float(result.std_error),
        "lower": float(result.lower),
        "upper": float(result.upper),
        "verdict": result.verdict,
        "low": float(result.lower_bound),
        "high": float(result.upper_bound),
        "note": result.notes[0].split("; limits")[0],
        "elapsed": time.perf_counter() - start,
        "seconds": time.process_time() - used,
    }


# Cells for every grid beyond exact reach as far as the default budget of memory goes.
ESTIMATES = {
    f"Grids_{number}": (
        partial(uai_grid, number),
        {"max_cells": 2**16 if number == 20 else 2**18, "max_error": 0.1 if number in (26, 28, 29, 30) else 1.0},
    )
    for number in range(18, 31)
} | {
    "triples, 60, scale 1": (partial(random_model, 60, 3, 90, 1.0, 5), {"max_cells": 2**16}),
    "spin glass, 20 x 20": (partial(glass, 20, 1.0, 10), {"max_cells": 2**16}),
    "critical torus, 24 x 24": (partial(torus, 24), {"max_cells": 2**16}),
}


@part("Estimates of log Z from mini-buckets")
def estimates(pattern="", passes=10, draws=2**17):
    """`BucketImportance` where exact methods fail: the estimate, its limits of probability 0.95 and time.

    Independent draws, and runs with resampling where these are not close enough; the estimates of both are told.
    """
    report = Report("problem|cells|log Z|estimate|limits|bounds|draws and runs|verdict|s of processor time|s")
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, options) in ESTIMATES.items():
            if pattern not in name:
                continue
            model, path = make(), Path(folder) / "model.uai"
            model.to_uai(path)
            truth = exact_value(model)
            run = apart(estimated, str(path), {"passes": passes, "num_draws": draws, **options})
            report.row(
                name,
                f"2^{int(math.log2(options['max_cells']))}",
                "" if math.isnan(truth) else f"{truth:.3f}",
                f"{run['value']:.3f} ± {run['error']:.2g}",
                f"{run['lower']:.3f} to {run['upper']:.3f}",
                f"{run['low']:.2f} to {run['high']:.2f}",
                run["note"],
                run["verdict"],
                f"{run['seconds']:.1f}",
                f"{run['elapsed']:.1f}",
            )
    return report.lines()


def mushroom_pairs():
    """All pairs of columns of the mushroom data that vary."""
    data = load_mushroom().drop_missing()
    rows = data.project([name for name in data.domain.names if data.domain[name].cardinality > 1])
    return InteractionHypergraph.from_order(rows.domain, 2), rows


def planted(size, scale, number, seed):
    """A grid of spins with normal fields and couplings, and rows that it drew."""
    graph = glass(size, scale, seed).hypergraph.closure()
    generator = torch.Generator().manual_seed(seed)
    theta = scale * torch.randn(graph.num_parameters, generator=generator, dtype=torch.float64)
    model = LogLinearEnergy.from_theta(graph, theta)
    states = VariableElimination(max_cells=2**26).sample(model, (number,), generator)
    return graph, Observations.from_tensor(states, graph.domain)


FITS = {
    "mushroom, all pairs": (mushroom_pairs, (8, 12)),
    "grid, 10 x 10": (partial(planted, 10, 0.5, 2000, 1), (4, 8)),
    "grid, 20 x 20": (partial(planted, 20, 0.5, 2000, 1), (6, 10)),
}


@part("Fits by bounds of the likelihood")
def fits(pattern="", bits=0):
    """What the log-likelihood is at least, by `objective="bound"` and at the estimate of the pseudo-likelihood.

    Both have a ridge of strength 1. The bound at the pseudo-likelihood's estimate is that of the same mini-buckets
    after ten passes. Seconds are of processor time.
    """
    warmed()
    report = Report("table|rows|parameters|cells|at least, bound|s|at least, pseudo-likelihood|s|log-likelihood, both")
    exactly = VariableElimination(max_cells=2**22)
    for name, (make, sizes) in FITS.items():
        if pattern not in name:
            continue
        graph, rows = make()
        start = time.process_time()
        pseudo = fit(graph, rows, objective="pseudo-likelihood", penalty=L2(1.0), stopping=Stopping(tolerance=1e-4))
        taken = time.process_time() - start
        for size in [bits] if bits else sizes:
            backend = MiniBuckets(max_cells=2**size)
            start = time.process_time()
            result = fit(graph, rows, objective="bound", partition=backend, penalty=L2(1.0))
            seconds = time.process_time() - start
            energies = [float(rows.counts @ found.model.energy(rows.codes)) for found in (result, pseudo)]
            least = -energies[1] - rows.total_count * float(backend.log_partition(pseudo.model).upper)
            exact = [
                f"{-energy - rows.total_count * float(exactly.log_partition(found.model).value):.0f}"
                for energy, found in zip(energies, (result, pseudo), strict=True)
                if exactly.plan(graph).feasible
            ]
            report.row(
                name,
                f"{rows.total_count:.0f}",
                graph.num_parameters,
                f"2^{size}",
                f"{result.log_likelihood_bound:.0f}",
                f"{seconds:.1f}",
                f"{least:.0f}",
                f"{taken:.1f}",
                ", ".join(exact),
            )
    return report.lines()


if __name__ == "__main__":
    if CORES < 2:
        os.environ.update(ONE_THREAD)
    main(__doc__)
