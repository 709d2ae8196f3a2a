"""Tables made to hurt: small files that would become huge, and text that never ends; refused in bounded memory."""

import bz2
import csv
import gzip
import io
import lzma
import struct
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pytest

from pyro_hoim.data import Observations, read_table_file
from pyro_hoim.data.files import source_file, table_file, table_file as typed_file
from pyro_hoim.errors import HoimError, InputError
from pyro_hoim.testing import raises

GOOD = b"a,b\n0,1\n1,0\n"
MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def zipped(*members, how=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", how) as held:
        for name, content in members:
            held.writestr(name, content)
    return stream.getvalue()


def packed(kind, content):
    stream = io.BytesIO()
    with {".gz": gzip, ".bz2": bz2, ".xz": lzma}[kind].open(stream, "wb") as held:
        held.write(content)
    return stream.getvalue()


def judged(folder, content, name="t.csv"):
    """The table in a file or its refusal, and the largest memory of Python while it was read."""
    path = folder / name
    path.write_bytes(content)
    tracemalloc.start()
    try:
        found = read_table_file(path)
    except HoimError as error:
        found = error.code if str(error).startswith(str(path)) and "\n" not in str(error) else str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found, peak


@pytest.mark.parametrize("kind", [".gz", ".bz2", ".xz", ".zip"])
def test_packed_bombs(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(source_file, "_LARGE", 2**18)
    rows = b"a,b\n" + b"0,1\n" * 2**20
    bomb = zipped(("t.csv", rows)) if kind == ".zip" else packed(kind, rows)
    assert len(bomb) * 200 < len(rows)
    found, peak = judged(tmp_path, bomb)
    dictionary = 2**24 if kind == ".xz" else 0  # of xz itself
    assert found == "over-budget" and peak < 2**21 + dictionary < len(rows) + dictionary
    # Control: as many bytes that are packed as rows usually are, are read.
    rows = b"a,b\n" + b"%d,1\n" * 60_000 % tuple(np.random.default_rng(0).integers(0, 1000, 60_000))
    (tmp_path / "t.csv").write_bytes(zipped(("t.csv", rows)) if kind == ".zip" else packed(kind, rows))
    assert len(read_table_file(tmp_path / "t.csv").lines) == 60_000


def test_sizes_beyond_the_budget(tmp_path, monkeypatch):
    rows = b"a,b\n" + b"0,1\n" * 20_000
    monkeypatch.setattr(source_file, "MOST_BYTES", 10)
    for content in (zipped(("t.csv", GOOD)), packed(".gz", GOOD)):
        monkeypatch.setattr(source_file.check_bytes, "__defaults__", (len(GOOD),))
        assert len(judged(tmp_path, content)[0].lines) == 2
        monkeypatch.setattr(source_file.check_bytes, "__defaults__", (len(GOOD) - 1,))
        assert judged(tmp_path, content)[0] == "over-budget"
    monkeypatch.setattr(table_file, "MOST_CELLS", 10_000)
    assert judged(tmp_path, rows)[0] == "over-budget"
    monkeypatch.setattr(table_file, "MOST_CELLS", 40_000)
    assert len(judged(tmp_path, rows)[0].lines) == 20_000


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (packed(".gz", packed(".xz", GOOD)), "invalid-value"),
        (zipped(("t.zip", zipped(("t.csv", GOOD)))), "invalid-value"),
        (packed(".bz2", zipped(("xl/workbook.xml", b""))), "invalid-value"),
        (zipped(("a.csv", GOOD), ("b.csv", GOOD)), "invalid-value"),
        (zipped(("t.csv", b" \n\n ")), "empty"),
        (zipped(("t.csv", GOOD)).replace(struct.pack("<I", len(GOOD)), struct.pack("<I", 5)), "damaged-file"),
        (packed(".gz", GOOD) + b"more", "damaged-file"),
        (zipped(("t.csv", GOOD))[:-6] + b"\xff\xff\0\0\0\0", "damaged-file"),
    ],
    ids=range(8),  # archives hold times, and other processes collect other names
)
def test_odd_archives(content, code, tmp_path):
    assert judged(tmp_path, content)[0] == code
    found, _ = judged(tmp_path, zipped(("../../t.csv", GOOD)))  # names are not followed, nothing is unpacked to a disk
    assert found.columns == (("0", "1"), ("1", "0")) and not (tmp_path.parent.parent / "t.csv").exists()


def test_memory_of_a_table_is_that_of_its_places(tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "_CHUNK", 2**8)
    rows = b"a,b\n" + b"first level,second level\n" * 10_000
    found, peak = judged(tmp_path, rows)
    assert len(found.lines) == 10_000 and peak < 6 * len(rows) and found.columns[0][0] is found.columns[0][-1]
    # Control: rows of cells that are objects of their own.
    tracemalloc.start()
    held = list(csv.reader(io.StringIO(rows.decode())))
    assert tracemalloc.get_traced_memory()[1] > 8 * len(rows) and len(held) == 10_001
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"a,b\n" + b"x" * (2**24 + 1) + b",1\n", "over-budget"),
        (b"a,b\n" + b"x" * 2**20 + b",1\n", "damaged-file"),
        (b'a,b\n1,2\n"3,4\n' + b"1,2\n" * 50_000, "damaged-file"),
        (b"a,b\n" + b"1,2\n" * 300_000 + b"1,\0\n", "damaged-file"),
        (b"\xef\xbb\xbfa,b\n1,\xff\n", "wrong-encoding"),
        (b"a,b\n\xed\xa0\x80,1\n\x81,\n" + b"\xc3" * 4000, "wrong-encoding"),
        ("a,b\n1,2\n".encode("utf-16") + b"x", "wrong-encoding"),
        ("a,b\n1,\0\n".encode("utf-16"), "damaged-file"),
        ("a,b\n1,2\n".encode("utf-32"), "damaged-file"),
        (b",,,\n,,,\n", None),
        (b",,,\n1,2,3,4\n", "missing-part"),
    ],
)
def test_text_made_to_hurt(content, code, tmp_path):
    found, peak = judged(tmp_path, content)
    assert getattr(found, "header", found) == (code or ())
    assert peak < 10 * len(content) + 2**21


def test_the_line_of_a_fault_far_below_is_named(tmp_path):
    text = "a,b\n" + "\u00e9,2\n" * 300_000
    for broken, options in ((text.encode() + b"\xff,1\n", {"encoding": "utf-8"}), (text.encode() + b"\0,1\n", {})):
        (tmp_path / "t.csv").write_bytes(broken)
        with raises("wrong-encoding" if options else "damaged-file", f"{tmp_path / 't.csv'} line 300002"):
            read_table_file(tmp_path / "t.csv", **options)


@pytest.mark.parametrize("encoding", ["rot13", "hex", "x\0y", "", "no such"])
def test_what_is_no_encoding_of_text(encoding, tmp_path):
    (tmp_path / "t.csv").write_bytes(GOOD)
    with raises("unknown-choice", "encoding"):
        read_table_file(tmp_path / "t.csv", encoding=encoding)


def test_halves_of_characters_are_no_text(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\n\\ud800,1\n")
    for encoding in ("undefined", "unicode_escape"):
        with raises("wrong-encoding", str(tmp_path / "t.csv")):
            read_table_file(tmp_path / "t.csv", encoding=encoding)


def test_many_columns_and_levels_take_linear_time(tmp_path):
    wide = ",".join(f"c{i}" for i in range(5_000)) + "\n" + ",".join("1" * 5_000) + "\n"
    found, _ = judged(tmp_path, wide.encode())
    assert len(found.header) == 5_000
    long = "a,b\n" + "".join(f"{i},x\n" for i in range(10_000))
    found, peak = judged(tmp_path, long.encode())
    assert len(set(found.columns[0])) == 10_000 and peak < 60 * len(long)
    assert Observations.from_csv(found, allow=["a"]).domain["a"].cardinality == 10_000


# Workbooks


def book(cells="", strings="<si><t>a</t></si><si><t>b</t></si>", how=zipfile.ZIP_DEFLATED, **parts):
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    files = {"/xl/workbook.xml": "sheet.main", "/xl/worksheets/s.xml": "worksheet", "/xl/t.xml": "sharedStrings"}
    told = "".join(f'<Override PartName="{name}" ContentType="{kind}.{k}+xml"/>' for name, k in files.items())
    head = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>'
    head += '<row r="2"><c r="A2"><v>1</v></c></row>'
    found = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">{told}</Types>',
        "xl/workbook.xml": f'<workbook {MAIN} xmlns:r="{OFFICE}"><sheets>'
        '<sheet name="s" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{OFFICE}/worksheet" Target="worksheets/s.xml"/></Relationships>',
        "xl/worksheets/s.xml": f"<worksheet {MAIN}><sheetData>{head}{cells}</sheetData></worksheet>",
        "xl/t.xml": strings if strings.startswith("<!") else f"<sst {MAIN}>{strings}</sst>",
    }
    return zipped(*(found | parts).items(), how=how)


def laughs(times):
    """Entities that hold entities; a billion characters at the end."""
    inner = "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 50}">' for i in range(times))
    last = chr(97 + times)
    return (
        f'<!DOCTYPE sst [<!ENTITY a "{"ha" * 50}">{inner}]><sst {MAIN}><si><t>&{last};</t></si><si><t>b</t></si></sst>'
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (book('<row r="1000000000000"><c r="A1000000000000"><v>1</v></c></row>'), "over-budget"),
        (book("".join(f'<row r="{i}"><c r="XFD{i}"><v>1</v></c></row>' for i in range(3, 200))), "over-budget"),
        (book(strings=laughs(6)), "damaged-file"),
        (
            book(strings=f'<!DOCTYPE s [<!ENTITY a SYSTEM "file:///etc/hosts">]><sst {MAIN}><si>&a;</si></sst>'),
            "damaged-file",
        ),
        (book('<row r="3"><c r="ZZZZZZ3"><v>1</v></c></row>'), "damaged-file"),
        (book('<row r="3"><c r="A3" t="s"><v>99999999</v></c></row>'), "damaged-file"),
        (book('<row r="3"><c r="A3"><v>1e999</v></c></row>'), "not-finite"),
        (book(f'<row r="3"><c r="A3"><v>{"9" * 5000}</v></c></row>'), "damaged-file"),
        (book(how=zipfile.ZIP_BZIP2), "damaged-file"),
    ],
)
def test_workbooks_made_to_hurt(content, code, tmp_path, monkeypatch):
    monkeypatch.setattr(typed_file, "_MOST_CELLS", 2**18)
    monkeypatch.setattr(typed_file, "_MOST_ROWS", 2**12)
    found, peak = judged(tmp_path, content, "t.xlsx")
    assert found == code and peak < 2**25
    for cells, strings in (
        ("", laughs(1)),
        ('<row r="900"><c r="A900"><v>1</v></c></row>', "<si><t>a</t></si><si><t>b</t></si>"),
    ):
        control, _ = judged(tmp_path, book(cells, strings), "t.xlsx")
        assert control.header == ("ha" * 2500 if strings.startswith("<!") else "a", "b")


def test_parts_of_workbooks_are_measured_first(tmp_path, monkeypatch):
    text = "<si><t>a</t></si><si><t>b</t></si>"
    content = book(strings=text + "<si><t>x</t></si>" * 2**13)
    monkeypatch.setattr(typed_file, "_MOST_WHOLE", 2**17)
    with raises("over-budget", f"{tmp_path / 't.xlsx'} xl/t.xml"):
        (tmp_path / "t.xlsx").write_bytes(content)
        read_table_file(tmp_path / "t.xlsx")
    monkeypatch.setattr(typed_file, "_MOST_WHOLE", 2**18)
    assert read_table_file(tmp_path / "t.xlsx").header == ("a", "b")
    # A part that is longer than it says would be unpacked as a whole before it is cut.
    with zipfile.ZipFile(io.BytesIO(content)) as held:
        size = held.getinfo("xl/t.xml").file_size
    lie = content.replace(struct.pack("<I", size), struct.pack("<I", 200))
    found, peak = judged(tmp_path, lie, "t.xlsx")
    assert found == "damaged-file" and peak < 2**22


# Files that name types


def test_typed_bombs(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def of_parquet(table):
        stream = io.BytesIO()
        parquet.write_table(table, stream, store_schema=False)
        return stream.getvalue()

    def of_feather(table, compression=None):
        stream = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(stream, table.schema, options=options) as held:
            held.write_table(table)
        return stream.getvalue()

    nulls = pa.table({"a": pa.nulls(2**27 + 1)})
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**5, np.int32)), ["y" * 10**5])
    zeros = pa.table({f"c{i}": np.zeros(2**17, np.int64) for i in range(4)})
    pool = pa.default_memory_pool()
    for content, name in (
        (of_parquet(nulls), "t.parquet"),
        (of_feather(nulls), "t.feather"),
        (of_feather(pa.table({"a": pa.FixedSizeListArray.from_arrays(pa.nulls(2**28), 2**28)})), "t.feather"),
    ):
        assert len(content) < 2**19
        assert judged(tmp_path, content, name)[0] in ("over-budget", "damaged-file")
    # Ten billion characters are one text and the places where it stands.
    before = pool.max_memory()
    found, peak = judged(tmp_path, of_parquet(pa.table({"a": text, "b": pa.array(range(10**5))})), "t.parquet")
    assert set(map(len, found.columns[0])) == {10**5} and max(peak, pool.max_memory() - before) < 2**26
    # Packed numbers are measured in the file, before they are unpacked.
    content = of_feather(zeros, "zstd")
    assert len(content) * 500 < zeros.nbytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_file.check_bytes, "__defaults__", (zeros.nbytes - 1,))
        before = pool.bytes_allocated()
        assert judged(tmp_path, content, "t.feather")[0] == "over-budget"
        patch.setattr(source_file.check_bytes, "__defaults__", (zeros.nbytes,))
        patch.setattr(source_file, "MOST_CELLS", 4 * 2**17 - 1)
        assert judged(tmp_path, content, "t.feather")[0] == "over-budget"
        assert pool.bytes_allocated() - before < 2**20


def test_headers_of_stata_that_lie(tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    for version, columns, rows in ((114, 4, 6), (117, 70, 79), (118, 70, 79), (119, 70, 81)):
        stream = io.BytesIO()
        frame.to_stata(stream, write_index=False, version=version)
        content = stream.getvalue()
        assert judged(tmp_path, content, "t.dta")[0].columns == (("1", "2"), ("x", "y"))
        for place in (columns, rows):
            lie = content[:place] + b"\xff\x7f" + content[place + 2 :]
            found, peak = judged(tmp_path, lie, "t.dta")
            assert found == "damaged-file" and peak < 2**22


def test_bytes_that_are_no_text_do_not_become_one_level(tmp_path):
    pd.DataFrame({"a": [b"\xff", b"\xfe"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"column 'a': the bytes b'\\xff' are no text in UTF-8; decode the column"):
        read_table_file(tmp_path / "t.parquet")
    pd.DataFrame({"a": ["ü".encode(), b"b"]}).to_parquet(tmp_path / "t.parquet")
    assert read_table_file(tmp_path / "t.parquet").columns == (("ü", "b"),)


def test_offsets_of_arrow_that_point_outside_their_text(tmp_path):
    """Followed by pandas, they end the process; a valid place elsewhere in the same bytes is the control."""
    pa = pytest.importorskip("pyarrow")
    stream, table = io.BytesIO(), pa.table({"a": ["xx", "yy", "zz"]})
    with pa.ipc.new_file(stream, table.schema) as held:
        held.write_table(table)
    places, content = struct.pack("<4i", 0, 2, 4, 6), stream.getvalue()
    assert content.count(places) == 1
    for ends, expected in (((0, 1, 4, 6), None), ((0, 2, 4, 2**30), "damaged-file"), ((0, 99, 4, 6), "damaged-file")):
        found, _ = judged(tmp_path, content.replace(places, struct.pack("<4i", *ends)), "t.feather")
        assert found == expected if expected else found.columns == (("x", "xyy", "zz"),)


def test_a_member_without_a_name(tmp_path):
    """A name that begins with a zero byte is read as an empty one."""
    content = zipped(("t.csv", b"a,b\n1,2\n")).replace(b"t.csv", b"\0.csv")
    assert judged(tmp_path, content, "t.zip")[0].header == ("a", "b")
