"""Files read piece by piece, alone and in folders, are the rows of the same file read whole, bit for bit.

The oracles are :meth:`Observations.from_csv`, which reads files whole, and pandas, which reads them by its own parsers.
"""

import bz2
import gzip
import io
import lzma
import uuid
import zipfile
from datetime import date, time
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyro_hoim import Observations
from pyro_hoim.data import open_rows
from pyro_hoim.data.files.safe_cells import MARK
from pyro_hoim.errors import InputError


def said(rows):
    """Everything that reading decides."""
    kinds = [(v.name, v.kind, v.labels) for v in rows.domain]
    return kinds, rows.codes.tolist(), rows.counts.tolist()


def in_pieces(path, **options):
    return said(open_rows(path, chunk_rows=3, **options).observations())


NUMBERED = [f'"{i + 1}","{"xyz"[i % 3]}","{i % 4}"' for i in range(11)]
TEXTS = {
    "plain": ("a,b", ["x,1", " y , 2", "x,10", ",2"], {}, {"skipinitialspace": True}),
    "a byte-order mark": ("é,b", ["x,1", "y,2", "x,10"], {"encoding": "utf-8-sig"}, {}),
    "Windows-1252": ("é,b", ["x,1", "ö,2", "x,10"], {"encoding": "cp1252"}, {"encoding": "cp1252"}),
    "UTF-16": ("é\tb", ["x\t1", "ö\t2", "x\t10"], {"encoding": "utf-16"}, {"encoding": "utf-16", "sep": "\t"}),
    "UTF-16 without a mark": ("e\tb", ["x\t1", "ö\t2", "x\t10"], {"encoding": "utf-16-be"}, None),
    "decimal commas": ("a;b", ["1,5;p", "10,5;q", "2;p", ";q", "2,5;p"], {}, {"sep": ";", "decimal": ","}),
    "decimal commas far below": ("a;b", [*["1;p", "2;q"] * 150, "1,5;p"], {}, {"sep": ";", "decimal": ","}),
    "commas that are not decimal": ("a;b", [*["1,5;p", "10,5;q"] * 150, "n/a;p"], {}, None),
    "counts with decimal commas": ("a;count", ["x;1,0", "y;2,0"], {}, {"sep": ";", "decimal": ","}),
    "quoted numbers between commas": ("a,b", ['"1,5",p', '"2,5",q'], {}, {}),
    "row names of R": ('"","a","b"', NUMBERED, {}, {"index_col": 0}),
    "an index of pandas": (",a,b", [f"{i * 7 - 20},{'xy'[i % 2]},{i % 3}" for i in range(9)], {}, {"index_col": 0}),
    "names in any order": (",a,b", ["k9,x,1", "k1,y,2", "k5,x,1"], {}, {"index_col": 0}),
    "an index written twice": ("Unnamed: 0,a,b", ["0,x,p", "1,y,q", "2,x,q"], {}, {"index_col": 0}),
    "Unnamed: 0 that repeats": ("Unnamed: 0,a", ["0,x", "1,y", "0,x", "1,x"], {}, {}),
    "R's write.table": ('"a" "b" "c"', ['"r1" 5 "u v" 1', '"r2" 6 "w" 1', '"r3" 5 "w" 2'], {}, {"sep": " "}),
    "aligned by blanks": ("a    bb  c", ["x    1   u", "yy   10  v", "x    2   u"], {}, {"sep": r"\s+"}),
    "a last delimiter": ("a,b,", ["x,p,", "y,q,", "x,q,"], {}, {"usecols": ["a", "b"]}),
    "a last delimiter of rows": ("a,b", ["x,p,", "y,q,", "x,q,"], {}, {"index_col": False}),
    "comment lines": ("# one, two\n# three\na,b", ["x,1", "y,2"], {}, {"comment": "#"}),
    "Excel's line": ("sep=;\na;b", ["x;1", "y;2"], {}, {"sep": ";", "skiprows": 1}),
    "quoted line ends": ('"a\nb";c', ['"two\n\nlines; here";1', 'x"y;2'], {}, {"sep": ";"}),
    "ends and empty lines": ("\r\na|b\r", ["x|1\r", "\r", "y|2\r"], {}, {"sep": "|"}),
    "safe cells": (f"{MARK}\na,'=b", ["'=1,x", "y,''+z", "'=1,'tis"], {}, None),
    "one column": ("a", ["x", "", "y", "x"], {}, {}),
    "a name that is empty in some rows": ("a,b,", ["x,p,", "y,q,1"], {}, InputError),
    "a row too long": ("a,b", ["x,p", "y,q,1"], {}, InputError),
    "numbers without a header": ("1,0,1", ["0,1,1", "1,0,1", "0,0,1"], {}, InputError),
    "bytes that are no text": ("a,b", ["\0,1"], {}, InputError),
    "a header only": ("a,b", [], {}, InputError),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_by_pieces_is_text_read_whole(tmp_path, name):
    head, rows, written, read = TEXTS[name]
    (tmp_path / "parts").mkdir()
    places = {"whole.csv": rows, "parts/0.csv": rows[: len(rows) // 2], "parts/1.csv": rows[len(rows) // 2 :]}
    for place, part in places.items():
        text = "\n".join([head, *part]) + "\n" * (name != "plain")
        (tmp_path / place).write_bytes(text.encode(**({"encoding": "utf-8"} | written)))
    if read is InputError:
        for found in (Observations.from_csv, open_rows):
            with pytest.raises(InputError, match=r"whole\.csv"):
                found(tmp_path / "whole.csv")
        return
    whole = Observations.from_csv(tmp_path / "whole.csv")
    assert in_pieces(tmp_path / "whole.csv") == said(whole)
    assert in_pieces(tmp_path / "whole.csv", domain=whole.domain) == said(whole)
    if name != "Unnamed: 0 that repeats":
        assert in_pieces(tmp_path / "parts") == said(whole)
    if read is not None:
        frame = pd.read_csv(tmp_path / "whole.csv", keep_default_na=False, na_values=[""], **read)
        frame.columns = frame.columns.str.strip()
        frame = frame.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
        assert said(whole) == said(Observations.from_pandas(frame))


def packed(kind, content):
    if kind != "zip":
        return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[kind](content)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as held:
        held.writestr("inner.csv", content)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
def test_packed_text_by_pieces_is_text_read_whole(tmp_path, kind):
    content = "\n".join(['"","a","b"', *NUMBERED]).encode("utf-16")
    (tmp_path / f"t.csv.{kind}").write_bytes(packed(kind, content))
    (tmp_path / "t.csv").write_bytes(packed(kind, content))  # what it is, not its name, says how it is packed
    whole = said(Observations.from_csv(tmp_path / f"t.csv.{kind}"))
    assert in_pieces(tmp_path / f"t.csv.{kind}") == in_pieces(tmp_path / "t.csv") == whole
    (tmp_path / "t.csv").write_bytes(packed(kind, content)[:-30])
    with pytest.raises(InputError, match=r"t\.csv"):
        open_rows(tmp_path / "t.csv")


SIZES = pd.CategoricalDtype(["never", "low", "high", "mid"], ordered=True)
FRAMES = {
    "an index of numbers": lambda: pd.DataFrame({"a": list("xyzx")}, index=[3, 1, 2, 0]),
    "an index with a name": lambda: pd.DataFrame({"b": list("pqpq")}, index=pd.Index(list("xyzx"), name="a")),
    "an index of counted cells": lambda: pd.DataFrame(
        {"count": [3, 1, 2, 4]}, index=pd.MultiIndex.from_product([["y", "x"], [1, 2]], names=["a", "b"])
    ),
    "categories": lambda: pd.DataFrame({"a": pd.Categorical(["v", "u", None, "v"], ["w", "v", "u"])}),
    "ordered categories": lambda: pd.DataFrame({"a": pd.Series(["low", "mid", "high", "low"], dtype=SIZES)}),
    "periods": lambda: pd.DataFrame({"a": pd.period_range("2020-10", periods=4, freq="M")}),
    "durations": lambda: pd.DataFrame({"a": pd.to_timedelta([1, 90_000, None, 1], unit="s")}),
    "times": lambda: pd.DataFrame({"a": pd.to_datetime(["2020-01-03", "2020-01-01", None, "2020-01-03"])}),
    "times of a zone": lambda: pd.DataFrame({"a": pd.date_range("2020-03-28", periods=4, tz="Europe/Berlin")}),
    "numbers of 32 bits": lambda: pd.DataFrame({"a": np.array([0.1, 0.2, 1, 0.1], np.float32)}),
    "truth values": lambda: pd.DataFrame({"a": [True, False, True, True]}),
    "truth values with a gap": lambda: pd.DataFrame({"a": pd.array([True, None, False, True], dtype="boolean")}),
    "names of numbers": lambda: pd.DataFrame({1: list("xyzx"), 2: list("ppqp")}),
    "names with blanks and points": lambda: pd.DataFrame({" a ": list("xyzx"), "a.b": [" p", "q", " p", "q"]}),
}


def dictionary(codes, values, ordered=False):
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(values), ordered=ordered)


TABLES = {
    "UUID": lambda: pa.table({"a": pa.array([uuid.UUID(int=i % 3).bytes for i in range(4)], pa.uuid())}),
    "bytes": lambda: pa.table({"a": [b"x", b"y", None, b"x"]}),
    "dates": lambda: pa.table({"a": [date(2020, 1, 3), None, date(2020, 1, 1), date(2020, 1, 3)]}),
    "times of day": lambda: pa.table({"a": [time(8, 30), time(7), None, time(8, 30)]}),
    "decimal numbers": lambda: pa.table({"a": [Decimal("1.50"), Decimal("10.00"), None, Decimal("2.25")]}),
    "numbers without a sign": lambda: pa.table({"a": pa.array([2**64 - 1, 2**64 - 2, 2**64 - 1, 1], pa.uint64())}),
    "long text": lambda: pa.table({"a": pa.array(["x", None, "y", "x"], pa.large_string())}),
    "an index that lost its name": lambda: pa.table({"a": list("xyzx"), "__index_level_0__": [1, 3, 2, 0]}),
    "dictionaries of two orders": lambda: pa.table(
        {"a": pa.chunked_array([dictionary([0, 2], list("xyz"), True), dictionary([0, 1], list("zx"), True)])}
    ),
    "dictionaries of polars": lambda: pl.DataFrame({"a": ["lo", "hi", "mid", "lo"]}, {"a": pl.Categorical}).to_arrow(),
    "enumerations of polars": lambda: pl.DataFrame(
        {"a": ["b", "a", "b", None]}, {"a": pl.Enum(list("cba"))}
    ).to_arrow(),
}


@pytest.mark.parametrize("name", [*FRAMES, *TABLES])
def test_parquet_by_pieces_is_parquet_read_whole(tmp_path, name):
    path = tmp_path / "whole.parquet"
    if name in FRAMES:
        FRAMES[name]().to_parquet(path, row_group_size=2)
    else:
        pq.write_table(TABLES[name](), path, row_group_size=2)
    (tmp_path / "parts").mkdir()
    table = pq.read_table(path)
    for i in range(2):
        pq.write_table(table.slice(2 * i, 2), tmp_path / "parts" / f"{i}.parquet")
    whole = said(Observations.from_csv(path))
    assert in_pieces(path) == whole
    if name == "dictionaries of two orders":
        with pytest.raises(InputError, match=r"column 'a': its files say .* < "):
            open_rows(tmp_path / "parts")
    else:
        assert in_pieces(tmp_path / "parts") == whole
