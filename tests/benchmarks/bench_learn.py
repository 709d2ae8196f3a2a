"""Models learned by ``learn``: published data sets, indicator columns, wide data.

Rows are split as published: half of them to test on, the rest 70/30 for training and validation, shuffled by the seed.
Every model is learned in a process of its own, whose peak memory is that with the interpreter and all imports.

    PYTHONPATH=tutorials python tests/benchmarks/bench_learn.py [--append] [PART] [OPTIONS]
"""

import itertools
import json
import math
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from harness import LOADERS, Report, apart, main, markdown, part, peak_mb, spread

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.data import join_columns
from pyro_hoim.datasets import load_mushroom
from pyro_hoim.log_linear import (
    LogLinearEnergy,
    SampledTraining,
    SelectionOptions,
    fit_collection,
    learn,
    predict,
    score_rows,
    synthesise,
)
from pyro_hoim.runs import RunOptions

TARGETS = {
    "mushroom": {"class": 99.7, "odor": 79.7, "habitat": 66.0},
    "adult": {"income": 85.2, "race": 86.5, "sex": 84.5},
    "breast_cancer": {"class": 80.2, "deg-malig": 51.6},
}
PUBLISHED = {"mushroom": (11.00, 13.27), "adult": (2.25, 2.86), "breast_cancer": (0.34, 0.82)}


def peers(train, test, target):
    """Accuracies of logistic regression on indicators and of naive Bayes on codes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import CategoricalNB

    at = train.domain.index(target)
    cards = [n for i, n in enumerate(train.domain.cardinalities) if i != at]

    def columns(part):
        codes = part.codes.numpy()
        return np.delete(codes, at, axis=1), codes[:, at]

    (x, y), (x_test, y_test) = columns(train), columns(test)

    def indicators(codes):
        return np.concatenate([np.eye(n)[codes[:, j]] for j, n in enumerate(cards)], axis=1)

    with warnings.catch_warnings(action="ignore"):
        logistic = LogisticRegression(max_iter=1000).fit(indicators(x), y)
        bayes = CategoricalNB(min_categories=cards).fit(x, y)
    return logistic.score(indicators(x_test), y_test), bayes.score(x_test, y_test)


def learned_figures(name, seed):
    data = LOADERS[name]()
    train, validation, test = data.split([0.35, 0.15, 0.5], seed)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        learned = learn(train, validation, seed=seed, run=RunOptions(checkpoint=folder, progress=True))
        seconds = time.perf_counter() - start
        peak, start = peak_mb(), time.perf_counter()
        again = RunOptions(checkpoint=folder, resume=True, progress=True)
        refitted = learn(train, validation, seed=seed, run=again, refit=True)
        refit_seconds = time.perf_counter() - start
    log_z = learned.log_partition
    gap = None if log_z.sandwich is None else float(log_z.sandwich.gap)
    start = time.perf_counter()
    pairs = fit_collection(train, InteractionHypergraph.from_order(data.domain, 2), seed=seed)
    pair_seconds = time.perf_counter() - start
    one_body = learned.one_body
    independent = score_rows(learned.independent, test).nll
    accuracies = {}
    for target in TARGETS[name]:
        logistic, bayes = peers(train, test, target)
        accuracies[target] = (predict(learned.energy, test, target).accuracy, logistic, bayes)
    return {
        "name": name,
        "seed": seed,
        "one_body": independent - score_rows(one_body, test).nll,
        "pairs": pairs.gain(test),
        "pairs_se": float(pairs.log_partition.std_error),
        "learned": learned.gain(test),
        "refitted": refitted.gain(test),
        "refit_seconds": refit_seconds,
        "validation": learned.gain(validation),
        "kl": learned.row_scores(test).kl,
        "independent_kl": independent - test.entropy(),
        "interactions": len(learned.hypergraph),
        "std_error": float(log_z.std_error),
        "gap": gap,
        "verdict": log_z.verdict,
        "seconds": seconds,
        "pair_seconds": pair_seconds,
        "memory_mb": peak,
        "accuracies": accuracies,
    }


@part("Learned models")
def published(data=tuple(LOADERS), seeds=5):
    """Mushroom, adult and breast cancer: gains over independence, accuracies, time and memory.

    The independent model has the smoothed frequencies (count + 1/2) of the training rows. "Learned" models are fitted
    to the training rows; "refitted" ones are the same interactions and strengths, fitted to training and validation
    rows together (their time is what that adds), and their gain is over the independent model of those rows. Accuracies
    are those of the learned model, beside scikit-learn's logistic regression and naive Bayes, trained on the same rows.
    """
    results = []
    for name, seed in itertools.product(data, range(seeds)):
        results.append(apart(learned_figures, name, seed))
        print(results[-1], file=sys.stderr, flush=True)
    frame = pd.DataFrame(results)
    gains = Report("data|all pairs|learned|refitted|published (pairs, selected)|sets|log Z error|s|MB")
    accuracies = Report("data|column|learned|logistic regression|naive Bayes|published")
    for name, rows in frame.groupby("name", sort=False):
        first = [f"{spread(rows[kind])} (seed 0: {rows[kind].iloc[0]:.3f})" for kind in ("learned", "refitted")]
        seconds = f"{rows.seconds.mean():.0f} + {rows.refit_seconds.mean():.0f}"
        error, peak = f"{rows.std_error.max():.3f}", f"{rows.memory_mb.max():.0f}"
        cells = [f"{rows.interactions.mean():.0f}", error, seconds, peak]
        gains.row(name, spread(rows.pairs), *first, ", ".join(map(str, PUBLISHED[name])), *cells)
        for target, value in TARGETS[name].items():
            values = 100 * np.array([entry[target] for entry in rows.accuracies])
            shares = [f"{m:.1f} ± {s:.1f}" for m, s in zip(values.mean(0), values.std(0), strict=True)]
            accuracies.row(name, target, *shares, value)
    return [f"Split seeds 0 to {seeds - 1}.", "", *gains.lines(), "", *accuracies.lines()]


def indicators(rows):
    """One column of 0 and 1 for every level that occurs, but for columns that never vary."""
    frame = pd.get_dummies(rows.to_pandas(count=None), prefix_sep="=").astype(int)
    frame = frame.loc[:, frame.nunique() == 2].astype(str)
    return Observations.from_pandas(frame, domain=Domain.from_labels({name: ["0", "1"] for name in frame}), count=None)


def one_hot_figures(name, kind, seed):
    rows = LOADERS[name]()
    rows = rows if kind == "categories" else indicators(rows)
    train, validation, test = rows.split([0.35, 0.15, 0.5], seed)
    warnings.simplefilter("ignore")
    wall, start = time.perf_counter(), time.process_time()
    join = join_columns(rows, "none" if kind == "apart" else "exact")  # of all rows, as the command does
    options = {"seed": seed, "run": RunOptions(progress=True), "false_discovery_rate": None}
    learned = learn(train, validation, join=join, **options)
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    return {
        "data": name,
        "from": kind,
        "columns": len(rows.domain),
        "variables": len(learned.hypergraph.domain),
        "train": learned.row_scores(train).nll,
        "test": learned.row_scores(test).nll,
        "interactions": learned.hypergraph.num_interactions,
        "log_z_error": float(learned.log_partition.std_error),
        "verdict": learned.log_partition.verdict,
        "seconds": seconds,
        "wall": wall,
        "memory_mb": peak_mb(),
    }


@part("Indicator columns")
def one_hot(data=tuple(LOADERS), seed=0, kinds=("categories", "columns")):
    """Models learned from indicator (one-hot) columns beside those learned from the categories.

    Every level that occurs becomes a column of 0 and 1. Both models are learned from the same rows by the same seed,
    without tests of single interactions; processor time is that of ``learn`` alone, which for the columns includes
    finding and joining the groups. The kind "apart" are columns that are not joined.
    """
    head = "data|from|columns|variables|NLL train|NLL test|interactions|log Z error|verdict|processor s|wall s|MB"
    report = Report(head)
    for name, kind in itertools.product(data, kinds):
        figures = apart(one_hot_figures, name, kind, seed)
        report.row(*(f"{value:.4g}" if isinstance(value, float) else value for value in figures.values()))
    return report.lines()


@part("Groups that new rows break")
def broken(seed=1):
    """Mushroom's indicator columns without their names: groups found in 2,500 rows, scored on 5,624 new ones.

    Of the rows to learn from 500 are of validation, and the model is refitted to both. "Whole" rows break no group.
    """
    rows = indicators(LOADERS["mushroom"]())
    domain = Domain.from_labels({f"c{i:03d}": v.labels for i, v in enumerate(rows.domain)})
    train, validation, test = Observations(domain, rows.codes, rows.counts).split(
        [2000 / 8124, 500 / 8124, 5624 / 8124], seed
    )
    warnings.simplefilter("ignore")
    learned = learn(train, validation, refit=True, seed=seed, false_discovery_rate=None)
    is_broken = learned.joined.read(test).is_broken.any(1)
    report = Report("rows|number|NLL per row|standard error over rows|log Z error")
    for words, some in (("all", test), ("whole", test.rows(~is_broken))):
        scores = learned.row_scores(some)
        error = float(learned.log_partition.std_error)
        report.row(words, f"{scores.rows:.0f}", f"{scores.nll:.3f}", f"{scores.nll_std_error:.3f}", f"{error:.3f}")
    return [learned.joined.sentence(), "", *report.lines()]


BLOCK = 5
SPLIT = [0.35, 0.15, 0.5]


def planted_model(num_variables, seed):
    """Blocks a-b-c, d-e and the triple c-d-e in random order; single variables beside them."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities({f"v{i:04d}": 2 for i in range(num_variables)})
    names, sign = domain.names, np.array([1.0, -1.0])
    tables = {(name,): rng.normal(0, 0.3) * sign for name in names}
    for start in range(0, num_variables - BLOCK + 1, BLOCK):
        a, b, c, d, e = (names[start + k] for k in rng.permutation(BLOCK))
        for edge in ((a, b), (b, c), (d, e), (c, d, e)):
            coefficient = rng.choice([-1, 1]) * rng.uniform(0.35, 0.6)
            table = sign if len(edge) == 1 else np.multiply.outer(sign, sign)
            table = table if len(edge) < 3 else np.multiply.outer(table, sign)
            tables[tuple(sorted(edge))] = coefficient * table
    graph = InteractionHypergraph(domain, tables, hierarchical=False)
    flat = torch.zeros(graph.num_terms, dtype=torch.float64)
    for edge, table in tables.items():
        flat[graph.term_slices[edge]] = torch.from_numpy(np.ravel(table))
    return LogLinearEnergy(graph, flat)


CELLS = [f"planted:{d}:2000" for d in (50, 100, 200, 500, 1000, 2000)]
CELLS += [f"planted:10:{n}" for n in (1000, 10_000, 100_000, 1_000_000, 10_000_000)]
CELLS += [f"planted:{d}:{n}" for d in (25, 100) for n in (1000, 10_000, 100_000, 1_000_000)]
CELLS += ["planted:1000:10000", "words", "latent:69:20000", "latent:111:14000", "onehot:69"]
WIDE = ["cell", "processor s", "wall s", "MB", "rounds", "gain (test)", "planted in structure", "false", "predictive"]


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


def wide_figures(cell, seed, threads, limit):
    """One search."""
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
    return figures


def wide_cells(found):
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


def draw_costs(found, path):
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


@part("Learning on wide data")
def wide(cells=CELLS, seed=0, threads=2, limit=None, results=None, figure=None):
    """What ``learn`` costs and finds on wide binary data, cell by cell; a picture of the costs with fitted exponents.

    A cell is one of
        planted:D:N   rows drawn exactly from blocks of five columns: three pairs and a triple each
        latent:D:N    rows of eight latent classes, columns independent within a class: strongly dependent
        words         the 1,000 words of the SQR authors in 3,893 abstracts of Classic3, present or absent
        onehot:D      the first D indicator columns of mushroom's levels, 8,124 rows
    ``--limit`` is a time limit in seconds for every cell; ``--results`` a file of JSON lines that results are added to
    and that ``--figure`` reads. Of planted interactions it says how many are in the structure and in the predictive
    model, and how many of those found are false: not planted, nor a pair of a planted triple or path of the block.
    """
    found = []
    if results and Path(results).exists():
        found = [json.loads(text) for text in Path(results).read_text(encoding="utf-8").splitlines()]
    most = None if limit is None else float(limit)
    for cell in cells:
        found.append(apart(wide_figures, cell, seed, threads, most, OMP_NUM_THREADS=str(threads)))
        print(*wide_cells(found[-1]), sep=" | ", file=sys.stderr, flush=True)
        if results:
            with Path(results).open("a", encoding="utf-8") as file:
                file.write(json.dumps(found[-1]) + "\n")
    if figure:
        draw_costs(found, figure)
    return markdown(WIDE, [wide_cells(figures) for figures in {f["cell"]: f for f in found}.values()])


if __name__ == "__main__":
    main(__doc__)
