"""Wrong input of every command: exit status 2, one clear line on standard error, nothing written."""

from pathlib import Path

import pytest

from support.verbs import verb_first

GOOD = "a,b,c\nx,0,u\ny,1,v\nx,1,u\ny,0,v\nx,0,v\n"
SIXTY = "a,b,c\n" + "".join(f"{i % 2},{i % 3},{i % 5 % 2}\n" for i in range(60))
UNIQUE = "id,a\n" + "".join(f"{i},{i % 2}\n" for i in range(60))
HOLE = "a,b\nx,\ny,1\nx,1\n"
WIDE = ",".join(f"v{i}" for i in range(40)) + "\n" + ",".join("x" * 40) + "\n"
SEED = "--seed: expected a whole number from 0 to 2147483647, received"


def write(name, content):
    """Write an input file and return its name."""
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


# The table, the options of ``fit`` as one line, and what the error begins with or the fragments that it has.
OF_FIT = [
    # what is fitted
    (GOOD, "--columns a,bb", ["'bb'", "'b'"]),
    (GOOD, "--edges a*cc", ["unknown variable 'cc'", "'c'"]),
    (GOOD, "--edges a:b", ["not closed", "missing a, b"]),
    (GOOD, "--edges a+*b", ["formula"]),
    (WIDE, "--edges .^12", ["sets"]),
    (GOOD, "--target z", ["unknown variable 'z'"]),
    (GOOD, "--order 4", ["1 to 3", "4"]),
    (GOOD, "--order 0", ["1 to 3", "0"]),
    (SIXTY, "--order many", "--order: expected a whole number, received 'many'"),
    (GOOD, "--order 1 --edges a+b+c", ["--edges", "a+b+c has the same interactions as order 1"]),
    (GOOD, "--model grm", ["expected a number", "received 'x'"]),
    (GOOD, "--model tree", ["tree", "log-linear"]),
    (GOOD, "--split 0.5,0.5,0.5", ["--split", "sum to 1"]),
    (GOOD, "--split half", ["--split", "three fractions"]),
    ("a,b\nx,0\ny,1\n", "--split 0.8,0.1,0.1", ["--split", "part"]),
    (SIXTY, "--seed x", f"{SEED} 'x'"),
    (SIXTY, "--seed 1.5", f"{SEED} 1.5"),
    (SIXTY, "--seed -1", f"{SEED} -1"),
    (GOOD, "--columns 9", ["9"]),
    (SIXTY, "--columns 0", "--columns: expected a number from 1 to 3 for t.csv, received 0"),
    (SIXTY, "--columns a,a", "--columns: names must be unique, but 'a' is repeated"),
    (GOOD, "--columns=", ["--columns"]),
    (SIXTY, "--posterior --num-chains 0", "--num-chains: expected a whole number from 1 to 64, received 0"),
    (
        SIXTY,
        "learn --trainer gibbs",
        "--trainer: 'gibbs' is not one of 'auto', 'exact', 'sampled', 'pseudo-likelihood'",
    ),
    (SIXTY, "--refit all", "--refit: belongs to --model grm"),
    (GOOD, "--out no/such/folder", ["does not exist"]),
    (GOOD, "--resume", ["--resume"]),
    (SIXTY, "learn --resume", ["--resume"]),
    # the search
    (SIXTY, "learn --max-order 1", ["--max-order", "2 to 3", "received 1"]),
    (SIXTY, "learn --max-order 4", ["--max-order: expected 2 to 3 (the number of variables)", "received 4"]),
    (SIXTY, "learn --max-order 9", "--max-order: expected 2 to 3 (the number of variables)"),
    (SIXTY, "learn --edges a*b", ["--edges"]),
    (SIXTY, "learn --posterior", ["--posterior"]),
    (SIXTY, "learn --model grm", ["--model"]),
    (SIXTY, "--select", "--select: is a command of its own; write pyro-hoim learn"),
    (SIXTY, "--structure-posterior", "--structure-posterior: is a command of its own; write pyro-hoim structures"),
    (SIXTY, "--count-column n", ["--count-column", "Did you mean", "--count"]),
    (SIXTY, "--num-draw 5", ["--num-draw", "Did you mean", "--num-draws"]),
    (SIXTY, "learn --heredity nan", "--heredity: expected a number above 0, up to 1, received 'nan'"),
    (SIXTY, "learn --heredity 0", "--heredity: expected a number above 0, up to 1, received 0"),
    (SIXTY, "learn --heredity 1.5", ["--heredity"]),
    (SIXTY, "learn --per-round 0", "--per-round: expected a whole number of at least 1, received 0"),
    (SIXTY, "learn --target z", ["unknown variable 'z'"]),
    ("a,b\n" + "x,y\nz,w\n" * 9, "learn --target c", "--target: unknown variable 'c'; known: 'a', 'b'"),
    (SIXTY, "learn --ordinal z", ["--ordinal", "'z'"]),
    (SIXTY, "learn --split 0.5,0,0.5", ["validation part is empty", "--split"]),
    (SIXTY, "learn --split 0.9,0.001,0.099", ["--split", "validation part"]),
    (UNIQUE, "learn --columns id,a", ["t.csv: expected columns that", "'id' (60 levels in 60 rows)", "unique per row"]),
    ("a,b\nx,y\n", "learn", "--split: no row of 1 falls in the train part; use a larger fraction or more rows"),
    # missing cells
    (HOLE, "", ["1 cell", "--missing drop", "--missing marginalise"]),
    ("a,b\nx,?\ny,1\nx,?\n", "--missing ?", ["2 cells", "--missing drop"]),
    (GOOD, "--missing drop --missing marginalise", ["not both"]),
    (HOLE, "--missing marginalise --split 0.4,0.3,0.3", ["validation"]),
    (HOLE, "learn", ["1 cell", "--missing drop"]),
    (HOLE, "learn --missing marginalise", ["validation", "--missing drop"]),
    ("a,b\nx,\ny,\nz,\n,1\n", "learn --missing drop", ["no complete row"]),
    ("a,b\n" + ",1\n" * 9, "learn --missing drop --columns a,b", "column 'a': expected at least one level"),
]
OF_FILES = [
    ("", "t.csv: expected a header and rows, received an empty file"),
    ("a,b\n", "t.csv: expected rows below the header, received the header only"),
    ("a,a\nx,y\n", "t.csv header: names must be unique, but 'a' is repeated"),
    ("a,,c\n1,2,3\n", "t.csv: expected a name for every column, received none for column 2"),
    ("a,b\nx,y\nx\n", ["line 3"]),
    ('a,b\n"1,2\n2,1\n', "t.csv line"),
    ("a,count\nx,3\ny,-2\n", "t.csv line 3, column 'count': expected a non-negative whole number, received '-2'"),
    ("a,b,count\nx,y,1.5\ny,y,1\n", ["count", "1.5"]),
    ("a,b,count\nx,y,nan\ny,y,1\n", ["count", "nan"]),
    ("a,b,count\nx,y,inf\ny,y,1\n", ["count", "inf"]),
    ("a,b,count\nx,y,many\ny,y,1\n", ["count", "many"]),
    ("a,b,count\nx,y,0\ny,y,0\n", ["at least one observation"]),
]


def refused(content, options, told, shell):
    line = shell.refused(*verb_first(write("t.csv", content), *options), says=told if isinstance(told, list) else [])
    assert isinstance(told, list) or line.startswith(told), line


@pytest.mark.parametrize(("content", "options", "told"), OF_FIT)
def test_fit_refuses(content, options, told, shell):
    refused(content, options.split(), told, shell)


@pytest.mark.parametrize("search", [[], ["learn"]], ids=["fit", "learn"])
@pytest.mark.parametrize(("content", "told"), OF_FILES)
def test_files_are_refused(content, search, told, shell):
    refused(content, search, told, shell)


@pytest.mark.parametrize("options", [["--order", "1"], ["learn"]])
def test_control_the_same_tables_without_fault_are_accepted(options, shell):
    content = SIXTY if "learn" in options else GOOD
    shell(*verb_first(write("t.csv", content), *options, "--out", "out"))
    assert Path("out/report.html").exists()
    shell(*verb_first(write("unique.csv", UNIQUE), "--columns", "a", *options, "--out", "second"))


def test_source_must_exist(shell):
    shell.refused("fit", "nowhere.csv", says=["no such file", "czech_autoworkers"])
    Path("input").mkdir()
    shell.refused("fit", "input", says=["input"])
    shell.refused("learn", says=["Missing argument"])


def test_existing_folder_is_kept(shell):
    Path("full").mkdir()
    (Path("full") / "precious.txt").write_text("mine")
    shell.refused("fit", "titanic", "--out", "full", says=["exists and is not empty", "--resume"])
    shell.refused("fit", "titanic", "--out", "full/precious.txt", says=["is a file"])
    assert (Path("full") / "precious.txt").read_text() == "mine"


def test_beyond_the_budget(shell):
    names = [f"v{i}" for i in range(40)]
    rows = "\n".join(",".join(str((i * 7 + j * j) % 2) for j in range(40)) for i in range(8))
    source = write("wide.csv", ",".join(names) + "\n" + rows + "\n")
    shell.refused("fit", source, "--order", "2", "--posterior", says=["cells", "budget"])


def test_foreign_model_files(shell):
    data = write("table.csv", GOOD)
    for name, content in [
        ("text.safetensors", "hello"),
        ("empty.safetensors", ""),
        ("pickle.safetensors", b"\x80\x04N."),
    ]:
        model = write(name, content)
        for command in (["log-z"], ["interactions"], ["sample", "-n", "1"]):
            shell.refused(command[0], model, *command[1:], says=[name])
        shell.refused("score", model, data, says=[name])
        shell.refused("predict", model, data, "--target", "a", says=[name])
    shell.refused("log-z", "nowhere.safetensors", says=["nowhere.safetensors"])


def test_wrong_use_of_a_good_model(shell):
    shell("fit", write("table.csv", GOOD), "--order", "1", "--out", "out")
    model = "out/model.safetensors"
    other = write("other.csv", "a,b,c\nx,0,u\nz,1,v\n")
    unknown = write("unknown.csv", "a,b,c\nz,1,v\n")  # rows with labels that the fit did not know are left out
    shell.refused("score", model, unknown, says=["'z'", "a"])
    shell.refused("score", model, write("short.csv", "a,b\nx,0\n"), says=["'c'"])
    shell.refused("predict", model, other, "--target", "q", says=["unknown variable 'q'"])
    shell.refused("sample", model, "-n", "3", "--given", "a", says=["COL=VALUE"])
    shell.refused("sample", model, "-n", "3", "--given", "a=w", says=["'w'", "'x'"])
    shell.refused("sample", model, "-n", "3", "--given", "aa=x", says=["unknown variable 'aa'"])
    shell.refused("sample", model, "-n", "-3", says=["-n"])
    shell.refused("sample", model, says=["-n"])
    shell.refused("sample", model, "-n", "1", "--out", "out/model.safetensors", says=["exists"])
    shell.refused("log-z", model, "--num-chains", "8", says=["--method ais"])
    shell.refused("frobnicate", says=["frobnicate"])


def test_numbers_of_other_commands(shell):
    for arguments, shown in [
        (["sample", "m", "-n", "0"], "-n: expected a whole number of at least 1, received 0"),
        (["sample", "m", "-n", "x"], "-n: expected a whole number of at least 1, received 'x'"),
        (["interactions", "m", "--top", "0"], "--top: expected a whole number of at least 1, received 0"),
        (["log-z", "m", "--num-chains", "0"], "--num-chains: expected a whole number of at least 1, received 0"),
    ]:
        assert shell.refused(*arguments) == shown
