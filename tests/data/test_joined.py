"""Columns joined to one variable: against the categorical tables that they were made from, and controls."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_hoim import Domain, InputError, Observations, load_table
from pyro_hoim.data import (
    BrokenLaw,
    ColumnGroup,
    JoinedColumns,
    find_determined_groups,
    find_exclusive_groups,
    join_columns,
    joined as joined_columns,
)
from pyro_hoim.datasets import load_breast_cancer


def indicators(rows, drop_first=False):
    """One column of 0 and 1 for every level of every column, named ``column=level``, with the counts of the rows."""
    frame = pd.get_dummies(rows.to_pandas(count=None), prefix_sep="=", drop_first=drop_first).astype(int).astype(str)
    domain = Domain.from_labels({name: ["0", "1"] for name in frame})
    return Observations.from_pandas(frame.assign(count=rows.counts.numpy()), domain=domain)


def shuffled(rows, seed):
    """The same rows with columns in another order."""
    order = np.random.default_rng(seed).permutation(len(rows.domain)).tolist()
    return Observations(Domain(rows.domain.variables[i] for i in order), rows.codes[:, order], rows.counts)


def coins(number, probs, seed=0):
    """Independent columns of two levels."""
    codes = np.random.default_rng(seed).random((number, len(probs))) < np.array(probs)
    return Observations.from_tensor(torch.from_numpy(codes).long(), Domain.from_cardinalities([2] * len(probs)))


@pytest.mark.parametrize("name", ["titanic", "ucb_admissions", "breast_cancer"])
def test_indicators_give_the_table_that_they_were_made_from(name, shared_data):
    rows = load_breast_cancer() if name == "breast_cancer" else load_table(name)
    rows = rows.unique()
    binary = indicators(rows)
    joined = join_columns(binary)
    assert joined.joined_domain.names == rows.domain.names
    levels = [[label.split("=", 1)[1] for label in v.labels] for v in joined.joined_domain]
    assert levels == [list(v.labels) for v in rows.domain]
    assert [v.kind for v in joined.joined_domain] == [v.kind for v in rows.domain]
    found = joined.join(binary)
    assert torch.equal(found.codes, rows.codes) and torch.equal(found.counts, rows.counts)
    back = joined.split(found)
    assert back.domain == binary.domain and torch.equal(back.codes, binary.codes)
    # Every level but the first (drop_first) is a group of which at most one is set.
    assert not join_columns(indicators(rows, drop_first=True))


def test_groups_in_mixed_order_are_found():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(list("abcde"), 600, p=[0.4, 0.3, 0.2, 0.05, 0.05]) for name in "uvwxyz"})
    binary = shuffled(indicators(Observations.from_pandas(table)), seed=1)
    groups = find_exclusive_groups(binary)
    assert sorted(sorted(group.columns) for group in groups) == [[f"{n}={k}" for k in "abcde"] for n in "uvwxyz"]


def test_names_decide_between_covers():
    rng = np.random.default_rng(1)
    k = rng.integers(0, 8, 900)
    other = np.where(k == 7, 5, rng.integers(0, 5, 900))  # its last level is k=7, too
    table = Observations.from_pandas(pd.DataFrame({"k": k, "other": other}))
    truth = [[f"k={i}" for i in range(8)], [f"other={i}" for i in range(6)]]
    for seed in range(5):
        groups = find_exclusive_groups(shuffled(indicators(table), seed))
        assert sorted(sorted(group.columns) for group in groups) == truth


def test_at_most_one_is_found_where_asked_for():
    rows = load_table("titanic")
    binary = indicators(rows, drop_first=True)
    joined = join_columns(binary, "exclusive")
    assert [group.columns for group in joined.groups] == [("Class=2nd", "Class=3rd", "Class=Crew")]
    assert joined.joined_domain["Class"].labels == ("Class=2nd", "Class=3rd", "Class=Crew", "none")
    found = joined.join(binary)
    place = {"1st": 3, "2nd": 0, "3rd": 1, "Crew": 2}
    expected = [place[label] for label in rows.to_pandas()["Class"]]
    assert found.codes[:, joined.joined_domain.index("Class")].tolist() == expected


def test_independent_columns_make_no_group():
    for seed in range(20):
        rare = coins(2000, [0.001, 0.002, 0.003, 0.004, 0.01, 0.02] * 5, seed)
        meetings = rare.codes.T @ rare.codes
        assert int((meetings == 0).sum()) > 200  # many never meet
        assert find_exclusive_groups(rare, at_most_one=True) == ()
        assert find_determined_groups(rare) == ()
        few = coins(6, [0.5] * 40, seed)  # some are complements of each other
        assert find_exclusive_groups(few, at_most_one=True) == ()
        assert find_determined_groups(few) == ()


def test_control_without_a_guard_there_would_be_groups():
    rare, few = coins(2000, [0.001, 0.002, 0.003, 0.004, 0.01, 0.02] * 5), coins(6, [0.5] * 40)
    assert joined_columns._exact_groups(joined_columns._marks(few), 1e9) != []
    assert joined_columns._loose_groups(joined_columns._marks(rare), 1e9) != []


def test_control_a_complement_is_found():
    complement = coins(200, [0.5] * 10)
    codes = torch.cat([complement.codes, 1 - complement.codes[:, :1]], 1)
    rows = Observations.from_tensor(codes, Domain.from_cardinalities([2] * 11))
    assert [group.columns for group in find_exclusive_groups(rows)] == [("x0", "x10")]


def test_rare_levels_belong_to_a_group_that_is_otherwise_complete():
    codes = torch.zeros((5000, 3), dtype=torch.long)
    codes[:4, 2], codes[4:2000, 1], codes[2000:, 0] = 1, 1, 1
    rows = Observations.from_tensor(codes, Domain.from_cardinalities([2] * 3))
    assert [group.columns for group in find_exclusive_groups(rows)] == [("x0", "x1", "x2")]


def test_columns_that_are_never_set_join_the_group_of_their_name():
    codes = torch.zeros((90, 4), dtype=torch.long)
    codes[torch.arange(90), torch.arange(90) % 3 * torch.tensor([1]) + (torch.arange(90) % 3 > 1)] = 1
    names = ["k=10", "k=9", "k=8", "k=7"]
    rows = Observations.from_tensor(codes, Domain.from_cardinalities(dict.fromkeys(names, 2)))
    assert codes.sum(0).tolist() == [30, 30, 0, 30]
    joined = join_columns(rows)
    assert [group.columns for group in joined.groups] == [("k=10", "k=9", "k=7", "k=8")]
    assert joined.joined_domain["k"].labels == ("k=7", "k=8", "k=9", "k=10")
    assert joined.joined_domain["k"].kind == "ordinal"
    other = Observations(Domain(type(v)(v.name.replace("k=8", "l"), v.labels) for v in rows.domain), codes)
    assert join_columns(other).joined_domain.names == ("k", "l")  # control: by another name it is a column of its own


@pytest.mark.parametrize(
    "names",
    [
        ["size_small", "size_medium", "size_large"],
        ["age[5-9]", "age[10-14]", "age[15+]"],
        ["k_(-inf, 3]", "k_(3, 10]", "k_(10, inf]"],
        ["k=[0,9)", "k=[9,18)", "k=[18,65)"],
    ],
)
def test_the_names_of_a_group_say_the_order_of_its_levels(names):
    codes = torch.eye(3, dtype=torch.long).repeat(30, 1)
    shuffled = Observations.from_tensor(codes, Domain.from_cardinalities({names[i]: 2 for i in (2, 0, 1)}))
    (variable,) = join_columns(shuffled).joined_domain
    assert (variable.kind, variable.labels) == ("ordinal", tuple(names))
    words = Observations.from_tensor(codes, Domain.from_cardinalities({f"k_{word}": 2 for word in ("c", "a", "b")}))
    assert join_columns(words).joined_domain.variables[0].kind == "nominal"  # control


def test_counts_and_rows_say_the_same():
    rows = indicators(load_table("ucb_admissions"))
    long = Observations(rows.domain, rows.codes.repeat_interleave(rows.counts.long(), 0))
    assert find_exclusive_groups(rows) == find_exclusive_groups(long) != ()
    # As six cells, not as 4,526 observations, they would not be enough.
    assert find_exclusive_groups(Observations(rows.domain, rows.codes[:6])) == ()


def test_columns_that_say_another_are_found():
    rng = np.random.default_rng(3)
    a = rng.integers(0, 8, 1000)
    table = np.stack([a, a // 2, rng.integers(0, 4, 1000), (a > 3).astype(int)], 1)
    table[:2, 1] = 3  # two exceptions
    rows = Observations.from_tensor(torch.from_numpy(table), Domain.from_cardinalities([8, 4, 4, 2]))
    (group,) = find_determined_groups(rows)
    assert (group.columns, set(group.levels)) == (("x0", "x1", "x3"), set(map(tuple, table[:, [0, 1, 3]].tolist())))
    joined = join_columns(rows, "determined")
    assert torch.equal(joined.split(joined.join(rows)).codes, rows.codes)
    identifier = Observations.from_tensor(
        torch.stack([torch.arange(60), torch.arange(60) % 2], 1), Domain.from_cardinalities([60, 2])
    )
    assert find_determined_groups(identifier) == ()


def test_rows_that_break_a_group_or_leave_it_open():
    domain = Domain.from_cardinalities({"k=a": 2, "k=b": 2, "k=c": 2, "w": 2})
    joined = JoinedColumns(domain, (ColumnGroup.exclusive(["k=a", "k=b", "k=c"]),))
    codes = torch.tensor(
        [[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0], [0, -1, -1, 1], [-1, -1, -1, 0], [-1, 1, -1, -1], [0, 0, -1, 1]]
    )
    found = joined.read(Observations.from_tensor(codes, domain))
    assert found.rows.codes[:, 0].tolist() == [0, -1, -1, -1, -1, 1, 2]
    assert found.is_broken[:, 0].tolist() == [False, True, True, False, False, False, False]
    assert found.is_open[:, 0].tolist() == [False, False, False, True, False, False, False]
    assert found.log_factors.tolist() == [0.0, -math.inf, -math.inf, 0.0, 0.0, 0.0, 0.0]
    weights, of_row = found.evidence["k"]
    assert of_row.tolist() == [0, 0, 0, 1, 0, 0, 0] and weights[1].tolist() == [-math.inf, 0.0, 0.0]
    for bad in (1, 2, 3):
        with pytest.raises(InputError, match=r"1 rows (break|do not say)"):
            joined.join(Observations.from_tensor(codes[bad : bad + 1], domain))
    with pytest.raises(InputError, match="the columns that were joined"):
        joined.read(found.rows)
    with pytest.raises(InputError, match="the joined variables"):
        joined.split(Observations.from_tensor(codes, domain))


def test_json_round_trip_and_bad_groups():
    rows = indicators(load_table("titanic"))
    joined = join_columns(rows)
    assert JoinedColumns.from_json(json.loads(json.dumps(joined.to_json()))) == joined
    domain, group = rows.domain, joined.groups[0]
    for groups in ((group, group), (ColumnGroup(group.columns, group.levels, domain.names[-1]),)):
        with pytest.raises(InputError):
            JoinedColumns(domain, groups)
    with pytest.raises(InputError, match="levels"):
        JoinedColumns(domain, (ColumnGroup(domain.names[:2], ((0, 0), (2, 1))),))
    for columns, levels in ((("a",), ((0,), (1,))), (("a", "b"), ((0, 1),)), (("a", "b"), ((0, 1), (0, 1)))):
        with pytest.raises(InputError):
            ColumnGroup(columns, levels)
    for bad in ({}, {"domain": [], "groups": [{}]}, {"domain": 3, "groups": []}):
        with pytest.raises(InputError):
            JoinedColumns.from_json(bad)


def test_laplace_rule_for_rows_that_break_a_group():
    """Oracle: counts by hand of rows of which some break the group, and one has a missing cell."""
    domain = Domain.from_cardinalities({"k=a": 2, "k=b": 2, "w": 3})
    codes = torch.tensor([[1, 0, 0], [0, 1, 1], [1, 1, 2], [-1, 0, 1]])
    rows = Observations(domain, codes, torch.tensor([5.0, 3.0, 2.0, 7.0]))
    declared = JoinedColumns(domain, (ColumnGroup.exclusive(["k=a", "k=b"]),))
    joined = declared.with_breaks(rows)
    assert joined.groups[0].broken == BrokenLaw(3 / 12, 10.0, ((4 / 12, 8 / 12), (6 / 12, 6 / 12)))
    assert JoinedColumns.from_json(json.loads(json.dumps(joined.to_json()))) == joined
    assert "with probability 0.25 (Laplace's rule, 10 rows)" in joined.sentence()
    with pytest.raises(InputError, match="the columns that were joined"):
        declared.with_breaks(rows.project(["k=a", "k=b"]))
    assert joined.never_broken() == declared and "are impossible" in declared.sentence()
    # Rows that break the group have the law of independent columns beside the levels: 11 and 00.
    cells = np.array([[1, 1], [0, 0], [1, 0], [1, -1]])
    found = np.logaddexp.reduce(joined.groups[0].log_broken(cells), axis=1)
    np.testing.assert_allclose(np.exp(found), 0.25 * np.array([2 / 3, 1 / 3, 0, 2 / 3]), rtol=1e-12)
    # Groups that are found can be broken, but not one of which every combination is a level.
    found = join_columns(indicators(load_table("titanic")))
    assert {group.broken.probability for group in found.groups} == {1 / 2203}
    assert join_columns(indicators(load_table("titanic")), "hard") == found.never_broken()
    every = ColumnGroup(("k=a", "k=b"), ((0, 0), (0, 1), (1, 0), (1, 1)))
    assert JoinedColumns(domain, (every,)).with_breaks(rows).groups == (every,)


def test_bad_laws_of_broken_rows():
    group, shares = ColumnGroup.exclusive(["a", "b"]), ((0.5, 0.5), (0.1, 0.9))
    law = BrokenLaw(0.1, 8.0, shares)
    for probability, bad in ((0.0, shares), (1.0, shares), (0.1, ((1.0, 0.0), (0.5, 0.5))), (0.1, ((0.4, 0.5), ()))):
        with pytest.raises(InputError, match="BrokenLaw"):
            BrokenLaw(probability, 8.0, bad)
    every = ColumnGroup(("a", "b"), ((0, 0), (0, 1), (1, 0), (1, 1)))
    for other in (every, ColumnGroup.exclusive(["a", "b", "c"])):
        with pytest.raises(InputError, match="no level"):
            replace(other, broken=law)
    with pytest.raises(InputError, match="one share for every level"):
        JoinedColumns(Domain.from_cardinalities({"a": 2, "b": 3}), (replace(group, broken=law),))


def test_names_of_groups_do_not_clash():
    rows = indicators(load_table("titanic"))
    renamed = Domain(
        type(v)({"Age=Child": "Class=A", "Age=Adult": "Class=B"}.get(v.name, v.name), v.labels) for v in rows.domain
    )
    joined = join_columns(Observations(renamed, rows.codes, rows.counts))
    assert sorted(group.name for group in joined.groups) == ["Class", "Class (2)", "Sex", "Survived"]


def test_sets_of_columns_as_sets_of_variables():
    joined = join_columns(indicators(load_table("titanic")))
    sets = [("Class=1st", "Sex=Male"), ("Class=2nd", "Sex=Female"), ("Sex=Male", "Sex=Female")]
    assert joined.sets(sets) == [("Class", "Sex")]


@pytest.mark.parametrize("dummies", ["text", "booleans"])
def test_indicator_columns_without_a_set_row_belong_to_their_names(dummies):
    """Oracle: the columns that pandas.get_dummies makes of one column."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({name: random.choice(list(levels), 200) for name, levels in (("s", "abc"), ("s_x", "uvw"))})
    wide = pd.get_dummies(frame, dummy_na=True)
    rows = Observations.from_pandas(wide.astype(int).astype(str) if dummies == "text" else wide)
    joined = join_columns(rows)
    expected = [{name for name in wide if name.startswith("s_") and not name.startswith("s_x")}]
    expected.append({name for name in wide if name.startswith("s_x")})
    assert [set(group.columns) for group in joined.groups] == expected
    assert torch.equal(joined.split(joined.join(rows)).codes, rows.codes)
    alone = Observations.from_pandas(wide.rename(columns={"s_nan": "other"}))  # control: by another name
    assert "other" not in {name for group in join_columns(alone).groups for name in group.columns}
