"""What ``learn`` costs and finds on wide binary data, cell by cell; a picture of the costs with fitted exponents.

usage: PYTHONPATH=tutorials bench_wide.py [--cells CELL ...] [--threads N] [--limit S] [--figure FILE] [--append]

A cell is one of
    planted:D:N   rows of the model of bench_selection.py (blocks of five columns: three pairs and a triple)
    latent:D:N    rows of eight latent classes, columns independent within a class: strongly dependent
    words         the 1,000 words of the SQR authors in 3,893 abstracts of Classic3, present or absent
    onehot:D      the first D indicator columns of mushroom's levels, 8,124 rows
Every cell is a process of its own; rows are split 35/15/50. ``--limit`` is a time limit in seconds for every cell.
Of planted interactions it says how many are in the structure and in the predictive model, and how many of those found
are false: not planted, nor a pair of a planted triple or path of the block.
"""

import argparse
import itertools
import json
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from bench_selection import BLOCK, SPLIT, planted_model
from harness import about, markdown, peak_mb, printed, publish, script

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_mushroom
from pyro_hoim.log_linear import SampledTraining, SelectionOptions, learn, synthesise
from pyro_hoim.runs import RunOptions
from pyro_hoim.schema import Domain

CELLS = [f"planted:{d}:2000" for d in (50, 100, 200, 500, 1000, 2000)]
CELLS += [f"planted:10:{n}" for n in (1000, 10_000, 100_000, 1_000_000, 10_000_000)]
CELLS += [f"planted:{d}:{n}" for d in (25, 100) for n in (1000, 10_000, 100_000, 1_000_000)]
CELLS += ["planted:1000:10000", "words", "latent:69:20000", "latent:111:14000", "onehot:69"]
HEAD = ["cell", "processor s", "wall s", "MB", "rounds", "gain (test)", "planted in structure", "false", "predictive"]


def binary(values):
    """Observations of an array (rows, columns) of zeros and ones, without constant columns."""
    values = values[:, (values != values[:1]).any(0)]
    domain = Domain.from_cardinalities({f"v{i:04d}": 2 for i in range(values.shape[1])})
    return Observations(domain, torch.from_numpy(values.astype(np.int64)))


def latent(num_variables, num_rows, classes=8, seed=0):
    """Rows of latent classes whose columns have probabilities from a beta law of (1/2, 1/2)."""
    random = np.random.default_rng(seed)
    probs = random.beta(0.5, 0.5, (classes, num_variables)).clip(0.02, 0.98)
    label = random.choice(classes, num_rows, p=random.dirichlet(np.full(classes, 2.0)))
    return binary((random.random((num_rows, num_variables)) < probs[label]).astype(np.int64))


def rows_of(cell, seed):
    """Rows of a cell, and its planted model where there is one."""
    kind, *sizes = cell.split(":")
    if kind == "planted":
        model = planted_model(int(sizes[0]), seed)
        return synthesise(model, int(sizes[1]), seed=seed + 1, method="exact"), model
    if kind == "latent":
        return latent(*map(int, sizes), seed=seed), None
    if kind == "words":
        import scipy.sparse

        path = Path(os.environ["PYRO_HOIM_DATA"]) / "classic3_sqr_top1000.npz"
        return binary((scipy.sparse.load_npz(path).toarray() > 0).astype(np.int64)), None
    rows = load_mushroom()
    codes = rows.codes.numpy()
    columns = [codes[:, [i]] == np.arange(n) for i, n in enumerate(rows.domain.cardinalities)]
    return binary(np.concatenate(columns, axis=1)[:, : int(sizes[0])].astype(np.int64)), None


def recovery(graph, model):
    """How many planted interactions are there, of how many, and how many others that no block explains."""
    planted = {e for e in model.hypergraph.edges if len(e) > 1}
    place = {name: i for i, name in enumerate(model.hypergraph.domain.names)}
    found = {e for e in graph.edges if len(e) > 1}
    false = {e for e in found if len({place[name] // BLOCK for name in e}) > 1}
    return len(found & planted), len(planted), len(false)


def one(cell, seed, threads, limit):
    """One search; prints a JSON object."""
    torch.set_num_threads(threads)
    small = synthesise(planted_model(10, 0), 100, seed=0, method="exact")
    brief = SampledTraining(num_chains=64, num_iterations=60, refresh_chains=64, loss_standard_error=1.0)
    learn(small, small, trainer="sampled", sampling=brief, search=SelectionOptions(max_rounds=3))  # loads compiled code
    rows, model = rows_of(cell, seed)
    train, validation, test = rows.split(SPLIT, seed)
    begin, wall = time.process_time(), time.perf_counter()
    search = SelectionOptions(time_limit=limit)
    learned = learn(train, validation, search, seed=seed, run=RunOptions(progress=True))
    figures = {
        "cell": cell,
        "columns": len(rows.domain),
        "rows": rows.total_count,
        "processor": time.process_time() - begin,
        "wall": time.perf_counter() - wall,
        "peak_mb": peak_mb(),
        "rounds": len(learned.selection.rounds),
        "status": learned.selection.status,
        "gain": learned.gain(test),
        "log_z_error": float(learned.log_partition.std_error),
        "stages": learned.seconds,
        "predictive_size": learned.hypergraph.num_interactions,
        "notes": list(learned.notes),
    }
    structure = learned.structure
    if structure is not None:
        figures |= {"structure_gain": structure.gain(test), "structure_size": structure.hypergraph.num_interactions}
    if model is not None:
        figures["predictive"] = recovery(learned.hypergraph, model)
        figures["structure"] = None if structure is None else recovery(structure.hypergraph, model)
    print(json.dumps(figures))


def line(found):
    """Cells of a row of the table."""
    own, other = found.get("structure"), found.get("predictive")
    planted = f"{own[0]} of {own[1]}" if own else "-"
    predictive = f"{other[0]} of {other[1]}, {other[2]} false" if other else f"{found['predictive_size']} interactions"
    return [
        found["cell"],
        round(found["processor"]),
        round(found["wall"]),
        round(found["peak_mb"]),
        found["rounds"],
        f"{found['gain']:.3f}",
        planted if own or other else f"{found.get('structure_size', '-')} interactions",
        own[2] if own else "-",
        predictive,
    ]


def exponent(sizes, costs):
    """Slope of the logarithms by least squares; NaN of fewer than two."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0]) if len(sizes) > 1 else math.nan


def figure(found, path):
    """Processor time against columns at 2,000 rows, and against rows at 10, 25 and 100 columns."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
    planted = [f for f in found if f["cell"].startswith("planted")]
    panels = (("columns", "rows", (2000,)), ("rows", "columns", (10, 25, 100)))
    for ax, (by, fixed, values) in zip(axes, panels, strict=True):
        for value, marker in zip(values, "osv", strict=False):
            cells = sorted((f[by], f["processor"]) for f in planted if f[fixed] == value)
            sizes, costs = zip(*cells, strict=True)
            label = f"{value:,} {fixed}, exponent {exponent(sizes, costs):.2f}"
            ax.loglog(sizes, costs, f"{marker}-", label=label)
        ax.set_xlabel(by)
        ax.legend(fontsize=8)
        ax.grid(True, which="both", alpha=0.3)
    axes[0].set_ylabel("processor time of learn, s")
    figure.savefig(path, dpi=150)


def main():
    parser = script(__doc__)
    parser.add_argument("--cells", nargs="*", default=CELLS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float)
    parser.add_argument("--results", help="file of JSON lines that results are added to, and that the picture reads")
    parser.add_argument("--figure", help="picture of all results of planted cells")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.seed, options.threads, options.limit)
        return
    found = []
    if options.results and Path(options.results).exists():
        found = [json.loads(text) for text in Path(options.results).read_text(encoding="utf-8").splitlines()]
    limit = [] if options.limit is None else ["--limit", options.limit]
    for cell in options.cells:
        command = [
            sys.executable,
            __file__,
            "--one",
            cell,
            "--seed",
            options.seed,
            "--threads",
            options.threads,
            *limit,
        ]
        (figures,) = printed(command, OMP_NUM_THREADS=str(options.threads))
        found.append(figures)
        print(" | ".join(map(str, line(figures))), flush=True)
        if options.results:
            with Path(options.results).open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures) + "\n")
    if options.figure:
        figure(found, options.figure)
    shown = dict.fromkeys(itertools.chain.from_iterable([f["cell"]] for f in found))
    latest = {f["cell"]: f for f in found}
    text = f"`python tests/benchmarks/bench_wide.py --threads {options.threads}`. {about()}\n\n"
    publish("Learning on wide data", text + "\n".join(markdown(HEAD, [line(latest[c]) for c in shown])), options.append)


if __name__ == "__main__":
    main()
