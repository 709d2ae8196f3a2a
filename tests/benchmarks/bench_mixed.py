"""Tables with columns of several kinds beside R's mgm: planted graphs, and the tables that mgm ships.

mgm runs under the Rscript that PYRO_HOIM_PEER_R names, with R_LIBS as it is; without it there are no rows of mgm.

    python tests/benchmarks/bench_mixed.py [--append] [PART] [OPTIONS]
"""

import itertools
import math
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from harness import PEERS, Report, main, part, printed, spread
from scipy.special import gammaln, log_softmax

from pyro_hoim import ConvergenceWarning, Domain, Variable
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    IndicatorFamily,
    L1Rule,
    PoissonFamily,
    RootChains,
    RootSettings,
    RootStructure,
    TruncatedPoissonFamily,
    check_normalizable,
    choose_l1,
    confirm_roots,
    refit_roots,
)

PEER = os.environ.get("PYRO_HOIM_PEER_R")
LARGEST = 6
FAMILIES = {
    "binary": TruncatedPoissonFamily(1), "bounded": TruncatedPoissonFamily(LARGEST), "count": PoissonFamily(),
    "real": GaussianFamily(), "positive": ExponentialFamily(),
}  # fmt: skip
LETTERS = {"binary": "c", "category": "c", "bounded": "p", "count": "p", "real": "g", "positive": "g"}
KINDS = {"roots": ("binary", "category", "bounded", "count", "real", "positive"),
         "products": ("binary", "category", "count", "real")}  # fmt: skip
SHARE = 0.05
"""Share of false sets at which recalls are compared."""


@dataclass(frozen=True)
class Column:
    """One column of a planted table: its own law, and one score, of unit variance, by which it acts on others.

    Of a category, its score is a number for every level, with mean 0. ``own`` is a logit, the log of a rate, or one
    number for every level.
    """

    name: str
    kind: str
    own: np.ndarray
    levels: np.ndarray

    @classmethod
    def drawn(cls, rng, kind, number):
        size = {"category": 3 + number % 3, "binary": 2}.get(kind, 0)
        own = np.zeros(1)
        if kind in ("binary", "category"):
            own = rng.uniform(-0.5, 0.5, size)
        elif kind in ("bounded", "count"):
            own = np.log(rng.uniform(1.5, 3.5, 1))
        probs = np.exp(log_softmax(own))
        levels = rng.normal(size=size) if kind == "category" else np.arange(float(size))
        levels -= probs @ levels if size else 0
        return cls(f"{kind}{number + 1}", kind, own, levels / math.sqrt(probs @ levels**2) if size else levels)

    @property
    def variables(self):
        """Names in a root model."""
        return [f"{self.name}={k}" for k in range(len(self.levels))] if self.kind == "category" else [self.name]

    @property
    def family(self):
        return IndicatorFamily(self.name) if self.kind == "category" else FAMILIES[self.kind]

    def draws(self, rng, num):
        """Values (n,) of the column alone."""
        if len(self.levels):
            return rng.choice(len(self.levels), num, p=np.exp(log_softmax(self.own))).astype(float)
        if self.kind == "bounded":
            log_p = np.arange(LARGEST + 1) * self.own - gammaln(np.arange(LARGEST + 1) + 1)
            return rng.choice(LARGEST + 1, num, p=np.exp(log_softmax(log_p))).astype(float)
        draw = {"count": lambda: rng.poisson(np.exp(self.own), num), "positive": lambda: rng.exponential(size=num)}
        return draw.get(self.kind, lambda: rng.normal(size=num))().astype(float)

    def encoded(self, values):
        """Values (n, m) of its variables."""
        return np.eye(len(self.levels))[values.astype(int)] if self.kind == "category" else values[:, None]

    def score(self, values):
        """Of the law of products: centred, of unit variance where the column stands alone."""
        if len(self.levels):
            return self.levels[values.astype(int)]
        rate = np.exp(self.own[0]) if self.kind == "count" else 0.0
        return (values - rate) / math.sqrt(rate) if rate else values


@dataclass(frozen=True)
class Planted:
    """Columns and the sets that interact, each with the coefficient of the product of its members' scores."""

    columns: list
    sets: dict

    @property
    def truth(self):
        return {frozenset(self.columns[s].name for s in members) for members in self.sets}

    def drawn(self, num, seed):
        """Rows (num, d), and a function that gives their log densities by column given the others (n, d)."""
        raise NotImplementedError


class PlantedRoots(Planted):
    """A root model: the coefficient is that of roots over their standard deviations in independent columns.

    Own terms make up for what the others add on average, so that columns stay near the laws that they have alone.
    """

    @cached_property
    def energy(self):
        """The model."""
        rng, values = np.random.default_rng(0), {}
        names = [name for column in self.columns for name in column.variables]
        families = [column.family for column in self.columns for _ in column.variables]
        # Weight of every variable of a column in a set of a size, mean of the score, and its slope on the statistic.
        alone = [column.draws(rng, 20_000) for column in self.columns]

        def scored(s, size):
            column = self.columns[s]
            if column.kind == "category":
                return column.levels, 0.0, column.levels
            root, first = (column.family.root(torch.from_numpy(alone[s]), j).numpy() for j in (size, 1))
            slope = 1.0 if column.kind == "real" and size == 2 else np.cov(root, first)[0, 1] / first.var()
            return np.ones(1) / root.std(), root.mean() / root.std(), np.array([slope / root.std()])

        for column in self.columns:
            own = {"binary": np.diff(column.own), "real": [-0.5], "positive": [-1.0]}.get(column.kind, column.own)
            values |= {((1, 1), (name,)): value for name, value in zip(column.variables, own, strict=True)}
            values |= {((2, 1), (column.name,)): 0.0} if column.kind == "real" else {}
        for members, coefficient in self.sets.items():
            size = len(members)
            weights, means, slopes = zip(*(scored(s, size) for s in members), strict=True)
            for s, mean, slope in zip(members, means, slopes, strict=True):
                others = coefficient * math.prod(means) / mean if mean else coefficient * math.prod(
                    m for t, m in zip(members, means, strict=True) if t != s)  # fmt: skip
                key = (2, 1) if self.columns[s].kind == "real" and size == 2 else (1, 1)
                for name, one in zip(self.columns[s].variables, slope, strict=True):
                    values[key, (name,)] -= others * one
            for choice in itertools.product(*(range(len(w)) for w in weights)):
                chosen = [self.columns[s].variables[k] for s, k in zip(members, choice, strict=True)]
                product = coefficient * math.prod(w[k] for w, k in zip(weights, choice, strict=True))
                values[(size, size), tuple(chosen)] = product
        for column in self.columns:  # what has a law even so
            if column.kind in ("real", "positive"):
                values[(1, 1), (column.name,)] = min(values[(1, 1), (column.name,)], -0.4)
        domain = Domain(Variable(name, kind=family.kind) for name, family in zip(names, families, strict=True))
        structure = RootStructure.mixed(domain, [names for (_, size), names in values if size > 1])
        psi = torch.tensor([values[term] for term in structure.names], dtype=torch.float64)
        return GeneralizedRootEnergy.from_coefficients(structure, psi, families)

    def drawn(self, num, seed):
        energy = self.energy
        assert check_normalizable(energy).is_proven
        chains = RootChains(energy, num, seed=seed)
        chains.sweep(100)
        states, places = chains.states.numpy(), np.cumsum([0, *(len(c.variables) for c in self.columns)])
        parts = [states[:, a:b] for a, b in itertools.pairwise(places)]
        columns = [p.argmax(1) if c.kind == "category" else p[:, 0] for c, p in zip(self.columns, parts, strict=True)]

        def log_probs(rows):
            by_node = energy.node_log_prob(torch.from_numpy(encoded(self.columns, rows))).numpy()
            return np.add.reduceat(by_node, places[:-1], 1)

        return np.column_stack(columns), log_probs


class PlantedProducts(Planted):
    """The law whose conditionals mgm fits: products of the values themselves, Poisson rates on the log scale."""

    def natural(self, s, scores):
        """Sum over the sets of a column of the products of the others' scores (n,)."""
        total = np.zeros(len(scores))
        for members, coefficient in self.sets.items():
            if s in members:
                total += coefficient * scores[:, [t for t in members if t != s]].prod(1)
        return total

    def drawn(self, num, seed):
        rng = np.random.default_rng([seed, 1])
        rows = np.column_stack([column.draws(rng, num) for column in self.columns])
        scores = np.column_stack([c.score(x) for c, x in zip(self.columns, rows.T, strict=True)])
        # Gibbs chains, one for every row.
        for _ in range(100):
            for s, column in enumerate(self.columns):
                eta = self.natural(s, scores)
                if len(column.levels):
                    gumbel = rng.gumbel(size=(num, len(column.levels)))
                    rows[:, s] = (column.own + eta[:, None] * column.levels + gumbel).argmax(1)
                elif column.kind == "count":
                    rows[:, s] = rng.poisson(np.exp(column.own + eta / np.exp(column.own / 2)))
                else:
                    rows[:, s] = rng.normal(eta)
                scores[:, s] = column.score(rows[:, s])
        return rows, self.log_probs

    def log_probs(self, rows):
        """Log densities of every column given all others (n, d)."""
        scores = np.column_stack([c.score(x) for c, x in zip(self.columns, rows.T, strict=True)])
        out = np.zeros(rows.shape)
        for s, column in enumerate(self.columns):
            eta, x = self.natural(s, scores), rows[:, s]
            if len(column.levels):
                log_p = log_softmax(column.own + eta[:, None] * column.levels, 1)
                out[:, s] = log_p[np.arange(len(x)), x.astype(int)]
            elif column.kind == "count":
                log_rate = column.own + eta / np.exp(column.own / 2)
                out[:, s] = x * log_rate - np.exp(log_rate) - gammaln(x + 1)
            else:
                out[:, s] = -((x - eta) ** 2) / 2 - math.log(2 * math.pi) / 2
        return out


def plant(law, kinds, number, pairs, triples, strength, seed):
    """Columns of the kinds in turn, and sets at random, of which no two share a pair; signs alternate."""
    rng = np.random.default_rng([seed, number, pairs, triples])
    columns = [Column.drawn(rng, kinds[i % len(kinds)], i // len(kinds)) for i in range(number)]
    sets, used = {}, set()
    for size, count in ((3, triples), (2, pairs)):
        for i in range(count):
            members = ()
            while not members or used.intersection(itertools.combinations(members, 2)):
                members = tuple(sorted(rng.choice(number, size, replace=False).tolist()))
                have = Counter(columns[s].kind for s in members)
                # Only what has a normalising constant: roots of numbers alone may outgrow the numbers, and beside a raw
                # count neither numbers nor rising counts have one.
                numbers = have["real"] + have["positive"]
                is_steep = size == 3 and numbers == 3
                if law == "products":
                    is_steep = bool(have["count"] and numbers) or (size == 3 and have["count"] + numbers > 1)
                members = () if is_steep else members
            used.update(itertools.combinations(members, 2))
            is_negative = i % 2 == 1 or (law == "products" and have["count"] > 1)
            sets[members] = -strength if is_negative else strength
    return {"roots": PlantedRoots, "products": PlantedProducts}[law](columns, sets)


def encoded(columns, rows):
    """Rows (n, d) as variables of a root model."""
    return np.column_stack([column.encoded(x) for column, x in zip(columns, rows.T, strict=True)])


@dataclass(frozen=True)
class Found:
    """What one program made of a table: sets, all sets by rank, and log densities of other rows."""

    kept: set
    ranked: list
    by_row: np.ndarray
    by_column: np.ndarray
    skill: np.ndarray
    seconds: float


L1S = (0.2, 0.14, 0.1, 0.07, 0.05, 0.03, 0.01)


def ours(columns, train, test, order, rate):
    """The model of the sets that rows confirm, that of the extended BIC, and the regressions of the last penalty."""
    names = [name for column in columns for name in column.variables]
    owner = {name: column.name for column in columns for name in (column.name, *column.variables)}
    families = [column.family for column in columns for _ in column.variables]
    settings = RootSettings(symmetrize="and", false_discovery_rate=None)
    x, y = encoded(columns, train), encoded(columns, test)
    places = np.cumsum([0, *(len(column.variables) for column in columns)])[:-1]

    def sets(model):
        return {frozenset(owner[name] for name in term.names) for term in model.terms() if term.key[1] > 1}

    def found(model, ranked, seconds, symmetrized=True):
        log_probs = model.log_pseudo_prob(y, by_node=True, symmetrized=symmetrized).numpy()
        by_column = np.add.reduceat(log_probs.mean(0), places)
        skill = skills(columns, model.energy(), test, y) if symmetrized else np.full(len(columns), np.nan)
        return Found(sets(model), ranked, log_probs.sum(1), by_column, skill, seconds)

    # Regressions of all penalties, of which one is chosen.
    start = time.process_time()
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        rule, options = L1Rule("ebic"), {"order": order, "names": names, "settings": settings}
        choice = choose_l1(x, L1S, families, rule, **options)
        last = choice.path[-2].joined("or")
        path = time.process_time() - start
        chosen = refit_roots(choice.fit, x, "all")
        seconds = time.process_time() - start
        # By the penalty at which they enter, then by size at the last one.
        rank, squares = Counter(one for fit in choice.path for one in sets(fit)), Counter()
        for term in choice.path[-1].terms():
            inside = list(last.domain.indices(term.names))
            # Columns of one family are not divided by their deviations.
            scale = 1.0 if last.scales is None else math.prod(last.scales[inside, term.key[0] - 1].tolist())
            squares[frozenset(owner[name] for name in term.names)] += (scale * term.coefficient) ** 2
        rank.update({one: squares[one] / (1 + squares[one]) for one in rank})
        ranked = [one for one, _ in rank.most_common()]
        done = {
            "extended BIC, refitted": found(chosen, ranked, seconds),
            f"l1 = {L1S[-1]:g}, node regressions": found(choice.path[-1], ranked, path, False),
        }
        start = time.process_time()
        confirmed = confirm_roots(last, x, false_discovery_rate=rate, refit="all")
        seconds = path + time.process_time() - start
        tests = sorted(confirmed.confirmation.tests, key=lambda test: test.p_value)
        ranked = [frozenset(owner[name] for name in test.edge) for test in tests]
        return {f"confirmed at {rate:g}, refitted": found(confirmed, ranked, seconds), **done}


def skills(columns, energy, rows, variables):
    """R2 of every column given the others, or the share of categories and 0/1 columns that are predicted right."""
    values = torch.from_numpy(variables)
    means = energy.families.value_moments(energy.node_natural(values))[0].numpy()
    out, place = [], 0
    for column, x in zip(columns, rows.T, strict=True):
        mean = means[:, place : place + len(column.variables)]
        place += len(column.variables)
        if column.kind in ("binary", "category"):
            predicted = mean.argmax(1) if column.kind == "category" else mean[:, 0] > 0.5
            out.append(np.mean(predicted == x))
        else:
            out.append(1 - np.mean((x - mean[:, 0]) ** 2) / x.var())
    return np.array(out)


def mgm(columns, train, test, order, choice, graphs=("LW AND",)):
    """Graphs of mgm's rules, and its node regressions; positive numbers are given to it as their cube roots."""
    positive = np.array([column.kind == "positive" for column in columns])
    data = [np.where(positive, np.cbrt(rows), rows) for rows in (train, test)]
    types = "".join(LETTERS[column.kind] for column in columns)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("train.csv", "test.csv")]
        for path, rows in zip(paths, data, strict=True):
            np.savetxt(path, rows, delimiter=",", fmt="%.12g")
        run = printed([PEER, PEERS / "mixed_mgm.R", "fit", *paths, types, order, *choice.split()])[-1]

    def sets(graph):
        weighted = [row for rows in run["graphs"][graph] for row in rows]
        weighted.sort(key=lambda row: -row[-1])
        return [frozenset(columns[int(s) - 1].name for s in row[:-1]) for row in weighted]

    # Densities of positive numbers from those of their cube roots.
    jacobian = np.where(positive, -math.log(3) - 2 / 3 * np.log(np.where(positive, test, 1.0)), 0.0)
    by_row, by_column = np.array(run["by_row"]) + jacobian.sum(1), np.array(run["by_column"]) + jacobian.mean(0)
    return {
        f"mgm, {choice}, {graph}": Found(
            set(sets(graph)), sets("none OR"), by_row, by_column, np.array(run["skill"]), run["seconds"]
        )
        for graph in graphs
    }


def recall_at(ranked, truth, share):
    """Largest share of the true sets that a rank list holds before more than some share is false."""
    inside = [set(s) for s in truth]
    hits = false = best = 0
    for one in ranked:
        hits += one in truth
        false += not any(one <= other for other in inside)
        if false <= share * (hits + false):
            best = max(best, hits)
    return best / len(truth)


@part("Planted mixed graphs beside mgm")
def planted(
    runs=5, laws=("roots", "products"), strengths=(0.2, 0.12), num=2000, number=30, pairs=30, triples=0,
    rate=0.05, without=("",), choices=("EBIC 0.25", "CV 0.25"), seed=0,
):  # fmt: skip
    """Recall, false sets, and held-out scores where the law is known.

    The columns are of all kinds in turn: 0/1, categories of 3 to 5 levels, counts up to 6, Poisson counts, real and
    positive numbers. Laws: "roots", ours, products of roots; and "products", that of mgm's conditionals, with products
    of the values themselves, of the kinds that mgm has, where a joint law exists (counts fall together, and meet no
    real numbers). A pair of strength 0.2 has that coefficient times both columns' scores, of unit variance in
    independent columns. mgm is given bounded counts as Poisson, and cube roots of positive numbers as Gaussian. Nats a
    row: minus the mean log density of every column given the others, summed, on as many rows more. "At 5 %" is the
    largest recall at which at most 5 % of the best sets are false, ours ranked by p-value or by the penalty at
    which they enter, and mgm's by weight. Pairs
    inside planted triples are not false. Found are pairs, and triples behind them where some are planted.
    """
    report = Report("law|strength|program|found|false share|recall at 5 %|nats a row|s")
    missed, wrong, lost = Counter(), Counter(), {}
    for law, strength in itertools.product(laws, strengths):
        kinds = [kind for kind in KINDS[law] if kind not in without]
        rows, sizes = {}, {2: pairs, 3: triples} if triples else {2: pairs}
        order = max(sizes)
        for run in range(seed, seed + runs):
            model = plant(law, kinds, number, pairs, triples, strength, run)
            table, log_probs = model.drawn(2 * num, run)
            train, test = table[:num], table[num:]
            done = ours(model.columns, train, test, order, rate)
            first = next(iter(done.values()))
            for choice in choices if PEER else ():
                done |= mgm(model.columns, train, test, order, choice)
            kind_of = {column.name: column.kind for column in model.columns}
            for sets, counter in ((model.truth - first.kept, missed), (first.kept - model.truth, wrong)):
                counter.update((law, strength, *sorted(kind_of[name] for name in one)) for one in sets)
            best = -log_probs(test).mean(0)
            for name, found in done.items():
                false = sum(not any(one <= other for other in model.truth) for one in found.kept)
                rows.setdefault(name, []).append((
                    [sum(len(one) == size for one in found.kept & model.truth) for size in sizes],
                    false / max(1, len(found.kept)),
                    recall_at(found.ranked, model.truth, SHARE), -found.by_column.sum() - best.sum(), found.seconds,
                ))  # fmt: skip
                print(law, strength, run, name, rows[name][-1], file=sys.stderr, flush=True)
                for column, one, law_s in zip(model.columns, -found.by_column, best, strict=True):
                    by_kind = lost.setdefault((law, strength, name), Counter())
                    by_kind[column.kind] += (one - law_s) / runs
        for name, values in rows.items():
            hits, shares, recalls, nats, seconds = map(np.array, zip(*values, strict=True))
            report.row(
                law, f"{strength:g}", name,
                ", ".join(f"{one:.1f} of {of}" for one, of in zip(hits.mean(0), sizes.values(), strict=True)),
                spread(shares),
                spread(recalls, 2), f"law + {spread(nats)}", f"{seconds.mean():.1f}",
            )  # fmt: skip
    lines = report.lines()
    for title, counter in (("Missed", missed), ("False", wrong)):
        shown = "; ".join(f"{' '.join(map(str, key))}: {count}" for key, count in counter.most_common(12))
        lines += ["", f"{title} by our first model, in all runs: {shown or 'none'}."]
    lines += ["", "Nats a row above the law, by kind of column:", ""]
    kinds = KINDS["roots"]
    inner = Report(["law", "strength", "program", *kinds])
    for (law, strength, name), by_kind in lost.items():
        cells = (f"{by_kind[kind]:.3f}" if kind in by_kind else "" for kind in kinds)
        inner.row(law, f"{strength:g}", name, *cells)
    return [*lines, *inner.lines()]


def shipped(name):
    """Rows of a table of the R installation, and their types."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        types = printed([PEER, PEERS / "mixed_mgm.R", "data", name, path])[-1]["type"]
        return np.loadtxt(path, delimiter=","), types


TABLES = ("autism_data", "autism_data_large", "dataGD", "PTSD_data", "Fried2015", "B5MS", "msq_p3", "msq_p5")


@part("The tables of mgm beside mgm")
def tables(names=TABLES, share=0.67, runs=3, order=2, rate=0.05, choices=("EBIC 0.25", "CV 0.25"),
           without=("",), nodes=False, seed=0):  # fmt: skip
    """Tables that mgm ships, as its papers and help pages use them: edges, and held-out scores of both programs.

    Types are those that the tables state; where none are, whole numbers of fewer than five values are categories.
    Numbers are standardised by the rows learned from. "Shared" edges are those of our first model too.
    ``--nodes`` lists R2, or the share of categories predicted right, of every column.
    """
    report = Report("table|rows|program|edges|shared|nats a row|s")
    lines = []
    for name in names:
        table, types = shipped(name)
        figures, skill = {}, {}
        for run in range(seed, seed + runs):
            order_of = np.random.default_rng(run).permutation(len(table))
            cut = int(share * len(table))
            columns, rows = tabled(table, types, order_of[:cut])
            train, test = rows[order_of[:cut]], rows[order_of[cut:]]
            keep = [s for s, column in enumerate(columns) if column.kind not in without]
            columns, train, test = [columns[s] for s in keep], train[:, keep], test[:, keep]
            done = ours(columns, train, test, order, rate)
            first = next(iter(done.values())).kept
            for choice in choices:
                done |= mgm(columns, train, test, order, choice)
            for program, found in done.items():
                cells = len(found.kept), len(found.kept & first), -found.by_row, found.seconds
                figures.setdefault(program, []).append(cells)
                skill.setdefault(program, []).append(found.skill)
        reference = np.array([values[2].mean() for values in figures[f"mgm, {choices[-1]}, LW AND"]])
        for program, values in figures.items():
            edges, both, nats, seconds = zip(*values, strict=True)
            gap = np.array([one.mean() for one in nats])
            report.row(
                name, f"{cut:,} + {len(table) - cut:,}", program, f"{np.mean(edges):.1f}", f"{np.mean(both):.1f}",
                f"{gap.mean():.3f} ({spread(gap - reference)})", f"{np.mean(seconds):.1f}",
            )  # fmt: skip
        if nodes:
            programs = [p for p in skill if "regressions" not in p]
            inner = Report(["column", "kind", *programs])
            for s, column in enumerate(columns):
                inner.row(column.name, column.kind, *(f"{np.mean(skill[p], 0)[s]:.3f}" for p in programs))
            lines += ["", f"{name}:", "", *inner.lines()]
    return [*report.lines(), *lines]


def tabled(table, types, inside):
    """Columns of a table by mgm's types, and its rows with codes from 0 and numbers standardised by some rows."""
    columns, rows = [], table.astype(float).copy()
    for s, letter in enumerate(types):
        x = table[:, s]
        if letter == "c":
            levels, rows[:, s] = np.unique(x, return_inverse=True)
            kind = "binary" if len(levels) == 2 else "category"
            columns.append(Column(f"v{s + 1}", kind, np.zeros(len(levels)), np.zeros(len(levels))))
            continue
        if letter == "g":
            rows[:, s] = (x - x[inside].mean()) / x[inside].std()
        columns.append(Column(f"v{s + 1}", "real" if letter == "g" else "count", np.zeros(1), np.zeros(0)))
    return columns, rows


if __name__ == "__main__":
    main(__doc__)
