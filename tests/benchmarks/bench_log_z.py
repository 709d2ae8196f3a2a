"""Log Z: exact elimination beside other programs, annealed importance sampling, and what its verdicts are worth.

python tests/benchmarks/bench_log_z.py [--append] [PART] [OPTIONS]
"""

import json
import math
import os
import tempfile
import time
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from bench_gibbs import spin_table
from harness import CORES, MUSHROOM, Report, as_energy, grid_pairs, main, median, part, run_peer, write_models

from pyro_hoim import ConvergenceWarning, InteractionHypergraph
from pyro_hoim.annealing import backend as verdict
from pyro_hoim.annealing.backend import Checks
from pyro_hoim.core.partition import Certificate
from pyro_hoim.datasets import load_adult, load_mushroom
from pyro_hoim.generalized_root import GeneralizedRootEnergy, RootAnnealed
from pyro_hoim.generalized_root.annealed import AnnealedRoot
from pyro_hoim.log_linear import L2, AnnealedImportance, LogLinearEnergy, Stopping, VariableElimination, fit
from pyro_hoim.log_linear.annealed import importance

from support.hard_models import HardModel, enumerated_log_z, mean_field_spins, shuffled, subsets
from support.hard_suite import HARD_CLASSES, easy_models, hard_models, is_false_claim


def model_c(scale=1.0):
    rng = np.random.default_rng(5)
    scopes = subsets(rng, 20, 2, 40) + subsets(rng, 20, 3, 40)
    weights = rng.normal(0, 0.3, len(scopes)) * scale
    tables = [(s, spin_table(len(s), w)) for s, w in zip(scopes, weights, strict=True)]
    return as_energy(([2] * 20, tables), torch.float64)


RUNS = {"forward run alone": {"reverse": False}, "with the reverse run": {}}


def speed(report):
    model = model_c()
    for threads in sorted({1, CORES}):
        torch.set_num_threads(threads)
        for label in RUNS:
            backend = AnnealedImportance(**RUNS[label])
            seconds, fastest = median(partial(backend.log_partition, model), 30, 5)
            what = f"C: 1,000 temperatures x 512 chains, {threads} threads"
            report.add(what, f"ours, {label}", seconds, note=f"fastest {fastest * 1e3:.1f} ms")


def checks(report):
    """Processor time of the states looked for and the runs from modes: with them, and with them switched off."""
    torch.set_num_threads(1)
    model, nothing = model_c(), np.zeros(1)
    unknown = Certificate(nothing - np.inf, np.zeros((1, 20), dtype=np.int64), nothing - np.inf, nothing > 0)
    off = mock.patch.object(verdict, "checked", return_value=Checks(unknown, None, nothing, ("",)))
    denied = mock.patch.object(importance, "perfect_backend", return_value=None)
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


ANNEALED = {"speed": speed, "checks": checks}


@part("Annealed importance sampling")
def annealed(sections=tuple(ANNEALED)):
    """Time of an estimate, and of the checks of its verdict.

    Model C: 20 spins with 40 random pairs and 40 random triples, weights normal with standard deviation 0.3 times a
    scale. The default path: 1,000 temperatures, 512 chains.
    """
    report = Report()
    for name in sections:
        ANNEALED[name](report)
    return report.lines()


LARGE = 10**6  # table cells of models that are run once
OPTIONS = {
    "condensing level": {"num_chains": 128, "num_temperatures": 200},
    "blocks of levels": {"num_chains": 128, "num_temperatures": 200},
    "condensate and dimers": {"num_chains": 128, "num_temperatures": 200},
    "Potts, complete graph": {"num_chains": 256, "num_temperatures": 500},
    "Potts grid": {"num_chains": 256, "num_temperatures": 500},
    "fitted to mushroom": {"num_chains": 256, "num_temperatures": 500},
    "fitted to adult": {"num_chains": 256, "num_temperatures": 500},
}
FITTED = {"fitted to mushroom": load_mushroom, "fitted to adult": load_adult}
RARE = "rare mode, perfect starts"
WORDS = ("unreliable", "consistent", "verified")
COLUMNS = ("class", "cases", *WORDS, "false claims", "largest claimed error", "largest error", "outside limits", "s")


def fitted_models(name, number=12):
    """Pairwise fits of random columns."""
    data = FITTED[name]().drop_missing()
    for case in range(number):
        names, states = [], 1
        for variable in np.random.default_rng(case).permutation(list(data.domain.names)).tolist():
            levels = data.domain[variable].cardinality
            if levels > 1 and states * levels <= 2**18 and len(names) < 8:
                names, states = [*names, variable], states * levels
        rows = data.project(names)
        graph = InteractionHypergraph.from_order(rows.domain, 2)
        found = fit(graph, rows, objective="pseudo-likelihood", penalty=L2(0.5), stopping=Stopping(tolerance=1e-4))
        for scale in (1.0, 2.0):
            energy = LogLinearEnergy(graph, scale * LogLinearEnergy.from_theta(graph, found.theta.double()).tables)
            yield HardModel(name, {"columns": names, "scale": scale}, energy, enumerated_log_z(energy))


def rare_modes():
    """Twelve spins of orders 1 to 3; the well that the fields oppose has a given share."""
    for share in (0.001, 0.002, 0.004):
        depth = math.log(share / (1 - share))  # of the other well below this one
        model = mean_field_spins(12, triple=(4 * 12 + depth / 2) * 12**2 / math.comb(12, 3))
        yield replace(model, name=RARE, parameters={"share": share})


def models_of(name):
    if name == RARE:
        return list(rare_modes())
    if name == "easy":
        return list(easy_models())
    return list(fitted_models(name) if name in FITTED else hard_models(name))


@contextmanager
def without_perfect_starts():
    """Reverse runs start from tempered runs, as in models beyond exact methods."""
    with (
        mock.patch.object(importance, "perfect_backend", return_value=None),
        mock.patch.object(AnnealedRoot, "perfect_states", return_value=None),
    ):
        yield


def estimated(model, seed, **options):
    backend = RootAnnealed if isinstance(model.energy, GeneralizedRootEnergy) else AnnealedImportance
    start = time.process_time()
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        result = backend(seed=seed, **options).log_partition(model.energy)
    return result, time.process_time() - start


def size_of(energy):
    """Number of parameters."""
    return (energy.psi if isinstance(energy, GeneralizedRootEnergy) else energy.tables).numel()


def measured(name, least, is_shuffled):
    """One record for every case of a class, as many runs of every model as give the least number of cases."""
    models = models_of(name)
    repeats = 1 if name == "easy" else math.ceil((3 * least if name == RARE else least) / len(models))
    for number, model in enumerate(models):
        for repeat in range(1 if size_of(model.energy) > LARGE else repeats):
            seed = 1000 * repeat + number
            made = shuffled(model, seed) if is_shuffled else model
            result, seconds = estimated(made, seed, **OPTIONS.get(name, {}))
            yield {
                "class": name,
                "parameters": dict(model.parameters),
                "seed": seed,
                "exact": model.log_z,
                "error": float(result.value) - model.log_z,
                "std_error": float(result.std_error),
                "lower": float(result.lower),
                "upper": float(result.upper),
                "verdict": result.verdict,
                "false": is_false_claim(result, model.log_z),
                "seconds": seconds,
                "notes": result.notes,
            }


def summary(name, records):
    """The row of a class: counts, errors in nats, one-sided limits that the truth is beyond, processor time."""
    counts = [str(sum(r["verdict"] == word for r in records)) for word in WORDS]
    claimed = [abs(r["error"]) for r in records if r["verdict"] != "unreliable"]
    slack = [1e-9 * max(1.0, abs(r["exact"])) for r in records]
    outside = sum(
        r["lower"] > r["exact"] + s or r["upper"] < r["exact"] - s for r, s in zip(records, slack, strict=True)
    )
    false = [r for r in records if r["false"]]
    by_word = ", ".join(f"{sum(r['verdict'] == w for r in false)} {w}" for w in WORDS[1:] if false)
    return (
        name,
        str(len(records)),
        *counts,
        f"{len(false)} ({by_word})" if false else "0",
        f"{max(claimed, default=0):.2g}",
        f"{max(abs(r['error']) for r in records):.3g}",
        str(outside),
        f"{sum(r['seconds'] for r in records):.1f}",
    )


@part("False claims about log Z")
def verdicts(classes=(*HARD_CLASSES, *FITTED, RARE, "easy"), least=100, shuffle=False, cases=None):
    """What verdicts on annealed log Z are worth: false claims where log Z is known. Errors in nats.

    The published suite of ``tests/support/hard_suite.py``, fits of mushroom and adult (random columns of at most 2^18
    states, all pairs, pseudo-likelihood with a ridge; once as fitted and once with all tables doubled), and 200 easy
    models. Models and seeds are fixed: run r of model k of a class has the seed 1000 r + k. Perfect starts of the
    reverse run are denied throughout, as they are for models beyond exact methods, so that the verdict rests on the
    runs alone; only "rare mode" has them: wells of share 0.001, 0.002 and 0.004 that no chain enters and that 512
    perfect draws often miss. Defaults of the backend, except for the classes in ``OPTIONS``. ``--least``: cases of a
    class, at least (three times that of one); ``--cases``: JSON file for the record of every case. ``--shuffle`` puts
    the levels of every variable in another order, drawn by the seed of the run: log Z stays, and so should the
    verdicts. A false claim is an estimate that is not called unreliable and errs by more than 5 standard errors and
    0.05 nats.
    """
    report, records = Report(COLUMNS), []
    estimated(next(easy_models(1)), 0)  # compiles or loads the kernels
    for name in classes:
        if name in FITTED and "PYRO_HOIM_DATA" not in os.environ:
            report.row(name, "skipped: set PYRO_HOIM_DATA to a folder with the public data sets")
            continue
        with nullcontext() if name == RARE else without_perfect_starts():
            found = list(measured(name, least, shuffle))
        records += found
        report.row(*summary(name, found))
        if cases:
            Path(cases).write_text(json.dumps(records, indent=1))
    return report.lines()


ORACLES = ("message_passing_hugin", "message_passing_shafer_shenoy")


def mushroom_model(name):
    """B1: pairs and triples along a random path; B1m: random pairs and triples. Tables normal, sd 0.3, float32."""
    d = len(MUSHROOM)
    if name == "B1":
        rng = np.random.default_rng(3)
        path = rng.permutation(d)
        scopes = [tuple(sorted((int(path[i]), int(path[i + 1])))) for i in range(d - 1)]
        starts = sorted(rng.choice(d - 2, 6, replace=False))
        scopes += [tuple(sorted(int(v) for v in path[i : i + 3])) for i in starts]
    else:
        rng = np.random.default_rng(11)
        scopes = subsets(rng, d, 2, 22) + subsets(rng, d, 3, 6)
    scopes = [(i,) for i in range(d)] + scopes
    return MUSHROOM, [(s, rng.normal(0, 0.3, [MUSHROOM[i] for i in s]).astype(np.float32)) for s in scopes]


def min_fill(model):
    """Order of least fill-in, ties to the smaller table: the usual choice of junction-tree programs."""
    cards, tables = model
    near = {v: set() for v in range(len(cards))}
    for scope, _ in tables:
        for v in scope:
            near[v].update(u for u in scope if u != v)
    order = []
    while near:

        def score(v):
            around = sorted(near[v])
            missing = sum(b not in near[a] for i, a in enumerate(around) for b in around[i + 1 :])
            return missing, np.log(cards[v]) + sum(np.log(cards[u]) for u in around)

        best = min(near, key=score)
        around = near.pop(best)
        for v in around:
            near[v] = (near[v] | around) - {v, best}
        order.append(f"v{best}")
    return tuple(order)


def of_peer(package, models, repeats, *arguments):
    written = {
        name: {"cards": np.array(cards), "scopes": json.dumps([s for s, _ in tables]), "tables": [t for _, t in tables]}
        for name, (cards, tables) in models.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        return run_peer(f"elimination_{package}", write_models(folder, written), repeats, *arguments)


def pyro_contraction(model):
    """Log Z by pyro.ops.contract and all marginals by autograd, and log Z alone."""
    import opt_einsum
    from pyro.ops.contract import einsum

    _, tables = model
    equation = ",".join("".join(opt_einsum.get_symbol(i) for i in scope) for scope, _ in tables) + "->"
    factors = [torch.as_tensor(table) for _, table in tables]

    def log_z(operands):
        return einsum(equation, *operands, backend="pyro.ops.einsum.torch_log", plates="", cache={})[0]

    def both():
        operands = [f.clone().requires_grad_() for f in factors]
        value = log_z(operands)
        return value.detach(), torch.autograd.grad(value, operands)

    return both, lambda: log_z(factors)


def small(report):
    """B1 and B1m on one thread: log Z and all marginals."""
    torch.set_num_threads(1)
    models = {name: mushroom_model(name) for name in ("B1", "B1m")}
    peers = of_peer("pgmpy", {"B1": models["B1"]}, 9) + of_peer("mbi", models, 50, *ORACLES, "message_passing_fast")
    for name, model in models.items():
        energy = as_energy(model)
        backend = VariableElimination()
        exact = float(backend.log_partition(as_energy(model, torch.float64)).value)

        def ours(energy=energy, backend=backend):
            return backend.log_partition(energy).value, backend.expectations(energy)

        value, eta = ours()
        start = time.perf_counter()
        VariableElimination(order=energy.domain.names[::-1]).plan(energy.hypergraph)
        time_plan = time.perf_counter() - start
        mine, _ = median(ours, 300, 20)
        alone, _ = median(lambda: backend.log_partition(energy), 300, 20)
        note = f"error of log Z {abs(float(value) - exact):.1g}; plan once {time_plan * 1e3:.1f} ms"
        report.add(f"{name}: log Z + all marginals, 1 thread", "ours", mine, note=note)
        both, log_z = pyro_contraction(model)
        reference, gradients = both()
        assert abs(float(reference) - exact) < 1e-3
        last = energy.hypergraph.term_slices[tuple(f"v{i}" for i in model[1][-1][0])]
        assert torch.allclose(gradients[-1].reshape(-1), eta[last], atol=1e-5)
        seconds, _ = median(both, 15)
        report.add(f"{name}: log Z + all marginals", f"pyro-ppl {version('pyro-ppl')}", seconds, seconds / mine)
        seconds, _ = median(log_z, 15)
        report.add(f"{name}: log Z alone", "ours", alone)
        report.add(f"{name}: log Z alone", f"pyro-ppl {version('pyro-ppl')}", seconds, seconds / alone)
        for row in (r for r in peers if r["model"] == name):
            if "log_z" in row:
                assert abs(row["log_z"] - exact) < 1e-6
            if "check" in row:
                assert abs(row["check"] - float(eta[last][0])) < 1e-5
            note = f"first call {row['first_call']:.1f} s" if "first_call" in row else ""
            report.add(f"{name}: {row['what']}", row["peer"], row["seconds"], row["seconds"] / mine, note)


def grids(report, sizes=(14, 16)):
    """Binary grids against mbi, both on all cores; ours with its own order and with min-fill (tables as large)."""
    torch.set_num_threads(CORES)
    for size in sizes:
        rng = np.random.default_rng(0)
        model = [2] * size**2, [(s, rng.normal(0, 0.3, (2, 2)).astype(np.float32)) for s in grid_pairs(size)]
        energy = as_energy(model)
        peers = of_peer("mbi", {f"{size}x{size}": model}, 7, *ORACLES)
        for label, order in (("own order", None), ("min-fill order", min_fill(model))):
            backend = VariableElimination(order=order)
            cost = backend.plan(energy.hypergraph)
            eta = backend.expectations(energy)
            seconds, _ = median(lambda: (backend.log_partition(energy), backend.expectations(energy)), 7)
            what = f"{size}x{size} binary grid: log Z + marginals, {label}"
            report.add(what, "ours", seconds, note=f"largest table 2^{np.log2(cost.cells):.0f}")
            alone, _ = median(lambda: backend.expectations(energy), 7)
            report.add(f"{size}x{size} binary grid: marginals, {label}", "ours", alone)
            last = energy.hypergraph.term_slices[tuple(f"v{i}" for i in model[1][-1][0])]
            for row in peers:
                assert abs(row["check"] - float(eta[last][0])) < 1e-4
                note = f"largest table 2^{np.log2(row['cells']):.0f}; compile {row['first_call']:.0f} s"
                what = f"{size}x{size} {row['what']} (against {label})"
                report.add(what, row["peer"], row["seconds"], row["seconds"] / alone, note)


ELIMINATION = {"small": small, "grids": grids}


@part("Elimination")
def elimination(sections=tuple(ELIMINATION)):
    """Exact inference against Pyro's contraction, pgmpy and mbi, in one run on one machine.

    Models: B1 and B1m, 23 variables of the mushroom data's cardinalities with 22 pairs and 6 triples (along a path; at
    random); binary grids. Each peer runs in its own virtual environment, named by the environment variable
    PYRO_HOIM_PEER_PGMPY or PYRO_HOIM_PEER_MBI (path of a Python) or else made under the temporary folder.
    """
    report = Report()
    for name in sections:
        ELIMINATION[name](report)
    return report.lines()


if __name__ == "__main__":
    main(__doc__)
