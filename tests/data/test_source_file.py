"""What is no ordinary file, and what is too large: refused in one line, in bounded time and memory."""

import errno
import io
import os
import socket
import sys
import threading
import tracemalloc
import zipfile
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import sparse

from pyro_hoim.data import Observations, read_table_file
from pyro_hoim.data.counts import read_matrix
from pyro_hoim.data.files import source_file
from pyro_hoim.data.files.source_file import read_file
from pyro_hoim.errors import HoimError, IntractableError
from pyro_hoim.testing import raises

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices of Unix")
READERS = [read_table_file, read_matrix, Observations.from_csv]
ROWS = b"a,b\n" + b"0,1\n1,0\n" * 40_000


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Pipes that say nothing are given up soon."""
    monkeypatch.setattr(source_file, "_PATIENCE", 0.2)
    monkeypatch.setattr(source_file, "_WAIT", 0.05)


@pytest.mark.parametrize("read", READERS)
def test_what_is_no_file_is_refused(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as held:
        held.bind("s")
        for path in ("/dev/zero", "/dev/null", "/dev/urandom", "/dev/full", "s", ".", "/proc", "-", "/dev/fd/999"):
            with raises("no-file", path):
                read(path)


@pytest.mark.parametrize("read", READERS)
def test_paths_that_lead_nowhere(read, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "two\nlines").write_bytes(b"")
    for name, code in {
        "loop": "damaged-file",
        "dangling": "no-file",
        "n" * 5000: "damaged-file",
        "zero\0byte": "damaged-file",
        "none\udcff": "no-file",
        "loop/below": "damaged-file",
    }.items():
        with raises(code, str(tmp_path / name)):
            read(tmp_path / name)
    with pytest.raises(ValueError, match="two"):
        read(tmp_path / "two\nlines")


def test_a_pipe_is_read_and_one_without_a_writer_is_given_up(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with raises("empty", str(pipe)):
        read_table_file(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(ROWS,))
    writer.start()
    assert len(read_table_file(pipe).lines) == 80_000
    writer.join()
    end = os.open(pipe, os.O_RDWR)  # a writer that says nothing
    try:
        with raises("no-file", str(pipe)):
            read_table_file(pipe)
    finally:
        os.close(end)


def test_sizes_are_judged_before_and_while_reading(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_bytes(b"x")
    os.truncate(path, 2**40)  # a TiB that takes no place on the disk
    with raises("over-budget", str(path)):
        read_file(path, "a table")
    path.write_bytes(ROWS)
    assert read_file(path, "a table", len(ROWS)) == ROWS
    with raises("over-budget", str(path)):
        read_file(path, "a table", len(ROWS) - 1)
    # A file that grows while it is read, and one of /proc, which says that it is empty.
    told, read = os.fstat, os.read
    monkeypatch.setattr(os, "fstat", lambda descriptor: os.stat_result([0] * 10))
    with raises("over-budget", str(path)):
        read_file(path, "a table", len(ROWS) - 1)
    monkeypatch.setattr(os, "fstat", told)
    assert read_file("/proc/self/status", "a table").startswith(b"Name:")

    monkeypatch.setattr(os, "read", Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
    with raises("damaged-file", str(path)):
        read_file(path, "a table")
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, 7))  # short pieces are joined
    assert read_file(path, "a table") == ROWS


def test_the_error_says_the_budget(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(ROWS)
    with pytest.raises(IntractableError, match=r"holds 320,004 bytes, more than the budget of 1,000; give fewer rows"):
        read_file(path, "a table", 1000)


# Sparse matrices from strangers: sizes and types are judged before any number is read, and nothing lies.

MATRIX = sparse.csr_matrix(np.array([[0, 3, 0], [7, 0, 0], [1, 3, 0]]))


def member(array):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array))
    return stream.getvalue()


def held(form="csr"):
    stream = io.BytesIO()
    sparse.save_npz(stream, MATRIX.asformat(form))
    with zipfile.ZipFile(stream) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(folder, members, how=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(folder / "m.npz", "w", how) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return folder / "m.npz"


def changed(folder, form="csr", how=zipfile.ZIP_DEFLATED, **arrays):
    new = {f"{name}.npy": a if isinstance(a, bytes) else member(a) for name, a in arrays.items()}
    return written(folder, (held(form) | new).items(), how)


def coo(folder, data, row, col, shape=(3, 3)):
    return changed(folder, "coo", data=data, row=row, col=col, shape=np.asarray(shape))


def peak_of(call):
    """Largest memory in bytes while something is called, and its result or its refusal."""
    tracemalloc.start()
    try:
        found = call()
    except HoimError as error:
        found = error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, found


def with_header(array, **changes):
    """A member whose header says something else than what follows."""
    header = {"descr": "<i8", "fortran_order": False, "shape": array.shape} | changes
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + array.tobytes()


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("pyro_hoim.data.files.source_file._LARGE", 2**26)
    zeros = np.zeros(10**7, dtype=np.int64)
    bomb = coo(tmp_path, zeros, np.zeros(4, np.int32), np.zeros(4, np.int32))
    assert bomb.stat().st_size < 2**20
    peak, error = peak_of(lambda: read_matrix(bomb))
    assert error.code == "over-budget" and "200 times its own size" in str(error)
    assert peak < 2**24
    # Control: reading it as NumPy does takes all of it.
    assert peak_of(lambda: np.load(bomb)["data"])[0] > zeros.nbytes


def test_more_than_the_budget_is_refused_from_the_headers(tmp_path, monkeypatch):
    monkeypatch.setattr("pyro_hoim.data.counts._MOST_BYTES", 63)
    with raises("over-budget", str(tmp_path / "m.npz")):
        read_matrix(changed(tmp_path))
    monkeypatch.setattr("pyro_hoim.data.counts._MOST_BYTES", 64)
    assert (read_matrix(changed(tmp_path)) != MATRIX).nnz == 0


def test_rows_without_entries_are_counted_first(tmp_path):
    for shape in ((2**31 - 1, 4), (4, 2**31 - 1)):
        peak, error = peak_of(lambda shape=shape: read_matrix(coo(tmp_path, [1.0], [0], [0], shape)))
        assert error.code == "over-budget" and "2,147,483,647 rows or columns" in str(error)
        assert peak < 2**24
    assert read_matrix(coo(tmp_path, [1.0], [0], [0], (2**16, 4))).shape == (2**16, 4)


@pytest.mark.parametrize("claim", [10**12, 10**30, 2**63, 5])
def test_headers_that_lie_cost_nothing(claim, tmp_path):
    array = np.ones(4, dtype=np.int64)
    path = changed(tmp_path, data=with_header(array, shape=(claim,)))
    peak, error = peak_of(lambda: read_matrix(path))
    assert error.code == "damaged-file" and peak < 2**24
    assert read_matrix(changed(tmp_path, data=with_header(array))).nnz == 4  # a header that is right


def test_a_directory_that_lies_costs_nothing(tmp_path):
    zeros = member(np.zeros(2**22, dtype=np.int64))
    path = changed(tmp_path, data=zeros)
    raw, small = path.read_bytes(), len(member(np.zeros(4, dtype=np.int64)))
    size = len(zeros).to_bytes(4, "little")
    path.write_bytes(raw.replace(size, small.to_bytes(4, "little")))
    peak, error = peak_of(lambda: read_matrix(path))
    assert error.code == "damaged-file" and peak < 2**24
    path.write_bytes(raw.replace(size, (2**31).to_bytes(4, "little")))
    peak, error = peak_of(lambda: read_matrix(path))
    assert error.code in ("damaged-file", "over-budget") and peak < 2**24


STRUCTURED = np.zeros(4, dtype=[("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"shape": [3.0, np.nan]}, "wrong-type"),
        ({"shape": [np.inf, 3.0]}, "wrong-type"),
        ({"shape": [-3, 3]}, "wrong-shape"),
        ({"shape": [3, 3, 3, 3]}, "wrong-shape"),
        ({"shape": 3}, "wrong-shape"),
        ({"data": STRUCTURED}, "wrong-type"),
        ({"data": np.zeros(4, dtype="M8[s]")}, "wrong-type"),
        ({"data": np.zeros((2, 2))}, "wrong-type"),
        ({"data": np.asfortranarray(np.zeros((2, 2)))}, "wrong-type"),
        ({"data": np.float64(1.0)}, "damaged-file"),
        ({"indices": np.zeros(4, dtype=bool)}, "wrong-type"),
        ({"indices": np.array([0, 1, 2**40, 0])}, "damaged-file"),
        ({"indptr": np.array([0, 1, 2, -1])}, "damaged-file"),
        ({"indptr": np.array([0, 1, -(2**63), -1])}, "damaged-file"),
        ({"indptr": np.int64(4)}, "damaged-file"),
        ({"indices": np.int64(4)}, "damaged-file"),
        ({"format": np.array("c" * 10**6)}, "wrong-type"),
        ({"format": np.array(["csr", "csr"])}, "unknown-choice"),
        ({"format": b"csr"}, "damaged-file"),
        ({"format": b""}, "damaged-file"),
        ({"data": b"\x93NUMPY\x09\x00"}, "damaged-file"),
        ({"data": with_header(np.zeros(4), descr="O")}, "damaged-file"),
        ({"data": with_header(np.zeros(4), descr="no type")}, "damaged-file"),
        ({"data": with_header(np.zeros(4), shape=(-4,))}, "damaged-file"),
    ],
)
def test_absurd_arrays_are_refused(arrays, code, tmp_path):
    with raises(code, str(tmp_path / "m.npz")):
        read_matrix(changed(tmp_path, **arrays))


def test_absurd_archives_are_refused(tmp_path):
    whole = held()
    with pytest.warns(UserWarning, match="Duplicate"):
        path = written(tmp_path, [*whole.items(), ("data.npy", whole["data.npy"])])
    with raises("repeated-name", str(path)):
        read_matrix(path)
    for how in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with raises("damaged-file", str(path)):
            read_matrix(changed(tmp_path, how=how))
    for name in ("shape", "format", "indptr"):
        with raises("missing-part", str(path)):
            read_matrix(written(tmp_path, [(key, part) for key, part in whole.items() if key != f"{name}.npy"]))
    with pytest.raises(HoimError, match=r"^[^\n]*received arrays data, form a, [^\n]*$"):
        read_matrix(written(tmp_path, [(key.replace("format", "form\na"), part) for key, part in whole.items()]))
    raw = changed(tmp_path).read_bytes()
    for mark in (b"PK\x03\x04\x14\x00", b"PK\x01\x02\x14\x03\x14\x00"):
        raw = raw.replace(mark + b"\0", mark + b"\1")  # encrypted
    path.write_bytes(raw)
    with raises("damaged-file", str(path)):
        read_matrix(path)


@pytest.mark.parametrize("kind", ["i1", ">i8", "<u2", ">f4", "bool"])
def test_what_is_unusual_is_read(kind, tmp_path):
    data = np.ones(4).astype(kind) if kind == "bool" else np.array([100, 1, 100, 2]).astype(kind)
    row, col = np.array([2, 0, 2, 1], dtype=">i4"), np.array([1, 0, 1, 2], dtype="<u1")
    expected = np.zeros((3, 3))
    np.add.at(expected, (row, col), data)  # entries of one place are added up, 200 where a byte holds up to 127
    assert (read_matrix(coo(tmp_path, data, row, col)).toarray() == expected).all()
    for shape in ((0, 3), (3, 0), (0, 0)):
        none = np.zeros(0, dtype=np.int64)
        assert read_matrix(coo(tmp_path, none, none, none, shape)).shape == shape
