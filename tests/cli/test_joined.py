"""Indicator columns at the command line: joined by ``learn``, split again by every other command."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_hoim.cli import run


def categories(number=1500, seed=0):
    """A weather of three kinds that decides an outlook of four, and a coin."""
    rng = np.random.default_rng(seed)
    sky = rng.choice(["blue", "dark", "grey"], number, p=[0.5, 0.1, 0.4])
    walk = np.where(
        rng.random(number) < 0.8, np.where(sky == "blue", "far", "near"), rng.choice(["near", "none", "far"], number)
    )
    return pd.DataFrame({"sky": sky, "walk": walk, "coin": rng.choice(["head", "tail"], number)})


def indicators(frame):
    """Columns of 0 and 1, but for the coin."""
    wide = pd.get_dummies(frame[["sky", "walk"]], prefix_sep="=").astype(int)
    return wide.assign(coin=frame["coin"])


def assert_alike(one, two):
    """The same figures, up to rounding."""
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for name in one:
            assert_alike(one[name], two[name])
    elif isinstance(one, float):
        assert one == pytest.approx(two, abs=1e-11)
    else:
        assert one == two


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder with both tables as files, and the models learned from them."""
    folder = tmp_path_factory.mktemp("joined")
    frame = categories()
    frame.to_csv(folder / "plain.csv", index=False)
    indicators(frame).to_csv(folder / "wide.csv", index=False)
    with contextlib.chdir(folder):
        for name, target, join in (("plain", "walk", "exact"), ("wide", "walk=far", "hard")):
            assert run(["learn", f"{name}.csv", "--out", name, "--target", target, "--join", join]) == 0
    return folder


@pytest.fixture
def files(learned, monkeypatch):
    """What both fits say, within their folder."""
    monkeypatch.chdir(learned)
    return [json.loads(Path(name, "fit.json").read_text(encoding="utf-8")) for name in ("plain", "wide")]


def test_columns_are_learned_and_used_as_the_categories_are(files, shell):
    plain, wide = files
    assert wide["joined"] == {
        "sky": ["sky=blue", "sky=dark", "sky=grey"],
        "walk": ["walk=far", "walk=near", "walk=none"],
    }
    assert plain["joined"] == {}
    assert wide["edges"] == plain["edges"]
    for key in ("nll", "kl", "gain", "accuracy", "num_states", "num_parameters", "rows"):
        assert wide[key] == plain[key]
    told = "6 columns that say one thing together were joined to 2 variables: sky (3), walk (3)."
    told += " Rows that break a group are impossible."
    assert told in wide["notes"] and told not in plain["notes"]
    assert told in Path("wide/report.html").read_text(encoding="utf-8")

    score, other = shell.json("score", "wide", "wide.csv"), shell.json("score", "plain", "plain.csv")
    assert set(score["parts"]) == {"train", "validation", "test"}
    assert_alike(score, other)

    shell("sample", "wide", "-n", "400", "--seed", "5", "--out", "drawn.csv")
    shell("sample", "plain", "-n", "400", "--seed", "5", "--out", "again.csv")
    drawn = pd.read_csv("drawn.csv")
    assert drawn.equals(indicators(pd.read_csv("again.csv"))[list(drawn)])
    shell("sample", "wide", "-n", "2000", "--given", "sky=blue=0", "--given", "walk=none=1", "--out", "given.csv")
    given = pd.read_csv("given.csv")
    assert (given["sky=blue"] == 0).all() and (given["walk=none"] == 1).all()
    asked = ("sky=dark", "--given", "sky=blue=0", "--given", "walk=none=1")
    share = shell.json("margins", "wide", *asked)["cells"][1]["probability"]
    assert 0 < share < 1 and abs(given["sky=dark"].mean() - share) < 4 * (share / 2000) ** 0.5
    refused = shell("sample", "wide", "-n", "5", "--given", "sky=blue=1", "--given", "sky=grey=1", status=2).err
    assert "sky=blue=1, sky=grey=1 has probability zero" in refused and refused.count("\n") == 1

    listed = shell.json("interactions", "wide")
    assert (listed["joined"], listed["interactions"][0]["edge"]) == (wide["joined"], ["sky", "walk"])
    assert "sky joins sky=blue, sky=dark, sky=grey" in shell("interactions", "wide").out

    found = [
        {tuple(cell["levels"]): cell["probability"] for cell in shell.json("margins", *words)["cells"]}
        for words in (("wide", "sky=dark", "walk=far"), ("plain", "sky", "walk"))
    ]
    cells, truth = found
    assert (cells["1", "1"], sum(cells.values())) == (pytest.approx(truth["dark", "far"]), pytest.approx(1))
    found, plain = shell.json("margins", "wide"), shell.json("margins", "plain")
    truth = {c["name"]: dict(zip(c["levels"], c["probabilities"], strict=True)) for c in plain["columns"]}
    for column in found["columns"]:
        name, _, level = column["name"].partition("=")
        expected = truth[name][level] if level else truth[name]["tail"]
        assert (found["kind"], column["probabilities"][1]) == ("exact", pytest.approx(expected))
    assert shell.json("margins", "wide", "--given", "sky=dark=1")["kind"] == "estimate"  # shares of draws
    assert "not conditioned on columns" in shell("mode", "wide", status=2).err


def test_predictions(files, shell):
    shell("predict", "wide", "wide.csv", "--target", "coin", "--out", "coin.csv")
    shell("predict", "plain", "plain.csv", "--target", "coin", "--out", "plain_coin.csv")
    one, two = pd.read_csv("coin.csv"), pd.read_csv("plain_coin.csv")
    for name in ("predicted", "p(head)", "p(tail)"):
        assert (one[name] == two[name]).all()
    assert shell.json("predict", "wide", "wide.csv", "--target", "walk=far")["accuracy"] == 1  # the others tell
    # Without the other columns of its group a column has the probability of its level.
    frame = indicators(categories()).astype(object)
    frame[["walk=near", "walk=none"]] = ""
    frame.head(200).to_csv("open.csv", index=False)
    shell("predict", "wide", "open.csv", "--target", "walk=far", "--out", "far.csv")
    shell("predict", "plain", "plain.csv", "--target", "walk", "--out", "walk.csv")
    far, walk = pd.read_csv("far.csv"), pd.read_csv("walk.csv").head(200)
    np.testing.assert_allclose(far["p(1)"], walk["p(far)"], rtol=1e-10)
    # One other column known leaves two levels.
    frame["walk=near"] = indicators(categories())["walk=near"]
    frame.head(200).to_csv("open2.csv", index=False)
    shell("predict", "wide", "open2.csv", "--target", "walk=far", "--out", "far2.csv")
    far = pd.read_csv("far2.csv")
    expected = np.where(walk["walk"] == "near", 0, walk["p(far)"] / (walk["p(far)"] + walk["p(none)"]))
    np.testing.assert_allclose(far["p(1)"], expected, rtol=1e-10)


def test_rows_that_break_a_group(files, shell):
    frame = indicators(categories())
    frame.loc[0, ["sky=blue", "sky=dark", "sky=grey"]] = 1
    frame.loc[1:2, ["walk=far", "walk=near", "walk=none"]] = 0
    frame.to_csv("broken.csv", index=False)
    found = shell.json("score", "wide", "broken.csv")
    assert (found["impossible_rows"], found["rows"], found["gain"]) == (3, 1500, None)
    assert found["nll"] is None or found["nll"] > 1e300
    assert "impossible rows     3 (" in shell("score", "wide", "broken.csv").out
    found = shell.json("predict", "wide", "broken.csv", "--target", "coin")
    assert (found["impossible_rows"], found["predicted_rows"]) == (3, 1497)
    frame.loc[:3, "coin"] = ""
    frame.to_csv("open.csv", index=False)
    assert "not filled: 3 rows" in shell("sample", "wide", "--complete", "open.csv", "--out", "filled.csv").err
    assert pd.read_csv("filled.csv")["coin"].isna().tolist() == [True] * 3 + [False] * 1497
    # By default groups may be broken.
    found = shell.json("learn", "wide.csv", "--out", "soft")
    said = "A new row breaks a group with probability 0.0013 (Laplace's rule, 1,500 rows)."
    assert any(said in note for note in found["notes"])
    assert said in Path("soft/report.html").read_text(encoding="utf-8").replace("&#39;", "'")
    found, other = shell.json("score", "soft", "broken.csv"), shell.json("score", "soft", "wide.csv")
    assert found["impossible_rows"] == 0 and other["nll"] < found["nll"] < other["nll"] + 3 * 25 / 1500
    assert not shell("predict", "soft", "broken.csv", "--target", "coin", "--out", "coins.csv").err
    shell("sample", "soft", "--given", "sky=blue=1", "--given", "sky=grey=1", "-n", "5", "--out", "given2.csv")
    assert (pd.read_csv("given2.csv")[["sky=blue", "sky=grey"]] == 1).all(axis=None)


def test_missing_cells(files, shell):
    frame = indicators(categories()).head(300).astype(object)
    frame.iloc[:100, 0] = ""  # decided where dark or grey is set, else too: exactly one is set
    frame.iloc[100:200, :3] = ""
    frame.iloc[200:, [0, 2]] = ""
    frame.to_csv("holes.csv", index=False)
    shell("sample", "wide", "--complete", "holes.csv", "-n", "20", "--out", "full.csv", "--seed", "1")
    full = pd.read_csv("full.csv")
    assert len(full) == 6000 and (full[["sky=blue", "sky=dark", "sky=grey"]].sum(axis=1) == 1).all()
    truth = pd.concat([indicators(categories()).head(300)] * 20, ignore_index=True)
    row = np.tile(np.arange(300), 20)
    assert full.loc[row < 100, "sky=blue"].equals(truth.loc[row < 100, "sky=blue"])
    assert full.loc[row >= 200, "sky=dark"].equals(truth.loc[row >= 200, "sky=dark"])
    assert set(full.loc[(row >= 200) & (truth["sky=dark"] == 0), "sky=blue"]) == {0, 1}
    score = shell.json("score", "wide", "holes.csv")
    assert score["rows"] == 300 and score["nll"] < shell.json("score", "wide", "wide.csv")["nll"]


def test_columns_left_apart(files, shell):
    found = shell.json("learn", "wide.csv", "--join", "none", "--out", "apart")
    assert found["joined"] == {} and found["num_states"] == "128"


def test_evidence_fixes_columns_of_a_group_and_a_mode_is_refused(files, shell):
    columns = list(pd.read_csv("wide.csv").columns)
    Path("seen.evid").write_text(f"1 {columns.index('sky=blue')} 1", encoding="utf-8")
    by_file = shell.json("margins", "wide", "walk=far", "coin", "--evidence", "seen.evid")
    by_words = shell.json("margins", "wide", "walk=far", "coin", "--given", "sky=blue=1")
    assert by_file["kind"] == "exact" and by_file["cells"] == by_words["cells"]
    assert by_file["cells"] != shell.json("margins", "wide", "walk=far", "coin")["cells"]  # the control
    assert "joined columns" in shell.refused("mode", "wide")
