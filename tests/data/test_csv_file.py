"""CSV files: the same cells as the writer's, and one clear error for each thing that can be wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pyro_hoim.data.csv_file import read_csv
from pyro_hoim.errors import InputError

CELL = st.text(st.sampled_from('ab,"\n;é? 1'), max_size=4).map(str.strip)


@given(
    rows=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5),
    bom=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_cells_come_back_as_written(tmp_path_factory, rows, bom: bool, newline: str) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", encoding="utf-8-sig" if bom else "utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator=newline, quoting=csv.QUOTE_ALL)
        writer.writerow(["x", "y, z"])
        writer.writerows(rows)
    table = read_csv(path)
    assert table.header == ("x", "y, z")
    assert list(zip(*table.columns, strict=True)) == rows
    assert table.column("y, z") == tuple(y for _, y in rows)


def write(folder: Path, content: bytes | str) -> Path:
    path = folder / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"t\.csv: expected a header and rows, received an empty file"),
        (" \n\n", "received an empty file"),
        ("a,b\n", r"t\.csv: expected rows below the header, received the header only"),
        ("a,b\n1,2\n3\n", r"t\.csv line 3: expected 2 cells as in the header, received 1"),
        ("a,b\n1,2\n\n3,4,5\n", r"t\.csv line 4: expected 2 cells as in the header, received 3"),
        ('a,b\n"1\n2",2\n3\n', r"t\.csv line 4: expected 2 cells"),
        ('a,b\n"1,2\n', r"t\.csv line 2: not readable as CSV"),
        ("a,b,a\n1,2,3\n", r"t\.csv header: names must be unique, but 'a' is repeated"),
        ("a, a \n1,2\n", "'a' is repeated"),
        (",a\n0,1\n", "expected a name for every column, received none for column 1"),
        ("a;b\n1;2\n", r"expected cells separated by ','.*pass delimiter=';'"),
        ("a\tb\n1\t2\n", r"pass delimiter='\\t'"),
        (b"a,b\n1,2\nf\xfcr,3\n", r"t\.csv line 3: not UTF-8 \(byte 0xfc\); save the file as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "line 1: not UTF-8"),
        (b"a,b\n1,\0\n", "line 2: expected text, received a zero byte"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes | str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_csv(write(tmp_path, content))


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.csv: no such file"):
        read_csv(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="expected a CSV file, received a folder"):
        read_csv(tmp_path)


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, "a\n1\n")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        read_csv(path)


def test_blank_lines_are_skipped_and_lines_counted(tmp_path: Path) -> None:
    table = read_csv(write(tmp_path, 'a\n\n1\n\n""\n2\n\n'))
    assert table.columns == (("1", "", "2"),)
    assert table.lines == (3, 5, 6)
    assert table.where(1).endswith("t.csv line 5")


def test_other_delimiter(tmp_path: Path) -> None:
    assert read_csv(write(tmp_path, "a;b\n1; 2\n"), delimiter=";").columns == (("1",), ("2",))
