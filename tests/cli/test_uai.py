"""Commands on UAI files, and evidence and results in this format for models of our own."""

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import save_random, stored

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.core.partition import Verdict
from pyro_hoim.interop import read_uai_result
from pyro_hoim.log_linear import BucketImportance

from support.uai_problems import PROBLEMS, enumerated, text_of


@pytest.fixture(params=["noisy or", "odd scopes and zeros", "a face that is no table"])
def problem(request, shell):
    """A model and its evidence as files, with what enumeration says of them."""
    chosen = PROBLEMS[request.param]
    Path("m.uai").write_text(chosen.text)
    pairs = [number for item in chosen.evidence.items() for number in item]
    Path("e.evid").write_text(" ".join(map(str, (len(chosen.evidence), *pairs))))
    return chosen, *enumerated(chosen)


def test_log_z_mode_and_margins_given_evidence_are_those_of_enumeration(problem, shell):
    chosen, total, margins, largest = problem
    found = shell.json("log-z", "m.uai", "--evidence", "e.evid", "--out", "z.PR")
    assert found["value"] == pytest.approx(math.log(total), abs=1e-12) and found["kind"] == "exact"
    assert float(Path("z.PR").read_text().split()[1]) == pytest.approx(math.log10(total), abs=1e-12)
    best = shell.json("mode", "m.uai", "--evidence", "e.evid", "--out", "m.MAP")
    assert best["log_weight"] == pytest.approx(math.log(largest), abs=1e-12)
    assert best["log_prob"] == pytest.approx(math.log(largest / total), abs=1e-12)
    assert {int(name[1:]): int(level) for name, level in best["given"].items()} == dict(chosen.evidence)
    assert list(read_uai_result("m.MAP").state or ()) == [int(level) for level in best["state"].values()]
    columns = shell.json("margins", "m.uai", "--evidence", "e.evid", "--out", "m.MAR")["columns"]
    written = read_uai_result("m.MAR").margins or ()
    for column, part, expected in zip(columns, written, margins, strict=True):
        assert column["probabilities"] == pytest.approx(expected, abs=1e-12)
        assert part.tolist() == column["probabilities"]
    one = next(i for i in range(len(margins)) if i not in chosen.evidence)
    cells = shell.json("margins", "m.uai", f"x{one}", "--evidence", "e.evid")["cells"]
    assert [cell["probability"] for cell in cells] == pytest.approx(margins[one], abs=1e-12)


def test_without_evidence_the_answers_are_others(shell):
    chosen = PROBLEMS["noisy or"]
    Path("m.uai").write_text(chosen.text)
    all_states, _, _ = enumerated(chosen._replace(evidence={}))
    assert shell.json("log-z", "m.uai")["value"] == pytest.approx(math.log(all_states), abs=1e-12)
    assert all_states != pytest.approx(enumerated(chosen)[0], rel=1e-3)  # the control


def test_a_state_is_read_by_people_too(shell):
    Path("m.uai").write_text(text_of([2, 3], [((0, 1), [[1, 2, 3], [0, 0, 6]])]))
    lines = shell("mode", "m.uai").out.splitlines()
    assert [line.split() for line in lines[:3]] == [["column", "level"], ["x0", "1"], ["x1", "2"]]
    assert lines[3].startswith("log weight       1.79176 nats (exact") and lines[4] == "log probability  -0.693147 nats"
    given = shell("mode", "m.uai", "--given", "x0=0").out.splitlines()
    assert given[2].split() == ["x1", "2"] and given[4] == "log probability  -0.693147 nats given the fixed columns"
    lines = shell("margins", "m.uai").out.splitlines()
    assert [line.split() for line in lines[1:3]] == [["x0", "0", "0.500000"], ["x0", "1", "0.500000"]]
    assert "log Z = 2.48490665" in shell("log-z", "m.uai").out


def test_draws_and_scores_take_uai_files(shell):
    Path("m.uai").write_text(text_of([2, 2], [((0, 1), [[0, 1], [3, 0]])]))
    rows = shell("sample", "m.uai", "-n", "40").out.splitlines()
    assert rows[0] == "x0,x1" and set(rows[1:]) == {"0,1", "1,0"}
    Path("t.csv").write_text("x0,x1\n0,1\n1,0\n")
    assert shell.json("score", "m.uai", "t.csv")["nll"] == pytest.approx(-math.log(3 / 16) / 2, abs=1e-12)


@pytest.fixture
def entangled(shell):
    """A file of 120 columns of four levels, 240 pairs of which are never equal: beyond every exact sum."""
    rng = np.random.default_rng(0)
    pairs = sorted({tuple(sorted(rng.choice(120, 2, replace=False).tolist())) for _ in range(240)})
    never = 1.0 - np.eye(4)
    Path("m.uai").write_text(
        text_of([4] * 120, [*(((i,), np.ones(4)) for i in range(120)), *((p, never) for p in pairs)])
    )
    return pairs


def test_the_hint_of_a_refused_log_z_is_no_option_that_is_refused_too(entangled, shell):
    ais = ["--method", "ais", "--num-chains", "4", "--num-temperatures", "3"]
    for command in (["log-z", "m.uai"], ["log-z", "m.uai", *ais]):
        error = shell.refused(*command, says=["--method ais cannot begin, for what is impossible is itself too large"])
        assert "use --method ais" not in error


def test_columns_by_name_have_shares_of_draws_where_no_sum_is_in_reach(entangled, shell):
    """As without names; against the law that renaming the levels leaves as it is: a quarter for each of the four."""
    first, second = entangled[0]
    names, options = [f"x{first}", f"x{second}"], ["--num-draws", "400", "--seed", "3"]
    found = shell.json("margins", "m.uai", *names, *options)
    assert (found["kind"], found["draws"]) == ("estimate", 400)
    cells = {tuple(cell["levels"]): cell["probability"] for cell in found["cells"]}
    assert sum(cells.values()) == pytest.approx(1)
    assert all(p == 0 for (a, b), p in cells.items() if a == b)
    columns = shell.json("margins", "m.uai", *options)["columns"]
    for place, column in enumerate((first, second)):
        shares = [sum(p for levels, p in cells.items() if levels[place] == level) for level in "0123"]
        assert shares == pytest.approx([0.25] * 4, abs=0.1)
        assert shares == pytest.approx(columns[column]["probabilities"])


def test_evidence_that_a_table_excludes_has_log_z_minus_infinity_at_once(entangled, shell):
    """Two columns that are never equal are equal: no sum over the 118 others is needed, or in reach."""
    first, second = entangled[0]
    Path("e.evid").write_text(f"2 {first} 1 {second} 1")
    found = shell.json("log-z", "m.uai", "--evidence", "e.evid", "--out", "z.PR")
    assert (found["value"], found["is_zero"], found["kind"]) == (None, True, "exact")
    assert read_uai_result("z.PR").log_partition == -math.inf
    assert shell("log-z", "m.uai", "--evidence", "e.evid").out.startswith("log Z = -inf (exact")
    shell.refused("mode", "m.uai", "--evidence", "e.evid", says=["probability zero"])


def test_the_option_that_fixes_a_column_that_is_asked_for_is_named(shell):
    Path("m.uai").write_text(text_of([2, 3], [((0, 1), [[1, 2, 3], [0, 0, 6]])]))
    Path("e.evid").write_text("1 1 0")
    shell.refused("margins", "m.uai", "x1", "--evidence", "e.evid", says=["--evidence: fixes 'x1'"])
    shell.refused("margins", "m.uai", "x1", "--given", "x1=0", "--evidence", "e.evid", says=["--given: fixes 'x1'"])


def test_draws_take_evidence_from_a_file(shell):
    Path("m.uai").write_text(text_of([2, 3, 2], [((0, 1), [[1, 2, 0], [3, 0, 4]]), ((1, 2), np.ones((3, 2)))]))
    Path("e.evid").write_text("1 1 2")
    drawn = shell("sample", "m.uai", "-n", "20", "--evidence", "e.evid").out
    assert {row[:4] for row in drawn.splitlines()[1:]} == {"1,2,"}  # the only level of x0 beside x1=2
    assert drawn == shell("sample", "m.uai", "-n", "20", "--given", "x1=2").out
    Path("e.evid").write_text("2 0 0 1 2")
    shell.refused("sample", "m.uai", "-n", "2", "--evidence", "e.evid", says=["--evidence: x0=0, x1=2 has probability"])
    shell.refused("sample", "m.uai", "-n", "2", "--given", "x0=0", "--given", "x1=2", says=["--given: x0=0, x1=2"])
    Path("t.csv").write_text("x0,x1,x2\n1,,0\n")
    shell.refused(
        "sample", "m.uai", "--complete", "t.csv", "--evidence", "e.evid", says=["--evidence: cannot be combined"]
    )


# Models of our own.

_DOMAIN = Domain.from_labels({"a": ("n", "y"), "b": ("l", "m", "h"), "c": ("0", "1")})


def test_models_of_our_own_take_evidence_by_number(shell):
    save_random("m.safetensors", InteractionHypergraph.from_order(_DOMAIN, 2), 1.0)
    energy = stored("m.safetensors")
    Path("e.evid").write_text("1\n2 1 2 2 0\n")
    weights = [math.exp(-float(energy.energy(energy.tables.new_tensor([a, 2, 0]).long()))) for a in range(2)]
    assert shell.json("log-z", "m.safetensors", "--evidence", "e.evid")["value"] == pytest.approx(
        math.log(sum(weights)), abs=1e-12
    )
    best = shell.json("mode", "m.safetensors", "--evidence", "e.evid")
    assert best["state"] == {"a": "ny"[weights.index(max(weights))], "b": "h", "c": "0"}
    assert best["given"] == {"b": "h", "c": "0"}
    assert best["log_prob"] == pytest.approx(math.log(max(weights) / sum(weights)), abs=1e-12)
    cells = shell.json("margins", "m.safetensors", "a", "--given", "b=h", "--evidence", "e.evid")["cells"]
    assert [cell["probability"] for cell in cells] == pytest.approx([w / sum(weights) for w in weights], abs=1e-12)


# What is refused.


@pytest.mark.parametrize("command", ["log-z", "mode", "margins"])
def test_wrong_files_are_refused_in_one_line(command, shell):
    Path("m.uai").write_text("MARKOV 2 2 2 1 2 0 1 4 1 1 1")
    shell.refused(command, "m.uai", says=["m.uai: ", "the tables of all factors", "truncated"])
    Path("m.uai").write_text("MARKOV 2 2 2\n1 2 0 1\n4 1 1 -1 1")
    shell.refused(command, "m.uai", says=["m.uai, line 3: expected a finite number from 0, received '-1'"])
    Path("m.uai").write_text("MARKOV 2 2 2\n1 2 0 1\n4 1 1 1 1")
    for name, word in {"a.uai": "MARKOFF", "b.UAI": "markov", "c.uai": "\ufeffMARKOV"}.items():
        Path(name).write_text(f"{word} 1 2 0", encoding="utf-8")
        shell.refused(command, name, says=[f"{name}, line 1: expected MARKOV or BAYES"])
    Path("a.uai").write_text("")
    shell.refused(command, "a.uai", says=["a.uai: expected a model in the UAI format, received an empty file"])
    Path("e").write_text("2\n1 0 1\n1 1 1\n")
    shell.refused(command, "m.uai", "--evidence", "e", says=["e: holds 2 samples of evidence; keep one in the file"])
    Path("e").write_text("1 2 0")
    shell.refused(command, "m.uai", "--evidence", "e", says=["e, line 1: expected the number of a variable", "'2'"])
    shell.refused(command, "m.uai", "--evidence", "none", says=["none: no such file"])
    Path("r").write_text("")
    shell.refused(command, "m.uai", "--out", "r", says=["--out: r exists"])
    shell.refused(command, "m.uai", "--out", "none/r", says=["--out: the folder"])


def test_other_commands_say_which_take_uai_files(shell):
    Path("m.uai").write_text("MARKOV 1 2 0")
    shell.refused("interactions", "m.uai", says=["received a UAI file; log-z, mode, margins"])


def test_what_excludes_itself_is_refused(shell):
    Path("m.uai").write_text(text_of([2, 2], [((0, 1), [[1, 0], [1, 1]])]))
    Path("e").write_text("1 0 0")
    shell.refused("mode", "m.uai", "--given", "x0=1", "--evidence", "e", says=["--evidence: fixes 'x0'"])
    shell.refused("margins", "m.uai", "x1", "--out", "r", says=["--out: the file has", "leave out NAMES"])
    shell.refused("margins", "m.uai", "x0", "--evidence", "e", says=["fixes 'x0'"])
    shell.refused("mode", "m.uai", "--given", "x0=0", "--given", "x1=1", says=["probability zero"])
    shell.refused("margins", "m.uai", "--given", "x0=0", "--given", "x1=1", says=["probability zero"])
    told = shell.refused("sample", "m.uai", "-n", "3", "--given", "x0=0", "--given", "x1=1", says=["give other values"])
    assert "fit" not in told  # nothing was
    everything = shell.json("mode", "m.uai", "--given", "x0=0", "--given", "x1=0")
    assert everything["state"] == {"x0": "0", "x1": "0"} and everything["log_prob"] == 0


def test_margins_by_name_are_refused_where_those_of_every_column_are(shell):
    weights = np.array([[[1.0, 0], [2, 3]], [[0, 0], [4, 0]]])
    Path("m.uai").write_text(text_of([2, 2, 2], [((0, 1, 2), weights)]))
    for a, b in itertools.product(range(2), repeat=2):
        rest, given = weights[a, b], ("--given", f"x0={a}", "--given", f"x1={b}")
        if rest.any():
            cells = shell.json("margins", "m.uai", "x2", *given)["cells"]
            assert [cell["probability"] for cell in cells] == pytest.approx(list(rest / rest.sum()), abs=1e-14)
        else:
            words = f"x0={a}, x1={b} has probability zero in the model; give other values"
            for asked in (("margins", "m.uai", "x2"), ("margins", "m.uai"), ("mode", "m.uai")):
                shell.refused(*asked, *given, says=[words])
    # Without a possible state nothing is fixed that could be changed.
    Path("z.uai").write_text(text_of([2, 2], [((0, 1), [[0, 0], [0, 0]])]))
    assert shell.refused("margins", "z.uai", "x1") == shell.refused("margins", "z.uai")


def test_large_models_are_refused_with_what_helps(shell):
    pairs = [((i, j), [[1, 2], [2, 1]]) for i in range(45) for j in range(i)]
    Path("m.uai").write_text(text_of([2] * 45, pairs))
    assert "fix columns with --given or --evidence" in shell.refused("mode", "m.uai")
    assert "--method ais" in shell.refused("log-z", "m.uai")
    # What is too large to be read is no matter of the method.
    Path("w.uai").write_text(f"MARKOV 70000 {'2 ' * 70000} 0")
    told = shell.refused("log-z", "./w.uai", says=["w.uai: it has 70,000 variables"])
    assert told.endswith("; read_uai in Python takes max_variables=..., if that is meant")
    Path("e").write_text(" ".join(map(str, [30, *(number for i in range(30) for number in (i, 0))])))
    assert shell.json("mode", "m.uai", "--evidence", "e")["kind"] == "exact"


def test_a_model_without_a_possible_state_has_log_z_minus_infinity_and_nothing_else(shell):
    Path("m.uai").write_text(text_of([2, 2], [((0, 1), [[1, 0], [0, 0]]), ((0,), [0, 1])]))
    shown = shell("log-z", "m.uai", "--out", "z.PR").out.splitlines()
    assert shown[0].startswith("log Z = -inf (exact") and shown[1] == "no state is possible: Z is zero"
    assert Path("z.PR").read_text() == "PR\n-inf\n"
    found = shell.json("log-z", "m.uai")
    assert found["value"] is None and found["is_zero"] is True
    Path("e").write_text("1 1 1")
    assert shell.json("log-z", "m.uai", "--evidence", "e")["is_zero"] is True
    for command in ("mode", "margins", "sample -n 2"):
        told = shell.refused(*command.split()[:1], "m.uai", *command.split()[1:])
        assert "no state is possible" in told and "--given" not in told


@pytest.mark.parametrize("evidence", [(), ("--evidence", "e")])
@pytest.mark.parametrize("method", ["auto", "exact", "bounds", "ais"])
def test_every_method_says_that_z_is_zero(method, evidence, shell):
    Path("m.uai").write_text(text_of([2, 2, 2], [((0, 1), [[1, 0], [0, 0]]), ((0,), [0, 1])]))
    Path("e").write_text("1 2 1")
    command = ("log-z", "m.uai", "--method", method, *evidence)
    found = shell.json(*command)
    assert (found["value"], found["upper"], found["is_zero"]) == (None, None, True)
    shown = shell(*command).out
    assert shown.startswith("log Z = -inf") and shown.endswith("no state is possible: Z is zero\n")
    assert "unknown" not in shown and "inf to inf" not in shown


def test_an_estimate_that_met_no_possible_state_does_not_say_that_z_is_zero(shell, monkeypatch):
    """Where no draw is possible the estimate is minus infinity, and the upper limit alone says something."""
    Path("m.uai").write_text(text_of([2, 2], [((0, 1), [[1, 0], [0, 1]])]))
    estimate = BucketImportance.log_partition

    def missed(self, model):
        nothing = torch.tensor(-math.inf, dtype=torch.float64)
        found = estimate(self, model)
        unreliable = torch.tensor(Verdict.UNRELIABLE, dtype=torch.int8)
        return replace(found, value=nothing, lower=nothing, lower_bound=nothing, ess=0 * found.ess, verdicts=unreliable)

    monkeypatch.setattr(BucketImportance, "log_partition", missed)
    assert shell.json("log-z", "m.uai", "--method", "auto")["value"] == pytest.approx(math.log(2))
    found = shell.json("log-z", "m.uai", "--method", "bounds")
    assert found["value"] is None and found["upper"] == pytest.approx(math.log(2))
    assert "is_zero" not in found
    shown = shell("log-z", "m.uai", "--method", "bounds").out
    assert "no state is possible" not in shown and re.search(r"limits +-inf to 0\.693", shown)


def test_a_level_that_no_draw_has_is_not_called_certain(shell):
    """Of 45 columns that all interact the first is rarely 1, one time in 100,000."""
    pairs = [((i, j), [[1, 1.01], [1.01, 1]]) for i in range(45) for j in range(i)]
    singles = [((0,), [1, 1e-5])]
    Path("m.uai").write_text(text_of([2] * 45, pairs + singles))
    for found in (
        shell.json("margins", "m.uai", "--num-draws", "200")["columns"][0],
        shell.json("margins", "m.uai", "x0", "--num-draws", "200"),
    ):
        errors = found["std_errors"] if "std_errors" in found else [cell["std_error"] for cell in found["cells"]]
        assert all(0.0005 < error < 0.01 for error in errors), errors
