"""Tables of counts: what is read is what was written, and every bad cell is named by its place."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import sparse

from pyro_hoim.data import LARGEST_COUNT, CountTable, Observations
from pyro_hoim.errors import InputError, IntractableError, MissingDataError
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import raises

COUNTS = np.array([[0, 3, 0], [10_000_000, 0, 0], [1, 3, 0]])
NAMES = ["a", "b", "c"]


def csv_file(folder, text):
    path = folder / "t.csv"
    path.write_text(text)
    return path


def npz_file(folder, matrix=COUNTS, names=None, form="csr"):
    path = folder / "m.npz"
    sparse.save_npz(path, sparse.coo_matrix(matrix).asformat(form))
    (folder / "m_vocab.txt").write_text("\n".join(NAMES if names is None else names) + "\n")
    return path


def refused(message, call, *arguments, error=InputError, **options):
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    assert message in str(caught.value), str(caught.value)
    return str(caught.value)


# What is read is what was written


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_all_readers_agree(form, tmp_path):
    frame = pd.DataFrame(COUNTS, columns=NAMES)
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = [
        CountTable.from_matrix(COUNTS, NAMES),
        CountTable.from_matrix(torch.from_numpy(COUNTS).float(), NAMES),
        CountTable.from_matrix(sparse.csc_matrix(COUNTS), NAMES),
        CountTable.from_pandas(frame),
        CountTable.from_csv(tmp_path / "t.csv"),
        CountTable.from_npz(npz_file(tmp_path, form=form)),
    ]
    for table in found:
        assert isinstance(table.matrix, sparse.csr_matrix) and table.matrix.dtype == np.float64
        assert table.matrix.nnz == 4
        assert np.array_equal(table.to_array(), COUNTS)
        assert torch.equal(table.to_tensor(), torch.from_numpy(COUNTS).double())
        assert table.domain == Domain(Variable(name, kind="count") for name in NAMES)
        assert (table.totals.tolist(), table.zero_columns) == ([10_000_001.0, 6.0, 0.0], ("c",))
        assert table.constant_columns == ()
    pd.testing.assert_frame_equal(found[-1].to_pandas(), frame)


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.integers(0, LARGEST_COUNT)] * 2), min_size=1, max_size=5))
def test_counts_survive_a_frame(rows):
    frame = pd.DataFrame(rows, columns=["x", "y"])
    pd.testing.assert_frame_equal(CountTable.from_pandas(frame).to_pandas(), frame)


def test_real_numbers_are_dense(tmp_path):
    table = CountTable.from_csv(csv_file(tmp_path, "a,b\n-1.5,0\n2e3,0.25\n"), kind="real")
    assert isinstance(table.matrix, np.ndarray) and table.to_array().tolist() == [[-1.5, 0.0], [2000.0, 0.25]]
    assert [variable.kind for variable in table.domain] == ["real", "real"]
    assert CountTable.from_npz(npz_file(tmp_path), kind="real").kind == "real"


def test_repetitions_as_in_other_readers(tmp_path):
    path = csv_file(tmp_path, "a,count,b\n1,2,0\n0,0,5\n4,1,7\n")
    table = CountTable.from_csv(path)
    assert table.to_array().tolist() == [[1, 0], [1, 0], [4, 7]]
    assert table.num_rows == Observations.from_csv(path).total_count
    assert CountTable.from_csv(path, count=None).domain.names == ("a", "count", "b")
    assert CountTable.from_csv(path, count="b").num_rows == 12
    table = CountTable.from_csv(csv_file(tmp_path, "a,count\n1,1\n-2,2\n"), kind="real")
    refused("line 3, column 'a'", table.check_range, 0, 1, "x")
    path = csv_file(tmp_path, "a,count\n1,1.5\n")
    refused("line 2, column 'count': expected a non-negative whole", CountTable.from_csv, path)
    refused("values", CountTable.from_csv, csv_file(tmp_path, "a,count\n1,1e12\n"), error=IntractableError)


def test_entries_given_twice_are_added():
    given = sparse.coo_matrix(([1, 2, 0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    table = CountTable.from_matrix(given)
    assert (table.to_array().tolist(), table.matrix.nnz) == ([[0, 3], [0, 0]], 1)
    assert given.nnz == 3  # the caller's matrix stays as it was
    own = sparse.csr_matrix(np.array([[1.0, 2.0]]))
    own.data[0] = 0.0
    assert CountTable.from_matrix(own).matrix.nnz == 1
    assert own.nnz == 2


def test_columns_and_rows():
    table = CountTable.from_matrix(COUNTS, NAMES)
    assert (table.columns(2).domain.names, table.columns(["c", "a"]).domain.names) == (("a", "b"), ("c", "a"))
    assert table.columns(["c", "a"]).to_array().tolist() == COUNTS[:, [2, 0]].tolist()
    assert (table.column("b").tolist(), table.rows([2, 2]).to_array().tolist()) == ([3, 0, 3], COUNTS[[2, 2]].tolist())
    assert table.rows(torch.tensor([True, False, False])).constant_columns == ("b",)
    assert CountTable.from_matrix(COUNTS, NAMES, columns=["b"]).to_array().tolist() == COUNTS[:, [1]].tolist()


def test_split_agrees_with_observations():
    table = CountTable.from_matrix(np.arange(20).reshape(20, 1))
    rows = Observations.from_numpy(np.arange(20).reshape(20, 1))
    for part, other in zip(table.split((0.6, 0.1, 0.3), 3), rows.split((0.6, 0.1, 0.3), 3), strict=True):
        assert part.column("x0").tolist() == other.codes[:, 0].tolist()


def test_empty_tables():
    table = CountTable.from_matrix(np.zeros((0, 2)))
    assert (table.num_rows, table.totals.tolist()) == (0, [0, 0])
    assert [part.num_rows for part in table.split((0.5, 0.5), 0)] == [0, 0]
    assert CountTable(Domain(), np.zeros((2, 0))).num_rows == 2


# Bad cells


CELLS = ["-1", "1.5", "9007199254740992", "9007199254740993", "inf", "-1e400", "many", "nan", "1 000"]


@pytest.mark.parametrize("cell", CELLS)
def test_a_bad_cell_is_named(cell, tmp_path):
    path = csv_file(tmp_path, f"a,b\n1,2\n3,{cell}\n4,5\n")
    with raises("out-of-range", f"{path} line 3, column 'b'"):
        CountTable.from_csv(path)
    # Control: the same table with a good cell is read.
    assert CountTable.from_csv(csv_file(tmp_path, "a,b\n1,2\n3,9007199254740991\n4,5\n")).num_rows == 3


def test_empty_cells_are_counted(tmp_path):
    path = csv_file(tmp_path, "a,b,c\n,1,2\n,,3\n1,2,3\n")
    refused("3 empty cells in columns 'a', 'b';", CountTable.from_csv, path, error=MissingDataError)
    refused(
        "1 empty cell in column 'a'", CountTable.from_pandas, pd.DataFrame({"a": [None, 1]}), error=MissingDataError
    )
    assert CountTable.from_csv(path, columns=["c"]).num_rows == 3


MIXED = Domain([Variable("a", kind="count"), Variable("b", kind="real")])
SMALL = CountTable.from_matrix(COUNTS, NAMES)
FIRST = "the matrix, row 0 (counted from 0), column 'x0'"


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (
            lambda: CountTable.from_matrix([[0], [-1]]),
            "out-of-range",
            "the matrix, row 1 (counted from 0), column 'x0'",
        ),
        (lambda: CountTable.from_matrix([[np.nan]], kind="real"), "out-of-range", FIRST),
        (
            lambda: CountTable.from_matrix([[0.0, 1.5, -0.5]], kind="positive"),
            "out-of-range",
            FIRST.replace("x0", "x2"),
        ),
        (lambda: CountTable.from_matrix([[0.5, 0.25]]), "out-of-range", FIRST),
        (lambda: CountTable.from_matrix(sparse.csr_matrix([[1, 0, 0], [0, 0, -7]])), "out-of-range", None),
        (lambda: CountTable.from_matrix(np.array([[2**53 + 1]], dtype=np.uint64)), "out-of-range", FIRST),
        (lambda: CountTable.from_matrix(np.array([[object()]])), "wrong-type", "the matrix"),
        (lambda: CountTable.from_matrix(np.array([[1j]])), "wrong-type", "the matrix"),
        (lambda: CountTable.from_matrix(np.zeros(3)), "wrong-shape", "the matrix"),
        (lambda: CountTable.from_matrix([[1]], names=["a", "b"]), "wrong-shape", "the matrix names"),
        (lambda: CountTable.from_matrix([[1, 2]], names=["a", "a"]), "repeated-name", "the matrix names"),
        (lambda: CountTable(MIXED, [[1, 2]]), "other-domain", "CountTable domain"),
        (lambda: CountTable(Domain([Variable("a", kind="count")]), [[1, 2]]), "wrong-shape", "CountTable matrix"),
        (lambda: SMALL.columns(["aa"]), "unknown-name", "columns of the matrix"),
        (lambda: SMALL.columns(4), "out-of-range", "columns"),
        (lambda: SMALL.columns(["a", "a"]), "repeated-name", "columns"),
        (lambda: SMALL.to_array(max_cells=8), "over-budget", "to_array"),
        (lambda: SMALL.split((0.5, 0.6), 0), "out-of-range", "split fractions"),
        (lambda: SMALL.split((1.0,), -1), "out-of-range", "split seed"),
    ],
)
def test_bad_input_is_refused(call, code, argument):
    with raises(code, argument):
        call()


def test_messages_say_what_was_found():
    refused("(2 such cells)", CountTable.from_matrix, [[0.5, 0.25]])
    wanted = "row 1 (counted from 0), column 'x2': expected a whole number from 0 to 9007199254740991, received -7"
    refused(wanted, CountTable.from_matrix, sparse.csr_matrix([[1, 0, 0], [0, 0, -7]]))


def test_ranges_are_checked_on_demand(tmp_path):
    table = CountTable.from_csv(csv_file(tmp_path, "a,b\n0,9\n4,1\n"))
    table.check_range(0, 9, "a family")
    refused("line 2, column 'b': a family takes numbers from 0 to 8, received 9", table.check_range, 0, 8, "a family")
    refused("line 2, column 'a': it takes numbers of at least 1", table.check_range, 1, np.inf, "it")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a,a\n1,2\n", "repeated-name"),
        ("a,b\n1\n", "wrong-shape"),
        ("a,b\n", "empty"),
        ("", "empty"),
        ("count\n1\n", "empty"),
    ],
)
def test_bad_files(text, code, tmp_path):
    with raises(code):
        CountTable.from_csv(csv_file(tmp_path, text))


# Bad matrices and vocabularies


def test_vocabulary_by_name(tmp_path):
    path = npz_file(tmp_path)
    (tmp_path / "words.txt").write_bytes(b"\xef\xbb\xbfx\r\ny\r\nz\r\n\r\n")
    assert CountTable.from_npz(path, tmp_path / "words.txt").domain.names == ("x", "y", "z")
    refused("no such file", CountTable.from_npz, path, tmp_path / "none.txt")
    (tmp_path / "m_vocab.txt").unlink()
    assert "m_vocab.txt" in refused("column names are missing", CountTable.from_npz, path)
    (tmp_path / "words.txt").write_bytes(b"x\n\xff\nz\n")
    refused("line 2: not UTF-8", CountTable.from_npz, path, tmp_path / "words.txt")


def test_nothing_pickled_is_read(tmp_path):
    class Payload:
        def __reduce__(self):
            return (Path.touch, (Path(tmp_path / "executed"),))

    path = npz_file(tmp_path)
    good = dict(np.load(path))
    for name in ("data", "indices", "format", "shape"):
        np.savez(path, **{**good, name: np.array([Payload()], dtype=object)})
        refused("holds Python objects", CountTable.from_npz, path)
    assert not (tmp_path / "executed").exists()
    # Control: a reader that allows pickles does execute it.
    assert np.load(path, allow_pickle=True)["shape"].item() is None
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("names", ["a", "b"], "expected 3 names, one a column of"),
        ("names", ["a", "b", "c", "d"], "received 4"),
        ("names", ["a", "", "c"], "line 2: expected a name"),
        ("names", ["a", "b", "a"], "'a' is repeated"),
        *(("indices", places, "make no matrix") for places in ([0, 1, 9, 0], [0, 1, -1, 0])),
        *(("indptr", starts, "make no matrix") for starts in ([0, 2, 1, 4], [0, 4])),
        ("indices", [0.5, 1, 2, 0], "whole numbers"),
        *(("data", values, "expected numbers") for values in (["a", "b", "c", "d"], [1j, 1, 1, 1])),
        *(("shape", shape, "rows by columns") for shape in ([3], [10**12, 3])),
        ("format", "dia", "csr, csc or coo"),
        ("data", [1, np.nan, 1, 1], "row 1 (counted from 0), column 'a'"),
        ("data", [1, 1, -2, 1], "row 2 (counted from 0), column 'a'"),
    ],
)
def test_bad_arrays_and_vocabularies(name, changed, message, tmp_path):
    if name == "names":
        refused(message, CountTable.from_npz, npz_file(tmp_path, names=changed))
        return
    path = npz_file(tmp_path)
    np.savez(path, **{**dict(np.load(path)), name: np.array(changed)})
    assert str(path) in refused(message, CountTable.from_npz, path)


def test_damaged_files(tmp_path):
    path = npz_file(tmp_path, np.arange(3000).reshape(1000, 3))
    whole = path.read_bytes()
    for start in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:start])
        refused("m.npz", CountTable.from_npz, path)
    flipped = 0
    for start in range(40, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:start] + bytes([whole[start] ^ 0x55]) + whole[start + 1 :])
        try:
            CountTable.from_npz(path)  # a byte that does not matter, such as a date
        except InputError:
            flipped += 1
    assert flipped > 20
    for content in (b"", b"not a zip", pickle_free_array()):
        path.write_bytes(content)
        refused("no .npz file", CountTable.from_npz, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "world")
    refused("received arrays hello.txt", CountTable.from_npz, path)
    refused("no such file", CountTable.from_npz, tmp_path / "none.npz")
    refused("received a folder", CountTable.from_npz, tmp_path)


def pickle_free_array():
    stream = io.BytesIO()
    np.save(stream, COUNTS)
    return stream.getvalue()


def test_classic3_as_published(shared_data):
    table = CountTable.from_npz(shared_data / "classic3_sqr_top1000.npz", columns=500)
    assert (table.num_rows, len(table.domain)) == (3893, 500)
    assert (table.domain.names[:2], table.totals[:2].tolist()) == (("flow", "information"), [1997.0, 1679.0])
    assert np.all(np.diff(table.totals) <= 0)  # words by falling total count
    empty = np.flatnonzero(np.asarray(CountTable.from_npz(shared_data / "classic3_sqr_top1000.npz").matrix.sum(1)) == 0)
    assert empty.tolist() == [1930, 2454, 3232]
