"""Tables as people have them: the same cells from every kind of file, and one clear error for each other one."""

import bz2
import csv
import gzip
import io
import lzma
import os
import sys
import zipfile
from functools import partial
from unittest.mock import Mock

import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, strategies as st

from pyro_hoim.data import Observations, read_table_file
from pyro_hoim.data.files import table_file
from pyro_hoim.errors import InputError
from pyro_hoim.testing import raises

ROWS = [("é" if i % 2 else "x", str(i % 3), "u v" if i % 5 % 2 else "u") for i in range(30)]
NAMES = ("a", "b", "größe")


def text(delimiter=",", newline="\n"):
    cells = [NAMES, *([f'"{c}"' if delimiter in c else c for c in row] for row in ROWS)]
    return newline.join(delimiter.join(row) for row in cells) + newline


def written(folder, content, name="t.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def check(table):
    assert table.header == NAMES
    assert list(zip(*table.columns, strict=True)) == ROWS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " "])
def test_delimiter_and_encoding_are_found(delimiter, encoding, tmp_path):
    table = read_table_file(written(tmp_path, text(delimiter).encode(encoding)))
    check(table)
    is_plain = delimiter == "," and encoding.startswith("utf-8")
    assert bool(table.notes) is not is_plain


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_blank_lines_and_comments(newline, tmp_path):
    content = f"# made by hand, in a hurry{newline}{text(';', newline)}{newline}{newline}"
    table = read_table_file(written(tmp_path, content))
    check(table)
    assert (table.lines[0], table.notes) == (3, ("read as ';'-separated", "1 comment line above the header left out"))


def zipped(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as held:
        held.writestr("inner.csv", content)
        held.writestr("__MACOSX/inner.csv", b"x")
    return stream.getvalue()


def arrow(packing):
    """Bytes in one frame, as the programs of that name write them."""

    def pack(content):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, packing) as stream:
            stream.write(content)
        return sink.getvalue().to_pybytes()

    return pack


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zipped, arrow("zstd"), arrow("lz4")])
def test_packed_files(pack, tmp_path):
    check(read_table_file(written(tmp_path, pack(text().encode()), "t.csv.packed")))
    with raises("damaged-file", str(tmp_path / "bad")):
        read_table_file(written(tmp_path, pack(text().encode())[:-12], "bad"))


def test_files_of_other_programs(tmp_path):
    frame = pd.DataFrame(ROWS, columns=list(NAMES))
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_feather(tmp_path / "t.feather")
    frame.to_stata(tmp_path / "t.dta", write_index=False, version=118)
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        pd.DataFrame().to_excel(book, sheet_name="empty", index=False)
        frame.to_excel(book, sheet_name="rows", index=False)
        frame.to_excel(book, sheet_name="more", index=False)
    (tmp_path / "t.xls").write_bytes((tmp_path / "t.xlsx").read_bytes())  # as many programs call theirs
    written(tmp_path, text(), "text.xls")
    for name in ("t.parquet", "t.feather", "t.dta", "t.xlsx", "t.xls", "text.xls"):
        check(read_table_file(tmp_path / name))
    assert read_table_file(tmp_path / "t.xlsx").notes == ("read the sheet 'rows', the first of 2",)


@pytest.mark.parametrize(
    ("content", "header", "first", "note"),
    [
        ("sep=;\na;b\n1;x\n2;y\n", ("a", "b"), ("1", "x"), None),
        (",a,b\n0,x,u\n1,y,v\n", ("a", "b"), ("x", "u"), "row names"),
        ('"a" "b" "c"\n"1" 5 6 7\n"2" 6 7 8\n', ("a", "b", "c"), ("5", "6", "7"), "row names"),
        ("a,b,\nx,u,\ny,v,\n", ("a", "b"), ("x", "u"), "1 empty column"),
        ("a,b\nx,u,\ny,v,\n", ("a", "b"), ("x", "u"), "1 empty column"),
        ("a;h\nx;0,5\ny;1\n", ("a", "h"), ("x", "0.5"), "decimal commas in 'h'"),
        ("0,1\n5,6\n7,8\n", ("0", "1"), ("5", "6"), None),
        ('a;b\n"x;\ny";1\nz;2\n', ("a", "b"), ("x;\ny", "1"), "';'"),
        ("a;b\nL’Aquila;“é”\nM–N;5 €\n".encode("cp1252"), ("a", "b"), ("L’Aquila", "“é”"), "cp1252"),
        ("a\nvery good, indeed\nbad; or so\n".replace(",", ""), ("a",), ("very good indeed",), None),
    ],
)
def test_habits_of_other_programs(content, header, first, note, tmp_path):
    table = read_table_file(written(tmp_path, content))
    assert table.header == header
    assert tuple(column[0] for column in table.columns) == first
    assert (note is None) or any(note in told for told in table.notes), table.notes


@pytest.mark.parametrize(
    ("content", "name", "code", "words"),
    [
        ("a,b\n1,2\n3\n", "t.csv", "wrong-shape", "line 3: expected 2 cells as in the header, received 1"),
        ("1,0,1\n0,1,1\n1,1,0\n", "t.csv", "missing-part", "add a first line with the names"),
        ("5.1,3.5\n4.9,3.5\n5.1,3.0\n", "t.csv", "missing-part", "add a first line with the names"),
        ("a,b,a\n1,2,3\n", "t.csv", "repeated-name", "rename or remove one"),
        ("a,,b\n1,2,3\n", "t.csv", "missing-part", "column 2"),
        ("город,x\nМосква,1\nКазань,2\n".encode("cp1251"), "t.csv", "wrong-encoding", "encoding='cp1251'"),
        ("ort,n\nKöln,1\nBonn,2\n".encode("cp850"), "t.csv", "wrong-encoding", "encoding='cp850'"),
        ("ville,n\nNîmes,1\nOrléans,2\n".encode("cp437"), "t.csv", "wrong-encoding", "byte 0x82"),
        ('[{"a": 1}]', "t.csv", "damaged-file", "JSON"),
        ("<html></html>", "t.csv", "damaged-file", "HTML"),
        (b"\x00\x01\x02\x03" * 9, "t.csv", "damaged-file", "zero byte"),
        (b"$FL2@(#) SPSS", "t.sav", "damaged-file", "damaged .sav file"),
        (b"PAR1 nothing", "t.csv", "damaged-file", "damaged .parquet file"),
        (zipped(b""), "t.csv", "empty", "empty file"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(content, name, code, words, tmp_path):
    path = written(tmp_path, content, name)
    with pytest.raises(InputError) as found:
        read_table_file(path)
    assert found.value.code == code
    assert words in str(found.value)
    assert str(path) in str(found.value)


def test_what_is_given_is_not_found(tmp_path):
    path = written(tmp_path, "город;x\nМосква;1\nКазань;2\n".encode("cp1251"))
    table = read_table_file(path, encoding="cp1251")
    assert table.header == ("город", "x")
    assert read_table_file(path, sep=",", encoding="cp1251").header == ("город;x",)
    assert read_table_file(written(tmp_path, "a\tb\n1\t2\n"), sep="tab").header == ("a", "b")
    with raises("unknown-choice", "encoding"):
        read_table_file(path, encoding="utf-88")
    with raises("invalid-value", "sep"):
        read_table_file(path, sep="ab")
    with raises("wrong-encoding", f"{path} line 1"):
        read_table_file(written(tmp_path, "é,b\n1,2\n".encode("cp1252")), encoding="utf-8")


def test_packages_that_are_missing_are_named(tmp_path, monkeypatch):
    frame = pd.DataFrame({"a": [1]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_excel(tmp_path / "t.xlsx")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    for name, extra in (("t.parquet", "parquet"), ("t.xlsx", "excel")):
        with pytest.raises(InputError, match=rf"pip install 'pyro-hoim\[{extra}\]'"):
            read_table_file(tmp_path / name)


def test_bytes_that_are_not_utf8_inside_commas_are_windows_1252_and_said_so(tmp_path):
    path = written(tmp_path, b"a,b\n\xff\xfe,y\nz,n\n")
    table = read_table_file(path)
    assert table.columns[0] == ("ÿþ", "z") and table.notes == ("read as cp1252",)
    with raises("wrong-encoding", f"{path} line 2"):
        read_table_file(path, encoding="utf-8")
    with raises("wrong-encoding"):
        read_table_file(written(tmp_path, b"\xff\xfea,b\ny,n\n\n"))  # the mark of UTF-16 before an odd number of bytes


def test_an_index_with_a_name_is_a_column_and_bytes_are_text(tmp_path):
    frame = pd.DataFrame({"a": [b"x", "é".encode()], "b": ["u", "v"]}, index=pd.Index(["k", "l"], name="key"))
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table_file(tmp_path / "t.parquet")
    assert table.header == ("key", "a", "b") and table.columns == (("k", "l"), ("x", "é"), ("u", "v"))


def test_cells_of_lists_are_refused_by_column(tmp_path):
    pd.DataFrame({"a": ["x", "y"], "b": [[1, 2], [3]]}).to_parquet(tmp_path / "t.parquet")
    with raises("damaged-file", f"{tmp_path / 't.parquet'} column 'b'"):
        read_table_file(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "Unnamed: 0.1"])
def test_row_names_written_again_by_pandas_are_left_out(name, tmp_path):
    cells = [[name, "a"], *([str(i), "xy"[i % 2]] for i in range(30))]
    table = read_table_file(written(tmp_path, "\n".join(map(",".join, cells))))
    assert table.header == ("a",) and "row names" in table.notes[0]


# CSV files: the same cells as the writer's, and one clear error for each thing that can be wrong.

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
    path = write(tmp_path, "a\n1\n")
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        read_csv(path)


def test_blank_lines_are_skipped_and_lines_counted(tmp_path):
    table = read_csv(write(tmp_path, 'a\n\n1\n\n""\n2\n\n'))
    assert table.columns == (("1", "", "2"),) and table.lines == (3, 5, 6) and table.where(1).endswith("t.csv line 5")


def test_other_delimiter(tmp_path):
    assert read_csv(write(tmp_path, "a;b\n1; 2\n"), sep=";").columns == (("1",), ("2",))


def test_a_title_above_the_names_is_said_to_be_one(tmp_path):
    path = tmp_path / "title.csv"
    path.write_text("Report of 2023;;\n;;\nid;Region;ill\n1;West;no\n2;East;yes\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"first line must hold the names.*\(a title\).*seem to be 'id', 'Region', 'ill'"
    ):
        read_table_file(path)
    path.write_text("id;;ill\na;West;no\nb;East;yes\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"none for column 2.*or name it there") as caught:
        read_table_file(path)
    assert "seem" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_long_columns_are_read_as_short_ones(tmp_path, monkeypatch, suffix):
    frame = pd.DataFrame({"a": [str(i * i % 7) for i in range(100)], "b": [f"name {i}" for i in range(100)]})
    frame.loc[17, "a"] = None
    path = tmp_path / f"t{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path, row_group_size=30)
    short = read_table_file(path)
    monkeypatch.setattr(table_file, "_BLOCK", 64)
    monkeypatch.setattr(table_file, "_CHUNK", 100)
    long = read_table_file(path)
    for name in "ab":
        column, cells = long.column(name), short.column(name)
        assert not isinstance(column, tuple) and isinstance(cells, tuple)
        assert (len(column), *column) == (100, *cells) == (100, *column.__array__().tolist())
        assert (column[0], column[64], column[-1], column[62:66]) == (cells[0], cells[64], cells[-1], [*cells[62:66]])
        with pytest.raises(IndexError):
            column[100]
    rules = {"allow": ["b"]}
    one, other = Observations.from_csv(long, **rules), Observations.from_csv(short, **rules)
    assert one.domain == other.domain and torch.equal(one.codes, other.codes)
