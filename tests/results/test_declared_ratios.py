"""Odds ratios beside declared impossible combinations: which exist is what the possible cells determine.

The oracles are ranks of indicator matrices made here, and linear programs over the cells of the table.
"""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linprog

import pyro_hoim as hoim
from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.cli import run
from pyro_hoim.log_linear import L2, Auto
from pyro_hoim.results.pictures import ResultStudy
from pyro_hoim.study import analyse

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")

UNTRUE = "cannot be estimated"


def indicators(shape, edges, first=None):
    """Indicators (n, k) of a constant and of all levels but the first ones, and their names."""
    cells, first = np.array(list(np.ndindex(*shape))), first or (0,) * len(shape)
    columns, names = [np.ones(len(cells))], [("", "")]
    for edge in edges:
        for levels in itertools.product(*([k for k in range(shape[i]) if k != first[i]] for i in edge)):
            columns.append((cells[:, list(edge)] == levels).all(1).astype(float))
            words = ", ".join(f"{'abcd'[i]}={k} vs {first[i]}" for i, k in zip(edge, levels, strict=True))
            names.append((":".join("abcd"[i] for i in edge), words))
    return np.stack(columns, 1), names


def graph_of(shape, formula):
    domain = Domain.from_cardinalities(dict(zip("abcd", shape, strict=False)))
    graph = InteractionHypergraph.from_formula(domain, formula)
    return graph, [domain.indices(edge) for edge in graph.edges]


def verdicts(shape, edges, declared, seen=None, first=None):
    """Of every odds ratio whether it is absent, finite, infinite, 0, or of no certain sign."""
    matrix, names = indicators(shape, edges, first)
    possible = ~declared.ravel()
    seen = possible if seen is None else seen.ravel()
    unseen = matrix[possible & ~seen]
    told = {}
    for column, (term, levels) in enumerate(names):
        if ":" not in term:
            continue
        contrast = np.eye(matrix.shape[1])[column]
        ranks = [np.linalg.matrix_rank(np.vstack([matrix[possible], row])) for row in (contrast, 0 * contrast)]
        if ranks[0] > ranks[1]:
            told[term, levels] = "absent"
            continue
        # Directions along which no likelihood falls: seen cells stay, possible cells without a row may only fall.
        options = {"A_eq": matrix[seen], "b_eq": np.zeros(seen.sum()), "bounds": [(-1, 1)] * len(contrast)}
        options |= {"A_ub": unseen, "b_ub": np.zeros(len(unseen))} if len(unseen) else {}
        rises, falls = (-linprog(-sign * contrast, **options).fun > 1e-7 for sign in (1, -1))
        told[term, levels] = {(0, 0): "finite", (1, 0): "infinite", (0, 1): "0", (1, 1): "open"}[rises, falls]
    return told


def said(table):
    """The same of a table of odds ratios."""
    absent = set(table.attrs.get("absent", ()))
    words = {}
    for term, levels, value in table[["term", "levels", "odds_ratio"]].itertuples(index=False):
        kind = "open" if math.isnan(value) else "infinite" if math.isinf(value) else "finite" if value else "0"
        words[term, levels] = "absent" if (term, levels) in absent and kind == "open" else kind
    return words


def rows_of(counts):
    domain = Domain.from_cardinalities(dict(zip("abcd", counts.shape, strict=False)))
    cells = torch.tensor(list(np.ndindex(*counts.shape)))
    return Observations(domain, cells, torch.from_numpy(counts.ravel().astype(float)))


@pytest.mark.parametrize("seed", [*range(10), 134, 140, 149])
def test_what_exists_and_what_is_infinite_is_what_cells_determine(seed):
    """Seeds from 134 on are tables in which declared cells would lend an uncertain odds ratio a sign."""
    rng = np.random.default_rng(seed)
    shape = [(3, 3), (2, 3, 2), (3, 3, 2)][seed % 3]
    graph, edges = graph_of(shape, ".^2")
    declared = rng.random(shape) < 0.2
    counts = np.where(declared | (rng.random(shape) < 0.25), 0, rng.integers(1, 20, shape))
    table = hoim.fit(graph, rows_of(counts), structural_zeros=declared).odds_ratios()
    expected = verdicts(shape, edges, declared, counts > 0)
    assert said(table) == expected
    finite = table["odds_ratio"].between(0, math.inf, inclusive="neither")
    assert table.loc[finite, ["lower", "upper"]].notna().to_numpy().all()
    number = sum(kind == "absent" for kind in expected.values())
    assert any("not exist" in note for note in table.attrs["notes"]) == (number > 0)


PAIR = "a*b + b*c + c*d"
KINDS = {
    "one cell of a pair": ((4, 3, 2, 2), PAIR, [{"a": 1, "b": 2}]),
    "a whole row of a pair": ((4, 3, 2, 2), PAIR, [{"a": 2, "b": [0, 1, 2]}]),
    "the first levels": ((3, 3, 2, 2), PAIR, [{"a": 0, "b": 0}]),
    "three levels": ((3, 3, 3, 3), "a*b + c + d", [{"a": 1, "b": 1}]),
    "two pairs": ((3, 3, 2, 2), PAIR, [{"a": 1, "b": 1}, {"c": 1, "d": 1}]),
    "three columns": ((3, 2, 2, 2), "a*b*c + d", [{"a": 2, "b": 1, "c": 1}]),
    "three columns, pairs alone": ((3, 2, 2, 2), "a*b + a*c + b*c + d", [{"a": 2, "b": 1, "c": 1}]),
    "columns that do not interact": ((3, 3, 2, 2), PAIR, [{"a": 1, "d": 1}]),
    "nothing": ((3, 3, 2, 2), PAIR, []),
}


def mask_of(shape, combinations):
    mask = np.zeros(shape, dtype=bool)
    for combination in combinations:
        mask[np.ix_(*(np.atleast_1d(combination.get("abcd"[i], range(n))) for i, n in enumerate(shape)))] = True
    return mask


def case(name, seed=0):
    shape, formula, combinations = KINDS[name]
    mask = mask_of(shape, combinations)
    counts = np.where(mask, 0, np.random.default_rng(seed).integers(20, 40, shape))
    return graph_of(shape, formula), mask, rows_of(counts), combinations


def check_sentences(sentences, expected):
    """Every interaction with the number of its odds ratios that do not exist."""
    shown = " ".join(sentences)
    lost = pd.Series(expected).eq("absent").groupby(level=0).agg(["sum", "size"])
    lost = lost[lost["sum"] > 0]
    assert UNTRUE not in shown and ("do not exist" in shown) == bool(len(lost))
    for term, (number, size) in lost.iterrows():
        names = term.split(":")
        what = " with ".join(names) if len(names) == 2 else f"{', '.join(names[:-1])} and {names[-1]} together"
        some = f"{number} of the {size}" if number < size else "that" if size == 1 else f"all {size}"
        assert f"{some} of {what}" in shown
    if len(lost):
        left = len(expected) - lost["sum"].sum()
        assert ("all others do" in shown, "the other one does" in shown) == (left > 1, left == 1)


@pytest.mark.parametrize("name", KINDS)
def test_pages_and_prints_say_which_odds_ratios_exist(name, tmp_path, monkeypatch, capsys):
    (graph, edges), mask, rows, combinations = case(name)
    expected = verdicts(mask.shape, edges, mask)
    result = hoim.fit(graph, rows, structural_zeros=combinations)
    result.save(tmp_path / "m.safetensors")
    loaded = hoim.load(tmp_path / "m.safetensors")
    study = analyse({"train": rows}, {"model": graph}, structural_zeros=combinations)
    declared = f"; {(~mask).sum()} of {mask.size} rows are possible."
    for page in (study.page(), ResultStudy.of(result).page(), ResultStudy.of(loaded).page()):
        check_sentences(page.summary, expected)
        # What is declared is told where nothing is folded.
        shown = [line for line in page.warnings[:3] if line.startswith("Declared impossible: ") and declared in line]
        assert len(shown) == bool(combinations)
    for model in (result, loaded):
        assert said(model.odds_ratios()) == expected
        printed = f"{model.odds_ratios()}{model.summary()}"
        assert UNTRUE not in printed and ("not exist" in printed) == ("absent" in expected.values())
        assert "the rows do not tell" not in printed and "lack combinations" not in printed
    # The command says what the method says, null where there is no odds ratio.
    monkeypatch.chdir(tmp_path)
    assert run(["interactions", "m.safetensors"]) == 0
    assert UNTRUE not in (printed := capsys.readouterr().out)
    assert ("not exist" in printed) == ("absent" in expected.values())
    assert run(["interactions", "m.safetensors", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["odds_ratios"]
    absent = {(":".join(row["edge"]), row["levels"]) for row in found["rows"] if row["odds_ratio"] is None}
    assert absent == {key for key, kind in expected.items() if kind == "absent"}
    assert UNTRUE not in str(found["notes"])


def test_fit_prints_what_the_page_says(tmp_path, monkeypatch, capsys):
    (_, edges), mask, rows, _ = case("two pairs")
    rows.rows(rows.counts > 0).to_pandas(count="count").to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    words = ["fit", "t.csv", "--edges", PAIR, "--count", "count"]
    zeros = ["--structural-zeros", "a=1,b=1", "--structural-zeros", "c=1,d=1"]
    assert run([*words, *zeros, "--out", "m"]) == 0
    printed = capsys.readouterr().out
    check_sentences(printed.split("What limits this:")[0].splitlines(), verdicts(mask.shape, edges, mask))
    limits = printed.split("What limits this:")[1].split("\n\n")[0]
    assert f"{(~mask).sum()} of {mask.size} rows are possible" in limits
    assert run([*words, *zeros, "--out", "j", "--json"]) == 0
    assert UNTRUE not in capsys.readouterr().out


def test_other_first_levels_have_their_own_odds_ratios(tmp_path):
    """Against a=1, b=1 the declared first cell spoils one of four; files without rows say the same."""
    (graph, edges), mask, rows, combinations = case("the first levels")
    result = hoim.fit(graph, rows, structural_zeros=combinations)
    assert any("reference=" in note for note in result.odds_ratios().attrs["notes"])
    result.save(tmp_path / "m.safetensors")
    loaded, reference = hoim.load(tmp_path / "m.safetensors"), {"a": "1", "b": "1"}
    expected = verdicts(mask.shape, edges, mask, first=(1, 1, 0, 0))
    assert sum(kind == "absent" for (term, _), kind in expected.items() if term == "a:b") == 1
    tables = [model.odds_ratios(reference=reference) for model in (result, loaded)]
    assert all(said(table) == expected for table in tables)
    assert not any("reference=" in note for note in tables[0].attrs["notes"])
    values = [table.set_index(["term", "levels"])["odds_ratio"].sort_index() for table in tables]
    pd.testing.assert_series_equal(*values, rtol=1e-6)
    tables = [model.summary(reference=reference) for model in (result, loaded)]
    values = [table.set_index(["term", "levels"])["estimate"].sort_index() for table in tables]
    pd.testing.assert_series_equal(*values, rtol=1e-6)
    assert values[0].isna().sum() == 1


def test_a_prior_makes_no_odds_ratio_of_impossible_combinations():
    (graph, edges), mask, rows, combinations = case("one cell of a pair")
    result = hoim.fit(graph, rows, structural_zeros=combinations, penalty=L2(0.5))
    table = result.odds_ratios()
    assert said(table) == verdicts(mask.shape, edges, mask)
    assert table["lower"].isna().sum() == 1
    summary = result.summary()
    absent = summary[summary["estimate"].isna()]
    assert absent[["term", "levels"]].to_numpy().tolist() == [["a:b", "1, 2"]] and absent["or_lower"].isna().all()


def test_a_formula_of_scores_has_odds_ratios_beside_impossible_cells():
    """Uniform association: one parameter, which the other cells determine."""
    mask = mask_of((3, 3), [{"a": 1, "b": 1}])
    rows = rows_of(np.where(mask, 0, np.random.default_rng(0).integers(20, 40, (3, 3))))
    result = hoim.fit("a + b + linear(a):linear(b)", rows, structural_zeros=mask)
    assert not result.interactions()["is_infinite"].any()
    assert said(result.odds_ratios()) == {("linear(a):linear(b)", "per step of a, per step of b"): "finite"}


@pytest.mark.parametrize("name", ["one cell of a pair", "a whole row of a pair", "two pairs", "three columns"])
def test_wide_tables_know_the_same(name, monkeypatch):
    """Without a list of cells, by the uniform law; beyond that by the declared combinations of interactions."""
    (graph, edges), mask, rows, combinations = case(name)
    expected = verdicts(mask.shape, edges, mask)
    options = {"structural_zeros": combinations, "partition": Auto(), "stopping": hoim.log_linear.Stopping(1e-9)}
    result = hoim.fit(graph, rows, **options)
    assert not result.is_listed and said(result.odds_ratios()) == expected
    monkeypatch.setattr("pyro_hoim.log_linear.fitting.identified._MAX_RANK_PARAMETERS", 0)
    monkeypatch.setattr("pyro_hoim.log_linear.infinite._MOST_PARAMETERS", 0)  # no standard errors
    table = hoim.fit(graph, rows, **options).odds_ratios()
    assert table["lower"].isna().all() and said(table) == expected


def test_penalised_errors_of_wide_tables_are_those_of_their_cells():
    """A penalty makes the information regular, so that no part of it may be left out before it is inverted."""
    (graph, _), _, rows, combinations = case("one cell of a pair")
    tables = []
    for partition in (Auto(), None):
        options = {"structural_zeros": combinations, "penalty": L2(2.0, coding="corner"), "partition": partition}
        result = hoim.fit(graph, rows, stopping=hoim.log_linear.Stopping(1e-10), **options)
        assert result.is_listed == (partition is None)
        tables.append(result.odds_ratios().set_index(["term", "levels"])[["odds_ratio", "lower", "upper"]].sort_index())
    assert tables[0].isna().any(axis=None) and tables[0].notna().any(axis=None)
    pd.testing.assert_frame_equal(*tables, rtol=1e-5)
