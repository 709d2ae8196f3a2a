"""Wrong input at the command line: exit status 2, one clear line on standard error, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyro_hoim.cli import run

GOOD = "a,b,c\nx,0,u\ny,1,v\nx,1,u\ny,0,v\nx,0,v\n"


@pytest.fixture(autouse=True)
def inside_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run every command in a fresh folder."""
    (tmp_path / "input").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, content: str | bytes) -> str:
    """Write an input file and return its path as text."""
    path = Path("input") / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def check_refused(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line on standard error with the words, nothing on standard output, status 2, nothing new on disk."""
    before = sorted(str(p) for p in Path().rglob("*"))
    status = run(arguments)
    captured = capsys.readouterr()
    assert status == 2, captured
    assert captured.out == ""
    assert captured.err.startswith("pyro-hoim: error: ") and captured.err.count("\n") == 1, captured.err
    for word in words:
        assert word in captured.err, captured.err
    assert sorted(str(p) for p in Path().rglob("*")) == before


FILES: list[tuple[str, str | bytes, list[str], list[str]]] = [
    ("unknown column", GOOD, ["--columns", "a,bb"], ["'bb'", "'b'"]),
    ("unknown edge variable", GOOD, ["--edges", "a*cc"], ["unknown variable 'cc'", "'c'"]),
    ("not closed", GOOD, ["--edges", "a:b"], ["not closed", "missing a, b"]),
    ("bad formula", GOOD, ["--edges", "a +* b"], ["formula"]),
    ("unknown target", GOOD, ["--target", "z"], ["unknown variable 'z'"]),
    ("order too high", GOOD, ["--order", "4"], ["1 to 3", "4"]),
    ("order zero", GOOD, ["--order", "0"], ["1 to 3", "0"]),
    ("order and edges", GOOD, ["--order", "1", "--edges", "a"], ["--order", "--edges", "not both"]),
    ("text for grm", GOOD, ["--model", "grm"], ["expected a number", "received 'x'"]),
    ("unknown model", GOOD, ["--model", "tree"], ["tree", "log-linear"]),
    ("split sum", GOOD, ["--split", "0.5,0.5,0.5"], ["--split", "sum to 1"]),
    ("split words", GOOD, ["--split", "half"], ["--split", "three fractions"]),
    ("negative seed", GOOD, ["--seed", "-1"], ["--seed"]),
    ("too many columns", GOOD, ["--columns", "9"], ["9"]),
    ("duplicate header", "a,a\nx,y\n", [], ["'a'", "repeated"]),
    ("duplicate column choice", GOOD, ["--columns", "a,a"], ["'a'", "repeated"]),
    ("empty file", "", [], ["empty"]),
    ("header only", "a,b\n", [], ["header only"]),
    ("ragged", "a,b\nx,y\nx\n", [], ["line 3"]),
    ("not text", b"a,b\n\xff\xfe,y\n", [], ["UTF-8"]),
    ("negative count", "a,b,count\nx,y,3\ny,y,-1\n", [], ["count", "-1"]),
    ("fractional count", "a,b,count\nx,y,1.5\ny,y,1\n", [], ["count", "1.5"]),
    ("NaN count", "a,b,count\nx,y,nan\ny,y,1\n", [], ["count", "nan"]),
    ("infinite count", "a,b,count\nx,y,inf\ny,y,1\n", [], ["count", "inf"]),
    ("word as count", "a,b,count\nx,y,many\ny,y,1\n", [], ["count", "many"]),
    ("zero counts", "a,b,count\nx,y,0\ny,y,0\n", [], ["at least one observation"]),
    ("missing cells", "a,b\nx,\ny,1\nx,1\n", [], ["1 cell", "--missing drop", "--missing marginalise"]),
    ("label as missing", "a,b\nx,?\ny,1\nx,?\n", ["--missing", "?"], ["2 cells", "--missing drop"]),
    ("two policies", GOOD, ["--missing", "drop", "--missing", "marginalise"], ["not both"]),
    (
        "marginalise and validate",
        "a,b\nx,\ny,1\nx,1\n",
        ["--missing", "marginalise", "--split", "0.4,0.3,0.3"],
        ["validation"],
    ),
    ("empty part", "a,b\nx,0\ny,1\n", ["--split", "0.8,0.1,0.1"], ["--split", "part"]),
    ("empty column name", GOOD, ["--columns", ""], ["--columns"]),
    (
        "huge power",
        ",".join(f"v{i}" for i in range(40)) + "\n" + ",".join("x" * 40) + "\n",
        ["--edges", ".^12"],
        ["sets"],
    ),
    ("parent of out missing", GOOD, ["--out", "no/such/folder"], ["does not exist"]),
    ("nothing to resume", GOOD, ["--resume"], ["--resume"]),
]


@pytest.mark.parametrize(("content", "options", "words"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_fit_refuses(
    content: str | bytes, options: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(["fit", write("table.csv", content), *options], words, capsys)


def test_control_the_same_table_without_fault_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", write("table.csv", GOOD), "--order", "1", "--out", "out"]) == 0
    assert (Path("out") / "report.html").exists()
    capsys.readouterr()


def test_source_must_exist(capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(["fit", "nowhere.csv"], ["no such file", "czech_autoworkers"], capsys)
    check_refused(["fit", "input"], ["input"], capsys)


def test_existing_folder_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("full").mkdir()
    (Path("full") / "precious.txt").write_text("mine")
    check_refused(["fit", "titanic", "--out", "full"], ["exists and is not empty", "--resume"], capsys)
    check_refused(["fit", "titanic", "--out", "full/precious.txt"], ["is a file"], capsys)
    assert (Path("full") / "precious.txt").read_text() == "mine"


def test_beyond_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"v{i}" for i in range(40)]
    rows = "\n".join(",".join(str((i * 7 + j * j) % 2) for j in range(40)) for i in range(8))
    source = write("wide.csv", ",".join(names) + "\n" + rows + "\n")
    check_refused(["fit", source, "--order", "2", "--posterior"], ["cells", "budget"], capsys)


def test_foreign_model_files(capsys: pytest.CaptureFixture[str]) -> None:
    data = write("table.csv", GOOD)
    for name, content in [
        ("text.safetensors", "hello"),
        ("empty.safetensors", ""),
        ("pickle.safetensors", b"\x80\x04N."),
    ]:
        model = write(name, content)
        for command in (["log-z"], ["interactions"], ["sample", "-n", "1"]):
            check_refused([command[0], model, *command[1:]], [name], capsys)
        check_refused(["score", model, data], [name], capsys)
        check_refused(["predict", model, data, "--target", "a"], [name], capsys)
    check_refused(["log-z", "nowhere.safetensors"], ["nowhere.safetensors"], capsys)


def test_wrong_use_of_a_good_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", write("table.csv", GOOD), "--order", "1", "--out", "out"]) == 0
    capsys.readouterr()
    model = "out/model.safetensors"
    other = write("other.csv", "a,b,c\nx,0,u\nz,1,v\n")
    unknown = write("unknown.csv", "a,b,c\nz,1,v\n")  # rows with labels that the fit did not know are left out
    check_refused(["score", model, unknown], ["'z'", "a"], capsys)
    check_refused(["score", model, write("short.csv", "a,b\nx,0\n")], ["'c'"], capsys)
    check_refused(["predict", model, other, "--target", "q"], ["unknown variable 'q'"], capsys)
    check_refused(["sample", model, "-n", "3", "--given", "a"], ["COL=VALUE"], capsys)
    check_refused(["sample", model, "-n", "3", "--given", "a=w"], ["'w'", "'x'"], capsys)
    check_refused(["sample", model, "-n", "3", "--given", "aa=x"], ["unknown variable 'aa'"], capsys)
    check_refused(["sample", model, "-n", "-3"], ["-n"], capsys)
    check_refused(["sample", model], ["-n"], capsys)
    check_refused(["sample", model, "-n", "1", "--out", "out/model.safetensors"], ["exists"], capsys)
    check_refused(["log-z", model, "--chains", "8"], ["--method ais"], capsys)
    check_refused(["frobnicate"], ["frobnicate"], capsys)
