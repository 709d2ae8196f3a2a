"""Sparse matrices from strangers: sizes and types are judged before any number is read, and nothing lies."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
from scipy import sparse

from pyro_hoim.data.counts import read_matrix
from pyro_hoim.errors import HoimError
from pyro_hoim.testing import raises

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
