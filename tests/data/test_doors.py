"""One table through every door: data frames, tables of Arrow and files of every kind, whole and by pieces.

The oracle is the table as it is written down here: labels, their order and kind, and codes. Formats are without the
columns that they cannot hold, or that they write as other text.
"""

import datetime as dt
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from pyro_hoim import Domain, Observations, Variable
from pyro_hoim.data import open_rows
from pyro_hoim.data.frames import as_observations

ROWS = 6
DAY, NOON, MAY = dt.datetime(2020, 1, 3), dt.datetime(2020, 1, 3, 12, 30), dt.datetime(2019, 5, 1, 7)
SHORT, LONG = dt.timedelta(0, 1), dt.timedelta(1, 1)
LARGE = 999000031000000114


def dictionary(levels, *, ordered):
    codes = pa.array([0, 2, None, 0, 2, 0], pa.int8())
    return pa.DictionaryArray.from_arrays(codes, pa.array(levels), ordered=ordered)


COLUMNS = {  # cells, labels in order, codes
    "text": (pa.array(["y", "x", None, "é", "x", "y"]), ["x", "y", "é"], [1, 0, -1, 2, 0, 1]),
    "whole": (pa.array([10, 9, 10, -1, 9, 10], pa.int32()), ["-1", "9", "10"], [2, 1, 2, 0, 1, 2]),
    "gaps": (pa.array([10, None, 10, -1, 9, 10], pa.int64()), ["-1", "9", "10"], [2, -1, 2, 0, 1, 2]),
    "large": (pa.array([LARGE, None, LARGE - 8, 3, 3, 3]), ["3", str(LARGE - 8), str(LARGE)], [2, -1, 1, 0, 0, 0]),
    "real": (pa.array([0.1, 2.5, None, 1e-7, 0.1, 2.5]), ["1e-07", "0.1", "2.5"], [1, 2, -1, 0, 1, 2]),
    "single": (pa.array([0.1, 2.3, None, 0.3, 0.1, 0.3], pa.float32()), ["0.1", "0.3", "2.3"], [0, 2, -1, 1, 0, 1]),
    "truth": (pa.array([True, False, True, True, False, True]), ["False", "True"], [1, 0, 1, 1, 0, 1]),
    "perhaps": (pa.array([True, None, False, True, False, None]), ["False", "True"], [1, -1, 0, 1, 0, -1]),
    "day": (pa.array([DAY.date(), None, *[MAY.date()] * 4]), ["2019-05-01", "2020-01-03"], [1, -1, 0, 0, 0, 0]),
    "date": (
        pa.array([DAY, None, *[DAY - dt.timedelta(2)] * 4], pa.timestamp("us")),
        ["2020-01-01", "2020-01-03"],
        [1, -1, 0, 0, 0, 0],
    ),
    "time": (
        pa.array([NOON, None, *[MAY] * 4], pa.timestamp("ms")),
        ["2019-05-01 07:00:00", "2020-01-03 12:30:00"],
        [1, -1, 0, 0, 0, 0],
    ),
    "mixed": (pa.array([DAY, None, *[NOON] * 4]), ["2020-01-03", "2020-01-03 12:30:00"], [0, -1, 1, 1, 1, 1]),
    "length": (pa.array([LONG, None, *[SHORT] * 4]), ["0 days 00:00:01", "1 days 00:00:01"], [1, -1, 0, 0, 0, 0]),
    "price": (pa.array([Decimal("1.50"), None, *[Decimal("10.00")] * 4]), ["1.5", "10"], [0, -1, 1, 1, 1, 1]),
    "size": (dictionary(["low", "none", "high"], ordered=True), ["low", "none", "high"], [0, 2, -1, 0, 2, 0]),
    "colour": (dictionary(["b", "c", "a"], ordered=False), ["b", "c", "a"], [0, 2, -1, 0, 2, 0]),
}


def expected(names, has_levels=True, has_order=True):
    """The table as it is written down; without levels in the format, those seen in the order of text."""
    variables, codes = [], []
    for name in names:
        _, labels, places = COLUMNS[name]
        kind = "ordinal" if name == "size" and has_levels and has_order else "nominal"
        if not has_levels and name in ("size", "colour"):
            seen = sorted({labels[place] for place in places if place >= 0})
            places = [-1 if place < 0 else seen.index(labels[place]) for place in places]
            labels = seen
        variables.append(Variable(name, tuple(labels), kind))
        codes.append(places)
    return Domain(variables), [list(row) for row in zip(*codes, strict=True)]


def table(names):
    return pa.table({name: COLUMNS[name][0] for name in names})


def plain(names):
    """As NumPy holds it: numbers with gaps as float64, truth values with gaps as objects."""
    return table(names).to_pandas()


def nullable(names):
    types = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype()}
    return table(names).to_pandas(types_mapper=types.get)


def of_polars(names):
    columns = {name: pl.Series(name, COLUMNS[name][0]) for name in names if name not in ("size", "colour")}
    columns["size"] = pl.Series(["low", "high", None, "low", "high", "low"], dtype=pl.Enum(COLUMNS["size"][1]))
    return pl.DataFrame(columns).select(names)


def file(ending, write):
    def read(names, folder):
        write(names, folder / f"t.{ending}")
        return Observations.from_csv(folder / f"t.{ending}")

    return read


def pieces(ending, write):
    def read(names, folder):
        write(names, folder / f"t.{ending}")
        return open_rows(folder / f"t.{ending}", chunk_rows=2, count=None).observations()

    return read


def halves(names, folder):
    for i in range(2):
        pa.parquet.write_table(table(names).slice(3 * i, 3), folder / f"{i}.parquet", row_group_size=2)
    return open_rows(folder).observations()


def dask(names, folder):
    import dask.dataframe as dd

    from pyro_hoim.data.sources.cluster import local_client

    with local_client() as client, client.cluster:
        return open_rows(dd.from_pandas(nullable(names), npartitions=2), cluster=client).observations()


def csv(names, path):
    nullable(names).to_csv(path, index=False)


def parquet(names, path):
    nullable(names).to_parquet(path, row_group_size=4)


def feather(names, path):
    pa.feather.write_feather(table(names), path)


def stata(names, path):
    nullable(names).astype({"gaps": "float64"}).fillna({"text": ""}).to_stata(path, write_index=False, version=118)


def excel(names, path):
    nullable(names).to_excel(path, index=False)


LEVELS, UNORDERED = {"has_levels": False}, {"has_order": False}
DOORS = {  # how it is read, columns that the format cannot hold, what it loses
    "pandas": (lambda names, _: as_observations(plain(names)), {"gaps", "large"}, {}),
    "pandas, whole": (lambda names, _: Observations.from_pandas(plain(names)), {"large"}, {}),
    "pandas, nullable": (lambda names, _: as_observations(nullable(names)), {}, {}),
    "pandas, Arrow": (lambda names, _: as_observations(table(names).to_pandas(types_mapper=pd.ArrowDtype)), {}, {}),
    "Arrow": (lambda names, _: as_observations(table(names)), {}, {}),
    "polars": (lambda names, _: as_observations(of_polars(names)), {"colour"}, {}),
    "polars, Arrow": (
        lambda names, _: as_observations(of_polars(names).to_pandas(use_pyarrow_extension_array=True)),
        {"colour"},
        {},
    ),
    "CSV": (file("csv", csv), {"mixed", "price"}, LEVELS),
    "CSV, pieces": (pieces("csv", csv), {"mixed", "price"}, LEVELS),
    "Parquet": (file("parquet", parquet), {}, {}),
    "Parquet, pieces": (pieces("parquet", parquet), {}, {}),
    "Parquet, polars": (file("parquet", lambda names, path: of_polars(names).write_parquet(path)), {"colour"}, {}),
    "folder": (halves, {}, {}),
    "Feather": (file("feather", feather), {}, {}),
    "Feather, polars": (file("arrow", lambda names, path: of_polars(names).write_ipc(path)), {"colour"}, {}),
    "Stata": (file("dta", stata), {"large", "truth", "perhaps", "day", "length", "price"}, UNORDERED),
    "Excel": (file("xlsx", excel), {"large", "single", "length", "price"}, LEVELS),
    "Dask": (dask, {"price"}, {}),  # Dask makes text of objects
}


@pytest.mark.parametrize("door", DOORS)
def test_a_table_is_the_same_through_every_door(door, tmp_path):
    read, without, loses = DOORS[door]
    names = [name for name in COLUMNS if name not in without]
    found = read(names, tmp_path)
    domain, codes = expected(names, **loses)
    assert (found.domain, found.codes.tolist(), found.counts.tolist()) == (domain, codes, [1.0] * ROWS)
