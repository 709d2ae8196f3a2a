"""What verdicts on annealed log Z are worth: false claims where log Z is known; appends to docs/benchmarks.md.

The published suite of ``tests/support/hard_suite.py``, fits of mushroom and adult (random columns of at most 2^18
states, all pairs, pseudo-likelihood with a ridge; once as fitted and once with all tables doubled), and 200 easy
models. Models and seeds are fixed: run r of model k of a class has the seed 1000 r + k. Perfect starts of the reverse
run are denied throughout, as they are for models beyond exact methods, so that the verdict rests on the runs alone;
only "rare mode" has them: wells of share 0.001, 0.002 and 0.004 that no chain enters and that 512 perfect draws often
miss. Defaults of the backend, except for the classes in ``OPTIONS``. ``--shuffled`` puts the levels of every variable
in another order, drawn by the seed of the run: log Z stays, and so should the verdicts. A false claim is an estimate
that is not called unreliable and errs by more than 5 standard errors and 0.05 nats.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_hard_log_z.py [--classes NAME ...] [--least N] [--shuffled]
        [--no-append]
"""

import json
import math
import os
import time
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from harness import Report, script

from pyro_hoim.datasets import load_adult, load_mushroom
from pyro_hoim.errors import ConvergenceWarning
from pyro_hoim.generalized_root import GeneralizedRootEnergy, RootAnnealed
from pyro_hoim.generalized_root.annealed import AnnealedRoot
from pyro_hoim.log_linear import L2, AnnealedImportance, LogLinearEnergy, Stopping, fit
from pyro_hoim.log_linear.exact import perfect
from pyro_hoim.structure import InteractionHypergraph

from support.hard_models import HardModel, enumerated_log_z, mean_field_spins, shuffled
from support.hard_suite import HARD_CLASSES, easy_models, hard_models, is_false_claim

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
        mock.patch.object(perfect, "perfect_backend", return_value=None),
        mock.patch.object(AnnealedRoot, "perfect_states", return_value=None),
    ):
        yield


def estimated(model, seed, **options):
    backend = RootAnnealed if isinstance(model.energy, GeneralizedRootEnergy) else AnnealedImportance
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
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


def main():
    names = [*HARD_CLASSES, *FITTED, RARE, "easy"]
    parser = script(__doc__, appends=True)
    parser.add_argument("--classes", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--least", type=int, default=100, help="cases of a class, at least (three times that of one)")
    parser.add_argument("--shuffled", action="store_true", help="levels of every variable in another order")
    parser.add_argument("--cases", type=Path, help="JSON file for the record of every case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    legend = "Errors in nats; processor time in seconds; see the head of the script for models, seeds and rules."
    report, records = Report(COLUMNS, legend), []
    estimated(next(easy_models(1)), 0)  # compiles or loads the kernels
    for name in options.classes:
        if name in FITTED and "PYRO_HOIM_DATA" not in os.environ:
            print(f"SKIPPED {name}: set PYRO_HOIM_DATA to a folder with the public data sets", flush=True)
            continue
        with nullcontext() if name == RARE else without_perfect_starts():
            found = list(measured(name, options.least, options.shuffled))
        records += found
        report.row(*summary(name, found))
        if options.cases:
            options.cases.write_text(json.dumps(records, indent=1))
    if not options.no_append:
        report.append("False claims about log Z" + (", levels shuffled" if options.shuffled else ""))


if __name__ == "__main__":
    main()
