"""``plan`` as text and as JSON, and the routes that ``fit`` takes where nothing typed asks for given interactions."""

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim import planning
from pyro_hoim.core.command import reading

from support.calls import noted


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
        (counts, "roots", "pyro-hoim fit counts.csv --model grm --order 2 --l1 0.1"),
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
    assert f"so this is {command}; --order 2 alone asks for" in line and "pyro-hoim plan baskets.csv shows" in line
    assert {frozenset(term.split(":")) for term in hoim.load("o").interactions(2)["term"]} == {frozenset(("x0", "x1"))}
    # The command that the line names gives the same model.
    shell(*command.split()[1:], "--json", "--out", "again")
    pd.testing.assert_frame_equal(hoim.load("o").interactions(), hoim.load("again").interactions())


def test_a_fit_of_counts_is_a_root_model_and_options_on_levels_say_otherwise(shell):
    name, some = counts(), ["--columns", "sea,sun,sand"]
    done = shell("fit", name, *some, "--json", "--out", "o")
    assert "so this is pyro-hoim fit counts.csv --columns sea,sun,sand --model grm --order 2 --l1 0.1" in done.err
    assert hoim.load("o").kind == "generalized-root"
    for i, words in enumerate((["--order", "1"], ["--target", "sea"], ["--model", "log-linear"])):
        assert "so this is" not in shell("fit", name, *some, *words, "--json", "--out", f"labels{i}").err
        assert hoim.load(f"labels{i}").kind == "hierarchical-log-linear"


def mixed():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 2, (200, 4)).astype(str)
    codes[:, 1] = np.where(rng.random(200) < 0.8, codes[:, 0], codes[:, 1])
    frame = pd.DataFrame(codes, columns=["a", "b c", "d", "e"])
    frame["age"], frame["w"] = rng.normal(50, 12, 200).round(2), rng.uniform(0.5, 2, 200).round(3)
    frame.loc[:9, "d"] = "?"
    frame.to_csv("my table.csv", index=False, sep=";")
    return "my table.csv"


def plan_of_file(shell, *words):
    """The plan, and the words of its commands by route; as text it advises one of them."""
    plan = shell.json("plan", *words)
    commands = {route["name"]: shlex.split(route["command"] or "") for route in plan["routes"] if route["is_open"]}
    (line,) = [line for line in shell("plan", *words).out.splitlines() if line.startswith("Advised: ")]
    assert shlex.split(line.removeprefix("Advised: ").rpartition(", because ")[0]) == commands[plan["advised"]]
    return plan, commands


TYPED = ["--columns", "a,b c,d,age", "--missing", "?", "--missing", "drop", "--sep", ";", "--bins", "age=quantile:3"]


def test_the_advised_command_repeats_the_options_on_reading_and_runs_as_printed(shell):
    plan, commands = plan_of_file(shell, mixed(), *TYPED)
    typed = [*TYPED[:2], "--sep", ";", "--bins", "age=quantile:3", "--missing", "?", "--missing", "drop"]
    assert commands["pairs"] == ["pyro-hoim", "fit", "my table.csv", *typed, "--order", "2"] and plan["assumed"] == {}
    assert commands["learn"] == ["pyro-hoim", "learn", "my table.csv", *typed, "--max-order", "2"]
    shell(*commands["pairs"][1:], "--json", "--out", "o")
    shell("fit", "my table.csv", *TYPED, "--json", "--out", "again")
    model = hoim.load("o")
    assert model.domain.names == ("a", "b c", "d", "age") and model.domain["d"].labels == ("0", "1")
    pd.testing.assert_frame_equal(model.interactions(), hoim.load("again").interactions())


def test_what_the_plan_takes_where_nothing_was_said_stands_in_its_command(shell):
    name = mixed()
    shell.refused("fit", name, "--missing", "?", "--weights", "w", "--json", "--out", "o")
    plan, commands = plan_of_file(shell, name, "--missing", "?", "--weights", "w")
    assert plan["assumed"] == {"bins": "auto", "missing": "marginalise"}
    assert "--exclude age leaves it out" in plan["notes"][0]
    note = "Nothing was said of this yet, and the plan takes --bins auto and --missing marginalise."
    assert plan["notes"][-1] == note
    shell(*commands["pairs"][1:], "--json", "--out", "o")
    assert len(hoim.load("o").domain["age"].labels) > 1


def test_a_column_that_seems_to_hold_counts_is_said_in_words_of_the_command_line(shell):
    pd.DataFrame({"a": list("xyxy"), "b": list("xxyy"), "Freq": [3, 4, 5, 6]}).to_csv("cells.csv", index=False)
    plan, commands = plan_of_file(shell, "cells.csv")
    assert "--count Freq if it does, --count none if not" in plan["notes"][0] and plan["assumed"] == {"count": "Freq"}
    shell(*commands["pairs"][1:], "--json", "--out", "o")
    assert hoim.load("o").domain.names == ("a", "b")


def test_missing_cells_say_that_a_file_holds_labels_to_the_plan_as_to_the_fit(shell):
    name = counts()
    assert shell.json("plan", name)["advised"] == "roots"
    assert shell.json("plan", name, "--missing", "drop")["advised"] == "pairs"


def closed(monkeypatch, *names):
    for name in names:
        monkeypatch.setitem(planning._COSTS, name, lambda _: (None, None, "exact sums are out of reach"))


@pytest.mark.parametrize(
    ("make", "routes"), [(small, []), (small, ["pairs"]), (small, ["pairs", "learn"]), (counts, [])]
)
def test_a_file_is_read_once(make, routes, shell, monkeypatch):
    closed(monkeypatch, *routes)
    opened = noted(monkeypatch, reading, "read_table_file")
    monkeypatch.setattr("pyro_hoim.generalized_root.command.read_table_file", reading.read_table_file)
    name = make()
    shell("fit", name, "--json", "--out", "o")
    assert [str(path) for (path,) in opened] == [name]
    shell("plan", name)
    assert [str(path) for (path,) in opened] == [name] * 2


def test_a_learned_structure_is_fitted_where_the_plan_says_so(shell, monkeypatch):
    closed(monkeypatch, "pairs")
    name = mixed()
    done = shell("fit", name, *TYPED, "--seed", "3", "--json", "--out", "o")
    (line,) = [line for line in done.err.splitlines() if "so this is" in line]
    command = line.partition("so this is ")[2].partition("; --order 2 alone asks for")[0]
    assert command.startswith("pyro-hoim learn 'my table.csv' --columns 'a,b c,d,age' --sep ';' --bins age=quantile:3")
    assert command.endswith("--missing drop --seed 3 --max-order 2")
    assert "and pyro-hoim plan 'my table.csv' --columns 'a,b c,d,age' " in line and line.endswith(" shows all routes")
    # What was found is what was planted, and what the command that is named finds.
    assert hoim.load("o").interactions(1)["term"].tolist() == ["a:b c"]
    assert "so this is pyro-hoim learn" in Path("o/report.html").read_text()
    shell(*shlex.split(command)[1:], "--json", "--out", "again")
    pd.testing.assert_frame_equal(hoim.load("o").interactions(), hoim.load("again").interactions())


@pytest.mark.parametrize(("routes", "verb"), [([], ""), (["pairs"], "learn"), (["pairs", "learn"], "fit")])
def test_a_folder_of_files_is_planned_and_routed(routes, verb, shell, monkeypatch):
    closed(monkeypatch, *routes)
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 2, (600, 4))
    codes[:, 1] = np.where(rng.random(600) < 0.8, codes[:, 0], codes[:, 1])
    Path("parts").mkdir()
    for i, part in enumerate(np.split(codes, 3)):
        pd.DataFrame(part).add_prefix("v").to_csv(f"parts/{i}.csv", index=False)
    plan, commands = plan_of_file(shell, "parts")
    assert (plan["rows"], plan["rows_seen"]) == (16, 600)
    assert shell("plan", "parts").out.startswith("16 rows that count 600, 4 columns")
    done = shell("fit", "parts", "--json", "--out", "o")
    lines = [line for line in done.err.splitlines() if "so this is" in line]
    assert len(lines) == bool(routes) and all(
        f"so this is {shlex.join(commands[plan['advised']])}; " in x for x in lines
    )
    assert set(hoim.load("o").interactions(1)["term"]) <= {"v0:v1", "v1:v0"}
    assert hoim.load("o").kind == ("dependency-network" if verb == "fit" else "hierarchical-log-linear")
    shell(*commands[plan["advised"]][1:], "--json", "--out", "again")
    pd.testing.assert_frame_equal(hoim.load("o").interactions(), hoim.load("again").interactions())


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (["fit", "--order", "2", "--posterior"], "pyro-hoim fit 'wide table.csv' --model dependency-network --penalty"),
        (["fit", "--order", "2", "--missing", "marginalise"], "--missing marginalise --model dependency-network"),
        (["structures", "--exclude", "v0"], "pyro-hoim fit 'wide table.csv' --exclude v0 --model dependency-network"),
        (["structures", "--columns", "20", "--seed", "3"], "--columns 20 --seed 3 --order 2 takes about "),
    ],
)
def test_a_refusal_for_size_names_the_command_that_is_open(words, way, shell):
    codes = np.random.default_rng(0).integers(0, 2, (300, 90)).astype(str)
    frame = pd.DataFrame(codes).add_prefix("v")
    if "marginalise" in words:
        frame.loc[3, "v1"] = None
    frame.to_csv("wide table.csv", index=False)
    verb, *options = words
    shown = shell(verb, "wide table.csv", *options, "--out", "o", status=2).err
    (line,) = [line for line in shown.splitlines() if line.startswith("pyro-hoim: error: ")]
    assert way in line and "; pyro-hoim plan 'wide table.csv' " in line and " shows all routes; " in line


def test_names_of_rows_make_no_labels_of_counts_and_are_left_out_by_the_rule_or_by_hand(shell):
    frame = pd.read_csv(counts())
    write("named.csv", frame.assign(doc=[f"doc_{i:03d}" for i in range(len(frame))]))
    write("counts.csv", frame)
    command = "pyro-hoim fit {} --model grm --order 2 --l1 0.1"
    assert shell.json("plan", "named.csv")["routes"][-1]["command"] == command.format("named.csv")
    excluded = shell.json("plan", "named.csv", "--exclude", "doc")["routes"][-1]["command"]
    assert excluded == "pyro-hoim fit named.csv --exclude doc --model grm --order 2 --l1 0.1"
    # Each command as printed, and a fit without a model: the model of the counts alone.
    for i, line in enumerate([command.format("counts.csv"), command.format("named.csv"), excluded]):
        done = shell(*shlex.split(line)[1:], "--out", f"fit{i}")
        assert ("'doc' (200 levels in 200 rows) is (almost) unique per row" in done.err) == (i == 1)
    done = shell("fit", "named.csv", "--out", "fit3")
    assert "so this is pyro-hoim fit named.csv --model grm" in done.err and "columns were left out: 'doc'" in done.err
    tables = [pd.DataFrame(hoim.load(f"fit{i}").interactions()) for i in range(4)]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])
    # What cannot be a number and is no name of rows says how to go on.
    write("group.csv", frame.assign(group=["a", "b"] * 100))
    shell.refused("fit", "group.csv", "--model", "grm", "--order", "2", says=["leave column 'group' out"])
    shell("fit", "group.csv", "--model", "grm", "--order", "2", "--l1", "0.1", "--exclude", "group", "--out", "fit4")
