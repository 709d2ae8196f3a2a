"""The law of columns that a model has joined, against enumeration of all columns; and controls."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy, Observations
from pyro_hoim.data import BrokenLaw, ColumnGroup, JoinedColumns
from pyro_hoim.log_linear.joined import JoinedLaw

SIZES = {"k=a": 2, "k=b": 2, "k=c": 2, "k=d": 2, "w": 3, "s=0": 2, "s=1": 2, "c": 3, "d": 2, "v": 2}
"""Two groups of indicators, one of categories that determine each other (c, d), and two plain columns."""


def law_of(seed, broken=(0.2, 0.1, 0.3)):
    """A random law, in which groups break often, or never."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities(SIZES)
    groups = [
        ColumnGroup.exclusive([name for name in SIZES if name.startswith("k=")], may_be_none=True),
        ColumnGroup.exclusive(["s=0", "s=1"]),
        ColumnGroup(("c", "d"), ((0, 0), (1, 0), (2, 1)), name="cd"),
    ]
    shares = [[tuple(rng.dirichlet(np.ones(SIZES[name]))) for name in group.columns] for group in groups]
    if broken is not None:
        laws = [BrokenLaw(p, 10.0, tuple(s)) for p, s in zip(broken, shares, strict=True)]
        groups = [replace(group, broken=law) for group, law in zip(groups, laws, strict=True)]
    joined = JoinedColumns(domain, tuple(groups))
    graph = InteractionHypergraph.from_order(joined.joined_domain, 3)
    tables = torch.from_numpy(rng.normal(0, 0.7, graph.num_terms))
    return JoinedLaw(LogLinearEnergy(graph, tables), joined)


def states(cardinalities):
    return torch.tensor(list(itertools.product(*map(range, cardinalities))))


def enumerated(law):
    """Oracle: all rows of the columns, their probabilities with every state of the joined variables, (rows, states)."""
    joined = law.joined
    rows, levels = states(joined.domain.cardinalities), states(joined.joined_domain.cardinalities)
    weights = (-law.energy.energy(levels)).exp()
    table = (weights / weights.sum()).repeat(len(rows), 1)
    for name in ("w", "v"):
        cells, codes = rows[:, joined.domain.index(name)], levels[:, joined.joined_domain.index(name)]
        table *= cells[:, None] == codes
    for group in joined.groups:
        cells = rows[:, list(joined.domain.indices(group.columns))]
        code = levels[:, joined.joined_domain.index(group.name)]
        is_level = (cells[:, None] == torch.tensor(group.levels)).all(2)
        whole = is_level[:, code].double()
        if group.broken is None:
            table *= whole
            continue
        values = torch.ones(len(rows), dtype=torch.float64)
        for column, shares in zip(cells.T, group.broken.shares, strict=True):
            values *= torch.tensor(shares, dtype=torch.float64)[column]
        total = states([len(shares) for shares in group.broken.shares])
        probs = [math.prod(s[c] for s, c in zip(group.broken.shares, row, strict=True)) for row in total.tolist()]
        rest = sum(p for p, row in zip(probs, total.tolist(), strict=True) if tuple(row) not in group.levels)
        u = torch.where(is_level.any(1), 0.0, values / rest)
        table *= (1 - group.broken.probability) * whole + group.broken.probability * u[:, None]
    return rows, table


def agreeing(rows, cells):
    """Which rows have the known cells of one."""
    return ((cells < 0) | (rows == cells)).all(1)


def with_holes(law, number, seed, share=0.4):
    """Rows of the columns, independent coins, some cells of which are missing; first ones that are complete."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(law.joined.domain.cardinalities)
    codes = (torch.rand(number, len(sizes), generator=generator) * sizes).long()
    holes = torch.rand(codes.shape, generator=generator) < share
    holes[: number // 4] = False
    return Observations.from_tensor(codes.masked_fill(holes, -1), law.joined.domain)


@pytest.fixture(scope="module", params=["broken", "mixed", "hard"])
def case(request):
    law = law_of(1, None if request.param == "hard" else (0.2, 0.1, 0.3))
    if request.param == "mixed":
        groups = (replace(law.joined.groups[0], broken=None), *law.joined.groups[1:])
        law = replace(law, joined=replace(law.joined, groups=groups))
    return law, *enumerated(law)


def log_z(law):
    weights = -law.energy.energy(states(law.joined.joined_domain.cardinalities))
    return float(weights.logsumexp(0))


def test_probabilities_of_all_rows(case):
    law, rows, table = case
    found = (law.log_weights(Observations.from_tensor(rows, law.joined.domain)) - log_z(law)).exp()
    torch.testing.assert_close(found, table.sum(1), rtol=1e-10, atol=1e-15)
    assert float(found.sum()) == pytest.approx(1, abs=1e-12)


def test_rows_with_missing_cells(case):
    law, rows, table = case
    asked = with_holes(law, 200, 2)
    expected = torch.stack([table[agreeing(rows, cells)].sum() for cells in asked.codes])
    found = (law.log_weights(asked) - log_z(law)).exp()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("target", ["k=b", "s=1", "c", "d", "w", "v"])
def test_predictions(case, target):
    law, rows, table = case
    asked = with_holes(law, 120, 3)
    column = law.joined.domain.index(target)
    found = law.predict(asked, target)
    for row, (cells, log_probs) in enumerate(zip(asked.codes, found.log_probs, strict=True)):
        others = cells.clone()
        others[column] = -1
        here = agreeing(rows, others)
        by_code = torch.stack([table[here & (rows[:, column] == k)].sum() for k in range(SIZES[target])])
        if not by_code.sum() > 0:
            assert log_probs.isnan().all() and not found.is_exact[row]
            continue
        torch.testing.assert_close(log_probs.exp(), by_code / by_code.sum(), rtol=1e-9, atol=1e-14)
        assert found.is_exact[row]


def test_pseudo_likelihood_leaves_out_one_variable_at_a_time(case):
    law, rows, table = case
    asked = with_holes(law, 60, 4, share=0.2)
    names = law.joined.joined_domain.names
    columns = [[c for c in SIZES if law.joined.variable_of(c) == name] for name in names]
    found = law.log_pseudo_prob(asked)
    for value, cells in zip(found.tolist(), asked.codes, strict=True):
        whole, expected = table[agreeing(rows, cells)].sum(), 0.0
        for members in columns:
            others = cells.clone()
            others[list(law.joined.domain.indices(members))] = -1
            if bool((others != cells).any()) and whole > 0:
                expected += float((whole / table[agreeing(rows, others)].sum()).log())
        assert value == (pytest.approx(expected, abs=1e-9) if whole > 0 else -math.inf)


def p_value(law, rows, table, cells, number, seed):
    """Chi-square test of completions of one row against the enumerated law of its missing cells."""
    asked = Observations.from_tensor(cells[None], law.joined.domain)
    codes = law.impute(asked, number, seed=seed).codes[:, 0]
    assert agreeing(codes, cells).all()
    here = agreeing(rows, cells).nonzero().squeeze(1)
    probs = table[here].sum(1)
    probs = probs / probs.sum()
    strides = torch.tensor([math.prod(list(SIZES.values())[i + 1 :]) for i in range(len(SIZES))])
    numbers = torch.searchsorted((rows[here] * strides).sum(1), (codes * strides).sum(1))
    counts = torch.bincount(numbers, minlength=len(here)).double()
    order = probs.argsort(descending=True)
    few = probs[order] * number >= 5
    seen, expected = counts[order][few], probs[order][few] * number
    rest = float(counts.sum() - seen.sum()), number - float(expected.sum())
    seen, expected = [*seen.tolist(), rest[0]], [*expected.tolist(), rest[1]]
    keep = [i for i, e in enumerate(expected) if e >= 5]
    assert sum(seen[i] for i in range(len(seen)) if i not in keep) <= 20
    scale = sum(seen[i] for i in keep) / sum(expected[i] for i in keep)
    return chisquare([seen[i] for i in keep], [expected[i] * scale for i in keep]).pvalue


KNOWN = {
    "nothing": {},
    "open": {"k=a": 0, "c": 1},
    "one level": {"k=a": 1, "s=0": 1},
    "broken": {"k=a": 1, "k=b": 1, "w": 2},
}


@pytest.mark.parametrize("known", list(KNOWN))
def test_draws_follow_the_law_given_cells(known):
    law = law_of(1)
    rows, table = enumerated(law)
    cells = torch.full((len(SIZES),), -1)
    for name, code in KNOWN[known].items():
        cells[law.joined.domain.index(name)] = code
    assert p_value(law, rows, table, cells, 20_000, 5) > 1e-3
    # Control: as if every group broke half as often.
    halved = tuple(
        replace(group, broken=replace(group.broken, probability=group.broken.probability / 2))
        for group in law.joined.groups
    )
    other = replace(law, joined=replace(law.joined, groups=halved))
    assert p_value(other, rows, table, cells, 20_000, 5) < 1e-6


@pytest.mark.parametrize("broken", [(0.2, 0.1, 0.3), None])
def test_completions_by_chains_follow_the_law(broken):
    law = law_of(1, broken)
    rows, table = enumerated(law)
    cells = torch.full((1, len(SIZES)), -1)
    cells[0, 0], cells[0, 4] = 0, 1
    asked = Observations.from_tensor(cells, law.joined.domain)
    filled = law.impute(asked, 4000, seed=1, method="gibbs")
    assert not filled.is_exact.any()
    here = agreeing(rows, cells[0])
    for column, size in enumerate(SIZES.values()):
        probs = torch.stack([table[here & (rows[:, column] == k)].sum() for k in range(size)])
        shares = torch.bincount(filled.codes[:, 0, column], minlength=size) / 4000
        assert (shares - probs / probs.sum()).abs().max() < 4 * 0.5 / 4000**0.5
    predicted = law.predict(asked, "w", method="gibbs")
    here = agreeing(rows, cells[0].index_fill(0, torch.tensor([4]), -1))
    probs = torch.stack([table[here & (rows[:, 4] == k)].sum() for k in range(3)])
    assert ((predicted.probs[0] - probs / probs.sum()).abs() < 5 * predicted.std_error[0] + 1e-3).all()


def test_most_probable_cells(case):
    law, rows, table = case
    asked = with_holes(law, 80, 6)
    found = law.impute(asked, how="most probable")
    for cells, codes in zip(asked.codes, found.codes[0], strict=True):
        here = agreeing(rows, cells)
        if not table[here].sum() > 0:
            assert torch.equal(codes, cells)
            continue
        assert agreeing(codes[None], cells).all()
        best = float(table[here].max())
        assert float(table[agreeing(rows, codes)].max()) == pytest.approx(best, rel=1e-9)


def test_a_broken_row_of_a_group_with_rare_columns_is_not_lost_by_cancellation():
    """Oracle: the rows in order of size, added up in fractions of whole numbers."""
    columns = Domain.from_cardinalities([2] * 6)
    group = ColumnGroup.exclusive(columns.names, may_be_none=True)
    shares = ((1 - 1e-9, 1e-9),) * 6
    group = replace(group, broken=BrokenLaw(1e-6, 10.0, shares))
    pair = np.array([[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, -1, -1, -1, -1, -1]])
    total = sum(math.comb(6, k) * 1e-9**k * (1 - 1e-9) ** (6 - k) for k in range(2, 7))
    expected = [1e-18 * (1 - 1e-9) ** 4, 1e-27 * (1 - 1e-9) ** 3, 1e-9 * (1 - (1 - 1e-9) ** 5)]
    expected[2] = 1e-9 * sum(math.comb(5, k) * 1e-9**k * (1 - 1e-9) ** (5 - k) for k in range(1, 6))
    found = np.logaddexp.reduce(group.log_broken(pair), axis=1)
    np.testing.assert_allclose(found, np.log(np.array(expected) / total) + math.log(1e-6), rtol=1e-12)


def test_gains_and_likelihoods_in_float32_and_of_repeated_rows():
    law = law_of(3)
    rows = with_holes(law, 40, 7)
    twice = Observations.from_tensor(rows.codes.repeat(2, 1), rows.domain)
    half = replace(law, energy=law.energy.to(dtype=torch.float32))
    torch.testing.assert_close(law.log_weights(twice)[40:], law.log_weights(rows))
    torch.testing.assert_close(half.log_weights(rows), law.log_weights(rows), rtol=1e-4, atol=1e-4)


def test_a_complete_row_is_not_filled_by_chains():
    """Nothing is left to fill where every cell is known, whether the row is possible or not."""
    law = law_of(1, None)
    rows, table = enumerated(law)
    lost = rows[table.sum(1) == 0][:2].clone()
    lost[1, law.joined.domain.index("w")] = -1
    filled = law.impute(Observations.from_tensor(lost, law.joined.domain))
    assert filled.is_exact.tolist() == [True, False] and filled.is_completed.tolist() == [True, False]
    assert torch.equal(filled.codes[0], lost)
