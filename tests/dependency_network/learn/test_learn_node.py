"""Greedy structure learning of one node against a plain reference that recomputes whole costs."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InputError, Observations
from pyro_hoim.datasets import load_mushroom
from pyro_hoim.dependency_network import AIC, MDL, DecisionGraph, Merge, Split, check_theorem_conditions, learn_node
from pyro_hoim.dependency_network.learn._rows import PreparedRows
from pyro_hoim.testing import raises

NEAR = 1e-9


class Reference:
    """Algorithm 2 as written: every candidate is a partition of states with the weights of rows in it."""

    def __init__(self, data, variable, penalty, *, lossless=False, max_leaves=math.inf, exact=False):
        self.cards = data.domain.cardinalities
        self.i = data.domain.index(variable)
        self.penalty, self.lossless, self.max_leaves, self.exact = penalty, lossless, max_leaves, exact
        self.ranks = PreparedRows.from_rows(data).ranks
        rows = [(tuple(c), w) for c, w in zip(data.codes.tolist(), data.counts.tolist(), strict=True) if w > 0]
        self.rows = [(c, w) for c, w in rows if c[self.i] >= 0]
        self.total = math.fsum(w for _, w in self.rows)
        axes = [range(n) if j != self.i else (0,) for j, n in enumerate(self.cards)]
        self.root = (frozenset(itertools.product(*axes)), {r: w for r, (_, w) in enumerate(self.rows)})

    def counts(self, leaf):
        found = [0.0] * self.cards[self.i]
        for r, w in leaf[1].items():
            found[self.rows[r][0][self.i]] += w
        return found

    def split(self, leaf, j):
        """Children in the order of the levels' ranks, or None where the variable is missing in all rows."""
        known = [sum(w for r, w in leaf[1].items() if self.rows[r][0][j] == v) for v in range(self.cards[j])]
        absent = {r: w for r, w in leaf[1].items() if self.rows[r][0][j] < 0}
        if absent and not sum(known):
            return None
        children = []
        for v in sorted(range(self.cards[j]), key=lambda v: self.ranks[j][v]):
            rows = {r: w for r, w in leaf[1].items() if self.rows[r][0][j] == v}
            if absent and known[v]:
                rows |= {r: w * known[v] / sum(known) for r, w in absent.items()}
            children.append((frozenset(s for s in leaf[0] if s[j] == v), rows))
        return children

    def merge(self, one, other):
        rows = {r: one[1].get(r, 0) + other[1].get(r, 0) for r in one[1].keys() | other[1].keys()}
        return one[0] | other[0], rows

    def cost(self, leaves):
        """N cost' in nats; with ``exact``, exp(2 N cost') under MDL as a fraction, so that ties are true ties."""
        tables = [self.counts(leaf) for leaf in leaves]
        k = len(leaves) * (self.cards[self.i] - 1)
        if self.exact:
            value = Fraction(int(self.total)) ** k
            for table in tables:
                n = int(sum(table))
                value *= Fraction(n ** (2 * n), math.prod(int(m) ** (2 * int(m)) for m in table))
            return value
        entropy = sum(-m * math.log(m / math.fsum(t)) for t in tables for m in t if m > 0)
        return entropy + self.total * self.penalty(k, self.total)

    def less(self, a, b):
        return a < b if self.exact else a < b - NEAR

    def run(self):
        """Partition (a set of sets of states) and cost before the first step and after every step."""
        leaves = [self.root]
        path = [({self.root[0]}, self.cost(leaves))]
        full = [self.root]
        others = [j for j in range(len(self.cards)) if j != self.i]
        for j in others:
            full = [child for leaf in full for child in (self.split(leaf, j) or self.even(leaf, j))]
        while True:
            now = path[-1][1]
            best, best_size, chosen = None, None, None
            for a, b in itertools.combinations(range(len(leaves)), 2):
                new = [*leaves[:a], self.merge(leaves[a], leaves[b]), *leaves[a + 1 : b], *leaves[b + 1 :]]
                cost, size = self.cost(new), sum(self.counts(leaves[a])) + sum(self.counts(leaves[b]))
                if best is None or self.less(cost, best) or (not self.less(best, cost) and size > best_size + NEAR):
                    best, best_size, chosen = cost, size, new
            best_split = None
            for a, leaf in enumerate(leaves):
                for j in others:
                    children = self.split(leaf, j)
                    if children is None or len(leaves) - 1 + len(children) > self.max_leaves:
                        continue
                    new = [*leaves[:a], *leaves[a + 1 :], *children]
                    cost = self.cost(new)
                    if best_split is None or self.less(cost, best_split[0]):
                        best_split = cost, new
            if best_split is not None and (best is None or self.less(best_split[0], best)):
                best, chosen = best_split
            if self.lossless and (best is None or self.less(self.cost(full), min(best, now))):
                best, chosen = self.cost(full), full
                self.lossless = False
            if best is None or not self.less(best, now):
                return path
            leaves = chosen
            path.append(({leaf[0] for leaf in leaves}, best))

    def even(self, leaf, j):
        """Children where nothing is known of the variable: equal shares."""
        return [
            (frozenset(s for s in leaf[0] if s[j] == v), {r: w / self.cards[j] for r, w in leaf[1].items()})
            for v in range(self.cards[j])
        ]

    def nats(self, cost):
        if self.exact:
            return (math.log(cost.numerator) - math.log(cost.denominator)) / (2 * self.total)
        return cost / self.total


def partition(graph):
    """Sets of states of the leaves, by replaying the operations."""
    i = graph.domain.index(graph.variable)
    axes = [range(n) if j != i else (0,) for j, n in enumerate(graph.domain.cardinalities)]
    states = list(itertools.product(*axes))
    leaves = graph.leaves(torch.tensor(states).reshape(len(states), -1)).tolist()
    return [frozenset(s for s, y in zip(states, leaves, strict=True) if y == leaf) for leaf in range(graph.num_leaves)]


def check_path(data, variable, penalty, *, exact=False, **options):
    """Every step of the search has the reference's partition and cost; returns the number of steps."""
    graph, counts, report = learn_node(data, variable, penalty=penalty, **options)
    function = MDL() if penalty == "mdl" else penalty
    reference = Reference(data, variable, function, exact=exact, **options)
    path = reference.run()
    assert len(report.costs) == len(path)
    assert report.costs == pytest.approx([reference.nats(cost) for _, cost in path], abs=1e-11)
    assert report.cost == pytest.approx(report.costs[-1], abs=1e-11)
    assert set(partition(graph)) == path[-1][0]
    if not report.from_lossless:
        for number in range(len(path)):
            assert set(partition(DecisionGraph(data.domain, variable, graph.operations[:number]))) == path[number][0]
    assert counts.sum().item() == pytest.approx(reference.total, rel=1e-12)
    assert (report.num_leaves, report.num_parameters) == (
        graph.num_leaves,
        graph.num_leaves * (data.domain[variable].cardinality - 1),
    )
    return len(path) - 1


def related_rows(seed, cards, num_rows, *, missing=0.0, weights=None):
    """Rows whose columns depend on each other, so that several splits and merges pay."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 3, num_rows)
    columns = []
    for n in cards:
        law = rng.dirichlet(np.full(n, 0.4), 3).cumsum(1)
        columns.append(((law / law[:, -1:])[hidden] <= rng.random((num_rows, 1))).sum(1))
    codes = np.stack(columns, axis=1)
    if len(cards) > 2:
        codes[:, 0] = (codes[:, 1] + codes[:, 2] + (rng.random(num_rows) < 0.15)) % cards[0]
    codes[rng.random(codes.shape) < missing] = -1
    counts = None
    if weights == "whole":
        counts = torch.from_numpy(rng.integers(0, 4, num_rows).astype(float))
    elif weights == "fractions":
        counts = torch.from_numpy(rng.gamma(1.0, 2.0, num_rows))
    domain = Domain.from_cardinalities(dict(zip("abcdef", cards, strict=False)))
    return Observations(domain, torch.from_numpy(codes), counts)


# The reference


@pytest.mark.parametrize("cards", [(2, 2, 2, 2), (3, 2, 4), (2, 3, 3, 2), (4, 5, 1, 2)])
@pytest.mark.parametrize("weights", [None, "whole", "fractions"])
def test_every_step_equals_that_of_the_plain_reference(cards, weights):
    steps = 0
    for seed in range(6):
        data = related_rows(seed, cards, 70, weights=weights)
        for variable in data.domain.names[:2]:
            steps += check_path(data, variable, "mdl", exact=weights != "fractions")
    assert steps > 12


def test_steps_on_few_rows_where_most_candidates_tie():
    for seed in range(60):
        data = related_rows(seed, (2, 2, 3), 3 + seed % 9)
        for variable in data.domain.names:
            check_path(data, variable, AIC())
            check_path(data, variable, "mdl", exact=True)


def root_penalty(k, n):
    """A penalty that is not linear in k: later splits cost less, later merges gain less."""
    return 1.5 * math.sqrt(k) / n


def no_penalty(k, n):
    return 0.0


@pytest.mark.parametrize("penalty", [AIC(), root_penalty, no_penalty])
def test_steps_under_other_penalties(penalty):
    for seed in range(6):
        data = related_rows(seed, (3, 2, 3, 2), 60)
        assert check_path(data, "a", penalty) > 0


@pytest.mark.parametrize("max_leaves", [1, 2, 3, 5])
def test_steps_with_a_limit_of_leaves(max_leaves):
    for seed in range(4):
        data = related_rows(seed, (2, 3, 3, 2), 200)
        check_path(data, "a", AIC(), max_leaves=max_leaves)
        assert learn_node(data, "a", penalty=AIC(), max_leaves=max_leaves)[0].num_leaves <= max_leaves


def test_steps_with_the_lossless_source_among_the_candidates():
    taken = 0
    for seed in range(8):
        cards, num_rows = ((2, 2, 2, 2), 300) if seed % 2 else ((2, 3, 4, 2), 60)
        data = related_rows(seed, cards, num_rows)
        check_path(data, "a", AIC(), lossless=True)
        taken += learn_node(data, "a", penalty=AIC(), lossless=True)[2].from_lossless
    assert 0 < taken < 8


@pytest.mark.parametrize("weights", [None, "fractions"])
def test_steps_with_missing_cells(weights):
    steps = 0
    for seed in range(8):
        data = related_rows(seed, (2, 3, 3), 60, missing=0.2, weights=weights)
        for variable in data.domain.names:
            steps += check_path(data, variable, AIC())
            check_path(data, variable, AIC(), lossless=True)
    assert steps > 16


def test_steps_under_a_restriction_of_what_may_be_read():
    data = related_rows(3, (2, 3, 3, 2), 200)
    graph, counts, _ = learn_node(data, "a", reads=["d", "b"], penalty=AIC())
    narrow, same, _ = learn_node(data.project(["a", "b", "d"]), "a", penalty=AIC())
    assert graph.operations == narrow.operations
    assert torch.equal(counts, same)
    alone, _, report = learn_node(data, "a", reads=[])
    assert (alone.num_leaves, report.lossless_leaves, report.lossless_entropy) == (1, 1, report.entropy)


# Tables


def conditional_entropy(joint):
    """H(column | row) of a table of counts, times the total, by definition."""
    return -sum(m * math.log(m / row.sum()) for row in joint for m in row if m > 0)


@pytest.mark.parametrize("weights", [None, "fractions"])
def test_tables_are_the_empirical_frequencies_and_the_divergence_is_that_of_theorem_4(weights):
    data = related_rows(5, (3, 2, 3, 2), 400, weights=weights)
    graph, counts, report = learn_node(data, "a")
    leaf = graph.leaves(data.codes)
    direct = torch.zeros_like(counts)
    direct.index_put_((leaf, data.codes[:, 0]), data.counts, accumulate=True)
    torch.testing.assert_close(counts, direct, rtol=1e-12, atol=1e-12)
    total = data.total_count
    assert report.entropy == pytest.approx(conditional_entropy(direct.numpy()) / total, abs=1e-12)
    joint = data.table().reshape(3, -1).T.numpy()
    assert report.lossless_entropy == pytest.approx(conditional_entropy(joint) / total, abs=1e-12)
    # KL(p || E(theta)) by its definition, for the tables of theorem 4 and for others
    states = torch.tensor(list(itertools.product(range(3), range(2), range(3), range(2))))
    p = data.table().reshape(-1) / total
    given = joint / joint.sum(1, keepdims=True).clip(1e-300)

    def divergence(theta):
        law = theta[graph.leaves(states), states[:, 0]]
        own = torch.from_numpy(given.T.reshape(-1).copy())
        keep = p > 0
        return float((p[keep] * (own[keep] / law[keep]).log()).sum())

    theta = counts / counts.sum(1, keepdim=True)
    assert report.divergence == pytest.approx(divergence(theta), abs=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = theta * torch.from_numpy(rng.uniform(0.5, 1.5, theta.shape))
        assert divergence(other / other.sum(1, keepdim=True)) > divergence(theta)


@pytest.mark.usefixtures("shared_data")
def test_costs_of_a_learned_graph_are_those_of_its_rows():
    data = load_mushroom()
    for name in ("class", "odor", "habitat"):
        graph, counts, report = learn_node(data, name)
        leaf, i = graph.leaves(data.codes), data.domain.index(name)
        direct = np.zeros(tuple(counts.shape))
        np.add.at(direct, (leaf.numpy(), data.codes[:, i].numpy()), 1.0)
        assert np.array_equal(direct, counts.numpy())
        assert report.costs[-1] == pytest.approx(
            conditional_entropy(direct) / 8124 + MDL()(report.num_parameters, 8124), abs=1e-11
        )
        assert all(later < earlier for earlier, later in itertools.pairwise(report.costs))
        assert report.num_splits + report.num_merges == len(graph.operations) == len(report.costs) - 1


# Exclusive or: no split lowers the cost (theorem 5 needs condition 1)


def test_exclusive_or_is_found_only_with_the_lossless_source():
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2, "d": 2})
    table = np.zeros((2, 2, 2, 2))
    for b, c, d in itertools.product(range(2), repeat=3):
        table[b ^ c, b, c, d] = 45
        table[1 - (b ^ c), b, c, d] = 5
    data = Observations.from_table(domain, table)
    graph, _, report = learn_node(data, "a")
    assert graph.operations == ()
    assert report.entropy == pytest.approx(math.log(2), abs=1e-12)
    mixed = -0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    assert report.lossless_entropy == pytest.approx(mixed, abs=1e-12)
    assert report.lossless_cost == pytest.approx(mixed + MDL()(8, 400), abs=1e-12)
    assert report.lossless_wins is True
    assert report.is_lossless_candidate is False
    graph, counts, report = learn_node(data, "a", lossless=True)
    assert report.from_lossless and report.is_lossless_candidate and report.lossless_wins is False
    assert graph.num_leaves == 2
    assert sorted(counts.tolist()) == [[20.0, 180.0], [180.0, 20.0]]
    states = torch.tensor(list(itertools.product((0,), range(2), range(2), range(2))))
    odd = states[:, 1] ^ states[:, 2]
    leaf = graph.leaves(states)
    assert torch.equal(counts[leaf].argmax(1), odd)


# What must not matter


def equal(one, other):
    (graph, counts, report), (graph_2, counts_2, report_2) = one, other
    return graph == graph_2 and torch.equal(counts, counts_2) and report == report_2


@pytest.mark.parametrize("weights", [None, "whole", "fractions"])
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_order_of_rows_does_not_matter(weights, missing):
    for seed in range(5):
        data = related_rows(seed, (3, 3, 2, 2), 120, weights=weights, missing=missing)
        mixed = data.rows(torch.from_numpy(np.random.default_rng(seed).permutation(120)))
        assert equal(learn_node(data, "a", penalty=AIC()), learn_node(mixed, "a", penalty=AIC()))
        if weights is None:  # the same law as rows and as cells
            assert equal(learn_node(data, "a"), learn_node(data.unique(), "a"))


@pytest.mark.parametrize("weights", [None, "whole", "fractions"])
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_relabelled_levels_permute_tables_and_nothing_else(weights, missing):
    rng = np.random.default_rng(7)
    for seed in range(12):
        data = related_rows(seed, (3, 4, 2, 3), 40 + 20 * seed, weights=weights, missing=missing)
        orders = [rng.permutation(n) for n in data.domain.cardinalities]  # the new code of every level
        codes = torch.stack(
            [torch.where(c < 0, c, torch.from_numpy(o)[c]) for c, o in zip(data.codes.T, orders, strict=True)], 1
        )
        renamed = Observations(data.domain, codes, data.counts)
        graph, counts, report = learn_node(data, "a", penalty=AIC())
        other, other_counts, other_report = learn_node(renamed, "a", penalty=AIC())
        assert report.costs == pytest.approx(other_report.costs, abs=1e-12)
        here = partition(graph)
        there = {
            frozenset(
                tuple(int(o[c]) if j else 0 for j, (o, c) in enumerate(zip(orders, s, strict=True))) for s in leaf
            ): n
            for n, leaf in enumerate(here)
        }
        moved = partition(other)
        assert set(there) == set(moved)
        for leaf, states in enumerate(moved):
            expected = counts[there[states]][torch.from_numpy(np.argsort(orders[0]))]
            torch.testing.assert_close(other_counts[leaf], expected, rtol=1e-12, atol=1e-12)


# Missing cells


def test_missing_cells_by_hand():
    """Split on b: levels 0 and 1 have 6 and 2 known rows, so shares 3/4 and 1/4 of the four rows without b."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    rows = [(0, 0)] * 6 + [(1, 1)] * 2 + [(0, -1)] * 3 + [(1, -1)] + [(-1, 0)] * 5
    data = Observations(domain, torch.tensor(rows))

    def tiny(k, n):
        return 1e-3 * k

    graph, counts, report = learn_node(data, "a", penalty=tiny)
    assert graph.operations == (Split(0, "b"),)
    assert counts.tolist() == [[6 + 3 * 0.75, 0.75], [3 * 0.25, 2.25]]
    assert report.num_observations == 12.0
    expected = conditional_entropy(np.array([[8.25, 0.75], [0.75, 2.25]])) / 12
    assert report.entropy == pytest.approx(expected, abs=1e-12)
    assert report.lossless_entropy is None and report.lossless_cost is None and report.divergence is None
    assert report.lossless_wins is None


def test_a_variable_missing_in_all_rows_of_a_leaf_does_not_split_it():
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    rows = [(0, 0, -1)] * 30 + [(1, 0, -1)] * 10 + [(0, 1, 0)] * 20 + [(1, 1, 1)] * 20
    data = Observations(domain, torch.tensor(rows))
    graph, counts, _ = learn_node(data, "a", reads=["b", "c"], penalty=AIC(), max_leaves=2)
    assert graph.operations == (
        Split(0, "c"),
    )  # its missing half shared out evenly: 20 + 15 and 5 against 15 and 20 + 5
    assert counts.tolist() == [[35.0, 5.0], [15.0, 25.0]]
    check_path(data, "a", MDL())


# Few rows, bad input


def test_columns_of_one_level_and_fewer_rows_than_levels():
    domain = Domain.from_cardinalities({"a": 1, "b": 9, "c": 2})
    data = Observations(domain, torch.tensor([[0, 3, 1], [0, 5, 0], [0, 3, 1]]))
    graph, counts, report = learn_node(data, "a")
    assert (graph.num_leaves, counts.tolist(), report.num_parameters, report.cost) == (1, [[3.0]], 0, 0.0)
    graph, counts, report = learn_node(data, "b")
    assert (graph.num_leaves, counts[0, 3].item(), counts[0, 5].item()) == (1, 2.0, 1.0)
    for rows in ([[0, 3, 1]], [[0, 3, 1]] * 7):
        same = Observations(domain, torch.tensor(rows))
        for name in domain.names:
            graph, counts, report = learn_node(same, name)
            assert graph.num_leaves == 1
            assert counts.sum().item() == len(rows) and counts.max().item() == len(rows)
            assert report.entropy == 0.0


def test_empty_leaves_merge_where_most_rows_are():
    """A level that never occurs makes an empty leaf; merging it costs nothing and is done with the largest leaf."""
    domain = Domain.from_cardinalities({"a": 2, "b": 3})
    graph, counts, _ = learn_node(Observations.from_table(domain, [[50, 0, 2], [5, 0, 30]]), "a")
    assert graph.operations == (Split(0, "b"), Merge(0, 1))
    assert counts.tolist() == [[50.0, 5.0], [2.0, 30.0]]


@pytest.mark.parametrize("factor", [1.0, 1e6, 1e11])
def test_equal_leaves_merge_however_large_the_counts(factor):
    table = factor * np.array([[30.0, 30, 5, 5], [5, 5, 30, 30]])
    graph, counts, _ = learn_node(Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 4}), table), "a")
    assert graph.num_leaves == 2
    assert sorted(counts.tolist()) == [[10 * factor, 60 * factor], [60 * factor, 10 * factor]]


def test_columns_of_too_many_levels_to_be_asked_take_no_memory(monkeypatch):
    """Row numbers: counts of levels for them would be tables of rows by rows. The others are found as without them."""
    from pyro_hoim.dependency_network.learn import _kernels

    seen = []
    grow = _kernels.grow
    monkeypatch.setattr(_kernels, "grow", lambda c, *rest: seen.append((c.ids.shape[1], rest[3])) or grow(c, *rest))
    rng = np.random.default_rng(1)
    b, c = rng.integers(0, 3, 400), rng.integers(0, 2, 400)
    codes = np.stack([((b > 0) & (c > 0)) ^ (rng.random(400) < 0.1), b, c], 1)
    codes[rng.random(codes.shape) < 0.1] = -1
    domain = Domain.from_cardinalities({"id": 400, "a": 2, "b": 3, "c": 2, "number": 400})
    number = torch.arange(400)[:, None]
    wide = Observations(domain, torch.cat([number, torch.from_numpy(codes), number.flip(0)], 1))
    graph, counts, report = learn_node(wide, "a", penalty=AIC())
    narrow, narrow_counts, narrow_report = learn_node(wide, "a", reads=["b", "c"], penalty=AIC())
    assert (graph.operations, graph.reads) == (narrow.operations, ("b", "c"))
    torch.testing.assert_close(counts, narrow_counts, rtol=0, atol=1e-9)
    assert report.cost == pytest.approx(narrow_report.cost, abs=1e-12)
    assert seen[0] == (2, 7)  # b and c with a number each for their missing cells
    learn_node(wide, "id", penalty=AIC())
    assert seen[2] == (3, 10)


@pytest.mark.fixed_seed  # the number of leaves is that of one table
def test_leaves_of_the_lossless_source_merge_as_with_partners_searched_at_once():
    """Number of leaves as found when every leaf that lost its partner was searched for another one without delay."""
    rng = np.random.default_rng(0)
    rng.integers(0, 2, (3000, 9))
    data = Observations(Domain.from_cardinalities([2] * 11), torch.from_numpy(rng.integers(0, 2, (3000, 11))))
    graph, _, report = learn_node(data, "x0", lossless=True, penalty=lambda k, n: 1e-6 * k)
    assert report.from_lossless and graph.num_leaves == 25


SMALL = Observations(Domain.from_cardinalities({"a": 2, "b": 2}), torch.tensor([[0, 1], [1, 0]]))


@pytest.mark.parametrize(
    ("rows", "name", "options", "code", "argument"),
    [
        (Observations(SMALL.domain, torch.zeros((0, 2), dtype=torch.long)), "a", {}, "empty", "rows"),
        (Observations(SMALL.domain, torch.tensor([[0, 1]]), torch.zeros(1)), "a", {}, "empty", "rows"),
        (Observations(SMALL.domain, torch.tensor([[0, -1], [1, -1]])), "a", {}, "missing-part", "rows"),
        (SMALL.codes, "a", {}, "wrong-type", "rows"),
        (SMALL, "z", {}, "unknown-name", None),
        (SMALL, "a", {"max_leaves": 0}, "out-of-range", "max_leaves"),
        (SMALL, "a", {"max_leaves": 2.0}, "out-of-range", "max_leaves"),
        (SMALL, "a", {"reads": ["a"]}, "other-domain", "reads"),
        (SMALL, "a", {"reads": "b"}, "wrong-type", "reads"),
        (SMALL, "a", {"penalty": "bic"}, "unknown-choice", "penalty"),
        (SMALL, "a", {"penalty": 3}, "wrong-type", "penalty"),
        (SMALL, "a", {"penalty": lambda k, n: -0.1 * k}, "out-of-range", "penalty"),
        (SMALL, "a", {"penalty": lambda k, n: 0.1 / (1 + k)}, "out-of-range", "penalty"),
    ],
)
def test_bad_input_is_refused_before_any_work(rows, name, options, code, argument):
    with raises(code, argument):
        learn_node(rows, name, **options)


# Penalties of information sources, and the conditions of theorem 5


def test_values_of_mdl_and_aic():
    assert MDL()(6, 1000.0) == 6 * math.log(1000) / 2000
    assert AIC()(6, 1000.0) == 0.006
    assert MDL()(6, 0.5) == 0.0
    assert (MDL(), AIC()) == (MDL(), AIC()) and MDL() != AIC()


@pytest.mark.parametrize("penalty", ["mdl", "aic", MDL(), AIC(), lambda k, n: math.sqrt(k) / n**0.7])
def test_conditions_hold_with_the_lossless_source(penalty):
    found = check_theorem_conditions(penalty, 2**11, 1000, lossless=True)
    assert found.hold and found.message == ""
    without = check_theorem_conditions(penalty, 2**11, 1000)
    assert without.is_positive and without.vanishes and not (without.lossless_is_candidate or without.hold)
    assert without.message == "the lossless source is not among the candidates; pass lossless=True"


@pytest.mark.parametrize("size", [1, 3, 7, 32])
@pytest.mark.parametrize("number", [3, 10, 37, 1000, 12345])
def test_a_root_of_the_number_of_rows_vanishes_in_spite_of_rounding(size, number):
    assert check_theorem_conditions(lambda k, n: k / math.sqrt(n), size, number, lossless=True).vanishes


@pytest.mark.parametrize(
    ("penalty", "positive", "vanishes"),
    [
        (lambda k, n: 0.0, False, True),
        (lambda k, n: 0.01 * k, True, False),
        (lambda k, n: k * math.log(n) / math.log(n + 1), True, False),
        (lambda k, n: k * n, True, False),
        (lambda k, n: 0.0 if n > 1e6 else k / n, False, True),
    ],
)
def test_conditions_that_fail_are_named(penalty, positive, vanishes):
    found = check_theorem_conditions(penalty, 8, 100, lossless=True)
    assert (found.is_positive, found.vanishes, found.hold) == (positive, vanishes, False)
    assert ("not positive" in found.message, "is not seen to tend to 0" in found.message) == (
        not positive,
        not vanishes,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "argument"),
    [
        (("mdl", 0, 100), "out-of-range", "num_parameters"),
        (("mdl", 2, 0), "out-of-range", "num_observations"),
        (("none", 2, 10), "unknown-choice", "penalty"),
        ((1.0, 2, 10), "wrong-type", "penalty"),
    ],
)
def test_bad_arguments_of_the_check(arguments, code, argument):
    with raises(code, argument):
        check_theorem_conditions(*arguments)


def test_a_penalty_that_overflows_is_refused_with_the_sizes():
    with pytest.raises(InputError, match=r"penalty: no value for 32 parameters and 1000 observations \(.*out of range"):
        check_theorem_conditions(lambda k, n: 10.0**400 if k == 32 else float(k), 32, 1000, lossless=True)
