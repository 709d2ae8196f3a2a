"""False discoveries and recall where the law is known: confirmed structures, and random laws.

PYTHONPATH=tutorials python tests/benchmarks/bench_recovery.py [--append] [PART] [OPTIONS]
"""

import itertools
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from harness import PEERS, Report, main, part, reported

from pyro_hoim import Domain, InteractionHypergraph, Observations, learn
from pyro_hoim.log_linear.search.confirmation import confirm

from studies.complexity import draw_rows, structure_recovery
from studies.random_laws import random_law

LAWS = [*(f"rare {p}" for p in (0.3, 0.1, 0.03, 0.01, 0.005)), "levels 3", "levels 8", "chain 2", "chain 3"]
PLANTED = [(0, 1), (1, 2), (3, 4), (5, 6), (0, 3, 7), (2, 8, 9), (4, 10, 11)]


def draw(law, num, seed):
    """Codes of rows, and the interactions of their law."""
    kind, *rest = law.split()
    rng = np.random.default_rng([seed, num, *map(ord, law)])
    if kind == "rare":
        a = rng.random(num) < 0.3
        b = rng.random(num) < np.where(a, 0.6, 0.3)
        return np.column_stack([rng.random((num, 12)) < float(rest[0]), a, b]).astype(int), [(12, 13)]
    if kind == "levels":
        r, true = int(rest[0]), [(0, 1), (2, 3), (4, 5)]
        shares = np.array([0.7, 0.28, 0.02]) if r == 3 else 0.6 ** np.arange(r)
        x = rng.choice(r, size=(num, 10), p=shares / shares.sum())
        for a, b in true:
            x[:, b] = np.where(rng.random(num) < 1 / 8, x[:, a], x[:, b])
        return x, true
    if kind == "chain":
        x = rng.integers(0, int(rest[0]), (num, 10))
        for i in range(1, 10):
            x[:, i] = np.where(rng.random(num) < 0.2, x[:, i], x[:, i - 1])
        return x, list(itertools.pairwise(range(10)))
    signs = np.array(list(itertools.product((-1, 1), repeat=12)))
    log_p = -0.3 * signs.sum(1) + 0.12 * sum(signs[:, edge].prod(1) for edge in PLANTED)
    p = np.exp(log_p - log_p.max())
    x = (signs[rng.choice(len(p), size=num, p=p / p.sum())] + 1) // 2
    return (x, PLANTED) if kind == "planted" else (rng.permuted(x, axis=0), [])


def observations(codes):
    kept = [i for i in range(codes.shape[1]) if len(np.unique(codes[:, i])) > 1]
    domain = Domain.from_cardinalities({str(i): int(codes[:, i].max()) + 1 for i in kept})
    return Observations.from_tensor(torch.from_numpy(codes[:, kept].copy()), domain).unique()


def sets(hypergraph):
    return [tuple(map(int, edge)) for edge in hypergraph.edges if len(edge) > 1]


def by_confirm(codes, seed):
    return sets(confirm(*observations(codes).split([0.75, 0.25], seed)).hypergraph)


def by_learn(codes, seed):
    return sets(learn(observations(codes), seed=seed).structure.hypergraph)


def by_glmnet(rule):
    def found(codes, _):
        kept = [i for i in range(codes.shape[1]) if codes[:, i].min() < codes[:, i].max()]
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "rows.csv"
            np.savetxt(table, codes[:, kept], delimiter=",", fmt="%d")
            command = ["Rscript", str(PEERS / "neighbourhoods.R"), str(table), rule]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
        return [tuple(kept[int(i) - 1] for i in line.split()) for line in lines if line.strip()]

    return found


METHODS = {"confirm": by_confirm, "learn": by_learn, "glmnet-1se": by_glmnet("1se"), "ising-ebic": by_glmnet("ebic")}


def figures(law, num, method, runs, seed):
    """Cells of a line: false discovery proportion, number of false ones, recall, time."""
    shares, false, recalls, begin = [], [], {2: [], 3: []}, sum(os.times()[:4])
    for run in range(runs):
        codes, true = draw(law, num, seed + run)
        kept = METHODS[method](codes, run)
        wrong = [edge for edge in kept if not any(set(edge) <= set(other) for other in true)]
        shares.append(len(wrong) / max(1, len(kept)))
        false.append(len(wrong))
        for size, values in recalls.items():
            planted = [edge for edge in true if len(edge) == size]
            values += [np.mean([edge in kept for edge in planted])] if planted else []
    error = np.std(shares, ddof=1) / np.sqrt(runs)
    recall = [f"{np.mean(values):.2f}" if values else "" for values in recalls.values()]
    seconds = (sum(os.times()[:4]) - begin) / runs  # with those of R
    return [f"{np.mean(shares):.3f} ± {error:.3f}", f"{np.mean(false):.2f}", *recall, f"{seconds:.2g}"]


@part("False discoveries of structures")
def confirmation(runs=200, laws=(*LAWS, "planted", "permuted"), rows=(2000,), methods=("confirm",), seed=0):
    """False discoveries and recall of `confirm` and `learn` beside other rules, on the same rows.

    Laws: "rare P": a pair of binary columns beside 12 independent ones of prevalence P. "levels R": three pairs among
    ten columns of R levels with rare ones (2 % of 3; .6^k of 8), a row in eight copied. "chain R": ten columns of R
    levels, each the last one but for a fifth of the rows, drawn anew. "planted": four pairs and three triples of 12
    binary columns of prevalence .35, all of strength .12 in signs. "permuted": the same with every column permuted.

    Methods: confirm (all rows), learn (its structure, whole), glmnet-1se (neighbourhoods by cross-validated l1, the
    rule of one standard error, both sides) and ising-ebic (IsingFit's rule: EBIC with gamma .25, both sides), the last
    two by `peers/neighbourhoods.R`, pairs of binary columns alone. Shown are the mean share of false interactions among
    those kept with its standard error over the runs, how many were false, and the recall of planted pairs and triples.
    A pair inside a planted triple is not false.
    """
    head, cases = "law|rows|method|false share|false|pairs|triples|s", itertools.product(laws, rows, methods)
    return reported(head, ((law, f"{num:,}", rule, *figures(law, num, rule, runs, seed)) for law, num, rule in cases))


PATTERNS = {
    "low": "12 14 23",
    "medium": "12 13 14 23 123",
    "high": "12 13 14 23 24 34 123 124 134 234 1234",
    "bare": "12 14 123",
    "triples": "123 124 134 234",
}
DOMAIN = Domain.from_cardinalities(dict.fromkeys("1234", 5))


def generator(*key):
    """A generator of its own for every key."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))


@part("Recovery of structures of random laws")
def structures(laws=8, rows=(160, 640, 2560, 10_240), patterns=("low", "medium", "high"), seed=2024):
    """Recovery of interactions by the default of ``learn``: its structure beside its predictive model.

    Random laws of four variables of five levels with the three structures of tutorials/sample_complexity.py, and two of
    triples without their pairs ("bare" and "triples"), where pairs inside a triple are false. The rows are split
    35/15/50 as at the command line; F1, precision and recall are those of sets of two variables or more, mean over the
    laws.
    """
    report = Report(["law", "model", *(f"{n:,}" for n in rows)])
    for name in patterns:
        which, edges = list(PATTERNS).index(name), [*DOMAIN.names, *PATTERNS[name].split()]
        truth = InteractionHypergraph(DOMAIN, map(tuple, edges), hierarchical=False)
        cells = {"structure": [], "predictive": []}
        for size in rows:
            scores = {"structure": [], "predictive": []}
            for number in range(laws):
                law = random_law(DOMAIN, truth.edges, generator=generator(seed, which, number))
                drawn = draw_rows(law, size, generator=generator(seed, which, number, size))
                learned = learn(*drawn.split([0.35, 0.15, 0.5], 0)[:2])
                scores["predictive"].append(structure_recovery(learned.hypergraph, truth))
                scores["structure"].append(structure_recovery(learned.structure.hypergraph, truth))
            for model, values in scores.items():
                precision, recall, f1 = np.mean(values, axis=0)
                cells[model].append(f"{f1:.2f} ({precision:.2f} / {recall:.2f})")
        for model, shown in cells.items():
            report.row(name, model, *shown)
    return report.lines()


if __name__ == "__main__":
    main(__doc__)
