"""Data frames of pandas and polars whose columns, names and indices are odd, for everything that takes rows."""

import contextlib
import datetime as dt
import decimal
import functools
import uuid

import numpy as np
import pandas as pd
import polars as pl
import torch
from harness import Reader

import pyro_hoim as hoim
from pyro_hoim.data import CountTable, Observations, bin_columns

LABELS = ["x", "y"]
NOW = dt.datetime(2024, 1, 31, 12)
COLUMNS = {
    "text": ["x", "y"],
    "whole": [0, 1],
    "real": [0.5, 1.5],
    "flags": [True, False],
    "flags and holes": [True, None],
    "mixed": ["1", 1],
    "numbers and text": [1.5, "x"],
    "huge": [2**63 - 1, 2**53 + 1],
    "beyond 64 bits": [2**70, 1],
    "not finite": [float("inf"), float("nan")],
    "nothing": [None, None],
    "dates": [NOW, NOW + dt.timedelta(days=3)],
    "days": [NOW.date(), dt.date(9999, 12, 31)],
    "spans": [dt.timedelta(1), dt.timedelta(2)],
    "lists": [["x"], ["y", "z"]],
    "tuples": [(1, 2), (3,)],
    "mappings": [{"a": 1}, {}],
    "sets": [{1}, frozenset([2])],
    "bytes": [b"x", b"\xff"],
    "complex": [1j, 2.0],
    "decimals": [decimal.Decimal("1.5"), decimal.Decimal("NaN")],
    "objects": [object(), uuid.UUID(int=3)],
    "types": [int, str],
    "arrays": [np.zeros(2), np.ones(3)],
    "tensors": [torch.zeros(2), torch.ones(())],
    "missing of pandas": [pd.NA, "x"],
    "no time": [pd.NaT, NOW],
    "empty text": ["", " "],
    "long text": ["x" * 10_000, "y"],
    "controls": ["\x1b[31m", "a\nb\0"],
    "surrogates": ["\ud800", "y"],
    "unit": [1, 1],
    "negative": [-1, 3],
}
DTYPES = ["category", "string", "Int64", "boolean", "float32", "uint8", "Float64", object, "datetime64[ns]", "str"]
NAMES = ["a", "b", "count", "weight", "Freq", "", " ", 0, 1.5, None, ("a", "b"), NOW, "x" * 300, "a*b", "é", True]


def _column(values, dtype):
    """A column of a type, of objects where it cannot be."""
    try:
        return pd.Series(values, dtype=dtype)
    except Exception:  # noqa: BLE001 (pandas and Arrow raise many)
        return pd.Series(values, dtype=object)


def draw(rng):
    """A frame of a few columns, mostly of labels, and which library it is of."""
    rows = rng.choice([0, 1, 2, 3, 12, 40])
    names = ["a", "b", "c"][: rng.choice([1, 2, 2, 2, 3])]
    columns = []
    for _ in names:
        kind = rng.choice(["text", "text", "whole", rng.choice(list(COLUMNS))])
        values = [rng.choice(COLUMNS[kind]) for _ in range(rows)]
        if rng.random() < 0.1:
            values = [None if rng.random() < 0.3 else value for value in values]
        columns.append(_column(values, None if rng.random() < 0.7 else rng.choice([object, *DTYPES])))
    if rng.random() < 0.2:
        names[rng.randrange(len(names))] = rng.choice(NAMES)
    frame = pd.concat(columns, axis=1)
    how = rng.randrange(8)
    if how == 0 and rows:
        frame.index = [0] * rows
    elif how == 1 and rows:
        frame.index = pd.MultiIndex.from_arrays([range(rows), ["i"] * rows])
    elif how == 2:
        frame = frame.iloc[::-1]
    if rng.random() < 0.03:
        frame.columns = pd.MultiIndex.from_arrays([names, names])
    else:
        frame.columns = pd.Index(names, dtype=object)
    if rng.random() < 0.15:
        with contextlib.suppress(Exception):  # what polars cannot hold stays with pandas
            frame = pl.from_pandas(frame)
    return rng.choice(list(USES)), frame


@functools.cache
def models():
    """A model of each family of labels over the columns a and b."""
    rows = pd.DataFrame({"a": ["x", "y", "x", "x"] * 5, "b": ["x", "x", "y", "y"] * 5})
    return hoim.fit("a*b", rows, prior="unit"), hoim.learn_network(rows)


def _fit(frame, **options):
    result = hoim.fit(frame, **options)
    assert result.num_rows > 0 and bool(torch.isfinite(result.theta).all())


def _rows(frame):
    rows = Observations.from_pandas(frame)
    again = rows.to_pandas(count=None)
    assert rows.num_rows == len(frame) and set(again.columns) <= set(map(str, frame.columns))


def _same_index(result, frame):
    assert len(result) == len(frame)
    if isinstance(frame, pd.DataFrame):
        assert result.index.equals(frame.index)


def _score(frame):
    for model in models():
        assert np.isfinite(hoim.score(model, frame)["nll"])


def _each(act):
    return lambda frame: [act(model, frame) for model in models()]


def _counts(frame, kind):
    table = CountTable.from_pandas(frame, kind=kind)
    assert bool(np.isfinite(table.to_array()).all())


USES = {
    "fit order 1": functools.partial(_fit, order=1, prior="unit"),
    "fit formula": lambda frame: hoim.fit("a*b", frame, prior="normal:1"),
    "fit drop": functools.partial(_fit, order=2, prior="unit", missing="drop"),
    "observations": _rows,
    "counts": functools.partial(_counts, kind="count"),
    "numbers": functools.partial(_counts, kind="real"),
    "bins": lambda frame: bin_columns(frame, {"a": "quantile:2"}),
    "score": _score,
    "predict": _each(lambda model, frame: _same_index(hoim.predict(model, frame, "a"), frame)),
    "impute": _each(lambda model, frame: _same_index(hoim.impute(model, frame), frame)),
    "row log-likelihood": _each(lambda model, frame: _same_index(model.row_log_likelihood(frame, pseudo=True), frame)),
    "learn": lambda frame: hoim.learn(frame, frame),
    "learn_network": hoim.learn_network,
    "fit_roots": lambda frame: hoim.fit_roots(frame, order=2),
}


def read(case, folder):
    """What is not refused keeps the rows and their index."""
    use, frame = case
    USES[use](frame)


READERS = [Reader("data frames", read, draw, 0.5)]
