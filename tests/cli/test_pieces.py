"""Commands on folders of files, and on files read piece by piece: what they say of the same rows in one file."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(3)
    first = random.integers(0, 3, 600)
    return pd.DataFrame(
        {
            "size": np.array(["low", "mid", "top"])[first],
            "wet": np.where(random.random(600) < 0.2 + 0.3 * first, "yes", "no"),
            "year": random.integers(2020, 2023, 600),
        }
    )


@pytest.fixture
def folder(frame, tmp_path):
    """The rows in three files of Parquet, and in one of text."""
    (tmp_path / "rows").mkdir()
    for i in range(3):
        frame.iloc[200 * i : 200 * (i + 1)].to_parquet(tmp_path / "rows" / f"{i}.parquet", row_group_size=70)
    frame.value_counts().rename("count").reset_index().sort_values(list(frame.columns)).to_csv("cells.csv", index=False)
    frame.to_csv("rows.csv", index=False)
    return "rows"


def printed(shell, *words):
    """The JSON that a command prints, without its place and time."""
    found = shell.json(*words)
    for name in ("model", "report", "seconds", "peak_memory_mb", "provenance", "files", "parts"):
        found.pop(name, None)
    return found


@pytest.mark.parametrize("options", [(), ("--chunk-rows", "50"), ("--cluster", "local")])
def test_a_folder_is_fitted_and_scored_as_its_table_of_cells(shell, folder, options):
    how = ["--edges", "size*wet + year", "--prior", "ridge:1"]
    expected = printed(shell, "fit", "cells.csv", *how, "--out", "one")
    found = printed(shell, "fit", folder, *how, *options, "--out", "other")
    assert found == expected
    for command in (["score"], ["predict", "--target", "wet"]):
        whole = printed(shell, command[0], "one", "cells.csv", *command[1:])
        parts = printed(shell, command[0], "other", folder, *command[1:], *options)
        assert parts == whole


def test_a_file_is_read_piece_by_piece_where_that_is_asked(shell, folder):
    expected = printed(shell, "fit", "cells.csv", "--edges", "size*wet", "--out", "one")
    assert printed(shell, "fit", "rows.csv", "--edges", "size*wet", "--chunk-rows", "100", "--out", "two") == expected
    assert "600 rows read piece by piece, " in shell("fit", folder, "--order", "1", "--out", "three").err


def test_what_was_found_in_a_file_is_said_as_of_one_read_whole(shell):
    """The oracle is the same file read whole."""
    lines = [f"{i + 1};{i % 3},5;{'ö' * (i % 2)}x" for i in range(40)]
    with open("r.csv", "w", encoding="cp1252") as file:
        file.write("\n".join([";h;b", *lines]))
    words = ["fit", "r.csv", "--order", "2", "--out"]
    one, two = shell(*words, "one").err, shell(*words, "two", "--chunk-rows", "7").err
    told = one.partition("r.csv: ")[2].partition("\n")[0]
    assert "decimal commas in 'h' read as points" in told and "cp1252" in told and "row names" in told
    assert f"r.csv: {told}; 40 rows read piece by piece" in two
    assert printed(shell, "score", "two", "r.csv") == printed(shell, "score", "one", "r.csv")


def test_rows_with_unknown_labels_are_counted(shell, folder, frame):
    shell("fit", folder, "--edges", "size*wet", "--out", "one")
    other = frame.copy()
    other.loc[:9, "size"] = "huge"
    other.loc[20:24, "wet"] = ""
    other.to_csv("other.csv", index=False)
    whole = printed(shell, "score", "one", "other.csv")
    parts = printed(shell, "score", "one", "other.csv", "--chunk-rows", "90")
    assert whole["unseen_label_rows"] == parts["unseen_label_rows"] == 10
    assert (parts["unseen_labels"], parts["nll"]) == ({"size": ["huge"]}, pytest.approx(whole["nll"], abs=1e-12))


def test_what_is_read_whole_only_is_refused(shell, folder):
    assert "expected numbers to cut at" in shell.refused("fit", folder, "--bins", "year=quantile:2")
    assert "expected numbers to cut at" in shell.refused("fit", folder, "--bins", "year=edges:2020-01-01")
    assert "unknown column 'years'" in shell.refused("fit", folder, "--bins", "years=edges:2021")
    assert "unknown column 'weights'" in shell.refused("fit", folder, "--weights", "weights")
    assert "--chunk-rows" in shell.refused("fit", "ucb_admissions", "--chunk-rows", "5")
    assert "no scheduler" in shell.refused("fit", folder, "--cluster", "tcp://127.0.0.1:9")


@pytest.fixture
def measured(frame, tmp_path):
    """Rows with weights and numbers, in a file and in a folder whose first file has weights of another type."""
    random = np.random.default_rng(4)
    found = frame.assign(w=random.choice([0.0, 1.0, 2.0], 600), age=random.normal(40, 20, 600).round(6))
    found.loc[200:, "w"] += random.choice([0.1, 0.25, 1 / 3], 400)
    found.to_csv("measured.csv", index=False)
    (tmp_path / "measured").mkdir()
    for i, part in enumerate((found.iloc[:200].astype({"w": int}), found.iloc[200:])):
        part.to_parquet(tmp_path / "measured" / f"{i}.parquet", row_group_size=90)
    return "measured"


def close(found, expected):
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[name], expected[name]) for name in expected)
    return found == pytest.approx(expected, rel=1e-6, abs=1e-9) if isinstance(expected, float) else found == expected


@pytest.mark.parametrize("options", [(), ("--chunk-rows", "50"), ("--cluster", "local")])
def test_weights_and_cut_columns_are_those_of_the_whole_file(shell, measured, options):
    how = ["--edges", "size*age + wet", "--prior", "ridge:1", "--columns", "size,wet,age"]
    how += ["--bins", "age=edges:20,40,200", "--weights", "w"]
    expected = printed(shell, "fit", "measured.csv", *how, "--out", "one")
    found = printed(shell, "fit", measured, *how, *options, "--out", "other")
    for name in ("gain", "nll", "rows", "num_parameters"):
        assert close(found[name], expected[name]), name
    whole, parts = (printed(shell, "score", "one", *words) for words in (["measured.csv"], [measured, *options]))
    assert close(parts, whole) and not parts["rows"].is_integer()
    shell("predict", "one", measured, "--target", "wet", "--out", "parts.csv", *options)
    shell("predict", "one", "measured.csv", "--target", "wet", "--out", "whole.csv")
    one, other = pd.read_csv("parts.csv"), pd.read_csv("whole.csv")
    assert one["w"].tolist() == other["w"].tolist()
    shown = [name for name in other.columns if name not in ("w", "age", "year")]
    pd.testing.assert_frame_equal(one[shown], other[shown])


def test_control_other_weights_are_another_model(shell, measured):
    how = ["--edges", "size*wet", "--columns", "size,wet"]
    found = [
        printed(shell, "fit", measured, *how, *more, "--out", f"m{i}")["nll"]
        for i, more in enumerate((["--weights", "w"], []))
    ]
    assert found[0] != found[1]


def test_weights_that_are_missing_are_refused(shell, measured, frame):
    frame.assign(w=np.where(np.arange(600) % 7, "1.5", "")).to_csv("gaps.csv", index=False)
    assert "'w'" in shell.refused("fit", "gaps.csv", "--weights", "w", "--chunk-rows", "100")


def test_columns_named_as_counts_are_asked_about(shell, frame):
    frame.assign(Freq=2).to_csv("freq.csv", index=False)
    words = ["fit", "freq.csv", "--order", "1", "--chunk-rows", "100"]
    assert "say --count Freq if it does" in shell.refused(*words)
    assert printed(shell, *words, "--count", "Freq", "--out", "one")["rows"]["train"] == 1200


def test_few_rows_of_many_levels_are_scored(shell):
    labels = [f"k{i:02d}" for i in range(30)]
    pd.DataFrame({"a": labels * 4, "b": ["u", "v"] * 60}).to_csv("many.csv", index=False)
    pd.DataFrame({"a": labels, "b": ["u", "v"] * 15}).to_csv("few.csv", index=False)
    shell("fit", "many.csv", "--order", "1", "--chunk-rows", "50", "--out", "one")
    assert printed(shell, "score", "one", "few.csv", "--chunk-rows", "20")["rows"] == 30


def test_predictions_stand_beside_the_rows_in_their_order(shell, folder, frame):
    shell("fit", folder, "--edges", "size*wet + size*year", "--out", "one")
    frame.assign(size=np.where(np.arange(600) % 50, frame["size"], "huge")).to_csv("other.csv", index=False)
    words = ["predict", "one", "other.csv", "--target", "wet", "--out"]
    for said in (shell(*words, "whole.csv"), shell(*words, "parts.csv", "--chunk-rows", "77")):
        assert "588 predictions written to" in said.out + said.err
    pd.testing.assert_frame_equal(pd.read_csv("whole.csv"), pd.read_csv("parts.csv"))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("pyro_hoim.cli.reading._BLOCK", 150)


def test_rows_are_completed_in_their_order(shell, folder, frame):
    shell("fit", folder, "--edges", "size*wet", "--out", "one")
    gaps = frame.assign(wet=np.where(np.arange(600) % 3, frame["wet"], ""))
    gaps.to_csv("gaps.csv", index=False)
    whole = shell("sample", "one", "--complete", "gaps.csv").out
    assert shell("sample", "one", "--complete", "gaps.csv", "--chunk-rows", "100").out == whole
    assert shell("sample", "one", "--complete", "gaps.csv", "--cluster", "local").out == whole


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_completed_rows_have_draws_of_their_own(shell, folder, frame):
    shell("fit", folder, "--edges", "size*wet", "--out", "one")
    gaps = pd.DataFrame({"size": "mid", "wet": ["yes", "no", *[""] * 598], "year": 2020})
    gaps.to_csv("gaps.csv", index=False)
    shell("sample", "one", "--complete", "gaps.csv", "--chunk-rows", "64", "--out", "a.csv")
    shell("sample", "one", "--complete", "gaps.csv", "--chunk-rows", "1000", "--out", "b.csv")
    found = pd.read_csv("a.csv")
    pd.testing.assert_frame_equal(found, pd.read_csv("b.csv"))
    parts = [found["wet"].iloc[150 * i + 2 : 150 * (i + 1)].tolist() for i in range(4)]
    assert len({tuple(part) for part in parts}) == 4
    share = (frame.loc[frame["size"] == "mid", "wet"] == "yes").mean()
    assert abs((found["wet"] == "yes").mean() - share) < 0.08


def test_a_network_is_learned_from_a_folder_as_from_its_table_of_cells(shell, folder):
    how = ["--model", "dependency-network", "--out"]
    expected, found = (printed(shell, "fit", source, *how, f"of {source}") for source in ("cells.csv", folder))
    assert {**found, "stage_seconds": None} == {**expected, "stage_seconds": None}
    assert printed(shell, "score", f"of {folder}", folder) == printed(shell, "score", "of cells.csv", "cells.csv")


def test_root_models_take_no_folder(shell, folder):
    assert "\n" not in shell.refused("fit", folder, "--model", "grm").strip()
