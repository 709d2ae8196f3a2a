"""CSV files: the same cells as the writer's, and one clear error for each thing that can be wrong."""

import csv
import os
from functools import partial

import pytest
from hypothesis import given, strategies as st

from pyro_hoim.data import read_table_file
from pyro_hoim.errors import InputError
from pyro_hoim.testing import raises

read_csv = partial(read_table_file, sep=",", encoding="utf-8")
CELL = st.text(st.sampled_from('ab,"\n;é? 1'), max_size=4).map(str.strip)


@given(
    rows=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5),
    bom=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_cells_come_back_as_written(tmp_path_factory, rows, bom, newline):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", encoding="utf-8-sig" if bom else "utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator=newline, quoting=csv.QUOTE_ALL)
        writer.writerow(["x", "y, z"])
        writer.writerows(rows)
    table = read_csv(path)
    assert table.header == ("x", "y, z")
    assert list(zip(*table.columns, strict=True)) == rows
    assert table.column("y, z") == tuple(y for _, y in rows)


def write(folder, content):
    path = folder / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        ("", "empty", ""),
        (" \n\n", "empty", ""),
        ("a,b\n", "empty", ""),
        ("a,b\n1,2\n3\n", "wrong-shape", " line 3"),
        ("a,b\n1,2\n\n3,4,5\n", "wrong-shape", " line 4"),
        ('a,b\n"1\n2",2\n3\n', "wrong-shape", " line 4"),
        ('a,b\n"1,2\n', "damaged-file", " line 2"),
        ("a,b,a\n1,2,3\n", "repeated-name", " header"),
        ("a, a \n1,2\n", "repeated-name", " header"),
        ("a,\n0,1\n", "missing-part", ""),
        (b"a,b\n1,2\nf\xfcr,3\n", "wrong-encoding", " line 3"),
        ("a,b\n1,2\n".encode("utf-16"), "wrong-encoding", " line 1"),
        (b"a,b\n1,\0\n", "damaged-file", " line 2"),
    ],
)
def test_bad_files(tmp_path, content, code, place):
    path = write(tmp_path, content)
    with raises(code, f"{path}{place}"):
        read_csv(path)


def test_no_file_and_a_folder(tmp_path):
    for path in (tmp_path / "absent.csv", tmp_path):
        with raises("no-file", str(path)):
            read_csv(path)


def test_unreadable_file(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, "a\n1\n")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        read_csv(path)


def test_blank_lines_are_skipped_and_lines_counted(tmp_path):
    table = read_csv(write(tmp_path, 'a\n\n1\n\n""\n2\n\n'))
    assert table.columns == (("1", "", "2"),)
    assert table.lines == (3, 5, 6)
    assert table.where(1).endswith("t.csv line 5")


def test_other_delimiter(tmp_path):
    assert read_csv(write(tmp_path, "a;b\n1; 2\n"), sep=";").columns == (("1",), ("2",))
