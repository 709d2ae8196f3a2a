"""Regressions of columns with categories among them, against logits, proximal gradients and written-out sums."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse
import statsmodels.api as sm
import torch
from scipy.stats import binom, chi2

from pyro_hoim.errors import DataWarning
from pyro_hoim.generalized_root import (
    IndicatorFamily,
    L1Rule,
    PoissonFamily,
    RootPseudoLikelihood,
    RootSettings,
    RootStructure,
    TruncatedPoissonFamily,
    choose_l1,
    confirm_roots,
    fit_root_path,
    fit_roots,
    refit_roots,
)
from pyro_hoim.generalized_root.regress.confirm import RootSetTester
from pyro_hoim.generalized_root.regress.options import checked_families
from pyro_hoim.generalized_root.regress.rows import prepare_rows
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

BINARY = TruncatedPoissonFamily(1)
KINDS = {
    "ill": BINARY,
    "region": 3,
    "change": "gaussian",
    "colour": 4,
    "visits": PoissonFamily(),
    "days": "exponential",
}
TIGHT = RootSettings(tolerance=1e-9, false_discovery_rate=None)


def rows_of(num_rows=200, seed=0):
    """One array of values or codes for every column: regions act on illness and numbers, colours on counts."""
    rng = np.random.default_rng(seed)
    region = rng.choice(3, num_rows, p=[0.5, 0.3, 0.2])
    colour = rng.choice(4, num_rows, p=[0.4, 0.3, 0.2, 0.1])
    ill = (rng.random(num_rows) < np.array([0.2, 0.4, 0.7])[region]).astype(float)
    change = np.array([-0.4, 0.2, 0.7])[region] + 0.5 * ill - 0.2 + rng.normal(size=num_rows)
    visits = rng.poisson(np.exp(0.3 + np.array([0.0, 0.6, -0.4, 0.2])[colour]))
    days = rng.exponential(0.4 * (1 + ill))
    return {"ill": ill, "region": region, "change": change, "colour": colour, "visits": visits, "days": days}


def encoded(data, kinds=KINDS):
    """Values (n, d), families and names, with indicators of the levels of categories."""
    columns, families, names = [], [], []
    for name, values in data.items():
        kind = kinds[name]
        levels = range(kind) if isinstance(kind, int) else [None]
        for level in levels:
            columns.append(values if level is None else (values == level).astype(float))
            families.append(kind if level is None else IndicatorFamily(name))
            names.append(name if level is None else f"{name}={level}")
    return np.stack(columns, 1), families, names


def fitted_rows(data, kinds=KINDS, **options):
    x, families, names = encoded(data, kinds)
    return fit_roots(x, families, **{"order": 2, "l1": 0.05, "names": names, "settings": TIGHT, **options})


def some(data, *names):
    return {name: data[name] for name in names}


# Oracles that share nothing with the library


def root(name, x, j):
    if name == "change":
        return [np.square(x), x, np.cbrt(np.square(x))][j - 1]
    return x ** (1 / j)


class SlowNode:
    """The penalised regression of one column, with a basis of every category from QR and all groups at once."""

    def __init__(self, data, node, order, l1, full=False):
        self.data, self.node, self.n = data, node, len(next(iter(data.values())))
        others = [name for name in data if name != node]
        self.groups, columns, self.orders = [], [], []
        sets = [(size + 1, rest) for size in range(1, order) for rest in itertools.combinations(others, size)]
        if full:  # all roots of 0 and 1 are equal
            lower = [(j, rest) for size, rest in [(1, ()), *sets] for j in range(size + 1, order + 1)]
            is_free = (2, ()) if node == "change" else None
            flat = {"ill", "region", "colour"}
            sets += [(j, rest) for j, rest in lower if not {node, *rest} <= flat and (j, rest) != is_free]
        for j, rest in [(1, ()), *sets]:
            block = np.ones((self.n, 1))
            for name in rest:
                block = (block[:, :, None] * self.features(name, j)[:, None]).reshape(self.n, -1)
            columns.append(block)
        # Natural parameters: contrasts of a category, else roots of the column.
        if isinstance(KINDS[node], int):
            self.targets = self.features(node, 1)
            self.levels = self.basis(node)
            statistics = [list(range(self.targets.shape[1]))] * len(columns)
        else:
            k = max(2, order)
            self.targets = np.stack([root(node, data[node], j) for j in range(1, k + 1)], 1)
            self.targets = self.targets / self.targets.std(0)
            statistics = [[0, 1] if node == "change" else [0], *([j - 1] for j, _ in sets)]
        # One column of the design for every coefficient.
        self.design, start = [], 0
        self.penalties = []
        for number, (block, inside) in enumerate(zip(columns, statistics, strict=True)):
            pairs = [(column, s) for column in block.T for s in inside]
            self.design += pairs
            self.groups.append(slice(start, start + len(pairs)))
            self.penalties.append(l1 * math.sqrt(len(pairs)) if number else 0.0)
            start += len(pairs)
        self.sets = [(1, ()), *sets]

    def basis(self, name):
        """Functions of the level of mean 0, variance 1 and no correlation in the rows, by QR."""
        shares = np.bincount(self.data[name], minlength=KINDS[name]) / self.n
        raw = np.column_stack([np.ones(len(shares)), np.eye(len(shares))[:, 1:]])
        q, _ = np.linalg.qr(np.sqrt(shares)[:, None] * raw)
        return q[:, 1:] / np.sqrt(shares)[:, None]

    def features(self, name, j):
        if isinstance(KINDS[name], int):
            return self.basis(name)[self.data[name]]
        values = root(name, self.data[name], j)
        return (values / values.std())[:, None]

    def natural(self, c):
        eta = np.zeros_like(self.targets)
        for value, (column, s) in zip(c, self.design, strict=True):
            eta[:, s] += value * column
        return eta

    def log_partition(self, eta):
        """In nats, without an allowance for the constant of the base measure."""
        if isinstance(KINDS[self.node], int):
            scores = eta @ self.levels.T
        else:
            name, k = self.node, eta.shape[1]
            if name in ("ill", "visits"):
                x = np.arange(2.0 if name == "ill" else 60.0)
                log_weight = -np.array([math.lgamma(v + 1) for v in x])
            else:
                y = np.linspace(-2.2, 2.2, 3001)[:, None] if name == "change" else np.linspace(0, 1.8, 3001)[:, None]
                power = 3 if name == "change" else 6
                x = (y**power)[:, 0]
                log_weight = np.log(np.maximum(power * np.abs(y[:, 0]) ** (power - 1), 1e-300)) + np.log(
                    y[1, 0] - y[0, 0]
                )
            spread = np.array([root(name, self.data[name], j).std() for j in range(1, k + 1)])
            table = np.stack([root(name, x, j) for j in range(1, k + 1)], 1) / spread
            scores = eta @ table.T + log_weight
        top = scores.max(1)
        return top + np.log(np.exp(scores - top[:, None]).sum(1))

    def smooth(self, c):
        eta = self.natural(c)
        return float((self.log_partition(eta) - (eta * self.targets).sum(1)).mean())

    def penalty(self, c):
        return sum(weight * np.linalg.norm(c[g]) for weight, g in zip(self.penalties, self.groups, strict=True))

    def slopes(self, c, step=1e-5):
        return np.array([(self.smooth(c + e) - self.smooth(c - e)) / (2 * step) for e in step * np.eye(len(c))])

    def residual(self, c):
        """Largest distance of a group's subgradient from zero, by finite differences."""
        g, worst = self.slopes(c), 0.0
        for weight, where in zip(self.penalties, self.groups, strict=True):
            norm = np.linalg.norm(c[where])
            pull = weight * c[where] / norm if norm else 0.0
            own = np.linalg.norm(g[where] + pull)
            worst = max(worst, own if norm else max(own - weight, 0.0))
        return worst

    def coefficients(self, fitted):
        """Coefficients of the design from those that the library has for indicators, by their functions of the rows."""
        x, _, names = encoded(self.data)
        place = {name: i for i, name in enumerate(names)}
        mine = [n for n in fitted.nodes if fitted.unit_names[n.variable] == self.node]
        table = np.zeros(len(self.design))
        for (j, rest), where in zip(self.sets, self.groups, strict=True):
            keys = [(1, 1), (2, 1)] if (j, rest) == (1, ()) and self.node == "change" else [(j, len(rest) + 1)]
            # What the terms of a set add to the log density, as a function of all rows beside each own statistic.
            columns = np.stack([column * self.targets[:, s] for column, s in self.design[where]], 1)
            added = np.zeros(self.n)
            for node in mine:
                values = x[:, place[node.variable]]
                if (j, rest) == (1, ()):
                    added += node.intercept * root(self.node, values, 1)
                for term in node.terms:
                    units = {fitted.unit_names[name] for name in term.names} - {self.node}
                    if units == set(rest) and term.key in keys:
                        parts = [root(fitted.unit_names[n], x[:, place[n]], term.key[0]) for n in term.names]
                        added += term.coefficient * np.prod(parts, axis=0)
            solution, *_ = np.linalg.lstsq(columns, added, rcond=None)
            np.testing.assert_allclose(columns @ solution, added, atol=1e-9)
            table[where] = solution
        return table


@pytest.mark.parametrize(
    ("order", "l1", "full"), [(2, 0.08, False), (2, 0.02, False), (3, 0.12, False), (2, 0.03, True), (3, 0.1, True)]
)
def test_every_group_holds_its_condition(order, l1, full):
    """Independent design, basis and derivatives; the control is another penalty."""
    data = rows_of(80)
    data = data if order == 2 else some(data, "ill", "region", "change", "colour")
    fitted = fitted_rows(data, order=order, l1=l1, full=full)
    assert fitted.is_converged
    num_groups = 0
    for node in data:
        slow = SlowNode(data, node, order, l1, full)
        c = slow.coefficients(fitted)
        assert slow.residual(c) < 1e-6, node
        objective = sum(n.objective for n in fitted.nodes if fitted.unit_names[n.variable] == node)
        assert slow.smooth(c) + slow.penalty(c) == pytest.approx(objective, abs=1e-8)
        is_found = any(np.any(c[g]) for g in slow.groups[1:])
        slow.penalties = [1.01 * weight for weight in slow.penalties]
        assert slow.residual(c) > 1e-4 or not is_found
        num_groups += sum(bool(np.any(c[g])) for g in slow.groups[1:])
    assert num_groups > 6


def test_full_searches_find_the_keys_that_full_structures_have():
    """Without a penalty every term that is a function of its own has a coefficient, and no other one."""
    data = {**some(rows_of(120), "ill", "region", "change", "visits"), "old": rows_of(120, 5)["ill"]}
    data["rooms"] = np.minimum(rows_of(120, 6)["visits"], 2)
    kinds = {**KINDS, "old": BINARY, "rooms": TruncatedPoissonFamily(2)}
    x, _, names = encoded(data, kinds)
    fitted = fitted_rows(data, kinds, l1=1e-4, order=3, full=True, settings=RootSettings(
        candidates={2: list(itertools.combinations(data, 2)), 3: []}, false_discovery_rate=None))  # fmt: skip
    sets = [s for s in itertools.combinations(names, 2) if len({fitted.unit_names[n] for n in s}) == 2]
    full = RootStructure.mixed(fitted.domain, sets, full=True, order=3, family=fitted.families)
    lacking = set(full.names) - set(fitted.structure.names)
    assert set(fitted.structure.names) <= set(full.names) and len(lacking) < 0.1 * full.num_terms
    assert {key[0] for key, pair in fitted.structure.names if pair == ("ill", "old")} == {2}
    assert {key[0] for key, pair in fitted.structure.names if set(pair) == {"ill", "visits"}} == {2, 3}
    refitted = refit_roots(fitted, x, settings=RootSettings(false_discovery_rate=None, refit_share=0.1))
    assert set(refitted.structure.names) <= set(full.names)
    assert refitted.refit.pseudo_nll < refitted.refit.independent_pseudo_nll
    alone = fitted_rows(data, kinds, l1=1e3, order=3, full=True)
    assert alone.num_interactions == 0 and {key for key, _ in alone.structure.names} == {(1, 1), (2, 1)}


def test_proximal_gradients_reach_the_same_optimum():
    data = some(rows_of(120), "ill", "region", "change", "colour")
    fitted = fitted_rows(data, l1=0.06)
    slow = SlowNode(data, "region", 2, 0.06)
    c, momentum, t = np.zeros(len(slow.design)), np.zeros(len(slow.design)), 1.0
    blocks = np.stack([column for column, _ in slow.design], 1)
    size = 1 / (0.5 * np.linalg.eigvalsh(blocks.T @ blocks / slow.n)[-1] * np.square(slow.levels).sum(1).max())
    for _ in range(3000):
        new = momentum - size * slow.slopes(momentum)
        for weight, g in zip(slow.penalties, slow.groups, strict=True):
            norm = np.linalg.norm(new[g])
            new[g] *= max(0.0, 1 - size * weight / norm) if norm else 0.0
        following = (1 + math.sqrt(1 + 4 * t * t)) / 2
        momentum = new + (t - 1) / following * (new - c)
        if np.abs(new - c).max() < 1e-10:
            break
        c, t = new, following
    np.testing.assert_allclose(slow.coefficients(fitted), c, atol=1e-6)
    assert 1 <= sum(bool(np.any(c[g])) for g in slow.groups[1:]) < len(slow.groups)


def test_without_a_penalty_a_category_is_a_multinomial_logit():
    data = rows_of(300)
    fitted = fitted_rows(data, l1=0.0)
    table = np.column_stack([
        data["ill"], data["change"], np.eye(4)[data["colour"]][:, 1:], np.sqrt(data["visits"]), np.sqrt(data["days"])
    ])  # fmt: skip
    peer = sm.MNLogit(data["region"], sm.add_constant(table)).fit(disp=0, tol=1e-14, maxiter=200, method="newton")
    mine = fitted.log_pseudo_prob(encoded(data)[0], symmetrized=False, by_node=True)[:, 1:4].sum(1)
    expected = np.log(peer.predict()[np.arange(300), data["region"]])
    np.testing.assert_allclose(mine, expected, atol=1e-6)
    # Log ratios of levels differ by the peer's coefficients.
    own = {n.variable: {t.names: t.coefficient for t in n.terms} for n in fitted.nodes}
    for level in (1, 2):
        for position, other in ((1, "ill"), (2, "change")):
            names = [(other, f"region={k}") if other == "ill" else (f"region={k}", other) for k in (0, level)]
            difference = own[f"region={level}"][names[1]] - own["region=0"][names[0]]
            assert difference == pytest.approx(peer.params[position, level - 1], abs=1e-5)


@pytest.mark.parametrize("l1", [0.15, 0.03])
def test_a_category_of_two_levels_is_a_yes_no_column(l1):
    """Beside columns whose own terms make up for the origin; with counts the sets are the same.

    A joined coefficient is the mean of both regressions', and then it matters where the origin was: refits are equal.
    """
    data = some(rows_of(), "ill", "region", "change", "colour")
    one = fitted_rows(data, l1=l1)
    kinds = {**KINDS, "ill": 2}
    other = fitted_rows({**data, "ill": data["ill"].astype(int)}, kinds, l1=l1)
    assert set(one.sets) == set(other.sets) and one.num_interactions > 1
    a, b = encoded(data)[0], encoded({**data, "ill": data["ill"].astype(int)}, kinds)[0]
    values, others = (f.log_pseudo_prob(x, symmetrized=False, by_node=True) for f, x in ((one, a), (other, b)))
    torch.testing.assert_close(values[:, 0], others[:, :2].sum(1), rtol=0, atol=1e-7)
    torch.testing.assert_close(values[:, 1:], others[:, 2:], rtol=0, atol=1e-7)
    refits = [refit_roots(f, x).log_pseudo_prob(x) for f, x in ((one, a), (other, b))]
    torch.testing.assert_close(*refits, rtol=0, atol=1e-6)
    assert one.objective.sum().item() == pytest.approx(other.objective.sum().item(), abs=1e-8)
    counted = rows_of()
    sets = [set(fitted_rows(rows, kinds, l1=l1).sets) for rows, kinds in (
        (counted, KINDS), ({**counted, "ill": counted["ill"].astype(int)}, kinds))]  # fmt: skip
    assert sets[0] == sets[1]


def test_the_order_and_places_of_levels_do_not_matter():
    data = rows_of()
    x, families, names = encoded(data)
    one = fit_roots(x, families, order=2, l1=0.05, names=names, settings=TIGHT)
    order = np.random.default_rng(1).permutation(len(names))
    other = fit_roots(
        x[:, order], [families[i] for i in order], order=2, l1=0.05, names=[names[i] for i in order], settings=TIGHT
    )
    values = [{frozenset(t.names): t.coefficient for t in f.terms() if t.key != (2, 1)} for f in (one, other)]
    assert values[0].keys() == values[1].keys() and len(values[0]) > 20
    for key, value in values[0].items():
        assert value == pytest.approx(values[1][key], abs=1e-6)
    # The mean over the levels of a category is zero, by their shares.
    shares = np.bincount(data["region"]) / 200
    means = [values[0][frozenset((f"region={k}", "change"))] for k in range(3)] @ shares
    assert means == pytest.approx(0.0, abs=1e-12) and any(key & {"region=0"} for key in values[0])


# Joint models


@pytest.mark.parametrize("order", [2, 3])
def test_pseudo_likelihood_is_that_of_the_energy(order):
    data = rows_of(160)
    x, families, names = encoded(data)
    fitted = fit_roots(x[:100], families, order=order, l1=0.08, names=names, settings=TIGHT)
    assert fitted.is_converged and any(len(edge) == order for edge in fitted.sets)
    expected = fitted.energy().node_log_prob(torch.from_numpy(x[100:]))
    torch.testing.assert_close(fitted.log_pseudo_prob(x[100:], by_node=True), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("order", [2, 3])
def test_refits_are_optima_of_the_joint_pseudo_likelihood(order):
    data = some(rows_of(150), "ill", "region", "change", "colour")
    x, _, _ = encoded(data)
    fitted = fitted_rows(data, order=order, l1=0.12, refit="all",
                         settings=RootSettings(tolerance=1e-9, refit_share=0.0, false_discovery_rate=None))  # fmt: skip
    assert fitted.refit.is_converged and fitted.refit.way == 1.0
    singles = refit_roots(fitted.joined(), x, "singles")
    assert fitted.refit.pseudo_nll < singles.refit.pseudo_nll < singles.refit.joined_pseudo_nll
    joint = RootPseudoLikelihood(fitted.structure, torch.from_numpy(x), fitted.families)
    value, gradient = joint.value_and_gradient(fitted.psi.numpy())
    assert -value / len(x) == pytest.approx(fitted.refit.pseudo_nll, abs=1e-9)
    if order == 2:  # nothing is lost by means of zero here, for own terms make up for them
        assert np.abs(gradient).max() / len(x) < 1e-6
    # A penalised refit costs what groups cost, the members of a set sharing its coefficients.
    half = refit_roots(fitted.joined(), x)
    groups = half.penalties(half.terms())
    cost = sum(0.5 * key[1] * cost for key, _, cost in groups)
    assert half.refit.objective - half.refit.pseudo_nll == pytest.approx(cost, abs=1e-9) and cost > 0.01
    assert {count for _, count, _ in groups} >= {1, 2, 3}


@pytest.mark.parametrize("way", ["mean", "and", "or"])
def test_groups_are_joined_by_every_rule(way):
    fitted = fitted_rows(rows_of(), l1=0.05).joined(way)
    found, unit = {}, fitted.unit_names
    for edge in fitted.sets:
        nodes = {unit[n.variable] for n in fitted.nodes for t in n.terms if {unit[m] for m in t.names} == set(edge)}
        found[edge] = len(nodes)
        levels = math.prod(KINDS[name] if isinstance(KINDS[name], int) else 1 for name in edge)
        assert sum({unit[m] for m in t.names} == set(edge) for t in fitted.terms((2, 2))) == levels
    assert found and (set(found.values()) == {2} if way == "and" else 1 in found.values())
    only = fitted.restricted([("ill", "region")])
    assert set(only.sets) == {("ill", "region")} and only.num_interactions == 1
    assert only.pair_graph.tolist() == [[0, 1]]


# Rows of all kinds, runs and choices


def test_kinds_of_data_workers_and_runs_do_not_matter(tmp_path):
    data = rows_of(100)
    x, families, names = encoded(data)
    whole = fitted_rows(data)

    def same(fitted):
        assert fitted.structure == whole.structure
        torch.testing.assert_close(fitted.psi, whole.psi, rtol=1e-7, atol=1e-9)

    options = {"order": 2, "l1": 0.05, "names": names, "settings": TIGHT}
    same(fit_roots(scipy.sparse.csr_matrix(x), families, **options))
    same(fitted_rows(data, settings=RootSettings(tolerance=1e-9, jobs=2, false_discovery_rate=None)))
    counts = 1 + np.arange(len(x)) % 3
    one, other = (
        fit_roots(x, families, counts=counts, **options),
        fit_roots(np.repeat(x, counts, 0), families, **options),
    )
    torch.testing.assert_close(one.psi, other.psi, rtol=1e-7, atol=1e-9)
    path = tmp_path / "run.checkpoint"
    same(fitted_rows(data, run=RunOptions(path)))
    same(fitted_rows(data, run=RunOptions(path, resume=True)))
    with raises("other-run", "checkpoint"):
        fitted_rows({**data, "colour": data["colour"][::-1]}, run=RunOptions(path, resume=True))
    steps = fit_root_path(x, [0.2, 0.05], families, order=2, names=names, settings=TIGHT)
    for fitted, l1 in zip(steps, (0.2, 0.05), strict=True):
        alone = fitted_rows(data, l1=l1)
        assert fitted.structure == alone.structure
        torch.testing.assert_close(fitted.psi, alone.psi, rtol=1e-5, atol=1e-7)
    stages = fitted_rows(data, order=3, l1=0.1, settings=RootSettings(stagewise=True, false_discovery_rate=None))
    pairs = set(fitted_rows(data, l1=0.1).sets)
    assert all(set(itertools.combinations(edge, 2)) <= pairs for edge in stages.sets if len(edge) == 3)
    listed = RootSettings(candidates=[("ill", "region"), ("region", "colour")], false_discovery_rate=None)
    assert set(fitted_rows(data, settings=listed, l1=0.0).sets) == {("ill", "region"), ("region", "colour")}
    torch.testing.assert_close(
        refit_roots(whole, x, "singles").psi, fitted_rows(data, refit="singles").psi, rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("rule", ["held-out", "ebic", "stability"])
def test_penalties_are_chosen(rule):
    data, l1s = rows_of(150), [0.4, 0.1]
    x, families, names = encoded(data)
    options = {"order": 2, "names": names, "settings": RootSettings(false_discovery_rate=None)}
    chosen = choose_l1(x, l1s, families, L1Rule(rule, folds=2, num_subsamples=2), **options)
    assert chosen.l1 in l1s
    if rule == "ebic":
        sizes = [1 if not isinstance(kind, int) else kind - 1 for kind in KINDS.values()]
        place = {name: i for i, name in enumerate(KINDS)}
        for fitted, score in zip(chosen.path, chosen.scores, strict=True):
            base = fitted.families.log_base(torch.from_numpy(x)).sum()
            own = fitted.log_pseudo_prob(x, symmetrized=False).sum() - base
            total = -2 * float(own)
            for name in KINDS:
                terms = {t.names for n in fitted.nodes if fitted.unit_names[n.variable] == name for t in n.terms}
                sets = {frozenset(fitted.unit_names[m] for m in names) for names in terms}
                total += sum(math.prod(sizes[place[m]] for m in found) for found in sets) * math.log(len(x))
                total += math.log(math.comb(5, sum(len(found) == 2 for found in sets)))
            assert score == pytest.approx(total, abs=1e-5)


# Odd categories


def test_levels_that_do_not_occur_and_constant_categories_are_fixed():
    data = some(rows_of(100), "ill", "region", "change")
    whole = fitted_rows(data)
    kinds = {**KINDS, "region": 5, "one": 1, "always": 2}
    wide = {**data, "one": np.zeros(100, int), "always": np.ones(100, int)}
    fitted = fitted_rows(wide, kinds)
    assert dict(fitted.fixed_columns) == {
        "region=3": 0.0, "region=4": 0.0, "one=0": 1.0, "always=0": 0.0, "always=1": 1.0
    }  # fmt: skip
    assert fitted.is_converged and fitted.structure == whole.structure
    torch.testing.assert_close(fitted.psi, whole.psi, rtol=1e-7, atol=1e-9)
    x, _, names = encoded(wide, kinds)
    torch.testing.assert_close(fitted.log_pseudo_prob(x), whole.log_pseudo_prob(encoded(data)[0]), rtol=0, atol=1e-9)
    x[0, names.index("region=3")], x[0, 1:4] = 1.0, 0.0
    assert fitted.log_pseudo_prob(x)[0] == -math.inf and fitted.log_pseudo_prob(x)[1:].isfinite().all()
    again = fitted_rows(wide, kinds, refit="all")
    assert again.refit.is_converged and set(again.structure.domain.names) == set(whole.structure.domain.names)


def test_a_level_seen_once_has_finite_coefficients():
    data = some(rows_of(100), "ill", "region", "change")
    data["region"][5], kinds = 3, {**KINDS, "region": 4}
    fitted = fitted_rows(data, kinds, refit="all", l1=0.02)
    assert fitted.is_converged and fitted.psi.isfinite().all() and float(fitted.psi.abs().max()) < 50
    with pytest.warns(DataWarning, match="one row alone has 'region=3'"):
        fitted_rows(data, kinds, refit="all", settings=RootSettings(refit_share=0.0, false_discovery_rate=None))


@pytest.mark.parametrize(
    ("change", "options", "code", "argument"),
    [
        ({}, {"settings": RootSettings(objective="upper-bound")}, "conflict", "objective"),
        ({}, {"settings": RootSettings(stop="published")}, "conflict", "stop"),
        ({}, {"settings": RootSettings(candidates=[("ill", "region=0")])}, "unknown-name", None),
        ({(3, 1): 1.0}, {}, "out-of-range", "data, row 3 (counted from 0)"),
        ({(3, 3): 0.0}, {}, "out-of-range", "data, row 3 (counted from 0)"),
        ({}, {"names": ["region", *encoded(rows_of(9))[2][1:]]}, "conflict", "family"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(change, options, code, argument):
    data = rows_of(9)
    data["region"][3] = 2
    x, families, names = encoded(data)
    for where, value in change.items():
        x[where] = value
    with raises(code, argument):
        fit_roots(x, families, **{"order": 2, "names": names, **options})


# What rows confirm


def set_tests(data, edge, others=(), is_rough=True):
    """Tests of a set by the law of each of its members."""
    x, families, names = encoded(data)
    rows = prepare_rows(x, checked_families(families), 2, names)
    tester = RootSetTester(rows, {})
    return [tester.test(edge, others, name, is_rough=is_rough) for name in edge]


def test_two_categories_alone_are_tested_by_pearsons_chi_square():
    data = some(rows_of(), "region", "colour")
    table = np.histogram2d(data["region"], data["colour"], [3, 4])[0]
    expected = np.outer(table.sum(1), table.sum(0)) / 200
    statistic = ((table - expected) ** 2 / expected).sum()
    for test in set_tests(data, ("region", "colour")):
        assert test.log_p_value == pytest.approx(chi2.logsf(statistic, 6), rel=1e-9)
        assert test.gain == pytest.approx(statistic / 2, rel=1e-9)
    ratio = 2 * (table * np.log(np.maximum(table, 1) / expected)).sum()
    for test in set_tests(data, ("region", "colour"), is_rough=False):
        assert test.gain == pytest.approx(ratio / 2, abs=1e-4)
        assert test.log_p_value == pytest.approx(chi2.logsf(min(ratio, statistic), 6), abs=1e-4)


def test_beside_others_a_category_is_tested_as_multinomial_logits_are():
    """The likelihood ratio of nested logits."""
    data = rows_of(300)
    others = [("ill", "region"), ("region", "change")]
    table = sm.add_constant(np.column_stack([data["ill"], data["change"]]))
    colours = np.eye(4)[data["colour"]][:, 1:]
    small, large = (
        sm.MNLogit(data["region"], design).fit(disp=0, method="newton", tol=1e-12).llf
        for design in (table, np.column_stack([table, colours]))
    )
    test = set_tests(data, ("region", "colour"), others, is_rough=False)[0]
    assert test.gain == pytest.approx(large - small, abs=1e-4)
    assert test.log_p_value >= chi2.logsf(2 * (large - small), 6) - 1e-4
    control = sm.MNLogit(data["region"], colours).fit(disp=0, method="newton").llf
    assert abs(control - small - test.gain) > 0.1


def test_a_category_of_two_levels_is_confirmed_as_a_yes_no_column_is():
    data = rows_of()
    kinds = {**KINDS, "ill": 2}
    one = fitted_rows(data, settings=RootSettings()).confirmed
    other = fitted_rows({**data, "ill": data["ill"].astype(int)}, kinds, settings=RootSettings()).confirmed
    values = [{t.edge: (t.p_value, t.is_kept) for t in f.confirmation.tests} for f in (one, other)]
    common = values[0].keys() & values[1].keys()
    assert len(common) > 8 and set(one.sets) == set(other.sets) and one.num_interactions > 2
    for edge in common:
        assert values[0][edge] == pytest.approx(values[1][edge], rel=1e-3), edge


PLANTED = {("ill", "region"), ("region", "change"), ("ill", "change"), ("colour", "visits"), ("ill", "days")}


@pytest.mark.parametrize("way", ["and", "or", "mean"])
def test_planted_sets_are_confirmed_and_few_others(way):
    data = rows_of(1500, 1)
    x, families, names = encoded(data)
    settings = RootSettings(symmetrize=way)
    fitted = fit_roots(x, families, order=2, l1=0.02, names=names, settings=settings)
    assert set(fitted.sets) > PLANTED  # the penalty alone lets others through
    assert set(fitted.confirmed.confirmation.kept) == PLANTED == set(fitted.confirmed.sets)
    again = confirm_roots(fitted, x, settings=RootSettings(candidates=[("ill", "region"), ("colour", "days")]))
    assert set(again.confirmation.kept) == {("ill", "region")}


def test_a_set_of_three_with_a_category_is_confirmed():
    """A category turns the tie of two yes/no columns around; counted from 0, this is a set of three and two pairs."""
    rng = np.random.default_rng(0)
    region, first = rng.integers(0, 3, 2000), (rng.random(2000) < 0.5).astype(float)
    tie = np.array([1.2, -1.2, 0.0])[region] * (2 * first - 1)
    second = (rng.random(2000) < 1 / (1 + np.exp(-tie))).astype(float)
    data = {"ill": first, "region": region, "well": second, "colour": rng.integers(0, 4, 2000)}
    strict = RootSettings(false_discovery_rate=0.01)
    fitted = fitted_rows(data, {**KINDS, "well": BINARY}, order=3, l1=0.03, settings=strict)
    kept = fitted.confirmed.confirmation.kept
    assert set(kept) == {("ill", "region", "well"), ("ill", "region"), ("region", "well")} == set(fitted.confirmed.sets)


def test_independent_columns_yield_no_more_than_the_rate():
    """Rare levels, overdispersed counts and heavy tails; the control is what the penalty alone lets through."""
    num_repeats, counts = 40, np.zeros(2, int)
    for seed in range(num_repeats):
        rng = np.random.default_rng(seed)
        data = {
            "region": rng.choice(3, 250, p=[0.8, 0.17, 0.03]),
            "colour": rng.choice(4, 250, p=[0.5, 0.3, 0.16, 0.04]),
            "visits": rng.negative_binomial(1, 0.4, 250),
            "change": rng.standard_t(4, 250),
            "ill": (rng.random(250) < 0.1).astype(float),
        }
        fitted = fitted_rows(data, l1=0.02, settings=RootSettings())
        counts += bool(fitted.num_interactions), bool(fitted.confirmed.num_interactions)
    assert counts[1] <= binom.isf(FALSE_ALARM_RATE, num_repeats, 0.1) < counts[0]
