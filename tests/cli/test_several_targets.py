"""Several ``--target`` of ``fit``: the accuracy of each is that of the command with it alone."""

from pathlib import Path

import pytest

FAMILIES = {"log-linear": ("--order", "2"), "dependency-network": ("--model", "dependency-network")}


@pytest.mark.parametrize("words", FAMILIES.values(), ids=FAMILIES)
def test_each_target_has_the_accuracy_that_it_has_alone(words, shell):
    data = ("fit", "ucb_admissions", *words, "--split", "0.7,0,0.3")
    both = shell.json(*data, "--target", "Admit", "--target", "Dept", "--out", "both")
    assert list(both["targets"]) == ["Admit", "Dept"] and "accuracy" not in both
    for name in ("Admit", "Dept"):
        alone = shell.json(*data, "--target", name, "--out", name)
        assert "targets" not in alone and both["targets"][name]["validation"] is None
        for part in ("train", "test"):
            assert both["targets"][name][part] == pytest.approx(alone["accuracy"][part])
    assert both["targets"]["Admit"]["test"]["accuracy"] != both["targets"]["Dept"]["test"]["accuracy"]  # control
    assert "Prediction of several columns" in Path("both/report.html").read_text(encoding="utf-8")


def test_wrong_targets_are_refused_before_any_work(shell):
    given = ("fit", "ucb_admissions", "--target", "Admit", "--target")
    shell.refused(*given, "Admit", says=["'Admit' is repeated", "--target"])
    shell.refused(*given, "Depp", says=["--target: unknown column 'Depp'; did you mean 'Dept'"])
