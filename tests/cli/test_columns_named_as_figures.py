"""Every figure of every table as the name of a column. The oracle is the same data with names that nothing has."""

import json
import re
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim.core.law import Law
from pyro_hoim.dependency_network import conditional_inference_error, full_conditionals
from pyro_hoim.information import all_refined_information
from pyro_hoim.log_linear import cell_table, coefficient_table, odds_ratio_table, term_tests

PLAIN = ("qqa", "qqb", "qqc")
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


def _labels(names):
    """Three columns of labels, each of which goes with the next."""
    rng = np.random.default_rng(5)
    first = rng.integers(0, 2, 400)
    second = np.where(rng.random(400) < 0.7, first, rng.integers(0, 3, 400))
    third = np.where(rng.random(400) < 0.6, second % 2, rng.integers(0, 2, 400))
    columns = [np.array(list("xyz"))[codes] for codes in (first, second, third)]
    return pd.DataFrame(dict(zip(names, columns, strict=True)))


@cache
def _tables(names):
    """Every table of results that the library gives, by what it is."""
    frame, counts = _labels(names), pd.DataFrame(np.random.default_rng(6).poisson(2.0, (60, 3)), columns=list(names))
    fit = hoim.fit(frame, order=3, count=None)
    pairs = hoim.fit(frame, order=2, count=None)
    network = hoim.learn_network(hoim.Observations.from_pandas(frame, count=None))
    roots = hoim.fit_roots(hoim.CountTable.from_pandas(counts), "poisson", order=2, l1=0.1)
    law = Law(fit.hypergraph.domain, fit.probs.reshape(fit.hypergraph.domain.cardinalities))
    gaps = frame.iloc[:40].mask(np.random.default_rng(7).random((40, 3)) < 0.3)
    missing = hoim.Observations.from_pandas(gaps, domain=fit.hypergraph.domain, count=None)
    summaries = {f"summary of {i}": model.summary() for i, model in enumerate((fit, network, roots))}
    ties = {f"ties of {i}": model.interactions() for i, model in enumerate((fit, network, roots))}
    predictions = {
        f"column {k} by {i}": hoim.predict(model, rows.iloc[:9], name)
        for i, (model, rows) in enumerate(((fit, frame), (network, frame), (roots, counts)))
        for k, name in enumerate(names)
    }
    return {
        **summaries,
        **ties,
        **predictions,
        "odds ratios": odds_ratio_table(fit, names[0], names[1]),
        "odds ratios, turned": odds_ratio_table(fit, names[2], names[0]),
        "cells": cell_table(pairs),
        "coefficients": coefficient_table(pairs),
        "tests": term_tests(pairs, p_value="chi-square"),
        "comparison": hoim.compare({"small": pairs, "large": fit}),
        "information": all_refined_information(law).to_pandas(),
        "conditional inference": conditional_inference_error(law, full_conditionals(law), names[:2]).to_pandas(),
        "completed": hoim.impute(fit, missing, 2, seed=1),
        "completed by a network": hoim.impute(network, missing, 2, seed=1),
        "drawn": hoim.sample(fit, 20, seed=1),
    }


def _renamed(value, names):
    """Text about the plain names, said of others."""
    places = dict(zip(PLAIN, names, strict=True))
    if isinstance(value, str):
        return re.sub("|".join(PLAIN), lambda word: places[word[0]], value)
    return tuple(map(partial(_renamed, names=names), value)) if isinstance(value, tuple | list) else value


def _said(table, names):
    """A table with what its cells say of the plain names said of others."""
    frame = pd.DataFrame(table)
    columns = [
        column if pd.api.types.is_numeric_dtype(column) else [_renamed(value, names) for value in column]
        for _, column in frame.items()
    ]
    said = pd.DataFrame(dict(enumerate(columns)), index=frame.index)
    return said.set_axis(frame.columns, axis=1)


def test_every_figure_of_every_table_may_be_a_column():
    # Names of figures, as the tables have them
    figures = sorted({str(column) for table in _tables(PLAIN).values() for column in table.columns} - {*PLAIN})
    assert {"z", "observed", "odds_ratio", "predicted", "mean", "prob", "imputation", "term"} <= {*figures}  # control
    for group in zip(*[iter([*figures, *figures[: -len(figures) % 3]])] * 3, strict=True):
        for what, table in _tables(group).items():
            plain = _tables(PLAIN)[what]
            expected = _said(plain, group)
            taken = {str(name) for name in plain.columns} - {*PLAIN}
            called = {name: f"{new} (column)" if new in taken else new for name, new in zip(PLAIN, group, strict=True)}
            expected.columns = [called.get(name, name) for name in plain.columns]
            expected.index = plain.index.map(partial(_renamed, names=group))
            pd.testing.assert_frame_equal(
                _said(table, group),
                expected,
                check_names=False,
                check_dtype=False,
                check_categorical=False,
                **TOLERANCE,
            )
            # The control: no figure was lost to a column, and the other way round.
            assert len({*table.columns}) == len(plain.columns)


@pytest.fixture(scope="module")
def expected():
    """What the fit of plain names gives, once there."""
    return []


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
@pytest.mark.parametrize("names", [("z", "lower", "observed"), ("odds_ratio", "interaction", "expected")])
def test_a_fit_with_a_posterior_has_the_same_figures_and_files(shell, tmp_path, monkeypatch, expected, names):
    def made(named):
        """What a fit prints and writes, and predictions of every column beside the rows."""
        folder = tmp_path / named[0]
        folder.mkdir()
        monkeypatch.chdir(folder)
        _labels(named).to_csv("rows.csv", index=False)
        words = ["--order", "3", "--posterior", "--num-chains", "2", "--num-draws", "10", "--burn-in", "10"]
        found = shell.json("fit", "rows.csv", *words, "--out", "fit")
        shell("predict", "fit", "rows.csv", *[w for name in named for w in ("--target", name)], "--out", "p.csv")
        tables = {path.name: path.read_text() for path in [*sorted(Path("fit", "tables").iterdir()), Path("p.csv")]}
        left_out = ("seconds", "peak_memory_mb", "provenance", "files")
        return json.dumps({key: value for key, value in found.items() if key not in left_out}), tables

    if not expected:
        expected.append(made(PLAIN))
    found, tables = made(names)
    plain, plain_tables = expected[0]
    assert found == _renamed(plain, names)
    assert tables.keys() == plain_tables.keys() and any(
        name.startswith("observed-and-expected-counts") for name in tables
    )
    for file, text in tables.items():
        head, *rows = text.splitlines()
        assert rows == _renamed(plain_tables[file], names).splitlines()[1:], file
        assert len({*head.split(",")}) == len(head.split(",")), file  # every column has a name of its own


@pytest.mark.parametrize("name", ["predicted", "is_exact", "p(x)", "other"])
def test_predictions_of_columns_that_are_called_like_them(shell, name):
    """The oracle is the prediction in Python; a model's own column has its predictions under its name."""
    frame = _labels((name, "b", "c"))
    frame.to_csv("rows.csv", index=False)
    shell("fit", "rows.csv", "--order", "2", "--out", "fit")
    for target in (name, "b"):
        shell("predict", "fit", "rows.csv", "--target", target, "--out", f"{target}.csv")
        found = pd.read_csv(f"{target}.csv")
        expected = hoim.predict(hoim.load("fit"), frame, target)
        pd.testing.assert_frame_equal(found.iloc[:, :3], frame, check_dtype=False)
        prefix = f"{target}: " if name in expected else ""
        assert list(found.columns[3:]) == [prefix + column for column in expected]
        assert found.iloc[:, 3].tolist() == expected["predicted"].astype(str).tolist()
