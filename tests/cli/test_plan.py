"""``plan`` as text and as JSON, and the routes that ``fit`` takes where nothing typed asks for given interactions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim


def write(name, frame):
    frame.to_csv(name, index=False)
    return name


def small():
    codes = np.random.default_rng(0).integers(0, 3, (200, 4))
    return write("small.csv", pd.DataFrame(codes).add_prefix("v"))


def baskets(num_columns=120):
    rng = np.random.default_rng(1)
    bought = (rng.random((1200, num_columns)) < 0.25).astype(int)
    bought[:, 1] = rng.random(1200) < np.where(bought[:, 0] == 1, 0.7, 0.15)
    return write("baskets.csv", pd.DataFrame(bought).add_prefix("x"))


def counts():
    rng = np.random.default_rng(2)
    own = rng.poisson([0.5, 1.0, 0.3, 2.0], (200, 4))
    own[:, :2] += rng.poisson(1.0, (200, 1))
    return write("counts.csv", pd.DataFrame(own, columns=["sea", "sun", "sand", "rain"]))


@pytest.mark.parametrize(
    ("make", "advised", "command"),
    [
        (small, "pairs", "pyro-hoim fit small.csv --order 2"),
        (baskets, "network", "pyro-hoim fit baskets.csv --model dependency-network --penalty ebic"),
        (counts, "roots", "pyro-hoim fit counts.csv --model grm --order 2"),
        (lambda: "titanic", "pairs", "pyro-hoim fit titanic --order 2"),
    ],
)
def test_the_plan_names_the_command_that_is_advised(make, advised, command, shell):
    name = make()
    found = shell.json("plan", name)
    assert found["advised"] == advised
    (route,) = [route for route in found["routes"] if route["name"] == advised]
    assert route["is_open"] and route["command"] == command and route["seconds"] > 0
    text = shell("plan", name).out
    assert f"\nAdvised: {command}, because {found['why']}." in text and "hoim." not in text.split("Advised")[1]
    assert sorted(path.name for path in Path().iterdir()) in ([], [name])


def test_the_plan_takes_the_options_on_how_a_file_is_read(shell):
    frame = pd.DataFrame({"a": ["x", "y", "?"] * 40, "b": [0, 1] * 60, "times": 2, "age": np.arange(120) / 7})
    write("t.csv", frame)
    words = ["--columns", "a,b,age", "--missing", "?", "--missing", "drop", "--bins", "age=quantile:3"]
    found = shell.json("plan", "t.csv", *words)
    levels = {column["name"]: len(column["levels"]) for column in found["columns"]}
    assert levels == {"a": 2, "b": 2, "age": 3} and found["columns"][0]["num_missing"] == 40
    assert shell.json("plan", "t.csv", "--count", "times", "--columns", "a,b")["advised"] == "pairs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.csv"], "nothing.csv: no such file"),
        (["titanic", "--columns", "Sx"], "--columns: unknown name 'Sx'; did you mean 'Sex'"),
        (["titanic", "--missing", "drop", "--missing", "marginalise"], "--missing: give one of drop and marginalise"),
        (["titanic", "--bins", "Sex"], "--bins"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(words, message, shell):
    assert message.split(":")[0] in shell.refused("plan", *words)


def test_a_fit_takes_all_pairs_in_silence_where_these_are_in_reach(shell):
    done = shell("fit", small(), "--json", "--out", "o")
    assert "note:" not in done.err
    assert hoim.load("o").kind == "hierarchical-log-linear" and len(hoim.load("o").interactions()) == 10


def test_a_fit_of_a_wide_file_is_a_network_and_one_line_says_so(shell):
    done = shell("fit", baskets(), "--json", "--out", "o")
    (line,) = [line for line in done.err.splitlines() if "so this is" in line]
    command = "pyro-hoim fit baskets.csv --model dependency-network --penalty ebic"
    assert f"so this is {command}; --order 2 asks for all pairs" in line and "pyro-hoim plan baskets.csv shows" in line
    assert {frozenset(term.split(":")) for term in hoim.load("o").interactions(2)["term"]} == {frozenset(("x0", "x1"))}
    # The command that the line names gives the same model.
    shell(*command.split()[1:], "--json", "--out", "again")
    pd.testing.assert_frame_equal(hoim.load("o").interactions(), hoim.load("again").interactions())


def test_a_fit_of_counts_is_a_root_model_and_options_on_levels_say_otherwise(shell):
    name = counts()
    done = shell("fit", name, "--json", "--out", "o")
    assert "so this is pyro-hoim fit counts.csv --model grm --order 2" in done.err
    assert hoim.load("o").kind == "generalized-root"
    for i, words in enumerate((["--order", "1"], ["--target", "sea"], ["--model", "log-linear"])):
        assert "so this is" not in shell("fit", name, *words, "--json", "--out", f"labels{i}").err
        assert hoim.load(f"labels{i}").kind == "hierarchical-log-linear"
