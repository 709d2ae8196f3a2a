"""Paper 1, table 4, many-body rows: mushroom's first ten columns, exact gradients, early-stopped on validation.

The data are split as in the paper (test 50 %, rest 70/30 train and validation), once for every seed. Two optimisers:
L-BFGS, and the paper's gradient descent (purified gradient, step 0.5) for a stated number of iterations. The plain
maximum-likelihood estimate is infinite; the combinations that make it so are counted and the first are named.

    python tests/benchmarks/table4.py [--seeds 10] [--descent-seeds 1] [--descent-iterations 1000] [--no-append]

Needs the mushroom data (downloaded, or PYRO_HOIM_DATA).
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from pyro_hoim.datasets import load_mushroom
from pyro_hoim.errors import ConvergenceWarning
from pyro_hoim.learning import fit
from pyro_hoim.structure import InteractionHypergraph

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = {1: 4.6062, 2: 0.8281, 3: 0.2644}


def split(seed):
    data = load_mushroom()
    data = data.project(data.domain.names[:10])
    _, rest = data.split([0.5, 0.5], seed)
    return rest.split([0.7, 0.3], seed)


def run(order, seed, **options):
    train, validation = split(seed)
    hypergraph = InteractionHypergraph.from_order(train.domain, order)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = fit(hypergraph, train, validation=validation, early_stopping=True, **options)
    return result, time.perf_counter() - start


def summary(name, order, runs):
    values = [result.validation_kl for result, _ in runs]
    seconds = [s for _, s in runs]
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    iterations = int(np.median([result.best_iteration for result, _ in runs]))
    return (
        f"{order}-body, {runs[0][0].hypergraph.num_parameters:,} parameters",
        name,
        f"{np.mean(values):.3f}{spread} ({len(values)} seeds)",
        f"{PUBLISHED[order]:.4f}",
        f"{iterations}",
        f"{np.median(seconds):.1f}",
    )


def append(rows, notes, path):
    machine = platform.processor() or platform.machine()
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
    block = (
        f"{stamp} UTC, {os.cpu_count()} cores ({machine}), one thread, torch {torch.__version__}. Validation KL in "
        "nats, mean and standard deviation over splits.\n\n"
        "| model | optimiser | validation KL | published | best iteration | seconds |\n|---|---|---|---|---|---|\n"
    )
    block += "".join("| " + " | ".join(row) + " |\n" for row in rows) + "\n" + "".join(f"* {n}\n" for n in notes)
    text = path.read_text()
    title = "\n## Table 4 of paper 1\n"
    if title not in text:
        text = text.rstrip("\n") + "\n" + title
    start = text.index(title) + len(title)
    end = text.find("\n## ", start)
    end = len(text) if end < 0 else end
    path.write_text(text[:end].rstrip("\n") + "\n\n" + block + text[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--descent-seeds", type=int, default=1)
    parser.add_argument("--descent-iterations", type=int, default=1000)
    parser.add_argument("--no-append", action="store_true", help="print only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, notes = [], []
    for order in (1, 2, 3):
        runs = [run(order, seed) for seed in range(options.seeds)]
        rows.append(summary("L-BFGS", order, runs))
        print(rows[-1], flush=True)
        existence = runs[0][0].existence
        notes.append(f"{order}-body, seed 0: {existence.describe(limit=3)}.")
        print("   ", notes[-1], flush=True)
        steps = options.descent_iterations
        descent = {"method": "gradient", "max_iterations": steps, "patience": steps}
        if options.descent_seeds:
            runs = [run(order, seed, **descent) for seed in range(options.descent_seeds)]
            rows.append(summary(f"gradient descent, step 0.5, {steps} iterations", order, runs))
            print(rows[-1], flush=True)
    if not options.no_append:
        append(rows, notes, ROOT / "docs" / "benchmarks.md")


if __name__ == "__main__":
    main()
