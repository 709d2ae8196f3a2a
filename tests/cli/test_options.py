"""Options: what is given twice, how the help groups them, and which are needed."""

import re
from pathlib import Path

import pandas as pd
import pytest

from pyro_hoim.families import families


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "titanic", "--seed", "1", "--seed", "1"],
        ["fit", "titanic", "--model", "rbm", "--model", "rbm"],
        ["sample", "m", "-n", "1", "-n", "2"],
        ["interactions", "m", "--information", "--no-information"],
        ["tables", "--json", "--json"],
    ],
)
def test_an_option_that_cannot_be_repeated_is_refused_when_it_is(words, shell):
    line = shell.refused(*words)
    assert re.fullmatch(r"--?[a-z-]+: given more than once; give it once", line), line


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_words_that_can_name_no_file_are_refused(word, shell):
    assert "as no file name does" in shell.refused("log-z", word)


def test_control_a_name_in_another_encoding_is_looked_for(shell):
    assert "as no file name does" not in shell.refused("log-z", "\udce9.safetensors")


def test_control_options_that_may_be_repeated_are_taken(shell):
    Path("t.csv").write_text("a,b\nx,0\n?,1\n-,1\ny,0\nx,1\n", encoding="utf-8")
    found = shell.json("fit", "t.csv", *(["--missing", "?", "--missing", "-", "--missing", "drop"]), "--out", "o")
    assert found["rows"]["train"] == 3


def test_help_is_grouped_by_family_and_says_bounds_in_words(shell):
    text = shell("fit", "--help").out
    assert "None" not in text and "x<=" not in text and "9007199254740992" in text
    sections = re.split(r"\n(?=\S.*:\n)", text)
    named = {part.partition(":\n")[0]: part for part in sections}
    for family, own, other in [
        ("grm", "--stagewise", "--hidden"),
        ("rbm", "--hidden", "--stagewise"),
        ("dependency-network", "--max-leaves", "--penalty"),
        ("log-linear", "--penalty", "--max-leaves"),
    ]:
        (heading,) = [name for name in named if name.endswith(f"(--model {family})")]
        assert own in named[heading] and other not in named[heading]
    assert "--missing" in named["Options of several families"] and "--seed" in named["Options"]
    for family in families():
        for option in family.options("fit"):
            assert text.count(f"\n  --{option.name.replace('_', '-')} ") == 1


def test_completion_needs_no_number_and_draws_do(shell):
    rows = ["a,b", *["x,0"] * 9, "x,1", "y,0", *["y,1"] * 9]
    Path("t.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    Path("holes.csv").write_text("a,b\nx,\n,1\ny,0\n", encoding="utf-8")
    shell("fit", "t.csv", "--out", "o")
    shell("sample", "o", "--complete", "holes.csv", "--out", "full.csv")
    once = shell("sample", "o", "--complete", "holes.csv", "-n", "1").out
    assert Path("full.csv").read_text(encoding="utf-8") == once
    frame = pd.read_csv("full.csv", dtype=str)
    assert list(frame.columns) == ["a", "b"] and len(frame) == 3 and not frame.isna().any(axis=None)
    assert shell.refused("sample", "o") == "-n: how many rows to draw must be given, such as -n 100"
