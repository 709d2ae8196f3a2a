"""Files that name the types of their columns: whatever their own library reads is read, with its levels and values.

Oracles: what pandas, pyarrow and polars themselves say of the file or of the frame that was written.
"""

import datetime as dt
import io
import struct
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyro_hoim import Observations
from pyro_hoim.data import open_rows, read_table_file
from pyro_hoim.data.frames import as_frame, as_observations
from pyro_hoim.errors import DataWarning
from pyro_hoim.estimators import InteractionClassifier
from pyro_hoim.testing import raises

SIZES = ["never", "low", "mid", "high"]


def said(rows):
    """Kinds, levels and labels of the cells of a column ``a``."""
    variable = rows.domain["a"]
    codes = rows.codes[:, rows.domain.names.index("a")].tolist()
    return variable.kind, variable.labels, [None if code < 0 else variable.labels[code] for code in codes]


def written(folder, table, name):
    """A table of Arrow in a file of a kind."""
    path = folder / f"t.{name}"
    if name == "parquet":
        pq.write_table(table, path)
        return path
    make = pa.ipc.new_stream if name in ("arrows", "ipc") else pa.ipc.new_file
    with make(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(table, max_chunksize=2)
    return path


def dictionary(codes, values, ordered=False):
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(values), ordered=ordered)


CODES = [999000031000000106, 999000031000000114, None, 5]
DAYS = [dt.date(2020, 1, 3), dt.date(2020, 1, 1), None, dt.date(2020, 1, 3)]
IDS = [uuid.UUID(int=i) for i in range(4)]
ARRAYS = {
    "whole numbers with a missing cell": (lambda: pa.array(CODES, pa.int64()), "nominal", ("5", *map(str, CODES[:2]))),
    "without a sign": (
        lambda: pa.array([2**64 - 1, None, 2**64 - 2, 1], pa.uint64()),
        "nominal",
        ("1", str(2**64 - 2), str(2**64 - 1)),
    ),
    "a dictionary with a null": (lambda: dictionary([0, 1, 2, 0], ["x", None, "z"]), "nominal", ("x", "z")),
    "a dictionary with a repeated value": (lambda: dictionary([0, 1, 2, 0], ["z", "z", "x"]), "nominal", ("z", "x")),
    "a dictionary with an order": (lambda: dictionary([1, 3, None, 1], SIZES, True), "ordinal", (*SIZES,)),
    "dictionaries that differ": (
        lambda: pa.chunked_array([dictionary([0, 1], ["z", "x"]), dictionary([1, 0], ["x", "y"])]),
        "nominal",
        ("z", "x", "y"),
    ),
    "views of texts": (lambda: pa.array(["x", None, "y", "x"], pa.string_view()), "nominal", ("x", "y")),
    "bits that are bytes": (
        lambda: pa.array([True, None, False, True]).cast(pa.int8()).cast(pa.bool8()),
        "nominal",
        ("False", "True"),
    ),
    "UUID": (lambda: pa.array([i.bytes for i in IDS], pa.uuid()), "nominal", (*map(str, IDS),)),
    "dates": (lambda: pa.array(DAYS), "nominal", ("2020-01-01", "2020-01-03")),
    "numbers of 16 bits": (
        lambda: pa.array([*map(np.float16, (0.1, 2, 0.1, 2))], pa.float16()),
        "nominal",
        ("0.1", "2"),
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("kind", ["table", "feather", "arrow", "arrows", "ipc", "parquet"])
def test_what_arrow_reads_is_read(name, kind, tmp_path):
    """The oracle of the cells is what pyarrow says of the array; levels are written down above."""
    make, variety, labels = ARRAYS[name]
    table = pa.table({"a": make()})
    if name == "dictionaries that differ":
        kind = {"feather": "arrows", "arrow": "ipc", "parquet": "table"}.get(kind, kind)  # others write one alone
    elif kind == "parquet" and pa.types.is_dictionary(table["a"].type):
        table = table.set_column(0, "a", pa.array(SIZES).dictionary_encode().take(pa.array([1, 3, None, 1])))
        variety, labels = "nominal", (*SIZES,)
    path = None if kind == "table" else written(tmp_path, table, kind)
    rows = as_observations(table, columns=1) if path is None else Observations.from_csv(path)
    held = pa.concat_arrays(table["a"].chunks) if path is None or kind != "parquet" else pq.read_table(path)["a"]
    cells = [None if value is None else str(value) for value in held.to_pylist()]
    assert said(rows) == (variety, labels, ["0.1", "2", "0.1", "2"] if "16" in name else cells)


@pytest.mark.parametrize("kind", ["write_ipc", "write_ipc_stream", "write_parquet"])
@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_what_polars_writes_is_read_as_the_frame_is(kind, compression, tmp_path):
    frame = pl.DataFrame(
        {
            "enum": pl.Series(["low", "high", None, "low"], dtype=pl.Enum(SIZES)),
            "words": pl.Series(["y", "x", "y", None], dtype=pl.Categorical),
            "text": ["p", "q", "p", "p"],
            "whole": [3, None, 10**18 + 1, 3],
            "real": pl.Series([0.1, 2, None, 0.1], dtype=pl.Float32),
            "time": [dt.datetime(2020, 1, 3), None, dt.datetime(2020, 1, 3, 12), dt.datetime(2020, 1, 3)],
            "span": [dt.timedelta(1), dt.timedelta(2), None, dt.timedelta(1)],
        }
    )
    getattr(frame, kind)(tmp_path / "t", compression=compression)
    path = (tmp_path / "t").rename(tmp_path / ("t.parquet" if "parquet" in kind else "t.arrow"))
    read, held = Observations.from_csv(path), as_observations(frame, columns=7)
    assert read.domain == held.domain and read.codes.tolist() == held.codes.tolist()
    assert [v.labels for v in held.domain] == [
        (*SIZES,),
        ("y", "x"),
        ("p", "q"),
        ("3", str(10**18 + 1)),
        ("0.1", "2"),
        ("2020-01-03", "2020-01-03 12:00:00"),
        ("1 days 00:00:00", "2 days 00:00:00"),
    ]
    assert [v.kind for v in held.domain] == ["ordinal", *["nominal"] * 6]


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_of_parquet_are_read_however_they_are_packed(encoding, tmp_path):
    """The oracle are the cells; pyarrow reads no codes where texts are packed as differences, as DuckDB writes them."""
    path, cells = tmp_path / "t.parquet", ["y", None, "x", "y"]
    table = pa.table({"a": cells, "b": pa.array([b"u", b"v", None, b"u"])})
    how = dict.fromkeys("ab", encoding)
    pq.write_table(table, path, use_dictionary=False, column_encoding=how, data_page_version="2.0", row_group_size=3)
    for read in (Observations.from_csv(path), open_rows(path, chunk_rows=2).observations()):
        assert said(read) == ("nominal", ("x", "y"), cells)


@pytest.mark.parametrize("kind", [pl.Int128, pl.UInt128])
def test_whole_numbers_of_128_bits_are_read_exactly(kind):
    frame = pl.DataFrame({"a": pl.Series([2**100 + 1, 2**100, 7, None], dtype=kind)})
    assert said(as_observations(frame))[1] == ("7", str(2**100), str(2**100 + 1))


def test_what_no_library_turns_into_cells_is_one_error_of_ours():
    nested = pa.table({"b": [1, 2], "a": pa.array([["x"], ["y"]], pa.list_(pa.string_view()))})
    with raises("wrong-type", "data column 'a'"):
        as_frame(nested)


LEVELS = {
    "text": ["x", "z", "y"],
    "whole": [3, 1, 2],
    "real": [0.5, 0.25, 2],
    "flags": [True, False],
    "days": [*pd.to_datetime(["2020-01-03", "2020-01-01", "2020-01-02"])],
}


def test_intervals_in_feather_are_named_and_not_called_damage(tmp_path):
    """Oracle: pandas itself cannot read the file that it wrote."""
    pd.DataFrame({"age": pd.cut(pd.Series([1, 5, 9]), [0, 3, 6])}).to_feather(tmp_path / "cut.feather")
    with pytest.raises(TypeError):
        pd.read_feather(tmp_path / "cut.feather")
    with raises("wrong-type", str(tmp_path / "cut.feather")):
        Observations.from_csv(tmp_path / "cut.feather")


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("kind", LEVELS)
def test_declared_levels_are_kept_by_every_door_that_has_them(kind, ordered, tmp_path):
    """The oracle is the dtype that pandas declares; Parquet keeps it of texts alone, and a warning says so else."""
    levels = LEVELS[kind]
    frame = pd.DataFrame({"a": pd.Categorical([levels[1], None, levels[0], levels[1]], levels, ordered=ordered)})
    right = said(as_observations(frame))
    assert right[0] == ("ordinal" if ordered else "nominal") and len(right[1]) == len(levels)
    frame.to_feather(tmp_path / "t.feather")
    frame.to_parquet(tmp_path / "t.parquet")
    doors = [
        lambda: Observations.from_csv(tmp_path / "t.feather"),
        lambda: as_observations(pa.Table.from_pandas(frame)),
        lambda: as_observations(pd.read_feather(tmp_path / "t.feather", dtype_backend="pyarrow")),
    ]
    if kind == "text":
        doors.append(lambda: Observations.from_csv(tmp_path / "t.parquet"))
        doors.append(lambda: as_observations(pd.read_parquet(tmp_path / "t.parquet", dtype_backend="pyarrow")))
    else:
        for read in (Observations.from_csv, lambda path: as_observations(pq.read_table(path)), open_rows):
            with pytest.warns(DataWarning, match="the categories of 'a' were no text, and Parquet keeps"):
                read(tmp_path / "t.parquet")
    assert [said(door()) for door in doors] == [right] * len(doors)


def test_dictionaries_of_arrow_in_pandas_are_categories_wherever_frames_are_taken(tmp_path):
    """The oracle is the same frame with the categories of pandas."""
    cells = pd.Categorical(["low", "high", "mid", "low"] * 10, SIZES, ordered=True)
    frame = pd.DataFrame({"a": cells, "b": [*"ynny"] * 10}, index=range(3, 43))
    backed = frame.assign(a=pd.Series(pd.arrays.ArrowExtensionArray(pa.array(cells)), index=frame.index))
    pd.testing.assert_frame_equal(as_frame(backed), frame)
    assert backed["a"].dtype != frame["a"].dtype and as_frame(frame) is frame
    y = [*"pqqp"] * 10
    right = InteractionClassifier().fit(frame, y).predict_proba(frame)
    assert InteractionClassifier().fit(backed, y).predict_proba(backed).tolist() == right.tolist()


# Stata

MISSING = {2147483622: "refused"}  # .a
LABELLED = {
    "two codes of one label": ({1: "yes", 2: "yes", 3: "no"}, ("yes (1)", "yes (2)", "no")),
    "labels that differ by blanks": ({1: "x", 2: "x ", 3: "y"}, ("x", "x ", "y")),
    "a label that is a code": ({1: "3", 2: "two"}, ("3 (1)", "two", "3 (3)")),
    "a label that is a name made so": ({1: "a", 2: "a (3)", 3: "a"}, ("a (1)", "a (3) (2)", "a (3) (3)")),
    "a level without a row": ({1: "one", 2: "two", 3: "three", 9: "never"}, ("one", "two", "three", "never")),
    "codes without labels": ({2: "two"}, ("1", "two", "3")),
    "a label of missing cells": ({1: "one", 2: "two", 3: "three", **MISSING}, ("one", "two", "three")),
    "a label of missing cells alone": (MISSING, ("1", "2", "3")),
    "an empty label": ({1: "", 2: "two", 3: "three"}, ("1", "two", "three")),
}


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.DataWarning")
@pytest.mark.parametrize("version", [114, 117, 118])
@pytest.mark.parametrize("name", LABELLED)
def test_value_labels_of_stata_are_levels_of_no_order(name, version, tmp_path):
    """The oracle are the codes and the table of labels that pandas reads, in the order of the codes."""
    known, labels = LABELLED[name]
    frame = pd.DataFrame({"a": [3, 1, 2, 1], "b": [0.5, 0.1, 0.5, 0.1]})
    options = {"write_index": False, "version": version, "value_labels": {"a": known}}
    frame.astype({"b": "float32"}).to_stata(tmp_path / "t.dta", **options)
    codes = pd.read_stata(tmp_path / "t.dta", convert_categoricals=False)["a"].tolist()
    rows = Observations.from_csv(tmp_path / "t.dta")
    assert said(rows)[:2] == ("nominal", labels) and rows.domain["b"].labels == ("0.1", "0.5")
    assert [labels.index(label) for label in said(rows)[2]] == [code - 1 for code in codes]
    notes = read_table_file(tmp_path / "t.dta").notes
    assert any("share a label" in note for note in notes) is any(label.endswith(")") for label in labels)
    assert ("value labels of 'a' read as levels" in notes) is (known != MISSING)


def test_missing_codes_of_stata_are_missing_cells(tmp_path):
    frame = pd.DataFrame({"a": [1, None, 2, 1]})
    frame.to_stata(tmp_path / "t.dta", write_index=False, value_labels={"a": {1: "no", 2: "yes"}})
    raw = (tmp_path / "t.dta").read_bytes()
    point, letter = struct.pack("<Q", 0x7FE0000000000000), struct.pack("<Q", 0x7FE0010000000000)  # . and .a
    assert raw.count(point) == 1
    for content in (raw, raw.replace(point, letter)):
        (tmp_path / "t.dta").write_bytes(content)
        assert said(Observations.from_csv(tmp_path / "t.dta")) == ("nominal", ("no", "yes"), ["no", None, "yes", "no"])


def test_files_without_rows_are_empty(tmp_path):
    pd.DataFrame({"a": pd.Series([], dtype="int64")}).to_stata(tmp_path / "t.dta", write_index=False)
    pa_table = pa.table({"a": pa.array([], pa.int64())})
    for path in (tmp_path / "t.dta", written(tmp_path, pa_table, "arrows"), written(tmp_path, pa_table, "feather")):
        with raises("empty", str(path)):
            read_table_file(path)


def test_batches_are_decoded_up_to_the_limits(tmp_path, monkeypatch):
    """A control of eight bytes more is read; memory stays near the limit however many batches follow."""
    from pyro_hoim.data.files import source_file

    table = pa.table({"a": np.zeros(2**16, np.int64)})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        for _ in range(64):
            out.write_table(table)
    (tmp_path / "t.arrows").write_bytes(stream.getvalue())
    assert len(stream.getvalue()) < 2**17
    pool = pa.default_memory_pool()
    for most, code in ((2 * table.nbytes, "over-budget"), (64 * table.nbytes, None)):
        monkeypatch.setattr(source_file.check_bytes, "__defaults__", (most,))
        before = pool.bytes_allocated()
        if code is None:
            assert len(read_table_file(tmp_path / "t.arrows").lines) == 64 * 2**16
            continue
        with raises(code, str(tmp_path / "t.arrows")):
            read_table_file(tmp_path / "t.arrows")
        assert pool.bytes_allocated() - before < 4 * table.nbytes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("      ward   A   B\nsex               \nf          100  20\nm           80  60\n", "an ftable of R"),
        ("   ward\nsex   A  B\n  f 100 20\n  m  80 60\n", "columns of a fixed width"),
        ("  Dept  A  B\nAdmit  Sex\nYes  Male  5  3\n  Female  8  1\n", "columns of a fixed width"),
        ("MARKOV\n2\n2 2\n1\n2 0 1\n\n4\n 1.0 2.0\n 3.0 4.0\n", "UAI"),
        ("network unknown {\n}\nvariable a {\n}\n", "BIF"),
        ('structure(list(a = c("x", "y")), row.names = 1:2)\n', "dput"),
        ('{"a": [1, 2]}\n', "JSON"),
        ("[1, 2]\n", "JSON"),
        ('[\n {"a": 1}]\n', "JSON"),
        ("<table>\n<tr><td>1</td></tr></table>\n", "HTML"),
        ("<?xml version='1.0'?>\n<rows><row/></rows>", "HTML or XML"),
    ],
)
def test_texts_that_are_no_tables_are_named(text, words, tmp_path):
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_table_file(tmp_path / "t.txt")


@pytest.mark.parametrize(
    "header", ["<18,18-64", "[0;5),b", "[0 to 5],>5", "<low>,b", "{a},b", "<= 3;> 3", "MARKOV,b", "structure,b"]
)
def test_headers_that_begin_with_signs_are_read(header, tmp_path):
    """The oracle is the csv module of Python."""
    sep = ";" if header.startswith("<= ") else ","
    (tmp_path / "t.csv").write_text(f"{header}\nx{sep}y\nu{sep}v\n")
    assert read_table_file(tmp_path / "t.csv").header == tuple(header.split(sep))
