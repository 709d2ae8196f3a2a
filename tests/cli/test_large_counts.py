"""Counts up to 2^53 through the commands: tables stay tables, and what would write rows out is refused first."""

from pathlib import Path

import pytest

COUNTS = [3, 1, 2, 4, 1, 5, 2, 2]


@pytest.fixture
def write():
    def written(name, counts):
        cells = [(i >> 2 & 1, i >> 1 & 1, i & 1) for i in range(8)]
        lines = [",".join(map(str, [*cell, count])) for cell, count in zip(cells, counts, strict=True)]
        Path(name).write_text("\n".join(["a,b,c,count", *lines]) + "\n")
        return name

    return written


def test_a_fit_of_large_counts_is_that_of_their_proportions(shell, write):
    small, large = write("small.csv", COUNTS), write("large.csv", [count * 10**12 for count in COUNTS])
    found = []
    for number, file in enumerate((small, large)):
        out = f"out{number}"
        shell("fit", file, "--order", "2", "--split", "0.5,0,0.5", "--out", out)
        shown = shell.json("score", f"{out}/model.safetensors", file)
        found.append((shell.json("fit", file, "--order", "2", "--out", f"{out}all"), shown))
    (few, _), (many, score) = found
    assert many["rows"]["train"] == few["rows"]["train"] * 10**12 == sum(COUNTS) * 10**12
    assert {name: part["rows"] for name, part in score["parts"].items()} == {"train": 10**13, "test": 10**13}
    parts = [part["nll"] for part in score["parts"].values()]
    assert abs(parts[0] - parts[1]) < 1e-5  # halves of 10^13 rows have the same proportions


@pytest.mark.parametrize("count", ["1e16", "1e308", "9007199254740993", "1" + "0" * 400, "inf", "nan", "-1"])
def test_other_counts_are_one_line(shell, write, count):
    told = shell.refused("fit", write("bad.csv", [*COUNTS[:7], count]), "--out", "out", says=["'count'"])
    assert "expected a" in told and "received" in told


def test_control_a_large_count_is_read(shell, write):
    fits = write("good.csv", [*COUNTS[:7], "1e15"])
    assert shell.json("fit", fits, "--order", "1", "--out", "good")["rows"]["train"] == 10**15 + sum(COUNTS[:7])


def test_rows_are_completed_as_often_as_they_count_or_not_at_all(shell, write):
    shell("fit", write("small.csv", COUNTS), "--order", "2", "--out", "out")
    model = "out/model.safetensors"
    for count, number in ((10**9, 1), (10, 10**8)):
        Path("gaps.csv").write_text(f"a,b,c,count\n0,,1,{count}\n")
        told = shell.refused("sample", model, "--complete", "gaps.csv", "-n", str(number), says=["--complete"])
        assert "3,000,000,000 cells" in told and "134,217,728" in told
    Path("gaps.csv").write_text("a,b,c,count\n0,,1,3\n")
    assert shell("sample", model, "--complete", "gaps.csv", "-n", "2").out.count("\n") == 7
