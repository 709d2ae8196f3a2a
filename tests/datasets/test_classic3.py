"""Classic3: the pinned matrix in each of its files, and what is refused; nothing here uses the network."""

import hashlib
import io
from functools import cache

import numpy as np
import pytest
import scipy.io
from scipy import sparse

from pyro_hoim import CountTable, InputError
from pyro_hoim.datasets import FileInfo, classic3_info, load_classic3, public as classic3
from pyro_hoim.datasets.public import matrix_checksum
from pyro_hoim.testing import raises

SMALL = np.array([[0, 2, 1], [5, 0, 0]])
WORDS = ["flow", "heat", "wing"]


@cache  # it holds the time at which it was made
def small_original():
    stream = io.BytesIO()
    labels = np.empty((3, 1), dtype=object)
    labels[:, 0] = WORDS
    scipy.io.savemat(stream, {"Xt": sparse.csc_matrix(SMALL.astype(float)), "labels": labels})
    return stream.getvalue()


@pytest.fixture
def small(isolated, monkeypatch):
    """A folder with a small matrix in both forms, pinned in place of the published one."""
    folder = isolated / "data"
    folder.mkdir()
    (folder / "classic3.mat").write_bytes(small_original())
    sparse.save_npz(folder / "m.npz", sparse.csr_matrix(SMALL))
    (folder / "m_vocab.txt").write_text("\n".join(WORDS))
    pinned = FileInfo(
        "classic3",
        "https://example.org/classic3.mat",
        "",
        "",
        2,
        matrix_checksum(CountTable.from_matrix(SMALL, WORDS)),
        hashlib.sha256(small_original()).hexdigest(),
        files=("m.npz", "m_vocab.txt"),
    )
    monkeypatch.setitem(classic3._MATRICES, "published", pinned)
    return folder


def test_published_matrix(shared_data, monkeypatch):
    monkeypatch.setenv("PYRO_HOIM_DATA", str(shared_data))
    table, info = load_classic3(), classic3_info()
    assert (table.num_rows, len(table.domain)) == (info.num_rows, 1000) == (3893, 1000)
    assert matrix_checksum(table) == info.sha256 and len(info.original_sha256) == 64
    assert info.url.startswith("https://raw.githubusercontent.com/") and info.url.endswith("/data/classic3.mat")
    assert np.flatnonzero(np.asarray(table.matrix.sum(1)) == 0).tolist() == [1930, 2454, 3232]
    assert load_classic3(columns=500).domain.names == table.domain.names[:500]
    assert load_classic3(columns=["boundary", "layer"]).totals.tolist() == [
        table.totals[table.domain.index(name)] for name in ("boundary", "layer")
    ]


def test_rebuilt_matrix(shared_data, monkeypatch):
    monkeypatch.setenv("PYRO_HOIM_DATA", str(shared_data))
    table = load_classic3("rebuilt")
    assert (table.num_rows, len(table.domain), table.matrix.nnz) == (3891, 5891, 203_253)
    assert table.totals.sum() == 282_793
    published = load_classic3()
    assert set(published.domain.names) <= set(table.domain.names)


@pytest.mark.parametrize("removed", ["m.npz", "classic3.mat"])
def test_both_files_give_the_same_table(removed, small, monkeypatch):
    monkeypatch.setenv("PYRO_HOIM_DATA", str(small))
    (small / removed).unlink()
    table = load_classic3()
    assert (table.to_array().tolist(), table.domain.names) == (SMALL.tolist(), tuple(WORDS))


def test_download_is_kept_and_verified(small, isolated, serve):
    asked = serve(small_original())
    for _ in range(2):
        assert load_classic3().totals.tolist() == [5, 2, 1]
    assert asked == [("https://example.org/classic3.mat", 30.0)]
    cached = isolated / "cache" / "pyro_hoim" / "classic3.mat"
    cached.write_bytes(b"damaged")
    load_classic3()  # a damaged copy is fetched again
    assert len(asked) == 2
    assert cached.read_bytes() == small_original()
    serve(b"<html>not found</html>")
    cached.unlink()
    with pytest.raises(InputError, match="differs from the published one"):
        load_classic3()
    assert not cached.exists()


def test_other_files_are_refused(small, monkeypatch):
    monkeypatch.setenv("PYRO_HOIM_DATA", str(small))
    sparse.save_npz(small / "m.npz", sparse.csr_matrix(SMALL + 1))
    with raises("damaged-file", str(small / "m.npz")):
        load_classic3()
    (small / "m.npz").unlink()
    (small / "classic3.mat").write_bytes(small_original() + b"x")
    with raises("damaged-file", str(small / "classic3.mat")):
        load_classic3()
    (small / "classic3.mat").unlink()
    with raises("no-file", "PYRO_HOIM_DATA"):
        load_classic3()


def test_errors_say_what_to_do(isolated):
    with pytest.raises(InputError, match=r"could not be downloaded .*PYRO_HOIM_DATA to the folder that holds classic3"):
        load_classic3()
    with raises("no-file", "data set 'classic3_counts'"):
        load_classic3("rebuilt")
    with raises("unknown-name"):
        load_classic3("rebuild")


def test_checksum_tells_names_and_counts_apart():
    table = CountTable.from_matrix(SMALL, WORDS)
    others = [
        CountTable.from_matrix(SMALL, ["flow", "heat", "wings"]),
        CountTable.from_matrix(SMALL[::-1], WORDS),
        CountTable.from_matrix(SMALL + 1, WORDS),
    ]
    assert len({matrix_checksum(each) for each in [table, *others]}) == 4
