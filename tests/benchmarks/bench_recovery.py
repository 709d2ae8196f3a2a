"""False discoveries and recall where the law is known: confirmed structures, random laws, sparse and low-rank ones.

PYTHONPATH=tutorials python tests/benchmarks/bench_recovery.py [--append] [PART] [OPTIONS]
"""

import itertools
import os
import subprocess
import tempfile
from pathlib import Path

import joblib
import numpy as np
import torch
from harness import PEERS, Report, main, part
from scipy.stats import false_discovery_control, nchypergeom_fisher, norm

from pyro_hoim import Domain, InteractionHypergraph, Observations, learn
from pyro_hoim.log_linear import Stopping
from pyro_hoim.log_linear.constrained.frank_wolfe import fit_penalised
from pyro_hoim.log_linear.constrained.losses import InteractionScreeningLoss, PseudoLikelihoodLoss
from pyro_hoim.log_linear.constrained.norms import L1Norm, NormPenalty, OverlappedNorm
from pyro_hoim.log_linear.constrained.splitting import douglas_rachford
from pyro_hoim.log_linear.search.confirmation import confirm
from pyro_hoim.log_linear.search.edge_tests import two_by_two_log_tail

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


METHODS = {
    "confirm": by_confirm,
    "learn": by_learn,
    "glmnet-1se": by_glmnet("1se"),
    "ising-ebic": by_glmnet("ebic"),
}


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


def combined(runs, seed, effect, num=4000, tables=286, folds=5, level=0.1):
    """Share of runs that keep the true table, and the mean false discovery proportion, of every rule."""
    rules = {"all rows, BH": [], "all rows, BY": [], "a quarter held out, BH": [], "e-values, e-BH": [], "summed": []}
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        odds = np.zeros(tables)
        odds[0] = effect
        law = np.stack([np.full(tables, 0.64), np.full(tables, 0.16), np.full(tables, 0.16), 0.04 * np.exp(odds)], 1)
        law /= law.sum(1, keepdims=True)
        cells = np.stack([rng.multinomial(num // folds, law) for _ in range(folds)])  # (folds, tables, 4)
        p_all = p_values(cells.sum(0))
        rest = cells.sum(0) - cells
        ratio = np.log((rest[..., 0] + 0.5) * (rest[..., 3] + 0.5) / ((rest[..., 1] + 0.5) * (rest[..., 2] + 0.5)))
        e_values = np.mean([conditional_ratio(cells[f], ratio[f]) for f in range(folds)], 0)
        roots = np.stack([norm.isf(p_values(part) / 2) * np.sign(direction(part)) for part in cells])
        signed = (roots * np.sign(direction(rest))).sum(0) / np.sqrt(folds)
        order = np.argsort(-e_values)
        enough = np.flatnonzero(e_values[order] >= tables / (level * np.arange(1, tables + 1)))
        keeps = {
            "all rows, BH": false_discovery_control(p_all) <= level,
            "all rows, BY": false_discovery_control(p_all, method="by") <= level,
            "a quarter held out, BH": false_discovery_control(p_values(cells[0] + cells[1] // 4)) <= level,
            "e-values, e-BH": np.isin(np.arange(tables), order[: enough.max(initial=-1) + 1]),
            "summed": false_discovery_control(norm.sf(signed)) <= level,
        }
        for rule, kept in keeps.items():
            rules[rule].append([kept[0], kept[1:].sum() / max(1, kept.sum())])
    return {rule: (np.mean(v, 0), np.std(v, 0, ddof=1) / np.sqrt(runs)) for rule, v in rules.items()}


def direction(cells):
    return cells[..., 3] * cells.sum(-1) - (cells[..., 3] + cells[..., 1]) * (cells[..., 3] + cells[..., 2])


def p_values(cells):
    """Two-sided conditional p-values of tables (..., 4)."""
    seen, row, column = cells[..., 3], cells[..., 2] + cells[..., 3], cells[..., 1] + cells[..., 3]
    return np.exp(two_by_two_log_tail(*(v.astype(float) for v in (seen, row, column, cells.sum(-1))))[0])


def conditional_ratio(cells, log_odds):
    """Probability of tables given their margins at odds ratios, over that at one."""
    laws = [
        nchypergeom_fisher(c.sum(), c[2] + c[3], c[1] + c[3], np.exp(o)) for c, o in zip(cells, log_odds, strict=True)
    ]
    nulls = [nchypergeom_fisher(c.sum(), c[2] + c[3], c[1] + c[3], 1.0) for c in cells]
    return np.array([a.pmf(c[3]) / b.pmf(c[3]) for a, b, c in zip(laws, nulls, cells, strict=True)])


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
    report = Report(["law", "rows", "method", "false share", "false", "pairs", "triples", "s"])
    for law, num, method in itertools.product(laws, rows, methods):
        report.row(law, f"{num:,}", method, *figures(law, num, method, runs, seed))
    return report.lines()


@part("One true table among many", is_default=False)
def combine(runs=40, seed=0):
    """One table of two binary columns beside 285 independent ones, 4,000 rows: is the true one kept, share of false.

    All rows are tested once (Benjamini-Hochberg, Benjamini-Yekutieli), a quarter is held out, e-values of five folds
    are averaged (e-BH; likelihood ratios conditional on the margins of a fold at the odds ratio of the others), or
    signed roots of folds in the direction of the others are summed.
    """
    report = Report(["effect (log odds)", "rule", "true one kept", "false share"])
    for effect in (0.0, 0.4, 0.5, 0.6):
        for rule, (mean, error) in combined(runs, seed, effect).items():
            report.row(effect, rule, *(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)))
    return report.lines()


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


LOSSES = {"pseudo-likelihood": PseudoLikelihoodLoss, "screening": InteractionScreeningLoss}
TRIPLES = [(0, 1, 3), (1, 2, 4), (2, 5, 7), (3, 4, 6), (4, 5, 8), (0, 6, 7), (1, 7, 8), (2, 6, 8)]
GRID = sorted(
    {
        tuple(sorted(pair))
        for i in range(3)
        for j in range(3)
        for pair in ((3 * i + j, 3 * i + (j + 1) % 3), (3 * i + j, 3 * ((i + 1) % 3) + j))
    }
)


def interactions(num, order):
    return InteractionHypergraph.from_order(Domain.from_cardinalities({f"x{i}": 2 for i in range(num)}), order)


def states(num):
    return np.array(list(itertools.product((0, 1), repeat=num)))


def draw_law(domain, logits, number, rng):
    """Exact draws of a law with logits of all states."""
    probs = np.exp(logits - logits.max())
    counts = rng.multinomial(number, probs / probs.sum())
    return Observations.from_table(domain, counts.reshape(domain.cardinalities))


def monomials(graph):
    cells = states(len(graph.domain))
    return np.stack([cells[:, edge].prod(1) for edge in graph.edge_indices], 1).astype(float)


def sparse_law(number, rows, seed):
    """Figures of both losses for one law."""
    graph, rng = interactions(10, 3), np.random.default_rng([seed, number])
    is_triple = np.array([len(edge) == 3 for edge in graph.edge_indices])
    theta = np.where([len(edge) == 1 for edge in graph.edge_indices], -0.7, 0.0)
    theta[rng.choice(np.flatnonzero(is_triple), 6, replace=False)] = rng.choice([-1.0, 1.0], 6)
    found = {}
    for size in rows:
        data = draw_law(graph.domain, monomials(graph) @ theta, size, rng)
        for name, kind in LOSSES.items():
            strength = 0.6 * np.sqrt(np.log(len(theta)) / size)
            estimate = fit_penalised(kind(data, 3), NormPenalty(L1Norm(), strength)).theta.numpy()
            triples = np.where(is_triple, estimate, 0.0)
            hits = np.mean(theta[np.argsort(-np.abs(triples))[:6]] != 0)
            f1 = 2 * np.sum((triples != 0) & (theta != 0)) / (np.sum(triples != 0) + 6)
            found[name, size] = hits, f1, np.linalg.norm(estimate - theta) / np.linalg.norm(theta)
    return found


def low_rank_law(number, rows, seed):
    """Figures of both penalties for one law."""
    graph, rng = interactions(10, 3), np.random.default_rng([seed, number])
    norm = OverlappedNorm(graph)
    counts = norm.unfolding.multiplicity
    order = rng.permutation(10)
    sets = [set(order[:5]), set(order[5:])]
    inside = np.array([[set(edge) <= block for edge in graph.edge_indices] for block in sets], dtype=float)
    theta = counts * (np.array([0.05, -0.05]) @ inside)
    found = {}
    for size in rows:
        data, held = (draw_law(graph.domain, monomials(graph) @ theta, size, rng) for _ in range(2))
        loss, judge = PseudoLikelihoodLoss(data, 3), PseudoLikelihoodLoss(held, 3)
        scale = np.sqrt(np.log(10) / size)
        for name in ("low rank", "l1"):
            best, last = (np.inf, None), None
            for factor in np.geomspace(8.0, 0.1, 10) * scale:
                if name == "l1":
                    last = fit_penalised(loss, NormPenalty(L1Norm(), factor))
                else:
                    term = NormPenalty(norm, factor / 3)
                    last = douglas_rachford(loss, term, start=last, stopping=Stopping(tolerance=1e-6))
                value = judge.value(last.theta.numpy())
                best = (value, last) if value < best[0] else best
            value, chosen = best
            values = np.linalg.svd(norm.unfolding.matrix(chosen.theta.numpy()), compute_uv=False)
            error = np.sqrt(((chosen.theta.numpy() - theta) ** 2 / counts).sum() / (theta**2 / counts).sum())
            rank = np.sum(values > 1e-6 * values[0])
            found[name, size] = error, rank, np.sum(values > 0.1 * values[0]), value - judge.value(theta)
    return found


def frustrated_law(number, rows, seed):
    """Figures of both losses for random signs on the grid, at several beta."""
    found = {}
    for order, base in ((2, GRID), (3, TRIPLES)):
        graph, rng = interactions(9, order), np.random.default_rng([seed, number, order])
        is_top = np.array([len(edge) == order for edge in graph.edge_indices])
        signs = dict(zip(base, rng.choice([-1.0, 1.0], len(base)), strict=True))
        truth = np.array([signs.get(edge, 0.0) for edge in graph.edge_indices])
        products = np.stack([(2 * states(9) - 1)[:, edge].prod(1) for edge in graph.edge_indices], 1)
        for beta, size in itertools.product((0.4, 0.8, 1.2, 1.6), rows):
            data = draw_law(graph.domain, products @ (beta * truth), size, rng)
            strength = 0.05 * np.sqrt(np.log(len(truth)) / size)
            for name, kind in LOSSES.items():
                theta = fit_penalised(kind(data, order), NormPenalty(L1Norm(), strength)).theta.numpy()
                couplings = np.where(is_top, theta / 2**order, 0.0)
                is_found = set(np.argsort(-np.abs(couplings))[: len(base)]) == set(np.flatnonzero(truth))
                error = np.linalg.norm(couplings - beta * truth) / np.linalg.norm(beta * truth)
                found[f"order {order}, beta {beta}, {name}", size] = float(is_found), error
    return found


PENALISED = {
    "sparse": (sparse_law, "{:.2f} / {:.2f} / {:.2f}"),
    "low-rank": (low_rank_law, "{:.2f} / {:.1f} / {:.1f} / {:.4f}"),
    "frustrated": (frustrated_law, "{:.2f} / {:.2f}"),
}


@part("Recovery of interactions under penalties")
def penalties(parts=tuple(PENALISED), laws=20, rows=(300, 1000, 3000, 10_000, 30_000), jobs=2, seed=2026):
    """Planted interactions of binary variables found again: sparse triples, low-rank tensors, frustrated couplings.

    Rows are exact draws of the enumerated law; figures are means over the laws, every law with all numbers of rows.

    sparse: 10 variables, singles -0.7, six random triples of +-1, no pairs; an l1 penalty of 0.6 sqrt(log P / N) on all
    corner coordinates up to order 3 (P of them). Shown are the share of the six triples of largest modulus that are
    true, F1 of the triples that are not zero, and the error of theta relative to its length.
    low-rank: 10 variables, 0.05 on all entries of the tensor of order 3 within five variables, -0.05 within the others,
    rank 2. The penalty is chosen of a path of ten by as many rows again. Shown are the error in the norm of all entries
    of the tensor, the rank, the singular values above a tenth of the largest, and what the held-out loss exceeds the
    truth's.
    frustrated: products of signs with random signs times beta, the 18 pairs of a periodic 3 x 3 grid or 8 triples on
    it; an l1 penalty of 0.05 sqrt(log P / N). Shown are how often all couplings are those of largest modulus of their
    order, and the error of the couplings of that order relative to their length, by pseudo-likelihood and by screening.
    """
    lines = []
    for name in parts:
        law, form = PENALISED[name]
        tasks = (joblib.delayed(law)(number, rows, seed) for number in range(laws))
        results = joblib.Parallel(n_jobs=jobs)(tasks)
        report = Report([name, *(f"{n:,}" for n in rows)])
        for what in dict.fromkeys(key for key, _ in results[0]):
            means = [np.mean([result[what, size] for result in results], axis=0) for size in rows]
            report.row(what, *(form.format(*mean) for mean in means))
        lines += [*report.lines(), ""]
    return lines


if __name__ == "__main__":
    main(__doc__)
