"""``learn --numbers families``: the model of ``hoim.learn(frame, numbers="families")``, from files and in options."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim import load
from pyro_hoim.cli import run
from pyro_hoim.generalized_root import choose_l1, load_roots

from support.calls import noted

FAMILIES = ["--numbers", "families"]
SAID = ["--family", "visits=count"]


def made_frame(num=160, seed=11):
    """Labels, 0/1, counts, positive and real numbers that share a cause, and an identifier."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=num)
    region = np.clip((z + rng.normal(size=num) + 1.5) // 1.2, 0, 2).astype(int)
    return pd.DataFrame(
        {
            "smoker": np.where(rng.random(num) < 1 / (1 + np.exp(-z)), "yes", "no"),
            "region": np.array(["north", "south", "west"])[region],
            "age": (45 + 10 * z + rng.normal(0, 5, num)).round(1),
            "visits": rng.poisson(np.exp(0.5 * z)),
            "cost": (rng.exponential(np.exp(0.4 * z)) + 0.01).round(2),
            "who": [f"p{i}" for i in range(num)],
        }
    )


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Folder of a model of five columns, its rows, and what the same call of the library returns."""
    folder = tmp_path_factory.mktemp("learned")
    made_frame().to_csv(folder / "rows.csv", index=False)
    assert run(["learn", str(folder / "rows.csv"), *FAMILIES, *SAID, "--out", str(folder / "out")]) == 0
    frame = pd.read_csv(folder / "rows.csv")
    return folder, hoim.learn(frame, numbers="families", families={"visits": "count"})


@pytest.fixture(scope="module")
def alone(learned):
    """The model of one penalty, where nothing is compared."""
    frame = pd.read_csv(learned[0] / "rows.csv")
    return hoim.learn(frame, numbers="families", families={"visits": "count"}, l1s=[0.2])


def check_equal(path, result):
    """The same terms and coefficients, to the last bits."""
    file = load_roots(path)
    assert file.structure.names == result.structure.names
    assert file.psi.numpy() == pytest.approx(result.psi.numpy(), rel=1e-9, abs=1e-12)
    assert file.families == result.free_families and repr(file.columns) == repr(result.columns)


def test_the_model_is_that_of_the_library(learned):
    folder, result = learned
    check_equal(folder / "out" / "model.safetensors", result)
    check_equal(folder / "out" / "confirmed.safetensors", result.confirmed)
    assert 0 < result.confirmed.num_interactions < result.num_interactions
    # The penalty is compared on the same fifths of the rows.
    found, columns = json.loads((folder / "out" / "fit.json").read_text()), result.columns
    rows = columns.encode(pd.read_csv(folder / "rows.csv"))
    options = {"names": columns.domain.names, "order": 2, "refit": "all"}
    chosen = choose_l1(rows, [0.2, 0.1, 0.05, 0.02], columns.families, **options)
    held_out = [-step["pseudo_nll"]["validation"] for step in found["path"]]
    assert held_out == pytest.approx(chosen.scores, rel=1e-9)
    assert found["l1"] == result.l1[2] and [step["l1"] for step in found["path"]] == [0.2, 0.1, 0.05, 0.02]
    kept = {tuple(test["edge"]) for test in found["structure"]["tests"] if test["is_kept"]}
    assert kept == {*result.confirmed.confirmation.kept}
    assert found["rows"] == {"train": 160, "validation": 0, "test": 0}


def test_the_choice_of_families_is_said_and_what_is_left_out(learned, shell):
    folder, result = learned
    shown = shell("learn", str(folder / "rows.csv"), *FAMILIES, *SAID, "--l1", "0.1", "--out", "again")
    for line in repr(result.columns).split("\n  ")[1:]:
        if "left out" not in line:
            assert f"pyro-hoim: note: column {line}\n" in shown.err
    assert "Column 'who' is left out, as it" in shown.out


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--l1", "0.3,0.15", "--seed", "3"], {"l1s": [0.3, 0.15], "seed": 3}),
        (["--max-order", "3"], {"order": 3}),
        (["--exclude", "region,age", "--false-discovery-rate", "0.3"], {"exclude": ["region", "age"]}),
        (["--family", "cost=real", "--jobs", "1"], {"families": {"visits": "count", "cost": "real"}}),
    ],
    ids=["penalties", "triples", "excluded", "said"],
)
def test_options_are_those_of_the_library(words, options, learned, alone, shell):
    folder, whole = learned
    if "l1s" not in options:
        words, options, whole = [*words, "--l1", "0.2"], {**options, "l1s": [0.2]}, alone
    shell("learn", str(folder / "rows.csv"), *FAMILIES, *SAID, *words, "--out", "out")
    if "--false-discovery-rate" in words:
        options = {**options, "false_discovery_rate": 0.3}
    frame = pd.read_csv(folder / "rows.csv")
    result = hoim.learn(frame, numbers="families", **{"families": {"visits": "count"}, **options})
    check_equal("out/model.safetensors", result)
    check_equal("out/confirmed.safetensors", result.confirmed)
    is_other = result.structure.names != whole.structure.names or not np.allclose(result.psi, whole.psi)
    assert (
        is_other or result.confirmed.num_interactions != whole.confirmed.num_interactions
    )  # the option does something


def test_validation_rows_choose_the_penalty_where_there_are_some(learned, shell):
    folder, _ = learned
    words = [*FAMILIES, *SAID, "--exclude", "who,region", "--split", "0.6,0.2,0.2", "--seed", "5", "--out", "out"]
    found = shell.json("learn", str(folder / "rows.csv"), *words)
    file = load_roots("out/model.safetensors")
    frame = pd.read_csv(folder / "rows.csv")
    rows = hoim.data.CountTable.from_matrix(file.columns.encode(frame), file.columns.domain.names, kind="real")
    train, validation, test = (file.columns.decode(part.to_array()) for part in rows.split((0.6, 0.2, 0.2), 5))
    result = hoim.learn(train, validation, numbers="families", families={"visits": "count"})
    assert (len(train), len(validation), len(test)) == tuple(found["rows"].values())
    assert file.structure.names == result.structure.names and found["l1"] == result.l1[2]
    best = min(found["path"], key=lambda step: step["pseudo_nll"]["validation"])
    assert best["l1"] == found["l1"] and best["pseudo_nll"]["validation"] == pytest.approx(
        found["pseudo_nll"]["validation"]
    )


def test_counted_rows_are_rows_as_often(shell):
    frame = made_frame(80).drop(columns="who")
    frame.assign(count=[1, 2] * 40).to_csv("rows.csv", index=False)
    shell("learn", "rows.csv", *FAMILIES, *SAID, "--l1", "0.2,0.1", "--out", "out")
    result = hoim.learn(pd.read_csv("rows.csv"), numbers="families", families={"visits": "count"}, l1s=[0.2, 0.1])
    assert result.num_rows == 120
    check_equal("out/model.safetensors", result)


def test_the_page_says_how_the_penalty_was_chosen(learned):
    folder, _ = learned
    page = (folder / "out" / "report.html").read_text()
    assert "every fifth of the training rows" in page
    assert "What varies together" in page and "the validation rows" not in page
    assert page.count("category of 3 levels") == 1


@pytest.mark.parametrize("name", ["model", "confirmed"])
def test_every_command_takes_the_files(name, learned, shell):
    folder, result = learned
    result = result if name == "model" else result.confirmed
    path, rows = str(folder / "out" / f"{name}.safetensors"), str(folder / "rows.csv")
    frame = pd.read_csv(rows)
    scored = shell.json("score", path, rows)
    assert scored["pseudo_nll"] == pytest.approx(-float(result.log_pseudo_prob(frame).mean()), rel=1e-9)
    assert scored["gain"] > 0 and scored["parts"]["train"]["rows"] == 160
    shell("predict", path, rows, "--target", "region", "--out", f"{name}.csv")
    expected = result.predict(frame, "region")
    assert pd.read_csv(f"{name}.csv")["p(north)"].to_numpy() == pytest.approx(expected["p(north)"].to_numpy())
    drawn = pd.read_csv(io.StringIO(shell("sample", path, "-n", "20", "--given", "region=west").out))
    assert list(drawn) == [c for c in frame if c != "who"] and set(drawn["region"]) == {"west"}
    cells = shell.json("margins", path, "smoker", "region", "--num-draws", "400")["cells"]
    assert len(cells) == 6 and sum(cell["probability"] for cell in cells) == pytest.approx(1.0)
    listed = {tuple(row["edge"]) for row in shell.json("interactions", path)["interactions"]}
    assert len(listed) == result.num_interactions
    log_z = shell.json("log-z", path)
    assert log_z["kind"] == "exact" and log_z["value"] is not None
    shell("report", path, "--out", f"page-{name}")
    assert Path(f"page-{name}/report.html").exists()
    assert load(path).summary().attrs["notes"]


def test_an_interrupted_run_is_continued(learned, monkeypatch, shell):
    import pyro_hoim.generalized_root.command as module

    words = ["learn", str(learned[0] / "rows.csv"), *FAMILIES, *SAID, "--out", "run"]
    with monkeypatch.context() as patch:
        noted(patch, module, "fit_root_path", 4)
        shell(*words, status=130)
    names = sorted(path.name for path in Path("run/checkpoint").glob("roots*"))
    assert names == ["roots-2-1.safetensors", "roots-2-2.safetensors", "roots-2.safetensors"]
    said = shell(*words, "--l1", "0.1", "--resume", status=2).err
    assert "was started with no --l1, and received --l1 0.1" in said
    shell(*words, "--resume")
    assert Path("run/model.safetensors").read_bytes() == (learned[0] / "out" / "model.safetensors").read_bytes()


def test_numbers_may_be_cut_as_before(shell):
    shell("learn", "titanic", "--numbers", "cut", "--columns", "Class,Sex", "--count", "none", "--out", "a")
    shell("learn", "titanic", "--columns", "Class,Sex", "--count", "none", "--out", "b")
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()


def test_an_embedded_table_is_taken(shell):
    shell("learn", "titanic", *FAMILIES, "--l1", "0.1", "--out", "out")
    assert load_roots("out/model.safetensors").columns.names == ("Class", "Sex", "Age", "Survived")


def test_help_groups_the_options_by_what_becomes_of_numbers(shell):
    text = shell("learn", "--help").out
    cut, families = text.index("(--numbers cut):"), text.index("(--numbers families):")
    assert cut < text.index("--heredity") < families < text.index("--false-discovery-rate")
    assert "[cut, families]" in text[text.index("Options of several families") :]


ROWS = "a,b,n\n" + "".join(f"{'xyz'[i % 3]},{i % 7 / 2 + 0.25},{i % 5}\n" for i in range(60))
CUT = "belongs to --numbers cut, received --numbers families"


@pytest.mark.parametrize(
    ("content", "words", "says"),
    [
        # columns that do not say their family
        (ROWS, [], "--family: columns may be codes of categories, counts or amounts"),
        (ROWS, ["--exclude", "b"], "such as --family n=category, where a family is binary, category, count"),
        (ROWS, ["--family", "n=many"], "--family of 'n': expected binary, category, count (poisson), bounded:M"),
        (ROWS, ["--family", "m=count"], "--family: unknown column 'm'"),
        (ROWS, ["--family", "n=count", "--family", "n=real"], "--family: column 'n' has two families"),
        (ROWS, ["--family", "several"], "--family: expected poisson, truncated-poisson, exponential, gaussian, auto"),
        (ROWS, ["--family", "a=count"], "column 'a': expected numbers for the poisson family, received 'x'"),
        (ROWS, ["--family", "n=bounded:2"], "column 'n'"),
        (ROWS, ["--family", "n=count", "--maximum", "3"], "--maximum: belongs to --family truncated-poisson"),
        (ROWS, ["--family", "n=count", "--exclude", "n"], "column 'n'"),
        # options of the other way, or of no use
        (ROWS, ["--bins", "auto"], "--bins: has no use with --numbers families, which takes numbers as they are"),
        (ROWS, ["--weights", "n"], "--weights: has no use with --numbers families"),
        (ROWS, ["--allow", "b"], "--allow: has no use with --numbers families"),
        (ROWS, ["--chunk-rows", "9"], "--chunk-rows: belongs to files of Parquet or text, received --numbers families"),
        (ROWS, ["--target", "a"], f"--target: {CUT}; fit without it, then predict the column with the model"),
        (ROWS, ["--missing", "drop"], f"--missing: {CUT}; fill empty cells or leave out their rows first"),
        (ROWS, ["--prior", "unit"], f"--prior: {CUT}; its coefficients are held back by --l1"),
        (ROWS, ["--refit"], f"--refit: {CUT}"),
        (ROWS, ["--join", "none"], f"--join: {CUT}"),
        (ROWS, ["--time-limit", "5m"], f"--time-limit: {CUT}"),
        (ROWS, ["--model", "grm"], "--model: belongs to pyro-hoim fit"),
        (ROWS, ["--exclude", "a", "--columns", "a,b"], "--exclude: column 'a' is asked for by --columns and left out"),
        (ROWS, ["--exclude", "m"], "--exclude: unknown column 'm'"),
        # penalties, sizes and parts of the rows
        (ROWS, ["--l1", "much"], "--l1: expected a number, or auto, received 'much'"),
        (ROWS, ["--false-discovery-rate", "0"], "--false-discovery-rate: expected a number between 0 and 1, or none"),
        (ROWS, ["--max-order", "0"], "--max-order: expected a whole number of at least 1, received 0"),
        (ROWS, ["--family", "n=count", "--max-order", "4"], "--max-order: expected 1 to 3 (the number of columns)"),
        (ROWS, ["--max-order", "2", "--max-order", "3"], "--max-order"),
        (ROWS, ["--split", "0.5,0.5"], "--split: expected three fractions"),
        # files
        (None, [], "rows.csv: no such file, nor one of the data sets"),
        ("a,b\nx,1.5\ny,\nx,2.5\n", [], "rows.csv: missing cells in 'b' (1); fill them"),
        ("a,b\nx,1\ny,2\n", ["--l1", "0.1,much"], "--l1: expected a number, or auto, received 'much'"),
        ("a,b\nx,y\nx,y\n", [], "no column is left to learn from: 'a' has one value, 'b' has one value"),
    ],
)  # fmt: skip
def test_wrong_input_ends_in_one_line(content, words, says, shell):
    if content is not None:
        Path("rows.csv").write_text(content, encoding="utf-8")
    assert says in shell.refused("learn", "rows.csv", *FAMILIES, *words, progress=True)


def test_few_rows_are_too_few_to_leave_some_out(shell):
    Path("rows.csv").write_text("a,b\nx,1\ny,2\nx,2\ny,1\n", encoding="utf-8")
    said = shell("learn", "rows.csv", *FAMILIES, status=2).err.splitlines()[-1]
    words = "data: expected at least 5 rows, for as many parts are left out in turn to compare penalties, received 4"
    assert said == f"pyro-hoim: error: {words}"
    shell("learn", "rows.csv", *FAMILIES, "--l1", "0.05", "--out", "out")  # control


def test_options_of_families_belong_to_them(shell):
    Path("rows.csv").write_text(ROWS, encoding="utf-8")
    for word in ("--family", "--l1", "--false-discovery-rate", "--jobs", "--maximum"):
        said = shell.refused("learn", "rows.csv", word, "1")
        assert said == f"{word}: belongs to --numbers families, received --numbers cut"
    assert shell.refused("fit", "rows.csv", *FAMILIES) == "--numbers: belongs to pyro-hoim learn"
    assert "--numbers: 'levels' is not one of 'cut', 'families'" in shell.refused(
        "learn", "rows.csv", "--numbers", "levels"
    )


def test_every_column_that_does_not_say_its_family_may_be_said_at_once(learned, alone, shell):
    shell("learn", str(learned[0] / "rows.csv"), *FAMILIES, "--family", "*=count", "--l1", "0.2", "--out", "out")
    check_equal("out/model.safetensors", alone)
