"""Options and messages in the words of the command line: given twice, grouped in the help, named in errors."""

import inspect
import re
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim.boltzmann import LearningOptions, fit_machine
from pyro_hoim.cli import cli
from pyro_hoim.cli.output import written
from pyro_hoim.cli.wording import error_message, warning_message
from pyro_hoim.core.words import in_python, options_written
from pyro_hoim.data.columns import FrameOptions
from pyro_hoim.errors import ConvergenceWarning, IntractableError, UnknownNameError, out_of_range, refused
from pyro_hoim.families import families
from pyro_hoim.generalized_root import RootSettings
from pyro_hoim.generalized_root.annealed import _traits
from pyro_hoim.inference import ChainSettings, NUTSSettings, StructurePrior
from pyro_hoim.information import removal_values
from pyro_hoim.log_linear import SelectionOptions
from pyro_hoim.log_linear.annealed.importance import advice
from pyro_hoim.log_linear.learning.learn import learn_variables
from pyro_hoim.results import Fitted


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
        ("dependency-network", "--max-leaves", "--posterior"),
        ("log-linear", "--posterior", "--max-leaves"),
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


ENCODED = refused("t.csv", "not utf-8 (byte 0xff)", "give its encoding, such as encoding='x'", code="wrong-encoding")
TAKEN = refused("checkpoint", "run exists", "pass resume=True to continue", code="existing-file")
BUDGET = IntractableError("9e9 cells, the budget is 100", hint="raise VariableElimination(max_cells=...)")
NO_LAWS = refused("trainer", "has no marginal laws", "use the trainer 'sampled' or the score 'J'", code="over-budget")


@pytest.mark.parametrize(
    ("command", "error", "shown"),
    [
        ("learn", out_of_range("max_order", "at least 1", 0), "--max-order: expected at least 1, received 0"),
        ("learn", out_of_range("per_round", "1 or\n more", 0), "--per-round: expected 1 or more, received 0"),
        (
            "fit",
            UnknownNameError("unknown column 'q'", argument="columns of t.csv"),
            "--columns of t.csv: unknown column 'q'",
        ),
        ("sample", out_of_range("number", "at least 1", 0), "-n: expected at least 1, received 0"),
        ("learn", NO_LAWS, "--trainer: has no marginal laws; use --trainer sampled"),
        (
            "fit",
            ENCODED,
            (
                "t.csv: not utf-8 (byte 0xff); give its encoding, such as --encoding cp1251 or cp850, "
                "or save the file as UTF-8"
            ),
        ),
        ("fit", TAKEN, "checkpoint: run exists; pass --resume to continue that run, or choose another name"),
        ("log-z", BUDGET, "9e9 cells, the budget is 100; use --method ais"),
        ("fit", BUDGET, "9e9 cells, the budget is 100; use fewer --columns or a lower --order"),
        ("interactions", BUDGET, "9e9 cells, the budget is 100; leave it out with --no-information"),
        ("log-z", BUDGET.replace(hint="--given fixes columns"), "9e9 cells, the budget is 100; --given fixes columns"),
        # what names no option of the command stays as it is
        ("tables", out_of_range("max_order", "at least 1", 0), "max_order: expected at least 1, received 0"),
        ("fit", refused("order.csv", "no such file"), "order.csv: no such file"),
        ("fit", refused("seed.csv line 3", "expected 2 cells"), "seed.csv line 3: expected 2 cells"),
    ],
)
def test_arguments_and_hints_become_options(command, error, shown):
    found = cli.get_command(click.Context(cli), command)
    assert error_message(error, found) == shown


def test_every_command_on_models_says_what_to_do_where_a_computation_is_too_large():
    others = "sample", "score", "predict", "log-z", "interactions", "margins", "compare"
    for name in ("fit", "learn", "structures", *others):
        command = cli.get_command(click.Context(cli), name)
        told = error_message(BUDGET, command).removeprefix("9e9 cells, the budget is 100; ")
        options = {word for p in command.get_params(click.Context(command)) for word in (*p.opts, *p.secondary_opts)}
        named = {word.strip(",") for word in told.split() if word.startswith("--")}
        assert named <= options and (named or name == "margins")
        assert not {"VariableElimination", "max_cells"} & set(told.replace("(", " ").split())


def test_the_error_is_the_last_line_after_warnings(shell):
    names = [f"x{i}" for i in range(40)]
    rows = ["0," + ",".join(str((i >> j % 5) & 1) for j in range(39)) for i in range(32)]
    Path("wide.csv").write_text("\n".join([",".join(names), *rows]) + "\n", encoding="utf-8")
    lines = shell("fit", "wide.csv", "--order", "2", "--posterior", "--out", "o", status=2).err.splitlines()
    assert any("warning: constant column" in line for line in lines[:-1])
    assert [line.startswith("pyro-hoim: error: ") for line in lines] == [False] * (len(lines) - 1) + [True]
    assert "--columns" in lines[-1] and not Path("o").exists()


def test_a_file_may_have_the_name_of_an_option():
    found = cli.get_command(click.Context(cli), "sample")
    error = refused("out", "no model")
    assert error_message(error, found) == "--out: no model"
    assert error_message(error, found, ["out", "-n", "2"]) == "out: no model"


def test_warnings_of_estimates_name_the_options():
    for method in ("AnnealedImportance", "RootAnnealed"):
        warning = ConvergenceWarning("the estimate is unreliable", argument=method, hint="use block moves")
        shown = "--method ais: the estimate is unreliable; use more --num-temperatures or --num-chains"
        assert warning_message(warning) == shown
    assert warning_message(ConvergenceWarning("not\nsettled", hint="wait")) == "not settled; wait"


CALLS = [
    *(hoim.fit, learn_variables, SelectionOptions, hoim.learn, hoim.learn_network, hoim.fit_roots, RootSettings),
    *(
        hoim.log_linear.fit,
        fit_machine,
        LearningOptions,
        NUTSSettings,
        ChainSettings,
        StructurePrior,
        hoim.AnnealedImportance,
        hoim.log_linear.BucketImportance,
    ),
    *(hoim.sample, hoim.predict, hoim.score, hoim.compare, removal_values, Fitted.summary, Fitted.interactions),
    *(Fitted.report, hoim.data.open_rows, hoim.Observations.from_csv, hoim.LogLinearEnergy.condition),
]
OF_THE_COMMAND_LINE = {
    # files and folders, and what is printed
    *("as_json", "out", "resume", "complete", "levels", "levels_from", "vocab"),
    # what is a call, a class, or an argument of another kind in Python
    *("posterior", "tests", "maximum", "ordinal", "information", "most_probable", "device"),
    "memory_limit",  # max_memory_bytes, in units
    # what calls do to rows before the fit
    "split",
}


def test_options_are_spelled_as_the_arguments_of_the_python_calls():
    words = {name for call in CALLS for name in {*inspect.signature(call).parameters, *inspect.get_annotations(call)}}
    words |= {*FrameOptions.__annotations__}  # of every call that takes a data frame
    options = {
        str(param.name)
        for name in cli.list_commands(click.Context(cli))
        for param in cli.get_command(click.Context(cli), name).get_params(click.Context(cli))
        if isinstance(param, click.Option) and param.name != "_click_default_help"
    }
    assert options - words == OF_THE_COMMAND_LINE


def test_notes_advise_in_a_command_only_what_a_command_takes():
    """The control: in Python they name the arguments."""
    words = [advice, lambda: _traits().advice, lambda: in_python("combine=True", "")]
    only_python = re.compile(r"\w=|GibbsSchedule|num_temperatures")
    assert all(only_python.search(each()) for each in words)
    with options_written(written):
        assert not any(only_python.search(each()) for each in words)


@pytest.mark.filterwarnings("error")
def test_no_note_of_an_annealed_estimate_in_a_command_is_written_in_python(shell):
    """Coupled columns and too few temperatures: every note and warning about it is about options."""
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.integers(0, 2, (400, 1)), 8, 1) ^ (rng.random((400, 8)) < 0.03)
    pd.DataFrame(rows.astype(int)).add_prefix("x").to_csv("rows.csv", index=False)
    shell("fit", "rows.csv", "--order", "2", "--prior", "unit", "--out", "m")
    result = shell("log-z", "m", "--method", "ais", "--num-temperatures", "2", "--num-chains", "32")
    assert "unreliable" in result.out
    assert not re.search(r"combine=|schedule=|resample_below|GibbsSchedule|num_temperatures", result.out + result.err)
