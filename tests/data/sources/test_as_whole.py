"""Files read piece by piece, alone and in folders, are the rows of the same file read whole, bit for bit.

The oracles are :meth:`Observations.from_csv`, which reads files whole, and pandas, which reads them by its own parsers.
"""

import bz2
import gzip
import io
import lzma
import re
import uuid
import zipfile
from datetime import date, time
from decimal import Decimal
from time import sleep

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyro_hoim import Domain, InputError, Observations, Variable
from pyro_hoim.data import open_rows
from pyro_hoim.data.files.safe_cells import MARK
from pyro_hoim.data.sources import cluster
from pyro_hoim.data.sources.cluster import local_client

pytestmark = pytest.mark.filterwarnings("ignore:levels like others")  # such as n/a


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
    "commas that are not decimal": ("a;b", [*["1,5;p", "10,5;q"] * 150, "few;p"], {}, None),
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
    "marks inside of cells": ("a,b", ['5" pipe,1', '"6"" pipe",1', 'x,""', '"""y""",2'], {}, {}),
    "ends of old": ("\ra,b", ["x,1\ry,2\r\rx,3"], {}, {}),
    "safe cells": (f"{MARK}\na,'=b", ["'=1,x", "y,''+z", "'=1,'tis"], {}, None),
    "one column": ("a", ["x", "", "y", "x"], {}, {}),
    "a name that is empty in some rows": ("a,b,", ["x,p,", "y,q,1"], {}, InputError),
    "a row too long": ("a,b", ["x,p", "y,q,1"], {}, InputError),
    "a mark that does not end": ("a,b", ["x,1", 'y,"2', "x,1", "y,3"], {}, InputError),
    "marks that do not end": ("a,b", ['"x,1', '"y,2', "x,1", "y,3"], {}, InputError),
    "text behind a mark": ("a,b", ['"x" ,1', "y,2"], {}, InputError),
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


@pytest.mark.parametrize("cluster", [None, "local"])
def test_a_small_table_of_counts_in_wide_form_is_made_long(tmp_path, cluster):
    """As R writes one; the oracle is the file read whole, and the counts as they stand there."""
    (tmp_path / "t.csv").write_text('"","yes","no"\n"A",601,332\n"B",370,215\n"C",322,596\n', encoding="utf-8")
    rows = open_rows(tmp_path / "t.csv", cluster=cluster).observations()
    assert said(rows) == said(Observations.from_csv(tmp_path / "t.csv"))
    assert rows.counts.tolist() == [601, 332, 370, 215, 322, 596]
    assert open_rows(tmp_path / "t.csv", count=None).domain.names == ("yes", "no")  # control


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
    (tmp_path / "t.dat").write_bytes(packed(kind, content))  # what it is, not its name, says how it is packed
    whole = said(Observations.from_csv(tmp_path / f"t.csv.{kind}"))
    assert in_pieces(tmp_path / f"t.csv.{kind}") == in_pieces(tmp_path / "t.dat") == whole
    (tmp_path / "t.dat").write_bytes(packed(kind, content)[:-30])
    with pytest.raises(InputError, match=r"t\.dat"):
        open_rows(tmp_path / "t.dat")


SIZES = pd.CategoricalDtype(["never", "low", "high", "mid"], ordered=True)
FRAMES = {
    "an index of numbers": lambda: pd.DataFrame({"a": list("xyzx")}, index=[3, 1, 2, 0]),
    "an index with a name": lambda: pd.DataFrame({"b": list("pqpq")}, index=pd.Index(list("xyzx"), name="a")),
    "an index of counted cells": lambda: pd.DataFrame(
        {"count": [3, 1, 2, 4]}, index=pd.MultiIndex.from_product([["y", "x"], [1, 2]], names=["a", "b"])
    ),
    "categories": lambda: pd.DataFrame({"a": pd.Categorical(["v", "u", None, "v"], ["w", "v", "u"])}),
    "ordered categories": lambda: pd.DataFrame({"a": pd.Series(["low", "mid", "high", "low"], dtype=SIZES)}),
    "intervals": lambda: pd.DataFrame({"a": pd.arrays.IntervalArray.from_tuples([(0, 1), (1, 2), None, (0, 1)])}),
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
    "truth values of 8 bits": lambda: pa.table({"a": pa.array([1, 0, 1, 1], pa.int8()).cast(pa.bool8())}),
    "numbers beyond 53 bits": lambda: pa.table({"a": [999000031000000106, None, 999000031000000114, None]}),
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
    assert in_pieces(path) == in_pieces(path.rename(tmp_path / "whole.csv")) == whole
    if name == "dictionaries of two orders":
        with pytest.raises(InputError, match=r"column 'a': its files say .* < "):
            open_rows(tmp_path / "parts")
    else:
        assert in_pieces(tmp_path / "parts") == whole


@pytest.mark.parametrize(
    "texts",
    [
        ["a,b\nx,1\ny,2\n", '"","a","b"\n"1","x","1"\n"2","y","10"\n'],  # row names in one of them
        ["a,b\nx,1\n", "a,b\n", "", "a,b\ny,10\nz,2\n"],  # a header only, and nothing
        ["a;b\nx;1,5\n", "b;a\n2;y\n10,5;z\n"],  # decimal commas in one of them
        ["a;b\nx;1,5\n", "a;b\ny;few\nz;2\n"],  # commas that are not decimal in all of them
        ["a,b\nx,1\n", "# said above\nb\ta\n2\ty\n10\tz\n"],
    ],
)
def test_files_of_a_folder_may_be_written_differently(tmp_path, texts):
    frames = list[pd.DataFrame]()
    is_decimal = not any("few" in text for text in texts)
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.csv").write_text(text, encoding="utf-8")
        if text:
            frame = pd.read_csv(
                io.StringIO(text), sep=None, engine="python", comment="#", dtype=str, keep_default_na=False
            )
            frames.append(frame[["a", "b"]].replace(",", "." if is_decimal else ",", regex=True))
    assert in_pieces(tmp_path) == said(Observations.from_pandas(pd.concat(frames)))


@pytest.mark.parametrize("included", [False, True])
def test_values_of_folders_are_those_of_a_column(tmp_path, included):
    """pandas with pyarrow writes the folders; the oracle is the frame."""
    values = ["b/c", "01", None, "1", "b/c", "01"]
    frame = pd.DataFrame({"b": ["v", "u", None, "u", "v", "v"], "a": values})
    frame.to_parquet(tmp_path / "rows", partition_cols=["a"], index=False)
    if included:  # as polars writes them: the column also stands in the files
        for i, (value, part) in enumerate(frame.groupby("a", dropna=False)):
            name = "__HIVE_DEFAULT_PARTITION__" if pd.isna(value) else str(value).replace("/", "%2F")
            part.to_parquet(tmp_path / "rows" / f"a={name}" / f"{i}.parquet", index=False)
            for old in set((tmp_path / "rows" / f"a={name}").iterdir()) - {tmp_path / f"rows/a={name}/{i}.parquet"}:
                old.unlink()
    rows = open_rows(tmp_path / "rows", chunk_rows=3).observations().unique()
    expected = Observations.from_pandas(frame).unique()
    names = ["a", "b"]
    assert {v.name: v.labels for v in rows.domain} == {v.name: v.labels for v in expected.domain}
    places = [rows.domain.indices(names), expected.domain.indices(names)]
    assert sorted(rows.codes[:, places[0]].tolist()) == sorted(expected.codes[:, places[1]].tolist())


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["low", "high"], ["low", "mid", "high"], ("low", "mid", "high")),
        (["low", "mid"], ["mid", "high"], ("low", "mid", "high")),
        (["low", "high"], ["low", "high"], ("low", "high")),
        (["low", "high"], ["high", "low"], None),  # they contradict each other
        (["low", "high"], ["low", "mid"], None),  # whether mid is below high is open
    ],
)
def test_ordered_levels_of_several_files_have_one_order(tmp_path, first, second, expected):
    for i, levels in enumerate((first, second)):
        frame = pd.DataFrame({"a": pd.Categorical(levels, levels, ordered=True)})
        frame.to_parquet(tmp_path / f"{i}.parquet")
    if expected is None:
        with pytest.raises(InputError, match="column 'a': its files say low < high and") as caught:
            open_rows(tmp_path)
        assert caught.value.code == "conflict"
        domain = Domain([Variable("a", ("low", "mid", "high"), "ordinal")])
        assert open_rows(tmp_path, domain=domain).num_rows == 4
    else:
        assert open_rows(tmp_path).domain == Domain([Variable("a", expected, "ordinal")])


DASK = {
    **{name: FRAMES[name] for name in ("categories", "ordered categories", "periods", "durations", "times")},
    "intervals": lambda: pd.DataFrame({"a": pd.cut(pd.Series([1, 5, 9, 1]), [0, 4, 8, 12])}),
    "Arrow": lambda: pd.DataFrame({"a": pd.array([0.5, None, 10, 2], "double[pyarrow]"), "b": list("xyxz")}),
}


@pytest.mark.parametrize("name", DASK)
def test_partitions_of_dask_are_the_frame_itself(name, client):
    import dask.dataframe as dd

    frame = DASK[name]()
    rows = open_rows(dd.from_pandas(frame, npartitions=2, sort=False), cluster=client, chunk_rows=1)
    assert said(rows.observations()) == said(Observations.from_pandas(frame))


def test_partitions_of_dask_may_have_other_categories(client):
    import dask
    import dask.dataframe as dd

    parts = [pd.DataFrame({"a": pd.Categorical(list(levels), list(levels))}) for levels in ("vu", "wut")]
    meta = dd.utils.clear_known_categories(parts[0].iloc[:0])
    frame = dd.from_delayed([dask.delayed(part.copy)() for part in parts], meta=meta)
    whole = pd.api.types.union_categoricals([part["a"] for part in parts])  # as Dask itself joins them
    found = open_rows(frame, cluster=client).observations()
    assert said(found) == said(Observations.from_pandas(pd.DataFrame({"a": whole})))


def test_control_other_levels_orders_codes_and_counts_are_seen():
    base = Observations.from_pandas(pd.DataFrame({"a": list("xyx")}))
    variable = base.domain["a"]
    for domain, codes, counts in (
        (Domain([Variable("a", ("y", "x"))]), base.codes, base.counts),
        (Domain([Variable("a", variable.labels, "ordinal")]), base.codes, base.counts),
        (base.domain, base.codes.flip(0)[[1, 0, 2]], base.counts),
        (base.domain, base.codes, base.counts * 2),
    ):
        assert said(Observations(domain, codes, counts)) != said(base)
    assert said(Observations(base.domain, base.codes, base.counts)) == said(base)


def test_a_cluster_without_workers_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_NO_WORKER", 0.2)
    (tmp_path / "t.csv").write_text("a\nx\n", encoding="utf-8")
    message = r"has had no worker for 0\.2 seconds; start one \(dask worker inproc:"
    with local_client(1) as client, client.cluster:
        naps = cluster.run_tasks(client, sleep, [(0.0,), (1.0,)], in_order=True)
        next(naps)
        client.cluster.scale(0)
        with pytest.raises(InputError, match=message):
            next(naps)
        with pytest.raises(InputError, match=message) as caught:
            open_rows(tmp_path / "t.csv", cluster=client)
        assert caught.value.code == "missing-part"


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "cp1252"]
CELLS = [
    "x", " z ", "1", "1,5", "-3,25", "", '"q"', '"a""b"', '"u;v|w"', '"l\nm"', 'a"b', "ö", "\xa0w", "'=1", "#c",
    '"x" ',
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:columns were left out")  # those of missing cells only
@pytest.mark.parametrize("seed", range(8))
def test_tables_of_any_cells_are_read_alike_or_refused_by_both(tmp_path, seed):
    random = np.random.default_rng(seed)
    path, read = tmp_path / "t.csv", 0
    for _ in range(25):
        sep, end, encoding = (random.choice(of) for of in ([";", "\t", "|", ";"], ["\n", "\r\n", "\r"], ENCODINGS))
        width, pool = random.integers(2, 5), random.choice(CELLS, 4)
        header = [random.choice(["a", "", "Unnamed: 0"]), *"bcde"[: width - 1]]
        rows = [[str(i), *random.choice(pool, width - 1)] for i in range(random.integers(1, 9))]
        rows[0] += ["x"] * int(random.integers(6) == 0)  # one cell too many
        text = end.join(map(sep.join, [header, *rows, [""] * int(random.integers(3) == 0)]))
        path.write_bytes(text.encode(encoding))
        try:
            whole = said(Observations.from_csv(path, count=None))
        except InputError as error:
            with pytest.raises(InputError, match=f"^{re.escape(str(error))}$"):
                in_pieces(path, count=None)
            continue
        assert in_pieces(path, count=None) == whole
        read += 1
    assert read > 5
