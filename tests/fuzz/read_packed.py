"""Files that are packed or typed: gz, bz2, xz, zip, Excel, Parquet, Arrow, Stata and others, npz, and bombs."""

import bz2
import functools
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
from harness import Reader
from mutations import NUMBERS, mutate_bytes, mutate_zip, zeros
from scipy import sparse

from pyro_hoim.data import CountTable, Observations, read_table_file

PLAIN = b"a,b,c\n1,x,yes\n2,y,no\n1,x,no\n"
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
FRAME = pd.DataFrame({"a": [1, 2, 1], "b": pd.Categorical(["x", "y", "x"]), "c": ["u", None, "w"], "count": [1, 2, 3]})
FOLDER = Path(__file__).parents[1] / "data" / "files_of_others"
OTHERS = {
    ".por": "survey.por",
    ".sas7bdat": "survey.sas7bdat.gz",
    ".xpt": "survey.xpt",
    ".rds": "haven.rds",
    ".rda": "short.rds",
    ".arff": "survey.arff",
}
MATRIX = sparse.csr_matrix(np.array([[1, 0, 2], [0, 3, 0], [4, 0, 0], [0, 0, 1]]))
MATRICES = [MATRIX, MATRIX.tocsc(), MATRIX.tocoo(), MATRIX.astype(float)]


@functools.cache
def made(kind):
    """The bytes of a good file."""
    out = io.BytesIO()
    if kind in OPENERS:
        with OPENERS[kind](out, "wb") as held:
            held.write(PLAIN)
    elif kind == ".zip":
        with zipfile.ZipFile(out, "w") as held:
            held.writestr("t.csv", PLAIN)
    elif kind == ".xlsx":
        FRAME.to_excel(out, index=False)
    elif kind == ".parquet":
        FRAME.to_parquet(out)
    elif kind == ".feather":
        FRAME.to_feather(out)
    elif kind == ".arrows":
        pl.from_pandas(FRAME).write_ipc_stream(out, compression="zstd")
    elif kind == ".dta":
        FRAME.fillna("").to_stata(out, write_index=False)
    elif kind in OTHERS:
        raw = (FOLDER / OTHERS[kind]).read_bytes()
        out.write(gzip.decompress(raw) if OTHERS[kind].endswith((".gz", ".rds", ".RData")) else raw)
    else:
        sparse.save_npz(out, MATRICES[int(kind)])
    return out.getvalue()


@functools.cache
def bomb(kind):
    """A small file of many bytes."""
    if kind == ".zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as held:
            held.writestr("t.csv", bytes(2**28))
        return out.getvalue()
    return zeros(2**28, OPENERS[kind])


def draw_packed(rng):
    kind = rng.choice([*OPENERS, ".zip"])
    if kind == ".zip":
        return kind, mutate_zip(rng, made(kind))
    if rng.random() < 0.3:
        out = io.BytesIO()
        with OPENERS[kind](out, "wb") as held:
            held.write(mutate_bytes(rng, PLAIN))
        return kind, out.getvalue()
    return kind, mutate_bytes(rng, made(kind))


def draw_typed(rng, kind):
    return kind, (mutate_zip if kind == ".xlsx" else mutate_bytes)(rng, made(kind))


def read(case, folder):
    """What loads has as many cells in every column as it has lines."""
    kind, data = case
    path = folder / f"t{kind}"
    path.write_bytes(data)
    table = read_table_file(path)
    assert {len(column) for column in table.columns} == {len(table.lines)} and len(set(table.header)) == len(
        table.columns
    )
    Observations.from_csv(table)


def read_bomb(kind, folder):
    """Zeros are refused."""
    path = folder / f"t.csv{kind}"
    path.write_bytes(bomb(kind))
    read_table_file(path)
    raise AssertionError("a file of zeros was read")


def _array(rng, array):
    """An array of another shape, type or content."""
    how, is_number = rng.randrange(6), array.dtype.kind in "iuf" and array.size > 0
    if how == 0 or not is_number:
        return np.array(rng.choice(["csr", "csc", "coo", "bsr", b"csr", 3, None, ["csr", "coo"], 1.5]))
    if how == 1:
        return array.astype(rng.choice(["f8", "f4", "i1", "u1", "u8", "i8", "c16", "U3", "S3", "?"]))
    if how == 2:
        return rng.choice([array[:-1], np.append(array, array[-1:]), array[None], array[:0], np.array(array[0])])
    wide = array.astype(rng.choice([float, np.int64]))
    odd = [-1, 0.5, 1e15, 1e308, float("nan"), float("inf")] if wide.dtype.kind == "f" else [-1, *NUMBERS[:14]]
    wide.flat[rng.randrange(wide.size)] = rng.choice(odd)
    return wide


def draw_npz(rng):
    number = rng.randrange(len(MATRICES))
    data = made(str(number))
    names = mutate_bytes(rng, b"a\nb\nc\n") if rng.random() < 0.3 else b"a\nb\nc\n"
    if rng.random() < 0.5:
        return mutate_zip(rng, data), names
    with np.load(io.BytesIO(data)) as held:
        arrays = {name: held[name] for name in held.files}
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(list(arrays))
        arrays[name] = _array(rng, np.atleast_1d(arrays[name]))
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue(), names


def read_npz(case, folder):
    """What loads is what SciPy loads."""
    data, names = case
    (folder / "t.npz").write_bytes(data)
    (folder / "t_vocab.txt").write_bytes(names)
    table = CountTable.from_npz(folder / "t.npz")
    assert len(table.domain) == table.matrix.shape[1] and table.total_count >= 0
    if table.matrix.shape[0] < 1000:
        assert (table.to_array() == sparse.load_npz(folder / "t.npz").toarray()).all()


READERS = [
    Reader("gz, bz2, xz and zip", read, draw_packed),
    Reader("bombs of them", read_bomb, lambda rng: rng.choice([*OPENERS, ".zip"]), 0.002),
    *(
        Reader(name, read, functools.partial(draw_typed, kind=kind), share, kind != ".xlsx")
        for name, kind, share in (
            ("Excel", ".xlsx", 0.2),
            ("Parquet", ".parquet", 0.6),
            ("Feather", ".feather", 0.6),
            ("Arrow streams", ".arrows", 0.3),
            ("Stata", ".dta", 0.3),
            ("portable SPSS", ".por", 0.3),
            ("SAS", ".sas7bdat", 0.3),
            ("SAS transport", ".xpt", 0.3),
            ("data frames of R", ".rds", 0.3),
            ("what R stores in short", ".rda", 0.3),
            ("ARFF", ".arff", 0.3),
        )
    ),
    Reader("npz and vocabulary", read_npz, draw_npz),
]
