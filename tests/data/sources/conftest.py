"""One table wherever it may lie."""

import contextlib

import numpy as np
import pandas as pd
import pytest

from pyro_hoim.data import open_rows
from pyro_hoim.data.sources.cluster import local_client

NUM_ROWS = 1_000


def _table(num_rows=NUM_ROWS, seed=7):
    """Numbers, text, truth values, ordered categories and gaps."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "number": random.integers(-1, 3, num_rows),
            "text": random.choice(["x", "y", "é"], num_rows, p=[0.6, 0.3, 0.1]),
            "truth": random.random(num_rows) < 0.3,
            "size": pd.Categorical(
                random.choice(["low", "high"], num_rows), categories=["none", "low", "high"], ordered=True
            ),
            "gaps": np.where(random.random(num_rows) < 0.1, np.nan, random.integers(1, 4, num_rows)),
        }
    )


def _write_parquet(folder, frame, num_files=3, **options):
    """The rows in files of a folder, in order."""
    folder.mkdir()
    for i, part in enumerate(np.array_split(np.arange(len(frame)), num_files)):
        frame.iloc[part].to_parquet(folder / f"{i}.parquet", **{"row_group_size": 97, **options})
    return folder


@contextlib.contextmanager
def _refused(kind, code, *words):
    """An error of a kind with a code that says some words in one line."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    for one in words:
        assert one in str(caught.value)


@pytest.fixture(scope="session")
def refused():
    return _refused


@pytest.fixture(scope="session")
def table():
    return _table


@pytest.fixture(scope="session")
def write_parquet():
    return _write_parquet


@pytest.fixture(scope="module")
def client():
    """A local cluster of threads, which end before other tests, whose memory and random numbers are watched."""
    pytest.importorskip("distributed")
    with local_client(workers=2) as held, held.cluster:
        yield held


@pytest.fixture(scope="session")
def frame():
    return _table()


@pytest.fixture(scope="module")
def sources(frame, client, tmp_path_factory):
    """The table in memory, in files, in a Dask data frame, and in files read by a cluster."""
    import dask.dataframe as dd

    folder = _write_parquet(tmp_path_factory.mktemp("rows") / "parquet", frame)
    return {
        "memory": open_rows(frame),
        "small chunks": open_rows(frame, chunk_rows=7),
        "files": open_rows(folder),
        "files, small chunks": open_rows(folder, chunk_rows=31),
        "dask": open_rows(dd.from_pandas(frame, npartitions=5), cluster=client),
        "dask, small chunks": open_rows(dd.from_pandas(frame, npartitions=2), cluster=client, chunk_rows=50),
        "files on a cluster": open_rows(folder, cluster=client),
    }
